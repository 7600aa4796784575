"""Mending a session in one landing: damaged rows are set aside and kept, what hangs on them follows, calls are closed.

Nothing is deleted that is not kept: each row set aside stands, cell by cell, in the table `damages`. The caches of a take
that lost something go, so that reads fold what is left, and the next change writes them anew (S-115, S-116).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ..errors import NotFound
from ..history.calls import INTERRUPTED, pair_calls
from ..history.choosing import versions_of
from ..history.line import Change, keep
from ..history.ranges import deltas_by_version, versions_by_number
from ..history.state import rebuild
from ..kit.fenced import Who, gone, session_id_of
from ..limits import ID_BYTES
from ..records import (
    BASES,
    DAMAGES,
    DELTAS,
    KEYFRAMES,
    MESSAGE_DELTAS,
    MESSAGES,
    SESSIONS,
    TAKES,
    TIPS,
    VERSIONS,
    Damage,
    Message,
    Session,
    Take,
    Version,
)
from ..schema import Row, Table
from ..store.intake import codec
from ..store.reading import Rows, Unreadable
from ..store.transaction import Transaction
from .findings import Finding, examine, minted
from .rows import Everything, Target, gather

_PASSES = 6  # what hangs on what: a version, its message, what was written on that, …


class Health(msgspec.Struct, frozen=True):
    """What a check found in a session, or what a repair did about it."""

    session_id: str
    rows: int
    findings: list[Finding]

    @property
    def well(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


async def check(rows: Rows, who: Who) -> Health:
    """Look at every row of a session; answer what is wrong, position by position. Reads only.

    Raises NotFound or Gone for a session that is not there.
    """
    all = await _there(rows, who)
    return Health(all.session_id, all.count(), examine(all))


async def note(tx: Transaction, who: Who, findings: Sequence[Finding]) -> None:
    """Keep what a check found, so that a list marks the session; what an earlier check found and is well now goes."""
    session_id = session_id_of(who)
    known = {damage.place: damage for damage in await tx.scan(DAMAGES, session_id)}
    found = {_short(finding.place): finding for finding in findings if finding.kind == "damaged-row"}
    for place, damage in known.items():
        if damage.state == "found" and place not in found:
            await tx.delete(DAMAGES, session_id, place)
    now = await tx.now()
    for place, finding in found.items():
        if place not in known:
            await tx.insert(Damage(session_id, place, finding.place.partition("/")[0], "found", _told(finding), now))


async def repair(tx: Transaction, who: Who) -> Health:
    """Mend a session; answer what was wrong. What it cannot mend stays as it is, with the remedy "none".

    Raises NotFound or Gone.
    """
    all = await _there(tx, who)
    told: dict[tuple[str, str], Finding] = {}
    if all.head is None:
        (finding,) = examine(all)
        await _renew(tx, all.unreadable[0], finding)
        told[finding.place, finding.why] = finding
        all = await gather(tx, who)
    touched: set[int] = set()
    for _ in range(_PASSES):
        findings = [f for f in examine(all) if f.kind != "stale-cache" or f.take not in touched]  # those go anyway
        told.update({(f.place, f.why): f for f in findings if (f.place, f.why) not in told})
        if not await _mend(tx, all, findings, touched):
            break
        all = await gather(tx, who)
    if told:
        await _finish(tx, all, touched)
    await _close_calls(tx, all)
    await note(tx, who, [finding for finding in told.values() if finding.remedy == "none"])
    return Health(all.session_id, all.count(), list(told.values()))


async def _there(rows: Rows, who: Who) -> Everything:
    all = await gather(rows, who)
    if not all.there:
        if all.gone:
            raise gone(all.session_id)
        raise NotFound(
            f"There is no session {all.session_id!r}.", do="Check the id.", kind="session", id=all.session_id
        )
    return all


async def _mend(tx: Transaction, all: Everything, findings: Sequence[Finding], touched: set[int]) -> bool:
    """Do what each finding asks for; say whether rows moved, so that there may be more to find."""
    takes_of = _takes_by_version(all)
    unread = {(row.table, row.key): row for row in all.unreadable}
    moved, done = False, set[Target]()
    for finding in findings:
        target = finding.target
        if target is None or target in done or finding.remedy in ("none", "closed", "counted anew"):
            continue
        done.add(target)
        touched |= _touched(finding, target, takes_of)
        if finding.remedy == "dropped":
            continue  # all caches of a touched take go, below
        table, key = target
        if finding.remedy == "switched":
            await _switch(tx, all, table, key)
        elif finding.remedy == "renewed":
            await _renew(tx, unread[target], finding)
        else:
            await _set_aside(tx, unread.get(target), target, finding)
        moved = True
    return moved


def _takes_by_version(all: Everything) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for message in all.of(MESSAGES):
        for number in versions_of(message):
            found.setdefault(number, set()).add(message.take)
    return found


def _touched(finding: Finding, target: Target, takes_of: dict[int, set[int]]) -> set[int]:
    """Answer the takes whose state may follow."""
    table, key = target
    if table in (VERSIONS, DELTAS):
        return takes_of.get(key[1], set())
    if table in (TAKES, MESSAGES, MESSAGE_DELTAS, BASES, TIPS, KEYFRAMES):
        return {key[1]}
    return set()


async def _set_aside(tx: Transaction, unread: Unreadable | None, target: Target, finding: Finding) -> None:
    table, key = target
    if unread is None:
        record = await tx.get(table, *key)
        if record is None:
            return
        row = codec(table).encode(record)
    else:
        row = unread.row
    await _keep(tx, table, row, finding)
    await tx.delete(table, *key)


async def _keep(tx: Transaction, table: Table[Any], row: Row, finding: Finding) -> None:
    """Keep a row's cells as they stand."""
    session_id, place = row[table.index["session_id"]], _short(finding.place)
    cells = [cell.hex() if isinstance(cell, bytes) else cell for cell in row]
    made = Damage(str(session_id), place, table.name, "aside", _told(finding), await tx.now(), cells)
    if not await tx.update(made, expect={}):
        await tx.insert(made)


