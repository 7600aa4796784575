"""Reads the database of pydantic-ai-durable: conversations, their forks, and transcripts that name their parents. Pure.

* A conversation and all its forks are one session, each a take; the first is shown. A fork goes on from the entry it
  was made at, and shares the messages up to there. Where a transcript itself parts, each further end is a take.
* An entry is kept word for word in its version's `extra`; rows of other tables beside the session.
"""

from __future__ import annotations

from typing import Any

from turnkeeper.records.messages import Role
from turnkeeper.transfer.databases.tables import Row, Source, aside, db_time, finish, from_json, key_of, plain_row
from turnkeeper.transfer.documents import Notes, fields, is_id, items, kept, text, text_part
from turnkeeper.transfer.imported import Imported, ImportedMessage, ImportedSession, ImportedTake, ImportedVersion
from turnkeeper.transfer.openwebui import arguments

FORMAT = "pydantic-ai-durable"
_USED = ("conversations", "transcript_entries")
_ROLES: dict[Any, Role] = {
    "user": "user", "model_response": "assistant", "assistant": "assistant", "system": "system",
    "tool": "tool", "tool_result": "tool", "tool_return": "tool", "tool_call": "tool",
}  # fmt: skip


def knows(source: Source) -> bool:
    """Say whether these are the tables of such conversations."""
    return source.has("conversations", "conversation_id", "parent_conversation_id") and source.has(
        "transcript_entries", "entry_id", "conversation_id", "parent_entry_id", "message_json"
    )


def read(source: Source) -> Imported:
    """Read every conversation with its forks. Nothing in a row can make it fail."""
    heads = {key_of(row["conversation_id"]): row for row in source.rows["conversations"]}
    for row in source.rows["transcript_entries"]:
        heads.setdefault(key_of(row["conversation_id"]), {"conversation_id": row["conversation_id"], "lost": True})
    families: dict[str, list[str]] = {}
    for conversation in heads:
        families.setdefault(_root(conversation, heads), []).append(conversation)
    return finish(source, FORMAT, [_Family(source, heads, root, all_of).session() for root, all_of in families.items()])


def _root(conversation: str, heads: dict[str, Row]) -> str:
    seen = [conversation]
    while True:
        parent = heads[seen[-1]].get("parent_conversation_id")
        if parent is None or key_of(parent) not in heads:
            return seen[-1]
        if key_of(parent) in seen:
            return min(seen[seen.index(key_of(parent)) :])
        seen.append(key_of(parent))


