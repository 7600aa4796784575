"""A cancellation at every await of a turn: what landed is there, what did not is not, and nothing stays held.

The driver counts the moments at which a coroutine gives the loop back, and cancels its task at the n-th: before the wait
begins ("early"), in the tick in which the wait ends ("late"), or again and again ("often"). It does so for every n until
the coroutine ends before it. Whatever the moment, CancelledError arrives, and `asyncio.timeout` turns its own into
TimeoutError.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Literal

import pytest

import turnkeeper
from turnkeeper.errors import AlreadyLanded

How = Literal["early", "late", "often"]
HOW = pytest.mark.parametrize("how", ["early", "late", "often"])
MOMENTS_MAX = 400


class Cut:
    """A coroutine that is disturbed at its n-th suspension."""

    def __init__(self, moment: int, disturb: Callable[[], Any], how: How = "early") -> None:
        self._moment, self._disturb, self._how = moment, disturb, how
        self.seen = 0

    @property
    def happened(self) -> bool:
        """Whether the coroutine lived long enough."""
        return self.seen >= self._moment

    @types.coroutine
    def run(self, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Run the coroutine, passing through what it waits for."""
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                waited = work.send(answer) if error is None else work.throw(error)
            except StopIteration as end:
                return end.value
            self.seen += 1
            self._before(waited)
            answer = error = None
            try:
                answer = yield waited
            except BaseException as raised:
                error = raised

    def _before(self, waited: Any) -> None:
        last = self._moment + (3 if self._how == "often" else 0)
        if not self._moment <= self.seen <= last:
            return
        if self._how == "late" and isinstance(waited, asyncio.Future):
            waited.add_done_callback(lambda _: self._disturb())
        elif self._how == "late":
            asyncio.get_running_loop().call_soon(self._disturb)
        else:
            self._disturb()


async def cancelled_at(moment: int, how: How, work: Callable[[], Coroutine[Any, Any, Any]]) -> tuple[bool, bool]:
    """Run in a task of its own, cancelled at a moment; answer whether it came to that, and whether it was told."""

    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        cut.append(Cut(moment, task.cancel, how))
        await cut[0].run(work())

    cut: list[Cut] = []
    task = asyncio.create_task(run())
    done, _ = await asyncio.wait([task], timeout=30)
    assert done, f"the task hangs after a cancellation at moment {moment}"
    if not task.cancelled():
        task.result()
    return cut[0].happened, task.cancelled()


async def at_every_moment(
    how: How, prepare: Callable[[int], Awaitable[Any]], work: Callable[[Any], Coroutine[Any, Any, Any]],
    check: Callable[[Any, int], Awaitable[None]],
) -> int:  # fmt: skip
    """Cancel a piece of work at each of its moments, with a fresh subject each time; answer how many there were."""
    for moment in range(1, MOMENTS_MAX):
        subject = await prepare(moment)
        happened, told = await cancelled_at(moment, how, lambda subject=subject: work(subject))
        if not happened:
            return moment - 1
        assert told, f"the cancellation at moment {moment} was swallowed"
        await check(subject, moment)
    raise AssertionError("it never ended")


def nothing_is_held(store: turnkeeper.Store) -> None:
    """Check that no root and no lane is left behind."""
    assert store._engine.lines._lines == {}
    assert not [name for name, lane in store.ownership._lanes.items() if lane.locked()]


async def whole(store: turnkeeper.Store, session: turnkeeper.Session, before: int, key: str) -> None:
    """Check that a turn of two messages is wholly there or not at all, that its input is not lost, and that it goes on."""
    nothing_is_held(store)
    messages = await session.messages()
    assert len(messages) in (before, before + 2)
    landed = len(messages) > before
    assert (await session.state())["vars"].get(key) == (True if landed else None)
    for pending in await session.pending():
        assert not landed
        assert (pending.key, pending.state, pending.detail["code"]) == (key, "failed", "cancelled")
    async with asyncio.timeout(20):
        try:
            async with session.turn(f"input {key}", key=key) as turn:
                turn.vars[key] = True
                turn.reply("again")
            assert not landed
        except AlreadyLanded:
            assert landed
    assert len(await session.messages()) == before + 2
    assert await session.pending() == []
    nothing_is_held(store)


async def one_turn(session: turnkeeper.Session, key: str) -> None:
    async with session.turn(f"input {key}", key=key) as turn:
        turn.vars[key] = True
        await asyncio.sleep(0)
        turn.reply("reply")


@HOW
async def test_the_first_turn_of_a_session_is_whole_whenever_it_is_cancelled(
    backend: str, store: turnkeeper.Store, how: How
) -> None:
    """With the claim, the kept input, the user's own await, the landing."""
    seen = await at_every_moment(
        how,
        lambda moment: store.create_session(),
        lambda session: one_turn(session, "k"),
        lambda session, moment: whole(store, session, 0, "k"),
    )
    assert seen >= (1 if backend == "memory" else 4)


@HOW
async def test_the_very_first_turn_of_a_store_is_whole_whenever_it_is_cancelled(
    backend: str, url: str, how: How
) -> None:
    """With the registration of the owner: a fresh store handle each time."""
    stores: list[turnkeeper.Store] = []

    async def prepare(moment: int) -> turnkeeper.Session:
        stores.append(await turnkeeper.open(url))
        return await stores[-1].create_session()

    async def check(session: turnkeeper.Session, moment: int) -> None:
        await whole(stores[-1], session, 0, "k")

    try:
        assert await at_every_moment(how, prepare, lambda session: one_turn(session, "k"), check)
    finally:
        for store in stores:
            await store.close()


