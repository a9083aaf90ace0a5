"""The totals of all jobs, and of each run.

Sums are in whole microseconds (times whole GPUs), so that they do not depend on the order of the
summands. All definitions are those of ``metlmon/README.md``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from metlmon.model.job_events import JobKey
from metlmon.model.states import Outcome
from metlmon.snapshot.records import Execution, GpuHours, HourUnit, Job, hour_unit_of

# Module constants, since Python 3.11 looks up each Enum member through a function.
_GOOD: Final = Outcome.GOOD
_IN_FLIGHT: Final = Outcome.IN_FLIGHT

SECOND: Final = 1_000_000
AN_HOUR: Final = 3600 * SECOND
"""An hour in microseconds, the resolution of the logs."""

UNITS: Final = (HourUnit.GPU, HourUnit.CPU, HourUnit.WALL)


class ExecutionTotals:
    """Numbers of executions, and their microseconds by outcome, for each of UNITS.

    ``executions``, ``good_executions``, ``bad_executions``: those that ended in the window of
    the entries, or are in flight; good are those that ended well or stored a checkpoint.
    ``completed``: epochs that they completed. Microseconds are 0 if the GPUs or CPUs are unknown.
    """

    __slots__ = (
        "bad",
        "bad_executions",
        "completed",
        "executions",
        "good",
        "good_executions",
        "in_flight",
    )

    def __init__(self) -> None:
        self.executions = self.good_executions = self.bad_executions = self.completed = 0
        self.good = [0] * len(UNITS)
        self.bad = [0] * len(UNITS)
        self.in_flight = [0] * len(UNITS)

    def add(self, entry: Execution) -> None:
        """Add an execution."""
        seconds, outcome = entry.seconds, entry.outcome
        wall = round(seconds * SECOND)
        gpu = round((entry.gpu_seconds or 0.0) * SECOND)
        cpu = wall * (entry.cpus or 0)
        good = ended = True
        if outcome is _GOOD:
            sums = self.good
        elif outcome is _IN_FLIGHT:
            sums, good, ended = self.in_flight, False, False
        elif entry.checkpoint is None:
            sums, good = self.bad, False
        else:
            sums = self.good
            lost = round(entry.lost * SECOND)
            lost_gpu, lost_cpu = lost * (entry.gpus or 0), lost * (entry.cpus or 0)
            self.bad[0] += lost_gpu
            self.bad[1] += lost_cpu
            self.bad[2] += lost
            gpu, cpu, wall = gpu - lost_gpu, cpu - lost_cpu, wall - lost
        sums[0] += gpu
        sums[1] += cpu
        sums[2] += wall
        if entry.counted:
            self.executions += 1
            self.good_executions += good
            self.bad_executions += ended and not good
            self.completed += entry.final

    def merge(self, other: ExecutionTotals) -> None:
        """Add the totals of other executions."""
        self.executions += other.executions
        self.good_executions += other.good_executions
        self.bad_executions += other.bad_executions
        self.completed += other.completed
        for index in range(len(UNITS)):
            self.good[index] += other.good[index]
            self.bad[index] += other.bad[index]
            self.in_flight[index] += other.in_flight[index]

    def hours(self, unit: HourUnit) -> GpuHours:
        """Hours of ``unit``."""
        index = UNITS.index(unit)
        good, bad, in_flight = self.good[index], self.bad[index], self.in_flight[index]
        return GpuHours(good / AN_HOUR, bad / AN_HOUR, in_flight / AN_HOUR, unit)


class Totals:
    """The totals of jobs, from their entries in order.

    ``queued``: the jobs in the queue. ``gaps``: those whose log lacks events.
    """

    def __init__(self, jobs: Sequence[tuple[JobKey, Job]] = ()) -> None:
        self.total = ExecutionTotals()
        self.runs: defaultdict[str | None, ExecutionTotals] = defaultdict(ExecutionTotals)
        self.queued: list[JobKey] = []
        self.gaps: list[JobKey] = []
        self._with_gpus = self._with_cpus = 0
        # One pass that reads every record once: most of the time goes into fetching them.
        for key, job in jobs:
            if job.ended is None and job.queued:
                self.queued.append(key)
            if job.gaps:
                self.gaps.append(key)
            for entry in job.executions:
                # Time at the access point is not charged.
                if not entry.at_access_point:
                    self.runs[entry.key].add(entry)
                    self._with_gpus += bool(entry.gpus)
                    self._with_cpus += entry.cpus is not None
        for of_run in self.runs.values():
            self.total.merge(of_run)

    def merge(self, other: Totals) -> None:
        """Add the totals of other jobs."""
        self.total.merge(other.total)
        for run, of_run in other.runs.items():
            self.runs[run].merge(of_run)
        self.queued += other.queued
        self.gaps += other.gaps
        self._with_gpus += other._with_gpus
        self._with_cpus += other._with_cpus

    @property
    def hour_unit(self) -> HourUnit:
        """The unit of the hours."""
        return hour_unit_of(self.total.executions, self._with_gpus, self._with_cpus)
