"""Other processes for tests: each plays a part against one database and says over a pipe what it was told.

    async with worker("play", url=url, sessions=["a", "b"], turns=50) as other:
        said = await other.hear()                # one acknowledgement: a list; None at the end of its output
        other.kill()                             # as if the machine had taken it; or .stop() and .go_on()

What was written before a kill is still heard. Every process is ended by its own id when the block ends. Run as a program
(`python -m tests.support.workers NAME JSON`) this module is the worker.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import turnkeeper

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0


class Worker:
    """One running process, seen from the test."""

    def __init__(self, running: asyncio.subprocess.Process) -> None:
        self._running = running
        self.killed = False

    async def hear(self, patience_s: float = PATIENCE_S) -> list[Any] | None:
        """Answer the next thing it says; None when it has ended."""
        assert self._running.stdout is not None
        line = await asyncio.wait_for(self._running.stdout.readline(), patience_s)
        return json.loads(line) if line.endswith(b"\n") else None

    async def hear_all(self) -> list[list[Any]]:
        """Answer everything it still says, to its end."""
        said = []
        while (one := await self.hear()) is not None:
            said.append(one)
        return said

    async def expect(self, kind: str, patience_s: float = PATIENCE_S) -> list[Any]:
        """Answer the next thing it says, which must be of this kind."""
        said = await self.hear(patience_s)
        assert said is not None and said[0] == kind, f"expected {kind!r}, heard {said}"
        return said

    async def tell(self, word: str) -> None:
        """Send it a word it may be waiting for."""
        assert self._running.stdin is not None
        self._running.stdin.write(word.encode() + b"\n")
        await self._running.stdin.drain()

    def kill(self) -> None:
        """End it without any warning."""
        self.killed = True
        self._running.kill()

    def stop(self) -> None:
        """Freeze it, as a suspended machine would."""
        self._running.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a frozen one go on, knowing nothing of the time that passed."""
        self._running.send_signal(signal.SIGCONT)


@asynccontextmanager
async def worker(part: str, **options: Any) -> AsyncIterator[Worker]:
    """Start a process that plays a part; it is gone when the block ends."""
    package = Path(turnkeeper.__file__).resolve().parents[1]
    path = os.pathsep.join([str(package), str(ROOT)])
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.workers", part, json.dumps(options),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path}, limit=1 << 20,
    )  # fmt: skip
    other = Worker(running)
    try:
        yield other
    finally:
        if running.returncode is None and not other.killed:
            with suppress(ProcessLookupError):
                other.kill()
        assert running.stdin is not None
        running.stdin.close()
        await running.wait()


# What follows runs in the other process.


def say(*said: Any) -> None:
    """Say one thing, whole: a kill comes before it or after it."""
    os.write(1, json.dumps(said).encode() + b"\n")


async def told() -> str:
    """Wait for a word from the test, without keeping the loop."""
    return (await asyncio.to_thread(sys.stdin.readline)).strip()


def opened(options: dict[str, Any]) -> Any:
    """Open the store that the options name."""
    given = {name: options[name] for name in ("owner", "lease_s", "create", "migrate") if name in options}
    return turnkeeper.open(options["url"], **given)


async def play(options: dict[str, Any]) -> None:
    """Play the story on some sessions until the turns are played or the time is up, and say every acknowledgement."""
    from tests.faults.story import Ledger, play_session

    ledger = Ledger(tell=lambda said: say(*said))
    ends = time.monotonic() + options.get("seconds", 1e9)
    async with opened(options) as store:
        handles = [await store.session(name) for name in options["sessions"]]
        say("ready")
        if options.get("wait"):
            await told()

        async def one(handle: turnkeeper.Session, seed: int) -> None:
            first = options.get("first", 0)
            while time.monotonic() < ends and first < options.get("turns", 1 << 30):
                await play_session(handle, ledger, options.get("slice", 5), seed + first, first=first)
                first += options.get("slice", 5)

        await asyncio.gather(*(one(handle, options.get("seed", 1) + i) for i, handle in enumerate(handles)))
    say("done")


