"""The views of the Sites screen: rows, columns, details of a row, and executions behind it.

Pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.model.reasons import code_text, with_common_numbers
from metlmon.snapshot.records import HOUR, Epoch, Execution, GpuHours
from metlmon.stats.causes import Cause
from metlmon.stats.hosts import SLOW_MIN_EPOCHS
from metlmon.stats.pool_profiles import PoolProfile, ProfileFigure
from metlmon.stats.resources import ResourceGroup
from metlmon.stats.totals import UsageTotals
from metlmon.stats.usage import (
    Distribution,
    GroupUsage,
    HostUsage,
    SiteGpuUsage,
    Usage,
    UsageFilter,
)
from metlmon.tables.layout import UNKNOWN_CELL, Column, Kind, count_cell, searched, table_lines
from metlmon.tables.resources import group_columns, hours_line, resource_columns, shown_resources
from metlmon.tables.runs import hours_cell
from metlmon.text import formatting
from metlmon.text.formatting import OUTCOMES, Colour, Symbol, apportion, clip, plain
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    GOOD,
    MOVING,
    NOTE,
    PLAIN,
    Line,
    TextStyle,
    crop,
    crop_middle,
    first_that_fits,
    join,
    join_fitting,
    line,
    style_of,
    symbol_span,
    texture,
    width,
    wrap_parts,
)

HIDDEN: Final = Symbol("⇄", "hidden compute", Colour.ORANGE)
"""An epoch whose successful execution lasted less than half of its longest one."""

GOOD_CELL, LOST_CELL, FLYING_CELL = "▇", "▚", "▓"
"""Textures of a bar; distinguishable without colours."""

MAX_PLACES_WIDTH: Final = 300
"""Width of the sites of a cause if the output has no width, as there may be hundreds of them."""

MIN_BAR: Final = 10
MAX_BAR: Final = 60
"""Width of a bar on a narrow and on a wide screen."""

NAME_LIMIT: Final = 40
LONG_NAME_LIMIT: Final = 60
GAP: Final = line("   ")


class View(Struct, frozen=True):
    """A view of the usage: its rows, the executions of each, and how they are shown.

    ``rows``: those of the usage, each called ``noun``. ``selects``: the executions of a row;
    ``names``: texts of a row that the filter searches (None: unknown). ``columns``: those for some
    rows, whose bars share one scale. ``details``: lines about one row, for a room in cells and a
    number of lines.
    """

    title: str
    noun: str
    rows: Callable[[Usage], Sequence[Any]]
    selects: Callable[[Any], UsageFilter]
    names: Callable[[Any], Iterable[str | None]]
    columns: Callable[[Sequence[Any], Usage], list[Column[Any]]]
    details: Callable[[Any, Usage, int, int], list[Line]]

    def key_of(self, row: Any) -> str:
        """The key of a row; stable between snapshots."""
        return repr(self.selects(row))

    def filter_text(self, row: Any) -> str:
        """The text of a row that the filter searches."""
        return searched(*("unknown" if name is None else name for name in self.names(row)))

    def columns_of(self, rows: Sequence[Any], usage: Usage) -> list[Column[Any]]:
        """The columns of some rows, in the words of the ensemble."""
        item = usage.item.upper()
        columns = self.columns(rows, usage)
        return [replace(each, title=each.title.replace("EPOCH", item)) for each in columns]

    def details_of(self, row: Any, usage: Usage, room: int, lines: int) -> list[Line]:
        """The details of a row, cropped to ``lines`` lines of ``room`` cells."""
        return [crop(each, room) for each in self.details(row, usage, room, lines)[:lines]]


def fold_idle(rows: Sequence[Any], noun: str) -> tuple[Sequence[Any], str]:
    """The rows of places where something ran, and a line that names the others, if several.

    Nothing ran where jobs were held before they started, or where only input was transferred.
    """
    idle = [row for row in rows if isinstance(row, GroupUsage) and not row.totals.executions]
    if len(idle) < 2:
        return rows, ""
    names = []
    for row in idle:
        counts = [f"{formatting.number(row.holds)} held"] * bool(row.holds)
        stalls = formatting.count(row.input.stalls, "stalled transfer")
        counts += [stalls] * bool(row.input.stalls)
        name = site_name(row.name)
        names.append(f"{name} ({', '.join(counts)})" if counts else name)
    places = formatting.count(len(idle), noun)
    return [row for row in rows if row not in idle], f"nothing ran at {places}: {', '.join(names)}"


def site_name(name: str | None, limit: int = NAME_LIMIT) -> str:
    return "unknown" if name is None else clip(name, limit)


def machine(model_names: Mapping[str | None, str], gpu: str | None, gpus: int | None) -> str:
    """Return model and number of GPUs: ``A100-40 ×2``."""
    if gpu is None or gpus is None:
        return formatting.gpus(gpu, gpus)
    return f"{model_names.get(gpu) or formatting.gpu_short(gpu)} ×{gpus}"


# --- bars -------------------------------------------------------------------------------------


def stacked_bar(hours: GpuHours, largest: float, width: int) -> Line:
    """Render hours as a stacked bar.

    ``largest`` takes the full ``width``; every non-zero part has at least one cell.
    """
    kinds = (
        (hours.goodput, GOOD_CELL, GOOD),
        (hours.badput, LOST_CELL, BAD),
        (hours.running, FLYING_CELL, MOVING),
    )
    parts = [each for each in kinds if each[0] > 0]
    if not parts or largest <= 0 or width <= 0:
        return ()
    length = min(width, max(len(parts), round(width * hours.total / largest)))
    shares = apportion([max(1, round(amount * HOUR)) for amount, _, _ in parts], length)
    pieces = zip(parts, shares, strict=True)
    return line(*((cell * share, texture(style)) for (_, cell, style), share in pieces))


def single_bar(amount: float, largest: float, width: int | None, is_bad: bool) -> Line:
    """Render one amount as a bar on a shared scale."""
    if amount <= 0 or largest <= 0:
        return ()
    cell, style = (LOST_CELL, BAD) if is_bad else (GOOD_CELL, GOOD)
    return line((cell * max(1, round((width or MIN_BAR) * amount / largest)), texture(style)))


def legend(totals: UsageTotals, short: bool = False, incomplete: bool = False) -> Line:
    """The legend: ``GPU-hours 1 011 = ▇ 565 goodput + ▚ 401 badput (42 %) + …``."""
    hours = totals.hours
    parts, total = formatting.hours_added((hours.goodput, hours.badput, hours.running))
    share = f" ({formatting.share(hours.badput, hours.ended)})" if hours.badput > 0 else ""
    plus = line((" + " if not short else "  ", DIM))
    parts_shown = [
        line((GOOD_CELL, GOOD), f" {parts[0]}", (" goodput", DIM)),
        line((LOST_CELL, BAD), f" {parts[1]}", (f" badput{share}", DIM)),
        line((FLYING_CELL, MOVING), f" {parts[2]}", (" running", DIM)),
    ]
    start = line(
        (f"{hours.measure.hours} ", DIM), ("at least " if incomplete else "", NOTE), (total, BOLD)
    )
    return start + line((" = ", DIM)) + join(parts_shown, plus)


# --- columns ----------------------------------------------------------------------------------


def _epochs(row: GroupUsage | SiteGpuUsage | HostUsage, _: int | None) -> Line:
    mark = line((HIDDEN.glyph, style_of(HIDDEN)), " ") if row.hidden_epochs else ()
    return mark + count_cell(row.totals.completed_epochs)


EPOCHS: Final[Column[Any]] = Column(
    "epochs",
    lambda row: row.totals.completed_epochs,
    Kind.COUNT,
    doc="epochs completed; ⇄: of some, another execution took over twice as long",
    footnote="epochs",
    cell=_epochs,
)

EPOCH_TIME: Final[Column[Any]] = Column(
    "epoch",
    lambda row: row.epoch_seconds.median,
    Kind.DURATION,
    title="EPOCH TIME",
    doc="median of the successful executions",
)


def _relative(row: SiteGpuUsage | HostUsage, _: int | None) -> Line:
    text = slow_sites(row)
    return line((text, ALARM if row.slow else DIM)) if text else UNKNOWN_CELL


SAME_GPU: Final[Column[Any]] = Column(
    "against",
    lambda row: row.relative_time,
    Kind.NUMBER,
    title="SAME GPU",
    doc="median, in that of the same GPUs on other hosts; of a slow one: at its site",
    align="left",
    cell=_relative,
    minimum=10,
)


def _name_column(name: str, limit: int = NAME_LIMIT, **more: Any) -> Column[Any]:
    """The name of a place, dim if unknown."""
    value = attrgetter(name)
    return Column(
        name,
        lambda row: site_name(value(row), limit),
        style=lambda row: DIM if value(row) is None else PLAIN,
        minimum=8,
        **more,
    )


SITE: Final = _name_column("site", comfortable=12, maximum=28)

SUCCESS: Final[Column[GroupUsage | SiteGpuUsage]] = Column(
    "success",
    lambda row: row.totals.success_rate,
    Kind.SHARE,
    doc="executions that succeeded, of those that have ended",
)


def _hours_column(part: str, style: TextStyle = PLAIN) -> Column[Any]:
    hours = attrgetter(f"totals.hours.{part}")
    return Column(part, hours, Kind.HOURS, footnote=part, style=style)


GOODPUT: Final = _hours_column("goodput")
BADPUT: Final = _hours_column("badput", BAD)
RUNNING: Final = _hours_column("running", MOVING)

PER_EPOCH: Final[Column[Any]] = Column(
    "cost",
    lambda row: row.totals.hours_per_epoch,
    Kind.HOURS,
    title="HOURS/EPOCH",
    doc="hours spent for each completed epoch",
)

HOURS: Final[Column[Any]] = Column(
    "total",
    lambda row: row.totals.hours.total,
    Kind.HOURS,
    title="HOURS",
    doc="goodput, badput and running",
    footnote="gpu_hours",
)


def _gpu_columns(rows: Sequence[GroupUsage], usage: Usage) -> list[Column[Any]]:
    names = gpu_names(usage)
    model = _name_column("name", title="GPU MODEL", comfortable=14, maximum=28)
    return [replace(model, value=lambda row: names[row.name]), *_group_columns(rows, usage)]


def _group_columns(rows: Sequence[GroupUsage], usage: Usage) -> list[Column[Any]]:
    largest = max((row.totals.hours.total for row in rows), default=0.0)
    hours, measure = _hours_writer(rows), usage.measure
    return [
        EPOCHS,
        SUCCESS,
        replace(
            HOURS,
            title=measure.hours.upper(),
            align="left",
            cell=lambda r, width: stacked_bar(r.totals.hours, largest, width or MIN_BAR),
            minimum=MIN_BAR,
            grow=MAX_BAR,
            graphic=True,
        ),
        replace(GOODPUT, drop=5, write=hours),
        replace(BADPUT, write=hours),
        replace(RUNNING, drop=8, write=hours),
        replace(PER_EPOCH, title=f"{measure.short}/EPOCH", drop=2),
        replace(EPOCH_TIME, drop=1),
        _spread(drop=10),
        Column(
            "wait", lambda r: r.wait_seconds.median, Kind.DURATION, "median in the queue", drop=3
        ),
        Column("input", lambda r: r.input.ok.median, Kind.DURATION, drop=4),
        Column("stalls", lambda r: r.input.stalls, Kind.COUNT, drop=6),
        Column(
            "moved",
            lambda r: r.input.received or None,
            Kind.BYTES,
            title="RECEIVED",
            drop=11,
            style=DIM,
        ),
        Column("evicted", lambda r: r.evictions, Kind.COUNT, drop=7),
        Column("held", lambda r: r.holds, Kind.COUNT, drop=9),
        Column(
            "targets",
            lambda r: ", ".join(clip(target, 24) for target in r.targets),
            drop=12,
            style=DIM,
            maximum=30,
        ),
    ]


def _spread(drop: int) -> Column[Any]:
    return Column(
        "spread",
        lambda r: r.epoch_seconds.lower_quartile,
        Kind.DURATION,
        title="IQR",
        doc="lower and upper quartile of the epoch times",
        align="left",
        drop=drop,
        cell=lambda r, _: line((quartiles(r.epoch_seconds), DIM)),
        maximum=24,
    )


def _machine_column(usage: Usage, **more: Any) -> Column[Any]:
    model_names = gpu_names(usage)
    return Column("gpu", lambda r: machine(model_names, r.gpu, r.gpus), **more)


def _cell_columns(rows: Sequence[SiteGpuUsage], usage: Usage) -> list[Column[Any]]:
    longest = max((row.epoch_seconds.median or 0.0 for row in rows), default=0.0)
    hours = _hours_writer(rows)
    sites = Counter((row.gpu, row.gpus) for row in rows)

    def bar(row: SiteGpuUsage, width: int | None) -> Line:
        return single_bar(row.epoch_seconds.median or 0.0, longest, width, is_bad=row.slow is True)

    def against(row: SiteGpuUsage, width: int | None) -> Line:
        if row.relative_time is None:
            alone = sites[row.gpu, row.gpus] == 1
            return line(("no other site" if alone else "too few", DIM))
        return _relative(row, width)

    return [
        _machine_column(usage, minimum=8, comfortable=18, maximum=30),
        SITE,
        EPOCHS,
        EPOCH_TIME,
        replace(
            EPOCH_TIME,
            name="bar",
            title="MEDIAN",
            align="left",
            cell=bar,
            graphic=True,
            minimum=6,
            comfortable=6,
            grow=MAX_BAR,
        ),
        replace(
            SAME_GPU,
            doc="median, in those of the fastest site with the same GPUs",
            cell=against,
            minimum=13,
        ),
        _spread(drop=3),
        replace(SUCCESS, drop=2),
        replace(GOODPUT, drop=4, write=hours),
        replace(BADPUT, drop=1, write=hours),
    ]


def slow_sites(row: SiteGpuUsage | HostUsage) -> str:
    """Return ``fastest``, ``1.08×`` or ``2.30× slow``; "" without a comparison.

    A slow host is one at its site, with the time relative to that of equal ones there.
    """
    if row.relative_time is None:
        return ""
    if isinstance(row, HostUsage) and row.slow:
        return f"{row.relative_at_site:.2f}× slow"
    if isinstance(row, SiteGpuUsage) and row.site == row.fastest_site:
        return "fastest"
    times = f"{row.relative_time:.2f}×"
    return f"{times} slow" if row.slow else times


def _host_columns(rows: Sequence[HostUsage], usage: Usage) -> list[Column[Any]]:
    # A column of dashes would take room from names.
    used: list[Column[Any]] = [
        Column(
            name,
            attrgetter(f"{name}_used.median"),
            Kind.NUMBER,
            "in use on average, median of the epochs measured",
            drop=drop,
            write=write.format,
        )
        for name, drop, write in (("gpus", 5, "{:.2f}"), ("cpus", 6, "{:.1f}"))
        if any(getattr(row, f"{name}_used").n for row in rows)
    ]
    # Dropped last is what a host cost and whom to ask about it; the details show why it is slow.
    return [
        _name_column("host", LONG_NAME_LIMIT, comfortable=16, maximum=48),
        replace(SITE, drop=4, comfortable=8),
        _machine_column(usage, minimum=8, comfortable=12, maximum=30),
        EPOCHS,
        replace(EPOCH_TIME, doc="median of the completed epochs without ⇄"),
        replace(SAME_GPU, drop=0 if any(row.relative_time for row in rows) else 8),
        _spread(drop=7),
        *used,
        Column(
            "lost",
            lambda r: r.totals.bad_executions,
            Kind.COUNT,
            doc="executions that ended as badput",
            drop=2,
        ),
        replace(BADPUT, drop=3),
    ]


def cause_columns(rows: Sequence[Cause], usage: Usage, *, places: bool = True) -> list[Column[Any]]:
    """The columns of causes; ``places``: with the sites and GPU models where they cost hours."""
    where = [
        _places_column("at", usage.sites, {}, drop=4),
        _places_column("on", usage.gpus, gpu_names(usage), drop=5),
    ]
    largest = max((row.badput for row in rows), default=0.0)

    def what(row: Cause, max_width: int | None) -> Line:
        others = len(row.reasons) - 1
        more = f" (+{others})" if others else ""
        text = clip(row.common, 400)
        if max_width is not None:
            text = crop_middle(text, max(0, max_width - len(more)))
        return line(text, (more, DIM))

    def ended(row: Cause, _: int | None) -> Line:
        signs = join((symbol_span(OUTCOMES[outcome]) for outcome in row.outcomes[:2]), line(" "))
        return signs + line((" …", DIM) if len(row.outcomes) > 2 else "")

    return [
        Column(
            "lost",
            lambda row: row.badput,
            Kind.HOURS,
            title="BADPUT",
            style=BAD,
            write=formatting.exact_hours,
        ),
        Column("times", lambda row: row.occurrences, Kind.COUNT),
        Column(
            "bar",
            lambda row: row.badput,
            Kind.HOURS,
            title="",
            align="left",
            drop=1,
            cell=lambda row, width: single_bar(row.badput, largest, width, is_bad=True),
            graphic=True,
            minimum=MIN_BAR,
            grow=24,
        ),
        Column("code", code_of, drop=2),
        *(where if places else []),
        Column(
            "ended",
            lambda row: OUTCOMES[row.outcomes[0]] if row.outcomes else "",
            Kind.STATE,
            title="ENDED AS",
            drop=3,
            cell=ended,
            maximum=28,
        ),
        Column(
            "what",
            lambda row: clip(row.common, 400),
            title="CAUSE",
            cell=what,
            minimum=20,
            comfortable=40,
            maximum=400,
        ),
    ]


def _places_column(
    name: str, groups: Sequence[GroupUsage], names: Mapping[str | None, str], drop: int
) -> Column[Cause]:
    """Where a cause lost hours; for several places, how many at each."""

    def places(row: Cause) -> str:
        found = _where_lost(row, groups, names)
        if len(found) == 1:
            return found[0][0]
        return ", ".join(f"{place} {formatting.exact_hours(part.badput)}" for place, part in found)

    def cell(row: Cause, width: int | None) -> Line:
        return crop(line(places(row)), width or MAX_PLACES_WIDTH)

    return Column(name, places, drop=drop, cell=cell, maximum=60)


def _where_lost(
    cause: Cause, groups: Iterable[GroupUsage], names: Mapping[str | None, str]
) -> list[tuple[str, Cause]]:
    """The places at which a cause cost hours, and the part of it there."""
    return [
        (names.get(group.name) or site_name(group.name, 28), part)
        for group in groups
        for part in group.causes
        if part.key == cause.key
    ]


def epoch_of(row: Epoch | Execution) -> int | None:
    """The number of the epoch, from 1; None for a node that is not an epoch."""
    return None if row.epoch is None else formatting.epoch_number(row.epoch)


def hidden_columns() -> list[Column[Epoch]]:
    """Return the columns of completed epochs with hidden compute."""

    def name(text: str | None) -> str:
        return plain(text or "unknown", LONG_NAME_LIMIT)

    return [
        Column("run", lambda row: name(row.run)),
        Column("epoch", epoch_of, Kind.COUNT),
        Column("seconds", lambda row: row.success_seconds, Kind.DURATION, title="SUCCEEDED IN"),
        Column("site", lambda row: name(row.site), title="AT"),
        Column("longest", lambda row: row.longest_seconds, Kind.DURATION, title="LONGEST TRY"),
        Column("longest_site", lambda row: name(row.longest_site), title="AT"),
        Column("dag", lambda row: name(row.dag), drop=1),
    ]


def code_of(row: Cause) -> str:
    """The code and its name: ``1023/0 JobRemoved``; "" if there is none."""
    return "" if row.code is None else code_text(row.code, row.subcode or 0, row.example)


def _hours_writer(rows: Iterable[GroupUsage | SiteGpuUsage]) -> Callable[[float], str]:
    """Formats hours with the same decimals in all these rows."""
    total = sum(row.totals.hours.total for row in rows)
    return partial(formatting.exact_hours, decimals=formatting.hour_decimals(total))


def quartiles(distribution: Distribution) -> str:
    """Return the interquartile range: ``5:47:36 to 5:51:00``."""
    low, high = distribution.lower_quartile, distribution.upper_quartile
    if low is None or high is None or distribution.n < 2:
        return ""
    return seconds_range(low, high)


def seconds_range(low: float, high: float) -> str:
    """Return a range: ``4s–5s``, or one value if both ends look the same."""
    ends = formatting.duration(low), formatting.duration(high)
    return "–".join(dict.fromkeys(ends))


def _place_details(row: GroupUsage, usage: Usage, room: int, lines: int) -> list[Line]:
    rows = [
        *_first_lines(row, _identity_parts(row, gpu_names(usage)), usage, room),
        _fit_parts(_label("queue wait"), _wait_parts(row, usage), room, "nothing has started"),
        _fit_parts(_label("input"), _input_parts(row), room, "no transfer was logged"),
    ]
    unit, left = usage.measure.short, max(1, lines - len(rows))
    return [*rows, *_cause_lines(row.causes, unit, room, left)]


def _first_lines(
    row: GroupUsage | SiteGpuUsage | HostUsage, parts: Sequence[Line], usage: Usage, room: int
) -> list[Line]:
    """What a place is, as ``parts``, and its epoch times."""
    times = _distribution_parts(row.epoch_seconds, row.hidden_epochs)
    none = f"no completed {usage.item}"
    return [
        _fit_parts(line(" "), parts, room),
        _fit_parts(_label(f"{usage.item} time"), times, room, none),
    ]


def _fit_parts(start: Line, parts: Sequence[Line], room: int, empty: str = "") -> Line:
    """Join as many parts as fit, dropping the last ones first; ``empty`` if there are none."""
    fitting = [part for part in parts if part] or [line((empty, DIM))]
    while len(fitting) > 1 and width(start + join(fitting, GAP)) > room:
        fitting.pop()
    return start + join(fitting, GAP)


def gpu_names(usage: Usage) -> dict[str | None, str]:
    """Return the name under which each GPU model of an ensemble is shown."""
    return formatting.gpu_models(place.name for place in usage.gpus)


def _identity_parts(row: GroupUsage, model_names: Mapping[str | None, str]) -> list[Line]:
    totals = row.totals
    n = formatting.number
    in_flight = totals.executions - totals.good_executions - totals.bad_executions
    if row.name in row.sites or row.name is None:
        name = site_name(row.name)
        places = [machine(model_names, gpu, number) for gpu, number in row.machines]
    else:
        name = model_names.get(row.name) or site_name(row.name)
        places = [f"at {site_name(site, 24)}" for site in row.sites]
    targets = ", ".join(clip(target, 24) for target in row.targets)
    return [
        line((name, BOLD)),
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
    span = seconds_range(distribution.minimum, distribution.maximum)
    mark = f"{HIDDEN.glyph} {hidden}: {HIDDEN.word}" if hidden else ""
    return [
        line(
            ("median ", DIM),
            formatting.duration(distribution.median),
            (f" of {formatting.number(distribution.n)}", DIM),
        ),
        line(("IQR ", DIM), quartiles(distribution)) if several else (),
        line((f"range {span}" if several else "", DIM)),
        line((mark, style_of(HIDDEN))),
    ]


def _wait_parts(row: GroupUsage, usage: Usage) -> list[Line]:
    # By target only: the site of a job that never ran is unknown.
    waits = [wait for wait in usage.waiting if wait.target in row.targets]
    waiting, removed = sum(wait.waiting for wait in waits), sum(wait.removed for wait in waits)
    target = clip(waits[0].target or "", 24) if len(waits) == 1 else "one of its targets"
    suffix = f" for {target}"
    longest = max((wait.longest or 0.0 for wait in waits), default=0.0)
    up_to = f", longest {formatting.duration(longest)}"
    median, *others = _distribution_parts(row.wait_seconds) or [()]
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
    failed = f"{transfers.aborted} aborted, {transfers.unfinished} unfinished"
    moved = f"{formatting.size(transfers.received)} in, {formatting.size(transfers.sent)} out"
    return [
        median,
        line((f"{transfers.stalls} stalled", BAD), (stalled, DIM)) if transfers.stalls else (),
        line((failed if transfers.aborted + transfers.unfinished else "", DIM)),
        line((f"{transfers.in_flight} under way", MOVING)) if transfers.in_flight else (),
        line((moved if transfers.received or transfers.sent else "", DIM)),
        *others,
    ]


def _cause_lines(causes: Sequence[Cause], unit: str, room: int, lines: int) -> list[Line]:
    """List the causes of loss, one per line if they fit, else packed."""
    if not causes:
        return [_label("badput") + line(("none", GOOD))]
    indent = width(_label(""))
    if lines >= min(len(causes), ROOMY_CAUSES):
        shown = causes[:lines]
        hours_room = max(len(formatting.exact_hours(cause.badput)) for cause in shown)
        times_room = max(len(formatting.number(cause.occurrences)) for cause in shown)
        rows = []
        for cause in shown:
            cost = _cause_cost(cause, unit, hours_room, times_room)
            left = room - indent - width(cost) - 4
            rows.append(cost + line("   ", crop_middle(clip(_cause_text(cause), 400), left)))
    else:
        short = [
            _cause_cost(cause, unit) + line(" ", clip(code_of(cause) or clip(cause.key, 80), 28))
            for cause in causes
        ]
        rows = wrap_parts(short, GAP, room - indent)[:lines]
    starts = [_label("badput"), *[line(" " * indent)] * len(rows)]
    return [start + cause for start, cause in zip(starts, rows, strict=False)]


def _cause_cost(cause: Cause, unit: str, hours_room: int = 0, times_room: int = 0) -> Line:
    cost = formatting.exact_hours(cause.badput).rjust(hours_room)
    times = formatting.number(cause.occurrences).rjust(times_room)
    return line((cost, BAD if cause.badput > 0 else DIM), (f" {unit}  {times}×", DIM))


ROOMY_CAUSES: Final = 4
"""Minimum lines for one line per cause."""


def _cause_text(cause: Cause) -> str:
    """``1023/0 JobRemoved: via condor_rm``."""
    code = code_of(cause)
    return f"{code}: {cause.common}" if code else cause.common


def _cell_details(row: SiteGpuUsage, usage: Usage, room: int, _: int) -> list[Line]:
    gpu = machine(gpu_names(usage), row.gpu, row.gpus)
    site, totals = site_name(row.site), row.totals
    executions = line(formatting.count(totals.executions, "execution"))
    parts = [line((f"{gpu} at {site}", BOLD)), executions, legend(totals)]
    lines = _first_lines(row, parts, usage, room)
    if row.slow:
        fastest = site_name(row.fastest_site)
        times = f"{row.relative_time:.2f} times the median at {fastest}"
        endings = (", and the middle halves do not overlap", ", middle halves apart", "")
        candidates = (_label("slow") + line((times + ending, NOTE)) for ending in endings)
        lines.append(first_that_fits(candidates, room))
    elif row.relative_time is None:
        text = "sites with the same GPU, as many of them, and 3 epochs or more each"
        lines.append(_label("compared") + line((text, DIM)))
    others = []
    for cell in usage.site_gpus:
        if (cell.gpu, cell.gpus) == (row.gpu, row.gpus) and cell.site != row.site:
            median = formatting.duration(cell.epoch_seconds.median)
            number = (f" of {cell.epoch_seconds.n}", DIM)
            others.append(line(f"{site_name(cell.site, 24)} {median}", number))
    if others:
        lines.append(_label("elsewhere") + crop(join(others, GAP), room - 13))
    return lines


def _host_details(row: HostUsage, usage: Usage, room: int, _: int) -> list[Line]:
    gpu = machine(gpu_names(usage), row.gpu, row.gpus)
    name = f"{site_name(row.host, LONG_NAME_LIMIT)} at {site_name(row.site)}"
    executions = line(formatting.count(row.totals.executions, "execution"))
    parts = [line((name, BOLD)), line((gpu, DIM)), executions, legend(row.totals)]
    peers = f"{formatting.count(row.peer_epochs, usage.item)} of {gpu} elsewhere"
    compared = [line((f"{peers}, {SLOW_MIN_EPOCHS} needed on both sides", DIM))]
    if row.relative_time is not None:
        times = f"{row.relative_time:.2f} times the median of {peers}"
        at_site = f"{row.relative_at_site:.2f} times the median of its site" if row.slow else ""
        compared = [
            line((at_site, NOTE)),
            line(times),
            line((formatting.duration(row.peer_median), DIM)),
            line(("too few at its site, or at the same time" if row.slow is None else "", DIM)),
        ]
    figures = (
        (row.gpus_used, f"{row.gpus_used.median or 0:.2f} of {row.gpus} GPUs"),
        (row.cpus_used, f"{row.cpus_used.median or 0:.1f} CPUs"),
    )
    used = [
        line(text, (f" (median of {formatting.number(of.n)} measured)", DIM))
        for of, text in figures
        if of.n
    ]
    return [
        *_first_lines(row, parts, usage, room),
        _fit_parts(_label("slow" if row.slow else "compared"), compared, room),
        _fit_parts(_label("used"), used, room, "not measured"),
    ]


def _cause_details(row: Cause, usage: Usage, total_room: int, lines: int) -> list[Line]:
    times = formatting.count(row.occurrences, "time")
    ended = formatting.count(row.executions, "execution")
    held = formatting.count(row.holds, "hold")
    both = f", {row.ended_by_hold} of them one thing" if row.ended_by_hold else ""
    share = formatting.share(row.badput, usage.total.totals.hours.badput)
    cost = line(("no badput", DIM))
    if row.badput > 0:
        lost = formatting.exact_hours(row.badput)
        cost = line((lost, BAD), f" {usage.measure.hours} of badput, {share} of all")
    name = line((code_of(row) or clip(clip(row.key, 80), 32), BOLD))
    number = line(times, (f": {ended}, {held}{both}" if row.holds else "", DIM))
    rows = [line(" ") + join((name, cost, number), GAP)]
    for label, places in (("at", usage.sites), ("on", usage.gpus)):
        model_names = gpu_names(usage) if label == "on" else {}
        found = _where_lost(row, places, model_names)
        parts = [line(f"{name} ") + _cause_cost(part, usage.measure.short) for name, part in found]
        rows.append(_label(label) + join(parts, GAP))
    for reason in row.reasons[: max(1, lines - len(rows))]:
        sign = OUTCOMES[reason.outcome]
        start = line((sign.text(), style_of(sign)), "  ")
        if len(row.reasons) > 1:
            start += hours_cell(reason.badput, BAD) + line(f" {usage.measure.short}  ")
        room = total_room - width(start) - 2
        rows.append(line(" ") + start + line(crop_middle(clip(reason.common, 400), room)))
    return rows


# --- profiles of pools -------------------------------------------------------------------------

ESTIMATED: Final = "~"
"""Marks a figure that is partly estimated from other pools."""


def profile_columns(profiles: Sequence[PoolProfile]) -> list[Column[Any]]:
    """The columns of profiles; GPU models with equal short names get longer ones."""
    gpu_names = formatting.gpu_models(row.pool.gpu or None for row in profiles)

    def loss(row: PoolProfile, _: int | None) -> Line:
        text = _mark(row.loss) + formatting.share(row.loss.value, 1)
        return line((text, DIM if row.loss.borrowed else PLAIN))

    return [
        Column(
            "site",
            pool_site,
            title="POOL",
            style=lambda row: BAD if row.excluded else PLAIN if row.pool.site else DIM,
            minimum=8,
            comfortable=14,
            maximum=40,
        ),
        Column(
            "gpu",
            lambda row: pool_gpu(row, gpu_names),
            style=lambda row: PLAIN if row.pool.gpu else DIM,
            # If cut, different models and numbers of GPUs would look the same.
            minimum=max((len(pool_gpu(row, gpu_names)) for row in profiles), default=1),
        ),
        Column("epochs", lambda row: row.epochs, Kind.COUNT, footnote="profile"),
        _figure_column("mean_epoch", "MEAN EPOCH", lambda row: row.hours_per_epoch, excludes=True),
        Column(
            "interval",
            lambda row: "" if row.excluded else _interval(row.hours_per_epoch),
            title="80 % INTERVAL",
            align="right",
            drop=0.5,
            style=DIM,
        ),
        _figure_column("wait", "MEAN WAIT", lambda row: row.wait_hours),
        _figure_column("input", "MEAN INPUT", lambda row: row.transfer_hours, drop=2),
        Column("loss", lambda row: row.loss.value, Kind.SHARE, footnote="profile_loss", cell=loss),
        Column("slots", lambda row: row.slots, Kind.COUNT, drop=3),
        Column("borrowed", _sources, title="BORROWED FROM", drop=1, style=DIM, maximum=60),
    ]


def _figure_column(
    name: str,
    title: str,
    figure_of: Callable[[PoolProfile], ProfileFigure | None],
    drop: int = 0,
    excludes: bool = False,
) -> Column[PoolProfile]:
    """A figure with its mark; ``excludes``: "excluded" replaces it for excluded pools."""

    def seconds(row: PoolProfile) -> float | None:
        figure = figure_of(row)
        return None if figure is None else figure.value * HOUR

    def cell(row: PoolProfile, _: int | None) -> Line:
        figure = figure_of(row)
        if excludes and row.excluded:
            return line(("excluded", ALARM))
        if figure is None:
            return UNKNOWN_CELL
        text = _mark(figure) + formatting.duration(figure.value * HOUR)
        return line((text, DIM if figure.borrowed else PLAIN))

    return Column(name, seconds, Kind.DURATION, title=title, drop=drop, cell=cell)


def pool_site(row: PoolProfile) -> str:
    """The site of a pool, and its annex."""
    annex = f" (annex {clip(row.pool.annex, NAME_LIMIT)})" if row.pool.annex else ""
    return (clip(row.pool.site, NAME_LIMIT) or "unknown") + annex


def pool_gpu(row: PoolProfile, model_names: Mapping[str | None, str]) -> str:
    """The GPU of a pool, and how many of them a job uses, if several."""
    model = model_names.get(row.pool.gpu or None) or formatting.gpu_short(row.pool.gpu or None)
    return model if row.pool.gpus_per_job == 1 else f"{model} ×{row.pool.gpus_per_job}"


def exclusion(row: PoolProfile, item: str = "epoch") -> str:
    """Why a pool is excluded, and until when."""
    tried = f"one {item} tries it now"
    if row.probe_at is not None:
        tried = f"worth one {item} from {formatting.moment(row.probe_at)} on"
    return f"{row.excluded}; {tried}"


def _mark(figure: ProfileFigure) -> str:
    return ESTIMATED if figure.borrowed else ""


def _interval(figure: ProfileFigure | None) -> str:
    if figure is None:
        return ""
    return f"{formatting.duration(figure.low * HOUR)}–{formatting.duration(figure.high * HOUR)}"


def _sources(row: PoolProfile) -> str:
    """The pools that contribute to the figures of a pool: ``A40 elsewhere, all pools``."""
    figures = (row.hours_per_epoch, row.wait_hours, row.transfer_hours, row.loss)
    known = dict.fromkeys(each.borrowed for each in figures if each is not None and each.borrowed)
    return ", ".join(clip(each, NAME_LIMIT) for each in known)


def _profile_details(row: PoolProfile, usage: Usage, room: int, _lines: int) -> list[Line]:
    item = usage.item
    counts = formatting.count(row.epochs, item)
    counts += f" of {formatting.count(row.executions, 'execution')}"
    counts += f", {formatting.number(row.running)} running" if row.running else ""
    most = f"most at a time: {formatting.number(row.slots)}" if row.slots else ""
    first = line(" ", (f"{pool_site(row)} {pool_gpu(row, gpu_names(usage))}", BOLD))
    lines = [join_fitting([first, line(counts), line((most, DIM))], GAP, room)]
    if row.excluded:
        lines.append(line(" ", ("excluded", ALARM), f": {exclusion(row, item)}"))
    hidden = 0 if row.hours_per_epoch is None else row.epochs - row.hours_per_epoch.samples
    samples = f"{item}s" + (f", without {formatting.number(hidden)} ⇄" if hidden else "")
    time, no_epoch = f"{item} time", f"no completed {item}"
    for title, figure, counted, none in (
        (time, row.hours_per_epoch, (samples, "unfinished"), no_epoch),
        ("queue wait", row.wait_hours, ("starts", "waiting"), "nothing has started"),
        ("input", row.transfer_hours, ("transfers", ""), "no transfer was logged"),
    ):
        text = line((none, DIM)) if figure is None else _figure(figure, counted, room)
        lines.append(_label(title) + text)
    ended = formatting.number(row.loss.samples)
    low, high = formatting.share(row.loss.low, 1), formatting.share(row.loss.high, 1)
    each = f", {formatting.duration(row.lost_hours * HOUR)} each" if row.lost_hours else ""
    lines.append(
        _label("loss")
        + line(
            formatting.share(row.loss.value, 1),
            (f" (80 % interval {low} to {high}) of {ended} ended{each}", DIM),
            (_borrowed(row.loss), DIM),
        )
    )
    return lines


def _figure(figure: ProfileFigure, counted: tuple[str, str], room: int) -> Line:
    """A figure with its interval and samples; ``counted``: what these and the censored ones are."""
    samples, censored = counted
    known = f"{formatting.number(figure.samples)} {samples}"
    known += f", {formatting.number(figure.censored)} {censored}" if figure.censored else ""
    candidates = (
        line(
            formatting.duration(figure.value * HOUR),
            (f" ({level}{_interval(figure)}), {known}", DIM),
            (_borrowed(figure), DIM),
        )
        for level in ("80 % interval ", "")
    )
    return first_that_fits(candidates, room - width(_label("")))


def _borrowed(figure: ProfileFigure) -> str:
    return f"; borrows from {clip(figure.borrowed, NAME_LIMIT)}" if figure.borrowed else ""


# --- the views --------------------------------------------------------------------------------


def _group_names(row: GroupUsage) -> Iterable[str | None]:
    machines = (f"{gpu} x{number}" for gpu, number in row.machines)
    causes = (cause.common for cause in row.causes)
    return (row.name, *row.targets, *machines, *row.sites, *causes)


def _select_pool(row: PoolProfile) -> UsageFilter:
    pool = row.pool
    gpus = (pool.gpus_per_job,) if pool.gpus_per_job > 1 else None
    return UsageFilter(site=(pool.site or None,), gpu=(pool.gpu or None,), gpus=gpus, pool=pool)


def _resource_details(row: ResourceGroup, _: Usage, room: int, _lines: int) -> list[Line]:
    table = table_lines(resource_columns(row), shown_resources([row]), room - 1, DIM)
    return [line(" ") + each for each in (*table, line((hours_line([row]), DIM)))]


SITES: Final = View(
    title="sites",
    noun="site",
    rows=lambda usage: usage.sites,
    selects=lambda row: UsageFilter(site=(row.name,)),
    names=_group_names,
    columns=lambda rows, usage: [
        _name_column("name", title="SITE", comfortable=14, maximum=28),
        *_group_columns(rows, usage),
    ],
    details=_place_details,
)
GPUS: Final = View(
    title="GPU models",
    noun="GPU model",
    rows=lambda usage: usage.gpus,
    selects=lambda row: UsageFilter(gpu=(row.name,)),
    names=_group_names,
    columns=_gpu_columns,
    details=_place_details,
)
CELLS: Final = View(
    title="site by GPU",
    noun="pair",
    rows=lambda usage: usage.site_gpus,
    selects=lambda row: UsageFilter(site=(row.site,), gpu=(row.gpu,), gpus=(row.gpus,)),
    names=lambda row: (row.gpu, row.site, slow_sites(row)),
    columns=_cell_columns,
    details=_cell_details,
)
HOSTS: Final = View(
    title="hosts",
    noun="host",
    rows=lambda usage: usage.hosts,
    selects=lambda row: UsageFilter((row.site,), (row.host,), (row.gpu,), (row.gpus,)),
    names=lambda row: (row.host, row.site, row.gpu, slow_sites(row)),
    columns=_host_columns,
    details=_host_details,
)
CAUSES: Final = View(
    title="causes",
    noun="cause",
    rows=lambda usage: usage.causes,
    selects=lambda row: UsageFilter(cause=row.key),
    names=lambda row: (
        *(row.key, *(reason.common for reason in row.reasons)),
        *(OUTCOMES[outcome].word for outcome in row.outcomes),
    ),
    # The cursor's details show where they cost hours.
    columns=partial(cause_columns, places=False),
    details=_cause_details,
)
PROFILES: Final = View(
    title="profiles",
    noun="pool",
    rows=lambda usage: usage.profiles,
    selects=_select_pool,
    names=lambda row: (row.pool.site or None, row.pool.model, row.pool.annex, row.excluded),
    columns=lambda rows, _: profile_columns(rows),
    details=_profile_details,
)
USE: Final = View(
    title="usage",
    noun="group",
    rows=lambda usage: usage.resources,
    selects=lambda row: UsageFilter(site=(row.key,), ended=row.ended),
    names=lambda row: (row.name, row.ended),
    columns=lambda rows, _: group_columns("site", rows),
    details=_resource_details,
)

VIEWS: Final = (SITES, GPUS, CELLS, HOSTS, CAUSES, PROFILES, USE)
"""In the order of their tabs."""


def tabs(shown: View, usage: Usage, room: int) -> Line:
    """Render the tabs of the views, the shown one in brackets; numbers as far as they fit."""

    def tab(view: View, numbered: bool) -> Line:
        number = (f" {len(view.rows(usage))}", DIM)
        if view is shown:
            return line(("[", DIM), (view.title, BOLD), number, ("]", DIM))
        return line(" ", (view.title, DIM), number if numbered else "", " ")

    candidates = (join([tab(each, all_) for each in VIEWS], line(" ")) for all_ in (True, False))
    return first_that_fits(candidates, room)


# --- the executions behind a total ----------------------------------------------------------


def execution_key(row: Execution) -> str:
    """Identifies a row: the ID of the job, and the number of its execution."""
    return f"{formatting.job_id(*row.job)}/{row.attempt}"


def execution_text(row: Execution, usage: Usage) -> str:
    """Return the text of an execution that the filter searches."""
    names = formatting.job_id(*row.job), row.run, row.node, row.uuid, row.site, row.gpu, row.target
    others = row.cause, row.host, formatting.moment(row.start), OUTCOMES[row.outcome].word
    return searched(*names, *others, HIDDEN.word if usage.hidden_epoch(row) else None)


def outcome_counts(totals: UsageTotals) -> str:
    """Count by outcome: ``153 goodput, 53 badput, 2 running``; zeros are omitted."""
    good, bad = totals.good_executions, totals.bad_executions
    counts = (good, "goodput"), (bad, "badput"), (totals.executions - good - bad, "running")
    return ", ".join(f"{formatting.number(n)} {label}" for n, label in counts if n) or "none"


def filter_title(usage_filter: UsageFilter, usage: Usage, room: int) -> str:
    """What a filter selects: ``A100 ×2 at Delta``, ``badput of 34 JobOutOfResources``."""
    parts = [] if usage_filter.ended is None else [str(usage_filter.ended)]
    if usage_filter.gpu is not None:
        number = usage_filter.gpus[0] if usage_filter.gpus is not None else None
        name = usage_filter.gpu[0]
        model = gpu_names(usage).get(name) or formatting.gpu_short(name) if name else "GPU unknown"
        parts.append(f"{model} ×{number}" if number else model)
    if usage_filter.host is not None:
        parts.append(f"on {site_name(usage_filter.host[0], LONG_NAME_LIMIT)}")
    if usage_filter.site is not None:
        parts.append(f"at {site_name(usage_filter.site[0])}")
    if usage_filter.cause is not None:
        cause = next((item for item in usage.causes if item.key == usage_filter.cause), None)
        text = usage_filter.cause if cause is None else _cause_text(cause)
        parts.append(f"badput of {clip(text, room)}")
    return formatting.clip(" ".join(parts), room)


def longest_note(epoch: Epoch) -> str:
    """The note on an epoch that a longer execution may have trained."""
    site = site_name(epoch.longest_site)
    took = formatting.duration(epoch.success_seconds)
    longest = formatting.duration(epoch.longest_seconds)
    return (
        f"{HIDDEN.glyph} hidden compute: this execution of {took} completed the epoch, but its "
        f"longest one, of {longest} at {site}, may have done the training"
    )


def execution_columns(usage: Usage, usage_filter: UsageFilter) -> list[Column[Execution]]:
    """The columns; that of the selected site, GPU or cause is dropped first."""

    def outcome(row: Execution, _: int | None) -> Line:
        sign = symbol_span(OUTCOMES[row.outcome])
        if row.uncertain:
            sign += line((" ?", NOTE))
        if usage.hidden_epoch(row) is not None:
            sign += line((f" {HIDDEN.glyph}", style_of(HIDDEN)))
        return sign

    def hours(row: Execution) -> float | None:
        seconds = usage.measure.seconds(row)
        return None if seconds is None else seconds / HOUR

    columns: list[Column[Execution]] = [
        Column(
            "run",
            lambda r: clip(r.run or "", NAME_LIMIT) or None,
            minimum=6,
            comfortable=10,
            maximum=24,
        ),
        Column("epoch", epoch_of, Kind.COUNT, cell=_epoch),
        Column("try", lambda r: r.attempt, Kind.COUNT, drop=2),
        Column("start", lambda r: r.start, Kind.TIME, drop=1, year=formatting.year_of(usage.as_of)),
        Column("seconds", lambda r: r.seconds, Kind.DURATION, title="TIME"),
        Column(
            "hours",
            hours,
            Kind.HOURS,
            title=usage.measure.short,
            style=lambda r: BAD if r.kind == "badput" else PLAIN,
        ),
        Column("outcome", lambda r: OUTCOMES[r.outcome], Kind.STATE, cell=outcome, minimum=10),
        Column(
            "site",
            lambda r: site_name(r.site),
            drop=4 if usage_filter.site is None else 6,
            comfortable=10,
            maximum=24,
        ),
        _machine_column(usage, drop=5, maximum=24),
        Column("job", lambda r: formatting.job_id(*r.job), align="right", drop=7, style=DIM),
        Column(
            "cause",
            _cause,
            drop=3 if usage_filter.cause is None else 8,
            style=DIM,
            minimum=8,
            comfortable=12,
            maximum=400,
        ),
    ]
    return [each for each in columns if each.name != "epoch" or usage.item != "job"]


def _epoch(row: Execution, _: int | None) -> Line:
    if row.epoch is None:
        return ()
    side = "" if row.training else " side"
    return line(str(formatting.epoch_number(row.epoch)), (side, DIM))


def _cause(row: Execution) -> str:
    code = f" ({code_text(row.code, row.subcode or 0, row.reason)})" if row.code else ""
    cause = row.cause and with_common_numbers(row.cause, [row.reason])
    return "" if cause is None else clip(cause + code, 400)
