"""Serialises what a DAG read from its DAGMan's growing files, for the cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple
from typing import Any, Final

from metlmon.dagman import Workflow
from metlmon.model.clock_evidence import OutTimes
from metlmon.model.dag import Dag
from metlmon.model.dagman_runs import Process
from metlmon.model.node_reports import NodeReport, NodeReportKind

NODES_AT_ONCE: Final = 2000
"""Nodes per record: some milliseconds of work."""

_KINDS: Final = tuple(NodeReportKind)
_KIND_NUMBERS: Final = {claim: number for number, claim in enumerate(_KINDS)}


def judged_by_jobs(workflow: Workflow) -> frozenset[str]:
    """Nodes without a POST script, whose job's result is that of the node.

    The reports that a DAG stores depend on them.
    """
    return frozenset(name for name, node in workflow.nodes.items() if node.post is None)


def dump_dag(dag: Dag) -> Iterator[Any]:
    """Yield records of plain data with what ``dag`` has read up to this call.

    Later changes, made while the iterator is consumed, are not included.
    """
    facts = {
        "processes": [astuple(process) for process in dag.processes],
        "submit_epochs": dict(dag.submit_epochs),
        "jobstate_started": list(dag.jobstate_started),
        "jobstate_finished": list(dag.jobstate_finished),
        "heard_until": dag.out_last_time,
        "jobstate_until": dag.jobstate_last_epoch,
        "strangers": dict(dag.unknown_nodes),
        "out_submitted": dict(dag._out_submitted),
        "jobstate_submitted": dict(dag._jobstate_submitted),
        "last_clusters": dict(dag._last_clusters),
        "out_times": dag.out_times.dump(),
    }
    reports = [(name, tuple(node_reports)) for name, node_reports in dag.node_reports.items()]
    return _records(facts, reports)


def _records(
    facts: dict[str, Any], reports: list[tuple[str, tuple[NodeReport, ...]]]
) -> Iterator[Any]:
    yield facts
    for start in range(0, len(reports), NODES_AT_ONCE):
        chunk = reports[start : start + NODES_AT_ONCE]
        flat = [report for _, node_reports in chunk for report in node_reports]
        yield (
            [(name, len(node_reports)) for name, node_reports in chunk],
            bytes(_KIND_NUMBERS[report.kind] for report in flat),
            [report.time for report in flat],
            [report.epoch for report in flat],
            [report.value for report in flat],
            [report.text for report in flat],
        )


def load_dag(dag: Dag, records: Iterable[Any]) -> None:
    """Restore the records of :func:`dump_dag` in a new DAG.

    Invalid records raise any exception; ``dag`` must not be used then.
    """
    rest = iter(records)
    facts = next(rest)
    dag.processes = [Process(*process) for process in facts["processes"]]
    dag.submit_epochs = facts["submit_epochs"]
    dag.jobstate_started = facts["jobstate_started"]
    dag.jobstate_finished = facts["jobstate_finished"]
    dag.out_last_time = facts["heard_until"]
    dag.jobstate_last_epoch = facts["jobstate_until"]
    dag.unknown_nodes = facts["strangers"]
    dag._out_submitted = facts["out_submitted"]
    dag._jobstate_submitted = facts["jobstate_submitted"]
    dag._last_clusters = facts["last_clusters"]
    dag.out_times = OutTimes(*facts["out_times"])
    for names, kinds, *columns in rest:
        rows = zip((_KINDS[kind] for kind in kinds), *columns, strict=True)
        reports = [NodeReport(*row) for row in rows]
        start = 0
        for name, count in names:
            dag.node_reports[name] = reports[start : start + count]
            start += count
