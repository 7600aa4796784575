"""Taking an archive in as a session, and copies of one session kept beside it, to which it can be set back.

A snapshot is an archive (`archive.py`) in the table `snapshots`, in pieces. Setting a session back changes its takes,
messages, versions and deltas in one landing; numbers that were given out are not given out again, and the log goes on: what
happened since has happened.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ..errors import Invalid, NotFound
from ..history.state import rebuild
from ..ids import token, uuid7
from ..kit.fenced import Who, enter, root_of, session_id_of
from ..kit.log import write_event
from ..records import (
    EVENTS,
    IMPORT_SOURCES,
    KEYFRAMES,
    RECORDS,
    SESSIONS,
    SNAPSHOTS,
    TIPS,
    TOMBSTONES,
    Header,
    ImportSource,
    Snapshot,
    Take,
)
from ..schema import Table
from ..store.reading import Rows
from ..store.transaction import Transaction
from . import archive
from .archive import CARRIED, Archive
from .load import ImportReport

PIECE = 1 << 20
"""Bytes of one piece of a snapshot."""

_AT_ONCE = 500
_REPLACED = tuple(table for table in CARRIED if table not in (EVENTS, RECORDS))


class SnapshotInfo(msgspec.Struct, frozen=True):
    """What is known of a snapshot. `at` is microseconds UTC."""

    number: int
    at: int
    label: str | None
    size: int


async def import_archive(tx: Transaction, read: Archive, *, space: str | None = None) -> ImportReport:
    """Take an archive in as a session. The same archive adds nothing: the answer says which session holds it.

    It keeps its id unless the store has, or had, a session of that id: then it gets another one. `space`: where it is
    listed, if not where it was.
    """
    about, source = read.about, f"{read.sha256}.0"
    known_as = tx.concealed(source)
    await tx.touch(f"i:{known_as}")
    known = await tx.get(IMPORT_SOURCES, known_as)
    if known is not None and await _is_there(tx, known):
        return ImportReport(known.session_id, False, source, [])
    session_id = about.session_id
    await tx.touch(root_of(session_id), f"h:{session_id}", f"t:{session_id}")
    if await tx.get(SESSIONS, session_id) or await tx.get(TOMBSTONES, session_id):
        session_id = uuid7()
        await tx.touch(root_of(session_id), f"h:{session_id}")
    now, instance = await tx.now(), token()
    await tx.insert(archive.head_of(read, session_id, instance, now))
    await tx.insert(
        Header(session_id, instance, space or about.space, about.created_at, about.updated_at, about.title,
               about.labels, about.metadata)
    )  # fmt: skip
    for table in CARRIED:
        await _insert(tx, (replace(record, session_id=session_id) for record in read.rows[table]))
    await _rebuild(tx, [replace(take, session_id=session_id) for take in read.rows[CARRIED[0]]])
    made = ImportSource(known_as, session_id, now, [{"kind": "archive", "instance": instance}])
    if known is None:
        await tx.insert(made)
    else:
        await tx.update(made, expect=known)
    return ImportReport(session_id, True, source, [])


async def _is_there(tx: Transaction, known: ImportSource) -> bool:
    head = await tx.get(SESSIONS, known.session_id)
    return head is not None and any(entry.get("instance") == head.instance_id for entry in known.report)


async def _insert(tx: Transaction, records: Iterable[Any]) -> None:
    portion: list[Any] = []
    for record in records:
        portion.append(record)
        if len(portion) == _AT_ONCE:
            await tx.insert_many(portion)
            portion = []
            await asyncio.sleep(0)
    await tx.insert_many(portion)


async def _rebuild(tx: Transaction, takes: Sequence[Take]) -> None:
    """Give every live take its caches."""
    for take in takes:
        if not take.deleted:
            shown = (await rebuild(tx, take, 0)).shown_count
            if shown != take.shown_count:
                await tx.update(replace(take, shown_count=shown), expect={})
            await asyncio.sleep(0)


# ---- snapshots -------------------------------------------------------------------------------------------------------


async def snapshot(tx: Transaction, who: Who, label: str | None = None) -> int:
    """Keep a copy of a session as it is now; answer its number. Raises NotFound or Gone."""
    if label is not None and not isinstance(label, str):
        raise Invalid("A label is text.", do="Give a str, or none.", path="label")
    head, _ = await enter(tx, who)
    file = io.BytesIO()
    await archive.write(tx, who, file)
    last = await tx.scan(SNAPSHOTS, head.session_id, limit=1, reverse=True)
    number, now, data = (last[0].snapshot_no + 1 if last else 0), await tx.now(), file.getvalue()
    for piece, start in enumerate(range(0, len(data), PIECE)):
        part = data[start : start + PIECE]
        await tx.insert(Snapshot(head.session_id, number, piece, now, part, None if piece else label))
    return number


async def snapshots(rows: Rows, who: Who) -> list[SnapshotInfo]:
    """Answer the snapshots of a session, oldest first."""
    found: dict[int, SnapshotInfo] = {}
    for piece in await rows.scan(SNAPSHOTS, session_id_of(who)):
        info = found.get(piece.snapshot_no) or SnapshotInfo(piece.snapshot_no, piece.at, piece.label, 0)
        found[piece.snapshot_no] = replace(info, size=info.size + len(piece.data))
    return list(found.values())


async def delete_snapshot(tx: Transaction, who: Who, number: int) -> None:
    """Let a snapshot go. Raises NotFound for a number that is not there."""
    for piece in await _pieces(tx, session_id_of(who), number):
        await tx.delete(SNAPSHOTS, piece.session_id, number, piece.piece)


async def restore_snapshot(tx: Transaction, who: Who, number: int) -> None:
    """Set a session back to a snapshot: its history is that of then, its log goes on, its undo begins anew.

    Title, labels and records stay as they are. Raises NotFound for a number that is not there, Fenced like any write,
    Damaged when the snapshot cannot be read.
    """
    head, _ = await enter(tx, who)
    pieces = await _pieces(tx, head.session_id, number)
    read = archive.read(io.BytesIO(b"".join(piece.data for piece in pieces)), f"snapshot {number}")
    for table in (*_REPLACED, TIPS, KEYFRAMES):
        await _clear(tx, table, head.session_id)
    for table in _REPLACED:
        await _insert(tx, (replace(record, session_id=head.session_id) for record in read.rows[table]))
    about, now = read.about, await tx.now()
    moved = replace(
        head,
        active_take=about.active_take,
        next_take=max(head.next_take, about.next_take),
        next_version=max(head.next_version, about.next_version),
        next_turn=max(head.next_turn, about.next_turn),
        line_rev=max(head.line_rev, about.line_rev) + 1,
        undo_event=None,
        redo=None,
        last_activity_at=now,
    )
    written = write_event(moved, "session.restored", {"snapshot": number, "at": pieces[0].at}, now)
    await tx.insert_many(written.rows)
    await tx.update(written.head, expect={})
    await _rebuild(tx, [replace(take, session_id=head.session_id) for take in read.rows[CARRIED[0]]])


async def _pieces(rows: Rows, session_id: str, number: int) -> list[Snapshot]:
    found = await rows.scan(SNAPSHOTS, session_id, number) if type(number) is int else []
    if not found:
        raise NotFound(
            f"Session {session_id!r} has no snapshot {number!r}.", do="List its snapshots.", kind="snapshot", id=number
        )
    return found


async def _clear(tx: Transaction, table: Table[Any], session_id: str) -> None:
    for record in await tx.scan(table, session_id):
        await tx.delete(table, *(getattr(record, name) for name in table.key))
