"""`make bench`: run every row, print the table, write `bench/results.json`. `python -m bench.run seq c32` runs some rows."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from bench import postgres_rows, processes, rebuild_rows, results, sqlite_rows

ROWS: dict[tuple[str, ...], Callable[[], Awaitable[list[results.Figure]]]] = {
    ("seq", "turn2"): sqlite_rows.seq,
    ("c32",): sqlite_rows.c32,
    ("busy8",): sqlite_rows.busy8,
    ("p4x8",): processes.p4x8,
    ("pg32", "pgseq"): postgres_rows.postgres,
    ("growth",): sqlite_rows.growth,
    ("load20", "loadall", "fork"): sqlite_rows.history,
    ("rebuild",): rebuild_rows.rebuild,
    ("midchange",): rebuild_rows.midchange,
    ("list",): sqlite_rows.listing,
    ("import",): sqlite_rows.importing,
}


async def main(wanted: list[str]) -> None:
    """Run the wanted rows, all by default."""
    figures: list[results.Figure] = []
    for names, measure in ROWS.items():
        if not wanted or set(wanted) & set(names):
            print(f"measuring {', '.join(names)} …", file=sys.stderr, flush=True)
            figures += await measure()
    results.write(figures)
    print(results.show(figures))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
