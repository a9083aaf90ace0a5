"""Positions of the nodes of a DAG in a tree, which depend on the DAG file only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from metlmon.dagman import Node
from metlmon.dagman.graph import topological_order

SPLICE: Final = "+"
"""Between a splice's name and that of a node in it (``Splice+node``)."""


SCOPE: Final = "\n"
"""Suffix of splice names among node names; no token of a DAG file contains it."""


_NUMBERS: Final = re.compile(r"\d+")
"""The difference between ``shard017`` and ``shard018``."""


Line: TypeAlias = list[str]
"""Items in sequence: names of nodes, and of splices followed by :data:`SCOPE`."""


class TreePositions:
    """The positions of the nodes of one DAG.

    ``top``: its lines. ``branches``: by item, the lines that branch off after it.
    ``splice_lines``: by splice, the lines in it. ``order``: every item once, after the item it is
    placed below or after.
    ``rank``: an item's position in the DAG file. ``pattern``: its name without numbers.
    """

    __slots__ = ("branches", "order", "pattern", "rank", "splice_lines", "top")

    def __init__(self) -> None:
        self.top: list[Line] = []
        self.branches: dict[str, list[Line]] = {}
        self.splice_lines: dict[str, list[Line]] = {}
        self.order: list[str] = []
        self.rank: dict[str, int] = {}
        self.pattern: dict[str, str] = {}


def tree_positions(nodes: Mapping[str, Node]) -> TreePositions:
    """The positions of the nodes of one DAG; names of ``nodes`` as DAGMan logs them."""
    positions = TreePositions()
    members, parents = _splice_members(nodes, positions.rank)
    for scope, items in members.items():
        lines = positions.top if not scope else positions.splice_lines.setdefault(scope, [])
        _build_lines(items, parents, positions, lines)
    _set_order(positions)
    positions.pattern = {item: _NUMBERS.sub("#", item) for item in positions.order}
    return positions


def _splice_members(
    nodes: Mapping[str, Node], rank: dict[str, int]
) -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """The items of each splice (of the DAG itself: ""), and the parents of each item.

    Parents are items of the same splice.
    """
    members: dict[str, list[str]] = {"": []}
    paths: dict[str, tuple[str, ...]] = {}
    for position, name in enumerate(nodes):
        path = paths[name] = _path(name)
        for depth, item in enumerate(path):
            if item not in rank:
                rank[item] = position
                members.setdefault(path[depth - 1] if depth else "", []).append(item)
    parents: dict[str, set[str]] = {}
    for name, node in nodes.items():
        own_path = paths[name]
        for parent in node.parents:
            parent_path = paths.get(parent)
            if parent_path is None or parent == name:
                continue
            common = 0
            while own_path[common] == parent_path[common]:
                common += 1
            parents.setdefault(own_path[common], set()).add(parent_path[common])
    return members, parents


def _path(name: str) -> tuple[str, ...]:
    """The splices that contain a node, outermost first, and the node."""
    if SPLICE not in name:
        return (name,)
    parts = name.split(SPLICE)
    splices = (SPLICE.join(parts[:depth]) + SCOPE for depth in range(1, len(parts)))
    return (*splices, name)


def _build_lines(
    items: Sequence[str], parents: Mapping[str, set[str]], positions: TreePositions, top: list[Line]
) -> None:
    """Arrange the items of one splice in lines."""
    order = topological_order({item: parents.get(item, ()) for item in items})
    level: dict[str, int] = {}
    dominators = _dominators(order, parents, level)
    # Items of a cycle have no dominator: DAGMan rejects them.
    for item in items:
        level.setdefault(item, 0)
    followers: dict[str, list[str]] = {}
    for item in items:
        if dominators.get(item) is not None:
            followers.setdefault(dominators[item] or "", []).append(item)
    reach = dict(level)
    for item in reversed(order):
        dominator = dominators[item]
        if dominator is not None:
            reach[dominator] = max(reach[dominator], reach[item])
    continuations = {
        item: _continuation(item, next_items, level, reach, parents)
        for item, next_items in followers.items()
    }
    continued = {item for item in continuations.values() if item is not None}
    for item in items:
        if item in continued:
            continue
        line = [item]
        while (next_item := continuations.get(line[-1])) is not None:
            line.append(next_item)
        dominator = dominators.get(item)
        (top if dominator is None else positions.branches.setdefault(dominator, [])).append(line)
    for line in [*top, *(line for item in items for line in positions.branches.get(item, ()))]:
        _split_side_nodes(line, positions)


