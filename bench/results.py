"""Figures, their targets, the table on the screen, and `bench/results.json`."""

from __future__ import annotations

import json
import operator
from pathlib import Path

import msgspec

RESULTS = Path(__file__).with_name("results.json")
_COMPARE = {">=": operator.ge, "<=": operator.le}


class Figure(msgspec.Struct):
    """One measured figure. `met` follows from value (or ratio, when the target is a multiple) and target."""

    row: str
    figure: str
    value: float
    unit: str
    target: str  # "<= 15 ms", ">= 0.45 x floor", ">= 1.8 x seq"
    floor: float | None = None
    ratio: float | None = None
    met: bool = False

    def __post_init__(self) -> None:
        sign, number, *multiple = self.target.split()
        measured = self.ratio if multiple[:1] == ["x"] and self.ratio is not None else self.value
        self.met = _COMPARE[sign](measured, float(number.replace(",", "")))


def write(figures: list[Figure]) -> None:
    """Keep the figures of this run, replacing the rows it measured."""
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    rows = {figure.row for figure in figures}
    kept = [entry for entry in before if entry["row"] not in rows]
    RESULTS.write_text(json.dumps([*kept, *msgspec.to_builtins(figures)], indent=1) + "\n")


def show(figures: list[Figure]) -> str:
    """Answer the table."""
    lines = [f"{'row':8} {'figure':16} {'value':>10} {'unit':12} {'floor':>9} {'ratio':>6}  target", "-" * 84]
    for f in figures:
        floor = "" if f.floor is None else f"{f.floor:,.6g}"
        ratio = "" if f.ratio is None else f"{f.ratio:.2f}"
        mark = "" if f.met else "   NOT MET"
        lines.append(f"{f.row:8} {f.figure:16} {f.value:>10,.5g} {f.unit:12} {floor:>9} {ratio:>6}  {f.target}{mark}")
    return "\n".join(lines)
