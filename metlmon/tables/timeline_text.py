"""Timeline as characters: symbols of the cells, axis, concurrency chart.

Independent of the terminal: a cell is a symbol (glyph, letter, colour) that screens and commands
render in their own way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from metlmon.model.states import State
from metlmon.snapshot.records import Execution
from metlmon.stats.timeline import Lane, Timeline, TimelineSpan
from metlmon.stats.windows import MONTHS, round_times
from metlmon.text.formatting import DAY, HOUR, MINUTE, Colour, Symbol, Weight, clip, epoch_number
from metlmon.text.spans import DIM, Line, join, line, style_of, wrap_parts

GOODPUT: Final = Symbol("█", "goodput", Colour.GREEN)
BADPUT: Final = Symbol("▚", "badput", Colour.ORANGE)
RUNNING: Final = Symbol("▓", "running", Colour.SKY)
TRANSFER: Final = Symbol("▒", "transfer", Colour.BLUE)
IDLE: Final = Symbol("░", "idle", Colour.GREY)
HELD: Final = Symbol("╳", "held", Colour.VERMILLION, Weight.BOLD)
INTERRUPTED: Final = Symbol("┄", "interrupted", Colour.PURPLE)
"""Textures as in other bars. Glyph, letter and colour are each sufficient to distinguish them."""

WORK: Final = (GOODPUT, RUNNING, BADPUT)
"""The outcomes of executions, in a stack from the bottom up."""

WAITING: Final = (TRANSFER, IDLE, HELD, INTERRUPTED)

_RANKS: Final[Mapping[Symbol, int]] = {HELD: 0, INTERRUPTED: 1, TRANSFER: 3, IDLE: 4}
_EXECUTION_RANK: Final = 2
"""Of several symbols in a cell, the one with the lowest rank is shown."""

_SYMBOLS: Final[Mapping[State, Symbol]] = {
    State.TRANSFERRING_INPUT: TRANSFER,
    State.STARTING: TRANSFER,
    State.RUNNING: RUNNING,
    State.TRANSFERRING_OUTPUT: TRANSFER,
    State.SUSPENDED: INTERRUPTED,
    State.DISCONNECTED: INTERRUPTED,
    State.HELD: HELD,
}
"""The symbols of states; all other states are idle."""

# A local name: in Python 3.11 each access to an Enum member is a function call.
_RUNNING: Final = State.RUNNING

Sites = Mapping[str | None, Symbol]
"""The symbol of each site, from the bottom of a stack up."""


def span_symbol(span: TimelineSpan, sites: Sites | None = None) -> Symbol:
    """The symbol of a span; that of an execution by outcome, or by its site."""
    if span.state is _RUNNING and span.execution is not None:
        return _execution_symbol(span.execution, span.end, sites)
    return _SYMBOLS.get(span.state, IDLE)


def _execution_symbol(entry: Execution, end: datetime | None, sites: Sites | None) -> Symbol:
    """The symbol of the part up to ``end``: what its last checkpoint stored, or what was lost."""
    if sites is not None:
        return sites[entry.site]
    if entry.checkpoint is not None and end is not None and entry.lost:
        return GOODPUT if end <= entry.checkpoint else BADPUT
    return {"goodput": GOODPUT, "badput": BADPUT, "running": RUNNING}[entry.kind]


def waiting_symbols(timeline: Timeline) -> frozenset[Symbol]:
    """The symbols of all spans of the lanes except executions."""
    states = {span.state for lane in timeline.lanes for span in lane.spans}
    return frozenset(_SYMBOLS.get(state, IDLE) for state in states - {_RUNNING})


def legend(waiting: Container[Symbol], room: int, sites: Sites | None = None) -> list[Line]:
    """Render the legend: work first, then the kinds of waiting that occur.

    Marks are two cells wide if all keys fit into one line then.
    """
    marks = [(sign, "") for sign in WORK]
    if sites is not None:
        marks = [(sign, sign.letter) for sign in sites.values()]
    marks += [(sign, "") for sign in WAITING if sign in waiting]
    lines: list[Line] = []
    for cells in (2, 1):
        keys = [_key(sign, letter or sign.glyph * (cells - 1)) for sign, letter in marks]
        lines = wrap_parts(keys, line("  "), room)
        if len(lines) == 1:
            break
    return lines


def _key(sign: Symbol, before: str) -> Line:
    """Mark and word of a sign; ``before``: what is before its glyph."""
    return line((f"{before}{sign.glyph}", style_of(sign)), " ", (clip(sign.word, 24), DIM))


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
"""Seven colours and eight textures: 56 sites without repetition. Excludes the colour of holds."""

_LETTERS: Final = "ABCDEFGIJKLMNOPQRSTUVWXYZ0123456789"
"""Without H, which looks like a hold."""


def site_symbols(sites: Sequence[str | None]) -> dict[str | None, Symbol]:
    """A symbol for each site; its letter is the first free one of its name."""
    signs: dict[str | None, Symbol] = {}
    taken: set[str] = set()
    for at, site in enumerate(sites):
        name = clip(site, 40) if site else "?"
        wanted = [c for c in (*name.upper(), *_LETTERS) if c in _LETTERS and c not in taken]
        letter = "?" if site is None else wanted[0] if wanted else "#"
        taken.add(letter)
        texture, colour = _TEXTURES[at % len(_TEXTURES)], _COLOURS[at % len(_COLOURS)]
        word = clip(site, 40) if site else "site not known"
        signs[site] = Symbol(texture, word, colour, letter=letter)
    return signs


# --- cells ----------------------------------------------------------------------------------


class VisibleWindow(Struct, frozen=True):
    """The visible part of the timeline: ``cells`` of ``cell_seconds``, from ``start``."""

    start: float
    cell_seconds: float
    cells: int

    @property
    def end(self) -> float:
        return self.start + self.cell_seconds * self.cells

    def cell(self, at: float) -> int:
        """The cell of a position; outside 0 … cells-1 if it is not visible."""
        return math.floor((at - self.start) / self.cell_seconds)


MIN_SECONDS: Final = 10.0
"""Minimum length of the window of a whole timeline: a single event has no length."""


def full_window(timeline: Timeline, cells: int) -> VisibleWindow:
    return VisibleWindow(0.0, max(timeline.seconds, MIN_SECONDS) / max(1, cells), max(1, cells))


def lane_cells(
    lane: Lane, window: VisibleWindow, sites: Sites | None = None
) -> list[Symbol | None]:
    """The symbol of each cell of a lane; None where no job was in the queue.

    A cell with several spans shows the kind of the highest priority: holds, suspension and lost
    connections, executions, transfers, waiting in the queue. Among equal ones the longest wins.
    A hold of a minute thus shows in a cell of a day, and a failure of a second does not hide
    hours of good work.
    """
    best: list[dict[Symbol, float]] = [{} for _ in range(window.cells)]
    for span in lane.spans_between(window.start, window.end):
        sign = span_symbol(span, sites)
        for cell, seconds in _cell_overlaps(span.start_position, span.end_position, window):
            best[cell][sign] = best[cell].get(sign, 0.0) + seconds
    return [
        min(weights, key=lambda sign: (_RANKS.get(sign, _EXECUTION_RANK), -weights[sign]))
        if weights
        else None
        for weights in best
    ]


def _cell_overlaps(at: float, until: float, window: VisibleWindow) -> list[tuple[int, float]]:
    """The cells that an interval overlaps, with the seconds in each.

    An interval without length (it has just begun) yields its cell with 0 seconds.
    """
    start, each = window.start, window.cell_seconds
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


def cell_characters(cells: Sequence[Symbol | None], sites: Sites | None = None) -> list[Cell]:
    """One character per cell; a site's letter marks its start."""
    letters = frozenset() if sites is None else frozenset(sites.values())
    out: list[Cell] = []
    for at, sign in enumerate(cells):
        if sign is None:
            out.append((" ", None))
            continue
        begins = at == 0 or cells[at - 1] != sign
        continues = at + 1 < len(cells) and cells[at + 1] == sign
        label = sign in letters and begins and continues
        out.append((sign.letter if label else sign.glyph, sign))
    return out


