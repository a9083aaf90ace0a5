"""DAGs ended by ABORT-DAG-ON: intentionally with RETURN 0, else as failures with their cause."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from metlmon.cli.exit_conditions import exit_condition
from metlmon.health.advice import RUN_THE_REST
from metlmon.health.build import make_health
from metlmon.health.types import Health, Severity
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import Outcome, State
from metlmon.snapshot.records import HourUnit, Ledger, Status
from metlmon.snapshot.row_text import state_reason
from metlmon.stats.causes import causes_of
from metlmon.stats.totals import break_down
from tests.conftest import Shared
from tests.health.ensembles import HOST, EventLog, chains, health_of, only, write
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Out
from tests.support.recordings import opened
from tests.support.records import stats_input

BY_DAGMAN = "DAG Abort: DAG is exiting and writing rescue file. (by user anna)"
BY_SCHEDD = (
    "removed because <OtherJobRemoveRequirements = DAGManJobId =?= 100> fired when job (100.0) "
    "was removed"
)
OLD = "via condor_rm (by user anna)"


def out(value: int, *lines: str) -> Out:
    """DAGMan's output for one run that ended with a value."""
    made = Out().start("01-01 08:00:00", cluster=100)
    for line in lines:
        made.say(line, "01-01 12:00:00")
    return made.exit(value, "01-01 12:00:00", 100)


def aborted(
    path: Path, how: str, value: int, ending: str = " RETURN 0", removal: str = BY_DAGMAN
) -> Dagdir:
    """Run a of two runs aborts the DAG in its second epoch, while run b runs."""
    node = "a-train_epoch1"
    extra = [f"ABORT-DAG-ON {node} {value}{ending}"]
    if how in ("PRE", "POST"):
        extra.append(f"SCRIPT {how} {node} gate.py")
    log = EventLog()
    log.train("a-train_epoch0")
    other = log.submit("b-train_epoch0")
    log.execute(other)
    lines = []
    if how != "PRE":
        job = log.submit(node)
        log.execute(job)
        if value < 0:
            log.add("005", job, f"Job terminated.\n\t(0) Abnormal termination (signal {-value})", 1)
        else:
            log.end(job, value if how == "job" else 0, hours=1)
    if how == "POST":
        lines.append(f"POST Script of node {node} failed with status {value}")
        text = f"POST Script terminated.\n\t(1) Normal termination (return value {value})\n"
        log.add("016", job, f"{text}    DAG Node: {node}")
    if how == "PRE":
        lines.append(f"PRE Script of node {node} failed with status {value}")
        log.time = datetime(2026, 1, 1, 12)
    kind = how if how == "job" else f"{how} script"
    lines.append(f"Aborting DAG because we got the ABORT exit value from a {kind}")
    log.remove(other, removal)
    dagdir = Dagdir(path, chains({"a": 4, "b": 2}, extra="\n".join(extra)))
    dagdir.write("metl.log", log.bytes())
    code = 0 if ending == " RETURN 0" else int(ending.split()[1]) if ending else value
    dagdir.write("run.dag.dagman.out", out(code, *lines).data)
    return dagdir


def read(reader: DagdirReader, path: Path) -> tuple[Status, Health]:
    builder = reader.snapshot_builder()
    return builder.status(), make_health(stats_input(builder, path))


def exit_codes(status: Status, health: Health) -> dict[str, int | None]:
    names = ("all", "done", "failed", "held")
    return {name: exit_condition(name)(status, lambda: health) for name in names}


NOTHING = {"all": 0, "done": 0, "failed": None, "held": None}

HOW = [("POST", 42), ("job", 42), ("PRE", 42), ("job", -9), ("job", 0)]


