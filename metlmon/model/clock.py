"""Timestamps without a zone: conversions, differences, and the offset from UTC.

Timestamps are in the access point's local time. Clock changes, twice a year, are accounted for
if a zone is set, or if moments are known in UTC as well. DAGMan's files give such moments; all
of a file is evidence, including what was written after ``--as-of``. Sources followed:
``DagmanMetrics`` in ``dagman_metrics.cpp`` (times in seconds since 1970), ``Dag::Rescue`` in
``dag.cpp`` (a rescue file's ``# Created … UTC``).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import PurePath
from typing import Final, TypeAlias

from msgspec import Struct

from metlmon.dagman.records import DagmanMessage, DagMetrics, MessageKind, Rescue
from metlmon.eventlog.events import Event, Submit, Terminated

QUARTER_HOUR: Final = 900
"""Offsets of time zones are multiples of this many seconds: observations are rounded to it, which
removes the seconds between two lines about the same moment."""

HALF_HOUR: Final = 1800
"""Seconds to which hints are rounded."""

SAME_MOMENT: Final = 60.0
"""Maximum seconds between two lines about the same moment. A job's end that is logged later, after
a long output transfer, is not a hint; two such in a row with equal offsets are improbable."""

WEST, EAST = timedelta(hours=-12), timedelta(hours=14)
"""Limits of the UTC offsets of all time zones."""

ONE_MONTH: Final = timedelta(days=31)
"""Limit of intervals whose ends are compared: two clock changes in a longer one may cancel out."""

FOLD_STEP: Final = timedelta(minutes=30)
"""A larger step back within a repeated hour of one log starts its second pass; smaller ones are
differences between two writers' clocks."""


