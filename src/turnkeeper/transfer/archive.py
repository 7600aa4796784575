"""Our own format: one session with all its takes in a zip of JSON lines, which any store can take in (docs/format.md).

It carries facts, not caches: what a reader needs to see the same history, switch its versions, undo what was undone. Not
the right to write, nor turns under way, nor what is another store's business (deliveries, receipts). Equal sessions give
equal bytes, so an archive that is taken in and written again is the same file.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from ..errors import IncompatibleStore, Invalid, TooLarge, TurnkeeperError
from ..health.findings import examine
from ..health.rows import Everything
from ..history.content import parts
from ..history.line import Change
from ..history.slots import BUILT_IN, check_deltas, check_state
from ..history.slots.doors import declared
from ..jsonvalue import decode, digest, encode
from ..kit.fenced import Who, look_up, session_id_of
from ..limits import FOREIGN_BYTES, ID_BYTES, INT_MAX
from ..records import (
    BASES,
    DELTAS,
    EVENTS,
    HEADERS,
    MESSAGE_DELTAS,
    MESSAGES,
    RECORDS,
    TAKES,
    VERSIONS,
    Header,
    Session,
)
from ..schema import Key, Table
from ..store.reading import Rows

if TYPE_CHECKING:  # it is loaded when an archive is written or read
    import zipfile

FORMAT, VERSION = "turnkeeper", 1
MANIFEST = "turnkeeper.json"
CARRIED: tuple[Table[Any], ...] = (TAKES, MESSAGES, VERSIONS, DELTAS, MESSAGE_DELTAS, BASES, EVENTS, RECORDS)
"""The tables of an archive, in its order; each is a member of its name."""

LEFT_OUT = {"session_id", "commit_seq", "digest"}
"""Columns that no line has: the session's id is in the manifest, the others are made anew."""

