"""Windows of time: what of the ledger lies in a month, or between two moments.

Whatever lasts is in a window with the seconds that lie inside; whatever is counted, in the
one window in which it ended. So the windows that a time is cut into sum to the whole, to the
second and to the byte, whatever the zone's two odd hours are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from typing import Final, TypeVar

from metlmon.frozen import frozen
from metlmon.live.errors import InputError
from metlmon.live.time_argument import asked_moment
from metlmon.model.states import State
from metlmon.snapshot.ledger import (
    EpochEntry,
    ExecutionEntry,
    JobEntry,
    Ledger,
    RunEntry,
    TransferEntry,
)
from metlmon.stats.totals import tally

T = TypeVar("T")

MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
"""Not by the locale: a report reads the same wherever it is made."""


class Unit(StrEnum):
    """What a time is cut into."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@frozen
class TimeWindow:
    """From ``since`` up to ``until``, which is not in it; None: without that end. Naive
    datetimes of the access point's local time, like those of the ledger."""

    since: datetime | None = None
    until: datetime | None = None

    @property
    def whole(self) -> bool:
        """It leaves nothing out."""
        return self.since is None and self.until is None


ALL: Final = TimeWindow()

FAR: Final = timedelta(days=2)
"""Stamps that are further apart stand in the order of time: no zone moves by more than a day."""


# --- what is asked for ----------------------------------------------------------------------


def asked_window(
    since: str | None, until: str | None, month: str | None, zone: tzinfo | None = None
) -> TimeWindow:
    """The window of ``--since``, ``--until`` and ``--month``. ``zone``: the logs' own, where it
    is known. Raises InputError."""
    if month is not None:
        if since is not None or until is not None:
            raise InputError("--month is a window of its own: leave out --since and --until")
        return _month(month)
    window = TimeWindow(asked_moment("--since", since, zone), asked_moment("--until", until, zone))
    if window.since is not None and window.until is not None and window.since >= window.until:
        raise InputError(f"--since {since!r} is not before --until {until!r}: nothing is between")
    return window


def _month(text: str) -> TimeWindow:
    try:
        first = datetime.strptime(text.strip(), "%Y-%m")
    except ValueError:
        raise InputError(f"--month {text!r} is no month; write it as 2025-11") from None
    return TimeWindow(first, _after(first, Unit.MONTH))


# --- cutting a time into windows ------------------------------------------------------------


def cut(first: datetime, last: datetime, unit: Unit) -> tuple[TimeWindow, ...]:
    """The days, weeks (from Monday) or months from that of ``first`` to that of ``last``, both
    in it."""
    since = _begin(first, unit)
    windows = []
    while since <= last and since < datetime.max:
        until = _after(since, unit)
        windows.append(TimeWindow(since, until))
        since = until
    return tuple(windows)


def _begin(moment: datetime, unit: Unit) -> datetime:
    day = moment.date()
    if unit is Unit.WEEK:
        # The calendar's first week may begin before the calendar does.
        day = date.fromordinal(max(1, day.toordinal() - day.weekday()))
    elif unit is Unit.MONTH:
        day = day.replace(day=1)
    return datetime.combine(day, time())


def _after(begin: datetime, unit: Unit) -> datetime:
    try:
        if unit is Unit.MONTH:
            # 31 days after the first of a month is always in the next one.
            return (begin + timedelta(days=31)).replace(day=1)
        return begin + timedelta(days=7 - begin.weekday() if unit is Unit.WEEK else 1)
    except OverflowError:
        # The calendar ends: a damaged log can say so.
        return datetime.max


def told_window(window: TimeWindow) -> str:
    """``November 2025``, ``2025-11-01 to 2025-11-30``, ``since 2025-11-01 08:00``: days that are
    wholly in it, or moments."""
    since, until = window.since, window.until
    if since is None:
        return "all time" if until is None else f"until {_told(until)}"
    if until is None:
        return f"since {_told(since)}"
    if since.time() != time() or until.time() != time():
        # Beside a moment, a day would be read as the whole of it.
        return f"{_moment_told(since)} to {_moment_told(until)}"
    if since.day == 1 and until == _after(since, Unit.MONTH):
        return f"{MONTHS[since.month - 1]} {since.year}"
    last = until - timedelta(days=1)
    return _told(since) if last == since else f"{_told(since)} to {_told(last)}"


def _told(moment: datetime) -> str:
    return str(moment.date()) if moment.time() == time() else _moment_told(moment)


def _moment_told(moment: datetime) -> str:
    return moment.isoformat(" ", "seconds" if moment.second else "minutes")


# --- what lies in one -----------------------------------------------------------------------


def clipped(ledger: Ledger, window: TimeWindow) -> Ledger:
    """What of ``ledger``, a whole one, lies in ``window``.

    Executions and transfers: those that reach into it, with the seconds (and GPU-seconds)
    inside; ``start`` and ``end`` stay what they are. They are ``counted`` in the window that
    they ended in, in flight the one that as-of is in; there alone an execution is ``final`` and
    has its bytes, its wait and its suspended time. Jobs: those that were in the queue then, with
    the holds that began then, and with their bytes in the window that ``bytes_at`` is in.
    Epochs: those completed in it, whole; one that ended at no known time is in no window. Runs:
    all, with the GPU-seconds inside. Whatever else has no moment at all is in a window without a
    beginning.
    """
    if window.whole:
        return ledger
    inside = _Inside(ledger, window)
    executions = tuple(_there(map(inside.execution, ledger.executions)))
    return replace(
        ledger,
        runs=tuple(_runs(ledger.runs, executions)),
        epochs=tuple(epoch for epoch in ledger.epochs if inside.has_epoch(epoch)),
        jobs=tuple(_there(map(inside.job, ledger.jobs))),
        executions=executions,
        transfers=tuple(_there(map(inside.transfer, ledger.transfers))),
    )


