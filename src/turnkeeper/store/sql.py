"""What the SQL backends share: a table's DDL in both dialects, and its statements, made once from its declaration.

Names come from declarations only, so quoting them is enough; values always travel as parameters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, Literal

from ..jsonvalue import canonical, digest
from ..schema import Cell, Key, Table
from .backend import Scan, WriteSet

Dialect = Literal["sqlite", "postgres"]
Batch = tuple[str, Sequence[Sequence[Any]]]
"""A statement, and the rows of parameters it is run with."""

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


_NEXT_XID = "pg_snapshot_xmax(pg_current_snapshot())::text::int8"
STRIDE = 16
"""PostgreSQL's commit sequences: `seq_base`, plus this times the transaction's id, plus the set's place in its group."""
SLOTS = 64
POSTGRES_OWN = (
    'CREATE TABLE store_meta (name text COLLATE "C" PRIMARY KEY, value text NOT NULL)',
    'CREATE TABLE roots (root text COLLATE "C" PRIMARY KEY, root_rev bigint NOT NULL)',
    "CREATE TABLE commits (slot int4 PRIMARY KEY, seq bigint NOT NULL)",
    f"INSERT INTO commits SELECT slot, 0 FROM generate_series(0, {SLOTS - 1}) AS slot",
    f"INSERT INTO store_meta VALUES ('seq_base', (-{STRIDE} * {_NEXT_XID})::text)",
)
"""The same for PostgreSQL. The newest sequences stand in a ring of slots, so that landings do not wait for each other."""
POSTGRES_REPAIR = f"""UPDATE store_meta AS m SET value = (c.newest + {STRIDE} - {STRIDE} * c.xid)::text
FROM (SELECT max(seq) AS newest, {_NEXT_XID} AS xid FROM commits) AS c
WHERE m.name = 'seq_base' AND c.newest >= CASE m.name WHEN 'seq_base' THEN m.value::int8 + {STRIDE} * c.xid END"""
"""Keeps sequences growing when the cluster's transaction ids are behind them: a new store, or one from a dump."""

POSTGRES_ADVANCE = f"""UPDATE {{}}.store_meta AS m SET value = ($1::int8 + {STRIDE} - {STRIDE} * {_NEXT_XID})::text
WHERE m.name = 'seq_base' AND m.value::int8 + {STRIDE} * {_NEXT_XID} <= $1"""
"""Lets the sequences of later landings lie above one."""


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
        bump = f"{q(REV)} = {q(REV)} + 1"
        moved = f", {bump}" if table.head else ""  # a root moves on with its head
        self.update = f"UPDATE {q(table.name)} SET {sets}{moved} WHERE {key}" if rest else ""
        self.delete = f"DELETE FROM {q(table.name)} WHERE {key}"
        self.drop = f"DELETE FROM {q(table.name)} WHERE {q(table.root_column)} = ?"
        where_root = f"WHERE {q(table.root_column)} = ?"
        self.rev = f"SELECT {q(REV)} FROM {q(table.name)} {where_root}" if table.head else ""
        self.bump = f"UPDATE {q(table.name)} SET {bump} {where_root}" if table.head else ""
        order = [table.index[c] for c in rest] + [table.index[k] for k in table.key]
        self.update_cells: Callable[[tuple[Cell, ...]], tuple[Cell, ...]] = itemgetter(*order)


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
        rest = columns[equal:]  # none, when the prefix is a whole place: nothing lies strictly behind it
        edge = f"({names(rest)}) {'<' if reverse else '>'} ({', '.join('?' for _ in rest)})"
        terms.append(edge if rest else "1 = 0")
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


_FROM_JSON = {"integer": "({})::int8", "real": "({})::float8", "blob": "decode({}, 'hex')"}
_TO_TEXT = {"integer": "{}::text", "real": "{}::text", "blob": "encode({}, 'hex')"}
_LOWEST = {"text": "''", "integer": "'-9223372036854775808'::int8", "real": "'-Infinity'::float8", "blob": "''::bytea"}
_HIGHEST = {"text": "repeat(chr(1114111), 513)", "integer": "9223372036854775807", "real": "'Infinity'::float8"}


