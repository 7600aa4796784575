"""The waist: what a backend promises, in words. A backend answers reads and lands write sets; it knows nothing of turns.

Five promises, each with a test in the contract suite:

1. All requests of one `read` are answered from one committed state. Readers never wait for writers.
2. A `WriteSet` lands whole and durably, or not at all; the answer comes when that is decided. Neighbours in one call are
   independent of each other.
3. A set is refused (`Lost`) when one of its expectations fails, and the reasons are tried in one order on every backend:
   deadline, root, duplicate, unique. They are checked against the state the set lands on, never an older one.
4. Every landing has a commit sequence, larger than that of every landing it could have seen.
5. A root that comes into being starts at its landing's commit sequence, so no expectation of an earlier life matches.

Rows are tuples of cells in the table's column order; a row handed to a backend is already checked by the intake.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from ..schema import Cell, Key, Row, Table


class Get(NamedTuple):
    """Ask for the row with this key. Answer: the row, or None."""

    table: Table[Any]
    key: Key


class Scan(NamedTuple):
    """Ask for rows in a declared order: equal on `prefix`, the next column within `low`..`high` (both inclusive),
    strictly after the order key `after` (before it when `reverse`), at most `limit`. Answer: a list of rows."""

    table: Table[Any]
    order: str = "key"
    prefix: tuple[Cell, ...] = ()
    low: Cell = None
    high: Cell = None
    after: Key | None = None
    limit: int | None = None
    reverse: bool = False


class Measure(NamedTuple):
    """Ask how many rows a scan would give, and how many bytes their json and blob cells hold, without decoding one.

    Answer: `(rows, bytes)`; `limit`, `after` and `reverse` of the scan are ignored.
    """

    scan: Scan


def bytes_of(cell: Any) -> int:
    """Answer how many bytes a json or blob cell holds, as a Measure counts them."""
    return 0 if cell is None else len(cell.encode()) if isinstance(cell, str) else len(cell)


class RootRev(NamedTuple):
    """Ask for a root's revision. Answer: an int, 0 when the root is not there."""

    root: str


Request = Get | Scan | Measure | RootRev
Answer = Any  # Row | None, list[Row], tuple[int, int], int: as the request says


class RootClaim(NamedTuple):
    """What a write set rests on: the revision its root must still have, and whether the set writes in it."""

    root: str
    expected: int
    written: bool


class WriteSet(msgspec.Struct, frozen=True):
    """One transaction's outcome as a value. Drops come first, then deletes, updates and inserts of whole rows.

    `drops` names roots of which everything goes. An update or delete names a row that exists at the claimed revision; an
    insert names one that does not. The head row of a root goes only with its whole root, by a drop. `deadline_us`:
    refuse when the store's clock has passed it.
    """

    claims: tuple[RootClaim, ...]
    drops: tuple[str, ...] = ()
    deletes: dict[Table[Any], list[Key]] = {}
    updates: dict[Table[Any], list[Row]] = {}
    inserts: dict[Table[Any], list[Row]] = {}
    deadline_us: int | None = None

    def rows(self) -> int:
        """Count the rows it writes."""
        return sum(sum(map(len, part.values())) for part in (self.deletes, self.updates, self.inserts))

    def frees(self) -> bool:
        """Say whether it may give up a unique value that a neighbour waits for: then their order matters."""
        return bool(self.drops) or any(table.unique for table in (*self.deletes, *self.updates))


def stand_apart(sets: Iterable[WriteSet]) -> bool:
    """Say whether sets have no root in common and free no unique value: then their order does not matter."""
    roots: set[str] = set()
    for ws in sets:
        mine = {claim.root for claim in ws.claims}
        if ws.frees() or not roots.isdisjoint(mine):
            return False
        roots |= mine
    return True


class Landed(NamedTuple):
    """The set is durable."""

    commit_seq: int


class Lost(NamedTuple):
    """Nothing of the set was written. `what` is the root, or the table, that decided."""

    why: Literal["deadline", "root", "duplicate", "unique"]
    what: str


Verdict = Landed | Lost


class Reader(Protocol):
    """Answers requests from committed states."""

    async def read(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer all requests from one committed state, in their order."""


class Deciding(Future[Verdict]):
    """The fate of a queued set. It cannot be cancelled: a task that waits for it is woken when it is decided, and its
    CancelledError comes then, so that the caller is told the truth (`tx.outcome`)."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Refuse: what is queued is decided."""
        return False


class Owners(Protocol):
    """Who can be shown to live."""

    def hold(self, owner_id: str) -> None:
        """Keep a mark that ends with this process."""

    def release(self, owner_id: str) -> None:
        """Take it away."""

    def alive(self, owner_id: str) -> bool | None:
        """Say whether an owner is provably there (True) or gone (False); None: cannot tell."""


class Backend(Reader, Protocol):
    """One open database. It belongs to one event loop."""

    kind: str
    """`memory`, `sqlite` or `postgres`: for messages, never for decisions."""
    name: str
    """The url without user and password."""
    cheap_views: bool
    """Whether a view costs no more than a read, so that several reads in one are best made in a view."""

    @property
    def owners(self) -> Owners:
        """Marks that end with their process, so that others can tell when an owner is gone."""

    async def open(self) -> None:
        """Connect, create or migrate. Raises Unavailable, or IncompatibleStore for a newer or foreign database."""

    def land(self, write_set: WriteSet) -> Deciding:
        """Queue one set; the future answers when its fate is decided, whatever becomes of the caller meanwhile.

        A backend may gather sets that wait at the same time. The future holds Unavailable when nothing was written,
        OutcomeUnknown when that cannot be told.
        """

    def read_view(self) -> AbstractAsyncContextManager[Reader]:
        """Open a reader whose every answer comes from one committed state, until the block ends."""

    async def advance(self, seq: int) -> None:
        """Give every later landing a commit sequence above this one: rows of another store came with theirs."""

    async def now(self) -> int:
        """Read the store's clock: microseconds UTC."""

    async def watch(self, after: int, timeout_s: float) -> int:
        """Wait until something landed after commit sequence `after`, or the time is up; answer the newest sequence."""

    async def close(self) -> None:
        """Finish what is under way and let go of everything. Idempotent."""
