"""The ensemble as an MLflow project: the files that ``mlproject = true`` adds beside the DAG.

``mlflow run . -b metlmon`` writes and submits an ensemble; without ``-b``, or through the gateway
of a facility, a shell script executes its nodes on one machine. MLflow passes parameters
(``-P runs=6``: what is trained) as text, and a configuration (``--backend-config``: where) as JSON.
Formats: MLflow, "MLflow Projects"; for the gateway ``gateway_config.json`` of accre/mltf-gateway,
whose keys are those of a Slurm job.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring.graph import ALWAYS_SUCCEEDS, Graph, GraphNode
from metlmon.authoring.request import (
    FIELDS,
    EnsembleShape,
    PlanError,
    PlannedFile,
    Request,
    RequestField,
    value_of,
    with_fields,
)
from metlmon.authoring.templates import jobs_of
from metlmon.authoring.write_dag import assignments, procs
from metlmon.dagman.records import NodeKind
from metlmon.dagman.reports import split_arguments
from metlmon.dagman.submit_description import (
    TRUE_WORDS,
    command_values,
    file_names,
    is_environment,
    parse_description,
)
from metlmon.errors import nearest
from metlmon.redact import is_secret_name

GATEWAY_FILE: Final = "gateway_config.json"
ENVIRONMENT_FILE: Final = "python_env.yaml"

ENTRY_POINT: Final = "main"
"""The only entry point: MLflow's default, and the one that the gateway runs."""

_YAML_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Names that YAML would parse as another value."""

_ENVIRONMENT: Final = """\
# What MLflow installs where the jobs run without HTCondor: add what the training imports.
dependencies:
  - mlflow-skinny
"""


def mlproject_files(
    request: Request, graph: Graph, texts: Mapping[str, str]
) -> Iterator[PlannedFile]:
    """The project's files; none without ``mlproject``. Raises PlanError."""
    if not request.mlproject:
        return
    name = request.name
    parameters = project_parameters(request)
    script, reason = _local_script(name, graph, texts, parameters)
    about = "runs the nodes without HTCondor" if reason is None else f"refuses: {reason}"
    for file, text, executable, what in (
        ("MLproject", _project(name, parameters), False, "for mlflow run . -b metlmon"),
        (ENVIRONMENT_FILE, _ENVIRONMENT, False, "what MLflow installs, without HTCondor"),
        (f"{name}.local.sh", script, True, about),
        (GATEWAY_FILE, _gateway(request, texts), False, "the Slurm job of a facility's gateway"),
    ):
        yield PlannedFile(file, text.encode(), executable, what)


def _project(name: str, parameters: tuple[ProjectParameter, ...]) -> str:
    """The text of ``MLproject``, as YAML; texts are written as JSON, which YAML contains."""
    lines = [
        "# mlflow run . -b metlmon -P NAME=VALUE writes and submits an ensemble with these values.",
        f"name: {json.dumps(name)}",
        f"python_env: {ENVIRONMENT_FILE}",
        "entry_points:",
        f"  {ENTRY_POINT}:",
        *(["    parameters:"] if parameters else []),
    ]
    for each in parameters:
        name_text = json.dumps(each.name) if each.name.lower() in _YAML_WORDS else each.name
        kind = "float" if each.is_count else "string"
        default = each.default if each.is_count else json.dumps(each.default)
        lines.append(f"      {name_text}: {{type: {kind}, default: {default}}}")
    words = ["sh", f"{name}.local.sh", *(f"{each.name}={{{each.name}}}" for each in parameters)]
    lines.append(f"    command: {json.dumps(' '.join(words))}")
    return "\n".join(lines) + "\n"


def _gateway(request: Request, texts: Mapping[str, str]) -> str:
    """One Slurm job that runs the nodes one after another; memory in MB.

    Partition, account and time depend on the facility: the user adds them.
    """
    cpus = [
        int(each.value)
        for text in texts.values()
        for each in assignments(text)
        if each.key == "request_cpus" and each.value.isdecimal()
    ]
    job: dict[str, object] = {
        "job_name": request.name,
        "nodes": 1,
        "cpus-per-task": max(cpus, default=1),
        "mem": str(request.memory_mb),
    }
    if request.gpus:
        job["gres"] = f"gpu:{request.gpus}"
    return json.dumps(job, indent=2) + "\n"


# --- parameters and configuration -------------------------------------------------------------


CONFIGURATION: Final[Mapping[str, RequestField]] = {
    field.key: field for field in FIELDS.values() if field.is_site
}
"""Keys of the configuration, as in a description."""


class ProjectParameter(Struct, frozen=True):
    """A parameter of the project. ``default``: as text; ``is_count``: a whole number."""

    name: str
    default: str
    is_count: bool = False


