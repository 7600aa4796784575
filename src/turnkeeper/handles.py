"""The handles people hold: a session, a take of it, and the block of a running turn."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Protocol, overload

from .errors import AlreadyLanded, Fenced, Invalid, Misuse, OutcomeUnknown, TurnkeeperError
from .history import History
from .history.alternatives import Alternative
from .history.content import NewMessage, message, parts
from .history.formats import check_format, to_format
from .history.reading import ShownMessage
from .kit.fenced import Claim, Ref
from .kit.ownership import Ownership
from .kit.receipts import request_digest
from .kit.rooms import StoreScope
from .records import PendingTurn, Take
from .sessions import Sessions
from .sessions.lifecycle import SessionInfo
from .store.transaction import Transaction
from .transfer import SnapshotInfo, Transfer, Written
from .transfer.imported import Loss
from .turns import Turns
from .turns.pending import Kind, LandedTurn, Request, Started
from .turns.play import Turn
from .turns.said import Stop

LOG = logging.getLogger("turnkeeper.turns")
Content = str | Sequence[Mapping[str, Any]]
Play = Callable[[Turn], Awaitable[Any]]


class Home(StoreScope, Protocol):
    """What a handle needs of its store."""

    ownership: Ownership

    async def session_info(self, who: Ref) -> SessionInfo:
        """Answer what is known of a session, with its status as people see it."""


class Line:
    """The verbs that a session (its active take) and a take share."""

    def __init__(self, scope: Home | Transaction, ref: Ref, take: int | None) -> None:
        self._scope, self._ref, self._take = scope, ref, take
        self._history = History(scope)

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._ref.session_id

    @property
    def instance_id(self) -> str:
        """Which life of that id this handle is of."""
        return str(self._ref.instance_id)

    @overload
    async def messages(self, *, last: int | None = None, before: int | None = None) -> list[ShownMessage]: ...

    @overload
    async def messages(self, *, last: int | None = None, before: int | None = None, format: str | None) -> Any: ...

    async def messages(self, *, last: int | None = None, before: int | None = None, format: str | None = None) -> Any:
        """Answer the shown messages in order: all, or the `last` so many, of those before position `before`.

        With a `format` ("openai", "anthropic", "gemini") they are ready for that provider's client, see
        `turnkeeper.history.formats`. Raises Invalid for another one.
        """
        check_format(format)
        shown = await self._history.messages(self._ref, take=self._take, last=last, before=before)
        return shown if format is None else to_format([m.line() for m in shown], format)

    async def state(self, *, at: int | None = None) -> dict[str, Any]:
        """Answer the state by slot: as it is shown now, or after the message at position `at`."""
        return await self._history.scene_state(self._ref, take=self._take, at=at)

    async def alternatives(self, position: int | None = None) -> list[Alternative]:
        """Answer the alternatives at a position; default: where the last reply begins."""
        return await self._history.alternatives(self._ref, position, take=self._take)

    async def versions(self, position: int) -> list[ShownMessage]:
        """Answer every version of one message."""
        return await self._history.versions(self._ref, position, take=self._take)

    async def choose(self, number: int, position: int | None = None) -> None:
        """Show an alternative by its number, at a position or at the last reply; the state follows."""
        await self._history.choose(self._ref, number, position, take=self._take)

    async def cut(self, *positions: int) -> None:
        """Hide messages; what they set is taken back. Reversible."""
        await self._history.cut_messages(self._ref, list(positions), take=self._take)

    async def restore(self, *positions: int) -> None:
        """Show cut messages again."""
        await self._history.restore_cut(self._ref, list(positions), take=self._take)

    def append(self, role: str, content: Content, **more: Any) -> Awaitable[int]:
        """Add one message outside any turn; answer its position. It merges at the end, whoever else wrote meanwhile."""
        return self._append(message(role, content, **more))

    async def _append(self, made: NewMessage) -> int:
        return (await self._history.append_messages(self._ref, [made], take=self._take))[0]

    async def fork(self, at: int | None = None, *, name: str | None = None, activate: bool = False) -> TakeHandle:
        """Start a take that ends after position `at` (default: the end), and answer it."""
        number = await self._history.fork(self._ref, at=at, take=self._take, name=name, activate=activate)
        return TakeHandle(self._scope, self._ref, number)

    async def export_chat(self, path: str | os.PathLike[str]) -> list[Loss]:
        """Write what is shown as a SillyTavern chat file; answer what it has no place for.

        Raises Invalid when there is a file already, Unavailable when it cannot be written.
        """
        return await Transfer(self._scope).export_chat(self._ref, path, take=self._take)

    def turn(self, input: Content | None = None, *, key: str | None = None, durable_input: bool = True) -> TurnBlock:
        """Open a turn: `async with session.turn("…", key="cmd-17") as turn: …`. See `TurnBlock`."""
        return self._turn("reply", input, key, durable_input, None)

    def regenerate(self, at: int | None = None, *, key: str | None = None, durable_input: bool = True) -> TurnBlock:
        """Open a turn that makes another version: of the last reply, or of the message at position `at`.

        It builds on the state before that message. A reply of several messages is made again on a take of its own, which
        becomes the active one.
        """
        return self._turn("regenerate", None, key, durable_input, at)

    async def take_turn(
        self, play: Play, input: Content | None = None, *, key: str | None = None, durable_input: bool = True
    ) -> LandedTurn | None:
        """Play a turn if its key has not landed; answer the stored turn either way, None when it was stopped unsaid."""
        block = self.turn(input, key=key, durable_input=durable_input)
        try:
            async with block as turn:
                await play(turn)
        except AlreadyLanded as e:
            if e is not block.answered:
                raise  # another turn's, which the play met
            return e.turn  # type: ignore[attr-defined, no-any-return]
        return turn.landed  # type: ignore[no-any-return]

    def _turn(self, kind: Kind, input: Content | None, key: str | None, durable: bool, at: int | None) -> TurnBlock:
        if isinstance(self._scope, Transaction):
            raise Misuse("A turn cannot run inside a transaction block.", do="Play it through the store's own handle.")
        if key is not None and not (isinstance(key, str) and key.strip()):
            raise Invalid("A turn's key is a text that is not blank.", do="Give a key, or none.", path="key")
        said = None if input is None else parts(input)
        digest = request_digest([kind, self._take, at, said])
        return TurnBlock(self._scope, self._ref, Request(kind, said, key, digest, self._take, at), durable)


class TakeHandle(Line):
    """One take of a session, with the verbs of a session."""

    @property
    def take(self) -> int:
        """The take's number."""
        assert self._take is not None
        return self._take

    async def activate(self) -> None:
        """Make this the take that the session shows."""
        await self._history.select_take(self._ref, self.take)

    async def delete(self) -> None:
        """Hide this take; `session.undo()` or `store.history.restore_take` brings it back."""
        await self._history.delete_take(self._ref, self.take)

    def __repr__(self) -> str:
        return f"<Take {self.take} of {self.session_id}>"


