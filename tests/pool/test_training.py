"""The bundled trainer in real jobs: as submitted, so counted; and one model however it is cut."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import truth
from pools import Pool, until

from metlmon import trainer

RUNS, EPOCHS = 4, 3
END_SECONDS = 240
"""Generous: it is seconds where nobody else trains."""
LONG = 5
"""Epochs of the run that is trained in several ways."""

TRAINER = Path(trainer.__file__).with_name("train.py")


@dataclass(frozen=True, slots=True)
class Submitted:
    """An ensemble as ``metlmon submit --json`` printed it."""

    pool: Pool
    directory: Path
    report_of: dict[str, Any]

    @property
    def uuids(self) -> list[str]:
        return [run["uuid"] for run in self.report_of["runs"]]

    def end(self) -> dict[str, Any]:
        """The status once DAGMan is done, whichever way."""
        more = ("--exit-on", "done", "--timeout", str(END_SECONDS))
        status = truth.status_of(self.pool, self.directory, *more)
        until(lambda: not self.pool.queue(f"ClusterId == {self.cluster}"), "DAGMan leaves")
        return status

    @property
    def cluster(self) -> int:
        found: int = self.report_of["submitted"]["cluster"]
        return found


def submit(pool: Pool, name: str, *options: str) -> Submitted:
    argv = ["metlmon", "submit", name, "--yes", "--json", *options]
    result = json.loads(pool.run(argv).stdout)
    return Submitted(pool, pool.base / name, result)


@pytest.fixture(scope="module")
def sites(pool: Pool) -> str:
    if len(pool.sites) < RUNS:
        pytest.skip(f"this HTCondor's slots name {len(pool.sites)} sites, not {RUNS}")
    return ",".join(pool.sites.values())


@pytest.fixture(scope="module")
def ensemble(pool: Pool, sites: str) -> Submitted:
    options = ("--runs", str(RUNS), "--epochs", str(EPOCHS), "--sites", sites)
    return submit(pool, "ensemble", *options, "--policy", "permute", "--set", "slow_factor=1")


@pytest.fixture(scope="module")
def chain(pool: Pool, sites: str, ensemble: Submitted) -> Submitted:
    """One run, each epoch a job, at more than one site; beside the other one."""
    options = ("--runs", "1", "--epochs", str(LONG), "--sites", sites)
    return submit(pool, "moving", *options, "--policy", "permute")


@pytest.fixture(scope="module")
def at_once(pool: Pool, chain: Submitted) -> Path:
    """The same run in one job; its output directory."""
    directory = pool.directory("at-once")
    pool.place(directory / "train.py", TRAINER.read_bytes(), 0o755)
    (run,) = chain.report_of["runs"]
    arguments = f"--uuid {run['uuid']} --seed {run['seed']} --max-epochs {LONG}"
    lines = [
        "executable = train.py",
        f"arguments = {arguments} --stop-after-epoch {LONG}",
        "should_transfer_files = YES",
        "transfer_output_files = output",
        "request_memory = 512",
        "request_disk = 100MB",
        "log = job.log",
        "queue",
    ]
    pool.place(directory / "job.sub", "\n".join(lines) + "\n")
    pool.run(["condor_submit", "job.sub"], directory)
    return directory / "output"


def test_the_end_is_dagmans_the_queues_and_the_trainers(
    ensemble: Submitted, chain: Submitted, at_once: Path
) -> None:
    status = ensemble.end()
    jobs = truth.jobs_of(ensemble.pool, ensemble.directory)
    expected = truth.at_the_end(ensemble.pool, ensemble.directory)
    assert expected.totals == truth.Totals(RUNS * EPOCHS, RUNS * EPOCHS, 0, 0)
    assert truth.differences(expected, status, jobs) == []
    assert {each.site for job in expected.jobs for each in job.executions} == set(
        ensemble.pool.sites.values()
    ), "every site has trained"
    for run in status["runs"]:
        trained = epochs_logged(ensemble.directory, run["uuid"])
        assert trained == set(range(EPOCHS)), "as its metrics files have it"
        assert header(ensemble.directory, run["uuid"])["epochs"] == EPOCHS
        assert (run["epochs_done"], run["epochs_total"], run["state"]) == (3, 3, "completed")
        assert run["latest"]["epoch"] == max(trained) + 1
    assert sorted(run["uuid"] for run in status["runs"]) == sorted(ensemble.uuids)


def test_five_jobs_of_an_epoch_train_what_one_of_five_does(chain: Submitted, at_once: Path) -> None:
    chain.end()
    (uuid,) = chain.uuids
    jobs = truth.jobs_of(chain.pool, chain.directory)
    places = [job["site"] for job in jobs]
    assert len(places) == LONG, [(job["node"], job["executions"]) for job in jobs]
    assert len(set(places)) > 1, "it moved between sites"
    assert header(chain.directory, uuid)["epochs"] == LONG
    until(lambda: (at_once / "training_logs").exists(), "the one job ends")
    assert weights(at_once, uuid) == weights(chain.directory / "output", uuid)


# --- the trainer's own files --------------------------------------------------------------


def weights(output: Path, uuid: str) -> bytes:
    return (output / "training_logs" / uuid / "checkpoints" / "last.ckpt").read_bytes()


def header(directory: Path, uuid: str) -> dict[str, Any]:
    """What a checkpoint says of itself."""
    found: dict[str, Any] = json.loads(weights(directory / "output", uuid).splitlines()[1])
    return found


def epochs_logged(directory: Path, uuid: str) -> set[int]:
    """Epochs that were validated, as Lightning counts them: from 0."""
    found = set()
    for path in (directory / "output/training_logs" / uuid).glob("version_*/metrics.csv"):
        with path.open(newline="") as file:
            found |= {int(row["epoch"]) for row in csv.DictReader(file) if row.get("val_loss")}
    return found
