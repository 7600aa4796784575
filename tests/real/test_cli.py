"""The command line: what it prints, as people and as programs read it, and the exit code it ends with."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

import turnkeeper
from turnkeeper import errors
from turnkeeper.cli import commands, finding, screen
from turnkeeper.cli.exits import EXIT_CODES
from turnkeeper.jsonvalue import same

SAMPLES = Path(__file__).parent.parent / "data" / "samples"
EXPECTED = json.loads((SAMPLES / "expected.json").read_text(encoding="utf-8"))["entries"]
FILES = sorted(name for name in EXPECTED if name.startswith("sillytavern/") and (SAMPLES / name).is_file())
PACKAGE = str(Path(turnkeeper.__file__).parents[1])


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TURNKEEPER_STORE", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "story.db")


def run(*arguments: Any, store: str | None = None, code: int = 0, **options: Any) -> Result:
    named = [*map(str, arguments), *(["--store", store] if store is not None else [])]
    result = CliRunner().invoke(commands, named, catch_exceptions=False, **options)
    assert result.exit_code == code, result.output
    return result


def run_json(*arguments: Any, store: str, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", store=store, code=code).stdout)


def import_sample(name: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = run_json("import", SAMPLES / "sillytavern" / f"{name}.jsonl", store=path)
    return found


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "turnkeeper.cli", *arguments],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": PACKAGE, **environment},
        timeout=60,
        check=False,
    )


def check_width(text: str, columns: int = 80) -> None:
    wide = [line for line in text.splitlines() if cell_len(line) > columns]
    assert not wide, wide[:3]
    assert not [line for line in text.splitlines() if line != line.rstrip()], "blanks at the end of a line"


@pytest.mark.parametrize("name", ["modern", "old-2023", "crlf"])
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_import_as_json_has_what_is_expected(url: str, name: str) -> None:
    expected = EXPECTED[f"sillytavern/{name}.jsonl"]
    found = import_sample(name, url)
    assert found["added"] == 1 and found["session_ids"] == [session["session_id"] for session in found["sessions"]]
    for key in ("format", "file_sha256", "totals"):
        assert found[key] == expected[key]
    for got, wanted in zip(found["sessions"], expected["sessions"], strict=True):
        assert got["added"] is True
        assert all(got[key] == wanted[key] for key in wanted if key != "takes")
        for take, wanted_take in zip(got["takes"], wanted["takes"], strict=True):
            assert all(same(take[key], wanted_take[key]) for key in wanted_take if not key.startswith("extension_"))
    told = [(loss["kind"], loss["where"]) for loss in found["loss_report"]]
    assert all((loss["kind"], loss["where"]) in told for loss in expected["loss_report"])
    again = import_sample(name, url)
    assert again.pop("added") == 0 and [session.pop("added") for session in again["sessions"]] == [False]
    del found["added"], found["sessions"][0]["added"]
    assert again == found


@pytest.mark.parametrize("name", FILES)
def test_every_sample_goes_through_every_command_in_80_columns(name: str, path: str) -> None:
    """Texts with control signs, right-to-left marks, lone surrogates and 200 kB on one line among them."""
    described = run_json("import", SAMPLES / name, store=path)
    outputs = [run("import", SAMPLES / name, store=path), run("list", store=path)]
    for session_id in described["session_ids"]:
        for command in ("show", "tree", "state"):
            run_json(command, session_id, store=path)
            outputs.append(run(command, session_id, store=path))
        outputs.append(run("tree", session_id, "--all", store=path))
        outputs.append(run("show", session_id, "--all", store=path))
    for output in outputs:
        check_width(output.stdout)
        assert not output.stderr
        for sign in "\x1b\x00\u2028\u202e\ud800":
            assert sign not in output.stdout


def test_list_show_state_and_delete(path: str) -> None:
    session_id = import_sample("modern", path)["session_ids"][0]
    (listed,) = run_json("list", store=path)["sessions"]
    assert (listed["session_id"], listed["title"], listed["takes"], listed["messages"]) == (
        session_id,
        "modern",
        1,
        120,
    )
    shown = run_json("show", session_id, store=path)
    assert len(shown["messages"]) == 120 and shown["messages"][0]["versions"] == 3
    assert [m["position"] for m in run_json("show", session_id, "--last", 3, store=path)["messages"]] == [117, 118, 119]
    lines = run("show", session_id, store=path).stdout.splitlines()
    assert [line[:5].strip() for line in lines if line[:3].strip().isdigit()] == [str(n) for n in range(100, 120)]
    variables = EXPECTED["sillytavern/modern.jsonl"]["sessions"][0]["takes"][0]["variables"]
    for at in ([], ["--at", "0"], ["--at", "119", "--take", "0"]):
        assert same(run_json("state", session_id, *at, store=path)["state"], {"vars": variables})
    assert run_json("delete", session_id, store=path) == {"deleted": session_id, "title": "modern"}
    assert run_json("list", store=path)["sessions"] == []
    gone = run("show", session_id, store=path, code=1)
    assert "[gone]" in gone.stderr and not gone.stdout
    assert import_sample("modern", path)["added"] == 1


def test_tree_draws_takes_versions_and_the_shown_line(path: str) -> None:
    session_id = import_sample("modern", path)["session_ids"][0]

    async def change() -> int:
        async with turnkeeper.open(path) as store:
            session = await store.session(session_id)
            await store.history.select_swipe(session_id, 0, 2)
            other = await session.fork(at=1, name="what if", activate=True)
            await store.history.select_swipe(session_id, 0, 1, take=other.take)
            await other.append("assistant", "Elsewhere.", name="Mira")
            return other.take

    other = asyncio.run(change())
    lines = run("tree", "modern", store=path).stdout.splitlines()
    assert "2 takes, 121 messages, 255 versions" in lines[0]
    top = lines.index("take 0 'modern'")
    assert lines[top + 1].startswith("┃    0 Keeper Odal ○○● ")
    at = next(i for i, line in enumerate(lines) if "what if" in line)
    assert lines[at] == "│ ╰─ take 1 'what if', forked from 1, another version at 0  ◀ shown"
    assert lines[at - 1].startswith("┃    1 Wren") and lines[at + 1].startswith("│    ┃    2 Mira        ● Elsewhere.")
    assert lines[at + 2].startswith("│    2 Keeper Odal ○● ")
    found = run_json("tree", session_id, store=path)
    assert found["versions_total"] == 255
    assert [(take["take"], take["active"], take["parent_position"]) for take in found["takes"]] == [
        (0, False, None),
        (other, True, 1),
    ]
    assert [m["on_shown_line"] for m in found["takes"][0]["messages"][:4]] == [True, True, False, False]
    assert [(m["position"], m["shared"], m["shown"]) for m in found["takes"][1]["messages"]] == [
        (0, True, 1),
        (1, True, 0),
        (2, False, 0),
    ]


def test_a_session_is_named_by_id_beginning_or_title(path: str) -> None:
    async def make() -> None:
        async with turnkeeper.open(path) as store:
            await store.create_session("alpha-1", title="Cellar")
            await store.create_session("alpha-2", title="attic", space="elsewhere")
            await store.create_session("beta", title="attic")
            await store.create_session("alpha", title="beta")
            gone = await store.create_session("gone-1")
            await gone.delete()

    asyncio.run(make())

    def means(name: str) -> Any:
        return run_json("show", name, store=path)["session_id"]

    assert means("alpha-1") == means("alpha-1") == means("cellar") == "alpha-1"
    assert means("alpha") == "alpha" and means("beta") == "beta"  # a whole id wins
    assert means("bet") == "beta"
    for name in ("alph", "attic", "alpha-"):
        refused = run("show", name, store=path, code=2)
        assert "[invalid]" in refused.stderr and "means" in refused.stderr
    assert "[gone]" in run("show", "gone-1", store=path, code=1).stderr
    for name in ("nothing", "gone", "", "%"):
        assert "[not-found]" in run("show", name, store=path, code=1).stderr


def test_ids_are_shortened_as_far_as_they_stay_apart() -> None:
    ids = ["01a2-3456-7890-a", "01a2-3456-7890-b", "02", "01a2-3456-0000-c"]
    short = finding.shorten(ids)
    assert short["02"] == "02" and short["01a2-3456-7890-a"] == ids[0] and short["01a2-3456-0000-c"] == ids[3][:13]
    assert len(set(short.values())) == 4


def all_errors(kind: type[errors.TurnkeeperError] = errors.TurnkeeperError) -> Iterator[type[errors.TurnkeeperError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from all_errors(below)


def test_every_error_code_has_its_exit_code() -> None:
    codes = {kind.code for kind in all_errors() if kind.__module__.startswith("turnkeeper.")}
    assert codes <= set(EXIT_CODES)
    assert set(EXIT_CODES.values()) == {0, 1, 2}


def test_an_error_is_one_block_with_its_code(path: str, tmp_path: Path) -> None:
    missing = run("list", store=path, code=1)
    assert not missing.stdout and not Path(path).exists()
    lines = missing.stderr.splitlines()
    assert lines[0].startswith("turnkeeper: There is no database at") and "[unavailable]" in missing.stderr
    assert "  No file was made." in lines
    (tmp_path / "photo.jsonl").write_bytes(b"\xff\xd8\xff\xe0\x00")
    refused = run("import", tmp_path / "photo.jsonl", store=path, code=2)
    assert "[invalid]" in refused.stderr and not Path(path).exists()
    (tmp_path / "card.json").write_text('{"spec": "chara_card_v2", "data": {}}')
    assert "[invalid]" in run("import", tmp_path / "card.json", store=path, code=2).stderr
    import_sample("crlf", path)
    for at in ("99", "-1"):
        assert "[not-found]" in run("state", "crlf", "--at", at, store=path, code=1).stderr
    assert "[not-found]" in run("show", "crlf", "--take", "7", store=path, code=1).stderr
    foreign = tmp_path / "other.db"
    foreign.write_text("no database at all, but long enough to be looked at as one " * 20)
    for command in (["list"], ["import", SAMPLES / "sillytavern" / "crlf.jsonl"]):
        refused = run(*command, store=str(foreign), code=1)
        assert refused.stderr.startswith("turnkeeper:") and "Traceback" not in refused.stderr
    for output in (missing.stderr, refused.stderr):
        check_width(output)


def test_wrong_usage_ends_with_2(tmp_path: Path) -> None:
    for arguments in (
        ["list"],
        ["show", "x"],
        ["frobnicate"],
        ["import", str(tmp_path / "none.jsonl"), "--store", "x"],
    ):
        result = run(*arguments, code=2)
        assert "Error" in result.stderr and not result.stdout
    assert "TURNKEEPER_STORE" in run("list", code=2).stderr


def test_the_store_may_come_from_the_environment(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import_sample("crlf", path)
    monkeypatch.setenv("TURNKEEPER_STORE", path)
    assert "crlf" in run("list").stdout
    monkeypatch.setenv("TURNKEEPER_STORE", "")
    run("list", code=2)


def test_a_session_that_is_owned_is_not_deleted(path: str) -> None:
    async def own() -> None:
        async with turnkeeper.open(path) as store:
            async with await store.create_session("mine"):
                result = await asyncio.to_thread(run, "delete", "mine", store=path, code=1)
                assert "[session-busy]" in result.stderr

    asyncio.run(own())
    run("delete", "mine", store=path)


def test_an_empty_file_and_an_empty_store_are_said_to_be_so(path: str) -> None:
    assert "empty" in run("import", SAMPLES / "sillytavern" / "empty.jsonl", store=path).stdout
    assert "No sessions" in run("list", store=path).stdout
    assert run_json("list", store=path)["sessions"] == []


def test_help_has_an_example_for_every_command() -> None:
    top = run("--help").stdout
    for name, command in commands.commands.items():
        assert f"  {name} " in top and "..." not in top.partition("Commands:")[2]
        text = run(name, "--help").stdout
        assert re.search(rf"Examples?:\n    turnkeeper {name}", text) and command.help
        check_width(text)
        options = {option for p in command.params if isinstance(p, click.Option) for option in p.opts}
        assert ("--json" in options) == (name not in ("demo", "completion"))
    assert run("--version").stdout == f"turnkeeper {turnkeeper.__version__}\n"


def test_the_command_line_loads_only_what_it_needs() -> None:
    """Drivers and the printing library cost more than everything else at the start."""
    code = "import sys, turnkeeper.cli; print(*sorted({'apsw', 'asyncpg', 'rich', 'turnkeeper.cli.tree'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env={**os.environ, "PYTHONPATH": PACKAGE}, check=True
    )
    assert done.stdout.split() == []


def test_output_is_plain_when_piped_and_coloured_only_where_wanted(path: str) -> None:
    import_sample("modern", path)
    for environment in ({}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}):
        done = process("tree", "modern", "--store", path, **environment)
        assert done.returncode == 0 and b"\x1b" not in done.stdout and not done.stderr
    assert b"\x1b[" in process("tree", "modern", "--store", path, FORCE_COLOR="1").stdout
    narrow = process("show", "modern", "--store", path, COLUMNS="50").stdout.decode()
    check_width(narrow, 50)


def test_output_survives_a_terminal_that_knows_only_ascii(path: str) -> None:
    import_sample("odd-text", path)
    for command in ("show", "tree", "state"):
        done = process(command, "odd-text", "--store", path, PYTHONIOENCODING="ascii")
        assert done.returncode == 0 and done.stdout.isascii() and not done.stderr
        as_json = process(command, "odd-text", "--json", "--store", path, PYTHONIOENCODING="ascii")
        assert json.loads(as_json.stdout) == run_json(command, "odd-text", store=path)


def test_json_keeps_every_sign(path: str) -> None:
    import_sample("odd-text", path)
    (file,) = [name for name in FILES if "odd-text" in name]
    texts = [json.loads(line)["mes"] for line in (SAMPLES / file).read_bytes().split(b"\n")[1:] if line]
    assert [m["text"] for m in run_json("show", "odd-text", store=path)["messages"]] == texts
    done = process("show", "odd-text", "--json", "--store", path)
    assert [m["text"] for m in json.loads(done.stdout)["messages"]] == texts


def test_foreign_text_cannot_steer_the_terminal() -> None:
    assert screen.clean("a\x1b[2Jb\x9bc\u202ed\r\ne\tf\ud800") == "a�[2Jb�c�d\ne    f�"
    assert screen.one_line(" a\n\n b ") == "a b"
    assert screen.fit("界界界", 5) == "界界…" and screen.fit("abc", 3) == "abc" and screen.fit("abc", 0) == ""
