"""The gate as started by DAGMan through its first line: without Python, or with one that fails, the
node runs, and this is reported."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import Captured, text_output
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Out
from tests.support.gated_dagdir import GATE, GO, SKIP, UUID, WAIT, GatedDagdir, gated_dag

NODE = "run0-train_epoch3"


class StartedGate:
    """A dagdir with a gate, and a PATH with only ``python3`` (a shell script) on it."""

    def __init__(self, path: Path, python3: str | None) -> None:
        self.dagdir = GatedDagdir(path / "ensemble", {})
        shutil.copy(GATE, self.dagdir.path / "gate.py")
        (self.dagdir.path / "gate.py").chmod(0o755)
        self.path = path / "bin"
        self.path.mkdir()
        if python3 is not None:
            (self.path / "python3").write_text(f"#!/bin/sh\n{python3}\n")
            (self.path / "python3").chmod(0o755)

    def asks(self, rules: str = "ensemble.gate.json") -> int:
        # The gate's parent is a shell of its own: some interpreters here kill their parent.
        words = ["/bin/sh", "-c", './gate.py "$@"; exit $?', "dagman", rules, UUID]
        done = subprocess.run(
            [*words, "3", "train", NODE],
            cwd=self.dagdir.path,
            env={"PATH": str(self.path)},
            capture_output=True,
            timeout=60,
        )
        assert done.stdout == b""
        return done.returncode


GOOD = f'exec {sys.executable} "$@"'


@pytest.mark.parametrize(("asked", "code"), [(None, GO), ("stop", SKIP), ("pause", WAIT)])
def test_exit_status_passes_through_the_shell(tmp_path: Path, asked: str | None, code: int) -> None:
    gate = StartedGate(tmp_path, GOOD)
    if asked is not None:
        gate.dagdir.ask_for(asked)
    assert gate.asks() == code
    assert gate.dagdir.log == []


@pytest.mark.parametrize(
    ("python3", "why"),
    [
        (None, "python3 is not on PATH"),
        ("exit 126", "python3 cannot be started"),
        ("exit 1", "python3 ended with exit status 1"),
        ("kill -9 $$", "it was killed by signal 9"),
        ("kill -TERM $PPID; exit 3", "python3 ended with exit status 3"),
        (f"exec {sys.executable} -c 'import gone'", "python3 ended with exit status 1"),
    ],
)
def test_broken_gate_lets_the_node_run(tmp_path: Path, python3: str | None, why: str) -> None:
    gate = StartedGate(tmp_path, python3)
    gate.dagdir.ask_for("stop")
    assert gate.asks() == GO
    (line,) = gate.dagdir.log
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d {NODE}: {re.escape(why)}", line)


@pytest.mark.parametrize("part", ["gate", "gate/ensemble", "gate/ensemble/gate.log"])
def test_gate_follows_no_link(tmp_path: Path, part: str) -> None:
    gate = StartedGate(tmp_path, None)
    place = gate.dagdir.path / part
    place.parent.mkdir(parents=True, exist_ok=True)
    elsewhere = tmp_path / "elsewhere"
    if not part.endswith(".log"):
        elsewhere.mkdir()
    place.symlink_to(elsewhere)
    assert gate.asks() == GO
    assert not elsewhere.exists() or not list(elsewhere.iterdir())


@pytest.mark.parametrize("rules", ["", "rules.json", ".gate.json", "...gate.json", "gone/x"])
def test_arguments_without_rules(tmp_path: Path, rules: str) -> None:
    gate = StartedGate(tmp_path, None)
    before = sorted(os.listdir(gate.dagdir.path))
    assert gate.asks(rules) == GO
    assert sorted(os.listdir(gate.dagdir.path)) == before


def test_status_warns_of_a_gate_that_cannot_run(tmp_path: Path, capsys: Captured) -> None:
    dagdir = Dagdir(tmp_path / "ensemble", "")
    dagdir.write("e.dag", gated_dag([UUID]))
    dagdir.write("e.sub", "log = metl.log\nexecutable = train.py\nqueue\n")
    dagdir.write("e.dag.dagman.out", Out().start("10:00:00").data)
    shutil.copy(GATE, dagdir.path / "gate.py")
    words = ["sh", "gate.py", "e.gate.json", UUID, "3", "train", NODE]
    subprocess.run(words, cwd=dagdir.path, env={"PATH": "/nowhere"}, executable="/bin/sh")
    out = text_output("status", capsys, dagdir.path)
    assert "a gate could not decide, and let the epoch train" in out
    assert f"{NODE}: python3 is not on PATH" in out
