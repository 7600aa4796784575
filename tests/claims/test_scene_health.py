"""Claims of the area S health: a check finds what is wrong, position by position; a repair sets aside and loses no row."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

import turnkeeper
from tests.support.scenes import Scene, exact, scene, sets
from tests.support.sealed import KEY, flip, raw
from turnkeeper.health import Health
from turnkeeper.history.content import message
from turnkeeper.history.slots import NewDelta
from turnkeeper.records import DAMAGES, KEYFRAMES, MESSAGES, SESSIONS, TAKES, TIPS, VERSIONS

STAT = NewDelta("tracker.stats", ["hp"], 3)


async def every_kind(store: turnkeeper.Store) -> Scene:
    """A session with rows in every table of state, and a turn that failed with saved writes."""
    made = await scene(store)
    for i in range(52):
        await made.reply(*sets(n=i, **{f"m{i}": i}), text=f"reply {i}")
    await made.history.record_message_deltas(made.session_id, 1, sets(mine=1))
    await made.history.record_deltas(made.session_id, 1, 1, [STAT])
    await made.history.set_branch_base(made.session_id, {"vars": {"coins": 7}})
    session = await store.session(made.session_id)
    with pytest.raises(ZeroDivisionError):
        async with session.turn("Hm?") as turn:
            turn.vars["x"] = 1
            await turn.save()
            raise ZeroDivisionError
    return made


async def found(store: turnkeeper.Store, session_id: str) -> Health:
    (health,) = [health async for health in store.check(session_id)]
    return health


async def mended(store: turnkeeper.Store, session_id: str) -> Health:
    (health,) = [health async for health in store.repair(session_id)]
    return health


def places(health: Health) -> set[tuple[str, str]]:
    return {(finding.kind, finding.place.partition("/")[0]) for finding in health.findings}


async def test_a_sound_session_has_nothing_to_report(store):
    made = await every_kind(store)
    async with (await store.session(made.session_id)).regenerate(at=10) as turn:
        turn.vars["n"] = 100
        turn.reply("Or so.")
    await made.history.fork(made.session_id, at=20)
    await made.history.cut_messages(made.session_id, [30])
    await made.history.undo(made.session_id)
    health = await found(store, made.session_id)
    assert health.well, health.findings
    assert health.rows > 200
    before = await made.held()
    assert (await mended(store, made.session_id)).well
    assert await made.held() == before


DATA = [("deltas", "value"), ("deltas", "path"), ("message_deltas", "value"), ("bases", "state"), ("pending_turns", "writes"),
        ("versions", "parts")]  # fmt: skip
CACHES = [("tips", "state"), ("keyframes", "state")]


@pytest.mark.claim("S-111", "S-112")
@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize(("table", "column"), [*DATA, *CACHES])
async def test_one_changed_byte_in_any_table_is_reported_with_its_row(url, table, column):
    async with turnkeeper.open(url, key=KEY) as store:
        made = await every_kind(store)
    (key,) = raw(url, f"SELECT {', '.join(keys(url, table))} FROM {table} LIMIT 1")
    where = " AND ".join(f"{name} = {value!r}" for name, value in zip(keys(url, table), key, strict=True))
    assert flip(url, table, column, where) == 1
    async with turnkeeper.open(url, key=KEY) as store:
        health = await found(store, made.session_id)
        (finding,) = health.findings
        assert finding.kind == ("damaged-cache" if (table, column) in CACHES else "damaged-row")
        assert finding.place == "/".join([table, *(str(part) for part in key[1:])])
        (listed,) = await store.sessions()
        assert (listed.damaged is not None) == ((table, column) in DATA)
    assert raw(url, f"SELECT count(*) FROM {table}") != [(0,)]


def keys(url: str, table: str) -> list[str]:
    return [row[1] for row in raw(url, f"SELECT * FROM pragma_table_info('{table}') WHERE pk > 0 ORDER BY pk")]


ORPHANS = [
    ("deltas", "UPDATE deltas SET version = 999 WHERE version = 3"),
    ("message_deltas", "UPDATE message_deltas SET position = 999"),
    ("bases", "UPDATE bases SET take = 9"),
    ("tips", "INSERT INTO tips SELECT session_id, 9, slot, position, state FROM tips"),
    ("keyframes", "INSERT INTO keyframes SELECT session_id, 9, position, shown_count, state FROM keyframes"),
    ("messages", "INSERT INTO messages (session_id, take, position, version, role, cut) "
                 "SELECT session_id, 9, 0, 0, 'user', 0 FROM takes"),
    ("versions", "INSERT INTO versions SELECT session_id, 999, created_at, parts, meta, extra FROM versions WHERE version = 1"),
    ("deliveries", "DELETE FROM events WHERE event_no = 4"),
]  # fmt: skip


@pytest.mark.claim("S-113")
@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize(("table", "harm"), ORPHANS)
async def test_a_row_whose_owner_is_gone_is_reported_and_set_aside(url, table, harm):
    async with turnkeeper.open(url) as store:
        made = await every_kind(store)
    raw(url, harm)
    async with turnkeeper.open(url) as store:
        assert ("orphan", table) in places(await found(store, made.session_id))
        assert ("orphan", table) in places(await mended(store, made.session_id))
        assert (await found(store, made.session_id)).well
        kept = await store.look(lambda rows: rows.scan(DAMAGES, made.session_id))
        assert {row.table_name for row in kept} >= {table} and all(row.state == "aside" and row.cells for row in kept)
        await made_anew(store, made.session_id)


async def made_anew(store: turnkeeper.Store, session_id: str) -> None:
    """One change, after which state and caches are what the rows give."""
    again = Scene(store, session_id)
    await again.reply(*sets(after=1))
    held = await again.held()
    for take in held.takes():
        assert exact(await again.state(take)) == exact(held.state(take))


@pytest.mark.claim("S-114", "S-119")
async def test_a_version_goes_aside_with_the_last_message_that_holds_it(store):
    made = await scene(store)
    for i in range(3):
        await made.reply(*sets(**{f"m{i}": i}))
    await made.history.record_message_deltas(made.session_id, 1, sets(mine=1))
    await made.history.record_deltas(made.session_id, 1, 1, [STAT])
    fork = await made.history.fork(made.session_id, at=2)
    await point_at_nothing(store, made.session_id, 0, 1)
    await mended(store, made.session_id)
    held = await made.held()
    assert [row.position for row in held.table("message_deltas", 0)] == []
    assert [row.position for row in held.table("message_deltas", fork)] == [1, 1]
    assert {delta.version for delta in held.rows["deltas"]} == {0, 1, 2}
    assert (await made.vars(fork))["m1"] == 1 and "m1" not in await made.vars(0)
    await point_at_nothing(store, made.session_id, fork, 1)
    await mended(store, made.session_id)
    held = await made.held()
    assert {delta.version for delta in held.rows["deltas"]} == {0, 2}
    assert {version.version for version in held.rows["versions"]} == {0, 2}
    kept = await store.look(lambda rows: rows.scan(DAMAGES, made.session_id))
    assert {row.table_name for row in kept} == {"messages", "message_deltas", "versions", "deltas"}


async def point_at_nothing(store: turnkeeper.Store, session_id: str, take: int, position: int) -> None:
    async with store.transaction() as tx:
        row = await tx.get(MESSAGES, session_id, take, position)
        await tx.update(replace(row, version=10**6, versions=None), expect={})


@pytest.mark.claim("S-115", "S-116")
@pytest.mark.parametrize("backend", ["sqlite"])
async def test_after_a_set_aside_reads_fold_what_is_left_until_a_change_writes_the_caches(url):
    async with turnkeeper.open(url, key=KEY) as store:
        made = await every_kind(store)
        fork = await made.history.fork(made.session_id, at=2)
    assert flip(url, "deltas", "value", "version = 10") == 2
    async with turnkeeper.open(url, key=KEY) as store:
        made = Scene(store, made.session_id)
        health = await mended(store, made.session_id)
        assert {(f.place, f.take, f.position) for f in health.findings} == {
            ("deltas/10/0", 0, 10),
            ("deltas/10/1", 0, 10),
        }
        held = await made.held()
        assert (held.tips(0), held.frames(0)) == ([], [])
        assert held.tips(fork) != []
        assert exact(await made.state()) == exact(held.state(0)) and "m10" not in (await made.vars())
        assert (await made.held()).but("sessions") == held.but("sessions")
        await made.history.set_branch_base(made.session_id, {"vars": {"coins": 8}})
        await made.holds(sparse=[fork])
        (listed,) = await store.sessions()
        assert listed.damaged is None


@pytest.mark.field("F-31", "F-45")
@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("key", [None, KEY])
async def test_one_damaged_session_of_fifty_is_marked_and_all_others_are_read(url, key):
    async with turnkeeper.open(url, key=key) as store:
        for number in range(50):
            session = await store.create_session(f"s{number}", title=f"Tale {number}")
            for i in range(3):
                async with session.turn(f"line {i}") as turn:
                    turn.reply(f"answer {i}")
    harm_version(url, "s7", 4, sealed=key is not None)
    async with turnkeeper.open(url, key=key) as store:
        damaged = await store.session("s7")
        with pytest.raises(turnkeeper.Damaged) as told:
            await damaged.messages()
        assert told.value.fields["key"] == "s7/4"
        listed = {info.session_id: info.damaged for info in await store.sessions()}
        assert len(listed) == 50 and [name for name, mark in listed.items() if mark] == ["s7"]
        assert [shown.text for shown in await damaged.messages(before=4)] == [
            "line 0",
            "answer 0",
            "line 1",
            "answer 1",
        ]
        for number in range(50):
            if number != 7:
                assert len(await (await store.session(f"s{number}")).messages()) == 6
    async with turnkeeper.open(url, key=key) as store:
        unwell = [health async for health in store.check() if not health.well]
        assert [health.session_id for health in unwell] == ["s7"]
        assert (unwell[0].findings[0].position, unwell[0].findings[0].kind) == (4, "damaged-row")
    async with turnkeeper.open(url, key=key) as store:
        (marked,) = [info for info in await store.sessions() if info.damaged]
        assert marked.session_id == "s7" and "message 4" in marked.damaged
        await mended(store, "s7")
        assert [shown.text for shown in await (await store.session("s7")).messages()] == [
            "line 0", "answer 0", "line 1", "answer 1", "answer 2"]  # fmt: skip
        assert not any(info.damaged for info in await store.sessions())


def harm_version(url: str, session_id: str, version: int, *, sealed: bool) -> None:
    where = f"session_id = '{session_id}' AND version = {version}"
    if sealed:
        assert flip(url, "versions", "parts", where) == 1
    else:
        raw(url, f"""UPDATE versions SET parts = '[{{"type":"te' WHERE {where}""")


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("table", ["headers", "sessions", "takes", "messages"])
async def test_a_row_whose_plain_cells_are_well_is_written_anew_without_its_texts(url, table):
    column = {"headers": "title", "sessions": "redo", "takes": "name", "messages": "head"}[table]
    async with turnkeeper.open(url) as store:
        session = await store.create_session("one", title="Tale", labels={"a": "b"})
        async with session.turn("Hello") as turn:
            turn.vars["n"] = 1
            turn.reply("Here.")
    raw(url, f"""UPDATE {table} SET {column} = '{{"torn'""")
    async with turnkeeper.open(url) as store:
        (listed,) = await store.sessions()
        assert listed.session_id == "one"
        health = await mended(store, "one")
        assert {finding.remedy for finding in health.findings} == {"renewed"}
        assert (await found(store, "one")).well
        session = await store.session("one")
        assert [shown.text for shown in await session.messages()] == ["Hello", "Here."]
        assert (await session.state())["vars"] == {"n": 1}
        (listed,) = await store.sessions()
        assert (listed.damaged, listed.title) == (None, None if table == "headers" else "Tale")
        async with session.turn("On") as turn:
            turn.reply("Yes.")


async def test_a_lost_version_gives_way_to_the_nearest_that_is_there(store):
    made = await scene(store)
    await made.reply(*sets(a=1), text="one")
    await made.again(0, *sets(a=2), text="two")
    await made.again(0, *sets(a=3), text="three")
    async with store.transaction() as tx:
        await tx.delete(VERSIONS, made.session_id, 2)
    health = await mended(store, made.session_id)
    assert ("broken-link", "messages") in places(health) and ("orphan", "deltas") in places(health)
    assert [shown.text for shown in await made.history.messages(made.session_id)] == ["two"]
    assert await made.vars() == {"a": 2}
    assert (await found(store, made.session_id)).well


async def test_numbers_that_would_be_given_out_twice_are_counted_anew(store):
    made = await scene(store)
    await made.reply(text="one")
    await made.reply(text="two")
    async with store.transaction() as tx:
        head, take = await tx.get(SESSIONS, made.session_id), await tx.get(TAKES, made.session_id, 0)
        await tx.update(replace(head, next_version=1, next_event=1, next_take=0), expect={})
        await tx.update(replace(take, cursor=1), expect={})
    assert places(await mended(store, made.session_id)) == {("counter", "sessions"), ("counter", "takes")}
    await made.reply(text="three")
    assert [shown.text for shown in await made.history.messages(made.session_id)] == ["one", "two", "three"]
    assert (await found(store, made.session_id)).well


async def test_a_cache_that_lies_is_found_and_thrown_away(store):
    made = await every_kind(store)
    async with store.transaction() as tx:
        tip = await tx.get(TIPS, made.session_id, 0, "vars")
        await tx.update(replace(tip, state={"n": "a lie"}), expect={})
        frame = await tx.get(KEYFRAMES, made.session_id, 0, 49)
        await tx.update(replace(frame, state={"vars": {"n": "a lie"}}), expect={})
    health = await found(store, made.session_id)
    assert places(health) == {("stale-cache", "tips"), ("stale-cache", "keyframes")}
    await mended(store, made.session_id)
    assert (await found(store, made.session_id)).well
    held = await made.held()
    assert exact(await made.state()) == exact(held.state(0)) and held.tips(0) == []


@pytest.mark.field("F-48", "F-50")
async def test_an_open_call_in_the_middle_is_closed_once_and_nothing_else_moves(store):
    made = await scene(store)
    await made.notes(1)
    call = {"type": "tool_call", "id": "c1", "name": "dig", "args": {"deep": True}}
    await made.history.append_messages(
        made.session_id, [message("assistant", [{"type": "text", "text": "I dig."}, call])]
    )
    await made.reply(*sets(a=1), text="later")
    await made.history.record_message_deltas(made.session_id, 1, sets(mine=2))
    await made.history.record_deltas(made.session_id, 1, await made.shown_version(1), [STAT])
    fork = await made.history.fork(made.session_id, at=2)
    before = {take: exact(await made.state(take)) for take in (0, fork)}
    health = await found(store, made.session_id)
    assert {(f.kind, f.take, f.position) for f in health.findings} == {("open-call", 0, 1), ("open-call", fork, 1)}
    await mended(store, made.session_id)
    assert (await found(store, made.session_id)).well
    for take in (0, fork):
        assert exact(await made.state(take)) == before[take]
        shown = await made.history.messages(made.session_id, take=take)
        assert [one.text for one in shown] == ["note 0", "I dig.", "later"]
        assert [part["type"] for part in shown[1].parts] == ["text", "tool_call", "tool_result"]
        assert shown[1].parts[2]["is_error"] and shown[1].parts[2]["call_id"] == "c1"
    versions = len((await made.held()).rows["versions"])
    await mended(store, made.session_id)
    held = await made.holds(sparse=[fork])
    assert len(held.rows["versions"]) == versions
    session = await store.session(made.session_id)
    sent = await session.messages(format="openai")
    assert json.dumps(sent).count('"tool_call_id": "c1"') == 1
    assert await session.undo()
    assert len((await session.messages())[1].parts) == 2


async def test_a_result_that_answers_no_call_is_told_and_left(store):
    made = await scene(store)
    lone = {"type": "tool_result", "call_id": "c9", "content": "?", "is_error": False}
    await made.history.append_messages(made.session_id, [message("tool", [lone])])
    (finding,) = (await found(store, made.session_id)).findings
    assert (finding.kind, finding.position, finding.remedy) == ("stray-result", 0, "none")
    await mended(store, made.session_id)
    assert [shown.parts for shown in await made.history.messages(made.session_id)] == [[lone]]


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("parts", ["{}", '[{"type":"tool_call"}]', "[7]", "null", '"x"', '[{"type":"tool_result"}]'])
async def test_json_that_is_no_content_is_damage_and_not_a_crash(url, parts):
    async with turnkeeper.open(url) as store:
        made = await scene(store)
        await made.reply(text="one")
        await made.reply(text="two")
    raw(url, "UPDATE versions SET parts = ? WHERE version = 0", parts)
    async with turnkeeper.open(url) as store:
        (finding,) = (await found(store, made.session_id)).findings
        assert (finding.kind, finding.position) == ("damaged-row", 0)
        await mended(store, made.session_id)
        assert (await found(store, made.session_id)).well


async def test_a_session_that_is_not_there_is_told(store):
    with pytest.raises(turnkeeper.NotFound):
        await found(store, "nowhere")
    session = await store.create_session("one")
    await session.delete()
    with pytest.raises(turnkeeper.Gone):
        await mended(store, "one")


async def test_deleting_a_damaged_session_takes_what_was_set_aside_along(store):
    made = await scene(store)
    await made.reply(*sets(a=1))
    await point_at_nothing(store, made.session_id, 0, 0)
    await mended(store, made.session_id)
    assert await store.look(lambda rows: rows.count(DAMAGES)) > 0
    await store.lifecycle.delete(made.session_id)
    assert await store.look(lambda rows: rows.count(DAMAGES)) == 0
