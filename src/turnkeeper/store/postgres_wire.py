"""What travels to the two PostgreSQL functions and back: requests and write sets as JSON, rows as arrays of text."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from ..errors import TooLarge
from ..schema import Cell, Row, Table
from .backend import Answer, Get, Landed, Lost, Measure, Request, RootRev, Scan, Verdict, WriteSet
from .migrations.functions import Functions

PART_BYTES = 32 * 1024 * 1024
"""One JSON document holds at most this much, or a single row: PostgreSQL takes 256 MB in one."""
CALL_BYTES = 900 * 1024 * 1024
"""What one landing may weigh: PostgreSQL takes a message of 1 GB."""
BUCKETS = 1024
"""Roots that come into being are locked by the remainder of a hash: any number of them needs at most so many locks."""
NEWEST = [0]
"""One more request: the newest commit sequence, and the one below which nothing can land any more."""

Asked = Request | list[int]
_encode = msgspec.json.Encoder().encode


class Wire:
    """The documents of one schema."""

    def __init__(self, functions: Functions) -> None:
        self._functions, self._numbers = functions, functions.numbers
        self._places = {head.root_kind: place for place, head in enumerate(functions.heads) if head is not None}
        self._tables = {table: number for number, table in enumerate(functions.tables)}

    def _root(self, root: str) -> tuple[int, str]:
        kind, _, name = root.partition(":")
        place = self._places.get(kind, 0)
        return place, name if place else root

    # reading

    def requests(self, requests: Iterable[Asked]) -> str:
        """Write requests as the document of a read call."""
        return _encode([self._request(request) for request in requests]).decode()

    def _request(self, request: Asked) -> list[Any]:
        if isinstance(request, Get):
            table, key = request
            number = self._numbers["scan", table, "key", len(key), False, False]
            return [number, None, None, None, *_sent(table, table.key, key)]
        if isinstance(request, RootRev):
            place, name = self._root(request.root)
            return [self._numbers["root", place], name]
        if isinstance(request, list):
            return request
        scan = request.scan if isinstance(request, Measure) else request
        table, order, equal = scan.table, scan.order, len(scan.prefix)
        names, after, limit = table.orders[order], scan.after, scan.limit
        low, high = (_sent(table, names[equal : equal + 1] or names, (cell,))[0] for cell in (scan.low, scan.high))
        if isinstance(request, Measure):
            return [self._numbers["measure", table, order, equal], None, low, high, *_sent(table, names, scan.prefix)]
        way = (scan.reverse, after is not None)
        if equal == len(names):  # the prefix names one row: nothing comes after it
            way, limit = (False, False), limit if after is None else 0
        cells = scan.prefix if after is None else (*scan.prefix, *after[equal:])
        return [self._numbers["scan", table, order, equal, *way], limit, low, high, *_sent(table, names, cells)]

    def answer(self, request: Asked, rows: list[list[str | None]]) -> Answer:
        """Turn the rows that came for a request into its answer."""
        if isinstance(request, Get):
            return _reader(request.table)(rows[0]) if rows else None
        if isinstance(request, Scan):
            return list(map(_reader(request.table), rows))
        numbers = tuple(int(cell or 0) for cell in rows[0]) if rows else (0,)
        return numbers if len(numbers) > 1 else numbers[0]

    # landing

    def landing(self, sets: Sequence[WriteSet], now_us: int | None) -> tuple[str, list[str]]:
        """Write a group of sets as the head and the parts of a landing call. Raises TooLarge."""
        head: dict[str, Any] = {"sets": len(sets), "now": now_us, "new": _new(sets), "locks": self._locks(sets)}
        rows: dict[str, list[Any]] = {}
        for i, ws in enumerate(sets):
            if ws.deadline_us is not None:
                head.setdefault("until", []).append((i, ws.deadline_us))
            for n, claim in enumerate(ws.claims):
                place, name = self._root(claim.root)
                head.setdefault(f"c{place}", []).append((i, n, name, claim.expected))
            for key, entry in self._bumps(i, ws):
                head.setdefault(key, []).append(entry)
            for root in ws.drops:
                kind, _, name = root.partition(":")
                head.setdefault(f"x{self._functions.kinds.index(kind)}", []).append((i, name))
            for table, letter, entries in _written(ws):
                write = _writer(table, letter == "d")
                rows.setdefault(f"{letter}{self._tables[table]}", []).extend([write(i, entry) for entry in entries])
        head["tables"] = list({key[1:] for key in rows})
        return _encode(head).decode(), _parts(sorted(rows.items(), key=lambda entry: "dui".index(entry[0][0])))

    def _bumps(self, i: int, ws: WriteSet) -> Iterator[tuple[str, Any]]:
        """Yield what becomes of the revision of every written root whose head's row is not written anyway."""
        moved = {table.root_of(row) for table, rows in ws.updates.items() if table.head for row in rows}
        alive = {table.root_of(row) for table, rows in ws.inserts.items() for row in rows} if ws.drops else set()
        for claim in ws.claims:
            place, name = self._root(claim.root)
            again = claim.root in ws.drops
            if not claim.written or (again and claim.root not in alive):
                continue
            if not place:
                yield "b0", (i, name, claim.expected + 1 if claim.expected and not again else None)
            elif claim.expected and not again and claim.root not in moved:
                yield f"b{place}", (i, name)

    def _locks(self, sets: Sequence[WriteSet]) -> list[tuple[int, list[str]]]:
        """Answer which roots to lock, in the one order that every landing uses, so that waits cannot form a cycle."""
        modes: dict[tuple[int, str | int], bool] = {}
        for ws in sets:
            for claim in ws.claims:
                place, name = self._root(claim.root)
                head = self._functions.heads[place]
                counted = head is not None and head.columns[head.index[head.root_column]].kind == "integer"
                at = (place, int(name) if counted else name)
                modes[at] = modes.get(at, False) or claim.written
        runs: list[tuple[int, list[str]]] = []
        for (place, value), written in sorted(modes.items()):
            if not runs or runs[-1][0] != 2 * place + written:
                runs.append((2 * place + written, []))
            runs[-1][1].append(str(value))
        return runs

    def verdicts(self, sets: Sequence[WriteSet], answer: Any) -> list[Verdict]:
        """Read the answer of a landing call: the first reason counts, in the order all backends try them."""
        first, *failures = answer
        worst: dict[int, tuple[int, int]] = {}
        for i, why, what in zip(*(column or () for column in failures), strict=True):
            worst[i] = min(worst.get(i, (why, what)), (why, what))
        roots = {i: sets[i].claims[what].root for i, (why, what) in worst.items() if why}
        lost = {i: Lost("root", roots[i]) if i in roots else Lost("deadline", "") for i in worst}
        return [lost.get(i) or Landed(first + i) for i in range(len(sets))]


