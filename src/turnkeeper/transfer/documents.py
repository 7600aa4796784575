"""What readers of JSON exports share: bytes to values that every store keeps, losses with their place, typed fields. Pure.

* A document is one JSON value, or JSON Lines; a list, and the list inside an object that only wraps one, is its entries.
* The rules for numbers, keys and code points are those of `sillytavern_lines`: what no backend keeps is wrapped, never
  rounded. What is nested too deeply for a store is folded into ``{"$json": "<the same as JSON text>"}`` and reported.
* A document that breaks off or is no JSON is refused as a whole, with the place; of JSON Lines the broken lines are
  kept byte for byte and reported, if at least one line could be read.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from turnkeeper.errors import Invalid, TooLarge
from turnkeeper.limits import FOREIGN_BYTES, JSON_DEPTH
from turnkeeper.transfer.imported import Loss
from turnkeeper.transfer.sillytavern_dates import read_date
from turnkeeper.transfer.sillytavern_lines import LineParser, Unreadable, dump_line

_BOM = b"\xef\xbb\xbf"
_FOLDED = "$json"
_DEPTH_MAX = JSON_DEPTH - 16
"""Deepest nesting of one conversation's field; the rest is left for what it is kept in."""

_WRAPPERS = ("conversations", "chats", "data", "items")
_SECONDS_MAX = 253_402_300_800
_SHORT_UUID = re.compile(r"0{8}-0{4}-[04]0{3}-[08]?0{3,4}-0{12}")


class Document(msgspec.Struct, frozen=True):
    """The entries of one file, in its order, its digest, and what was noticed while it was read."""

    name: str
    file_sha256: str
    entries: tuple[Any, ...]
    losses: tuple[Loss, ...]


class Notes:
    """The losses of one conversation, each with its place; a kind is told once a place."""

    def __init__(self, **place: Any) -> None:
        self._place = place
        self._told: set[tuple[str, str]] = set()
        self.losses: list[Loss] = []

    def add(self, kind: str, action: str, **where: Any) -> None:
        """Report one thing at a place within the conversation."""
        place = {**self._place, **where}
        if (kind, repr(place)) not in self._told:
            self._told.add((kind, repr(place)))
            self.losses.append(Loss(kind, place, action))

    def wrong_type(self, field: str, **where: Any) -> None:
        """Report a field whose value is of another type than the format says."""
        self.add("wrong_type", "read as absent, and kept", field=field, **where)


class _Parser(LineParser):
    """The rules of a line for a whole document: how deep it is does not matter here."""

    def document(self, content: bytes) -> tuple[Any, list[str], bool]:
        """Read a document; answer its value, the keys it held twice, whether numbers were wrapped."""
        self._repeated, self._has_raw = [], False
        value = self._decoder.decode(content.decode("utf-8"))
        return value, list(dict.fromkeys(self._repeated)), self._has_raw


def read_document(name: str, content: bytes) -> Document:
    """Read a JSON or JSON Lines document. Raises Invalid for one that is neither, TooLarge above `FOREIGN_BYTES`."""
    if len(content) > FOREIGN_BYTES:
        raise too_large(name)
    notes = Notes()
    body = content.removeprefix(_BOM)
    if body is not content and len(body) < len(content):
        notes.add("byte_order_mark", "dropped")
    sha = hashlib.sha256(content).hexdigest()
    if not body.strip():
        notes.add("file_empty", "no session")
        return Document(name, sha, (), tuple(notes.losses))
    entries = _entries(name, body, notes)
    return Document(name, sha, tuple(fold(entry, notes) for entry in entries), tuple(notes.losses))


def too_large(name: str, limit: int = FOREIGN_BYTES) -> TooLarge:
    """Make the error for a file above a limit of bytes."""
    return TooLarge(
        f"{name} holds more than {limit:,} bytes.", do="Split it, and import the parts.",
        family="foreign-bytes", limit=limit,
    )  # fmt: skip


def _entries(name: str, body: bytes, notes: Notes) -> list[Any]:
    try:
        value, repeated, has_raw = _Parser().document(body)
    except RecursionError:
        raise Invalid(f"{name} is nested too deeply to be read.", do="Choose the export itself.", path=name) from None
    except UnicodeDecodeError as error:
        if lines := _lines(body, notes):
            return lines
        raise Invalid(
            f"{name} is not UTF-8 at byte {error.start}.", do="Export it again, or convert it to UTF-8.", path=name
        ) from None
    except json.JSONDecodeError as error:
        if lines := _lines(body, notes):
            return lines
        raise Invalid(
            f"{name} is not whole JSON: it cannot be read on from character {error.pos}.",
            do="Download the export again; it may have broken off.", path=name,
        ) from None  # fmt: skip
    if repeated:
        notes.add("key_repeated", "the last value wins", keys=len(repeated))
    if has_raw:
        notes.add("number_beyond_64_bits", "kept as it was written")
    if isinstance(value, dict):
        for wrapper in _WRAPPERS:
            if isinstance(value.get(wrapper), list) and not value.get("mapping"):
                rest = {key: item for key, item in value.items() if key != wrapper}
                if rest:
                    notes.add(
                        "wrapper_fields",
                        "kept in this report: they belong to no conversation",
                        fields=fold(rest, notes),
                    )
                return list(value[wrapper])
        return [value]
    return value if isinstance(value, list) else [value]


