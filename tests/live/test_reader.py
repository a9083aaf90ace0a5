"""The reader: its budget per step, when an ensemble is live, and which files it reads."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from metlmon.config.settings import Settings
from metlmon.live import dagdir_reader as reader_module
from metlmon.live import follower
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.model_state import Batch
from metlmon.model.states import State
from tests.support.dagdir_builder import NODE, Dagdir, again, log_of, states
from tests.support.event_logs import Log, Out, moment
from tests.support.recordings import read_all

# --- the budget -----------------------------------------------------------------------------


def long_log(events: int) -> bytes:
    log = Log().submit(77, NODE)
    event = log.image(77, 5).events.pop()
    return log.data + event * events


class Steps:
    """A reader whose clock advances by one second with every batch of events."""

    def __init__(
        self, dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch, live: bool | None = None
    ) -> None:
        self.now = 0.0
        self.batches: list[int] = []
        self.reader = DagdirReader(dagdir.path, live=live)
        monkeypatch.setattr(reader_module.time, "monotonic", lambda: self.now)
        apply = self.reader.ensemble.apply

        def counted(batch: Batch):  # type: ignore[no-untyped-def]
            self.now += 1.0
            added_up = sum(image.updates for image in batch.images)
            self.batches.append(len(batch.events) + added_up)
            return apply(batch)

        monkeypatch.setattr(self.reader.ensemble, "apply", counted)
        self.reader.open()


def test_step_ends_when_its_time_is_over(dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "CHUNK", 16_000)
    dagdir.write("metl.log", long_log(1000))
    steps = Steps(dagdir, monkeypatch)
    step = steps.reader.step(seconds=2.5)
    assert step.more
    assert len(steps.batches) == 3
    first = steps.reader.progress()
    assert 0 < first.fraction < 0.5
    while steps.reader.step(seconds=2.5).more:
        assert steps.reader.progress().fraction < 1.0
    assert sum(steps.batches) == 1001
    size = (dagdir.path / "metl.log").stat().st_size
    assert size // 16_000 <= len(steps.batches) <= size // 15_000 + 1
    assert steps.reader.progress().fraction == 1.0


def test_as_of_follows_reading_until_a_log_is_read(
    dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that runs as far as the log has been read need not run until now."""
    monkeypatch.setattr(follower, "CHUNK", 8_000)
    dagdir.write("metl.log", long_log(500))
    steps = Steps(dagdir, monkeypatch, live=True)
    assert steps.reader.step(seconds=0.5).more
    newest = steps.reader.ensemble.newest
    assert steps.reader.snapshot_builder().status().as_of == newest
    while steps.reader.step(seconds=0.5).more:
        pass
    assert steps.reader.snapshot_builder().status().as_of > newest


def test_dagmans_log_is_read_first(dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "CHUNK", 8_000)
    dagdir.write("metl.log", long_log(500))
    dagdir.write("run.dag.dagman.log", Log().submit(900).execute(900, gpus=None).data)
    steps = Steps(dagdir, monkeypatch)
    assert steps.reader.step(seconds=1.5).more
    assert steps.reader.snapshot_builder().status().dags[0].state == "running"


def test_log_that_switches_to_utc(dagdir: Dagdir) -> None:
    """An administrator may switch while jobs run; with a zone both are the same time."""
    log = Log().submit(77, NODE)
    report = (
        b"006 (077.000.000) 2026-05-04 10:30:00Z Image size of job updated: 5\n"
        b"\t5  -  MemoryUsage of job (MB)\n\t5  -  ResidentSetSize of job (KB)\n...\n"
    )
    dagdir.write("metl.log", report + log.data)
    reader = read_all(DagdirReader(dagdir.path, Settings(zone=ZoneInfo("America/Chicago"))))
    (job,) = reader.snapshot_builder().job_rows()
    assert job.memory_mb == 5
    assert reader.ensemble.log_stats["metl.log"].first == datetime(2026, 5, 4, 5, 30)


def test_warnings_about_noise_are_limited(dagdir: Dagdir) -> None:
    dagdir.write("metl.log", log_of(77) + b"noise\n...\n" * 3000 + log_of(78))
    reader = dagdir.reader()
    assert set(states(reader)) == {77, 78}
    notices = reader.snapshot_builder().status().warnings
    assert 0 < len(notices) <= 2 * 50 + 2
    assert "more of this kind" in notices[-1].text


# --- live ---------------------------------------------------------------------------------


def running(dagdir: Dagdir) -> Dagdir:
    dagdir.write("metl.log", Log().submit(77, NODE, at="10:00:00").execute(77).data)
    dagdir.write("run.dag.dagman.log", Log().submit(900, at="09:00:00").data)
    return dagdir


def test_dagman_with_an_event_of_the_last_day_is_live(dagdir: Dagdir) -> None:
    reader = running(dagdir).reader(now="2026-05-04 15:00:00")
    status = reader.snapshot_builder().status()
    assert status.live
    assert status.as_of == moment("15:00:00")
    assert status.runs[0].latest is not None
    assert status.runs[0].seconds == 4 * 3600 + 59 * 60
    reader = running(dagdir).reader(now="2026-05-05 10:01:01")
    status = reader.snapshot_builder().status()
    assert not status.live
    assert status.as_of == moment("10:01:00")


