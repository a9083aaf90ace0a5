"""Files that are rewritten, missing for a moment, or incomplete while they are watched: in the end
the result is that of a fresh reader."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from metlmon.live import dagdir_reader as reader_module
from metlmon.live import follower as follower_module
from metlmon.live.discovery import Discovery, discover_dags
from metlmon.live.follower import Follower
from tests.support.dagdir_builder import DAG, NODE, Dagdir, again, jobs, log_of
from tests.support.event_logs import Log, Out
from tests.support.patience import PATIENCE

NEXT = "run0-train_epoch1"


@pytest.fixture(name="settled")
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust the times of directories at once, so that no change is seen only because all is new."""
    monkeypatch.setattr(follower_module, "SETTLED", -1.0)


# --- DAG files ------------------------------------------------------------------------------


@pytest.mark.parametrize("between", ["", f"JOB {NODE} train\n", "JOB JOB\n"])
def test_jobs_outlive_a_dag_file_being_written(dagdir: Dagdir, between: str) -> None:
    dagdir.write("other.dag", "JOB alone train.sub\n")
    dagdir.write("run.dag.dagman.log", Log().submit(900).execute(900).data)
    dagdir.write("run.dag.nodes.log", log_of(77) + Log().post((-1, 0), NEXT, code=1).data)
    reader = dagdir.reader()
    before = again(reader)
    assert next(dag.nodes_failed for dag in before.dags if dag.file == "run.dag") == 1
    dagdir.write("run.dag", between)
    again(reader)
    dagdir.write("run.dag", DAG)
    assert again(reader) == before == dagdir.reader().snapshot_builder().status()


def test_dagman_log_may_precede_its_dag_file(dagdir: Dagdir) -> None:
    dagdir.write("late.dag.dagman.log", Log().submit(900).execute(900).data)
    reader = dagdir.reader()
    dagdir.write("late.dag", "JOB alone train.sub\n")
    late = next(dag for dag in again(reader).dags if dag.file == "late.dag")
    assert (late.dagmans, str(late.state)) == (1, "running")


