"""DAGMan runs of a DAG: one for each cluster of DAGMan's own job.

The schedd starts a process for the job, and another one after a restart of the schedd, after
the job's release, or after a process ended with a status that requests it. ``.dagman.log`` has
the events of the job, ``.dagman.out`` the messages of its processes. Runs overlap: a DAG can be
submitted while an older DAGMan runs, and that may be removed after the next submission.

Sources followed: ``main_shutdown_graceful`` and the lock file's check in ``dagman_main.cpp``;
``on_exit_remove`` as ``condor_submit_dag`` writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

from msgspec import Struct, field

from metlmon.eventlog.events import Aborted, Event, Held, Submit, Terminated, redact_and_truncate
from metlmon.model.states import DagState

MAX_FINAL_STATUS: Final = 2
"""Exit statuses of DAGMan from 0 to this remove its job from the queue; after any other, or
after an EXCEPT, which has no status, the schedd starts it again."""

LOCK_CHECK_LIMIT: Final = timedelta(seconds=60)
"""A DAGMan that finds another one's lock file ends within this: it only reads its DAG."""

MIN_CRASHES: Final = 2
"""Crashes in a row, with the same message, after which DAGMan will not get any further."""

KILLED: Final = "it was killed, or ended without a message"
MIN_KILLS: Final = 3
SHORT_LIFE: Final = timedelta(minutes=5)
"""A schedd that restarts kills its DAGMans as well, but not three times within minutes."""


def is_restart_status(status: int | None) -> bool:
    """Whether the schedd starts DAGMan again after this exit status; None: an EXCEPT."""
    return status is None or not 0 <= status <= MAX_FINAL_STATUS


class Process(Struct):
    """One process of DAGMan, as reported in ``.dagman.out``.

    ``cluster``: None when not reported. ``rescue``: the rescue file that it began with, ``wrote``:
    the one that it wrote. ``refused``: it ended because another DAGMan runs.
    ``aborted``: a node returned its ABORT-DAG-ON value. ``total``: DAGMan's number of nodes.
    ``last``: its newest message. ``crash``: the message of the EXCEPT that ended it.
    ``log_error``: when it last failed to read an event. ``bad_events``: the first event that
    contradicts earlier ones, and the number of these.
    """

    start: datetime | None
    cluster: int | None = None
    recovery: bool = False
    pre_completed: int | None = None
    rescue: str | None = None
    wrote: str | None = None
    end: datetime | None = None
    status: int | None = None
    ended: bool = False
    removed: bool = False
    error: str | None = None
    refused: bool = False
    aborted: bool = False
    total: int | None = None
    last: datetime | None = None
    crash: str | None = None
    log_error: datetime | None = None
    bad_events: tuple[str, int] | None = None

    @property
    def lifetime(self) -> timedelta:
        """From its first to its newest message."""
        return self.last - self.start if self.last and self.start else timedelta()

    def note_successor(self) -> None:
        """Record that another process of its job was started after it."""
        if not self.ended and self.lifetime < SHORT_LIFE:
            self.crash = KILLED

    @property
    def restarts(self) -> bool:
        """Whether the schedd will start another process after its exit."""
        return self.ended and is_restart_status(self.status)


class CrashLoop(Struct, frozen=True):
    """Processes of DAGMan that crash one after the other, at the same place.

    ``message``: that of the EXCEPT; ``since``: the end of the first of these ``number`` processes.
    """

    message: str
    number: int
    since: datetime | None


class DagmanHold(Struct, frozen=True):
    """Why DAGMan's own job is on hold (event 012)."""

    time: datetime
    reason: str | None
    code: int | None
    subcode: int | None


