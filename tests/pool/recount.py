"""An ensemble's jobs, counted from its job log with HTCondor's own reader.

A second opinion, without code of metlmon. Times are seconds since the epoch, as HTCondor's reader
converts them, and must agree to the second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truth import seconds

READ = """
import json, re, sys, htcondor2

def node(notes):  # Structured from 24.x on.
    node = re.search('DAGNodeName = "([^"]*)"', notes)
    return node.group(1) if node else notes.removeprefix("DAG Node: ")

for event in htcondor2.JobEventLog(sys.argv[1]).events(0):
    place = event.get("ExecuteProps") or {}
    print(json.dumps({
        "number": int(event.type), "job": [event.cluster, event.proc], "time": int(event.timestamp),
        "node": node(str(event.get("LogNotes", ""))),
        "gpus": int(place.get("GPUs", 0)), "site": place.get("GLIDEIN_ResourceName"),
        "good": event.get("TerminatedNormally") is True and event.get("ReturnValue") == 0,
    }))
"""
"""In a process of its own: the bindings change the environment that they are loaded in."""

ENDS = {
    4: "evicted",
    5: "",
    7: "shadow-exception",
    9: "removed",
    12: "held",
    24: "reconnect-failed",
}
"""Events that end an execution, and how metlmon calls such an end."""

LEASE_SECONDS = 2400
"""A job's lease, when its submit description has none (manual, JobLeaseDuration)."""

STATES = {0: "idle", 1: "running", 4: "idle", 7: "idle", 9: "removed", 12: "held", 13: "idle"}
STATES |= {22: "disconnected", 23: "running", 24: "idle"}


@dataclass(slots=True)
class Execution:
    """One execution; ``end`` None while it runs.

    ``unreached``: when it was disconnected (022), until it is reconnected (023).
    """

    start: int
    gpus: int
    site: str | None
    end: int | None = None
    outcome: str = "in-flight"
    unreached: int | None = None

    def stop(self, now: int, outcome: str, lease: int) -> None:
        """End it now; without a result and disconnected, at the latest at the end of its lease."""
        if self.unreached is not None and outcome not in ("good", "failed"):
            now = min(now, self.unreached + lease)
        self.end, self.outcome = now, outcome


@dataclass(slots=True)
class Job:
    """One job."""

    node: str
    state: str = ""
    executions: list[Execution] = field(default_factory=list)


def events(log: Path) -> Iterator[dict[str, Any]]:
    """The fields needed of each event, from HTCondor's reader."""
    alone = {**os.environ, "TZ": "UTC", "CONDOR_CONFIG": "/dev/null"}
    argv = [sys.executable, "-c", READ, str(log)]
    read = subprocess.run(argv, env=alone, check=True, capture_output=True, text=True)
    yield from map(json.loads, read.stdout.splitlines())


def recount(log: Path, lease: int = LEASE_SECONDS) -> dict[tuple[int, int], Job]:
    """The jobs of a log, by cluster and proc. ``lease``: their JobLeaseDuration, in seconds."""
    jobs: dict[tuple[int, int], Job] = {}
    for event in events(log):
        cluster, proc = event["job"]
        if event["number"] == 0:
            jobs[cluster, proc] = Job(event["node"])
        _apply(jobs[cluster, proc], event, lease)
    return jobs


def _apply(job: Job, event: dict[str, Any], lease: int) -> None:
    number, now = event["number"], event["time"]
    if number == 9 and job.state in ("completed", "failed"):
        # DAGMan exits at the last job's 005; the schedd may then remove that job from the queue.
        return
    job.state = STATES.get(number, job.state)
    last = job.executions[-1] if job.executions else None
    going = last if last is not None and last.end is None else None
    if number == 1:
        assert going is None, "an execution begins while another one goes on"
        job.executions.append(Execution(now, event["gpus"], event["site"]))
    if number == 5:
        job.state = "completed" if event["good"] else "failed"
    if going is not None and number in ENDS:
        going.stop(now, ENDS[number] or job.state.replace("completed", "good"), lease)
    elif going is not None and number in (22, 23):
        going.unreached = now if number == 22 else None


def gpu_seconds(jobs: dict[tuple[int, int], Job]) -> dict[str, int]:
    """GPU-seconds of executions that ended well, and of those that ended otherwise."""
    split = {"good": 0, "bad": 0}
    for job in jobs.values():
        for ran in job.executions:
            if ran.end is not None:
                kind = "good" if ran.outcome == "good" else "bad"
                split[kind] += (ran.end - ran.start) * ran.gpus
    return split


def differences(
    log: Path, status: dict[str, Any], output_of: list[dict[str, Any]], lease: int = LEASE_SECONDS
) -> list[str]:
    """Where metlmon's jobs and hours differ from the log; empty if nowhere."""
    jobs = recount(log, lease)
    ours = {(job["cluster"], job["proc"]): job for job in output_of}
    found = [f"{key}: only one of both knows it" for key in ours.keys() ^ jobs.keys()]
    for key in ours.keys() & jobs.keys():
        result, counted = ours[key], jobs[key]
        pairs = [("node", result["node"], counted.node), ("state", result["state"], counted.state)]
        pairs.append(("executions", _intervals_of(result), _counted(counted)))
        found += [f"{key} {what}: {a}, the log {b}" for what, a, b in pairs if a != b]
    for kind, value in gpu_seconds(jobs).items():
        spent = status["hours"]
        hours = spent[f"{kind}put"] if spent["measure"] == "GPU" else 0.0
        if abs(hours * 3600 - value) > 1:
            found.append(f"GPU-seconds {kind}: {hours * 3600:.2f}, the log {value}")
    return found


def _intervals_of(job: dict[str, Any]) -> list[tuple[object, ...]]:
    return [
        (
            seconds(ran["start"]),
            seconds(ran["end"]) if ran["end"] else None,
            ran["gpus"] or 0,
            ran["site"],
            ran["outcome"],
        )
        for ran in job["executions"]
    ]


def _counted(job: Job) -> list[tuple[object, ...]]:
    return [(ran.start, ran.end, ran.gpus, ran.site, ran.outcome) for ran in job.executions]
