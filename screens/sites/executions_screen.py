"""List of the executions behind a total of the Sites screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from metlmon.frozen import frozen
from metlmon.live.feed import Snapshot
from metlmon.model.job_events import JobId
from metlmon.snapshot.ledger import HOUR, EpochEntry, ExecutionEntry
from metlmon.stats.totals import UsageTotals, sum_executions
from metlmon.stats.usage import Usage, UsageFilter, hidden_jobs, select_executions, site_usage
from metlmon.tables.layout import Column, fit_columns, render_cells, table_columns
from metlmon.tables.usage import HIDDEN, NAME_LIMIT, legend, machine, models, site_name
from metlmon.text import formatting
from metlmon.text.formatting import OUTCOMES, plain
from metlmon.text.spans import (
    BAD,
    BOLD,
    DIM,
    NOTE,
    Line,
    TextStyle,
    first_that_fits,
    join,
    limit_lines,
    line,
    style_of,
    symbol_span,
    wrap,
)
from screens.actions import bindings_of
from screens.base.screens import ListScreen
from screens.widgets.lines import StaticLines
from screens.widgets.table import Table, TableRow

KINDS: Final = ("all", "good", "lost", "in flight", "marked")
"""Filters in the order of the key.

``marked`` are executions that completed an epoch which another execution may have trained.
"""

REASON_LINES: Final = 2
"""Lines below the table; fixed, so that the table keeps its height."""

REASON_LIMIT: Final = 2000


@frozen
class ListedExecution:
    """One execution as a row.

    ``hidden`` is the epoch that it completed, if another execution of that epoch was over twice as
    long.
    """

    entry: ExecutionEntry
    hidden: EpochEntry | None

    @property
    def key(self) -> str:
        cluster, proc = self.entry.job
        return f"{cluster}.{proc}/{self.entry.attempt}"

    @property
    def kind(self) -> str:
        return {"bad": "lost", "in_flight": "in flight"}.get(self.entry.kind, self.entry.kind)


def rows_of(usage: Usage, usage_filter: UsageFilter) -> list[ListedExecution]:
    """Return the executions selected by a filter, with their hidden epochs."""
    epochs: Mapping[JobId, EpochEntry] = hidden_jobs(usage)
    return [
        ListedExecution(entry, epochs.get(entry.job) if entry.final else None)
        for entry in select_executions(usage, usage_filter)
    ]


class ExecutionsScreen(ListScreen):
    """The executions selected by ``usage_filter``, with their total above them."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "executions", "below")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("list", "executions", "below")]
    ORDERS = (
        ("start", None),
        ("GPU-hours", lambda row: (-(row.entry.gpu_seconds or 0.0),)),
        ("time", lambda row: (-row.entry.seconds,)),
        ("outcome", lambda row: (row.entry.outcome.value, row.entry.cause or "")),
        ("run", lambda row: (row.entry.run_name or "", row.entry.epoch or 0)),
    )

    def __init__(self, usage_filter: UsageFilter) -> None:
        super().__init__()
        self.usage_filter = usage_filter
        self.kind = 0

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Table()
        yield from self.compose_foot()

    def show(self, update: Snapshot | None) -> None:
        usage = self.context.stats.value(site_usage)
        room = self.app.size.width
        executions = [] if usage is None else rows_of(usage, self.usage_filter)
        rows = [row for row in executions if self._is_shown(row)]
        filtered = self.filter_rows(rows, filter_text)
        self.query_one("#head", StaticLines).show(self._head(usage, executions, rows))
        specs = column_specs(self.usage_filter, executions, self._model_names(usage))
        widths = fit_columns(specs, executions, room)
        table_rows = [
            TableRow(row.key, partial(render_cells, specs, widths, row)) for row in filtered
        ]
        self.table.show(table_columns(specs, widths), table_rows, self._empty(usage, executions))
        kind = [line((f"only {KINDS[self.kind]}", NOTE))] if self.kind else []
        note = self.note_line(len(filtered), len(executions), kind, "execution")
        selected = next((row for row in filtered if row.key == self.table.cursor), None)
        self.query_one("#note", StaticLines).show([note, *self._reason_lines(selected)])

    def _is_shown(self, row: ListedExecution) -> bool:
        kind = KINDS[self.kind]
        return kind == "all" or row.kind == kind or (kind == "marked" and row.hidden is not None)

    def _head(
        self,
        usage: Usage | None,
        executions: Sequence[ListedExecution],
        rows: Sequence[ListedExecution],
    ) -> list[Line]:
        room = self.app.size.width - 2
        totals: UsageTotals = sum_executions(row.entry for row in executions)
        number = formatting.number(totals.executions)
        subject = line(f"{number} ", self._selection_text(usage, room - 14 - len(number)))
        ended = (
            line((f": {_outcome_counts(totals)}", DIM)) if self.usage_filter.cause is None else ()
        )
        title = line(("Executions", BOLD), "   ")
        title += first_that_fits((subject + ended, subject), room - 13) if usage is not None else ()
        epochs = line((f"{formatting.number(totals.completed)} completed an epoch", DIM))
        sums = legend(totals)
        narrow = first_that_fits(
            (
                join((sums, epochs), line("   ")),
                sums,
            ),
            room,
        )
        return [line(" ") + title, line(" ") + narrow, ()]

    def _model_names(self, usage: Usage | None) -> dict[str | None, str]:
        places = () if usage is None else usage.gpus
        return models(place.name for place in places)

    def _selection_text(self, usage: Usage | None, room: int) -> str:
        usage_filter = self.usage_filter
        parts = []
        if usage_filter.gpu is not None:
            number = usage_filter.gpus[0] if usage_filter.gpus is not None else None
            name = usage_filter.gpu[0]
            model = plain(name, NAME_LIMIT) if name else "GPU unknown"
            parts.append(f"{model} ×{number}" if number else model)
        if usage_filter.site is not None:
            parts.append(f"at {site_name(usage_filter.site[0], NAME_LIMIT)}")
        if usage_filter.cause is not None:
            causes = () if usage is None else usage.causes
            cause = next((item for item in causes if item.key == usage_filter.cause), None)
            text = usage_filter.cause if cause is None else cause.text
            code = f"{usage_filter.cause} " if cause is not None and cause.code is not None else ""
            parts.append(f"lost to {plain(code + text, room)}")
        return formatting.clip(" ".join(parts), room)

    def _empty(self, usage: Usage | None, executions: Sequence[ListedExecution]) -> list[Line]:
        if usage is None:
            return [line("  ", ("Executions appear as the logs are read.", DIM))]
        if executions:
            return [
                line("  ", "No execution here is like that."),
                line("  ", ("esc clears the filter, f shows the others", DIM)),
            ]
        if self.usage_filter.cause is not None:
            return [
                line("  ", "No execution ended by this: jobs were held before they ran."),
                line("  ", ("p lists them among the problems", DIM)),
            ]
        return [line("  ", "Nothing ran here."), line("  ", ("esc goes back", DIM))]

    def _reason_lines(self, row: ListedExecution | None) -> list[Line]:
        room = self.app.size.width - 2
        lines: list[Line] = []
        if row is not None and row.hidden is not None:
            lines = wrap(_longest_note(row.hidden), room, style_of(HIDDEN), 1)
        elif row is not None and row.entry.kind == "bad":
            reason = plain(row.entry.reason or row.entry.cause or "", REASON_LIMIT)
            if row.entry.uncertain:
                reason = f"its end was not logged, so it took at most as long as this: {reason}"
            lines = wrap(reason, room, DIM, 1)
        lines = limit_lines(lines, REASON_LINES, room, 1)
        return [*lines, *[()] * (REASON_LINES - len(lines))]

    def action_kind(self) -> None:
        self.kind = (self.kind + 1) % len(KINDS)
        self._refresh_if_mounted()

    def footer_labels(self) -> Mapping[str, str]:
        return (
            {"back": "all kinds"} if self.kind and not self.filter_text else super().footer_labels()
        )

    def clear_filter_or_marks(self) -> bool:
        if self.filter_text or not self.kind:
            return super().clear_filter_or_marks()
        self.kind = 0
        self._refresh_if_mounted()
        return True

    def open_row(self, key: str) -> None:
        job, _, _ = key.partition("/")
        cluster, _, proc = job.partition(".")
        self.context.open_job(int(cluster), int(proc))

    def action_owner(self) -> None:
        job, _, _ = (self.table.cursor or "").partition("/")
        cluster, _, proc = job.partition(".")
        view = self.context.feed.job_view(int(cluster), int(proc)) if cluster else None
        if view is not None:
            self.context.open_run_of(view.row)


