"""Rows that keep the store itself in order: its sealed keys, damage that was found, snapshots of single sessions."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..schema import Personal, Table


class Seal(msgspec.Struct, frozen=True):
    """A sealed store's ring of data keys, itself sealed under the key the store is opened with. Never sealed twice."""

    name: str  # "ring"
    at: int
    salt: bytes  # of the derivation from a passphrase
    ring: bytes


class Damage(msgspec.Struct, frozen=True):
    """A stored row that the health check found damaged, or set aside with its cells as they were."""

    session_id: str
    place: str  # the table and the key, as the report names them
    table_name: str
    state: Literal["found", "aside"]
    why: str
    at: int
    cells: list[Any] | None = None  # the row as it stood, once it was set aside; blobs in hex


class Snapshot(msgspec.Struct, frozen=True):
    """One piece of a stored copy of a session, as its archive has it. Piece 0 carries the label."""

    session_id: str
    snapshot_no: int
    piece: int
    at: int
    data: bytes
    label: Personal | None = None


SEALS = Table("seals", Seal, key=("name",), root=("w", "name"))
DAMAGES = Table("damages", Damage, key=("session_id", "place"), root=("d", "session_id"), payload=True)
SNAPSHOTS = Table(
    "snapshots", Snapshot, key=("session_id", "snapshot_no", "piece"), root=("p", "session_id"), payload=True
)
