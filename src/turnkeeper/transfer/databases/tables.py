"""What readers of databases share: cells to JSON that every store keeps, and the rows that have no place. Pure.

A blob is never loaded: what a program pickled is kept as its digest and length, and reported.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from turnkeeper.limits import INT_MAX, INT_MIN
from turnkeeper.transfer.documents import Notes, fold
from turnkeeper.transfer.imported import Imported, ImportedSession, Loss
from turnkeeper.transfer.sillytavern_dates import read_date
from turnkeeper.transfer.sillytavern_lines import RAW, LineParser, Unreadable

Row = dict[str, Any]
_DEPTH_MAX = 200


class Source(msgspec.Struct, frozen=True):
    """The tables of a database: their rows by column, in the order of the file."""

    name: str
    file_sha256: str
    rows: Mapping[str, list[Row]]
    columns: Mapping[str, tuple[str, ...]]

    def has(self, table: str, *columns: str) -> bool:
        """Say whether a table is there with these columns."""
        return table in self.columns and set(columns) <= set(self.columns[table])


class Unsayable(Exception):
    """A value that cannot be brought into JSON at all: it contains itself, or is nested without end."""


def digest_of(content: bytes) -> dict[str, Any]:
    """Answer what is kept of bytes that are not read."""
    return {"$bytes_sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def plain(value: Any, depth: int = 0) -> Any:
    """Bring a decoded value into JSON: bytes become digests, odd numbers and keys texts. Raises Unsayable."""
    if depth > _DEPTH_MAX:
        raise Unsayable
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if INT_MIN <= value <= INT_MAX else {RAW: str(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {RAW: repr(value)}
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else repr(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, bytes | bytearray | memoryview):
        return digest_of(bytes(value))
    if isinstance(value, Sequence | set | frozenset):
        return [plain(item, depth + 1) for item in value]
    return {"$type": type(value).__name__, "text": str(value)[:1000]}


def plain_row(row: Row) -> Row:
    """Bring a row into JSON."""
    return {column: plain(value) for column, value in row.items()}


def from_json(cell: Any, notes: Notes, **where: Any) -> Any:
    """Read a cell of JSON text; what cannot be read is kept as it is, and reported."""
    if cell is None:
        return None
    if isinstance(cell, bytes):
        try:
            cell = cell.decode("utf-8")
        except UnicodeDecodeError:
            notes.add("blob_not_read", "kept as its digest", **where)
            return digest_of(cell)
    if not isinstance(cell, str):
        notes.wrong_type("cell", **where)
        return plain(cell)
    try:
        return fold(LineParser().parse(cell.encode("utf-8", "surrogatepass")).value, notes)
    except Unreadable:
        pass
    except RecursionError:
        pass
    notes.add("cell_not_json", "kept as text", **where)
    return cell


def db_time(cell: Any) -> int | None:
    """Read a time of a database; without a zone it is UTC, as these programs write it."""
    if isinstance(cell, str):
        return read_date(cell)[0]
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return read_date(cell * 1000)[0] if math.isfinite(cell) and abs(cell) < 2**40 else None
    return None


def key_of(cell: Any) -> str:
    """Answer an id that stands in a cell as a text."""
    return cell if isinstance(cell, str) else repr(plain(cell))


def aside(source: Source, used: Iterable[str], column: str, keys: set[str], notes: Notes) -> dict[str, list[Row]]:
    """Answer the rows of all other tables that belong to these keys, or to nobody; tables with such rows are reported."""
    found: dict[str, list[Row]] = {}
    for table, rows in source.rows.items():
        if table in used:
            continue
        chosen = [plain_row(row) for row in rows if column not in row or key_of(row[column]) in keys]
        if chosen:
            found[table] = chosen
            notes.add("rows_aside", "kept beside the session", table=table, count=len(chosen))
    return found


def finish(
    source: Source, origin: str, sessions: Sequence[tuple[ImportedSession, Notes]], more: Iterable[Loss] = ()
) -> Imported:
    """Gather the sessions of a database; with several, a loss says to which it belongs."""
    several = len(sessions) > 1
    losses = [
        Loss(loss.kind, {"conversation": session.source_id, **loss.where} if several else loss.where, loss.action)
        for session, notes in sessions
        for loss in notes.losses
    ]
    if not sessions:
        losses.append(Loss("file_empty", {}, "no session"))
    return Imported(origin, source.file_sha256, tuple(session for session, _ in sessions), (*more, *losses))
