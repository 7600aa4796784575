"""Scenes for tests of history: short ways to write one, and a rebuild from nothing that shares no line with the package.

`Scene` plays on take numbers, positions and version indices. `Held` is every row of a session as one view shows it; its
`state` folds those rows from the base on, with plain dicts, so that a cache that lies is a difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

import turnkeeper
from turnkeeper.history.content import message
from turnkeeper.history.slots import NewDelta
from turnkeeper.records import (
    BASES,
    DELTAS,
    EVENTS,
    KEYFRAMES,
    MESSAGE_DELTAS,
    MESSAGES,
    PENDING_TURNS,
    SESSIONS,
    TAKES,
    TIPS,
    VERSIONS,
    Keyframe,
    Message,
    Take,
    Tip,
)  # fmt: skip
from turnkeeper.schema import Table
from turnkeeper.turns.land import Outcome
from turnkeeper.turns.pending import Request

TABLES = (SESSIONS, TAKES, MESSAGES, VERSIONS, DELTAS, MESSAGE_DELTAS, BASES, TIPS, KEYFRAMES, EVENTS, PENDING_TURNS)
EVERY = 50


def sets(**values: Any) -> list[NewDelta]:
    """Deltas of variables."""
    return [NewDelta("vars", [name], value) for name, value in values.items()]


def stats(**values: Any) -> list[NewDelta]:
    """Deltas of the tracker that a turn, a background writer and a person may write."""
    return [NewDelta("tracker.stats", [name], value) for name, value in values.items()]


def gone(slot: str, name: str) -> NewDelta:
    """A removal."""
    return NewDelta(slot, [name], removed=True)


def row(key: str, value: Any) -> NewDelta:
    """A row of a tracker that is a list."""
    return NewDelta("tracker.party", [key], {"key": key, "value": value})


def piece(version: str, text: str = "They went on.") -> NewDelta:
    """A generated row of the summary."""
    return NewDelta("summary", [version], {"version": version, "text": text, "through": 0, "at": 0})


def exact(state: Any) -> str:
    """A state as text: equal texts have equal values, kinds, rows and orders. Only the order of slots does not count."""
    return json.dumps({slot: state[slot] for slot in sorted(state)})


class Scene:
    """A session to play on. Turns land without an owner, one reply each, so that every step is one landing."""

    def __init__(self, store: turnkeeper.Store, session_id: str) -> None:
        self.store, self.session_id, self.history = store, session_id, store.history

    async def reply(self, *deltas: NewDelta, text: str = "So be it.", take: int = 0) -> int:
        """Land a turn of one reply; answer its position."""
        said = Outcome(Request("reply", None, None, b""), take, None, [message("assistant", text)], list(deltas), [])
        landed = await self.store.turns.commit_turn(self.session_id, said)
        return landed.positions[0]

    async def again(self, position: int, *deltas: NewDelta, text: str = "Or so.", take: int = 0) -> int:
        """Land another version of a reply; answer its number."""
        asked = Request("regenerate", None, None, b"", at=position)
        said = Outcome(asked, take, position, [message("assistant", text)], list(deltas), [])
        return (await self.store.turns.commit_turn(self.session_id, said)).versions[0]

    async def notes(self, count: int = 1, *, take: int | None = None) -> list[int]:
        """Append messages without deltas."""
        said = [message("user", f"note {i}") for i in range(count)]
        return await self.history.append_messages(self.session_id, said, take=take)

    async def state(self, take: int | None = None, at: int | None = None) -> dict[str, Any]:
        """The state as the package tells it."""
        return dict(await self.history.scene_state(self.session_id, take=take, at=at))

    async def before(self, position: int, take: int | None = None) -> dict[str, Any]:
        """The state a message builds on."""
        return dict(await self.history.scene_state_before(self.session_id, position, take=take))

    async def vars(self, take: int | None = None) -> Any:
        """The variables at the end of a take."""
        return (await self.state(take))["vars"]

    async def stats(self, take: int | None = None) -> Any:
        """The fields of the tracker at the end of a take."""
        return (await self.state(take)).get("tracker.stats", {})

    async def held(self, *tables: Table[Any]) -> Held:
        """Every row, or those of some tables, from one view."""
        async with self.store.read_view() as rows:
            return Held({table.name: await rows.scan(table, self.session_id) for table in tables or TABLES})

    async def shown_version(self, position: int, take: int = 0) -> int:
        """The number of the version that a message shows."""
        return (await self.held()).message(take, position).version

    async def holds(self, *, takes: Iterable[int] | None = None, sparse: Iterable[int] = ()) -> Held:
        """Check that state and caches of all live takes are what their shown history gives; answer the rows.

        A fork brings one keyframe from its source and not those before: name such takes in `sparse`.
        """
        held = await self.held()
        for take in held.takes() if takes is None else takes:
            wanted = held.state(take)
            assert exact(await self.state(take)) == exact(wanted), f"take {take}"
            held.check_caches(take, whole=take not in set(sparse))
        return held

    async def forget_caches(self) -> None:
        """Delete every row of both caches."""
        async with self.store.transaction() as tx:
            for tip in await tx.scan(TIPS, self.session_id):
                await tx.delete(TIPS, self.session_id, tip.take, tip.slot)
            for frame in await tx.scan(KEYFRAMES, self.session_id):
                await tx.delete(KEYFRAMES, self.session_id, frame.take, frame.position)


async def scene(store: turnkeeper.Store) -> Scene:
    """Begin an empty one."""
    return Scene(store, (await store.create_session()).session_id)


class Held:
    """All rows of one session, and what they mean."""

    def __init__(self, rows: dict[str, list[Any]]) -> None:
        self.rows = rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and self.rows == other.rows

    __hash__ = None  # type: ignore[assignment]

    def table(self, name: str, take: int | None = None) -> list[Any]:
        """The rows of a table, or those of one take."""
        return [found for found in self.rows[name] if take is None or found.take == take]

    def but(self, *names: str) -> dict[str, list[Any]]:
        """The rows of the other tables."""
        return {name: rows for name, rows in self.rows.items() if name not in names}

    def takes(self) -> list[int]:
        """The numbers of live takes."""
        return [take.take for take in self.rows["takes"] if not take.deleted]

    def take(self, number: int) -> Take:
        """The row of a take."""
        return next(take for take in self.rows["takes"] if take.take == number)

    def message(self, take: int, position: int) -> Message:
        """The row of a message."""
        return next(one for one in self.table("messages", take) if one.position == position)

    def shown(self, take: int) -> list[Message]:
        """The messages a take shows, in order."""
        return sorted((one for one in self.table("messages", take) if not one.cut), key=lambda one: one.position)

    def layers(self, message: Message) -> tuple[list[Any], list[Any], list[Any]]:
        """What counts on a message: its version's deltas, writes tied to that version, the person's."""
        own = [delta for delta in self.rows["deltas"] if delta.version == message.version]
        later = [d for d in self.table("message_deltas", message.take) if d.position == message.position]
        in_order = sorted(later, key=lambda delta: delta.seq)
        return (
            sorted(own, key=lambda delta: delta.seq),
            [delta for delta in in_order if delta.version == message.version],
            [delta for delta in in_order if delta.version is None],
        )

    def base(self, take: int) -> dict[str, Any]:
        """The state before a take's first message."""
        return {"vars": {}, **{base.slot: base.state for base in self.table("bases", take)}}

    def state(self, take: int, before: int | None = None) -> dict[str, Any]:
        """The state from nothing: all that a take shows, or what it shows before a position."""
        state = self.base(take)
        for one in self.shown(take):
            if before is None or one.position < before:
                state = folded(state, [delta for layer in self.layers(one) for delta in layer])
        return state

    def tips(self, take: int) -> list[Tip]:
        """The tip cache of a take."""
        return self.table("tips", take)

    def frames(self, take: int) -> list[Keyframe]:
        """The keyframes of a take, in order."""
        return sorted(self.table("keyframes", take), key=lambda frame: frame.position)

    def check_caches(self, take: int, *, whole: bool = True) -> None:
        """Compare both caches with what the rows give. `whole`: every fiftieth shown message has its keyframe."""
        assert exact({tip.slot: tip.state for tip in self.tips(take)}) == exact(self.state(take)), f"tips of {take}"
        shown = self.shown(take)
        due = {shown[count - 1].position: count for count in range(EVERY, len(shown) + 1, EVERY)}
        found = {frame.position: frame.shown_count for frame in self.frames(take)}
        assert found == due if whole else found.items() <= due.items(), f"keyframes of {take}: {found}, due {due}"
        for frame in self.frames(take):
            assert exact(frame.state) == exact(self.state(take, frame.position + 1)), f"keyframe {frame.position}"
        assert self.take(take).shown_count == len(shown)


def key_field(slot: str) -> str | None:
    """The field by which the rows of a slot are found; None for a slot of fields."""
    if slot in ("vars", "skills", "tracker.stats") or slot.startswith("tracker-record:"):
        return None
    return "version" if slot == "summary" else "name" if slot.startswith("tracker-list:") else "key"


def folded(state: dict[str, Any], deltas: Iterable[Any]) -> dict[str, Any]:
    """Deltas over a state, with plain dicts and lists."""
    after = json.loads(json.dumps(state))
    for delta in deltas:
        (name,), key = delta.path, key_field(delta.slot)
        value = json.loads(msgspec.json.encode(None if delta.removed else delta.value))
        if delta.slot == "global":
            continue
        if key is None:
            fields = after.setdefault(delta.slot, {})
            if delta.removed:
                fields.pop(name, None)
            else:
                fields[name] = value
            continue
        rows = after.setdefault(delta.slot, [])
        place = next((i for i, found in enumerate(rows) if found[key] == name), None)
        if delta.removed:
            if place is not None:
                del rows[place]
        elif place is None:
            rows.append(value)
        else:
            rows[place] = value
    return after
