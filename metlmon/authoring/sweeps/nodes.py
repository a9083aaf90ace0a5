"""The nodes of a sweep file: those of each template, of every run, and the workflow's own.

Only declared names, ``run``, ``index`` and ``uuid`` are placeholders. ``$(…)`` belongs to HTCondor.
Until all of a run is known, its uuid is a mark in names, files and values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise, product
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring.graph import MOST_NODES, GraphNode, NodeRole, Precedence, VariableValue
from metlmon.authoring.request import PlanError, Request, nearest
from metlmon.authoring.sweeps.files import SweepFiles
from metlmon.authoring.sweeps.parser import (
    BUILTIN_NAMES,
    GenCommand,
    RegionCommand,
    SweepCommand,
)
from metlmon.authoring.sweeps.values import points
from metlmon.authoring.templates import fill_placeholders, placeholder_names
from metlmon.config.settings import SIDE_NODE, TRAIN_NODE
from metlmon.dagman.commands import (
    ALL_NODES,
    EdgeCommand,
    NodeCommand,
    NodeModifier,
    SpliceCommand,
    VarsCommand,
    VarsPlacement,
)
from metlmon.dagman.graph import APART
from metlmon.dagman.lexer import shown
from metlmon.dagman.parser import RESERVED
from metlmon.dagman.records import NodeKind
from metlmon.text.formatting import listed

RUN: Final = "{run}"
"""As the name in VARS of a template: all nodes of the run."""

TRAINING_ROLES: Final = frozenset({NodeRole.TRAIN, NodeRole.EVALUATE})

LONGEST_NAME: Final = 200
"""Node names become parts of file names, which are limited to 255 characters."""

MARK: Final = re.compile("\x01([0-9]+)\x02")
"""Stands for the uuid of the run with this index."""

_ROLE_PATTERNS: Final = {
    NodeRole.TRAIN: re.compile(TRAIN_NODE),
    NodeRole.EVALUATE: re.compile(SIDE_NODE),
}
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_NAME: Final = re.compile(r"[^\s\"'\\+/(){}$#,]++")
_FILE: Final = re.compile(r"[^\s\"'\\]++")

_ROLES: Final = {
    NodeKind.PROVISIONER: NodeRole.PROVISION,
    NodeKind.SERVICE: NodeRole.SERVE,
    NodeKind.FINAL: NodeRole.FINISH,
}
_SINGLE_KINDS: Final = frozenset({NodeKind.FINAL, NodeKind.PROVISIONER})
"""Kinds of which a DAG has at most one node."""


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


# --- the names that commands may use -----------------------------------------------------------


class Scope:
    """The names in the commands of the workflow, or of a template.

    ``nodes``: by name; ``names``: runs, groups and regions, each with the precedence of variables
    that are set for it, and its nodes.
    """

    nodes: Mapping[str, object]
    names: dict[str, tuple[Precedence, Sequence[str]]]

    def unknown_name(self, name: str, where: str) -> PlanError:
        """The error for an unknown name."""
        raise NotImplementedError

    def resolve(self, name: str, where: str) -> Sequence[str]:
        """The nodes that a command about ``name`` applies to. Raises PlanError."""
        return self._find(name, where)[1]

    def precedence(self, name: str, where: str) -> Precedence:
        """The precedence of variables that a command sets for ``name``. Raises PlanError."""
        return self._find(name, where)[0]

    def _find(self, name: str, where: str) -> tuple[Precedence, Sequence[str]]:
        if name.upper() == ALL_NODES:
            return Precedence.ALL, list(self.nodes)
        if name in self.nodes:
            return Precedence.NODE, [name]
        if name not in self.names:
            raise self.unknown_name(name, where)
        return self.names[name]

    def add_region(self, region: RegionCommand, where: str) -> None:
        """Resolve the members of a region: any names, and patterns of node names."""
        nodes: dict[str, None] = {}
        for member in region.members:
            if member in self.nodes or not any(wildcard in member for wildcard in "*?["):
                nodes |= dict.fromkeys(self.resolve(member, where))
                continue
            members = [*filter(re.compile(translate(member)).match, self.nodes)]
            if not members:
                raise PlanError(
                    f"{where}: no node has a name like {shown(member)!r}; patterns are held "
                    f"against nodes' names, such as {shown(next(iter(self.nodes)))}"
                )
            nodes |= dict.fromkeys(members)
        self.names[region.name] = Precedence.REGION, list(nodes)


# --- the template ---------------------------------------------------------------------------------


class RunTemplate(Scope):
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
        self.nodes: Mapping[str, str] = self._find_nodes()
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
        self.names = {RUN: (Precedence.RUN, list(self.nodes))}
        for read in commands:
            if isinstance(read.command, RegionCommand):
                if read.command.name in self.names:
                    text = f"the region {read.command.name} is there twice"
                    raise PlanError(f"{read.where}: {text}")
                self.add_region(read.command, read.where)
        # Unknown names and placeholders are found now, at the first line that has one.
        for read in commands:
            self._check_placeholders(read.text, read.where)
            if isinstance(read.command, NodeModifier):
                self.resolve(read.command.node, read.where)

    def _check_placeholders(self, text: str, where: str) -> None:
        """Raises PlanError for an unknown placeholder."""
        fill_placeholders(text, dict.fromkeys(self.known_names, ""), where)

    def is_outside(self, parent: str, child: str) -> bool:
        """Whether one of the nodes of an edge is a node of the workflow."""
        return parent not in self.nodes or child not in self.nodes

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
                        raise _declared_twice(name, position, read.where)
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

    def unknown_name(self, name: str, where: str) -> PlanError:
        self._check_placeholders(name, where)
        return _unknown_name(name, (*self.nodes, *self.names), where)


def topological_order(nodes: Iterable[str], edges: Mapping[tuple[str, str], str]) -> list[str]:
    """The nodes, each after its parents. Raises PlanError if they have a cycle."""
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


# --- runs, and all nodes ------------------------------------------------------------------------


class TemplateRun(Struct, eq=False):
    """A run: an instance of a template.

    ``index``: its number among all runs of the file. ``point``: its swept values; ``values``: of
    all placeholders; that of uuid is a mark. ``nodes``: their names by those in the template.
    ``edges`` and ``lines``: of its own DAG, if it has one.
    """

    name: str
    index: int
    template: RunTemplate
    point: Mapping[str, str]
    values: dict[str, str]
    seed: int
    nodes: dict[str, str] = {}
    edges: dict[tuple[str, str], str] = {}
    lines: dict[str, None] = {}

    def fill(self, text: str, where: str) -> str:
        """A text with the placeholders of the run filled in. Raises PlanError."""
        return fill_placeholders(text, self.values, where)

    def resolve(self, name: str, where: str) -> list[str]:
        """The nodes that a command of the template is about. Raises PlanError."""
        return [self.nodes[key] for key in self.template.resolve(name, where)]

    def end_nodes(self, *, last: bool) -> list[str]:
        """The names of its last nodes, or of its first ones."""
        keys = self.template.lasts if last else self.template.firsts
        return [self.nodes[key] for key in keys]


class SweepNodes(Scope):
    """All nodes of a sweep file, with the names that commands may use for them.

    Each name refers to one thing: a group, run, node, region or splice.

    - ``templates``: those of the GEN commands, in file order; ``groups``: the runs of each.
    - ``nodes``: by name, without variables; ``keys``: their names in the template.
    - ``variables``: of each node, as assigned.
    - ``declared``, ``done``: nodes that a JOB command or the like names, also as DONE.
    """

    def __init__(
        self, request: Request, commands: Sequence[SweepCommand], files: SweepFiles
    ) -> None:
        self.templates: list[RunTemplate] = []
        self.groups: dict[str, list[TemplateRun]] = {}
        self.runs: dict[str, TemplateRun] = {}
        self.nodes: dict[str, GraphNode] = {}
        self.keys: dict[str, str] = {}
        self.variables: dict[str, list[VariableValue]] = {}
        self.declared: set[str] = set()
        self.done: set[str] = set()
        self.names = {}
        self.splices: set[str] = set()
        self._request = request
        self._reserved: dict[str, tuple[str, str]] = {}
        self._read_templates(commands, files)
        self._build(commands)
        self._assign(commands)

    # --- building -----------------------------------------------------------------------------

    def _read_templates(self, commands: Sequence[SweepCommand], files: SweepFiles) -> None:
        """Read the templates, and check the number of nodes before any is built."""
        total = sum(isinstance(read.command, NodeCommand) for read in commands)
        for read in commands:
            if not isinstance(read.command, GenCommand):
                continue
            template_commands = files.commands(read.command.template, read.where)
            template = RunTemplate(read.command, template_commands)
            runs = len(template.points)
            total += runs * len(template.nodes)
            if total > MOST_NODES:
                raise PlanError(
                    f"{read.where}: {runs} runs of {len(template.nodes)} nodes: with them the DAG "
                    f"has {total} nodes, more than the {MOST_NODES} it may have; make several DAGs"
                )
            self.templates.append(template)
        runs = sum(len(template.points) for template in self.templates)
        if len(self._request.seeds) not in (0, 1, runs):
            raise PlanError(
                f"{len(self._request.seeds)} seeds for {runs} runs; give one for all, or one for "
                "each, or sweep random_seed in the GEN line"
            )

    def _build(self, commands: Sequence[SweepCommand]) -> None:
        templates = iter(self.templates)
        for read in commands:
            match read.command:
                case GenCommand():
                    self._build_runs(next(templates))
                case RegionCommand(name=name):
                    self._reserve(name, "a region", read.where)
                case SpliceCommand(name=name):
                    self._reserve(name, "a splice", read.where)
                    self.splices.add(name)
        for read in commands:
            if isinstance(read.command, NodeCommand):
                self._declare(read.command, read.where)
        for read in commands:
            if isinstance(read.command, RegionCommand):
                self.add_region(read.command, read.where)
        single: dict[NodeKind, GraphNode] = {}
        for node in self.nodes.values():
            if node.kind in _SINGLE_KINDS and not (node.run and self._request.subdags):
                first = single.setdefault(node.kind, node)
                if first is not node:
                    raise PlanError(
                        f"{node.where}: a DAG has one {node.kind.name} node, and "
                        f"{shown(first.name)} is one ({first.where}); declare it once, in the "
                        "workflow, or make each run a sub-DAG"
                    )
            if node.name not in self.declared and node.role is NodeRole.PLAIN:
                key = shown(self.keys[node.name])
                raise PlanError(
                    f"{node.where}: {key} is named, but no line says what it runs, and its name is "
                    "not one of a node that trains (…train_epoch0) or evaluates (…eval_epoch1); "
                    f"add 'JOB {key} file.sub'"
                )

    def _build_runs(self, template: RunTemplate) -> None:
        sweep, seeds = template.sweep, self._request.seeds
        self._reserve(sweep.group, "a group", sweep.where)
        group = self.groups[sweep.group] = []
        first = len(self.runs)
        marks = [f"\x01{first + number}\x02" for number in range(len(template.points))]
        for index, values in enumerate(template.run_values(marks), start=first):
            run = TemplateRun(
                name=values["run"],
                index=index,
                template=template,
                point=template.points[index - first],
                values=values,
                seed=seeds[index % len(seeds)] if seeds else index + 1,
            )
            self._reserve(run.name, f"a run of {sweep.group}", sweep.where)
            self.runs[run.name] = run
            group.append(run)
            for key, where in template.nodes.items():
                self._add_run_node(run, key, where)
            self.names[run.name] = Precedence.RUN, list(run.nodes.values())
        of_group = [name for run in group for name in run.nodes.values()]
        self.names[sweep.group] = Precedence.RUN, of_group

    def _add_run_node(self, run: TemplateRun, key: str, where: str) -> None:
        name = run.fill(key, where)
        check_name(name, where)
        node = GraphNode(name, "", run=run.name, where=where)
        if key in run.template.declarations:
            command, position = run.template.declarations[key]
            node = self._declared(node, command, run.fill(command.submit or "", position), position)
        if node.kind is NodeKind.JOB:
            node = _with_role(node)
        self._reserve(name, f"a node of {run.template.sweep.group}", node.where)
        run.nodes[key] = name
        self.keys[name] = key
        self.nodes[name] = node
        self.variables[name] = []

    def _declare(self, command: NodeCommand, where: str) -> None:
        """Declare a node of the workflow, or the job of a run's node."""
        name, submit = command.name, command.submit or ""
        node = self.nodes.get(name)
        if node is None:
            check_name(name, where)
            node = self._declared(GraphNode(name, ""), command, submit, where)
            self._reserve(name, "a node", where)
            self.keys[name] = ""
            self.nodes[name] = node
            self.variables[name] = []
        elif name in self.declared:
            raise _declared_twice(name, node.where, where)
        elif command.kind not in (NodeKind.JOB, NodeKind.SUBDAG):
            raise PlanError(
                f"{where}: {shown(name)} is a node of the run {node.run}; declare it with JOB"
            )
        else:
            self.nodes[name] = self._declared(node, command, submit, where)

    def _declared(
        self, node: GraphNode, command: NodeCommand, submit: str, where: str
    ) -> GraphNode:
        """The node as a JOB command or the like says. Raises PlanError."""
        unmarked = _without_marks(submit)
        valid = _FILE.fullmatch(unmarked) and unmarked.isprintable()
        if not valid or unmarked.startswith(("{", "@=")):
            raise PlanError(
                f"{where}: {shown(unmarked)!r} cannot be the name of a file in a DAG; use one "
                "without blanks and quotes"
            )
        self.declared.add(node.name)
        if command.done:
            self.done.add(node.name)
        role = _ROLES.get(command.kind, node.role)
        noop = command.noop
        return replace(node, kind=command.kind, submit=submit, role=role, noop=noop, where=where)

    def _reserve(self, name: str, kind: str, where: str) -> None:
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

    # --- names --------------------------------------------------------------------------------

    def end_nodes(self, names: Iterable[str], where: str, *, last: bool) -> list[str]:
        """The nodes and splices that PARENT (``last``) or CHILD name. Raises PlanError."""
        ends: dict[str, None] = {}
        for name in names:
            if name in self.splices:
                ends[name] = None
            elif name not in self.groups and name not in self.runs:
                self._check_end_node(name, where)
                ends[name] = None
            else:
                for run in self.groups.get(name) or [self.runs[name]]:
                    run_ends = [run.name] if self._request.subdags else run.end_nodes(last=last)
                    ends |= dict.fromkeys(run_ends)
        return list(ends)

    def _check_end_node(self, name: str, where: str) -> None:
        """Raises PlanError if the name cannot stand in PARENT … CHILD."""
        node, reason = self.nodes.get(name), ""
        if name in self.names or name.upper() == ALL_NODES:
            reason = "has no first and last nodes"
        elif node is None:
            raise self.unknown_name(name, where)
        elif node.kind in APART:
            reason = f"is a {node.kind.name} node ({node.where}), outside of the graph"
        elif self._request.subdags and node.run is not None:
            reason = f"lies in the sub-DAG of {node.run}"
        if reason:
            remedy = "name other nodes, runs or groups in PARENT … CHILD"
            raise PlanError(f"{where}: {shown(name)} {reason}; {remedy}")

    def unknown_name(self, name: str, where: str) -> PlanError:
        check_name(name, where)
        return _unknown_name(name, self._reserved, where)

    def values_of(self, node: str) -> Mapping[str, str]:
        """The placeholders of a node's run; none for a node of the workflow."""
        run = self.nodes[node].run
        return {} if run is None else self.runs[run].values

    # --- variables ----------------------------------------------------------------------------

    def _assign(self, commands: Sequence[SweepCommand]) -> None:
        """Assign variables, from the widest scope to the narrowest; the last one wins."""
        for run in self.runs.values():
            variables = [
                VariableValue(swept.name, run.point[swept.name], Precedence.RUN, swept.where)
                for swept in run.template.sweep.variables
            ]
            for name in run.nodes.values():
                if self.nodes[name].role in TRAINING_ROLES:
                    self.variables[name] += variables
        lines: dict[Precedence, list[tuple[VarsCommand, str]]] = {each: [] for each in Precedence}
        for read in commands:
            if isinstance(read.command, VarsCommand):
                level = self.precedence(read.command.node, read.where)
                lines[level].append((read.command, read.where))
        all_but_final = [n.name for n in self.nodes.values() if n.kind is not NodeKind.FINAL]
        for line, where in lines[Precedence.ALL]:
            self._assign_line(line, where, all_but_final, Precedence.ALL)
        for run in self.runs.values():
            for read in run.template.commands:
                if isinstance(read.command, VarsCommand):
                    level = run.template.precedence(read.command.node, read.where)
                    names = run.resolve(read.command.node, read.where)
                    self._assign_line(read.command, read.where, names, level)
        # Those of a group before those of a run, which are narrower.
        lines[Precedence.RUN].sort(key=lambda pair: pair[0].node in self.runs)
        for level in (Precedence.REGION, Precedence.RUN, Precedence.NODE):
            for line, where in lines[level]:
                self._assign_line(line, where, self.resolve(line.node, where), level)

    def _assign_line(
        self, line: VarsCommand, where: str, nodes: Iterable[str], level: Precedence
    ) -> None:
        append = line.placement is VarsPlacement.APPEND
        for node in nodes:
            values = self.values_of(node)
            self.variables[node] += [
                VariableValue(
                    name, fill_placeholders(text, values, where), level, where, append=append
                )
                for name, text in line.pairs
            ]


