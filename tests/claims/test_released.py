"""A writer that gave its own claim back is told so."""

from __future__ import annotations

import pytest

import turnkeeper
from turnkeeper.errors import Fenced
from turnkeeper.history.content import message
from turnkeeper.kit.receipts import request_digest
from turnkeeper.testing.house import elsewhere
from turnkeeper.turns.land import Outcome
from turnkeeper.turns.pending import Request


async def test_a_released_claim_is_told_as_released(store: turnkeeper.Store) -> None:
    cave = await store.create_session(session_id="cave")
    claim = await cave.claim()
    await cave.release()
    with pytest.raises(Fenced) as told:
        await store.turns.fail(cave._ref, None, claim, "x", "x")
    assert "The claim was released." in str(told.value)
    assert "took the session over" not in str(told.value)


async def test_a_turn_without_a_claim_lands_only_while_nobody_owns_the_session(store: turnkeeper.Store) -> None:
    """Decision 46; nothing of it is kept."""
    cave = await store.create_session(session_id="cave")
    said = [message("user", "Hello?")]
    outcome = Outcome(Request("reply", said[0].parts, None, request_digest("x")), 0, None, said, [], [])
    await cave.claim()
    with pytest.raises(Fenced, match="no claim") as told:
        await store.turns.commit_turn("cave", outcome)
    assert told.value.fields["epoch"] is None
    assert await cave.messages() == []
    await cave.release()
    await elsewhere(store.turns.commit_turn("cave", outcome))  # in a context that never held the claim
    assert [m.text for m in await cave.messages()] == ["Hello?"]
