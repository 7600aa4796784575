"""Four processes on one SQLite file against one process: `python -m bench.processes FILE SESSIONS SECONDS` is a worker."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

import turnkeeper
from bench.results import Figure
from bench.workload import Player

SECONDS = 4.0


async def work(path: str, sessions: int, starts_at: float, seconds: float) -> None:
    """Play sessions side by side from a moment on, and print how many turns landed and how many errors were met."""
    turns = errors = 0
    async with turnkeeper.open(path) as store:
        players = [await Player.create(store) for _ in range(sessions)]
        await asyncio.sleep(max(0.0, starts_at - time.time()))
        ends = time.monotonic() + seconds

        async def play(player: Player) -> None:
            nonlocal turns, errors
            while time.monotonic() < ends:
                try:
                    await player.land()
                    turns += 1
                except turnkeeper.TurnkeeperError:
                    errors += 1

        await asyncio.gather(*(play(player) for player in players))
    print(json.dumps([turns, errors]))


async def _run(processes: int, sessions: int) -> tuple[list[int], int]:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "bench.db")
        async with turnkeeper.open(path):
            pass
        starts_at = time.time() + 2
        started = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bench.processes", path, str(sessions), str(starts_at), str(SECONDS),
                stdout=asyncio.subprocess.PIPE,
            )
            for _ in range(processes)
        ]  # fmt: skip
        answers = [json.loads((await process.communicate())[0]) for process in started]
    return [turns for turns, _ in answers], sum(errors for _, errors in answers)


async def p4x8() -> list[Figure]:
    """4 processes with 8 sessions each, against one process with 8 sessions."""
    (alone,), _ = await _run(1, 8)
    turns, errors = await _run(4, 8)
    value, base = sum(turns) / SECONDS, alone / SECONDS
    return [
        Figure("p4x8", "rate", value, "turns/s", ">= 0.9 x one process", None, value / base),
        Figure("p4x8", "shares", max(turns) / max(1, min(turns)), "most/least", "<= 2"),
        Figure("p4x8", "errors", errors, "errors", "<= 0"),
    ]


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
