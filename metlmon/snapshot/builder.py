"""Builds the immutable snapshot types from the state model.

All definitions are those of ``metlmon/README.md``. A :class:`SnapshotBuilder` holds an ensemble
and its aggregates at one moment; its methods build the rows and views that screens, tables and
JSON show.
"""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from metlmon.dagman import NodeKind
from metlmon.eventlog import (
    Aborted,
    ConnectionEvent,
    Evicted,
    Execute,
    Generic,
    Held,
    Released,
    RemoteError,
)
from metlmon.model.ensemble import Ensemble
from metlmon.model.gates import gate_status
from metlmon.model.hour_unit import HourUnit
from metlmon.model.job import Execution, JobHistory, TransferSpan
from metlmon.model.job_events import Job, NodeKey
from metlmon.model.node import (
    NodeState,
    SubmissionResult,
    last_good_execution,
    node_submissions,
    retries_left,
    submission_result,
)
from metlmon.model.node_neighbours import effective_parents
from metlmon.model.run import Run, variable
from metlmon.model.sites import host_of
from metlmon.model.states import ACTIVE, ALIVE, DONE, ENDED, DagState, Outcome, State
from metlmon.model.unrecorded_nodes import effective_counts, end_in_utc
from metlmon.snapshot.aggregates import normalize_name
from metlmon.snapshot.file_conflicts import file_conflicts
from metlmon.snapshot.ledger import Ledger
from metlmon.snapshot.problems import ProblemTotals
from metlmon.snapshot.running_totals import (
    AN_HOUR,
    SECOND,
    Cause,
    GpuSeconds,
    JobKey,
    RunningTotals,
    SiteTotals,
    cause_of_loss,
)
from metlmon.snapshot.types import (
    CauseRow,
    DagRow,
    EpochRow,
    EventLine,
    ExecutionRow,
    FailedEpoch,
    GateStatus,
    GpuHours,
    GpuRow,
    JobRow,
    JobView,
    Latest,
    LogRow,
    NodeRow,
    Notice,
    ProblemGroup,
    RunRow,
    RunView,
    SideCounts,
    SiteRow,
    Status,
    TransferRow,
)
from metlmon.text.formatting import count

if TYPE_CHECKING:
    from metlmon.snapshot.ledger_builder import LedgerBuilder
    from metlmon.snapshot.node_tree import DagNodes

HOUR: Final = 3600.0
GAVE_UP_SUFFIX: Final = " Aborting."
"""End of DAGMan's last message where it aborts, and the schedd may start it again."""

MAX_WAITS_FOR: Final = 8
"""Unfinished parents that are listed by name: more do not fit on a line."""

ANY_SITE_TARGETS: Final = frozenset({"any", "anywhere", "all"})
"""Targets that every site matches."""

POOL_TARGETS: Final = frozenset({"osg", "ospool"})
"""Targets that name a pool of sites: only another target's own site is off target."""


