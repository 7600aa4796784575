"""Reads the SQLite sessions of the OpenAI Agents SDK: the plain one, and the advanced one with branches. Pure.

* An item is a message; those of user and assistant are the line, calls and results stand between with the role tool.
* A branch is a take, in the order of its sequence numbers; takes share the messages that branches share. What is shown
  the file does not say: `main` is, else the first branch.
* An item is kept word for word in its version's `extra`; rows of other tables beside the session.
"""

from __future__ import annotations

from typing import Any

from turnkeeper.records.messages import Role
from turnkeeper.transfer.databases.tables import (
    Row,
    Source,
    aside,
    db_time,
    finish,
    from_json,
    key_of,
    plain_row,
)
from turnkeeper.transfer.documents import Notes, fields, is_id, items, kept, text, text_part
from turnkeeper.transfer.imported import Imported, ImportedMessage, ImportedSession, ImportedTake, ImportedVersion
from turnkeeper.transfer.openwebui import arguments

FORMAT, ADVANCED = "openai-agents", "openai-agents-advanced"
_ROLES: dict[Any, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
}
_USED = ("agent_sessions", "agent_messages", "message_structure")


def knows(source: Source) -> bool:
    """Say whether these are the tables of such sessions."""
    return source.has("agent_messages", "session_id", "message_data")


def read(source: Source) -> Imported:
    """Read every session. Nothing in a row can make it fail."""
    origin = ADVANCED if source.has("message_structure", "message_id", "branch_id", "session_id") else FORMAT
    heads = {key_of(row.get("session_id")): row for row in source.rows.get("agent_sessions", [])}
    rows: dict[str, list[Row]] = {session_id: [] for session_id in heads}
    for row in sorted(source.rows["agent_messages"], key=_order):
        rows.setdefault(key_of(row["session_id"]), []).append(row)
    made = [_session(source, origin, session_id, heads.get(session_id), rows[session_id]) for session_id in rows]
    return finish(source, origin, made)


def _order(row: Row) -> tuple[int, Any]:
    number = row.get("id", row.get("sequence_number"))
    return (0, number) if isinstance(number, int | float) else (1, repr(number))


def _session(
    source: Source, origin: str, session_id: str, head: Row | None, rows: list[Row]
) -> tuple[ImportedSession, Notes]:
    notes = Notes()
    if head is None:
        notes.add("session_row_missing", "its messages are read", session=session_id)
    messages: dict[Any, ImportedMessage] = {}
    calls: dict[str, Any] = {}
    results: dict[str, Any] = {}
    for place, row in enumerate(rows):
        item = from_json(row["message_data"], notes, row=row.get("id", place))
        messages[row.get("id", place)] = _message(origin, row, item, notes)
        _note_call(fields(item), row.get("id", place), calls, results)
    for call, at in calls.items():
        if call not in results:
            notes.add("tool_call_without_result", "kept as it is", row=at, call=call)
    for call, at in results.items():
        if call not in calls:
            notes.add("tool_result_without_call", "kept as it is", row=at, call=call)
    rest: dict[str, Any] = {"session": plain_row(head) if head else None}
    if origin == ADVANCED:
        takes = _branches(source, session_id, messages, rest, notes)
    else:
        takes = (ImportedTake(session_id, tuple(messages.values()), {}, {}, active=True),)
    rest["tables"] = aside(source, _USED, "session_id", {session_id}, notes)
    created_at = db_time(head.get("created_at")) if head else None
    return ImportedSession(session_id, "", takes, {origin: rest}, created_at), notes


