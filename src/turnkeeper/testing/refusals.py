"""Contract: what no backend can keep is refused before any backend sees it, with the same error, naming where."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ..errors import Invalid, TooLarge
from ..limits import ID_BYTES, JSON_BYTES
from .house import House
from .tables import BOOKS, NOTES, SHELVES, Book, Note, Shelf

SECRET = "what-a-person-wrote"


async def _refused(house: House, record: msgspec.Struct, path: str, error: type[Invalid] = Invalid) -> None:
    """Check that a record is refused with its path, that the message tells no value, and that nothing was kept."""
    waist = await house.library("a")
    async with waist.transaction() as tx:
        with pytest.raises(error) as caught:
            await tx.insert(record)
        await tx.insert(Book("a", 99))
    assert getattr(caught.value, "path", None) == path
    assert SECRET not in str(caught.value)
    assert [book.book_no for book in await waist.scan(BOOKS)] == [99]
    assert await waist.scan(NOTES) == []


class Refusals:
    """One intake for all backends."""

    async def test_a_number_that_is_not_finite_is_refused_in_json(self, house: House) -> None:
        """NaN and both infinities, with the path to them."""
        await _refused(house, Note("t", 1, {"a": [0, float("nan")]}), "notes.body.a[1]")
        for number in (float("inf"), float("-inf")):
            with pytest.raises(Invalid):
                await (await house.waist()).add(Note("t", 1, number))

    async def test_a_whole_number_beyond_64_bits_is_refused_in_json(self, house: House) -> None:
        """On either side, however deep."""
        await _refused(house, Note("t", 1, {"x": {"y": [2**63]}}), "notes.body.x.y[0]")
        with pytest.raises(Invalid):
            await (await house.waist()).add(Note("t", 1, -(2**63) - 1))

    async def test_a_type_that_is_not_json_is_refused(self, house: House) -> None:
        """Nothing is coerced: not bytes, not a set, not an object with a text form."""
        await _refused(house, Note("t", 1, [SECRET.encode()]), "notes.body[0]")
        waist = await house.waist()
        for value in ({1}, object(), 1j, frozenset(), range(3)):
            with pytest.raises(Invalid):
                await waist.add(Note("t", 1, value))

    async def test_a_key_that_is_not_text_is_refused_in_json(self, house: House) -> None:
        """1 and "1" would become one key."""
        await _refused(house, Note("t", 1, {"a": {1: SECRET}}), "notes.body.a")

    async def test_nesting_below_64_levels_is_refused(self, house: House) -> None:
        """With an error, not a recursion that fails somewhere else."""
        value: Any = SECRET
        for _ in range(65):
            value = [value]
        await _refused(house, Note("t", 1, value), "notes.body" + "[0]" * 64)

    async def test_a_json_value_above_its_limit_is_refused(self, house: House) -> None:
        """The error names the limit and the size; the limit is of bytes, not of characters."""
        waist = await house.waist()
        with pytest.raises(TooLarge) as caught:
            await waist.add(Note("t", 1, "é" * (JSON_BYTES // 2)))
        assert (caught.value.fields["limit"], caught.value.fields["family"]) == (JSON_BYTES, "json-bytes")
        assert await waist.scan(NOTES) == []

    async def test_a_whole_number_cell_refuses_what_does_not_fit(self, house: House) -> None:
        """Beyond 64 bits, and what is no whole number at all."""
        await _refused(house, Book("a", 1, pages=2**63), "books.pages")
        waist = await house.waist()
        for pages in (-(2**63) - 1, 1.0, "1", b"1"):
            with pytest.raises(Invalid):
                await waist.add(Book("a", 1, pages=pages))  # type: ignore[arg-type]

    async def test_a_real_cell_refuses_what_is_no_finite_number(self, house: House) -> None:
        """NaN, infinities, texts, and whole numbers that a float cannot hold."""
        await _refused(house, Book("a", 1, weight=float("nan")), "books.weight")
        waist = await house.waist()
        for weight in (float("inf"), "1.0", None, 10**400, 2**53 + 1):
            with pytest.raises(Invalid):
                await waist.add(Book("a", 1, weight=weight))  # type: ignore[arg-type]

    async def test_an_id_refuses_a_nul_character(self, house: House) -> None:
        """PostgreSQL cannot keep one in text."""
        await _refused(house, Book("a", 1, code="a\x00b"), "books.code")

    async def test_an_id_refuses_a_lone_surrogate(self, house: House) -> None:
        """No database can keep one in text."""
        await _refused(house, Book("a", 1, code="\ud800"), "books.code")

    async def test_an_id_above_its_limit_is_refused(self, house: House) -> None:
        """Measured in bytes."""
        await _refused(house, Book("a", 1, code="é" * (ID_BYTES // 2 + 1)), "books.code", TooLarge)

    async def test_an_id_refuses_what_is_not_text(self, house: House) -> None:
        """Nothing is turned into text."""
        await _refused(house, Book("a", 1, code=5), "books.code")  # type: ignore[arg-type]

    async def test_a_null_is_refused_where_the_column_has_none(self, house: House) -> None:
        """For every kind of cell but JSON, where it is a value."""
        await _refused(house, Book("a", 1, code=None), "books.code")  # type: ignore[arg-type]
        waist = await house.waist()
        for record in (Book("a", None), Book("a", 1, mark=None), Book(None, 1)):  # type: ignore[arg-type]
            with pytest.raises(Invalid):
                await waist.add(record)

    async def test_a_bytes_cell_refuses_text(self, house: House) -> None:
        """There is no encoding to guess."""
        await _refused(house, Book("a", 1, mark="text"), "books.mark")  # type: ignore[arg-type]

    async def test_one_refused_record_leaves_none_of_its_batch(self, house: House) -> None:
        """`insert_many` is whole or not at all."""
        waist = await house.library("a")
        async with waist.transaction() as tx:
            with pytest.raises(Invalid):
                await tx.insert_many([Book("a", 1), Note("t", 1), Book("a", 2, code="\x00")])
            assert await tx.scan(BOOKS, "a") == []
        assert (await waist.scan(BOOKS), await waist.scan(NOTES)) == ([], [])

    async def test_an_update_refuses_the_same_values(self, house: House) -> None:
        """And leaves the row as it was."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            before = await tx.get(BOOKS, "a", 1)
            with pytest.raises(Invalid) as caught:
                await tx.update(Book("a", 1, title="x", parts={"k": float("nan")}), expect={})
            assert await tx.get(BOOKS, "a", 1) == before
        assert getattr(caught.value, "path", None) == "books.parts.k"
        assert await waist.get(BOOKS, "a", 1) == before

    async def test_an_expectation_is_checked_like_a_value(self, house: House) -> None:
        """A column that is not there and a value of the wrong kind are errors, not a row that is never as expected."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            for expect in ({"colour": 1}, {"pages": "1"}, {"code": 5}):
                with pytest.raises(Invalid):
                    await tx.update(Book("a", 1, "new"), expect=expect)

    async def test_a_key_to_look_up_is_checked_like_one_to_keep(self, house: House) -> None:
        """A wrong type is an error, not a row that is never found."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            for key in (("a", "1"), ("a", 1.0), ("a", None), ("a\x00", 1), (5, 1), ("a", 2**63)):
                with pytest.raises(Invalid):
                    await tx.get(BOOKS, *key)
                with pytest.raises(Invalid):
                    await tx.delete(BOOKS, *key)
            assert await tx.get(BOOKS, "a", 1) is not None

    async def test_a_key_has_as_many_parts_as_its_table_says(self, house: House) -> None:
        """Fewer would name many rows."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            for key in ((), ("a",), ("a", 1, 2)):
                with pytest.raises(Invalid):
                    await tx.get(BOOKS, *key)
                with pytest.raises(Invalid):
                    await tx.delete(BOOKS, *key)

    async def test_an_order_that_is_not_declared_is_refused(self, house: House) -> None:
        """No scan without an index behind it."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            with pytest.raises(Invalid, match="by_code"):
                await tx.scan(BOOKS, "a", order="by_pages")

    async def test_bounds_that_do_not_fit_the_order_are_refused(self, house: House) -> None:
        """A prefix too long, a range behind the last column, a value of another kind."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            for prefix, bounds in (
                (("a", 1, 2), {}), (("a", 1), {"low": 1}), (("a", 1), {"high": 1}), (("a",), {"low": "x"}),
                (("a",), {"high": 1.5}), ((5,), {}), (("a\x00",), {}),
            ):  # fmt: skip
                with pytest.raises(Invalid):
                    await tx.scan(BOOKS, *prefix, **bounds)
                with pytest.raises(Invalid):
                    await tx.count(BOOKS, *prefix, **bounds)

    async def test_after_must_name_a_whole_place_inside_the_prefix(self, house: House) -> None:
        """Half a place, or one of another root, would silently skip rows."""
        waist = await house.library("a", "b", books=[1])
        async with waist.transaction() as tx:
            for after in (("a",), ("a", 1, 2), ("b", 1), ("a", "1")):
                with pytest.raises(Invalid):
                    await tx.scan(BOOKS, "a", after=after)

    async def test_a_limit_is_a_whole_number_from_zero(self, house: House) -> None:
        """Neither -1, nor a number with a fraction, nor a text."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            for limit in (-1, 1.5, "1", True):
                with pytest.raises(Invalid):
                    await tx.scan(BOOKS, "a", limit=limit)  # type: ignore[arg-type]

    async def test_a_root_of_no_table_cannot_be_dropped(self, house: House) -> None:
        """A misspelt root would drop nothing, and say that all is well."""
        waist = await house.library("a", books=[1])
        async with waist.transaction() as tx:
            for root in ("a", "shelf:a", "", "x:a"):
                with pytest.raises(Invalid):
                    await tx.drop_root(root)
            await tx.insert(Book("a", 2))
        assert len(await waist.scan(BOOKS)) == 2

    async def test_a_record_of_no_table_is_refused(self, house: House) -> None:
        """A record says by its type where it goes; what no table was declared for goes nowhere."""

        class Stray(msgspec.Struct, frozen=True):
            name: str

        waist = await house.library("a")
        async with waist.transaction() as tx:
            with pytest.raises(Invalid):
                await tx.insert(Stray("x"))
            with pytest.raises(Invalid):
                await tx.update(Stray("x"), expect={})
            await tx.insert(Shelf("b"))
        assert [shelf.shelf_id for shelf in await waist.scan(SHELVES)] == ["a", "b"]
