"""Contract: write sets that wait side by side land each whole or not at all, whatever becomes of their neighbours.

A backend may write several of them together. What each is told must be true of some order in which they came one by one,
and their commit sequences name it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..schema import TABLE_OF, Row, Table
from ..store.backend import Landed, Lost, RootClaim, RootRev, Verdict, WriteSet
from ..store.intake import codec
from .house import House, Waist, soon
from .tables import BOOKS, CARDS, LOANS, Book, Card, Loan, Note, Shelf


async def _set(
    waist: Waist, *added: msgspec.Struct, gone: Sequence[Card] = (), resting_on: Sequence[str] = ()
) -> WriteSet:
    """Make a set that adds some rows, takes some cards away and rests on more roots, all as they are now."""
    inserts: dict[Table[Any], list[Row]] = {}
    roots = {f"c:{card.card_id}" for card in gone}
    for record in added:
        table = TABLE_OF[type(record)]
        row = codec(table).encode(record)
        inserts.setdefault(table, []).append(row)
        roots.add(table.root_of(row))
    every = sorted(roots | set(resting_on))
    revs = await waist.engine.backend.read([RootRev(root) for root in every])
    claims = tuple(RootClaim(root, rev, root in roots) for root, rev in zip(every, revs, strict=True))
    return WriteSet(claims, deletes={CARDS: [(card.card_id,) for card in gone]} if gone else {}, inserts=inserts)


async def _land(waist: Waist, *sets: WriteSet) -> list[Verdict]:
    """Land sets at once, behind one that keeps the backend busy meanwhile."""
    first = waist.engine.backend.land(await _set(waist, Note("busy", 1)))
    waiting = [waist.engine.backend.land(ws) for ws in sets]
    await soon(first)
    return [await soon(one) for one in waiting]


class Neighbours:
    """Write sets side by side."""

    async def test_a_refused_row_takes_only_its_own_set_along(self, house: House) -> None:
        """A duplicate among many sets: they all land, and of the one nothing is kept."""
        shelves = [f"s{i}" for i in range(8)]
        waist = await house.library(*shelves)
        await waist.add(Loan("s3", 1, 1, "first"))
        sets = [await _set(waist, Book(shelf, 5), Loan(shelf, 1, 1)) for shelf in shelves]
        verdicts = await _land(waist, *sets)
        assert [type(v) for v in verdicts] == [Lost if shelf == "s3" else Landed for shelf in shelves]
        assert verdicts[3] == Lost("duplicate", "loans")
        for shelf in shelves:
            rows = [(loan.reader, loan.loan_no) for loan in await waist.scan(LOANS, shelf)]
            assert rows == [("first" if shelf == "s3" else "r", 1)]
            assert await waist.rev(f"s:{shelf}") == sets[shelves.index(shelf)].claims[0].expected + (shelf != "s3")
        seqs = [v.commit_seq for v in verdicts if isinstance(v, Landed)]
        assert len(set(seqs)) == 7
        everything = await waist.everything()
        assert sorted(book.shelf_id for book in everything["books"]) == sorted(set(shelves) - {"s3"})

    async def test_a_set_whose_ground_moved_in_the_same_moment_is_refused(self, house: House) -> None:
        """It rests on a root that its neighbour writes: whoever has the later sequence saw the other."""
        waist = await house.library("a", "b")
        writes = await _set(waist, Book("a", 1))
        rests = await _set(waist, Book("b", 1), resting_on=["s:a"])
        written, rested = await _land(waist, writes, rests)
        assert isinstance(written, Landed)
        assert rested == Lost("root", "s:a") or (isinstance(rested, Landed) and rested.commit_seq < written.commit_seq)
        assert await waist.scan(BOOKS, "b") == (
            [] if isinstance(rested, Lost) else [Book("b", 1, seq=rested.commit_seq)]
        )

    async def test_a_unique_value_is_free_only_after_it_was_given_up(self, house: House) -> None:
        """One set takes the value, its neighbour gives it up: both may land only in that order of sequences."""
        waist = await house.waist()
        old = Card("old", "7", "x")
        await waist.add(old)
        takes, gives = await _set(waist, Card("new", "7", "y")), await _set(waist, gone=[old])
        taken, given = await _land(waist, takes, gives)
        assert isinstance(given, Landed)
        assert taken == Lost("unique", "cards") or (isinstance(taken, Landed) and taken.commit_seq > given.commit_seq)
        cards = [card.card_id for card in await waist.scan(CARDS)]
        assert cards == (["new"] if isinstance(taken, Landed) else [])

    async def test_two_sets_on_one_root_do_not_both_land(self, house: House) -> None:
        """They rest on the same revision of it."""
        waist = await house.library("a")
        verdicts = await _land(waist, await _set(waist, Book("a", 1)), await _set(waist, Book("a", 2)))
        assert sorted(type(v).__name__ for v in verdicts) == ["Landed", "Lost"]
        assert len((await waist.everything())["books"]) == 1

    async def test_sequences_of_sets_written_together_are_their_own(self, house: House) -> None:
        """Each row carries its landing's, and a root that comes into being starts there."""
        waist = await house.waist()
        names = [f"s{i}" for i in range(6)]
        sets = [await _set(waist, Shelf(name), Book(name, 1)) for name in names]
        verdicts = await _land(waist, *sets)
        seqs = [v.commit_seq for v in verdicts if isinstance(v, Landed)]
        assert len(set(seqs)) == len(names)
        for name, seq in zip(names, seqs, strict=True):
            assert await waist.rev(f"s:{name}") == seq
        books = (await waist.everything())["books"]
        assert {book.shelf_id: book.seq for book in books} == dict(zip(names, seqs, strict=True))
