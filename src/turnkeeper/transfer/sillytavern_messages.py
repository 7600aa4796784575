"""One line of a chat file to one message with its versions. Pure.

* The versions are the entries of `swipes`, equal ones kept apart; without any, `mes` alone. `mes` is what was on
  screen: shown is `swipe_id` if it is a whole number in range and that entry equals `mes`; else the first entry equal
  to `mes`; else `mes` becomes a version of its own, the last, and is shown. Without `mes`, `swipe_id` decides, else the
  first version is shown.
* `swipe_info[i]` tells of version i: its time (else the line's), and in its `extra` the model, the provider, the count
  of tokens, and the reasoning, which becomes a thinking part before the text. For the shown version the line's own
  `extra` stands in when `swipe_info` has none.
* The role is user if `is_user`, else assistant; `is_system` means hidden.
* A field of a type it should not have is reported and kept as it is. A text that is a number or a boolean is read as
  its JSON text, any other as "". `is_user` and `is_system` count as true when they are a number other than 0, or "true"
  or "1". A `name` that is no text is no name. `swipes`, `swipe_info` or `extra` of another type count as absent.
* A list an extension keeps for each version (`variables`) goes to the versions if it is not longer than they are.
* Media are named, never there: the names stay in `extra` and are reported.

How the rest of a line is kept is told in `sillytavern_kept`.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from turnkeeper.transfer.imported import ImportedMessage, ImportedVersion, Loss
from turnkeeper.transfer.sillytavern_dates import read_date
from turnkeeper.transfer.sillytavern_kept import FORMAT, PER_VERSION, is_per_version, strip_entry, strip_line
from turnkeeper.transfer.sillytavern_lines import RAW, is_raw

_MEDIA_LISTS = ("media", "image_swipes", "files", "attachments")
_MEDIA_SINGLES = ("image", "video", "audio", "file")


class Notes:
    """Gathers the losses of one line."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.losses: list[Loss] = []

    def add(self, kind: str, action: str, field: str | None = None, **more: Any) -> None:
        """Report one thing about this line, or about one field of it."""
        where: dict[str, Any] = {"line": self.number}
        if field is not None:
            where["field"] = field
        self.losses.append(Loss(kind, where | more, action))

    def wrong_type(self, field: str, action: str) -> None:
        """Report a field whose value has a type it should not have; it is kept as it is."""
        self.add("field_wrong_type", action, field)

    def date(self, problem: str, field: str | None = None) -> None:
        """Report what `read_date` said; a field is named for any date but the line's own."""
        self.add(problem, "read as UTC" if problem == "date_without_zone" else "the time stays unknown", field)

    def media(self, holder: Any, path: str) -> None:
        """Report what is attached by name only, so that the file has no bytes of it."""
        if not isinstance(holder, dict):
            return
        found = [(f"{path}.{key}", holder[key]) for key in _MEDIA_SINGLES if holder.get(key)]
        for key in _MEDIA_LISTS:
            entries = holder.get(key)
            if isinstance(entries, list):
                found += [(f"{path}.{key}[{index}]", entry) for index, entry in enumerate(entries) if entry]
        for field, entry in found:
            url = entry.get("url") if isinstance(entry, dict) else entry
            if not (isinstance(url, str) and url.startswith("data:")):
                self.add("attachment_without_bytes", "its name is kept", field)


class _Reading(msgspec.Struct, frozen=True):
    """A line and what was decided about it so far."""

    line: dict[str, Any]
    swipes: list[Any]  # as they stand in the line; empty when there are none
    texts: list[str]  # one for each version
    shown: int
    entries: list[Any]  # those of `swipe_info` that belong to a version
    created_at: int | None
    date_problem: str | None


def is_message(line: dict[str, Any]) -> bool:
    """Say whether a line is a message: it has `mes`, or at least a list of swipes."""
    return "mes" in line or bool(_list_of(line, "swipes"))


