"""A bounded run of every fuzzing target, and all findings of longer ones."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.run import FINDINGS, raised
from tests.fuzz.seeds import ROOT, seeds
from tests.fuzz.targets import BETWEEN, TARGETS

RUNS = 60
"""Inputs of each target: with its seeds they take a second."""

MAX_SECONDS = 600.0
"""Far beyond what a busy machine needs: only a hang takes that long."""

FOUND = sorted(path for path in FINDINGS.glob("*/*") if path.is_file())


@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris is not installed: there is none for this Python or system",
)
def test_bounded_run_finds_nothing(tmp_path: Path) -> None:
    """The same inputs each time, as long as the code is the same."""
    command = [sys.executable, str(ROOT / "tests" / "fuzz" / "run.py"), "all"]
    bounded = ["--runs", str(RUNS), "--seed", "7", "--findings", str(tmp_path)]
    done = subprocess.run(
        [*command, *bounded], capture_output=True, text=True, timeout=MAX_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" executions") == len(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_seeds_have_no_finding(target: str) -> None:
    for seed in seeds(target):
        assert raised(TARGETS[target].look, seed) is None


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Bytes changed, parts lost or repeated, numbers replaced, or a cut."""
    at, size = dice.randrange(len(data) + 1), dice.randrange(1, 400)
    match dice.randrange(6):
        case 0:
            return data[:at] + dice.randbytes(9) + data[at + 9 :]
        case 1:
            return data[:at] + data[at + size :]
        case 2:
            return data[: at + size] + data[at:]
        case 3:
            digit, wild = dice.choice(b"0123456789"), (b"9999999999", b"-1", b"0", b"")
            return data.replace(bytes([digit]), dice.choice(wild), 40)
        case 4:
            return data[:at]
        case _:
            return data[:at] + b"\0" * size + data[at:]


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_damaged_files_have_no_finding(target: str, seed: int) -> None:
    """Of several files in one input each may be damaged or missing."""
    dice = random.Random(seed)
    pieces = dice.choice(seeds(target)).split(BETWEEN)
    changed = [damaged(each, dice) if dice.random() < 0.35 else each for each in pieces]
    kept = [each if dice.random() < 0.95 else b"" for each in changed]
    assert raised(TARGETS[target].look, BETWEEN.join(kept)) is None


@pytest.mark.parametrize("path", FOUND, ids=[f"{p.parent.name}/{p.name}" for p in FOUND])
def test_earlier_findings_are_fixed(path: Path) -> None:
    assert raised(TARGETS[path.parent.name].look, path.read_bytes()) is None


def test_earlier_findings_exist() -> None:
    assert FOUND
    assert {path.parent.name for path in FOUND} <= set(TARGETS)