def epoch_labels(lane: Lane, window: VisibleWindow) -> str:
    """The epoch numbers at the start of each epoch, where there is room."""
    seen: set[int] = set()
    out = ""
    for span in lane.spans_between(window.start, window.end):
        if span.epoch is None or not span.training or span.epoch in seen:
            continue
        if span.end_position <= window.start:
            continue
        seen.add(span.epoch)
        at, label = max(0, window.cell(span.start_position)), str(epoch_number(span.epoch))
        if at >= len(out) + (1 if out else 0) and at + len(label) <= window.cells:
            out = out.ljust(at) + label
    return out


# --- the axis -------------------------------------------------------------------------------

TIME_STEPS: Final = (
    *(n * MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * HOUR for n in (1, 2, 3, 6, 12)),
    *(n * DAY for n in (1, 2, 7, 14)),
)
"""Seconds between two ticks; beyond, months."""

_STEPS: Final = (1, 2, 5, 10, 15, 30, *TIME_STEPS)

_MONTH_STEPS: Final = (1, 3, 6, 12, 60, 120)
DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WEEKDAY_CELLS: Final = 14
"""Minimum cells per day for the name of the weekday."""

_GAP: Final = 2


def axis(timeline: Timeline, window: VisibleWindow) -> str:
    """The axis: ticks with local times, as dense as their labels allow."""
    out = ""
    for when, label in _ticks(timeline, window):
        at = window.cell(timeline.position_of(when))
        text = f"│{label}"
        if 0 <= at < window.cells and at >= len(out) + (1 if out else 0):
            out = out.ljust(at) + (text if at + len(text) <= window.cells else "│")
    return out.ljust(window.cells)


