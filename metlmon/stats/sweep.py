"""Which variables were swept: what differs from run to run and is the same all through a run.

From the nodes of the DAG files alone, whoever wrote them. Names of macros know no case, as in
HTCondor (manual: "Submit File Macros").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import combinations
from typing import Final, TypeAlias

from metlmon.frozen import frozen
from metlmon.snapshot.dag_description import DescribedNode, Nodes

OWN: Final = frozenset(
    {
        *("run", "run_uuid", "node", "epoch", "epochs"),
        *("random_seed", "resourcename", "gpumodel", "continue_from_checkpoint"),
    }
)
"""Variables that say which run, which epoch, where, and on what; in lower case."""

Value: TypeAlias = str | None
"""Of a variable of a run; None: it is not given."""

Point: TypeAlias = tuple[Value, ...]
"""The values of some variables together."""


@frozen
class Variable:
    """``name`` as the DAG file writes it first; ``values``: all that there are, in order."""

    name: str
    values: tuple[Value, ...]


@frozen
class Axis:
    """Variables that go together (a zip: each value of one has one value of the others with it),
    mostly one; ``points``: what there is of them, in order."""

    names: tuple[str, ...]
    points: tuple[Point, ...]

    @property
    def title(self) -> str:
        return " + ".join(self.names)


@frozen
class SweepVariables:
    """``variables``: all that are swept, in the DAG's order. ``axes``: the same, those that go
    together as one; what can best be told apart by comes first. ``runs``: the values of each
    run's ``variables``, by key."""

    variables: tuple[Variable, ...] = ()
    axes: tuple[Axis, ...] = ()
    runs: Mapping[str, Point] = field(default_factory=dict)

    def axis(self, names: Sequence[str]) -> Axis:
        """The axis of these variables."""
        at = self._places(names)
        points = {tuple(point[i] for i in at) for point in self.runs.values()}
        return Axis(tuple(names), tuple(sorted(points, key=point_order)))

    def values(self, run: str, names: Sequence[str]) -> Point:
        """What a run has of these variables."""
        return tuple(self.runs[run][i] for i in self._places(names))

    def _places(self, names: Sequence[str]) -> list[int]:
        known = [each.name for each in self.variables]
        return [known.index(name) for name in names]

    def named(self, name: str) -> str | None:
        """A variable's name as the DAG writes it."""
        wanted = name.lower()
        return next((v.name for v in self.variables if v.name.lower() == wanted), None)


@lru_cache(4)
def swept(nodes: Nodes) -> SweepVariables:
    """What the runs of these nodes differ in."""
    runs: dict[str, list[DescribedNode]] = {}
    names: dict[str, str] = {}
    for each in nodes.every:
        if each.run is not None and each.training:
            runs.setdefault(each.run, []).append(each)
            for name in each.node.vars:
                names.setdefault(name.lower(), name)
    given: dict[str, dict[str, str]] = {}
    varying = set(OWN)
    for run, of in runs.items():
        given[run], varies = _constant(of)
        varying |= varies
    known = [name for name in names if name not in varying]
    kept = [name for name in known if _differs(name, given) and not _only_names(name, given, runs)]
    points = {run: tuple(values.get(name) for name in kept) for run, values in given.items()}
    variables = tuple(
        Variable(names[name], tuple(sorted({p[i] for p in points.values()}, key=value_order)))
        for i, name in enumerate(kept)
    )
    bare = SweepVariables(variables, (), points)
    return SweepVariables(variables, tuple(_axes(bare)), points)


def _constant(nodes: Iterable[DescribedNode]) -> tuple[dict[str, str], set[str]]:
    """What the nodes of a run that have a variable say of it, by its name in lower case; and the
    names of those of which they do not all say the same."""
    found: dict[str, str] = {}
    varies: set[str] = set()
    for each in nodes:
        for name, value in each.node.vars.items():
            if found.setdefault(name.lower(), value) != value:
                varies.add(name.lower())
    return found, varies


def _differs(name: str, given: Mapping[str, Mapping[str, str]]) -> bool:
    return len({values.get(name) for values in given.values()}) > 1


def _only_names(
    name: str,
    given: Mapping[str, Mapping[str, str]],
    runs: Mapping[str, Sequence[DescribedNode]],
) -> bool:
    """Does it say no more than which run it is: a directory with the run's uuid in it?"""
    for run, values in given.items():
        value, own = values.get(name), runs[run][0]
        has_uuid = value is not None and own.uuid is not None and own.uuid in value
        if value != own.run_name and not has_uuid:
            return False
    return True


def _axes(sweep: SweepVariables) -> list[Axis]:
    """Variables that go together are one axis; one with a value of its own for each run comes
    last where others tell more."""
    groups: list[list[str]] = []
    for variable in sweep.variables:
        for group in groups:
            if _together(sweep, group[0], variable.name):
                group.append(variable.name)
                break
        else:
            groups.append([variable.name])
    axes = [sweep.axis(group) for group in groups]
    return sorted(axes, key=lambda axis: len(axis.points) == len(sweep.runs))


def _together(sweep: SweepVariables, one: str, other: str) -> bool:
    pairs = len(sweep.axis((one, other)).points)
    return pairs == len(sweep.axis((one,)).points) == len(sweep.axis((other,)).points)


def choices(sweep: SweepVariables) -> list[tuple[Axis, Axis | None]]:
    """What can be rows and columns: all pairs of axes, the one with more points as rows; of a
    single axis a list, and if it is of several variables their pairs behind that."""
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

LONGEST_NUMBER: Final = 60
"""Characters: longer ones are identifiers."""

Order: TypeAlias = tuple[int, float, tuple[tuple[int, int, str], ...], str]


def value_order(value: Value) -> Order:
    """Numbers by what they are, then text as people sort it (``b2`` before ``b10``), then what is
    not given."""
    if value is None:
        return 2, 0.0, (), ""
    text = value.strip()
    if len(text) <= LONGEST_NUMBER and _NUMBER.fullmatch(text):
        return 0, float(text), (), value
    parts = _DIGITS.split(text.casefold()[:LONGEST_NUMBER])
    # Every second part is digits.
    natural = tuple((1, int(p), "") if i % 2 else (0, 0, p) for i, p in enumerate(parts))
    return 1, 0.0, natural, value


def point_order(point: Point) -> tuple[Order, ...]:
    """By the first value, then the second."""
    return tuple(value_order(value) for value in point)
