"""The fenced commit: before an operation decides anything about a session, is it this life of it, and may we write?

The order is the same everywhere: the session exists, it is the incarnation the caller means, the context's claim is not
stale, the fence of the operation holds. Only then is anything looked at, and the landing proves that it still held.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from ..errors import Fenced, Gone, NotFound, WrongSession
from ..records import SESSIONS, TOMBSTONES, Session
from ..store.backend import Get, Scan
from ..store.reading import Recalling, Rows
from ..store.transaction import Transaction


class Ref(NamedTuple):
    """Which session, and which life of it (None: whichever lives now)."""

    session_id: str
    instance_id: str | None = None


Who = Ref | str


class Claim(NamedTuple):
    """The right to advance one life of a session, as a number."""

    session_id: str
    instance_id: str
    epoch: int


claims: ContextVar[dict[tuple[str, str], Claim]] = ContextVar("turnkeeper_claims")
"""The claims of the running context, by owner token and session. Child tasks inherit them; contexts without one are not fenced."""


def context_claim(holder: str, session_id: str) -> Claim | None:
    """Answer the claim the running context holds on a session, valid or stale."""
    held = claims.get(None)
    return None if held is None else held.get((holder, session_id))


def set_context_claim(holder: str, claim: Claim) -> None:
    """Make this context, and the tasks it starts from now on, writers under a claim."""
    if context_claim(holder, claim.session_id) == claim:
        return
    claims.set({**claims.get({}), (holder, claim.session_id): claim})


def ref_of(who: Who) -> Ref:
    """Accept a session's id as well as a Ref."""
    return who if isinstance(who, Ref) else Ref(who)


def session_id_of(who: Who) -> str:
    """Answer the id of the session that is meant."""
    return who if isinstance(who, str) else who.session_id


def root_of(session_id: str) -> str:
    """Answer the id of a session's root."""
    return f"s:{session_id}"


async def look_up(
    rows: Rows, who: Who, *wanted: Get | Scan, unless_recalled: Sequence[Get] = (), recall: Recalling = "no"
) -> tuple[Session, list[Any]]:
    """Read a session's head and more of its rows, in one read. Raises NotFound, or Gone for a deleted life."""
    ref = ref_of(who)
    head, *answers = await rows.fetch(
        root_of(ref.session_id),
        Get(SESSIONS, (ref.session_id,)),
        *wanted,
        unless_recalled=unless_recalled,
        recall=recall,
    )
    if head is None or (ref.instance_id is not None and head.instance_id != ref.instance_id):
        raise await _missing(rows, ref)
    return head, answers


async def enter(
    tx: Transaction,
    who: Who,
    *wanted: Get | Scan,
    claim: Claim | None = None,
    unless_recalled: Sequence[Get] = (),
    recall: Recalling = "no",
) -> tuple[Session, list[Any]]:
    """Touch a session for a write and read its head and more of its rows, in one read.

    `claim` defaults to the one the running context holds. Raises NotFound or Gone; WrongSession for a claim of another
    session; Fenced when the claim is over.
    """
    head, answers = await look_up(tx, who, *wanted, unless_recalled=unless_recalled, recall=recall)
    check_claim(head, claim)
    held = context_claim(tx.holder, head.session_id) if claim is None else None
    if held is not None and held.instance_id == head.instance_id:
        check_claim(head, held)
    return head, answers


def check_claim(head: Session, claim: Claim | None) -> None:
    """Refuse a claim that is not a valid right on this session. Raises WrongSession, Gone or Fenced."""
    if claim is None:
        return
    if claim.session_id != head.session_id:
        raise WrongSession(
            f"A claim on session {claim.session_id!r} was used on session {head.session_id!r}.",
            "Both sessions are unchanged.",
            "Use the handle and the claim of one session.",
            session_id=head.session_id,
            claimed=claim.session_id,
        )
    if claim.instance_id != head.instance_id:
        raise gone(head.session_id)
    if claim.epoch != head.run_epoch:
        raise fenced(head, claim.epoch)


def gone(session_id: str) -> Gone:
    """Build the error for a life of a session that was deleted."""
    return Gone(
        f"Session {session_id!r} was deleted.",
        do="Create a session; one under the same id is another life and starts empty.",
        session_id=session_id,
    )


def fenced(head: Session, epoch: int | None) -> Fenced:
    """Build the error of a writer whose claim is over, or who had none (None) on a session that is owned."""
    given_back = epoch is not None and head.owner is None and head.run_epoch == epoch + 1  # one step, and no owner left
    if epoch is None:
        how, do = "it is owned, and this writer has no claim on it.", "Claim the session first."
    else:
        lost = "The claim was released." if given_back else "Somebody took the session over, or the claim was released."
        how, do = f"this writer's claim was epoch {epoch}. {lost}", "Stop this run; claim the session again to go on."
    return Fenced(
        f"Session {head.session_id!r} is at epoch {head.run_epoch}; {how}",
        do=do, session_id=head.session_id, epoch=epoch, run_epoch=head.run_epoch,
    )  # fmt: skip


async def _missing(rows: Rows, ref: Ref) -> Exception:
    if ref.instance_id is not None or await rows.get(TOMBSTONES, ref.session_id) is not None:
        return gone(ref.session_id)
    return NotFound(f"There is no session {ref.session_id!r}.", do="Check the id.", kind="session", id=ref.session_id)
