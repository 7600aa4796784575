"""State at any place of a take, and the rebuild that keeps its caches true inside the transaction of each change.

The tip cache holds the state at the end of a take, a row per slot; keyframes hold the whole state at every 50th shown
message. Both are disposable: without them the fold starts at the take's base. Reads write nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from ..errors import Invalid, NotFound
from ..kit.fenced import Who, enter, look_up, root_of, session_id_of
from ..limits import KEYFRAME_EVERY
from ..records import (
    BASES,
    KEYFRAMES,
    MESSAGE_DELTAS,
    MESSAGES,
    TAKES,
    TIPS,
    Base,
    Keyframe,
    Message,
    Session,
    Take,
    Tip,
)
from ..store.backend import Get, Scan
from ..store.reading import Rows
from ..store.transaction import Transaction
from .fold import VARS, State, fold, state_of
from .layers import AnyDelta, Layered, later_deltas, layers

PIECE = 100
"""How many messages are folded before the loop may do something else."""


async def scene_state(rows: Rows, who: Who, *, take: int | None = None, at: int | None = None) -> State:
    """Answer the state a take shows, by slot: at its end, or after the message at position `at`.

    Raises NotFound for an unknown or deleted take, or an unknown position.
    """
    _, row, tips = await open_take(rows, who, take)
    if at is None:
        return await tip_state(rows, row, tips)
    await find_message(rows, row, at)
    return (await _before(rows, row, at + 1))[0]


async def scene_state_before(rows: Rows, who: Who, position: int, *, take: int | None = None) -> State:
    """Answer the state that the message at `position` builds on: everything shown before it, and the
    person's edits on itself (S-154–S-157).

    Raises NotFound for an unknown or deleted take, or an unknown position.
    """
    _, row, _ = await open_take(rows, who, take)
    await find_message(rows, row, position)
    return await state_before(rows, row, position)


async def state_before(rows: Rows, take: Take, position: int) -> State:
    """Answer the state a message of a take builds on: all that is shown before it, and the person's edits on itself."""
    edits = (await later_deltas(rows, take, position, position)).get(position, [])
    return fold(await state_before_message(rows, take, position), (delta for delta in edits if delta.version is None))


async def state_before_message(rows: Rows, take: Take, position: int) -> State:
    """Answer the state from all that is shown before a position, and nothing of the message there."""
    return (await _before(rows, take, position))[0]


async def open_take(rows: Rows, who: Who, take: int | None) -> tuple[Session, Take, list[Tip]]:
    """Read a session's head, one of its takes (None: the active one) and that take's tip cache. Raises NotFound or Gone."""
    return await _with_take(rows, take, *await look_up(rows, who, *_wanted(who, take)))


async def enter_take(tx: Transaction, who: Who, take: int | None) -> tuple[Session, Take, list[Tip]]:
    """The same for a write: the session is touched and the context's claim is checked. Raises Fenced too."""
    return await _with_take(tx, take, *await enter(tx, who, *_wanted(who, take)))


def _wanted(who: Who, take: int | None) -> tuple[Get, Scan]:
    where = (session_id_of(who), take or 0)  # mostly the active take is the first one: no second read then
    return Get(TAKES, where), Scan(TIPS, prefix=where)


async def _with_take(rows: Rows, take: int | None, head: Session, found: list[Any]) -> tuple[Session, Take, list[Tip]]:
    number, (row, tips) = head.active_take if take is None else take, found
    if number != (take or 0):
        row, tips = await take_and_tips(rows, head.session_id, number)
    return head, live_take(row, head.session_id, number), tips


async def take_and_tips(rows: Rows, session_id: str, take: int) -> tuple[Take | None, list[Tip]]:
    """Read a take and its tip cache."""
    where = (session_id, take)
    row, tips = await rows.fetch(root_of(session_id), Get(TAKES, where), Scan(TIPS, prefix=where), recall="keep")
    return row, tips


def live_take(row: Take | None, session_id: str, take: int) -> Take:
    """Answer the take. Raises NotFound when it is unknown or deleted."""
    if row is None or row.deleted:
        raise NotFound(
            f"Session {session_id!r} has no take {take}{' any more: it was deleted' if row else ''}.",
            do="List its takes.",
            kind="take",
            id=take,
        )
    return row


async def find_message(rows: Rows, take: Take, position: int) -> Message:
    """Read an uncut message. Raises NotFound."""
    if type(position) is not int:
        raise Invalid("A position is a whole number.", do="Give an int.", path="position")
    found = await rows.get(MESSAGES, take.session_id, take.take, position) if 0 <= position < take.cursor else None
    if found is None or found.cut:
        raise NotFound(
            f"Take {take.take} of session {take.session_id!r} shows no message at position {position}.",
            do=f"Its positions are 0 to {take.cursor - 1}.",
            kind="message",
            id=position,
        )
    return found


