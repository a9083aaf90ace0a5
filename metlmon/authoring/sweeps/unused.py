"""What is swept, or given beside a sweep file, and has no effect on any job.

VARS alone change nothing: a submit file must say $(name), or a parameter of its template have the
name, or the variable be HTCondor's or an attribute of the job. What cannot be known is not told.
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
from metlmon.authoring.sweeps.placeholders import places
from metlmon.authoring.sweeps.template import RunTemplate
from metlmon.authoring.validate_shape import TAKEN, TAKEN_BEGINNINGS
from metlmon.dagman import NodeKind

_SAID: Final = re.compile(r"(?<!\$)\$\w*\(\s*(\w+)|\bdefined\s+(\w+)", re.IGNORECASE)
_INCLUDE: Final = re.compile(r"^\s*include\b", re.IGNORECASE | re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*#.*$", re.MULTILINE)

Read = Callable[[str], str | None]
"""The text behind a name: of a submit file or description; None where it cannot be had."""


class VariableEffects:
    """``nodes`` by their names while they are made; ``read``: of submit files that no template
    makes."""

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
        self._gives = [each for each in commands if isinstance(each, VarsLine)]
        self._says = [each for each in commands if isinstance(each, SweepNodeCommand)]
        self._read = read
        self._known: dict[str, frozenset[str] | None] = {}

    def idle(self, template: RunTemplate) -> Iterator[RequestProblem]:
        """Variables of a GEN line that its runs could do without."""
        group = template.generate.group
        made = [node for run in self._names.groups[group] for node in run.nodes.values()]
        said = self._said_by(self._nodes[node.name] for node in made)
        if said is None:
            return
        gives = self._told_to(template, self._gives)
        for text in (raw for give in gives for _, raw in give.pairs):
            said |= _names_in(text)
        for gift in (gift for part in template.parts for gift in part.gifts):
            said |= _names_in("".join(gift.value.parts[::2]))
        for swept in template.sweep.variables:
            mine = {swept.name, f"{swept.name}_label"}
            if self._is_filled_in(template, mine) or any(
                _has_effect(name, said) for name in (swept.name, *_carriers(template, gives, mine))
            ):
                continue
            text = (
                f"{swept.where}: {swept.name} has no effect on the jobs: no template has a "
                f"parameter {swept.name!r}, and no submit file says $({swept.name}); say it there, "
                f"or give it to a parameter: VARS {{run}} parameter={{{swept.name}}}"
            )
            yield RequestProblem("source", text, fatal=False)

    def unused(self, request: Request) -> Iterator[RequestProblem]:
        """Variables of the request that no node has a use for."""
        given = [("variables", name, "") for name in request.variables]
        for region in request.regions:
            given += [("regions", name, region.where) for name in region.variables]
        said = self._said_by(self._nodes.values()) if given else None
        if said is None:
            return
        for text in (raw for give in self._gives for _, raw in give.pairs):
            said |= _names_in(text)
        for field, name, where in given:
            if not _has_effect(name, said):
                at = f"{where}: " if where else ""
                text = f"no template has a parameter {name!r} and no submit file says $({name})"
                why = "so it has no effect; correct the name"
                yield RequestProblem(field, f"{at}{text}, {why}", fatal=False)

    def _said_by(self, nodes: Iterable[GraphNode]) -> set[str] | None:
        """Names that what these nodes submit says; None where not all of it can be known."""
        said: set[str] = set()
        for file in {node.submit for node in nodes if _submits(node)}:
            if file not in self._known:
                self._known[file] = self._names_of(file)
            known = self._known[file]
            if known is None:
                return None
            said |= known
        return said

    def _names_of(self, file: str) -> frozenset[str] | None:
        job = self._jobs.get(file)
        text = job.template.text if job is not None else self._read(file)
        if text is None or _INCLUDE.search(text):
            return None
        parameters = job.template.parameters if job is not None else ()
        return frozenset({*(each.name.lower() for each in parameters), *_names_in(text)})

    def _told_to(self, template: RunTemplate, gives: Iterable[VarsLine]) -> list[VarsLine]:
        """Lines of the workflow that give something to runs of this template."""
        return [give for give in gives if self._is_about(template, give)]

    def _is_about(self, template: RunTemplate, command: VarsLine | SweepNodeCommand) -> bool:
        meant = self._names.meant(command.name, command.where)
        return any(node.run is not None and node.run.template is template for node in meant)

    def _is_filled_in(self, template: RunTemplate, mine: set[str]) -> bool:
        """Whether one of these names stands where it is more than a variable: in what a script is
        told, a name of a file or node, or another command."""
        texts = [text for part in template.parts for text in (part.name, part.submit) if text]
        texts += [text for each in template.sayings for text in (each.head, each.rest)]
        texts += [text for _, text in template.whole]
        if any(not mine.isdisjoint(text.names) for text in texts):
            return True
        return any(
            not mine.isdisjoint(places(f"{say.head} {say.rest}")) and self._is_about(template, say)
            for say in self._says
        )


def _submits(node: GraphNode) -> bool:
    return not node.noop and node.kind is not NodeKind.SUBDAG


def _names_in(text: str) -> set[str]:
    found = _SAID.finditer(_COMMENT.sub("", text))
    return {(match[1] or match[2]).lower() for match in found}


def _carriers(template: RunTemplate, gives: Iterable[VarsLine], mine: set[str]) -> Iterator[str]:
    """Variables whose values hold one of these names."""
    for part in template.parts:
        for gift in part.gifts:
            if not mine.isdisjoint(gift.value.names):
                yield gift.name
    for give in gives:
        for name, raw in give.pairs:
            if not mine.isdisjoint(places(raw)):
                yield name


def _has_effect(name: str, said: set[str]) -> bool:
    lowered = name.lower()
    if lowered.startswith(("+", "my.")) or lowered == PLACE.lower():
        return True
    return lowered in said or lowered in TAKEN or lowered.startswith(TAKEN_BEGINNINGS)
