"""Details of usage: the lines of a row, and the executions behind a total."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from metlmon.model.reasons import code_text
from metlmon.snapshot.ledger import HOUR, EpochEntry, ExecutionEntry, HourUnit
from metlmon.stats.causes import Cause
from metlmon.stats.pool_profiles import PoolProfile
from metlmon.stats.totals import UsageTotals
from metlmon.stats.usage import (
    Distribution,
    GroupUsage,
    SiteGpuUsage,
    Usage,
    UsageFilter,
    hidden_jobs,
    select_executions,
)
from metlmon.tables.layout import Column, Kind
from metlmon.tables.profiles import profile_details
from metlmon.tables.runs import hours_cell
from metlmon.tables.usage import (
    GAP,
    HIDDEN,
    NAME_LIMIT,
    Row,
    code_of,
    hours_text,
    legend,
    machine,
    models,
    quartiles,
    seconds_range,
    site_name,
)
from metlmon.text import formatting
from metlmon.text.formatting import OUTCOMES, plain
from metlmon.text.spans import (
    BAD,
    BOLD,
    DIM,
    GOOD,
    MOVING,
    NOTE,
    PLAIN,
    Line,
    crop,
    crop_middle,
    first_that_fits,
    join,
    line,
    style_of,
    symbol_span,
    width,
    wrap_parts,
)


def details(row: Row, usage: Usage, room: int, lines: int) -> list[Line]:
    """Return the details of a row, cropped to ``lines`` lines of ``cells`` cells."""
    if isinstance(row, Cause):
        lines_shown = _cause_details(row, usage, room, lines)
    elif isinstance(row, SiteGpuUsage):
        lines_shown = _cell_details(row, usage, room)
    elif isinstance(row, PoolProfile):
        lines_shown = profile_details(row, room, usage.item)
    else:
        lines_shown = _place_details(row, usage, room, lines)
    return [crop(detail_line, room) for detail_line in lines_shown[:lines]]


def _place_details(row: GroupUsage, usage: Usage, room: int, lines: int) -> list[Line]:
    rows = [
        _fit_parts(line(" "), _identity_parts(row, _model_names(usage)), room),
        _epoch_time(row, usage, room),
        _fit_parts(_label("queue wait"), _wait_parts(row, usage), room, "nothing has started"),
        _fit_parts(_label("input"), _input_parts(row), room, "no transfer was logged"),
    ]
    return [*rows, *_cause_lines(row.causes, room, max(1, lines - len(rows)))]


def _epoch_time(row: GroupUsage | SiteGpuUsage, usage: Usage, room: int) -> Line:
    parts = _distribution_parts(row.epoch, row.hidden)
    return _fit_parts(_label(f"{usage.item} time"), parts, room, f"no completed {usage.item}")


def _fit_parts(start: Line, parts: Sequence[Line], room: int, empty: str = "") -> Line:
    """Join as many parts as fit; the last ones are dropped first. ``empty``: if there are none."""
    fitting = [part for part in parts if part] or [line((empty, DIM))]
    while len(fitting) > 1 and width(start + join(fitting, GAP)) > room:
        fitting.pop()
    return start + join(fitting, GAP)


def _model_names(usage: Usage) -> dict[str | None, str]:
    return models(place.name for place in usage.gpus)


def _identity_parts(row: GroupUsage, model_names: Mapping[str | None, str]) -> list[Line]:
    totals = row.totals
    n = formatting.number
    in_flight = totals.executions - totals.good_executions - totals.bad_executions
    if row.name in row.sites or row.name is None:
        places = [machine(model_names, gpu, number) for gpu, number in row.machines]
    else:
        places = [f"at {site_name(site, 24)}" for site in row.sites]
    targets = ", ".join(plain(target, 24) for target in row.targets)
    return [
        line((site_name(row.name, NAME_LIMIT), BOLD)),
        line(
            formatting.count(totals.executions, "execution"),
            (f": {n(totals.good_executions)} goodput, {n(totals.bad_executions)} badput", DIM),
            (f", {n(in_flight)} running" if in_flight else "", DIM),
        ),
        line((", ".join(places), DIM)),
        line((f"requested: {targets}" if targets else "", DIM)),
    ]


def _label(title: str) -> Line:
    return line((f" {title:<11}", DIM))


def _distribution_parts(distribution: Distribution, hidden: int = 0) -> list[Line]:
    if distribution.median is None or distribution.minimum is None or distribution.maximum is None:
        return []
    several = distribution.n > 1
    mark = f"{HIDDEN.glyph} {hidden}: {HIDDEN.word}" if hidden else ""
    return [
        line(
            ("median ", DIM),
            formatting.duration(distribution.median),
            (f" of {formatting.number(distribution.n)}", DIM),
        ),
        line(("IQR ", DIM), quartiles(distribution)) if several else (),
        line((f"range {seconds_range(distribution.minimum, distribution.maximum)}", DIM))
        if several
        else (),
        line((mark, style_of(HIDDEN))),
    ]


def _wait_parts(row: GroupUsage, usage: Usage) -> list[Line]:
    # By target only: the site of a job that never ran is unknown.
    waits = [wait for wait in usage.waiting if wait.target in row.targets]
    waiting, removed = sum(wait.waiting for wait in waits), sum(wait.removed for wait in waits)
    target = plain(waits[0].target or "", 24) if len(waits) == 1 else "one of its targets"
    suffix = f" for {target}"
    longest = max((wait.longest or 0.0 for wait in waits), default=0.0)
    up_to = f", longest {formatting.duration(longest)}"
    median, *others = _distribution_parts(row.wait) or [()]
    return [
        median,
        line((f"{waiting} idle{suffix}", NOTE), (up_to, DIM)) if waiting else (),
        line((f"{removed} removed while idle{suffix}", DIM)) if removed else (),
        *others,
    ]


def _input_parts(row: GroupUsage) -> list[Line]:
    transfers = row.input
    median, *others = _distribution_parts(transfers.ok) or [()]
    stalled = f" {formatting.duration(transfers.stalled_seconds)}"
    size = formatting.size
    return [
        median,
        line((f"{transfers.stalls} stalled", BAD), (stalled, DIM)) if transfers.stalls else (),
        line((f"{transfers.aborted} aborted, {transfers.unfinished} unfinished", DIM))
        if transfers.failed
        else (),
        line((f"{transfers.in_flight} under way", MOVING)) if transfers.in_flight else (),
        line((f"{size(transfers.received)} in, {size(transfers.sent)} out", DIM))
        if transfers.received or transfers.sent
        else (),
        *others,
    ]


def _cause_lines(causes: Sequence[Cause], room: int, lines: int) -> list[Line]:
    """List the causes of loss, one per line if they fit, else packed."""
    if not causes:
        return [_label("badput") + line(("none", GOOD))]
    indent = width(_label(""))
    if lines >= min(len(causes), ROOMY_CAUSES):
        widest = max(width(_cause_cost(cause)) for cause in causes[:lines])
        rows = []
        for cause in causes[:lines]:
            cost = _cause_cost(cause)
            name = crop_middle(_cause_text(cause), room - indent - widest - 4)
            rows.append(line(" " * (widest - width(cost))) + cost + line("   ", name))
    else:
        short = [
            _cause_cost(cause) + line(" ", formatting.clip(_short_name(cause), 28))
            for cause in causes
        ]
        rows = wrap_parts(short, GAP, room - indent)[:lines]
    starts = [_label("badput"), *[line(" " * indent)] * len(rows)]
    return [start + cause for start, cause in zip(starts, rows, strict=False)]


def _cause_cost(cause: Cause) -> Line:
    times = f"{formatting.number(cause.occurrences)}×"
    return line((hours_text(cause.bad), BAD if cause.bad > 0 else DIM), (f" h {times}", DIM))


ROOMY_CAUSES: Final = 4
"""Minimum lines for one line per cause."""


def _short_name(cause: Cause) -> str:
    """Return the code of a cause, or its key."""
    return code_of(cause) or plain(cause.key, 80)


def _cause_text(cause: Cause) -> str:
    code = code_of(cause)
    return plain(f"{code}: {cause.text}" if code else cause.text, 400)


def _cell_details(row: SiteGpuUsage, usage: Usage, room: int) -> list[Line]:
    gpu = machine(_model_names(usage), row.gpu, row.gpus)
    site, totals = site_name(row.site, NAME_LIMIT), row.totals
    executions = line(formatting.count(totals.executions, "execution"))
    parts = [line((f"{gpu} at {site}", BOLD)), executions, legend(totals)]
    lines = [_fit_parts(line(" "), parts, room), _epoch_time(row, usage, room)]
    if row.slow:
        fastest = site_name(row.fastest_site, NAME_LIMIT)
        times = f"{row.relative_time:.2f} times the median at {fastest}"
        comparisons = (", and the middle halves do not overlap", ", middle halves apart", "")
        candidates = (
            _label("slow") + line((times + comparison, NOTE)) for comparison in comparisons
        )
        lines.append(first_that_fits(candidates, room))
    elif row.relative_time is None:
        lines.append(
            _label("compared")
            + line(("sites with the same GPU, as many of them, and 3 epochs or more each", DIM))
        )
    others = [
        cell
        for cell in usage.site_gpus
        if (cell.gpu, cell.gpus) == (row.gpu, row.gpus) and cell.site != row.site
    ]
    if others:
        compared = [
            line(
                f"{site_name(cell.site, 24)} {formatting.duration(cell.epoch.median)}",
                (f" of {cell.epoch.n}", DIM),
            )
            for cell in others
        ]
        lines.append(_label("elsewhere") + crop(join(compared, GAP), room - 13))
    return lines


def _cause_details(row: Cause, usage: Usage, total_room: int, lines: int) -> list[Line]:
    times = formatting.count(row.occurrences, "time")
    ended = formatting.count(row.executions, "execution")
    held = formatting.count(row.holds, "hold")
    both = f", {row.ended_by_hold} of them one thing" if row.ended_by_hold else ""
    share = formatting.share(row.bad, usage.total.totals.bad)
    first = join(
        (
            line((code_of(row) or formatting.clip(plain(row.key, 80), 32), BOLD)),
            line((hours_text(row.bad), BAD), f" GPU-hours of badput, {share} of all")
            if row.bad > 0
            else line(("no badput", DIM)),
            line(times, (f": {ended}, {held}{both}" if row.holds else "", DIM)),
        ),
        GAP,
    )
    rows = [line(" ") + first]
    for label, places in (("at", usage.sites), ("on", usage.gpus)):
        model_names = _model_names(usage) if label == "on" else {}
        rows.append(_label(label) + _where_lost(row, places, model_names))
    for reason in row.reasons[: max(1, lines - len(rows))]:
        sign = OUTCOMES[reason.outcome]
        start = line((sign.text(), style_of(sign)), "  ")
        if len(row.reasons) > 1:
            start += hours_cell(reason.bad / HOUR, BAD) + line(" h  ")
        room = total_room - width(start) - 2
        rows.append(line(" ") + start + line(crop_middle(plain(reason.text, 400), room)))
    return rows


def _where_lost(
    row: Cause, places: Iterable[GroupUsage], model_names: Mapping[str | None, str]
) -> Line:
    parts = [
        line(f"{model_names.get(place.name) or site_name(place.name, 28)} ") + _cause_cost(cause)
        for place in places
        for cause in place.causes
        if cause.key == row.key
    ]
    return join(parts, GAP)


# --- the executions behind a total ----------------------------------------------------------


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


EXECUTION_ORDERS = (
    ("start", None),
    ("GPU-hours", lambda row: (-(row.entry.gpu_seconds or 0.0),)),
    ("time", lambda row: (-row.entry.seconds,)),
    ("outcome", lambda row: (row.entry.outcome.value, row.entry.cause or "")),
    ("run", lambda row: (row.entry.run_name or "", row.entry.epoch or 0)),
)


def listed_executions(usage: Usage, usage_filter: UsageFilter) -> list[ListedExecution]:
    """Return the executions selected by a filter, with their hidden epochs."""
    epochs = hidden_jobs(usage)
    return [
        ListedExecution(entry, epochs.get(entry.job) if entry.final else None)
        for entry in select_executions(usage, usage_filter)
    ]


def execution_text(row: ListedExecution) -> str:
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
    """What a filter selects: ``A100 ×2 at Delta``, ``badput of 34 JobOutOfResources``."""
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


def execution_columns(
    usage: Usage | None, usage_filter: UsageFilter
) -> list[Column[ListedExecution]]:
    """The columns; that of the selected site, GPU or cause is dropped first."""
    this_year = None if usage is None else formatting.year_of(usage.as_of)
    measure = HourUnit.GPU if usage is None else usage.measure
    model_names: Mapping[str | None, str] = models(
        place.name for place in (() if usage is None else usage.gpus)
    )

    def gpu(row: ListedExecution) -> str:
        return machine(model_names, row.entry.gpu, row.entry.gpus)

    def epoch(row: ListedExecution) -> int | str:
        return "" if row.entry.epoch is None else formatting.epoch_number(row.entry.epoch)

    columns: list[Column[ListedExecution]] = [
        Column(
            *("run", "RUN", lambda r: plain(r.entry.run_name or "", NAME_LIMIT) or None),
            minimum=6,
            comfortable=10,
            maximum=24,
        ),
        Column("epoch", "EPOCH", epoch, Kind.COUNT, cell=_epoch),
        Column("try", "TRY", lambda r: r.entry.attempt, Kind.COUNT, drop=2),
        Column("start", "START", lambda r: r.entry.start, Kind.TIME, drop=1, year=this_year),
        Column("seconds", "TIME", lambda r: r.entry.seconds, Kind.DURATION),
        Column(
            *("hours", measure.short, lambda r: r.entry.gpu_hours, Kind.HOURS),
            style=lambda r: BAD if r.entry.kind == "bad" else PLAIN,
        ),
        Column(
            *("outcome", "OUTCOME", lambda r: OUTCOMES[r.entry.outcome], Kind.STATE),
            cell=_outcome,
            minimum=10,
        ),
        Column(
            *("site", "SITE", lambda r: site_name(r.entry.site, NAME_LIMIT)),
            drop=4 if usage_filter.site is None else 6,
            comfortable=10,
            maximum=24,
        ),
        Column("gpu", "GPU", gpu, drop=5, maximum=24),
        Column(
            *("job", "JOB", lambda r: formatting.job_id(*r.entry.job)),
            align="right",
            drop=7,
            style=DIM,
        ),
        Column(
            *("cause", "CAUSE", _cause),
            drop=3 if usage_filter.cause is None else 8,
            style=DIM,
            minimum=8,
            comfortable=12,
            maximum=400,
        ),
    ]
    of_jobs = usage is not None and usage.item == "job"
    return [column for column in columns if not (of_jobs and column.name == "epoch")]


def _epoch(row: ListedExecution, _: int | None) -> Line:
    if row.entry.epoch is None:
        return ()
    side = "" if row.entry.training else " side"
    return line(str(formatting.epoch_number(row.entry.epoch)), (side, DIM))


def _outcome(row: ListedExecution, _: int | None) -> Line:
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
