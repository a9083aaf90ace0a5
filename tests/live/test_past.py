"""A feed of the past: read once in a thread, whole at the end, and then left alone."""

from __future__ import annotations

import queue
import threading
from datetime import datetime
from pathlib import Path

from metlmon.live.dagdir_reader import DagdirReader, ReadStep
from metlmon.live.feed import Snapshot
from metlmon.live.session import HistoricalSession, Session
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.patience import PATIENCE

THEN = datetime(2025, 11, 10, 10, 5)


def written(path: Path) -> Dagdir:
    dagdir = Dagdir(path / "ensemble")
    log = Log().submit(77, NODE, at="10:00:00").execute(77, at="10:10:00")
    dagdir.write("metl.log", log.data)
    return dagdir


def present(dagdir: Dagdir) -> Session:
    reader = DagdirReader(dagdir.path, live=False)
    reader.open()
    reader.read_all()
    return Session(reader)


def test_its_thread_ends_when_all_is_read(tmp_path: Path) -> None:
    session = present(written(tmp_path))
    first = session.take().status.runs[0].latest
    assert first is not None
    assert first.since is not None
    moment = first.since.replace(minute=5)
    past = session.historical(moment)
    assert isinstance(past, HistoricalSession)
    assert past.latest is None
    received: queue.Queue[Snapshot] = queue.Queue()
    past.start(received.put)
    update = received.get(timeout=PATIENCE)
    assert update.progress.fraction == 1.0
    assert update.status.as_of == moment
    assert update.status.runs[0].state == "idle"
    thread = next((t for t in threading.enumerate() if t.name == "metlmon-past"), None)
    if thread is not None:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    past.stop()
    assert past.ledger().executions == ()
    assert past.progress_lines() == {}
    assert past.settings == session.settings


def test_a_failure_that_nobody_foresaw_is_reported(tmp_path: Path) -> None:
    class Broken(DagdirReader):
        def step(self, seconds: float = 0.05) -> ReadStep:
            raise ValueError("something odd")

    reader = Broken(written(tmp_path).path, as_of=THEN)
    reader.open()
    past = HistoricalSession(reader)
    received: queue.Queue[Snapshot] = queue.Queue()
    past.start(received.put)
    update = received.get(timeout=PATIENCE)
    past.stop()
    assert update.error is not None
    assert "something odd" in update.error


def test_stopping_it_drops_what_is_not_read_yet(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Waiting(DagdirReader):
        def step(self, seconds: float = 0.05) -> ReadStep:
            begun.set()
            assert go_on.wait(PATIENCE)
            return ReadStep(super().step(seconds).changed, True)

    reader = Waiting(written(tmp_path).path, as_of=THEN)
    reader.open()
    past = HistoricalSession(reader)
    past.start(lambda update: None)
    assert begun.wait(PATIENCE)
    stopper = threading.Thread(target=past.stop)
    stopper.start()
    go_on.set()
    stopper.join(PATIENCE)
    assert not stopper.is_alive()
    assert not [t for t in threading.enumerate() if t.name == "metlmon-past"]
