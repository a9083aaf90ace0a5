"""The tables of a report: each column with the value that it takes from a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from operator import attrgetter, itemgetter
from types import SimpleNamespace as Row
from typing import Any, Final

from msgspec.structs import replace

from metlmon.report.document import Raw, ReportColumn, ReportRow, ReportTable, ValueKind
from metlmon.report.usage import ReportUsage, gpu_model
from metlmon.snapshot.ledger import HOUR
from metlmon.stats.causes import Cause
from metlmon.stats.pool_profiles import PoolProfile
from metlmon.stats.totals import UsageTotals, group_by
from metlmon.stats.usage import GroupUsage
from metlmon.stats.windows import Unit, window_text
from metlmon.text.formatting import count, number

NO_EXECUTION: Final = "no successful execution"

REASONS: Final = 6
"""Reasons of one cause shown in separate rows; the others share one row."""

NOTHING_RAN: Final = "Nothing ran: the logs have no execution in this window."

DAMAGED: Final = (
    "The times are unknown: the stamps of the logs are decades apart, or all the same. A damaged "
    "line may say so; --since leaves it out."
)

PERIOD_HEADINGS: Final = {Unit.DAY: "Day", Unit.WEEK: "Week", Unit.MONTH: "Month"}

TEXT, COUNT, HOURS = ValueKind.TEXT, ValueKind.COUNT, ValueKind.HOURS
SHARE, SECONDS, BYTES = ValueKind.SHARE, ValueKind.SECONDS, ValueKind.BYTES


def _table(
    key: str,
    caption: str,
    columns: Sequence[ReportColumn],
    rows: Iterable[Any],
    total: Any = None,
    more: Sequence[ReportRow] = (),
    **texts: Any,
) -> ReportTable:
    """A table of ``rows``, of ``more`` and ``total``; ``texts``: as in the record."""
    return ReportTable(
        key=key,
        caption=caption,
        columns=tuple(columns),
        rows=(*(_row(columns, row) for row in rows), *more),
        total=_row(columns, total) if total is not None else None,
        **texts,
    )


def _row(columns: Sequence[ReportColumn], row: Any, is_detail: bool = False) -> ReportRow:
    return ReportRow(tuple(_value(column, row) for column in columns), is_detail)


def _value(column: ReportColumn, row: Any) -> Raw:
    get = attrgetter(column.value) if isinstance(column.value, str) else column.value
    value: Raw = get(row)
    return value / HOUR if column.kind is HOURS and isinstance(value, int | float) else value


def _short_row(columns: Sequence[ReportColumn], *cells: Raw) -> ReportRow:
    """A row of which only the first cells apply."""
    return ReportRow((*cells, *[""] * (len(columns) - len(cells))))


def ratio(part: float, whole: float) -> float | None:
    """The ratio of two numbers; None if the second is 0."""
    return part / whole if whole else None


# --- GPU models, sites, labels ------------------------------------------------------------------

TOTALS_COLUMNS: Final = (
    ReportColumn(
        "executions", "Executions", "totals.executions", COUNT, footnote="executions", drop=3
    ),
    ReportColumn(
        "goodput", "goodput", "totals.goodput", HOURS, footnote="goodput", group="GPU-hours"
    ),
    ReportColumn("badput", "badput", "totals.badput", HOURS, footnote="badput", group="GPU-hours"),
    ReportColumn(
        "running",
        "running",
        "totals.running",
        HOURS,
        footnote="running",
        drop=4,
        group="GPU-hours",
    ),
    ReportColumn("total", "all", "totals.total", HOURS, footnote="gpu_hours", group="GPU-hours"),
)

LONGEST_COLUMN: Final = ReportColumn(
    "longest_hours",
    "Hours of longest attempts",
    "longest.seconds",
    HOURS,
    footnote="longest",
    drop=1,
)


def _epoch_columns(epochs: int) -> tuple[ReportColumn, ...]:
    """The columns of completed epochs; ``epochs``: all of them."""
    completed = attrgetter("totals.completed")
    by_longest = attrgetter("longest.epochs")
    return (
        ReportColumn("epochs", "Epochs", completed, COUNT, footnote="epochs"),
        ReportColumn(
            "share",
            "Share",
            lambda row: ratio(completed(row), epochs),
            SHARE,
            footnote="share",
            drop=2,
        ),
        ReportColumn(
            "epochs_by_longest",
            "By longest attempt",
            by_longest,
            COUNT,
            footnote="by_longest",
            drop=5,
        ),
    )


def _group_table(
    usage: ReportUsage,
    key: str,
    caption: str,
    name: ReportColumn,
    groups: Iterable[GroupUsage],
    more_columns: Sequence[ReportColumn] = (),
    **texts: Any,
) -> ReportTable:
    """A table of groups, with a row for the epochs that belong to none of them."""
    totals = usage.total.totals
    epochs = totals.completed + usage.unlocated
    columns = (
        name,
        *_epoch_columns(epochs),
        *TOTALS_COLUMNS,
        *more_columns,
        LONGEST_COLUMN,
    )
    unlocated: tuple[ReportRow, ...] = ()
    if usage.unlocated:
        share = ratio(usage.unlocated, epochs)
        unlocated = (_short_row(columns, NO_EXECUTION, usage.unlocated, share, usage.unlogged),)
    total = replace(usage.total, name="Total", totals=replace(totals, completed=epochs))
    return _table(key, caption, columns, groups, total=total, more=unlocated, **texts)


def _repeated_note(usage: ReportUsage) -> str | None:
    if not usage.repeated:
        return None
    return (
        f"{count(usage.repeated, 'epoch')} here were trained again by another DAG, or begun again: "
        f"{number(usage.epochs)} are completed, each counted once."
    )


def gpu_table(usage: ReportUsage) -> ReportTable:
    """Epochs and GPU-hours by GPU model."""
    return _group_table(
        usage,
        key="gpus",
        caption="Completed epochs and GPU-hours by GPU model",
        name=ReportColumn("gpu", "GPU model", "name"),
        groups=usage.gpus,
        empty_text=NOTHING_RAN,
        comment=_repeated_note(usage),
    )


def site_table(usage: ReportUsage) -> ReportTable:
    """Epochs and GPU-hours by resource."""
    whole = usage.total.totals.total
    share = ReportColumn(
        "gpu_hours_share",
        "share",
        lambda row: ratio(row.totals.total, whole),
        SHARE,
        footnote="gpu_hours",
        drop=6,
        group="GPU-hours",
    )
    ran = [site for site in usage.sites if site.totals.executions]
    # A transfer alone is no contribution; the GPU-hours of a later execution are.
    ran += [
        site
        for site in usage.sites
        if not site.totals.executions and (site.totals.total or site.longest.epochs)
    ]
    return _group_table(
        usage,
        key="sites",
        caption="Contributions by resource",
        name=ReportColumn("site", "Resource", "name"),
        groups=ran,
        more_columns=(share,),
        empty_text=NOTHING_RAN,
        comment=_repeated_note(usage),
    )


def label_table(usage: ReportUsage) -> ReportTable | None:
    """Epochs and GPU-hours by label of the run; None if the settings define no label."""
    if not any(label.name for label in usage.labels):
        return None
    return _group_table(
        usage,
        key="labels",
        caption="By label",
        name=ReportColumn("label", "Label", lambda row: row.name or "none"),
        groups=usage.labels,
    )


def bytes_table(usage: ReportUsage) -> ReportTable:
    """Bytes and transfers by resource."""
    whole = usage.total.input.received + usage.total.input.sent
    columns = (
        ReportColumn("site", "Resource", "name"),
        ReportColumn("executions", "Executions", "totals.executions", COUNT, footnote="executions"),
        ReportColumn("transfers", "Transfers", "transfers", COUNT, footnote="moved"),
        *BYTE_COLUMNS,
        ReportColumn(
            "bytes_share",
            "share",
            lambda row: ratio(row.input.received + row.input.sent, whole),
            SHARE,
            drop=1,
            group="Bytes",
        ),
    )
    return _table(
        "moved",
        "Bytes and transfers by resource",
        columns,
        usage.sites,
        total=replace(usage.total, name="Total"),
        empty_text="Nothing was moved: the logs have no execution and no transfer in this window.",
    )


BYTE_COLUMNS: Final = (
    ReportColumn(
        "bytes_to_jobs", "to jobs", "input.received", BYTES, footnote="bytes", group="Bytes"
    ),
    ReportColumn(
        "bytes_from_jobs", "from jobs", "input.sent", BYTES, footnote="bytes", group="Bytes"
    ),
)
"""Input of the jobs is received by them, output is sent."""


def site_gpu_table(usage: ReportUsage) -> ReportTable | None:
    """Epochs by resource and GPU model; None unless there are several of each."""
    done = {key: sums.completed for key, sums in usage.by_site_and_gpu.items() if sums.completed}
    sites = [site.name for site in usage.sites if any(key[0] == site.name for key in done)]
    gpus = [gpu.name for gpu in usage.gpus if any(key[1] == gpu.name for key in done)]
    if len(sites) < 2 or len(gpus) < 2:
        return None
    columns = (
        ReportColumn("site", "Resource", itemgetter(0)),
        *(
            ReportColumn(
                key=gpu or "",
                heading=gpu or "not known",
                value=itemgetter(index),
                kind=COUNT,
                footnote="epochs" if index == 1 else None,
            )
            for index, gpu in enumerate(gpus, start=1)
        ),
        ReportColumn("total", "all", itemgetter(-1), COUNT),
    )

    def row(name: str | None, among: Sequence[str | None]) -> tuple[Raw, ...]:
        epochs = [sum(done.get((site, gpu), 0) for site in among) for gpu in gpus]
        return (name, *(n or "" for n in epochs), sum(epochs))

    return _table(
        "places",
        "Completed epochs by resource and GPU model",
        columns,
        [row(site, [site]) for site in sites],
        total=row("Total", sites),
    )


# --- over time ----------------------------------------------------------------------------------


def period_table(usage: ReportUsage) -> ReportTable:
    """Epochs, GPU-hours and bytes by day, week or month."""
    columns = (
        ReportColumn(
            "period", PERIOD_HEADINGS[usage.period], "name", ValueKind.PERIOD, footnote="period"
        ),
        ReportColumn("epochs", "Epochs", "epochs", COUNT, footnote="epochs"),
        ReportColumn("cumulated", "cumulated", "cumulated", COUNT, drop=5),
        *TOTALS_COLUMNS,
        *(replace(column, drop=drop) for column, drop in zip(BYTE_COLUMNS, (8, 9), strict=True)),
    )

    def row(name: str, group: GroupUsage, epochs: int, cumulated: Raw) -> Row:
        totals, moved = group.totals, group.input
        return Row(name=name, totals=totals, input=moved, epochs=epochs, cumulated=cumulated)

    counts = [group.longest.epochs for _, group in usage.periods]
    rows = [
        row(window_text(window), group, epochs, cumulated)
        for (window, group), epochs, cumulated in zip(
            usage.periods, counts, accumulate(counts), strict=True
        )
    ]
    undated: tuple[ReportRow, ...] = ()
    if usage.undated and usage.window.unbounded:
        undated = (_short_row(columns, "at no known time", usage.undated),)
    return _table(
        "periods",
        f"By {usage.period}",
        columns,
        rows,
        total=row("Total", usage.total, usage.epochs, ""),
        more=undated,
        empty_text=DAMAGED
        if usage.clipped.jobs
        else "Nothing happened: the logs have no job in this window.",
    )


def time_table(usage: ReportUsage) -> ReportTable:
    """Durations of completed epochs by GPU model and by resource."""
    columns = (
        ReportColumn("place", "GPU model, resource", "name"),
        ReportColumn("by", "Kind", "kind", drop=3),
        ReportColumn("n", "n", "box.n", COUNT, footnote="box"),
        ReportColumn("minimum", "least", "box.minimum", SECONDS, drop=2),
        ReportColumn("first_quartile", "first quartile", "box.lower_quartile", SECONDS),
        ReportColumn("median", "median", "box.median", SECONDS, footnote="epoch_time"),
        ReportColumn("third_quartile", "third quartile", "box.upper_quartile", SECONDS),
        ReportColumn("maximum", "most", "box.maximum", SECONDS, drop=1),
    )
    boxes = (("GPU model", usage.boxes_by_gpu), ("resource", usage.boxes_by_site))
    return _table(
        "times",
        "Time of the successful execution of completed epochs",
        columns,
        [Row(name=n, kind=kind, box=plot) for kind, plots in boxes for n, plot in plots.items()],
        empty_text="No epoch was completed by an execution in the logs.",
    )


def profile_table(usage: ReportUsage) -> ReportTable | None:
    """What to expect of an epoch at each pool; None if nothing ran."""
    profiles = [profile for profile in usage.profiles if profile.starts]
    if not profiles:
        return None

    def seconds(name: str) -> Callable[[PoolProfile], Raw]:
        read = attrgetter(name)

        def value(row: PoolProfile) -> Raw:
            figure, _, _ = name.partition(".")
            return read(row) * HOUR if getattr(row, figure) is not None else None

        return value

    is_annex = any(profile.pool.annex for profile in profiles)
    annex = ReportColumn("annex", "Annex", lambda row: row.pool.annex or None)
    columns = (
        ReportColumn("site", "Resource", lambda row: row.pool.site or None),
        ReportColumn("gpu", "GPU model", lambda row: gpu_model(row.pool.gpu)),
        *((annex,) if is_annex else ()),
        ReportColumn("epochs", "Epochs", "epochs", COUNT, footnote="profile"),
        ReportColumn("hours", "mean", seconds("hours.value"), SECONDS, group="Epoch"),
        ReportColumn("hours_low", "from", seconds("hours.low"), SECONDS, drop=3, group="Epoch"),
        ReportColumn("hours_high", "to", seconds("hours.high"), SECONDS, drop=4, group="Epoch"),
        ReportColumn("wait", "Wait", seconds("wait.value"), SECONDS, drop=2),
        ReportColumn("transfer", "Input", seconds("transfer.value"), SECONDS, drop=5),
        ReportColumn("loss", "Loss", "loss.value", SHARE, footnote="profile_loss"),
        ReportColumn("borrowed", "Borrowed from", _borrowed_from, drop=6),
    )
    return _table("profiles", "What to expect of an epoch, by pool", columns, profiles)


def _borrowed_from(profile: PoolProfile) -> str:
    figures = (profile.hours, profile.wait, profile.transfer, profile.loss)
    return ", ".join(dict.fromkeys(each.borrowed for each in figures if each and each.borrowed))


# --- causes, transfers, runs --------------------------------------------------------------------


def cause_table(usage: ReportUsage) -> ReportTable:
    """Bad GPU-hours by cause; a cause with several reasons has a detail row for each."""
    totals = usage.total.totals
    columns = (
        ReportColumn("code", "Code", "code", ValueKind.CODE, footnote="cause"),
        ReportColumn("reason", "Reason", "reason"),
        ReportColumn(
            "executions", "Executions", "executions", COUNT, footnote="executions", drop=1
        ),
        ReportColumn("gpu_hours", "GPU-hours", "seconds", HOURS, footnote="badput"),
        ReportColumn(
            "share",
            "Share",
            lambda row: ratio(row.seconds, totals.badput),
            SHARE,
            footnote="lost_share",
        ),
    )
    rows: list[ReportRow] = []
    for cause in usage.causes:
        reasons = _reason_rows(cause)
        several = len(reasons) > 1
        text = f"{len(reasons)} different" if several else reasons[0].reason
        rows.append(_row(columns, _loss(cause.key, text, cause.executions, cause.lost_gpu_seconds)))
        rest = reasons[REASONS:]
        if rest:
            reasons[REASONS:] = [
                _loss(
                    "",
                    f"{len(rest)} others",
                    sum(row.executions for row in rest),
                    sum(row.seconds for row in rest),
                )
            ]
        rows += [_row(columns, row, is_detail=True) for row in reasons] if several else []
    return _table(
        "causes",
        "Badput by cause",
        columns,
        (),
        total=_loss("Total", "", totals.bad_executions, totals.badput),
        more=rows,
        empty_text="No execution ended badly.",
    )


def _loss(code: str, reason: str, executions: int, seconds: float) -> Row:
    """Executions and bad GPU-seconds of a cause, or of one of its reasons."""
    return Row(code=code, reason=reason, executions=executions, seconds=seconds)


def _reason_rows(cause: Cause) -> list[Row]:
    """The reasons of a cause, whatever the outcome, the most expensive first."""
    rows = [
        _loss(
            "", text, sum(r.executions for r in reasons), sum(r.lost_gpu_seconds for r in reasons)
        )
        for text, reasons in group_by(cause.reasons, attrgetter("text")).items()
    ]
    return sorted(rows, key=lambda row: (-row.seconds, -row.executions, row.reason))


def transfer_table(usage: ReportUsage) -> ReportTable:
    """Transfers by direction and outcome."""
    columns = (
        ReportColumn("direction", "Direction", "direction"),
        ReportColumn("outcome", "Outcome", lambda row: row.outcome.replace("-", " ")),
        ReportColumn("n", "Transfers", "count", COUNT, footnote="transfers"),
        ReportColumn("hours", "Hours", "seconds", HOURS),
        ReportColumn("median", "median", "median", SECONDS, drop=3),
        ReportColumn("longest", "longest", "longest", SECONDS, drop=2),
        ReportColumn("queued_hours", "of it queued, h", "queued_seconds", HOURS, drop=1),
    )
    groups = usage.transfer_groups
    untimed = sum(group.count - group.timed for group in groups)
    transfers = sum(group.count for group in groups)
    seconds = sum(group.seconds for group in groups) / HOUR
    queued = sum(group.queued_seconds for group in groups) / HOUR
    table = _table(
        "transfers",
        "Transfers",
        columns,
        groups,
        empty_text="The logs have no transfer: only pools that log them (event 040) do.",
        comment=f"Of {count(untimed, 'transfer')} the start was not logged." if untimed else None,
    )
    return replace(table, total=ReportRow(("Total", "", transfers, seconds, "", "", queued)))


def run_table(usage: ReportUsage) -> ReportTable:
    """Epochs and GPU-hours by run."""
    has_labels = any(run.label for run, _ in usage.runs)
    # Unknown for a window, as in the totals.
    has_skipped = usage.window.unbounded and any(run.epochs_skipped for run, _ in usage.runs)
    label = ReportColumn("label", "Label", "label")
    skipped = ReportColumn("epochs_skipped", "skipped", "epochs_skipped", COUNT, drop=5)
    columns = (
        ReportColumn("run", "Run", "name"),
        ReportColumn("uuid", "Id", "uuid", drop=6),
        *((label,) if has_labels else ()),
        ReportColumn("epochs", "Epochs", "epochs", COUNT, footnote="epochs"),
        ReportColumn("epochs_total", "of", "epochs_total", COUNT, drop=5),
        *((skipped,) if has_skipped else ()),
        *TOTALS_COLUMNS,
        replace(LONGEST_COLUMN, value="longest_seconds"),
    )

    def row(name: str, totals: UsageTotals, **values: Raw) -> Row:
        # What is not known of it is an empty text.
        names = ("uuid", "label", "epochs", "epochs_total", "epochs_skipped", "longest_seconds")
        return Row(name=name, totals=totals, **{**dict.fromkeys(names, ""), **values})

    rows = [
        row(
            run.run_name,
            group.totals,
            uuid=run.uuid,
            label=run.label or "none",
            epochs=group.longest.epochs,
            epochs_total=run.epochs_total,
            epochs_skipped=run.epochs_skipped,
            longest_seconds=group.longest.seconds,
        )
        for run, group in usage.runs
    ]
    if usage.without_run is not None:
        rows.append(row("jobs of no run", usage.without_run))
    total = row(
        "Total",
        usage.total.totals,
        epochs=usage.epochs,
        epochs_total=sum(run.epochs_total for run, _ in usage.runs),
        epochs_skipped=sum(run.epochs_skipped for run, _ in usage.runs),
        longest_seconds=usage.total.longest.seconds,
    )
    return _table(
        "runs",
        "Runs",
        columns,
        rows,
        total=total,
        empty_text="No runs: no node of these DAGs is called …-train_epochN.",
    )
