"""The waist against a model of plain dicts: 300 programs of 40 steps, the same ones on each backend.

Two transactions run at once over connections of their own, each with savepoints. Everything they read is compared with
the model while they have not lost a race; how they end is compared always.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.machine.model import TABLES, Database, ModelTx, bare, place_of, root_of, scanned, size, taken_twice
from turnkeeper.errors import Conflict, Duplicate, Misuse
from turnkeeper.store.backend import Get, Scan
from turnkeeper.store.engine import Block
from turnkeeper.store.reading import Rows
from turnkeeper.store.transaction import Transaction
from turnkeeper.testing import Connect, House, Waist
from turnkeeper.testing.tables import BOOKS, CARDS, LIBRARY, LOANS, SHELVES, Book, Card, Loan, Note, Shelf

RUNS, STEPS = 300, 40
SHELF_IDS, TOPICS, CARD_IDS = ["a", "b", "é"], ["t", "u"], ["x", "y", "z"]
ROOTS = [*(f"s:{i}" for i in SHELF_IDS), *(f"n:{i}" for i in TOPICS), *(f"c:{i}" for i in CARD_IDS)]

shelf_ids, topics, card_ids = map(st.sampled_from, (SHELF_IDS, TOPICS, CARD_IDS))
numbers = st.sampled_from([0, 0, 0, 1, 1, 1, 2, 2, -1, -(2**63), 2**63 - 1])
codes = st.sampled_from(["", "a", "aa", "b", "é", "\ue000", "\uffff", "\U0001f600"])
weights = st.sampled_from([-1.5, 0.0, 5e-324, 2.0, 1e300])
marks = st.sampled_from([b"", b"\x00", b"a", b"\xff"])
bodies = st.sampled_from([None, 0, -0.0, True, "\x00", "\ud800", "\ud83d\ude00", [], {}, {"b": 1, "a": [1.5, None]}])
few = st.integers(0, 3)
picks = st.integers(0, 40)

shelves = st.builds(Shelf, shelf_ids, st.sampled_from(["hall", "attic"]), few)
books = st.builds(
    Book, shelf_ids, numbers, codes, weights, marks, st.booleans(), bodies, st.none() | codes, st.none() | numbers
)
loans = st.builds(Loan, shelf_ids, few, few, codes)
cards = st.builds(Card, card_ids, st.sampled_from("123"), st.sampled_from("hk"), st.sampled_from(["open", "shut"]), few)
notes = st.builds(Note, topics, few, bodies)
records = st.one_of(shelves, books, books, books, loans, cards, notes, notes)
sides = st.integers(0, 1)

_CELLS = {
    "shelf_id": shelf_ids, "book_no": numbers, "loan_no": few, "code": codes, "weight": weights, "mark": marks,
    "topic": topics, "place": few, "card_id": card_ids, "number": st.sampled_from("123"), "holder": st.sampled_from("hk"),
}  # fmt: skip
_LONGEST = {LOANS.name: 3, CARDS.name: 1}


@st.composite
def scans(draw: Callable[..., Any]) -> tuple[str, dict[str, Any]]:
    """A table and bounds that fit one of its orders, every bound in every combination."""
    table = TABLES[draw(st.sampled_from(["books", "books", "books", "shelves", "loans", "notes", "cards"]))]
    order = draw(st.sampled_from(sorted(table.orders)))
    columns = table.orders[order]
    length = draw(st.integers(0, len(columns)))
    prefix = tuple(draw(_CELLS[name]) for name in columns[:length])
    bounds: dict[str, Any] = {"order": order, "prefix": prefix}
    if length < len(columns):
        for bound in ("low", "high"):
            if draw(st.booleans()):
                bounds[bound] = draw(_CELLS[columns[length]])
    if draw(st.booleans()):
        bounds["after"] = (*prefix, *(draw(_CELLS[name]) for name in columns[length:]))
    if draw(st.booleans()):
        bounds["limit"] = draw(few)
    bounds["reverse"] = draw(st.booleans())
    return table.name, bounds


class Side:
    """One of the two transactions: the real one in a context of its own, its model, its open savepoints."""

    def __init__(self, world: World, waist: Waist) -> None:
        self.world, self.waist = world, waist
        self.context = contextvars.copy_context()
        self.block: Block[Transaction] | None = None
        self.tx: Any = None
        self.model: ModelTx = ModelTx(Database())
        self.savepoints: list[Any] = []

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run to its end, in this side's context."""
        return self.world.runner.run(work, context=self.context)

    def begin(self, database: Database) -> None:
        """Open a transaction if none is open."""
        if self.block is None:
            self.block, self.tx = self.do(_opened(self.waist))
            self.model = ModelTx(database)

    def end(self, error: BaseException | None = None) -> str:
        """Leave the block, and say what came of it."""
        assert self.block is not None
        block, self.block, self.savepoints = self.block, None, []
        kind = None if error is None else type(error)
        try:
            self.do(block.__aexit__(kind, error, None))
        except Conflict:
            return "conflict"
        except Duplicate:
            return "unique"
        except Misuse:
            return "misuse"
        return str(self.tx.outcome)


