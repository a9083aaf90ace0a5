"""Downtime of runs: the DAG was removed or failed, and was submitted again later.

Downtime does not count as epoch duration. A run is down while its DAG has no job in the queue
between two DAGMan runs, and from the failure or removal of one of its own jobs until a later
DAGMan run submits the next. The work of a job that was removed with its DAG is lost and has to be
repeated: that time counts as downtime, too, and additionally as an interrupted (censored) epoch.
Held, idle and transferring jobs are in the queue: a hold of the whole ensemble is no downtime, and
neither is a pool without matches for days.

The starts of DAGMan runs come from DAGMan's files. Without these, one is inferred after a
simultaneous removal of all jobs, and after the queue was empty for longer than :data:`LATENCY`.
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
"""Seconds between two jobs of one DAGMan run, at most; a PRE or POST script takes minutes."""

REMOVAL_SPREAD: Final = timedelta(minutes=2)
"""Time within which all jobs of a removed DAG leave the queue. The first jobs of the next DAGMan
run may be submitted that long before the last one has left."""

DowntimeInterval = tuple[datetime, datetime]


class Downtime:
    """The downtime intervals of all runs of a ledger."""

    def __init__(self, ledger: Ledger, dags: Iterable[DagRow]) -> None:
        self._ledger = ledger
        submissions = {dag.file: dag.submissions for dag in dags}
        self._jobs = _group_jobs(ledger.jobs, lambda job: job.dag)
        self._dagman_starts = {
            dag: [naive_time(when) for when in submissions.get(dag or "", ())]
            or _infer_dagman_starts(jobs)
            for dag, jobs in self._jobs.items()
        }
        self._dag_intervals: dict[frozenset[str | None], list[DowntimeInterval]] = {}
        self._run_intervals: dict[str, list[DowntimeInterval]] = {}
        self._lost_work: dict[str, list[tuple[DowntimeInterval, JobEntry]]] = {}
        for run, jobs in _group_jobs(ledger.jobs, lambda job: job.run).items():
            if run is not None:
                self._add(run, jobs)

    def seconds_between(self, run: str, start: datetime, end: datetime) -> float:
        """Seconds of the run's downtime between two times."""
        intervals = self._run_intervals.get(run)
        if not intervals:
            return 0.0
        # The intervals do not overlap, so that their ends are sorted, too.
        first = bisect_right(intervals, naive_time(start), key=_interval_end)
        last = bisect_left(intervals, naive_time(end), first, key=_interval_start)
        return sum(
            elapsed(self._ledger, max(down, start, key=naive_time), min(up, end, key=naive_time))
            for down, up in intervals[first:last]
        )

    def interrupted_cycles(self, run: str) -> list[Cycle]:
        """The epochs of the run that were interrupted by a removal of its DAG."""
        return [
            Cycle(
                run=run,
                epoch=job.epoch or 0,
                target=job.target,
                seconds=elapsed(self._ledger, *lost),
                ended=False,
                end=lost[1],
                interrupted=True,
            )
            for lost, job in self._lost_work.get(run, ())
            if job.training
        ]

    def _add(self, run: str, jobs: Sequence[JobEntry]) -> None:
        dags = frozenset(job.dag for job in jobs)
        dagman_starts = sorted(start for dag in dags for start in self._dagman_starts[dag])
        if dags not in self._dag_intervals:
            dag_jobs = [job for dag in dags for job in self._jobs[dag]]
            dag_jobs.sort(key=_submitted)
            self._dag_intervals[dags] = [
                gap for gap, _ in _gaps(dag_jobs) if _has_dagman_start(dagman_starts, *gap)
            ]
        own = [
            gap
            for gap, last_job in _gaps(jobs)
            if last_job.state is not State.COMPLETED and _has_dagman_start(dagman_starts, *gap)
        ]
        self._lost_work[run] = [
            ((job.submitted, left), job)
            for job, next_job in pairwise(jobs)
            if job.state is State.REMOVED
            and job.submitted is not None
            and (left := _queue_exit(job)) is not None
            and _has_dagman_start(dagman_starts, job.submitted, next_job.submitted or left)
        ]
        lost = [interval for interval, _ in self._lost_work[run]]
        self._run_intervals[run] = _merged([*self._dag_intervals[dags], *own, *lost])


