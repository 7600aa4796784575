"""The verbs of a transaction: those that read (`reading.py`), and `touch`, `insert`, `update`, `delete`, `drop_root`, `savepoint`.

A transaction reads committed rows, gathers its writes in an overlay, and lands as one value when its block ends. Every
root it reads or writes is *touched*: the landing is refused when the root's revision moved since. `touch` and `fetch`
also wait their turn; touch before reading and nothing conflicts inside one process. A `get` is repeatable; a scan shows
what is committed when it is read, so a block that did not touch may see two states, and then cannot land. A scan whose
prefix names no root is checked by nothing: decide on such rows only after touching their roots and reading them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from ..errors import Conflict, Duplicate, Fenced, Invalid, Misuse, Unavailable
from ..jsonvalue import decode, same
from ..schema import TABLE_OF, Cell, Key, Row, Table
from .backend import Answer, Backend, Get, Landed, Lost, Measure, Request, RootRev, Scan, WriteSet
from .intake import codec, text_cell
from .overlay import UNKNOWN, Overlay
from .reading import Recalling, Rows, checked, checked_key, decoded, root_of_request, size_of
from .recall import Recall
from .roots import Lines

R = TypeVar("R", bound=msgspec.Struct)
Outcome = Literal["open", "landed", "nothing to land", "rolled back", "unknown"]


class Host(Protocol):
    """What a transaction needs of the engine it runs on."""

    backend: Backend
    lines: Lines
    closed: bool
    tables: tuple[Table[Any], ...]
    heads: dict[str, Table[Any]]
    recall: Recall

    def concealed(self, text: str) -> str:
        """Answer an id for something personal."""


class Transaction(Rows):
    """One open transaction; use it only inside its block, and only in its event loop."""

    holder = ""
    """The owner token of the store this transaction was opened on: claims are held per store handle."""

    def __init__(self, host: Host, *, careful: bool = False, recall: bool = False) -> None:
        self._host, self._careful, self._may_recall = host, careful, recall
        self._remembering: dict[str, dict[Get | Scan, Answer]] = {}
        self._overlay = Overlay()
        self._held: list[str] = []
        self._lining: dict[str, asyncio.Event] = {}  # the lines its tasks stand in
        self._parts: list[asyncio.Task[Any] | None] = []  # the tasks of its open savepoints
        self._now: int | None = None
        self._deadline_us: int | None = None
        self.live = False
        self.outcome: Outcome = "open"
        self.commit_seq: int | None = None

    # touching

    async def touch(self, *roots: str) -> None:
        """Promise that the outcome rests on these roots: wait for them, in sorted order, and note their revisions."""
        await self._line_up(roots)
        await self._rows([], touching=roots)

    async def fetch(
        self, root: str | None, *wanted: Get | Scan, unless_recalled: Sequence[Get] = (), recall: Recalling = "no"
    ) -> list[Any]:
        """Touch a root and answer several gets and scans, all in one read.

        `recall="use"` is for operations that always end in a landing: the root's rows may be those that this process's
        last landing left (`recall.py`); what is asked for `unless_recalled` is then left out of the answer.
        """
        touching = () if root is None else (root,)
        await self._line_up(touching)
        requests: Sequence[Get | Scan] = wanted
        found = self._recalled(root, requests) if root is not None and recall == "use" else None
        if found is None:
            requests, more = [checked(request) for request in wanted], [checked(request) for request in unless_recalled]
            pure = not self._overlay.holds_rows()  # what is read now has no own writes in it
            found = await self._rows([*requests, *more], touching=touching)
            if root is not None and recall != "no" and pure:
                self._remembering.setdefault(root, {}).update(zip(requests, found, strict=False))
            requests = [*requests, *more]
        return [decoded(request, answer) for request, answer in zip(requests, found, strict=True)]

    def _recalled(self, root: str, requests: Sequence[Get | Scan]) -> list[Answer] | None:
        """Answer from what the last landing on a root left behind; the landing will prove that it is still so."""
        known = self._host.recall.look(root, requests) if self._may_recall and root not in self._overlay.revs else None
        if known is None:
            return None
        self._overlay.revs[root], answers = known
        for request, answer in zip(requests, answers, strict=True):
            self._learn(request, answer)
        self._remembering.setdefault(root, {}).update(zip(requests, answers, strict=True))
        return answers

    def _remember(self, written: WriteSet) -> None:
        """Note what this landing leaves of the roots it wrote in; of the others it wrote in, nothing is known any more."""
        for root in {*written.drops, *(claim.root for claim in written.claims if claim.written)}:
            answers, rev = self._remembering.get(root), self._overlay.revs[root]
            left = {r: self._left(r, answer) for r, answer in (answers or {}).items()}
            if not left or not rev or root in written.drops or UNKNOWN in left.values():
                self._host.recall.forget(root)
            else:
                self._host.recall.keep(root, rev + 1, left)

    def _left(self, request: Get | Scan, answer: Answer) -> Answer:
        if isinstance(request, Scan):
            return self._overlay.replaced(request.table, answer) or self._overlay.merge(request, answer)
        return self._overlay.find(request.table, request.key)

    async def _line_up(self, roots: Iterable[str]) -> None:
        self._check_live()
        lines = self._host.lines
        for root in sorted(set(roots)):
            if root in self._held or root in self._overlay.revs:
                continue
            if root in self._lining:  # another task of this transaction stands in that line already
                await self._lining[root].wait()
                continue
            text_cell(root, "root")
            if not self._held and lines.try_enter(self, root):  # mostly: the first of its roots, and nobody there
                self._held.append(root)
                continue
            entered = self._lining[root] = asyncio.Event()
            try:
                upwards = not self._held or root > self._held[-1]
                if await lines.enter(self, root) if upwards else lines.try_enter(self, root):
                    if not self.live:  # the block ended while a task of it stood in line
                        lines.leave(self, root)
                        self._check_live()
                    self._held.append(root)
                    self._held.sort()
            finally:
                del self._lining[root]
                entered.set()

    # reading

    async def _rows(self, requests: Sequence[Request], touching: Iterable[str] = ()) -> list[Answer]:
        self._check_live()
        overlay = self._overlay
        roots = dict.fromkeys(touching)
        for request in requests:
            root = root_of_request(request)
            if root is not None:
                roots[root] = None
        fresh = [root for root in roots if root not in overlay.revs]
        own = overlay.holds_rows()
        known = self._known(requests) if own else {}
        asked = (
            [self._below(request) for i, request in enumerate(requests) if i not in known] if own else list(requests)
        )
        answers: list[Answer] = []
        if asked or fresh:
            answers = await self._host.backend.read([*(RootRev(root) for root in fresh), *asked])
            self._check_live()
        for root, rev in zip(fresh, answers, strict=False):
            overlay.revs.setdefault(root, rev)
        rest = answers[len(fresh) :]
        if not own and not overlay.holds_rows():
            for request, answer in zip(requests, rest, strict=True):
                self._learn(request, answer)
            return rest
        following = iter(rest)
        return [known[i] if i in known else self._above(request, next(following)) for i, request in enumerate(requests)]

    def _known(self, requests: Sequence[Request]) -> dict[int, Answer]:
        """Answer what need not be asked, by its place: decided before the read, as other tasks may learn more meanwhile."""
        found = ((i, self._overlay.find(r.table, r.key)) for i, r in enumerate(requests) if isinstance(r, Get))
        return {i: row for i, row in found if row is not UNKNOWN}

    def _learn(self, request: Request, answer: Answer) -> None:
        """Keep committed rows as they were first read; rows of roots nobody touched must be read again before they count."""
        if isinstance(request, Get):
            self._overlay.learn(request.table, request.key, answer)
        elif isinstance(request, Scan) and root_of_request(request) is not None:
            self._overlay.learn_all(request.table, answer)

    def _below(self, request: Request) -> Request:
        """Say what must be asked of the backend for a request on top of which own writes lie."""
        overlay = self._overlay
        if isinstance(request, Scan) and request.limit is not None:
            if overlay.dropped and root_of_request(request) is None:
                return request._replace(limit=None)
            return request._replace(limit=request.limit + overlay.shadows(request.table))
        if isinstance(request, Measure) and (overlay.live.get(request.scan.table) or overlay.dropped):
            return request.scan  # own writes lie on top: count the merged rows
        return request

    def _above(self, request: Request, answer: Answer) -> Answer:
        overlay = self._overlay
        if isinstance(request, Get):
            found = overlay.find(request.table, request.key)
            return overlay.learn(request.table, request.key, answer) if found is UNKNOWN else found
        if isinstance(request, Scan):
            self._learn(request, answer)
            return overlay.merge(request, answer)
        if isinstance(request, Measure) and isinstance(answer, list):
            rows = overlay.merge(request.scan, answer)
            return len(rows), sum(size_of(request.scan.table, row) for row in rows)
        return answer

    async def _find(self, table: Table[Any], key: Key) -> Row | None:
        found = self._overlay.find(table, key)
        if found is UNKNOWN or table.root_of_key(key) not in self._overlay.revs:
            (found,) = await self._rows([Get(table, key)])
        return found  # type: ignore[no-any-return]

    async def now(self) -> int:
        """Answer the transaction's time: read once from the store's clock, and every stamp in it (decision 48)."""
        self._check_live()
        if self._now is None:
            self._now = await self._host.backend.now()
        return self._now

    def concealed(self, text: str) -> str:
        """Answer the id under which something personal is looked up: in a sealed store an HMAC."""
        return self._host.concealed(text)

    # writing

    async def insert(self, record: msgspec.Struct) -> None:
        """Add a record. Raises Duplicate here, or at the latest when the enclosing savepoint or block ends."""
        await self.insert_many([record])

    async def insert_many(self, records: Sequence[msgspec.Struct]) -> None:
        """Add records of any tables; one that cannot be kept leaves none of them."""
        self._check_live()
        if not records:
            return
        overlay = self._overlay
        batches, fresh = self._encoded(records)
        if fresh:
            await self._rows([], touching=sorted(fresh))
        if self._careful:
            wanted = [(t, k) for t, rows in batches.items() for k in rows]
            await self._rows([Get(t, k) for t, k in wanted if overlay.find(t, k) is UNKNOWN])
        mark = overlay.mark()
        for table, rows in batches.items():
            if not overlay.add(table, rows):
                overlay.rewind(mark)
                raise _duplicate(table)
        if self._careful:
            try:
                await self._check_unique(mark)
            except Duplicate:
                overlay.rewind(mark)
                raise

    def _encoded(self, records: Sequence[msgspec.Struct]) -> tuple[dict[Table[Any], dict[Key, Row]], set[str]]:
        """Answer the records as rows by table and key, and their roots whose revision is not known yet."""
        batches: dict[Table[Any], dict[Key, Row]] = {}
        fresh: set[str] = set()
        kind, last, revs = None, None, self._overlay.revs
        for record in records:
            if type(record) is not kind:
                kind, last = type(record), None
                table = _table_of(kind)
                encode, key_of, place = codec(table).encode, table.key_of, table.root_in_key
                rows = batches.setdefault(table, {})
            row = encode(record)
            key = key_of(row)
            if key in rows:
                raise _duplicate(table)
            rows[key] = row
            if key[place] != last:
                last = key[place]
                if (root := table.root_of_key(key)) not in revs:
                    fresh.add(root)
        return batches, fresh

    async def update(self, record: msgspec.Struct, *, expect: msgspec.Struct | Mapping[str, Any]) -> bool:
        """Replace the row with the record's key if it still is as expected; say whether it was.

        `expect` is the record as it was read, or the columns the decision rests on. The only way to change a row.
        """
        self._check_live()
        table = _table_of(type(record))
        row = codec(table).encode(record)
        key = table.key_of(row)
        found = await self._find(table, key)
        if found is None or (expect != {} and not _as_expected(table, found, expect)):
            return False
        self._overlay.put(table, key, row)
        return True

    async def delete(self, table: Table[Any], *key: Any) -> bool:
        """Remove a row; say whether there was one. Deleting a root's head drops the whole root."""
        self._check_live()
        cells = checked_key(table, key)
        found = await self._find(table, cells)
        overlay = self._overlay
        if found is not None and overlay.known_base(table, cells) is UNKNOWN:
            await self._learn_below([(table, cells)])  # an unchecked insert: the landing must know what lies below
        if found is None:
            return False
        if table.head:
            await self.drop_root(table.root_of_key(cells))
        else:
            overlay.put(table, cells, None)
        return True

    async def drop_root(self, root: str) -> None:
        """Remove everything of one root. What is written to it afterwards, in this block or later, is another life."""
        self._check_live()
        kind, colon, _ = text_cell(root, "root").partition(":")
        tables = [table for table in self._host.tables if table.root_kind == kind]
        if not tables or not colon:
            raise Invalid("No table has rows under such a root.", do="Name it as root_of() does.", path="root")
        if root not in self._overlay.revs:
            await self._rows([], touching=(root,))
        self._overlay.drop(root, tables)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[Transaction]:
        """Open a part that may fail alone: when its body raises, its writes are undone and the error goes on.

        One task at a time: undoing goes by the order of writes, so parts of two tasks cannot overlap. Raises Misuse.
        """
        self._check_live()
        task = asyncio.current_task()
        if self._parts and self._parts[-1] not in (task, None) and not self._parts[-1].done():
            raise Misuse(
                "Another task has a savepoint of this transaction open.",
                "Nothing was undone.",
                "Open savepoints of one transaction one after another.",
            )
        mark = self._overlay.mark()
        self._parts.append(task)
        try:
            yield self
            await self._learn_below(self._overlay.unchecked_since(mark))
            await self._check_unique(mark)
        except BaseException:
            if self.live:
                self._overlay.rewind(mark)
                self._remembering.clear()
            raise
        finally:
            self._parts.pop()

    async def _learn_below(self, keys: Sequence[tuple[Table[Any], Key]]) -> None:
        """Look up the committed rows under unchecked inserts. Raises Duplicate when there is one."""
        if not keys:
            return
        rows = await self._host.backend.read([Get(table, key) for table, key in keys])
        self._check_live()
        for (table, key), row in zip(keys, rows, strict=True):
            if row is not None:
                raise _duplicate(table)
            self._overlay.learn(table, key, None)

    async def _check_unique(self, mark: int) -> None:
        """Compare what was written since `mark` with every declared uniqueness. Raises Duplicate."""
        for table, key in self._overlay.written_since(mark):
            for i, unique in enumerate(table.unique):
                row = self._overlay.find(table, key)
                if row is None or not _counts(table, unique.where, row):
                    continue
                prefix = tuple(row[table.index[name]] for name in unique.columns)
                (rows,) = await self._rows([Scan(table, f"unique{i}", prefix)])
                if any(table.key_of(other) != key and _counts(table, unique.where, other) for other in rows):
                    raise _duplicate(table)

    def set_deadline(self, deadline_us: int) -> None:
        """Have the landing refused when the store's clock has passed `deadline_us`; the earliest one counts."""
        self._deadline_us = deadline_us if self._deadline_us is None else min(self._deadline_us, deadline_us)

    # ending

    def write_set(self) -> WriteSet | None:
        """Answer what this transaction would land now, or None."""
        written = self._overlay.write_set(self._overlay.revs, self._deadline_us)
        if written is not None:
            for claim in written.claims:
                self._check_head(written, claim.root, claim.expected, claim.written)
        return written

    def _check_head(self, ws: WriteSet, root: str, expected: int, written: bool) -> None:
        head = self._host.heads.get(root.partition(":")[0])
        if head is None or not written or (expected and root not in ws.drops):
            return
        if any(head.root_of(row) == root for row in ws.inserts.get(head, ())):
            return
        if any(table.root_of(row) == root for table, rows in ws.inserts.items() for row in rows):
            raise Misuse(f"Rows were added under {root}, which has no row in {head.name}.", do="Insert that row first.")

    async def land(self) -> None:
        """Send the write set to the backend (its block calls this) and wait for its fate, through any cancellation."""
        written = self.write_set()
        if written is not None:
            self._check_live()
        self.live = False
        if written is None:
            self.outcome = "nothing to land"
            return
        landing = self._host.backend.land(written)
        cancelled = None
        try:
            await landing
        except asyncio.CancelledError as e:  # it comes when the landing is decided: see Deciding
            cancelled = e
        except Exception:
            pass
        failure = landing.exception()
        if failure is not None:
            self.outcome = "unknown" if getattr(failure, "code", "") == "outcome-unknown" else "rolled back"
        else:
            verdict = landing.result()
            if isinstance(verdict, Landed):
                self.outcome, self.commit_seq = "landed", verdict.commit_seq
                self._remember(written)
            else:
                self.outcome, failure = "rolled back", lost_error(verdict)
        if cancelled is not None:
            raise cancelled
        if failure is not None:
            raise failure

    def end(self) -> None:
        """End the transaction (its block calls this): nothing more is read or written through it, and the next in line goes on."""
        self.live = False
        if self.outcome == "open":
            self.outcome = "rolled back"
        for root in self._held:
            self._host.lines.leave(self, root)
        self._held = []
        self._overlay = Overlay()

    def rests_on(self) -> dict[str, int]:
        """Answer the revisions this transaction rests on."""
        return dict(self._overlay.revs)

    def _check_live(self) -> None:
        if not self.live:
            raise Misuse(
                f"This transaction has ended ({self.outcome}).",
                do="Use a tx only inside its block; open another transaction.",
            )
        if self._host.closed:
            raise Unavailable(f"The store {self._host.backend.name!r} was closed.", do="Open it again.")


