"""The health of a session: every row looked at, damage told position by position, and mended without losing a row."""

from __future__ import annotations

from ..kit.rooms import Room, read, write
from . import repair
from .findings import Finding
from .repair import Health

__all__ = ["Finding", "Health", "HealthChecks"]


class HealthChecks(Room):
    """Looking at a session and mending it, within a transaction or directly on a store."""

    check = read(repair.check, one_view=True)
    note = write(repair.note)
    repair = write(repair.repair)
