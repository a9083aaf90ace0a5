"""The Curves screen: training metrics by epoch, as a chart and a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partialmethod
from typing import ClassVar, Final

from metlmon.remote.paths import as_typed
from metlmon.snapshot.records import Snapshot
from metlmon.stats.curves import Curves, MetricBand, MetricCurve
from metlmon.stats.curves import curves as curves_in
from metlmon.stats.run_figures import Comparison
from metlmon.stats.sweep import Grid
from metlmon.tables import curves as curves_table
from metlmon.tables.layout import empty_text
from metlmon.text import formatting
from metlmon.text.formatting import Colour, clip, clip_middle, plain
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    NOTE,
    PLAIN,
    Line,
    TextStyle,
    first_that_fits,
    join,
    justify,
    line,
    width,
)
from screens.base.plots import (
    CHOSEN,
    OTHER,
    Area,
    PlotScreen,
    Scale,
    Trace,
    areas,
    chart,
    chart_scale,
    place,
    run_trace,
)
from screens.base.screens import ListScreen, SnapshotScreen, beside, compare_marked

COHORTS: Final = tuple(
    TextStyle(colour)
    for colour in (Colour.ORANGE, Colour.GREEN, Colour.PURPLE, Colour.YELLOW, Colour.BLUE)
)
"""Styles of the cohorts, used cyclically."""

COHORT_SIGNS: Final = "ox+%&"

MAX_ZOOM: Final = 8

MAX_TRACES: Final = 200
"""Maximum number of curves drawn individually."""


def out_of_range(curves: Sequence[MetricCurve], scale: Scale) -> Line:
    """Render the number of values outside the chart, and the extremes."""
    finite = [
        point.value
        for curve in curves
        for point in curve.points
        if math.isfinite(point.value) and place(point.epoch) >= scale.first
    ]
    above = [value for value in finite if value > scale.high]
    below = [value for value in finite if value < scale.low and (value > 0 or not scale.log)]
    notes = []
    for beyond, side, furthest in ((above, "above", max), (below, "below", min)):
        if beyond:
            count, end = formatting.count(len(beyond), "value"), formatting.metric(furthest(beyond))
            notes.append(line((f"{count} {side}, to {end}", ALARM)))
    return join(notes, line("  "))


def _traces(curves: Sequence[MetricCurve], selected: str | None) -> list[Trace]:
    """Return the traces of all runs: diverged ones over others, the selected on top."""
    drawn_curves = [curve for curve in curves if curve.points][:MAX_TRACES]
    calm = [run_trace(c, OTHER, ".") for c in drawn_curves if not c.diverged and c.key != selected]
    lost = [run_trace(c, BAD, "x") for c in drawn_curves if c.diverged and c.key != selected]
    return [*calm, *lost, *(run_trace(c, CHOSEN, "*") for c in curves if c.key == selected)]


def _median(band: MetricBand, style: TextStyle, sign: str) -> Trace:
    return Trace(tuple((place(level.epoch), level.median) for level in band.levels), style, sign)


def metric_parts(shown: Comparison | Curves | Grid) -> tuple[Line, Line, Line]:
    """The name of a metric, ``lower is better``, and ``metric 2 of 5`` if there are several."""
    goals = {"min": "lower is better", "max": "higher is better", None: "no goal"}
    metrics, metric = shown.metrics, shown.metric
    index = metrics.index(metric) if metric in metrics else 0
    position = f"metric {index + 1} of {len(metrics)}" if len(metrics) > 1 else ""
    return line((clip(metric, 40), BOLD)), line((goals[shown.goal], DIM)), line((position, DIM))


class MetricKeys(SnapshotScreen):
    """A screen of one metric, with the keys for the next and the previous one."""

    metric: str | None = None

    @property
    def _shown(self) -> Comparison | Curves | Grid | None:
        raise NotImplementedError

    def choose_metric(self, metric: str) -> None:
        """Show this metric from now on."""
        self.metric = metric

    def _step_metric(self, delta: int) -> None:
        shown = self._shown
        if shown is not None and shown.metrics:
            metrics = shown.metrics
            index = metrics.index(shown.metric) if shown.metric in metrics else 0
            self.choose_metric(metrics[(index + delta) % len(metrics)])
            self._refresh_if_mounted()

    action_next_metric = partialmethod(_step_metric, 1)
    action_previous_metric = partialmethod(_step_metric, -1)


class ChartScreen(MetricKeys, PlotScreen):
    """A screen with several curves in one chart."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = False
        self.zoom = 0

    @property
    def _colourless(self) -> bool:
        return self.context.no_color or self.context.options.no_color

    def _chart_lines(
        self,
        curves: Sequence[MetricCurve],
        titles: Sequence[Line],
        draw: Callable[[Scale], Sequence[Line]],
        room: int,
    ) -> list[Line]:
        """The first of the titles that fits, and the chart, or why it is missing."""
        scale = chart_scale(curves, self.log_scale, self.zoom)
        beyond = out_of_range(curves, scale) if scale is not None else ()
        title = first_that_fits(titles, room - 4 - width(beyond))
        lines = [line(" ") + justify(title, beyond, room - 2)]
        if scale is None:
            text = "a logarithm needs values above 0; [L] goes back"
            return [*lines, line("   ", (text, NOTE)), ()]
        if self._no_chart is not None:
            text = plain(f"no chart: {self._no_chart}", room - 4)
            return [*lines, line("   ", (text, NOTE)), ()]
        if not self.can_plot():
            return [*lines, line("   ", ("the chart is being drawn", DIM)), ()]
        return [*lines, *draw(scale)]

    def action_log(self) -> None:
        self.log_scale = not self.log_scale
        self._refresh_if_mounted()

    def action_zoom_in(self) -> None:
        self.zoom = min(MAX_ZOOM, self.zoom + 1)
        self._refresh_if_mounted()

    def action_zoom_out(self) -> None:
        if not self.zoom:
            self.show_message("all epochs are shown")
        self.zoom = max(0, self.zoom - 1)
        self._refresh_if_mounted()


