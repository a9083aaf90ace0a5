"""The screen of a bag: its contents, and where each key leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from screens.job import JobScreen
from screens.shards import ShardsScreen
from screens.widgets.line_widget import Table
from tests.support.builder_feed import BuilderFeed
from tests.support.dagdir_feed import BAG_AS_OF, bag, dagdir_feed, sweep
from tests.support.screen_view import MIDDLE, NARROW, WIDE, opened


def feed() -> BuilderFeed:
    return dagdir_feed(bag(), BAG_AS_OF)


@pytest.mark.parametrize("size", [NARROW, MIDDLE, WIDE], ids=str)
async def test_first_line_has_progress_and_end(size: tuple[int, int]) -> None:
    async with opened(feed(), size=size) as seen:
        await seen.press("6", "6", "6")
        assert "110 of 240 shards done" in seen.lines[0]
        assert "6h (4–8h) left" in seen.lines[0]
        assert "2 held" in seen.lines[0]
        assert "1 straggler" in seen.lines[0]


async def test_held_and_failed_shards_come_first_then_stragglers() -> None:
    async with opened(feed()) as seen:
        await seen.press("6", "6", "6")
        rows = [row.key for row in seen.app.screen.query_one(Table).rows]
        assert rows[:3] == ["shard115", "shard117", "shard033"]
        assert len(rows) == 240
        assert "straggles" in seen.line("shard033")
        await seen.press("s")
        assert [row.key for row in seen.app.screen.query_one(Table).rows][:2] == [
            "shard000", "shard001",
        ]  # fmt: skip


async def test_enter_opens_the_job() -> None:
    async with opened(feed()) as seen:
        await seen.press("6", "6", "6", "down", "down")
        assert "shard033" in seen.under_cursor
        await seen.press("enter")
        assert isinstance(seen.app.screen, JobScreen)
        assert "1033" in seen.text
        await seen.press("escape")
        assert isinstance(seen.app.screen, ShardsScreen)
        assert "shard033" in seen.under_cursor


async def test_shard_without_a_job_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x.dag").write_text("".join(f"JOB shard{n} s.sub\n" for n in range(6)))
    async with opened(dagdir_feed(tmp_path)) as seen:
        await seen.press("6", "6", "6")
        assert "0 of 6 shards done" in seen.lines[0]
        await seen.press("enter")
        assert isinstance(seen.app.screen, ShardsScreen)
        assert "it has no job yet" in seen.text


async def test_tab_goes_to_the_next_bag(tmp_path: Path) -> None:
    lines = [f"JOB {kind}{n} {kind}.sub\n" for kind in ("get", "use") for n in range(5)]
    (tmp_path / "x.dag").write_text("".join(lines))
    async with opened(dagdir_feed(tmp_path)) as seen:
        await seen.press("6", "6", "6")
        assert "get*" in seen.text
        assert "bag 1 of 2" in seen.text
        await seen.press("v")
        assert "use*" in seen.text
        await seen.press("v")
        assert "get*" in seen.text


async def test_screen_without_a_bag_explains_bags() -> None:
    async with opened(dagdir_feed(sweep())) as seen:
        await seen.press("6", "6", "6")
        assert "No bag here" in seen.text
        await seen.press("v", "enter", "s")
        assert isinstance(seen.app.screen, ShardsScreen)
