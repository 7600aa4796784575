"""Reads the tables of another program's SQLite file without touching it: from a copy, which its owner never notices.

The file, its write-ahead log and its journal are copied to a folder of our own; SQLite recovers what it must there, so
a file in WAL mode is read as its owner left it, and nothing is ever written or locked beside it. Views, virtual tables
and generated columns are not read: a foreign schema runs no code here.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import apsw
import msgspec

from ..errors import Invalid, TooLarge
from ..limits import DATABASE_BYTES

MAGIC = b"SQLite format 3\x00"
_BESIDE = ("-wal", "-journal")
_COPY_TRIES = 5
_CHUNK = 1 << 20


class ForeignTables(msgspec.Struct, frozen=True):
    """The rows of every ordinary table, each a dict by column in the order of the file; `sha256` is over what was copied."""

    name: str
    sha256: str
    rows: dict[str, list[dict[str, Any]]]
    columns: dict[str, tuple[str, ...]]
    odd_texts: int


def read_tables(path: Path) -> ForeignTables:
    """Read a database. Raises Invalid for a file that is none, is damaged or changes while it is copied; TooLarge."""
    with tempfile.TemporaryDirectory(prefix="turnkeeper-read-") as folder:
        sha256 = _copy(path, Path(folder) / "copy.db")
        try:
            connection = apsw.Connection(str(Path(folder) / "copy.db"), flags=apsw.SQLITE_OPEN_READWRITE)
            with contextlib.closing(connection):
                return _read(connection, path.name, sha256)
        except apsw.NotADBError:
            raise Invalid(
                f"{path.name} is not a SQLite database, or an encrypted one.", do="Choose the database.", path=path.name
            ) from None
        except (apsw.Error, UnicodeDecodeError) as error:  # the latter of a column's name
            raise Invalid(
                f"{path.name} is a damaged database: SQLite says {type(error).__name__}.",
                do="Recover it with the sqlite3 shell's .recover, and import the result.", path=path.name,
            ) from None  # fmt: skip


def _copy(path: Path, target: Path) -> str:
    """Copy the file with what stands beside it, as it is at one moment; answer the digest of the bytes."""
    for _ in range(_COPY_TRIES):
        before = _stamps(path)
        if sum(size for _, size, _ in before) > DATABASE_BYTES:
            raise TooLarge(
                f"{path.name} is larger than {DATABASE_BYTES:,} bytes.",
                do="Delete from a copy what need not come along, and import that.",
                family="database-bytes", limit=DATABASE_BYTES,
            )  # fmt: skip
        hasher = hashlib.sha256()
        for ending in ("", *_BESIDE):
            beside = Path(f"{target}{ending}")
            beside.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                _copy_one(Path(f"{path}{ending}"), beside, hasher)
        if _stamps(path) == before:
            return hasher.hexdigest()
    raise Invalid(
        f"{path.name} is being written: it changed while it was read, {_COPY_TRIES} times.",
        do="Stop the program that owns it, or import a backup of it.", path=path.name,
    )  # fmt: skip


def _copy_one(path: Path, target: Path, hasher: Any) -> None:
    with path.open("rb") as source, target.open("wb") as copy:
        while chunk := source.read(_CHUNK):
            hasher.update(chunk)
            copy.write(chunk)


def _stamps(path: Path) -> list[tuple[str, int, int]]:
    found = []
    for ending in ("", *_BESIDE):
        with contextlib.suppress(FileNotFoundError):
            stat = Path(f"{path}{ending}").stat()
            found.append((ending, stat.st_size, stat.st_mtime_ns))
    return found


def _read(connection: apsw.Connection, name: str, sha256: str) -> ForeignTables:
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
    connection.pragma("cell_size_check", True)
    connection.pragma("mmap_size", 0)
    rows: dict[str, list[dict[str, Any]]] = {}
    columns: dict[str, tuple[str, ...]] = {}
    odd = 0
    for table, statement in _tables(connection):
        names = tuple(row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(table)})"))
        if not names or statement.upper().startswith("CREATE VIRTUAL"):
            continue
        columns[table] = names
        rows[table], found = _rows(connection, table, names)
        odd += found
    return ForeignTables(name, sha256, rows, columns, odd)


def _tables(connection: apsw.Connection) -> list[tuple[str, str]]:
    found = connection.execute(
        "SELECT CAST(name AS BLOB), CAST(sql AS BLOB) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    named = [(_text(table), _text(statement or b"")) for table, statement in found]
    return [(table, statement) for table, statement in named if not any("\ud800" <= c <= "\udfff" for c in table)]


def _rows(connection: apsw.Connection, table: str, names: tuple[str, ...]) -> tuple[list[dict[str, Any]], int]:
    """Read a table, texts as bytes first, as a text need not be UTF-8; answer how many were not."""
    chosen = ", ".join(
        f"CASE typeof({_quoted(name)}) WHEN 'text' THEN CAST({_quoted(name)} AS BLOB) ELSE {_quoted(name)} END, "
        f"typeof({_quoted(name)})"
        for name in names
    )
    rows, odd = [], 0
    for found in connection.execute(f"SELECT {chosen} FROM {_quoted(table)}"):
        row: dict[str, Any] = {}
        for index, name in enumerate(names):
            value, kind = found[2 * index], found[2 * index + 1]
            if kind == "text":
                value = _text(value)
                odd += any("\udc80" <= sign <= "\udcff" for sign in value) if not value.isascii() else 0
            row[name] = value
        rows.append(row)
    return rows, odd


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
