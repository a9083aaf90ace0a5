"""Sweeps: swept variables, and a grid of two with progress and best per cell.

Swept variables are VARS that are constant within a run and differ between runs, by the nodes of
the DAG files alone. Macro names are case-insensitive, as in HTCondor (manual: "Submit File
Macros"). Metrics and goals are those of :mod:`metlmon.stats.curves`. Variables that are neither
rows nor columns are folded (a cell has the best over them) or fixed at a value.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import ClassVar, Final, NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from metlmon.jobfiles.records import Point as Reached
from metlmon.live.feed import StatsInput
from metlmon.model.states import ACTIVE, TROUBLE, URGENCY, State
from metlmon.snapshot.records import DescribedNode, Nodes, Run
from metlmon.stats.curves import Course, Goal, MetricCurve
from metlmon.stats.curves import curves as curves_in
from metlmon.stats.totals import group_by
from metlmon.text.record_json import Flat

RESERVED: Final = frozenset(
    """
    run run_uuid node epoch epochs random_seed resourcename gpumodel continue_from_checkpoint
    """.split()
)
"""Variables that identify the run, epoch, site or GPU, in lower case; never swept."""

Value: TypeAlias = str | None
"""The value of a variable for a run; None: not set."""

Point: TypeAlias = tuple[Value, ...]
"""The values of several variables."""


ACTIVE_STATES: Final = ACTIVE - {State.IDLE, State.HELD} | {State.PRE, State.POST}


class Variable(Struct, frozen=True):
    """A swept variable: ``name`` in its first spelling, and its sorted ``values``."""

    name: str
    values: tuple[Value, ...]


class Axis(Struct, frozen=True):
    """One variable, or several that vary together (a zip); ``points`` are sorted."""

    names: tuple[str, ...]
    points: tuple[Point, ...]


class SweepVariables(Struct, frozen=True):
    """The swept ``variables`` of an ensemble, in the order of the DAG.

    ``axes``: the variables grouped into axes, the most distinctive first. ``runs``: the values
    of the variables by run key.
    """

    json_omits: ClassVar = frozenset({"axes", "runs"})

    variables: tuple[Variable, ...] = ()
    axes: tuple[Axis, ...] = ()
    runs: Mapping[str, Point] = field(default_factory=dict)

    def axis(self, names: Sequence[str]) -> Axis:
        """The axis of the named variables."""
        indices = self._indices(names)
        points = {tuple(point[i] for i in indices) for point in self.runs.values()}
        ordered = sorted(points, key=lambda point: tuple(map(value_order, point)))
        return Axis(tuple(names), tuple(ordered))

    def values(self, run: str, names: Sequence[str]) -> Point:
        """The values of the named variables for a run."""
        return tuple(self.runs[run][i] for i in self._indices(names))

    def _indices(self, names: Sequence[str]) -> list[int]:
        known = [variable.name for variable in self.variables]
        return [known.index(name) for name in names]

    def find_name(self, name: str) -> str | None:
        """A variable's name in the spelling of the DAG; None if it is not swept."""
        wanted = name.lower()
        return next((v.name for v in self.variables if v.name.lower() == wanted), None)


@lru_cache(4)
def find_sweep(nodes: Nodes) -> SweepVariables:
    """Find the variables in which the runs of the nodes differ."""
    trainings = [node for node in nodes.all if node.key is not None and node.training]
    runs = group_by(trainings, lambda node: node.key or "")
    names: dict[str, str] = {}
    for node in trainings:
        for name in node.node.vars:
            names.setdefault(name.lower(), name)
    run_values: dict[str, dict[str, str]] = {}
    excluded = set(RESERVED)
    for run, run_nodes in runs.items():
        run_values[run], varying = constant_values(run_nodes)
        excluded |= varying
    swept_names = [
        name
        for name in names
        if name not in excluded
        and len({values.get(name) for values in run_values.values()}) > 1
        and not _identifies_run(name, run_values, runs)
    ]
    points = {
        run: tuple(values.get(name) for name in swept_names) for run, values in run_values.items()
    }
    variables = tuple(
        Variable(names[name], tuple(sorted({p[i] for p in points.values()}, key=value_order)))
        for i, name in enumerate(swept_names)
    )
    return SweepVariables(variables, _axes(SweepVariables(variables, (), points)), points)


