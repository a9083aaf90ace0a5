"""Expands a sweep file into a graph."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring.description import sweep_copy_name
from metlmon.authoring.gate_config import gate_variables, has_gate, with_gate
from metlmon.authoring.graph import (
    ALWAYS_SUCCEEDS,
    Graph,
    GraphNode,
    NodeRole,
    Precedence,
    ScriptOptions,
    VariableValue,
)
from metlmon.authoring.request import EnsembleShape, PlanError, Request, RequestProblem, RunPlan
from metlmon.authoring.runs import (
    LOCATION_VARIABLES,
    SITE_VARIABLE,
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
from metlmon.authoring.sweeps.files import (
    FileUse,
    NamedFile,
    Referenced,
    SweepFiles,
    file_use,
    read_submit_text,
    referenced_files,
)
from metlmon.authoring.sweeps.nodes import (
    MARK,
    TRAINING_ROLES,
    NodeDraft,
    RunDraft,
    SweepNodes,
    affected_nodes,
    parse_command,
)
from metlmon.authoring.sweeps.parser import (
    GenCommand,
    GlobalCommand,
    NodeDeclaration,
    ParentChild,
    SweepCommand,
    SweepDescription,
    SweepNodeCommand,
    VarsLine,
)
from metlmon.authoring.sweeps.template import (
    RunTemplate,
    placeholder_names,
    shared_description,
    topological_order,
)
from metlmon.authoring.templates import JobTemplate, jobs_of
from metlmon.dagman.commands import ALL_NODES, RetryCommand
from metlmon.dagman.lexer import shown
from metlmon.dagman.records import NodeKind

MOST_EDGES: Final = 1_000_000
"""Ten per allowed node: a group that depends on a group has many edges."""

SINGLE_COMMANDS: Final = frozenset({"NODE_STATUS_FILE", "JOBSTATE_LOG", "CONFIG"})
"""Commands that a DAG can have only once."""

PER_NODE_COMMANDS: Final = frozenset({"SCRIPT", "PRE_SKIP"})
"""Commands for ALL_NODES that the graph stores for each node."""

_INCLUDE: Final = re.compile(r"^\s*include\b", re.IGNORECASE | re.MULTILINE)

Edges = dict[tuple[str, str], str]
"""Edges (parent, child) with their positions."""


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
    """Expand the sweep file ``request.source``.

    Reads it and the files that it names. Raises PlanError, with file, line and remedy, for any
    error in them.
    """
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
    if not any(isinstance(command, GenCommand) for command in commands):
        raise PlanError(
            f"{source.name}: no line of it begins with GEN SUBDAG, so nothing is swept; write "
            "'GEN SUBDAG group file.subdag a from', and the values of a on the line below"
        )
    expander = _Expander(request, commands, SweepNodes(request, commands, sweep_files))
    graph = expander.graph()
    files = referenced_files(source, commands, expander.named_files())
    sources = tuple(sweep_files.contents.items())
    return Expansion(graph, files, sources, tuple(expander.warnings(files)))


class _Expander:
    """Expands the commands of one sweep file."""

    def __init__(
        self, request: Request, commands: Sequence[SweepCommand], nodes: SweepNodes
    ) -> None:
        self._request = request
        self._commands = commands
        self._nodes = nodes
        self._jobs = jobs_of(request)
        self._edges: Edges = {}
        self._edge_count = 0
        self._uuids: list[str] = []
        self._lines: dict[str, None] = {}
        self._descriptions: dict[str, SweepDescription] = {}
        self._single_lines: dict[str, str] = {}
        self._retries = request.retries
        self._unless: int | None = None
        self._graph_nodes: dict[str, GraphNode] = {}

    def graph(self) -> Graph:
        """The graph. Raises PlanError."""
        nodes, request = self._nodes, self._request
        templates = iter(nodes.templates)
        for command in self._commands:
            match command:
                case GenCommand():
                    self._add_template(next(templates))
                case ParentChild():
                    self._add_edges(command)
                case SweepNodeCommand():
                    self._apply_to_workflow(command)
                case SweepDescription():
                    known = [template.known_names for template in nodes.templates]
                    self._add_description(shared_description(command, frozenset().union(*known)))
                case GlobalCommand():
                    self._add_global_command(command, None)
                case _:
                    pass
        for node in nodes.nodes.values():
            if node.done:
                self._add_line(f"DONE {node.name}", node.run)
        outer = [
            name for name, node in nodes.nodes.items() if node.run is None or not request.subdags
        ]
        topological_order([*outer, *(nodes.runs if request.subdags else ())], self._edges)
        chains = {run.name: TrainingChain(request, self._jobs, run) for run in nodes.runs.values()}
        self._uuids = [chain.uuid for chain in chains.values()]
        self._graph_nodes = {
            node.name: self._graph_node(node, chains) for node in nodes.nodes.values()
        }
        self._check_uuids()
        ordered = list(self._ordered_nodes())
        if not request.subdags:
            return self._part(ordered, self._edges, self._lines, self._retries)
        subdags = {
            self._subdag_file(run): self._part(
                [self._graph_nodes[node.name] for node in run.nodes.values()],
                run.edges,
                run.lines,
                self._retries,
            )
            for run in nodes.runs.values()
        }
        return self._part(ordered, self._edges, self._lines, None, subdags=subdags)

    def _part(
        self,
        nodes: Sequence[GraphNode],
        edges: Edges,
        lines: Iterable[str],
        retries: int | None,
        subdags: Mapping[str, Graph] | None = None,
    ) -> Graph:
        """The graph of one DAG file; ``retries`` None: it retries nothing by default."""
        fill = self._with_uuid
        descriptions = (description.text for description in self._descriptions.values())
        return Graph(
            nodes=tuple(nodes),
            edges=tuple((fill(parent), fill(child)) for parent, child in edges),
            retries=retries or 0,
            lines=(*descriptions, *map(fill, lines)),
            unless_exit=None if retries is None else self._unless,
            subdags=subdags or {},
        )

    def warnings(self, files: Sequence[Referenced]) -> Iterator[RequestProblem]:
        """Warnings about variables without an effect. ``files``: those that the DAG names."""
        contents = {file.name: file.data for file in files}
        jobs = {job.file: job.template for job in self._jobs}
        names_by_file: dict[str, set[str] | None] = {}

        def used_by(nodes: Iterable[GraphNode]) -> set[str] | None:
            """The names used in the nodes' submit files; None if not all can be read."""
            used: set[str] = set()
            for file in {node.submit for node in nodes if node.kind is not NodeKind.SUBDAG}:
                if file not in names_by_file:
                    names_by_file[file] = names_in(file)
                if (names := names_by_file[file]) is None:
                    return None
                used |= names
            return used

        def names_in(file: str) -> set[str] | None:
            if file in jobs:
                parameters = {parameter.name.lower() for parameter in jobs[file].parameters}
                return used_names(jobs[file].text) | parameters
            if file in self._descriptions:
                return used_names(self._descriptions[file].text)
            text = read_submit_text(file, contents.get(file), self._request.directory)
            return None if text is None or _INCLUDE.search(text) else used_names(text)

        nodes = {name: node for name, node in self._graph_nodes.items() if not node.noop}
        for template in self._nodes.templates:
            group = self._nodes.groups[template.generate.group]
            drafts = [node.name for run in group for node in run.nodes.values()]
            used = used_by(nodes[name] for name in drafts if name in nodes)
            if used is not None:
                yield from _swept_without_effect(template, self._nodes, self._commands, used)
        request = self._request
        asked = request.variables or request.regions
        if asked and (used := used_by(nodes.values())) is not None:
            yield from _unused_variables(request, self._commands, used)

    def named_files(self) -> Iterator[NamedFile]:
        """The files that nodes submit and run.

        Excludes descriptions in the DAG and files that metlmon writes.
        """
        excluded = {*self._descriptions, *(job.file for job in self._jobs)}
        for node in self._nodes.nodes.values():
            submit = self._graph_nodes[node.name].submit
            if not node.noop and submit not in excluded:
                yield NamedFile(submit, node.where, file_use(node.kind))
            for script in node.scripts.values():
                program = self._with_uuid(script.command).split(None, 1)[0]
                yield NamedFile(program, script.where, FileUse.SCRIPT)

    # --- commands -----------------------------------------------------------------------------

    def _add_template(self, template: RunTemplate) -> None:
        """Add the commands of a template for each of its runs."""
        for description in template.commands_of(SweepDescription):
            self._add_description(shared_description(description, template.known_names))
        for run in self._nodes.groups[template.generate.group]:
            self._add_run_edges(run)
            for command in template.commands_of(SweepNodeCommand):
                nodes: Iterable[NodeDraft] = run.resolve(command.name, command.where)
                if command.name.upper() == ALL_NODES:
                    nodes = affected_nodes(nodes, command)
                self._apply(command, nodes)
            for global_command in template.commands_of(GlobalCommand):
                self._add_global_command(global_command, run)

    def _add_description(self, command: SweepDescription) -> None:
        previous = self._descriptions.setdefault(command.name, command)
        if previous.text != command.text:
            raise PlanError(
                f"{command.where}: {shown(command.name)} is described otherwise at "
                f"{previous.where}; give one of the two another name"
            )

    def _add_line(self, line: str, run: RunDraft | None = None) -> None:
        lines = run.lines if run is not None and self._request.subdags else self._lines
        lines[line] = None

    def _add_global_command(self, command: GlobalCommand, run: RunDraft | None) -> None:
        text = command.text if run is None else run.fill(command.text, command.where)
        in_subdag = run is not None and self._request.subdags
        is_single = command.keyword in SINGLE_COMMANDS and not in_subdag
        if is_single and self._single_lines.setdefault(command.keyword, text) != text:
            assert self._request.source is not None
            raise PlanError(
                f"{command.where}: a DAG has one {command.keyword}, and this would be another "
                f"one; write it once, in {self._request.source.name}"
            )
        parse_command(text, command.where)
        self._add_line(text, run)

    def _apply_to_workflow(self, command: SweepNodeCommand) -> None:
        """Apply a command of the workflow to its nodes, or to the DAG as a whole."""
        if command.name.upper() != ALL_NODES:
            self._apply(command, self._nodes.resolve(command.name, command.where))
            return
        if command.keyword == "DONE":
            raise PlanError(f"{command.where}: ALL_NODES cannot be DONE; name the nodes")
        all_nodes = self._nodes.nodes.values()
        eligible = [node for node in all_nodes if node.kind is not NodeKind.FINAL]
        nodes = list(affected_nodes(eligible, command))
        line = f"{command.head} {ALL_NODES} {command.rest}".rstrip()
        per_node = command.keyword in PER_NODE_COMMANDS or placeholder_names(command.rest)
        if command.keyword == "RETRY":
            retry = parse_command(line, command.where)
            assert isinstance(retry, RetryCommand)
            self._retries, self._unless = retry.retries, retry.unless_exit
            for node in nodes:
                node.retries = None
        elif per_node or len(nodes) < len(eligible):
            self._apply(command, nodes)
        else:
            parse_command(line, command.where)
            self._lines[line] = None
            for run in self._nodes.runs.values():
                self._add_line(line, run)

    def _apply(self, command: SweepNodeCommand, nodes: Iterable[NodeDraft]) -> None:
        for node in nodes:
            if (line := node.apply(command)) is not None:
                self._add_line(line, node.run)

    # --- edges --------------------------------------------------------------------------------

    def _add_run_edges(self, run: RunDraft) -> None:
        """Add the edges of a run; weak ones, which a graph cannot represent, as lines."""
        edges = run.edges if self._request.subdags else self._edges
        for edge, command in run.template.edges.items():
            parent, child = (run.fill(key, command.where) for key in edge)
            for name in (parent, child) if run.template.is_outside(*edge) else ():
                node = self._nodes.nodes.get(name)
                if node is None:
                    raise self._nodes.unknown_name(name, command.where)
                if self._request.subdags and node.run is None:
                    raise PlanError(
                        f"{command.where}: {shown(name)} lies outside the run's own DAG; write "
                        "this line in the workflow, with the group in the run's place"
                    )
            if command.weak:
                self._add_line(f"WEAK PARENT {parent} CHILD {child}", run)
                continue
            self._count_edges(1, command.where)
            edges.setdefault((parent, child), command.where)

    def _add_edges(self, command: ParentChild) -> None:
        """Add the edges of a command of the workflow, or its line if it needs that."""
        nodes = self._nodes
        parents = nodes.end_nodes(command.parents, command.where, last=True)
        children = nodes.end_nodes(command.children, command.where, last=False)
        self._count_edges(len(parents) * len(children), command.where)
        if command.weak or not nodes.splices.isdisjoint((*parents, *children)):
            weak = "WEAK " if command.weak else ""
            self._add_line(f"{weak}PARENT {' '.join(parents)} CHILD {' '.join(children)}")
            return
        for parent in parents:
            for child in children:
                self._edges.setdefault((parent, child), command.where)

    def _count_edges(self, count: int, where: str) -> None:
        self._edge_count += count
        if self._edge_count > MOST_EDGES:
            raise PlanError(
                f"{where}: with this line the DAG has {self._edge_count} edges, more than the "
                f"{MOST_EDGES} it may have; put a node between: 'JOB between between.sub NOOP'"
            )

    # --- the graph ----------------------------------------------------------------------------

    def _with_uuid(self, text: str) -> str:
        """The text with the marks of uuids replaced by the uuids."""
        if "\x01" not in text:
            return text
        return MARK.sub(lambda match: self._uuids[int(match[1])], text)

    def _ordered_nodes(self) -> Iterator[GraphNode]:
        """The nodes in the file's order; a run in a sub-DAG is one node."""
        for command in self._commands:
            if isinstance(command, NodeDeclaration):
                if self._nodes.nodes[command.name].run is None:
                    yield self._graph_nodes[command.name]
            elif isinstance(command, GenCommand):
                for run in self._nodes.groups[command.group]:
                    if self._request.subdags:
                        kind, file = NodeKind.SUBDAG, self._subdag_file(run)
                        yield GraphNode(run.name, file, kind, run=run.name, where=command.where)
                    else:
                        yield from (self._graph_nodes[node.name] for node in run.nodes.values())

    def _subdag_file(self, run: RunDraft) -> str:
        return f"{self._request.name}-{run.name}.dag"

    def _graph_node(self, node: NodeDraft, chains: Mapping[str, TrainingChain]) -> GraphNode:
        request, run, fill = self._request, node.run, self._with_uuid
        name = fill(node.name)
        if run is None:
            variables = merge_variables([*request_variables(request, name), *node.variables])
        else:
            variables = chains[run.name].variables(node, gated=has_gate(request, node.role))
        scripts = {kind: fill(script.command) for kind, script in node.scripts.items()}
        options = {
            kind: fill(script.options(deferred=kind != "PRE"))
            for kind, script in node.scripts.items()
        }
        retries, unless = node.retries, node.unless
        if retries is None and request.subdags and run is None:
            # A workflow of sub-DAGs retries its own jobs, not whole runs.
            retried = self._retries and node.kind is NodeKind.JOB
            retries, unless = (self._retries, self._unless) if retried else (None, None)
        # The failure of an evaluation without dependents is ignored if metlmon chose its template.
        is_last = run is not None and node.key in run.template.lasts
        awaited = request.evaluation is not None and request.evaluation.gates
        is_evaluation = node.role is NodeRole.EVALUATE and not node.declared
        default_post = ALWAYS_SUCCEEDS if is_evaluation and is_last and not awaited else None
        submit = node.submit or next(job.file for job in self._jobs if job.role is node.role)
        graph_node = GraphNode(
            name=name,
            submit=fill(submit),
            kind=node.kind,
            role=node.role,
            run=run.name if run is not None else None,
            epoch=node.epoch if node.role in TRAINING_ROLES else None,
            variables=()
            if node.kind is NodeKind.SUBDAG
            else tuple(map(self._filled_variable, variables)),
            pre=scripts.get("PRE"),
            defer=node.scripts["PRE"].defer if "PRE" in scripts else None,
            skip_code=node.skip,
            post=scripts.get("POST", default_post),
            hold=scripts.get("HOLD"),
            options=tuple(ScriptOptions(kind, text) for kind, text in options.items() if text),
            retries=retries,
            unless_exit=unless,
            noop=node.noop,
            where=node.where,
        )
        if not has_gate(request, node.role):
            return graph_node
        self._check_gate(node, graph_node.name)
        values = {variable.name.lower(): variable.value for variable in variables}
        return with_gate(request, graph_node, fill(values.get("run_uuid", "")))

    def _filled_variable(self, variable: VariableValue) -> VariableValue:
        if "\x01" not in variable.value and not variable.hidden:
            return variable
        hidden = tuple(map(self._filled_variable, variable.hidden))
        return replace(variable, value=self._with_uuid(variable.value), hidden=hidden)

    def _check_gate(self, node: NodeDraft, name: str) -> None:
        """Raises PlanError if the node cannot have a gate."""
        if (script := node.scripts.get("PRE")) is not None:
            raise PlanError(
                f"{script.where}: {shown(name)} has a PRE script of its own, but the gate that can "
                "stop its run is one, too; take the script out, or write it without a gate"
            )
        if not (self._retries if node.retries is None else node.retries):
            raise PlanError(
                f"{node.where}: {shown(name)} is not tried again, which a run that can be stopped "
                "must be; give it a RETRY of 1 or more, or write it without a gate"
            )

    def _check_uuids(self) -> None:
        """Raises PlanError if two runs share a uuid, and so an output directory."""
        runs: dict[str, str] = {}
        for node in self._graph_nodes.values():
            for variable in node.variables if node.run is not None else ():
                if variable.name.lower() != "run_uuid":
                    continue
                other = runs.setdefault(variable.value, node.run or "")
                if other != node.run:
                    raise PlanError(
                        f"{variable.where}: {node.run} and {other} have the same run_uuid; put "
                        "{uuid} or {run} into it, or leave it to metlmon"
                    )


