"""Template files of a sweep: their placeholders, and the nodes that every run has.

Only declared names, ``run``, ``index`` and ``uuid`` are placeholders. ``$(…)`` belongs to HTCondor;
braces around anything but one word stay as they are, and ``{{word}}`` becomes ``{word}``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise, product
from typing import Final

from metlmon.authoring.fields import nearest
from metlmon.authoring.graph import Precedence
from metlmon.authoring.request import PlanError
from metlmon.authoring.sweeps.parser import (
    BUILTIN_NAMES,
    GenCommand,
    RegionCommand,
    SweepCommand,
)
from metlmon.authoring.sweeps.values import points
from metlmon.authoring.templates import fill_placeholders, placeholder_names
from metlmon.dagman.commands import (
    ALL_NODES,
    EdgeCommand,
    NodeCommand,
    NodeModifier,
    SpliceCommand,
    VarsCommand,
)
from metlmon.dagman.graph import APART
from metlmon.dagman.lexer import shown
from metlmon.text.formatting import listed

RUN: Final = "{run}"
"""As the name in VARS of a template: all nodes of the run."""


def shared_description(read: SweepCommand, name: str, known: Collection[str]) -> str:
    """The text of a submit description as written into the DAG, once for all runs.

    ``known``: names of placeholders. Raises PlanError if the description contains one, whose
    value differs between runs.
    """
    text = fill_placeholders(read.text, dict.fromkeys(known, ""), read.where)
    for placeholder in placeholder_names(read.text):
        macro = "run_uuid" if placeholder == "uuid" else placeholder
        raise PlanError(
            f"{read.where}: {{{placeholder}}} in the description {shown(name)}, which all runs "
            f"share; use $({macro}), which VARS give"
        )
    return text


# --- the template ---------------------------------------------------------------------------------


class RunTemplate:
    """A template file with its GEN command; nodes go by their names as written.

    - ``commands``: of the file; ``points``: the values of its runs.
    - ``nodes``: each node, with the position that names it first; ``declarations``: JOB commands,
      each with its position.
    - ``edges``: in file order, each once, with its command.
    - ``parents``: of each node, within the run; ``order``: the nodes, parents first.
    - ``firsts``, ``lasts``: nodes without parents, and without children, within the run.

    Raises PlanError for any error.
    """

    def __init__(self, generate: GenCommand, commands: Sequence[SweepCommand]) -> None:
        self.sweep, self._file, self._labels = generate.sweep, generate.template, generate.labels
        self.points = points(self.sweep)
        self.commands = commands
        names = [variable.name for variable in self.sweep.variables]
        self.known_names = frozenset(
            {*names, *(f"{name}_label" for name in self._labels), *BUILTIN_NAMES}
        )
        self.declarations: dict[str, tuple[NodeCommand, str]] = {}
        self.nodes = self._find_nodes()
        self.edges = self._find_edges()
        inner_edges = {
            edge: command.where
            for edge, command in self.edges.items()
            if not self.is_outside(*edge)
        }
        self.parents: dict[str, list[str]] = {key: [] for key in self.nodes}
        for parent, child in inner_edges:
            self.parents[child].append(parent)
        self.order = topological_order(self.nodes, inner_edges)
        with_children = {parent for parent, _ in inner_edges}
        in_graph = [key for key in self.nodes if not self._is_apart(key)]
        self.firsts = [key for key in in_graph if not self.parents[key]]
        self.lasts = [key for key in in_graph if key not in with_children]
        self._regions: dict[str, tuple[str, ...]] = {}
        for read in commands:
            if isinstance(read.command, RegionCommand):
                self._add_region(read.command, read.where)
        # Unknown names and placeholders are found now, at the first line that has one.
        for read in commands:
            self._check_placeholders(read.text, read.where)
            if isinstance(read.command, NodeModifier):
                self.resolve(read.command.node, read.where)

    def _add_region(self, region: RegionCommand, where: str) -> None:
        if region.name in self._regions:
            raise PlanError(f"{where}: the region {region.name} is there twice")
        members: dict[str, None] = {}
        for name in region.members:
            known = self._regions.get(name) or [k for k in self.nodes if fnmatchcase(k, name)]
            if name not in self.nodes and not known:
                raise self._unknown_name(name, where)
            members |= dict.fromkeys([name] if name in self.nodes else known)
        self._regions[region.name] = tuple(members)

    def _check_placeholders(self, text: str, where: str) -> None:
        """Raises PlanError for an unknown placeholder."""
        fill_placeholders(text, dict.fromkeys(self.known_names, ""), where)

    def is_outside(self, parent: str, child: str) -> bool:
        """Whether one of the nodes of an edge is a node of the workflow."""
        return parent not in self.nodes or child not in self.nodes

    def resolve(self, name: str, where: str) -> tuple[str, ...]:
        """The nodes that a command is about. Raises PlanError."""
        if name.upper() == ALL_NODES or name == RUN:
            return tuple(self.nodes)
        if name in self.nodes:
            return (name,)
        if name in self._regions:
            return self._regions[name]
        raise self._unknown_name(name, where)

    def precedence(self, name: str) -> Precedence:
        """The precedence of variables set for ``name``."""
        if name.upper() == ALL_NODES:
            return Precedence.ALL
        if name == RUN:
            return Precedence.RUN
        return Precedence.NODE if name in self.nodes else Precedence.REGION

    def run_values(self, marks: Sequence[str]) -> Iterator[dict[str, str]]:
        """The values of the placeholders for each run.

        ``marks`` stand for the uuids, which are derived from all other values.
        """
        width = len(str(len(marks) - 1))
        for index, (point, mark) in enumerate(zip(self.points, marks, strict=True)):
            labels = {f"{name}_label": each[point[name]] for name, each in self._labels.items()}
            run = f"{self.sweep.group}{index:0{width}}"
            yield {**point, **labels, "run": run, "index": str(index), "uuid": mark}

    # --- reading ------------------------------------------------------------------------------

    def _find_nodes(self) -> dict[str, str]:
        """The nodes, by JOB commands and edges; without any edges, by VARS, too."""
        where = self.sweep.where
        edges: list[EdgeCommand] = []
        for read in self.commands:
            match read.command:
                case GenCommand() | SpliceCommand():
                    raise PlanError(
                        f"{read.where}: a template ({where}) cannot hold {read.keyword}; name all "
                        "variables in one GEN line of the workflow, and nodes here, or INCLUDE them"
                    )
                case EdgeCommand():
                    edges.append(read.command)
        ordered = any(self._is_own(name) for edge in edges for name in edge.parents)
        nodes: dict[str, str] = {}
        for read in self.commands:
            names: Iterable[str] = ()
            match read.command:
                case NodeCommand(name=name) as command:
                    declared, position = self.declarations.setdefault(name, (command, read.where))
                    if declared is not command:
                        raise PlanError(
                            f"{read.where}: {shown(name)} is declared already ({position}); take "
                            "one of the lines out"
                        )
                    names = (name,)
                case EdgeCommand(parents=parents, children=children):
                    names = filter(self._is_own, (*parents, *children))
                case VarsCommand(node=name) if not ordered and self._is_own(name):
                    names = (name,)
            for name in names:
                nodes.setdefault(name, read.where)
        if not nodes:
            raise PlanError(
                f"{where}: {shown(self._file)} has no node; write "
                "'PARENT {run}-train_epoch0 CHILD {run}-train_epoch1', or JOB lines"
            )
        return nodes

    def _is_own(self, name: str) -> bool:
        return name != RUN and (bool(placeholder_names(name)) or name in self.declarations)

    def _is_apart(self, key: str) -> bool:
        return key in self.declarations and self.declarations[key][0].kind in APART

    def _find_edges(self) -> dict[tuple[str, str], SweepCommand]:
        edges: dict[tuple[str, str], SweepCommand] = {}
        for read in self.commands:
            if not isinstance(read.command, EdgeCommand):
                continue
            for edge in product(read.command.parents, read.command.children):
                edges.setdefault(edge, read)
            for name in (*read.command.parents, *read.command.children):
                if self._is_apart(name):
                    raise PlanError(
                        f"{read.where}: {shown(name)} stands outside the graph "
                        f"({self.declarations[name][1]}); take it out of PARENT … CHILD"
                    )
        return edges

    def _unknown_name(self, name: str, where: str) -> PlanError:
        self._check_placeholders(name, where)
        similar = nearest(name, (*self.nodes, *self._regions))
        known = listed([*map(shown, self.nodes)])
        hint = f"; is {similar} meant?" if similar else f"; there are {known}."
        return PlanError(
            f"{where}: {shown(name)} is no node or region of {shown(self._file)}{hint} A node is "
            f"declared by 'JOB {shown(name)} file.sub'"
        )


def topological_order(nodes: Iterable[str], edges: Mapping[tuple[str, str], str]) -> list[str]:
    """The nodes, each after its parents.

    ``edges``: (parent, child) with their positions. Raises PlanError if they have a cycle.
    """
    sorter = TopologicalSorter[str](dict.fromkeys(nodes, ()))
    for parent, child in edges:
        sorter.add(child, parent)
    try:
        return list(sorter.static_order())
    except CycleError as error:
        cycle: list[str] = error.args[1]
        cycle_edges = set(pairwise(cycle))
        # The edge added last closed the cycle.
        where = [position for edge, position in edges.items() if edge in cycle_edges][-1]
        names = listed([*map(shown, cycle)])
        raise PlanError(
            f"{where}: nodes wait for each other in a circle: {names}; take one of the PARENT "
            "lines out"
        ) from None
