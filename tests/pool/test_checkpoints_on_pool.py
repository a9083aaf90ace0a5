"""What HTCondor commits of jobs that checkpoint themselves (``CommittedTime``), and metlmon's
goodput: the same for every execution, within two seconds."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from pools import Pool, until

TRAINING = """\
#!/usr/bin/env python3
# Trains in steps of a second; stores a checkpoint after those listed, or fails to.
import os, sys, time
last, stops, spoiled = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3]
os.makedirs("ckpt", exist_ok=True)
step = int(open("ckpt/step").read()) if os.path.exists("ckpt/step") else 0
end = min([int(stop) for stop in stops if int(stop) > step] + [last])
while step < end:
    time.sleep(1)
    step += 1
with open("ckpt/new", "w") as file:
    file.write(str(step))
os.rename("ckpt/new", "ckpt/step")
if spoiled == "yes":
    os.rename("ckpt", "gone")
sys.exit(0 if step >= last else 85)
"""

SUBMIT = """\
executable = train.py
arguments = $(last) $(stops) $(spoiled)
log = train.log
request_gpus = $(gpus)
request_memory = 64
request_disk = 1MB
checkpoint_exit_code = 85
transfer_checkpoint_files = ckpt
transfer_output_files =
should_transfer_files = YES
when_to_transfer_output = $(when)
queue
"""

JOBS = {
    "whole": 'last="20" stops="6,12" spoiled="no" gpus="1" when="ON_EXIT"',
    "before": 'last="16" stops="14" spoiled="no" gpus="1" when="ON_EXIT"',
    "vacated": 'last="24" stops="6" spoiled="no" gpus="2" when="ON_EXIT"',
    "evicted": 'last="24" stops="6" spoiled="no" gpus="1" when="ON_EXIT_OR_EVICT"',
    "removed": 'last="90" stops="6,12" spoiled="no" gpus="1" when="ON_EXIT"',
    "held": 'last="90" stops="6" spoiled="no" gpus="1" when="ON_EXIT"',
    "failed": 'last="24" stops="6" spoiled="yes" gpus="1" when="ON_EXIT"',
}
ACTS = {
    "before": (5, "condor_vacate_job"),
    "vacated": (13, "condor_vacate_job"),
    "evicted": (13, "condor_vacate_job"),
    "removed": (18, "condor_rm"),
    "held": (13, "condor_hold"),
}
"""Seconds after the start of a job, and what is done to it then."""

SECONDS = 180.0
CLOCK_SECONDS = 2
"""Each checkpoint is committed in whole seconds, and so are the stamps of events."""


def _executions(pool: Pool, dagman: int) -> dict[int, list[tuple[int, int]]]:
    """The committed and total seconds of each execution, by job (``condor_history -epochs``)."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    ads = pool.executions(f"DAGManJobId == {dagman}")
    committed: dict[int, int] = {}
    for ad in sorted(ads, key=lambda ad: ad["EpochWriteDate"]):
        job, total = ad["ClusterId"], ad["CommittedTime"]
        started = ad.get("JobCurrentStartExecutingDate")
        if started is None or started < ad["JobCurrentStartDate"]:
            # A shadow without an execution writes an ad, too.
            continue
        # The last ad is written before the end of the job is committed.
        found[job].append((total - committed.get(job, 0), ad["EpochWriteDate"] - started))
        committed[job] = total
    return found


def test_goodput_equals_committed_time(pool: Pool) -> None:
    directory = pool.directory("checkpoints")
    pool.place(directory / "train.py", TRAINING, 0o755)
    pool.place(directory / "train.sub", SUBMIT)
    lines = [f"JOB {name} train.sub\nVARS {name} {text}\n" for name, text in JOBS.items()]
    pool.place(directory / "ens.dag", "".join(lines))
    dagman = int(
        pool.run(["condor_submit_dag", "ens.dag"], directory)
        .stdout.split("submitted to cluster ")[1]
        .split(".")[0]
    )
    ours = f"DAGManJobId == {dagman}"
    todo = dict(ACTS)

    def act() -> bool:
        now = int(pool.run(["date", "+%s"]).stdout)
        for ad in pool.queue(ours, "JobStatus == 2"):
            seconds, command = todo.get(ad["DAGNodeName"], (0, ""))
            started = ad.get("JobCurrentStartExecutingDate")
            if command and started is not None and now - started >= seconds:
                pool.run([command, str(ad["ClusterId"])])
                del todo[ad["DAGNodeName"]]
        return not todo and not pool.queue(ours, "JobStatus != 5")

    until(act, "everything was done, and the jobs have ended", SECONDS)
    rows = json.loads(pool.run(["metlmon", "jobs", ".", "--json"], directory).stdout)["jobs"]
    expected = _executions(pool, dagman)
    assert {row["cluster"] for row in rows} == set(expected)
    for row in rows:
        _compare(row, expected[row["cluster"]], pool.history(f"ClusterId == {row['cluster']}"))
    pool.run(["condor_rm", "-constraint", ours])


def _compare(row: dict[str, Any], seconds: list[tuple[int, int]], history: list[Any]) -> None:
    """Compare a job of ``metlmon jobs --json`` with its executions and its ad in the history."""
    good = [each["seconds"] - each["lost"] for each in row["executions"]]
    assert len(good) == len(seconds), row["node"]
    for ours, each, (committed, all_seconds) in zip(good, row["executions"], seconds, strict=True):
        assert abs(each["seconds"] - all_seconds) <= CLOCK_SECONDS, row["node"]
        if each["outcome"] != "good":
            assert abs(ours - committed) <= CLOCK_SECONDS, (row["node"], ours, committed)
    for ad in history:
        total = ad["CommittedTime"]
        assert abs(sum(good) - total) <= CLOCK_SECONDS * len(good), (row["node"], good, total)
        assert sum(each["seconds"] for each in row["executions"]) <= (
            ad["RemoteWallClockTime"] + CLOCK_SECONDS * len(good)
        ), row["node"]
