"""Headline of the dashboard: forecast, epoch rate, most severe incident."""

from __future__ import annotations

from metlmon.frozen import frozen
from metlmon.stats.estimates import Forecast, make_forecast
from metlmon.stats.incidents import Incident, incidents, urgent_incidents
from metlmon.stats.inputs import StatsInput


@frozen
class Headline:
    """The statistics of the header.

    ``worst_incident``: the incident that the header shows, None if there is none;
    ``other_incidents``: the number of further incidents.
    """

    forecast: Forecast
    worst_incident: Incident | None
    other_incidents: int


def headline(stats_input: StatsInput) -> Headline:
    """Compute the header's statistics: tens of milliseconds for a thousand epochs."""
    urgent = urgent_incidents(stats_input, incidents(stats_input))
    return Headline(
        make_forecast(stats_input), urgent[0] if urgent else None, max(0, len(urgent) - 1)
    )
