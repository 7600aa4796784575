"""A pytest plugin that knows the specification: it checks the marks, records which claims a run proved, picks areas.

* `@pytest.mark.claim("T-001", …)`: at most three claims a test, and every one must exist; so must every field case of
  `@pytest.mark.field("F-1", …)`. Anything else ends the run before the first test.
* `--record-claims` writes `.claims.json` at the end of a *full* run (`make test` passes it). A run that was narrowed
  or broken off records nothing, so the count never rests on half a run.
* `--claim-area "T store-contract"` runs only the tests marked in that area and ends with what the area still lacks.
* `--claim-report FILE` and `--expect-package DIR` serve `make breakers`: how the run went, and a check that the
  package under test is the one below DIR.

A test's backend is its parameter named `backend`, when that is memory, sqlite or postgres; else it counts for none.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from spec.claims import BACKENDS, RECORD, Claim, Run, SpecError, find_area, lacking, read_claims

CLAIMS_MAX = 3  # marks on one test: a test that proves more proves none of them well


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options above."""
    group = parser.getgroup("claims")
    group.addoption("--record-claims", action="store_true", help=f"write {RECORD} at the end of a full run")
    group.addoption("--claim-area", metavar="AREA", help="run only the tests marked in one claim area")
    group.addoption("--claim-report", metavar="FILE", help="write how the run went as JSON")
    group.addoption("--expect-package", metavar="DIR", help="refuse to run unless turnkeeper is imported from DIR")


def pytest_configure(config: pytest.Config) -> None:
    """Read the specification and check the options."""
    try:
        claims = read_claims(config.rootpath)
        name = config.option.claim_area
        area = find_area(name, {claim.area for claim in claims.values()}) if name else ""
    except SpecError as error:
        raise pytest.UsageError(str(error)) from None
    if config.option.record_claims and (narrow := _narrowed(config)):
        raise pytest.UsageError(f"--record-claims is for a full run; this one is narrowed by {narrow}")
    if config.option.expect_package:
        _check_package(config.option.expect_package)
    config.pluginmanager.register(Recorder(config, claims, area), "claims-recorder")


def _narrowed(config: pytest.Config) -> str:
    """Name what makes a run less than full; empty for a full run."""
    option = config.option
    reasons = {
        "paths": config.args_source is pytest.Config.ArgsSource.ARGS,
        "-k": bool(option.keyword),
        "-m": bool(option.markexpr),
        "--claim-area": bool(option.claim_area),
        "--ignore or --deselect": bool(option.ignore or option.ignore_glob or option.deselect),
        "--collect-only": option.collectonly,
        "--lf or --sw": bool(getattr(option, "lf", False) or getattr(option, "stepwise", False)),
    }
    return ", ".join(name for name, given in reasons.items() if given)


def _check_package(folder: str, module: str = "turnkeeper") -> str:
    """Return where the package under test is, and refuse any place outside `folder`."""
    loaded = sys.modules.get(module)
    spec = None if loaded else importlib.util.find_spec(module)
    origin = getattr(loaded, "__file__", None) or (spec.origin if spec else None) or "nowhere"
    if not Path(origin).resolve().is_relative_to(Path(folder).resolve()):
        raise pytest.UsageError(f"{module} is imported from {origin}, not from {folder}")
    return origin


def field_cases(root: Path) -> set[str]:
    """Return the ids of spec/field-cases.md."""
    path = root / "spec" / "field-cases.md"
    return set(re.findall(r"^\| (F-\d+) \|", path.read_text("utf-8"), re.MULTILINE)) if path.exists() else set()


def marked(item: pytest.Item, mark: str) -> list[Any]:
    """Return the distinct ids an item carries in one kind of mark, in order."""
    return list(dict.fromkeys(arg for found in item.iter_markers(mark) for arg in found.args))


def backend_of(item: pytest.Item) -> str:
    """Return the backend an item runs on, or "none"."""
    callspec = getattr(item, "callspec", None)
    backend = callspec.params.get("backend") if callspec else None
    return backend if backend in BACKENDS else "none"


