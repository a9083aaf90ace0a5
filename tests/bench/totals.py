"""Totals of metlmon under the names of the generator's truth."""

from __future__ import annotations

from collections import Counter
from typing import Any

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.stats.totals import Count, break_down

HOUR = 3600


def of_status(builder: SnapshotBuilder) -> dict[str, Any]:
    """The totals of one snapshot, of which every screen is drawn."""
    status, breakdown = builder.status(), break_down(builder.ledger())
    hours = status.hours
    moved = breakdown.transfers
    (log,) = (log for log in status.logs if log.file == "metl.log")
    return {
        "log_bytes": log.bytes,
        "log_events": log.events,
        "first": str(log.first),
        "last": str(log.last),
        "runs": len(status.runs),
        "completed": sum(run.epochs_done for run in status.runs),
        "nodes": {state.value: n for state, n in status.node_states.items() if n},
        "executions": sum(site.executions for site in breakdown.sites),
        "gpu_seconds": {
            "good": round(hours.goodput * HOUR),
            "bad": round(hours.badput * HOUR),
            "in-flight": round(hours.running * HOUR),
        },
        "sites": {
            site.site: {
                "executions": site.executions,
                "good": round(site.hours.goodput * HOUR),
                "bad": round(site.hours.badput * HOUR),
                "in-flight": round(site.hours.running * HOUR),
            }
            for site in breakdown.sites
        },
        "transfers": {
            "input ok": _counted(moved.input_ok),
            "input unfinished": _counted(moved.input_unfinished),
            "input aborted": _counted(moved.input_aborted),
            "output ok": _counted(moved.output),
        },
        "bytes_sent": moved.bytes_sent,
        "bytes_received": moved.bytes_received,
    }


def of_jobs(builder: SnapshotBuilder) -> dict[str, Any]:
    """Totals summed from the entries of single jobs and executions."""
    ledger = builder.ledger()
    counts: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for entry in ledger.executions:
        counts[entry.outcome.value] += 1
        seconds[entry.outcome.value] += round(entry.gpu_seconds or 0)
    holds = [f"{hold.code}/{hold.subcode}" for job in ledger.jobs for hold in job.holds]
    return {
        "jobs": len(ledger.jobs),
        "job_states": dict(Counter(job.state.value for job in ledger.jobs)),
        "executions": dict(counts),
        "gpu_seconds": dict(seconds),
        "holds": dict(Counter(holds)),
        "bytes_sent": sum(job.bytes_sent or 0 for job in ledger.jobs),
        "bytes_received": sum(job.bytes_received or 0 for job in ledger.jobs),
        "completed": sum(epoch.state is State.COMPLETED for epoch in ledger.epochs),
        "memory_mb": {str(job.job[0]): job.memory_mb for job in ledger.jobs},
    }


def _counted(count: Count) -> dict[str, int]:
    return {"count": count.n, "seconds": round(count.seconds)}


def true_of_status(truth: dict[str, Any]) -> dict[str, Any]:
    """The expected result of :func:`of_status`."""
    none = {"count": 0, "seconds": 0}
    kinds = ("input ok", "input unfinished", "input aborted", "output ok")
    return {
        "log_bytes": truth["log_bytes"],
        "log_events": sum(truth["events"].values()),
        **{key: truth[key] for key in ("first", "last", "runs", "completed", "nodes")},
        "executions": sum(truth["executions"].values()),
        "gpu_seconds": _in_three(truth["gpu_seconds"]),
        "sites": {
            site: {key: of.get(key, 0) for key in ("executions", "good", "bad", "in-flight")}
            for site, of in truth["sites"].items()
        },
        "transfers": {kind: truth["transfers"].get(kind, none) for kind in kinds},
        "bytes_sent": truth["bytes_sent"],
        "bytes_received": truth["bytes_received"],
    }


def _in_three(seconds: dict[str, int]) -> dict[str, int]:
    kinds = {"good": 0, "bad": 0, "in-flight": 0}
    for outcome, each in seconds.items():
        kinds[outcome if outcome in kinds else "bad"] += each
    return kinds


def true_of_jobs(truth: dict[str, Any]) -> dict[str, Any]:
    """The expected result of :func:`of_jobs`, except the memory of jobs that the truth omits."""
    keys = ("jobs", "job_states", "executions", "gpu_seconds", "holds", "bytes_sent")
    return {key: truth[key] for key in (*keys, "bytes_received", "completed", "memory_mb")}


def differences(reader: DagdirReader, truth: dict[str, Any]) -> list[str]:
    """Figures that differ from the generator's truth; empty if none."""
    builder = reader.snapshot_builder()
    jobs, wanted = of_jobs(builder), true_of_jobs(truth)
    jobs["memory_mb"] = {c: jobs["memory_mb"].get(c) for c in wanted["memory_mb"]}
    return [
        *differing("status", of_status(builder), true_of_status(truth)),
        *differing("jobs", jobs, wanted),
    ]


def differing(where: str, read: dict[str, Any], true: dict[str, Any]) -> list[str]:
    """One line for each figure of ``read`` that differs from ``true``."""
    found: list[str] = []
    for key in sorted(read.keys() | true.keys(), key=str):
        mine, other = read.get(key), true.get(key)
        if isinstance(mine, dict) and isinstance(other, dict):
            found += differing(f"{where}: {key}", mine, other)
        elif mine != other:
            found.append(f"{where}: {key} is {mine}, and should be {other}")
    return found
