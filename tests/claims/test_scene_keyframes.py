"""Claims of the areas S keyframes and S state-before: two caches that may be thrown away, and what a message builds on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

import turnkeeper
from tests.support.scenes import Held, Scene, exact, gone, row, scene, sets, stats
from turnkeeper.history.content import message
from turnkeeper.turns.land import Outcome
from turnkeeper.turns.pending import Request


async def long_take(store: turnkeeper.Store, count: int) -> Scene:
    """A take of `count` replies, each setting `n` and a name of its own."""
    made = await scene(store)
    for i in range(count):
        await made.reply(*sets(n=i, **{f"m{i}": i}))
    return made


def places(held: Held, take: int = 0) -> list[int]:
    """The positions of a take's keyframes."""
    return [frame.position for frame in held.frames(take)]


@pytest.mark.claim("S-088")
async def test_two_thousand_messages_have_forty_keyframes_each_the_state_there(store):
    made = await scene(store)
    for i in range(100):
        said = [message("assistant", str(n)) for n in range(20)]
        outcome = Outcome(Request("reply", None, None, b""), 0, None, said, sets(n=i, **{f"m{i % 30}": i}), [])
        await store.turns.commit_turn(made.session_id, outcome)
    grown = await made.held()
    assert places(grown) == list(range(49, 2000, 50))
    grown.check_caches(0)
    await made.forget_caches()
    await made.history.record_message_deltas(made.session_id, 0, sets(first=1))
    rebuilt = await made.held()
    assert places(rebuilt) == list(range(49, 2000, 50))
    rebuilt.check_caches(0)


@pytest.mark.claim("S-089", "S-090")
async def test_a_change_keeps_the_keyframes_before_it_and_rewrites_the_rest(store):
    made = await long_take(store, 230)
    before = await made.holds()
    await made.again(119, *sets(changed=1))
    after = await made.holds()
    assert places(after) == [49, 99, 149, 199]
    assert after.frames(0)[:2] == before.frames(0)[:2]
    assert all(a != b for a, b in zip(after.frames(0)[2:], before.frames(0)[2:], strict=True))
    await made.again(99, *sets(at_the_frame=1))  # the hundredth message itself
    again = await made.holds()
    assert again.frames(0)[0] == before.frames(0)[0]
    assert "at_the_frame" in again.frames(0)[1].state["vars"]


@pytest.mark.claim("S-089")
async def test_a_keyframe_before_a_change_is_not_written_again(store):
    made = await long_take(store, 110)
    async with store.transaction() as tx:  # a mark that a rewrite would remove
        first = (await made.held()).frames(0)[0]
        marked = {"vars": {**first.state["vars"], "mark": True}}
        await tx.update(replace(first, state=marked), expect={})
    await made.history.cut_messages(made.session_id, [60])
    held = await made.held()
    assert held.frames(0)[0].state == marked
    assert "mark" in (await made.vars())  # and it is what the rebuild began with


@pytest.mark.claim("S-091", "S-092")
async def test_a_cut_in_the_middle_leaves_keyframes_of_the_shortened_path_only(store):
    made = await long_take(store, 200)
    await made.history.cut_messages(made.session_id, [75])
    held = await made.holds()
    assert places(held) == [49, 100, 150]  # the two-hundredth is no more
    assert held.frames(0)[1].state["vars"]["n"] == 100
    await made.history.cut_messages(made.session_id, list(range(10)))
    held = await made.holds()
    assert places(held) == [59, 110, 160]
    assert [frame.shown_count for frame in held.frames(0)] == [50, 100, 150]


@pytest.mark.claim("S-093")
async def test_an_append_without_deltas_writes_no_cache(store):
    made = await long_take(store, 3)
    before = await made.held()
    await made.notes(2)
    await made.reply()
    after = await made.holds()
    assert (after.tips(0), after.frames(0)) == (before.tips(0), before.frames(0))
    await made.notes(43)
    assert places(await made.holds()) == []
    await made.notes(4)
    assert places(await made.holds()) == [49]  # a fiftieth message has its keyframe, whatever it is


@pytest.mark.claim("S-094")
async def test_both_caches_are_refreshed_inside_the_change_or_not_at_all(store, url):
    made = await long_take(store, 55)
    await made.again(20, *sets(other=1))
    before = await made.holds()

    async def changes(history: Any) -> None:
        await history.select_swipe(made.session_id, 20, 0)
        await history.cut_messages(made.session_id, [3])
        await history.record_message_deltas(made.session_id, 5, sets(edit=1))
        await history.set_branch_base(made.session_id, {"vars": {"base": 1}})

    with pytest.raises(ZeroDivisionError):
        async with store.transaction() as tx:
            await changes(tx.history)
            raise ZeroDivisionError
    async with turnkeeper.open(url) as opened:
        assert await Scene(opened, made.session_id).held() == before
    async with store.transaction() as tx:
        await changes(tx.history)
    after = await made.holds()
    assert after.tips(0) != before.tips(0)
    assert after.frames(0) != before.frames(0)