class Clock:
    """Conversions and differences of the access point's timestamps.

    ``zone`` (``--tz`` or configuration) takes precedence. Without it, the nearest moment passed
    to :meth:`observe` determines the offset. Without either, local times are subtracted.
    ``machine_time``: the local time of the machine that has the files, naive, at a moment in
    seconds since 1970.
    """

    def __init__(self, zone: tzinfo | None = None) -> None:
        self.zone = zone
        self.machine_time: Callable[[float], datetime] = datetime.fromtimestamp
        # A zone with one offset for all times returns it for None.
        self.zone_varies = zone is not None and zone.utcoffset(None) is None
        """Whether the zone that was set has several offsets."""
        self._seen: list[tuple[datetime, int]] = []
        self._saw_utc = self._saw_local = False
        self._hinted: int | None = None
        self._steady_interval: tuple[datetime, datetime] | None = None
        self._varies = False

    @property
    def utc_only(self) -> bool:
        """Whether all timestamps have been in UTC so far."""
        return self._saw_utc and not self._saw_local

    @property
    def has_offset(self) -> bool:
        """Whether local time can be converted to UTC."""
        return self.zone is not None or bool(self._seen)

    def observe(self, local: datetime, epoch: float) -> bool:
        """Add a moment: local (naive), in seconds since 1970; return whether any time changes."""
        offset = offset_between(local, epoch, QUARTER_HOUR, early=SAME_MOMENT)
        if offset is None:
            return False
        changed = self._nearest(local) != offset
        if changed or not self._seen[0][0] <= local <= self._seen[-1][0]:
            # Replace an observation of the same local time: the file was corrected.
            self._seen = [seen for seen in self._seen if seen[0] != local]
            insort(self._seen, (local, offset))
            self._seen = _interval_ends(self._seen)
            self._varies = len({offset for _, offset in self._seen}) > 1
        return changed

    def hint(self, local: datetime, epoch: float) -> bool:
        """Add the ``local`` time of an event, and the end of its job at ``epoch``.

        Both are in the same minute, apart from the output transfer. Observed only when two
        such hints in a row agree; returns the result of :meth:`observe`.
        """
        offset = offset_between(local, epoch, HALF_HOUR)
        if offset is None:
            return False
        agrees, self._hinted = offset == self._hinted, offset
        return agrees and self.observe(local, local.replace(tzinfo=UTC).timestamp() - offset)

    def contradiction(self) -> tuple[datetime, timedelta] | None:
        """The last observation (local time, offset), if the zone does not agree with it."""
        if self.zone is None or not self._seen:
            return None
        local, seconds = self._seen[-1]
        observed = timedelta(seconds=seconds)
        offsets = {local.replace(tzinfo=self.zone, fold=fold).utcoffset() for fold in (0, 1)}
        return None if observed in offsets else (local, observed)

    def _nearest(self, local: datetime) -> int | None:
        if not self._seen:
            return None
        i = bisect_left(self._seen, (local, 0))
        neighbours = self._seen[max(0, i - 1) : i + 1]
        return min(neighbours, key=lambda seen: abs(seen[0] - local))[1]

    def to_epoch(self, stamp: datetime) -> float | None:
        """A timestamp in seconds since 1970; None without a known offset."""
        moment = self._utc(stamp)
        return None if moment is None else moment.timestamp()

    def _utc(self, stamp: datetime) -> datetime | None:
        try:
            if stamp.tzinfo is not None:
                return stamp.astimezone(UTC)
            if self.zone is not None:
                return stamp.replace(tzinfo=self.zone).astimezone(UTC)
            offset = self._nearest(stamp)
            return None if offset is None else stamp.replace(tzinfo=UTC) - timedelta(seconds=offset)
        except OverflowError:
            # Year 1 or 9999, in a damaged log: the result is outside the calendar.
            return None

    def to_local(self, epoch: float) -> datetime | None:
        """A moment in seconds since 1970 as local time, naive; None without an offset."""
        try:
            moment = datetime.fromtimestamp(epoch, UTC)
            if self.zone is not None:
                return moment.astimezone(self.zone).replace(tzinfo=None)
            moment = moment.replace(tzinfo=None)
            if self.utc_only:
                return moment
            offset = self._nearest(moment)
            return None if offset is None else moment + timedelta(seconds=offset)
        except (OverflowError, ValueError, OSError):
            return None

    def local_or_machine_time(self, epoch: float) -> datetime | None:
        """Like :meth:`to_local`, but without a known offset as the machine's local time.

        None for a moment outside the calendar.
        """
        local = self.to_local(epoch)
        if local is None:
            with suppress(OverflowError, ValueError, OSError):
                return self.machine_time(epoch)
        return local

    def is_after(self, epoch: float, stamp: datetime) -> bool | None:
        """Whether a moment is later than a naive timestamp; None without a known offset."""
        local = self.to_local(epoch)
        if local is not None:
            return local > stamp
        try:
            moment = datetime.fromtimestamp(epoch, UTC).replace(tzinfo=None)
            return None if moment + WEST <= stamp < moment + EAST else moment > stamp
        except (OverflowError, ValueError, OSError):
            return None

    def naive(self, stamp: datetime) -> datetime:
        """A timestamp without zone: converted to the zone that was set, else as logged."""
        if stamp.tzinfo is None:
            self._saw_local = True
            return stamp
        self._saw_utc = True
        if self.zone is not None:
            with suppress(OverflowError):
                return stamp.astimezone(self.zone).replace(tzinfo=None)
        return stamp.replace(tzinfo=None)

    def with_offset(self, stamp: datetime) -> datetime:
        """A timestamp for output: with its offset if a zone was set or logged."""
        if stamp.tzinfo is not None:
            return stamp
        if self.zone is not None:
            return stamp.replace(tzinfo=self.zone)
        return stamp.replace(tzinfo=UTC) if self.utc_only else stamp

    def seconds(self, start: datetime, end: datetime) -> float:
        """Seconds from ``start`` to ``end``, never negative: clocks of two writers differ."""
        # A single offset does not change a difference.
        if self._varies or self.zone_varies:
            a, b = self._utc(start), self._utc(end)
            if a is not None and b is not None:
                return max(0.0, (b - a).total_seconds())
        return max(0.0, (end - start).total_seconds())

    def is_ambiguous(self, stamp: datetime) -> bool:
        """Whether the timestamp is in a repeated hour."""
        if not self.zone_varies or stamp.tzinfo is not None:
            return False
        if (
            self._steady_interval is not None
            and self._steady_interval[0] <= stamp <= self._steady_interval[1]
        ):
            return False
        first = stamp.replace(tzinfo=self.zone, fold=0).utcoffset()
        return first != stamp.replace(tzinfo=self.zone, fold=1).utcoffset()

    def is_steady(self, first: datetime, last: datetime) -> bool:
        """Whether the zone that was set has no clock change between these timestamps."""
        if not self.zone_varies:
            return True
        first, last = self.naive(first), self.naive(last)
        if last - first > ONE_MONTH or self.is_ambiguous(first) or self.is_ambiguous(last):
            return False
        start, end = first.replace(tzinfo=self.zone), last.replace(tzinfo=self.zone)
        if start.utcoffset() != end.utcoffset():
            return False
        self._steady_interval = (first, last)
        return True

    def with_fold(self, stamp: datetime, previous: datetime | None) -> datetime:
        """Set the ``fold`` of a timestamp; ``previous``: the one before it in the log."""
        if previous is None or not self.is_ambiguous(stamp):
            return stamp
        second = previous - stamp > FOLD_STEP or (
            previous.fold == 1 and self.is_ambiguous(previous)
        )
        return stamp.replace(fold=1) if second else stamp


