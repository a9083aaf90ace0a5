"""Builds the report's figures, with text alternatives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Final

from msgspec.structs import replace

from metlmon.report.document import (
    NOT_KNOWN,
    BandSeries,
    BarChart,
    BoxChart,
    LevelChart,
    LineChart,
    ReportFigure,
    hours,
    hours_digits,
)
from metlmon.report.usage import BoxPlot, ReportUsage, UsageSeries
from metlmon.snapshot.ledger import HOUR
from metlmon.stats.causes import Cause
from metlmon.stats.windows import TimeWindow, Unit
from metlmon.text.formatting import count, duration

GREEN: Final = 2
VERMILLION: Final = 3
SKY: Final = 4
BLUE: Final = 0
GREY: Final = 7

SITE_COLOURS: Final = (0, 1, 2, 5, 4, 3, 6)
"""Colours of the largest sites; all others share one grey band."""

MAX_DAYS_STACKED: Final = 40
"""Longer stacks by day are summed by week."""

MAX_BOXES: Final = 24
MAX_LEVELS: Final = 12
"""Maximum numbers of boxes and bars drawn; the tables have all of them."""

PER: Final = {Unit.DAY: "day", Unit.WEEK: "week", Unit.MONTH: "month"}


def figures(usage: ReportUsage) -> Mapping[str, ReportFigure]:
    """Return the figures that have data, by key."""
    return {figure.key: figure for figure in _all_figures(usage)}


def _all_figures(usage: ReportUsage) -> Iterable[ReportFigure]:
    series = usage.series
    if series is not None:
        # With a single period, bars and areas would be one block.
        several = len(series.windows) > 1
        if any(series.epochs):
            yield _epochs(usage, series)
            if several:
                yield _per_period(series)
        if any(map(sum, (series.good, series.bad, series.in_flight))):
            if several:
                yield _hours(usage, series)
            yield _contributions(series) if several else _contributions_in_total(series)
    times = _times(usage)
    if times is not None:
        yield times
    if any(cause.bad for cause in usage.causes):
        yield _causes(usage)


def _edges(series: UsageSeries) -> tuple[datetime, ...]:
    starts = [window.since for window in series.windows if window.since is not None]
    last = series.windows[-1].until
    return (*starts, *([last] if last is not None else []))


def _time_range(usage: ReportUsage, series: UsageSeries) -> tuple[datetime, datetime]:
    """Return first and last time of lines: the first event, and the end of the data."""
    edges = _edges(series)
    first, last = usage.ledger.first_time or edges[0], usage.ledger.as_of or edges[-1]
    return max(edges[0], first), min(edges[-1], last)


def _epochs(usage: ReportUsage, series: UsageSeries) -> ReportFigure:
    first, last = _time_range(usage, series)
    done = sorted(e.completed for e in usage.clipped.epochs if e.counts and e.completed is not None)
    moments = (first, *done, max(last, done[-1]))
    values = (0.0, *(float(n) for n in range(1, len(done) + 1)), float(len(done)))
    return ReportFigure(
        "epochs",
        "Completed epochs, cumulated over time.",
        LineChart(moments, (BandSeries("epochs", values, BLUE),), "epochs"),
        f"{count(len(done), 'epoch')} completed between {done[0]:%Y-%m-%d} and "
        f"{done[-1]:%Y-%m-%d}.",
        "cumulated",
    )


def _hours(usage: ReportUsage, series: UsageSeries) -> ReportFigure:
    def band(name: str, values: tuple[float, ...], colour: int) -> BandSeries:
        return BandSeries(name, (0.0, *accumulate(value / HOUR for value in values)), colour)

    bands = (
        band("goodput", series.good, GREEN),
        band("badput", series.bad, VERMILLION),
        band("running", series.in_flight, SKY),
    )
    first, last = _time_range(usage, series)
    edges = (first, *_edges(series)[1:-1], last)
    digits = hours_digits(sum(band.values[-1] for band in bands))
    ends = ", ".join(f"{hours(band.values[-1], digits)} {band.name}" for band in bands)
    return ReportFigure(
        "hours",
        "GPU-hours, cumulated over time, by what their executions came to.",
        LineChart(edges, tuple(b for b in bands if b.values[-1]), "GPU-hours", stacked=True),
        f"GPU-hours at the end: {ends}.",
        "cumulated",
    )


def _per_period(series: UsageSeries) -> ReportFigure:
    per = PER[series.unit]
    highest = max(series.epochs)
    values = tuple(float(n) for n in series.epochs)
    return ReportFigure(
        "per_period",
        f"Completed epochs per {per}.",
        BarChart(_edges(series), (BandSeries("epochs", values, BLUE),), f"epochs per {per}"),
        f"At most {count(highest, 'epoch')} in a {per}, {sum(values) / len(values):.1f} on average "
        f"over {count(len(values), per)}.",
        "epochs",
    )


def _contributions(series: UsageSeries) -> ReportFigure:
    series = _by_week_if_long(series)
    per = PER[series.unit]
    sites = list(series.sites.items())
    shown, rest = sites[: len(SITE_COLOURS)], sites[len(SITE_COLOURS) :]
    bands = [
        BandSeries(name or NOT_KNOWN, tuple(value / HOUR for value in values), colour)
        for (name, values), colour in zip(shown, SITE_COLOURS, strict=False)
    ]
    if rest:
        sums_of_others = zip(*(values for _, values in rest), strict=True)
        others = tuple(sum(values) / HOUR for values in sums_of_others)
        bands.append(BandSeries(f"{len(rest)} others", others, GREY))
    digits = hours_digits(sum(sum(band.values) for band in bands))
    sums = ", ".join(f"{band.name} {hours(sum(band.values), digits)}" for band in bands)
    return ReportFigure(
        "contributions",
        f"GPU-hours per {per} by resource.",
        BarChart(_edges(series), tuple(bands), f"GPU-hours per {per}"),
        f"GPU-hours by resource: {sums}.",
        "gpu_hours",
    )


def _contributions_in_total(series: UsageSeries) -> ReportFigure:
    sums = [(name or NOT_KNOWN, sum(values) / HOUR) for name, values in series.sites.items()]
    first, highest = sums[0]
    digits = hours_digits(sum(value for _, value in sums))
    return ReportFigure(
        "contributions",
        "GPU-hours by resource.",
        LevelChart(tuple(sums[:MAX_LEVELS]), "GPU-hours", BLUE),
        f"The most, {hours(highest, digits)} GPU-hours, were spent at {first}.",
        "gpu_hours",
    )


def _by_week_if_long(series: UsageSeries) -> UsageSeries:
    """Sum days by week if there are too many for legible bars."""
    if series.unit is not Unit.DAY or len(series.windows) <= MAX_DAYS_STACKED:
        return series
    starts = [
        index
        for index, window in enumerate(series.windows)
        if index == 0 or (window.since is not None and window.since.weekday() == 0)
    ]
    spans = list(pairwise([*starts, len(series.windows)]))
    windows = tuple(
        TimeWindow(series.windows[a].since, series.windows[b - 1].until) for a, b in spans
    )
    sites = {
        name: tuple(sum(values[a:b]) for a, b in spans) for name, values in series.sites.items()
    }
    return replace(series, unit=Unit.WEEK, windows=windows, sites=sites)


def _times(usage: ReportUsage) -> ReportFigure | None:
    by_gpu, by_site = usage.boxes_by_gpu, usage.boxes_by_site
    if not by_gpu:
        return None

    def named_boxes(boxes: Mapping[str | None, BoxPlot]) -> tuple[tuple[str, BoxPlot], ...]:
        return tuple((name or NOT_KNOWN, box) for name, box in list(boxes.items())[:MAX_BOXES])

    medians = ", ".join(f"{name} {duration(box.median)}" for name, box in named_boxes(by_gpu))
    return ReportFigure(
        "times",
        "Time of the successful execution of completed epochs, by GPU model and by resource.",
        BoxChart((("GPU model", named_boxes(by_gpu)), ("Resource", named_boxes(by_site)))),
        f"Medians: {medians}.",
        "box",
    )


def _causes(usage: ReportUsage) -> ReportFigure:
    def name(cause: Cause) -> str:
        return cause.key if cause.code is None else f"{cause.key} {cause.reasons[0].text}"

    bars = tuple((name(cause), cause.bad / HOUR) for cause in usage.causes if cause.bad)
    first, highest = bars[0]
    digits = hours_digits(usage.total.totals.total / HOUR)
    return ReportFigure(
        "causes",
        "GPU-hours of badput by cause; of a code with several reasons the most expensive is named.",
        LevelChart(bars[:MAX_LEVELS], "GPU-hours", VERMILLION),
        f"The largest cause, with {hours(highest, digits)} GPU-hours: {first}.",
        "cause",
    )
