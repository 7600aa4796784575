"""Adding messages at the end of a take: the path by which turns and people lengthen a history."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ..errors import Invalid
from ..kit.fenced import Who
from ..limits import KEYFRAME_EVERY
from ..records import Delta, Keyframe, Message, Session, Take, Tip, Version
from ..store.transaction import Transaction
from .content import NewMessage
from .fold import State, changed_slots, fold
from .line import Change, keep
from .slots import NewDelta
from .state import cached, enter_take, tip_state, write_tips


class Appended(msgspec.Struct, frozen=True):
    """What an append gave: the take and the session's head as they are now (not yet written), and the new numbers."""

    head: Session
    take: Take
    positions: list[int]
    versions: list[int]
    changes: list[Change]  # of what is shown


async def append_messages(
    tx: Transaction, who: Who, messages: Sequence[NewMessage], *, take: int | None = None
) -> list[int]:
    """Add messages at the end of a take, outside any turn; answer their positions.

    For what happened elsewhere: a person's note, a system line. Raises NotFound or Gone, and Fenced in a stale context.
    """
    head, row, tips = await enter_take(tx, who, take)
    now = await tx.now()
    before = await tip_state(tx, row, tips)
    added = await append(tx, head, row, tips, before, messages, [], turn=None, now=now)
    if messages:
        await write_added(tx, added, "history.appended", now)
    return added.positions


async def write_added(tx: Transaction, added: Appended, kind: str, now: int) -> None:
    """Write the take, the session's head and the event of what was added outside a turn."""
    await tx.update(added.take, expect={})
    kept = keep(added.head, kind, {"take": added.take.take, "positions": added.positions}, added.changes, now)
    await tx.insert_many(kept.rows)
    await tx.update(replace(kept.head, last_activity_at=now), expect={})


async def append(
    tx: Transaction,
    head: Session,
    take: Take,
    tips: Sequence[Tip],
    before: State,
    messages: Sequence[NewMessage],
    deltas: Sequence[NewDelta],
    *,
    turn: int | None,
    now: int,
) -> Appended:
    """Add messages, and deltas on the last one's version, with the caches; the caller writes head and take.

    `before` is the state at the take's end.
    """
    if deltas and not messages:
        raise Invalid("State can only change on a message.", do="Add a reply, or give the turn an input.")
    session_id, first, version = head.session_id, take.cursor, head.next_version
    made = [
        Version(session_id, version + i, now if m.created_at is None else m.created_at, m.parts, m.meta, m.extra)
        for i, m in enumerate(messages)
    ]
    rows = [
        Message(session_id, take.take, first + i, v.version, m.role, False, turn, v.created_at, None, m.head())
        for i, (m, v) in enumerate(zip(messages, made, strict=True))
    ]
    written = delta_rows(session_id, made[-1].version, deltas, now) if deltas else []
    await tx.insert_many([*made, *rows, *written])
    after = fold(before, written)
    if written:
        slots = changed_slots(written, after.slots) if cached(tips) else after
        await write_tips(tx, take, after, slots, rows[-1].position)
    await tx.insert_many(_keyframes(take, rows, before, after))
    shown = take.shown_count + len(rows)
    moved = replace(take, cursor=first + len(rows), shown_count=shown, revision=take.revision + 1)
    line = 1 if take.take == head.active_take else 0
    return Appended(
        replace(head, next_version=version + len(made), line_rev=head.line_rev + line),
        moved,
        [row.position for row in rows],
        [v.version for v in made],
        [Change("cut", take.take, first, True, False, first + len(rows) - 1)] if rows else [],
    )


def delta_rows(session_id: str, version: int, deltas: Sequence[NewDelta], now: int) -> list[Delta]:
    """Answer the rows of a version's deltas, in the order of writing."""
    return [
        Delta(session_id, version, i, d.slot, d.removed, now, d.path, None if d.removed else d.value)
        for i, d in enumerate(deltas)
    ]


def _keyframes(take: Take, rows: Sequence[Message], before: State, after: State) -> list[Keyframe]:
    frames = []
    for i, row in enumerate(rows):
        count = take.shown_count + i + 1
        if not count % KEYFRAME_EVERY:
            state = after if i == len(rows) - 1 else before
            frames.append(Keyframe(take.session_id, take.take, row.position, count, dict(state)))
    return frames
