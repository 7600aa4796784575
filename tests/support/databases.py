"""An empty database for a test, on each backend, and further connections to it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from turnkeeper.clock import Clock, system_clock
from turnkeeper.store.backend import Backend
from turnkeeper.store.engine import Engine
from turnkeeper.store.memory import MemoryBackend
from turnkeeper.store.migrations import Plan
from turnkeeper.testing import Connect

BACKENDS = ("memory", "sqlite", "postgres")


def fresh(backend: str, folder: Path, server_url: Callable[[], str]) -> str:
    """Answer the url of a database that is not there yet."""
    if backend == "memory":
        return f"memory:{secrets.token_hex(8)}"
    if backend == "sqlite":
        return str(folder / "store.db")
    from tests.support.postgres import fresh_schema_url

    return fresh_schema_url(server_url())


def connector(url: str, clock: Clock | None = None) -> Connect:
    """Answer what opens an engine of its own on a database each time it is called.

    Engines of one file or server know nothing of each other, like those of two processes. A memory database lives in
    its backend object, so there all engines share that one.
    """
    memory: dict[object, MemoryBackend] = {}

    async def connect(plan: Plan) -> Engine:
        backend: Backend
        if url.startswith("memory:"):
            backend = memory.setdefault(plan.tables, MemoryBackend(url, plan.tables, clock=clock or system_clock))
        elif url.startswith("postgresql://"):
            from turnkeeper.store.postgres import PostgresBackend

            backend = PostgresBackend(url, plan, clock=clock, create=True)
        else:
            from turnkeeper.store.sqlite import SQLiteBackend

            backend = SQLiteBackend(url, plan, clock=clock or system_clock)
        await backend.open()
        return Engine(backend, plan.tables)

    return connect
