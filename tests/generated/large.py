"""Large ensembles, written up to a time at which they go on, and their truth at that time.

No code of metlmon is used and no log is read. The same name and seed give the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from tests.generated.ensembles import Ensemble, Execution, Job, Moved, evicted_while_running
from tests.generated.varied import Kind, varied
from tests.generated.write import dagdir_files, local, write_files

MEMORY_EVERY: Final = 600.0
"""Seconds between two memory updates: nine tenths of the events are 006, as in METL's log."""

STORM: Final = ((evicted_while_running, 1),)
"""Nearly every execution is evicted: most events are 001, 004 and 040."""

KINDS: Final[Mapping[str, Kind]] = {
    "mix20": Kind("mix20", 65, 30, 0.5, memory_every=MEMORY_EVERY),
    "mix200": Kind("mix200", 650, 30, 0.5, memory_every=MEMORY_EVERY),
    "mix1000": Kind("mix1000", 3300, 30, 0.5, memory_every=MEMORY_EVERY),
    "storm20": Kind("storm20", 55, 30, 8.0, acts=STORM),
    "storm200": Kind("storm200", 550, 30, 8.0, acts=STORM),
    "storm1000": Kind("storm1000", 2750, 30, 8.0, acts=STORM),
    "nodes10k": Kind("nodes10k", 140, 100),
    "jobs100k": Kind("jobs100k", 1500, 93, 0.1),
}

WATCHED: Final = 37
"""Of every so many jobs one's memory is in the truth."""

STATES: Final = {
    **{"000": "idle", "001": "running", "004": "idle", "007": "idle", "009": "removed"},
    **{"010": "suspended", "011": "running", "012": "held", "013": "idle", "022": "disconnected"},
    **{"023": "running", "024": "idle"},
}
"""The state of a job after an event, by its number."""

TRANSFERS: Final = {
    "Entered queue to transfer input files": "transferring_input",
    "Started transferring input files": "transferring_input",
    "Finished transferring input files": "starting",
    "Started transferring output files": "transferring_output",
    "Finished transferring output files": "running",
}
"""The same, of a transfer."""


def until(lived: Ensemble, when: int) -> Ensemble:
    """The events up to a time; what goes on then is in flight."""
    return replace(
        lived,
        jobs=tuple(_until(job, when) for job in lived.jobs if job.submitted <= when),
        dagmans=tuple(each for each in lived.dagmans if each[2].start <= when),
    )


def _until(job: Job, when: int) -> Job:
    def execution(each: Execution) -> Execution:
        return each if each.end <= when else Execution(each.slot, each.start, cause="in-flight")

    def transfer(each: Moved) -> Moved:
        going = Moved(each.direction, each.start, outcome="in-flight")
        return each if each.end <= when else going

    return replace(
        job,
        lines=[line for line in job.lines if line[0] <= when],
        executions=[execution(each) for each in job.executions if each.start <= when],
        transfers=[transfer(each) for each in job.transfers if each.start <= when],
        holds=[hold for hold in job.holds if hold[0] <= when],
        moved=[moved for moved in job.moved if moved[0] <= when],
        memory=[memory for memory in job.memory if memory[0] <= when],
        completed=job.completed and job.last <= when,
    )


def moment_of(lived: Ensemble, share: float) -> int:
    """The first time at which a job transfers its input after this share of the submissions."""
    begin = lived.jobs[round(share * (len(lived.jobs) - 1))].submitted
    transfers = (each for job in lived.jobs for each in job.transfers)
    return min(each.start for each in transfers if each.direction == "input" and each.start > begin)


def write(lived: Ensemble, directory: Path, share: float = 0.7) -> dict[str, Any]:
    """Write the dagdir at :func:`moment_of` that share, with ``truth.json``; return the truth."""
    when = moment_of(lived, share)
    part = until(lived, when)
    files = dagdir_files(part, when)
    true = truth(part, files["metl.log"])
    write_files(directory, files | {"truth.json": json.dumps(true, indent=1) + "\n"})
    return true


# --- truth ------------------------------------------------------------------------------------


