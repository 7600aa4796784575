"""The landing of a turn: one transaction, one write set. Everything the turn wrote, or nothing of it.

Order: the session's fence, the receipt, the take as it is now, messages with their versions and deltas, the caches, the
session's head, events with their deliveries, the receipt; the pending turn goes. What the turn's state writes mean is
decided here: a set is an outcome, an `add` is counted on the state as it is now, so concurrent adds add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ..errors import Conflict, Invalid
from ..history.alternatives import last_replies
from ..history.appending import Appended, append
from ..history.choosing import put_version
from ..history.content import NewMessage
from ..history.fold import VARS, State
from ..history.forking import fork
from ..history.line import Change, keep
from ..history.slots import NewDelta, check_deltas
from ..history.state import live_take, state_before, tip_state
from ..kit.fenced import Claim, Who, enter, fenced, session_id_of
from ..kit.log import write_event
from ..kit.receipts import verdict, wanted
from ..records import MESSAGES, PENDING_TURNS, TAKES, TIPS, Receipt, Session, Take, Tip
from ..store.backend import Get, Scan
from ..store.transaction import Transaction
from .pending import SCOPE, LandedTurn, Request, already_landed


class Add(msgspec.Struct, frozen=True):
    """An increment of a variable, counted at the landing; an absent variable counts as 0."""

    name: str
    amount: int | float


class Outcome(msgspec.Struct, frozen=True):
    """What a turn wants to land."""

    request: Request
    take: int
    target: int | None
    messages: list[NewMessage]  # its input first, when it has one
    changes: list[NewDelta | Add]
    events: list[tuple[str, Any]]
    pending_no: int | None = None
    shown: int | None = None  # the version its target showed when it began; None: whichever


async def commit_turn(tx: Transaction, who: Who, outcome: Outcome, claim: Claim | None = None) -> LandedTurn:
    """Land a turn. Raises Fenced when the claim is over, AlreadyLanded, KeyReused, Conflict when its target has gone.

    Without a claim it lands only while no owner holds the session (decision 46).
    """
    request, session_id = outcome.request, session_id_of(who)
    asked: list[Get | Scan] = [Get(TAKES, (session_id, outcome.take)), Scan(TIPS, prefix=(session_id, outcome.take))]
    if outcome.pending_no is not None:
        asked.append(Scan(PENDING_TURNS, prefix=(session_id,)))  # so that its deletion needs no read of its own
    proof = [] if request.key is None else [wanted(session_id, SCOPE, request.key)]  # recalled: the insert finds it
    head, (take, tips, *more) = await enter(tx, who, *asked, claim=claim, unless_recalled=proof, recall="use")
    receipt = more[len(asked) - 2 :]
    answer = verdict(receipt[0], request.digest) if receipt else None
    if answer is not None:
        raise already_landed(session_id, request.key or "", answer)
    if claim is None and head.owner is not None:
        raise fenced(head, None)
    if not outcome.messages:
        raise Invalid("The turn has nothing to land.", do="Give it an input or a reply.", path="messages")
    now = await tx.now()
    added = await _add(tx, head, live_take(take, session_id, outcome.take), tips, outcome, now)
    landed = LandedTurn(session_id, head.next_turn, request.kind, added.take.take, added.positions, added.versions)
    await tx.update(added.take, expect={})
    await _record(tx, added, outcome, landed, now)
    if request.key is not None:
        body = msgspec.to_builtins(landed)
        await tx.insert(Receipt(session_id, SCOPE, request.key, now, request.digest, body))
    if outcome.pending_no is not None:
        await tx.delete(PENDING_TURNS, session_id, outcome.pending_no)
    return landed


async def _add(tx: Transaction, head: Session, take: Take, tips: Sequence[Tip], outcome: Outcome, now: int) -> Appended:
    """Add the turn's messages where they belong: at the end, as a new version, or on a take of their own."""
    if outcome.target is None:
        before = await tip_state(tx, take, tips)
        deltas = decide(outcome.changes, before)
        return await append(tx, head, take, tips, before, outcome.messages, deltas, turn=head.next_turn, now=now)
    where = (take.session_id, take.take)
    target = await tx.get(MESSAGES, *where, outcome.target)
    if target is None or target.cut:
        raise Conflict(
            f"The message at position {outcome.target} of take {take.take} is not there any more.",
            do="Nothing more to do for this turn: play another.",
            position=outcome.target,
        )
    if outcome.shown not in (None, target.version):
        raise Conflict(
            f"The message at position {outcome.target} of take {take.take} shows another version than when the turn began.",
            "Nothing landed; the version chosen meanwhile stays shown.",
            "Regenerate again if it is still wanted.",
            position=outcome.target,
        )
    before = await state_before(tx, take, outcome.target)
    deltas = decide(outcome.changes, before)
    alone = outcome.request.at is not None or len(await last_replies(tx, take)) == 1
    if alone and len(outcome.messages) == 1:
        return await put_version(tx, head, take, outcome.target, outcome.messages[0], deltas, now=now)
    number = await fork(tx, take.session_id, at=outcome.target - 1, take=take.take, kind="regenerate")
    again, (branch, branch_tips) = await enter(
        tx, take.session_id, Get(TAKES, (take.session_id, number)), Scan(TIPS, prefix=(take.session_id, number))
    )
    if take.take == head.active_take:
        again = replace(again, active_take=number, line_rev=again.line_rev + 1)
    added = await append(
        tx,
        again,
        branch,
        branch_tips,
        await tip_state(tx, branch, branch_tips),
        outcome.messages,
        deltas,
        turn=head.next_turn,
        now=now,
    )
    if take.take == head.active_take:
        added = replace(added, changes=[Change("active", None, None, take.take, number)])
    return added


async def _record(tx: Transaction, added: Appended, outcome: Outcome, landed: LandedTurn, now: int) -> None:
    """Write the session's head as the turn leaves it, with the turn's events."""
    body = {"turn": landed.turn, "kind": landed.kind, "take": landed.take, "positions": landed.positions}
    first = keep(added.head, "turn.committed", {**body, "versions": landed.versions}, added.changes, now)
    moved, rows = replace(first.head, next_turn=added.head.next_turn + 1, last_activity_at=now), first.rows
    for kind, event in outcome.events:
        written = write_event(moved, kind, event, now)
        moved = written.head
        rows += written.rows
    await tx.insert_many(rows)
    await tx.update(moved, expect={})


def decide(changes: Sequence[NewDelta | Add], state: State) -> list[NewDelta]:
    """Make outcomes of a turn's changes, on the state as it is now: this is the turn's door.

    Raises Invalid for an `add` to what is no number, and what `check_deltas` raises.
    """
    variables = dict(state[VARS])
    deltas: list[NewDelta] = []
    for change in changes:
        if isinstance(change, Add):
            before = variables.get(change.name, 0)
            if type(before) not in (int, float):
                raise Invalid(
                    f"The variable at vars.{change.name} is not a number to add to.",
                    do="Set it first.",
                    path=change.name,
                )
            change = NewDelta(VARS, [change.name], before + change.amount)
        check_deltas((change,), "turn", state.slots)
        if change.slot == VARS:
            if change.removed:
                variables.pop(change.path[0], None)
            else:
                variables[change.path[0]] = change.value
        deltas.append(change)
    return deltas
