"""Claims of the area T store-contract: one way in, all or nothing, and the same on every backend."""

from __future__ import annotations

import asyncio

import pytest

import turnkeeper
from tests.support import rooms
from turnkeeper import RootStoreWriteInTransactionError, Store
from turnkeeper.store.engine import Engine
from turnkeeper.store.migrations import Plan
from turnkeeper.testing import Connect, House, run
from turnkeeper.testing.blocks import Blocks
from turnkeeper.testing.broken import KeepsRolledBackRows, OverlayedEngine
from turnkeeper.testing.house import Waist, a_while, elsewhere, soon
from turnkeeper.testing.savepoints import Savepoints
from turnkeeper.testing.tables import BOOKS, LIBRARY, LOANS, SHELVES, Book, Loan, Shelf

NOTES = ("cave", "notes")


class Stop(Exception):
    """An error of the test's own."""


@pytest.mark.claim("T-001")
async def test_a_store_has_one_way_into_a_transaction(store: Store) -> None:
    """`transaction()`; `transact` is the same way with retry. What is written in it is read back."""
    await store.create_session("cave")
    async with store.transaction() as tx:
        await tx.records.put(*NOTES, "k", 1)
    assert (await store.records.get(*NOTES, "k")).body == 1
    blocks = [name for name in dir(Store) if isinstance(getattr(store, name), object) and "transact" in name]
    assert [name for name in blocks if not name.startswith("_")] == ["transact", "transaction"]


@pytest.mark.claim("T-001")
async def test_a_double_without_that_way_fails_the_conformance_check(url: str, connect: Connect) -> None:
    """The suite is what a double is held against."""

    class Doubled(Engine):
        transaction = property()  # type: ignore[assignment]

    async def without_it(plan: Plan) -> Engine:
        engine = await connect(plan)
        return Doubled(engine.backend, plan.tables)

    assert await run(lambda: without_it, parts=[Blocks], stop_after=1)


@pytest.mark.claim("T-002")
async def test_leaving_the_block_lands_everything_as_one(store: Store, url: str) -> None:
    """Three kinds of things, read from the store and over another handle."""
    await store.create_session("cave")
    async with store.transaction() as tx:
        cave = await tx.session("cave")
        await cave.append("user", "Hello?")
        await tx.records.put(*NOTES, "k", 1)
        await tx.lifecycle.append_event("cave", "knock", {"n": 1})
    async with turnkeeper.open(url) as again:
        for reader in (store, again):
            assert [message.text for message in await (await reader.session("cave")).messages()] == ["Hello?"]
            assert (await reader.records.get(*NOTES, "k")).body == 1
            assert (await reader.lifecycle.events("cave"))[-1].body == {"n": 1}


async def _write_all_kinds(tx: turnkeeper.Tx) -> None:
    """Add, change and delete something of every kind."""
    cave = await tx.session("cave")
    await cave.append("user", "Hello?")
    await cave.choose(0)
    await cave.fork(at=0, name="another", activate=True)
    await cave.rename("Renamed")
    await tx.history.set_branch_base("cave", {"vars": {"base": 1}}, take=0)
    await tx.records.put(*NOTES, "a", {"changed": True})
    await tx.records.put(*NOTES, "new", 1)
    await tx.records.delete(*NOTES, "b")
    await tx.lifecycle.append_event("cave", "knock", {"n": 9})
    await (await tx.create_session("other")).append("user", "x")
    await (await tx.session("doomed")).delete()


@pytest.mark.claim("T-003", "T-007")
async def test_an_error_undoes_every_write_of_every_kind(store: Store) -> None:
    """Every read method answers exactly what it answered before, listings and counters included."""
    await rooms.fill(store, "doomed")
    await rooms.fill(store)
    before = [await rooms.readings(store, name) for name in ("cave", "doomed")]
    with pytest.raises(Stop):
        async with store.transaction() as tx:
            await _write_all_kinds(tx)
            raise Stop
    assert [await rooms.readings(store, name) for name in ("cave", "doomed")] == before
    async with store.transaction() as tx:
        await _write_all_kinds(tx)
    assert await rooms.readings(store, "cave") != before[0]


