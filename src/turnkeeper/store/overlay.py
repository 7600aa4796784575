"""A transaction's own writes laid over committed rows: live rows, one undo log, merged scans, the write set. Pure.

* `live[table][key]` is the row as this transaction left it, or None when it deleted it.
* `base[table][key]` is the committed row as it was read, or None when it is known to be absent. It makes reads
  repeatable and tells an insert from an update at the end. Committed rows are never written here before they are read.
* A savepoint is a mark in the undo log; rolling back rewinds to it. Reads never walk layers.
* An insert of a key that was never looked up is *unchecked* until somebody asks (`unchecked_since`).

Nothing here knows a database, an event loop or a session.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from ..schema import Key, Row, Table
from .backend import RootClaim, Scan, WriteSet

UNKNOWN: Final = object()

Undo = Callable[[], None]


class Overlay:
    """The gathered writes of one transaction."""

    def __init__(self) -> None:
        self.live: dict[Table[Any], dict[Key, Row | None]] = {}
        self.base: dict[Table[Any], dict[Key, Row | None]] = {}
        self.revs: dict[str, int] = {}
        self.dropped: set[str] = set()
        self._log: list[tuple[Table[Any], Collection[Key], Sequence[Any] | None] | Undo] = []
        self._sorted: dict[tuple[Table[Any], str], tuple[int, list[Key], list[Row]]] = {}
        self._changes = 0

    # reading

    def find(self, table: Table[Any], key: Key) -> Any:
        """Answer the row, None when there is none, or UNKNOWN when the committed row was not read yet."""
        live = self.live.get(table)
        if live is not None and key in live:
            return live[key]
        if self.dropped and table.root_of_key(key) in self.dropped:
            return None
        base = self.base.get(table)
        return UNKNOWN if base is None else base.get(key, UNKNOWN)

    def learn(self, table: Table[Any], key: Key, row: Row | None) -> Row | None:
        """Keep a committed row as it was first read, and answer it."""
        return self.base.setdefault(table, {}).setdefault(key, row)

    def learn_all(self, table: Table[Any], rows: list[Row]) -> None:
        """Keep committed rows as they were first read."""
        base = self.base.setdefault(table, {})
        key_of = table.key_of
        for row in rows:
            base.setdefault(key_of(row), row)

    def holds_rows(self) -> bool:
        """Say whether anything here lies above, or instead of, the committed rows."""
        return bool(self.live or self.base or self.dropped)

    def known_base(self, table: Table[Any], key: Key) -> Any:
        """Answer the committed row, None, or UNKNOWN: what lies below this transaction's own writes."""
        if self.dropped and table.root_of_key(key) in self.dropped:
            return None
        return self.base.get(table, {}).get(key, UNKNOWN)

    def shadows(self, table: Table[Any]) -> int:
        """Count the own rows that may hide a committed one: how many more rows a limited scan must fetch."""
        live, base = self.live.get(table), self.base.get(table)
        return sum(1 for key in live if base.get(key) is not None) if live and base else 0

    def replaced(self, table: Table[Any], fetched: list[Row]) -> list[Row] | None:
        """Answer fetched rows as they are now, when the own writes on their table only replaced some; else None."""
        live = self.live.get(table)
        if not live:
            return fetched
        key_of = table.key_of
        rows = [live.get(key_of(row), row) for row in fetched]
        own = sum(1 for now, before in zip(rows, fetched, strict=True) if now is not before)
        return rows if own == len(live) and None not in rows else None  # type: ignore[return-value]

    def merge(self, scan: Scan, fetched: list[Row]) -> list[Row]:
        """Lay the own rows over those a scan fetched, in the scan's order and within its limit."""
        table, key_of = scan.table, scan.table.key_of
        if self.dropped:
            fetched = [row for row in fetched if table.root_of(row) not in self.dropped]
        live = self.live.get(table)
        if live:
            fetched = [row for row in fetched if key_of(row) not in live]
            own = self._matching(scan)
            if own:
                fetched = sorted(fetched + own, key=table.order_of[scan.order], reverse=scan.reverse)
        return fetched if scan.limit is None else fetched[: scan.limit]

    def _matching(self, scan: Scan) -> list[Row]:
        keys, rows = self._in_order(scan.table, scan.order)
        first, last = bounds(scan, keys)
        own = rows[first:last]
        return own[::-1] if scan.reverse else own

    def _in_order(self, table: Table[Any], order: str) -> tuple[list[Key], list[Row]]:
        stamp, keys, rows = self._sorted.get((table, order), (-1, [], []))
        if stamp != self._changes:
            order_of = table.order_of[order]
            rows = sorted((row for row in self.live.get(table, {}).values() if row is not None), key=order_of)
            keys = [order_of(row) for row in rows]
            self._sorted[table, order] = (self._changes, keys, rows)
        return keys, rows

    # writing

    def put(self, table: Table[Any], key: Key, row: Row | None) -> None:
        """Set the row of a key, or delete it (None)."""
        live = self.live.get(table)
        if live is None:
            live = self.live[table] = {}
        self._log.append((table, (key,), (live.get(key, UNKNOWN),)))
        live[key] = row
        self._changes += 1

    def add(self, table: Table[Any], rows: dict[Key, Row]) -> bool:
        """Add new rows as one entry of the undo log; False, and nothing is added, when one is known to be there."""
        live = self.live.get(table)
        if live is None:
            live = self.live[table] = {}
        base = self.base.get(table)
        if live or base or self.dropped:
            for key in rows:
                found = self.find(table, key)
                if found is not None and found is not UNKNOWN:
                    return False
        previous = [live.get(key, UNKNOWN) for key in rows] if live else None
        self._log.append((table, rows, previous))
        live.update(rows)
        self._changes += 1
        return True

    def drop(self, root: str, tables: Iterable[Table[Any]]) -> None:
        """Forget everything of one root: own rows now, committed rows at the landing."""
        for table in tables:
            for key, row in list(self.live.get(table, {}).items()):
                if row is not None and table.root_of(row) == root:
                    self.put(table, key, None)
        if root not in self.dropped:
            self.dropped.add(root)
            self._log.append(lambda: self.dropped.discard(root))

    def mark(self) -> int:
        """Answer a savepoint: the length of the undo log."""
        return len(self._log)

    def rewind(self, mark: int) -> None:
        """Undo every write since `mark`."""
        while len(self._log) > mark:
            entry = self._log.pop()
            if callable(entry):
                entry()
                continue
            table, keys, before = entry
            live = self.live[table]
            for i, key in enumerate(keys):
                if before is None or before[i] is UNKNOWN:
                    del live[key]
                else:
                    live[key] = before[i]
            self._changes += 1

    def written_since(self, mark: int) -> list[tuple[Table[Any], Key]]:
        """List the keys written since `mark` that have a row now."""
        keys = dict.fromkeys((e[0], key) for e in self._log[mark:] if not callable(e) for key in e[1])
        return [(t, k) for t, k in keys if self.live[t].get(k) is not None]

    def unchecked_since(self, mark: int) -> list[tuple[Table[Any], Key]]:
        """List those of them whose committed row nobody has looked up."""
        return [(t, k) for t, k in self.written_since(mark) if self.known_base(t, k) is UNKNOWN]

    # landing

    def write_set(self, touched: Iterable[str], deadline_us: int | None = None) -> WriteSet | None:
        """Answer the net effect with the revision of every touched root, or None when nothing changes."""
        inserts: dict[Table[Any], list[Row]] = {}
        updates: dict[Table[Any], list[Row]] = {}
        deletes: dict[Table[Any], list[Key]] = {}
        written = set(self.dropped)
        for table, live in self.live.items():
            if live and not (self.dropped or self.base.get(table) or None in live.values()):
                inserts[table] = list(live.values())  # type: ignore[arg-type]  # nothing is known below: all are new
                written |= table.roots_of_keys(live)
            else:
                self._compare(table, live, written, inserts, updates, deletes)
        if not (inserts or updates or deletes or self.dropped):
            return None
        claims = tuple(RootClaim(root, self.revs[root], root in written) for root in sorted(touched))
        missing = written.difference(c.root for c in claims)
        assert not missing, f"rows of roots that were never touched: {missing}"
        return WriteSet(claims, tuple(sorted(self.dropped)), deletes, updates, inserts, deadline_us)

    def _compare(
        self,
        table: Table[Any],
        live: dict[Key, Row | None],
        written: set[str],
        inserts: dict[Table[Any], list[Row]],
        updates: dict[Table[Any], list[Row]],
        deletes: dict[Table[Any], list[Key]],
    ) -> None:
        """Sort a table's own rows by what the committed ones are that they replace."""
        base = self.base.get(table, {})
        for key, row in live.items():
            root = table.root_of_key(key)
            below = None if root in self.dropped else base.get(key)
            if below is None:
                if row is None:
                    continue
                inserts.setdefault(table, []).append(row)
            elif row is None:
                deletes.setdefault(table, []).append(key)
            elif row != below:
                updates.setdefault(table, []).append(row)
            else:
                continue
            written.add(root)


def bounds(scan: Scan, keys: list[Key]) -> tuple[int, int]:
    """Answer the slice of a sorted list of order keys that a scan covers (its limit and direction aside)."""
    prefix = scan.prefix
    first = bisect_left(keys, prefix if scan.low is None else (*prefix, scan.low))
    if scan.high is not None:
        last = bisect_right(keys, (*prefix, scan.high), key=lambda k: k[: len(prefix) + 1])
    elif prefix:
        last = bisect_right(keys, prefix, key=lambda k: k[: len(prefix)])
    else:
        last = len(keys)
    if scan.after is not None:
        if scan.reverse:
            last = min(last, bisect_left(keys, scan.after))
        else:
            first = max(first, bisect_right(keys, scan.after))
    return first, max(first, last)


def matching(scan: Scan, rows: list[Row]) -> list[Row]:
    """Answer the rows a scan covers, in its order: the definition of a scan that the backends are compared with."""
    order_of = scan.table.order_of[scan.order]
    rows = sorted(rows, key=order_of)
    first, last = bounds(scan, [order_of(row) for row in rows])
    return rows[first:last][::-1] if scan.reverse else rows[first:last]
