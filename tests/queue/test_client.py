"""Actions: one call for each job, after a check of its owner; and every answer is reported."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from metlmon.model.states import ALIVE, DagState, State
from metlmon.pool.client import PoolClient
from metlmon.pool.connection import PoolUnreachable
from metlmon.pool.previews import target
from metlmon.pool.types import (
    JOB_ACTS,
    ActionRequest,
    ActionResult,
    PoolAction,
    PoolError,
    ResultCode,
)
from tests.support.queue_rows import Logs, Schedd, dag, dagman, job, row, submit_command


def client(logs: Logs, schedd: Schedd, **more: str) -> PoolClient:
    return PoolClient(logs, schedd, **more)  # type: ignore[arg-type]


def perform(logs: Logs, schedd: Schedd, order: ActionRequest) -> tuple[ActionResult, ...]:
    received: list[ActionResult] = []
    answers = client(logs, schedd).perform(order, received.append)
    assert tuple(received) == answers, "the callback received another result"
    return answers


def order(act: PoolAction, *clusters: int, value: int | None = None) -> ActionRequest:
    return ActionRequest(act, tuple(target(row(n, State.RUNNING)) for n in clusters), value=value)


@pytest.mark.parametrize("reply", list(ResultCode))
def test_answers_of_the_schedd_are_reported_separately(reply: ResultCode) -> None:
    schedd = Schedd(job(1, owner="ben"))
    schedd.answers[1] = reply
    (answer,) = perform(Logs(row(1)), schedd, order(PoolAction.RELEASE, 1))
    assert answer.reply is reply
    if reply is ResultCode.DENIED:
        assert answer.text == "the job belongs to ben, you are anna"


def test_finished_job_is_not_touched() -> None:
    schedd = Schedd()
    (answer,) = perform(Logs(row(1)), schedd, order(PoolAction.REMOVE, 1))
    assert answer.reply is ResultCode.NOT_FOUND
    assert schedd.acts() == []


@pytest.mark.parametrize(
    "stranger", [job(1, directory="/home/ben/ens"), job(1, node="another-node")]
)
def test_job_unlike_the_logs_is_not_touched(stranger: object) -> None:
    schedd = Schedd(stranger)  # type: ignore[arg-type]
    for act in set(JOB_ACTS) - {PoolAction.RETARGET}:
        (answer,) = perform(Logs(row(1)), schedd, order(act, 1, value=3))
        assert answer.reply is ResultCode.NOT_FOUND
        assert answer.text == "the queue's job 1.0 belongs to another directory"
    assert schedd.acts() == []


def test_silent_schedd_is_waited_for_once() -> None:
    schedd = Schedd(job(1), job(2), job(3))
    asked: list[int] = []

    def silent(cluster: int, proc: int) -> None:
        asked.append(cluster)
        raise PoolUnreachable("the schedd gave no answer in 40 s")

    schedd.job = silent  # type: ignore[assignment]
    answers = client(Logs(row(1), row(2), row(3)), schedd).perform(
        order(PoolAction.HOLD, 1, 2, 3), lambda answer: None
    )
    assert asked == [1]
    assert [answer.reply for answer in answers] == [ResultCode.FAILED] * 3
    assert answers[2].text == "not tried: the schedd gave no answer for the job before"


@pytest.mark.parametrize(
    ("change", "reply", "text"),
    [
        ({"down": "no answer"}, ResultCode.FAILED, "no answer"),
        # A job may be replaced meanwhile: its ad is read for each call.
        (
            {"jobs": {(2, 0): job(2, directory="/home/ben")}},
            ResultCode.NOT_FOUND,
            "the queue's job 2.0 belongs to another directory",
        ),
    ],
)
def test_change_of_the_queue_between_two_jobs_counts(
    change: dict[str, object], reply: ResultCode, text: str
) -> None:
    schedd = Schedd(job(1), job(2))

    def change_queue(answer: ActionResult) -> None:
        vars(schedd).update(change)

    answers = client(Logs(row(1), row(2)), schedd).perform(
        order(PoolAction.HOLD, 1, 2), change_queue
    )
    assert [answer.reply for answer in answers] == [ResultCode.DONE, reply]
    assert answers[1].text == text


def test_missing_schedd_is_one_sentence() -> None:
    schedd = Schedd(job(1))
    schedd.down = "the schedd does not answer"
    with pytest.raises(PoolError, match="does not answer"):
        perform(Logs(row(1)), schedd, order(PoolAction.HOLD, 1))


def test_priority_is_verified_in_the_ad() -> None:
    schedd = Schedd(job(1, priority=2), job(2, priority=5), job(3), job(4, owner="ben"))
    schedd.deaf = {3, 4}
    logs = Logs(*(row(n) for n in range(1, 5)))
    answers = perform(logs, schedd, order(PoolAction.PRIORITY, 1, 2, 3, 4, value=5))
    assert answers == (
        ActionResult("1.0", ResultCode.DONE, "its priority was 2"),
        ActionResult("2.0", ResultCode.ALREADY, "its priority is 5"),
        ActionResult("3.0", ResultCode.FAILED, "its priority is still 0"),
        ActionResult("4.0", ResultCode.DENIED, "the job belongs to ben, you are anna"),
    )


@pytest.mark.parametrize("value", [None, 2**31, -(2**40)])
def test_invalid_priority_is_refused(value: int | None) -> None:
    with pytest.raises(PoolError, match="from -2147483647 to 2147483647"):
        perform(Logs(row(1)), Schedd(job(1)), order(PoolAction.PRIORITY, 1, value=value))


# --- a DAG --------------------------------------------------------------------------------


Submitted = Callable[..., tuple[Logs, Schedd]]


@pytest.fixture
def of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submitted:
    """A dagdir on disk with its DAG in a state, and its schedd."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    def made(state: DagState = DagState.RUNNING, **more: object) -> tuple[Logs, Schedd]:
        (tmp_path / "ens.dag").write_text("JOB a a.sub\n")
        logs = Logs(dags=[dag(state, **more)], dagdir=tmp_path)
        schedd = Schedd(*([dagman(directory=tmp_path)] if state in ALIVE else []))
        (tmp_path / "bin").mkdir()
        schedd.submit_command = submit_command(tmp_path / "bin" / "condor_submit_dag")
        return logs, schedd

    return made


