"""Shapes: rules that a value must fit before a slot takes it. Pure.

A shape is anything that can be called with a value and answers what is wrong with it, in a few words, or None. So a
function of yours is a shape; the classes here are the ones the built-in slots are made of. Rules:

* What is wrong may name fields of the definition, kinds and bounds, never the value.
* A shape sees one value: a field, a row, a whole value. What must hold between fields is not a shape; who writes
  checks the whole next state before it cuts deltas (S-028).
* Kinds are those of JSON by type: True is no number, 1.0 is no whole number.

`row_shape` and `field_shape` take a shape apart, so that the slot of a module and the module itself share one rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ...jsonvalue import same

Shape = Callable[[Any], str | None]


class _Rule(msgspec.Struct, frozen=True):
    """What the shapes here share: they are data, compared by content."""


class Anything(_Rule, frozen=True):
    """Any JSON value, null too."""

    def __call__(self, value: Any) -> str | None:
        """Answer None."""
        return None


class Text(_Rule, frozen=True):
    """A text of so many characters."""

    chars_min: int = 0
    chars_max: int | None = None

    def __call__(self, value: Any) -> str | None:
        """Answer what is wrong with a value, or None."""
        if not isinstance(value, str):
            return "it is not text"
        return _outside(len(value), self.chars_min, self.chars_max, "characters")


class Flag(_Rule, frozen=True):
    """True or False."""

    def __call__(self, value: Any) -> str | None:
        """Answer what is wrong with a value, or None."""
        return None if type(value) is bool else "it is neither true nor false"


class Whole(_Rule, frozen=True):
    """A whole number between two bounds, both inclusive."""

    low: int | None = None
    high: int | None = None

    def __call__(self, value: Any) -> str | None:
        """Answer what is wrong with a value, or None."""
        if type(value) is not int:
            return "it is not a whole number"
        return _outside(value, self.low, self.high, "")


class Number(_Rule, frozen=True):
    """A finite number, whole or not, between two bounds, both inclusive."""

    low: float | None = None
    high: float | None = None

    def __call__(self, value: Any) -> str | None:
        """Answer what is wrong with a value, or None."""
        if type(value) not in (int, float) or (type(value) is float and not math.isfinite(value)):
            return "it is not a number"
        return _outside(value, self.low, self.high, "")


class Choice(_Rule, frozen=True):
    """One of some values, equal by type."""

    values: Sequence[Any]

    def __call__(self, value: Any) -> str | None:
        """Answer what is wrong with a value, or None."""
        return None if any(same(value, one) for one in self.values) else "it is none of the allowed values"


class Nullable(_Rule, frozen=True):
    """Null, or what another shape takes."""

    other: Shape

    def __call__(self, value: Any) -> str | None:
        """Answer what is wrong with a value, or None."""
        return None if value is None else self.other(value)


class ListOf(_Rule, frozen=True):
    """A list whose rows all fit one shape."""

    row: Shape
    rows_max: int | None = None

    def __call__(self, value: Any) -> str | None:
        """Answer what is wrong with a value, or None."""
        if not isinstance(value, list | tuple):
            return "it is not a list"
        for i, row in enumerate(value):
            if why := self.row(row):
                return f"row {i}: {why}"
        return _outside(len(value), None, self.rows_max, "rows")


class MapOf(_Rule, frozen=True):
    """A dict of any names whose values all fit one shape."""

    entry: Shape

    def __call__(self, value: Any) -> str | None:
        """Answer what is wrong with a value, or None."""
        if not isinstance(value, dict):
            return "it is not a dict"
        return next((f"an entry: {why}" for item in value.values() if (why := self.entry(item))), None)


class Fields(_Rule, frozen=True):
    """A dict of named fields: those it needs, those it may have, and no others unless it is `open`."""

    needs: Mapping[str, Shape] = {}
    may: Mapping[str, Shape] = {}
    open: bool = False

    def __call__(self, value: Any) -> str | None:
        """Answer what is wrong with a value, or None."""
        if not isinstance(value, dict):
            return "it is not a dict of fields"
        for name in self.needs:
            if name not in value:
                return f"it lacks `{name}`"
        for name, item in value.items():
            shape = field_shape(self, name)
            if shape is None and not self.open:
                return "it has a field that is not declared"
            if shape is not None and (why := shape(item)):
                return f"`{name}`: {why}"
        return None

    def at(self, path: Sequence[str]) -> Shape | None:
        """Answer the rule of the field a path of one name leads to: what `define_slot(shape_at=…)` takes."""
        return field_shape(self, path[0]) if len(path) == 1 else None


class Tagged(_Rule, frozen=True):
    """A dict whose one field says which of several shapes it has."""

    tag: str
    shapes: Mapping[str, Shape]

    def __call__(self, value: Any) -> str | None:
        """Answer what is wrong with a value, or None."""
        named = value.get(self.tag) if isinstance(value, dict) else None
        shape = self.shapes.get(named) if isinstance(named, str) else None
        if shape is None:
            return f"its `{self.tag}` is none of {', '.join(self.shapes)}"
        return shape(value)


def row_shape(shape: Shape) -> Shape | None:
    """Answer the rule of one row of a list's shape; None for the shape of anything else (S-027)."""
    return shape.row if isinstance(shape, ListOf) else None


def field_shape(shape: Shape, name: str) -> Shape | None:
    """Answer the rule of one field of a dict's shape; None for a field it does not know (S-027)."""
    if not isinstance(shape, Fields):
        return None
    return shape.needs[name] if name in shape.needs else shape.may.get(name)


def _outside(value: float, low: float | None, high: float | None, unit: str) -> str | None:
    unit = f" {unit}" if unit else ""
    if low is not None and value < low:
        return f"it is below {low}{unit}"
    if high is not None and value > high:
        return f"it is above {high}{unit}"
    return None
