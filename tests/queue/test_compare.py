"""Differences between queue and logs, and how long they last."""

from __future__ import annotations

from collections.abc import Iterable
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
    ("state", "same", "others"),
    [
        (State.IDLE, [1], [2, 5]),
        (State.TRANSFERRING_INPUT, [2], [1]),
        (State.STARTING, [2], [1]),
        (State.RUNNING, [2, 6], [1, 4, 5, 7]),
        (State.TRANSFERRING_OUTPUT, [2, 6], [1]),
        (State.SUSPENDED, [2, 7], [1]),
        (State.DISCONNECTED, [2], [1]),
        (State.HELD, [5], [1, 2]),
        (State.COMPLETED, [4], [1]),
        (State.FAILED, [4], [1]),
        (State.REMOVED, [3], [2]),
    ],
)
def test_equal_states_agree(state: State, same: list[int], others: list[int]) -> None:
    assert all(agree(state, status) for status in same)
    assert not any(agree(state, status) for status in others)


def test_every_state_agrees_with_one_of_the_queue() -> None:
    assert all(agree(state, 3) for state in (*ACTIVE, *TERMINAL)), "it is being removed"
    assert all(agree(state, 0) for state in TERMINAL), "it is gone"
    assert not any(agree(state, 0) for state in ACTIVE)
    assert all(any(agree(state, status) for status in (1, 2, 5, 6, 7)) for state in ACTIVE)


@pytest.mark.parametrize(
    ("seconds", "status", "first"),
    [
        (0, 5, 100.0),
        # A change of log or queue in between resets the time; what agrees is forgotten.
        (20, 5, 130.0),
        (0, 1, 130.0),
        (0, 2, None),
    ],
)
def test_difference_keeps_the_time_of_its_first_answer(
    seconds: int, status: int, first: float | None
) -> None:
    before = differences(word(100.0, job(1, 5)), {(1, 0): row(1, State.RUNNING)}, {})
    later = row(1, State.RUNNING, since=NINE + timedelta(seconds=seconds))
    found = differences(word(130.0, job(1, status)), {(1, 0): later}, before)
    assert [each.first for each in found.values()] == ([] if first is None else [first])


@pytest.mark.parametrize(
    ("jobs", "logs", "text"),
    [
        ([(1, 5)], [1], "running by the log, held in the queue: 1.0"),
        ([], [1], "running by the log, not in the queue: 1.0"),
        ([(5, 2)], [], "in no log, running in the queue: 5.0"),
        (
            [(number, 5) for number in range(1, 6)],
            range(1, 6),
            "running by the log, held in the queue: 1.0, 2.0, 3.0 and 2 more",
        ),
    ],
)
def test_equal_differences_are_one_warning(
    jobs: list[tuple[int, int]], logs: Iterable[int], text: str
) -> None:
    rows = {(number, 0): row(number, State.RUNNING) for number in logs}
    found = differences(word(1.0, *(job(*each) for each in jobs)), rows, {})
    (notice,) = notices(found.values())
    assert (notice.kind, notice.text) == ("queue-differs", text)


def test_jobs_of_other_directories_and_errors_are_not_compared() -> None:
    rows = {(1, 0): row(1, State.RUNNING)}
    assert differences(word(1.0, foreign_jobs=((1, 0),)), rows, {}) == {}
    result = replace(word(1.0), error="the schedd does not answer")
    assert differences(result, rows, {}) == {}
