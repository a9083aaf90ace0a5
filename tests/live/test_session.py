"""The reading thread: a new snapshot after an append, a clean end, and no lost change."""

from __future__ import annotations

import ctypes
import gc
import queue
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.file_access import FsExecutor, calls_through
from metlmon.live.session import DirectoryWatcher, PriorityLock, Session
from metlmon.model.states import State
from metlmon.snapshot.records import Snapshot
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.patience import PATIENCE
from tests.support.recordings import read_all


class Watched:
    """A session whose snapshots are kept, so that the test can wait for one."""

    def __init__(self, dagdir: Dagdir, live: bool | None = False) -> None:
        self.reader = DagdirReader(dagdir.path, live=live)
        self.reader.open()
        self.session = Session(self.reader)
        self.pictures: queue.Queue[Snapshot] = queue.Queue()
        self.session.start(self.pictures.put)

    def until(self, state: State) -> Snapshot:
        """The first snapshot in which run 0 is in this state."""
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


def test_each_append_gives_a_snapshot(watched: Watched, dagdir: Dagdir) -> None:
    first = watched.until(State.IDLE)
    assert first.progress.fraction == 1.0
    assert first.error is None
    dagdir.append("metl.log", Log().execute(77).data)
    update = watched.until(State.RUNNING)
    dagdir.append("metl.log", Log().hold(77, 34, "too large", at="11:00:00").data)
    held = watched.until(State.HELD)
    latest = held.status.runs[0].latest
    assert latest.hold_reason == "too large"
    # The earlier snapshot is unchanged.
    assert update.status.runs[0].state is State.RUNNING


def test_session_ends_on_request(dagdir: Dagdir) -> None:
    watched = Watched(dagdir)
    watched.until(State.IDLE)
    watched.session.stop()
    names = {thread.name for thread in threading.enumerate()}
    assert "metlmon-reader" not in names
    dagdir.append("metl.log", Log().execute(77).data)
    assert watched.session.latest.status.runs[0].state is State.IDLE


def test_session_may_be_stopped_before_its_start(dagdir: Dagdir) -> None:
    reader = DagdirReader(dagdir.path)
    reader.open()
    session = Session(reader)
    session.stop()
    assert session.latest is None


def test_deleted_dagdir_is_reported_and_the_snapshot_stays(
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


def test_clock_of_a_live_ensemble_advances(dagdir: Dagdir) -> None:
    """Durations grow without new events."""
    watched = Watched(dagdir, live=True)
    try:
        first = watched.until(State.IDLE)
        second = watched.pictures.get(timeout=PATIENCE)
        assert first.status.as_of is not None
        assert second.status.as_of is not None
        assert second.status.as_of >= first.status.as_of
    finally:
        watched.session.stop()


def test_clock_of_a_dead_ensemble_stands_still(watched: Watched) -> None:
    watched.until(State.IDLE)
    with pytest.raises(queue.Empty):
        watched.pictures.get(timeout=1.5)


def test_query_precedes_the_next_step_of_work() -> None:
    turns, order = PriorityLock(), list[str]()
    begun = threading.Event()

    def ask() -> None:
        with turns.foreground():
            order.append("asked")

    asker = threading.Thread(target=ask)

    def work() -> None:
        with turns.background():
            begun.set()
            deadline = time.monotonic() + PATIENCE
            while turns.no_foreground.is_set() and time.monotonic() < deadline:
                begun.wait(0.001)
            order.append("worked")
        with turns.background():
            order.append("worked again")

    worker = threading.Thread(target=work)
    worker.start()
    assert begun.wait(PATIENCE)
    asker.start()
    for thread in (worker, asker):
        thread.join(PATIENCE)
    assert order == ["worked", "asked", "worked again"]


def test_working_thread_may_query() -> None:
    turns = PriorityLock()
    with turns.background(), turns.foreground():
        assert turns.no_foreground.is_set()
    with turns.exclusive, turns.background(), turns.background():
        pass


# --- garbage collection in a long session -----------------------------------------------------


def test_file_system_error_keeps_no_frame_alive(tmp_path: Path) -> None:
    asker = FsExecutor(lambda: None)
    missing = tmp_path / "missing"
    with calls_through(asker), asker.prefetched():
        for _ in range(2):
            with pytest.raises(FileNotFoundError):
                asker.call(Path.stat, missing)
    gc.collect()
    held = [each for each in gc.get_objects() if isinstance(each, FileNotFoundError)]
    assert not [each for each in held if each.filename == str(missing) and each.__traceback__]


def test_each_event_of_a_job_costs_the_same_memory(tmp_path: Path) -> None:
    """No copy of the job's history is stored at each of its events."""
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", Log().submit(77, NODE, at="10:00:00").data)
    reader = read_all(DagdirReader(dagdir.path, live=True))
    begun = datetime(2026, 1, 1, 11)

    def grow(first: int, last: int) -> int:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(first, last):
            at = f"{begun + timedelta(seconds=18 * number):%Y-%m-%d %H:%M:%S}"
            event = Log().release(77, at=at) if number % 2 else Log().hold(77, 34, "x", at=at)
            dagdir.append("metl.log", event.data)
            reader.check()
            reader.read_all()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        early = grow(0, 50)
        assert grow(50, 100) < 1.5 * early
    finally:
        tracemalloc.stop()


def test_checking_files_leaves_no_cycles(tmp_path: Path) -> None:
    """Cycles keep their objects until the collector's rarest pass, hours later."""
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", Log().submit(77, NODE, at="10:00:00").data)
    reader = DagdirReader(dagdir.path, live=True)
    files = FsExecutor(lambda: None)
    with calls_through(files):
        reader.open()
        reader.read_all()
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                with files.prefetched():
                    reader.check()
            assert gc.collect() < 20
        finally:
            gc.enable()
    files.close()


# --- notification of changes ------------------------------------------------------------------


@contextmanager
def woken(folder: Path) -> Iterator[threading.Event]:
    """An event that is set whenever something in ``folder`` changes."""
    result, wakeup = threading.Event(), DirectoryWatcher()
    thread = threading.Thread(target=wakeup.run, args=([folder], result.set))
    thread.start()
    try:
        yield result
    finally:
        wakeup.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def until_set(report_of: threading.Event, log: Path) -> bool:
    """Whether a change is noticed: the first one may precede the watch."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with log.open("ab") as file:
            file.write(b"...\n")
        if report_of.wait(0.2):
            return True
    return False


@pytest.mark.parametrize("kernel", [True, False])
def test_append_wakes_the_reader(
    tmp_path: Path, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernel:
        monkeypatch.delattr(ctypes, "CDLL")
    with woken(tmp_path) as result:
        assert until_set(result, tmp_path / "metl.log")


def test_changes_in_subdirectories_do_not_wake(tmp_path: Path) -> None:
    """Jobs write their output there, all the time."""
    deeper = tmp_path / "output"
    deeper.mkdir()
    with woken(tmp_path) as result:
        assert until_set(result, tmp_path / "metl.log")
        while result.wait(0.1):
            result.clear()
        (deeper / "0.out").write_bytes(b"epoch 1")
        assert not result.wait(0.1)


def test_deleted_directory_is_polled(tmp_path: Path) -> None:
    """No change of it is reported: it is checked every second."""
    with woken(tmp_path / "gone") as result:
        assert not result.wait(0.1)


def test_watch_may_end_before_it_begins(tmp_path: Path) -> None:
    wakeup = DirectoryWatcher()
    wakeup.stop()
    wakeup.stop()
    wakeup.run([tmp_path], lambda: pytest.fail("there was no change"))
