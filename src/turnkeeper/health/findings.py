"""What can be wrong with a session's rows, told finding by finding. Pure: rows in, findings out.

Each looks at one kind of fault: rows that cannot be read, rows whose owner is gone, links that lead nowhere, numbers that
would be minted twice, calls without a result, caches that differ from what the history gives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from ..history.calls import pair_calls
from ..history.choosing import versions_of
from ..history.fold import VARS, State, fold, state_of
from ..history.layers import AnyDelta, layered
from ..jsonvalue import same
from ..records import (
    BASES,
    DELIVERIES,
    DELTAS,
    EVENTS,
    HEADERS,
    KEYFRAMES,
    MESSAGE_DELTAS,
    MESSAGES,
    PENDING_TURNS,
    SESSIONS,
    TAKES,
    TIPS,
    VERSIONS,
    Message,
    Take,
)
from ..schema import Table
from .rows import Everything, Target

Kind = Literal[
    "damaged-row",
    "damaged-cache",
    "orphan",
    "broken-link",
    "counter",
    "open-call",
    "stray-result",
    "stale-cache",
    "no-head",
]
Remedy = Literal["set aside", "renewed", "switched", "counted anew", "closed", "dropped", "none"]

RENEWED = (SESSIONS, HEADERS, TAKES, MESSAGES)
"""Tables whose plain cells are enough to go on with: a damaged row is kept aside and written anew without its texts."""


class Finding(msgspec.Struct, frozen=True):
    """One fault: what it is, where it is, and what a repair does about it.

    `place` names the row by table and key, the session left out; `take` and `position` say where in the history it shows.
    """

    kind: Kind
    place: str
    why: str
    remedy: Remedy
    take: int | None = None
    position: int | None = None
    target: Target | None = None


def place_of(table: Table[Any], key: tuple[Any, ...]) -> str:
    """Name a row by its table and its key, without the session."""
    return "/".join([table.name, *(str(part) for part in key[1:])])


def examine(all: Everything) -> list[Finding]:
    """Answer everything that is wrong with a session, facts before caches."""
    if all.head is None:
        return list(_unreadable(all))
    found = [*_unreadable(all), *_orphans(all), *_links(all), *_counters(all), *_calls(all)]
    facts = any(finding.remedy in ("set aside", "renewed", "switched") for finding in found)
    return [*found, *([] if facts else _caches(all))]  # a cache is judged once the facts are well


def _unreadable(all: Everything) -> Iterator[Finding]:
    shown = _where_versions_stand(all)
    for table, row in all.unreadable:
        key = table.key_of(row)
        cells = dict(zip(table.names, row, strict=True))
        take, position = cells.get("take"), cells.get("position")
        if "version" in cells and table in (VERSIONS, DELTAS):
            take, position = shown.get(int(cells["version"]), (None, None))  # type: ignore[arg-type]
        remedy: Remedy = "renewed" if table in RENEWED else "set aside"
        kind: Kind = "damaged-row"
        if table.cache:
            kind, remedy = "damaged-cache", "dropped"
        yield Finding(
            kind,
            place_of(table, key),
            "a cell of it cannot be read",
            remedy,
            _number(take),
            _number(position),
            (table, key),
        )
    for table in (TIPS, KEYFRAMES):
        for record in all.of(table):
            if record.state is UNSET:
                key = _key(table, record)
                why = "the cached state cannot be read"
                yield Finding("damaged-cache", place_of(table, key), why, "dropped", record.take, None, (table, key))


def _orphans(all: Everything) -> Iterator[Finding]:
    takes, messages = all.takes(), all.messages(MESSAGES)
    unread = {(table, table.key_of(row)) for table, row in all.unreadable}
    versions = {version.version for version in all.of(VERSIONS)}
    held = {number for message in messages.values() for number in versions_of(message)}
    if any(table is MESSAGES for table, _ in unread):
        held = versions  # whose they are is not known before the message is renewed
    events = {event.event_no for event in all.of(EVENTS)} | {key[1] for table, key in unread if table is EVENTS}
    for version in all.of(VERSIONS):
        if version.version not in held:
            yield _orphan(VERSIONS, version, "no message holds this version")
    for delta in all.of(DELTAS):
        if delta.version not in versions and (VERSIONS, (all.session_id, delta.version)) not in unread:
            yield _orphan(DELTAS, delta, "its version is missing")
    for message in messages.values():
        if message.take not in takes and (TAKES, (all.session_id, message.take)) not in unread:
            yield _orphan(MESSAGES, message, "its take is missing")
    for later in all.of(MESSAGE_DELTAS):
        on = messages.get((later.take, later.position))
        if on is None:
            if (MESSAGES, (all.session_id, later.take, later.position)) not in unread:
                yield _orphan(MESSAGE_DELTAS, later, "its message is missing")
        elif later.version is not None and later.version not in versions_of(on):
            yield _orphan(MESSAGE_DELTAS, later, "its message has no such version")
    for table in (BASES, TIPS, KEYFRAMES):
        for record in all.of(table):
            if record.take not in takes and (TAKES, (all.session_id, record.take)) not in unread:
                yield _orphan(table, record, "its take is missing")
    for delivery in all.of(DELIVERIES):
        if delivery.event_no not in events:
            yield _orphan(DELIVERIES, delivery, "its event is missing")


def _links(all: Everything) -> Iterator[Finding]:
    takes, unread = all.takes(), {(table, table.key_of(row)) for table, row in all.unreadable}
    versions = {version.version for version in all.of(VERSIONS)}
    versions |= {int(key[1]) for table, key in unread if table is VERSIONS}  # type: ignore[arg-type]
    for message in all.of(MESSAGES):
        there = [number for number in versions_of(message) if number in versions]
        missing = [number for number in versions_of(message) if number not in versions]
        if missing or message.version not in there:
            why = f"version {(missing or [message.version])[0]} is missing"
            remedy: Remedy = "switched" if there else "set aside"
            where = (MESSAGES, _key(MESSAGES, message))
            yield Finding("broken-link", place_of(*where), why, remedy, message.take, message.position, where)
    for take in takes.values():
        parent = take.parent_take
        if parent is not None and parent not in takes and (TAKES, (all.session_id, parent)) not in unread:
            yield Finding(
                "broken-link",
                place_of(TAKES, _key(TAKES, take)),
                f"its parent, take {parent}, is missing",
                "none",
                take.take,
            )
    assert all.head is not None
    active = takes.get(all.head.active_take)
    if (active is None or active.deleted) and any(not take.deleted for take in takes.values()):
        why = f"the active take, {all.head.active_take}, is not there"
        yield Finding(
            "broken-link", SESSIONS.name, why, "switched", all.head.active_take, None, (SESSIONS, (all.session_id,))
        )


def _counters(all: Everything) -> Iterator[Finding]:
    for name, least in minted(all).items():
        if getattr(all.head, name) < least:
            why = f"`{name}` would give out a number that is in use"
            yield Finding("counter", SESSIONS.name, why, "counted anew", target=(SESSIONS, (all.session_id,)))
    for take in all.of(TAKES):
        last = max((m.position for m in all.of(MESSAGES) if m.take == take.take), default=-1)
        if take.cursor <= last:
            where = (TAKES, _key(TAKES, take))
            yield Finding(
                "counter", place_of(*where), "its cursor is behind its messages", "counted anew", take.take, last, where
            )


def minted(all: Everything) -> dict[str, int]:
    """Answer, by the name of each counter of the session's head, the least it can stand at."""

    def after(table: Table[Any], name: str) -> int:
        place = table.index[name]
        aside = [int(row[place]) for t, row in all.unreadable if t is table and isinstance(row[place], int)]  # type: ignore[arg-type]
        return max([*(getattr(record, name) for record in all.of(table)), *aside], default=-1) + 1

    return {
        "next_take": after(TAKES, "take"),
        "next_version": after(VERSIONS, "version"),
        "next_pending": after(PENDING_TURNS, "pending_no"),
        "next_event": after(EVENTS, "event_no"),
    }


