"""Duration of each shard, derived from the executions of its node.

A shard can take several executions. One that ended with a code for "checkpointed, run me again"
continues where it stopped: the duration of the shard is the sum of its good executions since its
start. The processes of one job (``queue 3``) run in parallel: the duration is the time from the
first start to the last end. Interrupted executions do not count, and neither do executions without
a logged end of a job that a later job of the node has replaced.

Positions are seconds since the first time of the group, by the ledger's zone-aware ``between``:
the repeated hour at the end of daylight saving time counts as an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Final

from msgspec import Struct

from metlmon.model.states import ACTIVE, Outcome, State
from metlmon.snapshot.ledger import ExecutionEntry, JobEntry, Ledger
from metlmon.stats.epoch_times import elapsed
from metlmon.stats.totals import group_by

RUNNING: Final = frozenset(
    {
        *(State.STARTING, State.RUNNING, State.TRANSFERRING_OUTPUT),
        *(State.SUSPENDED, State.DISCONNECTED),
    }
)
"""States of a job that occupies a machine."""


class WorkSpan(Struct, frozen=True):
    """An interval of work on a shard, in seconds since the group's start."""

    begin: float
    end: float


class ShardWork(Struct, frozen=True):
    """The work on one shard, in seconds.

    ``seconds``: the duration of a completed shard; None if it is not completed, or not logged.
    ``progress``: the work that counts of an uncompleted one (checkpointed, and in progress).
    ``in_progress``: a machine works on it. ``lost``: work that does not count.
    ``interrupted_progress``: the progress of each interrupted attempt. ``spans``: when machines
    worked on it, in order.
    ``representative``: the execution that completed it or is in progress, else the last one.
    ``attempts``: the number of executions; ``newest``: its newest job, None before the first.
    """

    seconds: float | None = None
    progress: float = 0.0
    in_progress: bool = False
    lost: float = 0.0
    interrupted_progress: tuple[float, ...] = ()
    spans: tuple[WorkSpan, ...] = ()
    representative: ExecutionEntry | None = None
    attempts: int = 0
    newest: JobEntry | None = None


class TimeAxis:
    """Converts times to seconds since the first of some times, with a cache."""

    def __init__(self, ledger: Ledger, times: Iterable[datetime]) -> None:
        self._ledger = ledger
        self._cache: dict[tuple[datetime, int], float] = {}
        self.first: datetime | None = None
        for when in times:
            if self.first is None or elapsed(ledger, when, self.first) > 0:
                self.first = when
        self.now = 0.0 if ledger.as_of is None else self.position(ledger.as_of)

    def position(self, when: datetime) -> float:
        """Seconds since the first time."""
        key = (when, when.fold)
        if key not in self._cache:
            first = self.first
            self._cache[key] = 0.0 if first is None else elapsed(self._ledger, first, when)
        return self._cache[key]

    def span_of(self, entry: ExecutionEntry) -> WorkSpan:
        """The interval of an execution; without an end it extends to as-of."""
        begin = self.position(entry.start)
        return WorkSpan(
            begin, max(begin, self.now if entry.end is None else self.position(entry.end))
        )


def shard_work(
    state: State,
    has_post_script: bool,
    jobs: Sequence[JobEntry],
    executions: Sequence[ExecutionEntry],
    moments: TimeAxis,
) -> ShardWork:
    """The work on a shard.

    ``state``: that of its node; ``has_post_script``: a POST script can make the node succeed
    whatever its job returned; ``jobs``, ``executions``: the node's, in the ledger's order.
    """
    if not jobs:
        return ShardWork()
    return _ShardWorkBuilder(state, has_post_script, jobs, executions, moments).work()


