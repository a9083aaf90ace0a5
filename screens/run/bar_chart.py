"""A small bar chart made of characters. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from metlmon.frozen import frozen
from metlmon.text import formatting
from screens.widgets.spans import DIM, PLAIN, Line, TextStyle, line

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
WIDEST: Final = 3
"""Cells per bar at most: few epochs should not become a wall."""


@frozen
class Bar:
    """One value of the chart (None: there is none yet) under its label."""

    label: str
    value: float | None
    ink: TextStyle = PLAIN


def grouped(bars: Sequence[Bar], most: int) -> list[Bar]:
    """At most so many bars: neighbours make one, which shows the largest of them."""
    each = -(-len(bars) // max(1, most))
    if each <= 1:
        return list(bars)
    return [
        max(bars[i : i + each], key=lambda bar: -1.0 if bar.value is None else bar.value)
        for i in range(0, len(bars), each)
    ]


def seconds_chart(bars: Sequence[Bar], cells: int, height: int, ascii: bool) -> list[Line]:
    """``height`` lines of bars with a scale of durations, and a line of labels below them."""
    top = max((bar.value or 0.0 for bar in bars), default=0.0)
    scale = formatting.duration(top, ascii)
    axis = max(len(scale), 4) + 2
    bars = grouped(bars, cells - axis)
    if not bars or top <= 0:
        return []
    wide = max(1, min(WIDEST, (cells - axis) // len(bars)))
    gap = 1 if wide > 1 else 0
    side = "|" if ascii else "│"
    lines: list[Line] = []
    for level in reversed(range(height)):
        label = scale if level == height - 1 else "0" if level == 0 else ""
        spans = [(f"{label:>{axis - 2}} ", DIM), (side, DIM)]
        for bar in bars:
            piece = _piece(bar.value, top, level, height, ascii)
            spans.append((piece * (wide - gap) + " " * gap, bar.ink))
        lines.append(line(*spans))
    return [*lines, line((" " * axis + _labels(bars, wide, cells - axis), DIM))]


def _piece(value: float | None, top: float, level: int, height: int, ascii: bool) -> str:
    eighths = 0 if value is None else round(value / top * height * 8)
    if value is not None and value > 0:
        eighths = max(1, eighths)
    here = max(0, min(8, eighths - 8 * level))
    if ascii:
        return "#" if here >= 4 or (level == 0 and here) else " "
    return _EIGHTHS[here]


def _labels(bars: Sequence[Bar], wide: int, room: int) -> str:
    out = ""
    for i, bar in enumerate(bars):
        at = i * wide
        # A label only where the one before leaves a blank.
        if at >= len(out) + (1 if out else 0) and at + len(bar.label) <= room:
            out = out.ljust(at) + bar.label
    return out
