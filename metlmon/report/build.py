"""Builds the report of an ensemble: its usage as tables, figures and definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from statistics import median
from typing import Final

from metlmon.live.discovery import directory_label, directory_name
from metlmon.model.states import HourUnit, State
from metlmon.report.definitions import definitions
from metlmon.report.document import (
    Block,
    Fact,
    Facts,
    Report,
    ReportFigure,
    Section,
    ValueKind,
    footnote_keys,
    with_hour_unit,
)
from metlmon.report.figures import figures
from metlmon.report.usage import ReportUsage, jobs_in, report_usage
from metlmon.report.usage_tables import (
    bytes_table,
    cause_table,
    gpu_table,
    label_table,
    period_table,
    ratio,
    run_table,
    site_gpu_table,
    site_table,
    time_table,
    transfer_table,
)
from metlmon.report.values import hours, hours_digits, percent
from metlmon.snapshot.ledger import HOUR, Ledger, in_hour_unit
from metlmon.snapshot.types import Status
from metlmon.stats.windows import ALL, TimeWindow, window_text
from metlmon.text.formatting import count, dag_sign, moment, nothing_logged, number, plain

TITLE_LIMIT: Final = 200


def build_report(
    status: Status,
    ledger: Ledger,
    window: TimeWindow = ALL,
    title: str | None = None,
    zone: str | None = None,
    measure: HourUnit = HourUnit.GPU,
) -> Report:
    """Build the report of one snapshot.

    ``ledger``: the whole one; ``zone``: name of the logs' time zone, if known; ``measure``: unit
    of hours, that of the ledger.
    """
    usage = report_usage(in_hour_unit(ledger) if measure is not HourUnit.GPU else ledger, window)
    digits = hours_digits(usage.total.totals.total / HOUR)
    figures_by_key = figures(usage)
    sections = tuple(_sections(status, usage, figures_by_key))
    notes = footnote_keys(block for section in sections for block in section.blocks)
    report = Report(
        title=plain(title, TITLE_LIMIT) if title else f"Report of {_name(status)}",
        dagdir=status.dagdir,
        window=window_text(window),
        since=window.since,
        until=window.until,
        as_of=status.as_of,
        live=status.live,
        headline=_headline(usage, digits),
        metadata=tuple(_lead(status, window, zone)),
        sections=sections,
        limitations=tuple(_limitations(status, usage, zone)),
        footnotes=definitions(notes, usage, digits),
        hours_digits=digits,
    )
    return with_hour_unit(report, measure)


def _name(status: Status) -> str:
    return plain(directory_name(status.dagdir), TITLE_LIMIT)


def _headline(usage: ReportUsage, digits: int) -> str:
    spent = usage.total.totals
    wanted = sum(run.epochs_total for run in usage.ledger.runs)
    runs = count(len(usage.ledger.runs), "run")
    epochs = count(usage.epochs, "epoch")
    if usage.window.unbounded:
        progress = f"{number(usage.epochs)} of {count(wanted, 'epoch')} of {runs} completed"
        skipped = sum(run.epochs_skipped for run in usage.ledger.runs)
        stopped = sum(run.stopped for run in usage.ledger.runs)
        if skipped:
            progress += f", {number(skipped)} skipped"
            progress += f" ({count(stopped, 'run')} stopped)" if stopped else ""
    else:
        progress = f"{epochs} of {runs} completed in the window"
    least = "at least " if usage.ledger.nodes_unlogged else ""
    bad_share = (
        f" ({percent(ratio(spent.bad, spent.good + spent.bad))} of what has ended)"
        if spent.bad
        else ""
    )
    return (
        f"{progress}, with {least}{hours(spent.total / HOUR, digits)} GPU-hours: "
        f"{hours(spent.good / HOUR, digits)} goodput, "
        f"{hours(spent.bad / HOUR, digits)} badput{bad_share}"
        f", {hours(spent.in_flight / HOUR, digits)} running."
    )


FAILED_TOLD: Final = 5
"""Failed nodes without a job that are named; ``metlmon nodes`` lists them all."""


def _lead(status: Status, window: TimeWindow, zone: str | None) -> Iterable[tuple[str, str]]:
    yield "Directory", plain(directory_label(status.dagdir), TITLE_LIMIT)
    dags = [f"{plain(d.file, 80)} ({dag_sign(d.state, d.nodes_failed).word})" for d in status.dags]
    yield "DAG" if len(dags) == 1 else "DAGs", ", ".join(dags) or "none"
    live = ", live" if status.live else ""
    nothing = nothing_logged(dag.ended for dag in status.dags)
    yield "As of", f"{moment(status.as_of)}{live}" if status.as_of else nothing
    yield "Window", window_text(window)
    yield "Times", f"{plain(zone, 60)}" if zone else "the access point's local time"
    first, last = _logged_period(status)
    if first and last:
        events = sum(log.events for log in status.logs)
        logs = count(len(status.logs), "log")
        yield "Logged", f"{count(events, 'event')} in {logs}, {moment(first)} to {moment(last)}"
    failed = [
        run.failed
        for run in status.runs
        if run.failed is not None and run.failed.part in ("pre", "submit")
    ]
    nodes = [f"{plain(failure.node, 60)}: {plain(failure.reason or '', 200)}" for failure in failed]
    more = f"; and {len(nodes) - FAILED_TOLD} more" if len(nodes) > FAILED_TOLD else ""
    if nodes:
        yield "Failed without a job", "; ".join(nodes[:FAILED_TOLD]) + more


def _logged_period(status: Status) -> tuple[datetime | None, datetime | None]:
    return (
        min((log.first for log in status.logs if log.first), default=None),
        max((log.last for log in status.logs if log.last), default=None),
    )


def _limitations(status: Status, usage: ReportUsage, zone: str | None) -> Iterable[str]:
    """Yield one sentence per limitation of the numbers."""
    if usage.uncounted_gpus:
        yield (
            f"Of {count(usage.uncounted_gpus, 'execution')} the number of GPUs was not logged: "
            "their GPU-hours are not known, and count as 0."
        )
    if usage.uncertain:
        which = count(usage.uncertain, "execution")
        yield f"The end of {which} was not logged: it is taken from the event that proves it over."
    for kind, groups in (("site", usage.sites), ("GPU model", usage.gpus)):
        unknown = sum(group.totals.executions for group in groups if group.name is None)
        if unknown:
            yield f"Of {count(unknown, 'execution')} the {kind} is not known."
    if usage.unlocated:
        yield (
            f"Of {count(usage.unlocated, 'completed epoch')} no successful execution is in the "
            "logs."
        )
    if usage.ledger.nodes_unlogged:
        which = count(usage.ledger.nodes_unlogged, "node")
        yield f"Of {which} that ran the logs have no execution: all GPU-hours are without theirs."
    if usage.undated:
        which = count(usage.undated, "completed epoch")
        yield f"When {which} ended is not known: no window of time has them."
    if zone is None and usage.clipped.executions:
        yield (
            "The logs' time zone was not given: over the two hours a year at which clocks change, "
            "durations are as exact as the logs tell (--tz)."
        )
    if status.warnings:
        texts = "; ".join(plain(notice.text, 160) for notice in status.warnings[:WARNINGS])
        more = len(status.warnings) - WARNINGS
        yield f"Warnings of reading: {texts}{f'; and {number(more)} more' if more > 0 else ''}."


WARNINGS: Final = 5
"""Number of warnings shown; ``status --json`` has them all."""


def _sections(
    status: Status, usage: ReportUsage, figures_by_key: Mapping[str, ReportFigure]
) -> Iterable[Section]:
    def present_blocks(*blocks: Block | str | None) -> tuple[Block, ...]:
        present = (
            figures_by_key.get(block) if isinstance(block, str) else block for block in blocks
        )
        return tuple(block for block in present if block is not None)

    yield Section("Totals", (_totals(usage),))
    yield Section("GPU models", (gpu_table(usage),))
    yield Section("Resources", present_blocks(site_table(usage), site_gpu_table(usage)))
    yield Section(
        "Over time",
        present_blocks("epochs", "hours", "per_period", "contributions", period_table(usage)),
    )
    yield Section("Time of an epoch", present_blocks("times", time_table(usage)))
    yield Section("Causes of badput", present_blocks("causes", cause_table(usage)))
    yield Section("Transfers", (bytes_table(usage), transfer_table(usage)))
    yield Section("Runs", present_blocks(label_table(usage), run_table(usage)))


# --- totals -----------------------------------------------------------------------------------


def _totals(usage: ReportUsage) -> Facts:
    total, spent = usage.total, usage.total.totals
    runs = usage.ledger.runs
    stopped, skipped = sum(run.stopped for run in runs), sum(run.epochs_skipped for run in runs)
    over = sum(run.state is State.COMPLETED and not run.stopped for run in runs)
    # Unknown for a window: runs have no completion time.
    finished: tuple[Fact, ...] = (Fact("runs_completed", "– completed", ValueKind.COUNT, over),)
    left_out: tuple[Fact, ...] = ()
    failed = sum(run.state is State.FAILED for run in runs)
    if failed:
        finished += (Fact("runs_failed", "– failed", ValueKind.COUNT, failed),)
    if stopped:
        finished += (Fact("runs_stopped", "– stopped before their end", ValueKind.COUNT, stopped),)
    if skipped:
        left_out = (Fact("epochs_skipped", "– skipped", ValueKind.COUNT, skipped),)
    if not usage.window.unbounded:
        finished = left_out = ()
    wanted = sum(run.epochs_total for run in runs)
    inputs = [move for move in usage.transfer_groups if move.direction == "input"]
    settled = spent.good + spent.bad
    times, waits = usage.epoch_times, usage.waits
    of_wanted = f"of {number(wanted)}" if wanted else None
    missing = usage.ledger.nodes_unlogged
    least = f"at least: {number(missing)} nodes are not in the logs" if missing else None
    return Facts(
        "totals",
        "Totals",
        (
            Fact("runs", "Runs", ValueKind.COUNT, len(runs)),
            *finished,
            Fact("epochs", "Epochs completed", ValueKind.COUNT, usage.epochs, "epochs", of_wanted),
            *left_out,
            Fact("hidden", "– with hidden compute", ValueKind.COUNT, usage.hidden, "by_longest"),
            Fact("jobs", "Jobs", ValueKind.COUNT, len(jobs_in(usage)), "executions"),
            Fact("executions", "Executions", ValueKind.COUNT, spent.executions, "executions"),
            Fact("success_rate", "Ended well", ValueKind.SHARE, spent.success_rate, "success"),
            Fact("gpu_hours", "GPU-hours", ValueKind.HOURS, spent.total / HOUR, "gpu_hours", least),
            Fact("good", "– goodput", ValueKind.HOURS, spent.good / HOUR, "good"),
            Fact("bad", "– badput", ValueKind.HOURS, spent.bad / HOUR, "bad"),
            Fact("in_flight", "– running", ValueKind.HOURS, spent.in_flight / HOUR, "in_flight"),
            Fact(
                "bad_share",
                "Badput, of ended",
                ValueKind.SHARE,
                spent.bad / settled if settled else None,
                "bad",
            ),
            Fact(
                "longest_hours",
                "Hours of longest attempts",
                ValueKind.HOURS,
                total.longest.seconds / HOUR,
                "longest",
            ),
            Fact(
                "gpu_hours_per_epoch",
                "GPU-hours per epoch",
                ValueKind.HOURS,
                None if spent.per_epoch is None else spent.per_epoch / HOUR,
                "per_epoch",
            ),
            Fact(
                "epoch_seconds_median",
                "Time of an epoch, median",
                ValueKind.SECONDS,
                median(times) if times else None,
                "epoch_time",
            ),
            Fact(
                "wait_seconds_median",
                "Queue wait, median",
                ValueKind.SECONDS,
                median(waits) if waits else None,
                "wait",
            ),
            Fact(
                "input_transfers",
                "Input transfers",
                ValueKind.COUNT,
                sum(move.count for move in inputs),
                "transfers",
            ),
            Fact(
                "input_hours",
                "Hours of input transfer",
                ValueKind.HOURS,
                sum(move.seconds for move in inputs) / HOUR,
                "transfers",
            ),
            Fact(
                "bytes_to_jobs",
                "Moved to jobs",
                ValueKind.BYTES,
                total.input.received,
                "bytes",
            ),
            Fact(
                "bytes_from_jobs",
                "Moved from jobs",
                ValueKind.BYTES,
                total.input.sent,
                "bytes",
            ),
        ),
    )
