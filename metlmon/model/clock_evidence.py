"""Moments that DAGMan's files state both in local time and in UTC: they give the access
point's offset where no zone is set.

All of a file is evidence for the offset, also what was written after the moment that
``--as-of`` asks for. Sources followed: ``DagmanMetrics`` in ``dagman_metrics.cpp`` (times in
seconds since 1970), ``Dag::Rescue`` in ``dag.cpp`` (a rescue file's ``# Created … UTC``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from datetime import datetime
from pathlib import PurePath
from typing import Any, Final, TypeAlias

from metlmon.dagman import DagmanMessage, DagmanMessageKind, DagMetrics, Rescue
from metlmon.eventlog import Event
from metlmon.model.clock import HALF_HOUR, SAME_MOMENT, offset_between

Moment: TypeAlias = tuple[datetime, float]
"""A local time, and the same in seconds since 1970."""

CHANGED_CLOCKS: Final = 3600.0

MOST_SUBMISSIONS: Final = 500
"""Submissions whose local times wait for the other file that states them; older ones go."""


@dataclass(slots=True)
class QueueInterval:
    """A process of DAGMan, or a DAGMan job, from its first to its last line in a file.
    ``starts``: several where a job was started again."""

    starts: list[datetime] = field(default_factory=list)
    end: datetime | None = None


class SubmissionTimes:
    """Local times of the newest submissions of a file, by cluster."""

    def __init__(self) -> None:
        self._times: dict[int, datetime] = {}

    def add(self, cluster: int, time: datetime) -> None:
        """Note a submission; the oldest one noted is dropped beyond a bound."""
        self._times[cluster] = time
        if len(self._times) > MOST_SUBMISSIONS:
            del self._times[next(iter(self._times))]

    def get(self, cluster: int) -> datetime | None:
        """When the cluster was submitted, where that is still known."""
        return self._times.get(cluster)


class OutTimes:
    """Local times in one ``.dagman.out``: DAGMan's starts and ends, and when it wrote each
    rescue file, by the file's name."""

    def __init__(self, lives: Iterable[Any] = (), written: Mapping[str, datetime] = {}) -> None:
        self.lives = [QueueInterval(*life) for life in lives]
        self.written = dict(written)

    def plain(self) -> tuple[list[Any], dict[str, datetime]]:
        """As plain data, which another one can be made of."""
        return [astuple(life) for life in self.lives], dict(self.written)

    def add(self, line: DagmanMessage) -> None:
        """Note a line that is of the DAG as a whole."""
        if line.time is None:
            return
        if line.word is DagmanMessageKind.STARTED:
            self.lives.append(QueueInterval([line.time]))
        elif line.word is DagmanMessageKind.EXITED and self.lives:
            self.lives[-1].end = line.time
        elif line.word is DagmanMessageKind.RESCUE_WRITTEN and line.text:
            self.written[PurePath(line.text).name] = line.time


def note_dagman(jobs: dict[int, QueueInterval], event: Event) -> None:
    """Note an event of a ``.dagman.log`` in ``jobs``, by DAGMan's cluster."""
    span = jobs.setdefault(event.cluster, QueueInterval())
    if event.number == 1:
        span.starts.append(event.time)
    elif event.number in (5, 9):
        span.end = event.time


def of_metrics(
    metrics: DagMetrics, lives: list[QueueInterval], jobs: Mapping[int, QueueInterval]
) -> Iterator[Moment]:
    """Moments of a metrics file that ``.dagman.log`` (``jobs``) or ``.dagman.out`` (``lives``)
    states as well. The file names its DAGMan's cluster; a life is known by how long it
    lasted."""
    name = metrics.dagman_id or ""
    job = jobs.get(int(name)) if name.isdecimal() and len(name) < 19 else None
    if job is not None:
        yield from _of_job(metrics, job)
    life = _life_of(metrics, lives)
    if life is not None:
        yield from _both(life.starts[0], metrics.start)
        yield from _both(life.end, metrics.end)


def _of_job(metrics: DagMetrics, job: QueueInterval) -> Iterator[Moment]:
    """A job that DAGMan was started in again has one metrics file, of its last start."""
    if job.end is None:
        if len(job.starts) == 1:
            yield from _both(job.starts[0], metrics.start)
        return
    starts = [start for start in job.starts if _lasted(start, job.end, metrics)]
    if starts or not job.starts:
        yield from _both(job.end, metrics.end)
        for start in starts[-1:]:
            yield from _both(start, metrics.start)


def _life_of(metrics: DagMetrics, lives: list[QueueInterval]) -> QueueInterval | None:
    """The life that wrote the file: it lies there until the next one has ended, so it is the
    newest that lasted as long as the file says."""
    if len(lives) == 1:
        return lives[0]
    for life in reversed(lives):
        if life.end is not None and _lasted(life.starts[0], life.end, metrics):
            return life
    return None


def _lasted(start: datetime, end: datetime, metrics: DagMetrics) -> bool:
    """Is it as long from ``start`` to ``end`` as the file says, but for changed clocks?"""
    if metrics.start is None or metrics.end is None:
        return False
    off = abs((end - start).total_seconds() - (metrics.end - metrics.start))
    return min(off, abs(off - CHANGED_CLOCKS)) <= SAME_MOMENT


def of_jobstate(
    started: Collection[tuple[float, int | None]], jobs: Mapping[int, QueueInterval]
) -> Iterator[Moment]:
    """Starts that a jobstate log tells of, with DAGMan's cluster, and ``.dagman.log`` as well;
    none of a job that DAGMan was started in more than once."""
    times = Counter(cluster for _, cluster in started)
    for epoch, cluster in started:
        job = jobs.get(cluster) if cluster is not None else None
        if job is not None and len(job.starts) == 1 == times[cluster]:
            yield job.starts[0], epoch


def of_rescues(
    rescues: Iterable[Rescue], written: Mapping[str, datetime], jobs: Mapping[int, QueueInterval]
) -> Iterator[Moment]:
    """Moments of rescue files: the line of ``.dagman.out`` that wrote one (``written``), else
    the end of the DAGMan job that did, where just one offset lets it be one."""
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


def _both(local: datetime | None, epoch: float | None) -> Iterator[Moment]:
    if local is not None and epoch is not None:
        yield local, epoch
