"""``mlflow run . -b metlmon`` on a real pool, into a real tracking server.

What became of the jobs is read from ``condor_history``, what MLflow has from its database.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import truth
from pools import SLOT_SECONDS, Ad, Pool, until

from tests.support.tracking_server import StoredRun, TrackingServer, started_server

EXPERIMENT = "on the pool"
MLFLOW_SECONDS = 300.0
"""For a command that imports MLflow, on a busy machine."""


@pytest.fixture(scope="module", name="server")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackingServer]:
    with started_server(tmp_path_factory.mktemp("mlflow")) as server:
        yield server


@pytest.fixture(scope="module", name="home")
def _home(pool: Pool) -> Path:
    """A directory of the user's with a project of two runs of two epochs."""
    home = pool.directory("mlflow-projects")
    options = ["--runs", "2", "--epochs", "2", "--memory", "128", "--retries", "1", "--mlproject"]
    pool.run(["metlmon", "new", "project", *options], home)
    return home


def dagman(pool: Pool, directory: Path) -> Ad:
    """DAGMan's ad once it has left the queue; there was one DAGMan."""
    (cluster,) = truth.dagmans(pool, directory)
    found = until(lambda: pool.history(f"ClusterId == {cluster}"), "DAGMan ends", SLOT_SECONDS)
    return found[0]


def finished(server: TrackingServer, run_id: str, experiment: str) -> list[StoredRun]:
    """The run and its children, the run first, as soon as all of it is exported."""

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
    # The export by hand finds the same run.
    words = ["--to", "mlflow", "--experiment", EXPERIMENT]
    pool.run(["metlmon", "export", ".", *words], directory, **environment)
    assert len(server.runs(EXPERIMENT)) == 3
