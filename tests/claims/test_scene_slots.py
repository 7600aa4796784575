"""Claims of the areas S slots and S families: what a slot is, who may write it, which definition an id has."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import turnkeeper
from tests.tidy import tree
from turnkeeper.errors import Invalid, NotAllowed
from turnkeeper.history import fold as rooms
from turnkeeper.history.content import message
from turnkeeper.history.slots import (
    BUILT_IN,
    SLOTS,
    WRITERS,
    NewDelta,
    SlotDef,
    check_deltas,
    define_slot,
    diff,
    fold,
    make_registry,
    make_slot_of,
    slot_of,
)
from turnkeeper.history.slots.definition import FAMILY_ID
from turnkeeper.history.slots.lookup import check_overlap
from turnkeeper.history.slots.written import Variable, fold_times, variables
from turnkeeper.records import Delta
from turnkeeper.turns.land import Outcome
from turnkeeper.turns.pending import Request
from turnkeeper.turns.play import Vars

MODULES = {
    "stats", "resources", "inventory", "equipment", "spellbook", "party", "quests", "relationships", "effects",
    "calendar", "places", "journal",
}  # fmt: skip


def slot(slot_id: str = "mine", diff: Any = "fields", default: Any = None, **more: Any) -> SlotDef:
    """Define a slot of the test's own."""
    empty: dict[str, Any] = {"fields": {}, "keyed-list": [], "value": None}
    more = {"writers": WRITERS, **({"key": "id"} if diff == "keyed-list" else {}), **more}
    return define_slot(slot_id, "scene", diff, empty[diff] if default is None else default, **more)


def row(slot_id: str, path: list[str], value: Any = None, *, removed: bool = False, at: int = 0) -> Delta:
    """A stored delta."""
    return Delta("s", 0, 0, slot_id, removed, at, path, value)


async def land(store: turnkeeper.Store, session_id: str, *deltas: NewDelta, target: int | None = None) -> None:
    """Land a turn of one reply with deltas, or another version of the message at `target`."""
    kind = "reply" if target is None else "regenerate"
    request = Request(kind, None, None, b"", at=target)
    said = [message("assistant", "So be it.")]
    await store.turns.commit_turn(session_id, Outcome(request, 0, target, said, list(deltas), []))


@pytest.mark.claim("S-001")
def test_a_definition_is_what_was_passed_and_never_changes():
    def shape(value: Any) -> str | None:
        return None

    made = define_slot("mine", "shared", "keyed-list", [{"id": "a"}], writers=["turn", "person"], key="id", shape=shape)
    assert (made.id, made.scope, made.diff, made.default) == ("mine", "shared", "keyed-list", [{"id": "a"}])
    assert (made.writers, made.key, made.shape, made.shape_at) == (("turn", "person"), "id", shape, None)
    at = define_slot("mine", "scene", "fields", {}, writers=[], shape_at=lambda path: shape).shape_at
    assert at is not None and at(["x"]) is shape
    for name in ("id", "scope", "diff", "default", "writers", "key", "shape", "shape_at"):
        with pytest.raises(AttributeError):
            setattr(made, name, None)


@pytest.mark.claim("S-002")
@pytest.mark.parametrize("slot_id", ["a", "a" * 64, "vars", "tracker.stats", "x:one", "a_b-c0"])
def test_an_id_of_1_to_64_characters_passes(slot_id):
    assert slot(slot_id).id == slot_id


@pytest.mark.claim("S-002")
@pytest.mark.parametrize("slot_id", ["", "a" * 65, "A", "aB", "1a", "_a", "a b", "a\n", "a\x00", "é", "a/b", "*", 1])
def test_any_other_id_is_refused(slot_id):
    with pytest.raises(Invalid):
        slot(slot_id)


@pytest.mark.claim("S-003")
@pytest.mark.parametrize("key", [None, "", 3])
def test_a_keyed_list_names_its_key_field(key):
    with pytest.raises(Invalid):
        slot(diff="keyed-list", key=key)
    assert slot(diff="keyed-list", key="name").key == "name"


