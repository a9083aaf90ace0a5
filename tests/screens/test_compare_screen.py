"""Marked runs side by side on a screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from screens.app import AppOptions
from screens.compare import CompareScreen
from screens.overview.screen import OverviewScreen
from tests.support.dagdir_feed import DagdirFeed
from tests.support.sample_snapshots import status, update
from tests.support.sample_trainings import learning, until
from tests.support.screen_view import NARROW, WIDE, Seen, Show

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
GATED, DEMO = FIXTURES / "gated", FIXTURES / "demo"
DRAWN = "┤"


async def compared(seen: Seen, *keys: str) -> None:
    await seen.press(*keys, "ampersand")
    await until(seen.pilot, lambda: DRAWN in seen.text)


async def test_two_marked_runs_are_side_by_side(show: Show) -> None:
    async with show(DagdirFeed(GATED), size=NARROW) as seen:
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


async def test_what_is_wrong_with_them_is_below_in_full(show: Show) -> None:
    async with show(DagdirFeed(DEMO), size=NARROW) as seen:
        await seen.press("down", "down", "down")
        await compared(seen, "space", "space")
        await seen.press("end")
        assert "✗ val_loss diverged" in seen.text or "▲ val_loss diverged" in seen.text
        assert "→ " in seen.text


@pytest.mark.parametrize("marks", [0, 1])
async def test_below_two_marked_runs_it_says_what_to_do(show: Show, marks: int) -> None:
    async with show(size=NARROW) as seen:
        await seen.press(*["space"] * marks, "ampersand")
        assert isinstance(seen.app.screen, OverviewScreen)
        assert "[space] marks runs; mark two or more, and [&] compares them" in seen.text


async def test_from_the_curves_with_their_metric_and_back(show: Show) -> None:
    async with show(learning(), size=WIDE) as seen:
        await seen.press("5", "m")
        await until(seen.pilot, lambda: "test/pearson" in seen.lines[1])
        await compared(seen, "space", "space")
        assert "higher is better" in seen.lines[1]
        await seen.press("m")
        await until(seen.pilot, lambda: "val_loss" in seen.lines[1])
        await seen.press("L")
        assert "log" in seen.lines[1]


async def test_all_runs_as_far_as_they_fit_and_as_long_as_they_are_there(show: Show) -> None:
    feed = learning()
    async with show(feed, size=NARROW) as seen:
        await seen.press("ctrl+a")
        await compared(seen)
        assert "Compare 12 runs   run0 is best" in seen.lines[0]
        assert "1 value above, to 90" in seen.lines[1]
        await seen.press("end")
        assert "8 more runs on a wider terminal" in seen.text
        await seen.publish(update(status(())))
        await until(seen.pilot, lambda: "None of these runs is here any more" in seen.text)


async def test_runs_are_compared_read_only_too(show: Show) -> None:
    async with show(learning(), size=WIDE, options=AppOptions(read_only=True)) as seen:
        await compared(seen, "space", "space")
        assert isinstance(seen.app.screen, CompareScreen)


async def test_without_a_value_the_rest_is_compared(show: Show) -> None:
    feed = learning()
    feed.written = {}
    async with show(feed, size=NARROW) as seen:
        await seen.press("space", "space", "ampersand")
        assert "no run has a value yet" in seen.text
        assert "7/30" in seen.line("epochs")