class World:
    """The event loop, the connections and the table of fired rules of one backend."""

    def __init__(self, connect: Connect) -> None:
        self.runner = asyncio.Runner()
        self.house = House(connect)
        self.waists = [self.runner.run(self.house.waist()) for _ in range(2)]
        self.fired: Counter[str] = Counter()

    def close(self) -> None:
        """Close everything."""
        self.runner.run(self.house.close())
        self.runner.close()


class WaistMachine(RuleBasedStateMachine):
    """The rules."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.database = Database()
        self.sides = [Side(self.world, waist) for waist in self.world.waists]

    @initialize()
    def empty(self) -> None:
        """Begin with an empty database."""

        async def drop_all(tx: Transaction) -> None:
            for root in ROOTS:
                await tx.drop_root(root)

        self.world.runner.run(self.world.waists[0].transact(drop_all))
        first = [Shelf("a"), Shelf("b"), *(Book(i, n, f"c{n}") for i in "ab" for n in range(3)), Loan("a", 1, 1)]
        first += [Note("t", 0), Note("t", 1, "x"), Card("x", "1", "h"), Card("y", "2", "k", "shut")]
        self.sides[0].begin(self.database)
        self.sides[0].do(self.sides[0].tx.insert_many(first))
        for record in first:
            self.sides[0].model.touch(root_of(place_of(record)))
            self.sides[0].model.put(record, inserted=True)
        self.commit(0)

    def teardown(self) -> None:
        """Leave open blocks."""
        for side in self.sides:
            if side.block is not None:
                with contextlib.suppress(RuntimeError):
                    side.end(RuntimeError())

    def open(self, number: int, name: str) -> Side | None:
        """Answer a side with an open transaction; None when it has lost a race already, so that it may only end."""
        side = self.sides[number]
        side.begin(self.database)
        self.world.fired[name] += 1
        if side.model.doomed():
            self.world.fired[f"{name}, lost already"] += 1
            return None
        return side

    # reading

    @rule(number=sides, record=records)
    def get(self, number: int, record: msgspec.Struct) -> None:
        if side := self.open(number, "get"):
            name, key = place_of(record)
            found = side.do(side.tx.get(TABLES[name], *key))
            side.model.touch(root_of((name, key)))
            assert _same(found, side.model.view().get((name, key)))

    @rule(number=sides, wanted=scans())
    def scan(self, number: int, wanted: tuple[str, dict[str, Any]]) -> None:
        if side := self.open(number, "scan"):
            table, bounds = TABLES[wanted[0]], dict(wanted[1])
            prefix = bounds.pop("prefix")
            found = side.do(side.tx.scan(table, *prefix, **bounds))
            self._touch(side, table, wanted[1])
            expected = scanned(side.model.view(), table, wanted[1])
            assert len(found) == len(expected) and all(map(_same, found, expected)), (found, expected)

    @rule(number=sides, wanted=scans())
    def count_and_size(self, number: int, wanted: tuple[str, dict[str, Any]]) -> None:
        if side := self.open(number, "count and size"):
            table = TABLES[wanted[0]]
            bounds = {k: v for k, v in wanted[1].items() if k in ("order", "low", "high")}
            found = [side.do(verb(table, *wanted[1]["prefix"], **bounds)) for verb in (side.tx.count, side.tx.size)]
            self._touch(side, table, wanted[1])
            expected = scanned(side.model.view(), table, {**bounds, "prefix": wanted[1]["prefix"]})
            assert found == [len(expected), size(expected)]

    @rule(number=sides, shelf_id=shelf_ids, book_no=numbers)
    def fetch(self, number: int, shelf_id: str, book_no: int) -> None:
        if side := self.open(number, "fetch"):
            wanted = (Get(BOOKS, (shelf_id, book_no)), Scan(LOANS, prefix=(shelf_id,)), Get(SHELVES, (shelf_id,)))
            book, found, shelf = side.do(side.tx.fetch(f"s:{shelf_id}", *wanted))
            side.model.touch(f"s:{shelf_id}")
            view = side.model.view()
            assert _same(book, view.get((BOOKS.name, (shelf_id, book_no))))
            assert shelf == view.get((SHELVES.name, (shelf_id,)))
            assert found == scanned(view, LOANS, {"prefix": (shelf_id,)})

    @rule(number=sides, root=st.sampled_from(ROOTS))
    def touch(self, number: int, root: str) -> None:
        if side := self.open(number, "touch"):
            side.do(side.tx.touch(root))
            side.model.touch(root)

    def _touch(self, side: Side, table: Any, bounds: dict[str, Any]) -> None:
        columns = table.orders[bounds["order"]][: len(bounds["prefix"])]
        if table.key[0] in columns:
            side.model.touch(f"{table.root_kind}:{bounds['prefix'][columns.index(table.key[0])]}")

    # writing

    @rule(number=sides, batch=st.lists(records, min_size=1, max_size=4), look=st.booleans())
    def insert(self, number: int, batch: list[msgspec.Struct], look: bool) -> None:
        """Add rows; of known ones none. A row that is there and was never looked up is `insert_blindly`'s business."""
        if side := self.open(number, "insert"):
            view = side.model.view()
            places = [place_of(record) for record in batch]
            there = [place in view for place in places]
            if any(there) or len(set(places)) < len(places) or look:
                for name, key in places:
                    assert _same(side.do(side.tx.get(TABLES[name], *key)), view.get((name, key)))
                    side.model.touch(root_of((name, key)))
            after = {**view, **{place_of(record): record for record in batch}}
            if any(there) or len(set(places)) < len(places):
                with pytest.raises(Duplicate):
                    side.do(side.tx.insert_many(batch))
                self.world.fired["insert, refused"] += 1
            elif not taken_twice(after):
                side.do(side.tx.insert_many(batch))
                for record in batch:
                    side.model.touch(root_of(place_of(record)))
                    side.model.put(record, inserted=True)

    @rule(number=sides, record=records)
    def insert_blindly(self, number: int, record: msgspec.Struct) -> None:
        """In a savepoint, which finds at its end what nobody had looked up: a key or a unique value that is taken."""
        if side := self.open(number, "insert blindly"):
            view, place = side.model.view(), place_of(record)
            side.model.touch(root_of(place))
            if place in view or taken_twice({**view, place: record}):
                with pytest.raises(Duplicate):
                    side.do(_in_savepoint(side.tx, record))
                self.world.fired["insert blindly, refused"] += 1
            else:
                side.do(_in_savepoint(side.tx, record))
                side.model.put(record, inserted=True)

    @rule(number=sides, record=records, by=st.sampled_from(["nothing", "record", "column", "wrong"]), pick=picks)
    def update(self, number: int, record: msgspec.Struct, by: str, pick: int) -> None:
        """Mostly of a row that is there: the new cells, under one of the keys of its table."""
        if side := self.open(number, "update"):
            view, place = side.model.view(), place_of(record)
            there = sorted(key for name, key in view if name == place[0])
            if there and pick % 8:
                key = there[pick % len(there)]
                record = msgspec.structs.replace(record, **dict(zip(TABLES[place[0]].key, key, strict=True)))
                place = (place[0], key)
            found = side.do(side.tx.get(TABLES[place[0]], *place[1]))
            side.model.touch(root_of(place))
            if hasattr(record, "seq") and found is not None:
                record = msgspec.structs.replace(record, seq=found.seq)
            column = TABLES[place[0]].names[-1 if place[0] != BOOKS.name else 2]
            expect: Any = {"nothing": {}, "record": found or record}.get(by)
            if expect is None:
                expect = {column: getattr(found or record, column)}
            if by == "wrong":
                expect = {column: "\x7f" if isinstance(expect[column], str) else 77}
            if taken_twice({**view, place: record}):
                return
            moved = side.do(side.tx.update(record, expect=expect))
            assert moved == (found is not None and by != "wrong")
            if moved:
                side.model.put(bare(record) or record, inserted=False)
                self.world.fired["update, done"] += 1

    @rule(number=sides, record=records, pick=picks)
    def delete(self, number: int, record: msgspec.Struct, pick: int) -> None:
        if side := self.open(number, "delete"):
            view, (name, key) = side.model.view(), place_of(record)
            there = sorted(key for table, key in view if table == name)
            if there and pick % 4 and name != SHELVES.name:
                key = there[pick % len(there)]
            side.model.touch(root_of((name, key)))
            assert side.do(side.tx.delete(TABLES[name], *key)) == ((name, key) in view)
            if (name, key) in view:
                side.model.delete((name, key))
                self.world.fired["delete, done"] += 1

    @rule(number=sides, root=st.sampled_from(ROOTS), pick=picks)
    def drop_root(self, number: int, root: str, pick: int) -> None:
        if not pick % 3 and (side := self.open(number, "drop root")):
            side.do(side.tx.drop_root(root))
            side.model.touch(root)
            side.model.drop(root)

    # savepoints

    @rule(number=sides)
    def savepoint(self, number: int) -> None:
        if (side := self.open(number, "savepoint")) and len(side.savepoints) < 4:
            opened = side.tx.savepoint()
            side.do(opened.__aenter__())
            side.savepoints.append(opened)
            side.model.mark()

    @rule(number=sides)
    def savepoint_ends(self, number: int) -> None:
        if (side := self.open(number, "savepoint ends")) and side.savepoints:
            side.do(side.savepoints.pop().__aexit__(None, None, None))
            side.model.savepoints.pop()

    @rule(number=sides)
    def savepoint_fails(self, number: int) -> None:
        side = self.sides[number]
        side.begin(self.database)
        self.world.fired["savepoint fails"] += 1
        if side.savepoints:
            error = ZeroDivisionError()
            with pytest.raises(ZeroDivisionError):
                side.do(_raise_in(side.savepoints.pop(), error))
            side.model.rewind()

    # ending

    @rule(number=sides)
    def commit(self, number: int) -> None:
        side = self.sides[number]
        side.begin(self.database)
        while side.savepoints and not side.model.doomed():
            self.savepoint_ends(number)
        doomed = side.model.doomed()
        outcome, expected = side.end(), self.database.land(side.model)
        self.world.fired[f"commit: {outcome}"] += 1
        if doomed:  # what it wrote since was not compared: it may not land, that is all
            assert outcome in ("conflict", "nothing to land", "misuse"), outcome
        else:
            assert outcome == expected

    @rule(number=sides, record=records, by=st.sampled_from(["nothing", "record"]), pick=picks)
    def change_and_commit(self, number: int, record: msgspec.Struct, by: str, pick: int) -> None:
        """So that the other side loses races."""
        self.update(number, record, by, pick)
        self.commit(number)

    @rule(number=sides, pick=picks)
    def roll_back(self, number: int, pick: int) -> None:
        if pick % 4:
            return
        side = self.sides[number]
        side.begin(self.database)
        assert side.end(ZeroDivisionError()) == "rolled back"
        self.world.fired["roll back"] += 1

    @rule()
    def look(self) -> None:
        """What is committed is what the model says, in every table, over both connections."""
        self.world.fired["look"] += 1
        for waist in self.world.waists:
            found = self.world.runner.run(waist.look(_everything))
            for table, rows in zip(LIBRARY.tables, found, strict=True):
                expected = scanned(self.database.rows, table, {})
                assert len(rows) == len(expected) and all(map(_same, rows, expected))

    @invariant()
    def the_model_is_sound(self) -> None:
        assert not taken_twice(self.database.rows)


