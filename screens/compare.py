"""The comparison of marked runs: their curves in one chart, and a column for each run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partialmethod
from typing import ClassVar, Final

from metlmon.health.build import make_health
from metlmon.live.feed import Snapshot
from metlmon.stats.comparison import Comparison, comparison_stat
from metlmon.stats.estimates import make_forecast
from metlmon.tables.comparison import comparison_lines, headline, open_entries, run_name
from metlmon.tables.health_lines import entry_lines
from metlmon.text import formatting
from metlmon.text.formatting import plain
from metlmon.text.spans import BOLD, DIM, GOOD, NOTE, Line, TextStyle, join, justify, line
from screens.base.screens import DocumentScreen
from screens.curves import (
    CHOSEN,
    COHORT_SIGNS,
    COHORTS,
    LEAST_CHART,
    chart_scale,
    goal_text,
    out_of_range,
    run_trace,
)
from screens.widgets import plot

STYLES: Final = (CHOSEN, *COHORTS)
SIGNS: Final = "*" + COHORT_SIGNS
"""Style and sign of each run's curve, used cyclically."""

MOST_CHART: Final = 14
TABLE_LINES: Final = 8
"""Lines left to the table below the chart, where the terminal has them."""

NOT_CHART: Final = 6
"""Lines of the head, the axis and the footer."""


class CompareScreen(DocumentScreen):
    """Marked runs side by side."""

    SCOPES: ClassVar[tuple[str, ...]] = ("compare", "below")

    def __init__(self, runs: Sequence[str] = (), metric: str | None = None) -> None:
        super().__init__()
        self.runs = tuple(runs)
        self.metric = metric
        self.log_scale = False
        self._no_chart: str | None = None

    def on_mount(self) -> None:
        super().on_mount()
        # Importing the plot library takes 0.25 s: do it in a thread.
        self.run_worker(self._load, thread=True)

    def _load(self) -> None:
        self._no_chart = plot.load_library()
        self.call_later(self._refresh_if_mounted)

    @property
    def _comparison(self) -> Comparison | None:
        return self.context.stats.value(comparison_stat(self.runs, self.metric))

    def show(self, update: Snapshot | None) -> None:
        self.context.stats.watch_job_files()
        comparison, room = self._comparison, self.app.size.width
        title = line((f"Compare {formatting.count(len(self.runs), 'run')}", BOLD))
        if update is None or comparison is None:
            self.show_document([line(" ") + title], [line("  ", ("comparing the runs…", DIM))])
            return
        if not comparison.runs:
            text = "None of these runs is here any more; [q] goes back."
            self.show_document([line(" ") + title], [line("  ", (text, DIM))])
            return
        best = line((headline(comparison), GOOD))
        head = [line(" ") + join((title, best), line("   ")), *self._chart(comparison)]
        self.show_document(head, self._lines(comparison, update, room))

    def _lines(self, comparison: Comparison, update: Snapshot, room: int) -> list[Line]:
        """The table, and the full text of what is wrong with any of the runs."""
        forecast = self.context.stats.value(make_forecast)
        health = self.context.stats.value(make_health)
        names = [run_name(run, *self._sign(i)) for i, run in enumerate(comparison.runs)]
        table = comparison_lines(comparison, forecast, health, room - 3, names=names)
        lines = [line(" ") + content for content in table.lines]
        hidden = len(comparison.runs) - table.shown
        if hidden:
            more = f"{formatting.count(hidden, 'more run')} on a wider terminal"
            lines.append(line("  ", (more, NOTE)))
        if health is not None:
            for entry in open_entries(health, comparison.runs):
                lines += [(), *entry_lines(entry, health, update.status.as_of, room - 1)]
        return lines

    def _sign(self, index: int) -> tuple[TextStyle, str]:
        """The style of a run's curve, and the sign that stands for it."""
        sign = SIGNS[index % len(SIGNS)] if self._signs else "━"
        return STYLES[index % len(STYLES)], sign

    @property
    def _signs(self) -> bool:
        """Whether curves are drawn with signs, for lack of colours."""
        options = self.context.options
        return options.ascii or self.context.no_color or options.no_color

    def _chart(self, comparison: Comparison) -> list[Line]:
        """The metric, and the curves over each other."""
        room, curves = self.app.size.width, [run.curve for run in comparison.runs]
        if not any(curve.points for curve in curves):
            reading = not comparison.files_read
            text = "reading what the trainings wrote…" if reading else "no run has a value yet"
            return [line(" ", (plain(comparison.metric, 40), BOLD), "   ", (text, DIM)), ()]
        scale = chart_scale(curves, self.log_scale)
        beyond = out_of_range(curves, scale) if scale is not None else ()
        position = comparison.metrics.index(comparison.metric) + 1
        metric = join(
            (
                line((plain(comparison.metric, 40), BOLD)),
                line((goal_text(comparison.goal), DIM)),
                line((f"metric {position} of {len(comparison.metrics)}", DIM))
                if len(comparison.metrics) > 1
                else (),
                line(("log", NOTE)) if self.log_scale else (),
            ),
            line("   "),
        )
        lines = [line(" ") + justify(metric, beyond, room - 2)]
        if scale is None:
            text = "a logarithm needs values above 0; [L] goes back"
            return [*lines, line("   ", (text, NOTE)), ()]
        if self._no_chart is not None:
            text = plain(f"no chart: {self._no_chart}", room - 4)
            return [*lines, line("   ", (text, NOTE)), ()]
        if not plot.is_loaded():
            return [*lines, line("   ", ("the chart is being drawn", DIM)), ()]
        free = self.app.size.height - NOT_CHART - self.tab_lines
        height = max(LEAST_CHART, min(MOST_CHART, free - TABLE_LINES))
        # The best one is drawn last, over the others.
        traces = [
            run_trace(run.curve, self._sign(index)[0], SIGNS[index % len(SIGNS)])
            for index, run in sorted(enumerate(comparison.runs), key=lambda each: each[1].best)
        ]
        return [
            *lines,
            *plot.chart([], traces, scale, room - 2, height=height, braille=not self._signs),
            (),
        ]

    def _step_metric(self, delta: int) -> None:
        comparison = self._comparison
        if comparison is None or not comparison.metrics:
            return
        names = comparison.metrics
        index = names.index(comparison.metric) if comparison.metric in names else 0
        self.metric = names[(index + delta) % len(names)]
        self._refresh_if_mounted()

    action_next_metric = partialmethod(_step_metric, 1)
    action_previous_metric = partialmethod(_step_metric, -1)

    def action_log(self) -> None:
        self.log_scale = not self.log_scale
        self._refresh_if_mounted()
