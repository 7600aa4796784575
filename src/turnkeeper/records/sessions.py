"""The session's own rows: what moves with every turn, what a person named it, and what remains after it was deleted."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..schema import Personal, Table

Status = Literal["pending", "running", "interrupting", "completed", "failed", "interrupted"]


class Session(msgspec.Struct, frozen=True):
    """The head of a session: who may advance it, which take is active, and the next number of everything minted in it."""

    session_id: str
    instance_id: str  # the incarnation: another life under the same id has another
    status: Status
    run_epoch: int  # the right to advance the session, as a number that only grows
    owner: str | None  # the owner token that holds the claim
    active_take: int
    next_take: int
    next_version: int
    next_turn: int
    next_pending: int
    next_event: int
    line_rev: int  # moves when what is shown of the active take moves
    updated_at: int  # last change of status
    last_activity_at: int  # last progress
    undo_event: int | None = None  # the event of the newest operation on what is shown
    redo: list[int] | None = None  # the events of operations that were undone, newest last


class Header(msgspec.Struct, frozen=True):
    """What a list shows of a session. A root of its own, so that renaming never disturbs a running turn."""

    session_id: str
    instance_id: str
    space: str
    created_at: int
    updated_at: int
    title: Personal | None = None
    labels: dict[str, str] = {}
    metadata: dict[str, Any] = {}


class Tombstone(msgspec.Struct, frozen=True):
    """What remains of a deleted session: enough to say that it is gone, and where a next life's event log goes on."""

    session_id: str
    instance_id: str
    next_event: int
    deleted_at: int


SESSIONS = Table("sessions", Session, key=("session_id",), root=("s", "session_id"), head=True)
HEADERS = Table(
    "headers",
    Header,
    key=("session_id",),
    root=("h", "session_id"),
    orders={"listed": ("space", "created_at", "session_id")},
    payload=True,
)
TOMBSTONES = Table("tombstones", Tombstone, key=("session_id",), root=("t", "session_id"))
