"""A turn is the unit: own the session, keep the input, read the state, run, land everything in one transaction."""

from __future__ import annotations

from ..kit.rooms import Room, read, write
from . import land, pending

__all__ = ["Turns"]


class Turns(Room):
    """The landings of a turn, within a transaction or directly on a store."""

    begin = write(pending.begin)
    prepare = read(pending.prepare)
    save = write(pending.save)
    fail = write(pending.fail)
    discard = write(pending.discard)
    pending = read(pending.pending)
    commit_turn = write(land.commit_turn)
