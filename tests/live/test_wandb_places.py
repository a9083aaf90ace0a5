"""Where W&B runs are found below the dagdir, and the epochs of their values."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from pathlib import Path

import pytest

from metlmon.config.settings import MetricSettings, Settings
from metlmon.jobfiles.records import Point, TrainingOutput
from metlmon.live import job_files
from metlmon.live.job_files import TrainingFiles
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.records import read_dagdir
from tests.support.tracked_ensembles import metrics_csv
from tests.support.wandb_files import history_record, log_file, run_record

UUID = "aaaa1111-0000"
LOGS = f"output/training_logs/{UUID}"
FIRST = f"{LOGS}/wandb/offline-run-20260504_100100-aa/run-aa.wandb"
SECOND = f"{LOGS}/wandb/offline-run-20260504_113500-bb/run-bb.wandb"


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    """One run of two epochs: the first is done, the second runs."""
    dagdir = Dagdir(tmp_path / "ensemble")
    log = Log().submit(77, NODE, at="10:00:00").execute(77).terminate(77, 0, at="11:00:00")
    log.submit(78, "run0-train_epoch1", at="11:01:00").execute(78, at="11:30:00")
    dagdir.write("metl.log", log.data)
    return dagdir


def run_of(*rows: tuple[int | None, float], started: str = "2026-05-04 10:01:00") -> bytes:
    """A file with rows of (epoch, val_loss); ``started`` in UTC."""
    moment = datetime.fromisoformat(started).replace(tzinfo=UTC)
    records = [
        history_record({"val_loss": value} | ({} if epoch is None else {"epoch": epoch}))
        for epoch, value in rows
    ]
    return log_file([run_record(int(moment.timestamp())), *records])


def output(
    dagdir: Dagdir, files: TrainingFiles | None = None, zone: tzinfo | None = UTC, **options: object
) -> TrainingOutput | None:
    settings = Settings(zone=zone)
    builder = read_dagdir(dagdir.path, settings=settings, **options)
    files = files or TrainingFiles(dagdir.path, settings)
    return files.read(builder).trainings.get(UUID)


def points(found: TrainingOutput | None) -> list[tuple[int, float]]:
    return [(point.epoch, point.value) for point in found.metrics.get("val_loss", ())]


@pytest.mark.parametrize("first", [0, 1], ids=["as Lightning", "as the names"])
@pytest.mark.parametrize("kind", ["csv", "wandb", "stdout"])
def test_values_of_node_names_that_count_from_1(tmp_path: Path, kind: str, first: int) -> None:
    """They belong to the same epochs, whether the files count from 0 or from 1."""
    dag = "SUBMIT-DESCRIPTION train {\n log = metl.log\n output = $(JOB).out\n}\n"
    names = [f"run0-train_epoch{number}" for number in (1, 2)]
    dag += "".join(f'JOB {name} train\nVARS {name} run_uuid="{UUID}"\n' for name in names)
    dagdir, log = Dagdir(tmp_path / "ensemble", dag), Log()
    for cluster, name in enumerate(names, start=77):
        log.submit(cluster, name).execute(cluster).terminate(cluster, 0)
    dagdir.write("metl.log", log.data)
    values = [(first, 0.5), (first + 1, 0.25)]
    if kind == "csv":
        dagdir.write(f"{LOGS}/version_0/metrics.csv", metrics_csv(values))
    elif kind == "wandb":
        dagdir.write(FIRST, run_of(*values))
    else:
        for name, (epoch, value) in zip(names, values, strict=True):
            dagdir.write(f"{name}.out", f"Epoch {epoch}: val_loss: {value}\n")
    assert points(output(dagdir)) == [(0, 0.5), (1, 0.25)]


# --- places ----------------------------------------------------------------------------------


def test_runs_below_the_version_directories_are_found(dagdir: Dagdir) -> None:
    dagdir.write(FIRST, run_of((0, 0.5), (1, 0.25)))
    found = output(dagdir)
    assert found.metrics["val_loss"] == (Point(0, 0.5, None, FIRST), Point(1, 0.25, None, FIRST))
    assert found.problems == ()


def test_shared_directory_is_searched_by_uuid(dagdir: Dagdir) -> None:
    """As named by ``WANDB_RUN_ID``, where all jobs share one directory."""
    for uuid, value in ((UUID, 0.5), ("bbbb", 0.1)):
        name = f"wandb/offline-run-20260504_100100-{uuid}/run-{uuid}.wandb"
        dagdir.write(name, run_of((0, value)))
    assert output(dagdir) is None
    settings = Settings(metrics=MetricSettings(files=("wandb/offline-run-*-{uuid}",)))
    files = TrainingFiles(dagdir.path, settings)
    assert points(output(dagdir, files)) == [(0, 0.5)]


def test_other_names_are_not_read(dagdir: Dagdir) -> None:
    dagdir.write(f"{LOGS}/wandb/run-20260504_100100-aa/run-aa.wandb", run_of((0, 0.5)))
    dagdir.write(f"{LOGS}/wandb/offline-run-20260504_100100-aa/logs/run-a.wandb", run_of((0, 0.5)))
    (dagdir.path / LOGS / "wandb/latest-run").symlink_to("run-20260504_100100-aa")
    assert output(dagdir) is None


def test_metrics_csv_takes_precedence(dagdir: Dagdir) -> None:
    dagdir.write(FIRST, run_of((0, 0.5), (1, 0.25)))
    dagdir.write(f"{LOGS}/version_0/metrics.csv", "epoch,val_loss\n0,0.75\n")
    assert points(output(dagdir)) == [(0, 0.75), (1, 0.25)]


@pytest.mark.parametrize(("last", "first"), [(SECOND, FIRST), (FIRST, SECOND)])
def test_last_started_run_counts(dagdir: Dagdir, last: str, first: str) -> None:
    """Also where it began in a zone further west, whose clock is behind."""
    dagdir.write(last, run_of((1, 0.125), started="2026-05-04 11:35:00"))
    dagdir.write(first, run_of((0, 0.5), (1, 0.25)))
    assert points(output(dagdir)) == [(0, 0.5), (1, 0.125)]


def test_problems_name_the_file(dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch) -> None:
    dagdir.write(FIRST, b"nothing of W&B's")
    dagdir.write(SECOND, run_of((0, 0.5)) + bytes(9))
    found = output(dagdir)
    assert found.problems[0].startswith(f"{SECOND} is damaged at byte ")
    assert found.problems[1] == f"{FIRST} is not in the format of a W&B run"
    assert points(found) == [(0, 0.5)]
    monkeypatch.setattr(job_files, "LARGEST_WANDB_RUN", 10)
    found = output(dagdir)
    assert found.problems[1] == f"{FIRST} is not read: it is larger than 0 MB"


def test_growing_file_is_read_again(dagdir: Dagdir) -> None:
    data = run_of((0, 0.5), (1, 0.25))
    files = TrainingFiles(dagdir.path, Settings())
    dagdir.write(FIRST, data[:-3])
    assert points(output(dagdir, files)) == [(0, 0.5)]
    first = output(dagdir, files)
    assert output(dagdir, files) is first
    dagdir.append(FIRST, data[-3:])
    assert points(output(dagdir, files)) == [(0, 0.5), (1, 0.25)]


def test_as_of_limits_values_to_completed_epochs(dagdir: Dagdir) -> None:
    dagdir.write(FIRST, run_of((0, 0.5), (1, 0.25)))
    as_of = datetime(2026, 5, 4, 11, 45)
    assert points(output(dagdir, as_of=as_of)) == [(0, 0.5)]


# --- runs without an epoch -----------------------------------------------------------------------


def test_rows_without_an_epoch_belong_to_their_jobs_epoch(dagdir: Dagdir) -> None:
    dagdir.write(FIRST, run_of((None, 0.75), (None, 0.5)))
    dagdir.write(SECOND, run_of((None, 0.25), started="2026-05-04 11:35:00"))
    found = output(dagdir)
    assert points(found) == [(0, 0.5), (1, 0.25)]
    assert found.problems == ()


UNKNOWN = "logs no epoch, and which job wrote it is not known"


IN_NO_JOB = run_of((None, 0.75), started="2026-05-04 11:00:30")


@pytest.mark.parametrize(
    ("data", "zone", "live"),
    [
        pytest.param(IN_NO_JOB, UTC, None, id="between two jobs"),
        pytest.param(run_of((None, 0.75)), None, False, id="without a zone"),
        *(
            (log_file([run_record(start), history_record({"val_loss": 1})]), zone, True)
            for start in (0, 1 << 40, (1 << 64) - 1)
            for zone in (UTC, None)
        ),
    ],
)
def test_rows_of_an_unknown_job_are_left_out(
    dagdir: Dagdir, data: bytes, zone: tzinfo | None, live: bool | None
) -> None:
    dagdir.write(FIRST, data)
    found = output(dagdir, zone=zone, live=live)
    assert (found.metrics, found.problems) == ({}, (f"{FIRST} {UNKNOWN}",))


def test_zone_of_a_live_ensemble_is_this_machines(dagdir: Dagdir) -> None:
    moment = int(datetime(2026, 5, 4, 11, 35).timestamp())
    dagdir.write(SECOND, log_file([run_record(moment), history_record({"val_loss": 1})]))
    assert points(output(dagdir, zone=None, live=True)) == [(1, 1.0)]


def test_later_known_zone_is_used(dagdir: Dagdir) -> None:
    dagdir.write(FIRST, run_of((None, 0.75)))
    files = TrainingFiles(dagdir.path, Settings())
    assert output(dagdir, files, zone=None, live=False) is not None
    assert points(output(dagdir, files, zone=UTC)) == [(0, 0.75)]
