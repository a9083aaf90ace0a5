"""Removed jobs: by a policy after a hold, by a user, with their DAG."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.health.build import make_health
from metlmon.health.types import Severity
from metlmon.snapshot.types import QueueState
from tests.health.ensembles import (
    HELD_RUNS,
    POLICY,
    EventLog,
    chains,
    health_of,
    input_of,
    only,
    removed_after_hold,
    write,
)


def test_runs_that_were_all_removed_after_their_holds(tmp_path: Path) -> None:
    health = health_of(removed_after_hold(tmp_path))
    assert (health.runs_stopped, health.runs_total, health.epochs_left) == (10, 10, 30)
    assert health.jobs_queued == 0
    entries = health.open_entries
    assert {entry.kind for entry in entries} == {"removed-by-policy"}
    assert {entry.heading for entry in entries} == {
        "held, then removed by the access point's policy (held > 30 d)"
    }
    assert {entry.policy for entry in entries} == {POLICY}
    assert {entry.severity for entry in entries} == {Severity.STOPPED}
    by_text = {entry.text: [health.names[run] for run in entry.runs] for entry in entries}
    assert by_text == {
        "wall-time limit of 3d00h reached (hold 47)": list(HELD_RUNS[47]),
        "input 5\u202f069 MB > 5\u202f000 MB allowed (hold 32)": list(HELD_RUNS[32]),
        "output transfer failed (hold 12)": list(HELD_RUNS[12]),
        "disk quota at the access point (hold 12)": list(HELD_RUNS[122]),
    }
    # Each blocked epoch is counted once, and each lost hour.
    assert sum(entry.epochs_blocked for entry in entries) == health.epochs_left
    assert sum(entry.gpu_hours for entry in entries) == 20.0
    assert not health.closed_entries


def test_the_most_blocked_comes_first(tmp_path: Path) -> None:
    entries = health_of(removed_after_hold(tmp_path)).open_entries
    assert [entry.epochs_blocked for entry in entries] == [9, 9, 6, 6]


def test_what_was_submitted_again_is_closed(tmp_path: Path) -> None:
    log = EventLog()
    removed = log.submit("run0-train_epoch0")
    log.remove(removed, "via condor_rm (by user anna)", hours=1.0)
    log.train("run0-train_epoch0")
    health = health_of(write(tmp_path, chains({"run0": 1}), log))
    assert not health.open_entries
    assert only(health, "removed-by-user", is_open=False).text == "removed by anna (condor_rm)"


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (
            "The job attribute PeriodicRemove expression 'NumJobStarts > 9' evaluated to TRUE",
            "removed by the job's policy",
        ),
        (
            "Job removed by SYSTEM_PERIODIC_REMOVE due to disk usage exceeded allowed max",
            "removed by the access point's policy: Job removed by SYSTEM_PERIODIC_REMOVE due to "
            "disk usage exceeded allowed max",
        ),
    ],
)
def test_a_policy_that_removes_jobs_that_are_not_held(
    tmp_path: Path, reason: str, text: str
) -> None:
    log = EventLog()
    log.remove(log.submit("run0-train_epoch0"), reason)
    entry = only(health_of(write(tmp_path, chains({"run0": 2}), log)), "removed-by-policy")
    assert (entry.text, entry.heading, entry.epochs_blocked) == (text, None, 2)
    assert entry.reason == reason


def test_the_clock_of_a_policy_in_the_queue(tmp_path: Path) -> None:
    log = EventLog()
    cluster = log.submit("run0-train_epoch0")
    log.hold(cluster, "via condor_hold (by user anna)", 1)
    dagdir = write(tmp_path, chains({"run0": 2}), log)
    policy = "(JobStatus == 5) && (time() - EnteredCurrentStatus > 7200)"
    of_queue = replace(input_of(dagdir), queue=QueueState({(cluster, 0): policy}))
    entry = only(make_health(of_queue), "held")
    assert entry.removal_at == log.time + timedelta(hours=2)
    # What depends on more than the hold is no clock.
    more = f"{policy} && NumHolds > 3"
    unsure = replace(of_queue, queue=QueueState({(cluster, 0): more}))
    assert only(make_health(unsure), "held").removal_at is None
