"""``metlmon jobs`` and ``metlmon nodes``: every job, every node."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from metlmon.cli import Exit
from metlmon.cli.command_line import chosen_words
from metlmon.cli.output import LISTED, EnsembleOutput, print_records
from metlmon.cli.queue_report import QueueReport, query_queue
from metlmon.cli.reading import check_only, open_reader
from metlmon.jobfiles.error_lines import Errors
from metlmon.model.job_events import NodeKey
from metlmon.model.states import State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.records import HourUnit, Job, NodeRow
from metlmon.snapshot.row_text import matches_name, state_reason
from metlmon.text.formatting import count, job_id, year_of
from metlmon.text.record_json import Flat, Nullable

if TYPE_CHECKING:
    from metlmon.snapshot.node_tree import NodeTree, TreeRow


class JobOutput(Struct, frozen=True):
    """A job; ``node``: the name of its node; outside of any DAG, the one in its log."""

    job: Flat[Job]
    node: str | None


class JobsOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon jobs --json``; ``queue`` only with --queue."""

    jobs: tuple[JobOutput, ...]
    queue: QueueReport | UnsetType = UNSET


class NodeOutput(Struct, frozen=True, kw_only=True):
    """Any node, or a job outside of any DAG, whose ``dag`` and ``in_dag`` are null.

    ``why``: the reason of its state. ``after``: the node that it follows in the tree; ``below``:
    the splice or SUBDAG node that contains it (both only in metlmon nodes).
    """

    row: Flat[NodeRow]
    why: Nullable[str]
    after: str | UnsetType | None = UNSET
    below: str | UnsetType | None = UNSET


class NodesOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon nodes --json``: every node once, with its name in the DAG files."""

    nodes: tuple[NodeOutput, ...]


def jobs(options: argparse.Namespace) -> int:
    """Print the jobs as a table or as JSON. Returns the exit status."""
    reader = open_reader(options)
    queue = query_queue(reader) if options.queue else None
    builder = reader.snapshot_builder()
    check_only(builder, options.only)
    rows = builder.job_rows()
    if options.only:
        rows = [row for row in rows if matches_name(options.only, row.uuid, row.run)]
    if options.json:
        outputs = (JobOutput(row, row.node_name) for row in rows)
        print_records(JobsOutput, builder, "jobs", outputs, queue=queue or UNSET)
        return Exit.OK
    _print_jobs(rows, year_of(builder.as_of), builder.totals.hour_unit)
    if queue is not None:
        queue.print()
    return Exit.OK


def _print_jobs(rows: Sequence[Job], this_year: int | None, unit: HourUnit) -> None:
    """One line per job, and the reasons of held ones."""
    from metlmon.cli.status_text import held_line
    from metlmon.cli.text_output import TextOutput
    from metlmon.tables.jobs import columns

    out = TextOutput()
    if not rows:
        out.print("No jobs: nothing was submitted yet, or there is no event log here.")
        return
    out.table(columns(rows, this_year, unit), rows)
    held = [row for row in rows if row.state is State.HELD]
    if held:
        out.print()
    for row in held[:LISTED]:
        name = f"job {job_id(row.cluster, row.proc)}"
        out.print(held_line(name, row.hold_code, row.hold_reason))
    if len(held) > LISTED:
        out.print(f"and {len(held) - LISTED} more are held: see --json")


def nodes(options: argparse.Namespace) -> int:
    """Print every node, those that need attention first. Returns the exit status."""
    from metlmon.live.job_files import TrainingFiles
    from metlmon.snapshot.node_tree import NodeTree

    wanted = None
    if options.state is not None:
        wanted = frozenset(map(State, chosen_words("--state", options.state, list(State))))
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    tree = NodeTree(builder.dag_nodes())
    errors = TrainingFiles(reader.dagdir, builder.ensemble.settings).read_errors(builder)
    if options.json:
        print_records(NodesOutput, builder, "nodes", _node_outputs(builder, tree, errors, wanted))
        return Exit.OK
    rows = (
        tree.rows()
        if wanted is None
        else tree.flat_rows(lambda dag, name: dag.state(name) in wanted)
    )
    _print_nodes(builder, tree, errors, rows, wanted)
    return Exit.OK


def node_output(row: NodeRow, errors: Errors) -> NodeOutput:
    """A node without its place in the tree."""
    return NodeOutput(row=row, why=state_reason(row, errors))


def _node_outputs(
    builder: SnapshotBuilder, tree: NodeTree, errors: Errors, wanted: frozenset[State] | None
) -> Iterator[NodeOutput]:
    for (dag, name), (after, below) in tree.node_positions().items():
        row = builder.node_row((dag, name))
        if row is not None and (wanted is None or row.state in wanted):
            yield replace(node_output(row, errors), after=after, below=below)


def _print_nodes(
    builder: SnapshotBuilder,
    tree: NodeTree,
    errors: Errors,
    rows: list[TreeRow],
    wanted: frozenset[State] | None,
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

    def node(key: NodeKey | None) -> NodeRow | None:
        return None if key is None else builder.node_row(key)

    items = [(row, node(row.node), node(row.worst)) for row in rows]
    heading = line((total if wanted is None else f"{len(rows)} of {total}", BOLD))
    out.table(columns(errors), items, heading)
