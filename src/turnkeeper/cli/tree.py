"""`turnkeeper tree`: a session's takes as branches, the versions of each message, and which of all that is shown.

The shown line is drawn heavy, everything else light. A dot stands for a version, a filled one for the shown version. A
take that was forked from another hangs below the last message they share; messages they share are drawn once.
"""

from __future__ import annotations

from typing import Any

import msgspec
from rich.cells import cell_len
from rich.text import Text

from ..api import Store
from ..errors import NotFound
from ..history import reading
from ..history.reading import ShownMessage
from ..records import Take
from ..sessions.lifecycle import SessionInfo, load
from ..store.reading import Rows
from . import screen
from .finding import find
from .importing import count
from .reading import described, pad, print_title, speaker

HEAVY, LIGHT = "┃", "│"
_DOTS = 8
_NAME = 12


class Branch(msgspec.Struct, frozen=True):
    """One take: its messages, and what hangs from it."""

    take: Take
    messages: list[ShownMessage]
    first_own: int  # its messages before this position are shared with the take it was forked from
    children: list[Branch]


class Forest(msgspec.Struct, frozen=True):
    """All takes of a session, and which positions of which takes are on the shown line."""

    info: SessionInfo
    roots: list[Branch]
    branches: dict[int, Branch]
    shown_until: dict[int, int]  # by take: positions below this one are on the shown line


async def read_forest(rows: Rows, session_id: str) -> Forest:
    """Read a session's takes with their messages, from one committed state."""
    info = await load(rows, session_id)
    branches: dict[int, Branch] = {}
    roots: list[Branch] = []
    for take in await reading.takes(rows, session_id):
        parent = None if take.parent_take is None else branches.get(take.parent_take)
        first_own = 0 if parent is None or take.parent_position is None else take.parent_position + 1
        messages = await reading.messages(rows, session_id, take=take.take)
        branch = branches[take.take] = Branch(take, messages, first_own, [])
        (roots if parent is None else parent.children).append(branch)
    shown_until: dict[int, int] = {}
    here, until = branches.get(info.active_take), None
    while here is not None:
        shown_until[here.take.take] = here.take.cursor if until is None else until
        until = here.first_own
        here = branches.get(here.take.parent_take) if here.take.parent_take is not None else None
    return Forest(info, roots, branches, shown_until)


async def show_tree(store: Store, name: str, *, everything: bool, as_json: bool) -> None:
    """Print a session's tree."""
    session = await find(store, name)
    forest = await store.look(lambda rows: read_forest(rows, session.session_id), one_view=True)
    if not forest.branches:
        raise NotFound(f"Session {session.session_id!r} has no take.", do="Run the health check.", kind="take", id=0)
    if as_json:
        screen.print_json(forest_json(forest))
    else:
        print_forest(screen.console(), forest, everything=everything)


def forest_json(forest: Forest) -> dict[str, Any]:
    """Answer a tree as JSON."""
    return {
        **described(forest.info),
        "versions_total": _versions(forest),
        "takes": [
            {
                "take": branch.take.take,
                "name": branch.take.name,
                "kind": branch.take.kind,
                "active": branch.take.take == forest.info.active_take,
                "parent_take": branch.take.parent_take,
                "parent_position": branch.take.parent_position,
                "messages": [
                    {
                        "position": message.position,
                        "role": message.role,
                        "name": message.name,
                        "versions": message.versions,
                        "shown": message.index,
                        "version": message.version,
                        "shared": message.position < branch.first_own,
                        "on_shown_line": message.position < forest.shown_until.get(branch.take.take, 0),
                    }
                    for message in branch.messages
                ],
            }
            for branch in forest.branches.values()
        ],
    }


def _versions(forest: Forest) -> int:
    own = (m for b in forest.branches.values() for m in b.messages if m.position >= b.first_own)
    return sum(message.versions for message in own)


def print_forest(out: Any, forest: Forest, *, everything: bool = False, short: bool = False) -> None:
    """Draw all takes of a session: each message, or the notable ones, or (`short`) only ends and forks."""
    messages = sum(1 for b in forest.branches.values() for m in b.messages if m.position >= b.first_own)
    counts = (count(len(forest.branches), "take"), count(messages, "message"), count(_versions(forest), "version"))
    print_title(out, forest.info, ", ".join(counts))
    for branch in forest.roots:
        out.print()
        _Drawing(out, forest, everything, short).draw(branch, "")


