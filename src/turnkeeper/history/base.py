"""A take's base: the state it has before its first message, as an import brings it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import TooLarge
from ..jsonvalue import encode
from ..kit.fenced import Who
from ..limits import BASE_BYTES
from ..records import BASES, Base
from ..store.transaction import Transaction
from .slots import BUILT_IN, check_state
from .state import enter_take, rebuild


async def set_branch_base(tx: Transaction, who: Who, base: Mapping[str, Any], *, take: int | None = None) -> None:
    """Set the state of some slots before a take's first message, and rebuild the take from there (S-074).

    `base` maps slots to whole states. Raises Invalid for an undeclared slot or a state that does not fit it, NotAllowed
    for a slot that takes nothing from an import, TooLarge above `limits.BASE_BYTES`, NotFound for an unknown take.
    """
    for slot, state in base.items():
        check_state(slot, state, "import", BUILT_IN)
    size = len(encode(dict(base)).encode())
    if size > BASE_BYTES:
        raise TooLarge(
            f"A base of {size:,} bytes is above the limit of {BASE_BYTES:,}.",
            do="Keep the bulk elsewhere.", family="base-bytes", limit=BASE_BYTES, size=size,
        )  # fmt: skip
    head, row, _ = await enter_take(tx, who, take)
    for slot, state in base.items():
        made = Base(head.session_id, row.take, slot, state)
        if await tx.get(BASES, head.session_id, row.take, slot) is None:
            await tx.insert(made)
        else:
            await tx.update(made, expect={})
    await tx.update(await rebuild(tx, row, 0), expect={"revision": row.revision})
