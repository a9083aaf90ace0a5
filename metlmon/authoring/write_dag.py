"""Writes the texts of a DAG file and its submit files, from graph and templates.

Source followed: HTCondor manual, "DAG input file reference". The text is accepted by 23.9 and by
the strict parser of 25.5 and later.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from metlmon.authoring.gate_config import SUBMIT_HEAD
from metlmon.authoring.graph import Graph, GraphNode, VariableValue
from metlmon.authoring.request import EnsembleShape, PlanError, Request
from metlmon.authoring.runs import epochs_of, require_gpus, requirements, variable_problem
from metlmon.authoring.templates import JobTemplate, fill, may_be_dropped
from metlmon.dagman.records import NodeKind
from metlmon.dagman.submit_description import (
    FALSE_WORDS,
    Statement,
    file_names,
    is_environment,
    parse_description,
    submission,
)
from metlmon.redact import is_secret_name

STATUS_SECONDS: Final = 30
"""Update interval of DAGMan's node status file; the same as that of queue queries."""

_COMMANDS: Final = {
    NodeKind.JOB: "JOB",
    NodeKind.SUBDAG: "SUBDAG EXTERNAL",
    NodeKind.PROVISIONER: "PROVISIONER",
    NodeKind.SERVICE: "SERVICE",
    NodeKind.FINAL: "FINAL",
}

_WORD: Final = re.compile(r"[^\s\"'+#\x00-\x1f\x7f][^\s\"'+\x00-\x1f\x7f]*")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


def dag_text(graph: Graph, name: str, summary: str, file: str | None = None) -> str:
    """Return the text of a DAG file. Raises PlanError for what it cannot express."""
    dag_file = file or f"{name}.dag"
    lines = [f"# {dag_file}: {summary}."]
    if file is None:
        lines.append(f"# Submit it with: condor_submit_dag {dag_file}")
    lines.append("")
    for description in filter(_is_submit_description, graph.lines):
        # Must come first: DAGMan 23.9 takes a name that is used before its description for a file.
        lines += [description, ""]
    blocks = [tuple(nodes) for _, nodes in groupby(graph.nodes, key=lambda node: node.run)]
    block_of: dict[str, int] = {
        node.name: index for index, block in enumerate(blocks) for node in block
    }
    edge_lines: dict[int, list[str]] = defaultdict(list)
    for parent, child in graph.edges:
        block = block_of[child] if block_of[parent] == block_of[child] else len(blocks)
        edge_lines[block].append(f"PARENT {parent} CHILD {child}")
    codes = {node.skip_code for node in graph.nodes if node.pre is not None}
    plain = all(node.kind is NodeKind.JOB for node in graph.nodes if node.pre is None)
    # One line for all nodes if all PRE scripts have the same PRE_SKIP exit code.
    skip = next(iter(codes)) if len(codes) == 1 and plain else None
    for index, nodes in enumerate(blocks):
        lines += [*_block_lines(nodes, skip), *edge_lines[index], ""]
    if cross_edges := edge_lines.get(len(blocks)):
        lines += [*cross_edges, ""]
    lines += [_checked_line(line) for line in graph.lines if not _is_submit_description(line)]
    if skip is not None:
        lines.append(f"PRE_SKIP ALL_NODES {skip}")
    lines += _retry_lines(graph)
    commands = {line.split(None, 1)[0].upper() for line in graph.lines}
    if "NODE_STATUS_FILE" not in commands:
        lines.append(f"NODE_STATUS_FILE {dag_file}.status {STATUS_SECONDS}")
    if "JOBSTATE_LOG" not in commands:
        lines.append(f"JOBSTATE_LOG {jobstate_log(dag_file.removesuffix('.dag'))}")
    text = "\n".join(lines) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        number = text.count("\n", 0, error.start) + 1
        reason = "it would contain text that is not UTF-8; write that otherwise"
        raise PlanError(f"{dag_file}:{number}: {reason}") from None
    return text


def jobstate_log(name: str) -> str:
    """Name of the jobstate log of this DAG."""
    return f"{name}.jobstate.log"


