"""Provider formats: any history becomes one that the provider takes, checked by rules written down apart from the code."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper import Invalid
from turnkeeper.history.formats import FORMATS, Line, check_format, to_format

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
IDS = st.sampled_from(["a", "b", "c", "ü 1", ""])
TEXTS = st.sampled_from(["", " ", "hello", "two\nlines ", "\ud83d", "naïve"])
JSONS = st.sampled_from([None, 1, "text", "", {"k": [1]}, [1, 2]])
PARTS = st.one_of(
    st.builds(lambda t: {"type": "text", "text": t}, TEXTS),
    st.builds(lambda t, s: {"type": "thinking", "text": t, **s}, TEXTS, st.sampled_from([{}, {"signature": "sig"}])),
    st.builds(lambda i, n, a: {"type": "tool_call", "id": i, "name": n, "args": a}, IDS, TEXTS, JSONS),
    st.builds(
        lambda i, c, e: {"type": "tool_result", "call_id": i, "content": c, "is_error": e}, IDS, JSONS, st.booleans()
    ),
    st.builds(lambda m, r: {"type": "media", "ref": r, "mime": m}, st.sampled_from(["image/png", "audio/ogg"]), TEXTS),
    st.just({"type": "other", "what": 1}),
)
LINES = st.lists(
    st.builds(
        Line,
        st.sampled_from(["system", "user", "assistant", "tool"]),
        st.lists(PARTS, max_size=4),
        st.sampled_from([None, "Ann", "Zoë <x>"]),
        st.booleans(),
    ),
    max_size=8,
)


def check_openai(made: list[dict[str, Any]]) -> None:
    """Each call's results follow at once, each once; contents are there; names have allowed letters."""
    open_calls: list[str] = []
    seen: set[str] = set()
    for message in made:
        assert message["role"] in ("system", "user", "assistant", "tool")
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", message.get("name", "x"))
        if message["role"] == "tool":
            assert isinstance(message["content"], str)
            open_calls.remove(message["tool_call_id"])
            continue
        assert open_calls == [], "a call is left without its result"
        if message["role"] == "assistant":
            assert message["content"] or message.get("tool_calls")
            for call in message.get("tool_calls", []):
                assert call["id"] not in seen
                assert NAME.fullmatch(call["function"]["name"])
                json.loads(call["function"]["arguments"])
                seen.add(call["id"])
                open_calls.append(call["id"])
        else:
            assert message["content"], "an empty message"
            if isinstance(message["content"], list):
                assert all(part.get("text") or part.get("image_url") for part in message["content"])
    assert open_calls == []


def check_anthropic(made: dict[str, Any]) -> None:
    """User and assistant in turn, the user first; the results of all calls first in the very next message."""
    assert set(made) <= {"system", "messages"}
    assert made.get("system", "x").strip()
    calls: list[str] = []
    for number, message in enumerate(made["messages"]):
        assert message["role"] == ("user", "assistant")[number % 2]
        content = message["content"]
        assert content
        results = [part["tool_use_id"] for part in content if part["type"] == "tool_result"]
        assert [part["type"] for part in content[: len(results)]] == ["tool_result"] * len(results)
        assert sorted(results) == sorted(calls)
        calls = [part["id"] for part in content if part["type"] == "tool_use"]
        assert len(set(calls)) == len(calls)
        for part in content:
            assert part["type"] != "text" or part["text"].strip()
            assert part["type"] != "thinking" or (message["role"] == "assistant" and part["signature"])
            if part["type"] == "tool_use":
                assert message["role"] == "assistant" and isinstance(part["input"], dict)
                assert NAME.fullmatch(part["name"]) and re.fullmatch(r"[a-zA-Z0-9_-]+", part["id"])
    assert calls == []
    if made["messages"] and made["messages"][-1]["content"][-1]["type"] == "text":
        last = made["messages"][-1]["content"][-1]["text"]
        assert made["messages"][-1]["role"] == "user" or last == last.rstrip()


