"""Claims of the area S damage, in plain and in sealed stores: a cache that does not open is passed over, a fact refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import turnkeeper
from tests.support.scenes import Scene, exact, scene, sets
from tests.support.sealed import KEY, flip, raw
from turnkeeper.history.slots import NewDelta

pytestmark = pytest.mark.parametrize("backend", ["sqlite"])


@pytest.fixture(params=["plain", "sealed"])
def key(request: pytest.FixtureRequest) -> bytes | None:
    """Open plain and sealed stores alike."""
    return KEY if request.param == "sealed" else None


def broken(url: str, table: str, column: str, where: str = "1") -> None:
    """Damage a column of some rows: a flipped character of a sealed cell, text that is no JSON in a plain one."""
    ((sealed,),) = raw(url, "SELECT count(*) FROM seals")
    if sealed:
        assert flip(url, table, column, where) > 0
    else:
        raw(url, f"""UPDATE "{table}" SET "{column}" = '{{"torn' WHERE {where}""")


async def damaged(url: str, key: bytes | None, write: Callable[[Scene], Any], *harm: tuple[str, ...]) -> str:
    """A session that was written, closed and damaged; answer its id."""
    async with turnkeeper.open(url, key=key) as store:
        made = await scene(store)
        await write(made)
    for part in harm:
        broken(url, *part)
    return made.session_id


async def replies(made: Scene, count: int = 60) -> None:
    for i in range(count):
        await made.reply(*sets(n=i, **{f"m{i}": i}))


@pytest.mark.claim("S-104", "S-105")
async def test_a_cache_that_does_not_open_is_passed_over_and_written_anew(url: str, key):
    session_id = await damaged(url, key, replies, ("tips", "state"), ("keyframes", "state"))
    async with turnkeeper.open(url, key=key) as store:
        made = Scene(store, session_id)
        assert (await made.vars())["n"] == 59
        assert (await made.state(at=55))["vars"]["n"] == 55
        await made.again(10, *sets(changed=1))
        await made.holds()


@pytest.mark.claim("S-106")
async def test_a_damaged_delta_of_a_version_refuses_what_needs_it(url: str, key):
    session_id = await damaged(
        url, key, replies, ("tips", "state"), ("keyframes", "state"), ("deltas", "value", "version = 10")
    )
    async with turnkeeper.open(url, key=key) as store:
        made = Scene(store, session_id)
        for ask in (made.state(), made.state(at=20), made.again(30, *sets(x=1))):
            with pytest.raises(turnkeeper.Damaged) as told:
                await ask
            assert told.value.fields["table"] == "deltas" and told.value.fields["key"].startswith(f"{session_id}/10/")
        assert (await made.state(at=9))["vars"]["n"] == 9


@pytest.mark.claim("S-107")
@pytest.mark.parametrize("which", ["version IS NULL", "version IS NOT NULL"])
async def test_a_damaged_later_write_refuses_too(url: str, key, which):
    async def write(made: Scene) -> None:
        await replies(made, 3)
        await made.history.record_message_deltas(made.session_id, 1, sets(mine=1))
        await made.history.record_deltas(made.session_id, 1, 1, [stat])
        await made.forget_caches()

    stat = NewDelta("tracker.stats", ["hp"], 3)
    session_id = await damaged(url, key, write, ("message_deltas", "value", which))
    async with turnkeeper.open(url, key=key) as store:
        made = Scene(store, session_id)
        with pytest.raises(turnkeeper.Damaged, match="message_deltas"):
            await made.state()
        assert (await made.state(at=0))["vars"]["n"] == 0


@pytest.mark.claim("S-108")
async def test_a_damaged_base_refuses_because_it_is_no_cache(url: str, key):
    async def write(made: Scene) -> None:
        await made.history.set_branch_base(made.session_id, {"vars": {"coins": 7}})
        await made.reply(*sets(a=1))
        await made.forget_caches()

    session_id = await damaged(url, key, write, ("bases", "state"))
    async with turnkeeper.open(url, key=key) as store:
        with pytest.raises(turnkeeper.Damaged, match="bases"):
            await Scene(store, session_id).state()


@pytest.mark.claim("S-109")
async def test_a_change_over_damage_is_refused_whole(url: str, key):
    harm = [("tips", "state"), ("keyframes", "state"), ("deltas", "value", "version = 10")]
    session_id = await damaged(url, key, replies, *harm)
    before = [raw(url, f"SELECT * FROM {table}") for table in ("versions", "deltas", "messages", "takes")]
    async with turnkeeper.open(url, key=key) as store:
        made = Scene(store, session_id)
        with pytest.raises(turnkeeper.Damaged):
            await made.reply(*sets(new=1))
        with pytest.raises(turnkeeper.Damaged):
            await made.again(20, *sets(new=1))
    assert [raw(url, f"SELECT * FROM {table}") for table in ("versions", "deltas", "messages", "takes")] == before


@pytest.mark.claim("S-110")
async def test_a_rebuild_that_starts_after_the_damage_works(url: str, key):
    async def write(made: Scene) -> None:
        await replies(made, 120)

    session_id = await damaged(url, key, write, ("deltas", "value", "version = 10"))
    async with turnkeeper.open(url, key=key) as store:
        made = Scene(store, session_id)
        await made.again(109, *sets(n=1000))
        state = await made.state(at=109)
        assert (state["vars"]["n"], state["vars"]["m9"]) == (1000, 9)
        assert exact((await made.state())["vars"]) == exact(
            {**state["vars"], **{f"m{i}": i for i in range(110, 120)}, "n": 119}
        )
