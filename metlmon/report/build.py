"""Builds the report of an ensemble: its usage as tables, figures and definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, tzinfo
from itertools import accumulate
from typing import Final

from msgspec.structs import replace

from metlmon.health.build import make_health
from metlmon.health.types import Health
from metlmon.live.feed import StatsInput
from metlmon.remote.paths import as_typed
from metlmon.report import usage_tables as tables
from metlmon.report.document import (
    NOT_KNOWN,
    BandSeries,
    Block,
    BoxChart,
    LevelChart,
    Report,
    ReportFigure,
    TimeChart,
    definitions,
    footnote_keys,
    hours_digits,
    percent,
)
from metlmon.report.learning import learning
from metlmon.report.usage import BoxPlot, ReportUsage, UsageSeries
from metlmon.snapshot.records import HOUR, HourUnit, Status
from metlmon.stats.causes import Cause
from metlmon.stats.curves import curves
from metlmon.stats.sweep import GridChoice, grid
from metlmon.stats.windows import ALL, TimeWindow, window_text
from metlmon.text.formatting import (
    count,
    dag_sign,
    day,
    directory_label,
    directory_name,
    duration,
    exact_hours,
    moment,
    nothing_logged,
    number,
    plain,
    readable_dates,
)

TITLE_LIMIT: Final = 200

VERDICT_LIMIT: Final = 600


def build_report(
    stats: StatsInput,
    zone: tzinfo | str | None,
    window: TimeWindow = ALL,
    *,
    title: str | None = None,
    measure: HourUnit | None = None,
) -> Report:
    """Build the report of one snapshot.

    ``zone``: that of the logs, if known; ``measure``: unit of hours, by default the ensemble's.
    Health and metrics are of the whole ensemble: a window of time has neither.
    """
    status, measure = stats.status, measure or stats.ledger.measure
    ledger = replace(stats.ledger, measure=measure)
    usage = ReportUsage(ledger, window)
    digits = hours_digits(usage.total.totals.hours.total)
    whole = window.unbounded
    learned = learning(curves(stats), grid(stats, GridChoice())) if whole else ()
    sections = _sections(usage, learned)
    name = plain(directory_name(status.dagdir), TITLE_LIMIT)
    notes = footnote_keys(block for blocks in sections.values() for block in blocks)
    return Report(
        title=plain(title, TITLE_LIMIT) if title else f"Report of {name}",
        dagdir=as_typed(status.dagdir),
        window=window,
        as_of=status.as_of,
        live=status.live,
        verdict=_verdict(make_health(stats)) if whole else "",
        headline=_headline(usage, digits),
        metadata=tuple(_lead(status, window, None if zone is None else str(zone))),
        sections=sections,
        limitations=tuple(_limitations(status, usage, zone is not None)),
        definitions=definitions(notes, usage, digits),
        hours_digits=digits,
        measure=measure,
        item=ledger.item,
    )


def _verdict(health: Health) -> str:
    """The first line of Health, and what to do about the worst entry."""
    advice = health.worst.advice if health.worst is not None else ""
    return plain(" → ".join(filter(None, (health.headline.line, advice))), VERDICT_LIMIT)


def _headline(usage: ReportUsage, digits: int) -> str:
    spent = usage.total.totals.hours
    wanted = sum(run.epochs_total for run in usage.ledger.runs)
    runs = count(len(usage.ledger.runs), "run")
    epochs = count(usage.epochs, "epoch")
    if usage.window.unbounded:
        progress = f"{number(usage.epochs)} of {count(wanted, 'epoch')} of {runs} completed"
        skipped = sum(run.epochs_skipped for run in usage.ledger.runs)
        stopped = sum(run.stopped for run in usage.ledger.runs)
        if skipped:
            progress += f", {number(skipped)} skipped"
            progress += f" ({count(stopped, 'run')} stopped)" if stopped else ""
    else:
        progress = f"{epochs} of {runs} completed in the window"
    least = "at least " if usage.ledger.nodes_unlogged else ""
    bad_share = ""
    if spent.badput:
        bad_share = f" ({percent(tables.ratio(spent.badput, spent.ended))} of what has ended)"
    return (
        f"{progress}, with {least}{exact_hours(spent.total, digits)} GPU-hours: "
        f"{exact_hours(spent.goodput, digits)} goodput, "
        f"{exact_hours(spent.badput, digits)} badput{bad_share}"
        f", {exact_hours(spent.running, digits)} running."
    )


FAILED_SHOWN: Final = 5
"""Maximum number of failed nodes without a job that are named; ``metlmon nodes`` lists all."""


def _lead(status: Status, window: TimeWindow, zone: str | None) -> Iterable[tuple[str, str]]:
    yield "Directory", plain(directory_label(status.dagdir), TITLE_LIMIT)
    dags = [f"{plain(d.file, 80)} ({dag_sign(d.state, d.nodes_failed).word})" for d in status.dags]
    yield "DAG" if len(dags) == 1 else "DAGs", ", ".join(dags) or "none"
    live = ", live" if status.live else ""
    nothing = nothing_logged(dag.ended for dag in status.dags)
    yield "As of", f"{moment(status.as_of)}{live}" if status.as_of else nothing
    yield "Window", readable_dates(window_text(window))
    yield "Times", f"{plain(zone, 60)}" if zone else "the access point's local time"
    first = min((log.first for log in status.logs if log.first), default=None)
    last = max((log.last for log in status.logs if log.last), default=None)
    if first and last:
        events = sum(log.events for log in status.logs)
        logs = count(len(status.logs), "log")
        yield "Logged", f"{count(events, 'event')} in {logs}, {moment(first)} to {moment(last)}"
    nodes = [
        f"{plain(failed.node, 60)}: {plain(failed.reason or '', 200)}"
        for failed in (run.failed for run in status.runs)
        if failed is not None and failed.part in ("pre", "submit")
    ]
    more = f"; and {len(nodes) - FAILED_SHOWN} more" if len(nodes) > FAILED_SHOWN else ""
    if nodes:
        yield "Failed without a job", "; ".join(nodes[:FAILED_SHOWN]) + more


def _limitations(status: Status, usage: ReportUsage, has_zone: bool) -> Iterable[str]:
    if usage.uncounted_gpus:
        yield (
            f"Of {count(usage.uncounted_gpus, 'execution')} the number of GPUs was not logged: "
            "their GPU-hours are not known, and count as 0."
        )
    if usage.uncertain:
        which = count(usage.uncertain, "execution")
        yield f"The end of {which} was not logged: it is taken from the event that proves it over."
    for kind, groups in (("site", usage.sites), ("GPU model", usage.gpus)):
        unknown = sum(group.totals.executions for group in groups if group.name is None)
        if unknown:
            yield f"Of {count(unknown, 'execution')} the {kind} is not known."
    if usage.unlocated:
        yield (
            f"Of {count(usage.unlocated, 'completed epoch')} no successful execution is in the "
            "logs."
        )
    if usage.ledger.nodes_unlogged:
        which = count(usage.ledger.nodes_unlogged, "node")
        yield f"Of {which} that ran the logs lack hours: all GPU-hours are without theirs."
    if usage.undated:
        which = count(usage.undated, "completed epoch")
        yield f"When {which} ended is not known: no window of time has them."
    if not has_zone and usage.clipped.executions:
        yield (
            "The logs' time zone was not given: over the two hours a year at which clocks change, "
            "durations are as exact as the logs are (--tz)."
        )
    if status.warnings:
        texts = "; ".join(plain(notice.text, 160) for notice in status.warnings[:WARNINGS])
        more = len(status.warnings) - WARNINGS
        yield f"Warnings of reading: {texts}{f'; and {number(more)} more' if more > 0 else ''}."


WARNINGS: Final = 5
"""Number of warnings shown; ``status --json`` has them all."""


def _sections(usage: ReportUsage, learned: tuple[Block, ...]) -> Mapping[str, tuple[Block, ...]]:
    """The tables and figures that have data, by the heading of their section."""
    wanted: Mapping[str, tuple[Block | None, ...]] = {
        "Totals": (tables.totals(usage),),
        "Learning": learned,
        "GPU models": (tables.gpu_table(usage),),
        "Resources": (tables.site_table(usage), tables.site_gpu_table(usage)),
        "Over time": (*_over_time(usage), tables.period_table(usage)),
        "Time of an epoch": (
            *(_times(usage), tables.time_table(usage), tables.variation_table(usage)),
        ),
        "Profiles of pools": (tables.profile_table(usage),),
        "Use of resources": (tables.resource_table(usage),),
        "Causes of badput": (_causes(usage), tables.cause_table(usage)),
        "Transfers": (tables.bytes_table(usage), tables.transfer_table(usage)),
        "Runs": (tables.label_table(usage), tables.run_table(usage)),
    }
    present = {
        heading: tuple(block for block in blocks if block is not None)
        for heading, blocks in wanted.items()
    }
    return {heading: blocks for heading, blocks in present.items() if blocks}


# --- figures -----------------------------------------------------------------------------------

GREEN: Final = 2
VERMILLION: Final = 3
SKY: Final = 4
BLUE: Final = 0
GREY: Final = 7

SITE_COLOURS: Final = (0, 1, 2, 5, 4, 3, 6)
"""Colours of the largest sites; all others share one grey band."""

MAX_BOXES: Final = 24
MAX_LEVELS: Final = 12
"""Maximum numbers of boxes and bars drawn; the tables have all of them."""


def _over_time(usage: ReportUsage) -> Iterable[ReportFigure]:
    """The figures that have data; a single period would make bars and areas one block."""
    series = usage.series
    if series is None:
        return
    several = len(series.edges) > 2
    spent = several and any(map(sum, series.kinds.values()))
    if any(series.epochs):
        yield _epochs(usage, series)
    if spent:
        yield _hours(usage, series)
    if several and any(series.epochs):
        yield _per_period(series)
    if spent:
        yield _contributions(series)


def _time_range(usage: ReportUsage, series: UsageSeries) -> tuple[datetime, datetime]:
    """Return first and last time of lines: the first event, and the end of the data."""
    edges = series.edges
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
        TimeChart(moments, (BandSeries("epochs", values, BLUE),), "epochs", "steps"),
        f"{count(len(done), 'epoch')} completed between {day(done[0])} and {day(done[-1])}.",
        footnote="cumulated",
    )


def _hours(usage: ReportUsage, series: UsageSeries) -> ReportFigure:
    colours = {"goodput": GREEN, "badput": VERMILLION, "running": SKY}
    bands = [
        BandSeries(kind, (0.0, *accumulate(value / HOUR for value in values)), colours[kind])
        for kind, values in series.kinds.items()
    ]
    first, last = _time_range(usage, series)
    edges = (first, *series.edges[1:-1], last)
    digits = hours_digits(sum(band.values[-1] for band in bands))
    ends = ", ".join(f"{exact_hours(band.values[-1], digits)} {band.name}" for band in bands)
    return ReportFigure(
        "hours",
        "GPU-hours, cumulated over time, by what their executions came to.",
        TimeChart(edges, tuple(b for b in bands if b.values[-1]), "GPU-hours", "areas"),
        f"GPU-hours at the end: {ends}.",
        footnote="cumulated",
    )


def _per_period(series: UsageSeries) -> ReportFigure:
    per = series.unit
    highest = max(series.epochs)
    values = tuple(float(n) for n in series.epochs)
    bands = (BandSeries("epochs", values, BLUE),)
    return ReportFigure(
        "per_period",
        f"Completed epochs per {per}.",
        TimeChart(series.edges, bands, f"epochs per {per}", "bars"),
        f"At most {count(highest, 'epoch')} in a {per}, {sum(values) / len(values):.1f} on average "
        f"over {count(len(values), per)}.",
        footnote="epochs",
    )


def _contributions(series: UsageSeries) -> ReportFigure:
    per = series.unit
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
    sums = ", ".join(f"{band.name} {exact_hours(sum(band.values), digits)}" for band in bands)
    return ReportFigure(
        "contributions",
        f"GPU-hours per {per} by resource.",
        TimeChart(series.edges, tuple(bands), f"GPU-hours per {per}", "bars"),
        f"GPU-hours by resource: {sums}.",
        footnote="gpu_hours",
    )


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
        footnote="box",
    )


def _causes(usage: ReportUsage) -> ReportFigure | None:
    def name(cause: Cause) -> str:
        return cause.key if cause.code is None else f"{cause.key} {cause.reasons[0].reason}"

    bars = tuple((name(cause), cause.badput) for cause in usage.causes if cause.badput)
    if not bars:
        return None
    first, highest = bars[0]
    digits = hours_digits(usage.total.totals.hours.total)
    return ReportFigure(
        "causes",
        "GPU-hours of badput by cause; of a code with several reasons the most expensive is named.",
        LevelChart(bars[:MAX_LEVELS], "GPU-hours", VERMILLION),
        f"The largest cause, with {exact_hours(highest, digits)} GPU-hours: {first}.",
        footnote="cause",
    )
