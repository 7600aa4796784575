"""The rows measured on PostgreSQL, on loopback."""

from __future__ import annotations

import statistics

import turnkeeper
from bench.results import Figure
from bench.workload import Player, many, rate, timed
from tests.support.postgres import fresh_schema_url, server

ROUNDS = 3


async def postgres(turns: int = 60) -> list[Figure]:
    """32 sessions side by side on two connections, and one alone."""
    with server() as running:
        async with turnkeeper.open(fresh_schema_url(running.url), connections=2) as store:
            backend = store._engine.backend
            players = [await Player.create(store) for _ in range(32)]
            lone = await Player.create(store)
            await many(players, 10)
            rates, alone, trips = [], [], []
            for _ in range(ROUNDS):
                rates.append((await many(players, turns))[0])
                before = backend.round_trips  # type: ignore[attr-defined]
                alone += await timed(lone.turn, turns)
                trips.append((backend.round_trips - before) / turns)  # type: ignore[attr-defined]
                alone_landings = await timed(lone.land, turns)
    return [
        Figure("pg32", "rate", statistics.median(rates), "turns/s", ">= 3000 turns/s"),
        Figure("pg32", "connections", 2, "connections", "<= 2"),
        Figure("pg32", "round_trips", statistics.median(trips), "a turn", "<= 3"),
        Figure("pgseq", "rate", rate(alone_landings), "turns/s", ">= 800 turns/s"),
    ]
