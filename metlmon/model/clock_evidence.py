"""Finds moments that DAGMan's files give both in local time and in UTC.

They determine the access point's UTC offset when no zone is set. All of a file is evidence,
including what was written after ``--as-of``. Sources followed: ``DagmanMetrics`` in
``dagman_metrics.cpp`` (times in seconds since 1970), ``Dag::Rescue`` in ``dag.cpp`` (a rescue
file's ``# Created … UTC``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import PurePath
from typing import Final, Protocol, TypeAlias

from msgspec import Struct, field

from metlmon.dagman import DagmanMessage, DagmanMessageKind, DagMetrics, JobstateLine, Rescue
from metlmon.eventlog import Event, Submit, Terminated
from metlmon.model.clock import HALF_HOUR, SAME_MOMENT, Clock, offset_between

ClockObservation: TypeAlias = tuple[datetime, float]
"""A local time, and the same moment in seconds since 1970."""

DST_STEP: Final = 3600.0
"""Seconds by which daylight saving time changes clocks."""

MAX_SUBMISSIONS: Final = 500
"""Submissions whose local times are stored until another file gives them in UTC."""


class QueueInterval(Struct):
    """A DAGMan process or DAGMan job, from its first to its last line in a file.

    ``starts``: several where a job was started again.
    """

    starts: list[datetime] = field(default_factory=list)
    end: datetime | None = None


class SubmissionTimes:
    """Local times of the newest submissions of a file, by cluster."""

    def __init__(self) -> None:
        self._times: dict[int, datetime] = {}

    def add(self, cluster: int, time: datetime) -> None:
        """Store a submission; the oldest one is dropped beyond a bound."""
        self._times[cluster] = time
        if len(self._times) > MAX_SUBMISSIONS:
            del self._times[next(iter(self._times))]

    def get(self, cluster: int) -> datetime | None:
        """The submission time of the cluster, if still stored."""
        return self._times.get(cluster)


class OutTimes:
    """Local times in one ``.dagman.out``.

    ``runs``: DAGMan's starts and ends. ``written``: when it wrote each rescue file, by name.
    """

    def __init__(self) -> None:
        self.runs: list[QueueInterval] = []
        self.written: dict[str, datetime] = {}

    def add(self, line: DagmanMessage) -> None:
        """Store the time of a message on the DAG as a whole."""
        if line.time is None:
            return
        if line.kind is DagmanMessageKind.STARTED:
            self.runs.append(QueueInterval([line.time]))
        elif line.kind is DagmanMessageKind.EXITED and self.runs:
            self.runs[-1].end = line.time
        elif line.kind is DagmanMessageKind.RESCUE_WRITTEN and line.text:
            self.written[PurePath(line.text).name] = line.time


def note_dagman_event(jobs: dict[int, QueueInterval], event: Event) -> None:
    """Store an event of a ``.dagman.log`` in ``jobs``, by DAGMan's cluster."""
    interval = jobs.setdefault(event.cluster, QueueInterval())
    if event.number == 1:
        interval.starts.append(event.time)
    elif event.number in (5, 9):
        interval.end = event.time


def metrics_observations(
    metrics: DagMetrics, runs: list[QueueInterval], jobs: Mapping[int, QueueInterval]
) -> Iterator[ClockObservation]:
    """Yield moments of a metrics file that another file has in local time.

    That is ``.dagman.log`` (``jobs``, matched by DAGMan's cluster) or ``.dagman.out``
    (``runs``, matched by their duration).
    """
    name = metrics.dagman_id or ""
    job = jobs.get(int(name)) if name.isdecimal() and len(name) < 19 else None
    if job is not None:
        yield from _job_observations(metrics, job)
    run = _matching_run(metrics, runs)
    if run is not None:
        yield from _observation(run.starts[0], metrics.start)
        yield from _observation(run.end, metrics.end)


def _job_observations(metrics: DagMetrics, job: QueueInterval) -> Iterator[ClockObservation]:
    """Match a DAGMan job; after a restart the metrics file is of its last start."""
    if job.end is None:
        if len(job.starts) == 1:
            yield from _observation(job.starts[0], metrics.start)
        return
    starts = [start for start in job.starts if _has_duration(start, job.end, metrics)]
    if starts or not job.starts:
        yield from _observation(job.end, metrics.end)
        for start in starts[-1:]:
            yield from _observation(start, metrics.start)


def _matching_run(metrics: DagMetrics, runs: list[QueueInterval]) -> QueueInterval | None:
    """The run that wrote the file: the newest one with the file's duration.

    The file stays until the next run has ended.
    """
    if len(runs) == 1:
        return runs[0]
    for run in reversed(runs):
        if run.end is not None and _has_duration(run.starts[0], run.end, metrics):
            return run
    return None


