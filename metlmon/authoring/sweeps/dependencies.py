"""What comes before what, in the runs and between them."""

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
"""Ten for each node that a DAG may have: a group that waits for a group makes many."""


class DependencyBuilder:
    """Edges (parent, child) with the places that ask for them, each once. ``lines``: what a graph
    has no word for, by the run whose DAG it belongs to (None: the workflow's)."""

    def __init__(self, names: SweepNames, *, subdags: bool) -> None:
        self.edges: dict[tuple[str, str], str] = {}
        self._names = names
        self._subdags = subdags
        self._made = 0

    def of_run(self, run: RunDraft) -> Iterator[str]:
        """Draws the edges of a run; gives the lines of those that a graph cannot have."""
        for edge in run.template.edges:
            parent, child = edge.parent.fill(run.filling), edge.child.fill(run.filling)
            if edge.outside:
                self._outside(parent, child, edge.where)
            if edge.weak:
                yield f"WEAK PARENT {parent} CHILD {child}"
                continue
            self._count(1, edge.where)
            target = run.edges if self._subdags else self.edges
            target.setdefault((parent, child), edge.where)

    def _outside(self, parent: str, child: str, where: str) -> None:
        for name in (parent, child):
            node = self._names.nodes.get(name)
            if node is None:
                raise self._names.no_such(name, where)
            if self._subdags and node.run is None:
                raise PlanError(
                    f"{where}: {shown(name)} lies outside the run's own DAG; write this line in "
                    "the workflow, with the group in the run's place"
                )

    def draw(self, command: ParentChild) -> str | None:
        """Draws the edges of a line of the workflow; gives the line where a graph cannot have
        them."""
        sides = []
        as_line = command.weak
        for names, last in ((command.parents, True), (command.children, False)):
            found: dict[str, None] = {}
            for name in names:
                if name in self._names.splices:
                    as_line = True
                    found[name] = None
                    continue
                ends = self._names.ends(name, command.where, last=last, subdags=self._subdags)
                found |= dict.fromkeys(ends)
            sides.append(list(found))
        parents, children = sides
        self._count(len(parents) * len(children), command.where)
        if as_line:
            weak = "WEAK " if command.weak else ""
            return f"{weak}PARENT {' '.join(parents)} CHILD {' '.join(children)}"
        for parent in parents:
            for child in children:
                self.edges.setdefault((parent, child), command.where)
        return None

    def _count(self, number: int, where: str) -> None:
        self._made += number
        if self._made > MOST_EDGES:
            raise PlanError(
                f"{where}: with this line the DAG has {self._made} edges, more than the "
                f"{MOST_EDGES} it may have; put a node between: 'JOB between between.sub NOOP'"
            )


def refuse_circles(nodes: Iterable[str], edges: dict[tuple[str, str], str]) -> None:
    """Raises PlanError when nodes wait for each other in a circle."""
    waiting = dict.fromkeys(nodes, 0)
    after: dict[str, list[str]] = {}
    for parent, child in edges:
        waiting[child] += 1
        after.setdefault(parent, []).append(child)
    ready = [name for name, count in waiting.items() if not count]
    for name in ready:
        for child in after.get(name, ()):
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    if len(ready) == len(waiting):
        return
    stuck = {name for name, count in waiting.items() if count}
    circle, where = _circle(stuck, edges)
    raise PlanError(
        f"{where}: nodes wait for each other in a circle: {listed(tuple(circle))}; take one of the "
        "PARENT lines out"
    )


def _circle(stuck: set[str], edges: dict[tuple[str, str], str]) -> tuple[list[str], str]:
    """Every stuck node has a stuck parent: going up from one must meet itself."""
    above = {child: parent for parent, child in edges if child in stuck and parent in stuck}
    name = next(iter(sorted(stuck)))
    path: list[str] = []
    seen: dict[str, int] = {}
    while name not in seen:
        seen[name] = len(path)
        path.append(name)
        name = above[name]
    found = path[seen[name] :]
    found.reverse()
    closed = [*found, found[0]]
    circle = set(pairwise(closed))
    # What was drawn last is what closed it.
    where = [place for edge, place in edges.items() if edge in circle][-1]
    return closed, where
