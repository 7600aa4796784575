"""Contract: transactions side by side. No write is lost, nobody decides on what has moved, and lines are kept in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from unittest import mock

import pytest
from msgspec.structs import replace

from ..errors import Conflict, NotFound
from ..store import engine as engine_module
from ..store.roots import Lines
from ..store.transaction import Transaction
from .house import House, Waist, a_while, elsewhere, rests, soon
from .tables import BOOKS, CARDS, LOANS, NOTES, SHELVES, Book, Card, Loan, Note, Shelf


class Stop(Exception):
    """An error of the test's own."""


def _counts_up(shelf_id: str = "a", *, touch: bool = True) -> Callable[[Transaction], Awaitable[int]]:
    """Make a body that adds one to a shelf's number of books, and one book."""

    async def body(tx: Transaction) -> int:
        if touch:
            await tx.touch(f"s:{shelf_id}")
        shelf = await tx.get(SHELVES, shelf_id)
        assert shelf is not None
        await asyncio.sleep(0)
        await tx.update(replace(shelf, books=shelf.books + 1), expect=shelf)
        await tx.insert(Book(shelf_id, shelf.books))
        return shelf.books

    return body


async def _books(waist: Waist, shelf_id: str = "a") -> int:
    shelf = await waist.get(SHELVES, shelf_id)
    assert shelf is not None
    assert len(await waist.scan(BOOKS, shelf_id)) == shelf.books
    return shelf.books


