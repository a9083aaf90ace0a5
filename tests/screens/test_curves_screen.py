"""Curves on the screen, drawn and described; and the percentage of the running epoch."""

from __future__ import annotations

import sys

import pytest

from metlmon.config.settings import MetricSettings, Settings
from metlmon.jobfiles.records import Point, Streamed, TrainingOutput
from metlmon.tables.curves import percent
from metlmon.text.spans import DIM, PLAIN, text
from screens.base.plots import Area, Scale, Trace, chart, scale_of
from screens.compare import CompareScreen
from screens.curves import CurvesScreen
from screens.overview import OverviewScreen
from screens.run import RunScreen
from tests.support.dagdir_feed import dagdir_feed
from tests.support.recordings import FIXTURES
from tests.support.sample_snapshots import status, update
from tests.support.sample_trainings import LOST, RUNS, learning
from tests.support.screen_view import NARROW, WIDE, RunningApp, opened

DRAWN = "┤"


async def open_curves(seen: RunningApp, *keys: str) -> None:
    """Open the curves, and wait until they are drawn."""
    await seen.press(*keys, "5")
    await seen.until(lambda: DRAWN in seen.text or "+" in seen.lines[3])


# --- the screen -----------------------------------------------------------------------------


async def test_first_line_says_whether_runs_learn() -> None:
    async with opened(learning(), size=NARROW) as seen:
        await open_curves(seen)
        assert isinstance(seen.app.screen, CurvesScreen)
        assert seen.lines[0].startswith(" Curves   11 of 12 runs improve · ")
        assert f"{LOST} diverged in epoch 5" in seen.lines[0]
        assert f"{LOST} " in seen.line("✗ diverged in epoch 5")
        assert "NaN" in seen.line("✗ diverged in epoch 5")
        # A diverged run does not flatten the others.
        assert "▲" in seen.text
        assert "1 value above, to 90" in seen.lines[1]
        scale = [line.split(DRAWN)[0].strip() for line in seen.lines if DRAWN in line]
        assert all(float(value) <= 1.2 for value in scale)
        # The curve under the cursor is highlighted.
        assert "━ run0" in seen.lines[1]
        await seen.press("down", "down")
        assert "━ run2" in seen.lines[1]
        await seen.press("enter")
        assert isinstance(seen.app.screen, RunScreen)
        assert seen.app.screen.key == RUNS[2].key


async def test_run_that_starts_far_above_and_is_lost_flattens_no_other() -> None:
    """Its first value is 75, the next one NaN; the others are below 1."""
    async with opened(dagdir_feed(FIXTURES / "gated"), size=NARROW) as seen:
        await open_curves(seen)
        scale = [line.split(DRAWN)[0].strip() for line in seen.lines if DRAWN in line]
        assert all(float(value) <= 1.2 for value in scale)
        assert "2 values above" in seen.lines[1]


