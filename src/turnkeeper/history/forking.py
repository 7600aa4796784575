"""A new take from a prefix of another: message rows are copied, versions, their deltas and texts are shared."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from ..errors import Invalid, NotFound
from ..kit.fenced import Who
from ..records import MESSAGES, Take
from ..store.transaction import Transaction
from .line import Change, change_line
from .state import copy_state, enter_take


async def fork(
    tx: Transaction,
    who: Who,
    *,
    at: int | None = None,
    take: int | None = None,
    name: str | None = None,
    activate: bool = False,
    kind: Literal["fork", "regenerate"] = "fork",
) -> int:
    """Start a take that ends after the message at position `at` (default: the end) of a take; answer its number.

    `at=-1` starts it before the first message. Costs a narrow row a message; copies no text and no delta (S-065).
    Raises NotFound for an unknown take or position.
    """
    head, source, _ = await enter_take(tx, who, take)
    last = source.cursor - 1 if at is None else at
    if type(last) is not int or not -1 <= last < source.cursor:
        raise NotFound(
            f"Take {source.take} of session {head.session_id!r} has no position {last!r}.",
            do=f"Its positions are 0 to {source.cursor - 1}; -1 forks before the first.",
            kind="message",
            id=last,
        )
    if name is not None and not (isinstance(name, str) and name.strip()):
        raise Invalid("A take's name is a text that is not blank.", do="Give a name, or none.", path="name")
    messages = await tx.scan(MESSAGES, head.session_id, source.take, high=last) if last >= 0 else []
    number = head.next_take
    shown = sum(1 for message in messages if not message.cut)
    now = await tx.now()
    target = Take(head.session_id, number, source.take, last, kind, last + 1, shown, 0, False, now, name)
    await tx.insert_many([target, *(replace(message, take=number) for message in messages)])
    await copy_state(tx, source, target, last)
    moved = replace(head, next_take=number + 1, last_activity_at=now)
    if activate:
        await change_line(tx, moved, "history.forked", [Change("active", None, None, head.active_take, number)])
    else:
        await tx.update(moved, expect={"next_take": number})
    return number
