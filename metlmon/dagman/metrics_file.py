"""Reads the metrics file: DAGMan's counts of one run, written when it ends.

Source followed: ``DagmanMetrics::WriteMetricsFile`` in ``dagman_metrics.cpp``; HTCondor
manual, "Workflow Metrics". Version 1 writes "jobs" for nodes and has no counts of
jobs; version 2 (``metrics_version``) has both.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from metlmon.dagman.records import DagMetrics, Problem

_NODES_OF_VERSION_1: Final = {
    "total_nodes": "total_jobs",
    "total_nodes_run": "total_jobs_run",
    "nodes": "jobs",
    "nodes_failed": "jobs_failed",
    "nodes_succeeded": "jobs_succeeded",
    "dag_nodes": "dag_jobs",
    "dag_nodes_failed": "dag_jobs_failed",
    "dag_nodes_succeeded": "dag_jobs_succeeded",
}
"""Version 1's names of version 2's counts of nodes."""


def read_metrics(path: Path, data: bytes) -> tuple[DagMetrics | None, list[Problem]]:
    """Read a ``.metrics`` file of either version.

    Returns the metrics with version 2's names, None when it is another file or incomplete,
    and the problems. Never raises.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        text = "no JSON object: not a metrics file, or one being written"
        return None, [Problem("metrics", str(path), None, text, error=False)]
    version = _integer(document.get("metrics_version")) or 1
    names = _NODES_OF_VERSION_1 if version == 1 else {}
    status = document.get("DagStatus", document.get("dag_status"))

    def node_count(name: str) -> int | None:
        return _integer(document.get(names.get(name, name)))

    def job_count(name: str) -> int | None:
        return None if version == 1 else _integer(document.get(name))

    metrics = DagMetrics(
        path=path,
        version=version,
        start=_seconds(document.get("start_time")),
        end=_seconds(document.get("end_time")),
        exitcode=_integer(document.get("exitcode")),
        dag_status=_integer(status),
        rescue_number=_integer(document.get("rescue_dag_number")),
        total_nodes=node_count("total_nodes"),
        total_nodes_run=node_count("total_nodes_run"),
        nodes=node_count("nodes"),
        nodes_failed=node_count("nodes_failed"),
        nodes_succeeded=node_count("nodes_succeeded"),
        dag_nodes=node_count("dag_nodes"),
        dag_nodes_failed=node_count("dag_nodes_failed"),
        dag_nodes_succeeded=node_count("dag_nodes_succeeded"),
        jobs_submitted=job_count("jobs_submitted"),
        jobs_succeeded=job_count("jobs_succeeded"),
        jobs_failed=job_count("jobs_failed"),
        dagman_id=_dagman_id(document.get("dagman_id")),
    )
    return metrics, []


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_LATEST: Final = 253402300799.0
"""The end of the year 9999 in seconds since 1970, the limit of ``datetime``."""


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _LATEST else None


def _dagman_id(value: object) -> str | None:
    """DAGMan's cluster; before 8.4 it followed the schedd's address and a semicolon."""
    if not isinstance(value, str):
        return None
    return value.rpartition(";")[2] or None
