"""A log is a file that a DAG names, or that is in the dagdir. No device is opened, no pipe waited
for, and no link followed only because it exists."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from metlmon.live.dagdir_reader import DagdirReader
from tests.support.dagdir_builder import NODE, Dagdir, log_of
from tests.support.event_logs import Log

DAG = "JOB {node} train.sub\n"


def described(path: Path, log: str, more: str = "") -> Dagdir:
    """A dagdir of one node, whose submit description names a log."""
    dagdir = Dagdir(path, DAG.format(node=NODE))
    dagdir.write("train.sub", f"executable = t.sh\nlog = {log}\n{more}queue\n")
    return dagdir


def clusters(reader: DagdirReader) -> list[int]:
    return sorted(job.cluster for job in reader.snapshot_builder().job_rows())


def warnings(reader: DagdirReader) -> list[tuple[str, str]]:
    return [(each.kind, each.text) for each in reader.snapshot_builder().status().warnings]


# --- named logs -----------------------------------------------------------------------------


@pytest.mark.parametrize("log", ["../above.log", "{above}/above.log"])
def test_log_outside_named_by_the_description_is_read(tmp_path: Path, log: str) -> None:
    (tmp_path / "above.log").write_bytes(log_of(7))
    dagdir = described(tmp_path / "d", log.format(above=tmp_path))
    assert clusters(dagdir.reader()) == [7]


def test_relative_log_is_below_the_directory_of_its_node(tmp_path: Path) -> None:
    """By ``DIR`` and ``initialdir``."""
    dagdir = Dagdir(tmp_path / "d", f"JOB {NODE} train.sub DIR inner\n")
    dagdir.write("inner/train.sub", "executable = t.sh\nlog = logs/x.log\nqueue\n")
    dagdir.write("inner/logs/x.log", log_of(7))
    assert clusters(dagdir.reader()) == [7]


def test_named_log_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "scratch.log").write_bytes(log_of(7))
    dagdir = described(tmp_path / "d", "metl.log")
    (dagdir.path / "metl.log").symlink_to(tmp_path / "scratch.log")
    assert clusters(dagdir.reader()) == [7]


def test_link_inside_the_dagdir_is_one_log(tmp_path: Path) -> None:
    dagdir = described(tmp_path / "d", "metl.log")
    dagdir.write("metl.log", log_of(7))
    (dagdir.path / "latest.log").symlink_to("metl.log")
    os.link(dagdir.path / "metl.log", dagdir.path / "hard.log")
    reader = dagdir.reader()
    assert clusters(reader) == [7]
    assert [row.file for row in reader.snapshot_builder().status().logs] == ["metl.log"]


# --- not followed ---------------------------------------------------------------------------


def test_unnamed_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "others.log").write_bytes(log_of(1))
    dagdir = described(tmp_path / "d", "metl.log")
    dagdir.write("metl.log", log_of(7))
    (dagdir.path / "x.log").symlink_to(tmp_path / "others.log")
    (dagdir.path / "y.log").symlink_to("../others.log")
    reader = dagdir.reader()
    assert clusters(reader) == [7]
    assert warnings(reader) == []


@pytest.mark.parametrize(
    "log", ["/dev/zero", "/dev/tty", "/dev/null", "pipe", "/dev/stdin", "/proc/self/fd", "."]
)
def test_log_must_be_a_regular_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str
) -> None:
    dagdir = described(tmp_path / "d", log)
    os.mkfifo(dagdir.path / "pipe")
    os.mkfifo(dagdir.path / "other.log")
    dagdir.write("metl.log", log_of(7))
    opened: list[str] = []
    really = os.open

    def watched(path: str, *rest: int) -> int:
        opened.append(str(path))
        return really(path, *rest)

    monkeypatch.setattr(os, "open", watched)
    reader = dagdir.reader()
    assert clusters(reader) == [7]
    assert not {p for p in opened if p.startswith("/dev") or p.endswith(("pipe", "other.log"))}


def test_kernel_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``/proc/kmsg`` is a regular file without a size, and reading it waits for ever."""
    if not Path("/proc/kmsg").exists():
        pytest.skip("there is no /proc/kmsg here")
    dagdir = described(tmp_path / "d", "/proc/kmsg")
    dagdir.write("run.dag", f"NODE_STATUS_FILE /proc/kmsg\nJOBSTATE_LOG /proc/kmsg\nJOB {NODE} t\n")
    dagdir.write("more.dag", "INCLUDE /proc/kmsg\nJOB a /proc/kmsg\nSPLICE x /proc/kmsg\n")
    dagdir.write("metl.log", log_of(7))
    reader = dagdir.reader()
    assert clusters(reader) == [7]


@pytest.mark.parametrize("line", ["INCLUDE {}", "SPLICE s {}", "SUBDAG EXTERNAL s {}", "JOB n {}"])
@pytest.mark.parametrize("file", ["/dev/zero", "pipe", "."])
def test_devices_named_by_a_dag_are_not_opened(tmp_path: Path, line: str, file: str) -> None:
    dagdir = described(tmp_path / "d", "metl.log")
    os.mkfifo(dagdir.path / "pipe")
    dagdir.write("metl.log", log_of(7))
    dagdir.write("other.dag", f"{line.format(file)}\nJOB z train.sub\n")
    assert clusters(dagdir.reader()) == [7]


def test_include_of_a_foreign_file_quotes_nothing(tmp_path: Path) -> None:
    """A DAG file may name any file, but the text of one that is not a DAG is not shown."""
    (tmp_path / "passwd").write_text("root:x:0:0:planted-secret:/root:/bin/sh\n")
    dagdir = described(tmp_path / "d", str(tmp_path / "passwd"))
    dagdir.write("metl.log", log_of(7))
    dagdir.write("other.dag", f"INCLUDE {tmp_path}/passwd\nJOB z {tmp_path}/passwd\n")
    for ending in ("metrics", "rescue001", "nodes.log", "dagman.log", "dagman.out"):
        (dagdir.path / f"run.dag.{ending}").symlink_to(tmp_path / "passwd")
    result = repr(dagdir.reader().snapshot_builder().status())
    assert "planted-secret" not in result


@pytest.mark.parametrize(
    ("mode", "group", "output_of"),
    [(0o666, 0, 1), (0o664, 0, 0), (0o664, 4242, 1), (0o644, 4242, 0)],
)
def test_log_writable_by_others_is_reported_once(
    tmp_path: Path, mode: int, group: int, output_of: int
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files to other groups")
    dagdir = described(tmp_path / "d", "metl.log")
    for name in ("metl.log", "more.log", "third.log"):
        path = dagdir.write(name, Log().submit(7, NODE).data)
        os.chmod(path, mode)
        os.chown(path, 0, group)
    found = [text for kind, text in warnings(dagdir.reader()) if kind == "shared-log"]
    assert len(found) == output_of
    if output_of:
        assert "others than its owner may write this log (and 2 more)" in found[0]
