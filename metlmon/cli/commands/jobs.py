"""``metlmon jobs``: every job with its executions and transfers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output import JsonWriter
from metlmon.cli.output import print_json_list
from metlmon.cli.queue_option import print_report, query_queue, queue_json
from metlmon.cli.reading import check_only, open_reader
from metlmon.cli.warnings import print_warnings
from metlmon.model.states import State
from metlmon.snapshot.run_filter import matches_name
from metlmon.snapshot.types import JobRow
from metlmon.text.formatting import job_id, year_of


def jobs(options: argparse.Namespace) -> int:
    """Print the jobs as a table or as JSON. Returns the exit status."""
    reader = open_reader(options)
    queue = query_queue(reader, options)
    builder = reader.snapshot_builder()
    check_only(builder, options.only)
    rows = builder.job_rows()
    if options.only:
        rows = [row for row in rows if matches_name(options.only, row.uuid, row.run)]
    if options.json:
        writer = JsonWriter(builder.clock.with_offset)
        elements = (writer.job(row) for row in rows)
        print_json_list(writer.jobs_head(builder), "jobs", elements, queue_json(queue))
        print_warnings(builder.notices())
    else:
        _print(rows, year_of(builder.as_of))
        print_report(queue)
    return Exit.OK


HELD_SHOWN: Final = 20
"""Held jobs whose reasons are printed below the table."""


def _print(rows: Sequence[JobRow], this_year: int | None) -> None:
    """One line per job, and the reasons of those that are held."""
    from metlmon.cli.status_text import held_line
    from metlmon.cli.text_output import TextOutput
    from metlmon.tables.jobs import columns

    out = TextOutput()
    if not rows:
        out.print("No jobs: nothing was submitted yet, or no event log lies here.")
        return
    out.table(columns(this_year), rows)
    held = [row for row in rows if row.state is State.HELD]
    if held:
        out.print()
    for row in held[:HELD_SHOWN]:
        name = f"job {job_id(row.cluster, row.proc)}"
        out.print(held_line(name, row.hold_code, row.hold_reason))
    if len(held) > HELD_SHOWN:
        out.print(f"and {len(held) - HELD_SHOWN} more are held: see --json")