@pytest.mark.parametrize(
    ("how", "value", "removal"),
    [(*how, (BY_DAGMAN, BY_SCHEDD, OLD)[n % 3]) for n, how in enumerate(HOW)],
)
def test_return_0_is_an_intended_end(tmp_path: Path, how: str, value: int, removal: str) -> None:
    dagdir = aborted(tmp_path, how, value, removal=removal)
    status, health = read(dagdir.reader(), tmp_path)
    assert not health.open_entries
    assert not health.runs_stopped
    texts = [entry.text for entry in health.entries]
    assert any("ABORT-DAG-ON (return 0)" in text for text in texts), texts
    assert not any("condor_rm" in text or "user" in text for text in texts), texts
    assert not any("again" in entry.advice for entry in health.entries)
    assert exit_codes(status, health) == NOTHING
    for run in status.runs:
        assert run.state in (State.COMPLETED, State.SKIPPED)
        assert run.gate.stopped is not None
    assert [run.gate.stopped.epoch for run in status.runs if run.gate and run.gate.stopped] == [
        2 if value == 0 else 1,
        0,
    ]


def test_return_0_ends_sub_dags_too(tmp_path: Path) -> None:
    dagdir = aborted(tmp_path, "job", 42, removal=BY_SCHEDD.replace("100", "90"))
    extra = "ABORT-DAG-ON a-train_epoch1 42 RETURN 0\nSUBDAG EXTERNAL s inner.dag"
    dagdir.write("run.dag", chains({"a": 4}, extra=extra))
    dagdir.write("inner.dag", chains({"b": 2}))
    inner = Out().start("01-01 08:00:00", cluster=90).say("Received SIGUSR1", "01-01 12:00:00")
    dagdir.write("inner.dag.dagman.out", inner.exit(2, "01-01 12:00:00", 90).data)
    status, health = read(dagdir.reader(), tmp_path)
    assert not health.open_entries
    stops = [run.gate.stopped for run in status.runs if run.gate is not None]
    assert [stop and stop.epoch for stop in stops] == [1, 0]


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (" RETURN 0", "the DAG was ended on purpose: a-train_epoch1 returned 42"),
        (" RETURN 1", "cannot run: a-train_epoch1 failed"),
    ],
)
def test_nodes_after_an_abort_have_its_cause(tmp_path: Path, ending: str, why: str) -> None:
    builder = aborted(tmp_path, "job", 42, ending).reader().snapshot_builder()
    for node in ("a-train_epoch2", "a-train_epoch3"):
        row = builder.node_row(("run.dag", node))
        assert row is not None
        assert state_reason(row) == why


@pytest.mark.parametrize(
    ("how", "value", "ending"),
    [("POST", 42, " RETURN 1"), ("job", 42, " RETURN 1"), ("PRE", 42, ""), ("job", 42, "")],
)
def test_failing_abort_names_its_cause_first(
    tmp_path: Path, how: str, value: int, ending: str
) -> None:
    # Without RETURN DAGMan exits with the value itself, and above 2 the schedd restarts it.
    value = value if ending else 2
    status, health = read(aborted(tmp_path, how, value, ending).reader(), tmp_path)
    first = health.entries[0]
    assert first.severity is Severity.STOPPED
    assert "ABORT-DAG-ON" in first.text
    assert str(value) in first.text
    assert ("run.dag", "a-train_epoch1") in first.node_keys
    # The abort leaves undone three epochs of run a and both of run b.
    assert first.epochs_blocked == 5
    assert len(first.runs) == 2
    assert list(health.open_entries) == [first]
    assert health.runs_stopped == 2
    assert exit_codes(status, health) == {"all": 3, "done": 3, "failed": 3, "held": None}


def test_run_that_failed_before_the_abort_stays_failed(tmp_path: Path) -> None:
    dagdir = aborted(tmp_path, "job", 42)
    log = EventLog()
    log._cluster = 200
    job = log.submit("b-train_epoch0")
    log.execute(job)
    log.end(job, 7)
    dagdir.write("metl.log", (tmp_path / "metl.log").read_bytes().split(b"000 (102")[0])
    dagdir.append("metl.log", log.bytes())
    log = EventLog(log.time)
    log._cluster = 300
    job = log.submit("a-train_epoch1")
    log.execute(job)
    log.end(job, 42)
    dagdir.append("metl.log", log.bytes())
    status, health = read(dagdir.reader(), tmp_path)
    assert [run.state for run in status.runs] == [State.COMPLETED, State.FAILED]
    assert [entry.text for entry in health.open_entries] == ["epoch 1: exited with return value 7"]


