"""The sentence at the head of the Sites screen: what was wasted, and where a GPU-hour is worth
most. Pure functions."""

from __future__ import annotations

from metlmon.snapshot.ledger import HOUR
from metlmon.stats.usage import WORTH_LEAST, SiteUsage, Usage
from metlmon.stats.wasteful_sites import wasteful
from metlmon.text import formatting
from screens.sites.table import HIDDEN, NAME_LIMIT, named
from screens.widgets.spans import (
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


def answer(found: Usage, cells: int, ascii: bool) -> Line:
    """Where GPU-hours were wasted, and where one is worth most, in so many cells."""
    waste = _waste(found, ascii)
    if not waste:
        return _worth(found, cells, ascii)
    worth = _worth(found, cells - width(waste[0]) - 2, ascii) if found.ranked else ()
    both = waste[0] + line(("; ", DIM)) + worth if worth else waste[0]
    return first_that_fits((both, *waste), cells)


def _waste(found: Usage, ascii: bool) -> tuple[Line, ...]:
    """Sites that cost much and completed next to nothing, the longest wording first."""
    places = wasteful(found)
    if not places:
        return ()
    name = named(places[0].name, NAME_LIMIT, ascii)
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    hours = found.measure.hours
    lost, whole = sum(each.sum.bad for each in places), found.total.sum
    told = formatting.hours(lost / HOUR, ascii)
    share = formatting.share(lost, whole.good + whole.bad, ascii)
    epochs = sum(each.sum.completed for each in places)
    completed = (
        f"completed {formatting.count(epochs, 'epoch', ascii=ascii) if epochs else 'no epoch'}"
    )
    return (
        line((name, BAD), more, f" lost {told} {hours} ({share}), {completed}"),
        line((name, BAD), more, f" lost {told} {hours} ({share})"),
    )


def _worth(found: Usage, cells: int, ascii: bool) -> Line:
    """Where a GPU-hour is worth most, in so many cells."""
    ranked = found.ranked
    if not found.executions:
        return line(("nothing has run yet", DIM))
    if not ranked:
        return line((f"no site has completed {WORTH_LEAST} epochs yet: too few to compare", DIM))
    best, worst = ranked[0], ranked[-1]
    name, most = (named(each.name, NAME_LIMIT, ascii) for each in (best, worst))
    cost, dear = (formatting.hours((each.cost or 0.0) / HOUR, ascii) for each in (best, worst))
    if cost == dear and len(ranked) > 1:
        return line("an epoch costs ", (cost, BOLD), f" {found.measure.hours} at every site")
    if len(ranked) == 1:
        lost = formatting.hours((best.sum.lost_per_epoch or 0.0) / HOUR, ascii)
        each = line("an epoch costs ", (cost, BOLD), f" {found.measure.hours} at ", (name, GOOD))
        return first_that_fits(
            (each + line((f", {lost} of them lost; no other site to compare", DIM)),
             each + line((f", {lost} of them lost", DIM)), each), cells
        )  # fmt: skip
    on = [_mostly(each, ascii) for each in (best, worst)]
    said = line(f"a {found.measure.hours.removesuffix('s')} is worth most at ", (name, GOOD))
    short = line("worth most at ", (name, GOOD))
    costs = line(": an epoch costs ", (cost, BOLD), " of them")
    each = line(": ", (cost, BOLD), " an epoch")
    least = line(("; least at ", DIM), (most, NOTE))
    much = line((": ", DIM), dear)
    return first_that_fits(
        (
            said + on[0] + costs + least + on[1] + much,
            said + costs + least + much,
            said + each + least + much,
            short + each + least + much,
            said + each,
            short + each,
        ),
        cells,
    )


def _mostly(place: SiteUsage, ascii: bool) -> Line:
    """The GPU that most of its executions had: hours of different ones are not the same."""
    if not place.machines or place.machines[0][0] is None:
        return ()
    return line((f" ({formatting.gpu_short(place.machines[0][0], ascii)})", DIM))


def hidden_told(found: Usage, cells: int, ascii: bool) -> Line:
    """That some epochs may not have been trained where they are booked."""
    number = len(found.hidden)
    if not number:
        return ()
    sign = line((f"{HIDDEN.mark(ascii)} ", style_of(HIDDEN)))
    of = f"{number} of {formatting.count(found.total.sum.completed, 'epoch', ascii=ascii)}"
    had = "had an execution over twice as long as the successful one"
    return first_that_fits(
        (
            sign + line((f"{of} {had}: they may have been trained there", DIM)),
            sign + line((f"{of} {had}", DIM)),
            sign + line((f"{formatting.count(number, 'epoch', ascii=ascii)} {had}", DIM)),
        ),
        cells,
    )
