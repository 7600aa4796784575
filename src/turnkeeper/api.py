"""The public face: `open`, the store, and a transaction with its rooms.

::

    async with turnkeeper.open("story.db") as store:            # sqlite path, "memory:", or "postgresql://…"
        cave = await store.create_session(title="The cellar")
        await cave.take_turn(play, "I light the lamp.", key="cmd-17")
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, TypeVar, cast

from .clock import Clock, system_clock
from .errors import Damaged, Invalid, Misuse, Unavailable, WrongKey
from .handles import Session
from .health import Health, HealthChecks
from .history import History
from .ids import Ids, uuid7
from .kit.fenced import Ref, Who, session_id_of
from .kit.ownership import Ownership
from .records import TABLES
from .sessions import Records, Sessions
from .sessions.lifecycle import NOTHING_MET, Judge, Met, SessionInfo, as_stored
from .store.backend import Backend
from .store.engine import Block, Engine
from .store.memory import MemoryBackend
from .store.migrations import Plan
from .store.reading import Rows
from .store.sealed import unlocked
from .store.sealing import StoreKey, check_key
from .store.transaction import Transaction
from .store.urls import POSTGRES, check_url, same_database
from .transfer import Transfer
from .transfer.backup import BackupReport, Progress, back_up, restore
from .turns import Turns

T = TypeVar("T")
PLAN = Plan(TABLES)


class Face:
    """What a store and a transaction share: the rooms, and handles of sessions."""

    _ids: Ids = staticmethod(uuid7)
    _judge: Judge = staticmethod(as_stored)

    @property
    def history(self) -> History:
        """Takes, messages, versions and state."""
        return History(self)  # type: ignore[arg-type]

    @property
    def records(self) -> Records:
        """Small keyed records of a session."""
        return Records(self)  # type: ignore[arg-type]

    @property
    def turns(self) -> Turns:
        """The landings of turns."""
        return Turns(self)  # type: ignore[arg-type]

    @property
    def transfer(self) -> Transfer:
        """Imports of foreign chats."""
        return Transfer(self)  # type: ignore[arg-type]

    @property
    def health(self) -> HealthChecks:
        """Looking at a session's rows, and mending them."""
        return HealthChecks(self)  # type: ignore[arg-type]

    @property
    def lifecycle(self) -> Sessions:
        """Making, finding and deleting sessions by id, and their events."""
        return Sessions(self)  # type: ignore[arg-type]

    def create_session(
        self,
        session_id: str | None = None,
        *,
        title: str | None = None,
        space: str = "default",
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Awaitable[Session]:
        """Create a session with one empty take. Raises Duplicate for an id in use."""
        named = self._ids() if session_id is None else session_id
        made = self.lifecycle.create(named, title=title, space=space, labels=labels, metadata=metadata)
        return self._handle(made)

    async def _handle(self, made: Awaitable[Ref]) -> Session:
        return Session(cast(Any, self), await made)

    async def session(self, session_id: str) -> Session:
        """Answer a handle of a session's present life. Raises NotFound, or Gone when it was deleted."""
        return Session(cast(Any, self), await self.lifecycle.find(session_id))

    async def sessions(
        self,
        *,
        space: str = "default",
        limit: int = 50,
        after: SessionInfo | None = None,
        order: Literal["newest", "oldest"] = "newest",
    ) -> list[SessionInfo]:
        """Answer a page of a space's sessions; `after` is the last one of the page before.

        On a store a session left behind by a dead owner reads `abandoned`, as `info()` says it; in a transaction, which
        would rest on every owner's heartbeat then, it reads as it is stored.
        """
        return await self.lifecycle.listing(
            space=space, limit=limit, after=after, order=order, judge=self._judge, met=self._met()
        )

    def _met(self) -> Met:
        return NOTHING_MET


class Tx(Face, Transaction):
    """One open transaction with its rooms: everything written through it lands together, or nothing does."""

    def __init__(self, host: Engine, *, store: Store, careful: bool = False, recall: bool = False) -> None:
        super().__init__(host, careful=careful, recall=recall)
        self.holder = store.ownership.owner_id
        self._ids = store._ids


class Store(Face):
    """An open database. It belongs to one event loop; close it when done (`async with` does)."""

    def __init__(
        self,
        engine: Engine,
        release: Callable[[], Awaitable[None]],
        owner: str | None = None,
        lease_s: float = 30,
        ids: Ids = uuid7,
    ) -> None:
        self._engine, self._release, self._ids = engine, release, ids
        self.ownership = Ownership(self, engine, label=owner, lease_s=lease_s)
        self._judge = self.ownership.statuses
        self._closed = False
        self._closing: asyncio.Future[None] | None = None

    @property
    def name(self) -> str:
        """The url it was opened with, without user and password."""
        return self._engine.backend.name

    def transaction(self) -> Block[Tx]:
        """Open a transaction block; it lands when it ends normally. Raises NestedTransactionError inside another one."""
        self._check_open()
        return self._engine.transaction(Tx, store=self)

    async def transact(self, fn: Callable[[Tx], Awaitable[T]]) -> T:
        """Run `fn(tx)` in a block, and again for up to 5 s when it lost a race; answer its result."""
        self._check_open()
        try:
            return await self._engine.transact(self._new_tx, fn)
        except Damaged as e:
            self._engine.note(e)
            raise

    def _new_tx(self, host: Engine, *, careful: bool = False, recall: bool = False) -> Tx:
        return Tx(host, store=self, careful=careful, recall=recall)

    async def look(self, fn: Callable[[Rows], Awaitable[T]], *, one_view: bool = False) -> T:
        """Run `fn(rows)` over one committed state, inside a block too."""
        self._check_open()
        try:
            return await self._engine.look(fn, one_view=one_view)
        except Damaged as e:
            self._engine.note(e)
            raise

    def read_view(self) -> AbstractAsyncContextManager[Rows]:
        """Open one consistent view over several reads."""
        self._check_open()
        return self._engine.read_view()

    async def session_info(self, who: Who) -> SessionInfo:
        """Answer what is known of a session; `abandoned` when its owner is dead."""
        return await self.lifecycle.load(who, judge=self._judge, met=self._met())

    def _met(self) -> Met:
        return {root[2:]: where for root, where in self._engine.met.items() if root.startswith("s:")}

    async def check(self, who: Who | None = None) -> AsyncIterator[Health]:
        """Look at every row of one session, or of each; yield what is wrong, session by session, and mark it in lists.

        Raises NotFound or Gone for one that is not there.
        """
        async for one in self._each(who):
            health = await self.health.check(one)
            await self.health.note(one, health.findings)
            yield health

    async def repair(self, who: Who | None = None) -> AsyncIterator[Health]:
        """Mend one session, or each: damaged rows are set aside and kept, open calls closed, caches made anew.

        Yields what was wrong, session by session. Raises NotFound or Gone for one that is not there.
        """
        async for one in self._each(who):
            yield await self.health.repair(one)
            self._engine.met.pop(f"s:{session_id_of(one)}", None)

    async def _each(self, who: Who | None) -> AsyncIterator[Who]:
        if who is not None:
            yield who
            return
        after: str | None = None
        while True:
            found = await self.lifecycle.ids(after=after)
            for session_id in found:
                yield session_id
            if not found:
                return
            after = found[-1]

    async def watch(self, *, poll_s: float = 5.0) -> AsyncIterator[int]:
        """Yield the newest commit sequence each time something has landed, here or in another process.

        `poll_s` is the longest time between two looks. Raises Invalid for one that is not above 0.
        """
        self._check_open()
        if not poll_s > 0:
            raise Invalid("`poll_s` is a number of seconds above 0.", do="Give a larger one.", path="poll_s")
        seen = await self._engine.backend.watch(-1, 0)
        while not self._closed:
            newest = await self._engine.backend.watch(seen, poll_s)
            if newest > seen:
                seen = newest
                yield seen

    async def rotate_key(self, key: StoreKey) -> int:
        """Open the store with another key from now on; answer how many rows were sealed anew under it.

        Handles of the old key go on writing rows that the new one opens; what they read of the new rows raises WrongKey.
        Raises Misuse for a store that is not sealed, Invalid for a key that is none. ADR 9.
        """
        self._check_open()
        return await self._engine.rotate_key(key)

    async def backup(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> BackupReport:
        """Write everything that is committed now into a new file, while the store goes on working.

        The file is a store itself, sealed as this one is; it stands there whole or not at all. Raises Invalid when there
        is a file already, Unavailable when it cannot be written. ADR 14.
        """
        self._check_open()
        return await back_up(self._engine.backend, TABLES, path, _file_store, progress)

    async def restore_backup(
        self, path: str | os.PathLike[str], *, key: StoreKey | None = None, progress: Progress | None = None
    ) -> BackupReport:
        """Take over what a backup has and this store has not, session by session; the backup is left as it is.

        `key` opens the backup. Sessions that this store has, or has deleted, are passed over: call it again to go on after
        it was stopped. Raises Unavailable when there is no backup, WrongKey when `key` does not open it. ADR 14.
        """
        self._check_open()
        check_key(key)

        async def opened(copy: str) -> Backend:
            return await _opened(_file_store(copy), key)

        return await restore(path, opened, self._engine.backend, TABLES, progress)

    async def close(self) -> None:
        """Release what this store owns and close it. Idempotent, also for two tasks at once."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await self.ownership.close()
        finally:
            self._closed = True
            await self._release()

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(f"The store {self.name!r} is closed.", do="Open it again.")

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Store {self.name}>"


class Opening:
    """What `open` answers: await it, or enter it."""

    def __init__(self, make: Callable[[], Awaitable[Store]]) -> None:
        self._make = make
        self._store: Store | None = None

    def __await__(self) -> Generator[Any, None, Store]:
        return self._make().__await__()

    async def __aenter__(self) -> Store:
        self._store = await self._make()
        return self._store

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        assert self._store is not None
        await self._store.close()


def open(
    url: str | os.PathLike[str],
    *,
    create: bool = True,
    migrate: Literal["auto", "refuse"] = "auto",
    key: StoreKey | None = None,
    durability: Literal["full", "normal"] = "full",
    owner: str | None = None,
    connections: int = 2,
    lease_s: float = 30,
    max_block_s: float = 30,
    clock: Clock | None = None,
    ids: Ids | None = None,
    listen_url: str | None = None,
) -> Opening:
    """Open a store: a path of a SQLite file, `memory:` (private) or `memory:NAME` (shared), or `postgresql://…`.

    `create=False` never makes a file. `key` seals what people and models wrote, with 32 bytes or a passphrase: an empty
    database opened with one is sealed for good. `durability="normal"` may lose acknowledged turns at a power cut. `owner`
    is a label people see; `lease_s` is how long a silent owner keeps its sessions; `clock` and `ids` stand in for the
    machine's in tests. Raises Unavailable when it cannot be opened, IncompatibleStore for a newer or a foreign database,
    WrongKey for a sealed one that `key` does not open; nothing is changed then.
    """
    name = os.fspath(url)
    if not isinstance(name, str) or not name:
        raise Invalid("A store's url is a path, memory:, or postgresql://…", do="Give one.", path="url")
    check_url(name)
    _check_options(lease_s, max_block_s, durability, migrate, connections)
    ticking = clock or system_clock

    def backend() -> Backend:
        if name == "memory:" or name.startswith("memory:"):
            return MemoryBackend(name, TABLES, clock=ticking)
        if name.startswith(POSTGRES):
            from .store.postgres import PostgresBackend

            return PostgresBackend(
                name, PLAN, clock=clock, create=create, migrate=migrate, connections=connections, listen_url=listen_url
            )
        from .store.sqlite import SQLiteBackend

        return SQLiteBackend(name, PLAN, clock=ticking, create=create, migrate=migrate, durability=durability)

    options = (durability, max_block_s, clock, migrate, connections, listen_url)

    async def make() -> Store:
        engine, release = await _shared(same_database(name), backend, options, key, max_block_s)
        return Store(engine, release, owner=owner, lease_s=lease_s, ids=ids or uuid7)

    return Opening(make)


def _check_options(lease_s: float, max_block_s: float, durability: str, migrate: str, connections: int) -> None:
    """Refuse a misspelt option: it would be believed to hold. Raises Invalid."""
    for option, seconds in (("lease_s", lease_s), ("max_block_s", max_block_s)):
        if not 0 < seconds <= 1e9:
            raise Invalid(f"`{option}` is a number of seconds above 0.", do="Give another one.", path=option)
    for option, value, known in (
        ("durability", durability, ("full", "normal")),
        ("migrate", migrate, ("auto", "refuse")),
    ):
        if value not in known:
            raise Invalid(f"`{option}` is one of {', '.join(known)}.", do="Choose one of them.", path=option)
    if type(connections) is not int or connections < 1:
        raise Invalid("`connections` is a whole number from 1.", do="Give a larger one.", path="connections")


class _Use:
    """One engine that several stores may share, and how many do."""

    def __init__(self, engine: Engine, options: tuple[Any, ...]) -> None:
        self.engine, self.options, self.stores = engine, options, 0


class _Uses:
    """The engines that are open in one event loop, by database."""

    def __init__(self) -> None:
        self.by_database: dict[str, _Use] = {}
        self.opening = asyncio.Lock()


_uses: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Uses] = weakref.WeakKeyDictionary()


async def _shared(
    same: str | None,
    backend: Callable[[], Backend],
    options: tuple[Any, ...],
    key: StoreKey | None,
    max_block_s: float,
) -> tuple[Engine, Callable[[], Awaitable[None]]]:
    """Open a database, or join the engine that has it open in this loop (decision 54)."""
    if same is None:
        engine = await _new_engine(backend, key, max_block_s)
        return engine, engine.close
    uses = _uses.setdefault(asyncio.get_running_loop(), _Uses())
    async with uses.opening:
        use = uses.by_database.get(same)
        if use is None or use.engine.closed:
            use = uses.by_database[same] = _Use(await _new_engine(backend, key, max_block_s), options)
        elif use.engine.key != key:
            raise WrongKey(f"{same!r} is open already with another key.", do="Open it with the same.")
        elif use.options != options:
            raise Misuse(
                f"{same!r} is open already with other options.", do="Open it with the same, or close it first."
            )
        use.stores += 1

    async def release() -> None:
        async with uses.opening:  # so that whoever opens it next finds it open or closed, not closing
            use.stores -= 1
            if not use.stores:
                uses.by_database.pop(same, None)
                await use.engine.close()

    return use.engine, release


async def _new_engine(backend: Callable[[], Backend], key: StoreKey | None, max_block_s: float) -> Engine:
    return Engine(await _opened(backend(), key), TABLES, max_block_s=max_block_s)


async def _opened(backend: Backend, key: StoreKey | None) -> Backend:
    await backend.open()
    try:
        return await unlocked(backend, key, TABLES)
    except BaseException:
        await backend.close()
        raise


def _file_store(path: str) -> Backend:
    from .store.sqlite import SQLiteBackend

    return SQLiteBackend(path, PLAN, clock=system_clock, durability="normal")
