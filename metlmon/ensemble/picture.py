"""Pictures of an ensemble at a moment: the figures that screens, tables and JSON show.

All definitions are those of ``domain.md``. A :class:`Painter` holds an ensemble and what
follows from it at one moment; its methods draw the immutable views.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median
from typing import Final

from metlmon.dagman import NodeKind
from metlmon.ensemble.causes import cause_of
from metlmon.ensemble.ensemble import Ensemble
from metlmon.ensemble.job import Execution, JobLife, TransferSpan
from metlmon.ensemble.ledger import Ledger
from metlmon.ensemble.node import NodeState, rounds
from metlmon.ensemble.record import Job, JobId, NodeKey
from metlmon.ensemble.runs import Run, Runs, Standing, standing, variable
from metlmon.ensemble.sites import BUILT_IN_SITES, host_of, site_of, site_of_address
from metlmon.ensemble.states import ACTIVE, DONE, DagState, Outcome, State
from metlmon.ensemble.views import (
    CauseRow,
    Count,
    DagRow,
    EpochRow,
    EventLine,
    ExecutionRow,
    GpuHours,
    GpuRow,
    JobRow,
    JobView,
    Latest,
    LogRow,
    Notice,
    ProblemGroup,
    RunRow,
    RunView,
    SiteRow,
    Status,
    TransferRow,
    TransferTotals,
)
from metlmon.eventlog import (
    Aborted,
    Connection,
    Evicted,
    Execute,
    Generic,
    Held,
    Released,
    RemoteError,
)

HOUR: Final = 3600.0

STALLED_TRANSFER: Final = timedelta(minutes=30)
"""Input transfers of tens of GB take minutes; one that is still going after this long has
in every real log ended in an eviction, not in an execution."""

STALLED_DISCONNECT: Final = timedelta(minutes=10)
"""24 of 26 real disconnects reconnected; the others failed within the lease of 40 minutes.
After this long it is worth a look."""

ANYWHERE: Final = frozenset({"any", "anywhere", "all"})
"""Targets that every site meets."""

POOLS: Final = frozenset({"osg", "ospool"})
"""Targets that name a pool of many sites: only another target's own site is off them."""


@dataclass(slots=True)
class _Sum:
    """GPU-hours being added up."""

    good: float = 0.0
    bad: float = 0.0
    in_flight: float = 0.0

    def add(self, outcome: Outcome, hours: float) -> None:
        if outcome is Outcome.GOOD:
            self.good += hours
        elif outcome is Outcome.IN_FLIGHT:
            self.in_flight += hours
        else:
            self.bad += hours

    def done(self) -> GpuHours:
        return GpuHours(self.good, self.bad, self.in_flight)


@dataclass(slots=True)
class _Place:
    """What a site or a GPU model served."""

    executions: int = 0
    completed: int = 0
    hours: _Sum = field(default_factory=_Sum)
    targets: set[str] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)


