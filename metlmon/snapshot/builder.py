"""Builds the immutable snapshot types from the state model and its aggregates.

All definitions are those of ``metlmon/README.md``. A :class:`SnapshotBuilder` reads an ensemble
at one moment; its methods build what screens, tables and JSON show.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING

from metlmon.model.dag_reports import NodeReportKind, failure_text
from metlmon.model.job_events import NO_DAG, NodeKey, NodeRecord
from metlmon.model.model_state import Notice
from metlmon.model.node import NodeFailure, NodeState, tries
from metlmon.model.run import Run
from metlmon.model.states import ALIVE, ENDED, LOST, DagState, State
from metlmon.model.unrecorded_nodes import effective_counts, end_in_utc
from metlmon.snapshot.aggregates import Aggregates, RunEntries
from metlmon.snapshot.ledger import EpochEntry, ExecutionEntry, Ledger, NodeFault, RunEntry
from metlmon.snapshot.notices import input_notices
from metlmon.snapshot.row_text import PAUSED, STOPPED, ends_before, gate_symbol
from metlmon.snapshot.rows import SnapshotRows
from metlmon.snapshot.totals import (
    AN_HOUR,
    ExecutionTotals,
    LossCause,
    ProblemCause,
    ProblemTotals,
    loss_cause,
    problems_by_cause,
    rank_by_hours,
)
from metlmon.snapshot.types import (
    CauseRow,
    DagDescription,
    DagRow,
    DescribedNode,
    GpuRow,
    JobRow,
    LogRow,
    Nodes,
    ProblemGroup,
    SideCounts,
    SiteRow,
    Status,
)

if TYPE_CHECKING:
    from metlmon.snapshot.node_tree import DagNodes


class SnapshotBuilder(SnapshotRows):
    """Builds snapshots of an ensemble at one moment.

    ``aggregates`` are up to date. ``as_of`` None: the time of the newest event.
    """

    def __init__(
        self, aggregates: Aggregates, dagdir: str, as_of: datetime | None = None, live: bool = False
    ) -> None:
        super().__init__(aggregates, as_of or aggregates.ensemble.newest_line)
        self.dagdir = dagdir
        self.live = live
        self.dags, self.nodes = aggregates.dags, aggregates.nodes
        self.runs, self.states = aggregates.runs, aggregates.states
        self.run_states, self.totals = aggregates.run_states, aggregates.totals
        self._ledger: Ledger | None = None
        self._dags_by_path = {dag.workflow.path: dag for dag in aggregates.dags.values()}

    # --- the ensemble -------------------------------------------------------------------

    def status(self) -> Status:
        """The status of the whole ensemble."""
        aggregates = self.aggregates
        totals, unit = aggregates.totals, aggregates.totals.hour_unit
        special = (self.node_row(key) for key in aggregates.special_nodes)
        return Status(
            dagdir=self.dagdir,
            as_of=self.as_of,
            live=self.live,
            warnings=tuple(self.notices()),
            dags=tuple(self._dag_rows()),
            runs=tuple(map(self.run_row, self.runs.in_order())),
            epoch_states=_all_states(aggregates.epoch_states),
            node_states=_all_states(aggregates.node_states),
            gpu_hours=totals.total.hours(unit),
            sites=tuple(
                SiteRow(
                    site=site,
                    target=tuple(sorted(each.targets)),
                    executions=each.executions,
                    completed_epochs=each.completed,
                    gpu_hours=hours,
                    seconds_median=each.seconds.value(),
                )
                for site, each, hours in rank_by_hours(totals.sites, unit)
            ),
            gpus=tuple(
                GpuRow(gpu, each.executions, each.completed, hours)
                for gpu, each, hours in rank_by_hours(totals.gpus, unit)
            ),
            causes=tuple(self._causes()),
            transfers=totals.transfers(),
            logs=tuple(
                LogRow(
                    file=stats.file,
                    bytes=stats.bytes,
                    events=stats.events,
                    first=stats.first,
                    last=stats.last,
                )
                for stats in self.ensemble.log_stats.values()
            ),
            special_nodes=tuple(row for row in special if row is not None),
            side_nodes=SideCounts(*aggregates.side_counts()),
            other_states=_all_states(aggregates.other_states),
            nodes_unlogged=len(aggregates.unlogged),
        )

    def ledger(self) -> Ledger:
        """The ledger of the ensemble: all entries, flat; built once."""
        if self._ledger is None:
            self._ledger = _build_ledger(self)
        return self._ledger

    def update_ledger(self, seconds: float) -> bool:
        """Build entries of the ledger for about ``seconds``; return whether all are built."""
        deadline = time.monotonic() + seconds
        return self._ledger is not None or all(
            time.monotonic() < deadline for _ in _epoch_steps(self.aggregates)
        )

    def notices(self) -> Iterator[Notice]:
        """All warnings about the input."""
        return input_notices(self._aggregates, self.live)

    def _dag_rows(self) -> Iterator[DagRow]:
        for dag in self.dags.values():
            if not dag.is_top or dag.key == NO_DAG:
                continue
            state, ended = self.ensemble.dag_state(dag.key)
            dagman_run = dag.current_run()
            if state in ENDED:
                ended = ended or end_in_utc(dag)
            counts = self._aggregates.counts[dag.key]
            nodes_total, nodes_done, nodes_failed = effective_counts(
                dag, counts.total, counts.done, counts.failed, counts.unknown
            )
            rescue = dag.current_rescue()
            yield DagRow(
                file=dag.file,
                state=state,
                dagmans=dag.dagman_run_count(),
                nodes_total=nodes_total,
                nodes_done=nodes_done,
                nodes_failed=nodes_failed,
                rescue=rescue.number if rescue else None,
                submissions=dag.run_starts(self.clock),
                halted=dag.halted,
                ended=ended,
                recoveries=dag.recovery_count(),
                cluster=dagman_run.cluster if dagman_run is not None else None,
                refused=dag.refused_count(),
                hold=dag.current_hold() if state is DagState.HELD else None,
                nodes_unknown=counts.unknown,
                crashes=dagman_run.crash_loop if dagman_run and state in ALIVE else None,
                removal=dagman_run.job.removal if dagman_run and dagman_run.job else None,
                abort=self._aggregates.aborts.get(dag.key),
                other_states=+self._aggregates.runless_states.get(dag.key, Counter()),
                continued=state in LOST and self._aggregates.is_continued(dag.key),
                exited=frozenset(
                    run.cluster
                    for run in dag.dagman_runs()
                    if run.cluster is not None
                    and (end := run.end_state()) is not None
                    and end[0] is not DagState.REMOVED
                ),
            )

    def _causes(self) -> list[CauseRow]:
        """Bad GPU-hours by cause, the most expensive first."""
        rows = [
            CauseRow(
                cause=cause[0] or "",
                code=cause[1],
                subcode=cause[2],
                executions=losses.executions,
                bad=losses.micros / AN_HOUR,
                example=self._example(cause),
                end_unknown=cause[3],
            )
            for cause, losses in self.totals.causes.items()
        ]

        def order(row: CauseRow) -> tuple[object, ...]:
            codes = (-1 if number is None else number for number in (row.code, row.subcode))
            return -row.bad, -row.executions, row.cause, *codes, row.end_unknown

        return sorted(rows, key=order)

    def _example(self, cause: LossCause) -> str | None:
        """The logged reason of the last execution that ended for this cause."""
        entries = self._aggregates.entries.get(self.totals.causes[cause].last_job())
        executions = entries.executions if entries is not None else ()
        return next(
            (each.reason for each in reversed(executions) if loss_cause(each) == cause), None
        )

    # --- jobs, nodes and runs -----------------------------------------------------------

    def job_rows(self) -> list[JobRow]:
        """All jobs but the DAGMan jobs of top-level DAGs, by cluster and proc."""
        return [self.job_row(job) for job in self.real_jobs()]

    def queued_rows(self, run: str | None = None) -> tuple[JobRow, ...]:
        """Jobs in the queue by their logs; with ``run`` only those of that run key."""
        jobs = (self.ensemble.jobs[key] for key in sorted(self.totals.queued))
        if run is not None:
            nodes = set(self.runs.by_key[run].nodes() if run in self.runs.by_key else ())
            jobs = (job for job in jobs if self._aggregates.node_of(job) in nodes)
        return tuple(map(self.job_row, jobs))

    def dag_nodes(self) -> tuple[DagNodes, ...]:
        """All DAGs with the states of their nodes, as input of a node tree."""
        from metlmon.snapshot.node_tree import DagNodes

        dag_nodes = []
        for key, dag in self.dags.items():
            subdags = {
                name: subdag
                for name, node in dag.workflow.nodes.items()
                if node.subdag is not None and (subdag := self.subdag_key((key, name))) is not None
            }
            states = ((name, self.states.get((key, name))) for name in dag.workflow.nodes)
            dag_nodes.append(
                DagNodes(
                    key=key,
                    file=dag.file,
                    nodes=dict(dag.workflow.nodes) if key == NO_DAG else dag.workflow.nodes,
                    states={name: state for name, state in states if state is not None},
                    subdags=subdags,
                    overruled=frozenset(
                        name for of, name in self._aggregates.overruled if of == key
                    ),
                )
            )
        return tuple(dag_nodes)

    def subdag_key(self, key: NodeKey) -> str | None:
        """The key of the sub-DAG that a SUBDAG node runs; None where it is not here."""
        dag, node = self.dags[key[0]], self.nodes[key].node
        subdag = None if node.subdag is None else dag.workflow.subdags[node.subdag]
        here = self._dags_by_path.get(subdag.path) if subdag is not None else None
        return here.key if here is not None and here.top == dag.top else None

    # --- problems -----------------------------------------------------------------------

    def problems(self) -> tuple[ProblemGroup, ...]:
        """Problems by cause: those present now first, then by what they cost."""
        aggregates = self.aggregates
        jobs = map(aggregates.entries.get, sorted(self.totals.troubled))
        troubled = (entries for entries in jobs if entries is not None)
        by_cause = problems_by_cause(troubled, self.as_of, self.clock)
        groups = [self._problem_group(cause, totals) for cause, totals in by_cause.items()]
        groups += self._nodes_without_jobs()
        return tuple(
            sorted(
                groups,
                key=lambda group: (-group.now, -group.lost, -group.times, group.cause, group.kind),
            )
        )

    def _nodes_without_jobs(self) -> Iterable[ProblemGroup]:
        """Nodes that failed without a job's failure, by DAGMan's reason."""
        causes: dict[str, list[NodeKey]] = defaultdict(list)
        for key, failure in self._aggregates.failed_without_job.items():
            causes[failure.text].append(key)
        for cause, keys in causes.items():
            since = [when for key in keys if (when := self.states[key].since) is not None]
            of_runs = [self.runs.by_node[key] for key in keys if key in self.runs.by_node]
            runs = {run.key: run for run in of_runs}
            yield ProblemGroup(
                key=f"node:{cause}",
                kind="failed",
                cause=cause,
                code=None,
                subcode=None,
                now=len(keys),
                times=len(keys),
                lost=0.0,
                runs=tuple(runs),
                run_names=self._run_names(runs),
                jobs=(),
                last=max(since, default=None),
                example=None,
                nodes=tuple(name for _, name in sorted(keys)),
            )

    def _problem_group(self, cause: ProblemCause, totals: ProblemTotals) -> ProblemGroup:
        latest = totals.latest
        return ProblemGroup(
            key=":".join(cause),
            kind=cause[0],
            cause=cause[1],
            code=totals.code,
            subcode=totals.subcode,
            now=len(totals.now),
            times=totals.times,
            lost=totals.lost_hours,
            runs=tuple(totals.runs),
            run_names=self._run_names(totals.runs),
            jobs=latest,
            last=totals.jobs[latest[0]] if latest else None,
            example=totals.example,
        )

    def _run_names(self, runs: Iterable[str]) -> tuple[str, ...]:
        return tuple(self._aggregates.run_names(self.runs.by_key[key])[0] for key in runs)


def _epoch_steps(aggregates: Aggregates) -> Iterator[None]:
    """Build the entries of the epochs of changed runs, run by run."""
    while aggregates.changed_runs:
        run = aggregates.runs.by_key[aggregates.changed_runs.pop()]
        aggregates.run_entries[run.key] = RunEntries(
            tuple(_epochs(aggregates, run)), _first_submission(aggregates, run)
        )
        yield


def _build_ledger(builder: SnapshotBuilder) -> Ledger:
    """The ledger of a snapshot."""
    aggregates = builder.aggregates
    for _ in _epoch_steps(aggregates):
        pass
    blocks = aggregates.entries.blocks()
    # Jobs beside a DAG have no part in its estimates and curves.
    in_order = aggregates.runs.in_order()
    runs = [run for run in in_order if not aggregates.is_beside(run.nodes()[0])]
    return Ledger(
        dagdir=builder.dagdir,
        as_of=builder.as_of,
        live=builder.live,
        runs=tuple(_run_entry(builder, run) for run in runs),
        epochs=tuple(chain.from_iterable(aggregates.run_entries[run.key].epochs for run in runs)),
        jobs=tuple(chain.from_iterable(block.jobs for block in blocks)),
        executions=tuple(chain.from_iterable(block.executions for block in blocks)),
        transfers=tuple(chain.from_iterable(block.transfers for block in blocks)),
        # A copy, since the reader still refines the offset from UTC.
        seconds_between=deepcopy(builder.clock).seconds,
        nodes_unlogged=len(aggregates.unlogged),
        measure=aggregates.totals.hour_unit,
        faults=tuple(
            _fault(builder, key)
            for key in sorted(aggregates.faulty)
            if (abort := aggregates.aborts.get(key[0])) is None
            or not abort.ended(key, aggregates.states[key])
        ),
        aborts=aggregates.aborts,
        restarts=_restarts(builder),
        item="job" if any(run.item == "job" for run in runs) else "epoch",
    )


def _restarts(builder: SnapshotBuilder) -> tuple[datetime, ...]:
    """When the schedd was started again, by the logs of the DAGs' DAGMans."""
    jobs = (job for dag in builder.dags.values() for job in dag.logs.jobs)
    return tuple(sorted({time for job in jobs for time in job.restarts}))


