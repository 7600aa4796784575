"""The chats of one SillyTavern story, a file for each branch: one session with a take for each, and each file again."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import turnkeeper
from tests.real.test_cli import run, run_json
from tests.real.test_foreign import EXPECTED, SAMPLES, differences
from turnkeeper.jsonvalue import same
from turnkeeper.transfer import formats
from turnkeeper.transfer.imported import Imported
from turnkeeper.transfer.summaries import summary

SET = SAMPLES / "sillytavern/branches"
FILES = sorted(SET.iterdir())


def wanted() -> dict[str, Any]:
    """What is expected of the set; its paths are relative to the folder here."""
    expected: dict[str, Any] = json.loads(json.dumps(EXPECTED["sillytavern/branches/"]))
    for file in expected["files"]:
        file["path"] = Path(file["path"]).name
    return expected


def compare(found: dict[str, Any]) -> None:
    expected = wanted()
    kinds = {loss["kind"] for loss in expected.pop("loss_report")}
    assert kinds <= {loss["kind"] for loss in found["loss_report"]}
    assert differences(expected, json.loads(json.dumps(found))) == []


def line(
    who: str, *swipes: str, shown: int = 0, date: str | None = "2026-01-01T00:00:00Z", **more: Any
) -> dict[str, Any]:
    made = {"name": who, "is_user": who == "Wren", "send_date": date, "mes": swipes[shown], **more}
    if len(swipes) > 1:
        info = [{"send_date": date, "extra": {}} for _ in swipes]
        made |= {"swipe_id": shown, "swipes": list(swipes), "swipe_info": info}
    return {key: value for key, value in made.items() if value is not None}


def folder(tmp_path: Path, **chats: list[dict[str, Any]]) -> Path:
    for name, lines in chats.items():
        text = "".join(json.dumps(one) + "\n" for one in lines)
        (tmp_path / f"{name}.jsonl").write_bytes(text.encode())
    return tmp_path


def header(**metadata: Any) -> dict[str, Any]:
    return {"user_name": "Wren", "character_name": "Tobin", "chat_metadata": metadata}


def takes(read: Imported, session: int = 0) -> dict[str, list[str]]:
    return {take.name: [message.text for message in take.messages] for take in read.sessions[session].takes}


def test_the_sample_is_read_as_expected() -> None:
    compare(summary(formats.read(SET)))


async def test_the_sample_is_stored_as_expected_and_adds_nothing_again(store: turnkeeper.Store) -> None:
    (report,) = await store.transfer.import_file(SET)
    assert report.added
    compare(summary(await store.transfer.stored(report.session_id)))
    (again,) = await store.transfer.import_file(SET)
    assert (again.added, again.session_id) == (False, report.session_id)


async def test_each_file_of_the_set_comes_out_line_for_line(store: turnkeeper.Store, tmp_path: Path) -> None:
    """Also where another file had more versions of a shared message, or a field that the copy lacks."""
    (report,) = await store.transfer.import_file(SET)
    for take in await store.history.takes(report.session_id):
        out = tmp_path / "out.jsonl"
        await store.transfer.export_chat(report.session_id, out, take=take.take)
        assert take.name is not None
        source = (SET / f"{take.name}.jsonl").read_bytes()
        pairs = zip(source.splitlines(), out.read_bytes().splitlines(), strict=True)
        for number, (old, new) in enumerate(pairs, 1):
            assert same(json.loads(old), json.loads(new)) and list(json.loads(old)) == list(json.loads(new)), number
        out.unlink()


def test_a_zip_of_them_is_the_same(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as packed:
        for file in FILES:
            packed.write(file, file.name)
    compare(summary(formats.read(tmp_path / "set.zip")))


def test_the_command_line_tells_the_tree(tmp_path: Path) -> None:
    store = str(tmp_path / "story.db")
    found = run_json("import", SET, store=store)
    compare(found)
    drawn = run("tree", found["session_ids"][0], store=store).output
    assert all(file.stem in drawn.replace("\n", "") or file.stem[:12] in drawn for file in FILES)


def test_equal_words_after_a_fork_stay_apart(tmp_path: Path) -> None:
    """They are shared only if all before them is shared."""
    first, said = line("Tobin", "Hello."), line("Wren", "Well?")
    main, branch = ([first, line("Tobin", text), said] for text in ("A.", "B."))
    read = formats.read(folder(tmp_path, a=[header(), *main], b=[header(main_chat="a"), *branch]))
    (session,) = read.sessions
    one, two = session.takes
    assert one.messages[0].versions[0] is two.messages[0].versions[0]
    assert one.messages[2].versions[0] is not two.messages[2].versions[0]
    assert summary(read)["totals"] == {"sessions": 1, "takes": 2, "versions": 5}


def test_the_longer_list_is_shared_and_each_shows_its_own(tmp_path: Path) -> None:
    longer, shorter = line("Tobin", "1", "2", "3", shown=2), line("Tobin", "1", "2", shown=1)
    read = formats.read(folder(tmp_path, a=[header(), longer], b=[header(main_chat="a"), shorter]))
    assert takes(read) == {"a": ["3"], "b": ["2"]}
    assert [len(take.messages[0].versions) for take in read.sessions[0].takes] == [3, 3]


def test_two_stories_with_the_same_greeting_are_two_sessions(tmp_path: Path) -> None:
    """Undated, the words prove nothing; dated at other times, they are other messages."""
    undated = line("Tobin", "Hello.", date=None)
    read = formats.read(folder(tmp_path, a=[header(), undated], b=[header(), undated]))
    assert len(read.sessions) == 2 and read.format == "sillytavern"
    other = line("Tobin", "Hello.", date="2026-01-02T00:00:00Z")
    read = formats.read(folder(tmp_path, a=[header(), line("Tobin", "Hello.")], b=[header(), other]))
    assert len(read.sessions) == 2
    assert {loss.where["conversation"] for loss in read.losses} == {"a", "b"} or not read.losses


def test_chats_that_name_each_other_in_a_ring_are_all_read(tmp_path: Path) -> None:
    first = line("Tobin", "Hello.")
    read = formats.read(folder(tmp_path, a=[header(main_chat="b"), first], b=[header(main_chat="a"), first, first]))
    assert set(takes(read)) == {"a", "b"}


def test_lost_links_name_their_line(tmp_path: Path) -> None:
    linked = line("Tobin", "Hello.", extra={"branches": ["gone", "b"], "bookmark_link": "lost"})
    read = formats.read(folder(tmp_path, a=[header(main_chat="away"), linked], b=[header(), line("Tobin", "Hi.")]))
    assert [loss.where for loss in read.losses if loss.kind == "link_target_missing"] == [
        {"line": 1, "target": "away", "file": "a.jsonl", "conversation": "a"},
        {"line": 2, "target": "gone", "file": "a.jsonl", "conversation": "a"},
        {"line": 2, "target": "lost", "file": "a.jsonl", "conversation": "a"},
    ]


def test_details_that_are_no_objects_do_not_stop_the_search_for_links(tmp_path: Path) -> None:
    odd = {**line("Tobin", "1", "2"), "swipe_info": [5, None]}
    assert takes(formats.read(folder(tmp_path, a=[header(), odd], b=[header(main_chat="a"), odd])))["b"] == ["1"]


async def test_a_chat_that_came_alone_and_then_in_a_folder_is_one(store: turnkeeper.Store, tmp_path: Path) -> None:
    folder(tmp_path, a=[header(), line("Tobin", "Hello.")], b=[header(), line("Wren", "Another story.")])
    (alone,) = await store.transfer.import_file(tmp_path / "a.jsonl")
    both = await store.transfer.import_file(tmp_path)
    assert sorted(report.added for report in both) == [False, True]
    assert alone.session_id in {report.session_id for report in both if not report.added}
