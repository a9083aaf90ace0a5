"""Expands a sweep file into a graph.

First come the nodes: those of each template, of every run, and the workflow's own; then what other
commands say about them. Only declared names, ``run``, ``index`` and ``uuid`` are placeholders.
``$(…)`` belongs to HTCondor. Until everything about a run is known, its uuid is a mark in names,
files and values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise, product
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring.description import sweep_copy_name
from metlmon.authoring.gate_config import gate_variables, has_gate, with_gate
from metlmon.authoring.graph import (
    ALWAYS_SUCCEEDS,
    MAX_NODES,
    TRAINING_ROLES,
    Graph,
    GraphNode,
    NodeRole,
    Precedence,
    ScriptOptions,
    VariableValue,
    script_options,
)
from metlmon.authoring.request import EnsembleShape, PlanError, Request, RequestProblem, RunPlan
from metlmon.authoring.runs import (
    LOCATION_VARIABLES,
    SITE_VARIABLE,
    assigned_variables,
    checkpoint_variable,
    gpu_model,
    has_effect,
    in_order,
    merge_variables,
    request_variables,
    run_uuid,
    run_variables,
    target_sites,
    used_names,
    uuid_inputs,
)
from metlmon.authoring.sweeps.parser import (
    BUILTIN_NAMES,
    FileUse,
    GenCommand,
    InlineDescription,
    Referenced,
    RegionCommand,
    SweepCommand,
    SweepFiles,
    read_submit_text,
    referenced_files,
)
from metlmon.authoring.sweeps.values import points
from metlmon.authoring.templates import fill_placeholders, jobs_of, placeholder_names
from metlmon.config.settings import SIDE_NODE, TRAIN_NODE
from metlmon.dagman.commands import (
    ALL_NODES,
    DagCommand,
    EdgeCommand,
    NodeCommand,
    NodeModifier,
    PreSkipCommand,
    RetryCommand,
    ScriptCommand,
    ScriptKind,
    SpliceCommand,
    VarsCommand,
    VarsPlacement,
)
from metlmon.dagman.graph import APART
from metlmon.dagman.lexer import LogicalLines, SyntaxFault, Tokens, shown
from metlmon.dagman.parser import READERS, RESERVED
from metlmon.dagman.records import NodeKind
from metlmon.errors import nearest, prefix
from metlmon.text.formatting import listed

RUN: Final = "{run}"
"""The name in VARS of a template that stands for all nodes of the run."""

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

MAX_EDGES: Final = 1_000_000
"""Maximum edges: ten per allowed node, as a group that depends on a group has many."""

SINGLE_COMMANDS: Final = frozenset({"NODE_STATUS_FILE", "JOBSTATE_LOG", "CONFIG"})
"""Commands that a DAG can have only once."""

PER_NODE_COMMANDS: Final = frozenset({"SCRIPT", "PRE_SKIP"})
"""Commands for ALL_NODES that the graph stores for each node."""

_JOB_ONLY_COMMANDS: Final = frozenset(
    {"RETRY", "PRIORITY", "CATEGORY", "SAVE_POINT_FILE", "TOLERANCE"}
)
"""Commands that apply only to JOB and SUBDAG nodes."""

_INCLUDE: Final = re.compile(r"^\s*include\b", re.IGNORECASE | re.MULTILINE)

Edges = dict[tuple[str, str], str]
"""Edges (parent, child) with their positions."""


_Command = TypeVar("_Command", bound=DagCommand)


def of_type(
    commands: Iterable[SweepCommand], kind: type[_Command]
) -> Iterator[tuple[_Command, str]]:
    """The commands of one type, as DAGMan reads them, each with its position."""
    return ((read.command, read.where) for read in commands if isinstance(read.command, kind))


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

    def find(self, name: str, where: str) -> tuple[Precedence, Sequence[str]]:
        """The precedence of variables set for ``name``, and its nodes. Raises PlanError."""
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
                nodes |= dict.fromkeys(self.find(member, where)[1])
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
        for region, where in of_type(commands, RegionCommand):
            if region.name in self.names:
                raise PlanError(f"{where}: the region {region.name} is there twice; take one out")
            self.add_region(region, where)
        # Unknown names and placeholders are found now, at the first line that has one.
        for read in commands:
            self._check_placeholders(read.text, read.where)
            if isinstance(read.command, NodeModifier):
                self.find(read.command.node, read.where)

    def _check_placeholders(self, text: str, where: str) -> None:
        """Raises PlanError for an unknown placeholder."""
        fill_placeholders(text, dict.fromkeys(self.known_names, ""), where)

    def is_outside(self, parent: str, child: str) -> bool:
        """Whether one of the nodes of an edge is a node of the workflow."""
        return parent not in self.nodes or child not in self.nodes

    def values(self, number: int) -> dict[str, str]:
        """The values of the placeholders of its run with this number, but for the uuid."""
        point, width = self.points[number], len(str(len(self.points) - 1))
        labels = {f"{each}_label": known[point[each]] for each, known in self._labels.items()}
        name = f"{self.sweep.group}{number:0{width}}"
        return {**point, **labels, "run": name, "index": str(number)}

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


class SweepDag(Scope):
    """The DAG of a sweep file, with the names that commands may use for its nodes.

    Each name refers to one thing: a group, run, node, region or splice.

    - ``templates``: by the positions of their GEN commands; ``groups``: the runs of each.
    - ``nodes``: by name, with variables only once :meth:`graph` has made them those of the graph;
      ``keys``: their names in the template.
    - ``variables``: of each node, as assigned.
    - ``jobs``: the submit files of the request.
    - ``declared``, ``done``: nodes that a JOB command or the like names, also as DONE.
    """

    def __init__(
        self, request: Request, commands: Sequence[SweepCommand], files: SweepFiles
    ) -> None:
        self.templates: dict[str, RunTemplate] = {}
        self.groups: dict[str, list[SweptRun]] = {}
        self.runs: dict[str, SweptRun] = {}
        self.nodes: dict[str, GraphNode] = {}
        self.keys: dict[str, str] = {}
        self.variables: dict[str, list[VariableValue]] = {}
        self.declared: set[str] = set()
        self.done: set[str] = set()
        self.names = {}
        self.splices: set[str] = set()
        self._request, self._commands, self.jobs = request, commands, jobs_of(request)
        self._reserved: dict[str, tuple[str, str]] = {}
        self._edges: Edges = {}
        self._edge_count = 0
        self._uuids: list[str] = []
        self._lines: dict[str, None] = {}
        self._descriptions: dict[str, tuple[str, str]] = {}
        self._single_lines: dict[str, str] = {}
        self._script_positions: dict[tuple[str, ScriptKind], str] = {}
        self._retries = request.retries
        self._unless: int | None = None
        self._read_templates(files)
        self._build()
        self._assign()

    # --- building -----------------------------------------------------------------------------

    def _read_templates(self, files: SweepFiles) -> None:
        """Read the templates, and check the number of nodes before any is built."""
        total = sum(isinstance(read.command, NodeCommand) for read in self._commands)
        for generate, where in of_type(self._commands, GenCommand):
            template = RunTemplate(generate, files.commands(generate.template, where))
            runs = len(template.points)
            total += runs * len(template.nodes)
            if total > MAX_NODES:
                raise PlanError(
                    f"{where}: {runs} runs of {len(template.nodes)} nodes: with them the DAG "
                    f"has {total} nodes, more than the {MAX_NODES} it may have; make several DAGs"
                )
            self.templates[where] = template
        runs = sum(len(template.points) for template in self.templates.values())
        if len(self._request.seeds) not in (0, 1, runs):
            raise PlanError(
                f"{len(self._request.seeds)} seeds for {runs} runs; give one for all, or one for "
                "each, or sweep random_seed in the GEN line"
            )

    def _build(self) -> None:
        for read in self._commands:
            match read.command:
                case GenCommand():
                    self._build_runs(self.templates[read.where])
                case RegionCommand(name=name):
                    self._reserve(name, "a region", read.where)
                case SpliceCommand(name=name):
                    self._reserve(name, "a splice", read.where)
                    self.splices.add(name)
        for command, where in of_type(self._commands, NodeCommand):
            self._declare(command, where)
        for region, where in of_type(self._commands, RegionCommand):
            self.add_region(region, where)
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
        sweep = template.sweep
        self._reserve(sweep.group, "a group", sweep.where)
        group = self.groups[sweep.group] = []
        for number in range(len(template.points)):
            run = SweptRun(self._request, template, number, index=len(self.runs))
            self._reserve(run.name, f"a run of {sweep.group}", sweep.where)
            self.runs[run.name] = run
            group.append(run)
            for key, where in template.nodes.items():
                self._add_run_node(run, key, where)
            self.names[run.name] = Precedence.RUN, list(run.nodes.values())
        of_group = [name for run in group for name in run.nodes.values()]
        self.names[sweep.group] = Precedence.RUN, of_group

    def _add_run_node(self, run: SweptRun, key: str, where: str) -> None:
        name = run.fill(key, where)
        check_name(name, where)
        node = GraphNode(name, "", run=run.name, where=where)
        if key in run.template.declarations:
            command, position = run.template.declarations[key]
            node = self._declared(node, command, run.fill(command.submit or "", position), position)
        if node.kind is NodeKind.JOB:
            node = _with_role(node)
        run.nodes[key] = name
        self._add(node, key, f"a node of {run.template.sweep.group}")

    def _add(self, node: GraphNode, key: str, kind: str) -> None:
        self._reserve(node.name, kind, node.where)
        self.nodes[node.name], self.keys[node.name] = node, key
        self.variables[node.name] = []

    def _declare(self, command: NodeCommand, where: str) -> None:
        """Declare a node of the workflow, or the job of a run's node."""
        name, submit = command.name, command.submit or ""
        node = self.nodes.get(name)
        if node is None:
            check_name(name, where)
            self._add(self._declared(GraphNode(name, ""), command, submit, where), "", "a node")
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
        """The node as declared by JOB or a similar command. Raises PlanError."""
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
        kind, noop = command.kind, command.noop
        role = _ROLES.get(kind, node.role)
        return replace(node, kind=kind, submit=submit, role=role, noop=noop, where=where)

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
                    keys = run.template.lasts if last else run.template.firsts
                    nodes = [run.nodes[key] for key in keys]
                    ends |= dict.fromkeys([run.name] if self._request.subdags else nodes)
        return list(ends)

    def _check_end_node(self, name: str, where: str) -> None:
        """Raise PlanError if the name cannot be used in PARENT … CHILD."""
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

    def value_of(self, node: str, name: str) -> str | None:
        """The value that the sweep file sets for a variable of a node, or None."""
        assigned = self.variables[node]
        effective = merge_variables(each for each in assigned if each.name.lower() == name)
        return effective[0].value if effective else None

    # --- variables ----------------------------------------------------------------------------

    def _assign(self) -> None:
        """Assign variables, from the widest scope to the narrowest; the last one wins."""
        for run in self.runs.values():
            variables = [
                VariableValue(swept.name, run.point[swept.name], Precedence.RUN, swept.where)
                for swept in run.template.sweep.variables
            ]
            for name in run.nodes.values():
                if self.nodes[name].role in TRAINING_ROLES:
                    self.variables[name] += variables
        lines = [
            (*self.find(line.node, where), line, where)
            for line, where in of_type(self._commands, VarsCommand)
        ]
        # Variables of a group before those of a run, which is narrower.
        levels = list(Precedence)
        lines.sort(key=lambda each: (levels.index(each[0]), each[2].node in self.runs))
        all_but_final = [n.name for n in self.nodes.values() if n.kind is not NodeKind.FINAL]
        for level, _, line, where in lines:
            if level is Precedence.ALL:
                self._assign_line(line, where, all_but_final, level)
        for run in self.runs.values():
            for line, where in of_type(run.template.commands, VarsCommand):
                level, keys = run.template.find(line.node, where)
                self._assign_line(line, where, [run.nodes[key] for key in keys], level)
        for level, nodes, line, where in lines:
            if level is not Precedence.ALL:
                self._assign_line(line, where, nodes, level)

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

    # --- commands -----------------------------------------------------------------------------

    def _add_template(self, template: RunTemplate) -> None:
        """Add the commands of a template for each of its runs."""
        modifiers = []
        for read in template.commands:
            match read.command:
                case InlineDescription(name=name):
                    self._add_description(read, name, template.known_names)
                case NodeModifier(node=name) if not isinstance(read.command, VarsCommand):
                    modifiers.append((read, name))
        for run in self.groups[template.sweep.group]:
            self._add_run_edges(run)
            for read, name in modifiers:
                nodes = [run.nodes[key] for key in template.find(name, read.where)[1]]
                if name.upper() == ALL_NODES:
                    nodes = self._affected_nodes(nodes, read.keyword)
                self._apply(read, nodes)
            for read in template.commands:
                if read.is_global:
                    self._add_global_command(read, run)

    def _add_description(self, read: SweepCommand, name: str, known: frozenset[str]) -> None:
        """Add a submit description, which all runs share. ``known``: names of placeholders."""
        text = fill_placeholders(read.text, dict.fromkeys(known, ""), read.where)
        for placeholder in placeholder_names(read.text):
            macro = "run_uuid" if placeholder == "uuid" else placeholder
            raise PlanError(
                f"{read.where}: {{{placeholder}}} in the description {shown(name)}, which all runs "
                f"share; use $({macro}), which VARS give"
            )
        previous, where = self._descriptions.setdefault(name, (text, read.where))
        if previous != text:
            raise PlanError(
                f"{read.where}: {shown(name)} is described otherwise at {where}; give one of the "
                "two another name"
            )

    def _add_line(self, line: str, run: str | None = None) -> None:
        shared = run is None or not self._request.subdags
        lines = self._lines if shared else self.runs[run or ""].lines
        lines[line] = None

    def _add_global_command(self, read: SweepCommand, run: SweptRun | None) -> None:
        text = read.text if run is None else run.fill(read.text, read.where)
        in_subdag = run is not None and self._request.subdags
        is_single = read.keyword in SINGLE_COMMANDS and not in_subdag
        if is_single and self._single_lines.setdefault(read.keyword, text) != text:
            assert self._request.source is not None
            raise PlanError(
                f"{read.where}: a DAG has one {read.keyword}, and this would be another one; "
                f"write it once, in {self._request.source.name}"
            )
        parse_command(text, read.where)
        self._add_line(text, None if run is None else run.name)

    def _apply_to_workflow(self, read: SweepCommand, name: str) -> None:
        """Apply a command of the workflow to its nodes, or to the DAG as a whole."""
        if name.upper() != ALL_NODES:
            self._apply(read, self.find(name, read.where)[1])
            return
        if read.keyword == "DONE":
            raise PlanError(f"{read.where}: ALL_NODES cannot be DONE; name the nodes")
        all_nodes = self.nodes.items()
        eligible = [each for each, node in all_nodes if node.kind is not NodeKind.FINAL]
        nodes = self._affected_nodes(eligible, read.keyword)
        line = f"{read.before} {ALL_NODES} {read.after}".rstrip()
        per_node = read.keyword in PER_NODE_COMMANDS or placeholder_names(read.after)
        if read.keyword == "RETRY":
            retry = parse_command(line, read.where)
            assert isinstance(retry, RetryCommand)
            self._retries, self._unless = retry.retries, retry.unless_exit
            for each in nodes:
                self.nodes[each] = replace(self.nodes[each], retries=None)
        elif per_node or len(nodes) < len(eligible):
            self._apply(read, nodes)
        else:
            parse_command(line, read.where)
            self._lines[line] = None
            for run in self.runs:
                self._add_line(line, run)

    def _affected_nodes(self, names: Iterable[str], keyword: str) -> list[str]:
        """The nodes to which a command about ALL_NODES applies.

        DAGMan before 25.5 refuses a DAG whose command does not apply to a SERVICE node; later
        versions skip the node.
        """
        kinds = ((name, self.nodes[name].kind) for name in names)
        return [
            name
            for name, kind in kinds
            if kind in (NodeKind.JOB, NodeKind.SUBDAG)
            or (kind is not NodeKind.FINAL and keyword not in _JOB_ONLY_COMMANDS)
        ]

    def _apply(self, read: SweepCommand, names: Iterable[str]) -> None:
        """Apply a command to nodes; one that a node has no field for becomes a line of the DAG."""
        for name in names:
            node, values = self.nodes[name], self.values_of(name)
            before, after = (
                fill_placeholders(text, values, read.where) for text in (read.before, read.after)
            )
            line = f"{before} {name} {after}".rstrip()
            match parse_command(line, read.where):
                case RetryCommand(retries=retries, unless_exit=unless):
                    node = replace(node, retries=retries, unless_exit=unless)
                case PreSkipCommand(code=code):
                    node = replace(node, skip_code=code)
                case ScriptCommand() as script:
                    node = _with_script(node, script)
                    self._script_positions[name, script.kind] = read.where
                case _:
                    self._add_line(line, node.run)
            self.nodes[name] = node

    # --- edges --------------------------------------------------------------------------------

    def _add_run_edges(self, run: SweptRun) -> None:
        """Add the edges of a run; weak ones, which a graph cannot represent, as lines."""
        edges = run.edges if self._request.subdags else self._edges
        for edge, read in run.template.edges.items():
            parent, child = (run.fill(key, read.where) for key in edge)
            for name in (parent, child) if run.template.is_outside(*edge) else ():
                node = self.nodes.get(name)
                if node is None:
                    raise self.unknown_name(name, read.where)
                if self._request.subdags and node.run is None:
                    raise PlanError(
                        f"{read.where}: {shown(name)} lies outside the run's own DAG; write this "
                        "line in the workflow, with the group in the run's place"
                    )
            if read.keyword == "WEAK":
                self._add_line(f"WEAK PARENT {parent} CHILD {child}", run.name)
                continue
            self._count_edges(1, read.where)
            edges.setdefault((parent, child), read.where)

    def _add_edges(self, edge: EdgeCommand, where: str) -> None:
        """Add the edges of a workflow command, or its line if a graph cannot hold it."""
        parents = self.end_nodes(edge.parents, where, last=True)
        children = self.end_nodes(edge.children, where, last=False)
        self._count_edges(len(parents) * len(children), where)
        if edge.weak or not self.splices.isdisjoint((*parents, *children)):
            weak = "WEAK " if edge.weak else ""
            self._add_line(f"{weak}PARENT {' '.join(parents)} CHILD {' '.join(children)}")
            return
        for pair in product(parents, children):
            self._edges.setdefault(pair, where)

    def _count_edges(self, count: int, where: str) -> None:
        self._edge_count += count
        if self._edge_count > MAX_EDGES:
            raise PlanError(
                f"{where}: with this line the DAG has {self._edge_count} edges, more than the "
                f"{MAX_EDGES} it may have; put a node between: 'JOB between between.sub NOOP'"
            )

    # --- the graph ----------------------------------------------------------------------------

    def graph(self) -> Graph:
        """The graph. Raises PlanError."""
        request = self._request
        known = frozenset[str]().union(*(each.known_names for each in self.templates.values()))
        for read in self._commands:
            match read.command:
                case GenCommand():
                    self._add_template(self.templates[read.where])
                case EdgeCommand() as edge:
                    self._add_edges(edge, read.where)
                case InlineDescription(name=name):
                    self._add_description(read, name, known)
                case NodeModifier(node=name) if not isinstance(read.command, VarsCommand):
                    self._apply_to_workflow(read, name)
                case _ if read.is_global:
                    self._add_global_command(read, None)
        for name, node in self.nodes.items():
            if name in self.done:
                self._add_line(f"DONE {name}", node.run)
        outer = [
            name for name, node in self.nodes.items() if node.run is None or not request.subdags
        ]
        topological_order([*outer, *(self.runs if request.subdags else ())], self._edges)
        for run in self.runs.values():
            run.find_epochs(self)
            run.set_uuid(self)
        self._uuids = [run.uuid for run in self.runs.values()]
        self.nodes = {name: self._completed(node) for name, node in self.nodes.items()}
        self._check_uuids()
        part = self._part(self._ordered_nodes(), self._edges, self._lines)
        if not request.subdags:
            return part
        subdags = {
            self._subdag_file(run): self._part(
                (self.nodes[name] for name in run.nodes.values()), run.edges, run.lines
            )
            for run in self.runs.values()
        }
        # A workflow of sub-DAGs retries its own jobs, not whole runs.
        return replace(part, retries=0, unless_exit=None, subdags=subdags)

    def _part(self, nodes: Iterable[GraphNode], edges: Edges, lines: Iterable[str]) -> Graph:
        """The graph of one DAG file."""
        fill = self._with_uuid
        return Graph(
            nodes=tuple(nodes),
            edges=tuple((fill(parent), fill(child)) for parent, child in edges),
            retries=self._retries,
            lines=(*(text for text, _ in self._descriptions.values()), *map(fill, lines)),
            unless_exit=self._unless,
        )

    def warnings(self, files: Sequence[Referenced]) -> Iterator[RequestProblem]:
        """Warnings about variables without an effect. ``files``: those that the DAG names."""
        contents = {file.name: file.data for file in files}
        jobs = {job.file: job.template for job in self.jobs}

        @cache
        def names_in(file: str) -> set[str] | None:
            """The names used in a submit file; None if not all of it can be read."""
            if file in jobs:
                parameters = {parameter.name.lower() for parameter in jobs[file].parameters}
                return used_names(jobs[file].text) | parameters
            if file in self._descriptions:
                return used_names(self._descriptions[file][0])
            text = read_submit_text(file, contents.get(file), self._request.directory)
            return None if text is None or _INCLUDE.search(text) else used_names(text)

        def used_by(names: Iterable[str]) -> set[str] | None:
            """The names used in the submit files of these nodes; None if not all are known."""
            nodes = (self.nodes[name] for name in names)
            jobs = (node for node in nodes if not node.noop and node.kind is not NodeKind.SUBDAG)
            used = [names_in(file) for file in {node.submit for node in jobs}]
            known = [names for names in used if names is not None]
            return set[str]().union(*known) if len(known) == len(used) else None

        for template in self.templates.values():
            runs = self.groups[template.sweep.group]
            used = used_by(name for run in runs for name in run.nodes.values())
            if used is not None:
                yield from _swept_without_effect(template, self._commands, used)
        request = self._request
        asked = request.variables or request.regions
        if asked and (used := used_by(self.nodes)) is not None:
            yield from _unused_variables(request, self._commands, used)

    def named_files(self) -> Iterator[Referenced]:
        """The files that nodes submit and run, except those that metlmon writes."""
        excluded = {*self._descriptions, *(job.file for job in self.jobs)}
        for name, node in self.nodes.items():
            if not node.noop and node.submit not in excluded:
                use = FileUse.OTHER if node.kind is NodeKind.SUBDAG else FileUse.SUBMIT
                yield Referenced(node.submit, node.where, use)
            for kind in ScriptKind:
                if (where := self._script_positions.get((name, kind))) is not None:
                    program = getattr(node, kind.value).split(None, 1)[0]
                    yield Referenced(program, where, FileUse.SCRIPT)

    def _with_uuid(self, text: str) -> str:
        """The text with the marks of uuids replaced by the uuids."""
        if "\x01" not in text:
            return text
        return MARK.sub(lambda match: self._uuids[int(match[1])], text)

    def _ordered_nodes(self) -> Iterator[GraphNode]:
        """The nodes in the file's order; a run in a sub-DAG is one node."""
        for read in self._commands:
            match read.command:
                case NodeCommand(name=name):
                    if self.nodes[name].run is None:
                        yield self.nodes[name]
                case GenCommand(sweep=sweep):
                    for run in self.groups[sweep.group]:
                        if self._request.subdags:
                            kind, file = NodeKind.SUBDAG, self._subdag_file(run)
                            yield GraphNode(run.name, file, kind, run=run.name, where=read.where)
                        else:
                            yield from (self.nodes[name] for name in run.nodes.values())

    def _subdag_file(self, run: SweptRun) -> str:
        return f"{self._request.name}-{run.name}.dag"

    def _completed(self, node: GraphNode) -> GraphNode:
        """The node with all variables and defaults, and without marks."""
        request, name = self._request, node.name
        gated = has_gate(request, node.role)
        if node.run is None:
            requested = request_variables(request, name)
            variables = merge_variables([*requested, *self.variables[name]])
        else:
            run = self.runs[node.run]
            node = replace(node, epoch=run.epochs[name])
            variables = run.variables(node, self.variables[name], gated=gated)
        if not node.submit:
            job = next(job for job in self.jobs if job.role is node.role)
            node = replace(node, submit=job.file)
        is_of_workflow = request.subdags and node.run is None
        if is_of_workflow and node.kind is NodeKind.JOB and node.retries is None and self._retries:
            node = replace(node, retries=self._retries, unless_exit=self._unless)
        if node.post is None and self._is_optional(node):
            node = replace(node, post=ALWAYS_SUCCEEDS)
        if gated:
            self._check_gate(node)
            values = {variable.name.lower(): variable.value for variable in variables}
            node = with_gate(request, node, values.get("run_uuid", ""))
        variables = () if node.kind is NodeKind.SUBDAG else variables
        fill = self._with_uuid
        pre, post, hold = (each and fill(each) for each in (node.pre, node.post, node.hold))
        return replace(
            node,
            name=fill(name),
            submit=fill(node.submit),
            variables=tuple(map(self._filled_variable, variables)),
            pre=pre,
            post=post,
            hold=hold,
            options=tuple(ScriptOptions(kind, fill(text)) for kind, text in node.options),
        )

    def _is_optional(self, node: GraphNode) -> bool:
        """Whether the node's failure is ignored.

        This is the case for an evaluation without dependents whose template metlmon chose.
        """
        evaluation = self._request.evaluation
        if node.run is None or node.role is not NodeRole.EVALUATE or node.name in self.declared:
            return False
        is_last = self.keys[node.name] in self.runs[node.run].template.lasts
        return is_last and not (evaluation is not None and evaluation.gates)

    def _filled_variable(self, variable: VariableValue) -> VariableValue:
        if "\x01" not in variable.value and not variable.hides:
            return variable
        hidden = tuple(replace(each, value=self._with_uuid(each.value)) for each in variable.hides)
        return replace(variable, value=self._with_uuid(variable.value), hides=hidden)

    def _check_gate(self, node: GraphNode) -> None:
        """Raises PlanError if the node cannot have a gate."""
        name = shown(self._with_uuid(node.name))
        if (where := self._script_positions.get((node.name, ScriptKind.PRE))) is not None:
            raise PlanError(
                f"{where}: {name} has a PRE script of its own, but the gate that can stop its run "
                "is one, too; take the script out, or write it without a gate"
            )
        if not (self._retries if node.retries is None else node.retries):
            raise PlanError(
                f"{node.where}: {name} is not tried again, which a run that can be stopped must "
                "be; give it a RETRY of 1 or more, or write it without a gate"
            )

    def _check_uuids(self) -> None:
        """Raises PlanError if two runs share a uuid, and so an output directory."""
        runs: dict[str, str] = {}
        for node in self.nodes.values():
            for variable in node.variables if node.run is not None else ():
                if variable.name.lower() != "run_uuid":
                    continue
                other = runs.setdefault(variable.value, node.run or "")
                if other != node.run:
                    raise PlanError(
                        f"{variable.where}: {node.run} and {other} have the same run_uuid; put "
                        "{uuid} or {run} into it, or leave it to metlmon"
                    )


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