class Recorder:
    """Follows one run: checks the marks, selects an area, keeps outcomes, writes them down."""

    def __init__(self, config: pytest.Config, claims: dict[str, Claim], area: str) -> None:
        self.config, self.claims, self.area = config, claims, area
        self.runs: dict[str, tuple[list[str], str]] = {}  # node id → claims, backend
        self.outcomes: dict[str, str] = {}
        self.failures: list[dict[str, str]] = []
        self.broken: list[str] = []  # files that could not be collected

    @pytest.hookimpl
    def pytest_report_header(self) -> str | None:
        """Show which package a replay tests."""
        folder = self.config.option.expect_package
        return f"package under test: {_check_package(folder)}" if folder else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse wrong marks, then drop what is outside the chosen area."""
        fields = field_cases(self.config.rootpath)
        faults = [fault for item in items for fault in self._faults(item, fields)]
        if faults:
            raise pytest.UsageError("marks that do not fit the specification:\n  " + "\n  ".join(dict.fromkeys(faults)))
        for item in items:
            self.runs[item.nodeid] = (marked(item, "claim"), backend_of(item))
        if self.area:
            inside = [item for item in items if self._in_area(item)]
            kept = set(inside)
            self.config.hook.pytest_deselected(items=[item for item in items if item not in kept])
            items[:] = inside

    def _faults(self, item: pytest.Item, fields: set[str]) -> list[str]:
        """Say what is wrong with the marks of one test."""
        where = item.nodeid.partition("[")[0]
        ids = marked(item, "claim")
        faults = [f"{where}: unknown claim {name!r} (see spec/claims/)" for name in ids if name not in self.claims]
        faults += [
            f"{where}: unknown field case {name!r} (see spec/field-cases.md)"
            for name in marked(item, "field")
            if name not in fields
        ]
        if len(ids) > CLAIMS_MAX:
            faults.append(f"{where}: {len(ids)} claims on one test, at most {CLAIMS_MAX}: split the test")
        if any(not found.args for kind in ("claim", "field") for found in item.iter_markers(kind)):
            faults.append(f"{where}: a mark without an id")
        return faults

    def _in_area(self, item: pytest.Item) -> bool:
        return any(self.claims[name].area == self.area for name in marked(item, "claim"))

    def pytest_collection_finish(self) -> None:
        """Check again once the tests have really imported the package."""
        if self.config.option.expect_package:
            _check_package(self.config.option.expect_package)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep files that could not be collected."""
        if report.failed:
            self.broken.append(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Keep each failure with the kind of error behind it, which the report alone does not tell."""
        report: pytest.TestReport = yield
        if report.failed:
            error = call.excinfo.value if call.excinfo else None
            kinds = [kind.__name__ for kind in type(error).__mro__[:-2]] if error else []
            self.failures.append(
                {
                    "test": report.nodeid,
                    "phase": report.when,
                    "error": " ".join(kinds),
                    "text": str(error)[:300],
                }
            )
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Fold the three phases of a test into one outcome; any failure wins."""
        before = self.outcomes.get(report.nodeid)
        if report.failed or before == "failed":
            outcome = "failed"
        elif hasattr(report, "wasxfail"):
            outcome = "xfailed" if report.skipped else "xpassed"
        elif report.skipped:
            outcome = "skipped"
        elif report.when == "call":
            outcome = "passed"
        else:
            return
        self.outcomes[report.nodeid] = outcome

    def by_claim(self) -> dict[str, list[Run]]:
        """Return the finished tests by claim."""
        found: dict[str, list[Run]] = {}
        for test, outcome in self.outcomes.items():
            names, backend = self.runs[test]
            for name in names:
                found.setdefault(name, []).append(Run(test, backend, outcome))
        return dict(sorted(found.items()))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write what was asked for."""
        option = self.config.option
        if option.claim_report:
            report = {"tests": len(self.outcomes), "failures": self.failures, "broken": self.broken}
            Path(option.claim_report).write_text(json.dumps(report, indent=1), "utf-8")
        whole = exitstatus in (0, 1) and not self.broken and len(self.outcomes) == session.testscollected
        if option.record_claims and whole and not session.shouldfail and not session.shouldstop:
            claims = {name: [vars(run) for run in runs] for name, runs in self.by_claim().items()}
            (self.config.rootpath / RECORD).write_text(json.dumps({"claims": claims}, indent=1), "utf-8")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """After a run of one area, say what the area still lacks."""
        if not self.area or self.config.option.claim_report:
            return
        runs = self.by_claim()
        claims = [claim for claim in self.claims.values() if claim.area == self.area]
        lacks = {claim.claim_id: lacking(claim, runs.get(claim.claim_id, [])) for claim in claims}
        for claim_id, reason in lacks.items():
            if reason:
                terminalreporter.write_line(f"{claim_id}: {reason}")
        proved = sum(not reason for reason in lacks.values())
        terminalreporter.write_line(f"{self.area}: {proved}/{len(claims)} proved by this run")
