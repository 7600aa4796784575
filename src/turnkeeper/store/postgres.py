"""The backend for many machines: PostgreSQL through asyncpg, two generated functions, no state in any session.

A landing is one call of one function, a read another (`postgres_functions`), so a call is a transaction by itself and
everything works behind a pooler in transaction mode. Sets and reads that wait when a connection comes free travel
together; there is no timer. Landings go first, but they never keep a read waiting: it opens a connection of its own.
A connection lost during a landing leaves its outcome unknown; anything else is tried again, or was never written.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from ..clock import Clock
from ..errors import OutcomeUnknown, TurnkeeperError, Unavailable
from ..limits import GROUP_ROWS, GROUP_SETS, SCAN_INLINE_ROWS
from . import sql
from .backend import Answer, Get, Lost, Reader, Request, Scan, Verdict, WriteSet
from .migrations import Plan, foreign
from .owners import OpenOwners
from .postgres_functions import Functions
from .postgres_wire import Asked, Newest, ServerTime, Wire

LOG = logging.getLogger("turnkeeper.store")
PATIENCE_S = 4.0
"""How long a call goes on trying to connect."""
VIEWS = 4
"""Read views open at once, each on a connection of its own."""
STALL_S = 30.0
_LATE_S = 0.05

Landing = tuple[WriteSet, "asyncio.Future[Verdict]"]
Asking = tuple[Sequence[Asked], "asyncio.Future[list[Answer]]", float]
_LOST = ("08", "57P01", "57P02", "57P03", "57P05", "53300")
_REASONS = {
    "28": "refuses the login",
    "3D": "has no such database",
    "42501": "does not allow that to this login",
    "53100": "has a full disk",
    "25006": "is read-only",
    "25001": "has another default isolation than read committed",
}


class Link:
    """One connection. Statements are prepared by name only when no pooler stands between, which its process id shows."""

    def __init__(self, connection: Any) -> None:
        self.c, self._named, self._direct = connection, dict[str, Any](), None

    async def run(self, statement: str, *arguments: Any) -> list[Any]:
        """Run a constant statement."""
        if self._direct is None:
            self._direct = await self.c.fetchval("SELECT pg_backend_pid()") == self.c.get_server_pid()
        if not self._direct:
            return await self.c.fetch(statement, *arguments)
        if statement not in self._named:
            self._named[statement] = await self.c.prepare(statement)
        return await self._named[statement].fetch(*arguments)


class PostgresBackend:
    """One schema of one PostgreSQL database. See `backend.Backend` for the promises."""

    kind = "postgres"

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
        self._connections, self._busy = connections, 0
        self._sets: deque[Landing] = deque()
        self._reads: deque[Asking] = deque()
        self._free: list[Link] = []
        self._views = asyncio.Semaphore(VIEWS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = False
        self._late: asyncio.TimerHandle | None = None
        self._landed = asyncio.Event()
        self._ear: Any = None
        self._hearing = asyncio.Lock()
        self._behind_since: float | None = None
        self.owners = OpenOwners(of_others=None)
        self.round_trips = 0

    # opening and closing

    async def open(self) -> None:
        """Connect, then create or migrate under a lock. Raises Unavailable or IncompatibleStore."""
        self._loop = asyncio.get_running_loop()
        link = await self._connect(self._url, patience_s=0)
        try:
            await self._prepare(link.c)
        except BaseException as e:
            link.c.terminate()
            raise self._translated(e) from e
        self._free.append(link)

    async def _prepare(self, c: Any) -> None:
        version, encoding = c.get_server_version(), c.get_settings().server_encoding
        if version < (13,) or encoding != "UTF8":
            raise Unavailable(
                f"{self.name!r} is PostgreSQL {version.major} with the encoding {encoding}.", "Nothing was changed in it.",
                "Use PostgreSQL 13 or newer, and a database with the encoding UTF8.",
            )  # fmt: skip
        async with c.transaction(isolation="read_committed"):
            await c.execute(f"SELECT pg_advisory_xact_lock({self._functions.lock_class}, -1)")
            await self._bring_forward(c)
            there = await c.fetch(
                "SELECT proname::text FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = $1",
                self.schema,
            )
            for name, text in self._functions.texts.items():
                if (name,) not in there:
                    await c.execute(text)
            await c.execute(self._functions.repair_sequence())
            if self._listen_url:
                await c.execute("INSERT INTO store_meta VALUES ('notify', 'yes') ON CONFLICT DO NOTHING")

    async def _bring_forward(self, c: Any) -> None:
        there = {
            row[0]
            for row in await c.fetch(
                "SELECT relname::text FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = $1"
                " UNION ALL SELECT '' FROM pg_namespace WHERE nspname = $1", self.schema,
            )
        }  # fmt: skip
        plan, ours = self._plan, {"store_meta", "roots", "commits", *(table.name for table in self._plan.tables)}
        if not there & ours:
            if not self._create:
                raise Unavailable(f"There is no store in {self.name!r}.", "Nothing was made.", "Open with create=True.")
            steps = [] if "" in there else [f"CREATE SCHEMA {sql.q(self.schema)}"]
            steps += [f"SET LOCAL search_path TO {sql.q(self.schema)}", *self._functions.own_tables()]
            steps += [statement for table in plan.tables for statement in sql.create(table, "postgres")]
        else:
            await c.execute(f"SET LOCAL search_path TO {sql.q(self.schema)}")
            try:
                marks = dict(await c.fetch("SELECT name, value FROM store_meta"))
                behind = plan.path(self.name, int(marks["version"]), marks["schema"], self._migrate)
            except (KeyError, ValueError) as e:
                raise foreign(self.name) from e
            if not behind:
                return
            steps = [statement for version in behind for statement in plan.steps[version]["postgres"]]
        await c.execute(";\n".join(steps))
        await c.executemany(
            "INSERT INTO store_meta VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [("version", str(plan.version)), ("schema", plan.digest)],
        )

    async def _connect(self, url: str, *, patience_s: float = PATIENCE_S) -> Link:
        try:
            import asyncpg
        except ImportError as e:
            raise Unavailable(
                "PostgreSQL needs the driver asyncpg.", "Nothing was opened.", "Install turnkeeper[postgres]."
            ) from e
        ends, pause = self._loop.time() + patience_s, 0.05
        while True:
            try:
                return Link(
                    await asyncpg.connect(
                        url, timeout=10, statement_cache_size=0, server_settings={"application_name": "turnkeeper"}
                    )
                )
            except Exception as e:
                if not self._lost(e) or self._loop.time() + pause > ends:
                    raise self._translated(e) from e
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.5)

    async def close(self) -> None:
        """Finish what is under way, then close every connection. Idempotent."""
        while self._tasks or self._sets or self._reads:
            await asyncio.wait(
                [*self._tasks, self._loop.create_task(asyncio.sleep(0.01))], return_when="FIRST_COMPLETED"
            )
        for connection in [link.c for link in self._free] + ([self._ear] if self._ear else []):
            with suppress(Exception):
                await connection.close(timeout=2)
        self._free, self._ear = [], None

    # the line in front of the connections

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
        """Say whether a read has waited behind landings for too long: one connection more than usual is for those."""
        return (
            bool(self._reads) and self._busy == self._connections and self._loop.time() - self._reads[0][2] >= _LATE_S
        )

    def _look_for_late(self) -> None:
        self._late = None
        if self._reads:
            self._soon()

    async def _work(self) -> None:
        self._starting = False
        try:
            while self._sets or self._reads:
                work = (
                    self._answer(self._batch()) if self._read_is_late() or not self._sets else self._land(self._group())
                )
                if self._sets or self._reads:
                    self._soon()
                await work
                if self._busy > self._connections:
                    break
        finally:
            self._busy -= 1

    def _group(self) -> list[Landing]:
        """Take the sets that can land in one call: none writes a root that another one touches."""
        group: list[Landing] = []
        touched: set[str] = set()
        written: set[str] = set()
        rows, left = 0, deque[Landing]()
        while self._sets and len(group) < GROUP_SETS and len(left) < 4 * GROUP_SETS:
            landing = self._sets.popleft()
            ws, decided = landing
            mine = {claim.root for claim in ws.claims}
            wrote = {claim.root for claim in ws.claims if claim.written}
            apart = not (mine & written or wrote & touched)
            if apart and (not group or rows + ws.rows() <= GROUP_ROWS):
                group.append(landing)
                rows += ws.rows()
            else:
                left.append(landing)
            touched |= mine
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
        try:
            self.round_trips += 1
            rows = await link.run(statement, *arguments)
        except BaseException as e:
            if not getattr(e, "sqlstate", None) or self._lost(e):
                link.c.terminate()
            raise
        finally:
            if not link.c.is_closed():
                self._free.append(link)
        if len(self._free) > self._connections:
            await self._free.pop(0).c.close(timeout=2)
        return rows

    # reading

    async def read(self, requests: Sequence[Asked]) -> list[Answer]:
        """Answer all requests from one committed state."""
        answered: asyncio.Future[list[Answer]] = self._loop.create_future()
        self._reads.append((requests, answered, self._loop.time()))
        self._soon()
        return await answered

    async def _answer(self, batch: list[Asking]) -> None:
        document = self._wire.requests(request for requests, _, _ in batch for request in requests)
        try:
            try:
                rows = await self._call(self._functions.call_read, document)
            except Exception as e:
                if not self._lost(e):
                    raise
                rows = await self._call(self._functions.call_read, document)
        except Exception as e:
            for _, answered, _ in batch:
                if not answered.done():
                    answered.set_exception(self._translated(e))
            return
        first = 0
        answers = await self._answers([request for requests, _, _ in batch for request in requests], rows)
        for requests, answered, _ in batch:
            if not answered.done():
                answered.set_result(answers[first : first + len(requests)])
            first += len(requests)

    async def _answers(self, requests: Sequence[Asked], rows: list[Any]) -> list[Answer]:
        parts: list[list[Any]] = [[] for _ in requests]
        for count, (n, cells) in enumerate(rows):
            parts[n].append(cells)
            if count and not count % SCAN_INLINE_ROWS:
                await asyncio.sleep(0)
        return [self._wire.answer(request, part) for request, part in zip(requests, parts, strict=True)]

    @asynccontextmanager
    async def _viewing(self) -> AsyncIterator[Reader]:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._views.acquire()
        except TimeoutError as e:
            raise Unavailable(
                f"{VIEWS} read views of {self.name!r} are open already.", do="End one of them first."
            ) from e
        try:
            link = await self._connect(self._url)
            try:
                await link.c.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1")
                yield _View(self, link)
                await link.c.execute("COMMIT")
                await link.c.close(timeout=2)
            except BaseException as e:
                raise self._translated(e) from e
            finally:
                link.c.terminate()
        finally:
            self._views.release()

    def read_view(self) -> AbstractAsyncContextManager[Reader]:
        """Open a repeatable-read transaction on a connection of its own."""
        return self._viewing()

    # landing

    def land(self, write_set: WriteSet) -> asyncio.Future[Verdict]:
        """Queue a set; it goes with the next call."""
        decided: asyncio.Future[Verdict] = self._loop.create_future()
        self._sets.append((write_set, decided))
        self._soon()
        return decided

    async def _land(self, group: list[Landing], attempt: int = 0) -> None:
        sets = [ws for ws, _ in group]
        try:
            document = self._wire.landing(sets, self._clock() if self._clock else None)
            ((*answer,),) = await self._call(self._functions.call_land, *document)
            verdicts = self._wire.verdicts(sets, answer)
        except Exception as e:
            state = getattr(e, "sqlstate", None)
            if len(group) > 1 and not self._lost(e) and not isinstance(e, Unavailable):
                for landing in group:  # the whole group is undone: only the guilty one shall fail
                    await self._land([landing])
            elif state in ("40P01", "40001") and attempt < 5:
                await self._land(group, attempt + 1)
            elif state == "23505":
                group[0][1].set_result(await self._taken(sets[0], e))
            else:
                for _, decided in group:
                    decided.set_exception(self._translated(e, landing=True))
            return
        for (_, decided), verdict in zip(group, verdicts, strict=True):
            decided.set_result(verdict)
        self._tell()

    async def _taken(self, ws: WriteSet, error: Any) -> Verdict:
        wanted = [
            Get(t, t.key_of(row)) for t, rows in ws.inserts.items() for row in rows if t.root_of(row) not in ws.drops
        ]
        rows = await self._call(self._functions.call_read, self._wire.requests(wanted))
        if rows:
            return Lost("duplicate", wanted[min(row[0] for row in rows)].table.name)
        return Lost("unique", str(error.table_name))

    def _tell(self, *_: Any) -> None:
        self._landed.set()
        self._landed = asyncio.Event()

    # the rest

    async def now(self) -> int:
        """Read the server's clock, which all machines share (or the one the store was opened with)."""
        if self._clock:
            return self._clock()
        (now,) = await self.read([ServerTime()])
        return int(now)

    async def watch(self, after: int, timeout_s: float) -> int:
        """Wait for a landing; answer a sequence up to which nothing can land any more, so no late commit is skipped."""
        ends, pause = self._loop.time() + timeout_s, 0.005
        while True:
            landed, heard = self._landed, await self._listen()
            ((newest, settled),) = await self.read([Newest()])
            self._look_behind(newest, settled)
            seq: int = min(newest, settled)
            left = ends - self._loop.time()
            if seq > after or left <= 0:
                return seq
            try:
                async with asyncio.timeout(min(pause, left)):
                    await landed.wait()
                pause = 0.005
            except TimeoutError:
                pause = min(pause * 1.5, 5.0 if heard and newest <= after else 0.25)

    def _look_behind(self, newest: int, settled: int) -> None:
        now = self._loop.time()
        if newest <= settled:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        elif now - self._behind_since > STALL_S:
            self._behind_since = now
            LOG.warning("an old transaction in the cluster of %s holds back events for over %d s", self.name, STALL_S)

    async def _listen(self) -> bool:
        """Listen for landings of others when there is a url for it; say whether it works now."""
        if self._listen_url is None:
            return False
        async with self._hearing:
            if self._ear is None or self._ear.is_closed():
                try:
                    self._ear = (await self._connect(self._listen_url, patience_s=0)).c
                    await self._ear.add_listener(self._functions.channel, self._tell)
                except Exception:
                    return False
        return True

    def _lost(self, error: BaseException) -> bool:
        state = getattr(error, "sqlstate", None)
        return (
            state.startswith(_LOST) if state else isinstance(error, OSError) and not isinstance(error, TurnkeeperError)
        )

    def _translated(self, error: BaseException, *, landing: bool = False) -> BaseException:
        """Turn a driver's error into ours: the one place where this backend does so."""
        state = getattr(error, "sqlstate", None)
        driver = type(error).__module__.partition(".")[0] == "asyncpg"
        if isinstance(error, TurnkeeperError) or not (driver or isinstance(error, OSError)):
            return error
        nothing = "Nothing was written."
        if self._lost(error) or state is None:
            if landing:
                return OutcomeUnknown(
                    f"The connection to {self.name!r} was lost during a landing.", "It is wholly there or wholly absent.",
                    "Repeat the call with the same key: the receipt answers when it had landed.",
                )  # fmt: skip
            return Unavailable(
                f"{self.name!r} cannot be reached ({type(error).__name__}).", nothing, "Try again later."
            )
        if state in ("42703", "42P01"):
            return foreign(self.name)
        reason = next((text for start, text in _REASONS.items() if state.startswith(start)), "refused the call")
        return Unavailable(f"PostgreSQL at {self.name!r} {reason} ({type(error).__name__}, {state}).", nothing)


class _View:
    """Reads inside one transaction, one after another."""

    def __init__(self, backend: PostgresBackend, link: Link) -> None:
        self._backend, self._link, self._turn = backend, link, asyncio.Lock()

    async def read(self, requests: Sequence[Request]) -> list[Answer]:
        backend = self._backend
        async with self._turn:
            backend.round_trips += 1
            rows = await self._link.run(backend._functions.call_read, backend._wire.requests(requests))
        return await backend._answers(requests, rows)


def split_url(url: str, schema: str | None) -> tuple[str, str, str]:
    """Answer the url for the driver, the name without user and password, and the schema (`?schema=`)."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    path = query.pop("search_path", "").split(",")[0].strip(' "')
    schema = schema or query.pop("schema", "") or path or "public"
    shown = {k: v for k, v in query.items() if k in ("host", "port")} | (
        {} if schema == "public" else {"schema": schema}
    )
    name = (
        f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}{'?' if shown else ''}{urlencode(shown, safe='/')}"
    )
    return parts._replace(query=urlencode(query)).geturl(), name, schema


def _long(request: Asked) -> bool:
    return isinstance(request, Scan) and (request.limit is None or request.limit > SCAN_INLINE_ROWS)