def read_message(line: dict[str, Any], notes: Notes) -> ImportedMessage:
    """Read one line that `is_message`; what must be reported about it goes to `notes`."""
    swipes = _list_of(line, "swipes")
    texts, shown = _choose_shown(line, swipes, notes)
    entries = _entries_of_versions(line, len(swipes), notes)
    is_user = _read_flag(line, "is_user", notes)
    if "is_user" not in line:
        notes.add("field_missing", "read as not the user's", "is_user")
    elif is_user and swipes:
        notes.add("swipes_on_user_line", "kept as versions of the user's message")
    name = line.get("name")
    if name is not None and not isinstance(name, str):
        notes.wrong_type("name", "the message has no name")
    _note_media(line, entries, shown, notes)
    created_at, problem = read_date(line.get("send_date"))
    if problem:
        notes.date(problem)
    reading = _Reading(line, swipes, texts, shown, entries, created_at, problem)
    versions = tuple(_make_version(reading, index, notes) for index in range(len(texts)))
    return ImportedMessage(
        role="user" if is_user else "assistant",
        name=name if isinstance(name, str) else None,
        hidden=_read_flag(line, "is_system", notes),
        created_at=created_at,
        extra={FORMAT: strip_line(line, versions, shown)},
        versions=versions,
        shown=shown,
    )


def _choose_shown(line: dict[str, Any], swipes: list[Any], notes: Notes) -> tuple[list[str], int]:
    """Answer the texts of all versions, and the number of the shown one."""
    if "swipes" in line and not isinstance(line["swipes"], list):
        notes.wrong_type("swipes", "read as absent")
    texts = [_read_text(entry, f"swipes[{index}]", notes) for index, entry in enumerate(swipes)]
    wanted = _wanted_version(line, len(swipes), notes)
    if "mes" not in line:
        notes.add("mes_missing", "shown is the version swipe_id names, else the first")
        return texts, wanted or 0
    mes = _read_text(line["mes"], "mes", notes)
    if not texts:
        return [mes], 0
    if wanted is not None and texts[wanted] == mes:
        return texts, wanted
    if mes in texts:
        if wanted is not None:
            notes.add("swipe_id_disagrees_with_mes", "the first version equal to mes is shown")
        return texts, texts.index(mes)
    notes.add("mes_not_in_swipes", "mes is a new, last version and is shown")
    return [*texts, mes], len(texts)


def _wanted_version(line: dict[str, Any], count: int, notes: Notes) -> int | None:
    """Answer the entry of `swipes` that `swipe_id` names, or None; a fault in it is reported."""
    action = "the version equal to mes is shown"
    if "swipe_id" not in line:
        if count:
            notes.add("swipe_id_missing", action)
        return None
    wanted = line["swipe_id"]
    if is_raw(wanted) and wanted[RAW].lstrip("-").isdigit():
        wanted = -1  # a whole number beyond 64 bits
    if isinstance(wanted, bool) or not isinstance(wanted, int):
        notes.add("swipe_id_not_integer", action)
        return None
    if not 0 <= wanted < (count if "swipes" in line else 1):
        notes.add("swipe_id_out_of_range", action)
        return None
    return wanted if count else None


def _entries_of_versions(line: dict[str, Any], count: int, notes: Notes) -> list[Any]:
    """Answer the entries of `swipe_info` that belong to a version; another number of them than `count` is reported."""
    if not isinstance(line.get("extra", {}), dict):
        notes.wrong_type("extra", "read as absent")
    if "swipe_info" not in line:
        if count:
            notes.add("swipe_info_missing", "the line's own time and extra stand in for the shown version")
        return []
    if not isinstance(line["swipe_info"], list):
        notes.wrong_type("swipe_info", "read as absent")
        return []
    entries = line["swipe_info"]
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            notes.wrong_type(f"swipe_info[{index}]", "read as absent")
        elif not isinstance(entry.get("extra", {}), dict):
            notes.wrong_type(f"swipe_info[{index}].extra", "read as absent")
    if len(entries) < count:
        notes.add("swipe_info_short", "the other versions have no details of their own")
    elif len(entries) > max(count, 1):
        notes.add("swipe_info_long", "the entries without a version are kept beside the message")
    return entries[: max(count, 1)]


