"""What PostgreSQL is sent, without a server: the functions' texts, the documents of a call, the url's parts."""

from __future__ import annotations

import json

import msgspec
import pytest

from turnkeeper.errors import Invalid, TooLarge
from turnkeeper.schema import CommitSeq, Json, Table, Unique
from turnkeeper.store import postgres_wire
from turnkeeper.store.backend import Get, Landed, Lost, RootClaim, Scan, WriteSet
from turnkeeper.store.migrations.functions import Functions
from turnkeeper.store.postgres_wire import Wire
from turnkeeper.store.urls import split_url


class Head(msgspec.Struct, frozen=True):
    name: str
    seq: CommitSeq


class Leaf(msgspec.Struct, frozen=True):
    name: str
    place: int
    weight: float
    mark: bytes
    text: Json


class Badge(msgspec.Struct, frozen=True):
    name: str
    number: int


HEADS = Table("heads", Head, key=("name",), root=("h", "name"), head=True)
LEAVES = Table("leaves", Leaf, key=("name", "place"), root=("h", "name"), orders={"by_weight": ("name", "weight")})
BADGES = Table("badges", Badge, key=("name",), root=("b", "name"), unique=(Unique(("number",)),))
TABLES = (HEADS, LEAVES, BADGES)


@pytest.fixture
def wire() -> Wire:
    """Make the documents of a small schema."""
    return Wire(Functions(TABLES, "a"))


def test_names_follow_from_everything_declared() -> None:
    """Other tables, another schema: other functions, so that two builds never call each other's."""
    names = [
        set(Functions(tables, schema).texts) for tables, schema in [(TABLES, "a"), (TABLES[:2], "a"), (TABLES, "b")]
    ]
    assert not names[0] & names[1] and not names[0] & names[2]
    assert names[0] == set(Functions(TABLES, "a").texts)


def test_every_name_in_a_function_names_its_schema() -> None:
    """A function works whatever the search path of its caller."""
    for text in Functions(TABLES, "a").texts.values():
        for table in ("roots", "commits", "store_meta", "heads", "leaves", "badges"):
            for where in ("FROM ", "INTO ", "UPDATE ", "JOIN "):
                assert f'{where}"{table}"' not in text and f"{where}{table} " not in text


def test_cells_that_json_would_change_travel_as_text(wire: Wire) -> None:
    """The sign of zero, the bits of a float, bytes."""
    row = ("x", 2**63 - 1, -0.0, b"\x00\xff", '"\x01"')
    _, (part,) = wire.landing([WriteSet((RootClaim("h:x", 5, True),), inserts={LEAVES: [row]})], None)
    assert json.loads(part) == {"i1": [[0, "x", 2**63 - 1, "-0.0", "00ff", '"\x01"']]}
    (request,) = json.loads(wire.requests([Scan(LEAVES, "by_weight", ("x",), low=-0.0)]))
    assert request[2:] == ["-0.0", None, "x"]
    assert wire.answer(Get(LEAVES, ("x", 1)), [["x", "1", "-0", "00ff", None]])[3] == b"\x00\xff"


def test_roots_are_locked_in_one_order_whatever_the_order_of_the_sets(wire: Wire) -> None:
    """Those of the waist's own table first, then each head's; neighbours of one mode in one run."""
    sets = [
        WriteSet((RootClaim("h:b", 1, True), RootClaim("b:z", 1, False))),
        WriteSet((RootClaim("h:a", 1, True), RootClaim("h:c", 1, False), RootClaim("b:y", 0, True))),
    ]
    locks = json.loads(wire.landing(sets, None)[0])["locks"]
    assert locks == json.loads(wire.landing(sets[::-1], None)[0])["locks"]
    assert locks == [[1, ["b:y"]], [0, ["b:z"]], [3, ["a", "b"]], [2, ["c"]]]


def test_the_first_reason_in_the_common_order_counts(wire: Wire) -> None:
    """A late set is late, even when its roots moved; of several roots the first claimed one is named."""
    sets = [WriteSet((RootClaim("h:a", 1, True), RootClaim("h:b", 1, True))) for _ in range(4)]
    answer = [160, [2, 1, 0, 0, 1], [1, 1, 1, 1, 0], [1, 0, 1, 0, 1]]
    assert wire.verdicts(sets, answer) == [Lost("root", "h:a"), Lost("deadline", ""), Lost("root", "h:b"), Landed(163)]
    assert wire.verdicts(sets[:1], [160, [], None, None]) == [Landed(160)]


def test_a_changed_row_with_a_unique_value_is_removed_and_added(wire: Wire) -> None:
    """So that two of them may swap their values."""
    changed = WriteSet((RootClaim("b:x", 1, True),), updates={BADGES: [("x", 2)]})
    assert json.loads(wire.landing([changed], None)[1][0]) == {"d2": [[0, "x"]], "i2": [[0, "x", 2]]}


def test_large_sets_travel_in_parts_and_no_row_is_lost(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key stands twice in one document: JSON would keep only the last."""
    monkeypatch.setattr(postgres_wire, "PART_BYTES", 200)
    rows = [("x", i, 1.0, b"", "y" * (i * 7 % 190)) for i in range(60)]
    ws = WriteSet((RootClaim("h:x", 1, True),), deletes={LEAVES: [("x", -1)]}, inserts={LEAVES: rows})
    parts = wire.landing([ws], None)[1]
    pairs = [json.loads(part, object_pairs_hook=list) for part in parts]
    assert all(len(dict(part)) == len(part) for part in pairs)
    assert [row[2] for part in pairs for key, found in part if key == "i1" for row in found] == list(range(60))
    monkeypatch.setattr(postgres_wire, "CALL_BYTES", 500)
    with pytest.raises(TooLarge):
        wire.landing([ws], None)


@pytest.mark.parametrize(
    ("url", "name", "schema"),
    [
        ("postgresql://u:secret@db:5/app", "postgresql://db:5/app", "public"),
        ("postgres://u@db/app?schema=s&password=secret", "postgresql://db/app?schema=s", "s"),
        ("postgresql:///app?host=/run/pg&user=u&search_path=s,public", "postgresql:///app?host=/run/pg&schema=s", "s"),
    ],
)
def test_a_stores_name_shows_where_it_is_and_nothing_secret(url: str, name: str, schema: str) -> None:
    """The driver gets the rest."""
    driver, shown, found = split_url(url, None)
    assert (shown, found) == (name, schema)
    assert "schema=" not in driver and "search_path" not in driver


def test_a_schema_is_a_name() -> None:
    """Never more than that."""
    with pytest.raises(Invalid):
        split_url("postgresql:///app", 'a"; --')
