"""A turn's door: replies that stream in, turns that are stopped, calls of tools and their results."""

from __future__ import annotations

import asyncio

import pytest

import turnkeeper
from turnkeeper.history.calls import INTERRUPTED
from turnkeeper.records import DELTAS, VERSIONS
from turnkeeper.turns.play import Turn


async def rows(store: turnkeeper.Store, session: turnkeeper.Session, table: object) -> int:
    """Count a session's rows of a table."""
    return await store.look(lambda view: view.count(table, session.session_id))


async def shown(session: turnkeeper.Session) -> list[tuple[str, str]]:
    """Answer who says what."""
    return [(m.role, m.text or m.parts[0]["type"]) for m in await session.messages()]


async def test_a_streamed_reply_lands_as_one_text(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    async with session.turn("Once?") as turn:
        for chunk in ("Once ", "", "upon", " a time."):
            turn.stream(chunk)
        turn.vars["told"] = 1
    assert await shown(session) == [("user", "Once?"), ("assistant", "Once upon a time.")]
    assert (await session.state())["vars"] == {"told": 1}


async def test_the_whole_reply_stands_instead_of_its_pieces(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    async with session.turn("Once?") as turn:
        turn.stream("Onc")
        turn.reply("Once.")
    assert await shown(session) == [("user", "Once?"), ("assistant", "Once.")]


async def test_text_before_a_call_stays_before_it(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    async with session.turn("Roll.") as turn:
        turn.stream("I roll.")
        number = turn.call("dice", {"sides": 6})
        turn.result(number, 4)
        turn.stream("Four.")
    assert await shown(session) == [
        ("user", "Roll."), ("assistant", "I roll."), ("assistant", "tool_call"), ("tool", "tool_result"), ("assistant", "Four."),
    ]  # fmt: skip


@pytest.mark.claim("S-402")
async def test_a_stop_keeps_the_text_and_no_state(store: turnkeeper.Store) -> None:
    """Half a sentence is there, with no delta and no event of the turn's own."""
    session = await store.create_session()
    async with session.turn("Go on.") as turn:
        turn.vars["lamp"] = "lit"
        turn.reply("Lit.")
    deltas = await rows(store, session, DELTAS)

    async def play(turn: Turn) -> None:
        turn.vars["lamp"] = "out"
        turn.vars.add("steps", 3)
        turn.emit("moved", {})
        turn.stream("You take the first st")
        turn.stop()
        turn.stream("ep.")
        raise AssertionError("the play ended at its next chunk")

    landed = await session.take_turn(play, "Down the stairs.", key="down")
    assert landed is not None and await session.take_turn(play, "Down the stairs.", key="down") == landed
    assert (await shown(session))[2:] == [("user", "Down the stairs."), ("assistant", "You take the first st")]
    assert (await session.state())["vars"] == {"lamp": "lit"}
    assert await rows(store, session, DELTAS) == deltas
    assert await session.pending() == []


@pytest.mark.claim("S-402", "S-181")
async def test_a_stop_before_any_text_keeps_the_input_only(store: turnkeeper.Store) -> None:
    """No version; the input waits for a retry."""
    session = await store.create_session()

    async def play(turn: Turn) -> None:
        turn.vars["lamp"] = "out"
        turn.stop()

    assert await session.take_turn(play, "Wait.", key="w") is None
    assert (await session.messages(), (await session.state())["vars"]) == ([], {})
    assert await rows(store, session, VERSIONS) == 0
    (left,) = await session.pending()
    assert (left.state, left.detail["code"], left.input) == ("failed", "stopped", [{"type": "text", "text": "Wait."}])
    async with session.turn("Wait.", key="w") as turn:
        turn.reply("Fine.")
    assert await session.pending() == []


async def test_a_stop_from_another_task_ends_one_that_waits(store: turnkeeper.Store) -> None:
    """It sets the mark and cancels; what was said lands before the cancellation goes on."""
    session = await store.create_session()
    running: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()

    async def play(turn: Turn) -> None:
        turn.stream("Half")
        running.set_result(turn)
        await asyncio.Event().wait()

    task = asyncio.create_task(session.take_turn(play, "x"))
    (await running).stop()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await shown(session) == [("user", "x"), ("assistant", "Half")]


async def test_a_cancelled_turn_that_nobody_stopped_keeps_nothing(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    running = asyncio.Event()

    async def play(turn: Turn) -> None:
        turn.stream("Half")
        running.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(session.take_turn(play, "x"))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await session.messages() == []
    assert [left.detail["code"] for left in await session.pending()] == ["cancelled"]


async def test_an_error_after_a_stop_is_a_failure(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    with pytest.raises(ZeroDivisionError):
        async with session.turn("x") as turn:
            turn.stream("Half")
            turn.stop()
            raise ZeroDivisionError
    assert await session.messages() == []


async def test_a_stopped_regenerate_is_a_version(store: turnkeeper.Store) -> None:
    """It shows the part; choosing the old one brings its state back."""
    session = await store.create_session()
    async with session.turn("Go.") as turn:
        turn.vars["n"] = 1
        turn.reply("Gone.")
    async with session.regenerate() as turn:
        turn.vars["n"] = 2
        turn.stream("Go")
        turn.stop()
    assert await shown(session) == [("user", "Go."), ("assistant", "Go")]
    assert (await session.state())["vars"] == {}
    await session.choose(0)
    assert (await session.state())["vars"] == {"n": 1}


@pytest.mark.field("F-43")
@pytest.mark.parametrize("answered", [0, 1, 2, 3])
async def test_calls_without_a_result_are_closed_when_the_turn_is_stopped(
    store: turnkeeper.Store, answered: int
) -> None:
    """Every result there was stays, the other calls are closed, and the history takes a new input."""
    session = await store.create_session()
    async with session.turn("Look.") as turn:
        calls = [turn.call("look", {"at": i}) for i in range(3)]
        for call_id in calls[:answered]:
            turn.result(call_id, "seen")
        turn.stop()
    results = [p for m in await session.messages() for p in m.parts if p["type"] == "tool_result"]
    assert {p["call_id"]: (p["content"], p["is_error"]) for p in results} == {
        call_id: ("seen", False) if i < answered else (INTERRUPTED, True) for i, call_id in enumerate(calls)
    }
    async with session.turn("And now?") as turn:
        prompt = await turn.messages(format="openai")
        assert [m["tool_call_id"] for m in prompt if m["role"] == "tool"] == calls
        turn.reply("Nothing.")
    again = [p for m in await session.messages() for p in m.parts if p["type"] == "tool_result"]
    assert len(again) == 3


@pytest.mark.field("F-43", "F-52")
@pytest.mark.parametrize("answered", [0, 1, 2])
async def test_calls_of_a_cancelled_turn_leave_nothing_and_a_new_input_is_taken(
    store: turnkeeper.Store, answered: int
) -> None:
    """However many had their result: the state is that before the turn, and the next prompt is valid."""
    session = await store.create_session()
    running = asyncio.Event()

    async def play(turn: Turn) -> None:
        calls = [turn.call("look", {"at": i}) for i in range(2)]
        for call_id in calls[:answered]:
            turn.result(call_id, "seen")
        running.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(session.take_turn(play, "Look."))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await session.messages() == []
    async with session.turn("And now?") as turn:
        assert await turn.messages(format="openai") == [{"role": "user", "content": "And now?"}]
        turn.reply("Nothing.")
    assert await shown(session) == [("user", "And now?"), ("assistant", "Nothing.")]


async def test_a_given_id_and_a_made_one_do_not_meet(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    async with session.turn("Look.") as turn:
        assert turn.call("look", {}, call_id="call_1") == "call_1"
        assert turn.call("look", {}) == "call_2"
        turn.say("assistant", [{"type": "tool_call", "id": "twin", "name": "look", "args": {}}] * 2)
    results = [p["call_id"] for m in await session.messages() for p in m.parts if p["type"] == "tool_result"]
    assert results == ["call_1", "call_2", "twin", "twin"]


async def test_calls_of_a_turn_that_just_ends_are_closed_too(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    async with session.turn("Look.") as turn:
        turn.say("assistant", [{"type": "tool_call", "id": "a", "name": "look", "args": {}}])
        turn.reply("I could not.")
    assert [m.role for m in await session.messages()] == ["user", "assistant", "tool", "assistant"]


async def test_a_version_of_one_message_closes_its_calls_inside(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    async with session.turn("Look.") as turn:
        turn.reply("I see.")
    await session.append("user", "Well.")
    async with session.regenerate(at=1) as turn:
        turn.call("look", {}, call_id="a")
    message = (await session.messages())[1]
    assert [part["type"] for part in message.parts] == ["tool_call", "tool_result"]


async def test_a_result_needs_its_call(store: turnkeeper.Store) -> None:
    """One each; an id is free again once it was answered."""
    session = await store.create_session()
    async with session.turn("Look.") as turn:
        with pytest.raises(turnkeeper.Invalid, match="waits"):
            turn.result("nobody", 1)
        turn.call("look", {}, call_id="a")
        with pytest.raises(turnkeeper.Invalid, match="waits"):
            turn.call("look", {}, call_id="a")
        turn.result("a", 1)
        with pytest.raises(turnkeeper.Invalid, match="waits"):
            turn.result("a", 2)
        with pytest.raises(turnkeeper.Invalid, match="chunk"):
            turn.stream(b"bytes")
        turn.reply("Done.")
    assert [m.role for m in await session.messages()] == ["user", "assistant", "tool", "assistant"]
