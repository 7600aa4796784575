"""Claims of the area T savepoints: a part that fails alone, at any depth, on every backend alike (decision 45)."""

from __future__ import annotations

import asyncio

import pytest

from turnkeeper import Duplicate, Store, Tx
from turnkeeper.testing import Connect, House
from turnkeeper.testing.tables import BOOKS, CARDS, NOTES, Book, Card, Note

WHERE = ("cave", "notes")


class Stop(Exception):
    """An error of the test's own."""


@pytest.fixture
async def cave(store: Store) -> Store:
    """Make a session to write in."""
    await store.create_session("cave")
    return store


async def _keys(scope: Store | Tx) -> list[str]:
    return [record.key for record in await scope.records.list(*WHERE)]


@pytest.mark.claim("T-027", "T-031")
async def test_a_failing_savepoint_undoes_its_own_writes_and_raises_on(cave: Store) -> None:
    """What was written before and after it lands; the error is the one that was raised."""
    stop = Stop()
    async with cave.transaction() as tx:
        await tx.records.put(*WHERE, "a", 1)
        with pytest.raises(Stop) as caught:
            async with tx.savepoint() as part:
                await part.records.put(*WHERE, "b", 1)
                raise stop
        await tx.records.put(*WHERE, "c", 1)
    assert caught.value is stop
    assert await _keys(cave) == ["a", "c"]


@pytest.mark.claim("T-027")
async def test_a_cancelled_savepoint_undoes_its_own_writes_as_well(cave: Store) -> None:
    """A time limit ends it; the transaction goes on and lands."""
    async with cave.transaction() as tx:
        await tx.records.put(*WHERE, "a", 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), tx.savepoint():
                await tx.records.put(*WHERE, "b", 1)
                await asyncio.sleep(60)
        await tx.records.put(*WHERE, "c", 1)
    assert await _keys(cave) == ["a", "c"]


@pytest.mark.claim("T-031")
async def test_every_bundled_backend_has_savepoints(cave: Store) -> None:
    """In the scope of its transactions, as an async context manager."""
    async with cave.transaction() as tx:
        opened = tx.savepoint()
        assert hasattr(opened, "__aenter__")
        async with opened:
            await tx.records.put(*WHERE, "a", 1)
    assert await _keys(cave) == ["a"]


@pytest.mark.claim("T-028")
async def test_writes_of_a_good_savepoint_vanish_with_their_transaction(cave: Store) -> None:
    """It lands nothing by itself."""
    with pytest.raises(Stop):
        async with cave.transaction() as tx:
            async with tx.savepoint():
                await tx.records.put(*WHERE, "a", 1)
            assert await _keys(tx) == ["a"]
            raise Stop
    assert await _keys(cave) == []


@pytest.mark.claim("T-029")
async def test_reads_after_a_failed_savepoint_answer_as_before_it(cave: Store) -> None:
    """A changed record, a new one, a deleted one, messages and state, another session that was deleted."""
    await (await cave.create_session("other")).append("user", "Still here?")
    await cave.records.put(*WHERE, "k", "before")
    await cave.records.put(*WHERE, "kept", 1)
    session = await cave.session("cave")
    await session.append("user", "Hello?")

    async def readings(tx: Tx) -> list[object]:
        inside = await tx.session("cave")
        other = [await (await tx.session("other")).messages(), await tx.sessions()] if await tx.sessions() else []
        return [
            await tx.records.list(*WHERE),
            await inside.messages(),
            await inside.state(),
            await inside.takes(),
            other,
        ]

    async with cave.transaction() as tx:
        before = await readings(tx)
        with pytest.raises(Stop):
            async with tx.savepoint():
                await tx.records.put(*WHERE, "k", "inside")
                await tx.records.put(*WHERE, "new", 1)
                await tx.records.delete(*WHERE, "kept")
                await (await tx.session("other")).append("user", "No.")
                await (await tx.session("cave")).append("user", "Anybody?")
                await (await tx.session("cave")).fork(at=0, activate=True)
                assert await readings(tx) != before
                await (await tx.session("other")).delete()
                raise Stop
        assert await readings(tx) == before
    assert [message.text for message in await (await cave.session("other")).messages()] == ["Still here?"]


