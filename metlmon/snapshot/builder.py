"""Builds snapshots: the records that screens, tables and JSON show, and warnings.

All definitions are those of ``metlmon/README.md``.
"""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import datetime, timedelta
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from metlmon.dagman.records import MessageKind, Node, NodeKind, Workflow
from metlmon.dagman.reports import rescue_number
from metlmon.eventlog.events import Held, RemoteError, UsageRow, event_name, usage_rows
from metlmon.jobfiles.gate_files import ABORT_RULE, Stopped
from metlmon.model.attribution import ReusedJobIds
from metlmon.model.clock import Clock
from metlmon.model.dag import Dag, failure_text, name_script
from metlmon.model.dagman_runs import DagmanRun
from metlmon.model.ensemble import Ensemble
from metlmon.model.job_events import NO_DAG, JobId, JobKey, LoggedJob, NodeKey
from metlmon.model.model_state import Notice
from metlmon.model.node import (
    NodeFailure,
    NodeRecord,
    NodeState,
    current_metrics,
    effective_counts,
    effective_parents,
    end_in_utc,
    matches_node_count,
    missing_rescue,
    reported_totals,
    retries_left,
    submission_result,
    tries,
)
from metlmon.model.run import GateStatus, RunNodes, gate_status
from metlmon.model.states import ALIVE, DONE, ENDED, LOST, DagState, State
from metlmon.snapshot.derive import SPECIAL_KINDS, Derivation, ExecutionTotals
from metlmon.snapshot.records import (
    DagDescription,
    DagmanLife,
    DagRow,
    DescribedNode,
    Epoch,
    EventLine,
    Execution,
    Job,
    JobView,
    Ledger,
    LogRow,
    NodeFault,
    NodeRow,
    Nodes,
    Run,
    RunView,
    Status,
)
from metlmon.text.formatting import count, listed, moment, plain

if TYPE_CHECKING:
    from metlmon.snapshot.node_tree import DagNodes

FAILING: Final = frozenset({State.FAILED, State.RETRYING})
"""States of a node whose last try failed."""

MAX_WAITS_FOR: Final = 8
"""Unfinished parents that are listed by name: more do not fit on a line."""

_CLUSTER: Final = re.compile(r"\$\((?:cluster|clusterid)\)", re.IGNORECASE)
_PROCESS: Final = re.compile(r"\$\((?:process|procid)\)", re.IGNORECASE)


