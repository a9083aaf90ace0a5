"""The Estimates screen, and estimates on other screens."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from metlmon.model.states import State
from metlmon.stats.estimates import Forecast, Interval, Rate, RunForecast, make_forecast
from metlmon.tables import estimates as estimates_table
from metlmon.text.spans import first_that_fits, text, width
from screens.estimates import EstimatesScreen, head
from screens.overview import forecast_candidates, hours_and_forecast
from screens.run import RunScreen
from tests.support.records import blank
from tests.support.run_histories import NOON, Past, basis
from tests.support.screen_view import MIDDLE
from tests.support.static_sessions import FIXTURES, opened, session

HALFWAY = datetime(2026, 11, 21, 9, 45, 0)
HOUR, DAY = 3600.0, 86400.0


def report_of(**more: object) -> Forecast:
    made = blank(
        Forecast,
        as_of=NOON,
        epochs_done=412,
        epochs_total=450,
        rate=Rate(119, 7 * DAY),
        remaining=Interval(4 * DAY, 6 * DAY, 9 * DAY, 412, "412 epochs of all runs"),
        expected_end=NOON + timedelta(days=6),
    )
    return replace(made, **more)  # type: ignore[arg-type]


# --- the screen --------------------------------------------------------------------------------


async def test_first_line_has_the_estimate() -> None:
    async with opened(session(FIXTURES / "demo", HALFWAY), MIDDLE) as seen:
        await seen.press("7")
        assert isinstance(seen.app.screen, EstimatesScreen)
        seen.app.stats.value(make_forecast)
        await seen.settle()
        found = seen.app.stats.value(make_forecast)
        assert found is not None
        assert estimates_table.remaining_text(found) in seen.lines[0]
        assert "16 of 36 epochs done" in seen.lines[1]
        run0 = seen.under_cursor
        assert "3/6" in run0
        assert estimates_table.interval_text(found.runs[0].remaining) in run0
        below = " ".join(seen.text.split())
        assert "3 epochs left: from 3 epochs of its own, 13 of other runs." in below
        await seen.press("down", "enter")
        assert isinstance(seen.app.screen, RunScreen)
        assert f"remaining  {estimates_table.interval_text(found.runs[1].remaining)}" in seen.text
        await seen.press("escape", "s")
        last = max(found.runs, key=lambda run: run.remaining.median if run.remaining else 0.0)
        first_row = next(line for line in seen.lines[4:] if "run" in line)
        assert last.run in first_row, "sorted by what ends last"


async def test_failed_run_has_no_date() -> None:
    async with opened(session(FIXTURES / "demo"), MIDDLE) as seen:
        await seen.press("7")
        assert "stopped: run4 failed" in seen.lines[0]
        assert "stopped: failed" in seen.line("4/6")


@pytest.mark.parametrize("cells", [40, 60, 80, 120, 200])
def test_heading_fits_its_width(cells: int) -> None:
    for made in (
        report_of(),
        report_of(excluded=(("run4", "is held"),)),
        report_of(remaining=None, missing_reason="x" * 300),
    ):
        assert all(width(line) <= cells for line in head(made, cells))
    run = blank(RunForecast, key="0", run="run0", dag="a.dag", state=State.RUNNING)
    made = report_of(runs=(run, replace(run, key="1", dag="b.dag")), slowest_run="1")
    assert cells < 80 or "critical path: run0 (b.dag)" in text(head(made, cells)[1])


# --- the header of the overview ----------------------------------------------------------------


def header(cells: int, made: Forecast) -> str:
    candidates = forecast_candidates(made)
    return text(first_that_fits(candidates, cells))


def test_overview_line_fits_its_width() -> None:
    assert estimates_table.epochs_text(blank(Forecast)) == "", "of a DAG without runs"
    assert header(100, report_of()) == "17 epochs/day   ETA 8 Mar (6–11 Mar) · 6d left"
    held = report_of(excluded=(("run4", "is held"),))
    assert header(100, held).endswith(" · excludes run4 (held)")
    # The date is dropped last.
    assert header(40, held) == "ETA 8 Mar (6–11 Mar) · 6d left"


@pytest.mark.parametrize("cells", [78, 118, 198])
def test_hours_and_estimate_fit_their_width(cells: int) -> None:
    status = basis({"run0": Past((HOUR,) * 3)}).status
    forecasts = forecast_candidates(report_of())
    lines = hours_and_forecast(status.hours, forecasts, cells)
    assert all(width(line) <= cells for line in lines)
    assert "6d left" in "".join(text(line) for line in lines)
