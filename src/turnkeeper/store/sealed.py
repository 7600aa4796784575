"""A backend before a backend, which seals every json and blob cell it lands and opens what it reads. See `sealing.py`.

So no backend knows of keys, and nothing above the waist does.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from ..errors import Conflict, Invalid, WrongKey
from ..records import SEALS
from ..schema import Key, Row, Table
from .backend import (
    Answer,
    Backend,
    Deciding,
    Get,
    Landed,
    Measure,
    Owners,
    Reader,
    Request,
    RootClaim,
    RootRev,
    Scan,
    WriteSet,
)
from .intake import codec
from .reading import size_of
from .sealing import (
    KEY_BYTES,
    RING,
    Cipher,
    Ring,
    Sealer,
    StoreKey,
    UnknownDataKey,
    check_key,
    closed_ring,
    is_broken,
    opened_ring,
)

_BREATHE_ROWS = 250
_ROWS_AT_ONCE = 200
_RING_ROOT = SEALS.root_of_key((RING,))


class SealedBackend:
    """A backend whose json and blob cells are sealed. All else it leaves to the one it stands before."""

    def __init__(self, inner: Backend, key: StoreKey, ring: Ring) -> None:
        self.inner, self.kind, self.name, self.key = inner, inner.kind, inner.name, key
        self.cheap_views = inner.cheap_views
        self._cipher = Cipher(ring)
        self._sealers: dict[Table[Any], Sealer] = {}

    @property
    def owners(self) -> Owners:
        """The inner backend's."""
        return self.inner.owners

    async def open(self) -> None:
        """It is open already: its ring was read from it."""

    def concealed(self, text: str) -> str:
        """Answer the id under which something personal is looked up: an HMAC of it."""
        return hmac.new(self._cipher.ring.lookup, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()

    def land(self, write_set: WriteSet) -> Deciding:
        """Seal the rows, and land them."""
        updates, inserts = self._sealed(write_set.updates), self._sealed(write_set.inserts)
        return self.inner.land(replace(write_set, updates=updates, inserts=inserts))

    def _sealed(self, rows: dict[Table[Any], list[Row]]) -> dict[Table[Any], list[Row]]:
        cipher = self._cipher
        return {
            table: found if table is SEALS else [self._sealer(table).seal(row, cipher) for row in found]
            for table, found in rows.items()
        }

    def _sealer(self, table: Table[Any]) -> Sealer:
        found = self._sealers.get(table)
        if found is None:
            found = self._sealers[table] = Sealer(table)
        return found

    async def read(self, requests: Sequence[Request]) -> list[Answer]:
        """Read, and open what was read."""
        return await self._read(self.inner, requests)

    async def _read(self, reader: Reader, requests: Sequence[Request]) -> list[Answer]:
        plain = [request.scan if isinstance(request, Measure) else request for request in requests]
        answers = await reader.read(plain)  # what is measured is what was said, not how it is stored
        try:
            return [await self._opened(*pair, self._cipher) for pair in zip(requests, answers, strict=True)]
        except UnknownDataKey:  # another process changed the key, or a byte flipped
            (row,) = await self.inner.read([Get(SEALS, (RING,))])
            ring = opened_ring(row, self.key, self.name)
            self._cipher = Cipher(ring)
            return [
                await self._opened(*pair, Cipher(ring, latest=True)) for pair in zip(requests, answers, strict=True)
            ]

    async def _opened(self, request: Request, answer: Answer, cipher: Cipher) -> Answer:
        if isinstance(request, RootRev) or answer is None:
            return answer
        table = request.scan.table if isinstance(request, Measure) else request.table
        if table is SEALS:
            return answer
        sealer = self._sealer(table)
        if isinstance(request, Get):
            return sealer.open(answer, cipher)
        rows: list[Row] = []
        for first in range(0, len(answer), _BREATHE_ROWS):
            if first:
                await asyncio.sleep(0)
            rows += [sealer.open(row, cipher) for row in answer[first : first + _BREATHE_ROWS]]
        return (len(rows), sum(size_of(table, row) for row in rows)) if isinstance(request, Measure) else rows

    @asynccontextmanager
    async def _viewing(self) -> AsyncIterator[Reader]:
        async with self.inner.read_view() as reader:
            yield _View(self, reader)

    def read_view(self) -> AbstractAsyncContextManager[Reader]:
        """Open a reader of one committed state."""
        return self._viewing()

    async def advance(self, seq: int) -> None:
        """Give later landings sequences above this one."""
        await self.inner.advance(seq)

    async def now(self) -> int:
        """Read the store's clock."""
        return await self.inner.now()

    async def watch(self, after: int, timeout_s: float) -> int:
        """Wait for a landing."""
        return await self.inner.watch(after, timeout_s)

    async def close(self) -> None:
        """Close the inner backend."""
        await self.inner.close()

    async def rotate(self, key: StoreKey, tables: Iterable[Table[Any]]) -> int:
        """Seal the ring under another key, then every row under a fresh data key; answer how many rows that were.

        Each landing seals some rows of one root. The data key before stays in the ring for what other processes write
        meanwhile; older ones go, unless a row that does not open may still need them.
        """
        ring, number = self._cipher.ring, self._cipher.ring.newest + 1
        if number > 255:
            raise Invalid("This store's key was changed 254 times.", "Nothing was changed.", "Restore a backup of it.")
        await self._put_ring(Ring({**ring.keys, number: os.urandom(KEY_BYTES)}, number, ring.lookup), key)
        count = left = 0
        for table in tables:
            if table is not SEALS and any(c.kind in ("json", "blob") for c in table.columns):
                async for rows in self._by_root(table):
                    written = await self._seal_anew(table, rows)
                    count, left = count + written, left + len(rows) - written
        if not left:
            keys = self._cipher.ring.keys
            await self._put_ring(Ring({n: keys[n] for n in (ring.newest, number)}, number, ring.lookup), key)
        return count

    async def adopt_lookup(self, other: SealedBackend) -> None:
        """Conceal ids as another store does, whose rows are taken over. Only while nothing is looked up by one here."""
        ring = self._cipher.ring
        await self._put_ring(Ring(ring.keys, ring.newest, other._cipher.ring.lookup), self.key)

    async def _put_ring(self, ring: Ring, key: StoreKey) -> None:
        row, rev = await self.inner.read([Get(SEALS, (RING,)), RootRev(_RING_ROOT)])
        made = codec(SEALS).encode(closed_ring(ring, key, codec(SEALS).decode(row).at))
        verdict = await self.inner.land(WriteSet((RootClaim(_RING_ROOT, rev, True),), updates={SEALS: [made]}))
        if not isinstance(verdict, Landed):
            raise Conflict("Another process changes this store's key.", "The key is that one's.", "Ask who did.")
        self.key, self._cipher = key, Cipher(ring)

    async def _by_root(self, table: Table[Any]) -> AsyncIterator[list[Key]]:
        """Answer the keys of a table's rows, some of one root at a time."""
        after: Key | None = None
        while True:
            (rows,) = await self.inner.read([Scan(table, after=after, limit=_ROWS_AT_ONCE)])
            if not rows:
                return
            keys = [table.key_of(row) for row in rows]
            after = keys[-1]
            for _, found in groupby(keys, table.root_of_key):
                yield list(found)

    async def _seal_anew(self, table: Table[Any], keys: list[Key]) -> int:
        """Write rows of one root again, as they are now; answer how many are well, those that went meanwhile included."""
        root, sealer = table.root_of_key(keys[0]), self._sealer(table)
        while True:
            rev, *found = await self.inner.read([RootRev(root), *(Get(table, key) for key in keys)])
            opened = [sealer.open(row, self._cipher) for row in found if row is not None]
            whole = [row for row in opened if not is_broken(row)]
            if not whole:
                return len(keys) - len(opened)
            verdict = await self.land(WriteSet((RootClaim(root, rev, True),), updates={table: whole}))
            if isinstance(verdict, Landed):
                return len(keys) - len(opened) + len(whole)


class _View:
    """A view whose rows are opened."""

    def __init__(self, backend: SealedBackend, reader: Reader) -> None:
        self._backend, self._reader = backend, reader

    async def read(self, requests: Sequence[Request]) -> list[Answer]:
        """Read, and open what was read."""
        return await self._backend._read(self._reader, requests)


async def unlocked(backend: Backend, key: StoreKey | None, tables: Sequence[Table[Any]]) -> Backend:
    """Answer an open backend as it is to be used: itself, or a sealed one. An untouched database becomes sealed.

    Raises WrongKey when it is sealed and the key is missing or another; Invalid for a key that is none, or a store that
    holds rows which were never sealed. Nothing was read or written then.
    """
    check_key(key)
    (row,) = await backend.read([Get(SEALS, (RING,))])
    if key is None:
        if row is None:
            return backend
        raise WrongKey(
            f"The store {backend.name!r} is sealed, and no key was given.",
            "Nothing was read or changed.",
            "Open it with key=….",
        )

    while row is None:
        if any(await backend.read([Scan(table, limit=1) for table in tables])):
            raise WrongKey(
                f"The store {backend.name!r} is not sealed, and holds rows.",
                "Nothing was read or changed.",
                "Open it without a key; to seal it, restore a backup of it into a new store that has one.",
            )
        fresh = Ring({1: os.urandom(KEY_BYTES)}, 1, os.urandom(KEY_BYTES))
        made = codec(SEALS).encode(closed_ring(fresh, key, await backend.now()))
        await backend.land(WriteSet((RootClaim(_RING_ROOT, 0, True),), inserts={SEALS: [made]}))
        (row,) = await backend.read([Get(SEALS, (RING,))])  # ours, or that of a process that was faster
    return SealedBackend(backend, key, opened_ring(row, key, backend.name))