_PAGE = 500
_EPOCH = (1980, 1, 1, 0, 0, 0)
_DO = "Export it again."


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an archive says of the session itself. Times are microseconds UTC."""

    session_id: str
    title: str | None
    space: str
    labels: dict[str, str]
    metadata: dict[str, Any]
    created_at: int
    updated_at: int
    last_activity_at: int
    active_take: int
    next_take: int
    next_version: int
    next_turn: int
    next_event: int
    line_rev: int
    undo_event: int | None
    redo: list[int] | None


class Archive(msgspec.Struct, frozen=True):
    """An archive that was read: the digest of its bytes, the session, and its records by table, all of one id."""

    sha256: str
    about: About
    rows: dict[Table[Any], list[Any]]


class Written(msgspec.Struct, frozen=True):
    """What was written into an archive: the lines of each member."""

    session_id: str
    lines: dict[str, int]


async def write(rows: Rows, who: Who, file: BinaryIO) -> Written:
    """Write a session into an open file, from one view. Raises NotFound, Gone, Damaged."""
    head, _ = await look_up(rows, who)
    header = await rows.get(HEADERS, session_id_of(who))
    if header is None:
        header = Header(head.session_id, head.instance_id, "default", head.updated_at, head.updated_at)
    import zipfile

    lines: dict[str, int] = {}
    with zipfile.ZipFile(file, "w") as archive:
        manifest = {"format": FORMAT, "version": VERSION, "session": msgspec.to_builtins(_about(head, header))}
        with archive.open(_member(MANIFEST), "w", force_zip64=True) as out:
            out.write(_text(manifest))
        for table in CARRIED:
            lines[table.name] = 0
            with archive.open(_member(f"{table.name}.jsonl"), "w", force_zip64=True) as out:
                async for record in _records(rows, table, head.session_id):
                    out.write(_text(_line(record)))
                    lines[table.name] += 1
    return Written(head.session_id, lines)


async def _records(rows: Rows, table: Table[Any], session_id: str) -> Any:
    after: Key | None = None
    while True:
        page = await rows.scan(table, session_id, after=after, limit=_PAGE)
        for record in page:
            yield record
        if len(page) < _PAGE:
            return
        after = tuple(getattr(page[-1], name) for name in table.key)
        await asyncio.sleep(0)


def _about(head: Session, header: Header) -> About:
    return About(
        head.session_id, header.title, header.space, header.labels, header.metadata, header.created_at,
        header.updated_at, head.last_activity_at, head.active_take, head.next_take, head.next_version, head.next_turn,
        head.next_event, head.line_rev, head.undo_event, head.redo,
    )  # fmt: skip


def _member(name: str) -> zipfile.ZipInfo:
    import zipfile

    made = zipfile.ZipInfo(name, _EPOCH)
    made.compress_type, made.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
    return made


def _line(record: msgspec.Struct) -> dict[str, Any]:
    cells = {name: getattr(record, name) for name in record.__struct_fields__ if name not in LEFT_OUT}
    optional = dict(zip(record.__struct_fields__[::-1], record.__struct_defaults__[::-1], strict=False))
    return {name: value for name, value in cells.items() if name not in optional or value != optional[name]}


def _text(value: Any) -> bytes:
    """Write a value as one line; one with lone surrogates in the form the store has for it (`jsonvalue.encode`)."""
    return (encode(value) + "\n").encode()


# ---- reading ---------------------------------------------------------------------------------------------------------


def is_archive(file: BinaryIO) -> bool:
    """Say whether an open file is an archive of ours, well or not."""
    import zipfile

    try:
        with zipfile.ZipFile(file) as archive:
            return MANIFEST in archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError):
        return False
    finally:
        file.seek(0)


def read(file: BinaryIO, name: str = "archive") -> Archive:
    """Read and check an archive: what this answers can be taken in, and nothing else can.

    Raises Invalid for what is no archive or contradicts itself, naming member and line; IncompatibleStore for a newer
    version; TooLarge above `limits.FOREIGN_BYTES`.
    """
    import zipfile
    import zlib

    sha256 = _digest(file)
    try:
        with zipfile.ZipFile(file) as archive:
            about, rows = _Reading(archive, name).read()
    except TurnkeeperError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError) as e:
        raise _invalid(name, "it is a zip that cannot be unpacked") from e
    _check(name, about, rows)
    return Archive(sha256, about, rows)


def _digest(file: BinaryIO) -> str:
    found = hashlib.sha256()
    while chunk := file.read(1 << 20):
        found.update(chunk)
    file.seek(0)
    return found.hexdigest()


class _Reading:
    """One archive that is being read, and how much of it may still be unpacked."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._archive, self._name, self._left = archive, name, FOREIGN_BYTES

    def read(self) -> tuple[About, dict[Table[Any], list[Any]]]:
        members = [member.filename for member in self._archive.infolist()]
        known = [MANIFEST, *(f"{table.name}.jsonl" for table in CARRIED)]
        about = self._manifest(members)
        if sorted(members) != sorted(known):
            odd = sorted({*members} ^ {*known}) or ["a member stands in it twice"]
            raise _invalid(self._name, f"its members are not those of version {VERSION}: {odd[0]}")
        return about, {table: self._table(table, about.session_id) for table in CARRIED}

    def _manifest(self, members: list[str]) -> About:
        if MANIFEST not in members:
            raise _invalid(self._name, f"it has no {MANIFEST}")
        try:
            found = decode(b"".join(self._bytes(MANIFEST)).decode())
            if not isinstance(found, dict) or found.get("format") != FORMAT or type(found.get("version")) is not int:
                raise ValueError("it does not say which format and version it is")
            if found["version"] > VERSION:
                raise IncompatibleStore(
                    f"{self._name} is an archive of version {found['version']}; this Turnkeeper reads up to {VERSION}.",
                    "Nothing was read.",
                    "Upgrade Turnkeeper.",
                )
            return msgspec.convert(found.get("session"), About)
        except (ValueError, RecursionError) as e:
            raise _invalid(self._name, f"{MANIFEST}: {e}") from e

    def _table(self, table: Table[Any], session_id: str) -> list[Any]:
        rows, member = [], f"{table.name}.jsonl"
        for number, line in enumerate(self._lines(member), 1):
            try:
                rows.append(_record(table, decode(line.decode()), session_id))
            except (ValueError, TypeError, RecursionError) as e:
                raise _invalid(self._name, f"{member}, line {number}: {_why(e)}") from e
        return rows

    def _lines(self, member: str) -> Iterator[bytes]:
        rest = b""
        for chunk in self._bytes(member):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
        if rest:
            yield rest

    def _bytes(self, member: str) -> Iterator[bytes]:
        with self._archive.open(member) as packed:
            while chunk := packed.read(1 << 20):
                self._left -= len(chunk)
                if self._left < 0:
                    raise TooLarge(
                        f"{self._name} unpacks to more than {FOREIGN_BYTES:,} bytes.", do=_DO,
                        family="foreign-bytes", limit=FOREIGN_BYTES,
                    )  # fmt: skip
                yield chunk


