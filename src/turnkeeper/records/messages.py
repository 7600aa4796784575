"""A conversation's rows: takes, the messages that stand in them, and the versions (contents) that messages show.

The content model is pinned here. A message has `role`, and in its head `name`, `interaction`, `hidden` (shown to people,
never sent to a model) and `extra`. A version has `parts`, a list of

* ``{"type": "text", "text": str}``
* ``{"type": "thinking", "text": str, "signature"?: str}``
* ``{"type": "tool_call", "id": str, "name": str, "args": JSON}``
* ``{"type": "tool_result", "call_id": str, "content": JSON, "is_error": bool}``
* ``{"type": "media", "ref": str, "mime": str}``
* ``{"type": "other", …}``

beside `meta` (model, usage, finish …) and `extra` (unknown foreign fields, verbatim). A version's text is its text parts
joined. Messages are narrow and copied by a fork; versions are wide and never copied.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..schema import Personal, Table

Role = Literal["system", "user", "assistant", "tool"]


class Take(msgspec.Struct, frozen=True):
    """One ordered path of messages. `cursor` is the next position and never moves back."""

    session_id: str
    take: int
    parent_take: int | None
    parent_position: int | None  # the last position it shares with its parent
    kind: Literal["main", "fork", "regenerate", "import"]
    cursor: int
    shown_count: int
    revision: int  # moves when this take's shown history or state moves
    deleted: bool
    created_at: int
    name: Personal | None = None


class Message(msgspec.Struct, frozen=True):
    """One position of one take, and which of its versions is shown."""

    session_id: str
    take: int
    position: int
    version: int
    role: Role
    cut: bool
    turn: int | None  # the turn that added it; None for imported messages
    created_at: int | None
    versions: list[int] | None = None  # all its versions in order, when there is more than one
    head: dict[str, Any] | None = None  # name, interaction, hidden, extra: whichever it has
    cut_versions: list[int] | None = None  # those of its versions that are hidden


class Version(msgspec.Struct, frozen=True):
    """One content of a message, numbered within the session. Never changed; shared by every take that shows it."""

    session_id: str
    version: int
    created_at: int | None
    parts: list[dict[str, Any]]
    meta: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None


TAKES = Table("takes", Take, key=("session_id", "take"), root=("s", "session_id"))
MESSAGES = Table("messages", Message, key=("session_id", "take", "position"), root=("s", "session_id"))
VERSIONS = Table("versions", Version, key=("session_id", "version"), root=("s", "session_id"), payload=True)
