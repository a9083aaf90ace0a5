"""Slots that the runs of an ensemble share: how many there are, who waits, and in which order.

Everything is derived from the log, so that it does not matter what sets the limit: a small pool,
an annex, DAGMan's ``-maxjobs``, ``-maxidle`` or MAXJOBS of a category (HTCondor manual, DAGMan:
Throttling). Targets whose epochs ran at common sites share slots. A run is ready from the end of
its last execution. It waits for a slot while other runs occupy all of them; time that it waits
although a slot is free (matching, transfers, holds) is part of its own cycle. Slots are taken in
the order in which they became free, so that by Little's law slots × time = executions + waits
beside a free slot.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from heapq import heappop, heappush
from math import log
from operator import attrgetter, itemgetter
from typing import Final, TypeAlias

from msgspec import Struct

from metlmon.model.states import Outcome, State
from metlmon.snapshot.records import Epoch, Execution, Job, Ledger, job_key

RECENT: Final = 100
"""Executions from which slots are counted, or two per run if that is more: slots come and go."""

BUSY: Final = 0.05
"""Rate of starts when all slots are taken, relative to that of one free slot: a disconnected job
has no slot, and times are logged in whole seconds."""

EVIDENCE: Final = 3.0
"""Logarithm of the likelihood ratio from which runs are taken to wait for each other."""

MAX_LEVELS: Final = 40
"""How many numbers of slots are tried, up to the maximum number of concurrent epochs."""

_Level: TypeAlias = tuple[int, int]
"""The number of running epochs, and that of ready runs."""

MAX_STEPS: Final = 2000
"""Maximum steps of a simulated queue; with more epochs, several of a run are one step."""


class StartOrder(StrEnum):
    """The order in which ready runs get a slot.

    HTCondor starts jobs by ``priority``, then by submission. Runs that are furthest along go first
    with ``priority = $(epoch)``, last with ``-$(epoch)``; PRIORITY of the DAG file can set both.
    """

    SUBMISSION = "submission"
    FURTHEST = "furthest first"
    NEAREST = "furthest last"


class _Wait(Struct):
    """A run that was ready ``since``, and occupied a slot from ``start`` to ``end``.

    ``done``: its completed epochs by then. ``start`` None: it still waits. ``end`` None: it still
    has the slot.
    """

    key: str
    since: datetime
    done: int
    start: datetime | None = None
    end: datetime | None = None


class _Group:
    """Targets that share slots: their executions and waits, and the number of slots from these."""

    def __init__(self, waits: Iterable[_Wait], as_of: datetime) -> None:
        self.waits = sorted(
            waits,
            key=lambda wait: (wait.start or as_of, wait.start is None, wait.since),
        )
        self.runs = len({wait.key for wait in self.waits})
        started = sum(wait.start is not None for wait in self.waits)
        recent = self.waits[max(0, started - max(RECENT, 2 * self.runs)) : started]
        self.slots = self._count_slots(recent, as_of)
        self.order = StartOrder.SUBMISSION
        if self.slots is not None:
            self.order = _order(self.waits[max(0, started - RECENT) :])

    def _count_slots(self, recent: Sequence[_Wait], as_of: datetime) -> int | None:
        """The slots that make the starts most likely; None if runs do not wait for each other.

        Ready runs start at a rate in proportion to the free slots if there is a limit, else in
        proportion to the ready runs: the likelihoods of two inhomogeneous Poisson processes.
        """
        seconds, starts = self._levels(recent, as_of)
        number = sum(starts.values())

        def log_likelihood(rate: Callable[[int, int], float]) -> float:
            total = sum(rate(*level) * time for level, time in seconds.items())
            logs = sum(log(rate(*level)) * count for level, count in starts.items())
            return logs - number * log(total)

        if not number or not seconds:
            return None
        levels = sorted({running for running, _ in seconds})
        # A quick look at large pools: the slots are near to the most that run.
        likelihoods = {
            slots: log_likelihood(lambda running, _: max(0, slots - running) + BUSY)  # noqa: B023
            for slots in levels[-MAX_LEVELS:]
            if slots
        }
        slots = max(likelihoods, key=lambda each: (likelihoods[each], each), default=0)
        without_limit = log_likelihood(lambda _, ready: max(1, ready))
        return slots if slots and likelihoods[slots] > without_limit + EVIDENCE else None

    def _levels(
        self, recent: Sequence[_Wait], as_of: datetime
    ) -> tuple[Mapping[_Level, float], Mapping[_Level, int]]:
        """Seconds for which so many ran and were ready, and starts when so many did."""
        seconds: defaultdict[_Level, float] = defaultdict(float)
        starts: Counter[_Level] = Counter()
        if not recent:
            return seconds, starts
        begin = recent[0].since
        changes: list[tuple[datetime, int, int]] = []
        for wait in self.waits:
            start, end = wait.start or as_of, wait.end or as_of
            if end > begin:
                changes += [(max(begin, wait.since), 0, 1), (end, -1, 0)]
                changes.append((max(begin, start), 1, -1))
        # At one time ends come first, and runs are ready before they start.
        changes.sort()
        running = ready = 0
        time = begin
        for when, more_running, more_ready in changes:
            if ready and when > time:
                seconds[running, ready] += (when - time).total_seconds()
            if more_running > 0 and begin < when < as_of:
                starts[running, ready] += 1
            time, running, ready = when, running + more_running, ready + more_ready
        return seconds, starts

    def waits_for_slots(self, as_of: datetime) -> Iterator[tuple[str, datetime, datetime]]:
        """Each interval in which a run was ready and other runs had all slots."""
        if self.slots is None:
            return
        begin = min(wait.since for wait in self.waits)
        free = deque([begin] * self.slots)
        ends: list[datetime] = []
        running = 0
        for wait in self.waits:
            start = wait.start or as_of
            while ends and ends[0] <= start:
                end = heappop(ends)
                running -= 1
                if running < self.slots:
                    free.append(end)
            until = free.popleft() if free else start
            if wait.start is not None:
                running += 1
                heappush(ends, wait.end or datetime.max)
            if until > wait.since:
                yield wait.key, wait.since, until


def _order(waits: Sequence[_Wait]) -> StartOrder:
    """The order that explains most starts of one of several ready runs; ``waits``: as sorted."""
    agreed: Counter[StartOrder] = Counter()
    for index, wait in enumerate(waits):
        if (start := wait.start) is None:
            break
        others = [
            other for other in waits[index + 1 :] if other.since <= start and other.start != start
        ]
        if others:
            agreed[StartOrder.SUBMISSION] += wait.since <= min(other.since for other in others)
            agreed[StartOrder.FURTHEST] += wait.done >= max(other.done for other in others)
            agreed[StartOrder.NEAREST] += wait.done <= min(other.done for other in others)
    return max(StartOrder, key=lambda order: agreed[order])


class RunIntervals:
    """``intervals`` of runs by their keys, sorted and apart from each other."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.intervals: defaultdict[str, list[tuple[datetime, datetime]]] = defaultdict(list)

    def seconds_between(self, run: str, start: datetime, end: datetime) -> float:
        """The seconds of the run's intervals between two times."""
        intervals = self.intervals[run]
        first = bisect_right(intervals, start, key=itemgetter(1))
        last = bisect_left(intervals, end, first, key=itemgetter(0))
        return sum(
            self._ledger.seconds_between(max(since, start), min(until, end))
            for since, until in intervals[first:last]
        )


