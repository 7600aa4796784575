"""Contract: a savepoint that fails undoes its own writes and nothing else, at any depth, on every backend alike."""

from __future__ import annotations

import asyncio

import pytest

from ..errors import Duplicate
from ..store.transaction import Transaction
from .house import House
from .tables import BOOKS, CARDS, NOTES, SHELVES, Book, Card, Note, Shelf


class Stop(Exception):
    """An error of the test's own."""


async def _places(tx: Transaction) -> list[int]:
    return [note.place for note in await tx.scan(NOTES, "t")]


class Savepoints:
    """Parts that may fail alone."""

    async def test_a_failing_savepoint_undoes_its_writes_only(self, house: House) -> None:
        """What was written before and after it lands."""
        waist = await house.waist()
        async with waist.transaction() as tx:
            await tx.insert(Note("t", 1))
            with pytest.raises(Stop):
                async with tx.savepoint():
                    await tx.insert(Note("t", 2))
                    raise Stop
            await tx.insert(Note("t", 3))
        assert [note.place for note in await waist.scan(NOTES, "t")] == [1, 3]

    async def test_the_error_of_a_savepoint_goes_on_as_it_was(self, house: House) -> None:
        """The very same object; uncaught it undoes the whole block."""
        waist, stop = await house.waist(), Stop("now")
        with pytest.raises(Stop) as caught:
            async with waist.transaction() as tx:
                await tx.insert(Note("t", 1))
                async with tx.savepoint():
                    raise stop
        assert caught.value is stop
        assert (tx.outcome, await waist.scan(NOTES)) == ("rolled back", [])

    async def test_a_savepoint_that_ends_well_shares_the_fate_of_its_block(self, house: House) -> None:
        """It lands nothing by itself."""
        waist = await house.waist()
        with pytest.raises(Stop):
            async with waist.transaction() as tx:
                async with tx.savepoint():
                    await tx.insert(Note("t", 1))
                assert await waist.scan(NOTES) == []
                raise Stop
        assert await waist.scan(NOTES) == []

    async def test_reads_after_a_failed_savepoint_answer_as_before_it(self, house: House) -> None:
        """Gets, scans in every order, counts: for rows it inserted, changed, moved and deleted."""
        waist = await house.library("a", books=[1, 2, 3])

        async def reads(tx: Transaction) -> list[object]:
            orders = [await tx.scan(BOOKS, "a", order=order) for order in ("key", "by_code", "by_weight")]
            return [
                *orders,
                await tx.scan(BOOKS, order="everywhere"),
                await tx.count(BOOKS, "a"),
                await tx.size(BOOKS, "a"),
            ]

        async with waist.transaction() as tx:
            await tx.update(Book("a", 1, "own"), expect={})
            before = await reads(tx)
            with pytest.raises(Stop):
                async with tx.savepoint():
                    await tx.insert(Book("a", 4, "c0"))
                    await tx.update(Book("a", 1, "zz", 7.0), expect={})
                    await tx.update(Book("a", 2, "aa", parts=[1]), expect={})
                    await tx.delete(BOOKS, "a", 3)
                    assert await reads(tx) != before
                    raise Stop
            assert await reads(tx) == before
        assert [book.code for book in await waist.scan(BOOKS, "a")] == ["own", "c2", "c3"]

    async def test_an_inner_failure_leaves_the_outer_savepoint(self, house: House) -> None:
        """Each level stands alone."""
        waist = await house.waist()
        async with waist.transaction() as tx:
            async with tx.savepoint():
                await tx.insert(Note("t", 1))
                with pytest.raises(Stop):
                    async with tx.savepoint():
                        await tx.insert(Note("t", 2))
                        raise Stop
                await tx.insert(Note("t", 3))
        assert [note.place for note in await waist.scan(NOTES, "t")] == [1, 3]

    async def test_an_outer_failure_takes_the_inner_savepoint_with_it(self, house: House) -> None:
        """Though that one had ended well."""
        waist = await house.waist()
        async with waist.transaction() as tx:
            await tx.insert(Note("t", 0))
            with pytest.raises(Stop):
                async with tx.savepoint():
                    await tx.insert(Note("t", 1))
                    async with tx.savepoint():
                        await tx.insert(Note("t", 2))
                    raise Stop
            assert await _places(tx) == [0]
        assert [note.place for note in await waist.scan(NOTES, "t")] == [0]

    async def test_the_middle_of_three_levels_fails_alone(self, house: House) -> None:
        """With updates of one row at every level."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            async with tx.savepoint():
                await tx.update(Book("a", 1, "first"), expect={})
                with pytest.raises(Stop):
                    async with tx.savepoint():
                        await tx.update(Book("a", 1, "second"), expect={"code": "first"})
                        async with tx.savepoint():
                            await tx.update(Book("a", 1, "third"), expect={"code": "second"})
                            await tx.insert(Book("a", 2))
                        raise Stop
                found = await tx.get(BOOKS, "a", 1)
                assert found is not None
                assert found.code == "first"
        assert [book.code for book in await waist.scan(BOOKS, "a")] == ["first"]

    async def test_all_three_levels_may_fail_one_after_another(self, house: House) -> None:
        """The innermost first; then everything is as at the beginning."""
        waist = await house.library("a", books=[1, 2])
        before = await waist.everything()
        async with waist.transaction() as tx:
            with pytest.raises(Stop, match="outer"):
                async with tx.savepoint():
                    await tx.delete(BOOKS, "a", 1)
                    with pytest.raises(Stop, match="middle"):
                        async with tx.savepoint():
                            await tx.insert(Book("a", 1, "again"))
                            with pytest.raises(Stop, match="inner"):
                                async with tx.savepoint():
                                    await tx.drop_root("s:a")
                                    raise Stop("inner")
                            assert [book.code for book in await tx.scan(BOOKS, "a")] == ["again", "c2"]
                            raise Stop("middle")
                    assert [book.book_no for book in await tx.scan(BOOKS, "a")] == [2]
                    raise Stop("outer")
        assert tx.outcome == "nothing to land"
        assert await waist.everything() == before

    async def test_a_dropped_root_comes_back_when_its_savepoint_fails(self, house: House) -> None:
        """With its own writes of before the savepoint, and without those made after the drop."""
        waist = await house.library("a", books=[1, 2])
        async with waist.transaction() as tx:
            await tx.update(Book("a", 1, "own"), expect={})
            await tx.insert(Book("a", 3))
            with pytest.raises(Stop):
                async with tx.savepoint():
                    await tx.drop_root("s:a")
                    await tx.insert_many([Shelf("a", "attic"), Book("a", 9)])
                    raise Stop
            assert [book.code for book in await tx.scan(BOOKS, "a")] == ["own", "c2", "c"]
        assert [book.code for book in await waist.scan(BOOKS, "a")] == ["own", "c2", "c"]
        assert await waist.scan(SHELVES) == [Shelf("a")]

    async def test_a_savepoint_may_be_entered_many_times_in_a_row(self, house: House) -> None:
        """Every second one fails."""
        waist = await house.waist()
        async with waist.transaction() as tx:
            for place in range(50):
                try:
                    async with tx.savepoint():
                        await tx.insert(Note("t", place))
                        if place % 2:
                            raise Stop
                except Stop:
                    pass
        assert [note.place for note in await waist.scan(NOTES, "t")] == list(range(0, 50, 2))

    async def test_savepoints_nest_deeply(self, house: House) -> None:
        """Thirty levels; the failure is in the middle of them."""
        waist = await house.waist()

        async def descend(tx: Transaction, level: int) -> None:
            try:
                async with tx.savepoint():
                    await tx.insert(Note("t", level))
                    if level < 30:
                        await descend(tx, level + 1)
                    if level == 15:
                        raise Stop
            except Stop:
                pass

        async with waist.transaction() as tx:
            await descend(tx, 0)
        assert [note.place for note in await waist.scan(NOTES, "t")] == list(range(15))

    async def test_an_inserted_row_that_is_there_already_is_found_at_the_end_of_a_savepoint(self, house: House) -> None:
        """Where it can be caught; the block goes on and lands."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            with pytest.raises(Duplicate):
                async with tx.savepoint():
                    await tx.insert_many([Book("a", 2), Book("a", 1, "again")])
            assert [book.code for book in await tx.scan(BOOKS, "a")] == ["c1"]
            await tx.insert(Book("a", 3))
        assert [book.book_no for book in await waist.scan(BOOKS, "a")] == [1, 3]

    async def test_a_row_inserted_in_a_failed_savepoint_may_be_inserted_again(self, house: House) -> None:
        """Nobody remembers it."""
        waist = await house.waist()
        async with waist.transaction() as tx:
            for body in ("one", "two", "three"):
                try:
                    async with tx.savepoint():
                        await tx.insert(Note("t", 1, body))
                        if body != "three":
                            raise Stop
                except Stop:
                    pass
        assert await waist.scan(NOTES) == [Note("t", 1, "three")]

    async def test_a_cancelled_savepoint_is_undone_like_a_failed_one(self, house: House) -> None:
        """A time limit around it cancels it; the block goes on."""
        waist = await house.waist()
        async with waist.transaction() as tx:
            await tx.insert(Note("t", 1))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    async with tx.savepoint():
                        await tx.insert(Note("t", 2))
                        await asyncio.sleep(30)
            assert await _places(tx) == [1]
        assert [note.place for note in await waist.scan(NOTES, "t")] == [1]

    async def test_roots_touched_in_a_failed_savepoint_stay_touched(self, house: House) -> None:
        """What was read there may have decided what was written afterwards: the landing rests on it."""
        waist, other = await house.library("a", books=[1]), await house.waist()
        before = await waist.rev("s:a")
        async with waist.transaction() as tx:
            with pytest.raises(Stop):
                async with tx.savepoint():
                    await tx.get(BOOKS, "a", 1)
                    raise Stop
            await tx.insert(Note("t", 1))
            assert tx.rests_on()["s:a"] == before
        assert await other.rev("s:a") == before

    async def test_a_savepoint_yields_the_transaction(self, house: House) -> None:
        """So code that was handed a tx can be handed a savepoint."""
        waist = await house.waist()
        async with waist.transaction() as tx:
            async with tx.savepoint() as part:
                await part.insert(Card("one", "1"))
                assert await tx.get(CARDS, "one") == await part.get(CARDS, "one") == Card("one", "1")
        assert len(await waist.scan(CARDS)) == 1
