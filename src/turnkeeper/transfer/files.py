"""New files that stand in their place whole or not at all."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ..errors import Invalid, Unavailable
from ..store.worker import apart


@asynccontextmanager
async def new_file(path: str | os.PathLike[str]) -> AsyncIterator[Path]:
    """Answer a path in a folder beside the place; what was written there moves into the place when the block ends well.

    Raises Invalid when there is something at the place, Unavailable when it cannot be written. Nothing is left then.
    """
    import tempfile

    wanted = _free(path)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{wanted.name}.", dir=wanted.parent) as folder:
            made = Path(folder, wanted.name)
            yield made
            await apart(lambda: _put(made, wanted))
    except OSError as e:
        happened = f"{str(wanted)!r} cannot be written: {e.strerror or e}."
        raise Unavailable(happened, "There is no such file.", "Choose another place.") from e


def _free(path: str | os.PathLike[str]) -> Path:
    wanted = Path(path).resolve()
    if os.path.lexists(wanted):
        happened = f"There is a file at {str(wanted)!r} already."
        raise Invalid(happened, "It was left as it is, and nothing was written.", "Choose another name.", path="path")
    return wanted


def _put(made: Path, wanted: Path) -> None:
    """Move a finished file to its place for good: what was written is on the disk before its name is."""
    for path in (made, wanted.parent):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
            if path is made:
                made.rename(_free(wanted))
        finally:
            os.close(handle)