@pytest.mark.claim("T-007")
async def test_an_error_undoes_inserts_updates_and_deletes_of_every_table(connect: Connect) -> None:
    """In the contract suite's own tables, by every read verb, sizes and counts included."""
    house = House(connect)
    waist = await house.library("a", "b", books=[1, 2, 3])
    await waist.add(*(Loan("a", 1, number) for number in range(3)))

    async def verbs() -> list[object]:
        async with waist.read_view() as view:
            scans = [await view.scan(table, order=order) for table in LIBRARY.tables for order in table.orders]
            return [*scans, [[await view.count(table), await view.size(table)] for table in LIBRARY.tables]]

    before = await verbs()
    with pytest.raises(Stop):
        async with waist.transaction() as tx:
            await tx.insert_many([Shelf("c"), Book("a", 9), Loan("a", 9, 9)])
            await tx.update(Book("a", 1, "z", 9.0), expect={})
            await tx.update(Shelf("a", "attic"), expect={})
            await tx.update(Loan("a", 1, 1, "x"), expect={})
            await tx.delete(LOANS, "a", 1, 2)
            await tx.delete(BOOKS, "a", 2)
            await tx.delete(SHELVES, "b")
            raise Stop
    assert await verbs() == before
    await house.close()


@pytest.mark.claim("T-004")
async def test_the_error_reaches_the_caller_as_it_was_raised(store: Store) -> None:
    """The very same object, out of a block and out of a callable."""
    sentinel = Stop("now")

    async def body(tx: turnkeeper.Tx) -> None:
        raise sentinel

    with pytest.raises(Stop) as caught:
        async with store.transaction():
            raise sentinel
    with pytest.raises(Stop) as again:
        await store.transact(body)
    assert caught.value is again.value is sentinel


@pytest.mark.claim("T-005")
async def test_a_value_of_the_block_is_there_after_it(store: Store) -> None:
    """As a name of the block's function, and as what a callable returns."""
    value = object()

    async def body(tx: turnkeeper.Tx) -> object:
        await tx.create_session("cave")
        return value

    assert await store.transact(body) is value
    async with store.transaction():
        computed = object()
    assert computed is not None


@pytest.mark.claim("T-006")
async def test_a_transaction_has_every_room_of_its_store(store: Store) -> None:
    """The same methods in each; only what opens, waits or closes is not there."""
    await store.create_session("cave")
    async with store.transaction() as tx:
        assert [name for name, *_ in rooms.methods(tx)] == [name for name, *_ in rooms.methods(store)]
        absent = {name for name in dir(store) if not name.startswith("_")} - set(dir(tx))
        entries = {"transaction", "transact", "read_view", "look", "watch", "close"}
        entries |= {"check", "repair", "rotate_key", "backup", "restore_backup"}
        handles = {"name", "ownership", "session_info"}  # of the open store, not of what is stored
        assert absent == entries | handles
        for name in entries:
            with pytest.raises(AttributeError):
                getattr(tx, name)
        assert await tx.lifecycle.load("cave") == await store.session_info("cave")


@pytest.mark.claim("T-008")
async def test_what_was_there_keeps_its_identity_over_a_rollback(store: Store) -> None:
    """Ids, incarnations and times of creation of what a failing block had changed and deleted."""
    cave = await rooms.fill(store)
    before = [await cave.info(), await cave.messages(), await cave.takes(), await store.records.get(*NOTES, "a")]
    with pytest.raises(Stop):
        async with store.transaction() as tx:
            await tx.records.put(*NOTES, "a", "changed")
            await (await tx.session("cave")).rename("changed")
            await (await tx.session("cave")).delete()
            raise Stop
    after = [await cave.info(), await cave.messages(), await cave.takes(), await store.records.get(*NOTES, "a")]
    assert after == before
    assert (await store.session("cave")).instance_id == cave.instance_id


@pytest.mark.claim("T-009", "T-010")
async def test_after_a_block_the_store_is_as_open_as_before(store: Store, url: str) -> None:
    """After a landing and after a failure: the next transaction and the next write go through at once, and stay."""
    await store.create_session("cave")
    async with store.transaction() as tx:
        await tx.records.put(*NOTES, "a", 1)
    await soon(store.records.put(*NOTES, "b", 1))
    with pytest.raises(Stop):
        async with store.transaction() as tx:
            await tx.touch("s:cave")
            await tx.records.put(*NOTES, "c", 1)
            raise Stop
    await soon(store.records.put(*NOTES, "d", 1))
    async with store.transaction() as tx:
        await soon(tx.touch("s:cave"))
        await tx.records.put(*NOTES, "e", 1)
    async with turnkeeper.open(url) as again:
        assert [record.key for record in await again.records.list(*NOTES)] == ["a", "b", "d", "e"]


@pytest.mark.claim("T-011")
async def test_a_write_outside_any_block_is_permanent_when_it_returns(connect: Connect) -> None:
    """Read over a second connection, and after the first one has closed."""
    house = House(connect)
    store, other = await house.store(), await house.store()
    await store.create_session("cave")
    await store.records.put(*NOTES, "k", 1)
    assert (await other.records.get(*NOTES, "k")).body == 1
    await store.close()
    await other.close()
    assert (await (await house.store()).records.get(*NOTES, "k")).body == 1
    await house.close()


