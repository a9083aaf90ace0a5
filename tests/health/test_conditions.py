"""``--exit-on`` and ``metlmon health`` of ensembles that can go on no further."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from metlmon.cli.exit_codes import Exit
from metlmon.health.headline import CALM
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
from tests.support.event_logs import Log, Out

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
NODE = "run0-train_epoch0"


def exits(capsys: Captured, path: Path, what: str) -> int:
    words = ("--exit-on", what, "--timeout", "0")
    return run_command("status", capsys, path, *words)[0]


@pytest.mark.parametrize("what", ["all", "failed"])
def test_a_finished_copy_whose_runs_were_all_removed(
    capsys: Captured, tmp_path: Path, what: str
) -> None:
    removed_after_hold(tmp_path)
    assert exits(capsys, tmp_path, what) == Exit.FAILED
    assert exits(capsys, tmp_path, "held") == Exit.TIMEOUT


def test_a_finished_copy_in_which_nothing_is_queued(capsys: Captured, tmp_path: Path) -> None:
    """One run was removed with the DAG; of the other the next epoch had not been submitted."""
    log = EventLog()
    log.train("run1-train_epoch0")
    log.remove(log.submit(NODE), REMOVED_WITH_DAG)
    write(tmp_path, chains({"run0": 2, "run1": 2}), log)
    assert exits(capsys, tmp_path, "all") == Exit.FAILED


def test_a_copy_of_an_ensemble_that_was_running(capsys: Captured, tmp_path: Path) -> None:
    log = EventLog()
    log.execute(log.submit(NODE))
    write(tmp_path, chains({"run0": 2, "run1": 2}), log)
    assert exits(capsys, tmp_path, "all,failed,held") == Exit.TIMEOUT


def test_a_run_that_failed_while_others_go_on(capsys: Captured, tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path, chains({"run0": 2, "run1": 2}))
    log = Log().submit(77, NODE).execute(77).terminate(77, 1)
    dagdir.write("metl.log", log.submit(78, "run1-train_epoch0").execute(78).data)
    dagdir.write("run.dag.dagman.out", Out().start("09:00:00").submitted(NODE, 77).data)
    assert exits(capsys, tmp_path, "failed") == Exit.FAILED
    assert exits(capsys, tmp_path, "all,done") == Exit.TIMEOUT


def test_a_dag_without_runs_that_is_done(capsys: Captured, tmp_path: Path) -> None:
    log = EventLog()
    log.train("work")
    write(tmp_path, "JOB work w.sub\n", log)
    assert exits(capsys, tmp_path, "all") == Exit.OK


def test_the_command_at_80_columns_without_a_key(capsys: Captured, tmp_path: Path) -> None:
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
        assert entry.advice in printed
        assert "[metlmon act resubmit]" in printed


def test_the_json_is_what_the_interface_says(capsys: Captured, tmp_path: Path) -> None:
    removed_after_hold(tmp_path)
    output = json.loads(run_command("health", capsys, tmp_path, "--json")[1])
    status = json.loads(run_command("status", capsys, tmp_path, "--json")[1])
    assert output["health"] == status["health"]
    assert output["runs_stopped"] == 10
    first = output["health"][0]
    assert first.keys() >= {
        *("kind", "severity", "open", "dag", "runs", "nodes", "epochs_blocked", "since", "until"),
        *("code", "subcode", "code_name", "policy", "reason", "advice", "act", "gpu_hours"),
        *("site", "text"),
    }
    assert (first["kind"], first["severity"], first["open"]) == (
        "removed-by-policy",
        "stopped",
        True,
    )
    assert first["code_name"] == "JobExecuteExceeded" or first["code_name"] == "TransferOutputError"
    assert "STOPPED" in run_command("status", capsys, tmp_path)[1]


def test_the_removal_clock_is_shown(tmp_path: Path) -> None:
    from metlmon.health.types import HealthEntry, Severity
    from metlmon.tables.health import since_text
    from tests.health.ensembles import START

    entry = HealthEntry(
        key="held",
        kind="held",
        severity=Severity.BLOCKED,
        open=True,
        text="held",
        advice="release",
        since=START,
        removal_at=START + timedelta(days=30, hours=2),
    )
    assert since_text(entry, START + timedelta(days=29)) == "held 29d, removed in 1d"
    assert since_text(entry, START + timedelta(days=31)) == "held 31d, to be removed now"


def test_the_json_of_an_ensemble_with_warnings() -> None:
    """Warnings are objects of another module, which nothing else of this command needs."""
    path = FIXTURES / "health" / "dag-changed"
    process = subprocess.run(
        [sys.executable, "-m", "metlmon", "health", str(path), "--json"],
        capture_output=True,
        check=True,
    )
    assert json.loads(process.stdout)["warnings"]


def test_an_error_in_a_submit_description_is_named(capsys: Captured) -> None:
    printed = run_command("health", capsys, FIXTURES / "health" / "submit-failed")[1]
    assert "submission failed: on Line 0 of submit file: failed to create job classad" in printed


def test_the_worst_entry_is_the_first_line(capsys: Captured) -> None:
    printed = run_command("health", capsys, FIXTURES / "health" / "dag-held")[1]
    assert printed.splitlines()[0].strip() == "■ DAGMan held by researcher (hold 1)"
    printed = run_command("health", capsys, FIXTURES / "health" / "healthy-done")[1]
    assert printed == f" ✓ {CALM}\n"