def _fault(builder: SnapshotBuilder, key: NodeKey) -> NodeFault:
    aggregates = builder.aggregates
    state, node = aggregates.states[key], aggregates.nodes[key].node
    run, part = aggregates.runs.by_node.get(key), aggregates.runs.parts.get(key)
    training = part is not None and part.training
    counts = True
    if run is not None and part is not None and training:
        counts = aggregates.run_states[run.key].epochs.get(part.number) == key
    futile = state.state is State.FUTILE
    result = None if futile else aggregates.submission_result(key)
    failure = state.failure or _failed_post(aggregates.nodes[key], state)
    return NodeFault(
        key=key,
        dag=aggregates.dag_file(key[0]),
        kind=node.kind.value,
        state=state.state,
        run=run.key if run is not None else None,
        epoch=part.epoch if part is not None else None,
        training=training,
        counts=counts,
        since=state.since,
        job=state.job.id if state.job is not None else None,
        tries=0 if futile else tries(aggregates.dags[key[0]], aggregates.nodes[key], result),
        retries=node.retries,
        unless_exit=node.unless_exit if state.unless_exit else None,
        part=failure.part if failure is not None else None,
        reason=failure.text if failure is not None else None,
        error=failure.error if failure is not None else None,
        failed_ancestor=(key[0], state.failed_ancestor) if state.failed_ancestor else None,
        subdag=builder.subdag_key(key) if node.subdag is not None else None,
    )


