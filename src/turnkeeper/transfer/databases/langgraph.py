"""Reads the checkpoints of LangGraph's SQLite saver: a thread is a session, each end of its lines a take. Pure.

* A checkpoint without a child ends a line; the newest checkpoint's line is shown. Its `messages` are the take, its other
  channels the variables. Takes share a message while all before it is shared, and id and content are the same.
* Checkpoints between are counted, not kept; a message that stands in none of the ends is reported with them.
* Blobs are decoded by `msgpack`, by an allow list; pickled or encrypted ones are kept as digests and reported.
* Namespaces below the root (subgraphs) are counted and reported.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from turnkeeper.records.messages import Role
from turnkeeper.transfer.databases.msgpack import decode
from turnkeeper.transfer.databases.tables import (
    Row,
    Source,
    Unsayable,
    aside,
    digest_of,
    finish,
    from_json,
    key_of,
    plain,
    plain_row,
)
from turnkeeper.transfer.documents import Notes, fields, fold, is_id, items, kept, text, text_part
from turnkeeper.transfer.imported import Imported, ImportedMessage, ImportedSession, ImportedTake, ImportedVersion

FORMAT = "langgraph-sqlite"
NEWEST, FIRST = "newest checkpoint", "first line"
_ROLES: dict[Any, Role] = {
    "human": "user",
    "user": "user",
    "ai": "assistant",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
}


def knows(source: Source) -> bool:
    """Say whether these are the tables of such a saver."""
    return source.has("checkpoints", "thread_id", "checkpoint_id", "parent_checkpoint_id", "checkpoint")


def read(source: Source) -> Imported:
    """Read every thread. Nothing in a row can make it fail."""
    threads: dict[str, list[Row]] = {}
    for row in source.rows["checkpoints"]:
        threads.setdefault(key_of(row["thread_id"]), []).append(row)
    return finish(source, FORMAT, [_Thread(source, thread, rows).session() for thread, rows in threads.items()])


class _Thread:
    """One thread, as its lines are found."""

    def __init__(self, source: Source, thread: str, rows: list[Row]) -> None:
        self._source, self._thread = source, thread
        self._notes = Notes()
        self._rows = {key_of(row["checkpoint_id"]): row for row in rows if row.get("checkpoint_ns") in ("", None)}
        self._below = len(rows) - len(self._rows)
        self._all = len(rows)
        self._writes = [row for row in source.rows.get("writes", []) if key_of(row.get("thread_id")) == thread]
        self._shared: dict[Any, ImportedMessage] = {}

    def session(self) -> tuple[ImportedSession, Notes]:
        if self._below:
            self._notes.add("checkpoint_namespace_aside", "not read", thread=self._thread, count=self._below)
        takes = [self._take(end, name, active=not n) for n, (end, name) in enumerate(self._ends())]
        if len(takes) > 1:
            takes[0] = _with_shared(takes)
        if not takes:
            takes = [ImportedTake("", (), {}, {}, active=True)]
        between = len(self._rows) - len(takes)
        if between > 0:
            self._notes.add("checkpoints_between", "counted, not kept", thread=self._thread, count=between)
        if any(take.messages for take in takes):
            self._notes.add("date_missing", "messages of this format have no time", thread=self._thread)
        told = {"checkpoints": self._all, "writes": len(self._writes)}
        rest: dict[str, Any] = {"file": told}
        beside = aside(self._source, ("checkpoints", "writes"), "thread_id", {self._thread}, self._notes)
        if beside:
            rest["tables"] = beside
        return ImportedSession(self._thread, "", tuple(takes), {FORMAT: rest}, None), self._notes

    def _ends(self) -> list[tuple[str, str]]:
        """Answer the checkpoints at which lines end, the newest first, the others by age, each with its take's name."""
        parents = {key_of(row["parent_checkpoint_id"]) for row in self._rows.values() if row["parent_checkpoint_id"]}
        for checkpoint, row in self._rows.items():
            if row["parent_checkpoint_id"] and key_of(row["parent_checkpoint_id"]) not in self._rows:
                self._notes.add("parent_missing", "its own line is read", checkpoint=checkpoint)
        if not self._rows:
            return []
        newest = max(self._rows)
        others = sorted(checkpoint for checkpoint in self._rows if checkpoint not in parents and checkpoint != newest)
        names = [FIRST, *(f"line to {checkpoint}" for checkpoint in others[1:])]
        return [(newest, NEWEST), *zip(others, names, strict=False)]

    def _take(self, checkpoint: str, name: str, *, active: bool) -> ImportedTake:
        row: Row = self._rows[checkpoint]
        value = fields(self._blob(row.get("type"), row.get("checkpoint"), checkpoint=checkpoint))
        if not isinstance(value.get("channel_values"), dict):
            self._notes.add("checkpoint_unreadable", "its take is empty", checkpoint=checkpoint)
        channels = fields(value.get("channel_values"))
        found = _messages_of(channels)
        messages = self._line(items(channels.get(found) if found else None), name)
        variables = {
            key: channel
            for key, channel in channels.items()
            if key != found and not key.startswith(("branch:", "__", "join:"))
        }
        rest: dict[str, Any] = {
            "checkpoint": {**value, "channel_values": kept(channels, *([found] if found else []))},
            "row": plain_row(kept(row, "checkpoint", "metadata")),
            "metadata": from_json(row.get("metadata"), self._notes, checkpoint=checkpoint),
        }
        pending = self._pending(checkpoint, name)
        if pending:
            rest["writes"] = pending
        return ImportedTake(name, tuple(messages), variables, fold({FORMAT: rest}, self._notes), active)

    def _pending(self, checkpoint: str, take: str) -> list[Any]:
        found = []
        for row in self._writes:
            if key_of(row.get("checkpoint_id")) != checkpoint or row.get("checkpoint_ns") not in ("", None):
                continue
            channel = text(row.get("channel"))
            value = self._blob(row.get("type"), row.get("value"), checkpoint=checkpoint, channel=channel)
            found.append({**plain_row(kept(row, "value")), "value": value})
            if channel == "__interrupt__":
                self._notes.add("interrupt_pending", "kept beside the take", take=take)
            elif not channel.startswith(("__", "branch:")):
                self._notes.add("write_pending", "kept beside the take, not in its line", take=take, channel=channel)
        return found

    def _line(self, given: list[Any], take: str) -> list[ImportedMessage]:
        line: list[ImportedMessage] = []
        before: Any = ()
        for position, one in enumerate(given):
            said = fields(one)
            if said.get("lc") and isinstance(said.get("kwargs"), dict):  # the older form, in JSON
                said = {"$message": text(items(said.get("id"))[-1:] and said["id"][-1]), **said["kwargs"]}
            key = (before, json.dumps(one, sort_keys=True)) if is_id(said.get("id")) else (before, take, position)
            made = self._shared.get(key)
            if made is None:
                made = self._shared[key] = self._message(said, one, take, position)
            line.append(made)
            before = id(made)
        return line

    def _message(self, said: dict[str, Any], given: Any, take: str, position: int) -> ImportedMessage:
        where = {"take": take, "position": position}
        kind = said.get("type", said.get("role"))
        role = _ROLES.get(kind if isinstance(kind, str) else None)
        if role is None and "AIMessage" in text(said.get("$message"), text(kind)):
            role = "assistant"
        if role is None and "HumanMessage" in text(said.get("$message"), text(kind)):
            role = "user"
        if role is None:
            self._notes.add("role_unknown", "kept outside the line", **where)
            role = "system"
        parts = _parts(said, role, self._notes, where) if said else [{"type": "other", "data": given}]
        meta = {}
        model = fields(said.get("response_metadata")).get("model_name")
        if isinstance(model, str) and model:
            meta["model"] = model
        name = said.get("name")
        version = ImportedVersion(parts, meta, {FORMAT: given if isinstance(given, dict) else {"given": given}}, None)
        return ImportedMessage(role, name if isinstance(name, str) else None, False, None, {}, (version,), 0)

    def _blob(self, kind: Any, cell: Any, **where: Any) -> Any:
        """Read a blob by its type; what may not be read is its digest, and reported."""
        if kind in ("null", "empty") or cell is None:
            return None
        if kind == "json" or isinstance(cell, str):
            return from_json(cell, self._notes, **where)
        if not isinstance(cell, bytes):
            self._notes.wrong_type("blob", **where)
            return plain(cell)
        if kind not in ("msgpack", "bytes", "bytearray", None):
            pickled = kind == "pickle"
            self._notes.add("pickle_not_loaded" if pickled else "blob_not_read", "kept as its digest", **where)
            return digest_of(cell)
        if kind in ("bytes", "bytearray"):
            self._notes.add("blob_not_read", "kept as its digest", **where)
            return digest_of(cell)
        try:
            decoded = decode(cell)
            value = plain(decoded.value)
        except Unsayable:
            self._notes.add("blob_not_read", "kept as its digest", **where)
            return digest_of(cell)
        for name in dict.fromkeys(decoded.unknown):
            self._notes.add("type_unknown", "kept as its fields, never constructed", type=name, **where)
        return fold(value, self._notes)


