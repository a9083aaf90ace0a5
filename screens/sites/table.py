"""Sites, GPU models, both together, and causes, as rows; and what is told of the one under the
cursor. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from metlmon.frozen import frozen
from metlmon.model.hour_unit import HourUnit
from metlmon.snapshot.ledger import HOUR
from metlmon.stats.totals import UsageTotals
from metlmon.stats.usage import Cause, Distribution, SiteGpuUsage, SiteUsage, Usage, UsageFilter
from metlmon.text import formatting
from metlmon.text.formatting import OUTCOMES, Colour, Symbol, plain
from screens.base.column_layout import ColumnSpec
from screens.overview.header import apportioned
from screens.widgets.spans import (
    BAD,
    BOLD,
    DIM,
    GOOD,
    MOVING,
    NOTE,
    Line,
    TextStyle,
    both_ends,
    crop,
    first_that_fits,
    joined,
    line,
    packed,
    style_of,
    texture,
    width,
)

HIDDEN: Final = Symbol("⇄", "*", "another was over twice as long", Colour.ORANGE)
"""An epoch whose successful execution lasted less than half of its longest one."""

GOOD_CELL, LOST_CELL, FLYING_CELL = ("▇", "#"), ("▒", "x"), ("░", ".")
"""Textures of a bar, and what they are in ASCII: told apart without their colours."""

LEAST_BAR: Final = 10
MOST_BAR: Final = 60
"""Cells of a bar, on a narrow screen and on the widest."""

NAME_LIMIT: Final = 40
GAP: Final = line("   ")

Row = SiteUsage | SiteGpuUsage | Cause


@frozen
class View:
    """One way to look at the same hours: ``rows`` of them, called ``noun``."""

    title: str
    noun: str
    rows: Callable[[Usage], Sequence[Row]]


VIEWS: Final = (
    View("sites", "site", lambda found: found.sites),
    View("GPU models", "GPU model", lambda found: found.gpus),
    View("site by GPU", "pair", lambda found: found.cells),
    View("causes", "cause", lambda found: found.causes),
)

OF_SITES, OF_GPUS, OF_CELLS, OF_CAUSES = range(len(VIEWS))


# --- what all rows have -----------------------------------------------------------------------


def key_of(row: Row) -> str:
    """A row's key: stable from one picture to the next."""
    if isinstance(row, SiteGpuUsage):
        return "\n".join(str(part) for part in (row.gpu, row.gpus, row.site))
    return row.key if isinstance(row, Cause) else f"{row.name}"


def choice_of(row: Row, view: int) -> UsageFilter:
    """The executions behind a row."""
    if isinstance(row, SiteGpuUsage):
        return UsageFilter(site=(row.site,), gpu=(row.gpu,), gpus=(row.gpus,))
    if isinstance(row, Cause):
        return UsageFilter(cause=row.key)
    return UsageFilter(gpu=(row.name,)) if view == OF_GPUS else UsageFilter(site=(row.name,))


def lost_of(row: Row) -> float:
    """GPU-seconds lost."""
    return row.bad if isinstance(row, Cause) else row.sum.bad


def total_of(row: Row) -> float:
    return row.bad if isinstance(row, Cause) else row.sum.total


def times_of(row: Row) -> int:
    """Epochs completed; of a cause, how often it struck."""
    return row.times if isinstance(row, Cause) else row.sum.completed


def median_of(row: Row) -> float:
    """The median epoch; what has none comes last."""
    known = None if isinstance(row, Cause) else row.epoch.median
    return -1.0 if known is None else known


def name_of(row: Row) -> str:
    if isinstance(row, Cause):
        return row.text.lower()
    parts = (row.site, row.gpu) if isinstance(row, SiteGpuUsage) else (row.name,)
    return " ".join(part or "" for part in parts).lower()


