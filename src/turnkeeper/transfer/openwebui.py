"""Reads Open WebUI's chat export: a list of chats, each with a tree of messages in `chat.history`. Pure.

* A message's text is that of the message items of its `output`, joined by a blank line, else its `content`. Reasoning,
  calls and results of `output` are parts of the message.
* `chat.messages` is a copy of the shown line; where it disagrees the tree is right, and it is reported. A chat of the
  oldest exports that has only this list is read as one line.
* A message is kept word for word in its version's `extra`, a chat without its messages in the session's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from turnkeeper.records.messages import Role
from turnkeeper.transfer.claude import unused_id
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
from turnkeeper.transfer.imported import Imported, ImportedSession, ImportedTake, ImportedVersion, Loss
from turnkeeper.transfer.trees import Content, Node, empty_take, grow

FORMAT = "openwebui"
_ROLES: dict[Any, Role] = {"user": "user", "assistant": "assistant", "system": "system", "tool": "tool"}


def knows(entry: Any) -> bool:
    """Say whether this is one chat of such an export."""
    chat = fields(fields(entry).get("chat"))
    return "history" in chat or isinstance(chat.get("messages"), list)


def read(document: Document) -> Imported:
    """Read every chat of an export. Nothing in one can make it fail."""
    losses: list[Loss] = list(document.losses)
    sessions = [_read(entry, index, losses) for index, entry in enumerate(document.entries) if knows(entry)]
    return Imported(FORMAT, document.file_sha256, tuple(sessions), tuple(losses))


def _read(entry: dict[str, Any], index: int, losses: list[Loss]) -> ImportedSession:
    chat = entry["chat"]
    source_id = next((one["id"] for one in (entry, chat) if is_id(one.get("id"))), f"#{index}")
    notes = Notes(conversation=source_id)
    history = chat.get("history")
    if history is not None and not isinstance(history, dict):
        notes.wrong_type("history")
    history = fields(history)
    messages = history.get("messages")
    if isinstance(messages, list):  # a list of the same messages
        messages = {text(fields(one).get("id")) or f"#{place}": one for place, one in enumerate(messages)}
    elif messages is not None and not isinstance(messages, dict):
        notes.wrong_type("history.messages")
    messages = fields(messages)
    rest: dict[str, Any] = {"chat": entry}
    if messages:
        takes, odd = _takes(messages, history.get("currentId"), notes)
        _compare_copy(chat.get("messages"), takes[0], notes)
        rest["chat"] = {**entry, "chat": {**chat, "history": kept(history, "messages")}}
        if odd:
            rest["no_messages"] = odd
    elif items(chat.get("messages")):
        takes = _line(chat["messages"], notes)
        notes.add("chat_without_history", "its list of messages is read as one line")
    else:
        takes = (empty_take(FORMAT),)
        notes.add("conversation_empty", "a session with one empty take")
    title = text(entry.get("title")) or text(chat.get("title"))
    created_at = when(entry.get("created_at", chat.get("timestamp")), notes, required=False)
    losses += notes.losses
    return ImportedSession(source_id, title, takes, {FORMAT: rest}, created_at)


def _takes(messages: dict[str, Any], current: Any, notes: Notes) -> tuple[tuple[ImportedTake, ...], dict[str, Any]]:
    nodes, odd = [], {}
    for node_id, message in messages.items():
        if not isinstance(message, dict):
            notes.wrong_type("message", node=node_id)
            odd[node_id] = message
            continue
        parent, children = message.get("parentId"), message.get("childrenIds")
        if parent is not None and not isinstance(parent, str):
            notes.wrong_type("parentId", node=node_id)
        if children is not None and not isinstance(children, list):
            notes.wrong_type("childrenIds", node=node_id)
        if "id" in message and message["id"] != node_id:
            notes.add("node_id_disagrees", "its key is its id", node=node_id)
        listed = [child for child in items(children) if isinstance(child, str)]
        above = None if no_parent(parent) or not isinstance(parent, str) else parent
        nodes.append(Node(node_id, above, listed, _content(node_id, message, notes)))
    if current is not None and not isinstance(current, str):
        notes.wrong_type("currentId")
        current = None
    return grow(nodes, current or None, notes, origin=FORMAT), odd


def _line(messages: list[Any], notes: Notes) -> tuple[ImportedTake, ...]:
    nodes: dict[str, Node] = {}
    above: str | None = None
    for index, message in enumerate(messages):
        if isinstance(message, dict):
            node_id = unused_id(nodes, message.get("id"), index, notes)
            nodes[node_id] = Node(node_id, above, None, _content(node_id, message, notes))
            above = node_id
        else:
            notes.wrong_type("message", index=index)
    return grow(list(nodes.values()), above, notes, origin=FORMAT, has_lists=False)


def _compare_copy(copy: Any, shown: ImportedTake, notes: Notes) -> None:
    """Report the copied line where it says something else than the tree."""
    if not copy:
        return
    line = [message.versions[message.shown].extra[FORMAT] for message in shown.messages]
    given = [fields(one) for one in items(copy)]
    if [(one.get("id"), one.get("content")) for one in given] != [(one.get("id"), one.get("content")) for one in line]:
        notes.add("line_copy_disagrees", "the tree is read, the copy is kept")


def _content(node_id: str, message: dict[str, Any], notes: Notes) -> Content:
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        notes.add("role_unknown", "kept outside the line", node=node_id)
        role = "system"
    if message.get("done") is False:
        notes.add("message_unfinished", "kept as it is", node=node_id)
    if items(message.get("files")):
        notes.add("attachment_without_bytes", "kept as it is named", node=node_id)
    created_at = when(message.get("timestamp"), notes, node=node_id)
    parts = list(_parts(node_id, message, notes))
    name = message.get("modelName")
    version = ImportedVersion(parts, model_meta(message.get("model")), {FORMAT: message}, created_at)
    return Content(_ROLES[role], name if isinstance(name, str) else None, False, version)


def _parts(node_id: str, message: dict[str, Any], notes: Notes) -> Iterator[dict[str, Any]]:
    output = message.get("output")
    if output is not None and not isinstance(output, list):
        notes.wrong_type("output", node=node_id)
    said = [fields(item) for item in items(output)]
    if not any(item.get("type") == "message" for item in said):
        yield from (_part(node_id, item, notes) for item in said)
        content = message.get("content")
        if isinstance(content, list):
            yield from joined([text(fields(one).get("text")) for one in content if "text" in fields(one)], "\n\n")
            yield from ({"type": "other", "data": one} for one in content if "text" not in fields(one))
            return
        if content is not None and not isinstance(content, str):
            notes.wrong_type("content", node=node_id)
        yield text_part(text(content))
        return
    first = True
    for item in said:
        if item.get("type") != "message":
            yield _part(node_id, item, notes)
            continue
        if not first:
            yield {"type": "text", "text": "\n\n", "joiner": True}
        yield text_part(text_of(item.get("content")))
        first = False


def text_of(content: Any) -> str:
    """Answer the text of an item's content: a text itself, or the texts of its blocks."""
    if isinstance(content, str):
        return content
    return "".join(text(fields(block).get("text")) for block in items(content))