def lost_error(lost: Lost) -> Exception:
    """Build the error of a landing that was refused."""
    if lost.why == "root":
        return Conflict(
            f"{lost.what} was changed by another transaction after this one had read it.",
            do="Run the whole block again; store.transact(fn) does that for you.",
            root=lost.what,
        )
    if lost.why == "deadline":
        return Fenced("The time in which this write could land is over.", do="Claim the session again, then repeat.")
    return Duplicate(
        f"A row with that {'id' if lost.why == 'duplicate' else 'unique value'} is in {lost.what} already.",
        do="Choose another, or read the one that is there.",
        table=lost.what,
    )


def _table_of(kind: type[msgspec.Struct]) -> Table[Any]:
    table = TABLE_OF.get(kind)
    if table is None:
        raise Invalid(f"{kind.__name__} is the record of no table.", do="Give a record of a declared table.")
    return table


def _duplicate(table: Table[Any]) -> Exception:
    return lost_error(Lost("duplicate", table.name))


def _as_expected(table: Table[Any], row: Row, expect: msgspec.Struct | Mapping[str, Any]) -> bool:
    if isinstance(expect, msgspec.Struct):
        if type(expect) is not table.record:
            raise Invalid(f"{type(expect).__name__} is no record of {table.name}.", do="Expect a record of that table.")
        expected = codec(table).encode(expect)
        pairs: Iterable[tuple[int, Cell]] = enumerate(expected)
    else:
        if unknown := expect.keys() - table.index.keys():
            raise Invalid(f"{table.name} has no column {', '.join(sorted(unknown))}.", do="Expect its own columns.")
        pairs = [(table.index[name], codec(table).cell(name, value)) for name, value in expect.items()]
    return all(row[i] == cell or _same_json(table, i, row[i], cell) for i, cell in pairs)


def _same_json(table: Table[Any], i: int, a: Cell, b: Cell) -> bool:
    texts = table.columns[i].kind == "json" and isinstance(a, str) and isinstance(b, str)
    return texts and same(decode(a), decode(b))  # type: ignore[arg-type]


def _counts(table: Table[Any], where: tuple[str, str | int] | None, row: Row) -> bool:
    return where is None or row[table.index[where[0]]] == where[1]
