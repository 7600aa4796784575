"""The range read: the state before a message, and each shown message from there on with the deltas that count on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import NotFound
from ..kit.fenced import Who
from ..records import MESSAGES
from ..store.reading import Rows
from .layers import Layered, layers
from .state import find_message, open_take, state_before_message


class RangeRead(msgspec.Struct, frozen=True):
    """A part of a take's history as state: folding `messages` over `before` gives the state at the end of the range."""

    before: dict[str, Any]  # without any delta of the first message, its person's edits included
    messages: list[Layered]


async def scene_deltas(
    rows: Rows,
    who: Who,
    first: int,
    last: int | None = None,
    *,
    take: int | None = None,
    slot_prefixes: Sequence[str] | None = None,
) -> RangeRead | None:
    """Read the deltas of the shown messages from position `first` to `last` (default: the end), both inclusive.

    Answers None for an unknown or deleted take and for an end that is unknown or cut; a range that ends before it starts
    is empty. With prefixes only deltas of such slots are answered; the state before stays whole (S-158–S-171).
    """
    try:
        head, row, _ = await open_take(rows, who, take)
        for position in (first,) if last is None else (first, last):
            await find_message(rows, row, position)
    except NotFound:
        return None
    end = row.cursor - 1 if last is None else last
    found = await rows.scan(MESSAGES, head.session_id, row.take, low=first, high=end) if first <= end else []
    part = await layers(rows, row, [message for message in found if not message.cut])
    if slot_prefixes is not None:
        part = [_only(message, tuple(slot_prefixes)) for message in part]
    return RangeRead(dict(await state_before_message(rows, row, first)), part)


def _only(message: Layered, prefixes: tuple[str, ...]) -> Layered:
    wanted = [delta.slot.startswith(prefixes) for delta in message.deltas]
    return Layered(
        message.position,
        [delta for delta, keep in zip(message.deltas, wanted, strict=True) if keep],
        sum(wanted[: message.generated_from]),
        sum(wanted[: message.person_from]),
    )
