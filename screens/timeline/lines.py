"""The lines of the timeline: what stalled, lanes, legend, and what the cursor is on. Pure
functions."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime
from typing import Final

from metlmon.model.states import State
from metlmon.stats.timeline import CountStep, Lane, Stall, Timeline, TimelineSpan, Wait, in_queue
from metlmon.stats.timeline_text import (
    SIGNS,
    Cell,
    CellKind,
    Stack,
    VisibleWindow,
    ceiling,
    stacked_rows,
)
from metlmon.text import formatting
from metlmon.text.formatting import OUTCOMES, STATES, Symbol, plain
from screens.widgets.spans import (
    ALARM,
    BOLD,
    DIM,
    GOOD,
    MOVING,
    NOTE,
    Line,
    TextStyle,
    first_that_fits,
    joined,
    line,
    packed,
    style_of,
    texture,
)

CURSOR: Final = TextStyle(formatting.Colour.YELLOW, formatting.Weight.BOLD)
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


# --- the first lines ------------------------------------------------------------------------


def clock(when: datetime | None, ascii: bool) -> str:
    """``Mon 2025-11-10 14:00:00``: the day's name, since what stalls does so at weekends."""
    if when is None:
        return formatting.unknown(ascii)
    return f"{_DAYS[when.weekday()]} {formatting.moment(when, ascii)}"


def stretch(start: datetime | None, end: datetime | None, ascii: bool) -> str:
    """From one moment to another, the date once where it is the same."""
    if start is None or end is None:
        return formatting.unknown(ascii)
    arrow = "->" if ascii else "→"
    until = f"{end:%H:%M:%S}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M:%S}"
    return f"{start:%Y-%m-%d %H:%M:%S} {arrow} {until}"


def answer(made: Timeline, cells: int, ascii: bool) -> Line:
    """When did it stall: what stands still now, else the longest stretch without work, else
    the longest wait."""
    title = line(("Timeline", BOLD), "   ")
    if made.first is None:
        return title + line(("nothing has happened yet", DIM))
    if not made.steps:
        told = f"nothing has run yet, for {formatting.duration(made.length, ascii)}"
        return title + line((told, ALARM if made.waits else NOTE))
    # What follows upon another within the second does not stand.
    if made.steps[-1].jobs == 0 and made.waits and made.length - made.steps[-1].at >= 1:
        return title + _stands(made.steps[-1], made, cells, ascii)
    if made.stalls:
        return title + _stalled(made.stalls, cells, ascii)
    busy = line(("something ran all the time", GOOD))
    return title + joined((busy, _waited(made, ascii)), line("   "))


def _stands(over: CountStep, made: Timeline, cells: int, ascii: bool) -> Line:
    counts = dict.fromkeys((State.HELD, State.IDLE), 0)
    for wait in made.waits:
        counts[wait.span.state] = counts.get(wait.span.state, 0) + 1
    waiting = ", ".join(f"{n} {STATES[state].word}" for state, n in counts.items() if n)
    lasted = formatting.duration(made.length - over.at, ascii)
    told: Line = line((f"nothing runs for {lasted}", ALARM))
    since: Line = line((", since ", DIM), clock(over.time, ascii))
    who: Line = line((f": {waiting}", NOTE))
    return first_that_fits((told + since + who, told + who, told), cells - 11)


def _stalled(stalls: Sequence[Stall], cells: int, ascii: bool) -> Line:
    worst = max(stalls, key=lambda stall: stall.seconds)
    lasted = formatting.duration(worst.seconds, ascii)
    told: Line = line((f"nothing ran for {lasted}", NOTE))
    when: Line = line(", ", stretch(worst.start, worst.end, ascii))
    began: Line = line((" from ", DIM), f"{worst.start:%m-%d %H:%M}")
    if len(stalls) == 1:
        return first_that_fits((told + when, told + began, told), cells - 11)
    total = formatting.duration(sum(stall.seconds for stall in stalls), ascii)
    times = formatting.number(len(stalls), ascii)
    rest: Line = line((f" (longest of {times} times, {total} in all)", DIM))
    short: Line = line((f" (of {total} in all)", DIM))
    return first_that_fits(
        (told + when + rest, told + when + short, told + when, told + began, told), cells - 11
    )


def _waited(made: Timeline, ascii: bool) -> Line:
    if made.waits:
        wait = made.waits[0]
        return _wait(wait, ascii) + line((" so far", DIM))
    if made.longest_wait is not None:
        return line(("longest wait: ", DIM)) + _wait(made.longest_wait, ascii)
    return ()


