"""Line charts in the terminal: plotext draws the dots, metlmon the axes.

This is the only module that imports plotext, and only when a chart is drawn: loading it takes
a quarter of a second. The colour numbers it writes are mapped back to our styles.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.stats.curves import Curves, MetricBand, MetricCurve
from metlmon.text import formatting
from metlmon.text.formatting import Colour, Weight, clip, clip_middle
from metlmon.text.spans import ALARM, BOLD, DIM, PLAIN, Line, TextStyle, join_fitting, line
from screens.base.screens import SnapshotScreen

ChartPoint = tuple[float, float]

FIRST_COLOUR: Final = 16
"""First colour number passed to plotext; it writes lower ones as other codes."""

_CODE: Final = re.compile(r"\x1b\[([0-9;]*)m")
_MIN_TICK_CELLS: Final = 6
"""Minimum distance in cells of the labels below the chart."""

_LINES_PER_TICK: Final = 2
_MAX_TICKS: Final = 6
"""Maximum number of labels beside the chart; no two are on adjacent lines."""


class Trace(Struct, frozen=True):
    """A line through (epoch, value) points in order of epochs, broken at NaN.

    ``ascii_mark`` is its character without braille.
    """

    points: tuple[ChartPoint, ...]
    style: TextStyle
    ascii_mark: str = "*"


class Area(Struct, frozen=True):
    """An area between two lines: (epoch, lower, upper) in order of epochs.

    ``dense``: every second dot, else every eighth. ``ascii_mark`` is its character without braille.
    """

    edges: tuple[tuple[float, float, float], ...]
    style: TextStyle
    dense: bool
    ascii_mark: str = ":"


class Scale(Struct, frozen=True):
    """The ranges of epochs and values of a chart; ``log``: logarithmic values.

    Points outside are drawn at the edge and marked, and so are ends of lines at NaN.
    """

    first: float
    last: float
    low: float
    high: float
    log: bool = False

    def height(self, value: float) -> float:
        """The value on the (linear or logarithmic) axis."""
        if not self.log:
            return value
        return math.log10(value) if value > 0 else -math.inf


def load_library() -> str | None:
    """Load plotext, which takes a while, in any thread; returns an error or None."""
    try:
        import plotext
    except Exception as problem:
        return f"plotext cannot be loaded: {problem}"
    return None if hasattr(plotext, "pixel") else "plotext 6 or later is needed"


def is_loaded() -> bool:
    return all(hasattr(sys.modules.get("plotext"), name) for name in ("figure", "pixel"))


def chart(
    shades: Sequence[Area],
    traces: Sequence[Trace],
    scale: Scale,
    cells: int,
    height: int,
    braille: bool,
) -> list[Line]:
    """A chart of ``height`` lines with value labels, and a line of epoch labels below.

    Later traces are drawn over earlier ones; ``braille``: with eight dots per cell, else with the
    sign of each trace. Empty if there is no room.
    """
    labels = _value_labels(scale, height)
    label_width = max((len(text) for text in labels.values()), default=0)
    width = cells - label_width - 3
    if width < 10 or height < 2:
        return []
    first = scale.first
    shades = [replace(s, edges=tuple(e for e in s.edges if e[0] >= first)) for s in shades]
    traces = [replace(t, points=tuple(p for p in t.points if p[0] >= first)) for t in traces]
    dots = _dot_lines(tuple(shades), tuple(traces), scale, width, height=height, braille=braille)
    lines = [
        line((f" {labels.get(row, ''):>{label_width}} {'┤' if row in labels else '│'}", DIM))
        + dots[row]
        for row in range(height)
    ]
    return [*lines, line((" " * (label_width + 3) + _epoch_labels(scale, width), DIM))]


def scale_of(values: Iterable[float], epochs: Iterable[float], log: bool) -> Scale | None:
    """A scale with all of these; None without a finite (``log``: positive) value."""
    finite = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    places = list(epochs)
    if not finite or not places:
        return None
    low, high = min(finite), max(finite)
    if low == high:
        # Put a single value in the middle.
        low, high = (low / 2, high * 2) if log else (low - abs(low) / 10, high + abs(high) / 10)
    if low == high:
        low, high = low - 1, high + 1
    first, last = min(places), max(places)
    return Scale(first, max(last, first + 1), low, high, log=log)


# --- labels -------------------------------------------------------------------------------


def _value_labels(scale: Scale, height: int) -> dict[int, str]:
    """Labels of round values by line number, as many as are legible."""
    low, high = scale.height(scale.low), scale.height(scale.high)
    limit = max(2, min(_MAX_TICKS, height // _LINES_PER_TICK))
    line_height = (high - low) / (height - 1)
    minimum_step = _LINES_PER_TICK * line_height
    values = (
        _round_powers(scale, limit) if scale.log else _round_values(low, high, limit, minimum_step)
    )
    labels = {}
    for value in values:
        row = round((high - scale.height(value)) / line_height)
        labels[row] = formatting.metric(float(f"{value:.10g}"))
    if len(labels) < 2:
        labels = {0: formatting.metric(scale.high), height - 1: formatting.metric(scale.low)}
    return labels


def _round_values(low: float, high: float, limit: int, minimum_step: float) -> list[float]:
    for step in _steps((high - low) / limit / 2):
        values = _multiples(low, high, step)
        if len(values) <= limit and step >= minimum_step:
            return values
    return []


def _round_powers(scale: Scale, limit: int) -> list[float]:
    """Ticks 1, 2, 3 … 10; with less room 1, 2, 5, 10, or powers of ten, or fewer."""
    first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    powers = range(first, last + 1)
    for ticks in (
        [times * 10.0**power for power in powers for times in range(1, 10)],
        [times * 10.0**power for power in powers for times in (1, 2, 5)],
        *([10.0**power for power in powers[::step]] for step in (1, 2, 3, 5, 10, 20, 50)),
    ):
        visible = [value for value in ticks if scale.low <= value <= scale.high]
        if len(visible) <= limit:
            return visible
    return []


def _steps(about: float) -> Iterable[float]:
    """1, 2, 5, 10 … times powers of ten, starting below ``about``."""
    power = 10.0 ** math.floor(math.log10(about))
    for _ in range(5):
        for times in (1, 2, 5):
            yield times * power
        power *= 10


def _multiples(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [multiple * step for multiple in range(first, last + 1)]


def _epoch_labels(scale: Scale, width: int) -> str:
    span = scale.last - scale.first
    limit = max(1, width // _MIN_TICK_CELLS)
    step = next(
        candidate
        for candidate in _steps(max(1.0, span / limit))
        if candidate >= 1 and span / candidate <= limit
    )
    labels = ""
    for value in _multiples(scale.first, scale.last, step):
        text = str(round(value))
        position = round((value - scale.first) / span * (width - 1)) - len(text) // 2
        position = max(0, min(position, width - len(text)))
        if not labels or position > len(labels):
            labels = labels.ljust(position) + text
    return labels


# --- dots ---------------------------------------------------------------------------------


@lru_cache(32)
def _dot_lines(
    shades: tuple[Area, ...],
    traces: tuple[Trace, ...],
    scale: Scale,
    width: int,
    height: int,
    braille: bool,
) -> tuple[Line, ...]:
    """The dots as lines of exactly ``width`` cells, cached while curves do not change."""
    import plotext

    styles = list(dict.fromkeys([*(s.style for s in shades), *(t.style for t in traces), ALARM]))
    colour = {style: FIRST_COLOUR + index for index, style in enumerate(styles)}
    figure = plotext.figure
    plotext.terminal.limit(False, False)
    figure.clear.all()
    figure.plot_size(width, height)
    figure.axes(False)
    figure.legend(False)
    figure.canvas("default")
    for axis in ("x", "y"):
        figure.ruler(axis).frequency(0)
    figure.ruler("x").lim(scale.first, scale.last)
    low, high = scale.height(scale.low), scale.height(scale.high)
    figure.ruler("y").lim(low, high)

    def draw(
        places: Sequence[ChartPoint], style: TextStyle, sign: str, joined: bool = False
    ) -> None:
        if places:
            marker = plotext.marker(sign, plotext.pixel(colour[style]))
            signal = figure.signal([x for x, _ in places], [y for _, y in places], marker=marker)
            figure.draw(signal.lines() if joined else signal)

    dots_per_cell = (2, 4) if braille else (1, 1)
    for shade in shades:
        dots = _area_dots(shade, scale, width * dots_per_cell[0], height * dots_per_cell[1])
        draw(dots, shade.style, "braille" if braille else shade.ascii_mark)
    for trace in traces:
        sign = "braille" if braille else trace.ascii_mark
        for piece in _pieces(trace.points, scale):
            draw(piece, trace.style, sign, joined=len(piece) > 1)
    points = [point for trace in traces for point in trace.points]
    draw([(x, high) for x, y in points if y > scale.high], ALARM, "▲")
    draw([(x, low) for x, y in points if y < scale.low], ALARM, "▼")
    draw([end for trace in traces for end in _ends(trace.points, scale)], ALARM, "✗")
    return tuple(_styled_lines(figure.build().string(), styles, width, height))


def _pieces(places: Sequence[ChartPoint], scale: Scale) -> list[list[ChartPoint]]:
    """The parts of a line between gaps; points outside are moved to the edge."""
    low, high = scale.height(scale.low), scale.height(scale.high)
    pieces: list[list[ChartPoint]] = [[]]
    for x, y in places:
        if math.isnan(y):
            pieces.append([])
        else:
            pieces[-1].append((x, min(high, max(low, scale.height(y)))))
    return [piece for piece in pieces if piece]


def _ends(places: Sequence[ChartPoint], scale: Scale) -> list[ChartPoint]:
    """The last points before NaN that are on the chart."""
    return [
        (x, scale.height(y))
        for (x, y), (_, after) in pairwise(places)
        if math.isnan(after) and scale.low <= y <= scale.high
    ]


def _area_dots(shade: Area, scale: Scale, columns: int, rows: int) -> list[ChartPoint]:
    """The dots of a regular pattern inside the area."""
    low, high = scale.height(scale.low), scale.height(scale.high)
    spacing = 1 if shade.dense else 2
    dots: list[ChartPoint] = []
    for column in range(0, columns, spacing):
        x = scale.first + (scale.last - scale.first) * column / max(1, columns - 1)
        edges = _edges_at(shade.edges, x)
        if edges is None:
            continue
        bottom, top = scale.height(edges[0]), scale.height(edges[1])
        for row in range(column % (2 * spacing), rows, 2 * spacing):
            y = low + (high - low) * row / max(1, rows - 1)
            if bottom <= y <= top:
                dots.append((x, y))
    return dots


def _edges_at(edges: Sequence[tuple[float, float, float]], x: float) -> tuple[float, float] | None:
    """The area's lower and upper edge at ``x``, interpolated between its epochs."""
    for (start, low, high), (end, lower, upper) in pairwise([*edges[:1], *edges]):
        if start <= x <= end:
            fraction = (x - start) / (end - start) if end > start else 0.0
            return low + fraction * (lower - low), high + fraction * (upper - high)
    return None


