"""Contract: what is kept comes back bit for bit. JSON with every code point, numbers at their bounds, bytes, ids."""

from __future__ import annotations

from typing import Any

from ..jsonvalue import same
from .house import House, Waist
from .tables import BOOKS, CARDS, NOTES, SHELVES, Book, Card, Note, Shelf


async def _kept(house: House, value: Any) -> Any:
    """Store a JSON value and read it back over another connection."""
    waist = await house.waist()
    await waist.add(Note("t", 1, value))
    found = await (await house.waist()).get(NOTES, "t", 1)
    assert found is not None
    return found.body


class Values:
    """Fidelity of cells."""

    async def test_json_keeps_a_nul_character(self, house: House) -> None:
        """In a value and in a key, at both ends and in the middle."""
        value = {"a\x00b": "\x00x\x00", "\x00": ["\x00"]}
        assert await _kept(house, value) == value

    async def test_json_keeps_lone_surrogates(self, house: House) -> None:
        """Which no UTF-8 encoder writes: half of a pair, in either order, in keys as well."""
        value = ["\ud800", "x\udfffy", {"\udc00": "\udc00\ud800"}]
        assert await _kept(house, value) == value

    async def test_json_keeps_a_split_surrogate_pair_apart(self, house: House) -> None:
        """Two code points that a JSON reader would join to one stay two, beside the joined one."""
        split, joined = "\ud83d\ude00", "\U0001f600"
        value = {split: [split, joined, f"a{split}b"], joined: 1}
        found = await _kept(house, value)
        assert found == value
        assert [len(text) for text in found[split]] == [2, 1, 4]

    async def test_json_keeps_private_use_characters_beside_surrogates(self, house: House) -> None:
        """Whatever mark an encoding uses inside, a text that holds it is not mistaken for it."""
        value = ["\ue000d83d", "\ue000", "\ud83d\ude00\ue000d83d", "\x03x", "\x01", "\x02"]
        assert await _kept(house, value) == value

    async def test_json_keeps_control_characters_and_quotes(self, house: House) -> None:
        """All below U+0020, DEL, quotes, backslashes, line separators."""
        value = "".join(map(chr, range(0x20))) + "\x7f\"'\\/\u2028\u2029\ufeff"
        assert await _kept(house, value) == value

    async def test_json_keeps_every_plane_of_unicode(self, house: House) -> None:
        """Combining marks are not composed, and noncharacters not replaced."""
        value = ["e\u0301", "é", "\uffff", "\ufffe", "\U0001f468\u200d\U0001f469", "\U0010ffff", "日本語"]
        assert await _kept(house, value) == value

    async def test_json_keeps_the_sign_of_zero(self, house: House) -> None:
        """-0.0 is not 0.0."""
        found = await _kept(house, [-0.0, 0.0])
        assert [str(number) for number in found] == ["-0.0", "0.0"]

    async def test_json_keeps_floats_to_the_last_bit(self, house: House) -> None:
        """The largest, the smallest, those that decimal text rounds, whole ones."""
        value = [1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 0.1, 1 / 3, 1e16, 1e22, 123456789.0, -1e-7]
        found = await _kept(house, value)
        assert found == value
        assert all(type(number) is float for number in found)

    async def test_json_tells_whole_numbers_floats_and_booleans_apart(self, house: House) -> None:
        """1, 1.0 and true are three values."""
        value = [1, 1.0, True, 0, 0.0, False, None, "1"]
        found = await _kept(house, value)
        assert same(found, value)
        assert [type(item) for item in found] == [type(item) for item in value]

    async def test_json_keeps_whole_numbers_of_64_bits(self, house: House) -> None:
        """Both bounds, and the first number a float cannot hold."""
        value = [2**63 - 1, -(2**63), 2**53 + 1]
        assert await _kept(house, value) == value

    async def test_json_keeps_the_order_of_keys(self, house: House) -> None:
        """The caller's order, not a sorted one, at every level."""
        found = await _kept(house, {"z": 1, "a": {"y": 1, "b": 2}, "m": 3})
        assert [list(found), list(found["a"])] == [["z", "a", "m"], ["y", "b"]]

    async def test_json_keeps_empty_containers_and_texts(self, house: House) -> None:
        """None of them is null, and null is none of them."""
        value: Any = {"": "", "list": [], "dict": {}, "null": None, "nested": [[], {}, [[]]]}
        assert same(await _kept(house, value), value)

    async def test_json_keeps_the_deepest_nesting(self, house: House) -> None:
        """64 levels, lists and dicts in turn."""
        value: Any = "leaf"
        for level in range(64):
            value = [value] if level % 2 else {"k": value}
        assert await _kept(house, value) == value

    async def test_json_keeps_a_long_text(self, house: House) -> None:
        """A megabyte, not only of ASCII."""
        value = "line é\n" * 130_000
        assert await _kept(house, value) == value

    async def test_json_keeps_what_looks_like_json_or_sql(self, house: House) -> None:
        """Text is never read as anything else."""
        value = ['{"a": 1}', "null", "'; -- ", "%s $1 ? :x", "\\u0000", "\\x00"]
        assert await _kept(house, value) == value

    async def test_a_json_null_in_a_column_without_null_is_kept(self, house: House) -> None:
        """None is a JSON value like any other where the column is not nullable."""
        waist = await house.library("a")
        await waist.add(Book("a", 1, parts=None))
        found = await waist.get(BOOKS, "a", 1)
        assert found is not None
        assert found.parts is None

    async def test_a_tuple_reads_back_as_a_list(self, house: House) -> None:
        """The one change of type there is: JSON has one kind of sequence."""
        assert await _kept(house, (1, (2, 3))) == [1, [2, 3]]

    async def test_a_value_is_copied_when_it_is_written(self, house: House) -> None:
        """What the caller does with its dict afterwards changes nothing, inside the block or after it."""
        waist, value = await house.waist(), {"k": [1]}
        async with waist.transaction() as tx:
            await tx.insert(Note("t", 1, value))
            value["k"].append(2)
            inside = await tx.get(NOTES, "t", 1)
        value["k"].append(3)
        assert inside == await waist.get(NOTES, "t", 1) == Note("t", 1, {"k": [1]})

    async def test_a_record_handed_out_is_the_readers_own(self, house: House) -> None:
        """Changing what was read changes nothing that is stored, nor what another reader got."""
        waist = await house.waist()
        await waist.add(Note("t", 1, {"k": [1]}))
        first, second = await waist.get(NOTES, "t", 1), await waist.get(NOTES, "t", 1)
        assert first is not None
        first.body["k"].append(2)
        assert second == await waist.get(NOTES, "t", 1) == Note("t", 1, {"k": [1]})

    async def test_whole_numbers_keep_64_bits(self, house: House) -> None:
        """In a cell of their own as well."""
        waist = await house.library("a")
        await waist.add(Book("a", 1, pages=2**63 - 1), Book("a", 2, pages=-(2**63)), Book("a", 3, pages=0))
        assert [book.pages for book in await waist.scan(BOOKS, "a")] == [2**63 - 1, -(2**63), 0]

    async def test_real_numbers_keep_their_bits(self, house: House) -> None:
        """The extremes, and a whole number given for a real one; only the sign of zero goes, on every backend."""
        prices = [-0.0, 1.7976931348623157e308, 5e-324, 0.1, 3]
        waist = await house.library("a")
        await waist.add(*(Book("a", n, price=price) for n, price in enumerate(prices)))
        found = [book.price for book in await waist.scan(BOOKS, "a")]
        assert [repr(price) for price in found] == ["0.0", "1.7976931348623157e+308", "5e-324", "0.1", "3.0"]

    async def test_bytes_keep_every_byte(self, house: House) -> None:
        """Also none at all, which is not null."""
        waist = await house.library("a")
        await waist.add(Book("a", 1, mark=bytes(range(256)), scan=b""), Book("a", 2, mark=b"\x00" * 5, scan=None))
        first, second = await waist.scan(BOOKS, "a")
        assert (first.mark, first.scan) == (bytes(range(256)), b"")
        assert (second.mark, second.scan) == (b"\x00" * 5, None)

    async def test_any_buffer_is_taken_as_bytes(self, house: House) -> None:
        """And copied."""
        waist, buffer = await house.library("a"), bytearray(b"abc")
        async with waist.transaction() as tx:
            await tx.insert(Book("a", 1, mark=buffer, scan=memoryview(b"xyz")))  # type: ignore[arg-type]
            buffer[0] = 0
        found = await waist.get(BOOKS, "a", 1)
        assert found is not None
        assert (found.mark, found.scan) == (b"abc", b"xyz")

    async def test_ids_keep_any_text_but_nul_and_surrogates(self, house: House) -> None:
        """Blanks, quotes, slashes, percent signs, other scripts; each names its own row."""
        ids = [
            " ",
            "a b",
            "A",
            "a",
            "o'hara",
            'q"q',
            "a/b:c",
            "100%_",
            "日本",
            "\U0001f600",
            "e\u0301",
            "é",
            "x" * 2048,
        ]
        waist = await house.waist()
        for shelf_id in ids:
            await waist.add(Shelf(shelf_id), Book(shelf_id, 1, code=shelf_id))
        for shelf_id in ids:
            assert await waist.get(SHELVES, shelf_id) == Shelf(shelf_id)
            assert [book.code for book in await waist.scan(BOOKS, shelf_id)] == [shelf_id]
        assert {shelf.shelf_id for shelf in await waist.scan(SHELVES)} == set(ids)

    async def test_booleans_come_back_as_booleans(self, house: House) -> None:
        """Though a cell knows only whole numbers."""
        waist = await house.library("a")
        await waist.add(Book("a", 1, loaned=True), Book("a", 2, loaned=False))
        assert [book.loaned for book in await waist.scan(BOOKS, "a")] == [True, False]

    async def test_an_update_keeps_values_as_exactly_as_an_insert(self, house: House) -> None:
        """The other way into a row."""
        waist = await house.library("a", books=[1])
        changed = Book("a", 1, "\uffff", 0.1, b"\x00", True, ["\ud800", -0.0, "\x00"], "\ud83d\ude00", -(2**63), 5e-324)
        async with waist.transaction() as tx:
            assert await tx.update(changed, expect={})
        found = await waist.get(BOOKS, "a", 1)
        assert found is not None
        assert (found.code, repr(found.weight), found.mark, found.loaned) == ("\uffff", "0.1", b"\x00", True)
        assert same([found.parts, found.title, found.pages], [changed.parts, changed.title, changed.pages])
        assert repr(found.price) == "5e-324"

    async def test_what_a_transaction_wrote_reads_the_same_inside_and_after(self, house: House) -> None:
        """Own writes pass through the same cells as committed ones."""
        waist = await house.waist()
        note = Note("t", 1, {"z": -0.0, "a": ("\ud800", 1)})
        async with waist.transaction() as tx:
            await tx.insert(note)
            inside = await tx.get(NOTES, "t", 1)
        after = await waist.get(NOTES, "t", 1)
        assert inside is not None
        assert after is not None
        assert same(inside.body, after.body)
        assert list(inside.body) == list(after.body) == ["z", "a"]

    async def test_a_landings_commit_sequence_is_filled_in(self, house: House) -> None:
        """Where the record left it at 0; a later update keeps it."""
        waist = await house.library("a")
        async with waist.transaction() as tx:
            await tx.insert(Book("a", 1))
        first = await _book(waist)
        assert first.seq == tx.commit_seq
        async with waist.transaction() as later:
            await later.update(Book("a", 1, "new", seq=first.seq), expect={})
        assert (await _book(waist)).seq == tx.commit_seq != later.commit_seq

    async def test_a_row_keeps_its_place_in_the_schema_whatever_it_holds(self, house: House) -> None:
        """A closed vocabulary is text; nothing is mixed up between the columns of one kind."""
        waist = await house.waist()
        card = Card("id", "number", "holder", "shut", 5)
        await waist.add(card)
        assert await waist.get(CARDS, "id") == card


async def _book(waist: Waist) -> Book:
    found = await waist.get(BOOKS, "a", 1)
    assert found is not None
    return found
