"""The Sites screen: usage by site, GPU model and cause; executions of a total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partialmethod
from typing import Any, ClassVar, Final

from metlmon.snapshot.records import Execution, Snapshot
from metlmon.stats.totals import sum_executions
from metlmon.stats.usage import (
    COST_MIN_EPOCHS,
    GroupUsage,
    Usage,
    UsageFilter,
    select_executions,
    site_usage,
)
from metlmon.stats.variance import site_variation
from metlmon.tables import usage as usage_table
from metlmon.tables.layout import MARGIN, empty_text
from metlmon.tables.usage import (
    HIDDEN,
    VIEWS,
    execution_columns,
    execution_key,
    execution_text,
    filter_title,
    legend,
    longest_note,
    outcome_counts,
    site_name,
)
from metlmon.tables.variance import intervals, sentences
from metlmon.text import formatting
from metlmon.text.formatting import plain
from metlmon.text.spans import (
    BAD,
    BOLD,
    DIM,
    GOOD,
    NOTE,
    Line,
    first_that_fits,
    join_fitting,
    line,
    style_of,
    width,
    wrap,
)
from screens.base.screens import ROOMY_LINES, ListScreen, padded
from screens.pool_actions import ActionScreen, Selection


def headline(usage: Usage, room: int) -> Line:
    """Render the headline: wasted hours, and the best site, within ``room`` cells."""
    sites, noun = usage.wasteful_sites, usage.item
    if not sites:
        return _worth(usage, room)
    more = f" and {len(sites) - 1} more" if len(sites) > 1 else ""
    lost = sum(site.totals.hours.badput for site in sites)
    share = formatting.share(lost, usage.total.totals.hours.ended)
    cost = f": {formatting.hours(lost)} {usage.measure.hours} of badput ({share})"
    epochs = sum(site.totals.completed_epochs for site in sites)
    completed = f", {formatting.count(epochs, noun) if epochs else f'no {noun}'} completed"
    parts = line((site_name(sites[0].name), BAD), more, cost), line(completed)
    waste = join_fitting(parts, (), room)
    worth = _worth(usage, room - width(waste) - 2) if usage.ranked_sites else ()
    return join_fitting((waste, worth), line(("; ", DIM)), room)


def _worth(usage: Usage, room: int) -> Line:
    """Render where an epoch costs least, within ``room`` cells."""
    ranked = usage.ranked_sites
    if not usage.executions:
        return line(("nothing has run yet", DIM))
    if not ranked:
        few = f"no site has completed {COST_MIN_EPOCHS} {usage.item}s yet: too few to compare"
        return line((few, DIM))
    best, worst = ranked[0], ranked[-1]
    name, worst_name = (site_name(site.name) for site in (best, worst))
    costs_of = (site.totals.hours_per_epoch or 0.0 for site in (best, worst))
    cost, worst_hours = map(formatting.hours, costs_of)
    unit = f" {usage.measure.short}/{usage.item}"
    if cost == worst_hours and len(ranked) > 1:
        return line((cost, BOLD), f"{unit} at every site")
    if len(ranked) == 1:
        lost = formatting.hours(best.totals.lost_per_epoch or 0.0)
        parts = (
            line((cost, BOLD), f"{unit} at ", (name, GOOD)),
            line((f", {lost} of it badput", DIM)),
            line(("; no other site to compare", DIM)),
        )
        return join_fitting(parts, (), room)
    gpus = [_main_gpu(site, usage) for site in (best, worst)]
    cheapest = line("cheapest: ", (name, GOOD))
    costs = line(", ", (cost, BOLD), unit)
    dearest = line(("; most expensive: ", DIM), (worst_name, NOTE))
    worst_cost = line((", ", DIM), worst_hours)
    short = cheapest + costs + dearest + worst_cost
    full = cheapest + gpus[0] + costs + dearest + gpus[1] + worst_cost
    return first_that_fits((full, short, cheapest + costs), room)


def _main_gpu(site: GroupUsage, usage: Usage) -> Line:
    """Return the most frequent GPU of a site; GPU-hours differ between models."""
    if not site.machines or site.machines[0][0] is None:
        return ()
    return line((f" ({usage_table.gpu_names(usage)[site.machines[0][0]]})", DIM))


TALL_LINES: Final = 40
"""Minimum height for one line per cause."""

DETAILS, DETAILS_TALL = 6, 12
"""Lines below the table; fixed, so that the table keeps its height."""

FIRST_LINES: Final = 12
"""Lines of the header and the first rows, which take precedence over the details."""


class SitesScreen(ListScreen, ActionScreen):
    """Usage in several views, switched by a key. Actions apply to the site or host of the row."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "sites", "acting", "below")
    ORDERS = (
        ("GPU-hours", None),
        # For each view, those that are columns there.
        "badput",
        "lost",
        "loss",
        "epochs",
        "times",
        "epoch",
        "mean_epoch",
        "name",
        "site",
        "what",
        "memory_mb_p95",
        "cpus_median",
    )

    def __init__(self) -> None:
        super().__init__()
        self.view = VIEWS[0]
        self._cursors: dict[str, str] = {}

    def show(self, update: Snapshot) -> None:
        usage = self.context.stats.value(site_usage)
        if usage is None:
            reading = "Sites appear as the logs are read."
            text = "Adding up all executions…" if update.is_complete else reading
            self.show_nothing("Sites", empty_text("", text))
            return
        self.show_head(self._head(usage))
        view = self.view
        rows, idle = usage_table.fold_idle(view.rows(usage), view.noun)
        if self.filter_text:
            rows, idle = view.rows(usage), ""

        def below(row: Any) -> list[Line]:
            room = self.app.size.width - 1
            shown = [] if row is None else view.details_of(row, usage, room, self._lines)
            return padded(shown, self._lines)

        hint = "A site appears with the first execution in the event log."
        empty = empty_text("Nothing has run yet.", hint)
        if view is usage_table.CAUSES:
            hint = "What costs hours is grouped here by its cause."
            empty = empty_text("No badput, no held job.", hint)
        self.fill(
            view.columns_of(rows, usage),
            rows,
            view.key_of,
            view.filter_text,
            cursor=self._cursors.pop(view.title, None),
            empty=empty,
            noun=view.noun,
            details=below,
            last_line=self._idle_line(idle) if idle else "",
        )

    def _idle_line(self, idle: str) -> str:
        """What ``fold_idle`` says of the other rows, cut so that the key to them fits."""
        how = "   [/] finds them"
        return formatting.clip(idle, self.table_width - MARGIN - 1 - len(how)) + how

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
        incomplete = usage.nodes_unlogged > 0
        legend = usage_table.legend(usage.total.totals, incomplete and room < 100, incomplete)
        blank = [()] if self._roomy else []
        number = formatting.count(len(usage.hidden_epochs), usage.item)
        hidden = line(
            (f"{HIDDEN.glyph} ", style_of(HIDDEN)), (f"{number} with hidden compute", DIM)
        )
        reason = line((": a longer, failed try may have done the training", DIM))
        note = [line(" ") + join_fitting((hidden, reason), (), room)]
        return [
            title + headline(usage, room - 8),
            line(" ") + legend,
            *(note if usage.hidden_epochs else []),
            *blank,
            line(" ") + usage_table.tabs(self.view, usage, room),
            *(self._variation_lines(usage.item, room) if self.view is usage_table.CELLS else ()),
            *blank,
        ]

    def _variation_lines(self, item: str, room: int) -> list[Line]:
        """Where the differences between epoch times come from; on tall screens with intervals."""
        variation = self.context.stats.value(site_variation)
        lines: list[Line] = [(), ()]
        if variation is not None:
            ranges = first_that_fits((intervals(variation), ()), room)
            lines = [first_that_fits(sentences(variation, item), room), ranges]
        return [line(" ") + each for each in lines[: 1 + self._roomy]]

    def _chosen(self, key: str | None) -> UsageFilter | None:
        """The executions behind the row with this key."""
        row = self.row(key)
        return None if row is None else self.view.selects(row)

    def selection(self) -> Selection:
        """The site or host of the row under the cursor."""
        choice = self._chosen(self.table.cursor)
        if choice is not None and choice.host and choice.host[0]:
            return Selection(f"the host {choice.host[0]}", host=choice.host[0])
        if choice is not None and choice.site and choice.site[0]:
            return Selection(f"the site {choice.site[0]}", site=choice.site[0])
        return Selection("no site", site="")

    def _step_view(self, step: int) -> None:
        if self.table.cursor is not None:
            self._cursors[self.view.title] = self.table.cursor
        self.view = VIEWS[(VIEWS.index(self.view) + step) % len(VIEWS)]
        self._refresh_if_mounted()

    action_view = partialmethod(_step_view, 1)
    action_previous_view = partialmethod(_step_view, -1)

    def open_row(self, key: str) -> None:
        choice = self._chosen(key)
        if choice is not None:
            self.context.open_screen("executions", choice)


