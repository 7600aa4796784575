"""Contract: what code inside a block may not do through the store, who counts as inside, and where a store may be used."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ..errors import Misuse, NestedTransactionError, RootStoreWriteInTransactionError, TurnkeeperError
from ..store.transaction import Transaction
from .house import House, Waist, a_while, elsewhere, soon
from .tables import BOOKS, NOTES, Book, Note


async def _adds(waist: Waist, place: int) -> None:
    """Write through the store, as code outside a block does."""

    async def body(tx: Transaction) -> None:
        await tx.insert(Note("root", place))

    await waist.transact(body)


async def _places(waist: Waist, topic: str = "root") -> list[int]:
    return [note.place for note in await waist.scan(NOTES, topic)]


class Guards:
    """The rules of the house."""

    async def test_a_write_through_the_store_is_refused_inside_a_block(self, house: House) -> None:
        """Before it does anything."""
        waist = await house.waist()
        async with waist.transaction():
            with pytest.raises(RootStoreWriteInTransactionError) as caught:
                await soon(_adds(waist, 1))
        assert caught.value.code == "root-write-in-transaction"

    async def test_a_refused_write_leaves_no_trace(self, house: House) -> None:
        """The block goes on and lands what it wrote itself."""
        waist = await house.waist()
        async with waist.transaction() as tx:
            await tx.insert(Note("own", 1))
            with pytest.raises(RootStoreWriteInTransactionError):
                await _adds(waist, 1)
            await tx.insert(Note("own", 2))
        assert (await _places(waist), await _places(waist, "own")) == ([], [1, 2])

    async def test_a_refused_write_that_is_not_caught_undoes_the_block(self, house: House) -> None:
        """Like any other error."""
        waist = await house.waist()
        with pytest.raises(RootStoreWriteInTransactionError):
            async with waist.transaction() as tx:
                await tx.insert(Note("own", 1))
                await _adds(waist, 1)
        assert await waist.scan(NOTES) == []

    async def test_helpers_and_child_tasks_are_inside_as_well(self, house: House) -> None:
        """However far away their code stands."""
        waist = await house.waist()

        async def helper(depth: int) -> None:
            if depth:
                await asyncio.gather(helper(depth - 1))
            else:
                with pytest.raises(RootStoreWriteInTransactionError):
                    await _adds(waist, 1)
                with pytest.raises(NestedTransactionError):
                    waist.transaction()

        async with waist.transaction():
            await helper(0)
            await helper(2)
            async with asyncio.TaskGroup() as group:
                group.create_task(helper(1))
        assert await _places(waist) == []

    async def test_inside_a_savepoint_is_inside(self, house: House) -> None:
        """A part of a block is not outside it."""
        waist = await house.waist()
        async with waist.transaction() as tx, tx.savepoint():
            with pytest.raises(RootStoreWriteInTransactionError):
                await _adds(waist, 1)

    async def test_transact_inside_transact_is_refused(self, house: House) -> None:
        """Its body is a block too."""
        waist = await house.waist()

        async def body(tx: Transaction) -> str:
            await tx.insert(Note("own", 1))
            with pytest.raises(RootStoreWriteInTransactionError):
                await _adds(waist, 1)
            return "done"

        assert await waist.transact(body) == "done"
        assert (await _places(waist), await _places(waist, "own")) == ([], [1])

    async def test_reads_through_the_store_are_allowed_inside_a_block(self, house: House) -> None:
        """They answer what is committed, and wait for nothing."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            await tx.touch("s:a")
            await tx.insert(Book("a", 2))
            assert [book.book_no for book in await soon(waist.scan(BOOKS, "a"))] == [1]
            async with waist.read_view() as view:
                assert await view.count(BOOKS, "a") == 1

    async def test_a_task_that_outlives_its_block_is_outside(self, house: House) -> None:
        """Though it inherited the block's context."""
        waist = await house.waist()
        ended = asyncio.Event()

        async def late() -> None:
            await ended.wait()
            await _adds(waist, 1)
            async with waist.transaction() as tx:
                await tx.insert(Note("root", 2))

        async with waist.transaction() as tx:
            await tx.insert(Note("own", 1))
            task = asyncio.create_task(late())
            await a_while()
        ended.set()
        await soon(task)
        assert await _places(waist) == [1, 2]

    async def test_a_timer_that_fires_after_its_block_is_outside(self, house: House) -> None:
        """The same for callbacks of the loop."""
        waist = await house.waist()
        fired: asyncio.Future[asyncio.Task[None]] = asyncio.get_running_loop().create_future()

        def fire() -> None:
            fired.set_result(asyncio.ensure_future(_adds(waist, 1)))

        with pytest.raises(ZeroDivisionError):
            async with waist.transaction():
                asyncio.get_running_loop().call_later(0.02, fire)
                raise ZeroDivisionError
        await soon(await soon(fired))
        assert await _places(waist) == [1]

    async def test_after_a_block_its_own_task_is_outside(self, house: House) -> None:
        """After a landing and after a rollback, at once."""
        waist = await house.waist()
        async with waist.transaction():
            pass
        await _adds(waist, 1)
        with pytest.raises(ZeroDivisionError):
            async with waist.transaction():
                raise ZeroDivisionError
        await _adds(waist, 2)
        assert await _places(waist) == [1, 2]

    async def test_a_task_started_elsewhere_is_outside(self, house: House) -> None:
        """Its write is its own: it stays when the block is undone."""
        waist = await house.waist()
        with pytest.raises(ZeroDivisionError):
            async with waist.transaction() as tx:
                await tx.insert(Note("own", 1))
                await soon(elsewhere(_adds(waist, 1)))
                raise ZeroDivisionError
        assert (await _places(waist), await _places(waist, "own")) == ([1], [])

    async def test_a_block_inside_a_block_is_refused_at_once(self, house: House) -> None:
        """By the call itself: nothing is awaited, so nothing can hang."""
        waist = await house.library("a")
        async with waist.transaction() as tx:
            await tx.touch("s:a")
            with pytest.raises(NestedTransactionError):
                waist.transaction()

    async def test_a_block_made_before_is_refused_inside_another(self, house: House) -> None:
        """It counts where it is entered."""
        waist = await house.waist()
        made = waist.transaction()
        async with waist.transaction() as tx:
            await tx.insert(Note("own", 1))
            with pytest.raises(NestedTransactionError):
                await soon(made.__aenter__())
        assert await _places(waist, "own") == [1]

    async def test_the_refusal_says_what_where_why_and_what_to_do(self, house: House) -> None:
        """With the store and the backend in it, built in one place for all."""
        waist = await house.waist()
        async with waist.transaction():
            with pytest.raises(NestedTransactionError) as caught:
                waist.transaction()
        backend = waist.engine.backend
        told = NestedTransactionError.of(backend.name, backend.kind)
        assert (str(caught.value), caught.value.fields) == (str(told), told.fields)
        for words in (
            repr(backend.name),
            backend.kind,
            "nested transactions are unsupported",
            "because",
            "flatten",
            "tx",
        ):
            assert words in str(caught.value)

    async def test_after_a_refused_block_the_outer_one_goes_on(self, house: House) -> None:
        """When it is caught; it lands."""
        waist = await house.waist()
        async with waist.transaction() as tx:
            with pytest.raises(NestedTransactionError):
                waist.transaction()
            await tx.insert(Note("own", 1))
        assert (tx.outcome, await _places(waist, "own")) == ("landed", [1])

    async def test_after_a_refused_block_the_store_recovers(self, house: House) -> None:
        """When it undid the outer one."""
        waist = await house.waist()
        with pytest.raises(NestedTransactionError):
            async with waist.transaction() as tx:
                await tx.insert(Note("own", 1))
                async with waist.transaction() as inner:
                    await inner.insert(Note("inner", 1))
        await soon(_adds(waist, 1))
        assert [(note.topic, note.place) for note in await waist.scan(NOTES)] == [("root", 1)]

    async def test_independent_callers_are_not_flagged(self, house: House) -> None:
        """Tasks started outside any block may all be in one of their own."""
        waist = await house.waist()
        meet = asyncio.Barrier(5)

        async def body(place: int) -> None:
            async with waist.transaction() as tx:
                await soon(meet.wait())
                await tx.insert(Note(f"t{place}", place))
                await soon(meet.wait())

        await asyncio.gather(*map(body, range(5)))
        assert len(await waist.scan(NOTES)) == 5

    async def test_another_event_loop_is_refused(self, house: House) -> None:
        """With an error, before anything is shared between two loops."""
        waist = await house.library("a")
        caught: list[BaseException] = []

        def run() -> None:
            entries: list[Callable[[], Awaitable[Any]]] = [
                lambda: _enter(waist),
                lambda: _adds(waist, 1),
                lambda: waist.scan(BOOKS),
                lambda: _view(waist),
            ]
            for entry in entries:
                try:
                    asyncio.run(_called(entry))
                except Misuse as error:
                    caught.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert len(caught) == 4
        await soon(_adds(waist, 1))

    async def test_a_closed_store_refuses_everything(self, house: House) -> None:
        """Each way in, with an error of ours; closing again is nothing."""
        waist = await house.library("a")
        await waist.engine.close()
        await waist.engine.close()
        entries: list[Callable[[], Awaitable[Any]]] = [
            lambda: _enter(waist),
            lambda: _adds(waist, 1),
            lambda: waist.scan(BOOKS),
            lambda: _view(waist),
        ]
        for entry in entries:
            with pytest.raises(TurnkeeperError, match="closed"):
                await soon(entry())

    async def test_a_block_that_is_open_when_its_store_closes_lands_nothing(self, house: House) -> None:
        """It is told so with an error of ours, for its reads as for its landing."""
        waist = await house.library("a", books=[1])
        with pytest.raises(TurnkeeperError):
            async with waist.transaction() as tx:
                await tx.insert(Book("a", 2))
                await soon(waist.engine.close())
                with pytest.raises(TurnkeeperError):
                    await soon(tx.get(BOOKS, "a", 1))
        assert [book.book_no for book in await (await house.waist()).scan(BOOKS, "a")] == [1]

    async def test_closing_waits_for_what_is_landing(self, house: House) -> None:
        """Whoever is told "landed" has landed."""
        waist = await house.waist()
        told: list[int] = []

        async def lands(place: int) -> None:
            try:
                await waist.add(Note(f"t{place}", place))
            except TurnkeeperError:
                return
            told.append(place)

        tasks = [asyncio.create_task(lands(place)) for place in range(20)]
        await a_while(3)
        await soon(waist.engine.close())
        await soon(asyncio.gather(*tasks))
        there = [note.place for note in await (await house.waist()).scan(NOTES)]
        assert sorted(told) == sorted(there)


async def _called(entry: Callable[[], Awaitable[Any]]) -> None:
    await entry()


async def _enter(waist: Waist) -> None:
    async with waist.transaction():
        pass


async def _view(waist: Waist) -> None:
    async with waist.read_view() as view:
        await view.scan(BOOKS)
