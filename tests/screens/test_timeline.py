"""The timeline: its contents, the cursor in time, zoom and pan."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import screens.timeline
from screens.job import JobScreen
from screens.run import RunScreen
from screens.theme import SIXTEEN
from screens.timeline import TimelineScreen
from tests.conftest import Shared
from tests.support.dagdir_builder import Dagdir
from tests.support.screen_view import NARROW, WIDE
from tests.support.static_sessions import FIXTURES, opened, session

TRAINER = FIXTURES / "trainer"
BAR = set("█▚░╳▓▒▇")


def timeline(seen: object) -> TimelineScreen:
    screen = seen.app.screen  # type: ignore[attr-defined]
    assert isinstance(screen, TimelineScreen)
    return screen


# --- contents -------------------------------------------------------------------------------


async def test_first_line_has_the_stalls(shared: Shared) -> None:
    async with opened(session(shared("examples/metl-aws")), WIDE) as seen:
        await seen.press("4")
        assert "idle 2d16h, 7 Nov 16:02 → 10 Nov 08:14" in seen.lines[0]
        assert "longest of 12" in seen.lines[0]
        assert "GPUs at a time 10 max, 4.44 mean" in seen.lines[1]
        assert "jobs at a time 5 max, 2.22 mean" in seen.lines[1]


async def test_legend_of_a_small_screen_has_every_kind_that_occurs() -> None:
    past = session(FIXTURES / "first-round")
    async with opened(past, NARROW) as seen:
        await seen.press("4")
        legend, lanes = seen.line("goodput"), [seen.line(f" hetero{run} ") for run in range(6)]
        shown = set("".join(lanes)) & set("█▓▚▒░╳┄")
        assert "┄" in shown
        assert shown <= set(legend)


async def test_every_run_has_a_lane_on_a_small_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screens.timeline, "AT_ONCE", 51)
    threads = counted(monkeypatch, TimelineScreen, "_stack")
    async with opened(session(TRAINER), NARROW) as seen:
        await seen.press("4")
        for run in range(6):
            row = seen.line(f" run{run} ")
            assert len(row.rstrip()) <= 80
            assert set(row) & set("█▚░"), row
        assert "╳" in seen.line(" run0 "), "its hold is seen"
        assert "│14:21:45" in seen.line("RUN")
        assert "██ goodput" in seen.text
        assert "╳╳ held" in seen.text
        assert "suspended" not in seen.text, "there was none"
        assert "6 GPUs" in seen.text
        made = timeline(seen).present_timeline
        assert len(made.executions) == 51
        assert sum(len(lane.spans) for lane in made.lanes) > 51, "each has several spans"
        assert not threads, "the chart of so few is there at once"
        await seen.press("slash", *"run3", "enter")
        assert " run3 " in seen.text
        assert " run1 " not in seen.text
        await seen.press("escape")
        assert " run1 " in seen.text
        assert isinstance(seen.app.screen, TimelineScreen)


# --- cost -----------------------------------------------------------------------------------


def counted(monkeypatch: pytest.MonkeyPatch, where: object, name: str) -> Counter[object]:
    """The calls of this function from now on, by the first argument with a key, else by its
    name."""
    calls: Counter[object] = Counter()
    real = getattr(where, name)

    def call(*args: Any, **how: Any) -> Any:
        calls[next((each.key for each in args[:2] if hasattr(each, "key")), name)] += 1
        return real(*args, **how)

    monkeypatch.setattr(where, name, call)
    return calls


async def test_opening_draws_visible_lanes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    chart = counted(monkeypatch, screens.timeline, "stacks")
    lanes = counted(monkeypatch, screens.timeline, "lane_cells")
    async with opened(session(FIXTURES / "first-round"), NARROW) as seen:
        await seen.press("4")
        assert chart.total() == 1
        assert len(lanes) < 21, "the others are not in view"
        assert set(lanes.values()) == {1}
        await seen.press("left")
        assert chart.total() == 1
        assert set(lanes.values()) == {1}, "the cursor moved over what is drawn"


# --- other terminals ------------------------------------------------------------------------


@pytest.mark.parametrize(("dagdir", "first_line"), {
    "health/hold-codes": "idle 1s: 8 held, since Mon 23 Nov 22:28:32",
    "health/black-hole": "never idle   longest wait: run3 idle for 51s",
    "health/dag-failed": "never idle   run0 idle for 1s so far",
}.items())  # fmt: skip
async def test_first_line_has_the_wait(dagdir: str, first_line: str) -> None:
    async with opened(session(FIXTURES / dagdir), WIDE) as seen:
        await seen.press("4")
        assert first_line in seen.lines[0]


@pytest.mark.parametrize("key", ["4", "3"])
async def test_bars_of_the_selected_row_are_not_reversed(key: str) -> None:
    """In sixteen colours and without any, the row under the cursor is shown in reverse: a full
    cell would be blank, and a blank one full."""
    async with opened(session(TRAINER), NARROW) as seen:
        seen.app.theme = SIXTEEN.name
        await seen.press(key)
        strips = seen.app.screen._compositor.render_strips()
        (row,) = [strip for strip in strips if strip.text.startswith("▌") and set(strip.text) & BAR]
        texts = {s.text: bool(s.style and s.style.reverse) for s in row if s.text.strip()}
        assert any(texts.values()), "the row is marked"
        drawn = {text: reverse for text, reverse in texts.items() if set(text) & BAR}
        assert not any(drawn.values()), drawn


async def test_empty_timeline_explains_what_fills_it(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path / "ensemble")
    async with opened(session(dagdir.path), NARROW) as seen:
        await seen.press("4", "left", "plus", "z", "at", "enter", "full_stop", "u")
        assert "No job has an event yet." in seen.text
        assert "lane" in seen.text


# --- the cursor -----------------------------------------------------------------------------


async def test_cursor_shows_the_state_of_the_run_at_its_time() -> None:
    async with opened(session(TRAINER), WIDE) as seen:
        await seen.press("4", "z")
        made, screen = timeline(seen).present_timeline, timeline(seen)
        worst = max(made.stalls, key=lambda stall: stall.seconds)
        assert screen.cursor_seconds == worst.start_position
        assert f"{worst.start:%d %b %H:%M:%S}" in seen.lines[-4]
        assert "idle" in seen.lines[-4]
        # run0's one hold, from change to change.
        while "■ held" not in seen.lines[-3]:
            before = screen.cursor_seconds
            await seen.press("full_stop")
            assert screen.cursor_seconds != before, "it was never held"
        assert "■ held epoch 2" in seen.lines[-3]
        assert "for 0s of 7s" in seen.lines[-3]
        assert "┃" in seen.line(" run0 ")


async def test_left_and_right_move_by_round_steps() -> None:
    async with opened(session(TRAINER), NARROW) as seen:
        await seen.press("4", "left")
        screen = timeline(seen)
        made = screen.present_timeline
        assert made is not None
        first = screen.cursor_seconds
        await seen.press("left", "shift+left")
        assert screen.cursor_seconds is not None
        assert first is not None
        assert screen.cursor_seconds < first
        moment = made.time_at(screen.cursor_seconds)
        assert moment.microsecond == 0
        await seen.press(*["shift+right"] * 4)
        assert screen.cursor_seconds is None, "at the end it goes along with it"
        assert "21 Nov 14:22:36" in seen.lines[-4]


async def test_enter_opens_the_job_or_run_under_the_cursor() -> None:
    async with opened(session(TRAINER), WIDE) as seen:
        await seen.press("4", "comma", "comma")
        screen = timeline(seen)
        made = screen.present_timeline
        spans = made.lanes[0].spans_at(screen.cursor_seconds or 0.0)
        await seen.press("enter")
        if spans:
            assert isinstance(seen.app.screen, JobScreen)
            assert seen.app.screen.job == spans[0].job
        await seen.press("escape")
        screen.cursor_seconds = None
        assert not made.lanes[0].spans_at(made.seconds), "the run was over by then"
        await seen.press("enter")
        assert isinstance(seen.app.screen, RunScreen)


async def test_zoom_keeps_the_cursor_in_place() -> None:
    async with opened(session(FIXTURES / "first-round"), WIDE) as seen:
        await seen.press("4", "z")
        screen = timeline(seen)

        def window() -> tuple[float, float, int]:
            view = screen._view
            assert view is not None
            at = screen.cursor_seconds or 0.0
            return view.window.start, view.window.cell_seconds, view.window.cell(at)

        start, each, cell = window()
        assert start == 0.0
        await seen.press("plus", "plus")
        closer = window()
        assert closer[1] == pytest.approx(each / 4)
        assert abs(closer[2] - cell) <= 1
        assert "a cell is 3h01m" in seen.lines[-5]
        await seen.press("left_parenthesis")
        panned = window()
        assert panned[0] < closer[0]
        assert panned[1] == closer[1]
        assert abs(panned[2] - closer[2]) <= 1, "the cursor went along"
        await seen.press("minus", "minus", "minus")
        assert window()[:2] == (start, each)
        await seen.press("plus", "0")
        assert window()[:2] == (start, each)
