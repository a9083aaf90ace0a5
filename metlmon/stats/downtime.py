"""What a DAG that goes on running would not have cost: it was removed or it failed, and was
submitted again later. Such time is not what an epoch takes.

A run pauses while its DAG has no job in the queue between two lives of its DAGMan, and from where
a job of its own failed or was removed until a later life submits the next. What a job had done
when it was removed with its DAG is lost and was to be done again: that time counts as paused too,
and beside it as an epoch that was broken off ("at least so long"). Held, idle and transferring
jobs are in the queue: a hold of a whole ensemble is no pause, and neither is a pool that gives
nothing for days.

Lives are those that DAGMan's files tell of. Where there are none, one is seen to begin after all
jobs were removed at once, and after the queue was empty for longer than :data:`LATENCY`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import islice, pairwise
from typing import Final

from metlmon.model.states import TERMINAL, State
from metlmon.snapshot.ledger import JobEntry, Ledger
from metlmon.snapshot.types import DagRow
from metlmon.stats.epoch_times import Cycle, elapsed, naive_time

LATENCY: Final = 600.0
"""Seconds. Between two jobs DAGMan takes some; a PRE or POST script, minutes."""

TOGETHER: Final = timedelta(minutes=2)
"""Within this time all jobs of a DAG that is removed leave the queue; the first jobs of the next
life may come as much before the last of them has left."""

Pause = tuple[datetime, datetime]


class Downtime:
    """The pauses of all runs of a ledger."""

    def __init__(self, ledger: Ledger, dags: Iterable[DagRow]) -> None:
        self._ledger = ledger
        told = {dag.file: dag.submissions for dag in dags}
        self._jobs = _by(ledger.jobs, lambda job: job.dag)
        self._lives = {
            dag: [naive_time(each) for each in told.get(dag or "", ())] or _seen(jobs)
            for dag, jobs in self._jobs.items()
        }
        self._of_dags: dict[frozenset[str | None], list[Pause]] = {}
        self._of_run: dict[str, list[Pause]] = {}
        self._lost: dict[str, list[tuple[Pause, JobEntry]]] = {}
        for run, jobs in _by(ledger.jobs, lambda job: job.run).items():
            if run is not None:
                self._add(run, jobs)

    def within(self, run: str, start: datetime, end: datetime) -> float:
        """Seconds of this run's pauses between two moments."""
        pauses = self._of_run.get(run)
        if not pauses:
            return 0.0
        # They do not overlap: their ends are in order, too.
        first = bisect_right(pauses, naive_time(start), key=_over)
        last = bisect_left(pauses, naive_time(end), first, key=_begun)
        return sum(
            elapsed(self._ledger, max(begun, start, key=naive_time), min(over, end, key=naive_time))
            for begun, over in pauses[first:last]
        )

    def broken(self, run: str) -> list[Cycle]:
        """The epochs of this run that were broken off because its DAG was removed."""
        return [
            Cycle(
                run, job.epoch or 0, job.target, elapsed(self._ledger, *lost), False, lost[1], True
            )
            for lost, job in self._lost.get(run, ())
            if job.training
        ]

    def _add(self, run: str, jobs: Sequence[JobEntry]) -> None:
        dags = frozenset(job.dag for job in jobs)
        lives = sorted(life for dag in dags for life in self._lives[dag])
        if dags not in self._of_dags:
            every = [job for dag in dags for job in self._jobs[dag]]
            every.sort(key=_submitted)
            self._of_dags[dags] = [gap for gap, _ in _gaps(every) if _begins(lives, *gap)]
        own = [
            gap
            for gap, before in _gaps(jobs)
            if before.state is not State.COMPLETED and _begins(lives, *gap)
        ]
        self._lost[run] = [
            ((job.submitted, left), job)
            for job, after in pairwise(jobs)
            if job.state is State.REMOVED
            and job.submitted is not None
            and (left := _left(job)) is not None
            and _begins(lives, job.submitted, after.submitted or left)
        ]
        lost = [pause for pause, _ in self._lost[run]]
        self._of_run[run] = _united([*self._of_dags[dags], *own, *lost])