class SnapshotBuilder:
    """Builds snapshots of an ensemble at one moment.

    ``as_of`` None: the time of its newest event.
    """

    def __init__(
        self, ensemble: Ensemble, dagdir: str, as_of: datetime | None = None, live: bool = False
    ) -> None:
        self.ensemble = ensemble
        # Hold the present mappings: DAG files that are re-read while this snapshot is shown make
        # the ensemble replace them.
        self.dags, self.nodes, self.attributions = (
            ensemble.dags,
            ensemble.nodes,
            ensemble.attributions,
        )
        self.dagdir = dagdir
        self.as_of = as_of or ensemble.newest
        self.live = live
        self.clock = ensemble.clock
        self.aggregates = ensemble.aggregates
        self.aggregates.add_up()
        self.aggregates.settle(live)
        self.runs, self.states = self.aggregates.runs, self.aggregates.states
        self.run_states, self.targets = self.aggregates.standings, self.aggregates.targets
        self.totals, self._rows = self.aggregates.sums, self.aggregates.rows
        self._ledger: Ledger | None = None
        self._ledger_builder: LedgerBuilder | None = None
        self._running: dict[str, bool] = {}

    # --- lookups ------------------------------------------------------------------------

    def target(self, key: NodeKey | None) -> str | None:
        """The target of a node.

        The site assigned to it while the DAG ran, else the one in its VARS.
        """
        if self.nodes is self.ensemble.nodes:
            return self.ensemble.target(key)
        record = self.nodes.get(key) if key else None
        return variable(record.node, "ResourceName") if record else None

    def site(self, machine: Execute | None) -> str | None:
        """The site of an execution, with aliases of the settings applied."""
        return self.aggregates.names.site(machine)

    def site_of_address(self, address: str) -> str | None:
        """The site of a host without executions, if a rule matches its address."""
        return self.aggregates.names.site_of_address(address)

    def gpu(self, machine: Execute | None) -> str | None:
        """The GPU model as logged, or its alias in the settings."""
        return self.aggregates.names.gpu(machine)

    def off_target(self, key: NodeKey | None, site: str | None) -> bool:
        """Whether the job of a node ran at a site that its target excludes.

        A pool-wide target is missed only where the site is named by another target of the same DAG.
        """
        target = self.target(key)
        if key is None or not target or not site:
            return False
        wanted, actual = normalize_name(target), normalize_name(site)
        if wanted in ANY_SITE_TARGETS or wanted in actual or actual in wanted:
            return False
        if wanted in POOL_TARGETS:
            other_targets = self.targets.get(self.dags[key[0]].top, frozenset())
            return any(name in actual for name in other_targets - ANY_SITE_TARGETS - POOL_TARGETS)
        return True

    def seconds(self, start: datetime | None, end: datetime | None) -> float | None:
        """Seconds between two times; up to ``as_of`` where ``end`` is None."""
        end = end or self.as_of
        if start is None or end is None:
            return None
        return self.clock.seconds(start, end)

    def history(self, job: Job) -> JobHistory:
        """The history of a job, from its events."""
        return job.history()

    def gpu_hours(self, execution: Execution) -> float | None:
        """GPU-hours of one execution; None when its number of GPUs is not known."""
        gpus = execution.gpus
        seconds = self.seconds(execution.start, execution.end)
        if gpus is None or seconds is None:
            return None
        return seconds * gpus / HOUR

    def real_jobs(self) -> list[Job]:
        """All jobs except those of another directory's DAGs, by cluster and proc."""
        foreign = self.ensemble.unproven.foreign
        jobs = (job for k, job in self.ensemble.jobs.items() if not job.noop and k not in foreign)
        return sorted(jobs, key=lambda job: (job.cluster, job.proc))

    def node_of(self, job: Job) -> NodeKey | None:
        """The node of a job; None where it is not known."""
        attribution = self.attributions.get((job.cluster, job.proc, job.subproc))
        if attribution is None or attribution.dag is None or attribution.node is None:
            return None
        return (attribution.dag, attribution.node)

    def is_dagman(self, key: NodeKey | None) -> bool:
        """Whether the job of a node is the DAGMan of a sub-DAG.

        Such a job runs at the access point, at no site.
        """
        record = self.nodes.get(key) if key else None
        return record is not None and record.node.kind is NodeKind.SUBDAG

    def dag_file(self, key: str) -> str:
        """The file of the top-level DAG of a DAG."""
        dag = self.dags[key]
        return self.dags[dag.top].file if dag.top in self.dags else dag.file

    # --- the ensemble -------------------------------------------------------------------

    def status(self) -> Status:
        """The status of the whole ensemble."""
        in_flight = self.in_flight()
        sums, aggregates = self.totals, self.aggregates
        return Status(
            dagdir=self.dagdir,
            as_of=self.as_of,
            live=self.live,
            warnings=tuple(self.notices()),
            dags=tuple(self._dag_rows()),
            runs=tuple(self.run_row(run, in_flight.runs) for run in self.runs.by_key.values()),
            epoch_states=_all_states(aggregates.epoch_states),
            node_states=_all_states(aggregates.node_states),
            gpu_hours=sums.total.hours(sums.measure, in_flight.total),
            sites=tuple(
                _site_row(*entry) for entry in _by_gpu_hours(sums, sums.sites, in_flight.sites)
            ),
            gpus=tuple(
                _gpu_row(*entry) for entry in _by_gpu_hours(sums, sums.gpus, in_flight.gpus)
            ),
            causes=tuple(self.causes()),
            transfers=sums.transfers(),
            logs=tuple(self._log_rows()),
            special_nodes=tuple(
                row for row in map(self.node_row, aggregates.special()) if row is not None
            ),
            side_nodes=SideCounts(*aggregates.side_counts()),
            other_states=_all_states(aggregates.other_states),
            nodes_unlogged=len(aggregates.unlogged),
        )

    def in_flight(self) -> InFlight:
        """Totals of the executions that have not ended."""
        totals = InFlight()
        if self.as_of is None:
            return totals
        measure = self.totals.measure
        for execution in self.totals.open.values():
            weight = 0 if execution.dagman else measure.weight(execution.gpus, execution.cpus) or 0
            micros = round(self.clock.seconds(execution.start, self.as_of) * SECOND) * weight
            totals.total += micros
            if execution.run is not None:
                totals.runs[execution.run] += micros
            if not execution.dagman:
                totals.sites[execution.site] += micros
                totals.gpus[execution.gpu] += micros
        return totals

    def ledger(self) -> Ledger:
        """The ledger of the ensemble: all entries, flat.

        Built once; later calls return the same object.
        """
        if self._ledger is None:
            self.update_ledger()
            assert self._ledger_builder is not None
            self._ledger, self._ledger_builder = self._ledger_builder.ledger(), None
        return self._ledger

    def update_ledger(self, seconds: float | None = None) -> bool:
        """Build the entries of the ledger for about ``seconds``.

        Returns whether all of them are built. The ensemble must not change until they are and
        :meth:`ledger` was called.
        """
        from metlmon.snapshot.ledger_builder import LedgerBuilder

        if self._ledger is not None:
            return True
        if self._ledger_builder is None:
            shared = self.aggregates.ledger_builder if self.runs is self.aggregates.runs else None
            self._ledger_builder = shared or LedgerBuilder(self)
            if self.runs is self.aggregates.runs:
                self.aggregates.ledger_builder = self._ledger_builder
        deadline = None if seconds is None else time.monotonic() + seconds
        return self._ledger_builder.update(self, deadline)

    def submission_result(self, key: NodeKey) -> SubmissionResult | None:
        """The combined result of the submissions of a node."""
        if self.nodes is self.ensemble.nodes:
            return self.ensemble.submission_result(key)
        return submission_result(self.nodes[key])

    def final_execution(self, key: NodeKey) -> Execution | None:
        """The execution that completed the node.

        That is the last good execution of its last good job.
        """
        return last_good_execution(node_submissions(self.nodes[key]))

    def notices(self) -> Iterable[Notice]:
        """All warnings about the input."""
        yield from self.ensemble.lasting_notices
        yield from self.ensemble.notices
        yield from self._dagman_errors()
        yield from file_conflicts(self.ensemble)
        yield from self._duplicate_jobs()
        yield from self._foreign_jobs()
        yield from self._ambiguous_jobs()
        yield from self._log_gaps()

    def _foreign_jobs(self) -> Iterable[Notice]:
        """Logs that jobs of another directory's DAG write to as well."""
        for log, number in sorted(self.ensemble.unproven.foreign_by_log().items()):
            text = (
                f"{count(number, 'job')} in it {'was' if number == 1 else 'were'} submitted by a "
                "DAG that is not in this directory but has the same node names, and "
                f"{'is' if number == 1 else 'are'} left out; give each directory a log of its own"
            )
            yield Notice("shared-log", log, None, text)

    def _ambiguous_jobs(self) -> Iterable[Notice]:
        """Jobs that may belong to more than one DAG."""
        groups: dict[tuple[str, ...], list[Job]] = defaultdict(list)
        for key in sorted(self.aggregates.ambiguous):
            attribution = self.attributions.get(key)
            if attribution is not None and attribution.candidates:
                groups[attribution.candidates].append(self.ensemble.jobs[key])
        for candidates, jobs in groups.items():
            files = ", ".join(self.dags[key].file for key in candidates)
            examples = ", ".join(f"{job.cluster}.{job.proc}" for job in jobs[:3])
            more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""
            text = (
                f"{len(jobs)} jobs ({examples}{more}) may belong to any of {files}: "
                "keep each DAG's .dagman.out or .nodes.log beside it to tell them apart"
            )
            if len(candidates) == 1:
                text = (
                    f"{count(len(jobs), 'job')} ({examples}{more}) may belong to {files}, or to "
                    "the DAG of another directory that writes the same log: keep its .dagman.out "
                    "and .nodes.log beside it to tell them apart"
                )
            yield Notice("ambiguous-dag", min(jobs[0].user_logs, default=None), None, text)

    def _dagman_errors(self) -> Iterable[Notice]:
        """Errors with which DAGMan gave up, which no failed node explains."""
        for dag in self.ensemble.dags.values():
            last_run = dag.current_run()
            error = (
                last_run.processes[-1].error
                if last_run is not None and last_run.processes
                else None
            )
            state = self.ensemble.dag_state(dag.key)[0]
            if not error or state not in (DagState.FAILED, DagState.UNKNOWN):
                earlier = (process.error for process in dag.processes[:-1] if not process.ended)
                error = next(
                    (text for text in earlier if text and text.endswith(GAVE_UP_SUFFIX)), None
                )
            if error:
                yield Notice("dagman-error", f"{dag.key}.dagman.out", None, f"DAGMan: {error}")

    def _duplicate_jobs(self) -> Iterable[Notice]:
        """Nodes with jobs of several submissions in the queue.

        A DAGMan that finds its log missing submits jobs again that are still running.
        """
        if not self.live:
            return
        first_cluster: dict[NodeKey, int] = {}
        duplicated: set[NodeKey] = set()
        for key in self.totals.queued:
            attribution = self.attributions.get(key)
            if attribution is None or attribution.dag is None or attribution.node is None:
                continue
            node = (attribution.dag, attribution.node)
            if first_cluster.setdefault(node, key[0]) != key[0]:
                duplicated.add(node)
        if not duplicated:
            return
        (dag, name), number = min(duplicated), len(duplicated)
        jobs = [k for k in self.totals.queued if self._is_job_of(k, (dag, name))]
        clusters = sorted({k[0] for k in jobs})
        more = f" (and so have {number - 1} more nodes)" if number > 1 else ""
        text = f"{name} has jobs of {len(clusters)} submissions in the queue by their logs"
        if all(self.attributions[k].proven for k in jobs):
            text += (
                f", {', '.join(map(str, clusters))}{more}: DAGMan heeds the newest alone, the "
                "others take slots and may write the same files; condor_rm them if condor_q has "
                "them"
            )
        else:
            text += (
                f"{more}: DAGMan heeds the newest alone; no file here proves that all of them are "
                f"{self.dag_file(dag)}'s, so ask condor_q whose they are (DAGManJobId, Iwd)"
            )
        yield Notice("doubled-node", self.dag_file(dag), None, text)

    def _is_job_of(self, key: JobKey, node: NodeKey) -> bool:
        attribution = self.attributions.get(key)
        return attribution is not None and (attribution.dag, attribution.node) == node

    def _log_gaps(self) -> Iterable[Notice]:
        """Events that are missing in the logs."""
        for key in sorted(self.totals.gaps):
            job = self.ensemble.jobs[key]
            file = min(job.user_logs or job.nodes_logs, default=None)
            for line, text in self.totals.gaps[key]:
                where = line if job.user_logs else None
                yield Notice("log-gap", file, where, f"job {job.cluster}.{job.proc}: {text}")

    def _dag_rows(self) -> Iterable[DagRow]:
        for dag in self.dags.values():
            if not dag.is_top:
                continue
            state, ended = self.ensemble.dag_state(dag.key)
            dagman_run = dag.current_run()
            if state in ENDED:
                ended = ended or end_in_utc(dag)
            counts = self.aggregates.counts[dag.key]
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
            )

    def _log_rows(self) -> Iterable[LogRow]:
        for stats in self.ensemble.log_stats.values():
            yield LogRow(
                file=stats.file,
                bytes=stats.bytes,
                events=stats.events,
                first=stats.first,
                last=stats.last,
            )

    def causes(self) -> list[CauseRow]:
        """Bad GPU-hours by cause, the most expensive first."""
        rows = [
            CauseRow(
                cause=text,
                code=code,
                subcode=subcode,
                executions=losses.executions,
                bad=losses.micros / AN_HOUR,
                example=self._example((text, code, subcode, end_unknown)),
                end_unknown=end_unknown,
            )
            for (text, code, subcode, end_unknown), losses in self.totals.causes.items()
        ]

        def order(row: CauseRow) -> tuple[object, ...]:
            codes = (-1 if number is None else number for number in (row.code, row.subcode))
            return -row.bad, -row.executions, row.cause, *codes, row.end_unknown

        return sorted(rows, key=order)

    def _example(self, cause: Cause) -> str | None:
        """The logged reason of the last execution that ended for this cause."""
        losses = self.totals.causes[cause]
        if losses.example is None:
            executions = self.ensemble.jobs[losses.last_job()].history().executions
            reasons = (
                execution.reason
                for execution in reversed(executions)
                if cause_of_loss(execution) == cause
            )
            losses.example = (next(reasons, None),)
        return losses.example[0]

    # --- runs ---------------------------------------------------------------------------

    def run_row(self, run: Run, in_flight: Mapping[str, int]) -> RunRow:
        """The row of a run.

        The row is rebuilt where nodes of the run have changed; else only its times are updated.
        """
        row = self._rows.get(run.key)
        if row is None:
            row = self._rows[run.key] = self._new_run_row(run)
        latest = row.latest
        if latest is not None and latest.since is not None:
            latest = replace(latest, seconds=self.seconds(latest.since, None))
        failed = row.failed
        if failed is not None and failed.since is not None:
            failed = replace(failed, seconds=self.seconds(failed.since, None))
        hours = self._run_hours(run, in_flight)
        gate = self.gate_status(run)
        now = (latest, hours, gate, failed)
        if now == (row.latest, row.gpu_hours, row.gate, row.failed):
            return row
        row = replace(row, latest=latest, gpu_hours=hours, gate=gate, failed=failed)
        self._rows[run.key] = row
        return row

    def _new_run_row(self, run: Run) -> RunRow:
        run_state = self.run_states[run.key]
        latest = self.latest_epoch(run_state.latest) if run_state.latest else None
        home_node = self.naming_node(run)
        return RunRow(
            key=run.key,
            run=run.names[home_node],
            uuid=run.uuid,
            dag=self.dag_file(home_node[0]),
            epochs_total=len(run_state.epochs),
            epochs_done=run_state.done,
            epochs_inferred=run_state.inferred,
            epochs_skipped=run_state.skipped,
            state=run_state.state,
            latest=latest,
            gpu_hours=GpuHours(measure=self.totals.measure),
            epochs_unknown=run_state.states.get(State.UNKNOWN, 0),
            failed=self._failed_epoch(run_state.failed) if run_state.failed else None,
            epochs_overruled=sum(
                map(self.aggregates.overruled.__contains__, run_state.epochs.values())
            ),
        )

    def _failed_epoch(self, key: NodeKey) -> FailedEpoch:
        state = self.states[key]
        return FailedEpoch(
            epoch=self.runs.parts[key].epoch,
            node=key[1],
            state=state.state,
            since=state.since,
            seconds=self.seconds(state.since, None) if state.since else None,
            part=state.failure.part if state.failure else None,
            reason=state.failure.text if state.failure else None,
        )

    def gate_status(self, run: Run) -> GateStatus | None:
        """The gate status of a run; None where it has no gate.

        Of several DAGs the running one counts, else the one that has the run's last epoch.
        """
        gated = [dag for dag in run.gated_dags if dag in self.dags]
        if not gated:
            return None
        running = [dag for dag in gated if self._is_running(dag)]
        # Not the latest submitted epoch: a run stopped before it trained has none in its DAG.
        epochs = self.run_states[run.key].epochs
        last = epochs[max(epochs)][0] if epochs else None
        dag = running[-1] if running else last if last in gated else gated[-1]
        reports = self.ensemble.gates.get(dag, {}).get(run.uuid or "")
        return gate_status(reports, self.clock, self.ensemble.cut, bool(running))

    def _is_running(self, dag: str) -> bool:
        if dag not in self._running:
            known = dag in self.ensemble.dags
            self._running[dag] = known and self.ensemble.dag_state(dag)[0] in ALIVE
        return self._running[dag]

    def naming_node(self, run: Run) -> NodeKey:
        """The node that gives a run its name and its DAG: that of its latest epoch.

        All nodes of the run go by that name, also those that another DAG or splice names
        differently.
        """
        run_state = self.run_states[run.key]
        return run_state.latest or next(iter(run_state.epochs.values()), None) or run.nodes()[0]

    def latest_epoch(self, key: NodeKey) -> Latest:
        """The latest epoch of a run, by its node."""
        state = self.states[key]
        part = self.runs.parts[key]
        history = self.history(state.job) if state.job else None
        machine = _machine(history)
        site = self.site(machine)
        target = self.target(key)
        held = state.state is State.HELD and history is not None and history.hold is not None
        hold = history.hold if held and history is not None else None
        return Latest(
            epoch=part.epoch,
            epoch_var=part.epoch_var,
            node=key[1],
            cluster=state.job.cluster if state.job else self.dags[key[0]].last_cluster(key[1]),
            proc=state.job.proc if state.job else None,
            target=target,
            site=site,
            gpu=self.gpu(machine),
            gpus=history.executions[-1].gpus if history and history.executions else None,
            state=state.state,
            since=state.since,
            seconds=self.seconds(state.since, None) if state.since else None,
            attempt=self._attempts(key),
            hold_reason=hold.reason if hold else None,
            hold_code=hold.code if hold else None,
            off_target=self.off_target(key, site),
            retries_left=self._retries_left(key),
            overruled=key in self.aggregates.overruled,
        )

    def _attempts(self, key: NodeKey) -> int:
        """Attempts of a node: the procs of one submission are one attempt."""
        by_submission: dict[tuple[int, int], int] = {}
        for job in self.nodes[key].jobs:
            submission = job.cluster, job.subproc
            by_submission[submission] = max(by_submission.get(submission, 0), self._executions(job))
        return sum(by_submission.values())

    def _submissions(self, key: NodeKey) -> int:
        """Submissions of a node, by its jobs in the logs, else by DAGMan."""
        jobs = self.nodes[key].jobs
        if jobs:
            return len({job.cluster for job in jobs})
        return self.dags[key[0]].submission_count(key[1], self.clock)

    def _executions(self, job: Job) -> int:
        number = self.totals.execution_count(job.key)
        return len(self.history(job).executions) if number is None else number

    def find_runs(self, wanted: str) -> list[RunRow]:
        """Runs whose uuid begins with ``wanted``, or whose name is ``wanted``.

        Names match in any case, but one in the same case wins. An exact uuid or name excludes runs
        that match by prefix only.
        """
        in_flight = self.in_flight().runs
        rows = [self.run_row(run, in_flight) for run in self.runs.by_key.values()]
        exact = [row for row in rows if wanted in (row.uuid, row.key)]
        if exact:
            return exact
        named = [row for row in rows if row.run.lower() == wanted.lower()]
        if named:
            return [row for row in named if row.run == wanted] or named
        return [
            row for row in rows if wanted and (row.uuid or "").lower().startswith(wanted.lower())
        ]

    def _run_hours(self, run: Run, in_flight: Mapping[str, int]) -> GpuHours:
        gpu_seconds = self.totals.runs.get(run.key) or GpuSeconds()
        return gpu_seconds.hours(self.totals.measure, in_flight.get(run.key, 0))

    def run_seconds(self, run: Run, in_flight: Mapping[str, int]) -> tuple[float, float, float]:
        """GPU-seconds of a run: good, bad, in flight."""
        gpu_seconds = self.totals.runs.get(run.key) or GpuSeconds()
        on_gpus = in_flight.get(run.key, 0) if self.totals.measure is HourUnit.GPU else 0
        return gpu_seconds.good / SECOND, gpu_seconds.bad / SECOND, on_gpus / SECOND

    def _node_hours(self, key: NodeKey) -> GpuHours:
        good = bad = in_flight = 0
        measure = self.totals.measure
        for job in self.nodes[key].jobs:
            for execution in self.history(job).executions:
                weight = (
                    0
                    if self.is_dagman(key)
                    else measure.weight(execution.gpus, execution.cpus) or 0
                )
                micros = (
                    round((self.seconds(execution.start, execution.end) or 0.0) * SECOND) * weight
                )
                if execution.outcome is Outcome.GOOD:
                    good += micros
                elif execution.outcome is Outcome.IN_FLIGHT:
                    in_flight += micros
                else:
                    bad += micros
        return GpuHours(good / AN_HOUR, bad / AN_HOUR, in_flight / AN_HOUR, measure)

    def run_view(self, key: str) -> RunView | None:
        """One run with its epochs; None when there is no such run."""
        run = self.runs.by_key.get(key)
        if run is None:
            return None
        run_state = self.run_states[key]
        counted = set(run_state.epochs.values())
        others = [node for nodes in run.epochs.values() for node in nodes if node not in counted]
        others = [node for node in others if self.nodes[node].jobs]
        listed = sorted(
            [*run_state.epochs.values(), *others],
            key=lambda node: (
                self.runs.parts[node].epoch or 0,
                self.states[node].submitted is None,
            ),
        )
        side = {node: self.epoch_row(node) for node in run.side_nodes}
        side_rows: dict[NodeKey, list[EpochRow]] = {}
        for node, row in side.items():
            epoch = self._epoch_before(node, run)
            if epoch is not None:
                side_rows.setdefault(epoch, []).append(row)
        return RunView(
            self.run_row(run, self.in_flight().runs),
            tuple(self.epoch_row(node, tuple(side_rows.get(node, ()))) for node in listed),
            tuple(side.values()),
        )

    def _epoch_before(self, key: NodeKey, run: Run) -> NodeKey | None:
        """The epoch of the run that is a parent of a side node, the last of several.

        Only the edges count, since the numbers in the names differ (the evaluation of train_epoch0
        is eval_epoch1).
        """
        dag, parts, of_node = key[0], self.runs.parts, self.runs.by_node
        nodes = self.dags[dag].workflow.nodes
        parents = [(dag, name) for name in effective_parents(nodes, key[1])]
        epochs = [k for k in parents if of_node.get(k) is run and parts[k].training]
        return max(epochs, key=lambda k: parts[k].epoch or 0, default=None)

    def epoch_row(self, key: NodeKey, evaluations: tuple[EpochRow, ...] = ()) -> EpochRow:
        """The row of one node of a run."""
        state, part = self.states[key], self.runs.parts[key]
        record = self.nodes[key]
        history = self.history(state.job) if state.job else None
        wait, transfer, execution = self._phases(history)
        target, site, gpu, gpus, off_target = self._placement(key, history)
        hold_reason, hold_code = _hold_reason(state.state, history)
        success_seconds, longest_seconds = self.success_seconds(key)
        job_state, job_return = _job_result(state.job, history)
        return EpochRow(
            node=key[1],
            dag=self.dag_file(key[0]),
            in_dag=key[0],
            epoch=part.epoch,
            epoch_var=part.epoch_var,
            state=state.state,
            inferred=state.inferred,
            since=state.since,
            seconds=self.seconds(state.since, None) if state.since else None,
            jobs=tuple(
                job.id
                for submission in node_submissions(record)
                for job in submission.jobs
                if not job.noop
            ),
            target=target,
            site=site,
            gpu=gpu,
            gpus=gpus,
            off_target=off_target,
            submitted=history.submitted if history else None,
            queue_wait=wait,
            transfer=transfer,
            execution=execution,
            attempts=self._attempts(key),
            gpu_hours=self._node_hours(key),
            trained_on=self.trained_on(key),
            hold_reason=hold_reason,
            hold_code=hold_code,
            success_seconds=success_seconds,
            longest_seconds=longest_seconds,
            job_state=job_state,
            job_return=job_return,
            evaluations=evaluations,
        )

    # --- nodes --------------------------------------------------------------------------

    def dag_nodes(self) -> tuple[DagNodes, ...]:
        """All DAGs with the states of their nodes, as input of a node tree."""
        from metlmon.snapshot.node_tree import DagNodes

        by_path = {dag.workflow.path: dag for dag in self.dags.values()}
        states: dict[str, dict[str, NodeState]] = {key: {} for key in self.dags}
        for (key, name), state in self.states.items():
            states[key][name] = state
        overruled: dict[str, set[str]] = {}
        for key, name in self.aggregates.overruled:
            overruled.setdefault(key, set()).add(name)
        tree_nodes = []
        for key, dag in self.dags.items():
            subdags = {}
            for name, node in dag.workflow.nodes.items():
                subdag = None if node.subdag is None else dag.workflow.subdags[node.subdag]
                dag_here = by_path.get(subdag.path) if subdag is not None else None
                if dag_here is not None and dag_here.top == dag.top:
                    subdags[name] = dag_here.key
            dag_overruled = frozenset(overruled.get(key, ()))
            tree_nodes.append(
                DagNodes(
                    key=key,
                    file=dag.file,
                    nodes=dag.workflow.nodes,
                    states=states[key],
                    subdags=subdags,
                    overruled=dag_overruled,
                )
            )
        return tuple(tree_nodes)

    def node_row(self, key: NodeKey) -> NodeRow | None:
        """The row of a node of any kind; None where there is no such node."""
        record, state = self.nodes.get(key), self.states.get(key)
        if record is None or state is None:
            return None
        node, states, dag = record.node, self.states, key[0]
        history = self.history(state.job) if state.job else None
        target, site, gpu, gpus, off_target = self._placement(key, history)
        hold_reason, hold_code = _hold_reason(state.state, history)
        job_state, job_return = _job_result(state.job, history)
        waits_for: list[str] = []
        if state.state is State.WAITING:
            nodes = self.dags[dag].workflow.nodes
            waits_for = [
                name
                for name in effective_parents(nodes, key[1])
                if (dag, name) not in states or states[dag, name].state not in DONE
            ]
        run = self.runs.by_node.get(key)
        retries_left = self._retries_left(key) if node.retries else None
        skipped = run is not None and state.state is State.SKIPPED
        stopped_by = self._stopped_by(run) if run is not None and skipped else None
        return NodeRow(
            dag_key=dag,
            dag=self.dag_file(dag),
            node=key[1],
            kind=node.kind.value,
            state=state.state,
            inferred=state.inferred,
            since=state.since,
            seconds=self.seconds(state.since, None) if state.since else None,
            jobs=tuple(
                job.id
                for submission in node_submissions(record)
                for job in submission.jobs
                if not job.noop
            ),
            job_state=job_state,
            job_return=job_return,
            target=target,
            site=site,
            gpu=gpu,
            gpus=gpus,
            off_target=off_target,
            attempts=self._attempts(key),
            retries=node.retries,
            retries_left=retries_left,
            parents=len(node.parents),
            unfinished_parents=len(waits_for),
            waits_for=tuple(waits_for[:MAX_WAITS_FOR]),
            children=len(node.children),
            run=run.key if run is not None else None,
            submit=node.submit,
            hold_reason=hold_reason,
            hold_code=hold_code,
            stopped_by=stopped_by,
            reason=state.failure.text if state.failure else None,
            failed_ancestor=state.failed_ancestor,
            submissions=self._submissions(key),
        )

    def _retries_left(self, key: NodeKey) -> int:
        """Retries that DAGMan has left for a node; 0 where it let the node fail."""
        state = self.states[key]
        if state.state is State.FAILED and not state.can_retry:
            return 0
        return retries_left(self.dags[key[0]], self.nodes[key], self.submission_result(key))

    def _stopped_by(self, run: Run) -> str | None:
        """The rule by which a run's gate stopped it; None where it did not."""
        gate = self.gate_status(run)
        return gate.stopped.rule if gate is not None and gate.stopped is not None else None

    def _placement(
        self, key: NodeKey, history: JobHistory | None
    ) -> tuple[str | None, str | None, str | None, int | None, bool]:
        """Target, site, GPU model, number of GPUs, and whether the site is off target."""
        machine = _machine(history)
        target, site = self.target(key), self.site(machine)
        gpus = history.executions[-1].gpus if history and history.executions else None
        return target, site, self.gpu(machine), gpus, self.off_target(key, site)

    def _phases(
        self, history: JobHistory | None
    ) -> tuple[float | None, float | None, float | None]:
        """Seconds of the last attempt: queue wait, input transfer, execution."""
        if history is None or history.submitted is None:
            return None, None, None
        last = history.executions[-1] if history.executions else None
        previous = history.executions[-2] if len(history.executions) > 1 else None
        waited_from = previous.end if previous and previous.end else history.submitted
        if last is None or (history.state in ACTIVE and history.open is None):
            ended = last.end if last else None
            queue_end = ended or history.submitted
            spans = [
                span
                for span in history.transfers
                if span.start is not None and span.start >= queue_end
            ]
            transfer_start = spans[-1].start if spans else None
            transfer = self.seconds(spans[-1].start, spans[-1].end) if spans else None
            return self.seconds(queue_end, transfer_start), transfer, None
        spans = [
            span
            for span in history.transfers
            if span.direction == "input"
            and span.outcome == "ok"
            and span.start is not None
            and waited_from <= span.start <= last.start
        ]
        queue_end = spans[-1].start if spans and spans[-1].start else last.start
        transfer = self.seconds(spans[-1].start, spans[-1].end) if spans else None
        return (
            self.seconds(waited_from, queue_end),
            transfer,
            self.seconds(last.start, last.end),
        )

    def trained_on(self, key: NodeKey) -> str | None:
        """The site of a node's longest execution, where another one succeeded.

        None where the execution that trained is the one that succeeded. See "hidden compute".
        """
        final = self.final_execution(key)
        if final is None or self.states[key].state is not State.COMPLETED:
            return None
        longest = self.longest_execution(key)
        if longest is None or longest is final:
            return None
        return self.site(longest.machine)

    def longest_execution(self, key: NodeKey) -> Execution | None:
        """The node's longest execution, the first of several of equal length."""
        jobs = sorted(self.nodes[key].jobs, key=lambda job: (job.cluster, job.proc, job.subproc))
        executions = [execution for job in jobs for execution in self.history(job).executions]
        return max(
            executions,
            key=lambda execution: self.seconds(execution.start, execution.end) or 0.0,
            default=None,
        )

    def success_seconds(self, key: NodeKey) -> tuple[float | None, float | None]:
        """Seconds of the execution that completed a node, and of its longest one.

        (None, None) where the node is not completed.
        """
        final = self.final_execution(key)
        longest = self.longest_execution(key)
        if final is None or longest is None or self.states[key].state is not State.COMPLETED:
            return None, None
        return self.seconds(final.start, final.end), self.seconds(longest.start, longest.end)

    # --- jobs ---------------------------------------------------------------------------

    def job_rows(self) -> list[JobRow]:
        """All jobs, in order of cluster and proc.

        The DAGMan jobs of top-level DAGs are not included.
        """
        return [self.job_row(job) for job in self.real_jobs()]

    def queued_rows(self, run: str | None = None) -> tuple[JobRow, ...]:
        """Jobs in the queue by their logs; with ``run`` only those of that run key."""
        rows = (self.job_row(self.ensemble.jobs[key]) for key in sorted(self.totals.queued))
        if run is None:
            return tuple(rows)
        view = self.run_view(run)
        of_run = (*view.epochs, *view.side) if view else ()
        nodes = {(row.in_dag, row.node) for row in of_run}
        return tuple(row for row in rows if (row.in_dag, row.node) in nodes)

    def job_row(self, job: Job) -> JobRow:
        """The row of one job."""
        history = self.history(job)
        key = self.node_of(job)
        run = self.runs.by_node.get(key) if key else None
        part = self.runs.parts.get(key) if key else None
        attribution = self.attributions.get((job.cluster, job.proc, job.subproc))
        machine = _machine(history)
        hold = history.hold if history.state is State.HELD else None
        request = next((usage.request for usage in history.usage if usage.name == "Memory"), None)
        peak = next((usage.usage for usage in history.usage if usage.name == "Memory"), None)
        memory = max((value for value in (job.memory_max, peak) if value is not None), default=None)
        return JobRow(
            dag=self.dag_file(key[0]) if key else None,
            in_dag=key[0] if key else None,
            node=key[1] if key else None,
            run=run.names[self.naming_node(run)] if run else None,
            uuid=run.uuid if run else None,
            epoch=part.epoch if part else None,
            cluster=job.cluster,
            proc=job.proc,
            state=history.state or State.IDLE,
            since=history.since,
            seconds=self.seconds(history.since, None) if history.since else None,
            target=self.target(key),
            site=self.site(machine),
            gpu=self.gpu(machine),
            gpus=history.executions[-1].gpus if history.executions else None,
            submitted=history.submitted,
            executions=tuple(self._execution_row(execution) for execution in history.executions),
            transfers=tuple(self._transfer_row(span) for span in history.transfers),
            bytes_sent=history.bytes_sent,
            bytes_received=history.bytes_received,
            memory_mb=int(memory) if memory is not None else None,
            request_memory_mb=int(request) if request is not None else None,
            hold_reason=hold.reason if hold else None,
            hold_code=hold.code if hold else None,
            hold_subcode=hold.subcode if hold else None,
            ambiguous=tuple(
                self.dags[dag_key].file
                for dag_key in (attribution.candidates if attribution else ())
            ),
            off_target=self.off_target(key, self.site(machine)),
        )

    def _execution_row(self, execution: Execution) -> ExecutionRow:
        machine = execution.machine
        return ExecutionRow(
            start=execution.start,
            end=execution.end,
            seconds=self.seconds(execution.start, execution.end),
            suspended=sum(self.seconds(start, end) or 0.0 for start, end in execution.suspensions),
            outcome=execution.outcome,
            code=execution.code,
            subcode=execution.subcode,
            reason=execution.reason,
            return_value=execution.return_value,
            signal=execution.signal,
            site=self.site(machine),
            host=host_of(machine) if machine else None,
            gpu=self.gpu(machine),
            gpus=execution.gpus,
            gpu_hours=self.gpu_hours(execution),
            uncertain=execution.uncertain,
        )

    def _transfer_row(self, span: TransferSpan) -> TransferRow:
        outcome = "in-flight" if span.outcome == "pending" else span.outcome
        return TransferRow(
            direction=span.direction,
            start=span.start,
            end=span.end,
            seconds=self.seconds(span.start, span.end),
            outcome=outcome,
            host=span.host,
            queue_seconds=span.queue_seconds,
        )

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        """The details of one job; None when there is no such job."""
        job = self.ensemble.jobs.get(self.ensemble.reused_ids.newest((cluster, proc)))
        if job is None or job.key in self.ensemble.unproven.foreign:
            return None
        key = self.node_of(job)
        record = self.nodes.get(key) if key else None
        siblings = (
            tuple(
                sibling.id
                for submission in node_submissions(record)
                for sibling in submission.jobs
                if not sibling.noop
            )
            if record
            else (job.id,)
        )
        return JobView(
            row=self.job_row(job),
            events=self.event_lines(job),
            memory_updates=job.memory_updates,
            usage=self.history(job).usage,
            output=_expand_macros(record.node.output, job) if record else None,
            error=_expand_macros(record.node.error, job) if record else None,
            siblings=siblings,
            states=tuple(self.history(job).states),
        )

    def event_lines(self, job: Job) -> tuple[EventLine, ...]:
        """The events of a job as lines of text.

        Left out are its 006 events, and inferred holds that turned out to be needless.
        """
        holds = self.history(job).holds
        return tuple(
            EventLine(
                time=event.time,
                number=event.number,
                name=event.name,
                text=_event_text(event.text, event.detail, event.body),
                damaged=event.damaged,
            )
            for event in job.events()
            if not (isinstance(event.detail, Held) and event.detail.inferred)
            or (event.time, event.detail) in holds
        )

    def output_file(self, cluster: int, proc: int) -> str | None:
        """The output file of a job, from its submit description.

        None where that is not known.
        """
        job = self.ensemble.jobs.get(self.ensemble.reused_ids.newest((cluster, proc)))
        key = self.node_of(job) if job is not None else None
        record = self.nodes.get(key) if key else None
        return _expand_macros(record.node.output, job) if record and job else None

    # --- problems -----------------------------------------------------------------------

    def problems(self) -> tuple[ProblemGroup, ...]:
        """Problems by cause: those present now first, then by what they cost."""
        groups = self.aggregates.problems.by_cause(self.as_of)
        problems = [self._problem_group(key, totals) for key, totals in groups.items()]
        problems += self._nodes_without_jobs()
        return tuple(
            sorted(
                problems,
                key=lambda group: (-group.now, -group.lost, -group.times, group.cause, group.kind),
            )
        )

    def _nodes_without_jobs(self) -> Iterable[ProblemGroup]:
        """Nodes that failed without a job's failure, by DAGMan's reason."""
        causes: dict[str, list[NodeKey]] = defaultdict(list)
        for key, failure in self.aggregates.failed_without_job.items():
            causes[failure.text].append(key)
        for cause, keys in causes.items():
            since = [when for key in keys if (when := self.states[key].since) is not None]
            of_runs = {key: self.runs.by_node[key] for key in keys if key in self.runs.by_node}
            runs = {run.key: run for run in of_runs.values()}
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
                run_names=tuple(run.names[self.naming_node(run)] for run in runs.values()),
                jobs=(),
                last=max(since, default=None),
                example=None,
                nodes=tuple(name for _, name in sorted(keys)),
            )

    def _problem_group(self, key: tuple[str, str], totals: ProblemTotals) -> ProblemGroup:
        kind, cause = key
        by_key = self.runs.by_key
        runs = {key: by_key[key] for key in totals.runs if key in by_key}
        return ProblemGroup(
            key=f"{kind}:{cause}",
            kind=kind,
            cause=cause,
            code=totals.code,
            subcode=totals.subcode,
            now=len(totals.now),
            times=totals.times,
            lost=totals.lost_hours,
            runs=tuple(runs),
            run_names=tuple(run.names[self.naming_node(run)] for run in runs.values()),
            jobs=totals.latest,
            last=totals.jobs[totals.latest[0]] if totals.latest else None,
            example=totals.example,
        )


