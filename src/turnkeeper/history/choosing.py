"""Another version of a message, and which version or take is shown. The state follows in the same landing."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..errors import Invalid, NotFound
from ..jsonvalue import same
from ..kit.fenced import Who
from ..records import Message, Session, Take, Version
from ..store.transaction import Transaction
from .appending import Appended, delta_rows, write_added
from .content import NewMessage
from .line import Change, change_line
from .slots import NewDelta
from .state import enter_take, find_message, live_take, rebuild, take_and_tips


def versions_of(message: Message) -> list[int]:
    """Answer the numbers of a message's versions, in order."""
    return message.versions if message.versions is not None else [message.version]


async def add_version(tx: Transaction, who: Who, position: int, content: NewMessage, *, take: int | None = None) -> int:
    """Add another version to a message and show it; what followed the old one stays. Answer its index, from 0.

    It carries no deltas, so the state falls back to that before the message, plus what later messages changed (S-125).
    """
    head, row, _ = await enter_take(tx, who, take)
    now = await tx.now()
    added = await put_version(tx, head, row, position, content, [], now=now)
    await write_added(tx, added, "history.version_added", now)
    return len(versions_of(await find_message(tx, added.take, position))) - 1


async def put_version(
    tx: Transaction,
    head: Session,
    take: Take,
    position: int,
    content: NewMessage,
    deltas: Sequence[NewDelta],
    *,
    now: int,
) -> Appended:
    """Add a version with its deltas and show it, caches rebuilt; the caller writes head and take."""
    message = await find_message(tx, take, position)
    _check_kind(message, content)
    number = head.next_version
    created_at = now if content.created_at is None else content.created_at
    await tx.insert(Version(head.session_id, number, created_at, content.parts, content.meta, content.extra))
    await tx.insert_many(delta_rows(head.session_id, number, deltas, now))
    shown = replace(message, version=number, versions=[*versions_of(message), number])
    await tx.update(shown, expect={"version": message.version})
    moved = await rebuild(tx, take, position)
    change = Change("shown", take.take, position, message.version, number)
    return Appended(replace(_line_moved(head, take), next_version=number + 1), moved, [position], [number], [change])


def _check_kind(message: Message, content: NewMessage) -> None:
    """Refuse a version that would change what the message, not one version of it, carries. Raises Invalid."""
    if content.role != message.role:
        raise Invalid(
            f"The message at position {message.position} is of the role {message.role}, not {content.role}.",
            do="A version has its message's role: make another version of a reply, or fork before the message.",
            path="role",
        )
    carried = content.head()
    if carried is not None and not same(carried, message.head or {}):
        raise Invalid(
            f"The message at position {message.position} keeps its own {', '.join(carried)}.",
            do="Leave them out: a version carries parts, meta and extra.",
            path="message",
        )


async def select_swipe(tx: Transaction, who: Who, position: int, index: int, *, take: int | None = None) -> None:
    """Show another version of a message, by its index from 0 (S-126). Showing the shown one changes nothing.

    Raises NotFound for an unknown take, position or index, and for a cut version.
    """
    head, row, _ = await enter_take(tx, who, take)
    change = await version_change(tx, head, row.take, position, index)
    if change is not None:
        await change_line(tx, head, "history.chosen", [change])


async def version_change(tx: Transaction, head: Session, take: int, position: int, index: int) -> Change | None:
    """Answer the change that shows a version of a message, None when it is shown. Raises NotFound."""
    row, _ = await take_and_tips(tx, head.session_id, take)
    message = await find_message(tx, live_take(row, head.session_id, take), position)
    numbers = versions_of(message)
    if type(index) is not int or not 0 <= index < len(numbers):
        raise NotFound(
            f"The message at position {position} has no version {index!r}.",
            do=f"Its versions are 0 to {len(numbers) - 1}.",
            kind="version",
            id=index,
        )
    if numbers[index] in (message.cut_versions or ()):
        raise NotFound(
            f"The version {index} of the message at position {position} is cut.",
            do="Restore it first.",
            kind="version",
            id=index,
        )
    if message.version == numbers[index]:
        return None
    return Change("shown", take, position, message.version, numbers[index])


async def select_take(tx: Transaction, who: Who, take: int) -> None:
    """Make another take the active one. Raises NotFound for an unknown or deleted take."""
    if type(take) is not int:
        raise Invalid("A take is named by its number.", do="Give an int.", path="take")
    head, _, _ = await enter_take(tx, who, take)
    if head.active_take != take:
        await change_line(tx, head, "history.chosen", [Change("active", None, None, head.active_take, take)])


def _line_moved(head: Session, take: Take) -> Session:
    return replace(head, line_rev=head.line_rev + 1) if take.take == head.active_take else head
