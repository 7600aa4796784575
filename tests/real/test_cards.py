"""Character cards and lorebooks: read as expected from every file that carries one, and a session that opens with one."""

from __future__ import annotations

import base64
import io
import json
import random
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

import turnkeeper
from tests.real.test_cli import run, run_json
from tests.real.test_foreign import EXPECTED, SAMPLES, compare
from turnkeeper.errors import Invalid, TooLarge, TurnkeeperError
from turnkeeper.jsonvalue import same
from turnkeeper.transfer import card_files, formats
from turnkeeper.transfer.imported import Imported
from turnkeeper.transfer.summaries import summary

NAMES = sorted(name for name in EXPECTED if name.startswith(("cards/", "lorebook/")))
V1 = {"name": "Ida", "description": "A diver.", "first_mes": "Breathe.", "x_more": [1, None]}
V2 = {"spec": "chara_card_v2", "spec_version": "2.0", "data": {**V1, "alternate_greetings": ["Again.", "Hm."]}}


def png(*chunks: tuple[bytes, bytes], end: bool = True) -> bytes:
    """A picture as far as a reader of its text chunks looks."""
    pieces = [(b"IHDR", bytes(13)), *chunks, *([(b"IEND", b"")] if end else [])]
    packed = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in pieces
    ]
    return card_files.PNG + b"".join(packed)


def carried(value: Any) -> bytes:
    return base64.b64encode(json.dumps(value).encode())


def read(tmp_path: Path, name: str, content: bytes | Any) -> Imported:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return formats.read(path)


def kinds(imported: Imported) -> set[str]:
    return {loss.kind for loss in imported.losses}


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_read_as_expected(name: str) -> None:
    """Values, and at least the losses named; the whole of the file is kept."""
    found = formats.read(SAMPLES / name)
    compare(name, summary(found))
    if name.endswith(".json"):
        whole = found.card or found.lorebook
        assert whole is not None and same(whole.raw, json.loads((SAMPLES / name).read_bytes()))


@pytest.mark.parametrize("name", NAMES)
def test_the_command_line_prints_what_was_read_and_writes_nothing(name: str, tmp_path: Path) -> None:
    store = str(tmp_path / "story.db")
    for _ in range(2):
        found = run_json("import", str(SAMPLES / name), store=store)
        compare(name, found)
        assert (found["added"], found["session_ids"]) == (0, [])
    assert run_json("list", store=store)["sessions"] == []
    assert "Traceback" not in run("import", str(SAMPLES / name), store=store).output


@pytest.mark.parametrize("name", ["cards/v1.json", "cards/v3.png", "cards/clerk.charx"])
async def test_a_session_begins_with_a_card(store: turnkeeper.Store, name: str) -> None:
    """Message 0 has the greetings as versions, the first is shown; choosing and playing on work; the card is kept."""
    card_file = formats.read(SAMPLES / name)
    card = card_file.card
    assert card is not None
    session = await store.session(await store.transfer.begin(card_file))
    assert (await session.info()).title == card.name
    (first,) = await session.messages()
    assert (first.role, first.name, first.text, first.versions) == (
        "assistant", card.name, card.greetings[0], len(card.greetings),
    )  # fmt: skip
    await session.choose(len(card.greetings) - 1)
    assert (await session.messages())[0].text == card.greetings[-1]
    async with session.turn("Good evening.") as turn:
        assert (await turn.messages())[0]["text"] == card.greetings[-1]
        turn.reply("So it is.")
    kept = await store.records.get(session.session_id, "card", "card")
    assert kept is not None and same(kept.body["card"], card.raw)
    again = await store.transfer.begin(card_file, title="Once more")
    assert again != session.session_id


async def test_only_a_card_begins_a_session(store: turnkeeper.Store) -> None:
    with pytest.raises(Invalid):
        await store.transfer.begin(formats.read(SAMPLES / "lorebook/world.json"))
    with pytest.raises(Invalid):
        await store.transfer.begin(formats.read(SAMPLES / "cards/no-chunk.png"))
    assert await store.sessions() == []


def test_begin_on_the_command_line(tmp_path: Path) -> None:
    store = str(tmp_path / "story.db")
    made = run_json("import", str(SAMPLES / "cards/v2.png"), "--begin", store=store)
    assert made["added"] == 1
    assert [one["session_id"] for one in run_json("list", store=store)["sessions"]] == made["session_ids"]
    assert "begins with it" in run("import", str(SAMPLES / "cards/v2.png"), "--begin", store=store).output
    run("import", str(SAMPLES / "lorebook/world.json"), "--begin", store=store, code=2)


def test_an_export_in_one_line_is_a_card_and_no_chat(tmp_path: Path) -> None:
    """The product writes fields into a card that also begin the header of a chat."""
    card = {"name": "Ida", "description": "x" * 9000, "first_mes": "Hm.", "chat": "c", "create_date": "2026-1-1", **V2}
    found = read(tmp_path, "ida.json", card)
    assert found.card is not None and found.card.greetings == ("Breathe.", "Again.", "Hm.")


