"""Runs the suite without pytest's runner: for a quick look at a backend under way, and for stores that must fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from .contract import PARTS
from .house import Connect, House

TEST_S = 30.0
"""How long one test may take before it counts as failed."""


class Failure(NamedTuple):
    """A test that failed, as `part.test`, and the error it failed with."""

    test: str
    error: BaseException


def tests(parts: Iterable[type] = PARTS) -> Iterator[tuple[str, Callable[[House], Any]]]:
    """Yield every test as its name and a function of a house."""
    for part in parts:
        for name in vars(part):
            if name.startswith("test_"):
                yield f"{part.__name__}.{name}", getattr(part(), name)


async def run(
    fresh: Callable[[], Connect],
    *,
    parts: Iterable[type] = PARTS,
    stop_after: int | None = None,
    test_s: float = TEST_S,
) -> list[Failure]:
    """Run the tests of some parts, each on a database of its own, and answer those that failed.

    `fresh()` makes an empty database and answers what connects to it. Stops after `stop_after` failures.
    """
    failures: list[Failure] = []
    for name, test in tests(parts):
        if stop_after is not None and len(failures) >= stop_after:
            break
        error = await _outcome(test, House(fresh()), test_s)
        if error is not None:
            failures.append(Failure(name, error))
    return failures


async def _outcome(test: Callable[[House], Any], house: House, test_s: float) -> BaseException | None:
    async def whole() -> None:
        try:
            async with asyncio.timeout(test_s):
                await test(house)
        finally:
            async with asyncio.timeout(test_s):
                await house.close()

    task = asyncio.create_task(whole())
    await asyncio.wait([task])
    return asyncio.CancelledError() if task.cancelled() else task.exception()
