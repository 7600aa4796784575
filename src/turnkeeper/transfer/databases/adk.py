"""Reads the session database of Google's ADK: schema 1 with JSON events, schema 0 with pickled actions. Pure.

* An event is a message; its author is its name. Events without a text stand outside the line.
* The variables are the session's state with the keys of its app and its user, under `app:` and `user:`. The state a
  session began with the file does not hold, which is reported; what the events say of it is kept with the take.
* Pickled columns are kept as digests and reported, never loaded.
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
    plain,
    plain_row,
)
from turnkeeper.transfer.documents import Notes, fields, items, kept, text, text_part
from turnkeeper.transfer.imported import Imported, ImportedMessage, ImportedSession, ImportedTake, ImportedVersion

FORMAT, OLD = "adk-v1", "adk-v0"
_USED = ("sessions", "events", "app_states", "user_states")


def knows(source: Source) -> bool:
    """Say whether these are the tables of such sessions."""
    return source.has("sessions", "app_name", "user_id", "id", "state") and source.has(
        "events", "session_id", "timestamp"
    )


def read(source: Source) -> Imported:
    """Read every session of every app and user. Nothing in a row can make it fail."""
    origin = FORMAT if source.has("events", "event_data") else OLD
    events: dict[Any, list[Row]] = {}
    for row in source.rows["events"]:
        events.setdefault(_key(row, "session_id"), []).append(row)
    made = [_session(source, origin, row, events.pop(_key(row, "id"), [])) for row in source.rows["sessions"]]
    for key, rows in events.items():
        lost = {"app_name": key[0], "user_id": key[1], "id": key[2], "state": "{}"}
        session, notes = _session(source, origin, lost, rows)
        notes.add("session_row_missing", "its events are read", session=key[2])
        made.append((session, notes))
    return finish(source, origin, made)


def _key(row: Row, column: str) -> tuple[str, str, str]:
    return key_of(row.get("app_name")), key_of(row.get("user_id")), key_of(row[column])


def _session(source: Source, origin: str, head: Row, rows: list[Row]) -> tuple[ImportedSession, Notes]:
    session_id, notes = key_of(head["id"]), Notes()
    rows = sorted(rows, key=lambda row: db_time(row.get("timestamp")) or 0)
    messages: list[ImportedMessage] = []
    after: list[dict[str, Any]] = []
    state: dict[str, Any] = {}
    for row in rows:
        event = _event(row, notes)
        messages.append(_message(origin, row, event, notes))
        delta = fields(fields(event.get("actions")).get("state_delta"))
        state = {**state, **delta}
        after.append(dict(state))
    variables = _variables(source, head, session_id, notes)
    own = {key: value for key, value in state.items() if not key.startswith(("app:", "user:", "temp:"))}
    if origin == FORMAT and own != {key: value for key, value in variables.items() if key in own}:
        notes.add("state_differs_from_events", "the session's state is read", session=session_id)
    notes.add("initial_state_not_stored", "what the events did not change may be older", session=session_id)
    told = {"variables_after_message": after}
    take = ImportedTake(session_id, tuple(messages), variables, {origin: {"summary": told}}, active=True)
    rest: dict[str, Any] = {"session": plain_row(head)}
    beside = aside(source, (*_USED, "adk_internal_metadata"), "session_id", {session_id}, notes)
    if beside:
        rest["tables"] = beside
    return ImportedSession(session_id, "", (take,), {origin: rest}, db_time(head.get("create_time"))), notes


def _variables(source: Source, head: Row, session_id: str, notes: Notes) -> dict[str, Any]:
    variables: dict[str, Any] = dict(_state(head.get("state"), notes, session=session_id))
    app = [row for row in source.rows.get("app_states", []) if row.get("app_name") == head.get("app_name")]
    user = [
        row
        for row in source.rows.get("user_states", [])
        if row.get("app_name") == head.get("app_name") and row.get("user_id") == head.get("user_id")
    ]
    for table, prefix, found in (("app_states", "app:", app), ("user_states", "user:", user)):
        for row in found:
            shared = _state(row.get("state"), notes, table=table)
            if shared:
                notes.add("state_outside_session", "copied into the session's variables", table=table)
            variables |= {prefix + key: value for key, value in shared.items()}
    return variables


def _state(cell: Any, notes: Notes, **where: Any) -> dict[str, Any]:
    value = from_json(cell, notes, **where)
    if value is not None and not isinstance(value, dict):
        notes.wrong_type("state", **where)
    return fields(value)


def _event(row: Row, notes: Notes) -> dict[str, Any]:
    place = key_of(row.get("id"))
    if "event_data" in row:
        event = from_json(row["event_data"], notes, event=place)
        if not isinstance(event, dict):
            notes.wrong_type("event_data", event=place)
            return {"unread": event}
        return event
    event = plain_row(row)
    for column in ("content", "grounding_metadata", "custom_metadata", "usage_metadata"):
        if isinstance(row.get(column), str):
            event[column] = from_json(row[column], notes, event=place)
    for column, cell in row.items():
        if isinstance(cell, bytes):
            notes.add("pickle_not_loaded", "kept as its digest", event=place, column=column)
    return event


def _message(origin: str, row: Row, event: dict[str, Any], notes: Notes) -> ImportedMessage:
    place = key_of(row.get("id"))
    content = event.get("content")
    parts = [_part(part, place, notes) for part in items(fields(content).get("parts"))]
    if content is not None and not isinstance(content, dict):
        notes.wrong_type("content", event=place)
    if event.get("interrupted") is True or event.get("partial") is True:
        notes.add("message_unfinished", "kept as it is", event=place)
    author, created_at = event.get("author"), db_time(row.get("timestamp"))
    if created_at is None:
        notes.add("date_unreadable", "left without a time", event=place)
    extra = {origin: {"event": event, "row": plain(kept(row, "event_data", *(event if origin == OLD else ())))}}
    version = ImportedVersion(parts, {}, extra, created_at)
    name = author if isinstance(author, str) else None
    return ImportedMessage(_role(event, fields(content), parts), name, False, created_at, {}, (version,), 0)


def _role(event: dict[str, Any], content: dict[str, Any], parts: list[dict[str, Any]]) -> Role:
    if not any(part["type"] == "text" for part in parts):
        return "tool" if parts else "system"
    role = content.get("role")
    if role not in ("user", "model"):
        role = "user" if event.get("author") == "user" else "model"
    return "user" if role == "user" else "assistant"


def _part(part: Any, place: str, notes: Notes) -> dict[str, Any]:
    found = fields(part)
    if isinstance(found.get("text"), str):
        return {"type": "thinking", "text": found["text"]} if found.get("thought") is True else text_part(found["text"])
    call, result = fields(found.get("function_call")), fields(found.get("function_response"))
    if isinstance(call.get("name"), str):
        return {"type": "tool_call", "id": text(call.get("id")), "name": call["name"], "args": call.get("args")}
    if isinstance(result.get("name"), str):
        return {
            "type": "tool_result", "call_id": text(result.get("id")), "content": result.get("response"),
            "is_error": False, "name": result["name"],
        }  # fmt: skip
    if "inline_data" in found or "file_data" in found:
        notes.add("media_aside", "kept as a part outside the line", event=place)
    elif not {"executable_code", "code_execution_result"} & found.keys():
        notes.add("part_unknown", "kept as a part outside the line", event=place)
    return {"type": "other", "data": part}
