"""How a tree of messages becomes takes (ADR 12): siblings are versions of one message, and lines are takes. Pure.

* Siblings stand in the order of their parent's child list; unlisted ones follow in the order of the file.
* A node without a message is structure: its children stand in its place.
* A node whose parent is missing, and the first node of a circle, begins a take of its own; both are reported.
* One take for each group of siblings in which no node has a child, and one for the shown line if it ends elsewhere. The
  shown line leads to the current node; if that is absent or unknown, to the newest leaf.
* Takes that go through the same sibling show one and the same message; those that go through another share its versions.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnkeeper.records.messages import Role
from turnkeeper.transfer.documents import Notes
from turnkeeper.transfer.imported import ImportedMessage, ImportedTake, ImportedVersion


class Content(msgspec.Struct, frozen=True):
    """What a node says: the role its version has on a line, and the version."""

    role: Role
    name: str | None
    hidden: bool
    version: ImportedVersion


class Node(msgspec.Struct, frozen=True):
    """One node as the source has it. `children` is None where the source keeps no lists."""

    node_id: str
    parent: str | None
    children: Sequence[str] | None
    content: Content | None


def grow(
    nodes: Sequence[Node], current: str | None, notes: Notes, *, origin: str, has_lists: bool = True
) -> tuple[ImportedTake, ...]:
    """Answer the takes of a tree, the shown one first; one empty take if no node has a message. Never fails."""
    tree = _Tree(nodes, notes, has_lists=has_lists)
    if not tree.files:
        return (empty_take(origin),)
    return tree.takes(current, origin)


def empty_take(origin: str) -> ImportedTake:
    """Make the one take of a conversation without messages."""
    return ImportedTake("", (), {}, {origin: {"summary": {"tip": None}}}, active=True)


class _Tree:
    """The nodes with a message, linked to one another: structure is gone, circles are cut."""

    def __init__(self, nodes: Sequence[Node], notes: Notes, *, has_lists: bool) -> None:
        self._notes = notes
        self._nodes: dict[str, Node] = {}
        for node in nodes:
            if node.node_id in self._nodes:
                raise ValueError("the reader gave two nodes one id")
            self._nodes[node.node_id] = node
        self._place = {node_id: i for i, node_id in enumerate(self._nodes)}
        self._parent = {node.node_id: self._parent_of(node) for node in nodes}
        self._cut_circles()
        below = self._children(has_lists)
        self.files = [node_id for node_id, node in self._nodes.items() if node.content is not None]
        self._up: dict[str, str | None] = {}  # the nearest message above
        self._group: dict[str, list[str]] = {}  # the siblings, itself among them
        self._leaves: set[str] = set(self.files)
        self._gather(below)
        self._messages: dict[str, ImportedMessage] = {}

    def _parent_of(self, node: Node) -> str | None:
        if node.parent is None:
            return None
        if node.parent in self._nodes:
            return node.parent
        self._notes.add("parent_missing", "begins a take of its own", node=node.node_id)
        return None

    def _cut_circles(self) -> None:
        """Let the first node of every circle, in the order of the file, have no parent."""
        done: set[str] = set()
        for start in self._nodes:
            path: dict[str, None] = {}
            at: str | None = start
            while at is not None and at not in done and at not in path:
                path[at] = None
                at = self._parent[at]
            if at is not None and at in path:
                walked = list(path)
                first = min(walked[walked.index(at) :], key=self._place.__getitem__)
                self._parent[first] = None
                self._notes.add("parent_in_a_circle", "the circle is cut; begins a take of its own", node=first)
            done.update(path)

    def _children(self, has_lists: bool) -> dict[str | None, list[str]]:
        below: dict[str | None, list[str]] = {}
        for node_id, parent in self._parent.items():
            below.setdefault(parent, []).append(node_id)
        if not has_lists:
            return below
        for node_id, node in self._nodes.items():
            below[node_id] = self._ordered(node, below.get(node_id, []))
        return below

    def _ordered(self, node: Node, children: list[str]) -> list[str]:
        waiting = dict.fromkeys(children)
        ordered = []
        for child in node.children or ():
            if child in waiting:
                del waiting[child]
                ordered.append(child)
            elif child not in self._nodes:
                self._notes.add("child_missing", "left out", node=child)
            elif child in ordered:
                self._notes.add("child_repeated", "counted once", node=child)
            else:
                self._notes.add("child_of_another", "stands under the parent it names itself", node=child)
        for child in waiting:
            self._notes.add("child_unlisted", "stands after the listed ones", node=child)
        return [*ordered, *waiting]

    def _gather(self, below: dict[str | None, list[str]]) -> None:
        """Form the groups of siblings, structure replaced by what is below it."""
        roots: list[str] = []
        for node_id in below.get(None, []):
            if self._nodes[node_id].parent is None:
                roots.append(node_id)
            else:  # its parent is missing, or it was cut out of a circle
                self._form(None, self._flat([node_id], below))
        self._form(None, self._flat(roots, below))
        for node_id in self.files:
            self._form(node_id, self._flat(below.get(node_id, []), below))

    def _flat(self, children: list[str], below: dict[str | None, list[str]]) -> list[str]:
        flat, waiting = [], children[::-1]
        while waiting:
            child = waiting.pop()
            if self._nodes[child].content is None:
                waiting += below.get(child, [])[::-1]
            else:
                flat.append(child)
        return flat

    def _form(self, above: str | None, group: list[str]) -> None:
        if group and above is not None:
            self._leaves.discard(above)
        for node_id in group:
            self._group[node_id] = group
            self._up[node_id] = above
        roles = {content.role for node_id in group if (content := self._nodes[node_id].content) is not None}
        if len(roles) > 1:
            self._notes.add("siblings_of_several_roles", "the shown one's role is the message's", node=group[0])

    def takes(self, current: str | None, origin: str) -> tuple[ImportedTake, ...]:
        end = self._shown_end(current)
        tips = [end]
        told = {id(self._group[end])}
        for node_id in self.files:
            group = self._group[node_id]
            if id(group) not in told and all(sibling in self._leaves for sibling in group):
                told.add(id(group))
                tips.append(group[-1])
        return tuple(self._take(tip, origin, active=tip == end) for tip in tips)

    def _shown_end(self, current: str | None) -> str:
        if current is None:
            self._notes.add("current_node_missing", "the line to the newest leaf is shown")
        elif current not in self._nodes:
            self._notes.add("current_node_unknown", "the line to the newest leaf is shown", node=current)
        else:
            at: str | None = current
            while at is not None and self._nodes[at].content is None:
                at = self._parent[at]
            if at is not None:
                return at
            self._notes.add("current_node_without_message", "the line to the newest leaf is shown", node=current)
        return max((node_id for node_id in self.files if node_id in self._leaves), key=self._age)

    def _age(self, node_id: str) -> tuple[int, int]:
        content = self._nodes[node_id].content
        created_at = content.version.created_at if content is not None else None
        return (-(2**63) if created_at is None else created_at), self._place[node_id]

    def _take(self, tip: str, origin: str, *, active: bool) -> ImportedTake:
        path: list[str] = []
        at: str | None = tip
        while at is not None:
            path.append(at)
            at = self._up[at]
        messages = tuple(self._message(node_id) for node_id in reversed(path))
        return ImportedTake(tip, messages, {}, {origin: {"summary": {"tip": tip}}}, active)

    def _message(self, node_id: str) -> ImportedMessage:
        made = self._messages.get(node_id)
        if made is None:
            contents = [content for sibling in self._group[node_id] if (content := self._nodes[sibling].content)]
            shown = self._group[node_id].index(node_id)
            content = contents[shown]
            made = self._messages[node_id] = ImportedMessage(
                content.role, content.name, content.hidden, content.version.created_at, {},
                tuple(one.version for one in contents), shown,
            )  # fmt: skip
        return made
