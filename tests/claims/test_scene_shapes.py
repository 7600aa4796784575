"""Claims of the area S shapes: what is written must fit, and one misfit refuses the whole write."""

from __future__ import annotations

from typing import Any

import pytest

from tests.claims.test_scene_slots import land
from tests.support.scenes import scene
from turnkeeper.errors import Invalid, NotAllowed
from turnkeeper.history import base as bases
from turnkeeper.history import later
from turnkeeper.history.slots import BUILT_IN, WRITERS, NewDelta, check_deltas, check_state, define_slot, make_registry
from turnkeeper.history.slots.shapes import (
    Anything,
    Choice,
    Fields,
    Flag,
    ListOf,
    MapOf,
    Nullable,
    Number,
    Tagged,
    Text,
    Whole,
    field_shape,
    row_shape,
)
from turnkeeper.records import DELTAS
from turnkeeper.turns import land as landing

STATS = Fields({"hp": Whole(0, 99), "name": Text(1, 9)}, {"cursed": Flag()})
SLOTS = make_registry(
    [
        define_slot("stats", "scene", "fields", {}, writers=WRITERS, shape_at=STATS.at),
        define_slot("marks", "scene", "fields", {}, writers=WRITERS, shape=Number()),
        define_slot("mood", "scene", "value", "calm", writers=WRITERS, shape=Choice(["calm", "wild"])),
        define_slot(
            "bag", "scene", "keyed-list", [], writers=WRITERS, key="id", shape=Fields({"id": Text(), "n": Whole()})
        ),
    ]
)
SECRET = "a-secret-text"


def refused(slot: str, path: list[str], value: Any, writer: Any = "person") -> str:
    """The sentence a write is refused with; it names the slot and never the value."""
    with pytest.raises(Invalid) as error:
        check_deltas([NewDelta("marks", ["ok"], 1), NewDelta(slot, path, value)], writer, SLOTS)
    assert slot in str(error.value)
    assert all(name in str(error.value) for name in path)
    assert SECRET not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_misfit_is_refused_for_every_writer(writer):
    """The half of S-021 that can be shown before all doors are there."""
    for slot, path, value in (
        ("mood", [], SECRET), ("marks", ["hp"], SECRET), ("bag", ["a"], {"id": "a", "n": SECRET}),
        ("bag", ["a"], {"id": "a"}), ("bag", ["a"], {"id": "a", "n": 1, "more": SECRET}), ("stats", ["hp"], SECRET),
    ):  # fmt: skip
        refused(slot, path, value, writer)


@pytest.mark.claim("S-022")
async def test_a_misfit_leaves_the_whole_write_undone(store):
    session = await store.create_session()
    good = [NewDelta("vars", ["lamp"], "lit"), NewDelta("skills", ["cook"], True)]
    for bad in (NewDelta("skills", ["read"], SECRET), NewDelta("tracker.quests", ["q"], {"key": "q"})):
        for deltas in ([*good, bad], [bad, *good]):
            with pytest.raises(Invalid) as error:
                await land(store, session.session_id, *deltas)
            assert SECRET not in str(error.value)
    assert (await session.state(), await session.messages()) == ({"vars": {}}, [])
    assert await store.look(lambda rows: rows.scan(DELTAS, session.session_id)) == []
    await land(store, session.session_id, *good)
    assert await session.state() == {"vars": {"lamp": "lit"}, "skills": {"cook": True}}


def test_each_field_is_held_to_its_own_rule():
    """The half of S-023 that needs no slot of one's own in a store."""
    check_deltas([NewDelta("stats", ["hp"], 9), NewDelta("stats", ["name"], "Ann")], "turn", SLOTS)
    assert "whole number" in refused("stats", ["hp"], "Ann")
    assert "not text" in refused("stats", ["name"], 9)
    assert "no such field" in refused("stats", ["luck"], 9)


@pytest.mark.claim("S-024")
async def test_a_row_carries_the_key_of_its_path(store):
    session = await store.create_session()
    for value in ({"name": "b"}, {}, {"name": ["a"]}, None):
        with pytest.raises(Invalid, match=r"tracker-list:p\.a"):
            await land(store, session.session_id, NewDelta("tracker-list:p", ["a"], value))
    assert await session.state() == {"vars": {}}
    await land(store, session.session_id, NewDelta("tracker-list:p", ["a"], {"name": "a"}))
    assert (await session.state())["tracker-list:p"] == [{"name": "a"}]


