"""Histories against a model of plain lists, on the three backends at once: after every step all show the same.

Turns, other versions, choices, cuts and restores, forks, edits, background writes, bases, take deletes, undo and redo, in
any order. A keyframe stands at every fourth shown message here, so that short histories have some. The long
search is the run `histories` of `make soak`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import turnkeeper
from tests.machine.history_model import History, Refused
from tests.support import databases
from tests.support.scenes import Scene, exact, scene
from turnkeeper.errors import TurnkeeperError
from turnkeeper.history import appending, state
from turnkeeper.history.content import message
from turnkeeper.history.slots import NewDelta
from turnkeeper.records import KEYFRAMES, SESSIONS, TAKES, TIPS
from turnkeeper.turns.land import Outcome
from turnkeeper.turns.pending import Request

RUNS, STEPS = 40, 30
EVERY = 4
TAKES_MAX = 8
NOWHERE = 900

picks = st.integers(0, 999)
names = st.sampled_from("abc")
slots = st.sampled_from(["vars", "tracker.stats", "tracker.party"])


def delta(slot: str, name: str, value: int | None) -> NewDelta:
    """A change, or a removal for None."""
    if value is None:
        return NewDelta(slot, [name], removed=True)
    return NewDelta(slot, [name], {"key": name, "value": value} if slot == "tracker.party" else value)


values = st.none() | st.integers(0, 3)
changes = st.lists(st.builds(delta, slots, names, values), max_size=3)
tracked = st.lists(
    st.builds(delta, st.sampled_from(["tracker.stats", "tracker.party"]), names, values), min_size=1, max_size=3
)


class World:
    """The event loop, a store of each backend, and how often each rule fired."""

    def __init__(self, folder: Path, server_url: Callable[[], str]) -> None:
        self.runner, self.fired = asyncio.Runner(), Counter[str]()
        urls = [databases.fresh(backend, folder, server_url) for backend in databases.BACKENDS]
        self.stores = [self.runner.run(self._open(url)) for url in urls]

    async def _open(self, url: str) -> turnkeeper.Store:
        return await turnkeeper.open(url, durability="normal")

    def close(self) -> None:
        """Close the stores and the loop."""
        for store in self.stores:
            self.runner.run(store.close())
        self.runner.close()


class HistoryMachine(RuleBasedStateMachine):
    """One session on each backend, and the model."""

    world: World

    @initialize()
    def begin(self) -> None:
        self.model, self.said = History(), 0
        self.scenes = [self.world.runner.run(scene(store)) for store in self.world.stores]
        self.turn(1, 3, [delta("vars", "a", 1), delta("tracker.stats", "a", 1)])
        self.regenerate(1, [delta("vars", "b", 2)])
        self.regenerate_as_take(7, [delta("vars", "c", 3)])

    # how a step is made

    def text(self) -> str:
        """A text that nobody said before."""
        self.said += 1
        return f"text {self.said}"

    def live(self, pick: int) -> int:
        """A live take, mostly the active one."""
        found = self.model.live()
        return self.model.active if pick % 3 else found[(pick + self.said) % len(found)]

    def place(self, pick: int) -> tuple[int, int] | None:
        """A take and a position it shows; now and then one that it does not."""
        take = self.live(pick)
        if pick % 29 == 5:
            return take, NOWHERE
        found = self.model.shown(take)
        return (take, found[(pick // 3 + self.said) % len(found)]) if found else None

    def step(self, name: str, act: Callable[[], Any], work: Callable[[Scene], Awaitable[Any]]) -> Any:
        """Do one thing in the model and on every backend: the same answers, or the same refusals."""
        try:
            expected, wanted = act(), ""
        except Refused as refusal:
            expected, wanted = None, str(refusal)
        self.world.fired[name + (", refused" if wanted else "")] += 1
        for one in self.scenes:
            try:
                answer, met = self.world.runner.run(self._worked(work, one)), ""
            except TurnkeeperError as error:
                answer, met = None, type(error).__name__
            assert (met, answer if expected is not None else None) == (wanted, expected), (name, one.store)
        return expected

    async def _worked(self, work: Callable[[Scene], Awaitable[Any]], one: Scene) -> Any:
        return await work(one)

    # growing

    async def _land(self, one: Scene, outcome: Outcome) -> Any:
        return await one.store.turns.commit_turn(one.session_id, outcome)

    @rule(pick=picks, count=st.integers(1, 3), deltas=changes)
    def turn(self, pick: int, count: int, deltas: list[NewDelta]) -> None:
        take, texts = self.live(pick), [self.text() for _ in range(count)]
        said = [message("assistant", text) for text in texts]
        outcome = Outcome(Request("reply", None, None, b""), take, None, said, list(deltas), [])

        async def work(one: Scene) -> list[int]:
            return (await self._land(one, outcome)).positions

        self.step("turn", lambda: self.model.add(take, texts, deltas), work)

    @rule(pick=picks, count=st.integers(1, 6))
    def append(self, pick: int, count: int) -> None:
        take, texts = self.live(pick), [self.text() for _ in range(count)]
        said = [message("assistant", text) for text in texts]
        self.step("append", lambda: self.model.add(take, texts, []),
                  lambda one: one.history.append_messages(one.session_id, said, take=take))  # fmt: skip

    @rule(pick=picks, deltas=changes)
    def regenerate(self, pick: int, deltas: list[NewDelta]) -> None:
        where = self.place(pick)
        if where is None or where[1] == NOWHERE:
            return
        (take, position), text = where, self.text()
        asked = Request("regenerate", None, None, b"", at=position)
        outcome = Outcome(asked, take, position, [message("assistant", text)], list(deltas), [])
        self.step("regenerate", lambda: self.model.again(take, position, text, deltas),
                  lambda one: self._land(one, outcome))  # fmt: skip

    @rule(pick=picks, deltas=changes)
    def regenerate_as_take(self, pick: int, deltas: list[NewDelta]) -> None:
        where = self.place(pick)
        if where is None or where[1] == NOWHERE or len(self.model.takes) >= TAKES_MAX:
            return
        (take, position), texts = where, [self.text(), self.text()]
        said = [message("assistant", text) for text in texts]
        outcome = Outcome(Request("regenerate", None, None, b""), take, position, said, list(deltas), [])

        async def work(one: Scene) -> int:
            return (await self._land(one, outcome)).take

        self.step("regenerate as a take", lambda: self.model.again_as_take(take, position, texts, deltas), work)

    @rule(pick=picks)
    def add_version(self, pick: int) -> None:
        where = self.place(pick)
        if where is not None:
            (take, position), text = where, self.text()
            said = message("assistant", text)
            self.step("add version", lambda: self.model.again(take, position, text, []),
                      lambda one: one.history.add_version(one.session_id, position, said, take=take))  # fmt: skip

    @rule(pick=picks, at=picks, activate=st.booleans())
    def fork(self, pick: int, at: int, activate: bool) -> None:
        if len(self.model.takes) < TAKES_MAX:
            take = self.live(pick)
            last = at % (len(self.model.takes[take].said) + 1) - 1
            self.step("fork", lambda: self.model.fork(take, last, activate),
                      lambda one: one.history.fork(one.session_id, at=last, take=take, activate=activate))  # fmt: skip

    # choosing and hiding

    @rule(pick=picks, index=st.integers(0, 3))
    def select(self, pick: int, index: int) -> None:
        where = self.place(pick)
        if where is not None:
            take, position = where
            self.step("select", lambda: self.model.choose(take, position, index),
                      lambda one: one.history.select_swipe(one.session_id, position, index, take=take))  # fmt: skip

    @rule(pick=picks, number=picks)
    def choose(self, pick: int, number: int) -> None:
        shown = self.model.shown(self.model.active)
        if not shown:
            return
        position = shown[(pick + self.said) % len(shown)]
        offered = [self.world.runner.run(self._offered(one, position)) for one in self.scenes]
        assert offered[0] == offered[1] == offered[2]
        assert len(offered[0]) > 0
        chosen = offered[0][(number + self.said) % len(offered[0])]
        self.world.fired["choose, another take"] += chosen.take != self.model.active
        self.step("choose", lambda: self.model.choose(chosen.take, chosen.position, chosen.index, activate=True),
                  lambda one: one.history.choose(one.session_id, chosen.number, position))  # fmt: skip

    async def _offered(self, one: Scene, position: int) -> list[Any]:
        return await one.history.alternatives(one.session_id, position)

    @rule(pick=picks)
    def activate(self, pick: int) -> None:
        found = self.model.live()
        take = found[pick % len(found)]
        self.step("activate", lambda: self.model.activate(take),
                  lambda one: one.history.select_take(one.session_id, take))  # fmt: skip

    @rule(pick=picks, more=picks)
    def cut(self, pick: int, more: int) -> None:
        where = self.place(pick)
        if where is not None:
            take, position = where
            shown = self.model.shown(take)
            positions = sorted({position, shown[more % len(shown)]} if shown and more % 2 else {position})
            positions += [NOWHERE] if more % 7 == 3 and NOWHERE not in positions else []
            self.step("cut", lambda: self.model.cut(take, positions),
                      lambda one: one.history.cut_messages(one.session_id, positions, take=take))  # fmt: skip

    @rule(pick=picks, more=picks, as_take=st.booleans())
    def restore(self, pick: int, more: int, as_take: bool) -> None:
        take = self.live(pick)
        hidden = [position for position, one in enumerate(self.model.takes[take].said) if one.cut]
        if not hidden:
            self.cut(pick, more)
            hidden = [position for position, one in enumerate(self.model.takes[take].said) if one.cut]
        if hidden and not (as_take and len(self.model.takes) >= TAKES_MAX):
            positions = sorted({hidden[pick // 3 % len(hidden)], hidden[more % len(hidden)]})
            self.step("restore as a take" if as_take else "restore", lambda: self.model.restore(take, positions, as_take),
                      lambda one: one.history.restore_cut(one.session_id, positions, take=take, as_take=as_take))  # fmt: skip

    @rule(pick=picks, index=st.integers(0, 2))
    def cut_version(self, pick: int, index: int) -> None:
        where = self.place(pick)
        if where is not None:
            take, position = where
            self.step("cut version", lambda: self.model.cut_version(take, position, index),
                      lambda one: one.history.cut_swipe(one.session_id, position, index, take=take))  # fmt: skip

    @rule(pick=picks)
    def restore_version(self, pick: int) -> None:
        """Where none is cut, one is cut first, if it can be."""
        if not self.cut_versions():
            self.cut_version(pick, pick % 2)
        found = self.cut_versions()
        if found:
            take, position, index = found[pick % len(found)]
            self.step("restore version", lambda: self.model.restore_version(take, position, index),
                      lambda one: one.history.restore_swipe(one.session_id, position, index, take=take))  # fmt: skip

    def cut_versions(self) -> list[tuple[int, int, int]]:
        """The cut versions of what is shown: take, position, index."""
        return [
            (take, position, index)
            for take in self.model.live() for position in self.model.shown(take)
            for index, number in enumerate(self.model.takes[take].said[position].versions)
            if number in self.model.takes[take].said[position].cut_versions
        ]  # fmt: skip

    @rule(pick=picks)
    def delete_take(self, pick: int) -> None:
        """Now and then twice: the second time it is refused."""
        take = pick % len(self.model.takes)
        for _ in range(1 + (pick % 4 == 0)):
            self.step("delete take", lambda: self.model.delete(take),
                      lambda one: one.history.delete_take(one.session_id, take))  # fmt: skip

    @rule(pick=picks)
    def restore_take(self, pick: int) -> None:
        """Where none is deleted, one is deleted first, if it can be."""
        if not any(take.deleted for take in self.model.takes):
            self.delete_take(pick)
        dead = [number for number, take in enumerate(self.model.takes) if take.deleted]
        if dead:
            take = dead[pick % len(dead)]
            self.step("restore take", lambda: self.model.undelete(take),
                      lambda one: one.history.restore_take(one.session_id, take))  # fmt: skip

    @rule()
    def undo(self) -> None:
        self.world.fired["undo, something"] += bool(self.model.done)
        self.step("undo", self.model.undo, lambda one: one.history.undo(one.session_id))

    @rule(pick=picks)
    def redo(self, pick: int) -> None:
        """Half of the time after something new: then there is nothing to do again."""
        if not self.model.undone:
            self.undo()
        if pick % 2:
            self.append(pick, 1)
        self.world.fired["redo, something"] += bool(self.model.undone)
        self.step("redo", self.model.redo, lambda one: one.history.redo(one.session_id))

    # writing on what is there

    @rule(pick=picks, deltas=changes)
    def edit(self, pick: int, deltas: list[NewDelta]) -> None:
        where = self.place(pick)
        if where is not None:
            take, position = where
            self.step("edit", lambda: self.model.edit(take, position, deltas),
                      lambda one: one.history.record_message_deltas(one.session_id, position, deltas, take=take))  # fmt: skip

    @rule(pick=picks, which=picks, deltas=tracked)
    def tie(self, pick: int, which: int, deltas: list[NewDelta]) -> None:
        where = self.place(pick)
        if where is not None and where[1] != 900:
            take, position = where
            held = self.model.takes[take].said[position].versions
            version = NOWHERE if which % 7 == 3 else held[which % len(held)]
            self.step("tie", lambda: self.model.tie(take, position, version, deltas),
                      lambda one: one.history.record_deltas(one.session_id, position, version, deltas, take=take))  # fmt: skip

    @rule(pick=picks, name=names, value=st.integers(0, 3))
    def rebase(self, pick: int, name: str, value: int) -> None:
        if pick % 3 == 0:
            take, base = self.live(pick), {"vars": {name: value}}
            self.step("rebase", lambda: self.model.rebase(take, base),
                      lambda one: one.history.set_branch_base(one.session_id, base, take=take))  # fmt: skip

    @rule(pick=picks)
    def lose_the_caches(self, pick: int) -> None:
        """Throw all of both caches away; what is written next must not rest on them."""
        if pick % 3 == 0:
            self.step("lose the caches", lambda: None, lambda one: one.forget_caches())
            self.turn(pick + pick % 2, 1, [delta("vars", "c", pick % 4)])

    # after every step

    @invariant()
    def all_show_what_the_model_shows(self) -> None:
        if not hasattr(self, "model"):
            return
        states = {take: self.model.states(take) for take in self.model.live()}
        for one in self.scenes:
            self.world.runner.run(self._compare(one, states))

    async def _compare(self, one: Scene, states: dict[int, list[str]]) -> None:
        held = await one.held(SESSIONS, TAKES, TIPS, KEYFRAMES)
        assert held.takes() == self.model.live()
        assert held.rows["sessions"][0].active_take == self.model.active
        for take, (*_, wanted) in states.items():
            assert exact(await one.state(take)) == wanted, (one.store, take)
            shown = await one.history.messages(one.session_id, take=take)
            assert [found.text for found in shown] == self.model.texts(take), (one.store, take)
            positions = self.model.shown(take)
            assert held.take(take).shown_count == len(positions)
            tips = held.tips(take)
            assert not tips or exact({tip.slot: tip.state for tip in tips}) == wanted, (one.store, take)
            for frame in held.frames(take):
                self.world.fired["keyframe compared"] += 1
                assert positions[frame.shown_count - 1] == frame.position
                assert frame.shown_count % EVERY == 0
                assert exact(frame.state) == states[take][frame.shown_count], (one.store, take)


@contextmanager
def a_world(folder: Path, server_url: Callable[[], str]) -> Iterator[World]:
    """Stores of the three backends, with keyframes at every fourth shown message while it lasts."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (state, appending):
            patch.setattr(module, "KEYFRAME_EVERY", EVERY)
        made = World(folder, server_url)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    with a_world(tmp_path, lambda: str(request.getfixturevalue("postgres"))) as made:
        yield made


