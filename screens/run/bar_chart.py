"""A bar chart of block characters: the execution times of epochs. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from msgspec import Struct

from metlmon.model.states import State
from metlmon.snapshot.types import EpochRow, RunView
from metlmon.text import formatting
from metlmon.text.formatting import STATES
from metlmon.text.spans import DIM, MOVING, PLAIN, Line, TextStyle, line, style_of

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
MAXIMUM_BAR_WIDTH: Final = 3
"""Maximum width of a bar in cells, so that few epochs do not fill the screen."""


class ChartBar(Struct, frozen=True):
    """A labelled value of the chart (None: not known yet)."""

    label: str
    value: float | None
    style: TextStyle = PLAIN


def group_bars(bars: Sequence[ChartBar], limit: int) -> list[ChartBar]:
    """At most ``limit`` bars: groups of neighbours are reduced to their largest."""
    group_size = -(-len(bars) // max(1, limit))
    if group_size <= 1:
        return list(bars)
    return [
        max(bars[i : i + group_size], key=lambda bar: -1.0 if bar.value is None else bar.value)
        for i in range(0, len(bars), group_size)
    ]


def seconds_chart(bars: Sequence[ChartBar], cells: int, height: int) -> list[Line]:
    """``height`` lines of bars with a scale of durations, and a line of labels below."""
    top = max((bar.value or 0.0 for bar in bars), default=0.0)
    scale = formatting.duration(top)
    axis = max(len(scale), 4) + 2
    bars = group_bars(bars, cells - axis)
    if not bars or top <= 0:
        return []
    bar_width = max(1, min(MAXIMUM_BAR_WIDTH, (cells - axis) // len(bars)))
    gap = 1 if bar_width > 1 else 0
    lines: list[Line] = []
    for level in reversed(range(height)):
        label = scale if level == height - 1 else "0" if level == 0 else ""
        spans = [(f"{label:>{axis - 2}} ", DIM), ("│", DIM)]
        for bar in bars:
            block = _block(bar.value, top, level, height)
            spans.append((block * (bar_width - gap) + " " * gap, bar.style))
        lines.append(line(*spans))
    return [*lines, line((" " * axis + _labels(bars, bar_width, cells - axis), DIM))]


def _block(value: float | None, top: float, level: int, height: int) -> str:
    eighths = 0 if value is None else round(value / top * height * 8)
    if value is not None and value > 0:
        eighths = max(1, eighths)
    filled = max(0, min(8, eighths - 8 * level))
    return _EIGHTHS[filled]


def _labels(bars: Sequence[ChartBar], bar_width: int, room: int) -> str:
    labels = ""
    for i, bar in enumerate(bars):
        position = i * bar_width
        # Skip a label that would touch the previous one.
        if position >= len(labels) + (1 if labels else 0) and position + len(bar.label) <= room:
            labels = labels.ljust(position) + bar.label
    return labels


# --- execution times of epochs ---------------------------------------------------------------

CHART_LINES: Final = 5
CHART_LINES_NARROW: Final = 3
"""Lines of bars, without the heading above and the labels below."""


def bars(view: RunView) -> list[ChartBar]:
    """Execution times of the epochs that have begun, for the chart."""
    rows = [row for row in view.epochs if row.state is not State.WAITING or row.jobs]
    return [ChartBar(_epoch_label(row), row.execution, style_of(STATES[row.state])) for row in rows]


def _epoch_label(row: EpochRow) -> str:
    return "?" if row.epoch is None else str(formatting.epoch_number(row.epoch))


def chart_title(rows: Sequence[EpochRow]) -> Line:
    """``execution time by epoch   median 3:12:00   longest 11:02:47 (epoch 7)``."""
    known = [(row.execution, row) for row in rows if row.execution is not None]
    done = [seconds for seconds, row in known if row.state is State.COMPLETED]
    title = line(("Execution time by epoch", DIM))
    if done:
        median_text = formatting.duration(median(done))
        title += line(("   median ", DIM), median_text)
    if known:
        seconds, row = max(known, key=lambda pair: pair[0])
        longest = formatting.duration(seconds)
        title += line(
            ("   longest ", DIM), (longest, MOVING), (f" (epoch {_epoch_label(row)})", DIM)
        )
    return title
