"""Jobs that had the same cluster and proc: a schedd that was installed anew counts from 1 again.

Two jobs are told apart by what only a new submission has: a second 000, of another node, or more
than a day or an odd time from the first. The same 000 is often read twice (a job's own log and
``nodes.log``, a log that was copied behind itself), and then has the same second; in a log that
is written in another zone it is some quarters of an hour off, and in one without years that is
taken for a later one some years. Only the two 000 are looked at, never the logs they are in, so
that it does not matter which log is read first. Events belong to the submission that was made
last before them.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from metlmon.eventlog import Event, Submit
from metlmon.model.job_events import NOOP_PROC, Job, JobId, JobKey

ONE_SECOND: Final = timedelta(seconds=1)
"""One event, in logs of which one has fractions of seconds."""

LATEST: Final = datetime.max - ONE_SECOND

A_DAY: Final = timedelta(days=1)
"""No two zones in which logs may be written are this far apart."""

AN_HOUR: Final = timedelta(hours=1)
"""A schedd that was installed anew within less, and came to the same number for the same node:
a log that was put together wrongly is more likely."""

QUARTER_HOUR: Final = timedelta(minutes=15)
"""Zones differ by multiples of it."""


class ReusedJobIds:
    """The submissions of each cluster and proc that had more than one."""

    def __init__(self) -> None:
        self._submitted: dict[JobId, list[datetime]] = {}

    def __bool__(self) -> bool:
        return bool(self._submitted)

    def __contains__(self, job: JobId) -> bool:
        return job in self._submitted

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._submitted)

    def at(self, key: JobKey, when: datetime) -> JobKey:
        """The key of the job of this cluster and proc that an event at ``when`` is of. The third
        number counts its submissions, from 0."""
        times = self._submitted.get(key[:2])
        if times is None:
            return key
        # A date of the year 9999 is one.
        until = when + ONE_SECOND if when < LATEST else when
        return (*key[:2], max(0, bisect_right(times, until) - 1))

    def newest(self, job: JobId) -> JobKey:
        """The key of the job that was submitted last."""
        return (*job, len(self._submitted.get(job, (job,))) - 1)

    def keys(self, job: JobId) -> list[JobKey]:
        """The keys of all of them, in the order in which they were submitted."""
        return [(*job, number) for number in range(len(self._submitted.get(job, (job,))))]

    def add(self, job: Job, when: datetime) -> None:
        """There was another submission."""
        begun = job.told_submitted or datetime.min
        insort(self._submitted.setdefault(job.id, [begun]), when)

    def times(self, job: Job) -> list[datetime]:
        """When those of its cluster and proc were submitted, as far as that is known."""
        begun = job.told_submitted
        return self._submitted.get(job.id) or ([begun] if begun is not None else [])

    def recall(self, key: JobKey, job: Job) -> None:
        """Jobs are known again in the order of their keys, this one among them."""
        if key[1] != NOOP_PROC:
            self._submitted.setdefault(key[:2], [datetime.min])
            self._submitted[key[:2]].append(job.told_submitted or datetime.max)


def find_resubmission(job: Job, event: Event, lives: ReusedJobIds) -> bool:
    """Is this 000 of another job than those of its cluster and proc that are known?"""
    detail, when = event.detail, event.time
    before = job.told_submitted
    if before is not None and abs(when - before) <= ONE_SECOND:
        return False
    if not isinstance(detail, Submit) or job.noop:
        return False
    if before is None:
        return job.newest_sign is not None and when - job.newest_sign > A_DAY
    if detail.node and job.node_name and detail.node != job.node_name:
        return True
    return not any(_may_be_one(when, known) for known in lives.times(job))


def is_new_submission(job: Job, event: Event) -> timedelta | None:
    """By how much this 000 differs from the one that is known, although it is of the same job."""
    before = job.told_submitted
    apart = abs(event.time - before) if before is not None and not job.noop else timedelta()
    return apart if apart > AN_HOUR - QUARTER_HOUR else None


def _may_be_one(when: datetime, known: datetime) -> bool:
    """Two stamps of a 000 of one node: may they be of one submission?"""
    apart = abs(when - known)
    if apart > A_DAY:
        # The years of a log that writes none are guessed, from when its file was written.
        return _without_year(when) == _without_year(known)
    return apart < AN_HOUR or (apart + ONE_SECOND) % QUARTER_HOUR <= 2 * ONE_SECOND


def _without_year(time: datetime) -> tuple[int, ...]:
    return time.month, time.day, time.hour, time.minute, time.second