@dataclass(slots=True)
class InFlight:
    """Microseconds of the executions in flight, times the ensemble's hour unit.

    The unit is GPUs, CPUs, or 1 for wall-clock time.
    """

    total: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    sites: Counter[str | None] = field(default_factory=Counter)
    gpus: Counter[str | None] = field(default_factory=Counter)


def _job_result(job: Job | None, history: JobHistory | None) -> tuple[State | None, int | None]:
    """The state of a node's job, and the return value of its last execution."""
    if job is None or history is None or job.noop:
        return None, None
    return history.state, history.executions[-1].return_value if history.executions else None


def _hold_reason(state: State, history: JobHistory | None) -> tuple[str | None, int | None]:
    """The reason and code of the hold of a held node."""
    if state is not State.HELD or history is None or history.hold is None:
        return None, None
    return history.hold.reason, history.hold.code


def _machine(history: JobHistory | None) -> Execute | None:
    return history.executions[-1].machine if history is not None and history.executions else None


def _all_states(counts: Mapping[State, int]) -> Mapping[State, int]:
    """The counts with 0 for every state that is missing."""
    return {state: counts.get(state, 0) for state in State}


_RankedTotals: TypeAlias = tuple[str | None, SiteTotals, GpuHours]


def _by_gpu_hours(
    sums: RunningTotals,
    totals: Mapping[str | None, SiteTotals],
    in_flight: Mapping[str | None, int],
) -> list[_RankedTotals]:
    """Name, totals, and hours including those in flight, largest first."""
    measure = sums.measure
    ranked = [
        (name, site_totals, site_totals.hours.hours(measure, in_flight.get(name, 0)))
        for name, site_totals in totals.items()
    ]
    return sorted(ranked, key=lambda entry: (-entry[2].total, -entry[1].executions, entry[0] or ""))


