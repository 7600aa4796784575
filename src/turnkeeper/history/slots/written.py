"""When each variable was first and last written, as far as a take shows it. Pure, and a layer beside the state.

The state keeps plain values (`state["vars"] == {"lamp": "lit"}`); the times follow the same deltas by the same rules,
so hiding the message that first wrote a variable moves its first time to the next write still shown (S-010, S-011), and
a variable written again after its removal begins anew (decision 15). Times are microseconds UTC, from the deltas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from .definition import readable
from .deltas import Change
from .lookup import Registry

Times = dict[str, list[int]]
"""First and last time of writing by name; JSON, so that a cache can hold it beside a slot's state."""


class Timed(Change, Protocol):
    """A delta with the time of its landing."""

    @property
    def at(self) -> int:
        """When it was written."""


class Variable(msgspec.Struct, frozen=True):
    """A variable as the macro engine knows it: its value, and when it was first and last written."""

    value: Any
    first_at: int
    last_at: int


def fold_times(times: Mapping[str, list[int]], deltas: Iterable[Timed], slot_id: str, slots: Registry) -> Times:
    """Answer the times of a fields slot after `deltas`, leaving the given ones as they were."""
    after = dict(times)
    slot = slots.scene_slot(slot_id)
    for delta in deltas:
        if slot is None or delta.slot != slot_id or not readable(slot.diff, delta.path):
            continue
        name = delta.path[0]
        if delta.removed:
            after.pop(name, None)
        elif name in after:
            after[name] = [after[name][0], delta.at]
        else:
            after[name] = [delta.at, delta.at]
    return after


def variables(fields: Mapping[str, Any], times: Mapping[str, list[int]], base_at: int = 0) -> dict[str, Variable]:
    """Join a slot's fields and their times. `base_at` stands for what came with the take's base, which has no history."""
    return {name: Variable(value, *times.get(name, (base_at, base_at))) for name, value in fields.items()}
