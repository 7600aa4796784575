"""The pending turn: what was asked, kept before anything runs, until it lands or a retry takes it over.

`begin` keeps the input in a landing of its own; `prepare` decides the same without keeping it. A turn that fails, is
cancelled or is interrupted leaves its pending turn behind as a failed record with its input, and changes nothing else.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ..errors import AlreadyLanded, Conflict, Invalid, NotFound
from ..history.alternatives import last_replies
from ..history.fold import State
from ..history.state import find_message, live_take, state_before, take_and_tips, tip_state
from ..kit.fenced import Claim, Who, check_claim, enter, look_up, session_id_of
from ..kit.receipts import reused, verdict, wanted
from ..records import PENDING_TURNS, TAKES, TIPS, Message, PendingTurn, Session, Take
from ..store.backend import Get, Scan
from ..store.reading import Rows
from ..store.transaction import Transaction

Kind = Literal["reply", "regenerate"]
SCOPE = "turn"


class Request(msgspec.Struct, frozen=True):
    """What a turn is asked to do. Its digest covers kind, target and input, never what the model said."""

    kind: Kind
    input: list[dict[str, Any]] | None
    key: str | None
    digest: bytes
    take: int | None = None  # None: the active one
    at: int | None = None  # the message to make a new version of; None: the last reply


class Started(msgspec.Struct, frozen=True):
    """A turn that may run: where it will land, and the state it builds on."""

    take: int
    target: int | None
    builds_on: int  # it sees the messages before this position
    state: State
    pending_no: int | None
    shown: int | None = None  # the version its target shows


class LandedTurn(msgspec.Struct, frozen=True):
    """A turn's stored answer, as its receipt keeps it."""

    session_id: str
    turn: int
    kind: str
    take: int
    positions: list[int]
    versions: list[int]


async def prepare(rows: Rows, who: Who, request: Request, claim: Claim | None = None) -> Started:
    """Decide whether a turn may run, and what it builds on, without keeping its input.

    Raises AlreadyLanded when its key has landed with equal input, KeyReused when the input differs, NotFound, Gone, Fenced.
    """
    _, started, left = await _start(rows, who, request, claim)
    earlier = next((row for row in left if _same(row, request)), None)
    return started if earlier is None else replace(started, pending_no=earlier.pending_no)


async def begin(tx: Transaction, who: Who, request: Request, claim: Claim) -> Started:
    """The same, and keep the input as the session's pending turn."""
    head, started, left = await _start(tx, who, request, claim)
    now = await tx.now()
    earlier = next((p for p in left if _same(p, request)), None)
    for lost in left:  # turns of one claim follow each other: this one has ended, and that could not be recorded
        if lost.state == "running" and lost is not earlier:
            detail = {"code": "interrupted", "message": "how it ended could not be recorded"}
            await tx.update(replace(lost, state="interrupted", detail=detail), expect={"state": "running"})
    row = PendingTurn(
        head.session_id, head.next_pending if earlier is None else earlier.pending_no, request.kind, "running",
        request.key, started.take, started.target, claim.epoch, now, request.digest, request.input,
    )  # fmt: skip
    if earlier is None:
        await tx.insert(row)
        await tx.update(replace(head, next_pending=head.next_pending + 1, last_activity_at=now), expect={})
    else:
        await tx.update(row, expect={"state": earlier.state})
    return replace(started, pending_no=row.pending_no)


async def save(tx: Transaction, who: Who, pending_no: int, claim: Claim, writes: list[dict[str, Any]]) -> None:
    """Keep what a running turn has written so far with its input (S-078). Raises Fenced, or Conflict when it has ended."""
    _, (row,) = await enter(tx, who, Get(PENDING_TURNS, (session_id_of(who), pending_no)), claim=claim)
    if row is None or row.state != "running":
        raise Conflict(
            f"The pending turn {pending_no} is not running any more.", "Nothing of it was saved.", "Play it again."
        )
    await tx.update(replace(row, writes=writes), expect={"state": "running"})


