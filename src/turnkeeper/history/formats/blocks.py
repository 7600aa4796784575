"""What every provider's format is made of: blocks in order, in which each call has its result right after it.

* A call without a result (`calls.py` says which is whose) gets one that says it was interrupted; a result without a call
  is left out.
* Calls with one id twice are told apart by a number at the end of the id.
* Hidden messages are left out, and so are texts without a letter in them, and parts of the kind `other`.
* Calls and thinking count only in an assistant's message, texts and media only outside a tool's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from ..calls import INTERRUPTED, Place, pair_calls


class Line(NamedTuple):
    """One message of a history: who speaks, and what."""

    role: str
    parts: Sequence[dict[str, Any]]
    name: str | None = None
    hidden: bool = False


class Call(NamedTuple):
    """A call, under an id that no other call has."""

    id: str
    name: str
    args: Any


class Result(NamedTuple):
    """The result of the call with this id."""

    call: Call
    content: Any
    is_error: bool


class Block(NamedTuple):
    """A run of parts of one speaker. `parts` are dicts of the content model, Calls and Results."""

    role: Literal["system", "user", "assistant", "results"]
    parts: list[Any]
    name: str | None = None


def blocks_of(lines: Iterable[Line]) -> list[Block]:
    """Answer the blocks of a history."""
    shown = [line for line in lines if not line.hidden]
    calls, results = _paired(shown)
    blocks: list[Block] = []
    for number, line in enumerate(shown):
        parts: list[Any] = []
        for place, part in enumerate(line.parts):
            if part.get("type") == "tool_result" and any(isinstance(made, Call) for made in parts):
                blocks += _closed(line, parts, results)  # the rest of the message comes after the results
                parts = []
            elif (number, place) in calls:
                parts.append(calls[number, place])
            elif _counts(line, part):
                parts.append(part)
        blocks += _closed(line, parts, results)
    return blocks


def _paired(lines: Sequence[Line]) -> tuple[dict[Place, Call], dict[str, Result]]:
    """Answer the calls by their place, and the results by the id of their call."""
    calls: dict[Place, Call] = {}
    results: dict[str, Result] = {}
    used: set[str] = set()
    for (number, index), result in pair_calls((line.role, line.parts) for line in lines).items():
        part = lines[number].parts[index]
        call = calls[number, index] = Call(_unused(part["id"], used), part["name"], part["args"])
        if result is not None:
            results[call.id] = Result(call, result["content"], bool(result.get("is_error")))
    return calls, results


def _unused(wanted: str, used: set[str]) -> str:
    """Answer an id of letters that all providers allow, and that no other call has."""
    plain = re.sub(r"[^a-zA-Z0-9_-]", "_", wanted)[:50] or "call"
    found, count = plain, 1
    while found in used:
        count += 1
        found = f"{plain}-{count}"
    used.add(found)
    return found


def _counts(line: Line, part: dict[str, Any]) -> bool:
    kind = part.get("type")
    if kind == "text":
        return line.role != "tool" and bool(part["text"].strip())
    if kind == "thinking":
        return line.role == "assistant" and bool(part["text"].strip())
    return kind == "media" and line.role in ("user", "assistant")


def _closed(line: Line, parts: list[Any], results: dict[str, Result]) -> list[Block]:
    """Answer a block of some parts, with the results of its calls behind it."""
    if not parts:
        return []
    block = Block(line.role, parts, line.name)  # type: ignore[arg-type]  # a tool's message has no parts that count
    called = [part for part in parts if isinstance(part, Call)]
    if not called:
        return [block]
    return [block, Block("results", [results.get(c.id) or Result(c, INTERRUPTED, True) for c in called])]


def text_of_result(content: Any) -> str:
    """Answer a result's content as text: itself, or as JSON."""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return clean(text)


def clean(text: str) -> str:
    """Answer a text that UTF-8 can carry: lone surrogates become the replacement character."""
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text


def joined(parts: Sequence[Any]) -> str:
    """Answer the texts among some parts, a blank line between them."""
    return "\n\n".join(clean(part["text"]) for part in parts if isinstance(part, dict) and part["type"] == "text")


def plain_name(name: str) -> str:
    """Answer a tool's name with the letters all providers allow."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "tool"


def as_object(value: Any) -> dict[str, Any]:
    """Answer a value where a provider takes an object only."""
    return value if isinstance(value, dict) else {"value": value}


def mentioned(part: dict[str, Any]) -> str:
    """Name a medium that a provider takes no reference to."""
    return clean(f"[{part['mime']}: {part['ref']}]")


def merged(blocks: Sequence[Block], voice: dict[str, str]) -> list[tuple[str, list[Any]]]:
    """Join neighbours of one voice, for providers whose voices take turns and whose first one is the user's."""
    made: list[tuple[str, list[Any]]] = []
    for block in blocks:
        speaker = voice[block.role]
        if made and made[-1][0] == speaker:
            made[-1][1].extend(block.parts)
        else:
            made.append((speaker, list(block.parts)))
    if made and made[0][0] != "user":
        made.insert(0, ("user", [{"type": "text", "text": OPENING}]))
    return made


OPENING = "(The conversation begins.)"
"""Stands for the user where a conversation begins with a greeting and the provider wants the user first."""
