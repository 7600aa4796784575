"""The file under a SQLite store: locked by another program, moved away, replaced, not ours, not writable, not there.

Each is a clear error, and nothing is changed, made or mixed up.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import turnkeeper
from tests.faults.stepped import open_stepped
from tests.support.workers import worker
from turnkeeper.errors import IncompatibleStore, TurnkeeperError, Unavailable
from turnkeeper.records import VERSIONS
from turnkeeper.store.migrations import VERSION

pytestmark = pytest.mark.parametrize("backend", ["sqlite"])


async def one_turn(session: turnkeeper.Session, text: str) -> None:
    async with session.turn(f"input {text}", key=text) as turn:
        turn.reply(f"reply {text}")


async def made(path: Path, *texts: str) -> None:
    """Make a store with one session and some turns."""
    async with turnkeeper.open(path) as store:
        session = await store.create_session("cave")
        for text in texts:
            await one_turn(session, text)


def seen(folder: Path) -> dict[str, bytes]:
    """Answer every file below a folder with its content, and every folder."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in sorted(folder.rglob("*"))}


async def test_a_landing_waits_for_a_program_that_holds_the_database_and_the_loop_goes_on(
    backend: str, tmp_path: Path
) -> None:
    path = tmp_path / "story.db"
    await made(path)
    async with turnkeeper.open(path) as store, worker("foreign", path=str(path)) as other:
        session = await store.session("cave")
        await one_turn(session, "before")
        await other.expect("locked")
        waiting = asyncio.create_task(one_turn(session, "meanwhile"))
        loop, slowest, asked = asyncio.get_running_loop(), 0.0, loop_time()
        while loop_time() < asked + 0.5:
            started = loop.time()
            await asyncio.sleep(0.005)
            slowest = max(slowest, loop.time() - started)
            assert len(await session.messages()) == 2, "readers go on"
        assert slowest < 0.4, "the loop was kept from running"
        assert not waiting.done()
        await other.tell("let go")
        await other.expect("unlocked")
        async with asyncio.timeout(20):
            await waiting
        assert len(await session.messages()) == 4


