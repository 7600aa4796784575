"""What counts on each message, in the order of folding: its shown version's deltas, later writes tied to that version,
the person's edits (S-070). A version's deltas are shared by every take that shows it; the other two belong to one take.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..records import MESSAGE_DELTAS, Delta, Message, MessageDelta, Take
from ..store.reading import Rows
from .ranges import deltas_by_version

AnyDelta = Delta | MessageDelta


class Layered(msgspec.Struct, frozen=True):
    """One shown message with the deltas that count on it; two indices say where the later layers begin."""

    position: int
    deltas: list[AnyDelta]
    generated_from: int  # where writes made after the version was committed begin
    person_from: int  # where the person's edits begin


async def layers(rows: Rows, take: Take, messages: Sequence[Message]) -> list[Layered]:
    """Answer the layers of some messages of a take, each with the version it shows."""
    if not messages:
        return []
    own = await deltas_by_version(rows, take.session_id, (message.version for message in messages))
    later = await later_deltas(rows, take, messages[0].position, messages[-1].position)
    return [layered(message, own.get(message.version, []), later.get(message.position, [])) for message in messages]


def layered(message: Message, own: Sequence[AnyDelta], later: Sequence[MessageDelta]) -> Layered:
    """Order one message's deltas as if it showed `message.version`."""
    tied = [delta for delta in later if delta.version == message.version]
    person = [delta for delta in later if delta.version is None]
    return Layered(message.position, [*own, *tied, *person], len(own), len(own) + len(tied))


async def later_deltas(rows: Rows, take: Take, low: int, high: int) -> dict[int, list[MessageDelta]]:
    """Answer, by position, what was written on messages after they were committed, in the order of writing."""
    found: dict[int, list[MessageDelta]] = {}
    for delta in await rows.scan(MESSAGE_DELTAS, take.session_id, take.take, low=low, high=high):
        found.setdefault(delta.position, []).append(delta)
    return found
