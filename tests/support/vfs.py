"""A disk that can fail: an apsw VFS that records every change, refuses some on demand, and knows what was not yet synced.

    with Disk(refuse=rule) as disk:                       # rule(change) answers an exception, or None
        store = await open_store(path, vfs=disk.name)     # the real store on that disk

    with Disk(record=True) as disk: …                     # play something; `disk.mark()` after each acknowledgement
    cut = PowerCut(disk.trace)
    cut.advance(n)                                        # the power goes off after the n-th change
    cut.write(folder, seed, leave="random")               # what a reboot may find

Everything reaches the real file at once, so a process sees no difference. A recorded trace gives an image for every moment:
what was synced, and of the rest any choice of 512-byte sectors, torn ones too. The wal-index (shared memory) is never kept.
Not modelled: the loss of directory entries, and damage outside the sectors that were being written.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import apsw

from turnkeeper.api import PLAN, Store
from turnkeeper.clock import Clock, system_clock
from turnkeeper.records import TABLES
from turnkeeper.store.engine import Engine
from turnkeeper.store.migrations import Plan
from turnkeeper.store.sqlite import SQLiteBackend

SECTOR = 512
PAGE = 4096
Leave = Literal["nothing", "everything", "random", "first", "last", "pages", "torn"]
LEAVES: tuple[Leave, ...] = ("random", "nothing", "torn", "last", "pages", "first", "everything")
_numbers = itertools.count()


class Change(NamedTuple):
    """One thing that was asked of the disk. `name` is the file's last part; `role` is db, wal, journal or other."""

    op: Literal["read", "write", "sync", "truncate", "delete"]
    role: str
    name: str
    offset: int = 0
    content: bytes = b""
    size: int = 0


