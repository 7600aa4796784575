"""Foreign chats land in a store: nothing missing, nothing twice, and everything works on them as on a chat of our own."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import turnkeeper
from turnkeeper.errors import Gone, Invalid, NotFound
from turnkeeper.jsonvalue import same
from turnkeeper.limits import BASE_BYTES
from turnkeeper.records import BASES, DELIVERIES, IMPORT_SOURCES, KEYFRAMES, RECORDS, TIPS, VERSIONS
from turnkeeper.transfer import load, sillytavern
from turnkeeper.transfer.imported import (
    Imported,
    ImportedMessage,
    ImportedSession,
    ImportedTake,
    ImportedVersion,
    Loss,
)
from turnkeeper.transfer.summaries import summary

SAMPLES = Path(__file__).parent.parent / "data" / "samples"
EXPECTED = json.loads((SAMPLES / "expected.json").read_text(encoding="utf-8"))["entries"]
FILES = sorted(name for name in EXPECTED if name.startswith("sillytavern/") and (SAMPLES / name).is_file())


def read(name: str) -> Imported:
    return sillytavern.read(name, (SAMPLES / name).read_bytes())


def chat(*texts: str, variables: dict[str, Any] | None = None, sha: str = "sha") -> Imported:
    """A chat of one take; its texts by turns of user and assistant."""
    messages = tuple(
        ImportedMessage(
            "assistant" if i % 2 else "user", None, False, None, {}, (ImportedVersion([_text(text)], {}, {}, None),), 0
        )
        for i, text in enumerate(texts)
    )
    take = ImportedTake("main", messages, variables or {}, {}, active=True)
    return Imported("test", sha, (ImportedSession("source", "A chat", (take,), {}, None),), ())


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


async def land(store: turnkeeper.Store, imported: Imported) -> turnkeeper.Session:
    (report,) = await store.transfer.import_chat(imported)
    return await store.session(report.session_id)


@pytest.mark.parametrize("name", ["modern", "old-2023", "crlf"])
async def test_a_sample_is_stored_as_its_expectation_says(store: turnkeeper.Store, name: str) -> None:
    """Every key of expected.json, read from the store after the landing."""
    expected = EXPECTED[f"sillytavern/{name}.jsonl"]
    session = await land(store, read(f"sillytavern/{name}.jsonl"))
    found = summary(await store.transfer.stored(session.session_id))
    assert {key: found[key] for key in ("format", "file_sha256", "totals")} == {
        key: expected[key] for key in ("format", "file_sha256", "totals")
    }
    for got, wanted in zip(found["sessions"], expected["sessions"], strict=True):
        assert {key: got[key] for key in wanted if key != "takes"} == {
            key: wanted[key] for key in wanted if key != "takes"
        }
        for take, wanted_take in zip(got["takes"], wanted["takes"], strict=True):
            for key in wanted_take:
                assert same(take[key], wanted_take[key]), key
    assert {loss["kind"] for loss in expected["loss_report"]} <= {loss["kind"] for loss in found["loss_report"]}


@pytest.mark.parametrize("name", FILES)
async def test_any_sample_reads_back_equal_in_everything(store: turnkeeper.Store, name: str) -> None:
    """All that the reader found, `extra` of every level and the loss report included; and so its lines can be written."""
    imported = read(name)
    reports = await store.transfer.import_chat(imported)
    assert [report.added for report in reports] == [True] * len(imported.sessions)
    for report in reports:
        stored = await store.transfer.stored(report.session_id)
        assert stored == imported
        for was, now in zip(imported.sessions[0].takes, stored.sessions[0].takes, strict=True):
            assert [json.dumps(sillytavern.write_line(m)) for m in now.messages] == [
                json.dumps(sillytavern.write_line(m)) for m in was.messages
            ]
            assert json.dumps(sillytavern.write_header(now)) == json.dumps(sillytavern.write_header(was))


@pytest.mark.parametrize("name", FILES)
async def test_the_same_file_again_adds_nothing(store: turnkeeper.Store, name: str) -> None:
    first = await store.transfer.import_chat(read(name))
    imported = sillytavern.read("another name.jsonl", (SAMPLES / name).read_bytes())
    again = await store.transfer.import_chat(imported)
    assert [(r.session_id, r.added) for r in again] == [(r.session_id, False) for r in first]
    assert len(await store.sessions()) == len(first)


async def test_a_deleted_chat_may_be_imported_again(store: turnkeeper.Store) -> None:
    imported = read("sillytavern/crlf.jsonl")
    first = await land(store, imported)
    await first.delete()
    with pytest.raises(Gone):
        await store.transfer.stored(first.session_id)
    (report,) = await store.transfer.import_chat(imported)
    assert report.added and report.session_id != first.session_id
    assert await store.transfer.stored(report.session_id) == imported
    assert not (await store.transfer.import_chat(imported))[0].added


async def test_another_life_of_the_id_does_not_hold_the_source(store: turnkeeper.Store) -> None:
    imported = chat("a")
    first = await land(store, imported)
    await first.delete()
    await store.create_session(first.session_id)
    with pytest.raises(NotFound, match="was not imported"):
        await store.transfer.stored(first.session_id)
    assert (await store.transfer.import_chat(imported))[0].added


async def test_what_is_kept_of_a_source_after_its_deletion_are_counts(store: turnkeeper.Store) -> None:
    imported = read("sillytavern/modern.jsonl")
    session = await land(store, imported)
    await session.delete()
    kept = await store.look(lambda rows: rows.get(IMPORT_SOURCES, load.source_of(imported, 0)))
    assert kept is not None
    assert kept.report == [
        {"kind": kind, "count": 1}
        for kind in ("date_without_zone", "variables_without_history", "attachment_without_bytes")
    ]
    assert not await store.look(lambda rows: rows.count(RECORDS, session.session_id, "import"))


async def test_two_importers_at_once_make_one_session(store: turnkeeper.Store) -> None:
    imported = read("sillytavern/modern.jsonl")
    both = await asyncio.gather(store.transfer.import_chat(imported), store.transfer.import_chat(imported))
    assert sorted(report.added for (report,) in both) == [False, True]
    assert len({report.session_id for (report,) in both}) == 1
    assert len(await store.sessions()) == 1


async def test_an_import_joins_the_block_it_is_called_in(store: turnkeeper.Store) -> None:
    with pytest.raises(RuntimeError, match="undo"):
        async with store.transaction() as tx:
            (report,) = await tx.transfer.import_chat(chat("a", "b"))
            assert [m.text for m in await tx.history.messages(report.session_id)] == ["a", "b"]
            raise RuntimeError("undo")
    assert await store.sessions() == []
    assert (await store.transfer.import_chat(chat("a", "b")))[0].added


@pytest.mark.claim("S-196", "S-200")
async def test_variables_are_the_base_and_all_caches_follow(store: turnkeeper.Store) -> None:
    """Also when the chat holds no message; the tip, a keyframe and the fold say the same."""
    for count in (0, 1, 49, 50, 51, 120):
        session = await land(store, chat(*map(str, range(count)), variables={"oil": 3}, sha=f"sha{count}"))
        assert await session.state() == {"vars": {"oil": 3}}
        if count:
            assert await session.state(at=count - 1) == {"vars": {"oil": 3}}
            assert await store.history.scene_state_before(session.session_id, 0) == {"vars": {"oil": 3}}
        where = (session.session_id, 0)
        frames = await store.look(lambda rows, at=where: rows.scan(KEYFRAMES, *at))
        assert [(f.position, f.shown_count, f.state) for f in frames] == [
            (n - 1, n, {"vars": {"oil": 3}}) for n in range(50, count + 1, 50)
        ]
        tips = await store.look(lambda rows, at=where: rows.scan(TIPS, *at))
        assert [(tip.position, tip.state) for tip in tips] == [(count - 1, {"oil": 3})]
        assert [take.shown_count for take in await session.takes()] == [count]


@pytest.mark.claim("S-198")
async def test_the_first_turn_after_an_import_sees_its_variables_and_messages(store: turnkeeper.Store) -> None:
    session = await land(store, read("sillytavern/modern.jsonl"))
    variables = EXPECTED["sillytavern/modern.jsonl"]["sessions"][0]["takes"][0]["variables"]
    async with session.turn("And now?") as turn:
        assert same(dict(turn.vars), variables)
        prompt = await turn.messages()
        assert len(prompt) == 120 - 4 + 1 and prompt[-1]["text"] == "And now?"  # four hidden lines stay out
        turn.vars.add("oil", -5)
        turn.reply("It is late.")
    assert (await session.state())["vars"]["oil"] == variables["oil"] - 5
    assert (await session.state(at=119))["vars"]["oil"] == variables["oil"]


async def test_swipes_regenerate_and_fork_work_on_an_imported_chat(store: turnkeeper.Store) -> None:
    session = await land(store, read("sillytavern/modern.jsonl"))
    base = await session.state()
    versions = await session.versions(0)
    assert [v.index for v in versions] == [0, 1, 2] and len({v.text for v in versions}) == 3
    await store.history.select_swipe(session.session_id, 0, 2)
    assert (await session.messages())[0].text == versions[2].text
    assert await session.state() == base
    last = (await session.messages(last=2))[0]  # the chat ends with a line of the user's
    assert (last.position, last.role) == (118, "assistant")
    async with session.regenerate(at=118) as turn:
        assert same({"vars": dict(turn.vars)}, base)
        turn.vars["oil"] = 1
        turn.reply("Another end.")
    assert (await session.state())["vars"]["oil"] == 1
    alternatives = await session.alternatives(118)
    assert len(alternatives) == last.versions + 1 and alternatives[-1].shown
    await session.choose(last.index, 118)
    assert await session.state() == base
    assert (await session.messages(last=2))[0].text == last.text
    other = await session.fork(at=60)
    assert len(await other.messages()) == 61
    assert await other.state() == base
    stored = await store.transfer.stored(session.session_id)
    assert [len(take.messages) for take in stored.sessions[0].takes] == [120, 61]


async def test_times_a_source_has_not_stay_unknown(store: turnkeeper.Store) -> None:
    session = await land(store, read("sillytavern/dates.jsonl"))
    dates = EXPECTED["sillytavern/dates.jsonl"]["sessions"][0]["takes"][0]["dates_utc"]
    assert [m.created_at is None for m in await session.messages()] == [date is None for date in dates]
    assert None in dates


async def test_takes_that_share_messages_share_their_versions(store: turnkeeper.Store) -> None:
    whole = chat("a", "b", "c", "d")
    (take,) = whole.sessions[0].takes
    end = chat("x").sessions[0].takes[0].messages
    swiped = replace(take.messages[1], versions=(*take.messages[1].versions, *end[0].versions))
    takes = (
        replace(take, messages=(take.messages[0], swiped, *take.messages[2:]), variables={"n": 1}, active=False),
        replace(
            take,
            name="side",
            messages=(take.messages[0], replace(swiped, shown=1), *end),
            variables={"n": 2},
            active=True,
        ),
        replace(take, name="alone", messages=chat("z").sessions[0].takes[0].messages, active=False),
    )
    imported = replace(whole, sessions=(replace(whole.sessions[0], takes=takes),))
    session = await land(store, imported)
    rows = await session.takes()
    assert [(t.name, t.parent_take, t.parent_position, t.cursor, t.kind) for t in rows] == [
        ("main", None, None, 4, "import"),
        ("side", 0, 1, 3, "import"),
        ("alone", None, None, 1, "import"),
    ]
    assert await store.look(lambda found: found.count(VERSIONS, session.session_id)) == 6  # a, b, x, c, d, z
    assert [m.text for m in await session.messages()] == ["a", "x", "x"]
    assert await session.state() == {"vars": {"n": 2}}
    assert await session.take(0).state() == {"vars": {"n": 1}}
    assert [m.text for m in await session.take(0).messages()] == ["a", "b", "c", "d"]
    back = await store.transfer.stored(session.session_id)
    assert back == imported
    assert summary(back)["totals"] == summary(imported)["totals"] == {"sessions": 1, "takes": 3, "versions": 6}


async def test_a_source_of_many_sessions_gives_each_its_own_losses(store: turnkeeper.Store) -> None:
    one, two = chat("a").sessions[0], replace(chat("b").sessions[0], source_id="second", title="Second", takes=())
    losses = (
        Loss("odd", {"line": 1}, "kept"),
        Loss("node_lost", {"conversation": "second", "node": "n"}, "kept"),
    )
    imported = Imported("test", "many", (one, two), losses)
    reports = await store.transfer.import_chat(imported)
    stored = [await store.transfer.stored(report.session_id) for report in reports]
    assert [part.sessions[0] for part in stored[:1]] == [one]
    assert [[loss.kind for loss in part.losses] for part in stored] == [["odd"], ["node_lost"]]
    assert not any(report.added for report in await store.transfer.import_chat(imported))
    assert await (await store.session(reports[1].session_id)).messages() == []


async def test_one_event_tells_of_an_import_and_is_to_be_delivered(store: turnkeeper.Store) -> None:
    session = await land(store, read("sillytavern/modern.jsonl"))
    events = await store.lifecycle.events(session.session_id)
    assert [event.type for event in events] == ["session.created", "session.imported"]
    body = events[1].body
    assert (body["takes"], body["messages"], body["versions"]) == (1, 120, 254)
    assert body["losses"] == {"date_without_zone": 1, "variables_without_history": 1, "attachment_without_bytes": 1}
    deliveries = await store.look(lambda rows: rows.scan(DELIVERIES, session.session_id, 1))
    assert [delivery.state for delivery in deliveries] == ["pending"]


async def test_variables_too_large_for_a_base_are_kept_and_told(store: turnkeeper.Store) -> None:
    imported = chat("a", variables={"big": "x" * BASE_BYTES})
    (report,) = await store.transfer.import_chat(imported)
    assert [loss.kind for loss in report.losses] == ["variables_too_large"]
    session = await store.session(report.session_id)
    assert await session.state() == {"vars": {}}
    assert not await store.look(lambda rows: rows.count(BASES, session.session_id))
    stored = await store.transfer.stored(report.session_id)
    assert stored.sessions == imported.sessions and [loss.kind for loss in stored.losses] == ["variables_too_large"]


async def test_a_long_loss_report_is_kept_whole_and_in_order(store: turnkeeper.Store) -> None:
    losses = tuple(Loss("odd", {"line": n}, "kept") for n in range(load.LOSSES_A_RECORD * 2 + 7))
    imported = replace(chat("a"), losses=losses)
    session = await land(store, imported)
    assert (await store.transfer.stored(session.session_id)).losses == losses


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"role": "narrator"}, "takes[0].messages[0].role"),
        ({"shown": 1}, "takes[0].messages[0].shown"),
        ({"versions": ()}, "takes[0].messages[0].shown"),
    ],
)
async def test_a_malformed_message_is_refused_and_nothing_is_left(
    store: turnkeeper.Store, change: dict[str, Any], path: str
) -> None:
    whole = chat("a")
    (take,) = whole.sessions[0].takes
    broken = replace(take, messages=(replace(take.messages[0], **change),))
    imported = replace(whole, sessions=(replace(whole.sessions[0], takes=(broken,)),))
    with pytest.raises(Invalid) as caught:
        await store.transfer.import_chat(imported)
    assert caught.value.fields["path"] == path
    assert await store.sessions() == []
    assert await store.look(lambda rows: rows.get(IMPORT_SOURCES, load.source_of(imported, 0))) is None


async def test_what_was_read_is_copied(store: turnkeeper.Store) -> None:
    imported = chat("a", variables={"list": [1]})
    before = copy.deepcopy(imported)
    session = await land(store, imported)
    imported.sessions[0].takes[0].variables["list"].append(2)
    imported.sessions[0].takes[0].messages[0].versions[0].parts[0]["text"] = "changed"
    assert await store.transfer.stored(session.session_id) == before


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
async def test_other_tasks_go_on_while_a_long_chat_lands(store: turnkeeper.Store) -> None:
    """A guard against one long step, not a measurement: 5,000 messages, and a task that wants to run every moment."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    try:
        session = await land(store, chat(*map(str, range(5000))))
    finally:
        ticking.cancel()
    assert ticks > 10
    assert len(await session.messages()) == 5000
