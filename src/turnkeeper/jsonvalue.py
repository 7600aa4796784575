"""JSON as this library means it: which Python values are JSON, when two are equal, and their text forms. Pure.

Rules, each the same on every backend:

* A value is a dict with str keys, a list or tuple, a str, a bool, None, a finite float, or an int of 64 bits.
  Everything else is refused with its path; nothing is coerced (S-052). Subclasses of dict and list count as such.
* Every code point a Python `str` can hold is kept: NUL, and lone surrogates, which plain UTF-8 cannot carry.
  A text whose surrogates would be joined by a JSON reader is written in an escaped form marked by U+0003.
* Equality is by type: True is not 1, 1 is not 1.0, the order of keys does not matter (S-051).
* `canonical` (sorted keys) is for digests and comparison only; stored text keeps the caller's key order.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from typing import Any

import msgspec

from .errors import Invalid, TooLarge
from .limits import INT_MAX, INT_MIN, JSON_BYTES, JSON_DEPTH, JSON_NODES

_LEAVES = frozenset((str, bool, type(None)))
fast_encode = msgspec.json.Encoder().encode
_SORTING = msgspec.json.Encoder(order="sorted")
fast_decode = msgspec.json.decode
_MAX_FLOAT = sys.float_info.max
ESCAPED = "\x03"
_MARK = "\ue000"
_SPLIT_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_TO_ESCAPE = re.compile(f"[{_MARK}\ud800-\udfff]")
_UNESCAPE = re.compile(f"{_MARK}([0-9a-f]{{4}})")


class _Refused(Exception):
    """A value deep inside cannot be kept; the way to it is gathered while this travels up."""

    def __init__(self, why: str) -> None:
        self.why = why
        self.steps: list[str | int] = []


def check(value: Any, path: str = "$") -> None:
    """Refuse what is not JSON by this module's rules. Raises Invalid or TooLarge naming the path, never the value."""
    if not plainly_fine(value):
        _look_closely(value, path)


def _look_closely(value: Any, path: str) -> None:
    try:
        nodes = _walk(value, 1)
    except _Refused as refused:
        where = path + "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in reversed(refused.steps))
        raise Invalid(
            f"The value at {where} cannot be kept: {refused.why}.", do="Change it and call again.", path=where
        ) from None
    if nodes > JSON_NODES:
        raise TooLarge(
            f"The value at {path} has more than {JSON_NODES:,} nodes.",
            do="Split it.", family="json-nodes", limit=JSON_NODES, size=nodes, path=path,
        )  # fmt: skip


def plainly_fine(value: Any, depth: int = 1) -> bool:
    """Say at once of a small and ordinary value that nothing is wrong with it; of all others that it must be walked."""
    kind = type(value)
    if kind in _LEAVES:
        return True
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return False
        items = value.values()
    elif kind is list:
        items = value
    else:
        return kind is int and INT_MIN <= value <= INT_MAX
    if depth > JSON_DEPTH or len(items) > 1000:
        return False
    for item in items:
        kind = type(item)
        if kind in _LEAVES:
            continue
        if kind is int:
            if not INT_MIN <= item <= INT_MAX:
                return False
        elif kind is float:
            if not -_MAX_FLOAT <= item <= _MAX_FLOAT:
                return False
        elif not plainly_fine(item, depth + 1):
            return False
    return True


def _walk(value: Any, depth: int) -> int:
    kind = type(value)
    if kind is int:
        if not INT_MIN <= value <= INT_MAX:
            raise _Refused("the whole number does not fit 64 bits")
        return 1
    if kind is float:
        if not math.isfinite(value):
            raise _Refused("the number is not finite")
        return 1
    if isinstance(value, dict):
        return _walk_dict(value, depth)
    if isinstance(value, list | tuple):
        return _walk_list(value, depth)
    if kind in _LEAVES:
        return 1
    raise _Refused(f"{kind.__name__} is not a JSON type")


