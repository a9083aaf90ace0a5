"""Merges the variables of a node from all sources by precedence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from metlmon.authoring.graph import NodeRole, Precedence, VariableValue
from metlmon.authoring.request import Region, Request
from metlmon.frozen import frozen


@frozen
class NodePosition:
    """Identifies a node, to find the regions that contain it."""

    node: str
    run: str | None = None
    epoch: int | None = None
    role: NodeRole = NodeRole.TRAIN


def merged(variables: Iterable[VariableValue]) -> tuple[VariableValue, ...]:
    """Merge variables so that each name (case-insensitive, as in HTCondor) occurs once.

    The highest precedence wins, among equals the last. Names keep the order of their first
    occurrence; the winner keeps the values that it hides.
    """
    by_name: dict[str, VariableValue] = {}
    for variable in variables:
        key = variable.name.lower()
        existing = by_name.get(key)
        by_name[key] = variable if existing is None else _merge_two(existing, variable)
    return tuple(by_name.values())


def _merge_two(existing: VariableValue, new: VariableValue) -> VariableValue:
    """The winner of ``existing`` and ``new``, with all hidden values."""
    variables = sorted(
        (existing, *existing.over), key=lambda variable: variable.level, reverse=True
    )
    index = next(
        (position for position, variable in enumerate(variables) if new.level >= variable.level),
        len(variables),
    )
    variables.insert(index, new)
    first, *rest = (replace(variable, over=()) for variable in variables)
    return replace(first, over=tuple(rest))


def described(request: Request, position: NodePosition) -> list[VariableValue]:
    """The variables that the request defines: for all nodes, and by regions."""
    variables = [
        VariableValue(name, value, Precedence.ALL, DESCRIPTION)
        for name, value in request.variables.items()
    ]
    for region in request.regions:
        if region_contains(region, position):
            where = region.where or f"the region {region.name}"
            variables += [
                VariableValue(name, value, Precedence.REGION, where)
                for name, value in region.variables.items()
            ]
    return variables


DESCRIPTION = "the description"
"""Source of a variable that the description defines."""


def region_contains(region: Region, position: NodePosition) -> bool:
    """Whether the node is in the region.

    Nodes outside of runs are identified by their own names.
    """
    if region.runs and position.run not in region.runs and position.node not in region.runs:
        return False
    if region.epochs is None:
        return True
    first, last = region.epochs
    return position.epoch is not None and first <= position.epoch <= last
