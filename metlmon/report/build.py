"""Builds the report of an ensemble: its usage as tables, figures and definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from statistics import median
from typing import Any, Final

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
    footnote_keys,
    hours,
    hours_digits,
    percent,
    with_hour_unit,
)
from metlmon.report.figures import figures
from metlmon.report.usage import ReportUsage
from metlmon.report.usage_tables import (
    BYTES,
    COUNT,
    HOURS,
    SECONDS,
    SHARE,
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
    usage = ReportUsage(in_hour_unit(ledger) if measure is not HourUnit.GPU else ledger, window)
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
            "durations are as exact as the logs are (--tz)."
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
    total, spent, runs = usage.total, usage.total.totals, usage.ledger.runs
    stopped = sum(run.stopped for run in runs)
    completed = sum(run.state is State.COMPLETED and not run.stopped for run in runs)
    # Runs have no completion time: of a window this is unknown.
    finished: list[tuple[Any, ...]] = [
        ("runs_completed", "– completed", COUNT, completed),
        ("runs_failed", "– failed", COUNT, sum(run.state is State.FAILED for run in runs)),
        ("runs_stopped", "– stopped before their end", COUNT, stopped),
    ]
    skipped = sum(run.epochs_skipped for run in runs) if usage.window.unbounded else 0
    wanted = sum(run.epochs_total for run in runs)
    of_wanted = f"of {number(wanted)}" if wanted else None
    missing = usage.ledger.nodes_unlogged
    least = f"at least: {number(missing)} nodes are not in the logs" if missing else None
    inputs = [move for move in usage.transfer_groups if move.direction == "input"]
    input_hours = sum(move.seconds for move in inputs) / HOUR
    longest_hours = total.longest.seconds / HOUR
    per_epoch = None if spent.per_epoch is None else spent.per_epoch / HOUR
    epoch_median = median(usage.epoch_times) if usage.epoch_times else None
    wait_median = median(usage.waits) if usage.waits else None
    bad_share = ratio(spent.bad, spent.good + spent.bad)
    facts: list[tuple[Any, ...]] = [
        ("runs", "Runs", COUNT, len(runs)),
        *(fact for fact in finished[:1] if usage.window.unbounded),
        *(fact for fact in finished[1:] if usage.window.unbounded and fact[-1]),
        ("epochs", "Epochs completed", COUNT, usage.epochs, "epochs", of_wanted),
        *([("epochs_skipped", "– skipped", COUNT, skipped)] if skipped else []),
        ("hidden", "– with hidden compute", COUNT, usage.hidden, "by_longest"),
        ("jobs", "Jobs", COUNT, len(usage.jobs), "executions"),
        ("executions", "Executions", COUNT, spent.executions, "executions"),
        ("success_rate", "Ended well", SHARE, spent.success_rate, "success"),
        ("gpu_hours", "GPU-hours", HOURS, spent.total / HOUR, "gpu_hours", least),
        ("good", "– goodput", HOURS, spent.good / HOUR, "good"),
        ("bad", "– badput", HOURS, spent.bad / HOUR, "bad"),
        ("in_flight", "– running", HOURS, spent.in_flight / HOUR, "in_flight"),
        ("bad_share", "Badput, of ended", SHARE, bad_share, "bad"),
        ("longest_hours", "Hours of longest attempts", HOURS, longest_hours, "longest"),
        ("gpu_hours_per_epoch", "GPU-hours per epoch", HOURS, per_epoch, "per_epoch"),
        ("epoch_seconds_median", "Time of an epoch, median", SECONDS, epoch_median, "epoch_time"),
        ("wait_seconds_median", "Queue wait, median", SECONDS, wait_median, "wait"),
        ("input_transfers", "Input transfers", COUNT, sum(m.count for m in inputs), "transfers"),
        ("input_hours", "Hours of input transfer", HOURS, input_hours, "transfers"),
        ("bytes_to_jobs", "Moved to jobs", BYTES, total.input.received, "bytes"),
        ("bytes_from_jobs", "Moved from jobs", BYTES, total.input.sent, "bytes"),
    ]
    return Facts("totals", "Totals", tuple(Fact(*fact) for fact in facts))