class SlotUse(RunIntervals):
    """The slots that runs wait for, and when each waited for one that another run had.

    ``slots``, ``orders``: by group of targets; targets without a limit are in none of these.
    ``disconnected``: runs whose execution is disconnected and has no slot.
    """

    def __init__(self, ledger: Ledger, next_epochs: Mapping[str, Epoch] | None = None) -> None:
        """``next_epochs``: of each run that continues and does not execute, that it is ready for.

        Ready runs that DAGMan has not submitted yet may be among them; by default those with an
        idle job.
        """
        super().__init__(ledger)
        self.slots: dict[int, int] = {}
        self.orders: dict[int, StartOrder] = {}
        self._groups = _groups_of_targets(ledger.executions)
        self.disconnected: set[str] = set()
        as_of = ledger.as_of
        if as_of is None:
            return
        if next_epochs is None:
            idle = {job.node_key for job in ledger.jobs if job.training and job.state is State.IDLE}
            next_epochs = {e.key: e for e in ledger.epochs if e.counts and e.node_key in idle}
        for number, waits in self._waits(ledger, next_epochs).items():
            group = _Group(waits, as_of)
            if group.slots is not None and group.slots < group.runs:
                self.slots[number], self.orders[number] = group.slots, group.order
                for run, since, until in group.waits_for_slots(as_of):
                    self.intervals[run].append((since, until))
        for intervals in self.intervals.values():
            intervals.sort()

    def group(self, target: str | None) -> int | None:
        """The group of targets that share limited slots; None where there is no limit."""
        number = self._groups.get(target)
        return number if number in self.slots else None

    def _waits(self, ledger: Ledger, next_epochs: Mapping[str, Epoch]) -> dict[int, list[_Wait]]:
        """The waits of all runs before their executions, and the ongoing ones, by group."""
        jobs = {job_key(job): job for job in ledger.jobs}
        entries = [e for e in ledger.executions if e.training]
        entries.sort(key=attrgetter("start"))
        ready: dict[str, datetime] = {}
        done: Counter[str] = Counter()
        by_group: dict[int, list[_Wait]] = defaultdict(list)
        for entry in entries:
            if (run := entry.key) is None:
                continue
            job = jobs.get(job_key(entry))
            since = ready.get(run) or (job and job.submitted) or entry.start
            released = [hold.end for hold in (job.holds if job else ()) if hold.end is not None]
            since = max([since, *(end for end in released if end <= entry.start)])
            end = slot_end(entry, job)
            if entry.end is None and end is not None:
                self.disconnected.add(run)
            by_group[self._groups[entry.target]].append(
                _Wait(run, min(since, entry.start), done[run], entry.start, end)
            )
            ready[run] = max(ready.get(run, entry.start), entry.end or entry.start)
            done[run] += entry.final
        begin = min((run.began for run in ledger.runs if run.began is not None), default=None)
        for run, epoch in next_epochs.items():
            ready_since = ready.get(run) or epoch.first_submitted or begin
            if epoch.target in self._groups and ready_since is not None:
                by_group[self._groups[epoch.target]].append(_Wait(run, ready_since, done[run]))
        return by_group