def check_gemini(made: dict[str, Any]) -> None:
    """User and model in turn, the user first; as many responses, first in the next content, as there were calls."""
    calls: list[str] = []
    for number, content in enumerate(made["contents"]):
        assert content["role"] == ("user", "model")[number % 2]
        assert content["parts"]
        answers = [part["function_response"]["name"] for part in content["parts"] if "function_response" in part]
        assert answers == calls
        assert all("function_response" in part for part in content["parts"][: len(answers)])
        calls = [part["function_call"]["name"] for part in content["parts"] if "function_call" in part]
        assert not calls or content["role"] == "model"
        for part in content["parts"]:
            assert len(part) == 1
            assert "text" not in part or part["text"].strip()
            for key in ("function_call", "function_response"):
                if key in part:
                    assert NAME.fullmatch(part[key]["name"])
                    assert isinstance(part[key]["args" if key == "function_call" else "response"], dict)
    assert calls == []


CHECKS: dict[str, Any] = {"openai": check_openai, "anthropic": check_anthropic, "gemini": check_gemini}


@pytest.mark.parametrize("name", list(FORMATS))
@given(lines=LINES)
def test_any_history_becomes_one_the_provider_takes(name: str, lines: list[Line]) -> None:
    """Whatever the parts, and in UTF-8."""
    made = to_format(lines, name)
    CHECKS[name](made)
    json.dumps(made, ensure_ascii=False).encode()


STORY = [
    Line("system", [{"type": "text", "text": "You keep an inn."}]),
    Line("assistant", [{"type": "text", "text": "Welcome."}], "Host"),
    Line("user", [{"type": "text", "text": "A room?"}]),
    Line(
        "assistant",
        [
            {"type": "thinking", "text": "look it up", "signature": "s1"},
            {"type": "text", "text": "Let me see."},
            {"type": "tool_call", "id": "c1", "name": "rooms", "args": {"free": True}},
            {"type": "tool_call", "id": "c2", "name": "price", "args": {}},
        ],
    ),
    Line("user", [{"type": "text", "text": "(out of character)"}], hidden=True),
    Line("tool", [{"type": "tool_result", "call_id": "c1", "content": {"room": 7}, "is_error": False}]),
    Line("assistant", [{"type": "text", "text": "Room 7. "}]),
    Line("tool", [{"type": "tool_result", "call_id": "nobody", "content": "?", "is_error": False}]),
]
LOST = "The call was interrupted: it has no result."


def test_openai_as_it_is_sent() -> None:
    """Calls on the message, a message for each result, the interrupted one too."""
    assert to_format(STORY, "openai") == [
        {"role": "system", "content": "You keep an inn."},
        {"role": "assistant", "content": "Welcome.", "name": "Host"},
        {"role": "user", "content": "A room?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "rooms", "arguments": '{"free": true}'}},
                {"id": "c2", "type": "function", "function": {"name": "price", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"room": 7}'},
        {"role": "tool", "tool_call_id": "c2", "content": LOST},
        {"role": "assistant", "content": "Room 7. "},
    ]


def test_anthropic_as_it_is_sent() -> None:
    """The system apart, signed thinking kept, results in the user's next message."""
    assert to_format(STORY, "anthropic") == {
        "system": "You keep an inn.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "(The conversation begins.)"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Welcome."}]},
            {"role": "user", "content": [{"type": "text", "text": "A room?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "look it up", "signature": "s1"},
                    {"type": "text", "text": "Let me see."},
                    {"type": "tool_use", "id": "c1", "name": "rooms", "input": {"free": True}},
                    {"type": "tool_use", "id": "c2", "name": "price", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": '{"room": 7}'},
                    {"type": "tool_result", "tool_use_id": "c2", "content": LOST, "is_error": True},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "Room 7."}]},
        ],
    }


def test_gemini_as_it_is_sent() -> None:
    """Responses are objects, an error says so."""
    assert to_format(STORY, "gemini") == {
        "contents": [
            {"role": "user", "parts": [{"text": "(The conversation begins.)"}]},
            {"role": "model", "parts": [{"text": "Welcome."}]},
            {"role": "user", "parts": [{"text": "A room?"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "Let me see."},
                    {"function_call": {"name": "rooms", "args": {"free": True}}},
                    {"function_call": {"name": "price", "args": {}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"function_response": {"name": "rooms", "response": {"room": 7}}},
                    {"function_response": {"name": "price", "response": {"error": LOST}}},
                ],
            },
            {"role": "model", "parts": [{"text": "Room 7. "}]},
        ],
        "system_instruction": {"parts": [{"text": "You keep an inn."}]},
    }


def test_an_unknown_format_names_the_known_ones() -> None:
    """Before anything is read."""
    with pytest.raises(Invalid, match="openai, anthropic, gemini"):
        check_format("yaml")
