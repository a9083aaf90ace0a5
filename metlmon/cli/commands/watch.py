"""``metlmon watch``: the live dashboard."""

from __future__ import annotations

import argparse

from metlmon.cli.output import is_terminal
from metlmon.cli.reading import check_only, new_reader


def watch(options: argparse.Namespace) -> int:
    """Open the dashboard; without a terminal print the status. Returns the exit status."""
    if not is_terminal():
        from metlmon.cli.commands.status import status

        options.json = False
        return status(options)
    reader = new_reader(options)
    reader.open()
    check_only(reader.snapshot_builder(), options.only)
    from metlmon.cli.session_setup import connect_pool, open_screens

    return open_screens(connect_pool(reader, options), options)
