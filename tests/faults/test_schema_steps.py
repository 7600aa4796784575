"""Databases of earlier schema versions: opened, brought forward in one step, and nothing of them lost (decision 37)."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import turnkeeper
from tests.support import databases
from tests.support.postgres import run_sql
from turnkeeper.api import PLAN
from turnkeeper.records import DAMAGES, SEALS, SNAPSHOTS, TABLES
from turnkeeper.store.migrations import Plan
from turnkeeper.store.migrations.steps import STEPS

OLD = Path(__file__).parent.parent / "data" / "schema"


def rows(path: str) -> dict[str, list[Any]]:
    """Every row of every table, without the marks of the schema."""
    with sqlite3.connect(path) as c:
        names = [name for (name,) in c.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: c.execute(f'SELECT * FROM "{name}" ORDER BY 1, 2').fetchall() for name in names}
    c.close()
    return {name: kept for name, kept in found.items() if name != "store_meta"}


def schema(path: str) -> dict[str, Any]:
    """What the tables of a file have become: their columns, whatever order they stand in."""
    with sqlite3.connect(path) as c:
        tables = [name for (name,) in c.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {
            table: sorted(row[1:4] + row[5:] for row in c.execute(f"SELECT * FROM pragma_table_info('{table}')"))
            for table in tables
        }
        found["indexes"] = sorted(c.execute("SELECT name, tbl_name FROM sqlite_master WHERE type = 'index'"))
    c.close()
    return found


@pytest.fixture
def old(tmp_path: Path) -> str:
    """A file of version 1, as the build of that time wrote it."""
    path = str(tmp_path / "old.db")
    with sqlite3.connect(path) as c:
        c.executescript((OLD / "1.sql").read_text())
    c.close()
    return path


@pytest.mark.field("F-37")
@pytest.mark.parametrize("backend", ["sqlite"])
async def test_a_file_of_version_1_is_brought_forward_with_every_row(backend, old, tmp_path):
    before = rows(old)
    async with turnkeeper.open(old):
        pass
    after = rows(old)
    for table, kept in before.items():
        width = len(kept[0]) if kept else 0
        assert [row[:width] for row in after[table]] == kept, table
    assert {table for table in after if table not in before} == {"seals", "damages", "snapshots"}
    assert not any(after[table] for table in ("seals", "damages", "snapshots"))
    new = str(tmp_path / "new.db")
    async with turnkeeper.open(new):
        pass
    assert schema(old) == schema(new)


@pytest.mark.field("F-37")
@pytest.mark.parametrize("backend", ["sqlite"])
async def test_its_sessions_go_on_where_they_stood(backend, old):
    async with turnkeeper.open(old) as store:
        session = await store.session("old")
        assert (await session.state())["vars"] == {"coins": 7, "water": 3}
        assert [found.input for found in await session.pending()] == [[{"type": "text", "text": "I call out."}]]
        assert await session.undo()
        assert len(await session.messages()) == 2
        async with session.turn("On.") as turn:
            turn.reply("Yes.")
        assert [take.take for take in await session.takes()] == [0, 1]


@pytest.mark.parametrize("backend", ["sqlite"])
async def test_refuse_leaves_an_older_file_as_it_is(backend, old):
    before = rows(old), schema(old)
    with pytest.raises(turnkeeper.IncompatibleStore, match="migrate"):
        await turnkeeper.open(old, migrate="refuse")
    assert (rows(old), schema(old)) == before


@pytest.mark.parametrize("backend", ["postgres"])
async def test_a_schema_of_version_1_on_postgres(url):
    """Its tables are made by hand from the declarations of that time: the newer tables and the newer column left out."""
    plan = Plan(tuple(table for table in TABLES if table not in (SEALS, DAMAGES, SNAPSHOTS)), version=1, steps={})
    engine = await databases.connector(url)(plan)
    await engine.close()
    schema_name = url.partition("?schema=")[2]
    await run_sql(url, f'ALTER TABLE "{schema_name}"."pending_turns" DROP COLUMN "writes"')
    async with turnkeeper.open(url) as store:
        session = await store.create_session("one")
        async with session.turn("Hello") as turn:
            turn.vars["a"] = 1
            await turn.save()
            turn.reply("Here.")
        assert (await session.state())["vars"] == {"a": 1}
        await store.records.put("one", "notes", "k", 1)


def test_each_version_has_a_step_in_both_dialects():
    assert sorted(STEPS) == list(range(1, PLAN.version))
    assert all(set(step) == {"sqlite", "postgres"} for step in STEPS.values())
