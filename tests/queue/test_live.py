"""A schedd that has the jobs makes an ensemble live, and a new picture shows it."""

from __future__ import annotations

import queue
from pathlib import Path

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import Snapshot
from metlmon.live.session import Session
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.patience import PATIENCE


def old(tmp_path: Path) -> Dagdir:
    """Logs that are months old, a job in the queue by them."""
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", Log().submit(77, NODE).data)
    return dagdir


def test_old_logs_come_to_life_when_the_queue_has_their_jobs(tmp_path: Path) -> None:
    reader = DagdirReader(old(tmp_path).path)
    reader.open()
    session = Session(reader)
    pictures: queue.Queue[Snapshot] = queue.Queue()
    session.start(pictures.put)
    try:
        while not (update := pictures.get(timeout=PATIENCE)).status.logs:
            pass
        assert not update.status.live
        session.set_in_queue(True)
        while not pictures.get(timeout=PATIENCE).status.live:
            pass
        session.set_in_queue(False)
        while pictures.get(timeout=PATIENCE).status.live:
            pass
    finally:
        session.stop()


def test_who_says_it_is_not_live_is_believed(tmp_path: Path) -> None:
    reader = DagdirReader(old(tmp_path).path, live=False)
    reader.open()
    reader.read_all()
    reader.in_queue = True
    assert not reader.live()


def test_one_picture_without_a_thread(tmp_path: Path) -> None:
    reader = DagdirReader(old(tmp_path).path)
    reader.open()
    reader.read_all()
    session = Session(reader)
    assert session.latest is None
    update = session.take()
    assert session.latest is update
    assert [row.cluster for row in session.queued_jobs()] == [77]
