"""One open database: its backend, its lines, its guard against nesting, and the ways in.

* `transaction()`: the one block in which writes are gathered and landed.
* `transact(fn)`: that block with retry; `fn(tx)` may run several times, so it must only do what may be done again.
* `look(fn)`: reads without a transaction, all answered from one committed state, also inside a block.

Whether code runs inside a block is told by a context variable and the transaction's live flag, so a task that outlives
the block it was started in is outside again. Opening the same database twice gives stores over one shared engine
(decision 54). An engine belongs to one event loop and one process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from ..errors import (
    Conflict,
    Damaged,
    Duplicate,
    Misuse,
    NestedTransactionError,
    RootStoreWriteInTransactionError,
    Unavailable,
)
from ..limits import RETRY_S
from ..schema import Table
from .backend import Answer, Backend, Reader, Request, RootRev
from .reading import Rows, root_of_request
from .recall import Recall
from .roots import Lines
from .sealed import SealedBackend
from .sealing import StoreKey
from .transaction import Transaction

T = TypeVar("T")
X = TypeVar("X", bound=Transaction)

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class _Inside:
    """One link of the chain of blocks the running context is in."""

    __slots__ = ("engine", "outer", "tx")

    def __init__(self, engine: Engine, tx: Transaction, outer: _Inside | None) -> None:
        self.engine, self.tx, self.outer = engine, tx, outer


_current: ContextVar[_Inside | None] = ContextVar("turnkeeper_block", default=None)


class Engine:
    """The shared heart of all stores over one database."""

    def __init__(self, backend: Backend, tables: Sequence[Table[Any]], *, max_block_s: float = 30.0) -> None:
        self.backend, self.tables = backend, tuple(tables)
        self.heads = {table.root_kind: table for table in tables if table.head}
        self.lines = Lines(max_block_s)
        self.recall = Recall()
        self.closed = False
        self.met: dict[str, str] = {}
        """Where reads have met damage, by root."""
        self._loop = asyncio.get_running_loop()
        self._forks = _forks
        self._random = random.Random()

    def check_usable(self) -> None:
        """Refuse a closed engine, another event loop, and a forked child. Raises Misuse or Unavailable."""
        if self.closed:
            raise Unavailable(f"The store {self.backend.name!r} is closed.", do="Open it again.")
        if self._forks != _forks:
            raise Misuse(
                f"The store {self.backend.name!r} was opened before this process was forked.",
                do="Open a store of its own in each process.",
            )
        if asyncio.get_running_loop() is not self._loop:
            raise Misuse(
                f"The store {self.backend.name!r} belongs to another event loop.",
                do="Open a store of its own in each event loop.",
            )

    def concealed(self, text: str) -> str:
        """Answer the id under which something personal is looked up: in a sealed store an HMAC of it, else itself."""
        return self.backend.concealed(text) if isinstance(self.backend, SealedBackend) else text

    @property
    def key(self) -> StoreKey | None:
        """What a sealed store is open with."""
        return self.backend.key if isinstance(self.backend, SealedBackend) else None

    async def rotate_key(self, key: StoreKey) -> int:
        """Change a sealed store's key; answer how many rows were sealed anew. Raises Misuse for one without a key."""
        self.check_usable()
        if not isinstance(self.backend, SealedBackend):
            raise Misuse(
                f"The store {self.backend.name!r} has no key.", "Nothing was changed.", "Restore a backup under a key."
            )
        return await self.backend.rotate(key, self.tables)

    def inside(self) -> Transaction | None:
        """Answer the live transaction of this engine that the running code is inside of."""
        link = _current.get()
        while link is not None:
            if link.engine is self and link.tx.live:
                return link.tx
            link = link.outer
        return None

    def transaction(self, kind: Callable[..., X], **options: Any) -> Block[X]:
        """Open a block. Raises NestedTransactionError at once inside another block of this database."""
        self.check_usable()
        if self.inside() is not None:
            raise NestedTransactionError.of(self.backend.name, self.backend.kind)
        return Block(self, kind(self, **options))

    async def transact(self, kind: Callable[..., X], fn: Callable[[X], Awaitable[T]]) -> T:
        """Run `fn` in a block and land it; run it again, for at most 5 s, when it lost a race.

        Raises RootStoreWriteInTransactionError inside another block of this database.
        """
        self.check_usable()
        if self.inside() is not None:
            raise RootStoreWriteInTransactionError(
                f"A write through the store {self.backend.name!r} came from inside a transaction block of it.",
                "It was not done; the open transaction is unchanged and can still land.",
                "Write through the block's tx, or after the block.",
            )
        started, attempt, careful = time.monotonic(), 0, False
        while True:
            block = Block(self, kind(self, careful=careful, recall=not attempt))
            try:
                async with block as tx:
                    return await fn(tx)
            except Exception as e:
                if time.monotonic() - started > RETRY_S:
                    raise
                if block.refused is None:
                    if not await block.failed_on_moved():
                        raise
                elif isinstance(e, Duplicate) and not careful:
                    careful = True  # the second run finds it where it is inserted
                elif not isinstance(e, Conflict):
                    raise
            attempt += 1
            await asyncio.sleep(min(0.032, 0.0005 * 2**attempt) * self._random.random())

    def note(self, damage: Damaged) -> None:
        """Remember which root a damaged row was met under, so that a list can mark it; an error goes on to the caller."""
        self.met.setdefault(str(damage.fields.get("root")), f"{damage.fields.get('table')} {damage.fields.get('key')}")

    async def look(self, fn: Callable[[Rows], Awaitable[T]], *, one_view: bool = False) -> T:
        """Run a read whose every answer comes from one committed state.

        Where a view costs more than a read, and without `one_view`, it reads straight from the backend and proves that
        nothing moved in between; a view is opened only when something did.
        """
        self.check_usable()
        if not (one_view or self.backend.cheap_views):
            with contextlib.suppress(Moved):
                return await fn(Looking(self.backend))
        async with self.backend.read_view() as reader:
            view = Viewing(reader)
            try:
                return await fn(view)
            finally:
                view.live = False

    @asynccontextmanager
    async def read_view(self) -> AsyncIterator[Rows]:
        """Open one consistent view over several reads; it blocks nobody and is blocked by nobody."""
        self.check_usable()
        async with self.backend.read_view() as reader:
            view = Viewing(reader)
            try:
                yield view
            finally:
                view.live = False

    async def close(self) -> None:
        """Close the backend. Idempotent."""
        if not self.closed:
            self.closed = True
            await self.backend.close()