def constant_values(nodes: Iterable[DescribedNode]) -> tuple[dict[str, str], set[str]]:
    """The variables of a run by lower-case name, and the names that vary within it."""
    constants: dict[str, str] = {}
    varies: set[str] = set()
    for node in nodes:
        for name, value in node.node.vars.items():
            if constants.setdefault(name.lower(), value) != value:
                varies.add(name.lower())
    return constants, varies


def _identifies_run(
    name: str,
    run_values: Mapping[str, Mapping[str, str]],
    runs: Mapping[str, Sequence[DescribedNode]],
) -> bool:
    """Whether the variable only identifies the run, by its name or uuid."""

    def identifies(value: str | None, node: DescribedNode) -> bool:
        has_uuid = value is not None and node.uuid is not None and node.uuid in value
        return has_uuid or value == node.run

    return all(identifies(values.get(name), runs[run][0]) for run, values in run_values.items())


def _axes(sweep: SweepVariables) -> tuple[Axis, ...]:
    """Group variables that vary together; axes that are unique per run come last."""

    def points(*names: str) -> int:
        return len(sweep.axis(names).points)

    groups: list[list[str]] = []
    for name in (variable.name for variable in sweep.variables):
        for group in groups:
            if points(group[0], name) == points(group[0]) == points(name):
                group.append(name)
                break
        else:
            groups.append([name])
    axes = (sweep.axis(group) for group in groups)
    return tuple(sorted(axes, key=lambda axis: len(axis.points) == len(sweep.runs)))


def choices(sweep: SweepVariables) -> list[tuple[Axis, Axis | None]]:
    """Possible rows and columns: all pairs of axes, that with more points as rows."""
    if len(sweep.axes) == 1:
        single = [sweep.axis((name,)) for name in sweep.axes[0].names]
        return [(sweep.axes[0], None), *combinations(single, 2)]
    return [
        (one, other) if len(one.points) >= len(other.points) else (other, one)
        for one, other in combinations(sweep.axes, 2)
    ]


# --- order ----------------------------------------------------------------------------------

_NUMBER: Final = re.compile(r"[+-]?(\d++\.?\d*+|\.\d++)([eE][+-]?\d{1,4})?")
_DIGITS: Final = re.compile(r"(\d+)")

MAX_NUMBER_LENGTH: Final = 60
"""Maximum characters of a number: longer ones are identifiers."""

Order: TypeAlias = tuple[int, float, tuple[tuple[int, int, str], ...], str]


def value_order(value: Value) -> Order:
    """Sort key: numbers, then text in natural order (``b2``, ``b10``), then unset."""
    if value is None:
        return 2, 0.0, (), ""
    text = value.strip()
    if len(text) <= MAX_NUMBER_LENGTH and _NUMBER.fullmatch(text):
        return 0, float(text), (), value
    parts = _DIGITS.split(text.casefold()[:MAX_NUMBER_LENGTH])
    # Every second part consists of digits.
    natural = tuple((1, int(p), "") if i % 2 else (0, 0, p) for i, p in enumerate(parts))
    return 1, 0.0, natural, value


# --- the grid -------------------------------------------------------------------------------


class GridChoice(Struct, frozen=True):
    """The view of a sweep.

    ``rows``, ``columns``: names of the variables of an axis; empty: automatic. ``fixed``: (name,
    value) of fixed variables. ``metric`` None: the default metric.
    """

    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    fixed: tuple[tuple[str, Value], ...] = ()
    metric: str | None = None


