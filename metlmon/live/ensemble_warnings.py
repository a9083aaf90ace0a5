"""Warnings derived from the state of the whole ensemble."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Final

from metlmon.model.attribution import ReusedJobIds
from metlmon.model.clock import Clock
from metlmon.model.ensemble import Ensemble
from metlmon.model.model_state import Notice

OF_A_MOMENT: Final = frozenset({"undated", "before-first-event"})
"""Kinds of notices that apply only to the time of ``--as-of``."""

MAX_FILES_NAMED: Final = 5
"""Number of files named in one warning."""


def zone_conflict(clock: Clock) -> list[Notice]:
    """Warn if DAGMan's files contradict the time zone of the settings."""
    contradiction = clock.contradiction()
    if contradiction is None:
        return []
    local, offset = contradiction
    sign, minutes = "-" if offset < timedelta() else "+", abs(offset) // timedelta(minutes=1)
    states = f"DAGMan's files state UTC{sign}{minutes // 60:02d}:{minutes % 60:02d}"
    text = f"the zone {clock.zone} does not fit: {states} on {local:%Y-%m-%d}; mend tz, or --tz"
    return [Notice("time-zone", None, None, text)]


def _undated_files(ensemble: Ensemble) -> Iterator[Notice]:
    """Yield one warning on all files not known to be before or after ``--as-of``."""
    names = [name for dag in ensemble.dags.values() for name in dag.undated_files()]
    if names:
        reason = "they state UTC, and no file tells the logs' zone (give --tz, as America/Chicago)"
        if ensemble.clock.has_offset:
            reason = "they have no date"
        more = f" and {len(names) - MAX_FILES_NAMED} more" if len(names) > MAX_FILES_NAMED else ""
        text = (
            f"files are left out, for whether they were written by then is not known: {reason}: "
            f"{', '.join(names[:MAX_FILES_NAMED])}{more}"
        )
        yield Notice("undated", None, None, text)


def as_of_warnings(ensemble: Ensemble) -> Iterator[Notice]:
    """Yield the warnings that apply only to the time of ``--as-of``."""
    if ensemble.cut is None:
        return
    yield from _undated_files(ensemble)
    first = ensemble.offsets.first_later
    if ensemble.newest is None and first is not None:
        text = f"nothing had been logged by {ensemble.cut}: the first event is of {first}"
        yield Notice("before-first-event", None, None, text)


def reused_ids_warning(reused: ReusedJobIds) -> Notice:
    """Warn of job ids that another schedd has used again."""
    examples = ", ".join(f"{cluster}.{proc}" for cluster, proc in islice(reused, 3))
    more = ", …" if len(list(islice(reused, 4))) > 3 else ""
    text = (
        f"job ids were given out again by another schedd: {examples}{more}; "
        "each is a job of its own"
    )
    return Notice("ids-again", None, None, text)
