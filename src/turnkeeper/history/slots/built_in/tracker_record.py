"""Linked library trackers that are a record of fields: `tracker-record:<id of the piece>`.

The store knows the family alone. What the values of one piece must be is the business of the tracker that owns it.
"""

from __future__ import annotations

from ..definition import define_slot

SLOT = define_slot("tracker-record:*", "scene", "fields", {}, writers=("turn", "person"))