class CellRun(Struct, frozen=True):
    """One run of a cell, with its curve."""

    json_omits: ClassVar = frozenset({"curve"})
    json_properties: ClassVar = ("reached", "state", "stopped", "paused", "course")

    entry: Flat[Run]
    curve: MetricCurve

    @property
    def reached(self) -> Reached | None:
        """Its best value, or its last finite one for a metric without a goal."""
        if self.curve.goal:
            return self.curve.best
        return next((p for p in reversed(self.curve.points) if math.isfinite(p.value)), None)

    @property
    def state(self) -> State:
        """The state of the run, WAITING between two epochs."""
        return State.WAITING if self.entry.is_between_epochs else self.entry.state

    @property
    def stopped(self) -> str | None:
        """Why its gate ended it; None if it did not."""
        stopped = self.entry.gate.stopped if self.entry.gate is not None else None
        return None if stopped is None else stopped.reason or stopped.rule

    @property
    def paused(self) -> bool:
        """Whether its next epoch waits at the gate."""
        return self.entry.gate is not None and self.entry.gate.paused is not None

    @property
    def course(self) -> Course:
        return self.curve.course

    @property
    def is_finished(self) -> bool:
        """Whether no epoch is left."""
        return not self.entry.epochs_left


class GridCell(Struct, frozen=True):
    """One cell of the grid.

    ``runs``: the best first. ``rank``: of its value among all cells, from 1; None without a value
    or without a goal. ``state``: the state of its runs with the highest priority.
    """

    json_properties: ClassVar = ("epochs_done", "epochs_total", "is_finished", "diverged_course")

    row: Point
    column: Point
    runs: tuple[CellRun, ...]
    state: State
    rank: int | None

    @property
    def best(self) -> CellRun | None:
        """The run with the best value."""
        first = self.runs[0]
        return first if first.reached is not None else None

    @property
    def diverged_run(self) -> CellRun | None:
        """The best run if its curve diverged; without any value, any diverged run."""
        candidates = self.runs[:1] if self.best is not None else self.runs
        return next((run for run in candidates if run.curve.diverged), None)

    @property
    def diverged_course(self) -> Course | None:
        """The course of that run's curve."""
        return self.diverged_run.curve.course if self.diverged_run is not None else None

    @property
    def stopped(self) -> bool:
        """Whether a gate ended one of the runs."""
        return any(run.stopped is not None for run in self.runs)

    @property
    def paused(self) -> bool:
        """Whether one of the runs waits at its gate."""
        return any(run.paused for run in self.runs)

    @property
    def epochs_done(self) -> int:
        return sum(run.entry.epochs_done for run in self.runs)

    @property
    def epochs_total(self) -> int:
        return sum(run.entry.epochs_total for run in self.runs)

    @property
    def is_finished(self) -> bool:
        return all(run.is_finished for run in self.runs)


class FoldedAxis(Struct, frozen=True):
    """An axis that is neither rows nor columns; ``max_values``: its values per cell."""

    axis: Flat[Axis]
    max_values: int


class FixedValue(NamedTuple):
    """A variable that is neither rows nor columns, and the value that all runs here have."""

    name: str
    value: Value


class Grid(Struct, frozen=True):
    """A sweep grid; with ``columns`` None it is a list.

    ``cells``: by (row, column) in order, without combinations that no run has. ``row_best``,
    ``column_best``: the best cell of each. ``excluded_runs``: runs excluded by the fixed variables.
    """

    json_omits: ClassVar = frozenset({"row_best", "column_best", "files_read"})
    json_properties: ClassVar = ("progress",)

    sweep: Flat[SweepVariables]
    rows: Axis | None
    columns: Axis | None
    folded: tuple[FoldedAxis, ...]
    fixed: tuple[FixedValue, ...]
    metric: str
    metrics: tuple[str, ...]
    goal: Goal | None
    cells: Mapping[tuple[Point, Point], GridCell]
    best: GridCell | None
    row_best: Mapping[Point, GridCell]
    column_best: Mapping[Point, GridCell]
    excluded_runs: int
    files_read: bool

    @property
    def has_sweep(self) -> bool:
        """Whether there are any swept variables."""
        return self.rows is not None

    @property
    def ranked_cells(self) -> int:
        """The number of cells with a rank."""
        return sum(cell.rank is not None for cell in self.cells.values())

    @property
    def progress(self) -> SweepProgress:
        """How far its cells are."""
        return _sweep_progress(self.cells.values())


