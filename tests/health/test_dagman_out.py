"""What ``.dagman.out`` alone says of jobs, of DAGMan itself and of errors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from metlmon.health.build import make_health
from metlmon.health.headline import health_headline
from metlmon.health.types import Health
from metlmon.model.job import JobHistory
from metlmon.model.states import Outcome, State
from metlmon.snapshot.builder import SnapshotBuilder
from tests.health.ensembles import EventLog, only, write
from tests.support.dagdir_builder import Dagdir
from tests.support.records import read_dagdir, stats_input

Shared = Callable[[str], Path]

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


def dagdir(path: Path, dag: str, *lines: str) -> Dagdir:
    made = Dagdir(path, dag)
    made.write("run.dag.dagman.out", out_of(*lines))
    return made


ONE = "JOB a a.sub\nJOB b a.sub\nPARENT a CHILD b\n"


# --- events of jobs that no log here has ------------------------------------------------------


def test_a_hold_that_only_dagman_out_has(shared: Shared) -> None:
    health = health_of(read_dagdir(shared("cases/held-only-in-dagman-out"), live=False))

    held = only(health, "held")
    assert held.since == datetime(2023, 3, 5, 9, 11, 22)
    assert held.text == "output file missing"
    assert held.jobs == ((106, 0),)
    assert "(errno 2) No such file or directory" in (held.reason or "")


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        ((), State.IDLE),
        ((event("EXECUTE", "a", 7, "09:11:00"),), State.RUNNING),
        ((event("EXECUTE", "a", 7, "09:11:00"), event("JOB_EVICTED", "a", 7, "09:12:00")), "idle"),
        (
            (
                event("EXECUTE", "a", 7, "09:11:00"),
                event("JOB_SUSPENDED", "a", 7, "09:12:00"),
            ),
            State.SUSPENDED,
        ),
        ((event("JOB_HELD", "a", 7, "09:11:00"),), State.HELD),
        (
            (event("JOB_HELD", "a", 7, "09:11:00"), event("JOB_RELEASED", "a", 7, "09:12:00")),
            State.IDLE,
        ),
        ((event("JOB_ABORTED", "a", 7, "09:12:00"),), State.REMOVED),
        (
            (
                event("JOB_TERMINATED", "a", 7, "09:12:00"),
                "09:12:05 Number of idle job procs: 0",
                "09:12:05 Node a job proc (7.0.0) failed with status 3.",
            ),
            State.FAILED,
        ),
        (
            (
                event("JOB_TERMINATED", "a", 7, "09:12:00"),
                "09:12:05 Node a job proc (7.0.0) completed successfully.",
            ),
            State.COMPLETED,
        ),
    ],
)
def test_the_state_of_a_job_by_dagman_out_alone(
    tmp_path: Path, lines: tuple[str, ...], state: State
) -> None:
    made = dagdir(tmp_path, ONE, *submitted("a", 7), *lines)

    assert [row.state for row in made.reader(live=True).snapshot_builder().job_rows()] == [state]


def test_a_recovery_repeats_the_events_and_adds_none(tmp_path: Path) -> None:
    once = (*submitted("a", 7), event("EXECUTE", "a", 7, "09:11:00"))
    again = (event("SUBMIT", "a", 7, "09:10:47"), event("EXECUTE", "a", 7, "09:11:00"))
    made = dagdir(
        tmp_path,
        ONE,
        *once,
        f"09:20:00 ** condor_scheduniv_exec.103.0 (CONDOR_DAGMAN) STARTING UP\n"
        f"{DAY} 09:20:00 Running in RECOVERY mode... >>>>",
        *(f"{line} [recovery mode]" for line in again),
        "09:20:00 ...done with RECOVERY mode <<<<",
    )

    (entry,) = made.reader(live=True).snapshot_builder().ledger().executions
    assert entry.start == datetime(2023, 3, 5, 9, 11)


def test_a_log_of_the_job_counts_alone(tmp_path: Path) -> None:
    made = dagdir(tmp_path, ONE, *submitted("a", 101), event("JOB_HELD", "a", 101, "09:11:00"))
    reader = made.reader(live=True)
    assert [row.state for row in reader.snapshot_builder().job_rows()] == [State.HELD]

    log = EventLog(datetime(2023, 3, 5, 9, 10, 47))
    log.execute(log.submit("a"))
    made.write("run.log", log.bytes())
    reader.check()
    reader.read_all()
    assert [row.state for row in reader.snapshot_builder().job_rows()] == [State.RUNNING]


def test_a_removal_after_a_hold_is_explained_by_the_hold(tmp_path: Path) -> None:
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


def test_without_any_event_nobody_says_that_no_job_is_held(tmp_path: Path) -> None:
    lines = (
        "09:10:47 Submitting HTCondor Node a job(s)...",
        "09:10:47 \tassigned HTCondor ID (7.0.0)",
    )
    made = dagdir(tmp_path, ONE, *lines)

    headline = health_headline(health_of(made.reader(live=True).snapshot_builder()))
    assert headline.severity is not None
    assert "no event log" in headline.line


# --- events that were cut ---------------------------------------------------------------------

CUT_END = "Job terminated.\n\t(1) Normal termination (return value 0)\n\t\tUsr 0 00:00:00, Sys 0 00"
LOST = "Shadow exception!\n\tUserLog Unable to log ULOG_JOB_TERMINATED event"


def cut(log: EventLog, number: str, cluster: int, text: str) -> None:
    """An event without its end; the next one follows on the same line."""
    log.time += ONE_HOUR
    log.texts.append(f"{number} ({cluster}.000.000) {log.time:%Y-%m-%d %H:%M:%S} {text}")


def job_of(path: Path, log: EventLog) -> JobHistory:
    made = write(path, ONE, log)
    (job,) = [job for job in made.reader(live=True).ensemble.jobs.values() if job.cluster == 101]
    return job.history()


@pytest.mark.parametrize("repeated", [0, 1, 3])
def test_an_end_that_was_cut_completes_nothing(tmp_path: Path, repeated: int) -> None:
    """The shadow that could not log it fails, and the schedd starts another one."""
    log = EventLog()
    log.execute(log.submit("a"))
    for _ in range(repeated):
        log.end(101)
        log.add("007", 101, LOST)
    cut(log, "005", 101, CUT_END)
    log.submit("b")

    history = job_of(tmp_path, log)
    assert history.state is State.IDLE
    assert [each.outcome for each in history.executions] == [Outcome.SHADOW_EXCEPTION]


def test_the_end_that_is_logged_at_last_is_that_of_the_same_execution(tmp_path: Path) -> None:
    log = EventLog()
    log.execute(log.submit("a"))
    cut(log, "005", 101, CUT_END)
    at = log.time
    log.end(101, hours=3)

    history = job_of(tmp_path, log)
    assert (history.state, history.since) == (State.COMPLETED, log.time)
    assert [(each.end, each.outcome) for each in history.executions] == [(at, Outcome.GOOD)]


def test_a_job_that_ran_again_after_a_cut_end_has_lost_the_first_execution(tmp_path: Path) -> None:
    log = EventLog()
    log.execute(log.submit("a"))
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
def test_other_events_that_were_cut_have_their_effect(
    tmp_path: Path, number: str, text: str, state: State
) -> None:
    log = EventLog()
    log.execute(log.submit("a"))
    cut(log, number, 101, text)
    log.submit("b")
    assert job_of(tmp_path, log).state is state


def test_the_result_of_a_post_script_that_was_cut_is_none(tmp_path: Path) -> None:
    log = EventLog()
    log.execute(log.submit("a"))
    log.end(101)
    cut(
        log, "016", 101, "POST Script terminated.\n\t(1) Normal termination (return value 0)\n    D"
    )
    log.submit("c")
    made = write(tmp_path, ONE + "SCRIPT POST a post.sh\n", log)
    reader = made.reader(live=True)
    assert not reader.ensemble.nodes["run.dag", "a"].posts


def test_a_full_disk(shared: Shared) -> None:
    builder = read_dagdir(shared("cases/disk-full/dagdir-full"), live=True)
    assert [row.state for row in builder.job_rows()][-2:] == [State.IDLE] * 2
    assert builder.status().dags[0].nodes_done == 2

    ended = read_dagdir(shared("cases/disk-full/dagdir"), live=False)
    assert (ended.status().dags[0].nodes_done, ended.status().dags[0].nodes_failed) == (2, 0)