async def fail(tx: Transaction, who: Who, pending_no: int | None, claim: Claim, code: str, message: str) -> None:
    """Turn a running pending turn into a failed record with its input. Raises Fenced when the claim is over.

    Without a number: whatever runs under this claim (its begin was cut off before it could say the number).
    """
    head, (left,) = await enter(tx, who, Scan(PENDING_TURNS, prefix=(session_id_of(who),)), claim=claim)
    running = [
        p for p in left if p.state == "running" and p.run_epoch == claim.epoch and pending_no in (None, p.pending_no)
    ]
    for row in running:
        failed = replace(row, state="failed", detail={"code": code, "message": message})
        await tx.update(failed, expect={"state": "running"})
    if running:
        await tx.update(replace(head, last_activity_at=await tx.now()), expect={})


async def discard(tx: Transaction, who: Who, pending_no: int) -> bool:
    """Forget a failed or interrupted turn's input; say whether there was one. Raises Invalid for a running one."""
    _, (row,) = await enter(tx, who, Get(PENDING_TURNS, (session_id_of(who), pending_no)))
    if row is None:
        return False
    if row.state == "running":
        raise Invalid(f"The pending turn {pending_no} is running.", do="Wait for it, or take the session over.")
    return await tx.delete(PENDING_TURNS, row.session_id, pending_no)


async def pending(rows: Rows, who: Who) -> list[PendingTurn]:
    """Answer the turns that were begun and have not landed: running, failed and interrupted, oldest first."""
    _, (found,) = await look_up(rows, who, Scan(PENDING_TURNS, prefix=(session_id_of(who),)))
    return found  # type: ignore[no-any-return]


async def _start(
    rows: Rows, who: Who, request: Request, claim: Claim | None
) -> tuple[Session, Started, list[PendingTurn]]:
    session_id = session_id_of(who)
    receipts = [] if request.key is None else [wanted(session_id, SCOPE, request.key)]
    guess = request.take or 0  # mostly the active take is the first one: no second read then
    head, (left, take, tips, *receipt) = await look_up(
        rows,
        who,
        Scan(PENDING_TURNS, prefix=(session_id,)),
        Get(TAKES, (session_id, guess)),
        Scan(TIPS, prefix=(session_id, guess)),
        unless_recalled=receipts,
        recall="keep",
    )
    if receipt:
        answer = verdict(receipt[0], request.digest)
        if answer is not None:
            raise already_landed(session_id, request.key or "", answer)
        for row in left:
            if row.key == request.key and row.digest != request.digest:
                raise reused(row.key)
    check_claim(head, claim)
    number = head.active_take if request.take is None else request.take
    if number != guess:
        take, tips = await take_and_tips(rows, session_id, number)
    take = live_take(take, session_id, number)
    if request.kind == "reply":
        return head, Started(number, None, take.cursor, await tip_state(rows, take, tips), None), left
    target = await _target(rows, take, request.at)
    before = await state_before(rows, take, target.position)
    return head, Started(number, target.position, target.position, before, None, target.version), left


async def _target(rows: Rows, take: Take, at: int | None) -> Message:
    """Answer the message a regenerate is for: `at`, or where the last turn's replies begin.

    Raises NotFound when there is no reply, Invalid when the message at `at` is none.
    """
    if at is not None:
        message = await find_message(rows, take, at)
        if message.role != "assistant":
            raise Invalid(
                f"The message at position {at} is no reply.", do="Name a message of the assistant.", path="at"
            )
        return message
    replies = await last_replies(rows, take)
    if not replies:
        raise NotFound(
            f"The last message of take {take.take} is not a reply.", do="Play a turn first.", kind="reply", id=take.take
        )
    return replies[0]


def already_landed(session_id: str, key: str, answer: Any) -> AlreadyLanded:
    """Build the error that carries the stored answer of a key."""
    return AlreadyLanded(
        f"The turn with key {key!r} has landed in session {session_id!r}.",
        "Nothing was run again.",
        "Use its stored answer (`.turn`).",
        key=key,
        turn=msgspec.convert(answer, LandedTurn),
    )


def _same(row: PendingTurn, request: Request) -> bool:
    return row.digest == request.digest and row.key in (None, request.key)
