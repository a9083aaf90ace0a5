"""The report's figures: what is drawn, and what is to be seen in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Final

from metlmon.report.document import (
    BandSeries,
    BarChart,
    BoxChart,
    LevelChart,
    LineChart,
    ReportFigure,
)
from metlmon.report.values import NOT_KNOWN, hours, hours_digits
from metlmon.snapshot.ledger import HOUR
from metlmon.stats.report_usage import BoxPlot, ReportUsage, Series, epoch_boxes, gpu_model
from metlmon.stats.windows import TimeWindow, Unit
from metlmon.text.formatting import count, duration

GREEN: Final = 2
VERMILLION: Final = 3
SKY: Final = 4
BLUE: Final = 0
GREY: Final = 7

SITE_COLOURS: Final = (0, 1, 2, 5, 4, 3, 6)
"""Of the largest sites; all others are drawn together, in grey."""

STACKED_DAYS: Final = 40
"""Stacks of more days than that are drawn by week."""

BOXES: Final = 24
LEVELS: Final = 12
"""So many boxes and causes are drawn; the tables have all of them."""

PER: Final = {Unit.DAY: "day", Unit.WEEK: "week", Unit.MONTH: "month"}


def figures(books: ReportUsage) -> Mapping[str, ReportFigure]:
    """The figures that there is something to draw for, by key."""
    return {figure.key: figure for figure in _drawn(books)}


def _drawn(books: ReportUsage) -> Iterable[ReportFigure]:
    series = books.series
    if series is not None:
        # Of one day alone, bars and areas by day would be one block.
        several = len(series.windows) > 1
        if any(series.epochs):
            yield _epochs(books, series)
            if several:
                yield _per_period(series)
        if any(map(sum, (series.good, series.bad, series.in_flight))):
            if several:
                yield _hours(books, series)
            yield _contributions(series) if several else _contributed(series)
    times = _times(books)
    if times is not None:
        yield times
    if any(loss.seconds for loss in books.losses):
        yield _causes(books)


def _edges(series: Series) -> tuple[datetime, ...]:
    begins = [window.since for window in series.windows if window.since is not None]
    last = series.windows[-1].until
    return (*begins, *([last] if last is not None else []))


def _ends(books: ReportUsage, series: Series) -> tuple[datetime, datetime]:
    """Where lines begin and end: nothing is known of a day before its first event, and the
    last one is not over."""
    edges = _edges(series)
    first, last = books.whole.first or edges[0], books.whole.as_of or edges[-1]
    return max(edges[0], first), min(edges[-1], last)


def _epochs(books: ReportUsage, series: Series) -> ReportFigure:
    first, last = _ends(books, series)
    done = sorted(e.completed for e in books.part.epochs if e.counts and e.completed is not None)
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


def _hours(books: ReportUsage, series: Series) -> ReportFigure:
    def band(name: str, values: tuple[float, ...], colour: int) -> BandSeries:
        return BandSeries(name, (0.0, *accumulate(value / HOUR for value in values)), colour)

    bands = (
        band("good", series.good, GREEN),
        band("bad", series.bad, VERMILLION),
        band("in flight", series.in_flight, SKY),
    )
    first, last = _ends(books, series)
    edges = (first, *_edges(series)[1:-1], last)
    digits = hours_digits(sum(band.values[-1] for band in bands))
    ends = ", ".join(f"{hours(each.values[-1], digits)} {each.name}" for each in bands)
    return ReportFigure(
        "hours",
        "GPU-hours, cumulated over time, by what their executions came to.",
        LineChart(edges, tuple(b for b in bands if b.values[-1]), "GPU-hours", stacked=True),
        f"GPU-hours at the end: {ends}.",
        "cumulated",
    )


def _per_period(series: Series) -> ReportFigure:
    per = PER[series.unit]
    most = max(series.epochs)
    values = tuple(float(n) for n in series.epochs)
    return ReportFigure(
        "per_period",
        f"Completed epochs per {per}.",
        BarChart(_edges(series), (BandSeries("epochs", values, BLUE),), f"epochs per {per}"),
        f"At most {count(most, 'epoch')} in a {per}, {sum(values) / len(values):.1f} on average "
        f"over {count(len(values), per)}.",
        "epochs",
    )


def _contributions(series: Series) -> ReportFigure:
    series = _coarser(series)
    per = PER[series.unit]
    named = list(series.sites.items())
    shown, rest = named[: len(SITE_COLOURS)], named[len(SITE_COLOURS) :]
    bands = [
        BandSeries(name or NOT_KNOWN, tuple(value / HOUR for value in values), colour)
        for (name, values), colour in zip(shown, SITE_COLOURS, strict=False)
    ]
    if rest:
        together = zip(*(values for _, values in rest), strict=True)
        others = tuple(sum(values) / HOUR for values in together)
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


def _contributed(series: Series) -> ReportFigure:
    sums = [(name or NOT_KNOWN, sum(values) / HOUR) for name, values in series.sites.items()]
    first, most = sums[0]
    digits = hours_digits(sum(value for _, value in sums))
    return ReportFigure(
        "contributions",
        "GPU-hours by resource.",
        LevelChart(tuple(sums[:LEVELS]), "GPU-hours", BLUE),
        f"The most, {hours(most, digits)} GPU-hours, were spent at {first}.",
        "gpu_hours",
    )


def _coarser(series: Series) -> Series:
    """Weeks, where there are so many days that stacks of them are too thin to be read."""
    if series.unit is not Unit.DAY or len(series.windows) <= STACKED_DAYS:
        return series
    begins = [
        at
        for at, window in enumerate(series.windows)
        if at == 0 or (window.since is not None and window.since.weekday() == 0)
    ]
    spans = list(pairwise([*begins, len(series.windows)]))
    windows = tuple(
        TimeWindow(series.windows[a].since, series.windows[b - 1].until) for a, b in spans
    )
    sites = {
        name: tuple(sum(values[a:b]) for a, b in spans) for name, values in series.sites.items()
    }
    return replace(series, unit=Unit.WEEK, windows=windows, sites=sites)


def _times(books: ReportUsage) -> ReportFigure | None:
    by_gpu = epoch_boxes(books, lambda e: gpu_model(e.gpu))
    by_site = epoch_boxes(books, lambda e: e.site)
    if not by_gpu:
        return None

    def named(boxes: Mapping[str | None, BoxPlot]) -> tuple[tuple[str, BoxPlot], ...]:
        return tuple((name or NOT_KNOWN, box) for name, box in list(boxes.items())[:BOXES])

    medians = ", ".join(f"{name} {duration(box.median)}" for name, box in named(by_gpu))
    return ReportFigure(
        "times",
        "Time of the successful execution of completed epochs, by GPU model and by resource.",
        BoxChart((("GPU model", named(by_gpu)), ("Resource", named(by_site)))),
        f"Medians: {medians}.",
        "box",
    )


def _causes(books: ReportUsage) -> ReportFigure:
    def name(code: int | None, subcode: int | None, word: str | None, reason: str) -> str:
        return word or f"{code}/{subcode if subcode is not None else '–'} {reason}"

    bars = tuple(
        (name(loss.code, loss.subcode, loss.word, loss.reasons[0][0]), loss.seconds / HOUR)
        for loss in books.losses
        if loss.seconds
    )
    first, most = bars[0]
    digits = hours_digits(books.total.spent.total / HOUR)
    return ReportFigure(
        "causes",
        "Bad GPU-hours by cause; where a code has several reasons, the most expensive is named.",
        LevelChart(bars[:LEVELS], "GPU-hours", VERMILLION),
        f"The most, {hours(most, digits)} GPU-hours, were lost to {first}.",
        "cause",
    )
