"""Rows and columns of executions, and the texts about them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from metlmon.model.reasons import code_text
from metlmon.snapshot.ledger import EpochEntry, ExecutionEntry
from metlmon.stats.totals import UsageTotals
from metlmon.stats.usage import Usage, UsageFilter, hidden_jobs, select_executions
from metlmon.tables.layout import Column, text_column
from metlmon.tables.usage import HIDDEN, NAME_LIMIT, machine, models, site_name
from metlmon.text import formatting
from metlmon.text.formatting import OUTCOMES, plain
from metlmon.text.spans import BAD, DIM, NOTE, PLAIN, Line, line, style_of, symbol_span


class ListedExecution(msgspec.Struct, frozen=True):
    """One execution as a row.

    ``hidden`` is the epoch that it completed, if another execution of that epoch was over twice as
    long.
    """

    entry: ExecutionEntry
    hidden: EpochEntry | None

    @property
    def key(self) -> str:
        """Identifies the row: the job's id, and which execution of the job it is."""
        cluster, proc = self.entry.job
        return f"{cluster}.{proc}/{self.entry.attempt}"

    @property
    def kind(self) -> str:
        """What became of its hours: ``goodput``, ``badput`` or ``running``."""
        return {"good": "goodput", "bad": "badput"}.get(self.entry.kind, "running")


ORDERS = (
    ("start", None),
    ("GPU-hours", lambda row: (-(row.entry.gpu_seconds or 0.0),)),
    ("time", lambda row: (-row.entry.seconds,)),
    ("outcome", lambda row: (row.entry.outcome.value, row.entry.cause or "")),
    ("run", lambda row: (row.entry.run_name or "", row.entry.epoch or 0)),
)


def executions(usage: Usage, usage_filter: UsageFilter) -> list[ListedExecution]:
    """Return the executions selected by a filter, with their hidden epochs."""
    epochs = hidden_jobs(usage)
    return [
        ListedExecution(entry, epochs.get(entry.job) if entry.final else None)
        for entry in select_executions(usage, usage_filter)
    ]


def filter_text(row: ListedExecution) -> str:
    """Return the text of an execution that the filter searches, in lower case."""
    entry = row.entry
    parts = [formatting.job_id(*entry.job), entry.run_name, entry.node, entry.uuid, entry.site]
    parts += [entry.gpu, entry.target, entry.cause, entry.host, formatting.moment(entry.start)]
    parts += [OUTCOMES[entry.outcome].word, HIDDEN.word if row.hidden is not None else None]
    return "\n".join(part for part in parts if part is not None).lower()


def outcome_counts(totals: UsageTotals) -> str:
    """Count by outcome: ``153 goodput, 53 badput, 2 running``; zeros are omitted."""
    in_flight = totals.executions - totals.good_executions - totals.bad_executions
    counts = (
        (totals.good_executions, "goodput"),
        (totals.bad_executions, "badput"),
        (in_flight, "running"),
    )
    return ", ".join(f"{formatting.number(n)} {label}" for n, label in counts if n) or "none"


def filter_title(usage_filter: UsageFilter, usage: Usage | None, room: int) -> str:
    """Name what a filter selects: ``A100 ×2 at Delta``, ``badput of 34 JobOutOfResources``."""
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
        code = (
            f"{code_text(cause.code, cause.subcode or 0)}: "
            if cause is not None and cause.code is not None
            else ""
        )
        parts.append(f"badput of {plain(code + text, room)}")
    return formatting.clip(" ".join(parts), room)


def longest_note(epoch: EpochEntry) -> str:
    """The note on an epoch that a longer execution may have trained."""
    site = site_name(epoch.longest_site, NAME_LIMIT)
    took = formatting.duration(epoch.seconds)
    longest = formatting.duration(epoch.longest_seconds)
    return (
        f"{HIDDEN.glyph} hidden compute: this execution of {took} completed the epoch, but its "
        f"longest one, of {longest} at {site}, may have done the training"
    )


def columns(usage: Usage | None, usage_filter: UsageFilter) -> list[Column[ListedExecution]]:
    """The columns; that of the selected site, GPU or cause is dropped first."""
    this_year = None if usage is None else formatting.year_of(usage.as_of)
    model_names: Mapping[str | None, str] = models(
        place.name for place in (() if usage is None else usage.gpus)
    )
    site_drop = 4 if usage_filter.site is None else 6
    cause_drop = 3 if usage_filter.cause is None else 8

    def gpu(row: ListedExecution) -> str:
        return machine(model_names, row.entry.gpu, row.entry.gpus)

    return [
        text_column("run", "RUN", _run, minimum=6, comfortable=10, maximum=24),
        text_column("epoch", "EPOCH", _epoch, "right"),
        text_column("try", "TRY", lambda r: str(r.entry.attempt), "right", drop=2),
        text_column(
            "start", "START", lambda r: formatting.moment(r.entry.start, this_year), "right", drop=1
        ),
        text_column("seconds", "TIME", lambda r: formatting.duration(r.entry.seconds), "right"),
        text_column("hours", "GPU-h", _hours, "right"),
        text_column("outcome", "OUTCOME", _outcome, minimum=10),
        text_column(
            "site",
            "SITE",
            lambda r: site_name(r.entry.site, NAME_LIMIT),
            drop=site_drop,
            comfortable=10,
            maximum=24,
        ),
        text_column("gpu", "GPU", gpu, drop=5, maximum=24),
        text_column(
            "job", "JOB", lambda r: formatting.job_id(*r.entry.job), "right", drop=7, style=DIM
        ),
        text_column(
            "cause",
            "CAUSE",
            _cause,
            drop=cause_drop,
            style=DIM,
            minimum=8,
            comfortable=12,
            maximum=400,
        ),
    ]


def _run(row: ListedExecution) -> str | None:
    return plain(row.entry.run_name, NAME_LIMIT) if row.entry.run_name else None


def _epoch(row: ListedExecution) -> Line:
    if row.entry.epoch is None:
        return ()
    side = "" if row.entry.training else " side"
    return line(str(formatting.epoch_number(row.entry.epoch)), (side, DIM))


def _hours(row: ListedExecution) -> Line | None:
    hours = row.entry.gpu_hours
    style = BAD if row.entry.kind == "bad" else PLAIN
    return None if hours is None else line((formatting.hours(hours), style))


def _outcome(row: ListedExecution) -> Line:
    sign = symbol_span(OUTCOMES[row.entry.outcome])
    if row.entry.uncertain:
        sign += line((" ?", NOTE))
    if row.hidden is not None:
        sign += line((f" {HIDDEN.glyph}", style_of(HIDDEN)))
    return sign


def _cause(row: ListedExecution) -> str:
    entry = row.entry
    code = f"{code_text(entry.code, entry.subcode or 0)}: " if entry.code else ""
    return "" if entry.cause is None else plain(code + entry.cause, 400)
