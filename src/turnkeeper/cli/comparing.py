"""Two points of a session compared: which messages only one of them shows, and how its state differs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from rich.text import Text

from ..api import Store
from ..errors import Invalid
from ..handles import Session
from ..history import reading
from ..history.reading import ShownMessage
from ..history.state import scene_state
from ..jsonvalue import same
from ..store.reading import Rows
from . import screen
from .finding import find
from .importing import count
from .reading import message_json, print_title, speaker

State = Mapping[str, Any]


class Point(msgspec.Struct, frozen=True):
    """A take and the last position that is looked at; None: all of it."""

    take: int
    at: int | None

    def __str__(self) -> str:
        return f"take {self.take}, {'its end' if self.at is None else f'message {self.at}'}"


class Change(msgspec.Struct, frozen=True):
    """One field of the state that differs. What is not there is UNSET."""

    slot: str
    name: str | None  # None: the slot as a whole
    before: Any
    after: Any


def point(text: str, shown_take: int) -> Point:
    """Read a point: `12`, `1:12`, `1:` or `end`. Raises Invalid."""
    found = re.fullmatch(r"(?:(\d+):)?(\d+|end)?", text)
    if found is None or not text:
        raise Invalid(
            f"{text!r} is no point of a session.", "Nothing was done.",
            "Give a position, TAKE:POSITION, TAKE: or end.", path="point",
        )  # fmt: skip
    take = shown_take if found[1] is None else int(found[1])
    return Point(take, None if found[2] in (None, "end") else int(found[2]))


def state_changes(before: State, after: State) -> list[Change]:
    """Answer what differs between two states, slot by slot; rows of a list are told by their key."""
    found = []
    for slot in sorted({*before, *after}):
        one, two = _fields(before.get(slot, msgspec.UNSET)), _fields(after.get(slot, msgspec.UNSET))
        if one is None or two is None:
            if not same(before.get(slot), after.get(slot)):
                found.append(Change(slot, None, before.get(slot, msgspec.UNSET), after.get(slot, msgspec.UNSET)))
            continue
        for name in [*one, *(name for name in two if name not in one)]:
            was, is_now = one.get(name, msgspec.UNSET), two.get(name, msgspec.UNSET)
            if was is msgspec.UNSET or is_now is msgspec.UNSET or not same(was, is_now):
                found.append(Change(slot, name, was, is_now))
    return found


def _fields(value: Any) -> dict[str, Any] | None:
    """Answer the fields of a slot, or its rows by the text that keys them; None for what has neither."""
    if value is msgspec.UNSET:
        return {}
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        keyed = {str(row.get("key", row.get("name", row.get("version", i)))): row for i, row in enumerate(value)}
        return keyed if len(keyed) == len(value) else None
    return None


def changes_json(changes: list[Change]) -> list[dict[str, Any]]:
    """Answer changes as JSON; what is not there has no key."""
    return [
        {
            "slot": change.slot,
            "name": change.name,
            **({} if change.before is msgspec.UNSET else {"before": change.before}),
            **({} if change.after is msgspec.UNSET else {"after": change.after}),
        }
        for change in changes
    ]


def print_changes(out: Any, changes: list[Change]) -> None:
    """Print how a state differs, a line each."""
    slot = None
    for change in changes:
        if change.slot != slot:
            slot = change.slot
            out.print()
            out.print(Text(screen.fit(slot, out.width), style="bold"))
        sign, style = ("-", "red") if change.after is msgspec.UNSET else ("~", "yellow")
        sign, style = ("+", "green") if change.before is msgspec.UNSET else (sign, style)
        sides = [_shown(side) for side in (change.before, change.after) if side is not msgspec.UNSET]
        name = screen.fit(change.name or "(all of it)", 24)
        room = out.width - 6 - len(name)
        if sum(map(len, sides)) + 3 > room:
            sides = [screen.fit(side, (room - 3) // len(sides)) for side in sides]
        out.print(Text.assemble((f"  {sign} ", style), (name, "cyan"), "  ", " → ".join(sides)))


def _shown(value: Any) -> str:
    return screen.one_line(json.dumps(value, ensure_ascii=False))


async def show_diff(store: Store, name: str, one: str, two: str, *, as_json: bool) -> None:
    """Print what differs between two points of a session."""
    session = await find(store, name)
    info = await session.info()
    before, after = point(one, info.active_take), point(two, info.active_take)
    said, states = await store.look(lambda rows: _read(rows, session, (before, after)), one_view=True)
    gone, new = _only(said[0], said[1]), _only(said[1], said[0])
    changes = state_changes(*states)
    if as_json:
        screen.print_json({
            "session_id": info.session_id,
            "before": msgspec.to_builtins(before),
            "after": msgspec.to_builtins(after),
            "messages_only_before": [message_json(message) for message in gone],
            "messages_only_after": [message_json(message) for message in new],
            "state": changes_json(changes),
        })  # fmt: skip
        return
    out = screen.console()
    print_title(out, info, f"{before} → {after}")
    out.print()
    for message in sorted([*gone, *new], key=lambda message: (message.position, message in new)):
        sign, style = ("+", "green") if message in new else ("-", "red")
        front = f"{sign} {message.position:>3} {screen.fit(speaker(message), 12)} "
        out.print(Text.assemble((front, style), screen.fit(message.text, out.width - len(front))))
    if not gone and not new:
        out.print("The same messages.", style="dim")
    print_changes(out, changes)
    if not changes:
        out.print("The same state.", style="dim")


async def _read(
    rows: Rows, session: Session, points: tuple[Point, Point]
) -> tuple[list[list[ShownMessage]], list[State]]:
    said, states = [], list[State]()
    for one in points:
        before = None if one.at is None else one.at + 1
        said.append(await reading.messages(rows, session.session_id, take=one.take, before=before))
        states.append(await scene_state(rows, session.session_id, take=one.take, at=one.at))
    return said, states


def _only(said: list[ShownMessage], other: list[ShownMessage]) -> list[ShownMessage]:
    """Answer the messages of which the other side shows another version, or none."""
    there = {(message.position, message.version) for message in other}
    return [message for message in said if (message.position, message.version) not in there]


def summary_of(changes: list[Change]) -> str:
    """Say in a few words what became of the state."""
    return f"{count(len(changes), 'value')} of the state changed" if changes else "the state is the same"
