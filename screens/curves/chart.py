"""Scale, areas and traces of the chart of metric curves. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from metlmon.stats.curves import Curves, MetricBand, MetricCurve
from metlmon.text import formatting
from metlmon.text.formatting import Colour, Weight
from metlmon.text.spans import ALARM, BAD, DIM, Line, TextStyle, join, line
from screens.widgets.plot import Area, Scale, Trace, scale_of

CHOSEN: Final = TextStyle(Colour.SKY, Weight.BOLD)
"""Style of the selected run's curve."""

OTHER: Final = DIM
COHORTS: Final = tuple(
    TextStyle(colour)
    for colour in (Colour.ORANGE, Colour.GREEN, Colour.PURPLE, Colour.YELLOW, Colour.BLUE)
)
"""Styles of the cohorts, used cyclically."""

COHORT_SIGNS: Final = "ox+%&"

MOST_TRACES: Final = 200
"""Maximum number of curves drawn individually."""


def _x(epoch: int) -> float:
    """The place of an epoch on the axis."""
    return float(formatting.epoch_number(epoch))


def scale(curves: Curves, log: bool) -> Scale | None:
    """Return the scale of the chart.

    Values of diverged runs from their divergence on are ignored: they would flatten all others.
    """
    plausible = [
        point.value
        for curve in curves.curves
        for point in curve.points
        if not (curve.diverged and curve.since is not None and point.epoch >= curve.since)
    ]
    points = [point for curve in curves.curves for point in curve.points]
    finite = [value for value in plausible if math.isfinite(value)]
    values = finite or [point.value for point in points]
    return scale_of(values, [_x(point.epoch) for point in points], log)


def out_of_range(curves: Curves, chart_scale: Scale) -> Line:
    """Render the number of values outside the chart, and the extremes."""
    finite = [p.value for c in curves.curves for p in c.points if math.isfinite(p.value)]
    above = [value for value in finite if value > chart_scale.high]
    below = [
        value for value in finite if value < chart_scale.low and (value > 0 or not chart_scale.log)
    ]
    notes = [
        line(
            (
                formatting.count(len(beyond), "value") + f" {side}, to {formatting.metric(end)}",
                ALARM,
            )
        )
        for beyond, side, end in (
            (above, "above", max(above, default=0.0)),
            (below, "below", min(below, default=0.0)),
        )
        if beyond
    ]
    return join(notes, line("  "))


def trace(curve: MetricCurve, style: TextStyle, sign: str) -> Trace:
    """Return the trace of a run."""
    return Trace(tuple((_x(p.epoch), p.value) for p in curve.points), style, sign)


def traces(curves: Sequence[MetricCurve], selected: str | None) -> list[Trace]:
    """Return the traces of all runs: diverged ones over others, the selected on top."""
    drawn_curves = [curve for curve in curves if curve.points][:MOST_TRACES]
    calm = [trace(c, OTHER, ".") for c in drawn_curves if not c.diverged and c.run != selected]
    lost = [trace(c, BAD, "x") for c in drawn_curves if c.diverged and c.run != selected]
    return [*calm, *lost, *(trace(c, CHOSEN, "*") for c in curves if c.run == selected)]


def areas(band: MetricBand, style: TextStyle) -> list[Area]:
    """Return the areas of a band: extremes light, quartiles dense."""
    wide = tuple((_x(level.epoch), level.minimum, level.maximum) for level in band.levels)
    narrow = tuple((_x(level.epoch), level.lower, level.upper) for level in band.levels)
    return [Area(wide, style, False, "."), Area(narrow, style, True, ":")]


def median(band: MetricBand, style: TextStyle, sign: str) -> Trace:
    """Return the median trace of a band."""
    return Trace(
        tuple((_x(level.epoch), level.median) for level in band.levels),
        style,
        sign,
    )
