"""`turnkeeper list`, `show`, `state` and `delete`: looking at what is kept, and letting go of it."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from rich.cells import cell_len
from rich.text import Text

from ..api import Store
from ..clock import iso
from ..errors import Damaged, SessionBusy
from ..history.reading import ShownMessage
from ..records import Take
from ..sessions.lifecycle import SessionInfo
from . import screen
from .finding import find, shorten
from .importing import count


def minute(at_us: int | None) -> str:
    """Answer a time as people read it, UTC; a blank for an unknown one."""
    return "" if at_us is None else iso(at_us)[:16].replace("T", " ")


def described(info: SessionInfo) -> dict[str, Any]:
    """Answer a session's own fields as JSON."""
    return {
        "session_id": info.session_id,
        "title": info.title,
        "space": info.space,
        "status": info.status,
        "active_take": info.active_take,
        "labels": info.labels,
        "created_at": iso(info.created_at),
        "last_activity_at": iso(info.last_activity_at),
    }


async def list_sessions(store: Store, *, space: str, limit: int, as_json: bool) -> None:
    """Print the newest sessions of a space."""
    found = await store.sessions(space=space, limit=limit)
    takes = [await _takes(store, info) for info in found]
    if as_json:
        rows = [
            {**described(info), "takes": len(of), "messages": _shown(info, of), "damaged": info.damaged}
            for info, of in zip(found, takes, strict=True)
        ]
        screen.print_json({"store": store.name, "sessions": rows})
        return
    out = screen.console()
    if not found:
        out.print(f"No sessions in the space {screen.one_line(space)!r}.", soft_wrap=True)
        return
    short = shorten([info.session_id for info in found])
    wide = max(map(len, short.values()))
    room = out.width - wide - 37
    out.print(Text(f"{'session':{wide}}  {pad('title', room)}  takes  messages  last activity", style="dim"))
    for info, of in zip(found, takes, strict=True):
        out.print(
            Text.assemble(
                (f"{short[info.session_id]:{wide}}  ", "cyan"),
                pad(screen.fit(info.title or "(no title)", room), room),
                f"  {len(of):>5}  {_shown(info, of):>8}  ",
                (minute(info.last_activity_at), "dim"),
            )
        )
        if info.damaged:
            screen.paragraph(out, f"damaged: {info.damaged}; `turnkeeper check {short[info.session_id]}` says more",
                             indent=2, style="red")  # fmt: skip


async def _takes(store: Store, info: SessionInfo) -> list[Take]:
    """Answer the takes of a session; none when they cannot be read: the list goes on."""
    try:
        return await store.history.takes(info.session_id)
    except Damaged:
        return []


def _shown(info: SessionInfo, takes: list[Take]) -> int:
    return next((take.shown_count for take in takes if take.take == info.active_take), 0)


def pad(text: str, columns: int) -> str:
    """Answer a text filled up with blanks; wide signs count for two."""
    return text + " " * max(0, columns - cell_len(text))


async def show_session(store: Store, name: str, *, take: int | None, last: int | None, as_json: bool) -> None:
    """Print the messages of a take."""
    session = await find(store, name)
    info = await session.info()
    number = info.active_take if take is None else take
    messages = await session.take(number).messages(last=last)
    if as_json:
        screen.print_json({**described(info), "take": number, "messages": [message_json(m) for m in messages]})
        return
    out = screen.console()
    earlier = messages[0].position if messages else 0
    print_title(out, info, f"take {number}, {info.status}")
    if earlier:
        out.print(f"… {count(earlier, 'earlier position')}; --all shows everything", style="dim")
    for message in messages:
        out.print()
        print_message(out, message)


def print_title(out: Any, info: SessionInfo, more: str) -> None:
    """Print the line above a session: title, the beginning of its id, and what is looked at."""
    short = shorten([info.session_id])[info.session_id]
    title = screen.fit(info.title or "(no title)", out.width - len(short) - len(more) - 6)
    out.print(Text.assemble((title, "bold"), "  ", (short, "cyan"), "  ", (more, "dim")))


