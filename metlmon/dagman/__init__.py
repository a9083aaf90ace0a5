"""DAGMan's files → records: the workflow, and what DAGMan writes beside it."""

from metlmon.dagman.dagfile import official_verdict
from metlmon.dagman.graph import Shape, graph_shape
from metlmon.dagman.workflow import load_workflow

__all__ = ["Shape", "graph_shape", "load_workflow", "official_verdict"]