async def tip_state(rows: Rows, take: Take, tips: Sequence[Tip]) -> State:
    """Answer the state at a take's end: from its tip cache, or by folding when the cache is not there.

    Every take has a tip of `vars` from its beginning, so one without has lost its cache.
    """
    if cached(tips):
        return state_of({tip.slot: tip.state for tip in tips})
    return (await _before(rows, take, take.cursor))[0]


def cached(tips: Iterable[Tip]) -> bool:
    """Say whether a take's tip cache is there, and can be read."""
    return any(tip.slot == VARS for tip in tips) and all(tip.state is not UNSET for tip in tips)


async def _before(rows: Rows, take: Take, position: int) -> tuple[State, int, int]:
    """Fold up to, not including, a position; answer the state, how many messages are shown before it, and the last of them.

    The last one is a position; -1 when there is none.
    """
    state, last, shown = await _start(rows, take, position)
    async for part in _layers(rows, take, last + 1, position - 1):
        state = fold(state, (delta for message in part for delta in message.deltas))
        last, shown = part[-1].position, shown + len(part)
    return state, shown, last


async def _layers(rows: Rows, take: Take, low: int, high: int) -> AsyncIterator[list[Layered]]:
    """Answer what counts on the shown messages of a range, a piece at a time: the loop breathes between the pieces."""
    for first in range(low, high + 1, PIECE):
        messages = await rows.scan(MESSAGES, take.session_id, take.take, low=first, high=min(first + PIECE - 1, high))
        shown = await layers(rows, take, [message for message in messages if not message.cut])
        if shown:
            yield shown
        if first + PIECE <= high:
            await asyncio.sleep(0)


async def _start(rows: Rows, take: Take, position: int) -> tuple[State, int, int]:
    """Answer the nearest known state before a position, the position it describes (-1: the base), and its count."""
    where = (take.session_id, take.take)
    frames, bases = await rows.fetch(
        root_of(take.session_id),
        Scan(KEYFRAMES, prefix=where, high=position - 1, limit=1, reverse=True),
        Scan(BASES, prefix=where),
    )
    if frames and frames[0].state is not UNSET:
        return state_of(frames[0].state), frames[0].position, frames[0].shown_count
    return state_of({base.slot: base.state for base in bases}), -1, 0


async def rebuild(tx: Transaction, take: Take, first_changed: int) -> Take:
    """Make a take's caches true after its messages from `first_changed` on have changed; answer the take as it is now.

    Keyframes before the change stay as they are. The take's row is not written: the caller does that, with its revision.
    """
    where, first = (take.session_id, take.take), max(first_changed, 0)
    stale, tips = await tx.fetch(
        root_of(take.session_id), Scan(KEYFRAMES, prefix=where, low=first), Scan(TIPS, prefix=where)
    )
    for frame in stale:
        await tx.delete(KEYFRAMES, *where, frame.position)
    state, shown, last = await _before(tx, take, first)
    async for part in _layers(tx, take, first, take.cursor - 1):
        waiting: list[AnyDelta] = []
        for message in part:
            waiting += message.deltas
            shown, last = shown + 1, message.position
            if not shown % KEYFRAME_EVERY:
                state, waiting = fold(state, waiting), []
                await tx.insert(Keyframe(*where, last, shown, dict(state)))
        state = fold(state, waiting)
    for tip in tips:
        if tip.slot not in state:  # nothing that is shown writes it any more
            await tx.delete(TIPS, *where, tip.slot)
    await write_tips(tx, take, state, state, last)
    return replace(take, shown_count=shown, revision=take.revision + 1)


async def write_tips(tx: Transaction, take: Take, state: State, slots: Iterable[str], position: int) -> None:
    """Write the tip rows of some slots of a state that stands at `position`."""
    for slot in slots:
        tip = Tip(take.session_id, take.take, slot, position, state[slot])
        if not await tx.update(tip, expect={}):
            await tx.insert(tip)


async def copy_later_deltas(tx: Transaction, source: Take, target: Take, last: int) -> None:
    """Give a new take what was written on the messages it shares, up to `last`, after they were committed."""
    if last >= 0:
        found = await tx.scan(MESSAGE_DELTAS, source.session_id, source.take, high=last)
        await tx.insert_many([replace(delta, take=target.take) for delta in found])


async def copy_state(tx: Transaction, source: Take, target: Take, last: int) -> None:
    """Give a new take, which shares the messages up to `last` with its source, its base, its tips and one keyframe."""
    bases = await tx.scan(BASES, source.session_id, source.take)
    await tx.insert_many([Base(base.session_id, target.take, base.slot, base.state) for base in bases])
    frames = await tx.scan(KEYFRAMES, source.session_id, source.take, high=last, limit=1, reverse=True)
    await tx.insert_many([replace(frame, take=target.take) for frame in frames if frame.state is not UNSET])
    await copy_later_deltas(tx, source, target, last)
    state, _, shown = await _before(tx, target, last + 1)
    await write_tips(tx, target, state, state, shown)
