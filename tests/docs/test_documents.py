"""The documents tell the truth: their Python runs, their links lead somewhere, what they name exists."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, tracked_files

RUNNABLE = ("README.md", "ARCHITECTURE.md", "docs/providers.md")
# A block says what it is. `python` always runs; the others never do. An unnamed block could hide code that rots.
LANGUAGES = {"python", "sh", "console", "text", "json", "sql", "toml", "mermaid"}

# The public names. A new one is a promise: add it here, in the documentation and in CHANGELOG.md.
PUBLIC = [
    "AlreadyLanded",
    "Conflict",
    "Damaged",
    "Duplicate",
    "Fenced",
    "Gone",
    "IncompatibleStore",
    "Invalid",
    "KeyReused",
    "LandedTurn",
    "Misuse",
    "NestedTransactionError",
    "NotAllowed",
    "NotFound",
    "OutcomeUnknown",
    "RootStoreWriteInTransactionError",
    "Session",
    "SessionBusy",
    "Store",
    "TakeHandle",
    "TooLarge",
    "Turn",
    "TurnBlock",
    "TurnkeeperError",
    "Tx",
    "Unavailable",
    "WrongKey",
    "WrongSession",
    "open",
]


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    line: int  # of its first line of content
    words: tuple[str, ...]  # what stands behind the fence: language, then flags
    text: str


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a Markdown text."""
    fence, start, words, content = "", 0, (), []
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"\s*(```+|~~~+)\s*(.*)$", line)
        if not fence and found:
            fence, start, words, content = found[1], number + 1, tuple(found[2].split()), []
        elif fence and found and found[1].startswith(fence) and not found[2]:
            yield Block(start, words, "\n".join(content) + "\n")
            fence = ""
        elif fence:
            content.append(line)
    assert not fence, f"the block that begins at line {start} is never closed"


def read(name: str) -> str:
    """Return a document that has to be there."""
    path = ROOT / name
    assert path.exists(), f"there is no {name}"
    return path.read_text("utf-8")


def documents() -> list[Path]:
    """Return every Markdown file of the project."""
    return [path for path in tracked_files() if path.suffix == ".md"]


def run_block(block: Block, name: str, names: dict[str, object], runner: asyncio.Runner) -> None:
    """Run one block; `await` and `async with` may stand at its top level, as readers write them."""
    source = "\n" * (block.line - 1) + block.text  # so that a traceback shows the document's own line numbers
    code = compile(source, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        runner.run(result)


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_python_block_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of one document run in order and share their names, as somebody typing them in would have it."""
    found = [block for block in blocks(read(name)) if block.words[:1] == ("python",)]
    assert not [b.line for b in found if len(b.words) > 1], "a Python block has no flags: it runs or it is not Python"
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for block in found:
            run_block(block, name, names, runner)


def test_the_readme_shows_python() -> None:
    """A first page without a running example is no first page."""
    assert any(block.words[:1] == ("python",) for block in blocks(read("README.md")))


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_block_says_what_it_is(name: str) -> None:
    """Write ```python, ```sh no-run, ```console, ```text …; only a shell block may carry no-run."""
    wrong = [
        f"line {block.line - 1}: {' '.join(block.words) or '(nothing)'}"
        for block in blocks(read(name))
        if not block.words
        or block.words[0] not in LANGUAGES
        or (block.words[1:] and (block.words[0] not in ("sh", "console") or block.words[1:] != ("no-run",)))
    ]
    assert not wrong, f"{name}: a block must begin with one of {sorted(LANGUAGES)}:\n  " + "\n  ".join(wrong)


def make_targets() -> set[str]:
    """Return the targets a person may ask for."""
    makefile = read("Makefile")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    return set(phony[1].split()) - {"python"}  # `python` only checks the version for the others


def test_every_target_is_in_the_help() -> None:
    """`make help` is the list people see."""
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make (\w+)", shown, re.MULTILINE)) == make_targets()


def test_every_target_a_document_names_exists() -> None:
    """A shell block, or text in backquotes, that says `make something`."""
    wrong = []
    for path in documents():
        text = path.read_text("utf-8")
        shell = "\n".join(block.text for block in blocks(text) if block.words[:1] in (("sh",), ("console",)))
        named = re.findall(r"^\s*(?:\$ )?make ([a-z]+)", shell, re.MULTILINE) + re.findall(r"`make ([a-z]+)", text)
        wrong += [f"{path.relative_to(ROOT)}: make {target}" for target in named if target not in make_targets()]
    assert not wrong, "\n".join(wrong)


def test_every_link_to_a_file_leads_somewhere() -> None:
    """Links are relative to the document, and anchors are not looked at."""
    wrong = []
    for path in documents():
        prose = re.sub(r"^\s*(```+|~~~+).*?^\s*\1\s*$|`[^`\n]*`", "", path.read_text("utf-8"), flags=re.M | re.S)
        for target in re.findall(r"\]\(<?([^)>\s]+)", prose) + re.findall(r"^\[[^]]+\]:\s+(\S+)", prose, re.M):
            file = target.partition("#")[0]
            if file and not re.match(r"[a-z]+:", target) and not (path.parent / file).exists():
                wrong.append(f"{path.relative_to(ROOT)}: {target}")
    assert not wrong, "links to files that are not there:\n  " + "\n  ".join(wrong)


def test_the_public_names_are_pinned() -> None:
    """What `import turnkeeper` promises changes only on purpose."""
    import turnkeeper

    assert turnkeeper.__file__, "turnkeeper has no __init__.py"
    assert sorted(turnkeeper.__all__) == sorted(PUBLIC)
    assert [name for name in PUBLIC if not hasattr(turnkeeper, name)] == []


class TestTheReaderOfBlocks:
    """The tool above must be able to fail."""

    def test_blocks_are_found_with_their_lines(self) -> None:
        text = "a\n```python\nx = 1\n```\n````sh no-run\nls\n```\n````\n"
        assert [(b.line, b.words, b.text) for b in blocks(text)] == [
            (3, ("python",), "x = 1\n"),
            (6, ("sh", "no-run"), "ls\n```\n"),
        ]

    def test_awaiting_blocks_share_names_and_raise_at_their_own_line(self) -> None:
        names: dict[str, object] = {}
        with asyncio.Runner() as runner:
            run_block(Block(5, (), "import asyncio\nx = await asyncio.sleep(0, 7)\n"), "D.md", names, runner)
            run_block(Block(9, (), "asyncio.run(asyncio.sleep(0))\ny = x + 1\n"), "D.md", names, runner)
            assert names["y"] == 8
            with pytest.raises(ZeroDivisionError) as caught:
                run_block(Block(20, (), "\n1 / 0\n"), "D.md", names, runner)
        assert caught.traceback[-1].lineno == 20  # counted from 0: line 21
