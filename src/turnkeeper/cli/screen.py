"""What the command line prints: rich on a terminal, plain when piped or with NO_COLOR, JSON with --json.

* Lines fit 80 columns, or the terminal if it is narrower.
* What a person or a model wrote is never trusted: control signs, which could steer the terminal, and lone surrogates,
  which no terminal can show, are printed as a visible mark. JSON keeps them, escaped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import TurnkeeperError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

COLUMNS = 80

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def prepare() -> None:
    """Make the standard streams print what they can and mark what they cannot."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def console(*, stderr: bool = False) -> Console:
    """Make a console for one of the standard streams."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    plain = bool(os.environ.get("NO_COLOR"))
    return Console(
        file=stream,
        width=width(),
        highlight=False,
        markup=False,
        emoji=False,
        force_terminal=False if plain else None,
        no_color=plain or None,
        soft_wrap=False,
        legacy_windows=False,
    )


def width() -> int:
    """Answer how many columns a line may fill."""
    return max(40, min(COLUMNS, shutil.get_terminal_size((COLUMNS, 24)).columns))


def clean(text: str) -> str:
    """Answer a foreign text as a terminal may show it: several lines, nothing that steers."""
    return _UNSAFE.sub("�", text.replace("\r\n", "\n").replace("\t", "    "))


def one_line(text: str) -> str:
    """Answer a foreign text on one line."""
    return " ".join(clean(text).split())


def fit(text: str, columns: int) -> str:
    """Answer a foreign text on one line of at most `columns` columns; what is cut off is marked."""
    from rich.cells import cell_len, set_cell_size

    text = one_line(text)
    if cell_len(text) <= columns:
        return text
    return set_cell_size(text, max(columns - 1, 0)).rstrip() + "…" if columns > 0 else ""


def paragraph(out: Console, text: str | Text, *, indent: int = 0, style: str = "") -> None:
    """Print a text wrapped and indented, without blanks at the ends of lines."""
    from rich.text import Text

    whole = Text(clean(text), style=style) if isinstance(text, str) else text
    for line in whole.wrap(out, out.width - indent):
        line.rstrip()
        out.print(Text(" " * indent if line.plain else "") + line)


@contextmanager
def progress(what: str, *, as_json: bool) -> Iterator[Callable[[str], None]]:
    """Show on a terminal that long work goes on; answer what tells how far it is."""
    out = console(stderr=True)
    if as_json or not out.is_terminal:
        yield lambda far: None
        return
    with out.status(what) as status:
        yield lambda far: status.update(f"{what}: {far}")


def print_json(value: Any) -> None:
    """Print a value as JSON, every code point kept."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    text = json.dumps(value, ensure_ascii=encoding != "utf8", indent=2)
    sys.stdout.write(_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def print_error(error: TurnkeeperError) -> None:
    """Print an error as one block: what happened with its code, what is true now, what to do."""
    from rich.text import Text

    out = console(stderr=True)
    first = Text.assemble(("turnkeeper: ", "bold red"), (clean(error.happened), "bold"), (f" [{error.code}]", "red"))
    paragraph(out, first)
    for beat in (error.now, error.do):
        if beat:
            paragraph(out, beat, indent=2)
