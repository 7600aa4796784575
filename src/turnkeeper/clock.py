"""Where time comes from: integer microseconds since the epoch, UTC, read from one clock that belongs to the store.

A worker's own clock decides nothing (leases, stamps and order all use the store's). SQLite and memory stores read this
module's `system_clock`; PostgreSQL answers with the server's clock. Tests hand in a `ManualClock`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], int]

SECOND_US = 1_000_000


def system_clock() -> int:
    """Answer the machine's time in microseconds UTC."""
    return time.time_ns() // 1000


class ManualClock:
    """A clock that stands still until it is moved: `clock.advance(seconds)`."""

    def __init__(self, start_us: int = 1_700_000_000_000_000) -> None:
        self.now_us = start_us

    def __call__(self) -> int:
        """Answer the time it stands at."""
        return self.now_us

    def advance(self, seconds: float) -> None:
        """Move the clock forward by `seconds`."""
        self.now_us += round(seconds * SECOND_US)


def iso(at_us: int) -> str:
    """Print a time as ISO 8601 UTC with milliseconds, as exports and the command line show it."""
    return (
        datetime.fromtimestamp(at_us // SECOND_US, UTC).strftime("%Y-%m-%dT%H:%M:%S.")
        + f"{at_us % SECOND_US // 1000:03d}Z"
    )
