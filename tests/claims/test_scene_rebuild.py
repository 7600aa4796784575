"""Claims of the area S rebuild: after each single call the state and its caches are what the shown history gives."""

from __future__ import annotations

from typing import Any

import pytest

import turnkeeper
from tests.support.scenes import Scene, exact, gone, scene, sets, stats
from turnkeeper.errors import Invalid
from turnkeeper.history import History, state
from turnkeeper.history.content import message
from turnkeeper.turns.land import Outcome
from turnkeeper.turns.pending import Request


@pytest.mark.claim("S-120")
async def test_no_caller_has_a_rebuild_to_call_and_each_single_call_is_right_at_once(store):
    assert not [name for name in dir(History) if "rebuild" in name or "refresh" in name]
    made = await scene(store)
    h, s = made.history, made.session_id
    first, second = await made.reply(*sets(a=1)), await made.reply(*sets(a=2, b=2))
    number = await made.again(second, *sets(b=3))
    for call in (
        lambda: h.add_version(s, second, message("assistant", "none")), lambda: h.select_swipe(s, second, 0),
        lambda: h.cut_swipe(s, second, 0), lambda: h.restore_swipe(s, second, 0),
        lambda: h.record_deltas(s, second, number, stats(hp=3)), lambda: h.select_swipe(s, second, 1),
        lambda: h.record_message_deltas(s, first, sets(c=1)), lambda: h.set_branch_base(s, {"vars": {"d": 1}}),
        lambda: h.cut_messages(s, [first]), lambda: h.restore_cut(s, [first], as_take=True),
        lambda: h.restore_cut(s, [first], take=0), lambda: h.fork(s, at=0, activate=True),
        lambda: h.delete_take(s, 2), lambda: h.restore_take(s, 2), lambda: h.undo(s), lambda: h.redo(s),
        lambda: h.choose(s, 0, second, take=0), lambda: h.append_messages(s, [message("user", "so")]),
    ):  # fmt: skip
        await call()
        await made.holds()


@pytest.mark.claim("S-121")
async def test_a_change_whose_rebuild_fails_is_not_made(store, url, monkeypatch):
    made = await scene(store)
    first = await made.reply(*sets(a=1))
    await made.again(first, *sets(a=2))
    before = await made.held()

    def broken(*given: Any) -> Any:
        raise ZeroDivisionError

    for call in (
        lambda: made.history.select_swipe(made.session_id, first, 0),
        lambda: made.history.cut_messages(made.session_id, [first]),
        lambda: made.history.record_deltas(made.session_id, first, 1, stats(hp=1)),
        lambda: made.history.set_branch_base(made.session_id, {"vars": {"z": 1}}),
    ):
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            patch.setattr(state, "layers", broken)
            await call()
        async with turnkeeper.open(url) as opened:
            assert await Scene(opened, made.session_id).held() == before


@pytest.mark.claim("S-122")
async def test_a_rebuild_folds_from_the_nearest_kept_keyframe_else_from_the_base(store, monkeypatch):
    made = await scene(store)
    await made.history.set_branch_base(made.session_id, {"vars": {"base": 1, "n": -1}})
    for i in range(140):
        await made.reply(*sets(n=i, **{f"m{i % 7}": i}))
    folded: list[str] = []
    true = state.fold

    def counting(start: Any, deltas: Any) -> Any:
        taken = list(deltas)
        folded.extend(delta.path[0] for delta in taken)
        return true(start, taken)

    for position in (130, 20):
        await made.again(position, *sets(n="other"))
    monkeypatch.setattr(state, "fold", counting)
    await made.history.select_swipe(made.session_id, 130, 0)
    assert len(folded) == 2 * 40  # those of the forty messages after the hundredth
    folded.clear()
    await made.history.select_swipe(made.session_id, 20, 0)
    assert len(folded) == 2 * 140  # all of them, from the base
    monkeypatch.undo()
    assert (await made.vars())["base"] == 1
    held = await made.holds()
    await made.forget_caches()
    assert exact(await made.state()) == exact(held.state(0))


@pytest.mark.claim("S-123")
async def test_a_landed_reply_is_in_the_state_at_once_and_earlier_keyframes_stay(store):
    made = await scene(store)
    for i in range(60):
        await made.reply(*sets(n=i))
    frames = (await made.holds()).frames(0)
    await made.reply(*sets(n=60, x=[1]), *stats(hp=4))
    assert await made.state() == {"vars": {"n": 60, "x": [1]}, "tracker.stats": {"hp": 4}}
    assert (await made.holds()).frames(0) == frames


