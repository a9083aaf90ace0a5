"""Hours by site: the answer first, bars on one scale, and the executions behind a row."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from metlmon.live.feed import StatsInput
from metlmon.snapshot.records import GpuHours, HourUnit
from metlmon.stats.pool_profiles import pool_of
from metlmon.stats.usage import Usage, select_executions, site_usage, usage_in_window
from metlmon.tables import usage as usage_table
from metlmon.text import spans
from metlmon.text.formatting import gpu_models
from screens.job import JobScreen
from screens.run import RunScreen
from screens.sites import KINDS, ExecutionsScreen, SitesScreen, headline
from screens.widgets.line_widget import Table
from tests.support.builder_feed import BuilderFeed
from tests.support.event_logs import Log, of_one_job, read_ensemble
from tests.support.four_sites import builder, placed_feed
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir
from tests.support.screen_view import MIDDLE, NARROW, WIDE, opened

# --- contents ---------------------------------------------------------------------------------


async def test_first_line_names_the_most_productive_site() -> None:
    async with opened(placed_feed(), size=MIDDLE) as seen:
        await seen.press("3")
        assert isinstance(seen.app.screen, SitesScreen)
        assert "cheapest: CHTC-Spark-CE1" in seen.lines[0]
        assert "most expensive: expanse" in seen.lines[0]
        await seen.press("end")
        assert "unknown" in seen.under_cursor
        assert "1 stalled 2h30m" in seen.text
        assert "13/110" in seen.text
        await seen.press("up")
        assert "CHTC-Spark-CE1" in seen.under_cursor
        assert "1 idle for ospool, longest 2d18h" in seen.text
        assert "1 removed while idle for ospool" in seen.text


def test_site_with_most_badput_and_no_epoch_comes_first() -> None:
    """Nine in ten hours."""
    log = Log()
    for at in range(3):
        node = f"run0-train_epoch{at}"
        log.submit(80 + at, node, at=f"05-{4 + at:02d} 00:00:00")
        log.execute(80 + at, gpus=1, site="pit", at=f"05-{4 + at:02d} 00:01:00")
        log.evict(80 + at, 1005, "Unspecified job interruption", at=f"05-{4 + at:02d} 18:01:00")
        log.execute(80 + at, gpus=1, site="delta", at=f"05-{4 + at:02d} 19:00:00")
        log.terminate(80 + at, at=f"05-{4 + at:02d} 21:00:00")
    nodes = "".join(f"JOB run0-train_epoch{at} t.sub\n" for at in range(3))
    found = usage_in_window(read_ensemble(nodes, log).builder().ledger())
    result = headline(found, 110)
    assert spans.text(result) == (
        "pit: 54.0 GPU-hours of badput (90 %), no epoch completed; "
        "2.0 GPU-h/epoch at delta, 0 of it badput"
    )
    for cells in range(20, 110):
        narrow = spans.text(headline(found, cells))
        assert len(narrow) <= max(cells, len("pit: 54.0 GPU-hours of badput (90 %)"))
        assert narrow.startswith("pit: 54.0 GPU-hours of badput (90 %)")


async def test_keys_switch_views_filter_and_order() -> None:
    async with opened(placed_feed()) as seen:

        def rows() -> list[str]:
            shown = seen.app.screen.query_one(Table).rows
            return [spans.text(row.cells()[0]).strip() for row in shown]

        await seen.press("3", "slash", *"cgroup", "enter")
        assert rows() == ["expanse"], "a filter looks in causes, too"
        await seen.press("escape")
        assert len(rows()) == 5
        await seen.press("s")
        assert "by BADPUT" in seen.text
        assert rows()[0] == "aws"
        await seen.press("S")
        assert rows()[-1] == "aws"
        for title in (
            *("[sites", "[GPU models", "[site by GPU", "[hosts", "[causes", "[profiles"),
            *("[usage", "[sites"),
        ):
            assert title in seen.text
            if title == "[site by GPU":
                slow, fastest = seen.line("1.79× slow"), seen.line("fastest")
                assert "expanse" in slow
                assert "▚" in slow, "marked by word and texture"
                assert "delta" in fastest
                assert "▚" not in fastest
            await seen.press("v")
        await seen.press("shift+tab", "shift+tab")
        assert "[usage" in seen.text


# --- the executions behind a number -----------------------------------------------------------


async def test_site_leads_to_executions_and_jobs() -> None:
    async with opened(placed_feed(), size=MIDDLE) as seen:
        await seen.press("3", "down")
        site = seen.under_cursor
        assert "delta" in site
        await seen.press("enter")
        assert isinstance(seen.app.screen, ExecutionsScreen)
        assert "at delta" in seen.lines[0]
        assert "76.4 = ▇ 65.8 goodput + ▚ 3.0 badput (4 %) + ▓ 7.6 running" in seen.lines[1]
        await seen.press("down", "down")
        execution = seen.under_cursor
        await seen.press("enter")
        assert isinstance(seen.app.screen, JobScreen)
        await seen.press("escape")
        assert seen.under_cursor == execution
        await seen.press("escape")
        assert isinstance(seen.app.screen, SitesScreen)
        assert seen.under_cursor == site


async def test_cause_leads_to_its_executions() -> None:
    async with opened(placed_feed(), size=WIDE) as seen:
        await seen.press("3", "v", "v", "v", "v", "down")
        assert "\x1b" not in seen.text
        assert "\\x1b[31m" in seen.text or "<slot>" in seen.text
        await seen.press("end", "enter")
        assert "jobs were held before they ran" in seen.text, "it ended nothing"
        await seen.press("escape", "home", "down", "enter")
        assert seen.lines[0].startswith(" Executions   2 badput of 34/102 ")
        await seen.press("r")
        assert isinstance(seen.app.screen, RunScreen)


async def test_filter_shows_only_lost_executions() -> None:
    async with opened(placed_feed(), size=MIDDLE) as seen:
        await seen.press("3", "down", "enter")

        def rows() -> int:
            return len(seen.app.screen.query_one(Table).rows)

        numbers = []
        for _ in KINDS:
            numbers.append(rows())
            await seen.press("f")
        assert numbers == [10, 7, 2, 1, 0]
        await seen.press("f", "f")
        assert "only badput" in seen.text
        await seen.press("escape")
        assert rows() == 10, "esc shows all again before it goes back"
        assert isinstance(seen.app.screen, ExecutionsScreen)
        await seen.press("escape", "home", "enter", "s", "home")
        assert "by GPU-h" in seen.text
        assert "8h50m" in seen.under_cursor
        await seen.press("escape", "slash", *"aws", "enter", "enter", "f", "f", "f", "f")
        assert "✓ succeeded ⇄" in seen.under_cursor
        assert "its longest one, of 6h31m at aws" in " ".join(seen.text.split())


async def test_screen_without_executions() -> None:
    empty = of_one_job(Log()).builder("10:00:00")
    async with opened(placed_feed(empty)) as seen:
        await seen.press("3")
        assert "nothing has run yet" in seen.lines[0]
        assert "A site appears with the first execution" in seen.text
        await seen.press("v", "v", "v", "v")
        assert "No badput" in seen.text


# --- functions --------------------------------------------------------------------------------


@pytest.fixture(name="found", scope="module")
def _found() -> Usage:
    return usage_in_window(builder().ledger())


@given(
    st.floats(0, 1e7), st.floats(0, 1e7), st.floats(0, 1e7), st.floats(1, 3e7), st.integers(1, 90)
)
def test_bar_has_a_cell_for_each_part(
    good: float, bad: float, flying: float, largest: float, cells: int
) -> None:
    of = GpuHours(good, bad, flying)
    largest = max(largest, of.total)
    bar = usage_table.stacked_bar(of, largest, cells)
    assert spans.width(bar) <= cells
    parts = [sign for amount, sign in ((good, "▇"), (bad, "▚"), (flying, "▓")) if amount > 0]
    if cells >= 3:
        assert all(sign in spans.text(bar) for sign in parts)


def test_models_with_equal_short_names_stay_distinct() -> None:
    names = ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB", "NVIDIA A40", None)
    assert list(gpu_models(names).values()) == [
        "unknown", "A100-40 SXM4", "A100-40 PCIE", "A40",
    ]  # fmt: skip


@pytest.mark.parametrize("cells", [60, 80, 100, 140, 200])
def test_details_fit_their_width(found: Usage, cells: int) -> None:
    found = replace(found, measure=HourUnit.CPU)
    for view in usage_table.VIEWS:
        for row in view.rows(found):
            for lines in (6, 12):
                text = view.details_of(row, found, cells, lines)
                assert len(text) <= lines
                assert all(spans.width(each) <= cells for each in text)
                assert not re.search("GPU-h(ours of| )", spans.text(sum(text, ())))


@pytest.mark.parametrize("name", ["profiles", "hosts"])
def test_details_of_places_are_not_cut_at_80_columns(name: str) -> None:
    ledger = read_dagdir(FIXTURES / "first-round")
    found = site_usage(StatsInput(ledger.status(), ledger.ledger()))
    (view,) = (each for each in usage_table.VIEWS if name in each.title)
    for row in view.rows(found):
        lines = map(spans.text, view.details_of(row, found, 78, 6))
        assert not [each for each in lines if each.endswith("…")]


@pytest.mark.parametrize("source", ["four sites", "usage", "first-round", "lineage"])
def test_failures_row_opens_the_failed_executions(source: str) -> None:
    ledger = builder() if source == "four sites" else read_dagdir(FIXTURES / source)
    found = site_usage(StatsInput(ledger.status(), ledger.ledger()))
    shown = []
    for row in found.resources:
        behind = select_executions(found, usage_table.USE.selects(row))
        assert len(behind) == row.executions
        assert sum(each.gpu_seconds or 0 for each in behind) == pytest.approx(
            3600 * row.gpu_hours, abs=1e-6
        )
        shown += behind
    assert sorted(shown, key=id) == sorted(found.executions, key=id)


async def test_profiles_and_usage_open_their_executions() -> None:
    async with opened(placed_feed(), size=NARROW) as seen:
        await seen.press("3", *["v"] * usage_table.VIEWS.index(usage_table.PROFILES))
        for title in ("POOL", "EPOCHS", "MEAN EPOCH", "80 %", "MEAN WAIT", "LOSS"):
            assert title in seen.line("POOL")
        assert "4h16m" in seen.line("A100-80"), "the mean of its eight epochs"
        assert "8 epochs of" in seen.text
        await seen.press("enter")
        assert isinstance(seen.app.screen, ExecutionsScreen)
        assert "CHTC-Spark-CE1: 8 goodput, 3 badput" in seen.text
        await seen.press("escape", "v")
        for title in ("SITE", "MEASURED", "MEMORY 95 %"):
            assert title in seen.line("MEASURED")
        for title in ("MEDIAN", "MAXIMUM", "REQUESTED"):
            assert title in seen.line("RESOURCE")
        await seen.press("enter")
        assert "completed at" in seen.lines[0]


# --- profiles ---------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["first-round", "machines"])
def test_profile_opens_only_executions_of_its_pool(source: str) -> None:
    """Those on one GPU where others had two, without those of an annex at the same site."""
    found = usage_in_window(read_dagdir(FIXTURES / source).ledger())
    for row in found.profiles:
        behind = select_executions(found, usage_table.PROFILES.selects(row))
        assert {pool_of(each) for each in behind} <= {row.pool}
        assert len(behind) >= row.executions


async def test_sites_without_executions_are_one_line() -> None:
    feed = BuilderFeed(read_dagdir(FIXTURES / "first-round"))
    async with opened(feed, size=MIDDLE) as seen:
        await seen.press("3")
        assert "nothing ran at 3 sites: unknown (10 held), chtc, nrp.example.net" in seen.text
        await seen.pilot.resize_terminal(*NARROW)
        await seen.settle()
        assert "…   [/] finds them" in seen.line("nothing ran at 3 sites")
        await seen.press("end")
        assert "anvil" in seen.under_cursor
        await seen.press("slash", *"chtc", "enter")
        assert "nothing ran" not in seen.text
        await seen.press("end")
        assert "chtc" in seen.under_cursor
