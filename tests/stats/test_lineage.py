"""The job that made the checkpoint of each epoch: recorded, else inferred."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from metlmon.config.settings import Settings
from metlmon.live.feed import StatsInput
from metlmon.stats.lineage import Break, CheckpointOrigin, Lineage, lineage
from tests.health.ensembles import EventLog, chains, input_of, write
from tests.support.dagdir_builder import Dagdir
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir, stats_input

UUIDS = {run: f"{run}aaaa-0000" for run in ("run0", "run1")}


@pytest.fixture(scope="module", name="recorded")
def _recorded() -> Lineage:
    path = FIXTURES / "lineage"
    return lineage(stats_input(read_dagdir(path), path))


def test_checkpoint_may_be_of_an_earlier_job(recorded: Lineage) -> None:
    (run,) = [key for key in recorded.origins if key.startswith("6a73e2d4")]
    _, origin = sorted(recorded.origins[run].items())[1]
    assert (origin.job, origin.completed_by) == ((12, 0), (15, 0))
    assert origin.made_by_another
    assert recorded.of_job((15, 0)) == recorded.of_job((12, 0)) == origin


# --- METL's own records, which name no job --------------------------------------------------------


def record(
    dagdir: Dagdir, epoch: int, digest: str, parent: str | None, name: str = "", **place: Any
) -> None:
    """A sidecar by METL's workflow, of run0 by default."""
    run = place.pop("run", "run0")
    sidecar = {
        "schema_version": "1.0",
        "checkpoint_hash": f"sha256:{digest}",
        "parent_hash": None if parent is None else f"sha256:{parent}",
        "run_id": UUIDS[run],
        "epoch": epoch,
        "produced_at": place,
    }
    name = name or f"epoch={epoch}-step=9-val_loss=0.{digest}.ckpt"
    folder = f"output/training_logs/{UUIDS[run]}/checkpoints"
    dagdir.write(f"{folder}/{name}.provenance.json", json.dumps(sidecar))


def hidden_compute(path: Path) -> tuple[Dagdir, int, int]:
    """Epoch 0 was trained by an evicted job at Delta; a short job at Anvil completed it."""
    log = EventLog()
    trained = log.submit("run0-train_epoch0")
    log.execute(trained, "Delta", host="gpu1")
    log.evict(trained, 1005, "preempted", hours=20)
    log.execute(trained, "Anvil", host="gpu7")
    log.end(trained, 1, hours=0.1)
    credited = log.submit("run0-train_epoch0")
    log.execute(credited, "Anvil", host="gpu8")
    log.end(credited, hours=3)
    log.train("run0-train_epoch1")
    return write(path, chains({"run0": 2, "run1": 2}), log), trained, credited


def origin_of(dagdir: Dagdir, epoch: int = 0, run: str = "run0") -> CheckpointOrigin:
    return lineage(input_of(dagdir)).origins[UUIDS[run]][epoch]


def test_hidden_compute_is_inferred_from_the_longest_execution(tmp_path: Path) -> None:
    dagdir, trained, credited = hidden_compute(tmp_path)
    origin = origin_of(dagdir)
    assert not origin.recorded
    assert (origin.job, origin.execution, origin.site) == ((trained, 0), 1, "Delta")
    assert origin.completed_by == (credited, 0)


@pytest.mark.parametrize(
    ("place", "maker", "execution", "site"),
    [
        # The longest execution trained nothing that lasted: the one that succeeded did.
        ({"hostname": "gpu8.anvil.example.org"}, "credited", 1, "Anvil"),
        # It proves hidden compute, also without the domain of its host.
        ({"hostname": "gpu1"}, "trained", 1, "Delta"),
        # A host without an execution leaves the job unknown.
        ({"hostname": "gpu9", "site": "Delta"}, "", None, "Delta"),
    ],
)
def test_record_overrides_the_inference(
    tmp_path: Path, place: dict[str, str], maker: str, execution: int | None, site: str
) -> None:
    dagdir, trained, credited = hidden_compute(tmp_path)
    record(dagdir, 0, "aaa", None, **place)
    origin = origin_of(dagdir)
    job = {"trained": (trained, 0), "credited": (credited, 0)}.get(maker)
    assert origin.recorded
    assert (origin.job, origin.execution, origin.site) == (job, execution, site)
    assert origin.made_by_another == (maker == "trained")


def test_checkpoint_may_be_of_an_earlier_execution(tmp_path: Path) -> None:
    """It was evicted after training; the job's next start only finds the epoch done."""
    log = EventLog()
    cluster = log.submit("run0-train_epoch0")
    log.execute(cluster, "Delta", host="gpu1")
    log.evict(cluster, 1005, "preempted", hours=9)
    log.execute(cluster, "Anvil", host="gpu7")
    log.end(cluster, hours=0.1)
    dagdir = write(tmp_path, chains({"run0": 1}), log)
    record(dagdir, 0, "aaa", None, cluster_id=cluster, proc_id=0, hostname="gpu1")
    origin = origin_of(dagdir)
    assert (origin.job, origin.execution, origin.site) == ((cluster, 0), 1, "Delta")
    assert (origin.completed_by, origin.completed_execution) == ((cluster, 0), 2)
    assert origin.made_by_another


