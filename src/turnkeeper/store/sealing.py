"""Sealed cells: rows whose json and blob cells are encrypted, and the ring of the keys that do it (ADR 9).

A cell is AES-256-GCM, bound to its table, its column and every plain cell of its row: a cell that was moved, a row whose
plain cells were changed, a byte that flipped, do not open. What does not open becomes text that is no JSON, so whoever
decodes it tells of damage: a cache's cell is skipped, a fact's refuses, naming the row (S-103 to S-108).

Rows are sealed under *data keys*, which a ring holds; the ring lies in the store, sealed under the caller's key. So another
caller's key is a matter of one row, and rows can be sealed anew under a fresh data key afterwards.
"""

from __future__ import annotations

import binascii
import hashlib
import os
from typing import Any

import msgspec

from ..errors import Invalid, Unavailable, WrongKey
from ..records import SEALS, Seal
from ..schema import Row, Table
from .intake import codec

MARK = "\x01"
"""What a sealed text cell begins with; JSON text cannot."""

KEY_BYTES = 32
RING = "ring"
_NONCE = 12
_RING_PLACE = b"turnkeeper ring"

StoreKey = bytes | str
"""What a store is opened with: 32 random bytes, or a passphrase."""


class Ring(msgspec.Struct):
    """The data keys by number, the newest number, and the key of lookups."""

    keys: dict[int, bytes]
    newest: int
    lookup: bytes


class Cipher:
    """One ring, ready for use."""

    def __init__(self, ring: Ring, *, latest: bool = False) -> None:
        aead = _aesgcm()
        self.ring, self._latest = ring, latest
        self._by_no = {number: aead(key) for number, key in ring.keys.items()}
        self._newest = self._by_no[ring.newest]
        self._head = bytes([ring.newest])

    def seal(self, text: bytes, place: bytes) -> bytes:
        """Answer what is stored for a text at a place."""
        nonce = os.urandom(_NONCE)
        return self._head + nonce + self._newest.encrypt(nonce, text, place)  # type: ignore[no-any-return]

    def open(self, sealed: bytes, place: bytes) -> bytes:
        """Answer the text. Raises ValueError when it does not open, UnknownDataKey when another ring might open it."""
        if len(sealed) <= _NONCE:
            raise ValueError("it is too short")
        aead = self._by_no.get(sealed[0])
        if aead is None:
            raise ValueError("there is no such data key") if self._latest else UnknownDataKey
        try:
            return aead.decrypt(sealed[1 : 1 + _NONCE], sealed[1 + _NONCE :], place)  # type: ignore[no-any-return]
        except Exception as e:  # InvalidTag, and whatever a damaged length makes of it
            raise ValueError("it does not open") from e


class UnknownDataKey(Exception):
    """A cell names a data key that the ring in hand does not have. It never leaves the sealed backend."""


