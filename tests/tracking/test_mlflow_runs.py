"""The runs that a tracker should have, from the logs: states, ends, points, params and names."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

import pytest

from metlmon.cli.reading import input_with_trainings
from metlmon.config.loader import load_settings
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.tracking.mlflow_runs import TrackedEnsemble, TrackedRun, tracked_ensemble
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log, Out, moment
from tests.support.recordings import FIXTURES, read_all
from tests.support.tracked_ensembles import (
    dag_text,
    metrics_csv,
    node,
    small_ensemble,
    tracked_by,
    uuid,
)

LOG = "metl.log"
OUT = "run.dag.dagman.out"


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    """Two runs of two epochs submitted to DAGMan, with no event yet."""
    dagdir = Dagdir(tmp_path / "ensemble", dag_text())
    dagdir.write("metlmon.toml", 'tz = "UTC"\n')
    dagdir.write(OUT, Out().start().data)
    return dagdir


def read(dagdir: Dagdir, live: bool = True) -> DagdirReader:
    return read_all(DagdirReader(dagdir.path, load_settings(dagdir.path), live=live))


def tracked(dagdir: Dagdir, live: bool = True) -> TrackedEnsemble:
    return tracked_by(read(dagdir, live))


def child(ensemble: TrackedEnsemble, name: str = "run0") -> TrackedRun:
    [run] = [run for run in ensemble.children if run.name == name]
    return run


def at(time: str) -> int:
    """A time of the logs in milliseconds since 1970."""
    return 1000 * int(moment(time).replace(tzinfo=UTC).timestamp())


def values(run: TrackedRun, key: str) -> dict[int, float]:
    """The values of a metric by step, one for each."""
    points = [point for point in run.points if point.key == key]
    assert len({point.step for point in points}) == len(points)
    return {point.step: point.value for point in points}


def steps(run: TrackedRun) -> set[int]:
    return {point.step for point in run.points}


def statuses(ensemble: TrackedEnsemble) -> dict[str, str]:
    return {run.name: run.status for run in (ensemble.parent, *ensemble.children)}


def ended(log: Log, *jobs: tuple[int, str, int]) -> Log:
    """Submit, execute and complete epochs one after another."""
    for cluster, run, epoch in jobs:
        log.submit(cluster, node(run, epoch)).execute(cluster, gpus=2).terminate(cluster)
    return log


# --- states and ends --------------------------------------------------------------------------


def test_unsubmitted_ensemble_has_no_runs(dagdir: Dagdir) -> None:
    reader = read(dagdir)
    assert tracked_ensemble(reader.snapshot_builder(), input_with_trainings(reader)) is None


def test_run_is_running_between_epochs(dagdir: Dagdir) -> None:
    dagdir.write(LOG, ended(Log(), (101, "run0", 0)).submit(102, node("run1", 0)).data)
    ensemble = tracked(dagdir)
    assert statuses(ensemble) == {"ensemble": "RUNNING", "run0": "RUNNING", "run1": "SCHEDULED"}
    assert [run.end for run in (ensemble.parent, *ensemble.children)] == [None] * 3
    assert child(ensemble).start == at("10:01:00")
    assert steps(child(ensemble)) == {0}


def test_run_ends_with_its_last_epoch(dagdir: Dagdir) -> None:
    log = ended(Log(), (101, "run0", 0), (102, "run0", 1), (103, "run1", 0))
    dagdir.write(LOG, log.data)
    ensemble = tracked(dagdir)
    assert statuses(ensemble) == {"ensemble": "RUNNING", "run0": "FINISHED", "run1": "RUNNING"}
    assert child(ensemble).end == at("10:06:00")
    assert ensemble.parent.end is None


def test_epoch_done_by_dagman_ends_with_its_job(dagdir: Dagdir) -> None:
    """The event log may be behind a DAGMan that goes on."""
    log = Log().submit(101, node("run0", 0)).execute(101, gpus=2)
    out = Out().start().submitted(node("run0", 0), 101)
    out.say(f"Node {node('run0', 0)} job completed", "10:09:00")
    dagdir.write(LOG, log.data)
    dagdir.write(OUT, out.data)
    ensemble = tracked(dagdir)
    assert (child(ensemble).status, child(ensemble).points) == ("RUNNING", ())
    dagdir.append(LOG, Log().terminate(101, at="10:08:00").data)
    assert values(child(tracked(dagdir)), "metlmon/gpu_hours_goodput") == {0: 2 * 6 / 60}


def test_rescue_continues_the_run(dagdir: Dagdir) -> None:
    log = Log().submit(101, node("run0", 0)).execute(101, gpus=2).terminate(101, code=1)
    dagdir.write(LOG, log.data)
    out = Out().start().exit(1, "10:20:00")
    dagdir.write(OUT, out.data)
    failed = tracked(dagdir, live=False)
    assert (child(failed).status, steps(child(failed))) == ("FAILED", {0})

    log.submit(102, node("run0", 0), at="11:00:00").execute(102, gpus=2)
    dagdir.write(LOG, log.data)
    dagdir.write(OUT, out.start("10:59:00").data)
    running = tracked(dagdir)
    assert (child(running).status, child(running).end) == ("RUNNING", None)
    assert (child(running).key, running.parent.key) == (child(failed).key, failed.parent.key)
    log.terminate(102, at="11:31:00")
    dagdir.write(LOG, log.data)
    done = child(tracked(dagdir))
    assert values(done, "metlmon/gpu_hours_badput") == {0: 2 / 60}
    assert values(done, "metlmon/gpu_hours_goodput") == {0: 1.0}
    assert values(done, "metlmon/attempts") == {0: 2}
    assert {point.time for point in done.points} == {at("11:31:00")}


def test_removed_ensemble_is_killed(dagdir: Dagdir) -> None:
    log = ended(Log(), (101, "run0", 0)).submit(102, node("run0", 1))
    log.submit(103, node("run1", 0)).execute(103).remove(102).remove(103)
    dagdir.write(LOG, log.data)
    out = Out().start().say("Received SIGUSR1", str(log.clock)).exit(2, str(log.clock))
    dagdir.write(OUT, out.data)
    ensemble = tracked(dagdir, live=False)
    assert statuses(ensemble) == dict.fromkeys(("ensemble", "run0", "run1"), "KILLED")
    end, runs = at(str(log.clock)), (ensemble.parent, *ensemble.children)
    assert [run.end for run in runs] == [end, end - 60_000, end]
    # What the removed execution cost is there, what it would have trained is not.
    assert values(child(ensemble, "run1"), "metlmon/gpu_hours_badput").keys() == {0}
    assert values(child(ensemble, "run1"), "metlmon/seconds") == {}


# --- points -----------------------------------------------------------------------------------


def test_ensemble_without_gpus_has_no_gpu_hours(dagdir: Dagdir) -> None:
    log = Log().submit(101, node("run0", 0)).execute(101, gpus=0)
    log.raw(5, 101, "Job terminated.", "\t(1) Normal termination (return value 0)\n")
    dagdir.write(LOG, log.data)
    ensemble = tracked(dagdir)
    names = {point.key for run in (ensemble.parent, *ensemble.children) for point in run.points}
    assert "metlmon/seconds" in names
    assert not [name for name in names if "gpu_hours" in name]
    assert "metlmon.gpu_hours_goodput" not in {*child(ensemble).tags, *ensemble.parent.tags}
    assert float(ensemble.parent.tags["metlmon.wall_hours_goodput"]) == pytest.approx(
        1 / 60, rel=1e-4
    )


def test_epoch_without_logs_has_no_cost(dagdir: Dagdir) -> None:
    """Unknown is not 0: the epoch was done before these logs begin."""
    dagdir.write(
        "run.dag", dag_text().replace("run0-train_epoch0 train", "run0-train_epoch0 train DONE", 1)
    )
    dagdir.write(LOG, ended(Log(), (102, "run0", 1)).data)
    dagdir.write(f"training_logs/{uuid('run0')}/version_0/metrics.csv", metrics_csv([(0, 0.5)]))
    run = child(tracked(dagdir))
    assert values(run, "metlmon/gpu_hours_goodput").keys() == {1}
    assert values(run, "val_loss") == {0: 0.5}


# --- params, tags and the description -----------------------------------------------------------


def test_params_are_constant_within_a_run(dagdir: Dagdir) -> None:
    more = [
        f'VARS {node("run0", 0)} optimizer="adam" attempt="$(RETRY)" empty="" seed="1"',
        f'VARS {node("run0", 1)} optimizer="adam" attempt="$(RETRY)" empty="" seed="2"',
        f'VARS {node("run0", 0)} WANDB_API_KEY="3f9a1c5e7b2d4f608a1c3e5d7f9b0a2c4e6d8f01"',
        f'VARS {node("run0", 1)} WANDB_API_KEY="3f9a1c5e7b2d4f608a1c3e5d7f9b0a2c4e6d8f01"',
        f'VARS {node("run0", 0)} ResourceName="Delta"',
        f'VARS {node("run0", 1)} ResourceName="Delta"',
    ]
    dagdir.write("run.dag", dag_text() + "\n".join(more))
    dagdir.write(LOG, ended(Log(), (101, "run0", 0)).data)
    params = dict(child(tracked(dagdir)).params)
    assert params.pop("WANDB_API_KEY") == "(hidden)"
    assert params == {"lr": "1.0", "optimizer": "adam"}


def test_description_stays_in_its_table(dagdir: Dagdir) -> None:
    log = Log().submit(101, node("run0", 0)).execute(101, site="A|B\x1b[31m<img src=x>")
    dagdir.write(LOG, log.terminate(101).data)
    run = child(tracked(dagdir))
    row = run.note.splitlines()[-1]
    assert row.count("|") == 8
    assert "\x1b" not in row
    assert all(text.isprintable() for text in run.tags.values())


def test_key_is_that_of_the_first_job(tmp_path: Path) -> None:
    first = small_ensemble(tmp_path / "one")
    second = small_ensemble(tmp_path / "two")
    assert tracked(first).parent.key == tracked(second).parent.key
    # The same nodes, submitted at another time.
    third = small_ensemble(tmp_path / "three")
    log = (third.path / LOG).read_bytes().replace(b" 10:01:00", b" 10:00:59", 1)
    third.write(LOG, log)
    assert tracked(third).parent.key != tracked(first).parent.key


def test_unknown_zone_is_reported(dagdir: Dagdir) -> None:
    dagdir.write(LOG, ended(Log(), (101, "run0", 0)).data)
    assert tracked(dagdir).zone_known
    (dagdir.path / "metlmon.toml").unlink()
    ensemble = tracked(dagdir)
    assert not ensemble.zone_known
    assert child(ensemble).start == 1000 * int(moment("10:01:00").timestamp())


def test_skipped_epochs_are_not_done() -> None:
    ensemble = tracked_by(read_all(DagdirReader(FIXTURES / "gated")))
    assert int(ensemble.parent.tags["metlmon.epochs_done"]) == 14
    assert sum(int(run.tags["metlmon.epochs_done"]) for run in ensemble.children) == 14