def _lines(body: bytes, notes: Notes) -> list[Any]:
    """Read JSON Lines; [] when no line is an object, so that this is no such file."""
    lines = [(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]
    if len(lines) < 2:
        return []
    parser, found = LineParser(), []
    broken: list[tuple[int, str, bytes]] = []
    for number, line in lines:
        try:
            value = parser.parse(line).value
        except Unreadable as error:
            broken.append((number, error.kind, line))
            continue
        found.append(value)
    objects = [value for value in found if isinstance(value, dict)]
    if not objects or len(objects) < len(broken):
        return []
    for number, kind, line in broken:
        notes.add(
            kind, "kept byte for byte in the report, not read",
            line=number, base64=base64.b64encode(line[:100_000]).decode(), bytes=len(line),
        )  # fmt: skip
    return found


def fold(value: Any, notes: Notes) -> Any:
    """Answer a value with what is nested deeper than a store keeps folded into JSON text."""
    if not _deeper(value, _DEPTH_MAX):
        return value
    notes.add("nested_too_deeply", "the inner part is kept as JSON text")
    return _folded(value, _DEPTH_MAX)


def _deeper(value: Any, depth: int) -> bool:
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    for _ in range(depth):
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True


def _folded(value: Any, left: int) -> Any:
    if not isinstance(value, dict | list):
        return value
    if left == 0:
        try:
            return {_FOLDED: dump_line(value)}
        except RecursionError:
            return {_FOLDED: json.dumps(value)}
    if isinstance(value, dict):
        return {key: _folded(item, left - 1) for key, item in value.items()}
    return [_folded(item, left - 1) for item in value]


def text(value: Any, default: str = "") -> str:
    """Answer a text field, or the default for anything else."""
    return value if isinstance(value, str) else default


def items(value: Any) -> list[Any]:
    """Answer a list field; anything else is an empty list."""
    return value if isinstance(value, list) else []


def fields(value: Any) -> dict[str, Any]:
    """Answer an object field; anything else is an empty object."""
    return value if isinstance(value, dict) else {}


def seconds(value: Any) -> int | None:
    """Read seconds since 1970, as a number or a text of digits, to microseconds; None where there is no such time."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    while abs(value) >= _SECONDS_MAX and abs(value) < _SECONDS_MAX * 10**9:  # milli-, micro- or nanoseconds
        value = value / 1000
    if not -62_135_596_800 <= value < _SECONDS_MAX:
        return None
    return value * 1_000_000 if isinstance(value, int) else round(value * 1_000_000)


def when(value: Any, notes: Notes, *, required: bool = True, **where: Any) -> int | None:
    """Read a time as a number of seconds or as a text, and report it if it is absent, without zone or unreadable."""
    if value is None or value == "":
        if required:
            notes.add("date_missing", "left without a time", **where)
        return None
    if isinstance(value, str):
        found, problem = read_date(value)
        if problem:
            notes.add(problem, "read as UTC" if found is not None else "left without a time", **where)
        return found
    found = seconds(value)
    if found is None:
        notes.add("date_unreadable", "left without a time", **where)
    return found


def no_parent(value: Any) -> bool:
    """Say whether a parent field names no message: null, an empty text, or one of the all-zero ids."""
    return value is None or value == "" or (isinstance(value, str) and _SHORT_UUID.fullmatch(value) is not None)


def text_part(content: str) -> dict[str, Any]:
    """Make a text part."""
    return {"type": "text", "text": content}


def joined(texts: Sequence[str], separator: str) -> list[dict[str, Any]]:
    """Make the parts of texts that are read with a separator between them, so that together they are the line's text."""
    parts: list[dict[str, Any]] = []
    for content in texts:
        if parts:
            parts.append({"type": "text", "text": separator, "joiner": True})
        parts.append(text_part(content))
    return parts


def kept(value: dict[str, Any], *without: str) -> dict[str, Any]:
    """Answer an object without some of its fields."""
    return {key: item for key, item in value.items() if key not in without}


def is_id(value: Any) -> bool:
    """Say whether a value can be the id of a message."""
    return isinstance(value, str) and value != ""


def model_meta(model: Any) -> dict[str, Any]:
    """Answer what is known of a version's making: its model."""
    return {"model": model} if isinstance(model, str) and model else {}
