"""Lives of DAGMan: one for each cluster of DAGMan's own job.

The schedd starts a process for the job, and another one when the schedd itself was restarted, when
the job was released, or when a process ended with a status that says so. ``.dagman.log`` tells of
the job, ``.dagman.out`` of its processes. Lives overlap: a DAG can be submitted while an older
DAGMan runs, and an older one may be removed behind the submission of the next.

Sources followed: ``main_shutdown_graceful`` and the lock file's check in ``dagman_main.cpp``;
``on_exit_remove`` as ``condor_submit_dag`` writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from metlmon.eventlog import Event, Held, Terminated
from metlmon.frozen import frozen
from metlmon.model.event_store import kept
from metlmon.model.states import DagState

LAST_STATUS: Final = 2
"""Exit statuses of DAGMan from 0 to this take its job out of the queue; after any other, or an
EXCEPT, which gives none, the schedd starts it again."""

PROMPT: Final = timedelta(seconds=60)
"""A DAGMan that finds the lock file of another one ends within this: it only reads its DAG."""


def restarts(status: int | None) -> bool:
    """Does the schedd start DAGMan again after this exit status? None: an EXCEPT."""
    return status is None or not 0 <= status <= LAST_STATUS


@dataclass(slots=True)
class Process:
    """One process of DAGMan, as ``.dagman.out`` tells it. ``cluster`` None: its name does not say;
    ``refused``: it found that another DAGMan runs, and ended; ``aborted``: a node returned its
    ABORT-DAG-ON value to it; ``total``: all nodes, as it counts them."""

    start: datetime | None
    cluster: int | None = None
    recovery: bool = False
    pre_completed: int | None = None
    rescue: str | None = None
    end: datetime | None = None
    status: int | None = None
    ended: bool = False
    removed: bool = False
    error: str | None = None
    refused: bool = False
    aborted: bool = False
    total: int | None = None

    @property
    def restarts(self) -> bool:
        """Has it ended in a way after which the schedd starts another one?"""
        return self.ended and restarts(self.status)


@frozen
class Hold:
    """Why DAGMan's own job is on hold (event 012)."""

    time: datetime
    reason: str | None
    code: int | None
    subcode: int | None


@dataclass(slots=True)
class DagmanJob:
    """DAGMan's own job, as ``.dagman.log`` tells it. ``executing``: its newest 001; ``stopped``:
    the first 004, 012 or 013 behind that."""

    cluster: int
    start: datetime | None
    executing: datetime | None = None
    stopped: datetime | None = None
    hold: Hold | None = None
    end: datetime | None = None
    removed: bool = False
    return_value: int | None = None

    def add(self, event: Event) -> None:
        """Take one event of the job in. 001 is repeated when the schedd was restarted."""
        match event.number:
            case 1:
                self.executing, self.stopped, self.hold = event.time, None, None
            case 4:
                self.stopped = self.stopped or event.time
            case 5:
                self.end = event.time
                if isinstance(event.detail, Terminated):
                    self.return_value = event.detail.return_value
            case 9:
                self.end, self.removed = event.time, True
            case 12:
                self.stopped = self.stopped or event.time
                told = event.detail if isinstance(event.detail, Held) else None
                self.hold = Hold(
                    event.time,
                    kept(told.reason) if told and told.reason else None,
                    told.code if told else None,
                    told.subcode if told else None,
                )
            case 13 if self.hold is not None:
                # The schedd may log the 001 of a released job first: then it runs already.
                self.stopped, self.hold = self.stopped or event.time, None


def file_event(jobs: list[DagmanJob], event: Event) -> None:
    """Add an event of ``.dagman.log`` to its job's record in ``jobs``, a new one at the end if
    needed."""
    for job in reversed(jobs):
        if job.cluster == event.cluster:
            break
    else:
        job = DagmanJob(event.cluster, event.time)
        jobs.append(job)
    job.add(event)


