"""What a command may import beyond its needs, and the absence of import cycles.

``tests/bench/startup.py`` measures the cost.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Set
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

PRIVATE = "from textual._"

DEMO = str(ROOT / "fixtures" / "demo")

COMMANDS = {
    **dict.fromkeys(("--version", "--help", "config path DIR", "check DIR"), False),
    "status --json DIR": False,
    **dict.fromkeys(("status DIR", "sites DIR"), True),
}
"""Commands, and whether each prints tables for people."""

RECORDS = {"msgspec", "typing_extensions"}
"""What every command that reads may import, for records."""

TABLES = {"rich", "pygments", "markdown_it", "mdurl"}
"""What is not Python's own may be imported by commands that print tables for people only."""

SELDOM = {
    *("asyncio", "concurrent.futures", "multiprocessing", "subprocess", "socket", "ssl"),
    *("email", "http", "logging", "unittest", "sqlite3", "ctypes", "tomllib", "zoneinfo"),
    *("difflib", "importlib.metadata", "importlib.resources", "xml", "zipfile", "pydoc"),
}
"""Slow modules of the standard library that no command needs which only reads and prints."""

UNREAD = {
    *("screens", "metlmon.authoring", "metlmon.placement", "metlmon.pool.client"),
    *("metlmon.report", "metlmon.tables.frames", "metlmon.tracking", "metlmon.home"),
}
"""Packages and modules that read nothing which these commands print."""

NEVER_AT_FIRST = {
    *("pandas", "numpy", "plotext", "htcondor2", "classad2", "watchfiles", "pyarrow"),
    *("metlmon.authoring", "metlmon.report", "metlmon.tables.frames", "metlmon.stats.backtest"),
    *("metlmon.trainer", "metlmon.cli.status_text"),
    *("metlmon.cli.commands.new", "metlmon.cli.commands.act"),
    *("screens.submit", "screens.timeline", "screens.sites", "screens.curves"),
    *("screens.estimates", "screens.health"),
}
"""What ``watch`` does not wait for before its first screen stands."""


def imported(code: str, *arguments: str) -> set[str]:
    """The modules that a new interpreter imports for this code, beyond its own."""
    result = "import atexit, sys\nbefore = set(sys.modules)\n"
    result += "tell = lambda: print(*sorted(set(sys.modules) - before), file=sys.stderr)\n"
    result += "atexit.register(tell)\n" + code
    done = subprocess.run(
        [sys.executable, "-c", result, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return set(done.stderr.splitlines()[-1].split())


def of(command: str) -> set[str]:
    """The imports of this command."""
    words = command.replace("DIR", DEMO).split()
    return imported("from metlmon.cli.main import main\nassert main(sys.argv[1:]) == 0", *words)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_import_only_what_they_need(command: str) -> None:
    found = of(command)
    assert "metlmon.cli.main" in found
    tops = {name.split(".")[0] for name in found} - set(sys.stdlib_module_names)
    assert tops - RECORDS <= {"metlmon"} | (TABLES if COMMANDS[command] else set())
    assert found & SELDOM == set()
    unwanted = UNREAD - ({"metlmon.authoring"} if command == "check DIR" else set())
    assert found & unwanted == set()
    assert COMMANDS[command] or "metlmon.tables" not in found


WITHOUT_FRAMES = [
    *("nodes DIR", "run 1 DIR --json", "timeline DIR", "curves DIR", "grid DIR", "shards DIR"),
    *("estimate DIR", "report DIR", "new --example sweep", "demo --status", "usage DIR"),
    *("submit --list-templates", "config show DIR", "advise DIR"),
]
"""Commands beside those of :data:`COMMANDS`; only exports and ``load()`` make frames."""


def test_only_exports_import_pandas() -> None:
    commands = [command.replace("DIR", DEMO) for command in WITHOUT_FRAMES]
    # Some have no output for the demo; their imports count all the same.
    code = "from metlmon.cli.main import main\nfor each in sys.argv[1:]: main(each.split())"
    found = imported(code, *commands)
    assert {"metlmon.report", "metlmon.cli.commands.config"} <= found, "all of them ran"
    heavy = {"pandas", "numpy", "pyarrow", "scipy", "highspy", "textual"}
    heavy |= {"mlflow", "optuna", "prometheus_client"}
    assert not {name.split(".")[0] for name in found} & heavy


def test_textual_is_pinned_below_its_next_major_version() -> None:
    """``screens`` extends private parts of it."""
    text = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert [each for each in text if each.startswith("textual")] == ["textual>=8.2,<9"]
    private = [path for path in (ROOT / "screens").rglob("*.py") if PRIVATE in path.read_text()]
    assert private


def test_commands_without_reading_define_no_records() -> None:
    for command in ("--version", "--help"):
        assert not of(command) & {"dataclasses", "inspect", "pathlib", "json", "datetime"}


def test_first_screen_imports_no_other_screen() -> None:
    opening = (
        "metlmon.cli.main metlmon.cli.commands.status metlmon.cli.session_setup metlmon.pool.client"
    )
    code = "import importlib\nfor each in sys.argv[1:]: importlib.import_module(each)"
    found = imported(code, *opening.split(), "screens.app")
    assert "textual.app" in found
    unwanted = {
        name
        for name in found
        for never in NEVER_AT_FIRST
        if name == never or name.startswith(f"{never}.")
    }
    assert unwanted == set()


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def product_imports(file: Path, modules: Set[str]) -> Iterator[str]:
    """The modules of the product that a file imports, in functions, too."""
    tree = ast.parse(file.read_text())
    if "screens" in file.parts:
        # Screens and the application import each other's classes for types only.
        tree.body = [each for each in tree.body if not is_for_types(each)]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            longer = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from longer & modules or {node.module} & modules
        elif isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & modules


def test_modules_have_no_import_cycle() -> None:
    files = [file for top in ("metlmon", "screens") for file in (ROOT / top).rglob("*.py")]
    modules = {module_name(file) for file in files}
    graph = {module_name(file): {*product_imports(file, modules)} for file in files}
    assert graph["metlmon.cli.main"], "the imports are found"
    TopologicalSorter(graph).prepare()
