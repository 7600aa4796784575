"""Claims of the area S range-read: the state before a message and, message by message, what changed it."""

from __future__ import annotations

import random
from typing import Any

import pytest

import turnkeeper
from tests.support.scenes import Scene, exact, folded, gone, row, scene, sets, stats
from turnkeeper.history.range_read import RangeRead


async def three_layers(store: turnkeeper.Store) -> Scene:
    """Four messages; the one at 1 has deltas in all three layers."""
    made = await scene(store)
    await made.reply(*stats(hp=1), *sets(a=1))
    at = await made.reply(*stats(hp=2, mp=2))
    await made.history.record_message_deltas(made.session_id, at, stats(hp=4))
    await made.history.record_deltas(made.session_id, at, await made.shown_version(at), stats(hp=3))
    await made.reply(row("rat", 1), *sets(b=2))
    await made.reply(*sets(c=3))
    return made


def told(read: RangeRead | None) -> list[tuple[int, list[tuple[str, Any]]]]:
    """Positions with the paths and values of their deltas."""
    assert read is not None
    return [(entry.position, [(".".join([d.slot, *d.path]), d.value) for d in entry.deltas]) for entry in read.messages]


@pytest.mark.claim("S-158", "S-161")
async def test_a_range_is_the_state_before_it_and_each_shown_message_to_its_end_or_to_the_tip(store):
    made = await three_layers(store)
    read = await made.history.scene_deltas(made.session_id, 1, 2)
    assert read.before == {"vars": {"a": 1}, "tracker.stats": {"hp": 1}}
    assert [entry.position for entry in read.messages] == [1, 2]
    to_the_tip = await made.history.scene_deltas(made.session_id, 1)
    assert to_the_tip == await made.history.scene_deltas(made.session_id, 1, 3)
    assert [entry.position for entry in to_the_tip.messages] == [1, 2, 3]
    assert told(to_the_tip)[1:] == [
        (2, [("tracker.party.rat", {"key": "rat", "value": 1}), ("vars.b", 2)]),
        (3, [("vars.c", 3)]),
    ]


@pytest.mark.claim("S-159")
async def test_the_state_before_a_range_has_nothing_of_its_first_message_an_edit_there_neither(store):
    made = await three_layers(store)
    await made.history.record_message_deltas(made.session_id, 1, stats(luck=7))
    read = await made.history.scene_deltas(made.session_id, 1)
    assert read.before["tracker.stats"] == {"hp": 1}
    assert ("tracker.stats.luck", 7) in told(read)[0][1]
    assert (await made.before(1))["tracker.stats"] == {"hp": 4, "luck": 7}


@pytest.mark.claim("S-160", "S-170")
async def test_the_layers_come_in_fold_order_and_can_be_told_apart(store):
    made = await three_layers(store)
    read = await made.history.scene_deltas(made.session_id, 0)
    plain, layered = read.messages[0], read.messages[1]
    assert [(".".join(d.path), d.value) for d in layered.deltas] == [("hp", 2), ("mp", 2), ("hp", 3), ("hp", 4)]
    assert (layered.generated_from, layered.person_from) == (2, 3)
    assert (plain.generated_from, plain.person_from) == (2, 2)
    only_edited = (await made.notes())[0]
    await made.history.record_message_deltas(made.session_id, only_edited, stats(x=1))
    only_tied = (await made.notes())[0]
    await made.history.record_deltas(made.session_id, only_tied, await made.shown_version(only_tied), stats(y=1))
    entries = (await made.history.scene_deltas(made.session_id, only_edited)).messages
    assert [(e.generated_from, e.person_from, len(e.deltas)) for e in entries] == [(0, 0, 1), (0, 1, 1)]
    whole = read.before
    for entry in (await made.history.scene_deltas(made.session_id, 0)).messages:
        whole = folded(whole, entry.deltas)
    assert exact(whole) == exact(await made.state())


@pytest.mark.claim("S-162")
async def test_prefixes_leave_out_other_slots_while_the_state_before_stays_whole(store):
    made = await three_layers(store)
    await made.history.record_message_deltas(made.session_id, 1, sets(edit=1))
    read = await made.history.scene_deltas(made.session_id, 1, slot_prefixes=["tracker."])
    assert read.before == {"vars": {"a": 1}, "tracker.stats": {"hp": 1}}
    assert told(read) == [
        (1, [("tracker.stats.hp", 2), ("tracker.stats.mp", 2), ("tracker.stats.hp", 3), ("tracker.stats.hp", 4)]),
        (2, [("tracker.party.rat", {"key": "rat", "value": 1})]),
        (3, []),
    ]
    assert (read.messages[0].generated_from, read.messages[0].person_from) == (2, 3)
    others = await made.history.scene_deltas(made.session_id, 1, slot_prefixes=["vars", "tracker.party"])
    assert [[slot for slot, _ in deltas] for _, deltas in told(others)] == [
        ["vars.edit"], ["tracker.party.rat", "vars.b"], ["vars.c"],
    ]  # fmt: skip
    assert (others.messages[0].generated_from, others.messages[0].person_from) == (0, 0)
    assert [deltas for _, deltas in told(await made.history.scene_deltas(made.session_id, 1, slot_prefixes=[]))] == [
        [], [], [],
    ]  # fmt: skip


