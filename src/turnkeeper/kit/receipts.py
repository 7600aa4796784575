"""Receipts: insert-only proof that a keyed request happened, with the digest of the request and its stored answer.

`verdict` answers a replay with the stored answer, refuses a key that named another request, and says None for the first
time; the caller then does the work and adds a Receipt in the same landing, so the two cannot part.
"""

from __future__ import annotations

from typing import Any

from ..errors import KeyReused
from ..jsonvalue import check, digest
from ..records import RECEIPTS, Receipt
from ..store.backend import Get


def wanted(session_id: str, scope: str, key: str) -> Get:
    """Answer the request that looks a receipt up."""
    return Get(RECEIPTS, (session_id, scope, key))


def request_digest(request: Any) -> bytes:
    """Answer the digest by which two requests count as equal. Raises Invalid for what is not JSON."""
    check(request, "request")
    return digest(request)


def verdict(found: Receipt | None, request: bytes) -> Any | None:
    """Answer the stored answer of an equal request, or None when it never happened. Raises KeyReused."""
    if found is None:
        return None
    if found.digest != request:
        raise reused(found.key)
    return found.answer


def reused(key: str) -> KeyReused:
    """Build the error for a key that names another request."""
    return KeyReused(
        f"The key {key!r} already names a request with other content.",
        "Nothing was run or written; the first request stands.",
        "Use a new key for a new request, or repeat the first one exactly.",
        key=key,
    )
