"""What stands before the nodes of runs that can be stopped, paused and sent elsewhere.

The gate is a script beside the DAG that DAGMan calls before each node of a run; what it does is
told there (``metlmon/trainer/gate.py``).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from metlmon.authoring.graph import GraphNode, NodeRole, Precedence, VariableValue
from metlmon.authoring.request import MetricGoal, PlanError, Request, RunPlan, StopRules

SCRIPT: Final = "gate.py"
FOLDERS: Final = ("gate", "placement")
"""Beside the DAG, where people ask for something and it answers."""

NODE: Final = "node"
DAG: Final = "metlmon_dag"
OF_A_NODE: Final = frozenset({NODE, DAG})
"""The variables by which a submit file finds where the gate has sent its node: nodes of several
DAGs in one directory have the same names, and some of them the same submit file."""

SKIP: Final = 42
LATER: Final = 75
"""Exit codes of the gate: the node is left out, and: ask again."""

#: As the gate is told what a node is.
_WORDS: Final = {NodeRole.TRAIN: "train", NodeRole.EVALUATE: "evaluate"}

INTERPRETER: Final = "python3"
"""What the gate is looked up by on PATH. DAGMan gives its scripts the PATH of whoever submits."""

_HOME: Final = Path(__file__).resolve().parents[1] / "trainer"

HEAD: Final = """\
# Where the gate has sent this node; without such a file it goes where the DAG file says. grep,
# since "include ifexist" of a file that is not there fails in DAGMan of 23.9, and one line only.
include command : grep -shm1 ^ResourceName placement/$(metlmon_dag)/$(node).inc
# What requirements go by: it can be edited while the job is idle.
My.MetlSite = "$(ResourceName)"
"""


def is_gated(request: Request, role: NodeRole) -> bool:
    """Does a gate stand before the nodes of this role?"""
    return request.gate is not None and role in _WORDS


def rules_file(name: str) -> str:
    """The gate's file of the DAG with this name."""
    return f"{name}.gate.json"


def gated(request: Request, node: GraphNode, uuid: str) -> GraphNode:
    """The node with its gate, if it has one."""
    if request.gate is None or not is_gated(request, node.role):
        return node
    said = f"{rules_file(request.name)} {uuid} {node.epoch} {_WORDS[node.role]} $JOB"
    return replace(node, pre=f"{SCRIPT} {said}", defer=(LATER, request.gate.poll), skip=SKIP)


def told_by_gate(name: str, node: str) -> tuple[VariableValue, VariableValue]:
    """What a gated node of the DAG ``name`` is told of itself."""
    return (
        VariableValue(NODE, node, Precedence.NODE, "metlmon: the node's own name"),
        VariableValue(DAG, name, Precedence.ALL, "metlmon: the name of the DAG's gate"),
    )


def goal_of(rules: StopRules) -> MetricGoal:
    """Which values of the metric are good, as said or else by its name."""
    from metlmon.jobfiles.metric_direction import more_is_better  # Only who writes rules asks.

    return rules.goal or (MetricGoal.MAX if more_is_better(rules.metric) else MetricGoal.MIN)


def rules_text(request: Request, runs: Sequence[RunPlan], metrics: Sequence[str]) -> str:
    """The gate's file: rules, and the runs with the directories of their ``metrics``."""
    rules = request.gate
    assert rules is not None
    said = {
        "schema": 1,
        "dag": request.name,
        "rules": {
            "metric": rules.metric,
            "goal": str(goal_of(rules)),
            "patience": rules.patience,
            "min_delta": rules.min_delta,
            "divergence": rules.divergence,
            "median_after": rules.median_after,
        },
        "runs": {
            run.uuid: {"name": run.name, "metrics": place}
            for run, place in zip(runs, metrics, strict=True)
        },
    }
    return json.dumps(said, indent=1) + "\n"


def has_interpreter() -> bool:
    """Whether a gate that is submitted from here can run."""
    return shutil.which(INTERPRETER) is not None


def script() -> bytes:
    """The gate itself. Raises PlanError when it does not lie where it was installed."""
    path = _HOME / SCRIPT
    try:
        return path.read_bytes()
    except OSError as error:
        text = f"{path}: the gate cannot be read: {error.strerror}; install metlmon again"
        raise PlanError(text) from None
