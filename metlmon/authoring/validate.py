"""Validates a request field by field before anything is written."""

from __future__ import annotations

import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring.gate_config import INTERPRETER, has_gate
from metlmon.authoring.graph import MAX_NODES, Graph, NodeRole
from metlmon.authoring.request import (
    FIELDS,
    LONGEST_VALUE,
    EnsembleShape,
    PlanError,
    Policy,
    Request,
    RequestProblem,
    is_default,
    value_of,
)
from metlmon.authoring.runs import (
    ANYWHERE,
    SITE_VARIABLE,
    assigned_variables,
    build_graph,
    epochs_of,
    has_effect,
    name_problem,
    runs_of,
    shard_names,
    used_names,
    variable_problem,
)
from metlmon.authoring.templates import (
    JobTemplate,
    TemplateError,
    fill,
    jobs_of,
    placeholder_names,
    used_placeholders,
)
from metlmon.authoring.write_dag import (
    assignments,
    input_files,
    missing_file,
    nodes_by_file,
    placeholders,
    secret_variables,
)
from metlmon.authoring.write_files import leftover_problem, leftovers, other_dags, path_exists
from metlmon.dagman.submit_description import parse_description, submission
from metlmon.errors import nearest, prefix
from metlmon.redact import hide_value, is_secret_name, redact_secrets
from metlmon.text.formatting import listed

if TYPE_CHECKING:
    from metlmon.authoring.sweeps.expand import Expansion

SEEDS: Final = (0, 2**32 - 1)
"""The largest seed that numpy accepts."""