def grid(stats_input: StatsInput, choice: GridChoice) -> Grid:
    """The sweep grid for ``choice``; axes that no longer exist are chosen again."""
    sweep = find_sweep(stats_input.load_description().nodes)
    metric_curves = curves_in(stats_input, choice.metric)
    rows, columns = _chosen_axes(sweep, choice)
    values = {variable.name: variable.values for variable in sweep.variables}
    fixed = tuple(
        FixedValue(name, value)
        for name, value in choice.fixed
        if name not in _names(rows, columns) and value in values.get(name, ())
    )
    runs = {
        entry.key: CellRun(entry, curve)
        for entry, curve in zip(stats_input.ledger.runs, metric_curves.runs, strict=True)
        if entry.key in sweep.runs
    }
    names = tuple(name for name, _ in fixed)
    wanted = tuple(value for _, value in fixed)
    shown_runs = [run for key, run in runs.items() if sweep.values(key, names) == wanted]
    cells = _cells(sweep, rows, columns, shown_runs, metric_curves.goal) if rows is not None else {}
    return Grid(
        sweep=sweep,
        rows=rows,
        columns=columns,
        folded=_folded(sweep, rows, columns, shown_runs, names),
        fixed=fixed,
        metric=metric_curves.metric,
        metrics=metric_curves.metrics,
        goal=metric_curves.goal,
        cells=cells,
        best=_best(cells.values()),
        row_best=_best_by(cells.values(), 0),
        column_best=_best_by(cells.values(), 1),
        excluded_runs=len(runs) - len(shown_runs),
        files_read=stats_input.job_files.are_read,
    )


def _chosen_axes(sweep: SweepVariables, choice: GridChoice) -> tuple[Axis | None, Axis | None]:
    names = {variable.name for variable in sweep.variables}
    if choice.rows and names.issuperset(choice.rows + choice.columns):
        columns = sweep.axis(choice.columns) if choice.columns else None
        return sweep.axis(choice.rows), columns
    unfixed_sweep = without_fixed_axes(sweep, (name for name, _ in choice.fixed))
    return next(iter(choices(unfixed_sweep if unfixed_sweep.axes else sweep)), (None, None))


def without_fixed_axes(sweep: SweepVariables, names: Iterable[str]) -> SweepVariables:
    """The sweep without the axes of the fixed variables."""
    fixed = set(names)
    return replace(sweep, axes=tuple(a for a in sweep.axes if not fixed.intersection(a.names)))


def _cells(
    sweep: SweepVariables,
    rows: Axis,
    columns: Axis | None,
    runs: Iterable[CellRun],
    goal: Goal | None,
) -> dict[tuple[Point, Point], GridCell]:
    row_names, column_names = _names(rows, None), _names(None, columns)
    groups = group_by(
        runs,
        lambda r: (sweep.values(r.entry.key, row_names), sweep.values(r.entry.key, column_names)),
    )
    for group in groups.values():
        group.sort(key=lambda run: cost(run, goal))
    order = sorted(
        cost(group[0], goal) for group in groups.values() if goal and group[0].reached is not None
    )
    points = columns.points if columns is not None else ((),)
    return {
        (row, column): GridCell(
            row=row,
            column=column,
            runs=tuple(cell_runs),
            state=min((run.state for run in cell_runs), key=URGENCY.__getitem__),
            # Equal values have the rank of the first one.
            rank=bisect_left(order, cost(cell_runs[0], goal)) + 1
            if order and cell_runs[0].reached is not None
            else None,
        )
        for row in rows.points
        for column in points
        if (cell_runs := groups.get((row, column)))
    }


def cost(run: CellRun, goal: Goal | None) -> float:
    """The value, negated if more is better; infinite without a value."""
    if run.reached is None:
        return math.inf
    return -run.reached.value if goal == "max" else run.reached.value


def _best(cells: Iterable[GridCell]) -> GridCell | None:
    ranked = [cell for cell in cells if cell.rank is not None]
    return min(ranked, key=lambda cell: cell.rank or 0, default=None)


