"""The rows measured on SQLite."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw

import turnkeeper
from bench.floor import Floor
from bench.results import Figure
from bench.workload import Lag, Player, changes, many, percentile, rate, timed

ROUNDS = 4


@asynccontextmanager
async def fresh() -> AsyncIterator[tuple[turnkeeper.Store, Path]]:
    """Open a store on a new file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.db"
        async with turnkeeper.open(path) as store:
            yield store, path


async def seq(turns: int = 200) -> list[Figure]:
    """Sequential landings, and whole turns with saved input, in blocks between blocks of the floor."""
    floors: list[float] = []
    landings: list[float] = []
    wholes: list[float] = []
    async with fresh() as (store, path):
        floor = Floor(str(path.with_name("floor.db")))
        floor.create("s")
        one, two = await Player.create(store), await Player.create(store)
        for block in range(ROUNDS):
            for i in range(block * turns, (block + 1) * turns):
                before = time.perf_counter()
                floor.turn("s", f"k{i}", changes(i))
                floors.append(time.perf_counter() - before)
            landings += await timed(one.land, turns)
            wholes += await timed(two.turn, turns)
    base = rate(floors)
    made = [("seq", rate(landings), ">= 0.45 x floor"), ("turn2", rate(wholes), ">= 0.25 x floor")]
    return [Figure(row, "rate", value, "turns/s", target, base, value / base) for row, value, target in made]


async def c32(turns: int = 60) -> list[Figure]:
    """32 sessions side by side in one process, against the same store's sequential rate in the same run."""
    rates, alone, seconds, lag = [], [], [], Lag()
    async with fresh() as (store, _):
        players = [await Player.create(store) for _ in range(32)]
        lone = await Player.create(store)
        for _ in range(ROUNDS):
            alone += await timed(lone.land, turns * 2)
            watching = asyncio.create_task(lag.watch())
            together, each = await many(players, turns)
            watching.cancel()
            rates.append(together)
            seconds += each
    value, base = statistics.median(rates), rate(alone)
    return [
        Figure("c32", "rate", value, "turns/s", ">= 1.8 x seq", None, value / base),
        Figure("c32", "turn_p99", percentile(seconds, 0.99) * 1000, "ms", "<= 20 ms"),
        Figure("c32", "loop_lag_p99", percentile(lag.late_ms, 0.99), "ms", "<= 5 ms"),
    ]


async def busy8(turns: int = 200) -> list[Figure]:
    """8 sessions beside a loop that is busy 2 of 3 ms."""
    async with fresh() as (store, _):
        players = [await Player.create(store) for _ in range(8)]
        burning = asyncio.create_task(Lag.burn(2, 1))
        value, _ = await many(players, turns)
        burning.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await burning
    return [Figure("busy8", "rate", value, "turns/s", ">= 1400 turns/s")]


async def growth(turns: int = 10_000, block: int = 100) -> list[Figure]:
    """A turn after 10,000 turns against a turn of a young session, in alternating blocks."""
    async with fresh() as (store, _):
        # ids grow, and a table's last rows are its cheapest: the old session and the young ones stand before the last
        youth = [await Player.create(store) for _ in range(ROUNDS)]
        old = await Player.create(store)
        await (await Player.create(store)).land()
        for _ in range(turns):
            await old.land()
        late: list[float] = []
        early: list[float] = []
        for young in youth:
            await timed(young.land, 10)
            early += await timed(young.land, block)
            late += await timed(old.land, block)
    ratio = statistics.median(late) / statistics.median(early)
    return [Figure("growth", "turn_10000", statistics.median(late) * 1e6, "us", "<= 1.15 x turn 10", None, ratio)]


async def history(turns: int = 1000) -> list[Figure]:
    """Reading and forking a session of 1,000 turns (4,000 messages)."""
    async with fresh() as (store, path):
        floor = Floor(str(path.with_name("floor.db")))
        floor.create("s")
        player = await Player.create(store)
        for i in range(turns):
            floor.turn("s", f"k{i}", changes(i))
            await player.land()
        session = player.session

        async def latest() -> None:
            await session.messages(last=20)
            await session.state()

        async def everything() -> None:
            assert len(await session.messages()) == turns * 4

        load20 = statistics.median(await timed(latest, 200)) * 1000
        floors, ours = [], []
        for _ in range(5):
            before = time.perf_counter()
            floor.last("s", turns * 4)
            floors.append(time.perf_counter() - before)
            ours += await timed(everything, 1)
        base, value = statistics.median(floors) * 1000, statistics.median(ours) * 1000
        return [
            Figure("load20", "time", load20, "ms", "<= 0.25 ms"),
            Figure("loadall", "time", value, "ms", "<= 1.7 x floor", base, value / base),
            *await _forks(store, path, session, turns * 2),
        ]


async def _forks(store: turnkeeper.Store, path: Path, session: turnkeeper.Session, messages: int) -> list[Figure]:
    def pages() -> int:
        look = apsw.Connection(str(path))
        try:
            look.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
            return int(look.pragma("page_count")) * int(look.pragma("page_size"))
        finally:
            look.close()

    async def fork() -> None:
        await session.fork(at=messages - 1)

    count, before = 12, pages()
    took = statistics.median(await timed(fork, count)) * 1000
    size = (pages() - before) / count / messages
    return [
        Figure("fork", "time", took, "ms", "<= 15 ms"),
        Figure("fork", "bytes_a_message", size, "bytes", "<= 130 bytes"),
    ]


async def listing(sessions: int = 10_000) -> list[Figure]:
    """The newest 50 of 10,000 sessions."""
    async with fresh() as (store, _):
        for start in range(0, sessions, 100):
            async with store.transaction() as tx:
                for i in range(start, start + 100):
                    await tx.create_session(title=f"session {i}")

        async def newest() -> None:
            assert len(await store.sessions(limit=50)) == 50

        took = statistics.median(await timed(newest, 100)) * 1000
    return [Figure("list", "time", took, "ms", "<= 1 ms")]


async def importing() -> list[Figure]:
    """The import of the package in a new interpreter, above an empty one with asyncio, and what it holds resident."""
    code = (
        "import asyncio, time; t = time.perf_counter(); import turnkeeper; took = time.perf_counter() - t;"
        "status = dict(line.split(':', 1) for line in open('/proc/self/status') if ':' in line);"
        "print(took * 1000, int(status['VmRSS'].split()[0]) / 1024)"
    )
    runs = []
    for _ in range(7):
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        runs.append([float(part) for part in out.split()])
    return [
        Figure("import", "time", statistics.median(run[0] for run in runs), "ms", "<= 150 ms"),
        Figure("import", "resident", statistics.median(run[1] for run in runs), "MB", "<= 45 MB"),
    ]
