"""The demo runs to its end, checks what it claims, really kills a process, and leaves other people's files alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

import turnkeeper
from turnkeeper.cli import commands
from turnkeeper.cli.demo import stage, story, tour
from turnkeeper.handles import Session
from turnkeeper.history.content import text_of
from turnkeeper.transfer.summaries import summary

PACKAGE = str(Path(turnkeeper.__file__).parents[1])


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TURNKEEPER_STORE", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def demo(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(commands, ["demo", "--fast", *arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def ask(*arguments: str, store: str = stage.FILE) -> Any:
    result = CliRunner().invoke(commands, [*arguments, "--json", "--store", store], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_demo_runs_to_its_end_in_a_process_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "turnkeeper.cli", "demo", "--fast"],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": PACKAGE},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert not [line for line in lines if cell_len(line) > 80] and "\x1b" not in done.stdout
    assert sum(line.startswith("   ✓ ") for line in lines) >= 12 and "✗" not in done.stdout
    for words in ("was killed", "nothing of the turn half landed", f"“{story.ANSWER_INPUT}”", "Look around:"):
        assert words in done.stdout
    assert (tmp_path / stage.FILE).exists()


def test_what_it_leaves_is_what_it_says(tmp_path: Path) -> None:
    """The file is an ordinary store, and every command the demo ends with works on it."""
    said = demo().stdout
    commands_shown = [line.strip() for line in said.splitlines() if line.startswith("  ") and "--store" in line]
    for line in commands_shown[:3]:
        words = line.partition("turnkeeper")[2].removeprefix(".cli").split()
        assert CliRunner().invoke(commands, words).exit_code == 0, line
    assert len(commands_shown) == 4
    tree = ask("tree", story.TITLE)
    assert [(take["active"], take["parent_position"], len(take["messages"])) for take in tree["takes"]] == [
        (True, None, 30),
        (False, story.FORK_AT, story.FORK_AT + 3),
    ]
    assert tree["status"] == "completed"
    assert ask("state", story.TITLE)["state"]["vars"] == {
        "lamp": "lit", "oil": 1, "keys": '["brass"]', "trust": 2, "weather": "rain", "step": 7, "ansel": "awake",
    }  # fmt: skip
    texts = [message["text"] for message in ask("show", story.TITLE)["messages"]]
    assert texts.count(story.STEP_INPUT) == texts.count(story.ANSWER_INPUT) == 1


def test_a_claim_that_does_not_hold_ends_the_demo_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    async def choose_nothing(*_: Any, **__: Any) -> None: ...

    monkeypatch.setattr(Session, "choose", choose_nothing)
    said = demo(code=1).stdout
    assert "✗ not so: the state went with it" in said and "Look around:" not in said


def test_a_worker_that_is_not_killed_in_its_turn_ends_the_demo_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour, "WORKER", "turnkeeper.cli.exits")  # a program that does nothing
    assert "✗ not so: the worker is inside the turn" in demo(code=1).stdout


async def test_the_worker_is_killed_in_the_middle_of_its_turn(tmp_path: Path) -> None:
    """The scene without the stage: what another process finds after SIGKILL."""
    path = tmp_path / "story.db"
    async with turnkeeper.open(path) as store:
        (report,) = await store.transfer.import_chat(story.read_chat())
        before = summary(await store.transfer.stored(report.session_id))
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", tour.WORKER, str(path), report.session_id,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": PACKAGE},
    )  # fmt: skip
    assert worker.stdout is not None
    assert (await worker.stdout.readline()).decode().strip() == story.INSIDE
    async with turnkeeper.open(path) as store:
        session = await store.session(report.session_id)
        assert (await session.info()).status == "running"
        with pytest.raises(turnkeeper.SessionBusy):
            await session.claim()
        worker.kill()
        assert await worker.wait() == -signal.SIGKILL
        assert (await session.info()).status == "abandoned"
        assert summary(await store.transfer.stored(report.session_id)) == before
        (pending,) = await session.pending()
        assert (pending.state, text_of(pending.input)) == ("running", story.ANSWER_INPUT)
        await session.take_turn(story.answer, story.ANSWER_INPUT, key=story.ANSWER_KEY)
        assert await session.pending() == []


def test_a_file_that_is_there_is_never_touched(tmp_path: Path) -> None:
    mine = tmp_path / "mine.db"
    mine.write_text("my own words")
    refused = demo("--store", str(mine), code=2)
    assert "[invalid]" in refused.stderr and mine.read_text() == "my own words"
    taken = tmp_path / stage.FILE
    taken.write_text("also mine")
    assert "turnkeeper-demo-2.db" in demo().stdout
    assert taken.read_text() == "also mine" and (tmp_path / "turnkeeper-demo-2.db").exists()
    for url in ("memory:", "postgresql://localhost/x"):
        assert "[invalid]" in demo("--store", url, code=2).stderr


def test_a_named_file_is_made_where_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a folder" / "demo file.db"
    assert "[unavailable]" in demo("--store", str(path), code=1).stderr
    path.parent.mkdir()
    said = demo("--store", str(path)).stdout
    assert path.exists() and not (tmp_path / stage.FILE).exists()
    assert f"--store '{path}'" in said


def test_the_shipped_chat_is_a_whole_one() -> None:
    chat = story.read_chat()
    (take,) = chat.sessions[0].takes
    assert len(take.messages) == 24 and take.messages[-1].role == "assistant" and take.variables
    assert max(len(message.versions) for message in take.messages) > 2
    assert [loss.kind for loss in chat.losses] == ["variables_without_history"]
