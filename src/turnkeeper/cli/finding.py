"""Which session a person means: its id, the beginning of its id, or its title, as long as that is one session."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ..api import Store
from ..errors import Gone, Invalid, NotFound
from ..handles import Session
from ..records import HEADERS, Header
from ..store.reading import Rows

_LAST = "\U0010ffff"
_PAGE = 1000
SHORT = 13
"""Fewest signs of an id that are shown: those that hold the millisecond in which it was minted."""


async def find(store: Store, name: str) -> Session:
    """Answer the session that `name` means. Raises NotFound, Gone, or Invalid when it means several."""
    gone: Gone | None = None
    with contextlib.suppress(NotFound):
        try:
            return await store.session(name)
        except Gone as e:
            gone = e
    found = await store.look(lambda rows: _candidates(rows, name), one_view=True)
    if len(found) == 1:
        return await store.session(found[0].session_id)
    if found:
        ids = ", ".join(header.session_id for header in found[:5])
        more = " …" if len(found) > 5 else ""
        raise Invalid(
            f"{name!r} means {len(found)} sessions: {ids}{more}.",
            "Nothing was done.",
            "Give more of the id.",
            sessions=[header.session_id for header in found],
        )
    if gone is not None:
        raise gone
    raise NotFound(
        f"There is no session {name!r}.", "Nothing was done.", "`turnkeeper list` shows what is there.",
        kind="session", id=name,
    )  # fmt: skip


async def _candidates(rows: Rows, name: str) -> list[Header]:
    """Answer the sessions whose id begins with `name`, or whose title is it, letter case aside."""
    found: dict[str, Header] = {}
    if not name:
        return []
    for header in await rows.scan(HEADERS, low=name, high=name + _LAST, limit=_PAGE):
        found[header.session_id] = header
    after, wanted = None, name.casefold()
    while True:
        page = await rows.scan(HEADERS, after=after, limit=_PAGE)
        for header in page:
            if header.title is not None and header.title.casefold() == wanted:
                found[header.session_id] = header
        if len(page) < _PAGE:
            return list(found.values())
        after = (page[-1].session_id,)


def shorten(ids: Sequence[str]) -> dict[str, str]:
    """Answer for each id its shortest beginning, of at least `SHORT` signs, that is no beginning of another one."""
    short: dict[str, str] = {}
    ordered = sorted(set(ids))
    for i, one in enumerate(ordered):
        length = SHORT
        for other in ordered[max(i - 1, 0) : i] + ordered[i + 1 : i + 2]:
            while length < len(one) and one[:length] == other[:length]:
                length += 1
        short[one] = one[:length]
    return short
