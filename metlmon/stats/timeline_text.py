"""A timeline as characters: which cell shows what, and the axis above them.

Nothing here knows a terminal: a cell is a sign (glyph, letter, colour), which screens and
commands write each in their own way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from metlmon.frozen import frozen
from metlmon.model.states import State
from metlmon.snapshot.ledger import ExecutionEntry
from metlmon.stats.timeline import Lane, Timeline, TimelineSpan
from metlmon.text.formatting import DAY, HOUR, MINUTE, Colour, Symbol, Weight, plain


class CellKind(StrEnum):
    """What a cell can show."""

    GOOD = "good"
    LOST = "lost"
    FLYING = "running"
    STOPPED = "stopped"
    HELD = "held"
    MOVING = "moving"
    IDLE = "idle"


SIGNS: Final[Mapping[CellKind, Symbol]] = {
    CellKind.GOOD: Symbol("█", "=", "good", Colour.GREEN),
    CellKind.LOST: Symbol("▚", "x", "lost", Colour.ORANGE),
    CellKind.FLYING: Symbol("▓", "R", "running", Colour.SKY),
    CellKind.MOVING: Symbol("▒", "t", "transfer", Colour.BLUE),
    CellKind.IDLE: Symbol("░", ".", "idle", Colour.GREY),
    CellKind.HELD: Symbol("╳", "H", "held", Colour.VERMILLION, Weight.BOLD),
    CellKind.STOPPED: Symbol("┄", "~", "interrupted", Colour.PURPLE),
}
"""The textures are those of the other bars. Each glyph, letter and colour is told apart
without the others."""

_RANK: Final[Mapping[CellKind, int]] = {
    CellKind.HELD: 0,
    CellKind.STOPPED: 1,
    CellKind.LOST: 2,
    CellKind.GOOD: 2,
    CellKind.FLYING: 2,
    CellKind.MOVING: 3,
    CellKind.IDLE: 4,
}

_KINDS: Final[Mapping[State, CellKind]] = {
    State.IDLE: CellKind.IDLE,
    State.TRANSFERRING_INPUT: CellKind.MOVING,
    State.STARTING: CellKind.MOVING,
    State.TRANSFERRING_OUTPUT: CellKind.MOVING,
    State.SUSPENDED: CellKind.STOPPED,
    State.DISCONNECTED: CellKind.STOPPED,
    State.HELD: CellKind.HELD,
}


_OUTCOMES: Final[Mapping[str, CellKind]] = {
    "good": CellKind.GOOD,
    "bad": CellKind.LOST,
    "in_flight": CellKind.FLYING,
}

# By name here: Python 3.11 looks a member of an Enum up by a function each time.
_RUNNING: Final = State.RUNNING
_FLYING: Final = CellKind.FLYING
_IDLE: Final = CellKind.IDLE


def outcome_kind(entry: ExecutionEntry) -> CellKind:
    """What an execution came to: good, lost, or still running."""
    return _OUTCOMES[entry.kind]


def kind_of(span: TimelineSpan) -> CellKind:
    """What a span is drawn as."""
    if span.state is _RUNNING:
        return _FLYING if span.execution is None else outcome_kind(span.execution)
    return _KINDS.get(span.state, _IDLE)


def kinds_beside(made: Timeline) -> frozenset[CellKind]:
    """What its lanes show besides executions."""
    states = {span.state for lane in made.lanes for span in lane.spans}
    return frozenset(_KINDS.get(state, _IDLE) for state in states - {_RUNNING})


# --- sites ----------------------------------------------------------------------------------

_TEXTURES: Final = "█▚▓▞▜▙▛▟"
_COLOURS: Final = (
    Colour.SKY,
    Colour.YELLOW,
    Colour.GREEN,
    Colour.PURPLE,
    Colour.ORANGE,
    Colour.BLUE,
    Colour.PLAIN,
)
"""Seven colours and eight textures: 56 sites before a pair comes again. The colour of what is
held is none of them."""

_LETTERS: Final = "ABCDEFGIJKLMNOPQRSTUVWXYZ0123456789"
"""No H: that is what is held in ASCII."""


def site_signs(sites: Sequence[str | None]) -> dict[str | None, Symbol]:
    """A sign for each site; its letter is the first of its name that is free."""
    signs: dict[str | None, Symbol] = {}
    taken: set[str] = set()
    for at, site in enumerate(sites):
        name = plain(site, 40, ascii=True) if site else "?"
        wanted = [c for c in (*name.upper(), *_LETTERS) if c in _LETTERS and c not in taken]
        letter = "?" if site is None else wanted[0] if wanted else "#"
        taken.add(letter)
        texture, colour = _TEXTURES[at % len(_TEXTURES)], _COLOURS[at % len(_COLOURS)]
        word = plain(site, 40) if site else "site not known"
        signs[site] = Symbol(texture, letter, word, colour)
    return signs


SignOf = Callable[[ExecutionEntry], Symbol]


def by_outcome(entry: ExecutionEntry) -> Symbol:
    """An execution's sign by what it came to."""
    return SIGNS[outcome_kind(entry)]


