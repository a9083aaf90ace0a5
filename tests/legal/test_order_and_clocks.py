"""Events that are repeated, reordered, or logged by different clocks: the result is the same, and
no duration is negative."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import State
from metlmon.stats.totals import break_down
from tests.support.dagdir_builder import DAG, NODE, Dagdir
from tests.support.event_logs import Log, Out
from tests.support.recordings import read_all

OTHER = "run0-train_epoch1"


def report_of(reader: DagdirReader) -> object:
    """All but the state of the logs themselves."""
    builder = reader.snapshot_builder()
    status, breakdown = builder.status(), break_down(builder.ledger())
    jobs = [
        (job.cluster, job.node, job.state, job.submitted, len(job.executions), job.since)
        for job in builder.job_rows()
    ]
    return jobs, status.runs, status.epoch_states, status.hours, breakdown


def a_life() -> Log:
    """Evicted after an hour, then two good hours: by hand 2 good, 1 bad."""
    log = Log().submit(7, NODE, at="10:00:00").execute(7, at="10:10:00")
    log.evict(7, at="11:10:00").execute(7, at="11:20:00").terminate(7, 0, at="13:20:00")
    return log.submit(8, OTHER, at="13:21:00").execute(8, at="13:22:00").hold(8, at="13:52:00")


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    return Dagdir(tmp_path / "ensemble")


@pytest.fixture(name="once")
def _once(tmp_path: Path) -> object:
    dagdir = Dagdir(tmp_path / "once")
    dagdir.write("metl.log", a_life().data)
    reader = dagdir.reader()
    hours = reader.snapshot_builder().status().hours
    assert (hours.goodput, hours.badput) == (2.0, 1.5)
    return report_of(reader)


def test_doubled_log_counts_once(dagdir: Dagdir, once: object) -> None:
    dagdir.write("metl.log", a_life().data * 2)
    assert report_of(dagdir.reader()) == once


ROTATED = ["metl.log.old", "metl.log.1", "metl.log.12", "metl.log-20251101"]


@pytest.mark.parametrize("name", ROTATED)
def test_rotated_log_beside_the_log_is_read(dagdir: Dagdir, once: object, name: str) -> None:
    events = a_life().events
    dagdir.write("metl.log", b"".join(events[4:]))
    dagdir.write(name, b"".join(events[:4]))
    assert report_of(dagdir.reader()) == once
    # Common events count once.
    dagdir.write(name, b"".join(events[:6]))
    assert report_of(dagdir.reader()) == once
    (dagdir.path / "metl.log").unlink()
    dagdir.write(name, b"".join(events))
    assert report_of(dagdir.reader()) == once


@pytest.mark.parametrize("name", [*ROTATED, "metl.log.2 metl.log.1"])
def test_rotation_within_a_second_keeps_the_order(dagdir: Dagdir, name: str) -> None:
    events = Log().submit(7, NODE, at="10:00:00").transfer(7, "started input", at="10:00:05")
    events.transfer(7, "finished input", at="10:00:05").execute(7, at="10:00:05")
    first, *others = [*name.split(), "metl.log"]
    dagdir.write(first, b"".join(events.events[:2]))
    dagdir.write(others[0], b"".join(events.events[2:]))
    (transfer,) = dagdir.reader().snapshot_builder().ledger().transfers
    assert (transfer.outcome, transfer.seconds) == ("ok", 0.0)


def test_rotated_logs_of_an_outside_log_are_read(tmp_path: Path, once: object) -> None:
    place = tmp_path / "scratch"
    place.mkdir()
    parts = dict(zip(("jobs.events.2", "jobs.events.1", "jobs.events"), (2, 4, 9), strict=True))
    first = 0
    for name, end in parts.items():
        (place / name).write_bytes(b"".join(a_life().events[first:end]))
        first = end
    (place / "others.events.1").write_bytes(Log().submit(9, NODE).execute(9).data)
    dagdir = Dagdir(tmp_path / "ens", DAG.replace("metl.log", str(place / "jobs.events")))
    assert report_of(dagdir.reader()) == once


def test_other_files_are_not_rotated_logs(dagdir: Dagdir, once: object) -> None:
    dagdir.write("metl.log", a_life().data)
    other = Log().submit(9, NODE, at="14:00:00").execute(9, at="14:01:00").data
    for name in ("metl.log.bak", "metl.log.old~", "run.dag.nodes.log.old", "run.dag.dagman.log.1"):
        dagdir.write(name, other)
    dagdir.write("metl.log.old", "notes of mine\n")
    assert report_of(dagdir.reader()) == once


@pytest.mark.parametrize("name", ["metl.old.log", *ROTATED])
def test_rotation_during_watching(
    dagdir: Dagdir, tmp_path: Path, once: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = a_life().events
    for part in (3, 5):
        dagdir.write("metl.log", b"".join(events[:part]))
        reader = read_all(DagdirReader(dagdir.path, live=False))
    os.replace(dagdir.path / "metl.log", dagdir.path / name)
    dagdir.write("metl.log", b"".join(events[5:]))
    reader.check()
    reader.read_all()
    assert report_of(reader) == once
    assert report_of(dagdir.reader()) == once


@pytest.mark.parametrize("seed", range(5))
def test_interleaving_of_two_jobs_does_not_matter(dagdir: Dagdir, once: object, seed: int) -> None:
    """Two writers: each keeps its own order."""
    ours = [event for event in a_life().events if b"(007." in event]
    theirs = [event for event in a_life().events if b"(008." in event]
    rng, mixed = Random(seed), []
    while ours or theirs:
        mixed.append((ours if ours and (not theirs or rng.random() < 0.5) else theirs).pop(0))
    dagdir.write("metl.log", b"".join(mixed))
    assert report_of(dagdir.reader()) == once


def test_clock_step_back_gives_no_negative_duration(dagdir: Dagdir) -> None:
    """The host's clock was set back an hour in mid-run: the job ends before it begins."""
    log = Log().submit(7, NODE, at="10:00:00").execute(7, at="10:10:00")
    log.terminate(7, 0, at="09:40:00")
    log.submit(8, OTHER, at="09:41:00").execute(8, at="09:42:00").terminate(8, 0, at="10:42:00")
    dagdir.write("metl.log", log.data)
    reader = dagdir.reader()
    assert {job.state for job in reader.snapshot_builder().job_rows()} == {State.COMPLETED}
    hours = reader.snapshot_builder().status().hours
    assert (hours.goodput, hours.badput) == (1.0, 0.0)
    builder = reader.snapshot_builder()
    for job in builder.job_rows():
        assert (builder.seconds(job.since) or 0) >= 0
        assert all((each.seconds or 0) >= 0 for each in job.executions)


@pytest.mark.parametrize("minutes", [-120, -5, 0, 5, 120])
def test_dagmans_clock_may_differ_from_the_schedds(dagdir: Dagdir, minutes: int) -> None:
    """``dagman.out`` is written by another process with another clock: its times of a node do not
    change the end of the job."""
    shift = timedelta(minutes=minutes)

    def by_dagman(at: str) -> str:
        return f"{datetime.fromisoformat(f'2026-05-04 {at}') + shift:%H:%M:%S}"

    out = Out().start(at=by_dagman("09:59:00"))
    out.submitted(7, NODE, at=by_dagman("10:00:01"))
    dagdir.write("run.dag.dagman.out", out.data)
    dagdir.write("metl.log", a_life().data)
    reader = dagdir.reader()
    rows = {job.cluster: job for job in reader.snapshot_builder().job_rows()}
    assert rows[7].state is State.COMPLETED
    assert rows[7].node == NODE
    assert reader.snapshot_builder().status().epoch_states[State.COMPLETED] == 1
    hours = reader.snapshot_builder().status().hours
    assert (hours.goodput, hours.badput) == (2.0, 1.5)