def _same(found: msgspec.Struct | None, expected: msgspec.Struct | None) -> bool:
    return repr(bare(found)) == repr(bare(expected))


async def _everything(rows: Rows) -> list[Any]:
    return await rows.fetch(None, *(Scan(table) for table in LIBRARY.tables))


async def _opened(waist: Waist) -> tuple[Block[Transaction], Transaction]:
    block = waist.transaction()
    return block, await block.__aenter__()


async def _in_savepoint(tx: Transaction, record: msgspec.Struct) -> None:
    async with tx.savepoint():
        await tx.insert(record)


async def _raise_in(opened: Any, error: BaseException) -> None:
    if not await opened.__aexit__(type(error), error, None):
        raise error


@pytest.fixture
def world(connect: Connect) -> Iterator[World]:
    world = World(connect)
    yield world
    world.close()


@pytest.mark.timeout(300)
@pytest.mark.claim("T-020")
def test_the_waist_does_what_plain_dicts_do(world: World) -> None:
    """Every rule fires, and every way a transaction can end is met."""
    machine = type("Machine", (WaistMachine,), {"world": world, "TestCase": None})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=RUNS, stateful_step_count=STEPS, derandomize=True, deadline=None, database=None,
            suppress_health_check=list(HealthCheck), print_blob=False,
        ),
    )  # fmt: skip
    table = "\n".join(f"{times:6}  {name}" for name, times in sorted(world.fired.items()))
    print(table)
    rules = {
        "get",
        "scan",
        "count and size",
        "fetch",
        "touch",
        "insert",
        "insert blindly",
        "update",
        "delete",
        "drop root",
    }
    rules |= {"savepoint", "savepoint ends", "savepoint fails", "roll back", "look", "insert, refused", "update, done"}
    rules |= {"insert blindly, refused", "delete, done", "get, lost already"}
    rules |= {f"commit: {outcome}" for outcome in ("landed", "nothing to land", "conflict", "misuse")}
    assert {name for name in rules if world.fired[name] < 5} == set(), table
