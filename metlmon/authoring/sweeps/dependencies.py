"""The dependencies within runs and between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from metlmon.authoring.request import PlanError
from metlmon.authoring.sweeps.commands import ParentChild
from metlmon.authoring.sweeps.names import SweepNames
from metlmon.authoring.sweeps.node_drafts import RunDraft
from metlmon.authoring.sweeps.parser import listed
from metlmon.dagman.lexer import shown

MOST_EDGES: Final = 1_000_000
"""Ten per allowed node: a group that depends on a group has many edges."""


class DependencyBuilder:
    """Collects edges (parent, child) with their positions, each once.

    Dependencies that a graph cannot represent are returned as lines of DAG text.
    """

    def __init__(self, names: SweepNames, *, subdags: bool) -> None:
        self.edges: dict[tuple[str, str], str] = {}
        self._names = names
        self._subdags = subdags
        self._edge_count = 0

    def add_run(self, run: RunDraft) -> Iterator[str]:
        """Add the edges of a run; yields dependencies without an edge as lines."""
        for edge in run.template.edges:
            parent, child = edge.parent.fill(run.filling), edge.child.fill(run.filling)
            if edge.outside:
                self._check_outside(parent, child, edge.where)
            if edge.weak:
                yield f"WEAK PARENT {parent} CHILD {child}"
                continue
            self._count(1, edge.where)
            target = run.edges if self._subdags else self.edges
            target.setdefault((parent, child), edge.where)

    def _check_outside(self, parent: str, child: str, where: str) -> None:
        """Raises PlanError if an edge to a node of the workflow is not possible."""
        for name in (parent, child):
            node = self._names.nodes.get(name)
            if node is None:
                raise self._names.unknown_name(name, where)
            if self._subdags and node.run is None:
                raise PlanError(
                    f"{where}: {shown(name)} lies outside the run's own DAG; write this line in "
                    "the workflow, with the group in the run's place"
                )

    def add_command(self, command: ParentChild) -> str | None:
        """Add the edges of a command of the workflow.

        Returns the line instead if a graph cannot represent it.
        """
        sides = []
        as_line = command.weak
        for names, last in ((command.parents, True), (command.children, False)):
            node_names: dict[str, None] = {}
            for name in names:
                if name in self._names.splices:
                    as_line = True
                    node_names[name] = None
                    continue
                ends = self._names.end_nodes(name, command.where, last=last, subdags=self._subdags)
                node_names |= dict.fromkeys(ends)
            sides.append(list(node_names))
        parents, children = sides
        self._count(len(parents) * len(children), command.where)
        if as_line:
            weak = "WEAK " if command.weak else ""
            return f"{weak}PARENT {' '.join(parents)} CHILD {' '.join(children)}"
        for parent in parents:
            for child in children:
                self.edges.setdefault((parent, child), command.where)
        return None

    def _count(self, count: int, where: str) -> None:
        self._edge_count += count
        if self._edge_count > MOST_EDGES:
            raise PlanError(
                f"{where}: with this line the DAG has {self._edge_count} edges, more than the "
                f"{MOST_EDGES} it may have; put a node between: 'JOB between between.sub NOOP'"
            )


def check_acyclic(nodes: Iterable[str], edges: dict[tuple[str, str], str]) -> None:
    """Raises PlanError if the edges have a cycle."""
    open_parents = dict.fromkeys(nodes, 0)
    children: dict[str, list[str]] = {}
    for parent, child in edges:
        open_parents[child] += 1
        children.setdefault(parent, []).append(child)
    ready = [name for name, count in open_parents.items() if not count]
    for name in ready:
        for child in children.get(name, ()):
            open_parents[child] -= 1
            if not open_parents[child]:
                ready.append(child)
    if len(ready) == len(open_parents):
        return
    stuck = {name for name, count in open_parents.items() if count}
    cycle_names, where = _find_cycle(stuck, edges)
    raise PlanError(
        f"{where}: nodes wait for each other in a circle: {listed(tuple(cycle_names))}; take one "
        "of the PARENT lines out"
    )


def _find_cycle(stuck: set[str], edges: dict[tuple[str, str], str]) -> tuple[list[str], str]:
    """A cycle and the position of its last edge.

    Every stuck node has a stuck parent, so following parents from any of them meets itself.
    """
    parents = {child: parent for parent, child in edges if child in stuck and parent in stuck}
    name = next(iter(sorted(stuck)))
    path: list[str] = []
    seen: dict[str, int] = {}
    while name not in seen:
        seen[name] = len(path)
        path.append(name)
        name = parents[name]
    cycle_path = path[seen[name] :]
    cycle_path.reverse()
    closed = [*cycle_path, cycle_path[0]]
    cycle_edges = set(pairwise(closed))
    # The edge added last closed the cycle.
    where = [position for edge, position in edges.items() if edge in cycle_edges][-1]
    return closed, where