def _wait(wait: Wait, ascii: bool) -> Line:
    lasted = formatting.duration(wait.span.seconds, ascii)
    return line(
        (plain(wait.lane.name, 24, ascii), BOLD),
        f" {STATES[wait.span.state].word} for ",
        (lasted, NOTE),
    )


def totals(made: Timeline, ascii: bool) -> Line:
    """How many ran at a time: at most, and in the mean over the whole length."""
    if made.length <= 0:
        return ()
    dot: Line = line((" - " if ascii else " · ", DIM))
    parts = []
    for name, most, seconds in (
        ("GPUs", made.max_gpus, made.gpu_seconds),
        ("jobs", made.max_jobs, made.job_seconds),
    ):
        mean = f"{seconds / made.length:.2f}"
        parts.append(
            line((f"{name} at a time ", DIM), f"{most}", (" max, ", DIM), mean, (" mean", DIM))
        )
    return joined(parts, dot)


def legend(
    signs: Sequence[Symbol], kinds: Container[CellKind], cells: int, ascii: bool, sites: bool
) -> list[Line]:
    """What the textures mean: of work first, then of waiting as far as there is such."""
    rest = (CellKind.MOVING, CellKind.IDLE, CellKind.HELD, CellKind.STOPPED)
    told = [_key(sign, ascii, letter=sites) for sign in signs]
    told += [_key(SIGNS[kind], ascii) for kind in rest if kind in kinds]
    return packed(told, line("  "), cells)


def _key(sign: Symbol, ascii: bool, letter: bool = False) -> Line:
    mark = f"{sign.letter}{sign.glyph}" if letter and not ascii else sign.mark(ascii) * 2
    return line((mark, style_of(sign)), " ", (plain(sign.word, 24, ascii), DIM))


# --- lanes and chart ------------------------------------------------------------------------


def lane_line(
    cells: Sequence[Cell], cursor: int | None, selected: bool, known: int | None, ascii: bool
) -> Line:
    """A lane. ``cursor``: the cell that the cursor in time is in; in the row under the other
    cursor it covers what is there. Cells behind ``known`` were not known then: they are a
    shadow of themselves."""
    spans: list[tuple[str, TextStyle]] = []
    for at, (character, sign) in enumerate(cells):
        how = DIM if sign is None else style_of(sign)
        if sign is not None and known is not None and at > known:
            waits = sign in _WAITING
            character, how = ((":", ".") if ascii else ("╌", "·"))[waits], DIM
        if at == cursor and selected:
            character, how = "|" if ascii else "┃", CURSOR
        elif at == cursor and sign is None:
            character, how = "|" if ascii else "│", DIM
        how = texture(how)
        if spans and spans[-1][1] == how:
            spans[-1] = (spans[-1][0] + character, how)
        else:
            spans.append((character, how))
    return line(*spans)


_WAITING: Final = (SIGNS[CellKind.IDLE], SIGNS[CellKind.MOVING])


def axis_line(axis: str, cursor: int | None, ascii: bool) -> str:
    """The axis, with the cursor's sign in it."""
    if cursor is None or not 0 <= cursor < len(axis):
        return axis
    return axis[:cursor] + ("v" if ascii else "▼") + axis[cursor + 1 :]


def chart(
    columns: Sequence[Stack],
    height: int,
    indent: int,
    unit: str,
    cursor: int | None,
    known: int | None,
    ascii: bool,
) -> list[Line]:
    """How many ran at a time, under the lanes: ``height`` lines with a scale at the left."""
    if height <= 0:
        return []
    top = ceiling(columns)
    unit = unit.removesuffix("s") if top == 1 else unit
    lines = []
    for at, row in enumerate(stacked_rows(columns, top, height, ascii)):
        label = f"{top} {unit}" if at == 0 else "0" if at == height - 1 else ""
        if len(label) > indent - 2:
            label = f"{top}"
        left: Line = line((f"{label:>{indent - 1}} ", DIM))
        lines.append(left + lane_line(row, cursor, False, known, ascii))
    return lines


# --- the cursor -----------------------------------------------------------------------------


