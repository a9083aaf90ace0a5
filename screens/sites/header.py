"""Headline of the Sites screen: waste, and where an epoch costs least.

Pure functions.
"""

from __future__ import annotations

from metlmon.snapshot.ledger import HOUR
from metlmon.stats.usage import COST_MIN_EPOCHS, GroupUsage, Usage
from metlmon.tables.usage import HIDDEN, NAME_LIMIT, site_name
from metlmon.text import formatting
from metlmon.text.spans import (
    BAD,
    BOLD,
    DIM,
    GOOD,
    NOTE,
    Line,
    first_that_fits,
    line,
    style_of,
    width,
)


def answer(usage: Usage, room: int) -> Line:
    """Render the headline: wasted hours, and the best site, within ``room`` cells."""
    losses = _waste(usage)
    if not losses:
        return _worth(usage, room)
    worth = _worth(usage, room - width(losses[0]) - 2) if usage.ranked_sites else ()
    combined = losses[0] + line(("; ", DIM)) + worth if worth else losses[0]
    return first_that_fits((combined, *losses), room)


def _waste(usage: Usage) -> tuple[Line, ...]:
    """Render the wasteful sites, the longest wording first."""
    wasteful_sites = usage.wasteful_sites
    if not wasteful_sites:
        return ()
    name = site_name(wasteful_sites[0].name, NAME_LIMIT)
    more = f" and {len(wasteful_sites) - 1} more" if len(wasteful_sites) > 1 else ""
    hours = usage.measure.hours
    lost, total = sum(site.totals.bad for site in wasteful_sites), usage.total.totals
    lost_hours = formatting.hours(lost / HOUR)
    share = formatting.share(lost, total.good + total.bad)
    epochs = sum(site.totals.completed for site in wasteful_sites)
    completed = f"{formatting.count(epochs, 'epoch') if epochs else 'no epoch'} completed"
    return (
        line((name, BAD), more, f": {lost_hours} {hours} of badput ({share}), {completed}"),
        line((name, BAD), more, f": {lost_hours} {hours} of badput ({share})"),
    )


def _worth(usage: Usage, room: int) -> Line:
    """Render where an epoch costs least, within ``room`` cells."""
    ranked = usage.ranked_sites
    if not usage.executions:
        return line(("nothing has run yet", DIM))
    if not ranked:
        return line(
            (f"no site has completed {COST_MIN_EPOCHS} epochs yet: too few to compare", DIM)
        )
    best, worst = ranked[0], ranked[-1]
    name, worst_name = (site_name(site.name, NAME_LIMIT) for site in (best, worst))
    cost, worst_hours = (
        formatting.hours((site.totals.per_epoch or 0.0) / HOUR) for site in (best, worst)
    )
    unit = f" {usage.measure.short}/epoch"
    if cost == worst_hours and len(ranked) > 1:
        return line((cost, BOLD), f"{unit} at every site")
    if len(ranked) == 1:
        lost = formatting.hours((best.totals.lost_per_epoch or 0.0) / HOUR)
        per_epoch = line((cost, BOLD), f"{unit} at ", (name, GOOD))
        badput = per_epoch + line((f", {lost} of it badput", DIM))
        alone = badput + line(("; no other site to compare", DIM))
        return first_that_fits((alone, badput, per_epoch), room)
    gpus = [_main_gpu(site) for site in (best, worst)]
    cheapest = line("cheapest: ", (name, GOOD))
    costs = line(", ", (cost, BOLD), unit)
    dearest = line(("; most expensive: ", DIM), (worst_name, NOTE))
    worst_cost = line((", ", DIM), worst_hours)
    return first_that_fits(
        (
            cheapest + gpus[0] + costs + dearest + gpus[1] + worst_cost,
            cheapest + costs + dearest + worst_cost,
            cheapest + costs,
        ),
        room,
    )


def _main_gpu(site: GroupUsage) -> Line:
    """Return the most frequent GPU of a site; GPU-hours differ between models."""
    if not site.machines or site.machines[0][0] is None:
        return ()
    return line((f" ({formatting.gpu_short(site.machines[0][0])})", DIM))


def hidden_note(usage: Usage, room: int) -> Line:
    """Note that some epochs may have been trained at another site."""
    number = len(usage.hidden)
    if not number:
        return ()
    sign = line((f"{HIDDEN.glyph} ", style_of(HIDDEN)))
    text = f"{formatting.count(number, 'epoch')} with hidden compute"
    reason = ": a longer, failed try may have done the training"
    return first_that_fits((sign + line((text + reason, DIM)), sign + line((text, DIM))), room)
