"""Exit codes, the same for every command."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """What a script learns from the exit status (also in ``metlmon --help``)."""

    OK = 0
    """Readable, whatever the jobs did; or what ``--exit-on`` waited for went well."""
    FOUND = 1
    """``check``: there are errors; with ``--strict``, or warnings."""
    USAGE = 2
    """The input or the arguments cannot be used; one sentence on standard error says why."""
    FAILED = 3
    """``--exit-on``: something failed or was removed, or can get no further."""
    HELD = 4
    """``--exit-on``: a job is held."""
    TIMEOUT = 5
    """``--exit-on``: ``--timeout`` passed first."""
    REFUSED = 6
    """``submit``: the files are written, but the pool did not take the DAG. ``act``: something
    was refused, failed, or was not confirmed. ``export``: the tracking server refused something,
    or failed."""
    BROKEN = 70
    """An error of metlmon itself, or no memory, or no room for the output; one sentence on
    standard error says what (``EX_SOFTWARE`` of sysexits.h)."""
    INTERRUPTED = 130
    """Ended from the keyboard."""


CONDITIONS: Final = {
    "all": "every run has all its epochs done (0), or can get no further (3)",
    "done": "every DAG is done (0), or one failed or was removed (3)",
    "failed": "a DAG, a run or a node failed or was removed for good (3)",
    "held": "a job is held (4)",
}
"""What ``--exit-on`` can wait for, and the status it then exits with."""
