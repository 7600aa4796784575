"""Rows of work under way: the turn that runs, the owners that may run it, and small keyed records with a revision."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..schema import Json, Personal, Table


class PendingTurn(msgspec.Struct, frozen=True):
    """A turn between its input and its landing; a failed or interrupted one keeps its input until a retry takes it over."""

    session_id: str
    pending_no: int
    kind: Literal["reply", "regenerate"]
    state: Literal["running", "failed", "interrupted"]
    key: str | None
    take: int
    target: int | None  # the position a new version is for
    run_epoch: int
    started_at: int
    digest: bytes
    input: Json
    detail: dict[str, Any] | None = None  # how it ended: code, message
    writes: list[dict[str, Any]] | None = (
        None  # what it has changed so far, as `turn.save()` kept it: slot, path, value
    )


class Owner(msgspec.Struct, frozen=True):
    """One open store handle that may own sessions. One lease for all it holds, renewed by one heartbeat."""

    owner_id: str
    process: str  # host and process id, for people who look
    lease_until: int
    started_at: int
    label: Personal


class Record(msgspec.Struct, frozen=True):
    """One small keyed record of a session: everything that is a name, a state and a body (decision 39)."""

    session_id: str
    namespace: str
    key: str
    revision: int
    state: str
    at: int
    digest: bytes
    body: Json


PENDING_TURNS = Table(
    "pending_turns", PendingTurn, key=("session_id", "pending_no"), root=("s", "session_id"), payload=True
)
OWNERS = Table("owners", Owner, key=("owner_id",), root=("o", "owner_id"))
RECORDS = Table("records", Record, key=("session_id", "namespace", "key"), root=("s", "session_id"), payload=True)
