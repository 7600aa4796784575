"""Contract: reads inside a block see its own writes laid over the committed rows, in every kind of read."""

from __future__ import annotations

from ..store.transaction import Transaction
from .house import House
from .tables import BOOKS, LOANS, NOTES, SHELVES, Book, Loan, Note, Shelf


async def _numbers(tx: Transaction, *prefix: object, **bounds: object) -> list[int]:
    return [book.book_no for book in await tx.scan(BOOKS, *prefix, **bounds)]  # type: ignore[arg-type]


class OwnWrites:
    """Read your writes."""

    async def test_a_get_sees_own_inserts_updates_and_deletes(self, house: House) -> None:
        """At once, by the same tx."""
        waist = await house.library("a", books=[1, 2])
        async with waist.transaction() as tx:
            await tx.insert(Book("a", 3))
            await tx.update(Book("a", 1, "new"), expect={})
            await tx.delete(BOOKS, "a", 2)
            found = [await tx.get(BOOKS, "a", number) for number in (1, 2, 3)]
        assert [None if book is None else book.code for book in found] == ["new", None, "c"]

    async def test_a_scan_lays_own_rows_between_committed_ones(self, house: House) -> None:
        """In order, in both directions."""
        waist = await house.library("a", books=[1, 4, 6])
        async with waist.transaction() as tx:
            await tx.insert_many([Book("a", number) for number in (7, 0, 5)])
            assert await _numbers(tx, "a") == [0, 1, 4, 5, 6, 7]
            assert await _numbers(tx, "a", reverse=True) == [7, 6, 5, 4, 1, 0]

    async def test_a_scan_hides_own_deletes(self, house: House) -> None:
        """Also when the deleted rows are all there were."""
        waist = await house.library("a", books=[1, 2, 3])
        async with waist.transaction() as tx:
            await tx.delete(BOOKS, "a", 2)
            assert await _numbers(tx, "a") == [1, 3]
            await tx.delete(BOOKS, "a", 1)
            await tx.delete(BOOKS, "a", 3)
            assert await _numbers(tx, "a") == []

    async def test_a_limit_counts_what_is_seen(self, house: House) -> None:
        """Rows hidden by own deletes are made up for, own rows count like any other."""
        waist = await house.library("a", books=range(10))
        async with waist.transaction() as tx:
            for number in (0, 2, 9):
                await tx.delete(BOOKS, "a", number)
            await tx.insert(Book("a", 20))
            assert await _numbers(tx, "a", limit=3) == [1, 3, 4]
            assert await _numbers(tx, "a", limit=3, reverse=True) == [20, 8, 7]
            assert await _numbers(tx, "a", limit=0) == []

    async def test_an_updated_row_is_found_where_it_stands_now(self, house: House) -> None:
        """In the orders it moved in, and nowhere else."""
        waist = await house.library("a", books=[1, 2, 3])
        async with waist.transaction() as tx:
            await tx.update(Book("a", 1, "z", 9.0, b"z"), expect={})
            assert await _numbers(tx, "a", order="by_code") == [2, 3, 1]
            assert await _numbers(tx, "a", order="by_weight", low=9.0) == [1]
            assert await _numbers(tx, "a", order="by_mark", high=b"m") == [2, 3]
            assert await _numbers(tx, "a", order="by_code", high="c1") == []

    async def test_ranges_and_places_hold_for_own_rows(self, house: House) -> None:
        """Low, high and after, in both directions."""
        waist = await house.library("a", books=[2, 4, 6])
        async with waist.transaction() as tx:
            await tx.insert_many([Book("a", number) for number in (1, 3, 5, 7)])
            assert await _numbers(tx, "a", low=3, high=5) == [3, 4, 5]
            assert await _numbers(tx, "a", after=("a", 5)) == [6, 7]
            assert await _numbers(tx, "a", after=("a", 3), reverse=True) == [2, 1]
            assert await _numbers(tx, "a", low=2, after=("a", 2), limit=2) == [3, 4]

    async def test_a_scan_across_roots_sees_own_rows_of_all_of_them(self, house: House) -> None:
        """New ones, moved ones, without those deleted."""
        waist = await house.library("a", "b", books=[1])
        async with waist.transaction() as tx:
            await tx.insert(Shelf("c"))
            await tx.insert(Book("c", 1, "c0"))
            await tx.update(Book("b", 1, "c9"), expect={})
            await tx.delete(BOOKS, "a", 1)
            found = await tx.scan(BOOKS, order="everywhere")
            assert [(book.code, book.shelf_id) for book in found] == [("c0", "c"), ("c9", "b")]
            assert await tx.scan(BOOKS, "c1", order="everywhere") == []
            assert [shelf.shelf_id for shelf in await tx.scan(SHELVES, limit=2, reverse=True)] == ["c", "b"]

    async def test_counts_and_sizes_include_own_writes(self, house: House) -> None:
        """Without deleted rows, with new ones, changed ones once."""
        waist = await house.library("a", books=[1, 2, 3])
        async with waist.transaction() as tx:
            await tx.delete(BOOKS, "a", 1)
            await tx.update(Book("a", 2, mark=b"", parts="xy"), expect={})
            await tx.insert(Book("a", 4, mark=b"12345", parts=[]))
            assert await tx.count(BOOKS, "a") == 3
            assert await tx.count(BOOKS, "a", low=3) == 2
            assert await tx.size(BOOKS, "a", low=2, high=2) == len('"xy"')
            assert await tx.size(BOOKS, "a", low=4) == 5 + len("[]")
        assert [book.book_no for book in await waist.scan(BOOKS)] == [2, 3, 4]

    async def test_an_update_follows_an_own_insert_and_an_own_update(self, house: House) -> None:
        """The expectation is on the row as this transaction left it."""
        waist = await house.library("a")
        async with waist.transaction() as tx:
            await tx.insert(Book("a", 1, "one"))
            assert not await tx.update(Book("a", 1, "x"), expect={"code": "two"})
            assert await tx.update(Book("a", 1, "two"), expect={"code": "one"})
            assert await tx.update(Book("a", 1, "three"), expect={"code": "two"})
        assert [book.code for book in await waist.scan(BOOKS)] == ["three"]

    async def test_a_dropped_root_reads_as_empty_until_it_is_written_again(self, house: House) -> None:
        """By get, scan, limited scan across roots, count and size."""
        waist = await house.library("a", "b", books=[1, 2])
        await waist.add(Loan("a", 1, 1))
        async with waist.transaction() as tx:
            await tx.insert(Book("a", 3))
            await tx.drop_root("s:a")
            assert await tx.get(BOOKS, "a", 1) is None
            assert (await tx.scan(LOANS, "a"), await tx.scan(BOOKS, "a", limit=5)) == ([], [])
            assert [await tx.count(BOOKS, "a"), await tx.size(BOOKS, "a"), await tx.count(BOOKS)] == [0, 0, 2]
            assert [book.shelf_id for book in await tx.scan(BOOKS, order="everywhere", limit=2)] == ["b", "b"]
            await tx.insert_many([Shelf("a"), Book("a", 2, "again")])
            assert [book.code for book in await tx.scan(BOOKS, "a")] == ["again"]
            assert await tx.scan(LOANS, "a") == []

    async def test_many_own_rows_are_merged_as_exactly_as_few(self, house: House) -> None:
        """Hundreds of inserts, updates and deletes over hundreds of rows."""
        waist = await house.library("a", books=range(0, 600, 2))
        async with waist.transaction() as tx:
            await tx.insert_many([Book("a", number) for number in range(1, 600, 2)])
            for number in range(0, 600, 3):
                await tx.delete(BOOKS, "a", number)
            kept = [number for number in range(600) if number % 3]
            assert await _numbers(tx, "a") == kept
            assert await _numbers(tx, "a", limit=50, after=("a", 300)) == [n for n in kept if n > 300][:50]
            assert await _numbers(tx, "a", limit=7, low=100, reverse=True) == kept[::-1][:7]
            assert await tx.count(BOOKS, "a") == len(kept)
        assert [book.book_no for book in await waist.scan(BOOKS, "a")] == kept

    async def test_own_writes_are_nobody_elses(self, house: House) -> None:
        """Neither a reader of the same store nor one over another connection sees them before the landing."""
        waist, other = await house.library("a", books=[1]), await house.waist()
        async with waist.transaction() as tx:
            await tx.insert_many([Book("a", 2), Note("t", 1)])
            await tx.delete(BOOKS, "a", 1)
            for reader in (waist, other):
                assert [book.book_no for book in await reader.scan(BOOKS, "a")] == [1]
                assert await reader.scan(NOTES) == []
        for reader in (waist, other):
            assert [book.book_no for book in await reader.scan(BOOKS, "a")] == [2]

    async def test_a_row_read_once_reads_the_same_to_the_end_of_the_block(self, house: House) -> None:
        """Though somebody else has changed it meanwhile; also that there was none."""
        waist, other = await house.library("a", books=[1]), await house.waist()
        async with waist.transaction() as tx:
            before = [await tx.get(BOOKS, "a", 1), await tx.get(BOOKS, "a", 2)]
            async with other.transaction() as faster:
                await faster.update(Book("a", 1, "new"), expect={})
                await faster.insert(Book("a", 2))
            assert [await tx.get(BOOKS, "a", 1), await tx.get(BOOKS, "a", 2)] == before
        assert [book.code for book in await waist.scan(BOOKS, "a")] == ["new", "c"]
