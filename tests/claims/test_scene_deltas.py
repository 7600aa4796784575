"""Claims of the area S deltas: what a delta is, what the fold skips, and what hiding a message undoes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.claims.test_scene_slots import land
from tests.claims.test_scene_strategies import FIELDS, ROWS, SLOTS, VALUE, json_values
from tests.support.scenes import scene, sets, stats
from turnkeeper.errors import Invalid
from turnkeeper.history.slots import BUILT_IN, NewDelta, check_deltas, diff, fold
from turnkeeper.records import Delta

SPECIAL = ["__proto__", "__class__", "__dict__", "constructor", "__missing__", "slots", "get", "keys"]
READABLE = {"value": [], "fields": ["a"], "rows": ["a"]}
STATE = {"value": 1, "fields": {"a": 1}, "rows": [{"id": "a", "n": 1}]}


def stored(slot: str, path: Any, value: Any = None, *, removed: bool = False) -> Delta:
    """A stored delta."""
    return Delta("s", 0, 0, slot, removed, 0, path, value)


@pytest.mark.claim("S-043")
def test_a_delta_has_a_value_or_is_a_removal():
    for wrong in ({}, {"value": 1, "removed": True}, {"value": None, "removed": True}):
        with pytest.raises(Invalid):
            NewDelta("vars", ["a"], **wrong)
    assert NewDelta("vars", ["a"], 1).removed is False
    assert NewDelta.__struct_fields__ == ("slot", "path", "value", "removed")
    assert set(Delta.__struct_fields__) - {"session_id", "version", "seq"} == {"slot", "path", "value", "removed", "at"}


@pytest.mark.claim("S-044")
def test_none_is_a_value():
    null, gone = NewDelta("fields", ["a"], None), NewDelta("fields", ["a"], removed=True)
    assert fold({}, [null], SLOTS)["fields"] == {"a": None}
    assert fold({}, [null, gone], SLOTS)["fields"] == {}
    assert diff(FIELDS, {}, {"a": None}) == [null]
    assert diff(FIELDS, {"a": None}, {}) == [gone]
    for delta in (null, gone, NewDelta("fields", ["a"], 0)):
        assert msgspec.json.decode(msgspec.json.encode(delta), type=NewDelta) == delta
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"slot": "fields", "path": ["a"]}', type=NewDelta)


@pytest.mark.claim("S-045")
async def test_hiding_a_message_undoes_its_own_writes_only(store):
    session = await store.create_session()
    for values in ({"a": 1}, {"a": 2, "b": 2}, {"a": 3}):
        await land(store, session.session_id, *(NewDelta("vars", [name], value) for name, value in values.items()))
    await session.cut(1)
    assert (await session.state())["vars"] == {"a": 3}
    await session.cut(2)
    assert (await session.state())["vars"] == {"a": 1}
    await session.restore(1, 2)
    assert (await session.state())["vars"] == {"a": 3, "b": 2}


@pytest.mark.claim("S-046")
def test_a_slot_that_is_not_declared_is_skipped():
    unknown = [stored("nowhere", ["a"], 1), stored("", [], 1), stored("x:*", ["a"], 1), stored("__class__", ["a"], 1)]
    mixed = [unknown[0], stored("fields", ["a"], 1), *unknown, stored("rows", ["r"], {"id": "r"}), unknown[0]]
    state = fold({}, mixed, SLOTS)
    assert state == {"fields": {"a": 1}, "rows": [{"id": "r"}]}
    for delta in unknown:
        assert delta.slot not in state and state.get(delta.slot) is None


@pytest.mark.claim("S-047")
@pytest.mark.parametrize("slot", ["value", "fields", "rows"])
@pytest.mark.parametrize(
    "path", [[], ["a"], ["a", "b"], [1], [None], [["a"]], "a", "", {"a": 1}, None, 5, True, [True], ["a", 1]], ids=repr
)
def test_a_path_that_cannot_be_read_is_skipped(slot, path):
    if path == READABLE[slot]:
        return
    for start in ({}, STATE):
        for delta in (stored(slot, path, {"id": "a", "n": 2}), stored(slot, path, removed=True)):
            assert fold(start, [delta], SLOTS) == start
            other = stored("fields", ["b"], 1)
            assert fold(start, [other, delta, other], SLOTS) == fold(start, [other], SLOTS)


@pytest.mark.claim("S-047")
@pytest.mark.parametrize("value", [None, 1, "a", [], {}, {"id": "b"}, {"id": 1}, {"id": ["a"]}], ids=repr)
def test_a_row_with_another_key_than_its_path_is_skipped(value):
    for start in ({}, STATE):
        assert fold(start, [stored("rows", ["a"], value)], SLOTS) == start


@pytest.mark.claim("S-049")
@pytest.mark.parametrize("name", SPECIAL)
def test_names_of_the_language_are_plain_data(name):
    state = fold({}, [stored("fields", [name], 1), stored("rows", [name], {"id": name})], SLOTS)
    assert (state["fields"], state["rows"]) == ({name: 1}, [{"id": name}])
    check_deltas([NewDelta("vars", [name], {name: 1})], "turn", BUILT_IN)
    removed = fold(state, [stored("fields", [name], removed=True), stored("rows", [name], removed=True)], SLOTS)
    assert (removed["fields"], removed["rows"]) == ({}, [])
    assert type(removed) is type(state) and removed.slots is SLOTS
    assert fold({}, [stored(name, ["a"], 1)], SLOTS) == {}


@pytest.mark.claim("S-051")
def test_a_change_is_told_by_json_type():
    for old, new in ((1, True), (0, False), (1, 1.0), (0.0, -0.0), ("1", 1), (None, False), ([1], [True])):
        assert len(diff(FIELDS, {"a": old}, {"a": new})) == 1
        assert len(diff(VALUE, old, new)) == 1
        assert len(diff(ROWS, [{"id": "x", "v": old}], [{"id": "x", "v": new}])) == 1
    ab, ba = {"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"d": 2, "c": 1}, "a": 1}
    assert diff(VALUE, ab, ba) == diff(FIELDS, {"x": ab}, {"x": ba}) == diff(FIELDS, ab, ba) == []
    assert diff(ROWS, [{"id": "x", **ab}], [{**ba, "id": "x"}]) == []


arbitrary = st.builds(
    stored,
    st.sampled_from(["value", "fields", "rows", "full", "nowhere", "x:y"]) | st.text(max_size=3),
    st.lists(st.text(max_size=2) | json_values, max_size=2) | json_values,
    json_values | st.fixed_dictionaries({"id": st.text(max_size=2)}),
    removed=st.booleans(),
)


@pytest.mark.claim("S-046", "S-047")
@given(
    st.dictionaries(st.sampled_from(["value", "fields", "rows", "full"]), json_values), st.lists(arbitrary, max_size=8)
)
def test_the_fold_never_raises(start, deltas):
    """Whatever the deltas are, and whatever a damaged cache holds; twice is once, and the start stays as it was."""
    as_it_was = repr(start)
    once = fold(start, deltas, SLOTS)
    assert repr(start) == as_it_was
    assert fold(once, [], SLOTS) == once
    for slot, kind in (("fields", dict), ("rows", list)):
        assert type(once[slot]) is kind or once.get(slot) is start.get(slot)


@pytest.mark.claim("S-050")
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3) | st.none()), max_size=10))
def test_folding_a_write_twice_gives_what_folding_it_once_gives(writes):
    deltas = [stored("fields", [name], value, removed=value is None) for name, value in writes]
    once = fold({}, deltas, SLOTS)
    assert fold(once, deltas, SLOTS)["fields"] == once["fields"]


NO_JSON = [
    float("nan"), float("inf"), {1: 2}, {None: 1}, {1, 2}, b"x", object(), 2**63, {"a": [float("nan")]}, datetime(2026, 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("value", NO_JSON, ids=lambda value: type(value).__name__)
def test_the_door_takes_json_alone(value):
    with pytest.raises(Invalid, match=r"vars\.a"):
        check_deltas([NewDelta("vars", ["a"], value)], "turn", BUILT_IN)


@pytest.mark.claim("S-052")
async def test_every_door_takes_json_alone(store):
    session = await store.create_session()
    sid, history = session.session_id, store.history
    await land(store, sid, NewDelta("vars", ["a"], 1))
    (reply,) = await session.messages()
    doors = [
        ("vars", lambda delta: land(store, sid, delta)),
        ("vars", lambda delta: history.record_message_deltas(sid, 0, [delta])),
        ("tracker.stats", lambda delta: history.record_deltas(sid, 0, reply.version, [delta])),
        ("vars", lambda delta: history.set_branch_base(sid, {"vars": {"b": delta.value}})),
    ]
    for slot, door in doors:
        for value in NO_JSON:
            with pytest.raises(Invalid):
                await door(NewDelta(slot, ["b"], value))
    with pytest.raises(Invalid):
        await history.set_branch_base(sid, {"vars": {1: 2}})
    assert await session.state() == {"vars": {"a": 1}}
    assert await session.messages() == [reply]
    for slot, door in doors:
        await door(NewDelta(slot, ["b"], [None, 2**63 - 1, -0.0]))


@pytest.mark.parametrize("slot", ["value", "fields", "rows"])
@pytest.mark.parametrize("path", [[], ["a"], ["a", "b"], [1], "a", None, {"a": 1}], ids=repr)
def test_the_door_refuses_a_path_the_fold_would_skip(slot, path):
    value = {"id": "a"} if slot == "rows" else 1
    for delta in (stored(slot, path, value), stored(slot, path, removed=True)):
        if path == READABLE[slot]:
            check_deltas([delta], "person", SLOTS)
        else:
            with pytest.raises(Invalid, match=slot):
                check_deltas([delta], "person", SLOTS)


@pytest.mark.parametrize("slot", ["nowhere", "tracker.weather", "x:y", "", 5, None, ["vars"]])
def test_the_door_refuses_a_slot_that_is_not_declared(slot):
    with pytest.raises(Invalid, match="There is no slot"):
        check_deltas([NewDelta("vars", ["a"], 1), NewDelta(slot, ["a"], 1)], "turn", BUILT_IN)


@pytest.mark.claim("S-048")
async def test_every_door_refuses_an_undeclared_slot_and_a_foreign_path_and_keeps_nothing(store):
    session = await store.create_session()
    sid, history = session.session_id, store.history
    await land(store, sid, NewDelta("vars", ["a"], 1))
    (reply,) = await session.messages()
    doors = [
        lambda delta: land(store, sid, delta),
        lambda delta: history.record_message_deltas(sid, 0, [delta]),
        lambda delta: history.record_deltas(sid, 0, reply.version, [delta]),
    ]
    for bad in (
        NewDelta("nowhere", ["a"], 1),
        NewDelta("tracker.stats", [], 1),
        NewDelta("tracker.stats", ["a", "b"], 1),
    ):
        for door in doors:
            with pytest.raises(Invalid, match=bad.slot):
                await door(bad)
    for base in ({"nowhere": {}}, {"vars": []}):
        with pytest.raises(Invalid):
            await history.set_branch_base(sid, base)
    assert (await session.state(), await session.messages()) == ({"vars": {"a": 1}}, [reply])
    for door in doors:
        await door(NewDelta("tracker.stats", ["a"], 1))


# S-407 also speaks of a restored snapshot: it is marked when there are snapshots
async def test_writes_of_one_path_take_effect_in_the_order_written_there_and_in_a_copy(store):
    made = await scene(store)
    sid, history = made.session_id, made.history
    at = await made.reply(*sets(x=1), *sets(x=2), *sets(x=3))
    version = await made.again(at, *sets(x=3), *sets(x=1), *sets(x=2))
    assert await made.vars() == {"x": 2}
    await history.record_deltas(sid, at, version, [*stats(a=1), *stats(a=3), *stats(a=2)])
    await history.record_message_deltas(sid, at, [*stats(b=9), *stats(b=7), *stats(b=8)])
    fork = await history.fork(sid)
    await history.cut_messages(sid, [at])
    copy = await history.restore_cut(sid, [at], as_take=True)
    await history.restore_cut(sid, [at], take=0)
    for take in (0, fork, copy):
        assert await made.state(take) == {"vars": {"x": 2}, "tracker.stats": {"a": 2, "b": 8}}
    await history.select_swipe(sid, at, 0, take=0)
    assert await made.vars(0) == {"x": 3}
    await made.holds()
