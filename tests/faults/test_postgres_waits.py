"""What PostgreSQL waits for, or must not: stuck landings, a pooler in between, opposite orders, old transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from tests.support.postgres import Server, fresh_schema_url, pooler, run_sql, server, terminate_backends
from turnkeeper.errors import Conflict, OutcomeUnknown
from turnkeeper.records import RECORDS, TABLES, Record, Session
from turnkeeper.store.backend import Get, Measure, RootRev, Scan
from turnkeeper.store.engine import Engine
from turnkeeper.store.migrations import Plan
from turnkeeper.store.postgres import PostgresBackend
from turnkeeper.store.transaction import Transaction

SESSIONS = range(6)


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    """Run a server of its own: what waits there disturbs no other test."""
    with server() as one:
        yield one


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[PostgresBackend, Engine]]:
    """Open a backend with some sessions in it."""
    backend = PostgresBackend(url, Plan(TABLES))
    await backend.open()
    engine = Engine(backend, TABLES)
    try:
        yield backend, engine
    finally:
        await engine.close()


async def fill(engine: Engine) -> None:
    """Add the sessions."""
    async with engine.transaction(Transaction) as tx:
        await tx.insert_many([Session(f"s{i}", "i", "pending", 0, None, 0, 1, 0, 0, 0, 1, 0, 0, 0) for i in SESSIONS])


async def note(engine: Engine, session: int, key: str) -> None:
    """Land one row."""
    async with engine.transaction(Transaction) as tx:
        await tx.touch(f"s:s{session}")
        await tx.insert(Record(f"s{session}", "n", key, 0, "s", 0, b"", None))


async def test_a_landing_that_is_stuck_holds_up_no_read(running: Server) -> None:
    """Somebody else holds a row lock; cutting the landing leaves its outcome unknown, and nothing of it is there."""
    async with opened(fresh_schema_url(running.url)) as (backend, engine):
        await fill(engine)
        other = await asyncpg.connect(running.url)
        await other.execute(
            f"BEGIN; SELECT 1 FROM {backend.schema}.sessions WHERE session_id IN ('s0', 's1') FOR UPDATE"
        )
        stuck = [asyncio.create_task(note(engine, i, "stuck")) for i in (0, 1, 0)]
        await asyncio.sleep(0.1)
        async with asyncio.timeout(2):
            assert (await backend.read([RootRev("s:s0")]))[0] > 0
        assert await terminate_backends(running.url, only="%tk_land%") >= 1
        await asyncio.sleep(0.1)
        await other.close()
        results = await asyncio.gather(*stuck, return_exceptions=True)
        assert any(isinstance(r, OutcomeUnknown) for r in results)
        await note(engine, 0, "after")


async def test_behind_a_pooler_nothing_depends_on_the_session(running: Server) -> None:
    """Two stores, two server connections that change with every transaction, a view over several reads."""
    async with pooler(running.url) as url:
        naive = await asyncpg.connect(url)
        with pytest.raises(asyncpg.PostgresError):  # a client with named statements is lost there
            for number in range(4):
                await naive.fetchval("SELECT $1::int", number)
        await naive.close()
        place = fresh_schema_url(url)
        async with opened(place) as (one, first), opened(place) as (_, second):
            await fill(first)
            work = [note(e, i, f"{n}{k}") for n, e in enumerate((first, second)) for i in SESSIONS for k in range(8)]
            results = await asyncio.gather(*work, return_exceptions=True)
            assert all(r is None or isinstance(r, Conflict) for r in results)
            async with one.read_view() as view:
                (before,) = await view.read([Measure(Scan(RECORDS))])
                await note(second, 0, "later")
                assert await view.read([Measure(Scan(RECORDS))]) == [before]
            assert before[0] == sum(r is None for r in results)


async def test_landings_of_two_stores_in_opposite_order_never_deadlock(running: Server) -> None:
    """Each writes some sessions and rests on others."""
    place = fresh_schema_url(running.url)
    async with opened(place) as (one, first), opened(place) as (_, second):
        await fill(first)

        async def work(engine: Engine, sessions: list[int], name: str) -> None:
            async def add(tx: Transaction) -> None:
                for i in sessions:
                    await tx.touch(f"s:s{i}")
                await tx.insert_many([Record(f"s{i}", "n", name, 0, "s", 0, b"", None) for i in sessions[::2]])

            await engine.transact(Transaction, add)

        orders = [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]]
        await asyncio.gather(
            *[work(e, order, f"{n}-{k}-{o}") for n, e in enumerate((first, second))
              for k in range(6) for o, order in enumerate(orders)]
        )  # fmt: skip
        assert await one.read([Measure(Scan(RECORDS))]) == [(2 * 6 * 3 * 2, pytest.approx(0, abs=10_000))]
        ((deadlocks,),) = await run_sql(
            running.url, "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"
        )
        assert deadlocks == 0


async def test_commit_sequences_grow_in_a_cluster_whose_transaction_ids_are_behind(running: Server) -> None:
    """As after a dump is read into a new cluster."""
    place = fresh_schema_url(running.url)
    async with opened(place) as (backend, engine):
        await fill(engine)
        await run_sql(running.url, f"UPDATE {backend.schema}.commits SET seq = 1000000000000 WHERE slot = 3")
    async with opened(place) as (backend, engine):
        await note(engine, 0, "a")
        await note(engine, 1, "b")
        assert await backend.watch(0, 0) > 1_000_000_000_000
        assert (await backend.read([Get(RECORDS, ("s1", "n", "b"))]))[0] is not None


async def test_a_late_commit_is_not_skipped(running: Server) -> None:
    """What landed beside an older transaction that still runs is not answered before that has ended."""
    async with opened(fresh_schema_url(running.url)) as (backend, engine):
        await fill(engine)
        old = await asyncpg.connect(running.url)
        await old.execute("BEGIN; SELECT pg_current_xact_id()")
        held = await backend.watch(0, 0)
        async with engine.transaction(Transaction) as tx:
            await tx.touch("s:s0")
            await tx.insert(Record("s0", "n", "a", 0, "s", 0, b"", None))
        assert tx.commit_seq is not None
        assert await backend.watch(held, 0.05) < tx.commit_seq
        await old.close()
        assert await backend.watch(tx.commit_seq - 1, 5) >= tx.commit_seq
