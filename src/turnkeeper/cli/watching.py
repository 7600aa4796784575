"""`turnkeeper watch`: what lands in a session, as it lands, whoever writes it."""

from __future__ import annotations

import asyncio
import json
import sys

from ..api import Store
from ..handles import Session
from ..history.reading import ShownMessage
from . import screen
from .finding import find
from .reading import message_json, print_message, print_title

WINDOW = 200
"""How far back a change of what is shown is noticed."""


async def watch(store: Store, name: str, *, last: int, seconds: float | None, as_json: bool) -> None:
    """Print the newest messages of a session, then every message it comes to show, until stopped."""
    session = await find(store, name)
    seen: dict[int, int] = {}
    shown = await _newest(session, seen, last)
    if not as_json:
        print_title(screen.console(), await session.info(), "Ctrl-C ends it")
    for message in shown:
        _tell(message, as_json)
    try:
        async with asyncio.timeout(seconds):
            async for _ in store.watch(poll_s=1.0):
                for message in await _newest(session, seen, WINDOW):
                    _tell(message, as_json)
    except TimeoutError:
        return


async def _newest(session: Session, seen: dict[int, int], last: int) -> list[ShownMessage]:
    """Answer the messages that are shown and were not, or show another version; what is no longer shown is forgotten."""
    found = await session.messages(last=max(last, WINDOW))
    new = [message for message in found if seen.get(message.position) != message.version]
    seen.clear()
    seen.update((message.position, message.version) for message in found)
    return new[-last:] if last else []


def _tell(message: ShownMessage, as_json: bool) -> None:
    if as_json:
        print(json.dumps(message_json(message)), flush=True)
    else:
        out = screen.console()
        out.print()
        print_message(out, message)
        sys.stdout.flush()
