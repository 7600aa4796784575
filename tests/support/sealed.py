"""Sealed stores for tests: their key, what connects the contract suite to one, and a look at the raw cells."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from turnkeeper.clock import Clock
from turnkeeper.records import SEALS
from turnkeeper.store.engine import Engine
from turnkeeper.store.migrations import Plan
from turnkeeper.store.sealed import unlocked
from turnkeeper.testing import Connect

from . import databases

KEY = bytes(range(32))
MARKER = "Ariadne"


def connector(url: str, clock: Clock | None = None) -> Connect:
    """Answer what opens a sealed engine on a database each time it is called."""
    plain = databases.connector(url, clock)

    async def connect(plan: Plan) -> Engine:
        tables = tuple(dict.fromkeys((*plan.tables, SEALS)))
        engine = await plain(Plan(tables, plan.version, plan.steps))
        return Engine(await unlocked(engine.backend, KEY, tables), tables)

    return connect


def raw(path: str | Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Run one statement on a closed SQLite store, past everything that guards it."""
    with sqlite3.connect(path) as c:
        found = c.execute(statement, values).fetchall()
    c.close()
    return found


def flip(path: str | Path, table: str, column: str, where: str = "1", *, at: int = 20) -> int:
    """Change one character of a column of some rows; answer of how many."""
    rows = raw(path, f'SELECT rowid, "{column}" FROM "{table}" WHERE {where}') if _has_rowid(path, table) else None
    if rows is None:
        return _flip_by_key(path, table, column, where, at)
    for rowid, cell in rows:
        raw(path, f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', flipped(cell, at), rowid)
    return len(rows)


def _has_rowid(path: str | Path, table: str) -> bool:
    ((text,),) = raw(path, "SELECT sql FROM sqlite_master WHERE name = ?", table)
    return "WITHOUT ROWID" not in text


def _flip_by_key(path: str | Path, table: str, column: str, where: str, at: int) -> int:
    keys = [row[1] for row in raw(path, f"SELECT * FROM pragma_table_info('{table}') WHERE pk > 0 ORDER BY pk")]
    named = ", ".join(f'"{key}"' for key in keys)
    rows = raw(path, f'SELECT "{column}", {named} FROM "{table}" WHERE {where}')
    for cell, *key in rows:
        at_key = " AND ".join(f'"{name}" = ?' for name in keys)
        raw(path, f'UPDATE "{table}" SET "{column}" = ? WHERE {at_key}', flipped(cell, at), *key)
    return len(rows)


def flipped(cell: Any, at: int = 20) -> Any:
    """Answer a cell with one character, or byte, changed."""
    at = min(at, len(cell) - 1)
    if isinstance(cell, bytes):
        return cell[:at] + bytes([cell[at] ^ 1]) + cell[at + 1 :]
    return cell[:at] + ("B" if cell[at] == "A" else "A") + cell[at + 1 :]
