"""Formats a report as one self-contained HTML file.

The template ``page.html.j2`` includes style and figures, for light, dark and narrow screens and
for print. It escapes all text; in case any is missed, the page's content security policy forbids
scripts and network access.

Each chart is one scalable ``<svg>`` with round ticks and real text, all of it escaped. Colours are
CSS variables of the page (``--c0`` … ``--c7``, ``--ink``, ``--faint``, ``--rule``, ``--paper``), so
only these differ between light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from html import escape
from itertools import groupby
from typing import Any, Final

from markupsafe import Markup
from msgspec import Struct

from metlmon import __version__
from metlmon.report.document import (
    BandSeries,
    BoxChart,
    Chart,
    CurveChart,
    LevelChart,
    Report,
    ReportFigure,
    TimeChart,
    load_template,
    sanitize,
)
from metlmon.report.usage import BoxPlot
from metlmon.stats.windows import MONTHS, round_times
from metlmon.tables.layout import Column
from metlmon.tables.timeline_text import TIME_STEPS
from metlmon.text.formatting import DAY, HOUR, MINUTE, THIN, clip, day, exact_hours, metric, plain

MARK: Final = '<meta name="generator" content="metlmon '
"""Identifies a file as a report, within its first lines."""


def render_html(report: Report) -> str:
    """The HTML file of a report."""

    def svg(figure: ReportFigure) -> Markup:
        # render_svg escapes its text.
        return Markup(render_svg(figure, report.prose))

    def unbroken(heading: str) -> str:
        """A heading without line breaks within GPU-hours."""
        return report.prose(heading).replace("GPU-", "GPU\u2011")

    def heading_groups(columns: Sequence[Column[Any]]) -> list[tuple[str, list[Column[Any]]]]:
        """Adjacent columns with the same group heading, which may be empty."""
        return [(group, list(members)) for group, members in groupby(columns, lambda c: c.group)]

    functions = {"sanitize": sanitize, "prose": report.prose, "unbroken": unbroken, "svg": svg}
    functions["heading_groups"] = heading_groups
    template = load_template("page.html.j2", autoescape=True)
    return template.render(functions, report=report, version=__version__)


# --- charts as SVG ------------------------------------------------------------------------------

WIDTH: Final = 720
"""Width of the view box; on a page of this width text is 12 pixels high."""

HEIGHT: Final = 190
"""Height of the plot area of a chart over time."""

LETTER_WIDTH: Final = 7.0
CAPITAL_WIDTH: Final = 8.6
"""Assumed widths of 12-pixel letters, those of a wide sans-serif, so that any font fits."""

LINE_HEIGHT: Final = 16
TOP: Final = 14
RIGHT: Final = 14
BOX_ROW_HEIGHT: Final = 26
LEVEL_ROW_HEIGHT: Final = 24
MAX_NAME_LENGTH: Final = 34
"""Maximum length of the name of a bar or box."""

VALUE_TICKS: Final = 5
"""Approximate number of ticks on a value axis."""

EPSILON: Final = 1e-6
"""Smaller values are drawn as 0."""

TIME_TICKS: Final = 8
"""Maximum number of ticks on a time axis."""

MIN_LABEL_GAP: Final = 15
"""Minimum distance of the base lines of two labels at the ends of lines."""


def render_svg(figure: ReportFigure, prose: Callable[[str], str] = sanitize) -> str:
    """Return the ``<svg>`` of one figure; its ids begin with the figure's key."""
    canvas = _Canvas(prose)
    height = _draw(canvas, figure.chart)
    key = escape(figure.key, quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH} {_n(height)}" width="{WIDTH}" height="{_n(height)}" '
        f'role="img" aria-labelledby="{key}-t {key}-d">'
        f'<title id="{key}-t">{_text(prose(figure.caption))}</title>'
        f'<desc id="{key}-d">{_text(prose(figure.summary))}</desc>'
        f"{''.join(canvas.parts)}</svg>"
    )


def _draw(canvas: _Canvas, chart: Chart) -> float:
    if isinstance(chart, TimeChart):
        return _bars(canvas, chart) if chart.kind == "bars" else _lines(canvas, chart)
    if isinstance(chart, BoxChart):
        return _boxes(canvas, chart)
    if isinstance(chart, CurveChart):
        return _curves(canvas, chart)
    return _levels(canvas, chart)


