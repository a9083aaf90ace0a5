"""A sweep as a grid: the values of two swept variables as rows and columns, and in each cell how
far its runs are and the best that they have reached.

What is swept says :mod:`metlmon.stats.sweep`; metrics, and which values are good ones, are those
of :mod:`metlmon.stats.curves`. Variables beyond two are folded: a cell has the best over them, or
they are held fixed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, Protocol

from metlmon.frozen import frozen
from metlmon.jobfiles.records import Point as Reached
from metlmon.model.states import DONE, State
from metlmon.snapshot.ledger import RunEntry
from metlmon.snapshot.types import RunRow
from metlmon.stats.curves import Course, Goal, MetricCurve
from metlmon.stats.curves import curves as curves_in
from metlmon.stats.sweep import Axis, Point, SweepVariables, Value, choices, swept
from metlmon.stats.worker import StatsInput

URGENCY: Final = (
    *(State.HELD, State.FAILED, State.REMOVED, State.DISCONNECTED, State.SUSPENDED),
    *(State.RETRYING, State.RUNNING, State.TRANSFERRING_OUTPUT, State.STARTING),
    *(State.TRANSFERRING_INPUT, State.PRE, State.POST, State.IDLE, State.UNKNOWN),
    *(State.FUTILE, State.WAITING, State.COMPLETED, State.SKIPPED),
)
"""What is told of a cell with several runs: what needs a person first, then what moves."""

NEEDS: Final = frozenset({State.HELD, State.FAILED, State.REMOVED})
"""Nothing goes on in these unless a person does something."""

MOVING: Final = frozenset(
    {
        *(State.TRANSFERRING_INPUT, State.STARTING, State.RUNNING, State.TRANSFERRING_OUTPUT),
        *(State.SUSPENDED, State.DISCONNECTED, State.PRE, State.POST),
    }
)


@frozen
class GridChoice:
    """What of a sweep is to be seen. ``rows``, ``columns``: names of variables that go together;
    empty: chosen. ``fixed``: (name, value) of variables that are held fixed. ``metric`` None: the
    first that there is."""

    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    fixed: tuple[tuple[str, Value], ...] = ()
    metric: str | None = None


@frozen
class CellRun:
    """One run of a cell. ``value``: its best, or its last where the metric has no better and
    worse. ``last``: its last value, which may be none that counts (NaN, infinite). ``course``: how
    its curve goes. ``stopped``: why its gate ended it, None when it did not; ``paused``: its next
    epoch waits at the gate. ``over``: nothing of it is left to be done."""

    key: str
    name: str
    state: State
    value: Reached | None
    last: float | None
    course: Course
    done: int
    skipped: int
    total: int
    stopped: str | None
    paused: bool
    over: bool

    @property
    def lost(self) -> bool:
        """It diverged, or became NaN."""
        return self.course in (Course.DIVERGED, Course.NAN)


@frozen
class GridCell:
    """One point of the grid. ``runs``: the best first. ``rank``: the place of its value among all
    cells', from 1; None without a value, or of a metric without better and worse. ``state``: of
    its runs what needs a person first."""

    row: Point
    column: Point
    runs: tuple[CellRun, ...]
    state: State
    rank: int | None

    @property
    def best(self) -> CellRun | None:
        """The run with the best value."""
        first = self.runs[0]
        return first if first.value is not None else None

    @property
    def astray(self) -> CellRun | None:
        """The run with the best value, if its curve went wrong; without any value, any such."""
        told = self.runs[:1] if self.best is not None else self.runs
        return next((run for run in told if run.lost), None)

    @property
    def lost(self) -> Course | None:
        """How the curve of that run went wrong."""
        return self.astray.course if self.astray is not None else None

    @property
    def stopped(self) -> bool:
        """Its gate ended one of its runs."""
        return any(run.stopped is not None for run in self.runs)

    @property
    def paused(self) -> bool:
        """One of its runs waits at its gate."""
        return any(run.paused for run in self.runs)

    @property
    def done(self) -> int:
        return sum(run.done for run in self.runs)

    @property
    def total(self) -> int:
        return sum(run.total for run in self.runs)

    @property
    def over(self) -> bool:
        return all(run.over for run in self.runs)


@frozen
class Folded:
    """Variables that are neither rows nor columns: ``most`` of their values are in one cell."""

    axis: Axis
    most: int


@frozen
class Grid:
    """``columns`` None: there is one axis only, and it is a list. ``cells`` by (row, column), in
    order; of what no run has there is none. ``row_best``, ``column_best``: the best cell of each.
    ``others``: runs that are in no cell, because what is fixed is not theirs."""

    sweep: SweepVariables
    rows: Axis | None
    columns: Axis | None
    folded: tuple[Folded, ...]
    fixed: tuple[tuple[str, Value], ...]
    metric: str
    metrics: tuple[str, ...]
    goal: Goal | None
    cells: Mapping[tuple[Point, Point], GridCell]
    best: GridCell | None
    row_best: Mapping[Point, GridCell]
    column_best: Mapping[Point, GridCell]
    others: int
    written: bool

    @property
    def swept(self) -> bool:
        """Is there a sweep at all?"""
        return self.rows is not None

    @property
    def ranks(self) -> int:
        """How many cells have a rank."""
        return sum(cell.rank is not None for cell in self.cells.values())


class GridStat(Protocol):
    """What :meth:`metlmon.stats.worker.StatsWorker.of` asks of a basis."""

    def __call__(self, basis: StatsInput, /) -> Grid: ...


@cache
def grid_of(choice: GridChoice) -> GridStat:
    """The figure of one choice: the same function for the same choice."""

    def figure(basis: StatsInput, /) -> Grid:
        return grid(basis, choice)

    return figure


def grid(basis: StatsInput, choice: GridChoice) -> Grid:
    """The sweep of this ensemble, seen by ``choice``. What of a choice is not there (the DAG
    files changed) is chosen anew."""
    sweep = swept(basis.described().nodes)
    told = curves_in(basis, choice.metric)
    rows, columns = _axes(sweep, choice)
    fixed = tuple(each for each in choice.fixed if _is_there(sweep, rows, columns, *each))
    rows_of = {row.key: row for row in basis.status.runs}
    made = {
        entry.run: _run(entry, curve, rows_of.get(entry.run))
        for entry, curve in zip(basis.ledger.runs, told.curves, strict=True)
        if entry.run in sweep.runs
    }
    names = tuple(name for name, _ in fixed)
    wanted = tuple(value for _, value in fixed)
    kept = [run for key, run in made.items() if sweep.values(key, names) == wanted]
    cells = _cells(sweep, rows, columns, kept, told.goal) if rows is not None else {}
    return Grid(
        sweep,
        rows,
        columns,
        _folded(sweep, rows, columns, kept, names),
        fixed,
        told.metric,
        told.metrics,
        told.goal,
        cells,
        _best(cells.values()),
        _best_by(cells.values(), 0),
        _best_by(cells.values(), 1),
        len(made) - len(kept),
        basis.written,
    )


def _axes(sweep: SweepVariables, choice: GridChoice) -> tuple[Axis | None, Axis | None]:
    there = {variable.name for variable in sweep.variables}
    if choice.rows and there.issuperset(choice.rows + choice.columns):
        columns = sweep.axis(choice.columns) if choice.columns else None
        return sweep.axis(choice.rows), columns
    free = unfixed(sweep, (name for name, _ in choice.fixed))
    return next(iter(choices(free if free.axes else sweep)), (None, None))


def unfixed(sweep: SweepVariables, names: Iterable[str]) -> SweepVariables:
    """The same sweep without the axes of what is held fixed."""
    fixed = set(names)
    return replace(sweep, axes=tuple(a for a in sweep.axes if not fixed.intersection(a.names)))


def _is_there(
    sweep: SweepVariables, rows: Axis | None, columns: Axis | None, name: str, value: Value
) -> bool:
    used = (*(rows.names if rows else ()), *(columns.names if columns else ()))
    known = next((each for each in sweep.variables if each.name == name), None)
    return known is not None and name not in used and value in known.values


def _run(entry: RunEntry, curve: MetricCurve, row: RunRow | None) -> CellRun:
    finite = [point for point in curve.points if math.isfinite(point.value)]
    value = curve.best if curve.goal else finite[-1] if finite else None
    over = entry.epochs_done + entry.epochs_skipped >= entry.epochs_total
    # Its latest epoch is over, the next one is not submitted yet.
    between = entry.state in DONE and not over
    gate = row.gate if row is not None else None
    stopped = gate.stopped if gate is not None else None
    return CellRun(
        entry.run,
        entry.run_name,
        State.WAITING if between else entry.state,
        value,
        curve.last.value if curve.last is not None else None,
        curve.course,
        entry.epochs_done,
        entry.epochs_skipped,
        entry.epochs_total,
        (stopped.reason or stopped.rule) if stopped is not None else None,
        gate is not None and gate.paused is not None,
        over,
    )


def _cells(
    sweep: SweepVariables,
    rows: Axis,
    columns: Axis | None,
    runs: Iterable[CellRun],
    goal: Goal | None,
) -> dict[tuple[Point, Point], GridCell]:
    across = columns.names if columns is not None else ()
    found: dict[tuple[Point, Point], list[CellRun]] = {}
    for run in runs:
        at = sweep.values(run.key, rows.names), sweep.values(run.key, across)
        found.setdefault(at, []).append(run)
    for group in found.values():
        group.sort(key=lambda run: cost(run, goal))
    ranked = [cost(group[0], goal) for group in found.values() if group[0].value is not None]
    order = sorted(ranked) if goal is not None else []
    wide = columns.points if columns is not None else ((),)
    return {
        (row, column): _cell(row, column, found[row, column], order, goal)
        for row in rows.points
        for column in wide
        if (row, column) in found
    }


def _cell(
    row: Point, column: Point, runs: Sequence[CellRun], order: Sequence[float], goal: Goal | None
) -> GridCell:
    state = min((run.state for run in runs), key=URGENCY.index)
    ranked = bool(order) and runs[0].value is not None
    # Of equal values each has the place of the first.
    rank = bisect_left(order, cost(runs[0], goal)) + 1 if ranked else None
    return GridCell(row, column, tuple(runs), state, rank)


def cost(run: CellRun, goal: Goal | None) -> float:
    """What is less for a better run; infinite without a value."""
    if run.value is None:
        return math.inf
    return -run.value.value if goal == "max" else run.value.value


def _best(cells: Iterable[GridCell]) -> GridCell | None:
    ranked = [cell for cell in cells if cell.rank is not None]
    return min(ranked, key=lambda cell: cell.rank or 0, default=None)


def _best_by(cells: Iterable[GridCell], side: int) -> dict[Point, GridCell]:
    groups: dict[Point, list[GridCell]] = {}
    for cell in cells:
        groups.setdefault((cell.row, cell.column)[side], []).append(cell)
    found = {point: _best(group) for point, group in groups.items()}
    return {point: cell for point, cell in found.items() if cell is not None}


def _folded(
    sweep: SweepVariables,
    rows: Axis | None,
    columns: Axis | None,
    runs: Sequence[CellRun],
    fixed: tuple[str, ...],
) -> tuple[Folded, ...]:
    if rows is None:
        return ()
    used = {*rows.names, *(columns.names if columns is not None else ()), *fixed}
    shown = (*rows.names, *(columns.names if columns is not None else ()))
    found = []
    for axis in sweep.axes:
        if used.intersection(axis.names):
            continue
        values: dict[Point, set[Point]] = {}
        for run in runs:
            values.setdefault(sweep.values(run.key, shown), set()).add(
                sweep.values(run.key, axis.names)
            )
        found.append(Folded(axis, max(map(len, values.values()), default=0)))
    return tuple(found)


# --- going on to another choice -----------------------------------------------------------------


def next_pair(of: Grid, choice: GridChoice) -> GridChoice:
    """The next two variables as rows and columns; the metric stays."""
    pairs = choices(of.sweep)
    shown = {of.rows, of.columns}
    at = next((i for i, pair in enumerate(pairs) if set(pair) == shown), -1)
    rows, columns = pairs[(at + 1) % len(pairs)]
    return GridChoice(rows.names, columns.names if columns is not None else (), (), choice.metric)


def swapped(of: Grid, choice: GridChoice) -> GridChoice:
    """Rows as columns, columns as rows; a list stays one."""
    if of.rows is None or of.columns is None:
        return choice
    return GridChoice(of.columns.names, of.rows.names, choice.fixed, choice.metric)


def next_fixed(of: Grid, choice: GridChoice) -> GridChoice:
    """One after the other every value of what is folded is held fixed, then none is. What goes
    together is fixed together."""
    shown = {*(of.rows.names if of.rows else ()), *(of.columns.names if of.columns else ())}
    folded = [axis for axis in of.sweep.axes if not shown.intersection(axis.names)]
    steps: list[tuple[tuple[str, Value], ...]] = [()]
    steps += [tuple(zip(axis.names, p, strict=True)) for axis in folded for p in axis.points]
    at = steps.index(of.fixed) if of.fixed in steps else 0
    rows, columns = of.rows, of.columns
    return GridChoice(
        rows.names if rows is not None else (),
        columns.names if columns is not None else (),
        steps[(at + 1) % len(steps)],
        choice.metric,
    )


# --- how far it is ------------------------------------------------------------------------------


@frozen
class CellState:
    """Cells (the points of the sweep that are shown) by where they stand, and their epochs.
    ``stopped``: of those that are over, how many a gate ended; ``paused``: of those that wait, how
    many wait at theirs."""

    points: int
    over: int
    stopped: int
    moving: int
    idle: int
    need: int
    waiting: int
    paused: int
    done: int
    total: int


def standing(of: Grid) -> CellState:
    """How far the sweep is."""
    cells = list(of.cells.values())
    need = [cell for cell in cells if cell.state in NEEDS]
    calm = [cell for cell in cells if cell.state not in NEEDS]
    over = [cell for cell in calm if cell.over]
    moving = [cell for cell in calm if not cell.over and cell.state in MOVING]
    rest = [cell for cell in calm if not cell.over and cell.state not in MOVING]
    waiting = [cell for cell in rest if cell.state not in (State.IDLE, State.RETRYING)]
    return CellState(
        len(cells),
        len(over),
        sum(cell.stopped for cell in over),
        len(moving),
        len(rest) - len(waiting),
        len(need),
        len(waiting),
        sum(cell.paused for cell in waiting),
        sum(cell.done for cell in cells),
        sum(cell.total for cell in cells),
    )
