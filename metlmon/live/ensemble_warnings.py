"""Warnings that follow from what is known of an ensemble as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Final

from metlmon.model.clock import Clock
from metlmon.model.ensemble import Ensemble
from metlmon.model.reused_ids import ReusedJobIds
from metlmon.snapshot.types import Notice

OF_A_MOMENT: Final = frozenset({"undated", "before-first-event"})
"""Kinds of notices that are of the moment of ``--as-of``, and of no other."""

MOST_NAMED: Final = 5
"""Files that one warning names."""


def zone_doubted(clock: Clock) -> list[Notice]:
    """A zone that was set is believed before all else, also where somebody else set it."""
    doubt = clock.contradicted()
    if doubt is None:
        return []
    local, offset = doubt
    sign, minutes = "-" if offset < timedelta() else "+", abs(offset) // timedelta(minutes=1)
    states = f"DAGMan's files state UTC{sign}{minutes // 60:02d}:{minutes % 60:02d}"
    text = f"the zone {clock.zone} does not fit: {states} on {local:%Y-%m-%d}; mend tz, or --tz"
    return [Notice("time-zone", None, None, text)]


def _undated(ensemble: Ensemble) -> Iterator[Notice]:
    """One warning for all files that cannot be placed before or after the moment asked for."""
    names = [name for dag in ensemble.dags.values() for name in dag.undated()]
    if names:
        why = "they state UTC, and no file tells the logs' zone (give --tz, as America/Chicago)"
        if ensemble.clock.known:
            why = "they have no date"
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        text = (
            f"files are left out, for whether they were written by then is not known: {why}: "
            f"{', '.join(names[:MOST_NAMED])}{more}"
        )
        yield Notice("undated", None, None, text)


def of_a_moment(ensemble: Ensemble) -> Iterator[Notice]:
    """What is to be said of the moment at which ``--as-of`` cuts."""
    if ensemble.cut is None:
        return
    yield from _undated(ensemble)
    first = ensemble.offsets.first_later
    if ensemble.newest is None and first is not None:
        text = f"nothing had been logged by {ensemble.cut}: the first event is of {first}"
        yield Notice("before-first-event", None, None, text)


def ids_again(lives: ReusedJobIds) -> Notice:
    some = ", ".join(f"{cluster}.{proc}" for cluster, proc in islice(lives, 3))
    more = ", …" if len(list(islice(lives, 4))) > 3 else ""
    text = f"job ids were given out again by another schedd: {some}{more}; each is a job of its own"
    return Notice("ids-again", None, None, text)
