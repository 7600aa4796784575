"""Contract: what writes do once they have landed. Inserts, compare-and-set, deletes, whole roots, revisions, sequence."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ..errors import Duplicate, Fenced, Misuse
from .house import House
from .tables import BOOKS, LOANS, NOTES, SHELVES, Book, Card, Loan, Note, Shelf


class Writing:
    """Landed writes."""

    async def test_a_landing_holds_rows_of_several_tables_and_roots(self, house: House) -> None:
        """One block, one outcome, whatever it wrote."""
        waist = await house.waist()
        await waist.add(Shelf("a"), Book("a", 1), Loan("a", 1, 1), Shelf("b"), Note("t", 1), Card("c", "1"))
        found = await waist.everything()
        assert {name: len(rows) for name, rows in found.items()} == {
            "shelves": 2, "books": 1, "loans": 1, "cards": 1, "notes": 1,
        }  # fmt: skip

    async def test_what_has_landed_is_seen_over_another_connection(self, house: House) -> None:
        """At once: an answer given is an answer kept."""
        waist = await house.library("a", books=[1])
        assert await (await house.waist()).everything() == await waist.everything()

    async def test_what_has_landed_is_still_there_after_closing(self, house: House) -> None:
        """The one who wrote it may go."""
        waist = await house.library("a", books=[1, 2])
        before = await waist.everything()
        async with waist.transaction() as tx:
            await tx.delete(BOOKS, "a", 1)
        await waist.engine.close()
        again = await (await house.waist()).everything()
        assert again == {**before, "books": before["books"][1:]}

    async def test_an_insert_of_a_known_row_is_a_duplicate_at_once(self, house: House) -> None:
        """The block goes on without it."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            assert await tx.get(BOOKS, "a", 1) is not None
            with pytest.raises(Duplicate) as caught:
                await tx.insert(Book("a", 1, "again"))
            await tx.insert(Book("a", 2))
        assert caught.value.fields["table"] == "books"
        assert [book.code for book in await waist.scan(BOOKS, "a")] == ["c1", "c"]

    async def test_an_insert_of_a_row_that_is_there_is_a_duplicate_at_the_landing(self, house: House) -> None:
        """When nobody looked before; then nothing of the block is kept."""
        waist = await house.library("a", books=[1])
        with pytest.raises(Duplicate) as caught:
            async with waist.transaction() as tx:
                await tx.insert(Note("t", 1))
                await tx.insert(Book("a", 1, "again"))
        assert caught.value.fields["table"] == "books"
        assert tx.outcome == "rolled back"
        assert await waist.scan(NOTES) == []
        assert [book.code for book in await waist.scan(BOOKS, "a")] == ["c1"]

    async def test_a_duplicate_in_a_batch_leaves_none_of_it(self, house: House) -> None:
        """Not even what stood before it."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            await tx.get(BOOKS, "a", 1)
            for batch in ([Book("a", 2), Book("a", 1)], [Book("a", 2), Note("t", 1), Book("a", 2)]):
                with pytest.raises(Duplicate):
                    await tx.insert_many(batch)
        assert [book.book_no for book in await waist.scan(BOOKS, "a")] == [1]
        assert await waist.scan(NOTES) == []

    async def test_an_empty_batch_is_nothing(self, house: House) -> None:
        """No root, no landing."""
        waist = await house.waist()
        async with waist.transaction() as tx:
            await tx.insert_many([])
        assert tx.outcome == "nothing to land"

    async def test_an_update_replaces_the_row_when_it_is_as_expected(self, house: House) -> None:
        """Whether the expectation is a record or some of its columns."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            found = await tx.get(BOOKS, "a", 1)
            assert found is not None
            assert await tx.update(replace(found, title="one"), expect=found)
            assert await tx.update(replace(found, title="two"), expect={"title": "one", "code": "c1"})
        assert [book.title for book in await waist.scan(BOOKS, "a")] == ["two"]

    async def test_an_update_of_a_row_that_is_otherwise_changes_nothing(self, house: House) -> None:
        """It says so; the block goes on."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            assert not await tx.update(Book("a", 1, "new"), expect={"code": "other"})
            assert not await tx.update(Book("a", 1, "new"), expect=Book("a", 1, "c1", 2.0))
        assert tx.outcome == "nothing to land"
        assert [book.code for book in await waist.scan(BOOKS, "a")] == ["c1"]

    async def test_an_update_of_an_absent_row_changes_nothing(self, house: House) -> None:
        """Not even with nothing expected: it is no insert."""
        waist = await house.library("a")
        async with waist.transaction() as tx:
            assert not await tx.update(Book("a", 1), expect={})
        assert await waist.scan(BOOKS) == []

    async def test_an_update_without_expectation_takes_the_row_as_it_is(self, house: House) -> None:
        """The caller has decided on the root it touched."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            assert await tx.update(Book("a", 1, "new"), expect={})
        assert [book.code for book in await waist.scan(BOOKS, "a")] == ["new"]

    async def test_json_is_expected_by_value_and_type(self, house: House) -> None:
        """The order of keys does not count; 1, 1.0 and true differ, and so do 0.0 and -0.0."""
        waist = await house.waist()
        await waist.add(Note("t", 1, {"a": 1, "b": [0.0]}))
        async with waist.transaction() as tx:
            for other in ({"a": 1.0, "b": [0.0]}, {"a": True, "b": [0.0]}, {"a": 1, "b": [-0.0]}, {"a": 1}, None):
                assert not await tx.update(Note("t", 1, "new"), expect={"body": other}), other
            assert await tx.update(Note("t", 1, "new"), expect={"body": {"b": [0.0], "a": 1}})
        assert await waist.scan(NOTES) == [Note("t", 1, "new")]

    async def test_an_update_moves_the_row_in_every_order(self, house: House) -> None:
        """No order remembers where it stood."""
        waist = await house.library("a", books=[1, 2, 3])
        async with waist.transaction() as tx:
            await tx.update(Book("a", 1, "z", 9.0, b"z"), expect={})
        for order, first, last in (("by_code", "c1", "z"), ("by_weight", 1.0, 9.0), ("by_mark", b"m", b"z")):
            assert [b.book_no for b in await waist.scan(BOOKS, "a", order=order)] == [2, 3, 1]
            assert [b.book_no for b in await waist.scan(BOOKS, "a", order=order, low=last)] == [1]
            assert 1 not in [b.book_no for b in await waist.scan(BOOKS, "a", order=order, high=first)]
        assert [b.book_no for b in await waist.scan(BOOKS, "c1", order="everywhere")] == []

    async def test_a_delete_says_whether_there_was_a_row(self, house: House) -> None:
        """The second time there is none."""
        waist = await house.library("a", books=[1, 2])
        async with waist.transaction() as tx:
            assert await tx.delete(BOOKS, "a", 1)
            assert not await tx.delete(BOOKS, "a", 1)
            assert not await tx.delete(BOOKS, "a", 9)
        assert [book.book_no for book in await waist.scan(BOOKS, "a")] == [2]
        assert [b.book_no for b in await waist.scan(BOOKS, order="everywhere")] == [2]

    async def test_a_deleted_row_may_be_inserted_again(self, house: House) -> None:
        """In the same block, and in a later one."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            await tx.delete(BOOKS, "a", 1)
            await tx.insert(Book("a", 1, "second"))
        assert [book.code for book in await waist.scan(BOOKS, "a")] == ["second"]
        async with waist.transaction() as tx:
            await tx.delete(BOOKS, "a", 1)
        await waist.add(Book("a", 1, "third"))
        assert [book.code for book in await waist.scan(BOOKS, "a")] == ["third"]

    async def test_an_insert_taken_back_is_nothing(self, house: House) -> None:
        """Only the net effect lands."""
        waist = await house.library("a")
        before = await waist.rev("s:a")
        async with waist.transaction() as tx:
            await tx.insert(Book("a", 1))
            assert await tx.delete(BOOKS, "a", 1)
        assert tx.outcome == "nothing to land"
        assert (await waist.scan(BOOKS), await waist.rev("s:a")) == ([], before)

    async def test_writing_a_row_as_it_was_is_nothing(self, house: House) -> None:
        """There and back again within one block moves no revision."""
        waist = await house.library("a", books=[1])
        before = await waist.rev("s:a")
        async with waist.transaction() as tx:
            found = await tx.get(BOOKS, "a", 1)
            assert found is not None
            assert await tx.update(replace(found, code="x"), expect={})
            assert await tx.update(found, expect={})
        assert tx.outcome == "nothing to land"
        assert await waist.rev("s:a") == before

    async def test_a_block_without_writes_lands_nothing(self, house: House) -> None:
        """And moves nothing."""
        waist = await house.library("a", books=[1])
        before = await waist.rev("s:a")
        async with waist.transaction() as tx:
            await tx.touch("s:a")
            await tx.scan(BOOKS, "a")
        assert (tx.outcome, tx.commit_seq) == ("nothing to land", None)
        assert await waist.rev("s:a") == before

    async def test_a_landing_moves_the_roots_it_wrote_and_no_other(self, house: House) -> None:
        """A root it only read or touched stays at its revision."""
        waist = await house.library("a", "b", books=[1])
        before = [await waist.rev(root) for root in ("s:a", "s:b", "n:t")]
        async with waist.transaction() as tx:
            await tx.touch("n:t")
            await tx.get(BOOKS, "b", 1)
            await tx.insert(Book("a", 2))
        assert [await waist.rev(root) for root in ("s:a", "s:b", "n:t")] == [before[0] + 1, before[1], 0]

    async def test_every_landing_has_a_larger_commit_sequence(self, house: House) -> None:
        """Larger than that of every landing it could have seen, over either connection."""
        waist, other = await house.library("a"), await house.waist()
        seen = []
        for number in range(6):
            async with (waist, other)[number % 2].transaction() as tx:
                await tx.insert(Note("t", number))
            assert tx.outcome == "landed"
            seen.append(tx.commit_seq or 0)
        assert seen == sorted(set(seen))
        assert seen[0] > 0

    async def test_a_root_comes_into_being_at_its_landings_sequence(self, house: House) -> None:
        """With a head and without one."""
        waist = await house.waist()
        async with waist.transaction() as tx:
            await tx.insert_many([Shelf("a"), Note("t", 1)])
        assert [await waist.rev("s:a"), await waist.rev("n:t")] == [tx.commit_seq, tx.commit_seq]

    async def test_a_whole_root_is_dropped_at_once(self, house: House) -> None:
        """Every row of every table under it, its revision too, and nothing of any other root."""
        waist = await house.library("a", "b", books=[1, 2])
        await waist.add(Loan("a", 1, 1), Loan("b", 1, 1))
        async with waist.transaction() as tx:
            await tx.drop_root("s:a")
            assert await tx.scan(BOOKS, "a") == []
            assert await tx.get(SHELVES, "a") is None
            assert [book.shelf_id for book in await tx.scan(BOOKS, order="everywhere")] == ["b", "b"]
        assert [await waist.rev("s:a"), len(await waist.scan(BOOKS)), len(await waist.scan(LOANS))] == [0, 2, 1]
        assert [shelf.shelf_id for shelf in await waist.scan(SHELVES)] == ["b"]

    async def test_a_root_without_a_head_is_dropped_with_its_revision(self, house: House) -> None:
        """Nothing of it is left behind, not even where the waist keeps its revision."""
        waist = await house.waist()
        await waist.add(Note("t", 1), Note("t", 2), Note("u", 1))
        async with waist.transaction() as tx:
            await tx.drop_root("n:t")
        assert await waist.scan(NOTES) == [Note("u", 1)]
        assert await waist.rev("n:t") == 0

    async def test_dropping_a_root_that_is_not_there_changes_nothing(self, house: House) -> None:
        """It is not an error: the outcome is what was asked for."""
        waist = await house.library("a", books=[1])
        before = await waist.everything()
        async with waist.transaction() as tx:
            await tx.drop_root("s:nowhere")
            await tx.drop_root("n:nowhere")
        assert await waist.everything() == before
        assert [await waist.rev("s:nowhere"), await waist.rev("n:nowhere")] == [0, 0]

    async def test_deleting_a_head_drops_its_whole_root(self, house: House) -> None:
        """No row is left without the root it belongs to."""
        waist = await house.library("a", "b", books=[1])
        async with waist.transaction() as tx:
            assert await tx.delete(SHELVES, "a")
            assert not await tx.delete(SHELVES, "a")
        assert [book.shelf_id for book in await waist.scan(BOOKS)] == ["b"]
        assert await waist.rev("s:a") == 0

    async def test_a_dropped_root_may_come_into_being_again_in_the_same_block(self, house: House) -> None:
        """Another life: only what was written after the drop, at a revision no earlier life had."""
        waist = await house.library("a", books=[1, 2])
        before = await waist.rev("s:a")
        async with waist.transaction() as tx:
            await tx.drop_root("s:a")
            await tx.insert_many([Shelf("a", "attic"), Book("a", 2, "new")])
        assert await waist.scan(SHELVES) == [Shelf("a", "attic")]
        assert [book.code for book in await waist.scan(BOOKS, "a")] == ["new"]
        assert await waist.rev("s:a") == tx.commit_seq
        assert (tx.commit_seq or 0) > before

    async def test_a_root_that_comes_again_begins_above_its_former_revisions(self, house: House) -> None:
        """So no expectation of an earlier life matches, however often the root had moved."""
        waist = await house.library("a")
        for number in range(5):
            await waist.add(Book("a", number))
        former = await waist.rev("s:a")
        async with waist.transaction() as tx:
            await tx.drop_root("s:a")
        await waist.shelf("a")
        assert await waist.rev("s:a") > former

    async def test_rows_cannot_be_added_under_a_head_that_is_not_there(self, house: House) -> None:
        """A programming error, told at the landing; nothing is kept."""
        waist = await house.waist()
        with pytest.raises(Misuse, match="shelves"):
            await waist.add(Book("nowhere", 1))
        async with waist.transaction() as tx:
            await tx.insert(Book("a", 1))
            await tx.insert(Shelf("a"))
        assert [book.shelf_id for book in await waist.scan(BOOKS)] == ["a"]

    async def test_a_landing_after_its_deadline_is_refused(self, house: House) -> None:
        """On the store's clock; nothing is kept. The earliest of several deadlines counts."""
        waist = await house.library("a")
        for deadlines in ([-1_000], [60_000_000, -1_000], [-1_000, 60_000_000]):
            with pytest.raises(Fenced):
                async with waist.transaction() as tx:
                    now = await tx.now()
                    for ahead in deadlines:
                        tx.set_deadline(now + ahead)
                    await tx.insert(Book("a", 1))
            assert tx.outcome == "rolled back"
        assert await waist.scan(BOOKS) == []

    async def test_a_landing_before_its_deadline_is_not(self, house: House) -> None:
        """A deadline costs nothing while there is time."""
        waist = await house.library("a")
        async with waist.transaction() as tx:
            tx.set_deadline(await tx.now() + 60_000_000)
            await tx.insert(Book("a", 1))
        assert len(await waist.scan(BOOKS)) == 1

    async def test_a_transaction_has_one_time(self, house: House) -> None:
        """Microseconds UTC from the store's clock, the same at every question, never running backwards."""
        waist = await house.waist()
        async with waist.transaction() as tx:
            first = await tx.now()
            await waist.engine.backend.read([])
            assert await tx.now() == first
        async with waist.transaction() as tx:
            assert await tx.now() >= first > 1_600_000_000_000_000