def truth(lived: Ensemble, log: str) -> dict[str, Any]:
    """Totals in GPU-seconds, seconds, bytes and counts, as of the last event of the log."""
    last = max(job.last for job in lived.jobs)
    every = [each for job in lived.jobs for each in job.executions]
    job_states = [_state(job) for job in lived.jobs]
    states = dict(zip((job.node for job in lived.jobs), job_states, strict=True))
    epochs = sum(len(plan.runs) * plan.epochs for plan in lived.dags)
    nodes = Counter("retrying" if s in ("failed", "removed") else s for s in states.values())
    nodes["waiting"] += epochs - len(states)
    seconds: Counter[str] = Counter()
    sites: dict[str, Counter[str]] = {}
    for each in every:
        worth = ((each.end or last) - each.start) * len(each.slot.gpus)
        seconds[_outcome(each)] += worth
        kind = _outcome(each) if _outcome(each) in ("good", "in-flight") else "bad"
        sites.setdefault(each.slot.place.site, Counter()).update({"executions": 1, kind: worth})
    return {
        "log_bytes": len(log.encode()),
        "first": str(local(lived.jobs[0].submitted)),
        "last": str(local(last)),
        "events": Counter(text[:3] for text in log.split("\n...\n")[:-1]),
        "runs": sum(len(plan.runs) for plan in lived.dags),
        "epochs": epochs,
        "completed": sum(job.completed for job in lived.jobs),
        "nodes": nodes,
        "jobs": len(lived.jobs),
        "job_states": Counter(job_states),
        "executions": Counter(map(_outcome, every)),
        "gpu_seconds": seconds,
        "sites": sites,
        "transfers": _transfers(lived),
        "holds": Counter(code for job in lived.jobs for _, code in job.holds),
        "bytes_sent": sum(sent for job in lived.jobs for _, sent, _ in job.moved),
        "bytes_received": sum(received for job in lived.jobs for *_, received in job.moved),
        "memory_mb": {
            str(job.cluster): max(mb for _, mb in job.memory)
            for job in lived.jobs
            if job.cluster % WATCHED == 0 and job.memory
        },
    }


def _state(job: Job) -> str:
    """The state of a job, by the meaning of its log's events."""
    for _, text in reversed(job.lines):
        number, _, rest = text("").partition("  ")
        if number == "005":
            return "completed" if job.completed else "failed"
        if number == "040":
            return TRANSFERS[rest.partition("\n")[0]]
        if number in STATES:
            return STATES[number]
    raise AssertionError(f"no state of {job.node}")


def _outcome(execution: Execution) -> str:
    """The outcome, as in ``metlmon/README.md``."""
    cause = (execution.cause or "good").split()[0]
    return "failed" if cause == "signal" else cause


def _transfers(lived: Ensemble) -> dict[str, dict[str, int]]:
    """Finished transfers, by direction and outcome."""
    sums: dict[str, Counter[str]] = {}
    for job in lived.jobs:
        for each in job.transfers:
            if each.end:
                counter = sums.setdefault(f"{each.direction} {each.outcome}", Counter())
                counter.update(count=1, seconds=each.end - each.start)
    return {key: dict(counter) for key, counter in sums.items()}


# --- on disk ------------------------------------------------------------------------------


def cache_directory() -> Path:
    """The directory of generated ensembles, outside the checkout."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "metlmon-bench"


def generated(name: str, directory: Path) -> Path:
    """The directory of the ensemble ``name`` below ``directory``; written if it does not exist, and
    atomically."""
    made = directory / name
    if not (made / "truth.json").exists():
        part = directory / f".{name}.part"
        shutil.rmtree(part, ignore_errors=True)
        begun = perf_counter()
        size = write(varied(KINDS[name], seed=1), part)["log_bytes"] / 1e6
        shutil.rmtree(made, ignore_errors=True)
        part.rename(made)
        seconds = perf_counter() - begun
        print(f"{made}: {size:.0f} MB of log written in {seconds:.1f} s", file=sys.stderr)
    return made
