"""Nodes that DAGMan counts as failed, in DAGs that ended on a real pool (23.9.6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.health.build import make_health
from metlmon.model.states import DagState, Outcome, State
from metlmon.stats.totals import break_down
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log, Out, read_ensemble
from tests.support.run_histories import recorded

DAG = "JOB run0-train_epoch0 t.sub\nJOB run1-train_epoch0 t.sub\nJOB run2-train_epoch0 t.sub\n"

SWEPT = (
    "DAG Removed: User removed scheduler job from queue. (by user ada)",
    "DAG Abort: DAG is exiting and writing rescue file. (by user ada)",
    "removed because <OtherJobRemoveRequirements = DAGManJobId =?= 60> fired when job (60.0) was "
    "removed",
)


def failed(log: Log, out: Out | None = None) -> int:
    out = out or Out().start(at="09:59:00").exit(2, "11:00:00")
    (row,) = read_ensemble(DAG, log, out=out).builder().status().dags
    return row.nodes_failed


@pytest.mark.parametrize("reason", SWEPT)
def test_jobs_removed_with_their_dag_are_not_failures_nor_retried(reason: str) -> None:
    log = Log().submit(77, "run0-train_epoch0", at="10:00:00").submit(78, "run1-train_epoch0")
    log.submit(79, "run2-train_epoch0").execute(77).execute(78).execute(79)
    log.terminate(79, 1).remove(78, reason="via condor_rm (by user ada)")
    log.remove(77, reason=reason)
    assert failed(log) == 2
    result = read_ensemble(DAG + "RETRY ALL_NODES 1\n", log, out=Out().start(at="09:59:00"))
    assert result.node("run0-train_epoch0", live=True) is State.REMOVED
    # A recovery, as after a removal on hold, reads that they were removed.
    assert failed(log, out=Out().start(at="09:59:00").start(at="11:00:00").recovery()) == 3


def test_job_removed_after_its_end_has_succeeded(tmp_path: Path) -> None:
    """A DAG's last job: DAGMan read its 005 and exited, and the schedd removed the job because its
    shadow had not exited yet. DAGMan ignores a 009 after a 005 (``check_events.cpp``)."""
    node = "run0-train_epoch0"
    made = Dagdir(tmp_path, f"JOB {node} t.sub\nRETRY {node} 2\n")
    made.write("t.sub", "executable = t.sh\nlog = metl.log\n")
    log = Log().submit(27, node, at="10:00:00").execute(27, gpus=1, at="10:00:01")
    log.terminate(27, at="10:00:12").remove(27, reason=SWEPT[2], at="10:00:16")
    made.write("metl.log", log.data)
    out = Out().start(at="09:59:58").submitted(node, 27, at="10:00:00")
    made.write("run.dag.dagman.out", out.exit(at="10:00:13").data)
    builder = made.reader().snapshot_builder()
    status = builder.status()
    (job,), (dag,), (run,) = builder.job_rows(), status.dags, status.runs
    assert (job.state, [e.outcome for e in job.executions]) == (State.COMPLETED, [Outcome.GOOD])
    assert (dag.state, dag.nodes_done, dag.nodes_failed) == (DagState.DONE, 1, 0)
    assert (run.state, run.epochs_done) == (State.COMPLETED, 1)
    assert (status.hours.goodput, status.hours.badput) == (pytest.approx(11 / 3600), 0)
    assert not status.warnings
    assert not break_down(builder.ledger()).causes
    assert make_health(recorded(tmp_path)).entries == ()
