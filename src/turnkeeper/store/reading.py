"""The read verbs, `get`, `fetch`, `scan`, `count` and `size`, over whatever answers requests.

A transaction, a consistent view and the store itself are such things. What is asked for is checked here, before anything
reads: a wrong type or a bound outside its order is an error, never a row that is not found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from ..errors import Damaged, Invalid
from ..schema import Key, Row, Table
from .backend import Answer, Get, Measure, Request, RootRev, Scan, bytes_of
from .intake import codec, key_cells

R = TypeVar("R", bound=msgspec.Struct)
Recalling = Literal["no", "keep", "use"]
"""Whether a fetch of a transaction's is remembered for the next one (`keep`), and may be answered from the last (`use`)."""


class Unreadable(NamedTuple):
    """A stored row of which a cell cannot be read, with its cells as they are."""

    table: Table[Any]
    row: Row

    @property
    def key(self) -> Key:
        """Its key, which is always plain."""
        return self.table.key_of(self.row)

    def plain(self) -> Any:
        """Answer its record without the texts: json cells are null, or an empty dict where they cannot be."""
        cells: dict[str, Any] = {}
        for column, cell in zip(self.table.columns, self.row, strict=True):
            if column.kind != "json":
                cells[column.name] = bool(cell) if column.is_bool else cell
            else:
                cells[column.name] = None if column.null else {}
        return self.table.record(**cells)


class Rows:
    """The read verbs, over whatever answers requests: a transaction, a view, or the store itself."""

    async def _rows(self, requests: Sequence[Request]) -> list[Answer]:
        raise AssertionError("a subclass answers")

    async def get(self, table: Table[R], *key: Any) -> R | None:
        """Answer the record with this key, or None."""
        (row,) = await self._rows([Get(table, checked_key(table, key))])
        return None if row is None else codec(table).decode(row)

    async def fetch(
        self, root: str | None, *wanted: Get | Scan, unless_recalled: Sequence[Get] = (), recall: Recalling = "no"
    ) -> list[Any]:
        """Answer several gets and scans (of one root, or None) from one committed state: a record or None, or a list, each."""
        requests = [checked(request) for request in (*wanted, *unless_recalled)]
        return [decoded(request, answer) for request, answer in zip(requests, await self._rows(requests), strict=True)]

    async def scan(
        self,
        table: Table[R],
        *prefix: Any,
        order: str = "key",
        low: Any = None,
        high: Any = None,
        after: Key | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[R]:
        """Answer the records equal on `prefix`, in a declared order; see `backend.Scan` for the other bounds."""
        request = checked(Scan(table, order, prefix, low, high, after, limit, reverse))
        (rows,) = await self._rows([request])
        return codec(table).decode_all(rows)

    async def survey(
        self,
        table: Table[R],
        *prefix: Any,
        order: str = "key",
        after: Key | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[R | Unreadable]:
        """Scan over damage: a row that cannot be read stands in its place, with its cells as they are (ADR 11)."""
        (rows,) = await self._rows([checked(Scan(table, order, prefix, None, None, after, limit, reverse))])
        return [_read_or_kept(table, row) for row in rows]

    async def count(
        self, table: Table[Any], *prefix: Any, order: str = "key", low: Any = None, high: Any = None
    ) -> int:
        """Count the rows a scan would give."""
        (answer,) = await self._rows([Measure(checked(Scan(table, order, prefix, low, high)))])
        return int(answer[0])

    async def size(self, table: Table[Any], *prefix: Any, order: str = "key", low: Any = None, high: Any = None) -> int:
        """Answer the bytes that the json and blob cells of a scan hold, without decoding one."""
        (answer,) = await self._rows([Measure(checked(Scan(table, order, prefix, low, high)))])
        return int(answer[1])


def _read_or_kept(table: Table[R], row: Row) -> R | Unreadable:
    try:
        return codec(table).decode(row)  # type: ignore[no-any-return]
    except Damaged:
        return Unreadable(table, row)


def checked_key(table: Table[Any], key: Key) -> Key:
    """Check a whole key."""
    if len(key) != len(table.key):
        raise Invalid(f"The key of {table.name} has {len(table.key)} parts ({', '.join(table.key)}), not {len(key)}.")
    return key_cells(table, table.key, key)


def checked(request: Any) -> Any:
    """Check what a get or a scan names; answer the request as the backend gets it. Raises Invalid."""
    table = request.table
    if isinstance(request, Get):
        key = checked_key(table, request.key)
        return request if key is request.key else Get(table, key)
    names = table.orders.get(request.order)
    if names is None:
        raise Invalid(f"{table.name} has no order {request.order!r}.", do=f"It has {', '.join(table.orders)}.")
    prefix = key_cells(table, names, request.prefix)
    if request.low is request.high is request.after is request.limit is None:
        return request if prefix is request.prefix else request._replace(prefix=prefix)
    low, high = request.low, request.high
    if low is not None or high is not None:
        low, high = _range_cells(request, names[len(prefix) : len(prefix) + 1])
    after = request.after
    if after is not None:
        after = _after_cells(request, names, prefix)
    if request.limit is not None and (type(request.limit) is not int or request.limit < 0):
        raise Invalid("`limit` is a whole number from 0.", path="limit")
    if prefix is request.prefix and low is request.low and high is request.high and after is request.after:
        return request
    return request._replace(prefix=prefix, low=low, high=high, after=after)


def _range_cells(request: Scan, rest: tuple[str, ...]) -> tuple[Any, Any]:
    if not rest:
        raise Invalid(f"The order {request.order!r} of {request.table.name} has no column left for a range.")
    low, high = request.low, request.high
    return (
        None if low is None else key_cells(request.table, rest, (low,))[0],
        None if high is None else key_cells(request.table, rest, (high,))[0],
    )


def _after_cells(request: Scan, names: tuple[str, ...], prefix: Key) -> Key:
    after = key_cells(request.table, names, tuple(request.after or ()))
    if len(after) != len(names):
        raise Invalid(f"`after` needs all {len(names)} columns of the order {request.order!r} of {request.table.name}.")
    if after[: len(prefix)] != prefix:
        raise Invalid("`after` lies outside the prefix of the scan.", do="Give the order key of a row of this scan.")
    return after


def decoded(request: Get | Scan, answer: Answer) -> Any:
    """Answer what a get or a scan asked for as records."""
    if isinstance(request, Get):
        return None if answer is None else codec(request.table).decode(answer)
    return codec(request.table).decode_all(answer)


def root_of_request(request: Request) -> str | None:
    """Answer the one root a request reads, or None when it crosses roots."""
    if isinstance(request, Get):
        return request.table.root_of_key(request.key)
    if isinstance(request, Measure):
        request = request.scan
    return request.root if isinstance(request, RootRev) else request.table.root_of_prefix(request.order, request.prefix)


def size_of(table: Table[Any], row: Row) -> int:
    """Answer the bytes of a row's json and blob cells."""
    return sum(bytes_of(row[i]) for i, c in enumerate(table.columns) if c.kind in ("json", "blob"))
