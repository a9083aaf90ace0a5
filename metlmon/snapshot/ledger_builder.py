"""Assembles the ledger: the entries of jobs, and those of epochs and runs."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from datetime import datetime
from itertools import chain

from metlmon.model.dag_reports import NodeReportKind
from metlmon.model.job_events import NodeKey
from metlmon.model.node import NodeState
from metlmon.model.run import Run
from metlmon.model.states import State
from metlmon.snapshot.aggregates import Aggregates, RunEntries
from metlmon.snapshot.gate_text import PAUSED, STOPPED, ends_before, gate_symbol
from metlmon.snapshot.ledger import EpochEntry, ExecutionEntry, Ledger, RunEntry
from metlmon.snapshot.rows import SnapshotRows
from metlmon.snapshot.totals import ExecutionTotals


def epoch_steps(aggregates: Aggregates) -> Iterator[None]:
    """Build the entries of the epochs of changed runs, run by run."""
    while aggregates.changed_runs:
        run = aggregates.runs.by_key[aggregates.changed_runs.pop()]
        aggregates.run_entries[run.key] = RunEntries(
            tuple(_epochs(aggregates, run)), _first_submission(aggregates, run)
        )
        yield


def build_ledger(rows: SnapshotRows, dagdir: str, live: bool) -> Ledger:
    """The ledger of a snapshot."""
    aggregates = rows.aggregates
    for _ in epoch_steps(aggregates):
        pass
    blocks, runs = aggregates.entries.blocks(), aggregates.runs.by_key.values()
    return Ledger(
        dagdir=dagdir,
        as_of=rows.as_of,
        live=live,
        runs=tuple(_run(rows, run) for run in runs),
        epochs=tuple(chain.from_iterable(aggregates.run_entries[run.key].epochs for run in runs)),
        jobs=tuple(chain.from_iterable(block.jobs for block in blocks)),
        executions=tuple(chain.from_iterable(block.executions for block in blocks)),
        transfers=tuple(chain.from_iterable(block.transfers for block in blocks)),
        # A copy, since the reader still refines the offset from UTC.
        seconds_between=deepcopy(rows.clock).seconds,
        nodes_unlogged=len(aggregates.unlogged),
        measure=aggregates.totals.hour_unit,
    )


def _epochs(aggregates: Aggregates, run: Run) -> Iterator[EpochEntry]:
    names, counted = aggregates.run_names(run), aggregates.run_states[run.key].epochs
    for number in sorted(run.epochs):
        for key in run.epochs[number]:
            yield _epoch(aggregates, run, key, names, counts=counted[number] == key)


def _epoch(
    aggregates: Aggregates, run: Run, key: NodeKey, names: tuple[str, str | None], counts: bool
) -> EpochEntry:
    part, state = aggregates.runs.parts[key], aggregates.states[key]
    executions = [
        execution for entries in aggregates.node_entries(key) for execution in entries.executions
    ]
    totals = ExecutionTotals()
    for execution in executions:
        totals.add(execution)
    success = next((execution for execution in executions if execution.final), None)
    # The first of several of equal length.
    longest = max(executions, key=lambda execution: execution.seconds, default=None)
    result = aggregates.submission_result(key)
    submit_times = [time for time in result.submit_times if time is not None] if result else []
    good, bad, in_flight = totals.gpu_seconds()
    done = state.state is State.COMPLETED
    return EpochEntry(
        run=run.key,
        run_name=names[0],
        uuid=run.uuid,
        label=names[1],
        dag=aggregates.dag_file(key[0]),
        in_dag=key[0],
        node=key[1],
        epoch=part.epoch,
        epoch_var=part.epoch_var,
        counts=counts,
        state=state.state,
        inferred=state.inferred,
        target=aggregates.target(key),
        first_submitted=min(submit_times, default=None),
        completed=_ended(aggregates, key, state, success) if done else None,
        attempts=max((execution.attempt for execution in executions), default=0),
        jobs=result.jobs if result is not None else (),
        site=success.site if success else None,
        gpu=success.gpu if success else None,
        gpus=success.gpus if success else None,
        seconds=success.seconds if success else None,
        longest_site=longest.site if longest else None,
        longest_gpu=longest.gpu if longest else None,
        longest_seconds=longest.seconds if longest else None,
        good=good,
        bad=bad,
        in_flight=in_flight,
    )


def _ended(
    aggregates: Aggregates, key: NodeKey, state: NodeState, success: ExecutionEntry | None
) -> datetime | None:
    """When a completed node ended.

    None where only a rescue file, a node status file or the submission of a later node shows
    that it ended: these do not have the time.
    """
    if success is not None:
        return success.end
    if state.inferred or state.since is None:
        return None
    times = [post.time for post in aggregates.nodes[key].posts if post.ok]
    if state.job is not None:
        job = aggregates.job_entries(state.job).job
        times += [job.ended] if job.state is State.COMPLETED and job.ended else []
    for report in aggregates.dags[key[0]].node_reports.get(key[1], ()):
        if report.kind in (NodeReportKind.DONE, NodeReportKind.JOB_DONE):
            clock = aggregates.ensemble.clock
            local = clock.to_local(report.epoch) if report.epoch is not None else None
            times += [time for time in (report.time, local) if time is not None]
    return state.since if state.since in times else None


def _run(rows: SnapshotRows, run: Run) -> RunEntry:
    aggregates = rows.aggregates
    run_state = aggregates.run_states[run.key]
    name, label = aggregates.run_names(run)
    row = rows.run_row(run)
    good, bad, in_flight = aggregates.totals.runs[run.key].gpu_seconds()
    return RunEntry(
        run=run.key,
        run_name=name,
        uuid=run.uuid,
        label=label,
        dag=row.dag,
        state=run_state.state,
        epochs_total=len(run_state.epochs),
        epochs_done=run_state.done,
        epochs_inferred=run_state.inferred,
        epochs_skipped=run_state.skipped,
        latest=row.latest,
        began=aggregates.run_entries[run.key].began,
        good=good,
        bad=bad,
        in_flight=in_flight,
        ends_before=ends_before(row),
        paused=gate_symbol(row) is PAUSED,
        stopped=gate_symbol(row) is STOPPED,
        failed=row.failed,
    )


def _first_submission(aggregates: Aggregates, run: Run) -> datetime | None:
    results = filter(None, map(aggregates.submission_result, run.nodes()))
    return min(
        (when for result in results for when in result.submit_times if when is not None),
        default=None,
    )
