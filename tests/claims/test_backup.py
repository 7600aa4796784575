"""Backups: what was acknowledged before one began is in it, whatever goes on meanwhile; and the way back into any store."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

import turnkeeper
from tests.support.scenes import Scene, scene, sets
from tests.support.sealed import KEY, MARKER, raw
from turnkeeper.records import EVENTS, IMPORT_SOURCES, OWNERS, TABLES
from turnkeeper.transfer import backup as copying
from turnkeeper.transfer import sillytavern

OTHER = bytes(range(32))
CHAT = b'{"user_name":"A","character_name":"B"}\n{"name":"A","is_user":true,"mes":"Hi","send_date":1}\n'


async def every_row(store: turnkeeper.Store) -> dict[str, list[object]]:
    """All records but the owners: a copy has none."""
    async with store.read_view() as rows:
        return {table.name: await rows.scan(table) for table in TABLES if table is not OWNERS}


async def two_tales(store: turnkeeper.Store) -> None:
    """A session with every kind of row, one that was deleted, and an import."""
    made = await scene(store)
    for i in range(53):
        await made.reply(*sets(n=i), text=f"reply {i} {MARKER}")
    await made.again(52, *sets(n=7))
    await made.history.fork(made.session_id, at=20)
    await made.history.record_message_deltas(made.session_id, 3, sets(mine=1))
    await made.history.set_branch_base(made.session_id, {"vars": {"coins": 7}})
    await made.history.cut_messages(made.session_id, [30])
    await store.records.put(made.session_id, "notes", "a", {"b": 1})
    await (await store.create_session("gone", title="Short")).delete()
    await store.create_session("empty", title=MARKER, labels={"a": "b"})
    await known_again(store)


async def known_again(store: turnkeeper.Store) -> bool:
    """Import a chat; say whether it was in the store already."""
    (report,) = await store.transfer.import_chat(sillytavern.read("a.jsonl", CHAT))
    return not report.added


async def clean(store: turnkeeper.Store) -> None:
    assert [health async for health in store.check() if not health.well] == []


async def test_a_backup_under_load_holds_every_turn_acknowledged_before_it_began(url, tmp_path):
    said: dict[str, list[str]] = {f"s{n}": [] for n in range(6)}
    done = asyncio.Event()

    async def play(store: turnkeeper.Store, name: str) -> None:
        session = await store.session(name)
        while not done.is_set():
            line = f"{name} {len(said[name])}"
            async with session.turn(line) as turn:
                turn.vars.add("n", 1)
                turn.reply(f"so be it, {line}")
            said[name].append(line)
            await asyncio.sleep(0.001)

    async with turnkeeper.open(url) as store:
        for name in said:
            await store.create_session(name)
        playing = [asyncio.create_task(play(store, name)) for name in said]
        await asyncio.sleep(0.2)
        before = {name: list(lines) for name, lines in said.items()}
        report = await store.backup(tmp_path / "kept.db")
        after = {name: len(lines) for name, lines in said.items()}
        done.set()
        await asyncio.gather(*playing)
    assert report.sessions == len(said)
    assert after != {name: len(lines) for name, lines in before.items()}, "nobody waited for the backup"
    async with turnkeeper.open(tmp_path / "new.db") as back:
        await back.restore_backup(tmp_path / "kept.db")
        await clean(back)
        for name, lines in before.items():
            session = await back.session(name)
            shown = [one.text for one in await session.messages() if one.role == "user"]
            assert shown[: len(lines)] == lines
            assert (await session.state())["vars"] == {"n": len(shown)}
            assert len(await session.messages()) == 2 * len(shown)


@pytest.mark.parametrize("into", ["memory:", "restored.db"])
async def test_what_comes_back_is_what_was_there(url, tmp_path, into, monkeypatch):
    monkeypatch.setattr(copying, "PAGE", 7)
    async with turnkeeper.open(url) as store:
        await two_tales(store)
        wanted = await every_row(store)
        told: list[int] = []
        report = await store.backup(tmp_path / "kept.db", progress=told.append)
        assert (report.rows, report.passed_over) == (sum(map(len, wanted.values())), [])
        assert told[-1] == report.rows
    async with turnkeeper.open(into if into == "memory:" else tmp_path / into) as back:
        await back.restore_backup(tmp_path / "kept.db")
        assert await every_row(back) == wanted
        await clean(back)
        assert await known_again(back)  # fmt: skip
    assert sorted(
        path.name for path in tmp_path.iterdir() if "restored" not in path.name and "store" not in path.name
    ) == ["kept.db"]


async def test_a_backup_is_restored_into_every_kind_of_store(url, tmp_path):
    async with turnkeeper.open("memory:") as store:
        await two_tales(store)
        wanted = await every_row(store)
        await store.backup(tmp_path / "kept.db")
    kept = (tmp_path / "kept.db").read_bytes()
    async with turnkeeper.open(url) as back:
        report = await back.restore_backup(tmp_path / "kept.db")
        assert await every_row(back) == wanted and report.sessions == 3
        played = Scene(back, wanted["takes"][0].session_id)
        await played.reply(*sets(n=100))
        (*older, new) = await back.look(lambda rows: rows.scan(EVENTS, played.session_id))
        assert new.commit_seq > max(event.commit_seq for event in older)
        again = await back.restore_backup(tmp_path / "kept.db")
        assert (again.sessions, again.rows, len(again.passed_over)) == (0, 0, 3)
        assert (await played.vars())["n"] == 100
    assert (tmp_path / "kept.db").read_bytes() == kept


async def test_what_is_deleted_since_stays_deleted_and_what_is_missing_comes_back(url, tmp_path):
    async with turnkeeper.open("memory:") as store:
        for name in ("a", "b", "c"):
            await store.create_session(name, title=f"Tale {name}")
        await store.backup(tmp_path / "kept.db")
    async with turnkeeper.open(url) as back:
        await (await back.create_session("a", title="Mine")).delete()
        await back.create_session("b", title="Mine too")
        report = await back.restore_backup(tmp_path / "kept.db")
        assert (report.sessions, report.passed_over) == (1, ["a", "b"])
        assert {info.session_id: info.title for info in await back.sessions()} == {"b": "Mine too", "c": "Tale c"}
        await clean(back)


async def test_a_restore_that_was_stopped_goes_on(url, tmp_path, monkeypatch):
    monkeypatch.setattr(copying, "_LANDING_ROWS", 3)
    async with turnkeeper.open("memory:") as store:
        for number in range(9):
            await (await scene(store)).reply(*sets(n=number))
        wanted = await every_row(store)
        await store.backup(tmp_path / "kept.db")

    def stop(rows: int) -> None:
        if rows > 30:
            raise KeyboardInterrupt

    async with turnkeeper.open(url) as back:
        with pytest.raises(KeyboardInterrupt):
            await back.restore_backup(tmp_path / "kept.db", progress=stop)
        assert 0 < len(await back.sessions()) < 9
        await clean(back)
        await back.restore_backup(tmp_path / "kept.db")
        assert await every_row(back) == wanted


@pytest.mark.parametrize("into", [None, KEY, OTHER, "a passphrase"])
async def test_a_sealed_store_is_sealed_in_its_backup_and_comes_back_under_any_key(tmp_path, into):
    async with turnkeeper.open(tmp_path / "store.db", key=KEY) as store:
        await two_tales(store)
        wanted = await every_row(store)
        await store.backup(tmp_path / "kept.db")
    assert MARKER.encode() not in (tmp_path / "kept.db").read_bytes()
    async with turnkeeper.open(tmp_path / "back.db", key=into) as back:
        with pytest.raises(turnkeeper.WrongKey):
            await back.restore_backup(tmp_path / "kept.db")
        assert await back.sessions() == []
        await back.restore_backup(tmp_path / "kept.db", key=KEY)
        got = await every_row(back)
        assert {**got, "seals": []} == {**wanted, "seals": []}
        await clean(back)
        assert await known_again(back) == (into is not None)
    async with turnkeeper.open(tmp_path / "kept.db", key=KEY) as looked_at:
        assert await every_row(looked_at) == wanted


async def test_a_store_is_sealed_by_restoring_its_backup_into_a_sealed_one(url, tmp_path):
    async with turnkeeper.open("memory:") as store:
        await two_tales(store)
        wanted = await every_row(store)
        await store.backup(tmp_path / "kept.db")
    assert MARKER.encode() in (tmp_path / "kept.db").read_bytes()
    async with turnkeeper.open(url, key=KEY) as back:
        await back.restore_backup(tmp_path / "kept.db")
        got = await every_row(back)
        hidden = dict.fromkeys(("seals", "import_sources"))
        assert {**got, **hidden} == {**wanted, **hidden}
        assert await known_again(back)
        known = await back.look(lambda rows: rows.scan(IMPORT_SOURCES))
        assert wanted["import_sources"][0].source not in {source.source for source in known}


async def test_a_damaged_row_travels_and_is_mended_there(tmp_path):
    path = tmp_path / "store.db"
    async with turnkeeper.open(path) as store:
        made = await scene(store)
        await made.reply(text="one")
        await made.reply(text="two")
    raw(str(path), "UPDATE versions SET parts = '[{\"torn' WHERE version = 0")
    async with turnkeeper.open(path) as store:
        await store.backup(tmp_path / "kept.db")
    async with turnkeeper.open(tmp_path / "kept.db") as kept:
        (unwell,) = [health async for health in kept.check()]
        assert [finding.kind for finding in unwell.findings] == ["damaged-row"]
        assert [health.session_id async for health in kept.repair()] == [made.session_id]
        assert [one.text for one in await kept.history.messages(made.session_id)] == ["two"]


async def test_a_backup_never_takes_the_place_of_a_file(store, tmp_path):
    (tmp_path / "kept.db").write_text("mine")
    with pytest.raises(turnkeeper.Invalid, match="nothing was written"):
        await store.backup(tmp_path / "kept.db")
    assert (tmp_path / "kept.db").read_text() == "mine"


async def test_a_place_that_cannot_be_written_is_told_and_nothing_is_left(store, tmp_path):
    with pytest.raises(turnkeeper.Unavailable, match="There is no such file"):
        await store.backup(tmp_path / "nowhere" / "kept.db")

    def stop(rows: int) -> None:
        raise OSError(28, os.strerror(28))

    before = sorted(tmp_path.iterdir())
    await store.create_session("one")
    with pytest.raises(turnkeeper.Unavailable, match="No space left"):
        await store.backup(tmp_path / "kept.db", progress=stop)
    assert [path for path in sorted(tmp_path.iterdir()) if path not in before] == []


async def test_a_backup_that_lies_where_nobody_may_write_is_restored(store, tmp_path):
    place = tmp_path / "shelf"
    place.mkdir()
    await store.create_session("one")
    await store.backup(place / "kept.db")
    (place / "kept.db").chmod(stat.S_IRUSR)
    place.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        async with turnkeeper.open("memory:") as back:
            assert (await back.restore_backup(place / "kept.db")).sessions == 1
        assert [path.name for path in place.iterdir()] == ["kept.db"]
    finally:
        place.chmod(stat.S_IRWXU)


@pytest.mark.parametrize("content", [None, b"", b"no store at all", b"SQLite format 3\0" + bytes(5000)])
async def test_what_is_no_backup_is_refused_and_nothing_is_restored(store, tmp_path, content):
    path = Path(tmp_path / "kept.db")
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(turnkeeper.TurnkeeperError):
        await store.restore_backup(path)
    assert await store.sessions() == []
    assert content is None or path.read_bytes() == content