def _failed_post(record: NodeRecord, state: NodeState) -> NodeFailure | None:
    """The failure of a node whose POST script failed although its job succeeded."""
    post, job = record.posts[-1] if record.posts else None, state.job
    if state.state is not State.FAILED or post is None or post.ok or job is None:
        return None
    if job.history().state is not State.COMPLETED:
        return None
    return NodeFailure("post", failure_text("post", post.value), post.value)


def _epochs(aggregates: Aggregates, run: Run) -> Iterator[EpochEntry]:
    names, counted = aggregates.run_names(run), aggregates.run_states[run.key].epochs
    for number in sorted(run.epochs):
        for key in run.epochs[number]:
            yield _epoch(aggregates, run, key, names, counts=counted[number] == key)


def _epoch(
    aggregates: Aggregates, run: Run, key: NodeKey, names: tuple[str, str | None], counts: bool
) -> EpochEntry:
    part, state = aggregates.runs.parts[key], aggregates.states[key]
    executions = aggregates.node_executions(key)
    totals = ExecutionTotals()
    for execution in executions:
        if not execution.at_access_point:
            totals.add(execution)
    success = next((execution for execution in executions if execution.final), None)
    # The first of several of equal length.
    longest = max(executions, key=lambda execution: execution.trained, default=None)
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
        seconds=success.trained if success else None,
        longest_site=longest.site if longest else None,
        longest_gpu=longest.gpu if longest else None,
        longest_seconds=longest.trained if longest else None,
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