def by_site(signs: Mapping[str | None, Symbol]) -> SignOf:
    """An execution's sign by where it ran."""
    return lambda entry: signs[entry.site]


# --- cells ----------------------------------------------------------------------------------


@frozen
class VisibleWindow:
    """What of the time is in view: from ``start``, in so many cells of ``each`` seconds."""

    start: float
    each: float
    cells: int

    @property
    def end(self) -> float:
        return self.start + self.each * self.cells

    def cell(self, at: float) -> int:
        """The cell that a moment is in; outside of 0 … cells-1 where it is not in view."""
        return math.floor((at - self.start) / self.each)


LEAST_SECONDS: Final = 10.0
"""What the whole of a timeline is at least shown as: one event alone has no length."""


def whole(made: Timeline, cells: int) -> VisibleWindow:
    """The window that has everything in it."""
    return VisibleWindow(0.0, max(made.length, LEAST_SECONDS) / max(1, cells), max(1, cells))


def lane_cells(lane: Lane, window: VisibleWindow, sign_of: SignOf) -> list[Symbol | None]:
    """What each cell of a lane shows; None where no job was in the queue.

    Where several things happened in one cell, the one that matters most: a hold before
    suspension and lost connections, these before executions, these before transfers, these
    before waiting in the queue. Among equals that which took most of the cell: so a hold of a
    minute is seen in a cell of a day, and a failure of a second does not hide the hours of
    good work beside it.
    """
    numbers: dict[Symbol, int] = {}
    ranks: list[int] = []
    best: list[dict[int, float]] = [{} for _ in range(window.cells)]
    for span in lane.between(window.start, window.end):
        kind = kind_of(span)
        sign = SIGNS[kind]
        if span.execution is not None and span.state is _RUNNING:
            sign = sign_of(span.execution)
        # Numbers stand for the signs: there are more cells than spans, and to look a sign up
        # takes longer than all else.
        number = numbers.setdefault(sign, len(ranks))
        if number == len(ranks):
            ranks.append(_RANK[kind])
        for cell, seconds in _shares(span.at, span.until, window):
            found = best[cell]
            found[number] = found.get(number, 0.0) + seconds
    signs = list(numbers)
    return [signs[_foremost(found, ranks)] if found else None for found in best]


def _foremost(found: Mapping[int, float], ranks: Sequence[int]) -> int:
    """Of the signs in a cell the one of the least rank; of equals that of most seconds."""
    if len(found) == 1:
        return next(iter(found))
    return min(found, key=lambda number: (ranks[number], -found[number]))


