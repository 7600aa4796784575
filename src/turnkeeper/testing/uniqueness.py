"""Contract: a declared uniqueness holds across the whole store, judged on the state that a landing leaves behind."""

from __future__ import annotations

import pytest

from ..errors import Duplicate
from ..store.transaction import Transaction
from .house import House, Waist
from .tables import CARDS, NOTES, Card, Note


async def _cards(waist: Waist) -> dict[str, str]:
    return {card.card_id: card.number for card in await waist.scan(CARDS)}


class Uniqueness:
    """Unique values of rows with roots of their own."""

    async def test_a_second_row_with_a_unique_value_is_refused(self, house: House) -> None:
        """At the landing; nothing of the block is kept, and the table is named."""
        waist = await house.waist()
        await waist.add(Card("one", "7", "x"))
        with pytest.raises(Duplicate) as caught:
            async with waist.transaction() as tx:
                await tx.insert(Note("t", 1))
                await tx.insert(Card("two", "7", "y"))
        assert (caught.value.fields["table"], tx.outcome) == ("cards", "rolled back")
        assert (await _cards(waist), await waist.scan(NOTES)) == ({"one": "7"}, [])

    async def test_an_update_to_a_taken_value_is_refused(self, house: House) -> None:
        """Uniqueness is of rows, however they came to be as they are."""
        waist = await house.waist()
        await waist.add(Card("one", "1", "x"), Card("two", "2", "y"))
        with pytest.raises(Duplicate):
            async with waist.transaction() as tx:
                await tx.update(Card("two", "1", "y"), expect={})
        assert await _cards(waist) == {"one": "1", "two": "2"}

    async def test_two_new_rows_of_one_block_may_not_share_a_value(self, house: House) -> None:
        """The landing is judged as a whole."""
        waist = await house.waist()
        with pytest.raises(Duplicate):
            await waist.add(Card("one", "7", "x"), Card("two", "7", "y"))
        assert await _cards(waist) == {}

    async def test_a_partial_uniqueness_counts_only_its_rows(self, house: House) -> None:
        """A holder has one open card and any number of shut ones."""
        waist = await house.waist()
        await waist.add(Card("one", "1", "x", "shut"), Card("two", "2", "x", "shut"), Card("three", "3", "x"))
        with pytest.raises(Duplicate):
            await waist.add(Card("four", "4", "x", "open"))
        await waist.add(Card("four", "4", "x", "shut"))
        assert len(await _cards(waist)) == 4

    async def test_a_row_that_comes_into_a_partial_uniqueness_is_judged(self, house: House) -> None:
        """Opening a shut card is as bad as making an open one."""
        waist = await house.waist()
        await waist.add(Card("one", "1", "x", "open"), Card("two", "2", "x", "shut"))
        with pytest.raises(Duplicate) as caught:
            async with waist.transaction() as tx:
                await tx.update(Card("two", "2", "x", "open"), expect={})
        assert caught.value.fields["table"] == "cards"
        async with waist.transaction() as tx:
            await tx.update(Card("one", "1", "x", "shut"), expect={})
        async with waist.transaction() as tx:
            await tx.update(Card("two", "2", "x", "open"), expect={})

    async def test_a_deleted_row_frees_its_value(self, house: House) -> None:
        """In the same block, and for later ones."""
        waist = await house.waist()
        await waist.add(Card("one", "7", "x"))
        async with waist.transaction() as tx:
            await tx.delete(CARDS, "one")
            await tx.insert(Card("two", "7", "x"))
        async with waist.transaction() as tx:
            await tx.delete(CARDS, "two")
        await waist.add(Card("three", "7", "x"))
        assert await _cards(waist) == {"three": "7"}

    async def test_a_dropped_root_frees_its_values(self, house: House) -> None:
        """A row goes with its root as if it had been deleted."""
        waist = await house.waist()
        await waist.add(Card("one", "7", "x"))
        async with waist.transaction() as tx:
            await tx.drop_root("c:one")
            await tx.insert(Card("two", "7", "x"))
        assert await _cards(waist) == {"two": "7"}

    async def test_a_changed_row_frees_its_value_for_another_of_the_same_block(self, house: House) -> None:
        """Whichever of the two was written first."""
        waist = await house.waist()
        await waist.add(Card("one", "1", "x"), Card("two", "2", "y"))
        async with waist.transaction() as tx:
            await tx.update(Card("two", "3", "y"), expect={})
            await tx.update(Card("one", "2", "x"), expect={})
        async with waist.transaction() as tx:
            await tx.update(Card("one", "3", "x"), expect={})
            await tx.update(Card("two", "4", "y"), expect={})
        assert await _cards(waist) == {"one": "3", "two": "4"}

    async def test_two_rows_may_swap_their_values_in_one_landing(self, house: House) -> None:
        """Only the state after it counts, never one on the way."""
        waist = await house.waist()
        await waist.add(Card("one", "1", "x"), Card("two", "2", "y"))
        async with waist.transaction() as tx:
            await tx.update(Card("one", "2", "y"), expect={})
            await tx.update(Card("two", "1", "x"), expect={})
        assert await _cards(waist) == {"one": "2", "two": "1"}

    async def test_a_row_does_not_stand_in_its_own_way(self, house: House) -> None:
        """Changing something else about it is no conflict."""
        waist = await house.waist()
        await waist.add(Card("one", "1", "x"))
        async with waist.transaction() as tx:
            await tx.update(Card("one", "1", "x", uses=1), expect={})
        async with waist.transaction() as tx:
            await tx.delete(CARDS, "one")
            await tx.insert(Card("one", "1", "x", uses=2))
        assert (await waist.get(CARDS, "one")) == Card("one", "1", "x", uses=2)

    async def test_a_taken_value_is_found_at_the_end_of_a_savepoint(self, house: House) -> None:
        """Where it can be caught; the transaction goes on as before it."""
        waist = await house.waist()
        await waist.add(Card("one", "7", "x"))
        async with waist.transaction() as tx:
            await tx.insert(Note("t", 1))
            with pytest.raises(Duplicate):
                async with tx.savepoint():
                    await tx.insert_many([Note("t", 2), Card("two", "7", "y")])
            assert await tx.get(CARDS, "two") is None
            await tx.insert_many([Note("t", 3), Card("three", "8", "z")])
        assert await _cards(waist) == {"one": "7", "three": "8"}
        assert [note.place for note in await waist.scan(NOTES)] == [1, 3]

    async def test_a_value_taken_within_the_block_is_found_at_the_end_of_a_savepoint(self, house: House) -> None:
        """By the block's own earlier row, or by another row of the savepoint."""
        waist = await house.waist()
        async with waist.transaction() as tx:
            await tx.insert(Card("one", "7", "x"))
            for pair in ([Card("two", "7", "y")], [Card("two", "8", "y"), Card("three", "8", "z")]):
                with pytest.raises(Duplicate):
                    async with tx.savepoint():
                        await tx.insert_many(pair)
            async with tx.savepoint():
                await tx.delete(CARDS, "one")
                await tx.insert(Card("four", "7", "x"))
        assert await _cards(waist) == {"four": "7"}

    async def test_transact_finds_a_taken_value_where_it_is_inserted(self, house: House) -> None:
        """A race lost on a unique value runs again, and then the body itself can deal with it."""
        waist = await house.waist()
        await waist.add(Card("one", "7", "x"))
        runs = []

        async def body(tx: Transaction) -> str:
            runs.append(1)
            try:
                await tx.insert(Card("two", "7", "y"))
            except Duplicate:
                await tx.insert(Card("two", "8", "y"))
                return "another number"
            return "this number"

        assert await waist.transact(body) == "another number"
        assert (len(runs), await _cards(waist)) == (2, {"one": "7", "two": "8"})

    async def test_transact_gives_up_on_a_value_that_stays_taken(self, house: House) -> None:
        """At the second run, not after seconds of retries."""
        waist = await house.waist()
        await waist.add(Card("one", "7", "x"))
        runs = []

        async def body(tx: Transaction) -> None:
            runs.append(1)
            await tx.insert(Card("two", "7", "y"))

        with pytest.raises(Duplicate):
            await waist.transact(body)
        assert (len(runs), await _cards(waist)) == (2, {"one": "7"})

    async def test_two_racing_for_one_value_never_both_win(self, house: House) -> None:
        """Over two connections, with roots that have nothing else in common."""
        waist, other = await house.waist(), await house.waist()
        for number in range(5):
            with pytest.raises(Duplicate):
                async with waist.transaction() as tx:
                    await tx.insert(Card(f"a{number}", str(number), f"a{number}"))
                    await other.add(Card(f"b{number}", str(number), f"b{number}"))
        assert sorted(await _cards(waist)) == [f"b{number}" for number in range(5)]