class Session(Line):
    """One life of a session. `async with session` owns it until the block ends."""

    def __init__(self, scope: Home | Transaction, ref: Ref) -> None:
        super().__init__(scope, ref, None)

    async def info(self) -> SessionInfo:
        """Answer its title, labels, status, times. A session left behind by a dead owner reads `abandoned`."""
        return await self._store().session_info(self._ref)

    def take(self, number: int) -> TakeHandle:
        """Answer a handle of one take."""
        return TakeHandle(self._scope, self._ref, number)

    async def undo(self) -> bool:
        """Take back the newest change of what is shown; False when there is none left."""
        return await self._history.undo(self._ref)

    async def redo(self) -> bool:
        """Do again what was undone last; False when there is nothing."""
        return await self._history.redo(self._ref)

    async def takes(self) -> list[Take]:
        """Answer its live takes by number."""
        return await self._history.takes(self._ref)

    async def pending(self) -> list[PendingTurn]:
        """Answer the turns that were begun and have not landed, with their input and how they ended."""
        return await Turns(self._scope).pending(self._ref)

    async def discard(self, pending_no: int) -> bool:
        """Forget the input of a turn that failed."""
        return await Turns(self._scope).discard(self._ref, pending_no)

    async def rename(self, title: str | None) -> None:
        """Change its title."""
        await Sessions(self._scope).rename(self._ref, title)

    async def delete(self) -> None:
        """Erase it with everything in it. A late writer with an old handle is told that it is gone."""
        await Sessions(self._scope).delete(self._ref)

    async def export(self, path: str | os.PathLike[str]) -> Written:
        """Write it with all its takes into a new file, which any store can take in: `store.transfer.import_file`.

        Raises Invalid when there is a file already, Unavailable when it cannot be written.
        """
        return await Transfer(self._scope).export(self._ref, path)

    async def snapshot(self, label: str | None = None) -> int:
        """Keep a copy of it as it is now, to which it can be set back; answer the copy's number."""
        return await Transfer(self._scope).snapshot(self._ref, label)

    async def snapshots(self) -> list[SnapshotInfo]:
        """Answer its snapshots, oldest first."""
        return await Transfer(self._scope).snapshots(self._ref)

    async def restore_snapshot(self, number: int) -> None:
        """Set its history back to a snapshot. Raises NotFound for a number that is not there, Fenced like any write."""
        await Transfer(self._scope).restore_snapshot(self._ref, number)

    async def claim(self, *, take_over: bool = False, wait_s: float = 0.0) -> Claim:
        """Own the session. Raises SessionBusy when a live owner holds it."""
        return await self._store().ownership.claim(self._ref, take_over=take_over, wait_s=wait_s, verify=True)

    async def release(self) -> None:
        """Give the session back; whoever inherited the claim is fenced."""
        await self._store().ownership.release(self.session_id)

    async def __aenter__(self) -> Session:
        await self.claim()
        self._store().ownership.use(self.session_id)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        await self._store().ownership.leave(self.session_id)

    def _store(self) -> Home:
        if isinstance(self._scope, Transaction):
            raise Misuse("That needs the store's own handle, outside a transaction block.")
        return self._scope

    def __repr__(self) -> str:
        return f"<Session {self.session_id}>"


