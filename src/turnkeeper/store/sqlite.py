"""The embedded backend: one SQLite file in WAL mode, called directly through apsw.

Reads run inline on the event loop, on connections of their own, in slices: a long scan lets the loop breathe every few
hundred rows while its connection keeps the one state it reads. Writes are grouped; see `sqlite_writer.py` and ADR 2.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import apsw

from ..clock import Clock
from ..errors import Unavailable
from ..limits import SCAN_INLINE_ROWS
from . import sql
from .backend import Answer, Deciding, Get, Measure, Reader, Request, RootRev, WriteSet
from .migrations import APPLICATION_ID, Plan
from .sqlite_file import FOREIGN_LOCK_MS, connect, translated
from .sqlite_writer import Writer
from .turnstile import Turnstile
from .worker import Worker

_SLICE_ROWS = SCAN_INLINE_ROWS // 2
_READERS_KEPT = 8


class SQLiteBackend:
    """One SQLite database. See `backend.Backend` for the promises."""

    kind = "sqlite"
    cheap_views = True

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
        self._landing = sql.Landing(plan.tables)
        self._free: list[_Reader] = []
        self._landed = asyncio.Event()
        self._connection: apsw.Connection | None = None
        self._locks: Turnstile | None = None
        self._worker: Worker | None = None
        self._writer: Writer | None = None

    async def open(self) -> None:
        """Open or create the file and bring its schema forward. Raises Unavailable or IncompatibleStore."""
        if not self._create and not self.path.exists():
            do = "Check the path, or open with create=True."
            raise Unavailable(f"There is no database at {self.name!r}.", "No file was made.", do)
        self._worker = Worker()
        try:
            await self._worker.run(self._prepare)
        except BaseException as e:
            await self.close()
            raise translated(self.name, e) from e
        assert self._connection is not None and self._locks is not None
        self._writer = Writer(
            self.path, self._connection, self._plan.tables,
            locks=self._locks, worker=self._worker, clock=self._clock, landed=self._tell,
        )  # fmt: skip

    def _prepare(self) -> None:
        if self.path.exists():  # what is not ours is only looked at, and nothing is made beside it
            self._connect().close()
        try:
            self._locks = locks = Turnstile(self.path)
            self.owners = locks.owners
        except OSError as e:
            why = f"The folder of {self.name!r} cannot be written: {e.strerror}."
            raise Unavailable(why, "No file was made.", "Choose another folder, or mend its rights.") from e
        locks.take(FOREIGN_LOCK_MS / 1000)
        try:
            c = self._connection = self._connect(create=self._create)
            if c.pragma("journal_mode", "WAL") != "wal":
                raise Unavailable(f"{self.name!r} is on a file system without WAL.", do="Keep it on a local disk.")
            c.execute("BEGIN IMMEDIATE")
            try:
                self._bring_forward(c, new=c.pragma("application_id") != APPLICATION_ID)
                c.execute("COMMIT")
            finally:
                if c.in_transaction:
                    c.execute("ROLLBACK")
            c.set_busy_timeout(0)
        finally:
            locks.give()

    def _bring_forward(self, c: apsw.Connection, *, new: bool) -> None:
        plan = self._plan
        if new:
            steps = [f"PRAGMA application_id = {APPLICATION_ID}", *plan.whole("sqlite")]
        else:
            found = dict(c.execute("SELECT name, value FROM store_meta"))
            behind = plan.path(self.name, int(found["version"]), found["schema"], self._migrate)
            steps = [statement for version in behind for statement in plan.steps[version]["sqlite"]]
            steps += plan.marks() if behind else []
        for statement in [*steps, f"PRAGMA user_version = {plan.version}"] if steps else []:
            c.execute(statement)

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
        for reader in self._free:
            reader.connection.close()
        self._free.clear()
        if self._connection is not None:
            self._connection.close()
        if self._locks is not None:
            self._locks.close()

    def _tell(self) -> None:
        self._landed.set()
        self._landed = asyncio.Event()

    async def read(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer all requests from one committed state; long scans in slices."""
        reader = self._take(one_state=len(requests) > 1)
        try:
            return await reader.read(requests)
        finally:
            self._give_back(reader)

    def read_view(self) -> AbstractAsyncContextManager[Reader]:
        """Open a read transaction on a connection of its own."""
        return _View(self)

    def _take(self, *, one_state: bool = False) -> _Reader:
        try:
            if not self._free and self._writer is not None:
                self._writer.check_place()  # a new connection would read whatever stands there now
            reader = self._free.pop() if self._free else _Reader(self.name, self._connect(), self._landing)
            if one_state:
                reader.connection.execute("BEGIN")
        except apsw.Error as e:
            raise translated(self.name, e) from e
        return reader

    def _give_back(self, reader: _Reader) -> None:
        if reader.connection.in_transaction:
            reader.connection.execute("ROLLBACK")
        if len(self._free) < _READERS_KEPT and self._worker is not None:
            self._free.append(reader)
        else:
            reader.connection.close()

    def land(self, write_set: WriteSet) -> Deciding:
        """Queue a set; it is applied at once when the writer is free."""
        assert self._writer is not None, "the backend is open"
        return self._writer.land(write_set)

    async def advance(self, seq: int) -> None:
        """Give later landings sequences above this one."""
        assert self._worker is not None, "the backend is open"
        try:
            await self._worker.run(partial(self._advance, seq))
        except apsw.Error as e:
            raise translated(self.name, e) from e

    def _advance(self, seq: int) -> None:
        c = self._connect()
        try:
            c.execute("UPDATE commits SET seq = max(seq, ?)", (seq,))
        finally:
            c.close()

    async def now(self) -> int:
        """Read the clock the store was opened with: on one machine, all processes share it."""
        return self._clock()

    async def watch(self, after: int, timeout_s: float) -> int:
        """Wait for a landing of this process, or poll, with back-off, for one of another."""
        loop = asyncio.get_running_loop()
        ends, pause = loop.time() + timeout_s, 0.005
        while True:
            landed = self._landed
            reader = self._take()
            try:
                seq = reader.newest()
            finally:
                self._give_back(reader)
            left = ends - loop.time()
            if seq > after or left <= 0:
                return seq
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(pause, left)):
                    await landed.wait()
            pause = min(pause * 1.5, 0.25)


