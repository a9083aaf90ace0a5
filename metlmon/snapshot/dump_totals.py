"""What jobs and nodes came to, as plain data: for whoever keeps it until the dagdir is opened
again.

It follows from what was learnt, heard and set: where all of that is the same, it is taken over,
and else reckoned anew. What was not added up yet, or not judged, is not either afterwards.
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

AT_ONCE: Final = 2000
"""Jobs or nodes in one record: some milliseconds of work."""

_STATES: Final = tuple(State)
_NUMBERS: Final = {state: number for number, state in enumerate(_STATES)}


def dump_totals(ensemble: Ensemble, workflows: bytes) -> Iterator[Any] | None:
    """Records of plain data, which hold what ``ensemble`` has added up and judged up to this
    call; None where it is in the middle of that. ``workflows`` tells its DAG files from all
    others."""
    summary = ensemble.summary
    weighed = summary.weighed()
    if weighed is None:
        return None
    facts = {
        "basis": _basis(ensemble, ensemble.dags.values(), workflows),
        "stale": list(ensemble.stale_jobs),
        "placements": dict(ensemble.placements),
        "sums": summary.sums.kept(),
        "moving": summary.troubles.kept(),
        "summary": summary.kept(),
        "weighed": [(dag, alive, each.kept()) for dag, alive, each in weighed],
    }
    shares, strikes = summary.sums.share_of, summary.troubles.of_job
    members = ensemble.members
    jobs = [(shares(key), *strikes(key), _place(members[key])) for key in ensemble.jobs]
    nodes = [state for _, _, each in weighed for state in each.judged()]
    return _records(facts, jobs, nodes)


def _records(facts: Any, jobs: list[Any], nodes: list[Any]) -> Iterator[Any]:
    yield facts
    for start in range(0, len(jobs), AT_ONCE):
        yield jobs[start : start + AT_ONCE]
    for start in range(0, len(nodes), AT_ONCE):
        yield [
            (_plain(own), None if _all_one(own, *others) else tuple(map(_plain, others)), after)
            for own, *others, after in nodes[start : start + AT_ONCE]
        ]


def _all_one(state: NodeState, *others: NodeState) -> bool:
    """Is a node's state, in the light of its neighbours, its own?"""
    return all(other is state for other in others)


def _plain(state: NodeState) -> Any:
    job = state.job.key if state.job is not None else None
    flags = (state.inferred, state.superseded)
    failure = state.failure and (state.failure.what, state.failure.text, state.failure.value)
    told = (state.submitted, failure, state.behind, state.again)
    return _NUMBERS[state.state], state.since, job, *flags, *told


def _place(member: Attribution) -> Place:
    return (
        member.dag,
        member.node,
        member.candidates,
        member.weighed,
        member.proven,
        member.foreign,
    )


def _basis(ensemble: Ensemble, dags: Iterable[Dag], workflows: bytes) -> tuple[Any, ...]:
    """What all of it follows from, but for what was learnt and heard, which is kept with it."""
    return (
        workflows,
        [(dag.key, dag.top, len(dag.workflow.nodes)) for dag in dags],
        len(ensemble.jobs),
        _told(ensemble.settings),
    )


def _told(setting: Any) -> Any:
    """A setting as plain data."""
    if is_dataclass(setting) and not isinstance(setting, type):
        return [_told(getattr(setting, each.name)) for each in fields(setting)]
    if isinstance(setting, tuple):
        return [_told(each) for each in setting]
    if isinstance(setting, frozenset):
        return sorted(setting)
    if isinstance(setting, re.Pattern):
        return [setting.pattern, setting.flags]
    return setting if isinstance(setting, str | int | float | None) else str(setting)


# --- again ----------------------------------------------------------------------------------


def follows(
    ensemble: Ensemble, dags: Iterable[Dag], workflows: bytes, records: Sequence[Any]
) -> bool:
    """Does what :func:`dump_totals` told follow as well from what an ensemble has learnt that is
    about to be given these DAGs, which have heard what they had then?"""
    return bool(records) and records[0]["basis"] == _basis(ensemble, dags, workflows)


def places(ensemble: Ensemble, records: Sequence[Any]) -> list[Place]:
    """Where each job belongs, by what :func:`dump_totals` told."""
    chunks = -(-len(ensemble.jobs) // AT_ONCE)
    return [job[3] for record in records[1 : 1 + chunks] for job in record]


def load_totals(ensemble: Ensemble, records: Iterable[Any]) -> None:
    """Give an ensemble what :func:`dump_totals` told, which :func:`follows` from what it has been
    given. Raises whatever comes first where it is of another shape; then all is to be reckoned
    anew (:meth:`Ensemble.reckon_anew`)."""
    rest = iter(records)
    facts = next(rest)
    summary = ensemble.summary
    # By these it was added up; what they are now is seen after this.
    ensemble.placements = facts["placements"]
    summary.recall(facts["summary"])
    summary.sums.recall(facts["sums"])
    keys = iter(list(ensemble.jobs))
    for _ in range(0, len(ensemble.jobs), AT_ONCE):
        for share, strikes, run, _ in next(rest):
            key = next(keys)
            if share is not None:
                summary.sums.recall_share(key, share)
            if run is not None or strikes:
                summary.troubles.recall_job(key, strikes, run)
    summary.troubles.recall(facts["moving"], ensemble.jobs)
    nodes = (node for record in rest for node in record)
    jobs = ensemble.jobs
    for dag, alive, standing in facts["weighed"]:
        weighed = NodeStateTable(ensemble.dags[dag], alive)
        weighed.recall(standing, _judged(islice(nodes, len(weighed.nodes)), jobs))
        ensemble.recall_weighed(dag, alive, weighed)
        summary.recall_nodes(dag, weighed)
    if next(keys, None) is not None or next(nodes, None) is not None:
        raise ValueError("it is of other jobs or nodes")
    ensemble.stale_jobs = set(facts["stale"])
    ensemble.all_stale = False


def _judged(nodes: Iterable[Any], jobs: Mapping[JobKey, Job]) -> Iterator[Judged]:
    def state(plain: Any) -> NodeState:
        number, since, job, inferred, superseded, submitted, failure, *told = plain
        standing = jobs[job] if job is not None else None
        flags = inferred, superseded
        failed = NodeFailure(*failure) if failure is not None else None
        return NodeState(_STATES[number], since, standing, *flags, submitted, failed, *told)

    for own, others, after in nodes:
        mine = state(own)
        if others is None:
            yield mine, mine, mine, after
        else:
            inferred = state(others[0])
            last = inferred if others[1] == others[0] else state(others[1])
            yield mine, inferred, last, after
