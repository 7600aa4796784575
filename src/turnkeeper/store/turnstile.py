"""Several processes on one SQLite file: a fair lock for writers, in `<database>-locks/`, beside the marks of owners.

The lock is a turnstile of two files: take the gate, then the turn, then let go of the gate. Whoever holds the gate is
next, so no process can come back in front of one that waits (SQLite's own busy wait let one process through once in two
seconds). POSIX only (flock).
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from .owners import LockedOwners, forget_at_fork, open_lock, try_lock


class Turnstile:
    """The writers' lock of one database file, and the owner marks beside it."""

    def __init__(self, database: Path) -> None:
        folder = database.with_name(database.name + "-locks")
        folder.mkdir(exist_ok=True)
        self._gate, self._turn = open_lock(folder / "gate"), open_lock(folder / "turn")
        self.owners = LockedOwners(folder)
        forget_at_fork(self)

    def try_take(self) -> bool:
        """Take the lock if nobody has it and nobody waits; never blocks."""
        if not try_lock(self._gate):
            return False
        try:
            return try_lock(self._turn)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def take(self, wait_s: float) -> None:
        """Wait for the lock, in a thread. Raises TimeoutError: its holder may be a process that was stopped."""
        ends = time.monotonic() + wait_s
        _wait(self._gate, ends)
        try:
            _wait(self._turn, ends)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def give(self) -> None:
        """Let go of the lock."""
        fcntl.flock(self._turn, fcntl.LOCK_UN)

    def forget(self) -> None:
        """Let go in a forked child, which shares the locks and would keep them beyond its parent's end."""
        for handle in (self._gate, self._turn):
            if handle >= 0:
                os.close(handle)
        self._gate = self._turn = -1

    def close(self) -> None:
        """Let go of everything."""
        self.owners.close()
        self.forget()


def _wait(handle: int, ends: float) -> None:
    """Lock a file by asking again and again: only so can waiting for it end."""
    pause = 0.000_05
    while not try_lock(handle):
        if time.monotonic() > ends:
            raise TimeoutError
        time.sleep(pause)
        pause = min(pause * 1.3, 0.002)
