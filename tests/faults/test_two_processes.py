"""Two processes on one session: one of them owns it, and who has lost it writes nothing more. Many on one file: fair."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import chain

import pytest

import turnkeeper
from tests.faults.several import check_numbers, made, together
from tests.faults.story import Ledger, faults_of_store
from tests.support.workers import worker
from turnkeeper.errors import Fenced, SessionBusy
from turnkeeper.records import MESSAGES, TIPS

SHARED = pytest.mark.parametrize("backend", ["sqlite", "postgres"])
LEASE_S = 1.0


@SHARED
@pytest.mark.field("F-11", "F-19")
async def test_the_first_owner_is_fenced_once_another_has_taken_over(backend: str, url: str) -> None:
    await made(url, "cave")
    async with (
        turnkeeper.open(url, owner="second") as store,
        worker("hold", url=url, session="cave", owner="first", input="first", again=True) as first,
    ):
        _, epoch = await first.expect("inside")
        cave = await store.session("cave")
        with pytest.raises(SessionBusy) as busy:
            await cave.claim()
        assert busy.value.fields["owner"] == "first"
        with pytest.raises(SessionBusy):
            await cave.turn("second").__aenter__()
        claim = await cave.claim(take_over=True)
        assert claim.epoch == epoch + 1
        async with cave.turn("second") as turn:
            turn.reply("only this")
        await first.tell("land")
        _, code, why = await first.expect("refused")
        assert code == "fenced"
        assert f"epoch {epoch}" in why
        assert f"epoch {epoch + 1}" in why, "it can read why"
        await first.tell("try again")
        assert (await first.expect("refused"))[1] == "session-busy"
        assert [message.text for message in await cave.messages()] == ["second", "only this"]
        assert (await cave.state())["vars"] == {}
        assert [pending.state for pending in await cave.pending()] == ["interrupted"]


@pytest.mark.field("F-11", "F-19")
async def test_a_second_handle_in_this_process_is_another_owner(backend: str, url: str) -> None:
    async with turnkeeper.open(url, owner="one") as one, turnkeeper.open(url, owner="two") as two:
        first = await one.create_session("cave")
        second = await two.session("cave")
        turn = first.turn("first")
        running = await turn.__aenter__()
        with pytest.raises(SessionBusy):
            await second.claim()
        await second.claim(take_over=True)
        running.reply("too late")
        with pytest.raises(Fenced):
            await turn.__aexit__(None, None, None)
        with pytest.raises(Fenced):
            await first.append("system", "nor outside a turn")
        async with second.turn("second") as other:
            other.reply("in time")
        assert [message.text for message in await first.messages()] == ["second", "in time"]


@SHARED
async def test_a_frozen_owner_loses_its_session_when_its_lease_ends(backend: str, url: str) -> None:
    await made(url, "cave")
    async with (
        turnkeeper.open(url, owner="second") as store,
        worker("hold", url=url, session="cave", owner="first", lease_s=LEASE_S, again=True) as first,
    ):
        await first.expect("inside")
        cave = await store.session("cave")
        first.stop()
        await cave.claim(wait_s=LEASE_S + 10)
        async with cave.turn("second") as turn:
            turn.reply("only this")
        await first.tell("land")
        first.go_on()
        assert (await first.expect("refused"))[1] == "fenced"
        await first.tell("try again")
        assert (await first.expect("refused"))[1] == "session-busy"
        assert [message.text for message in await cave.messages()] == ["second", "only this"]


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize(("processes", "seconds"), [(2, 1.2), (4, 1.8)])
async def test_processes_on_one_file_share_it_fairly_and_lose_nothing(
    backend: str, url: str, processes: int, seconds: float
) -> None:
    names = [[f"s{process}-{i}" for i in range(8)] for process in range(processes)]
    await made(url, *chain(*names))
    async with AsyncExitStack() as stack:
        others = await together(stack, "numbers", url, names, seconds=seconds)
        told = [(await other.expect("landed"))[1] for other in others]
    shares = [sum(landed.values()) for landed in told]
    assert max(shares) <= 2 * min(shares), shares
    for landed in told:
        await check_numbers(url, landed)


@SHARED
@pytest.mark.field("F-1")
async def test_sixteen_tasks_with_fifty_turns_each_from_two_processes_meet_no_lock_error(
    backend: str, url: str
) -> None:
    names = [[f"s{process}-{i}" for i in range(16)] for process in range(2)]
    await made(url, *chain(*names))
    async with AsyncExitStack() as stack:
        others = await together(stack, "numbers", url, names, turns=50)
        told = [(await other.expect("landed"))[1] for other in others]
    assert told == [dict.fromkeys(some, 50) for some in names]
    for landed in told:
        await check_numbers(url, landed)


@SHARED
async def test_two_processes_play_every_kind_of_turn_on_one_database(backend: str, url: str) -> None:
    names = [[f"s{process}-{i}" for i in range(4)] for process in range(2)]
    await made(url, *chain(*names))
    ledger = Ledger()
    async with AsyncExitStack() as stack:
        for other in await together(stack, "play", url, names, turns=40, wait=True):
            said = await other.hear_all()
            assert said[-1] == ["done"]
            for one in said:
                ledger.hear(one)
    async with turnkeeper.open(url) as store:
        assert await faults_of_store(store, ledger) == []


@pytest.mark.field("F-3")
async def test_readers_neither_stop_the_writer_nor_see_half_a_turn(backend: str, url: str) -> None:
    """Readers poll the list and the session all the time, from this handle and from another."""
    async with turnkeeper.open(url) as store, turnkeeper.open(url) as other:
        cave = await store.create_session("cave")
        done, seen, slowest = asyncio.Event(), 0, 0.0

        async def read(reader: turnkeeper.Store) -> None:
            nonlocal seen
            while not done.is_set():
                await reader.sessions()
                async with reader.read_view() as view:
                    messages = await view.scan(MESSAGES, "cave", 0)
                    tips = await view.scan(TIPS, "cave", 0)
                count = tips[0].state.get("n", 0)
                assert len(messages) == 2 * count
                seen += 1
                await asyncio.sleep(0)

        readers = [asyncio.create_task(read(reader)) for reader in (store, other)]
        loop = asyncio.get_running_loop()
        for number in range(200):
            started = loop.time()
            async with cave.turn(f"turn {number}") as turn:
                turn.vars.add("n", 1)
                await asyncio.sleep(0)
                turn.reply(f"reply {number}")
            slowest = max(slowest, loop.time() - started)
        done.set()
        await asyncio.gather(*readers)
        assert seen > 10
        assert slowest < 1.0
        assert len(await cave.messages()) == 400
