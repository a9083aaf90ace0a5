"""The last line says what keys do now: in the past, under a filter, while one types one."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.text import spans
from metlmon.text.spans import file_name
from screens.overview.header import header
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.four_sites import PlacedFeed
from tests.support.sample_snapshots import status, update
from tests.support.screen_view import NARROW, WIDE, Show
from tests.support.static_sessions import FIXTURES, opened, session, until

TRAINER = FIXTURES / "trainer"


@pytest.mark.parametrize("way", [(), ("3",), ("2",), ("4",), ("7",)], ids=str)
async def test_no_letter_is_offered_while_it_would_be_typed(
    show: Show, way: tuple[str, ...]
) -> None:
    async with show(PlacedFeed(), size=NARROW) as seen:
        await seen.press(*way, "slash", "a")
        assert seen.lines[-1].strip() == "enter keep filter   esc clear filter"
        await seen.press("enter")
        assert "esc clear filter" in seen.lines[-1]
        assert ("q back" if way else "q quit") in seen.lines[-1]
        await seen.press("escape")
        assert "esc" not in seen.lines[-1]


async def test_marks_are_cleared_before_anything_else(show: Show) -> None:
    async with show(PlacedFeed(), size=NARROW) as seen:
        await seen.press("space")
        assert "esc clear marks" in seen.lines[-1]
        await seen.press("escape")
        assert "esc" not in seen.lines[-1]


@pytest.mark.parametrize("way", [(), ("4",), ("enter",), ("enter", "enter")], ids=str)
async def test_in_the_past_the_key_says_that_it_returns(way: tuple[str, ...]) -> None:
    async with opened(session(TRAINER), NARROW) as seen:
        await seen.press(*way, "less_than_sign")
        await until(seen, lambda: seen.app.time_travel.past_view is not None)
        assert "esc now" in seen.lines[-1]
        await seen.press("escape")
        assert "esc" not in seen.lines[-1]


async def test_a_filter_in_the_past_goes_first() -> None:
    async with opened(session(TRAINER), WIDE) as seen:
        await seen.press("less_than_sign")
        await until(seen, lambda: seen.app.time_travel.past_view is not None)
        assert "returns to now" in seen.lines[0]
        await seen.press("slash", "r", "enter")
        assert "esc clear filter" in seen.lines[-1]
        assert "as it was" in seen.lines[0]
        assert "returns to now" not in seen.lines[0]


# --- what is cut --------------------------------------------------------------------------------


def test_names_of_dags_that_begin_alike_are_reported_apart() -> None:
    names = [
        f"runs/heterogeneous_pretraining_round_2_site_policy_{end}.dag" for end in ("a7", "b1")
    ]
    assert file_name(names[0], 100) == names[0].removeprefix("runs/")
    for cells in range(8, 60):
        shown = [file_name(name, cells) for name in names]
        assert max(map(len, shown)) <= cells
        if cells >= 12:
            assert shown[0] != shown[1], shown


@pytest.mark.parametrize("cells", range(60, 140, 8))
def test_nodes_are_reported_to_be_done_in_every_width(cells: int) -> None:
    now = status()
    dags = tuple(replace(dag, nodes_done=146, nodes_total=450) for dag in now.dags)
    lines = [spans.text(each) for each in header(update(replace(now, dags=dags)), "d", cells)]
    result = [each for each in lines if "146 of 450" in each]
    assert len(result) == len(dags) or cells < 80
    assert all(" done" in each for each in result)


async def test_why_a_job_was_removed_is_read_in_full(tmp_path: Path) -> None:
    reason = "removed because <OtherJobRemoveRequirements = DAGManJobId =?= 12713855> fired when"
    dagdir = Dagdir(tmp_path / "ensemble")
    log = Log().submit(77, NODE, at="10:00:00").remove(77, f"{reason} job was removed")
    dagdir.write("metl.log", log.data)
    async with opened(session(dagdir.path), NARROW) as seen:
        await seen.press("enter", "enter")
        text = " ".join(" ".join(seen.lines).split())
        assert f"Job was aborted. {reason} job was removed" in text
