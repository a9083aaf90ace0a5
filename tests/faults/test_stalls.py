"""A file system that does not answer, answers late, or with an error: the session goes on, reports
what stalls and since when, and is right again after an answer."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from metlmon.cli import Exit, reading
from metlmon.cli.commands import status as commands_status
from metlmon.live import file_access, follower
from metlmon.live import session as session_module
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.file_access import FsExecutor, call_with_timeout, calls_through
from metlmon.remote.paths import NoAnswer
from metlmon.snapshot.records import JobView
from tests.faults.fuse import Fuse
from tests.support.patience import PATIENCE
from tests.support.recordings import copied, opened, report_of
from tests.support.watched_session import WatchedSession


@pytest.fixture(autouse=True)
def _reported_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "REPORT_AFTER", 0.2)
    monkeypatch.setattr(session_module, "POLL_SECONDS", 0.1)


class Watched(WatchedSession):
    """A session over a recording behind a file system that can stall."""

    def __init__(self, tmp_path: Path) -> None:
        if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
            pytest.skip("to mount a file system takes root and /dev/fuse")
        self.below = copied("rescue", tmp_path / "below")
        self.disk = Fuse(self.below, tmp_path / "dagdir")
        super().__init__(DagdirReader(self.disk.at, live=False))

    def begin(self) -> None:
        super().begin()
        self.until(lambda update: update.progress.fraction == 1 and update.error is None)

    def asked_for(self, cluster: int) -> JobView | None:
        """A screen's query, which is answered while the file system stalls."""
        answers: list[JobView | None] = []
        asks = threading.Thread(
            target=lambda: answers.append(self.session.job_view(cluster, 0)), daemon=True
        )
        asks.start()
        asks.join(PATIENCE)
        assert answers, "a screen waits for the file system"
        return answers[0]

    def end(self) -> None:
        self.disk.go_on()
        self.session.stop()
        self.disk.end()


@pytest.fixture(name="watched")
def _watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    try:
        watched.begin()
        yield watched
    finally:
        watched.end()


def appended(path: Path, content: bytes) -> None:
    with open(path, "ab") as file:
        file.write(content)


SUBMITTED = b"000 (9999.000.000) 2026-11-21 10:00:00 Job submitted from host: <127.0.0.1:1>\n...\n"


@pytest.mark.parametrize("ops", [("read",), ("stat", "open", "read", "list")])
def test_stalled_file_system_is_reported(watched: Watched, ops: tuple[str, ...]) -> None:
    watched.disk.stall("*", *ops)
    appended(watched.below / "metl.log", SUBMITTED)
    update = watched.until(lambda update: update.error is not None)
    assert update.error is not None
    assert "no answer from the file system since " in update.error
    assert len(update.error.replace(str(watched.disk.at), "dagdir")) <= 80
    assert watched.asked_for(524) == watched.session.job_view(524, 0)
    watched.disk.go_on()
    watched.until(lambda update: update.error is None)
    watched.until(lambda update: any(log.events for log in update.status.logs))
    job = None
    deadline = time.monotonic() + PATIENCE
    while job is None and time.monotonic() < deadline:
        job = watched.session.job_view(9999, 0)
    assert job is not None
    assert report_of(watched.reader)["jobs"] == report_of(opened(watched.below))["jobs"]


def test_session_ends_at_once_during_a_stall(watched: Watched) -> None:
    watched.disk.stall("*", "stat", "open", "read", "list")
    watched.until(lambda update: update.error is not None)
    ends = threading.Thread(target=watched.session.stop, daemon=True)
    ends.start()
    ends.join(PATIENCE)
    assert not ends.is_alive()
    others = [each for each in threading.enumerate() if each.name == "metlmon-files"]
    assert all(each.daemon for each in others)


