"""A loop that is never idle: the thread in which SQLite may wait gets the interpreter's lock all the same."""

from __future__ import annotations

import asyncio

import pytest

import turnkeeper


@pytest.mark.parametrize("backend", ["sqlite"])
async def test_a_loop_that_is_never_idle_starves_no_store(url):
    """Counted in rounds of the loop: without a pause for the thread it takes hundreds of thousands."""
    rounds, done = 0, False

    async def spin() -> None:
        nonlocal rounds
        while not done:
            sum(range(2_000))
            rounds += 1
            await asyncio.sleep(0)

    spinning = asyncio.create_task(spin())
    async with turnkeeper.open(url) as store:
        session = await store.create_session("one")
        for _ in range(5):
            async with session.turn("Hello") as turn:
                turn.reply("Here.")
        assert len(await session.messages()) == 10
    done = True
    await spinning
    assert rounds < 50_000
