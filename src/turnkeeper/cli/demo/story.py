"""The demo's story: a shipped chat, and the turns that go on from where it ends. No model is asked; replies are scripted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

from ...transfer import sillytavern
from ...transfer.imported import Imported
from ...turns.play import Turn

TITLE = "cellar"
FORK_AT = 16
"""Where the fork leaves the story: before Maren hands over the key."""


def read_chat() -> Imported:
    """Read the shipped chat, a SillyTavern file."""
    return sillytavern.read(f"{TITLE}.jsonl", files(__package__).joinpath("keeper.jsonl").read_bytes())


LIGHT_INPUT = "I light the lamp."


async def light(turn: Turn) -> None:
    """The lamp burns, and that costs oil."""
    turn.vars["lamp"] = "lit"
    turn.vars.add("oil", -1)
    turn.reply("*Seven chairs in a ring, all facing you.* Six of them are empty.", name="Maren")


async def flood(turn: Turn) -> None:
    """Another reply to the same words: here the lamp stays dark."""
    turn.vars["boots"] = "wet"
    turn.reply("*The flame looks at the dark once and goes out.* Water stands on the fourth step.", name="Maren")


SLEEP_INPUT = "Keep your key, Maren. I will go to bed."


async def sleep(turn: Turn) -> None:
    """What if the guest had never gone down?"""
    turn.vars["trust"] = 5
    turn.reply(
        "*She takes the bowl, and does not look at the hook.* Then you are the first who listened.", name="Maren"
    )


STEP_INPUT = "I go down to the seventh step."
STEP_KEY = "demo-step"


async def step(turn: Turn) -> None:
    """Somebody speaks."""
    turn.vars["step"] = 7
    turn.reply("“Is supper ready?” asks the seventh chair. It is a boy's voice.", name="Maren")


ANSWER_INPUT = "Almost, I say."
ANSWER_KEY = "demo-answer"
INSIDE = "inside the turn"
"""What the process that is killed says when everything is said and nothing has landed."""


async def answer(turn: Turn, inside: Callable[[], Awaitable[None]] | None = None) -> None:
    """The turn that is killed. `inside` is called when everything is said and nothing has landed."""
    turn.vars["ansel"] = "awake"
    turn.vars.add("oil", -1)
    turn.reply("*A chair is pushed back, the first time in thirty winters.* “Then I'll come up.”", name="Maren")
    if inside is not None:
        await inside()