def around(made: Timeline, at: float, ascii: bool) -> Line:
    """The moment under the cursor, and how the whole ensemble stood then."""
    step = made.step(at)
    jobs, gpus = (0, 0) if step is None else (step.jobs, step.gpus)
    ran = "nothing ran"
    if jobs:
        told = formatting.count(gpus, "GPU", ascii=ascii) if made.max_gpus else ""
        of = formatting.count(jobs, "job", ascii=ascii)
        ran = f"{told} in {of} ran" if told else f"{of} ran"
    counts = in_queue(made, at)
    others = (State.TRANSFERRING_INPUT, State.IDLE, State.HELD)
    parts = [line((clock(made.moment(at), ascii), BOLD)), line((ran, MOVING if jobs else NOTE))]
    for state in others:
        n = counts.get(state, 0)
        if n:
            sign = STATES[state]
            parts.append(line((f"{sign.mark(ascii)} {n} {sign.word}", style_of(sign))))
    return joined(parts, line("   "))


def doing(
    made: Timeline,
    lane: Lane,
    at: float,
    then: bool,
    cells: int,
    ascii: bool,
    rescue: int | None = None,
) -> Line:
    """What the run under the cursor was doing then. With ``then`` nothing is told that was
    only known later. ``rescue``: the number of its DAG's rescue file."""
    name: Line = line((plain(lane.name, 24, ascii), BOLD), "  ")
    spans = lane.then(at)
    if not lane.spans and lane.state is State.COMPLETED:
        return name + line((formatting.done_without_job(rescue), DIM))
    if not spans:
        return name + line((_between(made, lane, at, then, ascii), DIM))
    span = spans[0]
    what = name + _what(span, ascii)
    lasted = line((" for ", DIM), formatting.duration(at - span.at, ascii))
    since = line((" since ", DIM), f"{span.start:%m-%d %H:%M:%S}")
    of: Line = ()
    if not then:
        of = (
            line((" and still", DIM))
            if span.end is None
            else line((" of ", DIM), formatting.duration(span.seconds, ascii))
        )
    came = _came(span, then, ascii)
    more: Line = line((f"   +{len(spans) - 1} more", DIM)) if len(spans) > 1 else ()
    return first_that_fits(
        (
            what + since + lasted + of + came + more,
            what + lasted + of + came + more,
            what + lasted + of + came,
            what + lasted + of,
            what,
        ),
        cells,
    )


def _what(span: TimelineSpan, ascii: bool) -> Line:
    sign = STATES[span.state]
    told = line((sign.text(ascii), style_of(sign)))
    if span.epoch is not None:
        side: Line = () if span.training else line((" side node of", DIM))
        told += side + line((" epoch ", DIM), str(span.epoch))
    ran = span.execution
    if ran is not None:
        told += line((" at ", DIM), plain(ran.site, 24, ascii) if ran.site else "unknown site")
        told += line(" ", (formatting.gpus(ran.gpu, ran.gpus, ascii), DIM))
        told += line((f" try {ran.attempt}", DIM)) if ran.attempt > 1 else ()
    if span.why:
        told += line((f": {plain(span.why, 48, ascii)}", NOTE))
    return told


def _came(span: TimelineSpan, then: bool, ascii: bool) -> Line:
    ran = span.execution
    if ran is None or then or ran.end is None:
        return ()
    sign = OUTCOMES[ran.outcome]
    return line((", then ", DIM), (sign.text(ascii), style_of(sign)))


def _between(made: Timeline, lane: Lane, at: float, then: bool, ascii: bool) -> str:
    before, after = lane.before(at), lane.after(at)
    if before is None:
        if after is None or then:
            return "not submitted yet" if lane.spans else "never submitted"
        wait = formatting.duration(after.at - at, ascii)
        return f"not submitted yet: that comes {wait} later"
    ended = f"nothing in the queue since {before.end:%m-%d %H:%M:%S}" if before.end else ""
    lasted = formatting.duration(at - before.until, ascii)
    last = "" if before.epoch is None else f"; epoch {before.epoch} was the last"
    if after is None and not then and lane.state is State.COMPLETED and before.end:
        word = "done" if lane.sign is None else lane.sign.word
        return f"{word} since {before.end:%m-%d %H:%M:%S}, for {lasted}{last}"
    if after is not None and not then:
        return (
            f"{ended}, for {lasted} of {formatting.duration(after.at - before.until, ascii)}{last}"
        )
    return f"{ended}, for {lasted}{last}"


def scale(window: VisibleWindow, ascii: bool) -> Line:
    """How much time one cell is: the highest number at a time is seldom that of a whole cell."""
    each = window.each
    told = f"{each:.2g} s" if each < 10 else formatting.duration(each, ascii)
    return line((f"a cell is {told}, its bar the mean", DIM))
