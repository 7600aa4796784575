"""The backend for many machines: PostgreSQL through asyncpg, two generated functions, no state in any session (ADR 3).

A call of a function is a transaction by itself, so everything works behind a pooler in transaction mode. Sets and reads
that wait when a connection comes free travel together; there is no timer. Landings go first, but a late read opens a
connection of its own. A connection lost in a landing leaves its outcome unknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Literal

from ..clock import SECOND_US, Clock
from ..errors import OutcomeUnknown, TurnkeeperError, Unavailable
from ..limits import GROUP_ROWS, GROUP_SETS, SCAN_INLINE_ROWS
from . import sql
from .backend import Answer, Deciding, Get, Lost, Reader, Scan, Verdict, WriteSet
from .migrations import Plan, foreign
from .migrations.functions import Functions
from .owners import OpenOwners
from .postgres_wire import NEWEST, Asked, Wire
from .urls import split_url

PATIENCE_S, VIEWS = 4.0, 4  # how long a call goes on trying to connect, or waits to open one of so many read views
_STALL_S = 30.0  # a transaction that holds back the newest commit sequence for longer is worth a line in the log
_FRESH_S, _LATE_S = 0.05, 0.05  # how long the last word on the server's clock is good; when a read that waits is late
Landing = tuple[WriteSet, Deciding]
Asking = tuple[Sequence[Asked], "asyncio.Future[list[Answer]]", float]
_LOST = ("08", "57P01", "57P02", "57P03", "57P05", "53300")
_REASONS = {
    "28": "refuses the login", "3D": "has no such database", "42501": "does not allow that to this login",
    "53100": "has a full disk", "25006": "is read-only", "25001": "has a default isolation other than read committed",
}  # fmt: skip


class _Link:
    """One connection. Statements have names only where no pooler stands between, which the server's process id shows."""

    def __init__(self, connection: Any, direct: bool) -> None:
        self.c, self._direct, self._named = connection, direct, dict[str, Any]()

    @classmethod
    async def to(cls, url: str) -> _Link:
        try:
            import asyncpg
        except ImportError as e:
            do = "Install turnkeeper[postgres]."
            raise Unavailable("PostgreSQL needs asyncpg.", "Nothing was opened.", do) from e
        settings = {"application_name": "turnkeeper"}
        c = await asyncpg.connect(url, timeout=10, statement_cache_size=0, server_settings=settings)
        return cls(c, await c.fetchval("SELECT pg_backend_pid()") == c.get_server_pid())

    async def run(self, statement: str, *arguments: Any) -> list[Any]:
        if not self._direct:
            return list(await self.c.fetch(statement, *arguments))
        if statement not in self._named:
            self._named[statement] = await self.c.prepare(statement)
        return list(await self._named[statement].fetch(*arguments))

    async def close(self) -> None:
        with suppress(Exception):
            await self.c.close(timeout=2)


