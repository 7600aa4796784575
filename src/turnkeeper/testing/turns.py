"""Contract: turns, the same over every backend."""

from __future__ import annotations


class Turns:
    """Turns."""