@pytest.mark.claim("T-030")
async def test_each_level_rolls_back_independently(cave: Store) -> None:
    """The inner one alone; and the outer one with the inner, which had ended well."""
    async with cave.transaction() as tx:
        async with tx.savepoint():
            await tx.records.put(*WHERE, "outer", 1)
            with pytest.raises(Stop):
                async with tx.savepoint():
                    await tx.records.put(*WHERE, "inner", 1)
                    raise Stop
        with pytest.raises(Stop):
            async with tx.savepoint():
                await tx.records.put(*WHERE, "outer again", 1)
                async with tx.savepoint():
                    await tx.records.put(*WHERE, "inner again", 1)
                raise Stop
        await tx.records.put(*WHERE, "end", 1)
    assert await _keys(cave) == ["end", "outer"]


@pytest.mark.claim("T-032", "T-033", "T-035")
@pytest.mark.parametrize("failing", range(3))
async def test_three_levels_leave_rows_and_reads_as_before(cave: Store, failing: int) -> None:
    """Whichever of them fails: the same collection is written at each, and nothing else is touched (decision 45)."""
    await cave.records.put(*WHERE, "kept", "before")

    async def level(tx: Tx, depth: int) -> None:
        before = await tx.records.list(*WHERE)
        try:
            async with tx.savepoint():
                await tx.records.put(*WHERE, f"level{depth}", depth)
                await tx.records.put(*WHERE, "kept", depth)
                if depth < 2:
                    await level(tx, depth + 1)
                if depth == failing:
                    raise Stop
        except Stop:
            assert await tx.records.list(*WHERE) == before

    async with cave.transaction() as tx:
        await level(tx, 0)
    assert await _keys(cave) == sorted(["kept", *(f"level{depth}" for depth in range(failing))])
    assert (await cave.records.get(*WHERE, "kept")).body == (failing - 1 if failing else "before")


@pytest.mark.claim("T-032", "T-033", "T-035")
async def test_the_middle_of_three_levels_fails_and_level_one_stays_exactly(connect: Connect) -> None:
    """Row by row, in every order, with an untouched root as it was."""
    house = House(connect)
    waist = await house.library("a", "b", books=[1, 2])
    untouched = await waist.rev("s:b")
    async with waist.transaction() as tx:
        async with tx.savepoint():
            await tx.update(Book("a", 1, "level one"), expect={})
            scans = [await tx.scan(BOOKS, "a", order=order) for order in ("key", "by_code", "by_weight", "by_mark")]
            with pytest.raises(Stop):
                async with tx.savepoint():
                    await tx.update(Book("a", 1, "level two"), expect={"code": "level one"})
                    await tx.delete(BOOKS, "a", 2)
                    async with tx.savepoint():
                        await tx.insert(Book("a", 3, "level three"))
                        await tx.update(Book("a", 1, "level three"), expect={"code": "level two"})
                    raise Stop
            orders = ("key", "by_code", "by_weight", "by_mark")
            assert [await tx.scan(BOOKS, "a", order=order) for order in orders] == scans
    assert [book.code for book in await waist.scan(BOOKS, "a")] == ["level one", "c2"]
    assert await waist.rev("s:b") == untouched
    await house.close()


@pytest.mark.claim("T-034")
async def test_a_violation_caught_by_a_savepoint_leaves_the_transaction_usable(connect: Connect) -> None:
    """Of a unique value and of a key: the later write is stored."""
    house = House(connect)
    waist = await house.waist()
    await waist.add(Card("one", "7", "x"), Note("t", 1))
    async with waist.transaction() as tx:
        for taken in (Card("two", "7", "y"), Note("t", 1)):
            with pytest.raises(Duplicate):
                async with tx.savepoint():
                    await tx.insert(taken)
            assert len(await tx.scan(CARDS)) == len(await tx.scan(NOTES)) == 1
        await tx.insert(Note("t", 2))
    assert [note.place for note in await waist.scan(NOTES)] == [1, 2]
    await house.close()