def _calls(all: Everything) -> Iterator[Finding]:
    versions = {version.version: version for version in all.of(VERSIONS)}
    for take in all.of(TAKES):
        if take.deleted:
            continue
        shown = [m for m in all.of(MESSAGES) if m.take == take.take and not m.cut and m.version in versions]
        said = [(message.role, versions[message.version].parts) for message in shown]
        pairs = pair_calls(said)
        for (number, _), result in pairs.items():
            if result is None:
                message = shown[number]
                where = (MESSAGES, _key(MESSAGES, message))
                yield Finding(
                    "open-call",
                    place_of(*where),
                    "a call on it has no result",
                    "closed",
                    take.take,
                    message.position,
                    where,
                )
        answered = [id(result) for result in pairs.values() if result is not None]
        for message, (_, parts) in zip(shown, said, strict=True):
            if any(part.get("type") == "tool_result" and id(part) not in answered for part in parts):
                where = (MESSAGES, _key(MESSAGES, message))
                why = "a result on it answers no call"
                yield Finding("stray-result", place_of(*where), why, "none", take.take, message.position, where)


def _caches(all: Everything) -> Iterator[Finding]:
    own: dict[int, list[AnyDelta]] = defaultdict(list)
    for delta in all.of(DELTAS):
        own[delta.version].append(delta)
    later: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for written in all.of(MESSAGE_DELTAS):
        later[written.take, written.position].append(written)
    for take in all.of(TAKES):
        if not take.deleted:
            yield from _caches_of(all, take, own, later)


