"""DAGMan's files → records: the workflow, and what DAGMan writes beside it."""

from metlmon.dagman.condorsub import CondorSub, read_condor_sub, read_dagman_arguments
from metlmon.dagman.dagfile import official_verdict
from metlmon.dagman.dagmanout import OutState, read_dagman_out
from metlmon.dagman.graph import Shape, graph_shape
from metlmon.dagman.jobstate import read_jobstate
from metlmon.dagman.metrics import read_metrics
from metlmon.dagman.nodestatus import read_node_status
from metlmon.dagman.records import (
    Jobstate,
    Metrics,
    Node,
    NodeKind,
    Problem,
    Rescue,
    Said,
    Script,
    StatusFile,
    StatusNode,
    Word,
    Workflow,
)
from metlmon.dagman.rescue import read_rescue, rescue_number
from metlmon.dagman.workflow import load_workflow

__all__ = [
    "CondorSub",
    "Jobstate",
    "Metrics",
    "Node",
    "NodeKind",
    "OutState",
    "Problem",
    "Rescue",
    "Said",
    "Script",
    "Shape",
    "StatusFile",
    "StatusNode",
    "Word",
    "Workflow",
    "graph_shape",
    "load_workflow",
    "official_verdict",
    "read_condor_sub",
    "read_dagman_arguments",
    "read_dagman_out",
    "read_jobstate",
    "read_metrics",
    "read_node_status",
    "read_rescue",
    "rescue_number",
]
