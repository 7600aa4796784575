"""The work that is measured: the floor's turn, done through Turnkeeper, with everything a real landing carries.

One turn is four messages of 1.6 KB and three changed keys in a 2 KB state, with fence, state, deltas, event, delivery and
receipt. Helpers here time things by the median of interleaved blocks, because the machine is never quiet.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import turnkeeper
from bench.floor import MESSAGES
from turnkeeper.history.appending import NewDelta
from turnkeeper.history.content import message
from turnkeeper.kit.fenced import Claim
from turnkeeper.kit.receipts import request_digest
from turnkeeper.turns.land import Outcome
from turnkeeper.turns.pending import Request

STATE = {f"key_{i:02d}": "x" * 40 for i in range(40)}


def changes(i: int) -> dict[str, Any]:
    """Answer the three keys that turn `i` changes."""
    return {"hp": i, "place": f"room {i % 7}", "turn": i}


def outcome(i: int) -> Outcome:
    """Answer what turn `i` lands."""
    said = [message(role, body) for role, body in MESSAGES]
    request = Request("reply", said[0].parts, f"k{i}", request_digest(["reply", None, None, said[0].parts]))
    return Outcome(request, 0, None, said, [NewDelta("vars", [k], v) for k, v in changes(i).items()], [])


class Player:
    """One session with the floor's starting state, its claim, and the number of its next turn."""

    def __init__(self, store: turnkeeper.Store, session: turnkeeper.Session, claim: Claim) -> None:
        self.store, self.session, self.claim, self.next = store, session, claim, 0

    @classmethod
    async def create(cls, store: turnkeeper.Store) -> Player:
        """Make a session that is ready to play."""
        session = await store.create_session()
        await store.history.set_branch_base(session.session_id, {"vars": STATE})
        return cls(store, session, await session.claim())

    async def land(self) -> None:
        """Land one turn: one landing, full semantics."""
        await self.store.turns.commit_turn(self.session.session_id, outcome(self.next), self.claim)
        self.next += 1

    async def turn(self) -> None:
        """Play one whole turn with saved input: two landings."""
        async with self.session.turn(MESSAGES[0][1], key=f"k{self.next}") as turn:
            turn.vars.update(changes(self.next))
            for role, body in MESSAGES[1:]:
                turn.say(role, body)
        self.next += 1


class Lag:
    """How late the loop wakes a task that asked for 1 ms, and optionally a load that keeps the loop busy."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            self.late_ms.append((time.perf_counter() - before) * 1000 - 1)

    @staticmethod
    async def burn(busy_ms: float, rest_ms: float) -> None:
        """Keep the loop busy `busy_ms` of every `busy_ms + rest_ms`, until cancelled."""
        while True:
            ends = time.perf_counter() + busy_ms / 1000
            while time.perf_counter() < ends:
                pass
            await asyncio.sleep(rest_ms / 1000)


async def timed(work: Callable[[], Awaitable[None]], count: int) -> list[float]:
    """Answer the seconds of each of `count` runs."""
    seconds = []
    for _ in range(count):
        before = time.perf_counter()
        await work()
        seconds.append(time.perf_counter() - before)
    return seconds


async def many(players: list[Player], turns: int) -> tuple[float, list[float]]:
    """Let players land `turns` turns each, side by side; answer turns a second and the seconds of each turn."""
    before = time.perf_counter()
    each = await asyncio.gather(*(timed(player.land, turns) for player in players))
    took = time.perf_counter() - before
    return len(players) * turns / took, [second for one in each for second in one]


def percentile(values: list[float], share: float) -> float:
    """Answer the value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def rate(seconds: list[float]) -> float:
    """Answer runs a second by the median run."""
    return 1 / statistics.median(seconds)
