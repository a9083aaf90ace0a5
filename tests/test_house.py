"""The house: one direction of flow, a core without screens, and a tidy top level."""

from __future__ import annotations

import ast
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import metlmon
from tests.figures import import_cycles, module_graph, python_files

ROOT = Path(__file__).resolve().parents[1]

TOP = {
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "fixtures",
    "metlmon",
    "pyproject.toml",
    "screens",
    "tests",
    "uv.lock",
}
"""All that lies at the top, besides files whose names begin with a dot."""

HEAVY = {"textual", "pandas", "numpy", "plotext", "htcondor2", "classad2", "screens", "rich"}
"""What only a screen, a report, a pool or a table needs."""

OFFICES: dict[str, set[str]] = {
    "metlmon.eventlog": HEAVY | {"metlmon.dagman", "metlmon.model", "metlmon.live"},
    "metlmon.dagman": HEAVY | {"metlmon.eventlog", "metlmon.model", "metlmon.live"},
    "metlmon.model": HEAVY | {"metlmon.live", "metlmon.cli", "watchfiles"},
    "metlmon.live": HEAVY | {"metlmon.cli"},
    "metlmon.jobfiles": HEAVY | {"metlmon.model", "metlmon.live"},
    "metlmon.stats": HEAVY | {"metlmon.cli", "metlmon.pool", "metlmon.report"},
    "metlmon.placement": HEAVY | {"metlmon.cli", "metlmon.report", "scipy", "highspy"},
    # Rich measures the width of characters.
    "metlmon.tables": HEAVY - {"rich"} | {"metlmon.cli", "metlmon.pool", "metlmon.report"},
    "metlmon.report": HEAVY - {"rich"} | {"metlmon.cli", "metlmon.pool"},
    "metlmon.cli": {"textual", "screens", "pandas", "htcondor2"},
}
"""Packages, and what importing every module of one never brings in."""


def modules(package: str) -> list[str]:
    """Every module of the core below ``package``."""
    names = [m.name for m in pkgutil.walk_packages(metlmon.__path__, "metlmon.")]
    # Importing __main__ runs the command.
    names = ["metlmon", *(name for name in names if not name.endswith("__main__"))]
    return [name for name in names if name == package or name.startswith(f"{package}.")]


def brought_in(names: list[str]) -> set[str]:
    """What a new interpreter has imported after importing these."""
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
    code += "print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, *names],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return set(done.stdout.split())


def test_the_core_never_imports_textual() -> None:
    # The pool's package is the only one that may import HTCondor, the statistics pandas.
    everything = modules("metlmon")
    assert len(everything) > 40
    found = brought_in(everything)
    assert not {name for name in found if name.split(".")[0] in ("textual", "screens")}


@pytest.mark.parametrize("client", OFFICES)
def test_flow_goes_one_way(client: str) -> None:
    names = modules(client)
    assert names
    found = brought_in(names)
    unwanted = {
        name
        for name in found
        for never in OFFICES[client]
        if name == never or name.startswith(f"{never}.")
    }
    assert not unwanted


def listed() -> list[str]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=60
    )
    return [name for name in done.stdout.decode().split("\0") if name]


def test_the_top_level_is_tidy() -> None:
    tops = {name.split("/")[0] for name in listed()}
    assert {name for name in tops if not name.startswith(".")} <= TOP
    assert {"metlmon", "screens", "tests", "pyproject.toml"} <= tops


def test_modules_import_each_other_in_no_cycle() -> None:
    """Imports in functions included; in the core also those for types alone."""
    trees = {file: ast.parse(file.read_text()) for file in python_files("metlmon", "screens")}
    graph = module_graph(trees)
    assert graph["metlmon.cli.main"], "the imports are found"
    assert import_cycles(graph) == []


def test_a_cycle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert import_cycles(graph) == [["a", "b", "c"]]


def test_no_module_is_called_utils() -> None:
    vague = {"utils", "util", "helpers", "common", "misc"}
    assert not [n for n in listed() if n.endswith(".py") and Path(n).stem in vague]


def test_every_module_says_what_it_is() -> None:
    silent = []
    for name in listed():
        path = ROOT / name
        ours = name.startswith(("metlmon/", "screens/")) and name.endswith(".py")
        if ours and path.exists() and path.stat().st_size:
            text = path.read_text(encoding="utf-8")
            # A program that is shipped to where it runs begins with a line for the kernel.
            first = re.sub(r"\A(#.*\n)+", "", text).lstrip() if text[:2] == "#!" else text.lstrip()
            if not first.startswith(('"""', 'r"""')):
                silent.append(name)
    assert not silent
