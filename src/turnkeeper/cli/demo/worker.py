"""The process that the tour kills: it opens the store, goes into a turn, says so, and waits there for its end."""

from __future__ import annotations

import asyncio
import functools
import sys

from ...api import open as open_store
from .story import ANSWER_INPUT, ANSWER_KEY, INSIDE, answer


async def _say_and_wait() -> None:
    print(INSIDE, flush=True)
    await asyncio.Event().wait()


async def work(path: str, session_id: str) -> None:
    """Play the turn that never ends."""
    async with open_store(path, create=False, owner="demo worker") as store:
        cave = await store.session(session_id)
        await cave.take_turn(functools.partial(answer, inside=_say_and_wait), ANSWER_INPUT, key=ANSWER_KEY)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2]))
