"""Limits of the system, and clocks: descriptors, watches, the current directory, a wall clock that
is set, an hour that is repeated or skipped."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from metlmon.live import session as session_module
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.session import Session
from metlmon.snapshot.records import Snapshot
from tests.support.dagdir_builder import NODE, Dagdir, log_of
from tests.support.event_logs import Log
from tests.support.patience import PATIENCE
from tests.support.recordings import FIXTURES, again, copied, opened, read_all, report_of


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, before[1]))
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass  # That was the last descriptor.
    try:
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_hundreds_of_logs_need_few_descriptors(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path / "ensemble")
    for number in range(300):
        dagdir.write(f"{number}.log", log_of(number + 1))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(64, used + 8), before[1]))
    try:
        reader = dagdir.reader()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(reader.snapshot_builder().job_rows()) == 300
    assert reader.error is None


def test_lack_of_descriptors_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "POLL_SECONDS", 0.05)
    dagdir = copied("rescue", tmp_path / "dagdir")
    reader = opened(dagdir)
    before = report_of(reader)
    with no_descriptor_left():
        session = Session(reader)
        session.start(lambda update: None)
        reader.check()
        assert reader.error is not None
        assert "Too many open files" in reader.error
        session.stop()
    assert again(reader) == before
    assert reader.error is None


def test_files_are_polled_without_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import queue

    @contextmanager
    def refused(folders: object) -> Iterator[int]:
        raise OSError(errno.ENOSPC, "inotify_add_watch")
        yield 0

    monkeypatch.setattr(session_module, "_inotify", refused)
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", log_of(77))
    reader = DagdirReader(dagdir.path, live=False)
    reader.open()
    session, pictures = Session(reader), queue.Queue[Snapshot]()
    session.start(pictures.put)
    try:
        pictures.get(timeout=PATIENCE)
        dagdir.append("metl.log", Log().execute(77).data)
        update = pictures.get(timeout=PATIENCE)
        while not any(log.events == 2 for log in update.status.logs):
            update = pictures.get(timeout=PATIENCE)
        assert update.error is None
    finally:
        session.stop()


def test_deleted_current_directory(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    program = (
        "import os, sys; os.rmdir(os.getcwd()); "
        "from metlmon.cli.main import main; sys.exit(main(['status', '.']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=here, capture_output=True, text=True, timeout=PATIENCE, check=False,
        env={**os.environ, "PYTHONPATH": str(FIXTURES.parent)},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("metlmon: .: this directory has been removed")


def at(reader: DagdirReader, now: datetime) -> float | None:
    """The duration of the run's newest epoch by the access point's clock."""
    reader._local_clock = lambda: now
    return reader.snapshot_builder().status().runs[0].seconds


def test_clock_set_back_reduces_no_duration(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", Log().submit(77, NODE).execute(77, at="10:05:00").data)
    day = opened(dagdir.path).snapshot_builder().status().logs[0].last
    assert day is not None
    reader = read_all(DagdirReader(dagdir.path, live=True))
    assert at(reader, day.replace(hour=10, minute=25)) == 1200
    assert at(reader, day.replace(hour=9, minute=0)) == 0
    assert at(reader, day.replace(hour=10, minute=35)) == 1800


def test_watching_from_another_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = report_of(opened(copied("rescue", tmp_path / "dagdir")))
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    import time

    time.tzset()
    try:
        assert report_of(opened(tmp_path / "dagdir")) == here
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
