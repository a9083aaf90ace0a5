"""The executions that a number was added up from."""

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
from metlmon.stats.totals import UsageTotals, tally
from metlmon.stats.usage import Usage, UsageFilter, chosen, hidden_jobs, sites
from metlmon.text import formatting
from metlmon.text.formatting import OUTCOMES, plain
from screens.actions import bindings_of
from screens.base.column_layout import ColumnSpec, cells, columns, fit_columns
from screens.base.screens import ListScreen
from screens.sites.table import HIDDEN, NAME_LIMIT, legend, machine, models, named
from screens.widgets.lines import StaticLines
from screens.widgets.spans import (
    BAD,
    BOLD,
    DIM,
    NOTE,
    Line,
    TextStyle,
    bounded,
    first_that_fits,
    joined,
    line,
    style_of,
    symbol_span,
    wrapped,
)
from screens.widgets.table import Table, TableRow

KINDS: Final = ("all", "good", "lost", "in flight", "marked")
"""What the key shows in turn; ``marked`` are those that completed an epoch which another
execution may have trained."""

REASON_LINES: Final = 2
"""Lines below the table, always as many, so that it keeps its height."""

REASON_LIMIT: Final = 2000


@frozen
class Done:
    """One execution as a row; ``epoch``: of one that completed an epoch which had an execution
    twice as long."""

    entry: ExecutionEntry
    hidden: EpochEntry | None

    @property
    def key(self) -> str:
        cluster, proc = self.entry.job
        return f"{cluster}.{proc}/{self.entry.attempt}"

    @property
    def kind(self) -> str:
        return {"bad": "lost", "in_flight": "in flight"}.get(self.entry.kind, self.entry.kind)


def rows_of(found: Usage, choice: UsageFilter) -> list[Done]:
    """The executions behind a number, each with the epoch that it may not have trained."""
    epochs: Mapping[JobId, EpochEntry] = hidden_jobs(found)
    return [
        Done(entry, epochs.get(entry.job) if entry.final else None)
        for entry in chosen(found, choice)
    ]


