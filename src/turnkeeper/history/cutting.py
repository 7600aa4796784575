"""Hiding and showing again: messages, versions, whole takes. Reversible; the state follows in the same landing.

A cut message is a hole: its position stays, its deltas stay stored and hidden. A cut version is not offered and not
shown; cutting the shown one shows the nearest earlier uncut version, else the nearest later (decision 19).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ..errors import Invalid, NotFound
from ..kit.fenced import Who, enter, session_id_of
from ..records import MESSAGES, TAKES, Message, Session, Take
from ..store.backend import Scan
from ..store.transaction import Transaction
from .choosing import versions_of
from .line import Change, change_line
from .state import copy_later_deltas, copy_state, enter_take, find_message, live_take


async def cut_messages(tx: Transaction, who: Who, positions: Sequence[int], *, take: int | None = None) -> None:
    """Hide messages of a take. Raises NotFound for one that is not shown; then none is hidden."""
    head, row = await _enter(tx, who, take)
    messages = [await find_message(tx, row, position) for position in _distinct(positions)]
    await change_line(tx, head, "history.cut", [Change("cut", row.take, m.position, False, True) for m in messages])


async def restore_cut(
    tx: Transaction, who: Who, positions: Sequence[int], *, take: int | None = None, as_take: bool = False
) -> int:
    """Show cut messages again, in place or on a new take that ends with the last of them; answer the take's number.

    The new take is a copy of the path up to there with these messages shown, its base and its messages' own deltas with
    it. Raises NotFound for a position that is not cut.
    """
    head, row = await _enter(tx, who, take)
    wanted = _distinct(positions)
    for position in wanted:
        await _cut_message(tx, row, position)
    if not as_take:
        await change_line(tx, head, "history.restored", [Change("cut", row.take, p, True, False) for p in wanted])
        return row.take
    path = await tx.scan(MESSAGES, head.session_id, row.take, high=wanted[-1])
    number, now = head.next_take, await tx.now()
    # it comes into being deleted, so that showing it is a change like any other, which undo takes back
    target = Take(head.session_id, number, row.take, wanted[-1], "fork", wanted[-1] + 1, 0, 0, True, now)
    await tx.insert_many([target, *(replace(m, take=number, cut=m.cut and m.position not in wanted) for m in path)])
    await copy_state(tx, row, target, -1)
    await copy_later_deltas(tx, row, target, wanted[-1])
    shown = [Change("deleted", number, None, True, False), Change("active", None, None, head.active_take, number)]
    await change_line(tx, replace(head, next_take=number + 1), "history.restored", shown)
    return number


async def cut_swipe(tx: Transaction, who: Who, position: int, index: int, *, take: int | None = None) -> None:
    """Hide a version of a message by its index. Raises NotFound, or Invalid for the last one that is not cut."""
    head, row = await _enter(tx, who, take)
    message = await find_message(tx, row, position)
    number = _version(message, index, cut=False)
    cut = message.cut_versions or []
    left = [v for v in versions_of(message) if v not in cut and v != number]
    if not left:
        raise Invalid(
            f"The message at position {position} has only this version that is not cut.",
            do="Cut the message.",
            path="index",
        )
    changes = [Change("cut_versions", row.take, position, message.cut_versions, sorted([*cut, number]))]
    if message.version == number:
        order = versions_of(message)
        earlier = [v for v in left if order.index(v) < order.index(number)]
        changes.append(Change("shown", row.take, position, number, earlier[-1] if earlier else left[0]))
    await change_line(tx, head, "history.cut", changes)


async def restore_swipe(tx: Transaction, who: Who, position: int, index: int, *, take: int | None = None) -> None:
    """Offer a cut version again, by its index; what is shown stays. Raises NotFound for one that is not cut."""
    head, row = await _enter(tx, who, take)
    message = await find_message(tx, row, position)
    number = _version(message, index, cut=True)
    left = [v for v in message.cut_versions or [] if v != number] or None
    await change_line(
        tx, head, "history.restored", [Change("cut_versions", row.take, position, message.cut_versions, left)]
    )


async def delete_take(tx: Transaction, who: Who, take: int) -> None:
    """Hide a whole take; when it is the active one, its nearest live ancestor, else the first live take, becomes active.

    Raises NotFound, or Invalid for the only live take.
    """
    head, (takes,) = await enter(tx, who, Scan(TAKES, prefix=(session_id_of(who),)))
    live = {row.take: row for row in takes if not row.deleted}
    row = live_take(live.get(take), head.session_id, take)
    changes = [Change("deleted", take, None, False, True)]
    if head.active_take == take:
        others = sorted(number for number in live if number != take)
        if not others:
            raise Invalid("The only take of a session cannot be deleted.", do="Delete the session.", path="take")
        parent = row.parent_take
        while parent is not None and parent not in others:
            parent = next((r.parent_take for r in takes if r.take == parent), None)
        changes.insert(0, Change("active", None, None, take, others[0] if parent is None else parent))
    await change_line(tx, head, "history.take_deleted", changes)


async def restore_take(tx: Transaction, who: Who, take: int) -> None:
    """Show a deleted take again; its state is rebuilt. Raises NotFound for one that is not deleted."""
    head, _ = await enter(tx, who)
    row = await tx.get(TAKES, head.session_id, take)
    if row is None or not row.deleted:
        raise NotFound(
            f"Take {take} of session {head.session_id!r} is not deleted.", do="List its takes.", kind="take", id=take
        )
    await change_line(tx, head, "history.take_restored", [Change("deleted", take, None, True, False)])


async def _enter(tx: Transaction, who: Who, take: int | None) -> tuple[Session, Take]:
    head, row, _ = await enter_take(tx, who, take)
    return head, row


async def _cut_message(tx: Transaction, take: Take, position: int) -> Message:
    message = await tx.get(MESSAGES, take.session_id, take.take, position)
    if message is None or not message.cut:
        raise NotFound(
            f"Take {take.take} of session {take.session_id!r} has no cut message at position {position}.",
            do="Name positions that are cut.",
            kind="message",
            id=position,
        )
    return message


def _version(message: Message, index: int, *, cut: bool) -> int:
    numbers = versions_of(message)
    if type(index) is int and 0 <= index < len(numbers) and (numbers[index] in (message.cut_versions or [])) is cut:
        return numbers[index]
    raise NotFound(
        f"The message at position {message.position} has no version {index!r} that is {'' if cut else 'not '}cut.",
        do=f"Its versions are 0 to {len(numbers) - 1}.",
        kind="version",
        id=index,
    )


def _distinct(positions: Sequence[int]) -> list[int]:
    given = list(positions) if isinstance(positions, Iterable) else []
    if not given or not all(type(p) is int and p >= 0 for p in given):
        raise Invalid("`positions` are whole numbers from 0, at least one.", do="Name the messages.", path="positions")
    return sorted(set(given))
