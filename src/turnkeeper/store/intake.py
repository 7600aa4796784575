"""The one check of every value before any backend sees it, and the way back: records to rows of cells and to records.

Values are copied here, by being encoded: what a caller does with its dict later changes nothing. What no backend can
keep on every backend is refused with the same error, naming table, column and path, never the value. The encoders are
generated from the table declarations, once per table, because every row of every turn passes here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from ..errors import Damaged, Invalid, TooLarge
from ..jsonvalue import ESCAPED, check, decode, encode, fast_decode, fast_encode, plainly_fine, too_large
from ..limits import ID_BYTES, INT_MAX, INT_MIN, JSON_BYTES
from ..schema import Cell, Column, Key, Row, Table

R = TypeVar("R", bound=msgspec.Struct)


def json_cell(value: Any, path: str) -> str:
    """Check a JSON value and write it as a cell."""
    if not plainly_fine(value):
        check(value, path)
    return made_cell(value, path)


def made_cell(value: Any, path: str) -> str:
    """Write a cell of a JSON value that is made of checked ones, as those of caches are. Its size is checked still."""
    try:
        text = fast_encode(value)
    except UnicodeEncodeError:
        return encode(value, path)
    if len(text) > JSON_BYTES:
        raise too_large(len(text), path)
    return text.decode()


def text_cell(value: Any, path: str) -> str:
    """Check an id: text without NUL or lone surrogates, at most `limits.ID_BYTES` long."""
    if type(value) is not str:
        raise Invalid(f"{path} is {type(value).__name__}, not text.", do="Give a str.", path=path)
    if "\x00" in value:
        raise Invalid(f"{path} holds a NUL character, which an id cannot.", do="Choose another id.", path=path)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Invalid(
            f"{path} holds a lone surrogate, which an id cannot.", do="Choose another id.", path=path
        ) from None
    if size > ID_BYTES:
        raise TooLarge(
            f"{path} has {size:,} bytes; an id has at most {ID_BYTES:,}.",
            do="Choose a shorter id.", family="id-bytes", limit=ID_BYTES, size=size, path=path,
        )  # fmt: skip
    return value


def integer_cell(value: Any, path: str) -> int:
    """Check a whole number of 64 bits."""
    if type(value) is bool:
        return int(value)
    if type(value) is not int:
        raise Invalid(f"{path} is {type(value).__name__}, not a whole number.", do="Give an int.", path=path)
    if not INT_MIN <= value <= INT_MAX:
        raise Invalid(f"The whole number at {path} does not fit 64 bits.", do="Give a smaller one.", path=path)
    return value


def real_cell(value: Any, path: str) -> float:
    """Check a finite number. The sign of zero goes: SQLite keeps a whole real number without one (JSON cells keep it)."""
    if type(value) is int and -(2**53) <= value <= 2**53:
        value = float(value)
    if type(value) is not float or not math.isfinite(value):
        raise Invalid(f"The value at {path} is not a finite float.", do="Give a finite float.", path=path)
    return value + 0.0


def blob_cell(value: Any, path: str) -> bytes:
    """Check a value of bytes."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise Invalid(f"{path} is {type(value).__name__}, not bytes.", do="Give bytes.", path=path)
    return bytes(value)


_CELLS: dict[str, Callable[[Any, str], Cell]] = {
    "text": text_cell,
    "integer": integer_cell,
    "real": real_cell,
    "blob": blob_cell,
    "json": json_cell,
}
_INLINE = {
    "integer": "{v} if type({v}) is int and {min} <= {v} <= {max} else integer_cell({v}, {p!r})",
    "json": "json_cell({v}, {p!r})",
    "made": "made_cell({v}, {p!r})",
    "text": "{v} if type({v}) is str and len({v}) < 500 and {v}.isascii() and '\\0' not in {v} else text_cell({v}, {p!r})",
    "real": "real_cell({v}, {p!r})",
    "blob": "{v} if type({v}) is bytes else blob_cell({v}, {p!r})",
}


