"""Tables declared once, as data: a frozen record, its key, the orders it can be scanned in, and the root of its rows.

From a `Table` follow the DDL of both SQL dialects, the statements, the memory layout and the codec. Rules:

* A column's cell is one of text, integer, real, blob, json. Text is for ids and closed vocabularies; whatever a person
  or a model wrote is json. Integers have 64 bits; times are integer microseconds UTC; booleans are 0 and 1.
* Columns of keys and orders are NOT NULL, and no key, order or unique names a json cell. Text orders bytewise.
* Each order ends in the key, so no two rows tie. The key itself is the order named "key".
* Every row belongs to a root, found from one column of its key. A table may be the *head* of its kind of root: then the
  root's revision lives in its row; other roots have theirs in a table of the waist's own.
* `cache=True` marks a table of disposable rows, made of values that were checked when they came in: they are written
  without being walked again, and a json cell that cannot be read is read as UNSET, not refused.
* `payload=True` marks a table with large cells (a rowid table with a unique index in SQLite); others are clustered.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

R = TypeVar("R", bound=msgspec.Struct)
Cell = str | int | float | bytes | None
Row = tuple[Cell, ...]
Key = tuple[Cell, ...]

Personal = Annotated[str, "json"]
"""Text that a person or a model wrote: kept in a json cell, so that it can be sealed."""

Json = Annotated[Any, "json"]
"""Any JSON value."""

CommitSeq = Annotated[int, "commit"]
"""Filled in by the backend with the landing's commit sequence; 0 before it has landed."""


class Column(msgspec.Struct, frozen=True):
    """One column: its name, its kind of cell, whether it may be null, and whether its Python value is a bool."""

    name: str
    kind: Literal["text", "integer", "real", "blob", "json"]
    null: bool = False
    is_bool: bool = False
    is_commit: bool = False


class Unique(msgspec.Struct, frozen=True):
    """A store-wide uniqueness over `columns`, of the rows where column `where[0]` equals `where[1]` if it is given."""

    columns: tuple[str, ...]
    where: tuple[str, str | int] | None = None


TABLE_OF: dict[type[msgspec.Struct], Table[Any]] = {}
"""The table of each record type: a record says by its type where it goes."""


class Table(Generic[R]):
    """A table's declaration and the pure functions that follow from it. Compared by identity; made once, at import."""

    def __init__(
        self,
        name: str,
        record: type[R],
        *,
        key: tuple[str, ...],
        root: tuple[str, str],
        orders: Mapping[str, tuple[str, ...]] | None = None,
        unique: tuple[Unique, ...] = (),
        head: bool = False,
        payload: bool = False,
        cache: bool = False,
    ) -> None:
        self.name, self.record, self.key, self.unique = name, record, key, unique
        self.head, self.payload, self.cache = head, payload, cache
        self.columns = tuple(_columns(record))
        self.names = tuple(c.name for c in self.columns)
        self.index = {n: i for i, n in enumerate(self.names)}
        self.kind_of = {c.name: c.kind for c in self.columns}
        self.root_kind, self.root_column = root
        named = {**(orders or {}), **{f"unique{i}": u.columns for i, u in enumerate(unique)}}
        self.orders = {"key": key, **{n: (*o, *(k for k in key if k not in o)) for n, o in named.items()}}
        self.commit_columns = tuple(i for i, c in enumerate(self.columns) if c.is_commit)
        self._check()
        self.key_of: Callable[[Row], Key] = _getter([self.index[k] for k in key])
        self.order_of = {n: _getter([self.index[c] for c in o]) for n, o in self.orders.items()}
        self.root_prefix = f"{self.root_kind}:"
        self.root_in_order = {n: o.index(self.root_column) for n, o in self.orders.items() if self.root_column in o}
        self.root_cell: Callable[[Row], Any] = itemgetter(self.index[self.root_column])
        self.root_in_key = key.index(self.root_column)
        TABLE_OF[record] = self

    def _check(self) -> None:
        by_name = {c.name: c for c in self.columns}
        for name in {*self.key, *(n for o in self.orders.values() for n in o), self.root_column}:
            column = by_name[name]
            assert column.kind != "json", f"{self.name}.{name}: a key, order or root cannot be a json cell"
            assert not column.null, f"{self.name}.{name}: a key, order or root cannot be null"
        assert not self.head or self.key == (self.root_column,), f"{self.name}: a head's key is its root's column"
        assert self.root_column in self.key, f"{self.name}: the root must follow from the key"

    def root_of(self, row: Row) -> str:
        """Answer the id of the root a row belongs to."""
        return f"{self.root_kind}:{self.root_cell(row)}"

    def root_of_key(self, key: Key) -> str:
        """Answer the id of the root the row with this key belongs to."""
        return f"{self.root_prefix}{key[self.root_in_key]!s}"

    def roots_of_keys(self, keys: Iterable[Key]) -> set[str]:
        """Answer the ids of the roots that rows with these keys belong to."""
        place = self.root_in_key
        return {f"{self.root_prefix}{cell!s}" for cell in {key[place] for key in keys}}

    def root_of_prefix(self, order: str, prefix: tuple[Cell, ...]) -> str | None:
        """Answer the one root a scan stays in, or None when it crosses roots."""
        place = self.root_in_order.get(order, len(prefix))
        return f"{self.root_prefix}{prefix[place]!s}" if place < len(prefix) else None

    def stamped(self, rows: list[Row], commit_seq: int) -> list[Row]:
        """Answer rows with their landing's commit sequence filled in."""
        if not self.commit_columns:
            return rows
        (column,) = self.commit_columns
        return [(*row[:column], row[column] or commit_seq, *row[column + 1 :]) for row in rows]

    def declaration(self) -> dict[str, Any]:
        """Answer the declaration as plain data: what the schema's digest is made of."""
        return {
            "name": self.name,
            "columns": [[c.name, c.kind, c.null, c.is_commit] for c in self.columns],
            "key": list(self.key),
            "orders": {n: list(o) for n, o in self.orders.items()},
            "unique": [[list(u.columns), list(u.where) if u.where else None] for u in self.unique],
            "root": [self.root_kind, self.root_column, self.head],
            "payload": self.payload,
        }

    def __repr__(self) -> str:
        return f"<Table {self.name}>"


def _getter(positions: list[int]) -> Callable[[Row], Key]:
    first, count = positions[0], len(positions)
    if positions == list(range(first, first + count)):
        return itemgetter(slice(first, first + count))  # a tuple also of one
    return itemgetter(*positions)


_KINDS = {str: "text", int: "integer", bool: "integer", float: "real", bytes: "blob"}


def _columns(record: type[msgspec.Struct]) -> list[Column]:
    hints = typing.get_type_hints(record, include_extras=True)
    return [_column(name, hints[name]) for name in record.__struct_fields__]


def _column(name: str, hint: Any) -> Column:
    marks: tuple[Any, ...] = ()
    if typing.get_origin(hint) is Annotated:
        marks, hint = hint.__metadata__, typing.get_args(hint)[0]
    null = False
    if isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union:
        options = [a for a in typing.get_args(hint) if a is not NoneType]
        null = len(options) < len(typing.get_args(hint))
        if len(options) == 1:
            (hint,) = options
            if typing.get_origin(hint) is Annotated:
                marks, hint = hint.__metadata__, typing.get_args(hint)[0]
    if "json" in marks:
        return Column(name, "json", null)
    if typing.get_origin(hint) is Literal:
        return Column(name, "text", null)
    kind = _KINDS.get(hint, "json")
    return Column(name, kind, null, is_bool=hint is bool, is_commit="commit" in marks)  # type: ignore[arg-type]
