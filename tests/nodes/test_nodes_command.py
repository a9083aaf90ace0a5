"""``metlmon nodes``: as a table, by state, and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metlmon.cli.main import main
from tests.support.node_graphs import evaluated, evaluated_log, fan, fan_log

SUBMIT = "executable = /bin/true\nlog = metl.log\nqueue\n"


@pytest.fixture
def dagdir(tmp_path: Path) -> str:
    (tmp_path / "fan.dag").write_text(fan())
    for name in "agpr":
        (tmp_path / f"{name}.sub").write_text(SUBMIT)
    (tmp_path / "metl.log").write_bytes(fan_log().data)
    return str(tmp_path)


def test_what_needs_a_person_comes_first(dagdir: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes", dagdir]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "44 nodes"
    assert lines[2].split()[1] == "init"
    assert "work_003" in lines[3]
    assert "memory usage exceeded request_memory" in lines[3]
    assert "return value 3, 2 retries left" in lines[4]
    assert any("8 × work_016 … 023" in line and "▶ running" in line for line in lines)
    gather = next(line for line in lines if " gather " in line)
    assert "waits for work_003, work_007, work_016 and 23 more" in gather


def test_only_some_states(dagdir: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes", dagdir, "--state", "held,failed"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 of 44 nodes"
    assert len(lines) == 4
    assert main(["nodes", dagdir, "--state", "suspended"]) == 0
    assert "None of 44 nodes is suspended" in capsys.readouterr().out
    assert main(["nodes", dagdir, "--state", "broken"]) == 2
    assert "there are waiting, idle" in capsys.readouterr().err


def test_json_has_every_node(dagdir: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes", dagdir, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["schema"] == 1
    nodes = {node["node"]: node for node in output["nodes"]}
    assert len(nodes) == 44
    assert nodes["work_007"]["after"] == "init"
    assert nodes["gather"]["after"] == "init"
    assert (nodes["gather"]["waiting_parents"], len(nodes["gather"]["waits_for"])) == (26, 8)
    assert nodes["work_003"]["state"] == "held"
    assert nodes["work_007"]["job_return"] == 3
    assert nodes["machines"]["kind"] == "provisioner"
    assert main(["nodes", dagdir, "--json", "--state", "held"]) == 0
    assert [node["node"] for node in json.loads(capsys.readouterr().out)["nodes"]] == ["work_003"]


def test_in_ascii_nothing_else_is_printed(dagdir: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes", dagdir, "--ascii"]) == 0
    assert capsys.readouterr().out.isascii()


def test_status_tells_of_nodes_besides_the_epochs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.dag").write_text(evaluated())
    for name in "ae":
        (tmp_path / f"{name}.sub").write_text(SUBMIT)
    (tmp_path / "metl.log").write_bytes(evaluated_log().data)
    assert main(["status", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "PROVISIONER machines ▶ running" in out
    assert "FINAL report · waiting" in out
    assert "1 evaluation failed (POST script passed)" in out
    assert main(["run", "run0", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("✓ completed" in line and "✗ job failed" in line for line in lines)
    assert any("eval_epoch2" in line and "✗ job failed" in line for line in lines)