def seen_by_filter(row: Row) -> str:
    """All text of a row in which a filter looks, in lower case."""
    if isinstance(row, Cause):
        outcomes = [OUTCOMES[each].word for each in row.outcomes]
        return "\n".join([row.key, *(each.text for each in row.reasons), *outcomes]).lower()
    if isinstance(row, SiteGpuUsage):
        return "\n".join([row.gpu or "unknown", row.site or "unknown", slow(row)]).lower()
    machines = [f"{gpu} x{number}" for gpu, number in row.machines]
    causes = [cause.text for cause in row.causes]
    sites = [site or "unknown" for site in row.sites]
    return "\n".join([row.name or "unknown", *row.targets, *machines, *sites, *causes]).lower()


def named(name: str | None, limit: int, ascii: bool) -> str:
    return "unknown" if name is None else plain(name, limit, ascii)


def models(names: Iterable[str | None], ascii: bool) -> dict[str | None, str]:
    """What GPU models are called: in short, unless two of them would be called the same."""
    known = [name for name in dict.fromkeys(names) if name is not None]
    short = [formatting.gpu_short(name, ascii) for name in known]
    called: dict[str | None, str] = {None: "unknown"}
    for name, brief in zip(known, short, strict=True):
        whole = plain(name, NAME_LIMIT, ascii).removeprefix("NVIDIA ").removeprefix("Tesla ")
        called[name] = whole if short.count(brief) > 1 else brief
    return called


def machine(
    called: Mapping[str | None, str], gpu: str | None, gpus: int | None, ascii: bool
) -> str:
    """Model and number: ``A100-40 ×2``."""
    if gpu is None or gpus is None:
        return formatting.gpus(gpu, gpus, ascii)
    return f"{called.get(gpu) or formatting.gpu_short(gpu, ascii)} {'x' if ascii else '×'}{gpus}"


# --- bars -------------------------------------------------------------------------------------


def _cell(pair: tuple[str, str], ascii: bool) -> str:
    return pair[ascii]


def stacked(of: UsageTotals, largest: float, cells: int, ascii: bool) -> Line:
    """GPU-hours as a bar on a scale on which ``largest`` takes all ``cells``; whatever there is
    has a cell."""
    parts = [
        (amount, pair, how)
        for amount, pair, how in (
            (of.good, GOOD_CELL, GOOD),
            (of.bad, LOST_CELL, BAD),
            (of.in_flight, FLYING_CELL, MOVING),
        )
        if amount > 0
    ]
    if not parts or largest <= 0 or cells <= 0:
        return ()
    length = min(cells, max(len(parts), round(cells * of.total / largest)))
    shares = apportioned([max(1, round(amount)) for amount, _, _ in parts], length)
    return line(
        *(
            (_cell(pair, ascii) * share, texture(how))
            for (_, pair, how), share in zip(parts, shares, strict=True)
        )
    )


def plain_bar(amount: float, largest: float, cells: int, how: tuple[str, TextStyle]) -> Line:
    """One amount on a shared scale."""
    if amount <= 0 or largest <= 0:
        return ()
    return line((how[0] * max(1, round(cells * amount / largest)), texture(how[1])))


def legend(
    of: UsageTotals,
    ascii: bool,
    short: bool = False,
    least: bool = False,
    measure: HourUnit = HourUnit.GPU,
) -> Line:
    """``GPU-hours 1 011 = ▇ 565 good + ▒ 401 lost (42 %) + ░ 46 in flight``."""
    hours = of.gpu_hours
    parts, total = formatting.hours_added((hours.good, hours.bad, hours.in_flight), ascii)
    share = f" ({formatting.share(of.bad, of.good + of.bad, ascii)})" if of.bad > 0 else ""
    plus = line((" + " if not short else "  ", DIM))
    signs = [_cell(pair, ascii) for pair in (GOOD_CELL, LOST_CELL, FLYING_CELL)]
    told = [
        line((signs[0], GOOD), f" {parts[0]}", (" good", DIM)),
        line((signs[1], BAD), f" {parts[1]}", (f" lost{share}", DIM)),
        line((signs[2], MOVING), f" {parts[2]}", (" in flight", DIM)),
    ]
    start = line((f"{measure.hours} ", DIM), ("at least " if least else "", NOTE), (total, BOLD))
    return start + line((" = ", DIM)) + joined(told, plus)


