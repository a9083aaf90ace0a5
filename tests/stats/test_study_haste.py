"""Who waits before an empty screen does not wait for the thread's rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from metlmon.live.feed import Feed, Snapshot
from metlmon.model.settings import Settings
from metlmon.model.states import State
from metlmon.snapshot.ledger import Ledger
from metlmon.snapshot.types import Progress, Status
from metlmon.stats import worker as studies
from metlmon.stats.worker import FIRST_AT_ONCE, StatsInput, StatsWorker

PATIENCE = 10.0


class Large:
    """A feed of so many nodes that figures are computed in the thread."""

    settings = Settings()

    def __init__(self) -> None:
        status = SimpleNamespace(node_states={State.COMPLETED: FIRST_AT_ONCE + 1})
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
    monkeypatch.setattr(studies, "SHARE", 1e7)
    study = StatsWorker(cast(Feed, Large()), lambda: None)
    try:
        assert comes(lambda: study.value(first) == "first")
        assert comes(lambda: study.value(second) == "second")
    finally:
        study.close()


class Small(Large):
    """A feed of one node: its figures are computed when they are asked for."""

    def __init__(self) -> None:
        status = SimpleNamespace(node_states={State.COMPLETED: 1})
        self.latest = Snapshot(cast(Status, status), frozenset(), Progress(1, 1))


def broken(basis: StatsInput) -> str:
    raise ValueError("no such thing")


def test_a_figure_that_fails_is_told_of_and_leaves_the_others() -> None:
    study = StatsWorker(cast(Feed, Small()), lambda: None)
    assert study.value(broken) is None
    assert study.error is not None
    assert "ValueError: no such thing" in study.error
    assert study.value(first) == "first"


def test_a_figure_that_fails_in_the_thread_leaves_the_others() -> None:
    study = StatsWorker(cast(Feed, Large()), lambda: None)
    try:
        study.value(broken)
        assert comes(lambda: study.error)
        assert comes(lambda: study.value(first) == "first")
    finally:
        study.close()


def test_what_is_foreseen_is_there_when_it_is_asked_for() -> None:
    told: list[str] = []
    study = StatsWorker(cast(Feed, Large()), lambda: told.append("came"))
    try:
        study.precompute(first, second)
        assert comes(lambda: told)
        assert study.value(second) == "second"
    finally:
        study.close()


def test_nothing_is_foreseen_where_it_takes_no_time() -> None:
    study = StatsWorker(cast(Feed, Small()), lambda: None)
    study.precompute(first)
    assert study._thread is None