class _ShardWorkBuilder:
    """Computes the work on one shard."""

    def __init__(
        self,
        state: State,
        has_post_script: bool,
        jobs: Sequence[JobEntry],
        executions: Sequence[ExecutionEntry],
        moments: TimeAxis,
    ) -> None:
        self.state, self.has_post_script, self.jobs, self.moments = (
            state,
            has_post_script,
            jobs,
            moments,
        )
        self.newest = jobs[-1].job[0]
        self.procs = sum(job.job[0] == self.newest for job in jobs)
        # The log may lack the end of an older job, which then only seems to be in progress.
        self.executions = [e for e in executions if e.end is not None or self._is_in_progress(e)]
        self.attempts = len(executions)

    def _is_in_progress(self, entry: ExecutionEntry) -> bool:
        return entry.job[0] == self.newest and self.state in ACTIVE

    def work(self) -> ShardWork:
        complete = self.state in (State.COMPLETED, State.POST)
        counted = self._counted_executions(complete)
        done = complete and bool(counted)
        counted_spans = [self.moments.span_of(e) for e in counted]
        own_spans = (
            [_envelope(counted_spans)]
            if counted_spans and self.procs > 1
            else _merge_spans(counted_spans)
        )
        all_spans = _merge_spans(own_spans + [self.moments.span_of(e) for e in self.executions])
        seconds = _total_seconds(own_spans) if self.procs > 1 else sum(e.seconds for e in counted)
        in_progress = self.state in RUNNING and any(e.end is None for e in counted)
        return ShardWork(
            seconds=seconds if done else None,
            progress=0.0 if done else seconds,
            in_progress=in_progress,
            lost=_total_seconds(all_spans) - _total_seconds(own_spans),
            interrupted_progress=tuple(self._interrupted(counted)),
            spans=tuple(all_spans),
            representative=self._representative(
                counted if done or in_progress else self.executions
            ),
            attempts=self.attempts,
            newest=self.jobs[-1],
        )

    def _counted_executions(self, complete: bool) -> list[ExecutionEntry]:
        """The executions that count: good ones since a restart, and those in progress.

        Of several parallel processes, those of each process.
        """
        if self.procs > 1:
            if not complete and self.state not in ACTIVE:
                return []
            newest_executions = [e for e in self.executions if e.job[0] == self.newest]
            procs = group_by(newest_executions, attrgetter("job")).values()
            return [e for proc in procs for e in self._checkpoint_chain(proc, complete)]
        chain = self._checkpoint_chain(self.executions, complete)
        discarded = (
            chain and not complete and chain[-1].end is not None and not _is_checkpoint(chain[-1])
        )
        return [] if discarded else chain

    def _checkpoint_chain(
        self, executions: Sequence[ExecutionEntry], complete: bool
    ) -> list[ExecutionEntry]:
        chain: list[ExecutionEntry] = []
        for entry in executions:
            if entry.kind == "bad":
                continue
            if chain and not _is_checkpoint(chain[-1]):
                # The shard was complete, and was started again all the same.
                chain = []
            chain.append(entry)
        last = executions[-1] if executions else None
        if (
            last is not None
            and complete
            and self.has_post_script
            and last.outcome is Outcome.FAILED
        ):
            # The POST script made the node succeed.
            chain = [*(e for e in chain if _is_checkpoint(e)), last]
        if complete and chain and chain[-1].end is None:
            chain.pop()
        return chain

    def _interrupted(self, counted: Sequence[ExecutionEntry]) -> Iterable[float]:
        """The progress of each lost attempt, including the checkpointed work before it.

        Of parallel processes, only a whole job is an attempt.
        """
        checkpointed, counted_ids = 0.0, {id(e) for e in counted}
        for entry in self.executions:
            if self.procs > 1 and entry.job[0] == self.newest:
                continue
            if entry.kind == "bad" and id(entry) not in counted_ids:
                yield checkpointed + entry.seconds
            elif entry.kind == "good":
                checkpointed = checkpointed + entry.seconds if _is_checkpoint(entry) else 0.0

    def _representative(self, executions: Sequence[ExecutionEntry]) -> ExecutionEntry | None:
        in_progress = (e for e in executions if e.end is None)
        last = executions[-1] if executions else None
        return next(in_progress, last)


def _is_checkpoint(entry: ExecutionEntry) -> bool:
    """Did the execution end with a code for "checkpointed, run me again"?"""
    return entry.kind == "good" and entry.return_value not in (0, None)


def _envelope(spans: Sequence[WorkSpan]) -> WorkSpan:
    return WorkSpan(min(span.begin for span in spans), max(span.end for span in spans))


def _merge_spans(spans: Iterable[WorkSpan]) -> list[WorkSpan]:
    """Merge overlapping intervals; the result is sorted."""
    merged: list[WorkSpan] = []
    for span in sorted(spans, key=lambda span: span.begin):
        if merged and span.begin <= merged[-1].end:
            merged[-1] = WorkSpan(merged[-1].begin, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def _total_seconds(spans: Iterable[WorkSpan]) -> float:
    return sum(span.end - span.begin for span in spans)