@pytest.mark.parametrize(
    "wrong",
    [
        {"diff": "fields", "key": "id"}, {"diff": "fields", "default": []}, {"diff": "keyed-list", "default": {}},
        {"diff": "keyed-list", "default": [{"id": 1}]}, {"diff": "keyed-list", "default": [{"id": "a"}, {"id": "a"}]},
        {"writers": ["model"]}, {"writers": ["turn", "turn"]}, {"writers": "turn"}, {"diff": "merge", "default": {}},
        {"shape": str, "shape_at": str}, {"diff": "value", "shape_at": str}, {"shape": 3}, {"default": {"a": {1}}},
    ],
)  # fmt: skip
def test_what_makes_no_definition_is_refused(wrong):
    with pytest.raises(Invalid):
        slot(**wrong)


@pytest.mark.claim("S-004")
@pytest.mark.parametrize("held", [slot(default={"hp": 10}), slot(diff="keyed-list", default=[{"id": "a"}]),
                                  slot(diff="value", default="calm"), slot(), slot(diff="value")])  # fmt: skip
def test_a_slot_nothing_was_folded_into_answers_its_default(held):
    slots = make_registry([held, slot("other")])
    assert fold({}, [], slots)["mine"] == held.default
    assert fold({}, [row("other", ["a"], 1)], slots).get("mine") == held.default
    assert fold({}, [row("mine", ["a", "b"], 1)], slots)["mine"] == held.default


@pytest.mark.claim("S-005")
def test_a_default_is_never_shared():
    held = slot(default={"bag": ["lamp"]})
    slots = make_registry([held])
    first = fold({}, [], slots)
    first["mine"]["bag"].append("rope")
    touched = fold({}, [row("mine", ["hp"], 1)], slots)
    touched["mine"]["bag"].append("rope")
    held.default["bag"].append("rope")
    assert fold({}, [], slots)["mine"] == held.default == {"bag": ["lamp"]}


@pytest.mark.claim("S-005")
@pytest.mark.parametrize("diff", ["fields", "keyed-list"])
def test_folding_leaves_the_state_it_was_given_alone(diff):
    slots = make_registry([slot(diff=diff)])
    made = {"fields": lambda n: n, "keyed-list": lambda n: {"id": "a", "n": n}}[diff]
    before = fold({}, [row("mine", ["a"], made(1))], slots)
    as_it_was = repr(before)
    fold(before, [row("mine", ["a"], made(2))], slots)
    fold(before, [row("mine", ["a"], removed=True)], slots)
    assert repr(before) == as_it_was


def test_a_takes_fold_leaves_shared_slots_out():
    """The half of S-007 that can be shown without the read of all operations."""
    operation = {"id": "o1", "op": "inc", "name": "coins", "amount": 1}
    check_deltas([NewDelta("global", ["o1"], operation)], "turn", BUILT_IN)
    state = fold({}, [row("global", ["o1"], operation)], BUILT_IN)
    assert state == {}
    assert state.get("global") is None
    with pytest.raises(KeyError):
        state["global"]
    assert rooms.changed_slots([row("global", ["o1"], operation), row("vars", ["a"], 1)]) == {"vars"}
    assert rooms.state_of({"global": [operation], "vars": {"a": 1}, "gone": 1}) == {"vars": {"a": 1}}


@pytest.mark.claim("S-008")
def test_the_catalogue_is_what_was_decided_and_nothing_more():
    expected = {"vars", "summary", "skills", "global", "tracker-record:*", "tracker-list:*"}
    assert sorted(one.id for one in SLOTS) == sorted(expected | {f"tracker.{module}" for module in MODULES})
    assert {one.id for one in SLOTS if one.scope == "shared"} == {"global"}


