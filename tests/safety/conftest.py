"""The hostile dagdir, written once, and the program run on it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.safety.hostile_dagdir import Dagdir, write
from tests.support.command_server import ROOT, Ran, read_before, run_program


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Dagdir:
    """Every attack in every field."""
    dagdir = write(tmp_path_factory.mktemp("hostile"))
    read_before(dagdir.path)
    return dagdir


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Dagdir:
    """Two of the attacks: it is read sooner."""
    dagdir = write(tmp_path_factory.mktemp("small"), (0, 1))
    read_before(dagdir.path)
    return dagdir


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What the program may know of this machine: no pool, no settings of the user."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "COLORTERM", "LC_ALL", "COLUMNS")
    }
    return {
        **kept,
        "CONDOR_CONFIG": str(tmp_path / "no-pool"),
        "XDG_CONFIG_HOME": str(tmp_path / "no-settings"),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "PYTHONPATH": str(ROOT),
    }


@pytest.fixture
def metlmon(environment: dict[str, str], tmp_path: Path) -> Callable[..., Ran]:
    """Runs the program in an empty directory."""

    def run(*arguments: str | bytes | Path) -> Ran:
        return run_program(arguments, tmp_path, environment)

    return run
