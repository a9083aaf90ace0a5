"""Compiles a template file and its GEN command into the nodes that every run has.

Placeholders are resolved once, by the names as written; each run only fills them in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final, TypeVar

from metlmon.authoring.graph import Precedence
from metlmon.authoring.request import PlanError, SweepRequest, SweptVariable
from metlmon.authoring.sweeps.commands import (
    GenCommand,
    GlobalCommand,
    NodeDeclaration,
    ParentChild,
    RegionCommand,
    Splice,
    SweepCommand,
    SweepDescription,
    SweepNodeCommand,
    VarsLine,
)
from metlmon.authoring.sweeps.parser import listed
from metlmon.authoring.sweeps.placeholders import (
    BUILTIN_NAMES,
    PlaceholderText,
    has_placeholders,
    nearest,
    parse_placeholders,
)
from metlmon.dagman.commands import ALL_NODES
from metlmon.dagman.graph import APART
from metlmon.dagman.lexer import shown
from metlmon.frozen import frozen

RUN: Final = "{run}"
"""As the name in VARS of a template: all nodes of the run."""

Kind = TypeVar("Kind", bound=SweepCommand)


@frozen
class TemplateVars:
    """A variable to assign.

    ``level``, ``where`` and ``append`` as of the resulting :class:`VariableValue`.
    """

    name: str
    value: PlaceholderText
    level: Precedence
    where: str
    append: bool


@frozen
class TemplateNode:
    """A node of every run.

    ``declared``: its JOB command, if any; ``submit``: the file named there.
    """

    key: str
    name: PlaceholderText
    where: str
    declared: NodeDeclaration | None
    submit: PlaceholderText | None
    variables: tuple[TemplateVars, ...]


@frozen
class TemplateCommand:
    """A command for one node of every run, or for all of them (``key`` None)."""

    key: str | None
    command: SweepNodeCommand
    head: PlaceholderText
    rest: PlaceholderText

    def fill(self, values: Mapping[str, str]) -> SweepNodeCommand:
        """The command with one run's values filled in."""
        head, rest = self.head.fill(values), self.rest.fill(values)
        return replace(self.command, head=head, rest=rest)


@frozen
class Edge:
    """An edge between two nodes of the run.

    ``outside``: one of them is a node of the workflow instead.
    """

    parent: PlaceholderText
    child: PlaceholderText
    where: str
    weak: bool
    outside: bool


@frozen
class RunTemplate:
    """A compiled template.

    ``firsts`` and ``lasts``: nodes without parents, and without children, in the run. ``edges``:
    in file order, each once. ``node_order``: node keys in topological order; ``parents``: those
    of each. ``global_commands``: commands about the whole DAG.
    """

    generate: GenCommand
    sweep: SweepRequest
    parts: tuple[TemplateNode, ...]
    edges: tuple[Edge, ...]
    node_order: tuple[str, ...]
    parents: Mapping[str, tuple[str, ...]]
    firsts: tuple[str, ...]
    lasts: tuple[str, ...]
    node_commands: tuple[TemplateCommand, ...]
    global_commands: tuple[tuple[GlobalCommand, PlaceholderText], ...]
    descriptions: tuple[SweepDescription, ...]


def sweep_request(generate: GenCommand) -> SweepRequest:
    """The sweep of a GEN command."""
    pairs = zip(generate.names, generate.lines, strict=True)
    variables = tuple(
        SweptVariable(name, tuple(value.text for value in values), where)
        for name, (where, values) in pairs
    )
    return SweepRequest(generate.group, variables, generate.how, generate.where)


def value_labels(generate: GenCommand) -> dict[str, dict[str, str]]:
    """For each labelled variable: the label of each value, by default the value."""
    labels = {}
    for name, (_, values) in zip(generate.names, generate.lines, strict=True):
        if any(value.label for value in values) and f"{name}_label" not in generate.names:
            labels[f"{name}_label"] = {value.text: value.label or value.text for value in values}
    return labels


def known_names(generate: GenCommand) -> frozenset[str]:
    """The names of the placeholders in the template."""
    return frozenset({*generate.names, *value_labels(generate), *BUILTIN_NAMES})


def read_template(generate: GenCommand, commands: list[SweepCommand]) -> RunTemplate:
    """Compile the template of a GEN command. Raises PlanError."""
    return _TemplateCompiler(generate, commands).template()


def shared_description(describe: SweepDescription, known: Collection[str]) -> SweepDescription:
    """A submit description as written into the DAG, once for all runs.

    ``known``: names of placeholders. Raises PlanError if the description contains one, whose
    value differs between runs.
    """
    text = parse_placeholders(describe.text, known, describe.where)
    if text.names:
        name = text.names[0]
        macro = "run_uuid" if name == "uuid" else name
        raise PlanError(
            f"{describe.where}: {{{name}}} in the description {shown(describe.name)}, which all "
            f"runs share; use $({macro}), which VARS give"
        )
    return replace(describe, text=text.fill({}))


