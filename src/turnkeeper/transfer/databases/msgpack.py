"""Decodes the msgpack of LangGraph's checkpoints into plain values, by an allow list; no class is ever made. Pure.

A foreign object is an extension: a module, a name, its arguments. Of the types known here the arguments are the value;
any other is kept as ``{"$type": "<module>.<name>", "value": …}``. Nothing is imported, constructed or called.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnkeeper.transfer.databases.tables import Unsayable, digest_of

_CONSTRUCTORS = range(6)
"""The codes of objects: one argument, arguments, keywords, a method's argument, pydantic's two."""

_NESTED_MAX = 40

_VALUES = frozenset(
    {
        ("builtins", "set"), ("builtins", "frozenset"), ("collections", "deque"), ("uuid", "UUID"), ("decimal", "Decimal"),
        ("datetime", "datetime"), ("datetime", "date"), ("datetime", "time"), ("datetime", "timedelta"),
        ("datetime", "timezone"), ("zoneinfo", "ZoneInfo"), ("pathlib", "Path"), ("pathlib", "PosixPath"),
        ("langgraph.types", "Interrupt"), ("langgraph.types", "Send"), ("langgraph.types", "Command"),
    }
)  # fmt: skip
MESSAGES = "langchain_core.messages."


class Decoded(msgspec.Struct):
    """A value, and the names of the types that are on no list."""

    value: Any
    unknown: list[str]


def decode(content: bytes) -> Decoded:
    """Decode a blob. Raises Unsayable for one that is no msgpack or nests objects without end."""
    unknown: list[str] = []

    def read(blob: bytes | memoryview, depth: int) -> Any:
        if depth > _NESTED_MAX:
            raise Unsayable

        def extend(code: int, data: memoryview) -> Any:
            if code not in _CONSTRUCTORS:
                unknown.append(f"extension {code}")
                return {"$type": f"extension {code}", "value": digest_of(bytes(data))}
            return _named(read(data, depth + 1), unknown)

        return msgspec.msgpack.decode(blob, ext_hook=extend)

    try:
        return Decoded(read(content, 0), unknown)
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError, OverflowError):
        raise Unsayable from None


def _named(given: Any, unknown: list[str]) -> Any:
    if not isinstance(given, list) or len(given) < 3 or not isinstance(given[0], str) or not isinstance(given[1], str):
        unknown.append("an object without a name")
        return {"$type": "", "value": given}
    module, name, value = given[:3]
    if module.startswith(MESSAGES) and isinstance(value, dict):
        return {"$message": name, **value}
    if (module, name) not in _VALUES:
        unknown.append(f"{module}.{name}"[:200])
        return {"$type": f"{module}.{name}", "value": value}
    return value