def _run_entry(builder: SnapshotBuilder, run: Run) -> RunEntry:
    aggregates = builder.aggregates
    run_state = aggregates.run_states[run.key]
    name, label = aggregates.run_names(run)
    row = builder.run_row(run)
    good, bad, in_flight = aggregates.totals.runs[run.key].gpu_seconds()
    return RunEntry(
        run=run.key,
        run_name=name,
        uuid=run.uuid,
        label=label,
        dag=row.dag,
        item=row.item,
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
        abort=run_state.abort,
    )


def _first_submission(aggregates: Aggregates, run: Run) -> datetime | None:
    results = filter(None, map(aggregates.submission_result, run.nodes()))
    return min(
        (when for result in results for when in result.submit_times if when is not None),
        default=None,
    )


def _all_states(counts: Mapping[State, int]) -> Mapping[State, int]:
    """The counts with 0 for every state that is missing."""
    return {state: counts.get(state, 0) for state in State}


def describe_dags(builder: SnapshotBuilder, previous: Nodes | None = None) -> DagDescription:
    """The description of the DAGs of a snapshot.

    ``previous``: the nodes of the last description, if the DAG files have not changed since.
    """
    nodes = previous or Nodes(
        tuple(_describe_node(builder, key) for key in builder.nodes if key[0] != NO_DAG)
    )
    states = {node.key: builder.states[node.key] for node in nodes.all if node.run is None}
    completed = {
        key: node.since
        for key, node in states.items()
        if node.state is State.COMPLETED and node.since is not None
    }
    return DagDescription(nodes, {key: node.state for key, node in states.items()}, completed)


def _describe_node(builder: SnapshotBuilder, key: NodeKey) -> DescribedNode:
    run, part = builder.runs.by_node.get(key), builder.runs.parts.get(key)
    return DescribedNode(
        key=key,
        dag=builder.aggregates.dag_file(key[0]),
        node=builder.nodes[key].node,
        run=run.key if run is not None else None,
        run_name=part.run if part is not None else None,
        uuid=run.uuid if run is not None else None,
        training=part is not None and part.training,
    )