def project_parameters(request: Request) -> tuple[ProjectParameter, ...]:
    """Numbers, swept variables and parameters of the templates. Raises PlanError."""
    found: dict[str, ProjectParameter] = {}
    if request.source is None:
        for name, field in FIELDS.items():
            is_size = field.limits is not None and "." not in name and not field.is_site
            if is_size and request.shape in field.shapes:
                found[name] = ProjectParameter(name, str(value_of(request, name)), is_count=True)
        if request.shape is not EnsembleShape.BAG:
            found["seeds"] = ProjectParameter("seeds", ",".join(map(str, request.seeds)))
    for variable in request.sweep.variables if request.sweep is not None else ():
        default = ", ".join(map(_quoted, variable.values))
        found.setdefault(variable.name, ProjectParameter(variable.name, default))
    for job in jobs_of(request):
        for parameter in job.template.parameters:
            name = parameter.name
            value = request.values.get(name, parameter.default)
            if not is_secret_name(name):
                found.setdefault(name, ProjectParameter(name, value))
    return tuple(found.values())


def _quoted(value: str) -> str:
    """A value of a list, in the form that :func:`metlmon.authoring.sweeps.values.values` reads."""
    if value == value.strip() and not any(sign in value for sign in "\"',\\"):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def with_parameters(request: Request, texts: Mapping[str, str]) -> Request:
    """The request with these values of its parameters. Raises PlanError."""
    known = {parameter.name: parameter for parameter in project_parameters(request)}
    sweep = request.sweep
    swept = {} if sweep is None else {variable.name: variable for variable in sweep.variables}
    fields: dict[str, Any] = {}
    values = dict(request.values)
    for name, text in texts.items():
        where = f"-P {name}"
        if name not in known:
            raise _unknown(where, name, known, "the parameters of this project")
        if known[name].is_count or name == "seeds":
            fields[name] = _read(FIELDS[name], where, text)
        elif name in swept:
            from metlmon.authoring.sweeps.values import values as swept_values  # Rarely needed.

            swept[name] = replace(swept[name], values=swept_values(text, where), where=where)
        else:
            values[name] = text
    if sweep is not None:
        fields["sweep"] = replace(sweep, variables=tuple(swept.values()))
    return with_fields(request, {**fields, "values": values})


def with_configuration(request: Request, configuration: Mapping[str, object]) -> Request:
    """The request with the resources and places of a configuration. Raises PlanError."""
    values = {}
    for key, value in configuration.items():
        where = f"--backend-config {key}"
        if key not in CONFIGURATION:
            raise _unknown(where, key, CONFIGURATION, "the keys of metlmon's configuration")
        values[CONFIGURATION[key].name] = _read(CONFIGURATION[key], where, value)
    return with_fields(request, values)


def _read(field: RequestField, where: str, value: object) -> Any:
    try:
        return field.read(value)
    except ValueError as error:
        raise PlanError(f"{where}: {value!r} {error}") from None


def _unknown(where: str, name: str, known: Collection[str], what: str) -> PlanError:
    similar = nearest(name, known)
    hint = f"did you mean {similar}? " if similar else ""
    return PlanError(f"{where[:100]}: there is none; {hint}{what} are {', '.join(known)}")


# --- the nodes without HTCondor ---------------------------------------------------------------
# MLflow's local backend starts the script, and so does the gateway of a facility, on a separate
# node. Jobs that need HTCondor for more than a place to run are not executed: the script then ends
# with the reason. Only HTCondor provides retries and gates.

_COMMANDS: Final = tuple(
    """
    universe executable arguments transfer_input_files transfer_output_files preserve_relative_paths
    initialdir input
    """.split()
)

_GRAPH_COMMANDS: Final = frozenset({"SPLICE", "INCLUDE", "PARENT", "CONNECT", "FINAL", "SERVICE"})
"""Commands of a DAG file, kept as written, that affect the order of the nodes."""


class _NeedsHTCondor(Exception):
    """Why a job cannot be executed without HTCondor; ``str()`` is the reason."""


def _local_script(
    name: str, graph: Graph, texts: Mapping[str, str], parameters: Sequence[ProjectParameter]
) -> tuple[str, str | None]:
    """The script of the DAG ``name``, and the reason why its jobs need HTCondor, if they do."""
    try:
        nodes = "\n".join(f"{command} &&" for command in _commands(graph, texts))
    except _NeedsHTCondor as reason:
        message = f"{name}.local.sh: not without HTCondor: {reason}; mlflow run . -b metlmon"
        return f"#!/bin/sh\necho {shlex.quote(message)} >&2\nexit 2\n", str(reason)
    words = [f"{parameter.name}={parameter.default}" for parameter in parameters]
    values = " | ".join(map(shlex.quote, words or [""]))
    outputs = sorted({word for text in texts.values() for word in _outputs(text)})
    return _SCRIPT.format(name=name, values=values, nodes=nodes, outputs=shlex.join(outputs)), None


