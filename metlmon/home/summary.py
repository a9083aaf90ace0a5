"""The summary of one ensemble: the contents of its line on Home."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct

from metlmon.config.settings import EVENT_NAMES
from metlmon.health.build import make_health
from metlmon.health.changes import changes_since, load_last_seen, since_seen
from metlmon.health.types import Health, Severity
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import StatsInput
from metlmon.live.job_files import TrainingFiles
from metlmon.model.states import ACTIVE, ALIVE, CAN_RUN, DONE, DagState, State
from metlmon.notify.events import NotifyEvent, find_events, is_complete
from metlmon.snapshot.records import DagRow, GpuHours, Status
from metlmon.stats.estimates import Interval, make_forecast


class Phase(StrEnum):
    """How far an ensemble is read.

    ``STORED``: the figures are those of an earlier session, and its files have changed since.
    """

    WAITING = "waiting"
    READING = "reading"
    STORED = "stored"
    READ = "read"
    UNREADABLE = "unreadable"


class EnsembleState(StrEnum):
    """State of an ensemble: that of its DAGs, or ``STOPPED`` if no run can continue by itself.

    ``HELD``: DAGMan's own job is held; ``JOBS_HELD``: only jobs that are held could run.
    """

    RUNNING = "running"
    JOBS_HELD = "jobs-held"
    HELD = "held"
    RESTARTING = "restarting"
    STOPPED = "stopped"
    FAILED = "failed"
    REMOVED = "removed"
    DONE = "done"
    NOT_SUBMITTED = "not-submitted"
    UNKNOWN = "unknown"


_FIRST: Final = (
    *(DagState.HELD, DagState.RESTARTING, DagState.RUNNING),
    *(DagState.FAILED, DagState.REMOVED, DagState.UNKNOWN, DagState.NOT_SUBMITTED, DagState.DONE),
)
"""States of DAGs, that of the ensemble first: of a living DAG, else the worst one."""


class Figures(Struct, frozen=True, kw_only=True):
    """The figures of an ensemble at ``as_of``.

    ``done`` and ``total`` count epochs, or nodes if no node is an epoch. ``running`` and ``queued``
    count jobs. ``trouble``: the cause of the worst open entry of its health, None if none is above
    a note; ``headline``: the first line of its health; ``others``: the number of further entries;
    ``steps``: what to do about the worst one, in order. ``since_seen``: what has changed since the
    user last looked at it. ``remaining`` or ``completed_at`` say when it is done, ``no_eta`` why
    that is unknown. ``events``: those to notify about; ``complete``: no file was unreadable.
    ``last_event``: the time of the last event in its logs. ``minutes_ahead``: of the access point's
    local time, compared with that of this machine.
    """

    as_of: datetime | None
    live: bool
    state: EnsembleState
    nodes_failed: int
    done: int
    total: int
    running: int
    queued: int
    severity: Severity | None
    trouble: str | None
    headline: str
    others: int
    steps: tuple[str, ...]
    hours: GpuHours
    since_seen: str | None
    remaining: Interval | None
    expected_end: datetime | None
    completed_at: datetime | None
    no_eta: str | None
    events: tuple[NotifyEvent, ...] = ()
    complete: bool = True
    last_event: datetime | None = None
    minutes_ahead: int = 0

    def now(self, clock: datetime) -> datetime:
        """The time there: that of its figures if they are live, else by the ``clock`` here."""
        ahead = timedelta(minutes=self.minutes_ahead)
        return self.as_of if self.live and self.as_of is not None else clock + ahead


class HomeSummary(Struct, frozen=True, kw_only=True):
    """One ensemble as Home knows it.

    ``path`` identifies it; ``name``: the end of it that distinguishes it from the others, where it
    is listed. ``fraction`` of ``size`` bytes are read in the phase ``READING``;
    ``error``: why it cannot be read, or what has become unreadable.
    """

    path: str
    name: str = ""
    phase: Phase = Phase.WAITING
    fraction: float = 0.0
    size: int = 0
    error: str | None = None
    figures: Figures | None = None

    @property
    def needs_person(self) -> bool:
        """Whether somebody has to look at it."""
        trouble = self.figures is not None and self.figures.trouble is not None
        return trouble or self.error is not None


def make_figures(reader: DagdirReader) -> Figures:
    """The figures of an ensemble whose reader has read everything."""
    builder = reader.snapshot_builder()
    status = builder.status()
    settings, ledger = reader.ensemble.settings, builder.ledger()
    job_files = TrainingFiles(reader.dagdir, settings).read(builder)
    stats_input = StatsInput(status, ledger, settings, job_files)
    health = make_health(stats_input)
    forecast = make_forecast(stats_input)
    counted = status.counted_states
    headline, worst = health.headline, health.worst
    seen = load_last_seen(Path(reader.path_given))
    ahead = reader.local_now() - datetime.now()
    return Figures(
        as_of=status.as_of,
        live=status.live,
        state=_state(status, health),
        nodes_failed=sum(dag.nodes_failed for dag in status.dags),
        done=sum(counted.get(state, 0) for state in DONE),
        total=sum(counted.values()),
        running=status.jobs_running,
        queued=status.jobs_queued,
        severity=headline.severity,
        trouble=None if headline.severity is None else headline.cause or headline.text,
        headline=headline.line,
        others=headline.others,
        steps=() if worst is None else worst.steps,
        hours=status.hours,
        since_seen=(seen and since_seen(changes_since(stats_input, seen.until))) or None,
        remaining=forecast.remaining,
        expected_end=forecast.expected_end,
        completed_at=forecast.completed_at,
        no_eta=forecast.missing_reason,
        events=find_events(health, status, EVENT_NAMES),
        complete=reader.error is None and is_complete(status),
        last_event=max((log.last for log in status.logs if log.last is not None), default=None),
        minutes_ahead=round(ahead / timedelta(minutes=1)),
    )


def _state(status: Status, health: Health) -> EnsembleState:
    """The state of the whole ensemble."""
    state = _state_of_dags(status.dags, health) if status.dags else _state_of_jobs(status)
    able = {each for each, count in status.node_states.items() if count} & CAN_RUN
    # A held node may have other procs that run.
    held = able == {State.HELD} and not status.jobs_running
    can_be = state in (EnsembleState.RUNNING, EnsembleState.UNKNOWN)
    return EnsembleState.JOBS_HELD if held and can_be else state


def _state_of_dags(dags: Sequence[DagRow], health: Health) -> EnsembleState:
    """The first state of its DAGs; stopped if none is alive, and no run can go on."""
    first = next(state for state in _FIRST if any(dag.state is state for dag in dags))
    is_over = first not in ALIVE and first is not DagState.DONE and not health.jobs_queued
    stopped = is_over and health.runs_total == health.runs_stopped > 0
    return EnsembleState.STOPPED if stopped else EnsembleState(first)


def _state_of_jobs(status: Status) -> EnsembleState:
    """The state of event logs without a DAG: that of the jobs in the queue, else of all jobs."""
    states = {state for state, count in status.node_states.items() if count}
    if states & ACTIVE:
        return EnsembleState.RUNNING
    if states <= DONE:
        return EnsembleState.DONE
    return EnsembleState.FAILED if State.FAILED in states else EnsembleState.REMOVED
