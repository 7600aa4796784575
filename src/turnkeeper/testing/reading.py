"""Contract: what reads answer. Gets, scans in every order with every bound, counts and sizes, over committed rows."""

from __future__ import annotations

from msgspec.structs import replace

from ..store.backend import Get, Scan
from .house import House
from .tables import BOOKS, CARDS, LOANS, NOTES, SHELVES, Book, Card, Loan, Note, Shelf


def _numbers(books: list[Book]) -> list[int]:
    return [book.book_no for book in books]


class Reading:
    """Answers over committed rows."""

    async def test_a_get_answers_the_record_as_it_was_inserted(self, house: House) -> None:
        """Every kind of cell comes back with its type and value."""
        waist = await house.library("a")
        book = Book(
            "a", 7, "code", 2.5, b"\x00\xff", True, {"k": [1, None]}, "A title", 12, 9.75, b"page", "fiction"
        )  # fmt: skip
        await waist.add(book)
        found = await waist.get(BOOKS, "a", 7)
        assert found is not None
        assert replace(found, seq=0) == book
        assert [type(value) for value in (found.loaned, found.pages, found.price, found.scan)] == [
            bool,
            int,
            float,
            bytes,
        ]

    async def test_null_cells_come_back_as_none(self, house: House) -> None:
        """A null is not an empty text, a zero or a JSON null in disguise."""
        waist = await house.library("a", books=[1])
        found = await waist.get(BOOKS, "a", 1)
        assert found is not None
        assert (found.title, found.pages, found.price, found.scan, found.genre) == (None,) * 5

    async def test_a_get_of_an_absent_row_answers_none(self, house: House) -> None:
        """Neither an unknown root nor an unknown key in a known one is an error."""
        waist = await house.library("a", books=[1])
        assert await waist.get(BOOKS, "a", 2) is None
        assert await waist.get(BOOKS, "b", 1) is None
        assert await waist.get(SHELVES, "b") is None

    async def test_a_scan_answers_a_roots_rows_in_key_order(self, house: House) -> None:
        """Whole numbers order as numbers, negative ones first."""
        waist = await house.library("a", "b", books=[10, -3, 2, 0, -(2**63), 2**63 - 1])
        assert _numbers(await waist.scan(BOOKS, "a")) == [-(2**63), -3, 0, 2, 10, 2**63 - 1]

    async def test_a_scan_of_nothing_is_empty(self, house: House) -> None:
        """An unknown root has no rows, and an unknown text no match."""
        waist = await house.library("a", books=[1])
        assert await waist.scan(BOOKS, "b") == []
        assert await waist.scan(BOOKS, "nothing", order="everywhere") == []

    async def test_text_orders_by_its_utf8_bytes(self, house: House) -> None:
        """No collation of any language: U+FFFF stands before U+1F600, capitals before small letters."""
        texts = ["", " ", "A", "Z", "a", "aa", "b", "z", "ß", "é", "\ue000", "\uffff", "\U0001f600", "\U0010ffff"]
        waist = await house.library("a")
        await waist.add(*(Book("a", number, code=text) for number, text in enumerate(reversed(texts))))
        assert [book.code for book in await waist.scan(BOOKS, "a", order="by_code")] == texts

    async def test_real_numbers_order_as_numbers(self, house: House) -> None:
        """Between the extremes of a float, with the smallest ones apart."""
        weights = [-1.7976931348623157e308, -2.0, -5e-324, 0.0, 5e-324, 0.1, 1.0, 1.5, 1e16, 1.7976931348623157e308]
        waist = await house.library("a")
        await waist.add(*(Book("a", number, weight=weight) for number, weight in enumerate(reversed(weights))))
        assert [book.weight for book in await waist.scan(BOOKS, "a", order="by_weight")] == weights

    async def test_bytes_order_bytewise(self, house: House) -> None:
        """A prefix stands before what it begins."""
        marks = [b"", b"\x00", b"\x00\x00", b"\x01", b"a", b"ab", b"\x7f", b"\x80", b"\xff"]
        waist = await house.library("a")
        await waist.add(*(Book("a", number, mark=mark) for number, mark in enumerate(reversed(marks))))
        assert [book.mark for book in await waist.scan(BOOKS, "a", order="by_mark")] == marks

    async def test_equal_places_in_an_order_are_told_apart_by_the_key(self, house: House) -> None:
        """So no two rows tie, and a page never loses one."""
        waist = await house.library("a")
        await waist.add(*(Book("a", number, code="same") for number in (5, 1, 3)))
        assert _numbers(await waist.scan(BOOKS, "a", order="by_code")) == [1, 3, 5]
        assert _numbers(await waist.scan(BOOKS, "a", order="by_code", reverse=True)) == [5, 3, 1]

    async def test_a_scan_may_cross_roots(self, house: House) -> None:
        """An order that does not begin with the root gathers rows of all of them."""
        waist = await house.library("b", "a", books=[2, 1])
        found = await waist.scan(BOOKS, order="everywhere")
        assert [(b.code, b.shelf_id) for b in found] == [("c1", "a"), ("c1", "b"), ("c2", "a"), ("c2", "b")]
        assert [b.shelf_id for b in await waist.scan(BOOKS, "c2", order="everywhere", reverse=True)] == ["b", "a"]

    async def test_a_whole_table_is_scanned_without_a_prefix(self, house: House) -> None:
        """In key order, over all roots."""
        waist = await house.library("b", "a", books=[1, 2])
        assert [(b.shelf_id, b.book_no) for b in await waist.scan(BOOKS)] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
        assert [shelf.shelf_id for shelf in await waist.scan(SHELVES, reverse=True)] == ["b", "a"]

    async def test_a_longer_prefix_narrows_a_scan(self, house: House) -> None:
        """Up to the whole key, which finds one row."""
        waist = await house.library("a")
        await waist.add(*(Loan("a", book, loan) for book in (1, 2) for loan in (1, 2, 3)))
        assert [(x.book_no, x.loan_no) for x in await waist.scan(LOANS, "a", 2)] == [(2, 1), (2, 2), (2, 3)]
        assert await waist.scan(LOANS, "a", 2, 3) == [Loan("a", 2, 3)]
        assert await waist.scan(LOANS, "a", 2, 4) == []

    async def test_both_bounds_of_a_range_are_inclusive(self, house: House) -> None:
        """Each alone, and both together."""
        waist = await house.library("a", books=range(10))
        assert _numbers(await waist.scan(BOOKS, "a", low=7)) == [7, 8, 9]
        assert _numbers(await waist.scan(BOOKS, "a", high=2)) == [0, 1, 2]
        assert _numbers(await waist.scan(BOOKS, "a", low=3, high=5)) == [3, 4, 5]
        assert _numbers(await waist.scan(BOOKS, "a", low=4, high=4)) == [4]

    async def test_a_range_with_nothing_in_it_is_empty(self, house: House) -> None:
        """Also one that ends before it begins."""
        waist = await house.library("a", books=[1, 5])
        assert await waist.scan(BOOKS, "a", low=2, high=4) == []
        assert await waist.scan(BOOKS, "a", low=5, high=1) == []

    async def test_a_range_works_on_text_real_and_bytes(self, house: House) -> None:
        """The next column of whichever order is scanned."""
        waist = await house.library("a")
        await waist.add(*(Book("a", n, f"k{n}", n / 2, bytes([n])) for n in range(8)))
        assert _numbers(await waist.scan(BOOKS, "a", order="by_code", low="k2", high="k4")) == [2, 3, 4]
        assert _numbers(await waist.scan(BOOKS, "a", order="by_weight", low=1.25, high=2.0)) == [3, 4]
        assert _numbers(await waist.scan(BOOKS, "a", order="by_mark", low=b"\x06")) == [6, 7]

    async def test_a_range_may_cross_roots(self, house: House) -> None:
        """Without a prefix it is on the first column of the order."""
        waist = await house.library("a", "b", books=[1, 2, 3])
        found = await waist.scan(BOOKS, order="everywhere", low="c2", high="c2")
        assert [(b.shelf_id, b.book_no) for b in found] == [("a", 2), ("b", 2)]
        assert [s.shelf_id for s in await waist.scan(SHELVES, low="b")] == ["b"]

    async def test_after_begins_strictly_behind_a_place(self, house: House) -> None:
        """Whether a row stands there or not."""
        waist = await house.library("a", books=[1, 3, 5])
        assert _numbers(await waist.scan(BOOKS, "a", after=("a", 3))) == [5]
        assert _numbers(await waist.scan(BOOKS, "a", after=("a", 2))) == [3, 5]
        assert await waist.scan(BOOKS, "a", after=("a", 5)) == []
        assert await waist.scan(BOOKS, "a", 3, after=("a", 3)) == []
        assert await waist.scan(BOOKS, "a", 3, after=("a", 3), reverse=True) == []

    async def test_after_in_reverse_begins_strictly_before_a_place(self, house: House) -> None:
        """The same place, looked at from the other end."""
        waist = await house.library("a", books=[1, 3, 5])
        assert _numbers(await waist.scan(BOOKS, "a", after=("a", 3), reverse=True)) == [1]
        assert _numbers(await waist.scan(BOOKS, "a", after=("a", 4), reverse=True)) == [3, 1]
        assert await waist.scan(BOOKS, "a", after=("a", 1), reverse=True) == []

    async def test_after_joins_with_a_range(self, house: House) -> None:
        """The narrower of the two counts."""
        waist = await house.library("a", books=range(10))
        assert _numbers(await waist.scan(BOOKS, "a", low=2, high=6, after=("a", 4))) == [5, 6]
        assert _numbers(await waist.scan(BOOKS, "a", low=2, high=6, after=("a", 0))) == [2, 3, 4, 5, 6]
        assert _numbers(await waist.scan(BOOKS, "a", low=2, high=6, after=("a", 4), reverse=True)) == [3, 2]

    async def test_after_in_a_second_order_names_the_whole_place(self, house: House) -> None:
        """Order columns and key, so that rows with equal columns are not skipped."""
        waist = await house.library("a", "b")
        await waist.add(*(Book(shelf, n, code="same") for shelf in "ab" for n in (1, 2)))
        found = await waist.scan(BOOKS, "same", order="everywhere", after=("same", "a", 1))
        assert [(b.shelf_id, b.book_no) for b in found] == [("a", 2), ("b", 1), ("b", 2)]

    async def test_a_limit_cuts_at_the_end_of_the_direction(self, house: House) -> None:
        """The first so many in order, or the last so many in reverse."""
        waist = await house.library("a", books=range(6))
        assert _numbers(await waist.scan(BOOKS, "a", limit=2)) == [0, 1]
        assert _numbers(await waist.scan(BOOKS, "a", limit=2, reverse=True)) == [5, 4]
        assert len(await waist.scan(BOOKS, "a", limit=100)) == 6

    async def test_a_limit_of_zero_answers_nothing(self, house: House) -> None:
        """It does not mean "no limit"."""
        waist = await house.library("a", books=[1])
        assert await waist.scan(BOOKS, "a", limit=0) == []

    async def test_reverse_is_the_same_rows_the_other_way(self, house: House) -> None:
        """In every order, with the same bounds."""
        waist = await house.library("a")
        await waist.add(*(Book("a", n, f"k{n % 3}", float(n % 2), bytes([n % 5])) for n in range(9)))
        for order in BOOKS.orders:
            prefix = () if order == "everywhere" else ("a",)
            forward = await waist.scan(BOOKS, *prefix, order=order)
            assert await waist.scan(BOOKS, *prefix, order=order, reverse=True) == forward[::-1], order
            assert len(forward) == 9

    async def test_pages_meet_every_row_once(self, house: House) -> None:
        """In both directions, in an order full of equal columns."""
        waist = await house.library("a")
        await waist.add(*(Book("a", n, code=f"k{n % 2}") for n in range(11)))
        whole = await waist.scan(BOOKS, "a", order="by_code")
        for reverse in (False, True):
            seen: list[Book] = []
            while page := await waist.scan(
                BOOKS, "a", order="by_code", limit=3, reverse=reverse,
                after=BOOKS.order_of["by_code"](_cells(seen[-1])) if seen else None,
            ):  # fmt: skip
                seen += page
            assert seen == (whole[::-1] if reverse else whole)

    async def test_count_counts_what_a_scan_would_give(self, house: House) -> None:
        """With a prefix, a range, in an order that crosses roots, and of nothing."""
        waist = await house.library("a", "b", books=range(6))
        async with waist.transaction() as tx:
            assert await tx.count(BOOKS, "a") == 6
            assert await tx.count(BOOKS) == 12
            assert await tx.count(BOOKS, "a", low=2, high=4) == 3
            assert await tx.count(BOOKS, order="everywhere", low="c5") == 2
            assert await tx.count(BOOKS, "z") == 0

    async def test_size_counts_the_bytes_of_json_and_blob_cells(self, house: House) -> None:
        """UTF-8 bytes of the JSON text and bytes of blobs; nulls and all other cells count nothing."""
        waist = await house.library("a")
        await waist.add(Book("a", 1, mark=b"12345", parts="é", title=None), Book("a", 2, mark=b"", parts=[], title="x"))
        async with waist.transaction() as tx:
            assert await tx.size(BOOKS, "a") == 5 + len('"é"'.encode()) + len("[]") + len('"x"')
            assert await tx.size(BOOKS, "a", low=2) == len("[]") + len('"x"')
            assert await tx.size(BOOKS, "z") == 0
            assert await tx.size(LOANS) == 0

    async def test_a_long_scan_answers_every_row_in_order(self, house: House) -> None:
        """Longer than any page or slice a backend may read by."""
        waist = await house.library("a")
        await waist.add(*(Note("t", n, n) for n in range(2_500)))
        found = await waist.scan(NOTES, "t")
        assert [note.place for note in found] == list(range(2_500))
        assert [note.body for note in found] == list(range(2_500))
        assert [n.place for n in await waist.scan(NOTES, "t", limit=1_500, reverse=True)] == list(range(2_499, 999, -1))

    async def test_one_fetch_answers_gets_and_scans_in_their_order(self, house: House) -> None:
        """A record or None for a get, a list for a scan."""
        waist = await house.library("a", books=[1, 2])
        async with waist.transaction() as tx:
            answers = await tx.fetch(
                "s:a",
                Scan(BOOKS, prefix=("a",), low=2),
                Get(BOOKS, ("a", 9)),
                Get(SHELVES, ("a",)),
                Scan(LOANS, prefix=("a",)),
            )
        assert [_numbers(answers[0]), *answers[1:]] == [[2], None, Shelf("a"), []]

    async def test_a_table_without_a_head_is_read_like_any_other(self, house: House) -> None:
        """Its roots live in a table of the waist's own, which nobody sees."""
        waist = await house.waist()
        await waist.add(Note("t", 2), Note("t", 1, {"x": 1}), Card("c1", "n1"))
        assert [note.place for note in await waist.scan(NOTES, "t")] == [1, 2]
        assert await waist.get(CARDS, "c1") == Card("c1", "n1")


def _cells(book: Book) -> tuple[str | int | float | bytes | None, ...]:
    return (book.shelf_id, book.book_no, book.code, book.weight, book.mark)
