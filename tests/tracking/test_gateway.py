"""The gateway of a facility (mltf-gateway) accepts the project that ``metlmon new`` writes.

Its server and the packer of its client are real, over HTTP; instead of Slurm an executor does what
the gateway's job does: unpack the project and call ``mlflow run``. The identity provider, which
checks the token, is replaced.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metlmon.cli.main import main
from tests.support.tracking_server import TrackingServer

pytestmark = [
    pytest.mark.xdist_group("tracking"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:mltf_gateway"),
]

USER = "subject-of-the-token"


class Gateway:
    """The gateway's server on the loopback interface. ``accepted``: the jobs of its executor."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.accepted: list[tuple[dict[str, Any], Any]] = []
        # The module reads .env of the current directory, and the database's place is relative.
        monkeypatch.chdir(home)
        monkeypatch.setenv("MLTF_EXECUTOR", "local")
        monkeypatch.setenv("DATABASE_URL", f"sqlite:///{home}/gateway.db")
        monkeypatch.setenv("MLTF_GATEWAY_TOKEN", "a-token")
        from mlflow.projects.submitted_run import LocalSubmittedRun
        from mltf_gateway.executors.base import ExecutorBase
        from mltf_gateway.server import utils
        from mltf_gateway.server.app import create_app
        from mltf_gateway.server.gateway_server import GatewayServer
        from werkzeug.serving import make_server

        accepted = self.accepted

        class StubExecutor(ExecutorBase):  # type: ignore[misc]
            def run_context_async(self, ctx: Any, run_desc: Any, gateway_id: str) -> Any:
                accepted.append((ctx, run_desc))
                return LocalSubmittedRun(run_desc.run_id, None)

        monkeypatch.setattr(utils, "decode", lambda token: {"sub": USER})
        app = create_app()
        app.extensions["mltf_gateway"] = GatewayServer(executor=StubExecutor())
        self._server = make_server("127.0.0.1", 0, app)
        self.url = f"http://127.0.0.1:{self._server.port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()


@pytest.fixture(name="gateway")
def _gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    pytest.importorskip("mltf_gateway", reason="mltf-gateway, the facility's, is not installed")
    gateway = Gateway(tmp_path, monkeypatch)
    yield gateway
    gateway.close()


def test_gateway_accepts_and_runs_the_project(
    gateway: Gateway, tracking_server: TrackingServer, tmp_path: Path
) -> None:
    from mltf_gateway.client.backend_adapter import RESTAdapter
    from mltf_gateway.client.project_packer import prepare_tarball, produce_tarball

    project = tmp_path / "project"
    options = ["--runs", "1", "--epochs", "1", "--gpus", "2", "--memory", "2GB", "--mlproject"]
    assert main(["new", str(project), *options]) == 0
    created = tracking_server.call("experiments/create", {"name": "gateway"})
    experiment = created["experiment_id"]
    run = tracking_server.call("runs/create", {"experiment_id": experiment})["run"]["info"]
    tarball = Path(produce_tarball(prepare_tarball(str(project))))
    RESTAdapter(gateway_uri=gateway.url).enqueue_run(
        run["run_id"],
        str(tarball),
        "main",
        {},
        json.loads((project / "gateway_config.json").read_text()),
        tracking_server.url,
        experiment,
        "ensemble",
    )
    tarball.unlink()
    listed = urllib.request.Request(
        f"{gateway.url}/api/jobs", headers={"Authorization": "Bearer a-token"}
    )
    with urllib.request.urlopen(listed, timeout=60) as answer:
        (task,) = json.load(answer)
    assert (task["name"], task["run_id"]) == ("ensemble", run["run_id"])
    ((context, description),) = gateway.accepted
    assert description.user_subject == USER
    requests = {"nodes": 1, "cpus-per-task": 1, "mem": "2048", "gres": "gpu:2"}
    assert description.backend_config == {"job_name": "ensemble", **requests}
    assert "--run-id" in Path(str(context["files"]["mltf_cmd.sh"])).read_text()

    payload = tmp_path / "payload"
    payload.mkdir()
    tarball = str(context["files"]["client-tarball"])
    subprocess.run(["tar", "-xf", tarball, "-C", str(payload)], check=True)
    words = Path(str(context["files"]["mltf_cmd.sh"])).read_text().split()
    # Like the end of the gateway's inside.sh, without an environment from the network.
    subprocess.run(
        [sys.executable, "-m", "mlflow", "run", *words, "--env-manager", "local", "."],
        cwd=payload,
        env={
            **os.environ,
            "MLFLOW_TRACKING_URI": tracking_server.url,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        check=True,
        timeout=300,
    )
    (stored,) = tracking_server.runs("gateway")
    assert stored.id == run["run_id"]
    assert stored.status == "FINISHED"
    kept = [path for path in tracking_server.artifacts.rglob("last.ckpt") if stored.id in str(path)]
    assert len(kept) == 1
