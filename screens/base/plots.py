"""Curves over epochs: what is drawn, and the base class of screens that draw them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from metlmon.stats.curves import Curves, MetricBand, MetricCurve
from metlmon.text import formatting
from metlmon.text.formatting import Colour, Weight, clip
from metlmon.text.spans import BOLD, DIM, Line, TextStyle, join_fitting, line
from screens.base.screens import SnapshotScreen
from screens.widgets import plot
from screens.widgets.plot import Area, Scale, Trace, scale_of

CHOSEN: Final = TextStyle(Colour.SKY, Weight.BOLD)
"""Style of the selected run's curve."""

OTHER: Final = DIM


def place(epoch: int) -> float:
    """The position of an epoch on the axis."""
    return float(formatting.epoch_number(epoch))


def chart_scale(curves: Sequence[MetricCurve], log: bool, zoom: int = 0) -> Scale | None:
    """Return the scale of the chart; ``zoom``: how often the first half of the epochs is dropped.

    Values of diverged runs from their divergence onwards are ignored: they would flatten others.
    """
    epochs = [point.epoch for curve in curves for point in curve.points]
    last = max(epochs, default=0)
    first = last - max(1, (last - min(epochs, default=0)) // 2**zoom)
    points = [point for curve in curves for point in curve.points if point.epoch >= first]
    plausible = [
        point.value
        for curve in curves
        for point in curve.points
        if point.epoch >= first
        and not (
            curve.diverged and curve.since_epoch is not None and point.epoch >= curve.since_epoch
        )
    ]
    finite = [value for value in plausible if math.isfinite(value)]
    values = finite or [point.value for point in points]
    return scale_of(values, [place(point.epoch) for point in points], log)


def run_trace(curve: MetricCurve, style: TextStyle, sign: str) -> Trace:
    """Return the trace of a run."""
    return Trace(tuple((place(p.epoch), p.value) for p in curve.points), style, sign)


def areas(band: MetricBand, style: TextStyle) -> list[Area]:
    """Return the areas of a band: extremes light, quartiles dense."""
    wide = tuple((place(level.epoch), level.minimum, level.maximum) for level in band.levels)
    narrow = tuple(
        (place(level.epoch), level.lower_quartile, level.upper_quartile) for level in band.levels
    )
    return [Area(wide, style, False, "."), Area(narrow, style, True, ":")]


class PlotScreen(SnapshotScreen):
    """A screen that draws curves."""

    _is_loading = False
    _no_chart: str | None = None

    def can_plot(self) -> bool:
        """Whether the plot library is loaded; if not, load it and show the screen again."""
        if not self._is_loading and not plot.is_loaded():
            # It takes 0.25 s: in a thread.
            self._is_loading = True
            self.run_worker(self._load, thread=True)
        return plot.is_loaded()

    def _load(self) -> None:
        self._no_chart = plot.load_library()
        self.call_later(self._refresh_if_mounted)

    def run_chart(self, curves: Curves | None, run: str, cells: int, height: int) -> list[Line]:
        """The curve of a run over those of all, below a title; empty if it has no values."""
        with_values = () if curves is None else curves.curves_with_values
        curve = next((each for each in with_values if each.key == run), None)
        scale = chart_scale(with_values, False)
        if curves is None or curve is None or scale is None or not self.can_plot():
            return []
        shades = areas(curves.band, OTHER) if len(with_values) > 1 else []
        signs = self.context.options.ascii
        trace = run_trace(curve, CHOSEN, "*")
        lines = plot.chart(shades, [trace], scale, cells, height, braille=not signs)
        title = line((clip(curves.metric, 40), BOLD), "   ")
        title += line((f"{'*' if signs else '━'} {clip(curve.run, 24)}", CHOSEN))
        all_runs = f"{':' if signs else '⣿'} all {len(with_values)} runs" if shades else ""
        heading = join_fitting((title, line((all_runs, OTHER))), line("   "), cells - 1)
        return [line(" ") + heading, *lines] if lines else []
