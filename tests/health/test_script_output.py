"""The cause of a failure is the same in Health, Nodes, Run and Changes, scripts included.

``fixtures/script-output`` was recorded: DAGMan wrote the files that SCRIPT DEBUG names.
"""

from __future__ import annotations

import os
from pathlib import Path
from shutil import copytree

import pytest

from metlmon.health.build import make_health
from metlmon.health.types import HealthEntry
from metlmon.model.states import State
from metlmon.snapshot.row_text import failure_text, state_reason
from tests.support.commands import Captured, json_output, text_output
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir, stats_input

RECORDED = FIXTURES / "script-output"


def entries(dagdir: Path) -> dict[str, HealthEntry]:
    """The open entries of failures by the name of their first node."""
    health = make_health(stats_input(read_dagdir(dagdir), dagdir))
    return {entry.node_keys[0][1]: entry for entry in health.open_entries if entry.node_keys}


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Path:
    return Path(copytree(RECORDED, tmp_path / "ensemble"))


def test_health_has_the_last_line_of_a_script_and_its_file() -> None:
    found = {name: (entry.error_file, entry.reason) for name, entry in entries(RECORDED).items()}
    assert found == {
        "a": ("pre.log", "gate: no checkpoint for a: No such file or directory"),
        "b": ("post.log", "no newline"),
        "c": ("sub/here.log", "done"),
    }


def test_health_names_the_script_and_how_to_run_it() -> None:
    entry = entries(RECORDED)["c"]
    assert "PRE script gate.sh failed with status 1" in entry.text
    assert "cd sub && ./gate.sh c 2" in entry.steps[0]


@pytest.mark.parametrize("name", ["demo", "scripts", "script-output"])
def test_nodes_and_run_show_the_cause_of_health(name: str, capsys: Captured) -> None:
    builder, found = read_dagdir(FIXTURES / name), entries(FIXTURES / name)
    known = stats_input(builder, FIXTURES / name)
    listed = json_output("nodes", capsys, FIXTURES / name)["nodes"]
    epochs = {epoch.node_key: epoch for epoch in known.ledger.epochs}
    whys = {node["node"]: node["why"] for node in listed}
    checked = 0
    for entry in found.values():
        for key in entry.node_keys:
            row = builder.node_row(key)
            if row is None or row.state is not State.FAILED:
                continue
            why = state_reason(row, known.job_files.errors)
            assert whys[key[1]] == why
            if entry.error_file:
                title = entry.text.removeprefix(f"{key[1]}: ").split(" (", 1)[0]
                title = title.split(": ", 1)[-1] if key in epochs else title
                assert why.startswith(title)
                checked += 1
            if key in epochs:
                assert why.startswith(failure_text(epochs[key], known.job_files.errors))
    assert checked or name == "scripts"


def test_changes_have_the_line_of_a_script(capsys: Captured) -> None:
    assert "no newline (POST script" in text_output("changes", capsys, RECORDED, "--since", "7d")


def test_file_outside_the_dagdir_is_not_read(dagdir: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.log"
    outside.write_bytes((dagdir / "pre.log").read_bytes())
    (dagdir / "pre.log").unlink()
    (dagdir / "pre.log").symlink_to(outside)
    (dagdir / "post.log").unlink()
    os.mkfifo(dagdir / "post.log")
    found = entries(dagdir)
    assert found["a"].error_file is None
    assert found["b"].error_file is None
    assert "gate.sh failed with status 1" in found["a"].text


def test_only_the_end_of_a_large_file_is_read(dagdir: Path) -> None:
    recorded = (dagdir / "pre.log").read_bytes()
    (dagdir / "pre.log").write_bytes(recorded + b"x" * 200_000)
    assert entries(dagdir)["a"].error_file is None
    (dagdir / "pre.log").write_bytes(b"x" * 200_000 + recorded)
    assert entries(dagdir)["a"].error_file == "pre.log"


def test_secrets_and_control_sequences_of_a_script_are_not_shown(dagdir: Path) -> None:
    recorded = (dagdir / "post.log").read_text()
    secret = "hf_abcdefghijklmnopqrstuvwxyz012345"
    (dagdir / "post.log").write_text(f"{recorded}\n\x1b[2Jlogin failed token={secret}\n")
    reason = entries(dagdir)["b"].reason or ""
    assert "login failed" in reason
    assert secret not in reason
    assert "\x1b" not in reason
