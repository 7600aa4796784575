"""What goes wrong for people with other software, and the right outcome here, on every backend.

The faults of processes, disks and connections are in `tests/faults`; here are those that one process can show.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import time
from decimal import Decimal
from typing import Any

import pytest

import turnkeeper
from turnkeeper.clock import ManualClock


async def play_once(session: turnkeeper.Session, said: str, answer: str = "So be it.", **changes: Any) -> None:
    """Play one turn."""
    async with session.turn(said) as turn:
        turn.vars.update(changes)
        turn.reply(answer)


def texts(messages: list[Any]) -> list[str]:
    """Answer the texts of messages."""
    return [message.text for message in messages]


@pytest.mark.field("F-9")
async def test_a_value_is_kept_as_it_was_at_the_call(store):
    session = await store.create_session()
    value = {"rooms": [{"name": "x" * 1000, "n": i} for i in range(5000)]}
    as_it_was = json.dumps(value)
    putting = asyncio.ensure_future(store.records.put(session.session_id, "big", "k", value))
    value["rooms"].clear()
    await putting
    assert json.dumps((await store.records.get(session.session_id, "big", "k")).body) == as_it_was

    parts = [{"type": "other", "payload": {"deep": [1, 2, 3]}}]
    appending = asyncio.ensure_future(session.append("assistant", parts))
    parts[0]["payload"]["deep"].append(4)
    await appending
    assert (await session.messages())[-1].parts[0]["payload"] == {"deep": [1, 2, 3]}

    async with session.turn("hello") as turn:
        bag = ["lamp"]
        turn.vars["bag"] = bag
        turn.reply(parts)
        bag.append("rope")
        parts.clear()
    assert (await session.state())["vars"] == {"bag": ["lamp"]}
    assert (await session.messages())[-1].parts[0]["type"] == "other"


@pytest.mark.field("F-12")
async def test_two_handles_of_one_session_both_append_at_its_end(store):
    made = await store.create_session()
    first, second = await store.session(made.session_id), await store.session(made.session_id)
    assert await first.append("user", "one") == 0
    assert await second.append("user", "two") == 1
    assert await first.append("user", "three") == 2
    assert texts(await made.messages()) == ["one", "two", "three"]


@pytest.mark.field("F-13")
async def test_five_hundred_events_at_one_time_meet_no_conflict(url):
    async with turnkeeper.open(url, clock=ManualClock()) as store:
        session = await store.create_session()
        for i in range(500):
            await store.lifecycle.append_event(session.session_id, "tick", {"i": i})
        events = await store.lifecycle.events(session.session_id)
        assert [e.body["i"] for e in events if e.type == "tick"] == list(range(500))
        assert [e.event_no for e in events] == list(range(501))


@pytest.mark.field("F-20")
async def test_a_client_that_loaded_an_older_head_never_loses_the_others_message(store):
    session = await store.create_session()
    await play_once(session, "begin")
    a, b = await store.session(session.session_id), await store.session(session.session_id)
    await asyncio.gather(play_once(a, "11", "from A"), play_once(b, "11'", "from B"))
    said = texts(await session.messages())
    assert len(said) == 6
    assert {"from A", "from B"} <= set(said)


@pytest.mark.field("F-22")
async def test_a_claim_of_one_session_is_refused_on_another(store):
    a, b = await store.create_session(), await store.create_session()
    claim = await a.claim()
    await play_once(b, "hello", "there")
    async with b.turn("who?") as turn:
        turn.reply("me")
        outcome = turn.outcome()
    before = texts(await a.messages()), texts(await b.messages())
    with pytest.raises(turnkeeper.WrongSession, match="unchanged"):
        await store.turns.commit_turn(b.session_id, outcome, claim)
    assert (texts(await a.messages()), texts(await b.messages())) == before


@pytest.mark.field("F-34")
async def test_a_retry_after_a_failed_model_call_keeps_the_input_once(store):
    session = await store.create_session()
    with pytest.raises(ConnectionError):
        async with session.turn("What is behind the door?"):
            raise ConnectionError("the model is away")
    (failed,) = await session.pending()
    assert (failed.state, failed.input[0]["text"]) == ("failed", "What is behind the door?")
    await play_once(session, "What is behind the door?", "A stair.")
    assert texts(await session.messages()) == ["What is behind the door?", "A stair."]
    assert await session.pending() == []


@pytest.mark.field("F-70")
async def test_items_of_one_time_always_come_back_in_one_order(url):
    async with turnkeeper.open(url, clock=ManualClock()) as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            for i in range(100):
                turn.say("assistant", str(i))
        expected = ["go", *map(str, range(100))]
        for _ in range(1000):
            assert texts(await session.messages()) == expected


@pytest.mark.field("F-72")
async def test_the_last_messages_come_in_true_order_after_deletes(store):
    session, other = await store.create_session(), await store.create_session()
    for i in range(60):
        await session.append("user", f"{i}")
        await other.append("user", f"other {i}")
    await other.delete()
    for i in range(60, 80):
        await session.append("user", f"{i}")
    assert texts(await session.messages(last=10)) == [str(i) for i in range(70, 80)]
    assert texts(await session.messages(last=10, before=65)) == [str(i) for i in range(55, 65)]


@pytest.mark.field("F-74")
async def test_times_are_utc_whatever_zone_the_process_is_in(url, monkeypatch):
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    try:
        async with turnkeeper.open(url) as store:
            session = await store.create_session()
            await play_once(session, "what time is it?")
            info = await session.info()
            for at in (info.created_at, info.last_activity_at, (await session.messages())[0].created_at):
                assert abs(at / 1e6 - time.time()) < 5
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.field("F-75")
async def test_a_fork_has_its_sources_shape_when_all_times_are_equal(url):
    async with turnkeeper.open(url, clock=ManualClock()) as store:
        session = await store.create_session()
        for i in range(100):
            await play_once(session, f"input {i}", f"reply {i}")
        for i in (1, 51, 199):
            async with session.regenerate(at=i) as turn:
                turn.reply(f"another {i}")
        take = await session.fork()
        strip = [(m.position, m.role, m.text, m.version, m.index, m.versions) for m in await session.messages()]
        assert [(m.position, m.role, m.text, m.version, m.index, m.versions) for m in await take.messages()] == strip
        assert len(strip) == 200


@pytest.mark.field("F-116")
async def test_a_long_session_with_one_huge_message_is_kept(store):
    session = await store.create_session()
    async with store.transaction() as tx:
        from turnkeeper.history.content import message

        await tx.history.append_messages(session.session_id, [message("user", f"line {i}") for i in range(5000)])
    huge = "x" * 10_000_000
    await session.append("assistant", huge)
    (last,) = await session.messages(last=1)
    assert (last.position, last.text == huge) == (5000, True)
    asked = False
    with pytest.raises(turnkeeper.TooLarge) as refused:
        async with session.turn("y" * 17_000_000):
            asked = True  # the model would be called here
    assert (refused.value.code, asked) == ("too-large", False)


ODD = {"real": "a\u0000b", "escaped": "a\\u0000b", "both": "\u0000\\u0000"}


@pytest.mark.field("F-118")
async def test_nul_is_kept_everywhere_a_person_may_write(store):
    nul = "a\u0000b"
    session = await store.create_session(title=nul, labels={nul: nul}, metadata={nul: [nul]})
    async with session.turn(nul) as turn:
        turn.vars[nul] = {nul: nul}
        turn.reply(nul, name=nul, extra={nul: nul})
    info = await session.info()
    assert (info.title, info.labels, info.metadata) == (nul, {nul: nul}, {nul: [nul]})
    said, answered = await session.messages()
    assert (said.text, answered.text, answered.name, answered.extra) == (nul, nul, nul, {nul: nul})
    assert (await session.state())["vars"] == {nul: {nul: nul}}
    with pytest.raises(turnkeeper.Invalid, match=r"session_id"):
        await store.create_session(nul)


@pytest.mark.field("F-120")
async def test_a_real_nul_and_its_escape_are_three_different_texts(store):
    session = await store.create_session()
    async with session.turn("go") as turn:
        for name, text in ODD.items():
            turn.vars[name] = text
            turn.say("assistant", text)
    assert (await session.state())["vars"] == ODD
    assert texts(await session.messages())[1:] == list(ODD.values())


@pytest.mark.field("F-122")
async def test_undecodable_output_is_kept_once_and_harms_no_later_turn(store):
    output = b"ok \x97 done".decode("utf-8", "surrogateescape")
    split = "\ud83d\ude00"
    session = await store.create_session()
    async with session.turn("run it") as turn:
        turn.call("shell", {"cmd": "cat"}, call_id="c1")
        turn.result("c1", output)
        turn.vars["split"] = split
        turn.reply(output)
    for i in range(3):
        await play_once(session, f"next {i}", n=i)
    assert (await session.messages())[3].text == output
    assert (await session.messages())[2].parts[0]["content"] == output
    kept = (await session.state())["vars"]["split"]
    assert (len(kept), kept == split) == (2, True)


@pytest.mark.field("F-124")
@pytest.mark.parametrize(
    "bad", [math.nan, math.inf, -math.inf, 2**63, -(2**63) - 1, Decimal("1.5"), {1, 2}, b"x", {1: 2}]
)
async def test_what_json_cannot_keep_is_refused_with_its_path(store, bad):
    session = await store.create_session()
    with pytest.raises(turnkeeper.Invalid, match=r"vars\.x\.deep\[1\]"):
        async with session.turn("go") as turn:
            turn.vars["x"] = {"deep": [0, bad]}
    with pytest.raises(turnkeeper.Invalid, match=r"body\.deep\[1\]"):
        await store.records.put(session.session_id, "n", "k", {"deep": [0, bad]})
    assert (await session.state())["vars"] == {}
    assert await store.records.get(session.session_id, "n", "k") is None


@pytest.mark.field("F-124")
async def test_the_numbers_json_can_keep_come_back_bit_for_bit(store):
    session = await store.create_session()
    kept = {
        "a": -0.0,
        "b": 2**63 - 1,
        "c": -(2**63),
        "d": 5e-324,
        "e": 1.7976931348623157e308,
        "f": 1.0,
        "g": 2**53 + 1,
    }
    await play_once(session, "go", **kept)
    back = (await session.state())["vars"]
    assert back == kept
    assert math.copysign(1, back["a"]) == -1
    assert [type(v) for v in back.values()] == [type(v) for v in kept.values()]


@pytest.mark.field("F-126")
async def test_an_object_that_is_no_json_is_named_by_its_path(store):
    session = await store.create_session()
    with socket.socket() as thing:
        with pytest.raises(turnkeeper.Invalid, match=r"vars\.a\.b\[3\]\.c") as refused:
            async with session.turn("go") as turn:
                turn.vars["a"] = {"b": [0, 1, 2, {"c": thing}]}
    assert "socket" in str(refused.value)
    assert await session.messages() == []


@pytest.mark.field("F-128")
async def test_nothing_brings_a_deleted_session_back(store):
    session = await store.create_session()
    await play_once(session, "hello", n=1)
    take = await session.fork()
    async with session.turn("kept") as turn:
        turn.reply("yes")
        outcome = turn.outcome()
    claim = await session.claim()
    await session.delete()
    late = [
        lambda: session.append("user", "late"),
        lambda: play_once(session, "late", x=1),
        lambda: play_once(take, "late"),
        lambda: session.choose(0),
        lambda: session.fork(),
        lambda: session.rename("late"),
        lambda: session.messages(),
        lambda: session.state(),
        lambda: session.info(),
        lambda: session.pending(),
        lambda: session.delete(),
        lambda: store.turns.commit_turn(session.session_id, outcome, claim),
        lambda: store.records.put(session.session_id, "n", "k", 1),
        lambda: store.lifecycle.append_event(session.session_id, "late", {}),
        lambda: store.history.set_branch_base(session.session_id, {"vars": {"x": 1}}),
        lambda: store.session(session.session_id),
    ]
    for attempt in late:
        with pytest.raises(turnkeeper.Gone):
            await attempt()
    assert await store.sessions() == []

    again = await store.create_session(session.session_id)
    for attempt in (*late[:11], late[11]):  # an old handle, and an old claim, mean the old life
        with pytest.raises(turnkeeper.Gone):
            await attempt()
    assert await again.messages() == []


@pytest.mark.field("F-130")
async def test_a_new_life_under_an_old_id_starts_empty_and_its_log_goes_on(store):
    first = await store.create_session("cellar", title="old")
    await play_once(first, "hello", n=1)
    await store.records.put("cellar", "notes", "k", "old")
    before = await store.lifecycle.events("cellar")
    await first.delete()
    with pytest.raises(turnkeeper.Gone):
        await store.lifecycle.events("cellar")
    second = await store.create_session("cellar")
    assert second.instance_id != first.instance_id
    assert await second.messages() == []
    assert (await second.state())["vars"] == {}
    assert await store.records.list("cellar", "notes") == []
    after = await store.lifecycle.events("cellar")
    assert [e.type for e in after] == ["session.created"]
    assert after[0].event_no == before[-1].event_no + 1
