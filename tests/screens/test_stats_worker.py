"""Figures are computed when they are requested, and jobs' files read once the logs are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from metlmon.config.settings import Settings
from metlmon.jobfiles.records import TrainingOutput
from metlmon.live.feed import Feed, JobFiles, StatsInput
from metlmon.model.queue import QueueSnapshot
from metlmon.model.states import State
from metlmon.snapshot.records import Ledger, Progress, Snapshot, Status
from screens.base import stats_worker
from screens.base.stats_worker import StatsWorker
from tests.support.patience import PATIENCE


class OneNode:
    """A feed of one node, whose logs have been read so far."""

    settings = Settings()

    def __init__(self, progress: Progress = Progress(2, 2)) -> None:  # noqa: B008
        status = SimpleNamespace(node_states={State.COMPLETED: 1})
        self.latest = Snapshot(cast(Status, status), progress)
        self.asked = 0

    def ledger(self) -> Ledger:
        return Ledger("/nowhere", None, False)

    def job_files(self) -> JobFiles:
        self.asked += 1
        return JobFiles({"run0": TrainingOutput("run0", {}, {}, {})})

    def queue(self) -> QueueSnapshot:
        return QueueSnapshot()


Make = Callable[..., StatsWorker]


@pytest.fixture(name="worker")
def _worker() -> Iterator[Make]:
    """Make a worker of a feed, which is closed at the end."""
    made = []

    def make(
        feed: OneNode | None = None, changed: Callable[[], None] = lambda: None
    ) -> StatsWorker:
        made.append(StatsWorker(cast(Feed, feed or OneNode()), changed))
        return made[-1]

    yield make
    for each in made:
        each.close()


def first(basis: StatsInput) -> str:
    return "first"


def second(basis: StatsInput) -> str:
    return "second"


def comes(what: Callable[[], object], seconds: float = PATIENCE) -> bool:
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(what())


def test_first_request_of_a_figure_ends_the_rest(
    worker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After the least work the thread would rest for longer than a user waits.
    monkeypatch.setattr(stats_worker, "SHARE", 1e7)
    study = worker()
    assert comes(lambda: study.value(first) == "first")
    assert comes(lambda: study.value(second) == "second")


def test_failed_figure_leaves_the_others_and_its_error_ends(worker: Make) -> None:
    errors = [ValueError("not yet")]

    def at_first_broken(basis: StatsInput) -> str:
        for error in errors:
            raise error
        return "computed"

    study = worker()
    study.value(at_first_broken)
    assert comes(lambda: study.error)
    assert "ValueError: not yet" in str(study.error)
    assert comes(lambda: study.value(first) == "first")
    errors.clear()
    assert comes(lambda: study.value(at_first_broken) == "computed")
    assert study.error is None


def test_prefetched_figure_is_ready(worker: Make) -> None:
    received: list[str] = []
    study = worker(OneNode(), lambda: received.append("came"))
    study.precompute(first, second)
    assert comes(lambda: received)
    assert study.value(second) == "second"


def written(basis: StatsInput) -> bool:
    return basis.job_files.are_read


@pytest.fixture
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read again only on request."""
    monkeypatch.setattr(stats_worker, "WRITTEN_SECONDS", 1e6)


@pytest.mark.usefixtures("no_second_look")
def test_prefetched_figure_is_updated_on_request(worker: Make) -> None:
    feed = OneNode()
    study = worker(feed)
    study.precompute(written)
    assert comes(lambda: study._figures[written, ()].stats_input)
    study.watch_job_files()
    assert comes(lambda: study.value(first) and feed.asked and study.wait_until_idle(0.1))
    assert study._figures[written, ()].value is False
    assert comes(lambda: study.value(written))


@pytest.mark.usefixtures("no_second_look")
def test_files_are_read_once_the_logs_are(worker: Make) -> None:
    feed = OneNode(Progress(1, 2))
    study = worker(feed)
    study.watch_job_files()
    assert comes(lambda: study.value(written) is not None)
    assert study.value(written) is False
    assert feed.asked == 0
    feed.latest = replace(feed.latest, progress=Progress(2, 2))
    study.watch_job_files()
    assert comes(lambda: study.value(written))
    assert feed.asked == 1


def test_files_are_read_again_when_the_user_returns(
    worker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats_worker, "FORGET_SECONDS", 0.05)
    monkeypatch.setattr(stats_worker, "WRITTEN_SECONDS", 0.01)
    feed = OneNode()
    study = worker(feed)
    study.watch_job_files()
    assert comes(lambda: feed.asked)

    def read_again_after_a_rest() -> bool:
        before, quiet_until = feed.asked, time.monotonic() + 0.2
        while time.monotonic() < quiet_until:
            if feed.asked != before:  # Only after it rests.
                before, quiet_until = feed.asked, time.monotonic() + 0.2
            time.sleep(0.01)
        study.watch_job_files()
        return comes(lambda: feed.asked > before, seconds=2)

    # On a busy machine it may not have rested yet.
    assert comes(read_again_after_a_rest)
