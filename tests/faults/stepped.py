"""A schema one version on, with a step that leads there: what a later Turnkeeper may bring."""

from __future__ import annotations

from pathlib import Path

from tests.support.vfs import open_store
from turnkeeper.api import PLAN, Store
from turnkeeper.store.migrations import Plan

STEP = ["CREATE TABLE step_marks (one INTEGER PRIMARY KEY)", "INSERT INTO step_marks VALUES (1)"]


def stepped() -> Plan:
    """Answer the plan of the next version."""
    return Plan(PLAN.tables, PLAN.version + 1, {PLAN.version: {"sqlite": STEP, "postgres": STEP}})


async def open_stepped(path: Path) -> Store:
    """Open a store with it."""
    return await open_store(path, plan=stepped())