def nice_step(seconds: float) -> int:
    """The largest round step (up to a day) that is not above ``seconds``; at least 1."""
    return max((step for step in _STEPS if step <= min(seconds, DAY)), default=1)


def snap_to_step(timeline: Timeline, at: float, step: int) -> float:
    """The position nearest to ``at`` whose local time is a multiple of ``step``."""
    when = timeline.time_at(at)
    if when is None:
        return at
    since = when - datetime.combine(when.date(), datetime.min.time())
    excess = since.total_seconds() % step
    shift = -excess if excess * 2 < step else step - excess
    return timeline.position_of(when + timedelta(seconds=shift))


def _ticks(timeline: Timeline, window: VisibleWindow) -> Iterable[tuple[datetime, str]]:
    first, last = timeline.time_at(window.start), timeline.time_at(window.end)
    if first is None or last is None:
        return
    for step in _STEPS:
        label = _label_of(step, step / window.cell_seconds)
        if step / window.cell_seconds >= len(label(first)) + 1 + _GAP:
            yield from ((when, label(when)) for when in round_times(first, last, seconds=step))
            return
    needed = len("Nov 2025") + 1 + _GAP
    months = next(
        (n for n in _MONTH_STEPS if n * 30 * DAY / window.cell_seconds >= needed), _MONTH_STEPS[-1]
    )
    for when in round_times(first, last, months=months):
        yield when, f"{MONTHS[when.month - 1][:3]} {when.year}"


def _label_of(step: int, cells: float) -> Callable[[datetime], str]:
    def label(when: datetime) -> str:
        day = f"{when.day} {MONTHS[when.month - 1][:3]}"
        if step >= DAY:
            named = cells >= _WEEKDAY_CELLS and step == DAY
            return f"{DAYS[when.weekday()]} {day}" if named else day
        if not (when.hour or when.minute or when.second):
            return day
        return f"{when:%H:%M:%S}" if step < MINUTE else f"{when:%H:%M}"

    return label


