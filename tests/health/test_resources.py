"""Idle GPUs, scarce memory and excessive requests, from the usage tables of generated logs."""

from __future__ import annotations

import json
from datetime import datetime
from math import ceil
from pathlib import Path

import pytest

from metlmon.cli import Exit
from metlmon.health.build import make_health
from metlmon.health.types import HealthEntry, Severity
from metlmon.text.formatting import hours, size
from tests.conftest import Shared
from tests.health.ensembles import EventLog, chains, health_of, kinds, only, write
from tests.support.commands import Captured, json_output, run_command
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir, stats_input

FINE = {"GPUs": "0.91 1 1", "Memory (MB)": "9000 16000 16000", "Cpus": "1.9 4 4"}
"""Used, requested and allocated; a dash for a blank cell."""

BAD = {
    "gpu-idle": {"GPUs": "0.03 1 1"},
    "memory-tight": {"Memory (MB)": "15900 16000 16000"},
    "over-requested": {"Disk (KB)": "56375214 419430400 419430400"},
}


def table(rows: dict[str, str]) -> str:
    lines = ["\n\tPartitionable Resources :      Usage    Request  Allocated Assigned"]
    for name, cells in rows.items():
        used, request, allocated = (cell.replace("-", "") for cell in cells.split())
        lines.append(f"\t   {name:<21}: {used:>10} {request:>10} {allocated:>10} ")
    return "\n".join(lines)


def train(
    log: EventLog, node: str, rows: dict[str, str] | None = None, hours: float = 2, value: int = 0
) -> None:
    """Run an epoch, with these rows instead of those of a normal one."""
    cluster = log.submit(node)
    log.execute(cluster)
    text = f"Job terminated.\n\t(1) Normal termination (return value {value})"
    log.add("005", cluster, text + table(FINE | (rows or {})), hours)


def texts(path: Path, *epochs: dict[str, str], hours: float = 2, last: int = 0) -> list[str]:
    """The findings in one run with these epochs; ``last``: the exit code of the last one."""
    log = EventLog()
    for number, rows in enumerate(epochs, 1):
        value = last if number == len(epochs) else 0
        train(log, f"run0-train_epoch{number - 1}", rows, hours, value)
    health = health_of(write(path, chains({"run0": len(epochs) + 1}), log))
    found = [entry.text for entry in health.entries if entry.kind in BAD]
    return [text.replace("\u202f", " ") for text in found]


GPUS, MEMORY, DISK = "GPUs", "Memory (MB)", "Disk (KB)"

CASES = {
    "idle": (GPUS, "0.03 1 1", 1, 2, "GPU idle: 0.03 of 1 used (1.9 GPU-h unused)"),
    "measured 0": (GPUS, "0 1 1", 1, 12, "GPU idle: 0.00 of 1 used (12.0 GPU-h unused)"),
    "one of two": (GPUS, "0.98 2 2", 2, 5, "GPU idle: 0.98 of 2 used (10.2 GPU-h unused)"),
    "hardly in use": (GPUS, "1.1 2 2", 1, 1, "GPU idle: 1.10 of 2 used (0.90 GPU-h unused)"),
    "not measured": (GPUS, "- 1 1", 1, 12, ""),
    "a tenth": (GPUS, "0.1 1 1", 1, 12, ""),
    "of two in part": (GPUS, "1.47 2 2", 1, 5, ""),
    "shared": (GPUS, "1.31 1 1", 1, 5, ""),
    "short": (GPUS, "0.03 1 1", 1, 0.9, ""),
    "no GPU": (GPUS, "0 0 0", 1, 5, ""),
    "tight": (MEMORY, "15200 16000 -", 1, 2, "memory tight: 15 200 of 16 000 MB used"),
    "several": (MEMORY, "15900 16000 -", 2, 2, "memory tight: up to 15 900 of 16 000 MB used"),
    "rounded": (MEMORY, "48829 48000 -", 1, 2, "memory tight: at most 48 829 of 48 000 MB used"),
    "not tight": (MEMORY, "15199 16000 -", 1, 2, ""),
    "perhaps tight": (MEMORY, "97657 100000 -", 1, 2, ""),
    "no request": (MEMORY, "900 900 1024", 1, 2, ""),
    "no memory": (MEMORY, "- 16000 16000", 3, 2, ""),
    "memory": (MEMORY, "4000 16000 -", 3, 2, "over-requested: at most 3.91 of 15.6 GB memory used"),
    "CPUs": ("Cpus", "0.9 8 8", 4, 2, "over-requested: at most 0.90 of 8 CPUs used"),
    "disk": (DISK, "2475000 9900000 -", 3, 2, "over-requested: at most 2.36 of 9.44 GB disk used"),
    "less": (MEMORY, "4001 16000 -", 3, 2, ""),
    "little": (MEMORY, "9 4000 -", 3, 2, ""),
    "two epochs": (MEMORY, "4000 16000 -", 2, 2, ""),
    "short epochs": (MEMORY, "4000 16000 -", 3, 0.1, ""),
}


