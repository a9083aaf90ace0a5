"""Nodes without any file here: done under an earlier DAGMan, unknown, or still to come.

The bytes are those of ``fixtures/rescue``: three lives of DAGMan, the last of which began from
``ens.dag.rescue002`` with 14 of 16 nodes done, and trained run2's last two epochs.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from metlmon.model.model_state import Notice
from metlmon.model.states import DagState, State
from metlmon.snapshot.records import Status
from tests.support.commands import Captured, json_output, text_output
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir

RECORDED = FIXTURES / "rescue"
DAG, OUT, NODES_LOG = "ens.dag", "ens.dag.dagman.out", "ens.dag.nodes.log"
METRICS, SUB, STATUS = "ens.dag.metrics", "ens.dag.condor.sub", "nodes.dag.status"


class Copy:
    """Some of the recorded files in a new directory."""

    def __init__(self, path: Path, *names: str) -> None:
        self.path = path
        for name in names:
            shutil.copy(RECORDED / name, path / name)

    def write(self, name: str, content: bytes) -> None:
        (self.path / name).write_bytes(content)

    def change(self, name: str, old: str, new: str) -> None:
        text = (self.path / name).read_text()
        assert old in text
        (self.path / name).write_text(text.replace(old, new))

    def status(self, live: bool | None = None) -> Status:
        return read_dagdir(self.path, live=live).status()


def last_life() -> bytes:
    text = (RECORDED / OUT).read_bytes()
    begin = text.rindex(b"******", 0, text.rindex(b"STARTING UP"))
    return text[text.rindex(b"\n", 0, begin) + 1 :]


def notice(status: Status, kind: str) -> Notice:
    (found,) = (each for each in status.warnings if each.kind == kind)
    return found


def epochs(status: Status) -> dict[str, tuple[int, int, State]]:
    return {run.run: (run.epochs_done, run.epochs_inferred, run.state) for run in status.runs}


def test_roots_without_a_limit_were_done(tmp_path: Path) -> None:
    status = Copy(tmp_path, DAG, SUB, NODES_LOG).status()
    done = (4, 4, State.COMPLETED)
    # This life trained the last two epochs of run2.
    result = {"run0": done, "run1": done, "run2": (4, 2, State.COMPLETED), "run3": done}
    assert epochs(status) == result
    assert status.epoch_states[State.WAITING] == status.epoch_states[State.UNKNOWN] == 0
    missing = notice(status, "missing-rescue")
    assert missing.file == "ens.dag.rescueNNN"
    assert "14 nodes taken for done" in missing.text


CONFIGURED = 'environment = "_CONDOR_DAGMAN_CONFIG_FILE=/a/dag.config '


@pytest.mark.parametrize(
    ("old", "new", "follows"),
    [
        ("-MaxIdle 1000", "-MaxIdle 1000", True),
        ("-MaxIdle 1000", "-MaxIdle 12", False),
        ("-MaxIdle 1000", "-MaxJobs 3", False),
        ("-MaxIdle 1000", "-MaxJobs 0", True),
        ('environment = "', CONFIGURED, False),
    ],
)
def test_throttle_or_configuration_leaves_roots_unknown(
    tmp_path: Path, old: str, new: str, follows: bool
) -> None:
    copy = Copy(tmp_path, DAG, SUB, NODES_LOG)
    copy.change(SUB, old, new)
    states = copy.status().epoch_states
    assert (states[State.UNKNOWN], states[State.WAITING]) == (0 if follows else 12, 0)


def test_category_or_pre_script_leaves_roots_unknown(tmp_path: Path) -> None:
    copy = Copy(tmp_path, DAG, SUB, NODES_LOG)
    recorded = (tmp_path / DAG).read_bytes()
    copy.write(DAG, recorded + b"\nCATEGORY run0-train_epoch0 few\nMAXJOBS few 1\n")
    assert copy.status().epoch_states[State.UNKNOWN] == 12
    copy.write(DAG, recorded + b"\nSCRIPT PRE run0-train_epoch0 gate\n")
    states = copy.status()
    assert epochs(states)["run0"] == (0, 0, State.UNKNOWN)
    assert epochs(states)["run3"] == (4, 4, State.COMPLETED)


def test_unknown_command_line_leaves_roots_unknown(tmp_path: Path) -> None:
    status = Copy(tmp_path, DAG, NODES_LOG).status()
    unknown = (0, 0, State.UNKNOWN)
    result = {"run0": unknown, "run1": unknown, "run2": (4, 2, State.COMPLETED), "run3": unknown}
    assert epochs(status) == result
    (dag,) = status.dags
    assert (dag.nodes_done, dag.nodes_unknown, dag.nodes_total) == (4, 12, 16)
    assert "of 12 nodes nothing is known" in notice(status, "missing-rescue").text


def test_older_rescue_file_gives_its_done_nodes(tmp_path: Path) -> None:
    status = Copy(tmp_path, DAG, NODES_LOG, "ens.dag.rescue001").status()
    assert epochs(status)["run0"] == (1, 0, State.UNKNOWN)
    assert status.epoch_states[State.UNKNOWN] == 10


def test_number_of_pre_completed_nodes_decides(tmp_path: Path) -> None:
    copy = Copy(tmp_path, DAG, NODES_LOG)
    copy.write(OUT, last_life())
    status = copy.status()
    assert epochs(status)["run0"] == (4, 4, State.COMPLETED)
    assert status.epoch_states[State.UNKNOWN] == 0
    missing = notice(status, "missing-rescue")
    assert missing.file == "ens.dag.rescue002"


def test_number_of_pre_completed_nodes_decides_while_running(tmp_path: Path) -> None:
    out = last_life()
    copy = Copy(tmp_path, DAG)
    copy.write(OUT, out[: out.index(b"Node run2-train_epoch2 job proc")])
    status = copy.status(live=True)
    assert status.dags[0].state is DagState.RUNNING
    assert epochs(status)["run0"] == (4, 4, State.COMPLETED)
    # Nodes after one submitted in this life are still to come.
    assert status.epoch_states[State.WAITING] == 1
    assert epochs(status)["run2"][:2] == (2, 2)


def test_inconsistent_number_decides_nothing(tmp_path: Path) -> None:
    copy = Copy(tmp_path, DAG, NODES_LOG)
    out = last_life().replace(b"pre-completed nodes: 14", b"pre-completed nodes: 9")
    copy.write(OUT, out[: out.index(b"Node run2-train_epoch2 job proc")])
    status = copy.status(live=True)
    assert status.epoch_states[State.UNKNOWN] == 12


def test_number_reached_by_other_nodes_leaves_the_rest_waiting(tmp_path: Path) -> None:
    copy = Copy(tmp_path, DAG)
    out = last_life().replace(b"pre-completed nodes: 14", b"pre-completed nodes: 2")
    copy.write(OUT, out[: out.index(b"Node run2-train_epoch2 job proc")])
    status = copy.status(live=True)
    assert status.epoch_states[State.WAITING] == 13
    assert "2 nodes taken for done" in notice(status, "missing-rescue").text


# --- counts without logs ----------------------------------------------------------------------


def test_counts_from_metrics_alone(tmp_path: Path) -> None:
    status = Copy(tmp_path, DAG, METRICS).status()
    (dag,) = status.dags
    assert (dag.state, dag.nodes_done, dag.nodes_total) == (DagState.DONE, 16, 16)
    assert epochs(status)["run0"] == (4, 4, State.COMPLETED)
    assert notice(status, "missing-rescue").file == "ens.dag.rescue002"


def test_counts_of_a_failed_dag_from_metrics_alone(tmp_path: Path) -> None:
    """The second life ended with 14 nodes done and one failed."""
    output = json.loads((RECORDED / METRICS).read_bytes())
    output |= {"exitcode": 1, "dagman_id": "407", "rescue_dag_number": 1, "DagStatus": 2}
    output |= {"jobs_failed": 1, "jobs_succeeded": 14, "total_jobs_run": 15}
    copy = Copy(tmp_path, DAG)
    copy.write(METRICS, json.dumps(output).encode())
    status = copy.status()
    (dag,) = status.dags
    assert (dag.state, dag.nodes_done, dag.nodes_failed) == (DagState.FAILED, 14, 1)
    assert dag.nodes_unknown == 16
    assert status.epoch_states[State.WAITING] == 0


def test_counts_from_dagmans_log_alone(tmp_path: Path) -> None:
    status = Copy(tmp_path, DAG, "ens.dag.dagman.log").status()
    assert (status.dags[0].state, status.dags[0].nodes_done) == (DagState.DONE, 16)
    assert epochs(status)["run0"] == (4, 4, State.COMPLETED)


def test_rescue_file_alone_proves_a_dagman(tmp_path: Path) -> None:
    status = Copy(tmp_path, DAG, "ens.dag.rescue001").status()
    assert status.dags[0].state is DagState.UNKNOWN
    assert status.epoch_states[State.COMPLETED] == 3
    assert status.epoch_states[State.UNKNOWN] == 13
    assert notice(status, "missing-record").file == DAG


# --- another DAG file -------------------------------------------------------------------------


@pytest.mark.parametrize("file", [METRICS, OUT])
def test_dag_file_with_another_number_of_nodes_is_reported(tmp_path: Path, file: str) -> None:
    copy = Copy(tmp_path, DAG, file)
    more = b"\nJOB run4-train_epoch0 delta_train.sub\n"
    copy.write(DAG, (tmp_path / DAG).read_bytes() + more)
    changed = notice(copy.status(), "dag-file-changed")
    assert changed.file == DAG
    assert f"{file} counts 16 nodes, it has 17" in changed.text


@pytest.mark.parametrize("file", [NODES_LOG, OUT, STATUS])
def test_dag_file_with_other_node_names_is_reported(tmp_path: Path, file: str) -> None:
    copy = Copy(tmp_path, DAG, file)
    copy.change(DAG, "run2-", "run7-")
    changed = notice(copy.status(), "dag-file-changed")
    assert f"{file} has nodes that are not in it: run2-train_epoch" in changed.text


def test_nodes_of_earlier_dagmans_alone_are_no_change(tmp_path: Path) -> None:
    copy = Copy(tmp_path, DAG, SUB, OUT, "metl.log")
    copy.change(DAG, "run0-", "run7-")
    assert all(each.kind != "dag-file-changed" for each in copy.status().warnings)


@pytest.mark.parametrize("name", ["demo", "rescue", "scripts", "gated", "machines", "shared-log"])
def test_recorded_directories_are_consistent(name: str) -> None:
    assert not list(read_dagdir(RECORDED.parent / name).status().warnings)


def test_text_marks_lower_bounds(tmp_path: Path, capsys: Captured) -> None:
    Copy(tmp_path, DAG, NODES_LOG)
    text = text_output("status", capsys, tmp_path)
    assert "≥4 of 16 nodes done" in text
    assert "? 12 unknown" in text
    assert "≥0/4" in text
    assert "ETA unknown: the logs do not say which epochs are done" in text
    output = json_output("status", capsys, tmp_path)
    assert output["dags"][0]["nodes_unknown"] == output["epoch_states"]["unknown"] == 12
    assert [run["epochs_unknown"] for run in output["runs"]] == [4, 4, 0, 4]


def test_text_has_the_end_of_dagman(tmp_path: Path, capsys: Captured) -> None:
    copy = Copy(tmp_path, DAG, METRICS)
    ended = "nothing was logged; DAGMan ended 21 Nov 2026 09:44 UTC"
    assert ended in text_output("status", capsys, tmp_path)
    assert ended in text_output("report", capsys, tmp_path)
    output = json_output("status", capsys, tmp_path)
    assert output["dags"][0]["ended"] == "2026-11-21T09:44:18.794000+00:00"
    (copy.path / METRICS).unlink()
    shutil.copy(RECORDED / OUT, tmp_path / OUT)
    alone = "snapshot 21 Nov 2026 09:44, by DAGMan's files alone\n"
    assert alone in text_output("status", capsys, tmp_path)
