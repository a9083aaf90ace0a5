"""Files of jobs: found only below the dagdir, and read again when they change."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import pytest

from metlmon.config.settings import MetricPattern, MetricSettings, Settings
from metlmon.jobfiles.records import Streamed, TrainingOutput
from metlmon.live import job_files
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.job_files import TrainingFiles
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import DAY, Log
from tests.support.recordings import FIXTURES, read_all

TRAINER = FIXTURES / "trainer"

UUID = "aaaa1111-0000"
NEXT = "run0-train_epoch1"
LOGS = f"output/training_logs/{UUID}"

DAG = f"""\
SUBMIT-DESCRIPTION train {{
    executable = train.sh
    output = $(Cluster).out
    log = metl.log
}}
JOB {NODE} train
VARS {NODE} run_uuid="{UUID}" epoch="1"
JOB {NEXT} train
VARS {NEXT} run_uuid="{UUID}" epoch="2"
PARENT {NODE} CHILD {NEXT}
"""

BAR = "Epoch 1:  45%|####      | 45/100 [00:45<00:55, 1.00it/s, loss=0.5, v_num=0]"


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    """One run of two epochs: the first is done, the second runs."""
    dagdir = Dagdir(tmp_path / "ensemble", DAG)
    log = Log().submit(77, NODE, at="10:00:00").execute(77).terminate(77, 0, at="11:00:00")
    log.submit(78, NEXT).execute(78, at="11:30:00")
    dagdir.write("metl.log", log.data)
    return dagdir


def csv_of(*rows: tuple[int, float | str]) -> str:
    lines = [f",{epoch},{value}" for epoch, value in rows]
    return "\n".join(["train_loss,epoch,val_loss", *lines, ""])


class Look:
    """One reader, which reads a dagdir's files as often as asked."""

    def __init__(self, dagdir: Dagdir | Path, settings: Settings | None = None) -> None:
        path = dagdir.path if isinstance(dagdir, Dagdir) else dagdir
        self.settings = settings or Settings()
        self.reader = _read(path, self.settings)
        self.files = TrainingFiles(path, self.settings)

    def trainings(self) -> Mapping[str, TrainingOutput]:
        builder = self.reader.snapshot_builder()
        return self.files.read(builder).trainings

    def training(self) -> TrainingOutput:
        (found,) = self.trainings().values()
        return found

    def values(self, metric: str = "val_loss") -> dict[int, float]:
        found = self.trainings().get(UUID)
        points = found.metrics.get(metric, ()) if found is not None else ()
        return {point.epoch: point.value for point in points}

    def streams(self) -> Mapping[tuple[int, int], Streamed]:
        builder = self.reader.snapshot_builder()
        return self.files.read(builder).streams


def _read(path: Path, settings: Settings, as_of: datetime | None = None) -> DagdirReader:
    return read_all(DagdirReader(path, settings, as_of=as_of))


# --- versions -----------------------------------------------------------------------------


def test_highest_version_number_counts(dagdir: Dagdir) -> None:
    for k, value in ((9, 0.9), (10, 0.5), (2, 0.2)):
        dagdir.write(f"{LOGS}/version_{k}/metrics.csv", csv_of((0, value)))
    found = Look(dagdir).training().metrics["val_loss"]
    assert [(p.epoch, p.value, p.version) for p in found] == [(0, 0.5, 10)]
    assert found[0].file == f"{LOGS}/version_10/metrics.csv"


def test_each_version_has_its_own_epochs(dagdir: Dagdir) -> None:
    dagdir.write(f"{LOGS}/version_0/metrics.csv", csv_of((0, 0.9)))
    dagdir.write(f"{LOGS}/version_1/metrics.csv", "train_loss,epoch,val_loss\n0.5,1,\n")
    dagdir.write(f"{LOGS}/version_2/args.txt", "--max_epochs\n2\n--api_key\nhunter2\n")
    dagdir.write(f"{LOGS}/version_3/metrics.csv", csv_of((1, "nan")))
    dagdir.write(f"{LOGS}/checkpoints/last.ckpt", b"")
    look = Look(dagdir)
    found = look.training()
    assert [p.epoch for p in found.metrics["val_loss"]] == [0, 1]
    assert math.isnan(found.metrics["val_loss"][1].value)
    assert found.arguments == {2: {"max_epochs": "2"}}


def test_newest_summary_counts(dagdir: Dagdir) -> None:
    dagdir.write(f"{LOGS}/version_0/metrics.txt", "test_loss,0.5\n")
    dagdir.write(f"{LOGS}/version_1/metrics.txt", "best_model_path,x\ntest_loss,0.4\n")
    dagdir.write(f"{LOGS}/version_2/metrics.csv", csv_of((1, 0.3)))
    assert Look(dagdir).training().summary == {"test_loss": 0.4}


def test_folders_follow_the_settings(dagdir: Dagdir) -> None:
    dagdir.write("my/run0/logs/metrics.csv", csv_of((0, 0.7)))
    assert Look(dagdir).values() == {}
    settings = Settings(metrics=MetricSettings(files=("my/{run}/lo*",)))
    assert Look(dagdir, settings).values() == {0: 0.7}


