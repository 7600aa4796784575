"""Every command's example runs as it stands in its help, and what people see is kept as golden files.

`GOLDEN=write` in the environment writes the golden files anew; read what changed before you keep it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import turnkeeper
from tests.real.test_cli import check_width, process, run, run_json
from tests.support.sealed import raw
from turnkeeper.cli import commands
from turnkeeper.cli.completing import names
from turnkeeper.clock import ManualClock

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
ROOT = Path(__file__).parents[2]
CHAT = b'{"user_name":"Maren","character_name":"Joss"}\n{"name":"Joss","is_user":false,"mes":"You are late."}\n'


@pytest.fixture(autouse=True)
def a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TURNKEEPER_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TURNKEEPER_STORE", "story.db")
    (tmp_path / "chat.jsonl").write_bytes(CHAT)
    (tmp_path / "keeper.png").write_bytes((ROOT / "tests/data/samples/cards/v3.png").read_bytes())


async def play(path: str = "story.db", **options: Any) -> None:
    """An evening in the cellar: 16 messages, two versions of a reply, a fork that goes another way, a cut."""
    numbers = itertools.count(1)
    made = {"clock": ManualClock(), "ids": lambda: f"01a20000-0000-7000-8000-{next(numbers):012d}", **options}
    async with turnkeeper.open(path, **made) as store:
        session = await store.create_session(title="Cellar")
        for number in range(1, 9):
            async with session.turn(f"I go down step {number}.") as turn:
                turn.vars["step"] = number
                turn.vars["place"] = "stairs" if number < 8 else "cellar"
                turn.reply(f"Step {number} creaks. It is {'darker' if number % 2 else 'colder'} here.")
        async with session.regenerate() as turn:
            turn.vars["step"] = 8
            turn.vars["place"] = "wine cellar"
            turn.vars["bottles"] = 12
            turn.reply("The last step is wet. *Twelve bottles look back at you.*")
        await session.cut(2, 3)
        other = await session.fork(13, name="the other door")
        async with other.turn("I turn round.") as turn:
            turn.vars["place"] = "hall"
            turn.reply("The door above you has closed.")


def examples() -> list[tuple[str, str]]:
    found = []
    for name, command in commands.commands.items():
        lines = [line.strip() for line in (command.epilog or "").splitlines() if line.strip().startswith("turnkeeper")]
        assert lines, f"{name} has no example"
        found += [(name, line) for line in lines]
    return found


@pytest.mark.parametrize(("name", "example"), examples())
def test_the_example_of_each_command_runs_as_it_stands(name: str, example: str) -> None:
    asyncio.run(play())
    words = shlex.split(example.partition(" > ")[0])
    assert words[0] == "turnkeeper" and words[1] == name
    if name == "demo":
        words.append("--fast")  # as a reader would wait for it
    if name == "watch":
        words += ["--seconds", "0.2"]
    if "--restore" in words:
        run("backup", "kept.db")
    if name == "redo":
        run("undo", "cellar")
    if name == "restore":
        run("cut", "cellar", "4", "7-9")
    result = CliRunner().invoke(commands, words[1:], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert result.output.strip()
    if name not in ("completion", "demo"):
        check_width(result.output)


def test_every_command_is_in_the_documentation() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    missing = [name for name in commands.commands if f"`turnkeeper {name}" not in text]
    assert not missing


LOOKS = {
    "tree": ["tree", "cellar", "--all"],
    "show": ["show", "cellar", "--all"],
    "state": ["state", "cellar"],
    "state-at": ["state", "cellar", "--at", "5"],
    "diff": ["diff", "cellar", "0:13", "0:"],
    "diff-takes": ["diff", "cellar", "0:", "1:"],
    "list": ["list"],
    "choose": ["choose", "cellar"],
    "check": ["check"],
    "cut": ["cut", "cellar", "15"],
    "undo": ["undo", "cellar"],
}


@pytest.mark.parametrize("look", LOOKS)
def test_what_people_see_is_what_was_reviewed(look: str) -> None:
    asyncio.run(play())
    seen = run(*LOOKS[look]).output
    check_width(seen)
    kept = GOLDEN / f"{look}.txt"
    if os.environ.get("GOLDEN") == "write":
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(seen)
    assert seen == kept.read_text()


def test_a_diff_as_json_has_both_sides_and_every_field() -> None:
    asyncio.run(play())
    found = run_json("diff", "cellar", "0:13", "0:", store="story.db")
    assert [m["text"] for m in found["messages_only_after"]] == [
        "I go down step 8.", "The last step is wet. *Twelve bottles look back at you.*"]  # fmt: skip
    assert found["messages_only_before"] == []
    changed = {row["name"]: (row.get("before"), row.get("after")) for row in found["state"]}
    assert changed == {"step": (7, 8), "place": ("stairs", "wine cellar"), "bottles": (None, 12)}
    assert "before" not in next(row for row in found["state"] if row["name"] == "bottles")


def test_changes_say_what_became_of_the_state() -> None:
    asyncio.run(play())
    found = run_json("choose", "cellar", "1", store="story.db")
    assert {row["name"]: row.get("after") for row in found["state"]} == {"place": "cellar", "bottles": None}
    assert run_json("undo", "cellar", store="story.db")["undone"] == 1
    cut = run_json("cut", "cellar", "6-8", "15", store="story.db")
    assert cut["cut"] == [6, 7, 8, 15]
    assert {row["name"]: row["after"] for row in cut["state"] if "after" in row} == {"step": 7, "place": "stairs"}
    assert run_json("restore", "cellar", "6-8", "15", store="story.db")["restored"] == [6, 7, 8, 15]
    assert run_json("undo", "cellar", "--steps", "500", store="story.db")["undone"] > 2
    assert run_json("undo", "cellar", store="story.db") | {"state": []} == run_json("undo", "cellar", store="story.db")
    assert run_json("redo", "cellar", "--steps", "2", store="story.db")["redone"] == 2


@pytest.mark.parametrize("words", [["x"], ["3-1"], ["-"], ["1,2"], ["99999999999999999999"], ["400"], ["1:2"]])
def test_positions_that_are_none_are_refused_and_nothing_moves(words: list[str]) -> None:
    asyncio.run(play())
    before = run_json("tree", "cellar", store="story.db")
    result = CliRunner().invoke(commands, ["cut", "cellar", "--", *words], catch_exceptions=False)
    assert result.exit_code in (1, 2)
    assert run_json("tree", "cellar", store="story.db") == before


@pytest.mark.parametrize("point", ["x", "", ":", "1:2:3", "-1", "7:1", "0:999"])
def test_points_that_are_none_are_refused(point: str) -> None:
    asyncio.run(play())
    result = CliRunner().invoke(commands, ["diff", "cellar", "--", point], catch_exceptions=False)
    assert result.exit_code in (1, 2) and "Traceback" not in result.output


def test_check_tells_repair_mends_and_the_exit_code_says_so() -> None:
    asyncio.run(play())
    assert run_json("check", store="story.db")["unwell"] == []
    raw("story.db", "UPDATE versions SET parts = '[{\"torn' WHERE version = 4")
    listed = run_json("list", store="story.db")
    assert [session["damaged"] for session in listed["sessions"]] == [None]
    told = run_json("check", store="story.db", code=1)
    ((finding,),) = (session["findings"] for session in told["unwell"])
    assert (finding["kind"], finding["take"], finding["position"]) == ("damaged-row", 0, 4)
    assert "message 4" in run_json("list", store="story.db")["sessions"][0]["damaged"]
    text = run("check", code=1).output
    assert "damaged-row" in text and "message 4" in text and "--repair" in text
    check_width(text)
    check_width(run("list").output)
    run("check", "--repair")
    assert run_json("check", store="story.db")["unwell"] == []
    shown = [m["position"] for m in run_json("show", "cellar", store="story.db")["messages"]]
    assert 4 not in shown and len(shown) == 13


def test_a_sealed_store_is_opened_with_a_key_file_or_a_passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(play("sealed.db", key=b"k" * 32))
    Path("key").write_bytes(b"k" * 32)
    monkeypatch.setenv("TURNKEEPER_STORE", "sealed.db")
    assert "wrong-key" in run("list", code=1).output
    assert len(run_json("list", "--key-file", "key", store="sealed.db")["sessions"]) == 1
    run("backup", "kept.db", "--key-file", "key")
    monkeypatch.setenv("TURNKEEPER_KEY", "open sesame")
    run("backup", "kept.db", "--restore", "--backup-key-file", "key", store="other.db")
    assert len(run_json("list", store="other.db")["sessions"]) == 1
    monkeypatch.delenv("TURNKEEPER_KEY")
    Path("phrase").write_text("open sesame\n")
    assert run_json("show", "cellar", "--key-file", "phrase", store="other.db")["messages"]
    Path("bad").write_bytes(b"\xff\xfe")
    assert "Traceback" not in run("list", "--key-file", "bad", store="other.db", code=2).output


def test_watch_prints_what_lands_in_another_process() -> None:
    asyncio.run(play())
    script = (
        "import asyncio, turnkeeper\n"
        "async def main():\n"
        "    async with turnkeeper.open('story.db') as store:\n"
        "        await asyncio.sleep(0.5)\n"
        "        session = (await store.sessions())[0]\n"
        "        session = await store.session(session.session_id)\n"
        "        await session.append('user', 'Is anybody there?')\n"
        "asyncio.run(main())\n"
    )
    Path("late.py").write_text(script)
    import subprocess
    import sys

    from tests.real.test_cli import PACKAGE

    late = subprocess.Popen([sys.executable, "late.py"], env={**os.environ, "PYTHONPATH": PACKAGE})
    try:
        done = process("watch", "cellar", "--last", "1", "--seconds", "4", "--json")
    finally:
        late.wait()
    lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert [line["text"] for line in lines][-1] == "Is anybody there?" and len(lines) == 2


def test_completion_knows_commands_and_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(play())
    assert names("story.db", "ce") == ["Cellar"]
    assert names(None, "") == ["Cellar", "01a20000-0000-7000-8000-000000000001"]
    assert names("nowhere.db", "") == [] and not Path("nowhere.db").exists()
    for shell in ("bash", "zsh", "fish"):
        assert "_TURNKEEPER_COMPLETE" in run("completion", shell).output
    monkeypatch.setenv("_TURNKEEPER_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "turnkeeper sh")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert "show" in process().stdout.decode()


def test_no_command_makes_a_file_but_import_and_a_restore() -> None:
    for name, command in commands.commands.items():
        if name in ("import", "demo", "completion", "backup"):
            continue
        arguments = [
            "1" for parameter in command.params if isinstance(parameter, click.Argument) and parameter.required
        ]
        result = CliRunner().invoke(commands, [name, *arguments, "--store", "nowhere.db"], catch_exceptions=False)
        assert result.exit_code == 1, (name, result.output)
        assert not list(Path().glob("nowhere*")), name
