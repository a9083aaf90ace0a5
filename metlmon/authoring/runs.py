"""The runs of a request (names, seeds, uuids, targets, variables), and the graph of their nodes.

Everything here is a function of the request alone, so that writing it again, at any place or time,
gives the same ensemble.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from metlmon.authoring.gate_config import gate_variables, has_gate, with_gate
from metlmon.authoring.graph import (
    ALWAYS_SUCCEEDS,
    Graph,
    GraphNode,
    NodeRole,
    Precedence,
    SetValue,
    VariableValue,
)
from metlmon.authoring.request import EnsembleShape, Policy, Request, RunPlan, SweptVariable
from metlmon.authoring.templates import GATHER, PROVISION, JobTemplate, jobs_of
from metlmon.dagman.lexer import shown
from metlmon.dagman.records import NodeKind

ANYWHERE: Final = "any"
"""Target of an epoch that may run at any of the named sites, or at any site if none is named."""

SITE_VARIABLE: Final = "ResourceName"
"""The variable with the target site of an epoch."""

GPU_VARIABLE: Final = "GpuModel"
"""The variable with the GPU model of a run."""

CHECKPOINT_VARIABLE: Final = "continue_from_checkpoint"
"""The variable with the checkpoint from which a training or evaluation starts."""

LOCATION_VARIABLES: Final = frozenset({SITE_VARIABLE.lower(), GPU_VARIABLE.lower()})
"""Variables that do not affect the model."""


DESCRIPTION: Final = "the description"
"""Source of a variable that the description defines."""

VARIABLE_ORDER: Final = tuple(
    """
    run run_uuid epoch epochs random_seed ResourceName GpuModel continue_from_checkpoint
    """.split()
)
"""Order of the variables in a VARS line; fixed, so that a rewritten ensemble stays the same."""

OWN_VARIABLES: Final = frozenset(
    """
    run run_uuid epoch epochs random_seed continue_from_checkpoint node metlmon_dag stage
    stage_epoch stage_epochs shard shards machines
    """.split()
)
"""Variables that metlmon defines."""

RESERVED_NAMES: Final = frozenset(
    """
    arguments args executable environment env getenv universe queue input output error log userlog
    requirements rank priority initialdir iwd notification cluster clusterid process procid
    transfer_input_files transfer_output_files request_cpus request_gpus request_memory request_disk
    job retry item row step name all_nodes prepend append if elif else endif include use my
    should_transfer_files when_to_transfer_output noop_job hold max_retries retry_until
    success_exit_code leave_in_queue kill_sig nice_user container_image docker_image
    concurrency_limits concurrency_limits_expr batch_name dagmanjobid dag_status failed_count
    submit_file metlsite metlexcluded metlmon_excluded
    """.split()
)
"""Names with a meaning in HTCondor: as a variable they would change the job."""

RESERVED_PREFIXES: Final = tuple(
    """
    queue request_ transfer_ on_exit_ periodic_ accounting_group stream_ deferral_ cron_
    x509userproxy remote_ require_gpus gpus_m
    """.split()
)
"""Prefixes of such names; DAGMan refuses any that begins with "queue"."""


_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_VARIABLE: Final = re.compile(r"(?:\+|[Mm][Yy]\.)?[A-Za-z_]\w{0,199}", re.ASCII)
_CONTROL: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_MACRO: Final = re.compile(r"(?<!\$)\$\w*\(\s*(\w+)|\bdefined\s+(\w+)", re.IGNORECASE)
_COMMENT: Final = re.compile(r"^\s*#.*$", re.MULTILINE)


def checkpoint_directory(uuid: str) -> str:
    """Directory of a run's checkpoints, relative to the DAG (METL's layout)."""
    return f"output/training_logs/{uuid}"


def epochs_of(request: Request) -> int:
    """Number of epochs of each run, all stages together."""
    if request.shape is EnsembleShape.STAGES:
        return sum(stage.epochs for stage in request.stages)
    return request.epochs


def gpus_of(request: Request) -> int | None:
    """GPUs of an epoch on all its machines; None if a sweep file defines the jobs."""
    return request.gpus * request.machines if request.source is None else None


def runs_of(request: Request, jobs: Sequence[JobTemplate]) -> tuple[RunPlan, ...]:
    """The runs of the request. Raises PlanError if a sweep has none."""
    inputs = uuid_inputs(request, jobs)
    sweep = request.sweep if request.shape is EnsembleShape.SWEEP else None
    group, width = "run", 1
    variables: dict[str, SweptVariable] = {}
    combinations: list[tuple[Mapping[str, str], int | None]] = [
        ({}, seed) for seed in request.seeds or range(1, request.runs + 1)
    ]
    if sweep is not None:
        from metlmon.authoring.sweeps.values import points  # Imported late: most have no sweep.

        variables = {variable.name: variable for variable in sweep.variables}
        # Every point with every seed; without seeds each run gets its own.
        seeds = request.seeds or (None,)
        combinations = [(point, seed) for point in points(sweep) for seed in seeds]
        group, width = sweep.group, len(str(max(0, len(combinations) - 1)))
    runs = []
    for index, (point, given_seed) in enumerate(combinations):
        name = f"{group}{index:0{width}}"
        seed = index + 1 if given_seed is None else given_seed
        swept = [] if sweep is None else [["sweep", sorted(point.items())]]
        plan = RunPlan(
            name=name,
            uuid=run_uuid([name, seed, *inputs, *swept]),
            seed=seed,
            targets=target_sites(request, index),
            gpu=gpu_model(request, index),
            point={key: (value, variables[key]) for key, value in point.items()},
        )
        runs.append(plan)
    return tuple(runs)


def uuid_inputs(request: Request, jobs: Sequence[JobTemplate]) -> list[object]:
    """The inputs of a run's uuid other than its name, seed and swept values.

    Features added to metlmon later are included only if they are used, so that known uuids stay the
    same.
    """
    main = jobs[0]
    inputs: list[object] = [
        request.name,
        main.template.name,
        epochs_of(request),
        request.gpus,
        _model_values(main),
    ]
    if request.shape is EnsembleShape.STAGES:
        stage_jobs = [job for job in jobs if job.stage is not None]
        stages = [
            [job.stage, stage.epochs, job.template.name, _model_values(job)]
            for stage, job in zip(request.stages, stage_jobs, strict=True)
        ]
        inputs.append(["stages", stages])
    if request.shape is EnsembleShape.MULTI_NODE:
        inputs.append(["machines", request.machines])
    if variables := _model_variables(request.variables):
        inputs.append(["variables", variables])
    regions = [
        [region.epochs, sorted(region.runs), region_inputs]
        for region in request.regions
        if (region_inputs := _model_variables(region.variables))
    ]
    if regions:
        inputs.append(["regions", regions])
    return inputs


def _model_values(job: JobTemplate) -> list[tuple[str, str]]:
    """Parameters that differ from their defaults, so that a new parameter changes no uuid."""
    defaults = {parameter.name: parameter.default for parameter in job.template.parameters}
    return sorted(pair for pair in job.values.items() if pair[1] != defaults[pair[0]])


def _model_variables(variables: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted(
        (name, value) for name, value in variables.items() if name.lower() not in LOCATION_VARIABLES
    )


def run_uuid(inputs: list[object]) -> str:
    """A uuid of everything that determines the model.

    Inputs: the run's name and seed, the DAG's name, the template and its parameters, epochs and
    GPUs. Site, memory and retries do not affect the model, nor the uuid.
    """
    digest = hashlib.sha256(json.dumps(inputs, ensure_ascii=True).encode()).digest()
    # Version 5: a uuid from a hash (RFC 9562 specifies SHA-1).
    return str(UUID(bytes=digest[:16], version=5))


def target_sites(request: Request, index: int) -> tuple[str, ...]:
    """The target of every epoch of the run with this index."""
    sites, epochs = request.sites, epochs_of(request)
    if request.policy in (Policy.ANY, Policy.GPU_PIN) or not sites:
        return (ANYWHERE,) * epochs
    if request.policy is Policy.PIN:
        return (sites[index % len(sites)],) * epochs
    # Each site once per round. The runs of a group share one shuffled order, each starting one
    # site later, so that no two of them use the same site at the same epoch.
    group, offset = divmod(index, len(sites))
    targets: list[str] = []
    for cycle in range(-(-epochs // len(sites))):
        order = _hash_order(sites, f"{request.name}/{group}/{cycle}")
        targets += order[offset:] + order[:offset]
    return tuple(targets[:epochs])


def gpu_model(request: Request, index: int) -> str | None:
    """The GPU model of the run with this index; None for any."""
    models = request.gpu_models if request.policy is Policy.GPU_PIN else ()
    return models[index % len(models)] if models else None


def _hash_order(sites: tuple[str, ...], key: str) -> list[str]:
    """A shuffled order by hash, which is the same in every version of Python."""
    return sorted(sites, key=lambda site: hashlib.sha256(f"{key}/{site}".encode()).digest())


def requirements(sites: tuple[str, ...], gated: bool = False) -> str:
    """The expression that keeps a job at its target, for ``requirements =``.

    It is the same for all nodes: the target comes from the node's VARS, or, if ``gated``, from the
    job's MetlSite, a list of sites that can be edited while the job is idle. Sites and hosts in
    MetlExcluded, likewise, are excluded; a job whose only target is an excluded site may run
    anywhere else.
    """
    target = "MY.MetlSite" if gated else f'"$({SITE_VARIABLE})"'
    at_target = f"TARGET.GLIDEIN_ResourceName =?= {target}"
    anywhere = f'{target} == "{ANYWHERE}"'
    if gated:
        at_target = f'stringListIMember(TARGET.GLIDEIN_ResourceName, {target}, "|")'
        anywhere = f'({anywhere} || stringListIMember({target}, MY.MetlExcluded, "|"))'
    if sites:
        site_list = " || ".join(f'TARGET.GLIDEIN_ResourceName =?= "{site}"' for site in sites)
        anywhere = f"({anywhere} && ({site_list}))"
    expression = f"({anywhere} || {at_target})"
    if not gated:
        return expression
    for attribute in ("GLIDEIN_ResourceName", "Machine"):
        is_excluded = f'stringListIMember(TARGET.{attribute}, MY.MetlExcluded, "|")'
        expression += f" && {is_excluded} =!= true"
    return f"({expression})"


def require_gpus(request: Request) -> str:
    """The expression that keeps a job on its GPU model, for ``require_gpus =``.

    Empty for any model. HTCondor evaluates it for each GPU and combines it with
    ``gpus_minimum_memory`` (manual, "condor_submit": require_gpus). Strings are compared
    case-insensitively.
    """
    pinned = request.policy is Policy.GPU_PIN and request.gpu_models and request.gpus
    return f'DeviceName == "$({GPU_VARIABLE})"' if pinned else ""


# --- the variables of a node -------------------------------------------------------------------


def variable_problem(name: str, value: str) -> str | None:
    """Why VARS cannot set this variable to this value, with the remedy; None if they can."""
    if not _VARIABLE.fullmatch(name) or name.lower().startswith("queue"):
        rule = "use letters, digits and '_', and do not begin with a digit or 'queue'"
        return f"{shown(name)!r} cannot be a variable's name: {rule}"
    if not value:
        return f"{name} is empty, which HTCondor 25.5 refuses; give a value, or leave it out"
    if _CONTROL.search(value):
        return f"the value of {name} holds a line end or control character; take it out"
    return None


def name_problem(name: str, own: Collection[str] = OWN_VARIABLES) -> str | None:
    """Why a user's variable cannot have this name; None if it can. ``own``: those of metlmon."""
    if not _IDENTIFIER.fullmatch(name):
        rule = "use letters, digits and '_', 64 at most, and begin with a letter"
        return f"{shown(name)!r} cannot be a variable's name: {rule}"
    if name.lower() in own:
        return f"{name} is given by metlmon itself; choose another name"
    if is_reserved(name):
        return f"{name} means something to HTCondor, and would change the job; choose another name"
    return None


