"""The reference backend: a dict per table and root, sorted key lists, check and apply. Read it in five minutes.

Everything happens between two awaits, so a landing is atomic by being synchronous. Rows are tuples and never change, so a
row handed out stays what it was. A read view keeps the partitions it may still need: a landing copies a partition before
changing it while a view is open, and copies nothing otherwise, so a transaction costs what it touches, not what is stored.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from ..clock import Clock
from ..schema import Key, Row, Table
from .backend import Answer, Deciding, Get, Landed, Lost, Measure, Reader, Request, RootRev, Scan, WriteSet, bytes_of
from .overlay import bounds
from .owners import OpenOwners


class Partition:
    """The rows of one table under one root: by key, and as one sorted list of order keys per declared order."""

    def __init__(self, table: Table[Any]) -> None:
        self.table = table
        self.rows: dict[Key, Row] = {}
        self.sorted: dict[str, list[Key]] = {order: [] for order in table.orders}
        self.by_order: dict[str, dict[Key, Key]] = {order: {} for order in table.orders if order != "key"}

    def put(self, row: Row) -> None:
        """Add or replace a row."""
        key = self.table.key_of(row)
        if key in self.rows:
            self.remove(key)
        self.rows[key] = row
        for order, keys in self.sorted.items():
            place = self.table.order_of[order](row)
            if keys and keys[-1] < place:
                keys.append(place)
            else:
                insort(keys, place)
            if order != "key":
                self.by_order[order][place] = key

    def remove(self, key: Key) -> None:
        """Take a row away."""
        row = self.rows.pop(key)
        for order, keys in self.sorted.items():
            place = self.table.order_of[order](row)
            del keys[bisect_left(keys, place)]
            if order != "key":
                del self.by_order[order][place]

    def scan(self, scan: Scan) -> list[Row]:
        """Answer the rows a scan covers, in key order, its limit and direction aside."""
        keys = self.sorted[scan.order]
        first, last = bounds(scan, keys)
        if scan.limit is not None and last - first > scan.limit:
            first, last = (last - scan.limit, last) if scan.reverse else (first, first + scan.limit)
        if scan.order == "key":
            return [self.rows[key] for key in keys[first:last]]
        found = self.by_order[scan.order]
        return [self.rows[found[place]] for place in keys[first:last]]

    def copy(self) -> Partition:
        """Answer a partition that later changes of this one do not reach."""
        twin = Partition(self.table)
        twin.rows = dict(self.rows)
        twin.sorted = {order: list(keys) for order, keys in self.sorted.items()}
        twin.by_order = {order: dict(found) for order, found in self.by_order.items()}
        return twin


Partitions = dict[str, Partition]  # by root


class State:
    """Tables and root revisions: what is committed, or what a view still sees."""

    def __init__(self, tables: Sequence[Table[Any]]) -> None:
        self.tables: dict[Table[Any], Partitions] = {table: {} for table in tables}
        self.revs: dict[str, int] = {}

    def answer(self, request: Request) -> Answer:
        """Answer one request."""
        if isinstance(request, Get):
            partition = self.tables[request.table].get(request.table.root_of_key(request.key))
            return None if partition is None else partition.rows.get(request.key)
        if isinstance(request, RootRev):
            return self.revs.get(request.root, 0)
        if isinstance(request, Measure):
            rows = self.scan(request.scan._replace(limit=None, after=None, reverse=False))
            return len(rows), sum(_size(request.scan.table, row) for row in rows)
        return self.scan(request)

    def scan(self, scan: Scan) -> list[Row]:
        """Answer a scan, across roots when its prefix names none."""
        partitions = self.tables[scan.table]
        root = scan.table.root_of_prefix(scan.order, scan.prefix)
        if root is not None:
            rows = partitions[root].scan(scan) if root in partitions else []
        else:
            rows = [row for partition in partitions.values() for row in partition.scan(scan)]
            rows.sort(key=scan.table.order_of[scan.order])
        if scan.reverse:
            rows.reverse()
        return rows if scan.limit is None else rows[: scan.limit]


def _size(table: Table[Any], row: Row) -> int:
    return sum(bytes_of(row[i]) for i, c in enumerate(table.columns) if c.kind in ("json", "blob"))


class _View:
    """A state that stays: partitions as they were, kept one by one as landings are about to change them."""

    def __init__(self, state: State, tables: Sequence[Table[Any]]) -> None:
        self.state = State(tables)
        self.state.tables = {table: dict(partitions) for table, partitions in state.tables.items()}
        self.state.revs = dict(state.revs)

    async def read(self, requests: Sequence[Request]) -> list[Answer]:
        return [self.state.answer(request) for request in requests]


class MemoryBackend:
    """Everything in this process's memory. See `backend.Backend` for the promises."""

    kind = "memory"
    cheap_views = False

    def __init__(self, name: str, tables: Sequence[Table[Any]], *, clock: Clock) -> None:
        self.name, self._tables, self._clock = name, tuple(tables), clock
        self._state = State(tables)
        self._seq = 0
        self._shared: set[int] = set()  # ids of partitions an open view may still hold
        self._views = 0
        self._landed = asyncio.Event()
        self.owners = OpenOwners(of_others=False)

    async def open(self) -> None:
        """Nothing to connect to."""

    async def read(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer all requests; nothing can land in between."""
        return [self._state.answer(request) for request in requests]

    @asynccontextmanager
    async def _viewing(self) -> AsyncIterator[Reader]:
        self._views += 1
        self._shared = {id(p) for partitions in self._state.tables.values() for p in partitions.values()}
        try:
            yield _View(self._state, self._tables)
        finally:
            self._views -= 1
            if not self._views:
                self._shared = set()

    def read_view(self) -> AbstractAsyncContextManager[Reader]:
        """Open a reader of the state as it is now."""
        return self._viewing()

    def land(self, write_set: WriteSet) -> Deciding:
        """Check, then apply: no await in between, so nothing can be half there."""
        decided = Deciding()
        lost = self._refusal(write_set)
        if lost is None:
            self._seq += 1
            self._apply(write_set)
            self._landed.set()
            self._landed = asyncio.Event()
        decided.set_result(lost or Landed(self._seq))
        return decided

    def _refusal(self, ws: WriteSet) -> Lost | None:
        if ws.deadline_us is not None and self._clock() > ws.deadline_us:
            return Lost("deadline", "")
        for claim in ws.claims:
            if self._state.revs.get(claim.root, 0) != claim.expected:
                return Lost("root", claim.root)
        for table, rows in ws.inserts.items():
            for row in rows:
                root = table.root_of(row)
                partition = None if root in ws.drops else self._state.tables[table].get(root)
                if partition is not None and table.key_of(row) in partition.rows:
                    return Lost("duplicate", table.name)
        return self._unique_refusal(ws)

    def _unique_refusal(self, ws: WriteSet) -> Lost | None:
        for table in self._tables:
            written = ws.inserts.get(table, []) + ws.updates.get(table, [])
            if not table.unique or not written:
                continue
            gone = {*ws.deletes.get(table, []), *(table.key_of(row) for row in written)}
            kept = [
                row
                for root, partition in self._state.tables[table].items()
                if root not in ws.drops
                for key, row in partition.rows.items()
                if key not in gone
            ]
            for unique in table.unique:
                places = [p for row in kept + written if (p := _unique_place(table, unique, row)) is not None]
                if len(places) != len(set(places)):
                    return Lost("unique", table.name)
        return None

    def _apply(self, ws: WriteSet) -> None:
        revs = self._state.revs
        for claim in ws.claims:
            if claim.written:
                revs[claim.root] = claim.expected + 1 if claim.expected else self._seq
        for root in ws.drops:
            revs.pop(root, None)
            for partitions in self._state.tables.values():
                partitions.pop(root, None)
        for table, keys in ws.deletes.items():
            for key in keys:
                self._own(table, table.root_of_key(key)).remove(key)
        for part in (ws.updates, ws.inserts):
            for table, rows in part.items():
                for row in table.stamped(rows, self._seq):
                    self._own(table, table.root_of(row)).put(row)
        for table, rows in ws.inserts.items():
            for root in {table.root_of(row) for row in rows} if ws.drops else ():
                revs.setdefault(root, self._seq)

    def _own(self, table: Table[Any], root: str) -> Partition:
        partitions = self._state.tables[table]
        partition = partitions.get(root)
        if partition is None:
            partition = partitions[root] = Partition(table)
        elif id(partition) in self._shared:
            partition = partitions[root] = partition.copy()
        return partition

    async def advance(self, seq: int) -> None:
        """Give later landings sequences above this one."""
        self._seq = max(self._seq, seq)

    async def now(self) -> int:
        """Read the clock the store was opened with."""
        return self._clock()

    async def watch(self, after: int, timeout_s: float) -> int:
        """Wait for a landing."""
        if self._seq <= after:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._landed.wait()
            except TimeoutError:
                pass
        return self._seq

    async def close(self) -> None:
        """Nothing to let go of: the rows go with the object."""


def _unique_place(table: Table[Any], unique: Any, row: Row) -> Key | None:
    if unique.where is not None and row[table.index[unique.where[0]]] != unique.where[1]:
        return None
    return tuple(row[table.index[name]] for name in unique.columns)