class PostgresBackend:
    """One schema of one PostgreSQL database. See `backend.Backend` for the promises."""

    kind = "postgres"
    cheap_views = False

    def __init__(
        self,
        url: str,
        plan: Plan,
        *,
        clock: Clock | None = None,
        create: bool = True,
        migrate: Literal["auto", "refuse"] = "auto",
        connections: int = 2,
        listen_url: str | None = None,
        schema: str | None = None,
    ) -> None:
        self._url, self.name, self.schema = split_url(url, schema)
        self._listen_url = split_url(listen_url, None)[0] if listen_url else None
        self._plan, self._clock, self._create, self._migrate = plan, clock, create, migrate
        self._functions = Functions(plan.tables, self.schema)
        self._wire = Wire(self._functions)
        self._connections, self._busy, self._starting, self._closed = connections, 0, False, False
        self._sets: deque[Landing] = deque()
        self._reads: deque[Asking] = deque()
        self._free: list[_Link] = []
        self._views = asyncio.Semaphore(VIEWS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._late: asyncio.TimerHandle | None = None
        self._landed = asyncio.Event()
        self._ear: _Link | None = None
        self._behind_since: float | None = None
        self._server_us, self._heard_at = 0, -_FRESH_S  # the server's clock
        self.owners = OpenOwners(of_others=None)  # whether another process lives, only its leases tell
        self.round_trips = 0

    async def open(self) -> None:
        """Connect, then create or migrate under a lock. Raises Unavailable or IncompatibleStore."""
        self._loop = asyncio.get_running_loop()
        link = await self._connect(self._url, patience_s=0)
        try:
            await self._prepare(link.c)
        except BaseException as e:
            await link.close()
            if getattr(e, "sqlstate", None) in ("42703", "42P01"):
                raise foreign(self.name) from e
            raise translated(self.name, e) from e
        self._free.append(link)

    async def _prepare(self, c: Any) -> None:
        version, encoding = c.get_server_version(), c.get_settings().server_encoding
        if version < (13,) or encoding != "UTF8":
            happened = f"{self.name!r} is PostgreSQL {version.major} with the encoding {encoding}."
            raise Unavailable(happened, "Nothing was changed.", "Use PostgreSQL 13 or newer and the encoding UTF8.")
        async with c.transaction(isolation="read_committed"):
            await c.execute(f"SELECT pg_advisory_xact_lock({self._functions.lock}, -1)")
            await self._bring_forward(c)
            own = "SELECT proname FROM pg_proc JOIN pg_namespace AS n ON n.oid = pronamespace WHERE nspname = $1"
            there = {row[0] for row in await c.fetch(own, self.schema)}
            missing = [text for name, text in self._functions.texts.items() if name not in there]
            await c.execute(";\n".join([*missing, sql.POSTGRES_REPAIR]))
            if self._listen_url:  # from now on every landing tells
                await c.execute("INSERT INTO store_meta VALUES ('notify', 'yes') ON CONFLICT DO NOTHING")

    async def _bring_forward(self, c: Any) -> None:
        plan, use = self._plan, f"SET LOCAL search_path TO {sql.q(self.schema)}"
        schema = await c.fetchval("SELECT oid FROM pg_namespace WHERE nspname = $1", self.schema)
        tables = "SELECT relname::text FROM pg_class WHERE relnamespace = $1"
        there = {row[0] for row in await c.fetch(tables, schema or 0)}
        if there & {"store_meta", "roots", "commits", *(table.name for table in plan.tables)}:
            await c.execute(use)
            marks = dict(await c.fetch("SELECT name, value FROM store_meta"))
            if not marks.get("version", "").isdecimal() or "schema" not in marks:
                raise foreign(self.name)
            behind = plan.path(self.name, int(marks["version"]), marks["schema"], self._migrate)
            if not behind:
                return
            steps = [statement for version in behind for statement in plan.steps[version]["postgres"]]
            steps += plan.marks()
        elif not self._create:
            raise Unavailable(f"There is no store in {self.name!r}.", "Nothing was made.", "Open with create=True.")
        else:
            steps = [*([] if schema else [f"CREATE SCHEMA {sql.q(self.schema)}"]), use]
            steps += plan.whole("postgres", self.schema)
        await c.execute(";\n".join(steps))

    async def _connect(self, url: str, *, patience_s: float = PATIENCE_S) -> _Link:
        ends, pause = self._loop.time() + patience_s, 0.05
        while True:
            if self._closed:
                raise Unavailable(f"The store {self.name!r} is closed.", do="Open it again.")
            try:
                return await _Link.to(url)
            except Exception as e:
                if not _lost(e) or self._loop.time() + pause > ends:
                    raise translated(self.name, e) from e
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.5)

    async def close(self) -> None:
        """Finish what is under way, then close every connection. Idempotent."""
        while self._tasks:
            done, _ = await asyncio.wait(self._tasks)
            self._tasks -= done
        self._closed = True
        for link in [*self._free, *([self._ear] if self._ear else [])]:
            await link.close()
        self._free, self._ear = [], None

    def _soon(self) -> None:
        """Have a worker look at what waits, in the next round of the loop: what others bring in this one goes along."""
        if not self._starting and (self._busy < self._connections or self._read_is_late()):
            self._starting = True
            self._busy += 1
            task = self._loop.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif self._reads and self._late is None:
            self._late = self._loop.call_later(_LATE_S, self._look_for_late)

    def _read_is_late(self) -> bool:
        late = bool(self._reads) and self._loop.time() - self._reads[0][2] >= _LATE_S
        return late and self._busy == self._connections  # one connection more than usual, and no second one

    def _look_for_late(self) -> None:
        self._late = None
        if self._reads:
            self._soon()

    async def _work(self) -> None:
        self._starting, extra = False, self._busy > self._connections
        try:
            while self._reads if extra else self._sets or self._reads:
                work = self._answer(self._batch()) if extra or not self._sets else self._land(self._group())
                if self._sets or self._reads:
                    self._soon()
                await work
        finally:
            self._busy -= 1

    def _group(self) -> list[Landing]:
        """Take the sets that can land in one call: the order of their rows does not matter."""
        group: list[Landing] = []
        left: list[Landing] = []
        touched: set[str] = set()
        written: set[str] = set()
        rows = 0
        while self._sets and len(group) < GROUP_SETS and len(left) < 4 * GROUP_SETS:
            landing = self._sets.popleft()
            ws = landing[0]
            mine, wrote = {c.root for c in ws.claims}, {c.root for c in ws.claims if c.written}
            apart = not (mine & written or wrote & touched or (group and (ws.frees() or group[-1][0].frees())))
            if apart and (not group or rows + ws.rows() <= GROUP_ROWS):
                group.append(landing)
                rows += ws.rows()
            else:
                left.append(landing)
            touched |= mine  # of those left behind too: nobody overtakes on his own root
            written |= wrote
        self._sets.extendleft(reversed(left))
        return group

    def _batch(self) -> list[Asking]:
        batch = [self._reads.popleft()]
        while self._reads and len(batch) < GROUP_SETS and not any(map(_long, (*batch[-1][0], *self._reads[0][0]))):
            batch.append(self._reads.popleft())
        return batch

    async def _call(self, statement: str, *arguments: Any) -> list[Any]:
        while self._free and self._free[-1].c.is_closed():
            self._free.pop()
        link = self._free.pop() if self._free else await self._connect(self._url)
        self.round_trips += 1
        try:
            rows = await link.run(statement, *arguments)
        except BaseException as e:
            if getattr(e, "sqlstate", None) and not _lost(e):
                self._free.append(link)
            else:
                for gone in (link, *self._free):  # the others have most likely gone the same way
                    gone.c.terminate()
                self._free.clear()
            raise
        self._free.append(link)
        if len(self._free) > self._connections:
            await self._free.pop(0).close()
        return rows

    async def read(self, requests: Sequence[Asked]) -> list[Answer]:
        """Answer all requests from one committed state."""
        answered: asyncio.Future[list[Answer]] = self._loop.create_future()
        self._reads.append((requests, answered, self._loop.time()))
        self._soon()
        return await answered

    async def _answer(self, batch: list[Asking]) -> None:
        requests = [request for requests, _, _ in batch for request in requests]
        try:
            document = self._wire.requests(requests)
            try:
                rows = await self._call(self._functions.read, document)
            except Exception as e:
                if not _lost(e):
                    raise
                rows = await self._call(self._functions.read, document)
            answers = iter(await self._sorted(requests, rows))
        except Exception as e:
            for _, answered, _ in batch:
                if not answered.done():
                    answered.set_exception(translated(self.name, e))
            return
        for mine, answered, _ in batch:
            own = [next(answers) for _ in mine]
            if not answered.done():
                answered.set_result(own)

    def _hear(self, server_us: int) -> None:
        self._heard_at = self._loop.time()
        if not 0 < self._server_us - server_us < SECOND_US:  # answers of two connections may come in the other order
            self._server_us = server_us

    async def _sorted(self, requests: Sequence[Asked], rows: list[Any]) -> list[Answer]:
        parts: list[list[Any]] = [[] for _ in requests]
        self._hear(int(rows.pop()[1][0]))
        for count, (n, cells) in enumerate(rows, 1):
            parts[n].append(cells)
            if not count % SCAN_INLINE_ROWS:
                await asyncio.sleep(0)
        return [self._wire.answer(request, part) for request, part in zip(requests, parts, strict=True)]

    @asynccontextmanager
    async def read_view(self) -> AsyncIterator[Reader]:
        """Open a repeatable-read transaction on a connection of its own."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._views.acquire()
        except TimeoutError as e:
            raise Unavailable(f"{VIEWS} read views of {self.name!r} are open.", do="End one of them first.") from e
        try:
            link = await self._connect(self._url)
            try:
                with _translating(self.name):
                    await link.c.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1")
                yield _View(self, link)
            finally:
                with suppress(Exception):
                    await link.c.execute("ROLLBACK", timeout=2)
                await link.close()
        finally:
            self._views.release()

    def land(self, write_set: WriteSet) -> Deciding:
        """Queue a set; it goes with the next call."""
        decided = Deciding(loop=self._loop)
        self._sets.append((write_set, decided))
        self._soon()
        return decided

    async def _land(self, group: list[Landing]) -> None:
        try:
            verdicts = await self._verdicts([ws for ws, _ in group])
        except Exception as e:
            if len(group) > 1 and not _lost(e) and not isinstance(e, Unavailable):
                for landing in group:  # the whole group is undone: only the guilty one shall fail
                    await self._land([landing])
                return
            for _, decided in group:
                decided.set_exception(translated(self.name, e, landing=True))
            return
        for (_, decided), verdict in zip(group, verdicts, strict=True):
            decided.set_result(verdict)
        self._tell()

    async def _verdicts(self, sets: Sequence[WriteSet], attempt: int = 0) -> list[Verdict]:
        try:
            document = self._wire.landing(sets, self._clock() if self._clock else None)
            ((*answer, server_us),) = await self._call(self._functions.land, *document)
            self._hear(server_us)
            return self._wire.verdicts(sets, answer)
        except Exception as e:
            state = getattr(e, "sqlstate", None)
            if state in ("40P01", "40001") and attempt < 5:
                return await self._verdicts(sets, attempt + 1)
            if state != "23505" or len(sets) > 1:
                raise
            return [await self._taken(sets[0], e)]

    async def _taken(self, ws: WriteSet, error: Any) -> Verdict:
        """Say which of a set's rows was there already: a key, or else a value that stands once."""
        new = ((t, row) for t, rows in ws.inserts.items() for row in rows if t.root_of(row) not in ws.drops)
        wanted = [Get(table, table.key_of(row)) for table, row in new]
        *rows, _ = await self._call(self._functions.read, self._wire.requests(wanted))
        return Lost("duplicate", wanted[rows[0][0]].table.name) if rows else Lost("unique", error.table_name)

    def _tell(self, *_: Any) -> None:
        self._landed.set()
        self._landed = asyncio.Event()

    async def advance(self, seq: int) -> None:
        """Give later landings sequences above this one."""
        await self._call(sql.POSTGRES_ADVANCE.format(sql.q(self.schema)), seq)

    async def now(self) -> int:
        """Read the server's clock, which all machines share. Every call brings it along: a fresh one is not asked again."""
        if self._clock:
            return self._clock()
        if self._loop.time() - self._heard_at > _FRESH_S:
            await self.read([])
        return self._server_us

    async def watch(self, after: int, timeout_s: float) -> int:
        """Wait for a landing; answer a sequence below which nothing can land any more, so that no late one is skipped."""
        ends, pause = self._loop.time() + timeout_s, 0.005
        while True:
            landed, heard = self._landed, await self._listen()
            ((newest, settled),) = await self.read([NEWEST])
            self._look_behind(newest > settled)
            left = ends - self._loop.time()
            if min(newest, settled) > after or left <= 0:
                return int(min(newest, settled))
            with suppress(TimeoutError):
                async with asyncio.timeout(min(pause, left)):
                    await landed.wait()
                    pause = 0.0
            pause = min(pause * 1.5 + 0.002, 5.0 if heard and newest <= after else 0.25)

    def _look_behind(self, behind: bool) -> None:
        """Say so when an old transaction anywhere in the cluster keeps what has landed from being answered."""
        now = self._loop.time()
        since = self._behind_since if behind and self._behind_since is not None else now
        if now - since > _STALL_S:
            logging.getLogger("turnkeeper.store").warning("an old transaction holds back the events of %s", self.name)
            since = now
        self._behind_since = since if behind else None

    async def _listen(self) -> bool:
        """Listen for the landings of others when there is a url for it; say whether that works now."""
        if self._listen_url and not self._closed and (self._ear is None or self._ear.c.is_closed()):
            with suppress(Exception):  # polling goes on without it
                ear = await _Link.to(self._listen_url)
                await ear.c.add_listener(self._functions.channel, self._tell)
                former, self._ear = self._ear, ear
                if former is not None:
                    await former.close()
        return self._ear is not None and not self._ear.c.is_closed()


