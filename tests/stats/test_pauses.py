"""Pauses, in which no job of the ensemble was in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.model.model_state import LogRole
from metlmon.model.states import DagState, State
from metlmon.snapshot.records import DagRow, Job, Ledger
from metlmon.stats.estimates import Downtime, counted_epochs, epoch_durations
from tests.generated.ensembles import Ensemble
from tests.generated.varied import REMOVED, varied
from tests.generated.write import local, write
from tests.support.event_logs import Log, Out, read_ensemble
from tests.support.run_histories import DAG, NOON, recorded

HOUR = 3600.0


def hours(number: float) -> datetime:
    return NOON + timedelta(hours=number)


def job(
    run: str, begun: float, over: float | None, state: State, *between: tuple[float, State]
) -> Job:
    """A training job in the queue between two hours."""
    states = [(begun, State.IDLE), *between, *(() if over is None else ((over, state),))]
    made = tuple((hours(at), entered) for at, entered in states)
    ended = None if over is None else hours(over)
    cluster = round(100 * begun) + sum(run.encode())
    job = Job(
        job=(cluster, 0), dag=DAG, in_dag=DAG, node=f"{run}-train_epoch0", key=run, run=run,
        epoch=0, training=True, state=state, submitted=hours(begun), ended=ended,
    )  # fmt: skip
    return job.with_states(made)


def pauses(jobs: Sequence[Job], lives: Sequence[float] = ()) -> Downtime:
    ledger = Ledger("/ens", hours(200), True, jobs=tuple(jobs))
    submissions = tuple(hours(life) for life in lives)
    dag = DagRow(DAG, DagState.RUNNING, len(lives), 1, 0, 0, None, submissions)
    return Downtime(ledger, (dag,))


def paused(jobs: Sequence[Job], lives: Sequence[float] = (), run: str = "run0") -> float:
    return pauses(jobs, lives).seconds_between(run, hours(0), hours(200)) / HOUR


BEFORE = job("run0", 0, 5, State.COMPLETED)
AFTER = job("run0", 53, 60, State.COMPLETED)


@pytest.mark.parametrize("lives", [(), (0.0, 53.0)])
def test_empty_queue_until_the_resubmission_is_a_pause(lives: Sequence[float]) -> None:
    assert paused([BEFORE, AFTER], lives) == 48
    # Of a longer span only the part within it counts.
    assert pauses([BEFORE, AFTER], lives).seconds_between("run0", hours(4), hours(9)) == 4 * HOUR


def test_removal_of_all_jobs_ends_a_life() -> None:
    removed, done = State.REMOVED, State.COMPLETED
    made = [job(f"run{i}", 0, 2, removed) for i in range(3)]
    made += [job(f"run{i}", 2.05, 4.05, removed) for i in range(3)]
    # One of these stays in the queue: a person removed the others, and their DAG goes on.
    made += [job(f"run{i}", 4.1, 6.1, removed) for i in range(2)] + [job("run2", 4.1, 9, done)]
    made += [job(f"run{i}", 6.15, 9, done) for i in range(2)]
    for run in ("run0", "run1", "run2"):
        assert paused(made, run=run) == pytest.approx(2 * 2.05)


def test_long_script_and_seconds_between_jobs_are_not_pauses() -> None:
    assert paused([BEFORE, AFTER], lives=(0.0,)) == 0
    assert paused([BEFORE, job("run0", 5.003, 9, State.COMPLETED)]) == 0


def test_hold_of_all_jobs_and_waiting_for_the_pool_are_not_a_pause() -> None:
    held = [
        job(run, 0, 60, State.COMPLETED, (2, State.RUNNING), (5, State.HELD), (53, State.IDLE))
        for run in ("run0", "run1")
    ]
    assert paused(held) == 0
    waits = [job(run, 0, 60, State.COMPLETED, (53, State.RUNNING)) for run in ("run0", "run1")]
    assert paused(waits) == 0


def test_failed_run_pauses_until_the_resubmission() -> None:
    others = [job("run1", 0, 30, State.REMOVED), job("run1", 30.1, 60, State.COMPLETED)]
    failed = [job("run0", 0, 5, State.FAILED), job("run0", 30.1, 60, State.COMPLETED)]
    assert paused([*others, *failed]) == pytest.approx(25.1)
    # The others' work since their submission is lost with their DAG.
    assert paused([*others, *failed], run="run1") == pytest.approx(30.1)


def test_failed_try_is_not_a_pause() -> None:
    tries = [job("run0", 0, 5, State.FAILED), job("run0", 5.01, 9, State.COMPLETED)]
    assert paused(tries) == 0


def test_removal_with_the_dag_interrupts_a_cycle() -> None:
    jobs = [job(run, 0, 30, State.REMOVED) for run in ("run0", "run1")]
    jobs += [job(run, 30.1, 40, State.COMPLETED) for run in ("run0", "run1")]
    broken = pauses(jobs).interrupted_cycles("run0")
    assert [cycle.seconds for cycle in broken] == [30 * HOUR]
    assert not broken[0].ended
    assert not broken[0].in_progress


def test_removal_of_one_job_is_not_a_pause() -> None:
    jobs = [job("run0", 0, 5, State.REMOVED), job("run0", 5.01, 40, State.COMPLETED)]
    jobs += [job("run1", 0, 30, State.COMPLETED)]
    assert paused(jobs) == 0
    assert not pauses(jobs).interrupted_cycles("run0")


def test_epochs_trained_again_from_scratch_begin_with_the_new_dagman_run() -> None:
    """Two epochs were done, and a third began, when the DAG was submitted again with -f."""
    times = [(0, 5), (5, 9), (9, 20), (30, 36), (36, 43)]
    jobs = [
        replace(job("run0", begun, over, State.COMPLETED), epoch=number)
        for number, (begun, over) in zip((0, 1, 2, 0, 1), times, strict=True)
    ]
    assert pauses(jobs, (0.0, 29.0)).seconds_between("run0", hours(0), hours(36)) == 30 * HOUR
    assert pauses(jobs, (0.0, 29.0)).seconds_between("run0", hours(36), hours(43)) == 0
    # A try after a POST script that failed is a part of its epoch's cycle.
    assert paused([jobs[0], jobs[3]], (0.0, 29.0)) == 25


@pytest.mark.parametrize("is_done", [True, False])
def test_last_epoch_trained_again_by_a_second_dag_begins_with_it(is_done: bool) -> None:
    """Unless the first DAG has not done it, as its POST script failed."""
    names = ["run0-train_epoch0", "run0-train_epoch1"]
    texts = [f'JOB {name} train.sub\nVARS {name} run_uuid="u"\n' for name in names]
    first = f"{''.join(texts)}SCRIPT POST {names[1]} check.sh\nPARENT {names[0]} CHILD {names[1]}\n"
    log, outs = Log(), {"first.dag": Out().start("00:59:00"), "second.dag": Out()}
    log.submit(10, names[0], at="01:00:00").execute(10).terminate(10, at="02:00:00")
    log.submit(11, names[1], at="02:00:00").execute(11).terminate(11, at="03:00:00")
    post = Log("first.dag.nodes.log", LogRole.NODES, "first.dag")
    post.post(11, names[1], code=0 if is_done else 1, at="03:00:01")
    log.submit(12, names[1], at="08:00:00").execute(12).terminate(12, at="09:00:00")
    outs["first.dag"].submitted(names[0], 10, "01:00:00").submitted(names[1], 11, "02:00:00")
    outs["second.dag"].start("07:59:00").submitted(names[1], 12, "08:00:00")
    dags = {"first.dag": first, "second.dag": texts[1]}
    builder = read_ensemble(dags, log, post, out=outs).builder()
    ledger = builder.ledger()
    downtime = Downtime(ledger, builder.status().dags)
    cycles = epoch_durations(ledger, counted_epochs(ledger)["u"], downtime)
    assert [cycle.seconds / HOUR for cycle in cycles] == ([1, 1] if is_done else [1, 2])


def test_pause_of_a_removed_dag_is_open() -> None:
    assert paused([job("run0", 0, 5, State.REMOVED)]) == 0


@pytest.fixture(name="removed", scope="module")
def _removed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ensemble, Path]:
    lived = varied(REMOVED, 3)
    directory = tmp_path_factory.mktemp("removed")
    write(lived, directory)
    return lived, directory


@pytest.mark.parametrize("files", [True, False])
def test_pauses_of_a_generated_dag(removed: tuple[Ensemble, Path], files: bool) -> None:
    """By the generator's own lives, with or without DAGMan's files: from the job cut by the end of
    a life to the run's first job in the next."""
    lived, directory = removed
    made = recorded(directory)
    dags = made.status.dags if files else [replace(d, submissions=()) for d in made.status.dags]
    found = Downtime(made.ledger, dags)
    starts = [life.start for life in lived.dags[0].lives]
    for run in made.ledger.runs:
        own = [each for each in lived.jobs if each.run == run.run]
        truth = 0
        for start in starts[1:]:
            before = max((e for e in own if e.submitted < start), key=lambda e: e.submitted)
            after = min((e for e in own if e.submitted >= start), key=lambda e: e.submitted)
            truth += after.submitted - (before.last if before.completed else before.submitted)
        first, last = local(own[0].submitted), local(own[-1].last)
        assert found.seconds_between(run.key, first, last) == pytest.approx(truth, abs=60), run.run


def test_cycles_and_pauses_add_up_to_the_life_of_a_run(removed: tuple[Ensemble, Path]) -> None:
    made = recorded(removed[1])
    found = Downtime(made.ledger, made.status.dags)
    for run, epochs in counted_epochs(made.ledger).items():
        cycles = epoch_durations(made.ledger, epochs, found)
        first, last = epochs[0].first_submitted, epochs[-1].completed
        assert first is not None
        assert last is not None
        off = found.seconds_between(run, first, last)
        assert sum(cycle.seconds for cycle in cycles) == (last - first).total_seconds() - off
