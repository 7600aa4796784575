"""A recorded story, the moments at which its power can go off, and what is wrong after each."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import turnkeeper
from tests.faults.story import Ledger, faults_of_file, play_story
from tests.support.vfs import LEAVES, Change, Disk, PowerCut, open_store
from turnkeeper.errors import TurnkeeperError


async def recorded(
    folder: Path, durability: Literal["full", "normal"] = "full", *, turns: int = 300, seed: int = 1
) -> tuple[list[Change], Ledger]:
    """Play the story; answer what the disk was asked, and what callers were told when."""
    folder.mkdir()
    with Disk(record=True) as disk:
        ledger = Ledger(disk.mark)
        store = await open_store(folder / "story.db", vfs=disk.name, durability=durability)
        await play_story(store, ledger, turns=turns, seed=seed)
        await store.close()
    assert faults_of_file(folder / "story.db", ledger, disk.mark()) == []
    return disk.trace, ledger


def moments(trace: list[Change], count: int, seed: int) -> list[int]:
    """Choose moments: a third beside syncs, a third while a checkpoint writes the database, the rest anywhere."""
    chance = random.Random(seed)
    syncs = [i + after for i, change in enumerate(trace) if change.op == "sync" for after in (0, 1)]
    checkpoints = [i for i, change in enumerate(trace) if change.role == "db"]
    chosen = {*chance.sample(syncs, min(len(syncs), count // 3))}
    chosen |= {*chance.sample(checkpoints, min(len(checkpoints), count // 3))}
    others = [i for i in range(len(trace) + 1) if i not in chosen]
    return sorted(chosen | {*chance.sample(others, min(len(others), count - len(chosen)))})


async def after_cut(cut: PowerCut, moment: int, number: int, folder: Path, ledger: Ledger) -> list[str]:
    """Cut the power at a moment, open the store again as anybody would, and answer what is wrong."""
    cut.advance(moment)
    folder.mkdir()
    cut.write(folder, seed=moment, leave=LEAVES[number % len(LEAVES)])
    try:
        async with turnkeeper.open(folder / "story.db"):
            pass
    except TurnkeeperError as error:
        return [f"lost: it does not open: {error}"]
    return faults_of_file(folder / "story.db", ledger, moment)


async def sweep(
    trace: list[Change], ledger: Ledger, chosen: Iterable[int], folder: Path, *, honest: bool = True, keep: bool = True
) -> dict[int, list[str]]:
    """Cut the power at many moments; answer the faults by moment. `keep=False` removes each image after its check."""
    cut, faults = PowerCut(trace, honest=honest), {}
    for number, moment in enumerate(chosen):
        if found := await after_cut(cut, moment, number, folder / str(number), ledger):
            faults[moment] = found
        if not keep:
            shutil.rmtree(folder / str(number))
    return faults