class SnapshotBuilder:
    """Builds snapshots of an ensemble at one moment.

    ``derivation`` must be up to date; what has not ended counts in it up to ``as_of`` (None: the
    time of the newest event) from then on. A builder is used until the next one is made.
    """

    def __init__(
        self, derivation: Derivation, dagdir: str, as_of: datetime | None = None, live: bool = False
    ) -> None:
        self.ensemble = derivation.ensemble
        self.as_of = as_of or self.ensemble.newest_line
        self.clock = self.ensemble.clock
        self.dagdir = dagdir
        self.live = live
        derivation.derive(self.as_of)
        self.derivation = derivation
        self.dags, self.nodes = derivation.dags, derivation.nodes
        self.runs, self.states = derivation.runs, derivation.states
        self.run_states, self.totals = derivation.run_states, derivation.totals
        self._ledger: Ledger | None = None
        self._runs: dict[str, Run] = {}

    def seconds(self, start: datetime | None, end: datetime | None = None) -> float | None:
        """Seconds between two times; up to ``as_of`` if ``end`` is None."""
        end = end or self.as_of
        if start is None or end is None:
            return None
        return self.clock.seconds(start, end)

    # --- the ensemble -------------------------------------------------------------------

    def status(self) -> Status:
        """The status of the whole ensemble."""
        derivation = self.derivation
        totals = self.totals
        special = (self.node_row(key) for key in derivation.special_nodes)
        has_dag = any(key != NO_DAG for key in self.dags)
        queued = [job for job in map(derivation.jobs.__getitem__, totals.queued) if not job.dagman]
        queued = [job for job in queued if job.dag is not None or not has_dag]
        return Status(
            dagdir=self.dagdir,
            as_of=self.as_of,
            live=self.live,
            warnings=tuple(self.notices()),
            dags=tuple(self._dag_rows()),
            runs=tuple(map(self.run, self.runs.in_order())),
            epoch_states=_all_states(derivation.epoch_states),
            node_states=_all_states(derivation.sums.node_states),
            hours=totals.total.hours,
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
            side_nodes=derivation.side_counts(),
            other_states=_all_states(derivation.sums.other_states),
            nodes_unlogged=len(derivation.unlogged),
            jobs_queued=len(queued),
            jobs_running=sum(job.state is State.RUNNING for job in queued),
        )

    def ledger(self) -> Ledger:
        """The ledger of the ensemble; built once."""
        if self._ledger is None:
            self._ledger = self._build_ledger()
        return self._ledger

    def notices(self) -> Iterator[Notice]:
        """All warnings about the input."""
        return _input_notices(self.derivation, self.live)

    def _dag_rows(self) -> Iterator[DagRow]:
        for dag in self.dags.values():
            if not dag.is_top or dag.key == NO_DAG:
                continue
            state, ended = self.ensemble.dag_state(dag.key)
            dagman_run = dag.current_run()
            if state in ENDED:
                ended = ended or end_in_utc(dag)
            counts = self.derivation.sums.counts[dag.key]
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
                submissions=dag.run_starts(),
                halted=dag.halted,
                ended=ended,
                recoveries=dag.recovery_count(),
                cluster=dagman_run.cluster if dagman_run is not None else None,
                refused=sum(run.refused for run in dag.dagman_runs()),
                hold=dagman_run.hold if dagman_run and state is DagState.HELD else None,
                nodes_unknown=counts.unknown,
                crashes=dagman_run.crash_loop if dagman_run and state in ALIVE else None,
                interrupted=dagman_run is not None and dagman_run.interrupted,
                removal=dagman_run.job.removal if dagman_run and dagman_run.job else None,
                abort=self.derivation.aborts.get(dag.key),
                other_states=+self.derivation.sums.runless_states.get(dag.key, Counter()),
                continued=state in LOST and self.derivation.is_continued(dag.key),
                exited=frozenset(
                    run.cluster
                    for run in dag.dagman_runs()
                    if run.cluster is not None
                    and (end := run.end_state()) is not None
                    and end[0] is not DagState.REMOVED
                ),
            )

    # --- lists --------------------------------------------------------------------------

    def job_rows(self) -> list[Job]:
        """All jobs but the DAGMan jobs of top-level DAGs, by cluster and proc."""
        return list(map(self.derivation.record_of, self.real_jobs()))

    def queued_jobs(self, run: str | None = None) -> tuple[Job, ...]:
        """Jobs in the queue by their logs; with ``run`` only those of that run key."""
        jobs = (self.ensemble.jobs[key] for key in self.totals.queued)
        if run is not None:
            nodes = set(self.runs.by_key[run].nodes() if run in self.runs.by_key else ())
            jobs = (job for job in jobs if self.derivation.node_of(job) in nodes)
        return tuple(map(self.derivation.record_of, jobs))

    def dag_nodes(self) -> tuple[DagNodes, ...]:
        """All DAGs with the states of their nodes, as input of a node tree."""
        from metlmon.snapshot.node_tree import DagNodes

        dag_nodes = []
        for key, dag in self.dags.items():
            subdags = {
                name: subdag
                for name in dag.workflow.nodes
                if (subdag := self.subdag_key((key, name))) is not None
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
                        name for of, name in self.derivation.overruled if of == key
                    ),
                )
            )
        return tuple(dag_nodes)

    def subdag_key(self, key: NodeKey) -> str | None:
        """The key of the sub-DAG that a SUBDAG node runs; None if it is not in this directory."""
        inner = self.derivation.sub_dags.get(key)
        is_here = inner is not None and self.dags[inner].top == self.dags[key[0]].top
        return inner if is_here else None

    # --- jobs ---------------------------------------------------------------------------

    def real_jobs(self) -> list[LoggedJob]:
        """All jobs except those of another directory's DAGs, by cluster and proc."""
        ensemble = self.ensemble
        foreign = ensemble.unproven.foreign
        jobs = (job for key, job in ensemble.jobs.items() if not job.noop and key not in foreign)
        return sorted(jobs, key=lambda job: (job.cluster, job.proc))

    def job(self, cluster: int, proc: int) -> LoggedJob | None:
        """The job with this id that was submitted last; None without one."""
        ensemble = self.ensemble
        job = ensemble.jobs.get(ensemble.reused_ids.newest((cluster, proc)))
        return None if job is None or job.key in ensemble.unproven.foreign else job

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        """The details of one job; None without such a job."""
        job = self.job(cluster, proc)
        if job is None:
            return None
        key = self.derivation.node_of(job)
        node = self.nodes.get(key) if key else None
        record, history = self.derivation.record_of(job), job.history()
        return JobView(
            job=record,
            seconds=self.seconds(record.since),
            off_target=self.derivation.off_target(record.node_key, record.site),
            events=self.event_lines(job),
            memory_updates=job.memory_updates,
            usage=_rows_used(record, job),
            usage_execution=history.usage_execution,
            output=self._file_of(job, "out"),
            error=self._file_of(job, "err"),
            siblings=self._submitted_jobs(key) if key and node else (job.id,),
        )

    def event_lines(self, job: LoggedJob) -> tuple[EventLine, ...]:
        """The events of a job as lines of text.

        Without its 006 events, and without inferred holds that its history does not need.
        """
        holds = job.history().holds
        return tuple(
            EventLine(
                time=event.time,
                number=event.number,
                name=event_name(event.number),
                text=_event_text(event.text, event.detail, event.body),
                damaged=event.damaged,
            )
            for event in job.events()
            if not (isinstance(event.detail, Held) and event.detail.inferred)
            or (event.time, event.detail) in holds
        )

    def output_file(self, key: JobKey, suffix: str = "out") -> str | None:
        """The output file of a job, or its error file ("err"), by its submit description."""
        job = self.ensemble.jobs.get(key)
        return self._file_of(job, suffix) if job is not None else None

    def is_described(self, key: JobKey) -> bool:
        """Whether the submit description of a job was read."""
        job = self.ensemble.jobs.get(key)
        node_key = self.derivation.node_of(job) if job is not None else None
        record = self.nodes.get(node_key) if node_key is not None else None
        return record is not None and record.node.described

    def _file_of(self, job: LoggedJob, suffix: str) -> str | None:
        """The output file of a job ("out"), or its error file ("err"), if known.

        For a job of no DAG, whose submit description is unknown, by the job id in the file's name.
        """
        key = self.derivation.node_of(job)
        if key is None or key[0] == NO_DAG:
            return self.ensemble.groups.outputs.name_of(job.id, suffix)
        record = self.nodes.get(key)
        if record is None:
            return None
        node = record.node
        name = _expand_macros(node.output if suffix == "out" else node.error, job)
        return name and self._from_dagdir(name, self.ensemble.dags[key[0]].workflow)

    def _from_dagdir(self, name: str, workflow: Workflow) -> str:
        """Make a name relative to its DAG's working directory relative to the dagdir.

        Files in the directory above begin with ``../``; a file elsewhere has its absolute path.
        """
        if workflow.directory == Path(self.dagdir) and not name.startswith(("..", "/")):
            return name
        path = os.path.abspath(workflow.path_of(name))
        above = os.path.dirname(os.path.abspath(self.dagdir))
        relative = os.path.relpath(path, os.path.abspath(self.dagdir))
        is_above = os.path.abspath(workflow.directory) == above
        return relative if is_above or not relative.startswith("..") else path

    # --- nodes --------------------------------------------------------------------------

    def node_row(self, key: NodeKey) -> NodeRow | None:
        """The row of a node of any kind; None for an unknown key."""
        derivation = self.derivation
        record, state = self.nodes.get(key), self.states.get(key)
        if record is None or state is None:
            return None
        node, states, dag = record.node, self.states, key[0]
        waits_for: list[str] = []
        if state.state is State.WAITING:
            waits_for = [
                name
                for name in effective_parents(self.dags[dag].workflow.nodes, key[1])
                if (dag, name) not in states or states[dag, name].state not in DONE
            ]
        run = self.runs.run_of(key)
        skipped = run is not None and state.state is State.SKIPPED
        gate = self.gate_status(run) if run is not None and skipped else None
        submissions = {(job.cluster, job.subproc) for job in record.jobs}
        return NodeRow(
            **self._node(key, derivation.node_executions(key)),
            kind=node.kind.value,
            seconds=self.seconds(state.since),
            retries=node.retries,
            retries_left=self._retries_left(key) if node.retries else None,
            parents=len(node.parents),
            unfinished_parents=len(waits_for),
            waits_for=tuple(waits_for[:MAX_WAITS_FOR]),
            children=len(node.children),
            submit=node.submit,
            stopped_by=gate.stopped.rule if gate is not None and gate.stopped else None,
            reason=self._reason(key),
            failed_ancestor=state.failed_ancestor[1] if state.failed_ancestor else None,
            submissions=len(submissions or self.dags[dag].submitted_clusters(key[1])),
        )

    def _reason(self, key: NodeKey) -> str | None:
        """Why a node failed, by DAGMan alone; else how its DAG ended where that left it so."""
        state, abort = self.states[key], self.derivation.aborts.get(key[0])
        if state.state is State.FUTILE and abort is not None and abort.ended(key, state):
            return f"the DAG was ended on purpose: {abort.text}" if abort.on_purpose else None
        failure = self.failure(key)
        is_service = self.nodes[key].node.kind is NodeKind.SERVICE
        if failure is None and state.state is State.WAITING and is_service:
            has_ended = self.ensemble.dag_state(key[0])[0] in ENDED
            return "its DAG ended before it was submitted" if has_ended else None
        return failure.text if failure is not None else None

    def failure(self, key: NodeKey) -> NodeFailure | None:
        """Why a node failed, unless its job did: by DAGMan's files, or its POST script's event."""
        state = self.states[key]
        return state.failure or _failed_post(self.nodes[key], state)

    def failed_scripts(self) -> Iterator[tuple[NodeKey, str, str]]:
        """Yield node, script type and output file of each script whose failure made its node fail.

        Scripts whose output DAGMan does not write to a file (SCRIPT DEBUG) are left out.
        """
        for key, record in self.nodes.items():
            state, node = self.states.get(key), record.node
            failure = self.failure(key) if state and state.state in FAILING else None
            script = {"pre": node.pre, "post": node.post}.get(failure.part) if failure else None
            if failure is not None and script is not None and script.debug is not None:
                name = posixpath.join(node.dir or "", script.debug[0])
                workflow = self.ensemble.dags[key[0]].workflow
                yield key, failure.part.upper(), self._from_dagdir(name, workflow)

    def _node(self, key: NodeKey, executions: Sequence[Execution]) -> dict[str, Any]:
        """The fields of a :class:`Node`, for a node of any kind."""
        derivation, state = self.derivation, self.states[key]
        run, job = self.runs.run_of(key), self._node_job(key)
        return {
            "dag": derivation.dag_file(key[0]),
            "in_dag": key[0],
            "node": key[1],
            "key": run.key if run is not None else None,
            "run": derivation.run_names[run.key][0] if run is not None else None,
            "state": state.state,
            "inferred": state.inferred,
            "since": state.since,
            "target": derivation.target(key),
            "off_target": derivation.off_target(key, job.site if job else None),
            "jobs": self._submitted_jobs(key),
            "job": job,
            "attempts": max((execution.attempt for execution in executions), default=0),
        }

    def _node_job(self, key: NodeKey) -> Job | None:
        """The job that determines a node's state; None for a NOOP node."""
        job = self.states[key].job
        return None if job is None or job.noop else self.derivation.record_of(job)

    def _submitted_jobs(self, key: NodeKey) -> tuple[JobId, ...]:
        result = submission_result(self.nodes[key])
        jobs = result.jobs if result is not None else ()
        return tuple(job.id for job in jobs if not job.noop)

    def _retries_left(self, key: NodeKey) -> int:
        """Retries that DAGMan has left for a node; 0 if it let the node fail."""
        state = self.states[key]
        if state.state is State.FAILED and not state.can_retry:
            return 0
        return retries_left(self.dags[key[0]], self.nodes[key])

    # --- runs ---------------------------------------------------------------------------

    def run(self, run: RunNodes) -> Run:
        """The record of a run; built once."""
        if run.key not in self._runs:
            self._runs[run.key] = self._run(run)
        return self._runs[run.key]

    def _run(self, run: RunNodes) -> Run:
        derivation = self.derivation
        run_state, home_node = self.run_states[run.key], derivation.naming_node(run)
        nodes = run.nodes()
        name, label = derivation.run_names[run.key]
        unit, totals = self.totals.hour_unit, self.totals.runs.get(run.key)
        if derivation.is_beside(nodes[0]):
            # The totals of the runs are those of the DAGs alone.
            executions = chain.from_iterable(map(derivation.node_executions, nodes))
            totals = ExecutionTotals(unit, executions)
        overruled, unlogged = derivation.overruled, derivation.unlogged
        latest = self.epoch(run_state.latest) if run_state.latest else None
        failed = self.epoch(run_state.failed) if run_state.failed else None
        current = failed or latest
        unknown = [
            key
            for key in run_state.epochs.values()
            if State.UNKNOWN in run_state.states and self.states[key].is_unknown
        ]
        return Run(
            key=run.key,
            run=name,
            uuid=run.uuid,
            label=label,
            dag=derivation.dag_file(home_node[0]),
            item=run.item,
            began=derivation.first_submission(nodes),
            abort=run_state.abort,
            epochs_total=len(run_state.epochs),
            epochs_done=run_state.states[State.COMPLETED],
            epochs_inferred=run_state.inferred,
            epochs_skipped=run_state.states[State.SKIPPED],
            state=run_state.state,
            latest=latest,
            hours=(totals or ExecutionTotals(unit)).hours,
            gate=self.gate_status(run),
            failed=failed,
            seconds=self.seconds(current.since) if current is not None else None,
            retries_left=self._retries_left(latest.node_key) if latest is not None else None,
            epochs_unknown=len(unknown),
            epochs_unlogged=sum(not derivation.node_executions(key) for key in unknown),
            epochs_overruled=sum(key in overruled for key in run_state.epochs.values())
            if overruled
            else 0,
            nodes_unlogged=len(unlogged.intersection(nodes)) if unlogged else 0,
        )

    def find_runs(self, wanted: str) -> list[Run]:
        """Runs whose uuid begins with ``wanted``, or whose name is ``wanted``.

        Names match in any case, but one in the same case wins. An exact uuid or name excludes runs
        that match by prefix only.
        """
        runs = [self.run(run) for run in self.runs.by_key.values()]
        exact = [run for run in runs if wanted in (run.uuid, run.key)]
        named = [run for run in runs if run.run.lower() == wanted.lower()]
        if exact or named:
            return exact or [run for run in named if run.run == wanted] or named
        prefix = wanted.lower()
        return [run for run in runs if prefix and (run.uuid or "").lower().startswith(prefix)]

    def run_view(self, key: str) -> RunView | None:
        """One run with its epochs; None without such a run."""
        run = self.runs.by_key.get(key)
        if run is None:
            return None
        counted = dict.fromkeys(self.run_states[key].epochs.values())
        others = [node for nodes in run.epochs.values() for node in nodes if node not in counted]
        listed = sorted(
            [*counted, *(node for node in others if self.nodes[node].jobs)],
            key=lambda node: (
                self.runs.parts[node].epoch or 0,
                self.states[node].submitted is None,
            ),
        )
        epochs, side = self.epochs_of(run), {node: self.epoch(node) for node in run.side_nodes}
        side_rows: dict[NodeKey | None, list[Epoch]] = {}
        for node, row in side.items():
            side_rows.setdefault(self._epoch_before(node, run), []).append(row)
        return RunView(
            self.run(run),
            tuple(
                replace(epochs[node], evaluations=tuple(side_rows.get(node, ()))) for node in listed
            ),
            tuple(side.values()),
        )

    def _epoch_before(self, key: NodeKey, run: RunNodes) -> NodeKey | None:
        """The epoch of the run that is a parent of a side node, the last of several.

        Only the edges count, since the numbers in the names differ (the evaluation of train_epoch0
        is eval_epoch1).
        """
        runs, nodes = self.runs, self.dags[key[0]].workflow.nodes
        parents = [(key[0], name) for name in effective_parents(nodes, key[1])]
        epochs = [k for k in parents if runs.run_of(k) is run and runs.parts[k].training]
        return max(epochs, key=lambda k: runs.parts[k].epoch or 0, default=None)

    def epochs_of(self, run: RunNodes) -> Mapping[NodeKey, Epoch]:
        """The epochs of a run by node, in order."""
        keys = (key for number in sorted(run.epochs) for key in run.epochs[number])
        return {key: self.epoch(key) for key in keys}

    def epoch(self, key: NodeKey) -> Epoch:
        """One node of a run; that of an earlier snapshot if none of its inputs has changed."""
        derivation, job = self.derivation, self._node_job(key)
        source = (
            self.states[key],
            submission_result(self.nodes[key]),
            derivation.node_jobs(key),
            len(self.dags[key[0]].node_reports.get(key[1], ())),
            # Only the wait of a job without an end lasts up to as-of.
            self.as_of if job is not None and job.ended is None else None,
            self._counts(key),
            derivation.run_names[self.runs.parts[key].group],
            self.totals.hour_unit,
            self.ensemble.placements,
        )
        known = derivation.epochs.get(key)
        if known is None or known[0] != source:
            known = derivation.epochs[key] = source, self._epoch(key)
        return known[1]

    def _counts(self, key: NodeKey) -> bool:
        """Whether a node counts for its epoch; True for nodes that are no epochs."""
        part = self.runs.parts.get(key)
        if part is None or not part.training:
            return True
        return self.run_states[part.group].epochs.get(part.number) == key

    def _epoch(self, key: NodeKey) -> Epoch:
        derivation = self.derivation
        state, part = self.states[key], self.runs.parts[key]
        run = self.runs.by_key[part.group]
        _, label = derivation.run_names[run.key]
        executions = derivation.node_executions(key)
        charged = (each for each in executions if not each.at_access_point)
        fields = self._node(key, executions)
        wait, transfer, seconds = self._phases(fields["job"])
        success = self._success(key)
        is_done = state.state is State.COMPLETED
        # The schedd numbers clusters in order, and either of two files may be ahead.
        last_reported = max(self.dags[key[0]].submitted_clusters(key[1]), default=None)
        return Epoch(
            **fields,
            uuid=run.uuid,
            label=label,
            epoch=part.epoch,
            epoch_var=part.epoch_var,
            training=part.training,
            counts=self._counts(key),
            failure=self.failure(key),
            first_submitted=derivation.first_submission([key]),
            cluster=state.job.cluster if state.job else last_reported,
            proc=state.job.proc if state.job else None,
            completed=_ended(derivation, key, state, success) if is_done else None,
            success=success,
            # max() returns the first of several of equal length.
            longest=max(executions, key=lambda each: each.trained, default=None),
            hours=ExecutionTotals(self.totals.hour_unit, charged).hours,
            queue_wait=wait,
            transfer=transfer,
            execution=seconds,
        )

    def _success(self, key: NodeKey) -> Execution | None:
        """The execution that completed a node; None if the node is not completed."""
        result = submission_result(self.nodes[key])
        is_completed = self.states[key].state is State.COMPLETED
        if not is_completed or result is None or result.success_job is None:
            return None
        record, index = self.derivation.jobs.get(result.success_job), result.success_index
        # Newer events, which the records do not have yet, may have completed it.
        executions = record.executions if record is not None else ()
        return executions[index] if index < len(executions) else None

    def _phases(self, job: Job | None) -> tuple[float | None, float | None, float | None]:
        """Seconds of the last attempt: queue wait, input transfer, execution."""
        if job is None or job.submitted is None:
            return None, None, None
        last = job.last_execution
        started = [(span.start, span) for span in job.transfers if span.start is not None]
        queue_start: datetime = job.submitted
        if last is None or (job.queued and last.end is not None):
            queue_start = (last.end if last else None) or queue_start
            spans = [(start, span) for start, span in started if start >= queue_start]
            queue_end, execution = spans[-1][0] if spans else job.ended, None
        else:
            previous = job.executions[-2] if len(job.executions) > 1 else None
            queue_start = (previous.end if previous else None) or queue_start
            spans = [
                (start, span)
                for start, span in started
                if (span.direction, span.outcome) == ("input", "ok")
                and queue_start <= start <= last.start
            ]
            queue_end = spans[-1][0] if spans else last.start
            execution = self.seconds(last.start, last.end)
        transfer = self.seconds(spans[-1][0], spans[-1][1].end) if spans else None
        return self.seconds(queue_start, queue_end), transfer, execution

    def gate_status(self, run: RunNodes) -> GateStatus | None:
        """The gate status of a run; None if it has no gate and nothing stopped it.

        Of several DAGs the running one counts, else the one with the run's last epoch.
        """
        state = self.run_states[run.key]
        if (abort := state.abort) is not None:
            stopped = Stopped(ABORT_RULE, state.ends_before, abort.text, abort.since, abort.node[1])
            return GateStatus(stopped=stopped)
        gated, ensemble = run.gated_dags, self.ensemble
        if not gated:
            return None
        here = [dag for dag in gated if dag in ensemble.dags]
        running = [dag for dag in here if ensemble.dag_state(dag)[0] in ALIVE]
        # Not the latest submitted epoch: a run stopped before training in this DAG has none.
        last = state.epochs[max(state.epochs)][0] if state.epochs else None
        dag = running[-1] if running else last if last in gated else gated[-1]
        reports = ensemble.gates.get(dag, {}).get(run.uuid or "")
        return gate_status(reports, self.clock, ensemble.cut, bool(running))

    # --- the ledger, and the description of the DAGs ------------------------------------

    def _build_ledger(self) -> Ledger:
        """The ledger of a snapshot."""
        derivation = self.derivation
        jobs = [derivation.jobs[key] for key in sorted(derivation.jobs)]
        # Jobs of no DAG in a directory with DAGs have no part in estimates and curves.
        in_order = self.runs.in_order()
        runs = [run for run in in_order if not derivation.is_beside(run.nodes()[0])]
        restarts = (job.restarts for dag in self.dags.values() for job in dag.logs.jobs)
        return Ledger(
            dagdir=self.dagdir,
            as_of=self.as_of,
            live=self.live,
            runs=tuple(map(self.run, runs)),
            epochs=tuple(chain.from_iterable(self.epochs_of(run).values() for run in runs)),
            jobs=tuple(jobs),
            executions=tuple(chain.from_iterable(job.executions for job in jobs)),
            transfers=tuple(chain.from_iterable(job.transfers for job in jobs)),
            # A copy, since the reader still refines the offset from UTC.
            seconds_between=deepcopy(self.clock).seconds,
            nodes_unlogged=len(derivation.unlogged),
            measure=self.totals.hour_unit,
            faults=tuple(
                self._fault(key)
                for key in sorted(derivation.faulty)
                if (abort := derivation.aborts.get(key[0])) is None
                or not abort.ended(key, self.states[key])
            ),
            aborts=derivation.aborts,
            restarts=tuple(sorted(set(chain.from_iterable(restarts)))),
            dagmans=tuple(self._dagmans()),
            item="job" if any(run.item == "job" for run in runs) else "epoch",
            jobs_beside={
                run.key: tuple(chain.from_iterable(map(derivation.node_jobs, run.nodes())))
                for run in in_order
                if derivation.is_beside(run.nodes()[0])
            },
        )

    def _dagmans(self) -> Iterator[DagmanLife]:
        """The DAGMans of the top-level DAGs, those of each DAG in the order of their starts."""
        for dag in self.dags.values():
            if not dag.is_top or dag.key == NO_DAG:
                continue
            for run in dag.dagman_runs():
                # For the current run, DAGMan's other files count, too.
                is_current = run is dag.current_run()
                ended = self.ensemble.dag_state(dag.key) if is_current else run.end_state()
                state, end = ended or (None, None)
                began = [PurePath(p.rescue).name for p in run.processes if p.rescue]
                wrote = [PurePath(p.wrote).name for p in run.processes if p.wrote]
                starts = [p.start for p in run.processes if p.start is not None]
                yield DagmanLife(
                    dag=dag.file,
                    cluster=run.cluster,
                    start=run.start,
                    end=end,
                    state=state if state in ENDED else None,
                    rescue=began[0] if began else None,
                    wrote=wrote[-1] if wrote else None,
                    restarts=tuple(starts[1:]),
                    refused=run.refused,
                    holds=tuple(run.job.holds) if run.job is not None else (),
                )

    def _fault(self, key: NodeKey) -> NodeFault:
        derivation = self.derivation
        state, node = self.states[key], self.nodes[key].node
        run, part = self.runs.run_of(key), self.runs.parts.get(key)
        futile = state.state is State.FUTILE
        tried = 0 if futile else tries(self.dags[key[0]], self.nodes[key])[0]
        failure = self.failure(key)
        return NodeFault(
            node_key=key,
            dag=derivation.dag_file(key[0]),
            state=state.state,
            key=run.key if run is not None else None,
            epoch=part.epoch if part is not None else None,
            training=part is not None and part.training,
            counts=self._counts(key),
            since=state.since,
            job=state.job.key if state.job is not None else None,
            tries=tried,
            retries=node.retries,
            unless_exit=node.unless_exit if state.unless_exit else None,
            part=failure.part if failure is not None else None,
            reason=failure.text if failure is not None else None,
            error=failure.error if failure is not None else None,
            script=self._script(key, failure.part, tried) if failure else None,
            failed_ancestor=state.failed_ancestor,
            subdag=self.subdag_key(key),
        )

    def _script(self, key: NodeKey, part: str, tried: int) -> str | None:
        """The command line of the script that failed; for a FINAL node, as DAGMan calls it."""
        node, macros = self.nodes[key].node, dict[str, str]()
        if node.kind is NodeKind.FINAL:
            others = (each for o, each in self.states.items() if o[0] == key[0] and o != key)
            found = Counter(each.state for each in others)
            macros["$FAILED_COUNT"] = str(found[State.FAILED])
            if found[State.FAILED] and not found[State.REMOVED]:
                macros["$DAG_STATUS"] = "2"
        return _script_command(node, part, tried, self.states[key].job, macros)

    def dag_description(self, previous: Nodes | None = None) -> DagDescription:
        """The description of the DAGs of a snapshot.

        ``previous``: the nodes of the last description, if the DAG files have not changed since.
        """
        nodes = previous or Nodes(
            tuple(self._describe_node(key) for key in self.nodes if key[0] != NO_DAG)
        )
        states = {
            node.node_key: self.states[node.node_key] for node in nodes.all if node.key is None
        }
        completed = {
            key: node.since
            for key, node in states.items()
            if node.state is State.COMPLETED and node.since is not None
        }
        return DagDescription(nodes, {key: node.state for key, node in states.items()}, completed)

    def _describe_node(self, key: NodeKey) -> DescribedNode:
        run, part = self.runs.run_of(key), self.runs.parts.get(key)
        return DescribedNode(
            node_key=key,
            dag=self.derivation.dag_file(key[0]),
            node=self.nodes[key].node,
            key=run.key if run is not None else None,
            run=part.run if part is not None else None,
            uuid=run.uuid if run is not None else None,
            training=part is not None and part.training,
        )


