"""Reads a SillyTavern chat file (JSON Lines): one file is one session with one take. Pure, and one line at a time.

Rules of the file:

* The first line that is an object is the header, unless it is a message itself: group chats and the oldest files have
  no header. Every other line that has `mes` is a message; the order is the file's, never that of the dates.
* `chat_metadata.variables` become the take's base; their history is unknown, which is reported. The rest of the header
  is kept word for word in the take's `extra`.
* A line that is not JSON, is nested too deeply, is no object or is no message is kept byte for byte in the take's
  `extra`, with its number, and reported; the lines after it are read. Blank lines are left out and counted.
* A byte order mark is dropped and reported. CR before LF is dropped, and noted in the take's `extra`; so are blank lines.
* A file without any line is no session. A file with lines of which none is an object is refused: it is no chat file.

`scan` yields what it finds line by line, in constant memory; `read` collects it. `sillytavern_messages` has the rules
for a line, `sillytavern_kept` what is kept of it, `sillytavern_dates` the times, `sillytavern_lines` bytes and JSON.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from turnkeeper.errors import Invalid
from turnkeeper.transfer.imported import Imported, ImportedMessage, ImportedSession, ImportedTake, Loss
from turnkeeper.transfer.sillytavern_dates import read_date
from turnkeeper.transfer.sillytavern_kept import FORMAT, write_line
from turnkeeper.transfer.sillytavern_lines import (
    Line,
    LineParser,
    ParsedLine,
    Unreadable,
    dump_line,
    split_lines,
)
from turnkeeper.transfer.sillytavern_messages import Notes, is_message, read_message

__all__ = [
    "FORMAT", "Event", "Header", "KeptLine", "Mark", "dump_line", "read", "scan", "sniff", "write_header", "write_line",
]  # fmt: skip

_BOM = b"\xef\xbb\xbf"
_HEADER = re.compile(rb'"(?:chat_metadata|character_name|user_name|create_date)"\s*:')
_MESSAGE = re.compile(rb'"mes"\s*:')
_SPEAKER = re.compile(rb'"is_user"\s*:')


class Header(msgspec.Struct, frozen=True):
    """The first line: what is kept of it, the variables at the end of the chat, when the chat began."""

    kept: dict[str, Any]
    variables: dict[str, Any]
    created_at: int | None


class KeptLine(msgspec.Struct, frozen=True):
    """A line that could not be read, byte for byte, without its LF."""

    number: int
    content: bytes


class Mark(msgspec.Struct, frozen=True):
    """Something about the file as a whole: `crlf`, `byte_order_mark`, `blank_lines` (runs); at the end `file_sha256`."""

    name: str
    value: Any


Event = Header | ImportedMessage | KeptLine | Mark | Loss


def sniff(head: bytes) -> bool:
    """Say whether a file that begins with these bytes looks like a chat file. An empty one does not."""
    line, ended, _ = head.removeprefix(_BOM).lstrip().partition(b"\n")
    if not line.startswith(b"{"):
        return False
    if ended:
        try:
            value = LineParser().parse(line).value
        except Unreadable:
            return False
        keys = set(value)
        return {"mes", "is_user"} <= keys or (
            bool({"chat_metadata", "user_name", "character_name"} & keys) and "spec" not in keys
        )
    return bool(_HEADER.search(line) or (_MESSAGE.search(line) and _SPEAKER.search(line)))


def scan(chunks: bytes | Iterable[bytes]) -> Iterator[Event]:
    """Read a chat file from its bytes, in chunks of any size, and yield what is found in the order of the file.

    Raises Invalid when no line is an object, TooLarge for a line above `sillytavern_lines.LINE_BYTES_MAX`.
    """
    hasher = hashlib.sha256()

    def hashed() -> Iterator[bytes]:
        for chunk in (chunks,) if isinstance(chunks, bytes) else chunks:
            hasher.update(chunk)
            yield chunk

    yield from _Scanner().scan(split_lines(hashed()))
    yield Mark("file_sha256", hasher.hexdigest())


def read(name: str, chunks: bytes | Iterable[bytes]) -> Imported:
    """Read one chat file into memory. `name` is the file's; without folders and `.jsonl` it is the session's title.

    Raises what `scan` raises.
    """
    title = name.rpartition("/")[2].removesuffix(".jsonl")
    losses: list[Loss] = []
    messages: list[ImportedMessage] = []
    kept_lines: list[dict[str, Any]] = []
    marks: dict[str, Any] = {}
    header = Header({}, {}, None)
    for event in scan(chunks):
        if isinstance(event, ImportedMessage):
            messages.append(event)
        elif isinstance(event, Loss):
            losses.append(event)
        elif isinstance(event, Header):
            header = event
        elif isinstance(event, KeptLine):
            kept_lines.append({"line": event.number, "base64": base64.b64encode(event.content).decode()})
        else:
            marks[event.name] = event.value
    file_sha256 = marks.pop("file_sha256")
    if any(loss.kind == "file_empty" for loss in losses):
        return Imported(FORMAT, file_sha256, (), tuple(losses))
    kept = header.kept | marks | ({"kept_lines": kept_lines} if kept_lines else {})
    take = ImportedTake(title, tuple(messages), header.variables, {FORMAT: kept} if kept else {}, active=True)
    session = ImportedSession(title, title, (take,), {}, header.created_at)
    return Imported(FORMAT, file_sha256, (session,), tuple(losses))


def write_header(take: ImportedTake) -> dict[str, Any] | None:
    """Write a take's header line again, equal as JSON and in the order of its keys; None if the file had none."""
    kept = take.extra.get(FORMAT, {})
    if "header" not in kept:
        return None
    header: dict[str, Any] = dict(kept["header"])
    metadata = header.get("chat_metadata", {})
    carried = "chat_metadata.variables" in kept.get("carried", ())
    if carried or (take.variables and isinstance(metadata, dict)):
        header["chat_metadata"] = {**metadata, "variables": take.variables}
    return header