class Races:
    """Transactions side by side."""

    async def test_two_transactions_at_once_both_keep_their_writes(self, house: House) -> None:
        """Interleaved at every await, on roots of their own."""
        waist = await house.library("a", "b")
        meet = asyncio.Barrier(2)

        async def work(shelf_id: str) -> None:
            async with waist.transaction() as tx:
                await tx.touch(f"s:{shelf_id}")
                await soon(meet.wait())
                await tx.insert(Book(shelf_id, 1))
                await soon(meet.wait())
                await tx.insert(Book(shelf_id, 2))
                await soon(meet.wait())

        await asyncio.gather(work("a"), work("b"))
        assert [(b.shelf_id, b.book_no) for b in await waist.scan(BOOKS)] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]

    async def test_of_two_transactions_at_once_only_the_failing_one_is_undone(self, house: House) -> None:
        """Whichever ends first."""
        waist = await house.library("a", "b")
        for fails_first in (True, False):
            failed, landed = asyncio.Event(), asyncio.Event()

            async def fails(first: bool, failed: asyncio.Event, landed: asyncio.Event) -> None:
                with pytest.raises(Stop):
                    async with waist.transaction() as tx:
                        await tx.insert(Book("a", 1))
                        if not first:
                            await soon(landed.wait())
                        raise Stop
                failed.set()

            async def lands(first: bool, failed: asyncio.Event, landed: asyncio.Event) -> None:
                async with waist.transaction() as tx:
                    await tx.insert(Book("b", int(first)))
                    if first:
                        await soon(failed.wait())
                landed.set()

            await asyncio.gather(*(work(fails_first, failed, landed) for work in (fails, lands)))
        assert [(book.shelf_id, book.book_no) for book in await waist.scan(BOOKS)] == [("b", 0), ("b", 1)]

    async def test_a_decision_on_a_row_that_moved_is_refused(self, house: House) -> None:
        """Nothing of it is kept; the error names the root and may be retried."""
        waist, other = await house.library("a", books=[1]), await house.waist()
        with pytest.raises(Conflict) as caught:
            async with waist.transaction() as tx:
                book = await tx.get(BOOKS, "a", 1)
                assert book is not None
                async with other.transaction() as faster:
                    await faster.update(replace(book, title="theirs"), expect=book)
                await tx.update(replace(book, title="ours"), expect=book)
                await tx.insert(Note("t", 1))
        assert (caught.value.fields["root"], caught.value.retryable, tx.outcome) == ("s:a", True, "rolled back")
        assert [book.title for book in await waist.scan(BOOKS)] == ["theirs"]
        assert await waist.scan(NOTES) == []

    async def test_a_decision_on_a_root_that_moved_is_refused(self, house: House) -> None:
        """Touched, though nothing was read or written in it; whatever row of it moved."""
        waist, other = await house.library("a", books=[1]), await house.waist()
        with pytest.raises(Conflict):
            async with waist.transaction() as tx:
                await tx.touch("s:a")
                await other.add(Loan("a", 1, 1))
                await tx.insert(Note("t", 1))
        assert await waist.scan(NOTES) == []

    async def test_every_read_of_a_root_makes_the_landing_rest_on_it(self, house: House) -> None:
        """Also one that found nothing: a get, a scan, a count, a size."""
        waist, other = await house.library("a", books=[1]), await house.waist()
        reads: list[Callable[[Transaction], Awaitable[object]]] = [
            lambda tx: tx.get(LOANS, "a", 9, 9),
            lambda tx: tx.scan(LOANS, "a"),
            lambda tx: tx.scan(BOOKS, "a", order="by_code", limit=0),
            lambda tx: tx.count(LOANS, "a", 9),
            lambda tx: tx.size(LOANS, "a"),
        ]
        for number, read in enumerate(reads):
            with pytest.raises(Conflict):
                async with waist.transaction() as tx:
                    await read(tx)
                    await other.add(Book("a", 100 + number))
                    await tx.insert(Note("t", number))
        assert await waist.scan(NOTES) == []

    async def test_a_write_without_a_read_rests_on_its_root_as_well(self, house: House) -> None:
        """No write is blind."""
        waist, other = await house.library("a"), await house.waist()
        with pytest.raises(Conflict):
            async with waist.transaction() as tx:
                await tx.insert(Book("a", 1))
                await other.add(Book("a", 2))
        assert [book.book_no for book in await waist.scan(BOOKS)] == [2]

    async def test_a_decision_on_an_absent_root_is_refused_once_it_is_there(self, house: House) -> None:
        """With a head and without one."""
        waist, other = await house.waist(), await house.waist()
        for root, record in (("s:new", Shelf("new")), ("n:new", Note("new", 1))):
            with pytest.raises(Conflict):
                async with waist.transaction() as tx:
                    await tx.touch(root)
                    await other.add(record)
                    await tx.insert(Card(root, root))
        assert await waist.scan(CARDS) == []

    async def test_a_decision_on_a_former_life_of_a_root_is_refused(self, house: House) -> None:
        """Dropped and made again, it is another one, though it reads the same."""
        waist, other = await house.library("a"), await house.waist()
        await waist.add(Note("t", 1))
        for root, again in (("s:a", Shelf("a")), ("n:t", Note("t", 1))):
            with pytest.raises(Conflict):
                async with waist.transaction() as tx:
                    await tx.touch(root)
                    async with other.transaction() as faster:
                        await faster.drop_root(root)
                    await other.add(again)
                    await tx.insert(Card(root, root))
        assert await waist.scan(CARDS) == []

    async def test_an_insert_loses_against_a_drop_of_its_root(self, house: House) -> None:
        """No row is left under a root that is gone."""
        waist, other = await house.library("a", books=[1]), await house.waist()
        with pytest.raises(Conflict):
            async with waist.transaction() as tx:
                await tx.insert(Book("a", 2))
                async with other.transaction() as faster:
                    await faster.drop_root("s:a")
        assert await waist.scan(BOOKS) == []

    async def test_two_decisions_on_each_others_root_never_both_land(self, house: House) -> None:
        """Each reads what the other writes: landing at the same time, one of them is refused."""
        waist, other = await house.library("a", "b"), await house.waist()
        for number in range(15):
            meet = asyncio.Barrier(2)

            async def swap(house_side: Waist, reads: str, writes: str, number: int, meet: asyncio.Barrier) -> bool:
                try:
                    async with house_side.transaction() as tx:
                        await tx.scan(BOOKS, reads)
                        await tx.insert(Book(writes, number))
                        await soon(meet.wait())
                except Conflict:
                    return False
                return True

            won = await asyncio.gather(swap(waist, "a", "b", number, meet), swap(other, "b", "a", number, meet))
            assert sum(won) <= 1, number

    async def test_of_many_landings_on_one_state_exactly_one_wins(self, house: House) -> None:
        """However they wait for each other, over two connections."""
        waist, other = await house.library("a"), await house.waist()
        for number in range(8):
            meet = asyncio.Barrier(6)

            async def lands(side: Waist, me: int, number: int, meet: asyncio.Barrier) -> bool:
                try:
                    async with side.transaction() as tx:
                        await tx.get(SHELVES, "a")
                        await tx.insert(Book("a", number, code=str(me)))
                        await soon(meet.wait())
                except (Conflict, ValueError):
                    return False
                return True

            sides = [waist, other] * 3
            won = await asyncio.gather(*(lands(side, me, number, meet) for me, side in enumerate(sides)))
            assert sum(won) == 1, number
            book = await waist.get(BOOKS, "a", number)
            assert book is not None
            assert book.code == str(won.index(True))

    async def test_a_landing_that_is_refused_takes_no_neighbour_with_it(self, house: House) -> None:
        """Thirty at once, every third doomed by another row, every fifth by a moved root."""
        waist, other = await house.library("z", books=[1]), await house.waist()
        meet = asyncio.Barrier(31)

        async def lands(number: int) -> str:
            try:
                async with waist.transaction() as tx:
                    await tx.insert_many([Shelf(f"s{number}"), Note(f"t{number}", 1)])
                    if not number % 3:
                        await tx.insert(Card(f"c{number}", "same"))
                    if not number % 5:
                        await tx.get(SHELVES, "z")
                    await soon(meet.wait())
                    await soon(meet.wait())
            except (Conflict, ValueError) as error:
                return type(error).__name__
            return "landed"

        async def moves() -> None:
            await soon(meet.wait())
            await other.add(Card("taken", "same"), Book("z", 2))
            await soon(meet.wait())

        *answers, _ = await asyncio.gather(*(lands(number) for number in range(30)), moves())
        expected = ["Conflict" if not n % 5 else "Duplicate" if not n % 3 else "landed" for n in range(30)]
        assert answers == expected
        there = {shelf.shelf_id for shelf in await waist.scan(SHELVES)}
        assert there == {"z", *(f"s{number}" for number in range(30) if expected[number] == "landed")}

    async def test_a_scan_across_roots_is_checked_by_nothing(self, house: House) -> None:
        """As its docstring says: decide on such rows only after touching their roots."""
        waist, other = await house.library("a", books=[1]), await house.waist()
        async with waist.transaction() as tx:
            assert len(await tx.scan(BOOKS, order="everywhere")) == 1
            await other.add(Book("a", 2))
            await tx.insert(Note("t", 1))
        assert tx.outcome == "landed"

    async def test_a_row_of_a_scan_across_roots_is_read_again_when_its_root_is_touched(self, house: House) -> None:
        """So a decision on it is on the row as it is then."""
        waist, other = await house.library("a", books=[1]), await house.waist()
        async with waist.transaction() as tx:
            (seen,) = await tx.scan(BOOKS, order="everywhere")
            async with other.transaction() as faster:
                await faster.update(replace(seen, title="theirs"), expect={})
            await tx.touch("s:a")
            assert not await tx.update(replace(seen, title="ours"), expect=seen)
            found = await tx.get(BOOKS, "a", 1)
            assert found is not None
            assert await tx.update(replace(found, title=f"{found.title} and ours"), expect=found)
        assert [book.title for book in await waist.scan(BOOKS)] == ["theirs and ours"]

    async def test_a_block_that_only_reads_cannot_conflict(self, house: House) -> None:
        """Whatever moved meanwhile."""
        waist, other = await house.library("a", books=[1]), await house.waist()
        async with waist.transaction() as tx:
            await tx.get(BOOKS, "a", 1)
            await other.add(Book("a", 2))
        assert tx.outcome == "nothing to land"

    async def test_transact_runs_again_when_it_lost(self, house: House) -> None:
        """Until it decides on what is there."""
        waist, other = await house.library("a"), await house.waist()
        runs = []

        async def body(tx: Transaction) -> int:
            shelf = await tx.get(SHELVES, "a")
            assert shelf is not None
            runs.append(shelf.books)
            if len(runs) < 4:
                await other.transact(_counts_up())
            await tx.update(replace(shelf, books=shelf.books + 10), expect=shelf)
            return shelf.books

        assert await soon(waist.transact(body)) == 3
        assert runs == [0, 1, 2, 3]

    async def test_transact_gives_up_in_the_end(self, house: House) -> None:
        """With the conflict, and nothing kept."""
        waist, other = await house.library("a"), await house.waist()
        runs: list[int] = []

        async def body(tx: Transaction) -> None:
            await tx.get(SHELVES, "a")
            runs.append(len(runs))
            await other.add(Book("a", len(runs)))
            await tx.insert(Note("t", 1))

        with mock.patch.object(engine_module, "RETRY_S", 0.05), pytest.raises(Conflict):
            await soon(waist.transact(body))
        assert len(runs) > 1
        assert await waist.scan(NOTES) == []

    async def test_transact_does_not_retry_a_conflict_of_the_bodys_own(self, house: House) -> None:
        """A decision against the caller is no lost race: nothing has moved, so a second run would say the same."""
        waist, runs, started = await house.library("a"), [], time.monotonic()

        async def body(tx: Transaction) -> None:
            runs.append(await tx.get(SHELVES, "a"))
            raise Conflict("The revision is another one.")

        with pytest.raises(Conflict, match="another one"):
            await waist.transact(body)
        assert len(runs) == 1
        assert time.monotonic() - started < 2

    async def test_transact_retries_an_error_of_a_state_that_has_moved(self, house: House) -> None:
        """What the body complains of may not be so any more."""
        waist, other = await house.library("a"), await house.waist()
        runs = []

        async def body(tx: Transaction) -> str:
            book = await tx.get(BOOKS, "a", 1)
            runs.append(book)
            if book is None:
                await other.add(Book("a", 1, "there now"))
                raise NotFound("There is no such book.")
            return book.code

        assert await soon(waist.transact(body)) == "there now"
        assert len(runs) == 2

    async def test_many_writers_of_one_root_lose_no_update(self, house: House) -> None:
        """Forty at once over two connections, each reading before it writes."""
        waist, other = await house.library("a"), await house.waist()
        sides = [waist, other] * 20
        answers = await soon(asyncio.gather(*(side.transact(_counts_up(touch=False)) for side in sides)))
        assert sorted(answers) == list(range(40))
        assert await _books(waist) == 40

    async def test_touching_first_nobody_of_one_process_runs_twice(self, house: House) -> None:
        """They wait for each other instead of losing races."""
        waist, runs = await house.library("a"), []

        async def body(tx: Transaction) -> None:
            runs.append(1)
            await _counts_up()(tx)

        await soon(asyncio.gather(*(waist.transact(body) for _ in range(40))))
        assert (len(runs), await _books(waist)) == (40, 40)

    async def test_a_root_is_given_in_the_order_of_asking(self, house: House) -> None:
        """First come, first served."""
        waist, order = await house.library("a"), []

        async def body(number: int) -> None:
            async with waist.transaction() as tx:
                await tx.touch("s:a")
                order.append(number)
                await asyncio.sleep(0)
                await tx.insert(Book("a", number))

        await soon(asyncio.gather(*(body(number) for number in range(20))))
        assert order == list(range(20))

    async def test_a_root_is_held_until_the_landing_is_done(self, house: House) -> None:
        """The next one reads what the one before has written."""
        waist, seen = await house.library("a"), []

        async def body(number: int) -> None:
            async with waist.transaction() as tx:
                await tx.touch("s:a")
                seen.append(await tx.count(BOOKS, "a"))
                await tx.insert(Book("a", number))

        await soon(asyncio.gather(*(body(number) for number in range(20))))
        assert seen == list(range(20))

    async def test_transactions_on_different_roots_run_side_by_side(self, house: House) -> None:
        """Thirty meet inside their blocks."""
        names = [f"s{number}" for number in range(30)]
        waist = await house.library(*names)
        meet = asyncio.Barrier(len(names))

        async def body(shelf_id: str) -> None:
            async with waist.transaction() as tx:
                await tx.touch(f"s:{shelf_id}")
                await soon(meet.wait())
                await tx.insert(Book(shelf_id, 1))

        await asyncio.gather(*map(body, names))
        assert len(await waist.scan(BOOKS)) == 30

    async def test_touching_a_root_twice_waits_for_nobody(self, house: House) -> None:
        """It is ours already, by a touch or by a read."""
        waist = await house.library("a")
        async with waist.transaction() as tx:
            await tx.get(SHELVES, "a")
            await soon(tx.touch("s:a", "s:a"))
            await soon(tx.touch("s:a"))
            await tx.insert(Book("a", 1))
        assert tx.outcome == "landed"

    async def test_roots_touched_in_any_order_never_lock_each_other_out(self, house: House) -> None:
        """Every pair of six roots in both orders, all at once."""
        names = "abcdef"
        waist = await house.library(*names)

        def body(first: str, second: str) -> Callable[[Transaction], Awaitable[None]]:
            async def both(tx: Transaction) -> None:
                await tx.touch(f"s:{first}")
                await asyncio.sleep(0)
                await tx.touch(f"s:{second}")
                for shelf_id in (first, second):
                    shelf = await tx.get(SHELVES, shelf_id)
                    assert shelf is not None
                    await tx.update(replace(shelf, books=shelf.books + 1), expect=shelf)

            return both

        pairs = [(first, second) for first in names for second in names if first != second]
        await soon(asyncio.gather(*(waist.transact(body(*pair)) for pair in pairs)))
        assert [shelf.books for shelf in await waist.scan(SHELVES)] == [10] * 6

    async def test_a_block_that_sits_on_a_root_is_not_waited_for_for_ever(self, house: House) -> None:
        """Others go on optimistically after a time; whoever lands second is refused."""
        waist = await house.library("a")
        waist.engine.lines = Lines(0.05)
        with pytest.raises(Conflict):
            async with waist.transaction() as tx:
                await tx.touch("s:a")
                await tx.insert(Book("a", 1))
                task = elsewhere(_lands_elsewhere(waist))
                assert not await rests(task, for_s=10)
                await task
        assert [book.book_no for book in await waist.scan(BOOKS)] == [2]

    async def test_touching_waits_while_the_root_is_held(self, house: House) -> None:
        """And reading it does not."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            await tx.touch("s:a")
            task = elsewhere(_lands_elsewhere(waist))
            await a_while()
            assert await rests(task)
            assert await soon(elsewhere(waist.scan(BOOKS))) != []
        await soon(task)
        assert [book.book_no for book in await waist.scan(BOOKS)] == [1, 2]


async def _lands_elsewhere(waist: Waist) -> None:
    async with waist.transaction() as tx:
        await tx.touch("s:a")
        await tx.insert(Book("a", 2))
