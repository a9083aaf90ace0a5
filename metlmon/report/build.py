"""Builds the report of an ensemble: its usage as tables, figures and definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from metlmon.live.discovery import directory_label, directory_name
from metlmon.model.hour_unit import HourUnit
from metlmon.model.states import State
from metlmon.report.definitions import definition
from metlmon.report.document import (
    Block,
    Fact,
    Facts,
    Footnote,
    Raw,
    Report,
    ReportColumn,
    ReportFigure,
    ReportRow,
    ReportTable,
    Section,
    ValueKind,
    footnote_keys,
)
from metlmon.report.figures import figures
from metlmon.report.hour_names import with_hour_unit
from metlmon.report.values import hours, hours_digits, percent
from metlmon.snapshot.ledger import HOUR, Ledger, in_hour_unit
from metlmon.snapshot.types import Status
from metlmon.stats.report_usage import (
    GroupUsage,
    ReportUsage,
    epoch_boxes,
    gpu_model,
    jobs_in,
    quantile,
    report_usage,
)
from metlmon.stats.totals import UsageTotals, sum_executions
from metlmon.stats.windows import ALL, TimeWindow, Unit, window_text
from metlmon.text.formatting import count, dag_sign, moment, nothing_logged, number, plain

NO_EXECUTION: Final = "no successful execution"

REASONS: Final = 6
"""Reasons of one cause shown in separate rows; the others share one row."""

DAMAGED: Final = (
    "No time can be told: the stamps of the logs are decades apart, or all the same. A damaged "
    "line may say so; --since leaves it out."
)

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
        footnotes=tuple(Footnote(key, definition(key, usage, digits)) for key in notes),
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
        f" ({percent(_ratio(spent.bad, spent.good + spent.bad))} of what has ended)"
        if spent.bad
        else ""
    )
    return (
        f"{progress}, with {least}{hours(spent.total / HOUR, digits)} GPU-hours: "
        f"{hours(spent.good / HOUR, digits)} good, {hours(spent.bad / HOUR, digits)} bad{bad_share}"
        f", {hours(spent.in_flight / HOUR, digits)} in flight."
    )


FAILED_TOLD: Final = 5
"""Failed nodes without a job that are named; ``metlmon nodes`` lists them all."""


def _lead(status: Status, window: TimeWindow, zone: str | None) -> Iterable[tuple[str, str]]:
    yield "Directory", plain(directory_label(status.dagdir), TITLE_LIMIT)
    dags = [f"{plain(d.file, 80)} ({dag_sign(d.state, d.nodes_failed).word})" for d in status.dags]
    yield "DAG" if len(dags) == 1 else "DAGs", ", ".join(dags) or "none"
    live = ", live: it goes on" if status.live else ""
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
    for kind, shares in (("site", usage.sites), ("GPU model", usage.gpus)):
        unknown = shares.get(None)
        if unknown is not None and unknown.totals.executions:
            yield f"Of {count(unknown.totals.executions, 'execution')} the {kind} is not known."
    if usage.unlocated:
        yield (
            f"Of {count(usage.unlocated, 'completed epoch')} "
            "no successful execution is in the logs."
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
    yield Section("GPU models", (_gpus(usage),))
    yield Section("Resources", present_blocks(_sites(usage), _sites_by_gpu(usage)))
    yield Section(
        "Over time",
        present_blocks("epochs", "hours", "per_period", "contributions", _periods(usage)),
    )
    yield Section("Time of an epoch", present_blocks("times", _times(usage)))
    yield Section("Causes of bad GPU-hours", present_blocks("causes", _causes(usage)))
    yield Section("Transfers", (_bytes_moved(usage), _transfers(usage)))
    yield Section("Runs", present_blocks(_labels(usage), _runs(usage)))


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
            Fact("good", "– good", ValueKind.HOURS, spent.good / HOUR, "good"),
            Fact("bad", "– bad", ValueKind.HOURS, spent.bad / HOUR, "bad"),
            Fact("in_flight", "– in flight", ValueKind.HOURS, spent.in_flight / HOUR, "in_flight"),
            Fact(
                "bad_share",
                "Bad, of ended",
                ValueKind.SHARE,
                spent.bad / settled if settled else None,
                "bad",
            ),
            Fact(
                "longest_hours",
                "Hours of longest attempts",
                ValueKind.HOURS,
                total.longest / HOUR,
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
                quantile(times, 0.5) if times else None,
                "epoch_time",
            ),
            Fact(
                "wait_seconds_median",
                "Queue wait, median",
                ValueKind.SECONDS,
                quantile(waits, 0.5) if waits else None,
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
                total.transferred.received,
                "bytes",
            ),
            Fact(
                "bytes_from_jobs",
                "Moved from jobs",
                ValueKind.BYTES,
                total.transferred.sent,
                "bytes",
            ),
        ),
    )


# --- GPU models and sites -----------------------------------------------------------------------

SPENT_COLUMNS: Final = (
    ReportColumn("executions", "Executions", ValueKind.COUNT, "executions", drop=3),
    ReportColumn("good", "good", ValueKind.HOURS, "good", group="GPU-hours"),
    ReportColumn("bad", "bad", ValueKind.HOURS, "bad", group="GPU-hours"),
    ReportColumn("in_flight", "in flight", ValueKind.HOURS, "in_flight", drop=4, group="GPU-hours"),
    ReportColumn("total", "all", ValueKind.HOURS, "gpu_hours", group="GPU-hours"),
)

EPOCH_COLUMNS: Final = (
    ReportColumn("epochs", "Epochs", ValueKind.COUNT, "epochs"),
    ReportColumn("share", "Share", ValueKind.SHARE, "share", drop=2),
    ReportColumn("epochs_by_longest", "By longest attempt", ValueKind.COUNT, "by_longest", drop=5),
)

LONGEST_COLUMN: Final = ReportColumn(
    "longest_hours", "Hours of longest attempts", ValueKind.HOURS, "longest", drop=1
)


def _usage_cells(spent: UsageTotals) -> tuple[Raw, ...]:
    return (
        spent.executions,
        spent.good / HOUR,
        spent.bad / HOUR,
        spent.in_flight / HOUR,
        spent.total / HOUR,
    )


def _epoch_cells(part: GroupUsage, epochs: int) -> tuple[Raw, ...]:
    return part.totals.completed, _ratio(part.totals.completed, epochs), part.by_longest


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _epoch_sum(usage: ReportUsage) -> int:
    """Return the sum of a column of epochs, including those without a GPU or site."""
    return usage.total.totals.completed + usage.unlocated


def _unplaced_row(usage: ReportUsage, cells: int) -> tuple[ReportRow, ...]:
    """Return the row of completed epochs without a known successful execution."""
    if not usage.unlocated:
        return ()
    share = _ratio(usage.unlocated, _epoch_sum(usage))
    return (ReportRow((NO_EXECUTION, usage.unlocated, share, usage.unlogged, *[""] * (cells - 1))),)


def _total_cells(usage: ReportUsage) -> tuple[Raw, ...]:
    epochs = _epoch_sum(usage)
    return epochs, _ratio(epochs, epochs), usage.total.by_longest, *_usage_cells(usage.total.totals)


def _repeated_note(usage: ReportUsage) -> str | None:
    if not usage.repeated:
        return None
    return (
        f"{count(usage.repeated, 'epoch')} here were trained again by another DAG, or begun again: "
        f"{number(usage.epochs)} are completed, each counted once."
    )


def _gpus(usage: ReportUsage) -> ReportTable:
    columns = (ReportColumn("gpu", "GPU model"), *EPOCH_COLUMNS, *SPENT_COLUMNS, LONGEST_COLUMN)
    epochs = _epoch_sum(usage)
    rows = [
        ReportRow(
            (name, *_epoch_cells(part, epochs), *_usage_cells(part.totals), part.longest / HOUR)
        )
        for name, part in usage.gpus.items()
    ]
    return ReportTable(
        "gpus",
        "Completed epochs and GPU-hours by GPU model",
        columns,
        (*rows, *_unplaced_row(usage, len(columns) - 3)),
        ReportRow(("Total", *_total_cells(usage), usage.total.longest / HOUR)),
        "Nothing ran: the logs have no execution in this window.",
        _repeated_note(usage),
    )


def _sites(usage: ReportUsage) -> ReportTable:
    columns = (
        ReportColumn("site", "Resource"),
        *EPOCH_COLUMNS,
        *SPENT_COLUMNS,
        ReportColumn(
            "gpu_hours_share", "share", ValueKind.SHARE, "gpu_hours", drop=6, group="GPU-hours"
        ),
        LONGEST_COLUMN,
    )
    epochs, total = _epoch_sum(usage), usage.total

    def row(name: str | None, part: GroupUsage, epochs: tuple[Raw, ...]) -> ReportRow:
        of_all = _ratio(part.totals.total, total.totals.total)
        return ReportRow((name, *epochs, *_usage_cells(part.totals), of_all, part.longest / HOUR))

    ran = [(name, part) for name, part in usage.sites.items() if part.totals.executions]
    also = [(name, part) for name, part in usage.sites.items() if not part.totals.executions]
    # A transfer alone is no contribution; the GPU-hours of a later execution are.
    ran += [(name, part) for name, part in also if part.totals.total or part.by_longest]
    rows = [row(name, part, _epoch_cells(part, epochs)) for name, part in ran]
    return ReportTable(
        "sites",
        "Contributions by resource",
        columns,
        (*rows, *_unplaced_row(usage, len(columns) - 3)),
        row("Total", total, _total_cells(usage)[:3]),
        "Nothing ran: the logs have no execution in this window.",
        _repeated_note(usage),
    )


def _bytes_moved(usage: ReportUsage) -> ReportTable:
    columns = (
        ReportColumn("site", "Resource"),
        ReportColumn("executions", "Executions", ValueKind.COUNT, "executions"),
        ReportColumn("transfers", "Transfers", ValueKind.COUNT, "moved"),
        ReportColumn("bytes_to_jobs", "to jobs", ValueKind.BYTES, "bytes", group="Bytes"),
        ReportColumn("bytes_from_jobs", "from jobs", ValueKind.BYTES, "bytes", group="Bytes"),
        ReportColumn("bytes_share", "share", ValueKind.SHARE, drop=1, group="Bytes"),
    )
    whole = usage.total.transferred.received + usage.total.transferred.sent

    def row(name: str | None, part: GroupUsage) -> ReportRow:
        moved = part.transferred
        of_all = _ratio(moved.received + moved.sent, whole)
        ran = part.totals.executions
        return ReportRow((name, ran, part.transfers, moved.received, moved.sent, of_all))

    return ReportTable(
        "moved",
        "Bytes and transfers by resource",
        columns,
        tuple(row(name, part) for name, part in usage.sites.items()),
        row("Total", usage.total),
        "Nothing was moved: the logs have no execution and no transfer in this window.",
    )


def _sites_by_gpu(usage: ReportUsage) -> ReportTable | None:
    """Tabulate epochs by resource and GPU model, if there are several of each."""
    done = {key: spent.completed for key, spent in usage.by_site_and_gpu.items() if spent.completed}
    sites = [site for site in usage.sites if any(key[0] == site for key in done)]
    gpus = [gpu for gpu in usage.gpus if any(key[1] == gpu for key in done)]
    if len(sites) < 2 or len(gpus) < 2:
        return None
    columns = (
        ReportColumn("site", "Resource"),
        *(
            ReportColumn(
                gpu or "", gpu or "not known", ValueKind.COUNT, "epochs" if not index else None
            )
            for index, gpu in enumerate(gpus)
        ),
        ReportColumn("total", "all", ValueKind.COUNT),
    )
    rows = tuple(
        ReportRow(
            (
                site,
                *(done.get((site, gpu)) or "" for gpu in gpus),
                sum(done.get((site, gpu), 0) for gpu in gpus),
            )
        )
        for site in sites
    )
    sums = [sum(done.get((site, gpu), 0) for site in sites) for gpu in gpus]
    return ReportTable(
        "places",
        "Completed epochs by resource and GPU model",
        columns,
        rows,
        ReportRow(("Total", *sums, sum(sums))),
    )


# --- over time ----------------------------------------------------------------------------------


def _periods(usage: ReportUsage) -> ReportTable:
    head = {Unit.DAY: "Day", Unit.WEEK: "Week", Unit.MONTH: "Month"}[usage.period]
    columns = (
        ReportColumn("period", head, footnote="period"),
        ReportColumn("epochs", "Epochs", ValueKind.COUNT, "epochs"),
        ReportColumn("cumulated", "cumulated", ValueKind.COUNT, drop=5),
        *SPENT_COLUMNS,
        ReportColumn("bytes_to_jobs", "to jobs", ValueKind.BYTES, "bytes", drop=8, group="Bytes"),
        ReportColumn(
            "bytes_from_jobs", "from jobs", ValueKind.BYTES, "bytes", drop=9, group="Bytes"
        ),
    )

    def row(name: str, part: GroupUsage, epochs: int, so_far: Raw) -> ReportRow:
        moved = part.transferred
        return ReportRow(
            (name, epochs, so_far, *_usage_cells(part.totals), moved.received, moved.sent)
        )

    rows, so_far = [], 0
    for window, part in usage.periods:
        so_far += part.by_longest
        rows.append(row(window_text(window), part, part.by_longest, so_far))
    if usage.undated and usage.window.unbounded:
        rest = ("", "") + ("",) * len(SPENT_COLUMNS)
        rows.append(ReportRow(("at no known time", usage.undated, *rest[1:], "", "")))
    return ReportTable(
        "periods",
        f"By {usage.period}",
        columns,
        tuple(rows),
        row("Total", usage.total, usage.epochs, ""),
        DAMAGED if usage.clipped.jobs else "Nothing happened: the logs have no job in this window.",
    )


def _times(usage: ReportUsage) -> ReportTable:
    columns = (
        ReportColumn("place", "GPU model, resource"),
        ReportColumn("by", "Kind", drop=3),
        ReportColumn("n", "n", ValueKind.COUNT, "box"),
        ReportColumn("minimum", "least", ValueKind.SECONDS, drop=2),
        ReportColumn("first_quartile", "first quartile", ValueKind.SECONDS),
        ReportColumn("median", "median", ValueKind.SECONDS, "epoch_time"),
        ReportColumn("third_quartile", "third quartile", ValueKind.SECONDS),
        ReportColumn("maximum", "most", ValueKind.SECONDS, drop=1),
    )
    rows = []
    for kind, boxes in (
        ("GPU model", epoch_boxes(usage, lambda e: gpu_model(e.gpu))),
        ("resource", epoch_boxes(usage, lambda e: e.site)),
    ):
        for name, box in boxes.items():
            least, most = (
                min(box.lower_whisker, *box.outliers, box.lower_whisker),
                max(box.upper_whisker, *box.outliers, box.upper_whisker),
            )
            rows.append(
                ReportRow(
                    (
                        name,
                        kind,
                        box.n,
                        least,
                        box.lower_quartile,
                        box.median,
                        box.upper_quartile,
                        most,
                    )
                )
            )
    return ReportTable(
        "times",
        "Time of the successful execution of completed epochs",
        columns,
        tuple(rows),
        empty_text="No epoch was completed by an execution in the logs.",
    )


# --- causes, transfers, runs --------------------------------------------------------------------


def _causes(usage: ReportUsage) -> ReportTable:
    columns = (
        ReportColumn("code", "Code", footnote="cause"),
        ReportColumn("reason", "Reason"),
        ReportColumn("executions", "Executions", ValueKind.COUNT, "executions", drop=1),
        ReportColumn("gpu_hours", "GPU-hours", ValueKind.HOURS, "bad"),
        ReportColumn("share", "Share", ValueKind.SHARE, "lost_share"),
    )
    bad = usage.total.totals.bad
    rows: list[ReportRow] = []
    for loss in usage.losses:
        code = loss.label or f"{loss.code}/{loss.subcode if loss.subcode is not None else '–'}"
        several = len(loss.reasons) > 1
        reason = f"{len(loss.reasons)} different" if several else loss.reasons[0][0]
        rows.append(
            ReportRow(
                (code, reason, loss.executions, loss.seconds / HOUR, _ratio(loss.seconds, bad))
            )
        )
        if several:
            rows += _reasons(loss.reasons, bad)
    return ReportTable(
        "causes",
        "Bad GPU-hours by cause",
        columns,
        tuple(rows),
        ReportRow(("Total", "", usage.total.totals.bad_executions, bad / HOUR, _ratio(bad, bad))),
        "No execution ended badly.",
    )


def _reasons(reasons: Sequence[tuple[str, int, float]], bad: float) -> Iterable[ReportRow]:
    shown = list(reasons[:REASONS])
    rest = reasons[REASONS:]
    if rest:
        executions, seconds = sum(n for _, n, _ in rest), sum(s for _, _, s in rest)
        shown.append((f"{len(rest)} others", executions, seconds))
    for reason, n, seconds in shown:
        yield ReportRow(("", reason, n, seconds / HOUR, _ratio(seconds, bad)), is_detail=True)


def _transfers(usage: ReportUsage) -> ReportTable:
    columns = (
        ReportColumn("direction", "Direction"),
        ReportColumn("outcome", "Outcome"),
        ReportColumn("n", "Transfers", ValueKind.COUNT, "transfers"),
        ReportColumn("hours", "Hours", ValueKind.HOURS),
        ReportColumn("median", "median", ValueKind.SECONDS, drop=3),
        ReportColumn("longest", "longest", ValueKind.SECONDS, drop=2),
        ReportColumn("queued_hours", "of it queued, h", ValueKind.HOURS, drop=1),
    )
    moves = usage.transfer_groups
    rows = tuple(
        ReportRow(
            (
                move.direction,
                move.outcome.replace("-", " "),
                move.count,
                move.seconds / HOUR,
                move.median,
                move.longest,
                move.queued_seconds / HOUR,
            )
        )
        for move in moves
    )
    untimed = sum(move.count - move.timed for move in moves)
    totals = (
        sum(move.count for move in moves),
        sum(move.seconds for move in moves) / HOUR,
        "",
        "",
        sum(move.queued_seconds for move in moves) / HOUR,
    )
    return ReportTable(
        "transfers",
        "Transfers",
        columns,
        rows,
        ReportRow(("Total", "", *totals)),
        "The logs have no transfer: only pools that log them (event 040) do.",
        f"Of {count(untimed, 'transfer')} the start was not logged." if untimed else None,
    )


def _runs(usage: ReportUsage) -> ReportTable:
    labelled = any(run.label for run, _ in usage.runs)
    # Unknown for a window, as in the totals.
    skipped = usage.window.unbounded and any(run.epochs_skipped for run, _ in usage.runs)
    columns = (
        ReportColumn("run", "Run"),
        ReportColumn("uuid", "Id", drop=6),
        *((ReportColumn("label", "Label"),) if labelled else ()),
        ReportColumn("epochs", "Epochs", ValueKind.COUNT, "epochs"),
        ReportColumn("epochs_total", "of", ValueKind.COUNT, drop=5),
        *((ReportColumn("epochs_skipped", "skipped", ValueKind.COUNT, drop=5),) if skipped else ()),
        *SPENT_COLUMNS,
        LONGEST_COLUMN,
    )
    rows = tuple(
        ReportRow(
            (
                run.run_name,
                run.uuid,
                *((run.label or "none",) if labelled else ()),
                part.by_longest,
                run.epochs_total,
                *((run.epochs_skipped,) if skipped else ()),
                *_usage_cells(part.totals),
                part.longest / HOUR,
            )
        )
        for run, part in usage.runs
    )
    others = _without_run(usage)
    blanks = ("", "") if labelled else ("",)
    if others is not None:
        none = ("", "", "") if skipped else ("", "")
        rows = (*rows, ReportRow(("jobs of no run", *blanks, *none, *_usage_cells(others), "")))
    wanted = sum(run.epochs_total for run, _ in usage.runs)
    not_trained = sum(run.epochs_skipped for run, _ in usage.runs)
    total = usage.total
    return ReportTable(
        "runs",
        "Runs",
        columns,
        rows,
        ReportRow(
            (
                "Total",
                *blanks,
                usage.epochs,
                wanted,
                *((not_trained,) if skipped else ()),
                *_usage_cells(total.totals),
                total.longest / HOUR,
            )
        ),
        "No runs: no node of these DAGs is called …-train_epochN.",
    )


def _without_run(usage: ReportUsage) -> UsageTotals | None:
    others = [e for e in usage.clipped.executions if e.run is None and not e.dagman]
    return sum_executions(others) if others else None


def _labels(usage: ReportUsage) -> ReportTable | None:
    """Tabulate the labels of runs, if the settings define any."""
    if not any(usage.labels):
        return None
    columns = (
        ReportColumn("label", "Label"),
        *EPOCH_COLUMNS,
        *SPENT_COLUMNS,
        LONGEST_COLUMN,
    )
    epochs = _epoch_sum(usage)
    rows = [
        ReportRow(
            (
                name or "none",
                *_epoch_cells(part, epochs),
                *_usage_cells(part.totals),
                part.longest / HOUR,
            )
        )
        for name, part in usage.labels.items()
    ]
    return ReportTable(
        "labels",
        "By label",
        columns,
        (*rows, *_unplaced_row(usage, len(columns) - 3)),
        ReportRow(("Total", *_total_cells(usage), usage.total.longest / HOUR)),
    )
