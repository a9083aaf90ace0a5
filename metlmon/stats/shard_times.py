"""Duration of each shard, derived from the executions of its node.

A shard can take several executions. One that ended with a code for "checkpointed, run me again"
continues where it stopped: the duration of the shard is the sum of its good executions since its
start. The processes of one job (``queue 3``) run in parallel: the duration is the time from the
first start to the last end. Interrupted executions do not count, and neither do executions without
a logged end of a job that a later job of the node has replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    """An interval of work on a shard, in seconds since the bag's start."""

    begin: float
    end: float


class ShardWork(Struct, frozen=True):
    """The work on one shard, in seconds.

    ``seconds``: the duration of a completed shard; None if it is not completed, or not logged.
    ``progress``: the work that counts of an uncompleted one (checkpointed, and in progress).
    ``in_progress``: a machine works on it. ``lost``: work that does not count.
    ``interrupted_progress``: the progress of each interrupted attempt. ``spans``: when machines
    worked on it, in order. ``representative``: the execution that completed it or is in progress,
    else the last one. ``attempts``: the number of executions; ``newest``: its newest job, None
    before the first.
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
    """Converts times to seconds since the first of some times, with a cache.

    By the ledger's zone-aware clock, so that the repeated hour at the end of daylight saving time
    counts as an hour.
    """

    def __init__(self, ledger: Ledger, times: Iterable[datetime]) -> None:
        self._ledger = ledger
        self._cache: dict[tuple[datetime, int], float] = {}
        self._first: datetime | None = None
        for when in times:
            if self._first is None or elapsed(ledger, when, self._first) > 0:
                self._first = when
        self.now = 0.0 if ledger.as_of is None else self.position(ledger.as_of)

    def position(self, when: datetime) -> float:
        """Seconds since the first time."""
        key = (when, when.fold)
        if key not in self._cache:
            first = self._first
            self._cache[key] = 0.0 if first is None else elapsed(self._ledger, first, when)
        return self._cache[key]

    def span_of(self, entry: ExecutionEntry) -> WorkSpan:
        """The interval of an execution; without an end it extends to as-of."""
        begin = self.position(entry.start)
        end = self.now if entry.end is None else self.position(entry.end)
        return WorkSpan(begin, max(begin, end))


def shard_work(
    state: State,
    has_post_script: bool,
    jobs: Sequence[JobEntry],
    executions: Sequence[ExecutionEntry],
    axis: TimeAxis,
) -> ShardWork:
    """The work on a shard.

    ``state``: that of its node; ``has_post_script``: a POST script can make the node succeed
    whatever its job returned; ``jobs``, ``executions``: the node's, in the ledger's order.
    """
    if not jobs:
        return ShardWork()
    newest = jobs[-1].job[0]
    parallel = sum(job.job[0] == newest for job in jobs) > 1
    complete = state in (State.COMPLETED, State.POST)
    # The log may lack the end of an older job, which then only seems to be in progress.
    known = [e for e in executions if e.end is not None or (e.job[0] == newest and state in ACTIVE)]
    if not parallel:
        counted = _checkpoint_chain(known, complete, has_post_script)
        if counted and not complete and counted[-1].end and not _is_checkpoint(counted[-1]):
            counted = []
    elif complete or state in ACTIVE:
        processes = group_by((e for e in known if e.job[0] == newest), attrgetter("job"))
        chains = (_checkpoint_chain(p, complete, has_post_script) for p in processes.values())
        counted = [e for chain in chains for e in chain]
    else:
        counted = []
    own_spans = _merge_spans(axis.span_of(e) for e in counted)
    if parallel and own_spans:
        own_spans = [WorkSpan(own_spans[0].begin, own_spans[-1].end)]
    spans = _merge_spans([*own_spans, *(axis.span_of(e) for e in known)])
    done = complete and bool(counted)
    in_progress = state in RUNNING and any(e.end is None for e in counted)
    seconds = _total_seconds(own_spans) if parallel else sum(e.seconds for e in counted)
    candidates = counted if done or in_progress else known
    # Of parallel processes, only a whole job is an attempt.
    attempts = [e for e in known if not (parallel and e.job[0] == newest)]
    return ShardWork(
        seconds=seconds if done else None,
        progress=0.0 if done else seconds,
        in_progress=in_progress,
        lost=_total_seconds(spans) - _total_seconds(own_spans),
        interrupted_progress=tuple(_interrupted_progress(attempts, {id(e) for e in counted})),
        spans=tuple(spans),
        representative=next(
            (e for e in candidates if e.end is None), candidates[-1] if candidates else None
        ),
        attempts=len(executions),
        newest=jobs[-1],
    )


def _checkpoint_chain(
    executions: Sequence[ExecutionEntry], complete: bool, has_post_script: bool
) -> list[ExecutionEntry]:
    """The executions that count: good ones since a restart, and those in progress."""
    chain: list[ExecutionEntry] = []
    for entry in executions:
        if entry.kind == "bad":
            continue
        if chain and not _is_checkpoint(chain[-1]):
            # The shard was complete, and was started again all the same.
            chain = []
        chain.append(entry)
    if complete and has_post_script and executions and executions[-1].outcome is Outcome.FAILED:
        # The POST script made the node succeed.
        chain = [*(e for e in chain if _is_checkpoint(e)), executions[-1]]
    if complete and chain and chain[-1].end is None:
        chain.pop()
    return chain


def _interrupted_progress(
    executions: Iterable[ExecutionEntry], counted_ids: set[int]
) -> Iterator[float]:
    """The progress of each lost attempt, including the checkpointed work before it."""
    checkpointed = 0.0
    for entry in executions:
        if entry.kind == "bad" and id(entry) not in counted_ids:
            yield checkpointed + entry.seconds
        elif entry.kind == "good":
            checkpointed = checkpointed + entry.seconds if _is_checkpoint(entry) else 0.0


def _is_checkpoint(entry: ExecutionEntry) -> bool:
    """Did the execution end with a code for "checkpointed, run me again"?"""
    return entry.kind == "good" and entry.return_value not in (0, None)


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
