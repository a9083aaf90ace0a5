"""DAGs that ABORT-DAG-ON ended: on purpose with RETURN 0, else as a failure with its cause."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from metlmon.cli.exit_conditions import exit_condition
from metlmon.health.build import make_health
from metlmon.health.types import Health, Severity
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import State
from metlmon.snapshot.row_text import state_reason
from metlmon.snapshot.types import Status
from tests.health.ensembles import EventLog, chains
from tests.support.dagdir_builder import Dagdir
from tests.support.records import stats_input

BY_DAGMAN = "DAG Abort: DAG is exiting and writing rescue file. (by user anna)"
BY_SCHEDD = (
    "removed because <OtherJobRemoveRequirements = DAGManJobId =?= 100> fired when job (100.0) "
    "was removed"
)
OLD = "via condor_rm (by user anna)"


def out(value: int, *lines: str) -> str:
    """DAGMan's output of one run that ended with a value."""
    stamp = "01/01/26 12:00:00"
    texts = [
        "** condor_scheduniv_exec.100.0 (CONDOR_DAGMAN) STARTING UP",
        "Number of pre-completed nodes: 0",
    ]
    end = f"**** condor_scheduniv_exec.100.0 (condor_DAGMAN) pid 1 EXITING WITH STATUS {value}"
    began = "".join(f"01/01/26 08:00:00 {text}\n" for text in texts)
    return began + "".join(f"{stamp} {text}\n" for text in [*lines, end])


def aborted(
    path: Path, how: str, value: int, ending: str = " RETURN 0", removal: str = BY_DAGMAN
) -> Dagdir:
    """Run a of two runs ends the DAG with its second epoch, while one of run b runs."""
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
        log.add(
            "016",
            job,
            f"POST Script terminated.\n\t(1) Normal termination (return value {value})\n"
            f"    DAG Node: {node}",
        )
    if how == "PRE":
        lines.append(f"PRE Script of node {node} failed with status {value}")
        log.time = datetime(2026, 1, 1, 12)
    kind = how if how == "job" else f"{how} script"
    lines.append(f"Aborting DAG because we got the ABORT exit value from a {kind}")
    log.remove(other, removal)
    dagdir = Dagdir(path, chains({"a": 4, "b": 2}, extra="\n".join(extra)))
    dagdir.write("metl.log", log.bytes())
    code = 0 if ending == " RETURN 0" else int(ending.split()[1]) if ending else value
    dagdir.write("run.dag.dagman.out", out(code, *lines))
    return dagdir


def read(reader: DagdirReader, path: Path) -> tuple[Status, Health]:
    builder = reader.snapshot_builder()
    return builder.status(), make_health(stats_input(builder, path))


def exit_codes(status: Status, health: Health) -> dict[str, int | None]:
    names = ("all", "done", "failed", "held")
    return {name: exit_condition(name)(status, lambda: health) for name in names}


NOTHING = {"all": 0, "done": 0, "failed": None, "held": None}

HOW = [("POST", 42), ("job", 42), ("PRE", 42), ("job", -9), ("job", 0)]


@pytest.mark.parametrize("removal", [BY_DAGMAN, BY_SCHEDD, OLD])
@pytest.mark.parametrize(("how", "value"), HOW)
def test_return_0_is_an_end_on_purpose(tmp_path: Path, how: str, value: int, removal: str) -> None:
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
        assert run.gate is not None
        assert run.gate.stopped is not None
    assert [run.gate.stopped.epoch for run in status.runs if run.gate and run.gate.stopped] == [
        2 if value == 0 else 1,
        0,
    ]


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (" RETURN 0", "the DAG was ended on purpose: a-train_epoch1 returned 42"),
        (" RETURN 1", "cannot run: a-train_epoch1 failed"),
    ],
)
def test_why_nodes_behind_an_abort_did_not_run(tmp_path: Path, ending: str, why: str) -> None:
    builder = aborted(tmp_path, "job", 42, ending).reader().snapshot_builder()
    for node in ("a-train_epoch2", "a-train_epoch3"):
        row = builder.node_row(("run.dag", node))
        assert row is not None
        assert state_reason(row) == why


@pytest.mark.parametrize("ending", [" RETURN 1", ""])
@pytest.mark.parametrize(("how", "value"), HOW[:3])
def test_a_failing_abort_names_its_cause_first(
    tmp_path: Path, how: str, value: int, ending: str
) -> None:
    # Without RETURN DAGMan ends with the value itself, and above 2 the schedd starts it again.
    value = value if ending else 2
    status, health = read(aborted(tmp_path, how, value, ending).reader(), tmp_path)
    first = health.entries[0]
    assert first.severity is Severity.STOPPED
    assert "ABORT-DAG-ON" in first.text
    assert str(value) in first.text
    assert ("run.dag", "a-train_epoch1") in first.node_keys
    # All that the abort left undone is its doing: three epochs of run a, and both of run b.
    assert first.epochs_blocked == 5
    assert len(first.runs) == 2
    assert list(health.open_entries) == [first]
    assert health.runs_stopped == 2
    assert exit_codes(status, health) == {"all": 3, "done": 3, "failed": 3, "held": None}


def test_a_run_that_failed_before_the_abort_stays_failed(tmp_path: Path) -> None:
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


def test_a_real_gate_that_ends_its_sub_dag(shared: Callable[[str], Path]) -> None:
    path = shared("cases/abort-dag-on-return-0")
    reader = DagdirReader(path, live=False)
    reader.open()
    reader.read_all()
    status, health = read(reader, path)
    assert exit_codes(status, health) == NOTHING
    assert not health.open_entries
    # The other notes of this run do not name a user, or a removal of the DAG.
    assert {entry.kind for entry in health.entries} == {"ended-early"}
    r1 = next(run for run in status.runs if run.run == "r1")
    assert r1.state is State.COMPLETED
    assert r1.epochs_done == 3
    assert r1.gate is not None
    assert r1.gate.stopped is not None
    assert r1.gate.stopped.node == "r1-train_epoch3"
    assert not status.side_nodes.failed


def test_a_gate_without_dagmans_output(shared: Callable[[str], Path], tmp_path: Path) -> None:
    """The value of the node and DAGMan's own return value show the abort as well."""
    path = shared("cases/abort-dag-on-return-0")
    for file in path.iterdir():
        if not file.name.endswith((".dagman.out", ".metrics", ".md")):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    reader = DagdirReader(tmp_path, live=False)
    reader.open()
    reader.read_all()
    status, health = read(reader, tmp_path)
    assert not health.open_entries
    assert exit_codes(status, health)["all"] == 0
