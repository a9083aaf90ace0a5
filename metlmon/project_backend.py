"""MLflow's project backend ``metlmon``: ``mlflow run . -b metlmon``.

MLflow loads it by the entry point ``mlflow.project_backend``; nothing else imports this module.
It writes the ensemble that the project describes, with the parameters given, submits its DAG as
the calling user, and starts a process that exports the epochs into the MLflow run until the DAG
ends (:mod:`metlmon.cli.commands.export_mlflow`). Manual:
MLflow, "MLflow Projects", "MLflow Plugins".
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from mlflow.entities import RunStatus
from mlflow.exceptions import ExecutionException
from mlflow.projects.backend.abstract_backend import AbstractBackend
from mlflow.projects.submitted_run import SubmittedRun
from mlflow.projects.utils import fetch_and_validate_project, get_or_create_run, load_project
from mlflow.tracking import MlflowClient
from msgspec.structs import replace

from metlmon.authoring.description import description_name, read_description
from metlmon.authoring.mlproject import ENTRY_POINT, with_configuration, with_parameters
from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import Plan, PlanError, RequestProblem, key_of
from metlmon.authoring.validate import validate
from metlmon.authoring.write_dag import assignments, input_files, nodes_by_file
from metlmon.authoring.write_files import new_directory, write_plan
from metlmon.cli.commands.export_mlflow import COMMAND, OUTPUT_FILE
from metlmon.config.loader import load_settings
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.session import Session
from metlmon.model.states import ENDED, DagState
from metlmon.pool.client import PoolClient
from metlmon.pool.types import PoolAction, PoolError
from metlmon.snapshot.records import DagRow
from metlmon.text.formatting import count, plain
from metlmon.tracking.mlflow_client import TrackingError, tracking_server

POLL_SECONDS: Final = 1.0
"""How often a waiting caller reads the DAG's files."""

LONGEST_MESSAGE: Final = 2000
"""Characters of a sentence, which may name files of a foreign project."""

MLFLOW_KEYS: Final = frozenset(
    """
    ENV_MANAGER SYNCHRONOUS DOCKER_ARGS STORAGE_DIR build_image docker_auth
    _mlflow_local_backend_run_id
    """.split()
)
"""Keys that MLflow itself adds to the configuration of a backend (``mlflow.projects.utils``)."""

STATUSES: Final = {
    DagState.DONE: RunStatus.FINISHED,
    DagState.FAILED: RunStatus.FAILED,
    DagState.REMOVED: RunStatus.KILLED,
}
"""MLflow's status of a run by the state of its DAG; RUNNING for other states."""

_log = logging.getLogger("mlflow.metlmon")


class ProjectBackend(AbstractBackend):  # type: ignore[misc]
    """Runs projects that ``metlmon new --mlproject`` wrote as DAGs of HTCondor."""

    def run(
        self,
        project_uri: str,
        entry_point: str,
        params: Mapping[str, object] | None,
        version: str | None,
        backend_config: Mapping[str, Any],
        tracking_uri: str,
        experiment_id: str,
    ) -> SubmittedEnsemble:
        """Write and submit the ensemble; returns as soon as the schedd has the DAG.

        Raises ExecutionException with one sentence. A run of MLflow exists only if the request is
        valid and a schedd answers; it has FAILED if the DAG could not be submitted.
        """
        work_dir = fetch_and_validate_project(project_uri, version, entry_point, params)
        texts = {name: str(value) for name, value in (params or {}).items()}
        pool = PoolClient()
        try:
            plan, own_files = _plan(Path(work_dir), entry_point, texts, backend_config)
            if load_settings(plan.request.directory).read_only:
                raise InputError("mlflow run: metlmon.toml says read_only = true; take that out")
            server = tracking_server(tracking_uri, os.environ, load_settings(None).tracking)
            pool.where()
            run = get_or_create_run(
                None, project_uri, experiment_id, work_dir, version, entry_point, params
            )
            run_id = str(run.info.run_id)
            dag = plan.request.directory.absolute() / plan.dag_file
            try:
                write_plan(plan)
                _copy_files(Path(work_dir), dag.parent, own_files)
                cluster = pool.submit_dag(dag)
            except BaseException:
                MlflowClient().set_terminated(run_id, "FAILED")
                raise
        except (InputError, PoolError, TrackingError) as error:
            raise ExecutionException(plain(str(error), LONGEST_MESSAGE)) from None
        finally:
            pool.close()
        where = shlex.quote(str(dag.parent))
        _log.info("cluster %s: %s, %s", cluster, dag, count(plan.nodes, "node"))
        _log.info("watch it with: metlmon watch %s", where)
        _log.info("cancel it with: metlmon act remove-dag %s", where)
        if server.sends_secrets_in_clear:
            _log.warning("%s: the credentials cross the network without encryption", server.uri)
        return SubmittedEnsemble(run_id, dag, _start_export(dag, run_id, tracking_uri))


