"""Usage for the report: groups of :mod:`metlmon.stats.usage`, also over time.

Computed from the ledger alone, for all time or one window. Units are seconds and GPU-seconds; None
means unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from statistics import median
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from metlmon.model.states import Outcome, State
from metlmon.snapshot.records import Execution, Ledger
from metlmon.stats.causes import causes_of
from metlmon.stats.pool_profiles import profiles_in_window
from metlmon.stats.resources import resource_use
from metlmon.stats.totals import group_by
from metlmon.stats.usage import GroupUsage, UsageGroups, distribution
from metlmon.stats.variance import epoch_variation
from metlmon.stats.windows import ALL, TimeWindow, Unit, distribute_seconds, partition
from metlmon.text.formatting import gpu_models, gpu_short

K = TypeVar("K")

LONGEST_SERIES: Final = timedelta(days=50 * 365)
"""Maximum length of a series: times further apart come from damaged lines."""

WHISKER: Final = 1.5
"""Whiskers extend to the last value within this many interquartile ranges of the box (Tukey)."""


class BoxPlot(Struct, frozen=True):
    """A box plot of durations in seconds: quartiles, whiskers, outliers."""

    n: int
    lower_whisker: float
    lower_quartile: float
    median: float
    upper_quartile: float
    upper_whisker: float
    outliers: tuple[float, ...] = ()

    @property
    def minimum(self) -> float:
        return min((self.lower_whisker, *self.outliers))

    @property
    def maximum(self) -> float:
        return max((self.upper_whisker, *self.outliers))


class TransferGroup(Struct, frozen=True):
    """Transfers of one direction and outcome.

    ``timed``: those with a logged start; ``seconds``: theirs, within the window. ``median`` and
    ``longest`` refer to full durations.
    """

    direction: str
    outcome: str
    count: int
    timed: int
    seconds: float
    median: float | None
    longest: float | None
    queued_seconds: float


class UsageSeries(Struct, frozen=True):
    """Epochs completed, and GPU-seconds by kind and by site, between adjacent ``edges``."""

    unit: Unit
    edges: tuple[datetime, ...]
    epochs: tuple[int, ...]
    kinds: Mapping[str, tuple[float, ...]]
    sites: Mapping[str | None, tuple[float, ...]]


class ReportUsage:
    """Usage of a complete ``ledger`` in ``window``; ``clipped``: the clipped ledger.

    ``epochs``: distinct completed epochs. ``unlocated``: those without a successful execution in
    the logs (marked done, or inferred); ``unlogged``: those without any execution. ``undated``:
    completed epochs of the complete ledger without a known end, which are in no window.
    ``repeated``: successful executions that do not count for an epoch, since it was trained again,
    or by another DAG, too. ``gpu_names``: GPU models as logged, and as the screens and the report
    name them. ``hidden``: epochs whose successful execution is shorter than half of their longest
    one. ``completing_executions``: those that completed an epoch, with their full durations;
    ``epoch_times``: these durations, sorted, and ``boxes_by_*`` as box plots; ``epochs_at``: their
    number by site and GPU model. ``periods``: the total in each period of ``period``.
    ``without_run``: that of jobs without a run, if there are any.
    """

    def __init__(self, ledger: Ledger, window: TimeWindow = ALL) -> None:
        groups = UsageGroups(ledger, window)
        executions, epochs, by_run = groups.executions, groups.epochs, groups.by_run()
        completing = [e for e in executions if e.final]
        counted = [e for e in executions if e.counted]
        located = {(e.key, e.epoch) for e in completing if e.counted and e.key is not None}
        done = {(epoch.key, epoch.epoch) for epoch in epochs}
        span = _time_span(ledger, window)
        self.window, self.ledger, self.clipped = window, ledger, groups.clipped
        self.total = groups.total()
        self.epochs = len(epochs)
        self.unlocated = len(done - located)
        self.unlogged = sum(not epoch.attempts for epoch in epochs)
        self.undated = sum(
            epoch.counts and epoch.state is State.COMPLETED and epoch.completed is None
            for epoch in ledger.epochs
        )
        self.repeated = sum(e.counted for e in completing) - len(done & located)
        self.hidden = sum(epoch.hidden for epoch in epochs)
        logged = dict.fromkeys(e.gpu for e in ledger.executions if e.gpu)
        self.gpu_names = {each: name for each, name in gpu_models(logged).items() if each}
        self.gpus = _used(groups.by_gpu(self.gpu_model))
        self.sites = _used(groups.by_site(), moved=True)
        self.epochs_at = Counter((e.site, self.gpu_model(e.gpu)) for e in completing)
        self.runs = [
            (run, by_run.get(run.key) or groups.usage(run.key, (), ()))
            for run in groups.clipped.runs
        ]
        self.labels = _used(groups.by_label())
        self.profiles = profiles_in_window(ledger, window)
        self.resources = resource_use(ledger, "site", window, ledger.measure)
        self.variation = epoch_variation(ledger, window)
        self.period = _unit(span, days=10, weeks=60)
        self.periods = tuple(
            (part, UsageGroups(ledger, part).total())
            for part in _windows(span, window, self.period)
        )
        self.transfer_groups = list(_transfer_groups(groups))
        self.causes = causes_of(executions, ledger.measure, key=_cause_label)
        self.series = _series(ledger, window, groups, span)
        self.completing_executions = [(e, groups.seconds(e) or 0.0) for e in completing]
        self.boxes_by_gpu = epoch_boxes(self, lambda e: self.gpu_model(e.gpu))
        self.boxes_by_site = epoch_boxes(self, lambda e: e.site)
        self.epoch_times = sorted(seconds for _, seconds in self.completing_executions)
        self.waits = sorted(e.wait for e in counted if e.wait is not None)
        self.without_run = by_run.get(None)
        self.uncounted_gpus = sum(ledger.measure.weight(e) is None for e in counted)
        self.uncertain = sum(e.uncertain for e in counted)
        self.jobs = [job for job in groups.clipped.jobs if not job.at_access_point]

    def gpu_model(self, logged: str | None) -> str | None:
        """The short name of a GPU model, longer if another has the same; None if unknown."""
        return (self.gpu_names.get(logged) or gpu_short(logged)) if logged else None


def _used(groups: Iterable[GroupUsage], moved: bool = False) -> tuple[GroupUsage, ...]:
    """The groups with executions or epochs, or (``moved``) with transfers or bytes."""
    return tuple(
        group
        for group in groups
        if group.machines
        or group.longest.epochs
        or (moved and (group.transfers or group.input.received or group.input.sent))
    )


# --- over time --------------------------------------------------------------------------------

_Span = tuple[datetime, datetime]


def _time_span(ledger: Ledger, window: TimeWindow) -> _Span | None:
    first, last = ledger.first_time, ledger.as_of
    if first is None or last is None:
        return None
    # DAGMan's files may report epochs before the start and after the end of the job log.
    plausible = [
        epoch.completed
        for epoch in ledger.epochs
        if epoch.counts
        and epoch.completed is not None
        and abs(epoch.completed - first) < LONGEST_SERIES
    ]
    first, last = min([first, *plausible]), max([last, *plausible])
    first, last = max(first, window.since or first), min(last, window.until or last)
    is_empty = first >= last and not window.unbounded
    return None if is_empty or last - first >= LONGEST_SERIES else (first, last)


def _unit(span: _Span | None, days: int, weeks: int) -> Unit:
    """The unit for a span: days below ``days`` days, weeks below ``weeks`` days, else months."""
    length = (span[1] - span[0]).days if span else 0
    return Unit.DAY if length < days else Unit.WEEK if length < weeks else Unit.MONTH


def _windows(span: _Span | None, window: TimeWindow, unit: Unit) -> tuple[TimeWindow, ...]:
    """The windows of one unit that partition the span, clipped to ``window``."""
    if span is None:
        return ()
    windows = list(partition(*span, unit))
    if window.until is not None and windows[-1].since == window.until:
        # This window starts at the exclusive end of the time window.
        windows.pop()
    if window.since is not None:
        since = max(window.since, windows[0].since or window.since)
        windows[0] = replace(windows[0], since=since)
    if window.until is not None:
        until = min(window.until, windows[-1].until or window.until)
        windows[-1] = replace(windows[-1], until=until)
    return tuple(windows)


def _series(
    ledger: Ledger, window: TimeWindow, groups: UsageGroups, span: _Span | None
) -> UsageSeries | None:
    if span is None:
        return None
    unit = _unit(span, days=61, weeks=1001)
    windows = _windows(span, window, unit)
    starts = [part.since or datetime.min for part in windows]
    epochs = [0] * len(windows)
    for epoch in groups.epochs:
        if epoch.completed is not None:
            epochs[max(0, bisect_right(starts, epoch.completed) - 1)] += 1
    by_kind = {kind: [0.0] * len(windows) for kind in ("goodput", "badput", "running")}
    by_site: dict[str | None, list[float]] = {}
    # Whole executions: their seconds outside the window fall into none of its parts.
    for entry in ledger.executions:
        weight = ledger.measure.weight(entry)
        if entry.at_access_point or not weight:
            continue
        if entry.stored:
            # The stored part, up to the checkpoint; the rest, below, was lost.
            for index, seconds in distribute_seconds(ledger, entry.start, entry.stored, windows):
                by_kind["goodput"][index] += seconds * weight
                by_kind["badput"][index] -= seconds * weight
        kind = "badput" if entry.stored else entry.kind
        for index, seconds in distribute_seconds(ledger, entry.start, entry.seconds, windows):
            by_kind[kind][index] += seconds * weight
            by_site.setdefault(entry.site, [0.0] * len(windows))[index] += seconds * weight
    largest = sorted(by_site.items(), key=lambda item: (-sum(item[1]), str(item[0])))
    return UsageSeries(
        unit=unit,
        edges=(*starts, windows[-1].until or span[1]),
        epochs=tuple(epochs),
        kinds={kind: tuple(sums) for kind, sums in by_kind.items()},
        sites={name: tuple(values) for name, values in largest},
    )


# --- transfers and causes ---------------------------------------------------------------------

_OUTCOMES: Final = ("ok", "aborted", "unfinished", "failed", "in-flight")


def _transfer_groups(groups: UsageGroups) -> Iterable[TransferGroup]:
    transfers = group_by(groups.clipped.transfers, lambda t: (t.direction, t.outcome))
    for key in sorted(transfers, key=lambda key: (key[0], _OUTCOMES.index(key[1]))):
        group = transfers[key]
        counted = [t for t in group if t.counted]
        lengths = [s for t in counted if (s := groups.seconds(t)) is not None]
        yield TransferGroup(
            direction=key[0],
            outcome=key[1],
            count=len(counted),
            timed=len(lengths),
            seconds=sum(t.seconds or 0.0 for t in group),
            median=median(lengths) if lengths else None,
            longest=max(lengths, default=None),
            queued_seconds=sum(t.queue_seconds or 0 for t in counted),
        )


def _cause_label(entry: Execution) -> str:
    """``1007/0``, ``signal 9``, ``return value 1``, or the outcome."""
    if entry.code is not None:
        return f"{entry.code}/{entry.subcode if entry.subcode is not None else '–'}"
    if entry.outcome is Outcome.FAILED and entry.signal is not None:
        return f"signal {entry.signal}"
    if entry.outcome is Outcome.FAILED and entry.return_value is not None:
        return f"return value {entry.return_value}"
    if entry.outcome is Outcome.REMOVED and entry.uncertain:
        return "removed, end unknown"
    return str(entry.outcome).replace("-", " ")


# --- box plots --------------------------------------------------------------------------------


def make_box_plot(values: Iterable[float]) -> BoxPlot | None:
    """The box plot of the values; None if there are none."""
    ordered = sorted(values)
    spread = distribution(ordered)
    if spread.lower_quartile is None or spread.median is None or spread.upper_quartile is None:
        return None
    reach = WHISKER * (spread.upper_quartile - spread.lower_quartile)
    low, high = spread.lower_quartile - reach, spread.upper_quartile + reach
    inside = [value for value in ordered if low <= value <= high]
    return BoxPlot(
        n=spread.n,
        lower_whisker=inside[0],
        lower_quartile=spread.lower_quartile,
        median=spread.median,
        upper_quartile=spread.upper_quartile,
        upper_whisker=inside[-1],
        outliers=tuple(value for value in ordered if not low <= value <= high),
    )


def epoch_boxes(usage: ReportUsage, key: Callable[[Execution], K]) -> dict[K, BoxPlot]:
    """Box plots of the durations of completed epochs by ``key``, most epochs first."""
    groups = group_by(usage.completing_executions, lambda pair: key(pair[0]))
    boxes = {
        name: plot
        for name, group in groups.items()
        if (plot := make_box_plot(seconds for _, seconds in group)) is not None
    }
    return dict(sorted(boxes.items(), key=lambda item: (-item[1].n, str(item[0]))))
