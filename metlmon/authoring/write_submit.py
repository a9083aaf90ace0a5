"""Writes submit files: templates filled in with what all nodes have in common."""

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


class PartlyDefined(PlanError):
    """A parameter that must be defined for all nodes has a value for only some of them.

    ``variable``: one of its definitions.
    """

    def __init__(self, variable: VariableValue, message: str) -> None:
        super().__init__(message)
        self.variable = variable


def submit_text(request: Request, job: JobTemplate, nodes: Sequence[GraphNode]) -> str:
    """Return the submit file of ``nodes``. Raises PlanError if a value is missing."""
    text = fill(job.template, placeholders(request, job, nodes))
    head = f"# Written for {request.name}.dag, from the template {job.template.name}.\n"
    if any(node.pre is not None for node in nodes):
        head += HEAD
    return head + text + ("" if queues(text) else "queue\n")


def placeholders(request: Request, job: JobTemplate, nodes: Sequence[GraphNode]) -> dict[str, str]:
    """The value of each placeholder, including the built-in ones.

    A parameter that the nodes define as a variable becomes a macro; the value here is the default
    for nodes that do not define it. Raises PartlyDefined if a macro cannot have this default.
    """
    variables: dict[str, list[VariableValue]] = {}
    for node in nodes:
        for variable in node.variables:
            variables.setdefault(variable.name.lower(), []).append(variable)
    return {
        **{
            name: _placeholder_value(
                job=job,
                name=name,
                value=value,
                variables=variables.get(name.lower(), []),
                node_count=len(nodes),
            )
            for name, value in job.values.items()
        },
        "name": request.name,
        "epochs": str(epochs_of(request)),
        "gpus": str(request.gpus),
        "gpu_memory_mb": str(request.gpu_memory_mb or 0),
        "memory_mb": str(request.memory_mb),
        "requirements": requirements(request.sites, any(node.pre is not None for node in nodes)),
        "require_gpus": require_gpus(request),
        "machines": str(request.machines if request.shape is EnsembleShape.MULTI_NODE else 1),
        "stage_first": str(job.first_epoch),
    }


def _placeholder_value(
    job: JobTemplate, name: str, value: str, variables: Sequence[VariableValue], node_count: int
) -> str:
    """``variables``: those of this name among the ``node_count`` nodes."""
    if not variables:
        return value
    if len(variables) == node_count:
        return f"$({name})"
    problem = f"only some nodes of {job.file} have a value of {name}"
    if value.strip() in ("", "0") and name in may_be_dropped(job.template):
        raise PartlyDefined(
            variables[0], f"{problem}; give one for the others, too (values.{name})"
        )
    if "(" in value or ")" in value:
        text = "and that of the others holds a ')' or '('; give it as a variable"
        raise PartlyDefined(variables[0], f"{problem}, {text}")
    return f"$({name}:{value})"


def nodes_by_file(graph: Graph) -> Mapping[str, list[GraphNode]]:
    """The nodes of each submit file, including those of sub-DAGs."""
    result: dict[str, list[GraphNode]] = {}
    for part in (graph, *graph.subdags.values()):
        for node in part.nodes:
            result.setdefault(node.submit, []).append(node)
    return result


def procs(text: str) -> int:
    """Number of jobs per node; 1 if the text alone does not determine it."""
    return submission(parse_description(text.split("\n")), {}, {}).queue_count or 1