def offset_between(local: datetime, epoch: float, step: int, early: float = 0.0) -> int | None:
    """The UTC offset, a multiple of ``step`` seconds, of ``local`` from ``epoch``.

    ``local`` (naive) may be up to :data:`SAME_MOMENT` later than ``epoch``, or up to ``early``
    seconds earlier. None if no time zone has such an offset.
    """
    try:
        moment = datetime.fromtimestamp(epoch, UTC).replace(tzinfo=None)
    except (OverflowError, ValueError, OSError):
        return None
    seconds = (local.replace(tzinfo=None) - moment).total_seconds()
    offset = int((seconds + early) // step) * step
    possible = WEST.total_seconds() <= offset <= EAST.total_seconds()
    return offset if possible and seconds - offset <= SAME_MOMENT else None


def _interval_ends(seen: list[tuple[datetime, int]]) -> list[tuple[datetime, int]]:
    """Drop observations between two with the same offset, which are redundant.

    A status file yields an observation every minute for months.
    """
    last = len(seen) - 1
    return [
        seen[i]
        for i in range(len(seen))
        if i in (0, last) or not seen[i - 1][1] == seen[i][1] == seen[i + 1][1]
    ]


# --- evidence in DAGMan's files ---------------------------------------------------------

ClockObservation: TypeAlias = tuple[datetime, float]
"""A local time, and the same moment in seconds since 1970."""

DST_STEP: Final = 3600.0
"""Seconds by which daylight saving time changes clocks."""

MAX_SUBMISSIONS: Final = 500
"""Submissions whose local times are stored until another file gives them in UTC."""


class DagmanInterval(Struct):
    """A process of DAGMan, from its first to its last line in a file with local times."""

    start: datetime
    cluster: int | None = None
    end: datetime | None = None


class SubmissionTimes(dict[int, datetime]):
    """Local times of the newest submissions of a file, by cluster."""

    def add(self, cluster: int, time: datetime) -> None:
        """Store a submission; the oldest one is dropped beyond a bound."""
        self[cluster] = time
        if len(self) > MAX_SUBMISSIONS:
            del self[next(iter(self))]


class OutTimes:
    """Local times in one ``.dagman.out``.

    ``runs``: DAGMan's starts and ends. ``written``: when it wrote each rescue file, by name.
    """

    def __init__(self) -> None:
        self.runs: list[DagmanInterval] = []
        self.written: dict[str, datetime] = {}

    def add(self, line: DagmanMessage) -> None:
        """Store the time of a message about the DAG as a whole."""
        if line.time is None:
            return
        if line.kind is MessageKind.STARTED:
            self.runs.append(DagmanInterval(line.time))
        elif line.kind is MessageKind.EXITED and self.runs:
            self.runs[-1].end = line.time
        elif line.kind is MessageKind.RESCUE_WRITTEN and line.text:
            self.written[PurePath(line.text).name] = line.time


def note_dagman_event(jobs: list[DagmanInterval], event: Event) -> None:
    """Store an event of a ``.dagman.log``; a restart of the schedd repeats the 001."""
    if event.number == 1:
        jobs.append(DagmanInterval(event.time, event.cluster))
    elif event.number in (5, 9):
        for job in jobs:
            if job.cluster == event.cluster:
                job.end = event.time


def metrics_observations(
    metrics: DagMetrics, intervals: Sequence[DagmanInterval]
) -> Iterator[ClockObservation]:
    """Yield moments of a metrics file with local times of the newest matching interval.

    An interval matches by DAGMan's cluster, if known, and by its duration, give or take a clock
    change; a single one without an end matches, too. The file stays until the next run has ended.
    """
    clusters = (None, metrics_cluster(metrics))
    own = [interval for interval in intervals if interval.cluster in clusters]
    start, end = metrics.start, metrics.end
    if len(own) == 1 and own[0].end is None and start is not None:
        yield own[0].start, start
    for interval in reversed(own):
        if interval.end is None or start is None or end is None:
            continue
        difference = abs((interval.end - interval.start).total_seconds() - (end - start))
        if min(difference, abs(difference - DST_STEP)) <= SAME_MOMENT:
            yield interval.start, start
            yield interval.end, end
            return


def metrics_cluster(metrics: DagMetrics) -> int | None:
    """The cluster of the DAGMan that wrote the metrics."""
    name = metrics.dagman_id or ""
    return int(name) if name.isdecimal() else None


def jobstate_observations(
    started: Sequence[tuple[float, int | None]], jobs: Sequence[DagmanInterval]
) -> Iterator[ClockObservation]:
    """Yield starts that both a jobstate log and ``.dagman.log`` have.

    ``started``: time and DAGMan's cluster. Jobs with more than one start are skipped.
    """
    times = Counter(cluster for _, cluster in started)
    starts = Counter(job.cluster for job in jobs)
    start_of = {job.cluster: job.start for job in jobs}
    for epoch, cluster in started:
        if cluster is not None and starts[cluster] == 1 == times[cluster]:
            yield start_of[cluster], epoch


def rescue_observations(
    rescues: Iterable[Rescue], written: Mapping[str, datetime], jobs: Iterable[DagmanInterval]
) -> Iterator[ClockObservation]:
    """Yield creation times of rescue files with their local times.

    The local time is that of the line in ``.dagman.out`` (``written``), else the end of a
    DAGMan job, if exactly one UTC offset is possible.
    """
    ends = [job.end for job in jobs if job.end is not None]
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

    def observe(self, observations: Iterable[ClockObservation]) -> None:
        """Pass moments of DAGMan's files to the clock."""
        for local, epoch in observations:
            if self._clock.observe(local, epoch):
                self._on_change()

    def read_end(self, event: Event) -> None:
        """Read a 005, which before HTCondor 24.7 has the end of the job in UTC."""
        detail = event.detail
        if not isinstance(detail, Terminated) or detail.ended_utc is None or self._clock.zone:
            return
        if self._clock.hint(event.time, detail.ended_utc.timestamp()):
            self._on_change()

    def read_submission(self, local: datetime, epoch: float | None) -> None:
        """Read a 000, with its time in the jobstate log, if any."""
        if epoch is not None and self._clock.zone is None:
            self.observe([(local, epoch)])

    def read_jobstate(
        self, epochs: Mapping[int, float], submitted: Callable[[int], datetime | None]
    ) -> None:
        """Read submissions of a jobstate log, by cluster.

        ``submitted``: returns the submission time of a cluster, by its events up to the cut.
        """
        for cluster, epoch in epochs.items():
            local = submitted(cluster) or self._later_submissions.get(cluster)
            if local is not None:
                self.read_submission(local, epoch)

    def note_later(self, time: datetime) -> None:
        """Record the time of an event after the cut."""
        if self.first_later is None or time < self.first_later:
            self.first_later = time

    def read_later(
        self, events: Iterable[Event], submit_epoch: Callable[[int], float | None]
    ) -> None:
        """Read events after the cut, which are used for nothing else.

        ``submit_epoch``: returns the submission time of a cluster in the jobstate log.
        """
        for event in events:
            self.note_later(event.time)
            if isinstance(event.detail, Submit):
                self._later_submissions.add(event.cluster, event.time)
                self.read_submission(event.time, submit_epoch(event.cluster))
            else:
                self.read_end(event)
