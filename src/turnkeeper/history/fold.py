"""The fold: deltas over a state give a state. Pure: no store, clock, file or network.

A state is a dict of slots; the one slot so far is ``vars``, of the strategy *fields*: a dict whose fields deltas set or
remove by a path of one name. Values are outcomes: folding a delta twice gives what folding it once gives. A delta whose
slot is not declared, or whose path the strategy cannot read, is skipped here; the doors refuse to write one (S-046–S-048).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import Invalid
from ..records import Delta

VARS = "vars"
SLOTS = (VARS,)

State = dict[str, Any]


def empty() -> State:
    """Answer the state before anything happened."""
    return {VARS: {}}


def fold(state: State, deltas: Iterable[Delta]) -> State:
    """Answer the state after `deltas`, leaving the given one as it was. Costs what the touched slots hold."""
    after = dict(state)
    copied: set[str] = set()
    for delta in deltas:
        if delta.slot not in SLOTS or not _readable(delta.path):
            continue
        if delta.slot not in copied:
            copied.add(delta.slot)
            after[delta.slot] = dict(after.get(delta.slot) or {})
        fields, (name,) = after[delta.slot], delta.path
        if delta.removed:
            fields.pop(name, None)
        else:
            fields[name] = delta.value
    return after


def changed_slots(deltas: Iterable[Delta]) -> set[str]:
    """Answer the slots that deltas touch."""
    return {delta.slot for delta in deltas if delta.slot in SLOTS}


def check_path(slot: str, path: Sequence[Any]) -> None:
    """Refuse an undeclared slot, or a path foreign to its strategy. Raises Invalid."""
    if slot not in SLOTS:
        raise Invalid(f"There is no slot {slot!r}.", do=f"The slots are {', '.join(SLOTS)}.", slot=slot)
    if not _readable(path):
        raise Invalid(f"A path in the slot {slot!r} is one name.", do="Give a path of one text.", slot=slot)


def _readable(path: Sequence[Any]) -> bool:
    return len(path) == 1 and isinstance(path[0], str)
