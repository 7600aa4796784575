"""Changing what is shown, one way for all operations: named cells from what they were to what they are to be.

An operation says which cells move: the shown version of a message, a message's or a version's cut, the active take, a
take's deletion. They are applied with the caches rebuilt, and kept as the body of an event of the session's log, which so
is the operation log too: `undo` applies the newest one backwards, `redo` forwards again. A new operation forgets what
was undone. Nothing is erased by any of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ..errors import Conflict, NotFound
from ..kit.fenced import Who, enter
from ..kit.log import Written, write_event
from ..records import EVENTS, KEYFRAMES, MESSAGES, TAKES, TIPS, Session, Take
from ..store.transaction import Transaction
from .state import rebuild

Cell = Literal["shown", "cut", "cut_versions", "active", "deleted"]


class Change(msgspec.Struct, frozen=True, array_like=True):
    """One cell of what is shown, before and after. `take` and `position` say where; the active take has neither."""

    cell: Cell
    take: int | None
    position: int | None
    before: Any
    after: Any
    last: int | None = None  # of a run of messages that move together; `position` is its first

    def reversed(self) -> Change:
        """Answer the change that takes this one back."""
        return replace(self, before=self.after, after=self.before)


async def change_line(tx: Transaction, head: Session, kind: str, changes: Sequence[Change]) -> Session:
    """Apply changes as one operation that can be undone; answer the session's head as it was written."""
    now = await tx.now()
    moved = await apply(tx, head, changes)
    written = keep(moved, kind, {}, changes, now)
    await tx.insert_many(written.rows)
    made = replace(written.head, last_activity_at=now)
    await tx.update(made, expect={"next_event": head.next_event})
    return made


def keep(head: Session, kind: str, body: dict[str, Any], changes: Sequence[Change], now: int) -> Written:
    """Make the event of an operation whose changes are applied; the head remembers it as the newest one to undo."""
    written = write_event(
        head, kind, {**body, "changes": msgspec.to_builtins(changes), "previous": head.undo_event}, now
    )
    return Written(replace(written.head, undo_event=head.next_event, redo=None), written.rows)


async def undo(tx: Transaction, who: Who) -> bool:
    """Take back the newest operation on what is shown; False when there is none left. Raises Conflict when it cannot be."""
    head, _ = await enter(tx, who)
    if head.undo_event is None:
        return False
    body = await _operation(tx, head, head.undo_event)
    changes = [change.reversed() for change in reversed(msgspec.convert(body["changes"], list[Change]))]
    await _travel(
        tx, head, "history.undone", head.undo_event, changes, body["previous"], [*(head.redo or []), head.undo_event]
    )
    return True


async def redo(tx: Transaction, who: Who) -> bool:
    """Do again what was undone last; False when there is nothing. Raises Conflict when it cannot be."""
    head, _ = await enter(tx, who)
    if not head.redo:
        return False
    *rest, number = head.redo
    body = await _operation(tx, head, number)
    await _travel(tx, head, "history.redone", number, msgspec.convert(body["changes"], list[Change]), number, rest)
    return True


async def _travel(
    tx: Transaction, head: Session, kind: str, number: int, changes: Sequence[Change], at: int | None, redo: list[int]
) -> None:
    now = await tx.now()
    moved = await apply(tx, head, changes)
    written = write_event(moved, kind, {"operation": number}, now)
    await tx.insert_many(written.rows)
    made = replace(written.head, undo_event=at, redo=redo or None, last_activity_at=now)
    await tx.update(made, expect={"next_event": head.next_event})


async def _operation(tx: Transaction, head: Session, number: int) -> dict[str, Any]:
    event = await tx.get(EVENTS, head.session_id, number)
    if event is None or "changes" not in event.body:
        raise NotFound(
            f"The operation {number} is not in the log.", do="It cannot be undone.", kind="operation", id=number
        )
    return event.body  # type: ignore[no-any-return]


async def apply(tx: Transaction, head: Session, changes: Sequence[Change]) -> Session:
    """Move cells, and rebuild each take from its first changed message; the caller writes the head that is answered."""
    moved, line = head, False
    first: dict[int, int] = {}  # by take: the first message that changed
    for change in changes:
        if change.cell == "active":
            _expect(change, moved.active_take)
            moved, line = replace(moved, active_take=change.after), True
        elif change.cell == "deleted":
            await _set_deleted(tx, head, change)
            first[_int(change.take)] = 0
        else:
            await _set_message(tx, head, change)
            if change.cell != "cut_versions":
                number, position = _int(change.take), _int(change.position)
                first[number] = min(first.get(number, position), position)
    for number, position in first.items():
        take = await tx.get(TAKES, head.session_id, number)
        assert take is not None
        line = line or number == moved.active_take
        if not take.deleted:
            await tx.update(await rebuild(tx, take, position), expect={"revision": take.revision})
    return replace(moved, line_rev=moved.line_rev + 1) if line else moved


async def _set_message(tx: Transaction, head: Session, change: Change) -> None:
    name = {"shown": "version"}.get(change.cell, change.cell)
    last = change.position if change.last is None else change.last
    messages = await tx.scan(MESSAGES, head.session_id, change.take, low=change.position, high=last)
    if not messages:
        raise _gone(change)
    for message in messages:
        _expect(change, getattr(message, name))
        await tx.update(replace(message, **{name: change.after}), expect={})


async def _set_deleted(tx: Transaction, head: Session, change: Change) -> None:
    take: Take | None = await tx.get(TAKES, head.session_id, change.take)
    if take is None:
        raise _gone(change)
    _expect(change, take.deleted)
    await tx.update(replace(take, deleted=change.after, revision=take.revision + 1), expect={})
    if change.after:  # its derived state goes; a restore rebuilds it
        for tip in await tx.scan(TIPS, head.session_id, take.take):
            await tx.delete(TIPS, head.session_id, take.take, tip.slot)
        for frame in await tx.scan(KEYFRAMES, head.session_id, take.take):
            await tx.delete(KEYFRAMES, head.session_id, take.take, frame.position)


def _int(number: int | None) -> int:
    assert number is not None, "a change of a message names its take and position"
    return number


def _expect(change: Change, found: Any) -> None:
    if found != change.before:
        raise Conflict(
            f"What is shown has moved: {_where(change)} is not as this operation left it.",
            do="Reload the history and decide again.",
            cell=change.cell,
        )


def _gone(change: Change) -> NotFound:
    return NotFound(
        f"There is no {_where(change)} any more.", do="Reload the history.", kind=change.cell, id=change.position
    )


def _where(change: Change) -> str:
    if change.cell == "active":
        return "active take"
    return f"take {change.take}" + (f", position {change.position}" if change.position is not None else "")
