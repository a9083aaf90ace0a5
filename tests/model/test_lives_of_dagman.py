"""DAGMan's lives: clusters of its job that overlap, are refused, held or restarted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metlmon.cli import Exit
from metlmon.cli.exit_conditions import exit_condition
from metlmon.health.advice import RECOVER
from metlmon.health.build import make_health
from metlmon.model.model_state import LogRole
from metlmon.model.states import DagState, State
from metlmon.snapshot.records import DagRow
from tests.conftest import Shared
from tests.support.commands import Captured, json_output, text_output
from tests.support.event_logs import EnsembleReading, Log, Out, moment, read_ensemble
from tests.support.records import stats_input

DAG = """\
JOB run0-train_epoch0 train.sub
JOB run0-train_epoch1 train.sub
PARENT run0-train_epoch0 CHILD run0-train_epoch1
"""
EPOCH0 = "run0-train_epoch0"

ANOTHER_RUNS = (
    "Aborting because it looks like another instance of DAGMan is currently running on this DAG; "
    "if that is not the case, delete the lock file (run.dag.lock) and re-submit the DAG."
)


def begun(cluster: int, at: str, log: Log | None = None) -> Log:
    """000 and 001 within one second, as the schedd writes them."""
    log = log or Log("run.dag.dagman.log", LogRole.DAGMAN, "run.dag")
    return log.submit(cluster, at=at).execute(cluster, gpus=None, at=at)


def row(report_of: EnsembleReading, live: bool = False) -> DagRow:
    (dag,) = report_of.builder(live=live).status().dags
    return dag


def exits(report_of: EnsembleReading, on: str) -> Exit | None:
    builder = report_of.builder(live=True)
    return exit_condition(on)(builder.status(), lambda: make_health(stats_input(builder)))


# --- lives that overlap -------------------------------------------------------------------


def test_refused_submission_leaves_the_first_running() -> None:
    log = begun(102, "09:10:00", begun(100, "09:00:00")).terminate(102, 1, at="09:10:00")
    nodes = Log("run.dag.nodes.log", LogRole.NODES, "run.dag")
    nodes.submit(101, EPOCH0, at="09:00:05").execute(101, at="09:00:20")
    result = read_ensemble(DAG, log, nodes)
    dag = row(result)
    assert (dag.state, dag.cluster, dag.ended) == (DagState.RUNNING, 100, None)
    assert (dag.dagmans, dag.submitted, dag.refused) == (1, 1, 1)
    assert dag.submissions == (moment("09:00:00"),)
    assert result.derivation.is_unfinished()
    assert result.node(EPOCH0) is State.RUNNING
    assert exits(result, "failed") is exits(result, "all") is None


def test_dagman_reports_that_another_one_runs() -> None:
    log = begun(102, "09:10:00", begun(100, "09:00:00")).terminate(102, 1, at="09:15:00")
    out = Out().start("09:00:01", cluster=100).start("09:10:01", None, 102)
    out.submitted(EPOCH0, 101, at="09:12:00")
    out.say(ANOTHER_RUNS, "09:15:00").exit(1, "09:15:00", 102)
    dag = row(read_ensemble(DAG, log, out=out))
    assert (dag.state, dag.cluster, dag.dagmans, dag.refused) == (DagState.RUNNING, 100, 1, 1)
    out.say("Received SIGUSR1", "10:00:00").exit(2, "10:00:01", 100)
    log.remove(100, at="10:00:01")
    dag = row(read_ensemble(DAG, log, out=out))
    assert (dag.state, dag.ended, dag.dagmans) == (DagState.REMOVED, moment("10:00:01"), 1)


def test_dagmans_output_separates_lives_without_a_job_log() -> None:
    out = Out().start("09:00:01", cluster=100).start("09:10:01", None, 102)
    out.say(ANOTHER_RUNS, "09:10:01").exit(1, "09:10:01", 102)
    dag = row(read_ensemble(DAG, out=out))
    assert (dag.state, dag.cluster, dag.dagmans, dag.refused) == (DagState.RUNNING, 100, 1, 1)


def test_wrapper_of_dagman_does_not_hide_its_status() -> None:
    """pegasus-dagman returns 0 for any end of the DAGMan that it calls."""
    log = begun(100, "09:00:00").terminate(100, 0, at="09:30:40")
    out = Out().start("09:00:01", cluster=100).exit(1, "09:30:00", 100)
    assert row(read_ensemble(DAG, log, out=out)).state is DagState.FAILED


@pytest.mark.parametrize("old", ["removed", "failed"])
def test_older_life_may_end_after_the_next_begins(old: str) -> None:
    log = begun(102, "10:00:00", begun(100, "09:00:00"))
    if old == "removed":
        log.remove(100, at="10:00:03")
    else:
        log.terminate(100, 1, at="10:00:03")
    result = read_ensemble(DAG, log)
    dag = row(result)
    assert (dag.state, dag.cluster, dag.dagmans) == (DagState.RUNNING, 102, 2)
    assert exits(result, "failed") is None
    log.terminate(102, 0, at="11:00:00")
    dag = row(read_ensemble(DAG, log))
    assert (dag.state, dag.ended) == (DagState.DONE, moment("11:00:00"))


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        # The end of the first life was lost: the next one has run since.
        (
            begun(102, "10:00:00", begun(100, "09:00:00")).terminate(102, 1, at="12:00:00"),
            (DagState.FAILED, 102, 2, 0),
        ),
        # A life that fails at once without another running one was not refused.
        (
            begun(102, "10:00:00", begun(100, "09:00:00").remove(100)).terminate(102, 1),
            (DagState.FAILED, 102, 2, 0),
        ),
        # A life that leaves the queue unrun does not count; one that waits does.
        (
            begun(100, "09:00:00").submit(102, at="09:10:00").remove(102, at="09:11:00"),
            (DagState.RUNNING, 100, 2, 0),
        ),
        (
            begun(100, "09:00:00").terminate(100, 0, at="10:00:00").submit(104, at="10:10:00"),
            (DagState.RUNNING, 104, 2, 0),
        ),
        # The schedd was restarted: 001 again, with no 004 between.
        (begun(100, "09:00:00").execute(100, gpus=None), (DagState.RUNNING, 100, 1, 0)),
        (begun(100, "09:00:00").evict(100).hold(100).remove(100), (DagState.REMOVED, 100, 1, 0)),
        # A life that is removed on hold had ended when the next one ran.
        (
            begun(102, "10:00:00", begun(100, "09:00:00").hold(100)).terminate(102, 0).remove(100),
            (DagState.DONE, 102, 2, 0),
        ),
    ],
)
def test_lives_from_the_job_log_alone(log: Log, expected: tuple[DagState, int, int, int]) -> None:
    result = read_ensemble(DAG, log)
    dag = row(result)
    assert (dag.state, dag.cluster, dag.dagmans, dag.refused) == expected
    assert dag.hold is None
    assert result.builder().job_rows() == []
    assert result.builder().status().hours.total == 0


def test_submissions_are_counted_by_clusters() -> None:
    """The schedd was restarted twice during the first life."""
    out = Out().start("09:00:01", cluster=100).exit(3, "09:30:00", 100)
    out.start("09:40:00", cluster=100).recovery()
    out.start("10:00:00", cluster=100).recovery()
    out.exit(1, "10:30:00", 100).start("11:00:00", cluster=102)
    dag = row(read_ensemble(DAG, out=out))
    assert (dag.dagmans, dag.submitted, dag.recoveries) == (2, 2, 2)
    assert dag.submissions == (moment("09:00:01"), moment("11:00:00"))


def test_refused_submission_is_reported(tmp_path: Path, capsys: Captured) -> None:
    log = begun(102, "09:10:00", begun(100, "09:00:00")).terminate(102, 1, at="09:10:00")
    (tmp_path / "run.dag").write_text(DAG)
    (tmp_path / "run.dag.dagman.log").write_bytes(log.data)
    text = text_output("status", capsys, tmp_path)
    assert "running  0 of 2 nodes done  1st submission  1 submission refused: another" in text
    (dag,) = json_output("status", capsys, tmp_path)["dags"]
    assert (dag["dagmans"], dag["refused"]) == (1, 1)


# --- DAGMan that does not run -------------------------------------------------------------


def test_held_dagman_is_alive_and_has_its_reason() -> None:
    log = begun(100, "09:00:00").evict(100, at="10:00:00").hold(100, reason="via condor_hold")
    out = Out().start("09:00:01", cluster=100).exit(3, "10:00:00", 100)
    result = read_ensemble(DAG, log, out=out)
    dag = row(result)
    assert (dag.state, dag.hold.reason) == (DagState.HELD, "via condor_hold")
    assert (dag.ended, result.derivation.is_unfinished()) == (None, True)
    assert exits(result, "failed") is exits(result, "all") is None
    assert exits(result, "held") is Exit.HELD
    removed = begun(100, "09:00:00").hold(100, at="10:00:00").remove(100)
    builder = read_ensemble(DAG, removed, out=out).builder()
    (entry,) = make_health(stats_input(builder)).open_entries
    assert (builder.status().dags[0].interrupted, entry.steps) == (True, (RECOVER,))
    log.release(100, at="11:00:00")
    assert row(read_ensemble(DAG, log, out=out)).state is DagState.RESTARTING
    log.execute(100, gpus=None, at="11:00:00")
    dag = row(read_ensemble(DAG, log, out=out))
    assert (dag.state, dag.hold, dag.dagmans) == (DagState.RUNNING, None, 1)


@pytest.mark.parametrize("logged", [True, False])
@pytest.mark.parametrize("status", [3, 11])  # 11: that of ABORT-DAG-ON
def test_exit_status_above_2_is_a_restart(logged: bool, status: int) -> None:
    log = begun(100, "09:00:00")
    out = Out().start("09:00:01", cluster=100).exit(status, "10:00:00", 100)
    if logged:
        log.evict(100, at="10:00:00")
    result = read_ensemble(DAG, log, out=out, metrics=metrics(3, exitcode=status))
    dag = row(result)
    assert (dag.state, dag.ended) == (DagState.RESTARTING, None)
    assert exits(result, "failed") is exits(result, "held") is None
    assert result.derivation.is_unfinished()
    log.execute(100, gpus=None, at="10:20:00")
    assert row(read_ensemble(DAG, log, out=out)).state is DagState.RUNNING
    out.start("10:20:01", cluster=100).recovery()
    dag = row(read_ensemble(DAG, out=out))
    assert (dag.state, dag.dagmans, dag.recoveries) == (DagState.RUNNING, 1, 1)


def test_jobstate_log_shows_a_restart() -> None:
    written = b"1777885201 INTERNAL *** DAGMAN_STARTED 100.0 ***\n"
    written += b"1777888800 INTERNAL *** DAGMAN_FINISHED 3 ***\n"
    assert row(read_ensemble(DAG, jobstate=written)).state is DagState.RUNNING
    written += b"1777888900 INTERNAL *** DAGMAN_STARTED 100.0 ***\n"
    assert row(read_ensemble(DAG, jobstate=written)).dagmans == 1
    written += b"1777889900 INTERNAL *** DAGMAN_FINISHED 0 ***\n"
    assert row(read_ensemble(DAG, jobstate=written)).state is DagState.DONE


@pytest.mark.parametrize(
    ("dag", "state"),
    [(DAG, DagState.REMOVED), (f"{DAG}ABORT-DAG-ON {EPOCH0} 2\n", DagState.FAILED)],
)
def test_removal_is_never_a_failure_while_files_are_written(dag: str, state: DagState) -> None:
    """DAGMan writes its end into the jobstate log before all others."""
    written = b"1777885201 INTERNAL *** DAGMAN_STARTED 100.0 ***\n"
    written += b"1777888800 INTERNAL *** DAGMAN_FINISHED 2 ***\n"
    out = Out().start("09:00:01", cluster=100)
    assert row(read_ensemble(dag, out=out, jobstate=written)).state is state


# --- ABORT-DAG-ON with a FINAL node -------------------------------------------------------


def metrics(status: int, cluster: int = 100, rescue: int = 0, exitcode: int = 0) -> bytes:
    return json.dumps(
        {
            "client": "condor_dagman",
            "version": "23.9.6",
            "start_time": 1777885201.0,
            "end_time": 1777888800.0,
            "exitcode": exitcode,
            "dagman_id": str(cluster),
            "rescue_dag_number": rescue,
            "DagStatus": status,
        }
    ).encode()


RESCUE = (
    "# Rescue DAG file, created after running the run.dag DAG file\n# Total number of Nodes: 2\n"
)


@pytest.mark.parametrize(
    ("status", "rescue", "expected"),
    [
        (3, RESCUE, DagState.FAILED),
        # ABORT-DAG-ON … RETURN 0: it is not to continue.
        (3, "", DagState.DONE),
        (0, RESCUE, DagState.DONE),
    ],
)
def test_aborted_dag_that_can_continue_is_not_done(
    status: int, rescue: str, expected: DagState
) -> None:
    log = begun(100, "09:00:00").terminate(100, 0, at="10:00:00")
    result = read_ensemble(DAG, log, metrics=metrics(status), rescue=rescue)
    assert row(result).state is expected


@pytest.mark.parametrize("rescue", [RESCUE, ""])
def test_dagmans_output_shows_the_abort(rescue: str) -> None:
    log = begun(100, "09:00:00").terminate(100, 0, at="10:00:00")
    out = Out().start("09:00:01", cluster=100)
    out.say("Aborting DAG because we got the ABORT exit value from a job", "09:59:00")
    out.exit(0, "10:00:00", 100)
    expected = DagState.FAILED if rescue else DagState.DONE
    assert row(read_ensemble(DAG, log, out=out, rescue=rescue)).state is expected


def test_metrics_of_an_older_life_are_ignored() -> None:
    log = begun(100, "09:00:00").terminate(100, 0, at="10:00:00")
    begun(102, "10:30:00", log).terminate(102, 0, at="10:40:00")
    assert row(read_ensemble(DAG, log, metrics=metrics(3), rescue=RESCUE)).state is DagState.DONE


# --- a real one ---------------------------------------------------------------------------


def test_real_held_dagman(shared: Shared, capsys: Captured) -> None:
    """condor_q said 138.0 H, "via condor_hold (by user researcher)", and both jobs went on."""
    path = shared("examples/pool-failures/c1-dagman-held")
    output = json_output("status", capsys, path, "--live")
    (dag,) = output["dags"]
    assert (dag["state"], dag["cluster"], dag["dagmans"]) == ("held", 138, 1)
    assert dag["hold"]["reason"] == "via condor_hold (by user researcher)"
    assert (dag["hold"]["code"], dag["ended"], output["live"]) == (1, None, True)
    text = text_output("status", capsys, path)
    assert "DAGMan held" in text
    assert "DAGMan is held (1 UserRequest): via condor_hold (by user researcher)" in text
    assert "release-dag" in text


# --- as a real pool wrote it (HTCondor 23.9.6) ----------------------------------------------


def test_released_dagman_runs_with_001_before_013() -> None:
    log = begun(64, "09:00:00").evict(64, at="09:00:02").hold(64, at="09:00:02")
    log.execute(64, gpus=None, at="09:00:05").release(64, at="09:00:05")
    out = Out().start("09:00:00", cluster=64)
    out.exit(3, "09:00:02", 64).start("09:00:05", cluster=64)
    assert row(read_ensemble(DAG, log, out=out), live=True).state is DagState.RUNNING


def test_second_dagman_that_recovers_leaves_the_first_running() -> None:
    """It could not see the process of the first one: it takes over, does not find its jobs in the
    queue, writes a rescue file, and exits with 1. The first one continues."""
    log = begun(40, "09:10:00", begun(38, "09:00:00")).terminate(40, 1, at="09:10:01")
    out = Out().start("09:00:00", cluster=38).start("09:10:00", cluster=40)
    out.say("Running in RECOVERY mode... >>>>>>>>>>>>>>>>>>>>>>>>>>>>>>", "09:10:00")
    lost = "DAGMan lost track of node A (ClusterId=39). Please resubmit DAG from produced rescue"
    out.say(f"ERROR: {lost} file.", "09:10:01")
    out.exit(1, "09:10:01", 40)
    jobstate = b"1777885200 INTERNAL *** DAGMAN_STARTED 38.0 ***\n"
    jobstate += b"1777885800 INTERNAL *** DAGMAN_STARTED 40.0 ***\n"
    jobstate += b"1777885801 INTERNAL *** DAGMAN_FINISHED 1 ***\n"
    result = read_ensemble(DAG, log, out=out, jobstate=jobstate)
    dag = row(result, live=True)
    assert (dag.state, dag.refused, dag.recoveries) == (DagState.RUNNING, 1, 0)
    assert not [notice for notice in result.builder(live=True).notices() if lost in notice.text]