def _caches_of(all: Everything, take: Take, own: Any, later: Any) -> Iterator[Finding]:
    state = state_of({base.slot: base.state for base in all.of(BASES) if base.take == take.take})
    shown: list[Message] = [m for m in all.of(MESSAGES) if m.take == take.take and not m.cut]
    frames = {frame.position: frame for frame in all.of(KEYFRAMES) if frame.take == take.take}
    waiting: list[AnyDelta] = []
    where = (TAKES, _key(TAKES, take))
    if take.shown_count != len(shown):
        yield Finding(
            "stale-cache", place_of(*where), "its count of shown messages is wrong", "dropped", take.take, None, where
        )
    for count, message in enumerate(shown, 1):
        waiting += layered(message, own[message.version], later[take.take, message.position]).deltas
        frame = frames.pop(message.position, None)
        if frame is not None:
            state, waiting = fold(state, waiting), []
            if frame.state is not UNSET and not (frame.shown_count == count and same(dict(frame.state), dict(state))):
                yield _stale(KEYFRAMES, frame, "it is not the state there")
    for frame in frames.values():
        yield _stale(KEYFRAMES, frame, "no message is shown there")
    yield from _tips_of(all, take, fold(state, waiting))


def _tips_of(all: Everything, take: Take, state: State) -> Iterator[Finding]:
    tips = [tip for tip in all.of(TIPS) if tip.take == take.take]
    if any(tip.state is UNSET for tip in tips) or not any(tip.slot == VARS for tip in tips):
        return  # a lost cache is no fault: reads fold
    for tip in tips:
        if tip.slot not in state or not same(tip.state, state[tip.slot]):
            yield _stale(TIPS, tip, "it is not the state at the end of the take")
    for slot in state.keys() - {tip.slot for tip in tips}:
        where = (TAKES, _key(TAKES, take))
        yield Finding(
            "stale-cache", place_of(*where), f"no tip of the slot {slot!r}", "dropped", take.take, None, where
        )


def _where_versions_stand(all: Everything) -> dict[int, tuple[int, int]]:
    """Answer, by version, the first take and position that holds it."""
    found: dict[int, tuple[int, int]] = {}
    for message in all.of(MESSAGES):
        for number in versions_of(message):
            found.setdefault(number, (message.take, message.position))
    return found


def _orphan(table: Table[Any], record: Any, why: str) -> Finding:
    key = _key(table, record)
    take, position = getattr(record, "take", None), getattr(record, "position", None)
    return Finding("orphan", place_of(table, key), why, "set aside", take, position, (table, key))


def _stale(table: Table[Any], record: Any, why: str) -> Finding:
    key = _key(table, record)
    return Finding("stale-cache", place_of(table, key), why, "dropped", record.take, record.position, (table, key))


def _key(table: Table[Any], record: Any) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in table.key)


def _number(value: Any) -> int | None:
    return value if type(value) is int else None
