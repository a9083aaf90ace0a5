"""Builds the nodes of a sweep file: those of every run, and the workflow's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from metlmon.authoring.graph import MOST_NODES, NodeRole
from metlmon.authoring.request import PlanError, Request
from metlmon.authoring.sweeps.commands import (
    GenCommand,
    NodeDeclaration,
    RegionCommand,
    Splice,
    SweepCommand,
)
from metlmon.authoring.sweeps.names import SweepNames
from metlmon.authoring.sweeps.node_drafts import NodeDraft, RunDraft, check_file, check_name
from metlmon.authoring.sweeps.parser import SweepFiles
from metlmon.authoring.sweeps.template import (
    RunTemplate,
    read_template,
    run_fillings,
    sweep_request,
)
from metlmon.authoring.sweeps.training_chain import find_role
from metlmon.authoring.sweeps.values import points
from metlmon.dagman import NodeKind
from metlmon.dagman.lexer import shown

_ROLES = {
    NodeKind.PROVISIONER: NodeRole.PROVISION,
    NodeKind.SERVICE: NodeRole.SERVE,
    NodeKind.FINAL: NodeRole.FINISH,
}
_SINGLE_KINDS = frozenset({NodeKind.FINAL, NodeKind.PROVISIONER})
"""Kinds of which a DAG has at most one node."""


class NodeBuilder:
    """Builds the nodes of a file.

    ``templates``: those of the GEN commands, in file order.
    """

    def __init__(
        self, request: Request, commands: Sequence[SweepCommand], sweep_files: SweepFiles
    ) -> None:
        self.names = SweepNames()
        self.templates: list[RunTemplate] = []
        self._request = request
        self._commands = commands
        self._points: list[tuple[Mapping[str, str], ...]] = []
        self._singles: dict[NodeKind, str] = {}
        self._read_templates(sweep_files)
        self._build()

    def _read_templates(self, sweep_files: SweepFiles) -> None:
        """Read the templates, and check the number of nodes before any is built."""
        total = sum(isinstance(command, NodeDeclaration) for command in self._commands)
        for command in self._commands:
            if not isinstance(command, GenCommand):
                continue
            run_points = points(sweep_request(command))
            template = read_template(command, sweep_files.commands(command.template, command.where))
            total += len(run_points) * len(template.parts)
            if total > MOST_NODES:
                raise PlanError(
                    f"{command.where}: {len(run_points)} runs of {len(template.parts)} nodes: with "
                    f"them the DAG has {total} nodes, more than the {MOST_NODES} it may have; make "
                    "several DAGs"
                )
            self.templates.append(template)
            self._points.append(run_points)
        runs = sum(map(len, self._points))
        if len(self._request.seeds) not in (0, 1, runs):
            raise PlanError(
                f"{len(self._request.seeds)} seeds for {runs} runs; give one for all, or one for "
                "each, or sweep random_seed in the GEN line"
            )

    def _build(self) -> None:
        names = self.names
        runs = iter(zip(self.templates, self._points, strict=True))
        for command in self._commands:
            if isinstance(command, GenCommand):
                self._build_runs(command, *next(runs))
            elif isinstance(command, RegionCommand):
                names.reserve(command.name, "a region", command.where)
            elif isinstance(command, Splice):
                names.reserve(command.name, "a splice", command.where)
                names.splices.add(command.name)
        for command in self._commands:
            if isinstance(command, NodeDeclaration):
                self._declare(command)
        for command in self._commands:
            if isinstance(command, RegionCommand):
                names.add_region(command)

    def _build_runs(
        self, gen: GenCommand, template: RunTemplate, run_points: Sequence[Mapping[str, str]]
    ) -> None:
        names = self.names
        names.reserve(gen.group, "a group", gen.where)
        first_index = len(names.runs)
        marks = [f"\x01{first_index + index}\x02" for index in range(len(run_points))]
        group = names.groups[gen.group] = []
        all_values = run_fillings(gen, run_points, marks)
        for index, (point, values) in enumerate(
            zip(run_points, all_values, strict=True), start=first_index
        ):
            run = RunDraft(
                name=values["run"], index=index, template=template, point=point, filling=values
            )
            run.seed = self._seed(index)
            names.reserve(run.name, f"a run of {gen.group}", gen.where)
            names.runs[run.name] = run
            group.append(run)
            self._build_nodes(run)

    def _seed(self, index: int) -> int:
        seeds = self._request.seeds
        return seeds[index % len(seeds)] if seeds else index + 1

    def _build_nodes(self, run: RunDraft) -> None:
        for template_node in run.template.parts:
            name = template_node.name.fill(run.filling)
            check_name(name, template_node.where)
            node = NodeDraft(
                name, NodeKind.JOB, template_node.where, run=run, key=template_node.key
            )
            if template_node.declared is not None and template_node.submit is not None:
                self._apply_declaration(
                    node, template_node.declared, template_node.submit.fill(run.filling)
                )
                if node.kind in _SINGLE_KINDS and not self._request.subdags:
                    raise PlanError(
                        f"{template_node.where}: a DAG has one {node.kind.name} node, and each run "
                        "would bring one; declare it in the workflow, or make each run a sub-DAG"
                    )
            find_role(node)
            self.names.add(node, f"a node of {run.template.generate.group}")
            run.nodes[template_node.key] = node

    def _declare(self, command: NodeDeclaration) -> None:
        """Declare a node of the workflow, or the job of a run's node."""
        node = self.names.nodes.get(command.name)
        if node is None:
            check_name(command.name, command.where)
            node = NodeDraft(command.name, command.kind, command.where)
            self._apply_declaration(node, command, command.submit)
            self.names.add(node, "a node")
            if node.kind in _SINGLE_KINDS:
                self._check_single(node)
        elif node.declared:
            raise PlanError(
                f"{command.where}: {shown(node.name)} is declared already ({node.where}); take one "
                "of the lines out"
            )
        elif command.kind not in (NodeKind.JOB, NodeKind.SUBDAG):
            raise PlanError(
                f"{command.where}: {shown(node.name)} is a node of the run {_run_name(node)}; "
                "declare it with JOB"
            )
        else:
            self._apply_declaration(node, command, command.submit)

    def _check_single(self, node: NodeDraft) -> None:
        """Raises PlanError if the DAG has another node of this kind."""
        previous = self._singles.setdefault(node.kind, node.where)
        if previous != node.where:
            raise PlanError(
                f"{node.where}: a DAG has one {node.kind.name} node, and there is one already "
                f"({previous}); take one of the lines out"
            )

    def _apply_declaration(self, node: NodeDraft, declared: NodeDeclaration, submit: str) -> None:
        """Apply a declaration to a node."""
        check_file(submit, declared.where)
        node.kind, node.submit, node.where = declared.kind, submit, declared.where
        node.declared, node.noop, node.done = True, declared.noop, declared.done
        node.role = _ROLES.get(node.kind, node.role)


def _run_name(node: NodeDraft) -> str:
    """The name of the node's run."""
    return node.run.name if node.run is not None else ""


def find_undeclared(nodes: Iterable[NodeDraft]) -> PlanError | None:
    """The error for a run's node without a job, or None if all nodes have one."""
    for node in nodes:
        if not node.declared and node.role is NodeRole.PLAIN:
            return PlanError(
                f"{node.where}: {shown(node.key)} is named, but no line says what it runs, and its "
                "name is not one of a node that trains (…train_epoch0) or evaluates "
                f"(…eval_epoch1); add 'JOB {shown(node.key)} file.sub'"
            )
    return None
