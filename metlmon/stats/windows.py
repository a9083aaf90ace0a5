"""Time windows: the part of the ledger within a month, or between two times.

Durations are clipped to the window; counts belong to the window in which the entry ended. The
windows that partition a period therefore sum to its totals, to the second and to the byte, also
across changes of the UTC offset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from metlmon.errors import InputError
from metlmon.model.states import State
from metlmon.snapshot.records import (
    Execution,
    Job,
    Ledger,
    Transfer,
)
from metlmon.stats.totals import group_by, sum_executions
from metlmon.text.formatting import DAY
from metlmon.text.time_arguments import parse_time_argument

T = TypeVar("T")

MONTHS: Final = tuple(
    """
    January February March April May June July August September October November December
    """.split()
)
"""Independent of the locale, so that reports are reproducible."""


class Unit(StrEnum):
    """The length of the windows of a partition."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


class TimeWindow(Struct, frozen=True):
    """A half-open interval from ``since`` to ``until``; None: unbounded.

    Naive datetimes in the access point's local time, like those of the ledger.
    """

    since: datetime | None = None
    until: datetime | None = None

    @property
    def unbounded(self) -> bool:
        """Whether the window is unbounded on both sides."""
        return self.since is None and self.until is None


ALL: Final = TimeWindow()

SAFE_DISTANCE: Final = timedelta(days=2)
"""Times further apart can be compared directly: no UTC offset changes by more than a day."""


# --- command-line options -------------------------------------------------------------------


def parse_window(
    since: str | None,
    until: str | None,
    month: str | None,
    zone: tzinfo | None = None,
    now: datetime | None = None,
) -> TimeWindow:
    """The window of ``--since``, ``--until`` and ``--month``. Raises InputError.

    ``zone``: the time zone of the logs, if known; ``now``: as-of, from which ``7d`` counts back.
    """
    if month is not None:
        if since is not None or until is not None:
            raise InputError("--month is a window of its own: leave out --since and --until")
        return _month(month)
    window = TimeWindow(
        parse_time_argument("--since", since, zone, lambda: now),
        parse_time_argument("--until", until, zone, lambda: now),
    )
    if window.since is not None and window.until is not None and window.since >= window.until:
        raise InputError(f"--since {since!r} is not before --until {until!r}: nothing is between")
    return window


def _month(text: str) -> TimeWindow:
    try:
        first = datetime.strptime(text.strip(), "%Y-%m")
    except ValueError:
        raise InputError(f"--month {text!r} is not a month; write it as 2025-11") from None
    return TimeWindow(first, _period_end(first, Unit.MONTH))


# --- partitions -----------------------------------------------------------------------------


def partition(first: datetime, last: datetime, unit: Unit) -> tuple[TimeWindow, ...]:
    """The days, weeks (from Monday) or months from ``first`` to ``last``."""
    since = _period_start(first, unit)
    windows = []
    while since <= last and since < datetime.max:
        until = _period_end(since, unit)
        windows.append(TimeWindow(since, until))
        since = until
    return tuple(windows)


def _period_start(moment: datetime, unit: Unit) -> datetime:
    day = moment.date()
    if unit is Unit.WEEK:
        # The first week of the calendar may begin before year 1.
        day = date.fromordinal(max(1, day.toordinal() - day.weekday()))
    elif unit is Unit.MONTH:
        day = day.replace(day=1)
    return datetime.combine(day, time())


def _period_end(begin: datetime, unit: Unit) -> datetime:
    try:
        if unit is Unit.MONTH:
            # 31 days after the first of a month is always in the next one.
            return (begin + timedelta(days=31)).replace(day=1)
        return begin + timedelta(days=7 - begin.weekday() if unit is Unit.WEEK else 1)
    except OverflowError:
        # Damaged logs can contain the last year of the calendar.
        return datetime.max


