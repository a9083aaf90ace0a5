"""Swept variables: VARS that are constant within a run and differ between runs.

Based on the nodes of the DAG files alone. Macro names are case-insensitive, as in HTCondor
(manual: "Submit File Macros").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Final, TypeAlias

from msgspec import Struct, field

from metlmon.snapshot.dag_description import DescribedNode, Nodes

RESERVED: Final = frozenset(
    {
        *("run", "run_uuid", "node", "epoch", "epochs"),
        *("random_seed", "resourcename", "gpumodel", "continue_from_checkpoint"),
    }
)
"""Variables that identify the run, epoch, site or GPU, in lower case; never swept."""

Value: TypeAlias = str | None
"""The value of a variable for a run; None: not set."""

Point: TypeAlias = tuple[Value, ...]
"""The values of several variables."""


class Variable(Struct, frozen=True):
    """A swept variable: ``name`` in its first spelling, and its sorted ``values``."""

    name: str
    values: tuple[Value, ...]


class Axis(Struct, frozen=True):
    """One variable, or several that vary together (a zip); ``points`` are sorted."""

    names: tuple[str, ...]
    points: tuple[Point, ...]

    @property
    def title(self) -> str:
        return " + ".join(self.names)


class SweepVariables(Struct, frozen=True):
    """The swept ``variables`` of an ensemble, in the order of the DAG.

    ``axes``: the variables grouped into axes, the most distinctive first. ``runs``: the values
    of the variables by run key.
    """

    variables: tuple[Variable, ...] = ()
    axes: tuple[Axis, ...] = ()
    runs: Mapping[str, Point] = field(default_factory=dict)

    def axis(self, names: Sequence[str]) -> Axis:
        """The axis of the named variables."""
        indices = self._indices(names)
        points = {tuple(point[i] for i in indices) for point in self.runs.values()}
        return Axis(tuple(names), tuple(sorted(points, key=point_order)))

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
    runs: dict[str, list[DescribedNode]] = {}
    names: dict[str, str] = {}
    for node in nodes.all:
        if node.run is not None and node.training:
            runs.setdefault(node.run, []).append(node)
            for name in node.node.vars:
                names.setdefault(name.lower(), name)
    run_values: dict[str, dict[str, str]] = {}
    varying = set(RESERVED)
    for run, run_nodes in runs.items():
        run_values[run], varies = _constant_values(run_nodes)
        varying |= varies
    known = [name for name in names if name not in varying]
    swept_names = [
        name
        for name in known
        if _differs(name, run_values) and not _identifies_run(name, run_values, runs)
    ]
    points = {
        run: tuple(values.get(name) for name in swept_names) for run, values in run_values.items()
    }
    variables = tuple(
        Variable(names[name], tuple(sorted({p[i] for p in points.values()}, key=value_order)))
        for i, name in enumerate(swept_names)
    )
    without_axes = SweepVariables(variables, (), points)
    return SweepVariables(variables, tuple(_axes(without_axes)), points)


def _constant_values(nodes: Iterable[DescribedNode]) -> tuple[dict[str, str], set[str]]:
    """The variables of a run by lower-case name, and the names that vary within it."""
    constants: dict[str, str] = {}
    varies: set[str] = set()
    for node in nodes:
        for name, value in node.node.vars.items():
            if constants.setdefault(name.lower(), value) != value:
                varies.add(name.lower())
    return constants, varies


def _differs(name: str, run_values: Mapping[str, Mapping[str, str]]) -> bool:
    return len({values.get(name) for values in run_values.values()}) > 1


def _identifies_run(
    name: str,
    run_values: Mapping[str, Mapping[str, str]],
    runs: Mapping[str, Sequence[DescribedNode]],
) -> bool:
    """Does the variable only identify the run, by its name or uuid?"""
    for run, values in run_values.items():
        value, first_node = values.get(name), runs[run][0]
        has_uuid = value is not None and first_node.uuid is not None and first_node.uuid in value
        if value != first_node.run_name and not has_uuid:
            return False
    return True


def _axes(sweep: SweepVariables) -> list[Axis]:
    """Group variables that vary together; axes that are unique per run come last."""
    groups: list[list[str]] = []
    for variable in sweep.variables:
        for group in groups:
            if _vary_together(sweep, group[0], variable.name):
                group.append(variable.name)
                break
        else:
            groups.append([variable.name])
    axes = [sweep.axis(group) for group in groups]
    return sorted(axes, key=lambda axis: len(axis.points) == len(sweep.runs))


def _vary_together(sweep: SweepVariables, one: str, other: str) -> bool:
    pairs = len(sweep.axis((one, other)).points)
    return pairs == len(sweep.axis((one,)).points) == len(sweep.axis((other,)).points)


def choices(sweep: SweepVariables) -> list[tuple[Axis, Axis | None]]:
    """Possible rows and columns: all pairs of axes, that with more points as rows.

    For a single axis: a list, followed by the pairs of its variables.
    """
    axes = sweep.axes
    pairs = [_longer_first(one, other) for one, other in combinations(axes, 2)]
    if len(axes) != 1:
        return list(pairs)
    single = [sweep.axis((name,)) for name in axes[0].names]
    return [(axes[0], None), *combinations(single, 2)]


def _longer_first(one: Axis, other: Axis) -> tuple[Axis, Axis]:
    return (one, other) if len(one.points) >= len(other.points) else (other, one)


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


def point_order(point: Point) -> tuple[Order, ...]:
    """Sort key of a point: by the first value, then the second."""
    return tuple(value_order(value) for value in point)
