"""DAG files that one DAGMan runs together, and a sub-DAG file named by several DAGs."""

from __future__ import annotations

import shutil
from pathlib import Path

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import DagState, State
from tests.conftest import Shared
from tests.support.commands import Captured, json_output, text_output
from tests.support.event_logs import Log

TWO = "-p 0 -f -l . -Lockfile u/u.dag.lock -Dag u/u.dag -Dag v/v.dag -UseDagDir -AutoRescue 1"


def test_real_dagman_of_two_directories(shared: Shared, capsys: Captured) -> None:
    """``.metrics``: 4 jobs, 4 succeeded."""
    path = shared("examples/pool-failures/h3-usedagdir-two-dags/sub1")
    (dag,) = json_output("status", capsys, path)["dags"]
    assert (dag["file"], dag["state"], dag["dagmans"]) == ("sub1.dag", "done", 1)
    assert (dag["nodes_total"], dag["nodes_done"]) == (4, 4)
    jobs = json_output("jobs", capsys, path)["jobs"]
    assert {(job["cluster"], job["dag"], job["node"]) for job in jobs} == {
        (284, "sub1.dag", "0.A"),
        (285, "sub1.dag", "1.A"),
        (290, "sub1.dag", "0.B"),
        (291, "sub1.dag", "1.B"),
    }
    # Only the log beside the second DAG has their memory.
    assert next(job for job in jobs if job["cluster"] == 285)["memory_mb"] == 5


def two_directories(path: Path, second: str = "v") -> Path:
    for name, log in (("u", "u.log"), (second, "v.log")):
        (path / name).mkdir()
        (path / name / "job.sub").write_text(f"executable = a.sh\nlog = {log}\nqueue\n")
        (path / name / f"{name}.dag").write_text("JOB A job.sub\n")
    (path / "u" / "u.dag.condor.sub").write_text(f'arguments = "{TWO}"\nqueue\n')
    return path / "u"


def test_each_dag_uses_the_submit_files_of_its_directory(tmp_path: Path) -> None:
    reader = DagdirReader(two_directories(tmp_path))
    reader.check()
    (dag,) = reader.ensemble.dags.values()
    logs = {name: node.log for name, node in dag.workflow.nodes.items()}
    assert logs == {"0.A": "u.log", "1.A": "../v/v.log"}


def test_missing_other_directory_is_reported(tmp_path: Path) -> None:
    path = two_directories(tmp_path)
    shutil.rmtree(tmp_path / "v")
    (path / "u.dag.nodes.log").write_text(
        "000 (284.000.000) 2026-11-22 21:51:56 Job submitted from host: <127.0.0.1:9618>\n"
        "    DAG Node: 0.A\n...\n"
    )
    reader = DagdirReader(path)
    reader.check()
    reader.read_all()
    (dag,) = reader.ensemble.dags.values()
    assert list(dag.workflow.nodes) == ["0.A"]
    assert reader.ensemble.node_states("u.dag")["0.A"].state is State.IDLE
    assert any(
        notice.kind == "missing-file" for notice in reader.snapshot_builder().status().warnings
    )


def test_real_subdag_belongs_to_the_submitted_dag(shared: Shared, capsys: Captured) -> None:
    path = shared("examples/pool-failures/o1-shared-subdag")
    dags = json_output("status", capsys, path)["dags"]
    assert [(dag["file"], dag["state"]) for dag in dags] == [
        ("aa.dag", "not-submitted"),
        ("zz.dag", "done"),
    ]
    jobs = json_output("jobs", capsys, path)["jobs"]
    assert {job["dag"] for job in jobs} == {"zz.dag"}
    text = text_output("nodes", capsys, path)
    assert "aa.dag  (2)" in text
    assert "zz.dag  (4)" in text


def begun(cluster: int, at: str, node: str = "") -> bytes:
    """A job that was submitted and executes."""
    return Log().submit(cluster, node, at=at, older=True).execute(cluster, at=at).data


def test_subdag_moves_to_the_dag_that_submits_it_next(tmp_path: Path) -> None:
    """Read while it is written: states and places of the DAGs are those of a fresh reader."""
    for name in ("aa", "zz"):
        (tmp_path / f"{name}.dag").write_text("SUBDAG EXTERNAL X sub.dag\nJOB A job.sub\n")
    (tmp_path / "sub.dag").write_text("JOB run0-train_epoch0 job.sub\n")
    (tmp_path / "job.sub").write_text("executable = a.sh\nlog = all.log\nqueue\n")

    def dag_of_run(reader: DagdirReader) -> tuple[str, str]:
        reader.check()
        reader.read_all()
        (run,) = reader.snapshot_builder().status().runs
        return run.dag, reader.ensemble.dags["sub.dag"].top

    reader = DagdirReader(tmp_path)
    (tmp_path / "aa.dag.dagman.log").write_bytes(begun(10, "21:00:00"))
    for name in ("aa.dag.nodes.log", "sub.dag.dagman.log"):
        (tmp_path / name).write_bytes(begun(11, "21:00:05", "X"))
    assert dag_of_run(reader) == dag_of_run(DagdirReader(tmp_path)) == ("aa.dag", "aa.dag")
    (tmp_path / "zz.dag.dagman.log").write_bytes(begun(20, "22:00:00"))
    (tmp_path / "zz.dag.nodes.log").write_bytes(begun(21, "22:00:05", "X"))
    with (tmp_path / "sub.dag.dagman.log").open("ab") as file:
        file.write(begun(21, "22:00:05", "X"))
    assert dag_of_run(reader) == dag_of_run(DagdirReader(tmp_path)) == ("zz.dag", "zz.dag")
    states = {dag.file: dag.state for dag in reader.snapshot_builder().status().dags}
    assert states == {"aa.dag": DagState.RUNNING, "zz.dag": DagState.RUNNING}
