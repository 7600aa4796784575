"""Counts the claims of spec/claims/ that the last full test run proved: `make claims`.

A claim counts when a test marked with it ran and passed on every backend the claim names, and no test marked with it
failed. The run is read from `.claims.json`, which only a full run writes (`make test`).

A backend column reads: `all` (memory, sqlite, postgres), some of the three, or `n.a.` (touches no store: any passing
test will do). Claims of the sessions file name methods instead, and need all three.

Beside the claims stand three lists, one claim a line, `#` for remarks:

* `not_applicable.txt` (claim, decision): never counted, printed as `n.a.`;
* `waiting.txt` (claim, reason): to be built later, printed as `wait` while unproved;
* `bench.txt` (claim, row): proved by a row of `bench/results.json` all of whose figures are met.

Only the standard library is used, so that counting needs no set-up.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = ".claims.json"
BACKENDS = ("memory", "sqlite", "postgres")
FILES = {"T": "transactions.tsv", "S": "scene.tsv", "R": "sessions.tsv"}


class SpecError(Exception):
    """The lists, the record and the claims do not fit together."""


@dataclass(frozen=True)
class Claim:
    """One testable sentence of the specification."""

    claim_id: str
    area: str  # with its file's letter: "T store-contract"
    backends: tuple[str, ...]  # empty: touches no store
    text: str
    check: str


@dataclass(frozen=True)
class Run:
    """One marked test of the recorded run."""

    test: str
    backend: str  # memory | sqlite | postgres | none
    outcome: str  # passed | failed | skipped | xfailed | xpassed


def read_claims(root: Path = ROOT) -> dict[str, Claim]:
    """Return every claim by its id, in the order of the files."""
    claims: dict[str, Claim] = {}
    for letter, name in FILES.items():
        path = root / "spec" / "claims" / name
        if not path.exists():
            continue
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            cells = line.split("\t")
            if cells[:2] == ["id", "area"] or not line:
                continue
            if len(cells) != 5 or not cells[0].startswith(f"{letter}-") or cells[0] in claims:
                raise SpecError(f"spec/claims/{name}:{number}: not a claim, or its id is there twice")
            needs = BACKENDS if letter == "R" else _backends(cells[2], f"spec/claims/{name}:{number}")
            claims[cells[0]] = Claim(cells[0], f"{letter} {cells[1]}", needs, cells[3], cells[4])
    return claims


def _backends(cell: str, where: str) -> tuple[str, ...]:
    if cell == "all":
        return BACKENDS
    if cell == "n.a.":
        return ()
    names = tuple(name.strip() for name in cell.split(","))
    if not set(names) <= set(BACKENDS):
        raise SpecError(f"{where}: unknown backends {cell!r}; use all, n.a. or some of {', '.join(BACKENDS)}")
    return names


def read_list(name: str, claims: Mapping[str, Claim], root: Path = ROOT) -> dict[str, str]:
    """Return one of the lists beside the claims as claim id → the rest of its line; a list may be absent."""
    path = root / "spec" / "claims" / name
    entries: dict[str, str] = {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        text = line.partition("#")[0].strip()
        if text:
            claim_id, _, rest = text.partition(" ")
            _known(claim_id, claims, f"spec/claims/{name}")
            entries[claim_id] = rest.strip()
    return entries


def read_record(claims: Mapping[str, Claim], root: Path = ROOT) -> dict[str, list[Run]] | None:
    """Return the marked tests of the last full run by claim id, or None when there was none."""
    path = root / RECORD
    if not path.exists():
        return None
    marked = json.loads(path.read_text("utf-8"))["claims"]
    for claim_id in marked:
        _known(claim_id, claims, RECORD)
    return {claim_id: [Run(**run) for run in runs] for claim_id, runs in marked.items()}


def read_bench(claims: Mapping[str, Claim], root: Path = ROOT) -> dict[str, bool]:
    """Return the claims that a bench row proves, and whether that row was met when last measured."""
    mapping = read_list("bench.txt", claims, root)
    path = root / "bench" / "results.json"
    figures = json.loads(path.read_text("utf-8")) if path.exists() else []
    met: dict[str, bool] = {}
    for figure in figures:  # a row is met when all its figures are
        met[figure["row"]] = met.get(figure["row"], True) and figure["met"]
    return {claim_id: met.get(row, False) for claim_id, row in mapping.items()}


def _known(claim_id: str, claims: Mapping[str, Claim], where: str) -> None:
    if claim_id not in claims:
        raise SpecError(f"{where} names {claim_id!r}, which is no claim of spec/claims/")


def lacking(claim: Claim, runs: Iterable[Run]) -> str:
    """Say what keeps a claim from counting; empty when nothing does."""
    runs = list(runs)
    failed = sorted({run.test for run in runs if run.outcome == "failed"})
    if failed:
        return f"failed: {failed[0]}" + (f" and {len(failed) - 1} more" if len(failed) > 1 else "")
    passed = {run.backend for run in runs if run.outcome == "passed"}
    if claim.backends:
        absent = [backend for backend in claim.backends if backend not in passed]
        if not absent:
            return ""
        if len(absent) < len(claim.backends):
            return f"nothing passed on {', '.join(absent)}"
    elif passed:
        return ""
    if not runs:
        return "no test"
    if passed:
        return f"nothing passed on {', '.join(claim.backends)} (no `backend` parameter?)"
    return f"no passing test, only {', '.join(sorted({run.outcome for run in runs}))}"


@dataclass
class Count:
    """The standing of every claim, read from the files below a root."""

    claims: dict[str, Claim]
    not_applicable: dict[str, str]
    waiting: dict[str, str]
    missing: dict[str, str]  # claim id → what it lacks; the n.a. claims are not in it
    recorded: bool

    @classmethod
    def of(cls, root: Path = ROOT) -> Count:
        """Read everything and judge every claim."""
        claims = read_claims(root)
        not_applicable = read_list("not_applicable.txt", claims, root)
        bench = read_bench(claims, root)
        record = read_record(claims, root)
        missing = {}
        for claim in claims.values():
            runs = (record or {}).get(claim.claim_id, [])
            if claim.claim_id in bench and not any(run.outcome == "failed" for run in runs):
                reason = "" if bench[claim.claim_id] else "its bench row is not met"
            else:
                reason = lacking(claim, runs)
            if reason and claim.claim_id not in not_applicable:
                missing[claim.claim_id] = reason
        return cls(claims, not_applicable, read_list("waiting.txt", claims, root), missing, record is not None)

    def areas(self) -> dict[str, list[Claim]]:
        """Return the claims by area, in the order of the files."""
        areas: dict[str, list[Claim]] = {}
        for claim in self.claims.values():
            areas.setdefault(claim.area, []).append(claim)
        return areas

    def counts(self, claim: Claim) -> bool:
        """Tell whether a claim is proved."""
        return claim.claim_id not in self.missing and claim.claim_id not in self.not_applicable

    def line(self, area: str, claims: list[Claim]) -> str:
        """Return an area's line: `S slots 25/26 1 n.a.`."""
        skipped = sum(claim.claim_id in self.not_applicable for claim in claims)
        wait = sum(claim.claim_id in self.waiting and claim.claim_id in self.missing for claim in claims)
        text = f"{area} {sum(map(self.counts, claims))}/{len(claims)}"
        return text + (f" {skipped} n.a." if skipped else "") + (f" {wait} wait" if wait else "")


