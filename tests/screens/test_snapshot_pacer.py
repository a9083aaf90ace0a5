"""Several changes in a row are shown without a delay, and many at a limited rate."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import pytest
from msgspec.structs import replace

from metlmon.live.feed import Snapshot
from screens.base import snapshot_pacer
from screens.base.snapshot_pacer import BURST, SnapshotPacer
from tests.support.sample_snapshots import update

REPAINT = 0.2


class Clock:
    """The time, as the pacer sees it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(snapshot_pacer, "monotonic", clock)
    return clock


def shown_at(clock: Clock, gap: float, count: int) -> list[float]:
    """When each of so many changes is shown, that come ``gap`` seconds after another."""
    pacer, shown, times = SnapshotPacer(REPAINT, lambda idle: None), None, []
    snapshot = cast(Snapshot, update())
    for number in range(count):
        clock.now += gap
        pacer.receive(replace(snapshot, error=str(number)))
        wait = pacer.seconds_until_due(shown)
        assert wait is not None
        clock.now += wait
        shown = pacer.take(shown)
        times.append(clock.now)
    return times


def test_the_events_of_one_job_are_shown_as_they_come(clock: Clock) -> None:
    times = shown_at(clock, 0.02, BURST)
    assert [after - before for before, after in pairwise(times)] == pytest.approx([0.02] * 4)


def test_many_changes_are_shown_at_a_limited_rate(clock: Clock) -> None:
    times = shown_at(clock, 0.0, 10 * BURST)
    for first, after in zip(times, times[BURST:], strict=False):
        assert after - first >= BURST * REPAINT - 1e-9


def test_a_change_after_a_pause_is_shown_at_once(clock: Clock) -> None:
    shown_at(clock, 0.0, BURST)
    assert shown_at(clock, REPAINT * BURST, 3) == pytest.approx(
        [clock.now - 2 * REPAINT * BURST, clock.now - REPAINT * BURST, clock.now]
    )