@pytest.mark.claim("T-012")
async def test_every_write_method_of_the_store_is_refused_inside_a_block(store: Store) -> None:
    """Of every room; those of the handles come to the same."""
    cave = await rooms.fill(store)
    before = await rooms.readings(store, "cave")
    refused = []
    async with store.transaction():
        for name, writes, method in rooms.methods(store):
            if writes:
                with pytest.raises(RootStoreWriteInTransactionError):
                    await soon(rooms.call(method, "cave"))
                refused.append(name)
        for attempt in (cave.claim, cave.delete, cave.fork, lambda: cave.append("user", "x"), lambda: cave.rename("x")):
            with pytest.raises(RootStoreWriteInTransactionError):
                await soon(attempt())
    assert len(refused) >= 15
    assert await rooms.readings(store, "cave") == before


@pytest.mark.claim("T-013")
async def test_a_refused_write_leaves_no_trace(store: Store) -> None:
    """The block's own writes land."""
    await store.create_session("cave")
    async with store.transaction() as tx:
        await tx.records.put(*NOTES, "own", 1)
        with pytest.raises(RootStoreWriteInTransactionError):
            await store.records.put(*NOTES, "root", 1)
    assert [record.key for record in await store.records.list(*NOTES)] == ["own"]


@pytest.mark.claim("T-014")
async def test_a_refused_write_that_escapes_undoes_the_block(store: Store) -> None:
    """The block's own writes with it."""
    await store.create_session("cave")
    with pytest.raises(RootStoreWriteInTransactionError):
        async with store.transaction() as tx:
            await tx.records.put(*NOTES, "own", 1)
            await store.records.put(*NOTES, "root", 1)
    assert await store.records.list(*NOTES) == []


@pytest.mark.claim("T-015")
async def test_helpers_and_child_tasks_are_refused_as_well(store: Store) -> None:
    """A coroutine, a gather, a task, a task of a task."""
    await store.create_session("cave")

    async def helper() -> None:
        with pytest.raises(RootStoreWriteInTransactionError):
            await store.records.put(*NOTES, "root", 1)

    async def deeper() -> None:
        await asyncio.gather(helper(), asyncio.create_task(helper()))

    async with store.transaction():
        await helper()
        await asyncio.gather(helper(), helper(), deeper())
        await asyncio.create_task(deeper())
    assert await store.records.list(*NOTES) == []


@pytest.mark.claim("T-016")
async def test_every_read_of_the_store_is_allowed_inside_a_block(store: Store) -> None:
    """It answers what is committed, and neither raises nor waits."""
    await rooms.fill(store)
    before = await rooms.readings(store, "cave")
    async with store.transaction() as tx:
        await tx.touch("s:cave")
        await tx.records.put(*NOTES, "own", 1)
        assert await soon(rooms.readings(store, "cave")) == before


@pytest.mark.claim("T-017")
async def test_code_that_outlives_the_block_is_outside(store: Store) -> None:
    """A task and a timer that were started in it write through the store after it."""
    await store.create_session("cave")
    ended = asyncio.Event()
    timed: asyncio.Future[asyncio.Task[int]] = asyncio.get_running_loop().create_future()

    async def late() -> None:
        await ended.wait()
        await store.records.put(*NOTES, "task", 1)

    def fire() -> None:
        timed.set_result(asyncio.ensure_future(store.records.put(*NOTES, "timer", 1)))

    async with store.transaction():
        task = asyncio.create_task(late())
        asyncio.get_running_loop().call_later(0.05, fire)
        await a_while()
    ended.set()
    await soon(task)
    await soon(await soon(timed))
    assert [record.key for record in await store.records.list(*NOTES)] == ["task", "timer"]


@pytest.mark.claim("T-018")
async def test_cancelling_a_block_rolls_it_back(store: Store) -> None:
    """No write is seen, the task ends cancelled, and the next transaction works."""
    await store.create_session("cave")
    inside = asyncio.Event()

    async def work() -> None:
        async with store.transaction() as tx:
            await tx.records.put(*NOTES, "k", 1)
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await soon(inside.wait())
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert await store.records.list(*NOTES) == []
    await soon(store.records.put(*NOTES, "next", 1))


@pytest.mark.claim("T-019")
async def test_a_handle_is_dead_after_its_block(store: Store) -> None:
    """After a landing and after a rollback, by every method of every room; the store stays as it is."""
    await rooms.fill(store)
    handles = []
    async with store.transaction() as tx:
        handles.append(tx)
    with pytest.raises(Stop):
        async with store.transaction() as tx:
            handles.append(tx)
            raise Stop
    before = await rooms.readings(store, "cave")
    for dead in handles:
        for _, _, method in rooms.methods(dead):
            with pytest.raises(Exception):
                await rooms.call(method, "cave")
        with pytest.raises(turnkeeper.Misuse):
            await dead.records.put(*NOTES, "late", 1)
        with pytest.raises(turnkeeper.Misuse):
            await dead.session("cave")
    assert await rooms.readings(store, "cave") == before


