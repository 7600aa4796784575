"""Fixtures shared by all tests: each test that takes `backend`, or what rests on it, runs on all three backends.

* `backend`: memory, sqlite, postgres; a test of one backend says `@pytest.mark.parametrize("backend", ["sqlite"])`
* `url`: an empty database of its own for every test; open it as often as you like
* `store`: a store on it, closed afterwards
* `clock`: a clock that stands still until it is moved; `clocked` is a store that reads it
* `library`: opens it with the contract suite's own tables instead (`turnkeeper.testing`)

One PostgreSQL server is started for the whole run, at its first use; every test has a schema of its own. A server that
does not start fails the tests that need it: nothing is skipped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import turnkeeper
from tests.support import databases
from turnkeeper.clock import ManualClock
from turnkeeper.testing import Connect

# The same examples in every run: a failure is one everywhere. `--hypothesis-profile=search` looks for new ones.
settings.register_profile("steady", derandomize=True, deadline=None, database=None)
settings.register_profile("search", max_examples=2_000, deadline=None)
settings.load_profile("steady")


@pytest.fixture(params=databases.BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Name the backend of a test."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Run one server for all tests that need it; answer its url."""
    from tests.support.postgres import server

    with server() as running:
        yield running.url


@pytest.fixture
def url(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Name an empty database."""
    return databases.fresh(backend, tmp_path, lambda: request.getfixturevalue("postgres"))


@pytest.fixture
async def store(url: str) -> AsyncIterator[turnkeeper.Store]:
    """Open a store."""
    async with turnkeeper.open(url) as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    """Make a clock that stands still."""
    return ManualClock()


@pytest.fixture
async def clocked(url: str, clock: ManualClock) -> AsyncIterator[turnkeeper.Store]:
    """Open a store that reads the test's clock."""
    async with turnkeeper.open(url, clock=clock) as opened:
        yield opened


@pytest.fixture
def connect(url: str) -> Connect:
    """Answer what opens one more connection to the test's database, as another process would."""
    return databases.connector(url)
