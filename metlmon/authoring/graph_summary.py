"""Summarises a graph for drawing: equal runs, families of nodes, layers.

Linear in nodes and edges, apart from sorting.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final, TypeVar

from metlmon.authoring.graph import Graph, GraphNode, NodeRole
from metlmon.dagman import NodeKind
from metlmon.frozen import frozen

APART: Final = frozenset({NodeKind.PROVISIONER, NodeKind.SERVICE, NodeKind.FINAL})
"""Kinds of nodes without parents and children."""

STAGE: Final = "stage"
"""The variable with the stage of a node."""

DEEPEST: Final = 4
"""Maximum nesting of sub-DAGs that are summarised."""

_Key = TypeVar("_Key", bound=Hashable)

_DIGITS: Final = re.compile(r"[0-9]+")


@frozen
class Bundle:
    """Runs of equal structure.

    ``names``: of the runs, in the order of the file. ``nodes`` and ``edges``: of the first run, by
    names within the run. ``sides``: nodes that evaluate. ``stages``: the stage of the other nodes,
    if they have one. ``inner``: content of the sub-DAG, if the run is one.
    """

    names: tuple[str, ...]
    nodes: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    sides: frozenset[str] = frozenset()
    stages: Mapping[str, str] = field(default_factory=dict)
    inner: Graph | None = None


@frozen
class Family:
    """Nodes with similar names in the same position: ``shard000`` to ``shard099``."""

    names: tuple[str, ...]


@frozen
class Outline:
    """The summary of a graph.

    ``layers``: bundles and families by depth. ``apart``: nodes outside of the graph. ``cyclic``:
    nodes in a cycle, which DAGMan cannot start.
    """

    layers: tuple[tuple[Bundle | Family, ...], ...]
    apart: tuple[GraphNode, ...] = ()
    cyclic: tuple[str, ...] = field(default=())


def outline(graph: Graph, depth: int = 0) -> Outline:
    """Summarise a graph.

    If runs depend on each other in a cycle, nodes are summarised without regard to runs.
    """
    nodes = [node for node in graph.nodes if node.kind not in APART]
    apart = tuple(node for node in graph.nodes if node.kind in APART)
    bundles = _bundles(graph, nodes, depth)
    bundle_by_run: dict[str, Bundle] = {}
    for bundle in bundles:
        bundle_by_run.update(dict.fromkeys(bundle.names, bundle))
    runs = {node.name: run for node in nodes if (run := run_of(node)) is not None}
    bundle_index = (
        {name: bundles.index(bundle_by_run[run]) for name, run in runs.items()} if bundles else {}
    )
    return _layered(graph, nodes, bundles=bundles, bundle_index=bundle_index, apart=apart)


def run_of(node: GraphNode) -> str | None:
    """The run of a node; a sub-DAG is a run of its own."""
    return node.run or (node.name if node.kind is NodeKind.SUBDAG else None)


def family(name: str) -> str:
    """A name with its numbers replaced, the same for similar names."""
    return _DIGITS.sub("#", name)


def local(name: str, run: str) -> str:
    """The name of a node within its run."""
    return name.removeprefix(f"{run}-") or name


# --- runs of equal structure ----------------------------------------------------------------


def _bundles(graph: Graph, nodes: Sequence[GraphNode], depth: int) -> list[Bundle]:
    nodes_by_run: dict[str, list[GraphNode]] = {}
    for node in nodes:
        run = run_of(node)
        if run is not None:
            nodes_by_run.setdefault(run, []).append(node)
    run_by_node = {node.name: run for run, members in nodes_by_run.items() for node in members}
    inner_edges: dict[str, list[tuple[str, str]]] = {run: [] for run in nodes_by_run}
    outer_edges: dict[str, list[tuple[str, str]]] = {run: [] for run in nodes_by_run}
    for parent, child in graph.edges:
        parent_run, child_run = run_by_node.get(parent), run_by_node.get(child)
        if parent_run is not None and parent_run == child_run:
            inner_edges[parent_run].append((local(parent, parent_run), local(child, parent_run)))
            continue
        if parent_run is not None:
            outer_edges[parent_run].append((local(parent, parent_run), f"> {child}"))
        if child_run is not None:
            outer_edges[child_run].append((f"< {parent}", local(child, child_run)))
    runs_by_form: dict[object, list[str]] = {}
    for run, members in nodes_by_run.items():
        names = tuple(_node_form(node, run) for node in members)
        form = (
            names,
            tuple(inner_edges[run]),
            tuple(outer_edges[run]),
            _inner_form(graph, members, depth),
        )
        runs_by_form.setdefault(form, []).append(run)
    bundles = []
    for runs in runs_by_form.values():
        first = runs[0]
        bundles.append(
            Bundle(
                names=tuple(runs),
                nodes=tuple(local(node.name, first) for node in nodes_by_run[first]),
                edges=tuple(inner_edges[first]),
                sides=frozenset(
                    local(node.name, first)
                    for node in nodes_by_run[first]
                    if node.role is NodeRole.EVALUATE
                ),
                stages={
                    local(node.name, first): stage
                    for node in nodes_by_run[first]
                    if (stage := _stage(node)) is not None
                },
                inner=_inner_graph(graph, nodes_by_run[first], depth),
            )
        )
    return bundles


def _node_form(node: GraphNode, run: str) -> tuple[str, bool, str | None]:
    name = "" if node.name == run else local(node.name, run)
    return name, node.role is NodeRole.EVALUATE, _stage(node)


def _stage(node: GraphNode) -> str | None:
    """The stage of a training node, by its variables."""
    if node.role is not NodeRole.TRAIN:
        return None
    return next((variable.value for variable in node.variables if variable.name == STAGE), None)


def _inner_graph(graph: Graph, members: Sequence[GraphNode], depth: int) -> Graph | None:
    if len(members) == 1 and members[0].kind is NodeKind.SUBDAG and depth < DEEPEST:
        return graph.subdags.get(members[0].submit)
    return None


def _inner_form(graph: Graph, members: Sequence[GraphNode], depth: int) -> object:
    inner = _inner_graph(graph, members, depth)
    if inner is None:
        return None
    names = tuple(local(node.name, node.run or "") for node in inner.nodes)
    index = {node.name: number for number, node in enumerate(inner.nodes)}
    return names, tuple((index.get(parent), index.get(child)) for parent, child in inner.edges)


# --- layers -----------------------------------------------------------------------------------


def _layered(
    graph: Graph,
    nodes: Sequence[GraphNode],
    bundles: Sequence[Bundle],
    bundle_index: Mapping[str, int],
    apart: tuple[GraphNode, ...],
) -> Outline:
    keys: dict[int | str, None] = {}
    key_of: dict[str, int | str] = {}
    for node in nodes:
        key = bundle_index.get(node.name, node.name)
        key_of[node.name] = key
        keys.setdefault(key)
    pairs = {
        (key_of[parent], key_of[child]): None
        for parent, child in graph.edges
        if parent in key_of and child in key_of and key_of[parent] != key_of[child]
    }
    depths, cyclic_count = depths_of(keys, pairs)
    if cyclic_count and bundles:
        return _layered(graph, nodes, bundles=(), bundle_index={}, apart=apart)
    layers: list[list[int | str]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    for key, depth in depths.items():
        layers[depth].append(key)
    cyclic = tuple(str(key) for key in keys if key not in depths)
    return Outline(tuple(_layer_units(layer, bundles) for layer in layers), apart, cyclic)


def _layer_units(
    layer: Iterable[int | str], bundles: Sequence[Bundle]
) -> tuple[Bundle | Family, ...]:
    units: list[Bundle | Family] = []
    families: dict[str, list[str]] = {}
    for key in layer:
        if isinstance(key, int):
            units.append(bundles[key])
        else:
            families.setdefault(family(key), []).append(key)
    return (*units, *(Family(tuple(names)) for names in families.values()))


def depths_of(
    keys: Iterable[_Key], pairs: Iterable[tuple[_Key, _Key]]
) -> tuple[dict[_Key, int], int]:
    """The depth of each key (its longest path from a root), in the order of ``keys``.

    Also the number of keys in cycles, which have no depth.
    """
    order = list(keys)
    children: dict[_Key, list[_Key]] = {key: [] for key in order}
    waiting_for = dict.fromkeys(order, 0)
    for parent, child in pairs:
        children[parent].append(child)
        waiting_for[child] += 1
    depths = {key: 0 for key in order if not waiting_for[key]}
    ready = list(depths)
    for key in ready:
        for child in children[key]:
            depths[child] = max(depths.get(child, 0), depths[key] + 1)
            waiting_for[child] -= 1
            if not waiting_for[child]:
                ready.append(child)
    done = {key: depths[key] for key in order if not waiting_for[key]}
    return done, len(order) - len(done)