def _group_jobs(
    jobs: Iterable[JobEntry], key: Callable[[JobEntry], str | None]
) -> dict[str | None, list[JobEntry]]:
    """Group the submitted jobs by key, each group in order of submission."""
    groups: defaultdict[str | None, list[JobEntry]] = defaultdict(list)
    for job in jobs:
        if job.submitted is not None:
            groups[key(job)].append(job)
    for group in groups.values():
        group.sort(key=_submitted)
    return groups


def _infer_dagman_starts(jobs: Sequence[JobEntry]) -> list[datetime]:
    """Infer the starts of DAGMan runs from a DAG's jobs in order of submission."""
    dagman_starts = [
        naive_time(end)
        for (start, end), _ in _gaps(jobs)
        if (end - start).total_seconds() > LATENCY
    ]
    removed = [(naive_time(left), job) for job in jobs if (left := _removal_exit(job)) is not None]
    removed.sort(key=_removal_time)
    # End times of the jobs submitted so far; the times compared with them are ascending.
    end_times: list[datetime] = []
    submitted_count = index = 0
    while index < len(removed):
        first = removed[index][0]
        next_index = bisect_right(removed, first + REMOVAL_SPREAD, index, key=_removal_time)
        group = [job for _, job in removed[index:next_index]]
        index = next_index
        new_count = bisect_right(jobs, first - REMOVAL_SPREAD, submitted_count, key=_submitted)
        for job in jobs[submitted_count:new_count]:
            heappush(end_times, _queue_exit_key(job))
        submitted_count = new_count
        while end_times and end_times[0] <= first:
            heappop(end_times)
        group_count = sum(
            _submitted(job) <= first - REMOVAL_SPREAD and _queue_exit_key(job) > first
            for job in group
        )
        if len(end_times) > group_count:
            continue
        ids = {job.job for job in group}
        next_job = next((job for job in islice(jobs, new_count, None) if job.job not in ids), None)
        if next_job is not None:
            dagman_starts.append(_submitted(next_job))
    return sorted(dagman_starts)


def _gaps(jobs: Sequence[JobEntry]) -> list[tuple[DowntimeInterval, JobEntry]]:
    """Intervals without a job in the queue, each with the last job before it."""
    gaps: list[tuple[DowntimeInterval, JobEntry]] = []
    last_job: JobEntry | None = None
    idle_since: datetime | None = None
    for job in jobs:
        start = job.submitted
        if (
            last_job is not None
            and idle_since is not None
            and start
            and naive_time(idle_since) < naive_time(start)
        ):
            gaps.append(((idle_since, start), last_job))
        left = _queue_exit(job)
        if left is None:
            break
        if idle_since is None or naive_time(left) > naive_time(idle_since):
            last_job, idle_since = job, left
    return gaps


def _has_dagman_start(dagman_starts: Sequence[datetime], start: datetime, end: datetime) -> bool:
    """Does a DAGMan run start after ``start`` and not after ``end``?"""
    index = bisect_right(dagman_starts, naive_time(start))
    return index < len(dagman_starts) and dagman_starts[index] <= naive_time(end)


def _submitted(job: JobEntry) -> datetime:
    assert job.submitted is not None
    return naive_time(job.submitted)


def _queue_exit(job: JobEntry) -> datetime | None:
    """When the job left the queue; None if it is in the queue."""
    if job.ended is None and job.state in TERMINAL and job.states:
        return job.states[-1][0]
    return job.ended


def _queue_exit_key(job: JobEntry) -> datetime:
    """As :func:`_queue_exit`, for comparisons; ``datetime.max`` if it is in the queue."""
    left = _queue_exit(job)
    return datetime.max if left is None else naive_time(left)


def _removal_exit(job: JobEntry) -> datetime | None:
    return _queue_exit(job) if job.state is State.REMOVED else None


def _removal_time(removal: tuple[datetime, JobEntry]) -> datetime:
    return removal[0]


def _interval_start(interval: DowntimeInterval) -> datetime:
    return naive_time(interval[0])


def _interval_end(interval: DowntimeInterval) -> datetime:
    return naive_time(interval[1])


def _merged(intervals: Iterable[DowntimeInterval]) -> list[DowntimeInterval]:
    """Merge overlapping intervals, so that no second counts twice."""
    merged: list[DowntimeInterval] = []
    for start, end in sorted(intervals, key=lambda interval: naive_time(interval[0])):
        if merged and naive_time(start) <= naive_time(merged[-1][1]):
            merged[-1] = (merged[-1][0], max(merged[-1][1], end, key=naive_time))
        else:
            merged.append((start, end))
    return merged
