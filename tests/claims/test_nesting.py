"""Claims of the area T nesting: a transaction inside a transaction of the same database is refused, everywhere alike."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

import turnkeeper
from tests.support import databases
from turnkeeper import NestedTransactionError, Store
from turnkeeper.testing.house import soon

WHERE = ("cave", "notes")
MESSAGE = re.compile(
    r"A transaction of the store '(?P<store>[^']+)' \((?P<backend>memory|sqlite|postgres)\) was opened inside another "
    r"transaction of it; nested transactions are unsupported, because an inner one could land although the outer one is "
    r"undone\. .*Use the outer block's tx .* or flatten the two blocks\."
)


class Stop(Exception):
    """An error of the test's own."""


@pytest.fixture
async def cave(store: Store) -> Store:
    """Make a session to write in."""
    await store.create_session("cave")
    return store


async def _keys(store: Store) -> list[str]:
    return [record.key for record in await store.records.list(*WHERE)]


@pytest.mark.claim("T-222", "T-223")
async def test_a_block_inside_a_block_is_refused_at_once(cave: Store) -> None:
    """By the call itself, which awaits nothing; entering one that was made before is refused before it waits."""
    made = cave.transaction()
    async with cave.transaction() as tx:
        await tx.touch("s:cave")
        with pytest.raises(NestedTransactionError):
            cave.transaction()
        entering = made.__aenter__()
        with pytest.raises(NestedTransactionError):
            entering.send(None)  # it raises before it could give control back to the event loop


@pytest.mark.claim("T-222")
async def test_every_way_of_nesting_is_refused(cave: Store) -> None:
    """In a helper, in a child task, in a savepoint, inside `transact`."""

    async def nested() -> None:
        with pytest.raises(NestedTransactionError):
            async with cave.transaction():
                pass

    async def body(tx: turnkeeper.Tx) -> None:
        await nested()

    async with cave.transaction() as tx:
        await nested()
        await asyncio.gather(nested(), asyncio.create_task(nested()))
        async with tx.savepoint():
            await nested()
    await cave.transact(body)


@pytest.mark.claim("T-224")
async def test_no_inner_landing_outlives_an_outer_rollback(cave: Store) -> None:
    """There is no inner landing: neither write is there."""
    with pytest.raises(NestedTransactionError):
        async with cave.transaction() as outer:
            await outer.records.put(*WHERE, "outer", 1)
            async with cave.transaction() as inner:
                await inner.records.put(*WHERE, "inner", 1)
    assert await _keys(cave) == []


@pytest.mark.claim("T-225", "T-229")
async def test_the_refusal_has_one_message_on_every_backend(cave: Store, backend: str) -> None:
    """Store, backend, reason and advice; built by the one constructor they share."""
    async with cave.transaction():
        with pytest.raises(NestedTransactionError) as caught:
            cave.transaction()
    found = MESSAGE.fullmatch(str(caught.value))
    assert found, str(caught.value)
    assert found.groupdict() == {"store": cave.name, "backend": backend}
    assert str(caught.value) == str(NestedTransactionError.of(cave.name, backend))
    assert type(caught.value) is NestedTransactionError
    assert caught.value.fields == {"store": cave.name, "backend": backend}


@pytest.mark.claim("T-226")
async def test_independent_callers_are_not_flagged(cave: Store) -> None:
    """Sibling tasks started outside any block are in blocks at the same time."""
    meet = asyncio.Barrier(3)
    for number in range(3):
        await cave.create_session(f"s{number}")

    async def work(number: int) -> None:
        async with cave.transaction() as tx:
            await soon(meet.wait())
            await tx.records.put(f"s{number}", "notes", "k", 1)
            await soon(meet.wait())

    await asyncio.gather(*map(work, range(3)))
    assert [len(await cave.records.list(f"s{number}", "notes")) for number in range(3)] == [1, 1, 1]


@pytest.mark.claim("T-227")
async def test_the_store_recovers_from_a_refusal_that_undid_the_outer_block(cave: Store) -> None:
    """The next transaction commits."""
    with pytest.raises(NestedTransactionError):
        async with cave.transaction() as tx:
            await tx.touch("s:cave")
            cave.transaction()
    async with cave.transaction() as tx:
        await soon(tx.records.put(*WHERE, "k", 1))
    assert await _keys(cave) == ["k"]


@pytest.mark.claim("T-230")
async def test_a_refusal_that_is_caught_leaves_the_outer_block(cave: Store) -> None:
    """It lands what it wrote before and after."""
    async with cave.transaction() as tx:
        await tx.records.put(*WHERE, "a", 1)
        with pytest.raises(NestedTransactionError):
            cave.transaction()
        await tx.records.put(*WHERE, "b", 1)
    assert await _keys(cave) == ["a", "b"]


@pytest.mark.claim("T-228", "T-603")
async def test_two_stores_over_one_database_share_the_guard(cave: Store, url: str) -> None:
    """Opened twice, they are one engine: nesting and root writes through the other one are refused, nothing hangs."""
    async with turnkeeper.open(url) as other:
        async with cave.transaction() as tx:
            await tx.touch("s:cave")
            with pytest.raises(NestedTransactionError):
                other.transaction()
            with pytest.raises(turnkeeper.RootStoreWriteInTransactionError):
                await soon(other.records.put(*WHERE, "other", 1))
            await tx.records.put(*WHERE, "own", 1)
        await soon(other.records.put(*WHERE, "after", 1))
    assert await _keys(cave) == ["after", "own"]


@pytest.mark.claim("T-228")
@pytest.mark.parametrize("backend", ["sqlite"])
async def test_another_name_of_the_same_file_is_the_same_database(cave: Store, url: str, tmp_path: Path) -> None:
    """A relative path and a link lead to one engine."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path, target_is_directory=True)
    async with turnkeeper.open(link / Path(url).name) as other, cave.transaction():
        with pytest.raises(NestedTransactionError):
            other.transaction()


@pytest.mark.claim("T-603")
async def test_two_stores_over_one_database_share_their_line(cave: Store, url: str) -> None:
    """Whoever touches a root through either of them waits for the other, so nobody loses a race."""
    runs = []
    async with turnkeeper.open(url) as other:

        async def counts_up(tx: turnkeeper.Tx) -> None:
            runs.append(1)
            await tx.touch("s:cave")
            found = await tx.records.get(*WHERE, "n")
            await asyncio.sleep(0)
            await tx.records.put(*WHERE, "n", 1 if found is None else found.body + 1)

        await soon(asyncio.gather(*((cave, other)[n % 2].transact(counts_up) for n in range(20))))
    assert (len(runs), (await cave.records.get(*WHERE, "n")).body) == (20, 20)


@pytest.mark.claim("T-603")
async def test_a_transaction_of_an_unrelated_store_may_open_inside_a_block(
    cave: Store, backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It lands by itself, whatever becomes of the outer one."""
    (tmp_path / "elsewhere").mkdir()
    unrelated = databases.fresh(backend, tmp_path / "elsewhere", lambda: request.getfixturevalue("postgres"))
    async with turnkeeper.open(unrelated) as other:
        await other.create_session("cave")
        with pytest.raises(Stop):
            async with cave.transaction() as outer:
                await outer.records.put(*WHERE, "outer", 1)
                async with other.transaction() as inner:
                    await inner.records.put(*WHERE, "inner", 1)
                    with pytest.raises(NestedTransactionError):
                        cave.transaction()
                raise Stop
        assert (await _keys(cave), await _keys(other)) == ([], ["inner"])