@pytest.mark.claim("S-025")
async def test_a_removal_has_no_value_to_fit(store):
    session, quests = await store.create_session(), "tracker.quests"
    await land(store, session.session_id, NewDelta(quests, ["q"], {"key": "q", "value": 1}))
    for path in ([], ["q", "value"], [1]):
        with pytest.raises(Invalid, match=quests):
            await land(store, session.session_id, NewDelta(quests, path, removed=True))
    with pytest.raises(NotAllowed, match="summary"):
        await land(store, session.session_id, NewDelta("summary", ["q"], removed=True))
    assert (await session.state())[quests] == [{"key": "q", "value": 1}]
    await land(store, session.session_id, NewDelta(quests, ["q"], removed=True))
    assert (await session.state())[quests] == []


def test_a_removal_is_held_to_every_other_rule():
    check_deltas([NewDelta("stats", ["luck"], removed=True), NewDelta("mood", [], removed=True)], "turn", SLOTS)
    with pytest.raises(Invalid):
        check_deltas([NewDelta("mood", ["a"], removed=True)], "turn", SLOTS)


@pytest.mark.claim("S-027")
def test_a_shape_can_be_taken_apart():
    module = ListOf(STATS)
    assert row_shape(module) is STATS
    assert field_shape(STATS, "hp") == Whole(0, 99)
    assert field_shape(STATS, "cursed") == Flag()
    assert field_shape(STATS, "luck") is field_shape(module, "hp") is row_shape(STATS) is None
    assert (STATS.at(["hp"]), STATS.at(["luck"]), STATS.at([]), STATS.at(["hp", "x"])) == (
        Whole(0, 99),
        None,
        None,
        None,
    )
    with pytest.raises(Invalid, match=r"stats\.luck.*no such field"):
        check_deltas([NewDelta("stats", ["hp"], 1), NewDelta("stats", ["luck"], 1)], "turn", SLOTS)
    bag = define_slot("bag", "scene", "keyed-list", [], writers=WRITERS, key="name", shape=row_shape(module))
    slots = make_registry([bag])
    check_deltas([NewDelta("bag", ["Ann"], {"name": "Ann", "hp": 3})], "turn", slots)
    with pytest.raises(Invalid):
        check_deltas([NewDelta("bag", ["Ann"], {"name": "Ann", "hp": 300})], "turn", slots)


@pytest.mark.parametrize(
    ("shape", "fits", "misfits"),
    [
        (Anything(), [None, 1, {}], []),
        (Text(1, 3), ["a", "abc"], ["", "abcd", 1, None]),
        (Flag(), [True, False], [0, 1, None]),
        (Whole(0, 3), [0, 3], [-1, 4, True, 1.0, "1"]),
        (Number(0, 3), [0, 3, 1.5], [-1, 3.1, True, float("nan"), float("inf"), "1"]),
        (Choice([1, "a"]), [1, "a"], [True, 1.0, "b", None]),
        (Nullable(Flag()), [None, True], [0]),
        (ListOf(Whole(), 2), [[], [1, 2]], [[1, 2, 3], ["a"], {}, None]),
        (MapOf(Whole()), [{}, {"a": 1}], [{"a": "b"}, []]),
        (STATS, [{"hp": 1, "name": "a"}, {"hp": 1, "name": "a", "cursed": True}],
         [{"hp": 1}, {"hp": 1, "name": "a", "luck": 1}, {"hp": 1, "name": "a", "cursed": 1}, [], None]),
        (Fields({"a": Flag()}, open=True), [{"a": True, "b": 1}], [{"b": 1}, {"a": 1}]),
        (Tagged("op", {"x": Fields({"op": Text(), "n": Whole()})}), [{"op": "x", "n": 1}],
         [{"op": "y"}, {"op": "x"}, {}, 1, {"op": []}]),
    ],
)  # fmt: skip
def test_what_each_shape_takes(shape, fits, misfits):
    assert [value for value in fits if shape(value)] == []
    for value in misfits:
        why = shape(value)
        assert isinstance(why, str) and why


GENERATED = {"version": "7", "text": "They met.", "through": 4, "at": 1}
PERSON = {"version": "person", "text": "", "edit": "e1", "n": 1}