def _block_lines(nodes: Sequence[GraphNode], skip: int | None) -> Iterator[str]:
    """The lines of one run: nodes, VARS and scripts."""
    for node in nodes:
        yield _node_line(node)
    for node in nodes:
        yield from _vars_lines(node)
    for node in nodes:
        if node.pre is not None:
            yield _script_line(node, "PRE", node.pre)
        if node.skip_code is not None and skip is None:
            yield f"PRE_SKIP {node.name} {node.skip_code}"
        if node.post is not None:
            yield _script_line(node, "POST", node.post)
        if node.hold is not None:
            yield _script_line(node, "HOLD", node.hold)


def _vars_lines(node: GraphNode) -> Iterator[str]:
    prepended = [variable for variable in node.variables if not variable.append]
    if prepended:
        # PREPEND is HTCondor's default but configurable; a gate's include depends on it. Before
        # 25.5, a first name that begins with a keyword is taken for that keyword.
        needs_keyword = node.pre is not None or prepended[0].name.upper().startswith(
            ("PREPEND", "APPEND")
        )
        keyword = "PREPEND " if needs_keyword else ""
        yield f"VARS {node.name} {keyword}{' '.join(map(_assignment, prepended))}"
    if appended := [variable for variable in node.variables if variable.append]:
        yield f"VARS {node.name} APPEND {' '.join(map(_assignment, appended))}"


def _script_line(node: GraphNode, kind: str, command: str) -> str:
    defer = "DEFER {} {} ".format(*node.defer) if node.defer is not None and kind == "PRE" else ""
    options = "".join(f"{option} " for script_kind, option in node.options if script_kind == kind)
    return _checked_line(f"SCRIPT {defer}{options}{kind} {node.name} {command}")


def _retry_lines(graph: Graph) -> Iterator[str]:
    """RETRY lines; that of ALL_NODES first, as the last one for a node applies."""
    names = ["ALL_NODES"] if graph.retries else []
    if graph.retries and any(node.kind is NodeKind.SERVICE for node in graph.nodes):
        # Before 25.5, DAGMan refuses RETRY for a SERVICE node, which ALL_NODES includes.
        kinds = (NodeKind.JOB, NodeKind.SUBDAG)
        names = [n.name for n in graph.nodes if n.retries is None and n.kind in kinds]
    retried = [(name, graph.retries, graph.unless_exit) for name in names]
    retried += [(n.name, n.retries, n.unless_exit) for n in graph.nodes if n.retries is not None]
    for name, retries, unless in retried:
        yield f"RETRY {name} {retries}" + (f" UNLESS-EXIT {unless}" if unless is not None else "")


def _node_line(node: GraphNode) -> str:
    for name in (node.name, node.submit):
        if not _WORD.fullmatch(name) or name.lower() in ("all_nodes", "parent", "child"):
            raise PlanError(f"{name!r} cannot stand in a DAG file as a name; choose another")
    return f"{_COMMANDS[node.kind]} {node.name} {node.submit}{' NOOP' if node.noop else ''}"


def _assignment(variable: VariableValue) -> str:
    if problem := variable_problem(variable.name, variable.value):
        raise PlanError(f"{variable.where}: {problem}")
    escaped = variable.value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{variable.name}="{escaped}"'


def _is_submit_description(line: str) -> bool:
    """Whether the line is an inline SUBMIT-DESCRIPTION with all its lines."""
    return line[:18].upper().replace("_", "-") == "SUBMIT-DESCRIPTION"


def _checked_line(line: str) -> str:
    if _CONTROL.search(line.replace("\t", " ")) or line.endswith("\\"):
        raise PlanError(f"{line!r} is more than one line of a DAG file")
    return line


# --- submit files: templates filled in with what all nodes have in common ---------------------


RUN_NOTES: Final = """\
# What the job's log says of it in its first event, to be read without the DAG.
if version >= 25.11
    My.RunUuid = "$(run_uuid)"
    My.RunName = "$(run)"
    My.RunEpoch = $(epoch)
    submit_event_notes_attrs = RunUuid, RunName, RunEpoch
endif
"""
"""The condition is evaluated by the HTCondor that submits; earlier ones have no such command."""