def test_executions_at_one_host_are_distinguished_by_time(tmp_path: Path) -> None:
    log = EventLog()
    cluster = log.submit("run0-train_epoch0")
    log.execute(cluster, host="gpu1")
    log.evict(cluster, 1005, "preempted", hours=2)
    log.execute(cluster, host="gpu1")
    log.end(cluster, hours=2)
    dagdir = write(tmp_path, chains({"run0": 1}), log)
    # Started at 08:06, evicted at 10:06, started at 10:12, ended at 12:12.
    record(dagdir, 0, "aaa", None, hostname="gpu1", ts="2026-01-01T15:00:00+00:00")
    assert origin_of(dagdir).execution is None
    settings = Settings(zone=ZoneInfo("America/Chicago"))
    reader = dagdir.reader(settings=settings)
    found = lineage(stats_input(reader.snapshot_builder(), dagdir.path))
    assert found.origins[UUIDS["run0"]][0].execution == 1


# --- chains ---------------------------------------------------------------------------------------


def trained(path: Path, epochs: int = 4) -> Dagdir:
    """Two runs whose epochs were all completed by the job submitted for each."""
    log = EventLog()
    for epoch in range(epochs):
        for run in UUIDS:
            log.train(f"{run}-train_epoch{epoch}")
    return write(path, chains(dict.fromkeys(UUIDS, epochs)), log)


def breaks_of(dagdir: Dagdir) -> list[tuple[Break, int, int | None]]:
    return [(b.kind, b.epoch, b.parent_epoch) for b in lineage(input_of(dagdir)).breaks]


def test_continued_checkpoint_of_two_counts(tmp_path: Path) -> None:
    """METL numbers a checkpoint without an epoch in its name by its place among the files."""
    dagdir = trained(tmp_path, epochs=3)
    record(dagdir, 0, "aaa", None)
    record(dagdir, 1, "bbb", "aaa", name="last.ckpt", ts="2030-01-01T00:00:00+00:00")
    record(dagdir, 1, "ccc", "aaa")
    record(dagdir, 2, "ddd", "ccc")
    assert breaks_of(dagdir) == []
    assert origin_of(dagdir, 1).sha256 == "ccc"


def test_parent_may_be_another_file_of_the_epoch(tmp_path: Path) -> None:
    dagdir = trained(tmp_path, epochs=2)
    record(dagdir, 0, "aaa", None)
    record(dagdir, 1, "bbb", "aaa", name="last.ckpt")
    record(dagdir, 1, "ccc", "bbb", ts="2030-01-01T00:00:00+00:00")
    assert origin_of(dagdir, 1).sha256 == "ccc"
    assert breaks_of(dagdir) == []


def test_checkpoint_of_an_epoch_that_never_ran_is_ignored(tmp_path: Path) -> None:
    log = EventLog()
    log.train("run0-train_epoch0")
    dagdir = write(tmp_path, chains({"run0": 3}), log)
    record(dagdir, 0, "aaa", None)
    record(dagdir, 1, "bbb", "eee", name="last.ckpt")
    assert breaks_of(dagdir) == []
    assert list(lineage(input_of(dagdir)).origins[UUIDS["run0"]]) == [0]


def test_records_that_name_each_other_are_resolved(tmp_path: Path) -> None:
    dagdir = trained(tmp_path, epochs=2)
    record(dagdir, 0, "aaa", "bbb")
    record(dagdir, 1, "bbb", "ccc")
    record(dagdir, 1, "ccc", "bbb", name="last.ckpt")
    assert breaks_of(dagdir) == [(Break.UNKNOWN, 1, None)]


def test_events_in_metls_folder_belong_to_the_named_run(tmp_path: Path) -> None:
    dagdir = trained(tmp_path, epochs=1)
    for run, digest in (("run0", "aaa"), ("run1", "bbb")):
        line = {"type": "epoch.completed", "epoch": 0, "checkpoint_out_hash": digest}
        dagdir.write(f"output/provenance/{UUIDS[run]}.ndjson", json.dumps(line) + "\n")
    found = lineage(input_of(dagdir)).origins
    assert [found[UUIDS[run]][0].sha256 for run in UUIDS] == ["aaa", "bbb"]


def test_past_has_no_checkpoints_of_later_epochs(tmp_path: Path) -> None:
    dagdir = trained(tmp_path, epochs=2)
    record(dagdir, 0, "aaa", None)
    record(dagdir, 1, "bbb", "eee")
    status = input_of(dagdir)
    done = {epoch.node_key: epoch.completed for epoch in status.ledger.epochs}
    moment = done["run.dag", "run0-train_epoch0"]
    assert moment is not None
    reader = dagdir.reader(as_of=moment)
    past: StatsInput = stats_input(reader.snapshot_builder(), dagdir.path)
    assert [each.epoch for each in past.job_files.trainings[UUIDS["run0"]].checkpoints] == [0]
    assert lineage(past).breaks == ()
