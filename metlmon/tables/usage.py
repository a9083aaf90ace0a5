"""Rows, columns and cursor details of the views of the Sites screen.

Pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.model.reasons import code_text
from metlmon.snapshot.ledger import HOUR, EpochEntry, HourUnit
from metlmon.stats.causes import Cause
from metlmon.stats.pool_profiles import PoolProfile
from metlmon.stats.totals import UsageTotals
from metlmon.stats.usage import Distribution, GroupUsage, SiteGpuUsage, Usage, UsageFilter
from metlmon.tables.layout import Column, text_column
from metlmon.tables.profiles import profile_columns, profile_text
from metlmon.text import formatting
from metlmon.text.formatting import OUTCOMES, Colour, Symbol, apportion, plain
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
    join,
    line,
    style_of,
    symbol_span,
    texture,
)

HIDDEN: Final = Symbol("⇄", "hidden compute", Colour.ORANGE)
"""An epoch whose successful execution lasted less than half of its longest one."""

GOOD_CELL, LOST_CELL, FLYING_CELL = "▇", "▒", "░"
"""Textures of a bar; distinguishable without colours."""

MAX_PLACES_WIDTH: Final = 300
"""Of the sites of a cause, where the output has no width: they may be hundreds."""

LEAST_BAR: Final = 10
MOST_BAR: Final = 60
"""Width of a bar on a narrow and on a wide screen."""

NAME_LIMIT: Final = 40
LONG_NAME_LIMIT: Final = 60
GAP: Final = line("   ")

Row = GroupUsage | SiteGpuUsage | Cause | PoolProfile


class View(Struct, frozen=True):
    """A view of the usage: ``rows`` of it, each called ``noun``."""

    title: str
    noun: str
    rows: Callable[[Usage], Sequence[Row]]


VIEWS: Final = (
    View("sites", "site", lambda found: found.sites),
    View("GPU models", "GPU model", lambda found: found.gpus),
    View("site by GPU", "pair", lambda found: found.site_gpus),
    View("causes", "cause", lambda found: found.causes),
    View("profiles", "pool", lambda found: found.profiles),
)

OF_SITES, OF_GPUS, OF_CELLS, OF_CAUSES, OF_PROFILES = range(len(VIEWS))


# --- attributes common to all rows ------------------------------------------------------------


def key_of(row: Row) -> str:
    """Return the key of a row; stable between snapshots."""
    if isinstance(row, SiteGpuUsage):
        return "\n".join(str(part) for part in (row.gpu, row.gpus, row.site))
    if isinstance(row, PoolProfile):
        return "\n".join((row.pool.site, row.pool.gpu, row.pool.annex))
    return row.key if isinstance(row, Cause) else f"{row.name}"


def filter_of(row: Row, view: int) -> UsageFilter:
    """Return the filter for the executions of a row."""
    if isinstance(row, SiteGpuUsage):
        return UsageFilter(site=(row.site,), gpu=(row.gpu,), gpus=(row.gpus,))
    if isinstance(row, Cause):
        return UsageFilter(cause=row.key)
    if isinstance(row, PoolProfile):
        return UsageFilter(site=(row.pool.site or None,), gpu=(row.pool.gpu or None,))
    return UsageFilter(gpu=(row.name,)) if view == OF_GPUS else UsageFilter(site=(row.name,))


def lost_of(row: Row) -> float:
    """Return the GPU-seconds lost; of a pool, the chance of a loss."""
    if isinstance(row, PoolProfile):
        return row.loss.value
    return row.bad if isinstance(row, Cause) else row.totals.bad


def times_of(row: Row) -> int:
    """Return the epochs completed, or the occurrences of a cause."""
    if isinstance(row, PoolProfile):
        return row.epochs
    return row.occurrences if isinstance(row, Cause) else row.totals.completed


def median_of(row: Row) -> float:
    """Return the median or mean epoch duration; -1 if there is none, for sorting."""
    if isinstance(row, PoolProfile):
        return row.hours.value * HOUR if row.hours is not None else -1.0
    median = None if isinstance(row, Cause) else row.epoch.median
    return -1.0 if median is None else median


def name_of(row: Row) -> str:
    if isinstance(row, Cause):
        return row.text.lower()
    if isinstance(row, PoolProfile):
        return profile_text(row)
    parts = (row.site, row.gpu) if isinstance(row, SiteGpuUsage) else (row.name,)
    return " ".join(part or "" for part in parts).lower()


def filter_text(row: Row) -> str:
    """Return the text of a row that the filter searches, in lower case."""
    if isinstance(row, Cause):
        outcomes = [OUTCOMES[item].word for item in row.outcomes]
        return "\n".join([row.key, *(item.text for item in row.reasons), *outcomes]).lower()
    if isinstance(row, SiteGpuUsage):
        return "\n".join([row.gpu or "unknown", row.site or "unknown", slow_sites(row)]).lower()
    if isinstance(row, PoolProfile):
        return profile_text(row)
    machines = [f"{gpu} x{number}" for gpu, number in row.machines]
    causes = [cause.text for cause in row.causes]
    sites = [site or "unknown" for site in row.sites]
    return "\n".join([row.name or "unknown", *row.targets, *machines, *sites, *causes]).lower()


def site_name(name: str | None, limit: int) -> str:
    return "unknown" if name is None else plain(name, limit)


def models(names: Iterable[str | None]) -> dict[str | None, str]:
    """Return the display names of GPU models: short, unless ambiguous."""
    known_names = [name for name in dict.fromkeys(names) if name is not None]
    short = [formatting.gpu_short(name) for name in known_names]
    by_name: dict[str | None, str] = {None: "unknown"}
    for name, brief in zip(known_names, short, strict=True):
        long_name = plain(name, NAME_LIMIT).removeprefix("NVIDIA ").removeprefix("Tesla ")
        by_name[name] = long_name if short.count(brief) > 1 else brief
    return by_name


def machine(model_names: Mapping[str | None, str], gpu: str | None, gpus: int | None) -> str:
    """Return model and number of GPUs: ``A100-40 ×2``."""
    if gpu is None or gpus is None:
        return formatting.gpus(gpu, gpus)
    return f"{model_names.get(gpu) or formatting.gpu_short(gpu)} ×{gpus}"


# --- bars -------------------------------------------------------------------------------------


def stacked_bar(totals: UsageTotals, largest: float, width: int) -> Line:
    """Render GPU-hours as a stacked bar.

    ``largest`` takes the full ``width``; every non-zero part has at least one cell.
    """
    parts = [
        (amount, cell, style)
        for amount, cell, style in (
            (totals.good, GOOD_CELL, GOOD),
            (totals.bad, LOST_CELL, BAD),
            (totals.in_flight, FLYING_CELL, MOVING),
        )
        if amount > 0
    ]
    if not parts or largest <= 0 or width <= 0:
        return ()
    length = min(width, max(len(parts), round(width * totals.total / largest)))
    shares = apportion([max(1, round(amount)) for amount, _, _ in parts], length)
    return line(
        *(
            (cell * share, texture(style))
            for (_, cell, style), share in zip(parts, shares, strict=True)
        )
    )


def single_bar(
    amount: float, largest: float, width: int, texture_and_style: tuple[str, TextStyle]
) -> Line:
    """Render one amount as a bar on a shared scale."""
    if amount <= 0 or largest <= 0:
        return ()
    cell, style = texture_and_style
    return line((cell * max(1, round(width * amount / largest)), texture(style)))


def legend(
    totals: UsageTotals,
    short: bool = False,
    incomplete: bool = False,
    measure: HourUnit = HourUnit.GPU,
) -> Line:
    """The legend: ``GPU-hours 1 011 = ▇ 565 goodput + ▒ 401 badput (42 %) + …``."""
    hours = totals.gpu_hours
    parts, total = formatting.hours_added((hours.good, hours.bad, hours.in_flight))
    share = f" ({formatting.share(totals.bad, totals.good + totals.bad)})" if totals.bad > 0 else ""
    plus = line((" + " if not short else "  ", DIM))
    signs = [GOOD_CELL, LOST_CELL, FLYING_CELL]
    parts_shown = [
        line((signs[0], GOOD), f" {parts[0]}", (" goodput", DIM)),
        line((signs[1], BAD), f" {parts[1]}", (f" badput{share}", DIM)),
        line((signs[2], MOVING), f" {parts[2]}", (" running", DIM)),
    ]
    start = line(
        (f"{measure.hours} ", DIM), ("at least " if incomplete else "", NOTE), (total, BOLD)
    )
    return start + line((" = ", DIM)) + join(parts_shown, plus)


def tabs(view: int, rows: Sequence[int]) -> Line:
    """Render the tabs of the views, the active one in brackets."""
    labels = []
    for index, (view_type, number) in enumerate(zip(VIEWS, rows, strict=True)):
        count = (f" {number}", DIM)
        labels.append(
            line(("[", DIM), (view_type.title, BOLD), count, ("]", DIM))
            if index == view
            else line(" ", (view_type.title, DIM), count, " ")
        )
    return join(labels, line(" "))


# --- columns ----------------------------------------------------------------------------------


def specs(
    view: int,
    rows: Sequence[Row],
    measure: HourUnit = HourUnit.GPU,
    usage: Usage | None = None,
    item: str = "epoch",
) -> list[Column[Any]]:
    """Return the columns of a view; the bars of all ``rows`` share one scale.

    ``usage``: adds the sites and GPU models to causes; without a cursor nothing else shows them.
    ``item``: what runs consist of, in the titles.
    """
    if view == OF_CAUSES:
        return _cause_specs([row for row in rows if isinstance(row, Cause)], usage)
    if view == OF_CELLS:
        columns = _cell_specs([row for row in rows if isinstance(row, SiteGpuUsage)])
    elif view == OF_PROFILES:
        pools = [row.pool for row in rows if isinstance(row, PoolProfile)]
        columns = profile_columns(models(pool.gpu or None for pool in pools))
    else:
        places = [row for row in rows if isinstance(row, GroupUsage)]
        columns = _place_specs(places, view, measure)
    return [replace(each, title=each.title.replace("EPOCH", item.upper())) for each in columns]


def _place_specs(rows: Sequence[GroupUsage], view: int, measure: HourUnit) -> list[Column[Any]]:
    largest = max((row.totals.total for row in rows), default=0.0)
    hours = _hours_writer([row.totals.total for row in rows])
    model_names = models(row.name for row in rows) if view == OF_GPUS else {}

    def name(row: GroupUsage) -> Line:
        text = model_names[row.name] if view == OF_GPUS else site_name(row.name, NAME_LIMIT)
        return line((text, DIM if row.name is None else PLAIN))

    def success(row: GroupUsage) -> Line:
        return line((_rate(row.totals), PLAIN if row.totals.executions else DIM))

    def bar(row: GroupUsage, max_width: int | None) -> Line:
        return stacked_bar(row.totals, largest, max_width or LEAST_BAR)

    def cost(row: GroupUsage) -> str | None:
        known = row.totals.per_epoch
        return formatting.hours(known / HOUR) if known else None

    columns: list[Column[GroupUsage]] = [
        text_column(
            "name",
            "GPU MODEL" if view == OF_GPUS else "SITE",
            name,
            minimum=8,
            comfortable=14,
            maximum=28,
        ),
        text_column("epochs", "EPOCHS", lambda r: _epochs(r, r.totals.completed), "right"),
        text_column("success", "SUCCESS", success, "right"),
        Column("bar", measure.hours.upper(), bar, minimum=LEAST_BAR, grow=MOST_BAR, graphic=True),
        text_column("good", "GOODPUT", lambda r: hours(r.totals.good), "right", drop=5),
        text_column("lost", "BADPUT", lambda r: hours(r.totals.bad, BAD), "right"),
        text_column(
            "flying", "RUNNING", lambda r: hours(r.totals.in_flight, MOVING), "right", drop=8
        ),
        text_column("cost", f"{measure.short}/EPOCH", cost, "right", drop=2),
        text_column("epoch", "EPOCH TIME", lambda r: _time(r.epoch.median), "right", drop=1),
        text_column("spread", "IQR", lambda r: quartiles(r.epoch), drop=10, style=DIM, maximum=24),
        text_column("wait", "WAIT", lambda r: _time(r.wait.median), "right", drop=3),
        text_column("input", "INPUT", lambda r: _time(r.input.ok.median), "right", drop=4),
        text_column("stalls", "STALLS", lambda r: _number(r.input.stalls), "right", drop=6),
        text_column(
            "moved",
            "RECEIVED",
            lambda r: formatting.size(r.input.received or None),
            "right",
            drop=11,
            style=DIM,
        ),
        text_column("evicted", "EVICTED", lambda r: _number(r.evictions), "right", drop=7),
        text_column("held", "HELD", lambda r: _number(r.holds), "right", drop=9),
        text_column(
            "targets",
            "TARGETS",
            lambda r: ", ".join(plain(target, 24) for target in r.targets),
            drop=12,
            style=DIM,
            maximum=30,
        ),
    ]
    return columns


def _epochs(row: GroupUsage | SiteGpuUsage, epochs: int) -> Line:
    mark = line((HIDDEN.glyph, style_of(HIDDEN)), " ") if row.hidden else ()
    return mark + _number(epochs)


def _cell_specs(rows: Sequence[SiteGpuUsage]) -> list[Column[Any]]:
    longest = max((row.epoch.median or 0.0 for row in rows), default=0.0)
    hours = _hours_writer([row.totals.total for row in rows])
    model_names = models(row.gpu for row in rows)
    sites = Counter((row.gpu, row.gpus) for row in rows)

    def site(row: SiteGpuUsage) -> Line:
        return line((site_name(row.site, NAME_LIMIT), DIM if row.site is None else PLAIN))

    def bar(row: SiteGpuUsage, max_width: int | None) -> Line:
        cell, style = (LOST_CELL, BAD) if row.slow else (GOOD_CELL, GOOD)
        return single_bar(row.epoch.median or 0.0, longest, max_width or LEAST_BAR, (cell, style))

    def against(row: SiteGpuUsage) -> Line:
        if row.relative_time is None:
            alone = sites[row.gpu, row.gpus] == 1
            return line(("no other site" if alone else "too few", DIM))
        return line((slow_sites(row), ALARM if row.slow else DIM))

    columns: list[Column[SiteGpuUsage]] = [
        text_column(
            "gpu",
            "GPU",
            lambda r: machine(model_names, r.gpu, r.gpus),
            minimum=8,
            comfortable=18,
            maximum=30,
        ),
        text_column("site", "SITE", site, minimum=8, comfortable=12, maximum=28),
        text_column("epochs", "EPOCHS", lambda r: _epochs(r, r.epoch.n), "right"),
        text_column("epoch", "EPOCH TIME", lambda r: _time(r.epoch.median), "right"),
        Column("bar", "MEDIAN", bar, minimum=6, comfortable=6, grow=MOST_BAR, graphic=True),
        text_column("against", "SAME GPU", against, minimum=13),
        text_column("spread", "IQR", lambda r: quartiles(r.epoch), drop=3, style=DIM, maximum=24),
        text_column("success", "SUCCESS", lambda r: _rate(r.totals), "right", drop=2),
        text_column("good", "GOODPUT", lambda r: hours(r.totals.good, zero=PLAIN), "right", drop=4),
        text_column("lost", "BADPUT", lambda r: hours(r.totals.bad, BAD), "right", drop=1),
    ]
    return columns


def slow_sites(row: SiteGpuUsage) -> str:
    """Return ``fastest``, ``1.08×`` or ``2.30× slow``; "" without a comparison."""
    if row.relative_time is None:
        return ""
    if row.site == row.fastest_site:
        return "fastest"
    times = f"{row.relative_time:.2f}×"
    return f"{times} slow" if row.slow else times


def _cause_specs(rows: Sequence[Cause], usage: Usage | None) -> list[Column[Any]]:
    largest = max((row.bad for row in rows), default=0.0)

    def what(row: Cause, max_width: int | None) -> Line:
        others = len(row.reasons) - 1
        more = f" (+{others})" if others else ""
        text = plain(row.text, 400)
        if max_width is not None:
            text = crop_middle(text, max(0, max_width - len(more)))
        return line(text, (more, DIM))

    def ended(row: Cause) -> Line:
        signs = join((symbol_span(OUTCOMES[outcome]) for outcome in row.outcomes[:2]), line(" "))
        return signs + line((" …", DIM) if len(row.outcomes) > 2 else "")

    def bar(row: Cause, max_width: int | None) -> Line:
        return single_bar(row.bad, largest, max_width or LEAST_BAR, (LOST_CELL, BAD))

    def places(groups: Sequence[GroupUsage]) -> Callable[[Cause, int | None], Line]:
        return lambda row, max_width: crop(
            line(
                ", ".join(
                    f"{site_name(group.name, 28)} {hours_text(cause.bad)}"
                    for group in groups
                    for cause in group.causes
                    if cause.key == row.key
                )
            ),
            max_width or MAX_PLACES_WIDTH,
        )

    def lost(row: Cause) -> Line:
        return line((hours_text(row.bad), BAD if row.bad else DIM))

    columns: list[Column[Cause]] = [
        text_column("lost", "BADPUT", lost, "right"),
        text_column("times", "TIMES", lambda row: _number(row.occurrences), "right"),
        Column("bar", "", bar, minimum=LEAST_BAR, drop=1, grow=24, graphic=True),
        text_column("code", "CODE", code_of, drop=2),
        text_column("ended", "ENDED AS", ended, drop=3, maximum=28),
        Column("what", "CAUSE", what, minimum=20, comfortable=40, maximum=400),
    ]
    if usage is not None:
        columns[4:4] = [
            Column("at", "AT", places(usage.sites), drop=4, maximum=60),
            Column("on", "ON", places(usage.gpus), drop=5, maximum=60),
        ]
    return columns


def hidden_columns() -> list[Column[EpochEntry]]:
    """Return the columns of completed epochs with hidden compute."""

    def name(text: str | None) -> str:
        return plain(text or "unknown", LONG_NAME_LIMIT)

    return [
        text_column("run", "RUN", lambda row: name(row.run_name)),
        text_column(
            "epoch",
            "EPOCH",
            lambda row: formatting.epoch_text(row.epoch) or formatting.UNKNOWN,
            "right",
        ),
        text_column(
            "seconds", "SUCCEEDED IN", lambda row: formatting.duration(row.seconds), "right"
        ),
        text_column("site", "AT", lambda row: name(row.site)),
        text_column(
            "longest", "LONGEST TRY", lambda row: formatting.duration(row.longest_seconds), "right"
        ),
        text_column("longest_site", "AT", lambda row: name(row.longest_site)),
        text_column("dag", "DAG", lambda row: name(row.dag), drop=1),
    ]


def code_of(row: Cause) -> str:
    """The code and its name: ``1023/0 JobRemoved``; "" if there is none."""
    return "" if row.code is None else code_text(row.code, row.subcode or 0)


def _hours_writer(seconds: Sequence[float]) -> Callable[..., Line]:
    """A function that renders GPU-seconds as hours, with decimals common to all.

    Its further arguments are the style of the hours, and that of 0.
    """
    total = sum(seconds) / HOUR

    def render(value: float, style: TextStyle = PLAIN, zero: TextStyle = DIM) -> Line:
        # The remainder makes hours_added use the decimals of the whole.
        part = value / HOUR
        text = formatting.hours_added((part, max(0.0, total - part)))[0][0]
        return line((text, style if value else zero))

    return render


def hours_text(seconds: float) -> str:
    """Return hours with two decimals."""
    text = f"{seconds / HOUR:,.2f}" if seconds else "0"
    # A non-zero amount is never shown as zero.
    text = "<0.01" if seconds > 0 and text == "0.00" else text
    return text.replace(",", formatting.THIN)


def _rate(totals: UsageTotals) -> str:
    ended = totals.good_executions + totals.bad_executions
    return formatting.share(totals.good_executions, ended)


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else formatting.duration(seconds)


def _number(value: int) -> Line:
    return line((formatting.number(value), TextStyle() if value else DIM))


def quartiles(distribution: Distribution) -> str:
    """Return the interquartile range: ``5:47:36 to 5:51:00``."""
    if (
        distribution.lower_quartile is None
        or distribution.upper_quartile is None
        or distribution.n < 2
    ):
        return ""
    return seconds_range(distribution.lower_quartile, distribution.upper_quartile)


def seconds_range(low: float, high: float) -> str:
    """Return a range: ``4s–5s``, or one value if both ends look the same."""
    ends = formatting.duration(low), formatting.duration(high)
    return "–".join(dict.fromkeys(ends))
