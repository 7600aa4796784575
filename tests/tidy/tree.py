"""The source tree as the tidy tests see it: modules, their syntax, who imports whom."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    path: Path
    src: Path = SRC

    @property
    def where(self) -> str:
        """Its path below the package, as messages and lists name it: "store/memory.py"."""
        return self.path.relative_to(self.src / "turnkeeper").as_posix()

    @property
    def name(self) -> str:
        """Its dotted name."""
        parts = self.path.relative_to(self.src).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def text(self) -> str:
        """Its source."""
        return self.path.read_text("utf-8")

    @cached_property
    def lines(self) -> list[str]:
        """Its lines."""
        return self.text.splitlines()

    @cached_property
    def syntax(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text, str(self.path))

    def definitions(self) -> Iterator[tuple[str, Definition]]:
        """Yield every function and class with its dotted name in the module, nested ones too."""
        yield from _definitions(self.syntax, "")

    def docstrings(self) -> set[int]:
        """Return the identities of the constants that are docstrings or bare strings."""
        return {
            id(node.value)
            for node in ast.walk(self.syntax)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            yield prefix + child.name, child
            yield from _definitions(child, f"{prefix}{child.name}.")
        else:
            yield from _definitions(child, prefix)


def modules(src: Path = SRC) -> list[Module]:
    """Return every module of the package."""
    return [Module(path, src) for path in sorted((src / "turnkeeper").rglob("*.py"))]


def tracked_files() -> list[Path]:
    """Return what git keeps, and what it would keep if added now: a fault should show before the commit, not after."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in sorted(set(listed.split("\0")) - {""}) if (path := ROOT / name).is_file()]


def imports(found: list[Module]) -> dict[str, set[str]]:
    """Return, for each module, the modules of the package it imports (anywhere in it, type checking included)."""
    names = {module.name for module in found}
    return {module.name: set(_imported(module, names)) - {module.name} for module in found}


def _imported(module: Module, names: set[str]) -> Iterator[str]:
    for node in ast.walk(module.syntax):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom):
            source = _source(module, node)
            for alias in node.names:
                submodule = f"{source}.{alias.name}"
                if submodule in names:
                    yield submodule
                elif source in names:
                    yield source


def _source(module: Module, node: ast.ImportFrom) -> str:
    """Return the absolute name of what a `from … import` imports from."""
    if not node.level:
        return node.module or ""
    up = node.level - (module.path.name == "__init__.py")
    parts = module.name.split(".")[: -up or None]
    return ".".join([*parts, *filter(None, [node.module])])


def only_for(start: str, graph: dict[str, set[str]]) -> set[str]:
    """Return a module (or package) with the modules that nothing outside this set imports: what it costs alone."""
    seeds = {name for name in graph if name == start or name.startswith(f"{start}.")}
    own = set(seeds)
    while more := {name for module in own for name in graph[module]} - own:
        own |= more  # all it can reach …
    while shared := {name for name in own - seeds if any(name in graph[other] for other in graph.keys() - own)}:
        own -= shared  # … less what anybody else imports, until nothing changes
    return own
