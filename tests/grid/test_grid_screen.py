"""The screen of a sweep: its contents, and where each key leads."""

from __future__ import annotations

import pytest

from metlmon.text.spans import text, width
from screens import sweep as sweep_screen
from screens.run import RunScreen
from screens.sweep import Matrix, MatrixLayout, PointRunsScreen, SweepScreen
from tests.support.dagdir_feed import dagdir_feed, sweep
from tests.support.screen_view import MIDDLE, NARROW, WIDE, RunningApp, opened


async def open_grid(seen: RunningApp, words: str = "best 0.2133") -> None:
    """The grid, once the metrics have been read."""
    await seen.press("6", "6")
    await seen.until(lambda: words in seen.text)
    await seen.settle()


# --- contents ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [NARROW, MIDDLE, WIDE], ids=str)
async def test_grid_has_best_progress_and_every_value(size: tuple[int, int]) -> None:
    async with opened(dagdir_feed(sweep()), size=size) as seen:
        await open_grid(seen)
        assert "best 0.2133 at lr 0.003, width 256" in seen.lines[0]
        assert "19 of 30" in seen.lines[0]
        assert "2 held or failed" in seen.lines[0]
        assert seen.app.screen.query_one(Matrix).cursor == (("0.003",), ("256",))
        assert "rank 1 of 28" in seen.text
        for value in ("0.3787", "0.2349", "0.2671", "1.147"):
            assert value in seen.text
        for head in ("32", "64", "128", "256", "1024"):
            assert head in seen.line("lr ↓")
        assert "6/6" in seen.text


async def test_cursor_stays_on_its_point_when_axes_are_swapped() -> None:
    async with opened(dagdir_feed(sweep())) as seen:
        await open_grid(seen)
        matrix = seen.app.screen.query_one(Matrix)
        await seen.press("down", "left")
        assert matrix.cursor == (("0.01",), ("128",))
        assert "lr 0.01, width 128" in seen.text
        await seen.press("home", "l", "l", "l", "j")
        assert matrix.cursor == (("3e-4",), ("1024",))
        await seen.press("shift+left", "G")
        assert matrix.cursor == (("0.1",), ("32",))
        await seen.press("x")
        assert seen.app.screen.query_one(Matrix).cursor == (("32",), ("0.1",))
        assert "width ↓  lr →" in seen.text
        await seen.press("x")
        assert seen.app.screen.query_one(Matrix).cursor == (("0.1",), ("32",))


async def test_double_click_opens_a_point_in_view() -> None:
    async with opened(dagdir_feed(sweep()), size=(50, 24)) as seen:
        await open_grid(seen)
        matrix = seen.app.screen.query_one(Matrix)
        await seen.press("shift+left")
        for offset, point in (((49, 3), ("0.003", "32")), ((20, 3), ("3e-4", "32"))):
            assert await seen.pilot.click(matrix, offset=offset)
            assert matrix.cursor == tuple((value,) for value in point)
        assert await seen.pilot.click(matrix, offset=(20, 3), times=2)
        await seen.settle()
        assert isinstance(seen.app.screen, RunScreen)


async def test_point_with_several_runs_lists_them() -> None:
    async with opened(dagdir_feed(sweep())) as seen:
        await open_grid(seen)
        screen = seen.app.screen
        assert isinstance(screen, SweepScreen)
        screen.choice = type(screen.choice)(("lr",))
        screen._refresh_if_mounted()
        await seen.settle()
        assert "best over up to 5 of width" in seen.text
        await seen.press("enter")
        assert isinstance(seen.app.screen, PointRunsScreen)
        assert "lr 0.003" in seen.lines[0]
        assert "run18" in seen.under_cursor, "the best first"
        await seen.press("enter")
        assert isinstance(seen.app.screen, RunScreen)


async def test_unavailable_keys_explain_why() -> None:
    async with opened(dagdir_feed(sweep()), size=WIDE) as seen:
        await open_grid(seen)
        assert "x swap" in seen.lines[-1]
        assert "variables" not in seen.lines[-1]
        assert "fix" not in seen.lines[-1]
        await seen.press("v")
        assert "no other variables" in seen.text
        await seen.press("f")
        assert "no variable is left over" in seen.text


# --- nothing, and one variable ------------------------------------------------------------------


async def test_screen_without_a_sweep_explains_sweeps() -> None:
    async with opened(dagdir_feed(sweep(("0.1",), ("32",)))) as seen:
        await seen.press("6", "6")
        assert "No sweep here" in seen.text
        assert "metlmon new" in seen.text
        await seen.press("down", "x", "v", "f", "m", "enter")
        assert isinstance(seen.app.screen, SweepScreen)


async def test_sweep_of_one_variable_is_a_list() -> None:
    async with opened(dagdir_feed(sweep(widths=("256",))), size=NARROW) as seen:
        await open_grid(seen, "best 0.")
        assert "BEST" in seen.text
        assert "IN EPOCH" in seen.text
        assert "✓ completed" in seen.text
        await seen.press("x")
        assert "nothing to swap" in seen.text
        await seen.press("enter")
        assert isinstance(seen.app.screen, RunScreen)


async def test_lines_fit_their_width() -> None:
    async with opened(dagdir_feed(sweep())) as seen:
        await open_grid(seen)
        screen = seen.app.screen
        assert isinstance(screen, SweepScreen)
        of = screen._shown
        assert of is not None
    for room in (60, 80, 120, 200):
        assert all(width(line) <= room for line in sweep_screen.head_lines(of, room))
        for at in of.cells:
            result = sweep_screen.cell_details(of, at, room)
            assert len(result) == sweep_screen.DETAILS
            assert all(width(line) <= room for line in result)
        drawn = sweep_screen.matrix_layout(of, room, 40)
        assert isinstance(drawn, MatrixLayout)
        for row, column in of.cells:
            for line in drawn.cell(row, column)[: drawn.cell_height]:
                assert width(line) <= drawn.cell_width, text(line)
