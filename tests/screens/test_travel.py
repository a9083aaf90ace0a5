"""Time travel: every screen shows a prefix of the logs, and one key returns to now."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import Feed
from metlmon.snapshot.records import Snapshot
from metlmon.stats.timeline import build_timeline
from metlmon.text.spans import text
from screens.health import HealthScreen
from screens.overview import OverviewScreen
from screens.pool_actions import MenuScreen
from screens.timeline import TimelineScreen
from screens.widgets.line_widget import Document
from tests.conftest import Shared
from tests.support import recordings
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.patience import PATIENCE
from tests.support.records import read_dagdir
from tests.support.screen_view import NARROW, WIDE, RunningApp
from tests.support.static_sessions import FIXTURES, StaticSession, opened, session

TRAINER = FIXTURES / "trainer"
MIDDLE = datetime(2026, 11, 21, 14, 21, 50)


async def travelled(seen: RunningApp, moment: datetime) -> None:
    travel = seen.app.time_travel
    travel.load(moment)
    await seen.until(lambda: travel.past_view is not None and travel.past_view.moment == moment)


# --- it is a prefix of the logs -------------------------------------------------------------


def moments(dagdir: Path, count: int) -> list[datetime]:
    """Evenly over the whole story, between events."""
    made = build_timeline(read_dagdir(dagdir).ledger())
    assert made.first is not None
    assert made.last is not None
    each = (made.last - made.first) / (count + 1)
    return [
        (made.first + each * n + timedelta(seconds=0.4)).replace(microsecond=0)
        for n in range(count + 1)
    ]


@pytest.mark.parametrize("name", ["rescue", "metl-aws"])
async def test_past_snapshot_equals_that_of_a_reader_as_of_then(name: str, shared: Shared) -> None:
    dagdir = shared("examples/metl-aws") if name == "metl-aws" else FIXTURES / name
    async with opened(session(dagdir), NARROW) as seen:
        for moment in moments(dagdir, 2 if name == "metl-aws" else 4):
            await travelled(seen, moment)
            status = seen.app.snapshot.status
            assert status == read_dagdir(dagdir, as_of=moment).status(), "as a reader of its own"
            assert status.as_of == moment
            assert not status.live
            ledger = seen.app.feed.ledger()
            assert all(job.submitted is None or job.submitted <= moment for job in ledger.jobs)
            assert all(run.end is None or run.end <= moment for run in ledger.executions)


# --- on every screen ------------------------------------------------------------------------


async def test_all_screens_travel_and_esc_returns() -> None:
    async with opened(session(TRAINER), WIDE) as seen:
        now = seen.app.snapshot
        await seen.press("4", "left", "left", "at")
        travel = seen.app.time_travel
        await seen.until(lambda: travel.past_view is not None)
        first = travel.past_view.moment
        assert seen.lines[0].lstrip().startswith(f"◀◀ as it was {first:%d %b %Y %H:%M:%S}")
        assert "before the end) — esc returns to now" in seen.lines[0]
        await seen.press("left")
        await seen.until(lambda: travel.past_view is not None and travel.past_view.moment < first)
        await seen.press("2")
        assert isinstance(seen.app.screen, HealthScreen)
        assert "as it was" in seen.lines[0]
        await seen.press("escape")
        assert isinstance(seen.app.screen, HealthScreen), "first to now, then back"
        assert seen.app.snapshot is now
        assert not travel.active
        assert "as it was" not in seen.text
        assert "Health" in seen.lines[0]
        await seen.press("escape")
        assert isinstance(seen.app.screen, TimelineScreen)


async def test_past_has_no_actions_and_no_job_output() -> None:
    async with opened(session(TRAINER), WIDE) as seen:
        await travelled(seen, MIDDLE)
        why = seen.app.action_refusal()
        assert why is not None
        assert "21 Nov 2026 14:21:50" in why
        assert "only the present can be acted on" in why
        await seen.press("a", "H")
        assert isinstance(seen.app.screen, MenuScreen)
        assert "only the present can be acted on" in seen.text
        await seen.press("escape")
        assert isinstance(seen.app.screen, OverviewScreen)
        assert seen.app.time_travel.active, "the menu was left, not the past"
        await seen.press("N")
        assert isinstance(seen.app.screen, OverviewScreen)
        assert "only the present" in seen.text
        await seen.press("enter", "enter")
        story = seen.app.screen.query_one("#story", Document)
        result = "\n".join(text(line) for line in story.lines)
        assert result.count("not known: its lines carry no times") == 2, "of .out and .err"
        await seen.press("enter", "ctrl+v")
        assert "its lines carry no times" in seen.lines[-3], "nor does a pager show the file"
        await seen.press("escape", "escape")
        result = "\n".join(text(line) for line in story.lines)
        assert "carry no times" not in result, "now it is read"


async def test_two_keys_step_through_time_on_every_screen() -> None:
    async with opened(session(TRAINER), NARROW) as seen:
        travel = seen.app.time_travel
        await seen.press("less_than_sign", "less_than_sign", "less_than_sign")
        await seen.until(lambda: travel.past_view is not None and travel.requested_moment is None)
        assert travel.past_view.moment == datetime(2026, 11, 21, 14, 22, 33)
        await seen.press("greater_than_sign")
        await seen.until(lambda: travel.past_view is not None and travel.requested_moment is None)
        assert travel.past_view.moment == datetime(2026, 11, 21, 14, 22, 34)
        await seen.press(*["greater_than_sign"] * 3)
        await seen.until(lambda: not travel.active)


# --- the present meanwhile, and errors ------------------------------------------------------


async def test_present_goes_on_meanwhile(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path / "ensemble")
    log = Log().submit(77, NODE, at="10:00:00").execute(77, at="10:05:00")
    dagdir.write("metl.log", log.data)

    class EnsembleReading(StaticSession):
        def start(self, notify: Callable[[Snapshot], None]) -> None:
            self.notify = notify

        def news(self) -> None:
            self._reader.check()
            self._reader.read_all()
            self.notify(self.take())

    feed = EnsembleReading(recordings.opened(dagdir.path))
    began = feed.take().status.as_of
    assert began is not None
    async with opened(feed, NARROW) as seen:
        await travelled(seen, began - timedelta(minutes=1))
        assert "idle" in seen.line(" run0 ")
        dagdir.append("metl.log", Log().hold(77, 34, "too large", at="11:00:00").data)
        feed.news()
        await seen.settle()
        assert "idle" in seen.line(" run0 "), "the past does not change"
        await seen.press("escape")
        assert "held" in seen.line(" run0 ")


class SlowSession(StaticSession):
    """A session whose past snapshots open when the test lets them."""

    def __init__(self, reader: DagdirReader) -> None:
        super().__init__(reader)
        self.gate = threading.Event()
        self.asked: list[datetime] = []
        self.made: list[Feed] = []

    def historical(self, moment: datetime) -> Feed:
        self.asked.append(moment)
        if len(self.asked) == 1:
            assert self.gate.wait(PATIENCE)
        made = super().historical(moment)
        self.made.append(made)
        return made


async def test_latest_requested_time_counts() -> None:
    feed = SlowSession(recordings.opened(TRAINER))
    feed.take()
    async with opened(feed, NARROW) as seen:
        travel = seen.app.time_travel
        travel.load(MIDDLE)
        while not feed.asked:
            await seen.pilot.pause(0.01)
        newest = MIDDLE + timedelta(seconds=9)
        # Two more requests at once: only the last one is read.
        travel.load(MIDDLE + timedelta(seconds=5))
        travel.load(newest)
        assert "going to 21 Nov 2026 14:21:59" in text(travel.banner(80))
        while travel.past_view is None or travel.past_view.moment != newest:
            await seen.pilot.pause(0.01)
        feed.gate.set()
        await seen.settle()
        assert feed.asked == [MIDDLE, newest]
        assert travel.past_view.moment == newest
        assert seen.app.snapshot.status.as_of == newest


async def test_unreadable_past_has_a_reason() -> None:
    class Gone(StaticSession):
        def historical(self, moment: datetime) -> Feed:
            raise InputError("/x: there is no DAG file here any more")

    feed = Gone(recordings.opened(TRAINER))
    feed.take()
    async with opened(feed, NARROW) as seen:
        seen.app.time_travel.load(MIDDLE)
        await seen.until(lambda: seen.app.time_travel.error is not None)
        assert "that past cannot be read: /x: there is no DAG file" in seen.lines[0]
        assert not seen.app.time_travel.active
        await seen.press("escape")
        assert "cannot be read" not in seen.text
