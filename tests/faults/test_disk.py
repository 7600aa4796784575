"""A disk that is full, does not write, does not confirm or does not read: whoever was not told "landed" finds nothing.

Each landing is wholly there or refused with an error that says so, its neighbours in the same commit are landed or told,
and once the disk works again so does the store, without being opened anew.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import apsw
import pytest

import turnkeeper
from tests.faults.story import Ledger, faults_of_file
from tests.support.vfs import Change, Disk, disk_full, failed_read, failed_sync, failed_write, open_store
from tests.support.workers import worker
from turnkeeper.errors import Damaged, OutcomeUnknown, TurnkeeperError, Unavailable
from turnkeeper.records import RECEIPTS

pytestmark = pytest.mark.parametrize("backend", ["sqlite"])


class Rule:
    """What a disk refuses at the moment; nothing until it is told."""

    def __init__(self) -> None:
        self.refuse: Callable[[Change], BaseException | None] = lambda change: None

    def __call__(self, change: Change) -> BaseException | None:
        return self.refuse(change)

    def nth(self, op: str, number: int, error: Callable[[], BaseException], *, once: bool = False) -> None:
        """Refuse the n-th change of a kind, from 1, and those after it."""
        seen = 0

        def refuse(change: Change) -> BaseException | None:
            nonlocal seen
            if change.op != op or change.role not in ("db", "wal"):
                return None
            seen += 1
            return error() if seen == number or (seen > number and not once) else None

        self.refuse = refuse

    def no_file_above(self, size: int) -> None:
        """Have room for files up to a size only."""
        self.refuse = lambda c: (
            disk_full() if c.op == "write" and c.role in ("db", "wal") and c.offset + c.size > size else None
        )

    def nothing(self) -> None:
        """Work again."""
        self.refuse = lambda change: None


@contextlib.asynccontextmanager
async def on_disk(path: Path) -> AsyncIterator[tuple[turnkeeper.Store, Rule, Disk]]:
    """Open a store on a disk with a rule."""
    rule = Rule()
    with Disk(refuse=rule) as disk:
        store = await open_store(path, vfs=disk.name)
        try:
            yield store, rule, disk
        finally:
            rule.nothing()
            await store.close()


async def one_turn(session: turnkeeper.Session, key: str, words: int = 20) -> None:
    async with session.turn(f"input {key}", key=key) as turn:
        turn.vars[key] = True
        turn.reply(f"reply {key} " + "word " * words)


async def there(session: turnkeeper.Session, key: str) -> bool:
    """Say whether a turn is there; wholly, then."""
    texts = [m.text for m in await session.messages() if key in m.text.split()]
    assert len(texts) in (0, 2)
    assert ((await session.state())["vars"].get(key) is True) is bool(texts)
    return bool(texts)


ERRORS = [("write", disk_full), ("write", failed_write), ("sync", failed_sync)]


@pytest.mark.field("F-38")
@pytest.mark.parametrize(("op", "error"), ERRORS, ids=["full", "write", "sync"])
@pytest.mark.parametrize("once", [True, False], ids=["once", "from-then-on"])
async def test_a_disk_that_refuses_at_any_step_of_a_turn_leaves_it_whole(
    backend: str, tmp_path: Path, op: str, error: Callable[[], BaseException], once: bool
) -> None:
    async with on_disk(tmp_path / "story.db") as (store, rule, disk):
        session = await store.create_session("cave")
        await one_turn(session, "k0")
        for number in range(1, 200):
            key, before = f"k{number}", disk.refused
            rule.nth(op, number, error, once=once)
            try:
                await one_turn(session, key)
                told: TurnkeeperError | None = None
            except TurnkeeperError as failure:
                told = failure
            rule.nothing()
            assert told is None or isinstance(told, Unavailable)
            assert isinstance(told, OutcomeUnknown) is (told is not None and op == "sync")
            if told is None or not isinstance(told, OutcomeUnknown):
                assert await there(session, key) is (told is None)
            with contextlib.suppress(turnkeeper.AlreadyLanded):
                await one_turn(session, key)  # the disk works again: so does the store
            assert await there(session, key)
            assert await session.pending() == []
            if disk.refused == before:
                break
        assert number > (20 if op == "write" else 1)
    async with turnkeeper.open(tmp_path / "story.db") as again:
        session = await again.session("cave")
        messages = await session.messages()
        assert [m.position for m in messages] == list(range(2 * number + 2))


async def test_a_turn_that_does_not_fit_fails_alone_and_its_neighbours_land(backend: str, tmp_path: Path) -> None:
    async with on_disk(tmp_path / "story.db") as (store, rule, disk):
        sessions = [await store.create_session(f"s{i}") for i in range(8)]
        await asyncio.gather(*(one_turn(session, "k0") for session in sessions))
        rule.no_file_above((tmp_path / "story.db-wal").stat().st_size + 600_000)
        fate = await asyncio.gather(
            *(one_turn(session, "k1", 400_000 if i == 3 else 20) for i, session in enumerate(sessions)),
            return_exceptions=True,
        )
        assert disk.refused
        assert isinstance(fate[3], Unavailable)
        assert "full" in str(fate[3])
        assert [f for i, f in enumerate(fate) if i != 3] == [None] * 7
        assert [await there(session, "k1") for session in sessions] == [i != 3 for i in range(8)]
        assert [(p.state, p.key) for p in await sessions[3].pending()] == [("failed", "k1")]
        rule.nothing()
        await one_turn(sessions[3], "k1", 400_000)
        assert await there(sessions[3], "k1")


@pytest.mark.field("F-38")
async def test_while_the_disk_is_full_every_session_is_told_and_later_all_go_on(backend: str, tmp_path: Path) -> None:
    async with on_disk(tmp_path / "story.db") as (store, rule, _):
        sessions = [await store.create_session(f"s{i}") for i in range(8)]
        await asyncio.gather(*(one_turn(session, "k0") for session in sessions))
        rule.no_file_above((tmp_path / "story.db-wal").stat().st_size + 100_000)
        landed: list[tuple[int, str]] = []

        async def until_full(number: int) -> None:
            for i in range(1, 100):
                try:
                    await one_turn(sessions[number], f"k{i}")
                except Unavailable as error:
                    assert error.retryable
                    assert not await there(sessions[number], f"k{i}")
                    return
                landed.append((number, f"k{i}"))

        await asyncio.gather(*(until_full(number) for number in range(8)))
        assert len(landed) < 400
        for number, key in landed:
            assert await there(sessions[number], key)
        rule.nothing()
        await asyncio.gather(*(one_turn(session, "after") for session in sessions))
        for session in sessions:
            assert await there(session, "after")
            assert all(pending.state in ("failed", "interrupted") for pending in await session.pending())


async def test_errors_at_random_while_many_sessions_play_lose_nothing(backend: str, tmp_path: Path) -> None:
    """One write or sync in forty fails; what was acknowledged is there, what was refused is not, whole turns only."""
    count = 0

    def refuse(change: Change) -> BaseException | None:
        nonlocal count
        if change.op in ("write", "sync") and change.role == "wal":
            count += 1
            if not count % 331:
                return failed_write()
            if not count % 577:
                return disk_full()
        return None

    async with on_disk(tmp_path / "story.db") as (store, rule, disk):
        ledger = Ledger()
        sessions = [await store.create_session(f"s{i}") for i in range(8)]
        rule.refuse = refuse
        refused: list[tuple[turnkeeper.Session, str]] = []

        async def play(session: turnkeeper.Session) -> None:
            for number in range(30):
                key = f"{session.session_id}-{number}"
                try:
                    await ledger.play(session, key)
                except Unavailable:
                    refused.append((session, key))
                    ledger.hear(["over", key])

        await asyncio.gather(*(play(session) for session in sessions))
        rule.nothing()
        assert disk.refused > 3
        answers = {key for session in sessions for key in await receipts(store, session)}
        assert answers == set(ledger.landed)
        for session, key in refused:
            await ledger.play(session, key)
    assert faults_of_file(tmp_path / "story.db", ledger) == []


async def receipts(store: turnkeeper.Store, session: turnkeeper.Session) -> list[str]:
    """Answer the keys of the turns that are there."""
    async with store.read_view() as view:
        return [row.key for row in await view.scan(RECEIPTS, session.session_id)]


async def test_who_is_told_that_nothing_was_written_finds_nothing_after_a_restart(backend: str, tmp_path: Path) -> None:
    """The disk stops confirming in the middle of a shared commit, then refuses everything: the commit may have reached it."""
    async with on_disk(tmp_path / "story.db") as (store, rule, _):
        sessions = [await store.create_session(f"s{i}") for i in range(8)]
        await asyncio.gather(*(one_turn(session, "k0") for session in sessions))
        syncs = 0

        def refuse(change: Change) -> BaseException | None:
            nonlocal syncs
            if change.op == "sync" and change.role == "wal" and syncs < 2:
                syncs += 1  # the first to arrive has a commit of its own; the others share the second one
                return failed_sync() if syncs == 2 else None
            return failed_write() if syncs == 2 and change.op in ("write", "sync") else None

        blocks = [session.turn("input k1", key="k1", durable_input=False) for session in sessions]
        for block in blocks:
            turn = await block.__aenter__()
            turn.vars["k1"] = True
            turn.reply("reply k1")
        rule.refuse = refuse
        fate = await asyncio.gather(*(block.__aexit__(None, None, None) for block in blocks), return_exceptions=True)
        assert not isinstance(fate[0], BaseException)
        assert all(isinstance(error, Unavailable) for error in fate[1:])
        (tmp_path / "crashed").mkdir()
        for name in ("story.db", "story.db-wal"):  # as a crash at this moment leaves it
            (tmp_path / "crashed" / name).write_bytes((tmp_path / name).read_bytes())
    async with turnkeeper.open(tmp_path / "crashed" / "story.db") as store:
        for session, error in zip(sessions, fate, strict=True):
            again = await store.session(session.session_id)
            found = await there(again, "k1")
            assert not isinstance(error, Unavailable) or isinstance(error, OutcomeUnknown) or not found, str(error)


@pytest.mark.field("F-29")
async def test_a_history_that_cannot_be_read_is_an_error_and_never_an_empty_one(backend: str, tmp_path: Path) -> None:
    async with on_disk(tmp_path / "story.db") as (store, _, _):
        session = await store.create_session("cave")
        for number in range(30):
            await one_turn(session, f"k{number}")
    async with on_disk(tmp_path / "story.db") as (store, rule, disk):
        session = await store.session("cave")
        rule.nth("read", 1, failed_read)
        with pytest.raises(Unavailable):
            await session.messages()
        assert disk.refused
        with pytest.raises(Unavailable):
            await one_turn(session, "greeting")
        rule.nothing()
        assert len(await session.messages()) == 60
        assert not await there(session, "greeting")
        await one_turn(session, "greeting")
        assert len(await session.messages()) == 62


@pytest.mark.field("F-38")
async def test_a_row_that_cannot_be_read_is_reported_and_never_left_out(backend: str, tmp_path: Path) -> None:
    async with turnkeeper.open(tmp_path / "story.db") as store:
        session = await store.create_session("cave")
        for number in range(3):
            await one_turn(session, f"k{number}")
    with contextlib.closing(apsw.Connection(str(tmp_path / "story.db"))) as connection:
        connection.execute('UPDATE versions SET parts = \'[{"type": "te\' WHERE version = 3')
    async with turnkeeper.open(tmp_path / "story.db") as store:
        session = await store.session("cave")
        with pytest.raises(Damaged) as damaged:
            await session.messages()
        assert damaged.value.fields["table"] == "versions"
        assert len(await session.messages(last=1)) == 1


async def limited(path: Path, **options: int) -> list[str]:
    """Have another process play turns while the kernel refuses to let files grow; answer how each turn went."""
    async with turnkeeper.open(path) as store:
        await store.create_session("cave")
    async with worker("limited", url=str(path), session="cave", **options) as other:
        said = await other.hear_all()
    assert said.pop() == ["done"]
    fate = [one[0] for one in said]
    assert {one[1] for one in said if one[0] == "refused"} == {"unavailable"}
    async with turnkeeper.open(path) as store:
        session = await store.session("cave")
        texts = [int(m.text.split()[1]) for m in await session.messages() if m.role == "assistant"]
        assert texts == [i for i, what in enumerate(fate) if what == "landed"]
        assert (await session.state())["vars"] == {"number": texts[-1]}
    return fate


async def test_the_kernel_refuses_to_let_the_log_grow_and_nothing_is_half_written(backend: str, tmp_path: Path) -> None:
    """The real thing, without a simulated disk: a limit on the size of files."""
    fate = await limited(tmp_path / "story.db", turns=12, full=4, free=8, limit=0, words=100)
    assert fate[:4] + fate[8:] == ["landed"] * 8
    assert "refused" in fate[4:8]


async def test_a_checkpoint_that_fails_harms_no_landing(backend: str, tmp_path: Path) -> None:
    """The database cannot grow any more, the log in front of it can: turns land until neither can."""
    path = tmp_path / "story.db"
    fate = await limited(path, turns=60, full=0, free=55, limit=5_000_000, words=40_000)
    assert fate[:30] == ["landed"] * 30, "a log of 5 MB, and a database before it that could take some"
    assert "refused" in fate[30:55]
    assert fate[55:] == ["landed"] * 5
    assert path.stat().st_size > 6_000_000
