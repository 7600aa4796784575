"""How a line of a chat file is kept beside the message it became, and how the message is written as that line. Pure.

``message.extra["sillytavern"]`` has

* `line`: the line itself, its keys in order, with null in the place of whatever the message and its versions carry;
* `carried`: the names of those keys;
* `shown`: the keys whose value is the same in the shown version's `swipe_info` entry, as the product writes it;
* `more_swipe_info`: entries of `swipe_info` beyond the versions.

``version.extra["sillytavern"]`` has

* `swipe_info`: that version's own entry, with null for what a thinking part carries, named in `carried`;
* `variables`, `variables_initialized`: its entry in a list that an extension keeps for each version;
* `swipe`: its entry in `swipes` if that is no text;
* `from`: "mes" if it is no entry of `swipes` at all.

So no text is stored twice, and `write_line` needs nothing but the message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from turnkeeper.transfer.imported import ImportedMessage, ImportedVersion

FORMAT = "sillytavern"
PER_VERSION = ("variables", "variables_initialized")
"""Lists that an extension keeps in a line, an entry for each version."""

_AS_SHOWN = ("send_date", "gen_started", "gen_finished", "extra")
_THINKING_FIELDS = {"reasoning": "text", "reasoning_signature": "signature"}


def is_per_version(line: dict[str, Any], key: str, count: int) -> bool:
    """Say whether the line's `key` is a list of entries for its `count` versions, or for the first of them."""
    value = line.get(key)
    return isinstance(value, list) and 0 < len(value) <= count


def strip_entry(entry: Any, parts: list[dict[str, Any]]) -> tuple[Any, list[str]]:
    """Copy something that has an `extra`, with null for what the thinking part in `parts` carries; and name that."""
    extra = entry.get("extra") if isinstance(entry, dict) else None
    thinking = parts[0]
    if not isinstance(extra, dict) or thinking["type"] != "thinking":
        return entry, []
    found = [
        key for key, of_part in _THINKING_FIELDS.items() if of_part in thinking and extra.get(key) == thinking[of_part]
    ]
    emptied = {key: None if key in found else value for key, value in extra.items()}
    return {**entry, "extra": emptied}, [f"extra.{key}" for key in found]


def strip_line(line: dict[str, Any], versions: tuple[ImportedVersion, ...], shown: int) -> dict[str, Any]:
    """Answer what is kept of a line beside its versions, which were stripped before."""
    carried = [key for key in ("is_user", "is_system") if isinstance(line.get(key), bool)]
    carried += [key for key in ("name", "mes") if isinstance(line.get(key), str)]
    if isinstance(line.get("swipes"), list) and line["swipes"]:
        carried.append("swipes")
    if type(line.get("swipe_id")) is int and line["swipe_id"] == shown:
        carried.append("swipe_id")
    if isinstance(line.get("swipe_info"), list):
        carried.append("swipe_info")
    carried += [key for key in PER_VERSION if is_per_version(line, key, len(versions))]
    entry = _entry_of(versions[shown])
    as_shown = [key for key in _AS_SHOWN if key in line and key in entry and _same_json(line[key], entry[key])]
    emptied = {key: None if key in carried or key in as_shown else value for key, value in line.items()}
    emptied, of_thinking = strip_entry(emptied, versions[shown].parts)
    kept: dict[str, Any] = {"line": emptied, "carried": carried + of_thinking}
    if as_shown:
        kept["shown"] = as_shown
    if "swipe_info" in carried:
        placed = sum("swipe_info" in version.extra.get(FORMAT, {}) for version in versions)
        if len(line["swipe_info"]) > placed:
            kept["more_swipe_info"] = line["swipe_info"][placed:]
    return kept


def write_line(message: ImportedMessage) -> dict[str, Any]:
    """Write a message that was read from a line as that line again, equal as JSON and in the order of its keys.

    If another version is shown by now, or a text, a name or the role differs, the line says so in the product's own
    way. Raw numbers stay in the form the reader gave them; `sillytavern_lines.dump_line` writes them out.
    """
    kept = message.extra[FORMAT]
    carried, as_shown = kept["carried"], kept.get("shown", ())
    shown = message.versions[message.shown]
    entry = _entry_of(shown)
    line: dict[str, Any] = {}
    for key, value in kept["line"].items():
        if key in carried:
            line[key] = _WRITERS[key](message)
        elif key in as_shown:
            line[key] = entry.get(key)
        else:
            line[key] = value
    filled: dict[str, Any] = _fill_entry(line, carried, shown)
    return filled


def _fill_entry(entry: Any, carried: Iterable[str], version: ImportedVersion) -> Any:
    """Undo `strip_entry`."""
    found = [key for key in _THINKING_FIELDS if f"extra.{key}" in carried]
    if not found:
        return entry
    thinking: dict[str, Any] = next((part for part in version.parts if part["type"] == "thinking"), {})
    values = {key: thinking.get(_THINKING_FIELDS[key]) for key in found}
    return {**entry, "extra": {**entry["extra"], **values}}


def _entry_of(version: ImportedVersion) -> dict[str, Any]:
    """Answer a version's whole `swipe_info` entry, or an empty one."""
    entry = _own_entry(version) if "swipe_info" in version.extra.get(FORMAT, {}) else None
    return entry if isinstance(entry, dict) else {}


def _own_entry(version: ImportedVersion) -> Any:
    own = version.extra[FORMAT]
    return _fill_entry(own["swipe_info"], own.get("carried", ()), version)


def _write_swipe_info(message: ImportedMessage) -> list[Any]:
    entries = [_own_entry(version) for version in message.versions if "swipe_info" in version.extra.get(FORMAT, {})]
    return entries + list(message.extra[FORMAT].get("more_swipe_info", ()))


def _write_swipes(message: ImportedMessage) -> list[Any]:
    kept = ((version.text, version.extra.get(FORMAT, {})) for version in message.versions)
    return [own.get("swipe", text) for text, own in kept if own.get("from") != "mes"]


def _write_per_version(key: str) -> Callable[[ImportedMessage], Any]:
    def write(message: ImportedMessage) -> list[Any]:
        kept = (version.extra.get(FORMAT, {}) for version in message.versions)
        return [own[key] for own in kept if key in own]

    return write


_WRITERS: dict[str, Callable[[ImportedMessage], Any]] = {
    "is_user": lambda message: message.role == "user",
    "is_system": lambda message: message.hidden,
    "name": lambda message: message.name,
    "mes": lambda message: message.text,
    "swipe_id": lambda message: message.shown,
    "swipes": _write_swipes,
    "swipe_info": _write_swipe_info,
    **{key: _write_per_version(key) for key in PER_VERSION},
}


def _same_json(a: Any, b: Any) -> bool:
    """Say whether two values are equal as JSON text: types, signs and the order of keys count."""
    return bool(a == b) and json.dumps(a) == json.dumps(b)
