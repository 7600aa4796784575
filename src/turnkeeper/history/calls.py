"""Which result answers which call. Pure: the one place that says so, for turns that land and for histories that are sent.

A result answers the nearest earlier call with its id that has none yet. Calls count only in an assistant's message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Place = tuple[int, int]
"""The number of a message, and of a part in it."""

INTERRUPTED = "The call was interrupted: it has no result."
"""What the result says that closes a call without one."""


def pair_calls(messages: Iterable[tuple[str, Sequence[Mapping[str, Any]]]]) -> dict[Place, Mapping[str, Any] | None]:
    """Answer each call of some messages (role and parts), in order, with the part that is its result, or None."""
    pairs: dict[Place, Mapping[str, Any] | None] = {}
    waiting: dict[str, list[Place]] = {}
    for number, (role, parts) in enumerate(messages):
        for index, part in enumerate(parts):
            kind = part.get("type")
            if kind == "tool_call" and role == "assistant":
                pairs[number, index] = None
                waiting.setdefault(part["id"], []).append((number, index))
            elif kind == "tool_result" and waiting.get(part["call_id"]):
                pairs[waiting[part["call_id"]].pop()] = part
    return pairs