@pytest.mark.claim("S-009")
def test_a_variable_is_one_delta_at_its_name():
    held = slot_of("vars")
    assert held is not None and held.diff == "fields"
    assert diff(held, {"a": 1}, {"a": 1, "hp": 3}) == [NewDelta("vars", ["hp"], 3)]
    running = Vars({"a": 1})
    running["hp"] = 3
    assert running.changes() == [NewDelta("vars", ["hp"], 3)]


@pytest.mark.claim("S-010", "S-404")
def test_a_variable_knows_when_it_was_first_and_last_written():
    """Written again after its removal, it begins anew."""
    writes = [row("vars", ["hp"], 1, at=10), row("vars", ["mp"], 5, at=20), row("vars", ["hp"], 2, at=30)]

    def seen(deltas: Sequence[Delta]) -> dict[str, Variable]:
        return variables(fold({}, deltas, BUILT_IN)["vars"], fold_times({}, deltas, "vars", BUILT_IN))

    assert seen(writes) == {"hp": Variable(2, 10, 30), "mp": Variable(5, 20, 20)}
    assert seen(writes[1:])["hp"] == Variable(2, 30, 30)
    again = [*writes, row("vars", ["hp"], removed=True, at=40), row("vars", ["hp"], 3, at=50)]
    assert seen(again)["hp"] == Variable(3, 50, 50)
    assert list(seen(again)) == ["mp", "hp"]
    assert variables({"old": 1}, {}, base_at=7) == {"old": Variable(1, 7, 7)}


@pytest.mark.claim("S-012")
def test_every_slot_names_its_writers():
    assert all(one.writers and set(one.writers) <= set(WRITERS) for one in SLOTS)
    assert WRITERS == ("turn", "background", "person", "import")
    with pytest.raises(TypeError):
        define_slot("mine", "scene", "fields", {})  # type: ignore[call-arg]


def test_a_slot_that_names_no_writer_takes_no_write():
    slots = make_registry([slot(writers=[])])
    for writer in WRITERS:
        with pytest.raises(NotAllowed, match=r"'mine'.*It takes none"):
            check_deltas([NewDelta("mine", ["a"], 1)], writer, slots)


@pytest.mark.parametrize(
    ("slot_id", "allowed"),
    [
        ("vars", "turn person import"), ("summary", "background person"), ("skills", "turn person"), ("global", "turn"),
        ("tracker.stats", "turn background person"), ("tracker.spellbook", "turn background person"),
        ("tracker-record:p", "turn person"), ("tracker-list:p", "turn person"),
    ],
)  # fmt: skip
def test_each_slot_takes_its_own_writers_alone(slot_id, allowed):
    for writer in WRITERS:
        delta = NewDelta(slot_id, ["secret"], removed=True)
        if writer in allowed.split():
            check_deltas([delta], writer, BUILT_IN)
        else:
            with pytest.raises(NotAllowed) as refused:
                check_deltas([NewDelta("vars", ["a"], removed=True), delta], writer, BUILT_IN)
            assert writer in str(refused.value)


def test_a_digest_tells_definitions_that_read_deltas_differently():
    """Writers and shapes decide only what may be written from now on."""
    one = slot(default={"a": 1})
    assert len(one.digest()) == 32
    assert one.digest() == slot(default={"a": 1}, writers=["turn"], shape=str).digest()
    for other in (slot("other", default={"a": 1}), slot(default={"a": True}), slot(diff="value", default={"a": 1})):
        assert other.digest() != one.digest()
    assert slot(diff="keyed-list").digest() != slot(diff="keyed-list", key="name").digest()
    assert make_registry([one, slot("b")]).digest() == make_registry([slot("b"), one]).digest()
    assert make_registry([one]).digest() != BUILT_IN.digest()


# families


@pytest.mark.claim("S-030", "S-033")
def test_a_family_covers_the_ids_that_begin_with_its_prefix():
    family = slot_of("tracker-record:abc")
    assert family is not None and family.id == "tracker-record:*"
    for other in ("tracker-records:abc", "tracker-record", "tracker-recor:abc", "tracker-record:*", "", ":", "*"):
        assert slot_of(other) is None
    with pytest.raises(Invalid):
        check_deltas([NewDelta("tracker-record:*", ["a"], 1)], "turn", BUILT_IN)


