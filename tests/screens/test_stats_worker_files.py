"""What jobs write is read as soon as the logs are, and again while somebody wants it."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from metlmon.config.settings import Settings
from metlmon.jobfiles.records import TrainingOutput
from metlmon.live.feed import Feed, Snapshot
from metlmon.snapshot.ledger import Ledger
from metlmon.snapshot.types import Progress, Status
from metlmon.stats.inputs import StatsInput
from screens.base import stats_worker as module
from screens.base.stats_worker import WRITTEN_SECONDS, StatsWorker

SOON = WRITTEN_SECONDS / 2


class Reading:
    """A feed whose logs are read half."""

    settings = Settings()

    def __init__(self) -> None:
        status = cast(Status, SimpleNamespace(node_states={}))
        self.latest = Snapshot(status, frozenset(), Progress(1, 2))
        self.asked = 0

    def ledger(self) -> Ledger:
        return Ledger("/nowhere", None, True)

    def training_outputs(self) -> dict[str, TrainingOutput]:
        self.asked += 1
        return {"run0": TrainingOutput("run0", {}, {}, {})}

    def progress_lines(self) -> dict[Any, Any]:
        return {}


def written(basis: StatsInput) -> bool:
    return basis.files_read


def came(what: Callable[[], object], seconds: float = SOON) -> bool:
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(what())


def test_files_are_read_at_once_when_the_logs_have_been_read() -> None:
    feed = Reading()
    study = StatsWorker(cast(Feed, feed), lambda: None)
    try:
        study.watch_job_files()
        assert came(lambda: study.value(written) is not None)
        assert study.value(written) is False
        assert feed.asked == 0
        feed.latest = replace(feed.latest, progress=Progress(2, 2))
        study.watch_job_files()
        assert came(lambda: study.value(written))
        assert feed.asked == 1
    finally:
        study.close()


def test_files_are_read_again_when_somebody_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORGET_SECONDS", 0.05)
    monkeypatch.setattr(module, "WRITTEN_SECONDS", 0.01)
    feed = Reading()
    feed.latest = replace(feed.latest, progress=Progress(2, 2))
    study = StatsWorker(cast(Feed, feed), lambda: None)
    try:
        study.watch_job_files()
        assert came(lambda: feed.asked)
        before, quiet_until = feed.asked, time.monotonic() + 0.2
        while time.monotonic() < quiet_until:
            if feed.asked != before:  # Not before it rests.
                before, quiet_until = feed.asked, time.monotonic() + 0.2
            time.sleep(0.01)
        study.watch_job_files()
        assert came(lambda: feed.asked > before)
    finally:
        study.close()
