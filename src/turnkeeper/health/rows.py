"""All that is stored of one session, as a health check reads it: records, and rows that cannot be read."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ..kit.fenced import Who, ref_of, session_id_of
from ..records import (
    HEADERS,
    SESSIONS,
    TABLES,
    TAKES,
    TOMBSTONES,
    VERSIONS,
    Session,
    Take,
)
from ..schema import Table
from ..store.intake import codec
from ..store.reading import Rows, Unreadable

OF_A_SESSION = tuple(table for table in TABLES if table.root_kind == "s" and table is not SESSIONS)
"""The tables whose rows lie under a session's own root, its head apart."""

Target = tuple[Table[Any], tuple[Any, ...]]
"""A row: its table and its key."""


class Everything:
    """The rows of one session by table; those that cannot be read apart."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.head: Session | None = None
        self.gone = False
        self.there = False
        """Whether there is a head row, readable or not."""
        self.records: dict[Table[Any], list[Any]] = {}
        self.unreadable: list[Unreadable] = []

    def of(self, table: Table[Any]) -> list[Any]:
        """Answer the readable records of a table, in key order."""
        return self.records.get(table, [])

    def count(self) -> int:
        """Count the rows."""
        return sum(map(len, self.records.values())) + len(self.unreadable) + (self.head is not None)

    def takes(self) -> dict[int, Take]:
        """Answer the takes by number."""
        return {take.take: take for take in self.of(TAKES)}

    def messages(self, table: Table[Any]) -> dict[tuple[int, int], Any]:
        """Answer rows of messages by take and position."""
        return {(row.take, row.position): row for row in self.of(table)}


async def gather(rows: Rows, who: Who) -> Everything:
    """Read a session whole, over any damage. A session that is not there has no head and no rows."""
    session_id, ref = session_id_of(who), ref_of(who)
    found = Everything(session_id)
    for row in await rows.survey(SESSIONS, session_id):
        found.there = True
        if isinstance(row, Unreadable):
            found.unreadable.append(row)
        else:
            found.head = row
    life = found.head is None or ref.instance_id in (None, found.head.instance_id)
    if not found.there or not life:
        found.there, found.gone = False, bool(await rows.survey(TOMBSTONES, session_id))
        return found
    for table in (HEADERS, *OF_A_SESSION):
        read: list[Any] = []
        for record in await rows.survey(table, session_id):
            unreadable = record if isinstance(record, Unreadable) else _misshapen(table, record)
            if unreadable is None:
                read.append(record)
            else:
                found.unreadable.append(unreadable)
        found.records[table] = read
        await asyncio.sleep(0)
    return found


def _misshapen(table: Table[Any], record: Any) -> Unreadable | None:
    """Say of a record that its cells are JSON and still not what the table keeps; None when it is well."""
    cells = msgspec.structs.asdict(record)
    if table.cache and any(value is msgspec.UNSET for value in cells.values()):
        return None  # told as a cache, which is no fact
    try:
        msgspec.convert(cells, table.record)
        if table is VERSIONS:
            msgspec.convert(record.parts, list[_Part])
    except msgspec.ValidationError:
        return Unreadable(table, codec(table).encode(record))
    return None


class _Text(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class _Thinking(msgspec.Struct, tag_field="type", tag="thinking"):
    text: str


class _Call(msgspec.Struct, tag_field="type", tag="tool_call"):
    id: str
    name: str
    args: Any


class _Result(msgspec.Struct, tag_field="type", tag="tool_result"):
    call_id: str
    content: Any


class _Media(msgspec.Struct, tag_field="type", tag="media"):
    ref: str
    mime: str


class _Other(msgspec.Struct, tag_field="type", tag="other"):
    pass


_Part = _Text | _Thinking | _Call | _Result | _Media | _Other
"""What a part must have: see `records/messages.py`."""
