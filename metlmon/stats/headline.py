"""What the first lines of the dashboard tell of figures: when it will be done, at which rate it
goes, and the worst incident."""

from __future__ import annotations

from metlmon.frozen import frozen
from metlmon.stats.estimates import Forecast, outlook
from metlmon.stats.incidents import Incident, incidents, pressing
from metlmon.stats.worker import StatsInput


@frozen
class Headline:
    """``worst``: the incident that the header names, None when there is none that matters now;
    ``more``: how many others do."""

    outlook: Forecast
    worst: Incident | None
    more: int


def headline(basis: StatsInput) -> Headline:
    """The header's figures: tens of milliseconds for a thousand epochs."""
    found = pressing(basis, incidents(basis))
    return Headline(outlook(basis), found[0] if found else None, max(0, len(found) - 1))
