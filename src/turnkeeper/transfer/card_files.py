"""Finds the card in the files that carry one: a PNG's text chunks, a CHARX zip. Pure: bytes in.

* PNG: of the chunks `ccv3` and `chara` the first is taken; if they say different things, that is reported. The base64
  may have line breaks. A chunk that cannot be read is reported, and the other one is taken; a picture without either
  is no card, which is reported too. Texts are read from `tEXt`, `zTXt` and `iTXt` chunks, a wrong checksum is reported.
* CHARX: `card.json`, with the assets it names that the zip does not hold, and members it does not name, reported.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from turnkeeper.errors import Invalid
from turnkeeper.limits import CARD_BYTES
from turnkeeper.transfer.cards import imported, knows_card, read_card, same_card
from turnkeeper.transfer.documents import Notes, read_document, too_large
from turnkeeper.transfer.imported import Card, Imported

PNG = b"\x89PNG\r\n\x1a\n"
CHARX_MEMBER = "card.json"

_KEYWORDS = ("ccv3", "chara")  # the first wins
_ASSET_SCHEMES = ("embeded://", "embedded://")


def read_png(name: str, content: bytes) -> Imported:
    """Read the card in a picture. Raises Invalid when chunks hold one and none of them can be read, TooLarge."""
    if len(content) > CARD_BYTES:
        raise too_large(name, CARD_BYTES)
    notes, found = Notes(), dict[str, tuple[Card, Notes]]()
    broken = 0
    for keyword, text in _texts(content, notes):
        if keyword not in _KEYWORDS or keyword in found:
            continue
        read = _card_in(name, keyword, text)
        if read is None:
            broken += 1
            notes.add("card_chunk_unreadable", "left out", chunk=keyword)
        else:
            found[keyword] = read
    if not found:
        if broken:
            raise Invalid(
                f"{name} carries a card that cannot be read.", do="Export the card again.", path=name, chunks=broken
            )
        notes.add("card_chunk_missing", "no card: the picture carries none")
    if len(found) == len(_KEYWORDS) and not same_card(*(card for card, _ in found.values())):
        notes.add("card_chunks_disagree", f"{_KEYWORDS[0]} wins", chunks=sorted(found, reverse=True))
    card, bent = next((found[keyword] for keyword in _KEYWORDS if keyword in found), (None, Notes()))
    return imported(card, hashlib.sha256(content).hexdigest(), (*notes.losses, *bent.losses))


def _card_in(name: str, keyword: str, text: bytes) -> tuple[Card, Notes] | None:
    """Answer the card of a chunk, with what had to be bent in it; None if it cannot be read."""
    try:
        content = base64.b64decode(b"".join(text.split()), validate=True)
        document = read_document(name, content)
    except (binascii.Error, Invalid):
        return None
    if len(document.entries) != 1 or not knows_card(document.entries[0]):
        return None
    bent = Notes()
    bent.losses += document.losses
    return read_card(document.entries[0], keyword, bent), bent


def _texts(content: bytes, notes: Notes) -> Iterator[tuple[str, bytes]]:
    """Yield keyword and text of each text chunk; a picture that breaks off is read as far as it goes, and reported."""
    place = len(PNG)
    while place < len(content):
        if place + 12 > len(content):
            notes.add("file_truncated", "read as far as it goes")
            return
        size, kind = struct.unpack_from(">I4s", content, place)
        body = content[place + 8 : place + 8 + size]
        if len(body) < size or place + 12 + size > len(content):
            notes.add("file_truncated", "read as far as it goes")
            return
        if kind in (b"tEXt", b"zTXt", b"iTXt"):
            (checksum,) = struct.unpack_from(">I", content, place + 8 + size)
            if checksum != zlib.crc32(kind + body):
                notes.add("chunk_checksum_wrong", "read all the same", chunk=kind.decode())
            keyword, _, text = body.partition(b"\x00")
            unpacked = _unpacked(kind, text)
            if unpacked is not None:
                yield keyword.decode("latin-1").strip().lower(), unpacked
        if kind == b"IEND":
            return
        place += 12 + size


def _unpacked(kind: bytes, text: bytes) -> bytes | None:
    """Answer a text chunk's text; None if it is packed in a way that cannot be unpacked within the limit."""
    packed = kind == b"zTXt"
    if packed:
        text = text[1:]
    elif kind == b"iTXt":
        packed, rest = text[:1] == b"\x01", text[2:]
        text = rest.partition(b"\x00")[2].partition(b"\x00")[2]
    if not packed:
        return text
    inflate = zlib.decompressobj()
    try:
        unpacked = inflate.decompress(text, CARD_BYTES)
    except zlib.error:
        return None
    return unpacked if not inflate.unconsumed_tail else None


def is_charx(packed: zipfile.ZipFile) -> bool:
    """Say whether a zip is a CHARX, and not chats with a card among them."""
    names = packed.namelist()
    return CHARX_MEMBER in names and not any(name.endswith(".jsonl") for name in names)


def read_charx(name: str, packed: zipfile.ZipFile, file: BinaryIO) -> Imported:
    """Read the card of a CHARX. Raises Invalid when its `card.json` is no card, TooLarge, and what `zipfile` raises."""
    if packed.getinfo(CHARX_MEMBER).file_size > CARD_BYTES:
        raise too_large(name, CARD_BYTES)
    with packed.open(CHARX_MEMBER) as member:
        content = member.read(CARD_BYTES + 1)
    if len(content) > CARD_BYTES:
        raise too_large(name, CARD_BYTES)
    document, notes = read_document(CHARX_MEMBER, content), Notes()
    if len(document.entries) != 1 or not knows_card(document.entries[0]):
        raise Invalid(f"The {CHARX_MEMBER} in {name} is no card.", do="Export the card again.", path=name)
    notes.losses += document.losses
    card = read_card(document.entries[0], CHARX_MEMBER, notes)
    _note_members(card, packed, notes)
    file.seek(0)
    hasher = hashlib.sha256()
    while chunk := file.read(1 << 20):
        hasher.update(chunk)
    return imported(card, hasher.hexdigest(), notes.losses)


def _note_members(card: Card, packed: zipfile.ZipFile, notes: Notes) -> None:
    data = card.raw.get("data")
    assets = data.get("assets") if isinstance(data, dict) else None
    held = {one.filename for one in packed.infolist() if not one.is_dir()} - {CHARX_MEMBER}
    named = set()
    for asset in assets if isinstance(assets, list) else ():
        uri = asset.get("uri") if isinstance(asset, dict) else None
        if not isinstance(uri, str):
            continue
        scheme = next((one for one in _ASSET_SCHEMES if uri.startswith(one)), None)
        if scheme is None:
            continue
        member = uri[len(scheme) :]
        named.add(member)
        if member not in held:
            notes.add("asset_missing", "its name is kept", asset=member)
    if held & named:
        notes.add("assets_left_out", "their names are kept", count=len(held & named))
    if held - named:
        notes.add("members_unknown", "left out", members=sorted(held - named)[:100], count=len(held - named))