def _text(text: str) -> str:
    return escape(sanitize(text))


def _width(text: str) -> float:
    """Return the maximum width of a text, in units of the view box."""
    return sum(
        CAPITAL_WIDTH if letter.isupper() or letter in "@%" else LETTER_WIDTH for letter in text
    )


def _n(value: float) -> str:
    """Format a coordinate."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


# --- the canvas ---------------------------------------------------------------------------------


class _Canvas:
    """Collects the elements of one drawing; ``prose`` writes units and headings."""

    def __init__(self, prose: Callable[[str], str]) -> None:
        self.parts: list[str] = []
        self.prose = prose

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.parts.append(
            f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" class="{kind}"/>'
        )

    def rect(self, x: float, y: float, width: float, height: float, colour: int) -> None:
        self.parts.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(max(0.0, width))}" '
            f'height="{_n(max(0.0, height))}" fill="var(--c{colour})"/>'
        )

    def path(self, d: str, kind: str, paint: str, colour: int) -> None:
        """Add a path; ``paint``: fill or stroke."""
        self.parts.append(f'<path d="{d}" class="{kind}" {paint}="var(--c{colour})"/>')

    def text(self, x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> None:
        classes = f' class="{kind}"' if kind else ""
        self.parts.append(
            f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"{classes}>{_text(text)}</text>'
        )

    def legend(self, bands: Sequence[BandSeries], left: float) -> float:
        """Draw the names of the bands; return the height of the lines needed."""
        x, y = left, LINE_HEIGHT - 4.0
        for band in bands:
            name = clip(plain(band.name), MAX_NAME_LENGTH)
            width = 18 + _width(name) + 14
            if x > left and x + width > WIDTH - RIGHT:
                x, y = left, y + LINE_HEIGHT
            self.rect(x, y - 10, 12, 12, colour=band.colour)
            self.text(x + 18, y, name)
            x += width
        return y + 10


# --- axes ---------------------------------------------------------------------------------------


def nice_ticks(highest: float, about: int = VALUE_TICKS, whole: bool = False) -> list[float]:
    """Return round values from 0 to at least ``highest``; ``whole``: integers only."""
    if highest < EPSILON:
        return [0.0, 1.0]
    rough = highest / about
    power = 10.0 ** math.floor(math.log10(rough))
    factors = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = next(power * m for m in factors if power * m >= rough * (1 - 1e-9))
    if whole:
        step = max(1.0, float(math.ceil(step)))
    steps = math.ceil(highest / step - 1e-9)
    return [round(n * step, 12) for n in range(steps + 1)]


def tick_text(value: float, step: float) -> str:
    """Format the value of a tick with the decimals that ``step`` needs."""
    decimals = 0
    while decimals < 12 and not math.isclose(step * 10**decimals, round(step * 10**decimals)):
        decimals += 1
    return f"{value:,.{decimals}f}".replace(",", THIN)


_MONTH_STEPS: Final = (1, 2, 3, 6, 12, 24, 60, 120, 240)


def time_ticks(first: datetime, last: datetime) -> list[datetime]:
    """Return round times in a range, with the finest step for at most ``TIME_TICKS``."""
    span = (last - first).total_seconds()
    steps = [{"seconds": n} for n in TIME_STEPS if span / n <= TIME_TICKS]
    steps += [{"months": n} for n in _MONTH_STEPS if span / (28 * DAY * n) <= TIME_TICKS]
    for step in steps:
        ticks = [tick for tick in round_times(first, last, **step) if tick >= first]
        if len(ticks) <= TIME_TICKS:
            return ticks
    return [first, last]


def _tick_label(tick: datetime, ticks: Sequence[datetime]) -> str:
    if any(tick.hour or tick.minute for tick in ticks):
        return f"{tick:%H:%M}"
    month = MONTHS[tick.month - 1][:3]
    if len(ticks) > 1 and all(tick.day == 1 for tick in ticks):
        return f"{month}" if any(tick.month != ticks[0].month for tick in ticks) else ""
    return f"{tick.day} {month}"


class _Plot(Struct, frozen=True):
    """The plot area of a chart over time, with the scales of its axes."""

    left: float
    top: float
    right: float
    bottom: float
    first: datetime
    last: datetime
    highest: float

    def x(self, moment: datetime) -> float:
        span = (self.last - self.first).total_seconds() or 1.0
        share = (moment - self.first).total_seconds() / span
        return self.left + min(1.0, max(0.0, share)) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - value / self.highest * (self.bottom - self.top)


def _plot(canvas: _Canvas, chart: TimeChart, highest: float, *, top: float, right: float) -> _Plot:
    """Draw both axes."""
    ticks = nice_ticks(highest, whole=chart.unit.startswith("epochs"))
    step = ticks[1] - ticks[0]
    names = [tick_text(tick, step) for tick in ticks]
    left = 30 + max(map(_width, names))
    first, last = chart.moments[0], chart.moments[-1]
    plot = _Plot(left, top, right, top + HEIGHT, first, last, ticks[-1])
    for tick, name in zip(ticks, names, strict=True):
        y = plot.y(tick)
        canvas.line(left, y, right, y, "axis" if not tick else "grid")
        canvas.text(left - 8, y + 4, name, "end")
    _unit_label(canvas, chart.unit, (plot.top + plot.bottom) / 2)
    _time_axis(canvas, plot)
    return plot


def _time_axis(canvas: _Canvas, plot: _Plot) -> None:
    ticks = time_ticks(plot.first, plot.last)
    shown_context = ""
    for tick in ticks:
        x = plot.x(tick)
        canvas.line(x, plot.bottom, x, plot.bottom + 5, "axis")
        name = _tick_label(tick, ticks) or str(tick.year)
        canvas.text(_clamp_centre(x, name), plot.bottom + 18, name, "middle")
        hours = any(tick.hour or tick.minute for tick in ticks)
        context = day(tick) if hours else str(tick.year)
        if context != shown_context:
            middle = _clamp_centre(x, context)
            canvas.text(middle, plot.bottom + 32, context, "middle", kind="faint")
            shown_context = context


def _clamp_centre(x: float, text: str) -> float:
    """Return the centre for a text, as close to ``x`` as it fits into the drawing."""
    half = _width(text) / 2
    return min(max(x, half), WIDTH - half)


# --- charts over time ---------------------------------------------------------------------------

AXIS_HEIGHT: Final = 40
"""Height below a plot over time, for tick labels and the year."""


def _lines(canvas: _Canvas, chart: TimeChart) -> float:
    is_stacked = chart.kind == "areas"
    ends = [band.values[-1] for band in chart.bands]
    highest = sum(ends) if is_stacked else max(max(band.values) for band in chart.bands)
    labels = [
        f"{_end_value(value, highest)} {canvas.prose(band.name)}"
        for band, value in zip(chart.bands, ends, strict=True)
    ]
    right = WIDTH - 26 - max(map(_width, labels))
    plot = _plot(canvas, chart, highest, top=TOP, right=right)

    def points(values: Sequence[float]) -> list[str]:
        pairs = zip(chart.moments, values, strict=True)
        return [f"{_n(plot.x(moment))} {_n(plot.y(value))}" for moment, value in pairs]

    floor = [0.0] * len(chart.moments)
    marks: list[tuple[float, str, int]] = []
    for band, label in zip(chart.bands, labels, strict=True):
        if is_stacked:
            above = [low + value for low, value in zip(floor, band.values, strict=True)]
            up, back = "L".join(points(above)), "L".join(reversed(points(floor)))
            canvas.path(f"M{up}L{back}Z", "area", "fill", band.colour)
            canvas.path(f"M{up}", "edge", "stroke", band.colour)
            marks.append((plot.y((floor[-1] + above[-1]) / 2), label, band.colour))
            floor = above
        else:
            first, *steps = (point.split() for point in points(band.values))
            d = f"M{first[0]} {first[1]}" + "".join(f"H{x}V{y}" for x, y in steps)
            canvas.path(d, "line", "stroke", band.colour)
            marks.append((plot.y(band.values[-1]), label, band.colour))
    _end_labels(canvas, marks, right, plot.bottom)
    return plot.bottom + AXIS_HEIGHT


def _end_value(value: float, highest: float) -> str:
    """Format the value at the end of a line, with about three digits of ``highest``."""
    if value == round(value):
        return tick_text(value, 1)
    digits = 0 if highest >= 100 else 1 if highest >= 10 else 2 if highest >= 1 else 4
    return exact_hours(value, digits)


# --- curves over epochs -------------------------------------------------------------------------

MAX_EPOCH_TICKS: Final = 10

GREY: Final = 7
"""Colour of curves that are not among the best."""


def _curves(canvas: _Canvas, chart: CurveChart) -> float:
    ends = [
        (f"{metric(line.points[-1][1])} {line.name}", line)
        for line in chart.lines
        if line.colour is not None
    ]
    step, ticks = range_ticks(chart.low, chart.high)
    names = [tick_text(tick, step) for tick in ticks]
    left = 30 + max(map(_width, names), default=0.0)
    right = WIDTH - 26 - max((_width(label) for label, _ in ends), default=0.0)
    top, bottom = float(TOP), float(TOP + HEIGHT)
    last = max(epoch for line in chart.lines for epoch, _ in line.points)

    def x(epoch: int) -> float:
        return left + (epoch - 1) / max(1, last - 1) * (right - left)

    def y(value: float) -> float:
        inside = min(max(value, chart.low), chart.high)
        return bottom - (inside - chart.low) / (chart.high - chart.low) * (bottom - top)

    for tick, name in zip(ticks, names, strict=True):
        canvas.line(left, y(tick), right, y(tick), "grid")
        canvas.text(left - 8, y(tick) + 4, name, "end")
    canvas.line(left, bottom, right, bottom, "axis")
    epochs = max(1, round(nice_ticks(float(last), MAX_EPOCH_TICKS, whole=True)[1]))
    for epoch in sorted({1, *range(epochs, last + 1, epochs)}):
        canvas.text(_clamp_centre(x(epoch), str(epoch)), bottom + 18, str(epoch), "middle")
    canvas.text((left + right) / 2, bottom + 34, "epoch", "middle", kind="faint")
    _unit_label(canvas, chart.unit, (top + bottom) / 2)
    for line in chart.lines:
        points = "L".join(f"{_n(x(epoch))} {_n(y(value))}" for epoch, value in line.points)
        kind = "line" if line.colour is not None else "line other"
        canvas.path(f"M{points}", kind, "stroke", GREY if line.colour is None else line.colour)
    marks = [(y(line.points[-1][1]), label, line.colour or 0) for label, line in ends]
    _end_labels(canvas, marks, right, bottom)
    return bottom + AXIS_HEIGHT


def range_ticks(low: float, high: float) -> tuple[float, list[float]]:
    """The step of round values within a range that need not begin at 0, and these values."""
    step = nice_ticks(high - low)[1]
    first = math.ceil(low / step - 1e-9)
    ticks = [round(n * step, 12) for n in range(first, math.floor(high / step + 1e-9) + 1)]
    return step, [tick for tick in ticks if tick <= high]


def _unit_label(canvas: _Canvas, unit: str, middle: float) -> None:
    canvas.parts.append(
        f'<text transform="translate(11 {_n(middle)}) rotate(-90)" text-anchor="middle">'
        f"{_text(canvas.prose(unit))}</text>"
    )


def _end_labels(
    canvas: _Canvas, marks: Sequence[tuple[float, str, int]], right: float, bottom: float
) -> None:
    """Draw labels at the ends of lines, moved up until none overlap, in the order of the lines."""
    lowest = bottom
    for height, label, colour in sorted(marks, reverse=True):
        y = min(height, lowest)
        lowest = y - MIN_LABEL_GAP
        canvas.rect(right + 6, y - 5, 10, 10, colour=colour)
        canvas.text(right + 20, y + 4, label)


def _bars(canvas: _Canvas, chart: TimeChart) -> float:
    has_legend = any(band.name not in chart.unit for band in chart.bands)
    top = TOP + (canvas.legend(chart.bands, 36) if has_legend else 0.0)
    n = len(chart.moments) - 1
    highest = max(sum(band.values[index] for band in chart.bands) for index in range(n))
    plot = _plot(canvas, chart, highest, top=top, right=WIDTH - RIGHT)
    for index in range(n):
        x1, x2 = plot.x(chart.moments[index]), plot.x(chart.moments[index + 1])
        gap = min(2.0, (x2 - x1) * 0.15)
        floor = 0.0
        for band in chart.bands:
            value = band.values[index]
            if value > 0:
                y = plot.y(floor + value)
                height = plot.y(floor) - y
                canvas.rect(x1 + gap / 2, y, x2 - x1 - gap, height, colour=band.colour)
                floor += value
    return plot.bottom + AXIS_HEIGHT


# --- boxes and levels ---------------------------------------------------------------------------


def _boxes(canvas: _Canvas, chart: BoxChart) -> float:
    boxes = [box for _, group in chart.groups for _, box in group]
    names = [clip(plain(name), MAX_NAME_LENGTH) for _, group in chart.groups for name, _ in group]
    longest = max(box.maximum for box in boxes)
    units = ((3 * MINUTE, 1.0, "seconds"), (3 * HOUR, 60.0, "minutes"), (math.inf, 3600.0, "hours"))
    _, seconds, unit = next(each for each in units if longest < each[0])
    ticks = nice_ticks(longest / seconds, 6)
    heads = [head for head, _ in chart.groups]
    left = 16 + max(map(_width, (*names, *heads)))
    right = WIDTH - 56
    height = sum(LINE_HEIGHT + 10 + BOX_ROW_HEIGHT * len(group) for _, group in chart.groups)

    def x(value: float) -> float:
        return left + value / seconds / ticks[-1] * (right - left)

    for tick in ticks:
        tick_x = left + tick / ticks[-1] * (right - left)
        canvas.line(tick_x, TOP, tick_x, TOP + height, "grid" if tick else "axis")
        canvas.text(tick_x, TOP + height + 16, tick_text(tick, ticks[1]), "middle")
    canvas.text((left + right) / 2, TOP + height + 34, unit, "middle")
    y = float(TOP)
    for number, (head, group) in enumerate(chart.groups):
        y += LINE_HEIGHT
        canvas.text(left - 8, y, head, "end", kind="head")
        canvas.text(right + 10, y, "n", "start", kind="faint")
        y += 10
        for name, box in group:
            middle = y + BOX_ROW_HEIGHT / 2 - 4
            canvas.text(left - 8, middle + 4, clip(plain(name), MAX_NAME_LENGTH), "end")
            _box(canvas, middle, box, x, colour=min(number, 1))
            for value in box.outliers:
                canvas.parts.append(
                    f'<circle cx="{_n(x(value))}" cy="{_n(middle)}" r="2.6" class="beyond"/>'
                )
            canvas.text(right + 10, middle + 4, f"{box.n}", "start")
            y += BOX_ROW_HEIGHT
    return TOP + height + 44


def _box(canvas: _Canvas, y: float, box: BoxPlot, x: Callable[[float], float], colour: int) -> None:
    low, high = x(box.lower_whisker), x(box.upper_whisker)
    first, median, third = x(box.lower_quartile), x(box.median), x(box.upper_quartile)
    canvas.line(low, y, first, y, "whisker")
    canvas.line(third, y, high, y, "whisker")
    for end in (low, high):
        canvas.line(end, y - 4, end, y + 4, "whisker")
    canvas.parts.append(
        f'<rect x="{_n(first)}" y="{_n(y - 8)}" width="{_n(max(0.5, third - first))}" '
        f'height="16" fill="var(--c{colour})" class="box"/>'
    )
    canvas.line(median, y - 8, median, y + 8, "median")


def _levels(canvas: _Canvas, chart: LevelChart) -> float:
    names = [clip(plain(name), MAX_NAME_LENGTH + 6) for name, _ in chart.bars]
    highest = max(max(value for _, value in chart.bars), EPSILON)
    left = 16 + max(map(_width, names))
    values = [_end_value(value, highest) for _, value in chart.bars]
    right = WIDTH - 16 - max(map(_width, values))
    y = float(TOP)
    for name, value, (_, amount) in zip(names, values, chart.bars, strict=True):
        width = amount / highest * (right - left)
        canvas.text(left - 8, y + 12, name, "end")
        canvas.rect(left, y, max(1.0, width), 15, colour=chart.colour)
        canvas.text(left + max(1.0, width) + 6, y + 12, value)
        y += LEVEL_ROW_HEIGHT
    canvas.line(left, TOP - 4, left, y - 4, "axis")
    canvas.text((left + right) / 2, y + 12, canvas.prose(chart.unit), "middle")
    return y + 22
