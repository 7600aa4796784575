"""What a reader of a foreign file found, in frozen structs that belong to no product and to no store. Pure.

Rules for every reader:

* Nothing is dropped in silence. What has no place in the structs is kept word for word in an `extra`, under the name of
  the format; what had to be decided, bent or left out is a `Loss`.
* Times are microseconds UTC, or None where the source has none that can be read.
* The takes of one session share a message or a version by holding the same object.
* A whole number beyond 64 bits, or a number no 64-bit float holds, is kept as ``{"$raw": "<its digits>"}`` and
  reported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from turnkeeper.records.messages import Role

SEPARATOR = "\n\u241e\n"
"""Stands between the texts of a line when `summary` takes the digest of the whole line."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ImportedVersion(msgspec.Struct, frozen=True):
    """One content of a message: `parts` as the content model has them, `meta` what is known of its making."""

    parts: list[dict[str, Any]]
    meta: dict[str, Any]
    extra: dict[str, Any]
    created_at: int | None

    @property
    def text(self) -> str:
        """Its text parts joined."""
        return "".join(part["text"] for part in self.parts if part["type"] == "text")

    @property
    def thinking(self) -> str:
        """Its thinking parts joined."""
        return "".join(part["text"] for part in self.parts if part["type"] == "thinking")


class ImportedMessage(msgspec.Struct, frozen=True):
    """One position of a take. `shown` numbers one of `versions`, from 0; there is at least one."""

    role: Role
    name: str | None
    hidden: bool
    created_at: int | None
    extra: dict[str, Any]
    versions: tuple[ImportedVersion, ...]
    shown: int

    @property
    def text(self) -> str:
        """The text of its shown version."""
        return self.versions[self.shown].text


class ImportedTake(msgspec.Struct, frozen=True):
    """One ordered path of messages. `variables` is the take's base: values without the history that led to them."""

    name: str
    messages: tuple[ImportedMessage, ...]
    variables: dict[str, Any]
    extra: dict[str, Any]
    active: bool


class ImportedSession(msgspec.Struct, frozen=True):
    """One conversation, under the id and the title its source has for it."""

    source_id: str
    title: str
    takes: tuple[ImportedTake, ...]
    extra: dict[str, Any]
    created_at: int | None


class Loss(msgspec.Struct, frozen=True):
    """One thing an importer must mention: its kind, its place in the file, and in a few words what was done."""

    kind: str
    where: dict[str, Any]
    action: str


class Imported(msgspec.Struct, frozen=True):
    """All that one file held. `file_sha256` names exactly the bytes that were read."""

    format: str
    file_sha256: str
    sessions: tuple[ImportedSession, ...]
    losses: tuple[Loss, ...]


def summary(imported: Imported) -> dict[str, Any]:
    """Describe an import in counts and digests, as JSON: what a person compares, and prints after an import.

    `line` has the positions a reader sees as chat (user and assistant), `line_sha256` is over their shown texts joined
    by `SEPARATOR`, and `text_digests` has the first 12 hex digits for each, all in UTF-8 with lone surrogates passed.
    """
    sessions = [_summarize_session(session, imported.format) for session in imported.sessions]
    return {
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


def _summarize_session(session: ImportedSession, origin: str) -> dict[str, Any]:
    versions = {id(version) for take in session.takes for message in take.messages for version in message.versions}
    return {
        "source_id": session.source_id,
        "title": session.title,
        "versions_total": len(versions),
        "takes": [_summarize_take(take, origin) for take in session.takes],
    }


def _summarize_take(take: ImportedTake, origin: str) -> dict[str, Any]:
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
    for variables in _version_variables(messages, origin):
        summarized["extension_variables_at_end"] = variables
        break
    return summarized


def told_of(extra: dict[str, Any], origin: str, key: str) -> dict[str, Any]:
    """Answer what a reader left in an `extra` to be told in a summary: the tip of a take, where it was forked."""
    kept = extra.get(origin)
    told = kept.get(key) if isinstance(kept, dict) else None
    return told if isinstance(told, dict) else {}


def _version_variables(messages: tuple[ImportedMessage, ...], origin: str) -> Iterator[Any]:
    """Yield the variables an extension keeps beside shown versions, the last message's first."""
    for message in reversed(messages):
        kept = message.versions[message.shown].extra.get(origin)
        if isinstance(kept, dict) and "variables" in kept:
            yield kept["variables"]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
