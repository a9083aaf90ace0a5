"""``metlmon nodes``: every node of every DAG, what needs a person first."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output import JsonWriter, head
from metlmon.cli.output import print_json_list
from metlmon.cli.reading import open_reader
from metlmon.cli.warnings import print_warnings
from metlmon.live.errors import InputError
from metlmon.model.job_events import NodeKey
from metlmon.model.states import State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.node_text import KINDS, name_range, state_reason
from metlmon.snapshot.node_tree import NodeTree, TreeRow
from metlmon.snapshot.types import NodeRow
from metlmon.text.formatting import STATES, count, duration, job_id, number, plain, site

if TYPE_CHECKING:
    from metlmon.cli.tables import TextColumn

NAME_LIMIT: Final = 60

DEEPEST: Final = 10
"""Levels that are told by how far in a row stands."""


def nodes(options: argparse.Namespace) -> int:
    """``metlmon nodes``."""
    wanted = wanted_states(options.state)
    painter = open_reader(options).snapshot_builder()
    tree = NodeTree(painter.dag_nodes())
    if options.json:
        print_json_list(head(painter), "nodes", _json(painter, tree, wanted), {})
        print_warnings(painter.notices())
        return Exit.OK
    rows = tree.rows() if wanted is None else _in_states(tree, wanted)
    _print(painter, tree, rows, wanted)
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
    painter: SnapshotBuilder, tree: NodeTree, wanted: frozenset[State] | None
) -> Iterator[dict[str, Any]]:
    """Every node once, as the DAG files name them; ``after``: the node that it stands after in
    the tree, ``below`` the splice, or the SUBDAG node, that holds it."""
    writer = JsonWriter(painter.clock.with_offset)
    for (dag, name), (after, below) in tree.node_positions().items():
        row = painter.node_row((dag, name))
        if row is not None and (wanted is None or row.state in wanted):
            yield writer.node(row) | {"after": after, "below": below}


def _columns() -> tuple[TextColumn, ...]:
    from metlmon.cli.tables import TextColumn

    return (
        TextColumn("NODE", shrinks=24),
        TextColumn("STATE"),
        TextColumn("FOR", right=True, drop=5),
        TextColumn("JOB", right=True, drop=3),
        TextColumn("TRIES", right=True, drop=2),
        TextColumn("LEFT", right=True, drop=1),
        TextColumn("SITE", drop=4),
        TextColumn("WHY", shrinks=12),
    )


def _print(
    painter: SnapshotBuilder, tree: NodeTree, rows: list[TreeRow], wanted: frozenset[State] | None
) -> None:
    from rich.text import Text

    from metlmon.cli.tables import console, print_table

    out = console()
    total = count(tree.total, "node")
    if not rows:
        names = ", ".join(sorted(wanted)) if wanted else ""
        out.print(Text(f"None of {total} is {names}." if wanted else "The DAG has no nodes."))
        return
    out.print(Text(total if wanted is None else f"{len(rows)} of {total}", style="bold"))
    print_table(out, _columns(), [_cells(painter, row) for row in rows])


def _cells(painter: SnapshotBuilder, row: TreeRow) -> list[str | Any]:
    indent = "  " * min(row.depth, DEEPEST)
    if row.node is None:
        told = "  ".join(f"{STATES[s].glyph} {number(n)}" for s, n in row.counts)
        first = row.counts[0][0] if len(row.counts) == 1 else None
        state = "" if first is None else STATES[first].text()
        several = told if first is None else ""
        return [indent + _held(row), state, "", "", "", "", "", several]
    return [*_node_cells(painter, row.node, indent)]


def _held(row: TreeRow) -> str:
    fold = {True: "▾ ", False: "▸ ", None: "  "}[row.open]
    match row.kind:
        case "alike":
            times = "×"
            return f"{fold}{row.title} {times} {name_range(row.first, row.last)}"
        case "line":
            return f"{fold}{name_range(row.first, row.last)} ({row.size})"
        case _:
            return f"{fold}{plain(row.title, NAME_LIMIT)} ({row.size})"


def _node_cells(painter: SnapshotBuilder, key: NodeKey, indent: str) -> list[str | Any]:
    row = painter.node_row(key)
    if row is None:
        return [indent + plain(key[1], NAME_LIMIT), *[""] * 7]
    kind = f"{row.kind.upper()} " if row.kind in KINDS else ""
    calm = row.state in (State.COMPLETED, State.SKIPPED, State.WAITING, State.FUTILE)
    return [
        f"{indent}  {kind}{plain(row.node, NAME_LIMIT)}",
        _state(row),
        duration(row.seconds) if row.since is not None else "",
        job_id(*row.jobs[-1]) if row.jobs else "",
        str(row.tries) if row.tries else "",
        "" if row.retries_left is None or calm else str(row.retries_left),
        site(row.site, row.target, row.off_target, state=row.state) if row.site else "",
        state_reason(row),
    ]


def _state(row: NodeRow) -> Any:
    from metlmon.cli.tables import signed

    if row.overruled:
        return f"{STATES[State.FAILED].glyph} job failed"
    return signed(STATES[row.state])
