"""Contract: sessions, their events and their small records, and who owns them: the same over every backend."""

from __future__ import annotations

import asyncio

import pytest

from ..errors import (
    Conflict,
    Duplicate,
    Fenced,
    Gone,
    Invalid,
    NotFound,
    RootStoreWriteInTransactionError,
    SessionBusy,
    TurnkeeperError,
)
from .house import House, a_while, soon


class Stop(Exception):
    """An error of the test's own."""


class Sessions:
    """Sessions over a whole store."""

    async def test_a_new_session_is_empty_and_waits(self, house: House) -> None:
        """One take, no messages, nobody owns it."""
        store = await house.store()
        cave = await store.create_session("cave", title="The cellar", labels={"k": "v"}, metadata={"n": [1]})
        info = await cave.info()
        assert (info.title, info.labels, info.metadata) == ("The cellar", {"k": "v"}, {"n": [1]})
        assert (info.status, info.run_epoch, info.active_take, info.space) == ("pending", 0, 0, "default")
        assert (await cave.messages(), await cave.state(), len(await cave.takes())) == ([], {"vars": {}}, 1)
        assert info.created_at > 1_600_000_000_000_000

    async def test_a_session_is_found_by_its_id_over_another_connection(self, house: House) -> None:
        """The same life of it."""
        store = await house.store()
        cave = await store.create_session("cave")
        await cave.append("user", "Hello?")
        again = await (await house.store()).session("cave")
        assert again.instance_id == cave.instance_id
        assert [message.text for message in await again.messages()] == ["Hello?"]

    async def test_an_id_in_use_is_refused(self, house: House) -> None:
        """And the session behind it is left alone."""
        store = await house.store()
        cave = await store.create_session("cave", title="first")
        with pytest.raises(Duplicate):
            await store.create_session("cave", title="second")
        assert (await cave.info()).title == "first"

    async def test_an_unknown_session_is_not_found(self, house: House) -> None:
        """Nothing comes into being by being asked for."""
        store = await house.store()
        with pytest.raises(NotFound):
            await store.session("nowhere")
        assert await store.sessions() == []

    async def test_a_deleted_session_is_gone_for_its_old_handles(self, house: House) -> None:
        """Reads and writes are told so; the list does not show it."""
        store = await house.store()
        cave = await store.create_session("cave")
        await cave.append("user", "Hello?")
        await cave.delete()
        for attempt in (cave.messages, cave.state, cave.info, cave.delete):
            with pytest.raises(Gone):
                await attempt()
        with pytest.raises(Gone):
            await cave.append("user", "Still there?")
        assert await store.sessions() == []

    async def test_a_session_made_again_is_another_life(self, house: House) -> None:
        """Empty, with another incarnation; the old handle stays refused."""
        store = await house.store()
        cave = await store.create_session("cave", title="first")
        await cave.append("user", "Hello?")
        await store.records.put("cave", "notes", "k", 1)
        await cave.delete()
        again = await store.create_session("cave")
        assert again.instance_id != cave.instance_id
        assert (await again.messages(), (await again.info()).title) == ([], None)
        assert await store.records.get("cave", "notes", "k") is None
        with pytest.raises(Gone):
            await cave.append("user", "Still there?")
        assert await again.messages() == []

    async def test_the_event_log_goes_on_over_a_deletion(self, house: House) -> None:
        """No reader meets a number twice."""
        store = await house.store()
        await store.create_session("cave")
        await store.lifecycle.append_event("cave", "knock", {"n": 1})
        last = (await store.lifecycle.events("cave"))[-1].event_no
        await (await store.session("cave")).delete()
        await store.create_session("cave")
        assert [event.event_no for event in await store.lifecycle.events("cave")] == [last + 1]

    async def test_events_are_numbered_and_carry_their_landing(self, house: House) -> None:
        """In the order of the log, with the commit sequence of the transaction they came with."""
        store = await house.store()
        await store.create_session("cave")
        async with store.transaction() as tx:
            numbers = [await tx.lifecycle.append_event("cave", "knock", {"n": n}) for n in range(3)]
        events = (await store.lifecycle.events("cave"))[-3:]
        assert [(event.event_no, event.body["n"], event.commit_seq) for event in events] == [
            (number, n, tx.commit_seq) for n, number in enumerate(numbers)
        ]
        assert await store.lifecycle.events("cave", after=numbers[0], limit=1) == [events[1]]

    async def test_renaming_disturbs_no_open_transaction_of_the_session(self, house: House) -> None:
        """The title has a root of its own."""
        store = await house.store()
        cave = await store.create_session("cave")
        other = await house.store()
        async with store.transaction() as tx:
            await (await tx.session("cave")).append("user", "Hello?")
            await (await other.session("cave")).rename("The cellar")
        assert ((await cave.info()).title, len(await cave.messages())) == ("The cellar", 1)

    async def test_sessions_are_listed_by_creation_in_pages(self, house: House) -> None:
        """In both orders, each once, those of one space only."""
        store = await house.store()
        for number in range(7):
            await store.create_session(f"s{number}", title=f"{number}")
            await asyncio.sleep(0.001)
        await store.create_session("elsewhere", space="other")
        for order, expected in (("oldest", list("0123456")), ("newest", list("6543210"))):
            seen = await store.sessions(limit=3, order=order)  # type: ignore[arg-type]
            while page := await store.sessions(limit=3, after=seen[-1], order=order):  # type: ignore[arg-type]
                seen += page
            assert [info.title for info in seen] == expected
        assert [info.session_id for info in await store.sessions(space="other")] == ["elsewhere"]

    async def test_several_sessions_are_made_and_undone_together(self, house: House) -> None:
        """In one block, with everything in them."""
        store = await house.store()
        with pytest.raises(Stop):
            async with store.transaction() as tx:
                for name in ("one", "two"):
                    made = await tx.create_session(name)
                    await made.append("user", "Hello?")
                    await tx.records.put(name, "notes", "k", 1)
                raise Stop
        assert await store.sessions() == []
        async with store.transaction() as tx:
            await tx.create_session("one")
            await tx.create_session("two")
        assert len(await store.sessions()) == 2

    async def test_every_way_to_write_through_the_store_is_refused_inside_a_block(self, house: House) -> None:
        """Rooms and handles alike; what the block itself writes lands."""
        store = await house.store()
        cave = await store.create_session("cave")
        async with store.transaction() as tx:
            for attempt in (
                lambda: store.create_session("new"),
                lambda: cave.append("user", "x"),
                lambda: cave.fork(),
                lambda: cave.rename("x"),
                lambda: cave.delete(),
                lambda: store.records.put("cave", "notes", "k", 1),
                lambda: store.records.delete("cave", "notes", "k"),
                lambda: store.lifecycle.append_event("cave", "knock", {}),
                lambda: store.history.set_branch_base("cave", {"vars": {}}),
            ):
                with pytest.raises(RootStoreWriteInTransactionError):
                    await soon(attempt())
            await tx.records.put("cave", "notes", "own", 1)
            assert await cave.messages() == []
        assert [record.key for record in await store.records.list("cave", "notes")] == ["own"]
        assert len(await store.sessions()) == 1

    async def test_a_record_is_written_by_its_revision(self, house: House) -> None:
        """0 means that it is not there; a wrong revision is told at once and changes nothing."""
        store = await house.store()
        await store.create_session("cave")
        assert await store.records.put("cave", "notes", "k", {"v": 1}, expect=0) == 1
        assert await store.records.put("cave", "notes", "k", {"v": 2}, expect=1, state="open") == 2
        async with asyncio.timeout(2):
            for stale in (0, 1, 3):
                with pytest.raises(Conflict):
                    await store.records.put("cave", "notes", "k", {"v": 9}, expect=stale)
                with pytest.raises(Conflict):
                    await store.records.delete("cave", "notes", "k", expect=stale)
        found = await store.records.get("cave", "notes", "k")
        assert found is not None
        assert (found.body, found.revision, found.state) == ({"v": 2}, 2, "open")

    async def test_records_are_listed_by_key_in_pages(self, house: House) -> None:
        """Those of one namespace."""
        store = await house.store()
        await store.create_session("cave")
        for key in ("b", "a", "c", "B"):
            await store.records.put("cave", "notes", key, key)
        await store.records.put("cave", "other", "z", 1)
        assert [record.key for record in await store.records.list("cave", "notes")] == ["B", "a", "b", "c"]
        assert [r.key for r in await store.records.list("cave", "notes", after="a", limit=1)] == ["b"]
        assert await store.records.delete("cave", "notes", "a")
        assert not await store.records.delete("cave", "notes", "a")
        assert [record.key for record in await store.records.list("cave", "notes")] == ["B", "b", "c"]

    async def test_a_record_written_in_a_block_is_read_in_it(self, house: House) -> None:
        """By the same tx, and by nobody else until it has landed."""
        store = await house.store()
        await store.create_session("cave")
        async with store.transaction() as tx:
            await tx.records.put("cave", "notes", "k", {"v": [1, {"x": None}]})
            found = await tx.records.get("cave", "notes", "k")
            assert found is not None
            assert found.body == {"v": [1, {"x": None}]}
            assert await store.records.get("cave", "notes", "k") is None
        assert await store.records.get("cave", "notes", "k") == found

    async def test_an_owner_is_alone(self, house: House) -> None:
        """Another store is told whose session it is, until it is given back."""
        store, other = await house.store(owner="mill"), await house.store(owner="forge")
        cave = await store.create_session("cave")
        claim = await cave.claim()
        theirs = await other.session("cave")
        with pytest.raises(SessionBusy) as caught:
            await theirs.claim()
        assert caught.value.fields["owner"] == "mill"
        assert (await theirs.info()).status == "running"
        await cave.release()
        assert (await theirs.claim()).epoch > claim.epoch + 1
        await theirs.release()

    async def test_a_take_over_fences_the_former_owner(self, house: House) -> None:
        """Its later writes are refused and change nothing."""
        store, other = await house.store(), await house.store()
        cave = await store.create_session("cave")
        await cave.claim()
        theirs = await other.session("cave")
        await theirs.claim(take_over=True)
        with pytest.raises(Fenced):
            await cave.append("user", "too late")
        assert await cave.messages() == []
        await theirs.append("user", "mine now")
        assert [message.text for message in await cave.messages()] == ["mine now"]

    async def test_waiting_for_an_owner_ends_when_it_lets_go(self, house: House) -> None:
        """Within the time one is willing to wait."""
        store, other = await house.store(), await house.store()
        cave = await store.create_session("cave")
        await cave.claim()
        theirs = await other.session("cave")
        waiting = asyncio.create_task(theirs.claim(wait_s=20))
        await a_while()
        assert not waiting.done()
        await cave.release()
        assert (await soon(waiting)).session_id == "cave"

    async def test_closing_a_store_gives_back_what_it_owns(self, house: House) -> None:
        """At once, not when a lease ends."""
        store, other = await house.store(), await house.store()
        cave = await store.create_session("cave")
        await cave.claim()
        await store.close()
        theirs = await other.session("cave")
        assert (await theirs.info()).status == "completed"
        await soon(theirs.claim())

    async def test_an_owner_whose_lease_has_ended_is_replaced(self, house: House) -> None:
        """When its store was not closed but is silent, and nothing shows that it lives."""
        store, other = await house.store(lease_s=0.2), await house.store()
        cave = await store.create_session("cave")
        await cave.claim()
        heart = store.ownership._heart
        assert heart is not None
        heart.cancel()
        store._engine.backend.owners.release(store.ownership.owner_id)
        theirs = await other.session("cave")
        claim = await soon(theirs.claim(wait_s=10))
        assert claim.instance_id == cave.instance_id
        with pytest.raises(Fenced):
            await cave.append("user", "too late")

    async def test_a_closed_store_is_refused_everywhere(self, house: House) -> None:
        """By every room and handle, with an error of ours."""
        store = await house.store()
        cave = await store.create_session("cave")
        await store.close()
        await store.close()
        for attempt in (
            store.sessions,
            cave.messages,
            cave.info,
            lambda: store.create_session("new"),
            lambda: cave.append("user", "x"),
            lambda: store.records.get("cave", "notes", "k"),
            lambda: cave.take_turn(_say("x"), "x"),
        ):
            with pytest.raises(TurnkeeperError, match="closed"):
                await soon(attempt())
        with pytest.raises(TurnkeeperError, match="closed"):
            store.transaction()

    async def test_bad_ids_and_names_are_refused(self, house: House) -> None:
        """The same everywhere, before anything is written."""
        store = await house.store()
        for session_id in ("", "  ", "a\x00b", "\ud800", "x" * 3_000):
            with pytest.raises(Invalid):
                await store.create_session(session_id)
        await store.create_session("cave")
        with pytest.raises(Invalid):
            await store.records.put("cave", "", "k", 1)
        with pytest.raises(Invalid):
            await store.records.put("cave", "notes", "k", {1, 2})
        with pytest.raises(Invalid):
            await store.lifecycle.append_event("cave", "knock", float("nan"))
        assert len(await store.sessions()) == 1


def _say(text: str):  # type: ignore[no-untyped-def]
    async def play(turn) -> None:  # type: ignore[no-untyped-def]
        turn.reply(text)

    return play
