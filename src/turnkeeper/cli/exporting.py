"""`turnkeeper export`: a session into a file of its own, in our format or another one."""

from __future__ import annotations

import json
from pathlib import Path

from rich.text import Text

from ..api import Store
from ..errors import Invalid
from ..transfer.files import new_file
from ..transfer.imported import Loss
from . import screen
from .finding import find
from .importing import print_losses

_BY_ENDING = {".zip": "turnkeeper", ".jsonl": "sillytavern"}


async def export(store: Store, name: str, path: Path, *, kind: str | None, take: int | None, as_json: bool) -> None:
    """Write a session into a new file; print what it has no place for."""
    kind = kind or _BY_ENDING.get(path.suffix.lower())
    if kind is None:
        raise Invalid(
            f"{path.name!r} does not say in which format to write.", "Nothing was written.",
            "End it in .zip or .jsonl, or give --format.", path="format",
        )  # fmt: skip
    if kind == "turnkeeper" and take is not None:
        raise Invalid("An archive holds all takes.", "Nothing was written.", "Leave out --take.", path="take")
    session = await find(store, name)
    line = session if take is None else session.take(take)
    losses: list[Loss] = []
    if kind == "turnkeeper":
        await session.export(path)
    elif kind == "sillytavern":
        losses = await line.export_chat(path)
    else:
        made = await line.messages(format=kind)
        async with new_file(path) as place:
            place.write_text(json.dumps(made, indent=1) + "\n")
    if as_json:
        told = [{"kind": loss.kind, "where": loss.where, "action": loss.action} for loss in losses]
        screen.print_json({"session_id": session.session_id, "format": kind, "file": str(path), "loss_report": told})
        return
    out = screen.console()
    info = await session.info()
    out.print(Text.assemble(("Exported ", "green"), (screen.fit(info.title or "(no title)", out.width - 9), "bold")))
    screen.paragraph(out, f"{kind}: {path}", indent=2)
    print_losses(out, tuple(losses))
