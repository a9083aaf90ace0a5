"""From the state model to the ledger: each entry is made in one place, here."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from metlmon.ensemble.causes import cause_of
from metlmon.ensemble.job import Execution, JobLife, TransferSpan
from metlmon.ensemble.ledger import (
    EpochEntry,
    ExecutionEntry,
    HoldEntry,
    JobEntry,
    Ledger,
    RunEntry,
    TransferEntry,
)
from metlmon.ensemble.node import last_success, rounds
from metlmon.ensemble.record import Job, JobId, NodeKey
from metlmon.ensemble.runs import Run
from metlmon.ensemble.sites import alias_of, host_of
from metlmon.ensemble.states import TERMINAL, Outcome, State
from metlmon.frozen import frozen

if TYPE_CHECKING:
    from metlmon.ensemble.picture import Painter


BYTES_TOLD: Final = frozenset({4, 5})
"""Evicted and terminated: the events that say how much a job moved."""

JobKey = tuple[int, int, int]


@frozen
class _Owner:
    """Whose a job is: said once for all its entries."""

    dag: str | None = None
    node: str | None = None
    run: str | None = None
    run_name: str | None = None
    uuid: str | None = None
    label: str | None = None
    epoch: int | None = None
    training: bool = False
    target: str | None = None
    dagman: bool = False


NOBODY: Final = _Owner()
"""Of a job that belongs to no node, or to nobody knows which."""


def booked(painter: Painter) -> Ledger:
    """The ledger of the picture that ``painter`` draws."""
    return _Booking(painter).ledger()


class _Booking:
    """What is made of the picture once and used by several entries: the owners of jobs, the
    submissions of nodes, the executions that completed an epoch, and, as they are booked, the
    entries of each job's executions, from which epochs and runs are added up."""

    def __init__(self, painter: Painter) -> None:
        self.painter = painter
        self.jobs = painter.real_jobs()
        self.owners: dict[NodeKey, _Owner] = {}
        self.names: dict[str, tuple[str, str | None]] = {}
        parts = painter.runs.parts
        self.rounds = {key: rounds(painter.nodes[key]) for key in parts}
        self.finals: dict[NodeKey, Execution] = {}
        for key, part in parts.items():
            if part.training and painter.states[key].state is State.COMPLETED:
                final = last_success(self.rounds[key])
                if final is not None:
                    self.finals[key] = final
        self.final_ids = frozenset(id(final) for final in self.finals.values())
        self.attempts = self._attempts()
        self.known_hosts: dict[str, set[str]] = {}
        self.booked: dict[JobKey, list[ExecutionEntry]] = {}

    def ledger(self) -> Ledger:
        painter = self.painter
        for job in self.jobs:
            self.booked[_key(job)] = list(self._executions(job))
        executions = tuple(entry for job in self.jobs for entry in self.booked[_key(job)])
        # Executions first: they tell which site a host is of.
        transfers = tuple(entry for job in self.jobs for entry in self._transfers(job))
        return Ledger(
            painter.dagdir,
            painter.as_of,
            painter.live,
            tuple(self._run(run) for run in painter.runs.by_key.values()),
            tuple(self._epochs()),
            tuple(self._job(job) for job in self.jobs),
            executions,
            transfers,
            # A copy: the reader goes on learning what the offset from UTC is.
            deepcopy(painter.clock).seconds,
        )

    # --- whose it is --------------------------------------------------------------------

    def _owner(self, key: NodeKey | None) -> _Owner:
        if key is None:
            return NOBODY
        if key not in self.owners:
            self.owners[key] = self._owner_of(key)
        return self.owners[key]

    def _owner_of(self, key: NodeKey) -> _Owner:
        painter = self.painter
        run = painter.runs.of_node.get(key)
        part = painter.runs.parts.get(key)
        name, label = self._names(run) if run else (None, None)
        return _Owner(
            painter.dag_file(key[0]),
            key[1],
            run.key if run else None,
            name,
            run.uuid if run else None,
            label,
            part.epoch if part else None,
            part is not None and part.training,
            painter.target(key),
            painter.is_dagman(key),
        )

    def _names(self, run: Run) -> tuple[str, str | None]:
        """The run's name, and its label."""
        if run.key not in self.names:
            name = run.names[self.painter.home(run)]
            labels = self.painter.ensemble.settings.labels
            label = next((each.name for each in labels if each.has(name, run.uuid)), None)
            self.names[run.key] = (name, label)
        return self.names[run.key]

    def _attempts(self) -> dict[int, int]:
        """Each execution's number among those of its node, by identity."""
        by_node: dict[NodeKey | JobId, list[Execution]] = {}
        for job in self.jobs:
            by_node.setdefault(self.painter.node_of(job) or job.id, []).extend(
                job.life().executions
            )
        numbers: dict[int, int] = {}
        for executions in by_node.values():
            executions.sort(key=lambda execution: execution.start)
            for number, execution in enumerate(executions, start=1):
                numbers[id(execution)] = number
        return numbers

    # --- executions ---------------------------------------------------------------------

    def _executions(self, job: Job) -> Iterable[ExecutionEntry]:
        life, owner = job.life(), self._owner(self.painter.node_of(job))
        shares, idle = _shared_bytes(life), _idle(life)
        for at, execution in enumerate(life.executions):
            previous = life.executions[at - 1] if at else None
            wait, transfer = self._before(life, idle, execution, previous)
            yield self._execution(job.id, owner, execution, wait, transfer, shares[at])

    def _execution(
        self,
        job: JobId,
        owner: _Owner,
        e: Execution,
        wait: float | None,
        transfer: float | None,
        moved: tuple[int | None, int | None],
    ) -> ExecutionEntry:
        painter, machine = self.painter, e.machine
        seconds = painter.seconds(e.start, e.end) or 0.0
        bad = e.outcome not in (Outcome.GOOD, Outcome.IN_FLIGHT)
        site = painter.site(machine)
        if machine is not None and machine.alias and site:
            self.known_hosts.setdefault(machine.alias, set()).add(site)
        return ExecutionEntry(
            job,
            self.attempts[id(e)],
            owner.dag,
            owner.node,
            owner.run,
            owner.run_name,
            owner.uuid,
            owner.label,
            owner.epoch,
            owner.training,
            owner.target,
            site,
            host_of(machine) if machine else None,
            painter.gpu(machine),
            e.gpus,
            e.start,
            e.end,
            seconds,
            sum(painter.seconds(a, b) or 0.0 for a, b in e.suspensions),
            None if e.gpus is None else seconds * e.gpus,
            e.outcome,
            e.code,
            e.subcode,
            e.cause if bad else None,
            e.reason,
            e.return_value,
            e.signal,
            e.uncertain,
            wait,
            transfer,
            *moved,
            id(e) in self.final_ids,
            owner.dagman,
        )

    def _before(
        self,
        life: JobLife,
        idle: list[tuple[datetime, datetime | None]],
        execution: Execution,
        previous: Execution | None,
    ) -> tuple[float | None, float | None]:
        """Seconds idle before an execution, and of the input transfer that it came from."""
        painter = self.painter
        since = previous.end if previous is not None and previous.end else life.submitted
        spans = [
            span
            for span in life.transfers
            if span.direction == "input"
            and span.outcome == "ok"
            and span.start is not None
            and (since is None or since <= span.start)
            and span.start <= execution.start
        ]
        moved = painter.seconds(spans[-1].start, spans[-1].end) if spans else None
        if since is None:
            return None, moved
        waited = 0.0
        for start, left in idle:
            end = left or execution.start
            if end > since and start < execution.start:
                begin, stop = max(start, since), min(end, execution.start)
                waited += painter.seconds(begin, stop) or 0.0
        return waited, moved

    # --- jobs and transfers -------------------------------------------------------------

    def _transfers(self, job: Job) -> Iterable[TransferEntry]:
        life, owner = job.life(), self._owner(self.painter.node_of(job))
        for span in life.transfers:
            timed = span.start is not None
            yield TransferEntry(
                job.id,
                owner.run,
                owner.epoch,
                span.direction,
                span.start,
                span.end,
                self.painter.seconds(span.start, span.end) if timed else None,
                "in-flight" if span.outcome == "pending" else span.outcome,
                span.host,
                self._site_of(life, span),
                span.queue_seconds,
            )

    def _site_of(self, life: JobLife, span: TransferSpan) -> str | None:
        """An input's site is that of the execution it led to, an output's of the one it is
        from; where nothing ran, the host may be known from elsewhere."""
        if span.direction == "output":
            came = [e for e in life.executions if span.start is None or e.start <= span.start]
            return self.painter.site(came[-1].machine) if came else self._host_site(span)
        if span.outcome == "ok" and span.start is not None:
            went = [e for e in life.executions if e.start >= span.start or e.end is None]
            return self.painter.site(went[0].machine) if went else None
        return self._host_site(span)

    def _host_site(self, span: TransferSpan) -> str | None:
        if not span.host:
            return None
        known = self.known_hosts.get(alias_of(span.host) or "", set())
        if len(known) == 1:
            return next(iter(known))
        return None if known else self.painter.site_of_address(span.host)

    def _job(self, job: Job) -> JobEntry:
        life, owner = job.life(), self._owner(self.painter.node_of(job))
        usage = next((u for u in life.usage if u.name == "Memory"), None)
        peaks = [m for m in (job.memory_max, usage.usage if usage else None) if m is not None]
        ended = life.since if life.state in TERMINAL else None
        return JobEntry(
            job.id,
            owner.dag,
            owner.node,
            owner.run,
            owner.run_name,
            owner.uuid,
            owner.label,
            owner.epoch,
            owner.training,
            owner.target,
            life.state or State.IDLE,
            life.submitted,
            ended,
            tuple(life.states),
            tuple(self._holds(life)),
            life.bytes_sent,
            life.bytes_received,
            _bytes_at(job),
            int(max(peaks)) if peaks else None,
            int(usage.request) if usage is not None and usage.request is not None else None,
            owner.dagman,
        )

    def _holds(self, life: JobLife) -> Iterable[HoldEntry]:
        entered = life.states
        for when, held in life.holds:
            # By place, not by time: the eviction that a hold causes has the same second.
            at = [i for i, (t, state) in enumerate(entered) if state is State.HELD and t <= when]
            end = entered[at[-1] + 1][0] if at and at[-1] + 1 < len(entered) else None
            before = [e for e in life.executions if e.start <= when]
            machine = before[-1].machine if before else None
            code = held.code if held else None
            yield HoldEntry(
                when,
                end,
                self.painter.seconds(when, end) or 0.0,
                code,
                held.subcode if held else None,
                cause_of(Outcome.HELD, code, held.reason if held else None, None, None),
                self.painter.site(machine),
                self.painter.gpu(machine),
            )

    # --- epochs and runs ----------------------------------------------------------------

    def _epochs(self) -> Iterable[EpochEntry]:
        painter = self.painter
        for run in painter.runs.by_key.values():
            counting = set(painter.standings[run.key].epochs.values())
            for number in sorted(run.epochs):
                for key in run.epochs[number]:
                    yield self._epoch(run, key, key in counting)

    def _epoch(self, run: Run, key: NodeKey, counts: bool) -> EpochEntry:
        painter = self.painter
        part, state = painter.runs.parts[key], painter.states[key]
        done = state.state is State.COMPLETED
        final = self.finals.get(key)
        booked = self._of_node(key)
        success = next((entry for entry in booked if entry.final), None)
        # The first of several that lasted as long.
        longest = max(booked, key=lambda entry: entry.seconds, default=None)
        made = self.rounds[key]
        submissions = [r.submitted for r in made if r.submitted is not None]
        owner = self._owner(key)
        name, label = self._names(run)
        return EpochEntry(
            run.key,
            name,
            run.uuid,
            label,
            painter.dag_file(key[0]),
            key[1],
            part.epoch,
            part.epoch_var,
            counts,
            state.state,
            state.inferred,
            owner.target,
            min(submissions, default=None),
            (final.end if final is not None else state.since) if done else None,
            len(booked),
            tuple(job.id for round_ in made for job in round_.jobs if not job.noop),
            success.site if success else None,
            success.gpu if success else None,
            success.gpus if success else None,
            success.seconds if success else None,
            longest.site if longest else None,
            longest.gpu if longest else None,
            longest.seconds if longest else None,
            *_sums(booked),
        )

    def _run(self, run: Run) -> RunEntry:
        painter = self.painter
        stands, home = painter.standings[run.key], painter.home(run)
        name, label = self._names(run)
        begun = [
            round_.submitted
            for key in run.nodes()
            for round_ in self.rounds[key]
            if round_.submitted is not None
        ]
        return RunEntry(
            run.key,
            name,
            run.uuid,
            label,
            painter.dag_file(home[0]),
            stands.state,
            len(stands.epochs),
            stands.done,
            stands.inferred,
            stands.skipped,
            painter.latest(stands.latest) if stands.latest else None,
            min(begun, default=None),
            *_sums(entry for key in run.nodes() for entry in self._of_node(key)),
        )

    def _of_node(self, key: NodeKey) -> list[ExecutionEntry]:
        """What is booked of a node's jobs, in the order in which these were submitted."""
        jobs = sorted(self.painter.nodes[key].jobs, key=_key)
        return [entry for job in jobs for entry in self.booked.get(_key(job), ())]


