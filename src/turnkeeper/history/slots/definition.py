"""A slot's definition: what a named piece of state is, how changes of it are cut, and who may write it. Pure.

* An id is 1–64 characters, `[a-z][a-z0-9.:_-]*`. An id `<word>:*` is a *family*: it covers every id that begins with
  `<word>:` and goes on with a member of 1–120 characters of `[A-Za-z0-9._-]` (decision 16).
* `scope` is "scene" (folded from the history one take shows) or "shared" (left out of every take's own fold).
* `diff` is the strategy by which changes are cut into deltas and put together again: "value" (the whole value, path
  `()`), "fields" (a dict, path `(name,)`) or "keyed-list" (a list of dicts found by the text in their field `key`,
  path `(key of the row,)`).
* `writers` are the doors that may write it; a slot that names none takes no write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_args

import msgspec

from ...errors import Invalid
from ...jsonvalue import copied, decode, digest, encode
from .shapes import Shape

Scope = Literal["scene", "shared"]
Strategy = Literal["value", "fields", "keyed-list"]
Writer = Literal["turn", "background", "person", "import"]

SCOPES: tuple[str, ...] = get_args(Scope)
STRATEGIES: tuple[str, ...] = get_args(Strategy)
WRITERS: tuple[str, ...] = get_args(Writer)

ID = re.compile(r"[a-z][a-z0-9.:_-]{0,63}")
"""The id of one slot; ask it with `fullmatch`."""

FAMILY_ID = re.compile(r"[a-z][a-z-]{0,61}:\*")
"""The id of a family; ask it with `fullmatch`."""

MEMBER = re.compile(r"[A-Za-z0-9._-]{1,120}")
"""What follows a family's colon in the id of a member; ask it with `fullmatch`."""

ShapeAt = Callable[[Sequence[str]], Shape | None]


class SlotDef(msgspec.Struct, frozen=True):
    """The definition of a slot or a family. Build one with `define_slot`; it never changes."""

    id: str
    scope: Scope
    diff: Strategy
    writers: tuple[Writer, ...]
    default_text: str  # the default as JSON, so that nobody can change it
    key: str | None = None
    shape: Shape | None = None
    shape_at: ShapeAt | None = None

    @property
    def default(self) -> Any:
        """What it holds before anything was written: a fresh value at each call."""
        return decode(self.default_text)

    @property
    def family(self) -> bool:
        """Whether it covers every id that begins with its prefix."""
        return self.id.endswith(":*")

    def shape_of(self, path: Sequence[str]) -> Shape | None:
        """Answer the rule of what is written at a readable path; None when the definition knows no such field."""
        if self.shape_at is not None:
            return self.shape_at(path)
        return self.shape or _anything

    def digest(self) -> bytes:
        """Answer the digest (32 bytes) of what decides how its stored deltas are read: id, scope, strategy, key, default.

        Writers and shapes are not in it: they decide what may be written from now on, never what is there.
        """
        return digest([self.id, self.scope, self.diff, self.key, self.default])


def define_slot(
    id: str,
    scope: Scope,
    diff: Strategy,
    default: Any,
    *,
    writers: Iterable[Writer],
    key: str | None = None,
    shape: Shape | None = None,
    shape_at: ShapeAt | None = None,
) -> SlotDef:
    """Define a slot. `shape` is the rule of the whole value, of each field, or of each row, as `diff` says.

    `shape_at` gives each field of a fields slot a rule of its own: called with the path, it answers the rule, or None
    for a field there is not. Raises Invalid for whatever does not make a definition.
    """
    if not isinstance(id, str) or not (ID.fullmatch(id) or FAMILY_ID.fullmatch(id)):
        raise _wrong(id, "its id is not one", "Use 1 to 64 of a-z 0-9 . : _ -, a letter first; or a word and `:*`.")
    if scope not in SCOPES:
        raise _wrong(id, "its scope is unknown", f"Use one of {', '.join(SCOPES)}.")
    if diff not in STRATEGIES:
        raise _wrong(id, "its strategy is unknown", f"Use one of {', '.join(STRATEGIES)}.")
    if diff == "keyed-list" and not (isinstance(key, str) and key):
        raise _wrong(id, "a keyed-list names the field that is a row's key", "Give `key`.")
    if diff != "keyed-list" and key is not None:
        raise _wrong(id, "only a keyed-list has a key field", "Leave `key` out.")
    named = tuple(writers)
    if isinstance(writers, str) or len(set(named)) < len(named) or not set(named) <= set(WRITERS):
        raise _wrong(
            id, "its writers are not some of those there are", f"Name some of {', '.join(WRITERS)}, once each."
        )
    if shape is not None and shape_at is not None:
        raise _wrong(id, "it has both a shape and a shape for each path", "Give one of them.")
    if shape_at is not None and diff != "fields":
        raise _wrong(id, "only a fields slot has a shape for each path", "Give `shape`.")
    if not all(rule is None or callable(rule) for rule in (shape, shape_at)):
        raise _wrong(id, "its shape cannot be called with a value", "See `turnkeeper.history.slots.shapes`.")
    kept = copied(default, f"{id}.default")
    if why := unlike(diff, key, kept):
        raise _wrong(id, f"its default is not what its strategy keeps: {why}", "Change the default or the strategy.")
    return SlotDef(id, scope, diff, named, encode(kept), key, shape, shape_at)


def unlike(diff: Strategy, key: str | None, state: Any) -> str | None:
    """Say why a value is not a whole state of a strategy; None when it is."""
    if diff == "fields":
        if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
            return "it is not a dict of fields"
    elif diff == "keyed-list":
        if not isinstance(state, list | tuple):
            return "it is not a list of rows"
        keys = [row.get(key) if isinstance(row, dict) else None for row in state]
        if not all(isinstance(found, str) for found in keys):
            return f"a row has no text in its key field `{key}`"
        if len(set(keys)) < len(keys):
            return f"two rows have the same text in their key field `{key}`"
    return None


def readable(diff: Strategy, path: Any) -> bool:
    """Say whether a strategy can read a path."""
    if not isinstance(path, list | tuple):
        return False
    return not path if diff == "value" else len(path) == 1 and isinstance(path[0], str)


def _anything(value: Any) -> None:
    return None


def _wrong(slot_id: object, why: str, do: str) -> Invalid:
    named = f"The slot {slot_id!r}" if isinstance(slot_id, str) and len(slot_id) < 200 else "A slot"
    return Invalid(f"{named} cannot be defined: {why}.", "Nothing was declared.", do, slot=slot_id)
