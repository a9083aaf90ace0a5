"""From the state model to the ledger: each entry is made in one place, here."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from metlmon.eventlog import UsageRow
from metlmon.eventlog.usage_table import Usage
from metlmon.frozen import frozen
from metlmon.model.job import Execution, JobHistory, TransferSpan
from metlmon.model.job_events import Job, JobId, NodeKey
from metlmon.model.job_times import IdleTimes, InputTransfers, StartTimes, latest_by
from metlmon.model.node import NodeState, NodeSubmission, rounds
from metlmon.model.node_reports import NodeReportKind
from metlmon.model.reasons import cause_of
from metlmon.model.run import Run
from metlmon.model.sites import alias_of, host_of
from metlmon.model.states import TERMINAL, Outcome, State
from metlmon.snapshot.gate_text import PAUSED, STOPPED, ends_before, gate_sign
from metlmon.snapshot.ledger import (
    EpochEntry,
    ExecutionEntry,
    HoldEntry,
    JobEntry,
    LazyConcat,
    Ledger,
    RunEntry,
    TransferEntry,
)

if TYPE_CHECKING:
    from metlmon.snapshot.builder import SnapshotBuilder


AT_ONCE: Final = 8
"""Nodes whose entries are made between two looks at the clock: a millisecond."""

BLOCK: Final = 256
"""Clusters whose entries are put in order together: what changes costs one block's."""

SHARED_SECONDS: Final = 4096.0
"""Up to so many seconds (an hour) one object serves for all entries: transfers and waits are
mostly shorter, and logged in whole ones."""

BYTES_TOLD: Final = frozenset({4, 5})
"""Evicted and terminated: the events that say how much a job moved."""

JobKey = tuple[int, int, int]


@frozen
class _Owner:
    """Whose a job is: said once for all its entries."""

    dag: str | None = None
    in_dag: str | None = None
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


Page: TypeAlias = tuple[JobEntry | ExecutionEntry | TransferEntry, ...]
"""The entries of one job."""

PageKey: TypeAlias = tuple[int, ...]
"""Cluster and process (the very tuple of the entries), and the subprocess where there is one."""


class _Block(NamedTuple):
    """The entries of some clusters, in order."""

    jobs: tuple[JobEntry, ...]
    executions: tuple[ExecutionEntry, ...]
    transfers: tuple[TransferEntry, ...]