def tabs(view: int, rows: Sequence[int], ascii: bool) -> Line:
    """The views, the one that is shown between brackets."""
    told = []
    for at, (each, number) in enumerate(zip(VIEWS, rows, strict=True)):
        count = (f" {number}", DIM)
        told.append(
            line(("[", DIM), (each.title, BOLD), count, ("]", DIM))
            if at == view
            else line(" ", (each.title, DIM), count, " ")
        )
    return joined(told, line(" "))


# --- columns ----------------------------------------------------------------------------------


def specs(
    view: int, rows: Sequence[Row], ascii: bool, measure: HourUnit = HourUnit.GPU
) -> list[ColumnSpec[Row]]:
    """The columns of a view; bars are on one scale for all its ``rows``."""
    if view == OF_CELLS:
        return _cell_specs([row for row in rows if isinstance(row, SiteGpuUsage)], ascii)
    if view == OF_CAUSES:
        return _cause_specs([row for row in rows if isinstance(row, Cause)], ascii)
    return _place_specs([row for row in rows if isinstance(row, SiteUsage)], view, ascii, measure)


def _of(kind: type[Row], told: Callable[..., Line]) -> Callable[[Row, int | None], Line]:
    """A column's cell of rows of one kind."""
    return lambda row, cells: told(row, cells) if isinstance(row, kind) else ()


def _place_specs(
    rows: Sequence[SiteUsage], view: int, ascii: bool, measure: HourUnit
) -> list[ColumnSpec[Row]]:
    largest = max((row.sum.total for row in rows), default=0.0)
    of = partial(_of, SiteUsage)
    shown = _alike([row.sum.total for row in rows], ascii)
    title = "GPU MODEL" if view == OF_GPUS else "SITE"
    called = models((row.name for row in rows), ascii) if view == OF_GPUS else {}

    def name(row: SiteUsage, cells: int | None) -> Line:
        how = DIM if row.name is None else TextStyle()
        told = called[row.name] if view == OF_GPUS else named(row.name, NAME_LIMIT, ascii)
        return line((told, how))

    def epochs(row: SiteUsage, cells: int | None) -> Line:
        mark = line((HIDDEN.mark(ascii), style_of(HIDDEN)), " ") if row.hidden else ()
        number = formatting.number(row.sum.completed, ascii)
        return mark + line((number, TextStyle() if row.sum.completed else DIM))

    def success(row: SiteUsage, cells: int | None) -> Line:
        return line((_rate(row.sum, ascii), TextStyle() if row.sum.executions else DIM))

    def bar(row: SiteUsage, cells: int | None) -> Line:
        return stacked(row.sum, largest, cells or LEAST_BAR, ascii)

    def hours(amount: Callable[[SiteUsage], float], how: TextStyle) -> Callable[..., Line]:
        return lambda row, cells: line((shown(amount(row)), how if amount(row) else DIM))

    def time(value: Callable[[SiteUsage], float | None]) -> Callable[..., Line]:
        return lambda row, cells: _time(value(row), ascii)

    flying = hours(lambda row: row.sum.in_flight, MOVING)

    def stalls(row: SiteUsage, cells: int | None) -> Line:
        return _number(row.input.stalls, ascii)

    def spreads(row: SiteUsage, cells: int | None) -> Line:
        return line((quartiles(row.epoch, ascii), DIM))

    def targets(row: SiteUsage, cells: int | None) -> Line:
        return line((", ".join(plain(each, 24, ascii) for each in row.targets), DIM))

    def cost(row: SiteUsage, cells: int | None) -> Line:
        known = row.cost
        return line(formatting.hours(known / HOUR, ascii)) if known else _unknown(ascii)

    def moved(row: SiteUsage, cells: int | None) -> Line:
        return line((formatting.size(row.input.received or None, ascii), DIM))

    return [
        ColumnSpec("name", title, of(name), least=8, soft=14, most=28),
        ColumnSpec("epochs", "EPOCHS", of(epochs), "right"),
        ColumnSpec("success", "SUCCESS", of(success), "right"),
        ColumnSpec("bar", measure.hours.upper(), of(bar), least=LEAST_BAR, grow=MOST_BAR),
        ColumnSpec("good", "GOOD h",
             of(hours(lambda row: row.sum.good, TextStyle())), "right", drop=5),
        ColumnSpec("lost", "LOST h", of(hours(lambda row: row.sum.bad, BAD)), "right"),
        ColumnSpec("flying", "IN FLIGHT h", of(flying), "right", drop=8),
        ColumnSpec("cost", "h/EPOCH", of(cost), "right", drop=2),
        ColumnSpec("epoch", "EPOCH TIME", of(time(lambda row: row.epoch.median)), "right", drop=1),
        ColumnSpec("spread", "HALF OF THEM", of(spreads), drop=10, most=24),
        ColumnSpec("wait", "WAIT", of(time(lambda row: row.wait.median)), "right", drop=3),
        ColumnSpec("input", "INPUT", of(time(lambda row: row.input.ok.median)), "right", drop=4),
        ColumnSpec("stalls", "STALLS", of(stalls), "right", drop=6),
        ColumnSpec("moved", "RECEIVED", of(moved), "right", drop=11),
        ColumnSpec("evicted", "EVICTED",
             of(lambda row, cells: _number(row.evictions, ascii)), "right", drop=7),
        ColumnSpec("held", "HELD",
             of(lambda row, cells: _number(row.holds, ascii)), "right", drop=9),
        ColumnSpec("targets", "TARGETS", of(targets), drop=12, most=30),
    ]  # fmt: skip


