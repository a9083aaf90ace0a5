"""Where the queue says something else than the logs, and for how long."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from metlmon.model.states import ACTIVE, TERMINAL, State
from metlmon.pool.poller import notices
from metlmon.pool.queue_checks import agree, differences
from metlmon.pool.types import QueueJob, QueueSnapshot
from tests.support.queue_rows import NINE, job, row


def word(asked: float, *jobs: QueueJob, **more: object) -> QueueSnapshot:
    return QueueSnapshot(schedd="ap", queried_at=asked, jobs=jobs, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (State.IDLE, 1),
        (State.TRANSFERRING_INPUT, 2),
        (State.STARTING, 2),
        (State.RUNNING, 2),
        (State.RUNNING, 6),
        (State.TRANSFERRING_OUTPUT, 6),
        (State.TRANSFERRING_OUTPUT, 2),
        (State.SUSPENDED, 7),
        (State.SUSPENDED, 2),
        (State.DISCONNECTED, 2),
        (State.HELD, 5),
        (State.COMPLETED, 4),
        (State.FAILED, 4),
        (State.REMOVED, 3),
    ],
)
def test_the_same_thing_in_two_words(state: State, status: int) -> None:
    assert agree(state, status)


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (State.IDLE, 2),
        (State.IDLE, 5),
        (State.RUNNING, 1),
        (State.RUNNING, 5),
        (State.RUNNING, 4),
        (State.RUNNING, 7),
        (State.HELD, 1),
        (State.HELD, 2),
        (State.STARTING, 1),
        (State.COMPLETED, 1),
        (State.REMOVED, 2),
    ],
)
def test_two_different_things(state: State, status: int) -> None:
    assert not agree(state, status)


def test_a_job_being_removed_agrees_with_every_state() -> None:
    assert all(agree(state, 3) for state in (*ACTIVE, *TERMINAL))


def test_a_job_that_is_gone_has_ended_by_its_log_or_differs() -> None:
    assert all(agree(state, 0) for state in TERMINAL)
    assert not any(agree(state, 0) for state in ACTIVE)


def test_every_state_of_a_job_in_the_queue_has_a_row_in_the_table() -> None:
    assert all(any(agree(state, status) for status in (1, 2, 5, 6, 7)) for state in ACTIVE)


def test_a_difference_keeps_the_time_of_the_answer_that_showed_it_first() -> None:
    rows = {(1, 0): row(1, State.RUNNING)}
    first = differences(word(100.0, job(1, 5)), rows, {})
    second = differences(word(130.0, job(1, 5)), rows, first)
    assert second[1, 0].first == 100.0
    assert second[1, 0].text == "1.0 is running by its log, held in the queue"


def test_a_log_that_moved_in_between_begins_anew() -> None:
    held, again = row(1, State.RUNNING), row(1, State.RUNNING, since=NINE + timedelta(seconds=20))
    first = differences(word(100.0, job(1, 5)), {(1, 0): held}, {})
    second = differences(word(130.0, job(1, 5)), {(1, 0): again}, first)
    assert second[1, 0].first == 130.0


def test_a_queue_that_moved_in_between_begins_anew() -> None:
    rows = {(1, 0): row(1, State.RUNNING)}
    first = differences(word(100.0, job(1, 5)), rows, {})
    second = differences(word(130.0, job(1, 1)), rows, first)
    assert second[1, 0].first == 130.0


def test_what_agrees_again_is_forgotten() -> None:
    rows = {(1, 0): row(1, State.RUNNING)}
    first = differences(word(100.0, job(1, 5)), rows, {})
    assert differences(word(130.0, job(1, 2)), rows, first) == {}


def test_gone_from_the_queue_and_not_ended_in_the_log() -> None:
    (found,) = differences(word(1.0), {(1, 0): row(1, State.RUNNING)}, {}).values()
    assert found.text == "1.0 is running by its log, and not in the queue any more"


def test_in_the_queue_and_in_no_log() -> None:
    (found,) = differences(word(1.0, job(5, 2)), {}, {}).values()
    assert found.text == "5.0 is running in the queue; no log has it"


def test_a_job_of_another_directory_is_not_compared() -> None:
    rows = {(1, 0): row(1, State.RUNNING)}
    assert differences(word(1.0, foreign_jobs=((1, 0),)), rows, {}) == {}


def test_an_error_is_no_answer_to_compare_with() -> None:
    result = replace(word(1.0), error="the schedd does not answer")
    assert differences(result, {(1, 0): row(1, State.RUNNING)}, {}) == {}


def test_jobs_that_differ_alike_are_one_warning() -> None:
    rows = {(n, 0): row(n, State.RUNNING) for n in range(1, 6)}
    found = differences(word(1.0, *(job(n, 5) for n in range(1, 6))), rows, {})
    (notice,) = notices(found.values())
    assert notice.kind == "queue-differs"
    assert notice.text == (
        "5 jobs (1.0, 2.0, 3.0 and 2 more) are running by their logs, and held in the queue"
    )