@pytest.mark.claim("S-095")
async def test_the_tip_cache_names_the_last_shown_message_at_the_last_change(store):
    made = await long_take(store, 6)
    assert {tip.position for tip in (await made.holds()).tips(0)} == {5}
    await made.notes(2)  # changes no state
    assert {tip.position for tip in (await made.holds()).tips(0)} == {5}
    await made.history.cut_messages(made.session_id, [6, 4])
    assert {tip.position for tip in (await made.holds()).tips(0)} == {7}
    await made.history.cut_messages(made.session_id, [7])
    assert {tip.position for tip in (await made.holds()).tips(0)} == {5}  # 6 is a hole
    fork = await made.history.fork(made.session_id, at=6)
    assert {tip.position for tip in (await made.holds()).tips(fork)} == {5}
    await made.history.cut_messages(made.session_id, [5])
    assert {tip.position for tip in (await made.holds()).tips(0)} == {3}
    await made.history.cut_messages(made.session_id, [0, 1, 2, 3])
    assert {tip.position for tip in (await made.holds()).tips(0)} == {-1}


@pytest.mark.claim("S-097")
async def test_without_any_cache_every_answer_is_the_same_and_the_next_change_is_right(store):
    made = await long_take(store, 110)
    await made.reply(*stats(hp=0), row("rat", 1))
    fork = await made.history.fork(made.session_id, at=104)
    await made.reply(gone("vars", "m3"), *stats(hp=1), take=fork)

    async def answers() -> list[Any]:
        return [
            [exact(await made.state(take)) for take in (0, fork)],
            [exact(await made.state(take, at=at)) for take in (0, fork) for at in (0, 48, 49, 50, 99, 104)],
            [exact(await made.before(at, take)) for take in (0, fork) for at in (0, 49, 50, 51, 104)],
            [
                await made.history.scene_deltas(made.session_id, at, take=take)
                for take in (0, fork)
                for at in (0, 50, 101)
            ],
        ]

    wanted = await answers()
    await made.forget_caches()
    assert await answers() == wanted
    await made.reply(*sets(more=1))
    assert (await made.vars())["m0"] == 0
    assert (await made.state())["tracker.stats"] == {"hp": 0}
    held = await made.held()
    assert exact({tip.slot: tip.state for tip in held.tips(0)}) == exact(held.state(0))
    await made.history.cut_messages(made.session_id, [2])
    await made.holds(takes=[0])


@pytest.mark.claim("S-098")
@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("caches", ["there", "missing", "stale"])
async def test_a_read_writes_nothing_whatever_its_caches_are(store, url, caches):
    made = await long_take(store, 55)
    if caches == "missing":
        await made.forget_caches()
    if caches == "stale":
        async with store.transaction() as tx:
            (tip,) = (await made.held()).tips(0)
            await tx.update(replace(tip, position=3), expect={})
    before, watching = await made.held(), store.watch(poll_s=0.05)
    seen = await store._engine.backend.watch(-1, 0)
    await made.state(), await made.state(at=52), await made.before(20)
    await made.history.scene_deltas(made.session_id, 10, 53)
    assert await store._engine.backend.watch(seen, 0.05) == seen  # nothing has landed
    assert await made.held() == before
    await watching.aclose()


@pytest.mark.claim("S-154", "S-155")
async def test_a_message_builds_on_what_is_before_it_and_the_persons_edits_on_itself(store):
    made = await scene(store)
    await made.reply(*stats(before=1))
    second = await made.reply(*stats(x=1, before=2))
    await made.history.record_deltas(made.session_id, second, await made.shown_version(second), stats(z=1))
    await made.history.record_message_deltas(made.session_id, second, stats(y=1))
    await made.reply(*stats(after=1))
    assert (await made.before(second))["tracker.stats"] == {"before": 1, "y": 1}
    assert (await made.before(second + 1))["tracker.stats"] == {"before": 2, "x": 1, "z": 1, "y": 1}


@pytest.mark.claim("S-156")
async def test_the_first_message_builds_on_the_base_and_its_own_edits(store):
    made = await scene(store)
    await made.history.set_branch_base(made.session_id, {"vars": {"a": 1, "b": 1}})
    first = await made.reply(*sets(a=2, c=2))
    assert (await made.before(first)) == {"vars": {"a": 1, "b": 1}}
    await made.history.record_message_deltas(made.session_id, first, sets(b=5))
    assert (await made.before(first)) == {"vars": {"a": 1, "b": 5}}


@pytest.mark.claim("S-157")
async def test_asking_what_a_message_builds_on_changes_nothing(store):
    made = await long_take(store, 52)
    await made.history.record_message_deltas(made.session_id, 51, sets(edit=1))
    await made.forget_caches()
    before = await made.held()
    for position in (0, 49, 50, 51):
        await made.before(position)
    assert await made.held() == before