def _key(job: Job) -> JobKey:
    return job.cluster, job.proc, job.subproc


def _sums(booked: Iterable[ExecutionEntry]) -> tuple[float, float, float]:
    """GPU-seconds: good, bad, in flight."""
    sums = {"good": 0.0, "bad": 0.0, "in_flight": 0.0}
    for entry in booked:
        sums[entry.kind] += entry.gpu_seconds or 0.0
    return sums["good"], sums["bad"], sums["in_flight"]


def _idle(life: JobLife) -> list[tuple[datetime, datetime | None]]:
    """From when to when it was idle; the last one may have no end."""
    spans: list[tuple[datetime, datetime | None]] = [
        (start, end) for (start, state), (end, _) in pairwise(life.states) if state is State.IDLE
    ]
    if life.states and life.states[-1][1] is State.IDLE:
        spans.append((life.states[-1][0], None))
    return spans


def _bytes_at(job: Job) -> datetime | None:
    """When its bytes were told last: they are booked at that moment."""
    life = job.life()
    if life.bytes_sent is None and life.bytes_received is None:
        return None
    ends = [e.end for e in life.executions if e.end is not None and e.bytes_sent is not None]
    if not ends:
        # Told by an eviction before it ever ran. Its newest sign of life says nothing: that
        # can be a memory update of a later attempt.
        ends = [event.time for event in job.events() if event.number in BYTES_TOLD]
    return max(ends, default=None) or life.submitted


def _shared_bytes(life: JobLife) -> list[tuple[int | None, int | None]]:
    """What each execution moved: its own ``Run Bytes``; what the job's total has beyond them
    is the last one's (a run that began under another shadow is in the total alone)."""
    sent = _shares([e.bytes_sent for e in life.executions], life.bytes_sent)
    received = _shares([e.bytes_received for e in life.executions], life.bytes_received)
    return list(zip(sent, received, strict=True))


def _shares(own: list[int | None], total: int | None) -> list[int | None]:
    if total is None or not own:
        return own
    rest = total - sum(each or 0 for each in own)
    if rest:
        own = [*own[:-1], (own[-1] or 0) + rest]
    return own
