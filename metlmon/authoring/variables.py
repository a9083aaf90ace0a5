"""Variables of a node from everywhere they may come from, and which of them counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from metlmon.authoring.graph import NodeRole, Precedence, VariableValue
from metlmon.authoring.request import Region, Request
from metlmon.frozen import frozen


@frozen
class NodePosition:
    """Where a node stands, for regions to find it."""

    node: str
    run: str | None = None
    epoch: int | None = None
    role: NodeRole = NodeRole.TRAIN


def merged(told: Iterable[VariableValue]) -> tuple[VariableValue, ...]:
    """One of each name (HTCondor's macro names know no case), in the order in which the names
    first came: that of the greatest level, of equal ones the last. It keeps those it hides."""
    found: dict[str, VariableValue] = {}
    for each in told:
        key = each.name.lower()
        there = found.get(key)
        found[key] = each if there is None else _over(there, each)
    return tuple(found.values())


def _over(there: VariableValue, new: VariableValue) -> VariableValue:
    every = sorted((there, *there.over), key=lambda each: each.level, reverse=True)
    at = next((i for i, each in enumerate(every) if new.level >= each.level), len(every))
    every.insert(at, new)
    first, *rest = (replace(each, over=()) for each in every)
    return replace(first, over=tuple(rest))


def described(request: Request, place: NodePosition) -> list[VariableValue]:
    """What the request gives a node beside the shape: to all, and by regions."""
    found = [VariableValue(n, v, Precedence.ALL, DESCRIPTION) for n, v in request.variables.items()]
    for region in request.regions:
        if has(region, place):
            where = region.where or f"the region {region.name}"
            found += [
                VariableValue(n, v, Precedence.REGION, where) for n, v in region.variables.items()
            ]
    return found


DESCRIPTION = "the description"


def has(region: Region, place: NodePosition) -> bool:
    """Is the node in the region? Nodes that train and evaluate nothing are told apart by their
    own names."""
    if region.runs and place.run not in region.runs and place.node not in region.runs:
        return False
    if region.epochs is None:
        return True
    first, last = region.epochs
    return place.epoch is not None and first <= place.epoch <= last
