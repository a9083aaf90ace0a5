"""The state of a node from the DAG, DAGMan's files, its POST script and its jobs
(``metlmon/README.md``, "Node state"), with DONE, rescue files and restarts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, tzinfo

import pytest

from metlmon.config.settings import Settings
from metlmon.model.model_state import LogRole
from metlmon.model.states import DagState, State
from metlmon.snapshot.row_text import state_reason
from tests.support.event_logs import EnsembleReading, Log, Out, moment, read_ensemble

EPOCH0, EPOCH1, EPOCH2 = (f"run0-train_epoch{n}" for n in range(3))

CHAIN = f"""\
JOB {EPOCH0} train.sub
JOB {EPOCH1} train.sub
JOB {EPOCH2} train.sub
PARENT {EPOCH0} CHILD {EPOCH1}
PARENT {EPOCH1} CHILD {EPOCH2}
"""

RESCUE = """\
# Rescue DAG file, created after running
#   the run.dag DAG file
# Created 5/4/2026 20:00:00 UTC
# Rescue DAG version: 2.0.1 (partial)
#
# Total number of Nodes: 3
# Nodes premarked DONE: {count}
# Nodes that failed: 1
#   run0-train_epoch2,<ENDLIST>

{done}"""


def rescued(*nodes: str) -> str:
    done = "".join(f"DONE {node}\n" for node in nodes)
    return RESCUE.format(count=len(nodes), done=done)


def in_utc(at: str) -> int:
    return int(moment(at).replace(tzinfo=UTC).timestamp())


def states(report_of: EnsembleReading, live: bool = False) -> list[State]:
    return [report_of.node(name, live=live) for name in (EPOCH0, EPOCH1, EPOCH2)]


# --- by its jobs --------------------------------------------------------------------------


def test_late_events_of_a_superseded_job_are_ignored() -> None:
    log = Log().submit(77, EPOCH0).execute(77).submit(78, EPOCH0).execute(78)
    log.transfer(77, "started output").evict(77).remove(77)
    result = read_ensemble(CHAIN, log)
    assert result.node(EPOCH0) is State.RUNNING
    assert result.job(77).state is State.REMOVED
    assert result.builder().status().node_states[State.RUNNING] == 1


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (["terminate", "execute", "execute"], State.RUNNING),
        (["terminate", "execute", "hold"], State.HELD),
        (["terminate", "execute", ""], State.IDLE),
        (["terminate", "terminate", "execute"], State.RUNNING),
        (["terminate", "terminate", "terminate"], State.COMPLETED),
        (["fail", "terminate", "execute"], State.RUNNING),
        (["terminate", "fail", "terminate"], State.FAILED),
        (["terminate", "remove", "terminate"], State.REMOVED),
    ],
)
def test_worst_open_proc_of_a_node_counts(ends: list[str], expected: State) -> None:
    log = Log()
    for proc in range(3):
        log.submit((77, proc), EPOCH0)
    for proc, end in enumerate(ends):
        job = (77, proc)
        if end in ("terminate", "fail", "execute"):
            log.execute(job)
        if end in ("terminate", "fail"):
            log.terminate(job, 0 if end == "terminate" else 1)
        elif end in ("hold", "remove"):
            getattr(log, end)(job)
    assert read_ensemble(CHAIN, log).node(EPOCH0) is expected


# --- DONE ---------------------------------------------------------------------------------


def test_done_in_the_dag_file() -> None:
    result = read_ensemble(CHAIN.replace(f"JOB {EPOCH0} train.sub", f"JOB {EPOCH0} train.sub DONE"))
    assert states(result) == [State.COMPLETED, State.WAITING, State.WAITING]
    assert not result.node_state(EPOCH0).inferred


def test_done_in_a_rescue_file() -> None:
    """It wins over a job that failed."""
    log = Log().submit(77, EPOCH0).execute(77).terminate(77, 1)
    assert read_ensemble(CHAIN, log, rescue=rescued(EPOCH0)).node(EPOCH0) is State.COMPLETED
    result = read_ensemble(CHAIN, rescue=rescued(EPOCH0, EPOCH1))
    assert states(result) == [State.COMPLETED, State.COMPLETED, State.UNKNOWN]
    (dag,) = result.builder().status().dags
    assert (dag.rescue, dag.nodes_done) == (1, 2)


def test_parent_of_a_submitted_node_is_done() -> None:
    result = read_ensemble(CHAIN, Log().submit(99, EPOCH2))
    assert states(result) == [State.COMPLETED, State.COMPLETED, State.IDLE]
    assert result.node_state(EPOCH0).inferred
    assert result.node_state(EPOCH1).inferred
    run = result.run("run0")
    assert (run.epochs_done, run.epochs_inferred, run.epochs_total) == (2, 2, 3)
    (dag,) = result.builder().status().dags
    assert dag.nodes_done == 2


def test_lost_end_is_inferred_from_the_child() -> None:
    log = Log().submit(77, EPOCH0).execute(77).submit(78, EPOCH1)
    result = read_ensemble(CHAIN, log)
    state = result.node_state(EPOCH0)
    assert (state.state, state.inferred) == (State.COMPLETED, True)
    assert result.job(77).state is State.UNKNOWN


@pytest.mark.parametrize("post", [False, True])
def test_job_with_a_lost_end_left_before_the_child_was_submitted(post: bool) -> None:
    """Whether it succeeded or a POST script overruled it, the log does not say."""
    dag = CHAIN + f"SCRIPT POST {EPOCH0} p.sh\n" * post
    log = Log().submit(77, EPOCH0, at="10:00:00").execute(77, gpus=2, at="11:00:00")
    log.submit(78, EPOCH1, at="13:00:00").terminate(78, 1, at="13:30:00")
    log.submit(79, EPOCH1, at="14:00:00").execute(79, gpus=2, at="15:00:00")
    result = read_ensemble({"run.dag": dag}, log.image(79, 9, at="18:00:00"))
    status = result.builder().status()
    assert (status.jobs_queued, status.jobs_running) == (1, 1)
    hours = status.hours
    expected = (0.0, 4.0, 6.0) if post else (4.0, 0.0, 6.0)
    assert (hours.goodput, hours.badput, hours.running) == expected
    (execution,) = result.job(77).executions
    assert execution.uncertain


def test_job_whose_child_waited_for_others_may_have_ended_long_before() -> None:
    dag = f"JOB {EPOCH0} t.sub\nJOB other o.sub\nJOB all a.sub\nPARENT {EPOCH0} other CHILD all\n"
    log = Log().submit(77, EPOCH0, at="10:00:00").execute(77, at="11:00:00")
    hours = read_ensemble(dag, log.submit(78, "all", at="20:00:00")).builder().status().hours
    assert (hours.goodput, hours.badput, hours.running) == (0.0, 9.0, 0.0)


def test_job_is_over_once_the_child_was_submitted_unless_it_is_logged_later() -> None:
    log = Log().submit(77, EPOCH0).execute(77).hold(77, 34).submit(78, EPOCH1)
    held = read_ensemble(CHAIN, log).job(77)
    assert (held.state, held.holds[0].end) == (State.UNKNOWN, log.clock)
    log = Log().submit(77, EPOCH0).execute(77).submit(78, EPOCH1).image(77, 9)
    assert read_ensemble(CHAIN, log).job(77).state is State.RUNNING


def test_end_of_a_weak_parent_is_not_inferred() -> None:
    dag = f"JOB {EPOCH0} t.sub\nJOB report r.sub\nWEAK PARENT {EPOCH0} CHILD report\n"
    log = Log().submit(77, EPOCH0).execute(77).terminate(77, 1).submit(78, "report")
    assert read_ensemble(dag, log).node(EPOCH0) is State.FAILED
    assert read_ensemble(dag.replace("WEAK ", ""), log).node(EPOCH0) is State.COMPLETED


def test_node_older_than_its_parents_resubmission_is_superseded() -> None:
    """The user removed the DAG and restarted from the first epoch."""
    log = Log().submit(77, EPOCH0).execute(77).terminate(77).submit(78, EPOCH1).execute(78)
    log.terminate(78).submit(90, EPOCH0).execute(90)
    result = read_ensemble(CHAIN, log)
    assert states(result) == [State.RUNNING, State.WAITING, State.WAITING]
    run = result.run("run0")
    assert (run.latest.epoch, run.latest.cluster, run.epochs_done) == (0, 90, 0)
    # Its hours still count.
    assert run.hours.goodput > 0


def test_join_node_is_done_with_its_parents() -> None:
    """More than a few parents and children are connected by a node without a job."""
    parents = [f"run{n}-train_epoch0" for n in range(4)]
    children = [f"run{n}-train_epoch1" for n in range(4)]
    dag = "".join(f"JOB {name} t.sub\n" for name in (*parents, *children))
    dag += f"PARENT {' '.join(parents)} CHILD {' '.join(children)}\n"
    log = Log()
    for cluster, name in enumerate(parents, start=1):
        log.submit(cluster, name).execute(cluster).terminate(cluster)
    result = read_ensemble(dag, log)
    joins = [n for n in result.ensemble.dags["run.dag"].workflow.nodes if "join" in n]
    assert joins
    assert [result.node(name) for name in joins] == [State.COMPLETED]
    assert result.builder().status().dags[0].nodes_done == 5


# --- PRE, POST, PRE_SKIP ------------------------------------------------------------------

SCRIPTED = f"""\
JOB {EPOCH0} train.sub
SCRIPT PRE {EPOCH0} pre.sh
SCRIPT POST {EPOCH0} post.sh
PRE_SKIP {EPOCH0} 2
JOB {EPOCH1} train.sub
PARENT {EPOCH0} CHILD {EPOCH1}
"""

TWO_RETRIES = f"JOB {EPOCH0} train.sub\nRETRY {EPOCH0} 2\n"

NODES_LOG = ("run.dag.nodes.log", LogRole.NODES, "run.dag")
SKIPS = f"PRE_SKIP return value 2 indicates we are done (successfully) with node {EPOCH0}"


@pytest.mark.parametrize(
    ("job_code", "post_code", "expected"),
    [(1, 0, State.COMPLETED), (0, 1, State.FAILED), (0, 0, State.COMPLETED), (1, 1, State.FAILED)],
)
def test_post_script_decides_whatever_the_job_returned(
    job_code: int, post_code: int, expected: State
) -> None:
    log = Log(*NODES_LOG).submit(77, EPOCH0).execute(77).terminate(77, job_code)
    result = read_ensemble(SCRIPTED, log.post(77, EPOCH0, post_code))
    assert result.node(EPOCH0) is expected
    job_state = State.COMPLETED if job_code == 0 else State.FAILED
    assert result.job(77).state is job_state


def test_post_script_of_an_earlier_submission_is_ignored() -> None:
    log = Log(*NODES_LOG).submit(77, EPOCH0).execute(77).terminate(77, 1).post(77, EPOCH0, 1)
    assert read_ensemble(SCRIPTED, log.submit(78, EPOCH0).execute(78)).node(EPOCH0) is State.RUNNING
    log.terminate(78, 0)
    assert read_ensemble(SCRIPTED, log).node(EPOCH0) is State.UNKNOWN
    assert read_ensemble(SCRIPTED, log.post(78, EPOCH0)).node(EPOCH0) is State.COMPLETED


@pytest.mark.parametrize(
    ("reports", "state"),
    [
        pytest.param(["Running POST script of Node {}..."], State.WAITING, id="interrupted"),
        pytest.param(["ULOG_JOB_TERMINATED"], State.WAITING, id="not begun"),
        pytest.param(["POST Script of node {} completed successfully."], State.COMPLETED, id="ok"),
        pytest.param(["POST Script of node {} failed with status 3"], State.FAILED, id="failed"),
    ],
)
def test_dagman_ended_before_a_post_script_did(reports: list[str], state: State) -> None:
    """The next DAGMan runs a node again whose job alone has succeeded."""
    log = Log().submit(77, EPOCH0, at="10:00:00").execute(77).terminate(77, at="10:30:00")
    out = Out().start().submitted(EPOCH0, 77, at="10:00:00")
    for report in reports:
        out.say(report.format(EPOCH0), at="10:30:00")
    out.say("Received SIGUSR1", at="10:31:00").exit(2)
    row = read_ensemble(SCRIPTED, log, out=out).builder().node_row(("run.dag", EPOCH0))
    assert row.state is state
    assert ("POST script" in state_reason(row)) is (state is not State.COMPLETED)


@pytest.mark.parametrize(
    ("ended", "state"),
    [("10:30:00", State.FAILED), ("20:30:00", State.COMPLETED)],
    ids=["before it", "after it"],
)
def test_rescue_file_says_that_a_node_with_a_good_job_failed(ended: str, state: State) -> None:
    """No other file of DAGMan is here: its POST script failed."""
    log = Log().submit(77, EPOCH2, at="10:00:00").execute(77).terminate(77, at=ended)
    dag = f"{CHAIN}SCRIPT POST {EPOCH2} post.sh\n"
    result = read_ensemble(dag, log, rescue=rescued(EPOCH0, EPOCH1), settings=Settings(zone=UTC))
    assert result.node(EPOCH2) is state


def test_post_script_after_a_failed_submission() -> None:
    """``(-01.000.000)``"""
    log = Log(*NODES_LOG).post((-1, 0), EPOCH0, 4)
    assert log.data.startswith(b"016 (-01.000.000)")
    result = read_ensemble(SCRIPTED, log)
    assert result.node(EPOCH0) is State.FAILED
    assert result.builder().job_rows() == []


@pytest.mark.parametrize("reported_by", ["log", "out"])
def test_done_node_ended_with_its_post_script(reported_by: str) -> None:
    """Which overruled its job; DAGMan then failed elsewhere, or starts again: no nodes.log."""
    log = Log().submit(77, EPOCH0, at="09:00:00").execute(77).terminate(77, 1, at="10:00:00")
    out = Out().start(at="08:59:00").submitted(EPOCH0, 77, at="09:00:00")
    if reported_by == "log":
        log.post(77, EPOCH0, at="10:05:00")
    else:
        out.say(f"POST Script of node {EPOCH0} completed successfully.", at="10:05:00")
    result = read_ensemble(SCRIPTED, log, out=out.exit(1, at="11:00:00"), rescue=rescued(EPOCH0))
    epoch = next(each for each in result.builder().ledger().epochs if each.node == EPOCH0)
    assert (epoch.state, epoch.completed) == (State.COMPLETED, moment("10:05:00"))


def test_pre_skip_ends_a_node_without_a_job() -> None:
    log = Log(*NODES_LOG).pre_skip(EPOCH0)
    line = b"1777903200 run0-train_epoch0 PRESKIP 0.2147483647 - - 1\n"
    in_rescue_file = read_ensemble(SCRIPTED, log, rescue=rescued(EPOCH0))
    by_log, by_jobstate = read_ensemble(SCRIPTED, log), read_ensemble(SCRIPTED, jobstate=line)
    for result in (by_log, by_jobstate, in_rescue_file):
        assert result.node(EPOCH0) is State.SKIPPED
        run, (dag,) = result.run("run0"), result.builder().status().dags
        assert (run.epochs_done, run.epochs_skipped, dag.nodes_done) == (0, 1, 1)
        assert result.builder().job_rows() == []
    log.submit(77, EPOCH0).execute(77)
    assert read_ensemble(SCRIPTED, log).node(EPOCH0) is State.RUNNING


def test_skip_known_from_an_older_file_is_kept() -> None:
    """The rescue file says DONE, DAGMan reported the node again, and nodes.log is gone."""
    out = Out().start().say(SKIPS, at="10:00:00")
    out.say(f"Running PRE script of Node {EPOCH0}...", at="10:30:00")
    result = read_ensemble(SCRIPTED, out=out, rescue=rescued(EPOCH0))
    state = result.node_state(EPOCH0)
    assert (state.state, state.since) == (State.SKIPPED, moment("10:00:00"))


@pytest.mark.parametrize("reported_by", ["out", "jobstate"])
def test_job_cut_before_the_skip_does_not_complete_the_node(reported_by: str) -> None:
    """``stop-now``: the job is removed, the gate skips its retry; then the DAG is removed and
    submitted again. DAGMan truncates nodes.log, and its rescue file says DONE."""
    log = Log().submit(77, EPOCH0, at="10:00:00").execute(77).remove(77, at="10:20:00")
    out = Out().start(at="09:59:00").submitted(EPOCH0, 77, at="10:00:00")
    jobstate = b""
    if reported_by == "out":
        out.say(f"Retrying node {EPOCH0} (retry #1 of 2)...", at="10:20:05")
        out.say(f"PRE Script of Job {EPOCH0} failed with status 2", at="10:20:06")
        out.say(SKIPS, at="10:20:06")
    else:
        jobstate = (
            b"1777903200 INTERNAL *** DAGMAN_STARTED 60.0 ***\n"
            b"1777903201 run0-train_epoch0 SUBMIT 77.0 - - 1\n"
            b"1777904406 run0-train_epoch0 PRESKIP 0.2147483647 - - 2\n"
        )
    out.say("Received SIGUSR1", at="10:30:00").exit(2)
    out.start(at="10:40:00", done=1)
    result = read_ensemble(SCRIPTED, log, out=out, rescue=rescued(EPOCH0), jobstate=jobstate)
    assert result.node_state(EPOCH0, live=True).state is State.SKIPPED
    run = result.run("run0")
    assert (run.epochs_done, run.epochs_skipped) == (0, 1)
    out.submitted(EPOCH1, 80, at="10:41:00")
    result = read_ensemble(SCRIPTED, log, out=out, rescue=rescued(EPOCH0), jobstate=jobstate)
    assert result.node(EPOCH0, live=True) is State.SKIPPED


class Recovery:
    """The lines of a ``.dagman.out`` in which DAGMan reads the events of nodes.log again."""

    def __init__(self, out: Out, at: str) -> None:
        self._out = out.exit(3).start(at=at).recovery()
        self._at = at

    def say(self, message: str) -> None:
        self._out.say(message, at=self._at)

    def event(self, name: str, job: str, at: str) -> None:
        when = f"{moment(at):%m/%d/%y %H:%M:%S}"
        self.say(
            f"Event: ULOG_{name} for HTCondor Node {EPOCH0} ({job}) {{{when}}} [recovery mode]"
        )

    def first_try(self, end: str) -> None:
        """Job 77, which was removed or failed at 10:20, and the search for a retry."""
        self.event("SUBMIT", "77.0.0", "10:00:00")
        self.event("JOB_ABORTED" if end == "removed" else "JOB_TERMINATED", "77.0.0", "10:20:00")
        self.say("Number of idle job procs: 0")
        if end == "failed":
            self.say(f"Node {EPOCH0} job proc (77.0.0) failed with status 1.")
        self.say(f"Looking for retry of node {EPOCH0} (retry #1 of 2)...")


def first_try(end: str) -> tuple[Log, Out]:
    """What nodes.log and DAGMan say of job 77, which was removed or failed at 10:20."""
    log = Log(*NODES_LOG).submit(77, EPOCH0, at="10:00:00").execute(77)
    log = log.remove(77, at="10:20:00") if end == "removed" else log.terminate(77, 1, at="10:20:00")
    out = Out().start(at="09:59:00").submitted(EPOCH0, 77, at="10:00:00")
    return log, out.say(f"Retrying node {EPOCH0} (retry #1 of 2)...", at="10:20:05")


@pytest.mark.parametrize("end", ["removed", "failed"])
def test_recovery_keeps_the_skip_of_a_job_that_was_cut(end: str) -> None:
    """``stop-now``, then DAGMan is held and released."""
    log, out = first_try(end)
    log.pre_skip(EPOCH0, at="10:20:06")
    out.say(SKIPS, at="10:20:06")
    recovery = Recovery(out, "10:40:00")
    recovery.first_try(end)
    recovery.event("PRESKIP", "0.2147483647.1", "10:20:06")
    result = read_ensemble(SCRIPTED, log, out=out)
    state = result.node_state(EPOCH0, live=True)
    assert (state.state, state.since) == (State.SKIPPED, moment("10:20:06"))


@pytest.mark.parametrize("end", ["removed", "failed"])
def test_recovery_repeats_the_end_of_an_earlier_try(end: str) -> None:
    log, out = first_try(end)
    log.submit(78, EPOCH0, at="10:20:10").execute(78, at="10:20:20")
    out.submitted(EPOCH0, 78, at="10:20:10")
    recovery = Recovery(out, "10:40:00")
    recovery.first_try(end)
    recovery.event("SUBMIT", "78.0.0", "10:20:10")
    recovery.say("...done with RECOVERY mode <<<<<<<<<<<<<<<")
    state = read_ensemble(TWO_RETRIES, log, out=out).node_state(EPOCH0, live=True)
    assert (state.state, state.since) == (State.RUNNING, moment("10:20:20"))
    assert state.failure is None


def test_skip_in_an_older_life_needs_done() -> None:
    out = Out().start(at="09:59:00").say(SKIPS, at="10:20:06").exit(1).start(at="10:40:00")
    result = read_ensemble(SCRIPTED, Log(*NODES_LOG).pre_skip(EPOCH0, at="10:20:06"), out=out)
    assert result.node(EPOCH0, live=True) is State.WAITING
    out.say(f"Running PRE script of Node {EPOCH0}...", at="10:41:00")
    result = read_ensemble(SCRIPTED, Log(*NODES_LOG).pre_skip(EPOCH0, at="10:20:06"), out=out)
    assert result.node(EPOCH0, live=True) is State.PRE


def test_running_scripts_give_the_state() -> None:
    out = Out().start().say(f"Running PRE script of Node {EPOCH0}...")
    assert read_ensemble(SCRIPTED, out=out).node(EPOCH0) is State.PRE
    out.say(f"PRE Script of Node {EPOCH0} completed successfully.")
    out.submitted(EPOCH0, 77, at="10:10:00")
    log = Log(*NODES_LOG).submit(77, EPOCH0, at="10:09:00").execute(77).terminate(77, at="10:30:00")
    assert read_ensemble(SCRIPTED, log, out=out).node(EPOCH0) is State.POST, "the script comes next"
    out.say(f"Running POST script of Node {EPOCH0}...", at="10:30:00")
    assert read_ensemble(SCRIPTED, log, out=out).node(EPOCH0) is State.POST
    log.post(77, EPOCH0, 0, at="10:31:00")
    assert read_ensemble(SCRIPTED, log, out=out).node(EPOCH0) is State.COMPLETED


@pytest.mark.parametrize("code", [0, 1])
def test_node_is_open_until_its_post_script_ends(code: int) -> None:
    dag = SCRIPTED + f"RETRY {EPOCH0} 2\n"
    log = Log(*NODES_LOG).submit(77, EPOCH0).execute(77).terminate(77, code, at="10:30:00")
    out = Out().start().submitted(EPOCH0, 77, at="09:59:00")
    state = read_ensemble(dag, log, out=out).node_state(EPOCH0)
    assert (state.state, state.since) == (State.POST, moment("10:30:00"))
    assert read_ensemble(dag, log).node(EPOCH0) is not State.POST, "no DAGMan has logged anything"
    out.exit(1, at="10:40:00")
    assert read_ensemble(dag, log, out=out).node(EPOCH0) is not State.POST, (
        "nobody runs it any more"
    )


def test_pre_script_of_a_dead_dagman() -> None:
    runs, fails = Out().start(), Out().start()
    runs.say(f"Running PRE script of Node {EPOCH0}...").exit(1)
    assert read_ensemble(SCRIPTED, out=runs).node(EPOCH0) is State.WAITING
    fails.say(f"PRE Script of Node {EPOCH0} failed with status 9").exit(1)
    assert read_ensemble(SCRIPTED, out=fails).node(EPOCH0) is State.FAILED


# --- RETRY --------------------------------------------------------------------------------

RETRIED = f"JOB {EPOCH0} train.sub\nRETRY {EPOCH0} 2 UNLESS-EXIT 42\n"


def failed(times: int, code: int = 1) -> Log:
    log = Log()
    for cluster in range(77, 77 + times):
        log.submit(cluster, EPOCH0).execute(cluster).terminate(cluster, code)
    return log


ALIVE, DEAD = (lambda: Out().start(at="09:00:00")), (lambda: ALIVE().exit(1, at="23:00:00"))


@pytest.mark.parametrize(
    ("dag", "log", "out", "expected"),
    [
        (RETRIED, failed(1), ALIVE, State.RETRYING),
        (RETRIED, failed(2), ALIVE, State.RETRYING),
        (RETRIED, failed(3), ALIVE, State.FAILED),
        (RETRIED, failed(1), Out, State.FAILED),
        (RETRIED, failed(1), DEAD, State.FAILED),
        (CHAIN, failed(1), ALIVE, State.FAILED),
        # UNLESS-EXIT.
        (RETRIED, failed(1, code=42), ALIVE, State.FAILED),
        # A rescue DAG starts with all retries.
        (
            RETRIED,
            failed(3).submit(90, EPOCH0, at="13:01:00").execute(90).terminate(90, 1),
            lambda: ALIVE().exit(1, at="12:00:00").start(at="13:00:00"),
            State.RETRYING,
        ),
        (RETRIED, Log().submit(77, EPOCH0).remove(77), ALIVE, State.RETRYING),
        (RETRIED, Log().submit(77, EPOCH0).remove(77), Out, State.REMOVED),
        (
            RETRIED,
            Log()
            .submit(77, EPOCH0)
            .remove(77, "removed because DAGManJobId =?= 900 by the schedd"),
            ALIVE,
            State.REMOVED,
        ),
    ],
)
def test_live_dag_retries_a_node_with_retries_left(
    dag: str, log: Log, out: Callable[[], Out], expected: State
) -> None:
    assert read_ensemble(dag, log, out=out()).node(EPOCH0) is expected


def test_live_ensemble_may_retry_without_files_of_dagman() -> None:
    assert read_ensemble(RETRIED, failed(1)).node(EPOCH0, live=True) is State.RETRYING


def test_last_retry_started_but_not_submitted() -> None:
    log = Log().submit(77, EPOCH0, at="10:00:00").execute(77).terminate(77, 1, at="11:00:00")
    epoch = in_utc("11:00:00")
    jobstate = (
        f"{epoch - 3600} {EPOCH0} SUBMIT 77.0 - - 1\n{epoch} {EPOCH0} JOB_FAILURE 1 - - 1\n"
    ).encode()
    once = f"JOB {EPOCH0} train.sub\nRETRY {EPOCH0} 1\n"
    out = Out().start(at="09:00:00").submitted(EPOCH0, 77, at="10:00:00")
    out.say(f"Retrying node {EPOCH0} (retry #1 of 1)...", at="11:00:00")
    assert read_ensemble(once, log, out=out, jobstate=jobstate).node(EPOCH0) is State.RETRYING
    log.submit(78, EPOCH0).execute(78).terminate(78, 1)
    assert read_ensemble(once, log, out=out, jobstate=jobstate).node(EPOCH0) is State.FAILED


# --- DAGMan's files -----------------------------------------------------------------------


def status_file(node_status: int, when: str, dag_status: int = 3) -> bytes:
    then = moment(when)
    epoch = int((then - moment("1970-01-01 00:00:00")).total_seconds()) + 5 * 3600
    return f"""[
  Type = "DagStatus";
  DagFiles = {{
    "run.dag"
  }};
  Timestamp = {epoch}; /* "{then:%a %b} {then.day:2d} {then:%H:%M:%S %Y}" */
  DagStatus = {dag_status}; /* "STATUS_SUBMITTED ()" */
  NodesTotal = 3;
]
[
  Type = "NodeStatus";
  Node = "{EPOCH0}";
  NodeStatus = {node_status}; /* "STATUS_…" */
  StatusDetails = "";
  RetryCount = 0;
]
""".encode()


def test_newer_node_status_file_counts() -> None:
    log = Log().submit(77, EPOCH0).execute(77).terminate(77, 1, at="11:00:00")
    older, newer = status_file(5, "10:30:00"), status_file(5, "11:00:30")
    assert read_ensemble(CHAIN, log, status=older).node(EPOCH0) is State.FAILED
    assert read_ensemble(CHAIN, log, status=newer).node(EPOCH0) is State.COMPLETED


def test_status_file_has_done_nodes_without_logs() -> None:
    assert read_ensemble(CHAIN, status=status_file(5, "11:00:00")).node(EPOCH0) is State.COMPLETED
    assert read_ensemble(CHAIN, status=status_file(6, "11:00:00")).node(EPOCH0) is State.FAILED
    assert read_ensemble(CHAIN, status=status_file(2, "11:00:00")).node(EPOCH0) is State.PRE
    assert read_ensemble(CHAIN, status=status_file(1, "11:00:00")).node(EPOCH0) is State.WAITING


def test_removal_of_dagman_does_not_fail_running_nodes() -> None:
    """At its removal DAGMan writes running nodes as ERROR; their jobs have the true state."""
    log = Log().submit(77, EPOCH0).execute(77).remove(77, at="11:00:00")
    result = read_ensemble(CHAIN, log, status=status_file(6, "11:00:01", dag_status=6))
    assert result.node(EPOCH0) is State.REMOVED


def test_jobstate_log_has_nodes_that_the_job_log_lost() -> None:
    lines = (
        b"1777903200 run0-train_epoch0 SUBMIT 77.0 - - 1\n"
        b"1777903260 run0-train_epoch0 EXECUTE 77.0 - - 1\n"
        b"1777904260 run0-train_epoch0 JOB_TERMINATED 77.0 - - 1\n"
        b"1777904260 run0-train_epoch0 JOB_SUCCESS 0 - - 1\n"
    )
    assert read_ensemble(CHAIN, jobstate=lines).node(EPOCH0) is State.COMPLETED


# --- lives of a DAG -----------------------------------------------------------------------


def test_fresh_start_voids_old_failures() -> None:
    """The DAG was removed and submitted again; its rescue file has only epoch 0."""
    log = Log().submit(77, EPOCH0).execute(77).terminate(77, 0, at="10:30:00")
    log.submit(78, EPOCH1).execute(78).terminate(78, 1, at="11:00:00")
    out = Out().start(at="09:00:00").exit(1, at="11:00:10").start(at="12:00:00", done=1)
    result = read_ensemble(CHAIN, log, out=out, rescue=rescued(EPOCH0))
    assert states(result) == [State.COMPLETED, State.WAITING, State.WAITING]
    (dag,) = result.builder().status().dags
    assert (dag.state, dag.dagmans) == (DagState.RUNNING, 2)
    assert dag.submissions == (moment("09:00:00"), moment("12:00:00"))


def test_recovery_voids_no_failure() -> None:
    log = Log().submit(77, EPOCH0).execute(77)
    out = Out().start(at="09:00:00").start(at="12:00:00").recovery()
    assert read_ensemble(CHAIN, log, out=out).node(EPOCH0) is State.RUNNING


ENDED = (
    f"{in_utc('09:00:01')} INTERNAL *** DAGMAN_STARTED 900.0 ***\n"
    f"{in_utc('10:00:00')} INTERNAL *** DAGMAN_FINISHED 1 ***\n"
).encode()


@pytest.mark.parametrize(
    ("again", "written", "zone"),
    [
        pytest.param("10:00:00", b"", None, id="in the second of its removal"),
        pytest.param("10:00:01", ENDED, None, id="its end is in the jobstate log"),
        pytest.param("10:00:01", ENDED, UTC, id="and the zone is known"),
    ],
)
def test_resubmitted_dag_runs(again: str, written: bytes, zone: tzinfo | None) -> None:
    """The next DAGMan is idle, and has written no file yet."""
    log = Log("run.dag.dagman.log", LogRole.DAGMAN, "run.dag")
    log.submit(900, at="09:00:00").execute(900, gpus=None, at="09:00:01")
    log.remove(900, at="10:00:00").submit(901, at=again)
    out = Out().start(at="09:00:01").exit(1, at="10:00:00")
    result = read_ensemble(CHAIN, log, out=out, jobstate=written, settings=Settings(zone=zone))
    (dag,) = result.builder().status().dags
    assert (dag.state, dag.cluster) == (DagState.RUNNING, 901)


def test_dag_is_unsubmitted_before_its_first_dagman() -> None:
    """The jobstate log has seconds since 1970: as-of limits it, too."""
    written = f"{in_utc('09:00:00')} INTERNAL *** DAGMAN_STARTED 900.0 ***\n".encode()
    out = Out().start(at="09:00:00")
    given = Settings(zone=UTC)
    for cut, expected in (("08:59:59", DagState.NOT_SUBMITTED), ("09:00:00", DagState.RUNNING)):
        result = read_ensemble(CHAIN, out=out, jobstate=written, cut=cut, settings=given)
        (dag,) = result.builder().status().dags
        assert (dag.state, len(dag.submissions)) == (expected, expected is DagState.RUNNING)


def test_dag_without_any_information() -> None:
    (dag,) = read_ensemble(CHAIN).builder().status().dags
    assert (dag.state, dag.dagmans, dag.submissions) == (DagState.NOT_SUBMITTED, None, ())
    (dag,) = read_ensemble(CHAIN, Log().submit(77, EPOCH0)).builder().status().dags
    assert (dag.state, dag.dagmans) == (DagState.UNKNOWN, None)
    log = Log()
    for cluster, name in enumerate((EPOCH0, EPOCH1, EPOCH2), start=1):
        log.submit(cluster, name).execute(cluster).terminate(cluster)
    (dag,) = read_ensemble(CHAIN, log).builder().status().dags
    assert dag.state is DagState.DONE


def test_dagman_that_refused_its_dag_has_the_reason() -> None:
    out = Out().say("** condor_dagman (CONDOR_DAGMAN) STARTING UP", "09:36:49")
    out.say("ERROR: job 0.ALL_NODES not found!", "09:36:49").exit(1, "09:36:49")
    result = read_ensemble("JOB run0-train_epoch0 t.sub\n", out=out)
    (notice,) = result.builder().notices()
    assert (notice.kind, notice.file) == ("dagman-error", "run.dag.dagman.out")
    assert "job 0.ALL_NODES not found!" in notice.text
    listed = Out().start("09:00:00").say("ERROR: the following job(s) failed:", "10:00:00")
    listed.exit(1, "10:00:00")
    assert not list(read_ensemble(CHAIN, out=listed).builder().notices())


def test_dagman_restarted_without_its_log_is_reported() -> None:
    text = "ERROR: log file run.dag.nodes.log has been deleted. Aborting."
    again = Out().start("09:00:00").say(text, "09:30:00").start("09:30:01")
    (notice,) = read_ensemble(CHAIN, out=again).builder(live=True).notices()
    assert (notice.kind, notice.text) == ("dagman-error", f"DAGMan: {text[7:]}")
    other = Out().start("09:00:00").say("ERROR: a PRE script", "09:30:00").start("09:30:01")
    assert not list(read_ensemble(CHAIN, out=other).builder(live=True).notices())


def test_two_queued_submissions_of_a_node_are_reported() -> None:
    log = Log(*NODES_LOG)
    log.submit(7, EPOCH0).execute(7).submit(9, EPOCH0).execute(9)
    (notice,) = read_ensemble(CHAIN, log).builder(live=True).notices()
    assert notice.kind == "doubled-node"
    assert f"{EPOCH0} has jobs of 2 submissions in the queue by their logs, 7, 9:" in notice.text
    assert not list(read_ensemble(CHAIN, log).builder().notices()), (
        "nobody can do anything any more"
    )
    log.terminate(7)
    assert not list(read_ensemble(CHAIN, log).builder(live=True).notices())
    several = Log().submit((7, 0), EPOCH0).submit((7, 1), EPOCH0)
    assert not list(read_ensemble(CHAIN, several).builder(live=True).notices()), "of one submission"
