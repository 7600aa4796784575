"""A suite is worth what it finds: every store that is wrong on purpose fails it, and the same store without a fault passes."""

from __future__ import annotations

import pytest

from turnkeeper.testing import run
from turnkeeper.testing.broken import BROKEN, healthy


async def test_the_runner_passes_a_healthy_store() -> None:
    """Otherwise a failure below would prove nothing."""
    assert await run(healthy) == []


@pytest.mark.parametrize("fault", BROKEN)
async def test_a_store_that_is_wrong_on_purpose_fails(fault: str) -> None:
    """By an assertion or an error of the suite, not by a hang."""
    failures = await run(BROKEN[fault], test_s=5, stop_after=1)
    assert failures, f"no test of the suite notices {fault}"
