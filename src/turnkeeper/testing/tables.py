"""The tables of the contract suite: a small library. They use every kind of cell, order, root and uniqueness there is.

* A shelf is the head of its root; its books and their loans live under it. Books are large (`payload`), loans narrow.
* A card has a root of its own without a head. Its number is unique, and so is its holder among the open cards.
* A note lives under a topic, a root that exists only through its rows.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..schema import CommitSeq, Json, Personal, Table, Unique
from ..store.migrations import Plan


class Shelf(msgspec.Struct, frozen=True):
    """The head of a root."""

    shelf_id: str
    room: str = "hall"
    books: int = 0


class Book(msgspec.Struct, frozen=True):
    """A row with every kind of cell, each also nullable."""

    shelf_id: str
    book_no: int
    code: str = "c"
    weight: float = 1.0
    mark: bytes = b"m"
    loaned: bool = False
    parts: Json = None
    title: Personal | None = None
    pages: int | None = None
    price: float | None = None
    scan: bytes | None = None
    genre: Literal["fact", "fiction"] | None = None
    seq: CommitSeq = 0


class Loan(msgspec.Struct, frozen=True):
    """A narrow row with a key of three columns."""

    shelf_id: str
    book_no: int
    loan_no: int
    reader: str = "r"


class Card(msgspec.Struct, frozen=True):
    """A row that is a root of its own, with two uniquenesses."""

    card_id: str
    number: str
    holder: str = "h"
    state: Literal["open", "shut"] = "open"
    uses: int = 0


class Note(msgspec.Struct, frozen=True):
    """A row of a root without a head."""

    topic: str
    place: int
    body: Any = None


SHELVES = Table("shelves", Shelf, key=("shelf_id",), root=("s", "shelf_id"), head=True)
BOOKS = Table(
    "books",
    Book,
    key=("shelf_id", "book_no"),
    root=("s", "shelf_id"),
    orders={
        "by_code": ("shelf_id", "code"),
        "by_weight": ("shelf_id", "weight"),
        "by_mark": ("shelf_id", "mark"),
        "everywhere": ("code",),
    },
    payload=True,
)
LOANS = Table("loans", Loan, key=("shelf_id", "book_no", "loan_no"), root=("s", "shelf_id"))
CARDS = Table(
    "cards",
    Card,
    key=("card_id",),
    root=("c", "card_id"),
    unique=(Unique(("number",)), Unique(("holder",), where=("state", "open"))),
)
NOTES = Table("notes", Note, key=("topic", "place"), root=("n", "topic"))

LIBRARY = Plan((SHELVES, BOOKS, LOANS, CARDS, NOTES))
"""The schema of the waist's tests."""