def from_json(table: Table[Any], column: str, value: str) -> str:
    """Answer how a column's cell is read from the text of a JSON value: blobs are hex there, reals text (`-0.0`)."""
    return _FROM_JSON.get(table.columns[table.index[column]].kind, "({})").format(value)


class JsonStatements:
    """The statements of one table inside PostgreSQL's functions; `t` is the table, the values are JSON arrays.

    Reading, `r` is `[shape, limit, low, high, prefix …, rest of after …]`. Writing, `e.r` is `[number of the set, cell …]`;
    `rows` is the source of those arrays, `holds` the condition on them, `seq` the commit sequence of a row's set.
    """

    def __init__(self, table: Table[Any], schema: str) -> None:
        self.table, self.name = table, f"{q(schema)}.{q(table.name)}"

    def _bounds(self, order: str, equal: int) -> list[str]:
        columns = self.table.orders[order]
        terms = [f"t.{q(c)} = {from_json(self.table, c, f'r ->> {4 + i}')}" for i, c in enumerate(columns[:equal])]
        for c in columns[equal : equal + 1]:
            kind, cell = self.table.columns[self.table.index[c]].kind, f"t.{q(c)}"
            low, high = (from_json(self.table, c, f"r ->> {i}") for i in (2, 3))
            terms.append(f"{cell} >= coalesce({low}, {_LOWEST[kind]})")
            ends = f"{cell} <= coalesce({high}, {_HIGHEST.get(kind)})"
            terms.append(ends if kind in _HIGHEST else f"(r ->> 3 IS NULL OR {cell} <= {high})")
        return terms

    def measure(self, order: str, equal: int) -> str:
        """Count rows and the bytes of their json and blob cells."""
        sizes = [f"coalesce(octet_length(t.{q(c.name)}), 0)" for c in self.table.columns if c.kind in ("json", "blob")]
        cells = f"count(*)::text, coalesce(sum({' + '.join(sizes) or '0'}), 0)::text"
        return f"SELECT v_n, ARRAY[{cells}] FROM {self.name} AS t WHERE {' AND '.join(self._bounds(order, equal))}"

    def scan(self, order: str, equal: int, reverse: bool, after: bool) -> str:
        """Answer rows in an order, from the first or after a given one."""
        rest, terms = self.table.orders[order][equal:], self._bounds(order, equal)
        columns = [f"t.{q(c)}" for c in rest]
        if after:
            values = [from_json(self.table, c, f"r ->> {4 + equal + i}") for i, c in enumerate(rest)]
            terms.append(f"({', '.join(columns)}) {'<' if reverse else '>'} ({', '.join(values)})")
        cells = ", ".join(_TO_TEXT.get(c.kind, "{}").format(f"t.{q(c.name)}") for c in self.table.columns)
        by = f" ORDER BY {', '.join(c + ' DESC' * reverse for c in columns)}" if columns else ""
        where = f"{' AND '.join(terms)}{by} LIMIT (r ->> 1)::int8"
        return f"SELECT v_n, ARRAY[{cells}]::text[] FROM {self.name} AS t WHERE {where}"

    def _values(self, seq: str) -> dict[str, str]:
        values = {c: from_json(self.table, c, f"e.r ->> {i}") for i, c in enumerate(self.table.names, 1)}
        stamped = {self.table.names[i] for i in self.table.commit_columns}
        return {c: f"coalesce(nullif({v}, 0), {seq})" if c in stamped else v for c, v in values.items()}

    def insert(self, rows: str, holds: str, seq: str) -> str:
        """Add rows; a head's row begins at its set's sequence."""
        values = self._values(seq) | ({REV: seq} if self.table.head else {})
        return f"INSERT INTO {self.name} ({names(tuple(values))}) SELECT {', '.join(values.values())} FROM {rows} WHERE {holds}"

    def update(self, rows: str, holds: str, seq: str) -> str:
        """Replace rows; a head's row counts its root's revision."""
        values = self._values(seq)
        same = [f"t.{q(c)} = {values[c]}" for c in self.table.key]
        sets = [f"{q(c)} = {v}" for c, v in values.items() if c not in self.table.key]
        sets += [f"{q(REV)} = t.{q(REV)} + 1"] if self.table.head else []
        where = " AND ".join([*same, holds])
        return f"UPDATE {self.name} AS t SET {', '.join(sets)} FROM {rows} WHERE {where}" if sets else "NULL"

    def delete(self, rows: str, holds: str) -> str:
        """Remove rows by their keys."""
        same = [f"t.{q(c)} = {from_json(self.table, c, f'e.r ->> {i}')}" for i, c in enumerate(self.table.key, 1)]
        return f"DELETE FROM {self.name} AS t USING {rows} WHERE {' AND '.join([*same, holds])}"

    def drop(self, names_of_roots: str) -> str:
        """Remove every row of some roots; their names come as rows `x` of text."""
        root = self.table.root_column
        roots = f"ARRAY(SELECT {from_json(self.table, root, 'x')} FROM {names_of_roots} AS x)"
        return f"DELETE FROM {self.name} AS t WHERE t.{q(root)} = ANY ({roots})"


