"""Planted faults: each must make a test marked in its claim area fail. `make breakers` replays them.

An entry is one line:

    Breaker("T savepoints", "T-027", "store/overlay.py", "del self.marks[mark:]", "pass"),

`area` is the claim area with its letter, as `make claims` prints it; `claim` the claim the fault breaks; `file` a path
below src/turnkeeper/. `old` must stand in that file exactly once, `new` takes its place.

A good breaker is a mistake somebody could make: a check left out, `<` for `<=`, a lost `await`, the wrong head moved.
It must still import and run, or it proves nothing (`broken breaker`). At least four for each area. When one is MISSED,
write the test that was missing; do not make the fault cruder. To add one: write the line, run
`make breakers AREA="T savepoints" ONLY=T-027`, and look that the test it names is the one that ought to catch it.
"""

from __future__ import annotations

from typing import NamedTuple


class Breaker(NamedTuple):
    """One planted fault."""

    area: str
    claim: str
    file: str
    old: str
    new: str


BREAKERS: list[Breaker] = []
