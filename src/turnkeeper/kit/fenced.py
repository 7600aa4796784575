"""The fenced commit: before an operation decides anything about a session, is it this life of it, and may we write?

The order is the same everywhere: the session exists, it is the incarnation the caller means, the context's claim is not
stale, the fence of the operation holds. Only then is anything looked at, and the landing proves that it still held.
"""

from __future__ import annotations

from collections.abc import Collection
from contextvars import ContextVar
from typing import Any, NamedTuple

from ..errors import Conflict, Fenced, Gone, NotFound
from ..records import SESSIONS, TOMBSTONES, Session, Status
from ..store.backend import Get, Scan
from ..store.transaction import Rows, Transaction


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
    claims.set({**claims.get({}), (holder, claim.session_id): claim})


def ref_of(who: Who) -> Ref:
    """Accept a session's id as well as a Ref."""
    return who if isinstance(who, Ref) else Ref(who)


def root_of(session_id: str) -> str:
    """Answer the id of a session's root."""
    return f"s:{session_id}"


async def look_up(rows: Rows, who: Who, *wanted: Get | Scan) -> tuple[Session, list[Any]]:
    """Read a session's head and more of its rows, in one read. Raises NotFound, or Gone for a deleted life."""
    ref = ref_of(who)
    head, *answers = await rows.fetch(root_of(ref.session_id), Get(SESSIONS, (ref.session_id,)), *wanted)
    if head is None or (ref.instance_id is not None and head.instance_id != ref.instance_id):
        raise await _missing(rows, ref)
    return head, answers


async def enter(
    tx: Transaction, who: Who, *wanted: Get | Scan, statuses: Collection[Status] | None = None, epoch: int | None = None
) -> tuple[Session, list[Any]]:
    """Touch a session for a write and read its head and more of its rows, in one read.

    Raises NotFound or Gone; Fenced when the running context's claim, or the given epoch, is not the session's;
    Conflict when its status is not one of `statuses`.
    """
    head, answers = await look_up(tx, who, *wanted)
    claim = context_claim(tx.holder, head.session_id)
    if epoch is None and claim is not None and claim.instance_id == head.instance_id:
        epoch = claim.epoch
    if epoch is not None and epoch != head.run_epoch:
        raise fenced(head, epoch)
    if statuses is not None and head.status not in statuses:
        raise Conflict(
            f"Session {head.session_id!r} is {head.status}, not {' or '.join(sorted(statuses))}.",
            do="Reload it and decide again.",
            session_id=head.session_id,
            status=head.status,
        )
    return head, answers


def fenced(head: Session, epoch: int) -> Fenced:
    """Build the error of a writer whose claim is over."""
    return Fenced(
        f"Session {head.session_id!r} is at epoch {head.run_epoch}; this writer's claim was epoch {epoch}. "
        "Somebody took the session over, or the claim was released.",
        do="Stop this run; claim the session again to go on.",
        session_id=head.session_id,
        epoch=epoch,
        run_epoch=head.run_epoch,
    )


async def _missing(rows: Rows, ref: Ref) -> Exception:
    gone = await rows.get(TOMBSTONES, ref.session_id)
    if gone is not None or ref.instance_id is not None:
        return Gone(
            f"Session {ref.session_id!r} was deleted.",
            do="Create a session; one under the same id is another life and starts empty.",
            session_id=ref.session_id,
        )
    return NotFound(f"There is no session {ref.session_id!r}.", do="Check the id.", kind="session", id=ref.session_id)
