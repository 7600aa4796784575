"""Takes, messages, versions and the state that follows them. `History` gathers the operations; each lives by its noun."""

from __future__ import annotations

from ..kit.rooms import Room, read, write
from . import alternatives, appending, base, choosing, cutting, forking, later, line, range_read, reading, state

__all__ = ["History"]


class History(Room):
    """The operations on a session's history, within a transaction or directly on a store."""

    append_messages = write(appending.append_messages)
    add_version = write(choosing.add_version)
    select_swipe = write(choosing.select_swipe)
    select_take = write(choosing.select_take)
    fork = write(forking.fork)
    cut_messages = write(cutting.cut_messages)
    restore_cut = write(cutting.restore_cut)
    cut_swipe = write(cutting.cut_swipe)
    restore_swipe = write(cutting.restore_swipe)
    delete_take = write(cutting.delete_take)
    restore_take = write(cutting.restore_take)
    undo = write(line.undo)
    redo = write(line.redo)
    record_deltas = write(later.record_deltas)
    record_message_deltas = write(later.record_message_deltas)
    set_branch_base = write(base.set_branch_base)
    scene_state = read(state.scene_state)
    scene_state_before = read(state.scene_state_before)
    scene_deltas = read(range_read.scene_deltas)
    messages = read(reading.messages)
    versions = read(reading.versions)
    takes = read(reading.takes)
    choose = write(alternatives.choose)
    alternatives = read(alternatives.alternatives)
