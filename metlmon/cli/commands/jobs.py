"""``metlmon jobs`` and ``metlmon nodes``: every job, every node."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output.jobs import JOB, JOBS_OUTPUT, NODE, NODES_OUTPUT
from metlmon.cli.json_output.objects import ensemble_output
from metlmon.cli.output import print_json_list, print_warnings
from metlmon.cli.reading import check_only, open_reader
from metlmon.errors import InputError
from metlmon.model.states import State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.ledger import Job
from metlmon.snapshot.node_tree import NodeTree, TreeRow
from metlmon.snapshot.row_text import matches_name
from metlmon.text.formatting import count, job_id, year_of


def jobs(options: argparse.Namespace) -> int:
    """Print the jobs as a table or as JSON. Returns the exit status."""
    reader = open_reader(options)
    queue = None
    if options.queue:
        from metlmon.cli.session_setup import query_queue

        queue = query_queue(reader)
    builder = reader.snapshot_builder()
    check_only(builder, options.only)
    rows = builder.job_rows()
    if options.only:
        rows = [row for row in rows if matches_name(options.only, row.uuid, row.run_name)]
    if options.json:
        stamp = builder.clock.with_offset
        head = ensemble_output(
            JOBS_OUTPUT, builder, None, **({"queue": queue.json()} if queue else {})
        )
        print_json_list(head, "jobs", (JOB.write(row, stamp) for row in rows))
        print_warnings(builder.notices())
        return Exit.OK
    _print_jobs(rows, year_of(builder.as_of))
    if queue is not None:
        queue.print()
    return Exit.OK


HELD_SHOWN: Final = 20
"""Held jobs whose reasons are printed below the table."""


def _print_jobs(rows: Sequence[Job], this_year: int | None) -> None:
    """One line per job, and the reasons of those that are held."""
    from metlmon.cli.status_text import held_line
    from metlmon.cli.text_output import TextOutput
    from metlmon.tables.jobs import listed_columns

    out = TextOutput()
    if not rows:
        out.print("No jobs: nothing was submitted yet, or there is no event log here.")
        return
    out.table(listed_columns(this_year), rows)
    held = [row for row in rows if row.state is State.HELD]
    if held:
        out.print()
    for row in held[:HELD_SHOWN]:
        name = f"job {job_id(row.cluster, row.proc)}"
        out.print(held_line(name, row.hold_code, row.hold_reason))
    if len(held) > HELD_SHOWN:
        out.print(f"and {len(held) - HELD_SHOWN} more are held: see --json")


def nodes(options: argparse.Namespace) -> int:
    """Print every node, what needs a person first. Returns the exit status."""
    wanted = wanted_states(options.state)
    builder = open_reader(options).snapshot_builder()
    tree = NodeTree(builder.dag_nodes())
    if options.json:
        head = ensemble_output(NODES_OUTPUT, builder, None)
        print_json_list(head, "nodes", _nodes_json(builder, tree, wanted))
        print_warnings(builder.notices())
        return Exit.OK
    rows = (
        tree.rows()
        if wanted is None
        else tree.flat_rows(lambda dag, name: dag.state(name) in wanted)
    )
    _print_nodes(builder, tree, rows, wanted)
    return Exit.OK


def wanted_states(text: str | None) -> frozenset[State] | None:
    """The states of ``--state``; None for all. Raises InputError for an unknown one."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = {state.value: state for state in State}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = unknown[0] if unknown else text
        raise InputError(f"--state {what!r}: there are {', '.join(known)}")
    return frozenset(known[name] for name in names)


def _nodes_json(
    builder: SnapshotBuilder, tree: NodeTree, wanted: frozenset[State] | None
) -> Iterator[dict[str, Any]]:
    for (dag, name), (after, below) in tree.node_positions().items():
        row = builder.node_row((dag, name))
        if row is not None and (wanted is None or row.state in wanted):
            yield NODE.write(row, builder.clock.with_offset, after=after, below=below)


def _print_nodes(
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