class Expansion(Struct, frozen=True):
    """An expanded sweep file.

    ``files``: the files that the DAG names. ``sources``: names and contents of the sweep file and
    all files read with it. ``warnings``: variables without an effect.
    """

    graph: Graph
    files: tuple[Referenced, ...]
    sources: tuple[tuple[str, bytes], ...]
    warnings: tuple[RequestProblem, ...] = ()


def expand(request: Request) -> Expansion:
    """Expand the sweep file ``request.source``. Raises PlanError, with file and line."""
    source = request.source
    assert source is not None
    dag_file = request.directory / f"{request.name}.dag"
    if os.path.realpath(dag_file) == os.path.realpath(source):
        raise PlanError(
            f"{source.name} would be written over by the DAG made of it; choose another name or "
            "directory for the DAG"
        )
    sweep_files = SweepFiles(source.parent, is_copy=source.name == sweep_copy_name(source))
    commands = sweep_files.commands(source.name)
    if not any(isinstance(read.command, GenCommand) for read in commands):
        raise PlanError(
            f"{source.name}: no line of it begins with GEN SUBDAG, so nothing is swept; write "
            "'GEN SUBDAG group file.subdag a from', and the values of a on the line below"
        )
    dag = SweepDag(request, commands, sweep_files)
    graph = dag.graph()
    files = referenced_files(source, commands, dag.named_files())
    return Expansion(graph, files, tuple(sweep_files.contents.items()), tuple(dag.warnings(files)))


