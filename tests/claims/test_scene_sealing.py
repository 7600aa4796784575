"""Claims of the area S sealing: what people and models wrote cannot be read, moved or changed without the key."""

from __future__ import annotations

from pathlib import Path

import pytest

import turnkeeper
from tests.support.scenes import Scene, gone, scene, sets
from tests.support.sealed import KEY, MARKER, flip, raw
from turnkeeper.history.slots import NewDelta
from turnkeeper.store.sealing import MARK

pytestmark = pytest.mark.parametrize("backend", ["sqlite"])

TABLES = ("deltas", "message_deltas", "bases", "tips", "keyframes", "pending_turns", "versions", "headers", "records")


async def written(url: str) -> Scene:
    """A sealed store in which the marker stands in every kind of cell."""
    async with turnkeeper.open(url, key=KEY) as store:
        session = await store.create_session(title=MARKER, labels={MARKER: MARKER})
        made = Scene(store, session.session_id)
        for _ in range(50):
            await made.reply(*sets(**{MARKER: MARKER}), text=MARKER)
        await made.history.record_message_deltas(made.session_id, 1, sets(**{f"{MARKER}2": MARKER}))
        await made.history.record_deltas(made.session_id, 1, 1, [NewDelta("tracker.stats", [MARKER], MARKER)])
        await made.history.set_branch_base(made.session_id, {"vars": {f"{MARKER}3": MARKER}})
        await store.records.put(made.session_id, "notes", "one", {"of": MARKER})
        with pytest.raises(ZeroDivisionError):
            async with session.turn(MARKER) as turn:
                turn.vars[MARKER] = "again"
                await turn.save()
                raise ZeroDivisionError
    return made


@pytest.mark.claim("S-099", "S-100", "S-102")
async def test_nothing_that_was_said_or_set_stands_in_the_file(url):
    made = await written(url)
    for end in ("", "-wal"):
        file = Path(url + end)
        assert not file.exists() or MARKER.encode() not in file.read_bytes()
    for table, column in [("deltas", "path"), ("deltas", "value"), ("message_deltas", "path"), ("tips", "state"),
                          ("keyframes", "state"), ("bases", "state"), ("pending_turns", "writes")]:  # fmt: skip
        cells = [cell for (cell,) in raw(url, f'SELECT "{column}" FROM "{table}"')]
        assert cells and all(cell.startswith(MARK) for cell in cells), (table, column)
    async with turnkeeper.open(url, key=KEY) as store:
        state = await store.history.scene_state(made.session_id)
        assert state["vars"] == {MARKER: MARKER, f"{MARKER}2": MARKER, f"{MARKER}3": MARKER}
        (pending,) = await store.turns.pending(made.session_id)
        assert pending.writes == [{"slot": "vars", "path": [MARKER], "value": "again"}]


@pytest.mark.claim("S-101")
async def test_slot_removal_and_time_are_plain_columns(url):
    made = await written(url)
    async with turnkeeper.open(url, key=KEY) as store:
        again = Scene(store, made.session_id)
        await again.reply(gone("vars", MARKER))
    found = raw(url, "SELECT slot, removed, at FROM deltas WHERE slot = 'vars' AND removed = 1")
    assert [(slot, removed) for slot, removed, _ in found] == [("vars", 1)] and found[0][2] > 0
    assert raw(url, "SELECT count(*) FROM message_deltas WHERE slot = 'tracker.stats'") == [(1,)]


@pytest.mark.claim("S-103")
async def test_a_cell_that_was_moved_to_another_row_does_not_open(url):
    async with turnkeeper.open(url, key=KEY) as store:
        made = await scene(store)
        await made.reply(*sets(a=1))
        await made.reply(*sets(b=2))
        await made.forget_caches()
    (one,), (two,) = raw(url, "SELECT value FROM deltas ORDER BY version")
    raw(url, "UPDATE deltas SET value = CASE value WHEN ? THEN ? ELSE ? END", one, two, one)
    async with turnkeeper.open(url, key=KEY) as store:
        for position in (0, 1):
            with pytest.raises(turnkeeper.Damaged, match="deltas"):
                await store.history.scene_state(made.session_id, at=position)


@pytest.mark.claim("S-103")
@pytest.mark.parametrize("change", ["slot = 'vars2'", "removed = 1", "at = at + 1", "seq = seq + 7"])
async def test_a_row_whose_plain_cells_were_changed_does_not_open(url, change):
    async with turnkeeper.open(url, key=KEY) as store:
        made = await scene(store)
        await made.reply(*sets(a=1))
        await made.forget_caches()
    raw(url, f"UPDATE deltas SET {change}")
    async with turnkeeper.open(url, key=KEY) as store:
        with pytest.raises(turnkeeper.Damaged):
            await store.history.scene_state(made.session_id)


async def test_a_cell_that_was_never_sealed_is_damage(url):
    async with turnkeeper.open(url, key=KEY) as store:
        made = await scene(store)
        await made.reply(text="one")
    raw(url, """UPDATE versions SET parts = '[{"type":"text","text":"forged"}]'""")
    async with turnkeeper.open(url, key=KEY) as store:
        with pytest.raises(turnkeeper.Damaged):
            await store.history.messages(made.session_id)


@pytest.mark.field("F-45")
@pytest.mark.parametrize("at", [0, 1, 2, 9, 30])
async def test_whichever_byte_flips_the_row_is_damaged_and_others_are_not(url, at):
    async with turnkeeper.open(url, key=KEY) as store:
        made, other = await scene(store), await scene(store)
        await made.reply(text="one")
        await other.reply(text="two")
    assert flip(url, "versions", "parts", f"session_id = '{made.session_id}' AND version = 0", at=at) == 1
    async with turnkeeper.open(url, key=KEY) as store:
        with pytest.raises(turnkeeper.Damaged) as told:
            await store.history.messages(made.session_id)
        assert (told.value.fields["table"], told.value.fields["key"]) == ("versions", f"{made.session_id}/0")
        assert [shown.text for shown in await store.history.messages(other.session_id)][-1] == "two"