def _outcome_counts(totals: UsageTotals) -> str:
    """Count by outcome: ``153 good, 53 lost, 2 in flight``; zeros are omitted."""
    in_flight = totals.executions - totals.good_executions - totals.bad_executions
    counts = (
        (totals.good_executions, "good"),
        (totals.bad_executions, "lost"),
        (in_flight, "in flight"),
    )
    return ", ".join(f"{formatting.number(n)} {label}" for n, label in counts if n) or "nothing"


def _longest_note(epoch: EpochEntry) -> str:
    site = site_name(epoch.longest_site, NAME_LIMIT)
    took = formatting.duration(epoch.seconds)
    longest = formatting.duration(epoch.longest_seconds)
    return (
        f"{HIDDEN.glyph} this one of {took} completed the epoch, but its longest one, of "
        f"{longest} at {site}, may have trained it: its hours are booked there"
    )


def filter_text(row: ListedExecution) -> str:
    """Return the text of an execution that the filter searches, in lower case."""
    entry = row.entry
    parts = [formatting.job_id(*entry.job), entry.run_name, entry.node, entry.uuid, entry.site]
    parts += [entry.gpu, entry.target, entry.cause, entry.host, f"{entry.start:%Y-%m-%d %H:%M}"]
    parts += [OUTCOMES[entry.outcome].word, HIDDEN.word if row.hidden is not None else None]
    return "\n".join(part for part in parts if part is not None).lower()