@dataclass(slots=True)
class DagmanRun:
    """One cluster of DAGMan's own job: its events and its processes, oldest first."""

    cluster: int | None
    job: DagmanJob | None = None
    processes: list[Process] = field(default_factory=list)
    refused: bool = False
    superseded: datetime | None = None
    """When the next life began that got hold of the lock file: this one was over then."""

    @property
    def start(self) -> datetime | None:
        """When it began: as its first process says, else when it was submitted."""
        told = (p.start for p in self.processes if p.start is not None)
        return next(told, self.job.start if self.job is not None else None)

    @property
    def ran(self) -> bool:
        """Was a process of it started?"""
        return bool(self.processes) or (self.job is not None and self.job.executing is not None)

    @property
    def removed(self) -> bool:
        """Was its newest process told to remove its jobs and end?"""
        return bool(self.processes) and self.processes[-1].removed

    @property
    def ended(self) -> bool:
        """Does its log or its output say that it has left the queue?"""
        return self._left_queue or self._last_exited

    @property
    def end(self) -> datetime | None:
        """When it left the queue, by its log or its output."""
        if self.job is not None and self.job.end is not None:
            return self.job.end
        return self.processes[-1].end if self._last_exited else None

    @property
    def over(self) -> datetime | None:
        """When it was over, at the latest."""
        return self.end or self.superseded

    @property
    def _left_queue(self) -> bool:
        return self.job is not None and self.job.end is not None

    @property
    def _last_exited(self) -> bool:
        last = self.processes[-1] if self.processes else None
        return last is not None and last.ended and not last.restarts and not self._again(last)

    def _again(self, last: Process) -> bool:
        """Was another process started behind ``last``, that has said nothing yet?"""
        executing = self.job.executing if self.job is not None else None
        return executing is not None and last.end is not None and executing > last.end

    def ending(self, removed: bool = False) -> tuple[DagState, datetime | None] | None:
        """How it ended, None when neither log nor output says that. ``removed``: another file
        says that it was."""
        if not self.ended:
            return None
        job = self.job if self._left_queue else None
        status = job.return_value if job is not None else self.processes[-1].status
        if removed or self.removed or (job is not None and job.removed):
            return DagState.REMOVED, self.end
        return (DagState.DONE if status == 0 else DagState.FAILED), self.end

    @property
    def hold(self) -> Hold | None:
        """Its hold, while it is on hold."""
        hold = self.job.hold if self.job is not None else None
        return hold if hold is not None and not self._started_after(hold.time) else None

    def standing(self) -> DagState:
        """What it is while it has not ended: RUNNING, HELD or RESTARTING."""
        if self.hold is not None:
            return DagState.HELD
        stopped = self.job.stopped if self.job is not None else None
        if stopped is not None and not self._started_after(stopped):
            return DagState.RESTARTING
        last = self.processes[-1] if self.processes else None
        if last is not None and last.restarts and not self._again(last):
            return DagState.RESTARTING
        return DagState.RUNNING

    def _started_after(self, moment: datetime) -> bool:
        last = self.processes[-1].start if self.processes else None
        return last is not None and last > moment


def lives_of(jobs: Sequence[DagmanJob], processes: Sequence[Process]) -> list[DagmanRun]:
    """The lives that these tell of, in the order in which they began."""
    lives = [DagmanRun(job.cluster, job) for job in jobs]
    by_cluster = {life.cluster: life for life in lives}
    for process in processes:
        cluster = process.cluster
        life = by_cluster.get(cluster) if cluster is not None else _by_time(lives, process)
        if life is None:
            life = DagmanRun(cluster)
            lives.append(life)
            by_cluster[cluster] = life
        life.processes.append(process)
    lives.sort(key=lambda life: life.start or datetime.min)
    _tell_refused(lives)
    return lives


def _by_time(lives: Sequence[DagmanRun], process: Process) -> DagmanRun | None:
    """The life of a process that does not name its cluster: the job that was in the queue then;
    without a log a recovery goes on with the life before it."""
    for life in reversed(lives):
        if life.job is None:
            if life.cluster is None:
                return life if process.recovery else None
        elif process.start is None or life.job.start is None or life.job.start <= process.start:
            end = life.job.end
            inside = process.start is None or end is None or process.start <= end
            return life if inside else None
    return None


def _tell_refused(lives: Sequence[DagmanRun]) -> None:
    """Which lives found that another one runs; each other one that ran is the end of those
    before it, whatever their logs have lost."""
    before: DagmanRun | None = None
    for life in lives:
        life.refused = any(process.refused for process in life.processes) or (
            before is not None and _ended_at_once(life) and _goes_on(before, life)
        )
        if life.refused or not life.ran:
            continue
        if before is not None:
            before.superseded = life.start
        before = life


def _ended_at_once(life: DagmanRun) -> bool:
    """Did it end with an error as soon as a DAGMan does that another one keeps from its work? Not
    all find the lock file: where the other's process is not to be seen (another machine, a
    container), it recovers, and ends because the jobs in its log are not its own."""
    job = life.job
    if job is None or job.end is None or job.start is None:
        return False
    return job.return_value == 1 and job.end - job.start <= PROMPT


def _goes_on(life: DagmanRun, other: DagmanRun) -> bool:
    """Was it in the queue when the other one ended, by its log where that tells of it?"""
    over, moment = life.over, other.end
    return over is None or (moment is not None and over > moment)


def newest_of(lives: Sequence[DagmanRun]) -> DagmanRun | None:
    """The life that the DAG is: the one that is alive, else the one that ended last."""
    counted = [life for life in lives if not life.refused]
    ran = [life for life in counted if life.ran]
    if not ran:
        return counted[-1] if counted else None
    if not ran[-1].ended:
        return ran[-1]
    # Submitted again, and still waiting for its first process.
    waiting = [life for life in counted if not life.ran and not life.ended]
    if waiting and counted.index(waiting[-1]) > counted.index(ran[-1]):
        return waiting[-1]
    ended = [life for life in ran if life.ended]
    return max(ended, key=lambda life: life.end or datetime.min)
