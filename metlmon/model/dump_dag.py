"""What a DAG heard from its DAGMan's growing files, as plain data: for whoever keeps it
until the dagdir is opened again."""

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
"""Nodes whose words are one record: some milliseconds of work."""

_CLAIMS: Final = tuple(NodeReportKind)
_NUMBERS: Final = {claim: number for number, claim in enumerate(_CLAIMS)}


def judged_by_jobs(workflow: Workflow) -> frozenset[str]:
    """Nodes whose job's result is their own: which they are decides what a DAG hears."""
    return frozenset(name for name, node in workflow.nodes.items() if node.post is None)


def dump_dag(dag: Dag) -> Iterator[Any]:
    """Records of plain data, which hold what ``dag`` has heard up to this call: what it hears
    while they are taken from the iterator is not in them."""
    facts = {
        "processes": [astuple(process) for process in dag.processes],
        "submit_epochs": dict(dag.submit_epochs),
        "jobstate_started": list(dag.jobstate_started),
        "jobstate_finished": list(dag.jobstate_finished),
        "heard_until": dag.heard_until,
        "jobstate_until": dag.jobstate_until,
        "strangers": dict(dag.strangers),
        "out_submitted": dict(dag._out_submitted),
        "jobstate_submitted": dict(dag._jobstate_submitted),
        "last_clusters": dict(dag._last_clusters),
        "out_times": dag.out_times.plain(),
    }
    words = [(name, tuple(said)) for name, said in dag.words.items()]
    return _records(facts, words)


def _records(
    facts: dict[str, Any], words: list[tuple[str, tuple[NodeReport, ...]]]
) -> Iterator[Any]:
    yield facts
    for start in range(0, len(words), NODES_AT_ONCE):
        some = words[start : start + NODES_AT_ONCE]
        said = [word for _, each in some for word in each]
        yield (
            [(name, len(each)) for name, each in some],
            bytes(_NUMBERS[word.claim] for word in said),
            [word.time for word in said],
            [word.epoch for word in said],
            [word.value for word in said],
            [word.text for word in said],
        )


def load_dag(dag: Dag, records: Iterable[Any]) -> None:
    """Give a DAG that has heard nothing what :func:`dump_dag` told. Records of another shape
    raise whatever comes first; then ``dag`` is not to be used."""
    rest = iter(records)
    facts = next(rest)
    dag.processes = [Process(*process) for process in facts["processes"]]
    dag.submit_epochs = facts["submit_epochs"]
    dag.jobstate_started = facts["jobstate_started"]
    dag.jobstate_finished = facts["jobstate_finished"]
    dag.heard_until = facts["heard_until"]
    dag.jobstate_until = facts["jobstate_until"]
    dag.strangers = facts["strangers"]
    dag._out_submitted = facts["out_submitted"]
    dag._jobstate_submitted = facts["jobstate_submitted"]
    dag._last_clusters = facts["last_clusters"]
    dag.out_times = OutTimes(*facts["out_times"])
    for names, claims, *told in rest:
        said = zip((_CLAIMS[claim] for claim in claims), *told, strict=True)
        words = [NodeReport(*word) for word in said]
        start = 0
        for name, count in names:
            dag.words[name] = words[start : start + count]
            start += count