def _cell_specs(rows: Sequence[SiteGpuUsage], ascii: bool) -> list[ColumnSpec[Row]]:
    longest = max((row.epoch.median or 0.0 for row in rows), default=0.0)
    of = partial(_of, SiteGpuUsage)
    shown = _alike([row.sum.total for row in rows], ascii)
    called = models((row.gpu for row in rows), ascii)
    groups: dict[tuple[str | None, int | None], int] = {}
    for row in rows:
        groups[row.gpu, row.gpus] = groups.get((row.gpu, row.gpus), 0) + 1

    def gpu(row: SiteGpuUsage, cells: int | None) -> Line:
        return line(machine(called, row.gpu, row.gpus, ascii))

    def site(row: SiteGpuUsage, cells: int | None) -> Line:
        return line((named(row.site, NAME_LIMIT, ascii), DIM if row.site is None else TextStyle()))

    def epochs(row: SiteGpuUsage, cells: int | None) -> Line:
        mark = line((HIDDEN.mark(ascii), style_of(HIDDEN)), " ") if row.hidden else ()
        return mark + _number(row.epoch.n, ascii)

    def lost(row: SiteGpuUsage, cells: int | None) -> Line:
        return line((shown(row.sum.bad), BAD if row.sum.bad else DIM))

    def bar(row: SiteGpuUsage, cells: int | None) -> Line:
        pair, how = (LOST_CELL, BAD) if row.slow else (GOOD_CELL, GOOD)
        return plain_bar(
            row.epoch.median or 0.0, longest, cells or LEAST_BAR, (_cell(pair, ascii), how)
        )

    def against(row: SiteGpuUsage, cells: int | None) -> Line:
        how = TextStyle(Colour.VERMILLION, formatting.Weight.BOLD) if row.slow else DIM
        if row.times is None:
            alone = groups[row.gpu, row.gpus] == 1
            return line(("no other site" if alone else "too few", DIM))
        return line((slow(row, ascii), how))

    return [
        ColumnSpec("gpu", "GPU", of(gpu), least=8, soft=18, most=30),
        ColumnSpec("site", "SITE", of(site), least=8, soft=12, most=28),
        ColumnSpec("epochs", "EPOCHS", of(epochs), "right"),
        ColumnSpec("epoch", "EPOCH TIME",
             of(lambda row, _: _time(row.epoch.median, ascii)), "right"),
        ColumnSpec("bar", "MEDIAN", of(bar), least=6, soft=6, grow=MOST_BAR),
        ColumnSpec("against", "SAME GPU", of(against), least=13),
        ColumnSpec("spread", "HALF OF THEM",
             of(lambda row, _: line((quartiles(row.epoch, ascii), DIM))), drop=3, most=24),
        ColumnSpec("success", "SUCCESS",
             of(lambda row, _: line(_rate(row.sum, ascii))), "right", drop=2),
        ColumnSpec("good", "GOOD h",
             of(lambda row, _: line(shown(row.sum.good))), "right", drop=4),
        ColumnSpec("lost", "LOST h", of(lost), "right", drop=1),
    ]  # fmt: skip