def _styled_lines(output: str, styles: Sequence[TextStyle], width: int, height: int) -> list[Line]:
    """Plotext's output as lines in our styles."""
    lines: list[Line] = []
    for row in output.split("\n")[:height]:
        spans: list[tuple[str, TextStyle]] = []
        style, position = PLAIN, 0
        for code in _CODE.finditer(row):
            spans.append((row[position : code.start()], style))
            style, position = _style_of_code(code.group(1), styles, style), code.end()
        spans.append((row[position:], style))
        length = sum(len(text) for text, _ in spans)
        lines.append(line(*spans, " " * (width - length)))
    return lines + [line(" " * width)] * (height - len(lines))


def _style_of_code(code: str, styles: Sequence[TextStyle], current: TextStyle) -> TextStyle:
    parts = code.split(";")
    if parts[:2] == ["38", "5"] and len(parts) > 2 and parts[2].isdecimal():
        index = int(parts[2]) - FIRST_COLOUR
        return styles[index] if 0 <= index < len(styles) else PLAIN
    return PLAIN if parts[0] in ("", "0") else current


# --- what is drawn, and the base class of screens that draw it ------------------------

CHOSEN: Final = TextStyle(Colour.SKY, Weight.BOLD)
"""Style of the selected run's curve."""

OTHER: Final = DIM