async def test_zooming_in_hides_the_first_epochs() -> None:
    def first_epochs(seen: RunningApp) -> list[int]:
        drawn = max(at for at, each in enumerate(seen.lines) if "│" in each or DRAWN in each)
        return [int(each) for each in seen.lines[drawn + 1].split()]

    async with opened(learning(), size=NARROW) as seen:
        await open_curves(seen)
        whole, chart = first_epochs(seen), seen.text
        await seen.press("+")
        assert first_epochs(seen)[0] >= whole[len(whole) // 2]
        assert first_epochs(seen)[-1] == whole[-1]
        await seen.press("-")
        assert seen.text == chart
        await seen.press("-")
        assert "all epochs are shown" in seen.text


async def test_wide_screen_has_the_next_metric_beside() -> None:
    async with opened(learning(), size=WIDE) as seen:
        await open_curves(seen)
        first, second = seen.app.screen._shown.metrics[:2]  # type: ignore[attr-defined]
        title = seen.lines[1]
        assert title.index(first) < title.index(second)
        assert seen.lines[10].count("│") + seen.lines[10].count(DRAWN) >= 2
        await seen.press("m")
        assert seen.lines[1].lstrip().startswith(second)
        # A filter leaves the same runs in each chart.
        await seen.press("slash", *"run3", "enter")
        assert all("others" in part for part in seen.lines[1].split("run3")[1:])


async def test_keys_switch_view_logarithm_order_and_metric() -> None:
    async with opened(learning(), size=(114, 34)) as seen:
        await open_curves(seen)
        assert "others" in seen.lines[1]
        await seen.press("v")
        assert "median" in seen.lines[1]
        await seen.press("v")
        assert "control 4 runs" in seen.lines[1]
        assert "heterogeneous 8 runs" in seen.lines[1]
        await seen.press("v")
        assert "others" in seen.lines[1]
        await seen.press("L")
        assert "log" in seen.lines[1]
        await seen.press("L")
        assert "log" not in seen.lines[1]
        await seen.press("slash", *"control", "enter")
        assert "4 of 12 runs" in seen.text
        assert " run1 " not in seen.text.split("TREND  ")[1]
        await seen.press("escape", "s", "s", "s")
        assert LOST in seen.text.split("TREND▲")[1].splitlines()[1]
        await seen.press("m")
        await seen.until(lambda: "test/pearson_total_score" in seen.lines[1])
        assert "higher is better" in seen.lines[1]
        await seen.press("M")
        await seen.until(lambda: "val_loss" in seen.lines[1])


async def test_two_views_without_cohorts() -> None:
    async with opened(learning(labels=False)) as seen:
        await open_curves(seen)
        assert "LABEL" not in seen.text
        await seen.press("v", "v")
        assert "others" in seen.lines[1]
        assert "[[label]] in metlmon.toml" in seen.text


async def test_logarithm_without_positive_values_is_reported() -> None:
    feed = learning()
    below = tuple(Point(epoch, -1.0 - epoch, 0, "x") for epoch in range(3))
    feed.written = {RUNS[0].key: TrainingOutput(RUNS[0].key, {"val_loss": below}, {}, {})}
    async with opened(feed) as seen:
        await open_curves(seen)
        await seen.press("L")
        assert "a logarithm needs values above 0" in seen.text


# --- nothing to show ------------------------------------------------------------------------


async def test_empty_screen_explains_where_metrics_are_searched() -> None:
    feed = learning()
    feed.written = {}
    feed.set = Settings(metrics=MetricSettings(files=("logs/{uuid}",)))
    async with opened(feed, size=NARROW) as seen:
        await seen.press("5")
        await seen.until(lambda: "No training has written" in seen.text)
        assert f"logs/{RUNS[0].uuid}/version_<k>/metrics.csv" in seen.text
        assert "/nowhere/global_pretraining" in seen.text
        for result in ("*.out", "val_loss", "metlmon.toml", "[[metric]]", "pattern ="):
            assert result in seen.text


async def test_epoch_and_job_show_its_values() -> None:
    async with opened(learning()) as seen:
        await seen.press("down", "enter")
        await seen.until(lambda: "▶ running 64 %" in seen.text)
        await seen.press("enter")
        await seen.until(lambda: "it printed last" in seen.text)
        assert "64 %   1.17 steps/s   13h30m left   loss 0.25" in seen.text


def test_progress_shows_100_percent_only_at_the_end() -> None:
    def of(fraction: float | None) -> str:
        return percent(Streamed(fraction, None, None, None, None, None, None))

    assert [of(0.0), of(0.999), of(1.0), of(None)] == ["0 %", "99 %", "100 %", ""]


# --- the chart ------------------------------------------------------------------------------


def test_falling_line_is_drawn_falling() -> None:
    trace = Trace(((0.0, 1.0), (4.0, 0.0)), PLAIN)
    drawn = [text(each) for each in chart([], [trace], Scale(0, 4, 0, 1), 40, 8, False)]
    columns = [line.index("*") for line in drawn[:-1]]
    assert columns == sorted(columns)
    assert len(set(columns)) == 8
    assert drawn[-1].split() == ["0", "1", "2", "3", "4"]


def test_line_that_ends_in_nan_is_marked() -> None:
    nan = float("nan")
    trace = Trace(((0.0, 1.0), (2.0, 0.0), (3.0, nan), (4.0, nan)), PLAIN)
    drawn = [text(each) for each in chart([], [trace], Scale(0, 4, 0, 1), 44, 8, False)]
    assert sum(line.count("✗") for line in drawn) == 1
    assert drawn[-2].index("✗") == pytest.approx(drawn[-1].index("2"), abs=1)


async def test_screen_without_plotext_has_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotext", None)
    async with opened(learning(), size=NARROW) as seen:
        await seen.press("5")
        await seen.until(lambda: "no chart: plotext cannot be loaded" in seen.text)
        assert "✗ diverged in epoch 5" in seen.text


def test_lines_fill_the_width() -> None:
    trace = Trace(((0.0, 1.0), (1.0, 90.0), (2.0, float("nan")), (3.0, 0.5)), PLAIN)
    shade = Area(((0.0, 0.2, 0.9), (3.0, 0.4, 0.5)), DIM, True)
    for cells, height in ((80, 9), (200, 24), (30, 3)):
        for braille in (False, True):
            drawn = [
                text(each)
                for each in chart([shade], [trace], Scale(0, 3, 0, 1), cells, height, braille)
            ]
            assert {len(line) for line in drawn[:-1]} == {cells}
            assert "▲" in drawn[0]
            assert any("*" in line for line in drawn) is not braille


def test_scale_of_one_value_and_of_none() -> None:
    one = scale_of([0.5], [3.0], log=False)
    assert one.low < 0.5 < one.high
    assert one.first < one.last
    assert scale_of([float("nan")], [0.0], log=False) is None
    assert scale_of([-1.0, 0.0], [0.0], log=True) is None
    assert scale_of([], [], log=False) is None


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(("low", "high"), [(1e-9, 2e-9), (0.23, 1.02), (1, 1e9), (5, 5.0001)])
def test_labels_are_round_and_in_order(low: float, high: float, log: bool) -> None:
    scale = scale_of([low, high], [0.0, 1e5], log)
    assert scale is not None
    drawn = [text(each) for each in chart([], [], scale, 80, 12, False)]
    labels = [float(line.split("┤")[0]) for line in drawn[:-1] if "┤" in line]
    assert 2 <= len(labels) <= 12
    assert labels == sorted(labels, reverse=True)


# --- Marked runs side by side on a screen -----------------------------------------------------


async def compared(seen: RunningApp, *keys: str) -> None:
    await seen.press(*keys, "ampersand")
    await seen.until(lambda: DRAWN in seen.text)


async def test_marked_runs_are_compared() -> None:
    async with opened(dagdir_feed(FIXTURES / "gated"), size=NARROW) as seen:
        await seen.press("space", "space")
        assert "2 marked, [&] compares, [esc] clears" in seen.text
        await compared(seen)
        assert isinstance(seen.app.screen, CompareScreen)
        assert "Compare 2 runs   run0 is best: val_loss 0.4187 in epoch 2" in seen.lines[0]
        assert "val_loss   lower is better" in seen.lines[1]
        assert "1 value above, to 975" in seen.lines[1] or "975" in seen.text
        assert "★ ━ run0" in seen.text
        assert seen.line("diverge_at").split() == ["diverge_at", "3", "–"]
        await seen.press("q")
        assert isinstance(seen.app.screen, OverviewScreen)
        assert "2 marked" in seen.text, "the marks stay"


@pytest.mark.parametrize("marks", [0, 1])
async def test_comparison_needs_two_marked_runs(marks: int) -> None:
    async with opened(size=NARROW) as seen:
        await seen.press(*["space"] * marks, "ampersand")
        assert isinstance(seen.app.screen, OverviewScreen)
        assert "[space] marks runs; mark two or more, and [&] compares them" in seen.text


async def test_compared_runs_are_those_that_fit_and_exist() -> None:
    feed = learning()
    async with opened(feed, size=NARROW) as seen:
        await seen.press("ctrl+a")
        await compared(seen)
        assert "Compare 12 runs   run0 is best" in seen.lines[0]
        assert "1 value above, to 90" in seen.lines[1]
        await seen.press("end")
        assert "8 more runs on a wider terminal" in seen.text
        await seen.publish(update(status(())))
        await seen.until(lambda: "None of these runs is here any more" in seen.text)


async def test_runs_without_a_value_are_compared_in_the_rest() -> None:
    feed = learning()
    feed.written = {}
    async with opened(feed, size=NARROW) as seen:
        await seen.press("space", "space", "ampersand")
        assert "no run has a value yet" in seen.text
        assert "7/30" in seen.line("epochs")
