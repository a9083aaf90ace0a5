"""Pictures of an ensemble at a moment: the figures that screens, tables and JSON show.

All definitions are those of ``domain.md``. A :class:`SnapshotBuilder` holds an ensemble and what
follows from it at one moment; its methods draw the immutable views.
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
from metlmon.model.gates import gate_of
from metlmon.model.hour_unit import HourUnit
from metlmon.model.job import Execution, JobHistory, TransferSpan
from metlmon.model.job_events import Job, NodeKey
from metlmon.model.node import (
    NodeState,
    SubmissionResult,
    last_success,
    made_of,
    retries_left,
    rounds,
)
from metlmon.model.node_neighbours import parents_of
from metlmon.model.run import Run, variable
from metlmon.model.sites import host_of
from metlmon.model.states import ACTIVE, ALIVE, DONE, ENDED, DagState, Outcome, State
from metlmon.model.unrecorded_nodes import counts_of, end_in_utc
from metlmon.snapshot.aggregates import squash
from metlmon.snapshot.file_conflicts import disagreements
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
    blamed,
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
GAVE_UP: Final = " Aborting."
"""How DAGMan's last words end where it breaks off, and the schedd may start it again."""


WAITS_TOLD: Final = 8
"""Parents that a node waits for, by name: more fit into no line."""

ANYWHERE: Final = frozenset({"any", "anywhere", "all"})
"""Targets that every site meets."""

POOLS: Final = frozenset({"osg", "ospool"})
"""Targets that name a pool of many sites: only another target's own site is off them."""


