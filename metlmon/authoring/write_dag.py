"""The text of a DAG file, from its graph.

Source followed: HTCondor manual, "DAG input file reference"; what 23.9 takes and the strict
parser of 25.5 and later takes, both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from metlmon.authoring.graph import Graph, GraphNode, VariableValue
from metlmon.authoring.request import PlanError
from metlmon.dagman import NodeKind

STATUS_SECONDS: Final = 30
"""How often DAGMan may write its node status file anew: as often as the queue is asked."""

_WORDS: Final = {
    NodeKind.JOB: "JOB",
    NodeKind.SUBDAG: "SUBDAG EXTERNAL",
    NodeKind.PROVISIONER: "PROVISIONER",
    NodeKind.SERVICE: "SERVICE",
    NodeKind.FINAL: "FINAL",
}

_WORD: Final = re.compile(r"[^\s\"'+#\x00-\x1f\x7f][^\s\"'+\x00-\x1f\x7f]*")
_VARIABLE: Final = re.compile(r"(?:\+|[Mm][Yy]\.)?[A-Za-z_]\w*", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")

_RESERVED: Final = frozenset({"all_nodes", "parent", "child"})


def dag_text(graph: Graph, name: str, about: str, file: str | None = None) -> str:
    """The DAG file. ``name``: of the ensemble's DAG, without ``.dag``; ``about``: the end of the
    first line; ``file``: of a sub-DAG, its own name. Raises PlanError for what no DAG file can
    say."""
    dag_file = file or f"{name}.dag"
    lines = [f"# {dag_file}: {about}."]
    if file is None:
        lines.append(f"# Submit it with: condor_submit_dag {dag_file}")
    lines.append("")
    for described in filter(_describes, graph.lines):
        # DAGMan of 23.9 takes the name for a file's where it comes before its description.
        lines += [described, ""]
    blocks = [tuple(nodes) for _, nodes in groupby(graph.nodes, key=lambda node: node.run)]
    within: dict[str, int] = {node.name: i for i, block in enumerate(blocks) for node in block}
    edges: dict[int, list[tuple[str, str]]] = {}
    for parent, child in graph.edges:
        inside = within[parent] == within[child]
        edges.setdefault(within[child] if inside else len(blocks), []).append((parent, child))
    skip = _skip_of_all(graph)
    for at, block in enumerate(blocks):
        lines += [*_block(block, edges.get(at, []), skip), ""]
    if across := edges.get(len(blocks)):
        lines += [*map(_edge, across), ""]
    lines += [_line(line) for line in graph.lines if not _describes(line)]
    if skip is not None:
        lines.append(f"PRE_SKIP ALL_NODES {skip}")
    lines += _retries(graph)
    said = {line.split(None, 1)[0].upper() for line in graph.lines}
    if "NODE_STATUS_FILE" not in said:
        lines.append(f"NODE_STATUS_FILE {dag_file}.status {STATUS_SECONDS}")
    if "JOBSTATE_LOG" not in said:
        lines.append(f"JOBSTATE_LOG {jobstate_log(dag_file.removesuffix('.dag'))}")
    text = "\n".join(lines) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        number = text.count("\n", 0, error.start) + 1
        why = "it would hold what is no UTF-8 text; write that otherwise"
        raise PlanError(f"{dag_file}:{number}: {why}") from None
    return text


def jobstate_log(name: str) -> str:
    """The jobstate log of the DAG with this name."""
    return f"{name}.jobstate.log"


def _block(
    nodes: Sequence[GraphNode], edges: Sequence[tuple[str, str]], skip: int | None
) -> Iterator[str]:
    for node in nodes:
        yield _node(node)
    for node in nodes:
        yield from _vars(node)
    for node in nodes:
        if node.pre is not None:
            yield _script(node, "PRE", node.pre)
        if node.skip is not None and skip is None:
            yield f"PRE_SKIP {node.name} {node.skip}"
        if node.post is not None:
            yield _script(node, "POST", node.post)
        if node.hold is not None:
            yield _script(node, "HOLD", node.hold)
    yield from map(_edge, edges)


def _vars(node: GraphNode) -> Iterator[str]:
    first = [each for each in node.variables if not each.append]
    if first:
        # PREPEND is what HTCondor does without a word, where nobody configured it else: the
        # submit file can change what it is told. A gate's include depends on that. Before 25.5 a
        # name that begins like one of the words is taken for it, where none stands before it.
        said = node.pre is not None or first[0].name.upper().startswith(("PREPEND", "APPEND"))
        yield f"VARS {node.name} {'PREPEND ' if said else ''}{' '.join(map(_variable, first))}"
    if last := [each for each in node.variables if each.append]:
        yield f"VARS {node.name} APPEND {' '.join(map(_variable, last))}"


def _script(node: GraphNode, kind: str, command: str) -> str:
    defer = "DEFER {} {} ".format(*node.defer) if node.defer is not None and kind == "PRE" else ""
    options = "".join(f"{said} " for of, said in node.options if of == kind)
    return _line(f"SCRIPT {defer}{options}{kind} {node.name} {command}")


def _retries(graph: Graph) -> Iterator[str]:
    """All nodes' first: the last line that says it of a node counts."""
    if graph.retries and not any(node.kind is NodeKind.SERVICE for node in graph.nodes):
        yield f"RETRY ALL_NODES {_times(graph.retries, graph.unless)}"
    elif graph.retries:
        # DAGMan before 25.5 refuses a DAG that says it of a SERVICE node, which ALL_NODES does.
        for node in graph.nodes:
            if node.retries is None and node.kind in (NodeKind.JOB, NodeKind.SUBDAG):
                yield f"RETRY {node.name} {_times(graph.retries, graph.unless)}"
    for node in graph.nodes:
        if node.retries is not None:
            yield f"RETRY {node.name} {_times(node.retries, node.unless)}"