def is_reserved(name: str) -> bool:
    """Whether a variable of this name has a meaning in HTCondor."""
    lowered = name.lower()
    return lowered in RESERVED_NAMES or lowered.startswith(RESERVED_PREFIXES)


def used_names(text: str) -> set[str]:
    """The macros used in a submit description or in a value, in lower case."""
    matches = _MACRO.finditer(_COMMENT.sub("", text))
    return {(match[1] or match[2]).lower() for match in matches}


def has_effect(name: str, used: Collection[str]) -> bool:
    """Whether a variable is ``used``, or has a meaning for HTCondor."""
    lowered = name.lower()
    if lowered.startswith(("+", "my.")) or lowered == SITE_VARIABLE.lower():
        return True
    return lowered in used or is_reserved(name)


def merge_variables(variables: Iterable[VariableValue]) -> tuple[VariableValue, ...]:
    """Merge variables: each name (case-insensitive, as in HTCondor) once.

    The highest precedence wins, among equals the last. Names keep the order of their first
    occurrence; the winner keeps the values that it hides.
    """
    levels = list(Precedence)
    by_name: dict[str, list[VariableValue]] = {}
    for variable in variables:
        by_name.setdefault(variable.name.lower(), []).insert(0, variable)
    merged = []
    for last_first in by_name.values():
        # Sorting keeps the order of equals.
        first, *rest = sorted(last_first, key=lambda e: levels.index(e.level), reverse=True)
        hidden = (SetValue(e.name, e.value, e.level, e.where, e.append) for e in rest)
        merged.append(replace(first, hides=tuple(hidden)) if rest else first)
    return tuple(merged)


