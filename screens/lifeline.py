"""The life of a job as a bar, and its states' times. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from metlmon.ensemble import wording
from metlmon.ensemble.states import TERMINAL, State
from metlmon.ensemble.views import JobView
from metlmon.ensemble.wording import STATES
from metlmon.frozen import frozen
from screens.headlines import seconds_ago
from screens.ink import DIM, Line, ink, line, packed, spread

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
class Stretch:
    """A job's time in one state, in seconds since its first event."""

    state: State
    start: float
    end: float


def stretches(view: JobView, as_of: datetime | None) -> list[Stretch]:
    """The states that a job went through, up to its end or ``as_of``."""
    if not view.states:
        return []
    origin = view.states[0][0]
    made: list[Stretch] = []
    state, since = view.states[0][1], 0.0
    for when, after in view.states[1:]:
        at = seconds_ago(when, origin)
        if at is not None and at > since:
            made.append(Stretch(state, since, at))
            since = at
        # One stamped before the one ahead of it does not turn time back.
        state = after
    now = seconds_ago(as_of, origin)
    if state not in TERMINAL and now is not None and now > since:
        made.append(Stretch(state, since, now))
    return made


def life_bar(made: Sequence[Stretch], cells: int, ascii: bool) -> Line:
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
    return line(*((piece, ink(STATES[state])) for piece, state in spans))


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
        line((STATES[state].text(ascii), ink(STATES[state])), " ", wording.duration(s, ascii))
        for state, s in totals.items()
        if s >= 1
    ]
    ends = spread(
        line((wording.moment(start, ascii), DIM)),
        line((wording.moment(last, ascii), DIM)),
        cells,
        ascii,
    )
    return [life_bar(made, cells, ascii), ends, *packed(told, line("   "), cells)]