def parse_command(line: str, where: str) -> DagCommand:
    """The command in a line. Raises PlanError if DAGMan would refuse it."""
    tokens = Tokens(line)
    try:
        keyword = tokens.next().upper().replace("-", "_")
        return READERS[keyword](0, tokens, LogicalLines(b""))
    except SyntaxFault as fault:
        raise PlanError(f"{where}: {keyword.replace('_', '-')}: {fault}") from None


def _with_script(node: GraphNode, command: ScriptCommand) -> GraphNode:
    """The node with a script in place of any of the same kind."""
    kind, script = command.kind, command.script
    others = tuple(each for each in node.options if each.script != kind.name)
    changes: dict[str, Any] = {
        kind.value: script.command,
        "options": (*others, *script_options(kind, script)),
    }
    if kind is ScriptKind.PRE:
        changes["defer"] = script.defer
    return replace(node, **changes)


# --- variables without an effect ----------------------------------------------------------------


def _swept_without_effect(
    template: RunTemplate, commands: Sequence[SweepCommand], used: set[str]
) -> Iterator[RequestProblem]:
    """Warnings about variables of a GEN command without an effect.

    VARS alone change nothing: a submit file must use $(name), or its template have a parameter of
    that name, or the variable belong to HTCondor or be a job attribute. Undecidable cases are not
    reported. ``commands``: the workflow's. ``used``: the names in the submit files of its runs.
    """
    relevant = [
        *template.commands,
        *(each for each in commands if not isinstance(each.command, GenCommand)),
    ]
    pairs = _assigned_pairs(relevant)
    used = used.union(*(used_names(text) for _, text in pairs))
    # Placeholders in names, scripts and other commands than VARS.
    others = [read.text for read in relevant if not isinstance(read.command, VarsCommand)]
    filled_in = {name for text in (*template.nodes, *others) for name in placeholder_names(text)}
    for swept in template.sweep.variables:
        placeholders = {swept.name, f"{swept.name}_label"}
        names = [name for name, text in pairs if placeholders & placeholder_names(text)]
        is_used = any(has_effect(name, used) for name in (swept.name, *names))
        if not is_used and not placeholders & filled_in:
            text = (
                f"{swept.where}: {swept.name} has no effect on the jobs: no template has a "
                f"parameter {swept.name!r}, and no submit file says $({swept.name}); say it "
                f"there, or give it to a parameter: VARS {{run}} parameter={{{swept.name}}}"
            )
            yield RequestProblem("source", text, fatal=False)


