"""Jobs that end by themselves: requeued by their policy, tried again by DAGMan, SERVICE nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import Outcome, State
from metlmon.snapshot.ledger import HourUnit, Ledger
from metlmon.stats.causes import causes_of
from tests.health.ensembles import HOST, EventLog, chains, health_of, only, write
from tests.support.dagdir_builder import Dagdir

FALSE = "The job attribute OnExitRemove expression '{}' evaluated to FALSE"
NODE = "run0-train_epoch0"


def requeue(log: EventLog, cluster: int, end: str, reason: str = FALSE.format("x")) -> None:
    text = "Job was evicted.\n\t(0) Job terminated and was requeued\n"
    text += "\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage\n"
    log.add("004", cluster, f"{text}\t0  -  Run Bytes Sent By Job\n\t{end}\n\t{reason}", hours=1)


def ledger_of(reader: DagdirReader) -> Ledger:
    return reader.snapshot_builder().ledger()


# --- requeued by the job --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ("(1) Normal termination (return value 5)", "return value 5"),
        ("(0) Abnormal termination (signal 11)", "signal 11"),
        # Its policy says that it is not done, whatever it returned.
        ("(1) Normal termination (return value 0)", "return value 0"),
    ],
)
@pytest.mark.parametrize("last", [0, 5])
def test_a_requeue_is_no_eviction(tmp_path: Path, end: str, cause: str, last: int) -> None:
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
    # What was lost is counted once, whether the node succeeded in the end or not.
    lost = sum(entry.gpu_hours for entry in health.entries)
    assert lost == pytest.approx(2.0 + (last == 5) * 2.0)
    assert not any("DAGMan" in entry.advice for entry in health.entries)


def test_the_requeues_of_a_real_pool(shared: Callable[[str], Path]) -> None:
    """max_retries, on_exit_remove and retry_until: nobody evicted a job."""
    reader = DagdirReader(shared("cases/own-requeue-is-called-evicted") / "dagdir", live=False)
    reader.open()
    reader.read_all()
    executions = ledger_of(reader).executions
    assert Outcome.EVICTED not in {entry.outcome for entry in executions}
    failed = [entry for entry in executions if "exited with return value 5" in (entry.cause or "")]
    assert len(failed) == 11
    assert sum((entry.cause or "").endswith("requeued by the job)") for entry in failed) == 5
    (cause,) = [each for each in causes_of(executions) if "return value 5" in each.text]
    assert cause.executions == 11


# --- tries ----------------------------------------------------------------------------------


def fails(log: EventLog, times: int, value: int = 1) -> None:
    for _ in range(times):
        job = log.submit(NODE)
        log.execute(job)
        log.end(job, value)


def submissions(*starts: int) -> str:
    """DAGMan's output: one run at each hour of the day, that ended an hour before the next."""
    text = ""
    for number, hour in enumerate(starts):
        name = f"condor_scheduniv_exec.{90 + number}.0"
        text += (
            f"01/01/26 {hour:02}:00:00 ** {name} (CONDOR_DAGMAN) STARTING UP\n"
            f"01/01/26 {hour:02}:00:00 Number of pre-completed nodes: 0\n"
        )
        last = hour + 4
        text += (
            f"01/01/26 {last:02}:59:00 **** {name} (condor_DAGMAN) pid 1 EXITING WITH STATUS 1\n"
        )
    return text


@pytest.mark.parametrize(
    ("retry", "tries", "kind", "ending"),
    [
        (0, (1,), "run-failed", "return value 1"),
        (0, (1, 1), "run-failed", "return value 1"),
        (1, (2,), "retries-exhausted", ", 2 of 2 tries used"),
        (1, (2, 2), "retries-exhausted", ", 2 of 2 tries used"),
    ],
)
def test_tries_are_those_of_the_last_submission(
    tmp_path: Path, retry: int, tries: tuple[int, ...], kind: str, ending: str
) -> None:
    log = EventLog()
    for number, times in enumerate(tries):
        log.time = log.time.replace(hour=8 + 6 * number)
        fails(log, times)
    dagdir = write(tmp_path, chains({"run0": 2}, retry=retry), log)
    dagdir.write("run.dag.dagman.out", submissions(*(8 + 6 * n for n in range(len(tries)))))
    entry = only(health_of(dagdir), kind)
    assert entry.text.endswith(ending)


