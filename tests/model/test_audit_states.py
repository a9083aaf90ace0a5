"""States of jobs and nodes that a second, independent reading of ``metlmon/README.md`` and of real
recordings decided."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest

from metlmon.live.dagdir_reader import DagmanFiles
from metlmon.model.states import State
from tests.model.test_node_state import CHAIN, EPOCH0, status_file
from tests.support.event_logs import Log, Out, read_ensemble
from tests.support.recordings import FIXTURES, opened

NODE = "run0-train_epoch0"


def test_error_of_a_removed_dagman_does_not_fail_a_job() -> None:
    """A removed DAGMan writes every open node as ERROR. A real one that could no longer read its
    jobs' log did so with three jobs that had returned 0."""
    log = Log().submit(77, EPOCH0).execute(77).terminate(77, at="11:00:00")
    error = status_file(6, "11:02:00")
    swept = error.replace(b'StatusDetails = ""', b'StatusDetails = "Was STATUS_SUBMITTED"')
    assert read_ensemble(CHAIN, log, status=swept).node(EPOCH0) is State.COMPLETED
    assert read_ensemble(CHAIN, log, status=error).node(EPOCH0) is State.FAILED


def test_pre_script_runs_again_after_a_failed_post_script() -> None:
    dag = f"JOB {NODE} train.sub\nSCRIPT PRE {NODE} a.sh\nSCRIPT POST {NODE} b.sh\nRETRY {NODE} 2\n"
    log = Log().submit(77, NODE, at="10:00:00").execute(77).terminate(77, 1)
    log.post(77, NODE, 1, at="10:05:00")
    out = Out().start(at="09:59:00").submitted(NODE, 77, at="10:00:00")
    out.say(f"Running PRE script of Node {NODE}...", at="09:59:30")
    assert read_ensemble(dag, log, out=out).node(NODE, live=True) is State.RETRYING
    out.say(f"Running PRE script of Node {NODE}...", at="10:05:03")
    assert read_ensemble(dag, log, out=out).node(NODE, live=True) is State.PRE


def test_run_has_one_name_for_all_its_jobs() -> None:
    vars_ = 'run_uuid="0a1b2c3d"'
    check = "run0-eval_epoch0"
    dags = {
        "run.dag": f"JOB {NODE} t.sub\nVARS {NODE} {vars_}\n",
        "more.dag": f"JOB again-train_epoch1 t.sub\nVARS again-train_epoch1 {vars_}\n"
        f"JOB {check} e.sub\nVARS {check} {vars_}\n",
    }
    log = Log().submit(77, NODE).execute(77).terminate(77)
    log.submit(78, "again-train_epoch1").execute(78).submit(79, check)
    result = read_ensemble(dags, log)
    assert [result.job(job).run for job in (77, 78, 79)] == ["again"] * 3
    assert [row.run for row in result.builder().status().runs] == ["again"]


def test_run_done_before_any_submission_has_no_latest_epoch() -> None:
    dag = f"JOB {NODE} train.sub DONE\nJOB run1-train_epoch0 train.sub\n"
    run = read_ensemble(dag, Log().submit(77, "run1-train_epoch0")).run("run0")
    assert (run.state, run.epochs_done, run.latest) == (State.COMPLETED, 1, None)


def test_empty_variable_is_unknown() -> None:
    dag = f'JOB {NODE} train.sub\nVARS {NODE} run_uuid="" ResourceName="" checkpoint=""\n'
    job = read_ensemble(dag, Log().submit(77, NODE)).job(77)
    assert (job.target, job.uuid, job.run) == (None, None, "run0")


def test_dagman_has_the_end_that_a_log_lost() -> None:
    """The log of a full disk, or one that lags: DAGMan's account is newer than the 001."""
    log = Log().submit(77, EPOCH0).execute(77, at="10:05:00")
    for result, state in (
        ("completed successfully.", State.COMPLETED),
        ("failed with status 3.", State.FAILED),
    ):
        out = Out().start(at="09:59:00").submitted(EPOCH0, 77, at="10:01:05")
        earlier = Out().start(at="09:59:00")
        out.say(f"Node {EPOCH0} job proc (77.0.0) {result}", at="11:00:00")
        earlier.say(f"Node {EPOCH0} job proc (76.0.0) {result}", at="10:00:00")
        assert read_ensemble(CHAIN, log, out=out).node(EPOCH0) is state
        assert read_ensemble(CHAIN, log, out=earlier).node(EPOCH0) is State.RUNNING


