"""A dagdir with a gate: rules, metrics as trainings write them, and the gate called with DAGMan's
arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from metlmon.trainer import gate

GATE = Path(gate.__file__)
UUID = "aaaa1111-0000-5000-8000-000000000000"
GO, SKIP, WAIT = 0, 42, 75

PATIENT = {"metric": "val_loss", "patience": 2, "min_delta": 0.001}


class GatedDagdir:
    """The directory of ``ensemble.dag``, with the runs ``uuids``."""

    def __init__(self, path: Path, rules: Mapping[str, Any], *uuids: str) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        runs = {
            uuid: {"name": f"run{at}", "metrics": f"output/training_logs/{uuid}"}
            for at, uuid in enumerate(uuids or (UUID,))
        }
        self.rules({"schema": 1, "dag": "ensemble", "rules": dict(rules), "runs": runs})

    def rules(self, content: object) -> None:
        (self.path / "ensemble.gate.json").write_text(json.dumps(content))

    @property
    def state(self) -> Path:
        return self.path / "gate" / "ensemble"

    def file(self, kind: str, uuid: str = UUID) -> Path:
        return self.state / f"{uuid}.{kind}"

    def ask_for(self, kind: str, text: str = "", uuid: str = UUID) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        self.file(kind, uuid).write_text(text)

    def metrics(self, version: int, content: str | bytes, uuid: str = UUID) -> Path:
        path = self.path / f"output/training_logs/{uuid}/version_{version}/metrics.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def trained(self, losses: Sequence[float], uuid: str = UUID) -> None:
        """Write a version for each epoch, one job each, in the trainer's own form."""
        for epoch, loss in enumerate(losses):
            self.metrics(epoch, table(epoch, loss), uuid)

    def command(self, epoch: object, uuid: str = UUID, what: str = "train") -> list[str]:
        kind = "train" if what == "train" else "eval"
        node = f"run0-{kind}_epoch{epoch}"
        words = [sys.executable, "-S", "-I", str(GATE), "ensemble.gate.json"]
        return [*words, uuid, str(epoch), what, node]

    def asks(self, epoch: object, uuid: str = UUID, what: str = "train") -> int:
        """Run the gate; return its exit status. It must print nothing."""
        out = StringIO()
        with chdir(self.path), redirect_stdout(out), redirect_stderr(StringIO()):
            code = gate.main(self.command(epoch, uuid, what)[4:])
        assert out.getvalue() == ""
        return code

    def asks_in_a_process(self, epoch: object) -> int:
        """Run the gate in a process, so that a hang fails the test."""
        done = subprocess.run(
            self.command(epoch),
            cwd=self.path,
            capture_output=True,
            timeout=60,
            env={"PATH": os.environ["PATH"]},
        )
        assert done.stdout == b""
        assert b"Traceback" not in done.stderr
        return done.returncode

    def stopped(self, uuid: str = UUID) -> dict[str, Any]:
        found = json.loads(self.file("stopped", uuid).read_bytes())
        assert isinstance(found, dict)
        return found

    @property
    def log(self) -> list[str]:
        path = self.state / "gate.log"
        return path.read_text().splitlines() if path.exists() else []


def table(epoch: int, loss: float) -> str:
    """A ``metrics.csv`` with the trainer's columns, sparse rows and line ends."""
    return "\r\n".join(
        (
            "lr-Adagrad,step,train_loss_step,epoch,val_loss,val_loss_best,test_loss",
            "0.2,49,,,,,",
            f",49,0.9,{epoch},,,",
            f",127,,{epoch},{loss!r},{loss!r},",
            f",128,,{epoch + 1},,,0.5",
            "",
        )
    )


def gated_dag(
    uuids: Sequence[str],
    rules: str = "e",
    site: str = "any",
    retries: int = 3,
    epochs: int = 4,
    gated: bool = True,
) -> str:
    """A DAG of runs ``run0``, ``run1``…, whose epochs have a gate with these rules."""
    lines = []
    for number, uuid in enumerate(uuids):
        for epoch in range(epochs):
            node = f"run{number}-train_epoch{epoch}"
            lines += [f"JOB {node} e.sub"]
            lines += [f'VARS {node} run_uuid="{uuid}" ResourceName="{site}"']
            call = f"gate.py {rules}.gate.json {uuid} {epoch} train $JOB"
            lines += [f"SCRIPT DEFER 75 60 PRE {node} {call}"] * gated
            lines += [f"PARENT run{number}-train_epoch{epoch - 1} CHILD {node}"] * (epoch > 0)
    return "\n".join([*lines, "PRE_SKIP ALL_NODES 42", f"RETRY ALL_NODES {retries}", ""])