def submitted(dagdir: Path) -> list[str]:
    """Directory and arguments of the command; empty if it was not run."""
    output = dagdir / "bin" / "condor_submit_dag.output"
    return output.read_text().splitlines() if output.exists() else []


def test_halting_writes_a_file_and_resuming_deletes_it(of: Submitted, tmp_path: Path) -> None:
    logs, schedd = of()
    halt = tmp_path / "ens.dag.halt"
    (answer,) = perform(logs, schedd, ActionRequest(PoolAction.HALT, dag="ens.dag"))
    assert answer == ActionResult("ens.dag", ResultCode.DONE, "ens.dag.halt was written")
    assert halt.exists()
    (answer,) = perform(logs, schedd, ActionRequest(PoolAction.HALT, dag="ens.dag"))
    assert answer.reply is ResultCode.ALREADY
    (answer,) = perform(logs, schedd, ActionRequest(PoolAction.RESUME, dag="ens.dag"))
    assert answer == ActionResult("ens.dag", ResultCode.DONE, "ens.dag.halt was deleted")
    assert not halt.exists()
    (answer,) = perform(logs, schedd, ActionRequest(PoolAction.RESUME, dag="ens.dag"))
    assert answer.reply is ResultCode.ALREADY


def test_halt_file_is_never_written_through_a_link(of: Submitted, tmp_path: Path) -> None:
    logs, schedd = of()
    (tmp_path / "ens.dag.halt").symlink_to(tmp_path / "precious")
    (answer,) = perform(logs, schedd, ActionRequest(PoolAction.HALT, dag="ens.dag"))
    assert answer.reply is ResultCode.ALREADY
    assert not (tmp_path / "precious").exists()


@pytest.mark.parametrize("act", [PoolAction.HALT, PoolAction.RESUME, PoolAction.REMOVE_DAG])
def test_dag_of_a_copy_is_not_touched(act: PoolAction, of: Submitted, tmp_path: Path) -> None:
    logs, schedd = of()
    schedd.jobs = {(9, 0): dagman(directory="/home/anna/original")}
    (answer,) = perform(logs, schedd, ActionRequest(act, dag="ens.dag"))
    assert answer.reply is ResultCode.NOT_FOUND
    assert answer.text == "the queue's job 9.0 belongs to another directory"
    assert schedd.acts() == []
    assert not (tmp_path / "ens.dag.halt").exists()


@pytest.mark.parametrize(
    ("act", "state", "what"),
    [
        (PoolAction.REMOVE_DAG, DagState.RUNNING, "remove"),
        (PoolAction.RELEASE_DAG, DagState.HELD, "release"),
    ],
)
def test_action_on_a_dag_acts_on_its_dagman(
    act: PoolAction, state: DagState, what: str, of: Submitted
) -> None:
    logs, schedd = of(state)
    (answer,) = perform(logs, schedd, ActionRequest(act, dag="ens.dag"))
    assert answer == ActionResult("ens.dag", ResultCode.DONE, "DAGMan was job 9.0")
    assert schedd.acts() == [(what, 9, 0)]


