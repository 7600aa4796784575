"""The fold: deltas over a state give a state. Pure: no store, clock, file or network.

Values are outcomes: folding a delta twice gives what folding it once gives, and folding a history in two steps, with
the state between them written down as JSON, gives what one step gives. Rows and fields stand in the order in which they
first appeared; what was removed and written again stands at the end (decision 15). A delta whose slot is not declared
or shared, whose path its strategy cannot read, or whose row has another key than its path, is skipped here; the doors
refuse to write one (S-046–S-048).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .definition import readable
from .deltas import Change, cells_of
from .lookup import Registry


class State(dict[str, Any]):
    """A take's state: what each slot holds, by slot. It has what was written; asked for more, it answers the default.

    `state["summary"]` is the declared default while nothing was written there, a fresh one each time; an undeclared or
    shared slot is a KeyError. A copy (`dict(state)`) holds only what is there.
    """

    __slots__ = ("slots",)
    slots: Registry

    def __missing__(self, slot_id: str) -> Any:
        found = self.slots.scene_slot(slot_id) if isinstance(slot_id, str) else None
        if found is None:
            raise KeyError(slot_id)
        return found.default

    def get(self, slot_id: str, default: Any = None) -> Any:
        """Answer what a slot holds, or its declared default; `default` for a slot that is not declared."""
        try:
            return self[slot_id]
        except KeyError:
            return default

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def state_of(held: Mapping[str, Any], slots: Registry) -> State:
    """Answer a state that holds these slots, as a cache or a base has them; what is not declared is left out."""
    state = State({slot_id: value for slot_id, value in held.items() if slots.scene_slot(slot_id) is not None})
    state.slots = slots
    return state


def fold(state: Mapping[str, Any], deltas: Iterable[Change], slots: Registry | None = None) -> State:
    """Answer the state after `deltas`, leaving the given one as it was. Costs what the touched slots hold.

    Without `slots`, they are those the state was made with.
    """
    if slots is None:
        slots = state.slots  # type: ignore[attr-defined]  # a State
    after = State(state)
    after.slots = slots
    current, cells = "", None  # the fields slot that is being folded, and what it holds from now on
    opened: tuple[str, ...] = ()
    others: list[Change] = []
    for delta in deltas:  # on the path of every turn: a fields slot that was written before is folded right here
        if delta.slot != current:
            current = delta.slot
            cells = after[current] if current in slots.fields_ids and current in after else None
            if type(cells) is not dict:
                cells = None
            elif current not in opened:
                opened += (current,)
                cells = after[current] = cells.copy()
        if cells is None:
            others.append(delta)
            continue
        path = delta.path
        if type(path) is not list and type(path) is not tuple:
            continue
        try:
            (name,) = path
        except ValueError:
            continue
        if type(name) is not str:
            continue
        if delta.removed:
            cells.pop(name, None)
        else:
            cells[name] = delta.value
    if others:
        _fold_others(after, others, slots)
    return after


def _fold_others(state: State, deltas: Iterable[Change], slots: Registry) -> None:
    """Fold deltas of any slots into a state that is ours to change."""
    opened: dict[str, _Opened] = {}
    for delta in deltas:
        entry = opened.get(delta.slot)
        if entry is None:
            entry = opened[delta.slot] = _Opened(state, delta.slot, slots)
        if entry.slot is None or not readable(entry.slot.diff, delta.path):
            continue
        name = delta.path[0] if delta.path else ""
        if delta.removed:
            entry.cells.pop(name, None)
        else:
            value, key = delta.value, entry.slot.key
            if key is not None and not (isinstance(value, dict) and value.get(key) == name):
                continue
            entry.cells[name] = value
        entry.touched = True
    for slot_id, entry in opened.items():
        if entry.touched:
            entry.close(state, slot_id)


class _Opened:
    """One slot while deltas fold into it: its definition, and what it holds by path."""

    __slots__ = ("cells", "slot", "touched")

    def __init__(self, state: State, slot_id: str, slots: Registry) -> None:
        self.slot = slots.scene_slot(slot_id)
        self.touched = False
        self.cells: dict[str, Any] = {}
        if self.slot is not None and self.slot.diff != "value":
            self.cells = cells_of(self.slot, state[slot_id])

    def close(self, state: State, slot_id: str) -> None:
        """Put what was folded back into the state."""
        assert self.slot is not None, "only a declared slot is touched"
        if self.slot.diff == "keyed-list":
            state[slot_id] = list(self.cells.values())
        elif self.slot.diff == "fields":
            state[slot_id] = self.cells
        elif self.cells:
            state[slot_id] = self.cells[""]
        else:
            state.pop(slot_id, None)
