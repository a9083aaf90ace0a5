"""What was done on each shard of a bag: its executions, brought to what counts of them.

A shard can take several executions. One that ended with a code for "checkpointed, run me again"
goes on where it stopped: what completed the shard is the sum of its good executions since it was
begun. The processes of one job (``queue 3``) work side by side: what completed the shard is the
time from the first one's start to the last one's end. What was broken off counts for nothing, and
neither does what goes on, as far as the log tells, of a job that the node has a later one of.

Moments are seconds since the bag's first one, by the ledger's own ``between``: the hour that an
autumn night has twice is an hour long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Final

from metlmon.frozen import frozen
from metlmon.model.states import ACTIVE, Outcome, State
from metlmon.snapshot.ledger import ExecutionEntry, JobEntry, Ledger
from metlmon.stats.epoch_times import elapsed
from metlmon.stats.totals import grouped

RUNNING: Final = frozenset(
    {
        *(State.STARTING, State.RUNNING, State.TRANSFERRING_OUTPUT),
        *(State.SUSPENDED, State.DISCONNECTED),
    }
)
"""States with a machine at work on it, or on its way out of one."""


@frozen
class WorkSpan:
    """A machine was at work on a shard, from ``begin`` to ``end``, seconds since the bag's first
    moment."""

    begin: float
    end: float


@frozen
class Work:
    """What was done on one shard, in seconds.

    ``took``: what completed it, None while it is not done, or where no log tells. ``so_far``: of
    one that is not done what counts of it (checkpointed, and under way). ``under_way``: a machine
    is at it. ``lost``: what counts for nothing. ``broken``: how far each try came that was broken
    off. ``at_work``: when machines were at it, in order. ``shown``: the execution that completed
    it, or is under way, else the last one. ``attempts``: its executions; ``newest``: its newest
    job, None before the first.
    """

    took: float | None = None
    so_far: float = 0.0
    under_way: bool = False
    lost: float = 0.0
    broken: tuple[float, ...] = ()
    at_work: tuple[WorkSpan, ...] = ()
    shown: ExecutionEntry | None = None
    attempts: int = 0
    newest: JobEntry | None = None


class Moments:
    """Stamps → seconds since the first of some; many things begin when another ends."""

    def __init__(self, ledger: Ledger, stamps: Iterable[datetime]) -> None:
        self._ledger = ledger
        self._known: dict[tuple[datetime, int], float] = {}
        self.first: datetime | None = None
        for when in stamps:
            if self.first is None or elapsed(ledger, when, self.first) > 0:
                self.first = when
        self.now = 0.0 if ledger.as_of is None else self.at(ledger.as_of)

    def at(self, when: datetime) -> float:
        """Seconds since the first moment."""
        key = (when, when.fold)
        if key not in self._known:
            first = self.first
            self._known[key] = 0.0 if first is None else elapsed(self._ledger, first, when)
        return self._known[key]

    def stretch(self, entry: ExecutionEntry) -> WorkSpan:
        """When an execution was; one that has not ended lasts until now."""
        begin = self.at(entry.start)
        return WorkSpan(begin, max(begin, self.now if entry.end is None else self.at(entry.end)))


def work_on(
    state: State,
    script: bool,
    jobs: Sequence[JobEntry],
    executions: Sequence[ExecutionEntry],
    moments: Moments,
) -> Work:
    """What was done on a shard. ``state``: of its node; ``script``: the node has a POST script,
    which may let it pass whatever its job returned; ``jobs`` and ``executions``: the node's, in
    the ledger's order."""
    if not jobs:
        return Work()
    return _ShardView(state, script, jobs, executions, moments).work()