class SnapshotBuilder:
    """Draws ``ensemble`` as of ``as_of`` (None: the time of its newest event)."""

    def __init__(
        self, ensemble: Ensemble, dagdir: str, as_of: datetime | None = None, live: bool = False
    ) -> None:
        self.ensemble = ensemble
        # As they are now: DAG files that are read anew while this picture is shown give the
        # ensemble other ones.
        self.dags, self.nodes, self.members = ensemble.dags, ensemble.nodes, ensemble.members
        self.dagdir = dagdir
        self.as_of = as_of or ensemble.newest
        self.live = live
        self.clock = ensemble.clock
        self.summary = ensemble.summary
        self.summary.add_up()
        self.summary.settle(live)
        self.runs, self.states = self.summary.runs, self.summary.states
        self.standings, self.targets = self.summary.standings, self.summary.targets
        self.sums, self._rows = self.summary.sums, self.summary.rows
        self._ledger: Ledger | None = None
        self._books: LedgerBuilder | None = None
        self._running: dict[str, bool] = {}

    # --- small questions ----------------------------------------------------------------

    def target(self, key: NodeKey | None) -> str | None:
        """Where a node is to go: to the site that it was given while the DAG ran, else as its
        VARS say."""
        if self.nodes is self.ensemble.nodes:
            return self.ensemble.target(key)
        record = self.nodes.get(key) if key else None
        return variable(record.node, "ResourceName") if record else None

    def site(self, machine: Execute | None) -> str | None:
        """The site of an execution, by the name that the settings give it."""
        return self.summary.names.site(machine)

    def site_of_address(self, address: str) -> str | None:
        """The site of a host that nothing ran on yet, as far as rules tell."""
        return self.summary.names.site_of_address(address)

    def gpu(self, machine: Execute | None) -> str | None:
        """The GPU's model as logged, or as the settings call it."""
        return self.summary.names.gpu(machine)

    def off_target(self, key: NodeKey | None, site: str | None) -> bool:
        """Did the node's job run where it did not want to go? A pool-wide target is missed only
        where the own site of another target of the same DAG was used."""
        target = self.target(key)
        if key is None or not target or not site:
            return False
        wanted, got = squash(target), squash(site)
        if wanted in ANYWHERE or wanted in got or got in wanted:
            return False
        if wanted in POOLS:
            others = self.targets.get(self.dags[key[0]].top, frozenset())
            return any(other in got for other in others - ANYWHERE - POOLS)
        return True

    def seconds(self, start: datetime | None, end: datetime | None) -> float | None:
        end = end or self.as_of
        if start is None or end is None:
            return None
        return self.clock.seconds(start, end)

    def life(self, job: Job) -> JobHistory:
        return job.life()

    def hours(self, execution: Execution) -> float | None:
        """GPU-hours of one execution; None when its number of GPUs is not known."""
        gpus = execution.gpus
        seconds = self.seconds(execution.start, execution.end)
        if gpus is None or seconds is None:
            return None
        return seconds * gpus / HOUR

    def real_jobs(self) -> list[Job]:
        """All jobs but those of another directory's DAGs."""
        foreign = self.ensemble.unproven.foreign
        jobs = (job for k, job in self.ensemble.jobs.items() if not job.noop and k not in foreign)
        return sorted(jobs, key=lambda job: (job.cluster, job.proc))

    def node_of(self, job: Job) -> NodeKey | None:
        placed = self.members.get((job.cluster, job.proc, job.subproc))
        if placed is None or placed.dag is None or placed.node is None:
            return None
        return (placed.dag, placed.node)

    def is_dagman(self, key: NodeKey | None) -> bool:
        """Is the job a sub-DAG's DAGMan? It runs at the access point, at no site."""
        record = self.nodes.get(key) if key else None
        return record is not None and record.node.kind is NodeKind.SUBDAG

    def dag_file(self, key: str) -> str:
        dag = self.dags[key]
        return self.dags[dag.top].file if dag.top in self.dags else dag.file

    # --- the whole ----------------------------------------------------------------------

    def status(self) -> Status:
        """The whole ensemble."""
        now = self.in_flight()
        sums, summary = self.sums, self.summary
        return Status(
            self.dagdir,
            self.as_of,
            self.live,
            tuple(self.notices()),
            tuple(self._dag_rows()),
            tuple(self.run_row(run, now.runs) for run in self.runs.by_key.values()),
            _counted(summary.epoch_states),
            _counted(summary.node_states),
            sums.total.hours(sums.measure, now.total),
            tuple(_site_row(*each) for each in _largest_first(sums, sums.sites, now.sites)),
            tuple(_gpu_row(*each) for each in _largest_first(sums, sums.gpus, now.gpus)),
            tuple(self.causes()),
            sums.transfers(),
            tuple(self._log_rows()),
            tuple(row for row in map(self.node_row, summary.special()) if row is not None),
            SideCounts(*summary.side_counts()),
            _counted(summary.other_states),
            len(summary.unlogged),
        )

    def in_flight(self) -> InFlight:
        """What executions have come to that have not ended."""
        now = InFlight()
        if self.as_of is None:
            return now
        measure = self.sums.measure
        for each in self.sums.open.values():
            weight = 0 if each.dagman else measure.weight(each.gpus, each.cpus) or 0
            spent = round(self.clock.seconds(each.start, self.as_of) * SECOND) * weight
            now.total += spent
            if each.run is not None:
                now.runs[each.run] += spent
            if not each.dagman:
                now.sites[each.site] += spent
                now.gpus[each.gpu] += spent
        return now

    def ledger(self) -> Ledger:
        """All entries of the ensemble, flat: what everything is added up from. Made once: who
        asks again is told the same."""
        if self._ledger is None:
            self.book()
            assert self._books is not None
            self._ledger, self._books = self._books.ledger(), None
        return self._ledger

    def book(self, seconds: float | None = None) -> bool:
        """Make what the ledger consists of, for about ``seconds``; whether all of it is made.
        The ensemble must not change until it is, and :meth:`ledger` was called."""
        from metlmon.snapshot.ledger_builder import LedgerBuilder

        if self._ledger is not None:
            return True
        if self._books is None:
            shared = self.summary.books if self.runs is self.summary.runs else None
            self._books = shared or LedgerBuilder(self)
            if self.runs is self.summary.runs:
                self.summary.books = self._books
        deadline = None if seconds is None else time.monotonic() + seconds
        return self._books.bring(self, deadline)

    def made(self, key: NodeKey) -> SubmissionResult | None:
        """What the submissions of a node come to."""
        if self.nodes is self.ensemble.nodes:
            return self.ensemble.made(key)
        return made_of(self.nodes[key])

    def final_success(self, key: NodeKey) -> Execution | None:
        """The execution that completed the node: the last good one of its last good job."""
        return last_success(rounds(self.nodes[key]))

    def notices(self) -> Iterable[Notice]:
        yield from self.ensemble.conditions
        yield from self.ensemble.notices
        yield from self._refusals()
        yield from disagreements(self.ensemble)
        yield from self._doubled()
        yield from self._foreign()
        yield from self._ambiguous()
        yield from self._gaps()

    def _foreign(self) -> Iterable[Notice]:
        """Logs that the jobs of another directory's DAG write as well."""
        for log, number in sorted(self.ensemble.unproven.foreign_by_log().items()):
            text = (
                f"{count(number, 'job')} in it {'was' if number == 1 else 'were'} submitted by a "
                "DAG that is not in this directory but has the same node names, and "
                f"{'is' if number == 1 else 'are'} left out; give each directory a log of its own"
            )
            yield Notice("shared-log", log, None, text)

    def _ambiguous(self) -> Iterable[Notice]:
        groups: dict[tuple[str, ...], list[Job]] = defaultdict(list)
        for key in sorted(self.summary.ambiguous):
            placed = self.members.get(key)
            if placed is not None and placed.candidates:
                groups[placed.candidates].append(self.ensemble.jobs[key])
        for candidates, jobs in groups.items():
            files = ", ".join(self.dags[key].file for key in candidates)
            some = ", ".join(f"{j.cluster}.{j.proc}" for j in jobs[:3])
            more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""
            text = (
                f"{len(jobs)} jobs ({some}{more}) may belong to any of {files}: "
                "keep each DAG's .dagman.out or .nodes.log beside it to tell them apart"
            )
            if len(candidates) == 1:
                text = (
                    f"{count(len(jobs), 'job')} ({some}{more}) may belong to {files}, or to the "
                    "DAG of another directory that writes the same log: keep its .dagman.out and "
                    ".nodes.log beside it to tell them apart"
                )
            yield Notice("ambiguous-dag", min(jobs[0].user_logs, default=None), None, text)

    def _refusals(self) -> Iterable[Notice]:
        """What DAGMan complained of before it gave up: no failed node would tell why."""
        for dag in self.ensemble.dags.values():
            life = dag.life()
            error = life.processes[-1].error if life is not None and life.processes else None
            state = self.ensemble.dag_state(dag.key)[0]
            if not error or state not in (DagState.FAILED, DagState.UNKNOWN):
                broken = (process.error for process in dag.processes[:-1] if not process.ended)
                error = next((e for e in broken if e and e.endswith(GAVE_UP)), None)
            if error:
                yield Notice("dagman-error", f"{dag.key}.dagman.out", None, f"DAGMan: {error}")

    def _doubled(self) -> Iterable[Notice]:
        """Jobs of one node that are in the queue at once: a DAGMan that finds its log gone
        submits again what still runs."""
        if not self.live:
            return
        first: dict[NodeKey, int] = {}
        doubled: set[NodeKey] = set()
        for key in self.sums.queued:
            placed = self.members.get(key)
            if placed is None or placed.dag is None or placed.node is None:
                continue
            node = (placed.dag, placed.node)
            if first.setdefault(node, key[0]) != key[0]:
                doubled.add(node)
        if not doubled:
            return
        (dag, name), number = min(doubled), len(doubled)
        jobs = [k for k in self.sums.queued if self._is_of(k, (dag, name))]
        clusters = sorted({k[0] for k in jobs})
        more = f" (and so have {number - 1} more nodes)" if number > 1 else ""
        text = f"{name} has jobs of {len(clusters)} submissions in the queue by their logs"
        if all(self.members[k].proven for k in jobs):
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

    def _is_of(self, key: JobKey, node: NodeKey) -> bool:
        placed = self.members.get(key)
        return placed is not None and (placed.dag, placed.node) == node

    def _gaps(self) -> Iterable[Notice]:
        for key in sorted(self.sums.gaps):
            job = self.ensemble.jobs[key]
            file = min(job.user_logs or job.nodes_logs, default=None)
            for line, text in self.sums.gaps[key]:
                where = line if job.user_logs else None
                yield Notice("log-gap", file, where, f"job {job.cluster}.{job.proc}: {text}")

    def _dag_rows(self) -> Iterable[DagRow]:
        for dag in self.dags.values():
            if not dag.is_top:
                continue
            state, ended = self.ensemble.dag_state(dag.key)
            life = dag.life()
            if state in ENDED:
                ended = ended or end_in_utc(dag)
            counts = self.summary.counts[dag.key]
            rescue = dag.rescue()
            yield DagRow(
                dag.file,
                state,
                dag.dagmans(),
                *counts_of(dag, counts.total, counts.done, counts.failed, counts.unknown),
                rescue.number if rescue else None,
                dag.starts(self.clock),
                dag.halted,
                ended,
                dag.recoveries(),
                life.cluster if life is not None else None,
                dag.refused(),
                dag.hold() if state is DagState.HELD else None,
                counts.unknown,
            )

    def _log_rows(self) -> Iterable[LogRow]:
        for book in self.ensemble.books.values():
            yield LogRow(book.file, book.bytes, book.events, book.first, book.last)

    def causes(self) -> list[CauseRow]:
        """Bad GPU-hours by reason, the most expensive first."""
        rows = [
            CauseRow(
                *known[:3], spent.executions, spent.micros / AN_HOUR, self._said(known), known[3]
            )
            for known, spent in self.sums.causes.items()
        ]

        def order(row: CauseRow) -> tuple[object, ...]:
            codes = (-1 if each is None else each for each in (row.code, row.subcode))
            return -row.bad, -row.executions, row.cause, *codes, row.end_unknown

        return sorted(rows, key=order)

    def _said(self, cause: Cause) -> str | None:
        """What was said of the last one that ended for this cause."""
        spent = self.sums.causes[cause]
        if spent.example is None:
            executions = self.ensemble.jobs[spent.last_job()].life().executions
            said = (e.reason for e in reversed(executions) if blamed(e) == cause)
            spent.example = (next(said, None),)
        return spent.example[0]

    # --- runs ---------------------------------------------------------------------------

    def run_row(self, run: Run, in_flight: Mapping[str, int]) -> RunRow:
        """A run's row: drawn anew where its nodes have changed, else only its times are."""
        row = self._rows.get(run.key)
        if row is None:
            row = self._rows[run.key] = self._drawn_row(run)
        latest = row.latest
        if latest is not None and latest.since is not None:
            latest = replace(latest, seconds=self.seconds(latest.since, None))
        failed = row.failed
        if failed is not None and failed.since is not None:
            failed = replace(failed, seconds=self.seconds(failed.since, None))
        hours = self._run_hours(run, in_flight)
        gate = self.gate(run)
        now = (latest, hours, gate, failed)
        if now == (row.latest, row.gpu_hours, row.gate, row.failed):
            return row
        row = replace(row, latest=latest, gpu_hours=hours, gate=gate, failed=failed)
        self._rows[run.key] = row
        return row

    def _drawn_row(self, run: Run) -> RunRow:
        stands = self.standings[run.key]
        latest = self.latest(stands.latest) if stands.latest else None
        home = self.home(run)
        return RunRow(
            run.key,
            run.names[home],
            run.uuid,
            self.dag_file(home[0]),
            len(stands.epochs),
            stands.done,
            stands.inferred,
            stands.skipped,
            stands.state,
            latest,
            GpuHours(measure=self.sums.measure),
            epochs_unknown=stands.states.get(State.UNKNOWN, 0),
            failed=self._failed_epoch(stands.failed) if stands.failed else None,
            epochs_overruled=sum(map(self.summary.overruled.__contains__, stands.epochs.values())),
        )

    def _failed_epoch(self, key: NodeKey) -> FailedEpoch:
        state = self.states[key]
        return FailedEpoch(
            self.runs.parts[key].epoch,
            key[1],
            state.state,
            state.since,
            self.seconds(state.since, None) if state.since else None,
            state.failure.what if state.failure else None,
            state.failure.text if state.failure else None,
        )

    def gate(self, run: Run) -> GateStatus | None:
        """What is known of the gate before a run's nodes; None where none stands there. Of
        several DAGs that of the one that runs, else of the one that has the run's last epoch."""
        gated = [dag for dag in run.gated if dag in self.dags]
        if not gated:
            return None
        running = [dag for dag in gated if self._runs(dag)]
        # Not of the latest epoch: one that was stopped before it trained has none in its DAG.
        epochs = self.standings[run.key].epochs
        last = epochs[max(epochs)][0] if epochs else None
        dag = running[-1] if running else last if last in gated else gated[-1]
        said = self.ensemble.gates.get(dag, {}).get(run.uuid or "")
        return gate_of(said, self.clock, self.ensemble.cut, bool(running))

    def _runs(self, dag: str) -> bool:
        if dag not in self._running:
            known = dag in self.ensemble.dags
            self._running[dag] = known and self.ensemble.dag_state(dag)[0] in ALIVE
        return self._running[dag]

    def home(self, run: Run) -> NodeKey:
        """The node that gives a run its name and its DAG: that of its latest epoch. All its
        nodes go by that name, also those that another DAG or a splice calls differently."""
        stands = self.standings[run.key]
        return stands.latest or next(iter(stands.epochs.values()), None) or run.nodes()[0]

    def latest(self, key: NodeKey) -> Latest:
        state = self.states[key]
        part = self.runs.parts[key]
        life = self.life(state.job) if state.job else None
        machine = _machine(life)
        site = self.site(machine)
        target = self.target(key)
        held = state.state is State.HELD and life is not None and life.hold is not None
        hold = life.hold if held and life is not None else None
        return Latest(
            part.epoch,
            part.epoch_var,
            key[1],
            state.job.cluster if state.job else self.dags[key[0]].last_cluster(key[1]),
            state.job.proc if state.job else None,
            target,
            site,
            self.gpu(machine),
            life.executions[-1].gpus if life and life.executions else None,
            state.state,
            state.since,
            self.seconds(state.since, None) if state.since else None,
            self._attempts(key),
            hold.reason if hold else None,
            hold.code if hold else None,
            self.off_target(key, site),
            self._retries_left(key),
            key in self.summary.overruled,
        )

    def _attempts(self, key: NodeKey) -> int:
        """How often it was tried: the procs of one submission are tried together."""
        tries: dict[tuple[int, int], int] = {}
        for job in self.nodes[key].jobs:
            submission = job.cluster, job.subproc
            tries[submission] = max(tries.get(submission, 0), self._executions(job))
        return sum(tries.values())

    def _submissions(self, key: NodeKey) -> int:
        """How often a node was submitted: by the jobs that logs have of it, else by DAGMan."""
        jobs = self.nodes[key].jobs
        if jobs:
            return len({job.cluster for job in jobs})
        return self.dags[key[0]].submissions_of(key[1], self.clock)

    def _executions(self, job: Job) -> int:
        known = self.sums.executions_of(job.key)
        return len(self.life(job).executions) if known is None else known

    def find_runs(self, wanted: str) -> list[RunRow]:
        """Runs whose uuid begins with ``wanted``, or whose name is it, in the same case if there
        is one; an exact uuid or name alone wins over prefixes of others."""
        now = self.in_flight().runs
        rows = [self.run_row(run, now) for run in self.runs.by_key.values()]
        exact = [r for r in rows if wanted in (r.uuid, r.key)]
        if exact:
            return exact
        named = [r for r in rows if r.run.lower() == wanted.lower()]
        if named:
            return [r for r in named if r.run == wanted] or named
        return [r for r in rows if wanted and (r.uuid or "").lower().startswith(wanted.lower())]

    def _run_hours(self, run: Run, in_flight: Mapping[str, int]) -> GpuHours:
        hours = self.sums.runs.get(run.key) or GpuSeconds()
        return hours.hours(self.sums.measure, in_flight.get(run.key, 0))

    def run_seconds(self, run: Run, in_flight: Mapping[str, int]) -> tuple[float, float, float]:
        """GPU-seconds of a run: good, bad, in flight."""
        hours = self.sums.runs.get(run.key) or GpuSeconds()
        on_gpus = in_flight.get(run.key, 0) if self.sums.measure is HourUnit.GPU else 0
        return hours.good / SECOND, hours.bad / SECOND, on_gpus / SECOND

    def _node_hours(self, key: NodeKey) -> GpuHours:
        good = bad = in_flight = 0
        measure = self.sums.measure
        for job in self.nodes[key].jobs:
            for e in self.life(job).executions:
                weight = 0 if self.is_dagman(key) else measure.weight(e.gpus, e.cpus) or 0
                spent = round((self.seconds(e.start, e.end) or 0.0) * SECOND) * weight
                if e.outcome is Outcome.GOOD:
                    good += spent
                elif e.outcome is Outcome.IN_FLIGHT:
                    in_flight += spent
                else:
                    bad += spent
        return GpuHours(good / AN_HOUR, bad / AN_HOUR, in_flight / AN_HOUR, measure)

    def run_view(self, key: str) -> RunView | None:
        """One run with its epochs; None when there is no such run."""
        run = self.runs.by_key.get(key)
        if run is None:
            return None
        stands = self.standings[key]
        counting = set(stands.epochs.values())
        others = [k for ks in run.epochs.values() for k in ks if k not in counting]
        others = [k for k in others if self.nodes[k].jobs]
        listed = sorted(
            [*stands.epochs.values(), *others],
            key=lambda k: (self.runs.parts[k].epoch or 0, self.states[k].submitted is None),
        )
        side = {k: self.epoch_row(k) for k in run.side}
        after: dict[NodeKey, list[EpochRow]] = {}
        for k, row in side.items():
            epoch = self._epoch_before(k, run)
            if epoch is not None:
                after.setdefault(epoch, []).append(row)
        return RunView(
            self.run_row(run, self.in_flight().runs),
            tuple(self.epoch_row(k, tuple(after.get(k, ()))) for k in listed),
            tuple(side.values()),
        )

    def _epoch_before(self, key: NodeKey, run: Run) -> NodeKey | None:
        """The epoch of the run that a side node comes directly after, the last one of several:
        by the edges alone, the numbers in the names are not the same (train_epoch0's evaluation
        is eval_epoch1)."""
        dag, parts, of_node = key[0], self.runs.parts, self.runs.of_node
        nodes = self.dags[dag].workflow.nodes
        parents = [(dag, name) for name in parents_of(nodes, key[1])]
        epochs = [k for k in parents if of_node.get(k) is run and parts[k].training]
        return max(epochs, key=lambda k: parts[k].epoch or 0, default=None)

    def epoch_row(self, key: NodeKey, evaluations: tuple[EpochRow, ...] = ()) -> EpochRow:
        """One node of a run."""
        state, part = self.states[key], self.runs.parts[key]
        record = self.nodes[key]
        life = self.life(state.job) if state.job else None
        wait, transfer, execution = self._phases(life)
        return EpochRow(
            key[1],
            self.dag_file(key[0]),
            key[0],
            part.epoch,
            part.epoch_var,
            state.state,
            state.inferred,
            state.since,
            self.seconds(state.since, None) if state.since else None,
            tuple(job.id for round_ in rounds(record) for job in round_.jobs if not job.noop),
            *self._whereabouts(key, life),
            life.submitted if life else None,
            wait,
            transfer,
            execution,
            self._attempts(key),
            self._node_hours(key),
            self.trained_on(key),
            *_held(state.state, life),
            *self.success(key),
            *_job_ended(state.job, life),
            evaluations,
        )

    # --- nodes --------------------------------------------------------------------------

    def nodes_now(self) -> tuple[DagNodes, ...]:
        """All DAGs with their nodes' states, as a tree of nodes is made of them."""
        from metlmon.snapshot.node_tree import DagNodes

        by_path = {dag.workflow.path: dag for dag in self.dags.values()}
        states: dict[str, dict[str, NodeState]] = {key: {} for key in self.dags}
        for (key, name), state in self.states.items():
            states[key][name] = state
        overruled: dict[str, set[str]] = {}
        for key, name in self.summary.overruled:
            overruled.setdefault(key, set()).add(name)
        made = []
        for key, dag in self.dags.items():
            inside = {}
            for name, node in dag.workflow.nodes.items():
                inner = None if node.subdag is None else dag.workflow.subdags[node.subdag]
                known = by_path.get(inner.path) if inner is not None else None
                if known is not None and known.top == dag.top:
                    inside[name] = known.key
            passed = frozenset(overruled.get(key, ()))
            made.append(DagNodes(key, dag.file, dag.workflow.nodes, states[key], inside, passed))
        return tuple(made)

    def node_row(self, key: NodeKey) -> NodeRow | None:
        """One node, whatever it is for; None where there is no such node."""
        record, state = self.nodes.get(key), self.states.get(key)
        if record is None or state is None:
            return None
        node, states, dag = record.node, self.states, key[0]
        life = self.life(state.job) if state.job else None
        target, site, gpu, gpus, off_target = self._whereabouts(key, life)
        waits: list[str] = []
        if state.state is State.WAITING:
            nodes = self.dags[dag].workflow.nodes
            waits = [
                name
                for name in parents_of(nodes, key[1])
                if (dag, name) not in states or states[dag, name].state not in DONE
            ]
        run = self.runs.of_node.get(key)
        left = self._retries_left(key) if node.retries else None
        return NodeRow(
            dag,
            self.dag_file(dag),
            key[1],
            node.kind.value,
            state.state,
            state.inferred,
            state.since,
            self.seconds(state.since, None) if state.since else None,
            tuple(job.id for round_ in rounds(record) for job in round_.jobs if not job.noop),
            *_job_ended(state.job, life),
            target,
            site,
            gpu,
            gpus,
            off_target,
            self._attempts(key),
            node.retries,
            left,
            len(node.parents),
            len(waits),
            tuple(waits[:WAITS_TOLD]),
            len(node.children),
            run.key if run is not None else None,
            node.submit,
            *_held(state.state, life),
            self._stopped_by(run) if run is not None and state.state is State.SKIPPED else None,
            state.failure.text if state.failure else None,
            state.behind,
            self._submissions(key),
        )

    def _retries_left(self, key: NodeKey) -> int:
        """How often DAGMan would still try a node again: not at all where it let it fail."""
        state = self.states[key]
        if state.state is State.FAILED and not state.again:
            return 0
        return retries_left(self.dags[key[0]], self.nodes[key], self.made(key))

    def _stopped_by(self, run: Run) -> str | None:
        """The rule by which a run's gate ended it; None where it did not."""
        gate = self.gate(run)
        return gate.stopped.rule if gate is not None and gate.stopped is not None else None

    def _whereabouts(
        self, key: NodeKey, life: JobHistory | None
    ) -> tuple[str | None, str | None, str | None, int | None, bool]:
        """Target, site, kind and number of GPUs, and whether the site is not the target."""
        machine = _machine(life)
        target, site = self.target(key), self.site(machine)
        gpus = life.executions[-1].gpus if life and life.executions else None
        return target, site, self.gpu(machine), gpus, self.off_target(key, site)

    def _phases(self, life: JobHistory | None) -> tuple[float | None, float | None, float | None]:
        """Seconds of the last attempt: waiting in the queue, input transfer, execution."""
        if life is None or life.submitted is None:
            return None, None, None
        last = life.executions[-1] if life.executions else None
        previous = life.executions[-2] if len(life.executions) > 1 else None
        waited_from = previous.end if previous and previous.end else life.submitted
        if last is None or (life.state in ACTIVE and life.open is None):
            ended = last.end if last else None
            begun = ended or life.submitted
            spans = [s for s in life.transfers if s.start is not None and s.start >= begun]
            until = spans[-1].start if spans else None
            moved = self.seconds(spans[-1].start, spans[-1].end) if spans else None
            return self.seconds(begun, until), moved, None
        spans = [
            s
            for s in life.transfers
            if s.direction == "input"
            and s.outcome == "ok"
            and s.start is not None
            and waited_from <= s.start <= last.start
        ]
        begun = spans[-1].start if spans and spans[-1].start else last.start
        moved = self.seconds(spans[-1].start, spans[-1].end) if spans else None
        return (
            self.seconds(waited_from, begun),
            moved,
            self.seconds(last.start, last.end),
        )

    def trained_on(self, key: NodeKey) -> str | None:
        """The site of the node's longest execution, where another one succeeded ("hidden
        compute"); None where the one that trained is the one that succeeded."""
        final = self.final_success(key)
        if final is None or self.states[key].state is not State.COMPLETED:
            return None
        longest = self.longest(key)
        if longest is None or longest is final:
            return None
        return self.site(longest.machine)

    def longest(self, key: NodeKey) -> Execution | None:
        """The node's longest execution, the first of several that lasted as long."""
        jobs = sorted(self.nodes[key].jobs, key=lambda job: (job.cluster, job.proc, job.subproc))
        executions = [e for job in jobs for e in self.life(job).executions]
        return max(executions, key=lambda e: self.seconds(e.start, e.end) or 0.0, default=None)

    def success(self, key: NodeKey) -> tuple[float | None, float | None]:
        """Of a completed node: seconds of the execution that completed it, and of its longest
        one. (None, None) for any other."""
        final = self.final_success(key)
        longest = self.longest(key)
        if final is None or longest is None or self.states[key].state is not State.COMPLETED:
            return None, None
        return self.seconds(final.start, final.end), self.seconds(longest.start, longest.end)

    # --- jobs ---------------------------------------------------------------------------

    def job_rows(self) -> list[JobRow]:
        """All jobs, in order of cluster and proc; a top-level DAG's own DAGMan is none."""
        return [self.job_row(job) for job in self.real_jobs()]

    def queued(self, run: str | None = None) -> tuple[JobRow, ...]:
        """The jobs that are in the queue by their logs: of the run with this key, or all."""
        rows = (self.job_row(self.ensemble.jobs[key]) for key in sorted(self.sums.queued))
        if run is None:
            return tuple(rows)
        view = self.run_view(run)
        of_run = (*view.epochs, *view.side) if view else ()
        nodes = {(row.in_dag, row.node) for row in of_run}
        return tuple(row for row in rows if (row.in_dag, row.node) in nodes)

    def job_row(self, job: Job) -> JobRow:
        life = self.life(job)
        key = self.node_of(job)
        run = self.runs.of_node.get(key) if key else None
        part = self.runs.parts.get(key) if key else None
        placed = self.members.get((job.cluster, job.proc, job.subproc))
        machine = _machine(life)
        hold = life.hold if life.state is State.HELD else None
        request = next((u.request for u in life.usage if u.name == "Memory"), None)
        peak = next((u.usage for u in life.usage if u.name == "Memory"), None)
        memory = max((m for m in (job.memory_max, peak) if m is not None), default=None)
        return JobRow(
            self.dag_file(key[0]) if key else None,
            key[0] if key else None,
            key[1] if key else None,
            run.names[self.home(run)] if run else None,
            run.uuid if run else None,
            part.epoch if part else None,
            job.cluster,
            job.proc,
            life.state or State.IDLE,
            life.since,
            self.seconds(life.since, None) if life.since else None,
            self.target(key),
            self.site(machine),
            self.gpu(machine),
            life.executions[-1].gpus if life.executions else None,
            life.submitted,
            tuple(self._execution_row(e) for e in life.executions),
            tuple(self._transfer_row(s) for s in life.transfers),
            life.bytes_sent,
            life.bytes_received,
            int(memory) if memory is not None else None,
            int(request) if request is not None else None,
            hold.reason if hold else None,
            hold.code if hold else None,
            hold.subcode if hold else None,
            tuple(self.dags[k].file for k in (placed.candidates if placed else ())),
            self.off_target(key, self.site(machine)),
        )

    def _execution_row(self, e: Execution) -> ExecutionRow:
        machine = e.machine
        return ExecutionRow(
            e.start,
            e.end,
            self.seconds(e.start, e.end),
            sum(self.seconds(a, b) or 0.0 for a, b in e.suspensions),
            e.outcome,
            e.code,
            e.subcode,
            e.reason,
            e.return_value,
            e.signal,
            self.site(machine),
            host_of(machine) if machine else None,
            self.gpu(machine),
            e.gpus,
            self.hours(e),
            e.uncertain,
        )

    def _transfer_row(self, span: TransferSpan) -> TransferRow:
        outcome = "in-flight" if span.outcome == "pending" else span.outcome
        return TransferRow(
            span.direction,
            span.start,
            span.end,
            self.seconds(span.start, span.end),
            outcome,
            span.host,
            span.queue_seconds,
        )

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        """The life of one job; None when there is no such job."""
        job = self.ensemble.jobs.get(self.ensemble.lives.newest((cluster, proc)))
        if job is None or job.key in self.ensemble.unproven.foreign:
            return None
        key = self.node_of(job)
        record = self.nodes.get(key) if key else None
        siblings = (
            tuple(j.id for r in rounds(record) for j in r.jobs if not j.noop)
            if record
            else (job.id,)
        )
        return JobView(
            self.job_row(job),
            self.event_lines(job),
            job.memory_updates,
            self.life(job).usage,
            _filled(record.node.output, job) if record else None,
            _filled(record.node.error, job) if record else None,
            siblings,
            tuple(self.life(job).states),
        )

    def event_lines(self, job: Job) -> tuple[EventLine, ...]:
        """The job's history, without its 006 events, and holds that were inferred needlessly."""
        holds = self.life(job).holds
        return tuple(
            EventLine(e.time, e.number, e.name, _told(e.text, e.detail, e.body), e.damaged)
            for e in job.events()
            if not (isinstance(e.detail, Held) and e.detail.inferred) or (e.time, e.detail) in holds
        )

    def output(self, cluster: int, proc: int) -> str | None:
        """The file that a job's output goes to, as its submit description says; None where that
        is not known."""
        job = self.ensemble.jobs.get(self.ensemble.lives.newest((cluster, proc)))
        key = self.node_of(job) if job is not None else None
        record = self.nodes.get(key) if key else None
        return _filled(record.node.output, job) if record and job else None

    # --- problems -----------------------------------------------------------------------

    def problems(self) -> tuple[ProblemGroup, ...]:
        """Trouble grouped by cause: what is in trouble now first, then by what it cost."""
        groups = self.summary.troubles.by_cause(self.as_of)
        drawn = [self._group(key, trouble) for key, trouble in groups.items()]
        drawn += self._without_jobs()
        return tuple(sorted(drawn, key=lambda g: (-g.now, -g.lost, -g.times, g.cause, g.kind)))

    def _without_jobs(self) -> Iterable[ProblemGroup]:
        """Nodes that failed without a job's doing, by what DAGMan says of them."""
        causes: dict[str, list[NodeKey]] = defaultdict(list)
        for key, failure in self.summary.jobless.items():
            causes[failure.text].append(key)
        for cause, keys in causes.items():
            since = [when for key in keys if (when := self.states[key].since) is not None]
            of_runs = {key: self.runs.of_node[key] for key in keys if key in self.runs.of_node}
            runs = {run.key: run for run in of_runs.values()}
            yield ProblemGroup(
                f"node:{cause}",
                "failed",
                cause,
                None,
                None,
                len(keys),
                len(keys),
                0.0,
                tuple(runs),
                tuple(run.names[self.home(run)] for run in runs.values()),
                (),
                max(since, default=None),
                None,
                tuple(name for _, name in sorted(keys)),
            )

    def _group(self, key: tuple[str, str], trouble: ProblemTotals) -> ProblemGroup:
        kind, cause = key
        by_key = self.runs.by_key
        runs = {key: by_key[key] for key in trouble.runs if key in by_key}
        return ProblemGroup(
            f"{kind}:{cause}",
            kind,
            cause,
            trouble.code,
            trouble.subcode,
            len(trouble.now),
            trouble.times,
            trouble.lost,
            tuple(runs),
            tuple(run.names[self.home(run)] for run in runs.values()),
            trouble.latest,
            trouble.jobs[trouble.latest[0]] if trouble.latest else None,
            trouble.example,
        )


