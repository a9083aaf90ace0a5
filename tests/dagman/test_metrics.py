"""The metrics file, in the words of ``DagmanMetrics::WriteMetricsFile``."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.dagman.reports import read_metrics

HERE = Path("x.dag.metrics")

# DagmanMetrics::WriteMetricsFile before metrics_version (here as of 8.2, with the names of
# Pegasus and of the schedd in it); since 8.5 the last line is DagStatus.
VERSION_1 = b"""\
{
    "client":"condor_dagman",
    "version":"8.2.3",
    "planner":"",
    "planner_version":"",
    "type":"metrics",
    "wf_uuid":"",
    "root_wf_uuid":"",
    "start_time":1412345678.123,
    "end_time":1412345690.500,
    "duration":12.377,
    "exitcode":1,
    "dagman_id":"10.0.0.1:9618;84",
    "parent_dagman_id":"",
    "rescue_dag_number":2,
    "jobs":6,
    "jobs_failed":1,
    "jobs_succeeded":3,
    "dag_jobs":2,
    "dag_jobs_failed":0,
    "dag_jobs_succeeded":1,
    "total_jobs":8,
    "total_jobs_run":5,
    "total_job_time":0.000,
    "dag_status":2
}
"""


@pytest.mark.parametrize("status", [b'"dag_status"', b'"DagStatus"'])
def test_jobs_of_version_1_are_nodes(status: bytes) -> None:
    metrics, problems = read_metrics(HERE, VERSION_1.replace(b'"dag_status"', status))

    assert problems == []
    assert (metrics.total_nodes, metrics.succeeded, metrics.failed) == (8, 4, 1)
    assert metrics.dag_status == 2
    assert metrics.rescue_number == 2
    assert metrics.dagman_id == "84"


@pytest.mark.parametrize(
    "data", [b"", VERSION_1[:300], b"[1]", b"[" * 100_000, b"\xff", b"1" * 5000, b"null"]
)
def test_other_or_partial_file_is_none(data: bytes) -> None:
    metrics, problems = read_metrics(HERE, data)
    assert metrics is None
    assert [str(p).split(":")[0] for p in problems] == ["x.dag.metrics"]


def test_values_of_the_wrong_type_are_left_out() -> None:
    data = b'{"start_time": NaN, "end_time": 1e999, "exitcode": "0", "jobs": true, "dagman_id": 1}'
    metrics, _ = read_metrics(HERE, data)
    assert (metrics.start, metrics.end, metrics.exitcode) == (None, None, None)
    assert (metrics.succeeded, metrics.dagman_id) == (None, None)