def _has_duration(start: datetime, end: datetime, metrics: DagMetrics) -> bool:
    """Does the interval have the file's duration, apart from a clock change?"""
    if metrics.start is None or metrics.end is None:
        return False
    difference = abs((end - start).total_seconds() - (metrics.end - metrics.start))
    return min(difference, abs(difference - DST_STEP)) <= SAME_MOMENT


def jobstate_observations(
    started: Collection[tuple[float, int | None]], jobs: Mapping[int, QueueInterval]
) -> Iterator[ClockObservation]:
    """Yield starts that both a jobstate log and ``.dagman.log`` have.

    ``started``: time and DAGMan's cluster. Jobs with more than one start are skipped.
    """
    times = Counter(cluster for _, cluster in started)
    for epoch, cluster in started:
        job = jobs.get(cluster) if cluster is not None else None
        if job is not None and len(job.starts) == 1 == times[cluster]:
            yield job.starts[0], epoch


def rescue_observations(
    rescues: Iterable[Rescue], written: Mapping[str, datetime], jobs: Mapping[int, QueueInterval]
) -> Iterator[ClockObservation]:
    """Yield creation times of rescue files with their local times.

    The local time is that of the line in ``.dagman.out`` (``written``), else the end of a
    DAGMan job, if exactly one UTC offset is possible.
    """
    ends = [job.end for job in jobs.values() if job.end is not None]
    for rescue in rescues:
        if rescue.created is None:
            continue
        epoch = rescue.created.timestamp()
        if rescue.path.name in written:
            yield written[rescue.path.name], epoch
            continue
        possible = {
            offset: end
            for end in ends
            if (offset := offset_between(end, epoch, HALF_HOUR, early=1.0)) is not None
        }
        if len(possible) == 1:
            yield next(iter(possible.values())), epoch


def _observation(local: datetime | None, epoch: float | None) -> Iterator[ClockObservation]:
    if local is not None and epoch is not None:
        yield local, epoch


class ClockSource(Protocol):
    """A DAG whose files give moments in local time and in UTC."""

    submit_epochs: dict[int, float]

    def clock_observations(self) -> Iterator[ClockObservation]: ...


class UtcOffsets:
    """Passes moments known in local time and in UTC to a clock.

    Calls ``on_change`` when the conversion of any time changes. ``first_later``: the time of
    the first event after the cut.
    """

    def __init__(self, clock: Clock, on_change: Callable[[], None]) -> None:
        self.first_later: datetime | None = None
        self._clock = clock
        self._on_change = on_change
        self._later_submissions = SubmissionTimes()

    def read_files(self, dag: ClockSource) -> None:
        """Read the moments in the files of a DAG's DAGMan."""
        for local, epoch in dag.clock_observations():
            self._observe(local, epoch)

    def read_end(self, event: Event) -> None:
        """Read a 005, which until HTCondor 24.7 has the end of the job in UTC."""
        detail = event.detail
        if not isinstance(detail, Terminated) or detail.ended_utc is None or self._clock.zone:
            return
        if self._clock.hint(event.time, detail.ended_utc.timestamp()):
            self._on_change()

    def read_submission(self, cluster: int, local: datetime, dag: ClockSource | None) -> None:
        """Read a 000, whose time the jobstate log of ``dag`` may have in UTC."""
        epoch = dag.submit_epochs.get(cluster) if dag is not None else None
        if epoch is not None and self._clock.zone is None:
            self._observe(local, epoch)

    def read_jobstate(
        self,
        dag: ClockSource,
        entries: Iterable[JobstateLine],
        submitted: Callable[[int], datetime | None],
    ) -> None:
        """Read lines of a jobstate log.

        ``submitted``: returns the submission time of a cluster, by its events up to the cut.
        """
        if self._clock.zone is not None:
            return
        for entry in entries:
            cluster = entry.cluster
            epoch = dag.submit_epochs.get(cluster) if cluster is not None else None
            if entry.event == "SUBMIT" and cluster is not None and epoch is not None:
                local = submitted(cluster) or self._later_submissions.get(cluster)
                if local is not None:
                    self._observe(local, epoch)

    def read_later(
        self, events: Iterable[Event], submitting_dag_of: Callable[[int], ClockSource | None]
    ) -> None:
        """Read events after the cut, which are used for nothing else.

        ``submitting_dag_of``: returns the DAG that submitted a cluster.
        """
        for event in events:
            if self.first_later is None or event.time < self.first_later:
                self.first_later = event.time
            if isinstance(event.detail, Submit):
                self._later_submissions.add(event.cluster, event.time)
                self.read_submission(event.cluster, event.time, submitting_dag_of(event.cluster))
            else:
                self.read_end(event)

    def _observe(self, local: datetime, epoch: float) -> None:
        if self._clock.observe(local, epoch):
            self._on_change()