def round_times(
    first: datetime, last: datetime, seconds: int = 0, months: int = 0
) -> Iterator[datetime]:
    """The multiples of a step of ``seconds`` or ``months`` up to ``last``.

    From the last one before ``first``. Steps of days count from a Monday.
    """
    if seconds:
        midnight = datetime.combine(first.date(), time())
        # Day 1 of the proleptic calendar is a Monday, so that weeks start on Mondays.
        days = (first.toordinal() - 1) % (seconds // DAY) if seconds > DAY else 0
        into_day = (first - midnight).total_seconds() // seconds * seconds if seconds < DAY else 0
        when = midnight + timedelta(seconds=into_day) - timedelta(days=days)
        while when <= last:
            yield when
            when += timedelta(seconds=seconds)
        return
    month = (first.year * 12 + first.month - 1) // months * months
    while datetime.min.year * 12 <= month < datetime.max.year * 12:
        when = datetime(month // 12, month % 12 + 1, 1)
        if when > last:
            return
        yield when
        month += months


def window_text(window: TimeWindow) -> str:
    """``November 2025``, ``2025-11-01 to 2025-11-30``, ``since 2025-11-01 08:00``.

    Dates stand for whole days.
    """
    since, until = window.since, window.until
    if since is None:
        return "all time" if until is None else f"until {_format_time(until)}"
    if until is None:
        return f"since {_format_time(since)}"
    if since.time() != time() or until.time() != time():
        # Next to a time, a date would read as the whole day.
        return f"{_format_moment(since)} to {_format_moment(until)}"
    if since.day == 1 and until == _period_end(since, Unit.MONTH):
        return f"{MONTHS[since.month - 1]} {since.year}"
    last = until - timedelta(days=1)
    return (
        _format_time(since) if last == since else f"{_format_time(since)} to {_format_time(last)}"
    )


def _format_time(moment: datetime) -> str:
    return str(moment.date()) if moment.time() == time() else _format_moment(moment)


def _format_moment(moment: datetime) -> str:
    return moment.isoformat(" ", "seconds" if moment.second else "minutes")


# --- clipping -------------------------------------------------------------------------------


def clip_ledger(ledger: Ledger, window: TimeWindow) -> Ledger:
    """Clip a complete ledger to ``window``.

    Executions and transfers: those that overlap the window, with the seconds (and GPU-seconds)
    inside; ``start`` and ``end`` are unchanged. They are ``counted`` in the window in which they
    ended, or that contains as-of if they are in flight; only there is an execution ``final`` and
    has its bytes, wait and suspended time. Jobs: those in the queue within the window, with the
    holds that began in it, and with their bytes if it contains ``bytes_at``. Epochs: those
    completed in it, unclipped; an epoch without a known end is in no window. Runs: all, with the
    GPU-seconds inside. Other entries without a time are in the window without a start.
    """
    if window.unbounded:
        return ledger
    clipper = WindowClipper(ledger, window)
    executions = tuple(_not_none(map(clipper.execution, ledger.executions)))
    by_run = group_by(executions, lambda entry: entry.key)
    return replace(
        ledger,
        runs=tuple(
            replace(run, hours=sum_executions(by_run.get(run.key, ()), ledger.measure).hours)
            for run in ledger.runs
        ),
        epochs=tuple(
            epoch
            for epoch in ledger.epochs
            if epoch.state is State.COMPLETED
            and epoch.completed is not None
            and clipper.contains(epoch.completed)
        ),
        jobs=tuple(_not_none(map(clipper.job, ledger.jobs))),
        executions=executions,
        transfers=tuple(_not_none(map(clipper.transfer, ledger.transfers))),
    )


def full_seconds(ledger: Ledger, window: TimeWindow, entry: Execution | Transfer) -> float | None:
    """The full duration of an entry of a clipped ledger, also outside the window."""
    end = entry.end or ledger.as_of
    if window.unbounded or entry.start is None or end is None:
        return entry.seconds
    return ledger.seconds_between(entry.start, end)


def _not_none(entries: Iterable[T | None]) -> Iterable[T]:
    return (entry for entry in entries if entry is not None)


class WindowClipper:
    """Clips the entries of one ledger to one window.

    Times are never compared directly, since those of the repeated hour are ambiguous. Everything
    derives from elapsed seconds, clamped to the duration of an entry, so that adjacent windows
    sum up whatever the time zone.
    """

    def __init__(self, ledger: Ledger, window: TimeWindow) -> None:
        self.between = ledger.seconds_between
        self.as_of = ledger.as_of
        self.since, self.until = window.since, window.until

    def contains(self, moment: datetime | None) -> bool:
        """Whether ``moment`` is in the window; None is in a window without a start."""
        if moment is None:
            return self.since is None
        return self._before(moment, self.until) and not self._before(moment, self.since, False)

    def _before(self, moment: datetime, edge: datetime | None, default: bool = True) -> bool:
        return default if edge is None else self.between(moment, edge) > 0

    def seconds(self, start: datetime, whole: float) -> float:
        """The seconds inside the window of an entry that lasts ``whole`` seconds from ``start``."""
        until_end = whole if self.until is None else min(whole, self.between(start, self.until))
        return until_end - (
            0.0 if self.since is None else min(whole, self.between(start, self.since))
        )

    def _is_far_outside(self, start: datetime | None, end: datetime | None) -> bool:
        """Whether an entry is so far outside that no UTC offset matters; fast."""
        if start is None or end is None:
            return False
        return (self.until is not None and start > _shifted(self.until, SAFE_DISTANCE)) or (
            self.since is not None and end < _shifted(self.since, -SAFE_DISTANCE)
        )

    def execution(self, entry: Execution) -> Execution | None:
        if self._is_far_outside(entry.start, entry.end or self.as_of):
            return None
        counted = self.contains(entry.end or self.as_of)
        seconds = self.seconds(entry.start, entry.seconds)
        if not counted and not seconds:
            return None
        clipped_entry = replace(
            entry,
            seconds=seconds,
            stored=self.seconds(entry.start, entry.stored) if entry.stored else 0.0,
            counted=counted and entry.counted,
        )
        if counted:
            return clipped_entry
        return replace(
            clipped_entry,
            final=False,
            suspended=0.0,
            wait=None,
            transfer=None,
            bytes_sent=None,
            bytes_received=None,
        )

    def transfer(self, entry: Transfer) -> Transfer | None:
        if self._is_far_outside(entry.start, entry.end):
            return None
        in_flight = entry.outcome == "in-flight"
        counted = self.contains(entry.end or (self.as_of if in_flight else entry.start))
        if entry.start is None or entry.seconds is None:
            return replace(entry, counted=entry.counted) if counted else None
        seconds = self.seconds(entry.start, entry.seconds)
        if not counted and not seconds:
            return None
        return replace(entry, seconds=seconds, counted=counted and entry.counted)

    def job(self, entry: Job) -> Job | None:
        start = entry.submitted or (entry.states[0][0] if entry.states else None)
        after_window = start is not None and not self._before(start, self.until)
        before_window = entry.ended is not None and self._before(entry.ended, self.since, False)
        has_bytes = self.contains(entry.bytes_at)
        holds = tuple(hold for hold in entry.holds if self.contains(hold.start))
        if (after_window or before_window) and not has_bytes and not holds:
            return None
        return replace(
            entry,
            holds=holds,
            bytes_sent=entry.bytes_sent if has_bytes else None,
            bytes_received=entry.bytes_received if has_bytes else None,
        )


def _shifted(moment: datetime, delta: timedelta) -> datetime:
    try:
        return moment + delta
    except OverflowError:
        return datetime.max if delta > timedelta() else datetime.min


def distribute_seconds(
    ledger: Ledger, start: datetime, seconds: float, windows: Sequence[TimeWindow]
) -> Iterable[tuple[int, float]]:
    """Distribute ``seconds`` from ``start`` over windows: (index, seconds) pairs."""
    starts = [window.since or datetime.min for window in windows]
    # Start one window earlier: in the repeated hour local times are not in order.
    for index in range(max(0, bisect_right(starts, start) - 2), len(windows)):
        clipper = WindowClipper(ledger, windows[index])
        seconds_inside = clipper.seconds(start, seconds)
        if seconds_inside:
            yield index, seconds_inside
        until = windows[index].until
        if until is not None and ledger.seconds_between(start, until) >= seconds:
            return