_playing: ContextVar[tuple[TurnBlock, ...]] = ContextVar("turnkeeper_turns", default=())


class TurnBlock:
    """The `async with` of a turn. Entering owns the session and keeps the input; leaving lands everything, or nothing.

    Raises on entry: AlreadyLanded when the key has landed with equal input (`.turn` is the stored answer), KeyReused when
    the input differs, SessionBusy while another worker owns the session, Fenced when this store has lost it. An error in
    the block becomes the pending turn's failure, with its input, and goes on to the caller.
    """

    def __init__(self, store: Home, ref: Ref, request: Request, durable: bool) -> None:
        self._store, self._ref, self._request, self._durable = store, ref, request, durable
        self._owning: Ownership = store.ownership
        self._turns = Turns(store)
        self.live = False
        self.answered: AlreadyLanded | None = None
        """What this turn was refused with, because its key has landed."""

    @property
    def _place(self) -> tuple[str, str]:
        return self._owning.owner_id, self._ref.session_id

    async def __aenter__(self) -> Turn:
        self._lane = self._owning.lane(self._ref.session_id)
        if any(block.live and block._place == self._place for block in _playing.get()):
            raise Misuse(
                "This task, or the one that started it, is in a turn of this session; they would wait for each other.",
                do="End that turn first.",
            )
        await self._lane.acquire()
        try:
            self._claim = await self._own()
            started = await self._begin()
        except BaseException as e:
            self._lane.release()
            self.answered = e if isinstance(e, AlreadyLanded) else None
            raise
        self._owning.use(self._ref.session_id)
        self.live = True
        _playing.set((*(block for block in _playing.get() if block.live), self))
        self._turn = Turn(self._request, started, self._read, self._save)
        return self._turn

    async def _own(self) -> Claim:
        if self._owning.held(self._ref.session_id) is None and self._request.key is not None:
            await self._turns.prepare(self._ref, self._request)  # a turn that has landed needs no owner to say so
        return await self._owning.claim(self._ref)

    async def _begin(self) -> Started:
        try:
            if not self._durable:
                return await self._turns.prepare(self._ref, self._request, self._claim)
            return await self._turns.begin(self._ref, self._request, self._claim)
        except Fenced:
            self._owning.forget(self._claim)
            raise
        except (asyncio.CancelledError, OutcomeUnknown) as failure:
            await self._keep_failed(failure, None)  # the input may have been kept: then it does not stay running
            raise

    async def _read(self, take: int, before: int) -> list[ShownMessage]:
        return await History(self._store).messages(self._ref, take=take, before=before)

    async def _save(self, writes: list[dict[str, Any]]) -> None:
        assert self._turn.pending_no is not None
        await self._turns.save(self._ref, self._turn.pending_no, self._claim, writes)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        stopped = self._turn.stopped and (error is None or isinstance(error, Stop | asyncio.CancelledError))
        try:
            if stopped and not self._turn.has_said():
                await self._fail(Stop())
            elif error is None or stopped:
                try:
                    self._turn.landed = await self._land()
                except BaseException as failure:
                    await self._fail(failure)
                    raise
            else:
                await self._fail(error)
        finally:
            self.live = False
            self._turn.end()
            self._lane.release()
            await self._owning.end_use(self._ref.session_id)
        return stopped and isinstance(error, Stop)

    async def _land(self) -> LandedTurn:
        try:
            return await self._turns.commit_turn(self._ref, self._turn.outcome(), self._claim)
        except AlreadyLanded as e:
            self.answered = e
            raise

    async def _fail(self, error: BaseException) -> None:
        if isinstance(error, Fenced):
            self._owning.forget(self._claim)
        elif self._turn.pending_no is not None:
            await self._keep_failed(error, self._turn.pending_no)

    async def _keep_failed(self, error: BaseException, number: int | None) -> None:
        """Keep the input as a failed record; the error itself goes on to the caller, and so does a cancellation meanwhile."""
        code = (
            "cancelled" if isinstance(error, asyncio.CancelledError) else getattr(error, "code", type(error).__name__)
        )
        keeping = asyncio.ensure_future(self._turns.fail(self._ref, number, self._claim, code, type(error).__name__))
        cancelled = await _settled(keeping)
        problem = None if keeping.cancelled() else keeping.exception()
        if isinstance(problem, TurnkeeperError):
            LOG.warning("the failed turn of session %s could not be recorded: %s", self._ref.session_id, problem.code)
        elif problem is not None:
            raise problem
        if cancelled is not None:
            raise cancelled


async def _settled(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until a future is done, through any cancellation; answer the last one that came meanwhile."""
    cancelled = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as e:
            if not future.cancelled():
                cancelled = e
        except Exception:  # the future holds it for the caller
            pass
    return cancelled


__all__ = ["Line", "Session", "TakeHandle", "TurnBlock"]
