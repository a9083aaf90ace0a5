"""``mlflow run . -b metlmon`` on a real pool, exported to a real tracking server.

The state of the jobs is read from ``condor_history``, MLflow's content from its database.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import truth
from pools import SLOT_SECONDS, Ad, Pool, until

from tests.support.tracking_server import StoredRun, TrackingServer, started_server

EXPERIMENT = "on the pool"
MLFLOW_SECONDS = 300.0
"""For a command that imports MLflow, on a busy machine."""

HANDLES = """\
import json, sys
import mlflow

def submit(name, **parameters):
    return mlflow.projects.run(
        "project", parameters={"runs": "1", **parameters}, experiment_name="by handle",
        backend="metlmon", backend_config={"directory": name}, synchronous=False,
    )

handles = {
    "cancelled": submit("cancelled", slow_factor="600"),
    "failing": submit("failing", epochs="1", fail_rate="1"),
    "good": submit("good", epochs="1"),
}
early = submit("early")
early.cancel()
before = handles["cancelled"].get_status()
print("submitted", flush=True)
sys.stdin.readline()
handles["cancelled"].cancel()
waited = {name: handle.wait() for name, handle in handles.items()}
after = {name: handle.get_status() for name, handle in handles.items()}
runs = {name: handle.run_id for name, handle in {**handles, "early": early}.items()}
print(json.dumps({"before": before, "waited": waited, "after": after, "runs": runs}))
"""


@pytest.fixture(scope="module", name="server")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackingServer]:
    with started_server(tmp_path_factory.mktemp("mlflow")) as server:
        yield server


@pytest.fixture(scope="module", name="home")
def _home(pool: Pool) -> Path:
    """A directory of the user with a project of two runs of two epochs."""
    home = pool.directory("mlflow-projects")
    options = ["--runs", "2", "--epochs", "2", "--memory", "128", "--retries", "1", "--mlproject"]
    pool.run(["metlmon", "new", "project", *options], home)
    return home


def dagman(pool: Pool, directory: Path) -> Ad:
    """DAGMan's ad once it has left the queue; there must be one DAGMan."""
    (cluster,) = truth.dagmans(pool, directory)
    found = until(lambda: pool.history(f"ClusterId == {cluster}"), "DAGMan ends", SLOT_SECONDS)
    return found[0]


def finished(server: TrackingServer, run_id: str, experiment: str) -> list[StoredRun]:
    """The run and its children, the run first, once the export is complete."""

    def look() -> list[StoredRun] | None:
        runs = server.runs(experiment)
        (parent,) = (run for run in runs if run.id == run_id)
        family = [parent, *(run for run in runs if run.parent == run_id)]
        # The report is uploaded last.
        has_report = list(server.artifacts.rglob(f"{run_id}/artifacts/report.html"))
        return family if has_report and all(run.end is not None for run in family) else None

    found = until(look, "the ensemble is exported", SLOT_SECONDS)
    assert found is not None
    return found


