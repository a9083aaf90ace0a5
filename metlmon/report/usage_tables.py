"""The totals and tables of a report: the values of their columns, and the rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import attrgetter, itemgetter
from statistics import median
from typing import Any, Final

from msgspec.structs import replace

from metlmon.model.reasons import code_name
from metlmon.model.states import State
from metlmon.report.document import AT_MOST, NOT_KNOWN, PARTS, ReportTable, Row, Totals, row_of
from metlmon.report.usage import ReportUsage
from metlmon.snapshot.records import HOUR
from metlmon.stats.causes import Cause
from metlmon.stats.resources import ResourceGroup
from metlmon.stats.totals import group_by
from metlmon.stats.usage import GroupUsage
from metlmon.stats.windows import window_text
from metlmon.tables import usage as usage_columns
from metlmon.tables.layout import Column, Kind, Value
from metlmon.tables.resources import shown_resources
from metlmon.tables.variance import sentences, share_columns
from metlmon.text.formatting import clip, count, number, readable_dates
from metlmon.text.spans import text

NO_EXECUTION: Final = "no successful execution"

REASONS: Final = 6
"""Number of reasons of one cause that are shown in separate rows; the others share one row."""

NOTHING_RAN: Final = "Nothing ran: the logs have no execution in this window."

NO_JOB: Final = "Nothing happened: the logs have no job in this window."

DAMAGED: Final = (
    "The times are unknown: the stamps of the logs are decades apart, or all the same. A damaged "
    "line may say so; --since leaves it out."
)

AnyColumn = Column[Any]


def ratio(part: float, whole: float) -> float | None:
    """The ratio of two numbers; None if the second is 0."""
    return part / whole if whole else None


def _given(name: str, title: str, kind: Kind = Kind.TEXT, **more: Any) -> AnyColumn:
    """A column whose value is in the row under its name."""
    return Column(name, itemgetter(name), kind, title=title, **more)


def _attribute(name: str, title: str, kind: Kind, of: str = "", **more: Any) -> AnyColumn:
    """A column of an attribute of the row, by default the one with its name."""
    return Column(name, attrgetter(of or name), kind, title=title, **more)


# --- GPU models, sites, labels ------------------------------------------------------------------

EPOCHS: Final[AnyColumn] = replace(usage_columns.EPOCHS, title="Epochs")

EXECUTIONS: Final = _attribute(
    "executions", "Executions", Kind.COUNT, "totals.executions", footnote="executions", drop=3
)

TOTALS_COLUMNS: Final[tuple[AnyColumn, ...]] = (
    EXECUTIONS,
    replace(usage_columns.GOODPUT, title="goodput", group="GPU-hours"),
    replace(usage_columns.BADPUT, title="badput", group="GPU-hours"),
    replace(usage_columns.RUNNING, title="running", group="GPU-hours", drop=4),
    replace(usage_columns.HOURS, title="all", group="GPU-hours"),
)

BY_LONGEST: Final = _attribute(
    "epochs_by_longest", "By longest attempt", Kind.COUNT, "longest.epochs"
)

LONGEST: Final[AnyColumn] = Column(
    "longest_hours",
    lambda row: row.longest.seconds / HOUR,
    Kind.HOURS,
    title="Hours of longest attempts",
    footnote="longest",
    drop=1,
)

TO_JOBS: Final = _attribute(
    "bytes_to_jobs", "to jobs", Kind.BYTES, "input.received", footnote="bytes", group="Bytes"
)
FROM_JOBS: Final = _attribute(
    "bytes_from_jobs", "from jobs", Kind.BYTES, "input.sent", footnote="bytes", group="Bytes"
)
"""Input is what the jobs receive."""


def _group_table(
    usage: ReportUsage,
    key: str,
    caption: str,
    name: AnyColumn,
    groups: Iterable[GroupUsage],
    more_columns: Sequence[AnyColumn] = (),
    **texts: Any,
) -> ReportTable:
    """A table of groups, with a row for the epochs that belong to none of them."""
    totals = usage.total.totals
    epochs = totals.completed_epochs + usage.unlocated
    columns = (
        name,
        EPOCHS,
        Column(
            "share",
            lambda row: ratio(row.totals.completed_epochs, epochs),
            Kind.SHARE,
            title="Share",
            footnote="share",
            drop=2,
        ),
        replace(BY_LONGEST, footnote="by_longest", drop=5),
        *TOTALS_COLUMNS,
        *more_columns,
        LONGEST,
    )
    rows = [row_of(columns, group) for group in groups]
    if usage.unlocated:
        rows.append(
            {
                name.name: NO_EXECUTION,
                "epochs": usage.unlocated,
                "share": ratio(usage.unlocated, epochs),
                "epochs_by_longest": usage.unlogged,
            }
        )
    total = replace(usage.total, name="Total", totals=replace(totals, completed_epochs=epochs))
    return ReportTable(key, caption, columns, tuple(rows), row_of(columns, total), **texts)


def _repeated_note(usage: ReportUsage) -> str | None:
    if not usage.repeated:
        return None
    again = count(usage.repeated, "epoch here was", "epochs here were")
    completed = count(usage.epochs, "is", "are")
    return (
        f"{again} trained again by another DAG, or begun again: {completed} completed, each "
        "counted once."
    )


def gpu_table(usage: ReportUsage) -> ReportTable:
    """Epochs and GPU-hours by GPU model, with the logged names where shorter ones are shown."""
    shown = {group.name for group in usage.gpus}
    names = [
        f"{name}: {clip(logged, 60)}"
        for logged, name in usage.gpu_names.items()
        if name in shown and name != logged
    ]
    full_names = f"As logged, {'; '.join(names)}." if names else None
    return _group_table(
        usage,
        key="gpus",
        caption="Completed epochs and GPU-hours by GPU model",
        name=Column("gpu", attrgetter("name"), title="GPU model"),
        groups=usage.gpus,
        empty_text=NOTHING_RAN,
        comment=" ".join(filter(None, (_repeated_note(usage), full_names))) or None,
    )


def site_table(usage: ReportUsage) -> ReportTable:
    """Epochs and GPU-hours by resource."""
    whole = usage.total.totals.hours.total
    share: AnyColumn = Column(
        "gpu_hours_share",
        lambda row: ratio(row.totals.hours.total, whole),
        Kind.SHARE,
        title="share",
        footnote="gpu_hours",
        drop=6,
        group="GPU-hours",
    )
    ran = [site for site in usage.sites if site.totals.executions]
    # A transfer alone is not a contribution; the GPU-hours of a later execution are.
    ran += [
        site
        for site in usage.sites
        if not site.totals.executions and (site.totals.hours.total or site.longest.epochs)
    ]
    return _group_table(
        usage,
        key="sites",
        caption="Contributions by resource",
        name=Column("site", attrgetter("name"), title="Resource"),
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
        name=Column("label", lambda row: row.name or "none", title="Label"),
        groups=usage.labels,
    )


def bytes_table(usage: ReportUsage) -> ReportTable:
    """Bytes and transfers by resource."""
    whole = usage.total.input.received + usage.total.input.sent
    columns: tuple[AnyColumn, ...] = (
        Column("site", attrgetter("name"), title="Resource"),
        replace(EXECUTIONS, drop=0),
        _attribute("transfers", "Transfers", Kind.COUNT, footnote="moved"),
        TO_JOBS,
        FROM_JOBS,
        Column(
            "bytes_share",
            lambda row: ratio(row.input.received + row.input.sent, whole),
            Kind.SHARE,
            title="share",
            drop=1,
            group="Bytes",
        ),
    )
    return ReportTable(
        "moved",
        "Bytes and transfers by resource",
        columns,
        tuple(row_of(columns, site) for site in usage.sites),
        row_of(columns, replace(usage.total, name="Total")),
        empty_text="Nothing was moved: the logs have no execution and no transfer in this window.",
    )


def site_gpu_table(usage: ReportUsage) -> ReportTable | None:
    """Epochs by resource and GPU model; None unless there are several of each."""
    done = usage.epochs_at
    sites = [site.name for site in usage.sites if any(key[0] == site.name for key in done)]
    gpus = [gpu.name for gpu in usage.gpus if any(key[1] == gpu.name for key in done)]
    if len(sites) < 2 or len(gpus) < 2:
        return None
    numbers = [
        _given(gpu or "", gpu or NOT_KNOWN, Kind.COUNT, footnote="" if index else "epochs")
        for index, gpu in enumerate(gpus)
    ]

    def row(name: str | None, among: Sequence[str | None]) -> Row:
        epochs = {gpu or "": sum(done[site, gpu] for site in among) for gpu in gpus}
        known = {gpu: n for gpu, n in epochs.items() if n}
        return {"site": name, **known, "total": sum(epochs.values())}

    return ReportTable(
        "places",
        "Completed epochs by resource and GPU model",
        (_given("site", "Resource"), *numbers, _given("total", "all", Kind.COUNT)),
        tuple(row(site, [site]) for site in sites),
        row("Total", sites),
    )


# --- totals -------------------------------------------------------------------------------------


def totals(usage: ReportUsage) -> Totals:
    """The totals of the ensemble, or of the window.

    Runs have no time of completion: in a window their states are unknown.
    """
    runs, spent, moved = usage.ledger.runs, usage.total.totals, usage.total.input
    hours, whole = spent.hours, usage.window.unbounded
    ended = Counter(r.state for r in runs if not (r.stopped or r.is_between_epochs))
    stopped = sum(run.stopped for run in runs)
    skipped = sum(run.epochs_skipped for run in runs)
    took = median(usage.epoch_times) if usage.epoch_times else None
    wait = median(usage.waits) if usage.waits else None
    inputs = [group for group in usage.transfer_groups if group.direction == "input"]
    transfers = sum(group.count for group in inputs)
    transferred = sum(group.seconds for group in inputs) / HOUR
    lost, cost = ratio(hours.badput, hours.ended), spent.hours_per_epoch
    longest = usage.total.longest.seconds / HOUR
    rows: tuple[tuple[str, str, Kind, str, Value], ...] = (
        ("runs", "Runs", Kind.COUNT, "", len(runs)),
        ("runs_completed", "– completed", Kind.COUNT, "", ended[State.COMPLETED] if whole else ""),
        ("runs_failed", "– failed", Kind.COUNT, "", (whole and ended[State.FAILED]) or ""),
        ("runs_stopped", "– stopped before their end", Kind.COUNT, "", (whole and stopped) or ""),
        ("epochs", "Epochs completed", Kind.COUNT, "epochs", usage.epochs),
        ("epochs_skipped", "– skipped", Kind.COUNT, "", (whole and skipped) or ""),
        ("hidden", "– with hidden compute", Kind.COUNT, "by_longest", usage.hidden),
        ("jobs", "Jobs", Kind.COUNT, "executions", len(usage.jobs)),
        ("executions", "Executions", Kind.COUNT, "executions", spent.executions),
        ("success_rate", "Ended well", Kind.SHARE, "success", spent.success_rate),
        ("gpu_hours", "GPU-hours", Kind.HOURS, "gpu_hours", hours.total),
        ("goodput", "– goodput", Kind.HOURS, "goodput", hours.goodput),
        ("badput", "– badput", Kind.HOURS, "badput", hours.badput),
        ("running", "– running", Kind.HOURS, "running", hours.running),
        ("badput_share", "Badput, of ended", Kind.SHARE, "badput", lost),
        ("longest_hours", LONGEST.title, Kind.HOURS, "longest", longest),
        ("gpu_hours_per_epoch", "GPU-hours per epoch", Kind.HOURS, "per_epoch", cost),
        ("epoch_seconds_median", "Time of an epoch, median", Kind.DURATION, "epoch_time", took),
        ("wait_seconds_median", "Queue wait, median", Kind.DURATION, "wait", wait),
        ("input_transfers", "Input transfers", Kind.COUNT, "transfers", transfers),
        ("input_hours", "Hours of input transfer", Kind.HOURS, "transfers", transferred),
        ("bytes_to_jobs", "Moved to jobs", Kind.BYTES, "bytes", moved.received),
        ("bytes_from_jobs", "Moved from jobs", Kind.BYTES, "bytes", moved.sent),
    )
    known = [row for row in rows if row[-1] != ""]
    columns = [_given(name, title, kind, footnote=note) for name, title, kind, note, _ in known]
    wanted = sum(run.epochs_total for run in runs)
    missing = usage.ledger.nodes_unlogged
    comments = {
        "epochs": f"of {number(wanted)}" if wanted else "",
        "gpu_hours": f"at least: of {number(missing)} nodes the logs lack hours" if missing else "",
    }
    values = {name: value for name, *_, value in known}
    return Totals("totals", "Totals", tuple(columns), values, comments)


# --- over time ----------------------------------------------------------------------------------


def period_table(usage: ReportUsage) -> ReportTable:
    """Epochs, GPU-hours and bytes by day, week or month."""
    of_group = (*TOTALS_COLUMNS, replace(TO_JOBS, drop=8), replace(FROM_JOBS, drop=9))
    columns = (
        _given("period", usage.period.capitalize(), write=readable_dates, footnote="period"),
        _given("epochs", "Epochs", Kind.COUNT, footnote="epochs"),
        _given("cumulated", "cumulated", Kind.COUNT, drop=5),
        *of_group,
    )
    counts = [group.longest.epochs for _, group in usage.periods]
    rows: list[Row] = [
        {
            "period": window_text(window),
            "epochs": epochs,
            "cumulated": cumulated,
            **row_of(of_group, group),
        }
        for (window, group), epochs, cumulated in zip(
            usage.periods, counts, accumulate(counts), strict=True
        )
    ]
    if usage.undated and usage.window.unbounded:
        rows.append({"period": "at no known time", "epochs": usage.undated})
    return ReportTable(
        "periods",
        f"By {usage.period}",
        columns,
        tuple(rows),
        {"period": "Total", "epochs": usage.epochs, **row_of(of_group, usage.total)},
        empty_text=DAMAGED if usage.clipped.jobs else NO_JOB,
    )


def time_table(usage: ReportUsage) -> ReportTable:
    """Durations of completed epochs by GPU model and by resource."""
    of_box: tuple[AnyColumn, ...] = (
        _attribute("n", "n", Kind.COUNT, footnote="box"),
        _attribute("minimum", "least", Kind.DURATION, drop=2),
        _attribute("first_quartile", "first quartile", Kind.DURATION, "lower_quartile"),
        _attribute("median", "median", Kind.DURATION, footnote="epoch_time"),
        _attribute("third_quartile", "third quartile", Kind.DURATION, "upper_quartile"),
        _attribute("maximum", "most", Kind.DURATION, drop=1),
    )
    boxes = (("GPU model", usage.boxes_by_gpu), ("resource", usage.boxes_by_site))
    return ReportTable(
        "times",
        "Time of the successful execution of completed epochs",
        (_given("place", "GPU model, resource"), _given("by", "Kind", drop=3), *of_box),
        tuple(
            {"place": name, "by": kind, **row_of(of_box, box)}
            for kind, named in boxes
            for name, box in named.items()
        ),
        empty_text="No epoch was completed by an execution in the logs.",
    )


def variation_table(usage: ReportUsage) -> ReportTable | None:
    """Where the differences between epoch times come from; None without completed epochs."""
    variation = usage.variation
    if not variation.epochs:
        return None
    columns = share_columns()
    return ReportTable(
        "variation",
        text(sentences(variation, usage.ledger.item)[0]),
        tuple(columns),
        tuple(row_of(columns, share) for share in variation.shares if variation.missing is None),
        empty_text="No shares.",
    )


def profile_table(usage: ReportUsage) -> ReportTable | None:
    """What to expect of an epoch at each pool; None if nothing ran."""
    profiles = [profile for profile in usage.profiles if profile.executions]
    if not profiles:
        return None
    columns = tuple(
        replace(column, title=column.title.capitalize().replace("Gpu", "GPU"))
        for column in usage_columns.profile_columns(profiles)
    )
    return ReportTable(
        "profiles",
        "What to expect of an epoch, by pool",
        columns,
        tuple(row_of(columns, profile) for profile in profiles),
    )


def resource_table(usage: ReportUsage) -> ReportTable | None:
    """What executions used of what they requested, by resource; None if nothing was measured."""
    groups = usage.resources.groups
    if not any(group.measured for group in groups):
        return None
    columns = [
        Column("name", attrgetter("name"), title="Resource"),
        Column("ended", lambda group: str(group.ended), title="Ended", footnote="resources"),
        _attribute("executions", "Executions", Kind.COUNT, drop=1),
        _attribute("measured", "measured", Kind.COUNT, drop=9),
    ]
    hours = [
        _attribute("computed_gpu_hours", "GPU-hours computed", Kind.HOURS, drop=7),
        _attribute("measured_gpu_hours", "of measured", Kind.HOURS, drop=8),
    ]
    measured = [
        resource
        for resource in shown_resources(groups)
        if any(getattr(group, resource.name).measured for group in groups)
    ]
    for resource in measured:
        first, of = resource.name == "memory_mb", "requested"
        if resource.name == "gpus":
            of = "allocated"
        figures = {"median": 4 if resource.unit else 0, "p95": 0 if first else 5, "maximum": 3}
        for field, drop in (figures | {f"{of}_max": 0 if first else 2}).items():
            title = {"p95": "95 %", "maximum": "max", f"{of}_max": of}.get(field, field)
            columns.append(
                _attribute(
                    f"{resource.name}_{field}",
                    title,
                    Kind.NUMBER,
                    f"{resource.name}.{field}",
                    group=resource.noun,
                    write=resource.amount,
                    drop=drop,
                )
            )
    caption = "Use of what was requested"
    has_gpus = any(resource.name == "gpus" for resource in measured)
    comment = None if has_gpus else "Use of GPUs was not measured."

    def row(group: ResourceGroup) -> Row:
        bounds = [f"{r.name}_{field}" for r in measured for field in getattr(group, r.name).at_most]
        return {**row_of((*columns, *hours), group), AT_MOST: bounds}

    shown = (*columns, *hours) if has_gpus else tuple(columns)
    return ReportTable("resources", caption, shown, tuple(map(row, groups)), comment=comment)


# --- causes, transfers, runs --------------------------------------------------------------------

_CODE: Final = re.compile(r"(\d{1,4})/\S+")
"""A hold or vacate code with its subcode."""


def code_text(text: str, reason: str | None) -> str:
    """The label of a cause: a code with its name, which may depend on its reason."""
    code = _CODE.fullmatch(text)
    return f"{text} {code_name(int(code[1]), reason)}".rstrip() if code else text


def cause_table(usage: ReportUsage) -> ReportTable:
    """Bad GPU-hours by cause; a cause with several reasons has a detail row for each."""
    badput = usage.total.totals.hours.badput
    examples = {cause.key: cause.example for cause in usage.causes}

    def row(code: str, reason: str, executions: int, hours: float) -> Row:
        figures = {"executions": executions, "gpu_hours": hours, "share": ratio(hours, badput)}
        names = {"code": code, "reason": reason}
        return {**{name: text for name, text in names.items() if text}, **figures}

    rows = []
    for cause in usage.causes:
        reasons = _reasons(cause)
        several = len(reasons) > 1
        text = f"{len(reasons)} different" if several else reasons[0][0]
        whole = row(cause.key, text, cause.executions, cause.badput)
        rest = reasons[REASONS:]
        if rest:
            others = [sum(numbers) for numbers in list(zip(*rest, strict=True))[1:]]
            reasons[REASONS:] = [(count(len(rest), "other"), *others)]
        if several:
            whole[PARTS] = [row("", *reason) for reason in reasons]
        rows.append(whole)
    return ReportTable(
        "causes",
        "Badput by cause",
        (
            _given(
                "code",
                "Code",
                write=lambda key: code_text(key, examples.get(key)),
                footnote="cause",
            ),
            _given("reason", "Reason"),
            _given("executions", "Executions", Kind.COUNT, footnote="executions", drop=1),
            _given("gpu_hours", "GPU-hours", Kind.HOURS, footnote="badput"),
            _given("share", "Share", Kind.SHARE, footnote="lost_share"),
        ),
        tuple(rows),
        row("Total", "", sum(cause.executions for cause in usage.causes), badput),
        empty_text="No execution ended badly.",
    )


def _reasons(cause: Cause) -> list[tuple[str, int, float]]:
    """The reasons of a cause, the most expensive first: text, executions and GPU-hours."""
    reasons = [
        (text, sum(r.executions for r in group), sum(r.badput for r in group))
        for text, group in group_by(cause.reasons, attrgetter("common")).items()
    ]
    return sorted(reasons, key=lambda reason: (-reason[2], -reason[1], reason[0]))


def transfer_table(usage: ReportUsage) -> ReportTable:
    """Transfers by direction and outcome."""
    columns: tuple[AnyColumn, ...] = (
        _attribute("direction", "Direction", Kind.TEXT),
        Column("outcome", lambda row: row.outcome.replace("-", " "), title="Outcome"),
        _attribute("n", "Transfers", Kind.COUNT, "count", footnote="transfers"),
        Column("hours", lambda row: row.seconds / HOUR, Kind.HOURS, title="Hours"),
        _attribute("median", "median", Kind.DURATION, drop=3),
        _attribute("longest", "longest", Kind.DURATION, drop=2),
        Column(
            "queued_hours",
            lambda row: row.queued_seconds / HOUR,
            Kind.HOURS,
            title="of it queued, h",
            drop=1,
        ),
    )
    rows = [row_of(columns, group) for group in usage.transfer_groups]
    untimed = sum(group.count - group.timed for group in usage.transfer_groups)
    total = {name: sum(row[name] for row in rows) for name in ("n", "hours", "queued_hours")}
    return ReportTable(
        "transfers",
        "Transfers",
        columns,
        tuple(rows),
        {"direction": "Total", **total},
        empty_text="The logs have no transfer: only pools that log them (event 040) do.",
        comment=f"Of {count(untimed, 'transfer')} the start was not logged." if untimed else None,
    )


def run_table(usage: ReportUsage) -> ReportTable:
    """Epochs and GPU-hours by run."""
    runs = [run for run, _ in usage.runs]
    has_labels = any(run.label for run in runs)
    # Unknown for a window, as in the totals.
    has_skipped = usage.window.unbounded and any(run.epochs_skipped for run in runs)
    label: AnyColumn = Column("label", lambda run: run.label or "none", title="Label")
    counts = {"epochs_total": "of", **({"epochs_skipped": "skipped"} if has_skipped else {})}
    epochs = [_attribute(name, title, Kind.COUNT, drop=5) for name, title in counts.items()]
    names: tuple[AnyColumn, ...] = (
        Column("run", attrgetter("run"), title="Run"),
        Column("uuid", attrgetter("uuid"), title="Id", drop=6),
        *((label,) if has_labels else ()),
    )
    completed = replace(EPOCHS, value=BY_LONGEST.value)
    of_group = (completed, *TOTALS_COLUMNS, LONGEST)
    rows = [
        {**row_of((*names, *epochs), run), **row_of(of_group, group)} for run, group in usage.runs
    ]
    if usage.without_run is not None:
        rows.append({"run": "jobs of no run", **row_of(TOTALS_COLUMNS, usage.without_run)})
    sums = {name: sum(getattr(run, name) for run in runs) for name in counts}
    total = {"run": "Total", **sums, **row_of(of_group, usage.total), "epochs": usage.epochs}
    return ReportTable(
        "runs",
        "Runs",
        (*names, completed, *epochs, *TOTALS_COLUMNS, LONGEST),
        tuple(rows),
        total,
        empty_text="No runs: no node of these DAGs is called …-train_epochN.",
    )
