"""The comparison of marked runs: their curves in one chart, and a column for each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from metlmon.health.build import make_health
from metlmon.snapshot.records import Snapshot
from metlmon.stats.estimates import make_forecast
from metlmon.stats.run_figures import Comparison, compare_runs
from metlmon.tables.comparison import comparison_lines, headline, open_entries, run_name
from metlmon.tables.health import entry_lines
from metlmon.tables.layout import empty_text
from metlmon.text import formatting
from metlmon.text.formatting import clip
from metlmon.text.spans import BOLD, DIM, GOOD, NOTE, Line, TextStyle, join, line
from screens.base.plots import CHOSEN, Scale, chart, run_trace
from screens.base.screens import DocumentScreen
from screens.curves import (
    COHORT_SIGNS,
    COHORTS,
    MIN_CHART,
    ChartScreen,
    metric_parts,
)

STYLES: Final = (CHOSEN, *COHORTS)
SIGNS: Final = "*" + COHORT_SIGNS
"""Style and sign of each run's curve, used cyclically."""

MAX_CHART: Final = 14
TABLE_LINES: Final = 8
"""Lines left to the table below the chart, if the terminal has them."""

NOT_CHART: Final = 6
"""Lines of the head, the axis and the footer."""


class CompareScreen(DocumentScreen, ChartScreen):
    """Marked runs side by side."""

    SCOPES: ClassVar[tuple[str, ...]] = ("compare", "below")

    def __init__(self, runs: Sequence[str] = (), metric: str | None = None) -> None:
        super().__init__()
        self.runs = tuple(runs)
        self.metric = metric

    @property
    def _shown(self) -> Comparison | None:
        return self.context.stats.value(compare_runs, self.runs, self.metric)

    def show(self, update: Snapshot) -> None:
        self.context.stats.watch_job_files()
        comparison, room = self._shown, self.app.size.width
        title = line((f"Compare {formatting.count(len(self.runs), 'run')}", BOLD))
        if comparison is None:
            self.show_document([line(" ") + title], empty_text("", "comparing the runs…"))
            return
        if not comparison.runs:
            text = "None of these runs is here any more; [q] goes back."
            self.show_document([line(" ") + title], empty_text("", text))
            return
        best = line((headline(comparison), GOOD))
        head = [line(" ") + join((title, best), line("   ")), *self._chart(comparison)]
        self.show_document(head, self._lines(comparison, update, room))

    def _lines(self, comparison: Comparison, update: Snapshot, room: int) -> list[Line]:
        """The table, and the full text of what is wrong with any of the runs."""
        forecast = self.context.stats.value(make_forecast)
        health = self.context.stats.value(make_health)
        names = [run_name(run, *self._sign(i)) for i, run in enumerate(comparison.runs)]
        table, shown = comparison_lines(comparison, forecast, health, room - 3, names=names)
        lines = [line(" ") + content for content in table]
        hidden = len(comparison.runs) - shown
        if hidden:
            more = f"{formatting.count(hidden, 'more run')} on a wider terminal"
            lines.append(line("  ", (more, NOTE)))
        if health is not None:
            for entry in open_entries(health, comparison.runs):
                lines += [(), *entry_lines(entry, health, update.status.as_of, room - 1)]
        return lines

    def _sign(self, index: int) -> tuple[TextStyle, str]:
        """The style of a run's curve, and the sign that represents it."""
        sign = SIGNS[index % len(SIGNS)] if self._signs else "━"
        return STYLES[index % len(STYLES)], sign

    @property
    def _signs(self) -> bool:
        """Whether curves are drawn with signs, for lack of colours."""
        return self.context.options.ascii or self._colourless

    def _chart(self, comparison: Comparison) -> list[Line]:
        """The metric, and the curves in one chart."""
        room, curves = self.app.size.width, [run.curve for run in comparison.runs]
        if not any(curve.points for curve in curves):
            reading = not comparison.files_read
            text = "reading what the trainings wrote…" if reading else "no run has a value yet"
            return [line(" ", (clip(comparison.metric, 40), BOLD), "   ", (text, DIM)), ()]
        log = line(("log" if self.log_scale else "", NOTE))
        title = join((*metric_parts(comparison), log), line("   "))
        free = self.app.size.height - NOT_CHART - self.tab_lines
        height = max(MIN_CHART, min(MAX_CHART, free - TABLE_LINES))
        # The best one is drawn last, over the others.
        traces = [
            run_trace(run.curve, self._sign(index)[0], SIGNS[index % len(SIGNS)])
            for index, run in sorted(enumerate(comparison.runs), key=lambda each: each[1].best)
        ]

        def draw(scale: Scale) -> Sequence[Line]:
            signs = self._signs
            return [*chart([], traces, scale, room - 2, height=height, braille=not signs), ()]

        return self._chart_lines(curves, [title], draw, room)
