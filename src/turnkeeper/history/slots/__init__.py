"""Slots: named pieces of state, the deltas that change them, and the fold that puts deltas together. A pure core.

It knows no store, clock, file or network (`generator` is a tool beside it). From the ground up: `shapes` (rules of
values), `definition` (what a slot is), `lookup` (from an id to its definition), `deltas` (a change, and `diff`),
`folding` (`fold` and the state), `doors` (the one check of a write), `written` (when variables were written),
`built_in/` (the slots themselves) and `catalogue` (the list of them, generated).

::

    mood = define_slot("mood", "scene", "value", "calm", writers=["turn"], shape=Choice(["calm", "wild"]))
    slots = make_registry([*BUILT_IN.slots, mood])
    fold({}, diff(mood, "calm", "wild"), slots)["mood"]      # "wild"
"""

from __future__ import annotations

from .catalogue import BUILT_IN, SLOTS, slot_of
from .definition import WRITERS, SlotDef, Writer, define_slot
from .deltas import NewDelta, diff
from .doors import check_deltas, check_state
from .folding import State, fold, state_of
from .lookup import Registry, make_registry, make_slot_of

__all__ = [
    "BUILT_IN", "SLOTS", "WRITERS", "NewDelta", "Registry", "SlotDef", "State", "Writer", "check_deltas", "check_state",
    "define_slot", "diff", "fold", "make_registry", "make_slot_of", "slot_of", "state_of",
]  # fmt: skip