@pytest.mark.claim("S-031", "S-038")
def test_the_exact_definition_wins_over_the_family():
    family, exact = slot("x:*"), slot("x:one", diff="value")
    for order in ([family, exact], [exact, family]):
        found = make_slot_of(order)
        assert (found("x:one"), found("x:two"), found("vars")) == (exact, family, None)
    assert all(slot_of(one.id.replace("*", "member")) is one for one in SLOTS)


@pytest.mark.claim("S-032")
@pytest.mark.parametrize("member", ["a", "a" * 120, "A.b_c-9", "..."])
def test_a_member_of_1_to_120_signs_is_found(member):
    found = slot_of(f"tracker-list:{member}")
    assert found is not None and found.id == "tracker-list:*"
    check_deltas([NewDelta(f"tracker-list:{member}", ["x"], {"name": "x"})], "turn", BUILT_IN)


@pytest.mark.claim("S-032")
@pytest.mark.parametrize("backend", ["memory"])
@pytest.mark.parametrize("member", ["", "a" * 121, "a b", "a/b", "a:b", "*", "a\n", "é", "a\x00"])
async def test_any_other_member_is_none_and_refused(store, member):
    assert slot_of(f"tracker-list:{member}") is None
    with pytest.raises(Invalid):
        check_deltas([NewDelta(f"tracker-list:{member}", ["x"], {"name": "x"})], "turn", BUILT_IN)
    session = await store.create_session()
    with pytest.raises(Invalid):
        await land(store, session.session_id, NewDelta(f"tracker-list:{member}", ["x"], {"name": "x"}))
    assert await session.messages() == []


@pytest.mark.claim("S-034")
def test_a_familys_id_is_one_word_a_colon_and_a_star():
    for good in ("tracker-list:*", "tracker-record:*", "a:*", "a--b:*"):
        assert FAMILY_ID.fullmatch(good) and slot(good).family
    for bad in ("A:*", "a:b:*", "a*", ":*", "a:*x", "a:*\n", "-a:*", "a1:*", "a_b:*", "a:**", "a:"):
        assert not FAMILY_ID.fullmatch(bad)
    for bad in ("A:*", "a:b:*", "a*", ":*", "a:*x"):
        with pytest.raises(Invalid):
            slot(bad)


@pytest.mark.claim("S-036")
def test_overlapping_families_are_refused_by_name():
    for prefixes in (["a:", "a:b:"], ["a:b:", "z:", "a:"], ["a:", "b:", "a:"]):
        with pytest.raises(Invalid, match=r"a:\*.*a:(b:)?\*"):
            check_overlap(prefixes)
    check_overlap(["a:", "ab:", "b:", "tracker-list:", "tracker-record:"])


@pytest.mark.claim("S-039")
def test_the_two_library_families():
    record, rows = slot_of("tracker-record:p"), slot_of("tracker-list:p")
    assert record is not None and rows is not None
    assert (record.diff, record.key, rows.diff, rows.key) == ("fields", None, "keyed-list", "name")
    for value in ({"hp": 3}, {"name": 3}, [], None, "wolf"):
        with pytest.raises(Invalid):
            check_deltas([NewDelta("tracker-list:p", ["wolf"], value)], "turn", BUILT_IN)
    check_deltas([NewDelta("tracker-list:p", ["wolf"], {"name": "wolf", "hp": 3})], "turn", BUILT_IN)


@pytest.mark.claim("S-040")
async def test_a_piece_made_at_run_time_needs_no_slot_of_its_own(store):
    session = await store.create_session()
    await land(
        store, session.session_id,
        NewDelta("tracker-record:new.Piece-1", ["hp"], 3), NewDelta("tracker-list:new", ["wolf"], {"name": "wolf"}),
    )  # fmt: skip
    state = await session.state()
    assert state == {"vars": {}, "tracker-record:new.Piece-1": {"hp": 3}, "tracker-list:new": [{"name": "wolf"}]}
    assert state["tracker-record:another"] == {}