def _with_shared(takes: list[ImportedTake]) -> ImportedTake:
    """Answer the shown take with the number of messages it shares with another line."""
    shown = takes[0]
    most = 0
    for other in takes[1:]:
        count = 0
        for one, two in zip(shown.messages, other.messages, strict=False):
            if one is not two:
                break
            count += 1
        most = max(most, count)
    told = {**shown.extra[FORMAT], "summary": {"shared_messages": most}}
    return replace(shown, extra={FORMAT: told})


def _messages_of(channels: dict[str, Any]) -> str | None:
    """Answer the channel of the messages: `messages`, else the first that holds a list of nothing but messages."""
    if isinstance(channels.get("messages"), list):
        return "messages"
    for key, value in channels.items():
        if (
            isinstance(value, list)
            and value
            and all("$message" in fields(one) or fields(one).get("lc") for one in value)
        ):
            return key
    return None


def _parts(said: dict[str, Any], role: Role, notes: Notes, where: dict[str, Any]) -> list[dict[str, Any]]:
    content = said.get("content")
    if role == "tool" and is_id(said.get("tool_call_id")):
        failed = said.get("status") == "error"
        return [{"type": "tool_result", "call_id": said["tool_call_id"], "content": content, "is_error": failed}]
    parts: list[dict[str, Any]] = []
    if isinstance(content, str):
        parts.append(text_part(content))
    elif not isinstance(content, list):
        notes.wrong_type("content", **where)
    for block in items(content):
        found = fields(block)
        if isinstance(block, str):
            parts.append(text_part(block))
        elif found.get("type") == "text" and isinstance(found.get("text"), str):
            parts.append(text_part(found["text"]))
        elif found.get("type") == "thinking" and isinstance(found.get("thinking"), str):
            parts.append({"type": "thinking", "text": found["thinking"]})
        elif found.get("type") != "tool_use":  # a call stands in `tool_calls` too
            notes.add("part_unknown", "kept as a part outside the line", type=text(found.get("type"))[:100], **where)
            parts.append({"type": "other", "data": block})
    for call in map(fields, items(said.get("tool_calls"))):
        if isinstance(call.get("name"), str):
            parts.append(
                {"type": "tool_call", "id": text(call.get("id")), "name": call["name"], "args": call.get("args")}
            )
    return parts
