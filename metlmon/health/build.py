"""Build the health of an ensemble from one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from metlmon.health.advice import DAG_IS_DONE, RECOVER, RESUBMIT, RESUBMIT_JOBS, RUN_THE_REST
from metlmon.health.facts import HealthFacts
from metlmon.health.holds import Holds
from metlmon.health.lineage import broken_chains
from metlmon.health.logs import (
    find_gaps,
    log_gaps,
    missing_files,
    restarts,
    silent_logs,
    unwritable_logs,
    with_lost_rescue,
)
from metlmon.health.losses import lost_executions
from metlmon.health.nodes import Failures, dag_entries, futile_nodes
from metlmon.health.removals import Removals
from metlmon.health.resources import resource_entries
from metlmon.health.sites import black_holes, disconnected_jobs, unmatched_jobs, wrong_sites
from metlmon.health.trainings import configuration_changes, diverged_runs
from metlmon.health.transfers import stalled_transfers
from metlmon.health.types import KINDS, Health, HealthEntry, Severity
from metlmon.live.feed import StatsInput
from metlmon.model.states import ALIVE, ENDED, FAILED_JOB, DagState, State
from metlmon.snapshot.records import DagRow, Status
from metlmon.snapshot.row_text import run_labels

RANKS: Final = {severity: rank for rank, severity in enumerate(Severity)}


def make_health(stats_input: StatsInput) -> Health:
    """The health of the ensemble at as-of."""
    facts = HealthFacts(stats_input)
    ledger = facts.ledger
    gpu_hours = stats_input.status.hours
    stopped, left = len(facts.blocked.stopped), facts.blocked.left
    runs = {run.key: run for run in (*stats_input.status.runs, *ledger.runs)}
    order = {run: number for number, run in enumerate(facts.runs)}
    entries = [_in_order(entry, order) for entry in _entries(facts)]
    if not stats_input.status.dags:
        entries = [_without_dag(entry) for entry in entries]
    entries = [with_lost_rescue(entry, entries) for entry in entries]
    entries = [_with_moment(entry, facts) for entry in entries]
    entries.sort(key=_rank)
    doubtful = {
        run.key: "job of last epoch failed"
        for run in ledger.runs
        if run.latest and run.latest.overruled and not run.epochs_left
    }
    for entry in entries:
        if entry.kind == "lineage-broken":
            doubtful |= dict.fromkeys(entry.runs, KINDS[entry.kind].title)
    return Health(
        entries=tuple(entries),
        runs_total=len(ledger.runs),
        runs_stopped=stopped,
        epochs_left=left,
        jobs_queued=facts.jobs_queued,
        badput=gpu_hours.badput,
        ended_hours=gpu_hours.goodput + gpu_hours.badput,
        names={key: run.run for key, run in runs.items()},
        labels=run_labels(tuple(runs.values())),
        hour_unit=ledger.measure.short,
        item=ledger.item,
        unlogged=_is_unlogged(stats_input.status),
        doubtful=doubtful,
    )


def _is_unlogged(status: Status) -> bool:
    """Whether jobs may be in the queue although the logs here have no event of any job."""
    logs = [log for log in status.logs if not log.file.endswith(".dagman.log")]
    running = any(dag.submissions and dag.state not in ENDED for dag in status.dags)
    # DAGMan may have begun a moment ago.
    begun = any(n for state, n in status.node_states.items() if state is not State.WAITING)
    return running and begun and not any(log.events for log in logs)


def _entries(facts: HealthFacts) -> Iterator[HealthEntry]:
    removals, failures = Removals(facts), Failures(facts)
    holds = Holds(facts, removals)
    # Each blocked epoch is counted once: what failed comes before what is held.
    for groups in (failures, removals, holds):
        groups.count_blocked()
    yield from missing_files(facts)
    yield from futile_nodes(facts)
    faulty = {
        fault.dag
        for fault in facts.faults.values()
        if fault.state in FAILED_JOB and not facts.runs_again(fault)
    }
    yield from dag_entries(facts, removals, failures, faulty)
    yield from lost_executions(facts, holds, removals, failures, black_holes(facts))
    yield from failures.entries()
    for group in (*removals.groups, *holds.groups):
        yield group.entry()
    gaps = find_gaps(facts)
    yield from log_gaps(facts, gaps)
    yield from restarts(facts)
    yield from silent_logs(facts)
    yield from unwritable_logs(facts)
    yield from stalled_transfers(facts, gaps)
    yield from wrong_sites(facts)
    yield from unmatched_jobs(facts)
    yield from disconnected_jobs(facts)
    yield from diverged_runs(facts)
    yield from configuration_changes(facts)
    yield from broken_chains(facts)
    yield from resource_entries(facts)


def _rank(entry: HealthEntry) -> tuple[Any, ...]:
    time = entry.until or entry.since or datetime.min
    newest_first = -time.timestamp() if time.year > 1970 else 0.0
    worst = (RANKS[entry.severity], -entry.epochs_blocked, -entry.cost, -entry.nodes)
    closed_hours = 0.0 if entry.open else -entry.cost
    return (not entry.open, closed_hours, *worst, newest_first, entry.key)


def _without_dag(entry: HealthEntry) -> HealthEntry:
    """The entry with advice for jobs outside of any DAG: there the jobs are submitted again."""
    if entry.act != "resubmit":
        return entry
    steps = tuple(RESUBMIT_JOBS if step == RESUBMIT else step for step in entry.steps)
    return replace(entry, act=None, steps=steps)


def _with_moment(entry: HealthEntry, facts: HealthFacts) -> HealthEntry:
    """The entry; with the condition for submitting its DAG again where that is not possible now."""
    if entry.act != "resubmit" or not entry.open:
        return entry
    if entry.dag:
        files = [entry.dag]
    else:
        faults = [facts.faults[node] for node in entry.node_keys if node in facts.faults]
        files = [facts.runs[run].dag for run in entry.runs if run in facts.runs]
        files += [fault.dag for fault in faults]
    if files and not any(files):
        return _without_dag(entry)
    dags = {file: facts.dags[file] for file in files if file in facts.dags}
    if dags and all(dag.state is DagState.DONE for dag in dags.values()):
        ran_all = all(dag.nodes_done == dag.nodes_total for dag in dags.values())
        end = DAG_IS_DONE if ran_all else RUN_THE_REST
        steps = tuple(end if step == RESUBMIT else step for step in entry.steps)
        return replace(entry, act=None, steps=steps)
    if dags and all(dag.interrupted for dag in dags.values()):
        steps = tuple(RECOVER if step == RESUBMIT else step for step in entry.steps)
        return replace(entry, act=None, steps=steps)
    moments = [_resubmittable(dag) for dag in dags.values()]
    return replace(entry, act_when=moments[0]) if moments and all(moments) else entry


def _resubmittable(dag: DagRow) -> str | None:
    """The condition for submitting a DAG again; None if it can be submitted now."""
    if dag.state in ALIVE:
        return "when the DAG has ended"
    if dag.rescue is None and dag.nodes_done:
        return "when its rescue file is back"
    return None


def _in_order(entry: HealthEntry, order: Mapping[str, int]) -> HealthEntry:
    """The entry with its runs in the order of all lists of runs."""
    runs = tuple(sorted(entry.runs, key=lambda run: order.get(run, len(order))))
    return entry if runs == entry.runs else replace(entry, runs=runs)