class Codec:
    """The generated `encode` (record to row) and `decode` (row to record) of one table."""

    def __init__(self, table: Table[Any]) -> None:
        self.table = table
        self.encode: Callable[[Any], Row] = _encoder(table)
        self._decode: Callable[[Iterable[Row]], list[Any]] = _decoder(table)

    def decode(self, row: Row) -> Any:
        """Answer the record a row holds. Raises Damaged, naming the row, when a cell cannot be read."""
        return self.decode_all((row,))[0]

    def decode_all(self, rows: Sequence[Row]) -> list[Any]:
        """Answer the records that rows hold. Raises Damaged, naming the first row of which a cell cannot be read."""
        try:
            return self._decode(rows)
        except (ValueError, TypeError, RecursionError):
            return [self._carefully(row) for row in rows]

    def _carefully(self, row: Row) -> Any:
        """Decode a row of which a cell may be what the fast reader refuses, or damaged."""
        try:
            cells = zip(self.table.columns, row, strict=True)
            return self.table.record(*[_value(column, cell) for column, cell in cells])
        except (ValueError, TypeError, RecursionError) as e:
            if self.table.cache:
                return self._salvaged(row)
            raise damaged(self.table, row) from e

    def _salvaged(self, row: Row) -> Any:
        """Answer a record of a cache whose cells that cannot be read are UNSET: what rests on it is built anew."""
        values: list[Any] = []
        for column, cell in zip(self.table.columns, row, strict=True):
            try:
                values.append(decode(cell) if column.kind == "json" and isinstance(cell, str) else cell)
            except (ValueError, TypeError, RecursionError):
                values.append(msgspec.UNSET)
        return self.table.record(*values)

    def cell(self, name: str, value: Any) -> Cell:
        """Check one column's value and answer its cell."""
        return cell(self.table.columns[self.table.index[name]], value, f"{self.table.name}.{name}")


def cell(column: Column, value: Any, path: str) -> Cell:
    """Check a value against its column and answer the cell."""
    if value is None and column.null:
        return None
    return _CELLS[column.kind](value, path)


def key_cells(table: Table[Any], names: tuple[str, ...], values: tuple[Any, ...]) -> Key:
    """Check the values of some key or order columns: a wrong type is an error here, not a row that is never found."""
    if len(values) > len(names):
        raise Invalid(f"{table.name} has {len(names)} columns there, not {len(values)}.", do="Give fewer values.")
    for name, value in zip(names, values, strict=False):
        kind = type(value)
        if kind is str and table.kind_of[name] == "text" and value.isascii() and len(value) < 500 and "\0" not in value:
            continue
        if kind is int and table.kind_of[name] == "integer" and INT_MIN <= value <= INT_MAX:
            continue
        return tuple(
            cell(table.columns[table.index[n]], v, f"{table.name}.{n}") for n, v in zip(names, values, strict=False)
        )
    return values


def damaged(table: Table[Any], row: Row) -> Damaged:
    """Build the error for a stored row that cannot be read."""
    key = "/".join(str(c) for c in table.key_of(row))
    return Damaged(
        f"The stored row {key} of {table.name} cannot be read.",
        "Nothing was changed, and no other row is affected.",
        "Restore it from a backup, or run the health check.",
        table=table.name,
        key=key,
        root=table.root_of(row),
    )


def _encoder(table: Table[Any]) -> Callable[[Any], Row]:
    parts, lines = [], []
    for i, c in enumerate(table.columns):
        lines.append(f"    v{i} = r.{c.name}")
        inline = _INLINE["made" if table.cache and c.kind == "json" else c.kind]
        made = inline.format(v=f"v{i}", p=f"{table.name}.{c.name}", min=INT_MIN, max=INT_MAX)
        parts.append(f"(None if v{i} is None else ({made}))" if c.null else f"({made})")
    source = "def encode(r):\n" + "\n".join(lines) + f"\n    return ({', '.join(parts)},)\n"
    space: dict[str, Any] = {f.__name__: f for f in (*_CELLS.values(), made_cell)}
    exec(source, space)  # the text is made of declared names only
    made_encoder: Callable[[Any], Row] = space["encode"]
    return made_encoder


def _decoder(table: Table[Any]) -> Callable[[Iterable[Row]], list[Any]]:
    names, parts = [f"c{i}" for i in range(len(table.columns))], []
    for c, cell in zip(table.columns, names, strict=True):
        made = cell
        if c.kind == "json":
            made = f"(fast_decode({cell}) if {cell}[:1] != ESCAPED else decode({cell}))"
        elif c.is_bool:
            made = f"bool({cell})"
        parts.append(f"None if {cell} is None else {made}" if c.null and made != cell else made)
    source = f"def decode_rows(rows):\n    return [record({', '.join(parts)}) for {', '.join(names)}, in rows]\n"
    space: dict[str, Any] = {"record": table.record, "decode": decode, "fast_decode": fast_decode, "ESCAPED": ESCAPED}
    exec(source, space)
    made_decoder: Callable[[Iterable[Row]], list[Any]] = space["decode_rows"]
    return made_decoder


def _value(column: Column, cell: Cell) -> Any:
    if cell is None and column.null:
        return None
    return decode(cell) if column.kind == "json" else bool(cell) if column.is_bool else cell  # type: ignore[arg-type]


_CODECS: dict[Table[Any], Codec] = {}


def codec(table: Table[Any]) -> Codec:
    """Answer the codec of a table, generated at its first use."""
    found = _CODECS.get(table)
    if found is None:
        found = _CODECS[table] = Codec(table)
    return found