class Block(AbstractAsyncContextManager[X]):
    """The `async with` of one transaction: marks the context as inside, lands at the end, rolls back on any error."""

    def __init__(self, engine: Engine, tx: X) -> None:
        self._engine, self._tx = engine, tx
        self.refused: Exception | None = None
        """What the landing was refused with, when the body itself had ended well."""
        self._rests_on: dict[str, int] = {}

    async def __aenter__(self) -> X:
        if self._tx.outcome != "open" or self._tx.live:
            raise Misuse("A transaction block is entered once.", do="Call store.transaction() for another one.")
        if self._engine.inside() is not None:
            raise NestedTransactionError.of(self._engine.backend.name, self._engine.backend.kind)
        self._tx.live = True
        _current.set(_Inside(self._engine, self._tx, _current.get()))
        return self._tx

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                try:
                    await self._tx.land()
                except Exception as e:
                    self.refused = e
                    raise
            self._rests_on = self._tx.rests_on()
        finally:
            self._tx.end()
            link = _current.get()
            if link is not None and link.tx is self._tx:
                _current.set(link.outer)

    async def failed_on_moved(self) -> bool:
        """Say whether the body failed although what it had read has moved: its error may be of a state that is no more."""
        if not self._rests_on:
            return False
        revs = await self._engine.backend.read([RootRev(root) for root in self._rests_on])
        return revs != list(self._rests_on.values())


class Moved(Exception):
    """Two reads of one look could not be answered from one committed state. Never leaves this module."""


class Looking(Rows):
    """Reads straight from the backend; each later read proves that nothing read before has moved."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._revs: dict[str, int] = {}
        self._crossed = False

    async def _rows(self, requests: Sequence[Request]) -> list[Answer]:
        named = [root_of_request(request) for request in requests]
        crossing = None in named
        if self._crossed or (crossing and self._revs):
            raise Moved
        roots = list({**self._revs, **dict.fromkeys(root for root in named if root is not None)})
        answers = await self._backend.read([*(RootRev(root) for root in roots), *requests])
        for root, rev in zip(roots, answers, strict=False):
            if self._revs.setdefault(root, rev) != rev:
                raise Moved
        self._crossed = crossing
        return answers[len(roots) :]


class Viewing(Rows):
    """Reads from a view."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.live = True

    async def _rows(self, requests: Sequence[Request]) -> list[Answer]:
        if not self.live:
            raise Misuse("This view has ended.", do="Read inside its block, or open another view.")
        return await self._reader.read(requests)
