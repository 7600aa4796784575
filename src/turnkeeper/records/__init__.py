"""The frozen records, one module a noun, each beside its table; `TABLES` is the whole schema.

The order of `TABLES` is fixed: a table's place in it is its number on the wire.
"""

from __future__ import annotations

from typing import Any

from ..schema import Table
from .facts import DELIVERIES, EVENTS, IMPORT_SOURCES, RECEIPTS, Delivery, Event, ImportSource, Receipt
from .keeping import DAMAGES, SEALS, SNAPSHOTS, Damage, Seal, Snapshot
from .messages import MESSAGES, TAKES, VERSIONS, Message, Role, Take, Version
from .running import OWNERS, PENDING_TURNS, RECORDS, Owner, PendingTurn, Record
from .sessions import HEADERS, SESSIONS, TOMBSTONES, Header, Session, Status, Tombstone
from .state import BASES, DELTAS, KEYFRAMES, MESSAGE_DELTAS, TIPS, Base, Delta, Keyframe, MessageDelta, Tip

TABLES: tuple[Table[Any], ...] = (
    SESSIONS, HEADERS, TOMBSTONES, TAKES, MESSAGES, VERSIONS, DELTAS, MESSAGE_DELTAS, BASES, TIPS, KEYFRAMES,
    EVENTS, DELIVERIES, RECEIPTS, IMPORT_SOURCES, PENDING_TURNS, OWNERS, RECORDS,
    SEALS, DAMAGES, SNAPSHOTS,
)  # fmt: skip

__all__ = [
    "BASES", "DAMAGES", "DELIVERIES", "DELTAS", "EVENTS", "HEADERS", "IMPORT_SOURCES", "KEYFRAMES", "MESSAGES",
    "MESSAGE_DELTAS", "OWNERS", "PENDING_TURNS", "RECEIPTS", "RECORDS", "SEALS", "SESSIONS", "SNAPSHOTS", "TABLES",
    "TAKES", "TIPS", "TOMBSTONES", "VERSIONS", "Base", "Damage", "Delivery", "Delta", "Event", "Header",
    "ImportSource", "Keyframe", "Message", "MessageDelta", "Owner", "PendingTurn", "Receipt", "Record", "Role",
    "Seal", "Session", "Snapshot", "Status", "Take", "Tip", "Tombstone", "Version",
]  # fmt: skip
