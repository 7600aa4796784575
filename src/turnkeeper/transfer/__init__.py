"""Everything that leaves or enters a store as a whole: exports, imports, snapshots, saves, backup.

Readers of foreign files are pure: bytes in, the frozen structs of `imported` out. They open no store, ask no clock and
touch no network. `load` lands what they read, `stored` reads it back. `Transfer` gathers the operations.
"""

from __future__ import annotations

from ..kit.rooms import Room, read, write
from . import load, stored
from .imported import Imported
from .load import ImportReport

__all__ = ["ImportReport", "Transfer"]


class Transfer(Room):
    """Imports, within a transaction or directly on a store."""

    import_session = write(load.import_session)
    stored = read(stored.stored, one_view=True)

    async def import_chat(self, imported: Imported, *, space: str = "default") -> list[ImportReport]:
        """Land all that a reader found, on a store one session a landing; answer what became of each.

        The same source adds nothing, so an import that was interrupted is simply repeated. Raises what `import_session`
        raises; the sessions before that one are in the store then.
        """
        return [await self.import_session(imported, i, space=space) for i in range(len(imported.sessions))]
