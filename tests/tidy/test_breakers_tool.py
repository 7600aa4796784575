"""The replay of planted faults, tried on a tiny tree; and our own entries, which must still fit the source."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spec.breakers import BREAKERS, Breaker
from spec.claims import SpecError
from spec.replay import PACKAGE, Runner, choose, plant, replay_all
from tests.tidy.tree import ROOT

AREA = "T sums"
CLAIMS = "id\tarea\tbackends\tclaim\tcheck\nT-001\tsums\tn.a.\tAdds.\tAdd.\nT-002\tother\tn.a.\tTakes.\tTake.\n"
SUMS = '''"""Sums."""
import time
LIMIT = 10
def add(a, b):
    while a > LIMIT:
        time.sleep(0.01)
        break
    return a + b
def take(a, b):
    return a - b
'''
TESTS = """
import pytest
import turnkeeper

@pytest.mark.claim("T-001")
def test_adds():
    assert turnkeeper.add(20, 3) == 23

@pytest.mark.claim("T-002")
def test_takes():
    assert turnkeeper.take(2, 3) == -1
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A project with one module, two claims and the real plugin."""
    files = {
        "src/turnkeeper/__init__.py": SUMS,
        "spec/claims/transactions.tsv": CLAIMS,
        "tests/test_sums.py": TESTS,
        "pytest.ini": "[pytest]\npythonpath = .\ntestpaths = tests\n"
        "addopts = --import-mode=importlib --strict-markers\n"
        "markers =\n    claim(*ids): claims\n    field(*ids): field cases\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("conftest.py", "spec/claims.py", "tests/plugins/claims.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def runner(small: Path) -> Runner:
    """A runner over the small project."""
    return Runner(small, run_s=60, test_s=2)


def fault(old: str, new: str, file: str = "__init__.py", area: str = AREA) -> Breaker:
    """A breaker of the small project."""
    return Breaker(area, "T-001", file, old, new)


def test_untouched_code_is_green(runner: Runner) -> None:
    """The baseline runs the tests of the area alone."""
    outcome = runner.baseline(AREA)
    assert (outcome.verdict, outcome.detail) == ("MISSED", "1 marked tests passed")


def test_a_fault_that_a_marked_test_sees_is_caught(runner: Runner, small: Path) -> None:
    """The planted copy is what the test imports, and the tree stays as it was."""
    outcome = runner.replay(fault("a + b", "a - b"))
    assert outcome.caught, outcome
    assert outcome.detail == "by tests/test_sums.py::test_adds"
    assert (small / "src/turnkeeper/__init__.py").read_text() == SUMS


def test_a_fault_only_another_area_sees_is_missed(runner: Runner) -> None:
    """Being caught elsewhere is not being caught."""
    assert runner.replay(fault("a - b", "a + b")).verdict == "MISSED"


def test_a_hang_is_caught_and_named(runner: Runner) -> None:
    """A test that never ends did notice the fault, in its way."""
    outcome = runner.replay(fault("        break\n", ""))
    assert outcome.caught
    assert "(hang)" in outcome.detail


def test_a_run_that_does_not_end_is_ended(small: Path) -> None:
    """When no limit of a single test ends it, the limit of the run does."""
    runner = Runner(small, run_s=4, test_s=0)
    outcome = runner.replay(fault("        break\n", ""))
    assert outcome.caught
    assert "no end after 4 s" in outcome.detail


@pytest.mark.parametrize(
    ("breaker", "why"),
    [
        (fault("a * b", "a"), "0 times"),
        (fault("return", "yield"), "2 times"),
        (fault("a + b", "a + b"), "changes nothing"),
        (fault("a + b", "a +"), "not Python"),
        (fault("import time", "import thyme"), "could not collect"),
        (fault("a + b", "a + c"), "NameError"),
        (fault("x", "y", file="nowhere.py"), "there is no"),
    ],
)
def test_nonsense_is_a_broken_breaker(runner: Runner, breaker: Breaker, why: str) -> None:
    """A fault that nobody could ship proves nothing about the tests."""
    outcome = runner.replay(breaker)
    assert outcome.verdict == "broken breaker", outcome
    assert why in outcome.detail


def test_another_package_under_test_is_refused(runner: Runner, small: Path) -> None:
    """If the tests would import anything but the planted copy, the run breaks off."""
    other = small / "other" / "turnkeeper"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text(SUMS)
    (small / "conftest.py").write_text(f"import sys\nsys.path.insert(0, {str(other.parent)!r})\n" + CONFTEST)
    outcome = runner.replay(fault("a + b", "a - b"))
    assert outcome.verdict == "broken breaker"
    assert "is imported from" in outcome.detail


CONFTEST = (ROOT / "conftest.py").read_text("utf-8")


def test_the_last_line_counts_and_the_exit_code_tells(runner: Runner, capsys: pytest.CaptureFixture[str]) -> None:
    """All caught is 0; anything less is 1, and shows the fault."""
    good, missed = fault("a + b", "a - b"), fault("a - b", "a + b")
    assert replay_all([good], runner, 1) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1/1 caught"
    assert replay_all([good, missed], runner, 2) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1/2 caught"
    assert any(line.startswith("MISSED") for line in lines)


def test_nothing_is_planted_into_a_red_area(runner: Runner, small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A test that fails anyway would catch everything."""
    (small / "tests/test_sums.py").write_text(TESTS.replace("== 23", "== 24"))
    assert replay_all([fault("a + b", "a - b")], runner, 1) == 1
    assert "not green without a fault" in capsys.readouterr().out


def test_entries_are_chosen_by_area_claim_and_file(small: Path) -> None:
    """AREA= and ONLY= narrow the list; an entry whose claim is of another area is refused."""
    one, two = fault("a", "b"), Breaker("T other", "T-002", "store/sqlite.py", "a", "b")
    assert choose([one, two], "sums", "", small) == [one]
    assert choose([one, two], "", "sqlite", small) == [two]
    assert choose([one, two], "", "T-001", small) == [one]
    with pytest.raises(SpecError, match="no claim of area"):
        choose([fault("a", "b", area="T other")], "", "", small)


def test_our_own_breakers_still_fit_the_source(tmp_path: Path) -> None:
    """The source moves on; an entry whose text is gone protects nothing. Mend it in spec/breakers.py."""
    choose(BREAKERS, "", "")
    stale = []
    for breaker in BREAKERS:
        copy = tmp_path / PACKAGE / breaker.file
        copy.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / PACKAGE / breaker.file).exists():
            shutil.copy(ROOT / PACKAGE / breaker.file, copy)
        if wrong := plant(breaker, tmp_path):
            stale.append(f"{breaker.claim}: {wrong}")
    assert not stale, "\n".join(stale)
