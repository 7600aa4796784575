"""Anthropic's messages: the system apart, user and assistant in turn, calls and results as blocks of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .blocks import Block, Call, Result, as_object, clean, joined, mentioned, merged, plain_name, text_of_result

_VOICE = {"user": "user", "assistant": "assistant", "results": "user"}


def to_anthropic(blocks: Sequence[Block]) -> dict[str, Any]:
    """Answer the keyword arguments `messages`, and `system` when there is one."""
    system = "\n\n".join(joined(block.parts) for block in blocks if block.role == "system")
    spoken = [b for b in (_sendable(block) for block in blocks if block.role != "system") if b.parts]
    turns = [(voice, [_part(part) for part in parts]) for voice, parts in merged(spoken, _VOICE)]
    if turns and turns[-1][0] == "assistant" and turns[-1][1][-1]["type"] == "text":
        last = turns[-1][1][-1]
        last["text"] = last["text"].rstrip()  # what the model goes on from may not end in white space
    messages = [{"role": voice, "content": content} for voice, content in turns]
    return {**({"system": system} if system else {}), "messages": messages}


def _sendable(block: Block) -> Block:
    """Leave out thinking that carries no signature, which the provider would refuse."""
    parts = [p for p in block.parts if not (isinstance(p, dict) and p["type"] == "thinking" and not p.get("signature"))]
    spoken = any(not (isinstance(p, dict) and p["type"] == "thinking") for p in parts)
    return block._replace(parts=parts if spoken else [])  # thinking alone is no message


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, Call):
        return {"type": "tool_use", "id": part.id, "name": plain_name(part.name), "input": as_object(part.args)}
    if isinstance(part, Result):
        failed = {"is_error": True} if part.is_error else {}
        return {"type": "tool_result", "tool_use_id": part.call.id, "content": text_of_result(part.content), **failed}
    if part["type"] == "thinking":
        return {"type": "thinking", "thinking": clean(part["text"]), "signature": part["signature"]}
    if (
        part["type"] == "media"
        and part["mime"].startswith("image/")
        and part["ref"].startswith(("https://", "http://"))
    ):
        return {"type": "image", "source": {"type": "url", "url": clean(part["ref"])}}
    if part["type"] == "media":
        return {"type": "text", "text": mentioned(part)}
    return {"type": "text", "text": clean(part["text"])}
