"""Reads Claude's export, `conversations.json`: messages in order, or with parents in dumps of a conversation. Pure.

* A message's text is its text blocks joined by a blank line; the field `text` counts only where `content` is absent.
  Thinking, calls and results are parts of the message; blocks of other types are kept as such.
* Calls and results are matched over the conversation, and reported where one lacks the other or comes too early.
* Messages that name a parent form a tree; its shown line ends at `current_leaf_message_uuid`.
* A message is kept word for word in its version's `extra`, a conversation without its messages in the session's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnkeeper.records.messages import Role
from turnkeeper.transfer.documents import (
    Document,
    Notes,
    fields,
    is_id,
    items,
    joined,
    kept,
    model_meta,
    no_parent,
    text,
    text_part,
    when,
)
from turnkeeper.transfer.imported import (
    Imported,
    ImportedMessage,
    ImportedSession,
    ImportedTake,
    ImportedVersion,
    Loss,
)
from turnkeeper.transfer.trees import Content, Node, empty_take, grow

FORMAT = "claude"
_PARENT = "parent_message_uuid"
_RESULTS = ("tool_result",)


def knows(entry: Any) -> bool:
    """Say whether this is one conversation of such an export."""
    if not isinstance(entry, dict):
        return False
    if "chat_messages" in entry:
        return "mapping" not in entry
    return (
        "uuid" in entry
        and "name" in entry
        and bool({"account", "summary", "updated_at"} & entry.keys())
        and ("email_address" not in entry and "docs" not in entry and "prompt_template" not in entry)
    )


def read(document: Document) -> Imported:
    """Read every conversation of an export. Nothing in one can make it fail."""
    losses: list[Loss] = list(document.losses)
    sessions = [_read(entry, index, losses) for index, entry in enumerate(document.entries) if knows(entry)]
    return Imported(FORMAT, document.file_sha256, tuple(sessions), tuple(losses))


def _read(entry: dict[str, Any], index: int, losses: list[Loss]) -> ImportedSession:
    source_id = entry["uuid"] if is_id(entry.get("uuid")) else f"#{index}"
    notes = Notes(conversation=source_id)
    given = entry.get("chat_messages")
    rest = {"conversation": kept(entry, "chat_messages") if isinstance(given, list) else entry}
    if given is not None and not isinstance(given, list):
        notes.wrong_type("chat_messages")
    messages = []
    for place, message in enumerate(items(given)):
        if isinstance(message, dict):
            messages.append(message)
        else:
            notes.wrong_type("message", index=place)
            rest.setdefault("no_messages", {})[str(place)] = message
    if not items(given):
        notes.add("conversation_empty", "a session with one empty take")
    _match_calls(messages, notes)
    takes = _takes(entry, messages, notes)
    created_at = when(entry.get("created_at"), notes, required=False)
    losses += notes.losses
    return ImportedSession(source_id, text(entry.get("name")), takes, {FORMAT: rest}, created_at)


def _takes(entry: dict[str, Any], messages: list[dict[str, Any]], notes: Notes) -> tuple[ImportedTake, ...]:
    if not messages:
        return (empty_take(FORMAT),)
    contents = [_content(message, notes) for message in messages]
    if not any(_PARENT in message for message in messages):
        line = tuple(
            ImportedMessage(one.role, one.name, one.hidden, one.version.created_at, {}, (one.version,), 0)
            for one in contents
        )
        return (ImportedTake("", line, {}, {}, active=True),)
    nodes: dict[str, Node] = {}
    for index, (message, content) in enumerate(zip(messages, contents, strict=True)):
        parent = message.get(_PARENT)
        if not isinstance(parent, str | None):
            notes.wrong_type(_PARENT, message=_id(message))
        parent = None if no_parent(parent) or not isinstance(parent, str) else parent
        node_id = unused_id(nodes, message.get("uuid"), index, notes)
        nodes[node_id] = Node(node_id, parent, None, content)
    current = entry.get("current_leaf_message_uuid")
    return grow(
        list(nodes.values()), current if is_id(current) else None, notes, origin=FORMAT, has_lists=False
    )  # fmt: skip


def unused_id(nodes: dict[str, Node], node_id: Any, index: int, notes: Notes) -> str:
    """Answer a node's id, or one of its own where it has none or has that of an earlier node; both are reported."""
    if is_id(node_id) and node_id not in nodes:
        return str(node_id)
    if is_id(node_id):
        notes.add("node_id_repeated", "kept as a message of its own", node=node_id)
        made = f"{node_id}#{index}"
    else:
        notes.add("node_id_missing", "kept under its place", index=index)
        made = f"#{index}"
    while made in nodes:
        made += "'"
    return made


