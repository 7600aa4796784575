"""How the demo prints and pauses, where it keeps its file, and how a claim is checked: one that fails ends the demo."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.text import Text

from ...errors import Invalid
from .. import screen

FILE = "turnkeeper-demo.db"
_PACE = 0.7


class ClaimFailed(Exception):
    """Something the demo says is not so."""


def choose_file(path: str | None) -> Path:
    """Answer a file that is not there yet. Raises Invalid for one that is, and for what is no file."""
    if path is not None:
        if "://" in path or path.startswith("memory:"):
            raise Invalid(
                "The demo kills and reopens a SQLite file.", "Nothing was made.", "Give a path.", path="store"
            )
        if os.path.lexists(path):
            raise Invalid(
                f"There is something at {path!r} already.",
                "The demo did not touch it.",
                "Give another path.",
                path="store",
            )
        return Path(path)
    folder = Path() if os.access(".", os.W_OK) else Path(tempfile.mkdtemp(prefix="turnkeeper-"))
    file, number = folder / FILE, 1
    while os.path.lexists(file):
        number += 1
        file = folder / FILE.replace(".db", f"-{number}.db")
    return file


class Stage:
    """The screen of the demo."""

    def __init__(self, *, fast: bool) -> None:
        self.out = screen.console()
        self._still = fast or not self.out.is_terminal
        self._chapter = 0
        self.checked = 0

    async def pause(self, seconds: float) -> None:
        """Give people time to read."""
        if not self._still:
            await asyncio.sleep(seconds * _PACE)

    async def chapter(self, title: str, code: str = "") -> None:
        """Begin a part: what it shows, and the code that does it."""
        await self.pause(1.1)
        self._chapter += 1
        self.out.print()
        head = f"{self._chapter}  {title} "
        self.out.print(Text.assemble((head, "bold"), ("─" * (self.out.width - len(head)), "dim")))
        if code:
            self.out.print(Text("   " + code, style="cyan"))
        await self.pause(0.6)

    async def say(self, name: str, text: str) -> None:
        """Print a line of the story."""
        style = "bold green" if name == "You" else "bold magenta"
        label = f"   {name:<6} "
        first, *rest = Text(text).wrap(self.out, self.out.width - len(label))
        first.rstrip()
        self.out.print(Text.assemble((label, style)) + first)
        for line in rest:
            line.rstrip()
            self.out.print(Text(" " * len(label)) + line)
        await self.pause(0.7)

    async def note(self, text: str) -> None:
        """Print what happens besides the story."""
        screen.paragraph(self.out, text, indent=3, style="dim")
        await self.pause(0.5)

    async def state(self, variables: Mapping[str, Any], *, title: str = "state", only: tuple[str, ...] = ()) -> None:
        """Print some variables on one line."""
        shown = {name: value for name, value in variables.items() if not only or name in only}
        pairs = "  ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in shown.items())
        label = f"   {title:<6} "
        self.out.print(Text.assemble((label, "bold blue"), screen.fit(pairs, self.out.width - len(label))))
        await self.pause(0.4)

    async def claim(self, holds: bool, text: str) -> None:
        """Print something that was just checked. Raises ClaimFailed when it is not so."""
        if not holds:
            raise ClaimFailed(text)
        self.checked += 1
        for i, line in enumerate(Text(text).wrap(self.out, self.out.width - 5)):
            line.rstrip()
            self.out.print(Text.assemble(("   ✓ " if not i else "     ", "bold green")) + line)
        await self.pause(0.5)

    def failed(self, error: ClaimFailed) -> None:
        """Say which claim did not hold."""
        self.out.print(Text(f"   ✗ not so: {error}", style="bold red"))
        self.out.print(Text("     The demo ends here. Please report it.", style="red"))

    async def next_steps(self, file: Path, title: str) -> None:
        """Say what to type next."""
        program, store = _program(), shlex.quote(str(file))
        self.out.print()
        self.out.print(Text("Look around:", style="bold"))
        for command in (
            f"{program} tree {title} --store {store}",
            f"{program} show {title} --last 4 --store {store}",
            f"{program} state {title} --at 24 --store {store}",
            f"{program} import YOUR-CHAT.jsonl --store story.db",
        ):
            self.out.print(Text("  " + command, style="cyan"), soft_wrap=True)
            await self.pause(0.2)
        self.out.print(Text(f"The demo's file goes with: rm -r {store}*", style="dim"), soft_wrap=True)


def _program() -> str:
    """Answer how the command line was started, as it can be typed again."""
    started = sys.argv[0]
    if Path(started).name == "turnkeeper":
        return "turnkeeper" if shutil.which("turnkeeper") else started
    return "turnkeeper" if shutil.which("turnkeeper") else "python -m turnkeeper.cli"
