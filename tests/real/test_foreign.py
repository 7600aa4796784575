"""Exports of other products, and databases of agent frameworks: as expected after reading and after landing; never a crash."""

from __future__ import annotations

import copy
import json
import random
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import pytest

import turnkeeper
from turnkeeper.errors import Invalid, NotFound, TooLarge
from turnkeeper.jsonvalue import same
from turnkeeper.transfer import formats
from turnkeeper.transfer.imported import Imported
from turnkeeper.transfer.summaries import summary

SAMPLES = Path(__file__).parent.parent / "data" / "samples"
EXPECTED = json.loads((SAMPLES / "expected.json").read_text(encoding="utf-8"))["entries"]
PRODUCTS = ("chatgpt", "claude", "openwebui", "librechat", "databases")
NAMES = sorted(name for name in EXPECTED if name.startswith(PRODUCTS))
EXPORTS = [name for name in NAMES if name.endswith(".json")]


def differences(wanted: Any, found: Any, path: str = "") -> list[str]:
    """List where `found` lacks what is wanted; the order of takes is free, and more keys are fine."""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return [f"{path}: no object"]
        return [
            text
            for key, value in wanted.items()
            for text in (
                differences(value, found[key], f"{path}.{key}") if key in found else [f"{path}.{key} is missing"]
            )
        ]
    if isinstance(wanted, list) and path.endswith(".takes"):
        left, lines = list(found), []
        if len(left) != len(wanted):
            return [f"{path}: {len(left)} takes, not {len(wanted)}"]
        for take in wanted:
            best = min(left, key=lambda one: len(differences(take, one, path)))
            lines += differences(take, best, path)
            left.remove(best)
        return lines
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            return [f"{path}: {found!r:.60} is not {wanted!r:.60}"]
        return [
            text
            for i, pair in enumerate(zip(wanted, found, strict=True))
            for text in differences(*pair, f"{path}[{i}]")
        ]
    return [] if same(wanted, found) else [f"{path}: {found!r:.60} is not {wanted!r:.60}"]


def compare(name: str, found: dict[str, Any]) -> None:
    """Compare a summary with the expectation, losses by kind."""
    wanted = dict(EXPECTED[name])
    kinds = {loss["kind"] for loss in wanted.pop("loss_report")}
    assert kinds <= {loss["kind"] for loss in found["loss_report"]}
    assert differences(wanted, json.loads(json.dumps(found))) == []


def whole(parts: list[Imported]) -> Imported:
    """Join what was read back session by session."""
    first = parts[0]
    return Imported(
        first.format, first.file_sha256,
        tuple(session for part in parts for session in part.sessions), tuple(loss for part in parts for loss in part.losses),
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_read_as_expected(name: str) -> None:
    """Values, and at least the losses named."""
    compare(name, summary(formats.read(SAMPLES / name)))


@pytest.mark.parametrize("name", NAMES)
async def test_a_sample_is_stored_as_expected(store: turnkeeper.Store, name: str) -> None:
    """Read back from the store; the same file again adds nothing."""
    imported = formats.read(SAMPLES / name)
    reports = await store.transfer.import_chat(imported)
    compare(name, summary(whole([await store.transfer.stored(report.session_id) for report in reports])))
    again = await store.transfer.import_chat(formats.read(SAMPLES / name))
    assert [report.added for report in again] == [False] * len(reports)
    assert len(await store.sessions()) == len(reports)
    for report in reports:  # and the conversation goes on
        session = await store.session(report.session_id)
        async with session.turn("And then?") as turn:
            turn.reply("Then this.")
        assert (await session.messages(last=1))[0].text == "Then this."
        assert await session.messages(format="openai")


@pytest.mark.parametrize("name", EXPORTS)
def test_a_zip_and_a_folder_hold_the_same(name: str, tmp_path: Path) -> None:
    """With what else such an export has beside the conversations."""
    plain = summary(formats.read(SAMPLES / name))
    inside = tmp_path / "export"
    inside.mkdir()
    (inside / "conversations.json").write_bytes((SAMPLES / name).read_bytes())
    (inside / "user.json").write_text('{"id": "someone", "email": "a@b.c"}')
    (inside / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with zipfile.ZipFile(tmp_path / "export.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in inside.iterdir():
            archive.write(file, f"export/{file.name}")
    for found in (summary(formats.read(inside)), summary(formats.read(tmp_path / "export.zip"))):
        assert found["sessions"] == plain["sessions"]
        assert {loss["kind"] for loss in found["loss_report"]} > {loss["kind"] for loss in plain["loss_report"]}


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]garbage",
        b"nonsense",
        b"\x00\x01\x02",
        b'{"mapping": 3}',
        b"[1, 2, 3]",
        b"PK\x03\x04broken",
        b"SQLite format 3\x00 no",
    ],
)
def test_what_no_reader_knows_is_refused(content: bytes, tmp_path: Path) -> None:
    """With what to choose instead."""
    (tmp_path / "file.json").write_bytes(content)
    with pytest.raises(Invalid) as caught:
        formats.read(tmp_path / "file.json")
    assert "file.json" in str(caught.value)


