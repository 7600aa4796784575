"""Takes, messages, versions and the state that follows them. `History` gathers the operations; each lives by its noun."""

from __future__ import annotations

from ..kit.rooms import Room, read, write
from . import alternatives, appending, base, choosing, forking, reading, state

__all__ = ["History"]


class History(Room):
    """The operations on a session's history, within a transaction or directly on a store."""

    append_messages = write(appending.append_messages)
    add_version = write(choosing.add_version)
    select_swipe = write(choosing.select_swipe)
    select_take = write(choosing.select_take)
    fork = write(forking.fork)
    set_branch_base = write(base.set_branch_base)
    scene_state = read(state.scene_state)
    scene_state_before = read(state.scene_state_before)
    messages = read(reading.messages)
    versions = read(reading.versions)
    takes = read(reading.takes)
    choose = write(alternatives.choose)
    alternatives = read(alternatives.alternatives)