class Painter:
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
        self.sites = (*ensemble.settings.sites, *BUILT_IN_SITES)
        self._site_aliases = dict(ensemble.settings.site_aliases)
        self._gpu_aliases = dict(ensemble.settings.gpu_aliases)
        self.runs = Runs(ensemble.dags, ensemble.settings)
        self.states: dict[NodeKey, NodeState] = {
            (dag_key, name): state
            for dag_key in ensemble.dags
            for name, state in ensemble.node_states(dag_key, live).items()
        }
        order = {key: place for place, key in enumerate(ensemble.dags)}
        self.standings: dict[str, Standing] = {
            key: standing(run, self.states, order) for key, run in self.runs.by_key.items()
        }
        self.targets = self._all_targets()
        self._ledger: Ledger | None = None

    # --- small questions ----------------------------------------------------------------

    def _all_targets(self) -> frozenset[str]:
        named = (variable(record.node, "ResourceName") for record in self.nodes.values())
        return frozenset(_squash(name) for name in named if name)

    def target(self, key: NodeKey | None) -> str | None:
        record = self.nodes.get(key) if key else None
        return variable(record.node, "ResourceName") if record else None

    def site(self, machine: Execute | None) -> str | None:
        """The site of an execution, by the name that the settings give it."""
        found = site_of(machine, self.sites)
        return self._site_aliases.get(found, found) if found is not None else None

    def site_of_address(self, address: str) -> str | None:
        """The site of a host that nothing ran on yet, as far as rules tell."""
        found = site_of_address(address, self.sites)
        return self._site_aliases.get(found, found) if found is not None else None

    def gpu(self, machine: Execute | None) -> str | None:
        """The GPU's model as logged, or as the settings call it."""
        found = machine.gpu if machine is not None else None
        return self._gpu_aliases.get(found, found) if found is not None else None

    def off_target(self, target: str | None, site: str | None) -> bool:
        """Did it run where it did not want to go? A pool-wide target is missed only where
        another target's own site was used."""
        if not target or not site:
            return False
        wanted, got = _squash(target), _squash(site)
        if wanted in ANYWHERE or wanted in got or got in wanted:
            return False
        if wanted in POOLS:
            return any(other in got for other in self.targets - ANYWHERE - POOLS)
        return True

    def seconds(self, start: datetime | None, end: datetime | None) -> float | None:
        end = end or self.as_of
        if start is None or end is None:
            return None
        return self.clock.seconds(start, end)

    def life(self, job: Job) -> JobLife:
        return job.life()

    def hours(self, execution: Execution) -> float | None:
        """GPU-hours of one execution; None when its number of GPUs is not known."""
        gpus = execution.gpus
        seconds = self.seconds(execution.start, execution.end)
        if gpus is None or seconds is None:
            return None
        return seconds * gpus / HOUR

    def real_jobs(self) -> list[Job]:
        jobs = (job for job in self.ensemble.jobs.values() if not job.noop)
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
        total = _Sum()
        sites: defaultdict[str | None, _Place] = defaultdict(_Place)
        gpus: defaultdict[str | None, _Place] = defaultdict(_Place)
        by_run: defaultdict[str, _Sum] = defaultdict(_Sum)
        for job in self.real_jobs():
            key = self.node_of(job)
            run = self.runs.of_node.get(key) if key else None
            for execution in self.life(job).executions:
                hours = self.hours(execution) or 0.0
                total.add(execution.outcome, hours)
                if run is not None:
                    by_run[run.key].add(execution.outcome, hours)
                if not self.is_dagman(key):
                    self._note_place(sites, gpus, execution, hours, self.target(key))
        self._count_completed(sites, gpus)
        runs = tuple(
            self._run_row(run, by_run[key].done()) for key, run in self.runs.by_key.items()
        )
        return Status(
            self.dagdir,
            self.as_of,
            self.live,
            tuple(self.notices()),
            tuple(self._dag_rows()),
            runs,
            self._epoch_states(),
            _counted(state.state for state in self.states.values()),
            total.done(),
            tuple(_site_row(site, place) for site, place in _largest_first(sites)),
            tuple(
                GpuRow(gpu, place.executions, place.completed, place.hours.done())
                for gpu, place in _largest_first(gpus)
            ),
            tuple(self.causes()),
            self._transfer_totals(),
            tuple(self._log_rows()),
        )

    def _note_place(
        self,
        sites: defaultdict[str | None, _Place],
        gpus: defaultdict[str | None, _Place],
        execution: Execution,
        hours: float,
        target: str | None,
    ) -> None:
        machine = execution.machine
        for place in (
            sites[self.site(machine)],
            gpus[self.gpu(machine)],
        ):
            place.executions += 1
            place.hours.add(execution.outcome, hours)
            if target:
                place.targets.add(target)
            seconds = self.seconds(execution.start, execution.end)
            if execution.outcome is Outcome.GOOD and seconds is not None:
                place.seconds.append(seconds)

    def ledger(self) -> Ledger:
        """All entries of the ensemble, flat: what everything is added up from. Made once: who
        asks again is told the same."""
        from metlmon.ensemble.booking import booked

        if self._ledger is None:
            self._ledger = booked(self)
        return self._ledger

    def _count_completed(
        self,
        sites: defaultdict[str | None, _Place],
        gpus: defaultdict[str | None, _Place],
    ) -> None:
        for key, part in self.runs.parts.items():
            if not part.training or self.states[key].state is not State.COMPLETED:
                continue
            final = self.final_success(key)
            if final is not None:
                sites[self.site(final.machine)].completed += 1
                gpus[self.gpu(final.machine)].completed += 1

    def final_success(self, key: NodeKey) -> Execution | None:
        """The execution that completed the node: the last good one of its last good job."""
        for round_ in reversed(rounds(self.nodes[key])):
            for job in round_.jobs:
                for execution in reversed(self.life(job).executions):
                    if execution.outcome is Outcome.GOOD:
                        return execution
        return None

    def _epoch_states(self) -> Mapping[State, int]:
        return _counted(
            self.states[key].state for key, part in self.runs.parts.items() if part.training
        )

    def notices(self) -> Iterable[Notice]:
        yield from self.ensemble.conditions
        yield from self.ensemble.notices
        yield from self._refusals()
        yield from self._ambiguous()
        yield from self._gaps()

    def _ambiguous(self) -> Iterable[Notice]:
        groups: dict[tuple[str, ...], list[Job]] = defaultdict(list)
        for key, placed in sorted(self.members.items(), key=lambda item: item[0]):
            if placed.candidates:
                groups[placed.candidates].append(self.ensemble.jobs[key])
        for candidates, jobs in groups.items():
            files = ", ".join(self.dags[key].file for key in candidates)
            some = ", ".join(f"{j.cluster}.{j.proc}" for j in jobs[:3])
            more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""
            yield Notice(
                "ambiguous-dag",
                min(jobs[0].user_logs, default=None),
                None,
                f"{len(jobs)} jobs ({some}{more}) may belong to any of {files}: "
                "keep each DAG's .dagman.out or .nodes.log beside it to tell them apart",
            )

    def _refusals(self) -> Iterable[Notice]:
        """What DAGMan complained of before it gave up: no failed node would tell why."""
        for dag in self.ensemble.dags.values():
            error = dag.lives[-1].error if dag.lives else None
            if error and self.ensemble.dag_state(dag.key)[0] is DagState.FAILED:
                yield Notice("dagman-error", f"{dag.key}.dagman.out", None, f"DAGMan: {error}")

    def _gaps(self) -> Iterable[Notice]:
        for job in self.real_jobs():
            for line, _, text in self.life(job).gaps:
                file = min(job.user_logs or job.nodes_logs, default=None)
                where = line if job.user_logs else None
                yield Notice("log-gap", file, where, f"job {job.cluster}.{job.proc}: {text}")

    def _dag_rows(self) -> Iterable[DagRow]:
        for dag in self.dags.values():
            if not dag.is_top:
                continue
            state, ended = self.ensemble.dag_state(dag.key)
            nodes = [
                self.states[(dag.key, name)]
                for name, node in dag.workflow.nodes.items()
                if node.kind is not NodeKind.SERVICE
            ]
            rescue = dag.rescue()
            yield DagRow(
                dag.file,
                state,
                dag.dagmans(),
                len(nodes),
                sum(node.state in DONE for node in nodes),
                sum(map(_has_failed, nodes)),
                rescue.number if rescue else None,
                dag.starts(self.clock),
                dag.halted,
                ended,
                sum(life.recovery for life in dag.lives),
                dag.tenures[-1].cluster if dag.tenures else None,
            )

    def _log_rows(self) -> Iterable[LogRow]:
        for book in self.ensemble.books.values():
            yield LogRow(book.file, book.bytes, book.events, book.first, book.last)

    def _transfer_totals(self) -> TransferTotals:
        tally: dict[str, list[float]] = {
            kind: [0, 0.0] for kind in ("ok", "aborted", "unfinished", "output")
        }
        sent = received = 0
        for job in self.real_jobs():
            life = self.life(job)
            sent += life.bytes_sent or 0
            received += life.bytes_received or 0
            for span in life.transfers:
                kind = self._transfer_kind(span)
                if kind is not None:
                    tally[kind][0] += 1
                    if span.start is not None and span.end is not None:
                        tally[kind][1] += self.clock.seconds(span.start, span.end)
        counts = {kind: Count(int(n), seconds) for kind, (n, seconds) in tally.items()}
        return TransferTotals(
            counts["ok"],
            counts["aborted"],
            counts["unfinished"],
            counts["output"],
            sent,
            received,
        )

    @staticmethod
    def _transfer_kind(span: TransferSpan) -> str | None:
        if span.direction == "output":
            measured = span.start is not None and span.outcome == "ok"
            return "output" if measured else None
        return span.outcome if span.outcome in ("ok", "aborted", "unfinished") else None

    def causes(self) -> list[CauseRow]:
        """Bad GPU-hours by reason, the most expensive first."""
        groups: dict[tuple[str, int | None, int | None, bool], list[tuple[float, str | None]]]
        groups = defaultdict(list)
        for job in self.real_jobs():
            for execution in self.life(job).executions:
                if execution.outcome in (Outcome.GOOD, Outcome.IN_FLIGHT):
                    continue
                # What a hole in the log is to blame for is not mixed with what is known.
                unknown = execution.uncertain
                key = (execution.cause, execution.code, execution.subcode, unknown)
                groups[key].append((self.hours(execution) or 0.0, execution.reason))
        rows = [
            CauseRow(cause, code, sub, len(hits), sum(h for h, _ in hits), hits[-1][1], unknown)
            for (cause, code, sub, unknown), hits in groups.items()
        ]
        return sorted(rows, key=lambda row: (-row.bad, -row.executions, row.cause))

    # --- runs ---------------------------------------------------------------------------

    def _run_row(self, run: Run, hours: GpuHours) -> RunRow:
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
            hours,
        )

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
            self.off_target(target, site),
        )

    def _attempts(self, key: NodeKey) -> int:
        return sum(len(self.life(job).executions) for job in self.nodes[key].jobs)

    def find_runs(self, wanted: str) -> list[RunRow]:
        """Runs whose uuid begins with ``wanted``, or whose name is it (any case); an exact
        uuid or name alone wins over prefixes of others."""
        rows = [self._run_row(run, self._run_hours(run)) for run in self.runs.by_key.values()]
        exact = [r for r in rows if wanted in (r.uuid, r.key)]
        if exact:
            return exact
        named = [r for r in rows if r.run.lower() == wanted.lower()]
        if named:
            return named
        return [r for r in rows if wanted and (r.uuid or "").lower().startswith(wanted.lower())]

    def _run_hours(self, run: Run) -> GpuHours:
        total = _Sum()
        for key in run.nodes():
            self._add_hours(total, key)
        return total.done()

    def _add_hours(self, total: _Sum, key: NodeKey) -> None:
        for job in self.nodes[key].jobs:
            for execution in self.life(job).executions:
                total.add(execution.outcome, self.hours(execution) or 0.0)

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
        return RunView(
            self._run_row(run, self._run_hours(run)),
            tuple(self.epoch_row(k) for k in listed),
            tuple(self.epoch_row(k) for k in run.side),
        )

    def epoch_row(self, key: NodeKey) -> EpochRow:
        """One node of a run."""
        state, part = self.states[key], self.runs.parts[key]
        record = self.nodes[key]
        life = self.life(state.job) if state.job else None
        machine = _machine(life)
        target, site = self.target(key), self.site(machine)
        hours = _Sum()
        self._add_hours(hours, key)
        wait, transfer, execution = self._phases(life)
        hold = life.hold if life is not None and state.state is State.HELD else None
        return EpochRow(
            key[1],
            self.dag_file(key[0]),
            part.epoch,
            part.epoch_var,
            state.state,
            state.inferred,
            state.since,
            self.seconds(state.since, None) if state.since else None,
            tuple(job.id for round_ in rounds(record) for job in round_.jobs if not job.noop),
            target,
            site,
            self.gpu(machine),
            life.executions[-1].gpus if life and life.executions else None,
            self.off_target(target, site),
            life.submitted if life else None,
            wait,
            transfer,
            execution,
            self._attempts(key),
            hours.done(),
            self.trained_on(key),
            hold.reason if hold else None,
            hold.code if hold else None,
            *self.success(key),
        )

    def _phases(self, life: JobLife | None) -> tuple[float | None, float | None, float | None]:
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
        rows = (self.job_row(job) for job in self.real_jobs() if self.life(job).state in ACTIVE)
        if run is None:
            return tuple(rows)
        view = self.run_view(run)
        nodes = {(row.dag, row.node) for row in (*view.epochs, *view.side)} if view else set()
        return tuple(row for row in rows if (row.dag, row.node) in nodes)

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
            self.off_target(self.target(key), self.site(machine)),
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
        job = self.ensemble.jobs.get((cluster, proc, 0))
        if job is None:
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
        """The job's history, without its 006 events."""
        return tuple(
            EventLine(e.time, e.number, e.name, _told(e.text, e.detail, e.body), e.damaged)
            for e in job.events()
        )

    def output(self, cluster: int, proc: int) -> str | None:
        """The file that a job's output goes to, as its submit description says; None where that
        is not known."""
        job = self.ensemble.jobs.get((cluster, proc, 0))
        key = self.node_of(job) if job is not None else None
        record = self.nodes.get(key) if key else None
        return _filled(record.node.output, job) if record and job else None

    # --- problems -----------------------------------------------------------------------

    def problems(self) -> tuple[ProblemGroup, ...]:
        """Trouble grouped by cause: what is in trouble now first, then by what it cost."""
        groups: dict[tuple[str, str], _Trouble] = {}
        for job in self.real_jobs():
            life = self.life(job)
            for execution in life.executions:
                if execution.outcome in (Outcome.GOOD, Outcome.IN_FLIGHT):
                    continue
                if execution.held_by is not None:
                    self._lost_to_hold(groups, execution)
                    continue
                trouble = _trouble(groups, str(execution.outcome), execution.cause)
                trouble.strike(job, execution.end, self.hours(execution), execution.reason)
                trouble.code, trouble.subcode = execution.code, execution.subcode
            self._holds(groups, job, life)
            self._stalls(groups, job, life)
        drawn = [self._group(key, trouble) for key, trouble in groups.items()]
        return tuple(sorted(drawn, key=lambda g: (-g.now, -g.lost, -g.times, g.cause)))

    def _lost_to_hold(self, groups: dict[tuple[str, str], _Trouble], execution: Execution) -> None:
        """The eviction was the hold's doing: what it cost is the hold's, counted there."""
        hold = execution.held_by
        if hold is not None:
            cause = cause_of(Outcome.HELD, hold.code, hold.reason, None, None)
            trouble = _trouble(groups, str(Outcome.HELD), cause)
            trouble.lost += self.hours(execution) or 0.0

    def _holds(self, groups: dict[tuple[str, str], _Trouble], job: Job, life: JobLife) -> None:
        ends = {e.end for e in life.executions if e.outcome is Outcome.HELD}
        for when, held in life.holds:
            reason = held.reason if held else None
            code = held.code if held else None
            cause = cause_of(Outcome.HELD, code, reason, None, None)
            trouble = _trouble(groups, str(Outcome.HELD), cause)
            trouble.code, trouble.subcode = code, held.subcode if held else None
            if when not in ends:
                trouble.strike(job, when, None, reason)
        if life.state is State.HELD and life.hold is not None:
            cause = cause_of(Outcome.HELD, life.hold.code, life.hold.reason, None, None)
            _trouble(groups, str(Outcome.HELD), cause).now.add(job.id)

    def _stalls(self, groups: dict[tuple[str, str], _Trouble], job: Job, life: JobLife) -> None:
        for span in life.transfers:
            seconds = self.seconds(span.start, span.end)
            stuck = span.outcome in ("unfinished", "in-flight") and span.direction == "input"
            if not stuck or seconds is None or seconds < STALLED_TRANSFER.total_seconds():
                continue
            trouble = _trouble(groups, "stalled", "input transfer stalled")
            trouble.strike(job, span.end or self.as_of, None, None)
            if span.end is None and life.state is State.TRANSFERRING_INPUT:
                trouble.now.add(job.id)
        if life.state is State.DISCONNECTED:
            seconds = self.seconds(life.since, None)
            if seconds is not None and seconds >= STALLED_DISCONNECT.total_seconds():
                trouble = _trouble(groups, "stalled", "lost contact with the execute host")
                trouble.strike(job, life.since, None, None)
                trouble.now.add(job.id)

    def _group(self, key: tuple[str, str], trouble: _Trouble) -> ProblemGroup:
        kind, cause = key
        runs: dict[str, str] = {}
        for cluster, proc in trouble.jobs:
            node = self.node_of(self.ensemble.jobs[(cluster, proc, 0)])
            run = self.runs.of_node.get(node) if node else None
            if run is not None:
                runs[run.key] = run.names[self.home(run)]
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
            tuple(runs.values()),
            tuple(sorted(trouble.jobs, key=lambda j: trouble.jobs[j], reverse=True)),
            max(trouble.jobs.values(), default=None),
            trouble.example,
        )