def _assigned_pairs(commands: Iterable[SweepCommand]) -> list[tuple[str, str]]:
    return [pair for line, _ in of_type(commands, VarsCommand) for pair in line.pairs]


def _unused_variables(
    request: Request, commands: Sequence[SweepCommand], used: set[str]
) -> Iterator[RequestProblem]:
    """Warnings about variables of the request that no node uses."""
    used = used.union(*(used_names(text) for _, text in _assigned_pairs(commands)))
    for field, name, _, where in assigned_variables(request):
        if not has_effect(name, used):
            text = f"no template has a parameter {name!r} and no submit file says $({name})"
            consequence = "so it has no effect; correct the name"
            yield RequestProblem(field, f"{prefix(where)}{text}, {consequence}", fatal=False)


# --- runs -------------------------------------------------------------------------------------


_UUID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class SweptRun:
    """A run: an instance of a template, and the training chain that its nodes are.

    A swept DAG uses the same submit templates as any other, and is monitored as runs. Variables
    are added only where the sweep file does not set them. An evaluation belongs to the training
    before it by PARENT … CHILD, not by its number: in METL's experiment eval_epoch1 follows
    train_epoch0.

    - ``index``: its number among all runs of the file. ``point``: its swept values.
    - ``values``: of all placeholders; that of uuid, which is derived from all others, is a mark.
    - ``nodes``: their names by those in the template.
    - ``edges`` and ``lines``: of its own DAG, if it has one.
    - ``epochs``: of its nodes by name, and ``uuid``: once all variables are assigned.
    """

    def __init__(self, request: Request, template: RunTemplate, number: int, index: int) -> None:
        self.index, self.template, self.point = index, template, template.points[number]
        self.values = {**template.values(number), "uuid": f"\x01{index}\x02"}
        self.name = self.values["run"]
        self.nodes: dict[str, str] = {}
        self.edges: Edges = {}
        self.lines: dict[str, None] = {}
        self.epochs: dict[str, int | None] = {}
        self.uuid = ""
        seeds = request.seeds
        self._request = request
        self._seed = seeds[index % len(seeds)] if seeds else index + 1
        self._epochs_before: dict[str, int | None] = {}
        self._count = 0
        self._targets: dict[int | None, str] = {}

    def fill(self, text: str, where: str) -> str:
        """A text with the placeholders of the run filled in. Raises PlanError."""
        return fill_placeholders(text, self.values, where)

    # --- epochs -------------------------------------------------------------------------------

    def find_epochs(self, dag: SweepDag) -> None:
        """Set the epochs, from 0: by VAR epoch (from 1), or by the name's number.

        Raises PlanError for an evaluation without a training.
        """
        for key in self.template.order:
            node = dag.nodes[self.nodes[key]]
            # The last epoch trained once each parent has ended.
            parents = [self.nodes[parent] for parent in self.template.parents[key]]
            epochs = (
                self.epochs[parent]
                if dag.nodes[parent].role is NodeRole.TRAIN
                else self._epochs_before[parent]
                for parent in parents
            )
            latest = max((epoch for epoch in epochs if epoch is not None), default=None)
            self._epochs_before[node.name] = latest
            self.epochs[node.name] = node.epoch
            if node.role not in TRAINING_ROLES:
                continue
            text = dag.value_of(node.name, "epoch")
            if text is not None and _NUMBER.fullmatch(text) and int(text):
                self.epochs[node.name] = int(text) - 1
            elif node.role is NodeRole.EVALUATE:
                if latest is None:
                    raise PlanError(
                        f"{node.where}: {shown(key)} evaluates, but no training comes before it; "
                        f"write 'PARENT {{run}}-train_epoch0 CHILD {shown(key)}', or its epoch in "
                        "VARS"
                    )
                self.epochs[node.name] = latest

    # --- the uuid -----------------------------------------------------------------------------

    def set_uuid(self, dag: SweepDag) -> None:
        """Derive the uuid from everything that determines the model, and set the targets.

        These are its swept values and its nodes' variables, except those about where they run.
        Raises PlanError if two nodes train the same epoch.
        """
        trains = [
            node for name in self.nodes.values() if (node := dag.nodes[name]).role is NodeRole.TRAIN
        ]
        # Two nodes that train the same epoch would overwrite each other's checkpoints.
        by_epoch: dict[tuple[str | None, int | None], GraphNode] = {}
        for node in trains:
            epoch = (dag.value_of(node.name, "run_uuid"), self.epochs[node.name])
            previous = by_epoch.setdefault(epoch, node)
            if previous is not node:
                key, other = (shown(dag.keys[each.name]) for each in (node, previous))
                raise PlanError(
                    f"{node.where}: {key} trains the same epoch of a run as {other} "
                    f"({previous.where}); give one of them another epoch (from 1) or a run_uuid of "
                    "its own in VARS"
                )
        trains.sort(key=lambda node: self.epochs[node.name] or 0)
        train_epochs = [self.epochs[node.name] for node in trains]
        self._count = max((epoch or 0) + 1 for epoch in train_epochs) if trains else 0
        chain = replace(self._request, shape=EnsembleShape.CHAIN, epochs=len(trains))
        self._targets = dict(zip(train_epochs, target_sites(chain, self.index), strict=True))
        node_variables = [
            sorted(
                (variable.name, variable.value.replace(self.values["uuid"], "{uuid}"))
                for variable in merge_variables(dag.variables[node.name])
                if variable.name.lower() not in LOCATION_VARIABLES
            )
            for node in trains
        ]
        inputs = uuid_inputs(replace(chain, epochs=self._count), dag.jobs)
        definition = [*inputs, ["sweep", sorted(self.point.items())]]
        self.uuid = run_uuid([self.name, self._seed, *definition, ["told", node_variables]])

    # --- variables ----------------------------------------------------------------------------

    def variables(
        self, node: GraphNode, assigned_here: Sequence[VariableValue], *, gated: bool
    ) -> tuple[VariableValue, ...]:
        """All variables of the node, in the standard order; some are assigned in the file."""
        requested = request_variables(self._request, node.name, self.name, node.epoch)
        assigned = merge_variables([*requested, *assigned_here])
        if node.role not in TRAINING_ROLES:
            return assigned
        by_name = {variable.name.lower(): variable for variable in assigned}
        site = by_name.get(SITE_VARIABLE.lower())
        if site is not None and set(site.value) & {'"', "\\"}:
            # The site would end its string in the submit file.
            raise PlanError(
                f"{site.where}: {shown(site.value)!r} cannot be a site's name; give the value of "
                "its GLIDEIN_ResourceName, without quotes"
            )
        uuid = self._node_uuid(by_name.get("run_uuid"), node)
        gate = gate_variables(self._request.name, node.name) if gated else ()
        for variable in gate:
            own = by_name.pop(variable.name, variable)
            if own.value != variable.value:
                raise PlanError(
                    f"{own.where}: metlmon sets {own.name} for the nodes of a run that can be "
                    "stopped; choose another name for this variable"
                )
        added = (
            variable
            for variable in self._added_variables(node, uuid)
            if variable.name.lower() not in by_name
        )
        return tuple(in_order((*added, *gate, *by_name.values())))

    def _node_uuid(self, assigned: VariableValue | None, node: GraphNode) -> str:
        """The node's uuid. Raises PlanError if it cannot be a file name."""
        if assigned is None:
            return self.uuid
        value = assigned.value.replace(self.values["uuid"], self.uuid)
        if not _UUID.fullmatch(value):
            raise PlanError(
                f"{assigned.where}: run_uuid of {shown(node.name)} names directories and files; "
                "use letters, digits, '-', '_' and '.', 100 at most, or leave it to metlmon"
            )
        return value

    def _added_variables(self, node: GraphNode, uuid: str) -> list[VariableValue]:
        request = self._request
        assert node.epoch is not None
        plan = RunPlan(self.name, uuid, self._seed, (), gpu=gpu_model(request, self.index))
        source = "metlmon: that of the training before it"
        if node.role is NodeRole.TRAIN:
            source = "metlmon: epochs count from 1"
        variables = [
            *run_variables(request, plan),
            VariableValue("epoch", str(node.epoch + 1), Precedence.NODE, source),
        ]
        if self._count:
            source = "metlmon: the last epoch of the run"
            variables.append(VariableValue("epochs", str(self._count), Precedence.RUN, source))
        if (target := self._targets.get(node.epoch)) is not None:
            variables.append(
                VariableValue(
                    SITE_VARIABLE, target, Precedence.ALL, f"the policy: {request.policy}"
                )
            )
        if self._epochs_before[node.name] is not None:
            variables.append(checkpoint_variable(uuid))
        return variables
