"""Charts as SVG: round ticks that cover all values, and drawings of any data."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from metlmon.report.document import BandSeries, BoxChart, Chart, LevelChart, ReportFigure, TimeChart
from metlmon.report.to_html import TIME_TICKS, nice_ticks, render_svg, tick_text, time_ticks
from metlmon.report.usage import make_box_plot

T0 = datetime(2025, 9, 8, 10, 12, 7)
NAMES = st.text(max_size=60)
VALUES = st.floats(0, 1e12, allow_nan=False)


def drawn(chart: Chart, caption: str = "A figure.") -> ET.Element:
    """The drawing, which must be well-formed and without invalid coordinates."""
    svg = render_svg(ReportFigure("key", caption, chart, "What is to be seen."))
    assert not re.search(r'="[^"]*\b(?:nan|inf)\b', svg)
    return ET.fromstring(svg)


@given(most=st.floats(1e-9, 1e15), whole=st.booleans())
def test_ticks_are_round_and_cover_all_values(most: float, whole: bool) -> None:
    ticks = nice_ticks(most, whole=whole)
    assert ticks[0] == 0
    assert ticks[-1] >= most * (1 - 1e-6)
    assert 2 <= len(ticks) <= 12
    if not whole and most > 1e-6:
        assert f"{ticks[1]:.6e}"[:3] in ("1.0", "2.0", "2.5", "5.0")
    if whole:
        assert all(tick == int(tick) for tick in ticks)


def test_ticks_have_the_decimals_of_their_step() -> None:
    assert [tick_text(value, 0.25) for value in (0, 0.25, 1)] == ["0.00", "0.25", "1.00"]
    assert [tick_text(value, 0.5) for value in (0.5, 1, 1.5)] == ["0.5", "1.0", "1.5"]
    assert [tick_text(value, 2e-7) for value in (0, 2e-7)] == ["0.0000000", "0.0000002"]
    assert tick_text(12500, 2500) == "12\u202f500"


@given(
    start=st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)),
    seconds=st.integers(1, 40 * 365 * 86400),
)
def test_ticks_of_time(start: datetime, seconds: int) -> None:
    end = start + timedelta(seconds=seconds)
    ticks = time_ticks(start, end)
    assert len(ticks) <= TIME_TICKS
    assert ticks == sorted(set(ticks))
    assert all(start <= tick <= end for tick in ticks)
    if seconds > 600:
        assert ticks


def test_ticks_of_three_months_are_mondays() -> None:
    ticks = time_ticks(datetime(2025, 9, 8), datetime(2025, 12, 10))
    assert {tick.weekday() for tick in ticks} == {0}
    assert len(ticks) == 7


@given(
    values=st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=1, max_size=4),
    name=NAMES,
    stacked=st.booleans(),
)
def test_any_series_can_be_drawn(values: list[list[float]], name: str, stacked: bool) -> None:
    moments = tuple(T0 + timedelta(days=day) for day in range(4))
    bands = tuple(BandSeries(name, tuple(each), at) for at, each in enumerate(values))
    kind = "areas" if stacked else "steps"
    drawn(TimeChart(moments[:3], bands, "GPU-hours", kind), name)
    drawn(TimeChart(moments, bands, "GPU-hours per day", "bars"), name)


@given(values=st.lists(VALUES, min_size=1, max_size=9), name=NAMES)
def test_any_boxes_and_levels_can_be_drawn(values: list[float], name: str) -> None:
    found = make_box_plot(values)
    assert found is not None
    drawn(BoxChart(((name, ((name, found),)),)), name)
    drawn(LevelChart(tuple((name, value) for value in values), "GPU-hours", 3), name)


def test_heights_of_bars_are_their_values() -> None:
    edges = tuple(T0 + timedelta(days=day) for day in range(3))
    bands = (BandSeries("epochs", (5.0, 10.0), 0),)
    root = drawn(TimeChart(edges, bands, "epochs per day", "bars"))
    heights = [float(rect.get("height", "")) for rect in root.iter("rect")]
    assert heights == [95, 190]


def test_step_line_keeps_its_value() -> None:
    moments = (T0, T0 + timedelta(days=1), T0 + timedelta(days=2))
    bands = (BandSeries("epochs", (0.0, 1.0, 2.0), 0),)
    root = drawn(TimeChart(moments, bands, "epochs", "steps"))
    path = next(each.get("d", "") for each in root.iter("path"))
    assert re.fullmatch(r"M[\d.]+ [\d.]+(?:H[\d.]+V[\d.]+){2}", path)


def test_labels_at_the_ends_of_lines_do_not_overlap() -> None:
    moments = (T0, T0 + timedelta(days=1))
    bands = tuple(BandSeries(f"site{n}", (0.0, 0.001), n) for n in range(4))
    bands = (*bands, BandSeries("most", (0.0, 9.0), 5))
    root = drawn(TimeChart(moments, bands, "GPU-hours", "areas"))
    heights = sorted(
        float(each.get("y", "")) for each in root.iter("text") if "site" in (each.text or "")
    )
    assert all(b - a >= 14.9 for a, b in pairwise(heights))