def _rows_used(job: Job, logged: LoggedJob) -> tuple[UsageRow, ...]:
    """The newest usage table, with the use of CPUs and GPUs from :class:`ResourceUsage`."""
    history = logged.history()
    rows, number = usage_rows(history.usage), history.usage_execution
    used = job.executions[number - 1].usage if 0 < number <= len(job.executions) else None
    if used is None:
        return rows
    figures = {"cpus": used.cpus, "gpus": used.gpus, "gpusmemory": used.gpu_memory_mb}
    return tuple(replace(row, usage=figures.get(row.name.lower(), row.usage)) for row in rows)


def _event_text(text: str, detail: object, body: str) -> str:
    """An event's header text, followed by its body, or by the reason that covers it."""
    reason: str | None
    if isinstance(detail, RemoteError):
        reason = detail.message
    else:
        reason = body.strip() or getattr(detail, "reason", None)
    return f"{text} {reason}".strip() if reason else text


def _expand_macros(name: str | None, job: LoggedJob) -> str | None:
    """A file name with the ``$(Cluster)`` and ``$(Process)`` macros expanded."""
    if name is None:
        return None
    return _PROCESS.sub(str(job.proc), _CLUSTER.sub(str(job.cluster), name))


def _script_command(
    node: Node, part: str, tried: int, job: LoggedJob | None, of_dag: Mapping[str, str]
) -> str | None:
    """The command line of the script that failed, for a shell in the DAG file's directory.

    DAGMan splits it at blanks, replaces words that are macros, and starts it in the directory of
    the node. ``tried``: the number of tries of the node. ``of_dag``: the values of macros that
    depend on the other nodes.
    """
    script = {"pre": node.pre, "post": node.post}.get(part)
    if script is None:
        return None
    macros = {"$JOB": node.name, "$NODE": node.name, "$MAX_RETRIES": str(node.retries), **of_dag}
    if tried:
        macros["$RETRY"] = str(tried - 1)
    if job is not None:
        history = job.history()
        value = -history.signal if history.signal else history.return_value
        macros["$JOBID"] = f"{job.cluster}.{job.proc}"
        macros |= {"$RETURN": str(value)} if value is not None else {}
    name, *arguments = (macros.get(word.upper(), word) for word in script.command.split())
    name = name if "/" in name else f"./{name}"
    change = f"cd {shlex.quote(node.dir)} && " if node.dir else ""
    return change + shlex.join([name, *arguments])


