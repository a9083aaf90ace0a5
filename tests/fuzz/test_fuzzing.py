"""A bounded run of every fuzzing target, and all that longer ones have ever found."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.run import FINDINGS, raised
from tests.fuzz.seeds import ROOT, seeds
from tests.fuzz.targets import TARGETS

RUNS = 60
"""Inputs of each target: with its seeds they take a second."""

MOST_SECONDS = 600.0
"""Far beyond what a busy machine needs: only a hang takes that long."""

FOUND = sorted(path for path in FINDINGS.glob("*/*") if path.is_file())


@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris is not installed: there is none for this Python or system",
)
def test_a_bounded_run_finds_nothing(tmp_path: Path) -> None:
    """The same inputs each time, as the code stays the same."""
    command = [sys.executable, str(ROOT / "tests" / "fuzz" / "run.py"), "all"]
    bounded = ["--runs", str(RUNS), "--seed", "7", "--findings", str(tmp_path)]
    done = subprocess.run(
        [*command, *bounded], capture_output=True, text=True, timeout=MOST_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" executions") == len(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_found_in_what_fuzzing_begins_with(target: str) -> None:
    for seed in seeds(target):
        assert raised(TARGETS[target].look, seed) is None


@pytest.mark.parametrize("path", FOUND, ids=[f"{p.parent.name}/{p.name}" for p in FOUND])
def test_what_was_found_once_is_found_no_more(path: Path) -> None:
    assert raised(TARGETS[path.parent.name].look, path.read_bytes()) is None


def test_there_is_something_that_was_found() -> None:
    assert FOUND
    assert {path.parent.name for path in FOUND} <= set(TARGETS)