def test_a_chat_that_speaks_of_an_exports_fields_is_a_chat(tmp_path: Path) -> None:
    """Whatever it is called."""
    lines = (
        (SAMPLES / "sillytavern/crlf.jsonl")
        .read_bytes()
        .replace(b'"mes":', b'"note": "the \\"mapping\\"", "mapping": 1, "mes":')
    )
    (tmp_path / "chat.txt").write_bytes(lines)
    found = formats.read(tmp_path / "chat.txt")
    assert found.format == "sillytavern"
    assert (
        summary(found)["sessions"][0]["takes"][0]["messages"]
        == EXPECTED["sillytavern/crlf.jsonl"]["sessions"][0]["takes"][0]["messages"]
    )


async def test_what_stands_around_the_conversations_is_kept(tmp_path: Path) -> None:
    """In the report, word for word."""
    content = {
        "account": {"name": "Ann", "n": 2**70},
        "conversations": json.loads((SAMPLES / "claude/conversations.json").read_text()),
    }
    (tmp_path / "export.json").write_text(json.dumps(content))
    async with turnkeeper.open("memory:") as store:
        reports = await store.transfer.import_chat(formats.read(tmp_path / "export.json"))
        losses = (await store.transfer.stored(reports[0].session_id)).losses
    (around,) = [loss for loss in losses if loss.kind == "wrapper_fields"]
    assert around.where["fields"] == {"account": {"name": "Ann", "n": {"$raw": str(2**70)}}}


def test_nothing_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        formats.read(tmp_path / "absent.json")


def test_a_zip_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever size it claims."""
    monkeypatch.setattr(formats, "FOREIGN_BYTES", 100_000)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", b" " * 5_000_000)
    with pytest.raises(TooLarge):
        formats.read(tmp_path / "bomb.zip")


def test_a_members_name_leads_nowhere(tmp_path: Path) -> None:
    """A path out of the zip writes nothing there."""
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.write(SAMPLES / "claude/conversations.json", "../../escaped.json")
    assert formats.read(tmp_path / "export.zip").format == "claude"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export.zip"]


def test_a_foreign_database_is_left_as_it_was(tmp_path: Path) -> None:
    """No byte of it changes, nothing stands beside it, its owner may have it open in the middle of a write."""
    target = tmp_path / "agents.db"
    target.write_bytes((SAMPLES / "databases/openai-plain.db").read_bytes())
    owner = sqlite3.connect(target, isolation_level=None)
    try:
        owner.execute("PRAGMA journal_mode=WAL")
        owner.execute("BEGIN IMMEDIATE")
        before = target.read_bytes(), sorted(tmp_path.iterdir())
        found = formats.read(target)
        assert (target.read_bytes(), sorted(tmp_path.iterdir())) == before
        owner.execute("ROLLBACK")
    finally:
        owner.close()
    assert found.format == "openai-agents"


def test_a_database_with_broken_names_is_refused(tmp_path: Path) -> None:
    """A column's name that is no text: the schema is damaged."""
    content = (SAMPLES / "databases/openai-plain.db").read_bytes()
    (tmp_path / "agents.db").write_bytes(content.replace(b"message_data", b"message\xffdata"))
    with pytest.raises(Invalid, match="damaged"):
        formats.read(tmp_path / "agents.db")


def _mutated(value: Any, chance: random.Random) -> Any:
    """Replace, drop or double a few nodes of a JSON value."""
    odd = [None, True, -1, 2**70, 1e308, "", "\ud800", "9" * 400, [], {}, [None], {"id": None}, {"parts": 3}]
    value = copy.deepcopy(value)
    for _ in range(chance.randint(1, 4)):
        parent, node = None, value
        while isinstance(node, dict | list) and node and (parent is None or chance.random() < 0.85):
            key: Any = chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))
            parent, node = (node, key), node[key]
        if parent is None:
            continue
        holder, key = parent
        match chance.randrange(4):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            case _:
                holder[key] = copy.deepcopy(chance.choice(odd))
    return value


@pytest.mark.parametrize("name", EXPORTS)
async def test_a_bent_export_is_read_or_refused(name: str, tmp_path: Path) -> None:
    """Never a crash, and what is read can be stored."""
    chance = random.Random(7)
    content = json.loads((SAMPLES / name).read_text("utf-8"))
    file = tmp_path / "conversations.json"
    async with turnkeeper.open("memory:") as store:
        for round_no in range(150):
            file.write_text(json.dumps(_mutated(content, chance)), "utf-8")
            try:
                imported = formats.read(file)
            except (Invalid, TooLarge):
                continue
            if round_no % 5 == 0:
                try:
                    reports = await store.transfer.import_chat(imported)
                except (Invalid, TooLarge):
                    continue
                for report in reports:
                    await store.transfer.stored(report.session_id)


@pytest.mark.parametrize("name", NAMES)
def test_broken_bytes_are_read_or_refused(name: str, tmp_path: Path) -> None:
    """Bytes changed, cut and repeated anywhere."""
    chance = random.Random(11)
    whole_file = (SAMPLES / name).read_bytes()
    file = tmp_path / Path(name).name
    for _ in range(40):
        content = bytearray(whole_file)
        for _ in range(chance.randint(1, 8)):
            at = chance.randrange(len(content))
            match chance.randrange(3):
                case 0:
                    content[at] = chance.randrange(256)
                case 1:
                    del content[at : at + chance.randint(1, 200)]
                case _:
                    content[at:at] = content[at : at + chance.randint(1, 50)]
        file.write_bytes(content)
        try:
            summary(formats.read(file))
        except (Invalid, TooLarge):
            pass
