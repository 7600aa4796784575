"""Everything that leaves or enters a store as a whole: exports, imports, snapshots, saves, backup.

Readers of foreign files are pure: bytes in, the frozen structs of `imported` out. They open no store, ask no clock and
touch no network. `load` lands what they read, `stored` reads it back. `Transfer` gathers the operations.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import BinaryIO

from ..kit.fenced import Who
from ..kit.rooms import Room, read, write
from ..store.transaction import Transaction
from ..store.worker import apart
from . import archive, beginning, load, restoring, stored
from .archive import Archive, Written
from .files import new_file
from .imported import Imported, Loss
from .load import ImportReport
from .restoring import SnapshotInfo

__all__ = ["Archive", "ImportReport", "SnapshotInfo", "Transfer", "Written"]


class Transfer(Room):
    """Imports, exports and snapshots, within a transaction or directly on a store."""

    import_session = write(load.import_session)
    begin = write(beginning.begin)
    import_archive = write(restoring.import_archive)
    stored = read(stored.stored, one_view=True)
    snapshot = write(restoring.snapshot)
    snapshots = read(restoring.snapshots)
    delete_snapshot = write(restoring.delete_snapshot)
    restore_snapshot = write(restoring.restore_snapshot)

    async def import_chat(self, imported: Imported, *, space: str = "default") -> list[ImportReport]:
        """Land all that a reader found, on a store one session a landing; answer what became of each.

        The same source adds nothing, so an import that was interrupted is simply repeated. Raises what `import_session`
        raises; the sessions before that one are in the store then.
        """
        return [await self.import_session(imported, i, space=space) for i in range(len(imported.sessions))]

    async def import_file(self, path: str | os.PathLike[str], *, space: str | None = None) -> list[ImportReport]:
        """Take in an archive, or any foreign file, folder or zip that a reader knows; answer what became of each session.

        What was taken in before adds nothing. Raises NotFound, Invalid for what no reader knows, TooLarge.
        """
        from .formats import read_any

        found = await apart(lambda: read_any(Path(path)))
        if isinstance(found, Archive):
            return [await self.import_archive(found, space=space)]
        return await self.import_chat(found, space=space or "default")

    async def export(self, who: Who, path: str | os.PathLike[str]) -> Written:
        """Write a session with all its takes into a new file, an archive (docs/format.md).

        Raises NotFound or Gone; Invalid when there is a file already, Unavailable when it cannot be written.
        """
        async with new_file(path) as place:
            with place.open("wb") as file:
                return await self.write_archive(who, file)

    async def export_chat(self, who: Who, path: str | os.PathLike[str], *, take: int | None = None) -> list[Loss]:
        """Write one take (default: the one that is shown) as a SillyTavern chat file; answer what it has no place for.

        Raises what `export` raises, and NotFound for an unknown take.
        """
        from .sillytavern_chat import losses_of, write_chat

        if isinstance(self._scope, Transaction):
            chat = await stored.stored_chat(self._scope, who, take)
        else:
            chat = await self._scope.look(lambda rows: stored.stored_chat(rows, who, take), one_view=True)
        async with new_file(path) as place:
            with place.open("wb") as file:
                for number, line in enumerate(write_chat(chat)):
                    file.write(line)
                    if not number % 200:
                        await asyncio.sleep(0)
        return losses_of(chat)

    async def write_archive(self, who: Who, file: BinaryIO) -> Written:
        """The same into an open file."""
        if isinstance(self._scope, Transaction):
            return await archive.write(self._scope, who, file)
        return await self._scope.look(lambda rows: archive.write(rows, who, file), one_view=True)
