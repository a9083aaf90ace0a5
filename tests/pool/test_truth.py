"""HTCondor's account kept with a recording of the bundled trainer, and how ``truth`` and
``recount`` see a job that is removed after its end: without a pool."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import record
import recount
import truth
from pools import Ad

from tests.support.commands import Captured, json_output
from tests.support.event_logs import Log

RECORDING = Path(__file__).resolve().parents[2] / "fixtures" / "trainer"


def output_of(capsys: Captured, command: str) -> dict[str, Any]:
    return json_output(command, capsys, RECORDING)


def test_final_states_agree_with_htcondor(capsys: Captured) -> None:
    expected = truth.read(RECORDING / "truth.json")
    jobs = [job for job in output_of(capsys, "jobs")["jobs"] if job["dag"] is not None]
    assert truth.differences(expected, output_of(capsys, "status"), jobs) == []


def test_differences_are_found(capsys: Captured) -> None:
    expected = truth.read(RECORDING / "truth.json")
    status = output_of(capsys, "status")
    jobs = [job for job in output_of(capsys, "jobs")["jobs"] if job["dag"] is not None]

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


def test_totals_of_dagmans_files_are_as_recorded() -> None:
    assert truth.totals(RECORDING) == truth.read(RECORDING / "truth.json").totals


def test_recording_has_every_kind_of_trouble(capsys: Captured) -> None:
    expected = truth.read(RECORDING / "truth.json")
    assert {job.state for job in expected.jobs} == {"completed", "failed", "removed"}
    outcomes = {
        execution["outcome"]
        for job in output_of(capsys, "jobs")["jobs"]
        for execution in job["executions"]
    }
    assert {"good", "failed", "evicted"} <= outcomes
    assert any(job.node in record.EVICTED and len(job.executions) == 2 for job in expected.jobs)
    assert {each.site for job in expected.jobs for each in job.executions} == {
        "Expanse-GPU",
        "Delta-GPU",
        "CHTC-Spark-CE1",
        "PDX-Coeus-CE1",
    }
    (dag,) = output_of(capsys, "status")["dags"]
    assert (dag["state"], dag["rescue"], dag["dagmans"]) == ("done", 1, 2)


def test_recording_has_no_path_of_its_machine() -> None:
    for path in RECORDING.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            for forbidden in (b"/var/lib/metlmon", b"/root/", b"/tmp/", b"tests-"):
                assert forbidden not in data, f"{path.name} has {forbidden!r}"


# --- a job that is removed after its end ----------------------------------------------------

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
def test_removal_after_the_end_keeps_the_final_state(ad: Ad, state: str) -> None:
    assert truth.state_at_end(ad) == state


@pytest.mark.parametrize(("code", "state"), [(0, "completed"), (3, "failed")])
def test_recount_keeps_the_end_before_a_removal(tmp_path: Path, code: int, state: str) -> None:
    log = Log().submit(77, "run0-train_epoch0").execute(77).terminate(77, code).remove(77)
    log.submit(78, "run0-train_epoch1").execute(78).remove(78)
    path = tmp_path / "metl.log"
    path.write_bytes(log.data)
    counted = recount.recount(path)
    assert [job.state for job in counted.values()] == [state, "removed"]
    outcomes = [ran.outcome for job in counted.values() for ran in job.executions]
    assert outcomes == ["good" if code == 0 else "failed", "removed"]
