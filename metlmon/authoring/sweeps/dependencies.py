"""The dependencies within runs and between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from metlmon.authoring.request import PlanError
from metlmon.authoring.sweeps.nodes import RunDraft, SweepNodes
from metlmon.authoring.sweeps.parser import ParentChild
from metlmon.dagman.lexer import shown

MOST_EDGES: Final = 1_000_000
"""Ten per allowed node: a group that depends on a group has many edges."""


class DependencyBuilder:
    """Collects edges (parent, child) with their positions, each once.

    Dependencies that a graph cannot represent are returned as lines of DAG text. ``subdags``: each
    run is a sub-DAG with edges of its own.
    """

    def __init__(self, nodes: SweepNodes, *, subdags: bool) -> None:
        self.edges: dict[tuple[str, str], str] = {}
        self._nodes = nodes
        self._subdags = subdags
        self._edge_count = 0

    def add_run(self, run: RunDraft) -> Iterator[str]:
        """Add the edges of a run; yields dependencies without an edge as lines."""
        for edge, command in run.template.edges.items():
            parent, child = (run.fill(key, command.where) for key in edge)
            if run.template.is_outside(*edge):
                self._check_outside(parent, child, command.where)
            if command.weak:
                yield f"WEAK PARENT {parent} CHILD {child}"
                continue
            self._count(1, command.where)
            edges = run.edges if self._subdags else self.edges
            edges.setdefault((parent, child), command.where)

    def _check_outside(self, parent: str, child: str, where: str) -> None:
        """Raises PlanError if an edge to a node of the workflow is not possible."""
        for name in (parent, child):
            node = self._nodes.nodes.get(name)
            if node is None:
                raise self._nodes.unknown_name(name, where)
            if self._subdags and node.run is None:
                raise PlanError(
                    f"{where}: {shown(name)} lies outside the run's own DAG; write this line in "
                    "the workflow, with the group in the run's place"
                )

    def add_command(self, command: ParentChild) -> str | None:
        """Add the edges of a command of the workflow.

        Returns the line instead if a graph cannot represent it.
        """
        parents = self._end_nodes(command.parents, command.where, last=True)
        children = self._end_nodes(command.children, command.where, last=False)
        self._count(len(parents) * len(children), command.where)
        if command.weak or not self._nodes.splices.isdisjoint((*parents, *children)):
            weak = "WEAK " if command.weak else ""
            return f"{weak}PARENT {' '.join(parents)} CHILD {' '.join(children)}"
        for parent in parents:
            for child in children:
                self.edges.setdefault((parent, child), command.where)
        return None

    def _end_nodes(self, names: tuple[str, ...], where: str, *, last: bool) -> list[str]:
        """The nodes and splices that one side of a command refers to, each once."""
        ends: dict[str, None] = {}
        for name in names:
            is_splice = name in self._nodes.splices
            ends |= dict.fromkeys(
                [name] if is_splice else self._nodes.end_nodes(name, where, last=last)
            )
        return list(ends)

    def _count(self, count: int, where: str) -> None:
        self._edge_count += count
        if self._edge_count > MOST_EDGES:
            raise PlanError(
                f"{where}: with this line the DAG has {self._edge_count} edges, more than the "
                f"{MOST_EDGES} it may have; put a node between: 'JOB between between.sub NOOP'"
            )
