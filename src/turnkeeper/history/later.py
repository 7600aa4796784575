"""The doors for what is written on a message after it was committed: a person's edits, a background writer's results.

A person's edit counts whichever version the message shows; a background write is tied to one version and counts only
while that one is shown. Both are judged against what the message shows (the tied one as if its version were shown), whole
or not at all, and rebuild this take alone, from that message on. The door fixes who is writing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ..errors import Conflict, NotFound, TooLarge
from ..jsonvalue import canonical, same
from ..kit.fenced import Who
from ..limits import WRITE_BYTES
from ..records import MESSAGE_DELTAS, Message, MessageDelta, Session, Take
from ..store.transaction import Transaction
from .choosing import versions_of
from .fold import State, fold
from .layers import later_deltas, layered
from .ranges import deltas_by_version
from .slots import BUILT_IN, check_deltas
from .slots.definition import Writer
from .slots.deltas import NewDelta, cells_of
from .slots.doors import check_path, declared
from .state import enter_take, find_message, rebuild, state_before_message


class Expect(msgspec.Struct, frozen=True):
    """What the caller read at a slot's path; `absent` says that there was nothing, which is not the same as None."""

    slot: str
    path: list[str]
    value: Any = None
    absent: bool = False


async def record_message_deltas(
    tx: Transaction,
    who: Who,
    position: int,
    deltas: Sequence[NewDelta],
    *,
    take: int | None = None,
    expect: Sequence[Expect] = (),
    revision: int | None = None,
) -> int:
    """Write a person's edit on a message; answer how many deltas changed anything (an edit equal to what shows is dropped).

    `revision` is the take's revision the caller saw, `expect` the values. Raises Conflict with `reason` "stale-revision"
    or "expectation", NotFound for a message that is not shown, Invalid, NotAllowed, TooLarge; then nothing is written.
    """
    head, row, message = await _enter(tx, who, take, position, revision)
    _check(deltas, "person")
    shown = await _through(tx, row, message)
    _check_expectations(shown, expect)
    effective, state = [], shown
    for delta in deltas:
        after = fold(state, [delta])
        if not same(after.get(delta.slot), state.get(delta.slot)):
            effective.append(delta)
        state = after
    await _write(tx, head, row, message, effective, version=None)
    return len(effective)


async def record_deltas(
    tx: Transaction,
    who: Who,
    position: int,
    version: int,
    deltas: Sequence[NewDelta],
    *,
    take: int | None = None,
    expect: Sequence[Expect] = (),
    revision: int | None = None,
) -> None:
    """Write a background result about one version (by its number) of a message; it counts while that version is shown.

    Guards and errors as `record_message_deltas`; NotFound for a version that the message of this take does not hold.
    """
    head, row, message = await _enter(tx, who, take, position, revision)
    if version not in versions_of(message):
        raise NotFound(
            f"The message at position {position} of take {row.take} does not hold the version {version!r}.",
            do="Name one of its versions.",
            kind="version",
            id=version,
        )
    _check(deltas, "background")
    _check_expectations(await _through(tx, row, replace(message, version=version)), expect)
    await _write(tx, head, row, message, deltas, version=version)


async def _enter(
    tx: Transaction, who: Who, take: int | None, position: int, revision: int | None
) -> tuple[Session, Take, Message]:
    head, row, _ = await enter_take(tx, who, take)
    if revision is not None and revision != row.revision:
        raise Conflict(
            f"Take {row.take} is at revision {row.revision}; the caller saw {revision}.",
            do="Reload the take and decide again.",
            reason="stale-revision",
            revision=row.revision,
        )
    return head, row, await find_message(tx, row, position)


def _check(deltas: Sequence[NewDelta], writer: Writer) -> None:
    check_deltas(deltas, writer, BUILT_IN)
    size = len(canonical([msgspec.to_builtins(delta) for delta in deltas]).encode())
    if size > WRITE_BYTES:
        raise TooLarge(
            f"A write of {size:,} bytes is above the limit of {WRITE_BYTES:,}.",
            do="Write less at a time.", family="write-bytes", limit=WRITE_BYTES, size=size,
        )  # fmt: skip


async def _through(tx: Transaction, take: Take, message: Message) -> State:
    """Answer the state through a message, as if it showed `message.version`."""
    own = await deltas_by_version(tx, take.session_id, [message.version])
    later = await later_deltas(tx, take, message.position, message.position)
    counted = layered(message, own.get(message.version, []), later.get(message.position, []))
    return fold(await state_before_message(tx, take, message.position), counted.deltas)


def _check_expectations(state: State, expect: Sequence[Expect]) -> None:
    for wanted in expect:
        check_path(wanted.slot, wanted.path, BUILT_IN)
        cells = cells_of(declared(wanted.slot, BUILT_IN), state.get(wanted.slot))
        name = wanted.path[0] if wanted.path else ""
        absent = name not in cells or (not wanted.path and wanted.slot not in state)
        if absent is not wanted.absent or (not absent and not same(cells[name], wanted.value)):
            raise Conflict(
                f"{'.'.join([wanted.slot, *wanted.path])} is not what the caller read.",
                do="Reload the state and decide again.",
                reason="expectation",
                slot=wanted.slot,
                path=wanted.path,
            )


async def _write(
    tx: Transaction, head: Session, take: Take, message: Message, deltas: Sequence[NewDelta], *, version: int | None
) -> None:
    if not deltas:
        return
    where, now = (take.session_id, take.take, message.position), await tx.now()
    newest = await tx.scan(MESSAGE_DELTAS, *where, limit=1, reverse=True)
    first = newest[0].seq + 1 if newest else 0
    await tx.insert_many(
        [
            MessageDelta(*where, first + i, version, d.slot, d.removed, now, d.path, None if d.removed else d.value)
            for i, d in enumerate(deltas)
        ]
    )
    if version is None or version == message.version:
        await tx.update(await rebuild(tx, take, message.position), expect={"revision": take.revision})
    await tx.update(replace(head, last_activity_at=now), expect={})
