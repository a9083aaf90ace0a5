"""The nodes of a sweep file: those of every run, and the workflow's own.

Drafts of nodes and runs are filled in step by step. Their texts may contain the mark of a uuid that
is not yet known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from typing import Final, NamedTuple

from msgspec import Struct

from metlmon.authoring.fields import nearest
from metlmon.authoring.graph import MOST_NODES, NodeRole, Precedence, VariableValue
from metlmon.authoring.request import PlanError, Request
from metlmon.authoring.sweeps.files import SweepFiles
from metlmon.authoring.sweeps.parser import (
    GenCommand,
    GlobalCommand,
    NodeDeclaration,
    RegionCommand,
    SweepCommand,
    SweepNodeCommand,
    VarsLine,
)
from metlmon.authoring.sweeps.template import RunTemplate, fill_placeholders, placeholder_names
from metlmon.config.settings import SIDE_NODE, TRAIN_NODE
from metlmon.dagman.commands import (
    ALL_NODES,
    SCOPE_SIGN,
    DagCommand,
    PreSkipCommand,
    RetryCommand,
    ScriptCommand,
)
from metlmon.dagman.graph import APART
from metlmon.dagman.lexer import LogicalLines, SyntaxFault, Tokens, shown
from metlmon.dagman.parser import READERS, RESERVED
from metlmon.dagman.records import NodeKind

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

_JOB_ONLY_COMMANDS: Final = frozenset(
    {"RETRY", "PRIORITY", "CATEGORY", "SAVE_POINT_FILE", "TOLERANCE"}
)
"""Commands that apply to JOB and SUBDAG nodes only."""


class NodeScript(NamedTuple):
    """A script of a node.

    ``defer``: (exit code, seconds); ``debug``: the option DEBUG as DAG text, or "".
    """

    command: str
    where: str
    defer: tuple[int, int] | None
    debug: str

    def options(self, *, deferred: bool) -> str:
        """The options as DAG text; ``deferred``: including DEFER, first as before 25.5."""
        defer = "DEFER {} {}".format(*self.defer) if deferred and self.defer is not None else ""
        return f"{defer} {self.debug}".strip()


class NodeDraft(Struct, eq=False):
    """A node under construction.

    ``scripts``: by PRE, POST and HOLD. ``key``: the name in the template.
    """

    name: str
    kind: NodeKind
    where: str
    submit: str = ""
    declared: bool = False
    noop: bool = False
    done: bool = False
    run: RunDraft | None = None
    key: str = ""
    role: NodeRole = NodeRole.PLAIN
    epoch: int | None = None
    variables: list[VariableValue] = []
    scripts: dict[str, NodeScript] = {}
    skip: int | None = None
    retries: int | None = None
    unless: int | None = None

    def declare(self, command: NodeDeclaration, submit: str) -> None:
        """Apply a JOB command or the like, with its placeholders filled in."""
        unmarked = _without_marks(submit)
        valid = _FILE.fullmatch(unmarked) and unmarked.isprintable()
        if not valid or unmarked.startswith(("{", "@=")):
            raise PlanError(
                f"{command.where}: {shown(unmarked)!r} cannot be the name of a file in a DAG; use "
                "one without blanks and quotes"
            )
        self.kind, self.submit, self.where = command.kind, submit, command.where
        self.declared, self.noop, self.done = True, command.noop, command.done
        self.role = _ROLES.get(self.kind, self.role)

    def find_role(self) -> None:
        """Set the role and the epoch in the name, by the patterns of monitoring."""
        if self.kind is not NodeKind.JOB:
            return
        for role, pattern in _ROLE_PATTERNS.items():
            match = pattern.match(self.name)
            if match and _NUMBER.fullmatch(match["epoch"]):
                self.role, self.epoch = role, int(match["epoch"])
                return

    def fill(self, text: str, where: str) -> str:
        """A text with placeholders filled in for the node's run. Raises PlanError."""
        return fill_placeholders(text, {} if self.run is None else self.run.values, where)

    def apply(self, command: SweepNodeCommand) -> str | None:
        """Apply a command; one without a field here is returned as DAG text.

        Raises PlanError if DAGMan would refuse it.
        """
        head, rest = self.fill(command.head, command.where), self.fill(command.rest, command.where)
        line = f"{head} {self.name} {rest}" if rest else f"{head} {self.name}"
        match parse_command(line, command.where):
            case RetryCommand(retries=retries, unless_exit=unless):
                self.retries, self.unless = retries, unless
            case PreSkipCommand(code=code):
                self.skip = code
            case ScriptCommand(kind=kind, command=script, defer=defer):
                words = head.split()[1:-1]
                options = {
                    words[index].upper(): " ".join(words[index : index + 3])
                    for index in range(0, len(words), 3)
                }
                debug = options.get("DEBUG", "")
                self.scripts[kind.name] = NodeScript(script, command.where, defer, debug)
            case _:
                return line
        return None


