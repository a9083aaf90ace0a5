"""Configuration of the gate, with which runs can be stopped, paused and moved.

The gate is a script beside the DAG that DAGMan runs as PRE script of each node of a run; see
``metlmon/trainer/gate.py``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from metlmon.authoring.graph import TRAINING_ROLES, GraphNode, NodeRole, Precedence, VariableValue
from metlmon.authoring.request import MetricGoal, PlanError, Request, RunPlan, StopRules

SCRIPT: Final = "gate.py"
FOLDERS: Final = ("gate", "placement")
"""Directories beside the DAG with requests to the gate and its replies."""

NODE_VARIABLE: Final = "node"
DAG_VARIABLE: Final = "metlmon_dag"
GATE_VARIABLES: Final = frozenset({NODE_VARIABLE, DAG_VARIABLE})
"""Variables by which a submit file finds the site that the gate chose for its node. Nodes of
several DAGs in one directory may share names and submit files."""

SKIP_CODE: Final = 42
DEFER_CODE: Final = 75
"""Exit codes of the gate: skip the node, and retry later."""

INTERPRETER: Final = "python3"
"""Interpreter of the gate, looked up on PATH; DAGMan uses the submitter's PATH."""

_TRAINER_DIRECTORY: Final = Path(__file__).resolve().parents[1] / "trainer"

SUBMIT_HEAD: Final = """\
# Where the gate has sent this node; without such a file it goes where the DAG file says. grep,
# since "include ifexist" of a file that is not there fails in DAGMan of 23.9, and one line only.
include command : grep -shm1 ^ResourceName placement/$(metlmon_dag)/$(node).inc
# What requirements go by: it can be edited while the job is idle.
My.MetlSite = "$(ResourceName)"
# Sites and hosts that metlmon act excludes, separated by |; without such a file, none.
include command : grep -shm1 ^metlmon_excluded placement/$(metlmon_dag).excluded
My.MetlExcluded = "$(metlmon_excluded)"
"""


def has_gate(request: Request, role: NodeRole) -> bool:
    """Whether nodes of this role have a gate."""
    return request.gate is not None and role in TRAINING_ROLES


def rules_file(name: str) -> str:
    """Name of the gate's rules file of this DAG."""
    return f"{name}.gate.json"


def with_gate(request: Request, node: GraphNode, uuid: str) -> GraphNode:
    """The node with its gate as PRE script, if it has one."""
    if request.gate is None or not has_gate(request, node.role):
        return node
    arguments = f"{rules_file(request.name)} {uuid} {node.epoch} {node.role} $JOB"
    return replace(
        node,
        pre=f"{SCRIPT} {arguments}",
        defer=(DEFER_CODE, request.gate.poll),
        skip_code=SKIP_CODE,
    )


def gate_variables(name: str, node: str) -> tuple[VariableValue, VariableValue]:
    """Variables that identify a gated node of the DAG ``name``."""
    return (
        VariableValue(NODE_VARIABLE, node, Precedence.NODE, "metlmon: the node's own name"),
        VariableValue(DAG_VARIABLE, name, Precedence.ALL, "metlmon: the name of the DAG's gate"),
    )


def goal_of(rules: StopRules) -> MetricGoal:
    """Whether the metric is minimised or maximised, as set or by its name."""
    from metlmon.jobfiles.records import more_is_better  # Imported late.

    return rules.goal or (MetricGoal.MAX if more_is_better(rules.metric) else MetricGoal.MIN)


def rules_text(request: Request, runs: Sequence[RunPlan], metrics: Sequence[str]) -> str:
    """The gate's rules file: rules, and runs with directories of ``metrics``."""
    rules = request.gate
    assert rules is not None
    content = {
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
            run.uuid: {"name": run.name, "metrics": directory}
            for run, directory in zip(runs, metrics, strict=True)
        },
    }
    return json.dumps(content, indent=1) + "\n"


def script_content() -> bytes:
    """Content of the gate script. Raises PlanError if it is not installed."""
    path = _TRAINER_DIRECTORY / SCRIPT
    try:
        return path.read_bytes()
    except OSError as error:
        text = f"{path}: the gate cannot be read: {error.strerror}; install metlmon again"
        raise PlanError(text) from None
