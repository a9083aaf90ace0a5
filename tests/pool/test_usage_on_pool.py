"""Figures of usage tables against the jobs' own account, in a recording and on the pool."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import record_usage
from pools import Pool
from record_usage import SPARK, USAGE

from metlmon.snapshot.records import Execution, Job
from tests.support.records import read_dagdir

RECORDING = Path(__file__).resolve().parents[2] / "fixtures" / "usage"
Own = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module")
def recorded() -> list[Job]:
    return list(read_dagdir(RECORDING).ledger().jobs)


def check(execution: Execution, own: Mapping[str, Any]) -> None:
    """Check the figures of a job's last execution; ``own``: the job's own account."""
    usage = execution.usage
    assert usage is not None
    devices = [USAGE.devices[gpu] for gpu in own["gpus"] if gpu in USAGE.devices]
    if devices:
        # At the ends a report of a second is lost or gained.
        assert usage.gpus == pytest.approx(sum(share for share, _ in devices), abs=0.15)
        assert usage.gpu_memory_mb == max(memory for _, memory in devices)
    else:
        assert (usage.gpus, usage.gpu_memory_mb) == (None, None)
    # User and system time are logged in whole seconds.
    cores = own["cpu_seconds"] / own["seconds"]
    assert usage.cpus == pytest.approx(cores, abs=2 / own["seconds"])
    assert usage.memory_mb is not None
    assert usage.memory_mb >= own["memory_mb"]
    assert usage.disk_kb is not None
    assert own["disk_kb"] <= usage.disk_kb <= own["disk_kb"] + 100
    assert (usage.cpus_requested, usage.gpus_allocated) == (2, len(own["gpus"]))


def check_evicted(job: Job) -> None:
    """The first execution used its GPUs all the time; the second counts only in memory."""
    first, second = (execution.usage for execution in job.executions)
    assert job.executions[0].site == SPARK
    assert second is not None
    assert first.gpus == pytest.approx(first.gpus_allocated, abs=0.15)
    assert (first.memory_mb or 0) <= (second.memory_mb or 0)
    if job.gpus == 2:
        assert (first.memory_mb or 0) >= 300
        assert (first.disk_kb or 0) >= 20_000 > (second.disk_kb or 0)
        # On a busy machine the first execution gets little CPU time; the second needs none.
        assert (second.cpus or 0) < (first.cpus or 0)


def check_all(jobs: list[Job], own: Own) -> None:
    assert {str(job.cluster) for job in jobs} == set(own)
    for job in jobs:
        check(job.executions[-1], own[str(job.cluster)])
    evicted = [job for job in jobs if len(job.executions) > 1]
    assert len(evicted) == USAGE.evictions
    for job in evicted:
        check_evicted(job)


def test_recorded_usage_agrees_with_the_jobs(recorded: list[Job]) -> None:
    check_all(recorded, json.loads((RECORDING / "truth.json").read_text()))


def test_cpus_row_is_the_last_sample(recorded: list[Job]) -> None:
    (halved,) = (job for job in recorded if job.node_name == "run0-train_epoch2")
    text = (RECORDING / "metl.log").read_text()
    end = text.partition(f"005 ({halved.cluster:03}.")[2]
    (row,) = (line for line in end.splitlines()[:20] if "Cpus  " in line)
    assert float(row.split()[2]) < 0.02
    assert halved.usage.cpus == pytest.approx(3 / 20)


@pytest.fixture
def monitored(changeable_pool: Pool) -> Iterator[Pool]:
    with record_usage.monitored(changeable_pool, USAGE):
        yield changeable_pool


def test_usage_on_the_pool_agrees_with_the_jobs(monitored: Pool) -> None:
    ensemble = USAGE.last_epochs()
    directory = record_usage.write(monitored, ensemble)
    record_usage.play(monitored, directory, ensemble)
    own = record_usage.used(directory, ensemble)
    check_all(list(read_dagdir(directory).ledger().jobs), own)