def _written(ws: WriteSet) -> Iterator[tuple[Table[Any], str, list[Any]]]:
    yield from ((table, "d", keys) for table, keys in ws.deletes.items())
    for table, rows in ws.updates.items():
        if table.unique:  # only the state after it counts: no value may be in the way of one that takes its place
            yield table, "d", [table.key_of(row) for row in rows]
        yield table, "i" if table.unique else "u", rows
    yield from ((table, "i", rows) for table, rows in ws.inserts.items())


def _new(sets: Sequence[WriteSet]) -> list[tuple[int, bool]]:
    """Answer the locks of roots that are not there yet, in order: who makes one waits for who makes the same."""
    buckets: dict[int, bool] = {}
    for claim in (claim for ws in sets for claim in ws.claims if not claim.expected):
        bucket = zlib.crc32(claim.root.encode()) % BUCKETS
        buckets[bucket] = buckets.get(bucket, False) or claim.written
    return sorted(buckets.items())


def _parts(rows: list[tuple[str, list[Any]]]) -> list[str]:
    parts: list[list[str]] = [[]]
    size = total = 0
    for key, entries in rows:
        for piece, text in enumerate(_pieces(entries)):
            if size and (piece or size + len(text) > PART_BYTES):  # a key stands once in a document
                parts.append([])
                size = 0
            parts[-1].append(f'"{key}":{text.decode()}')
            size += len(text)
            total += len(text)
    if total > CALL_BYTES:
        raise TooLarge(
            f"A transaction of {total:,} bytes is above what PostgreSQL takes at once, {CALL_BYTES:,}.",
            do="Split it into several transactions.", family="landing-bytes", limit=CALL_BYTES, size=total,
        )  # fmt: skip
    return ["{" + ",".join(part) + "}" for part in parts]


def _pieces(entries: list[Any]) -> Iterator[bytes]:
    text = _encode(entries)
    if len(text) <= PART_BYTES or len(entries) == 1:
        yield text
    else:
        half = len(entries) // 2
        yield from _pieces(entries[:half])
        yield from _pieces(entries[half:])


def _sent(table: Table[Any], names: Sequence[str], cells: Sequence[Cell]) -> list[Any]:
    kinds = (table.columns[table.index[name]].kind for name in names)
    return [c if kind in ("text", "integer") else _plain(c) for kind, c in zip(kinds, cells, strict=False)]


def _plain(cell: Any) -> Any:
    return cell.hex() if isinstance(cell, bytes) else repr(cell) if isinstance(cell, float) else cell


@cache
def _writer(table: Table[Any], key: bool) -> Callable[[int, Row], tuple[Any, ...]]:
    """Answer how a row (or key) of a set is sent: the set's number, then its cells."""
    columns = [table.columns[table.index[name]] for name in (table.key if key else table.names)]
    if all(c.kind not in ("real", "blob") for c in columns):
        return lambda i, row: (i, *row)
    return lambda i, row: (i, *map(_plain, row))


@cache
def _reader(table: Table[Any]) -> Callable[[list[str | None]], Row]:
    """Answer how a row that came as text is read; generated, because every row of every scan passes here."""
    calls = {"integer": "int(c[{i}])", "real": "float(c[{i}])", "blob": "fromhex(c[{i}])"}
    parts = []
    for i, c in enumerate(table.columns):
        made = calls.get(c.kind, "c[{i}]").format(i=i)
        parts.append(f"None if c[{i}] is None else {made}" if c.null and c.kind in calls else made)
    read: Callable[[list[str | None]], Row] = eval(f"lambda c: ({', '.join(parts)},)", {"fromhex": bytes.fromhex})
    return read
