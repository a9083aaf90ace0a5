"""Curves: is it learning."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.worker import get_current_worker

from metlmon.error_text import describe_error
from metlmon.live.feed import Snapshot
from metlmon.stats.curves import Curves, MetricBand, MetricCurve, curves_of
from metlmon.text import formatting
from metlmon.text.formatting import plain
from screens.actions import bindings_of
from screens.base.column_layout import cells, columns, fit_columns
from screens.base.screens import ListScreen
from screens.curves import table as curves_table
from screens.widgets import plot
from screens.widgets.footer import KeyFooter
from screens.widgets.lines import StaticLines
from screens.widgets.plot import Shade, Trace
from screens.widgets.spans import (
    BAD,
    BOLD,
    DIM,
    NOTE,
    PLAIN,
    Line,
    first_that_fits,
    joined,
    line,
    spread,
    width,
)
from screens.widgets.table import Table, TableRow

LEAST_CHART: Final = 6
MOST_CHART: Final = 34
"""Lines of dots: fewer tell nothing, more are no clearer."""

NOT_CHART: Final = 7
"""Lines that are neither dots nor rows of the table; these share the others. The chart has half
of them, and what the table does not need."""

MANY: Final = 40
"""Runs from which on the band is shown first: so many curves are a wall."""

VIEWS: Final = ("each run", "all runs as a band", "by label")


class CurvesScreen(ListScreen):
    """Metrics by epoch, of all runs; opened with the key of a run, that run's own curve over
    the ensemble's band."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "curves", "below")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("list", "curves", "below")]
    ORDERS = curves_table.ORDERS

    def __init__(self, key: str | None = None) -> None:
        super().__init__()
        self.key = key
        self.metric: str | None = None
        self.view = None if key is None else 1
        self.logarithm = False
        self._placed = key is None
        self._no_chart: str | None = None

    def keys(self) -> KeyFooter:
        """Without the way to itself."""
        return KeyFooter((*self.SCOPES, "everywhere"), without=("curves",))

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Table()
        yield from self.foot()

    def on_mount(self) -> None:
        super().on_mount()
        # Loading what draws takes a quarter of a second: not on the time of this screen.
        self.run_worker(self._load, thread=True, exit_on_error=True)

    def _load(self) -> None:
        try:
            problem = plot.load()
        except Exception as error:
            problem = describe_error("what draws could not be loaded", error)
        if not get_current_worker().is_cancelled:
            self.app.call_from_thread(self._have_loaded, problem)

    def _have_loaded(self, problem: str | None) -> None:
        self._no_chart = problem
        self._again()

    # --- what is shown ----------------------------------------------------------------------

    def show(self, update: Snapshot | None) -> None:
        self.monitor.study.want_written()
        of = self.monitor.study.of(curves_of(self.metric))
        if of is None or not of.written or not of.with_values:
            self._nothing(of, update)
            return
        known = of.with_values
        if self.view is None:
            self.view = 1 if len(known) > MANY else 0
        if not of.bands and self.view == 2:
            self.view = 0
        kept = self.kept(known, curves_table.seen_by_filter)
        self._fill(of, kept)
        if not self._placed and self.key is not None:
            self._placed = True
            self.table.select(self.key)
        self.query_one("#head", StaticLines).show(self._head(of, kept, update))
        without = len(of.curves) - len(known)
        more = [line((f"{without} without values", DIM))] if without else []
        if self.view == 0 and len(kept) > curves_table.MOST_TRACES:
            more.append(line((f"the first {curves_table.MOST_TRACES} are drawn", DIM)))
        more += [line((problem, NOTE)) for problem in self._problems(of)]
        self.query_one("#note", StaticLines).show([self.note(len(kept), len(known), more)])

    def _problems(self, of: Curves) -> list[str]:
        if not of.problems:
            return []
        rest = f" (+{len(of.problems) - 1})" if len(of.problems) > 1 else ""
        return [plain(of.problems[0], 60, self.ascii) + rest]

    def _nothing(self, of: Curves | None, update: Snapshot | None) -> None:
        """Why there is nothing, and what would fill the screen."""
        reading = update is None or update.progress.fraction < 1 or of is None or not of.written
        dots = "..." if self.ascii else "…"
        first = "no values yet" if not reading else f"reading what the trainings wrote{dots}"
        head = line(" ", ("Curves", BOLD), "   ", (first, DIM))
        self.query_one("#head", StaticLines).show([head])
        feed = self.monitor.feed
        told = [line("  ", (f"Curves appear when the files below {feed.dagdir} are read.", DIM))]
        if not reading and of is not None:
            some = of.curves[0] if of.curves else None
            told = curves_table.empty(feed.settings.metrics, some, str(feed.dagdir), self.ascii)
            if of.metrics and self.metric is not None:
                told = [line("  ", f"No run has a {plain(self.metric, 40, self.ascii)} now.")]
        self.table.show([], [], told)
        self.query_one("#note", StaticLines).show([self.note(0, 0)])

    @property
    def _signs(self) -> bool:
        """Whether curves are drawn with signs: cohorts in one colour would all be alike."""
        colourless = self.monitor.no_color or self.monitor.options.no_color
        return self.ascii or (colourless and self.view == 2)

    def _fill(self, of: Curves, kept: list[MetricCurve]) -> None:
        ascii, room = self.ascii, self.app.size.width
        specs = curves_table.specs(of.with_values, ascii)
        widths = fit_columns(specs, of.with_values, room)
        rows = [TableRow(curve.run, partial(cells, specs, widths, curve)) for curve in kept]
        empty = [line("  ", "No run has this in any column."), line("  ", ("esc clears", DIM))]
        self.table.show(columns(specs, widths), rows, empty)

    def _head(self, of: Curves, kept: list[MetricCurve], update: Snapshot | None) -> list[Line]:
        ascii, room = self.ascii, self.app.size.width
        live = update is not None and update.status.live
        name = line(("Curves", BOLD), "   ")
        answer = name + curves_table.answer(of, live, room - 2 - width(name), ascii)
        at = curves_table.scale(of, self.logarithm)
        beyond = curves_table.outside(of, at) if at is not None else ()
        title = first_that_fits(self._titles(of), room - 4 - sum(len(t) for t, _ in beyond))
        lines = [line(" ") + answer, line(" ") + spread(title, beyond, room - 2, ascii)]
        if at is None:
            return [
                *lines,
                line("   ", ("a logarithm needs values above 0; l goes back", NOTE)),
                (),
            ]
        if self._no_chart is not None:
            return [
                *lines,
                line("   ", (plain(f"no chart: {self._no_chart}", room - 4, ascii), NOTE)),
            ]
        if not plot.loaded():
            return [*lines, line("   ", ("the chart is being drawn", DIM)), ()]
        free = self.app.size.height - NOT_CHART
        height = max(free // 2, free - len(of.with_values))
        height = max(LEAST_CHART, min(MOST_CHART, height))
        shades, traces = self._drawn(of, kept)
        return [*lines, *plot.chart(shades, traces, at, room - 2, height, self._signs)]

    def _drawn(self, of: Curves, kept: list[MetricCurve]) -> tuple[list[Shade], list[Trace]]:
        chosen = self.table.cursor
        own = [curves_table.trace(c, curves_table.CHOSEN, "*") for c in kept if c.run == chosen]
        if self.view == 0:
            return [], curves_table.traces(kept, chosen)
        if self.view == 1:
            middle = curves_table.median(of.band, PLAIN, "o")
            return curves_table.shades(of.band, DIM), [middle, *own]
        shades: list[Shade] = []
        middles: list[Trace] = []
        for place, band in enumerate(of.bands):
            how = curves_table.COHORTS[place % len(curves_table.COHORTS)]
            shades += curves_table.shades(band, how)[1:]
            middles.append(curves_table.median(band, how, curves_table.COHORT_SIGNS[place % 5]))
        return shades, [*middles, *own]

    def _titles(self, of: Curves) -> list[Line]:
        """What is drawn how, as much of it as there is room for."""
        ascii = self.ascii
        name = line((plain(of.metric, 40, ascii), BOLD))
        goal = {"min": "lower is better", "max": "higher is better", None: "no goal"}[of.goal]
        place = of.metrics.index(of.metric) + 1 if of.metric in of.metrics else 1
        several = len(of.metrics) > 1
        number = line((f"metric {place} of {len(of.metrics)}", DIM)) if several else ()
        log = line(("log", NOTE)) if self.logarithm else ()
        legend = self._legend(of)
        gap = line("   ")
        return [
            joined((name, line((goal, DIM)), number, log, *legend), gap),
            joined((name, line((goal, DIM)), log, *legend), gap),
            joined((name, log, *legend), gap),
            joined((name, log, *self._legend(of, short=True)), line("  ")),
            joined((name, log, *legend[:2]), gap),
            joined((name, log), gap),
        ]

    def _legend(self, of: Curves, short: bool = False) -> list[Line]:
        ascii = self._signs
        chosen = next((c for c in of.curves if c.run == self.table.cursor), None)
        own = []
        if chosen is not None:
            sign = "*" if ascii else "━"
            name = plain(chosen.run_name, 24, self.ascii)
            own = [line((f"{sign} {name}", curves_table.CHOSEN))]
        if self.view == 0:
            others = line((". others" if ascii else "━ others", curves_table.OTHER))
            lost = any(curve.lost and curve is not chosen for curve in of.curves)
            gone = line(("x diverged" if ascii else "━ diverged", BAD)) if lost else ()
            return [*own, others, *([gone] if gone else [])]
        if self.view == 1:
            signs = ("o", ":", ".") if ascii else ("━", "⣿", "⡂")
            words = ("median", "half" if short else "half of the runs", "all")
            band = [line(f"{signs[0]} {words[0]}")]
            band += [line((f"{s} {w}", DIM)) for s, w in zip(signs[1:], words[1:], strict=True)]
            return [*own, *band]
        return [*own, *(self._cohort(n, band, short) for n, band in enumerate(of.bands))]

    def _cohort(self, place: int, band: MetricBand, short: bool) -> Line:
        sign = curves_table.COHORT_SIGNS[place % 5] if self._signs else "━"
        name = plain(band.label or "no label", 24, self.ascii)
        how = curves_table.COHORTS[place % len(curves_table.COHORTS)]
        runs = "" if short else f" {formatting.count(band.runs, 'run', ascii=self.ascii)}"
        return line((f"{sign} {name}", how), (runs, DIM))

    # --- what can be done ---------------------------------------------------------------------

    def open(self, key: str) -> None:
        self.monitor.open_run(key)

    def _step_metric(self, by: int) -> None:
        of = self.monitor.study.of(curves_of(self.metric))
        if of is None or not of.metrics:
            return
        at = of.metrics.index(of.metric) if of.metric in of.metrics else 0
        self.metric = of.metrics[(at + by) % len(of.metrics)]
        self._again()

    def action_next_metric(self) -> None:
        self._step_metric(1)

    def action_previous_metric(self) -> None:
        self._step_metric(-1)

    def action_view(self) -> None:
        of = self.monitor.study.of(curves_of(self.metric))
        if of is None or self.view is None:
            return
        self.view = (self.view + 1) % (3 if of.bands else 2)
        last = self.view == 0 and not of.bands
        hint = "; labels for a view by cohort: [[label]] in metlmon.toml" if last else ""
        self.say(VIEWS[self.view] + hint)

    def action_log(self) -> None:
        self.logarithm = not self.logarithm
        self._again()
