"""The Help screen, generated from the action registry and the symbols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from metlmon.live.feed import Snapshot
from metlmon.model.states import State
from metlmon.snapshot.gate_text import PAUSED, REQUESTED, STOPPED
from metlmon.text.formatting import BETWEEN, OUTCOMES, STALLED, STATES, Symbol
from metlmon.text.spans import BOLD, DIM, KEY, Line, fit, line, style_of, wrap
from screens.actions import SCOPES, actions_of, bindings_of, own_key_cap
from screens.base.screens import SnapshotScreen, heading, rule
from screens.widgets.document import Document
from screens.widgets.lines import StaticLines

STATE_MEANINGS: Final[dict[State, str]] = {
    State.WAITING: "its turn in the DAG has not come",
    State.IDLE: "in the queue for a machine",
    State.TRANSFERRING_INPUT: "its input is on the way",
    State.STARTING: "input is there, it has not begun",
    State.RUNNING: "at work on a machine",
    State.TRANSFERRING_OUTPUT: "its output is on the way",
    State.SUSPENDED: "stopped for now, keeps its GPUs",
    State.DISCONNECTED: "the connection is lost, it may run on",
    State.HELD: "needs a person to release it",
    State.PRE: "the script before the job runs",
    State.POST: "the script after the job runs",
    State.COMPLETED: "ended well, or known to be done",
    State.SKIPPED: "ended without a job, trained nothing",
    State.FAILED: "ended badly, for good",
    State.REMOVED: "taken out of the queue",
    State.RETRYING: "failed, and DAGMan will try again",
    State.FUTILE: "a node before it failed: it cannot run",
    State.UNKNOWN: "the files here cannot tell",
}


class HelpScreen(SnapshotScreen):
    """Keys and symbols; the keys of the calling screen come first."""

    SCOPES: ClassVar[tuple[str, ...]] = ("below",)
    SHOWS_ENSEMBLE: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("below")]

    def __init__(self, first: Sequence[str] = ()) -> None:
        super().__init__()
        self._first = tuple(first)

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Document()
        yield StaticLines(id="note")
        yield self.key_footer()

    def show(self, update: Snapshot | None) -> None:
        room = self.app.size.width
        document = self.query_one(Document)
        self.query_one("#head", StaticLines).show([line(" ", ("Keys and signs", BOLD)), ()])
        document.show(help_lines(room, self.context.options.read_only, self._first))
        down = "↓"
        more = [line((f"{down} {document.lines_below} more", DIM))] if document.lines_below else []
        self.query_one("#note", StaticLines).show([rule(more, room)])


def help_lines(room: int, read_only: bool = False, first: Sequence[str] = ()) -> list[Line]:
    """Return keys and legend, side by side on a wide screen.

    With ``read_only`` without keys that change something; the scopes ``first`` come first.
    """
    signs = _signs()
    if room < 140:
        key_lines = [heading("Keys", room), *_keys(read_only, first, room - 1)]
        return [*key_lines, (), heading("Signs", room), *signs]
    half = room // 2
    keys = _keys(read_only, first, half - 1)
    lines = [heading("Keys", half - 1) + line("  ") + heading("Signs", half - 1)]
    for i in range(max(len(keys), len(signs))):
        left_part = keys[i] if i < len(keys) else ()
        right_part = signs[i] if i < len(signs) else ()
        lines.append(fit(left_part, half, "left") + right_part)
    return lines


def _keys(read_only: bool, first: Sequence[str], width: int) -> list[Line]:
    lines: list[Line] = []
    for scope in dict.fromkeys((*first, *SCOPES)):
        title = SCOPES[scope]
        actions = actions_of((scope,), read_only)
        if not actions:
            continue
        if lines:
            lines.append(())
        lines.append(line(" ", (title, BOLD)))
        for action in actions:
            rows = wrap(action.help, width, indent=KEY_CELLS)
            cap = line("  ", (own_key_cap(action), KEY))
            lines.append(fit(cap, KEY_CELLS, "left") + rows[0][1:])
            lines += rows[1:]
        lines += wrap(SCOPE_NOTES[scope], width, DIM, 2) if scope in SCOPE_NOTES else []
    return lines


KEY_CELLS: Final = 12
"""Column of a key's help, behind the longest key cap."""

SCOPE_NOTES: Final[dict[str, str]] = {
    "acting": (
        "An act is for the marked rows, or else for the row under the cursor. It asks first, "
        "names every job it touches and those it leaves out, and only y does it. States change "
        "on the screens when the log tells of it."
    ),
    "timeline": (
        "Interrupted is what was suspended, or has lost its connection. While the past is shown, "
        "the first line of every screen says of when, and esc returns to now."
    ),
}
"""Further help on some scopes."""


def _signs() -> list[Line]:
    def row(sign: Symbol, meaning: str) -> Line:
        glyph = line((sign.glyph, style_of(sign)), "  ", (f"{sign.word:<18}", style_of(sign)))
        return line("  ") + glyph + line((meaning, DIM))

    differs = "≠"
    lines = [line(" ", ("States", BOLD))]
    lines += [row(STATES[state], meaning) for state, meaning in STATE_MEANINGS.items()]
    lines += [(), line(" ", ("How an execution ended", BOLD))]
    lines += [row(sign, "") for sign in OUTCOMES.values()]
    lines += [row(STALLED, "no sign of life for too long")]
    lines += [row(STOPPED, "its gate ended the run early")]
    lines += [row(PAUSED, "its gate keeps the next epoch waiting")]
    lines += [row(REQUESTED, "to stop, pause or go elsewhere")]
    lines += [(), line(" ", ("Other", BOLD))]
    lines.append(line(f"  A {differs} B", ("    it runs at A, though it was meant for B", DIM)))
    over = STATES[State.COMPLETED].glyph
    meaning = "its latest epoch is done, the next is not submitted yet"
    lines.append(line(f"  {over} {BETWEEN}  ", (meaning, DIM)))
    arrow = "→"
    lines.append(
        line(f"  {arrow} B{' ' * (7 - len(arrow))}", ("it is meant for B, and at no site now", DIM))
    )
    return lines
