"""A worker is killed without warning: whole turns stay, the input of the turn under way stays, the next worker goes on."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from contextlib import AsyncExitStack

import pytest

import turnkeeper
from tests.faults.several import made
from tests.faults.story import Ledger, faults_of_store
from tests.support.workers import worker

SHARED = pytest.mark.parametrize("backend", ["sqlite", "postgres"])
LEASE_S = 1.0


@SHARED
@pytest.mark.field("F-27")
async def test_a_worker_killed_at_any_moment_leaves_whole_turns_only(backend: str, url: str) -> None:
    chance, ledger = random.Random(5), Ledger()
    names = [f"s{i}" for i in range(4)]
    await made(url, *names)
    for life in range(5):
        async with worker("play", url=url, sessions=names, first=1000 * life, seed=100 * life, lease_s=0.5) as other:
            await other.expect("ready")
            for _ in range(chance.randrange(1, 150)):
                ledger.hear(await other.hear() or [""])
            await asyncio.sleep(chance.random() / 50)
            other.kill()
            for said in await other.hear_all():
                ledger.hear(said)
        async with turnkeeper.open(url) as store:
            assert await faults_of_store(store, ledger) == []
            for name in names:
                session = await store.session(name)
                await session.claim(wait_s=5)
                assert all(pending.state != "running" for pending in await session.pending())
    assert len(ledger.landed) > 20


@SHARED
@pytest.mark.field("F-27")
async def test_the_next_worker_goes_on_where_a_killed_one_was(backend: str, url: str) -> None:
    await made(url, "cave")
    async with turnkeeper.open(url, owner="next") as store:
        cave = await store.session("cave")
        async with worker(
            "hold", url=url, session="cave", input="I light the lamp.", key="cmd-1", lease_s=LEASE_S
        ) as other:
            _, epoch = await other.expect("inside")
            assert [(p.state, p.input[0]["text"]) for p in await cave.pending()] == [("running", "I light the lamp.")]
            assert (await cave.info()).status == "running"
            assert [info.status for info in await store.sessions()] == ["running"]
            other.kill()
            killed = time.monotonic()
            if backend == "sqlite":
                assert await other.hear() is None  # its pipe is closed: the process is gone
                assert (await cave.info()).status == "abandoned"
                assert [info.status for info in await store.sessions()] == ["abandoned"]
            await cave.claim(wait_s=LEASE_S + 5)
            (left,) = await cave.pending()
            assert (left.state, left.key, left.input[0]["text"]) == ("interrupted", "cmd-1", "I light the lamp.")
            assert left.detail == {
                "code": "interrupted",
                "message": "the worker that ran it is gone, was replaced or let go",
            }
            async with cave.turn("I light the lamp.", key="cmd-1") as turn:
                turn.reply("Empty chairs, all facing you.")
            assert time.monotonic() - killed < (1.0 if backend == "sqlite" else LEASE_S + 1.0)
        assert (await cave.info()).run_epoch > epoch
        assert await cave.pending() == []
        assert [m.text for m in await cave.messages()] == ["I light the lamp.", "Empty chairs, all facing you."]


@SHARED
@pytest.mark.field("F-25")
async def test_a_claim_belongs_to_one_process_even_when_two_have_the_same_name(backend: str, url: str) -> None:
    await made(url, "cave")
    async with AsyncExitStack() as stack:
        options = {"url": url, "session": "cave", "owner": "worker-1", "lease_s": LEASE_S}
        old = await stack.enter_async_context(worker("hold", **options))
        await old.expect("inside")
        twin = await stack.enter_async_context(worker("attach", **options))
        assert (await twin.expect("refused"))[1] == "session-busy"
        old.kill()
        async with turnkeeper.open(url, owner="worker-1") as store:
            cave = await store.session("cave")
            await cave.claim(wait_s=LEASE_S + 5)
            async with cave.turn("go on") as turn:
                turn.reply("on")
            assert [m.text for m in await cave.messages()] == ["go on", "on"]


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.field("F-27")
async def test_a_child_that_outlives_a_killed_worker_does_not_keep_its_sessions(backend: str, url: str) -> None:
    await made(url, "cave")
    async with turnkeeper.open(url) as store:
        cave = await store.session("cave")
        async with worker("forked", url=url, session="cave") as other:
            _, child = await other.expect("forked")
            try:
                other.kill()
                assert await other.hear() is None
                await cave.claim(wait_s=5)
                async with cave.turn("go on") as turn:
                    turn.reply("on")
            finally:
                os.kill(child, signal.SIGKILL)
