"""Chooses the reader of a foreign file by its content: a chat, an export, a database, a card; a folder or a zip of them.

* A name decides nothing but the order. A SillyTavern chat is read as a stream, all else within `turnkeeper.limits`.
* In a folder or a zip everything is looked at that could be read; what no reader knows (accounts, feedback, images) is
  left out and reported. Several files of one format are one import, and a loss says of which file it is.
* A zip is never unpacked to disk under names of its own, and never beyond the limits, whatever sizes it claims.
"""

from __future__ import annotations

import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, BinaryIO

from msgspec.structs import replace

from turnkeeper.errors import Invalid, NotFound, TooLarge
from turnkeeper.limits import CARD_BYTES, FOREIGN_BYTES, FOREIGN_FILES
from turnkeeper.store import foreign_sqlite
from turnkeeper.transfer import (
    archive,
    card_files,
    cards,
    chatgpt,
    claude,
    databases,
    librechat,
    openwebui,
    sillytavern,
    sillytavern_set,
)  # fmt: skip
from turnkeeper.transfer.archive import Archive
from turnkeeper.transfer.documents import Document, read_document, too_large
from turnkeeper.transfer.imported import Imported, Loss, digest_of_files

EXPORTS: tuple[ModuleType, ...] = (chatgpt, claude, openwebui, librechat)
_CHUNK = 1 << 20
_ENDINGS = (".json", ".jsonl", ".db", ".sqlite", ".sqlite3", ".zip")
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_DO = (
    "Choose a chat or export of SillyTavern, ChatGPT, Claude, Open WebUI or LibreChat, "
    f"a database of {databases.KNOWN}, a character card or a lorebook."
)


def read(path: Path) -> Imported:
    """Read a foreign file, folder or zip.

    Raises Invalid for what no reader knows, TooLarge above a limit, NotFound when there is nothing at the path.
    """
    if path.is_dir():
        return _read_folder(path)
    if not path.exists():
        raise NotFound(f"There is nothing at {path.name}.", do="Check the path.", kind="file", id=path.name)
    if not path.is_file():
        raise Invalid(f"{path.name} is neither a file nor a folder.", do=_DO, path=path.name)
    with path.open("rb") as file:
        head = file.read(_CHUNK)
        if head.startswith(_ZIP):
            return _read_zip(path, file)
        file.seek(0)
        if head.startswith(foreign_sqlite.MAGIC):
            return _read_database(path)
        if head.startswith(card_files.PNG):
            return card_files.read_png(path.name, file.read(CARD_BYTES + 1))
        return _read_stream(path.name, head, file)


