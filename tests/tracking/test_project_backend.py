"""The project backend: projects as MLflow reads them, and its handling of ``mlflow run``.

The server is MLflow's own; the pool is in memory, so that nothing runs. A real pool:
``tests/pool/test_project_backend_on_pool.py``.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from metlmon.cli import Exit
from metlmon.cli.commands.export_mlflow import export_until_end
from metlmon.cli.main import main
from metlmon.pool.types import PoolError
from tests.support.commands import Captured
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log
from tests.support.fake_pool import FakePool
from tests.support.tracking_server import NEEDS_MLFLOW, StoredRun, TrackingServer

pytestmark = [pytest.mark.xdist_group("tracking"), NEEDS_MLFLOW]


@pytest.fixture(name="project")
def _project(tmp_path: Path) -> Path:
    """A project that ``metlmon new`` wrote, outside the current directory."""
    directory = tmp_path / "project"
    options = ["--name", "study", "--runs", "2", "--epochs", "3", "--set", "hidden=16"]
    assert main(["new", str(directory), "--mlproject", *options]) == 0
    return directory


# --- reading by MLflow ----------------------------------------------------------------------


def test_mlflow_reads_the_project(project: Path) -> None:
    from mlflow.projects import load_project

    loaded = load_project(str(project))
    assert loaded.name == "study"
    assert loaded.env_config_path == str(project / "python_env.yaml")
    entry = loaded.get_entry_point("main")
    entry._validate_parameters({})
    defaults = {name: each.default for name, each in entry.parameters.items()}
    assert defaults.items() >= {"runs": 2, "epochs": 3, "seeds": "", "hidden": "16"}.items()
    assert entry.parameters["runs"].type == "float"


def test_command_of_mlflow_is_valid_in_the_shell(project: Path, tmp_path: Path) -> None:
    from mlflow.projects import load_project

    entry = load_project(str(project)).get_entry_point("main")
    command = entry.compute_command({"hidden": "a b'; exit 9;'"}, str(tmp_path))
    words = shlex.split(command)
    assert words[:4] == ["sh", "study.local.sh", "runs=2", "epochs=3"]
    assert "hidden=a b'; exit 9;'" in words


# --- mlflow run . -b metlmon ----------------------------------------------------------------


def raises_failure(match: str | None = None) -> Any:
    """``pytest.raises`` for MLflow's error of a run."""
    from mlflow.projects import ExecutionException

    return pytest.raises(ExecutionException, match=match)


class Backend:
    """``mlflow.projects.run`` with the backend, a pool in memory, and no export."""

    def __init__(self, server: TrackingServer, project: Path, experiment: str) -> None:
        self.pool = FakePool()
        self.exports: list[tuple[Path, str, str]] = []
        self.server = server
        self.project = project
        self.experiment = experiment

    def run(
        self,
        parameters: Mapping[str, object] | None = None,
        config: Mapping[str, Any] | None = None,
        entry_point: str = "main",
    ) -> Any:
        from mlflow import projects

        return projects.run(
            str(self.project),
            entry_point,
            parameters=dict(parameters or {}),
            backend="metlmon",
            backend_config=dict(config or {}),
            experiment_name=self.experiment,
            synchronous=False,
        )

    def refusal(self, *arguments: Any, **options: Any) -> str:
        """The error of a run that leaves no trace."""
        with raises_failure() as raised:
            self.run(*arguments, **options)
        assert (self.pool.dags, self.runs) == ([], [])
        return str(raised.value)

    @property
    def runs(self) -> list[StoredRun]:
        return self.server.runs(self.experiment)


@pytest.fixture(name="backend")
def _backend(
    project: Path,
    tracking_server: TrackingServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Backend]:
    import mlflow

    from metlmon import project_backend

    backend = Backend(tracking_server, project, request.node.name)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(project_backend, "PoolClient", lambda: backend.pool)

    def start_export(dag: Path, run_id: str, uri: str) -> subprocess.Popen[bytes]:
        backend.exports.append((dag, run_id, uri))
        return subprocess.Popen(["true"])

    monkeypatch.setattr(project_backend, "_start_export", start_export)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(tracking_server.url)
    yield backend
    mlflow.set_tracking_uri(before)


def test_backend_writes_submits_and_returns_a_handle(backend: Backend, tmp_path: Path) -> None:
    handle = backend.run({"runs": 4, "hidden": "8"}, {"sites": ["Delta-GPU"], "memory": "2 GB"})
    dag = tmp_path / "here/study/study.dag"
    assert backend.pool.dags == [dag]
    assert backend.pool.closed
    text = dag.read_text()
    assert text.count("JOB run") == 4 * 3
    submit = dag.with_suffix(".sub").read_text()
    assert "--hidden 8" in submit
    assert "request_memory = 2048MB" in submit
    assert 'TARGET.GLIDEIN_ResourceName =?= "Delta-GPU"' in submit
    assert not dag.with_name("MLproject").exists()
    (run,) = backend.runs
    assert (handle.run_id, run.status) == (run.id, "RUNNING")
    assert run.params.items() >= {"runs": "4", "epochs": "3", "hidden": "8"}.items()
    assert run.tags["mlflow.project.backend"] == "metlmon"
    assert backend.exports == [(dag, run.id, backend.server.url)]
    assert handle.get_status() == "RUNNING"


OWN = """\
# template: A job with files of its own
executable = train.sh
arguments = $(epoch)
transfer_input_files = data, lists/all.txt, $(continue_from_checkpoint)
transfer_output_files = output
preserve_relative_paths = true
requirements = {requirements}
request_memory = {memory_mb}
log = own.log
"""


