"""The scene's macro variables: one field, and one delta, for each name. Any JSON value; any name is plain data."""

from __future__ import annotations

from ..definition import define_slot

SLOT = define_slot("vars", "scene", "fields", {}, writers=("turn", "person", "import"))