def find_area(name: str, areas: Iterable[str]) -> str:
    """Return the area somebody means by `T store-contract` or just `store-contract`."""
    areas = sorted(set(areas))
    found = [area for area in areas if name in (area, area.partition(" ")[2])]
    if len(found) != 1:
        what = f"is {' and '.join(found)}: add the letter" if found else f"is not one of: {', '.join(areas)}"
        raise SpecError(f"area {name!r} {what}")
    return found[0]


def _print_missing(count: Count, area: str) -> None:
    claims = count.areas()[area]
    for claim in claims:
        if claim.claim_id in count.missing:
            needs = ", ".join(claim.backends) or "no store"
            wait = f"; waits: {count.waiting[claim.claim_id]}" if claim.claim_id in count.waiting else ""
            print(f"{claim.claim_id} [{needs}] {count.missing[claim.claim_id]}{wait}")
            print(f"    {claim.text}\n    Check: {claim.check}")
    print(count.line(area, claims))


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    """Print a line an area and the total; exit 1 when an id is unknown or there was no full run."""
    parser = argparse.ArgumentParser(prog="spec.claims", description="Count the claims the last full run proved.")
    parser.add_argument("--missing", metavar="AREA", help="list the unproved claims of one area, with their text")
    options = parser.parse_args(argv)
    try:
        count = Count.of(root)
        if options.missing:
            _print_missing(count, find_area(options.missing, count.areas()))
            if not count.recorded:
                print(f"There is no {RECORD} yet, so every claim looks unproved. Run `make test` first.")
            return 0
        if not count.recorded:
            print(f"There is no {RECORD}: run `make test` first.", file=sys.stderr)
            return 1
    except SpecError as error:
        print(f"claims: {error}", file=sys.stderr)
        return 1
    for area, claims in count.areas().items():
        print(count.line(area, claims))
    for claim_id in count.waiting:
        if claim_id not in count.missing:
            print(f"{claim_id} is proved: take it off spec/claims/waiting.txt")
    print(f"TOTAL {sum(map(count.counts, count.claims.values()))}/{len(count.claims)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
