"""Several runs side by side: what they were given, what they reached, what they cost.

Compared are the variables (VARS) of their training nodes and the arguments in ``args.txt``, without
those that only identify a run or change within each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import ClassVar, Final, NamedTuple

from msgspec import Struct

from metlmon.jobfiles.records import TrainingOutput
from metlmon.live.feed import StatsInput
from metlmon.snapshot.records import DescribedNode, Run
from metlmon.stats.curves import Goal, MetricCurve, curve_of, curves
from metlmon.stats.run_figures import wall_seconds
from metlmon.stats.sweep import Value, constant_values
from metlmon.stats.totals import group_by

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
    them, most first. ``wall_seconds``: None while a job is queued. ``best``: of the compared runs.
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
    """The runs in the order in which they were asked for, without those that there are not.

    ``metrics``: all metrics. ``differing``: names of the parameters in which the runs differ, and
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


@cache
def comparison_stat(
    runs: tuple[str, ...], metric: str | None
) -> Callable[[StatsInput], Comparison]:
    """The statistic of these runs and this metric, as one function for each choice."""
    return partial(compare_runs, runs=runs, metric=metric)


def compare_runs(
    stats_input: StatsInput, runs: Sequence[str], metric: str | None = None
) -> Comparison:
    """Compare runs by their keys; ``metric`` None: the primary one."""
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
            if node.training and node.run in keys
        ),
        lambda node: node.run,
    )
    parameters = {
        key: _parameters(rows[key], nodes.get(key, ()), stats_input.trainings.get(key))
        for key in keys
    }
    chosen = [by_run[key] for key in keys if by_run[key].best is not None]
    sign = -1.0 if metric_curves.goal == "max" else 1.0
    best = min(chosen, key=lambda c: sign * c.best.value if c.best else 0.0, default=None)
    walls = wall_seconds(stats_input.ledger)
    sites, gpus = _completed_epochs(stats_input, keys)
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
                sites=tuple(EpochsAt(*each) for each in sites[key].most_common()),
                gpus=tuple(EpochsAt(*each) for each in gpus[key].most_common()),
                wall_seconds=walls.get(key),
                best=len(chosen) > 1 and best is by_run[key],
            )
            for key in keys
        ),
        differing=differing,
        equal=equal,
        files_read=stats_input.files_read,
    )


def _completed_epochs(
    stats_input: StatsInput, keys: Sequence[str]
) -> tuple[dict[str, Counter[str | None]], dict[str, Counter[str | None]]]:
    """The numbers of completed epochs by run, and by site or GPU model."""
    sites: dict[str, Counter[str | None]] = {key: Counter() for key in keys}
    gpus: dict[str, Counter[str | None]] = {key: Counter() for key in keys}
    for epoch in stats_input.ledger.epochs:
        if epoch.run in sites and epoch.counts and epoch.success is not None:
            sites[epoch.run][epoch.success.site] += 1
            gpus[epoch.run][epoch.success.gpu] += 1
    return sites, gpus


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
        if value != row.name and not (row.uuid and row.uuid in value)
    }


def _differences(
    parameters: Sequence[Mapping[str, str]],
) -> tuple[tuple[Difference, ...], int]:
    """The parameters in which runs differ, and the number of those in which they do not."""
    names = dict.fromkeys(name for each in parameters for name in each)
    values = {name: tuple(each.get(name) for each in parameters) for name in names}
    values = {name: each for name, each in values.items() if set(each) != {VARIES}}
    differing = tuple(Difference(name, each) for name, each in values.items() if len(set(each)) > 1)
    return differing, len(values) - len(differing)