class ExecutionsScreen(ListScreen):
    """The executions that ``choice`` chooses, with the sum that it came from above them."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "executions", "below")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("list", "executions", "below")]
    ORDERS = (
        ("start", None),
        ("GPU-hours", lambda done: (-(done.entry.gpu_seconds or 0.0),)),
        ("time", lambda done: (-done.entry.seconds,)),
        ("outcome", lambda done: (done.entry.outcome.value, done.entry.cause or "")),
        ("run", lambda done: (done.entry.run_name or "", done.entry.epoch or 0)),
    )

    def __init__(self, choice: UsageFilter) -> None:
        super().__init__()
        self.choice = choice
        self.kind = 0

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Table()
        yield from self.foot()

    def show(self, update: Snapshot | None) -> None:
        found = self.monitor.study.of(sites)
        ascii, room = self.ascii, self.app.size.width
        whole = [] if found is None else rows_of(found, self.choice)
        rows = [done for done in whole if self._wanted(done)]
        kept = self.kept(rows, seen_by_filter)
        self.query_one("#head", StaticLines).show(self._head(found, whole, rows))
        specs = specs_of(self.choice, whole, self._called(found), ascii)
        widths = fit_columns(specs, whole, room)
        shown = [TableRow(done.key, partial(cells, specs, widths, done)) for done in kept]
        self.table.show(columns(specs, widths), shown, self._empty(found, whole))
        kind = [line((f"only {KINDS[self.kind]}", NOTE))] if self.kind else []
        note = self.note(len(kept), len(whole), kind, "execution")
        under = next((done for done in kept if done.key == self.table.cursor), None)
        self.query_one("#note", StaticLines).show([note, *self._why(under)])

    def _wanted(self, done: Done) -> bool:
        kind = KINDS[self.kind]
        return kind == "all" or done.kind == kind or (kind == "marked" and done.hidden is not None)

    def _head(self, found: Usage | None, whole: Sequence[Done], rows: Sequence[Done]) -> list[Line]:
        ascii, room = self.ascii, self.app.size.width - 2
        told: UsageTotals = tally(done.entry for done in whole)
        number = formatting.number(told.executions, ascii)
        what = line(f"{number} ", self._what(found, room - 14 - len(number)))
        ended = line((f": {_ended(told, ascii)}", DIM)) if self.choice.cause is None else ()
        title = line(("Executions", BOLD), "   ")
        title += first_that_fits((what + ended, what), room - 13) if found is not None else ()
        epochs = line((f"{formatting.number(told.completed, ascii)} completed an epoch", DIM))
        sums = legend(told, ascii)
        narrow = first_that_fits(
            (
                joined((sums, epochs), line("   ")),
                sums,
            ),
            room,
        )
        return [line(" ") + title, line(" ") + narrow, ()]

    def _called(self, found: Usage | None) -> dict[str | None, str]:
        places = () if found is None else found.gpus
        return models((place.name for place in places), self.ascii)

    def _what(self, found: Usage | None, room: int) -> str:
        choice, ascii = self.choice, self.ascii
        parts = []
        if choice.gpu is not None:
            number = choice.gpus[0] if choice.gpus is not None else None
            name = choice.gpu[0]
            model = plain(name, NAME_LIMIT, ascii) if name else "GPU unknown"
            parts.append(f"{model} {'x' if ascii else '×'}{number}" if number else model)
        if choice.site is not None:
            parts.append(f"at {named(choice.site[0], NAME_LIMIT, ascii)}")
        if choice.cause is not None:
            causes = () if found is None else found.causes
            cause = next((each for each in causes if each.key == choice.cause), None)
            text = choice.cause if cause is None else cause.text
            code = f"{choice.cause} " if cause is not None and cause.code is not None else ""
            parts.append(f"lost to {plain(code + text, room, ascii)}")
        return formatting.clip(" ".join(parts), room, ascii)

    def _empty(self, found: Usage | None, whole: Sequence[Done]) -> list[Line]:
        if found is None:
            return [line("  ", ("Executions appear as the logs are read.", DIM))]
        if whole:
            return [line("  ", "No execution here is like that."),
                    line("  ", ("esc clears the filter, f shows the others", DIM))]  # fmt: skip
        if self.choice.cause is not None:
            return [
                line("  ", "No execution ended by this: jobs were held before they ran."),
                line("  ", ("p lists them among the problems", DIM)),
            ]
        return [line("  ", "Nothing ran here."), line("  ", ("esc goes back", DIM))]

    def _why(self, done: Done | None) -> list[Line]:
        room, ascii = self.app.size.width - 2, self.ascii
        lines: list[Line] = []
        if done is not None and done.hidden is not None:
            lines = wrapped(_longer(done.hidden, ascii), room, style_of(HIDDEN), 1)
        elif done is not None and done.entry.kind == "bad":
            told = plain(done.entry.reason or done.entry.cause or "", REASON_LIMIT, ascii)
            if done.entry.uncertain:
                told = f"its end was not logged, so it took at most as long as this: {told}"
            lines = wrapped(told, room, DIM, 1)
        lines = bounded(lines, REASON_LINES, room, 1, ascii)
        return [*lines, *[()] * (REASON_LINES - len(lines))]

    def action_kind(self) -> None:
        self.kind = (self.kind + 1) % len(KINDS)
        self._again()

    def labels(self) -> Mapping[str, str]:
        return {"back": "all kinds"} if self.kind and not self.wanted else super().labels()

    def clear_first(self) -> bool:
        if self.wanted or not self.kind:
            return super().clear_first()
        self.kind = 0
        self._again()
        return True

    def open(self, key: str) -> None:
        job, _, _ = key.partition("/")
        cluster, _, proc = job.partition(".")
        self.monitor.open_job(int(cluster), int(proc))

    def action_owner(self) -> None:
        job, _, _ = (self.table.cursor or "").partition("/")
        cluster, _, proc = job.partition(".")
        view = self.monitor.feed.job_view(int(cluster), int(proc)) if cluster else None
        if view is not None:
            self.monitor.open_run_of(view.row)


def _ended(of: UsageTotals, ascii: bool) -> str:
    """``153 good, 53 lost, 2 in flight``: as far as there are such."""
    flying = of.executions - of.good_executions - of.bad_executions
    counts = (of.good_executions, "good"), (of.bad_executions, "lost"), (flying, "in flight")
    return (
        ", ".join(f"{formatting.number(n, ascii)} {word}" for n, word in counts if n) or "nothing"
    )


def _longer(epoch: EpochEntry, ascii: bool) -> str:
    where = named(epoch.longest_site, NAME_LIMIT, ascii)
    took = formatting.duration(epoch.seconds, ascii)
    longest = formatting.duration(epoch.longest_seconds, ascii)
    return (
        f"{HIDDEN.mark(ascii)} this one of {took} completed the epoch, but its longest one, of "
        f"{longest} at {where}, may have trained it: its hours are booked there"
    )


def seen_by_filter(done: Done) -> str:
    """All text of an execution in which a filter looks, in lower case."""
    entry = done.entry
    parts = [formatting.job_id(*entry.job), entry.run_name, entry.node, entry.uuid, entry.site]
    parts += [entry.gpu, entry.target, entry.cause, entry.host, f"{entry.start:%Y-%m-%d %H:%M}"]
    parts += [OUTCOMES[entry.outcome].word, HIDDEN.word if done.hidden is not None else None]
    return "\n".join(part for part in parts if part is not None).lower()


def specs_of(
    choice: UsageFilter, rows: Sequence[Done], called: Mapping[str | None, str], ascii: bool
) -> list[ColumnSpec[Done]]:
    """The columns; where all have the same site, GPU or cause, that one gives way first, and
    the year that all began in is told once."""
    years = {done.entry.start.year for done in rows}
    in_one = f" {min(years)}" if len(years) == 1 else ""
    moment = "%m-%d %H:%M" if in_one else "%Y-%m-%d %H:%M"

    def text(value: str | None) -> Line:
        return line(plain(value, NAME_LIMIT, ascii) if value else (formatting.unknown(ascii), DIM))

    def epoch(done: Done, cells: int | None) -> Line:
        entry = done.entry
        if entry.epoch is None:
            return ()
        return line(str(entry.epoch), ("" if entry.training else " side", DIM))

    def outcome(done: Done, cells: int | None) -> Line:
        sign = symbol_span(OUTCOMES[done.entry.outcome], ascii)
        if done.entry.uncertain:
            sign += line((" ?", NOTE))
        if done.hidden is not None:
            sign += line((f" {HIDDEN.mark(ascii)}", style_of(HIDDEN)))
        return sign

    def cause(done: Done, cells: int | None) -> Line:
        entry = done.entry
        if entry.cause is None:
            return ()
        code = f"{entry.code}/{entry.subcode or 0} " if entry.code else ""
        return line((plain(code + entry.cause, 400, ascii), DIM))

    def hours(done: Done, cells: int | None) -> Line:
        known = done.entry.gpu_seconds
        if known is None:
            return line((formatting.unknown(ascii), DIM))
        how = BAD if done.entry.kind == "bad" else TextStyle()
        return line((formatting.hours(known / HOUR, ascii), how))

    def where(done: Done, cells: int | None) -> Line:
        return line((named(done.entry.site, NAME_LIMIT, ascii), TextStyle()))

    return [
        ColumnSpec("run", "RUN", lambda d, _: text(d.entry.run_name), least=6, soft=10, most=24),
        ColumnSpec("epoch", "EPOCH", epoch, "right"),
        ColumnSpec("try", "TRY", lambda d, _: line(str(d.entry.attempt)), "right", drop=2),
        ColumnSpec("start", f"START{in_one}",
             lambda d, _: line(f"{d.entry.start:{moment}}"), drop=1),
        ColumnSpec("seconds", "TIME",
             lambda d, _: line(formatting.duration(d.entry.seconds, ascii)), "right"),
        ColumnSpec("hours", "GPU-h", hours, "right"),
        ColumnSpec("outcome", "OUTCOME", outcome, least=10),
        ColumnSpec("site", "SITE", where, drop=4 if choice.site is None else 6, soft=10, most=24),
        ColumnSpec("gpu", "GPU",
             lambda d, _: line(machine(called, d.entry.gpu, d.entry.gpus, ascii)), drop=5, most=24),
        ColumnSpec("job", "JOB",
             lambda d, _: line((formatting.job_id(*d.entry.job, ascii=ascii), DIM)),
             "right", drop=7),
        ColumnSpec("cause", "CAUSE", cause, soft=12, least=8,
             drop=3 if choice.cause is None else 8, most=400),
    ]  # fmt: skip
