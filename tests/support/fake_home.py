"""Home with summaries made by a test, without a process that reads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from metlmon.health.types import Severity
from metlmon.home.feed import HomeFeed
from metlmon.home.reading import HomeUpdate
from metlmon.home.summary import EnsembleState, Figures, HomeSummary, Phase
from metlmon.snapshot.records import GpuHours
from metlmon.stats.estimates import Interval
from tests.support.records import blank

TROUBLE = "held by the access point: disk quota exceeded"


def summary(path: str | Path, state: str = "running", **fields: object) -> HomeSummary:
    """A summary that has been read; ``fields`` of its figures."""
    values: dict[str, Any] = {
        **{"as_of": datetime(2025, 11, 14, 8, 14), "live": state == "running"},
        **{"state": EnsembleState(state), "done": 12, "total": 30, "hours": GpuHours(90.0, 10.0)},
    }
    values |= fields
    if isinstance(left := values.get("remaining"), Interval):
        values["expected_end"] = values["as_of"] + timedelta(seconds=left.median)
    figures = blank(Figures, **values)
    return HomeSummary(path=str(path), phase=Phase.READ, figures=figures)


ENSEMBLES = (
    summary("/data/alice/sweep", done=30, state="done", completed_at=datetime(2025, 11, 10, 9)),
    summary(
        "/data/alice/gb1",
        severity=Severity.BLOCKED,
        trouble=TROUBLE,
        headline=f"{TROUBLE} (and 1 more)",
        others=1,
        steps=("Free space", "Release"),
    ),
    summary(
        "/data/alice/long",
        remaining=Interval(6 * 86400.0, 9 * 86400.0, 14 * 86400.0, 40, "its epochs"),
        since_seen="since 13 Nov 17:00: 12 epochs done, 1 run held",
    ),
    HomeSummary(path="/data/bob/closed", phase=Phase.UNREADABLE, error="Permission denied"),
    HomeSummary(path="/data/bob/sweep", phase=Phase.READING, fraction=0.31, size=20_000_000),
)


class FakeHome(HomeFeed):
    """Home with summaries made by a test, without a process."""

    def __init__(self, *summaries: HomeSummary) -> None:
        super().__init__(["/data"])
        self._apply(HomeUpdate(summaries=summaries))
        self.changed: Callable[[], None] = lambda: None
        self.looked_at: list[str] = []

    def start(self, on_change: Callable[[], None]) -> None:
        self.changed = on_change

    def look_again(self, path: str) -> None:
        self.looked_at.append(path)

    def give(self, *summaries: HomeSummary, removed: tuple[str, ...] = ()) -> None:
        self._apply(HomeUpdate(summaries=summaries, removed=removed))
        self.changed()
