"""Each action on real jobs, its refusals, and the resulting states in the schedd."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trouble
import truth
from pools import Ad, Pool, until
from terminals import Terminal

from tests.pool import gated_dag

REFUSED = 6
"""Exit status of ``metlmon act`` when not all was done."""

ANSWER_SECONDS = 60
"""A schedd that says nothing must not keep anybody longer."""


@dataclass(frozen=True, slots=True)
class ActingDag:
    """A DAG whose jobs run until they are ended, and ``metlmon act`` in its directory."""

    pool: Pool
    dag: gated_dag.GatedDag
    dagman: int

    @property
    def of_dag(self) -> str:
        return f"DAGManJobId == {self.dagman}"

    def act(
        self,
        what: str,
        *targets: str,
        expect: int = 0,
        user: str | None = None,
        directory: Path | None = None,
        more: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Return the answer as JSON; the exit status must be ``expect``."""
        argv = ["metlmon", "act", what, str(directory or self.dag.directory), *targets]
        done = self.pool.run(
            [*argv, "--yes", "--json", *more],
            self.dag.directory if user is None else self.pool.script.HOMES / user,
            user,
            expect,
            ANSWER_SECONDS,
        )
        answered: dict[str, Any] = json.loads(done.stdout)
        return answered

    def job(self, run: int) -> Ad:
        """The ad of the newest job of this run, in the queue."""
        node = self.dag.runs[run][0]
        ads = self.pool.queue(self.of_dag, f'DAGNodeName == "{node}"')
        assert ads, f"no job of {node} is in the queue"
        return max(ads, key=lambda ad: ad["ClusterId"])

    def becomes(self, run: int, status: int) -> Ad:
        """Wait until the job has this JobStatus; return its ad."""
        until(lambda: self.job(run)["JobStatus"] == status, lambda: f"not so: {self.job(run)}")
        return self.job(run)


def replies(answered: dict[str, Any]) -> list[tuple[str, str]]:
    return [(answer["subject"], answer["reply"]) for answer in answered["answers"]]


def untouched(before: Ad, after: Ad) -> bool:
    """Whether the job still runs, and was not restarted."""
    keys = ("ClusterId", "JobStatus", "EnteredCurrentStatus", "JobCurrentStartDate")
    same = all(before[key] == after[key] for key in keys)
    return same and after["JobStatus"] == truth.RUNNING


def name(ad: Ad) -> str:
    return f"{ad['ClusterId']}.{ad['ProcId']}"


@pytest.fixture(scope="module")
def acting(second_pool: Pool) -> ActingDag:
    """Six submitted runs: five run, one has ended."""
    pool = second_pool
    dag = gated_dag.write(pool, "acting", runs=6)
    dag.open("run5-train_epoch0")
    dagman = dag.submit()
    made = ActingDag(pool, dag, dagman)
    until(lambda: pool.history(made.of_dag), "one ends")
    pool.running(5, made.of_dag)
    return made


def test_hold_and_release(acting: ActingDag) -> None:
    job = acting.job(0)
    assert replies(acting.act("hold", "run0")) == [(name(job), "done")]
    held = acting.becomes(0, truth.HELD)
    assert held["HoldReasonCode"] == 1, "held by its user"
    assert "held" in truth.quiet_moment(acting.pool, acting.dag.directory)
    again = acting.act("hold", "run0")
    assert again["answers"] == [], "what is held already is not held again"
    assert "already" in again["refused"]
    assert replies(acting.act("release", "run0")) == [(name(job), "done")]
    assert acting.becomes(0, truth.RUNNING)["NumJobStarts"] >= 1


def test_vacated_job_restarts(acting: ActingDag) -> None:
    job = acting.job(1)
    assert replies(acting.act("vacate", name(job))) == [(name(job), "done")]
    until(lambda: acting.job(1).get("NumJobStarts", 0) == 2, "it starts again")
    acting.becomes(1, truth.RUNNING)
    truth.quiet_moment(acting.pool, acting.dag.directory)
    (ours,) = (
        each
        for each in truth.jobs_of(acting.pool, acting.dag.directory)
        if each["cluster"] == job["ClusterId"]
    )
    assert [each["outcome"] for each in ours["executions"]] == ["evicted", "in-flight"]


def test_priority_is_set(acting: ActingDag) -> None:
    job = acting.job(2)
    answered = acting.act("priority", name(job), more=("--value", "7"))
    assert replies(answered) == [(name(job), "done")]
    assert acting.job(2)["JobPrio"] == 7


