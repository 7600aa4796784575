"""Claims of the area S storage: what is kept of a change, whose it is, and what of it a fork or a restore takes along."""

from __future__ import annotations

import ast

import pytest

from tests.support.scenes import scene, sets, stats
from tests.tidy.tree import SRC
from turnkeeper.errors import Invalid
from turnkeeper.history.content import message
from turnkeeper.history.slots import NewDelta


@pytest.mark.claim("S-063")
async def test_a_versions_deltas_keep_the_order_of_writing(store):
    made = await scene(store)
    await made.reply(*sets(x=3), *sets(y=0), *sets(x=1), *sets(x=2))
    stored = (await made.holds()).table("deltas")
    assert [(delta.version, delta.seq, delta.path, delta.value) for delta in stored] == [
        (0, 0, ["x"], 3), (0, 1, ["y"], 0), (0, 2, ["x"], 1), (0, 3, ["x"], 2),
    ]  # fmt: skip
    assert await made.vars() == {"x": 2, "y": 0}


@pytest.mark.claim("S-064", "S-083")
async def test_whatever_happens_later_no_stored_delta_changes(store):
    made = await scene(store)
    h, s = made.history, made.session_id
    first, second = await made.reply(*stats(hp=1), *sets(a=1)), await made.reply(*stats(hp=2))
    version = await made.again(first, *stats(hp=3))
    await h.record_deltas(s, first, version, stats(hp=4))
    await h.record_message_deltas(s, first, stats(hp=5))
    kept = await made.held()

    for call in (
        lambda: h.record_deltas(s, first, version, stats(hp=6)), lambda: h.record_message_deltas(s, first, stats(hp=7)),
        lambda: h.select_swipe(s, first, 0), lambda: h.cut_swipe(s, first, 1), lambda: h.cut_messages(s, [first]),
        lambda: h.restore_cut(s, [first]), lambda: h.restore_swipe(s, first, 1), lambda: h.fork(s, at=0),
        lambda: h.set_branch_base(s, {"vars": {"b": 1}}), lambda: h.cut_messages(s, [second]),
        lambda: h.restore_cut(s, [second], as_take=True), lambda: h.delete_take(s, 2), lambda: h.undo(s),
        lambda: h.redo(s), lambda: h.add_version(s, first, message("assistant", "…"), take=0),
    ):  # fmt: skip
        await call()
        now = await made.held()
        for name in ("deltas", "message_deltas"):
            assert [row for row in kept.rows[name] if row not in now.rows[name]] == []
        assert now.rows["deltas"] == kept.rows["deltas"]


@pytest.mark.claim("S-065")
@pytest.mark.parametrize("backend", ["sqlite"])
async def test_a_fork_copies_no_delta_of_a_version_and_no_version(store):
    made = await scene(store)
    for i in range(30):
        await made.reply(*sets(n=i, **{f"m{i}": i}))
    before = await made.held()
    fork = await made.history.fork(made.session_id, at=20)
    after = await made.holds()
    for name in ("deltas", "versions"):
        assert after.rows[name] == before.rows[name]
    assert [m.version for m in after.shown(fork)] == [m.version for m in after.shown(0)][:21]
    assert await made.state(fork) == await made.state(0, at=20)


@pytest.mark.claim("S-066", "S-082")
async def test_a_persons_edit_shows_with_either_version_and_a_second_one_replaces_the_first(store):
    made = await scene(store)
    at = await made.reply(*stats(hp=1))
    await made.again(at, *stats(hp=2))
    for value in (3, 4):
        await made.history.record_message_deltas(made.session_id, at, stats(hp=value))
    for index in (0, 1):
        await made.history.select_swipe(made.session_id, at, index)
        assert await made.stats() == {"hp": 4}
        await made.holds()
    await made.history.cut_messages(made.session_id, [at])
    assert await made.stats() == {}
    await made.history.restore_cut(made.session_id, [at])
    assert await made.stats() == {"hp": 4}
    await made.holds()


