"""The rows of rebuilding: a change far back in a long history, its time and what it does to the loop meanwhile."""

from __future__ import annotations

import asyncio
import statistics

import turnkeeper
from bench.results import Figure
from bench.sqlite_rows import fresh
from bench.workload import Lag, percentile, timed


async def _grown(store: turnkeeper.Store, messages: int, fields: int) -> turnkeeper.Session:
    """Make a session of turns of two messages, each setting six fields."""
    session = await store.create_session()
    for turn_no in range(messages // 2):
        async with session.turn("on", durable_input=False) as turn:
            for i in range(6):
                turn.vars[f"field_{(turn_no * 6 + i) % fields}"] = turn_no
            turn.reply("And on.")
    return session


async def rebuild(messages: int = 2000) -> list[Figure]:
    """A change of the second message of 2,000 with 6,000 deltas over 2,000 fields: everything is folded again."""
    async with fresh() as (store, _):
        session = await _grown(store, messages, 2000)

        async def there_and_back() -> None:
            await session.cut(1)
            await session.restore(1)

        took = statistics.median(await timed(there_and_back, 7)) / 2 * 1000
    return [Figure("rebuild", "time", took, "ms", "<= 200 ms")]


async def midchange(messages: int = 10_000) -> list[Figure]:
    """A change in the middle of 10,000 messages: how late the loop is meanwhile."""
    async with fresh() as (store, _):
        session = await _grown(store, messages, 200)
        lag = Lag()
        watching = asyncio.create_task(lag.watch())

        async def there_and_back() -> None:
            await session.cut(messages // 2 + 1)
            await session.restore(messages // 2 + 1)

        await timed(there_and_back, 10)
        watching.cancel()
    return [Figure("midchange", "loop_lag_p99", percentile(lag.late_ms, 0.99), "ms", "<= 20 ms")]