def test_memory_request_is_raised_and_restored(second_pool: Pool) -> None:
    """A policy holds jobs that request less memory than 96 MB, like jobs that exceed theirs."""
    dag = gated_dag.write(second_pool, "raising", more=["on_exit_hold = RequestMemory < 96"])
    dag.open("run0-train_epoch0")
    acting = ActingDag(second_pool, dag, dag.submit())
    until(lambda: second_pool.queue(acting.of_dag), "its job is in the queue")
    job = name(acting.becomes(0, truth.HELD))
    (dag.directory / "gates" / "run0-train_epoch0").unlink()
    truth.quiet_moment(second_pool, dag.directory)

    raised = acting.act("raise-memory", "run0")
    assert replies(raised) == [(job, "done")]
    assert raised["line"] == "request_memory = 96MB"
    assert acting.becomes(0, truth.RUNNING)["RequestMemory"] == 96
    truth.quiet_moment(second_pool, dag.directory)
    refused = acting.act("raise-memory", "run0", expect=REFUSED)
    assert "only held jobs" in refused["refused"]

    former = raised["undo"].rpartition(" ")[2]
    acting.act("hold", job)
    acting.becomes(0, truth.HELD)
    truth.quiet_moment(second_pool, dag.directory)
    undone = acting.act("raise-memory", job, more=("--value", former))
    assert replies(undone) == [(job, "done")]
    assert acting.becomes(0, truth.RUNNING)["RequestMemory"] == 64
    acting.act("remove-dag")


def test_each_of_several_jobs_gets_an_answer(acting: ActingDag) -> None:
    jobs = [acting.job(0), acting.job(2)]
    answered = acting.act("hold", *map(name, jobs))
    assert replies(answered) == [(name(job), "done") for job in jobs]
    for run in (0, 2):
        acting.becomes(run, truth.HELD)
    assert replies(acting.act("release", *map(name, jobs))) == [(name(j), "done") for j in jobs]
    for run in (0, 2):
        acting.becomes(run, truth.RUNNING)


def test_finished_job_is_refused(acting: ActingDag) -> None:
    (done,) = acting.pool.history(acting.of_dag, 'DAGNodeName == "run5-train_epoch0"')
    for what in ("hold", "release", "remove", "vacate"):
        answered = acting.act(what, name(done), expect=REFUSED)
        assert answered["answers"] == []
        assert "completed" in json.dumps([answered["refused"], answered["left_out"]])


def test_job_of_another_user_is_refused(acting: ActingDag, second_colleague: str) -> None:
    before = acting.job(0)
    for what in ("hold", "remove", "vacate"):
        answered = acting.act(what, name(before), expect=REFUSED, user=second_colleague)
        output = json.dumps(answered)
        assert acting.pool.users[0] in output, "it says whose job it is"
        assert not any(reply == "done" for _, reply in replies(answered))
    assert untouched(before, acting.job(0))


def test_unresponsive_schedd_is_reported(acting: ActingDag) -> None:
    before = acting.job(0)
    with acting.pool.schedd_paused():
        answered = acting.act("hold", name(before), expect=REFUSED)
    assert not any(reply == "done" for _, reply in replies(answered))
    assert answered["refused"] or answered["answers"][0]["text"]
    # The client gave the request up before the schedd resumed; else the job would be held.
    assert untouched(before, acting.job(0))


def test_copied_logs_are_refused(acting: ActingDag) -> None:
    before = acting.job(0)
    copy = acting.pool.base / "copied"
    shutil.copytree(acting.dag.directory, copy)
    answered = acting.act("hold", name(before), expect=REFUSED, directory=copy)
    assert answered["answers"] == []
    assert answered["refused"]
    assert acting.job(0)["JobStatus"] == truth.RUNNING


def test_job_absent_from_the_logs_is_rejected(acting: ActingDag) -> None:
    argv = ["metlmon", "act", "hold", str(acting.dag.directory), "1.0", "--yes"]
    done = acting.pool.run(argv, expect=2)
    assert "1.0" in done.stderr


def test_nothing_is_done_without_confirmation(acting: ActingDag) -> None:
    argv = ["metlmon", "act", "hold", str(acting.dag.directory), "all"]
    acting.pool.run(argv, expect=2)
    assert acting.job(0)["JobStatus"] == truth.RUNNING


def test_read_only_setting_refuses_actions(acting: ActingDag) -> None:
    settings = acting.pool.place(acting.dag.directory / "metlmon.toml", "read_only = true\n")
    try:
        for what in ("hold", "remove-dag"):
            targets = ["all"] if what == "hold" else []
            argv = ["metlmon", "act", what, str(acting.dag.directory), *targets, "--yes"]
            done = acting.pool.run(argv, expect=2)
            assert "read_only" in done.stderr
    finally:
        settings.unlink()
    assert acting.job(0)["JobStatus"] == truth.RUNNING