def test_mtime_never_decides_live(dagdir: Dagdir) -> None:
    """A copy has new mtimes, an archive may have old ones."""
    running(dagdir)
    for path in dagdir.path.iterdir():
        os.utime(path, (1, 1))
    assert dagdir.reader(now="2026-05-04 15:00:00").live()
    for path in dagdir.path.iterdir():
        os.utime(path)
    assert not dagdir.reader(now="2026-08-04 15:00:00").live()


@pytest.mark.parametrize("file", ["run.dag.dagman.log", "run.dag.dagman.out", "run.dag.metrics"])
def test_ended_dagman_is_not_live(dagdir: Dagdir, file: str) -> None:
    running(dagdir)
    ended = Log().submit(900, at="09:00:00").terminate(900, 0, at="11:00:00")
    end = datetime(2026, 5, 4, 16).timestamp()
    content = {
        "run.dag.dagman.log": ended.data,
        "run.dag.dagman.out": Out().start("09:00:00").exit(0, at="11:00:00").data,
        "run.dag.metrics": (
            f'{{"client": "condor_dagman", "metrics_version": 2, "start_time": {end - 9000}, '
            f'"end_time": {end}, "exitcode": 0, "DagStatus": 0}}'
        ).encode(),
    }[file]
    (dagdir.path / "run.dag.dagman.log").unlink()
    dagdir.write(file, content)
    assert not dagdir.reader(now="2026-05-04 11:30:00").live()


def test_growing_log_is_live_whatever_its_dates(dagdir: Dagdir) -> None:
    reader = running(dagdir).reader(now="2026-12-24 10:00:00")
    assert not reader.live()
    dagdir.append("metl.log", Log().image(77, 5, at="10:05:00").data)
    again(reader)
    assert reader.live()


def test_touched_log_is_not_growing(dagdir: Dagdir) -> None:
    running(dagdir).append("metl.log", b"006 (077.000.000) 2026-05-04")
    reader = dagdir.reader(now="2026-12-24 10:00:00")
    os.utime(dagdir.path / "metl.log", (1.0, 1.0))
    again(reader)
    assert not reader.live()


def test_live_can_be_set(dagdir: Dagdir) -> None:
    running(dagdir)
    forced = dagdir.reader(live=True, now="2026-12-24 10:00:00").snapshot_builder().status()
    assert (forced.live, forced.as_of) == (True, datetime(2026, 12, 24, 10))
    forced = dagdir.reader(live=False, now="2026-05-04 10:10:00").snapshot_builder().status()
    assert (forced.live, forced.as_of) == (False, moment("10:01:00"))


def test_as_of_is_not_before_the_newest_event(dagdir: Dagdir) -> None:
    """The access point's clock may be fast, or in another zone."""
    reader = running(dagdir).reader(now="2026-05-04 08:00:00")
    assert reader.live()
    assert reader.duration_end(live=True) == moment("10:01:00")


def test_system_clock_is_local_time(dagdir: Dagdir) -> None:
    """Without a replay's clock: now, in the access point's zone if it is known."""
    young = datetime.fromtimestamp(time.time()).replace(microsecond=0) - timedelta(hours=1)
    dagdir.write("metl.log", Log().submit(77, NODE, at=str(young)).execute(77).data)
    dagdir.write("run.dag.dagman.log", Log().submit(900, at=str(young)).data)
    assert dagdir.reader().live()


def test_only_dagdir_and_log_directories_are_watched(dagdir: Dagdir) -> None:
    dagdir.write("run.dag", f"JOB {NODE} {{\n log = logs/a.ulog\n}}\n")
    dagdir.write("logs/a.ulog", log_of(77))
    dagdir.write("out/77.out", "x")
    assert dagdir.reader().watched_directories() == [dagdir.path, dagdir.path / "logs"]


@pytest.mark.parametrize("events_behind", [True, False])
@pytest.mark.parametrize("cut", [0, 40])
def test_hole_of_gigabytes_is_skipped(tmp_path: Path, cut: int, events_behind: bool) -> None:
    dagdir = Dagdir(tmp_path / "ensemble")
    first = Log().submit(77, NODE).execute(77, 1).data
    path = dagdir.write("metl.log", first[: len(first) - cut])
    size = 50_000_000_000
    with open(path, "r+b") as file:
        if events_behind:
            file.seek(size)
            file.write(Log().terminate(77).data)
        else:
            file.truncate(size)
    os.utime(path, (0, 0))

    reader = dagdir.reader()

    (job,) = reader.snapshot_builder().job_rows()
    assert job.state is (State.COMPLETED if events_behind else State.RUNNING)
    notices = [n for n in reader.snapshot_builder().notices() if n.kind == "nul-bytes"]
    assert [n.text.split()[0] for n in notices] == [str(size - len(first) + cut)]
    # Later events are read.
    dagdir.append("metl.log", Log().submit(78, "run0-train_epoch1").data)
    os.utime(path, (1, 1))
    again(reader)
    assert len(reader.snapshot_builder().job_rows()) == 2
