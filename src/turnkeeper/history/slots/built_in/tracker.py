"""The state of the twelve tracker modules, a slot each: `tracker.stats` … `tracker.journal` (decision 10).

A module without lists (stats) is a fields slot, a delta for each field. A module with lists is a keyed-list of wrapper
rows `{key, value}`: a row of a list stands under `<list>:<id of the row>`, any other field under its own name.

So far the slots hold what every module has in common: strategy, writers, and that a row is such a wrapper. Which lists
and fields a module has, and what their values must be, is not checked here; it comes with the modules themselves.
"""

from __future__ import annotations

from ..definition import SlotDef, define_slot
from ..shapes import Anything, Fields, Text

LISTLESS = ("stats",)
"""The modules that are a dict of fields."""

LISTED = (
    "resources", "inventory", "equipment", "spellbook", "party", "quests", "relationships", "effects", "calendar",
    "places", "journal",
)  # fmt: skip
"""The modules that have lists."""

WRAPPER = Fields({"key": Text(chars_min=1), "value": Anything()})
"""The rule of a row: one row of one of the module's lists, or one of its other fields."""


def _slot(module: str) -> SlotDef:
    if module in LISTLESS:
        return define_slot(f"tracker.{module}", "scene", "fields", {}, writers=("turn", "background", "person"))
    return define_slot(
        f"tracker.{module}", "scene", "keyed-list", [],
        key="key", writers=("turn", "background", "person"), shape=WRAPPER,
    )  # fmt: skip


SLOTS = [_slot(module) for module in (*LISTLESS, *LISTED)]