@dataclass(slots=True)
class _Trouble:
    now: set[JobId] = field(default_factory=set)
    times: int = 0
    lost: float = 0.0
    jobs: dict[JobId, datetime] = field(default_factory=dict)
    code: int | None = None
    subcode: int | None = None
    example: str | None = None

    def strike(
        self, job: Job, when: datetime | None, hours: float | None, reason: str | None
    ) -> None:
        self.times += 1
        self.lost += hours or 0.0
        self.jobs[job.id] = max(self.jobs.get(job.id, datetime.min), when or datetime.min)
        self.example = reason or self.example


def _trouble(groups: dict[tuple[str, str], _Trouble], kind: str, cause: str) -> _Trouble:
    return groups.setdefault((kind, cause), _Trouble())


def _machine(life: JobLife | None) -> Execute | None:
    return life.executions[-1].machine if life is not None and life.executions else None


def _counted(states: Iterable[State]) -> Mapping[State, int]:
    counts = Counter(states)
    return {state: counts.get(state, 0) for state in State}


def _has_failed(node: NodeState) -> bool:
    """As DAGMan counts: a node whose job somebody removed has failed, one whose job left
    together with its DAG has not."""
    if node.state is State.REMOVED:
        return node.job is None or not node.job.swept
    return node.state is State.FAILED


def _squash(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _largest_first(places: Mapping[str | None, _Place]) -> list[tuple[str | None, _Place]]:
    return sorted(
        places.items(),
        key=lambda item: (-item[1].hours.done().total, -item[1].executions, item[0] or ""),
    )


def _site_row(site: str | None, place: _Place) -> SiteRow:
    return SiteRow(
        site,
        tuple(sorted(place.targets)),
        place.executions,
        place.completed,
        place.hours.done(),
        median(place.seconds) if place.seconds else None,
    )


def _told(text: str, detail: object, body: str) -> str:
    """An event's header text, and the reason that stands below it."""
    match detail:
        case Evicted() | Held() | Released() | Aborted() | Connection():
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