class DagmanJob(Struct):
    """DAGMan's own job, as logged in ``.dagman.log``.

    ``last_execute``: its newest 001. ``stopped_at``: the first 004, 012 or 013 after that.
    ``removal``: the reason of its removal (event 009). ``restarts``: the time of each 001 without a
    004 before it: the schedd was restarted, and has started DAGMan again. ``hold``: the one that
    lasts; ``holds``: all of them, and when each was released. ``by_user``: not by another DAGMan.
    """

    cluster: int
    start: datetime | None
    last_execute: datetime | None = None
    stopped_at: datetime | None = None
    hold: DagmanHold | None = None
    end: datetime | None = None
    removed: bool = False
    return_value: int | None = None
    removal: str | None = None
    restarts: list[datetime] = field(default_factory=list)
    holds: list[tuple[DagmanHold, datetime | None]] = field(default_factory=list)
    by_user: bool = False

    def add(self, event: Event) -> None:
        """Apply an event of the job; a restart of the schedd repeats the 001."""
        match event.number:
            case 0 if isinstance(event.detail, Submit) and not event.damaged:
                self.by_user = event.detail.node is None
            case 1:
                if self.last_execute is not None and self.stopped_at is None:
                    self.restarts.append(event.time)
                self.last_execute, self.stopped_at = event.time, None
                self._end_hold(event.time)
            case 4:
                self.stopped_at = self.stopped_at or event.time
            case 5:
                self.end = event.time
                if isinstance(event.detail, Terminated):
                    self.return_value = event.detail.return_value
            case 9:
                self.end, self.removed = event.time, True
                if isinstance(event.detail, Aborted) and event.detail.reason:
                    self.removal = redact_and_truncate(event.detail.reason)
            case 12:
                self.stopped_at = self.stopped_at or event.time
                self._end_hold(event.time)
                held = event.detail if isinstance(event.detail, Held) else None
                self.hold = DagmanHold(
                    event.time,
                    redact_and_truncate(held.reason) if held and held.reason else None,
                    held.code if held else None,
                    held.subcode if held else None,
                )
                self.holds.append((self.hold, None))
            case 13 if self.hold is not None:
                # The schedd may log the 001 of a released job first: then it is running.
                self.stopped_at = self.stopped_at or event.time
                self._end_hold(event.time)

    def _end_hold(self, time: datetime) -> None:
        if self.hold is not None:
            self.holds[-1], self.hold = (self.hold, time), None


def add_dagman_event(jobs: list[DagmanJob], event: Event) -> None:
    """Apply an event of ``.dagman.log`` to its job in ``jobs``, appended if it is new."""
    for job in reversed(jobs):
        if job.cluster == event.cluster:
            break
    else:
        job = DagmanJob(event.cluster, event.time)
        jobs.append(job)
    job.add(event)


class DagmanRun(Struct):
    """One cluster of DAGMan's own job with its processes, oldest first.

    ``refused``: it ended because another DAGMan runs.
    """

    cluster: int | None
    job: DagmanJob | None = None
    processes: list[Process] = field(default_factory=list)
    refused: bool = False
    next_start: datetime | None = None
    """Start of the next run that acquired the lock file: this one had ended by then."""

    @property
    def start(self) -> datetime | None:
        """Start of its first process, else its submission."""
        starts = (p.start for p in self.processes if p.start is not None)
        return next(starts, self.job.start if self.job is not None else None)

    @property
    def was_started(self) -> bool:
        """Whether any of its processes was started."""
        return bool(self.processes) or (self.job is not None and self.job.last_execute is not None)

    @property
    def removed(self) -> bool:
        """Whether its newest process was asked to remove its jobs and exit."""
        return bool(self.processes) and self.processes[-1].removed

    @property
    def ended(self) -> bool:
        """Whether it has left the queue, by its log or its output."""
        return self._job_ended or self._last_exited

    @property
    def end(self) -> datetime | None:
        """When it left the queue, by its log or its output."""
        if self.job is not None and self.job.end is not None:
            return self.job.end
        return self.processes[-1].end if self._last_exited else None

    @property
    def ended_by(self) -> datetime | None:
        """Latest time at which it had ended: its end, else the start of its successor."""
        return self.end or self.next_start

    @property
    def interrupted(self) -> bool:
        """Whether it was removed while no process of it ran: it has written no rescue file."""
        last = self.processes[-1] if self._job_ended and self.processes else None
        return last is not None and last.restarts and last.crash is None

    @property
    def crash_loop(self) -> CrashLoop | None:
        """The newest crashes with one message, at least two in a row.

        None once a later process has lived longer than those before it did.
        """
        processes = self.processes
        alive = processes[-1] if processes and not processes[-1].ended else None
        newest_first = processes[::-1] if alive is None else processes[-2::-1]
        crashed = list(takewhile(lambda each: each.crash == newest_first[0].crash, newest_first))
        if self._job_ended or len(crashed) < MIN_CRASHES or crashed[0].crash is None:
            return None
        if crashed[0].crash == KILLED and len(crashed) < MIN_KILLS:
            return None
        longest = max(process.lifetime for process in crashed)
        if alive is not None and alive.lifetime > longest + LOCK_CHECK_LIMIT:
            return None
        return CrashLoop(crashed[0].crash, len(crashed), crashed[-1].end)

    @property
    def _job_ended(self) -> bool:
        return self.job is not None and self.job.end is not None

    @property
    def _last_exited(self) -> bool:
        process = self.processes[-1] if self.processes else None
        return (
            process is not None
            and process.ended
            and not process.restarts
            and not self._restarted_after(process)
        )

    def _restarted_after(self, process: Process) -> bool:
        """Whether another process, without any output so far, was started after ``process``."""
        executing = self.job.last_execute if self.job is not None else None
        return executing is not None and process.end is not None and executing > process.end

    def end_state(self, removed: bool = False) -> tuple[DagState, datetime | None] | None:
        """State and time of its end; None if neither log nor output has it."""
        if not self.ended:
            return None
        job = self.job if self._job_ended else None
        # Its own word: the job may be a wrapper (pegasus-dagman) that returns 0 for any end.
        status = self.processes[-1].status if self._last_exited else None
        if status is None and job is not None:
            status = job.return_value
        if removed or self.removed or (job is not None and job.removed):
            return DagState.REMOVED, self.end
        return (DagState.DONE if status == 0 else DagState.FAILED), self.end

    @property
    def hold(self) -> DagmanHold | None:
        """Its hold, while it is on hold."""
        hold = self.job.hold if self.job is not None else None
        return hold if hold is not None and not self._started_after(hold.time) else None

    def live_state(self) -> DagState:
        """State before its end: RUNNING, HELD or RESTARTING."""
        if self.hold is not None:
            return DagState.HELD
        stopped = self.job.stopped_at if self.job is not None else None
        if stopped is not None and not self._started_after(stopped):
            return DagState.RESTARTING
        last = self.processes[-1] if self.processes else None
        if last is not None and last.restarts and not self._restarted_after(last):
            return DagState.RESTARTING
        return DagState.RUNNING

    def _started_after(self, moment: datetime) -> bool:
        last = self.processes[-1].start if self.processes else None
        return last is not None and last > moment


