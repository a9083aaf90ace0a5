"""Builds the graph of a request: nodes, variables and edges, for every shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from metlmon.authoring.gate_config import gate_variables, has_gate, with_gate
from metlmon.authoring.graph import (
    ALWAYS_SUCCEEDS,
    Graph,
    GraphNode,
    NodeRole,
    Precedence,
    VariableValue,
)
from metlmon.authoring.request import EnsembleShape, Policy, Request, RunPlan
from metlmon.authoring.runs import (
    ANYWHERE,
    SITE_VARIABLE,
    SweptRun,
    epochs_of,
    gpu_model,
    runs_of,
    target_sites,
)
from metlmon.authoring.templates import GATHER, PROVISION, JobTemplate, jobs_of
from metlmon.authoring.variables import (
    DESCRIPTION,
    VARIABLE_ORDER,
    NodePosition,
    checkpoint_variable,
    gpu_variables,
    merge_variables,
    request_variables,
    run_variables,
)
from metlmon.dagman import NodeKind

FEWEST_DIGITS: Final = 3
"""Minimum digits of a shard's number, so that node names look alike in bags of all sizes."""


def build_graph(request: Request, jobs: Sequence[JobTemplate] | None = None) -> Graph:
    """Return the graph of a request without a sweep file.

    ``jobs``: its submit files, if they are known already. Raises PlanError if a template or sweep
    cannot be read.
    """
    jobs = jobs_of(request) if jobs is None else jobs
    if request.shape is EnsembleShape.BAG:
        return _bag(request, jobs)
    parts = [_run_graph(request, jobs, run) for run in runs_of(request, jobs)]
    if request.subdags:
        return _with_subdags(request, parts)
    graph = Graph(
        tuple(node for part in parts for node in part.nodes),
        tuple(edge for part in parts for edge in part.edges),
        request.retries,
    )
    if request.shape is EnsembleShape.MULTI_NODE:
        graph = replace(graph, nodes=(_provisioner(request, jobs), *graph.nodes))
    return graph


# --- runs: chains of epochs with their evaluations --------------------------------------------


def train_node(run: str, epoch: int) -> str:
    """Name of the node that trains ``epoch``, counted from 0."""
    return f"{run}-train_epoch{epoch}"


def evaluation_node(run: str, epoch: int) -> str:
    """Name of the node that evaluates after the training node of ``epoch``.

    It contains the number of epochs trained by then.
    """
    return f"{run}-eval_epoch{epoch + 1}"


def _run_graph(request: Request, jobs: Sequence[JobTemplate], swept_run: SweptRun) -> Graph:
    """The graph of one run: its training nodes, then its evaluation nodes."""
    plan, epochs = swept_run.plan, epochs_of(request)
    training_nodes = [_training_node(request, jobs, swept_run, epoch) for epoch in range(epochs)]
    evaluation_nodes = [
        _evaluation_node(request, jobs, swept_run, epoch)
        for epoch in range(epochs)
        if request.evaluation is not None and (epoch + 1) % request.evaluation.every == 0
    ]
    epochs_wait = request.evaluation is not None and request.evaluation.gates
    edges = [
        (train_node(plan.name, epoch), train_node(plan.name, epoch + 1))
        for epoch in range(epochs - 1)
    ]
    for node in evaluation_nodes:
        assert node.epoch is not None
        edges.append((train_node(plan.name, node.epoch), node.name))
        if epochs_wait and node.epoch + 1 < epochs:
            edges.append((node.name, train_node(plan.name, node.epoch + 1)))
    return Graph((*training_nodes, *evaluation_nodes), tuple(edges), request.retries)


def _training_node(
    request: Request, jobs: Sequence[JobTemplate], swept_run: SweptRun, epoch: int
) -> GraphNode:
    job = _stage_of(jobs, epoch)
    name = train_node(swept_run.plan.name, epoch)
    variables = [
        *_run_variables(request, swept_run),
        *_epoch_variables(request, swept_run.plan, epoch, started=epoch > 0),
    ]
    if job.stage is not None:
        variables += _stage_variables(request, job, epoch)
    node = GraphNode(
        name,
        job.file,
        role=NodeRole.TRAIN,
        run=swept_run.plan.name,
        epoch=epoch,
        variables=_all_variables(
            request, NodePosition(name, swept_run.plan.name, epoch), variables
        ),
        where=f"the shape: {request.shape}",
    )
    return with_gate(request, node, swept_run.plan.uuid)


def _evaluation_node(
    request: Request, jobs: Sequence[JobTemplate], swept_run: SweptRun, epoch: int
) -> GraphNode:
    evaluation = request.evaluation
    assert evaluation is not None
    job = next(job for job in jobs if job.role is NodeRole.EVALUATE)
    name = evaluation_node(swept_run.plan.name, epoch)
    variables = [
        *_run_variables(request, swept_run),
        *_epoch_variables(request, swept_run.plan, epoch, started=True),
    ]
    position = NodePosition(name, swept_run.plan.name, epoch, NodeRole.EVALUATE)
    node = GraphNode(
        name,
        job.file,
        role=NodeRole.EVALUATE,
        run=swept_run.plan.name,
        epoch=epoch,
        variables=_all_variables(request, position, variables),
        # The failure of a node without children must not fail the run.
        post=None if evaluation.gates and epoch + 1 < epochs_of(request) else ALWAYS_SUCCEEDS,
        where=f"the evaluation: {_every_text(evaluation.every)}",
    )
    return with_gate(request, node, swept_run.plan.uuid)


