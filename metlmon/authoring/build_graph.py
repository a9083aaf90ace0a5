"""Every shape as a graph: which nodes there are, what they are told, and what waits for what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from metlmon.authoring.gate_config import gated, is_gated, told_by_gate
from metlmon.authoring.graph import Graph, GraphNode, NodeRole, Precedence, VariableValue
from metlmon.authoring.jobs import GATHER, PROVISION, JobTemplate, jobs_of
from metlmon.authoring.request import EnsembleShape, Policy, Request, RunPlan
from metlmon.authoring.runs import (
    ANYWHERE,
    GPU,
    PLACE,
    SweptRun,
    epochs_of,
    gpu_model,
    runs_of,
    targets,
)
from metlmon.authoring.variables import DESCRIPTION, NodePosition, described, merged
from metlmon.dagman import NodeKind

FEWEST_DIGITS: Final = 3
"""Of a shard's number in its node's name: names of bags of different sizes then look alike."""

ORDER: Final = (
    *("run", "run_uuid", "epoch", "epochs", "random_seed", "ResourceName", "GpuModel"),
    "continue_from_checkpoint",
)
"""Of the variables in a line. It is kept, so that an ensemble that is written again is the same."""

ALWAYS: Final = "/bin/true"
"""POST script of a node whose failure fails nothing."""


def graph_of(request: Request, jobs: Sequence[JobTemplate] | None = None) -> Graph:
    """The graph of a request. ``jobs``: its submit files, where they are known already. Raises
    PlanError for templates, sweeps and sweep files that cannot be had."""
    if request.source is not None:
        from metlmon.authoring.sweeps import graph_of_file  # Most ensembles have no such file.

        return graph_of_file(request)
    jobs = jobs_of(request) if jobs is None else jobs
    if request.shape is EnsembleShape.BAG:
        return _bag(request, jobs)
    parts = [_run(request, jobs, made) for made in runs_of(request, jobs)]
    if request.subdags:
        return _in_subdags(request, parts)
    whole = Graph(
        tuple(node for part in parts for node in part.nodes),
        tuple(edge for part in parts for edge in part.edges),
        request.retries,
    )
    if request.shape is EnsembleShape.MULTI_NODE:
        whole = replace(whole, nodes=(_provision(request, jobs), *whole.nodes))
    return whole


def run_plans(graph: Graph) -> tuple[RunPlan, ...]:
    """The runs of a graph, in the order of their first nodes."""
    nodes: dict[str, list[GraphNode]] = {}
    for node in _all_nodes(graph):
        # A sweep file may have nodes in a run that neither train nor evaluate: they are told less.
        if node.run is not None and value_of(node, "run_uuid"):
            nodes.setdefault(node.run, []).append(node)
    return tuple(_plan_of(run, own) for run, own in nodes.items())


def _plan_of(run: str, nodes: list[GraphNode]) -> RunPlan:
    said = value_of(nodes[0], "random_seed") or ""
    trained = [node for node in nodes if node.role is NodeRole.TRAIN]
    return RunPlan(
        name=run,
        uuid=value_of(nodes[0], "run_uuid") or "",
        seed=int(said) if said.isdecimal() else 0,
        targets=tuple(value_of(node, PLACE) or ANYWHERE for node in trained),
        gpu=next(filter(None, (value_of(node, GPU) for node in trained)), None),
    )


def _all_nodes(graph: Graph) -> Iterator[GraphNode]:
    yield from graph.nodes
    for inner in graph.subdags.values():
        yield from _all_nodes(inner)


def value_of(node: GraphNode, name: str) -> str | None:
    """A variable of the node; names know no case."""
    wanted = name.lower()
    return next((each.value for each in node.variables if each.name.lower() == wanted), None)


# --- runs: chains of epochs, with what hangs off them -----------------------------------------


def train_node(run: str, epoch: int) -> str:
    """The node that trains an epoch, counted from 0."""
    return f"{run}-train_epoch{epoch}"


def evaluation_node(run: str, epoch: int) -> str:
    """The node that evaluates after the training node of ``epoch``: it has the number of epochs
    that are trained by then."""
    return f"{run}-eval_epoch{epoch + 1}"


def checkpoint_directory(uuid: str) -> str:
    """Where the epoch before left its checkpoints, as seen from the DAG: METL's layout."""
    return f"output/training_logs/{uuid}"


