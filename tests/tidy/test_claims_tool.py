"""The count of claims: what makes one count, what the recorder refuses, and that our lists fit the specification."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spec import claims as tool
from spec.claims import Claim, Run, lacking, read_claims, read_list
from tests.tidy.tree import ROOT

HEAD = "id\tarea\tbackends\tclaim\tcheck\n"
FILES = {
    "spec/claims/transactions.tsv": HEAD + "T-001\tlocks\tall\tA.\tB.\nT-002\tlocks\tsqlite\tA.\tB.\n",
    "spec/claims/scene.tsv": HEAD + "S-001\tslots\tn.a.\tA.\tB.\nS-002\tslots\tmemory,sqlite\tA.\tB.\n",
    "spec/claims/sessions.tsv": HEAD.replace("backends", "method") + "R-001\tidentity\tcreate\tA.\tB.\n",
    "spec/field-cases.md": "| case | kind |\n|---|---|\n| F-1 | lock |\n",
    "pytest.ini": "[pytest]\npythonpath = .\ntestpaths = tests\naddopts = --import-mode=importlib --strict-markers\n"
    "markers =\n    claim(*ids): claims\n    field(*ids): field cases\n",
}
GOOD = """
import pytest

@pytest.mark.parametrize("backend", ["memory", "sqlite", pytest.param("postgres", id="pg")])
@pytest.mark.claim("T-001", "T-002")
def test_locks(backend): ...

@pytest.mark.claim("S-001")
@pytest.mark.field("F-1")
def test_slots(): ...

@pytest.mark.claim("S-002")
@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_skips(backend):
    if backend == "sqlite":
        pytest.skip("no")