@pytest.mark.claim("S-067", "S-068")
async def test_a_fork_takes_the_edits_of_its_prefix_and_then_each_take_has_its_own(store):
    made = await scene(store)
    h, s = made.history, made.session_id
    at, later = await made.reply(*stats(hp=1)), await made.reply()
    await h.record_message_deltas(s, at, stats(hp=2))
    await h.record_message_deltas(s, later, stats(late=1))
    fork = await h.fork(s, at=at)
    await made.reply(take=fork)  # stands where the source has a message with an edit
    assert await made.stats(fork) == {"hp": 2}
    await h.record_message_deltas(s, at, stats(mine=1), take=fork)
    await h.record_message_deltas(s, at, stats(yours=1), take=0)
    assert await made.stats(fork) == {"hp": 2, "mine": 1}
    assert await made.stats(0) == {"hp": 2, "yours": 1, "late": 1}
    await h.cut_messages(s, [at], take=0)
    assert (await made.stats(0), await made.stats(fork)) == ({"late": 1}, {"hp": 2, "mine": 1})
    await made.holds()


@pytest.mark.claim("S-069", "S-081")
async def test_a_restore_as_a_new_take_brings_edits_and_tied_writes_each_to_its_version(store):
    made = await scene(store)
    h, s = made.history, made.session_id
    at = await made.reply(*stats(hp=1))
    one = await made.shown_version(at)
    await h.record_deltas(s, at, one, stats(tied=1))
    await h.record_message_deltas(s, at, stats(edit=1))
    await made.again(at, *stats(hp=2))
    await h.cut_messages(s, [at])
    number = await h.restore_cut(s, [at], as_take=True)
    assert (await made.stats(number), await made.stats(0)) == ({"hp": 2, "edit": 1}, {})
    await h.select_swipe(s, at, 0, take=number)
    assert (await made.stats(number), await made.stats(0)) == ({"hp": 1, "tied": 1, "edit": 1}, {})
    await h.restore_cut(s, [at], take=0)
    assert await made.stats(0) == {"hp": 2, "edit": 1}
    await made.holds()


@pytest.mark.claim("S-070")
@pytest.mark.parametrize("person_first", [True, False])
async def test_the_person_is_over_the_tied_write_and_that_is_over_the_version(store, person_first):
    made = await scene(store)
    at = await made.reply(*stats(hp="version"))
    one = await made.shown_version(at)

    async def person() -> None:
        await made.history.record_message_deltas(made.session_id, at, stats(hp="person"))

    if person_first:
        await person()
    await made.history.record_deltas(made.session_id, at, one, stats(hp="tied"))
    assert await made.stats() == {"hp": "person" if person_first else "tied"}
    if not person_first:
        await person()
    assert await made.stats() == {"hp": "person"}
    await made.forget_caches()
    assert await made.stats() == {"hp": "person"}
    own, tied, edits = (held := await made.held()).layers(held.message(0, at))
    assert [[delta.value for delta in layer] for layer in (own, tied, edits)] == [["version"], ["tied"], ["person"]]


@pytest.mark.claim("S-072")
async def test_a_tied_write_applies_only_while_its_version_is_shown(store):
    made = await scene(store)
    at = await made.reply()
    one = await made.shown_version(at)
    await made.history.record_deltas(made.session_id, at, one, stats(hp=1))
    stored = (await made.held()).table("message_deltas")
    await made.again(at)
    assert await made.stats() == {}
    await made.holds()
    await made.history.select_swipe(made.session_id, at, 0)
    assert await made.stats() == {"hp": 1}
    assert (await made.holds()).table("message_deltas") == stored


@pytest.mark.claim("S-073")
async def test_a_fork_takes_the_tied_writes_of_its_prefix_and_sees_no_later_one(store):
    made = await scene(store)
    at = await made.reply()
    one = await made.shown_version(at)
    await made.history.record_deltas(made.session_id, at, one, stats(shared=1))
    fork = await made.history.fork(made.session_id)
    await made.history.record_deltas(made.session_id, at, one, stats(source=1), take=0)
    await made.history.record_deltas(made.session_id, at, one, stats(fork=1), take=fork)
    assert await made.stats(0) == {"shared": 1, "source": 1}
    assert await made.stats(fork) == {"shared": 1, "fork": 1}
    await made.holds()