def test_ended_dagman_cannot_be_removed(of: Submitted) -> None:
    logs, schedd = of()
    schedd.jobs.clear()
    (answer,) = perform(logs, schedd, ActionRequest(PoolAction.REMOVE_DAG, dag="ens.dag"))
    assert answer.reply is ResultCode.NOT_FOUND


def test_unknown_dag_is_refused(of: Submitted) -> None:
    with pytest.raises(PoolError, match="there is no DAG"):
        perform(*of(), ActionRequest(PoolAction.HALT, dag="../other.dag"))


def test_resubmission_waits_for_the_former_dagman(of: Submitted, tmp_path: Path) -> None:
    logs, schedd = of(DagState.REMOVED, rescue=1)
    (tmp_path / "ens.dag.rescue001").write_text("")
    (tmp_path / "ens.dag.lock").write_text("")
    (answer,) = perform(logs, schedd, ActionRequest(PoolAction.RESUBMIT, dag="ens.dag"))
    assert answer.reply is ResultCode.BAD_STATE
    assert answer.text.startswith("ens.dag.lock is there")
    (tmp_path / "ens.dag.lock").unlink()
    schedd.jobs[8, 0] = dagman(8, directory=tmp_path)
    (answer,) = perform(logs, schedd, ActionRequest(PoolAction.RESUBMIT, dag="ens.dag"))
    assert answer.text == "its DAGMan is in the queue, job 8.0"
    assert submitted(tmp_path) == []


def test_resubmission_needs_a_rescue_file(of: Submitted, tmp_path: Path) -> None:
    logs, schedd = of(DagState.FAILED)
    (answer,) = perform(logs, schedd, ActionRequest(PoolAction.RESUBMIT, dag="ens.dag"))
    assert answer.reply is ResultCode.BAD_STATE
    assert submitted(tmp_path) == []


SUB = (
    'My.JobBatchName = "sweep 4"\nexecutable = /usr/bin/condor_dagman\n'
    'arguments = "-p 0 -f -l . -Lockfile ens.dag.lock -Dag ens.dag -MaxIdle 7 -DontAlwaysRunPost '
    "-CsdVersion $CondorVersion:' '25'$ -AutoRescue 1 -DoRescueFrom 0\"\n"
)


def test_resubmission_uses_newest_rescue_and_former_options(of: Submitted, tmp_path: Path) -> None:
    logs, schedd = of(DagState.REMOVED, rescue=2)
    for name in ("ens.dag.rescue002", "ens.dag.rescue010", "ens.dag.rescue013.old"):
        (tmp_path / name).write_text("")
    (tmp_path / "b.dag.rescue099").write_text("")
    (tmp_path / "ens.dag.condor.sub").write_text(SUB)
    (answer,) = perform(logs, schedd, ActionRequest(PoolAction.RESUBMIT, dag="ens.dag"))
    assert answer.reply is ResultCode.DONE
    assert answer.text == "DAGMan is job 77.0, continues from ens.dag.rescue010"
    options = ["-maxidle", "7", "-DontAlwaysRunPost", "-batch-name", "sweep 4"]
    assert submitted(tmp_path) == [str(tmp_path.resolve()), *options, "ens.dag"]


def test_resubmission_of_an_early_failure_starts_over(of: Submitted, tmp_path: Path) -> None:
    logs, schedd = of(DagState.FAILED, nodes_done=0)
    perform(logs, schedd, ActionRequest(PoolAction.RESUBMIT, dag="ens.dag"))
    assert submitted(tmp_path) == [str(tmp_path), "-update_submit", "ens.dag"]


def test_first_submission_is_refused_over_an_earlier_one(of: Submitted, tmp_path: Path) -> None:
    logs, schedd = of()
    pool = client(logs, schedd)
    assert pool.submit_dag(tmp_path / "ens.dag") == 77
    (tmp_path / "bin" / "condor_submit_dag.output").unlink()
    for leftover in ("ens.dag.dagman.out", "ens.dag.rescue001", "ens.dag.lock"):
        (tmp_path / leftover).write_text("")
        with pytest.raises(PoolError, match="was submitted before"):
            pool.submit_dag(tmp_path / "ens.dag")
        (tmp_path / leftover).unlink()
    assert submitted(tmp_path) == []


def test_root_is_refused(of: Submitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    logs, schedd = of()
    with pytest.raises(PoolError, match="root may not submit"):
        client(logs, schedd).submit_dag(tmp_path / "ens.dag")
    assert submitted(tmp_path) == []
