"""A history as the clients of model providers take it. Pure: content in, plain dicts out, ready to be sent.

* ``openai``: the list for ``chat.completions.create(messages=…)``.
* ``anthropic``: ``{"system": …, "messages": […]}``, the keyword arguments of ``messages.create``; no ``system`` when there
  is none.
* ``gemini``: ``{"contents": […], "system_instruction": …}``, the same for ``generateContent``.

What a provider would refuse never leaves here (`blocks.py` has the rules they share): every call is followed by exactly
one result, hidden messages and empty texts are left out, names and ids have the letters the provider allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import Invalid
from .anthropic import to_anthropic
from .blocks import Block, Line, blocks_of
from .gemini import to_gemini
from .openai import to_openai

FORMATS: dict[str, Callable[[Sequence[Block]], Any]] = {
    "openai": to_openai,
    "anthropic": to_anthropic,
    "gemini": to_gemini,
}
"""The formats by name."""


def check_format(name: str | None) -> None:
    """Refuse a format nobody knows. Raises Invalid."""
    if name is not None and (not isinstance(name, str) or name not in FORMATS):
        raise Invalid(
            f"There is no message format {name!r}.", do=f"Use None, or one of {', '.join(FORMATS)}.", path="format"
        )


def to_format(lines: Sequence[Line], name: str) -> Any:
    """Answer messages in a provider's format, whose name `check_format` let pass."""
    return FORMATS[name](blocks_of(lines))


__all__ = ["FORMATS", "Line", "check_format", "to_format"]