@pytest.mark.claim("T-021", "T-022")
async def test_of_two_at_once_each_keeps_or_loses_its_own(store: Store) -> None:
    """Interleaved: both land, then one lands and one fails."""
    for name in ("one", "two"):
        await store.create_session(name)
    meet = asyncio.Barrier(2)

    async def work(name: str, key: str, *, fails: bool = False) -> None:
        async with store.transaction() as tx:
            await tx.records.put(name, "notes", f"{key}1", 1)
            await soon(meet.wait())
            await tx.records.put(name, "notes", f"{key}2", 1)
            await soon(meet.wait())
            if fails:
                raise Stop

    await asyncio.gather(work("one", "a"), work("two", "a"))
    lost, kept = await asyncio.gather(work("one", "b", fails=True), work("two", "b"), return_exceptions=True)
    assert (isinstance(lost, Stop), kept) == (True, None)
    assert [record.key for record in await store.records.list("one", "notes")] == ["a1", "a2"]
    assert [record.key for record in await store.records.list("two", "notes")] == ["a1", "a2", "b1", "b2"]


@pytest.mark.claim("T-023")
async def test_writes_of_an_open_transaction_are_nobody_elses(store: Store, url: str) -> None:
    """A reader in an independent task sees the state before, whatever becomes of the writer."""
    await store.create_session("cave")
    await store.records.put(*NOTES, "k", "before")
    for ends_well in (False, True):
        expected = "after" if ends_well else "before"
        try:
            async with store.transaction() as tx:
                await tx.records.put(*NOTES, "k", "after")
                seen = await soon(elsewhere(store.records.get(*NOTES, "k")))
                assert seen.body == "before"
                if not ends_well:
                    raise Stop
        except Stop:
            pass
        assert (await store.records.get(*NOTES, "k")).body == expected


@pytest.mark.claim("T-024")
async def test_a_backend_qualifies_by_the_complete_suite_only(url: str, connect: Connect) -> None:
    """The suite takes a factory; the same backend with a rollback that keeps rows does not pass it."""
    opened: list[Engine] = []

    async def sound(plan: Plan) -> Engine:
        opened.append(await connect(plan))
        return opened[-1]

    async def wrong(plan: Plan) -> Engine:
        engine = OverlayedEngine((await sound(plan)).backend, plan.tables)
        engine.overlay = KeepsRolledBackRows
        return engine

    house = House(connect)
    await Savepoints().test_a_failing_savepoint_undoes_its_writes_only(house)
    await _empty(await house.waist())
    await house.close()
    failures = await run(lambda: wrong, parts=[Savepoints], stop_after=1)
    assert [failure.test for failure in failures] == ["Savepoints.test_a_failing_savepoint_undoes_its_writes_only"]
    for engine in opened:
        await engine.close()


async def _empty(waist: Waist) -> None:
    async with waist.transaction() as tx:
        await tx.drop_root("n:t")


@pytest.mark.claim("T-025")
async def test_what_a_transaction_wrote_it_reads(store: Store) -> None:
    """At once, by the same tx: the first value, the next one, and that it is gone."""
    await store.create_session("cave")
    async with store.transaction() as tx:
        for value in ({"v": 1}, {"v": 2}):
            await tx.records.put(*NOTES, "k", value)
            assert (await tx.records.get(*NOTES, "k")).body == value
            assert [record.body for record in await tx.records.list(*NOTES)] == [value]
        await tx.records.delete(*NOTES, "k")
        assert await tx.records.get(*NOTES, "k") is None


@pytest.mark.claim("T-026")
async def test_a_nested_value_comes_back_structurally_unchanged(store: Store, url: str) -> None:
    """Types, order of keys and signs included."""
    value = {
        "z": [1, 1.0, True, None, -0.0, "", [], {}, [[[]]]],
        "a": {"é": "日本 \U0001f600 \x00 \ud800", "": {"deep": [{"n": 2**63 - 1}, 1e300, 5e-324]}},
        "numbers": [0, -1, 2**53 + 1, 0.1, -1e-7],
    }
    await store.create_session("cave")
    await store.records.put(*NOTES, "k", value)
    async with turnkeeper.open(url) as again:
        for reader in (store, again):
            assert repr((await reader.records.get(*NOTES, "k")).body) == repr(value)