@pytest.mark.parametrize(
    ("row", "cells", "epochs", "hours", "text"), CASES.values(), ids=list(CASES)
)
def test_each_kind_is_found(
    tmp_path: Path, row: str, cells: str, epochs: int, hours: float, text: str
) -> None:
    found = texts(tmp_path, *([{row: cells}] * epochs), hours=hours)
    extent = f"in {epochs} epochs" if epochs > 1 else "in 1 epoch"
    assert found == ([f"{text} {extent}"] if text else [])


def test_failed_job_with_higher_usage_counts(tmp_path: Path) -> None:
    small = [{"Cpus": "0.9 8 8"}] * 3
    assert texts(tmp_path / "a", *small, {"Cpus": "8.49 8 8"}, last=1) == []
    # A job with another request does not count.
    assert len(texts(tmp_path / "b", *small, {"Cpus": "8.49 16 16"})) == 1


@pytest.mark.parametrize("kind", BAD)
def test_run_whose_last_epoch_is_skipped_has_none_left(tmp_path: Path, kind: str) -> None:
    log = EventLog()
    for epoch in range(3):
        train(log, f"run0-train_epoch{epoch}", BAD[kind])
    skipped = "PRE script return value matches PRE_SKIP value\n    DAG Node: run0-train_epoch3"
    log.add("034", 0, skipped)
    dag = chains({"run0": 4}, extra="PRE_SKIP run0-train_epoch3 1\n")
    assert kinds(health_of(write(tmp_path, dag, log))) == []


@pytest.mark.parametrize("kind", BAD)
def test_entry_counts_once_and_closes(tmp_path: Path, kind: str, capsys: Captured) -> None:
    log = EventLog()
    for epoch in range(3):
        for run in ("run0", "run1"):
            train(log, f"{run}-train_epoch{epoch}", BAD[kind])
    dag = chains({"run0": 5, "run1": 5})
    dagdir = write(tmp_path / "a", dag, log)
    health = health_of(dagdir)
    entry = only(health, kind)
    severity = Severity.COSTLY if kind == "gpu-idle" else Severity.NOTE
    assert kinds(health) == [kind]
    assert (entry.severity, len(entry.runs), entry.nodes, entry.gpu_hours) == (severity, 2, 6, 0)
    # Six epochs of two hours, with 0.03 of a GPU in use.
    assert entry.cost == pytest.approx(11.64 if kind == "gpu-idle" else 0)
    (each,) = json_output("health", capsys, str(dagdir.path))["entries"]
    assert (each["kind"], each["text"], each["advice"]) == (kind, entry.text, entry.advice)
    words = (str(dagdir.path), "--exit-on", "failed,held", "--timeout", "0")
    assert run_command("status", capsys, *words)[0] == Exit.TIMEOUT

    train(log, "run0-train_epoch3", {"Disk (KB)": "400000 500000 500000"})
    health = health_of(write(tmp_path / "b", dag, log))
    past = only(health, kind, is_open=False)
    assert only(health, kind).runs != past.runs
    assert (len(past.runs), past.nodes, past.severity) == (1, 3, Severity.NOTE)
    whole = health_of(write(tmp_path / "c", chains({"run0": 4, "run1": 3}), log))
    assert not whole.open_entries
    assert len(only(whole, kind, is_open=False).runs) == 2


