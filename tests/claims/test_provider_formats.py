"""A stored history in a provider's format: from a session, from a take, and as a turn's prompt."""

from __future__ import annotations

import pytest

import turnkeeper


async def test_a_history_with_calls_is_sent_whole(store: turnkeeper.Store) -> None:
    """The same messages in each format, cut ones left out."""
    session = await store.create_session()
    async with session.turn("A room?") as turn:
        turn.say("assistant", [{"type": "tool_call", "id": "c 1", "name": "rooms", "args": {"free": True}}])
        turn.say("tool", [{"type": "tool_result", "call_id": "c 1", "content": [7]}])
        turn.reply("Room 7.")
    await session.append("assistant", "(a slip)")
    await session.cut(4)
    sent = await session.messages(format="openai")
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "assistant"]
    assert sent[2] == {"role": "tool", "tool_call_id": sent[1]["tool_calls"][0]["id"], "content": "[7]"}
    anthropic = await session.messages(format="anthropic")
    assert [m["role"] for m in anthropic["messages"]] == ["user", "assistant", "user", "assistant"]
    gemini = await session.messages(format="gemini")
    assert gemini["contents"][2]["parts"][0]["function_response"] == {"name": "rooms", "response": {"result": [7]}}


async def test_a_page_that_begins_with_a_result_is_valid(store: turnkeeper.Store) -> None:
    """The call is not on the page, so neither is its result."""
    session = await store.create_session()
    async with session.turn("A room?") as turn:
        turn.say("assistant", [{"type": "tool_call", "id": "c", "name": "rooms", "args": {}}])
        turn.say("tool", [{"type": "tool_result", "call_id": "c", "content": "7"}])
        turn.reply("Room 7.")
    assert await session.messages(last=2, format="openai") == [{"role": "assistant", "content": "Room 7."}]


async def test_a_turns_prompt_ends_with_its_input(store: turnkeeper.Store) -> None:
    """A regenerate's prompt ends before the reply; on another take it is that take's line."""
    session = await store.create_session()
    async with session.turn("one") as turn:
        assert await turn.messages(format="openai") == [{"role": "user", "content": "one"}]
        turn.reply("first")
    async with session.regenerate() as turn:
        assert await turn.messages(format="openai") == [{"role": "user", "content": "one"}]
        turn.reply("second")
    other = await session.fork(at=0)
    assert await other.messages(format="openai") == [{"role": "user", "content": "one"}]


async def test_an_unknown_format_is_refused(store: turnkeeper.Store) -> None:
    """Also of an empty session."""
    session = await store.create_session()
    with pytest.raises(turnkeeper.Invalid, match="openai"):
        await session.messages(format="yaml")
    with pytest.raises(turnkeeper.Invalid, match="openai"):
        async with session.turn("x") as turn:
            await turn.messages(format="yaml")
