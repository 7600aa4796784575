"""Facts that are only ever added: events with their deliveries, receipts, and where an import came from."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..schema import CommitSeq, Json, Table


class Event(msgspec.Struct, frozen=True):
    """One entry of a session's log. Numbers go on after a deletion; `commit_seq` orders it among all sessions."""

    session_id: str
    event_no: int
    commit_seq: CommitSeq
    type: str
    at: int
    body: Json


class Delivery(msgspec.Struct, frozen=True):
    """The hand-off of one event to one sink."""

    session_id: str
    event_no: int
    sink: str
    state: Literal["pending", "leased", "delivered", "failed", "dead_letter"]
    attempts: int
    due_at: int


class Receipt(msgspec.Struct, frozen=True):
    """Proof that a keyed request happened: the digest of the request and its answer. Insert-only."""

    session_id: str
    scope: str
    key: str
    at: int
    digest: bytes
    answer: Json


class ImportSource(msgspec.Struct, frozen=True):
    """A foreign source that was read in: which session it became, and what could not be carried over as it was."""

    source: str  # the digest of what was read
    session_id: str
    at: int
    report: list[dict[str, Any]]


EVENTS = Table("events", Event, key=("session_id", "event_no"), root=("s", "session_id"))
DELIVERIES = Table("deliveries", Delivery, key=("session_id", "event_no", "sink"), root=("s", "session_id"))
RECEIPTS = Table("receipts", Receipt, key=("session_id", "scope", "key"), root=("s", "session_id"))
IMPORT_SOURCES = Table("import_sources", ImportSource, key=("source",), root=("i", "source"), payload=True)
