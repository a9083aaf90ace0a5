"""Holds whose 012 was lost, proven by the reason of a later removal.

The reasons are those of ``UserPolicy::FiringReason`` in HTCondor's ``user_job_policy.cpp``.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from metlmon.model.states import Outcome, State
from tests.support.dagdir_builder import DAG, NODE, Dagdir
from tests.support.event_logs import Log, moment, of_one_job

SYSTEM = "The system macro SYSTEM_PERIODIC_REMOVE expression '{}' evaluated to TRUE"
ATTRIBUTE = "The job attribute PeriodicRemove expression '{}' evaluated to TRUE"
THIRTY_DAYS = "(JobStatus == 5 && time() - EnteredCurrentStatus > 3600 * 24 * 30)"


def laid(path: Path, reason: str, *between: Log) -> Dagdir:
    """Submitted and executing on 1 January, the hold torn out, removed on 3 February."""
    log = Log().submit(77, NODE, at="01-01 10:00:00").execute(77, gpus=2, at="01-01 11:00:00")
    end = Log().remove(77, reason, at="02-03 12:00:00")
    dagdir = Dagdir(path, DAG)
    dagdir.write("metl.log", b"".join(part.data for part in (log, *between, end)))
    return dagdir


HELD_SINCE = datetime(2026, 1, 4, 12, 0, 0)


@pytest.mark.parametrize(
    "policy",
    [
        SYSTEM.format(THIRTY_DAYS),
        SYSTEM.format("JobStatus =?= 5 && ((time() - EnteredCurrentStatus) > 2592000)"),
        ATTRIBUTE.format("(JobStatus == 5) && (CurrentTime - EnteredCurrentStatus >= 2592000)"),
        SYSTEM.format(
            "(JobStatus == 5 && NumHolds > 3 && time() - EnteredCurrentStatus > 30 * 86400) || "
            "(JobStatus == 5 && time() - EnteredCurrentStatus > 40 * 86400)"
        ),
        SYSTEM.format(f"(JobUniverse == 5) && {THIRTY_DAYS}"),
    ],
)
def test_lost_hold_is_inferred(tmp_path: Path, policy: str) -> None:
    dagdir = laid(tmp_path, policy)
    (job,) = dagdir.reader().snapshot_builder().job_rows()
    assert job.state is State.REMOVED
    (execution,) = job.executions
    assert (execution.end, execution.outcome) == (HELD_SINCE, Outcome.HELD)
    assert execution.uncertain
    assert "inferred" in (execution.reason or "")


def test_lost_hold_counts_in_the_past(tmp_path: Path) -> None:
    dagdir = laid(tmp_path, SYSTEM.format(THIRTY_DAYS))
    (before,) = dagdir.reader(datetime(2026, 1, 3)).snapshot_builder().job_rows()
    assert before.state is State.RUNNING
    (after,) = dagdir.reader(datetime(2026, 1, 20)).snapshot_builder().job_rows()
    assert (after.state, after.since) == (State.HELD, HELD_SINCE)
    assert "inferred" in (after.hold_reason or "")


@pytest.mark.parametrize(
    "policy",
    [
        SYSTEM.format("(JobStatus == 1 && time() - EnteredCurrentStatus > 2592000)"),
        SYSTEM.format(f"{THIRTY_DAYS} || NumJobStarts > 20"),
        SYSTEM.format(f"JobUniverse == 5 && (NumJobStarts > 20 || X && {THIRTY_DAYS[1:-1]})"),
        SYSTEM.format("JobStatus == 5"),
        SYSTEM.format("!(JobStatus == 5 && time() - EnteredCurrentStatus > 2592000)"),
        SYSTEM.format("JobStatus == 5 && time() - EnteredCurrentStatus > 1" + "0" * 30),
        "via condor_rm (by user ml)",
        f"somebody wrote {THIRTY_DAYS}",
    ],
)
def test_other_reasons_prove_no_hold(tmp_path: Path, policy: str) -> None:
    (job,) = laid(tmp_path, policy).reader().snapshot_builder().job_rows()
    (execution,) = job.executions
    assert (execution.end, execution.outcome) == (datetime(2026, 2, 3, 12), Outcome.REMOVED)


def test_logged_hold_is_unchanged(tmp_path: Path) -> None:
    held = Log().hold(77, 13, "disk full", at="01-02 10:00:00", subcode=2)
    dagdir = laid(tmp_path, SYSTEM.format(THIRTY_DAYS), held)
    builder = dagdir.reader().snapshot_builder()
    view = builder.job_view(77, 0)
    (execution,) = view.job.executions
    assert (execution.end, execution.code) == (datetime(2026, 1, 2, 10), 13)
    assert not execution.uncertain
    assert [line.number for line in view.events] == [0, 1, 12, 9]


def test_later_events_contradict_a_lost_hold(tmp_path: Path) -> None:
    later = Log().evict(77, 1004, at="01-20 10:00:00")
    dagdir = laid(tmp_path, SYSTEM.format(THIRTY_DAYS), later)
    (job,) = dagdir.reader().snapshot_builder().job_rows()
    (execution,) = job.executions
    assert (execution.end, execution.outcome) == (datetime(2026, 1, 20, 10), Outcome.EVICTED)


@pytest.mark.parametrize(("code", "held"), [(34, [1800.0]), (1004, []), (None, [])])
def test_release_after_an_eviction_proves_a_hold(code: int | None, held: list[float]) -> None:
    """Only a job on hold is released, and the 004 has the code of a hold that ended it."""
    log = Log().submit(77, NODE).execute(77, at="11:00:00").evict(77, code, at="12:00:00")
    before = of_one_job(log).job(77, as_of="12:10:00")
    assert (before.state, len(before.holds)) == (State.HELD if held else State.IDLE, len(held))
    found = of_one_job(log.release(77, at="12:30:00"))
    job = found.job(77, as_of="12:40:00")
    assert job.state is State.IDLE
    assert [hold.seconds for hold in job.holds] == held
    assert [hold.code for hold in job.holds] == [code] * len(held)
    (execution,) = job.executions
    assert execution.outcome is Outcome.EVICTED
    assert (execution.held_cause is not None) is bool(held)
    # The 012 may be in another log.
    both = of_one_job(log, Log("other.log").hold(77, 34, at="12:00:00"))
    assert len(both.job(77).holds) == 1


@pytest.mark.parametrize(
    ("released", "states", "outcome"),
    [
        ("14:00:00", [State.IDLE, State.RUNNING, State.IDLE], "evicted"),
        ("11:00:03", [State.IDLE, State.RUNNING], "in-flight"),
    ],
    ids=["the disk was full during the hold", "the schedd logged the 001 first"],
)
def test_released_job_is_not_running(released: str, states: list[State], outcome: str) -> None:
    log = Log().submit(77, NODE).execute(77, at="11:00:00").release(77, at=released)
    job = of_one_job(log).job(77, as_of="15:00:00")
    assert list(job.entered_states) == states
    (execution,) = job.executions
    assert (execution.outcome, execution.uncertain) == (outcome, outcome == "evicted")
    assert execution.end == (moment(released) if execution.uncertain else None)
    again = of_one_job(log.execute(77, at="14:30:00").terminate(77, 0, at="14:50:00")).job(77)
    assert [each.outcome for each in again.executions][1:] == ["good"]


def test_second_hold_ends_the_first() -> None:
    """Its 013 is lost, or a user holds a job that is on hold until its input is spooled."""
    log = Log().submit(77, NODE).hold(77, 13, at="11:00:00").hold(77, 13, at="12:00:00")
    job = of_one_job(log.release(77, at="12:30:00")).job(77)
    assert [hold.seconds for hold in job.holds] == [3600.0, 1800.0]
    assert job.state is State.IDLE
