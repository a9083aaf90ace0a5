"""Reads the metrics file: DAGMan's counts of one run, written when it ends.

Source followed: ``DagmanMetrics::WriteMetricsFile`` in ``dagman_metrics.cpp``; HTCondor
manual, "Workflow Metrics". Version 1 writes "jobs" for nodes; version 2 (``metrics_version``)
counts jobs beside them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from metlmon.dagman.records import DagMetrics, Problem

_LATEST: Final = 253402300799.0
"""The end of the year 9999 in seconds since 1970, the limit of ``datetime``."""


def read_metrics(path: Path, data: bytes) -> tuple[DagMetrics | None, list[Problem]]:
    """Read a ``.metrics`` file of either version.

    Returns the metrics, None when it is another file or incomplete, and the problems. Never
    raises.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        text = "no JSON object: not a metrics file, or one being written"
        return None, [Problem("metrics", str(path), None, text, error=False)]
    values: dict[str, Any] = document
    noun = "jobs" if (_integer(values.get("metrics_version")) or 1) == 1 else "nodes"

    def nodes(result: str) -> int | None:
        own = _integer(values.get(f"{noun}_{result}"))
        return None if own is None else own + (_integer(values.get(f"dag_{noun}_{result}")) or 0)

    dagman_id = values.get("dagman_id")
    metrics = DagMetrics(
        path=path,
        start=_seconds(values.get("start_time")),
        end=_seconds(values.get("end_time")),
        exitcode=_integer(values.get("exitcode")),
        dag_status=_integer(values.get("DagStatus", values.get("dag_status"))),
        rescue_number=_integer(values.get("rescue_dag_number")),
        total_nodes=_integer(values.get(f"total_{noun}")),
        succeeded=nodes("succeeded"),
        failed=nodes("failed"),
        # The cluster; before 8.4 it followed the schedd's address and a semicolon.
        dagman_id=dagman_id.rpartition(";")[2] or None if isinstance(dagman_id, str) else None,
    )
    return metrics, []


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _LATEST else None