def test_real_gate_aborts_its_sub_dag(shared: Shared) -> None:
    path = shared("cases/abort-dag-on-return-0")
    reader = opened(path)
    status, health = read(reader, path)
    assert exit_codes(status, health) == NOTHING
    assert not health.open_entries
    # The other notes of this run name no user and no removal of the DAG.
    assert {entry.kind for entry in health.entries} == {"ended-early"}
    r1 = next(run for run in status.runs if run.run == "r1")
    assert r1.state is State.COMPLETED
    assert r1.epochs_done == 3
    assert r1.gate.stopped.node == "r1-train_epoch3"
    assert not status.side_nodes.failed


def test_abort_is_known_without_dagmans_output(shared: Shared, tmp_path: Path) -> None:
    """The value of the node and DAGMan's own exit status show the abort as well."""
    path = shared("cases/abort-dag-on-return-0")
    for file in path.iterdir():
        if not file.name.endswith((".dagman.out", ".metrics", ".md")):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    reader = opened(tmp_path)
    status, health = read(reader, tmp_path)
    assert not health.open_entries
    assert exit_codes(status, health)["all"] == 0


FALSE = "The job attribute OnExitRemove expression '{}' evaluated to FALSE"
NODE = "run0-train_epoch0"


def requeue(log: EventLog, cluster: int, end: str, reason: str = FALSE.format("x")) -> None:
    text = "Job was evicted.\n\t(0) Job terminated and was requeued\n"
    text += "\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage\n"
    log.add("004", cluster, f"{text}\t0  -  Run Bytes Sent By Job\n\t{end}\n\t{reason}", hours=1)


def ledger_of(reader: DagdirReader) -> Ledger:
    return reader.snapshot_builder().ledger()


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ("(1) Normal termination (return value 5)", "return value 5"),
        ("(0) Abnormal termination (signal 11)", "signal 11"),
        # Its policy says that it is not done, whatever its exit code.
        ("(1) Normal termination (return value 0)", "return value 0"),
    ],
)
@pytest.mark.parametrize("last", [0, 5])
def test_requeue_is_not_an_eviction(tmp_path: Path, end: str, cause: str, last: int) -> None:
    log = EventLog()
    job = log.submit(NODE)
    for _ in range(2):
        log.execute(job)
        requeue(log, job, end)
    log.execute(job)
    log.end(job, last)
    dagdir = write(tmp_path, chains({"run0": 1}), log)
    requeued = ledger_of(dagdir.reader()).executions[:2]
    assert {entry.outcome for entry in requeued} == {Outcome.FAILED}
    assert all(cause in (entry.cause or "") for entry in requeued)
    assert all((entry.cause or "").endswith("(requeued by the job)") for entry in requeued)
    health = health_of(dagdir)
    assert "evicted" not in {entry.kind for entry in health.entries}
    # Lost hours count once, whether the node succeeds in the end or not.
    lost = sum(entry.gpu_hours for entry in health.entries)
    assert lost == pytest.approx(2.0 + (last == 5) * 2.0)
    assert not any("DAGMan" in entry.advice for entry in health.entries)


def test_requeues_of_a_real_pool(shared: Shared) -> None:
    """max_retries, on_exit_remove and retry_until: no job was evicted."""
    reader = opened(shared("cases/own-requeue-is-called-evicted") / "dagdir")
    executions = ledger_of(reader).executions
    assert Outcome.EVICTED not in {entry.outcome for entry in executions}
    failed = [entry for entry in executions if "exited with return value 5" in (entry.cause or "")]
    assert len(failed) == 11
    assert sum((entry.cause or "").endswith("requeued by the job)") for entry in failed) == 5
    (cause,) = [
        each for each in causes_of(executions, HourUnit.GPU) if "return value 5" in each.cause
    ]
    assert cause.executions == 11


