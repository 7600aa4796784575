"""Several processes on one database: made ready, started together, and their work counted afterwards."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import turnkeeper
from tests.support.workers import Worker, worker


async def made(url: str, *names: str) -> None:
    """Make a store with these sessions."""
    async with turnkeeper.open(url) as store:
        for name in names:
            await store.create_session(name)


async def together(
    stack: AsyncExitStack, part: str, url: str, sessions: list[list[str]], **options: Any
) -> list[Worker]:
    """Start a process for each list of sessions, and let them begin at the same time."""
    others = [await stack.enter_async_context(worker(part, url=url, sessions=names, **options)) for names in sessions]
    for other in others:
        await other.expect("ready")
    for other in others:
        await other.tell("go")
    return others


async def check_numbers(url: str, landed: dict[str, int]) -> None:
    """Check that exactly the landed turns are there, without gap."""
    async with turnkeeper.open(url) as store:
        for name, count in landed.items():
            session = await store.session(name)
            messages = await session.messages()
            expected = [text for i in range(count) for text in (f"turn {i}", f"reply {i}")]
            assert [message.text for message in messages] == expected
            assert [message.position for message in messages] == list(range(2 * count))
            assert (await session.state())["vars"].get("n", 0) == count
            assert await session.pending() == []
