"""House rules kept by tests, so that reviews can be about ideas. Each message says what to do instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.tidy import tree
from tests.tidy.tree import Definition, Module

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
BACKEND_LINES_MAX = 700

# Only these may ask the machine for the time, an id or chance; all others are handed a clock and an id source.
CLOCK_AND_IDS = {"clock.py", "ids.py"}
# Chance for back-off, and for nothing else: two losers of a race must not meet again at once.
MAY_JITTER = {"store/engine.py", "store/sqlite.py", "store/postgres.py"}
# Modules outside store/ that read other programs' databases, never our own. Each needs an ADR.
READS_FOREIGN_SQL: set[str] = set()

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
SQL = re.compile(
    r"\bSELECT\s[^;]*?\sFROM\s|\bINSERT\s+(OR\s+\w+\s+)?INTO\s|\bUPDATE\s+\S+\s+SET\s|\bDELETE\s+FROM\s"
    r"|\b(CREATE|DROP|ALTER)\s+(UNIQUE\s+)?(TABLE|INDEX|FUNCTION)\s|^\s*(SELECT|PRAGMA|SAVEPOINT|BEGIN IMMEDIATE)\b"
    r"|(?i:^\s*(select\s.+\sfrom\s|insert\s+into\s|update\s+\w+\s+set\s|delete\s+from\s+\w+\s+where\s))",
    re.DOTALL,
)
UNSTEADY = {
    "time": {"time", "time_ns"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "uuid": {"uuid1", "uuid4"},
    "random": None,  # anything
}


def report(rule: str, found: Iterable[str]) -> None:
    """Fail with the rule and every place that breaks it."""
    places = list(found)
    if places:
        pytest.fail(rule + "\n  " + "\n  ".join(places), pytrace=False)


def test_no_module_is_too_long() -> None:
    """A module of more than 500 lines holds two nouns."""
    report(
        f"Split by noun: a module has at most {MODULE_LINES_MAX} lines.",
        (f"{m.where}: {len(m.lines)}" for m in tree.modules() if len(m.lines) > MODULE_LINES_MAX),
    )


def test_every_module_says_what_it_is() -> None:
    """The first line of a module tells a newcomer what it is."""
    report(
        "Give the module a docstring: what it is in one sentence, then its rules and limits.",
        (m.where for m in tree.modules() if not ast.get_docstring(m.syntax)),
    )


def public_without_docstring(module: Module) -> Iterator[str]:
    """Yield the public functions, classes and methods that say nothing."""
    functions = {name for name, node in module.definitions() if not isinstance(node, ast.ClassDef)}
    for name, node in module.definitions():
        private = any(part.startswith("_") for part in name.split("."))
        inside_function = any(name.startswith(f"{function}.") for function in functions)
        if not private and not inside_function and not _said_elsewhere(node) and not ast.get_docstring(node):
            yield f"{module.where}:{node.lineno} {name}"


def _said_elsewhere(node: Definition) -> bool:
    """Overloads and setters are described by the function they belong to."""
    words = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return bool(words & {"overload", "setter", "deleter", "override"})


def test_every_public_name_has_a_docstring() -> None:
    """What is public is described; a docstring that repeats the signature is worth nothing, so say what it promises."""
    report(
        "Write a docstring (what it promises, units, errors), or make the name private.",
        (line for module in tree.modules() for line in public_without_docstring(module)),
    )


def test_a_function_fits_on_a_screen() -> None:
    """Sixty lines from `def` to the end, docstring included."""
    report(
        f"Take a part out and name it: a function has at most {FUNCTION_LINES_MAX} lines.",
        (
            f"{module.where}:{node.lineno} {name}: {lines}"
            for module in tree.modules()
            for name, node in module.definitions()
            if not isinstance(node, ast.ClassDef)
            and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
        ),
    )


def test_nothing_is_left_unfinished() -> None:
    """No notes to self, and no operation a backend may leave out."""
    report(
        "Finish it, or open an issue and take the note out; no operation is optional.",
        (
            f"{module.where}:{number}: {found.group()}"
            for module in tree.modules()
            for number, line in enumerate(module.lines, 1)
            if (found := UNFINISHED.search(line))
        ),
    )


def sql_texts(module: Module) -> Iterator[str]:
    """Yield the string constants (docstrings aside) that read like SQL."""
    docstrings = module.docstrings()
    for node in ast.walk(module.syntax):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in docstrings else None
        if isinstance(text, str) and SQL.search(text):
            yield f"{module.where}:{node.lineno}: {' '.join(text.split())[:60]}"


def test_sql_is_only_in_the_store() -> None:
    """The first law: meaning above the waist, rows below it."""
    report(
        "Use the verbs of the transaction. SQL lives in store/ alone, or an operation exists once for each backend.",
        (
            line
            for module in tree.modules()
            if not module.where.startswith("store/") and module.where not in READS_FOREIGN_SQL
            for line in sql_texts(module)
        ),
    )


def unsteady_calls(module: Module) -> Iterator[tuple[int, str]]:
    """Yield the places that ask the machine for the time, an id or chance: (line, source module)."""
    for node in ast.walk(module.syntax):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            source, name = ast.unparse(node.func.value).rpartition(".")[2], node.func.attr
            if source in UNSTEADY and (UNSTEADY[source] is None or name in UNSTEADY[source]):
                yield node.lineno, source
        elif isinstance(node, ast.ImportFrom) and node.module in ("time", "uuid", "random"):
            allowed = UNSTEADY[node.module]
            if any(allowed is None or alias.name in allowed for alias in node.names):
                yield node.lineno, node.module


def test_time_ids_and_chance_are_passed_in() -> None:
    """The store decides what time it is; a run with a fixed clock and ids repeats exactly."""
    report(
        "Take the store's clock or id source as an argument (`tx.now()`); only clock.py and ids.py ask the machine.",
        (
            f"{module.where}:{line}: {source}"
            for module in tree.modules()
            if module.where not in CLOCK_AND_IDS
            for line, source in unsteady_calls(module)
            if not (source == "random" and module.where in MAY_JITTER)
        ),
    )


def test_a_backend_stays_small() -> None:
    """A backend, with every module that only it imports, is read in one sitting."""
    found = tree.modules()
    graph, lines = tree.imports(found), {module.name: len(module.lines) for module in found}
    costs = {}
    for backend in ("memory", "sqlite", "postgres"):
        own = tree.only_for(f"turnkeeper.store.{backend}", graph)
        costs[backend] = (sum(lines[name] for name in own), ", ".join(sorted(own)))
    report(
        f"A backend answers reads and lands write sets, in at most {BACKEND_LINES_MAX} lines with its own modules. "
        "Move what has meaning above the waist.",
        (f"{name}: {total} lines in {own}" for name, (total, own) in costs.items() if total > BACKEND_LINES_MAX),
    )


# Written in pieces, so that this file does not find itself.
HOSTS = ("py" + "pi.org", "python" + "hosted", "artifact" + "ory", "jf" + "rog", "dev" + "pi/", "index" + "-url")
PLACES = ("/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/", "/Us" + "ers/", "/tmp" + "/w/", "/tmp/" + "bash")
LEAKS = re.compile("|".join(map(re.escape, HOSTS)) + r"|(?<![\w.])(?:" + "|".join(map(re.escape, PLACES)) + r")\w")


def test_no_file_names_a_build_machine() -> None:
    """What is committed works anywhere: no package registry's address, no path of somebody's machine."""
    report(
        "Say it without the address or path: packages come by name, files are relative or made by tmp_path.",
        (
            f"{path.relative_to(tree.ROOT)}:{number}: {found.group()}"
            for path in tree.tracked_files()
            for number, line in enumerate(_text_lines(path), 1)
            if (found := LEAKS.search(line))
        ),
    )


def _text_lines(path: Path) -> list[str]:
    content = path.read_bytes()
    return [] if b"\0" in content[:8192] else content.decode("utf-8", "replace").splitlines()


class TestTheRulesThemselves:
    """Each rule must be able to find something."""

    def module(self, tmp_path: Path, text: str, where: str = "room.py") -> Module:
        path = tmp_path / "turnkeeper" / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return Module(path, tmp_path)

    def test_public_names_are_told_from_private_ones(self, tmp_path: Path) -> None:
        module = self.module(
            tmp_path,
            "def bare(): ...\n"
            "def _private(): ...\n"
            "class Bare:\n    def method(self): ...\n    def _private(self): ...\n    def __len__(self): ...\n"
            "def said():\n    '''Say.'''\n    def inner(): ...\n",
        )
        found = [line.split()[1] for line in public_without_docstring(module)]
        assert found == ["bare", "Bare", "Bare.method"]

    @pytest.mark.parametrize(
        ("text", "is_sql"),
        [
            ('x = "SELECT a FROM b "', True),
            ('x = f"DELETE FROM {table} WHERE 1"', True),
            ('x = "insert into t values (1)"', True),
            ('def f():\n    """SELECT x FROM y WHERE z."""', False),
            ('x = "select one of these or delete it"', False),
            ('x = "Update the title, then set it"', False),
        ],
    )
    def test_sql_is_told_from_prose(self, tmp_path: Path, text: str, is_sql: bool) -> None:
        assert bool(list(sql_texts(self.module(tmp_path, text)))) is is_sql

    @pytest.mark.parametrize(
        "text",
        ["import time\ntime.time()", "from datetime import datetime\ndatetime.now()", "from uuid import uuid4",
         "import random\nrandom.random()", "import datetime\ndatetime.datetime.now()"],
    )  # fmt: skip
    def test_the_machines_time_and_chance_are_found(self, tmp_path: Path, text: str) -> None:
        assert list(unsteady_calls(self.module(tmp_path, text)))

    def test_the_stores_clock_and_monotonic_time_are_not(self, tmp_path: Path) -> None:
        assert not list(unsteady_calls(self.module(tmp_path, "import time\ntime.monotonic()\nclock.now()\ntx.now()")))

    def test_a_backends_own_modules_are_those_nothing_else_imports(self) -> None:
        graph = {
            "s.sqlite": {"s.sql", "s.lock", "s.pages"},
            "s.postgres": {"s.sql"},
            "s.sql": {"s.row"},
            "s.lock": {"s.file"},
            "s.file": {"s.lock"},
            "s.pages": set(),
            "s.row": set(),
            "api": {"s.sqlite", "s.postgres", "s.pages"},
        }
        assert tree.only_for("s.sqlite", graph) == {"s.sqlite", "s.lock", "s.file"}
        assert tree.only_for("s.postgres", graph) == {"s.postgres"}

    def test_relative_and_absolute_imports_are_followed(self, tmp_path: Path) -> None:
        init = self.module(tmp_path, "from . import a\n", "store/__init__.py")
        a = self.module(tmp_path, "from .b import x\nfrom ..clock import now\n", "store/a.py")
        b = self.module(tmp_path, "import turnkeeper.clock\nfrom turnkeeper import store\n", "store/b.py")
        clock = self.module(tmp_path, "", "clock.py")
        assert tree.imports([init, a, b, clock]) == {
            "turnkeeper.store": {"turnkeeper.store.a"},
            "turnkeeper.store.a": {"turnkeeper.store.b", "turnkeeper.clock"},
            "turnkeeper.store.b": {"turnkeeper.clock", "turnkeeper.store"},
            "turnkeeper.clock": set(),
        }

    @pytest.mark.parametrize("place", PLACES)
    def test_a_path_of_a_machine_is_found(self, place: str) -> None:
        assert LEAKS.search(f'open("{place}x")')
        assert not LEAKS.search(f"https://example.org{place}x")