def read_any(path: Path) -> Imported | Archive:
    """Read what `read` reads, or an archive of ours. Raises IncompatibleStore for one of a newer version too."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(4) in _ZIP and archive.is_archive(file):
                return archive.read(file, path.name)
    return read(path)


def _read_database(path: Path) -> Imported:
    tables = foreign_sqlite.read_tables(path)
    read = databases.read(databases.Source(path.name, tables.sha256, tables.rows, tables.columns))
    if not tables.odd_texts:
        return read
    loss = Loss("text_not_utf8", {"count": tables.odd_texts}, "the odd bytes are kept as lone surrogates")
    return replace(read, losses=(*read.losses, loss))


def _read_stream(name: str, head: bytes, file: BinaryIO) -> Imported:
    """Read a chat as a stream; what may be an export, and anything else, whole."""
    looks = sillytavern.sniff(head)
    if not head.strip() or (looks and not _may_be_other(head)):
        return sillytavern.read(name, _chunks(file))
    content = file.read(FOREIGN_BYTES + 1)
    if looks or name.endswith(".jsonl") or head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] not in (b"{", b"["):
        found = _read_chat(name, content)
        if found is not None:
            return found
    document = read_document(name, content)
    known = cards.read_document(document) or _read_known(document)
    if known is None:
        raise Invalid(f"{name} holds nothing that a reader knows.", do=_DO, path=name)
    return known


def _may_be_other(head: bytes) -> bool:
    """Say whether it may be an export or a card after all, which can begin like the header of a chat."""
    return b'"mapping"' in head[:4096] or b'"chat_messages"' in head[:4096] or b'"first_mes"' in head


def _read_chat(name: str, content: bytes) -> Imported | None:
    """Read a chat whose first line tells nothing; None if there is no message in it."""
    try:
        found = sillytavern.read(name, content)
    except TooLarge:
        return None
    except Invalid:
        return None
    return found if any(take.messages for session in found.sessions for take in session.takes) else None


def _read_known(document: Document) -> Imported | None:
    """Read a document by the reader that knows the most of its entries; None if none knows any."""
    if not document.entries:
        empty = any(loss.kind == "file_empty" for loss in document.losses)
        more = () if empty else (Loss("file_empty", {}, "no session"),)
        return Imported("", document.file_sha256, (), (*document.losses, *more))
    counts = [(sum(map(reader.knows, document.entries)), -place) for place, reader in enumerate(EXPORTS)]
    most, place = max(counts)
    if not most:
        return None
    found: Imported = EXPORTS[-place].read(document)
    if most < len(document.entries):
        unread = [i for i, entry in enumerate(document.entries) if not EXPORTS[-place].knows(entry)]
        loss = Loss("entry_unknown", {"entry": unread[0], "count": len(unread)}, "left out: no conversation")
        found = replace(found, losses=(*found.losses, loss))
    return found


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


# ---- several files ---------------------------------------------------------------------------------------------------


def _read_folder(folder: Path) -> Imported:
    names = []
    for found in sorted(folder.rglob("*")):
        if found.is_file() and not found.is_symlink() and not _hidden(found.relative_to(folder).parts):
            names.append(found)
        if len(names) > FOREIGN_FILES:
            raise _too_many(folder.name)
    chosen = [found for found in names if found.suffix.lower() in _ENDINGS]
    if sum(found.stat().st_size for found in chosen if found.suffix.lower() in (".json", ".jsonl")) > FOREIGN_BYTES:
        raise too_large(folder.name)
    readers = [(str(found.relative_to(folder).as_posix()), lambda one=found: read(one)) for found in chosen]
    return _gather(folder.name, readers, len(names) - len(chosen))


def _read_zip(path: Path, file: BinaryIO) -> Imported:
    try:
        with zipfile.ZipFile(file) as packed:
            members = [one for one in packed.infolist() if not one.is_dir()]
            if len(members) > FOREIGN_FILES:
                raise _too_many(path.name)
            if card_files.is_charx(packed):
                return card_files.read_charx(path.name, packed, file)
            chosen = [one for one in members if _wanted(one.filename)]
            budget = _Budget(path.name)
            readers = [
                (one.filename, lambda one=one: _read_member(packed, one, budget))
                for one in sorted(chosen, key=lambda one: one.filename)
            ]
            return _gather(path.name, readers, len(members) - len(chosen))
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        if isinstance(error, Invalid):
            raise
        raise Invalid(
            f"{path.name} is a zip that cannot be unpacked: it is broken, encrypted, or packed in a way that is unknown.",
            do="Download it again, or unpack it and choose the folder.", path=path.name,
        ) from None  # fmt: skip


class _Budget:
    """How many bytes may still be unpacked."""

    def __init__(self, name: str) -> None:
        self._name, self.left = name, FOREIGN_BYTES

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise too_large(self._name)


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, budget: _Budget) -> Imported:
    """Read one member; it is spooled to a nameless file of our own, so its name leads nowhere."""
    name = PurePosixPath(member.filename.replace("\\", "/")).name
    with tempfile.TemporaryDirectory(prefix="turnkeeper-read-") as folder, archive.open(member) as packed:
        target = Path(folder) / "member"
        with target.open("wb") as out:
            while chunk := packed.read(_CHUNK):
                budget.take(len(chunk))
                out.write(chunk)
        with target.open("rb") as file:
            head = file.read(_CHUNK)
            if head.startswith(_ZIP):
                raise Invalid(f"{name} is a zip inside a zip.", do="Unpack the outer one first.", path=name)
            file.seek(0)
            if head.startswith(foreign_sqlite.MAGIC):
                return _read_database(target)
            return _read_stream(name, head, file)


def _wanted(name: str) -> bool:
    path = PurePosixPath(name.replace("\\", "/"))
    return path.suffix.lower() in _ENDINGS and not _hidden(path.parts)


def _hidden(parts: Sequence[str]) -> bool:
    return any((part.startswith(".") and part not in (".", "..")) or part == "__MACOSX" for part in parts)


def _too_many(name: str) -> TooLarge:
    return TooLarge(
        f"{name} holds more than {FOREIGN_FILES:,} files.", do="Choose the export itself.",
        family="foreign-files", limit=FOREIGN_FILES,
    )  # fmt: skip


def _gather(name: str, readers: Sequence[tuple[str, Callable[[], Imported]]], others: int) -> Imported:
    """Read all that can be read, and answer it as one import."""
    found: list[tuple[str, Imported]] = []
    left: list[Loss] = []
    failed: list[Invalid] = []
    for file, read_one in readers:
        try:
            imported = read_one()
        except TooLarge:
            raise
        except Invalid as error:
            failed.append(error)
            left.append(Loss("file_not_read", {"file": file}, "left out: no reader knows it, or it is broken"))
            continue
        if imported.sessions:
            found.append((file, imported))
        else:
            left.append(Loss("file_without_session", {"file": file}, "left out"))
    if others:
        left.append(Loss("files_not_read", {"count": others}, "left out: no chats"))
    if not found:
        if len(failed) == 1:
            raise failed[0]
        raise Invalid(f"{name} holds nothing that a reader knows.", do=_DO, path=name)
    formats = sorted({imported.format for _, imported in found})
    if len(formats) > 1:
        raise Invalid(
            f"{name} holds chats of several formats: {', '.join(formats)}.",
            do="Import them one after another.",
            path=name,
        )
    return _joined(found, left)


def _joined(found: list[tuple[str, Imported]], left: list[Loss]) -> Imported:
    if found[0][1].format == sillytavern.FORMAT:
        joined = sillytavern_set.join(found)
        return replace(joined, losses=(*joined.losses, *left))
    if len(found) == 1:
        return replace(found[0][1], losses=(*found[0][1].losses, *left))
    together = digest_of_files(imported for _, imported in found)
    losses: list[Loss] = [
        Loss(loss.kind, {**loss.where, "file": loss.where.get("file", file), "source": file}, loss.action)
        for file, imported in found
        for loss in imported.losses
    ]
    sessions: list[Any] = [session for _, imported in found for session in imported.sessions]
    return Imported(found[0][1].format, together, tuple(sessions), (*losses, *left))
