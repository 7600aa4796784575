"""What would surprise somebody who uses sessions from several tasks, handles and stores, or gives a wrong argument."""

from __future__ import annotations

import asyncio

import pytest

import turnkeeper
from turnkeeper.turns.play import Turn


async def reply(turn: Turn) -> None:
    """Answer."""
    turn.reply("So be it.")


async def test_a_cancelled_read_leaves_no_old_state_behind(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    async with session.turn("go") as turn:
        for i in range(2500):
            turn.say("assistant", str(i))
    task = asyncio.ensure_future(session.messages())
    for _ in range(4):
        await asyncio.sleep(0)
    task.cancel()
    try:
        await task  # a store in memory has answered before the cancellation came
    except asyncio.CancelledError:
        await session.append("user", "NEW")  # here, where the exception still holds the frames of the read
    else:
        await session.append("user", "NEW")
    assert [m.text for m in await session.messages(last=1)] == ["NEW"]
    await session.take_turn(reply, "on")


async def test_a_play_that_meets_another_turns_answer_is_not_answered_by_it(store: turnkeeper.Store) -> None:
    one, other = await store.create_session(), await store.create_session()
    await other.take_turn(reply, "x", key="k")

    async def play(turn: Turn) -> None:
        turn.reply("first")
        async with other.turn("x", key="k"):
            raise AssertionError("it has landed")

    with pytest.raises(turnkeeper.AlreadyLanded):
        await one.take_turn(play, "go", key="mine")
    assert await one.messages() == []


async def test_stores_over_one_database_close_one_by_one(url: str) -> None:
    a, b = await turnkeeper.open(url), await turnkeeper.open(url)
    session = await a.create_session()
    await session.claim()
    await asyncio.gather(a.close(), a.close())
    assert [info.session_id for info in await b.sessions()] == [session.session_id]
    c, _ = await asyncio.gather(turnkeeper.open(url), b.close())
    assert await c.sessions() is not None
    await c.close()


async def test_a_claim_that_was_lost_is_noticed_by_the_next_claim(url: str) -> None:
    async with turnkeeper.open(url) as a, turnkeeper.open(url) as b:
        session = await a.create_session()
        first = await asyncio.create_task(session.claim())
        theirs = await asyncio.create_task((await b.session(session.session_id)).claim(take_over=True))
        with pytest.raises(turnkeeper.SessionBusy):
            await asyncio.create_task(session.claim())
        mine = await asyncio.create_task(session.claim(take_over=True))
        assert (first.epoch, theirs.epoch, mine.epoch) == (1, 2, 3)


async def test_leaving_a_session_waits_for_the_turn_that_runs(store: turnkeeper.Store) -> None:
    session, begun, go_on = await store.create_session(), asyncio.Event(), asyncio.Event()

    async def slow(turn: Turn) -> None:
        begun.set()
        await go_on.wait()
        turn.reply("paid for")

    running = asyncio.create_task(session.take_turn(slow, "go"))
    await begun.wait()

    async def visit() -> None:
        async with await store.session(session.session_id) as visited:
            await visited.append("system", "a note")

    await asyncio.create_task(visit())
    go_on.set()
    await running
    assert "paid for" in [m.text for m in await session.messages()]
    assert (await session.info()).status == "completed"
    assert await session.pending() == []


async def test_a_store_that_closes_in_a_turn_leaves_it_interrupted(url: str) -> None:
    async with turnkeeper.open(url) as keeper:
        store = await turnkeeper.open(url)
        session = await store.create_session()
        block = session.turn("go")
        await block.__aenter__()
        await store.close()
        (pending,) = await (await keeper.session(session.session_id)).pending()
        assert (pending.state, pending.input[0]["text"]) == ("interrupted", "go")


async def test_a_turn_within_a_turn_is_refused_and_does_not_hang(store: turnkeeper.Store) -> None:
    session = await store.create_session()

    async def play(turn: Turn) -> None:
        with pytest.raises(turnkeeper.Misuse):
            await asyncio.gather(session.take_turn(reply, "inner"))
        turn.reply("outer")

    await asyncio.wait_for(session.take_turn(play, "go"), 20)
    assert [m.text for m in await session.messages()] == ["go", "outer"]


async def test_a_landed_key_is_answered_whoever_owns_the_session(url: str) -> None:
    async with turnkeeper.open(url) as a, turnkeeper.open(url) as b:
        session = await a.create_session()
        landed = await session.take_turn(reply, "x", key="k")
        await asyncio.create_task((await b.session(session.session_id)).claim(take_over=True))
        assert await asyncio.create_task(session.take_turn(reply, "x", key="k")) == landed


async def test_a_retry_without_saved_input_clears_the_failed_one(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    with pytest.raises(ZeroDivisionError):
        async with session.turn("go", key="k"):
            raise ZeroDivisionError
    await session.take_turn(reply, "go", key="k", durable_input=False)
    assert await session.pending() == []


async def test_a_regenerate_is_for_the_last_reply_whatever_stands_around_it(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    for i in range(2):
        await session.take_turn(reply, f"in {i}")
    await session.append("system", "a note")
    async with session.regenerate() as turn:
        turn.reply("better")
    assert [m.text for m in await session.messages()] == ["in 0", "So be it.", "in 1", "better", "a note"]
    await session.cut(2, 3, 4)
    async with session.regenerate() as turn:
        turn.reply("first, better")
    assert [(m.text, m.versions) for m in await session.messages()] == [("in 0", 1), ("first, better", 2)]
    assert len(await session.takes()) == 1
    with pytest.raises(turnkeeper.Invalid):
        async with session.regenerate(at=0):
            raise AssertionError("a user's message is no reply")


async def test_a_savepoint_that_was_rolled_back_is_never_remembered(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    async with session.turn("go") as turn:
        turn.vars["gold"] = 1
        turn.reply("one")
    from turnkeeper.history.slots.deltas import NewDelta
    from turnkeeper.turns.pending import Request

    async with store.transaction() as tx:
        with pytest.raises(ZeroDivisionError):
            async with tx.savepoint():
                await tx.history.record_message_deltas(session.session_id, 1, [NewDelta("vars", ["gold"], 99)])
                await tx.turns.prepare(session.session_id, Request("reply", None, None, b""))
                raise ZeroDivisionError
        await tx.records.put(session.session_id, "n", "k", 1)
    async with session.turn("on", durable_input=False) as turn:
        turn.vars.add("gold", 1)
        turn.reply("two")
    assert (await session.state())["vars"] == {"gold": 2}


async def test_what_comes_after_the_end_of_a_turn_is_refused(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    async with session.turn("go") as turn:
        turn.reply("one")
        with pytest.raises(TypeError):
            turn.state["tracker.stats"] = {"hp": 5}  # type: ignore[index]
        with pytest.raises(AttributeError):
            turn.vars = {}  # type: ignore[assignment, misc]
    for late in (lambda: turn.reply("late"), lambda: turn.emit("late", {}), lambda: turn.vars.update(late=1)):
        with pytest.raises(turnkeeper.Misuse):
            late()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda turn: turn.emit(5, {}),
        lambda turn: turn.emit("big", "x" * 3_000_000),
        lambda turn: turn.reply("a", created_at="yesterday"),
        lambda turn: turn.reply("a", name=5),
        lambda turn: turn.reply("a", hidden="no"),
        lambda turn: turn.reply("a", foo=1),
        lambda turn: turn.say("secret thing", "user"),
        lambda turn: (turn.vars.add("n", 2**62), turn.vars.add("n", 2**62)),
    ],
)
async def test_a_wrong_argument_is_refused_where_it_is_given(store: turnkeeper.Store, wrong: object) -> None:
    session = await store.create_session()
    async with session.turn("go") as turn:
        with pytest.raises(turnkeeper.Invalid) as refused:
            wrong(turn)  # type: ignore[operator]
        assert "secret" not in str(refused.value)
        turn.reply("right")
    assert len(await session.messages()) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        lambda s, store: s.turn("x", key=" ").__aenter__(),
        lambda s, store: s.messages(last=2**63),
        lambda s, store: s.messages(before="x"),
        lambda s, store: s.state(at="x"),
        lambda s, store: s.versions(None),
        lambda s, store: store.create_session(labels=["a"]),
        lambda s, store: store.create_session(labels={"a": 1}),
        lambda s, store: store.create_session(metadata=5),
        lambda s, store: store.sessions(after="x"),
        lambda s, store: store.lifecycle.events(s.session_id, limit=5000),
        lambda s, store: store.records.put(s.session_id, "n", "k", object()),
        lambda s, store: anext(store.watch(poll_s=0)),
    ],
)
async def test_a_wrong_argument_of_a_call_is_invalid(store: turnkeeper.Store, wrong: object) -> None:
    session = await store.create_session()
    with pytest.raises(turnkeeper.Invalid):
        await wrong(session, store)  # type: ignore[operator]


@pytest.mark.parametrize(
    "options",
    [{"durability": "FULL"}, {"migrate": "never"}, {"connections": 0}, {"lease_s": float("inf")}, {"lease_s": 0}],
)
def test_a_misspelt_option_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(turnkeeper.Invalid):
        turnkeeper.open("memory:", **options)  # type: ignore[arg-type]
    with pytest.raises(turnkeeper.Invalid):
        turnkeeper.open(":memory:")


@pytest.mark.parametrize("backend", ["sqlite"])
async def test_a_damaged_cache_is_built_anew(url: str) -> None:
    import apsw

    async with turnkeeper.open(url) as store:
        session = await store.create_session()
        for i in range(60):
            async with session.turn(f"in {i}") as turn:
                turn.vars.add("n", 1)
                turn.vars[f"k{i}"] = i
                turn.reply(f"out {i}")
        whole = await session.state()
    spoil = apsw.Connection(url)
    for table in ("tips", "keyframes"):
        spoil.execute(f"UPDATE {table} SET state = '{{bad'")
    spoil.close()
    async with turnkeeper.open(url) as store:
        session = await store.session(session.session_id)
        assert await session.state() == whole
        assert (await session.state(at=99))["vars"]["n"] == 50
        await session.take_turn(reply, "on")
        assert await session.state() == whole
        fork = await session.fork(at=99)
        assert (await fork.state())["vars"]["n"] == 50
        await session.cut(1)
        assert "k0" not in (await session.state())["vars"]


async def test_undoing_a_restore_as_a_take_takes_that_take_back(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    for i in range(3):
        await session.take_turn(reply, f"in {i}")
    await session.cut(2)
    number = await store.history.restore_cut(session.session_id, [2], as_take=True)
    assert [m.text for m in await session.messages()] == ["in 0", "So be it.", "in 1"]
    await session.undo()
    assert [take.take for take in await session.takes()] == [0]
    assert len(await session.messages()) == 5
    await session.redo()
    assert [take.take for take in await session.takes()] == [0, number]
    assert [m.text for m in await session.messages()] == ["in 0", "So be it.", "in 1"]
