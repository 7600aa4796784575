"""The tour itself: seven small scenes on one file. Whatever it claims on the screen it has just read from the store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

import turnkeeper

from ...api import Store
from ...api import open as open_store
from ...handles import Session
from ...history.content import text_of
from ...history.fold import VARS
from ...jsonvalue import same
from ...records import EVENTS, MESSAGES, VERSIONS
from ...store.reading import Rows
from ...turns.play import Turn
from ..tree import print_forest, read_forest
from . import story
from .stage import ClaimFailed, Stage

WORKER = f"{__package__}.worker"
SHOWN = ("lamp", "oil", "trust", "weather", "boots")
_WORKER_S = 30


class Kept(msgspec.Struct, frozen=True):
    """What a session holds, counted and read in one go; two equal ones mean that nothing has changed."""

    shown: list[tuple[int, int]]  # position and version
    state: dict[str, Any]
    messages: int  # rows, over all takes
    versions: int
    events: int


async def play_tour(stage: Stage, file: Path) -> None:
    """Play everything. Raises ClaimFailed."""
    stage.out.print("Turnkeeper keeps an AI's turns: whole, or not at all.", style="bold")
    async with open_store(file) as store:
        cave = await _import(stage, store, file)
        await _play(stage, cave)
        await _regenerate(stage, cave)
        await _fork(stage, store, cave)
        await _retry(stage, cave)
        before = await _count(store, cave.session_id)
    await _kill(stage, file, cave.session_id)
    await _recover(stage, file, cave.session_id, before)


async def _import(stage: Stage, store: Store, file: Path) -> Session:
    await stage.chapter("A chat comes in", "await store.transfer.import_chat(sillytavern.read(name, content))")
    chat = story.read_chat()
    (report,) = await store.transfer.import_chat(chat)
    session_id = report.session_id
    await stage.note(f"A SillyTavern file with all its swipes, now in {file}")
    await _draw(stage, store, session_id)
    stage.out.print()
    kept = await _count(store, session_id)
    await stage.claim(
        await store.transfer.stored(session_id) == chat,
        f"{kept.messages} messages and {kept.versions} versions read back equal to the file",
    )
    (again,) = await store.transfer.import_chat(chat)
    await stage.claim(
        not again.added and again.session_id == session_id and len(await store.sessions()) == 1,
        "the same file again adds nothing",
    )
    return await store.session(session_id)


async def _play(stage: Stage, cave: Session) -> None:
    await stage.chapter("A turn", f'await cave.take_turn(play, "{story.LIGHT_INPUT}")')
    before = (await cave.state())[VARS]
    await stage.state(before, title="before", only=SHOWN)
    await cave.take_turn(story.light, story.LIGHT_INPUT)
    await _tell(stage, cave, 2)
    after = (await cave.state())[VARS]
    await stage.state(after, title="after", only=SHOWN)
    await stage.claim(
        (before["lamp"], after["lamp"], after["oil"]) == ("dark", "lit", before["oil"] - 1),
        "the words and the state they changed landed together",
    )


async def _regenerate(stage: Stage, cave: Session) -> None:
    first = (await cave.state())[VARS]
    position = (await cave.messages(last=1))[0].position
    base = (await cave.state(at=position - 1))[VARS]
    await stage.chapter("Another version", "async with cave.regenerate() as turn: …")
    async with cave.regenerate() as turn:
        seen = dict(turn.vars)
        await story.flood(turn)
    await _tell(stage, cave, 1)
    second = (await cave.state())[VARS]
    await stage.claim(
        same(seen, base) and seen["lamp"] == "dark", "it began from the state before the reply: lamp dark"
    )
    await stage.state(second, title="now", only=SHOWN)
    await stage.claim(second["lamp"] == "dark" and second["boots"] == "wet", "the lamp is dark, and the boots are wet")
    await stage.chapter("Back to the first", "await cave.choose(0)")
    await cave.choose(0)
    await _tell(stage, cave, 1)
    now = (await cave.state())[VARS]
    await stage.state(now, title="now", only=SHOWN)
    await stage.claim(same(now, first) and "boots" not in now, "the state went with it: lamp lit, boots dry")
    await stage.claim(
        [one.shown for one in await cave.alternatives()] == [True, False], "both versions are there; the first is shown"
    )


async def _fork(stage: Stage, store: Store, cave: Session) -> None:
    await stage.chapter("What if …", f'other = await cave.fork(at={story.FORK_AT}, name="the guest who slept")')
    before = await _count(store, cave.session_id)
    other = await cave.fork(at=story.FORK_AT, name="the guest who slept")
    forked = await _count(store, cave.session_id)
    ours, theirs = await cave.messages(), await other.messages()
    await stage.claim(
        forked.versions == before.versions and [m.version for m in theirs] == [m.version for m in ours[: len(theirs)]],
        f"{len(theirs)} messages shared with the story, no text copied",
    )
    await other.take_turn(story.sleep, story.SLEEP_INPUT)
    await _tell(stage, other, 2)
    here, there = (await cave.state())[VARS], (await other.state())[VARS]
    await stage.state(here, title="story", only=("lamp", "oil", "trust"))
    await stage.state(there, title="other", only=("lamp", "oil", "trust"))
    now = await _count(store, cave.session_id)
    await stage.claim(
        same(now.state, before.state) and now.shown == before.shown and there["trust"] != here["trust"],
        "neither leaks into the other",
    )
    await _draw(stage, store, cave.session_id)


async def _retry(stage: Stage, cave: Session) -> None:
    await stage.chapter("A retry", f'await cave.take_turn(play, "{story.STEP_INPUT}", key="{story.STEP_KEY}")')
    played = 0

    async def play(turn: Turn) -> None:
        nonlocal played
        played += 1
        await story.step(turn)

    first = await cave.take_turn(play, story.STEP_INPUT, key=story.STEP_KEY)
    await _tell(stage, cave, 2)
    length = len(await cave.messages())
    await stage.note("The client never saw the answer and asks again, with the same key:")
    second = await cave.take_turn(play, story.STEP_INPUT, key=story.STEP_KEY)
    await stage.claim(
        played == 1 and first == second and len(await cave.messages()) == length,
        "nothing ran twice; the stored answer came back",
    )


async def _kill(stage: Stage, file: Path, session_id: str) -> None:
    await stage.chapter("kill -9", f'await cave.take_turn(play, "{story.ANSWER_INPUT}", key="{story.ANSWER_KEY}")')
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", WORKER, str(file), session_id,
        stdout=asyncio.subprocess.PIPE, env=_environment(),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = b""
        with contextlib.suppress(TimeoutError):
            line = await asyncio.wait_for(process.stdout.readline(), _WORKER_S)
        if line.decode().strip() != story.INSIDE:
            raise ClaimFailed("the worker is inside the turn")
        await stage.note(f"Process {process.pid} is in the turn: its reply is written, nothing has landed yet.")
        process.kill()
        ended = await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            if process.returncode is None:
                process.kill()
                await process.wait()
    killed = not hasattr(signal, "SIGKILL") or ended == -signal.SIGKILL
    await stage.claim(killed, f"process {process.pid} was killed, without a chance to clean up")


async def _recover(stage: Stage, file: Path, session_id: str, before: Kept) -> None:
    await stage.chapter("And open it again", "async with turnkeeper.open(path) as store: …")
    started = time.monotonic()
    async with open_store(file, create=False) as store:
        cave = await store.session(session_id)
        took_ms = (time.monotonic() - started) * 1000
        now = await _count(store, session_id)
        await stage.claim(now == before, f"open after {took_ms:.0f} ms; nothing of the turn half landed")
        await stage.state(now.state[VARS], only=("lamp", "oil", "step", "ansel"))
        pending = await cave.pending()
        await stage.claim(
            [(one.key, text_of(one.input)) for one in pending] == [(story.ANSWER_KEY, story.ANSWER_INPUT)],
            f"its input is still there: “{story.ANSWER_INPUT}”",
        )
        await stage.claim((await cave.info()).status == "abandoned", "its dead owner no longer holds the session")
        landed = await cave.take_turn(story.answer, story.ANSWER_INPUT, key=story.ANSWER_KEY)
        await _tell(stage, cave, 2)
        after = await _count(store, session_id)
        await stage.state(after.state[VARS], only=("lamp", "oil", "step", "ansel"))
        await stage.claim(
            after.state[VARS]["ansel"] == "awake"
            and after.state[VARS]["oil"] == before.state[VARS]["oil"] - 1
            and (after.messages, after.versions) == (before.messages + 2, before.versions + 2)
            and landed is not None
            and len(landed.positions) == 2
            and not await cave.pending(),
            "the retry took it over and landed it, once",
        )
        await _draw(stage, store, session_id)
        stage.out.print()
        takes = len(await cave.takes())
        stage.out.print(
            f"Kept: {takes} takes, {after.versions} versions, one story. {stage.checked} claims checked, none by trust.",
            style="bold",
        )
    await stage.next_steps(file, story.TITLE)


async def _tell(stage: Stage, line: Any, last: int) -> None:
    """Print the last messages as they are stored."""
    for message in await line.messages(last=last):
        await stage.say("You" if message.role == "user" else message.name or message.role, message.text)


async def _draw(stage: Stage, store: Store, session_id: str) -> None:
    stage.out.print()
    print_forest(stage.out, await store.look(lambda rows: read_forest(rows, session_id), one_view=True), short=True)
    await stage.pause(1.2)


async def _count(store: Store, session_id: str) -> Kept:
    session = await store.session(session_id)

    async def rows_of(rows: Rows) -> tuple[int, int, int]:
        return (
            await rows.count(MESSAGES, session_id),
            await rows.count(VERSIONS, session_id),
            await rows.count(EVENTS, session_id),
        )

    messages, versions, events = await store.look(rows_of, one_view=True)
    shown = [(message.position, message.version) for message in await session.messages()]
    return Kept(shown, await session.state(), messages, versions, events)


def _environment() -> dict[str, str]:
    """Answer an environment in which the worker finds the same package."""
    package = str(Path(turnkeeper.__file__).resolve().parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))}