def _unknown_name(name: str, known: Collection[str], where: str) -> PlanError:
    similar = nearest(name, known)
    hint = f"; is {similar} meant? If not," if similar else ";"
    return PlanError(
        f"{where}: {shown(name)} is named, but no line says what it runs{hint} add 'JOB "
        f"{shown(name)} {shown(name)}.sub', with NOOP behind it if it only stands between others"
    )


def _declared_twice(name: str, first: str, where: str) -> PlanError:
    return PlanError(f"{where}: {shown(name)} is declared already ({first}); take one line out")


def _with_role(node: GraphNode) -> GraphNode:
    """The node with the role and the epoch in its name, by the patterns of monitoring."""
    for role, pattern in _ROLE_PATTERNS.items():
        match = pattern.match(node.name)
        if match and _NUMBER.fullmatch(match["epoch"]):
            return replace(node, role=role, epoch=int(match["epoch"]))
    return node


def check_name(name: str, where: str) -> None:
    """Raises PlanError if DAGMan, or a file named after the node, cannot use the name."""
    unmarked = _without_marks(name)
    valid = _NAME.fullmatch(unmarked) and unmarked.isprintable() and len(name) <= LONGEST_NAME
    if not valid or name.upper() in RESERVED:
        raise PlanError(
            f"{where}: {shown(unmarked)!r} cannot be a node's name; use letters, digits, '-', '_' "
            f"and '.', {LONGEST_NAME} at most, and {{run}} and the like in a template only"
        )


def _without_marks(text: str) -> str:
    return text.replace("\x01", "").replace("\x02", "")
