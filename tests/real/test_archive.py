"""Our own format: what it carries, that it comes back byte for byte, and that no archive can make an unwell session."""

from __future__ import annotations

import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import turnkeeper
from tests.support.scenes import Scene, exact, sets
from tests.support.sealed import KEY, MARKER
from turnkeeper.history.content import message
from turnkeeper.history.slots import NewDelta
from turnkeeper.jsonvalue import decode
from turnkeeper.records import EVENTS, SNAPSHOTS
from turnkeeper.transfer import archive

SAMPLES = Path(__file__).parent.parent / "data" / "samples"


async def tangled(store: turnkeeper.Store, title: str = "Tangled \ud83d\udd6f") -> Scene:
    """A session with everything that history can do to it."""
    session = await store.create_session(title=title, labels={"mood": "dark"}, metadata={"n": [1, 2.5, None]})
    made = Scene(store, session.session_id)
    for i in range(55):
        await made.reply(*sets(n=i, **{f"k{i % 7}": {"deep": [i]}}), text=f"reply {i} {MARKER}")
    await made.again(10, *sets(n=1000), text="another \ud800 lone one")
    await made.again(54, NewDelta("tracker.stats", ["hp"], 3))
    await made.history.select_swipe(session.session_id, 10, 0)
    await made.history.record_message_deltas(session.session_id, 3, sets(mine=1))
    await made.history.record_deltas(
        session.session_id, 20, await made.shown_version(20), [NewDelta("tracker.stats", ["mp"], 5)]
    )
    await made.history.set_branch_base(session.session_id, {"vars": {"coins": 7}})
    await made.history.cut_messages(session.session_id, [5, 6, 7])
    fork = await made.history.fork(session.session_id, at=30, name="the other door")
    await made.reply(*sets(n=-1), text="elsewhere", take=fork)
    gone = await made.history.fork(session.session_id, at=12)
    await made.history.delete_take(session.session_id, gone)
    await made.history.select_take(session.session_id, fork)
    await made.history.undo(session.session_id)
    call = {"type": "tool_call", "id": "c1", "name": "dig", "args": {"deep": True}}
    result = {"type": "tool_result", "call_id": "c1", "content": {"found": 1}, "is_error": False}
    await made.history.append_messages(
        session.session_id,
        [message("assistant", [call]), message("tool", [result]), message("user", "On.", hidden=True)],
    )
    await store.records.put(session.session_id, "notes", "a", {"b": 1})
    return made


async def written(store: turnkeeper.Store, session_id: str) -> bytes:
    file = io.BytesIO()
    await store.transfer.write_archive(session_id, file)
    return file.getvalue()


async def taken_in(store: turnkeeper.Store, content: bytes) -> Any:
    return await store.transfer.import_archive(archive.read(io.BytesIO(content)))


async def test_an_archive_comes_back_byte_for_byte_with_every_take_and_state(store):
    made = await tangled(store)
    first = await written(store, made.session_id)
    async with turnkeeper.open("memory:") as other:
        report = await taken_in(other, first)
        assert (report.added, report.session_id) == (True, made.session_id)
        assert await written(other, made.session_id) == first
        copy, here = Scene(other, made.session_id), await made.held()
        there = await copy.holds()
        shared = ("takes", "messages", "versions", "deltas", "message_deltas", "bases")
        assert {name: there.rows[name] for name in shared} == {name: here.rows[name] for name in shared}
        for take in here.takes():
            assert exact(await copy.state(take)) == exact(await made.state(take))
        assert [health async for health in other.check() if not health.well] == []
        (info,) = await other.sessions()
        assert (info.title, info.labels, info.metadata) == (
            "Tangled \ud83d\udd6f",
            {"mood": "dark"},
            {"n": [1, 2.5, None]},
        )
        again = await taken_in(other, first)
        assert (again.added, again.session_id) == (False, made.session_id)
        while await made.history.undo(made.session_id):  # what can be undone there can be undone here, to the same end
            assert await copy.history.undo(made.session_id)
            assert exact(await copy.state()) == exact(await made.state())
        assert not await copy.history.undo(made.session_id)
        session = await other.session(made.session_id)
        async with session.turn("And on") as turn:
            turn.vars.add("n", 1)
            turn.reply("Yes.")
        await copy.holds(sparse=copy_takes(there))


def copy_takes(held: Any) -> list[int]:
    return [take for take in held.takes() if take]


