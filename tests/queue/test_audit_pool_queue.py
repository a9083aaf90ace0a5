"""What a real pool's queue did to jobs under fire, and what may be asked of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from metlmon.model.states import State
from metlmon.pool.job_actions import action_previews
from metlmon.pool.poller import QueuePoller
from metlmon.pool.types import ActionPreview, PoolAction, QueueSnapshot
from metlmon.snapshot.types import LogRow
from tests.support.queue_rows import Logs, Schedd, dag, dagman, job, row

HELD = 5
SUSPENDED = 7


def offer(act: PoolAction, state: State, status: int, owner: str = "anna") -> ActionPreview:
    """What is offered for job 1: ``state`` by its log, ``status`` in the queue."""
    word = QueueSnapshot(
        user="anna@example.org", queried_at=100.0, jobs=(job(1, status, owner=owner),)
    )
    return next(o for o in action_previews(word, [row(1, state)], []) if o.act is act)


# Held in the second in which it ended (seen on 23.9.6): the log has 005, then 012; DAGMan counts
# the node as done; the queue keeps the job, held, until somebody lets go of it or the DAG ends.
@pytest.mark.parametrize("act", [PoolAction.RELEASE, PoolAction.REMOVE])
@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED])
def test_a_job_that_was_held_as_it_ended_can_be_let_go(act: PoolAction, state: State) -> None:
    made = offer(act, state, HELD)
    assert made.request is not None, made.refused
    assert [target.id for target in made.request.targets] == ["1.0"]


def test_it_is_held_already_and_at_no_machine() -> None:
    assert offer(PoolAction.HOLD, State.COMPLETED, HELD).refused == "the job is held already"
    assert (
        offer(PoolAction.VACATE, State.COMPLETED, HELD).refused == "the job is held: at no machine"
    )


def test_an_ended_job_that_only_the_last_word_still_has_is_not_touched() -> None:
    made = offer(PoolAction.REMOVE, State.COMPLETED, 2)
    assert made.refused == "the job is completed: no longer in the queue"


def test_anothers_job_is_refused_also_then() -> None:
    made = offer(PoolAction.RELEASE, State.COMPLETED, HELD, owner="ben")
    assert made.refused == "this job belongs to ben, you are anna"


# A real schedd answers "not possible in this state" to what is suspended in its own eyes.
def test_a_job_that_the_queue_has_suspended_is_not_vacated() -> None:
    made = offer(PoolAction.VACATE, State.SUSPENDED, SUSPENDED)
    assert made.refused == "the job is suspended: only jobs that run can be vacated"
    assert offer(PoolAction.VACATE, State.SUSPENDED, 2).request is not None
    assert offer(PoolAction.HOLD, State.SUSPENDED, SUSPENDED).request is not None


def asked(schedd: Schedd) -> list[tuple[object, ...]]:
    return [what[1:] for what in schedd.asked if what[0] == "query"]


def test_a_thousand_jobs_of_one_dagman_cost_one_id() -> None:
    jobs = [job(n) for n in range(100, 1100)]
    schedd = Schedd(dagman(), *jobs)
    word = QueuePoller(Logs(*(row(n) for n in range(100, 1100)), dags=[dag()]), schedd).query()  # type: ignore[arg-type]
    assert asked(schedd) == [({9}, {9})]
    assert len(word.jobs) == len(jobs)


def test_jobs_that_no_dagman_of_ours_has_are_asked_for_by_their_numbers() -> None:
    lost = replace(job(2), dagman=None)
    schedd = Schedd(dagman(), job(1), lost)
    word = QueuePoller(Logs(row(1), row(2), row(3), dags=[dag()]), schedd).query()  # type: ignore[arg-type]
    assert asked(schedd) == [({9}, {9}), (set(), {2, 3})]
    assert [each.cluster for each in word.jobs] == [1, 2]


def test_a_dagman_below_that_was_found_by_its_number_is_asked_for_its_jobs() -> None:
    below = replace(dagman(20, "inner.dag"), node="sub", dagman=None)
    schedd = Schedd(below, replace(job(21), dagman=20))
    logs = Logs(row(20, node="sub"))
    logs.logs += (LogRow("inner.dag.dagman.log", 0, 0, None, None),)
    word = QueuePoller(logs, schedd).query()  # type: ignore[arg-type]
    assert [each.cluster for each in word.jobs] == [20, 21]
    assert asked(schedd) == [(set(), {20}), ({20}, set())]