@dataclass(slots=True)
class InFlight:
    """Microseconds in flight, in the measure of the ensemble: on GPUs, CPUs, or by the clock."""

    total: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    sites: Counter[str | None] = field(default_factory=Counter)
    gpus: Counter[str | None] = field(default_factory=Counter)


def _job_ended(job: Job | None, life: JobHistory | None) -> tuple[State | None, int | None]:
    """What a node's job came to, and the return value of its last execution."""
    if job is None or life is None or job.noop:
        return None, None
    return life.state, life.executions[-1].return_value if life.executions else None


def _held(state: State, life: JobHistory | None) -> tuple[str | None, int | None]:
    """Why a node's job is held, and the code of it."""
    if state is not State.HELD or life is None or life.hold is None:
        return None, None
    return life.hold.reason, life.hold.code


def _machine(life: JobHistory | None) -> Execute | None:
    return life.executions[-1].machine if life is not None and life.executions else None


def _counted(counts: Mapping[State, int]) -> Mapping[State, int]:
    return {state: counts.get(state, 0) for state in State}


_Ranked: TypeAlias = tuple[str | None, SiteTotals, GpuHours]


def _largest_first(
    sums: RunningTotals,
    places: Mapping[str | None, SiteTotals],
    in_flight: Mapping[str | None, int],
) -> list[_Ranked]:
    """Name, what it served, and hours with those in flight."""
    measure = sums.measure
    ranked = [
        (name, served, served.hours.hours(measure, in_flight.get(name, 0)))
        for name, served in places.items()
    ]
    return sorted(ranked, key=lambda each: (-each[2].total, -each[1].executions, each[0] or ""))


def _site_row(site: str | None, served: SiteTotals, hours: GpuHours) -> SiteRow:
    return SiteRow(
        site,
        tuple(sorted(served.targets)),
        served.executions,
        served.completed,
        hours,
        served.seconds.value(),
    )


def _gpu_row(gpu: str | None, served: SiteTotals, hours: GpuHours) -> GpuRow:
    return GpuRow(gpu, served.executions, served.completed, hours)


def _told(text: str, detail: object, body: str) -> str:
    """An event's header text, and the reason that stands below it."""
    match detail:
        case Evicted() | Held() | Released() | Aborted() | ConnectionEvent():
            more = detail.reason
        case RemoteError():
            more = detail.message
        case Generic():
            more = None
        case None:
            more = body.strip() or None
        case _:
            more = getattr(detail, "reason", None)
    return f"{text} {more}".strip() if more else text


_CLUSTER = re.compile(r"\$\((?:cluster|clusterid)\)", re.IGNORECASE)
_PROCESS = re.compile(r"\$\((?:process|procid)\)", re.IGNORECASE)


def _filled(name: str | None, job: Job) -> str | None:
    if name is None:
        return None
    return _PROCESS.sub(str(job.proc), _CLUSTER.sub(str(job.cluster), name))