def _shares(at: float, until: float, window: VisibleWindow) -> list[tuple[int, float]]:
    """The cells that a stretch touches, and its seconds in each. One without any length (it
    has just begun) takes its cell with nothing."""
    start, each = window.start, window.each
    low, high = max(at, start), min(until, window.end)
    if high < low or (high == low and at != until):
        return []
    first = max(0, math.floor((low - start) / each))
    last = min(window.cells - 1, max(first, math.ceil((high - start) / each) - 1))
    shares = []
    for cell in range(first, last + 1):
        begin = start + cell * each
        end = begin + each
        seconds = (end if end < high else high) - (begin if begin > low else low)
        shares.append((cell, seconds if seconds > 0.0 else 0.0))
    return shares


Cell = tuple[str, Symbol | None]


def lettered(
    cells: Sequence[Symbol | None], ascii: bool, sites: Iterable[Symbol] = ()
) -> list[Cell]:
    """One character for each cell. A site's letter stands where it begins (in ASCII all
    along): neither colours nor textures need to be learnt."""
    letters = frozenset(sites)
    out: list[Cell] = []
    for at, sign in enumerate(cells):
        if sign is None:
            out.append((" ", None))
            continue
        begins = at == 0 or cells[at - 1] != sign
        goes_on = at + 1 < len(cells) and cells[at + 1] == sign
        label = sign in letters and begins and goes_on
        out.append((sign.letter if label else sign.mark(ascii), sign))
    return out


def epoch_labels(lane: Lane, window: VisibleWindow) -> str:
    """The numbers of the epochs below where each begins, as far as they find room."""
    seen: set[int] = set()
    out = ""
    for span in lane.between(window.start, window.end):
        if span.epoch is None or not span.training or span.epoch in seen:
            continue
        if span.until <= window.start:
            continue
        seen.add(span.epoch)
        at, label = max(0, window.cell(span.at)), str(span.epoch)
        if at >= len(out) + (1 if out else 0) and at + len(label) <= window.cells:
            out = out.ljust(at) + label
    return out


# --- the axis -------------------------------------------------------------------------------

_STEPS: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(n * MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * HOUR for n in (1, 2, 3, 6, 12)),
    *(n * DAY for n in (1, 2, 7, 14)),
)
"""Seconds between two ticks; beyond, months."""

_MONTH_STEPS: Final = (1, 3, 6, 12, 60, 120)
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WEEKDAY_CELLS: Final = 14
"""From so many cells a day on there is room for the day's name."""

_GAP: Final = 2


def axis(made: Timeline, window: VisibleWindow, ascii: bool) -> str:
    """Ticks with the local time of each, as near to each other as their labels allow."""
    bar = "|" if ascii else "│"
    out = ""
    for when, label in _ticks(made, window):
        at = window.cell(made.seconds(when))
        text = bar + label
        if 0 <= at < window.cells and at >= len(out) + (1 if out else 0):
            out = out.ljust(at) + (text if at + len(text) <= window.cells else bar)
    return out.ljust(window.cells)


def nice_step(seconds: float) -> int:
    """The largest round number of seconds (of minutes, hours, up to a day) that is not above
    this one; 1 at least."""
    return max((step for step in _STEPS if step <= min(seconds, DAY)), default=1)


def snapped(made: Timeline, at: float, step: int) -> float:
    """The moment nearest to ``at`` whose local time is a multiple of ``step`` seconds."""
    when = made.moment(at)
    if when is None:
        return at
    since = when - datetime.combine(when.date(), datetime.min.time())
    off = since.total_seconds() % step
    near = when - timedelta(seconds=off) if off * 2 < step else when + timedelta(seconds=step - off)
    return made.seconds(near)