def _failed_post(record: NodeRecord, state: NodeState) -> NodeFailure | None:
    """The failure of a node whose POST script failed although its job succeeded."""
    post, job = record.posts[-1] if record.posts else None, state.job
    if state.state not in FAILING or post is None or post.ok or job is None:
        return None
    if job.history().state is not State.COMPLETED:
        return None
    text = name_script(failure_text("post", post.value), "post", record.node)
    return NodeFailure("post", text, post.value)


def _ended(
    derivation: Derivation, key: NodeKey, state: NodeState, success: Execution | None
) -> datetime | None:
    """When a completed node ended.

    None if only a rescue file, a node status file or the submission of a later node shows that
    it ended: these do not have the time.
    """
    if success is not None:
        return success.end
    if state.inferred or state.since is None:
        return None
    times = [post.time for post in derivation.nodes[key].posts if post.ok]
    if state.job is not None:
        job = derivation.record_of(state.job)
        times += [job.ended] if job.state is State.COMPLETED and job.ended else []
    for report in derivation.dags[key[0]].node_reports.get(key[1], ()):
        if report.kind in (MessageKind.POST_OK, MessageKind.JOB_OK):
            clock = derivation.ensemble.clock
            local = clock.to_local(report.epoch) if report.epoch is not None else None
            times += [time for time in (report.time, local) if time is not None]
    return state.since if state.since in times else None