def test_damage_is_reported_with_the_file_name(dagdir: Dagdir) -> None:
    dagdir.write(f"{LOGS}/version_0/metrics.csv", "step,val_loss\n1,2\n")
    (problem,) = Look(dagdir).training().problems
    assert problem == f"{LOGS}/version_0/metrics.csv has no column called epoch"


def test_too_large_file_is_reported(dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_files, "LARGEST_CSV", 10)
    dagdir.write(f"{LOGS}/version_0/metrics.csv", csv_of((0, 0.5)))
    assert "larger than" in Look(dagdir).training().problems[0]


def test_unchanged_files_are_not_read_again(
    dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def opened(path: str, most: int) -> object:
        read.append(Path(path))
        return written_opened(path, most)

    written_opened = job_files.open_text
    monkeypatch.setattr(job_files, "open_text", opened)
    dagdir.write(f"{LOGS}/version_0/metrics.csv", csv_of((0, 0.5)))
    dagdir.write(f"{LOGS}/version_1/metrics.csv", csv_of((1, "nan")))
    look = Look(dagdir)
    first = look.training()
    assert len(read) == 2
    assert look.training() is first
    assert len(read) == 2
    dagdir.write(f"{LOGS}/version_1/metrics.csv", csv_of((1, 0.25), (1, 0.25)))
    assert look.values() == {0: 0.5, 1: 0.25}
    assert [path.parent.name for path in read[2:]] == ["version_1"]


def test_values_of_a_deleted_file_are_dropped(dagdir: Dagdir) -> None:
    path = dagdir.write(f"{LOGS}/version_0/metrics.csv", csv_of((0, 0.5)))
    look = Look(dagdir)
    assert look.values() == {0: 0.5}
    path.unlink()
    assert look.trainings() == {}


# --- untrusted names ----------------------------------------------------------------------------


def test_links_out_of_the_dagdir_are_not_followed(dagdir: Dagdir, tmp_path: Path) -> None:
    outside = Dagdir(tmp_path / "outside", "")
    outside.write("version_0/metrics.csv", csv_of((0, 0.1)))
    (dagdir.path / "output/training_logs").mkdir(parents=True)
    link = dagdir.path / LOGS
    link.symlink_to(outside.path)
    assert Look(dagdir).trainings() == {}
    link.unlink()
    (link / "version_1").mkdir(parents=True)
    (link / "version_0").symlink_to(outside.path / "version_0")
    (link / "version_1/metrics.csv").symlink_to(outside.path / "version_0/metrics.csv")
    assert Look(dagdir).trainings() == {}


def test_links_within_the_dagdir_are_followed(dagdir: Dagdir) -> None:
    dagdir.write("elsewhere/version_0/metrics.csv", csv_of((0, 0.5)))
    (dagdir.path / "output/training_logs").mkdir(parents=True)
    (dagdir.path / LOGS).symlink_to(dagdir.path / "elsewhere")
    assert Look(dagdir).values() == {0: 0.5}


@pytest.mark.parametrize("uuid", ["../outside", "..", ".", "*", "a/../..", "[a-z]*"])
def test_uuid_that_is_not_a_file_name_matches_nothing(tmp_path: Path, uuid: str) -> None:
    dagdir = Dagdir(tmp_path / "ensemble", DAG.replace(UUID, uuid))
    outside = Dagdir(tmp_path / "outside", "")
    outside.write("version_0/metrics.csv", csv_of((0, 0.1)))
    dagdir.write("output/training_logs/other/version_0/metrics.csv", csv_of((0, 0.1)))
    dagdir.write("metl.log", Log().submit(77, NODE).data)
    settings = Settings(
        metrics=MetricSettings(files=("*/training_logs/{uuid}", "{uuid}", "../outside"))
    )
    assert Look(dagdir, settings).trainings() == {}


def test_special_files_are_not_opened(dagdir: Dagdir) -> None:
    (dagdir.path / LOGS / "version_0").mkdir(parents=True)
    os.mkfifo(dagdir.path / LOGS / "version_0" / "metrics.csv")
    assert Look(dagdir).trainings() == {}


# --- printed values -----------------------------------------------------------------------------


def test_printed_value_is_used_without_a_file(dagdir: Dagdir) -> None:
    dagdir.write(f"{LOGS}/version_0/metrics.csv", csv_of((0, 0.5)))
    dagdir.write("77.out", "val_loss: 0.4\n")
    dagdir.write("78.out", "noise\n" * 50_000 + f"\r{BAR}\nval_loss: 0.3\n")
    (first, second) = Look(dagdir).training().metrics["val_loss"]
    assert (first.value, first.version) == (0.5, 0)
    assert (second.epoch, second.value, second.version, second.file) == (1, 0.3, None, "78.out")


def test_epoch_in_the_line_counts(dagdir: Dagdir) -> None:
    message = "Epoch 0, global step 9: 'val_loss' reached 0.61234, saving model to 'x'\n"
    dagdir.write("78.out", message + "val_loss: 0.3\n")
    assert Look(dagdir).values() == {0: 0.61234, 1: 0.3}


def test_primary_metric_is_searched_for(dagdir: Dagdir) -> None:
    dagdir.write("77.out", "val_loss: 0.4\nperplexity=9\n")
    look = Look(dagdir, Settings(metrics=MetricSettings(primary="perplexity")))
    assert look.values("perplexity") == {0: 9.0}
    assert look.values("val_loss") == {}


def test_pattern_for_printed_values(dagdir: Dagdir) -> None:
    pattern = MetricPattern("perplexity", "out", re.compile(r"ppl (?P<value>\S+)"))
    dagdir.write("77.out", "ppl 9\nppl 8\n")
    dagdir.write("78.out", "ppl inf\n")
    look = Look(dagdir, Settings(metrics=MetricSettings(patterns=(pattern,))))
    assert look.values("perplexity") == {0: 8.0, 1: math.inf}


def test_pattern_for_files(dagdir: Dagdir) -> None:
    numbered = re.compile(r"^(?P<epoch>\d+) (?P<value>\S+)$")
    patterns = (
        MetricPattern("loss", "log/{uuid}.txt", numbered),
        MetricPattern("speed", "log/{run}.txt", re.compile(r"speed (?P<value>\d+)")),
    )
    dagdir.write(f"log/{UUID}.txt", "0 9\n1 8\n1 7\n")
    dagdir.write("log/run0.txt", "speed 5\nspeed 6\n")
    look = Look(dagdir, Settings(metrics=MetricSettings(patterns=patterns)))
    assert look.values("loss") == {0: 9.0, 1: 7.0}
    assert look.values("speed") == {0: 5.0, 1: 6.0}


def test_past_values_are_those_of_completed_epochs(dagdir: Dagdir) -> None:
    """A file has no times for its lines; the ledger has the epochs done by then."""
    dagdir.write(f"{LOGS}/version_0/metrics.csv", csv_of((0, 0.5)))
    dagdir.write(f"{LOGS}/version_0/args.txt", "--a\n1\n")
    dagdir.write(f"{LOGS}/version_1/metrics.csv", csv_of((1, 0.4)))
    dagdir.write(f"{LOGS}/version_1/args.txt", "--a\n2\n")
    dagdir.write(f"{LOGS}/version_1/metrics.txt", "test_loss,0.4\n")
    dagdir.write("78.out", BAR)
    look = Look(dagdir)
    assert look.values() == {0: 0.5, 1: 0.4}
    look.reader = _read(dagdir.path, Settings(), datetime.fromisoformat(f"{DAY} 11:45:00"))
    assert look.values() == {0: 0.5}
    assert look.training().arguments == {0: {"a": "1"}}
    assert look.training().summary == {}
    assert look.streams() == {}
    look.reader = _read(dagdir.path, Settings(), datetime.fromisoformat(f"{DAY} 10:30:00"))
    assert look.values() == {}


# --- progress -----------------------------------------------------------------------------------


def test_running_jobs_have_progress(dagdir: Dagdir) -> None:
    dagdir.write("77.out", BAR)
    dagdir.write("78.out", "begun\n" * 9000 + f"\r{BAR}")
    assert Look(dagdir).streams() == {(78, 0): Streamed(0.45, 45, 100, 1.0, 55.0, 1, 0.5)}


def test_progress_follows_the_output(dagdir: Dagdir) -> None:
    dagdir.write("78.out", BAR)
    look = Look(dagdir)
    assert look.streams()[78, 0].step == 45
    dagdir.append("78.out", b"\r" + BAR.replace("45/100", "46/100").encode())
    assert look.streams()[78, 0].step == 46


def test_progress_of_an_earlier_start_is_ignored(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path / "ensemble", DAG)
    log = Log().submit(77, NODE, at="10:00:00").execute(77, at="11:59:00")
    dagdir.write("metl.log", log.data)
    path = dagdir.write("77.out", BAR)
    reader = dagdir.reader(live=True, now=f"{DAY} 12:00:00")
    builder = reader.snapshot_builder()
    files = TrainingFiles(dagdir.path, Settings())
    assert len(files.read(builder).streams) == 1
    old = time.time() - 3600
    os.utime(path, (old, old))
    assert files.read(builder).streams == {}


def test_printed_values_agree_with_files() -> None:
    """The recorded jobs printed five digits of the full values in their files; of epochs that were
    no better than the one before only the three of the progress line."""
    look = Look(TRAINER)
    blind = Look(TRAINER, Settings(metrics=MetricSettings(files=("nowhere/{uuid}",))))
    printed, filed = blind.trainings(), look.trainings()
    compared = 0
    for run, training in printed.items():
        exact = {p.epoch: p.value for p in filed[run].metrics["val_loss"]}
        for point in training.metrics["val_loss"]:
            assert point.version is None
            assert point.value == pytest.approx(exact[point.epoch], rel=0.005, nan_ok=True)
            compared += 1
    assert compared == 30


def test_pool_ensemble_without_metrics(shared) -> None:  # type: ignore[no-untyped-def]
    assert Look(shared("examples/pool-ensemble")).trainings() == {}
