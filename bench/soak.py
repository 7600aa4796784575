"""The long runs: what tests/faults does for seconds, for minutes. `python -m bench.soak [NAME …] [--times N]`.

    cuts       power cuts on SQLite: 2,400 moments of six stories (4,800 with --times 2), and the two controls
    processes  two and four processes on one SQLite file, 8 sessions each, 20 s
    kills      a worker killed 60 times, on SQLite
    disk       stories on a disk that fails at random
    postgres   connections cut and the server restarted under load, a worker killed 30 times
    histories  200 random histories of 50 steps on the three backends beside a model of lists; a table of what fired

Each run prints a line of figures; the exit code is 1 when anything was lost, half there or unfair.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import turnkeeper
from tests.faults.cuts import moments, recorded, sweep
from tests.faults.several import check_numbers, made, together
from tests.faults.story import Ledger, faults_of_file, faults_of_store
from tests.support.vfs import Change, Disk, disk_full, failed_write, open_store
from tests.support.workers import worker
from turnkeeper.errors import AlreadyLanded, OutcomeUnknown, Unavailable

CUTS_PER_STORY, STORIES = 400, 6
SECONDS = 20.0
HISTORIES, HISTORY_STEPS, RULE_LEAST = 200, 50, 50


class Failed(Exception):
    """A run found something."""


def check(holds: bool, what: object) -> None:
    """Raise Failed unless it holds."""
    if not holds:
        raise Failed(str(what)[:2000])


async def cuts(folder: Path, times: int) -> str:
    """Cut the power at thousands of moments."""
    cut = landed = 0
    for number in range(STORIES * times):
        trace, ledger = await recorded(folder / f"played-{number}", turns=300, seed=1000 * number)
        chosen = moments(trace, CUTS_PER_STORY, seed=number)
        place = folder / f"cut-{number}"
        place.mkdir()
        faults = await sweep(trace, ledger, chosen, place, keep=False)
        check(not faults, faults)
        cut, landed = cut + len(chosen), landed + len(ledger.landed)
    lost = []
    for name, durability, honest in (("normal", "normal", True), ("lying", "full", False)):
        trace, ledger = await recorded(folder / name, durability, turns=300)  # type: ignore[arg-type]
        place = folder / f"cut-{name}"
        place.mkdir()
        chosen = moments(trace, 200, seed=7)
        lost.append(len(await sweep(trace, ledger, chosen, place, honest=honest, keep=False)))
        check(lost[-1] >= 50, f"the control {name} lost turns in {lost[-1]} of {len(chosen)} cuts only")
    return f"{cut} cuts over {landed} turns: 0 lost; controls: normal {lost[0]} of 200, lying disk {lost[1]} of 200"


async def processes(folder: Path, times: int) -> str:
    """Share one file between processes."""
    figures = []
    for count in (2, 4):
        url = str(folder / f"{count}.db")
        names = [[f"s{process}-{i}" for i in range(8)] for process in range(count)]
        await made(url, *itertools.chain(*names))
        async with AsyncExitStack() as stack:
            others = await together(stack, "numbers", url, names, seconds=SECONDS * times)
            told = [(await other.expect("landed", SECONDS * times + 60))[1] for other in others]
        shares = [sum(landed.values()) for landed in told]
        check(max(shares) <= 2 * min(shares), shares)
        for landed in told:
            await check_numbers(url, landed)
        figures.append(f"{count} processes {sum(shares) / (SECONDS * times):.0f} turns/s, shares {shares}")
    return "; ".join(figures)


async def killing(url: str, lives: int, lease_s: float) -> str:
    """Kill a worker again and again, in the middle of whatever it does."""
    chance, ledger = random.Random(9), Ledger()
    names = [f"s{i}" for i in range(4)]
    await made(url, *names)
    slowest = 0.0
    for life in range(lives):
        async with worker("play", url=url, sessions=names, first=1000 * life, seed=life, lease_s=lease_s) as other:
            await other.expect("ready")
            for _ in range(chance.randrange(1, 200)):
                ledger.hear(await other.hear() or [""])
            await asyncio.sleep(chance.random() / 50)
            other.kill()
            for said in await other.hear_all():
                ledger.hear(said)
        started = time.monotonic()
        async with turnkeeper.open(url) as store:
            faults = await faults_of_store(store, ledger)
            check(not faults, faults)
            for name in names:
                await (await store.session(name)).claim(wait_s=lease_s + 10)
            slowest = max(slowest, time.monotonic() - started)
    return f"{lives} kills, {len(ledger.landed)} turns: 0 lost; all sessions taken over within {slowest:.2f} s"


async def kills(folder: Path, times: int) -> str:
    """Kill a worker on SQLite."""
    return await killing(str(folder / "story.db"), 60 * times, 30)


async def insist(ledger: Ledger, session: turnkeeper.Session, key: str) -> int:
    """Play a turn until it has landed; answer how often it was refused."""
    from msgspec import to_builtins

    refused = 0
    while True:
        try:
            await ledger.play(session, key)
            return refused
        except AlreadyLanded as landed:
            ledger.hear(["landed", key, to_builtins(landed.turn)])
            return refused
        except Unavailable as error:
            refused += 1
            ledger.hear(["over", key])
            if isinstance(error, OutcomeUnknown):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.002)


async def disk(folder: Path, times: int) -> str:
    """Play on a disk that fails now and then; every turn is repeated until it has landed."""
    refused = failed = landed = 0
    for seed in range(20 * times):
        chance = random.Random(seed)

        def refuse(change: Change, chance: random.Random = chance) -> BaseException | None:
            if change.op not in ("write", "sync") or change.role != "wal" or chance.random() > 0.004:
                return None
            return failed_write() if chance.random() < 0.5 else disk_full()

        with Disk() as failing:
            path, ledger = folder / f"{seed}.db", Ledger()
            store = await open_store(path, vfs=failing.name)
            sessions = [await store.create_session(f"s{i}") for i in range(8)]
            failing.refuse = refuse

            async def play(session: turnkeeper.Session, ledger: Ledger = ledger) -> int:
                return sum([await insist(ledger, session, f"{session.session_id}-{i}") for i in range(40)])

            refused += sum(await asyncio.gather(*(play(session) for session in sessions)))
            failing.refuse = None
            failed += failing.refused
            await store.close()
        faults = faults_of_file(path, ledger)
        check(not faults, faults)
        landed += len(ledger.landed)
    return f"{failed} failures of the disk, {refused} turns refused and repeated, {landed} landed: 0 lost, 0 twice"


async def postgres(folder: Path, times: int) -> str:
    """Cut connections, restart the server, kill workers."""
    from tests.support.postgres import fresh_schema_url, restart, server, terminate_backends

    with server() as running:
        url, ledger, refused, restarts = fresh_schema_url(running.url), Ledger(), 0, 0
        async with turnkeeper.open(url) as store:
            sessions = [await store.create_session(f"s{i}") for i in range(8)]
            ends = time.monotonic() + SECONDS * times

            async def play(session: turnkeeper.Session) -> int:
                count, number = 0, 0
                while time.monotonic() < ends:
                    count += await insist(ledger, session, f"{session.session_id}-{number}")
                    number += 1
                return count

            playing = asyncio.gather(*(play(session) for session in sessions))
            chance = random.Random(4)
            while time.monotonic() < ends:
                await asyncio.sleep(chance.random())
                if chance.random() < 0.15:
                    await asyncio.to_thread(restart, running, chance.choice(["fast", "immediate"]))
                    restarts += 1
                else:
                    await terminate_backends(url, only=chance.choice(["%land%", None]))
            refused = sum(await playing)
            faults = await faults_of_store(store, ledger)
            check(not faults, faults)
        killed = await killing(fresh_schema_url(running.url), 30 * times, 0.5)
    return f"{restarts} restarts, {refused} turns refused and repeated, {len(ledger.landed)} landed: 0 lost; {killed}"


def searched(folder: Path, histories: int) -> str:
    """Play random histories on the three backends, states compared after every step."""
    from tests.machine.test_history import a_world, search, table, too_rare
    from tests.support.postgres import server

    with server() as running, a_world(folder, lambda: running.url) as world:
        search(world, histories, HISTORY_STEPS, derandomize=False)
        check(not (rare := too_rare(world, RULE_LEAST)), f"fired less than {RULE_LEAST} times: {rare}\n{table(world)}")
        return f"{histories} histories of {HISTORY_STEPS} steps on three backends: no difference\n{table(world)}"


async def histories(folder: Path, times: int) -> str:
    """Search for a history that a backend shows otherwise than plain lists do."""
    return await asyncio.to_thread(searched, folder, HISTORIES * times)


RUNS: dict[str, Callable[[Path, int], Awaitable[str]]] = {
    run.__name__: run for run in (cuts, processes, kills, disk, postgres, histories)
}


def main() -> int:
    """Run what was asked for, everything by default."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description="Run the long fault runs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which runs: {', '.join(RUNS)} (default: all)")
    parser.add_argument("--times", type=int, default=1, help="how many times as long")
    asked = parser.parse_args()
    if wrong := set(asked.names) - RUNS.keys():
        parser.error(f"there is no run {', '.join(sorted(wrong))}")
    worst = 0
    for name in asked.names or RUNS:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="tk-soak-") as folder:
            try:
                figures = asyncio.run(RUNS[name](Path(folder), asked.times))
            except Failed as failure:
                figures, worst = f"FAILED: {failure}", 1
            except (AssertionError, ExceptionGroup) as failure:  # of a search: with the history that shows it
                figures, worst = "FAILED: " + "".join(traceback.format_exception(failure, limit=-3)), 1
        print(f"{name:10} {time.monotonic() - started:5.0f} s  {figures}", flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main())