class _Family:
    """A conversation with its forks, as its takes are made."""

    def __init__(self, source: Source, heads: dict[str, Row], root: str, members: list[str]) -> None:
        self._source, self._heads, self._root = source, heads, root
        self._members = sorted(members, key=lambda one: one != root)
        self._notes = Notes()
        self._entries: dict[str, Row] = {}
        for row in source.rows["transcript_entries"]:
            self._entries[key_of(row["entry_id"])] = row
        self._messages: dict[str, ImportedMessage] = {}

    def session(self) -> tuple[ImportedSession, Notes]:
        takes: list[ImportedTake] = []
        paths: dict[str, list[str]] = {}
        for conversation in self._members:
            if self._heads[conversation].get("lost"):
                self._notes.add("session_row_missing", "its entries are read", conversation_id=conversation)
            for name, path in self._lines(conversation):
                takes.append(self._take(name, conversation, path, paths, active=not takes))
                paths.setdefault(name, path)
        rest: dict[str, Any] = {"conversations": [plain_row(kept(self._heads[one], "lost")) for one in self._members]}
        beside = aside(self._source, _USED, "conversation_id", set(self._members), self._notes)
        if beside:
            rest["tables"] = beside
        created_at = db_time(self._heads[self._root].get("created_at"))
        return ImportedSession(self._root, "", tuple(takes), {FORMAT: rest}, created_at), self._notes

    def _lines(self, conversation: str) -> list[tuple[str, list[str]]]:
        """Answer the ends of a conversation: its last one under its own name, others under their entry's."""
        own = [e for e, row in self._entries.items() if key_of(row["conversation_id"]) == conversation]
        above = {key_of(self._entries[e]["parent_entry_id"]) for e in own}
        ends = [entry for entry in own if entry not in above] or own[-1:]
        fork = self._heads[conversation].get("fork_entry_id")
        prefix = self._path(key_of(fork), set()) if fork is not None else []
        if not ends:
            return [(conversation, prefix)]
        lines: list[tuple[str, list[str]]] = []
        for end in reversed(ends):
            path = self._path(end, set())
            if prefix and self._entries[path[0]]["conversation_id"] == self._heads[conversation]["conversation_id"]:
                path = [*prefix, *(entry for entry in path if entry not in prefix)]
            lines.append((conversation if not lines else end, path))
        return lines

    def _path(self, end: str, seen: set[str]) -> list[str]:
        path: list[str] = []
        at: str | None = end
        while at is not None:
            if at not in self._entries:
                self._notes.add("parent_missing", "the take begins after it", entry=at)
                break
            if at in seen:
                self._notes.add("parent_in_a_circle", "the circle is cut", entry=at)
                break
            seen.add(at)
            path.append(at)
            parent = self._entries[at]["parent_entry_id"]
            at = None if parent is None else key_of(parent)
        return path[::-1]

    def _take(
        self, name: str, conversation: str, path: list[str], paths: dict[str, list[str]], *, active: bool
    ) -> ImportedTake:
        told: dict[str, Any] = {}
        parent = self._heads[conversation].get("parent_conversation_id")
        if parent is not None and key_of(parent) in paths:
            shared = 0
            for one, other in zip(paths[key_of(parent)], path, strict=False):
                if one != other:
                    break
                shared += 1
            told = {"forked_from": key_of(parent), "shared_messages": shared}
        line = tuple(self._message(entry) for entry in path)
        return ImportedTake(name, line, {}, {FORMAT: {"summary": told}} if told else {}, active)

    def _message(self, entry: str) -> ImportedMessage:
        made = self._messages.get(entry)
        if made is None:
            row = self._entries[entry]
            said = from_json(row["message_json"], self._notes, entry=entry)
            created_at = db_time(row.get("created_at"))
            role, parts = _content(row.get("kind"), said, entry, self._notes)
            extra = {FORMAT: {"message": said, "row": plain_row(kept(row, "message_json"))}}
            version = ImportedVersion(parts, {}, extra, created_at)
            made = self._messages[entry] = ImportedMessage(role, None, False, created_at, {}, (version,), 0)
        return made


def _content(kind: Any, said: Any, entry: str, notes: Notes) -> tuple[Role, list[dict[str, Any]]]:
    found = fields(said)
    role = _ROLES.get(kind if isinstance(kind, str) else None)
    if isinstance(found.get("text"), str):
        parts = [text_part(found["text"])]
    elif isinstance(found.get("content"), str):
        parts = [text_part(found["content"])]
    else:
        parts = [_part(part, entry, notes) for part in items(found.get("parts"))]
        if role is None and any(fields(part).get("part_kind") == "user-prompt" for part in items(found.get("parts"))):
            role = "user"
        elif role is None and found.get("kind") == "response":
            role = "assistant"
    if not isinstance(said, dict):
        parts = [text_part(said)] if isinstance(said, str) else [{"type": "other", "data": said}]
    if role is None:
        notes.add("role_unknown", "kept outside the line", entry=entry)
    if role in ("user", "assistant") and parts and not any(part["type"] == "text" for part in parts):
        role = "tool"
    return role or "system", parts


def _part(part: Any, entry: str, notes: Notes) -> dict[str, Any]:
    found = fields(part)
    kind, content = found.get("part_kind"), found.get("content")
    if kind in ("user-prompt", "text") and isinstance(content, str):
        return text_part(content)
    if kind == "user-prompt" and isinstance(content, list):
        return text_part("".join(one for one in content if isinstance(one, str)))
    if kind == "thinking" and isinstance(content, str):
        return {"type": "thinking", "text": content}
    if kind == "tool-call" and is_id(found.get("tool_call_id")) and isinstance(found.get("tool_name"), str):
        return {
            "type": "tool_call", "id": found["tool_call_id"], "name": found["tool_name"],
            "args": arguments(found.get("args")),
        }  # fmt: skip
    if kind == "tool-return" and is_id(found.get("tool_call_id")):
        return {"type": "tool_result", "call_id": found["tool_call_id"], "content": content, "is_error": False}
    if kind not in ("system-prompt", "retry-prompt"):
        notes.add("part_unknown", "kept as a part outside the line", entry=entry, type=text(kind)[:100])
    return {"type": "other", "data": part}