def _all_states(counts: Mapping[State, int]) -> Mapping[State, int]:
    """The counts with 0 for every state that is missing."""
    return {state: counts.get(state, 0) for state in State}


# --- warnings about the input ---------------------------------------------------------

GAVE_UP_SUFFIX: Final = " Aborting."
"""End of DAGMan's last message when it aborts and the schedd may start it again."""

MAX_NAME: Final = 60
"""Characters of a node name in a warning."""

OF_A_MOMENT: Final = frozenset({"undated", "before-first-event"})
"""Kinds of notices that apply only to the time of ``--as-of``."""

MAX_FILES_NAMED: Final = 5
"""Number of files named in one warning."""


def _input_notices(derivation: Derivation, live: bool) -> Iterator[Notice]:
    """All warnings about the input of an ensemble whose node states are resolved."""
    ensemble = derivation.ensemble
    yield from ensemble.lasting_notices
    yield from _zone_conflict(ensemble.clock)
    yield from _as_of_warnings(ensemble)
    yield from _reused_ids(ensemble.reused_ids)
    yield from ensemble.notices
    yield from _dagman_errors(ensemble)
    for dag in _dags(ensemble):
        yield from _missing_files(derivation, dag)
        yield from _lost_rescue(dag)
        yield from _changed_dag_file(derivation, dag)
        yield from _different_counts(derivation, dag)
        yield from _outdated_files(derivation, dag)
        yield from _lost_ends(derivation, dag)
    if names := derivation.unknown_nodes.get("", ()):
        text = (
            f"epochs that no DAG file here has are in the logs: {_first_name(names)}; they are in "
            "no run: the DAG file was changed since, or is not here"
        )
        yield Notice("unknown-nodes", None, None, text)
    yield from _missing_dag_files(derivation)
    if live:
        yield from _duplicate_jobs(derivation)
    yield from _foreign_jobs(ensemble)
    yield from _ambiguous_jobs(derivation)
    yield from _log_gaps(derivation)


