"""A whole store written into another one: a backup into a file while the store works, and the way back (ADR 14).

A backup is a store file itself: what was committed when it began, row by row, from one view. So any backend can be backed
up, nobody waits for it, and a backup can be opened and looked at like any store. Rows travel as cells: what is sealed
stays sealed, what is damaged stays as it is and can be mended there.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..errors import Conflict, Unavailable
from ..records import IMPORT_SOURCES, OWNERS, SEALS, SESSIONS, TOMBSTONES
from ..schema import Key, Row, Table
from ..store.backend import Backend, Landed, Reader, RootClaim, RootRev, Scan, WriteSet
from ..store.migrations import APPLICATION_ID, foreign
from ..store.reading import size_of
from ..store.sealed import SealedBackend
from ..store.worker import apart
from .files import new_file

PAGE = 500
"""Rows of a table that are read at once."""

_SESSIONS_AT_ONCE = 20
_LANDING_ROWS, _LANDING_BYTES = 2_000, 4_000_000  # a session is written at once, whatever its size

Progress = Callable[[int], None]
"""Told how many rows are written."""


class BackupReport(msgspec.Struct, frozen=True):
    """What was copied. `passed_over` names the sessions that the target had, or has deleted."""

    sessions: int
    rows: int
    passed_over: list[str]


async def back_up(
    source: Backend,
    tables: Sequence[Table[Any]],
    path: str | os.PathLike[str],
    file_store: Callable[[str], Backend],
    progress: Progress | None = None,
) -> BackupReport:
    """Write everything that is committed into a new file, which stands there whole or not at all.

    Raises Invalid when there is something at the path, Unavailable when it cannot be written.
    """
    inner = source.inner if isinstance(source, SealedBackend) else source
    async with new_file(path) as place:
        made = file_store(str(place))
        await made.open()
        try:
            await made.advance(await inner.watch(-1, 0))
            async with inner.read_view() as view:
                report = await _Copying(view, made, tables, fresh=True, progress=progress).run()
        finally:
            await made.close()
    return report


async def restore(
    path: str | os.PathLike[str],
    unlocked: Callable[[str], Any],
    target: Backend,
    tables: Sequence[Table[Any]],
    progress: Progress | None = None,
) -> BackupReport:
    """Write what a backup has and the target has not into the target, session by session; the backup is left as it is.

    A session that the target has, or has deleted, is passed over: so a restore that was stopped goes on when it is called
    again. `unlocked` opens a file as a backend, with the backup's key. Raises Unavailable when it cannot be read.
    """
    import tempfile

    with tempfile.TemporaryDirectory(prefix="turnkeeper-restore-") as place:
        source: Backend = await unlocked(await apart(lambda: _copied(Path(path), Path(place))))
        try:
            await target.advance(await source.watch(-1, 0))
            known_as = await _known_as(source, target)
            async with source.read_view() as view:
                rest = [table for table in tables if table is not SEALS]
                return await _Copying(view, target, rest, known_as=known_as, progress=progress).run()
        finally:
            await source.close()


async def _known_as(source: Backend, target: Backend) -> Callable[[str], str] | None:
    """Answer how the ids by which imported files are known again change their form."""
    if not isinstance(target, SealedBackend):
        return None  # a sealed source has concealed them for good: such a file is not known again
    if not isinstance(source, SealedBackend):
        return target.concealed
    (known,) = await target.read([Scan(IMPORT_SOURCES, limit=1)])
    if not known:
        await target.adopt_lookup(source)
    return None


def _copied(given: Path, place: Path) -> str:
    """Copy a backup, so that it can be brought forward to this schema and lie where nobody may write."""
    import shutil

    try:
        with open(given, "rb") as file:
            if int.from_bytes(file.read(100)[68:72]) != APPLICATION_ID:
                raise foreign(str(given))
        shutil.copyfile(given, place / "backup")
        log = given.with_name(given.name + "-wal")
        if log.exists():  # a copy that was made of an open store by hand
            shutil.copyfile(log, place / "backup-wal")
    except OSError as e:
        happened = f"The backup {str(given)!r} cannot be read: {e.strerror}."
        raise Unavailable(happened, "Nothing was restored.", "Check the path.") from e
    return str(place / "backup")


class _Copying:
    """One copy of the rows of a view into a backend, root by root."""

    def __init__(
        self,
        source: Reader,
        target: Backend,
        tables: Sequence[Table[Any]],
        *,
        fresh: bool = False,
        known_as: Callable[[str], str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._source, self._target, self._fresh = source, target, fresh
        self._known_as, self._progress = known_as, progress
        apart = (SESSIONS, TOMBSTONES, OWNERS)  # a copy belongs to nobody
        self._of_sessions = [table for table in tables if table.key[0] == SESSIONS.key[0] and table not in apart]
        self._others = [t for t in tables if t not in self._of_sessions and t not in (SESSIONS, OWNERS)]
        self._waiting: dict[Table[Any], list[Row]] = defaultdict(list)
        self._rows = self._bytes = 0
        self._revs: dict[str, int] = {}
        """The revisions of roots that were written here already."""
        self._written = self._sessions = 0
        self._passed_over: set[str] = set()

    async def run(self) -> BackupReport:
        """Copy everything that the target does not have."""
        after: Key | None = None
        while heads := await self._page(SESSIONS, (), after):
            after = SESSIONS.key_of(heads[-1])
            there = await self._there(SESSIONS, heads)
            self._passed_over |= {SESSIONS.root_cell(head) for head in heads if SESSIONS.root_of(head) in there}
            new = [head for head in heads if SESSIONS.root_of(head) not in there]
            for first in range(0, len(new), _SESSIONS_AT_ONCE):
                await self._copy_sessions(new[first : first + _SESSIONS_AT_ONCE])
        for table in self._others:
            await self._copy_table(table)
        await self._flush()
        return BackupReport(self._sessions, self._written, sorted(self._passed_over))

    async def _page(self, table: Table[Any], prefix: Key, after: Key | None) -> list[Row]:
        (rows,) = await self._source.read([Scan(table, prefix=prefix, after=after, limit=PAGE)])
        await asyncio.sleep(0)
        return rows  # type: ignore[no-any-return]

    async def _copy_sessions(self, heads: Sequence[Row]) -> None:
        pairs = [(head, table) for head in heads for table in self._of_sessions]
        scans = [Scan(table, prefix=(SESSIONS.root_cell(head),), limit=PAGE) for head, table in pairs]
        first = dict(zip(((id(head), table) for head, table in pairs), await self._source.read(scans), strict=True))
        for head in heads:
            self._add(SESSIONS, [head])
            for table in self._of_sessions:
                rows = first.pop((id(head), table))
                while rows:
                    self._add(table, rows)
                    more = len(rows) == PAGE
                    rows = await self._page(table, (SESSIONS.root_cell(head),), table.key_of(rows[-1])) if more else []
            self._sessions += 1
            await self._flush_when_full()

    async def _copy_table(self, table: Table[Any]) -> None:
        """Copy a table whose rows do not go with a session that is there."""
        after: Key | None = None
        while rows := await self._page(table, (), after):
            after = table.key_of(rows[-1])
            if table is IMPORT_SOURCES and self._known_as is not None:
                rows = [(self._known_as(row[0]), *row[1:]) for row in rows]  # type: ignore[arg-type]
            there = await self._there(table, rows)
            self._add(table, [row for row in rows if table.root_of(row) not in there])
            await self._flush_when_full()

    async def _there(self, table: Table[Any], rows: Iterable[Row]) -> set[str]:
        """Answer the roots of some rows that the target had. It has a session, or has deleted it: never both."""
        if self._fresh:
            return set()
        found = set[str]()
        for other in (SESSIONS, TOMBSTONES) if table in (SESSIONS, TOMBSTONES) else (table,):
            roots = {other.root_prefix + str(table.root_cell(row)): table.root_of(row) for row in rows}
            asked = [root for root in roots if root not in self._revs]
            revs = await self._target.read([RootRev(root) for root in asked]) if asked else []
            found |= {roots[root] for root, rev in zip(asked, revs, strict=True) if rev}
        return found

    def _add(self, table: Table[Any], rows: list[Row]) -> None:
        self._waiting[table] += rows
        self._rows += len(rows)
        self._bytes += sum(size_of(table, row) for row in rows)

    async def _flush_when_full(self) -> None:
        if self._rows >= _LANDING_ROWS or self._bytes >= _LANDING_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        waiting, self._waiting = {table: rows for table, rows in self._waiting.items() if rows}, defaultdict(list)
        roots = {table.root_of(row) for table, rows in waiting.items() for row in rows}
        if not roots:
            return
        claims = tuple(RootClaim(root, self._revs.get(root, 0), True) for root in sorted(roots))
        verdict = await self._target.land(WriteSet(claims, inserts=waiting))
        if not isinstance(verdict, Landed):
            raise Conflict(
                f"Somebody else writes into {self._target.name!r}.",
                f"{self._sessions} sessions were looked at, {self._written} rows are written.",
                "Call it again: it goes on with what is not there yet.",
            )
        for claim in claims:
            self._revs[claim.root] = claim.expected + 1 if claim.expected else verdict.commit_seq
        self._written += self._rows
        self._rows = self._bytes = 0
        if self._progress is not None:
            self._progress(self._written)
