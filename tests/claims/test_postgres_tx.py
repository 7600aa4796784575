"""Claims of the area T postgres-tx, by their outcome (decision 45): no connection is held while user code runs, so many
transactions overlap on few connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

import turnkeeper
from tests.support import databases
from tests.support.postgres import run_sql
from turnkeeper import Store
from turnkeeper.records import RECORDS
from turnkeeper.store.backend import Get
from turnkeeper.testing import House
from turnkeeper.testing.house import elsewhere, soon

pytestmark = pytest.mark.parametrize("backend", ["postgres"])
WHERE = ("cave", "notes")
BLOCKS = 50


class Stop(Exception):
    """An error of the test's own."""


@pytest.fixture
async def narrow(url: str) -> AsyncIterator[Store]:
    """Open a store with a single connection."""
    async with turnkeeper.open(url, connections=1) as store:
        yield store


@pytest.fixture
async def cave(store: Store) -> Store:
    """Make a session to write in."""
    await store.create_session("cave")
    return store


async def _held(postgres: str) -> list[str]:
    """Answer the states of the connections of Turnkeeper that are in a transaction, or hold a lock of one."""
    rows = await run_sql(
        postgres,
        "SELECT a.state FROM pg_stat_activity a WHERE application_name = 'turnkeeper' AND (a.xact_start IS NOT NULL"
        " OR EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = a.pid AND l.locktype <> 'virtualxid'))",
    )
    return [str(row[0]) for row in rows]


@pytest.mark.claim("T-144", "T-145", "T-149")
async def test_fifty_open_blocks_need_one_connection(narrow: Store, postgres: str) -> None:
    """All of them are open at once, read and write, and finish; meanwhile no connection is in a transaction."""
    for number in range(BLOCKS):
        await narrow.create_session(f"s{number}")
    meet = asyncio.Barrier(BLOCKS + 1)

    async def work(number: int) -> None:
        async with narrow.transaction() as tx:
            await tx.touch(f"s:s{number}")
            await tx.records.put(f"s{number}", "notes", "k", number)
            await soon(meet.wait())
            await soon(meet.wait())
            assert (await tx.records.get(f"s{number}", "notes", "k")).body == number

    async def looks() -> list[str]:
        await soon(meet.wait())
        held = await _held(postgres)
        await soon(meet.wait())
        return held

    *_, held = await soon(asyncio.gather(*(work(number) for number in range(BLOCKS)), looks()))
    assert held == []
    own = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'turnkeeper'"
    assert (await run_sql(postgres, own))[0][0] <= 2  # its one, and one more while reads had waited too long
    assert [(await narrow.records.get(f"s{n}", "notes", "k")).body for n in range(BLOCKS)] == list(range(BLOCKS))
    assert await _held(postgres) == []


@pytest.mark.claim("T-144", "T-149")
async def test_a_block_leaves_no_transaction_open_however_it_ends(cave: Store, url: str, postgres: str) -> None:
    """After a landing, an error and a refused landing, every connection is idle."""
    async with cave.transaction() as tx:
        await tx.records.put(*WHERE, "a", 1)
    with pytest.raises(Stop):
        async with cave.transaction() as tx:
            await tx.records.put(*WHERE, "b", 1)
            raise Stop
    house = House(databases.connector(url))
    faster = await house.store()
    with pytest.raises(turnkeeper.Conflict):
        async with cave.transaction() as tx:
            await tx.records.put(*WHERE, "c", 1)
            await faster.records.put(*WHERE, "faster", 1)
    await house.close()
    assert await _held(postgres) == []
    assert [record.key for record in await cave.records.list(*WHERE)] == ["a", "faster"]


@pytest.mark.claim("T-145")
async def test_every_write_of_a_block_reaches_the_server_in_one_landing(cave: Store) -> None:
    """Until its end nothing is sent but reads; then everything carries the commit sequence of one transaction."""
    before = await cave.lifecycle.events("cave")
    async with cave.transaction() as tx:
        for number in range(10):
            await tx.lifecycle.append_event("cave", "knock", number)
            await tx.records.put(*WHERE, f"k{number}", number)
        assert await elsewhere(cave.lifecycle.events("cave")) == before
    events = (await cave.lifecycle.events("cave"))[len(before) :]
    assert [event.body for event in events] == list(range(10))
    assert {event.commit_seq for event in events} == {tx.commit_seq}


@pytest.mark.claim("T-146")
async def test_transactions_overlap_in_time(cave: Store) -> None:
    """Two meet at a barrier inside their blocks, after a write each; so do thirty."""
    for number in range(30):
        await cave.create_session(f"s{number}")
    for many in (2, 30):
        meet = asyncio.Barrier(many)

        async def work(number: int, meet: asyncio.Barrier) -> None:
            async with cave.transaction() as tx:
                await tx.records.put(f"s{number}", "notes", "k", meet.parties)
                await soon(meet.wait())

        await soon(asyncio.gather(*(work(number, meet) for number in range(many))))
        assert (await cave.records.get("s1", "notes", "k")).body == many


@pytest.mark.claim("T-146")
async def test_transactions_that_overlap_lose_nothing(cave: Store, url: str) -> None:
    """Forty over two engines, reading before they write, all landing as soon as they can."""
    house = House(databases.connector(url))
    other = await house.store()
    await cave.records.put(*WHERE, "n", 0)

    async def counts_up(tx: turnkeeper.Tx) -> None:
        found = (await tx.fetch(None, Get(RECORDS, (*WHERE, "n"))))[0]
        await tx.update(replace(found, body=found.body + 1), expect=found)

    await soon(asyncio.gather(*((cave, other)[n % 2].transact(counts_up) for n in range(40))))
    assert (await cave.records.get(*WHERE, "n")).body == 40
    await house.close()


@pytest.mark.claim("T-147")
async def test_every_view_has_a_snapshot_of_its_own(cave: Store) -> None:
    """It stays while others land; and one after another, any number may be opened."""
    for number in range(6):
        async with cave.read_view() as view:
            before = await view.scan(RECORDS)
            assert len(before) == number
            await cave.records.put(*WHERE, f"k{number}", 1)
            assert await view.scan(RECORDS) == before


@pytest.mark.claim("T-147")
async def test_a_read_through_the_store_does_not_wait_for_an_open_transaction(cave: Store) -> None:
    """It answers at once what is committed, also while the transaction holds the root it reads."""
    await cave.records.put(*WHERE, "k", "before")
    async with cave.transaction() as tx:
        await tx.touch("s:cave")
        await tx.records.put(*WHERE, "k", "after")
        async with asyncio.timeout(5):
            seen = await elsewhere(cave.records.get(*WHERE, "k"))
            listed = await elsewhere(cave.sessions())
        assert (seen.body, len(listed)) == ("before", 1)
    assert (await cave.records.get(*WHERE, "k")).body == "after"


@pytest.mark.claim("T-148")
async def test_a_write_of_another_task_is_no_part_of_the_open_transaction(cave: Store) -> None:
    """It is stored, though the transaction that was open meanwhile is undone."""
    await cave.create_session("other")
    with pytest.raises(Stop):
        async with cave.transaction() as tx:
            await tx.records.put(*WHERE, "k", 1)
            await soon(elsewhere(cave.records.put("other", "notes", "k", 1)))
            raise Stop
    assert await cave.records.get(*WHERE, "k") is None
    assert (await cave.records.get("other", "notes", "k")).body == 1