def test_files_of_the_project_are_copied(
    backend: Backend, tmp_path: Path, capsys: Captured
) -> None:
    project = backend.project = tmp_path / "own"
    (project / "data").mkdir(parents=True)
    own = tmp_path / "own.sub"
    own.write_text(OWN.replace("data,", "data/table.csv, data,"))
    (project / "train.sh").write_text("#!/bin/sh\n")
    (project / "train.sh").chmod(0o755)
    (project / "data/table.csv").write_text("1,2\n")
    words = ["--template", str(own), "--mlproject", "--no-gate"]
    assert main(["new", str(project), *words]) == 0
    capsys.readouterr()
    backend.run()
    (dag,) = backend.pool.dags
    assert os.access(dag.with_name("train.sh"), os.X_OK)
    assert (dag.parent / "data/table.csv").read_text() == "1,2\n"
    warned = [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line]
    missing = [line for line in warned if "no such file" in line]
    assert [line.count("lists/all.txt") for line in missing] == [1], warned


@pytest.mark.parametrize("name", ["../data/table.csv", "link/../../../data/table.csv"])
def test_file_outside_the_project_is_refused(backend: Backend, tmp_path: Path, name: str) -> None:
    project = backend.project = tmp_path / "own"
    (project / "a/b").mkdir(parents=True)
    (project / "link").symlink_to("a/b")
    (project / "train.sh").write_text("#!/bin/sh\n")
    for data in (tmp_path / "data", tmp_path / "here/data", project / "data"):
        data.mkdir()
        (data / "table.csv").write_text(data.name * len(data.parts))
    bystander = tmp_path / "here/data/table.csv"
    before = bystander.read_text()
    own = tmp_path / "own.sub"
    own.write_text(OWN.replace("data, lists/all.txt", name))
    assert main(["new", str(project), "--template", str(own), "--mlproject", "--no-gate"]) == 0
    error = f"{name}: is outside of the project; name its absolute path instead"
    assert backend.refusal() == error
    assert bystander.read_text() == before


@pytest.mark.parametrize(
    ("parameters", "config", "sentence"),
    [
        ({"epoch": "4"}, {}, "-P epoch: there is none; did you mean epochs?"),
        ({"runs": "0"}, {}, "-P runs: 0 runs"),
        ({"hidden": "many"}, {}, "-P hidden: "),
        ({"seeds": "1,2,3", "runs": "2"}, {}, "-P seeds: 3 seeds for 2 runs"),
        ({}, {"site": ["A"]}, "--backend-config site: there is none; did you mean sites?"),
        ({}, {"gpus": 1000}, "--backend-config gpus: 1000 GPUs of a job"),
        ({}, {"gpu_memory": 0}, "--backend-config gpu_memory: 0 MB of a GPU"),
        ({}, {"directory": 7}, "--backend-config directory: must be a text"),
        ({}, {"directory": "/proc/none/new"}, "--backend-config directory: "),
    ],
)
def test_error_makes_no_run(
    parameters: dict[str, str], config: dict[str, Any], sentence: str, backend: Backend
) -> None:
    assert backend.refusal(parameters, config).startswith(sentence)
    assert list(Path().iterdir()) == []


def test_impossible_submission_makes_no_run(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"directory": str(backend.project)}
    assert "study.dag is there already; name a new one" in backend.refusal(config=there)
    assert "metlmon runs the entry point main" in backend.refusal(entry_point="train.py")
    schedd = backend.pool.answers["where"]
    backend.pool.answers["where"] = PoolError("no schedd is here")
    assert "no schedd is here" in backend.refusal()
    backend.pool.answers["where"] = schedd
    (backend.project / "study.toml").rename(backend.project / "away")
    assert "projects that metlmon new --mlproject wrote" in backend.refusal()
    (backend.project / "away").rename(backend.project / "study.toml")
    Path("metlmon").mkdir()
    Path("metlmon/metlmon.toml").write_text("read_only = true\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(Path.cwd()))
    assert "read_only = true" in backend.refusal()


def test_swept_value_is_named_once(backend: Backend, tmp_path: Path) -> None:
    backend.project = tmp_path / "sweep"
    words = ["new", str(backend.project), "--sweep", "learning_rate=0.1,0.2", "--mlproject"]
    assert main(words) == 0
    error = backend.refusal({"learning_rate": "99"})
    assert error.startswith("-P learning_rate: learning_rate is '99'")


def test_refused_dag_is_a_failed_run(backend: Backend) -> None:
    backend.pool.submitted = PoolError("the schedd takes no more jobs")
    with raises_failure("the schedd takes no more jobs"):
        backend.run()
    assert [run.status for run in backend.runs] == ["FAILED"]
    assert backend.exports == []


def test_store_without_a_server_is_refused(backend: Backend, tmp_path: Path) -> None:
    from metlmon.project_backend import ProjectBackend

    store = f"sqlite:///{tmp_path}/store.db"
    with raises_failure("metlmon writes to MLflow servers at https://"):
        ProjectBackend().run(str(backend.project), "main", {}, None, {}, store, "0")
    assert backend.pool.dags == []


def test_dag_removed_before_its_first_job_ends_its_run(
    tracking_server: TrackingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_server.url)
    dagdir = Dagdir(tmp_path / "dagdir")
    dagdir.write("run.dag.dagman.log", Log().submit(900).remove(900).data)
    created = tracking_server.call("experiments/create", {"name": "no job"})
    run = tracking_server.call("runs/create", {"experiment_id": created["experiment_id"]})["run"]
    run_id = str(run["info"]["run_id"])
    assert export_until_end(dagdir.path / "run.dag", run_id) == Exit.OK
    (stored,) = tracking_server.runs("no job")
    assert (stored.id, stored.status) == (run_id, "KILLED")
    assert stored.end is not None
