"""A running turn as user code sees it: what was asked, the state it builds on, and what it wants to land.

Everything gathers here, outside any transaction. Nothing of it is kept when the turn fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from types import MappingProxyType
from typing import Any

from ..errors import Invalid, Misuse
from ..history.content import NewMessage, text_of
from ..history.fold import VARS, state_of
from ..history.formats import Line, check_format, to_format
from ..history.slots import NewDelta
from ..jsonvalue import check, copied, same
from ..kit.log import check_event
from .land import Add, Outcome
from .pending import Request, Started
from .said import Said, Stop

_PLAIN = (str, int, float, bool, type(None))


class Vars(MutableMapping[str, Any]):
    """The variables as the turn sees them: a dict whose changes, also those inside its lists and dicts, are kept."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._before = fields
        self._now: dict[str, Any] = {}  # what was assigned, or handed out and may have been changed in place
        self._gone: set[str] = set()
        self._added: dict[str, tuple[int | float, Any]] = {}
        self._order: dict[str, None] = {}
        self.ended = False

    def __getitem__(self, name: str) -> Any:
        if name in self._gone:
            raise KeyError(name)
        if name in self._now:
            return self._now[name]
        value = self._before[name]
        if not isinstance(value, _PLAIN):
            value = self._now[name] = copied(value)
            self._order[name] = None
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        if self.ended:
            raise ended()
        if not isinstance(name, str):
            raise Invalid("A variable's name is text.", do="Give a str.", path="vars")
        value = copied(value, f"vars.{name}")
        self._gone.discard(name)
        self._added.pop(name, None)
        self._now[name] = value
        self._order[name] = None

    def __delitem__(self, name: str) -> None:
        if self.ended:
            raise ended()
        if name not in self:
            raise KeyError(name)
        self._now.pop(name, None)
        self._added.pop(name, None)
        self._gone.add(name)
        self._order[name] = None

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Answer a variable, set to `default` first when it is absent."""
        if name not in self:
            self[name] = default
        return self[name]

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self._before if name not in self._gone)
        yield from (name for name in self._now if name not in self._before)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def add(self, name: str, amount: int | float) -> None:
        """Add to a number. It is counted on the value at the landing, so adds of two turns add up."""
        if self.ended:
            raise ended()
        check(amount, f"vars.{name}")
        value = self.get(name, 0)
        if type(amount) not in (int, float) or type(value) not in (int, float):
            raise Invalid(
                f"vars.{name} and what is added to it must be numbers.", do="Set it instead.", path=f"vars.{name}"
            )
        check(value + amount, f"vars.{name}")
        total = amount
        if name in self._added and same(self._added[name][1], value):
            total += self._added[name][0]
        elif name in self._order:
            self[name] = value + amount  # it was set in this turn: the outcome is known
            return
        self._gone.discard(name)
        self._now[name] = value + amount
        self._added[name] = (total, value + amount)
        self._order[name] = None

    def changes(self) -> list[NewDelta | Add]:
        """Answer what changed, in the order of the first change. Raises Invalid for a value that cannot be kept."""
        changed: list[NewDelta | Add] = []
        for name in self._order:
            if name in self._gone:
                if name in self._before:
                    changed.append(NewDelta(VARS, [name], removed=True))
                continue
            value = self._now[name]
            if name in self._added and same(self._added[name][1], value):
                changed.append(Add(name, self._added[name][0]))
            elif name not in self._before or not same(self._before[name], value):
                changed.append(NewDelta(VARS, [name], copied(value, f"vars.{name}")))
        return changed


def ended() -> Misuse:
    """Build the error for a turn that is used after its block."""
    return Misuse("This turn has ended.", do="Use a turn only inside its block; play another one.")


class Turn:
    """One running turn. Use it inside its block; it lands when the block ends without an error."""

    def __init__(self, request: Request, started: Started, history: Any, save: Any) -> None:
        self._request, self._started, self._history, self._save = request, started, history, save
        self._ended = False
        self._said = Said(alone=request.at is not None)
        self._events: list[tuple[str, Any]] = []
        self._vars = Vars(started.state[VARS])
        self._state = MappingProxyType(state_of({**started.state, VARS: self._vars}, started.state.slots))
        self.stopped = False
        """Whether somebody has stopped it."""
        self.landed: Any = None
        """The stored answer, once the block has ended and the turn has landed."""

    @property
    def vars(self) -> Vars:
        """The variables: a dict whose changes land with the turn."""
        return self._vars

    @property
    def state(self) -> Mapping[str, Any]:
        """The state by slot, to read; `vars` is the one that a turn writes."""
        return self._state

    @property
    def input(self) -> str | None:
        """The input's text; None for a turn without one."""
        return None if self._request.input is None else text_of(self._request.input)

    @property
    def take(self) -> int:
        """The number of the take it builds on."""
        return self._started.take

    async def messages(self, format: str | None = None) -> Any:
        """Answer the prompt: the messages it builds on, hidden ones left out, and its input last.

        A list of dicts with `role`, `text` and `parts`; with a `format` ("openai", "anthropic", "gemini") what that
        provider's client takes, see `turnkeeper.history.formats`. Raises Invalid for another one.
        """
        check_format(format)
        shown = [m for m in await self._history(self._started.take, self._started.builds_on) if not m.hidden]
        given = [] if self._request.input is None else [Line("user", self._request.input)]
        if format is not None:
            return to_format([*(m.line() for m in shown), *given], format)
        prompt = [{"role": m.role, "text": m.text, "parts": m.parts} for m in shown]
        return prompt + [{"role": "user", "text": self.input, "parts": line.parts} for line in given]

    def reply(self, content: str | Sequence[Mapping[str, Any]], **more: Any) -> None:
        """Answer with a text or parts: a message of the role assistant, instead of what has streamed in. Raises Invalid."""
        self._check_running()
        self._said.reply(content, **more)

    def say(self, role: str, content: str | Sequence[Mapping[str, Any]], **more: Any) -> None:
        """Add a message of any role (`name=`, `meta=`, `extra=`, `hidden=`). Raises Invalid."""
        self._check_running()
        self._said.say(role, content, **more)

    def stream(self, chunk: str) -> None:
        """Add a piece of the reply as it comes in; it lands as one text when the turn ends, or is stopped. Raises Invalid."""
        self._check_running()
        self._said.stream(chunk)

    def stop(self) -> None:
        """Stop the turn, from wherever it is called: what was said so far lands, without any change of state and event.

        The play ends at its next `stream`, `say`, `reply`, `call`, `result` or `emit`, or where its task is cancelled. When
        nothing was said the turn does not land, and its input stays among the session's pending turns (decision 12).
        """
        self.stopped = True

    def call(self, name: str, args: Any, *, call_id: str | None = None) -> str:
        """Add the model's request to run a tool; answer its id. Raises Invalid.

        A call that has no result when the turn lands is closed as interrupted in the same landing.
        """
        self._check_running()
        return self._said.call(name, args, call_id)

    def result(self, call_id: str, content: Any, *, is_error: bool = False) -> None:
        """Add a tool's answer to a call of this turn. Raises Invalid."""
        self._check_running()
        self._said.result(call_id, content, is_error)

    def emit(self, kind: str, body: Any) -> None:
        """Add an event that lands with the turn. Raises Invalid, or TooLarge."""
        self._check_running()
        check_event(kind, body)
        self._events.append((kind, copied(body, "event")))

    async def save(self) -> None:
        """Keep the writes so far with the pending turn: await it before anything leaves the house, as a paid call does.

        Nothing of them is shown or counts before the turn lands; after a crash `session.pending()` has them beside the
        input. Raises Misuse for a turn without a saved input, Invalid for a value that cannot be kept, Fenced, Unavailable.
        """
        self._check_running()
        if self.pending_no is None:
            raise Misuse("A turn without a saved input keeps no writes.", do="Play it with durable_input=True.")
        await self._save([_kept(change) for change in self.vars.changes()])

    def end(self) -> None:
        """Take no more: the turn has landed, or failed (its block calls this)."""
        self._ended = self._vars.ended = True

    def _check_running(self) -> None:
        if self._ended:
            raise ended()
        if self.stopped:
            raise Stop

    @property
    def pending_no(self) -> int | None:
        """The number of its pending turn; None when its input was not kept."""
        return self._started.pending_no

    def outcome(self) -> Outcome:
        """Answer what the turn wants to land: everything, or when it was stopped only what was said."""
        said = self._said.closed()
        if self._request.input is not None:
            said.insert(0, NewMessage("user", self._request.input))
        changes, events = ([], []) if self.stopped else (self.vars.changes(), self._events)
        return Outcome(
            self._request, self._started.take, self._started.target, said, changes, events, self._started.pending_no,
            self._started.shown,
        )  # fmt: skip

    def has_said(self) -> bool:
        """Say whether there is anything but its input to land."""
        return bool(self._said.closed())


def _kept(change: NewDelta | Add) -> dict[str, Any]:
    """Answer a change as the pending turn keeps it: a value, a removal, or an increment of a variable."""
    if isinstance(change, Add):
        return {"slot": VARS, "path": [change.name], "add": change.amount}
    where = {"slot": change.slot, "path": list(change.path)}
    return {**where, "removed": True} if change.removed else {**where, "value": change.value}