@pytest.mark.claim("S-074")
@pytest.mark.parametrize("count", [0, 1, 120])
async def test_the_base_is_what_every_rebuild_starts_from(store, count):
    made = await scene(store)
    await made.history.set_branch_base(made.session_id, {"vars": {"base": 1, "n": -1}})
    for i in range(count):
        await made.reply(*sets(n=i))
    assert await made.vars() == {"base": 1, "n": count - 1}
    await made.forget_caches()
    assert await made.vars() == {"base": 1, "n": count - 1}
    if count:
        await made.history.record_message_deltas(made.session_id, 0, sets(edit=1))
        assert await made.vars() == {"base": 1, "n": count - 1, "edit": 1}


@pytest.mark.claim("S-075")
async def test_both_ways_to_make_a_take_from_another_duplicate_the_base(store):
    made = await scene(store)
    h, s = made.history, made.session_id
    await h.set_branch_base(s, {"vars": {"base": 1}})
    await made.reply(*sets(a=1))
    await made.reply(*sets(b=1))
    fork = await h.fork(s, at=0)
    await h.cut_messages(s, [1])
    restored = await h.restore_cut(s, [1], as_take=True)
    await h.delete_take(s, 0)
    await made.forget_caches()
    assert await made.vars(fork) == {"base": 1, "a": 1}
    assert await made.vars(restored) == {"base": 1, "a": 1, "b": 1}
    await h.set_branch_base(s, {"vars": {"base": 2}}, take=fork)
    assert (await made.vars(fork), await made.vars(restored)) == (
        {"base": 2, "a": 1},
        {"base": 1, "a": 1, "b": 1},
    )


@pytest.mark.claim("S-076")
async def test_a_version_may_carry_fifty_thousand_deltas(store):
    made = await scene(store)
    await made.reply(*sets(**{f"v{i}": i for i in range(50_000)}))
    found = await made.vars()
    assert (len(found), found["v0"], found["v49999"]) == (50_000, 0, 49_999)
    async with store.read_view() as rows:
        from turnkeeper.records import DELTAS

        assert await rows.count(DELTAS, made.session_id) == 50_000


@pytest.mark.claim("S-080")
async def test_no_value_that_was_given_or_answered_reaches_what_is_stored(store):
    made = await scene(store)
    given = {"bag": ["lamp"]}
    at = await made.reply(*sets(turn=given))
    await made.history.record_message_deltas(made.session_id, at, sets(person=given))
    await made.history.record_deltas(made.session_id, at, await made.shown_version(at), stats(tied=given))
    await made.history.set_branch_base(made.session_id, {"vars": {"base": given}})
    wanted = {"vars": {name: {"bag": ["lamp"]} for name in ("base", "turn", "person")}}
    wanted["tracker.stats"] = {"tied": {"bag": ["lamp"]}}
    given["bag"].append("rope")
    assert await made.state() == wanted
    for answered in (
        await made.state(),
        await made.state(at=at),
        (await made.history.scene_deltas(made.session_id, at)).before,
    ):
        for slot in answered.values():
            for value in slot.values():
                value["bag"].append("knife")
    for entry in (await made.history.scene_deltas(made.session_id, at)).messages:
        for delta in entry.deltas:
            delta.value["bag"].append("knife")
    assert await made.state() == wanted
    await made.holds()


@pytest.mark.claim("S-084")
def test_deltas_fold_and_slots_reach_no_store_clock_file_or_network():
    pure = {"__future__", "collections", "itertools", "math", "re", "typing", "msgspec", "errors", "jsonvalue"}
    folder = SRC / "turnkeeper" / "history"
    for path in [folder / "fold.py", *(p for p in (folder / "slots").rglob("*.py") if p.name != "generator.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                up = path.parent
                for _ in range(node.level - 1):
                    up = up.parent
                root = (node.module or "").split(".")[0]
                inside = up.is_relative_to(folder / "slots") or (up == folder and root == "slots")
                assert inside or root in pure, f"{path.name} imports {node.module}"
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
                assert {name.split(".")[0] for name in names} <= pure, f"{path.name} imports {names}"
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("open", "__import__"), path.name


async def test_a_write_that_is_refused_in_its_last_delta_keeps_none(store):
    made = await scene(store)
    at = await made.reply()
    before = await made.held()
    with pytest.raises(Invalid):
        await made.history.record_message_deltas(made.session_id, at, [*stats(a=1), NewDelta("nowhere", ["a"], 1)])
    assert await made.held() == before