def loop_time() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.field("F-32")
async def test_a_stopped_process_that_holds_the_lock_makes_a_landing_fail_and_not_hang(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process was stopped in the middle of its commit: its lock files stay locked until it goes on."""
    monkeypatch.setattr("turnkeeper.store.sqlite_writer.FOREIGN_LOCK_MS", 200)
    path = tmp_path / "story.db"
    async with turnkeeper.open(path) as store:
        session = await store.create_session("cave")
        await one_turn(session, "one")
        for name in ("turn", "gate"):
            handle = os.open(tmp_path / "story.db-locks" / name, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                with pytest.raises(Unavailable, match="Another process"):
                    await asyncio.wait_for(session.append("user", "lost?"), 20)
                assert [m.text for m in await session.messages()] == ["input one", "reply one"]
            finally:
                os.close(handle)
        await one_turn(session, "two")
        assert len(await session.messages()) == 4


async def test_a_database_that_was_moved_away_is_an_error_and_no_new_one_is_made(backend: str, tmp_path: Path) -> None:
    path, away = tmp_path / "story.db", tmp_path / "unplugged"
    away.mkdir()
    async with turnkeeper.open(path) as store:
        session = await store.create_session("cave")
        await one_turn(session, "before")
        for name in ("story.db", "story.db-wal", "story.db-shm"):
            (tmp_path / name).rename(away / name)
        with pytest.raises(Unavailable, match="moved away"):
            await one_turn(session, "lost?")
        with pytest.raises(Unavailable, match="moved away"):
            await session.append("system", "lost?")
        assert not path.exists()
        for name in ("story.db", "story.db-wal", "story.db-shm"):
            (away / name).rename(tmp_path / name)
        await one_turn(session, "after")
        assert [m.text for m in await session.messages()] == [
            "input before",
            "reply before",
            "input after",
            "reply after",
        ]
    with pytest.raises(Unavailable):
        await turnkeeper.open(tmp_path / "nowhere" / "story.db", create=False)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.field("F-32")
async def test_a_database_that_was_replaced_is_neither_written_nor_read_by_mistake(
    backend: str, tmp_path: Path
) -> None:
    path = tmp_path / "story.db"
    await made(tmp_path / "other.db", "of the other")
    store = await turnkeeper.open(path)
    session = await store.create_session("cave")
    await one_turn(session, "ours")
    (tmp_path / "other.db").replace(path)
    with pytest.raises(Unavailable, match="replaced"):
        await one_turn(session, "lost?")
    async with AsyncExitStack() as stack:  # more readers than were open before
        for _ in range(12):
            with contextlib.suppress(Unavailable):
                view = await stack.enter_async_context(store.read_view())
                found = await view.scan(VERSIONS, "cave")
                assert all("ours" in str(version.parts) for version in found), "another database was read"
    with pytest.raises(Unavailable, match="replaced"):
        await store.close()  # the session could not be given back
    with contextlib.closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM versions").fetchall() == [(2,)]


@pytest.mark.field("F-32")
async def test_a_folder_that_turned_into_something_else_is_an_error(backend: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    async with turnkeeper.open(folder / "story.db") as store:
        session = await store.create_session("cave")
        await one_turn(session, "before")
        folder.rename(tmp_path / "moved")
        folder.write_text("a file now")
        async with asyncio.timeout(20):
            with pytest.raises(Unavailable):
                await one_turn(session, "lost?")
        folder.unlink()
        (tmp_path / "moved").rename(folder)
        await one_turn(session, "after")
        assert len(await session.messages()) == 4


def a_directory(path: Path) -> None:
    path.mkdir()


def a_text(path: Path) -> None:
    path.write_text("It was a dark and stormy night. " * 100)


def a_short_text(path: Path) -> None:
    path.write_text("hello")


def a_foreign_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
        connection.execute("INSERT INTO notes VALUES ('mine')")
        connection.commit()


def a_foreign_database_in_wal_mode(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA application_id = 77")
        connection.execute("CREATE TABLE notes (text TEXT)")
        connection.commit()


WRONG = [a_directory, a_text, a_short_text, a_foreign_database, a_foreign_database_in_wal_mode]


@pytest.mark.parametrize("make", WRONG, ids=lambda make: make.__name__)
@pytest.mark.parametrize("create", [True, False])
async def test_what_is_not_ours_is_refused_and_left_as_it_is(
    backend: str, tmp_path: Path, make: Callable[[Path], None], create: bool
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    path = folder / "story.db"
    make(path)
    before = seen(folder)
    with pytest.raises(Unavailable if make is a_directory else IncompatibleStore) as refused:
        await turnkeeper.open(path, create=create)
    assert str(path) in str(refused.value)
    assert seen(folder) == before


async def test_a_path_that_is_not_there_is_refused_without_create(backend: str, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no database"):
        await turnkeeper.open(tmp_path / "story.db", create=False)
    with pytest.raises(Unavailable):
        await turnkeeper.open(tmp_path / "no" / "folder" / "story.db")
    assert seen(tmp_path) == {}


async def test_a_newer_schema_is_refused_and_left_as_it_is(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "story.db"
    await made(path, "old")
    await (await open_stepped(path)).close()
    before = seen(tmp_path)
    with pytest.raises(IncompatibleStore, match=f"schema version {VERSION + 1}"):
        await turnkeeper.open(path)
    assert seen(tmp_path)["story.db"] == before["story.db"]


@pytest.mark.parametrize("what", ["folder", "file", "unreadable"])
async def test_what_may_not_be_written_is_refused_and_left_as_it_is(backend: str, tmp_path: Path, what: str) -> None:
    """Opened by a process without the right; root, which has every right, becomes nobody first."""
    folder = Path(tempfile.mkdtemp(prefix="tk-weak-"))
    folder.chmod(0o777)
    try:
        path = folder / "story.db"
        await made(path, "old")
        before = seen(folder)
        path.chmod(0o000 if what == "unreadable" else 0o444)
        folder.chmod(0o777 if what != "folder" else 0o555)
        async with worker("weak", url=str(path), warm=str(tmp_path / "warm.db")) as other:
            await other.expect("ready")
            await other.tell("go")
            _, code, why = await other.expect("refused")
        assert code == "unavailable"
        assert "story.db" in why
        path.chmod(0o644)
        assert seen(folder)["story.db"] == before["story.db"]
    finally:
        folder.chmod(0o777)
        shutil.rmtree(folder)


async def test_two_processes_that_make_one_database_at_once_both_have_it(backend: str, tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}.db") for number in range(10)]
    async with worker("open_once", urls=paths) as one, worker("open_once", urls=paths) as two:
        for path in paths:
            for other in (one, two):
                await other.expect("ready")
            for other in (one, two):
                await other.tell("go")
            names = [(await other.expect("opened"))[1] for other in (one, two)]
            async with turnkeeper.open(path, create=False) as store:
                assert {info.session_id for info in await store.sessions()} == set(names)


async def test_a_step_that_two_processes_take_at_once_is_taken_once(backend: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.db" for number in range(4)]
    for path in paths:
        await made(path, "old")
    urls = [str(path) for path in paths]
    async with worker("open_once", urls=urls, step=True) as one, worker("open_once", urls=urls, step=True) as two:
        for path in paths:
            for other in (one, two):
                await other.expect("ready")
            for other in (one, two):
                await other.tell("go")
            names = [(await other.expect("opened"))[1] for other in (one, two)]
            store = await open_stepped(path)
            assert {info.session_id for info in await store.sessions()} == {"cave", *names}
            assert len(await (await store.session("cave")).messages()) == 2
            await store.close()
            with contextlib.closing(sqlite3.connect(path)) as connection:
                assert connection.execute("SELECT count(*) FROM step_marks").fetchall() == [(1,)]


async def test_a_step_that_fails_leaves_the_old_version_as_it_was(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "story.db"
    await made(path, "old")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE step_marks (other TEXT)")  # in the way of the step's second statement
    with pytest.raises(TurnkeeperError):
        await open_stepped(path)
    async with turnkeeper.open(path) as store:
        assert len(await (await store.session("cave")).messages()) == 2
