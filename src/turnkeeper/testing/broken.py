"""Stores that are wrong on purpose, each in one way: every one of them must fail the suite (T-024).

`BROKEN` maps a name to what makes such a store for `runner.run`; `healthy` makes one without a fault, built the same way.
They run in memory, so all of them are tried in a second. When a fault that somebody met in earnest would pass the suite,
it belongs here, with the test that was missing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from ..clock import Clock, system_clock
from ..schema import Key, Row, Table
from ..store.backend import Answer, Deciding, Landed, Lost, Reader, Request, Scan, WriteSet
from ..store.engine import Block, Engine
from ..store.memory import MemoryBackend
from ..store.migrations import Plan
from ..store.overlay import Overlay
from ..store.transaction import Transaction
from .house import Connect

X = TypeVar("X", bound=Transaction)
T = TypeVar("T")

# wrong overlays


class KeepsRolledBackRows(Overlay):
    """Rolling a savepoint back undoes nothing."""

    def rewind(self, mark: int) -> None:
        """Forget the log, keep the rows."""
        del self._log[mark:]


class LosesMarks(Overlay):
    """A savepoint does not know where it began: when it fails, the whole block is undone."""

    def mark(self) -> int:
        """Answer the beginning of everything."""
        return 0


class UndoesOneRowOnly(Overlay):
    """Rolling back undoes the last write, not all of them."""

    def rewind(self, mark: int) -> None:
        """Undo one entry."""
        super().rewind(max(mark, len(self._log) - 1))
        del self._log[mark:]


class ShowsDeletedRows(Overlay):
    """A scan does not know what the transaction has deleted."""

    def merge(self, scan: Scan, fetched: list[Row]) -> list[Row]:
        """Put back what was deleted."""
        live = self.live.get(scan.table, {})
        gone = {key for key, row in live.items() if row is None}
        ours = super().merge(scan._replace(limit=None), fetched)
        ours += [row for row in fetched if scan.table.key_of(row) in gone]
        ours.sort(key=scan.table.order_of[scan.order], reverse=scan.reverse)
        return ours if scan.limit is None else ours[: scan.limit]


class HidesOwnRows(Overlay):
    """A scan answers committed rows only."""

    def merge(self, scan: Scan, fetched: list[Row]) -> list[Row]:
        """Leave them as they are."""
        return fetched if scan.limit is None else fetched[: scan.limit]


class ForgetsWhatItRead(Overlay):
    """A root that was only read does not count at the landing."""

    def write_set(self, touched: Any, deadline_us: int | None = None) -> WriteSet | None:
        """Leave out the claims on roots nothing was written in."""
        made = super().write_set(touched, deadline_us)
        if made is None:
            return None
        claims = tuple(claim for claim in made.claims if claim.written)
        return WriteSet(claims, made.drops, made.deletes, made.updates, made.inserts, made.deadline_us)


# wrong backends


class HalfLands(MemoryBackend):
    """Of a set that is refused for a duplicate or a unique value, the rows that had gone before stay."""

    def _refusal(self, ws: WriteSet) -> Lost | None:
        lost = super()._refusal(ws)
        if lost is not None and lost.why in ("duplicate", "unique"):
            for table, rows in ws.inserts.items():
                if table.name != lost.what:
                    for row in rows:
                        self._own(table, table.root_of(row)).put(row)
        return lost


class DecidesOnAStaleRead(MemoryBackend):
    """Expectations are compared with the state before the last landing: two who waited for one lock both win."""

    def _refusal(self, ws: WriteSet) -> Lost | None:
        current = self._state.revs
        claims = tuple(
            claim if current.get(claim.root, 0) != claim.expected + 1 else claim._replace(expected=claim.expected + 1)
            for claim in ws.claims
        )
        return super()._refusal(WriteSet(claims, ws.drops, ws.deletes, ws.updates, ws.inserts, ws.deadline_us))


class ChecksUniquenessLate(MemoryBackend):
    """Unique values are compared with the rows of one landing ago."""

    def __init__(self, name: str, tables: Sequence[Table[Any]], *, clock: Clock) -> None:
        super().__init__(name, tables, clock=clock)
        self._newest: dict[Table[Any], set[Key]] = {}

    def _unique_refusal(self, ws: WriteSet) -> Lost | None:
        hidden: list[tuple[Table[Any], Key, Row]] = []
        for table, keys in self._newest.items():
            for key in keys:
                partition = self._state.tables[table].get(table.root_of_key(key))
                if partition is not None and key in partition.rows:
                    hidden.append((table, key, partition.rows.pop(key)))
        lost = super()._unique_refusal(ws)
        for table, key, row in hidden:
            self._state.tables[table][table.root_of_key(key)].rows[key] = row
        self._newest = {table: {table.key_of(row) for row in rows} for table, rows in ws.inserts.items()}
        return lost


class ChecksWrittenRootsOnly(MemoryBackend):
    """A root that was touched and not written is not compared."""

    def _refusal(self, ws: WriteSet) -> Lost | None:
        claims = tuple(claim for claim in ws.claims if claim.written)
        return super()._refusal(WriteSet(claims, ws.drops, ws.deletes, ws.updates, ws.inserts, ws.deadline_us))


class AnswersTooSoon(MemoryBackend):
    """A landing is acknowledged before it is kept: it is applied with the next one, and the last one is lost."""

    _kept_back: WriteSet | None = None

    def _apply(self, ws: WriteSet) -> None:
        before, self._kept_back = self._kept_back, ws
        if before is not None:
            super()._apply(before)


class MovesItsViews(MemoryBackend):
    """A view answers from whatever is committed when it is asked."""

    @asynccontextmanager
    async def _viewing(self) -> AsyncIterator[Reader]:
        yield self


class KeepsDroppedRows(MemoryBackend):
    """Dropping a root leaves the rows of its last table."""

    def _apply(self, ws: WriteSet) -> None:
        kept = {root: self._state.tables[self._tables[2]].get(root) for root in ws.drops}
        super()._apply(ws)
        for root, partition in kept.items():
            if partition is not None:
                self._state.tables[self._tables[2]][root] = partition


class CountsFromOneAgain(MemoryBackend):
    """A root that comes into being begins at revision 1, as in every life before."""

    def _apply(self, ws: WriteSet) -> None:
        super()._apply(ws)
        for claim in ws.claims:
            if claim.written and not claim.expected and claim.root in self._state.revs:
                self._state.revs[claim.root] = 1


class IgnoresDeadlines(MemoryBackend):
    """It is never too late."""

    def _refusal(self, ws: WriteSet) -> Lost | None:
        return super()._refusal(WriteSet(ws.claims, ws.drops, ws.deletes, ws.updates, ws.inserts))


class RepeatsItsSequence(MemoryBackend):
    """Two landings in a row share a commit sequence."""

    def land(self, write_set: WriteSet) -> Deciding:
        """Tell half of it."""
        told, decided = super().land(write_set), Deciding()
        verdict = told.result()
        decided.set_result(Landed(verdict.commit_seq // 2 + 1) if isinstance(verdict, Landed) else verdict)
        return decided


class RewritesJson(MemoryBackend):
    """JSON cells pass through a parsed form that sorts keys and knows one zero."""

    def _apply(self, ws: WriteSet) -> None:
        for part in (ws.inserts, ws.updates):
            for table, rows in part.items():
                rows[:] = [tuple(map(_rewritten, table.columns, row)) for row in rows]
        super()._apply(ws)


class IncludesThePlaceAfter(MemoryBackend):
    """A page begins with the row the last one ended with."""

    async def read(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer, one row too early."""
        return await super().read([_one_early(request) for request in requests])


