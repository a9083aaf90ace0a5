"""Raising the request of held jobs and releasing them: which jobs, the new value, and undo."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from metlmon.model.states import State
from metlmon.pool.client import PoolClient
from metlmon.pool.previews import action_previews, with_value
from metlmon.pool.types import (
    ActionPreview,
    ActionResult,
    Job,
    PoolAction,
    QueueJob,
    QueueSnapshot,
    ResultCode,
)
from metlmon.snapshot.records import Hold
from tests.support.queue_rows import NINE, Logs, Schedd, job, row

RAISE, RAISE_DISK = PoolAction.RAISE_MEMORY, PoolAction.RAISE_DISK
CGROUP = "Error from slot1_1@host: Job has gone over cgroup memory limit of 8192 megabytes."
USAGE = "memory usage exceeded request_memory"
POLICY = "The job attribute PeriodicHold expression '{}' evaluated to TRUE"


def held(
    cluster: int, code: int = 34, subcode: int = 102, reason: str = CGROUP, **more: object
) -> tuple[Job, QueueJob]:
    """A held job as in the log and in the queue."""
    hold = Hold(NINE, None, 0.0, code, subcode, reason, None, None, reason)
    fields = {"request_memory": 8192, "request_disk": 1 << 20, **more}
    queued = job(cluster, 5, hold_code=code, hold_reason=reason, **fields)  # type: ignore[arg-type]
    return replace(row(cluster, State.HELD, since=NINE + timedelta(hours=1)), holds=(hold,)), queued


def preview_of(
    act: PoolAction, *jobs: tuple[Job, QueueJob], value: str = "1.5x"
) -> tuple[ActionPreview, Schedd]:
    """The offer for these jobs with this value, and their schedd."""
    queued = tuple(each for _, each in jobs)
    snapshot = QueueSnapshot("ap", "25", "anna@x", queried_at=100.0, jobs=queued)
    made = action_previews(snapshot, [each for each, _ in jobs])
    preview = next(each for each in made if each.act is act)
    return with_value(preview, value, snapshot), Schedd(*queued)


def perform(
    preview: ActionPreview, schedd: Schedd, *jobs: tuple[Job, QueueJob]
) -> tuple[ActionResult, ...]:
    assert preview.request is not None, preview.refused
    client = PoolClient(Logs(*(each for each, _ in jobs)), schedd)  # type: ignore[arg-type]
    return client.perform(preview.request, lambda result: None)


@pytest.mark.parametrize(
    ("act", "value", "after", "line"),
    [
        (RAISE, "1.5x", 12288, "request_memory = 12GB"),
        (RAISE, "1.01x", 8274, "request_memory = 8274MB"),
        (RAISE, "20GB", 20480, "request_memory = 20GB"),
        (RAISE, "9000m", 9000, "request_memory = 9000MB"),
        (RAISE_DISK, "2.5x", 2621440, "request_disk = 2560MB"),
        (RAISE_DISK, "1TB", 1 << 30, "request_disk = 1TB"),
    ],
)
def test_each_job_gets_its_request_and_is_released(
    act: PoolAction, value: str, after: int, line: str
) -> None:
    one = held(1) if act is RAISE else held(1, 34, 104, "disk usage exceeded request_disk")
    preview, schedd = preview_of(act, one, value=value)
    field = line.partition(" ")[0]
    assert preview.line == line
    former = "8GB" if act is RAISE else "1GB"
    assert preview.effect.startswith(f"from {former} to {line.partition('= ')[2]}, then")
    assert preview.undo == f"hold, then {act} with {former}"
    (result,) = perform(preview, schedd, one)
    assert result == ActionResult("1.0", ResultCode.DONE, f"its {field} was {former}")
    assert schedd.acts() == [("edit", 1, 0, field, after), ("release", 1, 0)]


def test_jobs_with_other_requests_are_listed_separately() -> None:
    preview, _ = preview_of(RAISE, held(1), held(2), held(3, reason=USAGE, request_memory=4096))
    assert "from 8GB to 12GB (2 jobs), 4GB to 6GB (1 job), then" in preview.effect
    assert preview.undo == "hold, then raise-memory with 8GB (2 jobs), 4GB (1 job)"
    assert preview.line == "request_memory = 12GB"


def test_factor_applies_to_the_limit_reached() -> None:
    """A slot is rounded up to 128 MB: 1.5 times 64 MB would end there again."""
    reason = "Job has gone over cgroup memory limit of 128 megabytes. Peak usage: 127 megabytes."
    one = held(1, reason=reason, request_memory=64)
    for value, line in (("1.5x", "192MB"), ("100MB", "100MB")):
        assert preview_of(RAISE, one, value=value)[0].line == f"request_memory = {line}"


@pytest.mark.parametrize(
    ("code", "subcode", "reason", "possible"),
    [
        (34, 102, "", {RAISE}),
        (34, 104, "", {RAISE_DISK}),
        (34, 0, CGROUP, {RAISE}),
        (34, 0, "disk usage exceeded request_disk", {RAISE_DISK}),
        (3, 0, POLICY.format("MemoryUsage > RequestMemory"), {RAISE}),
        (26, 0, "SYSTEM_PERIODIC_HOLD: DiskUsage > RequestDisk", {RAISE_DISK}),
        (3, 0, POLICY.format("MemoryUsage > 1 || DiskUsage > 1"), set()),
        (13, 2, "Transfer input files failure: /data/memory.npz: no such file", set()),
        (12, 28, "No space left on disk", set()),
        (1, 0, "via condor_hold (by user anna)", {RAISE, RAISE_DISK}),
    ],
)
def test_hold_code_selects_the_request(
    code: int, subcode: int, reason: str, possible: set[PoolAction]
) -> None:
    made = {act: preview_of(act, held(1, code, subcode, reason))[0] for act in (RAISE, RAISE_DISK)}
    assert {act for act, preview in made.items() if preview.request is not None} == possible
    assert all(made[act].refused for act in made.keys() - possible)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        ((row(1, State.RUNNING), job(1, 2, request_memory=8192)), "only held jobs"),
        (held(1, request_memory=None), "an expression"),
        (held(1, owner="ben"), "belongs to ben"),
        (held(1, request_memory=2**30), "too large"),
    ],
)
def test_invalid_values_are_refused(one: tuple[Job, QueueJob], why: str) -> None:
    preview, _ = preview_of(RAISE, one, value="2x")
    assert preview.request is None
    assert why in (preview.refused or "")


@pytest.mark.parametrize(
    ("now", "code"),
    [
        ({"status": 1}, ResultCode.BAD_STATE),
        ({"request_memory": None}, ResultCode.BAD_STATE),
        ({"directory": "/home/ben"}, ResultCode.NOT_FOUND),
    ],
)
def test_job_is_checked_again_before_the_edit(now: dict[str, object], code: ResultCode) -> None:
    one = held(1)
    preview, schedd = preview_of(RAISE, one)
    schedd.jobs[1, 0] = replace(schedd.jobs[1, 0], **now)  # type: ignore[arg-type]
    assert [each.reply for each in perform(preview, schedd, one)] == [code]
    assert schedd.acts() == []


def test_failed_edit_or_release_is_no_success() -> None:
    one = held(1)
    preview, schedd = preview_of(RAISE, one)
    schedd.deaf = {1}
    (result,) = perform(preview, schedd, one)
    assert result.reply is ResultCode.FAILED
    assert [what[0] for what in schedd.acts()] == ["edit"], "not released with the old request"
    schedd.deaf, schedd.answers[1] = set(), "failed"
    (result,) = perform(preview, schedd, one)
    assert (result.reply, "not released" in result.text) == (ResultCode.FAILED, True)
