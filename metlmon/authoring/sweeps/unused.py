"""Finds swept or assigned variables without an effect on any job.

VARS alone change nothing: a submit file must use $(name), or its template have a parameter of
that name, or the variable belong to HTCondor or be a job attribute. Undecidable cases are not
reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from metlmon.authoring.request import Request, RequestProblem
from metlmon.authoring.runs import has_effect, used_names
from metlmon.authoring.sweeps.nodes import SweepNodes
from metlmon.authoring.sweeps.parser import SweepCommand, SweepNodeCommand, VarsLine
from metlmon.authoring.sweeps.template import RunTemplate, placeholder_names


def swept_without_effect(
    template: RunTemplate, nodes: SweepNodes, commands: Sequence[SweepCommand], used: set[str]
) -> Iterator[RequestProblem]:
    """Warnings about variables of a GEN command without an effect.

    ``commands``: of the workflow. ``used``: the names used by the submit files of its runs.
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


def unused_variables(
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
