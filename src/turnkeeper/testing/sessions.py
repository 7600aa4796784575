"""Contract: sessions, their events and their records, the same over every backend."""

from __future__ import annotations


class Sessions:
    """Sessions."""