def build_runs(jobs: Sequence[DagmanJob], processes: Sequence[Process]) -> list[DagmanRun]:
    """The DAGMan runs of these jobs and processes, in the order of their starts."""
    runs = [DagmanRun(job.cluster, job) for job in jobs]
    by_cluster = {run.cluster: run for run in runs}
    for process in processes:
        cluster = process.cluster
        run = by_cluster.get(cluster) if cluster is not None else _run_at_start(runs, process)
        if run is None:
            run = by_cluster[cluster] = DagmanRun(cluster)
            runs.append(run)
        run.processes.append(process)
    runs.sort(key=lambda run: run.start or datetime.min)
    _mark_refused(runs)
    return runs


def _run_at_start(runs: Sequence[DagmanRun], process: Process) -> DagmanRun | None:
    """The run of a process with unknown cluster: the run in the queue at its start.

    Without a log, a recovery continues the previous run.
    """
    for run in reversed(runs):
        if run.job is None:
            if run.cluster is None:
                return run if process.recovery else None
        elif process.start is None or run.job.start is None or run.job.start <= process.start:
            end = run.job.end
            in_queue = process.start is None or end is None or process.start <= end
            return run if in_queue else None
    return None


def _mark_refused(runs: Sequence[DagmanRun]) -> None:
    """Mark refused runs; every other run that started ends the previous one."""
    previous: DagmanRun | None = None
    for run in runs:
        run.refused = any(process.refused for process in run.processes) or (
            previous is not None and _ended_at_once(run) and _outlasts(previous, run)
        )
        if run.refused or not run.was_started:
            continue
        if previous is not None:
            previous.next_start = run.start
        previous = run


def _ended_at_once(run: DagmanRun) -> bool:
    """Whether it failed as quickly as a DAGMan that another one prevents from running.

    Not every one is stopped by the lock file: if the other process is invisible (on another
    machine, in a container), it recovers, and ends because the jobs in its log are not its own.
    """
    job = run.job
    if job is None or job.end is None or job.start is None:
        return False
    return job.return_value == 1 and job.end - job.start <= LOCK_CHECK_LIMIT


def _outlasts(run: DagmanRun, other: DagmanRun) -> bool:
    """Whether it was in the queue when the other one ended, by its log if that has the end."""
    run_end, other_end = run.ended_by, other.end
    return run_end is None or (other_end is not None and run_end > other_end)


def current_run(runs: Sequence[DagmanRun]) -> DagmanRun | None:
    """The run that determines the DAG's state: the live one, else the last to end."""
    accepted = [run for run in runs if not run.refused]
    started = [run for run in accepted if run.was_started]
    if not started:
        return accepted[-1] if accepted else None
    if not started[-1].ended:
        return started[-1]
    # Resubmitted, without a process so far.
    waiting = [run for run in accepted if not run.was_started and not run.ended]
    if waiting and accepted.index(waiting[-1]) > accepted.index(started[-1]):
        return waiting[-1]
    # One that was removed on hold had no process since: another run may have ended after that.
    ended = [run for run in started if run.ended]
    return max(ended, key=lambda run: (run.job and run.job.stopped_at) or run.end or datetime.min)
