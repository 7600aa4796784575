"""Linked library trackers that are a list of rows, each found by its name: `tracker-list:<id of the piece>`.

The store knows the family alone. What the values of one piece must be is the business of the tracker that owns it.
"""

from __future__ import annotations

from ..definition import define_slot

SLOT = define_slot("tracker-list:*", "scene", "keyed-list", [], key="name", writers=("turn", "person"))