def _dags(ensemble: Ensemble) -> list[Dag]:
    return [dag for key, dag in ensemble.dags.items() if key != NO_DAG]


def _zone_conflict(clock: Clock) -> Iterator[Notice]:
    """Warn if DAGMan's files contradict the time zone of the settings."""
    contradiction = clock.contradiction()
    if contradiction is None:
        return
    local, offset = contradiction
    sign, minutes = "-" if offset < timedelta() else "+", abs(offset) // timedelta(minutes=1)
    states = f"DAGMan's files state UTC{sign}{minutes // 60:02d}:{minutes % 60:02d}"
    text = f"the zone {clock.zone} does not fit: {states} on {local:%Y-%m-%d}; mend tz, or --tz"
    yield Notice("time-zone", None, None, text)


def _undated_files(ensemble: Ensemble) -> Iterator[Notice]:
    """Yield one warning about all files not known to be from before or after ``--as-of``."""
    names = [name for dag in ensemble.dags.values() for name in dag.undated_files()]
    if names:
        reason = "they state UTC, and no file has the logs' zone (give --tz, as America/Chicago)"
        if ensemble.clock.has_offset:
            reason = "they have no date"
        text = (
            f"files are left out, for whether they were written by then is not known: {reason}: "
            f"{listed(names, MAX_FILES_NAMED)}"
        )
        yield Notice("undated", None, None, text)


