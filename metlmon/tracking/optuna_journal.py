"""A sweep as an Optuna study, in the format of Optuna's journal files: one trial for each run.

It is written by ``optuna.storages.JournalStorage`` with a backend that keeps the lines in memory:
Optuna's own backend locks the file by creating another one beside it. Times in an unknown zone are
taken to be in this machine's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from metlmon.live.feed import StatsInput
from metlmon.model.states import LOST, OVER
from metlmon.stats.sweep import CellRun, Grid, Variable
from metlmon.stats.totals import group_by

WORKER: Final = "metlmon"
"""Writer of all lines: Optuna uses a name per process, but a rewritten file should not change."""

METRIC_NAMES: Final = "study:metric_names"
"""The attribute in which Optuna stores the names of a study's values."""

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,15}")
"""An integer that a float represents exactly, as journals require."""

_DECIMAL_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def distribution_of(variable: Variable) -> BaseDistribution:
    """From the smallest to the largest value if all are numbers, else the choices."""
    values = [value for value in variable.values if value is not None]
    numbers = [float(value) for value in values if _DECIMAL_NUMBER.fullmatch(value)]
    if len(numbers) < len(values) or not all(map(math.isfinite, numbers)):
        return CategoricalDistribution(values)
    if all(map(_WHOLE_NUMBER.fullmatch, values)):
        return IntDistribution(int(min(numbers)), int(max(numbers)))
    return FloatDistribution(min(numbers), max(numbers))


def typed_value(distribution: BaseDistribution, value: str) -> int | float | str:
    """A value of a swept variable, of the type of its distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return value
    return int(value) if isinstance(distribution, IntDistribution) else float(value)


class _Lines(BaseJournalBackend):
    """A journal in memory."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        return self.records[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self.records += logs

    def text(self) -> str:
        # NaN and Infinity as Python's json module writes them, which is what Optuna does.
        lines = [{**record, "worker_id": WORKER} for record in self.records]
        return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def study_journal(
    sweep: Grid, stats: StatsInput, name: str, stamp: Callable[[datetime], datetime]
) -> str:
    """The text of a journal with one study, of a sweep whose metric has a goal.

    ``name``: that of the study. ``stamp``: adds the zone to a time of the logs, if it is known.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    lines = _Lines()
    storage = JournalStorage(lines)
    direction = StudyDirection.MAXIMIZE if sweep.goal == "max" else StudyDirection.MINIMIZE
    study = storage.create_new_study([direction], name)
    storage.set_study_system_attr(study, METRIC_NAMES, [sweep.metric])
    runs = {run.entry.key: run for cell in sweep.cells.values() for run in cell.runs}
    trials = _Trials(sweep, stats, stamp)
    for entry in stats.ledger.runs:
        if entry.key in runs:
            storage.create_new_trial(study, trials.trial(runs[entry.key]))
    return lines.text()


class _Trials:
    """What the trials of a sweep are made from, by run key."""

    def __init__(
        self, sweep: Grid, stats: StatsInput, stamp: Callable[[datetime], datetime]
    ) -> None:
        self._values, self._stamp = sweep.sweep.runs, stamp
        self._distributions = [
            (variable.name, distribution_of(variable)) for variable in sweep.sweep.variables
        ]
        self._dags = {dag.file: dag.state for dag in stats.status.dags}
        self._jobs = group_by(stats.ledger.jobs, lambda job: job.key)
        self._executions = group_by(stats.ledger.executions, lambda execution: execution.key)

    def trial(self, run: CellRun) -> FrozenTrial:
        """The trial of a run; Optuna numbers it."""
        entry, state = run.entry, self._state(run)
        ends = [job.ended for job in self._jobs.get(entry.key, ()) if job.ended is not None]
        ranked = state in (TrialState.COMPLETE, TrialState.PRUNED)
        swept = {
            name: (distribution, typed_value(distribution, value))
            for (name, distribution), value in zip(
                self._distributions, self._values[entry.key], strict=True
            )
            if value is not None
        }
        return FrozenTrial(
            number=-1,
            trial_id=-1,
            state=state,
            value=run.reached.value if ranked and run.reached is not None else None,
            datetime_start=self._time(entry.began),
            datetime_complete=self._time(max(ends, default=None)) if state.is_finished() else None,
            params={name: value for name, (_, value) in swept.items()},
            distributions={name: distribution for name, (distribution, _) in swept.items()},
            user_attrs=self._user_attributes(run),
            system_attrs={},
            intermediate_values={point.epoch: point.value for point in run.curve.points},
        )

    def _time(self, time: datetime | None) -> datetime | None:
        return None if time is None else self._stamp(time)

    def _state(self, run: CellRun) -> TrialState:
        if run.stopped is not None:
            return TrialState.PRUNED
        if run.is_finished:
            # An Optuna trial without a finite value cannot be complete.
            return TrialState.COMPLETE if run.reached is not None else TrialState.FAIL
        if run.entry.state in OVER or self._dags.get(run.entry.dag) in LOST:
            return TrialState.FAIL
        return TrialState.WAITING if run.entry.began is None else TrialState.RUNNING

    def _user_attributes(self, run: CellRun) -> dict[str, Any]:
        entry, hours = run.entry, run.entry.hours
        unit = f"{hours.measure.lower()}_hours"
        executions = self._executions.get(entry.key, ())
        return {
            "run": entry.run,
            "uuid": entry.uuid,
            "state": run.state,
            "stopped": run.stopped,
            "epochs_done": entry.epochs_done,
            "epochs_total": entry.epochs_total,
            "sites": sorted({each.site for each in executions if each.site is not None}),
            f"goodput_{unit}": round(hours.goodput, 6),
            f"badput_{unit}": round(hours.badput, 6),
        }
