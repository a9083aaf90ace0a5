"""The submit files of a graph: templates filled in with what is the same for all their nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metlmon.authoring.gate_config import HEAD
from metlmon.authoring.graph import Graph, GraphNode, VariableValue
from metlmon.authoring.jobs import JobTemplate
from metlmon.authoring.request import EnsembleShape, PlanError, Request
from metlmon.authoring.runs import epochs_of, require_gpus, requirements
from metlmon.authoring.submit_text import queues
from metlmon.authoring.templates import fill, may_be_dropped
from metlmon.dagman.submit_description import parse_description, submission


class PartlyGiven(PlanError):
    """A parameter has a value for some nodes of a submit file only, which it must have for all of
    them. ``given``: one that has it."""

    def __init__(self, given: VariableValue, sentence: str) -> None:
        super().__init__(sentence)
        self.given = given


def submit_text(request: Request, job: JobTemplate, nodes: Sequence[GraphNode]) -> str:
    """The submit file of ``nodes``. Raises PlanError for what has no value for some of them."""
    text = fill(job.template, placeholders(request, job, nodes))
    head = f"# Written for {request.name}.dag, from the template {job.template.name}.\n"
    if any(node.pre is not None for node in nodes):
        head += HEAD
    return head + text + ("" if queues(text) else "queue\n")


def placeholders(request: Request, job: JobTemplate, nodes: Sequence[GraphNode]) -> dict[str, str]:
    """What is filled in for each placeholder, the built-in ones included. A parameter that is a
    variable of these nodes comes from there; where only some have it the others get its value
    from here. Raises PartlyGiven where that cannot be."""
    told: dict[str, list[VariableValue]] = {}
    for node in nodes:
        for each in node.variables:
            told.setdefault(each.name.lower(), []).append(each)
    return {
        **{
            name: _value(job, name, value, told.get(name.lower(), []), len(nodes))
            for name, value in job.values.items()
        },
        "name": request.name,
        "epochs": str(epochs_of(request)),
        "gpus": str(request.gpus),
        "gpu_memory_mb": str(request.gpu_memory_mb or 0),
        "memory_mb": str(request.memory_mb),
        "requirements": requirements(request.sites, any(each.pre is not None for each in nodes)),
        "require_gpus": require_gpus(request),
        "machines": str(request.machines if request.shape is EnsembleShape.MULTI_NODE else 1),
        "stage_first": str(job.before),
    }


def _value(
    job: JobTemplate, name: str, value: str, told: Sequence[VariableValue], nodes: int
) -> str:
    """``told``: the variables of that name that some of the ``nodes`` have."""
    if not told:
        return value
    if len(told) == nodes:
        return f"$({name})"
    some = f"only some nodes of {job.file} have a value of {name}"
    if value.strip() in ("", "0") and name in may_be_dropped(job.template):
        raise PartlyGiven(told[0], f"{some}; give one for the others, too (values.{name})")
    if "(" in value or ")" in value:
        text = "and that of the others holds a ')' or '('; give it as a variable"
        raise PartlyGiven(told[0], f"{some}, {text}")
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
