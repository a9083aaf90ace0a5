"""The nodes of a sweep file: those of every run, and the workflow's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from metlmon.authoring.graph import NodeRole
from metlmon.authoring.request import PlanError, Request
from metlmon.authoring.sweeps.commands import Declare, Generate, RegionOf, Splice, SweepCommand
from metlmon.authoring.sweeps.names import SweepNames
from metlmon.authoring.sweeps.node_drafts import NodeDraft, RunDraft, check_file, check_name
from metlmon.authoring.sweeps.parser import SweepFiles
from metlmon.authoring.sweeps.points import points
from metlmon.authoring.sweeps.template import RunTemplate, fillings, read_template, sweep_of
from metlmon.authoring.sweeps.training_chain import find_role
from metlmon.authoring.validate_shape import MOST_NODES
from metlmon.dagman import NodeKind
from metlmon.dagman.lexer import shown

_ROLES = {
    NodeKind.PROVISIONER: NodeRole.PROVISION,
    NodeKind.SERVICE: NodeRole.SERVE,
    NodeKind.FINAL: NodeRole.FINISH,
}
_ONE = frozenset({NodeKind.FINAL, NodeKind.PROVISIONER})
"""Kinds of which a DAG has one node."""


class NodeBuilder:
    """Makes the nodes of a file; ``templates`` belong to its GEN lines, in their order."""

    def __init__(
        self, request: Request, commands: Sequence[SweepCommand], shelf: SweepFiles
    ) -> None:
        self.names = SweepNames()
        self.templates: list[RunTemplate] = []
        self._request = request
        self._commands = commands
        self._points: list[tuple[Mapping[str, str], ...]] = []
        self._one: dict[NodeKind, str] = {}
        self._read(shelf)
        self._grow()

    def _read(self, shelf: SweepFiles) -> None:
        """Counts before anything big is made."""
        total = sum(isinstance(each, Declare) for each in self._commands)
        for command in self._commands:
            if not isinstance(command, Generate):
                continue
            made = points(sweep_of(command))
            template = read_template(command, shelf.commands(command.template, command.where))
            total += len(made) * len(template.parts)
            if total > MOST_NODES:
                raise PlanError(
                    f"{command.where}: {len(made)} runs of {len(template.parts)} nodes: with them "
                    f"the DAG has {total} nodes, more than the {MOST_NODES} it may have; make "
                    "several DAGs"
                )
            self.templates.append(template)
            self._points.append(made)
        runs = sum(map(len, self._points))
        if len(self._request.seeds) not in (0, 1, runs):
            raise PlanError(
                f"{len(self._request.seeds)} seeds for {runs} runs; give one for all, or one for "
                "each, or sweep random_seed in the GEN line"
            )

    def _grow(self) -> None:
        names = self.names
        made = iter(zip(self.templates, self._points, strict=True))
        for command in self._commands:
            if isinstance(command, Generate):
                self._group(command, *next(made))
            elif isinstance(command, RegionOf):
                names.take(command.name, "a region", command.where)
            elif isinstance(command, Splice):
                names.take(command.name, "a splice", command.where)
                names.splices.add(command.name)
        for command in self._commands:
            if isinstance(command, Declare):
                self._declare(command)
        for command in self._commands:
            if isinstance(command, RegionOf):
                names.region(command)

    def _group(
        self, generate: Generate, template: RunTemplate, made: Sequence[Mapping[str, str]]
    ) -> None:
        names = self.names
        names.take(generate.group, "a group", generate.where)
        first = len(names.runs)
        marks = [f"\x01{first + index}\x02" for index in range(len(made))]
        group = names.groups[generate.group] = []
        filled = fillings(generate, made, marks)
        for index, (point, filling) in enumerate(zip(made, filled, strict=True), start=first):
            run = RunDraft(filling["run"], index, template, point, filling)
            run.seed = self._seed(index)
            names.take(run.name, f"a run of {generate.group}", generate.where)
            names.runs[run.name] = run
            group.append(run)
            self._nodes(run)

    def _seed(self, index: int) -> int:
        seeds = self._request.seeds
        return seeds[index % len(seeds)] if seeds else index + 1

    def _nodes(self, run: RunDraft) -> None:
        for part in run.template.parts:
            name = part.name.fill(run.filling)
            check_name(name, part.where)
            node = NodeDraft(name, NodeKind.JOB, part.where, run=run, key=part.key)
            if part.declared is not None and part.submit is not None:
                self._say(node, part.declared, part.submit.fill(run.filling))
                if node.kind in _ONE and not self._request.subdags:
                    raise PlanError(
                        f"{part.where}: a DAG has one {node.kind.name} node, and each run would "
                        "bring one; declare it in the workflow, or make each run a sub-DAG"
                    )
            find_role(node)
            self.names.add(node, f"a node of {run.template.generate.group}")
            run.nodes[part.key] = node

    def _declare(self, command: Declare) -> None:
        """A node of the workflow, or what a run's node submits instead of the template's job."""
        node = self.names.nodes.get(command.name)
        if node is None:
            check_name(command.name, command.where)
            node = NodeDraft(command.name, command.kind, command.where)
            self._say(node, command, command.submit)
            self.names.add(node, "a node")
            if node.kind in _ONE:
                self._only_one(node)
        elif node.declared:
            raise PlanError(
                f"{command.where}: {shown(node.name)} is declared already ({node.where}); take one "
                "of the lines out"
            )
        elif command.kind not in (NodeKind.JOB, NodeKind.SUBDAG):
            raise PlanError(
                f"{command.where}: {shown(node.name)} is a node of the run {_run(node)}; declare "
                "it with JOB"
            )
        else:
            self._say(node, command, command.submit)

    def _only_one(self, node: NodeDraft) -> None:
        other = self._one.setdefault(node.kind, node.where)
        if other != node.where:
            raise PlanError(
                f"{node.where}: a DAG has one {node.kind.name} node, and there is one already "
                f"({other}); take one of the lines out"
            )

    def _say(self, node: NodeDraft, declared: Declare, submit: str) -> None:
        check_file(submit, declared.where)
        node.kind, node.submit, node.where = declared.kind, submit, declared.where
        node.declared, node.noop, node.done = True, declared.noop, declared.done
        node.role = _ROLES.get(node.kind, node.role)


def _run(node: NodeDraft) -> str:
    return node.run.name if node.run is not None else ""


def undeclared(nodes: Iterable[NodeDraft]) -> PlanError | None:
    """What is to be said of a run's node that says not what it runs; None when all do."""
    for node in nodes:
        if not node.declared and node.role is NodeRole.PLAIN:
            return PlanError(
                f"{node.where}: {shown(node.key)} is named, but no line says what it runs, and its "
                "name is not one of a node that trains (…train_epoch0) or evaluates "
                f"(…eval_epoch1); add 'JOB {shown(node.key)} file.sub'"
            )
    return None
