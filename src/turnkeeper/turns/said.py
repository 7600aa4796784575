"""What a running turn says, as it gathers: messages, a reply that streams in, calls and their results.

A call that has no result when the turn lands is closed by one that says it was interrupted, right behind its message, so
that every call of a history has its result. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from msgspec.structs import replace

from ..errors import Invalid
from ..history.calls import INTERRUPTED, pair_calls
from ..history.content import NewMessage, message


class Stop(Exception):
    """Leads out of a play whose turn was stopped; its block ends there and keeps what was said."""

    code = "stopped"


class Said:
    """The messages of one running turn. `alone`: the turn makes another version of one reply."""

    def __init__(self, alone: bool) -> None:
        self._alone = alone
        self._messages: list[NewMessage] = []
        self._chunks: list[str] = []
        self._ids: set[str] = set()  # of its calls

    def say(self, role: str, content: str | Sequence[Mapping[str, Any]], **more: Any) -> None:
        """Add a message; what has streamed in before becomes one of its own."""
        if self._alone and role != "assistant":
            raise Invalid("Another version of a reply is a reply.", do="Use turn.reply(…).", path="role")
        made = message(role, content, **more)
        self._settle()
        self._messages.append(made)

    def reply(self, content: str | Sequence[Mapping[str, Any]], **more: Any) -> None:
        """Add the reply: it stands instead of what has streamed in."""
        made = message("assistant", content, **more)
        self._chunks.clear()
        self._messages.append(made)

    def stream(self, chunk: str) -> None:
        """Add a piece of the reply. Raises Invalid for what is no text."""
        if not isinstance(chunk, str):
            raise Invalid("A chunk is text.", do="Give a str, or use turn.reply(…) for parts.", path="chunk")
        self._chunks.append(chunk)

    def call(self, name: str, args: Any, call_id: str | None) -> str:
        """Add a call; answer its id. Raises Invalid for an id that waits for its result already."""
        given = call_id
        if given is None:
            given = next(made for n in count(1) if (made := f"call_{n}") not in self._ids)
        if given in (waiting for _, waiting in self._waiting()):
            raise Invalid(
                "Another call of this turn waits under that id.", do="Give each call an id of its own.", path="call_id"
            )
        self.say("assistant", [{"type": "tool_call", "id": given, "name": name, "args": args}])
        self._ids.add(given)
        return given

    def result(self, call_id: str, content: Any, is_error: bool) -> None:
        """Add a call's result. Raises Invalid when no call of this turn waits for it."""
        if call_id not in (waiting for _, waiting in self._waiting()):
            raise Invalid(
                "No call of this turn waits for a result under that id.",
                do="Give the id that turn.call(…) answered, and one result a call.", path="call_id",
            )  # fmt: skip
        self.say("tool", [{"type": "tool_result", "call_id": call_id, "content": content, "is_error": is_error}])

    def closed(self) -> list[NewMessage]:
        """Answer the messages as they land, every call with its result."""
        self._settle()
        waiting = self._waiting()
        if not waiting:
            return list(self._messages)
        made: list[NewMessage] = []
        for number, said in enumerate(self._messages):
            ends = [_interrupted(call_id) for at, call_id in waiting if at == number]
            if ends and self._alone:  # one version of one message: its calls are closed inside it
                said = replace(said, parts=[*said.parts, *ends])
            made.append(said)
            if ends and not self._alone:
                made.append(message("tool", ends))
        return made

    def _settle(self) -> None:
        text = "".join(self._chunks)
        self._chunks.clear()
        if text:
            self._messages.append(message("assistant", text))

    def _waiting(self) -> list[tuple[int, str]]:
        """Answer the calls without a result: the number of the message, and the call's id."""
        pairs = pair_calls((said.role, said.parts) for said in self._messages)
        return [
            (number, self._messages[number].parts[index]["id"])
            for (number, index), result in pairs.items()
            if result is None
        ]


def _interrupted(call_id: str) -> dict[str, Any]:
    return {"type": "tool_result", "call_id": call_id, "content": INTERRUPTED, "is_error": True}
