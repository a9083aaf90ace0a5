"""DAGMan and the queue agree with what metlmon says, whatever is done to a DAG's jobs."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import recount
import truth
from pools import Ad, Pool, until

from tests.pool import gated_dag
from tests.support.event_logs import Log

ENDED: Ad = {"JobStatus": 4, "TerminationPending": True, "ExitBySignal": False, "ExitCode": 0}
"""What HTCondor 23.9.6 writes to the history of a job that ended with 0."""
REMOVED_AT_END: Ad = {**ENDED, "JobStatus": 3, "LastJobStatus": 4}
"""The same of a DAG's last job that was still in the queue when DAGMan exited: it was removed."""
REMOVED_WITHOUT_SHADOW: Ad = {
    **{"JobStatus": 3, "LastJobStatus": 4, "ExitBySignal": False, "ExitCode": 0},
    "JobUniverse": 12,
}
"""A PROVISIONER of the local universe that ended with 0, and was removed as DAGMan exited."""
REMOVED_IN_TRANSFER: Ad = {
    **{"JobStatus": 3, "LastJobStatus": 2, "ExitBySignal": False, "ExitCode": 0},
    "ToE": {"How": "OF_ITS_OWN_ACCORD", "ExitBySignal": False, "ExitCode": 0},
}
"""A job that ended with 0, and was removed while its output travelled."""


@pytest.fixture(scope="module")
def ended(pool: Pool) -> gated_dag.Gated:
    """Two runs of two epochs; one was vacated, one held and released, one failed and retried,
    one removed."""
    # Several tries may fail before this test sees the first one fail, and opens all gates.
    dag = gated_dag.write(pool, "interrupted", runs=3, epochs=2, retries=20, gpus=1)
    dagman = dag.submit()
    of_dag = f"DAGManJobId == {dagman}"
    first, second, third = (str(ad["ClusterId"]) for ad in pool.running(3, of_dag))
    truth.settles_at(pool, dag.directory, ["running"] * 3)
    pool.run(["condor_hold", first])
    pool.run(["condor_vacate_job", second])
    pool.run(["condor_rm", third])
    # The vacated one runs anew, and the removed one is tried again.
    truth.settles_at(pool, dag.directory, ["held", "running", "running"])
    pool.run(["condor_release", first])
    truth.settles_at(pool, dag.directory, ["running"] * 3)
    dag.open("run0-train_epoch0", code=3)
    until(lambda: pool.history(of_dag, f"ClusterId == {first}"), "it fails")
    dag.open_all()
    until((dag.directory / "ens.dag.metrics").exists, "DAGMan ends")
    return dag


def test_metlmons_last_word_is_htcondors(pool: Pool, ended: gated_dag.Gated) -> None:
    expected = truth.at_the_end(pool, ended.directory)
    assert {job.state for job in expected.jobs} == {"completed", "failed", "removed"}
    assert max(len(job.executions) for job in expected.jobs) == 2
    status = truth.status_of(pool, ended.directory, "--exit-on", "done", "--timeout", "20")
    assert truth.differences(expected, status, truth.jobs_of(pool, ended.directory)) == []


def test_a_difference_would_be_found(pool: Pool, ended: gated_dag.Gated) -> None:
    expected = truth.at_the_end(pool, ended.directory)
    status = truth.status_of(pool, ended.directory)
    jobs = truth.jobs_of(pool, ended.directory)

    def after(change: str, value: object) -> list[str]:
        other = copy.deepcopy(jobs)
        target = other[0]["executions"][0] if change in other[0]["executions"][0] else other[0]
        target[change] = value
        return truth.differences(expected, status, other)

    assert after("state", "idle")
    assert after("gpus", 2)
    assert after("site", "Elsewhere")
    assert after("return_value", 77)
    assert after("end", "2026-01-01T00:00:00")
    assert truth.differences(expected, status, jobs[1:])
    worse = copy.deepcopy(status)
    worse["hours"]["goodput"] += 1
    worse["dags"][0]["nodes_done"] -= 1
    assert len(truth.differences(expected, worse, jobs)) == 2


# --- a job that is removed after its end ----------------------------------------------------


@pytest.mark.parametrize(
    ("ad", "state"),
    [
        (ENDED, "completed"),
        (REMOVED_AT_END, "completed"),
        (REMOVED_WITHOUT_SHADOW, "completed"),
        ({**REMOVED_AT_END, "LastJobStatus": 2}, "completed"),
        ({**REMOVED_AT_END, "ExitCode": 3}, "failed"),
        (REMOVED_IN_TRANSFER, "removed"),
        ({"JobStatus": 3, "LastJobStatus": 1}, "removed"),
    ],
)
def test_only_a_removal_after_the_end_leaves_the_end_as_it_was(ad: Ad, state: str) -> None:
    assert truth.state_at_end(ad) == state


@pytest.mark.parametrize(("code", "state"), [(0, "completed"), (3, "failed")])
def test_the_count_of_a_log_keeps_an_end_before_a_removal(
    tmp_path: Path, code: int, state: str
) -> None:
    log = Log().submit(77, "run0-train_epoch0").execute(77).terminate(77, code).remove(77)
    log.submit(78, "run0-train_epoch1").execute(78).remove(78)
    path = tmp_path / "metl.log"
    path.write_bytes(log.data)
    counted = recount.recount(path)
    assert [job.state for job in counted.values()] == [state, "removed"]
    outcomes = [ran.outcome for job in counted.values() for ran in job.executions]
    assert outcomes == ["good" if code == 0 else "failed", "removed"]
