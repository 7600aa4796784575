"""`turnkeeper check`, `backup` and `stats`: whether a store is well, a copy of it, and how much is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from rich.text import Text

from ..api import Store
from ..health import Health
from ..records import TABLES
from ..transfer.backup import BackupReport
from . import screen
from .finding import find
from .importing import count


async def check(store: Store, name: str | None, *, repair: bool, as_json: bool) -> bool:
    """Look at one session or all; print what is wrong, position by position. Says whether all is well, or was mended."""
    who = None if name is None else (await find(store, name)).session_id
    looked, unwell = 0, list[Health]()
    with screen.progress("Checking", as_json=as_json) as step:
        async for health in store.repair(who) if repair else store.check(who):
            looked += 1
            step(f"{count(looked, 'session')}")
            if not health.well:
                unwell.append(health)
    left = [f for health in unwell for f in health.findings if not repair or f.remedy == "none"]
    if as_json:
        found = [{"session_id": h.session_id, "rows": h.rows, "findings": _findings(h)} for h in unwell]
        screen.print_json({"store": store.name, "checked": looked, "repaired": repair, "unwell": found})
    else:
        _print_health(looked, unwell, repair)
    return not left


def _findings(health: Health) -> list[dict[str, Any]]:
    return [
        {key: getattr(finding, key) for key in ("kind", "place", "why", "remedy", "take", "position")}
        for finding in health.findings
    ]


def _print_health(looked: int, unwell: list[Health], repair: bool) -> None:
    out = screen.console()
    for health in unwell:
        out.print(Text.assemble((screen.fit(health.session_id, 40), "bold"), f"  {count(health.rows, 'row')}"))
        for finding in health.findings:
            where = "" if finding.position is None else f"take {finding.take}, message {finding.position}: "
            what = {"none": "is left as it is"}.get(finding.remedy, finding.remedy)
            done = f" → {what}" if repair else ""
            screen.paragraph(out, f"{finding.kind}  {where}{finding.why} ({finding.place}){done}", indent=2)
    well = looked - len(unwell)
    if not unwell:
        out.print(Text(f"All is well: {count(looked, 'session')}.", style="green"))
    elif repair:
        out.print(f"{count(len(unwell), 'session')} mended; {well} were well. What was set aside is kept.")
    else:
        screen.paragraph(
            out, f"{len(unwell)} of {count(looked, 'session')} not well. `turnkeeper check --repair` mends them."
        )


async def backup(store: Store, path: Path, *, as_json: bool) -> None:
    """Write a backup."""
    with screen.progress("Copying", as_json=as_json) as step:
        report = await store.backup(path, progress=lambda rows: step(f"{rows:,} rows"))
    _print_copied("Backed up", report, str(path), as_json)


async def restore(store: Store, path: Path, *, key: str | bytes | None, as_json: bool) -> None:
    """Take over what a backup has and the store has not."""
    with screen.progress("Copying", as_json=as_json) as step:
        report = await store.restore_backup(path, key=key, progress=lambda rows: step(f"{rows:,} rows"))
    _print_copied("Restored", report, store.name, as_json)


def _print_copied(verb: str, report: BackupReport, where: str, as_json: bool) -> None:
    if as_json:
        screen.print_json({**msgspec.to_builtins(report), "into": where})
        return
    out = screen.console()
    out.print(Text(f"{verb} {count(report.sessions, 'session')}, {count(report.rows, 'row')}.", style="green"))
    screen.paragraph(out, where, indent=2)
    if report.passed_over:
        screen.paragraph(
            out, f"{count(len(report.passed_over), 'session')} passed over: the store has them, or has deleted them.",
            indent=2,
        )  # fmt: skip


async def stats(store: Store, name: str | None, *, as_json: bool) -> None:
    """Print how much a store, or one session, holds."""
    prefix = () if name is None else ((await find(store, name)).session_id,)
    tables = [table for table in TABLES if not prefix or table.key[0] == "session_id"]
    counts, sizes = dict[str, int](), dict[str, int]()
    async with store.read_view() as rows:
        for table in tables:
            counts[table.name] = await rows.count(table, *prefix)
            sizes[table.name] = await rows.size(table, *prefix)
    total = sum(sizes.values())
    if as_json:
        screen.print_json({"store": store.name, "rows": counts, "bytes": sizes, "bytes_total": total})
        return
    out = screen.console()
    out.print(Text(f"{'table':18}{'rows':>12}{'bytes':>16}", style="dim"))
    for table in sorted(tables, key=lambda table: (-sizes[table.name], table.name)):
        if counts[table.name]:
            out.print(f"{table.name:18}{counts[table.name]:>12,}{sizes[table.name]:>16,}")
    out.print(Text(f"{'':18}{sum(counts.values()):>12,}{total:>16,}", style="bold"))