class _View:
    """Reads inside one transaction, one after another."""

    def __init__(self, backend: PostgresBackend, link: _Link) -> None:
        self._link, self._backend, self._turn = link, backend, asyncio.Lock()

    async def read(self, requests: Sequence[Asked]) -> list[Answer]:
        backend = self._backend
        backend.round_trips += 1
        async with self._turn:
            with _translating(backend.name):
                rows = await self._link.run(backend._functions.read, backend._wire.requests(requests))
        return await backend._sorted(requests, rows)


def _long(request: Asked) -> bool:
    return isinstance(request, Scan) and (request.limit is None or request.limit > SCAN_INLINE_ROWS)


def _theirs(error: BaseException) -> bool:
    ours = isinstance(error, TurnkeeperError)
    return not ours and (isinstance(error, OSError) or type(error).__module__.startswith("asyncpg."))


def _lost(error: BaseException) -> bool:
    """Say whether an error means that there is no connection, or none any more."""
    state = getattr(error, "sqlstate", None)
    return state.startswith(_LOST) if state else _theirs(error)


@contextmanager
def _translating(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as e:
        raise translated(name, e) from e


def translated(name: str, error: BaseException, *, landing: bool = False) -> BaseException:
    """Turn a driver's error into ours: the one place where this backend does so."""
    if not _theirs(error):
        return error
    state = getattr(error, "sqlstate", None) or ""
    if _lost(error) and landing:
        return OutcomeUnknown(
            f"The connection to {name!r} was lost during a landing.",
            "It is wholly there or wholly absent.",
            "Repeat the call with the same key: the receipt answers when it had landed.",
        )
    if _lost(error):
        return Unavailable(f"{name!r} cannot be reached ({type(error).__name__}).", do="Repeat the call later.")
    reason = next((text for start, text in _REASONS.items() if state.startswith(start)), "refused the call")
    happened = f"PostgreSQL at {name!r} {reason} ({type(error).__name__}, {state})."
    return Unavailable(happened, do="Mend that, then repeat the call.")
