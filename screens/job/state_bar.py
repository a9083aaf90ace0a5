"""A job's states over time: a bar, and the time in each state. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from metlmon.model.states import TERMINAL, State
from metlmon.snapshot.types import JobView
from metlmon.text import formatting
from metlmon.text.formatting import STATES
from metlmon.text.spans import DIM, Line, justify, line, style_of, wrap_parts
from screens.overview.header import seconds_ago

_TEXTURE: Final[Mapping[State, str]] = {
    State.IDLE: "░",
    State.TRANSFERRING_INPUT: "▒",
    State.STARTING: "▒",
    State.RUNNING: "█",
    State.TRANSFERRING_OUTPUT: "▓",
    State.HELD: "╳",
    State.SUSPENDED: "┄",
    State.DISCONNECTED: "┄",
}


class StateSpan(Struct, frozen=True):
    """A period of a job in one state, in seconds since its first event."""

    state: State
    start: float
    end: float


def spans_by_state(view: JobView, as_of: datetime | None) -> list[StateSpan]:
    """The states of a job in order, up to its end or ``as_of``."""
    if not view.states:
        return []
    origin = view.states[0][0]
    spans: list[StateSpan] = []
    state, span_start = view.states[0][1], 0.0
    for when, next_state in view.states[1:]:
        seconds = seconds_ago(when, origin)
        if seconds is not None and seconds > span_start:
            spans.append(StateSpan(state, span_start, seconds))
            span_start = seconds
        # An event with an earlier time stamp does not move time backwards.
        state = next_state
    end = seconds_ago(as_of, origin)
    if state not in TERMINAL and end is not None and end > span_start:
        spans.append(StateSpan(state, span_start, end))
    return spans


def state_bar(state_spans: Sequence[StateSpan], cells: int) -> Line:
    """The spans as one bar; each cell shows the state that took most of its time."""
    if not state_spans or cells <= 0:
        return ()
    end = state_spans[-1].end
    spans: list[tuple[str, State]] = []
    for cell in range(cells):
        low, high = end * cell / cells, end * (cell + 1) / cells
        state = max(state_spans, key=lambda span: min(span.end, high) - max(span.start, low)).state
        character = _TEXTURE.get(state, "·")
        if spans and spans[-1][1] is state:
            spans[-1] = (spans[-1][0] + character, state)
        else:
            spans.append((character, state))
    return line(*((character, style_of(STATES[state])) for character, state in spans))


def state_lines(
    view: JobView, as_of: datetime | None, cells: int, this_year: int | None = None
) -> list[Line]:
    """The bar, its start and end, and the total time in each state."""
    spans = spans_by_state(view, as_of)
    if not spans:
        return []
    start = view.states[0][0]
    last = as_of if view.row.state not in TERMINAL else view.states[-1][0]
    totals: dict[State, float] = {}
    for span in spans:
        totals[span.state] = totals.get(span.state, 0.0) + span.end - span.start
    parts = [
        line(
            (STATES[state].text(), style_of(STATES[state])),
            " ",
            formatting.duration(seconds),
        )
        for state, seconds in totals.items()
        if seconds >= 1
    ]
    ends = justify(
        line((formatting.moment(start, this_year, seconds=True), DIM)),
        line((formatting.moment(last, this_year, seconds=True), DIM)),
        cells,
    )
    return [state_bar(spans, cells), ends, *wrap_parts(parts, line("   "), cells)]
