"""Sessions as things to make, find, describe and delete, with their event log and small keyed records."""

from __future__ import annotations

from ..kit.rooms import Room, read, write
from . import events, keyed, lifecycle

__all__ = ["Records", "Sessions"]


class Sessions(Room):
    """Making, finding and deleting sessions, within a transaction or directly on a store."""

    create = write(lifecycle.create)
    delete = write(lifecycle.delete)
    rename = write(lifecycle.rename)
    find = read(lifecycle.find)
    load = read(lifecycle.load)
    listing = read(lifecycle.listing, one_view=True)
    ids = read(lifecycle.ids)
    append_event = write(events.append_event)
    events = read(events.events)


class Records(Room):
    """Small keyed records of a session, within a transaction or directly on a store."""

    put = write(keyed.put)
    get = read(keyed.get)
    list = read(keyed.listing)
    delete = write(keyed.delete)
