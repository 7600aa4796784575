"""What a shell completes SESSION to: ids and titles of the store that is named. It never fails, and never makes a file."""

from __future__ import annotations

import asyncio
import os

_MOST = 100


def names(url: str | None, incomplete: str) -> list[str]:
    """Answer ids and titles that begin with what is typed."""
    where = url or os.environ.get("TURNKEEPER_STORE")
    if not where:
        return []
    try:
        return asyncio.run(_names(where, incomplete.casefold()))
    except Exception:  # a shell that completes has nowhere to put an error
        return []


async def _names(url: str, incomplete: str) -> list[str]:
    from ..api import open as open_store

    async with open_store(url, create=False, key=os.environ.get("TURNKEEPER_KEY") or None) as store:
        found = await store.sessions(limit=_MOST)
    words = [word for info in found for word in (info.title, info.session_id) if word]
    return [word for word in words if word.casefold().startswith(incomplete)]
