"""Which nodes DAGMan counts as failed, as DAGs on a real pool (23.9.6) ended."""

from __future__ import annotations

import pytest

from metlmon.model.states import State
from tests.support.event_logs import Log, Out, read_ensemble

DAG = "JOB run0-train_epoch0 t.sub\nJOB run1-train_epoch0 t.sub\nJOB run2-train_epoch0 t.sub\n"

SWEPT = (
    "DAG Removed: User removed scheduler job from queue. (by user ada)",
    "DAG Abort: DAG is exiting and writing rescue file. (by user ada)",
    "removed because <OtherJobRemoveRequirements = DAGManJobId =?= 60> fired when job (60.0) was "
    "removed",
)


def failed(log: Log, live: bool = False, dag: str = DAG) -> int:
    (row,) = (
        read_ensemble(dag, log, out=Out().start(at="09:59:00")).painter(live=live).status().dags
    )
    return row.nodes_failed


@pytest.mark.parametrize("live", [True, False])
def test_a_node_whose_job_somebody_removed_has_failed(live: bool) -> None:
    log = Log().submit(77, "run0-train_epoch0", at="10:00:00").execute(77)
    log.remove(77, reason="via metlmon (by user ada)")
    assert failed(log, live) == 1


def test_a_node_that_is_tried_again_has_not() -> None:
    log = Log().submit(77, "run0-train_epoch0", at="10:00:00").remove(77)
    assert failed(log, live=True, dag=DAG + "RETRY ALL_NODES 1\n") == 0


@pytest.mark.parametrize("reason", SWEPT)
def test_jobs_that_leave_with_their_dag_are_no_failures(reason: str) -> None:
    log = Log().submit(77, "run0-train_epoch0", at="10:00:00").submit(78, "run1-train_epoch0")
    log.submit(79, "run2-train_epoch0").execute(77).execute(78).execute(79)
    log.terminate(79, 1).remove(78, reason="via condor_rm (by user ada)")
    log.remove(77, reason=reason)
    assert failed(log) == 2


@pytest.mark.parametrize("reason", SWEPT)
def test_a_job_that_leaves_with_its_dag_is_not_tried_again(reason: str) -> None:
    log = Log().submit(77, "run0-train_epoch0", at="10:00:00").remove(77, reason=reason)
    result = read_ensemble(DAG + "RETRY ALL_NODES 1\n", log, out=Out().start(at="09:59:00"))
    assert result.node("run0-train_epoch0", live=True) is State.REMOVED
