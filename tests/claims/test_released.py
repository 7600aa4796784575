"""A writer that gave its own claim back is told so."""

from __future__ import annotations

import pytest

import turnkeeper
from turnkeeper.errors import Fenced


async def test_a_released_claim_is_told_as_released(store: turnkeeper.Store) -> None:
    cave = await store.create_session(session_id="cave")
    claim = await cave.claim()
    await cave.release()
    with pytest.raises(Fenced) as told:
        await store.turns.fail(cave._ref, None, claim, "x", "x")
    assert "The claim was released." in str(told.value)
    assert "took the session over" not in str(told.value)