MIN_CHART: Final = 6
MAX_CHART: Final = 34
"""Minimum and maximum height of the chart."""

CHART_CELLS: Final = 58
"""Width from which another metric has its chart beside the first."""

NOT_CHART: Final = 7
"""Lines outside chart and table. The chart gets half of the other lines, and those that the table
does not need."""

MANY: Final = 40
"""Number of runs above which the band is the initial view."""

VIEWS: Final = ("each run", "all runs as a band", "by label")


class CurvesScreen(ListScreen, ChartScreen):
    """Metrics by epoch of all runs, or of one run over the ensemble's band."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "curves", "marking", "comparing", "below")
    ORDERS = (("DAG order", None), "best", "last", "course", "label")

    def __init__(self, key: str | None = None) -> None:
        super().__init__()
        self.key = key
        self.view = None if key is None else 1
        self._initial_key = key

    # --- rendering --------------------------------------------------------------------------

    def show(self, update: Snapshot) -> None:
        self.context.stats.watch_job_files()
        curves = self._shown
        if curves is None or not curves.files_read or not curves.curves_with_values:
            self._nothing(curves, update)
            return
        with_values = curves.curves_with_values
        if self.view is None:
            self.view = 1 if len(with_values) > MANY else 0
        if not curves.bands and self.view == 2:
            self.view = 0
        without = len(curves.runs) - len(with_values)
        more = [line((f"{without} without values", DIM))] if without else []
        drawn = len(self.filter_rows(with_values, curves_table.filter_text))
        if self.view == 0 and drawn > MAX_TRACES:
            more.append(line((f"the first {MAX_TRACES} are drawn", DIM)))
        if curves.problems:
            rest = f" (+{len(curves.problems) - 1})" if len(curves.problems) > 1 else ""
            more.append(line((plain(curves.problems[0], 60) + rest, NOTE)))
        initial, self._initial_key = self._initial_key, None
        filtered = self.fill(
            curves_table.columns(with_values),
            with_values,
            lambda curve: curve.key,
            curves_table.filter_text,
            cursor=initial,
            extra=more,
        )
        self.show_head(self._head(curves, filtered, update))

    def refresh_selection(self) -> None:
        """Show the run under the cursor in the chart."""
        self._refresh_if_mounted()

    def _nothing(self, curves: Curves | None, update: Snapshot) -> None:
        feed = self.context.feed
        if not update.is_complete or not (curves and curves.files_read):
            dagdir = plain(str(feed.dagdir), 60)
            wait = f"Curves appear when the files below {dagdir} are read."
            reading = "reading what the trainings wrote…"
            self.show_nothing("Curves", empty_text("", wait), reading)
            return
        text = curves_table.empty(feed.settings.metrics, curves, as_typed(str(feed.dagdir)))
        if curves.metrics and self.metric is not None:
            text = empty_text(f"No run has a {plain(self.metric, 40)} now.")
        self.show_nothing("Curves", text)

    @property
    def _signs(self) -> bool:
        """Whether curves are drawn with letters, for lack of colours."""
        return self.context.options.ascii or (self._colourless and self.view == 2)

    def _head(self, curves: Curves, filtered: list[MetricCurve], update: Snapshot) -> list[Line]:
        room, live = self.app.size.width, update.status.live
        title_prefix = line(("Curves", BOLD), "   ")
        answer = title_prefix + curves_table.headline(curves, live, room - 2 - width(title_prefix))

        free = self.app.size.height - NOT_CHART - self.tab_lines
        height = max(free // 2, free - len(curves.curves_with_values))
        height = max(MIN_CHART, min(MAX_CHART, height))
        all_curves = self._side_by_side(curves)
        cells, shown = room // len(all_curves), {curve.key for curve in filtered}
        lines: list[Line] = []
        for index, each in enumerate(all_curves):
            chart = self._chart(each, shown, height, cells)
            lines = beside(lines, chart, index * cells) if lines else chart
        return [line(" ") + answer, *lines]

    def _side_by_side(self, curves: Curves) -> list[Curves]:
        """The curves of the metric and, if there is room, of the ones after it.

        By label a chart needs the full width for its legend.
        """
        metrics = curves.metrics
        wanted = 1 if self.view == 2 else self.app.size.width // CHART_CELLS
        start = metrics.index(curves.metric) + 1 if curves.metric in metrics else 0
        others = [name for name in (*metrics[start:], *metrics[:start]) if name != curves.metric]
        stats = self.context.stats
        more = [stats.value(curves_in, name) for name in others[: max(0, wanted - 1)]]
        return [curves, *(each for each in more if each is not None and each.curves_with_values)]

    def _chart(self, curves: Curves, shown: Collection[str], height: int, cells: int) -> list[Line]:
        """The curves of one metric; ``shown``: the runs that pass the filter."""

        def draw(scale: Scale) -> Sequence[Line]:
            shades, traces = self._areas_and_traces(curves, shown)
            return chart(shades, traces, scale, cells - 2, height=height, braille=not self._signs)

        return self._chart_lines(curves.runs, self._titles(curves), draw, cells)

    def _areas_and_traces(
        self, curves: Curves, shown: Collection[str]
    ) -> tuple[list[Area], list[Trace]]:
        filtered = [curve for curve in curves.runs if curve.key in shown]
        selected_run = self.table.cursor
        chosen = (curve for curve in filtered if curve.key == selected_run)
        own_trace = [run_trace(curve, CHOSEN, "*") for curve in chosen]
        if self.view == 0:
            return [], _traces(filtered, selected_run)
        if self.view == 1:
            median = _median(curves.band, PLAIN, "o")
            return areas(curves.band, DIM), [median, *own_trace]
        shades: list[Area] = []
        middles: list[Trace] = []
        for index, band in enumerate(curves.bands):
            style = COHORTS[index % len(COHORTS)]
            shades += areas(band, style)[1:]
            middles.append(_median(band, style, COHORT_SIGNS[index % 5]))
        return shades, [*middles, *own_trace]

    def _titles(self, curves: Curves) -> list[Line]:
        """Return the candidates of the title and legend, longest first."""
        name, goal, number = metric_parts(curves)
        log = line(("log" if self.log_scale else "", NOTE))
        legend = self._legend(curves)
        gap = line("   ")
        return [
            join((name, goal, number, log, *legend), gap),
            join((name, goal, log, *legend), gap),
            join((name, log, *legend), gap),
            join((name, log, *self._legend(curves, short=True)), line("  ")),
            join((name, log, *legend[:2]), gap),
            join((name, log), gap),
        ]

    def _legend(self, curves: Curves, short: bool = False) -> list[Line]:
        selected = next((c for c in curves.runs if c.key == self.table.cursor), None)
        chosen_key = []
        if selected is not None:
            sign = "*" if self._signs else "━"
            chosen_key = [line((f"{sign} {clip_middle(selected.run, 24)}", CHOSEN))]
        if self.view == 0:
            keys = [line((". others" if self._signs else "━ others", OTHER))]
            if any(curve.diverged and curve is not selected for curve in curves.runs):
                keys.append(line(("x diverged" if self._signs else "━ diverged", BAD)))
            return [*chosen_key, *keys]
        if self.view == 1:
            signs = ("o", ":", ".") if self._signs else ("━", "⣿", "⡂")
            words = ("median", "half" if short else "half of the runs", "all")
            band = [line(f"{signs[0]} {words[0]}")]
            band += [line((f"{s} {w}", DIM)) for s, w in zip(signs[1:], words[1:], strict=True)]
            return [*chosen_key, *band]
        cohorts = []
        for index, cohort in enumerate(curves.bands):
            sign = COHORT_SIGNS[index % 5] if self._signs else "━"
            name = line((f"{sign} {clip(cohort.label or 'no label', 24)}", COHORTS[index % 5]))
            runs = "" if short else f" {formatting.count(cohort.runs, 'run')}"
            cohorts.append(name + line((runs, DIM)))
        return [*chosen_key, *cohorts]

    # --- actions ------------------------------------------------------------------------------

    def action_compare(self) -> None:
        compare_marked(self, self.metric)

    @property
    def _shown(self) -> Curves | None:
        return self.context.stats.value(curves_in, self.metric)

    def action_view(self) -> None:
        curves = self._shown
        if curves is None or self.view is None:
            return
        self.view = (self.view + 1) % (3 if curves.bands else 2)
        last = self.view == 0 and not curves.bands
        hint = "; labels for a view by cohort: [[label]] in metlmon.toml" if last else ""
        self.show_message(VIEWS[self.view] + hint)
