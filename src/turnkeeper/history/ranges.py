"""Reading many versions, or their deltas, by number: a few range scans, never a get per version.

A take's versions are mostly consecutive numbers with a few gaps (other takes, other versions), so the wanted numbers are
joined into runs; a run that reads some unwanted rows is cheaper than another scan.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..kit.fenced import root_of
from ..records import DELTAS, VERSIONS, Delta, Version
from ..schema import Table
from ..store.backend import Scan
from ..store.reading import Rows

GAP = 64
"""Numbers further apart than this are read by two scans."""


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Join numbers into runs of first and last, both inclusive."""
    joined: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if joined and number - joined[-1][1] <= GAP:
            joined[-1] = (joined[-1][0], number)
        else:
            joined.append((number, number))
    return joined


async def _read(rows: Rows, table: Table[Any], session_id: str, wanted: set[int]) -> list[Any]:
    scans = [Scan(table, prefix=(session_id,), low=low, high=high) for low, high in runs(wanted)]
    answers = await rows.fetch(root_of(session_id), *scans) if scans else []
    return [record for answer in answers for record in answer if record.version in wanted]


async def versions_by_number(rows: Rows, session_id: str, numbers: Iterable[int]) -> dict[int, Version]:
    """Answer the versions with these numbers."""
    return {version.version: version for version in await _read(rows, VERSIONS, session_id, set(numbers))}


async def deltas_by_version(rows: Rows, session_id: str, numbers: Iterable[int]) -> dict[int, list[Delta]]:
    """Answer the deltas of these versions, each list in the order of writing."""
    found: dict[int, list[Delta]] = {}
    for delta in await _read(rows, DELTAS, session_id, set(numbers)):
        found.setdefault(delta.version, []).append(delta)
    return found
