"""Sealed stores as a whole: keys that open them and keys that do not, another key, and the contract suite once more."""

from __future__ import annotations

import os

import pytest

import turnkeeper
from tests.support import databases
from tests.support.scenes import Scene, scene, sets
from tests.support.sealed import KEY, MARKER, connector
from turnkeeper.records import IMPORT_SOURCES, VERSIONS
from turnkeeper.store.backend import Backend
from turnkeeper.store.sealed import unlocked
from turnkeeper.store.sqlite import SQLiteBackend
from turnkeeper.testing import run
from turnkeeper.transfer import sillytavern


@pytest.mark.field("F-133")
@pytest.mark.parametrize("wrong", [None, bytes(32), "another", KEY[:31] + b"x"])
async def test_a_wrong_key_reads_nothing_and_changes_nothing(url, wrong):
    async with turnkeeper.open(url, key=KEY) as store:
        session = await store.create_session("one", title=MARKER)
        async with session.turn("Hello") as turn:
            turn.vars["a"] = 1
            turn.reply("Here.")
        if url.startswith("memory:"):  # it lives as long as a store has it open
            with pytest.raises(turnkeeper.WrongKey):
                await turnkeeper.open(url, key=wrong)
            assert (await session.state())["vars"] == {"a": 1}
            return
    with pytest.raises(turnkeeper.WrongKey, match="Nothing was read or changed"):
        await turnkeeper.open(url, key=wrong)
    async with turnkeeper.open(url, key=KEY) as store:
        session = await store.session("one")
        assert [shown.text for shown in await session.messages()] == ["Hello", "Here."]
        assert (await session.state())["vars"] == {"a": 1}


@pytest.mark.parametrize("wrong", [b"", b"short", bytes(33), "", "  ", 7])
async def test_a_key_is_32_bytes_or_a_passphrase(url, wrong):
    with pytest.raises(turnkeeper.Invalid, match="32 bytes"):
        await turnkeeper.open(url, key=wrong)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_a_store_that_was_never_sealed_is_not_sealed_by_a_key(url):
    async with turnkeeper.open(url) as store:
        await store.create_session("one")
    with pytest.raises(turnkeeper.WrongKey, match="not sealed"):
        await turnkeeper.open(url, key=KEY)
    async with turnkeeper.open(url) as store:
        assert [found.session_id for found in await store.sessions()] == ["one"]


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_another_key_opens_the_store_and_the_old_one_does_not(url):
    async with turnkeeper.open(url, key=KEY) as store:
        made = await scene(store)
        await made.reply(*sets(a=1), text="before")
        assert await store.rotate_key("a long passphrase") > 5
        assert await made.vars() == {"a": 1}
        await made.reply(*sets(b=2), text="after")
    with pytest.raises(turnkeeper.WrongKey):
        await turnkeeper.open(url, key=KEY)
    async with turnkeeper.open(url, key="a long passphrase") as store:
        again = Scene(store, made.session_id)
        await again.holds()
        assert [shown.text for shown in await again.history.messages(again.session_id)] == ["before", "after"]
        await store.rotate_key(KEY)
        await store.rotate_key(KEY)  # and the first data key is gone
        assert await again.vars() == {"a": 1, "b": 2}


@pytest.mark.parametrize("backend", ["sqlite"])
async def test_turns_land_while_the_key_changes_and_a_handle_of_the_old_key_loses_nothing(url):
    """A second process: it goes on writing under the data key it knows, and is told when it meets a newer one."""
    async with turnkeeper.open(url, key=KEY) as store:
        made = await scene(store)
        await made.reply(*sets(a=1))
        other = turnkeeper.api.Engine(await _another(url), turnkeeper.api.TABLES)
        try:
            assert await store.rotate_key("new") > 0
            await made.reply(*sets(b=2))
            with pytest.raises(turnkeeper.WrongKey):
                await other.look(lambda rows: rows.get(VERSIONS, made.session_id, 1))
        finally:
            await other.close()
        assert await made.vars() == {"a": 1, "b": 2}


async def _another(url: str) -> Backend:
    inner = SQLiteBackend(url, turnkeeper.api.PLAN, clock=turnkeeper.clock.system_clock)
    await inner.open()
    return await unlocked(inner, KEY, turnkeeper.api.TABLES)


async def test_an_open_store_is_not_opened_with_another_key(url):
    async with turnkeeper.open(url, key=KEY):
        with pytest.raises(turnkeeper.WrongKey, match="open already"):
            await turnkeeper.open(url, key="other")
        async with turnkeeper.open(url, key=KEY) as twin:
            await twin.create_session("two")


async def test_a_store_without_a_key_has_none_to_change(store):
    with pytest.raises(turnkeeper.Misuse, match="no key"):
        await store.rotate_key(os.urandom(32))


async def test_what_was_imported_is_known_again_and_not_by_its_digest(url):
    chat = b'{"user_name":"A","character_name":"B"}\n{"name":"A","is_user":true,"mes":"Hi"}\n'
    async with turnkeeper.open(url, key=KEY) as store:
        read = sillytavern.read("chat.jsonl", chat)
        (one,), (two,) = await store.transfer.import_chat(read), await store.transfer.import_chat(read)
        assert (one.added, two.added, one.session_id) == (True, False, two.session_id)
        (known,) = await store.look(lambda rows: rows.scan(IMPORT_SOURCES))
        assert read.file_sha256 not in known.source


@pytest.mark.claim("T-020")
@pytest.mark.parametrize("backend", ["memory", "sqlite"])
async def test_the_contract_holds_for_a_sealed_store(backend, tmp_path):
    def fresh():
        folder = tmp_path / os.urandom(4).hex()
        folder.mkdir()
        return connector(databases.fresh(backend, folder, lambda: ""))

    assert await run(fresh) == []