def slow(row: SiteGpuUsage, ascii: bool = False) -> str:
    """``fastest``, ``1.08×``, ``2.30× slow``; nothing where it is not compared."""
    if row.times is None:
        return ""
    if row.site == row.fastest:
        return "fastest"
    times = f"{row.times:.2f}{'x' if ascii else '×'}"
    return f"{times} slow" if row.slow else times


def _cause_specs(rows: Sequence[Cause], ascii: bool) -> list[ColumnSpec[Row]]:
    largest = max((row.bad for row in rows), default=0.0)
    of = partial(_of, Cause)

    def what(row: Cause, cells: int | None) -> Line:
        others = len(row.reasons) - 1
        more = f" (+{others})" if others else ""
        told = plain(row.text, 400, ascii)
        if cells is not None:
            told = both_ends(told, max(0, cells - len(more)), ascii)
        return line(told, (more, DIM))

    def ended(row: Cause, cells: int | None) -> Line:
        signs = [OUTCOMES[each] for each in row.outcomes]
        return joined(
            (line((sign.text(ascii), style_of(sign))) for sign in signs[:2]), line(" ")
        ) + line((" …" if not ascii else " ...", DIM) if len(signs) > 2 else "")

    def bar(row: Cause, cells: int | None) -> Line:
        return plain_bar(row.bad, largest, cells or LEAST_BAR, (_cell(LOST_CELL, ascii), BAD))

    return [
        ColumnSpec("lost", "LOST h",
             of(lambda row, _: line((_exact(row.bad, ascii), BAD if row.bad else DIM))), "right"),
        ColumnSpec("times", "TIMES", of(lambda row, _: _number(row.times, ascii)), "right"),
        ColumnSpec("bar", "", of(bar), least=LEAST_BAR, drop=1, grow=24),
        ColumnSpec("code", "CODE", of(lambda row, _: line(code_of(row))), drop=2),
        ColumnSpec("ended", "ENDED AS", of(ended), drop=3, most=28),
        ColumnSpec("what", "CAUSE", of(what), least=20, soft=40, most=400),
    ]  # fmt: skip


def code_of(row: Cause) -> str:
    """``1023/0``; empty where no code tells."""
    return "" if row.code is None else f"{row.code}/{row.subcode or 0}"


def _unknown(ascii: bool) -> Line:
    return line((formatting.unknown(ascii), DIM))


def _alike(seconds: Sequence[float], ascii: bool) -> Callable[[float], str]:
    """Writes GPU-seconds as hours with as many decimals as all of these together want."""
    whole = sum(seconds) / HOUR

    def told(value: float) -> str:
        # The rest to the whole makes the decimals those of the whole.
        part = value / HOUR
        return formatting.hours_added((part, max(0.0, whole - part)), ascii)[0][0]

    return told


