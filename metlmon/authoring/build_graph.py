"""Builds the graph of a request: nodes, variables and edges, for every shape."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
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
    DESCRIPTION,
    SITE_VARIABLE,
    checkpoint_variable,
    epochs_of,
    gpu_model,
    gpu_variables,
    in_order,
    merge_variables,
    request_variables,
    run_variables,
    runs_of,
    target_sites,
)
from metlmon.authoring.templates import GATHER, PROVISION, JobTemplate, jobs_of
from metlmon.dagman.records import NodeKind

FEWEST_DIGITS: Final = 3
"""Minimum digits of a shard's number, so that node names look alike in bags of all sizes."""

_POLICY_PRECEDENCE: Final = {
    Policy.ANY: Precedence.ALL,
    Policy.GPU_PIN: Precedence.ALL,
    Policy.PIN: Precedence.RUN,
    Policy.PERMUTE: Precedence.NODE,
}
"""Precedence of the site that a policy chooses; a region may override a lower one."""


def build_graph(request: Request, jobs: Sequence[JobTemplate] | None = None) -> Graph:
    """Return the graph of a request without a sweep file. Raises PlanError."""
    jobs = jobs_of(request) if jobs is None else jobs
    if request.shape is EnsembleShape.BAG:
        return _bag(request, jobs)
    parts = [_run_graph(request, jobs, run) for run in runs_of(request, jobs)]
    if request.subdags:
        return _with_subdags(request, parts)
    nodes = tuple(node for part in parts for node in part.nodes)
    edges = tuple(edge for part in parts for edge in part.edges)
    if request.shape is EnsembleShape.MULTI_NODE:
        machines = _description_variable("machines", request.machines)
        provisioner = _single_node(request, jobs[-1], PROVISION, [machines])
        nodes = (replace(provisioner, kind=NodeKind.PROVISIONER), *nodes)
    return Graph(nodes, edges, request.retries)


# --- runs: chains of epochs with their evaluations --------------------------------------------


def _run_graph(request: Request, jobs: Sequence[JobTemplate], run: RunPlan) -> Graph:
    """The graph of one run: its training nodes, then its evaluation nodes."""
    epochs, evaluation = epochs_of(request), request.evaluation
    trainings = [
        _run_node(request, jobs, run, epoch, role=NodeRole.TRAIN) for epoch in range(epochs)
    ]
    edges = [(before.name, after.name) for before, after in pairwise(trainings)]
    evaluations = []
    for epoch in range(epochs) if evaluation is not None else ():
        if evaluation is None or (epoch + 1) % evaluation.every:
            continue
        node = _run_node(request, jobs, run, epoch, role=NodeRole.EVALUATE)
        evaluations.append(node)
        edges.append((trainings[epoch].name, node.name))
        if evaluation.gates and epoch + 1 < epochs:
            edges.append((node.name, trainings[epoch + 1].name))
    return Graph((*trainings, *evaluations), tuple(edges), request.retries)


