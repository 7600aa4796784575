"""Several processes on one SQLite file: a fair lock for writers, and a mark of each owner that ends with its process.

The lock is a turnstile of two files: take the gate, then the turn, then let go of the gate. Whoever holds the gate is
next, so no process can come back in front of one that waits (SQLite's own busy wait let one process through once in two
seconds). The marks are files locked for as long as their process lives; the kernel lets go of them when it dies, so a
claim of a killed process can be taken over at once. All of it stands in `<database>-locks/`. POSIX only (flock).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from weakref import WeakSet

_open_here: WeakSet[Turnstile] = WeakSet()


class Turnstile:
    """The writers' lock of one database file, and the owner marks beside it."""

    def __init__(self, database: Path) -> None:
        self._folder = database.with_name(database.name + "-locks")
        self._folder.mkdir(exist_ok=True)
        self._gate = _open(self._folder / "gate")
        self._turn = _open(self._folder / "turn")
        self._owned: dict[str, int] = {}
        _open_here.add(self)

    def try_take(self) -> bool:
        """Take the lock if nobody has it and nobody waits; never blocks."""
        if not _try_lock(self._gate):
            return False
        try:
            return _try_lock(self._turn)
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

    def hold(self, owner_id: str) -> None:
        """Lock a file named by an owner token until `release`, or until this process ends. Idempotent."""
        if owner_id in self._owned:
            return  # locking it again, through another handle, would wait for ourselves
        handle = _open(self._folder / f"owner-{owner_id}")
        fcntl.flock(handle, fcntl.LOCK_EX)
        self._owned[owner_id] = handle

    def release(self, owner_id: str) -> None:
        """Take the mark of an owner away."""
        handle = self._owned.pop(owner_id, None)
        if handle is not None:
            (self._folder / f"owner-{owner_id}").unlink(missing_ok=True)
            os.close(handle)

    def alive(self, owner_id: str) -> bool:
        """Say whether the process behind an owner token still runs."""
        if owner_id in self._owned:
            return True
        mark = self._folder / f"owner-{owner_id}"
        try:
            handle = os.open(mark, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            if not _try_lock(handle):
                return True
            mark.unlink(missing_ok=True)
            return False
        finally:
            os.close(handle)

    def forget(self) -> None:
        """Let go in a forked child: locks are shared with it, and it would keep them beyond its parent's end."""
        for handle in (self._gate, self._turn, *self._owned.values()):
            os.close(handle)
        self._gate = self._turn = -1
        self._owned.clear()

    def close(self) -> None:
        """Let go of everything."""
        _open_here.discard(self)
        for owner_id in list(self._owned):
            self.release(owner_id)
        os.close(self._gate)
        os.close(self._turn)


def _forget_all() -> None:
    for turnstile in list(_open_here):
        turnstile.forget()


os.register_at_fork(after_in_child=_forget_all)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
