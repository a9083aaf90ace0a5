"""Charts of curves in the terminal: plotext draws the dots, axes and inks are our own.

The one place that imports plotext, and only when a chart is drawn: it loads a library of a
quarter of a second. It is given numbers and asked for dots; the colours it writes are only
numbers that stand for our inks.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from metlmon.frozen import frozen
from metlmon.text import formatting
from screens.widgets.spans import ALARM, DIM, PLAIN, Line, TextStyle, line

Place = tuple[float, float]

FIRST_COLOUR: Final = 16
"""Plotext is told a colour number for each ink; those below it spells in other ways."""

_CODE: Final = re.compile(r"\x1b\[([0-9;]*)m")
_LEAST_TICK_CELLS: Final = 6
"""Cells from one label below the chart to the next."""

_LINES_PER_TICK: Final = 2
_MOST_TICKS: Final = 6
"""Labels beside the chart: each has its line, and none the line next to another's."""


@frozen
class Trace:
    """A line through places (epoch, value) in order of epochs; it is broken at NaN. ``sign`` is
    what draws it in ASCII."""

    places: tuple[Place, ...]
    ink: TextStyle
    sign: str = "*"


@frozen
class Shade:
    """An area between two lines: (epoch, lower, upper) in order of epochs. ``dense``: every
    second dot, else every eighth. ``sign`` as for lines."""

    edges: tuple[tuple[float, float, float], ...]
    ink: TextStyle
    dense: bool
    sign: str = ":"


@frozen
class Scale:
    """What the chart shows: epochs and values from … to …; ``log``: values by their logarithm.
    What lies outside is drawn at
    the edge, and marked; so is where a line ends in what is no number."""

    first: float
    last: float
    low: float
    high: float
    log: bool = False

    def height(self, value: float) -> float:
        """The value as it is drawn."""
        if not self.log:
            return value
        return math.log10(value) if value > 0 else -math.inf


def load() -> str | None:
    """Load what draws; it may take a while, and be called in any thread. Why it cannot be
    loaded, or None."""
    try:
        import plotext
    except (ImportError, OSError) as problem:
        return f"plotext cannot be loaded: {problem}"
    return None if hasattr(plotext, "pixel") else "plotext 6 or later is needed"


def loaded() -> bool:
    """Would a chart be drawn at once?"""
    return all(hasattr(sys.modules.get("plotext"), name) for name in ("figure", "pixel"))


def chart(
    shades: Sequence[Shade],
    traces: Sequence[Trace],
    scale: Scale,
    cells: int,
    height: int,
    ascii: bool,
) -> list[Line]:
    """``height`` lines of dots with the values beside them, and a line of epochs below. Later
    traces are drawn over earlier ones. Nothing where there is no room."""
    labels = _value_labels(scale, height)
    side = max((len(text) for text in labels.values()), default=0)
    wide = cells - side - 3
    if wide < 10 or height < 2:
        return []
    dots = _canvas(tuple(shades), tuple(traces), scale, wide, height, ascii)
    bar, tick = ("|", "+") if ascii else ("│", "┤")
    lines = [
        line((f" {labels.get(row, ''):>{side}} {tick if row in labels else bar}", DIM)) + dots[row]
        for row in range(height)
    ]
    return [*lines, line((" " * (side + 3) + _epoch_labels(scale, wide), DIM))]


def scale_of(values: Iterable[float], epochs: Iterable[float], log: bool) -> Scale | None:
    """A scale that holds all of these; None when there is no finite value among them, or for a
    logarithm none above 0."""
    finite = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    places = list(epochs)
    if not finite or not places:
        return None
    low, high = min(finite), max(finite)
    if low == high:
        # One value alone is drawn in the middle.
        low, high = (low / 2, high * 2) if log else (low - abs(low) / 10, high + abs(high) / 10)
    if low == high:
        low, high = low - 1, high + 1
    first, last = min(places), max(places)
    return Scale(first, max(last, first + 1), low, high, log)


# --- labels -------------------------------------------------------------------------------


