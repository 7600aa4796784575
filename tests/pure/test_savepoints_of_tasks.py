"""Savepoints of one transaction belong to one task at a time."""

from __future__ import annotations

import asyncio

import pytest

import turnkeeper


async def test_a_part_of_another_task_is_refused_and_undoes_nothing() -> None:
    async with turnkeeper.open("memory:") as store:
        session = await store.create_session()
        async with store.transaction() as tx:

            async def other() -> None:
                async with tx.savepoint():
                    await tx.records.put(session.session_id, "n", "theirs", 1)

            async with tx.savepoint():
                await tx.records.put(session.session_id, "n", "mine", 1)
                with pytest.raises(turnkeeper.Misuse, match="Another task"):
                    await asyncio.create_task(other())
            await asyncio.create_task(other())
        assert [r.key for r in await store.records.list(session.session_id, "n")] == ["mine", "theirs"]
