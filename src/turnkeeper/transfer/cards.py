"""Reads character cards (V1, V2, V3) and lorebooks from JSON that is already parsed. Pure.

* `data` wins over the fields doubled beside it; a doubled field that differs is reported. Without `data` it is a V1 card.
* The greetings are `first_mes`, then `alternate_greetings`; `group_only_greetings` stand apart. A card without any
  greeting has an empty one, so that every card opens with a message.
* A lorebook is a world file (`entries` is an object), a card's book (`entries` is a list), or the latter wrapped as
  `lorebook_v3`. Of a card book's entry, what its `extensions` say wins over the words of the older format.
* A field of another type than the format says is reported, read as absent, and stays in `raw`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnkeeper.transfer.documents import Document, Notes
from turnkeeper.transfer.imported import Book, BookEntry, Card, Imported, Loss

CARD = "card"
WORLD, CARD_BOOK = "lorebook-world", "lorebook-card"

_SPECS = ("chara_card_v2", "chara_card_v3")
_V1_FIELDS = ("name", "description", "personality", "scenario", "first_mes", "mes_example")
_WORDS = {"before_char": 0, "after_char": 1}
_BOOK_SPEC = "lorebook_v3"


def knows_card(value: Any) -> bool:
    """Say whether a value is a character card."""
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("data"), dict):
        data = value["data"]
        return "name" in data and (value.get("spec") in _SPECS or "first_mes" in data or "description" in data)
    return isinstance(value.get("name"), str) and "first_mes" in value and "description" in value


def knows_book(value: Any) -> bool:
    """Say whether a value is a lorebook: its entries have keys and a content."""
    entries = _entries_of(value)
    found = list(entries.values()) if isinstance(entries, dict) else entries
    if not isinstance(found, list):
        return False
    named = [one for one in found if isinstance(one, dict) and "content" in one and ("key" in one or "keys" in one)]
    return bool(named) or (not found and isinstance(value, dict) and ("name" in value or "scan_depth" in value))


def read_document(document: Document) -> Imported | None:
    """Read a document that is one card or one lorebook; None if it is neither."""
    if len(document.entries) != 1:
        return None
    value, notes = document.entries[0], Notes()
    if knows_card(value):
        card = read_card(value, "json", notes)
        return imported(card, document.file_sha256, (*document.losses, *notes.losses))
    if not knows_book(value):
        return None
    book = read_book(value, notes)
    kind = WORLD if isinstance(_entries_of(value), dict) else CARD_BOOK
    return Imported(kind, document.file_sha256, (), (*document.losses, *notes.losses), lorebook=book)


def imported(card: Card | None, sha256: str, losses: Sequence[Loss]) -> Imported:
    """Answer what a file held that can hold one card."""
    return Imported(CARD, sha256, (), tuple(losses), card=card)


def read_card(value: dict[str, Any], taken_from: str, notes: Notes) -> Card:
    """Read a card; `value` `knows_card`."""
    data = value.get("data")
    if isinstance(data, dict):
        for field in sorted(data.keys() & value.keys()):
            if value[field] != data[field]:
                notes.add("v1_field_differs", "the one in `data` wins; both are kept", field=field)
        spec = _text(value, "spec", notes) or _SPECS[0]
    else:
        data, spec = value, "v1"
    version = _text(value, "spec_version", notes) if spec != "v1" else ""
    if spec != "v1" and spec not in _SPECS:
        notes.add("card_spec_unknown", "read as the newest that is known", spec=spec)
    first = _text(data, "first_mes", notes)
    greetings = [first, *_texts(data, "alternate_greetings", notes)]
    if not any(greetings):
        notes.add("greeting_missing", "the opening is empty")
    elif "first_mes" not in data:
        greetings = greetings[1:]
    book = data.get("character_book")
    if book is not None and _entries_of(book) is None:
        notes.wrong_type("character_book")
        book = None
    return Card(
        spec, version or None, taken_from, _text(data, "name", notes), _text(data, "description", notes),
        tuple(greetings), tuple(_texts(data, "group_only_greetings", notes)),
        read_book(book, notes) if book is not None else None, value,
    )  # fmt: skip


def same_card(one: Card, other: Card) -> bool:
    """Say whether two cards of one file say the same, as far as the older of their formats can say it."""
    return all(_field(one, field) == _field(other, field) for field in _V1_FIELDS)


def _field(card: Card, field: str) -> Any:
    data = card.raw.get("data")
    return (data if isinstance(data, dict) else card.raw).get(field)


# ---- lorebooks -------------------------------------------------------------------------------------------------------


def _entries_of(value: Any) -> dict[str, Any] | list[Any] | None:
    """Answer the entries of what may be a lorebook, as they stand in it; None if it has none."""
    if isinstance(value, dict) and value.get("spec") == _BOOK_SPEC:
        value = value.get("data")
    entries = value.get("entries") if isinstance(value, dict) else None
    return entries if isinstance(entries, dict | list) else None


def read_book(value: Any, notes: Notes) -> Book:
    """Read a lorebook of either shape; entries that are no objects are reported and left in `raw`."""
    found = _entries_of(value)
    inner = value["data"] if value.get("spec") == _BOOK_SPEC else value
    places = list(found.items()) if isinstance(found, dict) else list(enumerate(found or ()))
    read = []
    for place, entry in places:
        if not isinstance(entry, dict):
            notes.wrong_type("entry", entry=place)
            continue
        read.append(_world_entry(entry, place, notes) if isinstance(found, dict) else _book_entry(entry, place, notes))
    return Book(_text(inner, "name", notes), tuple(read), value)


def _world_entry(entry: dict[str, Any], place: Any, notes: Notes) -> BookEntry:
    where = {"entry": place}
    uid = entry.get("uid", place)
    return BookEntry(
        uid=uid if _whole(uid) or isinstance(uid, str) else None,
        keys=_texts(entry, "key", notes, **where),
        content=_text(entry, "content", notes, **where),
        enabled=not _flag(entry, "disable", notes, **where),
        constant=_flag(entry, "constant", notes, **where),
        order=_number(entry, "order", notes, **where),
        position=_number(entry, "position", notes, **where),
        sticky=_number(entry, "sticky", notes, **where),
        depth=_number(entry, "depth", notes, **where),
    )


def _book_entry(entry: dict[str, Any], place: Any, notes: Notes) -> BookEntry:
    where = {"entry": place}
    extensions = entry.get("extensions")
    if not isinstance(extensions, dict):
        if extensions is not None:
            notes.wrong_type("extensions", **where)
        extensions = {}
    uid = entry.get("id", entry.get("uid"))
    position: int | float | str | None = _number(extensions, "position", notes, **where)
    if position is None and isinstance(entry.get("position"), str):
        position = _WORDS.get(entry["position"], entry["position"])
    return BookEntry(
        uid=uid if _whole(uid) or isinstance(uid, str) else None,
        keys=_texts(entry, "keys", notes, **where),
        content=_text(entry, "content", notes, **where),
        enabled=_flag(entry, "enabled", notes, default=True, **where),
        constant=_flag(entry, "constant", notes, **where),
        order=_number(entry, "insertion_order", notes, **where),
        position=position,  # type: ignore[arg-type]
        sticky=_number(extensions, "sticky", notes, **where),
        depth=_number(extensions, "depth", notes, **where),
    )


# ---- fields ----------------------------------------------------------------------------------------------------------


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(holder: dict[str, Any], field: str, notes: Notes, **where: Any) -> str:
    value = holder.get(field)
    if value is None or isinstance(value, str):
        return value or ""
    notes.wrong_type(field, **where)
    return ""


def _texts(holder: dict[str, Any], field: str, notes: Notes, **where: Any) -> list[str]:
    value = holder.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        notes.wrong_type(field, **where)
        return []
    if not all(isinstance(one, str) for one in value):
        notes.wrong_type(field, **where)
    return [one for one in value if isinstance(one, str)]


def _flag(holder: dict[str, Any], field: str, notes: Notes, *, default: bool = False, **where: Any) -> bool:
    value = holder.get(field)
    if value is None or isinstance(value, bool):
        return default if value is None else value
    notes.wrong_type(field, **where)
    return default


def _number(holder: dict[str, Any], field: str, notes: Notes, **where: Any) -> Any:
    value = holder.get(field)
    if value is None or _whole(value) or isinstance(value, float):
        return value
    notes.wrong_type(field, **where)
    return None
