"""A story that is played while things fail, the ledger of what was acknowledged, and the check that compares the two.

`play_story` drives the public API: keyed turns on several sessions at once, regenerates, forks, turns that fail and are
retried. Every acknowledgement goes into a `Ledger` with the moment it came; a ledger can speak over a pipe and hear
another process's. `faults_of_file` and `faults_of_store` read all rows (one with SQL of its own, one over a view, so on
every backend) and answer every difference: half a turn, a lost one, a lost input, a cache that is not the fold, a gap.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import msgspec

from turnkeeper.api import Store
from turnkeeper.handles import Line, Session
from turnkeeper.records import TABLES

Record = dict[str, Any]


class Boom(Exception):
    """A model that fails."""


@dataclass
class Ledger:
    """What callers were told, and when: `moment` counts whatever the test counts."""

    moment: Callable[[], int] = lambda: 0
    tell: Callable[[list[Any]], None] | None = None
    begun: dict[str, int] = field(default_factory=dict)  # key → when it was first asked
    landed: dict[str, tuple[int, Record]] = field(default_factory=dict)  # key → when, the answer
    kept: list[list[Any]] = field(default_factory=list)  # when, session, key, when its turn may have landed
    takes: list[tuple[int, str, int]] = field(default_factory=list)  # when, session, take

    def hear(self, said: list[Any]) -> None:
        """Note one acknowledgement: `[kind, …]`."""
        kind, now = said[0], self.moment()
        if self.tell is not None:
            self.tell(said)
        if kind == "begun":
            self.begun.setdefault(said[1], now)
        elif kind == "kept":
            self.kept.append([now, said[1], said[2], None])
        elif kind == "over":
            for kept in self.kept:
                if kept[2] == said[1] and kept[3] is None:
                    kept[3] = now
        elif kind == "landed":
            self.landed[said[1]] = (now, said[2])
        elif kind == "take":
            self.takes.append((now, said[1], said[2]))

    async def play(
        self, line: Line, key: str, *, regenerate: bool = False, fail: bool = False, tools: bool = False
    ) -> None:
        """Play one turn and note what is acknowledged."""
        self.hear(["begun", key])
        block = line.regenerate(key=key) if regenerate else line.turn(f"input {key}", key=key)
        try:
            async with block as turn:
                self.hear(["over", key])  # a retry has taken the failed record over
                self.hear(["kept", line.session_id, key])
                turn.vars["last"] = key
                turn.vars.add("n", 1)
                turn.emit("told", {"key": key})
                await asyncio.sleep(0)
                if tools:
                    turn.call("look", {"at": key}, call_id=f"c-{key}")
                    turn.result(f"c-{key}", {"seen": key})
                turn.reply(f"reply {key} " + "word " * 20)
                if fail:
                    raise Boom
                self.hear(["over", key])
        except Boom:
            return
        self.hear(["landed", key, msgspec.to_builtins(turn.landed)])

    async def fork(self, line: Line) -> Line:
        """Fork and note it."""
        take = await line.fork()
        self.hear(["take", line.session_id, take.take])
        return take


async def play_session(session: Session, ledger: Ledger, turns: int, seed: int, *, first: int = 0) -> None:
    """Play one session: mostly plain turns, and every other kind now and then."""
    chance = random.Random(seed)
    line: Line = session
    replied = False
    for number in range(first, first + turns):
        key = f"{session.session_id}-{number}"
        kind = chance.random()
        if kind < 0.1 and replied:
            await ledger.play(line, key, regenerate=True)
        elif kind < 0.2:
            await ledger.play(line, key, fail=True)
            if kind < 0.17:
                await ledger.play(line, key)
        elif kind < 0.25:
            forked = await ledger.fork(line)
            await ledger.play(forked, key)
            if kind < 0.22:
                line, replied = forked, True
            else:
                line, replied = session, replied and line is session
        else:
            await ledger.play(line, key, tools=kind < 0.35)
            replied = True


async def play_story(store: Store, ledger: Ledger, *, sessions: int = 8, turns: int = 300, seed: int = 1) -> None:
    """Play `turns` turns on `sessions` sessions, all at once."""
    handles = [await store.create_session(f"s{i}") for i in range(sessions)]
    await asyncio.gather(
        *(play_session(handle, ledger, turns // sessions, seed + i) for i, handle in enumerate(handles))
    )


def faults_of_file(database: Path, ledger: Ledger, moment: int = 0) -> list[str]:
    """Answer everything that is wrong with a SQLite file, given what was acknowledged up to `moment`."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute("BEGIN")
        checked = connection.pragma("integrity_check")
        faults = [] if checked == "ok" else [f"integrity: {checked}"]
        tables = {table.name: list(_read(connection, table)) for table in TABLES}
    except apsw.Error as error:
        return [f"integrity: {error}"]
    finally:
        connection.close()
    return faults + list(_compared(tables, ledger, moment))


def _read(connection: apsw.Connection, table: Any) -> Iterator[Record]:
    columns = ", ".join(f'"{name}"' for name in table.names)
    order = ", ".join(f'"{name}"' for name in table.key)
    for row in connection.execute(f'SELECT {columns} FROM "{table.name}" ORDER BY {order}'):
        yield {
            column.name: json.loads(cell) if column.kind == "json" and cell is not None else cell
            for column, cell in zip(table.columns, row, strict=True)
        }


async def faults_of_store(store: Store, ledger: Ledger, moment: int = 0) -> list[str]:
    """Answer the same of an open store of any backend."""
    async with store.read_view() as view:
        tables = {table.name: [msgspec.structs.asdict(row) for row in await view.scan(table)] for table in TABLES}
    return list(_compared(tables, ledger, moment))


