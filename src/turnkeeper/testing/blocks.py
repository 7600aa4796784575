"""Contract: a transaction block is whole or nothing, whatever ends it, and says truly what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ..errors import Misuse
from ..store.backend import Get, Scan
from ..store.transaction import Transaction
from .house import House, Waist, a_while, elsewhere, rests, soon
from .tables import BOOKS, CARDS, LOANS, NOTES, SHELVES, Book, Card, Loan, Note, Shelf


class Stop(Exception):
    """An error of the test's own."""


class Halt(BaseException):
    """An error that is no Exception, as a signal or an exit would raise."""


async def _write_everything(tx: Transaction) -> None:
    await tx.insert_many([Shelf("new"), Book("new", 1), Note("t", 1), Card("c", "1", "x"), Book("a", 7)])
    await tx.update(Book("a", 1, "changed", parts=[1]), expect={})
    await tx.update(Shelf("a", "attic", 5), expect={})
    await tx.delete(BOOKS, "a", 2)
    await tx.delete(LOANS, "a", 1, 1)
    await tx.drop_root("s:b")


async def _filled(house: House) -> Waist:
    waist = await house.library("a", "b", books=[1, 2, 3])
    await waist.add(Loan("a", 1, 1), Note("u", 1, {"k": 1}), Card("old", "0"))
    return waist


