"""A small correct ensemble, and how tests spoil it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from metlmon.authoring.lint.rules import Finding
from metlmon.authoring.lint.run import check
from metlmon.config.settings import Settings

DAG = """\
# two runs of two epochs, one evaluation
JOB run0-train_epoch0 train.sub
JOB run0-train_epoch1 train.sub
JOB run1-train_epoch0 train.sub
JOB run1-train_epoch1 train.sub
JOB run0-eval_epoch1 eval.sub
VARS run0-train_epoch0 run_uuid="u0" epoch="1" epochs="2"
VARS run0-train_epoch1 run_uuid="u0" epoch="2" epochs="2" continue_from_checkpoint="output/u0"
VARS run1-train_epoch0 run_uuid="u1" epoch="1" epochs="2"
VARS run1-train_epoch1 run_uuid="u1" epoch="2" epochs="2" continue_from_checkpoint="output/u1"
VARS run0-eval_epoch1 run_uuid="u0" epoch="2"
PARENT run0-train_epoch0 CHILD run0-train_epoch1
PARENT run1-train_epoch0 CHILD run1-train_epoch1
PARENT run0-train_epoch1 CHILD run0-eval_epoch1
SCRIPT POST run0-eval_epoch1 /bin/true
RETRY ALL_NODES 3
CATEGORY run0-eval_epoch1 evaluations
MAXJOBS evaluations 1
"""

TRAIN = """\
executable = train.sh
arguments = --uuid $(run_uuid) --max-epochs $(epochs) --stop-after-epoch $(epoch)
transfer_input_files = data.txt, osdf:///example/data.tar.gz, $(continue_from_checkpoint)
request_gpus = 1
gpus_minimum_memory = 16000
requirements = TARGET.GLIDEIN_ResourceName =?= "Delta-GPU"
ulog_execute_attrs = GLIDEIN_ResourceName
environment = "WANDB_MODE=offline"
log = metl.log
output = $(run_uuid)_$(epoch)_$(Cluster).out
queue
"""

EVALUATE = """\
executable = train.sh
arguments = --evaluate $(run_uuid)
log = metl.log
queue
"""

GOOD: Mapping[str, str] = {
    "ens.dag": DAG,
    "train.sub": TRAIN,
    "eval.sub": EVALUATE,
    "train.sh": "#!/bin/sh\nexit 0\n",
    "data.txt": "variant score\n",
}


def write(directory: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write these files, into a directory that need not exist; scripts are executable."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(0o700 if path.suffix == ".sh" else 0o600)
    return directory


def damaged(file: str, old: str, new: str, **more: str | bytes) -> dict[str, str | bytes]:
    """The good ensemble with one change, and with these files (``a_dag`` is ``a.dag``)."""
    assert GOOD[file].count(old) == 1, f"{old!r} is not once in {file}"
    extra = {name.replace("_", "."): text for name, text in more.items()}
    return {**GOOD, file: GOOD[file].replace(old, new), **extra}


def findings(directory: Path, only: str = "") -> tuple[Finding, ...]:
    """The findings of the check with the built-in settings."""
    return check(directory / only, Settings()).findings


def report_of(directory: Path) -> list[tuple[str, str, int | None]]:
    """Kind, file and line of all findings."""
    return [(each.kind, each.file, each.line) for each in findings(directory)]
