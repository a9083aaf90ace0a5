"""The bundled trainer in real jobs: one model, however its epochs are cut into jobs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import truth
from pools import Pool, until

from metlmon import trainer
from tests.pool.new_ensemble import NewEnsemble

LONG = 5
"""Epochs of the run that is trained in several ways."""

TRAINER = Path(trainer.__file__).with_name("train.py")


@pytest.fixture(scope="module")
def sites(pool: Pool) -> str:
    if len(pool.sites) < 2:
        pytest.skip(f"this HTCondor's slots name {len(pool.sites)} sites, not 2")
    return ",".join(pool.sites.values())


@pytest.fixture(scope="module")
def chain(pool: Pool, sites: str) -> NewEnsemble:
    """One run at more than one site, a job for each epoch."""
    argv = ["metlmon", "submit", "moving", "--yes", "--json", "--runs", "1"]
    argv += ["--epochs", str(LONG), "--sites", sites, "--policy", "permute"]
    return NewEnsemble(pool, pool.base / "moving", json.loads(pool.run(argv).stdout))


@pytest.fixture(scope="module")
def at_once(pool: Pool, chain: NewEnsemble) -> Path:
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


def test_five_one_epoch_jobs_train_the_model_of_one_job(chain: NewEnsemble, at_once: Path) -> None:
    (run,) = chain.end()["runs"]
    uuid = run["uuid"]
    assert epochs_logged(chain.directory, uuid) == set(range(LONG))
    assert (run["epochs_done"], run["epochs_total"], run["state"]) == (LONG, LONG, "completed")
    assert (run["latest"]["epoch"], uuid) == (LONG, chain.uuid(run["run"]))
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
    """The header of a checkpoint."""
    found: dict[str, Any] = json.loads(weights(directory / "output", uuid).splitlines()[1])
    return found


def epochs_logged(directory: Path, uuid: str) -> set[int]:
    """Validated epochs, counted from 0 as Lightning does."""
    found = set()
    for path in (directory / "output/training_logs" / uuid).glob("version_*/metrics.csv"):
        with path.open(newline="") as file:
            found |= {int(row["epoch"]) for row in csv.DictReader(file) if row.get("val_loss")}
    return found
