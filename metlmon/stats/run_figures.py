"""What statistics add to the rows of runs, and several runs side by side.

Metrics are those of :mod:`metlmon.stats.curves`, swept variables of :mod:`metlmon.stats.sweep`. The
wall time of a run is the time from its first submission to the end of its last job.

The comparison covers the variables (VARS) of their training nodes and the arguments in
``args.txt``, except those that only identify a run or change within every run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from operator import itemgetter
from typing import ClassVar, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from metlmon.jobfiles.records import Point, TrainingOutput
from metlmon.live.feed import StatsInput
from metlmon.model.states import ALIVE
from metlmon.snapshot.records import DescribedNode, Run
from metlmon.stats.curves import Course, Curves, Goal, MetricCurve, best_curve, curve_of, curves
from metlmon.stats.sweep import SweepVariables, Value, constant_values, find_sweep
from metlmon.stats.totals import group_by

MAX_NODES: Final = 50_000
"""Number of nodes up to which swept variables are searched for unasked: it takes 0.2 s."""

NO_SWEEP: Final = SweepVariables()


class RunMetric(NamedTuple):
    """The primary metric of a run, as in its curve; ``is_best``: the best of several."""

    metric: str
    goal: Goal | None
    best: Point | None
    last: Point | None
    trend: float | None
    course: Course
    since_epoch: int | None
    is_best: bool


class RunFigures(Struct, frozen=True, dict=True):
    """The curves of the primary metric, swept variables, and wall times by run key.

    ``wall_seconds``: of runs that have ended. ``sweep``: empty where nothing is swept.
    """

    curves: Curves
    sweep: SweepVariables
    wall_seconds: Mapping[str, float]

    @cached_property
    def by_run(self) -> Mapping[str, MetricCurve]:
        """The curves with values, by run key."""
        return {curve.key: curve for curve in self.curves.curves_with_values}

    @cached_property
    def best(self) -> str | None:
        """Key of the run with the best value, if several runs have one."""
        known = [curve for curve in self.curves.runs if curve.best is not None]
        best = self.curves.best
        return best.key if best is not None and len(known) > 1 else None

    @cached_property
    def swept_names(self) -> tuple[str, ...]:
        """The swept variables, the most distinctive axes first."""
        return tuple(name for axis in self.sweep.axes for name in axis.names)

    def metric(self, run: str) -> RunMetric | None:
        """The primary metric of a run; None if no training wrote one."""
        curve = self.by_run.get(run)
        if curve is None:
            return None
        return RunMetric(
            metric=self.curves.metric,
            goal=curve.goal,
            best=curve.best,
            last=curve.last,
            trend=curve.trend,
            course=curve.course,
            since_epoch=curve.since_epoch,
            is_best=run == self.best,
        )

    def swept_value(self, run: str, name: str) -> Value:
        """The value of a swept variable; None if it is not set for the run."""
        return self.sweep.values(run, (name,))[0] if run in self.sweep.runs else None


def run_figures(stats_input: StatsInput) -> RunFigures:
    """The figures of all runs."""
    # Without progress lines, which change every few seconds: rows take them from elsewhere.
    files = replace(stats_input.job_files, streams={})
    metric_curves = curves(replace(stats_input, job_files=files))
    nodes = sum(stats_input.status.node_states.values())
    sweep = find_sweep(stats_input.load_description().nodes) if nodes <= MAX_NODES else NO_SWEEP
    return RunFigures(metric_curves, sweep, wall_seconds(stats_input))


def wall_seconds(stats_input: StatsInput) -> dict[str, float]:
    """The wall times of the runs that have ended, by run key, in seconds.

    Between two jobs a run has not ended while its DAGMan is in the queue.
    """
    ledger = stats_input.ledger
    alive = {dag.file for dag in stats_input.status.dags if dag.state in ALIVE}
    jobs = [(job.key, job) for job in ledger.jobs if job.key is not None]
    jobs += [(run, job) for run, beside in ledger.jobs_beside.items() for job in beside]
    ends: dict[str, list[datetime | None]] = {}
    for key, job in jobs:
        ends.setdefault(key, []).append(None if job.queued else job.ended)
    result = {}
    for run in stats_input.status.runs:
        if run.dag in alive and not (run.has_ended or run.stopped):
            continue
        known = [end for end in ends.get(run.key, ()) if end is not None]
        if run.began is not None and known and len(known) == len(ends[run.key]):
            result[run.key] = ledger.seconds_between(run.began, max(known))
    return result


# --- runs side by side -------------------------------------------------------------------------


IDENTITY: Final = frozenset({"run", "run_uuid", "node", "epoch"})
"""Variables that identify a run or an epoch, in lower case."""

VARIES: Final = "varies"
"""The value of a parameter that changes within a run."""


class EpochsAt(NamedTuple):
    """The completed epochs at a site, or on a GPU model; name None: unknown."""

    name: str | None
    epochs: int


class Difference(NamedTuple):
    """A parameter in which runs differ, and its values by run; None: not set."""

    name: str
    values: tuple[Value, ...]


class ComparedRun(Struct, frozen=True):
    """One of the runs.

    ``parameters``: its variables by name, its arguments by name with ``--`` before it. ``sites``
    and ``gpus``: completed epochs by the site and the GPU model of the execution that completed
    them, most first. ``wall_seconds``: None before it has ended. ``best``: of the compared runs.
    """

    json_omits: ClassVar = frozenset({"row", "curve", "wall_seconds"})

    row: Run
    curve: MetricCurve
    parameters: Mapping[str, str]
    sites: tuple[EpochsAt, ...]
    gpus: tuple[EpochsAt, ...]
    wall_seconds: float | None
    best: bool


class Comparison(Struct, frozen=True):
    """The runs in the requested order, without those that do not exist.

    ``metrics``: all metrics. ``differing``: names of the parameters in which the runs differ, with
    their values by run; ``equal``: the number of the others.
    """

    json_omits: ClassVar = frozenset({"runs", "files_read"})

    metric: str
    goal: Goal | None
    metrics: tuple[str, ...]
    runs: tuple[ComparedRun, ...]
    differing: tuple[Difference, ...]
    equal: int
    files_read: bool


def compare_runs(
    stats_input: StatsInput, runs: Sequence[str], metric: str | None = None
) -> Comparison:
    """Compare runs given by their keys; ``metric`` None: the primary one."""
    metric_curves = curves(stats_input, metric)
    rows = {row.key: row for row in stats_input.status.runs}
    keys = [key for key in dict.fromkeys(runs) if key in rows]
    by_run = {
        key: curve_of(rows[key], metric_curves.metric, metric_curves.goal, stats_input)
        for key in keys
    }
    nodes = group_by(
        (
            node
            for node in stats_input.load_description().nodes.all
            if node.training and node.key in keys
        ),
        lambda node: node.key,
    )
    parameters = {
        key: _parameters(rows[key], nodes.get(key, ()), stats_input.job_files.trainings.get(key))
        for key in keys
    }
    chosen = [each for each in by_run.values() if each.best is not None]
    best = best_curve(chosen)
    walls = wall_seconds(stats_input)
    done = [(e.key, e.success) for e in stats_input.ledger.epochs if e.counts and e.success]
    successes = group_by(done, itemgetter(0))
    differing, equal = _differences([parameters[key] for key in keys])
    return Comparison(
        metric=metric_curves.metric,
        goal=metric_curves.goal,
        metrics=metric_curves.metrics,
        runs=tuple(
            ComparedRun(
                row=rows[key],
                curve=by_run[key],
                parameters=parameters[key],
                sites=_most_common(entry.site for _, entry in successes.get(key, ())),
                gpus=_most_common(entry.gpu for _, entry in successes.get(key, ())),
                wall_seconds=walls.get(key),
                best=len(chosen) > 1 and best is by_run[key],
            )
            for key in keys
        ),
        differing=differing,
        equal=equal,
        files_read=stats_input.job_files.are_read,
    )


def _most_common(places: Iterable[str | None]) -> tuple[EpochsAt, ...]:
    return tuple(EpochsAt(*each) for each in Counter(places).most_common())


def parameters(stats_input: StatsInput, run: str) -> Mapping[str, str]:
    """The variables and arguments of a run, by name, as in :class:`ComparedRun`."""
    row = next((row for row in stats_input.status.runs if row.key == run), None)
    nodes = stats_input.load_description().nodes.all
    own = [node for node in nodes if node.training and node.key == run]
    return {} if row is None else _parameters(row, own, stats_input.job_files.trainings.get(run))


def _parameters(
    row: Run, nodes: Sequence[DescribedNode], training: TrainingOutput | None
) -> dict[str, str]:
    """Variables and arguments that do not identify the run."""
    constants, varying = constant_values(nodes)
    spelled = {name.lower(): name for node in nodes for name in node.node.vars}
    found = {
        spelled[name]: VARIES if name in varying else value
        for name, value in constants.items()
        if name not in IDENTITY
    }
    versions = training.arguments.values() if training is not None else ()
    arguments = {name for version in versions for name in version}
    for name in sorted(arguments):
        values = {version.get(name) for version in versions}
        found[f"--{name}"] = (values.pop() or "") if len(values) == 1 else VARIES
    return {
        name: value
        for name, value in found.items()
        if value != row.run and not (row.uuid and row.uuid in value)
    }


def _differences(
    parameters: Sequence[Mapping[str, str]],
) -> tuple[tuple[Difference, ...], int]:
    """The parameters in which the runs differ, and the number of those that are equal."""
    names = dict.fromkeys(name for each in parameters for name in each)
    values = {name: tuple(each.get(name) for each in parameters) for name in names}
    values = {name: each for name, each in values.items() if set(each) != {VARIES}}
    differing = tuple(Difference(name, each) for name, each in values.items() if len(set(each)) > 1)
    return differing, len(values) - len(differing)