# --- variables without an effect ----------------------------------------------------------------


def _swept_without_effect(
    template: RunTemplate, nodes: SweepNodes, commands: Sequence[SweepCommand], used: set[str]
) -> Iterator[RequestProblem]:
    """Warnings about variables of a GEN command without an effect.

    VARS alone change nothing: a submit file must use $(name), or its template have a parameter of
    that name, or the variable belong to HTCondor or be a job attribute. Undecidable cases are not
    reported. ``commands``: of the workflow. ``used``: the names in the submit files of its runs.
    """
    relevant = list(template.commands)
    for command in commands:
        if isinstance(command, VarsLine | SweepNodeCommand):
            members = nodes.resolve(command.name, command.where)
            if any(node.run is not None and node.run.template is template for node in members):
                relevant.append(command)
    pairs = [pair for each in relevant if isinstance(each, VarsLine) for pair in each.pairs]
    used = used.union(*(used_names(text) for _, text in pairs))
    # Placeholders in names, scripts and other commands than VARS.
    others = [command.text for command in relevant if not isinstance(command, VarsLine)]
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


def _unused_variables(
    request: Request, commands: Sequence[SweepCommand], used: set[str]
) -> Iterator[RequestProblem]:
    """Warnings about variables of the request that no node uses.

    ``commands``: of the workflow. ``used``: the names used by the submit files of all nodes.
    """
    assigned = [("variables", name, "") for name in request.variables]
    for region in request.regions:
        prefix = f"{region.where}: " if region.where else ""
        assigned += [("regions", name, prefix) for name in region.variables]
    lines = (command for command in commands if isinstance(command, VarsLine))
    used = used.union(*(used_names(text) for line in lines for _, text in line.pairs))
    for field, name, prefix in assigned:
        if not has_effect(name, used):
            text = f"no template has a parameter {name!r} and no submit file says $({name})"
            consequence = "so it has no effect; correct the name"
            yield RequestProblem(field, f"{prefix}{text}, {consequence}", fatal=False)