def _run_node(
    request: Request, jobs: Sequence[JobTemplate], run: RunPlan, epoch: int, role: NodeRole
) -> GraphNode:
    """The node that trains ``epoch``, counted from 0, or that evaluates what it left."""
    evaluation, epochs = request.evaluation, epochs_of(request)
    # The submit file of this role; of several stages that of the last one started.
    job = [job for job in jobs if job.role is role and job.first_epoch <= epoch][-1]
    evaluates = role is NodeRole.EVALUATE
    name = f"{run.name}-eval_epoch{epoch + 1}" if evaluates else f"{run.name}-train_epoch{epoch}"
    variables = [
        *run_variables(request, run),
        _description_variable("epochs", epochs),
        *(
            VariableValue(name, value, Precedence.RUN, swept.where)
            for name, (value, swept) in run.point.items()
        ),
        VariableValue("epoch", str(epoch + 1), Precedence.NODE, "metlmon: epochs count from 1"),
        _target(request, run.targets[epoch]),
        *([checkpoint_variable(run.uuid)] if epoch or evaluates else []),
    ]
    for stage in (stage for stage in request.stages if stage.name == job.stage):
        where = f"the stage {stage.name}"
        stage_epoch = str(epoch - job.first_epoch + 1)
        variables += [
            VariableValue("stage", stage.name, Precedence.NODE, where),
            VariableValue("stage_epoch", stage_epoch, Precedence.NODE, where),
            VariableValue("stage_epochs", str(stage.epochs), Precedence.NODE, where),
        ]
    where, post = f"the shape: {request.shape}", None
    if evaluates and evaluation is not None:
        interval = "epoch" if evaluation.every == 1 else f"{evaluation.every} epochs"
        where = f"the evaluation: after every {interval}"
        # The failure of a node without children must not fail the run.
        is_awaited = evaluation.gates and epoch + 1 < epochs
        post = None if is_awaited else ALWAYS_SUCCEEDS
    gate = gate_variables(request.name, name) if has_gate(request, role) else ()
    more = request_variables(request, name, run.name, epoch)
    node = GraphNode(
        name,
        job.file,
        role=role,
        run=run.name,
        epoch=epoch,
        variables=merge_variables([*in_order(variables), *gate, *more]),
        post=post,
        where=where,
    )
    return with_gate(request, node, run.uuid)


def _description_variable(name: str, number: int) -> VariableValue:
    return VariableValue(name, str(number), Precedence.ALL, DESCRIPTION)


def _target(request: Request, target: str) -> VariableValue:
    level = _POLICY_PRECEDENCE[request.policy] if request.sites else Precedence.ALL
    return VariableValue(SITE_VARIABLE, target, level, f"the policy: {request.policy}")


# --- the other shapes ------------------------------------------------------------------------


def _with_subdags(request: Request, parts: Sequence[Graph]) -> Graph:
    """One SUBDAG node per run.

    Retries apply to the nodes inside; a retry of the whole run would multiply them.
    """
    inner = {f"{request.name}-{part.nodes[0].run}.dag": part for part in parts}
    where = "the shape: sub-DAGs"
    nodes = [
        GraphNode(
            part.nodes[0].run or "", file, NodeKind.SUBDAG, run=part.nodes[0].run, where=where
        )
        for file, part in inner.items()
    ]
    return Graph(tuple(nodes), subdags=inner)


def _bag(request: Request, jobs: Sequence[JobTemplate]) -> Graph:
    names = shard_names(request.shards)
    shards = _description_variable("shards", request.shards)
    nodes = []
    for index, name in enumerate(names):
        variables = [
            VariableValue("shard", str(index), Precedence.NODE, "metlmon: shards count from 0"),
            shards,
            _target(request, target_sites(replace(request, epochs=1), index)[0]),
            *gpu_variables(request, gpu_model(request, index)),
        ]
        nodes.append(_single_node(request, jobs[0], name, variables))
    if request.gather is None:
        return Graph(tuple(nodes), (), request.retries)
    nodes.append(_single_node(request, jobs[1], GATHER, [shards, _target(request, ANYWHERE)]))
    return Graph(tuple(nodes), tuple((name, GATHER) for name in names), request.retries)


def shard_names(count: int) -> list[str]:
    """Names of the nodes of ``count`` shards."""
    width = max(FEWEST_DIGITS, len(str(max(0, count - 1))))
    return [f"shard{index:0{width}}" for index in range(count)]


def _single_node(
    request: Request, job: JobTemplate, name: str, variables: Sequence[VariableValue]
) -> GraphNode:
    """A node that belongs to no run."""
    return GraphNode(
        name,
        job.file,
        role=job.role,
        variables=merge_variables([*in_order(variables), *request_variables(request, name)]),
        where=f"the shape: {request.shape}",
    )