def _exact(seconds: float, ascii: bool) -> str:
    """Hours to the hundredth."""
    told = f"{seconds / HOUR:,.2f}" if seconds else "0"
    # What is something is never drawn as nothing.
    told = "<0.01" if seconds > 0 and told == "0.00" else told
    return told if ascii else told.replace(",", formatting.THIN)


def _rate(of: UsageTotals, ascii: bool) -> str:
    ended = of.good_executions + of.bad_executions
    return formatting.share(of.good_executions, ended, ascii)


def _hours(seconds: float, how: TextStyle, ascii: bool) -> Line:
    return line((formatting.hours(seconds / HOUR, ascii), how if seconds > 0 else DIM))


def _time(seconds: float | None, ascii: bool) -> Line:
    return _unknown(ascii) if seconds is None else line(formatting.duration(seconds, ascii))


def _number(value: int, ascii: bool) -> Line:
    return line((formatting.number(value, ascii), TextStyle() if value else DIM))


def quartiles(of: Distribution, ascii: bool) -> str:
    """``5:47:36 to 5:51:00``: half of them lie there."""
    if of.low is None or of.high is None or of.n < 2:
        return ""
    return _from_to(of.low, of.high, ascii)


def _from_to(low: float, high: float, ascii: bool) -> str:
    """``4 s to 5 s``; where both ends are written alike, only once."""
    ends = formatting.duration(low, ascii), formatting.duration(high, ascii)
    return " to ".join(dict.fromkeys(ends))


# --- the row under the cursor -----------------------------------------------------------------


def details(row: Row, found: Usage, cells: int, lines: int, ascii: bool) -> list[Line]:
    """What is told of a row below the table: at most so many lines of so many cells."""
    if isinstance(row, Cause):
        told = _cause_details(row, found, cells, lines, ascii)
    elif isinstance(row, SiteGpuUsage):
        told = _cell_details(row, found, cells, ascii)
    else:
        told = _place_details(row, found, cells, lines, ascii)
    return [crop(each, cells, ascii) for each in told[:lines]]


def _place_details(row: SiteUsage, found: Usage, cells: int, lines: int, ascii: bool) -> list[Line]:
    told = [
        _kept(line(" "), _who(row, _called_in(found, ascii), ascii), cells),
        _kept(_label("epoch time"), _spread(row.epoch, ascii, row.hidden), cells),
        _kept(_label("queue wait"), _waits(row, found, ascii), cells),
        _kept(_label("input"), _input(row, ascii), cells),
    ]
    return [*told, *_lost_to(row.causes, cells, max(1, lines - len(told)), ascii)]


def _kept(start: Line, parts: Sequence[Line], cells: int) -> Line:
    """The parts that have room, the last ones least."""
    told = [part for part in parts if part] or [line(("nothing known", DIM))]
    while len(told) > 1 and width(start + joined(told, GAP)) > cells:
        told.pop()
    return start + joined(told, GAP)


def _called_in(found: Usage, ascii: bool) -> dict[str | None, str]:
    return models((place.name for place in found.gpus), ascii)


def _who(row: SiteUsage, called: Mapping[str | None, str], ascii: bool) -> list[Line]:
    of = row.sum
    n = partial(formatting.number, ascii=ascii)
    flying = of.executions - of.good_executions - of.bad_executions
    if row.name in row.sites or row.name is None:
        found = [machine(called, gpu, number, ascii) for gpu, number in row.machines]
    else:
        found = [f"at {named(site, 24, ascii)}" for site in row.sites]
    targets = ", ".join(plain(target, 24, ascii) for target in row.targets)
    return [
        line((named(row.name, NAME_LIMIT, ascii), BOLD)),
        line(
            formatting.count(of.executions, "execution", ascii=ascii),
            (f": {n(of.good_executions)} good, {n(of.bad_executions)} lost", DIM),
            (f", {n(flying)} in flight" if flying else "", DIM),
        ),
        line((", ".join(found), DIM)),
        line((f"for {targets}" if targets else "", DIM)),
    ]


