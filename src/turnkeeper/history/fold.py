"""The fold as the rooms above use it: over a take's state, with the declared slots. Pure: no store, clock, file or network.

A `State` knows the slots it was made with, so that whoever holds one need not pass them on. It has an entry for each
slot that was written, and always one for `vars`; any other declared slot answers its default. See `slots/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .slots import BUILT_IN, folding
from .slots.deltas import Change
from .slots.folding import State, fold
from .slots.lookup import Registry

__all__ = ["VARS", "State", "changed_slots", "empty", "fold", "state_of"]

VARS = "vars"


def empty(slots: Registry = BUILT_IN) -> State:
    """Answer the state before anything happened."""
    state = State({VARS: {}})
    state.slots = slots
    return state


def state_of(held: Mapping[str, Any], slots: Registry = BUILT_IN) -> State:
    """Answer the state that a base or a cache holds; slots that are not declared, or shared, are left out of it."""
    return folding.state_of({VARS: {}, **held}, slots)


def changed_slots(deltas: Iterable[Change], slots: Registry = BUILT_IN) -> set[str]:
    """Answer the slots of a take's state that deltas touch."""
    touched = {delta.slot for delta in deltas}
    if touched <= slots.scene_ids:
        return touched
    return {slot_id for slot_id in touched if slots.scene_slot(slot_id) is not None}
