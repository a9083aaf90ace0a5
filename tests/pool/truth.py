"""HTCondor's and DAGMan's account of an ensemble, and where metlmon differs.

It reads none of the sources from which metlmon knows a job: the schedd's ads (``condor_q``,
``condor_history``, and ``condor_history -epochs``, one ad for each execution), and those of
DAGMan's files that have totals. It shares no code with metlmon, so that no mistake is made twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pools import PATIENCE, SCHEDULER_UNIVERSE, Ad, Pool, is_below, until

CLOCK_SECONDS = 1
"""Between the second that the schedd notes for something and that of its event."""

COUNTED = ("nodes_total", "nodes_done", "nodes_failed")

LOCAL_UNIVERSE = 12
AT_HOME = (SCHEDULER_UNIVERSE, LOCAL_UNIVERSE)
"""Jobs that run at the access point: a PROVISIONER's, and a sub-DAG's DAGMan."""

WAITING_SECONDS = 300.0
"""``status --exit-on`` may wait for a whole ensemble."""

REMOVED_EXIT = 2
"""DAGMan's exit status when it was removed."""

QUIET_SECONDS = 2
"""The queue and the logs tell the same when nothing has happened for so long."""

LATE_SECONDS = 20
"""The log may be so much behind the queue: a job that is held while its shadow starts is HELD at
once, and its 012 is written when that shadow has given up (seen: 9 s, two tries of 5 s)."""

IDLE, RUNNING, REMOVED, COMPLETED, HELD, TRANSFERRING_OUTPUT, SUSPENDED = range(1, 8)
IN_QUEUE = {
    IDLE: {"idle"},
    RUNNING: {"transferring_input", "starting", "running", "disconnected"},
    HELD: {"held"},
    TRANSFERRING_OUTPUT: {"transferring_output"},
    SUSPENDED: {"suspended"},
}
"""JobStatus of a job in the queue, and what metlmon may call it then."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution: seconds since the epoch; ``code`` None when it did not end by itself,
    ``site`` None at the access point itself."""

    start: int
    end: int
    gpus: int
    site: str | None
    code: int | None


@dataclass(frozen=True, slots=True)
class Job:
    """One job that left the queue."""

    cluster: int
    proc: int
    node: str
    state: str
    executions: tuple[Execution, ...]

    @property
    def id(self) -> str:
        return f"{self.cluster}.{self.proc}"


@dataclass(frozen=True, slots=True)
class Totals:
    """DAGMan's totals of its nodes at the end of its newest life; of several DAGs (but not of
    sub-DAGs) their sums, and the highest exit status."""

    nodes: int
    done: int
    failed: int
    exit_code: int


@dataclass(frozen=True, slots=True)
class Truth:
    """HTCondor's whole account, as it is kept beside a recording."""

    jobs: tuple[Job, ...]
    totals: Totals

    @property
    def gpu_seconds(self) -> dict[str, int]:
        """GPU-seconds of executions that ended with 0, and of all others."""
        split = {"good": 0, "bad": 0}
        for job in self.jobs:
            for each in job.executions:
                split["good" if each.code == 0 else "bad"] += (each.end - each.start) * each.gpus
        return split

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def read(path: Path) -> Truth:
    """Read a truth that :meth:`Truth.write` wrote."""
    kept = json.loads(path.read_text())
    jobs = [
        Job(**{**job, "executions": tuple(Execution(**each) for each in job["executions"])})
        for job in kept["jobs"]
    ]
    return Truth(tuple(jobs), Totals(**kept["totals"]))


# --- from HTCondor ------------------------------------------------------------------------


def dagmans(pool: Pool, directory: Path) -> list[int]:
    """The clusters of all DAGMans submitted from this directory."""
    universe = f"JobUniverse == {SCHEDULER_UNIVERSE}"
    ads = [*pool.queue(universe), *pool.history(universe)]
    return sorted({ad["ClusterId"] for ad in ads if is_below(ad["Iwd"], directory)})


def of_dagmans(clusters: Iterable[int]) -> str:
    return " || ".join(f"DAGManJobId == {cluster}" for cluster in clusters)


