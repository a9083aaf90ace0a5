"""Sites that cost much and completed next to nothing."""

from __future__ import annotations

from typing import Final

from metlmon.stats.usage import WORTH_LEAST, SiteUsage, Usage

WASTE_LEAST: Final = 0.1
"""The share of all GPU-hours that have ended from which a site's loss is worth a headline."""


def wasteful(found: Usage) -> tuple[SiteUsage, ...]:
    """Known sites with too few completed epochs to be ranked that lost much of all GPU-hours that
    have ended; the one that lost the most first."""
    whole = found.total.sum
    least = WASTE_LEAST * (whole.good + whole.bad)
    places = [
        place
        for place in found.sites
        if place.name is not None
        and place.sum.completed < WORTH_LEAST
        and place.sum.bad > 0
        and place.sum.bad >= least
    ]
    return tuple(sorted(places, key=lambda place: -place.sum.bad))
