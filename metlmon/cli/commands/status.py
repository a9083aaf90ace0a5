"""``metlmon status``: where every run stands, once."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.exit_on import condition, exit_conditions, pause
from metlmon.cli.json_output import JsonWriter, figures_json
from metlmon.cli.output import print_json
from metlmon.cli.queue_option import print_report, query_queue, queue_json
from metlmon.cli.reading import check_only, open_reader, select_runs
from metlmon.cli.warnings import print_warnings
from metlmon.live.dagdir_reader import DagdirReader

POLL_SECONDS: Final = 1.0
"""How often ``--exit-on`` looks again: as often as the dashboard does."""


def status(options: argparse.Namespace) -> int:
    """Print the status as a table or as JSON. Returns the exit status."""
    reader = open_reader(options)
    check_only(reader.snapshot_builder(), options.only)
    code = wait(reader, options) if options.exit_on else Exit.OK
    queue = query_queue(reader, options)
    from metlmon.stats.inputs import StatsInput

    builder = reader.snapshot_builder()
    shown = select_runs(builder.status(), options.only)
    stats = StatsInput(builder.status(), builder.ledger(), reader.ensemble.settings)
    if options.json:
        writer = JsonWriter(builder.clock.with_offset)
        print_json(writer.status(shown) | figures_json(writer, stats) | queue_json(queue))
        print_warnings(shown.warnings)
    else:
        from metlmon.cli.status_text import print_status
        from metlmon.stats.incidents import headline

        print_status(shown, headline(stats))
        print_report(queue)
    return code


def wait(reader: DagdirReader, options: argparse.Namespace) -> Exit:
    """Wait until one of the conditions of ``--exit-on`` is met, or ``--timeout`` is over."""
    met = condition(exit_conditions(options.exit_on))
    deadline = time.monotonic() + options.timeout if options.timeout is not None else None
    while True:
        code = met(reader.snapshot_builder().status())
        if code is not None:
            return code
        if deadline is not None and time.monotonic() >= deadline:
            print("metlmon: --timeout passed before --exit-on was met", file=sys.stderr)
            return Exit.TIMEOUT
        pause(POLL_SECONDS)
        reader.check()
        reader.read_all()
