"""Ensembles on Home, one line each: columns, orders, and the texts beside the table."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace
from rich.cells import cell_len

from metlmon.health.types import Severity
from metlmon.home.summary import EnsembleState, Figures, HomeSummary, Phase
from metlmon.model.states import DagState
from metlmon.tables.estimates import approximate_text, eta_text
from metlmon.tables.health import step_lines
from metlmon.tables.layout import Column, Kind, searched
from metlmon.text.formatting import (
    DAG_STATES,
    DAY,
    DONE_WITH_FAILURES,
    Colour,
    Symbol,
    Weight,
    age,
    count,
    hours,
    moment,
    number,
    plain,
    progress_bar,
)
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
    width,
    wrap,
)

STATES: Final = {
    EnsembleState.STOPPED: Symbol("✗", "stopped", Colour.VERMILLION, Weight.BOLD),
    EnsembleState.JOBS_HELD: Symbol("■", "jobs held", Colour.VERMILLION, Weight.BOLD),
    EnsembleState.RESTARTING: Symbol("≈", "restarting", Colour.PURPLE),
    EnsembleState.UNKNOWN: Symbol("?", "no .dagman.out", Colour.GREY),
}
"""States whose symbol differs from that of a DAG."""

ALIVE_STATES: Final = (
    *(EnsembleState.HELD, EnsembleState.JOBS_HELD),
    *(EnsembleState.RESTARTING, EnsembleState.RUNNING),
)

TROUBLE_STYLES: Final = {Severity.STOPPED: ALARM, Severity.BLOCKED: ALARM, Severity.COSTLY: NOTE}

NAME_CELLS: Final = 40
TROUBLE_CHARACTERS: Final = 400
BAR_CELLS: Final = 8


def home_rows(summaries: Sequence[HomeSummary]) -> list[HomeSummary]:
    """The summaries with their names."""
    names = short_names([summary.path for summary in summaries])
    return [replace(summary, name=names[summary.path]) for summary in summaries]


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """For each absolute path, its shortest end that no other path has."""
    parts = {path: Path(path).parts for path in paths}
    longest = max(map(len, parts.values()), default=0)
    names: dict[str, str] = {}
    for length in range(1, longest + 1):
        ends = {path: os.path.join(*p[-length:]) for path, p in parts.items() if path not in names}
        taken = Counter(ends.values())
        names |= {path: end for path, end in ends.items() if taken[end] == 1 or end == path}
    return names


# --- order and filter ----------------------------------------------------------------------


def urgency(row: HomeSummary) -> tuple[Any, ...]:
    """Sort key: live ensembles in trouble, other live ones, those that stopped, the rest.

    Among those in trouble, blocked ones come first. Live ones are then sorted by name, so that the
    order does not change as the clock ticks; the others newest first.
    """
    figures = row.figures
    if figures is None:
        rank = 3 if row.error is not None else 5
    elif figures.live:
        rank = 0 if row.needs_person else 1
    else:
        rank = 2 if row.needs_person else 4
    severity = (figures and figures.severity) or Severity.NOTE
    time = 0.0
    if figures is not None and figures.as_of is not None and not figures.live:
        time = (datetime.min - figures.as_of.replace(tzinfo=None)).total_seconds()
    return rank, list(Severity).index(severity), time, row.name


def filter_text(row: HomeSummary) -> str:
    figures = row.figures
    parts = (_symbol(figures).word, figures.trouble) if figures is not None else ()
    return searched(row.path, row.error, *parts)


# --- columns --------------------------------------------------------------------------------


def columns(
    rows: Sequence[HomeSummary], this_year: int | None, clock: datetime, *, narrow: bool = False
) -> list[Column[HomeSummary]]:
    """The columns of ``rows``; those for news and for the ETA only if they are useful."""
    counts = max((cell_len(_done_text(row.figures)) for row in rows), default=0)

    def last_event(row: HomeSummary) -> datetime | None:
        """The time of the last event, without a zone, since only some logs have one."""
        when = None if row.figures is None else row.figures.last_event
        return when and when.replace(tzinfo=None)

    def since_seen(row: HomeSummary) -> str | None:
        seen = None if row.figures is None else row.figures.since_seen
        return seen and seen.partition(": ")[2]

    def health_or_eta(row: HomeSummary, cells: int | None) -> Line:
        if not narrow or row.needs_person or row.figures is None:
            return _health(row, cells)
        known = row.figures.remaining is not None and not _is_over(row.figures, clock)
        label = line(("ETA ", DIM)) if known else ()
        room = cells and max(0, cells - width(label))
        return label + _eta(row.figures, this_year, clock, room)

    shown = [
        Column(
            "name",
            _name,
            title="ENSEMBLE",
            doc="the end of its path that distinguishes it from the others",
            style=BOLD,
            minimum=8,
            comfortable=15 if narrow else None,
            maximum=NAME_CELLS,
            identifies=_name,
        ),
        Column(
            "progress",
            _progress_share,
            Kind.SHARE,
            doc="epochs done or skipped, of all",
            align="left",
            cell=lambda row, cells: _progress(row, cells, counts),
            minimum=7,
            maximum=counts + (4 if narrow else 12),
            grow=0 if narrow else counts + 12,
        ),
        Column(
            "state",
            lambda row: _symbol(row.figures) if row.figures else "",
            Kind.STATE,
            doc="what its DAGs do",
            cell=_state,
            minimum=9,
            maximum=16 if narrow else 30,
        ),
        Column(
            "last",
            last_event,
            Kind.TIME,
            doc="when its last event was",
            align="right",
            drop=1,
            cell=lambda row, _: _last(row.figures, clock),
        ),
        Column(
            "health",
            lambda row: row.figures.trouble if row.figures else None,
            doc="the worst entry of its health, and the number of others",
            cell=health_or_eta,
            minimum=6,
            comfortable=20,
            maximum=110,
        ),
        Column(
            "badput",
            _badput,
            Kind.SHARE,
            doc="share of the hours that were lost, of those that have ended",
            drop=2,
            style=lambda row: BAD if _badput(row) else DIM,
        ),
        Column(
            "eta",
            lambda row: row.figures and (row.figures.completed_at or row.figures.expected_end),
            Kind.TIME,
            doc="when it will be done",
            align="left",
            drop=3,
            cell=lambda row, cells: _eta(row.figures, this_year, clock, cells),
            minimum=6,
            comfortable=7,
        ),
        Column(
            "seen",
            since_seen,
            title="SINCE YOU LOOKED",
            doc="what is new since you looked at it",
            drop=4,
            style=NOTE,
            comfortable=16,
            maximum=50,
        ),
    ]
    has_news = any(row.figures and row.figures.since_seen for row in rows)
    absent = ["eta"] * narrow + ["seen"] * (not has_news)
    return [column for column in shown if column.name not in absent]


def _progress_share(row: HomeSummary) -> float | None:
    figures = row.figures
    return None if figures is None or not figures.total else figures.done / figures.total


def _name(row: HomeSummary) -> str:
    return plain(row.name, 400)


def _done_text(figures: Figures | None) -> str:
    return "" if figures is None else f"{number(figures.done)}/{number(figures.total)}"


def _progress(row: HomeSummary, cells: int | None, counts: int) -> Line:
    """A bar, and the number of epochs, which is ``counts`` cells wide."""
    figures = row.figures
    if figures is None:
        if row.phase is not Phase.READING:
            return line(("–", DIM))
        percent = f"{100 * row.fraction:.0f} %".rjust(max(4, counts))
        room = BAR_CELLS if cells is None else max(0, cells - len(percent) - 1)
        bar = progress_bar(round(row.fraction * 100), 100, room)
        return line((f"{bar} {percent}", MOVING))
    text = _done_text(figures).rjust(counts)
    room = BAR_CELLS if cells is None else cells - cell_len(text) - 1
    if room < 3 or not figures.total:
        return line(text)
    style = GOOD if figures.done == figures.total else MOVING if figures.live else DIM
    return line((progress_bar(figures.done, figures.total, room), style), " ", text)


def _symbol(figures: Figures) -> Symbol:
    if figures.state is EnsembleState.DONE and figures.nodes_failed:
        return DONE_WITH_FAILURES
    return STATES.get(figures.state) or DAG_STATES[DagState(figures.state.value)]


def _state(row: HomeSummary, _: int | None) -> Line:
    figures = row.figures
    if row.phase is Phase.UNREADABLE:
        return line(("✗ unreadable", ALARM))
    if figures is None:
        if row.phase is Phase.READING:
            return line((f"reading {row.size / 1e6:.0f} MB", MOVING))
        return line(("not read yet", DIM))
    # What runs is known even if DAGMan's own files are missing.
    runs = figures.running and figures.state in (EnsembleState.RUNNING, EnsembleState.UNKNOWN)
    if runs and figures.live:
        state = line((f"▶ {number(figures.running)} running", MOVING))
    elif not figures.live and (runs or figures.state in ALIVE_STATES):
        # Nothing has been logged for a long time: this was the state at its last event.
        then = f"▶ {number(figures.running)} running" if runs else _symbol(figures).text()
        state = line((f"was {then}", DIM))
    elif _symbol(figures) is DONE_WITH_FAILURES:
        failed = f"{DONE_WITH_FAILURES.glyph} done, {number(figures.nodes_failed)} failed"
        state = line((failed, style_of(DONE_WITH_FAILURES)))
    else:
        state = symbol_span(_symbol(figures))
    return state + line((" …", DIM)) if row.phase is Phase.STORED else state


def _health(row: HomeSummary, cells: int | None) -> Line:
    figures = row.figures
    if row.error is not None:
        return line((plain(row.error, TROUBLE_CHARACTERS), ALARM))
    if figures is None or figures.trouble is None:
        return line(("–", DIM))
    style = TROUBLE_STYLES.get(figures.severity or Severity.NOTE, TextStyle())
    text = plain(figures.trouble, TROUBLE_CHARACTERS)
    more = f" +{figures.others}" if figures.others else ""
    if cells is None or cell_len(text + more) <= cells:
        return line((text, style), (more, DIM))
    return crop(line((text, style)), max(1, cells - len(more))) + line((more, DIM))


def _badput(row: HomeSummary) -> float | None:
    spent = None if row.figures is None else row.figures.hours
    return None if spent is None or not spent.ended else spent.badput / spent.ended


def _last(figures: Figures | None, clock: datetime) -> Line:
    if figures is None or figures.last_event is None:
        return line(("–", DIM))
    seconds = _seconds_between(figures.last_event, figures.now(clock))
    return line((f"{age(seconds)} ago", PLAIN if figures.live else DIM))


def _seconds_between(start: datetime, end: datetime) -> float:
    if start.tzinfo is None or end.tzinfo is None:
        start, end = start.replace(tzinfo=None), end.replace(tzinfo=None)
    return (end - start).total_seconds()


def _is_over(figures: Figures, clock: datetime) -> bool:
    """Whether the estimated end has passed, as it may have in an old snapshot."""
    if figures.remaining is None or figures.as_of is None:
        return False
    passed = _seconds_between(figures.as_of, figures.now(clock))
    return passed > figures.remaining.median


def _eta(
    figures: Figures | None, this_year: int | None, clock: datetime, cells: int | None
) -> Line:
    if figures is None:
        return line(("–", DIM))
    if figures.completed_at is not None:
        full = f"done {moment(figures.completed_at, this_year)}"
        day = f"{figures.completed_at.day} {figures.completed_at:%b}"
        return line((full if cells is None or cells >= len(full) else f"✓{day}", DIM))
    if figures.remaining is None or figures.as_of is None or figures.expected_end is None:
        return line(("–", DIM))
    if _is_over(figures, clock):
        left = f"{approximate_text(figures.remaining.median)} left"
        then = f"{left} on {moment(figures.as_of, this_year)}"
        fitting = (each for each in (then, f"{left} then") if cells is None or cells >= len(each))
        return line((next(fitting, left), DIM))
    full = eta_text(figures.as_of, figures.remaining, figures.expected_end)
    short = full.partition(" (")[0]
    if cells is None or cells >= len(full):
        return line(full)
    if cells < len(short) and figures.remaining.median < 2 * DAY:
        short = f"{figures.expected_end:%H:%M}"
    return line(short)


# --- texts beside the table ------------------------------------------------------------------

DETAIL_LINES: Final = 5
"""Lines below the table for the row under the cursor, unless its steps need more."""


def detail_lines(row: HomeSummary | None, this_year: int | None, room: int) -> list[Line]:
    """The path of the ensemble, the time of its figures, and its trouble with the advice."""
    if row is None:
        return []
    figures = row.figures
    parts: list[Line] = []
    lines: list[Line] = []
    if figures is not None and figures.as_of is not None:
        then = line((f"snapshot {moment(figures.as_of, this_year)}", DIM))
        parts.append(line(("● live", MOVING)) if figures.live else then)
    if figures is not None:
        spent = figures.hours
        if spent.badput > 0:
            parts.append(line((f"{hours(spent.badput)} {spent.measure.hours} badput", DIM)))
        if figures.since_seen is not None:
            parts.append(line((figures.since_seen, NOTE)))
    if row.error is not None:
        lines = wrap(plain(row.error, 2000), room, ALARM, 1, DETAIL_LINES - 1)
    elif figures is not None and figures.trouble is not None:
        style = TROUBLE_STYLES.get(figures.severity or Severity.NOTE, TextStyle())
        steps = step_lines(figures.steps, (), room, 1)
        # Each step is readable: the headline, and if need be the table, has less room.
        left = max(1, DETAIL_LINES - 1 - len(steps))
        lines = [*wrap(plain(figures.headline, TROUBLE_CHARACTERS), room, style, 1, left), *steps]
    elif figures is not None and figures.no_eta is not None:
        why = plain(figures.no_eta, TROUBLE_CHARACTERS)
        text = f"ETA {why}" if why.startswith("unknown") else why
        lines = wrap(text, room, DIM, 1, DETAIL_LINES - 1)
    rest = join(parts, line("   "))
    path = crop_middle(plain(row.path, 4000), max(20, room - width(rest) - 4))
    first = crop(line(" ", (path, BOLD), "   ") + rest, room)
    return [first, *lines]


def totals_line(rows: Sequence[HomeSummary]) -> Line:
    """``12 ensembles   5 live   2 need attention``; and how many are read, until all are."""
    figures = [row.figures for row in rows]
    live = sum(each is not None and each.live for each in figures)
    trouble = sum(row.needs_person for row in rows)
    read = sum(row.phase in (Phase.READ, Phase.UNREADABLE) for row in rows)
    needs = "needs" if trouble == 1 else "need"
    parts = [line(count(len(rows), "ensemble"))]
    parts += [line((f"{number(live)} live", MOVING))] * bool(live)
    parts += [line((f"{number(trouble)} {needs} attention", ALARM))] * bool(trouble)
    unread = len(rows) - read
    parts += [line((f"{number(read)} of {number(len(rows))} read", NOTE))] * bool(unread)
    return join(parts, line("   "))
