"""Ensembles described in one line: the duration of each epoch of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from metlmon.config.settings import Settings
from metlmon.live.feed import StatsInput
from metlmon.model.job_events import JobId
from metlmon.model.states import TERMINAL, DagState, Outcome, State
from metlmon.snapshot.records import DagRow, Epoch, Execution, Job, Ledger, Run, Status
from tests.support.records import blank, execution_at, job_at, read_dagdir, stats_input

NOON = datetime(2026, 3, 2, 12, 0, 0)
DAG = "ens.dag"
A40 = "NVIDIA A40"


class Past(Struct, frozen=True):
    """One run: seconds of its epochs from completion to completion (``wait`` of them idle), and of
    the open one; ``running``: it executes, else it is idle."""

    cycles: Sequence[float] = ()
    age: float = 0.0
    total: int = 10
    running: bool = True
    state: State | None = None
    wait: float = 60.0
    target: str | None = None
    site: str | None = "delta"
    lost: Sequence[float] = ()


def basis(
    runs: Mapping[str, Past], dag: DagState = DagState.RUNNING, live: bool = True
) -> StatsInput:
    """The ensemble of these runs at :data:`NOON`."""
    epochs: list[Epoch] = []
    executions: list[Execution] = []
    jobs: list[Job] = []
    entries: list[Run] = []
    for number, (name, past) in enumerate(runs.items()):
        time = NOON - timedelta(seconds=sum(past.cycles) + past.age)
        began = time
        for at in range(past.total):
            job = (1000 * (number + 1) + at, 0)
            if at < len(past.cycles):
                end = time + timedelta(seconds=past.cycles[at])
                took = max(1.0, past.cycles[at] - past.wait)
                epochs.append(_epoch(name, at, State.COMPLETED, past, job, time, end, took))
                start = end - timedelta(seconds=took)
                executions.append(_execution(name, at, past, job, start, end))
                time = end
            elif at == len(past.cycles):
                state = past.state or (State.RUNNING if past.running else State.IDLE)
                epochs.append(_epoch(name, at, state, past, job, time))
                if past.running and past.state is None:
                    start = min(NOON, time + timedelta(seconds=past.wait))
                    executions.append(_execution(name, at, past, job, start, None))
                jobs.append(_job(name, at, past, job, state, time))
            else:
                epochs.append(_epoch(name, at, State.WAITING, past, None, None))
        entries.append(_run(name, past, began, time, 1000 * (number + 1) + len(past.cycles)))
    ledger = Ledger(
        "/ens", NOON, live, tuple(entries), tuple(epochs), tuple(jobs), tuple(executions)
    )
    return StatsInput(status(ledger, dag), ledger)


def status(ledger: Ledger, dag: DagState = DagState.RUNNING) -> Status:
    """The snapshot of a ledger, as far as figures need it."""
    return blank(
        Status,
        dagdir=ledger.dagdir,
        as_of=ledger.as_of,
        live=ledger.live,
        dags=(DagRow(DAG, dag, 1, len(ledger.epochs), 0, 0, None, ()),),
        runs=ledger.runs,
    )


def with_executions(before: StatsInput, *more: Execution) -> StatsInput:
    """The same ensemble with further executions."""
    ledger = replace(before.ledger, executions=(*before.ledger.executions, *more))
    return replace(before, ledger=ledger)


def lost(
    run: str,
    end: datetime,
    *,
    seconds: float = 3600.0,
    outcome: Outcome = Outcome.EVICTED,
    code: int | None = 1005,
    reason: str | None = "Unspecified job interruption",
    site: str | None = "delta",
    job: JobId = (9000, 0),
    target: str | None = None,
    uncertain: bool = False,
) -> Execution:
    """An execution that was lost."""
    past = Past(site=site, target=target)
    made = _execution(run, 0, past, job, end - timedelta(seconds=seconds), end)
    return replace(
        made,
        outcome=outcome,
        code=code,
        reason=reason,
        cause=reason,
        final=False,
        uncertain=uncertain,
    )


def _epoch(
    run: str,
    at: int,
    state: State,
    past: Past,
    job: JobId | None,
    submitted: datetime | None,
    completed: datetime | None = None,
    seconds: float | None = None,
) -> Epoch:
    final = None if completed is None else execution_at(past.site, A40, 1, seconds or 0.0)
    return blank(
        Epoch,
        key=run,
        run=run,
        dag=DAG,
        in_dag=DAG,
        node=f"{run}-train_epoch{at}",
        epoch=at,
        epoch_var=at + 1,
        counts=True,
        state=state,
        target=past.target,
        first_submitted=submitted,
        completed=completed,
        attempts=1,
        jobs=() if job is None else (job,),
        success=final,
        longest=final,
    )


def _execution(
    run: str, at: int, past: Past, job: JobId, start: datetime, end: datetime | None
) -> Execution:
    seconds = ((end or NOON) - start).total_seconds()
    good = end is not None
    return Execution(
        **_owner(run, at, past),
        job=job,
        site=past.site,
        gpu=A40,
        gpus=1,
        start=start,
        end=end,
        seconds=seconds,
        outcome=Outcome.GOOD if good else Outcome.IN_FLIGHT,
        return_value=0 if good else None,
        wait=past.wait,
        final=good,
    )


def _job(run: str, at: int, past: Past, job: JobId, state: State, submitted: datetime) -> Job:
    ended = submitted if state in TERMINAL else None
    made = Job(**_owner(run, at, past), job=job, state=state, submitted=submitted, ended=ended)
    return made.with_states([(submitted, state)])


def _owner(run: str, at: int, past: Past) -> dict[str, Any]:
    node = f"{run}-train_epoch{at}"
    return {
        **dict.fromkeys(("dag", "in_dag"), DAG),
        **dict.fromkeys(("key", "run"), run),
        **{"node": node, "epoch": at, "training": True, "target": past.target},
    }


def _run(run: str, past: Past, began: datetime, since: datetime, cluster: int) -> Run:
    done = len(past.cycles)
    over = done >= past.total
    state = past.state or (State.RUNNING if past.running else State.IDLE)
    state = State.COMPLETED if over else state
    at = min(done, past.total - 1)
    held = "memory usage exceeded" if state is State.HELD else None
    latest = blank(
        Epoch,
        epoch=at,
        epoch_var=at + 1,
        node=f"{run}-train_epoch{at}",
        cluster=cluster,
        proc=0,
        target=past.target,
        job=job_at(past.site, A40, 1, held, 21),
        state=state,
        since=since,
        attempts=3,
    )
    return blank(
        Run,
        key=run,
        run=run,
        dag=DAG,
        state=state,
        epochs_total=past.total,
        epochs_done=done,
        latest=latest,
        seconds=past.age,
        began=began,
    )


@cache
def recorded(directory: Path, as_of: datetime | None = None) -> StatsInput:
    """A recorded ensemble as of a moment."""
    if not directory.exists():
        pytest.skip(f"no {directory.name} here")
    return stats_input(read_dagdir(directory, settings=Settings(), as_of=as_of))