# --- concurrency ----------------------------------------------------------------------------


Stack = Mapping[Symbol, float]
"""Mean concurrency within one cell by symbol, from the bottom up."""


def stacks(
    timeline: Timeline, window: VisibleWindow, sites: Sites | None = None, *, gpus: bool
) -> list[Stack]:
    """The mean concurrency in each cell, so that the area is the GPU-seconds used.

    With ``gpus`` false: the seconds. By outcome, or by the symbols of ``sites``.
    """
    sums: list[dict[Symbol, float]] = [{} for _ in range(window.cells)]
    for ran in timeline.executions:
        weight = (ran.gpus or 0) if gpus else 1
        start = max(0.0, timeline.position_of(ran.start))
        last = ran.end or timeline.last
        ends = [(ran.end, timeline.seconds if last is None else timeline.position_of(last))]
        if ran.stored:
            ends.insert(0, (ran.checkpoint, start + ran.stored))
        for when, end in ends:
            sign = _execution_symbol(ran, when, sites)
            for cell, seconds in _cell_overlaps(start, end, window):
                share = weight * seconds / window.cell_seconds
                sums[cell][sign] = sums[cell].get(sign, 0.0) + share
            start = end
    order = WORK if sites is None else tuple(sites.values())
    position = {sign: at for at, sign in enumerate(order)}
    return [
        dict(sorted(weights.items(), key=lambda each: position.get(each[0], len(position))))
        for weights in sums
    ]


EIGHTHS: Final = " ▁▂▃▄▅▆▇█"


def filled_eighths(value: float, top: float, level: int, height: int) -> int:
    """The eighths of a cell that a bar fills at a level of ``height``; at least one if not 0."""
    eighths = round(value / top * height * 8) if top else 0
    return max(0, min(8, max(eighths, value > 0) - 8 * level))


def _stack_cell(column: Stack, top: int, level: int, height: int) -> Cell:
    total = sum(column.values())
    filled = filled_eighths(total, top, level, height)
    if not filled:
        return " ", None
    low, high = level * top / height, min(total, (level + 1) * top / height)
    below, most, sign = 0.0, -1.0, None
    for each, amount in column.items():
        part = min(below + amount, high) - max(below, low)
        if part > most:
            most, sign = part, each
        below += amount
    if sign is None:
        return " ", None
    return (sign.glyph if filled == 8 else EIGHTHS[filled]), sign


def chart_maximum(columns: Iterable[Stack]) -> int:
    """The value of the full height of a chart: an integer, at least 1."""
    highest = max((sum(column.values()) for column in columns), default=0.0)
    return max(1, math.ceil(round(highest, 6)))


def chart(
    columns: Sequence[Stack],
    height: int,
    indent: int,
    unit: str,
    draw: Callable[[Sequence[Cell]], Line],
) -> list[Line]:
    """The stacks in ``height`` lines, each by ``draw``, with a scale at the left."""
    top = chart_maximum(columns)
    unit = unit.removesuffix("s") if top == 1 else unit
    lines = []
    for index in range(height):
        row = [_stack_cell(column, top, height - 1 - index, height) for column in columns]
        label = f"{top} {unit}" if index == 0 else "0" if index == height - 1 else ""
        if len(label) > indent - 2:
            label = f"{top}"
        lines.append(line((f"{label:>{indent - 1}} ", DIM)) + draw(row))
    return lines


def totals(timeline: Timeline) -> Line:
    """The maximum and the mean number of concurrent GPUs, if any, and jobs."""
    gpus, jobs = (timeline.max_gpus, timeline.mean_gpus), (timeline.max_jobs, timeline.mean_jobs)
    parts = [
        line((f"{name} at a time ", DIM), f"{most}", (" max, ", DIM), f"{mean:.2f}", (" mean", DIM))
        for name, (most, mean) in {"GPUs": gpus, "jobs": jobs}.items()
        if mean is not None and (most or name == "jobs")
    ]
    return join(parts, line((" · ", DIM)))
