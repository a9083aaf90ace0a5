"""A sweep as an Optuna study, in the format of Optuna's journal files.

One trial for each run. Optuna is not needed to write it. Sources followed: ``JournalStorage``
and ``JournalFileBackend`` in ``optuna/storages/journal``, ``FrozenTrial._validate`` in
``optuna/trial/_frozen.py``, ``distribution_to_json`` in ``optuna/distributions.py``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from enum import IntEnum
from typing import Any, Final, NamedTuple

from metlmon.live.feed import StatsInput
from metlmon.model.states import DagState, State
from metlmon.snapshot.records import Execution, Job
from metlmon.stats.sweep import CellRun, Grid, Variable
from metlmon.stats.totals import group_by

WORKER: Final = "metlmon"
"""Who wrote the lines; a process that continues the study is another worker."""

METRIC_NAMES: Final = "study:metric_names"
"""The attribute in which Optuna stores the names of a study's values."""

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,15}")
"""An integer that a float represents exactly, as journals need it."""

_DECIMAL_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")

LOST_STATES: Final = frozenset({State.FAILED, State.REMOVED, State.FUTILE})
LOST_DAGS: Final = frozenset({DagState.FAILED, DagState.REMOVED})
"""States of runs and of their DAGs in which no further epoch is trained."""


class JournalOperation(IntEnum):
    """Codes of Optuna's operations."""

    CREATE_STUDY = 0
    SET_STUDY_SYSTEM_ATTR = 3
    CREATE_TRIAL = 4


class TrialState(IntEnum):
    """Codes of Optuna's states of trials."""

    RUNNING = 0
    COMPLETE = 1
    PRUNED = 2
    FAIL = 3
    WAITING = 4


class SweptDistribution(NamedTuple):
    """The values that a swept variable has: its kind in Optuna, and that kind's attributes."""

    kind: str
    attributes: dict[str, Any]

    def json(self) -> str:
        return json.dumps({"name": f"{self.kind}Distribution", "attributes": self.attributes})

    def stored(self, value: str) -> float:
        """A value as journals store it: a number, or the index of a choice."""
        if self.kind == "Categorical":
            return float(self.attributes["choices"].index(value))
        return float(value)


def distribution_of(variable: Variable) -> SweptDistribution:
    """From the smallest value to the largest where all are numbers, else the choices."""
    values = [value for value in variable.values if value is not None]
    numbers = [float(value) for value in values if _DECIMAL_NUMBER.fullmatch(value)]
    if len(numbers) < len(values) or not all(map(math.isfinite, numbers)):
        return SweptDistribution("Categorical", {"choices": values})
    low, high = min(numbers), max(numbers)
    if all(map(_WHOLE_NUMBER.fullmatch, values)):
        limits = {"low": int(low), "high": int(high)}
        return SweptDistribution("Int", {"log": False, "step": 1, **limits})
    return SweptDistribution("Float", {"step": None, "low": low, "high": high, "log": False})


def study_lines(
    sweep: Grid, stats: StatsInput, name: str, stamp: Callable[[datetime], datetime]
) -> Iterator[str]:
    """The lines of a journal with one study, of a sweep whose metric has a goal.

    ``name``: of the study. ``stamp``: adds the zone to a time of the logs, where one is known.
    """
    direction = 2 if sweep.goal == "max" else 1
    yield _line(JournalOperation.CREATE_STUDY, study_name=name, directions=[direction])
    names = {METRIC_NAMES: [sweep.metric]}
    yield _line(JournalOperation.SET_STUDY_SYSTEM_ATTR, study_id=0, system_attr=names)
    study = _Study(sweep, stats, stamp)
    for entry in stats.ledger.runs:
        if entry.key in study.runs:
            yield _line(JournalOperation.CREATE_TRIAL, study_id=0, **study.trial(entry.key))


def _line(operation: JournalOperation, **fields: Any) -> str:
    # NaN and Infinity as Python's json has them: Optuna writes and reads them so.
    record = {"op_code": operation, "worker_id": WORKER, **fields}
    return json.dumps(record, separators=(",", ":")) + "\n"


class _Study:
    """What the trials of a sweep are made from, by run key."""

    def __init__(
        self, sweep: Grid, stats: StatsInput, stamp: Callable[[datetime], datetime]
    ) -> None:
        self.runs = {run.entry.key: run for cell in sweep.cells.values() for run in cell.runs}
        self._sweep, self._stamp = sweep.sweep, stamp
        self._distributions = [distribution_of(each) for each in sweep.sweep.variables]
        self._dags = {dag.file: dag.state for dag in stats.status.dags}
        self._jobs = group_by(stats.ledger.jobs, lambda job: job.run)
        self._executions = group_by(stats.ledger.executions, lambda execution: execution.run)

    def trial(self, key: str) -> dict[str, Any]:
        """The fields of a trial."""
        run = self.runs[key]
        state = self._state(run)
        valued = state in (TrialState.COMPLETE, TrialState.PRUNED) and run.value is not None
        began = run.entry.began
        fields: dict[str, Any] = {
            "datetime_start": None if began is None else self._text(began),
            "state": state,
            "value": run.value.value if valued and run.value is not None else None,
            "values": None,
        }
        ended = _last_end(self._jobs.get(key, ()))
        if state not in (TrialState.RUNNING, TrialState.WAITING) and ended is not None:
            fields["datetime_complete"] = self._text(ended)
        swept = [
            (variable.name, distribution, value)
            for variable, distribution, value in zip(
                self._sweep.variables, self._distributions, self._sweep.runs[key], strict=True
            )
            if value is not None
        ]
        return {
            **fields,
            "distributions": {name: distribution.json() for name, distribution, _ in swept},
            "params": {name: distribution.stored(value) for name, distribution, value in swept},
            "user_attrs": self._user_attributes(run),
            "system_attrs": {},
            "intermediate_values": {point.epoch: point.value for point in run.curve.points},
        }

    def _state(self, run: CellRun) -> TrialState:
        if run.stopped is not None:
            return TrialState.PRUNED
        if run.is_finished:
            # Optuna has no complete trial without a finite value.
            return TrialState.COMPLETE if run.value is not None else TrialState.FAIL
        if run.entry.state in LOST_STATES or self._dags.get(run.entry.dag) in LOST_DAGS:
            return TrialState.FAIL
        return TrialState.WAITING if run.entry.began is None else TrialState.RUNNING

    def _user_attributes(self, run: CellRun) -> dict[str, Any]:
        entry, hours = run.entry, run.entry.gpu_hours
        unit = f"{hours.measure.lower()}_hours"
        return {
            "run": entry.name,
            "uuid": entry.uuid,
            "state": run.state,
            "stopped": run.stopped,
            "epochs_done": entry.epochs_done,
            "epochs_total": entry.epochs_total,
            "sites": _sites(self._executions.get(entry.key, ())),
            f"goodput_{unit}": round(hours.goodput, 6),
            f"badput_{unit}": round(hours.badput, 6),
        }

    def _text(self, time: datetime) -> str:
        return self._stamp(time).isoformat(timespec="microseconds")


def _last_end(jobs: Iterable[Job]) -> datetime | None:
    return max((job.ended for job in jobs if job.ended is not None), default=None)


def _sites(executions: Iterable[Execution]) -> list[str]:
    return sorted({each.site for each in executions if each.site is not None})
