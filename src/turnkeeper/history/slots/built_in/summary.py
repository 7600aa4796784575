"""The chat summary's rows, keyed by the version they end at: generated pieces, and the person's text in one row.

A generated piece names the version it ends at, how many live messages there were then (`through`), when it was written,
and which text of the person its writer had read (`saw`, `saw_n`; none when there was none). A piece flagged `replace`
stands in for the pieces before it. The person's row is `person`: the text, the id of the edit, and its number.
"""

from __future__ import annotations

from typing import Any

from ..definition import define_slot
from ..shapes import Fields, Flag, Nullable, Shape, Text, Whole

PERSON_KEY = "person"
"""The key of the row with the person's text."""

PERSON: Shape = Fields({"version": Text(), "text": Text(), "edit": Text(chars_min=1), "n": Whole(low=1)})

GENERATED: Shape = Fields(
    {"version": Text(chars_min=1), "text": Text(), "through": Whole(low=0), "at": Whole(low=0)},
    {"saw": Nullable(Text()), "saw_n": Nullable(Whole(low=1)), "replace": Flag()},
)


def row(value: Any) -> str | None:
    """Answer what is wrong with a row of the summary, or None."""
    mine = isinstance(value, dict) and value.get("version") == PERSON_KEY
    return (PERSON if mine else GENERATED)(value)


SLOT = define_slot("summary", "scene", "keyed-list", [], key="version", writers=("background", "person"), shape=row)
