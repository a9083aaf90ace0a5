"""The menu, the question, the answers and the queue's word as pictures, small and large. Look
at a difference before you accept it, as with the other screens."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.model.run import GateStatus
from metlmon.pool.types import ResultCode, SiteInfo
from screens.app import AppOptions
from tests.support.acting_app import Punctual
from tests.support.fake_pool import WORD, FakePool, QueuedFeed
from tests.support.queue_rows import dagman
from tests.support.sample_snapshots import RUNS, status, update
from tests.support.screen_view import NARROW, WIDE, pressed

MARKED = ("down", "space", "space", "space", "space")
WAYS = {
    "marks": MARKED,
    "menu": (*MARKED, "a"),
    "question": (*MARKED, "X"),
    "question-dag": ("D",),
    "priority": (*MARKED, "P"),
    "answers": (*MARKED, "X", "y"),
    "idle": ("down", "down", "down"),
    "idle-job": ("down", "down", "down", "enter", "enter"),
}


def _application(**options: bool) -> Punctual:
    pool = FakePool()
    run2, run3 = (row.latest.cluster for row in RUNS[2:4] if row.latest is not None)
    pool.replies = {
        f"{run2}.0": (ResultCode.DENIED, "the job belongs to colleague, you are someone"),
        f"{run3}.0": (ResultCode.ALREADY, ""),
    }
    feed = QueuedFeed(update(), Path("/nowhere/global_pretraining"))
    return Punctual(feed, AppOptions(pool_actions=pool, **options))


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "200x50"])
@pytest.mark.parametrize("screen", WAYS)
def test_screen(snap_compare, screen: str, size: tuple[int, int]) -> None:  # type: ignore[no-untyped-def]
    assert snap_compare(_application(), terminal_size=size, run_before=pressed(WAYS[screen]))


STEERED = {
    "stop": ("T",),
    "stop-now": ("K",),
    "send": ("E", "d"),
    "sent": ("E", *"Delta-GPU", "enter"),
    "answered": ("K", "y"),
}


def _steered() -> Punctual:
    """Runs with gates, and a collector that knows two sites."""
    pool = FakePool()
    pool.queue_snapshot = replace(WORD, dagmans=(dagman(),))
    pool.answers["sites"] = (
        SiteInfo("Delta-GPU", 4, ("NVIDIA A40",)),
        SiteInfo("Expanse-GPU", 2, ("NVIDIA A100-SXM4-40GB",)),
    )
    pool.replies = {
        RUNS[8].uuid or "": (ResultCode.DONE, f"gate/ens/{RUNS[8].uuid}.stop was written")
    }
    rows = tuple(replace(row, gate=GateStatus()) for row in RUNS)
    feed = QueuedFeed(update(status(rows)), Path("/nowhere/global_pretraining"))
    return Punctual(feed, AppOptions(pool_actions=pool))


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "200x50"])
@pytest.mark.parametrize("screen", STEERED)
def test_steering(snap_compare, screen: str, size: tuple[int, int]) -> None:  # type: ignore[no-untyped-def]
    keys = ("down",) * 7 + ("space", "space", *STEERED[screen])
    assert snap_compare(_steered(), terminal_size=size, run_before=pressed(keys))


@pytest.mark.parametrize("screen", ["menu", "answers"])
def test_screen_without_colours(snap_compare, screen: str) -> None:  # type: ignore[no-untyped-def]
    app = _application(no_color=True, ascii=True)
    assert snap_compare(app, terminal_size=NARROW, run_before=pressed(WAYS[screen]))
