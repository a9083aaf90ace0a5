"""Assigns the variables of a sweep file to the nodes, with their positions."""

from __future__ import annotations

from collections.abc import Sequence

from metlmon.authoring.graph import Precedence, VariableValue
from metlmon.authoring.sweeps.commands import SweepCommand, VarsLine
from metlmon.authoring.sweeps.names import SweepNames
from metlmon.authoring.sweeps.node_drafts import NodeDraft
from metlmon.authoring.sweeps.placeholders import PlaceholderText, parse_placeholders
from metlmon.authoring.sweeps.template import known_names
from metlmon.authoring.sweeps.training_chain import TRAINING_ROLES
from metlmon.dagman import NodeKind
from metlmon.dagman.commands import ALL_NODES


class VarsAssigner:
    """Assigns variables to nodes, from the widest to the narrowest scope.

    Within one scope the last assignment wins.
    """

    def __init__(self, names: SweepNames, commands: Sequence[SweepCommand]) -> None:
        self._names = names
        self._vars_lines = [command for command in commands if isinstance(command, VarsLine)]
        self._texts: dict[tuple[int, str], PlaceholderText] = {}

    def assign(self) -> None:
        """Fill in ``variables`` of every node. Raises PlanError."""
        self._assign_swept()
        self._assign_lines(self._lines_for(ALL_NODES))
        self._assign_template_vars()
        names = self._names
        for scope in (names.regions, names.groups, names.runs):
            self._assign_lines([line for line in self._vars_lines if line.name in scope])
        wide_names = {ALL_NODES, *names.regions, *names.groups, *names.runs}
        self._assign_lines(
            [
                line
                for line in self._vars_lines
                if line.name not in wide_names and not _is_all(line.name)
            ]
        )

    def _lines_for(self, name: str) -> list[VarsLine]:
        return [line for line in self._vars_lines if line.name.upper() == name]

    def _assign_swept(self) -> None:
        """Assign the swept values to training and evaluation nodes."""
        for run in self._names.runs.values():
            where = {variable.name: variable.where for variable in run.template.sweep.variables}
            variables = [
                VariableValue(name, value, Precedence.RUN, where[name])
                for name, value in run.point.items()
            ]
            for node in run.nodes.values():
                if node.role in TRAINING_ROLES:
                    node.variables += variables

    def _assign_template_vars(self) -> None:
        """Assign the variables of the templates."""
        for run in self._names.runs.values():
            for template_node in run.template.parts:
                node = run.nodes[template_node.key]
                for variable in template_node.variables:
                    value = variable.value.fill(run.filling)
                    assigned = VariableValue(
                        variable.name, value, variable.level, variable.where, append=variable.append
                    )
                    node.variables.append(assigned)

    def _assign_lines(self, lines: Sequence[VarsLine]) -> None:
        """Assign the variables of these VARS commands of the workflow."""
        for line in lines:
            level = self._precedence(line.name)
            for node in self._names.resolve(line.name, line.where):
                if level is Precedence.ALL and node.kind is NodeKind.FINAL:
                    continue
                pairs = [(name, self.fill(node, text, line.where)) for name, text in line.pairs]
                node.variables += [
                    VariableValue(name, value, level, line.where, append=line.append)
                    for name, value in pairs
                ]

    def _precedence(self, name: str) -> Precedence:
        if _is_all(name):
            return Precedence.ALL
        if name in self._names.regions:
            return Precedence.REGION
        return (
            Precedence.RUN
            if name in self._names.groups or name in self._names.runs
            else Precedence.NODE
        )

    def fill(self, node: NodeDraft, text: str, where: str) -> str:
        """A text of the workflow with placeholders filled in for the node's run.

        Raises PlanError if there is no such placeholder.
        """
        if "{" not in text:
            return text
        if node.run is None:
            return parse_placeholders(text, (), where).fill({})
        template = node.run.template
        key = (id(template), text)
        if key not in self._texts:
            self._texts[key] = parse_placeholders(text, known_names(template.generate), where)
        return self._texts[key].fill(node.run.filling)


def _is_all(name: str) -> bool:
    return name.upper() == ALL_NODES
