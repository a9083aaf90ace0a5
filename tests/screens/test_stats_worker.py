"""Who waits before an empty screen does not wait for the thread's rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from metlmon.config.settings import Settings
from metlmon.live.feed import Feed, Snapshot
from metlmon.model.states import State
from metlmon.snapshot.ledger import Ledger
from metlmon.snapshot.types import Progress, Status
from metlmon.stats.inputs import StatsInput
from screens.base import stats_worker
from screens.base.stats_worker import StatsWorker

PATIENCE = 10.0


class OneNode:
    """A feed of one node."""

    settings = Settings()

    def __init__(self) -> None:
        status = SimpleNamespace(node_states={State.COMPLETED: 1})
        self.latest = Snapshot(cast(Status, status), frozenset(), Progress(1, 1))

    def ledger(self) -> Ledger:
        return Ledger("/nowhere", None, False)

    def training_outputs(self) -> dict[str, Any]:
        return {}

    def progress_lines(self) -> dict[Any, Any]:
        return {}


def first(basis: StatsInput) -> str:
    return "first"


def second(basis: StatsInput) -> str:
    return "second"


def comes(what: Callable[[], object]) -> bool:
    end = time.monotonic() + PATIENCE
    while not what() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(what())


def test_a_figure_asked_for_the_first_time_ends_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    # After the least work the thread would rest for longer than anybody waits here.
    monkeypatch.setattr(stats_worker, "SHARE", 1e7)
    study = StatsWorker(cast(Feed, OneNode()), lambda: None)
    try:
        assert comes(lambda: study.value(first) == "first")
        assert comes(lambda: study.value(second) == "second")
    finally:
        study.close()


def broken(basis: StatsInput) -> str:
    raise ValueError("no such thing")


def test_a_figure_that_fails_in_the_thread_leaves_the_others() -> None:
    study = StatsWorker(cast(Feed, OneNode()), lambda: None)
    try:
        study.value(broken)
        assert comes(lambda: study.error)
        assert "ValueError: no such thing" in str(study.error)
        assert comes(lambda: study.value(first) == "first")
    finally:
        study.close()


def test_what_is_foreseen_is_there_when_it_is_asked_for() -> None:
    told: list[str] = []
    study = StatsWorker(cast(Feed, OneNode()), lambda: told.append("came"))
    try:
        study.precompute(first, second)
        assert comes(lambda: told)
        assert study.value(second) == "second"
    finally:
        study.close()
