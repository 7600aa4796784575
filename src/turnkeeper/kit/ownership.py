"""Who may advance a session: only `claim`, `release` and a take-over change `run_epoch`, one landing each.

A claim belongs to the store handle: all its handles of one session share it, and their turns wait for each other. An
owner is dead when its lease has ended on the store's clock or its process is provably gone; a claim from a dead owner is
immediate, and the turn it left behind becomes interrupted, with its input. From a live owner it is refused.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import weakref
from collections.abc import Sequence

from msgspec.structs import replace

from ..clock import SECOND_US
from ..errors import SessionBusy, TurnkeeperError
from ..ids import token
from ..records import OWNERS, PENDING_TURNS, SESSIONS, Owner, PendingTurn, Session
from ..store.backend import Get, Scan
from ..store.engine import Engine
from ..store.reading import Rows
from ..store.transaction import Transaction
from .fenced import Claim, Ref, Who, look_up, ref_of, root_of, set_context_claim
from .rooms import StoreScope

LOG = logging.getLogger("turnkeeper.ownership")
Locks = weakref.WeakValueDictionary[str, asyncio.Lock]


class Ownership:
    """The claims of one store handle, its owner token, and the heartbeat that keeps its lease."""

    def __init__(self, scope: StoreScope, engine: Engine, *, label: str | None, lease_s: float) -> None:
        self._scope, self._engine, self._lease_s = scope, engine, lease_s
        self.owner_id = token()
        self.label = label or f"process {os.getpid()}"
        self._held: dict[str, Claim] = {}
        self._uses: dict[str, int] = {}
        self._lanes: Locks = weakref.WeakValueDictionary()  # a lock lives while somebody holds or awaits it
        self._claiming: Locks = weakref.WeakValueDictionary()
        self._leaving: set[str] = set()  # sessions to be released when their running turn has ended
        self._heart: asyncio.Task[None] | None = None
        self._registering = asyncio.Lock()

    def lane(self, session_id: str) -> asyncio.Lock:
        """Answer the lock in which this store's turns on one session wait for each other."""
        return self._lanes.setdefault(session_id, asyncio.Lock())

    def held(self, session_id: str) -> Claim | None:
        """Answer the claim this store believes to hold."""
        return self._held.get(session_id)

    async def claim(self, who: Who, *, take_over: bool = False, wait_s: float = 0.0, verify: bool = False) -> Claim:
        """Own a session, and make the running context a writer under that claim.

        A claim this store believes to hold is taken as it is; `verify` looks first whether it is still one. Raises
        SessionBusy when a live owner holds the session and `wait_s` seconds did not change that.
        """
        ref = ref_of(who)
        async with self._claiming.setdefault(ref.session_id, asyncio.Lock()):
            claim = self._held.get(ref.session_id)
            if claim is not None and (verify or take_over):
                head, _ = await self._scope.look(lambda rows: look_up(rows, ref))
                if head.run_epoch != claim.epoch:
                    self.forget(claim)
                    claim = None
            if claim is None or (ref.instance_id not in (None, claim.instance_id)):
                await self._register()
                claim = await self._claim_patiently(ref, take_over, wait_s)
                self._held[ref.session_id] = claim
        set_context_claim(self.owner_id, claim)
        return claim

    async def _claim_patiently(self, ref: Ref, take_over: bool, wait_s: float) -> Claim:
        loop = asyncio.get_running_loop()
        ends, pause = loop.time() + wait_s, 0.02
        while True:
            try:
                return await self._scope.transact(lambda tx: self._take(tx, ref, take_over))
            except SessionBusy:
                left = ends - loop.time()
                if left <= 0:
                    raise
                await asyncio.sleep(min(pause, left))
                pause = min(pause * 1.5, 0.5)

    async def _take(self, tx: Transaction, ref: Ref, take_over: bool) -> Claim:
        head, (left_behind,) = await look_up(tx, ref, Scan(PENDING_TURNS, prefix=(ref.session_id,)))
        if head.owner is not None and head.owner != self.owner_id:
            owner = await tx.get(OWNERS, head.owner)
            if not take_over and self._alive(head.owner, owner, await tx.now()):
                raise _busy(head, owner)
        now = await tx.now()
        mine = replace(
            head,
            status="running",
            run_epoch=head.run_epoch + 1,
            owner=self.owner_id,
            updated_at=now,
            last_activity_at=now,
        )
        await tx.update(mine, expect={"run_epoch": head.run_epoch})
        await _interrupt(tx, left_behind)
        return Claim(head.session_id, head.instance_id, mine.run_epoch)

    def _alive(self, owner_id: str, owner: Owner | None, now_us: int) -> bool:
        if self._engine.backend.owners.alive(owner_id) is False:
            return False
        return owner is not None and owner.lease_until > now_us

    async def statuses(self, rows: Rows, heads: Sequence[Session]) -> list[str]:
        """Answer sessions' statuses as people see them: `abandoned` for one that runs under a dead owner."""
        owners = list({head.owner: None for head in heads if head.status == "running" and head.owner is not None})
        if not owners:
            return [head.status for head in heads]
        now = await self._engine.backend.now()
        found = await rows.fetch(None, *(Get(OWNERS, (owner,)) for owner in owners))
        dead = {owner for owner, row in zip(owners, found, strict=True) if not self._alive(owner, row, now)}
        return ["abandoned" if head.status == "running" and head.owner in dead else head.status for head in heads]

    def forget(self, claim: Claim) -> None:
        """Drop a claim that turned out to be lost, so that the next turn claims again."""
        if self._held.get(claim.session_id) == claim:
            del self._held[claim.session_id]

    def use(self, session_id: str) -> None:
        """Count one use more: an `async with session`, or a turn."""
        self._uses[session_id] = self._uses.get(session_id, 0) + 1

    async def leave(self, session_id: str) -> None:
        """End one `async with session`; the last one releases the claim, after the turn that still runs under it."""
        self._leaving.add(session_id)
        await self.end_use(session_id)

    async def end_use(self, session_id: str) -> None:
        """Count one use less: of an `async with session`, or of a turn."""
        self._uses[session_id] -= 1
        if not self._uses[session_id]:
            del self._uses[session_id]
            if session_id in self._leaving:
                self._leaving.discard(session_id)
                await self.release(session_id)

    async def release(self, session_id: str) -> None:
        """Give a session back: one landing, epoch + 1, so that whoever inherited the claim is fenced. Idempotent.

        When somebody else has taken the session over, only the local claim goes. A failing store reaches the caller;
        the local claim is gone all the same.
        """
        claim = self._held.pop(session_id, None)
        if claim is not None:
            await self._scope.transact(lambda tx: self._give(tx, claim))

    async def _give(self, tx: Transaction, claim: Claim) -> None:
        head, left = await tx.fetch(
            root_of(claim.session_id),
            Get(SESSIONS, (claim.session_id,)),
            Scan(PENDING_TURNS, prefix=(claim.session_id,)),
        )
        if head is None or head.instance_id != claim.instance_id or head.run_epoch != claim.epoch:
            return
        status = "completed" if head.status == "running" else head.status
        await tx.update(
            replace(head, status=status, run_epoch=head.run_epoch + 1, owner=None), expect={"run_epoch": claim.epoch}
        )
        await _interrupt(tx, left)

    async def _register(self) -> None:
        async with self._registering:  # the first turns of several sessions may start at once
            if self._heart is not None and not self._heart.done():
                return
            self._engine.backend.owners.hold(self.owner_id)
            await self._scope.transact(self._renew)
            self._heart = asyncio.create_task(self._beat(), name="turnkeeper-heartbeat")

    async def _renew(self, tx: Transaction) -> None:
        now = await tx.now()
        mine = await tx.get(OWNERS, self.owner_id)
        lease_until = now + round(self._lease_s * SECOND_US)
        if mine is None:
            for owner in await tx.scan(OWNERS):
                if not self._alive(owner.owner_id, owner, now):
                    await tx.delete(OWNERS, owner.owner_id)  # of a process that ended without closing
            process = f"{socket.gethostname()}:{os.getpid()}"
            await tx.insert(Owner(self.owner_id, process, lease_until, now, self.label))
        else:
            await tx.update(replace(mine, lease_until=lease_until), expect={})

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                await self._scope.transact(self._renew)
            except TurnkeeperError as e:
                LOG.warning("the lease of owner %s could not be renewed: %s", self.owner_id, e.code)

    async def close(self) -> None:
        """Release every claim and take the owner's row away."""
        if self._heart is None:
            return
        self._heart.cancel()
        await asyncio.wait([self._heart])
        self._heart = None
        try:
            released = [self.release(session_id) for session_id in list(self._held)]
            failed = [e for e in await asyncio.gather(*released, return_exceptions=True) if e is not None]
            if failed:
                raise failed[0]
            await self._scope.transact(lambda tx: tx.delete(OWNERS, self.owner_id))
        finally:
            self._engine.backend.owners.release(self.owner_id)


async def _interrupt(tx: Transaction, left_behind: Sequence[PendingTurn]) -> None:
    """Mark turns that nobody runs any more; their input stays."""
    for pending in left_behind:
        if pending.state == "running":
            detail = {"code": "interrupted", "message": "the worker that ran it is gone, was replaced or let go"}
            await tx.update(replace(pending, state="interrupted", detail=detail), expect={"state": "running"})


def _busy(head: Session, owner: Owner | None) -> SessionBusy:
    label = owner.label if owner is not None else str(head.owner)
    until = owner.lease_until if owner is not None else 0
    return SessionBusy(
        f"Session {head.session_id!r} is owned by {label!r}, which is alive.",
        do="Wait for it, ask it to release the session, or claim with take_over=True.",
        session_id=head.session_id,
        owner=label,
        lease_until=until,
    )
