"""A turn that lands on a take which moved while it ran (decision 49): edits are built on, a target that moved refuses."""

from __future__ import annotations

import pytest

import turnkeeper
from tests.support.scenes import Scene
from turnkeeper.errors import Conflict, NotFound
from turnkeeper.history.slots import NewDelta
from turnkeeper.turns.play import Turn


async def play(turn: Turn) -> None:
    turn.vars["n"] = 1
    turn.reply("Begun.")


@pytest.mark.parametrize("how", ["cut", "switched"])
async def test_a_regenerate_is_refused_when_its_target_was_cut_or_switched(store: turnkeeper.Store, how: str) -> None:
    session = await store.create_session()
    made = Scene(store, session.session_id)
    await session.take_turn(play, "Begin.")
    async with session.regenerate() as turn:
        turn.reply("Or so.")
    with pytest.raises(Conflict):
        async with session.regenerate() as turn:
            turn.reply("Late.")
            await (session.cut(1) if how == "cut" else session.choose(0, 1))
            before = await made.held()
    assert (await made.held()).but("pending_turns", "sessions") == before.but("pending_turns", "sessions")
    assert [left.state for left in await session.pending()] == ["failed"]
    await made.holds()


async def test_a_turn_is_refused_when_its_take_was_deleted(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    made = Scene(store, session.session_id)
    await session.take_turn(play, "Begin.")
    take = await session.fork()
    with pytest.raises(NotFound):
        async with take.turn("Go.") as turn:
            turn.reply("Late.")
            await take.delete()
            before = await made.held()
    assert (await made.held()).but("pending_turns", "sessions") == before.but("pending_turns", "sessions")
    assert [left.state for left in await session.pending()] == ["failed"]


async def test_a_turn_lands_on_what_a_person_edited(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    made = Scene(store, session.session_id)
    await session.take_turn(play, "Begin.")
    async with session.turn("Go.") as turn:
        turn.vars["lamp"] = "lit"
        turn.vars.add("n", 1)
        turn.reply("Gone.")
        await store.history.record_message_deltas(session.session_id, 1, [NewDelta("vars", ["n"], 10)])
    assert await made.vars() == {"n": 11, "lamp": "lit"}
    await made.holds()