def _run(request: Request, jobs: Sequence[JobTemplate], made: SweptRun) -> Graph:
    """One run: its training nodes, then its evaluation nodes."""
    run, epochs = made.plan, epochs_of(request)
    trains = [_training(request, jobs, made, epoch) for epoch in range(epochs)]
    sides = [
        _evaluation(request, jobs, made, epoch)
        for epoch in range(epochs)
        if request.evaluation is not None and (epoch + 1) % request.evaluation.every == 0
    ]
    waits = request.evaluation is not None and request.evaluation.gates
    edges = [(train_node(run.name, e), train_node(run.name, e + 1)) for e in range(epochs - 1)]
    for side in sides:
        assert side.epoch is not None
        edges.append((train_node(run.name, side.epoch), side.name))
        if waits and side.epoch + 1 < epochs:
            edges.append((side.name, train_node(run.name, side.epoch + 1)))
    return Graph((*trains, *sides), tuple(edges), request.retries)


def _training(
    request: Request, jobs: Sequence[JobTemplate], made: SweptRun, epoch: int
) -> GraphNode:
    job = _stage_of(jobs, epoch)
    name = train_node(made.plan.name, epoch)
    told = [*_of_the_run(request, made), *_of_the_epoch(request, made, epoch, started=epoch > 0)]
    if job.stage is not None:
        told += _of_the_stage(request, job, epoch)
    node = GraphNode(
        name,
        job.file,
        role=NodeRole.TRAIN,
        run=made.plan.name,
        epoch=epoch,
        variables=_variables(request, NodePosition(name, made.plan.name, epoch), told),
        where=f"the shape: {request.shape}",
    )
    return gated(request, node, made.plan.uuid)


def _evaluation(
    request: Request, jobs: Sequence[JobTemplate], made: SweptRun, epoch: int
) -> GraphNode:
    evaluation = request.evaluation
    assert evaluation is not None
    job = next(job for job in jobs if job.role is NodeRole.EVALUATE)
    name = evaluation_node(made.plan.name, epoch)
    told = [*_of_the_run(request, made), *_of_the_epoch(request, made, epoch, started=True)]
    place = NodePosition(name, made.plan.name, epoch, NodeRole.EVALUATE)
    node = GraphNode(
        name,
        job.file,
        role=NodeRole.EVALUATE,
        run=made.plan.name,
        epoch=epoch,
        variables=_variables(request, place, told),
        # What nothing waits for fails nothing.
        post=None if evaluation.gates and epoch + 1 < epochs_of(request) else ALWAYS,
        where=f"the evaluation: {_every(evaluation.every)}",
    )
    return gated(request, node, made.plan.uuid)


def _every(number: int) -> str:
    return "after every epoch" if number == 1 else f"after every {number} epochs"


def _stage_of(jobs: Sequence[JobTemplate], epoch: int) -> JobTemplate:
    """The submit file that trains this epoch."""
    begun = [job for job in jobs if job.role is NodeRole.TRAIN and job.before <= epoch]
    return begun[-1]


def _variables(
    request: Request, place: NodePosition, told: Sequence[VariableValue]
) -> tuple[VariableValue, ...]:
    """The shape's own first, in their order; then what the request gives."""
    own = sorted(
        told, key=lambda each: ORDER.index(each.name) if each.name in ORDER else len(ORDER)
    )
    if is_gated(request, place.role):
        own += told_by_gate(request.name, place.node)
    return merged([*own, *described(request, place)])


def _of_the_run(request: Request, made: SweptRun) -> list[VariableValue]:
    run = made.plan
    seed = DESCRIPTION if request.seeds else "metlmon: seeds count from 1"
    found = [
        VariableValue("run", run.name, Precedence.RUN, "metlmon: the run's name"),
        VariableValue(
            "run_uuid", run.uuid, Precedence.RUN, "metlmon: made of all that makes the model"
        ),
        VariableValue("epochs", str(epochs_of(request)), Precedence.ALL, DESCRIPTION),
        VariableValue("random_seed", str(run.seed), Precedence.RUN, seed),
    ]
    found += on_gpu(request, run.gpu)
    found += [
        VariableValue(n, v, Precedence.RUN, swept.where) for n, (v, swept) in made.point.items()
    ]
    return found


