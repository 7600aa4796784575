"""Properties of the overlay, without any database: merged scans, the undo log, the net effect."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.schema import Row, Table
from turnkeeper.store.backend import RootClaim, Scan
from turnkeeper.store.overlay import UNKNOWN, Overlay, bounds, matching


class Leaf(msgspec.Struct, frozen=True):
    """A row of the tests."""

    tree: str
    place: int
    name: str
    body: str


class Root(msgspec.Struct, frozen=True):
    """The head of a tree."""

    tree: str
    note: str


ROOTS = Table("trees", Root, key=("tree",), root=("t", "tree"), head=True)
LEAVES = Table(
    "leaves", Leaf, key=("tree", "place"), root=("t", "tree"), orders={"by_name": ("tree", "name"), "all": ("name",)}
)

trees, places, names = st.sampled_from("ab"), st.integers(0, 5), st.sampled_from(["", "x", "y", "é", "\U0001f600"])
leaves = st.tuples(trees, places, names, st.sampled_from("pq"))
orders = st.sampled_from(["key", "by_name", "all"])


@st.composite
def scans(draw: Any) -> Scan:
    """Every combination of bounds that fits an order."""
    order = draw(orders)
    cells = {"tree": trees, "place": places, "name": names}
    columns = LEAVES.orders[order]
    length = draw(st.integers(0, len(columns)))
    prefix = tuple(draw(cells[c]) for c in columns[:length])
    low = high = None
    if length < len(columns):
        low, high = draw(st.none() | cells[columns[length]]), draw(st.none() | cells[columns[length]])
    after = (*prefix, *(draw(cells[c]) for c in columns[length:])) if draw(st.booleans()) else None
    return Scan(LEAVES, order, prefix, low, high, after, draw(st.none() | st.integers(0, 4)), draw(st.booleans()))


def naive(scan: Scan, rows: list[Row]) -> list[Row]:
    """Answer a scan by its words, one bound after the other."""
    place = LEAVES.order_of[scan.order]
    n = len(scan.prefix)
    rows = [row for row in sorted(rows, key=place) if place(row)[:n] == scan.prefix]
    rows = [row for row in rows if scan.low is None or place(row)[n] >= scan.low]  # type: ignore[operator]
    rows = [row for row in rows if scan.high is None or place(row)[n] <= scan.high]  # type: ignore[operator]
    if scan.after is not None:
        rows = [r for r in rows if (place(r) < scan.after if scan.reverse else place(r) > scan.after)]  # type: ignore[operator]
    rows = rows[::-1] if scan.reverse else rows
    return rows if scan.limit is None else rows[: scan.limit]


def keyed(rows: list[Row]) -> dict[Any, Row]:
    """Answer rows by key; the last of a key wins."""
    return {LEAVES.key_of(row): row for row in rows}


@given(scans(), st.lists(leaves, max_size=12))
def test_a_slice_is_what_the_bounds_say(scan: Scan, rows: list[Row]) -> None:
    """Of a sorted list of places: the definition that the backends are compared with."""
    rows = list(keyed(rows).values())
    unlimited = scan._replace(limit=None)
    assert matching(unlimited, rows) == naive(unlimited, rows)
    places_of = sorted(map(LEAVES.order_of[scan.order], rows))
    first, last = bounds(scan, places_of)
    assert 0 <= first <= last <= len(rows)


@given(scans(), st.lists(leaves, max_size=10), st.lists(st.tuples(leaves, st.booleans()), max_size=8), st.booleans())
def test_a_merged_scan_is_a_scan_of_the_merged_rows(
    scan: Scan, below: list[Row], own: list[tuple[Row, bool]], drops: bool
) -> None:
    """With the rows a backend gives for the limit plus what own rows may hide."""
    committed, overlay = keyed(below), Overlay()
    for key, row in committed.items():
        overlay.learn(LEAVES, key, row)
    if drops:
        overlay.drop("t:a", [ROOTS, LEAVES])
    expected = {key: row for key, row in committed.items() if not (drops and key[0] == "a")}
    for row, keeps in own:
        key = LEAVES.key_of(row)
        overlay.put(LEAVES, key, row if keeps else None)
        expected.pop(key, None)
        if keeps:
            expected[key] = row
    wanted = scan if scan.limit is None else scan._replace(limit=scan.limit + overlay.shadows(LEAVES))
    if drops:
        wanted = scan._replace(limit=None)
    fetched = naive(wanted, list(committed.values()))
    assert overlay.merge(scan, fetched) == naive(scan, list(expected.values()))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), leaves),
        st.tuples(st.just("delete"), leaves),
        st.tuples(st.just("add"), st.lists(leaves, min_size=1, max_size=3)),
        st.tuples(st.just("drop"), trees),
        st.tuples(st.just("mark"), st.none()),
        st.tuples(st.just("rewind"), st.none()),
        st.tuples(st.just("keep"), st.none()),
    ),
    max_size=30,
)


@given(st.lists(leaves, max_size=6), steps)
def test_rewinding_restores_exactly_what_was(below: list[Row], program: list[tuple[str, Any]]) -> None:
    """Through any nesting of marks: every find, every scan, what is dropped."""
    committed, overlay = keyed(below), Overlay()
    for key, row in committed.items():
        overlay.learn(LEAVES, key, row)
    marks: list[tuple[int, Any]] = []

    def seen() -> Any:
        found = {(t, p): overlay.find(LEAVES, (t, p)) for t in "ab" for p in range(6)}
        whole = overlay.merge(Scan(LEAVES), sorted(committed.values()))
        return found, whole, set(overlay.dropped)

    for verb, argument in program:
        if verb == "put":
            overlay.put(LEAVES, LEAVES.key_of(argument), argument)
        elif verb == "delete":
            overlay.put(LEAVES, LEAVES.key_of(argument), None)
        elif verb == "add":
            rows = keyed(argument)
            there = [key for key in rows if overlay.find(LEAVES, key) not in (None, UNKNOWN)]
            before = seen()
            assert overlay.add(LEAVES, rows) is not bool(there)
            assert not there or seen() == before
        elif verb == "drop":
            overlay.drop(f"t:{argument}", [ROOTS, LEAVES])
        elif verb == "mark":
            marks.append((overlay.mark(), seen()))
        elif marks:
            mark, before = marks.pop()
            if verb == "rewind":
                overlay.rewind(mark)
                assert seen() == before
    for mark, before in reversed(marks):
        overlay.rewind(mark)
        assert seen() == before


@given(st.lists(leaves, max_size=6), st.lists(st.tuples(leaves, st.booleans()), max_size=8))
def test_the_write_set_is_the_net_effect(below: list[Row], own: list[tuple[Row, bool]]) -> None:
    """Applied to the committed rows it gives what the transaction saw; it writes no row that is as it was."""
    committed, overlay = keyed(below), Overlay()
    for tree in "ab":
        overlay.revs[f"t:{tree}"] = 7
    for tree in "ab":
        for place in range(6):
            overlay.learn(LEAVES, (tree, place), committed.get((tree, place)))
    expected = dict(committed)
    for row, keeps in own:
        key = LEAVES.key_of(row)
        overlay.put(LEAVES, key, row if keeps else None)
        expected.pop(key, None)
        if keeps:
            expected[key] = row
    made = overlay.write_set(overlay.revs)
    if made is None:
        assert expected == committed
        return
    landed = dict(committed)
    for key in made.deletes.get(LEAVES, []):
        del landed[key]
    for row in made.updates.get(LEAVES, []):
        assert landed[LEAVES.key_of(row)] != row
        landed[LEAVES.key_of(row)] = row
    for row in made.inserts.get(LEAVES, []):
        assert LEAVES.key_of(row) not in landed
        landed[LEAVES.key_of(row)] = row
    assert landed == expected
    changed = {f"t:{k[0]}" for k in committed.keys() | expected.keys() if committed.get(k) != expected.get(k)}
    assert made.claims == tuple(RootClaim(f"t:{tree}", 7, f"t:{tree}" in changed) for tree in "ab")


def test_a_row_is_kept_as_it_was_first_read() -> None:
    """Whatever is read later under the same key."""
    overlay, row = Overlay(), ("a", 1, "x", "p")
    assert overlay.find(LEAVES, ("a", 1)) is UNKNOWN
    assert overlay.learn(LEAVES, ("a", 1), row) == row
    assert overlay.learn(LEAVES, ("a", 1), ("a", 1, "y", "q")) == row
    overlay.learn_all(LEAVES, [("a", 1, "z", "q")])
    assert overlay.find(LEAVES, ("a", 1)) == row
    assert overlay.learn(LEAVES, ("a", 2), None) is None
    assert overlay.find(LEAVES, ("a", 2)) is None


def test_an_insert_that_nobody_looked_up_is_unchecked() -> None:
    """Until somebody does, or its root was dropped; one that was taken back is not asked about."""
    overlay = Overlay()
    mark = overlay.mark()
    overlay.add(LEAVES, keyed([("a", 1, "x", "p"), ("b", 2, "x", "p"), ("b", 3, "x", "p")]))
    overlay.put(LEAVES, ("b", 3), None)
    assert overlay.unchecked_since(mark) == [(LEAVES, ("a", 1)), (LEAVES, ("b", 2))]
    overlay.learn(LEAVES, ("a", 1), None)
    assert overlay.unchecked_since(mark) == [(LEAVES, ("b", 2))]
    overlay.drop("t:b", [LEAVES])
    assert overlay.unchecked_since(mark) == []
    assert overlay.written_since(mark) == [(LEAVES, ("a", 1))]


def test_a_drop_lands_though_nothing_is_known_below() -> None:
    """The backend knows; what is written after it belongs to the next life."""
    overlay = Overlay()
    overlay.revs["t:a"] = 3
    overlay.put(LEAVES, ("a", 1), ("a", 1, "x", "p"))
    overlay.drop("t:a", [ROOTS, LEAVES])
    assert overlay.find(LEAVES, ("a", 1)) is None
    assert overlay.find(LEAVES, ("a", 9)) is None
    overlay.add(ROOTS, {("a",): ("a", "again")})
    made = overlay.write_set(overlay.revs)
    assert made is not None
    assert (made.drops, made.inserts, made.deletes) == (("t:a",), {ROOTS: [("a", "again")]}, {})
    assert made.claims == (RootClaim("t:a", 3, True),)


def test_a_write_under_a_root_that_was_never_touched_is_a_broken_promise() -> None:
    """Nothing is ever written blindly."""
    overlay = Overlay()
    overlay.put(LEAVES, ("a", 1), ("a", 1, "x", "p"))
    with pytest.raises(AssertionError, match="never touched"):
        overlay.write_set([])
    other = Overlay()
    other.revs["b:z"] = 3  # one root was touched, and rows were added under another one
    other.add(LEAVES, {("a", 1): ("a", 1, "x", "p")})
    with pytest.raises(AssertionError, match="never touched"):
        other.write_set(other.revs)
