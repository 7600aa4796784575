"""SillyTavern chats out again: line for line what came in, and after an edit only the edited lines differ."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import turnkeeper
from tests.pure.test_sillytavern import NAMES, parse, sample, strict
from turnkeeper.history.content import message
from turnkeeper.transfer import archive, sillytavern

ODD = (
    b"\xef\xbb\xbf\r\n"
    b'{"user_name":"Ann","character_name":"Bo","chat_metadata":{"note":[1.0,1e3],"variables":{"b":1,"a":{"x":[]}}}}\r\n'
    b"not json {{\r\n"
    b"\r\n"
    b'{"name":"Ann","is_user":true,"mes":"One","send_date":1700000000000,"odd":{"$raw":"x"},"big":123456789012345678901}\r\n'
    b"[1,2]\r\n"
    b'{"name":"Bo","mes":"Two","is_user":false,"swipes":["Zero","Two"],"swipe_id":1,"swipe_info":[{"send_date":"","extra":{}}]}\r\n'
    b"   \r\n"
    b'{"no":"mes"}\r\n'
    b'{"name":"Ann","is_user":true,"mes":"Three"}\r\n'
    b"half a li"
)


async def taken(store: turnkeeper.Store, content: bytes, name: str = "chat.jsonl") -> turnkeeper.Session:
    (report,) = await store.transfer.import_chat(sillytavern.read(name, content))
    return await store.session(report.session_id)


async def lines_of(session: turnkeeper.Session, folder: Path, name: str = "out.jsonl") -> list[bytes]:
    await session.export_chat(folder / name)
    content = (folder / name).read_bytes()
    (folder / name).unlink()
    return content.removeprefix(b"\xef\xbb\xbf").split(b"\n")


def alike(ours: list[bytes], source: bytes) -> list[int]:
    """Compare line by line: as JSON with key order, and what is no JSON byte for byte. Answers the lines that differ."""
    theirs = source.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    while theirs and not theirs[-1]:
        theirs.pop()
    while ours and not ours[-1]:
        ours.pop()
    assert len(ours) == len(theirs)
    differ = []
    for number, (one, two) in enumerate(zip(ours, theirs, strict=True)):
        if one.strip() == two.strip():
            continue
        try:
            if strict(parse(one)) != strict(parse(two)):
                differ.append(number)
        except ValueError:
            differ.append(number)
    return differ


@pytest.mark.parametrize("name", [name for name in NAMES if "empty" not in name])
async def test_an_unchanged_chat_goes_back_line_for_line(store, tmp_path, name):
    session = await taken(store, sample(name))
    assert alike(await lines_of(session, tmp_path), sample(name)) == []


async def test_blank_lines_broken_lines_and_line_ends_stand_where_they_stood(store, tmp_path):
    session = await taken(store, ODD)
    assert alike(await lines_of(session, tmp_path), ODD) == []
    await session.export_chat(tmp_path / "all.jsonl")
    content = (tmp_path / "all.jsonl").read_bytes()
    assert content.startswith(b"\xef\xbb\xbf") and content.count(b"\r\n") >= 9
    again = await taken(store, content, "all.jsonl")
    assert alike(await lines_of(again, tmp_path), ODD) == []


@pytest.mark.parametrize("name", ["sillytavern/modern.jsonl", "sillytavern/old-2023.jsonl"])
async def test_after_an_edit_only_the_edited_lines_differ(store, tmp_path, name):
    content = sample(name)
    session = await taken(store, content)
    before = await lines_of(session, tmp_path)
    has_header = "mes" not in parse(before[0])
    number = await store.history.add_version(session.session_id, 4, message("assistant", "Another way."))
    assert number is not None
    after = await lines_of(session, tmp_path)
    changed = [i for i, (one, two) in enumerate(zip(before, after, strict=True)) if one != two]
    assert changed == [4 + has_header]
    line = json.loads(after[4 + has_header])
    assert line["swipes"][-1] == "Another way." and line["mes"] == line["swipes"][line["swipe_id"]]
    assert len(line.get("swipe_info", [])) <= len(line["swipes"])
    await session.undo()
    await session.cut(5)
    assert await lines_of(session, tmp_path) != before
    await session.undo()
    first = await session.messages()
    async with session.turn("One more line.") as turn:
        turn.reply("And its answer.")
    grown = await lines_of(session, tmp_path)
    assert grown[: len(before) - 1] == [*after[:0], *grown[: len(before) - 1]]
    tail = [json.loads(line) for line in grown[-3:-1]]
    assert [(line["is_user"], line["mes"]) for line in tail] == [(True, "One more line."), (False, "And its answer.")]
    again = await taken(store, b"\n".join(grown), "grown.jsonl")
    assert [m.text for m in await again.messages()] == [*(m.text for m in first), "One more line.", "And its answer."]


async def test_what_a_turn_sets_is_in_the_header_and_nowhere_else(store, tmp_path):
    session = await taken(store, sample("sillytavern/modern.jsonl"))
    before = await lines_of(session, tmp_path)
    await store.history.record_message_deltas(session.session_id, 1, _sets(coins=12))
    after = await lines_of(session, tmp_path)
    assert [i for i, (one, two) in enumerate(zip(before, after, strict=True)) if one != two] == [0]
    assert json.loads(after[0])["chat_metadata"]["variables"]["coins"] == 12


def _sets(**values: Any) -> Any:
    from tests.support.scenes import sets

    return sets(**values)


async def test_a_chat_that_began_here_becomes_a_chat_file_that_is_read_again(store, tmp_path):
    session = await store.create_session(title="The cellar")
    call = {"type": "tool_call", "id": "c1", "name": "dig", "args": {}}
    async with session.turn("Hello") as turn:
        turn.vars["lamp"] = {"on": True}
        turn.reply([{"type": "thinking", "text": "Hm."}, {"type": "text", "text": "Who is there?"}])
    async with session.regenerate() as turn:
        turn.vars["lamp"] = {"on": False}
        turn.reply("It is dark. \ud800")
    await session.append("assistant", [call, {"type": "text", "text": "I dig."}])
    losses = await session.export_chat(tmp_path / "out.jsonl")
    assert [(loss.kind, loss.where) for loss in losses] == [("tool_call_left_out", {"position": 2})]
    header, *lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert header["chat_metadata"]["variables"] == {"lamp": {"on": False}} and header["character_name"] == "The cellar"
    assert lines[1]["swipes"] == ["Who is there?", "It is dark. \ud800"] and lines[1]["swipe_id"] == 1
    assert lines[1]["swipe_info"][0]["extra"] == {"reasoning": "Hm."}
    read = await taken(store, (tmp_path / "out.jsonl").read_bytes(), "back.jsonl")
    assert [m.text for m in await read.messages()] == ["Hello", "It is dark. \ud800", "I dig."]
    assert (await read.state())["vars"] == {"lamp": {"on": False}}


async def test_a_fork_has_the_header_of_the_take_it_came_from(store, tmp_path):
    content = sample("sillytavern/modern.jsonl")
    session = await taken(store, content)
    fork = await session.fork(10)
    await fork.export_chat(tmp_path / "fork.jsonl")
    ours = (tmp_path / "fork.jsonl").read_bytes().splitlines()
    assert len(ours) == 12 and alike(ours[1:], b"\n".join(content.splitlines()[1:12])) == []
    header, source = json.loads(ours[0]), json.loads(content.splitlines()[0])
    assert list(header) == list(source)


async def test_a_chat_that_went_through_an_archive_still_goes_back_line_for_line(store, tmp_path):
    session = await taken(store, ODD)
    file = io.BytesIO()
    await store.transfer.write_archive(session.session_id, file)
    async with turnkeeper.open("memory:") as other:
        file.seek(0)
        report = await other.transfer.import_archive(archive.read(file))
        assert alike(await lines_of(await other.session(report.session_id), tmp_path), ODD) == []
