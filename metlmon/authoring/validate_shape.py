"""Validates the shape of a request: sweeps, stages, regions, variables, the gate."""

from __future__ import annotations

import math
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from metlmon.authoring.build_graph import shard_names
from metlmon.authoring.gate_config import INTERPRETER, has_gate
from metlmon.authoring.graph import MOST_NODES, NodeRole
from metlmon.authoring.request import (
    LONGEST_VALUE,
    EnsembleShape,
    PlanError,
    Request,
    RequestProblem,
)
from metlmon.authoring.runs import (
    OWN_VARIABLES,
    SITE_VARIABLE,
    epochs_of,
    has_effect,
    is_reserved,
    runs_of,
    used_names,
)
from metlmon.authoring.templates import JobTemplate, used_placeholders
from metlmon.redact import hide_value

MACHINES: Final = (2, 64)
"""Machines that train an epoch together; more are seldom free at the same time."""

STAGE_EPOCHS: Final = (1, 10_000)
POLL: Final = (5, 86_400)
"""Seconds; DAGMan starts a process for each check of each paused run."""

LONGEST_NAME: Final = 64
"""DAGMan appends up to 20 characters, and file names are limited to 255."""

SITE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+ -]{0,99}(?<! )")
"""Valid site names; they are used in a string of an expression."""

SECRET_REMEDY: Final = (
    "all who can read the directory or the queue see its value; put it into a file that only "
    "you can read, and add that to transfer_input_files"
)

_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_WORD: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*", re.ASCII)
_UNWRITABLE: Final = re.compile(r'["\\]|\$\$?\w*\(')


def warning(field: str, text: str) -> RequestProblem:
    """A problem with which the request can still be written."""
    return RequestProblem(field, text, fatal=False)


def validate_shape(request: Request) -> Iterator[RequestProblem]:
    """Return the problems that do not depend on the templates."""
    problems = [
        *(() if request.source is not None else (*_sweep(request), *_stages(request))),
        *_other_shapes(request),
        *_evaluation(request),
        *_gate(request),
        *(problem for each in _assigned(request) for problem in _variable(*each)),
        *_regions(request),
    ]
    yield from problems
    if not any(problem.fatal for problem in problems) and request.source is None:
        yield from _node_count(request)


