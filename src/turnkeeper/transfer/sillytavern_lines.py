"""From the bytes of a chat file to one JSON value a line, and back. Pure; holds one line at a time.

Rules:

* A line ends at LF and nowhere else; U+2028 and its kin are ordinary signs. A CR before the LF is not part of the text.
* A line is JSON as RFC 8259 has it, in UTF-8. `NaN` and the infinities, which some writers emit, are read as well.
* Every code point is kept, NUL and lone surrogates included. The order of keys is kept. Of equal keys the last wins.
* A number that no backend keeps becomes ``{"$raw": "<as written>"}``: a whole number beyond 64 bits, a number too large
  or too small for a 64-bit float, a number of more than 400 digits. An object that already has this very shape is
  wrapped once more, ``{"$raw": {"$raw": …}}``, so that `unwrap` and `dump_line` tell the two apart.
* A line nested deeper than `DEPTH_MAX` is not read: no store could keep it beside the fields that surround it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from turnkeeper.errors import TooLarge
from turnkeeper.limits import INT_MAX, INT_MIN, JSON_DEPTH

RAW = "$raw"
LINE_BYTES_MAX = 64 * 1024 * 1024
"""Longest line that is read; it must fit into memory several times over."""

DEPTH_MAX = JSON_DEPTH - 8
"""Deepest nesting of a line that is read; eight levels are left for what the line is kept in."""

_NUMBER_CHARS = 400
_NONZERO = re.compile("[1-9]")


class Line(msgspec.Struct, frozen=True):
    """One line as it stands in the file: its number from 1, its bytes without the LF."""

    number: int
    content: bytes


class ParsedLine(msgspec.Struct, frozen=True):
    """A line's JSON value; the keys it held twice; the paths of the numbers kept as written."""

    value: Any
    repeated_keys: tuple[str, ...]
    raw_paths: tuple[str, ...]


class Unreadable(Exception):
    """A line that is not JSON (kind `line_broken`) or nested too deeply (`line_too_deep`). Never leaves the reader."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(kind)


def split_lines(chunks: Iterable[bytes]) -> Iterator[Line]:
    """Cut a stream of chunks, of any size, into lines. Raises TooLarge above `LINE_BYTES_MAX`."""
    number, waiting, size = 1, [], 0
    for chunk in chunks:
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            waiting.append(chunk[start:end])
            _check_size(number, size + end - start)
            yield Line(number, b"".join(waiting))
            number, waiting, size, start = number + 1, [], 0, end + 1
        if start < len(chunk):
            waiting.append(chunk[start:])
            size += len(chunk) - start
            _check_size(number, size)
    if waiting:
        yield Line(number, b"".join(waiting))


def _check_size(number: int, size: int) -> None:
    if size > LINE_BYTES_MAX:
        raise TooLarge(
            f"Line {number} is longer than {LINE_BYTES_MAX:,} bytes.",
            do="Check that this is a chat file; if it is, cut the line and import the rest.",
            family="line-bytes", limit=LINE_BYTES_MAX, line=number,
        )  # fmt: skip


class LineParser:
    """Reads lines as JSON, one after another; holds nothing between two of them."""

    def __init__(self) -> None:
        self._repeated: list[str] = []
        self._has_raw = False
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._read_object,
            parse_int=self._read_int,
            parse_float=self._read_float,
            parse_constant=self._read_constant,
        )

    def parse(self, content: bytes) -> ParsedLine:
        """Read one line. Raises Unreadable, saying which kind."""
        self._repeated, self._has_raw = [], False
        try:
            value = self._decoder.decode(content.decode("utf-8"))
        except RecursionError:
            raise Unreadable("line_too_deep") from None
        except ValueError:
            raise Unreadable("line_broken") from None
        containers_max = content.count(b"[") + content.count(b"{")  # each adds at most two levels, see `RAW`
        if containers_max >= DEPTH_MAX // 2 and _too_deep(value):
            raise Unreadable("line_too_deep")
        raw_paths = tuple(_find_raw(value)) if self._has_raw else ()
        return ParsedLine(value, tuple(dict.fromkeys(self._repeated)), raw_paths)

    def _read_object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            seen: set[str] = set()
            self._repeated += [key for key, _ in pairs if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
        return {RAW: made} if len(made) == 1 and RAW in made else made

    def _read_int(self, digits: str) -> Any:
        if len(digits) <= 20:
            number = int(digits)
            if number == 0 and digits[0] == "-":
                return -0.0
            if INT_MIN <= number <= INT_MAX:
                return number
        return self._read_constant(digits)

    def _read_float(self, digits: str) -> Any:
        if len(digits) <= _NUMBER_CHARS:
            number = float(digits)
            finite = number - number == 0.0
            vanished = number == 0.0 and _NONZERO.search(digits.lower().partition("e")[0])
            if finite and not vanished:
                return number
        return self._read_constant(digits)

    def _read_constant(self, written: str) -> dict[str, str]:
        self._has_raw = True
        return {RAW: written}


def is_raw(value: Any) -> bool:
    """Say whether this is a number kept as it was written."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get(RAW), str)


def dump_line(value: Any) -> str:
    """Write a value as one line of JSON, key order kept, with its raw numbers as they were written.

    Lone surrogates are written as escapes, so the line is always valid UTF-8; so are U+0085, U+2028 and U+2029, which
    some readers take for line ends.
    """
    written: list[str] = []
    _write(value, written)
    return "".join(written)


def _write(value: Any, out: list[str]) -> None:
    if isinstance(value, dict):
        if len(value) == 1 and RAW in value:
            inside = value[RAW]
            if isinstance(inside, str):
                out.append(inside)
                return
            value = inside
        for index, (key, item) in enumerate(value.items()):
            out.append("," if index else "{")
            out.append(_dump_leaf(key) + ":")
            _write(item, out)
        out.append("}" if value else "{}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            out.append("," if index else "[")
            _write(item, out)
        out.append("]" if value else "[]")
    else:
        out.append(_dump_leaf(value))


_TO_ESCAPE = re.compile("[\u2028\u2029\x85\ud800-\udfff]")


def _dump_leaf(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _TO_ESCAPE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) if isinstance(value, str) else text


def _too_deep(value: Any) -> bool:
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    for _ in range(DEPTH_MAX):
        deeper: list[Any] = []
        for container in level:
            items = container.values() if isinstance(container, dict) else container
            deeper += [item for item in items if isinstance(item, dict | list)]
        if not deeper:
            return False
        level = deeper
    return True


def _find_raw(value: Any) -> Iterator[str]:
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        path, item = waiting.pop()
        if is_raw(item):
            yield path
        elif isinstance(item, dict):
            if len(item) == 1 and RAW in item:
                item = item[RAW]  # the foreign object itself, without what was wrapped around it
            waiting += [(f"{path}.{key}" if path else key, inner) for key, inner in item.items()][::-1]
        elif isinstance(item, list):
            waiting += [(f"{path}[{index}]", inner) for index, inner in enumerate(item)][::-1]
