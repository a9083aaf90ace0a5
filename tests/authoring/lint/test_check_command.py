"""``metlmon check``: what it prints, its JSON, and its exit status."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from metlmon.cli.main import main
from tests.support.commands import Captured, text_output
from tests.support.event_logs import Log
from tests.support.lint_ensemble import DAG, GOOD, damaged, write

WARNED = damaged("ens.dag", "RETRY ALL_NODES 3\n", "")
REFUSED = damaged("ens.dag", "RETRY ALL_NODES 3", "RETRIES ALL_NODES 3")


def test_clean_ensemble_has_no_finding(tmp_path: Path, capsys: Captured) -> None:
    write(tmp_path, GOOD)
    assert text_output("check", capsys, tmp_path, "--strict") == "1 DAG: nothing found\n"


def test_finding_has_its_line_and_a_remedy(tmp_path: Path, capsys: Captured) -> None:
    write(tmp_path, REFUSED)
    assert main(["check", str(tmp_path)]) == 1
    first, todo, second, _, summary = capsys.readouterr().out.splitlines()
    assert first.startswith("ens.dag:2: warning: run0-train_epoch0 has no RETRY (and 3 more)")
    assert todo.startswith("    Add: RETRY ALL_NODES 3")
    assert second.startswith("ens.dag:16: error: 'RETRIES' is not a DAG command")
    assert second.endswith("[unknown-command]")
    assert summary == "1 DAG: 1 error, 1 warning"


def test_event_log_is_not_taken_for_a_dag_file(tmp_path: Path, capsys: Captured) -> None:
    log = Log().submit(7).disconnect(7).reconnect_failed(7).data
    (tmp_path / "a.log").write_bytes(log + b"\tJob terminated of its own accord at 10:00.\n")
    assert main(["check", str(tmp_path)]) == 2
    assert "has nodes" not in capsys.readouterr().err
    (tmp_path / "mine").write_text("# first\n\nCONFIG a.config\nJOB a a.sub\n")
    assert main(["check", str(tmp_path)]) == 2
    assert "but mine has nodes" in capsys.readouterr().err


def test_scripts_run_in_the_directories_of_their_nodes(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run.dag").write_text(
        "JOB a a.sub DIR run\nSPLICE s s.dag DIR run\nSCRIPT POST ALL_NODES ../after.sh\n"
    )
    (tmp_path / "run/s.dag").write_text("JOB b a.sub\nSCRIPT PRE b ../after.sh\n")
    (tmp_path / "run/a.sub").write_text("executable = /bin/true\nlog = a.log\nqueue\n")
    (tmp_path / "after.sh").write_text("#!/bin/sh\n")
    (tmp_path / "after.sh").chmod(0o755)
    main(["check", str(tmp_path)])
    assert "after.sh" not in capsys.readouterr().out
    (tmp_path / "run.dag").write_text(
        "JOB a a.sub DIR run\nJOB b a.sub\nSCRIPT POST ALL_NODES ../after.sh\n"
    )
    (tmp_path / "a.sub").write_text("executable = /bin/true\nlog = a.log\nqueue\n")
    (tmp_path / "run/s.dag").unlink()
    assert main(["check", str(tmp_path)]) == 1
    assert "POST script ../after.sh of ALL_NODES is not there" in capsys.readouterr().out


def test_files_of_queue_items_are_not_looked_for(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "run.dag").write_text("JOB a a.sub\n")
    (tmp_path / "items").write_text("left\nright\n")
    (tmp_path / "a.sub").write_text(
        "executable = /bin/true\nlog = a.log\ninitialdir = $(side)\n"
        "transfer_input_files = data/, $(side).txt\nqueue side from items\n"
    )
    main(["check", str(tmp_path)])
    assert "[missing-" not in capsys.readouterr().out


def test_strict_counts_warnings_but_no_notes(tmp_path: Path, capsys: Captured) -> None:
    write(tmp_path, WARNED)
    assert main(["check", str(tmp_path)]) == 0
    assert main(["check", "--strict", str(tmp_path / "ens.dag")]) == 1
    write(tmp_path, {**GOOD, "ens.dag": DAG.replace("\n", "\r\n")})
    assert "note" in text_output("check", capsys, "--strict", tmp_path)


def test_json(tmp_path: Path, capsys: Captured) -> None:
    write(tmp_path, REFUSED)
    assert main(["check", "--json", str(tmp_path)]) == 1
    output = json.loads(capsys.readouterr().out)
    findings = output.pop("findings")
    assert output == {
        "schema": 1,
        "dagdir": str(tmp_path),
        "strict": False,
        "dags": ["ens.dag"],
        "errors": 1,
        "warnings": 1,
        "notes": 0,
    }
    assert [each.pop("message") and each.pop("remedy") and each for each in findings] == [
        {"severity": "warning", "kind": "no-retry", "file": "ens.dag", "line": 2, "count": 4},
        {"severity": "error", "kind": "unknown-command", "file": "ens.dag", "line": 16, "count": 1},
    ]


@pytest.mark.parametrize("name", ["empty", "gone", "fifo"])
def test_directory_without_a_dag_is_refused(tmp_path: Path, name: str, capsys: Captured) -> None:
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "fifo")
    assert main(["check", str(tmp_path / name)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("metlmon: ")
    assert "no DAG file in" in captured.err or name != "empty"


def test_ascii_option_prints_ascii_only(tmp_path: Path, capsys: Captured) -> None:
    cycle = "PARENT run0-train_epoch1 CHILD run0-train_epoch0\n"
    write(tmp_path, {**GOOD, "ens.dag": DAG + cycle + "JÖB\n"})
    assert main(["check", "--ascii", str(tmp_path)]) == 1
    assert capsys.readouterr().out.isascii()


def test_settings_define_training_nodes(tmp_path: Path, capsys: Captured) -> None:
    dag = 'JOB m1_step0 train.sub\nVARS ALL_NODES run_uuid="u" epoch="1" epochs="9"\n'
    write(tmp_path, {**GOOD, "ens.dag": dag})
    assert "no-retry" not in text_output("check", capsys, tmp_path)
    pattern = 'train_node = "^(?P<run>.*)_step(?P<epoch>[0-9]+)$"\n'
    write(tmp_path, {"metlmon.toml": pattern})
    assert "no-retry" in text_output("check", capsys, tmp_path)


def test_check_writes_and_runs_nothing(tmp_path: Path, capsys: Captured) -> None:
    """Neither scripts nor ``include command``: checking a stranger's DAG is safe."""
    trap = '#!/bin/sh\ntouch "$(dirname "$0")/sprung"\n'
    files = {
        **damaged("ens.dag", "/bin/true", "trap.sh"),
        "trap.sh": trap,
        "train.sh": trap,
        "eval.sub": f"include command : {tmp_path}/trap.sh\nexecutable = train.sh\n",
    }
    write(tmp_path, files)
    before = sorted(path.name for path in tmp_path.iterdir())
    main(["check", str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == before