def _split_side_nodes(line: Line, positions: TreePositions) -> None:
    """Move the side node at the end of a chain to the branches.

    The side node of the last node has no sibling. It is recognised by its name, which is like
    those of the side nodes before.
    """
    side_patterns = {
        _NUMBERS.sub("#", branch[0])
        for item in line[:-1]
        for branch in positions.branches.get(item, ())
    }
    if not side_patterns:
        return
    for index in range(1, len(line)):
        if _NUMBERS.sub("#", line[index]) in side_patterns:
            positions.branches.setdefault(line[index - 1], []).append(line[index:])
            del line[index:]
            return


def _dominators(
    order: Sequence[str], parents: Mapping[str, set[str]], level: dict[str, int]
) -> dict[str, str | None]:
    """The immediate dominator of each item, None where there is none.

    ``level`` is filled with the length of the longest path. Every node also has a pointer further
    up (Myers' skew-binary jumps), so that a common ancestor is found in logarithmic time.
    """
    dominator: dict[str, str | None] = {}
    jump: dict[str, str | None] = {}
    depth: dict[str | None, int] = {None: -1}

    def common(a: str | None, b: str | None) -> str | None:
        if depth[a] < depth[b]:
            a, b = b, a
        while a is not None and depth[a] > depth[b]:
            further_up = jump[a]
            a = further_up if depth[further_up] >= depth[b] else dominator[a]
        while a is not None and b is not None and a != b:
            a, b = (dominator[a], dominator[b]) if jump[a] == jump[b] else (jump[a], jump[b])
        return a if a == b else None

    for item in order:
        own_parents = iter(parents.get(item, ()))
        first = next(own_parents, None)
        level[item] = 0 if first is None else level[first] + 1
        for parent in own_parents:
            first = common(first, parent)
            level[item] = max(level[item], level[parent] + 1)
        dominator[item] = first
        further_up = None if first is None else jump[first]
        furthest_up = None if further_up is None else jump[further_up]
        equal_jumps = (
            first is not None
            and depth[first] - depth[further_up] == depth[further_up] - depth[furthest_up]
        )
        jump[item] = furthest_up if equal_jumps else first
        depth[item] = depth[first] + 1
    return dominator


def _continuation(
    item: str,
    following: Sequence[str],
    level: Mapping[str, int],
    reach: Mapping[str, int],
    parents: Mapping[str, set[str]],
) -> str | None:
    """The item after ``item`` that continues its line; None where no one does.

    It is the only one; else one that joins the others; else the only one with followers, or one
    whose paths are much longer than the others'.
    """
    if len(following) == 1:
        return following[0]
    last = max(following, key=level.__getitem__)
    other_reach = max(reach[other] for other in following if other != last)
    if level[last] > other_reach and len(parents[last]) > 1:
        return last
    furthest, second = sorted(following, key=lambda other: -reach[other])[:2]
    if reach[furthest] > level[furthest] and all(
        reach[other] == level[other] for other in following if other != furthest
    ):
        return furthest
    if reach[furthest] - level[item] >= 2 * (reach[second] - level[item]) + 2:
        return furthest
    return None


def _set_order(positions: TreePositions) -> None:
    pending = [item for line in reversed(positions.top) for item in reversed(line)]
    while pending:
        item = pending.pop()
        positions.order.append(item)
        for lines in (positions.branches.get(item, ()), positions.splice_lines.get(item, ())):
            pending += [branch_item for line in reversed(lines) for branch_item in reversed(line)]
