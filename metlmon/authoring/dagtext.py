"""The text of a DAG file: each run a chain of its epochs, one job each ("shish-kebab").

Source followed: HTCondor manual, "DAG input file reference"; what 23.9 takes and the strict
parser of 25.5 and later takes, both.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from metlmon.authoring.records import Request, RunPlan

STATUS_SECONDS: Final = 30
"""How often DAGMan may write its node status file anew: as often as the queue is asked."""


def node_name(run: str, epoch: int) -> str:
    """The node that trains an epoch, counted from 0."""
    return f"{run}-train_epoch{epoch}"


def dag_text(request: Request, template: str, submit_file: str, runs: tuple[RunPlan, ...]) -> str:
    """The DAG file."""
    dag_file = f"{request.name}.dag"
    lines = [
        f"# {dag_file}: runs {len(runs)}, epochs of each {request.epochs}, template {template}.",
        f"# Submit it with: condor_submit_dag {dag_file}",
        "",
    ]
    for run in runs:
        lines += [*_chain(run, submit_file), ""]
    if request.retries:
        lines.append(f"RETRY ALL_NODES {request.retries}")
    lines.append(f"NODE_STATUS_FILE {dag_file}.status {STATUS_SECONDS}")
    lines.append(f"JOBSTATE_LOG {jobstate_log(request.name)}")
    return "\n".join(lines) + "\n"


def jobstate_log(name: str) -> str:
    """The jobstate log of the DAG with this name."""
    return f"{name}.jobstate.log"


def checkpoint_directory(uuid: str) -> str:
    """Where the epoch before left its checkpoints, as seen from the DAG: METL's layout."""
    return f"output/training_logs/{uuid}"


def _chain(run: RunPlan, submit_file: str) -> Iterator[str]:
    nodes = [node_name(run.name, epoch) for epoch in range(len(run.targets))]
    for node in nodes:
        yield f"JOB {node} {submit_file}"
    for epoch, (node, target) in enumerate(zip(nodes, run.targets, strict=True)):
        yield f"VARS {node} {_macros(run, epoch, target)}"
    for parent, child in pairwise(nodes):
        yield f"PARENT {parent} CHILD {child}"


def _macros(run: RunPlan, epoch: int, target: str) -> str:
    macros = {
        "run": run.name,
        "run_uuid": run.uuid,
        "epoch": str(epoch + 1),
        "epochs": str(len(run.targets)),
        "random_seed": str(run.seed),
        "ResourceName": target,
    }
    if epoch:
        # Not given for the first epoch: an empty value is refused by 25.5 and later, and any
        # other would count as defined in a template's "if defined continue_from_checkpoint".
        # It cannot come from another node: nodes share a submit file, not a description that
        # stands in the DAG file.
        macros["continue_from_checkpoint"] = checkpoint_directory(run.uuid)
    return " ".join(f'{name}="{value}"' for name, value in macros.items())
