"""A run in its first DAG and in the one that continues it: counted once, with the state of the
later gate."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.cli.exit_conditions import exit_condition
from metlmon.model.states import State
from metlmon.snapshot.records import Run, Status
from tests.gate.test_continue import EPOCHS, RUNS, EndedDag
from tests.support.event_logs import Log, Out


@pytest.fixture(name="going")
def _going(tmp_path: Path) -> EndedDag:
    """The first DAG skipped what run0 had not trained; e-2.dag continues run0 and run1."""
    ended = EndedDag(tmp_path / "ensemble")
    log = Log()
    for epoch in (2, 3):
        log.pre_skip(f"run0-train_epoch{epoch}", "11:00:00")
    ended.write("e.dag.nodes.log", log.data)
    assert ended.go_on() == 0
    return ended


def begun(going: EndedDag, out: Out | None = None) -> None:
    going.write("e-2.dag.dagman.out", (out or Out().start("13:00:00")).data)


def seen(going: EndedDag, live: bool = True) -> Status:
    return going.reader(live=live).snapshot_builder().status()


def row(status: Status, run: str = "run0") -> Run:
    return next(each for each in status.runs if each.run == run)


def agree(status: Status) -> None:
    """Check that the sums over epochs are those of the rows of runs."""
    assert sum(status.epoch_states.values()) == len(RUNS) * EPOCHS
    assert sum(run.epochs_total for run in status.runs) == len(RUNS) * EPOCHS
    assert status.epoch_states[State.SKIPPED] == sum(run.epochs_skipped for run in status.runs)
    assert status.epoch_states[State.COMPLETED] == sum(run.epochs_done for run in status.runs)


def test_epoch_in_two_dags_counts_once(going: EndedDag) -> None:
    agree(seen(going, live=False))
    out, log = Out().start("13:00:00"), Log()
    for job, epoch in ((98, 2), (99, 3)):
        out = out.submitted(f"run0-train_epoch{epoch}", job)
        log.submit(job, f"run0-train_epoch{epoch}", "13:01:00").execute(job).terminate(job)
    begun(going, out)
    going.append("metl.log", log.data)
    status = seen(going)
    agree(status)
    assert (row(status).epochs_done, row(status).epochs_skipped) == (4, 0)
    # Nodes are counted for each DAG.
    assert sum(status.node_states.values()) == len(RUNS) * EPOCHS + 4
    assert not any(status.other_states.values())


@pytest.mark.parametrize("over", [False, True])
def test_run_waiting_in_the_later_dag_is_not_stopped(going: EndedDag, over: bool) -> None:
    out = Out().start("13:00:00")
    begun(going, out.exit(1, "14:00:00") if over else out)
    status = seen(going, live=not over)
    agree(status)
    run = row(status)
    assert (run.epochs_done, run.epochs_skipped) == (2, 0)
    assert run.gate.stopped is None
    assert row(status, "run1").state is (State.FAILED if over else State.COMPLETED)
    assert exit_condition("all")(status, lambda: None) != 0


def test_run_failing_in_the_later_dag_is_not_stopped(going: EndedDag) -> None:
    log = Log().submit(98, "run1-train_epoch2", "13:01:00").execute(98).terminate(98)
    going.append("metl.log", log.data)
    out = Out().start("13:00:00").submitted("run1-train_epoch2", 98, "13:01:00")
    for _ in range(4):
        out = out.say("PRE Script of Node run0-train_epoch2 failed with status 9")
    begun(going, out.exit(1, "14:00:00"))
    status = seen(going, live=False)
    agree(status)
    run = row(status)
    assert status.epoch_states[State.FAILED] == 1
    assert run.epochs_skipped == 0
    assert run.gate.stopped is None