def _times(retries: int, unless: int | None) -> str:
    return f"{retries}" if unless is None else f"{retries} UNLESS-EXIT {unless}"


def _skip_of_all(graph: Graph) -> int | None:
    """The one exit code with which every PRE script ends its node; None where they differ."""
    codes = {node.skip for node in graph.nodes if node.pre is not None}
    code = next(iter(codes)) if len(codes) == 1 else None
    plain = all(node.kind is NodeKind.JOB for node in graph.nodes if node.pre is None)
    return code if plain else None


def _node(node: GraphNode) -> str:
    if node.kind not in _WORDS:
        raise PlanError(f"{node.name}: a DAG file has no line for a node of this kind")
    for word in (node.name, node.submit):
        if not _WORD.fullmatch(word) or word.lower() in _RESERVED:
            raise PlanError(f"{word!r} cannot stand in a DAG file as a name; choose another")
    return f"{_WORDS[node.kind]} {node.name} {node.submit}{' NOOP' if node.noop else ''}"


def _variable(given: VariableValue) -> str:
    name, value = given.name, given.value
    if not _VARIABLE.fullmatch(name):
        raise PlanError(f"{given.where}: {name!r} cannot be a variable's name: letters, digits, _")
    if name.lower().startswith("queue"):
        text = f"{name!r} begins with 'queue', which DAGMan refuses as a variable's name"
        raise PlanError(f"{given.where}: {text}; choose another")
    if not value:
        raise PlanError(
            f"{given.where}: {name} is empty, which HTCondor 25.5 refuses; leave it out"
        )
    if _CONTROL.search(value):
        text = f"the value of {name} holds a line end or control character; take it out"
        raise PlanError(f"{given.where}: {text}")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{escaped}"'


def _describes(line: str) -> bool:
    """Is it a SUBMIT-DESCRIPTION, all lines of it?"""
    return line[:18].upper().replace("_", "-") == "SUBMIT-DESCRIPTION"


def _edge(edge: tuple[str, str]) -> str:
    return f"PARENT {edge[0]} CHILD {edge[1]}"


def _line(line: str) -> str:
    if _CONTROL.search(line.replace("\t", " ")) or line.endswith("\\"):
        raise PlanError(f"{line!r} is more than one line of a DAG file")
    return line
