"""The command line: parse, one call, print. Each command's work stands in a module of its own, loaded when it runs.

Errors are printed as one block with their code in brackets; `exits` has the exit codes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from .. import __version__
from ..errors import Invalid, TurnkeeperError
from . import screen
from .exits import DONE, REFUSED, exit_code

KINDS = ("turnkeeper", "sillytavern", "openai", "anthropic", "gemini")
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
    the beginning of its id, or by its title, as long as that means one session. A sealed store is opened with
    --key-file, or with a passphrase in TURNKEEPER_KEY.

    Exit codes: 0 done, 1 the store said no, 2 wrong usage.
    """


def in_store(command: F) -> F:
    """Give a command its `--store`, `--key-file` and `--json`."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)
    command = click.option(
        "--key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), expose_value=False, is_eager=True,
        callback=_keep_key, help="The key of a sealed store: a file of 32 bytes, or with a passphrase.",
    )(command)  # fmt: skip
    return click.option(
        "--store", "url", required=True, envvar="TURNKEEPER_STORE", show_envvar=True, metavar="URL",
        help="The database: a path, or postgresql://…",
    )(command)  # fmt: skip


def _keep_key(ctx: click.Context, option: click.Parameter, path: Path | None) -> None:
    ctx.meta["key"] = None if path is None else read_key(path)


def read_key(path: Path) -> str | bytes:
    """Read a key from a file: 32 bytes, or a passphrase on one line. Raises Invalid."""
    content = path.read_bytes()
    if len(content) == 32:
        return content
    try:
        return content.decode().strip()
    except UnicodeDecodeError:
        raise Invalid(f"{str(path)!r} holds neither 32 bytes nor a passphrase.", "Nothing was opened.") from None


def key_in_use() -> str | bytes | None:
    """Answer the key that the command was given, by its option or by the environment."""
    return click.get_current_context().meta.get("key") or os.environ.get("TURNKEEPER_KEY") or None


def session_argument(command: F) -> F:
    """Give a command its SESSION, completed from the store that is named."""
    return click.argument("session", shell_complete=_sessions)(command)


def _sessions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from .completing import names

    return names(ctx.params.get("url"), incomplete)


def take_option(command: F) -> F:
    """Give a command its `--take`."""
    return click.option("--take", type=int, metavar="N", help="The take to read; default: the one the session shows.")(
        command
    )


def run(url: str, work: Callable[[Any], Awaitable[None]], *, create: bool = False) -> None:
    """Open the store, do the work, close it."""

    async def opened() -> None:
        from ..api import open as open_store

        async with open_store(url, create=create, key=key_in_use(), owner="turnkeeper command") as store:
            await work(store)

    asyncio.run(opened())


@commands.command(
    "import",
    epilog="\b\nExamples:\n  turnkeeper import chat.jsonl --store story.db\n  turnkeeper import keeper.png --begin",
)
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@in_store
@click.option("--space", help="The space its sessions belong to; default: default, or where an archive's session was.")
@click.option("--begin", is_flag=True, help="Begin a session with the character card FILE.")
def import_(file: Path, url: str, as_json: bool, space: str | None, begin: bool) -> None:
    """Read a chat file into the store.

    FILE is an archive that export wrote, a SillyTavern chat, an export of ChatGPT, Claude, Open WebUI or LibreChat (a
    file, a folder or a zip), or a database of OpenAI Agents, LangGraph, ADK or pydantic-ai-durable. Everything in it is
    kept, all versions and branches too; what had to be bent is reported. The same file again adds nothing.

    A character card (JSON, PNG, CHARX) or a lorebook is read and told; --begin starts a session with the card.
    """
    from .importing import import_file, read_file

    imported = read_file(file)
    run(url, lambda store: import_file(store, imported, space=space, begin=begin, as_json=as_json), create=True)


@commands.command("list", epilog="\b\nExample:\n  turnkeeper list --store story.db")
@in_store
@click.option("--space", default="default", show_default=True, help="The space to list.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
def list_(url: str, as_json: bool, space: str, limit: int) -> None:
    """List the sessions of a store, newest first."""
    from .reading import list_sessions

    run(url, lambda store: list_sessions(store, space=space, limit=limit, as_json=as_json))


@commands.command("show", epilog="\b\nExample:\n  turnkeeper show cellar --last 5 --store story.db")
@session_argument
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
@session_argument
@in_store
@click.option("--all", "everything", is_flag=True, help="A line for every message.")
def tree(session: str, url: str, as_json: bool, everything: bool) -> None:
    """Draw the takes and versions of SESSION, and what is shown."""
    from .tree import show_tree

    run(url, lambda store: show_tree(store, session, everything=everything, as_json=as_json))


@commands.command("state", epilog="\b\nExample:\n  turnkeeper state cellar --at 12 --store story.db")
@session_argument
@in_store
@take_option
@click.option("--at", type=int, metavar="N", help="The state after the message at position N; default: the end.")
def state(session: str, url: str, as_json: bool, take: int | None, at: int | None) -> None:
    """Print the state of SESSION: at its end, or at any message."""
    from .reading import show_state

    run(url, lambda store: show_state(store, session, take=take, at=at, as_json=as_json))


@commands.command(
    "diff", epilog="\b\nExamples:\n  turnkeeper diff cellar 12 end --store story.db\n  turnkeeper diff cellar 0: 1:"
)
@session_argument
@click.argument("before")
@click.argument("after", default="end")
@in_store
def diff(session: str, before: str, after: str, url: str, as_json: bool) -> None:
    """Compare two points of SESSION: its messages and its state.

    A point is a position of the take that is shown, TAKE:POSITION, TAKE: for the end of a take, or end.
    """
    from .comparing import show_diff

    run(url, lambda store: show_diff(store, session, before, after, as_json=as_json))


@commands.command(
    "fork", epilog="\b\nExample:\n  turnkeeper fork cellar --at 12 --name 'the other door' --store story.db"
)
@session_argument
@in_store
@take_option
@click.option("--at", type=int, metavar="N", help="The last message it shares; default: all.")
@click.option("--name", metavar="TEXT", help="A name for the new take.")
@click.option("--show", "show_it", is_flag=True, help="Show the new take from now on.")
def fork(
    session: str, url: str, as_json: bool, take: int | None, at: int | None, name: str | None, show_it: bool
) -> None:
    """Start another take of SESSION that shares its beginning."""
    from .changing import fork

    run(url, lambda store: fork(store, session, at=at, take=take, title=name, show=show_it, as_json=as_json))


@commands.command("cut", epilog="\b\nExample:\n  turnkeeper cut cellar 4 7-9 --store story.db")
@session_argument
@click.argument("positions", nargs=-1, required=True)
@in_store
@take_option
def cut(session: str, positions: tuple[str, ...], url: str, as_json: bool, take: int | None) -> None:
    """Hide messages of SESSION; what they set is taken back. `restore` shows them again."""
    from .changing import cut

    run(url, lambda store: cut(store, session, positions, take=take, as_json=as_json))


@commands.command("restore", epilog="\b\nExample:\n  turnkeeper restore cellar 4 7-9 --store story.db")
@session_argument
@click.argument("positions", nargs=-1, required=True)
@in_store
@take_option
def restore(session: str, positions: tuple[str, ...], url: str, as_json: bool, take: int | None) -> None:
    """Show cut messages of SESSION again. (A backup is restored by `backup --restore`.)"""
    from .changing import restore

    run(url, lambda store: restore(store, session, positions, take=take, as_json=as_json))


@commands.command("choose", epilog="\b\nExample:\n  turnkeeper choose cellar 2 --at 15 --store story.db")
@session_argument
@click.argument("number", type=click.IntRange(1), required=False)
@in_store
@take_option
@click.option("--at", type=int, metavar="N", help="The position; default: where the last reply begins.")
def choose(session: str, number: int | None, url: str, as_json: bool, take: int | None, at: int | None) -> None:
    """Show another version of a reply of SESSION; the state follows. Without a NUMBER, list them."""
    from .changing import choose

    run(url, lambda store: choose(store, session, number, at=at, take=take, as_json=as_json))


@commands.command("undo", epilog="\b\nExample:\n  turnkeeper undo cellar --store story.db")
@session_argument
@in_store
@click.option("--steps", type=click.IntRange(1, 10_000), default=1, show_default=True, help="How many.")
def undo(session: str, url: str, as_json: bool, steps: int) -> None:
    """Take back the newest change of what SESSION shows."""
    from .changing import travel

    run(url, lambda store: travel(store, session, back=True, steps=steps, as_json=as_json))


@commands.command("redo", epilog="\b\nExample:\n  turnkeeper redo cellar --store story.db")
@session_argument
@in_store
@click.option("--steps", type=click.IntRange(1, 10_000), default=1, show_default=True, help="How many.")
def redo(session: str, url: str, as_json: bool, steps: int) -> None:
    """Do again what was undone."""
    from .changing import travel

    run(url, lambda store: travel(store, session, back=False, steps=steps, as_json=as_json))


@commands.command(
    "export",
    epilog="\b\nExamples:\n  turnkeeper export cellar cellar.zip --store story.db\n  turnkeeper export cellar cellar.jsonl",
)
@session_argument
@click.argument("file", type=click.Path(path_type=Path))
@in_store
@take_option
@click.option("--format", "kind", type=click.Choice(KINDS), help="Default: by the ending of FILE, zip, jsonl or json.")
def export(session: str, file: Path, url: str, as_json: bool, take: int | None, kind: str | None) -> None:
    """Write SESSION into FILE.

    turnkeeper (zip) is an archive of all its takes, which any store imports. sillytavern (jsonl) is a chat file of what
    is shown: an imported chat that was not changed is its source, line for line. openai, anthropic and gemini (json) are
    the messages as those clients take them.
    """
    from .exporting import export

    run(url, lambda store: export(store, session, file, kind=kind, take=take, as_json=as_json))


@commands.command("watch", epilog="\b\nExample:\n  turnkeeper watch cellar --store story.db")
@session_argument
@in_store
@click.option(
    "--last", type=click.IntRange(0, 200), default=5, show_default=True, help="Begin with the last N messages."
)
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="End after so long; default: never.")
def watch(session: str, url: str, as_json: bool, last: int, seconds: float | None) -> None:
    """Follow SESSION: print each message when it lands. With --json, one object a line."""
    from .watching import watch

    with contextlib.suppress(KeyboardInterrupt):
        run(url, lambda store: watch(store, session, last=last, seconds=seconds, as_json=as_json))


@commands.command("check", epilog="\b\nExample:\n  turnkeeper check --store story.db")
@click.argument("session", required=False, shell_complete=_sessions)
@in_store
@click.option("--repair", is_flag=True, help="Mend: set damaged rows aside, close open calls, drop stale caches.")
def check(session: str | None, url: str, as_json: bool, repair: bool) -> None:
    """Look at every row and say what is wrong.

    Of the whole store, or of SESSION. The exit code is 1 when something is wrong and was not mended.
    """
    from .keeping import check

    well: list[bool] = []

    async def work(store: Any) -> None:
        well.append(await check(store, session, repair=repair, as_json=as_json))

    run(url, work)
    click.get_current_context().exit(DONE if all(well) else REFUSED)


@commands.command(
    "backup",
    epilog="\b\nExamples:\n  turnkeeper backup kept.db --store story.db\n  turnkeeper backup kept.db --restore --store new.db",
)
@click.argument("file", type=click.Path(path_type=Path))
@in_store
@click.option("--restore", "back", is_flag=True, help="The other way: take over what FILE has and the store has not.")
@click.option(
    "--backup-key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The key of a sealed backup; default: that of the store.",
)
def backup(file: Path, url: str, as_json: bool, back: bool, backup_key_file: Path | None) -> None:
    """Copy the whole store into FILE, while it is in use.

    FILE is a store itself: list, show and check work on it. With --restore, sessions that the store has, or has deleted,
    are passed over.
    """
    from .keeping import backup, restore

    if not back:
        run(url, lambda store: backup(store, file, as_json=as_json))
        return
    key = key_in_use() if backup_key_file is None else read_key(backup_key_file)
    run(url, lambda store: restore(store, file, key=key, as_json=as_json), create=True)


@commands.command("stats", epilog="\b\nExample:\n  turnkeeper stats --store story.db")
@click.argument("session", required=False, shell_complete=_sessions)
@in_store
def stats(session: str | None, url: str, as_json: bool) -> None:
    """Count the rows and bytes of a store, or of SESSION."""
    from .keeping import stats

    run(url, lambda store: stats(store, session, as_json=as_json))


@commands.command("delete", epilog="\b\nExample:\n  turnkeeper delete cellar --yes --store story.db")
@session_argument
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


@commands.command("completion", epilog="\b\nExample:\n  turnkeeper completion bash > ~/.turnkeeper.sh")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what completes commands, options and sessions in SHELL."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(commands, {}, "turnkeeper", "_TURNKEEPER_COMPLETE").source())


def main() -> None:
    """Run the command line."""
    screen.prepare()
    commands(prog_name="turnkeeper")
