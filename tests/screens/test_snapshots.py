"""Ten pictures of what is drawn: tables, charts, questions; small and wide, in ASCII, on light.
Look at a difference before you accept it: ``pytest tests/screens/test_snapshots.py
--snapshot-update`` takes new pictures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from metlmon.pool.types import ResultCode
from screens.app import AppOptions
from tests.support.acting_app import PunctualApp
from tests.support.builder_feed import BuilderFeed
from tests.support.event_logs import read_ensemble
from tests.support.fake_pool import FakePool, QueuedFeed
from tests.support.four_sites import placed_feed
from tests.support.node_graphs import fan, fan_log
from tests.support.sample_snapshots import RUNS, FakeFeed, update
from tests.support.sample_trainings import learning
from tests.support.screen_view import NARROW, WIDE, EagerApp, pressed
from tests.support.static_sessions import FIXTURES, app, session

MIDDLE = 120, 30
DAGDIR = Path("/nowhere/global_pretraining")
Way = Callable[[Pilot[int]], Awaitable[None]]


def overview(**options: bool) -> EagerApp:
    return EagerApp(FakeFeed(update(), DAGDIR), AppOptions(**options))  # type: ignore[arg-type]


def acting() -> PunctualApp:
    """A pool that refuses one of the marked jobs, and has already done another."""
    pool = FakePool()
    run2, run3 = (row.latest.cluster for row in RUNS[2:4] if row.latest is not None)
    pool.replies = {
        f"{run2}.0": (ResultCode.DENIED, "the job belongs to colleague, you are someone"),
        f"{run3}.0": (ResultCode.ALREADY, ""),
    }
    return PunctualApp(QueuedFeed(update(), DAGDIR), pool=pool)


def nodes() -> EagerApp:
    return EagerApp(BuilderFeed(read_ensemble({"run.dag": fan()}, fan_log()).builder()))


MARKED = ("down", "space", "space", "space", "space")
PICTURES: dict[str, tuple[Callable[[], EagerApp], tuple[int, int], Way]] = {
    "overview": (overview, NARROW, pressed()),
    "overview-wide": (overview, WIDE, pressed()),
    "overview-ascii": (lambda: overview(ascii=True, no_color=True), MIDDLE, pressed()),
    "overview-light": (overview, MIDDLE, pressed("ctrl+t")),
    "job": (overview, NARROW, pressed("down", "enter", "enter")),
    "question-answered": (acting, NARROW, pressed(*MARKED, "a", "X", "y")),
    "nodes": (nodes, NARROW, pressed("6", "down")),
    "sites": (lambda: EagerApp(placed_feed()), NARROW, pressed("3")),
    "curves": (lambda: EagerApp(learning()), WIDE, pressed("5", "v", "down", drawn="┤")),
    "timeline": (lambda: app(session(FIXTURES / "trainer")), WIDE, pressed("4", "z")),
}


@pytest.mark.parametrize("name", PICTURES)
def test_picture(snap_compare, name: str) -> None:  # type: ignore[no-untyped-def]
    make, size, way = PICTURES[name]
    assert snap_compare(make(), terminal_size=size, run_before=way)
