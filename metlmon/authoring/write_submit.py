"""Writes submit files: templates filled in with what all nodes have in common."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from metlmon.authoring.gate_config import SUBMIT_HEAD
from metlmon.authoring.graph import Graph, GraphNode, VariableValue
from metlmon.authoring.request import EnsembleShape, PlanError, PlannedFile, Request
from metlmon.authoring.runs import epochs_of, require_gpus, requirements
from metlmon.authoring.templates import JobTemplate, fill, may_be_dropped
from metlmon.dagman.submit_description import Statement, parse_description, submission
from metlmon.redact import HIDDEN, is_secret_name, redact_secrets


class PartlyDefined(PlanError):
    """A parameter that all nodes need has a value for only some of them.

    ``variable``: one of its definitions.
    """

    def __init__(self, variable: VariableValue, message: str) -> None:
        super().__init__(message)
        self.variable = variable


def submit_file_text(request: Request, job: JobTemplate, nodes: Sequence[GraphNode]) -> str:
    """Return the submit file of ``nodes``. Raises PlanError if a value is missing."""
    text = fill(job.template, placeholders(request, job, nodes))
    head = f"# Written for {request.name}.dag, from the template {job.template.name}.\n"
    if any(node.pre is not None for node in nodes):
        head += SUBMIT_HEAD
    statements = parse_description(text.split("\n")).statements
    has_queue = any(each.key == "queue" and each.directive for each in statements)
    return head + text + ("" if has_queue else "queue\n")


def placeholders(request: Request, job: JobTemplate, nodes: Sequence[GraphNode]) -> dict[str, str]:
    """The value of each placeholder, including the built-in ones.

    A parameter that the nodes define as a variable becomes a macro; the value here is the default
    for nodes that do not define it. Raises PartlyDefined if a macro cannot have this default.
    """
    variables: dict[str, list[VariableValue]] = defaultdict(list)
    for node in nodes:
        for variable in node.variables:
            variables[variable.name.lower()].append(variable)
    parameters = {
        name: _placeholder_value(job, name, variables[name.lower()], node_count=len(nodes))
        for name in job.values
    }
    return {
        **parameters,
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
    job: JobTemplate, name: str, variables: Sequence[VariableValue], node_count: int
) -> str:
    """``variables``: those of this name among the ``node_count`` nodes."""
    value = job.values[name]
    if not variables:
        return value
    if len(variables) == node_count:
        return f"$({name})"
    problem = f"only some nodes of {job.file} have a value of {name}"
    if value.strip() in ("", "0") and name in may_be_dropped(job.template):
        text = f"{problem}; give one for the others, too (values.{name})"
        raise PartlyDefined(variables[0], text)
    if "(" in value or ")" in value:
        text = "and that of the others holds a ')' or '('; give it as a variable"
        raise PartlyDefined(variables[0], f"{problem}, {text}")
    return f"$({name}:{value})"


def nodes_by_file(graph: Graph) -> Mapping[str, list[GraphNode]]:
    """The nodes of each submit file, including those of sub-DAGs."""
    result: dict[str, list[GraphNode]] = {}
    for part in graph.parts:
        for node in part.nodes:
            result.setdefault(node.submit, []).append(node)
    return result


def procs(text: str) -> int:
    """Number of jobs per node; 1 if the text alone does not determine it."""
    return submission(parse_description(text.split("\n")), {}, {}).queue_count or 1


# --- reading submit descriptions -----------------------------------------------------------------


_VARIABLE: Final = re.compile(r"""(?:^|[\s;"'])([A-Za-z_]\w*)=('[^']*'|[^\s;"']*)""")

_ENVIRONMENTS: Final = frozenset({"environment", "environment2", "env"})

_NAMES: Final = r"(?:\+|my\.)?env(?:ironment2?)?"
_SET: Final = re.compile(
    rf"(^|\s)({_NAMES}[ \t]*=)(?!=)[^\n]*(?:(?<=\\)\r?\n[^\n]*)*", re.IGNORECASE | re.MULTILINE
)
_TAGGED: Final = re.compile(
    rf"^([ \t]*{_NAMES}[ \t]*@=(\S+)[ \t]*\r?\n).*?(?=^[ \t]*@\2|\Z)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)


def assignments(text: str) -> list[Statement]:
    """All assignments in the order of the file, including those under an ``if``."""
    statements = parse_description(text.split("\n")).statements
    return [statement for statement in statements if not statement.directive]


def input_files(commands: list[Statement]) -> list[str]:
    """Files transferred from the DAG's directory, as written.

    Without URLs and names that contain macros.
    """
    sends_executable = not any(
        command.key == "transfer_executable" and command.value.lower() in ("false", "f", "no", "0")
        for command in commands
    )
    names: dict[str, None] = {}
    for command in commands:
        if command.key == "transfer_input_files" or (
            command.key == "executable" and sends_executable
        ):
            for name in command.value.strip('"').split(","):
                name = name.strip()
                if name and "$" not in name and "://" not in name:
                    names[name] = None
    return list(names)


def secret_variables(commands: list[Statement]) -> list[tuple[int, str]]:
    """(line, variable) of variables in the job's environment that look like secrets."""
    return [
        (command.line, variable)
        for command in commands
        if command.key.removeprefix("my.") in _ENVIRONMENTS
        for variable, value in _VARIABLE.findall(command.value)
        if is_secret_name(variable) and value.strip("'") and not value.startswith("$")
    ]


def without_secrets(text: str) -> str:
    """A DAG file or submit description without environment values and other secrets."""
    text = _SET.sub(rf"\1\2 {HIDDEN}", _TAGGED.sub(rf"\1{HIDDEN}\n", text))
    if "-----BEGIN" in text:
        return redact_secrets(text)
    # Line by line is faster: most lines are quickly known to hold no secret.
    return "\n".join(map(redact_secrets, text.split("\n")))


def redacted_text(file: PlannedFile) -> str:
    """The text of a planned file with secrets redacted."""
    text = file.data.decode("utf-8", "backslashreplace")
    is_job_text = file.name.endswith((".dag", ".sub", ".template"))
    return without_secrets(text) if is_job_text else redact_secrets(text)
