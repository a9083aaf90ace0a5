"""Tells apart the jobs of one id, which the schedd used more than once."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from metlmon.eventlog import Event, Submit
from metlmon.model.job_events import Job, JobId, JobKey

ONE_SECOND: Final = timedelta(seconds=1)
"""Maximum difference of one event in two logs, if one has fractions of seconds."""

LATEST: Final = datetime.max - ONE_SECOND

ONE_DAY: Final = timedelta(days=1)
"""More than the difference between any two time zones of logs."""

ONE_HOUR: Final = timedelta(hours=1)
"""Two submissions of one node with the same id in less time are unlikely: rather, a log was
assembled incorrectly."""

QUARTER_HOUR: Final = timedelta(minutes=15)
"""Time zones differ by multiples of this."""


class ReusedJobIds:
    """Submissions of the job ids (cluster and proc) that the schedd used more than once.

    After a reinstallation the schedd counts from 1 again. A new submission is recognised by a
    second 000 that names another node, or whose time differs from the first by more than a day or
    by an odd amount. The same 000 is often read twice (from the job's own log and ``nodes.log``,
    or from a log appended to itself), and then has the same second; in a log of another time zone
    it differs by quarter hours, and in one without years possibly by years. Only the two 000 are
    compared, not their logs, so that the order of reading does not matter. Events belong to the
    last submission before them.
    """

    def __init__(self) -> None:
        self._submit_times: dict[JobId, list[datetime]] = {}

    def __bool__(self) -> bool:
        return bool(self._submit_times)

    def __contains__(self, job: JobId) -> bool:
        return job in self._submit_times

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._submit_times)

    def key_at(self, key: JobKey, time: datetime) -> JobKey:
        """The key of the job with this id that an event at ``time`` belongs to.

        The third number counts the submissions, from 0.
        """
        times = self._submit_times.get(key[:2])
        if times is None:
            return key
        # Adding a second to LATEST or a later time would overflow.
        until = time + ONE_SECOND if time < LATEST else time
        return (*key[:2], max(0, bisect_right(times, until) - 1))

    def newest(self, job: JobId) -> JobKey:
        """The key of the job that was submitted last."""
        return (*job, len(self._submit_times.get(job, (job,))) - 1)

    def keys(self, job: JobId) -> list[JobKey]:
        """The keys of all jobs with this id, in the order of submission."""
        return [(*job, number) for number in range(len(self._submit_times.get(job, (job,))))]

    def add(self, job: Job, time: datetime) -> None:
        """Add another submission of the job's id."""
        first = job.first_submitted or datetime.min
        insort(self._submit_times.setdefault(job.id, [first]), time)

    def times(self, job: Job) -> list[datetime]:
        """The known submission times of the job's id."""
        first = job.first_submitted
        return self._submit_times.get(job.id) or ([first] if first is not None else [])


def find_resubmission(job: Job, event: Event, reused_ids: ReusedJobIds) -> bool:
    """Is this 000 of another job than the known ones with the same id?"""
    detail, time = event.detail, event.time
    known_time = job.first_submitted
    if known_time is not None and abs(time - known_time) <= ONE_SECOND:
        return False
    if not isinstance(detail, Submit) or job.noop:
        return False
    if known_time is None:
        return job.newest_time is not None and time - job.newest_time > ONE_DAY
    if detail.node and job.node_name and detail.node != job.node_name:
        return True
    return not any(_may_be_same(time, other) for other in reused_ids.times(job))


def submit_time_difference(job: Job, event: Event) -> timedelta | None:
    """The difference of this 000 from that of the same job, if suspiciously large."""
    known = job.first_submitted
    difference = abs(event.time - known) if known is not None and not job.noop else timedelta()
    return difference if difference > ONE_HOUR - QUARTER_HOUR else None


def _may_be_same(time: datetime, known: datetime) -> bool:
    """May two 000 of one node with these times be of one submission?"""
    difference = abs(time - known)
    if difference > ONE_DAY:
        # Years of a log without them are guessed from the file's modification time.
        return _without_year(time) == _without_year(known)
    return difference < ONE_HOUR or (difference + ONE_SECOND) % QUARTER_HOUR <= 2 * ONE_SECOND


def _without_year(time: datetime) -> tuple[int, ...]:
    return time.month, time.day, time.hour, time.minute, time.second
