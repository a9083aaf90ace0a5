"""Serialises the derived state (job totals, node states) for the cache.

It is derived from the events, DAGMan's reports and the settings. If these are unchanged it is
loaded, else computed again. What was out of date when dumped is out of date when loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from metlmon.model.job_events import Job, JobKey
from metlmon.model.node import NodeFailure, NodeState
from metlmon.model.node_states import Judged, NodeStateTable
from metlmon.model.states import State

if TYPE_CHECKING:
    from metlmon.model.attribution import Attribution
    from metlmon.model.dag import Dag
    from metlmon.model.ensemble import Ensemble, Place

RECORD_SIZE: Final = 2000
"""Jobs or nodes in one record: some milliseconds of work."""

_STATES: Final = tuple(State)
_NUMBERS: Final = {state: number for number, state in enumerate(_STATES)}


def dump_totals(ensemble: Ensemble, workflows: bytes) -> Iterator[Any] | None:
    """Dump the totals and node states of ``ensemble`` at this call.

    Returns records of plain data, or None while an update is in progress. ``workflows`` identifies
    the DAG files.
    """
    aggregates = ensemble.aggregates
    tables = aggregates.node_tables()
    if tables is None:
        return None
    facts = {
        "basis": _basis(ensemble, ensemble.dags.values(), workflows),
        "stale": list(ensemble.changed_jobs),
        "placements": dict(ensemble.placements),
        "sums": aggregates.sums.dump(),
        "moving": aggregates.problems.dump(),
        "summary": aggregates.dump(),
        "weighed": [(dag, alive, table.kept()) for dag, alive, table in tables],
    }
    share_of, occurrences = aggregates.sums.job_share, aggregates.problems.dump_job
    members = ensemble.attributions
    jobs = [
        (share_of(key), *occurrences(key), _plain_attribution(members[key]))
        for key in ensemble.jobs
    ]
    nodes = [state for _, _, table in tables for state in table.judged()]
    return _records(facts, jobs, nodes)


def _records(facts: Any, jobs: list[Any], nodes: list[Any]) -> Iterator[Any]:
    yield facts
    for start in range(0, len(jobs), RECORD_SIZE):
        yield jobs[start : start + RECORD_SIZE]
    for start in range(0, len(nodes), RECORD_SIZE):
        yield [
            (
                _plain_node(own),
                None if _are_same(own, *others) else tuple(map(_plain_node, others)),
                after,
            )
            for own, *others, after in nodes[start : start + RECORD_SIZE]
        ]


def _are_same(state: NodeState, *others: NodeState) -> bool:
    """Whether a node's state does not depend on its neighbours."""
    return all(other is state for other in others)


def _plain_node(state: NodeState) -> Any:
    job = state.job.key if state.job is not None else None
    flags = (state.inferred, state.superseded)
    failure = state.failure and (state.failure.part, state.failure.text, state.failure.value)
    rest = (state.submitted, failure, state.failed_ancestor, state.can_retry)
    return _NUMBERS[state.state], state.since, job, *flags, *rest


def _plain_attribution(member: Attribution) -> Place:
    return (
        member.dag,
        member.node,
        member.candidates,
        member.provisional,
        member.proven,
        member.foreign,
    )


def _basis(ensemble: Ensemble, dags: Iterable[Dag], workflows: bytes) -> tuple[Any, ...]:
    """What the totals depend on, except for the events and reports in the same cache."""
    return (
        workflows,
        [(dag.key, dag.top, len(dag.workflow.nodes)) for dag in dags],
        len(ensemble.jobs),
        _plain_setting(ensemble.settings),
    )


def _plain_setting(setting: Any) -> Any:
    """A setting as plain data."""
    if is_dataclass(setting) and not isinstance(setting, type):
        return [_plain_setting(getattr(setting, item.name)) for item in fields(setting)]
    if isinstance(setting, tuple):
        return [_plain_setting(item) for item in setting]
    if isinstance(setting, frozenset):
        return sorted(setting)
    if isinstance(setting, re.Pattern):
        return [setting.pattern, setting.flags]
    return setting if isinstance(setting, str | int | float | None) else str(setting)


# --- loading --------------------------------------------------------------------------------


def follows(
    ensemble: Ensemble, dags: Iterable[Dag], workflows: bytes, records: Sequence[Any]
) -> bool:
    """Whether the records of :func:`dump_totals` are valid for an ensemble.

    ``dags``: the DAGs it is about to be given, with the same DAGMan reports as at the dump.
    """
    return bool(records) and records[0]["basis"] == _basis(ensemble, dags, workflows)


def places(ensemble: Ensemble, records: Sequence[Any]) -> list[Place]:
    """The attribution of each job, from the records of :func:`dump_totals`."""
    chunks = -(-len(ensemble.jobs) // RECORD_SIZE)
    return [job[3] for record in records[1 : 1 + chunks] for job in record]


def load_totals(ensemble: Ensemble, records: Iterable[Any]) -> None:
    """Restore the records of :func:`dump_totals` that :func:`follows` has accepted.

    Raises any exception if they have another form; then everything must be computed again
    (:meth:`Ensemble.reckon_anew`).
    """
    rest = iter(records)
    facts = next(rest)
    aggregates = ensemble.aggregates
    # The totals are based on these placements; changes since then are applied later.
    ensemble.placements = facts["placements"]
    aggregates.load(facts["summary"])
    aggregates.sums.load(facts["sums"])
    keys = iter(list(ensemble.jobs))
    for _ in range(0, len(ensemble.jobs), RECORD_SIZE):
        for share, occurrences, run, _ in next(rest):
            key = next(keys)
            if share is not None:
                aggregates.sums.load_share(key, share)
            if run is not None or occurrences:
                aggregates.problems.load_job(key, occurrences, run)
    aggregates.problems.load(facts["moving"], ensemble.jobs)
    nodes = (node for record in rest for node in record)
    jobs = ensemble.jobs
    for dag, alive, dumped in facts["weighed"]:
        table = NodeStateTable(ensemble.dags[dag], alive)
        table.recall(dumped, _load_nodes(islice(nodes, len(table.nodes)), jobs))
        ensemble.recall_weighed(dag, alive, table)
        aggregates.load_node_table(dag, table)
    if next(keys, None) is not None or next(nodes, None) is not None:
        raise ValueError("it is of other jobs or nodes")
    ensemble.changed_jobs = set(facts["stale"])
    ensemble.all_changed = False


def _load_nodes(nodes: Iterable[Any], jobs: Mapping[JobKey, Job]) -> Iterator[Judged]:
    def state(plain: Any) -> NodeState:
        number, since, job, inferred, superseded, submitted, failure, *more = plain
        state_job = jobs[job] if job is not None else None
        flags = inferred, superseded
        failed = NodeFailure(*failure) if failure is not None else None
        return NodeState(_STATES[number], since, state_job, *flags, submitted, failed, *more)

    for own, others, after in nodes:
        own_state = state(own)
        if others is None:
            yield own_state, own_state, own_state, after
        else:
            inferred = state(others[0])
            last = inferred if others[1] == others[0] else state(others[1])
            yield own_state, inferred, last, after
