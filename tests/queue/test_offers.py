"""The actions offered for a selection, the jobs left out, and the reasons of refusals."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from metlmon.model.states import DagState, State
from metlmon.pool.previews import action_previews, is_already_done
from metlmon.pool.types import PLACE_ACTS, ActionPreview, PoolAction, QueueSnapshot
from tests.support.queue_rows import dag, dagman, job, row

WORD = QueueSnapshot(
    schedd="ap.example.org",
    user="anna@example.org",
    queried_at=100.0,
    jobs=tuple(job(n) for n in range(1, 6)),
    dagmans=(dagman(),),
)


def offer(
    act: PoolAction, *rows: object, word: QueueSnapshot = WORD, dags: tuple[object, ...] = ()
) -> ActionPreview:
    made = action_previews(word, rows, dags)  # type: ignore[arg-type]
    return next(each for each in made if each.act is act)


def ids(made: ActionPreview) -> list[str]:
    assert made.request is not None, made.refused
    return [target.id for target in made.request.targets]


def test_all_actions_in_their_order() -> None:
    acts = [act for act in PoolAction if act not in PLACE_ACTS]
    assert [each.act for each in action_previews(WORD, (), ())] == acts


@pytest.mark.parametrize(
    ("act", "touched"),
    [
        (PoolAction.HOLD, ["1.0", "2.0"]),
        (PoolAction.RELEASE, ["3.0"]),
        (PoolAction.REMOVE, ["1.0", "2.0", "3.0"]),
        (PoolAction.VACATE, ["2.0"]),
        (PoolAction.PRIORITY, ["1.0", "2.0", "3.0"]),
    ],
)
def test_each_action_selects_its_jobs(act: PoolAction, touched: list[str]) -> None:
    rows = (row(1), row(2, State.RUNNING), row(3, State.HELD), row(4, State.COMPLETED))
    made = offer(act, *rows)
    assert ids(made) == touched
    assert len(made.left_out) == 4 - len(touched)


def test_subject_has_the_exact_number_and_a_visible_name() -> None:
    assert offer(PoolAction.HOLD, row(1), row(2), row(4, State.FAILED)).subject == "2 jobs of run0"
    assert offer(PoolAction.HOLD, row(1)).subject == "job 1.0 of run0"
    assert offer(PoolAction.HOLD, row(1), row(2, run="run1")).subject == "2 jobs of 2 runs"
    assert "\x1b" not in offer(PoolAction.HOLD, row(1, run="\x1b[2Jrun")).subject


def test_empty_offer_has_a_reason() -> None:
    made = offer(PoolAction.HOLD, row(1, State.HELD))
    assert made.request is None
    assert made.refused == "held already"
    assert is_already_done(made)
    assert not is_already_done(offer(PoolAction.RELEASE, row(1)))


@pytest.mark.parametrize(
    ("rows", "word", "why"),
    [
        ((), WORD, "no job is selected"),
        ((row(1),), QueueSnapshot(error="no answer"), "no answer"),
        ((row(1),), QueueSnapshot(is_pending=True), "the schedd has not answered yet"),
        (
            (row(1), row(2)),
            replace(WORD, user="ben@example.org"),
            "2 jobs: belongs to anna, you are ben",
        ),
        (
            (row(1),),
            replace(WORD, jobs=(), dagmans=()),
            "the schedd ap.example.org does not have it: the logs are another machine's",
        ),
        (
            (row(1),),
            replace(WORD, jobs=(), dagmans=(), foreign_jobs=((1, 0),)),
            "the schedd ap.example.org has jobs of these numbers that belong to another directory",
        ),
    ],
)
def test_refusals_have_a_reason(rows: tuple[object, ...], word: QueueSnapshot, why: str) -> None:
    made = offer(PoolAction.HOLD, *rows, word=word)
    assert made.request is None
    assert (made.refused or "").startswith(why)


# Held in the second in which it ended (seen on 23.9.6): the log has 005, then 012; DAGMan counts
# the node as done; the queue keeps the job, held, until it is released or the DAG ends.
# A real schedd answers "not possible in this state" for a suspended job.
@pytest.mark.parametrize(
    ("act", "state", "status", "why"),
    [
        *((PoolAction.RELEASE, state, 5, None) for state in (State.COMPLETED, State.FAILED)),
        # Submitted on hold, or its 012 was lost: Health advises to release it.
        (PoolAction.RELEASE, State.IDLE, 5, None),
        (PoolAction.HOLD, State.IDLE, 5, None),
        # Held while its shadow tries to reach its machine: the 012 follows when that has failed.
        (PoolAction.RELEASE, State.DISCONNECTED, 5, None),
        (PoolAction.RELEASE, State.RUNNING, 2, "running: not held"),
        *((PoolAction.REMOVE, state, 5, None) for state in (State.COMPLETED, State.FAILED)),
        (PoolAction.HOLD, State.COMPLETED, 5, "held already"),
        (PoolAction.VACATE, State.COMPLETED, 5, "held: at no machine"),
        (PoolAction.REMOVE, State.COMPLETED, 2, "completed: no longer in the queue"),
        (PoolAction.VACATE, State.SUSPENDED, 7, "suspended: only jobs that run can be vacated"),
        (PoolAction.VACATE, State.TRANSFERRING_INPUT, 2, None),
        (PoolAction.VACATE, State.STARTING, 2, None),
        (PoolAction.VACATE, State.TRANSFERRING_OUTPUT, 2, None),
        (PoolAction.VACATE, State.SUSPENDED, 2, None),
        (PoolAction.VACATE, State.DISCONNECTED, 2, None),
        (PoolAction.HOLD, State.SUSPENDED, 7, None),
    ],
)
def test_differences_between_queue_and_log(
    act: PoolAction, state: State, status: int, why: str | None
) -> None:
    made = offer(act, row(1, state), word=replace(WORD, jobs=(job(1, status),)))
    assert made.refused == why
    assert why is not None or ids(made) == ["1.0"]


def test_job_of_another_owner_is_left_out() -> None:
    word = replace(WORD, jobs=(job(1), job(2, owner="ben")))
    made = offer(PoolAction.HOLD, row(1), row(2), word=word)
    assert ids(made) == ["1.0"]
    assert made.left_out[0].reason == "belongs to ben, you are anna"


def test_job_newer_than_the_answer_is_not_refused() -> None:
    assert ids(offer(PoolAction.HOLD, row(6))) == ["6.0"]


# --- DAGs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "given", "why"),
    [
        (PoolAction.HALT, dag(), None),
        (PoolAction.HALT, dag(halted=True), "it is halted already"),
        (PoolAction.HALT, dag(DagState.DONE), "the DAG has ended: done"),
        (PoolAction.RESUME, dag(halted=True), None),
        (PoolAction.RESUME, dag(), "it is not halted"),
        (PoolAction.REMOVE_DAG, dag(), None),
        (PoolAction.REMOVE_DAG, dag(DagState.REMOVED), "the DAG has ended: removed"),
        (PoolAction.REMOVE_DAG, dag(cluster=None), "the number of DAGMan's job is not known"),
        (
            PoolAction.RESUBMIT,
            dag(),
            "the DAG runs: only one that failed or was removed can be resubmitted",
        ),
        (PoolAction.HALT, dag(DagState.UNKNOWN), "no file here shows whether the DAG runs"),
        (PoolAction.RELEASE_DAG, dag(DagState.HELD), None),
        (PoolAction.RELEASE_DAG, dag(), "DAGMan is not held"),
        (
            PoolAction.RELEASE_DAG,
            dag(DagState.HELD, cluster=None),
            "the number of DAGMan's job is not known",
        ),
        (PoolAction.HALT, dag(DagState.HELD), "DAGMan is held: release it first (release-dag)"),
        (
            PoolAction.HALT,
            dag(DagState.RESTARTING),
            "DAGMan does not run at the moment: it will be started again",
        ),
        (PoolAction.REMOVE_DAG, dag(DagState.HELD), None),
        (PoolAction.REMOVE_DAG, dag(DagState.RESTARTING), None),
        (PoolAction.RESUBMIT, dag(DagState.HELD), "DAGMan held: it is still in the queue"),
        (PoolAction.RESUBMIT, dag(DagState.DONE), "the DAG is done"),
        (PoolAction.RESUBMIT, dag(DagState.NOT_SUBMITTED), "the DAG was never submitted"),
        (PoolAction.RESUBMIT, dag(DagState.REMOVED, rescue=2), None),
        (PoolAction.RESUBMIT, dag(DagState.REMOVED, rescue=2, cluster=8), None),
        (
            PoolAction.RESUBMIT,
            dag(DagState.FAILED, cluster=8),
            "it has no rescue file to continue from, and some nodes are done; if its .lock file "
            "is there, condor_submit_dag -update_submit lets a new DAGMan recover",
        ),
        (PoolAction.RESUBMIT, dag(DagState.FAILED, cluster=8, nodes_done=0), None),
    ],
)
def test_actions_on_a_dag(act: PoolAction, given: object, why: str | None) -> None:
    made = offer(act, dags=(given,))
    assert made.refused == why
    assert (made.request is None) == (why is not None)
    assert made.subject == "ens.dag"


def test_halt_names_its_file() -> None:
    assert offer(PoolAction.HALT, dags=(dag(),)).effect.endswith("writes ens.dag.halt")


@pytest.mark.parametrize(
    ("word", "why"),
    [
        (replace(WORD, user="ben@example.org"), "the DAG belongs to anna, you are ben"),
        (replace(WORD, dagmans=()), "does not have it"),
        (replace(WORD, dagmans=(), foreign_jobs=((9, 0),)), "another directory"),
    ],
)
def test_foreign_or_copied_dag_is_not_halted(word: QueueSnapshot, why: str) -> None:
    assert why in (offer(PoolAction.HALT, dags=(dag(),), word=word).refused or "")
