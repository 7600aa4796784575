"""Facts for the log: an event's rows with its delivery, numbered by the session's head, for whoever lands them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from ..records import Delivery, Event, Session

SINK = "out"
"""The sink every event is handed to."""


class Written(msgspec.Struct, frozen=True):
    """An event's rows, and the session's head that has minted its number; the caller writes both."""

    head: Session
    rows: list[Event | Delivery]


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
