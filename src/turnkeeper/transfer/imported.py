"""What a reader of a foreign file found, in frozen structs that belong to no product and to no store. Pure.

Rules for every reader:

* Nothing is dropped in silence. What has no place in the structs is kept word for word in an `extra`, under the name of
  the format; what had to be decided, bent or left out is a `Loss`.
* Times are microseconds UTC, or None where the source has none that can be read.
* The takes of one session share a message or a version by holding the same object.
* A whole number beyond 64 bits, or a number no 64-bit float holds, is kept as ``{"$raw": "<its digits>"}`` and
  reported.
* A card or a lorebook is no session; the whole of what was read stays beside what was understood (`raw`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from turnkeeper.records.messages import Role


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
    source: str = ""  # by what it is known again; "": by the file and its place in it


class Loss(msgspec.Struct, frozen=True):
    """One thing an importer must mention: its kind, its place in the file, and in a few words what was done."""

    kind: str
    where: dict[str, Any]
    action: str


class BookEntry(msgspec.Struct, frozen=True):
    """One entry of a lorebook. `sticky` and `depth` are None where they are not set, which is not 0."""

    uid: int | str | None
    keys: list[str]
    content: str
    enabled: bool
    constant: bool
    order: int | float | None
    position: int | str | None
    sticky: int | float | None
    depth: int | float | None


class Book(msgspec.Struct, frozen=True):
    """A lorebook: its entries in the order of the file, and the file's own words."""

    name: str
    entries: tuple[BookEntry, ...]
    raw: Any


class Card(msgspec.Struct, frozen=True):
    """A character card. `greetings` has `first_mes`, then the alternates; those for groups only stand apart."""

    spec: str  # v1, chara_card_v2, chara_card_v3
    spec_version: str | None
    taken_from: str  # json, the PNG chunk's keyword, or the name of a CHARX's member
    name: str
    description: str
    greetings: tuple[str, ...]
    group_only: tuple[str, ...]
    book: Book | None
    raw: Any


class Imported(msgspec.Struct, frozen=True):
    """All that one file held. `file_sha256` names exactly the bytes that were read."""

    format: str
    file_sha256: str
    sessions: tuple[ImportedSession, ...]
    losses: tuple[Loss, ...]
    card: Card | None = None
    lorebook: Book | None = None


def digest_of_files(read: Iterable[Imported]) -> str:
    """Answer one digest for several files, whatever their order."""
    return hashlib.sha256("".join(sorted(one.file_sha256 for one in read)).encode()).hexdigest()
