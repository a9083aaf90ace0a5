"""Nodes that fail without a job (PRE script, submission), the nodes after them, and the runs that
they end: DAGs of a real pool (HTCondor 23.9.6), and DAGMan's messages as it writes them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from metlmon.dagman.reports import read_node_status
from metlmon.model.states import State
from metlmon.snapshot.row_text import state_reason
from tests.conftest import Shared
from tests.support.event_logs import Log, Out, read_ensemble
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir

STATUSES = {5: State.COMPLETED, 6: State.FAILED, 7: State.FUTILE, 0: State.WAITING}

CHAIN = """\
JOB run0-train_epoch0 t.sub
JOB run0-train_epoch1 t.sub
JOB run0-train_epoch2 t.sub
PARENT run0-train_epoch0 CHILD run0-train_epoch1
PARENT run0-train_epoch1 CHILD run0-train_epoch2
"""

E0, E1 = (f"run0-train_epoch{n}" for n in range(2))

FAILED_PRE = "PRE Script of Job {} failed with status 9"
ABORTS = "Aborting DAG because we got the ABORT exit value from a job"


@pytest.fixture(name="failures")
def _failures(shared: Shared) -> Path:
    """One run's PRE script failed, and another one's submission: neither has a job."""
    return shared("examples/pool-failures/m1-node-failed-without-job")


# --- a real pool --------------------------------------------------------------------------------


def test_nodes_agree_with_dagmans_status_file(failures: Path) -> None:
    path = failures / "m.dag.status"
    result, _ = read_node_status(path, path.read_bytes())
    builder = read_dagdir(failures)
    for name, node in result.nodes.items():
        row = builder.node_row(("m.dag", name))
        assert row.state is STATUSES.get(node.status, State.RUNNING), name
        if node.status == 6:
            # The names of its files are from elsewhere.
            text = (row.reason or "").replace("script no.sh", "Script")
            assert text.removesuffix(": on Line 8 of bad.sub") == node.details
    (dag,) = builder.status().dags
    assert dag.nodes_failed == result.totals["NodesFailed"]
    assert builder.status().node_states[State.FUTILE] == result.totals["NodesFutile"]


def test_nodes_are_the_same_from_dagmans_log(failures: Path, tmp_path: Path) -> None:
    without = shutil.ignore_patterns("m.dag.status")
    shutil.copytree(failures, tmp_path, ignore=without, dirs_exist_ok=True)
    whole, partial = read_dagdir(failures), read_dagdir(tmp_path)
    for name in whole.dags["m.dag"].workflow.nodes:
        ours, theirs = partial.node_row(("m.dag", name)), whole.node_row(("m.dag", name))
        assert (ours.state, ours.since, ours.reason) == (theirs.state, theirs.since, theirs.reason)


def test_runs_of_failed_nodes_have_failed(failures: Path) -> None:
    rows = {row.run: row for row in read_dagdir(failures).status().runs}
    assert [rows[f"run{n}"].state for n in range(3)] == ["running", "failed", "failed"]
    failed = [rows[name].failed for name in ("run1", "run2")]
    assert [(at.epoch, at.part, at.reason) for at in failed] == [
        (1, "pre", "PRE script no.sh failed with status 9"),
        (1, "submit", "Job submit failed: on Line 8 of bad.sub"),
    ]


@pytest.mark.parametrize(("again", "state"), [(False, State.FAILED), (True, State.UNKNOWN)])
def test_rescue_file_names_nodes_that_failed(tmp_path: Path, again: bool, state: State) -> None:
    """Their PRE scripts did, says ``.dagman.out``, which is not here."""
    for name in ("t.dag", "t.dag.dagman.log", "t.dag.rescue001"):
        shutil.copy(FIXTURES / "script-output" / name, tmp_path)
    log = tmp_path / "t.dag.dagman.log"
    newer = log.read_text().replace("(001", "(002").replace(" 20:", " 21:")
    log.write_text(log.read_text() + newer * again)
    builder = read_dagdir(tmp_path)
    assert [builder.node_row(("t.dag", name)).state for name in "ac"] == [state] * 2


# --- written histories --------------------------------------------------------------------------


def states(out: Out, dag: str = CHAIN, *logs: Log, live: bool = True) -> list[State]:
    result = read_ensemble(dag, *logs, out=out)
    return [result.node(name, live=live) for name in result.ensemble.dags["run.dag"].workflow.nodes]


def test_run_fails_with_the_pre_script_of_its_first_node() -> None:
    out = Out().start().say(FAILED_PRE.format(E0))
    (run,) = read_ensemble(CHAIN, out=out).builder(live=True).status().runs
    assert (run.state, run.latest, run.epochs_done) == (State.FAILED, None, 0)
    assert (run.failed.epoch, run.failed.reason) == (0, "PRE Script failed with status 9")
    assert states(out) == [State.FAILED, State.FUTILE, State.FUTILE]
    # The DAG that is submitted again may run all of them.
    assert states(out.exit(1).start(at="11:00:00")) == [State.WAITING] * 3


def test_retried_pre_script_makes_no_node_futile() -> None:
    dag = CHAIN + "RETRY ALL_NODES 1\n"
    out = Out().start().say(FAILED_PRE.format(E0))
    assert states(out, dag) == [State.RETRYING, State.WAITING, State.WAITING]
    out.say(f"Retrying node {E0} (retry #1 of 1)...").say(FAILED_PRE.format(E0))
    assert states(out, dag) == [State.FAILED, State.FUTILE, State.FUTILE]


def test_failed_submission_is_never_retried() -> None:
    """``Dag::ProcessFailedSubmit`` in ``dag.cpp``."""
    dag = CHAIN + "RETRY ALL_NODES 5\n"
    out = Out().start().say("Job submit failed after 6 tries.")
    out.say(f"Shortcutting node {E0} retries because of submit failure(s)")
    assert states(out, dag) == [State.FAILED, State.FUTILE, State.FUTILE]
    row = read_ensemble(dag, out=out).builder(live=True).node_row(("run.dag", E0))
    assert (row.reason, row.retries_left) == ("Job submit failed", 0)


def test_weak_children_final_and_service_nodes_are_not_futile() -> None:
    """``Node::SetDescendantsToFutile``: the parent of a weak child only has to be over; after a
    futile node it is futile, too."""
    weak = CHAIN.replace(f"PARENT {E0}", f"WEAK PARENT {E0}")
    out = Out().start().say(FAILED_PRE.format(E0))
    assert states(out, weak) == [State.FAILED, State.WAITING, State.WAITING]
    weak = CHAIN.replace(f"PARENT {E1}", f"WEAK PARENT {E1}")
    assert states(out, weak) == [State.FAILED, State.FUTILE, State.FUTILE]
    dag = CHAIN + "FINAL last f.sub\nSERVICE watch s.sub\n"
    assert states(out, dag)[3:] == [State.WAITING, State.WAITING]


def test_futile_node_names_the_parent_that_failed_first() -> None:
    dag = "".join(f"JOB {name} t.sub\n" for name in "ABCD")
    dag += "PARENT A B CHILD C\nPARENT C CHILD D\n"
    out = Out().start().say(FAILED_PRE.format("B")).say(FAILED_PRE.format("A"))
    result = read_ensemble(dag, out=out)
    for name in "CD":
        state = result.node_state(name, live=True)
        assert (state.state, state.failed_ancestor) == (State.FUTILE, ("run.dag", "B"))


def test_unused_retries_of_a_removed_dag_make_no_node_futile() -> None:
    dag = CHAIN + "RETRY ALL_NODES 2\n"
    log = Log().submit(77, E0).execute(77).terminate(77, 1)
    out = Out().start(at="09:59:00").say("Received SIGUSR1", at="10:30:00").exit(2)
    assert states(out, dag, log, live=False) == [State.FAILED, State.WAITING, State.WAITING]
    for of_dag, number in ((CHAIN, 1), (dag, 0)):
        assert read_ensemble(of_dag, log, out=out).builder().status().dags[0].nodes_failed == number


# --- ABORT-DAG-ON -------------------------------------------------------------------------------


ABORTING = CHAIN + f"RETRY ALL_NODES 5\nABORT-DAG-ON {E0} 3\nFINAL last f.sub\n"


def test_aborting_node_is_failed_while_the_final_node_runs() -> None:
    """``Node::DoRetry``: never for the ABORT-DAG-ON value."""
    log = Log().submit(77, E0).execute(77).terminate(77, 3).submit(90, "last").execute(90)
    out = Out().start(at="09:59:00").submitted(E0, 77, at="10:01:00")
    before = read_ensemble(ABORTING, log, out=out)
    for result in (before, read_ensemble(ABORTING, log, out=out.say(ABORTS))):
        row = result.builder(live=True).node_row(("run.dag", E0))
        assert (row.state, row.retries_left) == (State.FAILED, 0)
        assert result.node(E1, live=True) is State.FUTILE
        assert result.builder(live=True).status().dags[0].nodes_failed == 1


def test_later_failures_in_an_aborted_dag_are_not_retried() -> None:
    """DAGMan reads on for its FINAL node: the jobs that it removed are failed nodes then."""
    dag = ABORTING + "JOB other t.sub\nRETRY other 5\n"
    log = Log().submit(77, E0).submit(78, "other").execute(77).execute(78).terminate(77, 3)
    log.remove(78, reason="DAG Abort: DAG is exiting and writing rescue file. (by user ada)")
    log.submit(90, "last").execute(90)
    out = Out().start(at="09:59:00").submitted(E0, 77, at="10:01:00")
    out.submitted("other", 78, at="10:01:00").say(ABORTS, at="10:06:00")
    result = read_ensemble(dag, log, out=out)
    assert result.node("other", live=True) is State.REMOVED
    assert result.builder(live=True).status().dags[0].nodes_failed == 2


def test_return_value_of_a_post_script_may_abort_the_dag() -> None:
    dag = ABORTING + f"SCRIPT POST {E0} post.sh\n"
    log = Log().submit(77, E0).execute(77).terminate(77, 1).post(77, E0, 3)
    out = Out().start(at="09:59:00").submitted(E0, 77, at="10:01:00")
    assert read_ensemble(dag, log, out=out).node(E0, live=True) is State.FAILED
    log = Log().submit(77, E0).execute(77).terminate(77, 3).post(77, E0, 1)
    assert read_ensemble(dag, log, out=out).node(E0, live=True) is State.RETRYING


def test_tries_known_from_dagmans_log_count() -> None:
    dag = CHAIN + "RETRY ALL_NODES 1\n"
    out = Out().start(at="10:00:00").submitted(E0, 77)
    out.say(f"Node {E0} job proc (77.0.0) failed with status 3.")
    out.say(f"Retrying node {E0} (retry #1 of 1)...").submitted(E0, 78)
    out.say(f"Node {E0} job proc (78.0.0) failed with status 3.")
    row = read_ensemble(dag, out=out).builder(live=True).node_row(("run.dag", E0))
    assert (row.state, row.submissions, row.retries_left) == (State.FAILED, 2, 0)
    assert state_reason(row) == "Job failed with status 3, after 2 tries, no retries left"
