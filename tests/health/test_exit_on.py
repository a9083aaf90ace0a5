"""``--exit-on`` against its table in the guide, for states of a run, another node and DAGMan."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.cli import CONDITIONS, Exit
from metlmon.cli.exit_conditions import exit_condition
from metlmon.health.build import make_health
from metlmon.health.types import CALM
from metlmon.jobfiles.records import TrainingOutput
from metlmon.live.dagdir_reader import DagdirReader
from tests.conftest import Shared
from tests.health.ensembles import (
    REMOVED_WITH_DAG,
    EventLog,
    chains,
    health_of,
    removed_after_hold,
    write,
)
from tests.support.commands import Captured, run_command
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Out
from tests.support.recordings import FIXTURES, opened
from tests.support.records import stats_input

AS_OF = datetime(2026, 1, 1, 20)
NODE = "run0-train_epoch0"

ENDS = {"alive": None, "done": 0, "failed": 1, "removed": 2}
NODES = ("waiting", "running", "held", "failed", "completed")


def codes_of(reader: DagdirReader) -> dict[str, int | None]:
    builder = reader.snapshot_builder()
    status, health = builder.status(), make_health(stats_input(builder))
    return {name: exit_condition(name)(status, lambda: health) for name in list(CONDITIONS)[:4]}


def out(end: int | None, cluster: int = 90, hour: int = 8) -> bytes:
    made, late = Out().start(f"01-01 {hour:02}:00:00", 0, cluster), f"01-01 {hour + 7:02}:00:00"
    if end == 2:
        made.say("Received SIGUSR1", late)
    return made.data if end is None else made.exit(end, late, cluster).data


def put(log: EventLog, node: str, state: str) -> None:
    """Bring a node into a state."""
    if state == "waiting":
        return
    job = log.submit(node)
    log.execute(job)
    if state == "held":
        log.hold(job, "disk full", 9, hours=1)
    elif state != "running":
        log.end(job, int(state == "failed"), hours=1)


def possible(run: str, other: str, dagman: str) -> bool:
    """Whether DAGMan leaves such nodes at its end."""
    nodes = {run, other}
    match dagman:
        case "done":
            return nodes == {"completed"}
        case "failed":
            return "failed" in nodes and nodes <= {"failed", "completed"}
        case "removed":
            # What it removes is "removed", as waiting nodes are never submitted.
            return nodes <= {"waiting", "failed", "completed"}
    return True


def expected(run: str, other: str, dagman: str) -> dict[str, int | None]:
    """The exit codes by the guide."""
    nodes = {run, other}
    undone = nodes != {"completed"}
    failed = "failed" in nodes or dagman == "failed" or (dagman == "removed" and undone)
    held = "held" in nodes
    if run == "failed" or dagman == "failed" or (dagman == "removed" and undone):
        every: int | None = 3
    elif run != "completed":
        every = None
    else:
        every = {"failed": 3, "completed": 0}.get(other)
    return {
        "all": every,
        "done": {"alive": None, "done": 0, "failed": 3, "removed": 3}[dagman],
        "failed": 3 if failed else None,
        "held": 4 if held else None,
    }


CASES = [case for case in itertools.product(NODES, NODES, ENDS) if possible(*case)]


@pytest.mark.parametrize(("run", "other", "dagman"), CASES)
def test_exit_code_of_each_combination(tmp_path: Path, run: str, other: str, dagman: str) -> None:
    log = EventLog()
    put(log, NODE, run)
    put(log, "gather", other)
    dagdir = Dagdir(tmp_path, chains({"run0": 1}, extra="JOB gather train"))
    dagdir.write("metl.log", log.bytes())
    dagdir.write("run.dag.dagman.out", out(ENDS[dagman]))
    reader = dagdir.reader(AS_OF, live=dagman == "alive")
    assert codes_of(reader) == expected(run, other, dagman)


def test_failed_node_of_no_run_on_a_real_pool(shared: Shared) -> None:
    path = shared("cases/exit-on-failed-misses-a-failed-dag") / "dagdir"
    assert codes_of(opened(path)) == {"all": 3, "done": 3, "failed": 3, "held": None}


# --- continued DAGs -----------------------------------------------------------------------------


def continued(tmp_path: Path, second: str, end: int | None) -> DagdirReader:
    """A DAG that was removed in its second epoch, and its continuation."""
    log = EventLog()
    log.train(NODE)
    job = log.submit("run0-train_epoch1")
    log.execute(job)
    log.remove(job, REMOVED_WITH_DAG)
    log.time += timedelta(hours=10 - log.time.hour)
    put(log, "run0-train_epoch1", second)
    dag = chains({"run0": 2})
    dagdir = Dagdir(tmp_path, dag)
    dagdir.write("run.dag.dagman.out", out(2, hour=1).replace(b" 08:", b" 09:"))
    if end is not None or second != "waiting":
        dagdir.write("run-2.dag.dagman.out", out(end, cluster=91, hour=10))
    lines = [line for line in dag.splitlines(True) if "epoch0 CHILD" not in line]
    dagdir.write("run-2.dag", "".join(line for line in lines if f" {NODE} " not in line))
    dagdir.write("metl.log", log.bytes())
    return dagdir.reader(AS_OF, live=end is None)


@pytest.mark.parametrize(
    ("second", "end", "codes"),
    [
        ("completed", 0, {"all": 0, "done": 0, "failed": None}),
        ("running", None, {"all": None, "done": None, "failed": None}),
        ("failed", 1, {"all": 3, "done": 3, "failed": 3}),
        # Written but not submitted: the removed run is still over.
        ("waiting", None, {"all": 3, "done": 3, "failed": 3}),
    ],
)
def test_continued_dag_counts_with_its_continuation(
    tmp_path: Path, second: str, end: int | None, codes: dict[str, int | None]
) -> None:
    assert codes_of(continued(tmp_path, second, end)) == {**codes, "held": None}


def test_more_epochs_are_not_changed_arguments(tmp_path: Path) -> None:
    """metlmon continue --epochs: the arguments follow the VAR, which differs in the second DAG."""
    log = EventLog()
    log.train(NODE)
    log.train("run0-train_epoch1")
    variables = 'VARS ALL_NODES epochs="{}"\n'
    dagdir = Dagdir(tmp_path, chains({"run0": 1}) + variables.format(1))
    dag = chains({"run0": 2}).replace("JOB run0-train_epoch0 train\n", "").splitlines(True)
    rest = "".join(line for line in dag if NODE not in line)
    dagdir.write("run-2.dag", rest + variables.format(2))
    dagdir.write("metl.log", log.bytes())
    made = stats_input(dagdir.reader().snapshot_builder())
    (run,) = (entry.key for entry in made.ledger.runs)

    def changed(before: str, after: str) -> bool:
        arguments = {0: {"max_epochs": before}, 5: {"max_epochs": after}}
        trainings = {run: TrainingOutput(run, {}, {}, arguments)}
        health = make_health(replace(made, job_files=replace(made.job_files, trainings=trainings)))
        return "configuration" in {entry.kind for entry in health.entries}

    assert not changed("1", "2")
    assert changed("1", "30")
    assert changed("30", "2")


def test_real_continuation(shared: Shared, tmp_path: Path) -> None:
    path = shared("cases/done-after-continue") / "dagdir"
    assert codes_of(opened(path)) == {"all": 0, "done": 0, "failed": None, "held": None}
    # Only the first DAG counts until the second one is submitted.
    for file in path.iterdir():
        if file.is_file() and not file.name.startswith("c28c-2"):
            shutil.copyfile(file, tmp_path / file.name)
    log = (tmp_path / "metl.log").read_bytes()
    (tmp_path / "metl.log").write_bytes(log.split(b"000 (888.")[0])
    assert codes_of(opened(tmp_path))["done"] == 3


# --- ``--exit-on`` and ``metlmon health`` of ensembles that cannot continue -------------------


def test_finished_dag_without_runs_exits_with_0(capsys: Captured, tmp_path: Path) -> None:
    log = EventLog()
    log.train("work")
    write(tmp_path, "JOB work w.sub\n", log)
    words = ("--exit-on", "all", "--timeout", "0")
    assert run_command("status", capsys, tmp_path, *words)[0] == Exit.OK


def test_health_fits_80_columns(capsys: Captured, tmp_path: Path) -> None:
    from metlmon.tables.health import health_lines
    from metlmon.text.spans import text, width

    health = health_of(removed_after_hold(tmp_path))
    lines = health_lines(health, None, 80)
    assert all(width(each) <= 80 for each in lines)
    rows = [text(each) for each in lines]
    assert rows[0] == " ✗ STOPPED  10 of 10 runs · 30 epochs left · no job queued"
    heading = "held, then removed by the access point's policy (held > 30 d)"
    assert rows[2].startswith(f" ✗ {heading}")
    assert rows[2].endswith("10 runs")
    printed = run_command("health", capsys, tmp_path)[1]
    for entry in health.open_entries:
        # Reasons are never cut.
        assert entry.reason is not None
        assert entry.reason in printed
        assert all(step in printed for step in entry.steps)
        assert "[metlmon act resubmit]" in printed


def test_json_agrees_with_its_schema(capsys: Captured, tmp_path: Path) -> None:
    removed_after_hold(tmp_path)
    output = json.loads(run_command("health", capsys, tmp_path, "--json")[1])
    status = json.loads(run_command("status", capsys, tmp_path, "--json")[1])
    assert output["entries"] == status["health"]
    assert output["runs_stopped"] == 10
    first = output["entries"][0]
    assert first.keys() >= {
        *("kind", "severity", "open", "dag", "runs", "nodes", "epochs_blocked", "since", "until"),
        *("code", "subcode", "code_name", "policy", "reason", "advice", "act", "gpu_hours"),
        *("site", "text"),
    }
    assert (first["kind"], first["severity"]) == ("removed-by-policy", "stopped")
    assert first["open"]
    assert first["code_name"] in ("JobExecuteExceeded", "TransferOutputError")
    assert "STOPPED" in run_command("status", capsys, tmp_path)[1]


def test_removal_time_is_shown(tmp_path: Path) -> None:
    from metlmon.health.types import HealthEntry, Severity
    from metlmon.tables.health import since_text
    from tests.health.ensembles import START

    entry = HealthEntry(
        key="held",
        kind="held",
        severity=Severity.BLOCKED,
        open=True,
        text="held",
        steps=("Release",),
        since=START,
        removal_at=START + timedelta(days=30, hours=2),
    )
    assert since_text(entry, START + timedelta(days=29)) == "held 29d, removed in 1d"
    assert since_text(entry, START + timedelta(days=31)) == "held 31d, to be removed now"


def test_json_has_warnings() -> None:
    """Warnings are objects of another module, which this command needs for nothing else."""
    path = FIXTURES / "health" / "dag-changed"
    process = subprocess.run(
        [sys.executable, "-m", "metlmon", "health", str(path), "--json"],
        capture_output=True,
        check=True,
    )
    assert json.loads(process.stdout)["warnings"]


def test_worst_entry_is_the_first_line(capsys: Captured) -> None:
    printed = run_command("health", capsys, FIXTURES / "health" / "dag-held")[1]
    assert printed.splitlines()[0].strip() == "■ DAGMan held by researcher (hold 1)"
    printed = run_command("health", capsys, FIXTURES / "health" / "healthy-done")[1]
    assert printed == f" ✓ {CALM}\n"
