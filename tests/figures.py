"""Sizes and shapes of the code: python -m tests.figures

Lines of the product and of the tests, short modules and large folders, import cycles (lazy
imports included; of the core type-only ones, too), class names of several classes, functions with
a parameter ``ascii``.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PRODUCT: Final = ("metlmon", "screens")
SHORT_MODULE: Final = 60
LARGE_FOLDER: Final = 20


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


def main() -> None:
    files = python_files(*PRODUCT)
    trees = {file: ast.parse(file.read_text()) for file in files}
    lines = {file: file.read_text().count("\n") for file in [*files, *python_files("tests")]}
    product = sum(lines[file] for file in files)
    print(f"product: {product:,} lines in {len(files)} files")
    print(f"tests: {sum(lines.values()) - product:,} lines in {len(lines) - len(files)} files")

    short = sorted((lines[f], str(f.relative_to(ROOT))) for f in files if f.stem != "__init__")
    short = [(n, name) for n, name in short if n < SHORT_MODULE]
    print(f"modules below {SHORT_MODULE} lines: {len(short)}")
    for number, name in short:
        print(f"  {number:5} {name}")

    folders = Counter(file.parent for file in files)
    full = {folder: n for folder, n in folders.items() if n > LARGE_FOLDER}
    print(f"folders with more than {LARGE_FOLDER} modules: {len(full)}")
    for folder, number in sorted(full.items()):
        print(f"  {number:5} {folder.relative_to(ROOT)}")

    cycles = import_cycles(module_graph(trees))
    print(f"import cycles: {len(cycles)}, {sum(map(len, cycles))} modules in them")
    for cycle in cycles:
        print(f"  {len(cycle):5} {', '.join(cycle[:6])}{', …' if len(cycle) > 6 else ''}")

    classes: defaultdict[str, set[str]] = defaultdict(set)
    ascii_functions = 0
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].add(module_name(file))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                ascii_functions += any(
                    arg.arg == "ascii" for arg in ast.walk(node.args) if isinstance(arg, ast.arg)
                )
    several = {name: where for name, where in classes.items() if len(where) > 1}
    print(f"class names with several classes: {len(several)}")
    for name, where in sorted(several.items()):
        print(f"  {name}: {', '.join(sorted(where))}")
    print(f"functions with a parameter ascii: {ascii_functions}")


if __name__ == "__main__":
    main()