@pytest.mark.parametrize(
    ("op", "number"), [("stat", errno.ESTALE), ("open", errno.EACCES), ("read", errno.EIO)]
)
def test_temporary_error_is_reported(watched: Watched, op: str, number: int) -> None:
    watched.disk.fail("metl.log", op, number)
    appended(watched.below / "metl.log", SUBMITTED)
    update = watched.until(lambda update: update.error is not None)
    assert update.error.startswith("metl.log cannot be read since ")
    assert os.strerror(number) in update.error
    watched.disk.go_on()
    watched.until(lambda update: update.error is None)
    deadline = time.monotonic() + PATIENCE
    while watched.session.job_view(9999, 0) is None:
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("command", "number"), [("status", signal.SIGINT), ("jobs", signal.SIGTERM)]
)
def test_command_reports_a_stall_and_ends_at_ctrl_c(
    tmp_path: Path, command: str, number: signal.Signals
) -> None:
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("to mount a file system takes root and /dev/fuse")
    disk = Fuse(copied("rescue", tmp_path / "below"), tmp_path / "dagdir")
    try:
        disk.deafen()
        code = "import sys; from metlmon.cli.main import main; sys.exit(main())"
        with subprocess.Popen(
            [sys.executable, "-c", code, command, str(disk.at)], stderr=subprocess.PIPE
        ) as made:
            result = made.stderr.readline().decode()
            assert result.startswith("metlmon: no answer from the file system since ")
            assert str(disk.at) in result
            made.send_signal(number)
            ended = made.wait(PATIENCE)
        assert ended == (Exit.INTERRUPTED if number == signal.SIGINT else -signal.SIGTERM)
    finally:
        disk.end()


def test_waiting_for_the_next_look_makes_no_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = opened(copied("rescue", tmp_path / "dagdir"))
    pauses, goes_on = threading.Event(), threading.Event()

    def sleep(_: float) -> None:
        pauses.set()
        goes_on.wait(PATIENCE)

    answers = [None, Exit.OK]
    monkeypatch.setattr(commands_status, "exit_condition", lambda names: lambda *_: answers.pop(0))
    monkeypatch.setattr(time, "sleep", sleep)
    options = argparse.Namespace(exit_on="done", timeout=None)
    waits = threading.Thread(target=commands_status.wait, args=(reader, options), daemon=True)
    waits.start()
    assert pauses.wait(PATIENCE)
    assert waits.ident is not None
    assert reading._where(sys._current_frames()[waits.ident]) is None
    goes_on.set()
    waits.join(PATIENCE)


class Server:
    """A call that is answered when the test allows it."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.calls: list[Path] = []

    def call(self, path: Path) -> str:
        self.calls.append(path)
        assert self.answers.wait(PATIENCE)
        return path.name


def test_late_answer_is_kept_for_the_next_call() -> None:
    received, server = threading.Event(), Server()
    with calls_through(FsExecutor(received.set)):
        for _ in range(3):
            with pytest.raises(NoAnswer):
                call_with_timeout(server.call, Path("/far/metl.log"))
        assert server.calls == [Path("/far/metl.log")]
        server.answers.set()
        assert received.wait(PATIENCE)
        assert call_with_timeout(server.call, Path("/far/metl.log")) == "metl.log"
        assert len(server.calls) == 1


def test_stalled_server_keeps_one_thread() -> None:
    server, asker = Server(), FsExecutor(lambda: None)
    with calls_through(asker):
        for number in range(50):
            with pytest.raises(NoAnswer):
                call_with_timeout(server.call, Path(f"/far/{number}.log"))
    assert len(server.calls) == 1
    server.answers.set()


def test_waiting_callers_are_released_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_access, "PATIENCE", PATIENCE)
    server, asker = Server(), FsExecutor(lambda: None)
    reported_slow = threading.Event()

    def waits() -> None:
        with pytest.raises(NoAnswer):
            asker.call(server.call, Path("/far/metl.log"))
        reported_slow.set()

    threading.Thread(target=waits, daemon=True).start()
    asker.close()
    assert reported_slow.wait(PATIENCE)
    server.answers.set()
