"""A shell script that executes the nodes of a DAG here, one after another, without HTCondor.

MLflow's local backend starts it, and so does the gateway of a facility on a node of its own. Jobs
that need HTCondor for more than a place to run are not executed: the script then ends with the
reason. Retries and gates are HTCondor's alone.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from metlmon.authoring.graph import ALWAYS_SUCCEEDS, Graph, GraphNode
from metlmon.authoring.project_parameters import ProjectParameter
from metlmon.authoring.write_dag import assignments, procs
from metlmon.dagman.records import NodeKind
from metlmon.dagman.reports import split_arguments
from metlmon.dagman.submit_description import command_values, is_environment, parse_description

_COMMANDS: Final = (
    *("universe", "executable", "arguments", "transfer_input_files", "transfer_output_files"),
    *("preserve_relative_paths", "initialdir", "input"),
)

_GRAPH_COMMANDS: Final = frozenset({"SPLICE", "INCLUDE", "PARENT", "CONNECT", "FINAL", "SERVICE"})
"""Commands of a DAG file, written as they were, that the order of the nodes depends on."""


class NeedsHTCondor(Exception):
    """Why a job cannot be executed without HTCondor; ``str()`` is the reason."""


def local_script(
    name: str, graph: Graph, texts: Mapping[str, str], parameters: Sequence[ProjectParameter]
) -> tuple[str, str | None]:
    """The script of the DAG ``name``, and why its jobs need HTCondor, if they do.

    ``texts``: the submit files by name. ``parameters``: with the values that the DAG has; the
    script takes ``name=value`` for each, and refuses other values.
    """
    try:
        nodes = "\n".join(f"{command} &&" for command in _commands(graph, texts))
    except NeedsHTCondor as reason:
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
    """A command for each node, parents first. Raises NeedsHTCondor."""
    for line in "\n".join(graph.lines).split("\n"):
        if line.split(None, 1)[:1] and line.split(None, 1)[0].upper() in _GRAPH_COMMANDS:
            raise NeedsHTCondor(f"its DAG has a {line.split()[0].upper()}")
    for node in _ordered(graph):
        if node.kind is NodeKind.PROVISIONER:
            raise NeedsHTCondor("several machines train together")
        if node.kind is NodeKind.SUBDAG:
            if node.submit not in graph.subdags:
                raise NeedsHTCondor(f"{node.submit} is a DAG of its own")
            yield from _commands(graph.subdags[node.submit], texts)
        elif not node.noop:
            command = f"run {shlex.quote(node.name)} {shlex.join(_job(node, texts))}"
            yield f"{{ {command} || true; }}" if node.post == ALWAYS_SUCCEEDS else command


def _ordered(graph: Graph) -> list[GraphNode]:
    """The nodes in the order of the file, but each behind its parents."""
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
                raise NeedsHTCondor(f"the parents of {top} are not all nodes of the file")
            else:
                open_names.add(top)
                stack += reversed(missing)
    return [by_name[name] for name in done]


def _job(node: GraphNode, texts: Mapping[str, str]) -> list[str]:
    """The words of a job's command line. Raises NeedsHTCondor."""
    text = texts.get(node.submit)
    if text is None:
        raise NeedsHTCondor(f"{node.submit} is not written by metlmon")
    if node.post not in (None, ALWAYS_SUCCEEDS) or (node.pre is not None and node.defer is None):
        raise NeedsHTCondor(f"{node.name} has a script of DAGMan's")
    statements = assignments(text)
    if any(is_environment(each.key) or each.key == "getenv" for each in statements):
        raise NeedsHTCondor(f"{node.submit} sets an environment")
    if procs(text) != 1:
        raise NeedsHTCondor(f"{node.submit} queues several jobs")
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
        raise NeedsHTCondor(f"{node.submit} runs in a container, or as no ordinary process")
    if values["initialdir"] or values["input"]:
        raise NeedsHTCondor(f"{node.submit} sets initialdir or input")
    inputs = [name.strip() for name in values["transfer_input_files"].strip('"').split(",")]
    if any("://" in name for name in inputs):
        raise NeedsHTCondor(f"{node.submit} transfers a URL")
    moves = values["preserve_relative_paths"].lower() not in ("true", "t", "yes", "y", "1")
    if moves and any("/" in name.rstrip("/") for name in inputs):
        raise NeedsHTCondor(f"{node.submit} transfers files of other directories")
    words = [values["executable"], *split_arguments(values["arguments"])]
    if not words[0] or "$" in " ".join(words):
        raise NeedsHTCondor(f"{node.submit} has macros that are known to HTCondor alone")
    return [words[0] if "/" in words[0] else f"./{words[0]}", *words[1:]]


def _outputs(text: str) -> Iterator[str]:
    """The directories or files that a submit file transfers back, by their names."""
    for command in assignments(text):
        if command.key == "transfer_output_files":
            names = (name.strip() for name in command.value.strip('"').split(","))
            yield from (name for name in names if name and "$" not in name)