def submissions(*starts: int, status: int = 1) -> bytes:
    """DAGMan's output: a submission at each of these hours; each ends an hour before the next."""
    made = Out()
    for cluster, hour in enumerate(starts, start=90):
        made.start(f"01-01 {hour:02}:00:00", cluster=cluster)
        made.exit(status, f"01-01 {hour + 4:02}:59:00", cluster)
    return made.data


@pytest.mark.parametrize(
    ("retry", "tries", "kind", "ending"),
    [
        (0, (1,), "run-failed", "return value 1"),
        (0, (1, 1), "run-failed", "return value 1"),
        (1, (2,), "retries-exhausted", ", 2 of 2 tries used"),
        (1, (2, 2), "retries-exhausted", ", 2 of 2 tries used"),
    ],
)
def test_tries_count_the_last_submission_only(
    tmp_path: Path, retry: int, tries: tuple[int, ...], kind: str, ending: str
) -> None:
    log = EventLog()
    for number, times in enumerate(tries):
        log.time = log.time.replace(hour=8 + 6 * number)
        for _ in range(times):
            job = log.submit(NODE)
            log.execute(job)
            log.end(job, 1)
    dagdir = write(tmp_path, chains({"run0": 2}, retry=retry), log)
    dagdir.write("run.dag.dagman.out", submissions(*(8 + 6 * n for n in range(len(tries)))))
    entry = only(health_of(dagdir), kind)
    assert entry.text.endswith(ending)


def test_real_dag_without_retry_has_no_tries(shared: Shared) -> None:
    path = shared("cases/tries-without-retry") / "dagdir"
    entry = only(health_of(Dagdir(path, "")), "run-failed")
    assert "tries" not in entry.text


AP = HOST.replace("c1.example.org", "ap.example.org")
EXITED = (
    "removed because <OtherJobRemoveRequirements = DAGManJobId =?= 90> fired when job (90.0) "
    "was removed"
)
TRAIN = "SUBMIT-DESCRIPTION watch {\n    executable = w.sh\n    log = metl.log\nLOCAL}\n"


@pytest.mark.parametrize(
    ("reason", "universe", "aliases"),
    [
        (EXITED, "", True),
        ("Removed by DAGMan (by user anna)", "", False),
        (EXITED, "    universe = local\n", False),
        ("Removed by DAGMan (by user anna)", "    universe = local\n", True),
        (EXITED, "    universe = Scheduler\n", False),
        ("DAG Abort: DAG is exiting and writing rescue file. (by user anna)", "", True),
    ],
)
def test_service_node_ends_with_its_dag(
    tmp_path: Path, reason: str, universe: str, aliases: bool
) -> None:
    """The schedd removes it at the end of the DAG: no hours are lost, and no user did it."""
    log = EventLog()
    host = AP if aliases else "<10.0.0.1:9618>"
    log.add("000", 100, f"Job submitted from host: {host}\n    DAG Node: watcher")
    # A local job's starter has its own address; a scheduler universe job has the schedd's.
    local = host.replace("9618?", "40000?") if universe != "    universe = Scheduler\n" else host
    log.add("001", 100, f"Job executing on host: {local}", hours=0.1)
    log.train(NODE)
    log.add("004", 100, "Job was evicted.\n\t(0) CPU times")
    log.remove(100, reason)
    dag = chains({"run0": 1}, extra=TRAIN.replace("LOCAL", universe) + "SERVICE watcher watch")
    dagdir = write(tmp_path, dag, log)
    dagdir.write("run.dag.dagman.out", submissions(8, status=0))
    assert not health_of(dagdir).entries
    builder = dagdir.reader().snapshot_builder()
    ledger, status = builder.ledger(), builder.status()
    hours = status.hours
    if universe or aliases:
        assert ledger.measure is HourUnit.GPU
        assert (hours.goodput, hours.badput) == (2.0, 0.0)
        assert {row.site for row in break_down(ledger).sites} == {"Anvil"}
    assert {row.node: row.state for row in status.special_nodes} == {"watcher": State.COMPLETED}
    assert hours.badput == 0.0


