"""Every method of every room of a store or a transaction, told apart by what its operation takes: a tx, or rows to read."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

from turnkeeper.kit.rooms import Room

ROOMS = ("history", "records", "turns", "transfer", "lifecycle")


def methods(scope: Any) -> Iterator[tuple[str, bool, Any]]:
    """Yield name, whether it writes, and the bound method."""
    for room_name in ROOMS:
        room = getattr(scope, room_name)
        assert isinstance(room, Room)
        for name, member in vars(type(room)).items():
            operation = getattr(member, "__wrapped__", None)
            if operation is not None and not name.startswith("_"):
                first = next(iter(inspect.signature(operation).parameters))
                assert first in ("tx", "rows"), f"{room_name}.{name} takes neither a tx nor rows"
                yield f"{room_name}.{name}", first == "tx", getattr(room, name)


def call(method: Any, session_id: str) -> Any:
    """Call a method with a session and nothing that fits otherwise: enough for what is decided before it begins."""
    wanted = list(inspect.signature(method.__wrapped__).parameters.values())[1:]
    needed = [p for p in wanted if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    return method(*(session_id if p.name in ("who", "session_id") else None for p in needed))


async def readings(store: Any, session_id: str) -> dict[str, Any]:
    """Answer what every read method of a filled store answers, listings and counters included."""
    session = await store.session(session_id)
    found: dict[str, Any] = {
        "listing": await store.sessions(limit=100),
        "oldest": await store.sessions(limit=100, order="oldest"),
        "info": await session.info(),
        "messages": await session.messages(),
        "last": await session.messages(last=1),
        "versions": [await session.versions(message.position) for message in await session.messages()],
        "alternatives": await session.alternatives(),
        "state": await session.state(),
        "states": [await session.state(at=message.position) for message in await session.messages()],
        "takes": await session.takes(),
        "pending": await session.pending(),
        "events": await store.lifecycle.events(session_id),
        "records": await store.records.list(session_id, "notes"),
    }
    for take in found["takes"]:
        found[f"take {take.take}"] = [await session.take(take.take).messages(), await session.take(take.take).state()]
    return found


async def fill(store: Any, session_id: str = "cave") -> Any:
    """Make a session with something of everything, in a context of its own, and answer its handle."""
    return await asyncio.create_task(_fill(store, session_id))


async def _fill(store: Any, session_id: str) -> Any:
    session = await store.create_session(session_id, title="The cellar", labels={"k": "v"}, metadata={"m": 1})

    async def play(turn: Any) -> None:
        turn.vars["lamp"] = turn.input
        turn.emit("knock", {"n": 1})
        turn.reply(f"You said {turn.input}")

    for text in ("one", "two"):
        await session.take_turn(play, text, key=text)
    async with session.regenerate() as turn:
        turn.vars["lamp"] = "again"
        turn.reply("Another version")
    await session.fork(at=1, name="what if")
    await store.records.put(session_id, "notes", "a", {"v": [1, {"x": None}]})
    await store.records.put(session_id, "notes", "b", 2)
    await session.release()
    return session
