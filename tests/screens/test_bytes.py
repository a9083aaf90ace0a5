"""The amount of terminal output, and that the terminal then shows the application's picture."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from metlmon.model.states import State
from metlmon.snapshot.records import Run, Snapshot
from tests.support.emulated_terminal import Terminal, terminal
from tests.support.sample_snapshots import RUNS, FakeFeed, run, status, update

CHANGED_ROW = 600
"""Bytes of a row that changed, at 120×40, with what it changes in the header."""

GROWN_ROW = 1000
"""The same of one that gets or loses a second line, while the header tells another incident: all
lines below move, and one comes into view."""

DURATION = 20
"""Bytes of a duration that grew by a second."""


def with_run(at: int, row: Run) -> Snapshot:
    return update(status((*RUNS[:at], row, *RUNS[at + 1 :])))


def later(row: Run, seconds: float) -> Run:
    assert row.latest is not None
    assert row.seconds is not None
    return replace(row, seconds=row.seconds + seconds)


async def settled(seen: Terminal, *keys: str) -> int:
    seen.taken()
    await seen.press(*keys)
    assert not seen.differing()
    return seen.taken()


async def test_terminal_shows_the_picture_of_the_application() -> None:
    way = "down down pagedown s S / r u n 4 escape enter down enter escape escape p escape w escape"
    way += " t left left plus escape c escape e escape i escape exclamation_mark escape"
    way += " question_mark pagedown escape colon escape space a escape T"
    async with terminal(size=(120, 40)) as seen:
        for key in way.split():
            await seen.press(key)
            assert not seen.differing(), key


async def test_changed_row_writes_few_bytes() -> None:
    async with terminal() as seen:
        for row in (
            run("run8", 19, 30, State.IDLE, seconds=0.0, site=None, target="aws"),
            run("run8", 20, 30, State.RUNNING, seconds=3.0, site="Delta"),
            run("run8", 20, 30, State.FAILED, seconds=0.0, site="Delta"),
            RUNS[8],
        ):
            seen.taken()
            await seen.publish(with_run(8, row))
            assert 0 < seen.taken() < CHANGED_ROW, row
            assert not seen.differing()


async def test_growing_row_scrolls_the_rows_below() -> None:
    """A held run has a second line."""
    many = tuple(run(f"run{n}", n % 30, 30, State.RUNNING, seconds=90000.0) for n in range(60))
    feed = FakeFeed(update(status(many)))
    async with terminal(feed) as seen:
        held = run("run2", 2, 30, State.HELD, seconds=0.0, hold="out of memory")
        for row in (held, many[2]):
            seen.taken()
            await seen.publish(update(status((*many[:2], row, *many[3:]))))
            assert 0 < seen.taken() < GROWN_ROW
            assert not seen.differing()


async def test_clock_tick_writes_only_durations() -> None:
    async with terminal() as seen:
        await seen.publish(with_run(4, later(RUNS[4], 60)))
        seen.taken()
        await seen.publish(with_run(4, later(RUNS[4], 120)))
        assert 0 < seen.taken() <= DURATION
        assert "3h43m" in seen.line("run4")
        assert not seen.differing()


async def test_clock_tick_without_a_change_writes_nothing() -> None:
    async with terminal() as seen:
        seen.taken()
        # Its duration has days and minutes.
        await seen.publish(with_run(1, later(RUNS[1], 1)))
        assert seen.taken() == 0


@pytest.mark.parametrize(("columns", "most"), [(119, 1200), (120, 2000)])
async def test_cursor_key_writes_two_rows_and_the_details(columns: int, most: int) -> None:
    """Below the rows is the reason of the stop, from 120 columns on all of the run."""
    async with terminal(size=(columns, 40)) as seen:
        await settled(seen, "down")
        assert await settled(seen, "down") < most