@pytest.mark.parametrize("chunk", ["tEXt", "zTXt", "iTXt", "packed iTXt"])
def test_every_kind_of_text_chunk(tmp_path: Path, chunk: str) -> None:
    text = carried(V2)
    body = {
        "tEXt": b"chara\x00" + text,
        "zTXt": b"chara\x00\x00" + zlib.compress(text),
        "iTXt": b"chara\x00\x00\x00\x00\x00" + text,
        "packed iTXt": b"chara\x00\x01\x00en\x00\x00" + zlib.compress(text),
    }[chunk]
    found = read(tmp_path, "a.png", png((chunk[-4:].encode(), body)))
    assert found.card is not None and found.card.name == "Ida" and found.card.taken_from == "chara"
    assert not found.losses


def test_a_broken_chunk_is_told_and_the_other_one_is_taken(tmp_path: Path) -> None:
    found = read(tmp_path, "a.png", png((b"tEXt", b"ccv3\x00!!"), (b"tEXt", b"chara\x00" + carried(V2))))
    assert found.card is not None and found.card.taken_from == "chara"
    assert kinds(found) == {"card_chunk_unreadable"}
    with pytest.raises(Invalid, match="cannot be read"):
        read(tmp_path, "b.png", png((b"tEXt", b"chara\x00" + carried([1]))))


def test_a_picture_that_breaks_off_or_has_a_wrong_checksum(tmp_path: Path) -> None:
    whole = png((b"tEXt", b"chara\x00" + carried(V1)), end=False)
    assert kinds(read(tmp_path, "a.png", whole + b"\x00\x00")) == {"file_truncated"}
    assert kinds(read(tmp_path, "b.png", whole[:-9])) == {"file_truncated", "card_chunk_missing"}
    wrong = whole[:-1] + bytes([whole[-1] ^ 1])
    found = read(tmp_path, "c.png", wrong)
    assert found.card is not None and kinds(found) == {"chunk_checksum_wrong"}


def test_a_packed_bomb_is_no_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_files, "CARD_BYTES", 10_000)
    bomb = zlib.compress(b"A" * 1_000_000)
    found = read(tmp_path, "a.png", png((b"zTXt", b"chara\x00\x00" + bomb)))
    assert found.card is None
    with pytest.raises(TooLarge):
        read(tmp_path, "b.png", png((b"tEXt", b"chara\x00" + b"A" * 20_000)))


def test_fields_of_a_wrong_type_are_told_and_kept(tmp_path: Path) -> None:
    data = {**V1, "alternate_greetings": ["Yes.", 7], "group_only_greetings": "no", "character_book": {"entries": 3}}
    found = read(tmp_path, "a.json", {"spec": "chara_card_v4", "data": data})
    card = found.card
    assert card is not None and (card.greetings, card.group_only, card.book) == (("Breathe.", "Yes."), (), None)
    assert kinds(found) == {"wrong_type", "card_spec_unknown"}
    assert same(card.raw["data"], data)


def test_a_book_tells_null_from_nought(tmp_path: Path) -> None:
    entry = {"keys": ["a"], "content": "A", "enabled": True, "insertion_order": 1, "extensions": {"sticky": 0}}
    book = {"name": "B", "entries": [entry, {**entry, "id": "x", "position": "before_char", "extensions": {}}, 5]}
    for shape in (book, {"spec": "lorebook_v3", "data": book}):
        found = read(tmp_path, "a.json", shape)
        assert found.format == "lorebook-card" and found.lorebook is not None
        one, two = found.lorebook.entries
        assert (one.sticky, one.depth, one.uid, one.position) == (0, None, None, None)
        assert (two.sticky, two.uid, two.position) == (None, "x", 0)
        assert kinds(found) == {"wrong_type"}


def test_mutated_cards_are_read_or_refused(tmp_path: Path) -> None:
    """Bytes changed at random: never anything but an answer or an error of ours."""
    random_ = random.Random(7)
    sources = [(name, (SAMPLES / name).read_bytes()) for name in NAMES]
    for number in range(600):
        name, content = sources[number % len(sources)]
        changed = bytearray(content)
        for _ in range(random_.randint(1, 6)):
            changed[random_.randrange(len(changed))] = random_.randrange(256)
        cut = random_.randint(1, len(changed)) if number % 3 == 0 else len(changed)
        try:
            found = read(tmp_path, Path(name).name, bytes(changed[:cut]))
        except TurnkeeperError:
            continue
        summary(found)


def test_a_charx_whose_card_is_none(tmp_path: Path) -> None:
    for content in (b"[]", b"{", b'{"name": 1}'):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as packed:
            packed.writestr("card.json", content)
        with pytest.raises(Invalid):
            read(tmp_path, "a.charx", made.getvalue())


def test_a_zip_of_chats_with_a_card_among_them_is_read_for_its_chats(tmp_path: Path) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as packed:
        packed.writestr("card.json", json.dumps(V1))
        packed.writestr("a.jsonl", json.dumps({"name": "Ida", "is_user": False, "mes": "Hm."}) + "\n")
    found = read(tmp_path, "a.zip", made.getvalue())
    assert len(found.sessions) == 1
    assert "file_without_session" in kinds(found)
