"""The help: the keys of the calling screen on one page, then all keys and symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from metlmon.model.states import State
from metlmon.pool.types import DAG_ACTS, PLACE_ACTS, RUN_ACTS, PoolAction
from metlmon.snapshot.records import Snapshot
from metlmon.snapshot.row_text import PAUSED, REQUESTED, STOPPED
from metlmon.text.formatting import BETWEEN, OUTCOMES, STALLED, STATES, Colour, Symbol
from metlmon.text.spans import BOLD, DIM, KEY, Line, fit, line, style_of, wrap, wrap_parts
from screens.actions import HELP_CELLS, SCOPES, TABS, Action, actions_of
from screens.base.screens import DocumentScreen, beside, heading
from screens.pool_actions import action_of

STATE_MEANINGS: Final[dict[State, str]] = {
    State.WAITING: "its turn in the DAG has not come",
    State.IDLE: "in the queue for a machine",
    State.TRANSFERRING_INPUT: "its input is on the way",
    State.STARTING: "input is there, it has not begun",
    State.RUNNING: "at work on a machine",
    State.TRANSFERRING_OUTPUT: "its output is on the way",
    State.SUSPENDED: "stopped for now, keeps its GPUs",
    State.DISCONNECTED: "the connection is lost, it may run on",
    State.HELD: "waits for somebody to release it",
    State.PRE: "the script before the job runs",
    State.POST: "the script after the job runs",
    State.COMPLETED: "ended well, or known to be done",
    State.SKIPPED: "ended without a job, trained nothing",
    State.FAILED: "ended badly, for good",
    State.REMOVED: "taken out of the queue",
    State.RETRYING: "failed, and DAGMan will try again",
    State.FUTILE: "a node before it failed: it cannot run",
    State.UNKNOWN: "the files here do not show it",
}

COLUMN_CELLS: Final = HELP_CELLS + 11
"""A key cap and its help."""

ACTS_TITLE: Final = " a  "

MOVING_PAIRS: Final = (
    ("up", "down", "One row"),
    ("page_up", "page_down", "One page"),
    ("first", "last", "First, last row"),
)
"""Opposite actions, and what both do."""

TAB_KEYS: Final = f"1…{len(TABS)}"


class HelpScreen(DocumentScreen):
    """The keys of the scopes ``first`` on one page; the help key again shows all."""

    SHOWS_ENSEMBLE = False

    def __init__(self, first: Sequence[str] = ()) -> None:
        super().__init__()
        self._first = tuple(first)
        self._all = not first

    def show(self, update: Snapshot) -> None:
        room, keys = self.app.size.width, self.context.keys
        read_only = self.context.opened.read_only
        hint = () if self._all else line(("   ", DIM), ("?", KEY), (" shows all of them", DIM))
        lines = (
            help_lines(room, read_only, keys)
            if self._all
            else context_lines(self._first, room, read_only, keys)
        )
        if own := self.context.own_commands.values():
            rows = [_row(command.key, command.name) for command in own]
            lines = [*lines, (), line(" ", ("Your own commands", BOLD)), *rows]
        self.show_document([line(" ", ("Keys and signs", BOLD)) + hint], lines)

    def show_all(self) -> None:
        self._all = True
        self._refresh_if_mounted()


def context_lines(
    scopes: Sequence[str], room: int, read_only: bool = False, keys: Mapping[str, str] | None = None
) -> list[Line]:
    """The keys of a screen in two columns: its own, then those of every screen."""
    common = () if set(scopes) & {"submit", "launch", "question"} else ("everywhere",)
    own = [a for a in actions_of(scopes, read_only, keys) if a.keys and a.scope != "acting"]
    acts = _acts(keys, room) if "acting" in scopes and not read_only else []
    tabs = [_row(TAB_KEYS, "Screens of the tab bar")] if common else []
    rows = [_key_row(action) for action in own] + tabs
    rows += [_key_row(action) for action in actions_of(common, read_only, keys)]
    rows += _moving_rows(keys)
    count = -(-len(rows) // max(1, min(4, room // COLUMN_CELLS)))
    columns = [rows[i : i + count] for i in range(0, len(rows), count)]
    lines = [
        tuple(
            span
            for column in columns
            if i < len(column)
            for span in fit(column[i], COLUMN_CELLS, "left")
        )
        for i in range(count)
    ]
    return lines + acts


def _moving_rows(keys: Mapping[str, str] | None) -> list[Line]:
    """The keys of moving, one row for each opposite pair."""
    moving = {action.name: action.keys for action in actions_of(("moving",), keys=keys)}
    rows = []
    for one, other, text in MOVING_PAIRS:
        (cap, *more), (other_cap, *other_more) = moving[one], moving[other]
        also = " ".join((*more, *other_more))
        rows.append(_row(f"{cap} {other_cap}", f"{text}; also {also}" if also else text))
    return rows


def _acts(keys: Mapping[str, str] | None, room: int) -> list[Line]:
    """The acts of the menu by their targets, in as few lines as possible."""
    subjects = {"runs": RUN_ACTS, "sites, hosts": PLACE_ACTS, "DAGs": DAG_ACTS}
    of_others = {act for acts in subjects.values() for act in acts}
    groups = {"jobs": [act for act in PoolAction if act not in of_others], **subjects}
    remapped = {action.name: action for action in actions_of(("acts",), keys=keys)}
    parts: list[Line] = []
    for subject, acts in groups.items():
        title = line((f"{subject}: ", DIM))
        for name in dict.fromkeys(action_of(act).name for act in acts):
            # Acts that share a key have one place.
            if (action := remapped.pop(name, None)) is not None:
                cap = " ".join(action.keys)
                parts.append(title + line((cap, KEY), f" {action.label}"))
                title = ()
    first, *rest = wrap_parts(parts, line("  "), room - len(ACTS_TITLE) - 1)
    indent = line(" " * len(ACTS_TITLE))
    return [line((ACTS_TITLE, KEY)) + first, *(indent + part for part in rest)]


def _key_row(action: Action) -> Line:
    return _row(" ".join(action.keys), action.help)


def _row(cap: str, text: str) -> Line:
    return fit(line(" ", (cap, KEY)), COLUMN_CELLS - HELP_CELLS, "left") + line(text)


def help_lines(
    room: int, read_only: bool = False, keys: Mapping[str, str] | None = None
) -> list[Line]:
    """Return all keys and the legend, side by side on a wide screen."""
    signs = _signs()
    if room < 140:
        key_lines = [heading("Keys", room), *_keys(read_only, keys, room - 1)]
        return [*key_lines, (), heading("Signs", room), *signs]
    half = room // 2
    head = heading("Keys", half - 1) + line("  ") + heading("Signs", half - 1)
    return [head, *beside(_keys(read_only, keys, half - 1), signs, half)]


def _keys(read_only: bool, keys: Mapping[str, str] | None, width: int) -> list[Line]:
    lines: list[Line] = [line(" ", ("Screens", BOLD)), *map(_key_row, actions_of(("tabs",)))]
    for scope, title in SCOPES.items():
        actions = [a for a in actions_of((scope,), read_only, keys) if a.keys]
        if actions:
            lines += [(), line(" ", (title, BOLD)), *map(_key_row, actions)]
        lines += wrap(SCOPE_NOTES[scope], width, DIM, 2) if actions and scope in SCOPE_NOTES else []
    return lines


SCOPE_NOTES: Final[dict[str, str]] = {
    "acting": (
        "An act is for the marked rows, or else for the row under the cursor. It asks first, "
        "names every job it touches and those it leaves out, and only y does it. States change "
        "on the screens when the log tells of it."
    ),
    "timeline": (
        "Interrupted is what was suspended, or has lost its connection. While the past is shown, "
        "the first line of every screen says of when, and [esc] returns to now."
    ),
}
"""Further help on some scopes."""


def _signs() -> list[Line]:
    def row(sign: Symbol, meaning: str) -> Line:
        glyph = line((sign.glyph, style_of(sign)), "  ", (f"{sign.word:<18}", style_of(sign)))
        return line("  ") + glyph + line((meaning, DIM))

    lines = [line(" ", ("States", BOLD))]
    lines += [row(STATES[state], meaning) for state, meaning in STATE_MEANINGS.items()]
    lines += [(), line(" ", ("How an execution ended", BOLD))]
    lines += [row(sign, "") for sign in OUTCOMES.values()]
    lines += [(), line(" ", ("Other", BOLD))]
    between = replace(STATES[State.COMPLETED], word=BETWEEN)
    lines += [row(between, "its next epoch is not submitted yet")]
    lines += [row(STALLED, "no sign of life for too long")]
    lines += [row(STOPPED, "its gate ended the run early")]
    lines += [row(PAUSED, "its gate keeps the next epoch waiting")]
    lines += [row(REQUESTED, "to stop, pause or go elsewhere")]
    lines += [row(Symbol("≠", "A ≠ B", Colour.PLAIN), "it runs at A, though it was meant for B")]
    return [*lines, row(Symbol("→", "→ B", Colour.GREY), "it is meant for B, and at no site now")]
