"""Ensembles whose epoch times have planted effects: of GPU model, site, host and run.

An epoch takes MEDIAN seconds × exp(model + site of that model + host + run + rest), each effect
normal with the standard deviation given; *slow* hosts take a factor more. Which epochs run where is
unbalanced: few places have most of them. Such an ensemble is a log with usage tables and its DAG
file; its ledger is what is read of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import pairwise
from math import exp, log
from pathlib import Path
from random import Random
from typing import Final

from metlmon.eventlog.events import ResourceUsage
from metlmon.snapshot.records import Ledger
from tests.support.event_logs import Event, Log, Out, log_of_events, read_ensemble

BEGUN: Final = datetime(2026, 3, 2, 9, 0, 0)
MEDIAN: Final = 6 * 3600.0
DAG: Final = "ens.dag"
GPUS: Final = (
    *("NVIDIA A40", "NVIDIA A100-SXM4-80GB", "NVIDIA L40S", "NVIDIA RTX A5000"),
    "Tesla V100-SXM2-32GB",
)
SLOW: Final = 1.5
"""A slow host takes so many times as long."""


@dataclass(frozen=True)
class Effects:
    """Standard deviations of the logarithm of epoch time, and the size of the ensemble.

    ``sites``, ``hosts``: of each model (site) at most, drawn from 1 (2) on; ``slow_hosts``: how
    many are slow.
    """

    gpu: float = 0.3
    site: float = 0.15
    host: float = 0.1
    run: float = 0.05
    rest: float = 0.1
    runs: int = 21
    epochs: int = 30
    gpus: int = 5
    sites: int = 4
    hosts: int = 10
    slow_hosts: int = 0

    @property
    def shares(self) -> Mapping[str, float]:
        """The planted share of each effect in the variance, without that of slow hosts."""
        squares = {
            name: getattr(self, name) ** 2 for name in ("gpu", "site", "host", "run", "rest")
        }
        total = sum(squares.values())
        return {name: square / total for name, square in squares.items()}


@dataclass(frozen=True)
class TrainedEpoch:
    """One epoch: its place, submission, start, duration and usage."""

    cluster: int
    run: str
    epoch: int
    gpu: str
    site: str
    host: str
    submitted: datetime
    start: datetime
    end: datetime
    usage: ResourceUsage

    @property
    def node(self) -> str:
        return f"{self.run}-train_epoch{self.epoch}"

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()


@dataclass(frozen=True)
class PlantedEnsemble:
    """The ensemble and its truth. ``slow``: the slow hosts that had an epoch."""

    effects: Effects
    trained: Sequence[TrainedEpoch]
    slow: frozenset[str] = field(default_factory=frozenset)

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger read from its log."""
        dags, log = {DAG: _dag_text(self.effects)}, _event_log(self.trained)
        return read_ensemble(dags, log).builder().ledger()

    def write(self, directory: Path) -> None:
        """Its DAG file, submit file, job log and DAGMan's file."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / DAG).write_text(_dag_text(self.effects))
        (directory / "pretrain.sub").write_text(SUBMIT)
        (directory / "metl.log").write_bytes(_event_log(self.trained).data)
        out = Out().start(str(BEGUN - timedelta(minutes=1)))
        for each in sorted(self.trained, key=lambda each: each.submitted):
            out.submitted(each.node, each.cluster, str(each.submitted))
        (directory / f"{DAG}.dagman.out").write_bytes(out.data)


@dataclass(frozen=True)
class _Host:
    gpu: str
    site: str
    name: str
    weight: float
    effect: float


def planted(effects: Effects, seed: int) -> PlantedEnsemble:
    """The ensemble of this seed."""
    rng = Random(f"effects {seed}")
    hosts = _hosts(effects, rng)
    slow = frozenset(host.name for host in rng.sample(hosts, effects.slow_hosts))
    weights = [host.weight for host in hosts]
    trained, cluster = [], 1000
    for number in range(effects.runs):
        ready = BEGUN + timedelta(seconds=20 * number)
        run_effect = rng.gauss(0, effects.run)
        for epoch in range(effects.epochs):
            host = rng.choices(hosts, weights)[0]
            pace = host.effect + run_effect + rng.gauss(0, effects.rest)
            seconds = MEDIAN * exp(pace) * (SLOW if host.name in slow else 1)
            start = ready + timedelta(seconds=round(rng.lognormvariate(log(1200), 0.8)) + 300)
            end = start + timedelta(seconds=max(1, round(seconds)))
            trained.append(
                TrainedEpoch(
                    *(cluster, f"metl{number:03d}", epoch, host.gpu, host.site, host.name),
                    *(ready, start, end, _usage(rng)),
                )
            )
            ready, cluster = end + timedelta(seconds=60), cluster + 1
    return PlantedEnsemble(effects, tuple(trained), slow & {each.host for each in trained})


def _hosts(effects: Effects, rng: Random) -> list[_Host]:
    """All machines, each with one GPU model; a site may have machines of several models."""
    hosts: list[_Host] = []
    for gpu in GPUS[: effects.gpus]:
        gpu_effect = rng.gauss(0, effects.gpu)
        gpu_weight = rng.lognormvariate(0, 1)
        for site in range(rng.randint(1, effects.sites)):
            name = f"site-{chr(97 + site)}"
            site_effect = gpu_effect + rng.gauss(0, effects.site)
            site_weight = gpu_weight * rng.lognormvariate(0, 1)
            count = rng.randint(min(2, effects.hosts), effects.hosts)
            for _ in range(count):
                hosts.append(
                    _Host(
                        gpu=gpu,
                        site=name,
                        name=f"gpu{len(hosts):03d}.{name}.example.edu",
                        weight=site_weight / count * rng.lognormvariate(0, 0.5),
                        effect=site_effect + rng.gauss(0, effects.host),
                    )
                )
    return hosts


def _usage(rng: Random) -> ResourceUsage:
    return ResourceUsage(
        **{"cpus": round(rng.uniform(0.7, 1.9), 2), "cpus_requested": 8, "cpus_allocated": 8},
        **{"memory_mb": 48829, "memory_mb_requested": 64000, "memory_mb_allocated": 64000},
        **{"disk_kb": 56375214, "disk_kb_requested": 104857600, "disk_kb_allocated": 104859341},
        **{"gpus": round(rng.uniform(0.85, 0.98), 2), "gpus_requested": 1, "gpus_allocated": 1},
    )


# --- as files ---------------------------------------------------------------------------------

TRANSFER: Final = 240.0
"""Seconds of each input transfer."""

SUBMIT: Final = """\
executable = pretrain.sh
arguments = $(epoch)
request_gpus = 1
request_cpus = 8
request_memory = 64000
request_disk = 100GB
log = metl.log
queue
"""


def _dag_text(effects: Effects) -> str:
    lines = []
    for run in (f"metl{number:03d}" for number in range(effects.runs)):
        nodes = [f"{run}-train_epoch{epoch}" for epoch in range(effects.epochs)]
        for epoch, node in enumerate(nodes):
            lines += [f"JOB {node} pretrain.sub", f'VARS {node} epoch="{epoch + 1}"']
        lines += [f"PARENT {a} CHILD {b}" for a, b in pairwise(nodes)]
    return "\n".join([*lines, "RETRY ALL_NODES 3", ""])


def _event_log(trained: Sequence[TrainedEpoch]) -> Log:
    events: list[Event] = []
    for each in trained:
        job, fetched = each.cluster, each.start - timedelta(seconds=TRANSFER)
        host = f"Job executing on host: <{_address(each)}>"
        ended = partial(Log.raw, number=5, job=job, text="Job terminated.", body=_terminated(each))
        events += [
            (each.submitted, partial(Log.submit, job=job, node=each.node)),
            (fetched, partial(Log.transfer, job=job, what="started input")),
            (each.start, partial(Log.transfer, job=job, what="finished input")),
            (each.start, partial(Log.raw, number=1, job=job, text=host, body=_executing(each))),
            (each.end, ended),
        ]
    return log_of_events(events)


def _address(each: TrainedEpoch) -> str:
    return f"192.0.2.1:9618?addrs=192.0.2.1-9618&alias={each.host}&noUDP"


def _executing(each: TrainedEpoch) -> str:
    lines = [
        f"SlotName: slot1_1@{each.host}",
        "AvailableGPUs = { GPUs_GPU_0a0a0a0a }",
        "Cpus = 8",
        f'GLIDEIN_ResourceName = "{each.site}"',
        "GPUs = 1",
        f'GPUs_GPU_0a0a0a0a = [ Id = "GPU-0a0a0a0a"; Capability = 8.6; ClockMhz = 1740.0; '
        f'DeviceName = "{each.gpu}"; DriverVersion = 12.4; GlobalMemoryMb = 45416 ]',
        "Memory = 64000",
    ]
    return "".join(f"\t{line}\n" for line in lines)


def _terminated(each: TrainedEpoch) -> str:
    use = each.usage
    return f"""\
\t(1) Normal termination (return value 0)
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Local Usage
\t1000000  -  Run Bytes Sent By Job
\t20000000  -  Run Bytes Received By Job
\t1000000  -  Total Bytes Sent By Job
\t20000000  -  Total Bytes Received By Job
\tPartitionable Resources :    Usage   Request Allocated Assigned
\t   Cpus                 : {use.cpus:>8}         8         8
\t   Disk (KB)            : 56375214 104857600 104859341
\t   GPUs                 : {use.gpus:>8}         1         1 "GPU-0a0a0a0a"
\t   Memory (MB)          :    48829     64000     64000
"""