def _make_version(reading: _Reading, index: int, notes: Notes) -> ImportedVersion:
    has_entry = index < len(reading.entries)
    entry = reading.entries[index] if has_entry and isinstance(reading.entries[index], dict) else {}
    source = entry.get("extra", reading.line.get("extra") if index == reading.shown else None)
    if not isinstance(source, dict):
        source = {}
    parts = _make_parts(source, reading.texts[index])
    kept: dict[str, Any] = {}
    if has_entry:
        kept["swipe_info"], carried = strip_entry(reading.entries[index], parts)
        if carried:
            kept["carried"] = carried
    if reading.swipes and index == len(reading.swipes):
        kept["from"] = "mes"
    elif reading.swipes and not isinstance(reading.swipes[index], str):
        kept["swipe"] = reading.swipes[index]
    for key in PER_VERSION:
        if is_per_version(reading.line, key, len(reading.texts)) and index < len(reading.line[key]):
            kept[key] = reading.line[key][index]
    created_at = _version_date(reading, entry, index, notes)
    return ImportedVersion(parts, _make_meta(source), {FORMAT: kept} if kept else {}, created_at)


def _version_date(reading: _Reading, entry: dict[str, Any], index: int, notes: Notes) -> int | None:
    """Answer a version's own time, else the line's. A problem the line has too is not reported again."""
    if "send_date" not in entry or entry["send_date"] == reading.line.get("send_date"):
        return reading.created_at
    created_at, problem = read_date(entry["send_date"])
    if problem and problem != reading.date_problem:
        notes.date(problem, f"swipe_info[{index}].send_date")
    return created_at


def _make_parts(source: dict[str, Any], text: str) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if isinstance(source.get("reasoning"), str) and source["reasoning"]:
        thinking = {"type": "thinking", "text": source["reasoning"]}
        if isinstance(source.get("reasoning_signature"), str):
            thinking["signature"] = source["reasoning_signature"]
        parts.insert(0, thinking)
    return parts


def _make_meta(source: dict[str, Any]) -> dict[str, Any]:
    meta: dict[str, Any] = {}
    for key, field in (("model", "model"), ("provider", "api")):
        if isinstance(source.get(field), str) and source[field]:
            meta[key] = source[field]
    count = source.get("token_count")
    if isinstance(count, int) and not isinstance(count, bool):
        meta["token_count"] = count
    return meta


def _note_media(line: dict[str, Any], entries: list[Any], shown: int, notes: Notes) -> None:
    """Report attachments once: the shown version's `extra` repeats the line's."""
    notes.media(line.get("extra"), "extra")
    for index, entry in enumerate(entries):
        extra = entry.get("extra") if isinstance(entry, dict) else None
        if index != shown or extra != line.get("extra"):
            notes.media(extra, f"swipe_info[{index}].extra")


def _list_of(line: dict[str, Any], key: str) -> list[Any]:
    value = line.get(key)
    return value if isinstance(value, list) else []


def _read_flag(line: dict[str, Any], key: str, notes: Notes) -> bool:
    value = line.get(key)
    if value is None or isinstance(value, bool):
        return bool(value)
    notes.wrong_type(key, "a number other than 0, or the text true or 1, counts as true")
    if isinstance(value, str):
        return value.strip().lower() in ("true", "1")
    return isinstance(value, int | float) and value != 0


def _read_text(value: Any, field: str, notes: Notes) -> str:
    if isinstance(value, str):
        return value
    notes.wrong_type(field, "a number or boolean is read as its JSON text, anything else as an empty text")
    if is_raw(value):
        return str(value[RAW])
    return json.dumps(value) if isinstance(value, bool | int | float) else ""