def search(world: World, runs: int, steps: int, *, derandomize: bool, shrink: bool = False) -> None:
    """Play so many histories of so many steps. `shrink` looks for a shorter one that fails too, which takes minutes."""
    machine = type("Machine", (HistoryMachine,), {"world": world, "TestCase": None})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=runs, stateful_step_count=steps, derandomize=derandomize, deadline=None, database=None,
            suppress_health_check=list(HealthCheck), print_blob=False,
            phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        ),
    )  # fmt: skip


RULES = {
    "turn", "append", "regenerate", "regenerate as a take", "add version", "fork", "select", "select, refused", "choose",
    "choose, another take", "activate", "cut", "cut, refused", "restore", "restore as a take", "cut version",
    "cut version, refused", "restore version", "delete take", "delete take, refused", "restore take", "undo",
    "undo, something", "redo", "redo, something", "edit", "tie", "tie, refused", "rebase",
    "lose the caches", "keyframe compared",
}  # fmt: skip
"""What a search must meet: each rule, and each kind of refusal."""


def table(world: World) -> str:
    """How often each rule fired, a line each."""
    return "\n".join(f"{times:6}  {name}" for name, times in sorted(world.fired.items()))


def too_rare(world: World, least: int) -> list[str]:
    """The rules that fired less often than that."""
    return sorted(name for name in RULES if world.fired[name] < least)


@pytest.mark.timeout(300)
def test_every_history_shows_what_plain_lists_show(world: World) -> None:
    """Every rule fires, and each kind of refusal is met."""
    search(world, RUNS, STEPS, derandomize=True)
    assert too_rare(world, 1) == [], table(world)
