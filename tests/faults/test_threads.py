"""An unforeseen error in each of the reading threads: it is reported, the other threads go on, and
reading is retried with a delay."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from metlmon.live import session as session_module
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.replay import Replay
from metlmon.live.session import DirectoryWatcher
from metlmon.snapshot.records import Snapshot
from tests.support.patience import PATIENCE
from tests.support.recordings import FIXTURES, copied
from tests.support.replay_pieces import replay_pieces
from tests.support.watched_session import WatchedSession

HOSTILE = "odd \x1b[2J\u202e" + "x" * 5000


class Watched(WatchedSession):
    """A session over a recording."""

    def __init__(self, dagdir: Path) -> None:
        self.dagdir = dagdir
        super().__init__(DagdirReader(dagdir, live=False))

    def sees_append(self, cluster: int) -> None:
        """Whether it still reads what is appended."""
        with open(self.dagdir / "metl.log", "ab") as file:
            file.write(
                b"000 (%d.000.000) 2026-11-21 10:00:00 Job submitted from host: <127.0.0.1:1>\n"
                b"...\n" % cluster
            )
        self.until(lambda update: self.session.job_view(cluster, 0) is not None)


@pytest.fixture(name="watched")
def _watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(session_module, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(session_module, "FAILURE_PAUSE_SECONDS", 0.2)
    watched = Watched(copied("rescue", tmp_path / "dagdir"))
    yield watched
    watched.session.stop()


def fails(*_: object, **__: object) -> None:
    raise ZeroDivisionError(HOSTILE)


def error_warnings(update: Snapshot) -> list[str]:
    return [each.text for each in update.status.warnings if each.kind == "mishap"]


@pytest.mark.parametrize("name", ["check", "step", "snapshot_builder"])
def test_reading_recovers_from_an_error(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    watched.begin()
    before = watched.until(lambda update: update.progress.fraction == 1).status.runs
    calls: list[None] = []

    def failing(*_: object, **__: object) -> None:
        calls.append(None)
        fails()

    with monkeypatch.context() as broken:
        broken.setattr(watched.reader, name, failing)
        (watched.dagdir / "more.dag").write_text("# nothing\n")
        watched.session._changed_outside = True
        update = watched.until(lambda update: update.error is not None)
        assert "reading failed and is tried again: ZeroDivisionError: odd" in str(update.error)
        assert "\x1b" not in str(update.error)
        assert len(str(update.error)) <= 300
        assert update.status.runs == before
    watched.until(lambda update: update.error is None)
    watched.sees_append(9999)
    assert len(calls) < 20


def test_error_before_the_first_snapshot(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.reader.open()
    with monkeypatch.context() as broken:
        broken.setattr(watched.reader, "step", fails)
        watched.session.start(watched.take)
        update = watched.until(lambda update: update.error is not None)
        assert str(update.error).startswith("reading failed and is tried again: ")
    watched.until(lambda update: update.error is None)
    watched.sees_append(9999)


def test_failed_wake_leaves_polling(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DirectoryWatcher, "run", fails)
    watched.begin()
    (result,) = error_warnings(watched.until(lambda update: bool(error_warnings(update))))
    assert result.startswith("watching for changes failed; files are checked every second: ")
    watched.sees_append(9999)


def test_error_while_reading_the_past(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.begin()
    watched.until(lambda update: update.progress.fraction == 1)
    past = watched.session.historical(datetime(2026, 11, 21, 9, 43))
    received: list[Snapshot] = []
    ended = threading.Event()

    def take(update: Snapshot) -> None:
        received.append(update)
        ended.set()

    monkeypatch.setattr(DagdirReader, "step", fails)
    past.start(take)
    assert ended.wait(PATIENCE)
    assert str(received[-1].error).startswith(
        "reading what was then failed: ZeroDivisionError: odd"
    )
    past.stop()


def test_replay_reports_why_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "demo").mkdir()
    replay = Replay(replay_pieces(FIXTURES / "rescue"), tmp_path / "demo", 1.0)
    replay.start()
    monkeypatch.setattr(replay, "write_until", fails)
    replay._thread.join(PATIENCE)
    assert str(replay.error).startswith("the replay stopped: ZeroDivisionError: odd")