async def test_export_writes_a_new_file_and_nothing_over_an_old_one(store, tmp_path):
    made = await tangled(store)
    session = await store.session(made.session_id)
    report = await session.export(tmp_path / "tale.zip")
    assert report.lines["takes"] == 3 and report.lines["versions"] > 55
    async with turnkeeper.open("memory:") as other:
        (taken,) = await other.transfer.import_file(tmp_path / "tale.zip")
        assert taken.added
    with pytest.raises(turnkeeper.Invalid, match="nothing was written"):
        await session.export(tmp_path / "tale.zip")
    with pytest.raises(turnkeeper.Unavailable):
        await session.export(tmp_path / "nowhere" / "tale.zip")
    with pytest.raises(turnkeeper.NotFound):
        await store.transfer.export("nobody", tmp_path / "other.zip")
    assert sorted(path.name for path in tmp_path.iterdir() if "store" not in path.name) == ["tale.zip"]
    with zipfile.ZipFile(tmp_path / "tale.zip") as packed:
        lines = packed.read("messages.jsonl").decode().splitlines()
        assert json.loads(lines[0])["position"] == 0 and "session_id" not in json.loads(lines[0])


async def test_a_session_whose_id_is_taken_gets_another_one(store):
    made = await tangled(store)
    content = await written(store, made.session_id)
    report = await taken_in(store, content)
    assert report.added and report.session_id != made.session_id
    assert exact(await Scene(store, report.session_id).state()) == exact(await made.state())
    assert (await taken_in(store, content)).session_id == report.session_id
    await store.lifecycle.delete(report.session_id)
    third = await taken_in(store, content)
    assert third.added and third.session_id not in (made.session_id, report.session_id)
    await store.lifecycle.delete(made.session_id)
    assert not (await taken_in(store, content)).added
    assert [health async for health in store.check() if not health.well] == []


async def test_a_sealed_session_leaves_its_store_in_plain_text_and_is_sealed_where_it_enters(tmp_path):
    async with turnkeeper.open(tmp_path / "a.db", key=KEY) as store:
        made = await tangled(store)
        content = await written(store, made.session_id)
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        assert MARKER.encode() in packed.read("versions.jsonl")
    async with turnkeeper.open(tmp_path / "b.db", key=b"z" * 32) as other:
        await taken_in(other, content)
        assert await written(other, made.session_id) == content
    assert MARKER.encode() not in (tmp_path / "b.db").read_bytes()


async def test_imported_chats_keep_what_an_export_of_theirs_needs(store):
    (report,) = await store.transfer.import_file(SAMPLES / "sillytavern" / "modern.jsonl")
    before = await store.transfer.stored(report.session_id)
    content = await written(store, report.session_id)
    async with turnkeeper.open("memory:") as other:
        taken = await taken_in(other, content)
        assert await other.transfer.stored(taken.session_id) == before


# ---- what cannot be taken in -----------------------------------------------------------------------------------------