def until_gone(pool: Pool, directory: Path, seconds: float = PATIENCE) -> None:
    """Wait until the queue has neither DAGMan nor any of its jobs."""
    ours = dagmans(pool, directory)
    both = " || ".join([of_dagmans(ours), *(f"ClusterId == {each}" for each in ours)])
    until(
        lambda: not pool.queue(both),
        lambda: f"all of {directory.name} leave the queue: {len(pool.queue(both))} are there",
        seconds,
    )


def at_the_end(pool: Pool, directory: Path) -> Truth:
    """The truth about everything submitted from here, which must have left the queue."""
    ours = of_dagmans(dagmans(pool, directory))
    assert not pool.queue(ours), "jobs of it are in the queue"
    executions: dict[tuple[int, int], list[Execution]] = {}
    elsewhere = " && ".join(f"JobUniverse != {each}" for each in AT_HOME)
    for ad in pool.executions(ours, elsewhere):
        started = ad.get("JobCurrentStartExecutingDate")
        # A shadow without an execution writes an ad, too.
        if started is not None and started >= ad["JobCurrentStartDate"]:
            key = (ad["ClusterId"], ad["ProcId"])
            executions.setdefault(key, []).append(_execution(pool, ad))
    jobs = []
    for ad in pool.history(ours):
        key = (ad["ClusterId"], ad["ProcId"])
        found = sorted(executions.get(key, []), key=lambda each: each.start)
        if ad["JobUniverse"] in AT_HOME:
            found = [_at_home(ad)]
        state = state_at_end(ad)
        if state == "removed" and found:
            # A job that was removed during its output transfer has not succeeded.
            found[-1] = replace(found[-1], code=None)
        jobs.append(Job(*key, ad["DAGNodeName"], state, tuple(found)))
    return Truth(tuple(sorted(jobs, key=lambda job: job.cluster)), totals(directory))


def _execution(pool: Pool, ad: Ad) -> Execution:
    name = ad["RemoteHost"].split("@")[1]
    gpus = len(ad["AssignedGPUs"].split(",")) if ad.get("AssignedGPUs") else 0
    if how := ad.get("ToE"):
        by_itself = how["How"] == "OF_ITS_OWN_ACCORD"
    else:
        # 25.x writes no ToE; a vacated job did not end by itself.
        by_itself = "ExitCode" in ad and "VacateReason" not in ad
    code = None
    if by_itself and not ad.get("ExitBySignal"):
        code = ad["ExitCode"]
    return Execution(
        ad["JobCurrentStartExecutingDate"], ad["EpochWriteDate"], gpus, pool.sites[name], code
    )


def _at_home(ad: Ad) -> Execution:
    """HTCondor counts no executions of such a job: it is taken to have ended by itself."""
    return Execution(ad["JobCurrentStartDate"], ad["CompletionDate"], 0, None, ad["ExitCode"])


def state_at_end(ad: Ad) -> str:
    """The last state of a job that left the queue, by its ad in the history.

    The shadow sets TerminationPending just before it writes the job's 005, its output being
    there. A removal after that (of a DAG's last job, as DAGMan exits) does not change its end. A
    job without a shadow (local, scheduler universe) was completed before it was removed.
    """
    has_ended = ad.get("TerminationPending") or ad.get("LastJobStatus") == COMPLETED
    if ad["JobStatus"] == REMOVED and not has_ended:
        return "removed"
    assert ad["JobStatus"] in (COMPLETED, REMOVED), ad["JobStatus"]
    return "completed" if not ad["ExitBySignal"] and ad["ExitCode"] == 0 else "failed"


def totals(directory: Path) -> Totals:
    """From the metrics files; the node status files must say the same of each node."""
    metrics = [json.loads(path.read_text()) for path in directory.glob("*.metrics")]
    tops = [found for found in metrics if not found["parent_dagman_id"]]
    assert tops, f"no DAGMan has ended in {directory}"
    result = _sums(tops)
    every = _sums(metrics)
    text = "".join(path.read_text() for path in directory.glob("*.status"))
    if text:
        counted = {"Total": 0, "Done": 0}
        for name, value in re.findall(r"^\s*Nodes(Total|Done) = (\d+);", text, re.M):
            counted[name] += int(value)
        each = re.findall(r"^\s*NodeStatus = (\d+);", text, re.M)
        assert counted["Total"] == every.nodes == len(each), (counted, every)
        assert counted["Done"] == every.done == each.count("5"), (counted, every)
    return result