def without_last_end(path: Path, kept: str) -> bytes:
    """Copy a recording to ``path`` without the last 005 of its log; return the whole log."""
    for name in ("ens.dag", "metl.log", kept):
        copyfile(FIXTURES / "checkpoints" / name, path / name)
    whole = (path / "metl.log").read_bytes()
    (path / "metl.log").write_bytes(whole[: whole.rindex(b"005 (1090.000.000)")])
    return whole


@pytest.mark.parametrize(
    ("kept", "outcome"), [("ens.dag.dagman.out", "good"), ("ens.dag.metrics", "evicted")]
)
def test_job_of_a_completed_dag_does_not_run(tmp_path: Path, kept: str, outcome: str) -> None:
    """The 005 of the last node is lost; its DAGMan has ended with 0."""
    whole = without_last_end(tmp_path, kept)
    snapshot = opened(tmp_path).snapshot_builder()
    job = next(each for each in snapshot.job_rows() if each.job == (1090, 0))
    assert (job.state, job.queued) == (State.UNKNOWN, False)
    (execution,) = job.executions
    assert (execution.outcome, execution.uncertain) == (outcome, True)
    assert execution.end.replace(microsecond=0) == datetime(2026, 11, 29, 23, 23, 57)
    assert snapshot.status().hours.running == 0
    # Its end may come, whatever has been read so far.
    reader = opened(tmp_path)
    reader.snapshot_builder()
    (tmp_path / "metl.log").write_bytes(whole)
    reader.check()
    reader.read_all()
    assert list(reader.snapshot_builder().job_rows())[-1].state is State.COMPLETED


def test_logs_are_looked_at_after_dagman_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DAGMan that ends during a look has read the end of its last job before."""
    out = tmp_path / "ens.dag.dagman.out"
    whole = {tmp_path / "metl.log": without_last_end(tmp_path, out.name), out: out.read_bytes()}
    out.write_bytes(whole[out][: whole[out].rindex(b"ULOG_JOB_TERMINATED")])
    reader = opened(tmp_path)
    reader.read_all()
    check = DagmanFiles.check

    def check_while_it_ends(*arguments: Any) -> bool:
        for path, data in whole.items():
            path.write_bytes(data)
        return check(*arguments)

    monkeypatch.setattr(DagmanFiles, "check", check_while_it_ends)
    reader.check()
    reader.read_all()
    assert list(reader.snapshot_builder().job_rows())[-1].state is State.COMPLETED


def test_end_of_one_proc_does_not_end_a_node_of_two() -> None:
    log = Log().submit((77, 0), EPOCH0).submit((77, 1), EPOCH0).execute((77, 0)).execute((77, 1))
    out = Out().start(at="09:59:00").submitted(EPOCH0, 77, at="10:01:05")
    out.say(f"Node {EPOCH0} job proc (77.0.0) completed successfully.", at="11:00:00")
    assert read_ensemble(CHAIN, log, out=out).node(EPOCH0) is State.RUNNING


def test_latest_epoch_may_be_known_from_dagman_only() -> None:
    log = Log().submit(77, EPOCH0).execute(77).terminate(77, at="10:30:00")
    out = Out().start(at="09:59:00").submitted(EPOCH0, 77, at="10:01:05")
    begun = "Event: ULOG_SUBMIT for HTCondor Node run0-train_epoch{} ({}.0.0) {{05/04/26 {}}}"
    out.say(begun.format(1, 80, "10:31:00"), at="10:31:03")
    out.say("Node run0-train_epoch1 job proc (80.0.0) completed successfully.", at="10:50:00")
    out.say(begun.format(2, 81, "10:51:00"), at="10:51:03")
    status = read_ensemble(CHAIN, log, out=out).builder(live=True).status()
    (run,) = status.runs
    assert (run.latest.epoch, run.latest.cluster, run.latest.state) == (2, 81, State.IDLE)
    assert (run.epochs_done, run.latest.gpu, run.latest.attempts) == (2, None, 0)


def test_resubmission_known_from_dagman_only() -> None:
    log = Log().submit(77, EPOCH0).execute(77).terminate(77, 1, at="10:30:00")
    out = Out().start(at="09:59:00")
    submitted = "Event: ULOG_SUBMIT for HTCondor Node run0-train_epoch0 ({}.0.0) {{05/04/26 {}}}"
    # It appeared only after the job had ended, but was submitted before.
    out.say(submitted.format(77, "10:01:00"), at="10:30:05")
    assert read_ensemble(CHAIN, log, out=out).node(EPOCH0, live=True) is State.FAILED
    out.say(submitted.format(80, "10:30:08"), at="10:30:10")
    latest = read_ensemble(CHAIN, log, out=out).builder(live=True).status().runs[0].latest
    assert (latest.state, latest.cluster) == (State.IDLE, 80)