# --- the training chain of a run ---------------------------------------------------------------


_UUID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class TrainingChain:
    """One run: its epochs, its uuid, the variables of its nodes.

    A swept DAG uses the same submit templates as any other, and is monitored as runs. Variables
    are added only where the sweep file does not set them. An evaluation belongs to the training
    before it by PARENT … CHILD, not by its number: in METL's experiment eval_epoch1 follows
    train_epoch0.
    """

    def __init__(self, request: Request, jobs: Sequence[JobTemplate], run: RunDraft) -> None:
        self._request = request
        self._run = run
        self._epochs_before: dict[str, int | None] = {}
        self._find_epochs()
        trains = [node for node in run.nodes.values() if node.role is NodeRole.TRAIN]
        # Two nodes that train the same epoch would overwrite each other's checkpoints.
        nodes: dict[tuple[str | None, int | None], NodeDraft] = {}
        for node in trains:
            previous = nodes.setdefault((self._value_of(node, "run_uuid"), node.epoch), node)
            if previous is not node:
                raise PlanError(
                    f"{node.where}: {shown(node.key)} trains the same epoch of a run as "
                    f"{shown(previous.key)} ({previous.where}); give one of them another epoch "
                    "(from 1) or a run_uuid of its own in VARS"
                )
        trains.sort(key=lambda node: node.epoch or 0)
        self._epochs = max((node.epoch or 0) + 1 for node in trains) if trains else 0
        chain = replace(request, shape=EnsembleShape.CHAIN, epochs=len(trains))
        self._targets = dict(
            zip((node.epoch for node in trains), target_sites(chain, run.index), strict=True)
        )
        self.uuid = self._make_uuid(jobs, trains)

    # --- epochs -------------------------------------------------------------------------------

    def _find_epochs(self) -> None:
        """Set the epochs, from 0: by VAR epoch (from 1), or by the name's number."""
        run = self._run
        for key in run.template.order:
            node = run.nodes[key]
            parents = [run.nodes[parent] for parent in run.template.parents[key]]
            # The last epoch trained once each parent has ended.
            epochs = (
                parent.epoch if parent.role is NodeRole.TRAIN else self._epochs_before[parent.key]
                for parent in parents
            )
            latest = max((epoch for epoch in epochs if epoch is not None), default=None)
            self._epochs_before[key] = latest
            if node.role not in TRAINING_ROLES:
                continue
            text = self._value_of(node, "epoch")
            if text is not None and _NUMBER.fullmatch(text) and int(text):
                node.epoch = int(text) - 1
            elif node.role is NodeRole.EVALUATE:
                if latest is None:
                    raise PlanError(
                        f"{node.where}: {shown(key)} evaluates, but no training comes before it; "
                        f"write 'PARENT {{run}}-train_epoch0 CHILD {shown(key)}', or its epoch in "
                        "VARS"
                    )
                node.epoch = latest

    def _value_of(self, node: NodeDraft, name: str) -> str | None:
        """The value that the sweep file sets for a variable, or None."""
        assignments = [variable for variable in node.variables if variable.name.lower() == name]
        effective = merge_variables(assignments)
        return effective[0].value if effective else None

    # --- the uuid -----------------------------------------------------------------------------

    def _make_uuid(self, jobs: Sequence[JobTemplate], trains: Sequence[NodeDraft]) -> str:
        """The uuid, derived from everything that determines the model.

        These are its swept values and its nodes' variables, except where they run.
        """
        run, request = self._run, self._request
        chain = replace(request, shape=EnsembleShape.CHAIN, epochs=self._epochs)
        node_variables = [
            sorted(
                (variable.name, variable.value.replace(run.values["uuid"], "{uuid}"))
                for variable in merge_variables(node.variables)
                if variable.name.lower() not in LOCATION_VARIABLES
            )
            for node in trains
        ]
        definition = [*uuid_inputs(chain, jobs), ["sweep", sorted(run.point.items())]]
        return run_uuid([run.name, run.seed, *definition, ["told", node_variables]])

    # --- variables ----------------------------------------------------------------------------

    def variables(self, node: NodeDraft, *, gated: bool) -> tuple[VariableValue, ...]:
        """All variables of the node, in the standard order."""
        requested = request_variables(self._request, node.name, self._run.name, node.epoch)
        assigned = merge_variables([*requested, *node.variables])
        if node.role not in TRAINING_ROLES:
            return assigned
        by_name = {variable.name.lower(): variable for variable in assigned}
        site = by_name.get(SITE_VARIABLE.lower())
        if site is not None and set(site.value) & {'"', "\\"}:
            # It would end its string in the submit file.
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

    def _node_uuid(self, assigned: VariableValue | None, node: NodeDraft) -> str:
        """The node's uuid. Raises PlanError if it cannot be a file name."""
        if assigned is None:
            return self.uuid
        value = assigned.value.replace(self._run.values["uuid"], self.uuid)
        if not _UUID.fullmatch(value):
            raise PlanError(
                f"{assigned.where}: run_uuid of {shown(node.name)} names directories and files; "
                "use letters, digits, '-', '_' and '.', 100 at most, or leave it to metlmon"
            )
        return value

    def _added_variables(self, node: NodeDraft, uuid: str) -> list[VariableValue]:
        """The variables that metlmon adds."""
        run, request = self._run, self._request
        assert node.epoch is not None
        plan = RunPlan(run.name, uuid, run.seed, (), gpu=gpu_model(request, run.index))
        source = "metlmon: that of the training before it"
        if node.role is NodeRole.TRAIN:
            source = "metlmon: epochs count from 1"
        variables = [
            *run_variables(request, plan),
            VariableValue("epoch", str(node.epoch + 1), Precedence.NODE, source),
        ]
        if self._epochs:
            source = "metlmon: the last epoch of the run"
            variables.append(VariableValue("epochs", str(self._epochs), Precedence.RUN, source))
        if (target := self._targets.get(node.epoch)) is not None:
            variables.append(
                VariableValue(
                    SITE_VARIABLE, target, Precedence.ALL, f"the policy: {request.policy}"
                )
            )
        if self._epochs_before[node.key] is not None:
            variables.append(checkpoint_variable(uuid))
        return variables