def _best_by(cells: Iterable[GridCell], side: int) -> dict[Point, GridCell]:
    groups = group_by(cells, lambda cell: (cell.row, cell.column)[side])
    return {point: cell for point, group in groups.items() if (cell := _best(group)) is not None}


def _folded(
    sweep: SweepVariables,
    rows: Axis | None,
    columns: Axis | None,
    runs: Sequence[CellRun],
    fixed: tuple[str, ...],
) -> tuple[FoldedAxis, ...]:
    if rows is None:
        return ()
    shown = _names(rows, columns)
    cells = group_by(runs, lambda run: sweep.values(run.entry.key, shown))
    folded = []
    for axis in sweep.axes:
        if not {*shown, *fixed}.intersection(axis.names):
            sizes = [
                len({sweep.values(r.entry.key, axis.names) for r in c}) for c in cells.values()
            ]
            folded.append(FoldedAxis(axis, max(sizes, default=0)))
    return tuple(folded)


def _names(rows: Axis | None, columns: Axis | None) -> tuple[str, ...]:
    """The variables of the rows and columns."""
    return tuple(name for axis in (rows, columns) if axis is not None for name in axis.names)


# --- changes of the choice ----------------------------------------------------------------------


def next_pair(current: Grid, choice: GridChoice) -> GridChoice:
    """The next two variables as rows and columns; the metric stays."""
    pairs = choices(current.sweep)
    shown = {current.rows, current.columns}
    index = next((i for i, pair in enumerate(pairs) if set(pair) == shown), -1)
    return replace(_with_axes(choice, *pairs[(index + 1) % len(pairs)]), fixed=())


def swap_axes(current: Grid, choice: GridChoice) -> GridChoice:
    """Rows as columns, columns as rows; a list stays one."""
    if current.columns is None:
        return choice
    return _with_axes(choice, current.columns, current.rows)


def next_fixed(current: Grid, choice: GridChoice) -> GridChoice:
    """Fix the next value of the folded axes, in turn, then none."""
    shown = _names(current.rows, current.columns)
    folded = [axis for axis in current.sweep.axes if not {*shown}.intersection(axis.names)]
    steps: list[tuple[tuple[str, Value], ...]] = [()]
    steps += [tuple(zip(axis.names, p, strict=True)) for axis in folded for p in axis.points]
    index = steps.index(current.fixed) if current.fixed in steps else 0
    shown_choice = _with_axes(choice, current.rows, current.columns)
    return replace(shown_choice, fixed=steps[(index + 1) % len(steps)])


def _with_axes(choice: GridChoice, rows: Axis | None, columns: Axis | None) -> GridChoice:
    return replace(choice, rows=_names(rows, None), columns=_names(columns, None))


# --- progress -----------------------------------------------------------------------------------


class SweepProgress(Struct, frozen=True):
    """Numbers of cells (the shown points) by progress, and of their epochs.

    ``stopped``: finished cells that a gate ended; ``paused``: waiting cells that wait at a gate.
    """

    points: int
    finished: int
    stopped: int
    active: int
    idle: int
    needs_action: int
    waiting: int
    paused: int
    epochs_done: int
    epochs_total: int


def _sweep_progress(every: Iterable[GridCell]) -> SweepProgress:
    cells = list(every)
    others = [cell for cell in cells if cell.state not in TROUBLE]
    finished = [cell for cell in others if cell.is_finished]
    unfinished = [cell for cell in others if not cell.is_finished]
    inactive = [cell for cell in unfinished if cell.state not in ACTIVE_STATES]
    waiting = [cell for cell in inactive if cell.state not in (State.IDLE, State.RETRYING)]
    return SweepProgress(
        points=len(cells),
        finished=len(finished),
        stopped=sum(cell.stopped for cell in finished),
        active=len(unfinished) - len(inactive),
        idle=len(inactive) - len(waiting),
        needs_action=len(cells) - len(others),
        waiting=len(waiting),
        paused=sum(cell.paused for cell in waiting),
        epochs_done=sum(cell.epochs_done for cell in cells),
        epochs_total=sum(cell.epochs_total for cell in cells),
    )
