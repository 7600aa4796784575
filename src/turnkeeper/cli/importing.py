"""`turnkeeper import`: a foreign file into the store, and a report of what is in the store then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace
from rich.text import Text

from ..api import Store
from ..errors import Invalid
from ..transfer import Archive, ImportReport, formats
from ..transfer.imported import Imported, Loss
from ..transfer.summaries import summary
from . import screen
from .finding import shorten


def read_file(path: Path) -> Imported | Archive:
    """Read a foreign file, folder or zip, or an archive of ours.

    Raises Invalid for what no reader knows, TooLarge above a reader's limit.
    """
    return formats.read_any(path)


async def import_file(
    store: Store, imported: Imported | Archive, *, space: str | None, begin: bool, as_json: bool
) -> None:
    """Land what was read, read it back from the store, and print that; `begin`: a session with the card it is.

    Raises Invalid for a `begin` with what is no card.
    """
    if begin and (isinstance(imported, Archive) or imported.card is None):
        raise Invalid("Only a character card can begin a session.", do="Leave --begin away.", path="--begin")
    if isinstance(imported, Archive):
        await _import_archive(store, imported, space=space, as_json=as_json)
        return
    if imported.format in ("card", "lorebook-world", "lorebook-card"):
        begun = [await store.transfer.begin(imported, space=space or "default")] if begin else []
        _print_character(store, imported, begun, as_json=as_json)
        return
    reports = await store.transfer.import_chat(imported, space=space or "default")
    stored = [await store.transfer.stored(report.session_id) for report in reports]
    losses = tuple(loss for one in stored for loss in one.losses) if stored else imported.losses
    whole = replace(imported, sessions=tuple(session for one in stored for session in one.sessions), losses=losses)
    if as_json:
        screen.print_json(_described(store, whole, reports))
    else:
        _print(whole, reports)


async def _import_archive(store: Store, read: Archive, *, space: str | None, as_json: bool) -> None:
    report = await store.transfer.import_archive(read, space=space)
    session = await store.session(report.session_id)
    info, takes = await session.info(), await session.takes()
    counts = {table.name: len(rows) for table, rows in read.rows.items()}
    if as_json:
        screen.print_json({
            "store": store.name, "added": int(report.added), "session_ids": [report.session_id], "format": "turnkeeper",
            "file_sha256": read.sha256, "rows": counts,
            "sessions": [{"session_id": report.session_id, "added": report.added, "title": info.title}],
            "loss_report": [],
        })  # fmt: skip
        return
    out = screen.console()
    first = "Imported " if report.added else "Already here: "
    title = screen.fit(info.title or "(no title)", out.width - len(first))
    out.print(Text.assemble((first, "green" if report.added else "yellow"), (title, "bold")))
    told = ", ".join((count(counts["versions"], "version"), count(len(takes), "take")))
    screen.paragraph(out, f"{told}; session {shorten([report.session_id])[report.session_id]}", indent=2)


def _print_character(store: Store, read: Imported, begun: list[str], *, as_json: bool) -> None:
    described = summary(read)
    if as_json:
        losses = [{"kind": loss.kind, "where": loss.where, "action": loss.action} for loss in read.losses]
        own = {"store": store.name, "added": len(begun), "session_ids": begun}
        screen.print_json({**own, **described, "loss_report": losses})
        return
    out = screen.console()
    book = described.get("lorebook")
    if read.card is not None:
        card, book = described["card"], described["card"]["book"]
        name = screen.fit(read.card.name or "(no name)", out.width - len("Card of "))
        out.print(Text.assemble(("Card of ", "green"), (name, "bold")))
        told = [f"{card['spec']}", count(card["greetings"], "greeting")]
        if card["group_only_greetings"]:
            told.append(f"{card['group_only_greetings']} more for groups")
        screen.paragraph(out, ", ".join(told), indent=2)
    if book is not None:
        told = [f"lorebook of {'1 entry' if book['entries'] == 1 else format(book['entries'], ',') + ' entries'}"]
        told += [f"{book['enabled']} enabled", f"{book['constant']} always on"]
        screen.paragraph(out, ", ".join(told), indent=2)
    if begun:
        screen.paragraph(out, f"session {shorten(begun)[begun[0]]} begins with it", indent=2)
    elif read.card is not None:
        screen.paragraph(out, "Nothing was written; --begin starts a session with this card.", indent=2)
    print_losses(out, read.losses)


def _described(store: Store, whole: Imported, reports: list[ImportReport]) -> dict[str, Any]:
    described = summary(whole)
    for session, report in zip(described["sessions"], reports, strict=True):
        session.update(session_id=report.session_id, added=report.added)
    described["loss_report"] = [
        {"kind": loss.kind, "where": loss.where, "action": loss.action} for loss in whole.losses
    ]
    return {
        "store": store.name,
        "added": sum(report.added for report in reports),
        "session_ids": [report.session_id for report in reports],
        **described,
    }


def _print(whole: Imported, reports: list[ImportReport]) -> None:
    out = screen.console()
    described = summary(whole)["sessions"]
    short = shorten([report.session_id for report in reports])
    for session, report in zip(described, reports, strict=True):
        takes = session["takes"]
        counts = [
            count(sum(take["messages"] for take in takes), "message"),
            count(session["versions_total"], "version"),
            count(len(takes), "take"),
        ]
        first = "Imported " if report.added else "Already here: "
        title = screen.fit(session["title"], out.width - len(first))
        out.print(Text.assemble((first, "green" if report.added else "yellow"), (title, "bold")))
        screen.paragraph(out, f"{', '.join(counts)}; session {short[report.session_id]}", indent=2)
    if not reports:
        out.print("Nothing to import: the file is empty.")
    print_losses(out, whole.losses)


def print_losses(out: Any, losses: tuple[Loss, ...]) -> None:
    """Print losses by kind, with the first places of each."""
    if not losses:
        return
    kinds: dict[tuple[str, str], list[Loss]] = {}
    for loss in losses:
        kinds.setdefault((loss.kind, loss.action), []).append(loss)
    out.print()
    out.print("What you should know:", style="bold")
    for (kind, action), group in kinds.items():
        named = ("line", "position")
        places = [
            f"{n.replace('position', 'message')} {loss.where[n]}"
            for loss in group[:3]
            for n in named
            if n in loss.where
        ]
        more = f" and {len(group) - 3} more" if len(group) > 3 else ""
        place = f" ({', '.join(places)}{more})" if places else ""
        screen.paragraph(out, f"{kind.replace('_', ' ')}: {action}{place}", indent=2)


def count(number: int, noun: str) -> str:
    """Answer a number with its noun: "1 take", "3 takes"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
