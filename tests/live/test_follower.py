"""Following files that grow, are truncated in place, replaced, torn, or missing."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from metlmon.live import follower
from metlmon.live.follower import DirectoryMtimes, Follower
from metlmon.model.states import State
from tests.support.dagdir_builder import NODE, Dagdir, again, jobs, log_of, states
from tests.support.event_logs import Log

# --- one file -----------------------------------------------------------------------------


def consumed(follower: Follower) -> bytes:
    data = follower.read(follower.offset)
    follower.offset += len(data)
    return data


def followed(path: Path, content: bytes) -> Follower:
    """A follower that has consumed a file with this content."""
    path.write_bytes(content)
    follower = Follower(path)
    assert follower.check().grew
    assert consumed(follower) == content
    assert not follower.check().grew
    return follower


def replaced(path: Path, content: bytes) -> None:
    other = path.with_name("other")
    other.write_bytes(content)
    os.replace(other, path)


def test_file_appears_later(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "a.log")
    look = follower.check()
    assert look.problem
    assert not look.grew
    (tmp_path / "a.log").write_bytes(b"one\n")
    look = follower.check()
    assert (look.problem, look.grew, look.restarted) == (None, True, False)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(b"one\ntwo\n", b"new\n", id="emptied"),
        pytest.param(b"first life\n" * 3, b"second life\n" * 9, id="grown past the old offset"),
        pytest.param(b"life one\n", b"life two\n", id="grown to the same size"),
    ],
)
def test_file_is_truncated_in_place(tmp_path: Path, before: bytes, after: bytes) -> None:
    path = tmp_path / "a.log"
    follower = followed(path, before)
    inode = path.stat().st_ino
    path.write_bytes(after)
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))
    assert path.stat().st_ino == inode
    assert follower.check().restarted
    assert consumed(follower) == after


def test_file_is_replaced_by_another(tmp_path: Path) -> None:
    follower = followed(tmp_path / "a.log", b"first\n")
    replaced(tmp_path / "a.log", b"other and longer\n")
    assert follower.check().restarted
    assert consumed(follower) == b"other and longer\n"


def test_longer_copy_is_continued(tmp_path: Path) -> None:
    """``rsync`` replaces the file by a longer copy: no byte is read twice."""
    follower = followed(tmp_path / "a.log", b"first\n")
    replaced(tmp_path / "a.log", b"first\nsecond\n")
    look = follower.check()
    assert (look.grew, look.restarted) == (True, False)
    assert consumed(follower) == b"second\n"


def test_file_vanishes_and_returns(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    follower = followed(path, b"first\n")
    path.unlink()
    assert follower.check().problem
    path.write_bytes(b"first\nsecond\n")
    assert follower.check().grew
    assert consumed(follower) == b"second\n"


def test_pipe_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.log")
    assert Follower(tmp_path / "a.log").check().problem == "not a regular file"


# --- logs of a dagdir -----------------------------------------------------------------------


def test_torn_tail_is_ignored_until_it_is_complete(dagdir: Dagdir) -> None:
    data = Log().submit(77, NODE).execute(77).data
    first = data.index(b"...\n") + 4
    dagdir.write("metl.log", data[: first + 60])
    reader = dagdir.reader(live=True, now="2026-05-04 10:10:00")
    assert states(reader) == {77: State.IDLE}
    assert not reader.snapshot_builder().status().warnings
    for cut in (first + 61, len(data) - 2, len(data) - 1):
        dagdir.write("metl.log", data[:cut])
        again(reader)
        assert states(reader) == {77: State.IDLE}
    dagdir.write("metl.log", data)
    again(reader)
    assert states(reader) == {77: State.RUNNING}


def test_torn_end_of_a_dead_log_is_reported(dagdir: Dagdir) -> None:
    data = Log().submit(77, NODE).execute(77).data
    dagdir.write("metl.log", data[:-20])
    reader = dagdir.reader(live=False)
    (notice,) = reader.snapshot_builder().status().warnings
    assert (notice.kind, notice.file) == ("unterminated-event", "metl.log")
    assert notice.line == data.count(b"\n", 0, data.index(b"\n001 (")) + 2


def test_truncated_nodes_log_takes_nothing_back(dagdir: Dagdir) -> None:
    """DAGMan truncates it at every start; its jobs and the shared log stay."""
    log = Log().submit(77, NODE).execute(77).terminate(77, 1)
    dagdir.write("metl.log", log.data)
    nodes = dagdir.write("run.dag.nodes.log", log.data)
    reader = dagdir.reader()
    assert states(reader) == {77: State.FAILED}
    inode = nodes.stat().st_ino
    second = Log().submit(90, NODE, at="12:00:00").execute(90)
    dagdir.write("run.dag.nodes.log", second.image(90, 5).data)
    assert nodes.stat().st_ino == inode
    again(reader)
    assert states(reader) == {77: State.FAILED, 90: State.RUNNING}
    assert jobs(reader)[77].executions[0].outcome == "failed"


def test_missing_log_is_reported_and_its_jobs_stay(dagdir: Dagdir) -> None:
    path = dagdir.write("metl.log", log_of(77))
    reader = dagdir.reader()
    path.unlink()
    status = again(reader)
    assert states(reader) == {77: State.IDLE}
    assert [(n.kind, n.file) for n in status.warnings] == [("unreadable", "metl.log")]


def test_event_longer_than_a_chunk_is_read(dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metlmon.live.follower.CHUNK", 300)
    log = Log().submit(77, NODE).raw(8, 77, "x" * 5000).execute(77)
    dagdir.write("metl.log", log.data)
    reader = dagdir.reader()
    assert states(reader) == {77: State.RUNNING}
    assert reader.snapshot_builder().status().logs[0].events == 3


@pytest.mark.parametrize(
    ("submitted", "executed"),
    [
        ("2025-12-30 10:00:00", "2026-01-02 10:00:00"),
        # The global EVENT_LOG writes "12/03 10:00:00" by default; this one was copied in January.
        ("2025-12-03 10:00:00", "2025-12-04 10:00:00"),
    ],
)
def test_times_without_a_year_use_the_files_year(
    dagdir: Dagdir, submitted: str, executed: str
) -> None:
    data = Log().submit(77, NODE, at=submitted).execute(77, at=executed).data
    path = dagdir.write("metl.log", re.sub(rb"\d{4}-(\d\d)-(\d\d) ", rb"\1/\2 ", data))
    stamp = 1_768_000_000  # January 2026
    os.utime(path, (stamp, stamp))
    job = jobs(dagdir.reader())[77]
    assert (str(job.submitted), str(job.executions[0].start)) == (submitted, executed)


def test_large_directory_is_listed_once_in_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LARGE_FOLDER", 0)
    clock = [100.0]
    monkeypatch.setattr(follower, "monotonic", lambda: clock[0])
    watch, now = DirectoryMtimes(), time.time() + 60
    received = []
    for second in range(30):
        clock[0] = 100.0 + second
        (tmp_path / f"out.{second}").touch()
        os.utime(tmp_path, (second, second))
        received.append(watch.changed([tmp_path], now))
    assert [second for second, changed in enumerate(received) if changed] == [0, 10, 20]
    clock[0] = 200.0
    assert watch.changed([tmp_path], now), "the last arrivals, too"
    assert not watch.changed([tmp_path], now)