def _as_of_warnings(ensemble: Ensemble) -> Iterator[Notice]:
    """Yield the warnings that apply only to the time of ``--as-of``."""
    if ensemble.cut is None:
        return
    yield from _undated_files(ensemble)
    first = ensemble.offsets.first_later
    if ensemble.newest is None and first is not None:
        text = f"nothing had been logged by {ensemble.cut}: the first event is of {first}"
        yield Notice("before-first-event", None, None, text)


def _reused_ids(reused: ReusedJobIds) -> Iterator[Notice]:
    """Warn about job ids that another schedd has used again."""
    if not reused:
        return
    examples = ", ".join(f"{cluster}.{proc}" for cluster, proc in islice(reused, 3))
    more = ", …" if len(list(islice(reused, 4))) > 3 else ""
    text = (
        f"job ids were given out again by another schedd: {examples}{more}; "
        "each is a job of its own"
    )
    yield Notice("ids-again", None, None, text)


def _missing_files(derivation: Derivation, dag: Dag) -> Iterator[Notice]:
    """Warn about missing files that would show the state of inferred or unknown nodes."""
    without = derivation.ensemble.states.unrecorded(dag.key)
    if without is None:
        return
    # Nodes to which jobs here may belong have a warning of their own.
    possible = [key for key, record in derivation.nodes.items() if record.possible]
    ambiguous = sum(
        key[0] == dag.key and derivation.states[key].state is State.UNKNOWN for key in possible
    )
    inferred, unknown = without.inferred, without.unknown - ambiguous
    if not inferred and unknown <= 0:
        return
    name = missing_rescue(dag)
    file = name or f"{PurePath(dag.file).name}.rescueNNN"
    states = [
        *([f"{_nodes(inferred)} taken for done"] if inferred else ()),
        *([f"of {_nodes(unknown)} nothing is known"] if unknown > 0 else ()),
    ]
    counted = " and ".join(states)
    if name is not None:
        text = f"the rescue file with which DAGMan began is not here: {counted}"
    elif without.lost:
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


def _lost_rescue(dag: Dag) -> Iterator[Notice]:
    """Warn if the newest rescue file that DAGMan wrote since its last start is missing."""
    cut = dag.cut or datetime.max
    times = {name: when for name, when in dag.out_times.written.items() if when <= cut}
    newest = max(times, key=lambda name: times[name], default=None)
    if newest is None:
        return
    number = rescue_number(newest, PurePath(dag.file).name)
    last = dag.processes[-1] if dag.processes else None
    if number is None or number <= max(dag.rescue_files, default=0):
        return
    if last is None or last.start is None or last.start <= times[newest]:
        text = f"DAGMan wrote it at {moment(times[newest])}, and it is not here"
        yield Notice("missing-rescue", newest, None, f"{text}; put it beside the DAG file")


def _nodes(number: int) -> str:
    return f"{number} node" if number == 1 else f"{number} nodes"


