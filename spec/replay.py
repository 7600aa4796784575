"""Replays the planted faults of spec/breakers.py: `make breakers`, with AREA= and ONLY= to choose some.

For each fault: copy src/ to a temporary folder, plant the fault there, run the tests marked in its area against the
copy, and report

    caught          a marked test failed (its name follows), or hung: `caught (hang)`
    MISSED          every marked test passed
    broken breaker  the text is not there exactly once, or the planted code does not even import

Before any fault is planted, each area must pass on an untouched copy. The tree itself is never changed. The last line
is `n/n caught`; anything less exits 1.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from spec.breakers import BREAKERS, Breaker
from spec.claims import ROOT, SpecError, find_area, read_claims

PACKAGE = Path("src") / "turnkeeper"
PER_AREA_MIN = 4
INTERRUPT_GRACE_S = 15  # a hung run may still close its servers; then it is killed
NOT_A_CATCH = {"ImportError", "SyntaxError", "NameError"}  # the planted code is nonsense, not a fault


@dataclass(frozen=True)
class Outcome:
    """What became of one planted fault, or of a run on untouched code."""

    verdict: str  # caught | MISSED | broken breaker
    detail: str

    @property
    def caught(self) -> bool:
        """Tell whether a marked test found the fault."""
        return self.verdict == "caught"


@dataclass(frozen=True)
class Runner:
    """Runs an area's tests against a copy of the package."""

    root: Path = ROOT
    run_s: float = 300  # a whole run
    test_s: float = 60  # one test, unless it sets its own

    def baseline(self, area: str) -> Outcome:
        """Run an area on an untouched copy; "MISSED" is what we hope for: nothing failed."""
        with tempfile.TemporaryDirectory(prefix="breaker-") as folder:
            shutil.copytree(self.root / "src", Path(folder) / "src", ignore=shutil.ignore_patterns("__pycache__"))
            return self._run(area, Path(folder))

    def replay(self, breaker: Breaker) -> Outcome:
        """Plant one fault in a copy and run its area."""
        with tempfile.TemporaryDirectory(prefix="breaker-") as folder:
            shutil.copytree(self.root / "src", Path(folder) / "src", ignore=shutil.ignore_patterns("__pycache__"))
            if fault := plant(breaker, Path(folder)):
                return Outcome("broken breaker", fault)
            return self._run(breaker.area, Path(folder))

    def _run(self, area: str, folder: Path) -> Outcome:
        report = folder / "report.json"
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"--timeout={self.test_s:g}"]
        command += [f"--claim-area={area}", f"--claim-report={report}", f"--expect-package={folder / PACKAGE}"]
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(folder / "src"), os.environ.get("PYTHONPATH")))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),  # keep its finds out of the tree
        }
        with (folder / "output.txt").open("w+", encoding="utf-8") as output:
            code = _call(command, self.root, env, output, self.run_s)
            output.seek(0)
            tail = [line for line in output.read().splitlines() if line.strip()][-6:]
        if code is None:
            return Outcome("caught", f"(hang) no end after {self.run_s:g} s")
        if not report.exists():
            return Outcome("broken breaker", "the run broke off: " + " | ".join(tail))
        return judge(json.loads(report.read_text("utf-8")), tail)


def _call(command: Sequence[str], cwd: Path, env: dict[str, str], output: object, limit_s: float) -> int | None:
    """Run a command in a group of its own and return its exit code, or None if it had to be ended."""
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        for sign in (signal.SIGINT, signal.SIGKILL):
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, sign)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(INTERRUPT_GRACE_S)


def plant(breaker: Breaker, folder: Path) -> str:
    """Put a fault into the copy below `folder`; return what is wrong with the breaker, empty when it is planted."""
    path = folder / PACKAGE / breaker.file
    if not path.is_file():
        return f"there is no {PACKAGE / breaker.file}"
    source = path.read_text("utf-8")
    if (times := source.count(breaker.old)) != 1:
        return f"its text is in {breaker.file} {times} times, not once: {breaker.old!r}"
    planted = source.replace(breaker.old, breaker.new)
    if planted == source:
        return "it changes nothing"
    if path.suffix == ".py":
        try:
            ast.parse(planted)
        except SyntaxError as error:
            return f"the planted code is not Python: line {error.lineno}: {error.msg}"
    path.write_text(planted, "utf-8")
    return ""