def changed(content: bytes, member: str, edit: Any) -> bytes:
    """An archive with one member edited: bytes in, bytes out; None leaves it out."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            data = edit(old.read(name)) if name == member else old.read(name)
            if data is not None:
                new.writestr(name, data)
    return out.getvalue()


def line(number: int, **values: Any) -> Any:
    def edit(data: bytes) -> bytes:
        lines = data.decode().splitlines()
        row = {**json.loads(lines[number]), **values}
        lines[number] = json.dumps({name: value for name, value in row.items() if value is not ...})
        return ("\n".join(lines) + "\n").encode()

    return edit


def manifest(**values: Any) -> Any:
    def edit(data: bytes) -> bytes:
        found = decode(data.decode())
        found["session"].update(values)
        return json.dumps(found).encode()

    return edit


BAD = [
    ("turnkeeper.json", lambda data: None),
    ("turnkeeper.json", lambda data: b"{}"),
    ("turnkeeper.json", lambda data: b"[1]"),
    ("turnkeeper.json", lambda data: data.replace(b'"version":1', b'"version":"1"')),
    ("turnkeeper.json", manifest(title=3)),
    ("turnkeeper.json", manifest(session_id="")),
    ("turnkeeper.json", manifest(session_id="x" * 5000)),
    ("turnkeeper.json", manifest(session_id="a\0b")),
    ("turnkeeper.json", manifest(active_take=9)),
    ("turnkeeper.json", manifest(next_version=1)),
    ("turnkeeper.json", manifest(next_event=1)),
    ("turnkeeper.json", manifest(undo_event=0)),
    ("turnkeeper.json", manifest(redo=[10**6])),
    ("turnkeeper.json", manifest(unknown=1)),
    ("turnkeeper.json", manifest(created_at=10**30)),
    ("takes.jsonl", lambda data: b""),
    ("takes.jsonl", lambda data: None),
    ("takes.jsonl", line(0, cursor=1)),
    ("takes.jsonl", line(0, parent_take=1)),
    ("takes.jsonl", line(1, take=0)),
    ("takes.jsonl", line(0, kind="other")),
    ("messages.jsonl", line(4, version=10**6)),
    ("messages.jsonl", line(4, position=-1)),
    ("messages.jsonl", line(4, role="narrator")),
    ("messages.jsonl", line(4, versions=[1, 2])),
    ("messages.jsonl", line(4, head=[])),
    ("messages.jsonl", lambda data: data + b'{"take":0}\n'),
    ("messages.jsonl", lambda data: data[: len(data) // 2]),
    ("messages.jsonl", lambda data: data.replace(b'"position":3', b'"position":4', 1)),
    ("versions.jsonl", line(2, parts={})),
    ("versions.jsonl", line(2, parts=[{"type": "tool_call"}])),
    ("versions.jsonl", line(2, parts=[{"type": "text", "text": 7}])),
    ("versions.jsonl", line(2, version=10**6)),
    ("versions.jsonl", line(2, meta=[1])),
    ("versions.jsonl", line(2, session_id="mine")),
    ("versions.jsonl", lambda data: b"\xff" + data),
    ("versions.jsonl", lambda data: b"[" * 100_000 + data),
    ("deltas.jsonl", line(0, slot="nowhere")),
    ("deltas.jsonl", line(0, path=[])),
    ("deltas.jsonl", line(0, path=["a", "b"])),
    ("deltas.jsonl", line(0, version=10**6)),
    ("deltas.jsonl", line(0, value=...)),
    ("message_deltas.jsonl", line(0, position=999)),
    ("message_deltas.jsonl", line(0, version=999)),
    ("bases.jsonl", line(0, state=[1])),
    ("bases.jsonl", line(0, slot="global")),
    ("bases.jsonl", line(0, take=77)),
    ("events.jsonl", line(1, commit_seq=5)),
    ("events.jsonl", lambda data: data.replace(b'"changes":[[', b'"changes":[["never",', 1)),
    ("records.jsonl", line(0, digest="x")),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BAD)))
async def test_an_archive_that_contradicts_itself_is_refused_whole(number):
    member, edit = BAD[number]
    async with turnkeeper.open("memory:") as store:
        made = await tangled(store)
        content = changed(await written(store, made.session_id), member, edit)
        async with turnkeeper.open("memory:") as other:
            with pytest.raises(turnkeeper.Invalid) as told:
                await taken_in(other, content)
            assert "taken in" in str(told.value) or "Nothing" in str(told.value)
            assert await other.sessions() == []


async def test_a_newer_version_says_so_and_a_bomb_is_not_unpacked(store, monkeypatch):
    made = await tangled(store)
    content = await written(store, made.session_id)
    newer = changed(content, "turnkeeper.json", lambda data: data.replace(b'"version":1', b'"version":2'))
    with pytest.raises(turnkeeper.IncompatibleStore, match="version 2"):
        archive.read(io.BytesIO(newer))
    monkeypatch.setattr(archive, "FOREIGN_BYTES", 10_000)
    with pytest.raises(turnkeeper.TooLarge):
        archive.read(io.BytesIO(content))
    with pytest.raises(turnkeeper.Invalid):
        archive.read(io.BytesIO(b"no zip"))


@pytest.mark.parametrize("seed", range(4))
async def test_a_mutated_archive_is_refused_or_makes_a_session_that_is_well(seed, tmp_path):
    chance = random.Random(seed)
    async with turnkeeper.open("memory:") as store:
        made = await tangled(store)
        content = await written(store, made.session_id)
    outcomes = {"refused": 0, "taken": 0}
    async with turnkeeper.open("memory:") as other:
        for _ in range(120):
            member = chance.choice([f"{table.name}.jsonl" for table in archive.CARRIED] + [archive.MANIFEST])
            mutated = changed(content, member, lambda data: mutate(data, chance))
            if chance.random() < 0.1:
                mutated = mutate(content, chance)
            try:
                report = await taken_in(other, mutated)
            except (turnkeeper.Invalid, turnkeeper.TooLarge, turnkeeper.IncompatibleStore):
                outcomes["refused"] += 1
                continue
            outcomes["taken"] += 1
            session = await other.session(report.session_id)
            (health,) = [health async for health in other.check(report.session_id)]
            assert [f for f in health.findings if f.remedy not in ("none", "closed")] == []
            await session.messages()
            while True:
                try:
                    if not await session.undo():
                        break
                except turnkeeper.TurnkeeperError:
                    break
            await session.state()
            await session.delete()
    assert outcomes["refused"] > 10 and outcomes["taken"] > 10, outcomes


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Flip a byte, drop, double or swap lines, or put an odd number or text in the place of one."""
    if not data:
        return b"{}\n"
    lines = data.split(b"\n")
    what, at = chance.randrange(6), chance.randrange(len(lines))
    if what == 0:
        place = chance.randrange(len(data))
        return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
    if what == 1:
        return b"\n".join(lines[:at] + lines[at + 1 :])
    if what == 2:
        return b"\n".join([*lines[: at + 1], *lines[at:]])
    if what == 3:
        chance.shuffle(lines)
        return b"\n".join(line for line in lines if line) + b"\n"
    digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
    if not digits:
        return data
    place = chance.choice(digits)
    odd = chance.choice(
        [b"0", b"-1", b"7", b"99999", b"1e400", b"null", b'"x"', b"[]", b"18446744073709551616", b"true"]
    )
    return data[:place] + odd + data[place + 1 :]


