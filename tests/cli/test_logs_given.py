"""Commands on event logs: named files, a directory of them, or a cluster in the queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.cli.main import main
from metlmon.pool import connection
from metlmon.pool.protocol import SCHEDULER_UNIVERSE, QueueJob
from metlmon.pool.types import PoolError
from tests.support.commands import Captured, json_output, text_output
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log


@pytest.fixture(name="logs")
def _logs(tmp_path: Path) -> Dagdir:
    """One log for each cluster; 7 ended after an hour, 8 is idle."""
    logs = Dagdir(tmp_path / "logs", "")
    done = Log().submit(7).execute(7, at="10:00:00").terminate(7, 0, at="11:00:00")
    logs.write("job_7.log", done.data)
    logs.write("job_8.log", Log().submit(8, at="10:30:00").data)
    logs.write("train.log", "epoch 1\n")
    return logs


def refused(capsys: Captured, *arguments: str) -> str:
    assert main(list(arguments)) == 2
    return capsys.readouterr().err


def test_status_reads_a_directory_of_logs(capsys: Captured, logs: Dagdir) -> None:
    value = json_output("status", capsys, logs.path)
    assert value["dags"] == []
    assert [(run["run"], run["dag"], run["item"]) for run in value["runs"]] == [
        ("7", None, "job"),
        ("8", None, "job"),
    ]
    assert value["hours"]["goodput"] == 1.0
    assert value["epoch_states"]["completed"] == 1
    text = text_output("status", capsys, logs.path)
    assert "2 jobs:" in text
    assert "epoch" not in text.lower()


@pytest.mark.parametrize("command", ["status", "jobs"])
def test_commands_take_several_logs(capsys: Captured, logs: Dagdir, command: str) -> None:
    both = [str(logs.path / f"job_{cluster}.log") for cluster in (7, 8)]
    of_files = json_output(command, capsys, *both)
    of_directory = json_output(command, capsys, logs.path)
    assert of_files | {"dagdir": ""} == of_directory | {"dagdir": ""}


def test_health_reads_logs(capsys: Captured, logs: Dagdir) -> None:
    logs.write("job_9.log", Log().submit(9).execute(9).terminate(9, 1).data)
    text = text_output("health", capsys, logs.path)
    assert "1 of 3 runs · 1 job left" in text
    assert "Submit the jobs again" in text
    value = json_output("health", capsys, logs.path)
    assert [(entry["kind"], entry["act"]) for entry in value["entries"]] == [("run-failed", None)]


def test_exit_on_works_on_logs(capsys: Captured, logs: Dagdir) -> None:
    here = str(logs.path)
    assert main(["status", here, "--exit-on", "all", "--timeout", "0"]) == 5
    logs.append("job_8.log", Log().execute(8, at="11:00:00").terminate(8, 0).data)
    assert main(["status", here, "--exit-on", "all"]) == 0
    assert main(["status", here, "--exit-on", "done"]) == 0
    logs.write("job_9.log", Log().submit(9).execute(9).terminate(9, 1).data)
    assert main(["status", here, "--exit-on", "failed"]) == 3
    assert main(["status", here, "--exit-on", "all"]) == 3
    capsys.readouterr()


def test_log_beside_a_dag_is_read_alone(capsys: Captured, tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", Log().submit(77, NODE).data)
    value = json_output("status", capsys, dagdir.path / "metl.log")
    assert [warning["kind"] for warning in value["warnings"]] == ["no-dag-file"]
    assert [(run["run"], run["item"], run["epochs_total"]) for run in value["runs"]] == [
        ("run0", "epoch", 1)
    ]


def test_other_files_are_refused(capsys: Captured, logs: Dagdir) -> None:
    here, train = str(logs.path), str(logs.path / "train.log")
    assert "none.log: no such file" in refused(capsys, "jobs", train, f"{here}/none.log")
    assert "No such file" in refused(capsys, "status", train, f"{here}/none.log")
    assert "is a directory; give one directory, or" in refused(capsys, "jobs", train, here)
    text = refused(capsys, "jobs", here, "run0")
    assert "run0: no such file" in text
    assert "a run is chosen by --only, or by metlmon run" in text
    (logs.path / "more.log").write_text("no event\n")
    text = refused(capsys, "sites", train, f"{here}/more.log")
    assert "train.log: not an event log" in text
    assert "and 1 more file" in text


# --- a cluster --------------------------------------------------------------------------------


class Schedd:
    """A connection whose queue has these jobs, or does not answer."""

    jobs: tuple[QueueJob, ...] = ()
    error: str | None = None

    def query(self, dagmans: object, clusters: object) -> tuple[QueueJob, ...]:
        if self.error is not None:
            raise PoolError(self.error)
        assert clusters == (7,)
        return self.jobs

    def close(self) -> None:
        pass


@pytest.fixture(name="schedd")
def _schedd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Schedd:
    schedd = Schedd()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(connection, "PoolConnection", lambda: schedd)
    return schedd


def test_cluster_is_read_from_the_log_in_the_queue(
    capsys: Captured, logs: Dagdir, schedd: Schedd
) -> None:
    job = QueueJob(7, 0, 2, directory=str(logs.path), log="job_7.log")
    schedd.jobs = (job, QueueJob(7, 1, 2, directory=str(logs.path), log="job_8.log"))
    value = json_output("jobs", capsys, "7")
    assert [job["cluster"] for job in value["jobs"]] == [7, 8]


def test_cluster_of_a_dagman_opens_its_dag(
    capsys: Captured, tmp_path: Path, schedd: Schedd
) -> None:
    dagdir = Dagdir(tmp_path / "ensemble")
    log = str(dagdir.path / "run.dag.dagman.log")
    schedd.jobs = (QueueJob(7, 0, 2, log=log, universe=SCHEDULER_UNIVERSE),)
    value = json_output("status", capsys, "7")
    assert [dag["file"] for dag in value["dags"]] == ["run.dag"]


def test_cluster_without_a_log_is_refused(capsys: Captured, schedd: Schedd) -> None:
    assert "cluster 7 is not in the queue" in refused(capsys, "watch", "7")
    schedd.jobs = (QueueJob(7, 0, 1),)
    assert "cluster 7 writes no event log" in refused(capsys, "status", "7")
    schedd.error = "no schedd on this host"
    text = refused(capsys, "status", "7")
    assert "cluster 7: no schedd on this host; or give the path of its log" in text
