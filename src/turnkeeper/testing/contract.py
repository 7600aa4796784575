"""The parts of the suite joined to one class that a backend's author subclasses."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from .blocks import Blocks
from .guards import Guards
from .house import Connect, House
from .neighbours import Neighbours
from .own_writes import OwnWrites
from .races import Races
from .reading import Reading
from .refusals import Refusals
from .savepoints import Savepoints
from .sessions import Sessions
from .turns import Turns
from .uniqueness import Uniqueness
from .values import Values
from .views import Views
from .writing import Writing

PARTS: tuple[type, ...] = (
    Reading, Values, Refusals, Writing, OwnWrites, Uniqueness, Neighbours, Savepoints, Blocks, Races, Guards, Views,
    Sessions, Turns,
)  # fmt: skip
"""The parts, each a class of tests that take a `House`."""


@pytest.mark.asyncio
class BackendContract(
    Reading,
    Values,
    Refusals,
    Writing,
    OwnWrites,
    Uniqueness,
    Neighbours,
    Savepoints,
    Blocks,
    Races,
    Guards,
    Views,
    Sessions,
    Turns,
):
    """Every test of the suite. A subclass has a fixture `connect`; see the package's docstring."""

    @pytest_asyncio.fixture
    async def house(self, connect: Connect) -> AsyncIterator[House]:
        """Hand out connections and close them afterwards."""
        house = House(connect)
        yield house
        await house.close()
