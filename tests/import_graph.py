"""Which modules import each other: lazy imports included; of the core type-only ones, too."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


def python_files(*folders: str) -> list[Path]:
    return sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def statements(tree: ast.AST, *, with_types: bool = True) -> Iterator[ast.AST]:
    """All statements, however deep; ``with_types``: also those below ``if TYPE_CHECKING``."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(tree, name, ()):
            test = each.test if isinstance(each, ast.If) else None
            if with_types or not (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"):
                yield each
                yield from statements(each, with_types=with_types)


def imports_of(tree: ast.AST, modules: Iterable[str], *, with_types: bool = True) -> Iterator[str]:
    """The modules of the product that a module imports, wherever in it."""
    for node in statements(tree, with_types=with_types):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                longer = f"{node.module}.{alias.name}"
                yield longer if longer in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def import_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components with more than one module (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            cut = stack.index(module)
            component, stack[cut:] = stack[cut:], []
            if len(component) > 1:
                found.append(sorted(component))

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return found


def module_graph(trees: Mapping[Path, ast.AST]) -> dict[str, set[str]]:
    """The product's modules that each module imports, lazily included.

    For its types, too, but for screens: they and the application name each other's classes.
    """
    names = {module_name(file) for file in trees}
    graph = {}
    for file, tree in trees.items():
        name = module_name(file)
        with_types = not name.startswith("screens.")
        graph[name] = (names & set(imports_of(tree, names, with_types=with_types))) - {name}
    return graph
