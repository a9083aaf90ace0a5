"""The simplex method against HiGHS, and on programs that make simple implementations cycle."""

from __future__ import annotations

import math
from random import Random

import pytest

from metlmon.placement.simplex import LinearRow, Unbounded, minimize

highspy = pytest.importorskip("highspy")

Costs = list[float]


def highs_minimum(costs: Costs, rows: list[LinearRow]) -> float:
    """The minimum by HiGHS; -inf: unbounded."""
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    for cost in costs:
        model.addCol(cost, 0.0, highspy.kHighsInf, 0, [], [])
    for row in rows:
        columns = list(row.coefficients)
        values = list(row.coefficients.values())
        model.addRow(-highspy.kHighsInf, row.limit, len(columns), columns, values)
    model.run()
    if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return -math.inf
    return float(model.getInfo().objective_function_value)


def simplex_minimum(costs: Costs, rows: list[LinearRow]) -> float:
    try:
        values = minimize([costs], rows, len(costs)).values
    except Unbounded:
        return -math.inf
    for row in rows:
        total = sum(each * values[column] for column, each in row.coefficients.items())
        slack = 1e-6 * max(1.0, abs(row.limit))
        assert total <= row.limit + slack
    return sum(cost * value for cost, value in zip(costs, values, strict=True))


def random_program(random: Random) -> tuple[Costs, list[LinearRow]]:
    """A program of small integers: ties, empty and redundant rows are frequent."""
    columns, count = random.randint(1, 8), random.randint(1, 8)
    rows = []
    for _ in range(count):
        picked = random.sample(range(columns), random.randint(0, columns))
        coefficients = {column: float(random.randint(-3, 5)) for column in picked}
        rows.append(LinearRow(coefficients, float(random.choice([0, 0, 1, 2, 5, 9]))))
    if random.random() < 0.3:
        rows.append(random.choice(rows))
    return [float(random.randint(-2, 6)) for _ in range(columns)], rows


def test_minima_equal_those_of_highs() -> None:
    random = Random(18)
    unbounded = 0
    for _ in range(300):
        costs, rows = random_program(random)
        expected = highs_minimum(costs, rows)
        unbounded += math.isinf(expected)
        assert simplex_minimum(costs, rows) == pytest.approx(expected, rel=1e-7, abs=1e-7)
    assert 30 <= unbounded <= 270


def test_cycling_programs_are_solved() -> None:
    """The examples of Beale (1955) and of Chvátal (1983, chapter 3)."""
    beale = [
        LinearRow({0: 0.25, 1: -60.0, 2: -1 / 25, 3: 9.0}, 0.0),
        LinearRow({0: 0.5, 1: -90.0, 2: -1 / 50, 3: 3.0}, 0.0),
        LinearRow({2: 1.0}, 1.0),
    ]
    assert simplex_minimum([-0.75, 150.0, -0.02, 6.0], beale) == pytest.approx(-0.05)
    chvatal = [
        LinearRow({0: 0.5, 1: -5.5, 2: -2.5, 3: 9.0}, 0.0),
        LinearRow({0: 0.5, 1: -1.5, 2: -0.5, 3: 1.0}, 0.0),
        LinearRow({0: 1.0}, 1.0),
    ]
    assert simplex_minimum([-10.0, 57.0, 9.0, 24.0], chvatal) == pytest.approx(-1.0)


def test_duals_are_gains_of_larger_limits() -> None:
    rows = [
        LinearRow({0: 1.0, 1: 1.0}, 4.0),
        LinearRow({0: 10.0, 1: 30.0}, 60.0),
        LinearRow({0: 1.0}, 9.0),
    ]
    costs = [-3.0, -5.0]
    optimum = minimize([costs], rows, 2)
    least = simplex_minimum(costs, rows)
    for number, dual in enumerate(optimum.duals):
        row = rows[number]
        more = [*rows[:number], LinearRow(row.coefficients, row.limit + 0.1), *rows[number + 1 :]]
        assert dual * 0.1 == pytest.approx(least - simplex_minimum(costs, more), abs=1e-9)
    assert optimum.duals == pytest.approx((2.0, 0.1, 0.0))


def test_later_objectives_choose_among_the_optima_of_earlier_ones() -> None:
    rows = [LinearRow({0: 1.0, 1: 1.0, 2: 2.0}, 4.0)]
    optimum = minimize([[-2.0, -2.0, -3.0], [2.0, 1.0, -9.0]], rows, 3)
    assert optimum.values == pytest.approx((0.0, 4.0, 0.0))
    assert optimum.reduced_costs[0] == pytest.approx(1.0)
    assert math.isinf(optimum.reduced_costs[2])