@pytest.mark.claim("S-163")
@pytest.mark.parametrize("seed", range(3))
async def test_every_range_of_a_random_history_folds_to_the_state_at_its_end(store, seed):
    made, dice = await scene(store), random.Random(seed)
    names = ["a", "b", "c"]
    for i in range(24):
        await made.reply(*sets(**{dice.choice(names): i}), *([gone("vars", dice.choice(names))] if i % 3 else []))
        at = dice.randrange(i + 1)
        if at in {one.position for one in (await made.held()).shown(0)}:
            match dice.randrange(5):
                case 0:
                    await made.again(at, *stats(**{dice.choice(names): i}))
                case 1:
                    await made.history.record_message_deltas(made.session_id, at, [row(dice.choice(names), i)])
                case 2:
                    version = await made.shown_version(at)
                    await made.history.record_deltas(made.session_id, at, version, [row(dice.choice(names), -i)])
                case 3:
                    await made.history.cut_messages(made.session_id, [at])
    positions = [one.position for one in (await made.held()).shown(0)]
    for first in positions:
        for last in (one for one in positions if one >= first):
            read = await made.history.scene_deltas(made.session_id, first, last)
            state = read.before
            for entry in read.messages:
                state = folded(state, entry.deltas)
            assert exact(state) == exact(await made.state(at=last))
    await made.holds()


@pytest.mark.claim("S-164")
async def test_a_range_read_changes_nothing(store):
    made = await three_layers(store)
    await made.forget_caches()
    before, seen = await made.held(), await store._engine.backend.watch(-1, 0)
    for last in (None, 1, 3, 0):
        await made.history.scene_deltas(made.session_id, 1, last, slot_prefixes=["vars"])
    assert await store._engine.backend.watch(seen, 0.05) == seen  # nothing has landed
    assert await made.held() == before


@pytest.mark.claim("S-165")
async def test_a_range_that_ends_before_it_starts_is_empty(store):
    made = await three_layers(store)
    read = await made.history.scene_deltas(made.session_id, 3, 1)
    assert read.messages == []


@pytest.mark.claim("S-166")
async def test_an_unknown_or_deleted_take_answers_none(store):
    made = await three_layers(store)
    fork = await made.history.fork(made.session_id)
    assert await made.history.scene_deltas(made.session_id, 0, take=7) is None
    assert await made.history.scene_deltas(made.session_id, 0, take=fork) is not None
    await made.history.delete_take(made.session_id, fork)
    assert await made.history.scene_deltas(made.session_id, 0, take=fork) is None


@pytest.mark.claim("S-167")
@pytest.mark.parametrize("end", ["first", "last"])
async def test_a_message_that_is_unknown_or_cut_or_of_another_take_answers_none(store, end):
    made = await three_layers(store)
    fork = await made.history.fork(made.session_id)
    (elsewhere,) = await made.notes(take=fork)
    await made.history.cut_messages(made.session_id, [2], take=0)
    for wrong in (99, -1, 2, elsewhere):
        ends = {"first": 0, "last": 3, end: wrong}
        assert await made.history.scene_deltas(made.session_id, ends["first"], ends["last"], take=0) is None, wrong
    assert await made.history.scene_deltas(made.session_id, 0, 3, take=0) is not None


@pytest.mark.claim("S-168")
async def test_cut_messages_inside_a_range_are_left_out(store):
    made = await three_layers(store)
    await made.history.cut_messages(made.session_id, [2])
    read = await made.history.scene_deltas(made.session_id, 1, 3)
    assert [entry.position for entry in read.messages] == [1, 3]


@pytest.mark.claim("S-169")
async def test_another_version_brings_its_own_deltas(store):
    made = await three_layers(store)
    await made.again(1, *stats(hp=20))
    shown = told(await made.history.scene_deltas(made.session_id, 1, 1))
    assert shown == [(1, [("tracker.stats.hp", 20), ("tracker.stats.hp", 4)])]  # the person's edit stays
    await made.history.select_swipe(made.session_id, 1, 0)
    shown = told(await made.history.scene_deltas(made.session_id, 1, 1))
    assert [value for _, value in shown[0][1]] == [2, 2, 3, 4]


@pytest.mark.claim("S-171")
async def test_a_fork_answers_as_its_source_did(store):
    made = await three_layers(store)
    await made.history.cut_messages(made.session_id, [0])
    source = await made.history.scene_deltas(made.session_id, 1, 2)
    fork = await made.history.fork(made.session_id, at=2)
    read = await made.history.scene_deltas(made.session_id, 1, take=fork)
    assert (read.before, told(read)) == (source.before, told(source))
    assert [(e.generated_from, e.person_from) for e in read.messages] == [
        (e.generated_from, e.person_from) for e in source.messages
    ]