def _compared(tables: Mapping[str, list[Record]], ledger: Ledger, moment: int) -> Iterator[str]:
    """Check each session for itself, then all of them against what callers were told."""
    found = {}
    for head in tables["sessions"]:
        name = head["session_id"]
        found[name] = _Story(head, {t: [r for r in rows if r.get("session_id") == name] for t, rows in tables.items()})
        yield from (f"{name}: {fault}" for fault in found[name].half())
    answers = {key: answer for story in found.values() for key, answer in story.receipts.items()}
    for key, (at, answer) in ledger.landed.items():
        if at <= moment and answers.get(key) != answer:
            yield f"lost: turn {key} was acknowledged, its receipt says {answers.get(key)}"
    for key in answers:
        if ledger.begun.get(key, moment + 1) > moment:
            yield f"turn {key} is there and was never asked for"
    for at, session_id, take in ledger.takes:
        if at <= moment and take not in (found[session_id].takes if session_id in found else ()):
            yield f"lost: take {take} of {session_id} was acknowledged"
    for at, session_id, key, until in ledger.kept:
        if at <= moment and (until is None or moment < until):
            if key not in (found[session_id].pending if session_id in found else ()):
                yield f"lost: the input of {key} was kept"


class _Story:
    """All rows of one session."""

    def __init__(self, head: Record, rows: Mapping[str, list[Record]]) -> None:
        self.head = head
        self.takes = {row["take"]: row for row in rows["takes"]}
        self.messages: dict[int, list[Record]] = defaultdict(list)
        for row in rows["messages"]:
            self.messages[row["take"]].append(row)
        self.versions = {row["version"]: row["parts"] for row in rows["versions"]}
        self.deltas: dict[int, list[Record]] = defaultdict(list)
        for row in rows["deltas"]:
            self.deltas[row["version"]].append(row)
        self.events, self.deliveries = rows["events"], [row["event_no"] for row in rows["deliveries"]]
        self.receipts = {row["key"]: row["answer"] for row in rows["receipts"]}
        self.tips = {row["take"]: row["state"] for row in rows["tips"] if row["slot"] == "vars"}
        self.keyframes = rows["keyframes"]
        self.pending = {row["key"]: row for row in rows["pending_turns"]}

    def half(self) -> Iterator[str]:
        """Yield everything that is only partly there."""
        if [event["event_no"] for event in self.events] != list(range(self.head["next_event"])):
            yield "the event numbers have a gap"
        if self.deliveries != list(range(self.head["next_event"])):
            yield "events and deliveries differ"
        if sorted(self.versions) != list(range(self.head["next_version"])):
            yield "the version numbers have a gap"
        if sorted(self.takes) != list(range(self.head["next_take"])) or not set(self.messages) <= set(self.takes):
            yield "the take numbers have a gap"
        if not set(self.deltas) <= set(self.versions):
            yield "a delta has no version"
        for key, row in self.pending.items():
            if row["kind"] == "reply" and row["input"] != [{"type": "text", "text": f"input {key}"}]:
                yield f"the pending turn {key} has another input"
        yield from self._turns()
        for number in self.takes:
            yield from self._take(number)

    def _turns(self) -> Iterator[str]:
        committed = [event["body"] for event in self.events if event["type"] == "turn.committed"]
        told = [event["body"]["key"] for event in self.events if event["type"] == "told"]
        by_turn = {answer["turn"]: (key, answer) for key, answer in self.receipts.items()}
        if [body["turn"] for body in committed] != list(range(self.head["next_turn"])):
            yield "the turn numbers have a gap"
        if sorted(by_turn) != list(range(self.head["next_turn"])):
            yield f"{len(committed)} turns, receipts for {sorted(by_turn)}"
        if sorted(told) != sorted(self.receipts):
            yield "a turn's own events are not all there"
        for body in committed:
            key, answer = by_turn.get(body["turn"], ("", {}))
            if key in self.pending:
                yield f"turn {key} has landed and is pending"
            if any(body.get(name) != value for name, value in answer.items() if name != "session_id"):
                yield f"turn {body['turn']}: event and receipt differ"
            yield from self._turn(key, body)

    def _turn(self, key: str, body: Record) -> Iterator[str]:
        for position, version in zip(body["positions"], body["versions"], strict=True):
            if key not in json.dumps(self.versions.get(version, "")):
                yield f"turn {key}: version {version} is missing or another one's"
            line = self.messages[body["take"]]
            message = line[position] if position < len(line) else None
            if message is None or version not in (message["versions"] or [message["version"]]):
                yield f"turn {key}: position {position} does not have version {version}"
        written = {delta["path"][0]: delta["value"] for delta in self.deltas[body["versions"][-1]]}
        if written.get("last") != key or "n" not in written:
            yield f"turn {key}: its deltas are {written}"

    def _take(self, number: int) -> Iterator[str]:
        take, line = self.takes[number], self.messages[number]
        if [message["position"] for message in line] != list(range(take["cursor"])):
            yield f"take {number}: cursor {take['cursor']}, {len(line)} messages"
        if take["shown_count"] != sum(not message["cut"] for message in line):
            yield f"take {number}: the count of shown messages is wrong"
        state: Record = {}
        frames = {row["position"]: row["state"]["vars"] for row in self.keyframes if row["take"] == number}
        for message in line:
            for delta in self.deltas[message["version"]]:
                if delta["removed"]:
                    state.pop(delta["path"][0], None)
                else:
                    state[delta["path"][0]] = delta["value"]
            if frames.pop(message["position"], state) != state:
                yield f"take {number}: the keyframe at {message['position']} is not the fold"
        if frames:
            yield f"take {number}: keyframes at {sorted(frames)} have no message"
        if self.tips.get(number, {}) != state:
            yield f"take {number}: the tip is {self.tips.get(number)}, the fold {state}"
