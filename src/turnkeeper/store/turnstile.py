"""Several processes on one SQLite file: a fair lock for writers, in `<database>-locks/`, beside the marks of owners.

The lock is a turnstile of two files: take the gate, then the turn, then let go of the gate. Whoever holds the gate is
next, so no process can come back in front of one that waits (SQLite's own busy wait let one process through once in two
seconds). POSIX only (flock).
"""

from __future__ import annotations

import fcntl
import os
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

    def take(self) -> None:
        """Wait for the lock. Call it in a thread."""
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._turn, fcntl.LOCK_EX)
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
