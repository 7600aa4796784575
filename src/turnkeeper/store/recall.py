"""What this process's own last landing left behind: rows of a root, with the revision they stand at.

An operation that always ends in a landing may start from them instead of reading (`fetch(…, recall="use")`): the landing
carries that revision and is refused when anybody moved the root since; then it is run again on rows that are read. So a
worker that owns a session lands turn after turn without a read in between. Nothing else is ever answered from here. ADR 6.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from .backend import Answer, Get, Scan

ROOTS_KEPT = 1000


class Remembered(NamedTuple):
    """Answers that are true of a root at one revision."""

    rev: int
    answers: dict[Get | Scan, Answer]


class Recall:
    """The newest roots this engine has landed on."""

    def __init__(self) -> None:
        self._roots: OrderedDict[str, Remembered] = OrderedDict()

    def look(self, root: str, wanted: Sequence[Get | Scan]) -> tuple[int, list[Answer]] | None:
        """Answer the revision and the answers, or None when one of them is not known."""
        found = self._roots.get(root)
        if found is None:
            return None
        try:
            return found.rev, [found.answers[request] for request in wanted]
        except (KeyError, TypeError):  # not known, or no key at all: whoever reads it says so
            return None

    def keep(self, root: str, rev: int, answers: dict[Get | Scan, Answer]) -> None:
        """Remember what is true of a root at a revision, instead of what was."""
        self._roots[root] = Remembered(rev, answers)
        self._roots.move_to_end(root)
        if len(self._roots) > ROOTS_KEPT:
            self._roots.popitem(last=False)

    def forget(self, root: str) -> None:
        """Remember nothing of a root."""
        self._roots.pop(root, None)
