"""The power goes off at any moment: every acknowledged turn is wholly there, every other one wholly there or not at all.

A story is played once on a disk that records every change; then the image after any change can be made from the trace,
with any choice of the sectors that were not synced yet. Two controls, which must lose turns, prove that the sweep can
fail: a store opened with durability="normal", and a disk that lies about its syncs.
"""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from pathlib import Path

import apsw
import pytest

import turnkeeper
from tests.faults.cuts import after_cut, moments, recorded, sweep
from tests.faults.story import Ledger, faults_of_file
from tests.support.vfs import PowerCut
from turnkeeper import AlreadyLanded

CUTS = 160
pytestmark = pytest.mark.parametrize("backend", ["sqlite"])


async def test_a_power_cut_loses_no_acknowledged_turn_and_leaves_no_half_one(backend: str, tmp_path: Path) -> None:
    trace, ledger = await recorded(tmp_path / "played")
    landings = len(ledger.landed) + len(ledger.kept) + len(ledger.takes)
    syncs = Counter(change.op for change in trace if change.role == "wal")["sync"]
    assert syncs < landings / 2, "landings of different sessions share a commit"
    assert sum(change.role == "db" for change in trace) > 100, "there were checkpoints"
    chosen = moments(trace, CUTS, seed=1)
    assert len(chosen) >= 150
    assert await sweep(trace, ledger, chosen, tmp_path) == {}


async def test_a_power_cut_while_a_new_database_is_made_leaves_one_that_opens(backend: str, tmp_path: Path) -> None:
    trace, ledger = await recorded(tmp_path / "played", turns=8)
    until = next(i for i, change in enumerate(trace) if change.op == "sync" and change.role == "wal") + 2
    assert await sweep(trace, ledger, range(0, until, 2), tmp_path) == {}


async def test_normal_durability_loses_acknowledged_turns_but_never_half_of_one(backend: str, tmp_path: Path) -> None:
    """The control: this sweep can find a lost turn. What `durability="normal"` gives up is what its name says, no more."""
    trace, ledger = await recorded(tmp_path / "played", "normal")
    faults = await sweep(trace, ledger, moments(trace, 40, seed=2), tmp_path)
    assert len(faults) >= 10
    assert {fault.partition(":")[0] for found in faults.values() for fault in found} == {"lost"}


async def test_a_disk_that_lies_about_its_syncs_is_found_out(backend: str, tmp_path: Path) -> None:
    """The other control: the images really rest on what was synced."""
    trace, ledger = await recorded(tmp_path / "played")
    assert len(await sweep(trace, ledger, moments(trace, 40, seed=3), tmp_path, honest=False)) >= 20


async def test_after_a_power_cut_everybody_goes_on(backend: str, tmp_path: Path) -> None:
    trace, ledger = await recorded(tmp_path / "played", turns=80)
    cut = PowerCut(trace)
    for number, moment in enumerate(moments(trace, 12, seed=4)):
        folder = tmp_path / str(number)
        assert await after_cut(cut, moment, number, folder, ledger) == []
        async with turnkeeper.open(folder / "story.db") as store:
            for info in await store.sessions():
                await goes_on(await store.session(info.session_id), ledger, moment)


async def goes_on(session: turnkeeper.Session, ledger: Ledger, moment: int) -> None:
    """Check one session through the public API alone."""
    before, state = await session.messages(), await session.state()
    async with session:
        assert all(pending.state in ("failed", "interrupted") for pending in await session.pending())
        for at, session_id, key, until in ledger.kept:
            if session_id == session.session_id and at <= moment and (until is None or moment < until):
                assert key in [pending.key for pending in await session.pending()]
        for key, (at, answer) in ledger.landed.items():
            plain = answer["session_id"] == session.session_id and answer["kind"] == "reply" and not answer["take"]
            if at <= moment and plain:
                with pytest.raises(AlreadyLanded) as raised:
                    await session.turn(f"input {key}", key=key).__aenter__()
                assert raised.value.turn.positions == answer["positions"]
                break
        assert await session.messages() == before
        async with session.turn("and then?", key="later") as turn:
            assert turn.vars == state["vars"]
            turn.reply("it went on")
    assert [message.text for message in await session.messages(last=2)] == ["and then?", "it went on"]


DAMAGE = [
    "DELETE FROM messages WHERE session_id = 's0' AND position = 3",
    "DELETE FROM versions WHERE session_id = 's0' AND version = 5",
    "DELETE FROM deltas WHERE session_id = 's0' AND version = (SELECT max(version) FROM deltas WHERE session_id = 's0')",
    "DELETE FROM events WHERE session_id = 's0' AND event_no = 2",
    "DELETE FROM deliveries WHERE session_id = 's0' AND event_no = 2",
    "DELETE FROM receipts WHERE session_id = 's0' AND key = 's0-1'",
    "UPDATE tips SET state = '{}' WHERE session_id = 's0'",
    "UPDATE takes SET cursor = cursor + 1 WHERE session_id = 's0'",
    "UPDATE sessions SET next_turn = next_turn + 1 WHERE session_id = 's0'",
    "DELETE FROM pending_turns",
    "DELETE FROM takes WHERE take = 1",
]


async def test_the_check_finds_every_kind_of_half_turn(backend: str, tmp_path: Path) -> None:
    trace, ledger = await recorded(tmp_path / "played", turns=160)
    for number, damage in enumerate(DAMAGE):
        copy = Path(shutil.copy(tmp_path / "played" / "story.db", tmp_path / f"{number}.db"))
        with contextlib.closing(apsw.Connection(str(copy))) as connection:
            connection.execute(damage)
            assert connection.changes(), f"nothing was damaged: {damage}"
        assert faults_of_file(copy, ledger, len(trace)), f"not found: {damage}"
