"""Warnings about conflicting files of a DAG: missing, older, or of another DAG."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import PurePath
from typing import Final

from metlmon.model.dag import Dag
from metlmon.model.model_state import Notice
from metlmon.model.unrecorded_nodes import (
    current_metrics,
    matches_node_count,
    missing_rescue,
    reported_totals,
)
from metlmon.snapshot.aggregates import SPECIAL_KINDS, Aggregates
from metlmon.text.formatting import moment, plain

MAX_NAME: Final = 60
"""Characters of a node name in a warning."""


def file_conflicts(aggregates: Aggregates) -> Iterator[Notice]:
    """Warnings about the files of each DAG whose node states are resolved."""
    for dag in aggregates.ensemble.dags.values():
        yield from _missing_files(aggregates, dag)
        yield from _changed_dag_file(aggregates, dag)
        yield from _different_counts(aggregates, dag)
        yield from _outdated_files(aggregates, dag)
    if names := aggregates.unknown_nodes.get("", ()):
        text = (
            f"epochs that no DAG file here has are in the logs: {_first_name(names)}; they are in "
            "no run: the DAG file was changed since, or is not here"
        )
        yield Notice("unknown-nodes", None, None, text)


def _missing_files(aggregates: Aggregates, dag: Dag) -> Iterator[Notice]:
    """Missing files that would show the state of inferred or unknown nodes."""
    without = aggregates.ensemble.unrecorded(dag.key)
    if without is None:
        return
    inferred, unknown = without.counts.inferred, without.counts.unknown
    if not inferred and not unknown:
        return
    name = missing_rescue(dag)
    file = name or f"{PurePath(dag.file).name}.rescueNNN"
    states = [
        *([f"{_nodes(inferred)} taken for done"] if inferred else ()),
        *([f"of {_nodes(unknown)} nothing is known"] if unknown else ()),
    ]
    counted = " and ".join(states)
    if name is not None:
        text = f"the rescue file with which DAGMan began is not here: {counted}"
    elif without.has_lost_records:
        text = f"a rescue file was in force that is not here, or an earlier log: {counted}"
    elif unknown:
        text = (
            f"no log of what its DAGMan submitted is here: {counted}; put its .nodes.log beside it"
        )
        yield Notice("missing-record", dag.file, None, text)
        return
    else:
        return
    yield Notice("missing-rescue", file, None, f"{text}; put it beside the DAG file")


def _nodes(number: int) -> str:
    return f"{number} node" if number == 1 else f"{number} nodes"


def _changed_dag_file(aggregates: Aggregates, dag: Dag) -> Iterator[Notice]:
    """The DAG file is not the one that ran: its node names or numbers differ."""
    start = dag.last_fresh_start()
    in_dagman_out = [
        name
        for name, time in dag.unknown_nodes.items()
        if name not in dag.workflow.nodes and (start is None or time is None or time >= start)
    ]
    sources: list[tuple[str, Collection[str]]] = [
        (f"{dag.file}.nodes.log", aggregates.unknown_nodes.get(dag.key, ())),
        (f"{dag.file}.dagman.out", in_dagman_out),
        *((file.name, names) for file, names in dag.unknown_names()),
    ]
    for file, names in sources:
        if names:
            yield _other_dag_notice(
                dag, f"{file} has nodes that are not in it: {_first_name(names)}"
            )
            return
    for file, total in reported_totals(dag):
        if not matches_node_count(dag, total):
            yield _other_dag_notice(dag, f"{file} counts {_nodes(total)}, it has {dag.node_count}")
            return


def _first_name(names: Collection[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{plain(min(names), MAX_NAME)}{more}"


def _outdated_files(aggregates: Aggregates, dag: Dag) -> Iterator[Notice]:
    """A DAGMan was active after the end that its files report."""
    ending = aggregates.ensemble.end_state(dag)
    if ending is not None and ending[1] is None and _has_queued(aggregates, dag):
        text = (
            "its DAGMan ended by its files, at a moment that cannot be told without --tz, and jobs "
            "of it are in the queue by the logs: one of them is older than the others"
        )
        yield Notice("log-behind", dag.file, None, text)
    if ending is not None and aggregates.ensemble.was_active_after(dag.key, ending[1]):
        text = (
            f"its DAGMan ended at {moment(ending[1])} by its files, and something was done since: "
            "files of a later DAGMan are not here, or older than the others"
        )
        yield Notice("log-behind", dag.file, None, text)


def _has_queued(aggregates: Aggregates, dag: Dag) -> bool:
    attributions = map(aggregates.ensemble.attributions.get, aggregates.totals.queued)
    return any(
        attribution is not None and attribution.dag == dag.key for attribution in attributions
    )


def _other_dag_notice(dag: Dag, text: str) -> Notice:
    advice = "it was changed since, or is another DAG's; states of nodes may be wrong"
    return Notice("dag-file-changed", dag.file, None, f"not the DAG that ran: {text}; {advice}")


def _different_counts(aggregates: Aggregates, dag: Dag) -> Iterator[Notice]:
    """DAGMan's final node counts differ from those of the logs."""
    metrics = current_metrics(dag)
    if metrics is None or metrics.succeeded is None or metrics.total_nodes is None:
        return
    if any(node.kind in SPECIAL_KINDS for node in dag.workflow.nodes.values()):
        # DAGMan counts some of these twice.
        return
    counts = aggregates.counts[dag.key]
    if (
        counts.unknown
        or counts.done == metrics.succeeded
        or not matches_node_count(dag, metrics.total_nodes)
    ):
        return
    text = (
        f"{_nodes(metrics.succeeded)} done by it, {counts.done} by the other files: one of them is "
        "of another life of DAGMan, or was cut"
    )
    yield Notice("counts-differ", metrics.path.name, None, text)