def on_gpu(request: Request, model: str | None) -> list[VariableValue]:
    """What tells a node its GPU model, where there is one."""
    return (
        []
        if model is None
        else [VariableValue(GPU, model, Precedence.RUN, f"the policy: {request.policy}")]
    )


def _of_the_epoch(
    request: Request, made: SweptRun, epoch: int, started: bool
) -> list[VariableValue]:
    run = made.plan
    found = [
        VariableValue("epoch", str(epoch + 1), Precedence.NODE, "metlmon: epochs count from 1"),
        _target(request, run.targets[epoch]),
    ]
    if started:
        # Not given for the first epoch: an empty value is refused by 25.5 and later, and any
        # other would count as defined in a template's "if defined continue_from_checkpoint".
        # It cannot come from another node: nodes share a submit file, not a description that
        # stands in the DAG file.
        where = "metlmon: where the epoch before leaves its checkpoint"
        path = checkpoint_directory(run.uuid)
        found.append(VariableValue("continue_from_checkpoint", path, Precedence.NODE, where))
    return found


_LEVELS: Final = {
    Policy.ANY: Precedence.ALL,
    Policy.GPU_PIN: Precedence.ALL,
    Policy.PIN: Precedence.RUN,
    Policy.PERMUTE: Precedence.NODE,
}
"""What a policy decides about: where it lets a run go anywhere, a region may send it elsewhere."""


def _target(request: Request, target: str) -> VariableValue:
    level = _LEVELS[request.policy] if request.sites else Precedence.ALL
    return VariableValue(PLACE, target, level, f"the policy: {request.policy}")


def _of_the_stage(request: Request, job: JobTemplate, epoch: int) -> list[VariableValue]:
    stage = next(each for each in request.stages if each.name == job.stage)
    where = f"the stage {stage.name}"
    return [
        VariableValue("stage", stage.name, Precedence.NODE, where),
        VariableValue("stage_epoch", str(epoch - job.before + 1), Precedence.NODE, where),
        VariableValue("stage_epochs", str(stage.epochs), Precedence.NODE, where),
    ]


# --- the other shapes ------------------------------------------------------------------------


def _in_subdags(request: Request, parts: Sequence[Graph]) -> Graph:
    """A node for each run, which is a DAG of its own. The runs' nodes are tried again there:
    a retry of the whole run would multiply that."""
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
        _apart(request, jobs[0], name, _of_the_shard(request, index))
        for index, name in enumerate(names)
    ]
    if request.gather is None:
        return Graph(tuple(nodes), (), request.retries)
    told = [
        VariableValue("shards", str(count), Precedence.ALL, DESCRIPTION),
        _target(request, ANYWHERE),
    ]
    nodes.append(_apart(request, jobs[1], GATHER, told))
    return Graph(tuple(nodes), tuple((name, GATHER) for name in names), request.retries)


def shard_names(count: int) -> list[str]:
    """The nodes of so many shards."""
    width = max(FEWEST_DIGITS, len(str(max(0, count - 1))))
    return [f"shard{index:0{width}}" for index in range(count)]


def _of_the_shard(request: Request, index: int) -> list[VariableValue]:
    return [
        VariableValue("shard", str(index), Precedence.NODE, "metlmon: shards count from 0"),
        VariableValue("shards", str(request.shards), Precedence.ALL, DESCRIPTION),
        _target(request, targets(replace(request, epochs=1), index)[0]),
        *on_gpu(request, gpu_model(request, index)),
    ]


def _apart(
    request: Request,
    job: JobTemplate,
    name: str,
    told: Sequence[VariableValue],
    kind: NodeKind = NodeKind.JOB,
) -> GraphNode:
    """A node of no run."""
    return GraphNode(
        name,
        job.file,
        kind=kind,
        role=job.role,
        variables=_variables(request, NodePosition(name, role=job.role), told),
        where=f"the shape: {request.shape}",
    )


def _provision(request: Request, jobs: Sequence[JobTemplate]) -> GraphNode:
    told = [VariableValue("machines", str(request.machines), Precedence.ALL, DESCRIPTION)]
    return _apart(request, jobs[-1], PROVISION, told, NodeKind.PROVISIONER)