def _sums(metrics: Iterable[dict[str, Any]]) -> Totals:
    def both(which: str) -> int:
        """Sub-DAG nodes are counted separately from the others. Version 1 calls nodes jobs."""
        return sum(
            found[f"{kind}{'nodes' if 'nodes' in found else 'jobs'}{which}"]
            for found in metrics
            for kind in ("", "dag_")
        )

    codes = [found["exitcode"] for found in metrics]
    return Totals(both(""), both("_succeeded"), both("_failed"), max(codes))


# --- against metlmon ----------------------------------------------------------------------


def status_of(pool: Pool, directory: Path, *more: str) -> dict[str, Any]:
    """``metlmon status --json`` there."""
    argv = ["metlmon", "status", "--json", *more]
    done = pool.run(argv, directory, seconds=WAITING_SECONDS)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def jobs_of(pool: Pool, directory: Path) -> list[dict[str, Any]]:
    """The jobs of ``metlmon jobs --json`` there that belong to a DAG."""
    found = json.loads(pool.run(["metlmon", "jobs", "--json"], directory).stdout)
    return [job for job in found["jobs"] if job["dag"] is not None]


def differences(truth: Truth, status: dict[str, Any], jobs: Iterable[dict[str, Any]]) -> list[str]:
    """Where metlmon's last word differs from HTCondor's; empty when nowhere."""
    result = {f"{job['cluster']}.{job['proc']}": job for job in jobs}
    known = {job.id: job for job in truth.jobs}
    found = [f"{each}: metlmon does not know it" for each in known if each not in result]
    found += [f"{each}: HTCondor does not know it" for each in result if each not in known]
    for name in known.keys() & result.keys():
        found += [f"{name}: {text}" for text in _job_differences(known[name], result[name])]
    executions = [each for job in truth.jobs for each in job.executions]
    slack = sum(2 * CLOCK_SECONDS * each.gpus for each in executions)
    for kind, gpu_seconds in truth.gpu_seconds.items():
        spent = status["hours"]
        hours = spent[f"{kind}put"] if spent["measure"] == "GPU" else 0.0
        if abs(hours * 3600 - gpu_seconds) > slack:
            found.append(f"GPU-seconds {kind}: {hours * 3600:.1f}, HTCondor {gpu_seconds}")
    counts = [("nodes_total", truth.totals.nodes)]
    if truth.totals.exit_code != REMOVED_EXIT:
        # DAGMan's metrics and node status file count otherwise after a removal.
        counts.append(("nodes_failed", truth.totals.failed))
    ours = {name: sum(dag[name] for dag in status["dags"]) for name in COUNTED}
    for name, value in counts:
        if ours[name] != value:
            found.append(f"{name}: {ours[name]}, DAGMan {value}")
    done = {truth.totals.done}
    if truth.totals.exit_code == REMOVED_EXIT:
        # A job that succeeds while its DAGMan is removed is done in the schedd's history, unknown
        # to DAGMan.
        done.add(len({job.node for job in truth.jobs if job.state == "completed"}))
    if ours["nodes_done"] not in done:
        found.append(f"nodes_done: {ours['nodes_done']}, HTCondor {sorted(done)}")
    return found


def _job_differences(job: Job, output_of: dict[str, Any]) -> list[str]:
    found = []
    for name, ours, theirs in (
        ("node", output_of["node"], job.node),
        ("state", output_of["state"], job.state),
        ("executions", len(output_of["executions"]), len(job.executions)),
    ):
        if ours != theirs:
            found.append(f"{name} is {ours}, HTCondor {theirs}")
    for ours, theirs in zip(output_of["executions"], job.executions, strict=False):
        for name in ("start", "end"):
            value = getattr(theirs, name)
            if abs(seconds(ours[name]) - value) > CLOCK_SECONDS:
                found.append(f"an execution's {name} is {ours[name]}, HTCondor {stamp(value)}")
        if (ours["gpus"] or 0) != theirs.gpus:
            found.append(f"an execution's GPUs are {ours['gpus']}, HTCondor {theirs.gpus}")
        if ours["site"] != theirs.site:
            found.append(f"an execution's site is {ours['site']}, HTCondor {theirs.site}")
        if ours["return_value"] != theirs.code:
            found.append(f"an exit code is {ours['return_value']}, HTCondor {theirs.code}")
    return found


