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
from metlmon.authoring.request import Request, RequestProblem
from metlmon.authoring.runs import SITE_VARIABLE, is_reserved
from metlmon.authoring.sweeps.nodes import SweepNodes
from metlmon.authoring.sweeps.parser import SweepCommand, SweepNodeCommand, VarsLine
from metlmon.authoring.sweeps.template import RunTemplate, placeholder_names
from metlmon.authoring.templates import JobTemplate
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
        sweep_nodes: SweepNodes,
        nodes: Mapping[str, GraphNode],
        commands: Sequence[SweepCommand],
        read: Read,
    ) -> None:
        self._jobs = {job.file: job for job in jobs}
        self._sweep_nodes = sweep_nodes
        self._nodes = nodes
        kinds = VarsLine | SweepNodeCommand
        self._commands = [command for command in commands if isinstance(command, kinds)]
        self._read = read
        self._names_by_file: dict[str, set[str] | None] = {}

    def without_effect(self, template: RunTemplate) -> Iterator[RequestProblem]:
        """Warnings about variables of a GEN command without an effect."""
        group = self._sweep_nodes.groups[template.generate.group]
        drafts = [node for run in group for node in run.nodes.values()]
        used = self._names_used_by(self._nodes[node.name] for node in drafts)
        if used is None:
            return
        commands = list(template.commands)
        for command in self._commands:
            nodes = self._sweep_nodes.resolve(command.name, command.where)
            if any(node.run is not None and node.run.template is template for node in nodes):
                commands.append(command)
        pairs = [pair for each in commands if isinstance(each, VarsLine) for pair in each.pairs]
        for _, text in pairs:
            used |= _macros_in(text)
        # Placeholders in names, scripts and other commands than VARS.
        others = [each for each in commands if not isinstance(each, VarsLine)]
        texts = [*template.nodes, *(command.text for command in others)]
        filled_in = {name for text in texts for name in placeholder_names(text)}
        for swept in template.sweep.variables:
            placeholders = {swept.name, f"{swept.name}_label"}
            names = [name for name, text in pairs if placeholders & placeholder_names(text)]
            has_effect = any(_has_effect(name, used) for name in (swept.name, *names))
            if not has_effect and not placeholders & filled_in:
                text = (
                    f"{swept.where}: {swept.name} has no effect on the jobs: no template has a "
                    f"parameter {swept.name!r}, and no submit file says $({swept.name}); say it "
                    f"there, or give it to a parameter: VARS {{run}} parameter={{{swept.name}}}"
                )
                yield RequestProblem("source", text, fatal=False)

    def unused(self, request: Request) -> Iterator[RequestProblem]:
        """Warnings about variables of the request that no node uses."""
        assigned = [("variables", name, "") for name in request.variables]
        for region in request.regions:
            prefix = f"{region.where}: " if region.where else ""
            assigned += [("regions", name, prefix) for name in region.variables]
        used = self._names_used_by(self._nodes.values()) if assigned else None
        if used is None:
            return
        for line in self._commands:
            for _, text in line.pairs if isinstance(line, VarsLine) else ():
                used |= _macros_in(text)
        for field, name, prefix in assigned:
            if not _has_effect(name, used):
                text = f"no template has a parameter {name!r} and no submit file says $({name})"
                consequence = "so it has no effect; correct the name"
                yield RequestProblem(field, f"{prefix}{text}, {consequence}", fatal=False)

    def _names_used_by(self, nodes: Iterable[GraphNode]) -> set[str] | None:
        """The names used in the nodes' submit files; None if not all of them can be read."""
        used: set[str] = set()
        submitting = (node for node in nodes if not node.noop and node.kind is not NodeKind.SUBDAG)
        for file in {node.submit for node in submitting}:
            if file not in self._names_by_file:
                job = self._jobs.get(file)
                text = self._read(file) if job is None else job.template.text
                names = None if text is None or _INCLUDE.search(text) else _macros_in(text)
                if names is not None and job is not None:
                    names |= {parameter.name.lower() for parameter in job.template.parameters}
                self._names_by_file[file] = names
            if (names := self._names_by_file[file]) is None:
                return None
            used |= names
        return used


def _macros_in(text: str) -> set[str]:
    """The macros used in a text."""
    matches = _MACRO.finditer(_COMMENT.sub("", text))
    return {(match[1] or match[2]).lower() for match in matches}


def _has_effect(name: str, used: set[str]) -> bool:
    """Whether a variable is used, or has a meaning for HTCondor."""
    lowered = name.lower()
    if lowered.startswith(("+", "my.")) or lowered == SITE_VARIABLE.lower():
        return True
    return lowered in used or is_reserved(name)