class Disk:
    """A VFS of its own name, over the real one."""

    def __init__(self, *, record: bool = False, refuse: Callable[[Change], BaseException | None] | None = None) -> None:
        self.name = f"disk-{os.getpid()}-{next(_numbers)}"
        self.trace: list[Change] = []
        self.refuse = refuse
        self.refused = 0
        self._record = record

    def mark(self) -> int:
        """Answer how many changes there have been: a moment that `PowerCut.advance` can go to."""
        return len(self.trace)

    def change(self, change: Change, do: Callable[[], Any]) -> Any:
        """Do what was asked, unless it is refused."""
        if self.refuse is not None:
            error = self.refuse(change)
            if error is not None:
                self.refused += 1
                raise error
        result = do()
        if self._record and change.op != "read" and change.name:  # a temporary file has no name
            self.trace.append(change)
        return result

    def __enter__(self) -> Disk:
        self._vfs = _VFS(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._vfs.unregister()


class _VFS(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__(disk.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> _File:
        return _File(self._disk, name, flags)

    def xDelete(self, name: str, syncdir: bool) -> None:
        file = Path(name).name
        return self._disk.change(
            Change("delete", _role_of_name(file), file), lambda: super(_VFS, self).xDelete(name, syncdir)
        )


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name = Path(path).name if path else ""
        self._role = _role(flags[0])
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        change = Change("read", self._role, self._name, offset, b"", amount)
        return self._disk.change(change, lambda: super(_File, self).xRead(amount, offset))

    def xWrite(self, content: bytes, offset: int) -> None:
        kept = bytes(content)
        change = Change("write", self._role, self._name, offset, kept, len(kept))
        self._disk.change(change, lambda: super(_File, self).xWrite(kept, offset))

    def xSync(self, flags: int) -> None:
        self._disk.change(Change("sync", self._role, self._name), lambda: super(_File, self).xSync(flags))

    def xTruncate(self, size: int) -> None:
        change = Change("truncate", self._role, self._name, size=size)
        self._disk.change(change, lambda: super(_File, self).xTruncate(size))


def _role(flags: int) -> str:
    for flag, role in (
        (apsw.SQLITE_OPEN_MAIN_DB, "db"),
        (apsw.SQLITE_OPEN_WAL, "wal"),
        (apsw.SQLITE_OPEN_MAIN_JOURNAL, "journal"),
    ):
        if flags & flag:
            return role
    return "other"


def _role_of_name(name: str) -> str:
    return "wal" if name.endswith("-wal") else "journal" if name.endswith("-journal") else "other"


def failed_sync() -> BaseException:
    """Answer the error of a disk that does not confirm a sync."""
    error = apsw.IOError("the disk did not confirm")
    error.extendedresult = apsw.SQLITE_IOERR_FSYNC
    return error


def failed_write() -> BaseException:
    """Answer the error of a disk that cannot write."""
    error = apsw.IOError("the disk did not write")
    error.extendedresult = apsw.SQLITE_IOERR_WRITE
    return error


def failed_read() -> BaseException:
    """Answer the error of a disk that cannot read."""
    error = apsw.IOError("the disk did not read")
    error.extendedresult = apsw.SQLITE_IOERR_READ
    return error


def disk_full() -> BaseException:
    """Answer the error of a disk without space."""
    return apsw.FullError("no space is left")


class _Content:
    """One file: what is synced, and what has been asked since, in order."""

    def __init__(self) -> None:
        self.synced: bytearray | None = None
        self.since: list[Change] = []

    def settle(self) -> None:
        """Apply everything: the disk has confirmed it."""
        for change in self.since:
            self.synced = _applied(self.synced, change)
        self.since = []

    def image(self, chance: random.Random, leave: Leave) -> bytes | None:
        """Answer what may be found after a power cut: the synced bytes and some of what came later."""
        found = None if self.synced is None else bytearray(self.synced)
        last = chance.randrange(len(self.since) + 1)
        for number, change in enumerate(self.since):
            if change.op != "write":
                if leave == "everything" or (leave != "nothing" and chance.random() < 0.5):
                    found = _applied(found, change)
                continue
            found = bytearray() if found is None else found
            for offset, piece in _pieces(change, PAGE if leave == "pages" else SECTOR):
                if _stays(leave, chance, number, last):
                    torn = leave == "torn" and chance.random() < 0.3
                    _put(found, offset, piece[: chance.randrange(len(piece) + 1)] if torn else piece)
        return None if found is None else bytes(found)


def _stays(leave: Leave, chance: random.Random, number: int, last: int) -> bool:
    if leave in ("nothing", "everything"):
        return leave == "everything"
    if leave in ("first", "last"):  # written back in order, or the newest first
        return number < last if leave == "first" else number >= last
    return chance.random() < 0.5


def _pieces(change: Change, size: int) -> list[tuple[int, bytes]]:
    """Cut a write at the disk's own boundaries."""
    pieces, at, end = [], change.offset, change.offset + len(change.content)
    while at < end:
        until = min(end, (at // size + 1) * size)
        pieces.append((at, change.content[at - change.offset : until - change.offset]))
        at = until
    return pieces


def _put(content: bytearray, offset: int, piece: bytes) -> None:
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(piece)] = piece


def _applied(content: bytearray | None, change: Change) -> bytearray | None:
    if change.op == "delete":
        return None
    content = bytearray() if content is None else content
    if change.op == "truncate":
        del content[change.size :]
    else:
        _put(content, change.offset, change.content)
    return content


class PowerCut:
    """A recorded trace, played again up to the moment the power goes off. `honest=False`: the disk lied about syncs."""

    def __init__(self, trace: list[Change], *, honest: bool = True) -> None:
        self._trace, self._honest, self._at = trace, honest, 0
        self._files: dict[str, _Content] = {}

    def advance(self, until: int) -> None:
        """Play the changes up to, not including, number `until`; only forward."""
        assert until >= self._at, "a trace is played forward"
        for change in self._trace[self._at : until]:
            content = self._files.setdefault(change.name, _Content())
            if change.op == "sync":
                if self._honest:
                    content.settle()
            else:
                content.since.append(change)
                if change.op == "delete" and self._honest:
                    content.settle()  # SQLite syncs the folder with it
        self._at = until

    def write(self, folder: Path, seed: int, leave: Leave) -> None:
        """Write what a reboot finds into a folder."""
        chance = random.Random(seed)
        for name, content in self._files.items():
            found = content.image(chance, leave)
            if found is None:
                (folder / name).unlink(missing_ok=True)
            else:
                (folder / name).write_bytes(found)
        for left in folder.glob("*-shm"):
            left.unlink()


async def open_store(
    path: Path,
    *,
    vfs: str | None = None,
    durability: Literal["full", "normal"] = "full",
    clock: Clock = system_clock,
    plan: Plan = PLAN,
    owner: str | None = None,
    lease_s: float = 30,
) -> Store:
    """Open a store as `turnkeeper.open` does, on a disk of our own."""
    backend = SQLiteBackend(path, plan, clock=clock, durability=durability, vfs=vfs)
    await backend.open()
    engine = Engine(backend, TABLES)
    return Store(engine, engine.close, owner, lease_s)
