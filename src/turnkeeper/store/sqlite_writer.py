"""Landing on SQLite: one writer connection, groups of waiting sets under one COMMIT, and what happens when one fails.

A group is applied on the event loop, table by table (ADR 7), and its COMMIT goes to the worker's thread; the next group
gathers meanwhile. A large group, and one that must wait for the file's lock, is applied in slices between which the loop
breathes. The connection is touched by one of them at a time: never while a COMMIT runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import apsw

from ..clock import Clock
from ..errors import OutcomeUnknown, Unavailable
from ..limits import GROUP_ROWS, GROUP_SETS
from ..schema import Table
from . import sql
from .backend import Deciding, Landed, Lost, Verdict, WriteSet, stand_apart
from .sqlite_file import FOREIGN_LOCK_MS, translated
from .turnstile import Turnstile
from .worker import Worker

Waiting = tuple[WriteSet, Deciding]
V = TypeVar("V")
TOLD_AT_ONCE = 2


class Writer:
    """The one writer of a database in this process."""

    def __init__(
        self, path: Path, connection: apsw.Connection, tables: tuple[Table[Any], ...], *,
        locks: Turnstile, worker: Worker, clock: Clock, landed: Callable[[], None],
    ) -> None:  # fmt: skip
        self._path, self._connection, self._tables = path, connection, tables
        self._locks, self._worker, self._clock, self._tell_landed = locks, worker, clock, landed
        self._landing = sql.Landing(tables)
        self._inode = path.stat().st_ino
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Waiting] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def land(self, write_set: WriteSet) -> Deciding:
        """Queue a set; it is applied at once when the writer is free."""
        decided = Deciding(loop=self._loop)
        self._waiting.append((write_set, decided))
        if self._idle.is_set():
            self._idle.clear()
            self._next_group()
        return decided

    async def drained(self) -> None:
        """Wait until nothing is queued or under way."""
        await self._idle.wait()

    def _next_group(self) -> None:
        if not self._waiting:
            self._idle.set()
            return
        group = [self._waiting.popleft()]
        rows = group[0][0].rows()
        while self._waiting and len(group) < GROUP_SETS and rows + self._waiting[0][0].rows() <= GROUP_ROWS:
            rows += self._waiting[0][0].rows()
            group.append(self._waiting.popleft())
        if rows > GROUP_ROWS or not self._locks.try_take():
            self._spawn(self._land_slowly(group))
            return
        try:
            self._begin()
            sets = [ws for ws, _ in group]
            verdicts = self._together(sets) or [_whole(self._apply(ws, len(sets) > 1)) for ws in sets]
            self._keep_seq()
        except apsw.BusyError:
            self._locks.give()  # a program that does not know our lock is writing: wait in the thread
            self._spawn(self._land_slowly(group))
        except Exception as e:
            self._spawn(self._recover(group, e))
        else:
            self._worker.start(self._commit, lambda error: self._committed(group, verdicts, error))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def check_place(self) -> None:
        """Refuse to go on when the file is not where it was: what stands there is another one. Raises Unavailable."""
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                return
        why = f"The database file {str(self._path)!r} was moved away or replaced while it was open."
        raise Unavailable(why, do="Put it back, or close this store and open another.")

    def _begin(self) -> None:
        self.check_place()
        self._connection.execute("BEGIN IMMEDIATE")
        self._seq = self._first_seq = self._connection.execute("SELECT seq FROM commits").get

    def _keep_seq(self) -> None:
        if self._seq != self._first_seq:
            self._connection.execute("UPDATE commits SET seq = ?", (self._seq,))

    def _wait_and_begin(self) -> None:
        self._locks.take(FOREIGN_LOCK_MS / 1000)
        self._connection.set_busy_timeout(FOREIGN_LOCK_MS)
        try:
            self._begin()
        finally:
            self._connection.set_busy_timeout(0)

    def _commit(self) -> None:
        self._connection.execute("COMMIT")
        self._locks.give()

    def _roll_back(self) -> None:
        with contextlib.suppress(apsw.Error):  # it may be what an I/O error has done already
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        self._locks.give()

    async def _land_slowly(self, group: list[Waiting]) -> None:
        """Land a group that must wait for the file's lock, or is large: wait in the thread, apply in slices."""
        try:
            verdicts = await self._land_in_steps([ws for ws, _ in group])
        except Exception as e:
            await self._recover(group, e)
        else:
            self._committed(group, verdicts, None)

    async def _land_in_steps(self, sets: Sequence[WriteSet]) -> list[Verdict]:
        await self._worker.run(self._wait_and_begin)
        verdicts = self._together(sets) or []
        for ws in sets[len(verdicts) :]:
            steps = self._apply(ws, len(sets) > 1)
            try:
                while True:
                    next(steps)
                    await asyncio.sleep(0)
            except StopIteration as done:
                verdicts.append(done.value)
        self._keep_seq()
        await self._worker.run(self._commit)
        return verdicts

    def _committed(self, group: list[Waiting], verdicts: list[Verdict], error: BaseException | None) -> None:
        if error is not None:
            self._spawn(self._recover(group, error))
            return
        self._tell_landed()
        self._next_group()
        self._tell(iter(zip(group, verdicts, strict=True)))

    def _tell(self, fates: Iterator[tuple[Waiting, Verdict]]) -> None:
        """Wake the tasks of a group a few at a time, so that the loop breathes between them."""
        told = 0
        for (_, decided), verdict in islice(fates, TOLD_AT_ONCE):
            decided.set_result(verdict)
            told += 1
        if told == TOLD_AT_ONCE:
            self._loop.call_soon(self._tell, fates)

    async def _recover(self, group: list[Waiting], error: BaseException) -> None:
        """After an error the whole group is undone: try its sets one by one, so that only the guilty one fails."""
        await self._worker.run(self._roll_back)
        doubt = isinstance(translated("", error), OutcomeUnknown)  # the commit of them all may come back after a crash
        for ws, decided in group:
            if len(group) > 1 and not isinstance(error, apsw.BusyError | TimeoutError):
                try:
                    (verdict,) = await self._land_in_steps([ws])
                except Exception as e:
                    error = error if doubt else e
                    await self._worker.run(self._roll_back)
                else:
                    doubt = False  # this landing lies where that commit was
                    decided.set_result(verdict)
                    continue
            decided.set_exception(translated(str(self._path), error))
        self._tell_landed()
        self._next_group()

    def _together(self, sets: Sequence[WriteSet]) -> list[Verdict] | None:
        """Write sets that have nothing to do with each other as one, table by table; None: they need one by one."""
        if len(sets) == 1 or not stand_apart(sets):
            return None
        verdicts: list[Verdict] = []
        for ws in sets:
            lost = self._refusal(ws)
            self._seq += lost is None
            verdicts.append(lost or Landed(self._seq))
        winners = [(ws, won.commit_seq) for ws, won in zip(sets, verdicts, strict=True) if isinstance(won, Landed)]
        try:
            _whole(self._write(winners))
        except apsw.ConstraintError:
            self._connection.execute("ROLLBACK")
            self._begin()
            return None
        return verdicts

    def _apply(self, ws: WriteSet, among_others: bool) -> Generator[None, None, Verdict]:
        """Check a set and write its rows, a slice at a step; answer its verdict (by `return`)."""
        c = self._connection
        lost = self._refusal(ws)
        if lost is not None:
            return lost
        self._seq += 1
        if among_others:
            c.execute("SAVEPOINT one")
        try:
            yield from self._write([(ws, self._seq)])
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
            row = self._connection.execute(*self._landing.revision(claim.root)).fetchone()
            if (0 if row is None else row[0]) != claim.expected:
                return Lost("root", claim.root)
        return None

    def _write(self, sets: Sequence[tuple[WriteSet, int]]) -> Generator[None, None, None]:
        for statement, rows in self._landing.steps(sets):
            for start in range(0, len(rows), GROUP_ROWS):
                if start or statement.startswith("DELETE"):  # which may be of everything a root has
                    yield
                part = rows if len(rows) <= GROUP_ROWS else rows[start : start + GROUP_ROWS]
                self._connection.executemany(statement, part)

    def _constraint(self, ws: WriteSet, error: apsw.ConstraintError) -> Lost:
        for table, rows in ws.inserts.items():
            for row in rows:
                if self._connection.execute(sql.statements(table).get, table.key_of(row)).fetchone() is not None:
                    return Lost("duplicate", table.name)
        table_name = str(error).rpartition("failed: ")[2].partition(".")[0]
        names = {f"index '{t.name}_only{i}'": t.name for t in self._tables for i in range(len(t.unique))}
        return Lost("unique", names.get(table_name, table_name))


def _whole(steps: Generator[None, None, V]) -> V:
    try:
        while True:
            next(steps)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
