"""The ensemble as an MLflow project: the files that ``mlproject = true`` adds beside the DAG.

``mlflow run . -b metlmon`` writes and submits an ensemble; without ``-b``, and by the gateway of a
facility, its nodes are executed on one machine (:mod:`metlmon.authoring.local_script`). Formats:
MLflow, "MLflow Projects"; for the gateway ``gateway_config.json`` of accre/mltf-gateway, whose
keys are those of a Slurm job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from metlmon.authoring.graph import Graph
from metlmon.authoring.local_script import local_script
from metlmon.authoring.project_parameters import ProjectParameter, project_parameters
from metlmon.authoring.request import PlannedFile, Request
from metlmon.authoring.write_dag import assignments

PROJECT_FILE: Final = "MLproject"
GATEWAY_FILE: Final = "gateway_config.json"
ENVIRONMENT_FILE: Final = "python_env.yaml"

ENTRY_POINT: Final = "main"
"""The only entry point: MLflow's default, and the one that the gateway runs."""

_YAML_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Names that YAML takes for another value."""

_ENVIRONMENT: Final = """\
# What MLflow installs where the jobs run without HTCondor: add what the training imports.
dependencies:
  - mlflow-skinny
"""


def mlproject_files(
    request: Request, graph: Graph, texts: Mapping[str, str]
) -> Iterator[PlannedFile]:
    """The files of the project; none unless the request has ``mlproject``.

    ``texts``: the submit files by name. Raises PlanError.
    """
    if not request.mlproject:
        return
    name = request.name
    parameters = project_parameters(request)
    script, reason = local_script(name, graph, texts, parameters)
    about = "runs the nodes without HTCondor" if reason is None else f"refuses: {reason}"
    for file, text, executable, what in (
        (PROJECT_FILE, _project(name, parameters), False, "for mlflow run . -b metlmon"),
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
    """One Slurm job in which the nodes run one after another; memory in MB.

    Partition, account and time are the facility's: the user adds them.
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