LONGEST_NAME: Final = 64
"""DAGMan appends up to 20 characters, and file names are limited to 255."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
SITE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+ -]{0,99}(?<! )")
"""Valid site names; they are used in a string of an expression."""

SECRET_REMEDY: Final = (
    "all who can read the directory or the queue see its value; put it into a file that only "
    "you can read, and add that to transfer_input_files"
)

_WORD: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", re.ASCII)
_UNWRITABLE: Final = re.compile(r'["\\]|\$\$?\w*\(')
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class Validation(Struct, frozen=True):
    """The problems of a request, and what was built to find them, which a plan needs, too.

    ``graph`` and ``expansion`` (of a sweep file) are None if they were not needed.
    """

    problems: tuple[RequestProblem, ...]
    jobs: tuple[JobTemplate, ...] = ()
    graph: Graph | None = None
    expansion: Expansion | None = None

    @property
    def fatal(self) -> list[RequestProblem]:
        """The problems that prevent a plan."""
        return [problem for problem in self.problems if problem.fatal]


def validate(
    request: Request, sites: Sequence[str] = (), amending: bool = False, gpus: Sequence[str] = ()
) -> Validation:
    """Find all problems of ``request``. Never raises.

    Reads the template and the target directory. ``sites``, ``gpus`` (models): those that the
    collector reports; empty if unknown. ``amending``: skip checks of an existing DAG of this name,
    which :mod:`metlmon.authoring.diff` makes.
    """
    problems = [
        *_numbers(request),
        *_name(request.name),
        *_seeds(request),
        *_sites(request, sites),
        *_gpu_models(request, gpus),
        *_directory(request, amending),
        *_shape(request),
    ]
    try:
        jobs = jobs_of(request)
    except TemplateError as error:
        problems.append(RequestProblem(error.field, str(error)))
        return Validation(_redacted(problems))
    problems += _unknown_values(request, jobs)
    for job in jobs:
        problems += _template(request, job)
    problems += _usage(request, jobs)
    graph, expansion = None, None
    if not any(problem.fatal for problem in problems):
        for job in jobs:
            problems += _required_files(request, job)
        if request.source is not None:
            # Imported late: most ensembles have no sweep file.
            from metlmon.authoring.sweeps.expand import expand

            try:
                expansion = expand(request)
            except PlanError as error:
                problems.append(RequestProblem("source", str(error)))
            else:
                graph = expansion.graph
                problems += _sweep_problems(request, jobs, expansion)
        elif request.regions:
            graph = build_graph(request, jobs)
            problems += _partly_defined_parameters(request, jobs, graph)
    return Validation(_redacted(problems), tuple(jobs), graph, expansion)


def _redacted(problems: Sequence[RequestProblem]) -> tuple[RequestProblem, ...]:
    """The problems without duplicates and without secrets that they might quote."""
    return tuple(
        dict.fromkeys(replace(problem, text=redact_secrets(problem.text)) for problem in problems)
    )


def warning(field: str, text: str) -> RequestProblem:
    """A problem with which the request can still be written."""
    return RequestProblem(field, text, fatal=False)


# --- numbers, name, seeds, sites -----------------------------------------------------------


def _numbers(request: Request) -> Iterator[RequestProblem]:
    """Numbers outside of their limits, except those without an effect on this shape."""
    for field in FIELDS.values():
        value = value_of(request, field.name) if field.limits is not None else None
        by_file = request.source is not None and field.name in ("runs", "epochs")
        if value is None or by_file or request.shape not in field.shapes:
            continue
        if (text := field.problem_of(value)) is not None:
            yield RequestProblem(field.name, text)
    if request.gpu_memory_mb is not None and request.gpus == 0:
        text = "no GPU is asked for, so its memory has no effect; ask for one, or leave it out"
        yield warning("gpu_memory_mb", text)


def _name(name: str) -> Iterator[RequestProblem]:
    if not name:
        yield RequestProblem("name", "the DAG has no name; give one such as ensemble")
    elif not _NAME.fullmatch(name):
        rule = "use letters, digits, '.', '_' and '-' only, and begin with a letter or digit"
        yield RequestProblem("name", f"{name!r} cannot be a DAG's name: {rule}")
    elif len(name) > LONGEST_NAME:
        text = f"a name of {len(name)} characters; use {LONGEST_NAME} at most"
        yield RequestProblem("name", text)
    elif name.endswith(".dag"):
        yield RequestProblem("name", f"leave '.dag' out: the file will be {name}.dag otherwise")


def _seeds(request: Request) -> Iterator[RequestProblem]:
    seeds, low, high = request.seeds, *SEEDS
    one_per_run = (
        request.shape not in (EnsembleShape.SWEEP, EnsembleShape.BAG) and request.source is None
    )
    if seeds and one_per_run and len(seeds) != request.runs:
        text = f"{len(seeds)} seeds for {request.runs} runs; give one for each run, or none"
        yield RequestProblem("seeds", text)
    if outside := [seed for seed in seeds if not low <= seed <= high]:
        yield RequestProblem("seeds", f"seed {outside[0]}: give numbers from {low} to {high}")
    if duplicates := _duplicates(seeds):
        text = f"{listed(duplicates)} is there more than once: those runs train the same model"
        yield warning("seeds", f"{text}; give each run its own")


def _sites(request: Request, known: Sequence[str]) -> Iterator[RequestProblem]:
    if not request.sites and request.policy in (Policy.PERMUTE, Policy.PIN):
        text = f"'{request.policy}' needs sites; name some, or take the policy 'any'"
        yield RequestProblem("policy", text)
    sites = [site for site in request.sites if site.lower() != ANYWHERE]
    if len(sites) < len(request.sites):
        text = f"'{ANYWHERE}' means anywhere, it is not a site; leave it out (policy 'any' does it)"
        yield RequestProblem("sites", text)
    rule = "a site's name: give the value of its GLIDEIN_ResourceName: no quotes, no commas"
    yield from _names_of_pool("sites", sites, known, rule)


def _gpu_models(request: Request, known: Sequence[str]) -> Iterator[RequestProblem]:
    """Problems of the GPU models that runs are pinned to; HTCondor ignores their case."""
    models, pinned = request.gpu_models, request.policy is Policy.GPU_PIN
    if pinned and not models:
        text = f"'{request.policy}' needs GPU models; name one such as NVIDIA A40 (its DeviceName)"
        yield RequestProblem("gpu_models", text)
    elif models and not pinned:
        text = f"only the policy '{Policy.GPU_PIN}' goes by GPU models"
        yield RequestProblem("gpu_models", f"{text}; take that, or leave them out")
    if pinned and request.gpus == 0:
        text = f"'{request.policy}' needs jobs that ask for a GPU; give 1 or more"
        yield RequestProblem("gpus", text)
    rule = "a GPU model: give its DeviceName, as condor_status names it: no quotes, no commas"
    yield from _names_of_pool("gpu_models", models, known, rule, fold=str.lower)


def _names_of_pool(
    field: str,
    names: Sequence[str],
    known: Sequence[str],
    rule: str,
    fold: Callable[[str], str] = str,
) -> Iterator[RequestProblem]:
    """Names that the collector should know. ``fold`` maps equivalent names to the same text."""
    known_names = set(map(fold, known))
    for name in names:
        if not SITE.fullmatch(name):
            yield RequestProblem(field, f"{name!r} cannot be {rule}")
        elif known and fold(name) not in known_names:
            yield warning(field, _unknown(name, known))
    if duplicates := _duplicates(map(fold, names)):
        yield RequestProblem(field, f"{listed(duplicates)} is named twice; name each once")


def _unknown(name: str, known: Sequence[str]) -> str:
    folded = {known_name.lower(): known_name for known_name in known}
    if similar := nearest(name.lower(), folded, cutoff=0.5):
        return f"the collector knows no {name} now; did you mean {folded[similar]}?"
    return f"the collector knows no {name} now, only {listed(known)}; its jobs would wait"


def _duplicates(items: Iterable[object]) -> list[str]:
    return [str(item) for item, times in Counter(items).items() if times > 1]


# --- the shape: sweeps, stages, regions, variables, the gate ---------------------------------


def _shape(request: Request) -> Iterator[RequestProblem]:
    """Return the problems that do not depend on the templates."""
    problems = [
        *(() if request.source is not None else (*_sweep(request), *_stages(request))),
        *_other_shapes(request),
        *_gate(request),
        *(problem for each in assigned_variables(request) for problem in _variable(*each)),
        *_regions(request),
    ]
    yield from problems
    if not any(problem.fatal for problem in problems) and request.source is None:
        yield from _node_count(request)


def _node_count(request: Request) -> Iterator[RequestProblem]:
    every = request.evaluation.every if request.evaluation is not None else 0
    epochs = epochs_of(request)
    nodes = _run_count(request) * (epochs + (epochs // every if every else 0))
    field = "epochs"
    if request.shape is EnsembleShape.BAG:
        nodes, field = request.shards, "shards"
    elif request.shape in (EnsembleShape.SWEEP, EnsembleShape.STAGES):
        field = str(request.shape)
    if nodes > MAX_NODES:
        text = f"{nodes} nodes are more than the {MAX_NODES} a DAG may have; make several DAGs"
        yield RequestProblem(field, text)


def _run_count(request: Request) -> int:
    """The number of runs. Raises PlanError if a sweep has none."""
    if request.shape is not EnsembleShape.SWEEP or request.sweep is None:
        return request.runs
    from metlmon.authoring.sweeps.values import points  # Imported late: most have no sweep.

    return len(points(request.sweep)) * max(1, len(request.seeds))


# --- the shapes -----------------------------------------------------------------------------


def _sweep(request: Request) -> Iterator[RequestProblem]:
    sweep = request.sweep
    if (request.shape is EnsembleShape.SWEEP) != (sweep is not None):
        text = "only a sweep sweeps; choose the shape 'sweep', or leave the values out"
        if sweep is None:
            text = "a sweep needs variables with values; say what is swept"
        yield RequestProblem("sweep", text)
        return
    if sweep is None:
        return
    yield from _word("sweep", sweep.group, "the name of runs")
    for variable in sweep.variables:
        if len(set(variable.values)) < len(variable.values):
            text = f"{variable.name} has a value more than once: those runs train the same model"
            yield warning("sweep", text)
    try:
        _run_count(request)
    except PlanError as error:
        yield RequestProblem("sweep", str(error))


def _word(field: str, name: str, what: str) -> Iterator[RequestProblem]:
    if not _WORD.fullmatch(name):
        text = f"{name!r} cannot be {what}; use letters, digits, '_' and '-', 64 at most"
        yield RequestProblem(field, text)


def _stages(request: Request) -> Iterator[RequestProblem]:
    stages = request.stages
    if (request.shape is EnsembleShape.STAGES) != bool(stages):
        text = "no stage is named" if not stages else "only the shape 'stages' has stages"
        remedy = "choose that shape, and name them with their epochs"
        yield RequestProblem("stages", f"{text}; {remedy}")
    for name, times in Counter(stage.name for stage in stages).items():
        yield from _word("stages", name, "a stage's name")
        if name == "evaluate" and request.evaluation is not None:
            text = f"two submit files would be called {request.name}-{name}.sub"
            yield RequestProblem("stages", f"{text}; give the stage another name")
        if times > 1:
            yield RequestProblem("stages", f"two stages are called {name}; give each its own name")
    for stage in stages:
        if problem := FIELDS["epochs"].problem_of(stage.epochs):
            yield RequestProblem(f"stages.{stage.name}.epochs", f"{stage.name}: {problem}")


def _other_shapes(request: Request) -> Iterator[RequestProblem]:
    """Problems of bags, of several machines, of sub-DAGs and of evaluations."""
    if request.shape is EnsembleShape.BAG:
        for field in ("evaluation", "gate"):
            if getattr(request, field) is not None:
                text = "a bag has shards and no epochs; leave this out, or choose another shape"
                yield RequestProblem(field, text)
    elif request.gather is not None:
        text = "only a bag is gathered; choose that shape, or leave this out"
        yield RequestProblem("gather", text)
    if request.shape is not EnsembleShape.MULTI_NODE and request.machines != 1:
        text = "only the shape 'multi-node' trains an epoch on several machines; choose that"
        yield RequestProblem("machines", text)
    reason = {
        EnsembleShape.BAG: "has no runs",
        EnsembleShape.MULTI_NODE: "has one provisioner for all runs",
    }.get(request.shape)
    if request.subdags and reason is not None:
        yield RequestProblem("subdags", f"'{request.shape}' {reason}; leave the sub-DAGs out")
    evaluation, epochs = request.evaluation, epochs_of(request)
    if evaluation is not None and evaluation.every > epochs and request.source is None:
        text = f"a run has {epochs} epochs, so none is evaluated; give {epochs} at most"
        yield RequestProblem("evaluation.every", text)


def _gate(request: Request) -> Iterator[RequestProblem]:
    rules = request.gate
    if rules is None:
        return
    if request.retries < 1:
        text = "a run is stopped at once by a retry that meets the gate; give 1 retry at least"
        yield RequestProblem("retries", text)
    if shutil.which(INTERPRETER) is None:
        text = f"{INTERPRETER} is not on PATH here: the gate would let every epoch train; put it on"
        yield warning("gate", f"{text} PATH where the DAG is submitted")
    if not rules.metric.strip() or not rules.metric.isprintable():
        yield RequestProblem("gate.metric", "no metric is named; give one such as val_loss")
    if rules.divergence is not None and not 1 < rules.divergence < math.inf:
        text = f"{rules.divergence} times the best value: give a number above 1"
        yield RequestProblem("gate.divergence", text)


# --- variables --------------------------------------------------------------------------------


def _variable(
    field: str, name: str, all_values: Iterable[str], where: str
) -> Iterator[RequestProblem]:
    """Problems of the name and of the values of a variable, defined at ``where``."""
    values = dict.fromkeys(all_values)
    problems = {value: _variable_problem(name, value) for value in values}
    for text in dict.fromkeys(filter(None, problems.values())):
        yield RequestProblem(field, prefix(where) + text)
    if any(not problem and hide_value(name, value) != value for value, problem in problems.items()):
        yield warning(field, f"{prefix(where)}{name} looks like a secret, and {SECRET_REMEDY}")


def _variable_problem(name: str, value: str) -> str | None:
    """Why a request cannot set this variable to this value; None if it can."""
    if text := name_problem(name) or variable_problem(name, value.strip() and value):
        return text
    if _UNWRITABLE.search(value):
        return f"the value of {name} holds a double quote, a backslash or '$(…)'; take it out"
    if len(value) > LONGEST_VALUE:
        return f"the value of {name} has {len(value)} characters; use {LONGEST_VALUE} at most"
    if name.lower() == SITE_VARIABLE.lower() and not SITE.fullmatch(value):
        return f"{value!r} cannot be a site's name: give that of its GLIDEIN_ResourceName"
    return None


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
            yield RequestProblem("regions", prefix(region.where) + text)


# --- the directory -------------------------------------------------------------------------


def _directory(request: Request, amending: bool) -> Iterator[RequestProblem]:
    directory = request.directory
    if _CONTROL.search(str(directory)):
        text = "its name holds a control character; choose another"
        yield RequestProblem("directory", text)
        return
    text = ""
    try:
        target = directory if path_exists(directory) else directory.absolute().parent
        if not target.is_dir() and target is directory:
            text = f"{directory}: is not a directory; choose another name"
        elif not target.is_dir():
            text = f"{target}: there is no such directory; make it first, or choose another"
        elif not os.access(target, os.W_OK | os.X_OK):
            text = f"{target}: you may not write there; choose another directory"
        elif not amending and target is directory:
            yield from _existing_dags(directory, request.name)
    except OSError as error:
        text = f"{directory}: cannot be looked into: {error.strerror}; choose another directory"
    if text:
        yield RequestProblem("directory", text)


def _existing_dags(directory: Path, name: str) -> Iterator[RequestProblem]:
    if text := leftover_problem(leftovers(directory, name), name):
        yield RequestProblem("directory", text)
    elif path_exists(directory / f"{name}.dag"):
        yield warning(
            "directory", f"{name}.dag is there already and is kept unless you say that it may go"
        )
    if others := other_dags(directory, name):
        lie = "lies" if len(others) == 1 else "lie"
        text = f"{listed(others)} {lie} there too and will be shown as the same ensemble"
        yield warning("directory", f"{text}; a new directory keeps them apart")


# --- the template --------------------------------------------------------------------------


def _template(request: Request, job: JobTemplate) -> Iterator[RequestProblem]:
    yield from _parameters(request, job)
    try:
        text = fill(job.template, placeholders(request, job, ()))
    except PlanError as error:
        yield RequestProblem(job.field, str(error))
        return
    commands = assignments(text)
    if job.field == "template":
        yield from _unused(request, job)
    if job.role is not NodeRole.PROVISION:  # It does no work of the ensemble.
        if not any(command.key in ("log", "userlog") for command in commands):
            log = "no 'log =': the jobs have no log of their own; add 'log = {name}.log'"
            yield warning(job.field, log)
        attributes = [c.value.lower() for c in commands if c.key == "ulog_execute_attrs"]
        if not any("glidein_resourcename" in names for names in attributes):
            line = "add 'ulog_execute_attrs = GLIDEIN_ResourceName' to the template"
            yield warning(job.field, f"the log will not have the sites; {line}")
    for _, variable in secret_variables(commands):
        secret = f"environment sets {variable}, which looks like a secret, and {SECRET_REMEDY}"
        yield warning(job.field, secret)


def _unknown_values(request: Request, jobs: Sequence[JobTemplate]) -> Iterator[RequestProblem]:
    """Values for parameters that no template has."""
    known = {name for job in jobs for name in job.values}
    unknown = [(jobs[0], f"values.{name}", name) for name in request.values if name not in known]
    for job in jobs:
        names = (name for name in job.own_values if name not in job.values)
        unknown += [(job, f"{job.values_field}.{name}", name) for name in names]
    for job, field, name in unknown:
        parameters = ", ".join(job.values) or "none"
        text = f"the template {job.template.name} has no parameter {name!r}; it has {parameters}"
        yield RequestProblem(field, text)


def _parameters(request: Request, job: JobTemplate) -> Iterator[RequestProblem]:
    swept = {variable.name for variable in request.sweep.variables} if request.sweep else set()
    for parameter in job.template.parameters:
        name, value = parameter.name, job.values[parameter.name]
        field = f"{job.values_field if name in job.own_values else 'values'}.{name}"
        if parameter.required and not value.strip() and name not in swept:
            help_text = f" ({parameter.help})" if parameter.help else ""
            yield RequestProblem(field, f"{name}{help_text} has no default; give a value")
        elif parameter.allowed is not None and value != parameter.default:
            expected = parameter.allowed.expectation(value)
            if expected is not None:
                text = f"{name} is {hide_value(name, value)!r}; give {expected}"
                yield RequestProblem(field, text)
        if not value.isprintable():
            text = f"{name} holds a line end or control character; take it out"
            yield RequestProblem(field, text)
        elif value.rstrip().endswith("\\"):
            text = f"{name} ends in '\\', which would join it to the next line; take that off"
            yield RequestProblem(field, text)
        elif len(value) > LONGEST_VALUE:
            text = f"{name} has {len(value)} characters; use {LONGEST_VALUE} at most"
            yield RequestProblem(field, text)
        looks_secret = is_secret_name(name) or hide_value(name, value) != value
        if looks_secret and value and value != parameter.default:
            yield warning(field, f"{name} looks like a secret, and {SECRET_REMEDY}")


_PLACEHOLDERS: Final = {
    "gpus": "request_gpus = {gpus}",
    "gpu_memory_mb": "?gpus_minimum_memory = {gpu_memory_mb}",
    "memory_mb": "request_memory = {memory_mb}",
    "sites": "requirements = {requirements}",
    "gpu_models": "?require_gpus = {require_gpus}",
    "machines": "queue {machines}",
}
"""The line of a template by which a field has an effect."""


def _unused(request: Request, job: JobTemplate) -> Iterator[RequestProblem]:
    """Fields that have no effect because the template lacks their placeholder."""
    used = used_placeholders(job.template)
    for field, line in _PLACEHOLDERS.items():
        missing = placeholder_names(line) - used
        if missing and not is_default(request, FIELDS[field]):
            text = f"the template does not ask for {{{min(missing)}}}, so this has no effect"
            yield warning(field, f"{text}; add a line such as '{line}' to it")


def _required_files(request: Request, job: JobTemplate) -> Iterator[RequestProblem]:
    """Files and directories that the jobs need. Called for a valid request only."""
    text = fill(job.template, placeholders(request, job, ()))
    shipped = {name for name, _, _ in job.template.shipped_files}
    # What a gathering job reads are outputs of the shards.
    for name in input_files(assignments(text)) if job.role is not NodeRole.GATHER else ():
        missing = missing_file(name, request.directory, Path())
        if missing is not None and name not in shipped:
            values = job.values.items()
            parameters = (key for key, value in values if value.strip() and name in value)
            field = next((f"values.{parameter}" for parameter in parameters), job.field)
            yield warning(field, missing)
    # HTCondor creates none of the directories of log and output.
    variables = {"run": "run0", "run_uuid": "uuid", "epoch": "1"}
    description = submission(parse_description(text.split("\n")), variables, {})
    paths = filter(None, (description.log, description.output, description.error))
    for folder in sorted(set(map(os.path.dirname, paths))):
        if folder and not os.path.exists(request.directory / folder):
            text = (
                f"log, output or error go to {folder}, which is not in {request.directory}: jobs "
                "would be held; write them beside the DAG, or make that directory before submitting"
            )
            yield warning(job.field, text)


def _partly_defined_parameters(
    request: Request, jobs: Sequence[JobTemplate], graph: Graph
) -> Iterator[RequestProblem]:
    """Required parameters that only some nodes have, and what defines them."""
    users = nodes_by_file(graph)
    for job in jobs:
        try:
            placeholders(request, job, users.get(job.file, ()))
        except PlanError as error:
            yield RequestProblem("regions" if request.source is None else "source", str(error))


def _sweep_problems(
    request: Request, jobs: Sequence[JobTemplate], expansion: Expansion
) -> Iterator[RequestProblem]:
    """Problems in a sweep file, and files that its DAG needs but that are missing."""
    assert request.source is not None
    yield from _partly_defined_parameters(request, jobs, expansion.graph)
    yield from expansion.warnings
    users = nodes_by_file(expansion.graph)
    shipped = {file[0] for job in jobs if job.file in users for file in job.template.shipped_files}
    for file in expansion.files:
        text = missing_file(file.name, request.directory, request.source.parent)
        if text is not None and file.data is None and file.name not in shipped:
            suffix = ", unless an earlier job brings it" if file.is_input else ""
            yield warning("source", f"{file.where}: {text}{suffix}")


def _usage(request: Request, jobs: Sequence[JobTemplate]) -> Iterator[RequestProblem]:
    """Problems of the request with its templates, such as unused variables."""
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
    for each in assigned_variables(request):
        yield from _variable_usage(jobs, *each)


def _variable_usage(
    jobs: Sequence[JobTemplate], field: str, name: str, values: Sequence[str], where: str
) -> Iterator[RequestProblem]:
    """Values of a variable that a template does not accept, or that none uses."""
    problems = {value: _variable_problem(name, value) for value in values}
    if values and all(problems.values()):
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
            # A value that looks like a secret is reported as a warning, without the value.
            is_reported = problems[value] or hide_value(name, value) != value
            if expected is not None and not is_reported:
                text = f"{name} is {value!r}; give {expected}"
                yield RequestProblem(field, prefix(where) + text)
    used = set[str]().union(*(used_names(job.template.text) for job in jobs))
    if not parameters and not has_effect(name, used):
        text = f"no template has a parameter {name!r} or uses $({name}), so it has no effect"
        text = f"{prefix(where)}{text}; correct the name"
        yield RequestProblem(field, text, fatal=field == "sweep")


def _unknown_runs(request: Request, jobs: Sequence[JobTemplate]) -> Iterator[RequestProblem]:
    """Regions that name runs that do not exist."""
    if not any(region.runs for region in request.regions):
        return
    try:
        names = (
            shard_names(request.shards)
            if request.shape is EnsembleShape.BAG
            else [run.name for run in runs_of(request, jobs)]
        )
    except PlanError:
        return  # Already reported.
    known = set(names)
    for region in request.regions:
        if unknown := [name for name in region.runs if name not in known]:
            text = f"the region {region.name} names the run {unknown[0]!r}, which there is not"
            examples = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
            text = f"{prefix(region.where)}{text}; they are called {examples}"
            yield RequestProblem("regions", text)
