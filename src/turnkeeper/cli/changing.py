"""`turnkeeper fork`, `cut`, `restore`, `choose`, `undo` and `redo`: changing what a session shows, and what followed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from rich.text import Text

from ..api import Store
from ..errors import Invalid, NotFound
from ..handles import Session
from . import screen
from .comparing import changes_json, print_changes, state_changes, summary_of
from .finding import find
from .reading import print_title

_MOST = 100_000


def positions(words: Iterable[str]) -> list[int]:
    """Read positions and ranges: `3`, `5-9`. Raises Invalid."""
    found: list[int] = []
    for word in words:
        ends = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", word)
        if ends is None or int(ends[2] or ends[1]) < int(ends[1]):
            raise Invalid(
                f"{word!r} is no position.", "Nothing was done.", "Give positions or ranges: 3 5-9.", path="positions"
            )
        found += range(int(ends[1]), min(int(ends[2] or ends[1]), int(ends[1]) + _MOST) + 1)
    return sorted(set(found))


async def change(
    store: Store,
    name: str,
    work: Callable[[Session], Awaitable[dict[str, Any]]],
    told: Callable[[dict[str, Any]], str],
    *,
    as_json: bool,
) -> None:
    """Change what a session shows; print what was done, and what became of the state it shows."""
    session = await find(store, name)
    before = await session.state()
    done = await work(session)
    changes = state_changes(before, await session.state())
    info = await session.info()
    if as_json:
        screen.print_json({
            "session_id": info.session_id, "active_take": info.active_take, **done, "state": changes_json(changes)
        })  # fmt: skip
        return
    out = screen.console()
    print_title(out, info, f"take {info.active_take} is shown")
    screen.paragraph(out, f"{told(done)}; {summary_of(changes)}.")
    print_changes(out, changes)


async def cut(store: Store, name: str, words: Iterable[str], *, take: int | None, as_json: bool) -> None:
    """Hide messages."""
    wanted = positions(words)

    async def work(session: Session) -> dict[str, Any]:
        await (session if take is None else session.take(take)).cut(*wanted)
        return {"take": take, "cut": wanted}

    await change(store, name, work, lambda done: f"Cut {_several(wanted)}", as_json=as_json)


async def restore(store: Store, name: str, words: Iterable[str], *, take: int | None, as_json: bool) -> None:
    """Show cut messages again."""
    wanted = positions(words)

    async def work(session: Session) -> dict[str, Any]:
        await (session if take is None else session.take(take)).restore(*wanted)
        return {"take": take, "restored": wanted}

    await change(store, name, work, lambda done: f"Restored {_several(wanted)}", as_json=as_json)


def _several(wanted: list[int]) -> str:
    return f"message {wanted[0]}" if len(wanted) == 1 else f"{len(wanted)} messages"


async def fork(
    store: Store, name: str, *, at: int | None, take: int | None, title: str | None, show: bool, as_json: bool
) -> None:
    """Start another take."""

    async def work(session: Session) -> dict[str, Any]:
        of = session if take is None else session.take(take)
        made = await of.fork(at, name=title, activate=show)
        return {"take": made.take, "at": at, "name": title}

    def told(done: dict[str, Any]) -> str:
        where = "at the end" if at is None else f"after message {at}"
        return f"Take {done['take']} was forked {where}{'' if show else '; the session shows what it showed'}"

    await change(store, name, work, told, as_json=as_json)


async def choose(
    store: Store, name: str, number: int | None, *, at: int | None, take: int | None, as_json: bool
) -> None:
    """Show another alternative; without a number, list them."""
    if number is None:
        await _list(store, name, at=at, take=take, as_json=as_json)
        return

    async def work(session: Session) -> dict[str, Any]:
        line = session if take is None else session.take(take)
        known = len(await line.alternatives(at))
        if number > known:
            raise NotFound(
                f"There is no alternative {number} there.", "Nothing was done.", f"They are 1 to {known}.",
                kind="alternative", id=number,
            )  # fmt: skip
        await line.choose(number - 1, at)
        return {"number": number, "at": at}

    await change(store, name, work, lambda done: f"Alternative {number} is shown", as_json=as_json)


async def _list(store: Store, name: str, *, at: int | None, take: int | None, as_json: bool) -> None:
    session = await find(store, name)
    line = session if take is None else session.take(take)
    found = await line.alternatives(at)
    texts: list[str] = []
    for one in found:
        versions = await session.take(one.take).versions(one.position)
        texts.append(next((shown.text for shown in versions if shown.index == one.index), ""))
    if as_json:
        screen.print_json({
            "session_id": session.session_id,
            "position": found[0].position,
            "alternatives": [
                {"number": one.number + 1, "take": one.take, "index": one.index, "shown": one.shown, "text": text}
                for one, text in zip(found, texts, strict=True)
            ],
        })  # fmt: skip
        return
    out = screen.console()
    print_title(out, await session.info(), f"at message {found[0].position}")
    for one, text in zip(found, texts, strict=True):
        front = f"{one.number + 1:>3} {'●' if one.shown else '○'} take {one.take}  "
        out.print(Text.assemble((front, "yellow" if one.shown else "dim"), screen.fit(text, out.width - len(front))))


async def travel(store: Store, name: str, *, back: bool, steps: int, as_json: bool) -> None:
    """Take back the newest changes, or do them again."""

    async def work(session: Session) -> dict[str, Any]:
        done = 0
        while done < steps and await (session.undo() if back else session.redo()):
            done += 1
        return {"undone" if back else "redone": done}

    def told(done: dict[str, Any]) -> str:
        (number,) = done.values()
        if not number:
            return f"Nothing to {'undo' if back else 'redo'}"
        verb = "taken back" if back else "done again"
        return f"One step {verb}" if steps == 1 else f"{number} of {steps} steps {verb}"

    await change(store, name, work, told, as_json=as_json)
