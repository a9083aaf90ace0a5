"""What the first lines of the dashboard tell of figures: when it will be done, at which rate it
goes, and the worst incident."""

from __future__ import annotations

from metlmon.frozen import frozen
from metlmon.stats.estimates import Outlook, outlook
from metlmon.stats.incidents import Incident, incidents, pressing
from metlmon.stats.study import Basis


@frozen
class Glance:
    """``worst``: the incident that the header names, None when there is none that matters now;
    ``more``: how many others do."""

    outlook: Outlook
    worst: Incident | None
    more: int


def glance(basis: Basis) -> Glance:
    """The header's figures: tens of milliseconds for a thousand epochs."""
    found = pressing(basis, incidents(basis))
    return Glance(outlook(basis), found[0] if found else None, max(0, len(found) - 1))