class _ShardView:
    """One shard is looked at."""

    def __init__(
        self,
        state: State,
        script: bool,
        jobs: Sequence[JobEntry],
        executions: Sequence[ExecutionEntry],
        moments: Moments,
    ) -> None:
        self.state, self.script, self.jobs, self.moments = state, script, jobs, moments
        self.newest = jobs[-1].job[0]
        self.procs = sum(job.job[0] == self.newest for job in jobs)
        # The end of an older job may be lost: then it lasts in the log, and nowhere else.
        self.executions = [e for e in executions if e.end is not None or self._lasts(e)]
        self.attempts = len(executions)

    def _lasts(self, entry: ExecutionEntry) -> bool:
        return entry.job[0] == self.newest and self.state in ACTIVE

    def work(self) -> Work:
        over = self.state in (State.COMPLETED, State.POST)
        counts = self._counting(over)
        done = over and bool(counts)
        ours = [self.moments.stretch(e) for e in counts]
        own = [_hull(ours)] if ours and self.procs > 1 else _joined(ours)
        whole = _joined(own + [self.moments.stretch(e) for e in self.executions])
        seconds = _length(own) if self.procs > 1 else sum(e.seconds for e in counts)
        under_way = self.state in RUNNING and any(e.end is None for e in counts)
        return Work(
            seconds if done else None,
            0.0 if done else seconds,
            under_way,
            _length(whole) - _length(own),
            tuple(self._broken(counts)),
            tuple(whole),
            self._shown(counts if done or under_way else self.executions),
            self.attempts,
            self.jobs[-1],
        )

    def _counting(self, over: bool) -> list[ExecutionEntry]:
        """The executions that count: of one job after the other those that were good, since it
        was last begun anew, and those under way; of several processes each one's."""
        if self.procs > 1:
            if not over and self.state not in ACTIVE:
                return []
            mine = [e for e in self.executions if e.job[0] == self.newest]
            procs = grouped(mine, attrgetter("job")).values()
            return [e for proc in procs for e in self._chain(proc, over)]
        chain = self._chain(self.executions, over)
        void = chain and not over and chain[-1].end is not None and not _goes_on(chain[-1])
        return [] if void else chain

    def _chain(self, executions: Sequence[ExecutionEntry], over: bool) -> list[ExecutionEntry]:
        chain: list[ExecutionEntry] = []
        for entry in executions:
            if entry.kind == "bad":
                continue
            if chain and not _goes_on(chain[-1]):
                # It was complete, and was begun again all the same.
                chain = []
            chain.append(entry)
        last = executions[-1] if executions else None
        if last is not None and over and self.script and last.outcome is Outcome.FAILED:
            # Its POST script let it pass.
            chain = [*(e for e in chain if _goes_on(e)), last]
        if over and chain and chain[-1].end is None:
            chain.pop()
        return chain

    def _broken(self, counts: Sequence[ExecutionEntry]) -> Iterable[float]:
        """How far each lost try came, with what was checkpointed before it. Of processes side by
        side only a job is a try."""
        kept, counted = 0.0, {id(e) for e in counts}
        for entry in self.executions:
            if self.procs > 1 and entry.job[0] == self.newest:
                continue
            if entry.kind == "bad" and id(entry) not in counted:
                yield kept + entry.seconds
            elif entry.kind == "good":
                kept = kept + entry.seconds if _goes_on(entry) else 0.0

    def _shown(self, executions: Sequence[ExecutionEntry]) -> ExecutionEntry | None:
        under_way = (e for e in executions if e.end is None)
        last = executions[-1] if executions else None
        return next(under_way, last)


def _goes_on(entry: ExecutionEntry) -> bool:
    """Good, and not complete: it ended with a code that says "checkpointed, run me again"."""
    return entry.kind == "good" and entry.return_value not in (0, None)


def _hull(stretches: Sequence[WorkSpan]) -> WorkSpan:
    return WorkSpan(min(each.begin for each in stretches), max(each.end for each in stretches))


def _joined(stretches: Iterable[WorkSpan]) -> list[WorkSpan]:
    """The same time in stretches that do not overlap, in order."""
    made: list[WorkSpan] = []
    for each in sorted(stretches, key=lambda each: each.begin):
        if made and each.begin <= made[-1].end:
            made[-1] = WorkSpan(made[-1].begin, max(made[-1].end, each.end))
        else:
            made.append(each)
    return made


def _length(stretches: Iterable[WorkSpan]) -> float:
    return sum(each.end - each.begin for each in stretches)