KINDS: Final = ("all", "goodput", "badput", "running", "marked")
"""Filters in the order of the key.

``marked`` are executions that completed an epoch which another execution may have trained.
"""

REASON_LIMIT: Final = 2000


class ExecutionsScreen(ListScreen):
    """The executions selected by ``usage_filter``, with their total above them."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "executions", "below")
    ORDERS = (("start", None), "hours", "seconds", "outcome", "run")
    DETAIL_LINES = 2

    def __init__(self, usage_filter: UsageFilter) -> None:
        super().__init__()
        self.usage_filter = usage_filter
        self.kind = 0

    def show(self, update: Snapshot) -> None:
        usage = self.context.stats.value(site_usage)
        if usage is None:
            text = empty_text("", "Executions appear as the logs are read.")
            self.show_nothing("Executions", text)
            return
        executions = select_executions(usage, self.usage_filter)
        kind = KINDS[self.kind]
        rows = [row for row in executions if kind in ("all", row.kind)]
        if kind == "marked":
            rows = [row for row in executions if usage.hidden_epoch(row) is not None]
        self.show_head(self._head(usage, executions, rows))
        empty = empty_text("Nothing ran here.", "[esc] goes back")
        if self.usage_filter.cause is not None:
            sentence = "No execution ended by this: jobs were held before they ran."
            empty = empty_text(sentence, "[2] lists them among the problems")
        self.fill(
            execution_columns(usage, self.usage_filter),
            rows,
            execution_key,
            lambda row: execution_text(row, usage),
            all_rows=executions,
            empty=empty,
            no_match=empty_text(
                "No execution here is like that.", "[esc] clears the filter, [f] shows the others"
            ),
            extra=[line((f"only {kind}", NOTE))] if self.kind else (),
            noun="execution",
            details=lambda row: self._reason_lines(row, usage),
        )

    def _head(
        self, usage: Usage, executions: Sequence[Execution], rows: Sequence[Execution]
    ) -> list[Line]:
        room = self.app.size.width - 2
        totals = sum_executions(executions, usage.measure)
        number = formatting.number(totals.executions)
        selection = filter_title(self.usage_filter, usage, room - 14 - len(number))
        subject = line(f"{number} ", selection)
        ended: Line = ()
        if self.usage_filter.cause is None:
            ended = line((f": {outcome_counts(totals)}", DIM))
        title = line(("Executions", BOLD), "   ")
        title += join_fitting((subject, ended), (), room - 13)
        epochs = line((f"{formatting.number(totals.completed_epochs)} completed an epoch", DIM))
        sums = legend(totals)
        return [line(" ") + title, line(" ") + join_fitting((sums, epochs), line("   "), room), ()]

    def _reason_lines(self, row: Execution | None, usage: Usage) -> list[Line]:
        text, style = "", DIM
        hidden = usage.hidden_epoch(row) if row is not None else None
        if hidden is not None:
            text, style = longest_note(hidden), style_of(HIDDEN)
        elif row is not None and row.kind == "badput":
            text = plain(row.reason or row.cause or "", REASON_LIMIT)
            if row.uncertain:
                text += "; its end was not logged: it took at most as long as is shown"
        room = self.app.size.width - 2
        return wrap(text, room, style, 1, self.DETAIL_LINES) if text else []

    def action_kind(self) -> None:
        self.kind = (self.kind + 1) % len(KINDS)
        self._refresh_if_mounted()

    def footer_labels(self) -> Mapping[str, str]:
        if self.kind and not self.filter_text:
            return {"back": "all kinds"}
        return super().footer_labels()

    def clear_filter_or_marks(self) -> bool:
        if self.filter_text or not self.kind:
            return super().clear_filter_or_marks()
        self.kind = 0
        self._refresh_if_mounted()
        return True

    def open_row(self, key: str) -> None:
        if (row := self.row(key)) is not None:
            self.context.open_screen("job", *row.job)

    def action_owner(self) -> None:
        row = self.row(self.table.cursor)
        view = self.context.feed.job_view(*row.job) if row is not None else None
        if view is not None:
            self.context.open_run_of(view.job)