def message_json(message: ShownMessage) -> dict[str, Any]:
    """Answer a message as JSON."""
    return {
        "position": message.position,
        "role": message.role,
        "name": message.name,
        "text": message.text,
        "parts": message.parts,
        "hidden": message.hidden,
        "created_at": None if message.created_at is None else iso(message.created_at),
        "shown": message.index,
        "versions": message.versions,
    }


def speaker(message: ShownMessage) -> str:
    """Answer who speaks: the name if there is one, else the role."""
    return screen.one_line(message.name or "") or message.role


def print_message(out: Any, message: ShownMessage) -> None:
    """Print a message: who says it, which version that is, and its parts."""
    marks = []
    if message.versions > 1:
        marks.append(f"version {message.index + 1} of {message.versions}")
    if message.hidden:
        marks.append("hidden from the model")
    marks.append(minute(message.created_at))
    style = "bold green" if message.role == "user" else "bold magenta" if message.role == "assistant" else "bold"
    behind = "  ".join(mark for mark in marks if mark)
    name = screen.fit(speaker(message), out.width - 7 - len(behind))
    out.print(
        Text.assemble((f"{message.position:>3}  ", "dim"), (name, style), ("  " + behind if behind else "", "dim"))
    )
    for part in message.parts:
        kind = part.get("type")
        if kind == "text":
            screen.paragraph(out, str(part.get("text", "")), indent=5)
        elif kind == "tool_call":
            shown = f"calls {part.get('name')} {json.dumps(part.get('args'), ensure_ascii=False)}"
            screen.paragraph(out, shown, indent=5, style="yellow")
        elif kind == "tool_result":
            shown = f"answer {json.dumps(part.get('content'), ensure_ascii=False)}"
            screen.paragraph(out, shown, indent=5, style="yellow")
        elif kind != "thinking":
            screen.paragraph(out, f"({kind})", indent=5, style="dim")


async def show_state(store: Store, name: str, *, take: int | None, at: int | None, as_json: bool) -> None:
    """Print the state of a take, at its end or after one message."""
    session = await find(store, name)
    info = await session.info()
    number = info.active_take if take is None else take
    state = await session.take(number).state(at=at)
    if as_json:
        screen.print_json({"session_id": info.session_id, "take": number, "at": at, "state": state})
        return
    out = screen.console()
    print_title(out, info, f"take {number}, {'at its end' if at is None else f'after message {at}'}")
    print_state(out, state)


def print_state(out: Any, state: dict[str, Any]) -> None:
    """Print a state, slot by slot."""
    for slot, fields in state.items():
        out.print()
        out.print(Text(slot, style="bold"))
        if not fields:
            out.print("  (nothing yet)", style="dim")
        if not isinstance(fields, dict):  # a list of rows, or one value
            for row in fields if isinstance(fields, list) else [fields]:
                out.print(Text("  " + screen.fit(json.dumps(row, ensure_ascii=False), out.width - 4)))
            continue
        room = min(24, max((cell_len(screen.one_line(name)) for name in fields), default=0))
        for name, value in fields.items():
            label = pad(screen.fit(name, room), room)
            text = screen.fit(json.dumps(value, ensure_ascii=False), out.width - room - 4)
            out.print(Text.assemble("  ", (label, "cyan"), "  ", text))


async def delete_session(store: Store, name: str, *, yes: bool, as_json: bool) -> None:
    """Erase a session; on a terminal, ask before."""
    session = await find(store, name)
    info = await session.info()
    title = screen.fit(info.title or "(no title)", 40)
    if not yes and sys.stdin.isatty() and sys.stdout.isatty() and not as_json:
        click.confirm(f"Erase {title!r} ({info.session_id}) with everything in it?", abort=True)
    if info.status == "running":
        raise SessionBusy(
            f"Session {info.session_id!r} is owned by a program that is alive; it would lose its turn.",
            "Nothing was erased.",
            "Stop that program first, or wait for it.",
            session_id=info.session_id,
        )
    await session.delete()
    if as_json:
        screen.print_json({"deleted": info.session_id, "title": info.title})
    else:
        screen.console().print(Text.assemble(("Erased ", "green"), (title, "bold")))
