"""Claims of the area S strategies: how changes are cut into deltas and put together again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.errors import Invalid
from turnkeeper.history.slots import WRITERS, NewDelta, State, define_slot, diff, fold, make_registry
from turnkeeper.history.slots.written import fold_times
from turnkeeper.jsonvalue import copied, same
from turnkeeper.records import Delta

VALUE = define_slot("value", "scene", "value", "calm", writers=WRITERS)
FIELDS = define_slot("fields", "scene", "fields", {}, writers=WRITERS)
ROWS = define_slot("rows", "scene", "keyed-list", [], writers=WRITERS, key="id")
FULL = define_slot("full", "scene", "fields", {"hp": 10}, writers=WRITERS)
SLOTS = make_registry([VALUE, FIELDS, ROWS, FULL])

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["a", "b", "c", "__proto__", "", "\x00", "\ud800"])
fields = st.dictionaries(names, json_values, max_size=5)
rows = st.dictionaries(names, st.dictionaries(st.sampled_from("xyz"), json_values), max_size=5).map(
    lambda found: [{**row, "id": key} for key, row in found.items()]
)
STATES = {"value": json_values, "fields": fields, "rows": rows, "full": fields}


@st.composite
def histories(draw: st.DrawFn) -> list[list[Delta]]:
    """Messages with deltas, each later than those before it."""
    found, at = [], 0
    for _ in range(draw(st.integers(0, 8))):
        message = []
        for _ in range(draw(st.integers(0, 4))):
            at += 1
            slot, name, removed = (
                draw(st.sampled_from(["value", "fields", "rows", "full"])),
                draw(names),
                draw(st.booleans()),
            )
            value: Any = draw(json_values)
            value = {"id": name, "v": value} if slot == "rows" else value
            message.append(
                Delta("s", 0, 0, slot, removed, at, [] if slot == "value" else [name], None if removed else value)
            )
        found.append(message)
    return found


def put(*path: str, value: Any, slot: str = "fields") -> NewDelta:
    """A value at a path."""
    return NewDelta(slot, list(path), value)


def gone(*path: str, slot: str = "fields") -> NewDelta:
    """A removal."""
    return NewDelta(slot, list(path), removed=True)


def row(key: str, n: int = 0) -> NewDelta:
    """A row."""
    return NewDelta("rows", [key], {"id": key, "n": n})


def keys(state: State) -> list[str]:
    """The keys of the rows, in order."""
    return [found["id"] for found in state["rows"]]


def cut(slot: Any, old: Any, new: Any) -> set[tuple[str, ...]]:
    """The paths of a change; each once."""
    deltas = diff(slot, old, new)
    assert len({tuple(d.path) for d in deltas}) == len(deltas)
    return {(*d.path, "removed" if d.removed else "set") for d in deltas}


@pytest.mark.claim("S-053", "S-056")
def test_value_keeps_the_whole_value():
    assert diff(VALUE, "calm", {"a": 1}) == [NewDelta("value", [], {"a": 1})]
    first, second = put(value=[1], slot="value"), put(value=None, slot="value")
    assert fold({}, [first], SLOTS)["value"] == [1]
    assert fold({}, [first, second], SLOTS)["value"] is None
    assert fold({}, [first, gone(slot="value")], SLOTS)["value"] == "calm"


@pytest.mark.claim("S-054", "S-056")
def test_fields_are_cut_one_by_one():
    five = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
    assert cut(FIELDS, five, {**five, "b": 0, "d": [4]}) == {("b", "set"), ("d", "set")}
    assert cut(FIELDS, five, {name: five[name] for name in "abde"}) == {("c", "removed")}
    assert fold({"fields": five}, [put("b", value=0), gone("c")], SLOTS)["fields"] == {"a": 1, "b": 0, "d": 4, "e": 5}


@pytest.mark.claim("S-055", "S-056")
def test_rows_are_cut_one_by_one():
    old = [{"id": "a", "n": 1}, {"id": "b", "n": 1}, {"id": "c", "n": 1}]
    new = [{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "d", "n": 1}]
    assert cut(ROWS, old, new) == {("b", "set"), ("c", "removed"), ("d", "set")}
    assert fold({"rows": old}, diff(ROWS, old, new), SLOTS)["rows"] == new
    assert [d.slot for d in diff(ROWS, [], old, slot_id="rows:x")] == ["rows:x"] * 3


@pytest.mark.claim("S-057")
def test_rows_keep_the_order_of_their_first_appearance():
    written = [row("1"), row("2"), row("3"), row("1", 7)]
    state = fold({}, written, SLOTS)
    assert (keys(state), state["rows"][0]["n"]) == (["1", "2", "3"], 7)
    assert keys(fold(state, written, SLOTS)) == ["1", "2", "3"]


@pytest.mark.claim("S-404")
def test_a_row_removed_and_added_again_stands_at_the_end():
    abc = [row("a"), row("b"), row("c")]
    assert keys(fold({}, [*abc, gone("a", slot="rows"), row("a")], SLOTS)) == ["b", "c", "a"]
    held = fold({}, [put("a", value=1), put("b", value=1), gone("a"), put("a", value=2)], SLOTS)["fields"]
    assert list(held.items()) == [("b", 1), ("a", 2)]


@pytest.mark.claim("S-058")
def test_another_order_is_no_change():
    a, b = {"id": "a", "n": 1}, {"id": "b", "n": 2}
    assert diff(ROWS, [a, b], [b, a]) == []
    assert diff(FIELDS, {"a": 1, "b": 2}, {"b": 2, "a": 1}) == []


@pytest.mark.claim("S-059")
@given(histories())
def test_a_fold_from_any_keyframe_is_the_whole_fold(history):
    """Row order and times included; a keyframe is what it reads back as."""
    whole = [delta for message in history for delta in message]
    state, times = fold({}, whole, SLOTS), fold_times({}, whole, "fields", SLOTS)
    for at in range(len(history) + 1):
        before = [delta for message in history[:at] for delta in message]
        after = [delta for message in history[at:] for delta in message]
        keyframe = copied(dict(fold({}, before, SLOTS)))
        again = fold(keyframe, after, SLOTS)
        assert repr(dict(again)) == repr({slot: again[slot] for slot in again})
        assert {slot: repr(again[slot]) for slot in again} == {slot: repr(state[slot]) for slot in state}
        then = fold_times(copied(fold_times({}, before, "fields", SLOTS)), after, "fields", SLOTS)
        assert list(then.items()) == list(times.items())


@pytest.mark.claim("S-060")
def test_what_was_removed_comes_back_with_a_later_write():
    messages = [[put("a", value=1), row("a", 1)], [gone("a"), gone("a", slot="rows")], [put("a", value=2), row("a", 2)]]
    others = [put("b", value=0), row("b")]

    def shown(*numbers: int) -> tuple[Any, Any]:
        state = fold({}, [*messages[0], *others, *(d for n in numbers for d in messages[n])], SLOTS)
        return list(state["fields"].items()), [(found["id"], found["n"]) for found in state["rows"]]

    assert shown() == shown(0) == ([("a", 1), ("b", 0)], [("a", 1), ("b", 0)])
    assert shown(1) == ([("b", 0)], [("b", 0)])
    assert shown(1, 2) == ([("b", 0), ("a", 2)], [("b", 0), ("a", 2)])
    assert shown(2) == ([("a", 2), ("b", 0)], [("a", 2), ("b", 0)])
    assert fold({}, [gone("hp", slot="full")], SLOTS)["full"] == {}


@pytest.mark.claim("S-060", "S-404")
def test_a_first_time_is_that_of_the_first_write_still_shown():
    def times(*deltas: tuple[int, bool]) -> dict[str, list[int]]:
        made = [Delta("s", 0, 0, "fields", removed, at, ["a"], None) for at, removed in deltas]
        return fold_times({}, made, "fields", SLOTS)

    assert times((1, False), (2, True), (3, False)) == {"a": [3, 3]}
    assert times((1, False), (3, False)) == {"a": [1, 3]}
    assert times((1, False), (2, True)) == {}


@pytest.mark.claim("S-050", "S-056")
@pytest.mark.parametrize("slot", [VALUE, FIELDS, ROWS, FULL], ids=lambda slot: slot.id)
@given(data=st.data())
def test_diff_and_then_fold_gives_the_new_state(slot, data):
    old, new = data.draw(STATES[slot.id]), data.draw(STATES[slot.id])
    made = fold({slot.id: old}, diff(slot, old, new), SLOTS)[slot.id]
    assert same(made, new) or (slot is ROWS and same(_by_key(made), _by_key(new)))
    assert diff(slot, old, old) == diff(slot, new, copied(new)) == []
    assert fold({slot.id: old}, [], SLOTS)[slot.id] is old


def _by_key(found: list[dict[str, Any]]) -> dict[str, Any]:
    assert len({entry["id"] for entry in found}) == len(found)
    return {entry["id"]: entry for entry in found}


@pytest.mark.parametrize(
    ("slot", "new"),
    [(FIELDS, []), (FIELDS, {1: 2}), (ROWS, {}), (ROWS, [1]), (ROWS, [{"n": 1}]), (ROWS, [{"id": "a"}, {"id": "a"}])],
)
def test_what_is_no_state_of_the_slot_cannot_be_cut(slot, new):
    with pytest.raises(Invalid):
        diff(slot, slot.default, new)
