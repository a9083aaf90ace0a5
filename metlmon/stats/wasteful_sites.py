"""Sites with a high cost and hardly any completed epochs."""

from __future__ import annotations

from typing import Final

from metlmon.stats.usage import WORTH_LEAST, SiteUsage, Usage

WASTE_MIN_SHARE: Final = 0.1
"""Minimum loss of a site for the header, as a share of the GPU-hours of ended executions."""


def find_wasteful_sites(usage: Usage) -> tuple[SiteUsage, ...]:
    """Known sites with few epochs that lost many GPU-hours, worst first."""
    total = usage.total.totals
    threshold = WASTE_MIN_SHARE * (total.good + total.bad)
    selected = [
        site
        for site in usage.sites
        if site.name is not None
        and site.totals.completed < WORTH_LEAST
        and site.totals.bad > 0
        and site.totals.bad >= threshold
    ]
    return tuple(sorted(selected, key=lambda site: -site.totals.bad))
