"""Temporary fixtures until tests/conftest.py is there."""

import pytest, turnkeeper
from tests.support import postgres


@pytest.fixture(scope="session")
def pg():
    with postgres.server() as s:
        yield s


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def backend(request):
    return request.param


@pytest.fixture
def url(backend, tmp_path, request):
    if backend == "memory":
        return f"memory:{tmp_path.name}"
    if backend == "sqlite":
        return str(tmp_path / "story.db")
    return postgres.fresh_schema_url(request.getfixturevalue("pg").url)


@pytest.fixture
async def store(url):
    async with turnkeeper.open(url) as s:
        yield s
