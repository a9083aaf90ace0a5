"""The submit files of a graph: templates filled in with what is the same for all their nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from metlmon.authoring.gating import HEAD
from metlmon.authoring.graph import Graph, GraphNode
from metlmon.authoring.jobs import Job
from metlmon.authoring.records import PlanError, Request, Shape
from metlmon.authoring.runs import epochs_of, require_gpus, requirements
from metlmon.authoring.submittext import queues
from metlmon.authoring.templates import fill, may_be_dropped
from metlmon.dagman.submit import parse_description, submission


def submit_text(request: Request, job: Job, nodes: Sequence[GraphNode]) -> str:
    """The submit file of ``nodes``. Raises PlanError for what has no value for some of them."""
    text = fill(job.template, placeholders(request, job, nodes))
    head = f"# Written for {request.name}.dag, from the template {job.template.name}.\n"
    if any(node.pre is not None for node in nodes):
        head += HEAD
    return head + text + ("" if queues(text) else "queue\n")


def placeholders(request: Request, job: Job, nodes: Sequence[GraphNode]) -> dict[str, str]:
    """What is filled in for each placeholder, the built-in ones included. A parameter that is a
    variable of these nodes comes from there; where only some have it the others get its value
    from here."""
    told = Counter(each.name.lower() for node in nodes for each in node.variables)
    return {
        **{
            name: _value(job, name, value, told[name.lower()], len(nodes))
            for name, value in job.values.items()
        },
        "name": request.name,
        "epochs": str(epochs_of(request)),
        "gpus": str(request.gpus),
        "gpu_memory_mb": str(request.gpu_memory_mb or 0),
        "memory_mb": str(request.memory_mb),
        "requirements": requirements(request.sites, any(each.pre is not None for each in nodes)),
        "require_gpus": require_gpus(request),
        "machines": str(request.machines if request.shape is Shape.MULTI_NODE else 1),
        "stage_first": str(job.before),
    }


def _value(job: Job, name: str, value: str, told: int, nodes: int) -> str:
    """``told``: how many of the ``nodes`` have a variable of that name."""
    if not told:
        return value
    if told == nodes:
        return f"$({name})"
    if value.strip() in ("", "0") and name in may_be_dropped(job.template):
        text = f"only some nodes of {job.file} have a value of {name}; give one for the others, too"
        raise PlanError(f"values.{name}: {text}")
    if "(" in value or ")" in value:
        text = f"only some nodes of {job.file} have a value of their own, and that of the others"
        raise PlanError(f"values.{name}: {text} holds a ')' or '('; give it as a variable")
    return f"$({name}:{value})"


def nodes_by_file(graph: Graph) -> Mapping[str, list[GraphNode]]:
    """The nodes of each submit file, those of sub-DAGs too."""
    found: dict[str, list[GraphNode]] = {}
    for each in (graph, *graph.subdags.values()):
        for node in each.nodes:
            found.setdefault(node.submit, []).append(node)
    return found


def procs(submit: str) -> int:
    """Jobs that one node makes; 1 where the text alone cannot tell."""
    return submission(parse_description(submit.split("\n")), {}, {}).queue_count or 1
