"""What a store of the library's tables should answer, as plain dicts: too simple to be wrong, too slow to be used."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from itertools import count
from typing import Any

import msgspec

from turnkeeper.jsonvalue import encode
from turnkeeper.schema import Table
from turnkeeper.testing.tables import BOOKS, CARDS, LIBRARY, SHELVES

Place = tuple[str, tuple[Any, ...]]  # a table's name and a key
Rows = dict[Place, msgspec.Struct]
TABLES: dict[str, Table[Any]] = {table.name: table for table in LIBRARY.tables}


def place_of(record: msgspec.Struct) -> Place:
    """Answer where a record stands."""
    table = next(table for table in LIBRARY.tables if table.record is type(record))
    return table.name, tuple(getattr(record, name) for name in table.key)


def root_of(place: Place) -> str:
    """Answer the root of a place: its key's first column, which is the root's in every table of the library."""
    return f"{TABLES[place[0]].root_kind}:{place[1][0]}"


def bare(record: msgspec.Struct | None) -> msgspec.Struct | None:
    """Answer a record without its commit sequence."""
    return msgspec.structs.replace(record, seq=0) if hasattr(record, "seq") else record


def scanned(rows: Rows, table: Table[Any], bounds: dict[str, Any]) -> list[msgspec.Struct]:
    """Answer the rows of a scan: sort all, keep those inside every bound, cut."""
    columns = table.orders[bounds.get("order", "key")]
    prefix = bounds.get("prefix", ())

    def cells(record: msgspec.Struct) -> tuple[Any, ...]:
        return tuple(getattr(record, name) for name in columns)

    found = sorted((r for (name, _), r in rows.items() if name == table.name), key=lambda r: _bytewise(cells(r)))
    found = [r for r in found if cells(r)[: len(prefix)] == tuple(prefix)]
    for bound, keeps in (("low", lambda a, b: a >= b), ("high", lambda a, b: a <= b)):
        if bounds.get(bound) is not None:
            limit = _bytewise((bounds[bound],))
            found = [r for r in found if keeps(_bytewise(cells(r)[len(prefix) : len(prefix) + 1]), limit)]
    after, reverse = bounds.get("after"), bounds.get("reverse", False)
    if after is not None:
        edge = _bytewise(tuple(after))
        found = [r for r in found if (_bytewise(cells(r)) < edge if reverse else _bytewise(cells(r)) > edge)]
    found = found[::-1] if reverse else found
    return found if bounds.get("limit") is None else found[: bounds["limit"]]


def _bytewise(cells: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(cell.encode() if isinstance(cell, str) else cell for cell in cells)


def size(records: Iterable[msgspec.Struct]) -> int:
    """Answer the bytes of the records' json and blob cells."""
    total = 0
    for record in records:
        table = TABLES[place_of(record)[0]]
        for column in table.columns:
            value = getattr(record, column.name)
            if column.kind == "blob" and value is not None:
                total += len(value)
            elif column.kind == "json" and not (value is None and column.null):
                total += len(encode(value).encode())
    return total


def taken_twice(rows: Rows) -> bool:
    """Say whether two cards share a number, or two open ones a holder."""
    cards: list[Any] = [record for (name, _), record in rows.items() if name == CARDS.name]
    holders = [card.holder for card in cards if card.state == "open"]
    numbers = [card.number for card in cards]
    return len(numbers) != len(set(numbers)) or len(holders) != len(set(holders))


class Database:
    """What is committed: the rows, and a token for each root that is another one whenever the root has moved."""

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.tokens: dict[str, int] = {}
        self._next = count(1)

    def land(self, tx: ModelTx) -> str:
        """Take a transaction's outcome over, or say why not."""
        after = tx.view()
        written = {root_of(place) for place in tx.changed()} | tx.dropped
        if not written:
            return "nothing to land"
        if tx.doomed():
            return "conflict"
        roots = {root for root in written if root.startswith("s:") and any(root_of(p) == root for p in after)}
        if any((SHELVES.name, (root[2:],)) not in after for root in roots):
            return "misuse"
        if taken_twice(after):
            return "unique"
        self.rows = after
        for root in written:
            there = any(root_of(place) == root for place in after)
            if root in tx.dropped and not there:
                self.tokens.pop(root, None)
            else:
                self.tokens[root] = next(self._next)
        return "landed"


class ModelTx:
    """One transaction: what it wrote on top of whatever is committed, and the roots it rests on."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.own: dict[Place, tuple[msgspec.Struct | None, bool]] = {}  # the row or None, and whether it was inserted
        self.dropped: set[str] = set()
        self.rests_on: dict[str, int | None] = {}
        self.savepoints: list[tuple[Any, Any]] = []

    def touch(self, root: str) -> None:
        """Rest on a root as it is at the first touch."""
        self.rests_on.setdefault(root, self.database.tokens.get(root))

    def doomed(self) -> bool:
        """Say whether a root it rests on has moved."""
        return any(self.database.tokens.get(root) != token for root, token in self.rests_on.items())

    def view(self) -> Rows:
        """Answer the rows as the transaction sees them."""
        rows = {place: row for place, row in self.database.rows.items() if root_of(place) not in self.dropped}
        for place, (row, _) in self.own.items():
            if row is None:
                rows.pop(place, None)
            else:
                rows[place] = row
        return rows

    def changed(self) -> list[Place]:
        """Answer the places whose row differs from what lies below; a new book always does, by its sequence."""
        below = {place: row for place, row in self.database.rows.items() if root_of(place) not in self.dropped}
        return [
            place
            for place, (row, inserted) in self.own.items()
            if row != below.get(place) or (inserted and row is not None and place[0] == BOOKS.name)
        ]

    def put(self, record: msgspec.Struct, *, inserted: bool) -> None:
        """Write a row."""
        place = place_of(record)
        self.own[place] = (record, inserted or self.own.get(place, (None, False))[1])

    def delete(self, place: Place) -> None:
        """Take a row away, or a whole root with its head."""
        if place[0] == SHELVES.name:
            self.drop(root_of(place))
        else:
            self.own[place] = (None, False)

    def drop(self, root: str) -> None:
        """Take a root away."""
        self.dropped.add(root)
        self.own = {place: row for place, row in self.own.items() if root_of(place) != root}

    def mark(self) -> None:
        """Begin a savepoint."""
        self.savepoints.append(deepcopy((self.own, self.dropped)))

    def rewind(self) -> None:
        """Undo what came since."""
        self.own, self.dropped = self.savepoints.pop()
