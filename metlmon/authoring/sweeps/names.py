"""The namespace of a sweep file: groups, runs, nodes, regions, splices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from typing import Final

from metlmon.authoring.request import PlanError
from metlmon.authoring.sweeps.commands import RegionCommand
from metlmon.authoring.sweeps.node_drafts import NodeDraft, RunDraft, check_name
from metlmon.authoring.sweeps.placeholders import nearest
from metlmon.dagman.commands import ALL_NODES
from metlmon.dagman.graph import APART
from metlmon.dagman.lexer import shown

MOST_MATCHED: Final = 20_000_000
"""Limit of comparisons between region patterns and node names."""


class SweepNames:
    """The names in use; each refers to one thing, so commands may use any of them."""

    def __init__(self) -> None:
        self.groups: dict[str, list[RunDraft]] = {}
        self.runs: dict[str, RunDraft] = {}
        self.nodes: dict[str, NodeDraft] = {}
        self.regions: dict[str, list[NodeDraft]] = {}
        self.splices: set[str] = set()
        self._reserved: dict[str, tuple[str, str]] = {}
        self._matched = 0

    def reserve(self, name: str, kind: str, where: str) -> None:
        """Reserve ``name`` for ``kind``. Raises PlanError if it is in use."""
        if (previous := self._reserved.get(name)) is None:
            self._reserved[name] = (kind, where)
            return
        remedy = "choose another name"
        if previous[0].startswith("a node of") and kind.startswith("a node of"):
            remedy = "put {run} into the name in the template, since every run has one"
        raise PlanError(
            f"{where}: {shown(name)} would be {kind}, and is {previous[0]} ({previous[1]}) "
            f"already; {remedy}"
        )

    def add(self, node: NodeDraft, kind: str) -> None:
        """Add a node; ``kind`` describes it in error messages."""
        self.reserve(node.name, kind, node.where)
        self.nodes[node.name] = node

    def add_region(self, region: RegionCommand) -> None:
        """Resolve the members of a region: any names, and patterns of node names."""
        nodes: dict[str, NodeDraft] = {}
        for member in region.members:
            members: Iterable[NodeDraft] | None = self._nodes_of(member)
            if members is None and any(wildcard in member for wildcard in "*?["):
                members = self._matching(member, region.where)
                if not members:
                    raise PlanError(
                        f"{region.where}: no node has a name like {shown(member)!r}; patterns are "
                        "held against nodes' names, such as flow0-train_epoch1"
                    )
            if not members:
                raise self.unknown_name(member, region.where)
            nodes |= {node.name: node for node in members}
        self.regions[region.name] = list(nodes.values())

    def _matching(self, pattern: str, where: str) -> list[NodeDraft]:
        self._matched += len(self.nodes)
        if self._matched > MOST_MATCHED:
            raise PlanError(f"{where}: too many patterns for so many nodes; name groups instead")
        matches = re.compile(translate(pattern)).match
        return [node for name, node in self.nodes.items() if matches(name)]

    def _nodes_of(self, name: str) -> list[NodeDraft] | None:
        if name in self.groups:
            return [node for run in self.groups[name] for node in run.nodes.values()]
        if name in self.runs:
            return list(self.runs[name].nodes.values())
        if name in self.regions:
            return self.regions[name]
        return [self.nodes[name]] if name in self.nodes else None

    def resolve(self, name: str, where: str) -> list[NodeDraft]:
        """The nodes that a command about ``name`` applies to. Raises PlanError."""
        if name.upper() == ALL_NODES:
            return list(self.nodes.values())
        nodes = self._nodes_of(name)
        if nodes is None:
            raise self.unknown_name(name, where)
        return nodes

    def end_nodes(self, name: str, where: str, *, last: bool, subdags: bool) -> list[str]:
        """The nodes that PARENT (``last``) or CHILD refer to by ``name``.

        ``subdags``: a run is one node. Raises PlanError.
        """
        if name in self.groups or name in self.runs:
            runs = self.groups.get(name) or [self.runs[name]]
            if subdags:
                return [run.name for run in runs]
            return [name_of_end for run in runs for name_of_end in run.end_nodes(last=last)]
        if name in self.regions or name.upper() == ALL_NODES:
            raise PlanError(
                f"{where}: {shown(name)} has no first and last nodes; name nodes, runs or groups "
                "in PARENT … CHILD"
            )
        node = self.nodes.get(name)
        if node is None:
            raise self.unknown_name(name, where)
        if node.kind in APART:
            raise PlanError(
                f"{where}: {shown(name)} is a {node.kind.name} node ({node.where}), which comes "
                "before or after nothing; take it out of PARENT … CHILD"
            )
        if subdags and node.run is not None:
            raise PlanError(
                f"{where}: {shown(name)} lies in the sub-DAG of {node.run.name}; name the run or "
                "its group in PARENT … CHILD"
            )
        return [name]

    def unknown_name(self, name: str, where: str) -> PlanError:
        """The error for an unknown name."""
        check_name(name, where)
        similar = nearest(name, self._reserved)
        hint = f"; is {similar} meant? If not," if similar else ";"
        return PlanError(
            f"{where}: {shown(name)} is named, but no line says what it runs{hint} add "
            f"'JOB {shown(name)} {shown(name)}.sub', with NOOP behind it if it only stands between "
            "others"
        )