class Sealer:
    """Seals and opens the rows of one table."""

    def __init__(self, table: Table[Any]) -> None:
        self.table = table
        self._texts = [(i, c.name) for i, c in enumerate(table.columns) if c.kind == "json"]
        found_by = {name for order in table.orders.values() for name in order}
        self._blobs = [(i, c.name) for i, c in enumerate(table.columns) if c.kind == "blob" and c.name not in found_by]
        sealed = {i for i, _ in (*self._texts, *self._blobs)}
        self._plain = [(i, c.name) for i, c in enumerate(table.columns) if i not in sealed and not c.is_commit]

    def _place(self, row: Row) -> bytes:
        """Answer what all cells of a row are bound to: its table, and its plain cells that are there, by name."""
        cells = [f"{name}={row[i]!r}" for i, name in self._plain if row[i] is not None]
        return "\0".join([self.table.name, *cells]).encode("utf-8", "surrogatepass")

    def seal(self, row: Row, cipher: Cipher) -> Row:
        """Answer the row as it is stored."""
        cells, place = list(row), b""
        for i, name in self._texts:
            text = row[i]
            if text is not None:
                place = place or self._place(row)
                sealed = cipher.seal(text.encode(), place + b"\0" + name.encode())  # type: ignore[union-attr]
                cells[i] = MARK + binascii.b2a_base64(sealed, newline=False).decode()
        for i, name in self._blobs:
            if row[i] is not None:
                place = place or self._place(row)
                cells[i] = cipher.seal(row[i], place + b"\0" + name.encode())  # type: ignore[arg-type]
        return tuple(cells)

    def open(self, row: Row, cipher: Cipher) -> Row:
        """Answer the row as it was sealed; a cell that does not open stays behind its mark. Raises UnknownDataKey."""
        cells, place, whole = list(row), b"", True
        for i, name in self._texts:
            text = row[i]
            if text is not None:
                place = place or self._place(row)
                try:
                    if text[:1] != MARK:  # type: ignore[index]
                        raise ValueError("it was never sealed")
                    sealed = binascii.a2b_base64(text[1:].encode())  # type: ignore[index, union-attr]
                    cells[i] = cipher.open(sealed, place + b"\0" + name.encode()).decode()
                except ValueError:
                    cells[i] = _marked(text)  # type: ignore[arg-type]
        for i, name in self._blobs:
            if row[i] is not None:
                place = place or self._place(row)
                try:
                    cells[i] = cipher.open(row[i], place + b"\0" + name.encode())  # type: ignore[arg-type]
                except ValueError:
                    whole = False
        if not whole:  # a blob is read as it is: the row's texts tell of it
            for i, _ in self._texts:
                cells[i] = _marked(row[i] or "")  # type: ignore[arg-type]
        return tuple(cells)


def is_broken(row: Row) -> bool:
    """Say whether a row that was opened has a cell that did not open."""
    return any(type(cell) is str and cell[:1] == MARK for cell in row)


def _marked(text: str) -> str:
    """Answer a cell as text that is no JSON, so that nobody reads it."""
    return text if text[:1] == MARK else MARK + text


def check_key(key: StoreKey | None) -> None:
    """Refuse a key that is none. Raises Invalid."""
    if key is None:
        return
    if isinstance(key, bytes | str) and (len(key) == KEY_BYTES if isinstance(key, bytes) else key.strip()):
        return
    raise Invalid(
        f"A store's key is {KEY_BYTES} bytes, or a passphrase that is not blank.",
        "Nothing was opened.",
        f"Give os.urandom({KEY_BYTES}) that you keep, or a passphrase.",
        path="key",
    )


def _wrapping(key: StoreKey, salt: bytes) -> Any:
    made = key if isinstance(key, bytes) else hashlib.scrypt(
        key.encode("utf-8", "surrogatepass"), salt=salt, n=2**15, r=8, p=1, maxmem=2**26, dklen=KEY_BYTES
    )  # fmt: skip
    return _aesgcm()(made)


def closed_ring(ring: Ring, key: StoreKey, at: int) -> Seal:
    """Answer the record that keeps a ring under a key. Raises Invalid for a key that is none."""
    check_key(key)
    salt, nonce = os.urandom(16), os.urandom(_NONCE)
    text = msgspec.msgpack.encode(ring)
    return Seal(RING, at, salt, nonce + _wrapping(key, salt).encrypt(nonce, text, _RING_PLACE))


def opened_ring(row: Row, key: StoreKey, name: str) -> Ring:
    """Answer the ring that a stored row keeps. Raises WrongKey, naming the store."""
    found: Seal = codec(SEALS).decode(row)
    sealed = found.ring
    try:
        text = _wrapping(key, found.salt).decrypt(sealed[:_NONCE], sealed[_NONCE:], _RING_PLACE)
        return msgspec.msgpack.decode(text, type=Ring)
    except Unavailable:
        raise
    except Exception as e:
        raise WrongKey(
            f"The key does not open the store {name!r}.",
            "Nothing was read or changed.",
            "Open it with the key it was sealed with; if its key was changed, with the new one.",
        ) from e


def _aesgcm() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as e:
        raise Unavailable(
            "A key was given, and the package cryptography is not installed.",
            "Nothing was opened.",
            "Install turnkeeper[seal].",
        ) from e
    return AESGCM
