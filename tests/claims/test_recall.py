"""A turn's landing starts from what the last one left, and never believes it: the landing proves it (ADR 6)."""

from __future__ import annotations

import asyncio

import pytest

import turnkeeper
from turnkeeper.turns.play import Turn


async def speak(session: turnkeeper.Session, said: str, **options: object) -> turnkeeper.LandedTurn:
    """Play one turn that counts."""

    async def play(turn: Turn) -> None:
        turn.vars.add("n", 1)
        turn.reply(f"to {said}")

    return await session.take_turn(play, said, **options)  # type: ignore[arg-type]


class Reads:
    """Counts the calls that read from a store's backend."""

    def __init__(self, store: turnkeeper.Store) -> None:
        self.count, self._read = 0, store._engine.backend.read
        store._engine.backend.read = self  # type: ignore[method-assign]

    async def __call__(self, requests: object) -> object:
        """Count, then read."""
        self.count += 1
        return await self._read(requests)  # type: ignore[arg-type]


@pytest.mark.parametrize(("durable", "reads"), [(False, 1), (True, 1)])
async def test_a_turn_of_the_owner_reads_once(store: turnkeeper.Store, durable: bool, reads: int) -> None:
    session = await store.create_session()
    await speak(session, "one")
    await speak(session, "two")
    counted = Reads(store)
    for i in range(5):
        await speak(session, f"more {i}", key=f"k{i}", durable_input=durable)
    assert counted.count <= 5 * reads
    assert (await session.state())["vars"] == {"n": 7}


async def test_what_another_store_changed_meanwhile_is_never_overlooked(url: str) -> None:
    async with turnkeeper.open(url) as store:
        session = await store.create_session()
        await speak(session, "one")
        await asyncio.create_task(_elsewhere(url, session.session_id))
        await speak(session, "three", durable_input=False)
        assert [m.text for m in await session.messages()] == ["one", "to one", "note 0", "note 1", "three", "to three"]
        assert (await session.state())["vars"] == {"n": 2}


async def _elsewhere(url: str, session_id: str) -> None:
    """Write on the session through an engine of its own, as another process would, unless the store is only memory."""
    from turnkeeper.api import PLAN, Store
    from turnkeeper.clock import system_clock
    from turnkeeper.store.engine import Engine

    if url.startswith("memory:"):
        other = await turnkeeper.open(url)
    else:
        backend = _backend(url, PLAN, system_clock)
        await backend.open()
        engine = Engine(backend, PLAN.tables)
        other = Store(engine, engine.close)
    async with other:
        for i in range(2):
            await (await other.session(session_id)).append("assistant", f"note {i}")


def _backend(url: str, plan: object, clock: object) -> object:
    if url.startswith("postgres"):
        from turnkeeper.store.postgres import PostgresBackend

        return PostgresBackend(url, plan)  # type: ignore[arg-type]
    from turnkeeper.store.sqlite import SQLiteBackend

    return SQLiteBackend(url, plan, clock=clock)  # type: ignore[arg-type]


async def test_a_key_that_has_landed_is_found_without_reading_for_it(store: turnkeeper.Store) -> None:
    session = await store.create_session()
    first = await speak(session, "one", key="k")
    await speak(session, "two", key="k2")
    claim = await session.claim()
    async with session.turn("one") as turn:
        turn.reply("again")
        outcome = turn.outcome()
    request = turn._request
    keyed = type(outcome)(
        type(request)(request.kind, request.input, "k", request.digest, request.take, request.at),
        0, None, outcome.messages, [], [],
    )  # fmt: skip
    with pytest.raises(turnkeeper.AlreadyLanded) as answered:
        await store.turns.commit_turn(session.session_id, keyed, claim)
    assert answered.value.turn == first
    assert len(await session.messages()) == 6
