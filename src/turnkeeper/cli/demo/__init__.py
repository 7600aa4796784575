"""`turnkeeper demo`: a tour on a real file, every claim of it checked while it runs.

`story` has the chat's scripted turns, `tour` plays them and checks, `stage` prints, `worker` is the process that the
tour kills in the middle of a turn.
"""

from __future__ import annotations

import asyncio

from .stage import ClaimFailed, Stage, choose_file
from .tour import play_tour


def show_demo(path: str | None, *, fast: bool = False) -> int:
    """Play the tour; answer the exit code. 1 means that a claim did not hold. Raises Invalid for a file that is there."""
    file = choose_file(path)
    stage = Stage(fast=fast)
    try:
        asyncio.run(play_tour(stage, file))
    except ClaimFailed as e:
        stage.failed(e)
        return 1
    return 0
