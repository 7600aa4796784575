"""The append-only log of a session: facts, each with a delivery row that hands it to side effects, in one landing."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..errors import Invalid
from ..kit.fenced import Who, enter, look_up
from ..kit.log import check_event, write_event
from ..limits import PAGE_ROWS
from ..records import EVENTS, Event
from ..store.reading import Rows
from ..store.transaction import Transaction


async def append_event(tx: Transaction, who: Who, kind: str, body: Any) -> int:
    """Add an event to a session's log; answer its number. Raises TooLarge above `limits.EVENT_BYTES`, NotFound, Gone."""
    check_event(kind, body)
    head, _ = await enter(tx, who)
    now = await tx.now()
    written = write_event(head, kind, body, now)
    await tx.insert_many(written.rows)
    await tx.update(replace(written.head, last_activity_at=now), expect={"next_event": head.next_event})
    return head.next_event


async def events(rows: Rows, who: Who, *, after: int = -1, limit: int = PAGE_ROWS) -> list[Event]:
    """Answer a session's events with numbers above `after`, oldest first, at most `limit`."""
    if type(limit) is not int or not 0 < limit <= PAGE_ROWS:
        raise Invalid(f"`limit` is a whole number from 1 to {PAGE_ROWS}.", do="Ask for another page.", path="limit")
    head, _ = await look_up(rows, who)
    return await rows.scan(EVENTS, head.session_id, low=after + 1, limit=limit)