def column_specs(
    usage_filter: UsageFilter,
    rows: Sequence[ListedExecution],
    model_names: Mapping[str | None, str],
) -> list[Column[ListedExecution]]:
    """Return the columns.

    The column of the selected site, GPU or cause is dropped first, and a year common to all rows is
    shown in the heading only.
    """
    years = {row.entry.start.year for row in rows}
    common_year = f" {min(years)}" if len(years) == 1 else ""
    time_format = "%m-%d %H:%M" if common_year else "%Y-%m-%d %H:%M"

    def text(value: str | None) -> Line:
        return line(plain(value, NAME_LIMIT) if value else (formatting.UNKNOWN, DIM))

    def epoch(row: ListedExecution, max_width: int | None) -> Line:
        entry = row.entry
        if entry.epoch is None:
            return ()
        return line(str(entry.epoch), ("" if entry.training else " side", DIM))

    def outcome(row: ListedExecution, max_width: int | None) -> Line:
        sign = symbol_span(OUTCOMES[row.entry.outcome])
        if row.entry.uncertain:
            sign += line((" ?", NOTE))
        if row.hidden is not None:
            sign += line((f" {HIDDEN.glyph}", style_of(HIDDEN)))
        return sign

    def cause(row: ListedExecution, max_width: int | None) -> Line:
        entry = row.entry
        if entry.cause is None:
            return ()
        code = f"{entry.code}/{entry.subcode or 0} " if entry.code else ""
        return line((plain(code + entry.cause, 400), DIM))

    def hours(row: ListedExecution, max_width: int | None) -> Line:
        gpu_seconds = row.entry.gpu_seconds
        if gpu_seconds is None:
            return line((formatting.UNKNOWN, DIM))
        style = BAD if row.entry.kind == "bad" else TextStyle()
        return line((formatting.hours(gpu_seconds / HOUR), style))

    def where(row: ListedExecution, max_width: int | None) -> Line:
        return line((site_name(row.entry.site, NAME_LIMIT), TextStyle()))

    return [
        Column(
            "run",
            "RUN",
            lambda row, _: text(row.entry.run_name),
            minimum=6,
            comfortable=10,
            maximum=24,
        ),
        Column("epoch", "EPOCH", epoch, "right"),
        Column("try", "TRY", lambda row, _: line(str(row.entry.attempt)), "right", drop=2),
        Column(
            "start",
            f"START{common_year}",
            lambda row, _: line(f"{row.entry.start:{time_format}}"),
            drop=1,
        ),
        Column(
            "seconds",
            "TIME",
            lambda row, _: line(formatting.duration(row.entry.seconds)),
            "right",
        ),
        Column("hours", "GPU-h", hours, "right"),
        Column("outcome", "OUTCOME", outcome, minimum=10),
        Column(
            "site",
            "SITE",
            where,
            drop=4 if usage_filter.site is None else 6,
            comfortable=10,
            maximum=24,
        ),
        Column(
            "gpu",
            "GPU",
            lambda row, _: line(machine(model_names, row.entry.gpu, row.entry.gpus)),
            drop=5,
            maximum=24,
        ),
        Column(
            "job",
            "JOB",
            lambda row, _: line((formatting.job_id(*row.entry.job), DIM)),
            "right",
            drop=7,
        ),
        Column(
            "cause",
            "CAUSE",
            cause,
            comfortable=12,
            minimum=8,
            drop=3 if usage_filter.cause is None else 8,
            maximum=400,
        ),
    ]
