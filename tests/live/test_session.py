"""The reading thread: a new picture after an append, a clean end, nothing lost between."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from metlmon.live.dagdir_reader import DagdirReader, ReadStep
from metlmon.live.feed import Snapshot
from metlmon.live.session import Session
from metlmon.model.states import State
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.patience import PATIENCE


class Watched:
    """A session whose pictures are kept for the test to wait on."""

    def __init__(self, dagdir: Dagdir, live: bool | None = False) -> None:
        self.reader = DagdirReader(dagdir.path, live=live)
        self.reader.open()
        self.session = Session(self.reader)
        self.pictures: queue.Queue[Snapshot] = queue.Queue()
        self.threads: set[str] = set()
        self.session.start(self._notify)

    def _notify(self, update: Snapshot) -> None:
        self.threads.add(threading.current_thread().name)
        self.pictures.put(update)

    def until(self, state: State) -> Snapshot:
        """The first picture in which run 0 is in this state."""
        while True:
            update = self.pictures.get(timeout=PATIENCE)
            if update.status.runs and update.status.runs[0].state is state:
                return update


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", Log().submit(77, NODE).data)
    return dagdir


@pytest.fixture(name="watched")
def _watched(dagdir: Dagdir) -> Iterator[Watched]:
    watched = Watched(dagdir)
    yield watched
    watched.session.stop()


def test_the_first_picture_then_one_for_each_append(watched: Watched, dagdir: Dagdir) -> None:
    first = watched.until(State.IDLE)
    assert first.changed == {"aaaa1111-0000"}
    assert first.progress.fraction == 1.0
    assert first.error is None
    dagdir.append("metl.log", Log().execute(77).data)
    update = watched.until(State.RUNNING)
    assert update.changed == {"aaaa1111-0000"}
    dagdir.append("metl.log", Log().hold(77, 34, "too large", at="11:00:00").data)
    held = watched.until(State.HELD)
    latest = held.status.runs[0].latest
    assert latest is not None
    assert latest.hold_reason == "too large"
    # The picture before is what it was.
    assert update.status.runs[0].state is State.RUNNING


def test_a_run_that_did_not_change_is_not_named(dagdir: Dagdir) -> None:
    dagdir.append("run.dag", b"JOB run9-train_epoch0 train\n")
    watched = Watched(dagdir)
    try:
        watched.until(State.IDLE)
        dagdir.append("metl.log", Log().execute(77).data)
        assert watched.until(State.RUNNING).changed == {"aaaa1111-0000"}
    finally:
        watched.session.stop()


def test_views_are_asked_from_any_thread(watched: Watched, dagdir: Dagdir) -> None:
    dagdir.append("metl.log", Log().execute(77).hold(77, 34, "too large").data)
    watched.until(State.HELD)
    run = watched.session.run_view("aaaa1111-0000")
    assert run is not None
    assert [row.state for row in run.epochs] == [State.HELD, State.WAITING]
    job = watched.session.job_view(77, 0)
    assert job is not None
    assert [event.number for event in job.events] == [0, 1, 12]
    (group,) = watched.session.problems()
    assert (group.kind, group.now) == ("held", 1)
    assert watched.session.run_view("nobody") is None
    assert watched.session.job_view(1, 0) is None


def test_it_ends_when_it_is_asked_to(dagdir: Dagdir) -> None:
    watched = Watched(dagdir)
    watched.until(State.IDLE)
    watched.session.stop()
    names = {thread.name for thread in threading.enumerate()}
    assert "metlmon-reader" not in names
    dagdir.append("metl.log", Log().execute(77).data)
    assert watched.session.latest is not None
    assert watched.session.latest.status.runs[0].state is State.IDLE


def test_it_may_be_told_before_it_began(dagdir: Dagdir) -> None:
    reader = DagdirReader(dagdir.path)
    reader.open()
    session = Session(reader)
    session.stop()
    assert session.latest is None


def test_a_dagdir_that_goes_is_reported_and_the_picture_stays(
    watched: Watched, dagdir: Dagdir
) -> None:
    watched.until(State.IDLE)
    dagdir.path.rename(dagdir.path.with_name("elsewhere"))
    while True:
        update = watched.pictures.get(timeout=PATIENCE)
        if update.error is not None:
            break
    assert "no such directory" in update.error
    assert update.status.runs[0].state is State.IDLE


def test_a_live_ensembles_clock_ticks(dagdir: Dagdir) -> None:
    """Durations grow although nothing is written."""
    watched = Watched(dagdir, live=True)
    try:
        first = watched.until(State.IDLE)
        second = watched.pictures.get(timeout=PATIENCE)
        assert first.status.as_of is not None
        assert second.status.as_of is not None
        assert second.status.as_of >= first.status.as_of
        assert second.changed <= {"aaaa1111-0000"}
    finally:
        watched.session.stop()


def test_a_dead_ensembles_clock_does_not(watched: Watched) -> None:
    watched.until(State.IDLE)
    with pytest.raises(queue.Empty):
        watched.pictures.get(timeout=1.5)


def test_a_failure_that_nobody_foresaw_is_reported_and_reading_goes_on(
    dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metlmon.live.session.FAILURE_PAUSE_SECONDS", 0.01)
    watched = Watched(dagdir)
    try:
        watched.until(State.IDLE)
        step = watched.reader.step
        failures = iter([RuntimeError("a bug")])

        def fails_once(seconds: float = 0.05) -> ReadStep:
            failure = next(failures, None)
            if failure is not None:
                raise failure
            return step(seconds)

        monkeypatch.setattr(watched.reader, "step", fails_once)
        dagdir.append("metl.log", Log().execute(77).data)
        failed = watched.pictures.get(timeout=PATIENCE)
        assert failed.error is not None
        assert "RuntimeError: a bug" in failed.error
        assert failed.status.runs[0].state is State.IDLE
        assert watched.until(State.RUNNING).error is None
    finally:
        watched.session.stop()
