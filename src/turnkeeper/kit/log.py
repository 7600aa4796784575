"""Facts for the log: an event's rows with its delivery, numbered by the session's head, for whoever lands them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from ..errors import Invalid, TooLarge
from ..jsonvalue import check, encode
from ..limits import EVENT_BYTES
from ..records import Delivery, Event, Session

SINK = "out"
"""The sink every event is handed to."""


class Written(msgspec.Struct, frozen=True):
    """An event's rows, and the session's head that has minted its number; the caller writes both."""

    head: Session
    rows: list[Event | Delivery]


def check_event(kind: Any, body: Any) -> None:
    """Refuse an event that cannot be kept. Raises Invalid, or TooLarge above `limits.EVENT_BYTES`."""
    if not isinstance(kind, str) or not kind:
        raise Invalid("An event's type is a text that is not empty.", do="Give one.", path="type")
    check(body, "event")
    size = len(encode(body).encode())
    if size > EVENT_BYTES:
        raise TooLarge(
            f"An event body of {size:,} bytes is above the limit of {EVENT_BYTES:,}.",
            do="Store the bulk elsewhere and name it.", family="event-bytes", limit=EVENT_BYTES, size=size,
        )  # fmt: skip


def write_event(head: Session, kind: str, body: Any, now: int) -> Written:
    """Make the rows of one event."""
    number = head.next_event
    return Written(
        replace(head, next_event=number + 1),
        [
            Event(head.session_id, number, 0, kind, now, body),
            Delivery(head.session_id, number, SINK, "pending", 0, now),
        ],
    )