async def _renew(tx: Transaction, unread: Unreadable, finding: Finding) -> None:
    """Write a row anew without the texts that cannot be read, and keep the old one."""
    await _keep(tx, unread.table, unread.row, finding)
    await tx.update(unread.plain(), expect={})


async def _switch(tx: Transaction, all: Everything, table: Table[Any], key: tuple[Any, ...]) -> None:
    """Lead a link that leads nowhere to what is there: the nearest version, or the first live take."""
    if table is SESSIONS:
        head = await tx.get(SESSIONS, all.session_id)
        assert head is not None
        live = min(take.take for take in all.of(TAKES) if not take.deleted)
        await tx.update(replace(head, active_take=live, line_rev=head.line_rev + 1), expect={})
        return
    message: Message | None = await tx.get(MESSAGES, *key)
    assert message is not None
    there = {version.version for version in all.of(VERSIONS)}
    there |= {row.key[1] for row in all.unreadable if row.table is VERSIONS}
    left = [number for number in versions_of(message) if number in there]
    uncut = [number for number in left if number not in (message.cut_versions or [])] or left
    version = message.version if message.version in left else _nearest(uncut, versions_of(message), message.version)
    cut = [number for number in message.cut_versions or [] if number in left and number != version]
    await tx.update(
        replace(message, version=version, versions=left if len(left) > 1 else None, cut_versions=cut or None), expect={}
    )


def _nearest(left: Sequence[int], all: Sequence[int], lost: int) -> int:
    """Answer the version before the lost one, or the next after it (decision 19)."""
    place = all.index(lost) if lost in all else 0
    before = [number for number in all[:place] if number in left]
    return before[-1] if before else next(number for number in all if number in left)


async def _finish(tx: Transaction, all: Everything, touched: set[int]) -> None:
    """Count anew, drop the caches of the takes that lost something, and forget what can no longer be undone."""
    head = await tx.get(SESSIONS, all.session_id)
    assert head is not None
    counters = {name: max(getattr(head, name), least) for name, least in minted(all).items()}
    lost = {"undo_event": None, "redo": None} if touched else {}
    moved = replace(head, **counters, **lost, line_rev=head.line_rev + bool(touched))
    if moved != head:
        await tx.update(moved, expect={})
    for take in all.of(TAKES):
        here = [message for message in all.of(MESSAGES) if message.take == take.take]
        cursor = max([take.cursor, *(message.position + 1 for message in here)])
        if take.take in touched:
            await _drop_caches(tx, take)
            shown = sum(1 for message in here if not message.cut)
            await tx.update(replace(take, cursor=cursor, shown_count=shown, revision=take.revision + 1), expect={})
        elif cursor != take.cursor:
            await tx.update(replace(take, cursor=cursor), expect={})


