"""Finds swept or assigned variables without an effect on any job.

VARS alone change nothing: a submit file must use $(name), or its template have a parameter of
that name, or the variable belong to HTCondor or be a job attribute. Undecidable cases are not
reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from metlmon.authoring.graph import GraphNode
from metlmon.authoring.jobs import JobTemplate
from metlmon.authoring.request import Request, RequestProblem
from metlmon.authoring.runs import PLACE
from metlmon.authoring.sweeps.commands import SweepCommand, SweepNodeCommand, VarsLine
from metlmon.authoring.sweeps.names import SweepNames
from metlmon.authoring.sweeps.placeholders import placeholder_names
from metlmon.authoring.sweeps.template import RunTemplate
from metlmon.authoring.variables import has_meaning
from metlmon.dagman import NodeKind

_MACRO: Final = re.compile(r"(?<!\$)\$\w*\(\s*(\w+)|\bdefined\s+(\w+)", re.IGNORECASE)
_INCLUDE: Final = re.compile(r"^\s*include\b", re.IGNORECASE | re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*#.*$", re.MULTILINE)

Read = Callable[[str], str | None]
"""Returns the text of a submit file or description, or None if unavailable."""


class VariableEffects:
    """Determines which variables have an effect.

    ``nodes`` are keyed by their draft names; ``read`` returns submit files that no template
    creates.
    """

    def __init__(
        self,
        jobs: Sequence[JobTemplate],
        names: SweepNames,
        nodes: Mapping[str, GraphNode],
        commands: Sequence[SweepCommand],
        read: Read,
    ) -> None:
        self._jobs = {job.file: job for job in jobs}
        self._names = names
        self._nodes = nodes
        self._vars_lines = [command for command in commands if isinstance(command, VarsLine)]
        self._node_commands = [
            command for command in commands if isinstance(command, SweepNodeCommand)
        ]
        self._read = read
        self._names_by_file: dict[str, frozenset[str] | None] = {}

    def idle(self, template: RunTemplate) -> Iterator[RequestProblem]:
        """Warnings about variables of a GEN command without an effect."""
        group = template.generate.group
        nodes = [node for run in self._names.groups[group] for node in run.nodes.values()]
        used = self._names_used_by(self._nodes[node.name] for node in nodes)
        if used is None:
            return
        lines = self._lines_for(template, self._vars_lines)
        for text in (raw for line in lines for _, raw in line.pairs):
            used |= _macros_in(text)
        for variable in (
            variable for template_node in template.parts for variable in template_node.variables
        ):
            used |= _macros_in("".join(variable.value.parts[::2]))
        for swept in template.sweep.variables:
            placeholders = {swept.name, f"{swept.name}_label"}
            if self._is_filled_in(template, placeholders) or any(
                _has_effect(name, used)
                for name in (swept.name, *_variables_using(template, lines, placeholders))
            ):
                continue
            text = (
                f"{swept.where}: {swept.name} has no effect on the jobs: no template has a "
                f"parameter {swept.name!r}, and no submit file says $({swept.name}); say it there, "
                f"or give it to a parameter: VARS {{run}} parameter={{{swept.name}}}"
            )
            yield RequestProblem("source", text, fatal=False)

    def unused(self, request: Request) -> Iterator[RequestProblem]:
        """Warnings about variables of the request that no node uses."""
        assigned = [("variables", name, "") for name in request.variables]
        for region in request.regions:
            assigned += [("regions", name, region.where) for name in region.variables]
        used = self._names_used_by(self._nodes.values()) if assigned else None
        if used is None:
            return
        for text in (raw for line in self._vars_lines for _, raw in line.pairs):
            used |= _macros_in(text)
        for field, name, where in assigned:
            if not _has_effect(name, used):
                prefix = f"{where}: " if where else ""
                text = f"no template has a parameter {name!r} and no submit file says $({name})"
                consequence = "so it has no effect; correct the name"
                yield RequestProblem(field, f"{prefix}{text}, {consequence}", fatal=False)

    def _names_used_by(self, nodes: Iterable[GraphNode]) -> set[str] | None:
        """The names used in the nodes' submit files.

        None if not all of them can be read.
        """
        used: set[str] = set()
        for file in {node.submit for node in nodes if _submits(node)}:
            if file not in self._names_by_file:
                self._names_by_file[file] = self._names_of(file)
            names = self._names_by_file[file]
            if names is None:
                return None
            used |= names
        return used

    def _names_of(self, file: str) -> frozenset[str] | None:
        """The names used in a submit file, or None if it cannot be read."""
        job = self._jobs.get(file)
        text = job.template.text if job is not None else self._read(file)
        if text is None or _INCLUDE.search(text):
            return None
        parameters = job.template.parameters if job is not None else ()
        return frozenset({*(parameter.name.lower() for parameter in parameters), *_macros_in(text)})

    def _lines_for(self, template: RunTemplate, lines: Iterable[VarsLine]) -> list[VarsLine]:
        """The VARS commands of the workflow that apply to runs of this template."""
        return [line for line in lines if self._applies_to(template, line)]

    def _applies_to(self, template: RunTemplate, command: VarsLine | SweepNodeCommand) -> bool:
        """Whether the command applies to runs of this template."""
        nodes = self._names.resolve(command.name, command.where)
        return any(node.run is not None and node.run.template is template for node in nodes)

    def _is_filled_in(self, template: RunTemplate, placeholders: set[str]) -> bool:
        """Whether a placeholder is used in a name, script or other command."""
        texts = [
            text
            for template_node in template.parts
            for text in (template_node.name, template_node.submit)
            if text
        ]
        texts += [
            text for command in template.node_commands for text in (command.head, command.rest)
        ]
        texts += [text for _, text in template.global_commands]
        if any(not placeholders.isdisjoint(text.names) for text in texts):
            return True
        return any(
            not placeholders.isdisjoint(placeholder_names(f"{command.head} {command.rest}"))
            and self._applies_to(template, command)
            for command in self._node_commands
        )


def _submits(node: GraphNode) -> bool:
    return not node.noop and node.kind is not NodeKind.SUBDAG


def _macros_in(text: str) -> set[str]:
    """The macros used in a text."""
    matches = _MACRO.finditer(_COMMENT.sub("", text))
    return {(match[1] or match[2]).lower() for match in matches}


def _variables_using(
    template: RunTemplate, lines: Iterable[VarsLine], placeholders: set[str]
) -> Iterator[str]:
    """The variables whose values contain one of these placeholders."""
    for template_node in template.parts:
        for variable in template_node.variables:
            if not placeholders.isdisjoint(variable.value.names):
                yield variable.name
    for line in lines:
        for name, text in line.pairs:
            if not placeholders.isdisjoint(placeholder_names(text)):
                yield name


def _has_effect(name: str, used: set[str]) -> bool:
    """Whether a variable is used, or has a meaning for HTCondor."""
    lowered = name.lower()
    if lowered.startswith(("+", "my.")) or lowered == PLACE.lower():
        return True
    return lowered in used or has_meaning(name)
