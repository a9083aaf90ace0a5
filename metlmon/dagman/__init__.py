"""Reads DAG files and the files that DAGMan writes into typed records."""

from metlmon.dagman.dagman_out import OutState, read_dagman_out
from metlmon.dagman.loader import load_workflow
from metlmon.dagman.records import (
    DagmanMessage,
    DagmanMessageKind,
    DagMetrics,
    JobstateLine,
    Node,
    NodeKind,
    Problem,
    Rescue,
    Script,
    StatusFile,
    StatusNode,
    Workflow,
)
from metlmon.dagman.reports import (
    CondorSub,
    read_condor_sub,
    read_dagman_arguments,
    read_jobstate,
    read_metrics,
    read_node_status,
    read_rescue,
    rescue_number,
)

__all__ = [
    "CondorSub",
    "DagMetrics",
    "DagmanMessage",
    "DagmanMessageKind",
    "JobstateLine",
    "Node",
    "NodeKind",
    "OutState",
    "Problem",
    "Rescue",
    "Script",
    "StatusFile",
    "StatusNode",
    "Workflow",
    "load_workflow",
    "read_condor_sub",
    "read_dagman_arguments",
    "read_dagman_out",
    "read_jobstate",
    "read_metrics",
    "read_node_status",
    "read_rescue",
    "rescue_number",
]