class _TemplateCompiler:
    """Compiles the commands of one template file."""

    def __init__(self, generate: GenCommand, commands: list[SweepCommand]) -> None:
        self._generate = generate
        self._known = known_names(generate)
        self._commands = commands
        self._keys: dict[str, str] = {}
        self._declared: dict[str, NodeDeclaration] = {}
        self._regions: dict[str, tuple[str, ...]] = {}
        self._parents: dict[str, dict[str, None]] = {}
        self._with_children: set[str] = set()
        self._edges: dict[tuple[str, str], Edge] = {}

    def template(self) -> RunTemplate:
        self._check_commands()
        self._find_nodes()
        self._find_edges()
        self._find_regions()
        variables = self._template_vars()
        parts = tuple(
            TemplateNode(
                key=key,
                name=self._parse(key, where),
                where=where,
                declared=declared,
                submit=self._parse(declared.submit, declared.where) if declared else None,
                variables=tuple(variables[key]),
            )
            for key, where in self._keys.items()
            for declared in [self._declared.get(key)]
        )
        in_graph = [part for part in parts if not (part.declared and part.declared.kind in APART)]
        return RunTemplate(
            generate=self._generate,
            sweep=sweep_request(self._generate),
            parts=parts,
            edges=tuple(self._edges.values()),
            node_order=self._topological_order(),
            parents={key: tuple(self._parents.get(key, ())) for key in self._keys},
            firsts=tuple(part.key for part in in_graph if part.key not in self._parents),
            lasts=tuple(part.key for part in in_graph if part.key not in self._with_children),
            node_commands=tuple(self._template_commands()),
            global_commands=tuple(
                (command, self._parse(command.text, command.where))
                for command in self._commands_of(GlobalCommand)
            ),
            descriptions=tuple(
                shared_description(command, self._known)
                for command in self._commands_of(SweepDescription)
            ),
        )

    def _commands_of(self, kind: type[Kind]) -> Iterator[Kind]:
        return (command for command in self._commands if isinstance(command, kind))

    def _parse(self, text: str, where: str) -> PlaceholderText:
        return parse_placeholders(text, self._known, where)

    def _check_commands(self) -> None:
        for command in self._commands:
            if isinstance(command, GenCommand):
                raise PlanError(
                    f"{command.where}: GEN within a template ({self._generate.where}); a run "
                    "cannot be swept again: name all variables in one GEN line of the workflow"
                )
            if isinstance(command, Splice):
                raise PlanError(
                    f"{command.where}: a template cannot hold a SPLICE, which takes no variables; "
                    "write its nodes here, or INCLUDE its file"
                )

    # --- nodes and edges ----------------------------------------------------------------------

    def _find_nodes(self) -> None:
        ordered = any(
            self._is_own(name)
            for edge_command in self._commands_of(ParentChild)
            for name in edge_command.parents
        )
        for command in self._commands:
            if isinstance(command, NodeDeclaration):
                if previous := self._declared.get(command.name):
                    raise PlanError(
                        f"{command.where}: {shown(command.name)} is declared already "
                        f"({previous.where}); take one of the lines out"
                    )
                self._declared[command.name] = command
                self._keys.setdefault(command.name, command.where)
            elif isinstance(command, ParentChild):
                for name in (*command.parents, *command.children):
                    if self._is_own(name):
                        self._keys.setdefault(name, command.where)
            elif isinstance(command, VarsLine) and not ordered and self._is_own(command.name):
                # Without dependencies, VARS alone can name a node.
                self._keys.setdefault(command.name, command.where)
        if not self._keys:
            raise PlanError(
                f"{self._generate.where}: {shown(self._generate.template)} has no node; write "
                "'PARENT {run}-train_epoch0 CHILD {run}-train_epoch1', or JOB lines"
            )

    def _is_own(self, name: str) -> bool:
        return name != RUN and (has_placeholders(name) or name in self._declared)

    def _find_edges(self) -> None:
        kinds = {key: declaration.kind for key, declaration in self._declared.items()}
        for command in self._commands_of(ParentChild):
            for parent in command.parents:
                for child in command.children:
                    self._add_edge(parent, child, command)
            for name in (*command.parents, *command.children):
                if kinds.get(name) in APART:
                    raise PlanError(
                        f"{command.where}: {shown(name)} stands outside the graph "
                        f"({self._declared[name].where}); take it out of PARENT … CHILD"
                    )

    def _add_edge(self, parent: str, child: str, command: ParentChild) -> None:
        in_run = parent in self._keys and child in self._keys
        if (parent, child) in self._edges:
            return
        self._edges[parent, child] = Edge(
            parent=self._parse(parent, command.where),
            child=self._parse(child, command.where),
            where=command.where,
            weak=command.weak,
            outside=not in_run,
        )
        if in_run:
            self._parents.setdefault(child, {})[parent] = None
            self._with_children.add(parent)

    def _topological_order(self) -> tuple[str, ...]:
        open_parents = {key: len(self._parents.get(key, ())) for key in self._keys}
        children: dict[str, list[str]] = {}
        for child, parents in self._parents.items():
            for parent in parents:
                children.setdefault(parent, []).append(child)
        ready = [key for key, count in open_parents.items() if not count]
        for key in ready:
            for child in children.get(key, ()):
                open_parents[child] -= 1
                if not open_parents[child]:
                    ready.append(child)
        if len(ready) < len(open_parents):
            stuck = tuple(key for key, count in open_parents.items() if count)
            where = next(
                edge.where
                for (parent, child), edge in self._edges.items()
                if parent in stuck and child in stuck
            )
            raise PlanError(
                f"{where}: nodes wait for each other in a circle ({listed(stuck)}); take one of "
                "the PARENT lines out"
            )
        return tuple(ready)

    # --- variables and node commands ----------------------------------------------------------

    def _find_regions(self) -> None:
        for region in self._commands_of(RegionCommand):
            if region.name in self._regions:
                raise PlanError(f"{region.where}: the region {region.name} is there twice")
            keys: dict[str, None] = {}
            for member in region.members:
                self._parse(member, region.where)
                keys |= dict.fromkeys(self._members(member, region.where))
            self._regions[region.name] = tuple(keys)

    def _members(self, member: str, where: str) -> Iterable[str]:
        if member in self._keys:
            return (member,)
        if member in self._regions:
            return self._regions[member]
        matches = [key for key in self._keys if fnmatchcase(key, member)]
        if not matches:
            raise self._unknown_name(member, where)
        return matches

    def _resolve(self, name: str, where: str) -> tuple[str, ...]:
        """The nodes that a command is about."""
        if name.upper() == ALL_NODES or name == RUN:
            return tuple(self._keys)
        if name in self._keys:
            return (name,)
        if name in self._regions:
            return self._regions[name]
        raise self._unknown_name(name, where)

    def _unknown_name(self, name: str, where: str) -> PlanError:
        self._parse(name, where)
        similar = nearest(name, (*self._keys, *self._regions))
        hint = f"; is {similar} meant?" if similar else f"; there are {listed(tuple(self._keys))}."
        return PlanError(
            f"{where}: {shown(name)} is no node or region of {shown(self._generate.template)}"
            f"{hint} A node is declared by 'JOB {shown(name)} file.sub'"
        )

    def _template_vars(self) -> dict[str, list[TemplateVars]]:
        variables: dict[str, list[TemplateVars]] = {key: [] for key in self._keys}
        for command in self._commands_of(VarsLine):
            keys = self._resolve(command.name, command.where)
            level = self._precedence(command.name)
            for name, value in command.pairs:
                text = self._parse(value, command.where)
                variable = TemplateVars(name, text, level, command.where, command.append)
                for key in keys:
                    variables[key].append(variable)
        return variables

    def _precedence(self, name: str) -> Precedence:
        if name.upper() == ALL_NODES:
            return Precedence.ALL
        if name == RUN:
            return Precedence.RUN
        return Precedence.NODE if name in self._keys else Precedence.REGION

    def _template_commands(self) -> Iterator[TemplateCommand]:
        for command in self._commands_of(SweepNodeCommand):
            texts = [self._parse(text, command.where) for text in (command.head, command.rest)]
            if command.name.upper() == ALL_NODES:
                yield TemplateCommand(None, command, *texts)
                continue
            for key in self._resolve(command.name, command.where):
                yield TemplateCommand(key, command, *texts)


def run_fillings(
    generate: GenCommand, points: Iterable[Mapping[str, str]], marks: Collection[str]
) -> Iterator[dict[str, str]]:
    """The values of the placeholders for each run.

    ``marks`` stand for the uuids, which are derived from all other values.
    """
    labels = value_labels(generate)
    width = len(str(len(marks) - 1))
    for index, (point, mark) in enumerate(zip(points, marks, strict=True)):
        values = dict(point)
        for name, label_of in labels.items():
            values[name] = label_of[point[name.removesuffix("_label")]]
        yield {
            **values,
            "run": f"{generate.group}{index:0{width}}",
            "index": str(index),
            "uuid": mark,
        }
