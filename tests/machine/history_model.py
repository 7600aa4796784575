"""A history that is too simple to be wrong: lists of messages, every state folded from nothing, cells and their old values.

What moves what is shown is kept as cells with their values before and after; undo writes the former, redo the latter.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.scenes import exact, folded
from turnkeeper.history.slots import NewDelta

Cell = tuple[Any, ...]


class Refused(Exception):
    """What the store must refuse, by the name of its error."""


@dataclass
class Said:
    """A message of a take."""

    version: int
    versions: list[int]
    cut: bool = False
    cut_versions: frozenset[int] = frozenset()
    later: list[tuple[int | None, NewDelta]] = field(default_factory=list)

    def copy(self) -> Said:
        """The same message of another take."""
        return replace(self, versions=list(self.versions), later=list(self.later))


@dataclass
class Path:
    """A take."""

    parent: int | None
    said: list[Said]
    base: dict[str, Any] = field(default_factory=dict)
    deleted: bool = False


class History:
    """A session."""

    def __init__(self) -> None:
        self.takes: list[Path] = [Path(None, [])]
        self.versions: list[tuple[str, list[NewDelta]]] = []
        self.active = 0
        self.done: list[list[tuple[Cell, Any, Any]]] = []
        self.undone: list[list[tuple[Cell, Any, Any]]] = []

    # what is there

    def live(self) -> list[int]:
        """The numbers of takes that are not deleted."""
        return [number for number, take in enumerate(self.takes) if not take.deleted]

    def shown(self, take: int) -> list[int]:
        """The positions of a take that are not cut."""
        return [position for position, one in enumerate(self.takes[take].said) if not one.cut]

    def texts(self, take: int) -> list[str]:
        """What a take says."""
        return [self.versions[self.takes[take].said[position].version][0] for position in self.shown(take)]

    def state(self, take: int, before: int | None = None) -> dict[str, Any]:
        """The state of a take, or before one of its positions, from nothing."""
        state: dict[str, Any] = {"vars": {}, **self.takes[take].base}
        for position in self.shown(take):
            if before is None or position < before:
                state = folded(state, self.counted(take, position))
        return state

    def states(self, take: int) -> list[str]:
        """The state of a take, as text, before any message and after each that it shows."""
        state: dict[str, Any] = {"vars": {}, **self.takes[take].base}
        found = [exact(state)]
        for position in self.shown(take):
            state = folded(state, self.counted(take, position))
            found.append(exact(state))
        return found

    def counted(self, take: int, position: int, version: int | None = None) -> list[NewDelta]:
        """What counts on a message, in order, as if it showed `version`."""
        one = self.takes[take].said[position]
        number = one.version if version is None else version
        tied = [delta for about, delta in one.later if about == number]
        person = [delta for about, delta in one.later if about is None]
        return [*self.versions[number][1], *tied, *person]

    def _shown(self, take: int, position: int) -> Said:
        if take >= len(self.takes) or self.takes[take].deleted:
            raise Refused("NotFound")
        if not 0 <= position < len(self.takes[take].said) or self.takes[take].said[position].cut:
            raise Refused("NotFound")
        return self.takes[take].said[position]

    # cells

    def _set(self, cell: Cell, value: Any) -> None:
        match cell:
            case ("active",):
                self.active = value
            case ("deleted", take):
                self.takes[take].deleted = value
            case (name, take, position):
                setattr(self.takes[take].said[position], name, value)

    def _do(self, *cells: tuple[Cell, Any, Any]) -> None:
        for cell, _, after in cells:
            self._set(cell, after)
        self.done.append(list(cells))
        self.undone.clear()

    def undo(self) -> bool:
        """Take back the newest change of what is shown."""
        if not self.done:
            return False
        cells = self.done.pop()
        for cell, before, _ in reversed(cells):
            self._set(cell, before)
        self.undone.append(cells)
        return True

    def redo(self) -> bool:
        """Do it again."""
        if not self.undone:
            return False
        cells = self.undone.pop()
        for cell, _, after in cells:
            self._set(cell, after)
        self.done.append(cells)
        return True

    # growing

    def _mint(self, text: str, deltas: list[NewDelta]) -> int:
        self.versions.append((text, deltas))
        return len(self.versions) - 1

    def add(self, take: int, texts: list[str], deltas: list[NewDelta]) -> list[int]:
        """Add messages at a take's end, deltas on the last one."""
        positions = self._add(take, texts, deltas)
        self._do(*((("cut", take, position), True, False) for position in positions))
        return positions

    def _add(self, take: int, texts: list[str], deltas: list[NewDelta]) -> list[int]:
        said, first = self.takes[take].said, len(self.takes[take].said)
        for i, text in enumerate(texts):
            number = self._mint(text, deltas if i == len(texts) - 1 else [])
            said.append(Said(number, [number]))
        return list(range(first, len(said)))

    def again(self, take: int, position: int, text: str, deltas: list[NewDelta]) -> None:
        """Another version of a message."""
        one = self._shown(take, position)
        number = self._mint(text, deltas)
        one.versions.append(number)
        self._do((("version", take, position), one.version, number))

    def again_as_take(self, take: int, position: int, texts: list[str], deltas: list[NewDelta]) -> int:
        """Another reply of several messages."""
        self._shown(take, position)
        number = self._copy(take, position - 1)
        added = self._add(number, texts, deltas)
        if take == self.active:
            self._do((("active",), self.active, number))
        else:
            self._do(*((("cut", number, at), True, False) for at in added))
        return number

    def _copy(self, take: int, last: int) -> int:
        source = self.takes[take]
        self.takes.append(Path(take, [one.copy() for one in source.said[: last + 1]], dict(source.base)))
        return len(self.takes) - 1

    def fork(self, take: int, last: int, activate: bool) -> int:
        """A take of a prefix."""
        number = self._copy(take, last)
        if activate:
            self._do((("active",), self.active, number))
        return number

    # choosing and hiding

    def choose(self, take: int, position: int, index: int, activate: bool = False) -> None:
        """Show another version, and perhaps another take."""
        one = self._shown(take, position)
        if not 0 <= index < len(one.versions) or one.versions[index] in one.cut_versions:
            raise Refused("NotFound")
        cells: list[tuple[Cell, Any, Any]] = []
        if one.versions[index] != one.version:
            cells.append((("version", take, position), one.version, one.versions[index]))
        if activate and take != self.active:
            cells.append((("active",), self.active, take))
        if cells:
            self._do(*cells)

    def activate(self, take: int) -> None:
        """Make a take the active one."""
        if take != self.active:
            self._do((("active",), self.active, take))

    def cut(self, take: int, positions: list[int]) -> None:
        """Hide messages."""
        for position in positions:
            self._shown(take, position)
        self._do(*((("cut", take, position), False, True) for position in positions))

    def restore(self, take: int, positions: list[int], as_take: bool) -> int:
        """Show messages again."""
        said = self.takes[take].said
        if any(position >= len(said) or not said[position].cut for position in positions):
            raise Refused("NotFound")
        if not as_take:
            self._do(*((("cut", take, position), True, False) for position in positions))
            return take
        number = self._copy(take, max(positions))
        for position in positions:
            self.takes[number].said[position].cut = False
        self._do((("deleted", number), True, False), (("active",), self.active, number))
        return number

    def cut_version(self, take: int, position: int, index: int) -> None:
        """Hide a version."""
        one = self._shown(take, position)
        if index >= len(one.versions) or one.versions[index] in one.cut_versions:
            raise Refused("NotFound")
        number = one.versions[index]
        left = [i for i, other in enumerate(one.versions) if other not in one.cut_versions and other != number]
        if not left:
            raise Refused("Invalid")
        cells = [(("cut_versions", take, position), one.cut_versions, one.cut_versions | {number})]
        if one.version == number:
            earlier = [i for i in left if i < index]
            nearest = one.versions[max(earlier) if earlier else min(left)]
            cells.append((("version", take, position), number, nearest))
        self._do(*cells)

    def restore_version(self, take: int, position: int, index: int) -> None:
        """Offer a version again."""
        one = self._shown(take, position)
        if index >= len(one.versions) or one.versions[index] not in one.cut_versions:
            raise Refused("NotFound")
        self._do((("cut_versions", take, position), one.cut_versions, one.cut_versions - {one.versions[index]}))

    def delete(self, take: int) -> None:
        """Hide a take."""
        if self.takes[take].deleted:
            raise Refused("NotFound")
        cells: list[tuple[Cell, Any, Any]] = [(("deleted", take), False, True)]
        if take == self.active:
            others = [number for number in self.live() if number != take]
            if not others:
                raise Refused("Invalid")
            heir = self.takes[take].parent
            while heir is not None and heir not in others:
                heir = self.takes[heir].parent
            cells.append((("active",), take, others[0] if heir is None else heir))
        self._do(*cells)

    def undelete(self, take: int) -> None:
        """Show a take again."""
        if not self.takes[take].deleted:
            raise Refused("NotFound")
        self._do((("deleted", take), True, False))

    # writing on what is there

    def edit(self, take: int, position: int, deltas: list[NewDelta]) -> int:
        """A person's edit; only what changes something is kept."""
        one = self._shown(take, position)
        state, kept = folded(self.state(take, position), self.counted(take, position)), 0
        for delta in deltas:
            after = folded(state, [delta])
            empty: dict[str, Any] = {"tracker.stats": {}, "tracker.party": []}
            if exact({**empty, **after}) != exact({**empty, **state}):
                one.later.append((None, delta))
                kept += 1
            state = after
        return kept

    def tie(self, take: int, position: int, version: int, deltas: list[NewDelta]) -> None:
        """A background write."""
        one = self._shown(take, position)
        if version not in one.versions:
            raise Refused("NotFound")
        one.later += [(version, delta) for delta in deltas]

    def rebase(self, take: int, base: dict[str, Any]) -> None:
        """What comes before the first message."""
        self.takes[take].base.update(base)
