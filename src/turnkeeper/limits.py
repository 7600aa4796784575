"""Every limit of the library, once. An error that refuses something above a limit names it and says what to do.

Sizes are bytes of UTF-8 text unless the name says otherwise.
"""

from __future__ import annotations

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
"""Integers every backend keeps."""

ID_BYTES = 2048
"""Longest id (session ids, keys, namespaces)."""

JSON_DEPTH = 64
"""Deepest nesting of one JSON value."""

JSON_NODES = 1_000_000
"""Most containers and numbers in one JSON value."""

JSON_BYTES = 16 * 1024 * 1024
"""Largest JSON value: one message's parts, one record, one slot's whole state."""

EVENT_BYTES = 2 * 1024 * 1024
"""Largest body of one event."""

GROUP_SETS = 16
"""Write sets landed under one COMMIT."""

GROUP_ROWS = 300
"""Rows applied on the event loop in one go; a larger group is applied in slices of so many."""

SCAN_INLINE_ROWS = 1000
"""A scan that may answer more rows than this is read in slices, so that the loop breathes."""

RETRY_S = 5.0
"""How long `transact` goes on retrying lost races."""

KEYFRAME_EVERY = 50
"""A whole-state keyframe stands at every so-many-th shown message."""

PAGE_ROWS = 1000
"""Largest page of a listing."""

BASE_BYTES = 1_000_000
"""Largest base of a take, over all its slots (decision 17)."""

WRITE_BYTES = 1_000_000
"""Largest write on a committed message, over all its deltas (decision 17)."""

FOREIGN_BYTES = 512 * 1024 * 1024
"""Most bytes of one foreign document, unpacked: an export, or all the exports of a zip or a folder together."""

CARD_BYTES = 64 * 1024 * 1024
"""Largest character card: a picture, a text chunk in it, a card's JSON."""

FOREIGN_FILES = 10_000
"""Most files of a zip or a folder that are looked at."""

DATABASE_BYTES = 2 * 1024 * 1024 * 1024
"""Largest foreign database that is copied and read."""