@pytest.mark.parametrize(
    ("slot", "value", "fits"),
    [
        ("summary", GENERATED, True),
        ("summary", {**GENERATED, "saw": "e1", "saw_n": 1, "replace": True}, True),
        ("summary", {**GENERATED, "saw": None, "saw_n": None}, True),
        ("summary", PERSON, True),
        ("summary", {**GENERATED, "through": "4"}, False),
        ("summary", {"version": "7", "through": 4, "at": 1}, False),
        ("summary", {**PERSON, "n": 0}, False),
        ("summary", {**GENERATED, "version": "person"}, False),
        ("global", {"id": "o", "op": "set", "name": "a", "value": None}, True),
        ("global", {"id": "o", "op": "inc", "name": "a", "amount": -2.5}, True),
        ("global", {"id": "o", "op": "append", "name": "a", "value": "x"}, True),
        ("global", {"id": "o", "op": "delete", "name": "a"}, True),
        ("global", {"id": "o", "op": "inc", "name": "a"}, False),
        ("global", {"id": "o", "op": "inc", "name": "a", "amount": True}, False),
        ("global", {"id": "o", "op": "push", "name": "a", "value": 1}, False),
        ("global", {"id": "o", "op": "delete", "name": "a", "value": 1}, False),
        ("skills", True, True),
        ("skills", False, False),
        ("skills", 1, False),
        ("tracker.party", {"key": "members:a", "value": {}}, True),
        ("tracker.party", {"key": "members:a"}, False),
    ],
)
def test_the_rows_of_the_built_in_slots(slot, value, fits):
    writer = {"summary": "background"}.get(slot, "turn")
    found = BUILT_IN.slot_of(slot)
    assert found is not None
    delta = NewDelta(slot, [value[found.key]] if found.key else ["cook"], value)
    if fits:
        check_deltas([delta], writer, BUILT_IN)
    else:
        with pytest.raises(Invalid):
            check_deltas([delta], writer, BUILT_IN)


def test_a_base_is_held_to_the_same_rules():
    for slot, state in (("mood", SECRET), ("stats", {"hp": SECRET}), ("bag", [{"id": "a"}]), ("bag", {}), ("stats", []),
                        ("bag", [{"id": "a", "n": 1}, {"id": "a", "n": 1}]), ("nowhere", {}), ("marks", {"a": {1}})):  # fmt: skip
        with pytest.raises(Invalid) as error:
            check_state(slot, state, "import", SLOTS)
        assert SECRET not in str(error.value)
    for slot, state in (("mood", "wild"), ("stats", {"hp": 1}), ("bag", [{"id": "a", "n": 1}]), ("marks", {})):
        check_state(slot, state, "import", SLOTS)
    with pytest.raises(NotAllowed):
        check_state("tracker.stats", {}, "import", BUILT_IN)
    with pytest.raises(Invalid, match="shared"):
        check_state("global", [], "turn", BUILT_IN)


async def test_a_takes_base_is_checked_in_the_store(store):
    session = await store.create_session()
    for base, error in (({"nowhere": {}}, Invalid), ({"tracker.stats": {}}, NotAllowed), ({"vars": []}, Invalid),
                        ({"vars": {"a": 1}, "summary": []}, NotAllowed)):  # fmt: skip
        with pytest.raises(error):
            await store.history.set_branch_base(session.session_id, base)
    assert await session.state() == {"vars": {}}


@pytest.mark.claim("S-021")
async def test_a_misfit_is_refused_by_every_door_of_the_store(store, monkeypatch):
    held = define_slot("held", "scene", "fields", {}, writers=WRITERS, shape=Whole(0, 99))
    slots = make_registry([*BUILT_IN.slots, held])
    for module in (later, bases):
        monkeypatch.setattr(module, "BUILT_IN", slots)
    true = landing.check_deltas
    monkeypatch.setattr(landing, "check_deltas", lambda deltas, writer, _: true(deltas, writer, slots))
    made = await scene(store)
    at = await made.reply()
    before = await made.held()
    version, h, s = before.message(0, at).version, made.history, made.session_id
    for door in (
        lambda value: made.reply(NewDelta("held", ["a"], value)),
        lambda value: h.record_deltas(s, at, version, [NewDelta("held", ["a"], value)]),
        lambda value: h.record_message_deltas(s, at, [NewDelta("held", ["a"], value)]),
        lambda value: h.set_branch_base(s, {"held": {"a": value}}),
    ):
        with pytest.raises(Invalid, match=r"held\.a"):
            await door(SECRET)
        assert await made.held() == before