@pytest.mark.claim("S-041")
async def test_library_trackers_follow_what_is_shown(store):
    session = await store.create_session()
    sid = session.session_id
    record, rows = "tracker-record:p", "tracker-list:p"

    def wolf(hp: int) -> NewDelta:
        return NewDelta(rows, ["wolf"], {"name": "wolf", "hp": hp})

    async def seen(**at: int) -> tuple[Any, Any]:
        state = await session.state(**at)
        return state[record], state[rows]

    await land(store, sid, NewDelta(record, ["hp"], 1), wolf(1))
    await land(store, sid, NewDelta(record, ["hp"], 2), NewDelta(record, ["mp"], 2), wolf(2))
    await land(store, sid, NewDelta(rows, ["bear"], {"name": "bear"}))
    await land(store, sid, NewDelta(record, ["hp"], 3), target=1)  # another version: no wolf of its own
    bear = {"name": "bear"}
    assert await seen() == ({"hp": 3}, [{"name": "wolf", "hp": 1}, bear])
    await session.choose(0, 1)
    assert await seen() == ({"hp": 2, "mp": 2}, [{"name": "wolf", "hp": 2}, bear])
    await session.cut(1)
    assert await seen() == ({"hp": 1}, [{"name": "wolf", "hp": 1}, bear])
    await session.cut(0)
    assert await seen() == ({}, [bear])
    await session.cut(2)
    assert await seen() == ({}, [])
    await session.restore(0, 1, 2)
    assert await seen() == await seen(at=2) == ({"hp": 2, "mp": 2}, [{"name": "wolf", "hp": 2}, bear])


@pytest.mark.claim("S-042", "S-084")
def test_the_core_of_slots_knows_no_store_and_no_piece_of_a_library():
    """Neither does the store know a library or its pieces."""
    found = tree.modules(Path(turnkeeper.__file__).parents[1])
    graph = tree.imports(found)
    core = {name for name in graph if ".history.slots" in name and not name.endswith(".generator")}
    assert not [name for name in graph if f"{tree_name('generator')}" in graph[name]], "nothing imports the generator"
    assert strangers(graph, core | {"turnkeeper.history.fold"}) == set()
    below = {name for name in graph if name.split(".")[1:2] in (["store"], ["records"], ["kit"], ["history"])}
    assert not [name for name in reached(graph, below) if "library" in name or "piece" in name or "worlds" in name]
    outside = {name for module in found if module.name in core for name in foreign(module.path)}
    assert outside <= {"__future__", "ast", "collections", "importlib", "itertools", "math", "msgspec", "re", "typing"}


def tree_name(module: str) -> str:
    """The full name of a module of the core."""
    return f"turnkeeper.history.slots.{module}"


def reached(graph: dict[str, set[str]], start: set[str]) -> set[str]:
    """Every module that these import, and so on."""
    seen, todo = set(start), list(start)
    while todo:
        todo += (more := graph[todo.pop()] - seen)
        seen |= more
    return seen


def strangers(graph: dict[str, set[str]], core: set[str]) -> set[str]:
    """What the core imports beyond the pure ground floor."""
    ground = {f"turnkeeper.{name}" for name in ("errors", "limits", "jsonvalue")}
    return reached(graph, core) - core - ground


def foreign(path: Path) -> set[str]:
    """The modules of others that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


def test_a_planted_import_would_be_found(tmp_path):
    graph = {tree_name("folding"): {"turnkeeper.jsonvalue", "turnkeeper.store.sql"}, "turnkeeper.jsonvalue": set()}
    graph["turnkeeper.store.sql"] = set()
    assert strangers(graph, {tree_name("folding")}) == {"turnkeeper.store.sql"}
    (tmp_path / "x.py").write_text("from sqlite3 import connect\nimport time\nfrom .a import b\n")
    assert foreign(tmp_path / "x.py") == {"sqlite3", "time"}
