"""The command line. Here: exit codes, the same for every command."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """Exit statuses; ``EPILOG`` of :mod:`metlmon.cli.main` says what each means."""

    OK = 0
    FOUND = 1
    USAGE = 2
    FAILED = 3
    HELD = 4
    TIMEOUT = 5
    REFUSED = 6
    BROKEN = 70
    """``EX_SOFTWARE`` of sysexits.h."""
    INTERRUPTED = 130


CONDITIONS: Final = {
    "all": "every run has all its epochs done (0), or cannot continue (3)",
    "done": "every DAG is done (0), or one failed or was removed (3)",
    "failed": "a DAG, a run or a node failed or was removed for good (3)",
    "held": "a job is held (4)",
    "stalled": "a job or DAGMan is in the queue but gets nowhere (4)",
}
"""Conditions that ``--exit-on`` can wait for, and the exit status of each."""
