"""The embedded backend: one SQLite file in WAL mode, called directly through apsw.

Reads run inline on the event loop, on connections of their own, in slices: a long scan lets the loop breathe every few
hundred rows while its connection keeps the one state it reads. Writes are grouped (`sqlite_writer.py`): sets that wait
are applied on the loop, and one COMMIT goes to a thread of its own. There is no timer, so a lone writer waits for nothing
but the disk. Why the loop and not the thread: a thread that runs SQLite statement by statement beside a busy loop gets
1 % of its speed, because each statement gives the interpreter lock back (ADR 2).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import apsw

from ..clock import Clock
from ..errors import Unavailable
from ..limits import SCAN_INLINE_ROWS
from . import sql
from .backend import Answer, Get, Measure, Reader, Request, RootRev, Scan, Verdict, WriteSet
from .migrations import APPLICATION_ID, Plan, foreign
from .sqlite_file import FOREIGN_LOCK_MS, Revisions, Worker, connect, translated
from .sqlite_writer import Writer
from .turnstile import Turnstile

_SLICE_ROWS = SCAN_INLINE_ROWS // 2
_READERS_KEPT = 8


class SQLiteBackend:
    """One SQLite database. See `backend.Backend` for the promises."""

    kind = "sqlite"

    def __init__(
        self,
        path: str | os.PathLike[str],
        plan: Plan,
        *,
        clock: Clock,
        create: bool = True,
        migrate: Literal["auto", "refuse"] = "auto",
        durability: Literal["full", "normal"] = "full",
        vfs: str | None = None,
    ) -> None:
        self.path = Path(path).resolve()
        self.name = str(path)
        self._plan, self._clock, self._vfs = plan, clock, vfs
        self._create, self._migrate, self._durability = create, migrate, durability
        self._revisions = Revisions(plan.tables)
        self._free: list[apsw.Connection] = []
        self._landed = asyncio.Event()
        self._worker: Worker | None = None
        self._writer: Writer | None = None

    # opening and closing

    async def open(self) -> None:
        """Open or create the file and bring its schema forward. Raises Unavailable or IncompatibleStore."""
        if not self._create and not self.path.exists():
            raise Unavailable(
                f"There is no database at {self.name!r}.",
                "No file was made.",
                "Check the path, or open with create=True.",
            )
        if not self.path.parent.is_dir():
            raise Unavailable(f"There is no folder {str(self.path.parent)!r} for the database.", "No file was made.")
        try:
            self._locks = Turnstile(self.path)
        except OSError as e:
            raise Unavailable(
                f"The folder of {self.name!r} cannot be written: {e.strerror}.", "No file was made."
            ) from e
        self._worker = Worker()
        try:
            await self._worker.run(self._prepare)
        except BaseException as e:
            await self.close()
            raise translated(self.name, e) from e
        self._writer = Writer(
            self.path, self._connection, self._plan.tables,
            locks=self._locks, worker=self._worker, clock=self._clock, landed=self._tell,
        )  # fmt: skip

    def _prepare(self) -> None:
        self._locks.take()
        try:
            c = self._connection = self._connect(create=self._create)
            c.set_busy_timeout(FOREIGN_LOCK_MS)
            if c.pragma("application_id") != APPLICATION_ID and c.pragma("schema_version"):
                raise foreign(self.name)
            c.pragma("journal_mode", "WAL")
            c.execute("BEGIN IMMEDIATE")
            try:
                self._bring_forward(c, new=c.pragma("application_id") != APPLICATION_ID)
                c.execute("COMMIT")
            finally:
                if c.in_transaction:
                    c.execute("ROLLBACK")
            c.set_busy_timeout(0)
        finally:
            self._locks.give()

    def _bring_forward(self, c: apsw.Connection, *, new: bool) -> None:
        plan = self._plan
        if new:
            steps = [
                f"PRAGMA application_id = {APPLICATION_ID}",
                "CREATE TABLE store_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
                "CREATE TABLE roots (root TEXT PRIMARY KEY, root_rev INTEGER NOT NULL) STRICT, WITHOUT ROWID",
                "CREATE TABLE commits (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL) STRICT",
                "INSERT INTO commits VALUES (1, 0)",
                *(statement for table in plan.tables for statement in sql.create(table, "sqlite")),
            ]
        else:
            found = dict(c.execute("SELECT name, value FROM store_meta"))
            behind = plan.path(self.name, int(found["version"]), found["schema"], self._migrate)
            steps = [statement for version in behind for statement in plan.steps[version]["sqlite"]]
            if not behind:
                return
        for statement in steps:
            c.execute(statement)
        c.execute("PRAGMA user_version = " + str(plan.version))
        marks = {"version": str(plan.version), "schema": plan.digest}
        c.executemany("INSERT OR REPLACE INTO store_meta VALUES (?, ?)", list(marks.items()))

    def _connect(self, *, create: bool = False) -> apsw.Connection:
        return connect(self.path, durability=self._durability, vfs=self._vfs, create=create)

    async def close(self) -> None:
        """Wait for what is queued, then close every connection and end the thread. Idempotent."""
        if self._writer is not None:
            await self._writer.drained()
        if self._worker is not None:
            worker, self._worker = self._worker, None
            await worker.run(self._shut)
            worker.end()

    def _shut(self) -> None:
        for connection in (*self._free, getattr(self, "_connection", None)):
            if connection is not None:
                connection.close()
        self._free.clear()
        self._locks.close()

    def _tell(self) -> None:
        self._landed.set()
        self._landed = asyncio.Event()

    # reading

    async def read(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer all requests from one committed state; long scans in slices."""
        connection = self._reader()
        try:
            if len(requests) == 1:
                return [await self._answer(connection, requests[0])]
            connection.execute("BEGIN")
            return [await self._answer(connection, request) for request in requests]
        except apsw.Error as e:
            raise translated(self.name, e) from e
        finally:
            self._give_back(connection)

    def _reader(self) -> apsw.Connection:
        if self._free:
            return self._free.pop()
        try:
            connection = self._connect()
            connection.pragma("query_only", True)
        except apsw.Error as e:
            raise translated(self.name, e) from e
        return connection

    def _give_back(self, connection: apsw.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if len(self._free) < _READERS_KEPT:
            self._free.append(connection)
        else:
            connection.close()

    async def _answer(self, c: apsw.Connection, request: Request) -> Answer:
        if isinstance(request, Get):
            return c.execute(sql.statements(request.table).get, request.key).fetchone()
        if isinstance(request, RootRev):
            return self._revisions.read(c, request.root)
        if isinstance(request, Measure):
            return c.execute(*sql.scan(request.scan, measure=True)).fetchone()
        return await self._scan(c, request)

    async def _scan(self, c: apsw.Connection, request: Scan) -> list[Any]:
        cursor = c.execute(*sql.scan(request))
        if request.limit is not None and request.limit <= SCAN_INLINE_ROWS:
            return cursor.fetchall()
        rows: list[Any] = []
        for row in cursor:
            rows.append(row)
            if not len(rows) % _SLICE_ROWS:
                await asyncio.sleep(0)
        return rows

    @asynccontextmanager
    async def _viewing(self) -> AsyncIterator[Reader]:
        connection = self._reader()
        try:
            connection.execute("BEGIN")
            connection.execute("SELECT seq FROM commits").fetchall()  # a read transaction begins at its first read
            yield _View(self, connection)
        except apsw.Error as e:
            raise translated(self.name, e) from e
        finally:
            self._give_back(connection)

    def read_view(self) -> AbstractAsyncContextManager[Reader]:
        """Open a read transaction on a connection of its own."""
        return self._viewing()

    def land(self, write_set: WriteSet) -> asyncio.Future[Verdict]:
        """Queue a set; it is applied at once when the writer is free."""
        assert self._writer is not None, "the backend is open"
        return self._writer.land(write_set)

    # the rest

    async def now(self) -> int:
        """Read the clock the store was opened with: on one machine, all processes share it."""
        return self._clock()

    async def watch(self, after: int, timeout_s: float) -> int:
        """Wait for a landing of this process, or poll, with back-off, for one of another."""
        loop = asyncio.get_running_loop()
        ends, pause = loop.time() + timeout_s, 0.005
        while True:
            landed = self._landed
            connection = self._reader()
            try:
                seq: int = connection.execute("SELECT seq FROM commits").get
            finally:
                self._give_back(connection)
            left = ends - loop.time()
            if seq > after or left <= 0:
                return seq
            try:
                async with asyncio.timeout(min(pause, left)):
                    await landed.wait()
            except TimeoutError:
                pause = min(pause * 1.5, 0.25)

    def owner_alive(self, owner_id: str) -> bool | None:
        """Look whether the owner's file is still locked."""
        return self._locks.owner_alive(owner_id)

    def hold_owner(self, owner_id: str) -> None:
        """Lock a file in the owner's name."""
        self._locks.hold_owner(owner_id)

    def release_owner(self, owner_id: str) -> None:
        """Unlock and remove it."""
        self._locks.release_owner(owner_id)


class _View:
    """Reads inside one read transaction."""

    def __init__(self, backend: SQLiteBackend, connection: apsw.Connection) -> None:
        self._backend, self._connection = backend, connection

    async def read(self, requests: Sequence[Request]) -> list[Answer]:
        return [await self._backend._answer(self._connection, request) for request in requests]