def _ticks(made: Timeline, window: VisibleWindow) -> Iterable[tuple[datetime, str]]:
    first, last = made.moment(window.start), made.moment(window.end)
    if first is None or last is None:
        return
    for step in _STEPS:
        label = _label_of(step, step / window.each)
        if step / window.each >= len(label(first)) + 1 + _GAP:
            at = _aligned(first, step)
            while at <= last:
                yield at, label(at)
                at += timedelta(seconds=step)
            return
    for months in _MONTH_STEPS:
        if months * 30 * DAY / window.each >= len("Nov 2025") + 1 + _GAP:
            break
    count = (first.year * 12 + first.month - 1) // months * months
    while datetime.min.year * 12 <= count < datetime.max.year * 12:
        at = datetime(count // 12, count % 12 + 1, 1)
        if at > last:
            return
        yield at, f"{_MONTHS[at.month - 1]} {at.year}"
        count += months


def _aligned(first: datetime, step: int) -> datetime:
    midnight = datetime.combine(first.date(), datetime.min.time())
    if step >= DAY:
        # The first day of the calendar was a Monday: weeks begin with one.
        return midnight - timedelta(days=(first.toordinal() - 1) % (step // DAY))
    since = (first - midnight).total_seconds()
    return midnight + timedelta(seconds=since // step * step)


def _label_of(step: int, cells: float) -> Callable[[datetime], str]:
    def label(when: datetime) -> str:
        day = f"{when.day} {_MONTHS[when.month - 1]}"
        if step >= DAY:
            named = cells >= _WEEKDAY_CELLS and step == DAY
            return f"{_DAYS[when.weekday()]} {day}" if named else day
        if not (when.hour or when.minute or when.second):
            return day
        return f"{when:%H:%M:%S}" if step < MINUTE else f"{when:%H:%M}"

    return label


# --- how many at a time ---------------------------------------------------------------------


@frozen
class Stack:
    """Mean numbers at a time within one cell, by sign; ``total`` is their sum."""

    parts: tuple[tuple[Symbol, float], ...]
    total: float


def stacks(
    made: Timeline, window: VisibleWindow, sign_of: SignOf, order: Sequence[Symbol], gpus: bool
) -> list[Stack]:
    """How many ran at a time, for each cell: the mean over the cell, so that the area is the
    GPU-seconds (or with ``gpus`` false the seconds) that were used. ``order``: from the
    bottom up."""
    numbers: dict[Symbol, int] = {}
    sums: list[dict[int, float]] = [{} for _ in range(window.cells)]
    start, end, each = window.start, window.end, window.each
    for ran in made.ran:
        if ran.until <= start or ran.at >= end:
            continue
        weight = (ran.entry.gpus or 0) if gpus else 1
        number = numbers.setdefault(sign_of(ran.entry), len(numbers))
        for cell, seconds in _shares(ran.at, ran.until, window):
            found = sums[cell]
            found[number] = found.get(number, 0.0) + weight * seconds / each
    signs = list(numbers)
    place = {sign: at for at, sign in enumerate(order)}
    places = [place.get(sign, len(place)) for sign in signs]
    drawn = []
    for found in sums:
        parts = tuple((signs[at], found[at]) for at in sorted(found, key=places.__getitem__))
        drawn.append(Stack(parts, sum(found.values())))
    return drawn


_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"


def stacked_rows(columns: Sequence[Stack], top: int, height: int, ascii: bool) -> list[list[Cell]]:
    """``height`` rows of cells from the top down; ``top`` is what the full height stands for."""
    return [
        [_piece(column, top, level, height, ascii) for column in columns]
        for level in reversed(range(height))
    ]


def _piece(column: Stack, top: int, level: int, height: int, ascii: bool) -> Cell:
    eighths = round(column.total / top * height * 8) if top else 0
    if column.total > 0:
        eighths = max(1, eighths)
    here = max(0, min(8, eighths - 8 * level))
    if not here:
        return " ", None
    low, high = level * top / height, min(column.total, (level + 1) * top / height)
    below, most, sign = 0.0, -1.0, None
    for each, amount in column.parts:
        part = min(below + amount, high) - max(below, low)
        if part > most:
            most, sign = part, each
        below += amount
    if sign is None:
        return " ", None
    if ascii:
        return (sign.letter if here >= 4 or level == 0 else " "), sign
    return (sign.glyph if here == 8 else _EIGHTHS[here]), sign


def ceiling(columns: Iterable[Stack]) -> int:
    """What the full height of a chart of these stands for: a whole number, 1 at least."""
    return max(1, math.ceil(round(max((column.total for column in columns), default=0.0), 6)))