class RunDraft(Struct, eq=False):
    """A run under construction.

    ``index``: its number among all runs of the file. ``point``: its swept values; ``values``: of
    all placeholders; that of uuid is a mark. ``nodes``: by their names in the template.
    """

    name: str
    index: int
    template: RunTemplate
    point: Mapping[str, str]
    values: dict[str, str]
    seed: int
    nodes: dict[str, NodeDraft] = {}
    edges: dict[tuple[str, str], str] = {}
    lines: dict[str, None] = {}

    def fill(self, text: str, where: str) -> str:
        """A text with the placeholders of the run filled in. Raises PlanError."""
        return fill_placeholders(text, self.values, where)

    def resolve(self, name: str, where: str) -> list[NodeDraft]:
        """The nodes that a command of the template is about. Raises PlanError."""
        return [self.nodes[key] for key in self.template.resolve(name, where)]

    def end_nodes(self, *, last: bool) -> list[str]:
        """The names of its last nodes, or of its first ones."""
        keys = self.template.lasts if last else self.template.firsts
        return [self.nodes[key].name for key in keys]


class SweepNodes:
    """All nodes of a sweep file, with the names that commands may use for them.

    Each name refers to one thing: a group, run, node, region or splice. ``templates``: those of
    the GEN commands, in file order.
    """

    def __init__(
        self, request: Request, commands: Sequence[SweepCommand], files: SweepFiles
    ) -> None:
        self.groups: dict[str, list[RunDraft]] = {}
        self.runs: dict[str, RunDraft] = {}
        self.nodes: dict[str, NodeDraft] = {}
        self.regions: dict[str, list[NodeDraft]] = {}
        self.splices: set[str] = set()
        self.templates: list[RunTemplate] = []
        self._request = request
        self._reserved: dict[str, tuple[str, str]] = {}
        self._single_nodes: dict[NodeKind, str] = {}
        self._read_templates(commands, files)
        self._build(commands)
        self._assign(commands)

    # --- building -----------------------------------------------------------------------------

    def _read_templates(self, commands: Sequence[SweepCommand], files: SweepFiles) -> None:
        """Read the templates, and check the number of nodes before any is built."""
        total = sum(isinstance(command, NodeDeclaration) for command in commands)
        for command in commands:
            if not isinstance(command, GenCommand):
                continue
            template = RunTemplate(command, files.commands(command.template, command.where))
            runs = len(template.points)
            total += runs * len(template.nodes)
            if total > MOST_NODES:
                raise PlanError(
                    f"{command.where}: {runs} runs of {len(template.nodes)} nodes: with them the "
                    f"DAG has {total} nodes, more than the {MOST_NODES} it may have; make several "
                    "DAGs"
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
        for command in commands:
            if isinstance(command, GenCommand):
                self._build_runs(next(templates))
            elif isinstance(command, RegionCommand):
                self._reserve(command.name, "a region", command.where)
            elif isinstance(command, GlobalCommand) and command.keyword == "SPLICE":
                self._reserve(command.words[1], "a splice", command.where)
                self.splices.add(command.words[1])
        for command in commands:
            if isinstance(command, NodeDeclaration):
                self._declare(command)
        for command in commands:
            if isinstance(command, RegionCommand):
                self._add_region(command)
        for node in self.nodes.values():
            if not node.declared and node.role is NodeRole.PLAIN:
                raise PlanError(
                    f"{node.where}: {shown(node.key)} is named, but no line says what it runs, and "
                    "its name is not one of a node that trains (…train_epoch0) or evaluates "
                    f"(…eval_epoch1); add 'JOB {shown(node.key)} file.sub'"
                )

    def _build_runs(self, template: RunTemplate) -> None:
        gen, seeds = template.generate, self._request.seeds
        self._reserve(gen.group, "a group", gen.where)
        group = self.groups[gen.group] = []
        first = len(self.runs)
        marks = [f"\x01{first + number}\x02" for number in range(len(template.points))]
        for index, values in enumerate(template.run_values(marks), start=first):
            run = RunDraft(
                name=values["run"],
                index=index,
                template=template,
                point=template.points[index - first],
                values=values,
                seed=seeds[index % len(seeds)] if seeds else index + 1,
            )
            self._reserve(run.name, f"a run of {gen.group}", gen.where)
            self.runs[run.name] = run
            group.append(run)
            self._build_nodes(run)

    def _build_nodes(self, run: RunDraft) -> None:
        for key, where in run.template.nodes.items():
            name = run.fill(key, where)
            check_name(name, where)
            node = NodeDraft(name, NodeKind.JOB, where, run=run, key=key)
            if (declaration := run.template.declarations.get(key)) is not None:
                node.declare(declaration, run.fill(declaration.submit, declaration.where))
                if node.kind in _SINGLE_KINDS and not self._request.subdags:
                    raise PlanError(
                        f"{where}: a DAG has one {node.kind.name} node, and each run "
                        "would bring one; declare it in the workflow, or make each run a sub-DAG"
                    )
            node.find_role()
            self._reserve(name, f"a node of {run.template.generate.group}", node.where)
            self.nodes[name] = run.nodes[key] = node

    def _declare(self, command: NodeDeclaration) -> None:
        """Declare a node of the workflow, or the job of a run's node."""
        node = self.nodes.get(command.name)
        if node is None:
            check_name(command.name, command.where)
            node = NodeDraft(command.name, command.kind, command.where)
            node.declare(command, command.submit)
            self._reserve(node.name, "a node", node.where)
            self.nodes[node.name] = node
            previous = self._single_nodes.setdefault(node.kind, node.where)
            if node.kind in _SINGLE_KINDS and previous != node.where:
                raise PlanError(
                    f"{node.where}: a DAG has one {node.kind.name} node, and there is one already "
                    f"({previous}); take one of the lines out"
                )
        elif node.declared:
            raise PlanError(
                f"{command.where}: {shown(node.name)} is declared already ({node.where}); take one "
                "of the lines out"
            )
        elif command.kind not in (NodeKind.JOB, NodeKind.SUBDAG):
            run_name = node.run.name if node.run is not None else ""
            raise PlanError(
                f"{command.where}: {shown(node.name)} is a node of the run {run_name}; "
                "declare it with JOB"
            )
        else:
            node.declare(command, command.submit)

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

    def _add_region(self, region: RegionCommand) -> None:
        """Resolve the members of a region: any names, and patterns of node names."""
        nodes: dict[str, NodeDraft] = {}
        for member in region.members:
            members = self._nodes_of(member)
            if members is None and any(wildcard in member for wildcard in "*?["):
                matches = re.compile(translate(member)).match
                members = [node for name, node in self.nodes.items() if matches(name)]
                if not members:
                    raise PlanError(
                        f"{region.where}: no node has a name like {shown(member)!r}; patterns are "
                        "held against nodes' names, such as flow0-train_epoch1"
                    )
            if not members:
                raise self.unknown_name(member, region.where)
            nodes |= {node.name: node for node in members}
        self.regions[region.name] = list(nodes.values())

    # --- names --------------------------------------------------------------------------------

    def _nodes_of(self, name: str) -> list[NodeDraft] | None:
        """The nodes of a group, run, region or node; None for any other name."""
        runs = self.groups.get(name) or ([self.runs[name]] if name in self.runs else [])
        if runs:
            return [node for run in runs for node in run.nodes.values()]
        node = self.nodes.get(name)
        return self.regions.get(name) if node is None else [node]

    def resolve(self, name: str, where: str) -> list[NodeDraft]:
        """The nodes that a command about ``name`` applies to. Raises PlanError."""
        nodes = list(self.nodes.values()) if name.upper() == ALL_NODES else self._nodes_of(name)
        if nodes is None:
            raise self.unknown_name(name, where)
        return nodes

    def end_nodes(self, names: Iterable[str], where: str, *, last: bool) -> list[str]:
        """The nodes and splices that PARENT (``last``) or CHILD refer to, each once.

        Runs in sub-DAGs are one node. Raises PlanError.
        """
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
        if self._request.subdags and node.run is not None:
            raise PlanError(
                f"{where}: {shown(name)} lies in the sub-DAG of {node.run.name}; name the run or "
                "its group in PARENT … CHILD"
            )

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

    # --- variables ----------------------------------------------------------------------------

    def _assign(self, commands: Sequence[SweepCommand]) -> None:
        """Assign variables, from the widest to the narrowest scope of the workflow.

        Within one scope the last assignment wins.
        """
        for run in self.runs.values():
            variables = [
                VariableValue(swept.name, run.point[swept.name], Precedence.RUN, swept.where)
                for swept in run.template.sweep.variables
            ]
            for node in run.nodes.values():
                if node.role in TRAINING_ROLES:
                    node.variables += variables
        lines: dict[Precedence, list[VarsLine]] = {level: [] for level in Precedence}
        for command in commands:
            if isinstance(command, VarsLine):
                level = Precedence.NODE
                if command.name.upper() == ALL_NODES:
                    level = Precedence.ALL
                elif command.name in self.regions:
                    level = Precedence.REGION
                elif command.name in self.groups or command.name in self.runs:
                    level = Precedence.RUN
                lines[level].append(command)
        for line in lines[Precedence.ALL]:
            nodes = [node for node in self.nodes.values() if node.kind is not NodeKind.FINAL]
            _assign_line(line, nodes, Precedence.ALL)
        for run in self.runs.values():
            for line in run.template.commands_of(VarsLine):
                nodes = run.resolve(line.name, line.where)
                _assign_line(line, nodes, run.template.precedence(line.name))
        # Those of a group before those of a run, which are narrower.
        lines[Precedence.RUN].sort(key=lambda line: line.name in self.runs)
        for level in (Precedence.REGION, Precedence.RUN, Precedence.NODE):
            for line in lines[level]:
                _assign_line(line, self.resolve(line.name, line.where), level)


def _assign_line(line: VarsLine, nodes: Iterable[NodeDraft], level: Precedence) -> None:
    for node in nodes:
        node.variables += [
            VariableValue(name, node.fill(text, line.where), level, line.where, append=line.append)
            for name, text in line.pairs
        ]


def affected_nodes(nodes: Iterable[NodeDraft], command: SweepNodeCommand) -> Iterator[NodeDraft]:
    """The nodes to which a command about ALL_NODES applies.

    DAGMan before 25.5 refuses a DAG whose command does not apply to a SERVICE node; later
    versions skip the node.
    """
    for node in nodes:
        is_job = node.kind in (NodeKind.JOB, NodeKind.SUBDAG)
        has_effect = command.keyword not in _JOB_ONLY_COMMANDS
        if is_job or (node.kind is not NodeKind.FINAL and has_effect):
            yield node


def check_name(name: str, where: str) -> None:
    """Raises PlanError if DAGMan, or a file named after the node, cannot use the name."""
    if placeholder_names(name):
        raise PlanError(
            f"{where}: {shown(name)}: {{run}} and the like stand in a template only; write the "
            "name of a group, a run or a node"
        )
    unmarked = _without_marks(name)
    if not _NAME.fullmatch(unmarked) or not unmarked.isprintable() or name.upper() in RESERVED:
        reason = " ('+' joins the names of splices)" if SCOPE_SIGN in name else ""
        raise PlanError(
            f"{where}: {shown(unmarked)!r} cannot be a node's name{reason}; use letters, digits, "
            "'-', '_' and '.'"
        )
    if len(name) > LONGEST_NAME:
        raise PlanError(
            f"{where}: a node's name of {len(name)} characters; use {LONGEST_NAME} at most"
        )


def _without_marks(text: str) -> str:
    return text.replace("\x01", "").replace("\x02", "")


def parse_command(line: str, where: str) -> DagCommand:
    """The command in a line. Raises PlanError if DAGMan would refuse it."""
    tokens = Tokens(line)
    try:
        keyword = tokens.next().upper().replace("-", "_")
        return READERS[keyword](0, tokens, LogicalLines(b""))
    except SyntaxFault as fault:
        raise PlanError(f"{where}: {keyword.replace('_', '-')}: {fault}") from None
