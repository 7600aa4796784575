"""Reading a history: messages as people and models see them, the versions of one, the takes of a session."""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import Damaged, Invalid
from ..kit.fenced import Who, look_up, root_of, session_id_of
from ..limits import INT_MAX
from ..records import MESSAGES, TAKES, Message, Take, Version
from ..store.backend import Get, Scan
from ..store.reading import Rows
from .choosing import versions_of
from .content import text_of
from .formats import Line
from .ranges import versions_by_number
from .state import find_message, live_take, open_take


class ShownMessage(msgspec.Struct, frozen=True):
    """A message with the version it shows."""

    position: int
    role: str
    text: str
    parts: list[dict[str, Any]]
    name: str | None
    interaction: str | None
    hidden: bool
    created_at: int | None  # microseconds UTC; None when its source did not say
    turn: int | None
    version: int  # its number in the session
    index: int  # which of its versions is shown, from 0
    versions: int  # how many it has
    meta: dict[str, Any]
    extra: dict[str, Any]  # of the version: foreign fields, verbatim
    message_extra: dict[str, Any]

    def line(self) -> Line:
        """Answer what a provider's format is made of."""
        return Line(self.role, self.parts, self.name, self.hidden)


async def messages(
    rows: Rows, who: Who, *, take: int | None = None, last: int | None = None, before: int | None = None
) -> list[ShownMessage]:
    """Answer the shown messages of a take in order: all, or the `last` so many, of those before position `before`.

    Raises NotFound for an unknown take, Damaged when a version that is shown is missing.
    """
    for name, number in (("last", last), ("before", before)):
        if number is not None and (type(number) is not int or not 0 <= number <= INT_MAX):
            raise Invalid(f"`{name}` is a whole number from 0.", do="Give a number, or none.", path=name)
    # mostly the active take is the first one: no second read then
    guess = _page(session_id_of(who), take or 0, before, last)
    head, page = await look_up(rows, who, *(guess if last is not None else ()))
    number = head.active_take if take is None else take
    found = await _uncut(rows, head.session_id, number, before, last, page if number == (take or 0) else [])
    contents = await versions_by_number(rows, head.session_id, (message.version for message in found))
    return [_shown(message, contents.get(message.version)) for message in found]


def _page(session_id: str, take: int, before: int | None, limit: int | None) -> tuple[Get, Scan]:
    """Ask for a take and its newest messages before a position."""
    where, high = (session_id, take), None if before is None else before - 1
    return Get(TAKES, where), Scan(MESSAGES, prefix=where, high=high, limit=limit, reverse=True)


async def _uncut(
    rows: Rows, session_id: str, take: int, before: int | None, last: int | None, page: list[Any]
) -> list[Message]:
    """Read the newest uncut messages before a position: a page at a time, as cut ones do not count."""
    found: list[Message] = []
    while last is None or len(found) < last:
        wanted = None if last is None else last - len(found)
        row, messages = page or await rows.fetch(root_of(session_id), *_page(session_id, take, before, wanted))
        live_take(row, session_id, take)
        found += [message for message in messages if not message.cut]
        if wanted is None or len(messages) < wanted:
            break
        before, page = messages[-1].position, []
    return found[::-1]


def _shown(message: Message, version: Version | None) -> ShownMessage:
    if version is None:
        raise Damaged(
            f"The version {message.version} that position {message.position} of take {message.take} shows is missing.",
            "Nothing was changed.",
            "Restore it from a backup, or run the health check.",
            table="versions",
            key=f"{message.session_id}/{message.version}",
        )
    head, numbers = message.head or {}, message.versions
    return ShownMessage(
        message.position,
        message.role,
        text_of(version.parts),
        version.parts,
        head.get("name"),
        head.get("interaction"),
        bool(head.get("hidden")),
        version.created_at,
        message.turn,
        version.version,
        0 if numbers is None else numbers.index(version.version),
        1 if numbers is None else len(numbers),
        version.meta or {},
        version.extra or {},
        head.get("extra") or {},
    )


async def versions(rows: Rows, who: Who, position: int, *, take: int | None = None) -> list[ShownMessage]:
    """Answer every version of one message, in order, each as if it were shown."""
    head, row, _ = await open_take(rows, who, take)
    message = await find_message(rows, row, position)
    numbers = versions_of(message)
    contents = await versions_by_number(rows, head.session_id, numbers)
    return [_shown(msgspec.structs.replace(message, version=n, versions=numbers), contents.get(n)) for n in numbers]


async def takes(rows: Rows, who: Who) -> list[Take]:
    """Answer the live takes of a session by number."""
    _, (found,) = await look_up(rows, who, Scan(TAKES, prefix=(session_id_of(who),)))
    return [take for take in found if not take.deleted]
