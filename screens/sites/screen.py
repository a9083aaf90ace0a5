"""The Sites screen: usage by site, GPU model, both, and cause of loss."""

from __future__ import annotations

from functools import partialmethod
from typing import ClassVar, Final

from metlmon.live.feed import Snapshot
from metlmon.snapshot.ledger import HOUR
from metlmon.stats.usage import COST_MIN_EPOCHS, GroupUsage, Usage, site_usage
from metlmon.tables import usage as usage_table
from metlmon.tables.usage import HIDDEN, NAME_LIMIT, VIEWS, Row, site_name
from metlmon.tables.usage_details import details
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
from screens.base.list_screen import ListScreen
from screens.base.screens import padded
from screens.sites.executions_screen import ExecutionsScreen


def headline(usage: Usage, room: int) -> Line:
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


def _hidden_note(usage: Usage, room: int) -> Line:
    """Note that some epochs may have been trained at another site."""
    number = len(usage.hidden)
    if not number:
        return ()
    sign = line((f"{HIDDEN.glyph} ", style_of(HIDDEN)))
    text = f"{formatting.count(number, 'epoch')} with hidden compute"
    reason = ": a longer, failed try may have done the training"
    return first_that_fits((sign + line((text + reason, DIM)), sign + line((text, DIM))), room)


ROOMY_LINES: Final = 30
"""Minimum height for blank lines between the parts."""

TALL_LINES: Final = 40
"""Minimum height for one line per cause."""

DETAILS, DETAILS_TALL = 6, 12
"""Lines below the table; fixed, so that the table keeps its height."""

FIRST_LINES: Final = 12
"""Lines of the header and the first rows, which take precedence over the details."""


class SitesScreen(ListScreen):
    """Usage in four views, switched by a key."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "sites", "below")
    ORDERS = (
        ("GPU-hours", None),
        ("badput", lambda row: (-usage_table.lost_of(row), usage_table.name_of(row))),
        ("epochs or times", lambda row: (-usage_table.times_of(row), usage_table.name_of(row))),
        ("epoch time", lambda row: (-usage_table.median_of(row), usage_table.name_of(row))),
        ("name", lambda row: (usage_table.name_of(row),)),
    )

    def __init__(self) -> None:
        super().__init__()
        self.view = 0
        self._cursors: dict[int, str] = {}

    def show(self, update: Snapshot | None) -> None:
        usage = self.context.stats.value(site_usage)
        if usage is None:
            self.show_nothing("Sites", "", [line("  ", (self._loading_text(update), DIM))], "site")
            return
        self.show_head(self._head(usage))
        view = VIEWS[self.view]
        rows = view.rows(usage)

        def below(row: Row | None) -> list[Line]:
            shown = [] if row is None else details(row, usage, self.app.size.width - 1, self._lines)
            return padded(shown, self._lines)

        self.fill(
            usage_table.specs(self.view, rows, usage.measure),
            rows,
            usage_table.key_of,
            usage_table.filter_text,
            cursor=self._cursors.pop(self.view, None),
            empty=self._empty(),
            noun=view.noun,
            details=below,
        )

    @property
    def _roomy(self) -> bool:
        return self.app.size.height >= ROOMY_LINES

    @property
    def _lines(self) -> int:
        height = self.app.size.height
        return DETAILS_TALL if height >= TALL_LINES else max(1, min(DETAILS, height - FIRST_LINES))

    def _head(self, usage: Usage) -> list[Line]:
        room = self.app.size.width - 2
        title = line(" ", ("Sites", BOLD), "   ")
        incomplete, measure = usage.nodes_unlogged > 0, usage.measure
        legend = usage_table.legend(
            usage.total.totals, incomplete and room < 100, incomplete, measure
        )
        blank = [()] if self._roomy else []
        hidden = _hidden_note(usage, room)
        return [
            title + headline(usage, room - 8),
            line(" ") + legend,
            *([line(" ") + hidden] if hidden else []),
            *blank,
            line(" ") + usage_table.tabs(self.view, [len(v.rows(usage)) for v in VIEWS]),
            *blank,
        ]

    def _loading_text(self, update: Snapshot | None) -> str:
        if update is None or update.progress.fraction < 1:
            return "Sites appear as the logs are read."
        return "Adding up all executions…"

    def _empty(self) -> list[Line]:
        if self.view == usage_table.OF_CAUSES:
            return [
                line("  ", "No badput, no held job."),
                line("  ", ("What costs hours is grouped here by its cause.", DIM)),
            ]
        return [
            line("  ", "Nothing has run yet."),
            line("  ", ("A site appears with the first execution in the event log.", DIM)),
        ]

    def _step_view(self, step: int) -> None:
        if self.table.cursor is not None:
            self._cursors[self.view] = self.table.cursor
        self.view = (self.view + step) % len(VIEWS)
        self._refresh_if_mounted()

    action_view = partialmethod(_step_view, 1)
    action_previous_view = partialmethod(_step_view, -1)

    def open_row(self, key: str) -> None:
        usage = self.context.stats.value(site_usage)
        rows = () if usage is None else VIEWS[self.view].rows(usage)
        row = next((row for row in rows if usage_table.key_of(row) == key), None)
        if row is not None:
            choice = usage_table.filter_of(row, self.view)
            self.context.push_screen(ExecutionsScreen(choice))