def _by(
    jobs: Iterable[JobEntry], key: Callable[[JobEntry], str | None]
) -> dict[str | None, list[JobEntry]]:
    """In groups, each in order of submission."""
    groups: defaultdict[str | None, list[JobEntry]] = defaultdict(list)
    for job in jobs:
        if job.submitted is not None:
            groups[key(job)].append(job)
    for group in groups.values():
        group.sort(key=_submitted)
    return groups


def _seen(jobs: Sequence[JobEntry]) -> list[datetime]:
    """Where lives of a DAG seem to begin, by its jobs in order of submission."""
    lives = [
        naive_time(over)
        for (begun, over), _ in _gaps(jobs)
        if (over - begun).total_seconds() > LATENCY
    ]
    removed = [(naive_time(left), job) for job in jobs if (left := _removed(job)) is not None]
    removed.sort(key=lambda each: each[0])
    # When those left that were submitted before: who asks comes later and later.
    staying: list[datetime] = []
    before = at = 0
    while at < len(removed):
        first = removed[at][0]
        past = bisect_right(removed, first + TOGETHER, at, key=lambda each: each[0])
        group = [job for _, job in removed[at:past]]
        at = past
        after = bisect_right(jobs, first - TOGETHER, before, key=_submitted)
        for job in jobs[before:after]:
            heappush(staying, _last(job))
        before = after
        while staying and staying[0] <= first:
            heappop(staying)
        own = sum(_submitted(job) <= first - TOGETHER and _last(job) > first for job in group)
        if len(staying) > own:
            continue
        ids = {job.job for job in group}
        following = next((job for job in islice(jobs, after, None) if job.job not in ids), None)
        if following is not None:
            lives.append(_submitted(following))
    return sorted(lives)


def _gaps(jobs: Sequence[JobEntry]) -> list[tuple[Pause, JobEntry]]:
    """Spans in which none of these jobs is in the queue, with the one that left it last."""
    gaps: list[tuple[Pause, JobEntry]] = []
    before: JobEntry | None = None
    free: datetime | None = None
    for job in jobs:
        start = job.submitted
        if (
            before is not None
            and free is not None
            and start
            and naive_time(free) < naive_time(start)
        ):
            gaps.append(((free, start), before))
        left = _left(job)
        if left is None:
            break
        if free is None or naive_time(left) > naive_time(free):
            before, free = job, left
    return gaps


def _begins(lives: Sequence[datetime], start: datetime, end: datetime) -> bool:
    """Whether a life begins after one moment, and not after the other."""
    at = bisect_right(lives, naive_time(start))
    return at < len(lives) and lives[at] <= naive_time(end)


def _submitted(job: JobEntry) -> datetime:
    assert job.submitted is not None
    return naive_time(job.submitted)


def _left(job: JobEntry) -> datetime | None:
    """When it left the queue; None while it is in it."""
    if job.ended is None and job.state in TERMINAL and job.states:
        return job.states[-1][0]
    return job.ended


def _last(job: JobEntry) -> datetime:
    """As :func:`_left`, for comparing: what is in the queue leaves it at the end of time."""
    left = _left(job)
    return datetime.max if left is None else naive_time(left)


def _removed(job: JobEntry) -> datetime | None:
    return _left(job) if job.state is State.REMOVED else None


def _begun(pause: Pause) -> datetime:
    return naive_time(pause[0])


def _over(pause: Pause) -> datetime:
    return naive_time(pause[1])


def _united(pauses: Iterable[Pause]) -> list[Pause]:
    """The same without overlaps, so that no second is taken off twice."""
    united: list[Pause] = []
    for begun, over in sorted(pauses, key=lambda pause: naive_time(pause[0])):
        if united and naive_time(begun) <= naive_time(united[-1][1]):
            united[-1] = (united[-1][0], max(united[-1][1], over, key=naive_time))
        else:
            united.append((begun, over))
    return united
