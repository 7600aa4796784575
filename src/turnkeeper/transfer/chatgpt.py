"""Reads ChatGPT's export, `conversations.json`: each conversation is a tree of nodes, its `mapping`. Pure.

* On the line stand messages of user and assistant to all, of content type text or multimodal_text, not hidden; the
  strings of their `parts` are joined by LF. Everything else is kept as a message outside the line: what tools and the
  thinking said has the role tool, hidden and system messages the role system.
* A node is kept word for word in its version's `extra`, a conversation without its mapping in the session's, where the
  nodes without a message stand too. Node ids belong to their conversation; one that came before is reported.
* Images and files are named by the export, not held by it: each is a part of its own, and reported.
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
    text,
    text_part,
    when,
)
from turnkeeper.transfer.imported import Imported, ImportedSession, ImportedTake, ImportedVersion, Loss
from turnkeeper.transfer.trees import Content, Node, empty_take, grow

FORMAT = "chatgpt"
_SPOKEN = ("text", "multimodal_text")
_FINISHED = ("finished_successfully",)


def knows(entry: Any) -> bool:
    """Say whether this is one conversation of such an export."""
    if not isinstance(entry, dict):
        return False
    if isinstance(entry.get("mapping"), dict):
        return True
    marks = {"conversation_id", "moderation_results", "current_node", "conversation_template_id", "default_model_slug"}
    return "chat_messages" not in entry and "messages" not in entry and len(marks & entry.keys()) >= 2


def read(document: Document) -> Imported:
    """Read every conversation of an export. Nothing in one can make it fail."""
    losses: list[Loss] = list(document.losses)
    seen: set[str] = set()
    sessions = [_read(entry, index, seen, losses) for index, entry in enumerate(document.entries) if knows(entry)]
    return Imported(FORMAT, document.file_sha256, tuple(sessions), tuple(losses))


def _read(entry: dict[str, Any], index: int, seen: set[str], losses: list[Loss]) -> ImportedSession:
    source_id = next((entry[key] for key in ("conversation_id", "id") if is_id(entry.get(key))), f"#{index}")
    notes = Notes(conversation=source_id)
    title = text(entry.get("title"))
    mapping = entry.get("mapping")
    rest: dict[str, Any] = {"conversation": kept(entry, "mapping")}
    takes: tuple[ImportedTake, ...] = (empty_take(FORMAT),)
    if not mapping or not isinstance(mapping, dict):
        rest["conversation"] = entry
        notes.add("conversation_without_mapping", "a session with one empty take")
    else:
        nodes = [_node(node_id, node, seen, notes) for node_id, node in mapping.items()]
        structure = {node.node_id: mapping[node.node_id] for node in nodes if node.content is None}
        if structure:
            rest["structure"] = structure
        seen.update(node.node_id for node in nodes if node.content is not None)
        takes = grow(nodes, _current(entry, notes), notes, origin=FORMAT)
    created_at = when(entry.get("create_time"), notes, required=False)
    losses += notes.losses
    return ImportedSession(source_id, title, takes, {FORMAT: rest}, created_at)


def _current(entry: dict[str, Any], notes: Notes) -> str | None:
    current = entry.get("current_node")
    if current is not None and not isinstance(current, str):
        notes.wrong_type("current_node")
        return None
    return current or None


def _node(node_id: str, node: Any, seen: set[str], notes: Notes) -> Node:
    if not isinstance(node, dict):
        notes.wrong_type("node", node=node_id)
        return Node(node_id, None, None, None)
    parent, children = node.get("parent"), node.get("children")
    if parent is not None and not isinstance(parent, str):
        notes.wrong_type("parent", node=node_id)
        parent = None
    if children is not None and not isinstance(children, list):
        notes.wrong_type("children", node=node_id)
    if "id" in node and node["id"] != node_id:
        notes.add("node_id_disagrees", "the key of the mapping is its id", node=node_id)
    message = node.get("message")
    if message is not None and not isinstance(message, dict):
        notes.wrong_type("message", node=node_id)
    content = _content(node_id, node, message, notes) if isinstance(message, dict) else None
    if content is not None and node_id in seen:
        notes.add("node_id_repeated", "ids belong to their conversation", node=node_id)
    return Node(node_id, parent or None, [child for child in items(children) if isinstance(child, str)], content)


def _content(node_id: str, node: dict[str, Any], message: dict[str, Any], notes: Notes) -> Content:
    author, content, metadata = (fields(message.get(key)) for key in ("author", "content", "metadata"))
    for key in ("author", "content"):
        if not isinstance(message.get(key), dict):
            notes.wrong_type(key, node=node_id)
    status = message.get("status")
    if status is not None and status not in _FINISHED:
        notes.add("message_unfinished", "kept as it is", node=node_id)
    hidden = metadata.get("is_visually_hidden_from_conversation") is True
    created_at = when(message.get("create_time"), notes, node=node_id)
    parts = list(_parts(node_id, content, message, notes))
    version = ImportedVersion(parts, model_meta(metadata.get("model_slug")), {FORMAT: node}, created_at)
    name = author.get("name")
    return Content(_role(message, author, content, hidden), name if isinstance(name, str) else None, hidden, version)


def _role(message: dict[str, Any], author: dict[str, Any], content: dict[str, Any], hidden: bool) -> Role:
    role = author.get("role")
    spoken = content.get("content_type") in _SPOKEN and message.get("recipient", "all") in ("all", None)
    if role in ("user", "assistant") and spoken and not hidden:
        return "user" if role == "user" else "assistant"
    return "tool" if role in ("tool", "assistant") and not hidden else "system"


def _parts(node_id: str, content: dict[str, Any], message: dict[str, Any], notes: Notes) -> Iterator[dict[str, Any]]:
    kind = content.get("content_type")
    if kind in _SPOKEN:
        yield from _spoken(node_id, content, notes)
    elif kind == "thoughts":
        for thought in items(content.get("thoughts")):
            yield {"type": "thinking", "text": text(fields(thought).get("content"))}
    elif kind == "reasoning_recap":
        yield {"type": "thinking", "text": text(content.get("content"))}
    elif kind == "code" and message.get("recipient") not in ("all", None):
        yield {
            "type": "tool_call", "id": node_id, "name": text(message["recipient"]),
            "args": kept(content, "content_type"),
        }  # fmt: skip
    elif kind in ("code", "execution_output") and isinstance(content.get("text"), str):
        yield text_part(content["text"])
    else:
        if kind not in _KNOWN:
            notes.add("part_unknown", "kept as a part outside the line", node=node_id, type=text(kind)[:100])
        yield {"type": "other", "data": content}


_KNOWN = ("user_editable_context", "model_editable_context", "system_error", "tether_quote", "tether_browsing_display")


def _spoken(node_id: str, content: dict[str, Any], notes: Notes) -> Iterator[dict[str, Any]]:
    if not isinstance(content.get("parts"), list):
        notes.wrong_type("parts", node=node_id)
    given = items(content.get("parts"))
    strings = [part for part in given if isinstance(part, str)]
    texts = iter(joined(strings, "\n"))
    first = True
    for part in given:
        if isinstance(part, str):
            if not first:
                yield next(texts)  # what stands between
            yield next(texts)
            first = False
            continue
        if isinstance(part, dict) and isinstance(part.get("asset_pointer"), str):
            notes.add("attachment_without_bytes", "kept by its name", node=node_id)
        elif (
            isinstance(part, dict) and "asset_pointer" not in part and part.get("content_type") == "audio_transcription"
        ):
            pass
        else:
            notes.add("part_unknown", "kept as a part outside the line", node=node_id)
        yield {"type": "other", "data": part}
