"""The metrics file: DAGMan's counts of one life, written once, when it ends.

Source followed: ``DagmanMetrics::WriteMetricsFile`` in ``dagman_metrics.cpp``; HTCondor
manual, "Workflow Metrics". Version 1 says jobs where it means nodes, and has no counts of
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
"""The names that version 1 gave to version 2's counts of nodes."""


def read_metrics(path: Path, data: bytes) -> tuple[DagMetrics | None, list[Problem]]:
    """Read a ``.metrics`` file of either version.

    Comes out: the metrics with version 2's names, None when the file is no such thing or
    is just being written, and problems. Never raises.
    """
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        text = "no JSON object: not a metrics file, or one being written"
        return None, [Problem("metrics", str(path), None, text, error=False)]
    version = _whole(said.get("metrics_version")) or 1
    names = _NODES_OF_VERSION_1 if version == 1 else {}
    status = said.get("DagStatus", said.get("dag_status"))

    def count(name: str) -> int | None:
        return _whole(said.get(names.get(name, name)))

    def count_of_jobs(name: str) -> int | None:
        return None if version == 1 else _whole(said.get(name))

    metrics = DagMetrics(
        path=path,
        version=version,
        start=_seconds(said.get("start_time")),
        end=_seconds(said.get("end_time")),
        exitcode=_whole(said.get("exitcode")),
        dag_status=_whole(status),
        rescue_number=_whole(said.get("rescue_dag_number")),
        total_nodes=count("total_nodes"),
        total_nodes_run=count("total_nodes_run"),
        nodes=count("nodes"),
        nodes_failed=count("nodes_failed"),
        nodes_succeeded=count("nodes_succeeded"),
        dag_nodes=count("dag_nodes"),
        dag_nodes_failed=count("dag_nodes_failed"),
        dag_nodes_succeeded=count("dag_nodes_succeeded"),
        jobs_submitted=count_of_jobs("jobs_submitted"),
        jobs_succeeded=count_of_jobs("jobs_succeeded"),
        jobs_failed=count_of_jobs("jobs_failed"),
        dagman_id=_dagman_id(said.get("dagman_id")),
    )
    return metrics, []


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_LATEST: Final = 253402300799.0
"""The end of the year 9999 in seconds since 1970: no later time can be shown."""


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _LATEST else None


def _dagman_id(value: object) -> str | None:
    """DAGMan's cluster; before 8.4 it came behind the schedd's address and a semicolon."""
    if not isinstance(value, str):
        return None
    return value.rpartition(";")[2] or None