@HOW
async def test_a_later_turn_is_whole_whenever_it_is_cancelled(backend: str, store: turnkeeper.Store, how: How) -> None:
    session = await store.create_session()
    await one_turn(session, "k0")
    await at_every_moment(
        how,
        lambda moment: asyncio.sleep(0, moment),
        lambda moment: one_turn(session, f"k{moment}"),
        lambda moment, _: whole(store, session, 2 * moment, f"k{moment}"),
    )


@HOW
async def test_a_failing_turn_keeps_its_input_whenever_it_is_cancelled(
    backend: str, store: turnkeeper.Store, how: How
) -> None:
    """The cancellation comes while the failure of another kind is being recorded: it still arrives."""

    async def failing(session: turnkeeper.Session) -> None:
        try:
            async with session.turn("input k", key="k") as turn:
                turn.reply("never")
                raise ValueError("a model that fails")
        except ValueError:
            pass  # who goes on after it would never stop, had the cancellation been lost

    async def check(session: turnkeeper.Session, moment: int) -> None:
        nothing_is_held(store)
        assert await session.messages() == []
        assert all(pending.state == "failed" for pending in await session.pending())
        await one_turn(session, "k")
        assert await session.pending() == []

    await at_every_moment(how, lambda moment: store.create_session(), failing, check)


@HOW
async def test_a_transactions_outcome_says_the_truth_whenever_it_is_cancelled(
    backend: str, store: turnkeeper.Store, how: How
) -> None:
    session = await store.create_session("cave")
    number = 0

    async def work(outcomes: list[Any]) -> None:
        async with store.transaction() as tx:
            outcomes.append(tx)
            await tx.touch("s:cave", "h:cave")
            await tx.lifecycle.rename("cave", f"title {number}")
            await asyncio.sleep(0)
            await tx.history.append_messages("cave", [turnkeeper_message(f"text {number}")])

    async def prepare(moment: int) -> list[Any]:
        nonlocal number
        number = moment
        return []

    async def check(outcomes: list[Any], moment: int) -> None:
        nothing_is_held(store)
        messages = await session.messages(last=1)
        there = bool(messages) and messages[0].text == f"text {moment}"
        assert ((await session.info()).title == f"title {moment}") is there
        assert outcomes[0].outcome == ("landed" if there else "rolled back")

    seen = await at_every_moment(how, prepare, work, check)
    assert seen >= (1 if backend == "memory" else 2)


@HOW
async def test_who_waits_in_line_can_be_cancelled_without_holding_it_up(
    backend: str, store: turnkeeper.Store, how: How
) -> None:
    """A transaction holds the session, a second waits and is cancelled, a third waits behind it."""
    await store.create_session("cave")

    async def appending(text: str) -> None:
        async with store.transaction() as tx:
            await tx.touch("s:cave")
            await asyncio.sleep(0)
            await tx.history.append_messages("cave", [turnkeeper_message(text)])

    for moment in range(1, 12):
        first = asyncio.create_task(appending("first"))
        await asyncio.sleep(0)
        second = asyncio.create_task(cancelled_at(moment, how, lambda: appending("second")))
        await asyncio.sleep(0)
        third = asyncio.create_task(appending("third"))
        async with asyncio.timeout(20):
            await asyncio.gather(first, second, third)
        nothing_is_held(store)
        if not second.result()[0]:
            break


async def test_turns_that_wait_for_each_other_survive_the_cancellation_of_one(
    backend: str, store: turnkeeper.Store
) -> None:
    for moment in range(1, 12):
        session = await store.create_session()
        first = asyncio.create_task(one_turn(session, "a"))
        await asyncio.sleep(0)
        second = asyncio.create_task(cancelled_at(moment, "early", lambda s=session: one_turn(s, "b")))
        await asyncio.sleep(0)
        third = asyncio.create_task(one_turn(session, "c"))
        async with asyncio.timeout(20):
            await asyncio.gather(first, second, third)
        nothing_is_held(store)
        assert len(await session.messages()) in (4, 6)


async def test_a_timeout_at_any_moment_stays_a_timeout(backend: str, store: turnkeeper.Store) -> None:
    for moment in range(1, MOMENTS_MAX):
        session = await store.create_session()
        task = asyncio.current_task()
        assert task is not None
        cut = None
        try:
            async with asyncio.timeout(None) as limit:
                loop = asyncio.get_running_loop()
                cut = Cut(moment, lambda limit=limit, loop=loop: limit.when() or limit.reschedule(loop.time() - 1))
                await cut.run(one_turn(session, "k"))
        except TimeoutError:
            assert limit.expired()
        assert task.cancelling() == 0
        await whole(store, session, 0, "k")
        assert cut is not None
        if not cut.happened:
            break


@HOW
async def test_a_claim_is_given_back_whenever_it_is_cancelled(backend: str, url: str, how: How) -> None:
    """Another store can have the session afterwards: at once when this one let go, else when this one closes."""
    async with turnkeeper.open(url) as other:

        async def prepare(moment: int) -> tuple[turnkeeper.Store, turnkeeper.Session]:
            store = await turnkeeper.open(url)
            return store, await store.create_session()

        async def work(subject: tuple[turnkeeper.Store, turnkeeper.Session]) -> None:
            async with subject[1]:
                await asyncio.sleep(0)

        async def check(subject: tuple[turnkeeper.Store, turnkeeper.Session], moment: int) -> None:
            store, session = subject
            nothing_is_held(store)
            await store.close()
            again = await other.session(session.session_id)
            await one_turn(again, "k")
            assert len(await again.messages()) == 2

        await at_every_moment(how, prepare, work, check)


def turnkeeper_message(text: str) -> Any:
    """Make a message of a text."""
    from turnkeeper.history.content import message

    return message("user", text)
