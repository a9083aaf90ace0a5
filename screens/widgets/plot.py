"""Line charts in the terminal, of eight dots per cell (braille) or one sign per cell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Final

from msgspec import Struct

from metlmon.text import formatting
from metlmon.text.spans import ALARM, DIM, PLAIN, Line, TextStyle, line

ChartPoint = tuple[float, float]

BRAILLE: Final = 0x2800
DOT_BITS: Final = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""First braille character, and the bits of its dots by column, from below (Unicode)."""

EDGE: Final = 1.6e-3
"""Share of a cell by which the ends of a scale are inside the middles of the outer cells."""

_LEAST_TICK_CELLS: Final = 6
"""Minimum distance in cells of the labels below the chart."""

_LINES_PER_TICK: Final = 2
_MOST_TICKS: Final = 6
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
    dots = _dot_lines(tuple(shades), tuple(traces), scale, width, height, braille)
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
    return Scale(first, max(last, first + 1), low, high, log)


# --- labels -------------------------------------------------------------------------------


def _value_labels(scale: Scale, height: int) -> dict[int, str]:
    """Labels of round values by line number, as many as are legible."""
    low, high = scale.height(scale.low), scale.height(scale.high)
    limit = max(2, min(_MOST_TICKS, height // _LINES_PER_TICK))
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
        labels = {
            0: formatting.metric(scale.high),
            height - 1: formatting.metric(scale.low),
        }
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
    """1, 2, 5, 10 … times powers of ten, from below ``about`` on."""
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
    limit = max(1, width // _LEAST_TICK_CELLS)
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


class _Canvas:
    """The cells of a chart: each has braille dots or a sign, in the style drawn last."""

    def __init__(self, scale: Scale, width: int, height: int, braille: bool) -> None:
        self.scale, self.width, self.height, self.braille = scale, width, height, braille
        self.columns, self.rows = (2 * width, 4 * height) if braille else (width, height)
        self._low = scale.height(scale.low)
        self._rise = scale.height(scale.high) - self._low
        self._cells: dict[tuple[int, int], tuple[int | str, TextStyle]] = {}

    def place(self, across: float, up: float) -> tuple[float, float]:
        """The column and row in dots of a place, given as fractions of the scale.

        The ends of the scale are the middles of the outer cells, beside their labels; what is
        above or below is at the edge.
        """
        cell_x = 0.5 + EDGE + across * (self.width - 1 - 2 * EDGE)
        cell_y = 0.5 + EDGE + max(0.0, min(up, 1.0)) * (self.height - 1 - 2 * EDGE)
        return cell_x * self.columns / self.width, cell_y * self.rows / self.height

    def point(self, x: float, y: float) -> tuple[float, float]:
        """The column and row in dots of a point."""
        across = (x - self.scale.first) / (self.scale.last - self.scale.first)
        return self.place(across, (self.scale.height(y) - self._low) / self._rise)

    def dot(self, column: int, row: int, style: TextStyle, sign: str) -> None:
        """Set a dot of a cell; without braille, its sign."""
        if not self.braille:
            self._cells[column, row] = sign, style
            return
        cell = column // 2, row // 4
        dots, _ = self._cells.get(cell, (0, style))
        bits = DOT_BITS[column % 2][row % 4] | (dots if isinstance(dots, int) else 0)
        self._cells[cell] = bits, style

    def sign(self, x: float, y: float, sign: str) -> None:
        """Mark the cell of a point."""
        column, row = self.point(x, y)
        cell = (int(column) // 2, int(row) // 4) if self.braille else (int(column), int(row))
        self._cells[cell] = sign, ALARM

    def path(self, points: Sequence[ChartPoint], style: TextStyle, sign: str) -> None:
        """Draw a line through points, or the dot of one."""
        places = [self.point(x, y) for x, y in points]
        for (x, y), (to_x, to_y) in pairwise(places if len(places) > 1 else places * 2):
            steps = max(abs(int(to_x) - int(x)), abs(int(to_y) - int(y)), 1)
            for step in range(steps + 1):
                part = step / steps
                self.dot(int(x + (to_x - x) * part), int(y + (to_y - y) * part), style, sign)

    def area(self, area: Area) -> None:
        """Fill an area with a regular pattern of dots."""
        spacing = 1 if area.dense else 2
        for column in range(0, self.columns, spacing):
            across = column / max(1, self.columns - 1)
            x = self.scale.first + (self.scale.last - self.scale.first) * across
            edges = _edges_at(area.edges, x)
            if edges is None:
                continue
            bottom, top = ((self.scale.height(edge) - self._low) / self._rise for edge in edges)
            for row in range(column % (2 * spacing), self.rows, 2 * spacing):
                up = row / max(1, self.rows - 1)
                if bottom <= up <= top:
                    dot = self.place(across, up)
                    self.dot(int(dot[0]), int(dot[1]), area.style, area.ascii_mark)

    def lines(self) -> list[Line]:
        """The lines of the chart, each exactly as wide as it."""
        lines: list[Line] = []
        for row in reversed(range(self.height)):
            cells = [self._cells.get((column, row), (" ", PLAIN)) for column in range(self.width)]
            spans = [
                ("".join(s if isinstance(s, str) else chr(BRAILLE + s) for s, _ in group), style)
                for style, group in groupby(cells, key=lambda cell: cell[1])
            ]
            lines.append(line(*spans))
        return lines


@lru_cache(32)
def _dot_lines(
    shades: tuple[Area, ...],
    traces: tuple[Trace, ...],
    scale: Scale,
    width: int,
    height: int,
    braille: bool,
) -> tuple[Line, ...]:
    """The chart without its labels, cached while curves do not change."""
    canvas = _Canvas(scale, width, height, braille)
    for shade in shades:
        canvas.area(shade)
    for trace in traces:
        for is_gap, piece in groupby(trace.points, key=lambda point: math.isnan(point[1])):
            if not is_gap:
                canvas.path(list(piece), trace.style, trace.ascii_mark)
    points = [point for trace in traces for point in trace.points]
    for x, y in points:
        if y > scale.high:
            canvas.sign(x, y, "▲")
    for x, y in points:
        if y < scale.low:
            canvas.sign(x, y, "▼")
    for trace in traces:
        for (x, y), (_, after) in pairwise(trace.points):
            if math.isnan(after) and scale.low <= y <= scale.high:
                canvas.sign(x, y, "✗")
    return tuple(canvas.lines())


def _edges_at(edges: Sequence[tuple[float, float, float]], x: float) -> tuple[float, float] | None:
    """The area's lower and upper edge at ``x``, interpolated between its epochs."""
    for (start, low, high), (end, lower, upper) in pairwise([edges[0], *edges]):
        if start <= x <= end:
            part = (x - start) / (end - start) if end > start else 0.0
            return low + part * (lower - low), high + part * (upper - high)
    return None