class _Scanner:
    """The state between two lines: whether the head of the file is past, and the last time that could be read."""

    def __init__(self) -> None:
        self._parser = LineParser()
        self._objects = 0
        self._unread = 0
        self._blank: list[int] = []  # the numbers of blank lines
        self._previous_us: int | None = None

    def scan(self, lines: Iterable[Line]) -> Iterator[Event]:
        for line in lines:
            notes = Notes(line.number)
            content = line.content
            if line.number == 1:
                yield from self._open_file(content, notes)
                content = content.removeprefix(_BOM)
            if content.strip(b" \t\r"):
                yield from self._read_line(Line(line.number, content), notes)
            else:
                self._blank.append(line.number)
            yield from notes.losses
        yield from self._close_file()

    def _open_file(self, content: bytes, notes: Notes) -> Iterator[Event]:
        if content.startswith(_BOM):
            notes.add("byte_order_mark", "dropped")
            yield Mark("byte_order_mark", True)
        if content.endswith(b"\r"):
            yield Mark("crlf", True)

    def _close_file(self) -> Iterator[Event]:
        if self._blank:
            yield Loss("line_blank", {"line": self._blank[0], "count": len(self._blank)}, "left out")
            yield Mark("blank_lines", _runs(self._blank))
        if self._objects:
            return
        if self._unread:
            raise Invalid(
                f"This is not a SillyTavern chat file: none of its {self._unread} lines is a JSON object.",
                do="Choose the chat's .jsonl file, or name the format it has.", lines=self._unread,
            )  # fmt: skip
        yield Loss("file_empty", {}, "no session")

    def _read_line(self, line: Line, notes: Notes) -> Iterator[Event]:
        try:
            parsed = self._parser.parse(line.content)
        except Unreadable as unreadable:
            yield self._keep(line, notes, unreadable.kind)
            return
        if not isinstance(parsed.value, dict):
            yield self._keep(line, notes, "line_not_object")
            return
        self._objects += 1
        if is_message(parsed.value):
            if self._objects == 1:
                notes.add("header_missing", "the session begins with its first message")
            _note_parsed(parsed, notes)
            message = read_message(parsed.value, notes)
            self._note_order(message, notes)
            yield message
        elif self._objects == 1:
            _note_parsed(parsed, notes)
            yield _read_header(parsed.value, notes)
        else:
            yield self._keep(line, notes, "line_without_mes")

    def _keep(self, line: Line, notes: Notes, kind: str) -> KeptLine:
        self._unread += 1
        notes.add(kind, "kept byte for byte, not read")
        return KeptLine(line.number, line.content)

    def _note_order(self, message: ImportedMessage, notes: Notes) -> None:
        if message.created_at is None:
            return
        if self._previous_us is not None and message.created_at < self._previous_us:
            notes.add("date_out_of_order", "the order of the file is kept")
        self._previous_us = message.created_at


def _runs(numbers: list[int]) -> list[list[int]]:
    """Join numbers into runs of first and last, both inclusive."""
    joined: list[list[int]] = []
    for number in numbers:
        if joined and number == joined[-1][1] + 1:
            joined[-1][1] = number
        else:
            joined.append([number, number])
    return joined


def _note_parsed(parsed: ParsedLine, notes: Notes) -> None:
    """Report what was noticed while a line was parsed: one loss a kind, naming the first field."""
    for kind, action, fields in (
        ("key_repeated", "the last value wins", parsed.repeated_keys),
        ("number_beyond_64_bits", "kept as it was written", parsed.raw_paths),
    ):
        if fields:
            notes.add(kind, action, fields[0], **({"count": len(fields)} if len(fields) > 1 else {}))


def _read_header(line: dict[str, Any], notes: Notes) -> Header:
    created_at, problem = read_date(line.get("create_date"))
    if problem and problem != "date_missing":
        notes.date(problem)
    metadata = line.get("chat_metadata", {})
    if not isinstance(metadata, dict):
        notes.wrong_type("chat_metadata", "read as absent")
        return Header({"header": line}, {}, created_at)
    variables = metadata.get("variables")
    notes.media({"attachments": metadata.get("attachments")}, "chat_metadata")
    if not isinstance(variables, dict):
        if "variables" in metadata:
            notes.wrong_type("chat_metadata.variables", "read as absent")
        return Header({"header": line}, {}, created_at)
    if variables:
        notes.add("variables_without_history", "stored as the take's base", "chat_metadata.variables")
    kept = {**line, "chat_metadata": {**metadata, "variables": None}}
    return Header({"header": kept, "carried": ["chat_metadata.variables"]}, variables, created_at)