async def _drop_caches(tx: Transaction, take: Take) -> None:
    for row in await tx.survey(TIPS, take.session_id, take.take):
        await tx.delete(TIPS, take.session_id, take.take, row.key[2] if isinstance(row, Unreadable) else row.slot)
    for frame in await tx.survey(KEYFRAMES, take.session_id, take.take):
        at = frame.key[2] if isinstance(frame, Unreadable) else frame.position
        await tx.delete(KEYFRAMES, take.session_id, take.take, at)


async def _close_calls(tx: Transaction, all: Everything) -> None:
    """Give every open call its closing result, on another version of the message that made it (F-50).

    A version is shared by the takes that show it, so is the one that closes it. It carries what the old one carried.
    """
    versions = {version.version: version for version in all.of(VERSIONS)}
    opened: dict[int, set[str]] = {}
    places: dict[int, list[Message]] = {}
    for take in all.of(TAKES):
        shown = [m for m in all.of(MESSAGES) if m.take == take.take and not (take.deleted or m.cut)]
        shown = [message for message in shown if message.version in versions]
        pairs = pair_calls([(message.role, versions[message.version].parts) for message in shown])
        for (number, index), result in pairs.items():
            version = versions[shown[number].version]
            if result is None:
                opened.setdefault(version.version, set()).add(version.parts[index]["id"])
                if shown[number] not in places.setdefault(version.version, []):
                    places[version.version].append(shown[number])
    if not opened:
        return
    head: Session | None = await tx.get(SESSIONS, all.session_id)
    assert head is not None
    now, changes = await tx.now(), list[Change]()
    for number, calls in opened.items():
        head, made = await _closing_version(tx, head, number, calls, now)
        for message in places[number]:
            changes.append(await _show(tx, message, made))
    for take_no in sorted({change.take for change in changes if change.take is not None}):
        take = await tx.get(TAKES, all.session_id, take_no)
        assert take is not None
        first = min(change.position for change in changes if change.take == take_no and change.position is not None)
        await tx.update(await rebuild(tx, take, first), expect={})
    kept = keep(replace(head, line_rev=head.line_rev + 1), "history.repaired", {}, changes, now)
    await tx.insert_many(kept.rows)
    await tx.update(replace(kept.head, last_activity_at=now), expect={})


async def _closing_version(
    tx: Transaction, head: Session, number: int, calls: Iterable[str], now: int
) -> tuple[Session, int]:
    (old,) = (await versions_by_number(tx, head.session_id, [number])).values()
    closing = [
        {"type": "tool_result", "call_id": call_id, "content": INTERRUPTED, "is_error": True}
        for call_id in sorted(calls)
    ]
    made = Version(head.session_id, head.next_version, now, [*old.parts, *closing], old.meta, old.extra)
    await tx.insert(made)
    for delta in (await deltas_by_version(tx, head.session_id, [number])).get(number, []):
        await tx.insert(replace(delta, version=made.version))
    return replace(head, next_version=made.version + 1), made.version


async def _show(tx: Transaction, message: Message, version: int) -> Change:
    """Show another version on a message, with the writes that were tied to the one before."""
    where = (message.session_id, message.take, message.position)
    later = await tx.scan(MESSAGE_DELTAS, *where)
    following = max((delta.seq for delta in later), default=-1) + 1
    tied = [delta for delta in later if delta.version == message.version]
    await tx.insert_many([replace(delta, version=version, seq=following + i) for i, delta in enumerate(tied)])
    await tx.update(replace(message, version=version, versions=[*versions_of(message), version]), expect={})
    return Change("shown", message.take, message.position, message.version, version)


def _told(finding: Finding) -> str:
    where = "" if finding.position is None else f"take {finding.take}, message {finding.position}: "
    return (where + finding.why)[:400]


def _short(place: str) -> str:
    """Answer a place as an id."""
    if len(place.encode()) <= ID_BYTES:
        return place
    return f"{place.partition('/')[0]}/{hashlib.sha256(place.encode()).hexdigest()}"