class Blocks:
    """How blocks end."""

    async def test_a_block_that_ends_normally_lands_everything(self, house: House) -> None:
        """Each kind of write of it."""
        waist = await _filled(house)
        async with waist.transaction() as tx:
            assert tx.outcome == "open"
            await _write_everything(tx)
        assert (tx.outcome, (tx.commit_seq or 0) > 0) == ("landed", True)
        found = await (await house.waist()).everything()
        assert [(b.shelf_id, b.book_no, b.code) for b in found["books"]] == [
            ("a", 1, "changed"), ("a", 3, "c3"), ("a", 7, "c"), ("new", 1, "c"),
        ]  # fmt: skip
        assert found["shelves"] == [Shelf("a", "attic", 5), Shelf("new")]
        assert (found["loans"], len(found["cards"]), len(found["notes"])) == ([], 2, 2)

    async def test_an_error_undoes_every_write_of_the_block(self, house: House) -> None:
        """Every read answers what it answered before, over either connection, revisions included."""
        waist = await _filled(house)
        roots = ("s:a", "s:b", "s:new", "n:t", "c:c")
        before = [await waist.everything(), *[await waist.rev(root) for root in roots]]
        with pytest.raises(Stop):
            async with waist.transaction() as tx:
                await _write_everything(tx)
                raise Stop
        assert tx.outcome == "rolled back"
        for reader in (waist, await house.waist()):
            assert [await reader.everything(), *[await reader.rev(root) for root in roots]] == before

    async def test_the_error_of_a_block_goes_on_as_the_very_same_object(self, house: House) -> None:
        """Of whatever class, neither wrapped nor replaced."""
        waist = await house.waist()
        for error in (Stop("now"), Halt("now"), KeyError("k"), asyncio.CancelledError("by hand")):
            with pytest.raises(type(error)) as caught:
                async with waist.transaction() as tx:
                    await tx.insert(Note("t", 1))
                    raise error
            assert caught.value is error
        assert await waist.scan(NOTES) == []

    async def test_leaving_a_block_early_lands_it(self, house: House) -> None:
        """By `return`, `break` or `continue`."""
        waist = await house.waist()

        async def returns() -> str:
            async with waist.transaction() as tx:
                await tx.insert(Note("t", 1))
                return "early"

        assert await returns() == "early"
        for place in (2, 3):
            async with waist.transaction() as tx:
                await tx.insert(Note("t", place))
                if place == 2:
                    continue
                break
        assert [note.place for note in await waist.scan(NOTES)] == [1, 2, 3]

    async def test_the_value_of_a_callable_reaches_its_caller(self, house: House) -> None:
        """The very same object."""
        waist, value = await house.waist(), object()

        async def body(tx: Transaction) -> object:
            await tx.insert(Note("t", 1))
            return value

        assert await waist.transact(body) is value
        assert len(await waist.scan(NOTES)) == 1

    async def test_an_error_of_a_callable_undoes_it_and_goes_on(self, house: House) -> None:
        """It runs once: an error of its own is no lost race."""
        waist, stop, runs = await house.waist(), Stop(), []

        async def body(tx: Transaction) -> None:
            runs.append(1)
            await tx.insert(Note("t", 1))
            raise stop

        with pytest.raises(Stop) as caught:
            await waist.transact(body)
        assert caught.value is stop
        assert (len(runs), await waist.scan(NOTES)) == (1, [])

    async def test_a_failed_block_holds_nobody_up(self, house: House) -> None:
        """The next on the same root goes on at once, in the same task and in another."""
        waist = await house.library("a")
        for _ in range(3):
            with pytest.raises(Stop):
                async with waist.transaction() as tx:
                    await tx.touch("s:a", "n:t")
                    await tx.insert(Book("a", 1))
                    raise Stop
        await soon(waist.add(Book("a", 1)))
        await soon(asyncio.create_task(waist.add(Book("a", 2))))
        assert [book.book_no for book in await waist.scan(BOOKS, "a")] == [1, 2]

    async def test_a_block_whose_landing_is_refused_holds_nobody_up(self, house: House) -> None:
        """Though it had waited for its root."""
        waist = await house.library("a", books=[1])
        for _ in range(3):
            with pytest.raises(ValueError, match="already"):
                async with waist.transaction() as tx:
                    await tx.touch("s:a")
                    await tx.insert(Book("a", 1))
        async with waist.transaction() as tx:
            await soon(tx.touch("s:a"))

    async def test_a_transaction_is_dead_after_it_has_landed(self, house: House) -> None:
        """Every verb refuses it, and nothing is written."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            await tx.insert(Note("t", 1))
        await _check_dead(tx, "landed")
        assert [note.place for note in await waist.scan(NOTES)] == [1]

    async def test_a_transaction_is_dead_after_it_was_rolled_back(self, house: House) -> None:
        """The same."""
        waist = await house.library("a", books=[1])
        with pytest.raises(Stop):
            async with waist.transaction() as tx:
                raise Stop
        await _check_dead(tx, "rolled back")
        assert await waist.scan(NOTES) == []

    async def test_a_block_is_entered_once(self, house: House) -> None:
        """A second time would be another transaction with the first one's handle."""
        waist = await house.waist()
        block = waist.transaction()
        async with block:
            pass
        with pytest.raises(Misuse):
            async with block:
                pass

    async def test_a_block_may_be_left_unentered(self, house: House) -> None:
        """Nothing has begun, so nothing has to end."""
        waist = await house.library("a")
        waist.transaction()
        await soon(waist.add(Book("a", 1)))

    async def test_helpers_write_through_the_blocks_own_handle(self, house: House) -> None:
        """Coroutines and tasks, side by side; all of it lands together."""
        waist = await house.library("a")

        async def helper(number: int) -> None:
            await tx.get(BOOKS, "a", number)
            await tx.insert_many([Book("a", number), Note("t", number)])

        async with waist.transaction() as tx:
            await helper(0)
            await asyncio.gather(*(helper(number) for number in range(1, 20)))
            assert await waist.scan(NOTES) == []
        assert len(await waist.scan(NOTES)) == len(await waist.scan(BOOKS)) == 20

    async def test_reads_at_once_in_one_block_keep_their_answers_apart(self, house: House) -> None:
        """Each gets what it asked for, though another one has just learned, or written, a row it asks for as well."""
        waist = await house.library("a", books=range(8))
        for writes in (False, True):
            async with waist.transaction() as tx:

                async def reads(number: int, tx: Transaction = tx) -> list[Any]:
                    wanted = (
                        Get(BOOKS, ("a", number % 3)),
                        Scan(LOANS, prefix=("a",)),
                        Scan(BOOKS, prefix=("a",), low=6),
                    )
                    return await tx.fetch("s:a", *wanted, Get(BOOKS, ("a", 5)), Get(SHELVES, ("a",)))

                async def both(number: int, tx: Transaction = tx, writes: bool = writes) -> list[Any]:
                    if writes and number < 3:
                        await tx.update(Book("a", number, "new"), expect={})
                    return await reads(number)

                for answers in await asyncio.gather(*map(both, range(20))):
                    book, loans, books, fifth, shelf = answers
                    assert isinstance(book, Book)
                    assert (loans, [found.book_no for found in books]) == ([], [6, 7])
                    assert (fifth.book_no, shelf) == (5, Shelf("a"))

    async def test_cancelling_a_block_undoes_it(self, house: House) -> None:
        """The task ends cancelled, and the next transaction works."""
        waist = await house.library("a")
        inside = asyncio.Event()

        async def work() -> None:
            async with waist.transaction() as tx:
                await tx.touch("s:a")
                await tx.insert(Book("a", 1))
                inside.set()
                await asyncio.sleep(30)

        task = asyncio.create_task(work())
        await soon(inside.wait())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert await waist.scan(BOOKS) == []
        await soon(waist.add(Book("a", 1)))

    async def test_a_time_limit_around_a_block_undoes_it(self, house: House) -> None:
        """And is told as what it is."""
        waist = await house.waist()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                async with waist.transaction() as tx:
                    await tx.insert(Note("t", 1))
                    await asyncio.sleep(30)
        assert (tx.outcome, await waist.scan(NOTES)) == ("rolled back", [])

    async def test_a_cancelled_block_tells_truly_whether_it_landed(self, house: House) -> None:
        """Wherever the cancellation hits it: `outcome` says landed if and only if the rows are there."""
        waist = await house.library("a")
        outcomes = set()
        for turns in range(40):
            made: list[Transaction] = []

            async def work(number: int, made: list[Transaction]) -> None:
                async with waist.transaction() as tx:
                    made.append(tx)
                    await tx.touch("s:a")
                    await tx.insert_many([Book("a", number), Note("t", number)])

            task = asyncio.create_task(work(turns, made))
            await a_while(turns)
            if turns > 30:  # late enough on any backend, the last one after its end
                await asyncio.wait([task], timeout=10 if turns == 39 else (turns - 30) / 1_000)
            task.cancel()
            await asyncio.wait([task])
            there = [await waist.get(BOOKS, "a", turns), await waist.get(NOTES, "t", turns)]
            if made:
                outcomes.add(made[0].outcome)
                assert made[0].outcome in ("landed", "rolled back")
                assert [row is not None for row in there] == [made[0].outcome == "landed"] * 2, turns
            else:
                assert there == [None, None]
        assert "landed" in outcomes
        await soon(waist.add(Book("a", 1_000)))

    async def test_cancelling_somebody_in_line_lets_the_next_one_through(self, house: House) -> None:
        """Waiters come and go; the line moves on."""
        waist = await house.library("a")
        async with waist.transaction() as tx:
            await tx.touch("s:a")
            tasks = [elsewhere(waist.transact(_inserts(number))) for number in range(6)]
            await a_while()
            for task in tasks[::2]:
                task.cancel()
            await a_while()
        done = await soon(asyncio.gather(*tasks, return_exceptions=True))
        assert [isinstance(answer, BaseException) for answer in done] == [True, False] * 3
        assert [book.book_no for book in await waist.scan(BOOKS, "a")] == [1, 3, 5]

    async def test_a_waiter_that_outlives_its_block_takes_no_root_along(self, house: House) -> None:
        """A helper task waits for a root when its block ends: the root goes to the next in line, not to the dead."""
        waist = await house.library("a")
        helpers: list[asyncio.Task[None]] = []
        held = asyncio.Event()
        finish = asyncio.Event()

        async def holds() -> None:
            async with waist.transaction() as tx:
                await tx.touch("s:a")
                held.set()
                await finish.wait()

        holder = asyncio.create_task(holds())
        await soon(held.wait())
        async with waist.transaction() as tx:
            helpers.append(asyncio.create_task(tx.touch("s:a")))
            await a_while()
        finish.set()
        await soon(holder)
        with pytest.raises(Misuse):
            await soon(helpers[0])
        task = asyncio.create_task(waist.transact(_inserts(1)))
        assert not await rests(task, for_s=1.0)
        await task