def _walk_dict(value: dict[Any, Any], depth: int) -> int:
    if depth > JSON_DEPTH:
        raise _Refused(f"it is nested deeper than {JSON_DEPTH} levels")
    nodes = 1
    for key, item in value.items():
        if type(key) is not str:
            raise _Refused(f"a key is {type(key).__name__}, not text")
        if type(item) in _LEAVES:
            continue
        try:
            nodes += _walk(item, depth + 1)
        except _Refused as refused:
            refused.steps.append(key)
            raise
    return nodes


def _walk_list(value: list[Any] | tuple[Any, ...], depth: int) -> int:
    if depth > JSON_DEPTH:
        raise _Refused(f"it is nested deeper than {JSON_DEPTH} levels")
    nodes = 1
    for index, item in enumerate(value):
        if type(item) in _LEAVES:
            continue
        try:
            nodes += _walk(item, depth + 1)
        except _Refused as refused:
            refused.steps.append(index)
            raise
    return nodes


def encode(value: Any, path: str = "$") -> str:
    """Write a checked value as JSON text, in its own key order. Raises TooLarge above `limits.JSON_BYTES`."""
    try:
        text = fast_encode(value)
    except UnicodeEncodeError:
        text = _encode_surrogates(value).encode()
    if len(text) > JSON_BYTES:
        raise too_large(len(text), path)
    return text.decode()


def too_large(size: int, path: str) -> TooLarge:
    """Build the error for a JSON value above `limits.JSON_BYTES`."""
    return TooLarge(
        f"A JSON value of {size:,} bytes at {path} is above the limit of {JSON_BYTES:,}.",
        do="Split it, or keep its bulk outside and store a reference.",
        family="json-bytes", limit=JSON_BYTES, size=size, path=path,
    )  # fmt: skip


def copied(value: Any, path: str = "$") -> Any:
    """Check a value and answer a copy of it: what its owner does with it from now on changes nothing.

    Raises Invalid or TooLarge naming the path, never the value.
    """
    if type(value) in _LEAVES:
        return value
    check(value, path)
    return decode(encode(value, path))


def decode(text: str) -> Any:
    """Read what `encode` wrote. Raises ValueError when the text is not JSON: the caller knows which row is damaged."""
    if text[:1] == ESCAPED:
        return _map_text(json.loads(text[1:]), _unescape)
    try:
        return fast_decode(text)
    except msgspec.DecodeError:
        return json.loads(text)  # lone surrogates, which the fast reader refuses
    except UnicodeEncodeError as e:
        raise ValueError(str(e)) from e


def canonical(value: Any) -> str:
    """Write a value in the one form that equal values share: sorted keys, no spaces."""
    try:
        return _SORTING.encode(value).decode()
    except UnicodeEncodeError:
        return _encode_surrogates(value, sort_keys=True)


def digest(value: Any) -> bytes:
    """Answer the SHA-256 of a value's canonical form (32 bytes)."""
    try:
        return hashlib.sha256(_SORTING.encode(value)).digest()
    except UnicodeEncodeError:
        return hashlib.sha256(_encode_surrogates(value, sort_keys=True).encode()).digest()


def same(a: Any, b: Any) -> bool:
    """Say whether two JSON values are equal by type and content; the order of keys does not count."""
    if isinstance(a, dict) and isinstance(b, dict):
        return len(a) == len(b) and all(k in b and same(v, b[k]) for k, v in a.items())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return type(a) is type(b) and bool(a == b)


def _encode_surrogates(value: Any, *, sort_keys: bool = False) -> str:
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), sort_keys=sort_keys)
    if not any(_SPLIT_PAIR.search(part) for part in _texts(value)):
        return text
    return ESCAPED + json.dumps(
        _map_text(value, _escape), ensure_ascii=True, separators=(",", ":"), sort_keys=sort_keys
    )


def _escape(text: str) -> str:
    return _TO_ESCAPE.sub(lambda found: f"{_MARK}{ord(found[0]):04x}", text)


def _unescape(text: str) -> str:
    return _UNESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def _texts(value: Any) -> Any:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _map_text(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _map_text(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_text(item, change) for item in value]
    return value
