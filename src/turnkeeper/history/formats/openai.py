"""OpenAI's chat completions: roles as they are, calls on the assistant's message, each result a message of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from .blocks import Block, Call, clean, joined, mentioned, plain_name, text_of_result


def to_openai(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Answer the list of messages."""
    made: list[dict[str, Any]] = []
    for block in blocks:
        if block.role == "results":
            made += [
                {"role": "tool", "tool_call_id": one.call.id, "content": text_of_result(one.content)}
                for one in block.parts
            ]
        elif block.role == "assistant":
            made += _assistant(block)
        else:
            made.append({"role": block.role, "content": _content(block), **_named(block)})
    return made


def _assistant(block: Block) -> list[dict[str, Any]]:
    texts = [
        part if part["type"] == "text" else {"type": "text", "text": mentioned(part)}
        for part in block.parts
        if isinstance(part, dict) and part["type"] in ("text", "media")
    ]
    calls = [
        {
            "id": part.id,
            "type": "function",
            "function": {"name": plain_name(part.name), "arguments": json.dumps(part.args)},
        }
        for part in block.parts
        if isinstance(part, Call)
    ]
    if not texts and not calls:
        return []  # nothing but thinking, which has no place here
    message: dict[str, Any] = {"role": "assistant", "content": joined(texts) or None, **_named(block)}
    if calls:
        message["tool_calls"] = calls
    return [message]


def _content(block: Block) -> str | list[dict[str, Any]]:
    if all(part["type"] == "text" for part in block.parts):
        return joined(block.parts)
    return [_part(part) for part in block.parts]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": clean(part["text"])}
    if part["mime"].startswith("image/"):
        return {"type": "image_url", "image_url": {"url": clean(part["ref"])}}
    return {"type": "text", "text": mentioned(part)}


def _named(block: Block) -> dict[str, str]:
    name = re.sub(r"[^a-zA-Z0-9_-]+", "_", block.name or "").strip("_")[:64]
    return {"name": name} if name else {}
