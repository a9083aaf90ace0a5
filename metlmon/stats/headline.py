"""Headline of the dashboard: forecast, epoch rate, most severe incident."""

from __future__ import annotations

from metlmon.frozen import frozen
from metlmon.stats.estimates import Forecast, outlook
from metlmon.stats.incidents import Incident, incidents, pressing
from metlmon.stats.worker import StatsInput


@frozen
class Headline:
    """The statistics of the header.

    ``worst``: the incident that the header shows, None if there is none; ``more``: the number of
    further incidents.
    """

    outlook: Forecast
    worst: Incident | None
    more: int


def headline(stats_input: StatsInput) -> Headline:
    """Compute the header's statistics: tens of milliseconds for a thousand epochs."""
    urgent = pressing(stats_input, incidents(stats_input))
    return Headline(outlook(stats_input), urgent[0] if urgent else None, max(0, len(urgent) - 1))
