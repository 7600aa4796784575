"""The alternatives at one place: versions of its message, and takes that a regenerate started there, numbered as one list."""

from __future__ import annotations

import msgspec

from ..errors import NotFound
from ..kit.fenced import Who, enter, look_up, root_of, session_id_of
from ..records import MESSAGES, TAKES, Message, Session, Take
from ..store.backend import Get, Scan
from ..store.reading import Rows
from ..store.transaction import Transaction
from .choosing import version_change, versions_of
from .line import Change, change_line


class Alternative(msgspec.Struct, frozen=True):
    """One way the story may go on at a position."""

    number: int
    take: int
    position: int
    index: int  # of the version within its message
    shown: bool


async def alternatives(
    rows: Rows, who: Who, position: int | None = None, *, take: int | None = None
) -> list[Alternative]:
    """Answer the alternatives at a position (default: where the last reply begins), in the order they were made.

    Raises NotFound for an unknown take or position.
    """
    head, (takes,) = await look_up(rows, who, Scan(TAKES, prefix=(session_id_of(who),)))
    return await _alternatives(rows, head, takes, position, take)


async def choose(
    tx: Transaction, who: Who, number: int, position: int | None = None, *, take: int | None = None
) -> None:
    """Show one of the alternatives by its number; the state follows. Raises NotFound for a number that is not there."""
    head, (takes,) = await enter(tx, who, Scan(TAKES, prefix=(session_id_of(who),)))
    found = await _alternatives(tx, head, takes, position, take)
    if type(number) is not int or not 0 <= number < len(found):
        raise NotFound(
            f"There is no alternative {number!r} there.",
            do=f"They are 0 to {len(found) - 1}.",
            kind="alternative",
            id=number,
        )
    chosen = found[number]
    change = await version_change(tx, head, chosen.take, chosen.position, chosen.index)
    changes = [] if change is None else [change]
    if chosen.take != head.active_take and (take is None or take == head.active_take):
        changes.append(Change("active", None, None, head.active_take, chosen.take))
    if changes:
        await change_line(tx, head, "history.chosen", changes)


async def _alternatives(
    rows: Rows, head: Session, takes: list[Take], position: int | None, take: int | None
) -> list[Alternative]:
    live = {row.take: row for row in takes if not row.deleted}
    current = live.get(head.active_take if take is None else take)
    if current is None:
        raise NotFound(f"Session {head.session_id!r} has no take {take}.", do="List its takes.", kind="take", id=take)
    if position is None:
        position = await _last_reply(rows, current)
    origin = current
    while origin.kind == "regenerate" and origin.parent_position == position - 1 and origin.parent_take in live:
        origin = live[origin.parent_take]
    family = [origin, *(row for row in live.values() if _regenerated(row, position, live, origin))]
    requests = [Get(MESSAGES, (head.session_id, row.take, position)) for row in family]
    messages: list[Message | None] = await rows.fetch(root_of(head.session_id), *requests)
    found: list[Alternative] = []
    for row, message in zip(family, messages, strict=True):
        for index, version in enumerate(versions_of(message) if message is not None and not message.cut else ()):
            if message is not None and version in (message.cut_versions or ()):
                continue
            shown = row is current and message is not None and version == message.version
            found.append(Alternative(len(found), row.take, position, index, shown))
    if not found:
        raise NotFound(
            f"Take {current.take} shows no message at position {position}.",
            do="Choose another.",
            kind="message",
            id=position,
        )
    return found


def _regenerated(row: Take, position: int, live: dict[int, Take], origin: Take) -> bool:
    """Say whether a take was made by regenerating at this position, from the origin or from such a take."""
    while row.kind == "regenerate" and row.parent_position == position - 1 and row.parent_take in live:
        row = live[row.parent_take]
        if row is origin:
            return True
    return False


async def _last_reply(rows: Rows, take: Take) -> int:
    replies = await last_replies(rows, take)
    return replies[0].position if replies else take.cursor - 1


async def last_replies(rows: Rows, take: Take) -> list[Message]:
    """Answer the messages that the last turn of a take added after its input, in order."""
    replies: list[Message] = []
    high = take.cursor - 1
    while high >= 0:
        page = await rows.scan(MESSAGES, take.session_id, take.take, high=high, limit=16, reverse=True)
        for message in page:
            if message.cut or (message.role == "system" and message.turn is None):
                continue  # a note that somebody added is no reply
            if message.role == "user" or (replies and (message.turn is None or message.turn != replies[-1].turn)):
                return replies[::-1]
            replies.append(message)
        high = page[-1].position - 1 if len(page) == 16 else -1
    return replies[::-1]
