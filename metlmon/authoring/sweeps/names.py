"""All that a sweep file names: groups, runs, nodes, regions, splices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from typing import Final

from metlmon.authoring.request import PlanError
from metlmon.authoring.sweeps.commands import RegionOf
from metlmon.authoring.sweeps.node_drafts import NodeDraft, RunDraft, check_name
from metlmon.authoring.sweeps.placeholders import nearest
from metlmon.dagman.commands import ALL_NODES
from metlmon.dagman.graph import APART
from metlmon.dagman.lexer import shown

MOST_MATCHED: Final = 20_000_000
"""Names that patterns of regions are held against, together."""


class SweepNames:
    """Each name means one thing, so that a line can be about any of them."""

    def __init__(self) -> None:
        self.groups: dict[str, list[RunDraft]] = {}
        self.runs: dict[str, RunDraft] = {}
        self.nodes: dict[str, NodeDraft] = {}
        self.regions: dict[str, list[NodeDraft]] = {}
        self.splices: set[str] = set()
        self._taken: dict[str, tuple[str, str]] = {}
        self._matched = 0

    def take(self, name: str, what: str, where: str) -> None:
        """``name`` is ``what`` from now on. Raises PlanError where it is something already."""
        if (other := self._taken.get(name)) is None:
            self._taken[name] = (what, where)
            return
        remedy = "choose another name"
        if other[0].startswith("a node of") and what.startswith("a node of"):
            remedy = "put {run} into the name in the template, since every run has one"
        raise PlanError(
            f"{where}: {shown(name)} would be {what}, and is {other[0]} ({other[1]}) already; "
            f"{remedy}"
        )

    def add(self, node: NodeDraft, what: str) -> None:
        """A new node, named in ``what`` it is."""
        self.take(node.name, what, node.where)
        self.nodes[node.name] = node

    def region(self, region: RegionOf) -> None:
        """Finds the members of a region: names of any kind, and patterns of nodes' names."""
        found: dict[str, NodeDraft] = {}
        for member in region.members:
            meant: Iterable[NodeDraft] | None = self._named(member)
            if meant is None and any(sign in member for sign in "*?["):
                meant = self._like(member, region.where)
                if not meant:
                    raise PlanError(
                        f"{region.where}: no node has a name like {shown(member)!r}; patterns are "
                        "held against nodes' names, such as flow0-train_epoch1"
                    )
            if not meant:
                raise self.no_such(member, region.where)
            found |= {node.name: node for node in meant}
        self.regions[region.name] = list(found.values())

    def _like(self, pattern: str, where: str) -> list[NodeDraft]:
        self._matched += len(self.nodes)
        if self._matched > MOST_MATCHED:
            raise PlanError(f"{where}: too many patterns for so many nodes; name groups instead")
        matches = re.compile(translate(pattern)).match
        return [node for name, node in self.nodes.items() if matches(name)]

    def _named(self, name: str) -> list[NodeDraft] | None:
        if name in self.groups:
            return [node for run in self.groups[name] for node in run.nodes.values()]
        if name in self.runs:
            return list(self.runs[name].nodes.values())
        if name in self.regions:
            return self.regions[name]
        return [self.nodes[name]] if name in self.nodes else None

    def meant(self, name: str, where: str) -> list[NodeDraft]:
        """The nodes that a command about ``name`` is about. Raises PlanError."""
        if name.upper() == ALL_NODES:
            return list(self.nodes.values())
        meant = self._named(name)
        if meant is None:
            raise self.no_such(name, where)
        return meant

    def ends(self, name: str, where: str, *, last: bool, subdags: bool) -> list[str]:
        """The nodes that PARENT (``last``) or CHILD mean by ``name``; ``subdags``: a run is one
        node. Raises PlanError."""
        if name in self.groups or name in self.runs:
            runs = self.groups.get(name) or [self.runs[name]]
            if subdags:
                return [run.name for run in runs]
            return [end for run in runs for end in run.ends(last=last)]
        if name in self.regions or name.upper() == ALL_NODES:
            raise PlanError(
                f"{where}: {shown(name)} has no first and last nodes; name nodes, runs or groups "
                "in PARENT … CHILD"
            )
        node = self.nodes.get(name)
        if node is None:
            raise self.no_such(name, where)
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

    def no_such(self, name: str, where: str) -> PlanError:
        """What is to be said of a name that nothing has."""
        check_name(name, where)
        near = nearest(name, self._taken)
        guess = f"; is {near} meant? If not," if near else ";"
        return PlanError(
            f"{where}: {shown(name)} is named, but no line says what it runs{guess} add "
            f"'JOB {shown(name)} {shown(name)}.sub', with NOOP behind it if it only stands between "
            "others"
        )
