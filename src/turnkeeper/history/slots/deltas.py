"""A delta: what one write says about one path of a slot. It states an outcome, never how to reach it. Pure.

`diff` cuts the difference between two states of a slot into deltas; `folding.fold` puts deltas together again. Values
are compared by JSON type: 1 and True differ, the order of a dict's keys does not count, nor does the order of rows.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from ...errors import Invalid
from ...jsonvalue import same
from .definition import SlotDef, unlike


class Change(Protocol):
    """What the fold reads of a delta, be it stored or still to be written."""

    @property
    def slot(self) -> str:
        """The slot it changes."""

    @property
    def path(self) -> Any:
        """The place inside it."""

    @property
    def removed(self) -> bool:
        """Whether what was there is gone."""

    @property
    def value(self) -> Any:
        """What is there from now on."""


class NewDelta(msgspec.Struct, frozen=True):
    """A change of state to be written: a value at a path of a slot, or its removal. The store adds the time.

    None is a value. A value that is left out is none, and as JSON it is left out too.
    """

    slot: str
    path: list[str]
    value: Any | UnsetType = UNSET
    removed: bool = False

    def __post_init__(self) -> None:
        if (self.value is UNSET) is not self.removed:
            raise Invalid(
                f"A delta of the slot {self.slot!r} has either a value or the mark that it was removed.",
                do="Give one of them.",
                slot=self.slot,
            )


def diff(slot: SlotDef, old: Any, new: Any, *, slot_id: str | None = None) -> list[NewDelta]:
    """Cut what changed between two whole states of a slot into deltas; none when they are equal.

    `slot_id` names the member when the slot is a family. Raises Invalid when `new` is no state of that slot.
    """
    named = slot.id if slot_id is None else slot_id
    if why := unlike(slot.diff, slot.key, new):
        raise Invalid(f"That is no state of the slot {named!r}: {why}.", do="Give a whole state.", slot=named)
    if slot.diff == "value":
        return [] if same(old, new) else [NewDelta(named, [], new)]
    before, after = cells_of(slot, old), cells_of(slot, new)
    return [
        *(NewDelta(named, [name], removed=True) for name in before if name not in after),
        *(
            NewDelta(named, [name], value)
            for name, value in after.items()
            if name not in before or not same(before[name], value)
        ),
    ]


def cells_of(slot: SlotDef, state: Any) -> dict[str, Any]:
    """Answer what a state holds by path: a dict of its own. What is no state of the slot holds nothing."""
    if slot.diff == "value":
        return {"": state}
    if slot.diff == "fields":
        return dict(state) if isinstance(state, dict) else {}
    rows = state if isinstance(state, list | tuple) else ()
    return {row[slot.key]: row for row in rows if isinstance(row, dict) and isinstance(row.get(slot.key), str)}
