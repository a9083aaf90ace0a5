"""The life of a job as a bar, and its states' times. Pure functions.

The state after each event is what the domain's table says; a bar of it is a picture only,
and no figure of the ensemble is taken from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from metlmon.ensemble import wording
from metlmon.ensemble.states import TERMINAL, State
from metlmon.ensemble.views import EventLine, JobView
from metlmon.ensemble.wording import STATES
from screens.headlines import seconds_ago
from screens.ink import DIM, Line, ink, line, packed, spread

_AFTER: Final[Mapping[int, State]] = {
    0: State.IDLE,
    1: State.RUNNING,
    4: State.IDLE,
    7: State.IDLE,
    10: State.SUSPENDED,
    11: State.RUNNING,
    12: State.HELD,
    22: State.DISCONNECTED,
    23: State.RUNNING,
    24: State.IDLE,
}
_ENDS: Final = frozenset({5, 9})

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


@dataclass(frozen=True, slots=True)
class Stretch:
    """A job's time in one state, in seconds since its first event."""

    state: State
    start: float
    end: float


def stretches(view: JobView, as_of: datetime | None) -> list[Stretch]:
    """The states that a job went through, up to its end or ``as_of``."""
    if not view.events:
        return []
    origin = view.events[0].time
    made: list[Stretch] = []
    state, since = State.IDLE, 0.0
    for event in view.events:
        at = seconds_ago(event.time, origin)
        after = _after(event, state)
        if at is None or (after is state and event.number not in _ENDS):
            continue
        if at > since:
            made.append(Stretch(state, since, at))
        if event.number in _ENDS:
            return made
        # An event stamped before the one ahead of it does not turn time back.
        state, since = after, max(since, at)
    now = seconds_ago(as_of, origin)
    if view.row.state not in TERMINAL and now is not None and now > since:
        made.append(Stretch(state, since, now))
    return made


def _after(event: EventLine, before: State) -> State:
    if event.number == 13:
        return State.IDLE if before is State.HELD else before
    if event.number == 40:
        return _after_transfer(event.text.lower(), before)
    return _AFTER.get(event.number, before)


def _after_transfer(text: str, before: State) -> State:
    incoming, finished = "input" in text, "finished" in text
    if incoming:
        return State.STARTING if finished else State.TRANSFERRING_INPUT
    if "output" in text:
        return State.RUNNING if finished else State.TRANSFERRING_OUTPUT
    return before


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
    start = view.events[0].time
    last = as_of if view.row.state not in TERMINAL else view.events[-1].time
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