def place(epoch: int) -> float:
    """The position of an epoch on the axis."""
    return float(formatting.epoch_number(epoch))


def chart_scale(curves: Sequence[MetricCurve], log: bool, zoom: int = 0) -> Scale | None:
    """Return the scale of the chart; ``zoom``: how often the first half of the epochs is dropped.

    Values of diverged runs are ignored, as they would flatten others; of the only runs there are,
    those from their divergence onwards.
    """
    epochs = [point.epoch for curve in curves for point in curve.points]
    last = max(epochs, default=0)
    first = last - max(1, (last - min(epochs, default=0)) // 2**zoom)
    shown = [(curve, each) for curve in curves for each in curve.points if each.epoch >= first]
    steady = [each.value for curve, each in shown if not curve.diverged]
    before = [
        each.value
        for curve, each in shown
        if curve.since_epoch is not None and each.epoch < curve.since_epoch
    ]
    known = ([value for value in values if math.isfinite(value)] for values in (steady, before))
    values = next(filter(None, known), [each.value for _, each in shown])
    return scale_of(values, [place(each.epoch) for _, each in shown], log)


def run_trace(curve: MetricCurve, style: TextStyle, sign: str) -> Trace:
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
        if not self._is_loading and not is_loaded():
            # It takes 0.25 s: in a thread.
            self._is_loading = True
            self.run_worker(self._load, thread=True)
        return is_loaded()

    def _load(self) -> None:
        self._no_chart = load_library()
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
        lines = chart(shades, [trace], scale, cells, height, braille=not signs)
        title = line((clip(curves.metric, 40), BOLD), "   ")
        title += line((f"{'*' if signs else '━'} {clip_middle(curve.run, 24)}", CHOSEN))
        all_runs = f"{':' if signs else '⣿'} all {len(with_values)} runs" if shades else ""
        heading = join_fitting((title, line((all_runs, OTHER))), line("   "), cells - 1)
        return [line(" ") + heading, *lines] if lines else []