def test_unless_exit_ended_the_tries(tmp_path: Path) -> None:
    log = EventLog()
    fails(log, 1, value=7)
    dag = chains({"run0": 2}, extra=f"RETRY {NODE} 4 UNLESS-EXIT 7")
    dagdir = write(tmp_path, dag, log)
    dagdir.write("run.dag.dagman.out", submissions(8))
    entry = only(health_of(dagdir), "run-failed")
    assert "UNLESS-EXIT 7" in entry.text
    assert "tries used" not in entry.text


def test_a_real_dag_without_retry(shared: Callable[[str], Path]) -> None:
    path = shared("cases/tries-without-retry") / "dagdir"
    entry = only(health_of(Dagdir(path, "")), "run-failed")
    assert "tries" not in entry.text


# --- the access point -------------------------------------------------------------------------


AP = HOST.replace("c1.example.org", "ap.example.org")
EXITED = (
    "removed because <OtherJobRemoveRequirements = DAGManJobId =?= 90> fired when job (90.0) "
    "was removed"
)
TRAIN = "SUBMIT-DESCRIPTION watch {\n    executable = w.sh\n    log = metl.log\nLOCAL}\n"


@pytest.mark.parametrize("reason", [EXITED, "Removed by DAGMan (by user anna)"])
@pytest.mark.parametrize("universe", ["", "    universe = local\n", "    universe = Scheduler\n"])
@pytest.mark.parametrize("aliases", [True, False])
def test_a_service_node_ends_with_its_dag(
    tmp_path: Path, reason: str, universe: str, aliases: bool
) -> None:
    """The schedd removes it at the end of the DAG: nothing was lost, and no user did it."""
    log = EventLog()
    host = AP if aliases else "<10.0.0.1:9618>"
    log.add("000", 100, f"Job submitted from host: {host}\n    DAG Node: watcher")
    # A local job's starter has an address of its own; a scheduler universe job has the schedd's.
    local = host.replace("9618?", "40000?") if universe != "    universe = Scheduler\n" else host
    log.add("001", 100, f"Job executing on host: {local}", hours=0.1)
    log.train(NODE)
    log.add("004", 100, "Job was evicted.\n\t(0) CPU times")
    log.remove(100, reason)
    dag = chains({"run0": 1}, extra=TRAIN.replace("LOCAL", universe) + "SERVICE watcher watch")
    dagdir = write(tmp_path, dag, log)
    out = submissions(8).replace("STATUS 1", "STATUS 0")
    dagdir.write("run.dag.dagman.out", out)
    assert not health_of(dagdir).entries
    builder = dagdir.reader().snapshot_builder()
    ledger, status = builder.ledger(), builder.status()
    hours = status.gpu_hours
    if universe or aliases:
        assert ledger.measure is HourUnit.GPU
        assert (hours.goodput, hours.badput) == (2.0, 0.0)
        assert {row.site for row in status.sites} == {"Anvil"}
    assert {row.node: row.state for row in status.special_nodes} == {"watcher": State.COMPLETED}
    assert hours.badput == 0.0


def test_logs_without_attributes_are_those_of_slots(tmp_path: Path) -> None:
    """An old pool on one machine: submitted from, and executed on, the same host."""
    log = EventLog()
    log.add("000", 100, f"Job submitted from host: {AP}\n    DAG Node: {NODE}")
    execute = f"Job executing on host: {AP.replace('9618?', '40000?')}"
    log.add("001", 100, execute, hours=0.1)
    log.end(100)
    hours = write(tmp_path, chains({"run0": 1}), log).reader().snapshot_builder().status().gpu_hours
    assert hours.measure is HourUnit.WALL
    assert hours.goodput == 2.0


def test_a_local_job_that_fails_is_no_badput(tmp_path: Path) -> None:
    log = EventLog()
    log.add("000", 100, f"Job submitted from host: {AP}\n    DAG Node: gather")
    log.add("001", 100, f"Job executing on host: {AP}", hours=0.1)
    log.end(100, 1)
    log.train(NODE)
    dag = chains({"run0": 1}, extra=TRAIN.replace("LOCAL", "") + "JOB gather watch")
    dagdir = write(tmp_path, dag, log)
    entry = only(health_of(dagdir), "node-failed")
    assert entry.gpu_hours == 0.0
    assert dagdir.reader().snapshot_builder().status().gpu_hours.badput == 0.0


def test_a_real_service_node(shared: Callable[[str], Path]) -> None:
    path = shared("cases/service-node-ended-with-its-dag")
    reader = DagdirReader(path, live=False)
    reader.open()
    reader.read_all()
    hours = reader.snapshot_builder().status().gpu_hours
    assert hours.measure is HourUnit.CPU
    assert (round(hours.goodput, 1), hours.badput) == (17.3, 0.0)
    assert not health_of(Dagdir(path, "")).entries
