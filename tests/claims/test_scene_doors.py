"""Claims of the area S doors: four entries, each of which says who is writing, and what a slot takes from whom."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import pytest

import turnkeeper
from tests.support.scenes import Scene, exact, gone, piece, row, scene, sets, stats
from tests.tidy.tree import SRC
from turnkeeper.errors import Invalid, NotAllowed, TurnkeeperError
from turnkeeper.history import base, later
from turnkeeper.history.slots import BUILT_IN, NewDelta, define_slot, make_registry
from turnkeeper.turns import land

DOORS = ("turn", "background", "person", "import")
NAMED = {"turn": "a turn", "background": "a background writer", "person": "a person", "import": "an import"}


async def through(made: Scene, door: str, position: int, *deltas: NewDelta) -> Any:
    """Write deltas through a door; the one of an import takes them as whole states."""
    h, s = made.history, made.session_id
    if door == "turn":
        return await made.reply(*deltas)
    if door == "background":
        return await h.record_deltas(s, position, await made.shown_version(position), list(deltas))
    if door == "person":
        return await h.record_message_deltas(s, position, list(deltas))
    states: dict[str, Any] = {}
    for delta in deltas:
        slot = BUILT_IN.slot_of(delta.slot)
        if slot is not None and slot.diff == "keyed-list":
            states.setdefault(delta.slot, []).append(delta.value)
        else:
            states.setdefault(delta.slot, {})[delta.path[0]] = delta.value
    return await h.set_branch_base(s, states)


async def check_matrix(store: turnkeeper.Store, delta: NewDelta, allowed: Sequence[str]) -> None:
    """Send a delta through all four doors: it is stored by those that may, and refused by the others, which are named."""
    for door in DOORS:
        made = await scene(store)
        at = await made.reply()
        before = await made.held()
        if door in allowed:
            await through(made, door, at, delta)
            assert await made.held() != before
            await made.holds()
            continue
        with pytest.raises((NotAllowed, Invalid)) as caught:
            await through(made, door, at, delta)
        assert await made.held() == before, door
        assert delta.slot in str(caught.value)
        if delta.slot != "global" or door != "import":  # a shared slot has no base
            assert isinstance(caught.value, NotAllowed)
            assert NAMED[door] in str(caught.value)


@pytest.mark.claim("S-333")
async def test_the_door_says_who_writes_and_nothing_given_to_it_can(store):
    for operation in (later.record_deltas, later.record_message_deltas, base.set_branch_base, land.commit_turn):
        assert not [name for name in inspect.signature(operation).parameters if "writer" in name]
    assert "writer" not in NewDelta.__struct_fields__

    class Signed(NewDelta, frozen=True):
        writer: str = "turn"

    made = await scene(store)
    at = await made.reply()
    signed = Signed("summary", ["1"], piece("1").value, writer="background")
    for door, value in (("background", Signed("vars", ["a"], 1)), ("turn", signed)):
        with pytest.raises(NotAllowed):
            await through(made, door, at, value)
    await through(made, "person", at, Signed("vars", ["a"], 1, writer="background"))
    assert await made.vars() == {"a": 1}


@pytest.mark.claim("S-334")
async def test_one_delta_in_a_closed_slot_refuses_the_whole_write_and_names_slot_and_writer(store):
    made = await scene(store)
    at = await made.reply()
    for door, good, closed in (
        ("turn", sets(a=1), piece("1")), ("background", stats(a=1), sets(b=1)[0]), ("import", sets(a=1), stats(b=1)[0]),
        ("person", sets(a=1), NewDelta("global", ["1"], {"id": "1", "op": "delete", "name": "x"})),
    ):  # fmt: skip
        for deltas in ([*good, closed], [closed, *good]):
            before = await made.held()
            with pytest.raises(NotAllowed if closed.slot != "global" else TurnkeeperError) as caught:
                await through(made, door, at, *deltas)
            assert await made.held() == before
            assert closed.slot in str(caught.value)
            assert NAMED[door] in str(caught.value)


@pytest.mark.claim("S-335")
async def test_a_slot_that_lists_no_writer_takes_no_write_from_any_door(store, monkeypatch):
    closed = define_slot("closed", "scene", "fields", {}, writers=[])
    slots = make_registry([*BUILT_IN.slots, closed])
    for module in (later, base):
        monkeypatch.setattr(module, "BUILT_IN", slots)
    true = land.check_deltas
    monkeypatch.setattr(land, "check_deltas", lambda deltas, writer, _: true(deltas, writer, slots))
    made = await scene(store)
    at = await made.reply()
    for door in DOORS:
        before = await made.held()
        with pytest.raises(NotAllowed, match="closed"):
            await through(made, door, at, NewDelta("closed", ["a"], 1))
        assert await made.held() == before


@pytest.mark.claim("S-336")
async def test_vars_take_a_turn_a_person_and_an_import(store):
    await check_matrix(store, sets(a=1)[0], ["turn", "person", "import"])


@pytest.mark.claim("S-337")
async def test_the_summary_takes_a_background_writer_and_a_person(store):
    await check_matrix(store, piece("17"), ["background", "person"])


@pytest.mark.claim("S-338")
@pytest.mark.parametrize("slot", ["tracker.stats", "tracker.spellbook"])
async def test_a_tracker_takes_all_but_an_import(store, slot):
    value = {"key": "spell", "value": 1} if slot == "tracker.spellbook" else 1
    await check_matrix(store, NewDelta(slot, ["spell"], value), ["turn", "background", "person"])


@pytest.mark.claim("S-339")
@pytest.mark.parametrize("slot", ["tracker-record:p1", "tracker-list:p1"])
async def test_a_library_tracker_takes_a_turn_and_a_person(store, slot):
    value = {"name": "rat", "n": 1} if slot.startswith("tracker-list") else 1
    await check_matrix(store, NewDelta(slot, ["rat"], value), ["turn", "person"])


@pytest.mark.claim("S-340")
async def test_globals_take_a_turn_alone(store):
    operation = NewDelta("global", ["op1"], {"id": "op1", "op": "inc", "name": "n", "amount": 1})
    await check_matrix(store, operation, ["turn"])


@pytest.mark.claim("S-341")
async def test_every_backend_gives_one_verdict_in_one_sentence(store):
    made = await scene(store)
    at = await made.reply()
    said = []
    for delta in (
        NewDelta("nowhere", ["a"], 1), NewDelta("vars", [], 1), NewDelta("vars", ["a", "b"], 1),
        NewDelta("tracker.party", ["a"], {"key": "b", "value": 1}), NewDelta("tracker.party", ["a"], 1),
        NewDelta("skills", ["a"], False), gone("summary", "1"), sets(a=1)[0],
    ):  # fmt: skip
        for door in ("turn", "background", "person"):
            try:
                await through(made, door, at, delta)
                said.append("")
            except TurnkeeperError as refusal:
                said.append(f"{refusal.code}: {refusal}")
    assert [line.partition(":")[0] for line in said] == [
        "invalid", "invalid", "invalid", "invalid", "not-allowed", "invalid", "invalid", "not-allowed", "invalid",
        "invalid", "invalid", "invalid", "invalid", "invalid", "invalid", "invalid", "not-allowed", "invalid",
        "not-allowed", "", "", "", "not-allowed", "",
    ]  # fmt: skip
    assert said[9] == said[10] == said[11]
    assert "tracker.party.a" in said[9]
    assert not any(kind in line for line in said for kind in ("memory", "sqlite", "postgres"))


@pytest.mark.claim("S-344")
def test_rows_of_deltas_are_made_in_one_place_each_and_copied_in_one():
    found: dict[str, set[str]] = {}
    for path in SRC.rglob("*.py"):
        where, text = path.relative_to(SRC / "turnkeeper").as_posix(), path.read_text("utf-8")
        for name, mark in (
            ("delta rows", "Delta(session_id"), ("later rows", "MessageDelta(*"), ("copies", "replace(delta, take="),
            ("bases", "Base("), ("frames", "Keyframe("),
        ):  # fmt: skip
            if mark in text and not where.startswith("records/"):
                found.setdefault(name, set()).add(where)
    assert found == {
        "delta rows": {"history/appending.py"}, "later rows": {"history/later.py"}, "copies": {"history/state.py"},
        "bases": {"history/state.py", "history/base.py"},
        "frames": {"history/appending.py", "history/state.py"},
    }  # fmt: skip


@pytest.mark.claim("S-346")
async def test_the_store_takes_a_tracker_from_whichever_background_writer(store):
    made = await scene(store)
    at = await made.reply()
    version = await made.shown_version(at)
    await made.history.record_deltas(made.session_id, at, version, [piece("1")])
    await made.history.record_deltas(made.session_id, at, version, [row("rat", 1)])
    state = await made.state()
    assert [state["summary"][0]["version"], state["tracker.party"][0]["key"]] == ["1", "rat"]


@pytest.mark.claim("S-349")
async def test_what_any_generated_writer_wrote_is_undone_by_another_version_or_a_cut(store):
    made = await scene(store)
    await made.reply(*sets(a=1), *stats(hp=1), row("rat", 1))
    earlier = exact(await made.state())
    at = await made.reply(
        *sets(a=2, b=2), *stats(hp=2), gone("tracker.party", "rat"), NewDelta("tracker-record:p", ["x"], 1)
    )
    version = await made.shown_version(at)
    await made.history.record_deltas(made.session_id, at, version, [piece("1"), *stats(mp=1)])
    assert exact(await made.state()) != earlier
    await made.again(at)
    assert exact(await made.state()) == earlier
    await made.history.select_swipe(made.session_id, at, 0)
    assert exact(await made.state()) != earlier
    await made.history.cut_messages(made.session_id, [at])
    assert exact(await made.state()) == earlier


@pytest.mark.claim("S-350")
@pytest.mark.parametrize("door", ["background", "person"])
async def test_a_value_that_does_not_fit_its_slot_is_refused_by_both_later_doors(store, door):
    made = await scene(store)
    at = await made.reply()
    for misfit in (
        NewDelta("summary", ["1"], {"version": "1", "text": 3, "through": 0, "at": 0}),
        NewDelta("tracker.party", ["a"], {"key": "a"}), NewDelta("tracker.party", ["a"], {"key": "b", "value": 1}),
    ):  # fmt: skip
        before = await made.held()
        with pytest.raises(Invalid):
            await through(made, door, at, *stats(hp=1), misfit)
        assert await made.held() == before
