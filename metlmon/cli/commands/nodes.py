"""``metlmon nodes``: every node of every DAG, what needs a person first."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output import JsonWriter, head
from metlmon.cli.output import print_json_list
from metlmon.cli.reading import open_reader
from metlmon.cli.warnings import print_warnings
from metlmon.live.errors import InputError
from metlmon.model.states import State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.node_tree import NodeTree, TreeRow
from metlmon.text.formatting import count

NAME_LIMIT: Final = 60

DEEPEST: Final = 10
"""Levels that are told by how far in a row stands."""


def nodes(options: argparse.Namespace) -> int:
    """``metlmon nodes``."""
    wanted = wanted_states(options.state)
    builder = open_reader(options).snapshot_builder()
    tree = NodeTree(builder.dag_nodes())
    if options.json:
        print_json_list(head(builder), "nodes", _json(builder, tree, wanted), {})
        print_warnings(builder.notices())
        return Exit.OK
    rows = tree.rows() if wanted is None else _in_states(tree, wanted)
    _print(builder, tree, rows, wanted)
    return Exit.OK


def wanted_states(text: str | None) -> frozenset[State] | None:
    """The states of ``--state``; None for all. Raises InputError for one that there is not."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = {state.value: state for state in State}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = unknown[0] if unknown else text
        raise InputError(f"--state {what!r}: there are {', '.join(known)}")
    return frozenset(known[name] for name in names)


def _in_states(tree: NodeTree, wanted: frozenset[State]) -> list[TreeRow]:
    return tree.flat_rows(lambda dag, name: dag.state(name) in wanted)


def _json(
    builder: SnapshotBuilder, tree: NodeTree, wanted: frozenset[State] | None
) -> Iterator[dict[str, Any]]:
    """Every node once, as the DAG files name them; ``after``: the node that it stands after in
    the tree, ``below`` the splice, or the SUBDAG node, that holds it."""
    writer = JsonWriter(builder.clock.with_offset)
    for (dag, name), (after, below) in tree.node_positions().items():
        row = builder.node_row((dag, name))
        if row is not None and (wanted is None or row.state in wanted):
            yield writer.node(row) | {"after": after, "below": below}


def _print(
    builder: SnapshotBuilder, tree: NodeTree, rows: list[TreeRow], wanted: frozenset[State] | None
) -> None:
    from metlmon.cli.text_output import TextOutput
    from metlmon.tables.nodes import columns
    from metlmon.text.spans import BOLD, line

    out = TextOutput()
    total = count(tree.total, "node")
    if not rows:
        names = ", ".join(sorted(wanted)) if wanted else ""
        out.print(f"None of {total} is {names}." if wanted else "The DAG has no nodes.")
        return
    out.print(line((total if wanted is None else f"{len(rows)} of {total}", BOLD)))
    nodes = [builder.node_row(row.node) if row.node is not None else None for row in rows]
    out.table(columns(), list(zip(rows, nodes, strict=True)))
