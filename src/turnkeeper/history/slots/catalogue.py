"""All built-in slots. Written by `python -m turnkeeper.history.slots.generator` from the modules of `built_in/`: change those."""

from __future__ import annotations

from .built_in import global_, skills, summary, tracker, tracker_list, tracker_record, vars
from .definition import SlotDef
from .lookup import make_registry

SLOTS: tuple[SlotDef, ...] = (
    global_.SLOT,
    skills.SLOT,
    summary.SLOT,
    *tracker.SLOTS,
    tracker_list.SLOT,
    tracker_record.SLOT,
    vars.SLOT,
)

BUILT_IN = make_registry(SLOTS)
"""The built-in slots, found by id."""

slot_of = BUILT_IN.slot_of