def _changed_dag_file(derivation: Derivation, dag: Dag) -> Iterator[Notice]:
    """Warn if the DAG file is not the one that ran: its node names or numbers differ."""
    start = dag.last_fresh_start()
    in_dagman_out = [
        name
        for name, time in dag.unknown_nodes.items()
        if name not in dag.workflow.nodes and (start is None or time is None or time >= start)
    ]
    sources: list[tuple[str, Collection[str]]] = [
        (f"{dag.file}.nodes.log", derivation.unknown_nodes.get(dag.key, ())),
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


def _outdated_files(derivation: Derivation, dag: Dag) -> Iterator[Notice]:
    """Warn if a DAGMan was active after the end that its files report."""
    ending = dag.end_state()
    queued = map(derivation.attributions.get, derivation.totals.queued)
    if ending is not None and ending[1] is None and any(a and a.dag == dag.key for a in queued):
        text = (
            "its DAGMan ended by its files, at a time that is unknown without --tz, and jobs "
            "of it are in the queue by the logs: one of them is older than the others"
        )
        yield Notice("log-behind", dag.file, None, text)
    if ending is not None and derivation.ensemble.states.was_active_after(dag.key, ending[1]):
        text = (
            f"its DAGMan ended at {moment(ending[1])} by its files, and something was done since: "
            "files of a later DAGMan are not here, or older than the others"
        )
        yield Notice("log-behind", dag.file, None, text)


def _other_dag_notice(dag: Dag, text: str) -> Notice:
    advice = "it was changed since, or is another DAG's; states of nodes may be wrong"
    return Notice("dag-file-changed", dag.file, None, f"not the DAG that ran: {text}; {advice}")


def _different_counts(derivation: Derivation, dag: Dag) -> Iterator[Notice]:
    """Warn if DAGMan's final node counts differ from those of the logs."""
    metrics = current_metrics(dag)
    if metrics is None or metrics.succeeded is None or metrics.total_nodes is None:
        return
    if any(node.kind in SPECIAL_KINDS for node in dag.workflow.nodes.values()):
        return  # DAGMan counts some of these twice.
    counts = derivation.sums.counts[dag.key]
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


def _dagman_errors(ensemble: Ensemble) -> Iterator[Notice]:
    """Warn about errors with which DAGMan gave up, and which no failed node explains."""
    for dag in _dags(ensemble):
        last_run = dag.current_run()
        error = (
            last_run.processes[-1].error if last_run is not None and last_run.processes else None
        )
        state = ensemble.dag_state(dag.key)[0]
        if not error or state not in (DagState.FAILED, DagState.UNKNOWN):
            earlier = (process.error for process in dag.processes[:-1] if not process.ended)
            error = next((text for text in earlier if text and text.endswith(GAVE_UP_SUFFIX)), None)
        file = f"{dag.key}.dagman.out"
        if error:
            yield Notice("dagman-error", file, None, f"DAGMan: {error}")
        if last_run is not None:
            yield from _unread_events(last_run, file)


def _unread_events(run: DagmanRun, file: str) -> Iterator[Notice]:
    """Warn about events that DAGMan could not read or understand, and about resulting crashes."""
    if (loop := run.crash_loop) is not None:
        text = f"DAGMan crashed {loop.number} times: {loop.message}"
        yield Notice("dagman-crash", file, None, text)
    bad = [process.bad_events for process in run.processes if process.bad_events is not None]
    if bad:
        number = sum(n for _, n in bad)
        more = f" (and {number - 1} more)" if number > 1 else ""
        yield Notice("dagman-bad-event", file, None, f"DAGMan: BAD EVENT: {bad[0][0]}{more}")
    times = [process.log_error for process in run.processes if process.log_error is not None]
    if times:
        text = f"DAGMan could not read an event of its log at {moment(times[-1])}"
        yield Notice("dagman-log-error", file, None, f"{text}: it may have lost the end of a job")


def _lost_ends(derivation: Derivation, dag: Dag) -> Iterator[Notice]:
    """Warn about ends of jobs that a log has, but DAGMan has not read."""
    lost = [
        state.job
        for key in sorted(derivation.faulty)
        if key[0] == dag.key and (state := derivation.states[key]).state is State.UNKNOWN
        if state.job is not None
    ]
    if lost:
        job = lost[0]
        more = f" (and of {count(len(lost) - 1, 'job')} more)" if len(lost) > 1 else ""
        log = min(job.user_logs or job.nodes_logs, default=None)
        text = (
            f"it has the end of job {job.cluster}.{job.proc}{more}, and DAGMan has not read it, by "
            "DAGMan's own files: its log may lack that event"
        )
        yield Notice("lost-end", log, None, text)


def _duplicate_jobs(derivation: Derivation) -> Iterator[Notice]:
    """Warn about nodes with jobs of several submissions in the queue.

    A DAGMan whose log is missing submits jobs again that are still running.
    """
    by_node: dict[NodeKey, list[JobKey]] = defaultdict(list)
    for key in derivation.totals.queued:
        if (node := derivation.node_of(derivation.ensemble.jobs[key])) is not None:
            by_node[node].append(key)
    duplicated = [node for node, jobs in by_node.items() if len({key[0] for key in jobs}) > 1]
    if not duplicated:
        return
    (dag, name), number = min(duplicated), len(duplicated)
    jobs = by_node[dag, name]
    clusters = sorted({key[0] for key in jobs})
    more = f" (and so have {number - 1} more nodes)" if number > 1 else ""
    text = f"{name} has jobs of {len(clusters)} submissions in the queue by their logs"
    if all(derivation.attributions[k].proven for k in jobs):
        text += (
            f", {', '.join(map(str, clusters))}{more}: DAGMan heeds the newest alone, the "
            "others take slots and may write the same files; condor_rm them if condor_q has "
            "them"
        )
    else:
        text += (
            f"{more}: DAGMan heeds the newest alone; no file here proves that all of them are "
            f"{derivation.dag_file(dag)}'s, so ask condor_q whose they are (DAGManJobId, Iwd)"
        )
    yield Notice("doubled-node", derivation.dag_file(dag), None, text)


def _foreign_jobs(ensemble: Ensemble) -> Iterator[Notice]:
    """Warn about logs that jobs of another directory's DAG write to as well."""
    for log, number in sorted(ensemble.unproven.foreign_by_log.items()):
        text = (
            f"{count(number, 'job')} in it {'was' if number == 1 else 'were'} submitted by a "
            "DAG that is not in this directory but has the same node names, and "
            f"{'is' if number == 1 else 'are'} left out; give each directory a log of its own"
        )
        yield Notice("shared-log", log, None, text)


def _ambiguous_jobs(derivation: Derivation) -> Iterator[Notice]:
    """Warn about jobs that may belong to more than one DAG."""
    groups: dict[tuple[str, ...], list[LoggedJob]] = defaultdict(list)
    for key in sorted(derivation.ambiguous):
        attribution = derivation.attributions.get(key)
        if attribution is not None and attribution.candidates:
            groups[attribution.candidates].append(derivation.ensemble.jobs[key])
    for candidates, jobs in groups.items():
        files = ", ".join(derivation.dags[key].file for key in candidates)
        examples = listed([f"{job.cluster}.{job.proc}" for job in jobs], 3)
        text = (
            f"{len(jobs)} jobs ({examples}) may belong to any of {files}: "
            "keep each DAG's .dagman.out or .nodes.log beside it to distinguish them"
        )
        if len(candidates) == 1:
            text = (
                f"{count(len(jobs), 'job')} ({examples}) may belong to {files}, or to "
                "the DAG of another directory that writes the same log: keep its .dagman.out "
                "and .nodes.log beside it to distinguish them"
            )
        yield Notice("ambiguous-dag", min(jobs[0].user_logs, default=None), None, text)


def _missing_dag_files(derivation: Derivation) -> Iterator[Notice]:
    """Warn if a DAG submitted the jobs of a directory without DAG files."""
    jobs = derivation.ensemble.jobs.values() if not derivation.has_dags else ()
    job = next((job for job in jobs if job.node_name), None)
    if job is None:
        return
    text = (
        "a DAG submitted jobs of this log, and its file was not read: epochs not submitted yet are "
        "not counted, and jobs of one node name are tries of one epoch; give the directory of the "
        "DAG file, or put it beside the log"
    )
    yield Notice("no-dag-file", min(job.user_logs, default=None), None, text)


def _log_gaps(derivation: Derivation) -> Iterator[Notice]:
    """Warn about events that are missing in the logs."""
    for key in derivation.totals.gaps:
        job, record = derivation.ensemble.jobs[key], derivation.jobs.get(key)
        file = min(job.user_logs or job.nodes_logs, default=None)
        for line, text in record.gaps if record is not None else ():
            where = line if job.user_logs else None
            yield Notice("log-gap", file, where, f"job {job.cluster}.{job.proc}: {text}")