def _label(word: str) -> Line:
    return line((f" {word:<11}", DIM))


def _spread(of: Distribution, ascii: bool, hidden: int = 0) -> list[Line]:
    if of.median is None or of.least is None or of.most is None:
        return []
    several = of.n > 1
    mark = f"{HIDDEN.mark(ascii)} {hidden}: {HIDDEN.word}" if hidden else ""
    return [
        line(("median ", DIM), formatting.duration(of.median, ascii),
             (f" of {formatting.number(of.n, ascii)}", DIM)),
        line(("half of them ", DIM), quartiles(of, ascii)) if several else (),
        line((f"all {_from_to(of.least, of.most, ascii)}", DIM)) if several else (),
        line((mark, style_of(HIDDEN))),
    ]  # fmt: skip


def _waits(row: SiteUsage, found: Usage, ascii: bool) -> list[Line]:
    # Only of a target: where a job that never ran would have run is not known.
    waits = [each for each in found.waiting if each.target in row.targets]
    still, gone = sum(each.waiting for each in waits), sum(each.removed for each in waits)
    one = plain(waits[0].target or "", 24, ascii) if len(waits) == 1 else "one of its targets"
    to = f" for {one}"
    longest = max((each.longest or 0.0 for each in waits), default=0.0)
    up_to = f", up to {formatting.duration(longest, ascii)}"
    median, *others = _spread(row.wait, ascii) or [()]
    return [
        median,
        line((f"{still} still waiting{to}", NOTE), (up_to, DIM)) if still else (),
        line((f"{gone} removed while waiting{to}", DIM)) if gone else (),
        *others,
    ]


def _input(row: SiteUsage, ascii: bool) -> list[Line]:
    moved = row.input
    median, *others = _spread(moved.ok, ascii) or [()]
    stalled = f" {formatting.duration(moved.stalled, ascii)}"
    size = partial(formatting.size, ascii=ascii)
    return [
        median,
        line((f"{moved.stalls} stalled", BAD), (stalled, DIM)) if moved.stalls else (),
        line((f"{moved.aborted} aborted, {moved.unfinished} unfinished", DIM))
        if moved.failed else (),
        line((f"{moved.in_flight} under way", MOVING)) if moved.in_flight else (),
        line((f"{size(moved.received)} in, {size(moved.sent)} out", DIM))
        if moved.received or moved.sent else (),
        *others,
    ]  # fmt: skip


def _lost_to(causes: Sequence[Cause], cells: int, lines: int, ascii: bool) -> list[Line]:
    """The causes of a place: a line each where there is room, else many on a line."""
    if not causes:
        return [_label("lost to") + line(("nothing", GOOD))]
    indent = width(_label(""))
    if lines >= min(len(causes), ROOMY_CAUSES):
        widest = max(width(_strikes(each, ascii)) for each in causes[:lines])
        told = []
        for each in causes[:lines]:
            struck = _strikes(each, ascii)
            what = both_ends(_called(each, ascii), cells - indent - widest - 4, ascii)
            told.append(line(" " * (widest - width(struck))) + struck + line("   ", what))
    else:
        short = [
            _strikes(each, ascii) + line(" ", formatting.clip(_short(each, ascii), 28, ascii))
            for each in causes
        ]
        told = packed(short, GAP, cells - indent)[:lines]
    left = [_label("lost to"), *[line(" " * indent)] * len(told)]
    return [start + each for start, each in zip(left, told, strict=False)]


def _strikes(of: Cause, ascii: bool) -> Line:
    times = f"{formatting.number(of.times, ascii)}{'x' if ascii else '×'}"
    return line((_exact(of.bad, ascii), BAD if of.bad > 0 else DIM), (f" h {times}", DIM))


ROOMY_CAUSES: Final = 4
"""Causes that have a line each where there are so many lines."""


