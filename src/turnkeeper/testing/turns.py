"""Contract: turns land whole or not at all, once for each key, and the state follows what is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ..errors import AlreadyLanded, Fenced, Invalid, KeyReused, Misuse, NotFound, SessionBusy
from ..handles import Line, Session
from ..turns.play import Turn
from .house import House, a_while, soon


class Stop(Exception):
    """An error of the test's own."""


async def _cave(house: House) -> Session:
    return await (await house.store()).create_session("cave")


def _plays(reply: str, **variables: Any) -> Callable[[Turn], Awaitable[None]]:
    async def play(turn: Turn) -> None:
        turn.vars.update(variables)
        turn.reply(reply)

    return play


async def _texts(line: Line) -> list[str]:
    return [message.text for message in await line.messages()]


async def _vars(line: Line, **at: int) -> dict[str, Any]:
    found: dict[str, Any] = (await line.state(**at))["vars"]
    return found


class Turns:
    """Turns, other versions, forks and their state."""

    async def test_a_turn_lands_its_input_its_reply_and_its_state(self, house: House) -> None:
        """Seen at once over another connection."""
        cave = await _cave(house)
        async with cave.turn("I light the lamp.") as turn:
            assert (turn.input, dict(turn.vars)) == ("I light the lamp.", {})
            turn.vars["lamp"] = "lit"
            turn.reply("Empty chairs.")
        seen = await (await house.store()).session("cave")
        assert await _texts(seen) == ["I light the lamp.", "Empty chairs."]
        assert [message.role for message in await seen.messages()] == ["user", "assistant"]
        assert (await _vars(seen), turn.landed.positions) == ({"lamp": "lit"}, [0, 1])

    async def test_a_turn_that_fails_changes_nothing_and_keeps_its_input(self, house: House) -> None:
        """As a pending turn that says how it ended; the error goes on as it was."""
        cave, stop = await _cave(house), Stop()
        with pytest.raises(Stop) as caught:
            async with cave.turn("I light the lamp.", key="k") as turn:
                turn.vars["lamp"] = "lit"
                turn.reply("Half a sentence")
                raise stop
        assert caught.value is stop
        assert (await cave.messages(), await _vars(cave)) == ([], {})
        (pending,) = await cave.pending()
        assert (pending.state, pending.key, pending.input[0]["text"]) == ("failed", "k", "I light the lamp.")

    async def test_a_retry_takes_over_the_turn_that_failed(self, house: House) -> None:
        """Then nothing is pending any more."""
        cave = await _cave(house)
        with pytest.raises(Stop):
            async with cave.turn("I light the lamp.", key="k"):
                raise Stop
        await cave.take_turn(_plays("Empty chairs."), "I light the lamp.", key="k")
        assert (await _texts(cave), await cave.pending()) == (["I light the lamp.", "Empty chairs."], [])

    async def test_a_failed_turn_may_be_forgotten(self, house: House) -> None:
        """By its number; the second time there is none."""
        cave = await _cave(house)
        with pytest.raises(Stop):
            async with cave.turn("I light the lamp."):
                raise Stop
        (pending,) = await cave.pending()
        assert await cave.discard(pending.pending_no)
        assert not await cave.discard(pending.pending_no)
        assert await cave.pending() == []

    async def test_a_turn_without_durable_input_leaves_nothing_when_it_fails(self, house: House) -> None:
        """Not even its input."""
        cave = await _cave(house)
        with pytest.raises(Stop):
            async with cave.turn("I light the lamp.", durable_input=False):
                raise Stop
        assert (await cave.messages(), await cave.pending()) == ([], [])

    async def test_a_running_turn_is_pending(self, house: House) -> None:
        """Its input is kept before anything runs."""
        cave = await _cave(house)
        async with cave.turn("I light the lamp.") as turn:
            (pending,) = await cave.pending()
            assert (pending.state, pending.input[0]["text"]) == ("running", "I light the lamp.")
            assert await cave.messages() == []
            turn.reply("Empty chairs.")
        assert await cave.pending() == []

    async def test_a_key_that_has_landed_plays_nothing_again(self, house: House) -> None:
        """The stored answer comes back, over another connection too."""
        cave, plays = await _cave(house), []

        async def play(turn: Turn) -> None:
            plays.append(1)
            turn.reply("Empty chairs.")

        first = await cave.take_turn(play, "I light the lamp.", key="cmd-1")
        again = await cave.take_turn(play, "I light the lamp.", key="cmd-1")
        elsewhere = await (await house.store()).session("cave")
        assert first == again == await elsewhere.take_turn(play, "I light the lamp.", key="cmd-1")
        assert (len(plays), len(await cave.messages())) == (1, 2)
        with pytest.raises(AlreadyLanded) as caught:
            async with cave.turn("I light the lamp.", key="cmd-1"):
                pass
        assert caught.value.fields["turn"] == first

    async def test_a_key_names_one_request(self, house: House) -> None:
        """With another input it is refused, and nothing is played."""
        cave = await _cave(house)
        await cave.take_turn(_plays("Empty chairs."), "I light the lamp.", key="cmd-1")
        with pytest.raises(KeyReused):
            await cave.take_turn(_plays("x"), "I go home.", key="cmd-1")
        assert len(await cave.messages()) == 2

    async def test_turns_of_one_session_wait_for_each_other(self, house: House) -> None:
        """Ten at once in one store: each sees the one before, no add is lost."""
        cave = await _cave(house)

        async def play(turn: Turn) -> None:
            turn.vars.add("count", 1)
            await asyncio.sleep(0)
            turn.reply(f"{turn.vars['count']}")

        await soon(asyncio.gather(*(cave.take_turn(play, f"{n}") for n in range(10))))
        assert [message.text for message in await cave.messages() if message.role == "assistant"] == [
            str(number) for number in range(1, 11)
        ]
        assert await _vars(cave) == {"count": 10}

    async def test_turns_of_different_sessions_run_side_by_side(self, house: House) -> None:
        """They meet inside their turns."""
        store = await house.store()
        rooms = [await store.create_session(f"room{n}") for n in range(4)]
        meet = asyncio.Barrier(4)

        async def play(turn: Turn) -> None:
            await soon(meet.wait())
            turn.reply("here")

        await asyncio.gather(*(room.take_turn(play, "?") for room in rooms))
        assert [await _texts(room) for room in rooms] == [["?", "here"]] * 4

    async def test_a_turn_sees_the_history_it_builds_on(self, house: House) -> None:
        """And its input last, ready for a model."""
        cave = await _cave(house)
        await cave.take_turn(_plays("Empty chairs."), "I light the lamp.")
        async with cave.turn("I sit down.") as turn:
            assert await turn.messages(format="openai") == [
                {"role": "user", "content": "I light the lamp."},
                {"role": "assistant", "content": "Empty chairs."},
                {"role": "user", "content": "I sit down."},
            ]
            turn.reply("It creaks.")

    async def test_tool_calls_and_results_land_with_the_turn(self, house: House) -> None:
        """In their order, part by part."""
        cave = await _cave(house)
        async with cave.turn("Roll.") as turn:
            turn.call("dice", {"sides": 6}, call_id="c1")
            turn.result("c1", [4])
            turn.reply("Four.")
        roles = [(message.role, message.parts[0]["type"]) for message in await cave.messages()]
        assert roles == [("user", "text"), ("assistant", "tool_call"), ("tool", "tool_result"), ("assistant", "text")]
        assert (await cave.messages())[2].parts[0]["content"] == [4]

    async def test_events_of_a_turn_land_with_it(self, house: House) -> None:
        """Or not at all."""
        cave = await _cave(house)
        store = await house.store()
        with pytest.raises(Stop):
            async with cave.turn("x") as turn:
                turn.emit("knock", {"n": 1})
                raise Stop
        async with cave.turn("y") as turn:
            turn.emit("knock", {"n": 2})
            turn.reply("z")
        knocks = [event for event in await store.lifecycle.events("cave") if event.type == "knock"]
        assert [event.body for event in knocks] == [{"n": 2}]

    async def test_another_version_builds_on_the_state_before_the_reply(self, house: House) -> None:
        """And is what is shown from then on."""
        cave = await _cave(house)
        await cave.take_turn(_plays("Empty chairs.", lamp="lit"), "I light the lamp.")
        async with cave.regenerate() as turn:
            assert (dict(turn.vars), turn.input) == ({}, None)
            turn.vars["water"] = True
            turn.reply("The cellar is under water.")
        assert await _texts(cave) == ["I light the lamp.", "The cellar is under water."]
        assert await _vars(cave) == {"water": True}

    async def test_choosing_a_version_brings_its_state_back(self, house: House) -> None:
        """And the other one's again."""
        cave = await _cave(house)
        await cave.take_turn(_plays("Empty chairs.", lamp="lit"), "I light the lamp.")
        async with cave.regenerate() as turn:
            turn.vars["water"] = True
            turn.reply("The cellar is under water.")
        await cave.choose(0)
        assert (await _texts(cave), await _vars(cave)) == (["I light the lamp.", "Empty chairs."], {"lamp": "lit"})
        await cave.choose(1)
        assert await _vars(cave) == {"water": True}
        assert [found.shown for found in await cave.alternatives()] == [False, True]
        with pytest.raises(NotFound):
            await cave.choose(2)

    async def test_a_reply_of_several_messages_is_made_again_on_a_take_of_its_own(self, house: House) -> None:
        """Numbered with the others as alternatives of one place."""
        cave = await _cave(house)
        async with cave.turn("Roll.") as turn:
            turn.call("dice", {}, call_id="c1")
            turn.result("c1", 4)
            turn.reply("Four.")
        async with cave.regenerate() as turn:
            turn.reply("I would rather not.")
        assert await _texts(cave) == ["Roll.", "I would rather not."]
        assert len(await cave.alternatives()) == 2
        await cave.choose(0)
        assert (await _texts(cave))[-1] == "Four."

    async def test_a_fork_goes_its_own_way(self, house: House) -> None:
        """From any position, with the state of that place; neither disturbs the other."""
        cave = await _cave(house)
        for number in range(3):
            await cave.take_turn(_plays(f"r{number}", n=number), f"i{number}")
        what_if = await cave.fork(at=3)
        assert (await _texts(what_if), await _vars(what_if)) == (["i0", "r0", "i1", "r1"], {"n": 1})
        await what_if.take_turn(_plays("other", n=99), "else")
        assert (await _texts(cave), await _vars(cave)) == (["i0", "r0", "i1", "r1", "i2", "r2"], {"n": 2})
        assert (await _texts(what_if))[-2:] == ["else", "other"]
        assert await _vars(what_if) == {"n": 99}
        await what_if.activate()
        assert await _vars(cave) == {"n": 99}

    async def test_a_fork_shares_versions_but_not_what_is_shown(self, house: House) -> None:
        """Another version made on one take is not shown on the other."""
        cave = await _cave(house)
        await cave.take_turn(_plays("first", n=1), "i")
        what_if = await cave.fork()
        async with what_if.regenerate() as turn:
            turn.vars["n"] = 2
            turn.reply("second")
        assert (await _texts(cave), await _vars(cave)) == (["i", "first"], {"n": 1})
        assert (await _texts(what_if), await _vars(what_if)) == (["i", "second"], {"n": 2})

    async def test_the_state_of_every_position_stays_readable(self, house: House) -> None:
        """Over more than one keyframe: sixty turns, each changing one variable and removing another."""
        cave = await _cave(house)

        def play(number: int) -> Callable[[Turn], Awaitable[None]]:
            async def body(turn: Turn) -> None:
                turn.vars[f"v{number % 5}"] = number
                turn.vars.pop(f"v{(number + 2) % 5}", None)
                turn.reply(str(number))

            return body

        expected: dict[str, int] = {}
        after: list[dict[str, int]] = []
        for number in range(60):
            await cave.take_turn(play(number), "?", durable_input=False)
            expected[f"v{number % 5}"] = number
            expected.pop(f"v{(number + 2) % 5}", None)
            after.append(dict(expected))
        assert await _vars(cave) == after[-1]
        for number in (0, 10, 24, 25, 26, 49, 50, 59):
            assert await _vars(cave, at=2 * number + 1) == after[number], number
        fork = await cave.fork(at=101)
        assert await _vars(fork) == after[50]

    async def test_the_newest_messages_are_read_in_order(self, house: House) -> None:
        """The last so many, of those before a position."""
        cave = await _cave(house)
        for number in range(10):
            await cave.append("user", str(number))
        assert [message.text for message in await cave.messages(last=3)] == ["7", "8", "9"]
        assert [message.text for message in await cave.messages(last=2, before=5)] == ["3", "4"]
        assert await cave.messages(last=0) == []
        assert len(await cave.messages(last=100)) == 10

    async def test_text_of_every_kind_is_kept_to_the_code_point(self, house: House) -> None:
        """In messages, titles, variables, records and events."""
        odd = "\x00 \ud800 \ud83d\ude00 \U0001f600 é e\u0301 \uffff"
        store = await house.store()
        cave = await store.create_session("cave", title=odd)
        await cave.take_turn(_plays(odd, **{odd: [odd, -0.0]}), odd)
        await store.records.put("cave", "notes", "k", {odd: odd})
        seen = await (await house.store()).session("cave")
        assert (await _texts(seen), (await seen.info()).title) == ([odd, odd], odd)
        assert str(await _vars(seen)) == str({odd: [odd, -0.0]})
        found = await store.records.get("cave", "notes", "k")
        assert found is not None
        assert found.body == {odd: odd}

    async def test_a_turn_of_a_session_owned_elsewhere_is_refused(self, house: House) -> None:
        """Before it plays."""
        cave, other = await _cave(house), await house.store()
        await (await other.session("cave")).claim()
        with pytest.raises(SessionBusy):
            await cave.take_turn(_plays("x"), "x")
        assert (await cave.messages(), await cave.pending()) == ([], [])

    async def test_a_turn_that_loses_its_session_lands_nothing(self, house: House) -> None:
        """Taken over while it ran: its pending turn stays, interrupted, with its input."""
        cave, other = await _cave(house), await house.store()
        theirs = await other.session("cave")
        with pytest.raises(Fenced):
            async with cave.turn("I light the lamp.") as turn:
                turn.reply("Empty chairs.")
                await asyncio.create_task(theirs.claim(take_over=True))
        assert await theirs.messages() == []
        (pending,) = await theirs.pending()
        assert (pending.state, pending.input[0]["text"]) == ("interrupted", "I light the lamp.")

    async def test_a_cancelled_turn_keeps_its_input_and_nothing_else(self, house: House) -> None:
        """The task ends cancelled, and the session goes on."""
        cave, inside = await _cave(house), asyncio.Event()

        async def work() -> None:
            async with cave.turn("I light the lamp.") as turn:
                turn.reply("Half")
                inside.set()
                await asyncio.sleep(30)

        task = asyncio.create_task(work())
        await soon(inside.wait())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await cave.messages() == []
        assert [pending.state for pending in await cave.pending()] == ["failed"]
        await soon(cave.take_turn(_plays("Empty chairs."), "I light the lamp."))
        assert len(await cave.messages()) == 2

    async def test_a_turn_inside_a_turn_of_the_same_session_is_refused(self, house: House) -> None:
        """It would wait for itself."""
        cave = await _cave(house)
        async with cave.turn("x") as turn:
            with pytest.raises(Misuse):
                async with asyncio.timeout(5), cave.turn("y"):
                    pass
            turn.reply("z")
        assert await _texts(cave) == ["x", "z"]

    async def test_a_value_that_cannot_be_kept_is_refused_where_it_is_given(self, house: House) -> None:
        """And the turn goes on without it."""
        cave = await _cave(house)
        async with cave.turn("x") as turn:
            for value in (float("nan"), 2**63, {1: 2}, b"x"):
                with pytest.raises(Invalid):
                    turn.vars["v"] = value
            with pytest.raises(Invalid):
                turn.reply([{"type": "nonsense"}])
            turn.reply("y")
        assert (await _texts(cave), await _vars(cave)) == (["x", "y"], {})

    async def test_other_sessions_go_on_while_a_turn_runs(self, house: House) -> None:
        """No lock is held while user code runs: reads and other writes of the same session do not wait, either."""
        cave = await _cave(house)
        store = await house.store()
        async with cave.turn("x") as turn:
            await soon(store.records.put("cave", "notes", "k", 1))
            await soon(cave.rename("during"))
            await soon(store.create_session("other"))
            assert await soon(cave.messages()) == []
            await a_while()
            turn.reply("y")
        assert ((await cave.info()).title, await _texts(cave)) == ("during", ["x", "y"])