def find_in_palette(screen: Terminal, word: str) -> None:
    screen.press(":")
    screen.wait_for_match("ACTION")
    screen.press(word)
    screen.wait_for_match(rf"\n +{word}\n")
    screen.settle()


def test_screen_offers_actions(acting: ActingDag) -> None:
    with acting.pool.terminal(trouble.WATCH, acting.dag.directory) as screen:
        screen.wait_for_match("run0 .*running")
        screen.wait_for_match("a act")

        # The key works only after the schedd's first answer.
        until(lambda: trouble.asked(screen, "H"), lambda: f"a question:\n{screen.text}")
        while "PROGRESS" not in screen.text:
            # The menu is between the question and the overview.
            screen.press("escape")
            screen.settle()
        find_in_palette(screen, "hold")
        screen.wait_for_match("Hold jobs")
    assert acting.job(0)["JobStatus"] == truth.RUNNING, "a question is not an answer"


def test_read_only_screen_offers_no_action(acting: ActingDag) -> None:
    with acting.pool.terminal([*trouble.WATCH, "--read-only"], acting.dag.directory) as screen:
        screen.wait_for_match("run0 .*running")
        screen.wait_for_match("q quit")
        assert "a act" not in screen.text
        find_in_palette(screen, "hold")
        assert "Hold jobs" not in screen.text
        assert "✗ hold" not in screen.text
        screen.press("escape")
        screen.wait_for_match("PROGRESS")
        screen.press("a", "H", "a")
        screen.settle()
        assert "PROGRESS" in screen.text, "no question, no menu"
    assert acting.job(0)["JobStatus"] == truth.RUNNING


def test_colleague_sees_why_acting_is_refused(acting: ActingDag, second_colleague: str) -> None:
    argv = ["metlmon", "watch", str(acting.dag.directory)]
    home = acting.pool.script.HOMES / second_colleague
    with acting.pool.terminal(argv, home, user=second_colleague) as screen:
        screen.wait_for_match("run0 .*running")
        screen.press("a")
        screen.wait_for_match("Act on")
        screen.wait_for_match(rf"{acting.pool.users[0]}")
        screen.press("H")
        screen.settle()
        assert "y does it" not in screen.text
    assert acting.job(0)["JobStatus"] == truth.RUNNING


def test_halt_and_resume(acting: ActingDag) -> None:
    halt = acting.dag.directory / "ens.dag.halt"
    assert replies(acting.act("halt")) == [("ens.dag", "done")]
    assert halt.exists()
    assert replies(acting.act("resume")) == [("ens.dag", "done")]
    assert not halt.exists()


def test_job_is_removed(acting: ActingDag) -> None:
    job = acting.job(3)
    assert replies(acting.act("remove", "run3")) == [(name(job), "done")]
    (gone,) = until(
        lambda: acting.pool.history(f"ClusterId == {job['ClusterId']}"), "it leaves the queue"
    )
    assert gone["JobStatus"] == truth.REMOVED
    truth.quiet_moment(acting.pool, acting.dag.directory)
    (ours,) = (
        each
        for each in truth.jobs_of(acting.pool, acting.dag.directory)
        if each["cluster"] == job["ClusterId"]
    )
    assert ours["state"] == "removed"


def test_removed_dag_resumes_from_its_rescue_file(acting: ActingDag) -> None:
    """Runs last, since it ends the jobs of the other tests."""
    pool, directory = acting.pool, acting.dag.directory
    answered = acting.act("remove-dag")
    assert [reply for _, reply in replies(answered)] == ["done"]
    until(lambda: not pool.queue(acting.of_dag), "its jobs are removed")
    until(lambda: not pool.queue(f"ClusterId == {acting.dagman}"), "DAGMan ends")
    rescue = directory / "ens.dag.rescue001"
    assert rescue.exists()
    status = truth.status_of(pool, directory)
    assert [dag["state"] for dag in status["dags"]] == ["removed"]
    acting.dag.open_all()
    assert [reply for _, reply in replies(acting.act("resubmit"))] == ["done"]
    until(lambda: truth.status_of(pool, directory)["dags"][0]["state"] != "removed", "it goes on")
    status = truth.status_of(pool, directory, "--exit-on", "done", "--timeout", "60")
    assert [dag["state"] for dag in status["dags"]] == ["done"]
    until(lambda: len(truth.dagmans(pool, directory)) == 2, "a second DAGMan is known")
    expected = truth.at_the_end(pool, directory)
    assert truth.differences(expected, status, truth.jobs_of(pool, directory)) == []