def test_dag_file_changed_while_read_is_read_again(
    dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = dagdir.reader()

    def slowly(path: Path, only: str | None = None) -> Discovery:
        found = discover_dags(path, only)
        dagdir.write("run.dag", DAG)
        return found

    dagdir.write("run.dag", DAG[: DAG.index("JOB run0-train_epoch1")])
    with monkeypatch.context() as patched:
        patched.setattr(reader_module, "discover_dags", slowly)
        assert again(reader).dags[0].nodes_total == 1
    assert again(reader).dags[0].nodes_total == 2


def test_snapshot_outlives_its_dag(dagdir: Dagdir) -> None:
    dagdir.write("other.dag", "JOB alone train.sub\n")
    dagdir.write("metl.log", log_of(77))
    reader = dagdir.reader()
    builder = reader.snapshot_builder()
    shown = builder.run_view("aaaa1111-0000")
    assert shown is not None
    (dagdir.path / "run.dag").unlink()
    reader.check()
    assert builder.run_view("aaaa1111-0000") == shown
    assert again(reader).runs == ()


def test_pipe_in_place_of_a_submit_file_is_not_opened(dagdir: Dagdir) -> None:
    os.mkfifo(dagdir.path / "run.dag.condor.sub")
    reading = threading.Thread(target=discover_dags, args=(dagdir.path,), daemon=True)
    reading.start()
    reading.join(timeout=PATIENCE)
    assert not reading.is_alive()


# --- logs -----------------------------------------------------------------------------------


def test_rewritten_log_has_the_figures_of_its_content(dagdir: Dagdir) -> None:
    first, second = Log().submit(70, NODE).remove(70), Log().submit(71, NODE).remove(71)
    dagdir.write("run.dag.nodes.log", first.data + b"rubbish\n...\n" + second.data)
    dagdir.write("run.dag.dagman.log", Log().submit(900).remove(900).submit(901).data)
    reader = dagdir.reader()
    assert [notice.kind for notice in reader.snapshot_builder().notices()] == [
        "missing-log",
        "garbage",
    ]
    dagdir.write("run.dag.nodes.log", Log().submit(77, NODE, at="11:00:00").data)
    dagdir.write("run.dag.dagman.log", Log().submit(901).data)
    status = again(reader)
    fresh = dagdir.reader().snapshot_builder().status()
    assert status.logs == fresh.logs
    assert [notice.kind for notice in status.warnings] == ["missing-log"]
    assert status.warnings == fresh.warnings
    assert status.dags[0].dagmans == fresh.dags[0].dagmans == 1
    assert jobs(reader).keys() == {70, 71, 77}


def test_job_of_a_missing_log_stays_beside_its_resubmission(dagdir: Dagdir) -> None:
    """No log has its end, so it is still idle."""
    dagdir.write("run.dag.nodes.log", log_of(70) + b"rubbish\n...\n")
    reader = dagdir.reader()
    dagdir.write("run.dag.nodes.log", log_of(77))
    _, notice = again(reader).warnings
    assert (notice.kind, notice.file) == ("doubled-node", "run.dag")
    assert "by their logs, 70, 77:" in notice.text


def test_unreadable_file_is_read_again_later(tmp_path: Path) -> None:
    path = tmp_path / "metl.log"
    path.write_bytes(b"one")
    follower = Follower(path)
    assert follower.check().grew
    path.rename(tmp_path / "away")
    with pytest.raises(OSError, match="No such file"):
        follower.read(0)
    (tmp_path / "away").rename(path)
    look = follower.check()
    assert (look.grew, look.restarted) == (True, False)


def test_event_without_end_is_skipped(dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_module, "CHUNK", 256)
    monkeypatch.setattr(follower_module, "MAX_EVENT_BYTES", 1024)
    endless = log_of(77).removesuffix(b"...\n") + b"\tmore of it\n" * 1000
    dagdir.write("metl.log", endless + b"...\n" + log_of(78))
    reader = dagdir.reader()
    assert jobs(reader).keys() == {77, 78}
    assert "unterminated-event" in {notice.kind for notice in reader.snapshot_builder().notices()}


# --- DAGMan's other files -------------------------------------------------------------------


def test_line_longer_than_a_chunk_is_skipped(dagdir: Dagdir) -> None:
    hole = b"\0" * (2 * follower_module.CHUNK)
    dagdir.write("run.dag.dagman.out", Out().start().data + hole + b"\n" + Out().exit(0).data)
    assert str(dagdir.reader().snapshot_builder().status().dags[0].state) == "done"


def test_slowly_copied_rescue_file_is_read_to_its_end(dagdir: Dagdir, settled: None) -> None:
    dagdir.write("run.dag.rescue001", "")
    reader = dagdir.reader()
    assert again(reader).dags[0].nodes_done == 0
    dagdir.append("run.dag.rescue001", f"DONE {NODE}\n".encode())
    assert again(reader).dags[0].nodes_done == 1


def status_file(*nodes: str) -> str:
    ads = [f'[\n  Type = "NodeStatus";\n  Node = "{n}";\n  NodeStatus = 5;\n]\n' for n in nodes]
    head = '[\n  Type = "DagStatus";\n  DagFiles = {\n    "run.dag"\n  };\n  DagStatus = 3;\n]\n'
    return head + "".join(ads) + '[\n  Type = "StatusEnd";\n]\n'


def test_partial_status_file_takes_nothing_back(dagdir: Dagdir) -> None:
    dagdir.write("run.dag", DAG + "NODE_STATUS_FILE said/run.status\n")
    reader = dagdir.reader()
    whole = status_file(NODE, NEXT)
    dagdir.write("said/run.status", whole)
    assert again(reader).dags[0].nodes_done == 2
    dagdir.write("said/run.status", whole[: whole.index(NEXT)])
    torn = again(reader)
    assert (torn.dags[0].nodes_done, [n.kind for n in torn.warnings]) == (2, ["torn-file"])
    dagdir.write("said/run.status", status_file(NODE))
    mended = again(reader)
    assert (mended.dags[0].nodes_done, mended.warnings) == (1, ())


def test_jobstate_log_outlives_a_new_dagman_out(dagdir: Dagdir) -> None:
    (dagdir.path / "run.dag").rename(dagdir.path / "other.dag")
    dagdir.write("first.dag", DAG + "JOBSTATE_LOG run.jobstate\n")
    dagdir.write("run.jobstate", f"1777900000 {NODE} SUBMIT 77.0 - 1\n")
    dagdir.write("first.dag.dagman.out", Out().start().submitted(NODE, 77).data)
    dagdir.write("metl.log", log_of(77))
    reader = dagdir.reader()
    dagdir.write("first.dag.dagman.out", Out().start(at="20:00:00").data)
    again(reader)
    assert jobs(reader)[77].dag == jobs(dagdir.reader())[77].dag == "first.dag"


def test_unknown_lines_of_a_jobstate_log_are_reported(dagdir: Dagdir) -> None:
    dagdir.write("run.dag", DAG + "JOBSTATE_LOG run.jobstate\n")
    line = f"1777900000 {NODE} SUBMIT 77.0 - 1\n"
    dagdir.write("run.jobstate", line * 3)
    reader = dagdir.reader()
    for _ in range(100):
        dagdir.append("run.jobstate", b"rubbish\n")
        again(reader)
    (notice,) = reader.snapshot_builder().notices()
    assert (notice.file, notice.line, notice.count) == ("run.jobstate", 4, 50)
