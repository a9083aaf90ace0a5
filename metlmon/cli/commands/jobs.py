"""``metlmon jobs``: every job with its executions and transfers."""

from __future__ import annotations

import argparse

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output import JsonWriter
from metlmon.cli.output import print_json_list
from metlmon.cli.queue_option import print_report, query_queue, queue_json
from metlmon.cli.reading import check_only, open_reader
from metlmon.cli.warnings import print_warnings
from metlmon.model.run_filter import matches_name


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
        from metlmon.cli.tables import print_jobs

        print_jobs(rows)
        print_report(queue)
    return Exit.OK
