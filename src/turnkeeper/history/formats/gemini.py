"""Gemini's contents: user and model in turn, function calls and responses as parts, the system apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .blocks import Block, Call, Result, as_object, clean, joined, merged, plain_name

_VOICE = {"user": "user", "assistant": "model", "results": "user"}


def to_gemini(blocks: Sequence[Block]) -> dict[str, Any]:
    """Answer `contents`, and `system_instruction` when there is one."""
    system = "\n\n".join(joined(block.parts) for block in blocks if block.role == "system")
    spoken = [b for b in (_sendable(block) for block in blocks if block.role != "system") if b.parts]
    contents = [{"role": voice, "parts": [_part(p) for p in parts]} for voice, parts in merged(spoken, _VOICE)]
    return {"contents": contents, **({"system_instruction": {"parts": [{"text": system}]}} if system else {})}


def _sendable(block: Block) -> Block:
    """Leave out thinking: a history carries none here."""
    return block._replace(parts=[p for p in block.parts if not (isinstance(p, dict) and p["type"] == "thinking")])


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, Call):
        return {"function_call": {"name": plain_name(part.name), "args": as_object(part.args)}}
    if isinstance(part, Result):
        named = "error" if part.is_error else "result"
        response = part.content if isinstance(part.content, dict) and not part.is_error else {named: part.content}
        return {"function_response": {"name": plain_name(part.call.name), "response": response}}
    if part["type"] == "media":
        return {"file_data": {"mime_type": part["mime"], "file_uri": clean(part["ref"])}}
    return {"text": clean(part["text"])}
