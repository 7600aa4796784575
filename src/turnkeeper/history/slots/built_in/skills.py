"""Which linked skills the model has open: a field for each open skill, holding true. Closing one removes its field."""

from __future__ import annotations

from ..definition import define_slot
from ..shapes import Choice

SLOT = define_slot("skills", "scene", "fields", {}, writers=("turn", "person"), shape=Choice([True]))
