"""What the SQL backends share: a table's DDL in both dialects, and its statements, made once from its declaration.

Names come from declarations only, so quoting them is enough; values always travel as parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

from ..jsonvalue import canonical, digest
from ..schema import Cell, Table
from .backend import Scan

Dialect = Literal["sqlite", "postgres"]

_TYPES: dict[Dialect, dict[str, str]] = {
    "sqlite": {"text": "TEXT", "json": "TEXT", "integer": "INTEGER", "real": "REAL", "blob": "BLOB"},
    "postgres": {
        "text": 'TEXT COLLATE "C"',
        "json": 'TEXT COLLATE "C"',
        "integer": "BIGINT",
        "real": "DOUBLE PRECISION",
        "blob": "BYTEA",
    },
}
REV = "root_rev"
"""The waist's own column in a head table: the revision of the root."""


def q(name: str) -> str:
    """Quote a declared name."""
    return f'"{name}"'


def names(columns: Sequence[str]) -> str:
    """Quote and join declared names."""
    return ", ".join(q(c) for c in columns)


def create(table: Table[Any], dialect: Dialect) -> list[str]:
    """Answer the statements that create a table and the indexes of its orders and uniques."""
    types = _TYPES[dialect]
    cells = [f"{q(c.name)} {types[c.kind]}{'' if c.null else ' NOT NULL'}" for c in table.columns]
    if table.head:
        cells.append(f"{q(REV)} {types['integer']} NOT NULL")
    cells.append(f"PRIMARY KEY ({names(table.key)})")
    tail = "" if dialect == "postgres" else " STRICT" if table.payload else " STRICT, WITHOUT ROWID"
    made = [f"CREATE TABLE {q(table.name)} ({', '.join(cells)}){tail}"]
    for name, columns in table.orders.items():
        if name != "key":
            made.append(f"CREATE INDEX {q(f'{table.name}_{name}')} ON {q(table.name)} ({names(columns)})")
    for i, unique in enumerate(table.unique):
        where = ""
        if unique.where is not None:
            column, value = unique.where
            where = f" WHERE {q(column)} = " + (
                str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
            )
        made.append(
            f"CREATE UNIQUE INDEX {q(f'{table.name}_only{i}')} ON {q(table.name)} ({names(unique.columns)}){where}"
        )
    return made


SQLITE_OWN = (
    "CREATE TABLE store_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE roots (root TEXT PRIMARY KEY, root_rev INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE commits (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL) STRICT",
    "INSERT INTO commits VALUES (1, 0)",
)
"""The waist's own tables: marks of the schema, revisions of the roots without a head, the newest commit sequence."""


def schema_digest(tables: Sequence[Table[Any]]) -> str:
    """Answer a short digest of a whole schema: what a database is checked against, and functions are named by."""
    return digest([table.declaration() for table in tables]).hex()[:16]


def declarations(tables: Sequence[Table[Any]]) -> str:
    """Answer the schema as text, for people who compare two."""
    return canonical([table.declaration() for table in tables])


class Statements:
    """The constant statements of one table (SQLite's parameter style)."""

    def __init__(self, table: Table[Any]) -> None:
        marks = ", ".join("?" for _ in table.columns)
        key = " AND ".join(f"{q(k)} = ?" for k in table.key)
        rest = [c for c in table.names if c not in table.key]
        self.get = f"SELECT {names(table.names)} FROM {q(table.name)} WHERE {key}"
        rev, mark = (f", {q(REV)}", ", ?") if table.head else ("", "")
        self.insert = f"INSERT INTO {q(table.name)} ({names(table.names)}{rev}) VALUES ({marks}{mark})"
        sets = ", ".join(f"{q(c)} = ?" for c in rest)
        self.update = f"UPDATE {q(table.name)} SET {sets} WHERE {key}" if rest else ""
        self.delete = f"DELETE FROM {q(table.name)} WHERE {key}"
        self.drop = f"DELETE FROM {q(table.name)} WHERE {q(table.root_column)} = ?"
        where_root = f"WHERE {q(table.root_column)} = ?"
        self.rev = f"SELECT {q(REV)} FROM {q(table.name)} {where_root}" if table.head else ""
        self.bump = f"UPDATE {q(table.name)} SET {q(REV)} = {q(REV)} + 1 {where_root}" if table.head else ""
        order = [table.index[c] for c in rest] + [table.index[k] for k in table.key]
        self.update_cells: Callable[[tuple[Cell, ...]], list[Cell]] = lambda row: [row[i] for i in order]


@cache
def statements(table: Table[Any]) -> Statements:
    """Answer the statements of a table, made at their first use."""
    return Statements(table)


@cache
def _scan_text(
    table: Table[Any], order: str, equal: int, low: bool, high: bool, after: bool, reverse: bool, measure: bool
) -> str:
    columns = table.orders[order]
    terms = [f"{q(c)} = ?" for c in columns[:equal]]
    if low:
        terms.append(f"{q(columns[equal])} >= ?")
    if high:
        terms.append(f"{q(columns[equal])} <= ?")
    if after:
        rest = columns[equal:]
        terms.append(f"({names(rest)}) {'<' if reverse else '>'} ({', '.join('?' for _ in rest)})")
    where = f" WHERE {' AND '.join(terms)}" if terms else ""
    if measure:
        sizes = [f"coalesce(length(CAST({q(c.name)} AS BLOB)), 0)" for c in table.columns if c.kind in ("json", "blob")]
        return f"SELECT count(*), coalesce(sum({' + '.join(sizes) or '0'}), 0) FROM {q(table.name)}{where}"
    by = ", ".join(f"{q(c)}{' DESC' if reverse else ''}" for c in columns[equal:])
    ordered = f" ORDER BY {by}" if by else ""
    return f"SELECT {names(table.names)} FROM {q(table.name)}{where}{ordered} LIMIT ?"


def scan(request: Scan, *, measure: bool = False) -> tuple[str, list[Cell]]:
    """Answer the statement of a scan and its parameters (SQLite's parameter style)."""
    after = None if measure else request.after
    equal = len(request.prefix)
    text = _scan_text(
        request.table, request.order, equal, request.low is not None, request.high is not None,
        after is not None, request.reverse and not measure, measure,
    )  # fmt: skip
    cells: list[Cell] = list(request.prefix)
    if request.low is not None:
        cells.append(request.low)
    if request.high is not None:
        cells.append(request.high)
    if after is not None:
        cells += after[equal:]
    if not measure:
        cells.append(-1 if request.limit is None else request.limit)
    return text, cells
