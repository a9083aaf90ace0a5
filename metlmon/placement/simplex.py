"""Linear programs of some dozen rows, solved by the two-phase simplex method.

A dense tableau (V. Chvátal, Linear Programming, 1983, chapters 3 and 8). Objectives are minimized
one after the other, each among the optima of those before it: phase one is the first of them. The
entering column is the one of the largest coefficient; after a pivot without progress it is that of
Bland's rule (Mathematics of Operations Research 2, 1977) until the objective improves, so that it
cannot cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from operator import truediv
from typing import Final

from msgspec import Struct

TOLERANCE: Final = 1e-9
"""Coefficients below it are zero; each row is divided by its largest coefficient before."""

FEASIBLE: Final = 1e-7
"""How much the rows of a feasible program may be violated in total, relative to the largest."""

PIVOTS_PER_COLUMN: Final = 100
"""More pivots than that per row and column: rounding errors prevent an end."""


class LinearRow(Struct, frozen=True):
    """A constraint: the sum of ``coefficients`` (by column) is at most, or equal to, ``limit``."""

    coefficients: Mapping[int, float]
    limit: float
    is_equal: bool = False


class Optimum(Struct, frozen=True):
    """An optimal vertex.

    ``values``: of the columns; ``reduced_costs``: what the last objective loses per unit of each
    column, never negative; infinite where an earlier objective would lose. ``duals``: what it gains
    per unit of each row's limit, 0 of equations.
    """

    values: tuple[float, ...]
    reduced_costs: tuple[float, ...]
    duals: tuple[float, ...]


class Infeasible(Exception):
    """No values satisfy all rows."""


class Unbounded(Exception):
    """An objective has no minimum."""


def minimize(
    objectives: Sequence[Sequence[float]], rows: Sequence[LinearRow], columns: int
) -> Optimum:
    """Minimize the objectives, the most important first, over columns that are not negative.

    Raises Infeasible, Unbounded, and ArithmeticError where rounding errors prevent an end.
    """
    tableau = _Tableau(objectives, rows, columns)
    for number in range(len(objectives) + 1):
        free = set(tableau.allowed)
        tableau.minimize(number)
        if number == 0:
            tableau.remove_artificials()
    values = [0.0] * tableau.width
    for column, row in zip(tableau.basis, tableau.rows, strict=True):
        values[column] = max(0.0, row[-1])
    scale = tableau.scales[-1]
    costs = [max(0.0, cost) * scale for cost in tableau.costs[-1]]
    slacks = iter(zip(costs[columns:-1], tableau.slack_scales, strict=True))
    duals = [0.0 if row.is_equal else truediv(*next(slacks)) for row in rows]
    return Optimum(
        tuple(values[:columns]),
        tuple(costs[column] if column in free else inf for column in range(columns)),
        tuple(duals),
    )


class _Tableau:
    """Rows in terms of the basis, and a row of reduced costs per objective; limits come last.

    The columns of slack variables follow those of the program. A basic artificial variable has a
    number from ``width`` on and no column: once it has left the basis it never returns.
    """

    def __init__(
        self, objectives: Sequence[Sequence[float]], rows: Sequence[LinearRow], columns: int
    ) -> None:
        self.width = columns + sum(not row.is_equal for row in rows)
        self.rows: list[list[float]] = []
        self.basis: list[int] = []
        self.slack_scales: list[float] = []
        infeasibility = [0.0] * (self.width + 1)
        slack = columns
        for row in rows:
            dense = _dense(row.coefficients, self.width + 1)
            scale = max(map(abs, dense)) or 1.0
            if not row.is_equal:
                dense[slack] = scale
                self.slack_scales.append(scale)
            dense[-1] = row.limit
            sign = -1.0 if row.limit < 0 else 1.0
            dense = [sign * value / scale for value in dense]
            if row.is_equal or sign < 0:
                self.basis.append(self.width + len(self.rows))
                infeasibility = [a - b for a, b in zip(infeasibility, dense, strict=True)]
            else:
                self.basis.append(slack)
            slack += not row.is_equal
            self.rows.append(dense)
        self.scales = [1.0, *(max(map(abs, costs), default=0.0) or 1.0 for costs in objectives)]
        self.costs = [infeasibility]
        for costs, scale in zip(objectives, self.scales[1:], strict=True):
            self.costs.append([*(cost / scale for cost in costs), *[0.0] * (slack - columns + 1)])
        self.allowed = list(range(self.width))
        self.largest = max((row[-1] for row in self.rows), default=0.0)

    def minimize(self, number: int) -> None:
        """Minimize one objective; keep only the columns that leave its minimum as it is."""
        costs, use_bland = self.costs[number], False
        for _ in range(PIVOTS_PER_COLUMN * (self.width + len(self.rows) + 1)):
            column = self._entering(costs, use_bland)
            if column is None:
                break
            row = self._leaving(column)
            if row is None:
                raise Unbounded
            before = costs[-1]
            self._pivot(row, column)
            costs = self.costs[number]
            use_bland = costs[-1] - before <= TOLERANCE * max(1.0, abs(before))
        else:
            raise ArithmeticError("the simplex method found no end")
        if number == 0 and -costs[-1] > FEASIBLE * max(1.0, self.largest):
            raise Infeasible
        self.allowed = [column for column in self.allowed if costs[column] <= TOLERANCE]

    def remove_artificials(self) -> None:
        """Exchange the artificial variables that are left for columns, at zero."""
        for number in reversed(range(len(self.rows))):
            if self.basis[number] < self.width:
                continue
            row = self.rows[number]
            column = max(self.allowed, key=lambda each: abs(row[each]), default=None)
            if column is None or abs(row[column]) <= TOLERANCE:
                # The row follows from the others.
                del self.rows[number], self.basis[number]
            else:
                self._pivot(number, column)

    def _entering(self, costs: Sequence[float], use_bland: bool) -> int | None:
        if use_bland:
            return next((each for each in self.allowed if costs[each] < -TOLERANCE), None)
        column = min(self.allowed, key=costs.__getitem__, default=None)
        return None if column is None or costs[column] >= -TOLERANCE else column

    def _leaving(self, column: int) -> int | None:
        """The row that limits a column first; of several the one of the smallest basic number."""
        ratios = [
            (max(0.0, row[-1]) / row[column], basic, number)
            for number, (row, basic) in enumerate(zip(self.rows, self.basis, strict=True))
            if row[column] > TOLERANCE
        ]
        return min(ratios)[2] if ratios else None

    def _pivot(self, number: int, column: int) -> None:
        row = self.rows[number]
        divisor = row[column]
        row = self.rows[number] = [value / divisor for value in row]
        self.basis[number] = column
        for table in (self.rows, self.costs):
            for index, other in enumerate(table):
                factor = other[column]
                if factor and other is not row:
                    changed = [a - factor * b for a, b in zip(other, row, strict=True)]
                    changed[column] = 0.0
                    table[index] = changed


def _dense(coefficients: Mapping[int, float], length: int) -> list[float]:
    values = [0.0] * length
    for column, coefficient in coefficients.items():
        values[column] = coefficient
    return values