@pytest.mark.parametrize("reason", [EXITED, "Removed by DAGMan (by user anna)"])
@pytest.mark.parametrize("started", [True, False])
def test_idle_service_node_at_the_end_of_its_dag(
    tmp_path: Path, reason: str, started: bool
) -> None:
    """What its machine had ended long before is lost."""
    log = EventLog()
    log.submit("watcher")
    if started:
        log.execute(101)
        log.evict(101, 1013, "The startd was shut down")
    log.train(NODE)
    log.remove(101, reason)
    dag = chains({"run0": 1}, extra=TRAIN.replace("LOCAL", "") + "SERVICE watcher watch")
    dagdir = write(tmp_path, dag, log)
    dagdir.write("run.dag.dagman.out", submissions(8, status=0))
    status = dagdir.reader().snapshot_builder().status()
    assert {row.node: row.state for row in status.special_nodes} == {"watcher": State.COMPLETED}
    assert (status.hours.goodput, status.hours.badput > 0) == (2.0, started)
    assert status.nodes_unlogged == 0


def test_jobs_of_old_logs_count_as_slot_jobs(tmp_path: Path) -> None:
    """An old pool on one machine: submit and execute host are the same."""
    log = EventLog()
    log.add("000", 100, f"Job submitted from host: {AP}\n    DAG Node: {NODE}")
    execute = f"Job executing on host: {AP.replace('9618?', '40000?')}"
    log.add("001", 100, execute, hours=0.1)
    log.end(100)
    hours = write(tmp_path, chains({"run0": 1}), log).reader().snapshot_builder().status().hours
    assert hours.measure is HourUnit.WALL
    assert hours.goodput == 2.0


@pytest.mark.parametrize(
    ("kind", "status", "step", "moment"),
    [
        ("JOB", None, "Submit the DAG again", "when the DAG has ended"),
        ("JOB", 0, RUN_THE_REST, None),
        ("SERVICE", 0, "Nothing to resubmit: its DAG is done", None),
    ],
)
def test_failed_local_job_is_not_badput_and_offers_no_resubmission(
    tmp_path: Path, kind: str, status: int | None, step: str, moment: str | None
) -> None:
    """A DAG whose FINAL node succeeded left no rescue file: all nodes would run again."""
    log = EventLog()
    log.add("000", 100, f"Job submitted from host: {AP}\n    DAG Node: gather")
    log.add("001", 100, f"Job executing on host: {AP}", hours=0.1)
    log.end(100, 1)
    log.train(NODE)
    log.train("last")
    dag = chains({"run0": 1}, extra=f"{TRAIN}{kind} gather watch\nFINAL last watch")
    dag = dag.replace("LOCAL", "")
    dagdir = write(tmp_path, dag, log)
    made = out(0)
    written = made.data if status == 0 else b"".join(made.lines[:-1])
    dagdir.write("run.dag.dagman.out", written.replace(b"12:00:00", b"23:00:00"))
    entry = only(health_of(dagdir), "node-failed")
    assert entry.steps[-1] == step
    assert (entry.act is None, entry.act_when) == (status == 0, moment)
    badput = dagdir.reader().snapshot_builder().status().hours.badput
    assert (entry.gpu_hours, badput) == (0.0, 0.0)


def test_real_service_node_is_not_a_failure(shared: Shared) -> None:
    path = shared("cases/service-node-ended-with-its-dag")
    reader = opened(path)
    hours = reader.snapshot_builder().status().hours
    assert hours.measure is HourUnit.CPU
    assert (round(hours.goodput, 1), hours.badput) == (17.3, 0.0)
    assert not health_of(Dagdir(path, "")).entries
