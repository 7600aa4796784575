"""The life of a session: created, listed, renamed, deleted. Its incarnation is minted here and nowhere else.

Deleting erases everything of the session in one landing and leaves a tombstone, so that a late writer with an old handle
is told that it is gone. A session made again under the same id is another life: empty, with another incarnation; only
the numbers of its event log go on, so that no reader of the log meets a number twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ..errors import Damaged, Invalid, NotFound
from ..ids import token, uuid7
from ..kit.fenced import Ref, Who, enter, look_up, ref_of, root_of, session_id_of
from ..kit.log import write_event
from ..limits import PAGE_ROWS
from ..records import (
    DAMAGES,
    HEADERS,
    SESSIONS,
    SNAPSHOTS,
    TOMBSTONES,
    Damage,
    Header,
    Session,
    Take,
    Tip,
    Tombstone,
)
from ..store.backend import Get
from ..store.intake import text_cell
from ..store.reading import Rows, Unreadable
from ..store.transaction import Transaction


class SessionInfo(msgspec.Struct, frozen=True):
    """What a list shows of a session. Times are microseconds UTC."""

    session_id: str
    instance_id: str
    space: str
    title: str | None
    labels: dict[str, str]
    metadata: dict[str, Any]
    status: str
    run_epoch: int
    active_take: int
    created_at: int
    updated_at: int
    last_activity_at: int
    damaged: str | None = None  # the first place that was found damaged, by a check or by a read of this store


async def create(
    tx: Transaction,
    session_id: str | None = None,
    *,
    title: str | None = None,
    space: str = "default",
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Ref:
    """Create a session with one empty take, status pending and epoch 0 (R-001). Raises Duplicate for an id in use."""
    session_id = uuid7() if session_id is None else session_id
    if not isinstance(session_id, str) or not session_id.strip():
        raise Invalid("A session's id is a text that is not blank.", do="Give an id, or none.", path="session_id")
    if labels is not None and not (isinstance(labels, dict) and all(isinstance(v, str) for v in labels.values())):
        raise Invalid("Labels are a dict of texts.", do="Give one, or none.", path="labels")
    if metadata is not None and not isinstance(metadata, dict):
        raise Invalid("Metadata is a dict.", do="Give one, or none.", path="metadata")
    text_cell(session_id, "session_id")
    text_cell(space, "space")
    if title is not None and not isinstance(title, str):
        raise Invalid("A title is text.", do="Give a str, or none.", path="title")
    await tx.touch(f"h:{session_id}", root_of(session_id), f"t:{session_id}")
    tomb = await tx.get(TOMBSTONES, session_id)
    now, instance_id = await tx.now(), token()
    head = Session(
        session_id, instance_id, "pending", 0, None, active_take=0, next_take=1, next_version=0, next_turn=0,
        next_pending=0, next_event=0 if tomb is None else tomb.next_event, line_rev=0, updated_at=now,
        last_activity_at=now,
    )  # fmt: skip
    await tx.get(SESSIONS, session_id)  # so that an id in use is found at the insert
    created = write_event(head, "session.created", {"instance_id": instance_id}, now)
    await tx.insert(created.head)
    await tx.insert(Header(session_id, instance_id, space, now, now, title, dict(labels or {}), dict(metadata or {})))
    main = Take(session_id, 0, None, None, "main", 0, 0, 0, False, now)
    await tx.insert_many([main, Tip(session_id, 0, "vars", -1, {}), *created.rows])
    return Ref(session_id, instance_id)


async def delete(tx: Transaction, who: Who) -> None:
    """Erase a session with everything in it, in one landing. Raises NotFound or Gone."""
    session_id = session_id_of(who)
    await tx.touch(f"h:{session_id}", root_of(session_id), f"t:{session_id}")
    head, _ = await enter(tx, who)
    tomb = Tombstone(session_id, head.instance_id, head.next_event, await tx.now())
    await tx.delete(TOMBSTONES, session_id)
    await tx.insert(tomb)
    await tx.drop_root(root_of(session_id))
    await tx.drop_root(f"h:{session_id}")
    if await tx.scan(DAMAGES, session_id, limit=1):
        await tx.drop_root(f"d:{session_id}")
    if await tx.scan(SNAPSHOTS, session_id, limit=1):
        await tx.drop_root(f"p:{session_id}")


async def rename(tx: Transaction, who: Who, title: str | None) -> None:
    """Change a session's title. Disturbs no running turn. Raises NotFound or Gone."""
    if title is not None and not isinstance(title, str):
        raise Invalid("A title is text.", do="Give a str, or none.", path="title")
    ref = ref_of(who)
    header = await tx.get(HEADERS, ref.session_id)
    if header is None or ref.instance_id not in (None, header.instance_id):
        await look_up(tx, who)
        raise NotFound(f"Session {ref.session_id!r} has no header.", do="Run the health check.", kind="header", id="")
    await tx.update(replace(header, title=title, updated_at=await tx.now()), expect={})