class _View(AbstractAsyncContextManager[Reader]):
    """A reader inside a read transaction, for the length of a block. By hand: every read of a session opens one."""

    def __init__(self, backend: SQLiteBackend) -> None:
        self._backend = backend

    async def __aenter__(self) -> Reader:
        self._reader = self._backend._take(one_state=True)
        try:
            self._reader.newest()  # a read transaction begins at its first read
        except BaseException:
            self._backend._give_back(self._reader)
            raise
        return self._reader

    async def __aexit__(self, *error: object) -> None:
        self._backend._give_back(self._reader)


class _Reader:
    """One reader connection."""

    def __init__(self, name: str, connection: apsw.Connection, landing: sql.Landing) -> None:
        self._name, self.connection, self._landing = name, connection, landing
        connection.pragma("query_only", True)

    async def read(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer requests, from one state inside a read transaction."""
        try:
            return [await self._answer(request) for request in requests]
        except apsw.Error as e:
            raise translated(self._name, e) from e

    def newest(self) -> int:
        """Answer the newest commit sequence."""
        try:
            return int(self.connection.execute("SELECT seq FROM commits").get)
        except apsw.Error as e:
            raise translated(self._name, e) from e

    async def _answer(self, request: Request) -> Answer:
        c = self.connection
        if isinstance(request, Get):
            return c.execute(sql.statements(request.table).get, request.key).fetchone()
        if isinstance(request, RootRev):
            row = c.execute(*self._landing.revision(request.root)).fetchone()
            return 0 if row is None else row[0]
        if isinstance(request, Measure):
            return c.execute(*sql.scan(request.scan, measure=True)).fetchone()
        cursor = c.execute(*sql.scan(request))
        if request.limit is not None and request.limit <= SCAN_INLINE_ROWS:
            return cursor.fetchall()
        rows: list[Any] = []
        try:
            while part := list(itertools.islice(cursor, _SLICE_ROWS)):
                rows += part
                if len(part) == _SLICE_ROWS:
                    await asyncio.sleep(0)
            return rows
        finally:
            cursor.close(True)  # a cancelled read must not hold its old state on a connection that is used again