def in_order(variables: Iterable[VariableValue]) -> list[VariableValue]:
    """The variables in the order of a VARS line; any others follow in their given order."""
    order = {name.lower(): index for index, name in enumerate(VARIABLE_ORDER)}
    return sorted(variables, key=lambda variable: order.get(variable.name.lower(), len(order)))


def assigned_variables(request: Request) -> Iterator[tuple[str, str, Sequence[str], str]]:
    """The variables of a request: field, name, values, and where they are defined."""
    for variable in request.sweep.variables if request.sweep is not None else ():
        yield "sweep", variable.name, variable.values, variable.where
    for name, value in request.variables.items():
        yield "variables", name, (value,), ""
    for region in request.regions:
        for name, value in region.variables.items():
            yield "regions", name, (value,), region.where


def request_variables(
    request: Request, node: str, run: str | None = None, epoch: int | None = None
) -> list[VariableValue]:
    """The variables that the request defines for a node: of all nodes, and of regions."""
    variables = [
        VariableValue(name, value, Precedence.ALL, DESCRIPTION)
        for name, value in request.variables.items()
    ]
    for region in request.regions:
        first, last = region.epochs or (0, math.inf)
        in_epochs = region.epochs is None or (epoch is not None and first <= epoch <= last)
        if in_epochs and (not region.runs or run in region.runs or node in region.runs):
            where = region.where or f"the region {region.name}"
            variables += [
                VariableValue(name, value, Precedence.REGION, where)
                for name, value in region.variables.items()
            ]
    return variables