def test_mlflow_run_trains_on_the_pool(pool: Pool, home: Path, server: TrackingServer) -> None:
    argv = [sys.executable, "-m", "mlflow", "run", "project", "-b", "metlmon"]
    argv += ["--experiment-name", EXPERIMENT, "-P", "seeds=7,8", "-P", "learning_rate=0.1"]
    sites = sorted(pool.sites.values())[:1]
    argv += ["--backend-config", json.dumps({"sites": sites})]
    environment = {"MLFLOW_TRACKING_URI": server.url}
    done = pool.run(argv, home, seconds=MLFLOW_SECONDS, **environment)
    directory = home / "ensemble"
    assert f"{directory}/ensemble.dag, 4 nodes" in done.stderr

    assert dagman(pool, directory)["ExitCode"] == 0
    jobs = {job.node: job for job in truth.at_the_end(pool, directory).jobs}
    assert sorted(jobs) == [f"run{run}-train_epoch{epoch}" for run in (0, 1) for epoch in (0, 1)]
    (top,) = (run for run in server.runs(EXPERIMENT) if run.parent is None)
    parent, *children = finished(server, top.id, EXPERIMENT)
    assert parent.status == "FINISHED"
    assert parent.params.items() >= {"seeds": "7,8", "learning_rate": "0.1"}.items()
    assert {child.name: child.status for child in children} == dict.fromkeys(
        ("run0", "run1"), "FINISHED"
    )
    assert [child.params["random_seed"] for child in children] == ["7", "8"]
    exported = {
        f"{child.name}-train_epoch{point.step}": point
        for child in children
        for point in child.metrics["metlmon/gpu_hours_goodput"]
    }
    assert exported.keys() == jobs.keys()
    for node, point in exported.items():
        (execution,) = jobs[node].executions
        seconds = (execution.end - execution.start) * execution.gpus
        assert point.value * 3600 == pytest.approx(seconds, abs=2 * truth.CLOCK_SECONDS)
        assert point.time / 1000 == pytest.approx(execution.end, abs=truth.CLOCK_SECONDS)
        assert not sites or [execution.site] == sites
    for child in children:
        assert [point.step for point in child.metrics["val_loss"]] == [0, 1]
    assert "metlmon:" not in (directory / "mlflow-export.txt").read_text()
    # An export by hand finds the same run.
    words = ["--to", "mlflow", "--experiment", EXPERIMENT]
    pool.run(["metlmon", "export", ".", *words], directory, **environment)
    assert len(server.runs(EXPERIMENT)) == 3


def test_handles_wait_and_cancel(pool: Pool, home: Path, server: TrackingServer) -> None:
    environment = {"MLFLOW_TRACKING_URI": server.url}
    argv = [sys.executable, "-c", HANDLES]
    process = _start(pool, argv, home, environment)
    try:
        assert process.stdin is not None
        assert process.stdout.readline() == "submitted\n", process.communicate()[1]
        (cluster,) = truth.dagmans(pool, home / "cancelled")
        pool.running(1, truth.of_dagmans([cluster]))
        out, err = process.communicate("cancel\n", timeout=MLFLOW_SECONDS)
        assert process.returncode == 0, err
    finally:
        process.kill()
        process.wait()
    answers: dict[str, Any] = json.loads(out)
    assert answers["before"] == "RUNNING"
    assert answers["waited"] == {"cancelled": False, "failing": False, "good": True}
    expected = {"cancelled": "KILLED", "failing": "FAILED", "good": "FINISHED"}
    assert answers["after"] == expected

    assert not pool.queue(f"ClusterId == {cluster} || {truth.of_dagmans([cluster])}")
    assert dagman(pool, home / "cancelled")["JobStatus"] == truth.REMOVED
    (job,) = pool.history(truth.of_dagmans([cluster]))
    assert job["JobStatus"] == truth.REMOVED
    assert dagman(pool, home / "failing")["ExitCode"] == 1
    assert dagman(pool, home / "good")["ExitCode"] == 0
    early = answers["runs"].pop("early")
    (run,) = (run for run in server.runs("by handle") if run.id == early)
    assert run.status == "KILLED"
    assert dagman(pool, home / "early")["JobStatus"] == truth.REMOVED
    for name, run_id in answers["runs"].items():
        parent, child = finished(server, run_id, "by handle")
        assert (parent.status, child.status) == (expected[name], expected[name])
    (_, good) = finished(server, answers["runs"]["good"], "by handle")
    assert [point.step for point in good.metrics["val_loss"]] == [0]


def _start(
    pool: Pool, argv: list[str], directory: Path, environment: dict[str, str]
) -> subprocess.Popen[str]:
    """Like :meth:`Pool.start`, with a pipe as standard input."""
    return subprocess.Popen(
        pool.command(argv, directory, **environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
