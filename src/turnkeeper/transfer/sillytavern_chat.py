"""Writes a take as a SillyTavern chat file: what was read from one goes back line by line, what was made here in its way.

An unchanged import gives the lines of its source, equal as JSON and in the order of their keys; a line that could not be
read stands where it stood, byte for byte. What was changed since changes its own lines only: a version made here is another
swipe, a cut message is left out, and the variables in the header are those at the end of the take. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from ..clock import iso
from .imported import ImportedMessage, ImportedVersion, Loss
from .sillytavern import FORMAT, write_header
from .sillytavern_kept import write_line
from .sillytavern_lines import dump_line
from .sillytavern_set import own_part
from .stored import StoredChat

_BOM = b"\xef\xbb\xbf"
_LEFT_OUT = {"tool_call", "tool_result", "media", "other"}


def write_chat(chat: StoredChat) -> Iterator[bytes]:
    """Yield the lines of a chat file, each with its end."""
    kept = chat.take.extra.get(FORMAT, {})
    end = b"\r\n" if kept.get("crlf") else b"\n"
    if kept.get("byte_order_mark"):
        yield _BOM
    header = _header(chat)
    apart, objects = _lines_apart(kept), 0
    if header is not None:
        yield from _until(apart, objects, end)
        yield dump_line(header).encode() + end
        objects = 1
    names = _names(header, chat)
    for position, message, new in zip(chat.positions, chat.take.messages, chat.new, strict=True):
        yield from _until(apart, objects + position, end)
        yield dump_line(_line(message, new, names)).encode() + end
    yield from _until(apart, None, end)


def losses_of(chat: StoredChat) -> list[Loss]:
    """Say what a chat file has no place for."""
    found: list[Loss] = []
    for position, message in zip(chat.positions, chat.take.messages, strict=True):
        kinds = sorted({part["type"] for version in message.versions for part in version.parts} & _LEFT_OUT)
        found += [Loss(f"{kind}_left_out", {"position": position}, "a chat file has no place for it") for kind in kinds]
    if chat.take.variables and _header(chat) is None:
        found.append(Loss("variables_left_out", {}, "the chat file has no header"))
    return found


def _header(chat: StoredChat) -> dict[str, Any] | None:
    """Answer the header line; None for a chat that was read from a file without one."""
    if FORMAT in chat.take.extra or any(FORMAT in message.extra for message in chat.take.messages):
        return write_header(chat.take)
    names = {
        role: next((m.name for m in chat.take.messages if m.role == role and m.name), None) for role in _ROLE_NAMES
    }
    return {
        "user_name": names["user"] or _ROLE_NAMES["user"],
        "character_name": names["assistant"] or chat.title or _ROLE_NAMES["assistant"],
        "create_date": None if chat.created_at is None else iso(chat.created_at),
        "chat_metadata": {"variables": chat.take.variables},
    }


def _lines_apart(kept: dict[str, Any]) -> list[tuple[int, bytes]]:
    """Answer the lines that are no message, each with the number of objects that stood before it, in order."""
    lines = [(line["line"], base64.b64decode(line["base64"])) for line in kept.get("kept_lines", [])]
    lines += [(number, b"") for first, last in kept.get("blank_lines", []) for number in range(first, last + 1)]
    return [(number - 1 - before, content) for before, (number, content) in enumerate(sorted(lines))]


def _until(apart: list[tuple[int, bytes]], objects: int | None, end: bytes) -> Iterator[bytes]:
    while apart and (objects is None or apart[0][0] <= objects):
        content = apart.pop(0)[1]
        yield content + (b"\n" if content.endswith(b"\r") else end)


_ROLE_NAMES = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}


def _names(header: dict[str, Any] | None, chat: StoredChat) -> dict[str, str]:
    names = dict(_ROLE_NAMES)
    for role, field in (("user", "user_name"), ("assistant", "character_name")):
        said = (header or {}).get(field) or next(
            (m.name for m in chat.take.messages if m.role == role and m.name), None
        )
        if isinstance(said, str):
            names[role] = said
    return names


def _line(message: ImportedMessage, new: list[bool], names: dict[str, str]) -> dict[str, Any]:
    if FORMAT not in message.extra:
        line = _made_line(message, names)
        return line if len(message.versions) == 1 else {**line, **_swipes(message)}
    if not any(new):
        return write_line(own_part(message, trim=True))
    message = own_part(message, trim=False)
    versions = tuple(
        _with_entry(version) if made else version for version, made in zip(message.versions, new, strict=True)
    )
    grown = replace(message, versions=versions)
    line = write_line(grown)
    return line if "swipes" in line else {**line, **_swipes(grown)}


def _made_line(message: ImportedMessage, names: dict[str, str]) -> dict[str, Any]:
    shown = message.versions[message.shown]
    return {
        "name": message.name or names[message.role],
        "is_user": message.role == "user",
        "is_system": message.hidden or message.role in ("system", "tool"),
        "send_date": _date(shown.created_at or message.created_at),
        "mes": shown.text,
        "extra": _extra(shown),
    }


def _swipes(message: ImportedMessage) -> dict[str, Any]:
    return {
        "swipe_id": message.shown,
        "swipes": [version.text for version in message.versions],
        "swipe_info": [_entry(version) for version in message.versions],
    }


def _with_entry(version: ImportedVersion) -> ImportedVersion:
    """Give a version that was made here the details that the product keeps of one."""
    return replace(version, extra={**version.extra, FORMAT: {"swipe_info": _entry(version)}})


def _entry(version: ImportedVersion) -> dict[str, Any]:
    own = version.extra.get(FORMAT, {}).get("swipe_info")
    return own if isinstance(own, dict) else {"send_date": _date(version.created_at), "extra": _extra(version)}


def _extra(version: ImportedVersion) -> dict[str, Any]:
    found = {key: version.meta[name] for key, name in (("model", "model"), ("api", "provider")) if name in version.meta}
    return {**found, **({"reasoning": version.thinking} if version.thinking else {})}


def _date(at_us: int | None) -> str:
    return "" if at_us is None else iso(at_us)