async def find(rows: Rows, session_id: str) -> Ref:
    """Answer which life of a session is the present one. Raises NotFound, or Gone."""
    head, _ = await look_up(rows, session_id)
    return Ref(session_id, head.instance_id)


Judge = Callable[[Rows, Sequence[Session]], Awaitable[list[str]]]
"""Says the statuses of sessions as people see them."""


Met = Mapping[str, str]
"""What reads have met of damage: by session, where."""

NOTHING_MET: Met = MappingProxyType({})


async def as_stored(rows: Rows, heads: Sequence[Session]) -> list[str]:
    """Answer the statuses as they stand in the rows, whatever became of the owners."""
    return [head.status for head in heads]


async def load(rows: Rows, who: Who, *, judge: Judge = as_stored, met: Met = NOTHING_MET) -> SessionInfo:
    """Answer what is known of one session, its status as `judge` says. Raises NotFound or Gone."""
    head, _ = await look_up(rows, who)
    headers = await rows.survey(HEADERS, head.session_id)
    if not headers:
        raise NotFound(f"Session {head.session_id!r} has no header.", do="Run the health check.", kind="header", id="")
    (status,) = await judge(rows, [head])
    marks = _marks(await rows.scan(DAMAGES, head.session_id))
    return _info(headers[0], head, status, {**met, **marks})


async def listing(
    rows: Rows,
    *,
    space: str = "default",
    limit: int = 50,
    after: SessionInfo | None = None,
    order: Literal["newest", "oldest"] = "newest",
    judge: Judge = as_stored,
    met: Met = NOTHING_MET,
) -> list[SessionInfo]:
    """Answer a page of a space's sessions by creation, newest first; `after` is the last of the page before.

    `limit` is at most `limits.PAGE_ROWS`. Reads headers by their index, then the heads of one page; inside a transaction
    block the landing rests on every session listed. Statuses are as `judge` says. A damaged session is listed like any
    other and marked: by what a health check found, by what reads of this store `met`, by its own rows here (F-31).
    """
    if type(limit) is not int or not 0 < limit <= PAGE_ROWS:
        raise Invalid(f"`limit` is a whole number from 1 to {PAGE_ROWS}.", do="Ask for another page.", path="limit")
    if order not in ("newest", "oldest"):
        raise Invalid("`order` is newest or oldest.", do="Choose one of them.", path="order")
    if after is not None and not isinstance(after, SessionInfo):
        raise Invalid("`after` is the last session of the page before.", do="Give its info.", path="after")
    place = None if after is None else (space, after.created_at, after.session_id)
    headers = await rows.survey(HEADERS, space, order="listed", after=place, limit=limit, reverse=order == "newest")
    heads = await _heads(rows, [_id_of(header) for header in headers])
    there = [(header, heads[_id_of(header)]) for header in headers if _id_of(header) in heads]
    statuses = await judge(rows, [head for _, head in there])
    marks = {**met, **_marks(await rows.scan(DAMAGES, limit=PAGE_ROWS))}
    return [_info(header, head, status, marks) for (header, head), status in zip(there, statuses, strict=True)]


async def ids(rows: Rows, *, after: str | None = None, limit: int = PAGE_ROWS) -> list[str]:
    """Answer a page of the ids of all sessions, of every space, in their order; damaged ones too."""
    found = await rows.survey(SESSIONS, after=None if after is None else (after,), limit=limit)
    return [str(row.key[0]) if isinstance(row, Unreadable) else row.session_id for row in found]


async def _heads(rows: Rows, session_ids: Sequence[str]) -> dict[str, Session]:
    """Answer the heads of sessions; one that cannot be read stands with what is plain of it."""
    try:
        found = await rows.fetch(None, *(Get(SESSIONS, (session_id,)) for session_id in session_ids))
    except Damaged:
        rows_of_each = [await rows.survey(SESSIONS, session_id) for session_id in session_ids]
        found = [row.plain() if isinstance(row, Unreadable) else row for rows_ in rows_of_each for row in rows_]
    return {head.session_id: head for head in found if head is not None}


def _id_of(header: Header | Unreadable) -> str:
    return str(header.key[0]) if isinstance(header, Unreadable) else header.session_id


def _marks(damages: Iterable[Damage]) -> dict[str, str]:
    return {damage.session_id: damage.why for damage in damages if damage.state == "found"}


def _info(found: Header | Unreadable, head: Session, status: str, marks: Met) -> SessionInfo:
    damaged = marks.get(head.session_id)
    if isinstance(found, Unreadable):
        damaged = damaged or "its title and labels cannot be read"
    header: Header = found.plain() if isinstance(found, Unreadable) else found
    return SessionInfo(
        head.session_id, head.instance_id, header.space, header.title, header.labels, header.metadata, status,
        head.run_epoch, head.active_take, header.created_at, max(header.updated_at, head.updated_at),
        head.last_activity_at, damaged,
    )  # fmt: skip