def slot_end(entry: Execution, job: Job | None) -> datetime | None:
    """When an execution left its slot: of one that was disconnected to the end, when it was."""
    if job is not None and entry.outcome is not Outcome.GOOD:
        states = [each for each in job.states if each[0] < (entry.end or datetime.max)]
        if states and states[-1][1] is State.DISCONNECTED and states[-1][0] >= entry.start:
            return states[-1][0]
    return entry.end


def _groups_of_targets(executions: Iterable[Execution]) -> dict[str | None, int]:
    """The group of each target: targets whose epochs ran at common sites share slots."""
    sites: dict[str | None, set[str]] = defaultdict(set)
    for entry in executions:
        if entry.training:
            sites[entry.target].add(entry.site or "")
    groups: list[tuple[set[str], list[str | None]]] = []
    for target, own in sites.items():
        together = [group for group in groups if group[0] & own]
        groups = [group for group in groups if not group[0] & own]
        targets = [target, *(each for group in together for each in group[1])]
        groups.append((own.union(*(group[0] for group in together)), targets))
    return {target: number for number, (_, targets) in enumerate(groups) for target in targets}


# --- the queue to come ------------------------------------------------------------------------


class QueuedRun(Struct, kw_only=True):
    """A run to come: seconds that its current epoch takes still, and each later one.

    ``executing``: it has a slot now. ``groups``: of slots, of the current epoch and of each later
    one (None: without a limit). ``done``: its epochs.
    """

    key: str
    executing: bool
    done: int
    seconds: Sequence[float]
    groups: Sequence[int | None]


def simulate_queue(runs: Sequence[QueuedRun], use: SlotUse) -> dict[str, float]:
    """Seconds that each run will wait in total for slots that other runs have."""
    steps_each = -(-sum(len(run.seconds) for run in runs) // MAX_STEPS)
    free = dict(use.slots)
    ready: dict[int, list[tuple[float, float, int]]] = defaultdict(list)
    ends: list[tuple[float, int, int | None]] = []
    waited = [0.0] * len(runs)
    position = [0] * len(runs)
    since = [0.0] * len(runs)

    def start(index: int, now: float, group: int | None) -> None:
        run, first = runs[index], position[index]
        # Steps are shorter at the beginning: the current epoch is one.
        position[index] = last = first + (1 if not first else steps_each)
        heappush(ends, (now + sum(run.seconds[first:last]), index, group))

    def queue(index: int, now: float) -> None:
        run, at = runs[index], position[index]
        if at >= len(run.seconds):
            return
        # An epoch at a varying place of the step: a run's epochs may alternate between sites.
        group = run.groups[min(at + (at // steps_each) % steps_each, len(run.groups) - 1)]
        since[index] = now
        if group is None:
            start(index, now, None)
        else:
            key = _ORDER_SIGNS[use.orders[group]] * (run.done + at)
            heappush(ready[group], (key, now, index))

    for index, run in enumerate(runs):
        if run.executing:
            group = run.groups[0]
            if group is not None:
                free[group] -= 1
            start(index, 0.0, group)
        else:
            queue(index, 0.0)
    now = 0.0
    while True:
        for group, queued in ready.items():
            while queued and free[group] > 0:
                index = heappop(queued)[2]
                free[group] -= 1
                waited[index] += now - since[index]
                start(index, now, group)
        if not ends:
            break
        now, index, group = heappop(ends)
        if group is not None:
            free[group] += 1
        queue(index, now)
    return {run.key: seconds for run, seconds in zip(runs, waited, strict=True)}


_ORDER_SIGNS: Final = {StartOrder.SUBMISSION: 0, StartOrder.FURTHEST: -1, StartOrder.NEAREST: 1}
