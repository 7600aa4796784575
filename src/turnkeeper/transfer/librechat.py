"""Reads LibreChat's JSON export: one conversation, a list of messages that name their parents. Pure.

* `text` is the line. A message without it has the texts of its `content` blocks; blocks of other kinds are parts.
* The export does not say what was shown: the line to the newest leaf is. The all-zero id stands above the first message.
* A recursive export, with messages inside `children`, is read as the same tree.
* A message is kept word for word in its version's `extra`, a conversation without its messages in the session's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
from turnkeeper.transfer.imported import Imported, ImportedSession, ImportedVersion, Loss
from turnkeeper.transfer.trees import Content, Node, grow

FORMAT = "librechat"


def knows(entry: Any) -> bool:
    """Say whether this is one conversation of such an export."""
    found = fields(entry)
    given = found.get("messages", found.get("messagesTree"))
    if not ("messages" in found or "messagesTree" in found) or "mapping" in found or "chat_messages" in found:
        return False
    first = next((one for one in items(given) if isinstance(one, dict)), {})
    return "conversationId" in found or {"messageId", "parentMessageId"} <= first.keys()


def read(document: Document) -> Imported:
    """Read every conversation of an export. Nothing in one can make it fail."""
    losses: list[Loss] = list(document.losses)
    sessions = [_read(entry, index, losses) for index, entry in enumerate(document.entries) if knows(entry)]
    return Imported(FORMAT, document.file_sha256, tuple(sessions), tuple(losses))


def _read(entry: dict[str, Any], index: int, losses: list[Loss]) -> ImportedSession:
    source_id = entry["conversationId"] if is_id(entry.get("conversationId")) else f"#{index}"
    notes = Notes(conversation=source_id)
    key = "messages" if "messages" in entry else "messagesTree"
    given = entry[key]
    if not isinstance(given, list):
        notes.wrong_type(key)
    rest: dict[str, Any] = {"conversation": kept(entry, key) if isinstance(given, list) else entry}
    nodes: dict[str, Node] = {}
    for place, (message, above) in enumerate(_flat(items(given))):
        if not isinstance(message, dict):
            notes.wrong_type("message", index=place)
            rest.setdefault("no_messages", {})[str(place)] = message
            continue
        node_id = unused_id(nodes, message.get("messageId"), place, notes)
        parent = message.get("parentMessageId", above)
        if parent is not None and not isinstance(parent, str):
            notes.wrong_type("parentMessageId", node=node_id)
        parent = None if no_parent(parent) or not isinstance(parent, str) else parent
        nodes[node_id] = Node(node_id, parent, None, _content(node_id, message, notes))
    if nodes:
        current = entry.get("currentMessageId")
        takes = grow(
            list(nodes.values()), current if is_id(current) else None, notes, origin=FORMAT, has_lists=False
        )  # fmt: skip
    else:
        notes.add("conversation_empty", "a session with one empty take")
        takes = grow([], None, notes, origin=FORMAT)
    losses += notes.losses
    return ImportedSession(source_id, text(entry.get("title")), takes, {FORMAT: rest}, None)


def _flat(messages: list[Any]) -> Iterator[tuple[Any, str | None]]:
    """Yield messages and, of a recursive export, those inside them, each with the id of the one it stood in."""
    waiting: list[tuple[Any, str | None]] = [(one, None) for one in reversed(messages)]
    while waiting:
        message, above = waiting.pop()
        inside = items(fields(message).get("children"))
        if inside:
            own = message.get("messageId")
            waiting += [(one, own if is_id(own) else above) for one in reversed(inside)]
            message = kept(message, "children")
        yield message, above


def _content(node_id: str, message: dict[str, Any], notes: Notes) -> Content:
    if message.get("unfinished") is True or message.get("finish_reason") == "incomplete":
        notes.add("message_unfinished", "kept as it is", node=node_id)
    if message.get("error") is True:
        notes.add("message_failed", "kept as it is", node=node_id)
    if items(message.get("files")) or items(message.get("attachments")):
        notes.add("attachment_without_bytes", "kept as it is named", node=node_id)
    by_user = message.get("isCreatedByUser")
    if not isinstance(by_user, bool):
        notes.wrong_type("isCreatedByUser", node=node_id)
        by_user = text(message.get("sender")).lower() == "user"
    created_at = when(message.get("createdAt"), notes, node=node_id)
    version = ImportedVersion(
        list(_parts(node_id, message, notes)), model_meta(message.get("model")), {FORMAT: message}, created_at
    )
    sender = message.get("sender")
    return Content("user" if by_user else "assistant", sender if isinstance(sender, str) else None, False, version)


def _parts(node_id: str, message: dict[str, Any], notes: Notes) -> Iterator[dict[str, Any]]:
    blocks = message.get("content")
    strings = []
    for block in map(fields, items(blocks)):
        kind = block.get("type")
        if kind == "text":
            inner = block.get("text")
            strings.append(inner if isinstance(inner, str) else text(fields(inner).get("value")))
        elif kind == "think":
            yield {"type": "thinking", "text": text(block.get("think"))}
        else:
            if kind not in ("tool_call", "image_file", "image_url", "error", "agent_update"):
                notes.add("part_unknown", "kept as a part outside the line", node=node_id, type=text(kind)[:100])
            yield {"type": "other", "data": block}
    if isinstance(message.get("text"), str) and (message["text"] or not strings):
        yield text_part(message["text"])
        return
    if message.get("text") is not None and not isinstance(message["text"], str):
        notes.wrong_type("text", node=node_id)
    yield from joined(strings or [""], "\n\n")
