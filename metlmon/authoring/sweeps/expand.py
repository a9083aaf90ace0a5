"""A sweep file → the graph that it asks for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from metlmon.authoring.build_graph import ALWAYS, run_plans
from metlmon.authoring.gate_config import gated, is_gated
from metlmon.authoring.graph import Graph, GraphNode, NodeRole, VariableValue
from metlmon.authoring.jobs import jobs_of
from metlmon.authoring.request import PlanError, Request, RequestProblem
from metlmon.authoring.sweeps import kept_sweep
from metlmon.authoring.sweeps.commands import (
    Declare,
    Describe,
    Generate,
    GlobalCommand,
    ParentChild,
    Splice,
    SweepCommand,
    SweepNodeCommand,
)
from metlmon.authoring.sweeps.dependencies import DependencyBuilder, refuse_circles
from metlmon.authoring.sweeps.files import FileUse, NamedFile, files_named, text_of, use_of
from metlmon.authoring.sweeps.node_drafts import (
    NodeDraft,
    RunDraft,
    check_line,
    of_all,
    rendered,
    say_of,
    times,
)
from metlmon.authoring.sweeps.node_variables import VarsAssigner
from metlmon.authoring.sweeps.nodes import NodeBuilder, undeclared
from metlmon.authoring.sweeps.parser import SweepFiles
from metlmon.authoring.sweeps.placeholders import has_places
from metlmon.authoring.sweeps.points import put_together
from metlmon.authoring.sweeps.result import Expansion, Group, Referenced
from metlmon.authoring.sweeps.template import RunTemplate, known_names, shared
from metlmon.authoring.sweeps.training_chain import TRAINS, TrainingChain
from metlmon.authoring.sweeps.unused import VariableEffects
from metlmon.authoring.variables import NodePosition, described, merged
from metlmon.dagman import NodeKind
from metlmon.dagman.commands import ALL_NODES
from metlmon.dagman.lexer import shown

ONCE: Final = frozenset({"NODE_STATUS_FILE", "JOBSTATE_LOG", "CONFIG"})
"""Commands of which a DAG has one."""

ONE_BY_ONE: Final = frozenset({"SCRIPT", "PRE_SKIP"})
"""Commands about ALL_NODES that a graph says of each node."""

_MARK: Final = re.compile("\x01([0-9]+)\x02")


def expand(request: Request) -> Expansion:
    """All that the sweep file of ``request.source`` asks for. Reads it, and the files beside it
    that it names. Raises PlanError, with file, line and remedy, for whatever is wrong in them."""
    assert request.source is not None
    source = request.source
    written = request.directory / f"{request.name}.dag"
    if os.path.realpath(written) == os.path.realpath(source):
        raise PlanError(
            f"{source.name} would be written over by the DAG made of it; choose another name or "
            "directory for the DAG"
        )
    shelf = SweepFiles(source.parent, kept=source.name == kept_sweep(source))
    commands = shelf.commands(source.name)
    if not any(isinstance(each, Generate) for each in commands):
        raise PlanError(
            f"{source.name}: no line of it begins with GEN SUBDAG, so nothing is swept; write "
            "'GEN SUBDAG group file.subdag a from', and the values of a on the line below"
        )
    return _Expander(request, source, commands, shelf).expansion()


class _Expander:
    def __init__(
        self, request: Request, source: Path, commands: Sequence[SweepCommand], shelf: SweepFiles
    ) -> None:
        self._request = request
        self._source = source
        self._shelf = shelf
        self._commands = commands
        self._grown = NodeBuilder(request, commands, shelf)
        self._names = self._grown.names
        self._jobs = jobs_of(request)
        self._uuids: list[str] = []
        self._lines: dict[str, None] = {}
        self._descriptions: dict[str, tuple[str, str]] = {}
        self._retries = request.retries
        self._unless: int | None = None
        self._telling = VarsAssigner(self._names, commands)
        self._once: dict[str, str] = {}

    def expansion(self) -> Expansion:
        names, subdags = self._names, self._request.subdags
        if wrong := undeclared(names.nodes.values()):
            raise wrong
        self._telling.tell()
        ordering = DependencyBuilder(names, subdags=subdags)
        templates = iter(self._grown.templates)
        for command in self._commands:
            if isinstance(command, Generate):
                self._template(next(templates), command, ordering)
            else:
                self._workflow(command, ordering)
        self._done()
        own = [node.name for node in names.nodes.values() if not subdags or node.run is None]
        runs = list(names.runs) if subdags else []
        refuse_circles([*own, *runs], ordering.edges)
        return self._finished(ordering)

    # --- lines --------------------------------------------------------------------------------

    def _template(
        self, template: RunTemplate, generate: Generate, ordering: DependencyBuilder
    ) -> None:
        for describe in template.descriptions:
            self._describe(describe)
        for run in self._names.groups[generate.group]:
            for line in ordering.of_run(run):
                self._line(line, generate.where, run)
            for saying in template.sayings:
                command = saying.fill(run.filling)
                if saying.key is not None:
                    self._say(run.nodes[saying.key], command)
                    continue
                for node in of_all(run.nodes.values(), command):
                    self._say(node, command)
            for whole, text in template.whole:
                self._whole(whole, text.fill(run.filling), run)

    def _workflow(self, command: SweepCommand, ordering: DependencyBuilder) -> None:
        match command:
            case ParentChild():
                if (line := ordering.draw(command)) is not None:
                    self._line(line, command.where)
            case SweepNodeCommand():
                self._say_all(command)
            case Describe():
                known = [known_names(each.generate) for each in self._grown.templates]
                self._describe(shared(command, frozenset().union(*known)))
            case Splice(text=text):
                self._line(text, command.where)
            case GlobalCommand(text=text):
                self._whole(command, text, None)
            case _:
                pass

    def _describe(self, command: Describe) -> None:
        other = self._descriptions.setdefault(command.name, (command.text, command.where))
        if other[0] != command.text:
            raise PlanError(
                f"{command.where}: {shown(command.name)} is described otherwise at {other[1]}; "
                "give one of the two another name"
            )

    def _line(self, line: str, where: str, run: RunDraft | None = None) -> None:
        check_line(line, where)
        if run is not None and self._request.subdags:
            run.lines[line] = None
        else:
            self._lines[line] = None

    def _whole(self, command: GlobalCommand, text: str, run: RunDraft | None) -> None:
        if command.keyword in ONCE and (run is None or not self._request.subdags):
            other = self._once.setdefault(command.keyword, text)
            if other != text:
                raise PlanError(
                    f"{command.where}: a DAG has one {command.keyword}, and this would be another "
                    f"one; write it once, in {self._source.name}"
                )
        self._line(text, command.where, run)

    def _say_all(self, command: SweepNodeCommand) -> None:
        if command.name.upper() != ALL_NODES:
            for node in self._names.meant(command.name, command.where):
                self._say(node, self._filled(node, command))
            return
        if command.keyword == "DONE":
            raise PlanError(f"{command.where}: ALL_NODES cannot be DONE; name the nodes")
        every = [n for n in self._names.nodes.values() if n.kind is not NodeKind.FINAL]
        nodes = list(of_all(every, command))
        if command.keyword == "RETRY":
            rendered(command, ALL_NODES)
            self._retries, self._unless = times(command.rest.split())
            for node in nodes:
                node.retries = None
        elif command.keyword in ONE_BY_ONE or has_places(command.rest) or len(nodes) < len(every):
            for node in nodes:
                self._say(node, self._filled(node, command))
        else:
            self._line_of_all(rendered(command, ALL_NODES))

    def _line_of_all(self, line: str) -> None:
        self._lines[line] = None
        if self._request.subdags:
            for run in self._names.runs.values():
                run.lines[line] = None

    def _filled(self, node: NodeDraft, command: SweepNodeCommand) -> SweepNodeCommand:
        """The command with what stands in braces, as VARS have it."""
        fill = self._telling.fill
        head, rest = (fill(node, raw, command.where) for raw in (command.head, command.rest))
        return replace(command, head=head, rest=rest)

    def _say(self, node: NodeDraft, command: SweepNodeCommand) -> None:
        if (line := say_of(node, command)) is not None:
            self._line(line, command.where, node.run)

    def _done(self) -> None:
        for node in self._names.nodes.values():
            if node.done:
                self._line(f"DONE {node.name}", node.where, node.run)

    # --- the graph ----------------------------------------------------------------------------

    def _finished(self, ordering: DependencyBuilder) -> Expansion:
        names, request = self._names, self._request
        trainings = {
            run.name: TrainingChain(request, self._jobs, run) for run in names.runs.values()
        }
        self._uuids = [training.uuid for training in trainings.values()]
        nodes = {node.name: self._node(node, trainings) for node in names.nodes.values()}
        _refuse_shared_uuids(nodes.values())
        descriptions = tuple(text for text, _ in self._descriptions.values())
        lines = (*descriptions, *self._known(self._lines))
        edges = self._known_edges(ordering.edges)
        ordered = tuple(self._in_order(nodes))
        if request.subdags:
            subdags = self._subdags(nodes, descriptions)
            graph = Graph(ordered, edges, lines=lines, subdags=subdags)
        else:
            graph = Graph(ordered, edges, self._retries, lines, self._unless)
        files = files_named(self._source, self._commands, self._named(nodes))
        return Expansion(
            graph=graph,
            runs=run_plans(graph),
            values=tuple(run.point for run in names.runs.values()),
            groups=tuple(self._groups()),
            files=files,
            sources=tuple(self._shelf.read.items()),
            warnings=tuple(self._warnings(nodes, files)),
        )

    def _warnings(
        self, nodes: Mapping[str, GraphNode], files: Sequence[Referenced]
    ) -> Iterator[RequestProblem]:
        known = {file.name: file.data for file in files}

        def read(name: str) -> str | None:
            if name in self._descriptions:
                return self._descriptions[name][0]
            return text_of(name, known.get(name), self._request.directory)

        effects = VariableEffects(self._jobs, self._names, nodes, self._commands, read)
        for template in self._grown.templates:
            yield from effects.idle(template)
        yield from effects.unused(self._request)

    def _named(self, nodes: Mapping[str, GraphNode]) -> Iterator[NamedFile]:
        """What nodes submit and run. Names behind JOB that are no files to look for: descriptions,
        and what is written."""
        known = {*self._descriptions, *(job.file for job in self._jobs)}
        for node in self._names.nodes.values():
            submit = nodes[node.name].submit
            if not node.noop and submit not in known:
                yield NamedFile(submit, node.where, use_of(node.kind))
            for script in node.scripts.values():
                (line,) = self._known((script.command,))
                yield NamedFile(line.split(None, 1)[0], script.where, FileUse.SCRIPT)

    def _known(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Texts with the uuids in the places of their marks."""
        return tuple(
            _MARK.sub(lambda m: self._uuids[int(m[1])], text) if "\x01" in text else text
            for text in texts
        )

    def _known_edges(self, edges: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        return tuple((parent, child) for parent, child in map(self._known, edges))

    def _in_order(self, nodes: Mapping[str, GraphNode]) -> Iterator[GraphNode]:
        """As the lines of the file that ask for them; a run is one node where it is a sub-DAG."""
        for command in self._commands:
            if isinstance(command, Declare):
                if self._names.nodes[command.name].run is None:
                    yield nodes[command.name]
            elif isinstance(command, Generate):
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
                        yield from (nodes[each.name] for each in run.nodes.values())

    def _subdag_file(self, run: RunDraft) -> str:
        return f"{self._request.name}-{run.name}.dag"

    def _subdags(
        self, nodes: Mapping[str, GraphNode], descriptions: tuple[str, ...]
    ) -> dict[str, Graph]:
        return {
            self._subdag_file(run): Graph(
                tuple(nodes[each.name] for each in run.nodes.values()),
                self._known_edges(run.edges),
                self._retries,
                (*descriptions, *self._known(run.lines)),
                self._unless,
            )
            for run in self._names.runs.values()
        }

    def _groups(self) -> Iterator[Group]:
        for template in self._grown.templates:
            generate = template.generate
            sweep = template.sweep
            yield Group(
                name=generate.group,
                template=generate.template,
                runs=len(self._names.groups[generate.group]),
                nodes=len(template.parts),
                counts={
                    name: len(v)
                    for name, (_, v) in zip(generate.names, generate.lines, strict=True)
                },
                how=put_together(sweep),
                where=generate.where,
            )

    # --- one node -----------------------------------------------------------------------------

    def _node(self, node: NodeDraft, trainings: Mapping[str, TrainingChain]) -> GraphNode:
        request, run = self._request, node.run
        (name,) = self._known((node.name,))
        if run is None:
            place = NodePosition(name, role=node.role)
            told = merged([*described(request, place), *node.given])
            uuid = ""
        else:
            training = trainings[run.name]
            told = training.variables(node, gated=is_gated(request, node.role))
            uuid = next((each.value for each in told if each.name.lower() == "run_uuid"), "")
        retries, unless = self._retried(node)
        scripts = {kind: self._known((s.command,))[0] for kind, s in node.scripts.items()}
        made = GraphNode(
            name=name,
            submit=self._known((node.submit or self._submit(node),))[0],
            kind=node.kind,
            role=node.role,
            run=run.name if run is not None else None,
            epoch=node.epoch if node.role in TRAINS else None,
            variables=tuple(map(self._given, told)) if node.kind is not NodeKind.SUBDAG else (),
            pre=scripts.get("PRE"),
            defer=node.scripts["PRE"].defer if "PRE" in scripts else None,
            skip=node.skip,
            post=scripts.get("POST", self._post(node)),
            hold=scripts.get("HOLD"),
            options=tuple(self._options(node)),
            retries=retries,
            unless=unless,
            noop=node.noop,
            where=node.where,
        )
        return self._gated(node, made, uuid)

    def _given(self, given: VariableValue) -> VariableValue:
        if "\x01" not in given.value and not given.over:
            return given
        over = tuple(map(self._given, given.over))
        return replace(given, value=self._known((given.value,))[0], over=over)

    def _submit(self, node: NodeDraft) -> str:
        """The template's default, for a node that says nothing of what it runs."""
        return next(job.file for job in self._jobs if job.role is node.role)

    def _post(self, node: NodeDraft) -> str | None:
        """Nothing fails by an evaluation that nothing in its run waits for, where the file leaves
        it to metlmon what evaluates."""
        gates = self._request.evaluation is not None and self._request.evaluation.gates
        side = node.run is not None and node.key in node.run.template.lasts
        if node.role is NodeRole.EVALUATE and not node.declared and side and not gates:
            return ALWAYS
        return None

    def _options(self, node: NodeDraft) -> Iterator[tuple[str, str]]:
        for kind, script in node.scripts.items():
            if said := script.options(deferred=kind != "PRE"):
                yield kind, self._known((said,))[0]

    def _retried(self, node: NodeDraft) -> tuple[int | None, int | None]:
        """The workflow of sub-DAGs tries its own nodes again, and no whole run."""
        if node.retries is None and self._request.subdags and node.run is None:
            if self._retries and node.kind is NodeKind.JOB:
                return self._retries, self._unless
            return None, None
        return node.retries, node.unless

    def _gated(self, node: NodeDraft, made: GraphNode, uuid: str) -> GraphNode:
        if not is_gated(self._request, node.role):
            return made
        if (script := node.scripts.get("PRE")) is not None:
            raise PlanError(
                f"{script.where}: {shown(made.name)} has a PRE script of its own, but the gate "
                "that can stop its run is one, too; take the script out, or write it without a gate"
            )
        retries = self._retries if node.retries is None else node.retries
        if not retries:
            raise PlanError(
                f"{node.where}: {shown(made.name)} is not tried again, which a run that can be "
                "stopped must be; give it a RETRY of 1 or more, or write it without a gate"
            )
        return gated(self._request, made, self._known((uuid,))[0])


def _refuse_shared_uuids(nodes: Iterable[GraphNode]) -> None:
    """Runs with one uuid would write into one directory."""
    runs: dict[str, str] = {}
    for node in nodes:
        given = next((each for each in node.variables if each.name.lower() == "run_uuid"), None)
        if given is None or node.run is None:
            continue
        other = runs.setdefault(given.value, node.run)
        if other != node.run:
            raise PlanError(
                f"{given.where}: {node.run} and {other} have the same run_uuid; put {{uuid}} or "
                "{run} into it, or leave it to metlmon"
            )