def run_variables(request: Request, run: RunPlan) -> list[VariableValue]:
    """The variables of all nodes of a run that metlmon defines in every shape."""
    seed = DESCRIPTION if request.seeds else "metlmon: seeds count from 1"
    uuid = "metlmon: made of all that makes the model"
    return [
        VariableValue("run", run.name, Precedence.RUN, "metlmon: the run's name"),
        VariableValue("run_uuid", run.uuid, Precedence.RUN, uuid),
        VariableValue("random_seed", str(run.seed), Precedence.RUN, seed),
        *gpu_variables(request, run.gpu),
    ]


def gpu_variables(request: Request, model: str | None) -> list[VariableValue]:
    """The variable with the GPU model of a node, if it has one."""
    if model is None:
        return []
    return [VariableValue(GPU_VARIABLE, model, Precedence.RUN, f"the policy: {request.policy}")]


def checkpoint_variable(uuid: str) -> VariableValue:
    """The variable with the checkpoint of a run.

    The first epoch must not have it: HTCondor 25.5 refuses empty values, and any other value counts
    as defined in a template's "if defined continue_from_checkpoint".
    """
    where = "metlmon: where the epoch before leaves its checkpoint"
    return VariableValue(CHECKPOINT_VARIABLE, checkpoint_directory(uuid), Precedence.NODE, where)


# --- the runs of a graph --------------------------------------------------------------------


def run_plans(graph: Graph) -> tuple[RunPlan, ...]:
    """The runs of a graph, in the order of their first nodes."""
    runs: dict[str, list[GraphNode]] = {}
    for node in graph.all_nodes:
        # A sweep file may put other nodes into a run; these have no run_uuid.
        if node.run is not None and value_of(node, "run_uuid"):
            runs.setdefault(node.run, []).append(node)
    plans = []
    for run, nodes in runs.items():
        seed = value_of(nodes[0], "random_seed") or ""
        trainings = [node for node in nodes if node.role is NodeRole.TRAIN]
        models = (value_of(node, GPU_VARIABLE) for node in trainings)
        plan = RunPlan(
            name=run,
            uuid=value_of(nodes[0], "run_uuid") or "",
            seed=int(seed) if seed.isdecimal() else 0,
            targets=tuple(value_of(node, SITE_VARIABLE) or ANYWHERE for node in trainings),
            gpu=next(filter(None, models), None),
        )
        plans.append(plan)
    return tuple(plans)


def value_of(node: GraphNode, name: str) -> str | None:
    """The value of a node's variable; names are case-insensitive."""
    for variable in node.variables:
        if variable.name.lower() == name.lower():
            return variable.value
    return None


# --- the graph of a request ----------------------------------------------------------------


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
    """The node that trains ``epoch``, counted from 0, or that evaluates its checkpoint."""
    evaluation, epochs = request.evaluation, epochs_of(request)
    # The submit file of this role; with several stages, that of the last stage started.
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
    # At least three digits, so that the names look alike in bags of all sizes.
    width = max(3, len(str(max(0, count - 1))))
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
