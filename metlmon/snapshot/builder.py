"""Builds the immutable snapshot types from the state model.

All definitions are those of ``metlmon/README.md``. A :class:`SnapshotBuilder` holds an ensemble
and its aggregates at one moment; its methods build the rows and views that screens, tables and
JSON show.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from metlmon.model.job_events import Job, JobKey, NodeKey
from metlmon.model.model_state import Notice
from metlmon.model.states import ENDED, DagState, HourUnit, State
from metlmon.model.unrecorded_nodes import effective_counts, end_in_utc
from metlmon.snapshot.aggregates import Aggregates
from metlmon.snapshot.file_conflicts import file_conflicts
from metlmon.snapshot.ledger import Ledger
from metlmon.snapshot.ledger_builder import LedgerBuilder
from metlmon.snapshot.problems import ProblemTotals
from metlmon.snapshot.run_rows import RunRows
from metlmon.snapshot.totals import AN_HOUR, Cause, SiteTotals, cause_of_loss
from metlmon.snapshot.types import (
    CauseRow,
    DagRow,
    GpuHours,
    GpuRow,
    JobRow,
    LogRow,
    ProblemGroup,
    SideCounts,
    SiteRow,
    Status,
)
from metlmon.text.formatting import count

if TYPE_CHECKING:
    pass

GAVE_UP_SUFFIX: Final = " Aborting."
"""End of DAGMan's last message where it aborts, and the schedd may start it again."""


class SnapshotBuilder(RunRows):
    """Builds snapshots of an ensemble at one moment.

    ``as_of`` None: the time of its newest event.
    """

    def __init__(
        self, aggregates: Aggregates, dagdir: str, as_of: datetime | None = None, live: bool = False
    ) -> None:
        super().__init__(aggregates, dagdir, as_of, live)
        self._ledger: Ledger | None = None
        self._ledger_builder: LedgerBuilder | None = None

    # --- lookups ------------------------------------------------------------------------

    # --- the ensemble -------------------------------------------------------------------

    def status(self) -> Status:
        """The status of the whole ensemble."""
        in_flight = self.in_flight()
        totals, aggregates = self.totals, self.aggregates
        unit = totals.hour_unit
        return Status(
            dagdir=self.dagdir,
            as_of=self.as_of,
            live=self.live,
            warnings=tuple(self.notices()),
            dags=tuple(self._dag_rows()),
            runs=tuple(self.run_row(run, in_flight.runs) for run in self.runs.by_key.values()),
            epoch_states=_all_states(aggregates.epoch_states),
            node_states=_all_states(aggregates.node_states),
            gpu_hours=totals.total.hours(unit, in_flight.total),
            sites=tuple(
                _site_row(*entry) for entry in _by_gpu_hours(unit, totals.sites, in_flight.sites)
            ),
            gpus=tuple(
                _gpu_row(*entry) for entry in _by_gpu_hours(unit, totals.gpus, in_flight.gpus)
            ),
            causes=tuple(self.causes()),
            transfers=totals.transfers(),
            logs=tuple(self._log_rows()),
            special_nodes=tuple(
                row for row in map(self.node_row, aggregates.special_nodes()) if row is not None
            ),
            side_nodes=SideCounts(*aggregates.side_counts()),
            other_states=_all_states(aggregates.other_states),
            nodes_unlogged=len(aggregates.unlogged),
        )

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
        if self._ledger is not None:
            return True
        if self._ledger_builder is None:
            shared = self.aggregates.ledger_builder if self.runs is self.aggregates.runs else None
            if not isinstance(shared, LedgerBuilder):
                shared = LedgerBuilder(self)
            self._ledger_builder = shared
            if self.runs is self.aggregates.runs:
                self.aggregates.ledger_builder = self._ledger_builder
        deadline = None if seconds is None else time.monotonic() + seconds
        return self._ledger_builder.update(self, deadline)

    def notices(self) -> Iterable[Notice]:
        """All warnings about the input."""
        yield from self.ensemble.lasting_notices
        yield from self.ensemble.notices
        yield from self._dagman_errors()
        yield from file_conflicts(self.aggregates)
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

    # --- jobs ---------------------------------------------------------------------------

    def queued_rows(self, run: str | None = None) -> tuple[JobRow, ...]:
        """Jobs in the queue by their logs; with ``run`` only those of that run key."""
        rows = (self.job_row(self.ensemble.jobs[key]) for key in sorted(self.totals.queued))
        if run is None:
            return tuple(rows)
        view = self.run_view(run)
        of_run = (*view.epochs, *view.side) if view else ()
        nodes = {(row.in_dag, row.node) for row in of_run}
        return tuple(row for row in rows if (row.in_dag, row.node) in nodes)

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


def _all_states(counts: Mapping[State, int]) -> Mapping[State, int]:
    """The counts with 0 for every state that is missing."""
    return {state: counts.get(state, 0) for state in State}


_RankedTotals: TypeAlias = tuple[str | None, SiteTotals, GpuHours]


def _by_gpu_hours(
    unit: HourUnit,
    by_name: Mapping[str | None, SiteTotals],
    in_flight: Mapping[str | None, int],
) -> list[_RankedTotals]:
    """Name, totals, and hours including those in flight, largest first."""
    ranked = [
        (name, site_totals, site_totals.hours.hours(unit, in_flight.get(name, 0)))
        for name, site_totals in by_name.items()
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
