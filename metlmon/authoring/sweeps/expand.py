"""Expands a sweep file into a graph."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from metlmon.authoring.gate_config import gated, is_gated
from metlmon.authoring.graph import (
    ALWAYS_SUCCEEDS,
    Graph,
    GraphNode,
    NodeRole,
    VariableValue,
)
from metlmon.authoring.jobs import jobs_of
from metlmon.authoring.manifest import kept_sweep
from metlmon.authoring.request import PlanError, Request, RequestProblem
from metlmon.authoring.runs import run_plans
from metlmon.authoring.sweeps.commands import (
    GenCommand,
    GlobalCommand,
    NodeDeclaration,
    ParentChild,
    Splice,
    SweepCommand,
    SweepDescription,
    SweepNodeCommand,
)
from metlmon.authoring.sweeps.dependencies import DependencyBuilder, check_acyclic
from metlmon.authoring.sweeps.files import (
    FileUse,
    NamedFile,
    file_use,
    read_submit_text,
    referenced_files,
)
from metlmon.authoring.sweeps.node_drafts import (
    NodeDraft,
    RunDraft,
    affected_nodes,
    apply_command,
    check_line,
    parse_retry,
    render,
)
from metlmon.authoring.sweeps.node_variables import VarsAssigner
from metlmon.authoring.sweeps.nodes import NodeBuilder, find_undeclared
from metlmon.authoring.sweeps.parser import SweepFiles
from metlmon.authoring.sweeps.placeholders import has_placeholders
from metlmon.authoring.sweeps.result import Expansion, Group, Referenced
from metlmon.authoring.sweeps.template import RunTemplate, known_names, shared_description
from metlmon.authoring.sweeps.training_chain import TRAINING_ROLES, TrainingChain
from metlmon.authoring.sweeps.unused import VariableEffects
from metlmon.authoring.sweeps.values import resolve_mode
from metlmon.authoring.variables import NodePosition, described, merged
from metlmon.dagman import NodeKind
from metlmon.dagman.commands import ALL_NODES
from metlmon.dagman.lexer import shown

SINGLE_COMMANDS: Final = frozenset({"NODE_STATUS_FILE", "JOBSTATE_LOG", "CONFIG"})
"""Commands that a DAG can have only once."""

PER_NODE_COMMANDS: Final = frozenset({"SCRIPT", "PRE_SKIP"})
"""Commands for ALL_NODES that the graph stores for each node."""

_MARK: Final = re.compile("\x01([0-9]+)\x02")


def expand(request: Request) -> Expansion:
    """Expand the sweep file ``request.source``.

    Reads it and the files that it names. Raises PlanError, with file, line and remedy, for any
    error in them.
    """
    assert request.source is not None
    source = request.source
    dag_file = request.directory / f"{request.name}.dag"
    if os.path.realpath(dag_file) == os.path.realpath(source):
        raise PlanError(
            f"{source.name} would be written over by the DAG made of it; choose another name or "
            "directory for the DAG"
        )
    sweep_files = SweepFiles(source.parent, is_copy=source.name == kept_sweep(source))
    commands = sweep_files.commands(source.name)
    if not any(isinstance(command, GenCommand) for command in commands):
        raise PlanError(
            f"{source.name}: no line of it begins with GEN SUBDAG, so nothing is swept; write "
            "'GEN SUBDAG group file.subdag a from', and the values of a on the line below"
        )
    return _Expander(request, source, commands, sweep_files).expansion()


class _Expander:
    """Expands the commands of one sweep file."""

    def __init__(
        self,
        request: Request,
        source: Path,
        commands: Sequence[SweepCommand],
        sweep_files: SweepFiles,
    ) -> None:
        self._request = request
        self._source = source
        self._sweep_files = sweep_files
        self._commands = commands
        self._builder = NodeBuilder(request, commands, sweep_files)
        self._names = self._builder.names
        self._jobs = jobs_of(request)
        self._uuids: list[str] = []
        self._lines: dict[str, None] = {}
        self._descriptions: dict[str, tuple[str, str]] = {}
        self._retries = request.retries
        self._unless: int | None = None
        self._assigner = VarsAssigner(self._names, commands)
        self._single: dict[str, str] = {}

    def expansion(self) -> Expansion:
        names, subdags = self._names, self._request.subdags
        if problem := find_undeclared(names.nodes.values()):
            raise problem
        self._assigner.assign()
        dependencies = DependencyBuilder(names, subdags=subdags)
        templates = iter(self._builder.templates)
        for command in self._commands:
            if isinstance(command, GenCommand):
                self._add_template(next(templates), command, dependencies)
            else:
                self._add_command(command, dependencies)
        self._add_done_lines()
        workflow_nodes = [
            node.name for node in names.nodes.values() if not subdags or node.run is None
        ]
        runs = list(names.runs) if subdags else []
        check_acyclic([*workflow_nodes, *runs], dependencies.edges)
        return self._build_expansion(dependencies)

    # --- lines --------------------------------------------------------------------------------

    def _add_template(
        self, template: RunTemplate, gen: GenCommand, dependencies: DependencyBuilder
    ) -> None:
        """Add the lines and commands of a template for each of its runs."""
        for description in template.descriptions:
            self._add_description(description)
        for run in self._names.groups[gen.group]:
            for line in dependencies.add_run(run):
                self._add_line(line, gen.where, run)
            for template_command in template.node_commands:
                command = template_command.fill(run.filling)
                if template_command.key is not None:
                    self._apply_to_node(run.nodes[template_command.key], command)
                    continue
                for node in affected_nodes(run.nodes.values(), command):
                    self._apply_to_node(node, command)
            for global_command, text in template.global_commands:
                self._add_global_command(global_command, text.fill(run.filling), run)

    def _add_command(self, command: SweepCommand, dependencies: DependencyBuilder) -> None:
        """Add a command of the workflow."""
        match command:
            case ParentChild():
                if (line := dependencies.add_command(command)) is not None:
                    self._add_line(line, command.where)
            case SweepNodeCommand():
                self._apply_to_nodes(command)
            case SweepDescription():
                names = [known_names(template.generate) for template in self._builder.templates]
                self._add_description(shared_description(command, frozenset().union(*names)))
            case Splice(text=text):
                self._add_line(text, command.where)
            case GlobalCommand(text=text):
                self._add_global_command(command, text, None)
            case _:
                pass

    def _add_description(self, command: SweepDescription) -> None:
        previous = self._descriptions.setdefault(command.name, (command.text, command.where))
        if previous[0] != command.text:
            raise PlanError(
                f"{command.where}: {shown(command.name)} is described otherwise at {previous[1]}; "
                "give one of the two another name"
            )

    def _add_line(self, line: str, where: str, run: RunDraft | None = None) -> None:
        check_line(line, where)
        if run is not None and self._request.subdags:
            run.lines[line] = None
        else:
            self._lines[line] = None

    def _add_global_command(self, command: GlobalCommand, text: str, run: RunDraft | None) -> None:
        if command.keyword in SINGLE_COMMANDS and (run is None or not self._request.subdags):
            previous = self._single.setdefault(command.keyword, text)
            if previous != text:
                raise PlanError(
                    f"{command.where}: a DAG has one {command.keyword}, and this would be another "
                    f"one; write it once, in {self._source.name}"
                )
        self._add_line(text, command.where, run)

    def _apply_to_nodes(self, command: SweepNodeCommand) -> None:
        if command.name.upper() != ALL_NODES:
            for node in self._names.resolve(command.name, command.where):
                self._apply_to_node(node, self._fill(node, command))
            return
        if command.keyword == "DONE":
            raise PlanError(f"{command.where}: ALL_NODES cannot be DONE; name the nodes")
        eligible = [node for node in self._names.nodes.values() if node.kind is not NodeKind.FINAL]
        nodes = list(affected_nodes(eligible, command))
        if command.keyword == "RETRY":
            render(command, ALL_NODES)
            self._retries, self._unless = parse_retry(command.rest.split())
            for node in nodes:
                node.retries = None
        elif (
            command.keyword in PER_NODE_COMMANDS
            or has_placeholders(command.rest)
            or len(nodes) < len(eligible)
        ):
            for node in nodes:
                self._apply_to_node(node, self._fill(node, command))
        else:
            self._add_line_everywhere(render(command, ALL_NODES))

    def _add_line_everywhere(self, line: str) -> None:
        self._lines[line] = None
        if self._request.subdags:
            for run in self._names.runs.values():
                run.lines[line] = None

    def _fill(self, node: NodeDraft, command: SweepNodeCommand) -> SweepNodeCommand:
        """The command with placeholders filled in for this node."""
        fill = self._assigner.fill
        head, rest = (fill(node, text, command.where) for text in (command.head, command.rest))
        return replace(command, head=head, rest=rest)

    def _apply_to_node(self, node: NodeDraft, command: SweepNodeCommand) -> None:
        if (line := apply_command(node, command)) is not None:
            self._add_line(line, command.where, node.run)

    def _add_done_lines(self) -> None:
        for node in self._names.nodes.values():
            if node.done:
                self._add_line(f"DONE {node.name}", node.where, node.run)

    # --- the graph ----------------------------------------------------------------------------

    def _build_expansion(self, dependencies: DependencyBuilder) -> Expansion:
        names, request = self._names, self._request
        trainings = {
            run.name: TrainingChain(request, self._jobs, run) for run in names.runs.values()
        }
        self._uuids = [training.uuid for training in trainings.values()]
        nodes = {node.name: self._graph_node(node, trainings) for node in names.nodes.values()}
        _check_uuids(nodes.values())
        descriptions = tuple(text for text, _ in self._descriptions.values())
        lines = (*descriptions, *self._with_uuids(self._lines))
        edges = self._edges_with_uuids(dependencies.edges)
        ordered = tuple(self._ordered_nodes(nodes))
        if request.subdags:
            subdags = self._subdags(nodes, descriptions)
            graph = Graph(ordered, edges, lines=lines, subdags=subdags)
        else:
            graph = Graph(ordered, edges, self._retries, lines, self._unless)
        files = referenced_files(self._source, self._commands, self._named_files(nodes))
        return Expansion(
            graph=graph,
            runs=run_plans(graph),
            values=tuple(run.point for run in names.runs.values()),
            groups=tuple(self._groups()),
            files=files,
            sources=tuple(self._sweep_files.contents.items()),
            warnings=tuple(self._warnings(nodes, files)),
        )

    def _warnings(
        self, nodes: Mapping[str, GraphNode], files: Sequence[Referenced]
    ) -> Iterator[RequestProblem]:
        contents = {file.name: file.data for file in files}

        def read(name: str) -> str | None:
            if name in self._descriptions:
                return self._descriptions[name][0]
            return read_submit_text(name, contents.get(name), self._request.directory)

        effects = VariableEffects(self._jobs, self._names, nodes, self._commands, read)
        for template in self._builder.templates:
            yield from effects.idle(template)
        yield from effects.unused(self._request)

    def _named_files(self, nodes: Mapping[str, GraphNode]) -> Iterator[NamedFile]:
        """The files that nodes submit and run.

        Excludes descriptions in the DAG and files that metlmon writes.
        """
        excluded = {*self._descriptions, *(job.file for job in self._jobs)}
        for node in self._names.nodes.values():
            submit = nodes[node.name].submit
            if not node.noop and submit not in excluded:
                yield NamedFile(submit, node.where, file_use(node.kind))
            for script in node.scripts.values():
                (line,) = self._with_uuids((script.command,))
                yield NamedFile(line.split(None, 1)[0], script.where, FileUse.SCRIPT)

    def _with_uuids(self, texts: Iterable[str]) -> tuple[str, ...]:
        """The texts with the marks of uuids replaced by the uuids."""
        return tuple(
            _MARK.sub(lambda match: self._uuids[int(match[1])], text) if "\x01" in text else text
            for text in texts
        )

    def _edges_with_uuids(self, edges: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        return tuple((parent, child) for parent, child in map(self._with_uuids, edges))

    def _ordered_nodes(self, nodes: Mapping[str, GraphNode]) -> Iterator[GraphNode]:
        """The nodes in the file's order; a run in a sub-DAG is one node."""
        for command in self._commands:
            if isinstance(command, NodeDeclaration):
                if self._names.nodes[command.name].run is None:
                    yield nodes[command.name]
            elif isinstance(command, GenCommand):
                for run in self._names.groups[command.group]:
                    if self._request.subdags:
                        yield GraphNode(
                            run.name,
                            self._subdag_file(run),
                            kind=NodeKind.SUBDAG,
                            run=run.name,
                            where=command.where,
                        )
                    else:
                        yield from (nodes[node.name] for node in run.nodes.values())

    def _subdag_file(self, run: RunDraft) -> str:
        return f"{self._request.name}-{run.name}.dag"

    def _subdags(
        self, nodes: Mapping[str, GraphNode], descriptions: tuple[str, ...]
    ) -> dict[str, Graph]:
        return {
            self._subdag_file(run): Graph(
                tuple(nodes[node.name] for node in run.nodes.values()),
                self._edges_with_uuids(run.edges),
                self._retries,
                (*descriptions, *self._with_uuids(run.lines)),
                self._unless,
            )
            for run in self._names.runs.values()
        }

    def _groups(self) -> Iterator[Group]:
        for template in self._builder.templates:
            gen = template.generate
            sweep = template.sweep
            yield Group(
                name=gen.group,
                template=gen.template,
                runs=len(self._names.groups[gen.group]),
                nodes=len(template.parts),
                counts={
                    name: len(values)
                    for name, (_, values) in zip(gen.names, gen.lines, strict=True)
                },
                how=resolve_mode(sweep),
                where=gen.where,
            )

    # --- one node -----------------------------------------------------------------------------

    def _graph_node(self, node: NodeDraft, trainings: Mapping[str, TrainingChain]) -> GraphNode:
        request, run = self._request, node.run
        (name,) = self._with_uuids((node.name,))
        if run is None:
            position = NodePosition(name, role=node.role)
            variables = merged([*described(request, position), *node.variables])
            uuid = ""
        else:
            training = trainings[run.name]
            variables = training.variables(node, gated=is_gated(request, node.role))
            uuid = next(
                (variable.value for variable in variables if variable.name.lower() == "run_uuid"),
                "",
            )
        retries, unless = self._retries_of(node)
        scripts = {
            kind: self._with_uuids((script.command,))[0] for kind, script in node.scripts.items()
        }
        graph_node = GraphNode(
            name=name,
            submit=self._with_uuids((node.submit or self._default_submit(node),))[0],
            kind=node.kind,
            role=node.role,
            run=run.name if run is not None else None,
            epoch=node.epoch if node.role in TRAINING_ROLES else None,
            variables=tuple(map(self._variable_with_uuids, variables))
            if node.kind is not NodeKind.SUBDAG
            else (),
            pre=scripts.get("PRE"),
            defer=node.scripts["PRE"].defer if "PRE" in scripts else None,
            skip=node.skip,
            post=scripts.get("POST", self._default_post(node)),
            hold=scripts.get("HOLD"),
            options=tuple(self._script_options(node)),
            retries=retries,
            unless=unless,
            noop=node.noop,
            where=node.where,
        )
        return self._with_gate(node, graph_node, uuid)

    def _variable_with_uuids(self, variable: VariableValue) -> VariableValue:
        if "\x01" not in variable.value and not variable.over:
            return variable
        over = tuple(map(self._variable_with_uuids, variable.over))
        return replace(variable, value=self._with_uuids((variable.value,))[0], over=over)

    def _default_submit(self, node: NodeDraft) -> str:
        """The default submit file of the node's role."""
        return next(job.file for job in self._jobs if job.role is node.role)

    def _default_post(self, node: NodeDraft) -> str | None:
        """POST script that ignores the failure of an evaluation without dependents.

        Only if metlmon chose the evaluation's template.
        """
        gates = self._request.evaluation is not None and self._request.evaluation.gates
        is_last = node.run is not None and node.key in node.run.template.lasts
        if node.role is NodeRole.EVALUATE and not node.declared and is_last and not gates:
            return ALWAYS_SUCCEEDS
        return None

    def _script_options(self, node: NodeDraft) -> Iterator[tuple[str, str]]:
        for kind, script in node.scripts.items():
            if options := script.options(deferred=kind != "PRE"):
                yield kind, self._with_uuids((options,))[0]

    def _retries_of(self, node: NodeDraft) -> tuple[int | None, int | None]:
        """The node's retries; a workflow of sub-DAGs retries its own jobs, not whole runs."""
        if node.retries is None and self._request.subdags and node.run is None:
            if self._retries and node.kind is NodeKind.JOB:
                return self._retries, self._unless
            return None, None
        return node.retries, node.unless

    def _with_gate(self, node: NodeDraft, graph_node: GraphNode, uuid: str) -> GraphNode:
        if not is_gated(self._request, node.role):
            return graph_node
        if (script := node.scripts.get("PRE")) is not None:
            raise PlanError(
                f"{script.where}: {shown(graph_node.name)} has a PRE script of its own, but the "
                "gate that can stop its run is one, too; take the script out, or write it without "
                "a gate"
            )
        retries = self._retries if node.retries is None else node.retries
        if not retries:
            raise PlanError(
                f"{node.where}: {shown(graph_node.name)} is not tried again, which a run that can "
                "be stopped must be; give it a RETRY of 1 or more, or write it without a gate"
            )
        return gated(self._request, graph_node, self._with_uuids((uuid,))[0])


def _check_uuids(nodes: Iterable[GraphNode]) -> None:
    """Raises PlanError if two runs share a uuid, and so an output directory."""
    runs: dict[str, str] = {}
    for node in nodes:
        uuid = next(
            (variable for variable in node.variables if variable.name.lower() == "run_uuid"), None
        )
        if uuid is None or node.run is None:
            continue
        other = runs.setdefault(uuid.value, node.run)
        if other != node.run:
            raise PlanError(
                f"{uuid.where}: {node.run} and {other} have the same run_uuid; put {{uuid}} or "
                "{run} into it, or leave it to metlmon"
            )
