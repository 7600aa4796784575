"""Claims of the area S turn: what a turn reads before it plays, and what of it stays when it does not land."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import turnkeeper
from tests.support.scenes import Scene, exact, scene, sets, stats
from turnkeeper.errors import NotAllowed
from turnkeeper.history import state
from turnkeeper.history.slots import NewDelta


async def play(session: turnkeeper.Session, said: str = "Go on.", **changes: Any) -> None:
    """Play one turn."""
    async with session.turn(said) as turn:
        turn.vars.update(changes)
        turn.reply("So be it.")


@pytest.mark.claim("S-173")
async def test_a_turn_sees_what_the_last_reply_set(store):
    session = await store.create_session()
    await play(session, lamp="lit", bag=["rope"])
    async with session.turn("And?") as turn:
        assert dict(turn.vars) == {"lamp": "lit", "bag": ["rope"]}
        turn.vars["lamp"] = "out"
        turn.reply("Dark.")
    async with session.turn("And now?") as turn:
        assert turn.vars["lamp"] == "out"
        turn.reply("Still dark.")


@pytest.mark.claim("S-174")
@pytest.mark.parametrize("last", [True, False])
async def test_a_reply_made_again_builds_on_what_was_before_it(store, last):
    session = await store.create_session()
    await play(session, n=10)
    async with session.turn("Count.") as turn:
        turn.vars.add("n", 1)
        turn.vars["seen"] = True
        turn.reply("Eleven.")
    if not last:
        await play(session, other=1)
    for _ in range(5):
        async with session.regenerate(None if last else 3) as turn:
            assert dict(turn.vars) == {"n": 10}
            turn.vars.add("n", 1)
            turn.reply("Eleven again.")
        assert (await session.state())["vars"]["n"] == 11
        assert "seen" not in (await session.state())["vars"]
    await Scene(store, session.session_id).holds()


@pytest.mark.claim("S-178")
async def test_a_version_and_its_deltas_land_together_or_not_at_all(store, url, monkeypatch):
    session = await store.create_session()
    await play(session, n=1)
    made = Scene(store, session.session_id)
    before = await made.held()

    async def broken(*given: Any) -> None:
        raise ZeroDivisionError

    for again in (False, True):
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            from turnkeeper.history import appending

            patch.setattr(state if again else appending, "write_tips", broken)
            async with session.regenerate(1) if again else session.turn("Go.") as turn:
                turn.vars["n"] = 2
                turn.reply("Done.")
        async with turnkeeper.open(url) as opened:
            found = await Scene(opened, session.session_id).held()
        assert found.but("pending_turns", "sessions") == before.but("pending_turns", "sessions")
    await play(session, n=2)
    after = await made.holds()
    (reply,) = [one for one in after.shown(0)[2:] if one.role == "assistant"]
    assert [delta.value for delta in after.layers(reply)[0]] == [2]


@pytest.mark.claim("S-179")
@pytest.mark.parametrize("backend", ["sqlite"])
async def test_a_refused_landing_leaves_no_version_no_delta_and_the_old_caches(store, url):
    made = await scene(store)
    for i in range(49):
        await made.reply(*sets(n=i))
    before = await made.held()
    with pytest.raises(NotAllowed):
        await made.reply(*sets(n=50), NewDelta("summary", ["1"], {"version": "1"}))
    async with turnkeeper.open(url) as opened:
        assert await Scene(opened, made.session_id).held() == before
    await made.reply(*sets(n=50))
    assert len((await made.holds()).frames(0)) == 1


@pytest.mark.claim("S-181")
async def test_a_turn_that_fails_or_is_cancelled_or_says_nothing_stamps_no_delta(store):
    session = await store.create_session()
    await play(session, n=1)
    made = Scene(store, session.session_id)
    before = await made.held()

    async def ending(end: str) -> None:
        async with session.turn(None if end == "says nothing" else "Go.") as turn:
            turn.vars["n"] = 2
            turn.vars["more"] = [1]
            if end == "fails":
                raise ConnectionError
            if end == "is cancelled":
                await asyncio.Event().wait()

    for end, kind in (
        ("fails", ConnectionError),
        ("is cancelled", asyncio.CancelledError),
        ("says nothing", ValueError),
    ):
        task = asyncio.ensure_future(ending(end))
        await asyncio.sleep(0.05)
        if end == "is cancelled":
            task.cancel()
        with pytest.raises(kind):
            await task
        after = await made.held()
        assert after.but("pending_turns", "sessions", "events") == before.but("pending_turns", "sessions", "events")
        assert await made.vars() == {"n": 1}
    async with session.turn("Go.") as turn:  # takes the kept input over, and none of what was written
        assert dict(turn.vars) == {"n": 1}
        turn.reply("Done.")
    assert await made.vars() == {"n": 1}


@pytest.mark.claim("S-182")
async def test_a_dropped_turn_leaves_nothing_and_the_same_one_landed_leaves_all(store):
    session = await store.create_session()
    made = Scene(store, session.session_id)
    await play(session, a=1)
    for lands in (False, True):
        before = exact(await made.state())
        try:
            async with session.turn("Go.") as turn:
                turn.vars.update(a=2, b=[1])
                turn.vars.add("n", 3)
                turn.reply("Done.")
                if not lands:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            assert exact(await made.state()) == before
    assert await made.vars() == {"a": 2, "b": [1], "n": 3}
    await made.holds()


@pytest.mark.claim("S-186")
@pytest.mark.parametrize("how", ["another version", "a cut"])
async def test_another_version_or_a_cut_takes_back_all_that_a_turn_wrote(store, how):
    made = await scene(store)
    await made.reply(*sets(a=1, n=1), *stats(hp=1))
    before = exact(await made.state())
    at = await made.reply(
        *sets(a=2, n=2, b=2), *stats(hp=2), NewDelta("tracker-list:p", ["rat"], {"name": "rat"}),
        NewDelta("skills", ["lore"], True), NewDelta("vars", ["a"], removed=True),
    )  # fmt: skip
    assert exact(await made.state()) != before
    if how == "a cut":
        await made.history.cut_messages(made.session_id, [at])
    else:
        await made.again(at)
    assert exact(await made.state()) == before
    await made.holds()


@pytest.mark.claim("S-173")
async def test_a_reply_adds_to_the_fields_that_earlier_replies_set(store):
    made = await scene(store)
    await made.reply(*sets(lamp="lit"))
    await made.reply(*sets(door="open"))
    assert await made.vars() == {"lamp": "lit", "door": "open"}
    await made.holds()