def _record(table: Table[Any], line: Any, session_id: str) -> Any:
    if not isinstance(line, dict):
        raise ValueError("it is no object")
    unknown = line.keys() - set(table.names) | line.keys() & LEFT_OUT
    if unknown:
        raise ValueError(f"it has a field {sorted(unknown)[0]!r}")
    cells = {**line, "session_id": session_id}
    if table is EVENTS:
        cells["commit_seq"] = 0
    if table is RECORDS:
        cells["digest"] = digest(cells.get("body"))
    made = msgspec.convert(cells, table.record)
    for name in table.key[1:]:
        value = getattr(made, name)
        if isinstance(value, int) and not 0 <= value < INT_MAX // 2:
            raise ValueError(f"`{name}` is out of range")
    return made


def _why(error: BaseException) -> str:
    return str(error)[:200] or type(error).__name__


def _invalid(name: str, why: str) -> Invalid:
    return Invalid(f"{name} is no archive that can be taken in: {why}.", "Nothing was taken in.", _DO, path=name)


# ---- what an archive must hold to be a session ------------------------------------------------------------------------


def _check(name: str, about: About, rows: dict[Table[Any], list[Any]]) -> None:
    """Refuse an archive that would make a session the health check finds unwell, or whose state does not fold."""
    if not about.session_id.strip() or len(about.session_id.encode("utf-8", "replace")) > ID_BYTES:
        raise _invalid(name, "its session has no id that can be kept")
    for table, records in rows.items():
        keys = {tuple(getattr(record, column) for column in table.key) for record in records}
        if len(keys) != len(records):
            raise _invalid(name, f"{table.name}.jsonl has two lines of one key")
    try:
        for version in rows[VERSIONS]:
            parts(version.parts)
        _check_state(rows)
        _check_log(about, rows)
    except TurnkeeperError as e:
        raise _invalid(name, e.happened.rstrip(".")) from e
    _check_links(name, about, rows)


def _check_links(name: str, about: About, rows: dict[Table[Any], list[Any]]) -> None:
    all = Everything(about.session_id)
    all.head, all.there = _head(about, "", 0), True
    all.records = {**rows, TAKES: sorted(rows[TAKES], key=lambda take: take.take)}
    all.records[MESSAGES] = sorted(rows[MESSAGES], key=lambda message: (message.take, message.position))
    bad = next((f for f in examine(all) if f.remedy not in ("none", "closed", "dropped")), None)
    if bad is not None:
        raise _invalid(name, f"{bad.place}: {bad.why}")
    takes = all.takes()
    if about.active_take not in takes or takes[about.active_take].deleted:
        raise _invalid(name, "its active take is missing")
    for take in takes.values():
        if take.parent_take is not None and take.parent_take >= take.take:
            raise _invalid(name, f"take {take.take} comes from a later one")


def _check_state(rows: dict[Table[Any], list[Any]]) -> None:
    for delta in (*rows[DELTAS], *rows[MESSAGE_DELTAS]):
        writers = declared(delta.slot, BUILT_IN).writers
        if writers:
            check_deltas([delta], writers[0], BUILT_IN)
    for base in rows[BASES]:
        check_state(base.slot, base.state, "import", BUILT_IN)


def _check_log(about: About, rows: dict[Table[Any], list[Any]]) -> None:
    operations = set()
    for event in rows[EVENTS]:
        body = event.body
        if isinstance(body, dict) and "changes" in body:
            try:
                msgspec.convert(body["changes"], list[Change])
                msgspec.convert(body["previous"], int | None)
            except (msgspec.ValidationError, KeyError) as e:
                raise Invalid(f"events, {event.event_no}: {_why(e)}") from e
            operations.add(event.event_no)
    lost = [no for no in (about.undo_event, *(about.redo or [])) if no is not None and no not in operations]
    if lost:
        raise Invalid(f"The operation {lost[0]}, which can be undone, is not in the log.")


def _head(about: About, instance_id: str, now: int) -> Session:
    return Session(
        about.session_id, instance_id, "completed", 0, None, active_take=about.active_take, next_take=about.next_take,
        next_version=about.next_version, next_turn=about.next_turn, next_pending=0, next_event=about.next_event,
        line_rev=about.line_rev, updated_at=now, last_activity_at=about.last_activity_at, undo_event=about.undo_event,
        redo=about.redo,
    )  # fmt: skip


def head_of(archive: Archive, session_id: str, instance_id: str, now: int) -> Session:
    """Answer the head of a session that an archive becomes."""
    return msgspec.structs.replace(_head(archive.about, instance_id, now), session_id=session_id)
