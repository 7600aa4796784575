"""Landing what a reader found: one foreign session becomes one session of the store, whole or not at all.

* The same source adds nothing: it is known by what was read, not by its name. A session that was deleted may be
  imported again.
* Takes that share messages share their versions. A time the source did not have stays null. A take's variables become
  its base, and its caches are rebuilt from there.
* What the content model has no place for is kept word for word: of a message and a version beside them, of a session
  and its takes in records of the namespace `import`, with the loss report. They go when the session is deleted; of the
  source itself only digest, session id and the counts of losses stay.
* One session is one landing, so a session must fit into memory: up to about 20,000 messages. The event loop breathes
  every few hundred rows. Landing in bounded steps is not done here yet.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ..errors import Invalid, NotFound
from ..history.base import set_branch_base
from ..history.content import ROLES, NewMessage, parts
from ..history.fold import VARS
from ..history.state import rebuild
from ..jsonvalue import check, digest, encode
from ..kit.fenced import enter
from ..kit.log import write_event
from ..limits import BASE_BYTES
from ..records import IMPORT_SOURCES, RECORDS, SESSIONS, ImportSource, Message, Record, Session, Take, Version
from ..sessions.lifecycle import create
from ..store.reading import Rows
from ..store.transaction import Transaction
from .imported import Imported, ImportedMessage, ImportedSession, ImportedTake, ImportedVersion, Loss

NAMESPACE = "import"
"""The records in which the rest of a source is kept: `session`, `take.<number>`, `report.<number of its first loss>`."""

LOSSES_A_RECORD = 5000

_ROWS_AT_ONCE = 500


class ImportReport(msgspec.Struct, frozen=True):
    """What an import did with one session of a source. `added` is False when the source was in the store already."""

    session_id: str
    added: bool
    source: str
    losses: list[Loss]


def source_of(imported: Imported, index: int) -> str:
    """Answer by what a session of a source is known again: the digest of its own files, or of the bytes read and its place."""
    return imported.sessions[index].source or f"{imported.file_sha256}.{index}"


async def import_session(
    tx: Transaction, imported: Imported, index: int = 0, *, space: str = "default"
) -> ImportReport:
    """Land one session of what a reader found. The same source adds nothing: the answer says which session holds it.

    Raises Invalid for a message without versions or of an unknown role, TooLarge for a content above `turnkeeper.limits`.
    """
    if not 0 <= index < len(imported.sessions):
        raise NotFound(f"The source holds no session {index}.", do="Count its sessions.", kind="session", id=index)
    session, source = imported.sessions[index], source_of(imported, index)
    losses = _losses_of(imported, index)
    known_as = tx.concealed(source)
    await tx.touch(f"i:{known_as}")
    known = await tx.get(IMPORT_SOURCES, known_as)
    if known is not None and await holds(tx, known.session_id, source):
        return ImportReport(known.session_id, False, source, losses)
    ref = await create(tx, title=session.title, space=space)
    head, _ = await enter(tx, ref)
    now = await tx.now()
    landing = _Landing(tx, head, now)
    bases = await landing.write_takes(session.takes)
    unstored = [_base_unstored(take) for take, base in zip(session.takes, bases, strict=True) if base is None]
    losses += unstored
    await landing.write_rest(imported, session, source, losses, bases)
    made = ImportSource(known_as, ref.session_id, now, [{"kind": k, "count": n} for k, n in _count(losses).items()])
    if known is None:
        await tx.insert(made)
    else:
        await tx.update(made, expect=known)
    await landing.finish(imported, source, losses, bases)
    return ImportReport(ref.session_id, True, source, losses)


async def holds(rows: Rows, session_id: str, source: str) -> bool:
    """Say whether a session is there and is the one that was made of this source, not another life of its id."""
    if await rows.get(SESSIONS, session_id) is None:
        return False
    kept = await rows.get(RECORDS, session_id, NAMESPACE, "session")
    return kept is not None and isinstance(kept.body, dict) and kept.body.get("source") == source


class _Landing:
    """The rows of one session as they are made: numbers are minted here, rows are written a few hundred at a time."""

    def __init__(self, tx: Transaction, head: Session, now: int) -> None:
        self._tx, self._now = tx, now
        self._head = head
        self._versions: dict[int, int] = {}  # the identity of a version that was read, and its number
        self._takes: list[Take] = []

    async def write_takes(self, takes: Sequence[ImportedTake]) -> list[dict[str, Any] | None]:
        """Write the takes with their messages and versions; answer the base of each, None where it is too large."""
        active = 0
        for number, take in enumerate(takes):
            parent, last = _parent(takes, number)
            await self._insert(self._rows_of(number, take))
            count = len(take.messages)
            made = Take(
                self._head.session_id, number, parent, last, "import", count, count, 0, False, self._now,
                take.name or None,
            )  # fmt: skip
            if number:
                await self._tx.insert(made)
            else:
                await self._tx.update(made, expect={"cursor": 0})  # the empty take the session began with
            self._takes.append(made)
            active = number if take.active else active
        self._head = replace(
            self._head,
            active_take=active, next_take=max(len(takes), 1), next_version=len(self._versions),
            line_rev=self._head.line_rev + 1,
        )  # fmt: skip
        return [_base(take, number) for number, take in enumerate(takes)]

    async def _insert(self, rows: Iterable[msgspec.Struct]) -> None:
        """Insert rows in portions, so that other tasks of the loop go on between them."""
        portion: list[msgspec.Struct] = []
        for row in rows:
            portion.append(row)
            if len(portion) >= _ROWS_AT_ONCE:
                await self._tx.insert_many(portion)
                portion = []
                await asyncio.sleep(0)
        await self._tx.insert_many(portion)

    def _rows_of(self, take: int, read: ImportedTake) -> Iterator[Version | Message]:
        session_id = self._head.session_id
        for position, message in enumerate(read.messages):
            path = f"takes[{take}].messages[{position}]"
            if message.role not in ROLES:
                raise Invalid(f"{path}.role is not a role.", do=f"Use one of {', '.join(ROLES)}.", path=f"{path}.role")
            if not 0 <= message.shown < len(message.versions):
                raise Invalid(f"{path}.shown is none of its versions.", do="Number one of them.", path=f"{path}.shown")
            numbers = []
            for version in message.versions:
                number = self._versions.get(id(version))
                if number is None:
                    number = self._versions[id(version)] = len(self._versions)
                    yield _version(session_id, number, version)
                numbers.append(number)
            yield Message(
                session_id, take, position, numbers[message.shown], message.role, False, None, message.created_at,
                numbers if len(numbers) > 1 else None, _head_of(message),
            )  # fmt: skip

    async def write_rest(
        self,
        imported: Imported,
        session: ImportedSession,
        source: str,
        losses: Sequence[Loss],
        bases: Sequence[dict[str, Any] | None],
    ) -> None:
        """Keep what has no place of its own: the session's and the takes' rest, the loss report."""
        body = {
            "format": imported.format, "file_sha256": imported.file_sha256, "source": source,
            "source_id": session.source_id, "created_at": session.created_at, "extra": session.extra,
            "versions": len(self._versions),
        }  # fmt: skip
        await self._keep("session", body)
        for number, (take, base) in enumerate(zip(session.takes, bases, strict=True)):
            rest: dict[str, Any] = {"name": take.name, "extra": take.extra}
            if base is None:
                rest["variables"] = take.variables
            await self._keep(f"take.{number}", rest)
        for start in range(0, len(losses), LOSSES_A_RECORD):
            part = [msgspec.to_builtins(loss) for loss in losses[start : start + LOSSES_A_RECORD]]
            await self._keep(f"report.{start:09d}", part)

    async def _keep(self, key: str, body: Any) -> None:
        await self._tx.insert(Record(self._head.session_id, NAMESPACE, key, 1, "", self._now, digest(body), body))

    async def finish(
        self, imported: Imported, source: str, losses: Sequence[Loss], bases: Sequence[dict[str, Any] | None]
    ) -> None:
        """Write the head with the event, then the bases, from which the caches follow."""
        body = {
            "format": imported.format, "source": source, "takes": len(bases),
            "messages": sum(take.cursor for take in self._takes), "versions": len(self._versions),
            "losses": _count(losses),
        }  # fmt: skip
        written = write_event(self._head, "session.imported", body, self._now)
        await self._tx.insert_many(written.rows)
        await self._tx.update(replace(written.head, last_activity_at=self._now), expect={})
        for take, base in zip(self._takes, bases, strict=True):
            if base:
                await set_branch_base(self._tx, self._head.session_id, {VARS: base}, take=take.take)
            else:
                await self._tx.update(await rebuild(self._tx, take, 0), expect={"revision": take.revision})
            await asyncio.sleep(0)


def _version(session_id: str, number: int, version: ImportedVersion) -> Version:
    return Version(
        session_id, number, version.created_at, parts(version.parts), version.meta or None, version.extra or None
    )


def _head_of(message: ImportedMessage) -> dict[str, Any] | None:
    carried = NewMessage(message.role, [], name=message.name, hidden=message.hidden, message_extra=message.extra)
    return carried.head()


def _parent(takes: Sequence[ImportedTake], number: int) -> tuple[int | None, int | None]:
    """Answer the earlier take with which a take shares the longest beginning, and the last position they share."""
    parent, most = None, 0
    for other in range(number):
        shared = 0
        for a, b in zip(takes[other].messages, takes[number].messages, strict=False):
            if a is not b and not any(one is two for one in a.versions for two in b.versions):
                break
            shared += 1
        if shared > most:
            parent, most = other, shared
    return parent, most - 1 if most else None


def _base(take: ImportedTake, number: int) -> dict[str, Any] | None:
    check(take.variables, f"takes[{number}].variables")
    fits = len(encode({VARS: take.variables}).encode()) <= BASE_BYTES
    return take.variables if fits else None


def _base_unstored(take: ImportedTake) -> Loss:
    return Loss("variables_too_large", {"take": take.name}, "kept beside the take; its state starts empty")


def _losses_of(imported: Imported, index: int) -> list[Loss]:
    """Answer the losses that name this session; the first session has those that name none."""
    ids = [session.source_id for session in imported.sessions]
    return [
        loss
        for loss in imported.losses
        if (loss.where.get("conversation") == ids[index]) or (index == 0 and loss.where.get("conversation") not in ids)
    ]


def _count(losses: Iterable[Loss]) -> dict[str, int]:
    return dict(Counter(loss.kind for loss in losses))