# ---- snapshots -------------------------------------------------------------------------------------------------------


@pytest.mark.claim("S-117", "S-118")
async def test_a_snapshot_brings_back_every_take_its_state_and_the_ties_of_its_writes(store):
    made = await tangled(store)
    session = await store.session(made.session_id)
    before = {take: exact(await made.state(take)) for take in (await made.held()).takes()}
    shown = [one.text for one in await session.messages()]
    number = await session.snapshot("before the storm")
    await made.history.cut_messages(made.session_id, [0, 1, 2, 20, 54])
    await made.reply(*sets(n=5000, new=1))
    await made.history.select_swipe(made.session_id, 10, 1)
    for take in (await made.held()).takes()[1:]:
        await made.history.delete_take(made.session_id, take)
    events = len(await store.look(lambda rows: rows.scan(EVENTS, made.session_id)))
    await session.restore_snapshot(number)
    after = await made.holds()
    assert {take: exact(await made.state(take)) for take in after.takes()} == before
    assert [one.text for one in await session.messages()] == shown
    assert len(await store.look(lambda rows: rows.scan(EVENTS, made.session_id))) == events + 1
    tied = await made.again(20, *sets(n=1))
    assert "mp" not in await made.stats()
    await made.history.select_swipe(made.session_id, 20, 0)
    assert (await made.stats())["mp"] == 5 and tied
    assert not [health async for health in store.check() if not health.well]
    position = await made.reply(*sets(n=1))
    assert position == len((await made.held()).table("messages", 0)) - 1


async def test_snapshots_are_numbered_listed_and_let_go(store, monkeypatch):
    from turnkeeper.transfer import restoring

    monkeypatch.setattr(restoring, "PIECE", 700)
    made = await tangled(store)
    session = await store.session(made.session_id)
    assert await session.snapshots() == []
    assert [await session.snapshot(), await session.snapshot("two \ud800")] == [0, 1]
    first, second = await session.snapshots()
    assert (first.number, first.label, second.label) == (0, None, "two \ud800") and second.size > 2000
    await store.transfer.delete_snapshot(made.session_id, 0)
    assert [info.number for info in await session.snapshots()] == [1]
    assert await session.snapshot() == 2
    for unknown in (0, 9, "1", None):
        with pytest.raises(turnkeeper.NotFound):
            await session.restore_snapshot(unknown)
    await session.restore_snapshot(1)
    await session.delete()
    assert await store.look(lambda rows: rows.count(SNAPSHOTS)) == 0


@pytest.mark.claim("S-117")
async def test_a_snapshot_that_is_damaged_refuses_and_changes_nothing(store):
    made = await tangled(store)
    session = await store.session(made.session_id)
    number = await session.snapshot()
    async with store.transaction() as tx:
        (piece,) = await tx.scan(SNAPSHOTS, made.session_id)
        await tx.update(replace(piece, data=b"PK" + piece.data[9:]), expect={})
    before = await made.held()
    with pytest.raises(turnkeeper.Invalid):
        await session.restore_snapshot(number)
    assert await made.held() == before


async def test_an_archive_holds_no_caches(store):
    made = await tangled(store)
    await made.forget_caches()
    plain = await written(store, made.session_id)
    await made.history.undo(made.session_id)
    await made.history.redo(made.session_id)
    names = zipfile.ZipFile(io.BytesIO(plain)).namelist()
    assert "tips.jsonl" not in names and "keyframes.jsonl" not in names
