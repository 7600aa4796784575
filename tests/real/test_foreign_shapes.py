"""Odd shapes of foreign files: trees with holes and circles, marked, deep and broken documents, databases in use."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import turnkeeper
from turnkeeper.errors import Invalid
from turnkeeper.transfer import formats
from turnkeeper.transfer.imported import Imported
from turnkeeper.transfer.summaries import summary

SAMPLES = Path(__file__).parent.parent / "data" / "samples"
EXPORTS = ["chatgpt/conversations.json", "claude/conversations.json", "librechat/export.json", "openwebui/export.json"]
DATABASES = sorted(f"databases/{path.name}" for path in (SAMPLES / "databases").glob("*.db"))


def write(tmp_path: Path, value: Any, name: str = "conversations.json") -> Path:
    path = tmp_path / name
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return path


def kinds(imported: Imported) -> set[str]:
    return {loss.kind for loss in imported.losses}


def sample(name: str) -> Any:
    return json.loads((SAMPLES / name).read_bytes())


# ---- trees -----------------------------------------------------------------------------------------------------------


def tree(*links: tuple[str, str | None, list[str] | None], current: Any = None) -> list[Any]:
    mapping: dict[str, Any] = {}
    for number, (node, parent, children) in enumerate(links):
        message = None
        if not node.startswith("-"):
            message = {
                "author": {"role": "user"}, "create_time": number + 1, "recipient": "all",
                "content": {"content_type": "text", "parts": [node]},
            }  # fmt: skip
        mapping[node] = {"id": node, "parent": parent, "children": children or [], "message": message}
    return [{"title": "t", "conversation_id": "c", "mapping": mapping, "current_node": current}]


def paths(imported: Imported) -> list[list[str]]:
    return [[message.text for message in take.messages] for take in imported.sessions[0].takes]


@pytest.mark.field("F-135")
def test_a_node_without_message_in_the_middle_leaves_one_line(tmp_path: Path) -> None:
    given = tree(("-r", None, ["a"]), ("a", "-r", ["-s"]), ("-s", "a", ["b"]), ("b", "-s", []), current="b")
    assert paths(formats.read(write(tmp_path, given))) == [["a", "b"]]


def test_circles_are_cut_and_nothing_is_lost(tmp_path: Path) -> None:
    given = tree(("a", "c", ["b"]), ("b", "a", ["c"]), ("c", "b", ["a"]), ("s", "s", ["s"]), current="c")
    found = formats.read(write(tmp_path, given))
    assert "parent_in_a_circle" in kinds(found)
    assert sorted(map(tuple, paths(found))) == [("a", "b", "c"), ("s",)]


def test_a_long_line_is_no_recursion(tmp_path: Path) -> None:
    count = 5000
    links = [(str(i), str(i - 1) if i else None, [str(i + 1)] if i + 1 < count else []) for i in range(count)]
    assert len(paths(formats.read(write(tmp_path, tree(*links[::-1], current="4999"))))[0]) == count


def test_a_line_that_ends_at_an_inner_node_is_a_take_of_its_own(tmp_path: Path) -> None:
    found = formats.read(write(tmp_path, tree(("a", None, ["b"]), ("b", "a", []), current="a")))
    assert paths(found) == [["a"], ["a", "b"]] and [take.active for take in found.sessions[0].takes] == [True, False]


def test_equal_ids_in_a_list_are_both_kept(tmp_path: Path) -> None:
    export = sample("librechat/export.json")
    export["messages"].append({**export["messages"][0], "text": "another"})
    found = formats.read(write(tmp_path, export))
    assert "node_id_repeated" in kinds(found)
    texts = {v.text for take in found.sessions[0].takes for m in take.messages for v in m.versions}
    assert "another" in texts and len(texts) >= 14


# ---- documents -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPORTS)
def test_a_byte_order_mark_changes_nothing_but_the_report(tmp_path: Path, name: str) -> None:
    marked = formats.read(write(tmp_path, b"\xef\xbb\xbf" + (SAMPLES / name).read_bytes()))
    assert marked.sessions == formats.read(SAMPLES / name).sessions and "byte_order_mark" in kinds(marked)


def test_json_lines_are_read_and_a_broken_one_is_kept(tmp_path: Path) -> None:
    entries = sample("chatgpt/conversations.json")
    lines = [json.dumps(entry) for entry in entries]
    found = formats.read(write(tmp_path, "\n".join([*lines, '{"title": "bro']).encode(), "all.jsonl"))
    assert found.sessions == formats.read(SAMPLES / "chatgpt/conversations.json").sessions
    assert "line_broken" in kinds(found)


@pytest.mark.parametrize("name", ["chatgpt/conversations.json", "claude/conversations.json", "librechat/export.json"])
def test_a_file_that_broke_off_is_refused_with_its_place(tmp_path: Path, name: str) -> None:
    with pytest.raises(Invalid, match="not whole JSON"):
        formats.read(write(tmp_path, (SAMPLES / name).read_bytes()[:-500]))


async def test_what_is_nested_too_deeply_or_too_large_a_number_is_kept_and_lands(
    store: turnkeeper.Store, tmp_path: Path
) -> None:
    entries = sample("chatgpt/conversations.json")[:1]
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    entries[0]["x_deep"], entries[0]["x_large"] = deep, 2**80
    found = formats.read(write(tmp_path, entries))
    kept = found.sessions[0].extra["chatgpt"]["conversation"]
    assert kept["x_large"] == {"$raw": str(2**80)} and "$json" in json.dumps(kept["x_deep"])
    assert {"nested_too_deeply", "number_beyond_64_bits"} <= kinds(found)
    (report,) = await store.transfer.import_chat(found)
    assert (await store.transfer.stored(report.session_id)).sessions == found.sessions


# ---- databases -------------------------------------------------------------------------------------------------------


def test_what_stands_only_in_the_write_ahead_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "their.db"
    shutil.copy(SAMPLES / "databases/openai-plain.db", path)
    owner = apsw.Connection(str(path))
    owner.pragma("journal_mode", "wal")
    owner.execute(
        'INSERT INTO agent_messages (session_id, message_data) VALUES (\'chat-1\', \'{"role": "user", "content": "new"}\')'
    )
    owner.execute("BEGIN IMMEDIATE")  # its owner is at work
    found = formats.read(path)
    owner.close()
    assert found.sessions[0].takes[0].messages[-1].text == "new"


def test_a_pickle_is_kept_as_a_digest_and_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "their.db"
    shutil.copy(SAMPLES / "databases/langgraph.db", path)
    with apsw.Connection(str(path)) as owner:
        owner.execute("UPDATE checkpoints SET type = 'pickle', checkpoint = x'80059596'")
    owner.close()
    found = formats.read(path)
    assert {"pickle_not_loaded", "checkpoint_unreadable"} <= kinds(found)


def test_an_object_on_no_list_is_kept_as_its_fields(tmp_path: Path) -> None:
    path = tmp_path / "their.db"
    shutil.copy(SAMPLES / "databases/langgraph.db", path)
    inner = msgspec.msgpack.encode(["os", "system", "touch gone"])
    blob = msgspec.msgpack.encode({"channel_values": {"messages": [], "x": msgspec.msgpack.Ext(0, inner)}})
    with apsw.Connection(str(path)) as owner:
        owner.execute("UPDATE checkpoints SET checkpoint = ?", (blob,))
    owner.close()
    found = formats.read(path)
    assert found.sessions[0].takes[0].variables == {"x": {"$type": "os.system", "value": "touch gone"}}
    assert "type_unknown" in kinds(found)


ODD_CELLS: list[Any] = [
    None, 1, 2.5, float("inf"), "", "x", '{"a":', "[1]", '{"content":[1,{"type":"text"}]}', '{"role":5,"content":{}}',
    b"\x00\xff", b"\x81\xa1a\xc7", 2**62, '{"actions":{"state_delta":{"k":null}}}',
]  # fmt: skip


@pytest.mark.parametrize("name", DATABASES)
async def test_cells_of_any_type_are_read_or_refused_and_land(tmp_path: Path, name: str) -> None:
    async with turnkeeper.open("memory:") as store:
        for seed in range(30):
            chance, path = random.Random(seed), tmp_path / "their.db"
            shutil.copy(SAMPLES / name, path)
            bend_cells(path, chance)
            try:
                found = formats.read(path)
            except Invalid:
                continue
            summary(found)
            await store.transfer.import_chat(found)


def bend_cells(path: Path, chance: random.Random) -> None:
    owner = apsw.Connection(str(path))
    owner.pragma("foreign_keys", False)
    owner.pragma("synchronous", "OFF")
    names = [row[0] for row in owner.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    tables = [name for name in names if not name.startswith("sqlite_")]
    for _ in range(chance.choice([1, 2, 5])):
        table = chance.choice(tables)
        column = chance.choice([row[1] for row in owner.execute(f'PRAGMA table_info("{table}")')])
        change = f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE rowid % 2 = ?'
        try:
            owner.execute(change, (chance.choice(ODD_CELLS), chance.randrange(2)))
        except apsw.Error:  # an id that must be a number
            continue
    owner.close()