def _part(node_id: str, item: dict[str, Any], notes: Notes) -> dict[str, Any]:
    kind = item.get("type")
    if kind == "reasoning":
        return {"type": "thinking", "text": text_of(item.get("content")) or text_of(item.get("summary"))}
    if kind == "function_call" and is_id(item.get("call_id")) and isinstance(item.get("name"), str):
        return {
            "type": "tool_call",
            "id": item["call_id"],
            "name": item["name"],
            "args": arguments(item.get("arguments")),
        }
    if kind == "function_call_output" and is_id(item.get("call_id")):
        return {"type": "tool_result", "call_id": item["call_id"], "content": item.get("output"), "is_error": False}
    notes.add("part_unknown", "kept as a part outside the line", node=node_id, type=text(kind)[:100])
    return {"type": "other", "data": item}


def arguments(given: Any) -> Any:
    """Answer the arguments of a call: what their JSON text says, or the text itself where it is no plain JSON."""
    if not isinstance(given, str) or len(given) > 1_000_000:
        return given
    try:
        value = json.loads(given)
    except (ValueError, RecursionError):
        return given
    plain = isinstance(value, dict) and all(
        one is None or isinstance(one, str | bool) or (isinstance(one, int) and abs(one) < 2**53)
        for one in value.values()
    )
    return value if plain else given
