"""Claims of the area T memory-backend, by their outcome (decision 45): an abort costs what the transaction touched, not
what is stored, and what was handed out never changes."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import AsyncIterator, Callable

import pytest

from turnkeeper import TurnkeeperError
from turnkeeper.store.transaction import Transaction
from turnkeeper.testing import Connect, House, Waist
from turnkeeper.testing.tables import BOOKS, CARDS, LIBRARY, LOANS, NOTES, SHELVES, Book, Card, Loan, Note, Shelf

pytestmark = pytest.mark.parametrize("backend", ["memory"])
MANY = 4_000


class Stop(Exception):
    """An error of the test's own."""


@pytest.fixture
async def house(connect: Connect) -> AsyncIterator[House]:
    """Hand out connections and close them afterwards."""
    house = House(connect)
    yield house
    await house.close()


async def _filled(house: House, rows: int) -> Waist:
    waist = await house.library("a")
    await waist.add(
        *(Book("a", number, code=f"c{number}") for number in range(rows)),
        *(Loan("a", number, 1) for number in range(rows)),
        *(Note(f"t{number}", 1) for number in range(rows)),
        *(Card(f"c{number}", f"n{number}", f"h{number}") for number in range(0, rows, 8)),
    )
    return waist


async def _steps(waist: Waist, work: Callable[[Transaction], object], *, aborts: bool) -> int:
    """Count the calls that a transaction makes from its beginning to its end: the same work has the same number."""
    count = 0

    def counts(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    try:
        sys.setprofile(counts)
        async with waist.transaction() as tx:
            await work(tx)  # type: ignore[misc]
            if aborts:
                raise Stop
    except Stop:
        pass
    finally:
        sys.setprofile(None)
    return count


async def _writes(tx: Transaction) -> None:
    await tx.insert(Book("a", -1))
    await tx.update(Book("a", 1, "changed"), expect={})
    await tx.delete(LOANS, "a", 2, 1)


async def _reads(tx: Transaction) -> None:
    await tx.get(BOOKS, "a", 1)
    await tx.scan(LOANS, "a", low=2, high=3)


@pytest.mark.claim("T-122", "T-124")
async def test_an_abort_costs_what_it_touched_not_what_is_stored(house: House, connect: Connect) -> None:
    """As many steps over four thousand rows a table as over ten: nothing is copied, shallow or deep."""
    waist = await _filled(house, 10)
    await _steps(waist, _writes, aborts=True)
    few = await _steps(waist, _writes, aborts=True)
    await waist.add(*(Book("a", number, code=f"c{number}") for number in range(10, MANY)))
    await waist.add(*(Loan("a", number, 1) for number in range(10, MANY)))
    await waist.add(*(Note(f"t{number}", 1) for number in range(10, MANY)))
    many = await _steps(waist, _writes, aborts=True)
    assert many == few


@pytest.mark.claim("T-123")
async def test_a_transaction_costs_only_the_collections_it_writes(house: House) -> None:
    """Reading takes no more steps over many rows than over few; an update touches its own root and table alone."""
    waist = await _filled(house, 10)
    await _steps(waist, _reads, aborts=False)
    few = [await _steps(waist, work, aborts=aborts) for work, aborts in ((_reads, False), (_reads, True))]
    await waist.add(*(Note(f"t{number}", 1) for number in range(10, MANY)))
    await waist.add(*(Book("a", number, code=f"c{number}") for number in range(10, MANY)))
    many = [await _steps(waist, work, aborts=aborts) for work, aborts in ((_reads, False), (_reads, True))]
    assert many == few
    before = {table: dict(partitions) for table, partitions in waist.engine.backend._state.tables.items()}  # type: ignore[attr-defined]
    async with waist.transaction() as tx:
        await tx.insert(Note("t1", 9))
    after = waist.engine.backend._state.tables  # type: ignore[attr-defined]
    replaced = [root for table in before for root in before[table] if after[table][root] is not before[table][root]]
    assert replaced == []


@pytest.mark.claim("T-124", "T-125")
@pytest.mark.parametrize("table", LIBRARY.tables, ids=lambda table: str(table.name))
async def test_a_rollback_restores_whatever_was_written(house: House, table: object) -> None:
    """Every verb in every table: no list of methods decides what is restored."""
    waist = await _filled(house, 10)
    new = {
        SHELVES: Shelf("b"),
        BOOKS: Book("a", 99),
        LOANS: Loan("a", 99, 9),
        CARDS: Card("x", "x", "x"),
        NOTES: Note("x", 1),
    }
    before = await waist.everything()
    with pytest.raises(Stop):
        async with waist.transaction() as tx:
            rows = await tx.scan(table)  # type: ignore[arg-type]
            key = [getattr(rows[0], name) for name in table.key]  # type: ignore[attr-defined]
            assert await tx.update(rows[0], expect={})
            assert await tx.delete(table, *key)  # type: ignore[arg-type]
            await tx.insert(new[table])  # type: ignore[index]
            await tx.drop_root(table.root_of_key((key[0],)))  # type: ignore[attr-defined]
            raise Stop
    assert await waist.everything() == before


@pytest.mark.claim("T-124", "T-125")
async def test_a_landing_that_is_refused_leaves_everything_as_it_was(house: House) -> None:
    """For a row that is there, a value that is taken, a root that has moved, a time that is over."""
    waist = await _filled(house, 10)
    other = await house.waist()
    before = await waist.everything()

    async def refused(tx: Transaction, why: str) -> None:
        await _writes(tx)
        await tx.drop_root("n:t5")
        if why == "duplicate":
            await tx.insert(Book("a", 7))
        elif why == "unique":
            await tx.insert(Card("new", "n0", "new"))
        elif why == "deadline":
            tx.set_deadline(await tx.now() - 1)
        else:
            await tx.touch("n:t6")
            async with other.transaction() as faster:
                await faster.update(Note("t6", 1, "moved"), expect={})

    for why in ("duplicate", "unique", "deadline", "root"):
        with pytest.raises(TurnkeeperError):
            async with waist.transaction() as tx:
                await refused(tx, why)
    before["notes"] = [Note("t6", 1, "moved") if note.topic == "t6" else note for note in before["notes"]]
    assert await waist.everything() == before


@pytest.mark.claim("T-126")
async def test_what_was_handed_out_stays_valid_over_a_rollback(house: House) -> None:
    """Records, lists and an open view answer after it what they answered before."""
    waist = await _filled(house, 10)
    held = await waist.scan(BOOKS, "a")
    copy = list(held)
    async with waist.read_view() as view:
        seen = await view.scan(BOOKS, "a")
        with pytest.raises(Stop):
            async with waist.transaction() as tx:
                await tx.update(Book("a", 1, "changed"), expect={})
                await tx.drop_root("s:a")
                raise Stop
        assert await view.scan(BOOKS, "a") == seen == held == copy
    containers = waist.engine.backend._state.tables[BOOKS]  # type: ignore[attr-defined]
    partition, rows = containers["s:a"], containers["s:a"].rows
    with pytest.raises(Stop):
        async with waist.transaction() as tx:
            await _writes(tx)
            raise Stop
    assert containers["s:a"] is partition
    assert partition.rows is rows
    assert len(rows) == 10


@pytest.mark.claim("T-127")
async def test_nothing_of_a_transaction_is_kept_after_its_end(house: House) -> None:
    """Neither its overlay nor what it had read, after a landing and after a rollback; the live rows are the same objects."""
    waist = await _filled(house, 10)
    state = waist.engine.backend._state  # type: ignore[attr-defined]
    untouched = state.tables[BOOKS]["s:a"].rows["a", 5]
    gone = []
    for aborts in (False, True):
        try:
            async with waist.transaction() as tx:
                await tx.insert(Book("a", 100))
                gone.append(weakref.ref(tx._overlay))
                if aborts:
                    raise Stop
        except (Stop, ValueError):
            pass
    gc.collect()
    assert [overlay() for overlay in gone] == [None, None]
    async with waist.read_view() as view:
        assert await view.count(BOOKS, "a") == 11
    partition = state.tables[BOOKS]["s:a"]
    await waist.add(Book("a", 200))
    assert state.tables[BOOKS]["s:a"] is partition  # a view that has ended costs the next landing no copy
    assert state.tables[BOOKS]["s:a"].rows["a", 5] is untouched


@pytest.mark.claim("T-128")
async def test_a_record_never_changes(house: House) -> None:
    """One that was read keeps what it said; it cannot be edited, and editing what hangs on it edits nothing stored."""
    waist = await house.library("a")
    await waist.add(Book("a", 1, "before", parts={"k": [1]}))
    held = await waist.get(BOOKS, "a", 1)
    assert held is not None
    with pytest.raises(AttributeError):
        held.code = "edited"  # type: ignore[misc]
    async with waist.transaction() as tx:
        assert await tx.update(Book("a", 1, "after", parts={"k": [2]}), expect=held)
    assert (held.code, held.parts) == ("before", {"k": [1]})
    async with waist.read_view() as view:
        async with waist.transaction() as tx:
            await tx.update(Book("a", 1, "later", parts={"k": [2]}), expect={})
            await tx.insert(Book("a", 2))
        seen = await view.get(BOOKS, "a", 1)
        assert seen is not None
        assert (seen.code, await view.count(BOOKS, "a")) == ("after", 1)
    current = await waist.get(BOOKS, "a", 1)
    assert current is not None
    current.parts["k"].append("edited")
    again = await waist.get(BOOKS, "a", 1)
    assert again is not None
    assert again.parts == {"k": [2]}
