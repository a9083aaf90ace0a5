"""The life of a job as a bar, and its states' times. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from metlmon.frozen import frozen
from metlmon.model.states import TERMINAL, State
from metlmon.snapshot.types import JobView
from metlmon.text import formatting
from metlmon.text.formatting import STATES
from screens.overview.header import seconds_ago
from screens.widgets.spans import DIM, Line, line, packed, spread, style_of

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


@frozen
class StateSpan:
    """A job's time in one state, in seconds since its first event."""

    state: State
    start: float
    end: float


def stretches(view: JobView, as_of: datetime | None) -> list[StateSpan]:
    """The states that a job went through, up to its end or ``as_of``."""
    if not view.states:
        return []
    origin = view.states[0][0]
    made: list[StateSpan] = []
    state, since = view.states[0][1], 0.0
    for when, after in view.states[1:]:
        at = seconds_ago(when, origin)
        if at is not None and at > since:
            made.append(StateSpan(state, since, at))
            since = at
        # One stamped before the one ahead of it does not turn time back.
        state = after
    now = seconds_ago(as_of, origin)
    if state not in TERMINAL and now is not None and now > since:
        made.append(StateSpan(state, since, now))
    return made


def life_bar(made: Sequence[StateSpan], cells: int, ascii: bool) -> Line:
    """The stretches as one bar; each cell shows what took most of its time."""
    if not made or cells <= 0:
        return ()
    end = made[-1].end
    spans: list[tuple[str, State]] = []
    for cell in range(cells):
        low, high = end * cell / cells, end * (cell + 1) / cells
        state = max(made, key=lambda s: min(s.end, high) - max(s.start, low)).state
        piece = STATES[state].letter if ascii else _TEXTURE.get(state, "·")
        if spans and spans[-1][1] is state:
            spans[-1] = (spans[-1][0] + piece, state)
        else:
            spans.append((piece, state))
    return line(*((piece, style_of(STATES[state])) for piece, state in spans))


def life(view: JobView, as_of: datetime | None, cells: int, ascii: bool) -> list[Line]:
    """Bar, its two ends in time, and the time in each state."""
    made = stretches(view, as_of)
    if not made:
        return []
    start = view.states[0][0]
    last = as_of if view.row.state not in TERMINAL else view.states[-1][0]
    totals: dict[State, float] = {}
    for stretch in made:
        totals[stretch.state] = totals.get(stretch.state, 0.0) + stretch.end - stretch.start
    told = [
        line(
            (STATES[state].text(ascii), style_of(STATES[state])), " ", formatting.duration(s, ascii)
        )
        for state, s in totals.items()
        if s >= 1
    ]
    ends = spread(
        line((formatting.moment(start, ascii), DIM)),
        line((formatting.moment(last, ascii), DIM)),
        cells,
        ascii,
    )
    return [life_bar(made, cells, ascii), ends, *packed(told, line("   "), cells)]