def _branches(
    source: Source, session_id: str, messages: dict[Any, ImportedMessage], rest: dict[str, Any], notes: Notes
) -> tuple[ImportedTake, ...]:
    own = [row for row in source.rows["message_structure"] if key_of(row["session_id"]) == session_id]
    branches: dict[str, list[Any]] = {}
    for row in sorted(own, key=lambda row: _order({"id": row.get("sequence_number", row.get("id"))})):
        branches.setdefault(key_of(row["branch_id"]), [])
        if row["message_id"] in messages:
            branches[key_of(row["branch_id"])].append(row["message_id"])
        else:
            notes.add("message_missing", "left out", row=row.get("id"))
    rest["message_structure"] = [plain_row(row) for row in own]
    placed = {message_id for branch in branches.values() for message_id in branch}
    loose = [message_id for message_id in messages if message_id not in placed]
    if loose and branches:
        notes.add("message_without_branch", "kept in a take of its own", row=loose[0], count=len(loose))
        branches["without branch"] = loose
    elif not branches:
        branches["main"] = loose
    names = sorted(branches, key=lambda name: name != "main")
    takes = []
    for number, name in enumerate(names):
        told: dict[str, Any] = {}
        shares = [(_shared(branches[other], branches[name]), -i) for i, other in enumerate(names[:number])]
        if shares and max(shares)[0]:
            told = {"forked_from": names[-max(shares)[1]], "shared_messages": max(shares)[0]}
        line = tuple(messages[message_id] for message_id in branches[name])
        takes.append(ImportedTake(name, line, {}, {ADVANCED: {"summary": told}} if told else {}, active=number == 0))
    return tuple(takes)


def _shared(one: list[Any], other: list[Any]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _note_call(item: dict[str, Any], row: Any, calls: dict[str, Any], results: dict[str, Any]) -> None:
    kind, call = text(item.get("type")), item.get("call_id")
    if not isinstance(call, str) or not is_id(call):
        return
    if kind.endswith("_call"):
        calls.setdefault(call, row)
    elif kind.endswith("_call_output"):
        results.setdefault(call, row)


def _message(origin: str, row: Row, item: Any, notes: Notes) -> ImportedMessage:
    created_at = db_time(row.get("created_at"))
    role, parts = _content(fields(item), row.get("id"), notes)
    if not isinstance(item, dict):
        parts = [{"type": "other", "data": item}]
    extra = {origin: {"item": item, "row": plain_row(kept(row, "message_data"))}}
    version = ImportedVersion(parts, {}, extra, created_at)
    return ImportedMessage(role, None, False, created_at, {}, (version,), 0)


def _content(item: dict[str, Any], row: Any, notes: Notes) -> tuple[Role, list[dict[str, Any]]]:
    kind, role = item.get("type"), item.get("role")
    if kind in (None, "message") and isinstance(role, str):
        if role not in _ROLES:
            notes.add("role_unknown", "kept outside the line", row=row)
        if item.get("status") in ("in_progress", "incomplete"):
            notes.add("message_unfinished", "kept as it is", row=row)
        return _ROLES.get(role, "system"), _blocks(item.get("content"), row, notes)
    if kind == "function_call" and is_id(item.get("call_id")) and isinstance(item.get("name"), str):
        call = {
            "type": "tool_call",
            "id": item["call_id"],
            "name": item["name"],
            "args": arguments(item.get("arguments")),
        }
        return "tool", [call]
    if kind == "function_call_output" and is_id(item.get("call_id")):
        return "tool", [
            {"type": "tool_result", "call_id": item["call_id"], "content": item.get("output"), "is_error": False}
        ]
    if kind == "reasoning":
        said = [*items(item.get("summary")), *items(item.get("content"))]
        return "tool", [{"type": "thinking", "text": text(fields(one).get("text"))} for one in said] or [
            {"type": "other", "data": item}
        ]
    if not (isinstance(kind, str) and kind.endswith(("_call", "_call_output"))):
        notes.add("part_unknown", "kept as a message outside the line", row=row, type=text(kind)[:100])
    return "tool", [{"type": "other", "data": item}]


def _blocks(content: Any, row: Any, notes: Notes) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [text_part(content)]
    if not isinstance(content, list):
        notes.wrong_type("content", row=row)
        return [text_part("")]
    parts: list[dict[str, Any]] = []
    for block in content:
        found = fields(block)
        said = next((found[key] for key in ("text", "refusal") if isinstance(found.get(key), str)), None)
        if said is not None:
            parts.append(text_part(said))
        else:
            kind = text(found.get("type"))
            if kind in ("input_image", "input_file", "input_audio"):
                notes.add("attachment_without_bytes", "kept as it is named", row=row)
            else:
                notes.add("part_unknown", "kept as a part outside the line", row=row, type=kind[:100])
            parts.append({"type": "other", "data": block})
    return parts
