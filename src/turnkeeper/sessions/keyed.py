"""Small keyed records of a session, in namespaces: put by compare-and-set on a revision, get, list, delete (decision 39).

A record's revision starts at 1 and grows by one with each change. Deleting the session deletes them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from ..errors import Conflict, Invalid, NotAllowed
from ..jsonvalue import check, digest
from ..kit.fenced import Who, enter, look_up, session_id_of
from ..limits import PAGE_ROWS
from ..records import RECORDS, Record, Session
from ..store.backend import Get
from ..store.reading import Rows
from ..store.transaction import Transaction

RESERVED = frozenset({"import"})
"""Namespaces that only the library writes: what an import must give back at an export."""


class StoredRecord(msgspec.Struct, frozen=True):
    """One record as it is read."""

    namespace: str
    key: str
    revision: int
    state: str
    at: int
    body: Any


async def put(
    tx: Transaction, who: Who, namespace: str, key: str, body: Any, *, state: str = "", expect: int | None = None
) -> int:
    """Write a record; answer its revision. `expect` is the revision it must have (0: not there), None: whichever.

    Raises Conflict when the revision is another, Invalid for a body that is not JSON, NotFound or Gone.
    """
    _check_names(namespace, key)
    _check_open(namespace)
    check(body, "body")
    head, (found,) = await enter(tx, who, Get(RECORDS, (session_id_of(who), namespace, key)))
    revision = 0 if found is None else found.revision
    if expect is not None and expect != revision:
        raise Conflict(
            f"The record {namespace}/{key} of session {head.session_id!r} is at revision {revision}, not {expect}.",
            do="Read it again and decide anew.",
            revision=revision,
            expected=expect,
        )
    now = await tx.now()
    made = Record(head.session_id, namespace, key, revision + 1, state, now, digest(body), body)
    if found is None:
        await tx.insert(made)
    else:
        await tx.update(made, expect={"revision": revision})
    await _active(tx, head, now)
    return revision + 1


async def get(rows: Rows, who: Who, namespace: str, key: str) -> StoredRecord | None:
    """Answer a record, or None."""
    _check_names(namespace, key)
    _, (found,) = await look_up(rows, who, Get(RECORDS, (session_id_of(who), namespace, key)))
    return None if found is None else _stored(found)


async def listing(
    rows: Rows, who: Who, namespace: str, *, after: str | None = None, limit: int = PAGE_ROWS
) -> list[StoredRecord]:
    """Answer the records of a namespace in the order of their keys, those after the key `after`, at most `limit`."""
    _check_names(namespace, "")
    if type(limit) is not int or not 0 < limit <= PAGE_ROWS:
        raise Invalid(f"`limit` is a whole number from 1 to {PAGE_ROWS}.", do="Ask for another page.", path="limit")
    head, _ = await look_up(rows, who)
    place = None if after is None else (head.session_id, namespace, after)
    found = await rows.scan(RECORDS, head.session_id, namespace, after=place, limit=limit)
    return [_stored(record) for record in found]


async def delete(tx: Transaction, who: Who, namespace: str, key: str, *, expect: int | None = None) -> bool:
    """Remove a record; say whether there was one. Raises Conflict when it is not at the revision `expect`."""
    _check_names(namespace, key)
    _check_open(namespace)
    head, (found,) = await enter(tx, who, Get(RECORDS, (session_id_of(who), namespace, key)))
    if expect is not None and (found is None or found.revision != expect):
        raise Conflict(
            f"The record {namespace}/{key} is not at revision {expect}.", do="Read it again and decide anew.",
            revision=0 if found is None else found.revision, expected=expect,
        )  # fmt: skip
    if found is None:
        return False
    await tx.delete(RECORDS, head.session_id, namespace, key)
    await _active(tx, head, await tx.now())
    return True


async def _active(tx: Transaction, head: Session, now: int) -> None:
    await tx.update(replace(head, last_activity_at=now), expect={"run_epoch": head.run_epoch})


def _stored(record: Record) -> StoredRecord:
    return StoredRecord(record.namespace, record.key, record.revision, record.state, record.at, record.body)


def _check_open(namespace: str) -> None:
    if namespace in RESERVED:
        raise NotAllowed(
            f"The namespace {namespace!r} is written by the library alone.",
            do="Choose another one.",
            namespace=namespace,
        )


def _check_names(namespace: str, key: str) -> None:
    if not isinstance(namespace, str) or not namespace:
        raise Invalid("A namespace is a text that is not empty.", do="Give one.", path="namespace")
    if not isinstance(key, str):
        raise Invalid("A record's key is text.", do="Give a str.", path="key")
