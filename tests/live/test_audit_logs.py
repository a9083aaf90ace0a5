"""Figures of the logs themselves, as a second, independent reading of them has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.snapshot.types import Status

SUBMIT = b"000 (077.000.000) 2026-05-04 10:00:00 Job submitted from host: <1.2.3.4:9618>\n...\n"
TORN = b"001 (077.000.000) 2026-05-04 10:01:00 Job executing on host: <1.2.3.4:9618>\n.."


def read(dagdir: Path) -> Status:
    reader = DagdirReader(dagdir)
    reader.open()
    reader.read_all()
    return reader.snapshot_builder().status()


def test_a_log_is_as_large_as_its_file_also_when_its_last_event_is_not_complete(
    tmp_path: Path,
) -> None:
    (tmp_path / "run.dag").write_text("JOB run0-train_epoch0 {\n log = metl.log\n}\n")
    (tmp_path / "metl.log").write_bytes(SUBMIT + TORN)
    (log,) = read(tmp_path).logs
    assert (log.bytes, log.events) == (len(SUBMIT + TORN), 1)


def test_an_event_that_was_cut_is_a_warning_and_no_event(shared: Callable[[str], Path]) -> None:
    status = read(shared("examples/metl-aws"))
    (log,) = status.logs
    assert (log.bytes, log.events) == (1_113_264, 6_043)
    assert "glued-header" in {notice.kind for notice in status.warnings}
