"""Connections to PostgreSQL that are cut, and a server that goes away: nothing acknowledged is lost, nothing is half there.

Every error that reaches a caller is retryable; a retry with the same key lands once. The store heals by itself.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import msgspec
import pytest

import turnkeeper
from tests.faults.story import Ledger, faults_of_store
from tests.support.postgres import Server, fresh_schema_url, restart, run_sql, server, terminate_backends
from turnkeeper.errors import AlreadyLanded, Damaged, OutcomeUnknown, Unavailable

pytestmark = pytest.mark.parametrize("backend", ["postgres"])


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """Run a server that these tests alone may stop."""
    with server() as running:
        yield running


@pytest.fixture
async def mortal(own_server: Server) -> AsyncIterator[turnkeeper.Store]:
    """Open a store on it."""
    async with turnkeeper.open(fresh_schema_url(own_server.url)) as store:
        yield store


async def insist(ledger: Ledger, session: turnkeeper.Session, key: str) -> int:
    """Play a turn until it has landed; answer how often that was refused."""
    async with asyncio.timeout(60):
        refused = 0
        while True:
            try:
                await ledger.play(session, key)
                return refused
            except AlreadyLanded as landed:
                ledger.hear(["landed", key, msgspec.to_builtins(landed.turn)])
                return refused
            except Unavailable as error:
                assert error.retryable
                refused += 1
                if not isinstance(error, OutcomeUnknown):
                    with suppress(Unavailable):
                        assert key not in [m.text.split()[-1] for m in await session.messages(last=2)]
            await asyncio.sleep(0.01)


async def play(ledger: Ledger, sessions: list[turnkeeper.Session], turns: int, name: str) -> int:
    """Play turns on all sessions at once; answer how often one was refused."""

    async def one(session: turnkeeper.Session) -> int:
        return sum([await insist(ledger, session, f"{session.session_id}-{name}-{i}") for i in range(turns)])

    return sum(await asyncio.gather(*(one(session) for session in sessions)))


@pytest.mark.field("F-7")
async def test_a_connection_that_is_cut_during_a_turn_costs_at_most_a_retry(
    backend: str, url: str, store: turnkeeper.Store
) -> None:
    session = await store.create_session("cave")
    for number in range(6):
        landed = False
        try:
            async with session.turn(f"input {number}", key=f"k{number}") as turn:
                assert await terminate_backends(url)
                turn.reply(f"reply {number}")
            landed = True
        except Unavailable as error:
            assert error.retryable
            if not isinstance(error, OutcomeUnknown):
                assert len(await session.messages()) == 2 * number
        try:
            async with session.turn(f"input {number}", key=f"k{number}") as turn:
                turn.reply(f"reply {number}")
            assert not landed
        except AlreadyLanded:
            pass
        assert [m.text for m in await session.messages(last=2)] == [f"input {number}", f"reply {number}"]
        assert len(await session.messages()) == 2 * number + 2
        assert await session.pending() == []


@pytest.mark.field("F-7")
async def test_connections_cut_at_random_under_load_lose_nothing(
    backend: str, url: str, store: turnkeeper.Store
) -> None:
    ledger, chance, cut = Ledger(), random.Random(3), 0
    sessions = [await store.create_session(f"s{i}") for i in range(8)]
    playing = asyncio.create_task(play(ledger, sessions, 15, "cut"))
    while not playing.done():
        await asyncio.sleep(chance.random() / 30)
        cut += await terminate_backends(url, only=chance.choice(["%land%", None]))
    refused = await playing
    assert cut > 3
    assert refused, "not one landing met a cut connection"
    assert len(ledger.landed) == 120
    assert await faults_of_store(store, ledger) == []


@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_a_server_that_restarts_under_load_loses_no_acknowledged_turn(
    backend: str, own_server: Server, mortal: turnkeeper.Store, how: str
) -> None:
    ledger = Ledger()
    sessions = [await mortal.create_session(f"s{i}") for i in range(8)]
    playing = asyncio.create_task(play(ledger, sessions, 60, how))
    await asyncio.sleep(0.15)
    before = len(ledger.landed)
    assert not playing.done()
    await asyncio.to_thread(restart, own_server, how)
    await playing
    assert before < len(ledger.landed) == 8 * 60
    assert await faults_of_store(mortal, ledger) == []


@pytest.mark.field("F-29")
async def test_a_history_behind_a_dead_server_is_an_error_and_never_an_empty_one(
    backend: str, own_server: Server, mortal: turnkeeper.Store
) -> None:
    ledger = Ledger()
    session = await mortal.create_session("cave")
    await insist(ledger, session, "k0")
    await asyncio.to_thread(own_server.stop, "fast")
    try:
        async with asyncio.timeout(60):
            answers = await asyncio.gather(
                session.messages(), session.state(), mortal.sessions(), ledger.play(session, "greeting"),
                return_exceptions=True,
            )  # fmt: skip
        assert [type(answer) for answer in answers] == [Unavailable] * 4
    finally:
        await asyncio.to_thread(own_server.start)
    assert len(await session.messages()) == 2
    await insist(ledger, session, "k1")
    assert len(await session.messages()) == 4
    assert await session.pending() == []
    assert await faults_of_store(mortal, ledger) == []


@pytest.mark.field("F-38")
async def test_a_landing_of_which_one_row_is_refused_leaves_no_other_row(
    backend: str, url: str, store: turnkeeper.Store
) -> None:
    """The server refuses one kind of row of every turn, as a full or broken tablespace would."""
    schema, ledger = url.rpartition("=")[2], Ledger()
    sessions = [await store.create_session(f"s{i}") for i in range(4)]
    await play(ledger, sessions, 2, "before")
    await run_sql(url, f"ALTER TABLE \"{schema}\".deliveries ADD CONSTRAINT none CHECK (state = 'no') NOT VALID")
    answers = await asyncio.gather(
        *(ledger.play(session, f"{session.session_id}-refused") for session in sessions), return_exceptions=True
    )
    assert all(isinstance(answer, turnkeeper.TurnkeeperError) for answer in answers), answers
    for session in sessions:
        ledger.hear(["over", f"{session.session_id}-refused"])
        assert len(await session.messages()) == 4
        assert [pending.state for pending in await session.pending()] == ["failed"]
    assert await faults_of_store(store, ledger) == []
    await run_sql(url, f'ALTER TABLE "{schema}".deliveries DROP CONSTRAINT none')
    for session in sessions:
        await insist(ledger, session, f"{session.session_id}-refused")
        assert await session.pending() == []
    assert await faults_of_store(store, ledger) == []


@pytest.mark.field("F-38")
async def test_a_row_that_cannot_be_read_is_reported_and_never_left_out(
    backend: str, url: str, store: turnkeeper.Store
) -> None:
    ledger, schema = Ledger(), url.rpartition("=")[2]
    session = await store.create_session("cave")
    for number in range(3):
        await insist(ledger, session, f"k{number}")
    await run_sql(url, f'UPDATE "{schema}".versions SET parts = \'[{{"type": "te\' WHERE version = 3')
    with pytest.raises(Damaged) as damaged:
        await session.messages()
    assert damaged.value.fields["table"] == "versions"
    assert len(await session.messages(last=1)) == 1


@pytest.mark.field("F-32")
async def test_a_store_whose_schema_is_gone_is_an_error_and_no_new_one_is_made(
    backend: str, url: str, store: turnkeeper.Store
) -> None:
    schema = url.rpartition("=")[2]
    session = await store.create_session("cave")
    await insist(Ledger(), session, "k0")
    await run_sql(url, f'ALTER SCHEMA "{schema}" RENAME TO "{schema}_away"')
    with pytest.raises(turnkeeper.TurnkeeperError):
        await session.take_turn(nothing, "lost?", key="k1")
    assert await run_sql(url, "SELECT 1 FROM pg_namespace WHERE nspname = $1", schema) == []
    await run_sql(url, f'ALTER SCHEMA "{schema}_away" RENAME TO "{schema}"')
    await session.take_turn(nothing, "back", key="k1")
    assert len(await session.messages()) == 4


async def nothing(turn: turnkeeper.Turn) -> None:
    turn.reply("and then")