_SCRIPT: Final = """\
#!/bin/sh
# Executes the nodes of {name}.dag here, one after another, without HTCondor: for mlflow run . and
# for the gateway of a facility. mlflow run . -b metlmon submits an ensemble to HTCondor instead.
for each in "$@"; do
    case $each in
        {values}) ;;
        *)
            echo "{name}.local.sh: $each: this was written for another value; write it" \\
                "again with metlmon new --mlproject; mlflow run . -b metlmon takes any value" >&2
            exit 2
            ;;
    esac
done
cd "$(dirname "$0")" || exit 2

run() {{
    echo "== $1"
    shift
    "$@"
}}

{nodes}
true
status=$?

# A facility removes the directory afterwards: what is to be kept goes into the MLflow run.
for each in {outputs}; do
    if [ -n "$MLFLOW_RUN_ID" ] && [ -d "$each" ]; then
        python3 -m mlflow artifacts log-artifacts --run-id "$MLFLOW_RUN_ID" \\
            --local-dir "$each" --artifact-path "$each" || status=1
    fi
done
exit $status
"""


def _commands(graph: Graph, texts: Mapping[str, str]) -> Iterator[str]:
    """A command for each node, parents first. Raises _NeedsHTCondor."""
    for line in "\n".join(graph.lines).split("\n"):
        if line.split(None, 1)[:1] and line.split(None, 1)[0].upper() in _GRAPH_COMMANDS:
            raise _NeedsHTCondor(f"its DAG has a {line.split()[0].upper()}")
    for node in _ordered(graph):
        if node.kind is NodeKind.PROVISIONER:
            raise _NeedsHTCondor("several machines train together")
        if node.kind is NodeKind.SUBDAG:
            if node.submit not in graph.subdags:
                raise _NeedsHTCondor(f"{node.submit} is a DAG of its own")
            yield from _commands(graph.subdags[node.submit], texts)
        elif not node.noop:
            command = f"run {shlex.quote(node.name)} {shlex.join(_job(node, texts))}"
            yield f"{{ {command} || true; }}" if node.post == ALWAYS_SUCCEEDS else command


def _ordered(graph: Graph) -> list[GraphNode]:
    """The nodes in the order of the file, but each after its parents."""
    parents: dict[str, list[str]] = {}
    for parent, child in graph.edges:
        parents.setdefault(child, []).append(parent)
    by_name = {node.name: node for node in graph.nodes}
    done: dict[str, None] = {}
    open_names: set[str] = set()
    for name in by_name:
        stack = [name]
        while stack:
            top = stack[-1]
            missing = [each for each in parents.get(top, ()) if each not in done]
            if top in done or not missing:
                done[stack.pop()] = None
            elif top in open_names or any(each not in by_name for each in missing):
                raise _NeedsHTCondor(f"the parents of {top} are not all nodes of the file")
            else:
                open_names.add(top)
                stack += reversed(missing)
    return [by_name[name] for name in done]


def _job(node: GraphNode, texts: Mapping[str, str]) -> list[str]:
    """The words of a job's command line. Raises _NeedsHTCondor."""
    text = texts.get(node.submit)
    if text is None:
        raise _NeedsHTCondor(f"{node.submit} is not written by metlmon")
    if node.post not in (None, ALWAYS_SUCCEEDS) or (node.pre is not None and node.defer is None):
        raise _NeedsHTCondor(f"{node.name} has a script of DAGMan's")
    statements = assignments(text)
    if any(is_environment(each.key) or each.key == "getenv" for each in statements):
        raise _NeedsHTCondor(f"{node.submit} sets an environment")
    if procs(text) != 1:
        raise _NeedsHTCondor(f"{node.submit} queues several jobs")
    before = {"JOB": node.name} | {
        each.name: each.value for each in node.variables if not each.append
    }
    after = {each.name: each.value for each in node.variables if each.append}
    description = parse_description(text.split("\n"))
    values = {
        name: (value or "").strip()
        for name, value in command_values(description, before, after, _COMMANDS).items()
    }
    if values["universe"].lower() not in ("", "vanilla", "local", "scheduler") or any(
        each.key in ("container_image", "docker_image") for each in statements
    ):
        raise _NeedsHTCondor(f"{node.submit} runs in a container, or as no ordinary process")
    if values["initialdir"] or values["input"]:
        raise _NeedsHTCondor(f"{node.submit} sets initialdir or input")
    inputs = file_names(values["transfer_input_files"])
    if any("://" in name for name in inputs):
        raise _NeedsHTCondor(f"{node.submit} transfers a URL")
    moves = values["preserve_relative_paths"].lower() not in TRUE_WORDS
    if moves and any("/" in name.rstrip("/") for name in inputs):
        raise _NeedsHTCondor(f"{node.submit} transfers files of other directories")
    words = [values["executable"], *split_arguments(values["arguments"])]
    if not words[0] or "$" in " ".join(words):
        raise _NeedsHTCondor(f"{node.submit} has macros that are known to HTCondor alone")
    return [words[0] if "/" in words[0] else f"./{words[0]}", *words[1:]]


def _outputs(text: str) -> Iterator[str]:
    """Names of the directories or files that a submit file transfers back."""
    for command in assignments(text):
        if command.key == "transfer_output_files":
            yield from (name for name in file_names(command.value) if "$" not in name)