async def numbers(options: dict[str, Any]) -> None:
    """Play plain turns on some sessions of its own, for a while or so many each; say at the end how many landed."""
    landed: dict[str, int] = dict.fromkeys(options["sessions"], 0)
    async with opened(options) as store:
        handles = [await store.session(name) for name in options["sessions"]]
        say("ready")
        await told()
        ends = time.monotonic() + options.get("seconds", 1e9)

        async def one(handle: turnkeeper.Session) -> None:
            name = handle.session_id
            while time.monotonic() < ends and landed[name] < options.get("turns", 1 << 30):
                async with handle.turn(f"turn {landed[name]}", key=f"k{landed[name]}") as turn:
                    turn.vars.add("n", 1)
                    turn.reply(f"reply {landed[name]}")
                landed[name] += 1

        await asyncio.gather(*(one(handle) for handle in handles))
    say("landed", landed)


async def hold(options: dict[str, Any]) -> None:
    """Enter a turn, say so, land it when told; then say what became of it and of a turn after it."""
    async with opened(options) as store:
        session = await store.session(options["session"])
        block = session.turn(options.get("input", "held"), key=options.get("key"))
        turn = await block.__aenter__()
        say("inside", (await session.info()).run_epoch)
        await told()
        turn.vars["held"] = True
        turn.reply("landed late")
        await _said(lambda: block.__aexit__(None, None, None))
        if options.get("again"):
            await told()
            await _said(lambda: session.take_turn(_again, "again", key="again"))
        await told()


async def _again(turn: Any) -> None:
    turn.reply("again")


async def _said(call: Callable[[], Awaitable[Any]]) -> None:
    try:
        await call()
    except turnkeeper.TurnkeeperError as error:
        say("refused", error.code, str(error))
    else:
        say("landed")


async def attach(options: dict[str, Any]) -> None:
    """Claim a session, with or without force, and say how that went; keep it until told."""
    async with opened(options) as store:
        session = await store.session(options["session"])
        await _said(lambda: session.claim(take_over=options.get("take_over", False)))
        await told()


async def forked(options: dict[str, Any]) -> None:
    """Own a session, and leave a forked child behind that knows nothing of it."""
    async with opened(options) as store:
        session = await store.session(options["session"])
        await session.claim()
        child = os.fork()
        if not child:
            os.close(1)
            time.sleep(60)  # noqa: ASYNC251 - there is no loop in this child
            os._exit(0)
        say("forked", child)
        await told()


async def foreign(options: dict[str, Any]) -> None:
    """Hold SQLite's write lock as a program that knows nothing of us."""
    connection = sqlite3.connect(options["path"], isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    say("locked")
    await told()
    connection.execute("ROLLBACK")
    connection.close()
    say("unlocked")


async def open_once(options: dict[str, Any]) -> None:
    """For each database: wait for the start, open it, make a session, and say how that went.

    `step`: with a schema one version on.
    """
    from tests.faults.stepped import open_stepped

    name = f"by-{os.getpid()}"
    for url in options.get("urls") or [options["url"]]:
        say("ready")
        await told()
        try:
            store = await (open_stepped(Path(url)) if options.get("step") else turnkeeper.open(url))
            await store.create_session(name)
            await store.close()
        except turnkeeper.TurnkeeperError as error:
            say("refused", error.code, str(error))
        else:
            say("opened", name)


async def limited(options: dict[str, Any]) -> None:
    """Play plain turns while no file may grow above a limit, then without it; say how each went."""
    async with opened(options) as store:
        session = await store.session(options["session"])
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        for number in range(options["turns"]):
            if number == options["full"]:
                log = Path(options["url"] + "-wal").stat().st_size
                resource.setrlimit(resource.RLIMIT_FSIZE, (options["limit"] or log + 10_000, hard))
            elif number == options["free"]:
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

            async def play_one(turn: Any, number: int = number) -> None:
                turn.vars["number"] = number
                turn.reply(f"reply {number} " + "word " * options["words"])

            await _said(lambda: session.take_turn(play_one, f"input {number}", key=f"k{number}"))  # noqa: B023
    say("done")


async def weak(options: dict[str, Any]) -> None:
    """Become nobody if this is root, then try to open a store, and say how that went."""
    async with turnkeeper.open(options["warm"]):
        import tests.faults.stepped  # noqa: F401 - whatever must be imported, while that is allowed

        await asyncio.to_thread(os.getpid)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    await open_once(options)


PARTS = {part.__name__: part for part in (play, numbers, hold, attach, forked, foreign, open_once, limited, weak)}

if __name__ == "__main__":
    asyncio.run(PARTS[sys.argv[1]](json.loads(sys.argv[2])))
