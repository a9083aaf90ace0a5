"""Linear programs of some dozen rows, solved by the simplex method.

A dense tableau (V. Chvátal, Linear Programming, 1983, chapter 3). No limit is negative, so that the
zero vector is a feasible start. Objectives are minimized one after the other, each among the optima
of those before it. The entering column is the one with the largest coefficient; after a pivot
without progress, Bland's rule (Mathematics of Operations Research 2, 1977) chooses it until the
objective improves, so that the method cannot cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from operator import truediv
from typing import Final

from msgspec import Struct

TOLERANCE: Final = 1e-9
"""Smaller coefficients count as zero, after each row was divided by its largest coefficient."""

PIVOTS_PER_COLUMN: Final = 100
"""If more pivots per row and column are needed, rounding errors prevent termination."""


class LinearRow(Struct, frozen=True):
    """A constraint: the sum of ``coefficients`` (by column) is at most ``limit``, 0 or more."""

    coefficients: Mapping[int, float]
    limit: float


class Optimum(Struct, frozen=True):
    """An optimal vertex.

    ``values``: those of the columns; ``reduced_costs``: the loss of the last objective per unit of
    each column, never negative; infinite if an earlier objective would lose. ``duals``: the gain of
    the last objective per unit of each row's limit.
    """

    values: tuple[float, ...]
    reduced_costs: tuple[float, ...]
    duals: tuple[float, ...]


class Unbounded(Exception):
    """An objective has no minimum."""


def minimize(
    objectives: Sequence[Sequence[float]], rows: Sequence[LinearRow], columns: int
) -> Optimum:
    """Minimize objectives lexicographically. Raises Unbounded, ArithmeticError."""
    tableau = _Tableau(objectives, rows, columns)
    for number in range(len(objectives)):
        free = set(tableau.allowed)
        tableau.minimize(number)
    values = [0.0] * tableau.width
    for column, row in zip(tableau.basis, tableau.rows, strict=True):
        values[column] = max(0.0, row[-1])
    scale = tableau.scales[-1]
    costs = [max(0.0, cost) * scale for cost in tableau.costs[-1]]
    return Optimum(
        tuple(values[:columns]),
        tuple(costs[column] if column in free else inf for column in range(columns)),
        tuple(map(truediv, costs[columns:-1], tableau.row_scales)),
    )


class _Tableau:
    """Rows in terms of the basis, and a row of reduced costs per objective; limits come last.

    The columns of slack variables, one per row, follow those of the program.
    """

    def __init__(
        self, objectives: Sequence[Sequence[float]], rows: Sequence[LinearRow], columns: int
    ) -> None:
        self.width = columns + len(rows)
        self.rows: list[list[float]] = []
        self.basis = list(range(columns, self.width))
        self.row_scales: list[float] = []
        for slack, row in zip(self.basis, rows, strict=True):
            dense = [0.0] * (self.width + 1)
            for column, coefficient in row.coefficients.items():
                dense[column] = coefficient
            scale = max(map(abs, dense)) or 1.0
            dense[slack], dense[-1] = scale, row.limit
            self.row_scales.append(scale)
            self.rows.append([value / scale for value in dense])
        self.scales = [max(map(abs, costs), default=0.0) or 1.0 for costs in objectives]
        self.costs = [
            [*(cost / scale for cost in costs), *[0.0] * (len(rows) + 1)]
            for costs, scale in zip(objectives, self.scales, strict=True)
        ]
        self.allowed = list(range(self.width))

    def minimize(self, number: int) -> None:
        """Minimize one objective; keep only the columns that do not change its minimum."""
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
        self.allowed = [column for column in self.allowed if costs[column] <= TOLERANCE]

    def _entering(self, costs: Sequence[float], use_bland: bool) -> int | None:
        if use_bland:
            return next((each for each in self.allowed if costs[each] < -TOLERANCE), None)
        column = min(self.allowed, key=costs.__getitem__, default=None)
        return None if column is None or costs[column] >= -TOLERANCE else column

    def _leaving(self, column: int) -> int | None:
        """The row that limits a column first; of several, the one with the lowest basic column."""
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
