"""The contract suite: what every backend must do, as tests that ship with the package. Needs pytest and pytest-asyncio.

A backend joins with a few lines in a test module of its own::

    from turnkeeper.store.engine import Engine
    from turnkeeper.testing import BackendContract

    class TestMine(BackendContract):
        @pytest.fixture
        def connect(self, tmp_path):
            async def connect(plan):             # called again in a test: another connection to the same database
                backend = MyBackend(tmp_path / "store", plan)
                await backend.open()
                return Engine(backend, plan.tables)
            return connect

`connect` begins with an empty database for every test, and creates what `plan` declares. There are no optional parts:
a backend that fails one test of this suite is not a backend of Turnkeeper (T-024). `run` runs the same tests without
pytest's runner and answers what failed; `broken` holds stores that are wrong on purpose, each of which must fail.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__name__}.{part}"
        for part in (
            "reading",
            "values",
            "refusals",
            "writing",
            "own_writes",
            "uniqueness",
            "neighbours",
            "savepoints",
            "blocks",
        )
    ),
    *(f"{__name__}.{part}" for part in ("races", "guards", "views", "sessions", "turns")),
)

from .contract import PARTS, BackendContract  # noqa: E402 - the tests are imported after their asserts are told apart
from .house import Connect, House, Waist  # noqa: E402
from .runner import Failure, run  # noqa: E402

__all__ = ["PARTS", "BackendContract", "Connect", "Failure", "House", "Waist", "run"]