def _node_count(request: Request) -> Iterator[RequestProblem]:
    """A DAG with too many nodes."""
    every = request.evaluation.every if request.evaluation is not None else 0
    epochs = epochs_of(request)
    nodes = _run_count(request) * (epochs + (epochs // every if every else 0))
    field = "epochs"
    if request.shape is EnsembleShape.BAG:
        nodes, field = request.shards, "shards"
    elif request.shape in (EnsembleShape.SWEEP, EnsembleShape.STAGES):
        field = str(request.shape)
    if nodes > MOST_NODES:
        text = f"{nodes} nodes are more than the {MOST_NODES} a DAG may have; make several DAGs"
        yield RequestProblem(field, text)


def _run_count(request: Request) -> int:
    """The number of runs. Raises PlanError if a sweep has none."""
    if request.shape is not EnsembleShape.SWEEP or request.sweep is None:
        return request.runs
    from metlmon.authoring.sweeps.values import points  # Imported late: most have no sweep.

    return len(points(request.sweep)) * max(1, len(request.seeds))


def range_problem(
    field: str, text: str, value: int, limits: tuple[int, int]
) -> Iterator[RequestProblem]:
    """The problem ``text`` if ``value`` is not within ``limits``."""
    low, high = limits
    if not low <= value <= high:
        yield RequestProblem(field, f"{text}: give a number from {low} to {high}")


# --- the shapes -----------------------------------------------------------------------------


def _sweep(request: Request) -> Iterator[RequestProblem]:
    sweep = request.sweep
    if (request.shape is EnsembleShape.SWEEP) != (sweep is not None):
        text = "a sweep needs variables with values" if sweep is None else "only a sweep sweeps"
        yield RequestProblem("sweep", f"{text}; choose the shape 'sweep' and say what is swept")
        return
    if sweep is None:
        return
    if not _WORD.fullmatch(sweep.group) or len(sweep.group) > LONGEST_NAME:
        text = f"{sweep.group!r} cannot be the name of runs; use letters, digits, '_' and '-'"
        yield RequestProblem("sweep", text)
    for variable in sweep.variables:
        if len(set(variable.values)) < len(variable.values):
            text = f"{variable.name} has a value more than once: those runs train the same model"
            yield warning("sweep", text)
    try:
        _run_count(request)
    except PlanError as error:
        yield RequestProblem("sweep", str(error))


def _stages(request: Request) -> Iterator[RequestProblem]:
    stages = request.stages
    if (request.shape is EnsembleShape.STAGES) != bool(stages):
        text = "no stage is named" if not stages else "only the shape 'stages' has stages"
        remedy = "choose that shape, and name them with their epochs"
        yield RequestProblem("stages", f"{text}; {remedy}")
    for name, times in Counter(stage.name for stage in stages).items():
        if not _WORD.fullmatch(name) or len(name) > LONGEST_NAME:
            text = f"{name!r} cannot be a stage's name; use letters, digits, '_' and '-'"
            yield RequestProblem("stages", text)
        if name == "evaluate" and request.evaluation is not None:
            text = f"two submit files would be called {request.name}-{name}.sub"
            yield RequestProblem("stages", f"{text}; give the stage another name")
        if times > 1:
            yield RequestProblem("stages", f"two stages are called {name}; give each its own name")
    for stage in stages:
        text = f"{stage.epochs} epochs of the stage {stage.name}"
        yield from range_problem(f"stages.{stage.name}.epochs", text, stage.epochs, STAGE_EPOCHS)


def _other_shapes(request: Request) -> Iterator[RequestProblem]:
    """Problems of bags, of several machines and of sub-DAGs."""
    if request.shape is EnsembleShape.BAG:
        text = f"{request.shards} shards"
        yield from range_problem("shards", text, request.shards, (1, MOST_NODES))
        for field in ("evaluation", "gate"):
            if getattr(request, field) is not None:
                text = "a bag has shards and no epochs; leave this out, or choose another shape"
                yield RequestProblem(field, text)
    elif request.gather is not None:
        text = "only a bag is gathered; choose that shape, or leave this out"
        yield RequestProblem("gather", text)
    if request.shape is EnsembleShape.MULTI_NODE:
        text = f"{request.machines} machines for an epoch"
        yield from range_problem("machines", text, request.machines, MACHINES)
    elif request.machines != 1:
        text = "only the shape 'multi-node' trains an epoch on several machines; choose that"
        yield RequestProblem("machines", text)
    reason = {
        EnsembleShape.BAG: "has no runs",
        EnsembleShape.MULTI_NODE: "has one provisioner for all runs",
    }.get(request.shape)
    if request.subdags and reason is not None:
        yield RequestProblem("subdags", f"'{request.shape}' {reason}; leave the sub-DAGs out")


def _evaluation(request: Request) -> Iterator[RequestProblem]:
    evaluation = request.evaluation
    if evaluation is None:
        return
    epochs = epochs_of(request)
    if evaluation.every < 1:
        text = f"after every {evaluation.every} epochs: give a number from 1 on"
        yield RequestProblem("evaluation.every", text)
    elif evaluation.every > epochs and request.source is None:
        text = f"a run has {epochs} epochs, so none is evaluated; give {epochs} at most"
        yield RequestProblem("evaluation.every", text)


def _gate(request: Request) -> Iterator[RequestProblem]:
    rules = request.gate
    if rules is None:
        return
    if request.retries < 1:
        text = "a run is stopped at once by a retry that meets the gate; give 1 retry at least"
        yield RequestProblem("retries", text)
    text = f"{rules.poll} seconds between two questions"
    yield from range_problem("gate.poll", text, rules.poll, POLL)
    if shutil.which(INTERPRETER) is None:
        text = f"{INTERPRETER} is not on PATH here: the gate would let every epoch train; put it on"
        yield warning("gate", f"{text} PATH where the DAG is submitted")
    if not rules.metric.strip() or not rules.metric.isprintable():
        yield RequestProblem("gate.metric", "no metric is named; give one such as val_loss")
    for field, number in (("patience", rules.patience), ("median_after", rules.median_after)):
        if number is not None and number < 1:
            yield RequestProblem(f"gate.{field}", f"{number} epochs: give a number from 1 on")
    if not 0 <= rules.min_delta < math.inf:
        text = f"an improvement of {rules.min_delta}: give a number from 0 on"
        yield RequestProblem("gate.min_delta", text)
    if rules.divergence is not None and not 1 < rules.divergence < math.inf:
        text = f"{rules.divergence} times the best value: give a number above 1"
        yield RequestProblem("gate.divergence", text)


# --- variables --------------------------------------------------------------------------------


def _assigned(request: Request) -> Iterator[tuple[str, str, Sequence[str], str]]:
    """The variables of a request: field, name, values, and where they are defined."""
    for variable in request.sweep.variables if request.sweep is not None else ():
        yield "sweep", variable.name, variable.values, variable.where
    for name, value in request.variables.items():
        yield "variables", name, (value,), ""
    for region in request.regions:
        for name, value in region.variables.items():
            yield "regions", name, (value,), region.where


def _variable(
    field: str, name: str, all_values: Iterable[str], where: str
) -> Iterator[RequestProblem]:
    """Problems of the name and of the values of a variable, defined at ``where``."""
    values = dict.fromkeys(all_values)
    for text in filter(None, (_name_problem(name), *(_value_problem(name, v) for v in values))):
        yield RequestProblem(field, _prefix(where) + text)
    if any(hide_value(name, value) != value for value in values if not _value_problem(name, value)):
        yield warning(field, f"{_prefix(where)}{name} looks like a secret, and {SECRET_REMEDY}")


def _prefix(where: str) -> str:
    return f"{where}: " if where else ""


def _name_problem(name: str) -> str:
    if not _VARIABLE.fullmatch(name) or len(name) > LONGEST_NAME:
        rule = "use letters, digits and '_', and begin with a letter"
        return f"{name!r} cannot be a variable's name: {rule}"
    if name.lower() in OWN_VARIABLES:
        return f"{name} is given by metlmon itself; choose another name"
    return f"{name} means something to HTCondor; choose another name" if is_reserved(name) else ""


def _value_problem(name: str, value: str) -> str:
    text = ""
    if not value.strip():
        text = f"{name} is empty, which HTCondor 25.5 refuses; leave it out"
    elif not value.isprintable():
        text = f"the value of {name} holds a line end or control character; take it out"
    elif _UNWRITABLE.search(value):
        text = f"the value of {name} holds a double quote, a backslash or '$(…)'; take it out"
    elif len(value) > LONGEST_VALUE:
        text = f"the value of {name} has {len(value)} characters; use {LONGEST_VALUE} at most"
    elif name.lower() == SITE_VARIABLE.lower() and not SITE.fullmatch(value):
        text = f"{value!r} cannot be a site's name: give that of its GLIDEIN_ResourceName"
    return text


def _regions(request: Request) -> Iterator[RequestProblem]:
    for name, times in Counter(region.name for region in request.regions).items():
        if times > 1:
            text = f"two regions are called {name!r}; give each its own name"
            yield RequestProblem("regions", text)
    epochs = epochs_of(request)
    for region in request.regions:
        if region.epochs is None or request.source is not None:
            continue
        first, last = region.epochs
        text = ""
        if request.shape is EnsembleShape.BAG:
            text = f"the region {region.name} names epochs, and a bag has none; leave them out"
        elif not 0 <= first <= last < epochs:
            text = f"the region {region.name} has epochs {first} to {last}"
            text += f"; they count from 0 to {epochs - 1}"
        if text:
            yield RequestProblem("regions", _prefix(region.where) + text)


# --- templates ----------------------------------------------------------------------------------


def validate_usage(request: Request, jobs: Sequence[JobTemplate]) -> Iterator[RequestProblem]:
    """Problems of the request with its templates.

    Variables that no template uses, values that a template does not accept, and templates for
    another purpose.
    """
    for job in jobs:
        if job.template.path is None and job.template.role is not job.role:
            text = f"the template {job.template.name} is there to {job.template.role}"
            yield RequestProblem(job.field, f"{text}, not to {job.role}; choose another")
        gated = has_gate(request, job.role) and job.role is NodeRole.TRAIN
        if gated and "requirements" not in used_placeholders(job.template):
            text = "the template does not ask for {requirements}, so no epoch can be sent elsewhere"
            yield warning("gate", f"{text}; add 'requirements = {{requirements}}' to it")
    if request.source is not None:
        return  # The variables are in the sweep file, which is read later.
    yield from _unknown_runs(request, jobs)
    for each in _assigned(request):
        yield from _usage(jobs, *each)


def _usage(
    jobs: Sequence[JobTemplate], field: str, name: str, values: Sequence[str], where: str
) -> Iterator[RequestProblem]:
    """Values of a variable that a template does not accept, or that none uses."""
    if _name_problem(name):
        return  # Already reported.
    parameters = [
        parameter
        for job in jobs
        for parameter in job.template.parameters
        if parameter.name.lower() == name.lower()
    ]
    for constraint in (parameter.allowed for parameter in parameters):
        for value in dict.fromkeys(values) if constraint is not None else ():
            expected = constraint.expectation(value) if constraint is not None else None
            # Of a value that looks like a secret a warning is given, without the value.
            is_reported = _value_problem(name, value) or hide_value(name, value) != value
            if expected is not None and not is_reported:
                text = f"{name} is {value!r}; give {expected}"
                yield RequestProblem(field, _prefix(where) + text)
    used = set[str]().union(*(used_names(job.template.text) for job in jobs))
    if not parameters and not has_effect(name, used):
        text = f"no template has a parameter {name!r} or uses $({name}), so it has no effect"
        text = f"{_prefix(where)}{text}; correct the name"
        yield RequestProblem(field, text, fatal=field == "sweep")


def _unknown_runs(request: Request, jobs: Sequence[JobTemplate]) -> Iterator[RequestProblem]:
    """Regions that name runs that do not exist."""
    if not any(region.runs for region in request.regions):
        return
    try:
        names = (
            shard_names(request.shards)
            if request.shape is EnsembleShape.BAG
            else [swept_run.plan.name for swept_run in runs_of(request, jobs)]
        )
    except PlanError:
        return  # Already reported.
    known = set(names)
    for region in request.regions:
        if unknown := [name for name in region.runs if name not in known]:
            text = f"the region {region.name} names the run {unknown[0]!r}, which there is not"
            examples = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
            text = f"{_prefix(region.where)}{text}; they are called {examples}"
            yield RequestProblem("regions", text)
