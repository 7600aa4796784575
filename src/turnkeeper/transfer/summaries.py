"""What a reader found, described in counts and digests: what a person compares, and prints after an import. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from turnkeeper.transfer.imported import (
    Book,
    Card,
    Imported,
    ImportedMessage,
    ImportedSession,
    ImportedTake,
    ImportedVersion,
)  # fmt: skip

SEPARATOR = "\n\u241e\n"
"""Stands between the texts of a line when `summary` takes the digest of the whole line."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def opening(card: Card) -> ImportedTake:
    """Answer how a session with this character begins: message 0, a version for each greeting. Macros stay as they are."""
    versions = tuple(ImportedVersion([{"type": "text", "text": text}], {}, {}, None) for text in card.greetings)
    message = ImportedMessage("assistant", card.name or None, False, None, {}, versions, 0)
    return ImportedTake("opening", (message,), {}, {}, active=True)


def summary(imported: Imported) -> dict[str, Any]:
    """Describe an import in counts and digests, as JSON: what a person compares, and prints after an import.

    `line` has the positions a reader sees as chat (user and assistant), `line_sha256` is over their shown texts joined
    by `SEPARATOR`, and `text_digests` has the first 12 hex digits for each, all in UTF-8 with lone surrogates passed.
    """
    sessions = [_summarize_session(session, imported.format) for session in imported.sessions]
    return {
        **_summarize_character(imported),
        **(told_of(imported.sessions[0].extra, imported.format, "file") if imported.sessions else {}),
        "format": imported.format,
        "file_sha256": imported.file_sha256,
        "totals": {
            "sessions": len(sessions),
            "takes": sum(len(session["takes"]) for session in sessions),
            "versions": sum(session["versions_total"] for session in sessions),
        },
        "sessions": sessions,
        "loss_report": [{"kind": loss.kind, "where": loss.where} for loss in imported.losses],
    }


def format_time(time_us: int | None) -> str | None:
    """Write microseconds UTC as ISO 8601 with milliseconds and Z; None stays None."""
    if time_us is None:
        return None
    moment = _EPOCH + timedelta(microseconds=time_us)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _summarize_character(imported: Imported) -> dict[str, Any]:
    if imported.lorebook is not None:
        return {"lorebook": _summarize_book(imported.lorebook)}
    if imported.card is not None:
        opened = summarize_take(opening(imported.card), imported.format)
        return {"card": _summarize_card(imported.card), "opening": opened}
    return {"card": None} if imported.format == "card" else {}


def _summarize_session(session: ImportedSession, origin: str) -> dict[str, Any]:
    versions = {id(version) for take in session.takes for message in take.messages for version in message.versions}
    return {
        "source_id": session.source_id,
        "title": session.title,
        "versions_total": len(versions),
        "takes": [summarize_take(take, origin) for take in session.takes],
    }


def summarize_take(take: ImportedTake, origin: str) -> dict[str, Any]:
    """Describe one take of a source of the format `origin`."""
    messages = take.messages
    line = [position for position, message in enumerate(messages) if message.role in ("user", "assistant")]
    texts = [messages[position].text for position in line]
    summarized: dict[str, Any] = {
        "name": take.name,
        "active": take.active,
        "messages": len(messages),
        "versions": [len(message.versions) for message in messages],
        "shown": [message.shown for message in messages],
        "line": line,
        "line_sha256": _digest(SEPARATOR.join(texts)),
        "text_digests": [_digest(text)[:12] for text in texts],
        "variables": take.variables,
        "speakers": list(dict.fromkeys(message.name for message in messages if message.name is not None)),
        "hidden": [position for position, message in enumerate(messages) if message.hidden],
        "dates_utc": [format_time(message.created_at) for message in messages],
    }
    summarized.update(told_of(take.extra, origin, "summary"))
    for variables in _version_variables(messages):
        summarized["extension_variables_at_end"] = variables
        break
    return summarized


def told_of(extra: dict[str, Any], origin: str, key: str) -> dict[str, Any]:
    """Answer what a reader left in an `extra` to be told in a summary: the tip of a take, where it was forked."""
    kept = extra.get(origin)
    told = kept.get(key) if isinstance(kept, dict) else None
    return told if isinstance(told, dict) else {}


def _version_variables(messages: tuple[ImportedMessage, ...]) -> Iterator[Any]:
    """Yield the variables an extension keeps beside shown versions, the last message's first."""
    for message in reversed(messages):
        for kept in message.versions[message.shown].extra.values():
            if isinstance(kept, dict) and "variables" in kept:
                yield kept["variables"]


def _summarize_card(card: Card) -> dict[str, Any]:
    """Describe a card in counts and digests, as JSON."""
    return {
        "spec": card.spec,
        "spec_version": card.spec_version,
        "name": card.name,
        "taken_from": card.taken_from,
        "description_sha256": _digest(card.description),
        "greetings_sha256": _digest(SEPARATOR.join(card.greetings)),
        "greetings": len(card.greetings),
        "group_only_greetings": len(card.group_only),
        "book": _summarize_book(card.book) if card.book is not None else None,
    }


def _summarize_book(book: Book) -> dict[str, Any]:
    """Describe a lorebook: its counts, a list for each field that decides when an entry is used, one digest of the texts."""
    entries = book.entries
    return {
        "entries": len(entries),
        "enabled": sum(entry.enabled for entry in entries),
        "constant": sum(entry.constant for entry in entries),
        "uids": [entry.uid for entry in entries],
        "keys": [entry.keys for entry in entries],
        "order": [entry.order for entry in entries],
        "position": [entry.position for entry in entries],
        "sticky": [entry.sticky for entry in entries],
        "depth": [entry.depth for entry in entries],
        "contents_sha256": _digest(SEPARATOR.join(entry.content for entry in entries)),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
