"""Marks of owners: who can be shown to live, or to be gone.

Where other processes can be looked at (SQLite: they share a disk) a mark is a file locked for as long as its process
lives; the kernel lets go of it when the process dies, so a claim of a killed one can be taken over at once. Elsewhere only
the handles of this process are known, and leases decide about all others. Locks are POSIX (`flock`).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Protocol
from weakref import WeakSet


class OpenOwners:
    """The owner tokens of open store handles of this process."""

    def __init__(self, *, of_others: bool | None) -> None:
        self._tokens: set[str] = set()
        self._of_others = of_others  # what is true of a token that is not here: gone (False), or nobody can tell (None)

    def hold(self, owner_id: str) -> None:
        """Keep a mark that ends with this process."""
        self._tokens.add(owner_id)

    def release(self, owner_id: str) -> None:
        """Take it away."""
        self._tokens.discard(owner_id)

    def alive(self, owner_id: str) -> bool | None:
        """Say whether an owner is provably there (True) or gone (False); None: cannot tell."""
        return True if owner_id in self._tokens else self._of_others


class LockedOwners:
    """Owner marks as locked files in a folder that all processes see."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}
        forget_at_fork(self)

    def hold(self, owner_id: str) -> None:
        """Lock a file named by an owner token until `release`, or until this process ends. Idempotent."""
        if owner_id in self._held:
            return  # locking it again, through another handle, would wait for ourselves
        handle = open_lock(self._folder / f"owner-{owner_id}")
        fcntl.flock(handle, fcntl.LOCK_EX)
        self._held[owner_id] = handle

    def release(self, owner_id: str) -> None:
        """Take the mark of an owner away."""
        handle = self._held.pop(owner_id, None)
        if handle is not None:
            (self._folder / f"owner-{owner_id}").unlink(missing_ok=True)
            os.close(handle)

    def alive(self, owner_id: str) -> bool:
        """Say whether the process behind an owner token still runs."""
        if owner_id in self._held:
            return True
        mark = self._folder / f"owner-{owner_id}"
        try:
            handle = os.open(mark, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            if not try_lock(handle):
                return True
            mark.unlink(missing_ok=True)
            return False
        finally:
            os.close(handle)

    def forget(self) -> None:
        """Let go in a forked child: locks are shared with it, and it would keep them beyond its parent's end."""
        for handle in self._held.values():
            os.close(handle)
        self._held.clear()

    def close(self) -> None:
        """Take every mark away."""
        for owner_id in list(self._held):
            self.release(owner_id)


class Forgetful(Protocol):
    """Something that holds locks a forked child must not keep."""

    def forget(self) -> None:
        """Let go in the child, without unlocking what the parent holds."""


_at_fork: WeakSet[Forgetful] = WeakSet()


def forget_at_fork(thing: Forgetful) -> None:
    """Have `thing.forget()` called in forked children, for as long as it lives."""
    _at_fork.add(thing)


def _forget_all() -> None:
    for thing in list(_at_fork):
        thing.forget()


os.register_at_fork(after_in_child=_forget_all)


def open_lock(path: Path) -> int:
    """Open, or make, a file to lock."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def try_lock(handle: int) -> bool:
    """Lock a file if nobody has it; never blocks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