def _site_row(site: str | None, totals: SiteTotals, hours: GpuHours) -> SiteRow:
    return SiteRow(
        site=site,
        target=tuple(sorted(totals.targets)),
        executions=totals.executions,
        completed_epochs=totals.completed,
        gpu_hours=hours,
        seconds_median=totals.seconds.value(),
    )


def _gpu_row(gpu: str | None, totals: SiteTotals, hours: GpuHours) -> GpuRow:
    return GpuRow(gpu, totals.executions, totals.completed, hours)


def _event_text(text: str, detail: object, body: str) -> str:
    """An event's header text, followed by the reason in its body."""
    match detail:
        case Evicted() | Held() | Released() | Aborted() | ConnectionEvent():
            reason = detail.reason
        case RemoteError():
            reason = detail.message
        case Generic():
            reason = None
        case None:
            reason = body.strip() or None
        case _:
            reason = getattr(detail, "reason", None)
    return f"{text} {reason}".strip() if reason else text


_CLUSTER = re.compile(r"\$\((?:cluster|clusterid)\)", re.IGNORECASE)
_PROCESS = re.compile(r"\$\((?:process|procid)\)", re.IGNORECASE)


def _expand_macros(name: str | None, job: Job) -> str | None:
    """A file name with the ``$(Cluster)`` and ``$(Process)`` macros expanded."""
    if name is None:
        return None
    return _PROCESS.sub(str(job.proc), _CLUSTER.sub(str(job.cluster), name))