@pytest.mark.claim("S-124", "S-126")
async def test_another_version_counts_instead_of_the_first_and_choosing_moves_the_state(store):
    made = await scene(store)
    first = await made.reply(*sets(x=1, only_first=True))
    await made.again(first, *sets(x=2))
    assert await made.vars() == {"x": 2}
    await made.holds()
    await made.reply(*sets(later=1))
    for index, expected in ((0, {"x": 1, "only_first": True}), (1, {"x": 2}), (0, {"x": 1, "only_first": True})):
        await made.history.select_swipe(made.session_id, first, index)
        assert await made.vars() == {**expected, "later": 1}
        await made.holds()


@pytest.mark.claim("S-125")
async def test_a_version_without_deltas_lets_the_state_fall_back(store):
    made = await scene(store)
    await made.reply(*sets(x=1))
    second = await made.reply(*sets(x=2, y=2))
    await made.reply(*sets(z=3))
    assert await made.history.add_version(made.session_id, second, message("assistant", "other")) == 1
    assert await made.vars() == {"x": 1, "z": 3}
    await made.holds()


@pytest.mark.claim("S-127")
async def test_choosing_by_alternative_gives_what_choosing_by_version_gives(store):
    states = []
    for choose in ("select_swipe", "choose"):
        made = await scene(store)
        first = await made.reply(*sets(x=1))
        await made.again(first, *sets(x=2, y=2))
        await made.reply(*sets(z=3))
        for index in (0, 1, 0):
            if choose == "choose":
                await made.history.choose(made.session_id, index, first)
            else:
                await made.history.select_swipe(made.session_id, first, index)
            states.append(exact(await made.state()))
            await made.holds()
    assert states[:3] == states[3:]
    assert states[0] != states[1]


@pytest.mark.claim("S-128", "S-406")
async def test_cutting_the_shown_version_shows_the_nearest_earlier_else_the_nearest_later(store):
    made = await scene(store)
    h, s = made.history, made.session_id
    first = await made.reply(*sets(v=1))
    for n in (2, 3):
        await made.again(first, *sets(v=n))
    await h.select_swipe(s, first, 1)
    await h.cut_swipe(s, first, 1)
    assert await made.vars() == {"v": 1}
    await made.holds()
    await h.restore_swipe(s, first, 1)
    await h.cut_swipe(s, first, 0)
    assert await made.vars() == {"v": 2}  # the nearest later, not the last
    await h.cut_swipe(s, first, 2)
    assert await made.vars() == {"v": 2}  # a version that is not shown
    before = await made.held()
    with pytest.raises(Invalid):
        await h.cut_swipe(s, first, 1)
    assert await made.holds() == before


@pytest.mark.claim("S-406")
async def test_from_the_last_of_three_versions_the_one_before_it_is_shown(store):
    made = await scene(store)
    first = await made.reply(*sets(v=1))
    for n in (2, 3):
        await made.again(first, *sets(v=n))
    await made.history.cut_swipe(made.session_id, first, 2)
    assert await made.vars() == {"v": 2}


@pytest.mark.claim("S-129")
async def test_a_restored_version_counts_exactly_while_it_is_shown(store):
    made = await scene(store)
    h, s = made.history, made.session_id
    first = await made.reply(*sets(v=1, one=1))
    await made.again(first, *sets(v=2))
    await made.reply(*sets(later=1))
    await h.cut_swipe(s, first, 0)
    await h.restore_swipe(s, first, 0)
    assert await made.vars() == {"v": 2, "later": 1}
    await made.holds()
    await h.select_swipe(s, first, 0)
    assert await made.vars() == {"v": 1, "one": 1, "later": 1}
    await made.holds()


@pytest.mark.claim("S-130", "S-131")
async def test_a_cut_of_two_is_rebuilt_from_the_first_and_its_restore_gives_all_back(store):
    made = await scene(store)
    for i in range(110):
        await made.reply(*sets(n=i, **{f"m{i}": i}))
    before = await made.holds()
    await made.history.cut_messages(made.session_id, [70, 57])
    after = await made.holds()
    assert after.frames(0)[0] == before.frames(0)[0]  # at position 49, before both
    assert after.frames(0)[1].position == 101
    assert exact(after.state(0)) != exact(before.state(0))
    await made.history.restore_cut(made.session_id, [57, 70])
    assert (await made.holds()).but("sessions", "takes", "events") == before.but("sessions", "takes", "events")


@pytest.mark.claim("S-132")
async def test_a_restore_as_a_new_take_builds_that_take_and_leaves_the_source(store):
    made = await scene(store)
    for i in range(120):
        await made.reply(*sets(n=i, **{f"m{i}": i}))
    await made.history.cut_messages(made.session_id, [10, 104])
    before = await made.holds()
    number = await made.history.restore_cut(made.session_id, [104], as_take=True)
    after = await made.holds()
    assert [frame.position for frame in after.frames(number)] == [50, 100]
    assert await made.vars(number) == {"n": 104, **{f"m{i}": i for i in range(105) if i != 10}}
    for name in ("messages", "tips", "keyframes", "takes"):
        assert after.table(name, 0) == before.table(name, 0)


