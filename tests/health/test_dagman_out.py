"""Facts that only ``.dagman.out`` has: of jobs, of DAGMan itself, and of errors."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from metlmon.cli import Exit
from metlmon.dagman.dagman_out import HALTED
from metlmon.health.advice import RESUBMIT
from metlmon.health.build import make_health
from metlmon.health.nodes import PROVISIONER_IS_DONE, PROVISIONER_LINE
from metlmon.health.types import UNLOGGED, Health, Severity
from metlmon.model.job import JobHistory
from metlmon.model.states import DagState, Outcome, State
from metlmon.snapshot.builder import SnapshotBuilder
from tests.conftest import Shared
from tests.health.ensembles import EventLog, kinds, only, write
from tests.support.commands import Captured, run_command
from tests.support.dagdir_builder import Dagdir, again
from tests.support.event_logs import Log
from tests.support.records import read_dagdir, stats_input

DAY = "03/05/23"
ONE_HOUR = timedelta(hours=1)


def health_of(builder: SnapshotBuilder) -> Health:
    return make_health(stats_input(builder))


def out_of(*lines: str, cluster: int = 103) -> str:
    """A ``.dagman.out``; each line begins with its time, or is the next line of a message."""
    start = f"{DAY} 09:10:40 ** condor_scheduniv_exec.{cluster}.0 (CONDOR_DAGMAN) STARTING UP"
    begun = f"{DAY} 09:10:40 Number of pre-completed nodes: 0"
    body = [f"{DAY} {line}" if line[2:3] == ":" else line for line in lines]
    return "\n".join([start, begun, *body]) + "\n"


def submitted(node: str, cluster: int, at: str = "09:10:47") -> tuple[str, ...]:
    return (
        f"{at} Submitting HTCondor Node {node} job(s)...",
        f"{at} \tassigned HTCondor ID ({cluster}.0.0)",
        f"{at} Event: ULOG_SUBMIT for HTCondor Node {node} ({cluster}.0.0) {{{DAY} {at}}}",
    )


def event(name: str, node: str, cluster: int, at: str) -> str:
    return f"{at} Event: ULOG_{name} for HTCondor Node {node} ({cluster}.0.0) {{{DAY} {at}}}"


def begun() -> EventLog:
    """Node a is executed as job 101."""
    log = EventLog(datetime(2023, 3, 5, 9, 10, 47))
    log.execute(log.submit("a"))
    return log


def dagdir(path: Path, dag: str, *lines: str) -> Dagdir:
    made = Dagdir(path, dag)
    made.write("run.dag.dagman.out", out_of(*lines))
    return made


ONE = "JOB a a.sub\nJOB b a.sub\nPARENT a CHILD b\n"


# --- events of jobs that no log here has ------------------------------------------------------


def test_hold_known_from_dagman_out_only(shared: Shared) -> None:
    health = health_of(read_dagdir(shared("cases/held-only-in-dagman-out"), live=False))

    held = only(health, "held")
    assert held.since == datetime(2023, 3, 5, 9, 11, 22)
    assert held.text == "output file missing"
    assert held.jobs == ((106, 0),)
    assert "(errno 2) No such file or directory" in (held.reason or "")


@pytest.mark.parametrize(
    ("names", "last", "state"),
    [
        ("", "Number of idle job procs: 1", State.IDLE),
        ("EXECUTE", "", State.RUNNING),
        ("EXECUTE JOB_EVICTED", "", State.IDLE),
        ("EXECUTE JOB_SUSPENDED", "", State.SUSPENDED),
        ("JOB_HELD", "", State.HELD),
        ("JOB_HELD JOB_RELEASED", "", State.IDLE),
        ("JOB_ABORTED", "", State.REMOVED),
        ("JOB_TERMINATED", "Node a job proc (7.0.0) failed with status 3.", State.FAILED),
        ("JOB_TERMINATED", "Node a job proc (7.0.0) completed successfully.", State.COMPLETED),
    ],
)
def test_state_of_a_job_from_dagman_out_only(
    tmp_path: Path, names: str, last: str, state: State
) -> None:
    events = [event(name, "a", 7, f"09:1{n}:00") for n, name in enumerate(names.split(), start=1)]
    end = ["09:13:00 Number of idle job procs: 0", f"09:13:00 {last}"]
    made = dagdir(tmp_path, ONE, *submitted("a", 7), *events, *end)
    assert [row.state for row in made.reader(live=True).snapshot_builder().job_rows()] == [state]


def test_events_repeated_in_recovery_count_once(tmp_path: Path) -> None:
    """Nor is its job removed with the process that a hold of DAGMan ended."""
    once = (*submitted("a", 7), event("EXECUTE", "a", 7, "09:11:00"), f"09:15:00 {EXIT}3")
    repeated = (event("SUBMIT", "a", 7, "09:10:47"), event("EXECUTE", "a", 7, "09:11:00"))
    made = dagdir(
        tmp_path,
        ONE,
        *once,
        f"09:20:00 {START}",
        "09:20:00 Running in RECOVERY mode... >>>>",
        *(f"{line} [recovery mode]" for line in repeated),
        "09:20:00 ...done with RECOVERY mode <<<<",
        event("JOB_TERMINATED", "a", 7, "09:21:00"),
        "09:21:00 Node a job proc (7.0.0) completed successfully.",
        f"09:22:00 {EXIT}1",
    )
    (entry,) = made.reader(live=True).snapshot_builder().ledger().executions
    assert (entry.start, entry.return_value) == (datetime(2023, 3, 5, 9, 11), 0)


def test_job_log_overrides_dagman_out(tmp_path: Path) -> None:
    made = dagdir(tmp_path, ONE, *submitted("a", 101), event("JOB_HELD", "a", 101, "09:11:00"))
    reader = made.reader(live=True)
    assert [row.state for row in reader.snapshot_builder().job_rows()] == [State.HELD]

    log = begun()
    made.write("run.log", log.bytes())
    again(reader)
    assert [row.state for row in reader.snapshot_builder().job_rows()] == [State.RUNNING]


def test_removal_after_a_hold_names_the_hold(tmp_path: Path) -> None:
    made = dagdir(
        tmp_path,
        ONE + "SCRIPT POST a exitcode $RETURN\n",
        *submitted("a", 7),
        event("EXECUTE", "a", 7, "09:11:00"),
        event("JOB_HELD", "a", 7, "09:11:22"),
        "09:11:22   Hold reason: Transfer input files failure at ep1: (errno 13) Permission denied",
        event("JOB_ABORTED", "a", 7, "09:12:07"),
        "09:12:07 Running POST script of Node a...",
        "09:12:12 POST Script of node a failed with status 1",
        "09:12:12 ERROR: the following job(s) failed:",
        "09:12:12       Node Name: a",
        "09:12:12 Node return val: 1",
        "09:12:12           Error: Job failed due to DAGMAN error -1002 and POST Script failed "
        "with status 1",
        "09:12:12 **** condor_scheduniv_exec.103.0 (condor_DAGMAN) pid 9 EXITING WITH STATUS 1",
    )
    builder = made.reader(live=False).snapshot_builder()

    (entry,) = [e for e in health_of(builder).open_entries if e.node_keys]
    assert (entry.text, entry.since) == ("input not readable", datetime(2023, 3, 5, 9, 11, 22))
    texts = [note.text for note in builder.notices()]
    assert not any("-1002" in text for text in texts)


@pytest.mark.parametrize(
    ("part", "error", "cause", "step"),
    [
        ("POST", "= 13 (Permission denied)", "Permission denied", "Make it executable (chmod +x)"),
        ("PRE", "8 (Exec format error) before", "Exec format error", "Begin a script with"),
        ("POST", "", "", RESUBMIT),
    ],
)
def test_script_that_cannot_be_started(
    tmp_path: Path, part: str, error: str, cause: str, step: str
) -> None:
    made = dagdir(
        tmp_path,
        f"JOB a a.sub\nSCRIPT {part} a fix.sh\n",
        f'09:12:00 Create_Process: Cannot access specified executable "fix.sh": errno {error}',
        f"09:12:00   {'error: daemonCore->' if error else ''}Create_Process() failed; "
        f"{part} script of Job a failed",
        f"09:12:00 {part} Script of node a failed with status 1",
        "09:12:00 **** condor_scheduniv_exec.103.0 (condor_DAGMAN) pid 9 EXITING WITH STATUS 1",
    )
    log = Log().submit(101, "a", "2023-03-05 09:10:47").remove(101).post(101, "a", 1)
    made.write("run.dag.nodes.log", log.data if part == "POST" else b"")
    health = health_of(made.reader(live=False).snapshot_builder())
    entry = only(health, "script-failed" if error else "node-failed")
    why = f"{part} script fix.sh could not be started: {cause}"
    assert entry.text == f"a: {why if error else 'removed by ada (condor_rm)'}"
    assert entry.steps[0].startswith(step)


def test_missing_events_are_not_reported_as_calm(tmp_path: Path) -> None:
    made = dagdir(tmp_path, ONE, *submitted("a", 7)[:2])

    headline = health_of(made.reader(live=True).snapshot_builder()).headline
    assert headline.severity is not None
    assert "no event log" in headline.line


# --- events that were cut ---------------------------------------------------------------------

CUT_END = "Job terminated.\n\t(1) Normal termination (return value 0)\n\t\tUsr 0 00:00:00, Sys 0 00"
LOST = "Shadow exception!\n\tUserLog Unable to log ULOG_JOB_TERMINATED event"


def cut(log: EventLog, number: str, cluster: int, text: str) -> None:
    """Add an event without its end; the next one follows on the same line."""
    log.time += ONE_HOUR
    log.texts.append(f"{number} ({cluster}.000.000) {log.time:%Y-%m-%d %H:%M:%S} {text}")


def job_of(path: Path, log: EventLog) -> JobHistory:
    made = write(path, ONE, log)
    (job,) = [job for job in made.reader(live=True).ensemble.jobs.values() if job.cluster == 101]
    return job.history()


@pytest.mark.parametrize("repeated", [0, 1, 3])
def test_cut_end_completes_no_job(tmp_path: Path, repeated: int) -> None:
    """The shadow that could not log it fails, and the schedd starts another one."""
    log = begun()
    for _ in range(repeated):
        log.end(101)
        log.add("007", 101, LOST)
    cut(log, "005", 101, CUT_END)
    log.submit("b")

    history = job_of(tmp_path, log)
    assert history.state is State.IDLE
    assert [each.outcome for each in history.executions] == [Outcome.SHADOW_EXCEPTION]


def test_end_logged_later_belongs_to_the_same_execution(tmp_path: Path) -> None:
    log = begun()
    cut(log, "005", 101, CUT_END)
    at = log.time
    log.end(101, hours=3)

    history = job_of(tmp_path, log)
    assert (history.state, history.since) == (State.COMPLETED, log.time)
    assert [(each.end, each.outcome) for each in history.executions] == [(at, Outcome.GOOD)]


def test_execution_before_a_cut_end_and_a_rerun_is_lost(tmp_path: Path) -> None:
    log = begun()
    cut(log, "005", 101, CUT_END)
    log.execute(101)
    log.end(101)

    outcomes = [each.outcome for each in job_of(tmp_path, log).executions]
    assert outcomes == [Outcome.SHADOW_EXCEPTION, Outcome.GOOD]


@pytest.mark.parametrize(
    ("number", "text", "state"),
    [
        ("009", "Job was aborted.\n\tvia cond", State.REMOVED),
        ("012", "Job was held.\n\tThe job exc", State.HELD),
        ("004", "Job was evicted.\n\t(0) CPU tim", State.IDLE),
    ],
)
def test_other_cut_events_have_their_effect(
    tmp_path: Path, number: str, text: str, state: State
) -> None:
    log = begun()
    cut(log, number, 101, text)
    log.submit("b")
    assert job_of(tmp_path, log).state is state


def test_cut_result_of_a_post_script_is_none(tmp_path: Path) -> None:
    log = begun()
    log.end(101)
    cut(
        log, "016", 101, "POST Script terminated.\n\t(1) Normal termination (return value 0)\n    D"
    )
    log.submit("c")
    made = write(tmp_path, ONE + "SCRIPT POST a post.sh\n", log)
    reader = made.reader(live=True)
    assert not reader.ensemble.nodes["run.dag", "a"].posts


def test_full_disk_is_log_damage(shared: Shared) -> None:
    builder = read_dagdir(shared("cases/disk-full/dagdir-full"), live=True)
    assert [row.state for row in builder.job_rows()][-2:] == [State.IDLE] * 2
    assert builder.status().dags[0].nodes_done == 2
    entry = only(health_of(builder), "log-damage")
    assert (entry.severity, entry.jobs) == (Severity.BLOCKED, ((641, 0), (642, 0)))

    ended = read_dagdir(shared("cases/disk-full/dagdir"), live=False)
    assert (ended.status().dags[0].nodes_done, ended.status().dags[0].nodes_failed) == (2, 0)


# --- DAGMan crashes, or waits for ever --------------------------------------------------------

CRASH = 'ERROR "Assertion ERROR on (node->_queuedNodeJobProcs >= 0)" at line 4261 in file dag.cpp'
EXIT = "**** condor_scheduniv_exec.103.0 (condor_DAGMAN) pid 9 EXITING WITH STATUS "
ABORT = "Aborting DAG because we got the ABORT exit value from a job"
START = "** condor_scheduniv_exec.103.0 (CONDOR_DAGMAN) STARTING UP"


def crashes(number: int, last: str = CRASH, hour: int = 10) -> list[str]:
    """The processes of one DAGMan, a minute apart."""
    lines = []
    for minute in range(number):
        at = f"{hour}:{minute:02}:00"
        lines += [f"{at} {START}", f"{at} Running in RECOVERY mode"]
        if last:
            lines.append(f"{hour}:{minute:02}:01 {last}")
    return lines


def test_repeated_crashes_of_dagman_are_reported(shared: Shared, capsys: Captured) -> None:
    path = shared("cases/dagman-crashes-again-and-again")
    builder = read_dagdir(path, live=False)
    entry = only(health_of(builder), "dag-crashes")
    assert "node->_queuedNodeJobProcs >= 0" in entry.text
    assert entry.severity is Severity.STOPPED
    assert any("BAD EVENT: job (64.0.0) ended" in note.text for note in builder.notices())
    for condition in ("failed", "all"):
        assert run_command("status", capsys, path, "--exit-on", condition)[0] == Exit.FAILED


@pytest.mark.parametrize(
    ("lines", "number"),
    [
        (crashes(1), None),
        (crashes(2), 2),
        (crashes(5), 5),
        ([*crashes(2), *crashes(2, 'ERROR "another" at line 1 in file a.cpp', hour=11)], 2),
        # The newest process has not reached the place yet, or has passed it.
        ([*crashes(3), f"10:03:00 {START}"], 3),
        ([*crashes(3), f"10:03:00 {START}", "10:09:00 Running PRE script of Node b..."], None),
        # Without a message, together with the first one.
        (crashes(6, ""), 6),
        (crashes(2, ""), None),
        (crashes(4, f"{EXIT}3"), None),
        # The schedd's on_exit_remove: recorded, 17 times in five minutes.
        (crashes(4, f"{ABORT}\n{DAY} 10:00:01 {EXIT}11"), 4),
    ],
)
def test_crashes_in_a_row_count(tmp_path: Path, lines: list[str], number: int | None) -> None:
    made = dagdir(tmp_path, ONE, *submitted("a", 7), *lines)
    for live in (False, True):
        (row,) = made.reader(live=live, now="2023-03-05 11:12:00").snapshot_builder().status().dags
        assert (row.crashes.number if row.crashes else None) == number


def test_end_of_a_job_that_dagman_missed(shared: Shared) -> None:
    builder = read_dagdir(shared("cases/dagman-lost-the-end-of-a-job"), live=False)
    status = builder.status()

    assert status.as_of == datetime(2025, 4, 19, 10, 20, 5)
    entry = only(health_of(builder), "dag-stuck")
    assert (entry.since, entry.jobs) == (datetime(2025, 4, 18, 12, 5), ((60, 0),))
    assert [note.file for note in builder.notices() if note.kind == "lost-end"] == ["train.log"]
    (dag,), (run,) = status.dags, status.runs
    # DAGMan has not done the node, whatever the job's own log has.
    assert (dag.nodes_done, dag.nodes_unknown, dag.is_lower_bound) == (0, 0, False)
    assert (run.epochs_done, run.epochs_unknown) == (0, 0)
    assert status.epoch_states[State.POST] == status.epoch_states[State.COMPLETED] == 0


PENDING = ("12:20:05 Pending DAG nodes:", "12:20:05   Node a, HTCondor ID 101, status STATUS_{}")
AFTER_THE_END = {
    "": ((), False),
    "submitted": (tuple(line.format("SUBMITTED") for line in PENDING), True),
    "post": (tuple(line.format("POSTRUN") for line in PENDING), False),
    "others": (PENDING[:1], False),
    "unreadable": (("12:20:05 ERROR: failure to read job log", "\tAn event may be corrupt."), True),
    "unreadable before": (("10:00:05 ERROR: failure to read job log",), False),
    "read at last": (
        (
            *(line.format("SUBMITTED") for line in PENDING),
            "12:31:00 Node a job proc (101.0.0) completed successfully.",
            "12:31:00 Running POST script of Node a...",
        ),
        False,
    ),
}


@pytest.mark.parametrize(("post", "value"), [("", 0), ("SCRIPT POST a post.sh\n", 1)])
@pytest.mark.parametrize("after", AFTER_THE_END)
def test_files_show_that_dagman_still_waits(
    tmp_path: Path, after: str, post: str, value: int
) -> None:
    lines, is_lost = AFTER_THE_END[after]
    made = dagdir(tmp_path, ONE + post, *submitted("a", 101), *lines)
    log = begun()
    log.end(101, value)
    made.write("run.log", log.bytes())
    builder = made.reader(live=True, now="2023-03-05 12:35:00").snapshot_builder()

    states = builder.ensemble.node_states("run.dag", live=True)
    assert (states["a"].state is State.UNKNOWN) == is_lost
    stuck = [entry for entry in health_of(builder).entries if entry.kind == "dag-stuck"]
    assert any(entry.jobs for entry in stuck) == is_lost


def test_node_status_file_has_the_job_in_the_queue(tmp_path: Path) -> None:
    made = dagdir(tmp_path, ONE + "NODE_STATUS_FILE s\n", *submitted("a", 101))
    log = begun()
    log.end(101)
    made.write("run.log", log.bytes())
    ads = (
        'Type = "DagStatus";\nDagFiles = {\n"run.dag"\n};\nTimestamp = 1678019400; '
        '/* "Sun Mar 5 12:30:00 2023" */\nDagStatus = 3;',
        'Type = "NodeStatus";\nNode = "a";\nNodeStatus = 3;\nStatusDetails = "not_idle";\n'
        "RetryCount = 0;\nJobProcsQueued = 1;\nJobProcsHeld = 0;",
        'Type = "StatusEnd";',
    )
    made.write("s", "".join(f"[\n{ad}\n]\n" for ad in ads))
    builder = made.reader(live=True, now="2023-03-05 12:31:00").snapshot_builder()
    assert only(health_of(builder), "dag-stuck").jobs == ((101, 0),)


@pytest.mark.parametrize(
    ("now", "more", "is_stuck"),
    [
        ("11:22:00", "", False),
        ("11:40:00", "", True),
        ("11:40:00", "halt", False),
        ("11:40:00", "queued", False),
    ],
)
def test_dagman_waiting_with_an_empty_queue_is_reported(
    tmp_path: Path, now: str, more: str, *, is_stuck: bool
) -> None:
    ended = "11:17:00 Node a job proc (101.0.0) completed successfully."
    second = submitted("b", 102, "11:17:10") if more == "queued" else ()
    made = dagdir(tmp_path, ONE, *submitted("a", 101), ended, *second)
    log = begun()
    log.end(101)
    if more == "queued":
        log.submit("b")
    made.write("run.log", log.bytes())
    if more == "halt":
        made.write("run.dag.halt", "")
    health = health_of(made.reader(live=True, now=f"2023-03-05 {now}").snapshot_builder())
    assert ("dag-stuck" in kinds(health)) == is_stuck


# --- explanations -----------------------------------------------------------------------------


def test_failed_submission_has_its_reason(shared: Shared) -> None:
    builder = read_dagdir(shared("cases/reason-of-a-failed-submission"), live=False)
    entry = only(health_of(builder), "submit-failed")
    assert "/home/alice/ens/data/protein.tar.gz" in entry.text
    assert "submit description" not in entry.advice
    assert not [note for note in builder.notices() if "errno=0 Success" in note.text]
    # That of condor_submit is in its output.
    health = health_of(read_dagdir(shared("cases/submit-error-text-lost/dagdir"), live=False))
    entry = only(health, "submit-failed")
    assert "can't open file nothing.txt: No such file or directory" in entry.text


def test_warning_that_strict_mode_makes_an_error(shared: Shared) -> None:
    health = health_of(read_dagdir(shared("cases/strict-hides-the-cause/dagdir"), live=False))
    entry = only(health, "dag-failed")
    assert "c46.dag.rescue001 (line 12)" in entry.text
    assert "run0-train_epoch1" in entry.text
    assert "rescue file" in entry.advice


SUBMISSIONS = {
    "direct, no file": (
        "ERROR: submit attempt failed, errno=2 No such file or directory",
        "could not open submit file : a.sub - can't open file",
    ),
    "direct, description": ("ERROR: on Line 3 of submit file: can't open file",),
    "direct, class ad": (
        "ERROR: on Line 14 of submit file: failed to create job classad",
        "submit error: Submit:-1:can't open file: No such directory",
    ),
    "direct, schedd": ("Failed to submit job a: can't open file",),
    "directory": ("Could not change to node directory d: can't open file",),
    "shell": (
        "From submit: Submitting job(s)",
        "From submit: ERROR: on Line 4 of submit file: can't open file x.txt",
        "From submit: ERROR: Failed to parse command file (line 4).",
        "ERROR: Failed to run condor_submit for node a:\nSubmitting job(s)\nERROR: on Line 4 of "
        "submit file: can't open file x.txt\n\nERROR: Failed to parse command file (line 4).\n",
    ),
    "shell, without its lines": (
        "ERROR: Failed to run condor_submit for node a:\nSubmitting job(s)\nERROR: can't open file",
    ),
    "shell, not run": ("ERROR (2): Failed to run condor_submit for node a: can't open file",),
    "limit": ("Failed to create new proc id: ERROR: can't open file: limit exceeded",),
}


@pytest.mark.parametrize("lines", SUBMISSIONS.values(), ids=SUBMISSIONS)
@pytest.mark.parametrize("tries", [1, 2])
def test_failed_submission_has_the_explaining_line(
    tmp_path: Path, lines: tuple[str, ...], tries: int
) -> None:
    attempt = ["09:11:00 Submitting HTCondor Node a job(s)...", *(f"09:11:00 {x}" for x in lines)]
    repeated = [*attempt, "09:11:00 Job submit try 1/2 failed, will try again in >= 1 second."]
    made = dagdir(
        tmp_path,
        ONE,
        *(repeated * (tries - 1)),
        *attempt,
        "09:11:00 Job submit failed after 2 tries.",
        "09:11:00 Shortcutting node a retries because of submit failure(s)",
        "09:12:12 ERROR: the following job(s) failed:",
        "09:12:12       Node Name: a",
        "09:12:12           Error: Job submit failed",
        "09:12:12 **** condor_scheduniv_exec.103.0 (condor_DAGMAN) pid 9 EXITING WITH STATUS 1",
    )
    builder = made.reader(live=False).snapshot_builder()
    assert "can't open file" in only(health_of(builder), "submit-failed").text
    assert not [note for note in builder.notices() if note.kind == "dagman-error"]


STRICT = "ERROR: Warning is fatal error because of DAGMAN_USE_STRICT setting"
ENDS = {
    "warning": ("Warning: run.dag (line 3): node b is a noop", STRICT),
    "capitals": ("WARNING: node b has no parents", STRICT),
    "no error line": ("run.dag (line 3): node b is unknown", "Failed to parse dag file"),
    "cycle": (
        "ERROR: DAG finished but not all nodes are complete -- checking for a cycle...",
        "Cycle in the graph possibly involving jobs a and node b",
        "... ERROR: a cycle exists in the dag, plese check input",
    ),
    "continued": ("ERROR: cannot parse run.dag:\n\tline 3: node b is unknown",),
    "usage": (
        "\nUnrecognized argument: -node b",
        "\nUsage: condor_dagman -f -t -l .\n\t\t(obsolete) [-AllowLogError]\n\t\t"
        "[-Notification <never|always|complete|error>]\n\twhere NAME is the name of your DAG.",
    ),
    "semantics": (
        "Error: DAG semantics violated!  node b was submitted but has unfinished parents!",
    ),
}


@pytest.mark.parametrize("lines", ENDS.values(), ids=ENDS)
def test_end_of_dagman_has_the_explaining_line(tmp_path: Path, lines: tuple[str, ...]) -> None:
    """Before the final line, or after it; in pieces, as it is written."""
    made = Dagdir(tmp_path, ONE)
    text = "".join(
        f"{DAY} 09:11:00 {line}\n" for line in (START, "Parsing 1 dagfiles", *lines, f"{EXIT}1")
    ).encode()
    made.write("run.dag.dagman.out", text[:60])
    reader = made.reader(live=False)
    for start in range(60, len(text), 7):
        made.append("run.dag.dagman.out", text[start : start + 7])
        reader.check()
        reader.read_all()
    assert "node b" in only(health_of(reader.snapshot_builder()), "dag-failed").text


def test_rescue_file_with_a_provisioner_runs_nothing(tmp_path: Path) -> None:
    """Recorded with HTCondor 23.9.6, until the line is removed from the rescue file."""
    error = "09:15:00 ERROR: DAG finished but not all nodes are complete -- checking for a cycle..."
    made = dagdir(tmp_path, ONE + "PROVISIONER p p.sub\n", error, f"09:15:01 {EXIT}1")
    entry = only(health_of(made.reader(live=False).snapshot_builder()), "dag-failed")
    assert (entry.text, entry.steps) == (PROVISIONER_IS_DONE, PROVISIONER_LINE)


def test_halt_that_ends_dagman_is_its_reason(tmp_path: Path) -> None:
    """Recorded: with nothing in the queue a halted DAGMan writes a rescue file and exits."""
    halted = "09:15:00 DAG is halted because halt file run.dag.halt exists"
    made = dagdir(tmp_path, ONE, halted, f"09:15:01 {EXIT}1")
    entry = only(health_of(made.reader(live=False).snapshot_builder()), "dag-failed")
    assert (entry.text, entry.steps) == (HALTED, (RESUBMIT,))


def test_job_without_an_end_was_removed_with_its_dag(tmp_path: Path) -> None:
    end = ("09:12:00 Received SIGUSR1", f"09:12:00 {EXIT}2")
    health = health_of(dagdir(tmp_path, ONE, *submitted("a", 7), *end).reader().snapshot_builder())
    assert only(health, "removed-by-user").text == "removed with its DAG"


def test_dagman_out_without_its_beginning_has_the_end(tmp_path: Path) -> None:
    made = Dagdir(tmp_path, ONE)
    made.write("run.dag.dagman.out", f"{DAY} 09:15:01 {EXIT}1\n")
    (dag,) = made.reader(live=False).snapshot_builder().status().dags
    assert dag.state is DagState.FAILED


def test_old_log_has_its_year(shared: Shared, tmp_path: Path) -> None:
    for file in shared("cases/year-of-an-old-log").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    status = read_dagdir(tmp_path).status()
    (dag,) = status.dags
    assert (dag.state, dag.nodes_done, dag.nodes_failed) == (DagState.FAILED, 5, 5)
    assert status.as_of == datetime(2019, 4, 4, 4, 11, 9)
    assert status.node_states[State.FUTILE] == 2


HOST = "<10.0.0.9:9618?addrs=10.0.0.9-9618&alias=ap.example.edu>"
SUBMITTED = f"Job submitted from host: {HOST}\n    DAG Node: a\n...\n"
OTHER_YEAR = f"000 (7.000.000) 06/01 10:00:00 {SUBMITTED}"
YEARLESS = (
    f"000 (41.000.000) 12/31 23:50:00 {SUBMITTED}"
    f"001 (41.000.000) 01/01 00:10:00 Job executing on host: {HOST}\n...\n"
)
DAGMAN_LOG = f"000 (40.000.000) 2019-12-31 23:00:00 Job submitted from host: {HOST}\n...\n"
DAGMAN_END = (
    "005 (40.000.000) 2020-01-02 01:00:00 Job terminated.\n"
    "\t(1) Normal termination (return value 0)\n...\n"
)
JOBSTATE = "1577833200 INTERNAL *** DAGMAN_STARTED 40.0 ***\n1577836200 a SUBMIT 41.0 - - 1\n"
OUT = (
    "12/31/19 23:00:00 ** condor_scheduniv_exec.40.0 (CONDOR_DAGMAN) STARTING UP\n"
    "12/31/19 23:50:00 Submitting HTCondor Node a job(s)...\n"
    "12/31/19 23:50:00 \tassigned HTCondor ID (41.0.0)\n"
)
METRICS = (
    '{"start_time":1577833200,"end_time":1577930400,"exitcode":0,"dagman_id":"40","type":"metrics"}'
)


@pytest.mark.parametrize(
    ("name", "text", "log"),
    [
        ("run.dag.dagman.out", OUT, YEARLESS),
        ("run.dag.dagman.out", OUT, OTHER_YEAR + YEARLESS),
        ("run.dag.dagman.log", DAGMAN_LOG + DAGMAN_END, YEARLESS),
        ("run.dag.metrics", METRICS, YEARLESS),
        ("jobs.state", JOBSTATE, YEARLESS),
    ],
)
def test_dagmans_files_give_the_year(tmp_path: Path, name: str, text: str, log: str) -> None:
    """Also over New Year, and where the log begins with jobs of another year."""
    made = Dagdir(tmp_path, ONE + "JOBSTATE_LOG jobs.state\n")
    made.write(name, text)
    made.write("run.log", log)
    reader = made.reader(live=False)

    (job,) = [job for job in reader.ensemble.jobs.values() if job.cluster == 41]
    assert [event.time for event in job.events()] == [
        datetime(2019, 12, 31, 23, 50),
        datetime(2020, 1, 1, 0, 10),
    ]


def test_absent_event_log_counts_once_a_job_was_submitted(tmp_path: Path) -> None:
    (tmp_path / "w.dag").write_text("JOB a a.sub\n")
    for jobs in ((), submitted("a", 104)):
        (tmp_path / "w.dag.dagman.out").write_text(out_of(*jobs))
        assert (health_of(read_dagdir(tmp_path)).headline.text == UNLOGGED) is bool(jobs)