@pytest.mark.claim("R-001")
@pytest.mark.parametrize("backend", ["memory", "sqlite", "postgres"])
def test_fails(backend):
    assert backend != "postgres"
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A project with five claims and the real plugin."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("conftest.py", "spec/claims.py", "tests/plugins/claims.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def run(root: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the small project's tests."""
    (root / "tests/test_small.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)


def test_a_full_run_is_recorded_and_counted(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each marked test with its backend and outcome; skipped and failed ones prove nothing."""
    done = run(small, GOOD, "--record-claims")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.fullmatch(r"1 failed, 7 passed, 1 skipped in .*", done.stdout.splitlines()[-1])
    record = json.loads((small / ".claims.json").read_text())["claims"]
    assert {(entry["backend"], entry["outcome"]) for entry in record["R-001"]} == {
        ("memory", "passed"),
        ("sqlite", "passed"),
        ("postgres", "failed"),
    }
    assert [entry["backend"] for entry in record["S-001"]] == ["none"]
    assert tool.main([], small) == 0
    assert capsys.readouterr().out.splitlines() == [
        "T locks 2/2",
        "S slots 1/2",
        "R identity 0/1",
        "TOTAL 3/5",
    ]
    assert tool.main(["--missing", "slots"], small) == 0
    assert "S-002 [memory, sqlite] nothing passed on sqlite" in capsys.readouterr().out


def test_lists_change_the_count_and_unknown_ids_fail_it(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not applicable is not counted, waiting is shown, a bench row proves its claim."""
    folder = small / "spec/claims"
    (small / ".claims.json").write_text('{"claims": {}}')
    (folder / "not_applicable.txt").write_text("S-001 D52\n")
    (folder / "waiting.txt").write_text("# later\nT-002 after the lock file\n")
    (folder / "bench.txt").write_text("R-001 seq\n")
    (small / "bench").mkdir()
    (small / "bench/results.json").write_text('[{"row": "seq", "met": true}]')
    assert tool.main([], small) == 0
    assert capsys.readouterr().out.splitlines() == [
        "T locks 0/2 1 wait",
        "S slots 0/2 1 n.a.",
        "R identity 1/1",
        "TOTAL 1/5",
    ]
    (folder / "waiting.txt").write_text("T-999 never\n")
    assert tool.main([], small) == 1
    (folder / "waiting.txt").write_text("")
    (small / ".claims.json").write_text('{"claims": {"T-998": []}}')
    assert tool.main([], small) == 1
    errors = capsys.readouterr().err
    assert "waiting.txt names 'T-999'" in errors
    assert ".claims.json names 'T-998'" in errors


def test_without_a_record_it_says_what_to_do(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is guessed."""
    assert tool.main([], small) == 1
    assert "run `make test` first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ('claim("T-404")', "unknown claim 'T-404'"),
        ('claim("T-001", "T-002", "S-001", "S-002")', "4 claims on one test, at most 3"),
        ('field("F-404")', "unknown field case 'F-404'"),
        ("claim()", "a mark without an id"),
    ],
)
def test_a_mark_that_does_not_fit_ends_the_run(small: Path, mark: str, message: str) -> None:
    """Before any test, with the test's name."""
    done = run(small, f"import pytest\n@pytest.mark.{mark}\ndef test_x(): ...\n")
    assert done.returncode == 4
    assert f"test_small.py::test_x: {message}" in done.stdout + done.stderr


@pytest.mark.parametrize("narrow", [("-k", "locks"), ("tests/test_small.py",), ("--claim-area", "locks")])
def test_a_narrowed_run_is_never_recorded(small: Path, narrow: tuple[str, ...]) -> None:
    """Half a run would count as the whole."""
    done = run(small, GOOD, "--record-claims", *narrow)
    assert done.returncode == 4
    assert "is for a full run" in done.stderr
    assert not (small / ".claims.json").exists()


def test_a_run_broken_off_is_never_recorded(small: Path) -> None:
    """Neither after -x nor when a file could not be read."""
    assert run(small, GOOD.replace("assert backend", "assert not backend"), "--record-claims", "-x").returncode == 1
    assert run(small, "import nowhere", "--record-claims").returncode == 2
    assert not (small / ".claims.json").exists()


def test_an_area_runs_alone_and_says_what_it_lacks(small: Path) -> None:
    """What an author uses while writing an area's tests."""
    done = run(small, GOOD, "--claim-area", "T locks")
    assert done.returncode == 0
    assert "T locks: 2/2 proved by this run" in done.stdout
    assert "3 passed, 6 deselected" in done.stdout


@pytest.mark.parametrize(
    ("backends", "runs", "lacks"),
    [
        (("memory", "sqlite"), [("memory", "passed"), ("sqlite", "passed")], ""),
        (("memory", "sqlite"), [("memory", "passed")], "nothing passed on sqlite"),
        (("memory",), [("memory", "passed"), ("sqlite", "failed")], "failed: t"),
        (("memory",), [("none", "passed")], "nothing passed on memory (no `backend` parameter?)"),
        (("memory",), [("memory", "xfailed")], "no passing test, only xfailed"),
        ((), [("none", "passed")], ""),
        ((), [("postgres", "passed")], ""),
        ((), [("none", "skipped")], "no passing test, only skipped"),
        ((), [], "no test"),
    ],
)
def test_what_a_claim_lacks(backends: tuple[str, ...], runs: list[tuple[str, str]], lacks: str) -> None:
    """Every backend it names must have a passing test, and no marked test may fail."""
    claim = Claim("T-001", "T locks", backends, "", "")
    assert lacking(claim, [Run("t", backend, outcome) for backend, outcome in runs]) == lacks


def test_our_specification_is_whole() -> None:
    """1,638 claims, and lists that name only claims; 34 + 3 + 2 of them are not applicable."""
    claims = read_claims()
    assert len(claims) == 1638
    decided = list(read_list("not_applicable.txt", claims).values())
    assert (decided.count("D44"), decided.count("D52"), len(decided)) == (37, 2, 39)
    assert all(read_list("waiting.txt", claims).values()), "give a reason with each waiting claim"
    assert all(read_list("bench.txt", claims).values()), "name the bench row with each claim"