def test_cpu_hours_have_no_idle_gpu_hours(tmp_path: Path) -> None:
    """Old versions of HTCondor list no GPUs in 001; hours are then CPU-hours."""
    log = EventLog()
    train(log, "run0-train_epoch0", BAD["gpu-idle"])
    log.texts = [text.replace("\n\tGPUs = 1", "") for text in log.texts]
    health = health_of(write(tmp_path, chains({"run0": 2}), log))
    entry = only(health, "gpu-idle")
    assert (health.hour_unit, entry.cost) == ("CPU-h", 0)
    assert "GPU-h unused" in entry.text


def found(path: Path, as_of: datetime | None = None) -> list[HealthEntry]:
    health = make_health(stats_input(read_dagdir(path, as_of=as_of), path))
    return [entry for entry in health.entries if entry.kind in BAD]


@pytest.mark.parametrize(
    "name", ["demo", "usage", *(f"health/{each.name}" for each in (FIXTURES / "health").iterdir())]
)
def test_jobs_of_seconds_have_no_finding(name: str) -> None:
    assert found(FIXTURES / name) == []


RECORDING = FIXTURES / "usage-trouble"


def recorded(kind: str, run: str, second: datetime | None = None) -> tuple[str, bool] | None:
    """The entry of a kind that names a run: its text, and whether it is open."""
    entries = [e for e in found(RECORDING, second) if e.kind == kind and run in e.runs]
    (entry,) = entries or [None]
    return (entry.text.replace("\u202f", " "), entry.open) if entry else None


def test_findings_of_a_recording_agree_with_its_jobs() -> None:
    """GPUs as the monitor reported them, all else by the jobs' own account."""
    truth = json.loads((RECORDING / "truth.json").read_text())
    own = {each["node"]: each for each in truth.values()}
    for run, key in (("run0", "00000001"), ("run1", "00010002")):
        job = own[f"{run}-train_epoch0"]
        gpus, used = len(job["gpus"]), job["gpus_used"]
        unused = hours((gpus - used) * job["seconds"] / 3600)
        text = f"GPU idle: {used:.2f} of {gpus} used ({unused} GPU-h unused) in 1 epoch"
        assert recorded("gpu-idle", key) == (text, False)
    peak = max(ceil(own[f"run2-train_epoch{n}"]["peak_mb"]) for n in (0, 1))
    text = f"memory tight: up to {peak} of 256 MB used in 2 epochs"
    assert recorded("memory-tight", "00020003") == (text, False)
    jobs = [own[f"run3-train_epoch{n}"] for n in range(3)]
    memory = size(ceil(max(job["peak_mb"] for job in jobs)) << 20, 1024)
    disk = size(max(job["disk_kb"] for job in jobs) << 10, 1024)
    cores = max(job["cpu_seconds"] / job["seconds"] for job in jobs)
    used = f"{memory} of 8.00 GB memory, {disk} of 8.00 GB disk, {cores:.2f} of 4 CPUs"
    assert recorded("over-requested", "00030004") == (
        f"over-requested: at most {used} used in 3 epochs",
        False,
    )
    assert len(found(RECORDING)) == 4


def test_findings_of_a_real_ensemble(shared: Shared) -> None:
    """42 epochs of METL completed; evicted ones used up to nine of eight cores."""
    (entry,) = found(shared("examples/metl-aws"))
    assert entry.text == "over-requested: at most 31.0 of 156 GB memory used in 42 epochs"
    assert (entry.open, entry.nodes) == (True, 42)
