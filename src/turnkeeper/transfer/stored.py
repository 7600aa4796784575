"""Reading an imported session back, from the store into the structs that readers give: what `summary` then describes.

It is the other half of `load`: what was landed and not changed since comes back equal, so a comparison with what was
read proves what is stored. Later changes are seen as well: another shown version, a fork, the state at the end of a
take. Cut messages are left out, as they are not shown.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import Damaged, NotFound
from ..history.choosing import versions_of
from ..history.fold import VARS
from ..history.ranges import versions_by_number
from ..history.state import live_take, scene_state
from ..kit.fenced import Ref, Who, look_up, session_id_of
from ..limits import INT_MAX
from ..records import HEADERS, MESSAGES, RECORDS, TAKES, Message, Take
from ..store.backend import Scan
from ..store.reading import Rows
from .imported import Imported, ImportedMessage, ImportedSession, ImportedTake, ImportedVersion, Loss
from .load import NAMESPACE


async def stored(rows: Rows, who: Who) -> Imported:
    """Answer an imported session as it is stored now, with its loss report.

    Raises NotFound or Gone for a session that is not there, NotFound for one that was not imported.
    """
    session_id = who.session_id if isinstance(who, Ref) else who
    head, (takes, records) = await look_up(
        rows, who, Scan(TAKES, prefix=(session_id,)), Scan(RECORDS, prefix=(session_id, NAMESPACE))
    )
    rest: dict[str, Any] = {record.key: record.body for record in records}
    if "session" not in rest:
        raise NotFound(f"Session {session_id!r} was not imported.", do="Read it with `messages`.", kind="import", id="")
    source = rest["session"]
    losses = [loss for key, part in rest.items() if key.startswith("report.") for loss in part]
    header = await rows.get(HEADERS, session_id)
    versions: dict[int, ImportedVersion] = {}
    session = ImportedSession(
        source["source_id"],
        (header.title if header is not None else None) or "",
        tuple(
            [
                await _take(
                    rows, take, rest.get(f"take.{take.take}", {}), versions, active=take.take == head.active_take
                )
                for take in takes
                if not take.deleted
            ]
        ),
        source["extra"],
        source["created_at"],
    )
    return Imported(
        source["format"], source["file_sha256"], (session,), tuple(msgspec.convert(loss, Loss) for loss in losses)
    )


class StoredChat(msgspec.Struct, frozen=True):
    """One take of any session as a chat: its messages with their positions; what an import has kept beside them."""

    take: ImportedTake
    positions: list[int]
    title: str
    created_at: int | None
    new: list[list[bool]]  # of each message's versions, whether it was made here


async def stored_chat(rows: Rows, who: Who, take: int | None = None) -> StoredChat:
    """Answer a take as a chat, imported or not. A fork has the rest of the take it came from.

    Raises NotFound or Gone, NotFound for an unknown take, Damaged for a version that is missing.
    """
    head, (takes, records) = await look_up(
        rows, who, Scan(TAKES, prefix=(session_id_of(who),)), Scan(RECORDS, prefix=(session_id_of(who), NAMESPACE))
    )
    number = head.active_take if take is None else take
    by_number = {row.take: row for row in takes}
    row = live_take(by_number.get(number), head.session_id, number)
    kept: dict[str, Any] = {record.key: record.body for record in records}
    source: Take | None = row
    while source is not None and f"take.{source.take}" not in kept:
        source = by_number.get(source.parent_take) if source.parent_take is not None else None
    rest = kept.get(f"take.{source.take}", {}) if source is not None else {}
    header = await rows.get(HEADERS, head.session_id)
    brought = kept.get("session", {}).get("versions", INT_MAX)  # sessions of earlier releases do not say
    found = [message for message in await rows.scan(MESSAGES, head.session_id, row.take) if not message.cut]
    return StoredChat(
        await _take(rows, row, rest, {}, active=row.take == head.active_take),
        [message.position for message in found],
        (header.title if header is not None else None) or row.name or "",
        header.created_at if header is not None else None,
        [[version >= brought for version in _versions_left(message)] for message in found],
    )


async def _take(
    rows: Rows, take: Take, rest: dict[str, Any], versions: dict[int, ImportedVersion], *, active: bool
) -> ImportedTake:
    found = [message for message in await rows.scan(MESSAGES, take.session_id, take.take) if not message.cut]
    wanted = {number for message in found for number in versions_of(message)} - versions.keys()
    for number, version in (await versions_by_number(rows, take.session_id, wanted)).items():
        versions[number] = ImportedVersion(version.parts, version.meta or {}, version.extra or {}, version.created_at)
    state = await scene_state(rows, take.session_id, take=take.take)
    variables = {**rest.get("variables", {}), **state[VARS]}
    messages = tuple(_message(message, versions) for message in found)
    return ImportedTake(take.name or "", messages, variables, rest.get("extra", {}), active)


def _message(message: Message, versions: dict[int, ImportedVersion]) -> ImportedMessage:
    head = message.head or {}
    numbers = _versions_left(message)
    missing = [number for number in numbers if number not in versions]
    if missing:
        raise Damaged(
            f"The version {missing[0]} of position {message.position} of take {message.take} is missing.",
            "Nothing was changed.",
            "Restore it from a backup, or run the health check.",
            table="versions",
            key=f"{message.session_id}/{missing[0]}",
        )
    return ImportedMessage(
        message.role, head.get("name"), bool(head.get("hidden")), message.created_at, head.get("extra") or {},
        tuple(versions[number] for number in numbers), numbers.index(message.version),
    )  # fmt: skip


def _versions_left(message: Message) -> list[int]:
    """Answer the versions of a message that are not cut."""
    return [number for number in versions_of(message) if number not in (message.cut_versions or ())]