def judge(report: dict[str, object], tail: Sequence[str]) -> Outcome:
    """Turn the plugin's report of a run into a verdict."""
    broken, failures = report["broken"], report["failures"]
    if broken:
        return Outcome("broken breaker", f"could not collect {', '.join(broken)}")
    if not report["tests"]:
        return Outcome("broken breaker", "no marked test ran: " + " | ".join(tail))
    if not failures:
        return Outcome("MISSED", f"{report['tests']} marked tests passed")
    first = failures[0]
    if NOT_A_CATCH & set(first["error"].split()):
        return Outcome("broken breaker", f"{first['test']} met {first['error'].split()[0]}: {first['text']}")
    hang = "(hang) " if "Timeout" in first["text"] and "pytest-timeout" in first["text"] else ""
    return Outcome("caught", f"{hang}by {first['test']}")


def choose(breakers: Sequence[Breaker], area: str, only: str, root: Path = ROOT) -> list[Breaker]:
    """Check every entry against the claims and return those asked for, by area, claim or a part of the file's name."""
    claims = read_claims(root)
    for number, breaker in enumerate(breakers, 1):
        if breaker.claim not in claims or claims[breaker.claim].area != breaker.area:
            raise SpecError(f"breaker {number}: {breaker.claim!r} is no claim of area {breaker.area!r}")
    wanted = find_area(area, {claim.area for claim in claims.values()}) if area else ""
    return [b for b in breakers if wanted in ("", b.area) and (only in ("", b.claim) or only in b.file)]


def replay_all(breakers: Sequence[Breaker], runner: Runner, workers: int) -> int:
    """Run the baselines, then every breaker; print as they end; return the exit code."""
    with ThreadPoolExecutor(workers) as pool:
        areas = list(dict.fromkeys(breaker.area for breaker in breakers))
        red = False
        for area, outcome in zip(areas, pool.map(runner.baseline, areas), strict=True):
            if outcome.verdict != "MISSED":
                red = True
                print(f"{area}: not green without a fault: {outcome.detail}", flush=True)
        if red:
            print("Nothing was planted: make the untouched tests pass first.")
            return 1
        caught = 0
        for breaker, outcome in zip(breakers, pool.map(runner.replay, breakers), strict=True):
            caught += outcome.caught
            line = f"{outcome.verdict:<14} {breaker.area} {breaker.claim} {breaker.file}: {outcome.detail}"
            print(line if outcome.caught else f"{line}\n    - {breaker.old!r}\n    + {breaker.new!r}", flush=True)
    few = {area: n for area, n in Counter(b.area for b in breakers).items() if n < PER_AREA_MIN}
    if few:
        print(f"fewer than {PER_AREA_MIN} shown here: {', '.join(f'{area} ({n})' for area, n in few.items())}")
    print(f"{caught}/{len(breakers)} caught")
    return 0 if caught == len(breakers) else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and replay."""
    parser = argparse.ArgumentParser(prog="spec.replay", description="Plant each fault; a marked test must fail.")
    parser.add_argument("--area", default="", help='"T store-contract" or "store-contract"')
    parser.add_argument("--only", default="", help="a claim id, or a part of the file's name")
    parser.add_argument("-j", "--workers", type=int, default=2, help="runs side by side (2)")
    parser.add_argument("--run-s", type=float, default=Runner.run_s, help="seconds for one run before it is a hang")
    parser.add_argument("--test-s", type=float, default=Runner.test_s, help="seconds for one test")
    options = parser.parse_args(argv)
    try:
        breakers = choose(BREAKERS, options.area, options.only)
    except SpecError as error:
        print(f"breakers: {error}", file=sys.stderr)
        return 1
    if BREAKERS and not breakers:
        print(
            f"breakers: none of the {len(BREAKERS)} entries is in {options.area!r} with {options.only!r}",
            file=sys.stderr,
        )
        return 1
    return replay_all(breakers, Runner(run_s=options.run_s, test_s=options.test_s), options.workers)


if __name__ == "__main__":
    sys.exit(main())