class AnswersFromTwoStates(MemoryBackend):
    """The requests of one read are answered in turns, so that a landing may come between them."""

    async def read(self, requests: Sequence[Request]) -> list[Answer]:
        """Let others run in between."""
        answers = []
        for request in requests:
            answers.append(self._state.answer(request))
            await asyncio.sleep(0)
        return answers


def _rewritten(column: Any, cell: Any) -> Any:
    if column.kind != "json" or not isinstance(cell, str) or not cell.startswith("{"):
        return cell
    return json.dumps(json.loads(cell), sort_keys=True, separators=(",", ":"))


def _one_early(request: Request) -> Request:
    if isinstance(request, Scan) and request.after is not None and isinstance(request.after[-1], int):
        step = 1 if request.reverse else -1
        return request._replace(after=(*request.after[:-1], request.after[-1] + step))
    return request


# how they are opened


class OverlayedEngine(Engine):
    """An engine whose transactions gather their writes in an overlay of another kind."""

    overlay: type[Overlay] = Overlay

    def transaction(self, kind: Callable[..., X], **options: Any) -> Block[X]:
        """Open a block with that overlay."""
        return super().transaction(self._with_overlay(kind), **options)

    async def transact(self, kind: Callable[..., X], fn: Callable[[X], Any]) -> Any:
        """Run with retry, with that overlay."""
        return await super().transact(self._with_overlay(kind), fn)

    def _with_overlay(self, kind: Callable[..., X]) -> Callable[..., X]:
        def made(host: Engine, **options: Any) -> X:
            tx = kind(host, **options)
            tx._overlay = self.overlay()
            return tx

        return made


Fresh = Callable[[], Connect]
"""Makes an empty database of some kind, and answers what connects to it."""


def store_with(*, backend: type[MemoryBackend] = MemoryBackend, overlay: type[Overlay] = Overlay) -> Fresh:
    """Answer what makes memory stores of a backend and an overlay."""

    def fresh() -> Connect:
        opened: dict[tuple[Table[Any], ...], MemoryBackend] = {}

        async def connect(plan: Plan) -> Engine:
            if plan.tables not in opened:
                opened[plan.tables] = backend("memory:", plan.tables, clock=system_clock)
            engine = OverlayedEngine(opened[plan.tables], plan.tables)
            engine.overlay = overlay
            return engine

        return connect

    return fresh


healthy: Fresh = store_with()
"""A store without a fault, put together like the others."""

_OVERLAYS = (KeepsRolledBackRows, LosesMarks, UndoesOneRowOnly, ShowsDeletedRows, HidesOwnRows, ForgetsWhatItRead)
_BACKENDS = (
    HalfLands, DecidesOnAStaleRead, ChecksUniquenessLate, ChecksWrittenRootsOnly, AnswersTooSoon, MovesItsViews,
    KeepsDroppedRows, CountsFromOneAgain, IgnoresDeadlines, RepeatsItsSequence, RewritesJson, IncludesThePlaceAfter,
    AnswersFromTwoStates,
)  # fmt: skip

BROKEN: dict[str, Fresh] = {
    **{kind.__name__: store_with(overlay=kind) for kind in _OVERLAYS},
    **{kind.__name__: store_with(backend=kind) for kind in _BACKENDS},
}
"""The faults by name."""

__all__ = ["BROKEN", "Fresh", "healthy", "store_with"]
