"""Claims of the areas S guard, S limits and S import: what a later write may rest on, how large it may be, what comes first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import turnkeeper
from tests.support.scenes import Scene, exact, scene, sets, stats
from turnkeeper.errors import Conflict, Invalid, NotAllowed, NotFound, TooLarge
from turnkeeper.history.content import message
from turnkeeper.history.later import Expect
from turnkeeper.history.slots import NewDelta
from turnkeeper.transfer.imported import Imported, ImportedMessage, ImportedSession, ImportedTake, ImportedVersion

DOORS = ["person", "background"]
CEILING = 1_000_000


async def write(made: Scene, door: str, position: int, deltas: list[NewDelta], **more: Any) -> Any:
    """Write through one of the two doors after the landing; the background one about the version that is shown."""
    if door == "person":
        return await made.history.record_message_deltas(made.session_id, position, deltas, **more)
    found = [one for one in (await made.held()).table("messages") if one.position == position]
    version = more.pop("version", found[0].version if found else 0)
    return await made.history.record_deltas(made.session_id, position, version, deltas, **more)


async def refused(made: Scene, kind: type[Exception], work: Callable[[], Awaitable[Any]]) -> Any:
    """Check that a write is refused and nothing of it is stored; answer the error."""
    before = await made.held()
    with pytest.raises(kind) as caught:
        await work()
    assert await made.held() == before
    return caught.value


def hp(value: Any = None, *, absent: bool = False) -> list[Expect]:
    """An expectation of one field."""
    return [Expect("tracker.stats", ["hp"], value, absent)]


@pytest.mark.claim("S-141", "S-401")
@pytest.mark.parametrize("door", DOORS)
async def test_an_outdated_revision_is_refused_and_the_current_one_passes(store, door):
    made = await scene(store)
    at = await made.reply(*stats(hp=1))
    seen = (await made.held()).take(0).revision
    await made.reply(*stats(mp=1))
    error = await refused(made, Conflict, lambda: write(made, door, at, stats(hp=2), revision=seen))
    now = (await made.held()).take(0).revision
    assert (error.reason, error.revision) == ("stale-revision", now)
    await write(made, door, at, stats(hp=2), revision=now)
    assert await made.stats() == {"hp": 2, "mp": 1}
    await refused(made, Conflict, lambda: write(made, door, at, stats(hp=3), revision=now))  # this write moved it


@pytest.mark.claim("S-142")
@pytest.mark.parametrize("door", DOORS)
async def test_one_expectation_that_is_not_met_refuses_the_whole_write(store, door):
    made = await scene(store)
    at = await made.reply(*stats(hp=1, mp=1))
    wrong = [*hp(1), Expect("tracker.stats", ["mp"], 2)]
    await refused(made, Conflict, lambda: write(made, door, at, stats(hp=5, mp=5), expect=wrong))
    await refused(made, Conflict, lambda: write(made, door, at, stats(hp=5, mp=5), expect=wrong[::-1]))
    for unlike in (True, 1.0, "1", None):
        await refused(made, Conflict, lambda unlike=unlike: write(made, door, at, stats(hp=5), expect=hp(unlike)))
    await write(made, door, at, stats(hp=5, mp=5), expect=[*hp(1), Expect("tracker.stats", ["mp"], 1)])
    assert await made.stats() == {"hp": 5, "mp": 5}


@pytest.mark.claim("S-143")
@pytest.mark.parametrize("door", DOORS)
async def test_absent_is_not_the_same_as_none(store, door):
    made = await scene(store)
    at = await made.reply(*stats(hp=None))
    await refused(made, Conflict, lambda: write(made, door, at, stats(hp=1), expect=hp(absent=True)))
    missing = [Expect("tracker.stats", ["mp"], None)]
    await refused(made, Conflict, lambda: write(made, door, at, stats(hp=1), expect=missing))
    await write(made, door, at, stats(mp=1), expect=[*hp(None), Expect("tracker.stats", ["mp"], absent=True)])
    assert await made.stats() == {"hp": None, "mp": 1}


@pytest.mark.claim("S-144")
@pytest.mark.parametrize("door", DOORS)
async def test_what_was_expected_is_stored_nowhere(store, door):
    made = await scene(store)
    await made.reply(*stats(hp="before-the-write"))
    at = await made.reply(*stats(mp=1))
    before = await made.held()
    await write(made, door, at, stats(hp="after-it"), expect=hp("before-the-write"))
    after = await made.held()
    new = [row for name, rows in after.rows.items() for row in rows if row not in before.rows[name]]
    assert "before-the-write" not in repr(new)
    assert "after-it" in repr(new)


@pytest.mark.claim("S-145")
@pytest.mark.parametrize("door", DOORS)
async def test_without_a_guard_a_write_is_taken_as_it_stands_and_the_later_one_wins(store, door):
    made = await scene(store)
    at = await made.reply(*stats(hp=1))
    await write(made, door, at, stats(hp=2))
    await write(made, door, at, stats(hp=3))
    assert await made.stats() == {"hp": 3}


@pytest.mark.claim("S-146")
async def test_a_persons_expectation_is_judged_through_that_message_only(store):
    made = await scene(store)
    at = await made.reply(*stats(hp=1))
    await write(made, "background", at, stats(hp=2))
    await made.reply(*stats(hp=9))
    for wrong in (1, 9):
        await refused(made, Conflict, lambda wrong=wrong: write(made, "person", at, stats(hp=5), expect=hp(wrong)))
    await write(made, "person", at, stats(hp=5), expect=hp(2))


@pytest.mark.claim("S-147")
async def test_a_background_expectation_is_judged_as_if_its_version_were_shown(store):
    made = await scene(store)
    at = await made.reply(*stats(hp=1))
    one = await made.shown_version(at)
    await made.again(at, *stats(hp=2))
    await refused(made, Conflict, lambda: write(made, "background", at, stats(mp=1), version=one, expect=hp(2)))
    await write(made, "background", at, stats(mp=1), version=one, expect=hp(1))
    await made.history.select_swipe(made.session_id, at, 0)
    assert await made.stats() == {"hp": 1, "mp": 1}


@pytest.mark.claim("S-148")
@pytest.mark.parametrize("door", DOORS)
async def test_of_two_guarded_writes_at_once_exactly_one_succeeds(url, door):
    async with turnkeeper.open(url) as one, turnkeeper.open(url) as two:
        made = await scene(one)
        at = await made.reply(*stats(hp=0))
        scenes = [made, Scene(two, made.session_id)]
        for n in range(10):
            ends = await asyncio.gather(
                *(write(each, door, at, stats(hp=n + 1), expect=hp(n)) for each in scenes * 2), return_exceptions=True
            )
            lost = [end for end in ends if isinstance(end, BaseException)]
            assert [(type(end), end.reason) for end in lost] == [(Conflict, "expectation")] * 3
        await made.holds()


@pytest.mark.claim("S-149")
async def test_a_persons_write_of_what_shows_already_records_nothing(store):
    made = await scene(store)
    at = await made.reply(*stats(hp=1), *sets(bag=["lamp"]))
    before = await made.held()
    assert await write(made, "person", at, [*stats(hp=1), *sets(bag=["lamp"])]) == 0
    assert await write(made, "person", at, [NewDelta("vars", ["nothing"], removed=True)]) == 0
    assert await made.held() == before
    assert await write(made, "person", at, [*stats(hp=1, mp=1)]) == 1
    assert [delta.path for delta in (await made.held()).table("message_deltas")] == [["mp"]]


@pytest.mark.claim("S-150")
async def test_setting_a_field_back_to_what_it_was_before_the_reply_is_recorded(store):
    made = await scene(store)
    await made.reply(*stats(hp=5))
    at = await made.reply(*stats(hp=7))
    assert await write(made, "person", at, stats(hp=5)) == 1
    await made.again(at, *stats(hp=9))
    assert await made.stats() == {"hp": 5}


@pytest.mark.claim("S-151")
@pytest.mark.parametrize("door", DOORS)
async def test_a_message_that_is_not_shown_there_takes_no_later_write(store, door):
    made = await scene(store)
    at, cut = await made.reply(), await made.reply()
    fork = await made.history.fork(made.session_id)
    (elsewhere,) = await made.notes(take=fork)
    dead = await made.history.fork(made.session_id)
    await made.history.delete_take(made.session_id, dead)
    await made.history.cut_messages(made.session_id, [cut], take=0)
    for position, take in ((99, 0), (-1, 0), (cut, 0), (elsewhere, 0), (at, dead), (at, 77)):
        await refused(made, NotFound, lambda p=position, t=take: write(made, door, p, stats(hp=1), take=t))


@pytest.mark.claim("S-152")
async def test_a_version_that_this_message_of_this_take_does_not_hold_takes_no_write(store):
    made = await scene(store)
    at, other = await made.reply(), await made.reply()
    fork = await made.history.fork(made.session_id)
    of_the_fork = await made.again(at, take=fork)
    for version in (await made.shown_version(other), of_the_fork, 999, -1):
        await refused(made, NotFound, lambda v=version: write(made, "background", at, stats(hp=1), version=v, take=0))


@pytest.mark.claim("S-153")
@pytest.mark.parametrize("door", DOORS)
async def test_the_reason_of_a_refusal_tells_a_stale_revision_from_an_expectation(store, door):
    made = await scene(store)
    at = await made.reply(*stats(hp=1))
    stale = await refused(made, Conflict, lambda: write(made, door, at, stats(hp=2), revision=-5, expect=hp(1)))
    unmet = await refused(made, Conflict, lambda: write(made, door, at, stats(hp=2), expect=hp(7)))
    assert (stale.reason, unmet.reason) == ("stale-revision", "expectation")
    assert (unmet.slot, list(unmet.path)) == ("tracker.stats", ["hp"])
    assert str(stale) != str(unmet)


# limits


def filling(size: int) -> list[NewDelta]:
    """A write of one delta that takes so many bytes, in letters of two bytes."""
    empty = len('[{"path":["big"],"removed":false,"slot":"tracker.stats","value":""}]')
    rest = size - empty
    return stats(big="é" * (rest // 2) + "x" * (rest % 2))


@pytest.mark.claim("S-085")
@pytest.mark.parametrize("door", DOORS)
async def test_a_later_write_of_a_million_bytes_passes_and_one_more_is_refused(store, door):
    made = await scene(store)
    at = await made.reply()
    error = await refused(made, TooLarge, lambda: write(made, door, at, filling(CEILING + 1)))
    assert (error.limit, error.size) == (CEILING, CEILING + 1)
    await write(made, door, at, filling(CEILING))
    assert len((await made.stats())["big"]) < CEILING * 3 // 5


@pytest.mark.claim("S-085")
async def test_a_base_of_a_million_bytes_passes_and_one_more_is_refused(store):
    made = await scene(store)
    room = CEILING - len('{"vars":{"big":""}}')
    text = "é" * (room // 2) + "x" * (room % 2)
    error = await refused(
        made, TooLarge, lambda: made.history.set_branch_base(made.session_id, {"vars": {"big": text + "x"}})
    )
    assert (error.limit, error.size) == (CEILING, CEILING + 1)
    await made.history.set_branch_base(made.session_id, {"vars": {"big": text}})
    assert await made.vars() == {"big": text}


@pytest.mark.claim("S-086")
@pytest.mark.parametrize("door", DOORS)
async def test_the_ceiling_counts_the_write_alone(store, door):
    made = await scene(store)
    at = await made.reply()
    for name in ("one", "two"):
        await write(made, door, at, stats(**{name: "x" * 900_000}))
    assert {name: len(value) for name, value in (await made.stats()).items()} == {"one": 900_000, "two": 900_000}


@pytest.mark.claim("S-087")
async def test_a_turns_own_deltas_are_not_refused_for_their_size(store):
    made = await scene(store)
    await made.reply(*stats(**{name: name * 1_000_000 for name in "abc"}))
    assert sum(len(value) for value in (await made.stats()).values()) == 3_000_000


# what an import brings


def source(texts: list[str], **variables: Any) -> Imported:
    """A chat of another program: one take with variables."""
    said = tuple(
        ImportedMessage("assistant", None, False, None, {}, (ImportedVersion([{"type": "text", "text": t}], {}, {}, None),), 0)
        for t in texts
    )  # fmt: skip
    take = ImportedTake("main", said, variables, {}, True)
    return Imported("other", f"{len(texts)}{sorted(variables)}", (ImportedSession("1", "Chat", (take,), {}, None),), ())


@pytest.mark.claim("S-196", "S-198")
@pytest.mark.parametrize("texts", [[], ["Hello.", "And?"]])
async def test_imported_variables_are_the_base_also_of_a_chat_without_messages(store, texts):
    report = await store.transfer.import_session(source(texts, lamp="lit", n=3))
    made = Scene(store, report.session_id)
    assert await made.state() == {"vars": {"lamp": "lit", "n": 3}}
    held = await made.holds()
    assert [(base.slot, base.state) for base in held.table("bases")] == [("vars", {"lamp": "lit", "n": 3})]
    if texts:
        assert await made.before(0) == {"vars": {"lamp": "lit", "n": 3}}
    session = await store.session(report.session_id)
    async with session.turn("Go on.") as turn:
        assert dict(turn.vars) == {"lamp": "lit", "n": 3}
        turn.vars.add("n", 1)
        turn.reply("So be it.")
    assert await made.vars() == {"lamp": "lit", "n": 4}


@pytest.mark.claim("S-197")
async def test_cuts_choices_and_forks_leave_the_base_alone(store):
    report = await store.transfer.import_session(source(["Hello.", "And?"], lamp="lit"))
    made = Scene(store, report.session_id)
    h, s = made.history, made.session_id
    await h.add_version(s, 0, message("assistant", "Another greeting."))
    await h.select_swipe(s, 0, 0)
    fork = await h.fork(s, at=0)
    empty = await h.fork(s, at=-1)
    await h.cut_messages(s, [0, 1])
    restored = await h.restore_cut(s, [1], as_take=True)
    await h.delete_take(s, 0)
    await h.restore_take(s, 0)
    for take in (0, fork, empty, restored):
        assert await made.vars(take) == {"lamp": "lit"}
    await made.holds()


@pytest.mark.claim("S-199")
async def test_a_base_meets_the_rules_of_any_other_door(store):
    made = await scene(store)
    await made.reply(*sets(a=1))
    good = {"vars": {"b": 1}}
    for kind, wrong in (
        (Invalid, {"nowhere": {}}), (NotAllowed, {"tracker.stats": {"hp": 1}}), (NotAllowed, {"summary": []}),
        (NotAllowed, {"skills": {"a": True}}), (Invalid, {"global": []}), (Invalid, {"vars": ["a"]}),
        (TooLarge, {"vars": {"big": "x" * CEILING}}), (NotAllowed, {"tracker-record:x": {"a": 1}}),
    ):  # fmt: skip
        await refused(made, kind, lambda w=wrong: made.history.set_branch_base(made.session_id, {**good, **w}))
    await refused(made, NotFound, lambda: made.history.set_branch_base(made.session_id, good, take=4))


@pytest.mark.claim("S-200")
async def test_a_base_set_under_a_history_shows_at_once_in_state_and_caches(store):
    made = await scene(store)
    for i in range(55):
        await made.reply(*sets(n=i))
    await made.history.set_branch_base(made.session_id, {"vars": {"base": 1, "n": -1}})
    held = await made.holds()
    assert held.frames(0)[0].state == {"vars": {"base": 1, "n": 49}}
    assert await made.vars() == {"base": 1, "n": 54}
    await made.history.set_branch_base(made.session_id, {"vars": {"other": 2}})
    assert exact((await made.holds()).state(0)) == exact({"vars": {"other": 2, "n": 54}})
