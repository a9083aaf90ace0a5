"""Small ensembles of the benches, and the events that they write into a log while it is watched."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

SUBMIT = "000 ({job}) {at} Job submitted from host: <127.0.0.1:9618>\n    DAG Node: {node}\n...\n"
EXECUTE = (
    "001 ({job}) {at} Job executing on host: <127.0.0.1:9618>\n\tSlotName: slot1@node.example.org\n"
    '\tGLIDEIN_ResourceName = "Delta-GPU"\n\tGPUs = 1\n...\n'
)
HOLD = "012 ({job}) {at} Job was held.\n\tmeasuring\n\tCode 1 Subcode 0\n...\n"
RELEASE = "013 ({job}) {at} Job was released.\n\tmeasuring\n...\n"


def node_name(run: int, epoch: int) -> str:
    return f"run{run}-train_epoch{epoch}"


def write_dag(directory: Path, runs: int, epochs: int) -> Path:
    """A DAG of chains without an event; returns the path of the log that its jobs share."""
    lines = []
    for run in range(runs):
        nodes = [node_name(run, epoch) for epoch in range(epochs)]
        lines += [f"JOB {node} job.sub\n" for node in nodes]
        lines += [f"PARENT {parent} CHILD {child}\n" for parent, child in pairwise(nodes)]
    (directory / "ens.dag").write_text("".join(lines))
    (directory / "job.sub").write_text("executable = train.sh\nlog = metl.log\nqueue\n")
    return directory / "metl.log"
