"""One SQLite file: how it is connected to, what its errors mean, and the thread in which it may wait."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import apsw

from ..errors import Damaged, OutcomeUnknown, Unavailable
from .migrations import APPLICATION_ID, foreign

FOREIGN_LOCK_MS = 10_000
"""How long a write waits, in its thread, for a program that does not know our lock."""


def connect(path: Path, *, durability: str, vfs: str | None, create: bool = False) -> apsw.Connection:
    """Open a connection to the file. Raises apsw.Error, and IncompatibleStore for a database of another program."""
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    connection = apsw.Connection(str(path), flags=flags, vfs=vfs, statementcachesize=400)
    connection.set_busy_timeout(FOREIGN_LOCK_MS)
    connection.pragma("synchronous", "FULL" if durability == "full" else "NORMAL")
    connection.pragma("cache_size", -16_000)
    connection.pragma("temp_store", "MEMORY")  # savepoints' journals: no plain text beside the database
    if connection.pragma("application_id") != APPLICATION_ID and connection.pragma("schema_version"):
        connection.close()
        raise foreign(str(path))
    return connection


class Worker:
    """A thread for the few calls that may wait for the disk or for another process: one at a time, in order."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="turnkeeper-sqlite", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def start(self, call: Callable[[], None], tell: Callable[[BaseException | None], None]) -> None:
        """Run `call` in the thread, then `tell(its error or None)` on the loop."""

        def job() -> None:
            error: BaseException | None = None
            try:
                call()
            except BaseException as e:  # handed to the loop
                error = e
            self._loop.call_soon_threadsafe(tell, error)

        self._jobs.put(job)

    async def run(self, call: Callable[[], None]) -> None:
        """Run `call` in the thread and wait for it; a cancelled waiter leaves it running to its end."""
        done: asyncio.Future[BaseException | None] = self._loop.create_future()
        self.start(call, lambda error: None if done.cancelled() else done.set_result(error))
        error = await asyncio.shield(done)
        if error is not None:
            raise error

    def end(self) -> None:
        """End the thread after what is queued."""
        self._jobs.put(None)
        self._thread.join()


def translated(name: str, error: BaseException) -> BaseException:
    """Turn a driver's error into ours: the one place where this backend does so."""
    if isinstance(error, apsw.BusyError | TimeoutError):
        return Unavailable(
            f"Another process keeps {name!r} locked.", do="End it or its transaction, then repeat the call."
        )
    if not isinstance(error, apsw.Error):
        return error
    if isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_FSYNC:
        return OutcomeUnknown(
            f"The disk refused to confirm a write to {name!r}.",
            "It is wholly there or wholly absent.",
            "Check the disk, then repeat the call with the same key: the receipt answers when it had landed.",
        )
    if isinstance(error, apsw.NotADBError):
        return foreign(name)
    if isinstance(error, apsw.CorruptError):
        happened, do = f"{name!r} is not a readable SQLite database: {error}.", "Restore it from a backup."
        return Damaged(happened, do=do, table="", key="")
    if isinstance(error, apsw.FullError):
        return Unavailable(f"The disk under {name!r} is full.", do="Free some space, then repeat the call.")
    return Unavailable(f"SQLite cannot use {name!r}: {error}.", do="Check the file and its disk.")
