"""Resolves the top-level DAG of each external sub-DAG.

A sub-DAG file that several DAGs name belongs to the one whose DAGMan submitted it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from metlmon.model.dag import Dag

Submitter: TypeAlias = Callable[[int], str | None]
"""The key of the DAG whose DAGMan submitted a cluster, None where that is not known."""


def named_by(dags: Mapping[str, Dag]) -> dict[str, list[str]]:
    """By the key of each sub-DAG, the keys of the DAGs that name it, in their order."""
    by_path = {dag.workflow.path: key for key, dag in dags.items()}
    named: dict[str, list[str]] = {}
    for key, dag in dags.items():
        for subdag in dag.workflow.subdags:
            inner = by_path.get(subdag.path) if subdag is not None else None
            if inner is not None and inner != key and key not in named.setdefault(inner, []):
                named[inner].append(key)
    return named


def settle_tops(
    dags: Mapping[str, Dag], named: Mapping[str, list[str]], submitter: Submitter
) -> bool:
    """Set the top-level DAG of each sub-DAG; return whether any changed."""
    parents = {
        key: _parent(dags[key], [dags[dag_key] for dag_key in dag_keys], submitter)
        for key, dag_keys in named.items()
    }
    changed = False
    for key in named:
        top, visited = parents[key], {key}
        while top in parents and top not in visited:
            visited.add(top)
            top = parents[top]
        if not dags[key].is_top and dags[top].is_top and dags[key].top != top:
            dags[key].top, changed = top, True
    return changed


def _parent(subdag: Dag, candidates: list[Dag], submitter: Submitter) -> str:
    """The DAG that submitted it last, else the first that ran, else the first."""
    for run in reversed(subdag.dagman_runs()):
        dag_key = submitter(run.cluster) if run.cluster is not None else None
        if any(dag_key == dag.key for dag in candidates):
            return dag_key or ""
    return next((dag.key for dag in candidates if dag.has_run()), candidates[0].key)
