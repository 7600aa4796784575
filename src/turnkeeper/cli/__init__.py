"""The command line: parse, one call, print. Each command's work stands in a module of its own, loaded when it runs.

Errors are printed as one block with their code in brackets; `exits` has the exit codes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from .. import __version__
from ..errors import TurnkeeperError
from . import screen
from .exits import exit_code

F = TypeVar("F", bound=Callable[..., Any])


class Commands(click.Group):
    """The commands in the order they are declared, their errors turned into a block and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Answer the names in the order of this module."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what the store refuses ends here."""
        try:
            return super().invoke(ctx)
        except TurnkeeperError as e:
            screen.print_error(e)
            ctx.exit(exit_code(e))


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": screen.COLUMNS},
    epilog="\b\nStart with:\n  turnkeeper demo\n  turnkeeper import chat.jsonl --store story.db",
)
@click.version_option(__version__, message="turnkeeper %(version)s")
def commands() -> None:
    """Turnkeeper keeps an AI's turns.

    A store is a SQLite file or postgresql://…, named by --store or TURNKEEPER_STORE. A session is named by its id, by
    the beginning of its id, or by its title, as long as that means one session.

    Exit codes: 0 done, 1 the store said no, 2 wrong usage.
    """


def in_store(command: F) -> F:
    """Give a command its `--store` and `--json`."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)
    return click.option(
        "--store", "url", required=True, envvar="TURNKEEPER_STORE", show_envvar=True, metavar="URL",
        help="The database: a path, or postgresql://…",
    )(command)  # fmt: skip


def take_option(command: F) -> F:
    """Give a command its `--take`."""
    return click.option("--take", type=int, metavar="N", help="The take to read; default: the one the session shows.")(
        command
    )


def run(url: str, work: Callable[[Any], Awaitable[None]], *, create: bool = False) -> None:
    """Open the store, do the work, close it."""

    async def opened() -> None:
        from ..api import open as open_store

        async with open_store(url, create=create, owner="turnkeeper command") as store:
            await work(store)

    asyncio.run(opened())


@commands.command("import", epilog="\b\nExample:\n  turnkeeper import chat.jsonl --store story.db")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@in_store
@click.option("--space", default="default", show_default=True, help="The space its sessions belong to.")
def import_(file: Path, url: str, as_json: bool, space: str) -> None:
    """Read a chat file into the store.

    FILE is a SillyTavern chat, an export of ChatGPT, Claude, Open WebUI or LibreChat (a file, a folder or a zip), or a
    database of OpenAI Agents, LangGraph, ADK or pydantic-ai-durable. Everything in it is kept, all versions and
    branches too; what had to be bent is reported. The same file again adds nothing.
    """
    from .importing import import_file, read_file

    imported = read_file(file)
    run(url, lambda store: import_file(store, imported, space=space, as_json=as_json), create=True)


@commands.command("list", epilog="\b\nExample:\n  turnkeeper list --store story.db")
@in_store
@click.option("--space", default="default", show_default=True, help="The space to list.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
def list_(url: str, as_json: bool, space: str, limit: int) -> None:
    """List the sessions of a store, newest first."""
    from .reading import list_sessions

    run(url, lambda store: list_sessions(store, space=space, limit=limit, as_json=as_json))


@commands.command("show", epilog="\b\nExample:\n  turnkeeper show cellar --last 5 --store story.db")
@click.argument("session")
@in_store
@take_option
@click.option("--last", type=click.IntRange(0), metavar="N", help="Only the last N messages; default: 20, JSON all.")
@click.option("--all", "everything", is_flag=True, help="All messages.")
def show(session: str, url: str, as_json: bool, take: int | None, last: int | None, everything: bool) -> None:
    """Show the messages of SESSION, as its reader sees them."""
    from .reading import show_session

    if last is None and not everything and not as_json:
        last = 20
    run(url, lambda store: show_session(store, session, take=take, last=last, as_json=as_json))


@commands.command("tree", epilog="\b\nExample:\n  turnkeeper tree cellar --store story.db")
@click.argument("session")
@in_store
@click.option("--all", "everything", is_flag=True, help="A line for every message.")
def tree(session: str, url: str, as_json: bool, everything: bool) -> None:
    """Draw the takes and versions of SESSION, and what is shown."""
    from .tree import show_tree

    run(url, lambda store: show_tree(store, session, everything=everything, as_json=as_json))


@commands.command("state", epilog="\b\nExample:\n  turnkeeper state cellar --at 12 --store story.db")
@click.argument("session")
@in_store
@take_option
@click.option("--at", type=int, metavar="N", help="The state after the message at position N; default: the end.")
def state(session: str, url: str, as_json: bool, take: int | None, at: int | None) -> None:
    """Print the state of SESSION: at its end, or at any message."""
    from .reading import show_state

    run(url, lambda store: show_state(store, session, take=take, at=at, as_json=as_json))


@commands.command("delete", epilog="\b\nExample:\n  turnkeeper delete cellar --yes --store story.db")
@click.argument("session")
@in_store
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Without a terminal nothing is asked anyway.")
def delete(session: str, url: str, as_json: bool, yes: bool) -> None:
    """Erase SESSION with everything in it. There is no way back."""
    from .reading import delete_session

    run(url, lambda store: delete_session(store, session, yes=yes, as_json=as_json))


@commands.command("demo", epilog="\b\nExample:\n  turnkeeper demo")
@click.option("--store", "path", metavar="PATH", help="Where to make the demo's file; it must not exist yet.")
@click.option("--fast", is_flag=True, help="Without pauses.")
def demo(path: str | None, fast: bool) -> None:
    """Watch a story being kept, through a kill -9.

    Versions, state that follows them, a fork, a retry, a killed process: half a minute. It makes one file,
    turnkeeper-demo.db in this folder, and never touches one that is there already.
    """
    from .demo import show_demo

    click.get_current_context().exit(show_demo(path, fast=fast))


def main() -> None:
    """Run the command line."""
    screen.prepare()
    commands(prog_name="turnkeeper")