def _value_labels(scale: Scale, height: int) -> dict[int, str]:
    """Round values beside the lines at whose height they are, as many as are legible."""
    low, high = scale.height(scale.low), scale.height(scale.high)
    most = max(2, min(_MOST_TICKS, height // _LINES_PER_TICK))
    line_height = (high - low) / (height - 1)
    least = _LINES_PER_TICK * line_height
    values = _round_powers(scale, most) if scale.log else _round_values(low, high, most, least)
    found = {}
    for value in values:
        row = round((high - scale.height(value)) / line_height)
        found[row] = formatting.metric(float(f"{value:.10g}"), ascii=True)
    if len(found) < 2:
        found = {
            0: formatting.metric(scale.high, True),
            height - 1: formatting.metric(scale.low, True),
        }
    return found


def _round_values(low: float, high: float, most: int, least: float) -> list[float]:
    for step in _steps((high - low) / most / 2):
        values = _rounds(low, high, step)
        if len(values) <= most and step >= least:
            return values
    return []


def _round_powers(scale: Scale, most: int) -> list[float]:
    """1, 2, 3 … 10, or 1, 2, 5, 10 where there is less room, else powers of ten, or fewer."""
    first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    powers = range(first, last + 1)
    for made in (
        [times * 10.0**power for power in powers for times in range(1, 10)],
        [times * 10.0**power for power in powers for times in (1, 2, 5)],
        *([10.0**power for power in powers[::step]] for step in (1, 2, 3, 5, 10, 20, 50)),
    ):
        kept = [value for value in made if scale.low <= value <= scale.high]
        if len(kept) <= most:
            return kept
    return []


def _steps(about: float) -> Iterable[float]:
    """1, 2, 5, 10 … times powers of ten, from somewhat below ``about`` on."""
    power = 10.0 ** math.floor(math.log10(about))
    for _ in range(5):
        for times in (1, 2, 5):
            yield times * power
        power *= 10


def _rounds(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [each * step for each in range(first, last + 1)]


def _epoch_labels(scale: Scale, wide: int) -> str:
    span = scale.last - scale.first
    most = max(1, wide // _LEAST_TICK_CELLS)
    step = next(s for s in _steps(max(1.0, span / most)) if s >= 1 and span / s <= most)
    out = ""
    for value in _rounds(scale.first, scale.last, step):
        text = str(round(value))
        at = round((value - scale.first) / span * (wide - 1)) - len(text) // 2
        at = max(0, min(at, wide - len(text)))
        if not out or at > len(out):
            out = out.ljust(at) + text
    return out


# --- dots ---------------------------------------------------------------------------------


@lru_cache(32)
def _canvas(
    shades: tuple[Shade, ...],
    traces: tuple[Trace, ...],
    scale: Scale,
    wide: int,
    height: int,
    ascii: bool,
) -> tuple[Line, ...]:
    """The dots as lines of exactly ``wide`` cells. Kept: the clock ticks, the curves do not."""
    import plotext

    inks = list(dict.fromkeys([*(s.ink for s in shades), *(t.ink for t in traces), ALARM]))
    colour = {ink: FIRST_COLOUR + place for place, ink in enumerate(inks)}
    figure = plotext.figure
    plotext.terminal.limit(False, False)
    figure.clear.all()
    figure.plot_size(wide, height)
    figure.axes(False)
    figure.legend(False)
    figure.canvas("default")
    for axis in ("x", "y"):
        figure.ruler(axis).frequency(0)
    figure.ruler("x").lim(scale.first, scale.last)
    figure.ruler("y").lim(scale.height(scale.low), scale.height(scale.high))

    def draw(places: Sequence[Place], ink: TextStyle, sign: str, joined: bool) -> None:
        if places:
            marker = plotext.marker(sign, plotext.pixel(colour[ink]))
            signal = figure.signal([x for x, _ in places], [y for _, y in places], marker=marker)
            figure.draw(signal.lines() if joined else signal)

    fine = (1, 1) if ascii else (2, 4)
    for shade in shades:
        dots = _stippled(shade, scale, wide * fine[0], height * fine[1])
        draw(dots, shade.ink, shade.sign if ascii else "braille", joined=False)
    gone: list[Place] = []
    fallen: list[Place] = []
    for trace in traces:
        for piece in _pieces(trace.places, scale):
            draw(piece, trace.ink, trace.sign if ascii else "braille", joined=len(piece) > 1)
        above, below = _outside(trace.places, scale)
        gone, fallen = [*gone, *above], [*fallen, *below]
    draw(gone, ALARM, "^" if ascii else "▲", joined=False)
    draw(fallen, ALARM, "v" if ascii else "▼", joined=False)
    ends = [place for trace in traces for place in _ending(trace.places, scale)]
    draw(ends, ALARM, "X" if ascii else "✗", joined=False)
    return tuple(_lines(figure.build().string(), inks, wide, height))


def _pieces(places: Sequence[Place], scale: Scale) -> list[list[Place]]:
    """A line's parts without gaps; what lies outside is drawn at the edge, at its epoch."""
    low, high = scale.height(scale.low), scale.height(scale.high)
    pieces: list[list[Place]] = [[]]
    for x, y in places:
        if math.isnan(y):
            pieces.append([])
        else:
            pieces[-1].append((x, min(high, max(low, scale.height(y)))))
    return [piece for piece in pieces if piece]


def _outside(places: Sequence[Place], scale: Scale) -> tuple[list[Place], list[Place]]:
    """Where a line is above the chart, and where it is below it."""
    low, high = scale.height(scale.low), scale.height(scale.high)
    above = [(x, high) for x, y in places if y > scale.high]
    return above, [(x, low) for x, y in places if y < scale.low]


def _ending(places: Sequence[Place], scale: Scale) -> list[Place]:
    """The last places before what is no number, where they are on the chart."""
    return [
        (x, scale.height(y))
        for (x, y), (_, after) in pairwise(places)
        if math.isnan(after) and scale.low <= y <= scale.high
    ]


def _stippled(shade: Shade, scale: Scale, columns: int, rows: int) -> list[Place]:
    """Dots of a regular pattern that lie inside the area."""
    low, high = scale.height(scale.low), scale.height(scale.high)
    half = 1 if shade.dense else 2
    dots: list[Place] = []
    for column in range(0, columns, half):
        x = scale.first + (scale.last - scale.first) * column / max(1, columns - 1)
        edges = _between(shade.edges, x)
        if edges is None:
            continue
        bottom, top = scale.height(edges[0]), scale.height(edges[1])
        for row in range(column % (2 * half), rows, 2 * half):
            y = low + (high - low) * row / max(1, rows - 1)
            if bottom <= y <= top:
                dots.append((x, y))
    return dots


def _between(edges: Sequence[tuple[float, float, float]], x: float) -> tuple[float, float] | None:
    """The area's lower and upper edge at ``x``, on straight lines between its epochs."""
    for at, (end, lower, upper) in enumerate(edges):
        if x > end:
            continue
        if at == 0:
            return (lower, upper) if x == end else None
        start, low, high = edges[at - 1]
        part = (x - start) / (end - start)
        return low + part * (lower - low), high + part * (upper - high)
    return None


def _lines(drawn: str, inks: Sequence[TextStyle], wide: int, height: int) -> list[Line]:
    """What plotext wrote, as lines in our inks."""
    lines: list[Line] = []
    for row in drawn.split("\n")[:height]:
        spans: list[tuple[str, TextStyle]] = []
        now, at, used = PLAIN, 0, 0
        for code in _CODE.finditer(row):
            spans.append((row[at : code.start()], now))
            now, at = _ink_of(code.group(1), inks, now), code.end()
        spans.append((row[at:], now))
        used = sum(len(text) for text, _ in spans)
        lines.append(line(*spans, " " * (wide - used)))
    return lines + [line(" " * wide)] * (height - len(lines))


def _ink_of(code: str, inks: Sequence[TextStyle], now: TextStyle) -> TextStyle:
    parts = code.split(";")
    if parts[:2] == ["38", "5"] and len(parts) > 2 and parts[2].isdecimal():
        place = int(parts[2]) - FIRST_COLOUR
        return inks[place] if 0 <= place < len(inks) else PLAIN
    return PLAIN if parts[0] in ("", "0") else now