def _inserts(number: int) -> Callable[[Transaction], Awaitable[None]]:
    async def body(tx: Transaction) -> None:
        await tx.touch("s:a")
        await tx.insert(Book("a", number))

    return body


async def _check_dead(tx: Transaction, outcome: str) -> None:
    async def savepoint() -> None:
        async with tx.savepoint():
            pass

    verbs: list[Callable[[], Awaitable[object]]] = [
        lambda: tx.get(BOOKS, "a", 1),
        lambda: tx.scan(BOOKS, "a"),
        lambda: tx.count(BOOKS, "a"),
        lambda: tx.size(BOOKS, "a"),
        lambda: tx.fetch("s:a", Get(SHELVES, ("a",))),
        lambda: tx.touch("s:a"),
        lambda: tx.insert(Note("t", 2)),
        lambda: tx.insert_many([Note("t", 2), Card("x", "y")]),
        lambda: tx.update(Book("a", 1, "late"), expect={}),
        lambda: tx.delete(BOOKS, "a", 1),
        lambda: tx.delete(CARDS, "x"),
        lambda: tx.drop_root("s:a"),
        lambda: tx.now(),
        savepoint,
    ]
    assert tx.outcome == outcome
    for verb in verbs:
        with pytest.raises(Misuse, match=outcome):
            await verb()