def submit_file_text(request: Request, job: JobTemplate, nodes: Sequence[GraphNode]) -> str:
    """Return the submit file of ``nodes``. Raises PlanError if a value is missing."""
    text = fill(job.template, placeholders(request, job, nodes))
    head = f"# Written for {request.name}.dag, from the template {job.template.name}.\n"
    names = ({variable.name for variable in node.variables} for node in nodes)
    if all({"run_uuid", "run", "epoch"} <= each for each in names):
        head += RUN_NOTES
    if any(node.pre is not None for node in nodes):
        head += SUBMIT_HEAD
    statements = parse_description(text.split("\n")).statements
    has_queue = any(each.key == "queue" and each.directive for each in statements)
    return head + text + ("" if has_queue else "queue\n")


def placeholders(request: Request, job: JobTemplate, nodes: Sequence[GraphNode]) -> dict[str, str]:
    """The value of each placeholder, including the built-in ones.

    A parameter that the nodes define as a variable becomes a macro; the value here is the default
    for nodes that do not define it. Raises PlanError if a macro cannot have this default.
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
    problem = f"{variables[0].where}: only some nodes of {job.file} have a value of {name}"
    if value.strip() in ("", "0") and name in may_be_dropped(job.template):
        raise PlanError(f"{problem}; give one for the others, too (values.{name})")
    if "(" in value or ")" in value:
        text = "and that of the others holds a ')' or '('; give it as a variable"
        raise PlanError(f"{problem}, {text}")
    return f"$({name}:{value})"


def nodes_by_file(graph: Graph) -> Mapping[str, list[GraphNode]]:
    """The nodes of each submit file, including those of sub-DAGs."""
    result: dict[str, list[GraphNode]] = {}
    for node in graph.all_nodes:
        result.setdefault(node.submit, []).append(node)
    return result


def procs(text: str) -> int:
    """Number of jobs per node; 1 if the text alone does not determine it."""
    return submission(parse_description(text.split("\n")), {}, {}).submission.queue_count or 1


# --- reading submit descriptions -----------------------------------------------------------------


_VARIABLE: Final = re.compile(r"""(?:^|[\s;"'])([A-Za-z_]\w*)=('[^']*'|[^\s;"']*)""")


def assignments(text: str) -> list[Statement]:
    """All assignments in the order of the file, including those under an ``if``."""
    statements = parse_description(text.split("\n")).statements
    return [statement for statement in statements if not statement.directive]


def input_files(commands: list[Statement]) -> list[str]:
    """Files transferred from the DAG's directory, without URLs and names with macros."""
    sends_executable = not any(
        command.key == "transfer_executable" and command.value.lower() in FALSE_WORDS
        for command in commands
    )
    keys = ("transfer_input_files", *(["executable"] if sends_executable else []))
    values = (command.value for command in commands if command.key in keys)
    names = (name for value in values for name in file_names(value))
    return list(dict.fromkeys(name for name in names if "$" not in name and "://" not in name))


def missing_file(name: str, directory: Path, elsewhere: Path) -> str | None:
    """The message that a file which jobs need is not in the DAG's directory; None if it is."""
    if os.path.exists(directory / name):
        return None
    if os.path.isabs(name):
        return f"{name}: no such file; jobs take it along"
    if os.path.exists(elsewhere / name):
        place = "the current directory" if elsewhere == Path() else elsewhere
        return f"{name} lies in {place}, but is needed in {directory}; copy it there"
    return f"{name}: no such file in {directory}; put it there before submitting"


def secret_variables(commands: list[Statement]) -> list[tuple[int, str]]:
    """(line, variable) of variables in the job's environment that look like secrets."""
    return [
        (command.line, variable)
        for command in commands
        if is_environment(command.key)
        for variable, value in _VARIABLE.findall(command.value)
        if is_secret_name(variable) and value.strip("'") and not value.startswith("$")
    ]