class _Drawing:
    """Draws one take after another, each child below the message it was forked after."""

    def __init__(self, out: Any, forest: Forest, everything: bool, short: bool) -> None:
        self._out, self._forest, self._everything, self._short = out, forest, everything, short
        names = [speaker(m) for b in forest.branches.values() for m in b.messages]
        self._name = min(_NAME, max(map(cell_len, names), default=0))
        self._digits = max(len(str(b.take.cursor - 1)) for b in forest.branches.values())

    def draw(self, branch: Branch, before: str, stem: str = "") -> None:
        """Draw a take, its own messages, and the takes forked from it; `stem` is the line it hangs from."""
        until = self._forest.shown_until.get(branch.take.take, 0)
        self._head(branch, before + (f"{stem} ╰─ " if stem else ""))
        before += f"{stem}    " if stem else ""
        by_position: dict[int, list[Branch]] = {}
        for child in branch.children:
            by_position.setdefault(child.first_own - 1, []).append(child)
        for child in by_position.pop(-1, []):
            self.draw(child, before, _line(until > 0))
        own = [m for m in branch.messages if m.position >= branch.first_own]
        for group in self._groups(own, by_position):
            last = group[-1]
            heavy = last.position < until
            if len(group) > 1:
                self._print(before, heavy, Text(f"⋮ {count(len(group), 'more message')}", style="dim"))
            else:
                self._print(before, heavy, self._message(last, heavy, len(before)))
            for child in by_position.get(last.position, []):
                self.draw(child, before, _line(last.position + 1 < until))

    def _head(self, branch: Branch, before: str) -> None:
        take = branch.take
        active = take.take == self._forest.info.active_take
        what = f"take {take.take}"
        where = f" from {take.parent_position}" if branch.first_own else ""
        kind = {"fork": f", forked{where}", "regenerate": f", another reply{where}", "import": "", "main": ""}[
            take.kind
        ]
        differs = self._differs(branch)
        text = Text.assemble(
            (what, "bold"), f" {screen.fit(take.name, 30)!r}" if take.name else "", (kind + differs, "dim"),
            ("  ◀ shown", "bold yellow") if active else "",
        )  # fmt: skip
        text.truncate(self._out.width - len(before), overflow="ellipsis")
        self._out.print(Text(before) + text)

    def _differs(self, branch: Branch) -> str:
        """Say at which shared messages a take shows another version than the take it came from."""
        if not branch.first_own or branch.take.parent_take not in self._forest.branches:
            return ""
        theirs = {m.position: m.version for m in self._forest.branches[branch.take.parent_take].messages}
        shared = [m for m in branch.messages if m.position < branch.first_own]
        other = [str(m.position) for m in shared if theirs.get(m.position) != m.version]
        return f", another version at {', '.join(other[:5])}" if other else ""

    def _groups(self, own: list[ShownMessage], forks: dict[int, list[Branch]]) -> list[list[ShownMessage]]:
        """Put plain messages in the middle of a long take together."""
        if self._everything or (len(own) <= 12 and not self._short):
            return [[message] for message in own]
        groups: list[list[ShownMessage]] = []
        plain: list[ShownMessage] = []
        for i, message in enumerate(own):
            kept = message.position in forks or not 0 < i < len(own) - (4 if self._short else 2)
            if not kept and (message.versions == 1 or self._short):
                plain.append(message)
                continue
            groups += [plain] if len(plain) > 2 else [[one] for one in plain]
            plain = []
            groups.append([message])
        return groups + ([plain] if len(plain) > 2 else [[one] for one in plain])

    def _message(self, message: ShownMessage, heavy: bool, used: int) -> Text:
        dots = (
            "".join("●" if i == message.index else "○" for i in range(message.versions))
            if message.versions <= _DOTS
            else f"{message.index + 1}/{message.versions}"
        )
        name = pad(screen.fit(speaker(message), self._name), self._name)
        front = f"{message.position:>{self._digits}} {name} {dots} "
        room = self._out.width - used - 3 - cell_len(front)
        style = "" if heavy else "dim"
        return Text.assemble(
            (f"{message.position:>{self._digits}} ", "dim"),
            (f"{name} ", "cyan" if message.role == "user" else "magenta"),
            (f"{dots} ", "yellow" if message.versions > 1 else "dim"),
            (screen.fit(message.text, room), style),
        )

    def _print(self, before: str, heavy: bool, text: Text) -> None:
        line = Text.assemble(before, (_line(heavy) + "  ", "bold" if heavy else "dim"), text)
        line.rstrip()
        self._out.print(line)


def _line(heavy: bool) -> str:
    return HEAVY if heavy else LIGHT
