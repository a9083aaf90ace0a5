"""metlmon: a monitor of ensembles of model trainings that run as HTCondor DAGs.

In a notebook, ``metlmon.load(dagdir)`` returns the ensemble as pandas frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from datetime import datetime

    from metlmon.tables.frames import Frames

__version__ = "0.1.0"


def load(
    dagdir: str | os.PathLike[str],
    *,
    as_of: str | datetime | None = None,
    tz: str | None = None,
    live: bool | None = None,
) -> Frames:
    """Read a dagdir (or one DAG file) into pandas frames.

    These are ``runs``, ``epochs``, ``jobs``, ``executions``, ``transfers`` and ``events``. See
    :func:`metlmon.tables.frames.load`.
    """
    # Imported late: the command imports this module for its version, and must start fast.
    from metlmon.tables import frames

    return frames.load(dagdir, as_of=as_of, tz=tz, live=live)