@pytest.mark.claim("S-133")
async def test_a_fork_shows_the_state_of_its_own_path(store):
    made = await scene(store)
    for i in range(60):
        await made.reply(*sets(n=i, **{f"m{i % 5}": i}))
    await made.reply(gone("vars", "m0"))
    number = await made.history.fork(made.session_id, at=55)
    assert await made.vars(number) == {"n": 55, "m0": 55, "m1": 51, "m2": 52, "m3": 53, "m4": 54}
    held = await made.holds()
    assert {tip.take for tip in held.tips(number)} == {number}
    assert max(tip.position for tip in held.tips(number)) == 55
    assert [frame.position for frame in held.frames(number)] == [49]
    await made.reply(*sets(fork=1), take=number)
    assert "fork" in await made.vars(number)
    assert "fork" not in await made.vars(0)
    await made.holds()


@pytest.mark.claim("S-134", "S-135")
async def test_a_deleted_take_has_no_derived_state_and_its_restore_builds_it_anew(store):
    made = await scene(store)
    for i in range(55):
        await made.reply(*sets(n=i))
    number = await made.history.fork(made.session_id)
    await made.reply(*sets(fork=1), take=number)
    before, there = await made.holds(), await made.state(number)
    await made.history.delete_take(made.session_id, number)
    after = await made.holds()
    assert (after.tips(number), after.frames(number)) == ([], [])
    assert (after.tips(0), after.frames(0)) == (before.tips(0), before.frames(0))
    await made.history.restore_take(made.session_id, number)
    assert exact(await made.state(number)) == exact(there)
    restored = await made.holds()
    assert (restored.tips(number), restored.frames(number)) == (before.tips(number), before.frames(number))


@pytest.mark.claim("S-136", "S-137")
async def test_a_write_about_a_version_counts_in_this_take_and_only_while_that_version_is_shown(store):
    made = await scene(store)
    first = await made.reply(*stats(hp=1))
    one = await made.shown_version(first)
    fork = await made.history.fork(made.session_id)
    await made.history.record_deltas(made.session_id, first, one, stats(hp=2))
    assert (await made.stats(0), await made.stats(fork)) == ({"hp": 2}, {"hp": 1})
    (stored,) = (await made.holds()).table("message_deltas")
    assert (stored.take, stored.position, stored.version) == (0, first, one)
    await made.again(first, *stats(hp=5))
    await made.history.record_deltas(made.session_id, first, one, stats(mp=3))
    assert await made.stats() == {"hp": 5}
    await made.holds()
    await made.history.select_swipe(made.session_id, first, 0)
    assert await made.stats() == {"hp": 2, "mp": 3}
    await made.holds()


@pytest.mark.claim("S-138")
async def test_a_persons_edit_rewrites_what_follows_it_in_this_take_alone(store):
    made = await scene(store)
    for i in range(120):
        await made.reply(*sets(n=i))
    fork = await made.history.fork(made.session_id)
    before = await made.held()
    await made.history.record_message_deltas(made.session_id, 60, sets(edit=1))
    after = await made.holds(sparse=[fork])
    assert after.frames(0)[0] == before.frames(0)[0]
    assert after.frames(0)[1] != before.frames(0)[1]
    for name in ("tips", "keyframes", "takes"):
        assert after.table(name, fork) == before.table(name, fork)


@pytest.mark.claim("S-140")
async def test_a_later_message_that_sets_the_same_path_wins_over_an_edit_until_it_is_cut(store):
    made = await scene(store)
    early = await made.reply(*stats(hp=1))
    late = await made.reply(*stats(hp=9))
    await made.history.record_message_deltas(made.session_id, early, stats(hp=5))
    assert await made.stats() == {"hp": 9}
    await made.history.cut_messages(made.session_id, [late])
    assert await made.stats() == {"hp": 5}
    await made.holds()


async def test_a_turn_that_replaces_several_messages_rebuilds_the_take_it_makes(store):
    made = await scene(store)
    request = Request("reply", None, None, b"")
    said = [message("user", "go"), message("assistant", "call"), message("assistant", "done")]
    await store.turns.commit_turn(made.session_id, Outcome(request, 0, None, said, sets(x=1), []))
    again = Outcome(Request("regenerate", None, None, b""), 0, 1, said[1:], sets(x=2), [])
    landed = await store.turns.commit_turn(made.session_id, again)
    assert (landed.take, await made.vars(0), await made.vars(landed.take)) == (1, {"x": 1}, {"x": 2})
    await made.holds()
