"""The one check of a whole write at a door, whichever door it is: all of it may be written, or none of it. Pure.

A door is a store's entry that fixes who is writing: a turn's landing is "turn", a write after the landing that names a
version is "background", a person's edit is "person", a take's base is "import". Nothing in a delta can change that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...errors import Invalid, NotAllowed
from ...jsonvalue import check, plainly_fine
from .definition import SlotDef, Writer, readable
from .deltas import Change, NewDelta, diff
from .lookup import Registry

_NAMES = {"turn": "a turn", "background": "a background writer", "person": "a person", "import": "an import"}
_PATHS = {"value": "empty", "fields": "the name of one field", "keyed-list": "the key of one row"}
_CHARS_SHOWN = 120


def check_deltas(deltas: Iterable[Change], writer: Writer, slots: Registry) -> None:
    """Refuse a write of which one delta is not allowed: nothing of it may be stored then.

    Raises Invalid for an undeclared slot, a path its strategy cannot read, a value that is no JSON or does not fit the
    slot's shape; NotAllowed for a slot that takes no writes from this writer. A removal carries no value, so it meets
    the other rules alone. Slot and path are named, the value never.
    """
    for delta in deltas:
        slot = declared(delta.slot, slots)
        if writer not in slot.writers:
            raise _not_allowed(delta, slot, writer)
        if not readable(slot.diff, delta.path):
            raise _unreadable(delta.slot, delta.path, slot)
        if not delta.removed:
            if not plainly_fine(delta.value):
                check(delta.value, place(delta.slot, delta.path))
            if slot.key is not None or slot.shape is not None or slot.shape_at is not None:
                _check_fit(delta, slot)


def check_state(slot_id: str, state: Any, writer: Writer, slots: Registry) -> None:
    """Refuse a whole state of a slot, as a take's base brings it, when one of the deltas that make it is not allowed.

    Raises what `check_deltas` raises, and Invalid for a state of another kind or a shared slot.
    """
    slot = declared(slot_id, slots)
    if slot.scope != "scene":
        raise Invalid(f"The slot {slot_id!r} is shared: no take has a state of it.", do="Leave it out.", slot=slot_id)
    if writer not in slot.writers:
        raise _refused(slot_id, [], slot, writer)
    check(state, slot_id)
    if slot.diff == "value":
        deltas = [NewDelta(slot_id, [], state)]
    else:
        deltas = diff(slot, {} if slot.diff == "fields" else [], state, slot_id=slot_id)
    check_deltas(deltas, writer, slots)


def declared(slot_id: Any, slots: Registry) -> SlotDef:
    """Answer a slot's definition. Raises Invalid for one that is not declared."""
    slot = slots.slot_of(slot_id) if isinstance(slot_id, str) else None
    if slot is None:
        named = f"slot {_clipped(slot_id)!r}" if isinstance(slot_id, str) else "slot whose id is not text"
        known = ", ".join(sorted(one.id for one in slots.slots))
        raise Invalid(f"There is no {named}.", do=f"The slots are {known}.", slot=slot_id)
    return slot


def check_path(slot_id: str, path: Any, slots: Registry) -> None:
    """Refuse an undeclared slot, or a path foreign to its strategy. Raises Invalid."""
    slot = declared(slot_id, slots)
    if not readable(slot.diff, path):
        raise _unreadable(slot_id, path, slot)


def _unreadable(slot_id: str, path: Any, slot: SlotDef) -> Invalid:
    return Invalid(
        f"A path in the slot {slot_id!r} is {_PATHS[slot.diff]}, and this one ({_named(path)}) is not.",
        do=f"Give {'an empty list' if slot.diff == 'value' else 'a list of one text'}.", slot=slot_id,
    )  # fmt: skip


def _check_fit(delta: Change, slot: SlotDef) -> None:
    """Refuse a row without the key of its path, or a value that breaks the rule of its place. Raises Invalid."""
    where, value = place(delta.slot, delta.path), delta.value
    if slot.key is not None and not (isinstance(value, dict) and value.get(slot.key) == delta.path[0]):
        raise Invalid(
            f"The row at {where} does not carry the key of its path in its field `{slot.key}`.",
            do="Give a dict with that field.", slot=delta.slot, path=delta.path,
        )  # fmt: skip
    shape = slot.shape_of(delta.path)
    why = "the slot has no such field" if shape is None else shape(value)
    if why:
        raise Invalid(
            f"The value at {where} does not fit the slot: {why}.",
            do="Give one that fits.", slot=delta.slot, path=delta.path,
        )  # fmt: skip


def place(slot_id: str, path: Iterable[str]) -> str:
    """Name a place in a slot as messages do: "vars.lamp"."""
    return _clipped(".".join([slot_id, *path]))


def _not_allowed(delta: Change, slot: SlotDef, writer: Writer) -> NotAllowed:
    named = delta.path if readable(slot.diff, delta.path) else []
    return _refused(delta.slot, named, slot, writer)


def _refused(slot_id: str, path: Any, slot: SlotDef, writer: Writer) -> NotAllowed:
    others = " and ".join(_NAMES[one] for one in slot.writers)
    return NotAllowed(
        f"The slot {slot_id!r} takes no writes from {_NAMES[writer]}: {place(slot_id, path)} was not written.",
        do=f"It takes them from {others}." if others else "It takes none.", slot=slot_id, path=path, writer=writer,
    )  # fmt: skip


def _named(path: Any) -> str:
    if isinstance(path, list | tuple) and all(isinstance(name, str) for name in path):
        return _clipped(repr(list(path)))
    return "not a list of texts"


def _clipped(text: str) -> str:
    return text if len(text) <= _CHARS_SHOWN else text[:_CHARS_SHOWN] + "…"