def seconds(time: str) -> float:
    """Seconds since the epoch; the pool's clock, and its users', is UTC."""
    return datetime.fromisoformat(time).replace(tzinfo=UTC).timestamp()


def stamp(value: float) -> str:
    return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%dT%H:%M:%S")


# --- in the middle ------------------------------------------------------------------------


def quiet_moment(pool: Pool, directory: Path, seconds: float = PATIENCE) -> list[str]:
    """Wait until nothing has changed for a while, then compare each job's state with the queue's.
    Returns the states that were compared; fails where they differ. DAGMan is the one of the
    beginning."""

    ours = of_dagmans(dagmans(pool, directory))

    def look() -> list[str] | None:
        before = _queue(pool, ours)
        if not before or not _at_rest(before):
            return None
        jobs = jobs_of(pool, directory)
        if before != _queue(pool, ours):
            return None
        result = {(job["cluster"], job["proc"]): job for job in jobs}
        wrong = [(ad, text) for ad in before if (text := _differs(ad, result))]
        if any(_age(ad) < LATE_SECONDS for ad, _ in wrong):
            return None
        assert not wrong, [text for _, text in wrong]
        return [f"{result[ad['ClusterId'], ad['ProcId']]['state']}" for ad in before]

    found = until(look, "a quiet moment", seconds)
    assert found is not None
    return found


SEEN = (
    *("ClusterId", "ProcId", "JobStatus", "EnteredCurrentStatus", "DAGNodeName"),
    *("JobCurrentStartDate", "JobCurrentStartExecutingDate", "HoldReasonCode", "RemoteHost"),
)


def _queue(pool: Pool, ours: str) -> list[Ad]:
    ads = [ad for ad in pool.queue(ours) if ad["JobUniverse"] != SCHEDULER_UNIVERSE]
    return [{name: ad.get(name) for name in SEEN} for ad in ads]


def _age(ad: Ad) -> float:
    """Seconds since the job entered its state in the queue."""
    return datetime.now(UTC).timestamp() - float(ad["EnteredCurrentStatus"])


def _at_rest(ads: Iterable[Ad]) -> bool:
    """Whether no change is recent or due: a running job executes."""
    now = datetime.now(UTC).timestamp()
    for ad in ads:
        if ad["JobStatus"] not in IN_QUEUE:
            # A removed or completed job is about to leave the queue.
            return False
        moments = [ad["EnteredCurrentStatus"]]
        if ad["JobStatus"] == RUNNING:
            started = ad["JobCurrentStartExecutingDate"]
            # Before this execution starts, the date is that of the one before.
            moments.append(started if started and started >= ad["JobCurrentStartDate"] else now)
        if now - max(moments) < QUIET_SECONDS:
            return False
    return True


def _differs(ad: Ad, output_of: dict[tuple[int, int], dict[str, Any]]) -> str | None:
    name = f"{ad['ClusterId']}.{ad['ProcId']} ({ad['DAGNodeName']})"
    job = output_of.get((ad["ClusterId"], ad["ProcId"]))
    if job is None:
        return f"{name} is in the queue, and metlmon does not know it"
    if ad["JobStatus"] == HELD and job["state"] == "completed":
        # Held as it ended: its shadow has written the 005 since then, which DAGMan goes by.
        since = float(ad["EnteredCurrentStatus"]) - CLOCK_SECONDS
        return (
            None
            if seconds(job["executions"][-1]["end"]) >= since
            else f"{name} ended before its hold"
        )
    if job["state"] not in IN_QUEUE[ad["JobStatus"]]:
        return f"{name} is {job['state']}, in the queue JobStatus {ad['JobStatus']}"
    if job["node"] != ad["DAGNodeName"]:
        return f"{name} is of node {job['node']}"
    return None
