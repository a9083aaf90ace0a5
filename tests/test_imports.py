"""What each command may import: packages and modules by name, not milliseconds.

``tests/bench/startup.py`` measures what they cost, and ``--imports`` lists what is slow.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

PRIVATE = "from textual._"

DEMO = str(ROOT / "fixtures" / "demo")

NAME = {
    f"metlmon.cli.{name}"
    for name in ("main", "arguments", "shared_options", "exit_codes", "memory")
}

READING = {
    f"metlmon.{name}"
    for name in (
        "frozen",
        "redact",
        "errors",
        "config",
        "dagman",
        "eventlog",
        "live",
        "model",
        "snapshot",
        "text",
    )
} | {
    *("metlmon.jobfiles.gate_files", "metlmon.remote"),
    *("metlmon.remote.filesystem", "metlmon.remote.paths"),
}
PRINTING = {
    f"metlmon.cli.{name}"
    for name in (
        "commands",
        "exit_conditions",
        "reading",
        "several",
        "output",
        "json_output",
    )
} | {"metlmon.pool.types", "metlmon.pool.protocol"}
FIGURES = {"metlmon.stats", "metlmon.health", "metlmon.jobfiles"}
TEXTS = {"metlmon.cli.status_text", "metlmon.cli.text_output", "metlmon.tables"}

OURS: dict[str, set[str]] = {
    "--version": set(),
    "--help": set(),
    # What is in force is settings, which name states of the model; no log is read for it.
    "config path DIR": {
        *("metlmon.cli.commands.config", "metlmon.cli.output"),
        "metlmon.cli.json_output.objects",
        *("metlmon.config.settings", "metlmon.model.sites", "metlmon.model.states"),
        *(
            "metlmon.text.formatting",
            "metlmon.text.site_lists",
            "metlmon.eventlog",
            "metlmon.config.loader",
            "metlmon.config.user_state",
        ),
        *(
            "metlmon.errors",
            "metlmon.remote",
            "metlmon.config.readers",
            "metlmon.config.settings",
            "metlmon.config.toml_file",
            "metlmon.redact",
        ),
    },
    # No log is read for it, and no model made; the workflows are those of the model.
    "check DIR": READING
    | {
        *("metlmon.authoring", "metlmon.redact", "metlmon.trainer"),
        *("metlmon.cli.commands.check", "metlmon.cli.output", "metlmon.cli.json_output.objects"),
    },
    "jobs --json DIR": READING | PRINTING,
    "status --json DIR": READING | PRINTING | FIGURES,
    "status DIR": READING | PRINTING | FIGURES | TEXTS,
    "jobs DIR": READING | PRINTING | FIGURES | TEXTS,
    "sites --json DIR": READING | PRINTING | FIGURES | TEXTS | {"metlmon.cli.commands.sites"},
}
"""Commands, and the packages and modules of ours that each may import besides :data:`NAME`."""

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

NEVER_AT_FIRST = {
    *("pandas", "numpy", "plotext", "htcondor2", "classad2", "watchfiles", "pyarrow"),
    *("metlmon.authoring", "metlmon.report", "metlmon.stats.frames", "metlmon.stats.backtest"),
    *(
        "metlmon.trainer",
        "metlmon.cli.status_text",
        "metlmon.cli.commands.submit",
        "metlmon.cli.commands.act",
    ),
    *(
        "screens.submit.screen",
        "screens.timeline.screen",
        "screens.sites",
        "screens.curves",
    ),
    *("screens.estimates", "screens.incidents", "screens.nodes"),
    "metlmon.snapshot.node_tree",
}
"""What ``watch`` does not wait for before its first screen stands."""


def imported(code: str, *arguments: str) -> set[str]:
    """What a new interpreter has imported beyond what it starts with, after this code."""
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
    """What this command imports."""
    words = command.replace("DIR", DEMO).split()
    return imported("from metlmon.cli.main import main\nassert main(sys.argv[1:]) == 0", *words)


def within(name: str, packages: set[str]) -> bool:
    """Is it one of these, or below one, or above one (its package)?"""
    return any(
        name == each or name.startswith(f"{each}.") or each.startswith(f"{name}.")
        for each in packages
    )


@pytest.mark.parametrize("command", OURS)
def test_a_command_imports_what_it_needs(command: str) -> None:
    found = of(command)
    assert "metlmon.cli.main" in found
    ours = {name for name in found if name.split(".")[0] in ("metlmon", "screens")}
    assert {name for name in ours if not within(name, OURS[command] | NAME)} == set()
    others = {name.split(".")[0] for name in found - ours} - set(sys.stdlib_module_names)
    tables = OURS[command] >= TEXTS
    assert others - RECORDS <= (TABLES if tables else set())
    assert {name for name in found if name in SELDOM} == set()


WITHOUT_FRAMES = [
    *("nodes DIR", "run 1 DIR --json", "timeline DIR", "curves DIR", "grid DIR", "shards DIR"),
    *("estimate DIR", "report DIR", "new --example sweep", "demo --status", "sites DIR"),
    *("submit --list-templates", "config show DIR", "advise DIR"),
]
"""Commands beside those of :data:`OURS`; only exports and ``load()`` make frames."""


def test_only_exports_import_pandas() -> None:
    commands = [command.replace("DIR", DEMO) for command in WITHOUT_FRAMES]
    # Some have nothing to say of the demo: what they import is looked at all the same.
    code = "from metlmon.cli.main import main\nfor each in sys.argv[1:]: main(each.split())"
    found = imported(code, *commands)
    assert {"metlmon.report", "metlmon.cli.commands.config"} <= found, "all of them ran"
    heavy = {"pandas", "numpy", "pyarrow", "scipy", "highspy", "textual"}
    assert not {name.split(".")[0] for name in found} & heavy


def test_textual_is_bound_below_its_next_major_version() -> None:
    """``screens`` extends private parts of it."""
    text = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert [each for each in text if each.startswith("textual")] == ["textual>=8.2,<9"]
    private = [path for path in (ROOT / "screens").rglob("*.py") if PRIVATE in path.read_text()]
    assert private


def test_what_reads_nothing_defines_no_records() -> None:
    for command in ("--version", "--help"):
        assert not of(command) & {"dataclasses", "inspect", "pathlib", "json", "datetime"}


def test_the_first_screen_waits_for_no_other() -> None:
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