class LedgerBuilder:
    """The entries of an ensemble, kept: those of a node's jobs are made together, and made again
    when something of the node has changed, or while it has an execution, a transfer or a hold
    that lasts still.

    ``nodes`` and ``strays`` (jobs of no node): whose entries are to be made.
    """

    def __init__(self, painter: SnapshotBuilder) -> None:
        self.nodes: set[NodeKey] = {key for key, record in painter.nodes.items() if record.jobs}
        self.nodes.update(painter.runs.parts)
        self.strays: set[JobKey] = {
            _key(job) for job in painter.real_jobs() if painter.node_of(job) not in painter.nodes
        }
        self._pages: dict[int, dict[PageKey, Page]] = {}
        self._blocks: dict[int, _Block] = {}
        self._epochs: dict[NodeKey, EpochEntry] = {}
        self._epochs_of: dict[str, tuple[EpochEntry, ...]] = {}
        self._began: dict[str, datetime | None] = {}
        self._counting: dict[str, dict[int, NodeKey]] = {}
        self._names: dict[str, tuple[str, str | None]] = {}
        self._owners: dict[NodeKey, _Owner] = {}
        self._turned_to: SnapshotBuilder | None = None
        self._moving: set[NodeKey | JobKey] = set()
        self._known_hosts: dict[str, set[str]] = {}
        self._texts: dict[str | None, str | None] = {}
        self._numbers: dict[int | None, int | None] = {}
        self._seconds: dict[float | None, float | None] = {}
        self._ways: dict[tuple[State, ...], tuple[State, ...]] = {}
        self._asked_hosts: dict[str, set[NodeKey | JobKey]] = {}
        self._painter = painter
        self._unit: NodeKey | JobKey = ("", "")

    def bring(self, painter: SnapshotBuilder, deadline: float | None = None) -> bool:
        """Make what is to be made for this picture; False when it was not done by ``deadline``
        (of ``time.monotonic``)."""
        if painter is not self._turned_to:
            self._turn_to(painter)
        while self.nodes or self.strays:
            for _ in range(AT_ONCE):
                if self.nodes:
                    self._make_node(self.nodes.pop())
                elif self.strays:
                    self._make_stray(self.strays.pop())
            if deadline is not None and time.monotonic() >= deadline:
                return not (self.nodes or self.strays)
        return True

    def _turn_to(self, painter: SnapshotBuilder) -> None:
        self._painter = self._turned_to = painter
        for unit in self._moving:
            self._again(unit)
        self._moving = set()
        changed = {run.key: run for n in self.nodes if (run := painter.runs.of_node.get(n))}
        for key, run in changed.items():
            self._began.pop(key, None)
            names = self._names_of(run)
            if self._names.get(key, names) != names:
                self.nodes.update(run.nodes())
                for node in run.nodes():
                    self._owners.pop(node, None)
            self._names[key] = names
            counting = painter.standings[key].epochs
            if self._counting.get(key, counting) != counting:
                self.nodes.update(run.nodes())
            self._counting[key] = counting

    def _again(self, unit: NodeKey | JobKey) -> None:
        if len(unit) == 2:
            self.nodes.add(unit)
        else:
            self.strays.add(unit)

    def ledger(self) -> Ledger:
        """The ledger of the picture that :meth:`bring` was called for."""
        painter = self._painter
        blocks = [self._block(number) for number in sorted(self._pages)]
        in_flight = painter.in_flight().runs
        return Ledger(
            painter.dagdir,
            painter.as_of,
            painter.live,
            tuple(self._run(run, in_flight) for run in painter.runs.by_key.values()),
            tuple(chain.from_iterable(map(self._epochs_in, painter.runs.by_key.values()))),
            tuple(chain.from_iterable(block.jobs for block in blocks)),
            tuple(chain.from_iterable(block.executions for block in blocks)),
            tuple(chain.from_iterable(block.transfers for block in blocks)),
            # A copy: the reader goes on learning what the offset from UTC is.
            deepcopy(painter.clock).seconds,
            len(painter.summary.unlogged),
            painter.sums.measure,
        )

    def _keep(self, key: PageKey, page: Page) -> None:
        number = key[0] // BLOCK
        self._pages.setdefault(number, {})[key] = page
        self._blocks.pop(number, None)

    def _block(self, number: int) -> _Block:
        block = self._blocks.get(number)
        if block is None:
            pages = self._pages[number]
            entries = list(chain.from_iterable(pages[key] for key in sorted(pages)))
            block = self._blocks[number] = _Block(
                tuple([e for e in entries if isinstance(e, JobEntry)]),
                tuple([e for e in entries if isinstance(e, ExecutionEntry)]),
                tuple([e for e in entries if isinstance(e, TransferEntry)]),
            )
        return block

    def _epochs_in(self, run: Run) -> tuple[EpochEntry, ...]:
        epochs = self._epochs_of.get(run.key)
        if epochs is None:
            epochs = self._epochs_of[run.key] = tuple(
                self._epochs[key] for number in sorted(run.epochs) for key in run.epochs[number]
            )
        return epochs

    # --- whose it is --------------------------------------------------------------------

    def _owner(self, key: NodeKey) -> _Owner:
        if key not in self._owners:
            self._owners[key] = self._owner_of(key)
        return self._owners[key]

    def _owner_of(self, key: NodeKey) -> _Owner:
        painter = self._painter
        run = painter.runs.of_node.get(key)
        part = painter.runs.parts.get(key)
        name, label = self._names[run.key] if run else (None, None)
        return _Owner(
            painter.dag_file(key[0]),
            *key,
            run.key if run else None,
            name,
            run.uuid if run else None,
            label,
            part.epoch if part else None,
            part is not None and part.training,
            painter.target(key),
            painter.is_dagman(key),
        )

    def _names_of(self, run: Run) -> tuple[str, str | None]:
        """The run's name, and its label."""
        name = run.names[self._painter.home(run)]
        labels = self._painter.ensemble.settings.labels
        label = next((each.name for each in labels if each.has(name, run.uuid)), None)
        return name, label

    # --- a node, and a job of none ------------------------------------------------------

    def _make_node(self, key: NodeKey) -> None:
        painter, self._unit = self._painter, key
        record = painter.nodes[key]
        made = rounds(record)
        lives = {_key(job): (job, job.life()) for job in record.jobs if not job.noop}
        state, part = painter.states[key].state, painter.runs.parts.get(key)
        training = part is not None and part.training
        final = _final(made, lives) if training and state is State.COMPLETED else None
        booked = self._make(lives, self._owner(key), final)
        run = painter.runs.of_node.get(key)
        if run is not None and part is not None and training and part.epoch is not None:
            self._epochs[key] = self._epoch(run, key, made, booked, final)
            self._epochs_of.pop(run.key, None)

    def _make_stray(self, key: JobKey) -> None:
        job = self._painter.ensemble.jobs[key]
        node = self._painter.node_of(job)
        if key in self._painter.ensemble.unproven.foreign:
            page = key if key[2] else job.id
            if self._pages.get(key[0] // BLOCK, {}).pop(page, None) is not None:
                self._blocks.pop(key[0] // BLOCK, None)
        elif node in self._painter.nodes:
            # It has been found since.
            self.nodes.add(node)
        elif not job.noop:
            self._unit = key
            self._make({key: (job, job.life())}, NOBODY, None)

    def _make(self, lives: _Lives, owner: _Owner, final: Execution | None) -> list[ExecutionEntry]:
        """The pages of some jobs that belong together; returns what was booked, in the order
        in which the jobs were submitted."""
        booked: list[ExecutionEntry] = []
        keys = sorted(lives)
        attempts = _attempts(lives)
        for key in keys:
            job, life = lives[key]
            id_ = job.id
            entries = list(self._executions(id_, life, owner, attempts, final))
            moves = self._transfers(id_, life, owner)
            self._keep(
                key if key[2] else id_,
                (self._job(job, id_, life, owner, entries), *entries, *moves),
            )
            booked += entries
            if (
                life.state is State.HELD
                or life.open is not None
                or any(map(_lasts, life.transfers))
            ):
                self._moving.add(self._unit)
        return booked

    # --- executions ---------------------------------------------------------------------

    def _executions(
        self,
        id_: JobId,
        life: JobHistory,
        owner: _Owner,
        attempts: Mapping[int, int],
        final: Execution | None,
    ) -> Iterable[ExecutionEntry]:
        shares, idle, inputs = _shared_bytes(life), IdleTimes(life), InputTransfers(life)
        for at, execution in enumerate(life.executions):
            previous = life.executions[at - 1] if at else None
            wait, transfer = self._before(life, idle, inputs, execution, previous)
            number, is_final = attempts[id(execution)], execution is final
            yield self._execution(
                id_, owner, execution, number, wait, transfer, shares[at], is_final
            )

    def _execution(
        self,
        job: JobId,
        owner: _Owner,
        e: Execution,
        attempt: int,
        wait: float | None,
        transfer: float | None,
        moved: tuple[int | None, int | None],
        final: bool,
    ) -> ExecutionEntry:
        painter, machine = self._painter, e.machine
        seconds = painter.seconds(e.start, e.end) or 0.0
        bad = e.outcome not in (Outcome.GOOD, Outcome.IN_FLIGHT)
        site = painter.site(machine)
        # A host's name is cut out of its slot's anew each time: one object for all is enough.
        host = host_of(machine) if machine else None
        if machine is not None and machine.alias and site:
            self._learn_host(machine.alias, site)
        return ExecutionEntry(
            job,
            attempt,
            owner.dag,
            owner.in_dag,
            owner.node,
            owner.run,
            owner.run_name,
            owner.uuid,
            owner.label,
            owner.epoch,
            owner.training,
            owner.target,
            site,
            self._texts.setdefault(host, host),
            painter.gpu(machine),
            e.gpus,
            e.start,
            e.end,
            seconds,
            sum(painter.seconds(a, b) or 0.0 for a, b in e.suspensions),
            None if e.gpus is None else seconds if e.gpus == 1 else seconds * e.gpus,
            e.outcome,
            e.code,
            e.subcode,
            e.cause if bad else None,
            e.reason,
            e.return_value,
            e.signal,
            e.uncertain,
            self._shared(wait),
            self._shared(transfer),
            *moved,
            final,
            owner.dagman,
            cpus=e.cpus,
        )

    def _before(
        self,
        life: JobHistory,
        idle: IdleTimes,
        inputs: InputTransfers,
        execution: Execution,
        previous: Execution | None,
    ) -> tuple[float | None, float | None]:
        """Seconds idle before an execution, and of the input transfer that it came from."""
        painter = self._painter
        since = previous.end if previous is not None and previous.end else life.submitted
        span = inputs.last(since, execution.start)
        moved = painter.seconds(span.start, span.end) if span is not None else None
        if since is None:
            return None, moved
        waited = 0.0
        for start, end in idle.between(since, execution.start):
            waited += painter.seconds(start, end) or 0.0
        return waited, moved

    # --- jobs and transfers -------------------------------------------------------------

    def _learn_host(self, alias: str, site: str) -> None:
        """Who asked of which site a host is, where nothing ran, is told otherwise now."""
        known = self._known_hosts.setdefault(alias, set())
        if site not in known:
            known.add(site)
            for unit in self._asked_hosts.get(alias, ()):
                self._again(unit)

    def _transfers(self, id_: JobId, life: JobHistory, owner: _Owner) -> Iterable[TransferEntry]:
        machines = StartTimes(life)
        for span in life.transfers:
            timed = span.start is not None
            yield TransferEntry(
                id_,
                owner.run,
                owner.epoch,
                span.direction,
                span.start,
                span.end,
                self._shared(self._painter.seconds(span.start, span.end)) if timed else None,
                "in-flight" if span.outcome == "pending" else span.outcome,
                self._texts.setdefault(span.host, span.host),
                self._site_of(machines, span),
                span.queue_seconds,
            )

    def _site_of(self, machines: StartTimes, span: TransferSpan) -> str | None:
        """An input's site is that of the execution it led to, an output's of the one it is
        from; where nothing ran, the host may be known from elsewhere."""
        if span.direction == "output":
            came = machines.last_to(span.start)
            return self._painter.site(came.machine) if came else self._host_site(span)
        if span.outcome == "ok" and span.start is not None:
            went = machines.first_after(span.start)
            return self._painter.site(went.machine) if went else None
        return self._host_site(span)

    def _host_site(self, span: TransferSpan) -> str | None:
        if not span.host:
            return None
        alias = alias_of(span.host) or ""
        self._asked_hosts.setdefault(alias, set()).add(self._unit)
        known = self._known_hosts.get(alias, set())
        if len(known) == 1:
            return next(iter(known))
        return None if known else self._painter.site_of_address(span.host)

    def _shared(self, seconds: float | None) -> float | None:
        if seconds is None or seconds > SHARED_SECONDS:
            return seconds
        return self._seconds.setdefault(seconds, seconds)

    def _entered(self, life: JobHistory) -> LazyConcat:
        kinds = tuple([state for _, state in life.states])
        times = tuple([when for when, _ in life.states])
        return LazyConcat(self._ways.setdefault(kinds, kinds), times)

    def _job(
        self,
        job: Job,
        id_: JobId,
        life: JobHistory,
        owner: _Owner,
        booked: Sequence[ExecutionEntry],
    ) -> JobEntry:
        usage = _memory(life.usage)
        peaks = [m for m in (job.memory_max, usage.usage if usage else None) if m is not None]
        ended = life.since if life.state in TERMINAL else None
        request = int(usage.request) if usage is not None and usage.request is not None else None
        sent, received = life.bytes_sent, life.bytes_received
        if len(booked) == 1 and (booked[0].bytes_sent, booked[0].bytes_received) == (
            sent,
            received,
        ):
            # The same objects.
            sent, received = booked[0].bytes_sent, booked[0].bytes_received
        return JobEntry(
            id_,
            owner.dag,
            owner.in_dag,
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
            self._entered(life),
            tuple(self._holds(life)),
            sent,
            received,
            _bytes_at(job),
            int(max(peaks)) if peaks else None,
            self._numbers.setdefault(request, request),
            owner.dagman,
        )

    def _holds(self, life: JobHistory) -> Iterable[HoldEntry]:
        # By place, not by time: the eviction that a hold causes has the same second.
        held_at = [i for i, (_, state) in enumerate(life.states) if state is State.HELD]
        left = [life.states[i + 1][0] if i + 1 < len(life.states) else None for i in held_at]
        find_state = latest_by([life.states[i][0] for i in held_at])
        find_execution = latest_by([e.start for e in life.executions])
        for when, held in life.holds:
            at, ran = find_state(when), find_execution(when)
            end = None if at is None else left[at]
            machine = None if ran is None else life.executions[ran].machine
            code = held.code if held else None
            yield HoldEntry(
                when,
                end,
                self._painter.seconds(when, end) or 0.0,
                code,
                held.subcode if held else None,
                cause_of(Outcome.HELD, code, held.reason if held else None, None, None),
                self._painter.site(machine),
                self._painter.gpu(machine),
            )

    # --- epochs and runs ----------------------------------------------------------------

    def _epoch(
        self,
        run: Run,
        key: NodeKey,
        made: Sequence[NodeSubmission],
        booked: Sequence[ExecutionEntry],
        final: Execution | None,
    ) -> EpochEntry:
        painter = self._painter
        part, state = painter.runs.parts[key], painter.states[key]
        counts = key in painter.standings[run.key].epochs.values()
        done = state.state is State.COMPLETED
        success = next((entry for entry in booked if entry.final), None)
        # The first of several that lasted as long.
        longest = max(booked, key=lambda entry: entry.seconds, default=None)
        jobs = [job.id for round_ in made for job in round_.jobs if not job.noop]
        ids = {entry.job: entry.job for entry in booked}  # The same objects.
        submissions = [r.submitted for r in made if r.submitted is not None]
        owner = self._owner(key)
        name, label = self._names[run.key]
        return EpochEntry(
            run.key,
            name,
            run.uuid,
            label,
            painter.dag_file(key[0]),
            *key,
            part.epoch,
            part.epoch_var,
            counts,
            state.state,
            state.inferred,
            owner.target,
            min(submissions, default=None),
            self._ended(key, state, final) if done else None,
            max((entry.attempt for entry in booked), default=0),
            tuple([ids.get(each, each) for each in jobs]),
            success.site if success else None,
            success.gpu if success else None,
            success.gpus if success else None,
            success.seconds if success else None,
            longest.site if longest else None,
            longest.gpu if longest else None,
            longest.seconds if longest else None,
            *_sums(booked),
        )

    def _ended(self, key: NodeKey, state: NodeState, final: Execution | None) -> datetime | None:
        """When a completed node ended. A rescue file, a node status file and the submission of a
        later node prove that it ended, but not when: None."""
        if final is not None:
            return final.end
        if state.inferred or state.since is None:
            return None
        painter = self._painter
        times = [post.time for post in painter.nodes[key].posts if post.ok]
        if state.job is not None:
            life = state.job.life()
            times += [life.since] if life.state is State.COMPLETED and life.since else []
        for word in painter.dags[key[0]].words.get(key[1], ()):
            if word.claim in (NodeReportKind.DONE, NodeReportKind.JOB_DONE):
                local = painter.clock.local(word.epoch) if word.epoch is not None else None
                times += [time for time in (word.time, local) if time is not None]
        return state.since if state.since in times else None

    def _run(self, run: Run, in_flight: Mapping[str, int]) -> RunEntry:
        painter = self._painter
        stands, home = painter.standings[run.key], painter.home(run)
        name, label = self._names[run.key]
        row = painter.run_row(run, in_flight)
        if run.key not in self._began:
            self._began[run.key] = self._first_submission(run)
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
            row.latest,
            self._began[run.key],
            *painter.run_seconds(run, in_flight),
            ends_before(row),
            gate_sign(row) is PAUSED,
            gate_sign(row) is STOPPED,
            row.failed,
        )

    def _first_submission(self, run: Run) -> datetime | None:
        made = filter(None, map(self._painter.made, run.nodes()))
        return min((when for each in made for when in each.begun if when is not None), default=None)


def _attempts(lives: _Lives) -> dict[int, int]:
    """The number of each execution (by ``id``) among the tries of its node, from 1. The procs of
    one submission are tried together: each one's first execution is the same try."""
    by_submission: dict[tuple[int, int], list[Sequence[Execution]]] = {}
    for (cluster, _, subproc), (_, life) in lives.items():
        if life.executions:
            by_submission.setdefault((cluster, subproc), []).append(life.executions)
    began = sorted(
        (
            (min(each[at].start for each in procs if at < len(each)), submission, at)
            for submission, procs in by_submission.items()
            for at in range(max(map(len, procs)))
        )
    )
    return {
        id(each[at]): number
        for number, (_, submission, at) in enumerate(began, start=1)
        for each in by_submission[submission]
        if at < len(each)
    }


_Lives: TypeAlias = Mapping[JobKey, tuple[Job, JobHistory]]


def _lasts(span: TransferSpan) -> bool:
    return span.start is not None and span.end is None


def _final(made: Sequence[NodeSubmission], lives: _Lives) -> Execution | None:
    """The execution that completed a node: the last good one of its last good job."""
    for round_ in reversed(made):
        for job in round_.jobs:
            _, life = lives.get(_key(job), (job, None))
            for execution in reversed(life.executions if life is not None else ()):
                if execution.outcome is Outcome.GOOD:
                    return execution
    return None


def _key(job: Job) -> JobKey:
    return job.cluster, job.proc, job.subproc


def _memory(usage: Sequence[UsageRow]) -> UsageRow | None:
    if isinstance(usage, Usage):
        return usage.named("Memory")
    return next((row for row in usage if row.name == "Memory"), None)


def _sums(booked: Iterable[ExecutionEntry]) -> tuple[float, float, float]:
    """GPU-seconds: good, bad, in flight."""
    sums = {"good": 0.0, "bad": 0.0, "in_flight": 0.0}
    for entry in booked:
        sums[entry.kind] += entry.gpu_seconds or 0.0
    return sums["good"], sums["bad"], sums["in_flight"]


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


def _shared_bytes(life: JobHistory) -> list[tuple[int | None, int | None]]:
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
