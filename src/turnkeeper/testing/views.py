"""Contract: reads of one committed state, however long they take and whatever lands meanwhile; and being told of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from msgspec.structs import replace

from ..errors import Misuse
from ..store.backend import Get, Scan
from ..store.reading import Rows
from ..store.transaction import Transaction
from .house import House, Waist, a_while, elsewhere, soon
from .tables import BOOKS, LOANS, NOTES, SHELVES, Book, Loan, Note, Shelf


async def _seen(rows: Rows) -> list[object]:
    """Answer everything a reader can see, in every kind of read."""
    return [
        await rows.get(BOOKS, "a", 1),
        await rows.get(SHELVES, "new"),
        await rows.scan(BOOKS, "a"),
        await rows.scan(BOOKS, "a", order="by_code", reverse=True),
        await rows.scan(BOOKS, order="everywhere"),
        await rows.scan(NOTES),
        await rows.count(LOANS, "a"),
        await rows.size(BOOKS, "a"),
    ]


async def _change(waist: Waist) -> None:
    """Land every kind of write, one landing each."""
    async with waist.transaction() as tx:
        await tx.update(Book("a", 1, "moved", 5.0, b"zz", parts=[1, 2]), expect={})
    async with waist.transaction() as tx:
        await tx.delete(BOOKS, "a", 2)
    await waist.add(Book("a", 9), Note("t", 1), Loan("a", 1, 1), Shelf("new"))
    async with waist.transaction() as tx:
        await tx.drop_root("s:b")


class Views:
    """One committed state."""

    async def test_a_view_stays_while_others_land(self, house: House) -> None:
        """Over its own connection and over another one: inserts, updates, deletes, drops."""
        waist, other = await house.library("a", "b", books=[1, 2, 3]), await house.waist()
        async with waist.read_view() as view:
            before = await _seen(view)
            await soon(_change(other))
            assert await _seen(view) == before
            await soon(_change_again(waist))
            assert await _seen(view) == before
        async with waist.read_view() as view:
            assert await _seen(view) != before

    async def test_a_view_begins_when_it_is_opened(self, house: House) -> None:
        """Not at its first read."""
        waist, other = await house.library("a", "b", books=[1, 2, 3]), await house.waist()
        async with waist.read_view() as view, waist.read_view() as twin:
            before = await _seen(twin)
            await _change(other)
            assert await _seen(view) == before

    async def test_views_of_different_times_stand_side_by_side(self, house: House) -> None:
        """Each sees its own, whichever ends first."""
        waist = await house.library("a", books=[1])
        async with waist.read_view() as first:
            await waist.add(Book("a", 2))
            async with waist.read_view() as second:
                await waist.add(Book("a", 3))
                async with waist.read_view() as third:
                    async with waist.transaction() as tx:
                        await tx.delete(BOOKS, "a", 1)
                    assert [await view.count(BOOKS, "a") for view in (first, second, third)] == [1, 2, 3]
                assert [await view.count(BOOKS, "a") for view in (first, second)] == [1, 2]
            await waist.add(Book("a", 4))
            assert [book.book_no for book in await first.scan(BOOKS, "a")] == [1]
        assert [book.book_no for book in await waist.scan(BOOKS, "a")] == [2, 3, 4]

    async def test_a_view_outlives_the_root_it_reads(self, house: House) -> None:
        """Dropped, and made again under the same id."""
        waist = await house.library("a", books=[1, 2])
        async with waist.read_view() as view:
            async with waist.transaction() as tx:
                await tx.drop_root("s:a")
            await waist.shelf("a", books=[7])
            assert [book.book_no for book in await view.scan(BOOKS, "a")] == [1, 2]
        assert [book.book_no for book in await waist.scan(BOOKS, "a")] == [7]

    async def test_a_view_holds_up_no_landing_and_no_other_view(self, house: House) -> None:
        """It blocks nobody, and is blocked by nobody."""
        waist = await house.library("a", books=[1])
        async with waist.read_view() as view, waist.transaction() as tx:
            await tx.touch("s:a")
            assert await soon(view.count(BOOKS, "a")) == 1
            await soon(elsewhere(waist.add(Note("t", 1))))
            async with waist.read_view() as other:
                assert await soon(other.count(NOTES)) == 1
            await tx.insert(Book("a", 2))
        assert len(await waist.scan(BOOKS)) == 2

    async def test_a_view_inside_a_block_sees_what_is_committed(self, house: House) -> None:
        """None of the block's own writes."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            await tx.insert(Book("a", 2))
            async with waist.read_view() as view:
                assert await view.count(BOOKS, "a") == 1
            assert await tx.count(BOOKS, "a") == 2

    async def test_a_view_is_over_when_its_block_ends(self, house: House) -> None:
        """A late read is an error, not an answer from some other state."""
        waist = await house.library("a", books=[1])
        async with waist.read_view() as view:
            await view.get(BOOKS, "a", 1)
        with pytest.raises(Misuse):
            await view.get(BOOKS, "a", 1)
        with pytest.raises(Misuse):
            await view.scan(BOOKS)

    async def test_a_long_scan_of_a_view_sees_one_state(self, house: House) -> None:
        """Thousands of rows, while others delete and add."""
        waist, other = await house.waist(), await house.waist()
        await waist.add(*(Note("t", place) for place in range(3_000)))
        async with waist.read_view() as view:
            task = asyncio.create_task(view.scan(NOTES, "t"))
            async with other.transaction() as tx:
                for place in range(0, 3_000, 7):
                    await tx.delete(NOTES, "t", place)
                await tx.insert(Note("t", 5_000))
            assert len(await soon(task)) == 3_000
            assert await view.count(NOTES, "t") == 3_000

    async def test_one_fetch_is_answered_from_one_state(self, house: House) -> None:
        """Gets and scans of two roots that always move together, while they do."""
        waist, other = await house.library("a", "b"), await house.waist()
        moving = asyncio.create_task(_moves_together(other, 40))
        while not moving.done():
            async with waist.transaction() as tx:
                first, second, books = await tx.fetch(
                    None, Get(SHELVES, ("a",)), Get(SHELVES, ("b",)), Scan(BOOKS, prefix=("b",))
                )
            assert first.books == second.books == len(books)
            await asyncio.sleep(0)
        await moving

    async def test_a_look_sees_one_state_over_several_reads(self, house: House) -> None:
        """Also when something landed between two of them."""
        waist, other = await house.library("a", "b"), await house.waist()

        async def reads(rows: Rows) -> tuple[int, int, int]:
            first = await rows.get(SHELVES, "a")
            await asyncio.sleep(0)
            second = await rows.get(SHELVES, "b")
            await asyncio.sleep(0)
            assert first is not None
            assert second is not None
            return first.books, second.books, await rows.count(BOOKS, "b")

        moving = asyncio.create_task(_moves_together(other, 40))
        while not moving.done():
            for one_view in (False, True):
                first, second, third = await waist.look(reads, one_view=one_view)
                assert first == second == third
        await moving

    async def test_a_look_across_roots_sees_one_state(self, house: House) -> None:
        """A listing, then the rows it names."""
        waist, other = await house.library("a", "b"), await house.waist()

        async def reads(rows: Rows) -> tuple[int, set[int]]:
            shelves = await rows.scan(SHELVES)
            await asyncio.sleep(0)
            return await rows.count(BOOKS), {shelf.books for shelf in shelves}

        moving = asyncio.create_task(_moves_together(other, 40))
        while not moving.done():
            books, counts = await waist.look(reads)
            assert counts == {books}
        await moving

    async def test_a_look_inside_a_block_sees_what_is_committed(self, house: House) -> None:
        """Root reads are never of the open transaction."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            await tx.delete(BOOKS, "a", 1)
            assert await waist.get(BOOKS, "a", 1) is not None
        assert await waist.get(BOOKS, "a", 1) is None

    async def test_a_look_sees_every_landing_that_was_answered_before_it(self, house: House) -> None:
        """Over either connection, a hundred times."""
        waist, other = await house.waist(), await house.waist()
        for place in range(100):
            await (waist, other)[place % 2].add(Note("t", place))
            for reader in (waist, other):
                assert await reader.look(lambda rows: rows.count(NOTES, "t")) == place + 1

    async def test_a_landing_is_seen_whole_or_not_at_all(self, house: House) -> None:
        """By a reader that never rests."""
        waist, other = await house.library("a", "b"), await house.waist()
        moving = asyncio.create_task(_moves_together(other, 40))
        while not moving.done():
            async with waist.read_view() as view:
                counts = {shelf.books for shelf in await view.scan(SHELVES)}
                assert counts == {await view.count(BOOKS)}
            await asyncio.sleep(0)
        await moving

    async def test_a_cancelled_read_leaves_nothing_behind(self, house: House) -> None:
        """Whoever reads next sees the newest state, not the one the cancelled reader was in."""
        waist, cancelled = await house.waist(), []
        await waist.add(*(Note("t", place) for place in range(3_000)))
        for turns in range(6):
            task = asyncio.create_task(waist.scan(NOTES, "t"))
            await a_while(turns)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            cancelled.append(task)  # whoever keeps it keeps its traceback, too
            await waist.add(Note("u", turns))
            assert await waist.look(lambda rows: rows.count(NOTES, "u")) == turns + 1
        async with waist.transaction() as tx:
            assert await tx.count(NOTES, "t") == 3_000

    async def test_waiting_ends_when_something_lands(self, house: House) -> None:
        """Over the same connection, and over another one."""
        waist, other = await house.waist(), await house.waist()
        for place, writer in enumerate((waist, other)):
            seen = await waist.engine.backend.watch(-1, 0)
            waiting = asyncio.create_task(waist.engine.backend.watch(seen, 20))
            await a_while()
            assert not waiting.done()
            async with writer.transaction() as tx:
                await tx.insert(Note("t", place))
            assert await soon(waiting) == tx.commit_seq

    async def test_waiting_for_what_has_landed_already_ends_at_once(self, house: House) -> None:
        """Nothing is missed between two waits."""
        waist = await house.waist()
        seen = await waist.engine.backend.watch(-1, 0)
        async with waist.transaction() as tx:
            await tx.insert(Note("t", 1))
        assert await soon(waist.engine.backend.watch(seen, 20)) == tx.commit_seq

    async def test_waiting_ends_when_the_time_is_up(self, house: House) -> None:
        """With the sequence it began at."""
        waist = await house.library("a")
        seen = await waist.engine.backend.watch(-1, 0)
        assert await soon(waist.engine.backend.watch(seen, 0.02)) == seen


async def _change_again(waist: Waist) -> None:
    async with waist.transaction() as tx:
        await tx.update(Book("a", 3, "again"), expect={})
        await tx.delete(NOTES, "t", 1)
        await tx.drop_root("s:new")


async def _moves_together(waist: Waist, times: int) -> None:
    """Raise the counts of two shelves together, with a book on one of them."""

    async def body(tx: Transaction) -> None:
        await tx.touch("s:a", "s:b")
        for shelf_id in "ab":
            shelf = await tx.get(SHELVES, shelf_id)
            assert shelf is not None
            await tx.update(replace(shelf, books=shelf.books + 1), expect=shelf)
        await tx.insert(Book("b", await tx.count(BOOKS, "b")))

    for time in range(times):
        await waist.transact(body)
        await a_while(1 + time % 7)  # so that it does not keep step with its readers
