"""One SQLite file: how it is connected to, and what its errors mean."""

from __future__ import annotations

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
