"""Lines of the Timeline screen: headline, lanes, chart, legend, cursor detail.

Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from datetime import datetime
from typing import Final

from metlmon.model.states import State
from metlmon.stats.timeline import (
    CountStep,
    ExecutionGap,
    Lane,
    Timeline,
    TimelineSpan,
    Wait,
    job_states_at,
)
from metlmon.tables.timeline_text import (
    SIGNS,
    Cell,
    CellKind,
    Stack,
    VisibleWindow,
    chart_maximum,
    stack_rows,
)
from metlmon.text import formatting
from metlmon.text.formatting import OUTCOMES, STATES, Symbol, clip
from metlmon.text.spans import (
    ALARM,
    BOLD,
    DIM,
    GOOD,
    MOVING,
    NOTE,
    Line,
    TextStyle,
    first_that_fits,
    join,
    line,
    style_of,
    texture,
    wrap_parts,
)

CURSOR: Final = TextStyle(formatting.Colour.YELLOW, formatting.Weight.BOLD)
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


# --- header ---------------------------------------------------------------------------------


def clock(time: datetime | None, this_year: int | None) -> str:
    """Format a time with its weekday, since stalls cluster at weekends."""
    if time is None:
        return formatting.UNKNOWN
    return f"{_DAYS[time.weekday()]} {formatting.moment(time, this_year, seconds=True)}"


def headline(timeline: Timeline, room: int) -> Line:
    """Render the headline: the current stall, else the longest one or wait."""
    title = line(("Timeline", BOLD), "   ")
    if timeline.first is None:
        return title + line(("no event yet", DIM))
    if not timeline.steps:
        text = f"nothing has run yet, for {formatting.duration(timeline.length)}"
        return title + line((text, ALARM if timeline.waits else NOTE))
    # An interval of less than a second is no stall.
    if (
        timeline.steps[-1].jobs == 0
        and timeline.waits
        and timeline.length - timeline.steps[-1].position >= 1
    ):
        return title + _stalled_now(timeline.steps[-1], timeline, room)
    if timeline.gaps:
        return title + _past_stalls(timeline.gaps, room, formatting.year_of(timeline.last))
    busy = line(("never idle", GOOD))
    return title + join((busy, _longest_wait(timeline)), line("   "))


def _stalled_now(last_step: CountStep, timeline: Timeline, room: int) -> Line:
    counts = dict.fromkeys((State.HELD, State.IDLE), 0)
    for wait in timeline.waits:
        counts[wait.span.state] = counts.get(wait.span.state, 0) + 1
    waiting = ", ".join(f"{n} {STATES[state].word}" for state, n in counts.items() if n)
    lasted = formatting.duration(timeline.length - last_step.position)
    duration: Line = line((f"idle {lasted}", ALARM))
    this_year = formatting.year_of(timeline.last)
    since: Line = line((", since ", DIM), clock(last_step.time, this_year))
    jobs: Line = line((f": {waiting}", NOTE))
    return first_that_fits((duration + since + jobs, duration + jobs, duration), room - 11)


def _past_stalls(stalls: Sequence[ExecutionGap], room: int, this_year: int | None) -> Line:
    worst = max(stalls, key=lambda stall: stall.seconds)
    lasted = formatting.duration(worst.seconds)
    duration: Line = line((f"idle {lasted}", NOTE))
    interval: Line = line(", ", formatting.period(worst.start, worst.end, this_year))
    began: Line = line((" from ", DIM), formatting.moment(worst.start, this_year))
    if len(stalls) == 1:
        return first_that_fits((duration + interval, duration + began, duration), room - 11)
    total = formatting.duration(sum(stall.seconds for stall in stalls))
    times = formatting.number(len(stalls))
    rest: Line = line((f" (longest of {times}, {total} in total)", DIM))
    short: Line = line((f" (of {total} in total)", DIM))
    return first_that_fits(
        (
            duration + interval + rest,
            duration + interval + short,
            duration + interval,
            duration + began,
            duration,
        ),
        room - 11,
    )


def _longest_wait(timeline: Timeline) -> Line:
    if timeline.waits:
        wait = timeline.waits[0]
        return _wait_text(wait) + line((" so far", DIM))
    if timeline.longest_wait is not None:
        return line(("longest wait: ", DIM)) + _wait_text(timeline.longest_wait)
    return ()


def _wait_text(wait: Wait) -> Line:
    lasted = formatting.duration(wait.span.seconds)
    return line(
        (clip(wait.lane.name, 24), BOLD),
        f" {STATES[wait.span.state].word} for ",
        (lasted, NOTE),
    )


def totals(timeline: Timeline) -> Line:
    """Render the maximum and mean number of concurrent GPUs and jobs."""
    if timeline.length <= 0:
        return ()
    dot: Line = line((" · ", DIM))
    parts = []
    for name, maximum, seconds in (
        ("GPUs", timeline.max_gpus, timeline.gpu_seconds),
        ("jobs", timeline.max_jobs, timeline.job_seconds),
    ):
        mean = f"{seconds / timeline.length:.2f}"
        parts.append(
            line((f"{name} at a time ", DIM), f"{maximum}", (" max, ", DIM), mean, (" mean", DIM))
        )
    return join(parts, dot)


def legend(
    signs: Sequence[Symbol], kinds: Container[CellKind], room: int, sites: bool
) -> list[Line]:
    """Render the legend: work first, then the kinds of waiting that occur."""
    waiting_kinds = (CellKind.MOVING, CellKind.IDLE, CellKind.HELD, CellKind.STOPPED)
    keys = [_key(sign, letter=sites) for sign in signs]
    keys += [_key(SIGNS[kind]) for kind in waiting_kinds if kind in kinds]
    return wrap_parts(keys, line("  "), room)


def _key(sign: Symbol, letter: bool = False) -> Line:
    mark = f"{sign.letter}{sign.glyph}" if letter else sign.glyph * 2
    return line((mark, style_of(sign)), " ", (clip(sign.word, 24), DIM))


# --- lanes and chart ------------------------------------------------------------------------


def lane_line(
    cells: Sequence[Cell], cursor: int | None, selected: bool, known_until: int | None
) -> Line:
    """Render a lane.

    ``cursor`` is the cell of the time cursor; it covers the lane only if the lane is ``selected``.
    Cells after ``known_until`` lie after the displayed moment and are dimmed.
    """
    spans: list[tuple[str, TextStyle]] = []
    for index, (character, sign) in enumerate(cells):
        style = DIM if sign is None else style_of(sign)
        if sign is not None and known_until is not None and index > known_until:
            is_waiting = sign in _WAITING
            character, style = ("╌", "·")[is_waiting], DIM
        if index == cursor and selected:
            character, style = "┃", CURSOR
        elif index == cursor and sign is None:
            character, style = "│", DIM
        style = texture(style)
        if spans and spans[-1][1] == style:
            spans[-1] = (spans[-1][0] + character, style)
        else:
            spans.append((character, style))
    return line(*spans)


_WAITING: Final = (SIGNS[CellKind.IDLE], SIGNS[CellKind.MOVING])


_AXIS_LABEL: Final = re.compile(r"[^│ ]+(?: [^│ ]+)*")


def axis_line(axis: str, cursor: int | None) -> str:
    """Return the axis with the cursor mark.

    A label under the mark is left out: ``10 Nov`` without a digit would be another day.
    """
    if cursor is None or not 0 <= cursor < len(axis):
        return axis
    for label in _AXIS_LABEL.finditer(axis):
        if label.start() <= cursor < label.end():
            axis = axis[: label.start()] + " " * len(label[0]) + axis[label.end() :]
    return axis[:cursor] + "▼" + axis[cursor + 1 :]


def chart(
    columns: Sequence[Stack],
    height: int,
    indent: int,
    unit: str,
    cursor: int | None,
    known_until: int | None,
) -> list[Line]:
    """Render the concurrency chart in ``height`` lines, with a scale at the left."""
    if height <= 0:
        return []
    top = chart_maximum(columns)
    unit = unit.removesuffix("s") if top == 1 else unit
    lines = []
    for index, row in enumerate(stack_rows(columns, top, height)):
        label = f"{top} {unit}" if index == 0 else "0" if index == height - 1 else ""
        if len(label) > indent - 2:
            label = f"{top}"
        margin: Line = line((f"{label:>{indent - 1}} ", DIM))
        lines.append(margin + lane_line(row, cursor, False, known_until))
    return lines


# --- the cursor -----------------------------------------------------------------------------


def cursor_moment(timeline: Timeline, seconds: float) -> Line:
    """Render the time of the cursor and the state of the ensemble then."""
    step = timeline.step_at(seconds)
    jobs, gpus = (0, 0) if step is None else (step.jobs, step.gpus)
    activity = "idle"
    if jobs:
        gpu_text = formatting.count(gpus, "GPU") if timeline.max_gpus else ""
        job_text = formatting.count(jobs, "job")
        activity = f"{gpu_text} in {job_text} running" if gpu_text else f"{job_text} running"
    counts = job_states_at(timeline, seconds)
    shown_states = (State.TRANSFERRING_INPUT, State.IDLE, State.HELD)
    parts = [
        line((clock(timeline.time_at(seconds), formatting.year_of(timeline.last)), BOLD)),
        line((activity, MOVING if jobs else NOTE)),
    ]
    for state in shown_states:
        n = counts.get(state, 0)
        if n:
            sign = STATES[state]
            parts.append(line((f"{sign.glyph} {n} {sign.word}", style_of(sign))))
    return join(parts, line("   "))


def lane_state_line(
    timeline: Timeline,
    lane: Lane,
    at: float,
    historical: bool,
    room: int,
    rescue: int | None = None,
) -> Line:
    """Render the state of the selected run at the time of the cursor.

    With ``historical`` nothing is shown that became known later. ``rescue`` is the number of its
    DAG's rescue file.
    """
    this_year = formatting.year_of(timeline.last)
    name: Line = line((clip(lane.name, 24), BOLD), "  ")
    spans = lane.spans_at(at)
    if not lane.spans and lane.state is State.COMPLETED:
        return name + line((formatting.done_without_job(rescue), DIM))
    if not spans:
        return name + line((_between(timeline, lane, at, historical), DIM))
    span = spans[0]
    state = name + _state_text(span)
    lasted = line((" for ", DIM), formatting.duration(at - span.start_position))
    since = line((" since ", DIM), formatting.moment(span.start, this_year, seconds=True))
    total: Line = ()
    if not historical:
        total = (
            line((", ongoing", DIM))
            if span.end is None
            else line((" of ", DIM), formatting.duration(span.seconds))
        )
    outcome = _outcome_text(span, historical)
    more: Line = line((f"   +{len(spans) - 1} more", DIM)) if len(spans) > 1 else ()
    return first_that_fits(
        (
            state + since + lasted + total + outcome + more,
            state + lasted + total + outcome + more,
            state + lasted + total + outcome,
            state + lasted + total,
            state,
        ),
        room,
    )


def _state_text(span: TimelineSpan) -> Line:
    sign = STATES[span.state]
    text = line((sign.text(), style_of(sign)))
    if span.epoch is not None:
        prefix: Line = () if span.training else line((" side node of", DIM))
        text += prefix + line((" epoch ", DIM), str(formatting.epoch_number(span.epoch)))
    execution = span.execution
    if execution is not None:
        text += line((" at ", DIM), clip(execution.site, 24) if execution.site else "unknown site")
        text += line(" ", (formatting.gpus(execution.gpu, execution.gpus), DIM))
        text += line((f" try {execution.attempt}", DIM)) if execution.attempt > 1 else ()
    if span.hold_reason:
        text += line((f": {clip(span.hold_reason, 48)}", NOTE))
    return text


def _outcome_text(span: TimelineSpan, historical: bool) -> Line:
    execution = span.execution
    if execution is None or historical or execution.end is None:
        return ()
    sign = OUTCOMES[execution.outcome]
    return line((", then ", DIM), (sign.text(), style_of(sign)))


def _between(timeline: Timeline, lane: Lane, at: float, historical: bool) -> str:
    previous, following = lane.span_before(at), lane.span_after(at)
    if previous is None:
        if following is None or historical:
            return "not submitted yet" if lane.spans else "never submitted"
        wait = formatting.duration(following.start_position - at)
        return f"not submitted yet: that comes {wait} later"
    end = formatting.moment(previous.end, formatting.year_of(timeline.last), seconds=True)
    ended = f"no job queued since {end}" if previous.end else ""
    lasted = formatting.duration(at - previous.end_position)
    last = (
        "" if previous.epoch is None else f"; last: epoch {formatting.epoch_number(previous.epoch)}"
    )
    if following is None and not historical and lane.state is State.COMPLETED and previous.end:
        state = "done" if lane.symbol is None else lane.symbol.word
        return f"{state} since {end}, for {lasted}{last}"
    if following is not None and not historical:
        gap = formatting.duration(following.start_position - previous.end_position)
        return f"{ended}, for {lasted} of {gap}{last}"
    return f"{ended}, for {lasted}{last}"


def scale(window: VisibleWindow) -> Line:
    """Render the duration of a cell; a bar is the mean over its cell."""
    seconds = window.cell_seconds
    text = f"{seconds:.2g}s" if seconds < 10 else formatting.duration(seconds)
    return line((f"a cell is {text}, its bar the mean", DIM))