def _every_text(number: int) -> str:
    return "after every epoch" if number == 1 else f"after every {number} epochs"


def _stage_of(jobs: Sequence[JobTemplate], epoch: int) -> JobTemplate:
    """The submit file that trains this epoch."""
    started = [job for job in jobs if job.role is NodeRole.TRAIN and job.first_epoch <= epoch]
    return started[-1]


def _all_variables(
    request: Request, position: NodePosition, node_variables: Sequence[VariableValue]
) -> tuple[VariableValue, ...]:
    """The shape's own variables in their fixed order, then those of the request."""
    order = {name: index for index, name in enumerate(VARIABLE_ORDER)}
    variables = sorted(node_variables, key=lambda variable: order.get(variable.name, len(order)))
    if has_gate(request, position.role):
        variables += gate_variables(request.name, position.node)
    return merge_variables([*variables, *request_variables(request, position)])


def _run_variables(request: Request, swept_run: SweptRun) -> list[VariableValue]:
    return [
        *run_variables(request, swept_run.plan),
        VariableValue("epochs", str(epochs_of(request)), Precedence.ALL, DESCRIPTION),
        *(
            VariableValue(name, value, Precedence.RUN, swept.where)
            for name, (value, swept) in swept_run.point.items()
        ),
    ]


def _epoch_variables(
    request: Request, plan: RunPlan, epoch: int, started: bool
) -> list[VariableValue]:
    """``started``: the run has a checkpoint before this node."""
    return [
        VariableValue("epoch", str(epoch + 1), Precedence.NODE, "metlmon: epochs count from 1"),
        _target(request, plan.targets[epoch]),
        *([checkpoint_variable(plan.uuid)] if started else []),
    ]


_POLICY_PRECEDENCE: Final = {
    Policy.ANY: Precedence.ALL,
    Policy.GPU_PIN: Precedence.ALL,
    Policy.PIN: Precedence.RUN,
    Policy.PERMUTE: Precedence.NODE,
}
"""Precedence of the site that a policy chooses; a region may override a lower one."""


def _target(request: Request, target: str) -> VariableValue:
    level = _POLICY_PRECEDENCE[request.policy] if request.sites else Precedence.ALL
    return VariableValue(SITE_VARIABLE, target, level, f"the policy: {request.policy}")


def _stage_variables(request: Request, job: JobTemplate, epoch: int) -> list[VariableValue]:
    stage = next(candidate for candidate in request.stages if candidate.name == job.stage)
    where = f"the stage {stage.name}"
    return [
        VariableValue("stage", stage.name, Precedence.NODE, where),
        VariableValue("stage_epoch", str(epoch - job.first_epoch + 1), Precedence.NODE, where),
        VariableValue("stage_epochs", str(stage.epochs), Precedence.NODE, where),
    ]


# --- the other shapes ------------------------------------------------------------------------


def _with_subdags(request: Request, parts: Sequence[Graph]) -> Graph:
    """One SUBDAG node per run.

    Retries apply to the nodes inside; a retry of the whole run would multiply them.
    """
    nodes, inner = [], {}
    for part in parts:
        run = part.nodes[0].run
        assert run is not None
        file = f"{request.name}-{run}.dag"
        node = GraphNode(run, file, kind=NodeKind.SUBDAG, run=run, where="the shape: sub-DAGs")
        nodes.append(node)
        inner[file] = part
    return Graph(tuple(nodes), subdags=inner)


def _bag(request: Request, jobs: Sequence[JobTemplate]) -> Graph:
    count, names = request.shards, shard_names(request.shards)
    nodes = [
        _single_node(request, jobs[0], name, _shard_variables(request, index))
        for index, name in enumerate(names)
    ]
    if request.gather is None:
        return Graph(tuple(nodes), (), request.retries)
    variables = [
        VariableValue("shards", str(count), Precedence.ALL, DESCRIPTION),
        _target(request, ANYWHERE),
    ]
    nodes.append(_single_node(request, jobs[1], GATHER, variables))
    return Graph(tuple(nodes), tuple((name, GATHER) for name in names), request.retries)


def shard_names(count: int) -> list[str]:
    """Names of the nodes of ``count`` shards."""
    width = max(FEWEST_DIGITS, len(str(max(0, count - 1))))
    return [f"shard{index:0{width}}" for index in range(count)]


def _shard_variables(request: Request, index: int) -> list[VariableValue]:
    return [
        VariableValue("shard", str(index), Precedence.NODE, "metlmon: shards count from 0"),
        VariableValue("shards", str(request.shards), Precedence.ALL, DESCRIPTION),
        _target(request, target_sites(replace(request, epochs=1), index)[0]),
        *gpu_variables(request, gpu_model(request, index)),
    ]


def _single_node(
    request: Request,
    job: JobTemplate,
    name: str,
    variables: Sequence[VariableValue],
    kind: NodeKind = NodeKind.JOB,
) -> GraphNode:
    """A node that belongs to no run."""
    return GraphNode(
        name,
        job.file,
        kind=kind,
        role=job.role,
        variables=_all_variables(request, NodePosition(name, role=job.role), variables),
        where=f"the shape: {request.shape}",
    )


def _provisioner(request: Request, jobs: Sequence[JobTemplate]) -> GraphNode:
    variables = [VariableValue("machines", str(request.machines), Precedence.ALL, DESCRIPTION)]
    return _single_node(request, jobs[-1], PROVISION, variables, kind=NodeKind.PROVISIONER)
