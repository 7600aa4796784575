"""What a contract test is given: fresh connections to one empty database, over the suite's tables or Turnkeeper's own."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import msgspec

from ..api import PLAN, Store
from ..ids import uuid7
from ..schema import Table
from ..store.backend import RootRev
from ..store.engine import Block, Engine
from ..store.migrations import Plan
from ..store.reading import Rows
from ..store.transaction import Transaction
from .tables import LIBRARY, Book, Shelf

T = TypeVar("T")
R = TypeVar("R", bound=msgspec.Struct)

Connect = Callable[[Plan], Awaitable[Engine]]
"""Opens one more connection to the database of the running test, with the tables of a plan."""

PATIENCE_S = 20.0
"""How long a test waits for what must come; it never waits so long for what must not."""


class Waist:
    """An engine over the suite's tables, with the entries a store has."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def transaction(self) -> Block[Transaction]:
        """Open a transaction block."""
        return self.engine.transaction(Transaction)

    async def transact(self, fn: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run `fn(tx)` in a block, with retry."""
        return await self.engine.transact(Transaction, fn)

    async def look(self, fn: Callable[[Rows], Awaitable[T]], *, one_view: bool = False) -> T:
        """Run `fn(rows)` over one committed state."""
        return await self.engine.look(fn, one_view=one_view)

    def read_view(self) -> AbstractAsyncContextManager[Rows]:
        """Open one consistent view."""
        return self.engine.read_view()

    async def add(self, *records: msgspec.Struct) -> None:
        """Insert records in a transaction of their own."""
        async with self.transaction() as tx:
            await tx.insert_many(records)

    async def get(self, table: Table[R], *key: Any) -> R | None:
        """Answer the committed record with this key."""
        return await self.look(lambda rows: rows.get(table, *key))

    async def scan(self, table: Table[R], *prefix: Any, **bounds: Any) -> list[R]:
        """Answer the committed records of a scan."""
        return await self.look(lambda rows: rows.scan(table, *prefix, **bounds))

    async def rev(self, root: str) -> int:
        """Answer the committed revision of a root."""
        (rev,) = await self.engine.backend.read([RootRev(root)])
        return int(rev)

    async def everything(self) -> dict[str, list[Any]]:
        """Answer all committed rows of all tables, in key order."""
        async with self.read_view() as view:
            return {table.name: await view.scan(table) for table in LIBRARY.tables}

    async def shelf(self, shelf_id: str = "a", *, books: Sequence[int] = ()) -> None:
        """Put up a shelf with some plain books."""
        await self.add(Shelf(shelf_id), *(Book(shelf_id, number, code=f"c{number}") for number in books))


class House:
    """The database of one test. Everything it hands out is closed at the end of the test."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._engines: list[Engine] = []
        self._stores: list[Store] = []

    async def engine(self, plan: Plan) -> Engine:
        """Open a connection."""
        engine = await self._connect(plan)
        self._engines.append(engine)
        return engine

    async def waist(self) -> Waist:
        """Open a connection over the suite's tables: a second one stands for another process."""
        return Waist(await self.engine(LIBRARY))

    async def library(self, *shelves: str, books: Sequence[int] = ()) -> Waist:
        """Open a connection and put up some shelves, each with the same plain books."""
        waist = await self.waist()
        for shelf_id in shelves:
            await waist.shelf(shelf_id, books=books)
        return waist

    async def store(self, *, owner: str | None = None, lease_s: float = 30.0) -> Store:
        """Open a connection over Turnkeeper's own tables."""
        engine = await self.engine(PLAN)
        store = Store(engine, engine.close, owner=owner, lease_s=lease_s, ids=uuid7)
        self._stores.append(store)
        return store

    async def close(self) -> None:
        """Close whatever is still open."""
        for store in self._stores:
            await store.close()
        for engine in self._engines:
            await engine.close()


async def soon(waited_for: Awaitable[T]) -> T:
    """Wait for what must come."""
    async with asyncio.timeout(PATIENCE_S):
        return await waited_for


def elsewhere(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task that is in no block of the caller's."""
    return asyncio.create_task(work, context=contextvars.Context())


async def a_while(turns: int = 20) -> None:
    """Let other tasks run until they wait for something."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def rests(task: asyncio.Task[Any], *, for_s: float = 0.05) -> bool:
    """Say whether a task is still waiting after a short time."""
    done, _ = await asyncio.wait([task], timeout=for_s)
    return not done