class Landing:
    """What landings say in statements, for tables of one schema (SQLite's parameter style)."""

    def __init__(self, tables: Sequence[Table[Any]]) -> None:
        self._heads = {table.root_kind: table for table in tables if table.head}
        self._by_kind: dict[str, list[Table[Any]]] = defaultdict(list)
        for table in tables:
            self._by_kind[table.root_kind].append(table)

    def revision(self, root: str) -> tuple[str, Key]:
        """Answer the statement that reads a root's revision: one row, or none when it is not there."""
        kind, _, name = root.partition(":")
        head = self._heads.get(kind)
        if head is None:
            return "SELECT root_rev FROM roots WHERE root = ?", (root,)
        return statements(head).rev, (name,)

    def steps(self, sets: Iterable[tuple[WriteSet, int]]) -> Iterator[Batch]:
        """Answer the statements that write some sets, each given with its commit sequence; their checks have passed.

        Several sets must stand apart from each other (`backend.stand_apart`): their rows go together, table by table.
        """
        deletes: dict[Table[Any], list[Any]] = defaultdict(list)
        updates: dict[Table[Any], list[Any]] = defaultdict(list)
        inserts: dict[Table[Any], list[Any]] = defaultdict(list)
        for ws, seq in sets:
            yield from self._drops(ws)
            yield from self._bumps(ws, seq)
            for table, keys in ws.deletes.items():
                deletes[table] += keys
            for table, rows in ws.updates.items():
                updates[table] += table.stamped(rows, seq)
            for table, rows in ws.inserts.items():
                stamped = table.stamped(rows, seq)
                inserts[table] += [(*row, seq) for row in stamped] if table.head else stamped
        for table, keys in deletes.items():
            yield statements(table).delete, keys
        for table, rows in updates.items():
            made = statements(table)
            if table.unique and not table.head:  # two rows may swap their values: neither may stand in the other's way
                yield made.delete, list(map(table.key_of, rows))
                yield made.insert, rows
            else:
                yield made.update, list(map(made.update_cells, rows))
        for table, rows in inserts.items():
            yield statements(table).insert, rows

    def _drops(self, ws: WriteSet) -> Iterator[Batch]:
        for root in ws.drops:
            kind, _, name = root.partition(":")
            for table in self._by_kind[kind]:
                yield statements(table).drop, [(name,)]
            yield "DELETE FROM roots WHERE root = ?", [(root,)]

    def _bumps(self, ws: WriteSet, seq: int) -> Iterator[Batch]:
        """Move the roots on that are written in; one that comes into being starts at `seq`, a head brings that itself."""
        again = {t.root_of(row) for t, rows in ws.inserts.items() for row in rows} if ws.drops else ()
        moved = {t.root_of(row) for t, rows in ws.updates.items() if t.head for row in rows}  # with their heads
        for claim in ws.claims:
            root, dropped = claim.root, claim.root in ws.drops
            if not claim.written or root in moved or (dropped and root not in again):
                continue
            kind, _, name = root.partition(":")
            head, new = self._heads.get(kind), dropped or not claim.expected
            if head is not None:
                if not new:
                    yield statements(head).bump, [(name,)]
            elif new:
                yield "INSERT INTO roots VALUES (?, ?)", [(root, seq)]
            else:
                yield "UPDATE roots SET root_rev = root_rev + 1 WHERE root = ?", [(root,)]
