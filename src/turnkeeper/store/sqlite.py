"""The embedded backend: one SQLite file in WAL mode, called directly through apsw.

Reads run inline on the event loop, on connections of their own, in slices: a long scan lets the loop breathe every few
hundred rows while its connection keeps the one state it reads. Writes are grouped: sets that wait are applied on the
loop, a savepoint each, and one COMMIT goes to a thread of its own; the next group gathers meanwhile. There is no timer,
so a lone writer waits for nothing but the disk. Why the loop and not the thread: a thread that runs SQLite statement by
statement beside a busy loop gets 1 % of its speed, because each statement gives the interpreter lock back (ADR 2).

The writer's connection is never touched while a COMMIT runs. Waiting for another process's lock happens in the thread.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

import apsw

from ..clock import Clock
from ..errors import Damaged, OutcomeUnknown, Unavailable
from ..schema import Row, Table
from ..limits import GROUP_ROWS, GROUP_SETS, SCAN_INLINE_ROWS
from . import sql
from .backend import Answer, Get, Landed, Lost, Measure, Reader, Request, RootRev, Scan, Verdict, WriteSet
from .migrations import APPLICATION_ID, Plan, foreign
from .turnstile import Turnstile

Waiting = tuple[WriteSet, "asyncio.Future[Verdict]"]
_SLICE_ROWS = SCAN_INLINE_ROWS // 2
_FOREIGN_LOCK_MS = 10_000  # how long a COMMIT waits for a program that does not know our lock


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
        self._heads = {table.root_kind: table for table in plan.tables if table.head}
        self._by_kind = {t.root_kind: [u for u in plan.tables if u.root_kind == t.root_kind] for t in plan.tables}
        self._waiting: deque[Waiting] = deque()
        self._busy = False
        self._free: list[apsw.Connection] = []
        self._readers = 0
        self._landed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: set[asyncio.Task[None]] = set()

    # opening and closing

    async def open(self) -> None:
        """Open or create the file and bring its schema forward. Raises Unavailable or IncompatibleStore."""
        self._loop = asyncio.get_running_loop()
        if not self._create and not self.path.exists():
            raise Unavailable(
                f"There is no database at {self.name!r}.", "No file was made.", "Check the path, or open with create=True."
            )
        if not self.path.parent.is_dir():
            raise Unavailable(f"There is no folder {str(self.path.parent)!r} for the database.", "No file was made.")
        try:
            self._locks = Turnstile(self.path)
        except OSError as e:
            raise Unavailable(f"The folder of {self.name!r} cannot be written: {e.strerror}.", "No file was made.") from e
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="turnkeeper-sqlite", daemon=True)
        self._thread.start()
        try:
            await self._in_thread(self._prepare)
        except BaseException as e:
            await self.close()
            raise (self._translated(e) if isinstance(e, apsw.Error) else e) from None
        self._inode = os.stat(self.path).st_ino

    def _prepare(self) -> None:
        self._locks.take()
        try:
            self._writer = self._connect(apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if self._create else 0))
            self._writer.set_busy_timeout(_FOREIGN_LOCK_MS)
            mine = self._writer.pragma("application_id") == APPLICATION_ID
            if not mine and self._writer.pragma("schema_version"):
                raise foreign(self.name)
            self._writer.pragma("journal_mode", "WAL")
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                self._bring_forward(self._writer, new=self._writer.pragma("application_id") != APPLICATION_ID)
                self._writer.execute("COMMIT")
                self._writer.set_busy_timeout(0)
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise
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

    def _connect(self, flags: int) -> apsw.Connection:
        connection = apsw.Connection(str(self.path), flags=flags, vfs=self._vfs, statementcachesize=400)
        connection.pragma("synchronous", "FULL" if self._durability == "full" else "NORMAL")
        connection.pragma("cache_size", -16_000)
        return connection

    async def close(self) -> None:
        """Wait for what is queued, then close every connection and end the thread."""
        await self._idle.wait()
        if self._thread.is_alive():
            await self._in_thread(self._shut)
            self._jobs.put(None)
            self._thread.join()

    def _shut(self) -> None:
        for connection in (*self._free, getattr(self, "_writer", None)):
            if connection is not None:
                connection.close()
        self._free.clear()
        self._locks.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    async def _in_thread(self, call: Callable[[], None]) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put(lambda: self._report(call, lambda error: _settle(done, error)))
        await asyncio.shield(done)

    def _report(self, call: Callable[[], None], tell: Callable[[BaseException | None], None]) -> None:
        error: BaseException | None = None
        try:
            call()
        except BaseException as e:  # noqa: BLE001 - handed to the loop
            error = e
        self._loop.call_soon_threadsafe(tell, error)

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
            raise self._translated(e) from e
        finally:
            self._give_back(connection)

    def _reader(self) -> apsw.Connection:
        if self._free:
            return self._free.pop()
        try:
            connection = self._connect(apsw.SQLITE_OPEN_READWRITE)
            connection.pragma("query_only", True)
        except apsw.Error as e:
            raise self._translated(e) from e
        return connection

    def _give_back(self, connection: apsw.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if len(self._free) < 8:
            self._free.append(connection)
        else:
            connection.close()

    async def _answer(self, c: apsw.Connection, request: Request) -> Answer:
        if isinstance(request, Get):
            return c.execute(sql.statements(request.table).get, request.key).fetchone()
        if isinstance(request, RootRev):
            return self._rev(c, request.root)
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

    def _rev(self, c: apsw.Connection, root: str) -> int:
        kind, _, name = root.partition(":")
        head = self._heads.get(kind)
        if head is None:
            row = c.execute("SELECT root_rev FROM roots WHERE root = ?", (root,)).fetchone()
        else:
            row = c.execute(_head_rev(head), (name,)).fetchone()
        return 0 if row is None else row[0]

    @asynccontextmanager
    async def _viewing(self) -> AsyncIterator[Reader]:
        connection = self._reader()
        try:
            connection.execute("BEGIN")
            connection.execute("SELECT seq FROM commits").fetchall()  # a read transaction begins at its first read
            yield _View(self, connection)
        except apsw.Error as e:
            raise self._translated(e) from e
        finally:
            self._give_back(connection)

    def read_view(self) -> AbstractAsyncContextManager[Reader]:
        """Open a read transaction on a connection of its own."""
        return self._viewing()

    # landing

    def land(self, write_set: WriteSet) -> asyncio.Future[Verdict]:
        """Queue a set; it is applied at once when the writer is free."""
        decided: asyncio.Future[Verdict] = self._loop.create_future()
        self._waiting.append((write_set, decided))
        self._idle.clear()
        if not self._busy:
            self._next_group()
        return decided

    def _next_group(self) -> None:
        if not self._waiting:
            self._busy = False
            self._idle.set()
            return
        self._busy = True
        group, rows = [self._waiting.popleft()], 0
        rows = group[0][0].rows()
        while self._waiting and len(group) < GROUP_SETS and rows + self._waiting[0][0].rows() <= GROUP_ROWS:
            rows += self._waiting[0][0].rows()
            group.append(self._waiting.popleft())
        if rows > GROUP_ROWS or not self._locks.try_take():
            self._spawn(self._land_slowly(group))
            return
        try:
            self._begin()
            verdicts = [_whole(self._apply(ws, len(group) > 1)) for ws, _ in group]
            self._keep_seq()
        except apsw.BusyError:
            self._locks.give()
            self._spawn(self._land_slowly(group))  # a program that does not know our lock is writing: wait in the thread
        except (apsw.Error, Unavailable) as e:
            self._roll_back()
            self._spawn(self._replay(group, e))
        else:
            self._jobs.put(lambda: self._report(self._commit, lambda error: self._committed(group, verdicts, error)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _begin(self) -> None:
        try:
            moved = os.stat(self.path).st_ino != self._inode
        except FileNotFoundError:
            moved = True
        if moved:
            raise Unavailable(
                f"The database file {self.name!r} was moved away or replaced while it was open.",
                do="Put it back, or close this store and open another.",
            )
        self._writer.execute("BEGIN IMMEDIATE")
        self._seq = self._first_seq = self._writer.execute("SELECT seq FROM commits").fetchone()[0]

    def _keep_seq(self) -> None:
        if self._seq != self._first_seq:
            self._writer.execute("UPDATE commits SET seq = ?", (self._seq,))

    def _wait_and_begin(self) -> None:
        self._locks.take()
        self._writer.set_busy_timeout(_FOREIGN_LOCK_MS)
        try:
            self._begin()
        finally:
            self._writer.set_busy_timeout(0)

    def _commit(self) -> None:
        self._writer.execute("COMMIT")
        self._locks.give()

    def _roll_back(self) -> None:
        if self._writer.in_transaction:  # after an I/O error SQLite may have done it already
            self._writer.execute("ROLLBACK")
        self._locks.give()

    async def _land_slowly(self, group: list[Waiting]) -> None:
        """Land a group that must wait for the file's lock, or is large: wait in the thread, apply in slices."""
        try:
            verdicts = await self._land_in_steps([ws for ws, _ in group])
        except (apsw.Error, Unavailable) as e:
            await self._in_thread(self._roll_back)
            await self._replay(group, e)
        else:
            self._committed(group, verdicts, None)

    async def _land_in_steps(self, sets: Sequence[WriteSet]) -> list[Verdict]:
        await self._in_thread(self._wait_and_begin)
        verdicts: list[Verdict] = []
        for ws in sets:
            steps = self._apply(ws, len(sets) > 1)
            while True:
                try:
                    next(steps)
                except StopIteration as done:
                    verdicts.append(done.value)
                    break
                await asyncio.sleep(0)
        self._keep_seq()
        await self._in_thread(self._commit)
        return verdicts

    def _committed(self, group: list[Waiting], verdicts: list[Verdict], error: BaseException | None) -> None:
        if error is not None:
            self._spawn(self._commit_failed(group, error))
            return
        for (_, decided), verdict in zip(group, verdicts, strict=True):
            decided.set_result(verdict)
        self._landed.set()
        self._landed = asyncio.Event()
        self._next_group()

    async def _commit_failed(self, group: list[Waiting], error: BaseException) -> None:
        await self._in_thread(self._roll_back)
        await self._replay(group, error)

    async def _replay(self, group: list[Waiting], error: BaseException) -> None:
        """After an error the whole group is undone: try its sets one by one, so that only the guilty one fails."""
        for ws, decided in group:
            if len(group) == 1:
                decided.set_exception(self._translated(error))
                continue
            try:
                (verdict,) = await self._land_in_steps([ws])
            except (apsw.Error, Unavailable) as e:
                await self._in_thread(self._roll_back)
                decided.set_exception(self._translated(e))
            else:
                decided.set_result(verdict)
        self._next_group()

    def _apply(self, ws: WriteSet, among_others: bool) -> Iterator[None]:
        """Check a set and write its rows, a slice at a step; answer its verdict (by `return`)."""
        c = self._writer
        lost = self._refusal(ws)
        if lost is not None:
            return lost
        self._seq += 1
        if among_others:
            c.execute("SAVEPOINT one")
        try:
            yield from self._write(ws, self._seq)
        except apsw.ConstraintError as e:
            c.execute("ROLLBACK TO one" if among_others else "ROLLBACK")
            if not among_others:
                c.execute("BEGIN IMMEDIATE")
            self._seq -= 1
            return self._constraint(ws, e)
        finally:
            if among_others and c.in_transaction:
                c.execute("RELEASE one")
        return Landed(self._seq)

    def _refusal(self, ws: WriteSet) -> Lost | None:
        if ws.deadline_us is not None and self._clock() > ws.deadline_us:
            return Lost("deadline", "")
        for claim in ws.claims:
            if self._rev(self._writer, claim.root) != claim.expected:
                return Lost("root", claim.root)
        return None

    def _write(self, ws: WriteSet, seq: int) -> Iterator[None]:
        c = self._writer
        for root in ws.drops:
            kind, _, name = root.partition(":")
            for table in self._by_kind[kind]:
                c.execute(sql.statements(table).drop, (name,))
            c.execute("DELETE FROM roots WHERE root = ?", (root,))
            yield
        for claim in ws.claims:
            if claim.written:
                self._bump(claim.root, claim.expected, seq, again=claim.root in ws.drops)
        for table, keys in ws.deletes.items():
            yield from self._many(sql.statements(table).delete, keys)
        for table, rows in ws.updates.items():
            made = sql.statements(table)
            yield from self._many(made.update, [made.update_cells(row) for row in _stamped(table, rows, seq)])
        for table, rows in ws.inserts.items():
            cells: Sequence[tuple[Any, ...]] = _stamped(table, rows, seq)
            if table.head:
                cells = [(*row, seq) for row in cells]
            yield from self._many(sql.statements(table).insert, cells)

    def _bump(self, root: str, expected: int, seq: int, *, again: bool) -> None:
        kind, _, name = root.partition(":")
        head = self._heads.get(kind)
        if head is not None:
            if expected and not again:  # a head that comes into being brings its revision with its row
                self._writer.execute(_bump_head(head), (name,))
        elif expected and not again:
            self._writer.execute("UPDATE roots SET root_rev = root_rev + 1 WHERE root = ?", (root,))
        else:
            self._writer.execute("INSERT INTO roots VALUES (?, ?)", (root, seq))

    def _many(self, statement: str, rows: Sequence[Sequence[Any]]) -> Iterator[None]:
        for start in range(0, len(rows), GROUP_ROWS):
            self._writer.executemany(statement, rows[start : start + GROUP_ROWS])
            if start + GROUP_ROWS < len(rows):
                yield

    def _constraint(self, ws: WriteSet, error: apsw.ConstraintError) -> Lost:
        for table, rows in ws.inserts.items():
            for row in rows:
                if self._writer.execute(sql.statements(table).get, table.key_of(row)).fetchone() is not None:
                    return Lost("duplicate", table.name)
        table_name = str(error).rpartition("failed: ")[2].partition(".")[0]
        names = {f"index '{t.name}_only{i}'": t.name for t in self._plan.tables for i in range(len(t.unique))}
        return Lost("unique", names.get(table_name, table_name))

    # the rest

    async def now(self) -> int:
        """Read the clock the store was opened with: on one machine, all processes share it."""
        return self._clock()

    async def watch(self, after: int, timeout_s: float) -> int:
        """Wait for a landing of this process, or poll, with back-off, for one of another."""
        ends, pause = self._loop.time() + timeout_s, 0.005
        while True:
            landed = self._landed
            connection = self._reader()
            try:
                seq: int = connection.execute("SELECT seq FROM commits").fetchone()[0]
            finally:
                self._give_back(connection)
            left = ends - self._loop.time()
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

    def _translated(self, error: BaseException) -> BaseException:
        """Turn a driver's error into ours: the one place where this backend does so."""
        if not isinstance(error, apsw.Error):
            return error
        nothing = "Nothing was written."
        if isinstance(error, apsw.IOError) and error.extendedresult == apsw.SQLITE_IOERR_FSYNC:
            return OutcomeUnknown(
                f"The disk refused to confirm a write to {self.name!r}.",
                "It is wholly there or wholly absent.",
                "Check the disk, then repeat the call with the same key: the receipt answers when it had landed.",
            )
        if isinstance(error, apsw.FullError):
            return Unavailable(f"The disk under {self.name!r} is full.", nothing, "Free some space, then repeat the call.")
        if isinstance(error, apsw.NotADBError | apsw.CorruptError):
            return Damaged(
                f"{self.name!r} is not a readable SQLite database: {error}.", nothing, "Restore it from a backup.",
                table="", key="",
            )  # fmt: skip
        if isinstance(error, apsw.BusyError):
            return Unavailable(
                f"Another program keeps {self.name!r} locked.", nothing, "End that program's transaction, then repeat."
            )
        return Unavailable(f"SQLite cannot use {self.name!r}: {error}.", nothing, "Check the file and its disk.")


class _View:
    """Reads inside one read transaction."""

    def __init__(self, backend: SQLiteBackend, connection: apsw.Connection) -> None:
        self._backend, self._connection = backend, connection

    async def read(self, requests: Sequence[Request]) -> list[Answer]:
        return [await self._backend._answer(self._connection, request) for request in requests]


def _settle(done: asyncio.Future[None], error: BaseException | None) -> None:
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _whole(steps: Iterator[None]) -> Verdict:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def _stamped(table: Table[Any], rows: list[Row], seq: int) -> list[Row]:
    if not table.commit_columns:
        return rows
    stamped = []
    for row in rows:
        cells = list(row)
        for i in table.commit_columns:
            cells[i] = cells[i] or seq
        stamped.append(tuple(cells))
    return stamped


@cache
def _head_rev(head: Table[Any]) -> str:
    return f"SELECT {sql.q(sql.REV)} FROM {sql.q(head.name)} WHERE {sql.q(head.root_column)} = ?"


@cache
def _bump_head(head: Table[Any]) -> str:
    rev = sql.q(sql.REV)
    return f"UPDATE {sql.q(head.name)} SET {rev} = {rev} + 1 WHERE {sql.q(head.root_column)} = ?"