def _short(of: Cause, ascii: bool) -> str:
    """Its code, or its key: a word or two."""
    return code_of(of) or plain(of.key, 80, ascii)


def _called(of: Cause, ascii: bool) -> str:
    code = code_of(of)
    return plain(f"{code} {of.text}" if code else of.text, 400, ascii)


def _cell_details(row: SiteGpuUsage, found: Usage, cells: int, ascii: bool) -> list[Line]:
    gpu = machine(_called_in(found, ascii), row.gpu, row.gpus, ascii)
    site, of = named(row.site, NAME_LIMIT, ascii), row.sum
    executions = line(formatting.count(of.executions, "execution", ascii=ascii))
    parts = [line((f"{gpu} at {site}", BOLD)), executions, legend(of, ascii)]
    lines = [
        _kept(line(" "), parts, cells),
        _kept(_label("epoch time"), _spread(row.epoch, ascii, row.hidden), cells),
    ]
    if row.slow:
        fastest = named(row.fastest, NAME_LIMIT, ascii)
        times = f"{row.times:.2f} times the median at {fastest}"
        whys = (", and the middle halves do not overlap", ", middle halves apart", "")
        candidates = (_label("slow") + line((times + why, NOTE)) for why in whys)
        lines.append(first_that_fits(candidates, cells))
    elif row.times is None:
        lines.append(
            _label("compared")
            + line(("sites with the same GPU, as many of them, and 3 epochs or more each", DIM))
        )
    others = [
        cell
        for cell in found.cells
        if (cell.gpu, cell.gpus) == (row.gpu, row.gpus) and cell.site != row.site
    ]
    if others:
        told_others = [
            line(named(cell.site, 24, ascii), " ")
            + _time(cell.epoch.median, ascii)
            + line((f" of {cell.epoch.n}", DIM))
            for cell in others
        ]
        lines.append(_label("elsewhere") + crop(joined(told_others, GAP), cells - 13, ascii))
    return lines


def _cause_details(row: Cause, found: Usage, cells: int, lines: int, ascii: bool) -> list[Line]:
    times = formatting.count(row.times, "time", ascii=ascii)
    ended = formatting.count(row.executions, "execution", ascii=ascii)
    held = formatting.count(row.holds, "hold", ascii=ascii)
    both = f", {row.both} of them one thing" if row.both else ""
    share = formatting.share(row.bad, found.total.sum.bad, ascii)
    first = joined(
        (
            line((code_of(row) or formatting.clip(plain(row.key, 80, ascii), 32, ascii), BOLD)),
            line((_exact(row.bad, ascii), BAD), f" GPU-hours lost, {share} of all")
            if row.bad > 0
            else line(("nothing lost", DIM)),
            line(times, (f": {ended}, {held}{both}" if row.holds else "", DIM)),
        ),
        GAP,
    )
    told = [line(" ") + first]
    for word, places in (("at", found.sites), ("on", found.gpus)):
        called = _called_in(found, ascii) if word == "on" else {}
        told.append(_label(word) + _where(row, places, called, ascii))
    for reason in row.reasons[: max(1, lines - len(told))]:
        sign = OUTCOMES[reason.outcome]
        start = line((sign.text(ascii), style_of(sign)), "  ")
        if len(row.reasons) > 1:
            start += _hours(reason.bad, BAD, ascii) + line(" h  ")
        room = cells - width(start) - 2
        told.append(
            line(" ") + start + line(both_ends(plain(reason.text, 400, ascii), room, ascii))
        )
    return told


def _where(
    row: Cause, places: Iterable[SiteUsage], called: Mapping[str | None, str], ascii: bool
) -> Line:
    parts = []
    for place in places:
        for cause in place.causes:
            if cause.key == row.key:
                shown = called.get(place.name) or named(place.name, 28, ascii)
                parts.append(line(f"{shown} ") + _strikes(cause, ascii))
    return joined(parts, GAP)
