"""Writes `catalogue.py`, the list of all built-in slots, from the modules of `built_in/`. Run it after adding a slot:

    python -m turnkeeper.history.slots.generator             writes the list
    python -m turnkeeper.history.slots.generator --check     says what is stale, exits 1 then, and changes nothing

A tool for whoever works on this package, not part of the library at run time: nothing imports it. The text depends on
the folder alone, so two runs write the same bytes. When a module goes,
take its lines out of the catalogue first: the package must load for the tool to run.
"""

from __future__ import annotations

import ast
import importlib.util
import keyword
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ...errors import Invalid
from .definition import SlotDef
from .lookup import make_registry

HERE = Path(__file__).parent
FOLDER, CATALOGUE = HERE / "built_in", HERE / "catalogue.py"
_LINE_MAX = 120 - len("from .built_in import ")
COMMAND = "python -m turnkeeper.history.slots.generator"

_HEAD = f'''"""All built-in slots. Written by `{COMMAND}` from the modules of `built_in/`: change those."""

from __future__ import annotations

from .built_in import {{modules}}
from .definition import SlotDef
from .lookup import make_registry

SLOTS: tuple[SlotDef, ...] = (
{{entries}}
)

BUILT_IN = make_registry(SLOTS)
"""The built-in slots, found by id."""

slot_of = BUILT_IN.slot_of
'''


class Exported(msgspec.Struct, frozen=True):
    """What one module of the folder declares."""

    module: str
    slots: list[SlotDef]
    listed: bool  # as SLOTS, a list

    @property
    def entry(self) -> str:
        """How the catalogue names it."""
        return f"*{self.module}.SLOTS" if self.listed else f"{self.module}.SLOT"


def module_name(slot_id: str) -> str:
    """Answer the name of the module that exports a slot."""
    name = slot_id.removesuffix(":*")
    for sign in "-.:":
        name = name.replace(sign, "_")
    return f"{name}_" if keyword.iskeyword(name) else name


def read_folder(folder: Path) -> list[Exported]:
    """Load the modules of a folder, by name. Raises Invalid for one that exports no slot, or one of another name."""
    found = [_load(path) for path in sorted(folder.glob("*.py"), key=lambda path: path.stem) if path.stem != "__init__"]
    make_registry(slot for exported in found for slot in exported.slots)  # ids declared twice, overlapping families
    return found


def _load(path: Path) -> Exported:
    name = path.stem
    spec = importlib.util.spec_from_file_location(f"{__package__}.built_in.{name}", path)
    assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    one, several = getattr(module, "SLOT", None), getattr(module, "SLOTS", None)
    slots: list[SlotDef] = [one] if several is None else several  # type: ignore[list-item]  # asked on the next line
    if (one is None) == (several is None) or not slots or not all(isinstance(slot, SlotDef) for slot in slots):
        raise _wrong(name, "it exports neither a slot as SLOT nor a list of them as SLOTS, or both")
    for slot in slots:
        if several is None and module_name(slot.id) != name:
            raise _wrong(name, f"it exports {slot.id!r}, which belongs into {module_name(slot.id)}.py")
        if several is not None and not slot.id.startswith(f"{name}."):
            raise _wrong(name, f"the ids it lists begin with '{name}.', and {slot.id!r} does not")
        if not slot.writers:
            raise _wrong(name, f"the slot {slot.id!r} lists no writer")
    return Exported(name, list(slots), several is not None)


def _wrong(module: str, why: str) -> Invalid:
    return Invalid(f"{module}.py cannot be listed: {why}.", "The catalogue is as it was.", "Mend it.", module=module)


def text_of(found: Iterable[Exported]) -> str:
    """Answer the text of the catalogue for these modules."""
    ordered = sorted(found, key=lambda exported: exported.module)
    modules = ", ".join(exported.module for exported in ordered)
    if len(modules) > _LINE_MAX:
        modules = "(\n" + "".join(f"    {exported.module},\n" for exported in ordered) + ")"
    return _HEAD.format(modules=modules, entries="\n".join(f"    {exported.entry}," for exported in ordered))


def faults(folder: Path, catalogue: Path) -> list[str]:
    """Say what is wrong with a catalogue and its folder; nothing when it lists every slot as it would be written now."""
    try:
        found = read_folder(folder)
    except Invalid as wrong:
        return [str(wrong)]
    text = catalogue.read_text("utf-8") if catalogue.exists() else ""
    listed = _listed(text)
    missing = [exported for exported in found if exported.module not in listed]
    said = [
        f"{catalogue.name} lacks {', '.join(slot.id for slot in exported.slots)} ({exported.module}.py): run {COMMAND}."
        for exported in missing
    ]
    if not said and text != text_of(found):
        said.append(f"{catalogue.name} is not what the folder gives now: run {COMMAND}.")
    return said


def _listed(text: str) -> set[str]:
    """Answer the modules that a catalogue both imports and lists."""
    imported: set[str] = set()
    named: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in ("SLOT", "SLOTS"):
            named.add(node.value.id)
    return imported & named


def main(arguments: Sequence[str], folder: Path = FOLDER, catalogue: Path = CATALOGUE) -> int:
    """Write the catalogue, or check it; answer the exit code."""
    if arguments not in ([], ["--check"]):
        print(f"usage: {COMMAND} [--check]", file=sys.stderr)
        return 2
    if arguments:
        said = faults(folder, catalogue)
        print("\n".join(said), file=sys.stderr, end="\n" if said else "")
        return 1 if said else 0
    try:
        text = text_of(read_folder(folder))
    except Invalid as wrong:
        print(wrong, file=sys.stderr)
        return 1
    catalogue.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