def _id(message: dict[str, Any]) -> str:
    return text(message.get("uuid"))


def _content(message: dict[str, Any], notes: Notes) -> Content:
    sender = message.get("sender")
    roles: dict[Any, Role] = {"human": "user", "user": "user", "assistant": "assistant"}
    role = roles.get(sender if isinstance(sender, str) else None)
    if role is None:
        notes.add("role_unknown", "kept outside the line", message=_id(message))
        role = "system"
    created_at = when(message.get("created_at"), notes, message=_id(message))
    _note_files(message, notes)
    parts = list(_parts(message, notes))
    version = ImportedVersion(parts, model_meta(message.get("model")), {FORMAT: message}, created_at)
    return Content(role, None, False, version)


def _parts(message: dict[str, Any], notes: Notes) -> Iterator[dict[str, Any]]:
    blocks = message.get("content")
    if isinstance(blocks, str):
        blocks = [{"type": "text", "text": blocks}]
    elif blocks is not None and not isinstance(blocks, list):
        notes.wrong_type("content", message=_id(message))
        blocks = None
    if blocks is None:
        yield text_part(text(message.get("text")))
        return
    strings = [block["text"] for block in blocks if _is_text(block)]
    if isinstance(message.get("text"), str) and message["text"] != "\n\n".join(strings) and message["text"]:
        notes.add("text_differs_from_content", "content is read, text is kept", message=_id(message))
    texts = iter(joined(strings, "\n\n"))
    first = True
    for block in blocks:
        if not _is_text(block):
            yield _part(block, message, notes)
            continue
        if not first:
            yield next(texts)  # what stands between
        yield next(texts)
        first = False


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _part(block: Any, message: dict[str, Any], notes: Notes) -> dict[str, Any]:
    kind = fields(block).get("type")
    if kind == "thinking" and isinstance(block.get("thinking"), str):
        return {"type": "thinking", "text": block["thinking"]}
    if kind == "tool_use" and is_id(block.get("id")) and isinstance(block.get("name"), str):
        return {"type": "tool_call", "id": block["id"], "name": block["name"], "args": block.get("input")}
    if kind == "tool_result" and is_id(block.get("tool_use_id")):
        return {
            "type": "tool_result", "call_id": block["tool_use_id"], "content": block.get("content"),
            "is_error": block.get("is_error") is True,
        }  # fmt: skip
    if kind not in ("token_budget", "flag", "voice_note"):
        notes.add("part_unknown", "kept as a part outside the line", message=_id(message), type=text(kind)[:100])
    return {"type": "other", "data": block}


def _match_calls(messages: list[dict[str, Any]], notes: Notes) -> None:
    """Report calls without a result, results without a call, results that stand before their call."""
    calls: dict[str, tuple[int, str]] = {}
    results: dict[str, tuple[int, str]] = {}
    place = 0
    for message in messages:
        for block in items(message.get("content")):
            place += 1
            found = fields(block)
            if found.get("type") == "tool_use" and is_id(found.get("id")):
                calls.setdefault(found["id"], (place, _id(message)))
            elif found.get("type") in _RESULTS and is_id(found.get("tool_use_id")):
                results.setdefault(found["tool_use_id"], (place, _id(message)))
    for call, (at, message_id) in calls.items():
        if call not in results:
            notes.add("tool_call_without_result", "kept as it is", message=message_id, call=call)
        elif results[call][0] < at:
            notes.add("tool_result_before_call", "the order is kept", message=results[call][1], call=call)
    for call, (_, message_id) in results.items():
        if call not in calls:
            notes.add("tool_result_without_call", "kept as it is", message=message_id, call=call)


def _note_files(message: dict[str, Any], notes: Notes) -> None:
    held = {
        one.get("file_name")
        for one in map(fields, items(message.get("attachments")))
        if isinstance(one.get("file_name"), str) and isinstance(one.get("extracted_content"), str)
    }
    for key in ("files", "files_v2", "attachments"):
        for one in map(fields, items(message.get(key))):
            name = one.get("file_name", one.get("file_uuid"))
            if not isinstance(name, str):
                notes.add("attachment_without_bytes", "kept as it is named", message=_id(message))
            elif name not in held:
                notes.add("attachment_without_bytes", "kept by its name", message=_id(message), file=name)