def whole_seconds(
    ledger: Ledger, window: TimeWindow, entry: ExecutionEntry | TransferEntry
) -> float | None:
    """How long an entry of a clipped ledger took as a whole, also where only a part of it is in
    the window."""
    end = entry.end or ledger.as_of
    if window.whole or entry.start is None or end is None:
        return entry.seconds
    return ledger.between(entry.start, end)


def _there(entries: Iterable[T | None]) -> Iterable[T]:
    return (entry for entry in entries if entry is not None)


class _Inside:
    """One ledger's entries against one window.

    Nothing here compares stamps: a stamp of the hour that exists twice does not say which it
    is compared with. All is told from elapsed seconds, clamped to an entry's own length: what
    lies before one cut and before the next differ by what lies between, whatever the zone.
    """

    def __init__(self, ledger: Ledger, window: TimeWindow) -> None:
        self.between = ledger.between
        self.as_of = ledger.as_of
        self.since, self.until = window.since, window.until

    def has(self, moment: datetime | None) -> bool:
        """Is ``moment`` in the window? Without a moment: in the one without a beginning."""
        if moment is None:
            return self.since is None
        return self._before(moment, self.until) and not self._before(moment, self.since, False)

    def _before(self, moment: datetime, edge: datetime | None, without: bool = True) -> bool:
        return without if edge is None else self.between(moment, edge) > 0

    def seconds(self, start: datetime, whole: float) -> float:
        """Of an entry that begins at ``start`` and lasts ``whole`` seconds, those inside."""
        upto = whole if self.until is None else min(whole, self.between(start, self.until))
        return upto - (0.0 if self.since is None else min(whole, self.between(start, self.since)))

    def _far(self, start: datetime | None, end: datetime | None) -> bool:
        """So far outside that no zone's offset matters: told without asking the clock."""
        if start is None or end is None:
            return False
        return (self.until is not None and start > _shifted(self.until, FAR)) or (
            self.since is not None and end < _shifted(self.since, -FAR)
        )

    def execution(self, entry: ExecutionEntry) -> ExecutionEntry | None:
        if self._far(entry.start, entry.end or self.as_of):
            return None
        counted = self.has(entry.end or self.as_of)
        seconds = self.seconds(entry.start, entry.seconds)
        if not counted and not seconds:
            return None
        part = replace(
            entry,
            seconds=seconds,
            gpu_seconds=None if entry.weight is None else seconds * entry.weight,
            counted=counted and entry.counted,
        )
        if counted:
            return part
        return replace(
            part,
            final=False,
            suspended=0.0,
            wait=None,
            transfer=None,
            bytes_sent=None,
            bytes_received=None,
        )

    def transfer(self, entry: TransferEntry) -> TransferEntry | None:
        if self._far(entry.start, entry.end):
            return None
        in_flight = entry.outcome == "in-flight"
        counted = self.has(entry.end or (self.as_of if in_flight else entry.start))
        if entry.start is None or entry.seconds is None:
            return replace(entry, counted=entry.counted) if counted else None
        seconds = self.seconds(entry.start, entry.seconds)
        if not counted and not seconds:
            return None
        return replace(entry, seconds=seconds, counted=counted and entry.counted)

    def job(self, entry: JobEntry) -> JobEntry | None:
        begun = entry.submitted or (entry.states[0][0] if entry.states else None)
        later = begun is not None and not self._before(begun, self.until)
        earlier = entry.ended is not None and self._before(entry.ended, self.since, False)
        booked = self.has(entry.bytes_at)
        holds = tuple(hold for hold in entry.holds if self.has(hold.start))
        if (later or earlier) and not booked and not holds:
            return None
        return replace(
            entry,
            holds=holds,
            bytes_sent=entry.bytes_sent if booked else None,
            bytes_received=entry.bytes_received if booked else None,
        )

    def has_epoch(self, epoch: EpochEntry) -> bool:
        known = epoch.completed is not None
        return known and epoch.state is State.COMPLETED and self.has(epoch.completed)


def _shifted(moment: datetime, by: timedelta) -> datetime:
    try:
        return moment + by
    except OverflowError:
        return datetime.max if by > timedelta() else datetime.min


def _runs(runs: Iterable[RunEntry], executions: Iterable[ExecutionEntry]) -> Iterable[RunEntry]:
    own: dict[str, list[ExecutionEntry]] = {}
    for entry in executions:
        if entry.run is not None:
            own.setdefault(entry.run, []).append(entry)
    for run in runs:
        spent = tally(own.get(run.run, ()))
        yield replace(run, good=spent.good, bad=spent.bad, in_flight=spent.in_flight)


def spread(
    ledger: Ledger, start: datetime, seconds: float, windows: Sequence[TimeWindow]
) -> Iterable[tuple[int, float]]:
    """What lasts ``seconds`` from ``start``, over adjoining ``windows``: the place of each one
    that it reaches into, and the seconds there."""
    begins = [window.since or datetime.min for window in windows]
    # One earlier: in the hour that exists twice, stamps do not stand in the order of time.
    for at in range(max(0, bisect_right(begins, start) - 2), len(windows)):
        inside = _Inside(ledger, windows[at])
        part = inside.seconds(start, seconds)
        if part:
            yield at, part
        until = windows[at].until
        if until is not None and ledger.between(start, until) >= seconds:
            return