def _start_export(dag: Path, run_id: str, tracking_uri: str) -> subprocess.Popen[bytes]:
    """Start the export, which outlives this process and is not interrupted with it."""
    with (dag.parent / OUTPUT_FILE).open("ab") as output:
        return subprocess.Popen(
            [sys.executable, *COMMAND, str(dag), run_id],
            cwd=dag.parent,
            env={**os.environ, "MLFLOW_TRACKING_URI": tracking_uri},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


class SubmittedEnsemble(SubmittedRun):  # type: ignore[misc]
    """The handle of a submitted DAG. ``exporter``: the process that exports its epochs."""

    def __init__(self, run_id: str, dag: Path, exporter: subprocess.Popen[bytes]) -> None:
        super().__init__()
        self._run_id = run_id
        self._dag = dag
        self._exporter = exporter
        self._reader = DagdirReader(dag, load_settings(dag.parent))
        self._reader.open()

    @property
    def run_id(self) -> str:
        """The MLflow run that the epochs are exported into."""
        return self._run_id

    def wait(self) -> bool:
        """Wait until the DAG has ended and is exported; True if it ended with 0."""
        while self._state() not in ENDED:
            time.sleep(POLL_SECONDS)
        if code := self._exporter.wait():
            again = shlex.join([sys.executable, *COMMAND, str(self._dag), self._run_id])
            output = self._dag.with_name(OUTPUT_FILE)
            _log.warning("the export ended with %s, see %s; again: %s", code, output, again)
        return self._state() is DagState.DONE

    def get_status(self) -> str:
        """The status of the DAG by its files: RUNNING, FINISHED, FAILED or KILLED."""
        return str(RunStatus.to_string(STATUSES.get(self._state(), RunStatus.RUNNING)))

    def cancel(self) -> None:
        """Remove the DAG, and wait until it has ended. Raises ExecutionException."""
        if self._state() in ENDED:
            return
        if self._reader.ensemble.settings.read_only:
            raise ExecutionException(f"{self._dag}: read_only is set in metlmon.toml")
        session = Session(self._reader)
        status = session.take().status
        client = PoolClient(session)
        try:
            assert client.queue is not None
            client.queue.query()
            dags = [row for row in status.dags if row.file == self._dag.name]
            previews = client.previews(status, (), dags)
            preview = next(each for each in previews if each.act is PoolAction.REMOVE_DAG)
            if preview.request is None:
                raise ExecutionException(f"{self._dag}: cannot be removed: {preview.refused}")
            for result in client.perform(preview.request, lambda result: None):
                if not result.succeeded:
                    raise ExecutionException(f"{self._dag}: {result.reply}: {result.text}")
        except PoolError as error:
            raise ExecutionException(f"{self._dag}: cannot be removed: {error}") from None
        finally:
            client.close()
        self.wait()

    def _state(self) -> DagState:
        self._reader.check()
        self._reader.read_all()
        rows: tuple[DagRow, ...] = self._reader.snapshot_builder().status().dags
        return next((row.state for row in rows if row.file == self._dag.name), DagState.UNKNOWN)


# --- the plan -----------------------------------------------------------------------------


def _plan(
    work_dir: Path, entry_point: str, params: Mapping[str, str], configuration: Mapping[str, Any]
) -> tuple[Plan, list[str]]:
    """The plan with these values, and the project's files it needs. Raises PlanError."""
    name = load_project(str(work_dir)).name
    description = work_dir / description_name(name or "")
    if not name or not description.is_file() or entry_point != ENTRY_POINT:
        raise PlanError(
            f"{work_dir}: metlmon runs the entry point {ENTRY_POINT} of projects that metlmon new "
            "--mlproject wrote, by the description NAME.toml beside MLproject"
        )
    given = {key: value for key, value in configuration.items() if key not in MLFLOW_KEYS}
    directory = given.pop("directory", None)
    if directory is not None and not isinstance(directory, str):
        raise PlanError("--backend-config directory: must be a text, the path of a new directory")
    request = replace(
        with_configuration(with_parameters(read_description(description), params), given),
        directory=Path(directory) if directory is not None else new_directory(Path(name)),
        mlproject=False,
    )
    validation = validate(request)
    if errors := validation.fatal:
        raise PlanError(_sentence(errors[0], params, given))
    plan = make_plan(request, validation)
    if plan.existing_files:
        path = request.directory / plan.existing_files[0]
        raise PlanError(f"--backend-config directory: {path} is there already; name a new one")
    own_files = _own_files(plan, work_dir)
    for problem in validation.problems:
        if not any(problem.text.startswith(f"{file}: ") for file in own_files):
            _log.warning("%s", plain(_sentence(problem, params, given), LONGEST_MESSAGE))
    return plan, own_files


def _own_files(plan: Plan, work_dir: Path) -> list[str]:
    """Files and directories of the project that the jobs transfer, by their relative names.

    Raises PlanError for a name that leads out of the project: its copy would be outside of the
    new directory, where it could replace another file.
    """
    data = {file.name: file.data for file in plan.files}
    texts = [data[name].decode() for name in nodes_by_file(plan.graph) if name in data]
    names = dict.fromkeys(name for text in texts for name in input_files(assignments(text)))
    relative = [name for name in names if name not in data and not os.path.isabs(name)]
    for name in relative:
        if os.path.normpath(name).split(os.sep)[0] == os.pardir:
            raise PlanError(f"{name}: is outside of the project; name its absolute path instead")
    return [name for name in relative if (work_dir / name).exists()]


def _copy_files(work_dir: Path, directory: Path, names: Iterable[str]) -> None:
    """Copy files of the project, so that later changes do not affect this ensemble."""
    for name in names:
        source, target = work_dir / name, directory / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                # It may be there, with a file of it that jobs also take along by itself.
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                shutil.copy2(source, target)
        except OSError as error:
            reason = error.strerror or error
            if isinstance(error, shutil.Error):  # Of a directory: all that failed.
                source, _, reason = error.args[0][0]
            raise PlanError(f"{source}: cannot be copied to {directory}: {reason}") from None


def _sentence(
    problem: RequestProblem, params: Mapping[str, str], configuration: Mapping[str, Any]
) -> str:
    """A problem, with the option that it is about."""
    if problem.text.startswith("-P "):
        return problem.text  # It already names the swept variable.
    name = problem.field.removeprefix("values.")
    if name in params:
        return f"-P {name}: {problem.text}"
    key = key_of(name)
    if key in configuration or key == "directory":
        return f"--backend-config {key}: {problem.text}"
    return f"{key}: {problem.text}"
