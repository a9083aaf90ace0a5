"""Every file of a recording, damaged while it is watched and then mended: the result equals a fresh
reader's in every field."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from metlmon.live import dagdir_reader as reader_module
from metlmon.live import follower
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.file_access import clock_time
from metlmon.live.follower import CHUNK
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.recordings import FIXTURES, again, copied, opened, report_of, sentences


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read again whenever there is a reason, and zeros are taken as such."""
    monkeypatch.setattr(reader_module, "RESTART_SECONDS", 0.0)
    monkeypatch.setattr(follower, "UNWRITTEN_SECONDS", 0.0)


def in_place(path: Path, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.write(content)
        file.truncate()


@pytest.mark.parametrize(
    ("recording", "who"), [("rescue", "ens.dag"), ("shared-log", "a.dag (and 1 more)")]
)
def test_dag_files_are_deleted(tmp_path: Path, recording: str, who: str) -> None:
    dagdir = copied(recording, tmp_path / "dagdir")
    # The clock of the machine that has the files may be wrong.
    reader = opened(dagdir, now=lambda: 0.0)
    before, begun = report_of(reader), time.time()
    for path in dagdir.glob("*.dag"):
        path.rename(tmp_path / path.name)
    gone = again(reader)
    assert reader.error.startswith(tuple(f"since {clock_time(begun + n)}: " for n in range(20)))
    assert reader.error.endswith(f": {who} is gone; what was read before stays")
    assert len(reader.error) <= 79
    assert gone["runs"] == before["runs"]
    for path in tmp_path.glob("*.dag"):
        path.rename(dagdir / path.name)
    assert again(reader) == before
    assert reader.error is None


def test_circular_link_hides_no_other_file(tmp_path: Path) -> None:
    dagdir = copied("rescue", tmp_path / "dagdir")
    (dagdir / "circle.log").symlink_to("circle.log")
    whole, plain = report_of(opened(dagdir)), report_of(opened(FIXTURES / "rescue"))
    assert whole["runs"] == plain["runs"]
    assert whole["logs"] == plain["logs"]


def test_log_rotated_by_copy_and_truncate_is_followed(tmp_path: Path) -> None:
    dagdir = copied("rescue", tmp_path / "dagdir")
    path = dagdir / "metl.log"
    content = path.read_bytes()
    ends = [at + 4 for at in range(len(content)) if content.startswith(b"...\n", at)]
    half = ends[len(ends) // 2]
    path.write_bytes(content[:half])
    reader = opened(dagdir)
    os.truncate(path, 0)
    again(reader)
    with open(path, "ab") as file:
        file.write(content[half:])
    after = again(reader)
    assert "stay until metlmon is started again" in sentences(reader, "rewritten-log")[0]
    plain = report_of(opened(FIXTURES / "rescue"))
    assert (after["runs"], after["jobs"]) == (plain["runs"], plain["jobs"])


def test_zeros_of_unwritten_remote_data_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "UNWRITTEN_SECONDS", 3600.0)
    dagdir = copied("rescue", tmp_path / "dagdir")
    path = dagdir / "metl.log"
    content = path.read_bytes()
    hole = slice(len(content) // 3, len(content) // 2)
    path.write_bytes(content[: hole.start])
    reader = opened(dagdir)
    in_place(path, content[: hole.start] + bytes(hole.stop - hole.start) + content[hole.stop :])
    again(reader)
    in_place(path, content)
    assert again(reader) == report_of(opened(dagdir))
    assert not sentences(reader, "rewritten-log")


def test_directory_replaced_by_another_ensemble(tmp_path: Path) -> None:
    dagdir = copied("rescue", tmp_path / "dagdir")
    reader = opened(dagdir)
    dagdir.rename(tmp_path / "before")
    again(reader)
    assert reader.error is not None
    assert "no such directory" in reader.error
    assert reader.error.startswith("since ")
    copied("shared-log", dagdir)
    after = again(reader)
    assert reader.error is None
    assert after == report_of(opened(dagdir))
    assert "another directory" in sentences(reader, "rewritten-log")[0]


def test_directory_renamed_and_renamed_back(tmp_path: Path) -> None:
    dagdir = copied("rescue", tmp_path / "dagdir")
    reader = opened(dagdir)
    before = report_of(reader)
    dagdir.rename(tmp_path / "elsewhere")
    gone = again(reader)
    assert gone["runs"] == before["runs"]
    (tmp_path / "elsewhere").rename(dagdir)
    assert again(reader) == before
    assert reader.error is None
    assert not sentences(reader, "rewritten-log")


def test_log_missing_from_the_start_is_reported(tmp_path: Path) -> None:
    """Its jobs are known from ``.dagman.out`` only, which a notice says until it is back."""
    dagdir = copied("rescue", tmp_path / "d")
    (dagdir / "metl.log").rename(tmp_path / "metl.log")
    reader = opened(dagdir)
    by_dagman = {row.cluster: row.state for row in reader.snapshot_builder().job_rows()}
    [sentence] = sentences(reader, "missing-log")
    assert "put it beside the DAG file" in sentence
    (tmp_path / "metl.log").rename(dagdir / "metl.log")
    assert len(again(reader)["jobs"]) == 24
    by_log = {row.cluster: row.state for row in reader.snapshot_builder().job_rows()}
    assert by_dagman == by_log
    assert not sentences(reader, "missing-log")


def test_log_of_an_unsubmitted_node_is_not_missed(tmp_path: Path) -> None:
    dagdir = copied("rescue", tmp_path / "d")
    dag = dagdir / "ens.dag"
    later = "SUBMIT-DESCRIPTION later {\n executable = a\n log = later.log\n}\nJOB later later\n"
    dag.write_text(dag.read_text() + later)
    assert not sentences(opened(dagdir), "missing-log")


def long_life(second: int) -> bytes:
    """A log of one job, longer than one read."""
    log = Log().submit(5, NODE, at=f"10:00:{second:02d}").execute(5, at=f"10:01:{second:02d}")
    while len(log.data) < CHUNK // 50:
        log.image(5, 1000)
    reports = b"".join(log.events[2:])
    log.evict(5, at=f"12:01:{second:02d}")
    return b"".join(log.events[:2]) + reports * 60 + log.events[-1]


def sums(reader: DagdirReader) -> tuple[int, int, float]:
    """Jobs, executions, bad hours."""
    builder = reader.snapshot_builder()
    rows = builder.job_rows()
    hours = builder.status().hours.badput
    return len(rows), sum(len(row.executions) for row in rows), round(hours, 1)


def test_rewritten_log_is_not_counted_twice(tmp_path: Path) -> None:
    """Not even until all is read again."""
    dagdir = Dagdir(tmp_path / "d")
    dagdir.write("metl.log", long_life(0))
    reader = dagdir.reader(live=True)
    assert len(long_life(0)) > CHUNK
    for second in range(1, 4):
        dagdir.replace("metl.log", long_life(second))
        reader.check()
        while reader.step().more:
            pass
        assert sums(reader) == (1, 1, 2.0)
