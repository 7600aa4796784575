"""Writes of global variables, shared by every session of a space: a row is one operation, keyed by the operation's id.

The one slot whose rows say how to reach a value: between sessions there is no common history, and increments must add
up. A take's own fold leaves it out; the value of a global is folded from the operations of all versions that are shown.
"""

from __future__ import annotations

from ..definition import define_slot
from ..shapes import Anything, Fields, Number, Shape, Tagged, Text


def _operation(**more: Shape) -> Fields:
    return Fields({"id": Text(chars_min=1), "op": Text(), "name": Text(), **more})


ROW = Tagged(
    "op",
    {
        "set": _operation(value=Anything()),
        "inc": _operation(amount=Number()),
        "append": _operation(value=Text()),
        "delete": _operation(),
    },
)
"""The rule of one operation: set and append carry a value, inc an amount, delete neither."""

SLOT = define_slot("global", "shared", "keyed-list", [], key="id", writers=("turn",), shape=ROW)
