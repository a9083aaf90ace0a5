"""The incidents screen: what happened, what to do next, and where it leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from screens.app import AppOptions
from screens.incidents import IncidentsScreen
from screens.run import RunScreen
from tests.support.sample_snapshots import FakeFeed, update
from tests.support.screen_view import MIDDLE, NARROW, WIDE, Show
from tests.support.static_sessions import FIXTURES, opened, session


async def test_a_run_that_stands_still() -> None:
    async with opened(session(FIXTURES / "demo"), MIDDLE) as seen:
        assert "a run failed: epoch 5, 3 of 3 tries used" in seen.text
        await seen.press("i")
        assert isinstance(seen.app.screen, IncidentsScreen)
        assert "1 open" in seen.lines[0]
        assert "run4 failed" in seen.lines[1]
        assert "retries exhausted" in seen.under_cursor
        assert "submit the DAG again (U)" in seen.text
        await seen.press("enter")
        assert isinstance(seen.app.screen, RunScreen)
        assert seen.lines[0].strip().startswith("run4")


async def test_nothing_out_of_the_ordinary() -> None:
    async with opened(session(FIXTURES / "rescue"), MIDDLE) as seen:
        assert "▲" not in seen.text
        await seen.press("i")
        assert "none open" in seen.lines[0]
        assert "No incidents." in seen.text


async def test_a_filter_that_nothing_passes() -> None:
    async with opened(session(FIXTURES / "demo"), MIDDLE) as seen:
        await seen.press("i", "slash", *"zebra", "enter")
        assert "No incident has this text." in seen.text


@pytest.mark.parametrize("size", [NARROW, MIDDLE, WIDE])
async def test_plain_characters_only(size: tuple[int, int]) -> None:
    async with opened(session(FIXTURES / "demo"), size, AppOptions(ascii=True)) as seen:
        await seen.press("i")
        assert seen.text.isascii(), seen.text
        assert "run4 failed" in seen.text


async def test_held_runs_of_any_ensemble(show: Show) -> None:
    async with show(FakeFeed(update(), Path("/nowhere/x"))) as seen:
        assert "▲" in seen.text
        await seen.press("i")
        assert "held" in seen.text
        await seen.press("s")
        assert "by the worst" in seen.text
