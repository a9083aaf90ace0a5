"""The palette: finds actions, screens, runs, jobs and sites by their words."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from heapq import nsmallest
from typing import ClassVar, Final

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from metlmon.snapshot.records import Job
from metlmon.stats.usage import UsageFilter, site_usage
from metlmon.tables.layout import TableColumn, empty_text
from metlmon.text.formatting import STATES, Colour, Weight, clip_middle, job_id, plain
from metlmon.text.spans import DIM, KEY, PLAIN, Line, TextStyle, line, merge_spans
from screens.actions import TABS, actions_of, title_of
from screens.base.screens import Prompt, ResultModal, SnapshotScreen
from screens.widgets.line_widget import Table, TableRow

MAX_ROWS: Final = 200
"""Maximum rows shown: another word finds the others."""

NAME_CELLS: Final = 14
"""Width to which names are padded, so that most texts line up."""

MATCH: Final = TextStyle(Colour.ORANGE, Weight.BOLD)

ACTIONS, RUNS, JOBS, CURSOR_KEYS = 1, 2, 3, 4
"""Ranks of kinds among equal matches; screens have 0."""

Choice = tuple[str, ...] | tuple[str, UsageFilter] | tuple[str, int, int]
"""What was chosen: ``("action", name)``, ``("ensemble", path)``, ``("command", key)``, or a screen
and its arguments."""


class Entry(msgspec.Struct, frozen=True):
    """One row: key cap or kind, its name and description, and what it opens.

    ``words``: further words by which it is found, in lower case; ``rank``: that of its kind among
    equal matches.
    """

    cap: str
    name: str
    text: str
    choice: Choice
    words: str = ""
    rank: int = 0
    refused: bool = False

    def quality(self, wanted: str) -> int | None:
        """How well it matches the typed text: 0 is its exact name; None: not at all."""
        name = self.name.lower()
        if name.startswith(wanted):
            return 0 if name == wanted else 1
        words = wanted.split()
        if all(_start_of_word(name, word) >= 0 for word in words):
            return 2
        others = f"{name} {self.text.lower()} {self.words}"
        if all(word in others for word in words):
            return 3 if all(_start_of_word(others, word) >= 0 for word in words) else 4
        return 5 if _letters_in(name, wanted) else None


class PaletteScreen(ResultModal[Choice]):
    """Modal search of everything that can be done or opened from ``origin``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+p", "give_up", priority=True, show=False),
        # No priority: the input must see keys of one batch in order.
        Binding("up", "move('up')", show=False),
        Binding("down", "move('down')", show=False),
        Binding("enter", "choose", show=False),
    ]

    def __init__(self, origin: SnapshotScreen) -> None:
        super().__init__()
        self._origin = origin
        self._fixed = [*_actions(origin), *(() if origin.entries() else _screens())]
        self._all: list[Entry] | None = None
        self._entries: dict[str, Entry] = {}

    def compose(self) -> ComposeResult:
        with Vertical(id="palette"):
            yield Prompt(id="wanted", hint="Search actions, runs, jobs")
            yield Table()

    def on_mount(self) -> None:
        self.query_one(Prompt).focus()

    @on(Input.Changed)
    def fill(self) -> None:
        table = self.query_one(Table)
        wanted = " ".join(self.query_one(Prompt).value.lower().split())
        if wanted and self._all is None:
            self._all = list(self._everything())
        found = self._all if wanted and self._all else self._fixed
        ranked = (
            (quality, entry.refused, entry.rank, index)
            for index, entry in enumerate(found)
            if (quality := entry.quality(wanted)) is not None
        )
        best = nsmallest(MAX_ROWS, ranked)
        self._entries = {str(index): found[index] for *_, index in best}
        columns = [TableColumn("KEY", 8), TableColumn("ACTION", max(10, table.size.width - 18))]
        rows = [
            TableRow(key, partial(_cells, entry, wanted)) for key, entry in self._entries.items()
        ]
        table.show(columns, rows, empty_text("", "nothing has these words"))
        if rows:
            table.select(rows[0].key or "")

    def _everything(self) -> Iterator[Entry]:
        yield from self._fixed
        for kind, text, key in self._origin.entries():
            yield Entry(kind, plain(text, 60), "", (kind, key), f"{kind} {key}".lower())
        context = self._origin.context
        for run in context.snapshot.status.runs:
            words = f"run {run.run} {run.uuid or ''} {run.dag}".lower()
            name, state = clip_middle(plain(run.run), 40), STATES[run.state].word
            yield Entry("run", name, state, ("run", run.key), words, RUNS)
        usage = context.stats.value(site_usage)
        for site in () if usage is None else usage.sites:
            name, choice = plain(site.name or "unknown", 60), UsageFilter((site.name,))
            yield Entry("site", name, "", ("executions", choice), "site", RUNS)
        yield from map(_job, context.feed.queued_jobs())

    def action_move(self, direction: str) -> None:
        table = self.query_one(Table)
        (table.action_up if direction == "up" else table.action_down)()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_choose()

    def action_choose(self) -> None:
        entry = self._entries.get(self.query_one(Table).cursor or "")
        self.return_result(None if entry is None else entry.choice)


def _start_of_word(text: str, word: str) -> int:
    """The position where a word of the text begins with this one; -1 if none does."""
    at = text.find(word)
    while at > 0 and text[at - 1].isalnum():
        at = text.find(word, at + 1)
    return at


def _letters_in(name: str, wanted: str) -> list[int]:
    """The positions of the typed letters, in their order, starting with that of a word."""
    letters = wanted.replace(" ", "")
    if len(letters) < 2 or not letters[0].isalpha():
        return []
    found = [_start_of_word(name, letters[0])]
    for letter in letters[1:]:
        if found[-1] < 0:
            return []
        found.append(name.find(letter, found[-1] + 1))
    return found if found[-1] >= 0 else []


def _matches(name: str, text: str, wanted: str) -> set[int]:
    """The characters of a row, its name followed by its text, that match the typed text."""
    row = f"{name}{text}".lower()
    found = set()
    for word in wanted.split():
        at = _start_of_word(row, word)
        at = row.find(word) if at < 0 else at
        if at < 0:
            return set(_letters_in(name.lower(), wanted))
        found |= set(range(at, at + len(word)))
    return found


def _actions(screen: SnapshotScreen) -> Iterator[Entry]:
    refusals, context = screen.refusals(), screen.context
    scopes = (*screen.SCOPES, *screen.PALETTE_SCOPES, "everywhere")
    for action in actions_of(scopes, context.opened.read_only, context.keys):
        if action.name == "palette":
            continue
        why = refusals.get(action.name)
        text = action.help if why is None else f"✗ {plain(why, 200)}"
        words = f"{action.help} {action.name.replace('_', ' ')}".lower()
        rank = CURSOR_KEYS if action.scope in ("moving", "sideways") else ACTIONS
        choice = ("action", action.name)
        cap = " ".join(action.keys)
        yield Entry(cap, action.label, text, choice, words, rank, why is not None)
    for key, command in context.own_commands.items():
        yield Entry(command.key, command.name, "your own command", ("command", key), rank=ACTIONS)


def _screens() -> Iterator[Entry]:
    for number, names in enumerate(TABS, 1):
        for i, name in enumerate(names):
            cap = " ".join([str(number)] * (i + 1))
            yield Entry(cap, title_of(name), "screen", (name,), name)


def _job(job: Job) -> Entry:
    number = job_id(job.cluster, job.proc)
    text = f"{plain(job.run or job.node_name or '', 40)}   {STATES[job.state].word}"
    words = f"job {job.cluster}.{job.proc} {job.run or ''} {job.node_name or ''}".lower()
    return Entry("job", number, text, ("job", job.cluster, job.proc), words, JOBS)


def _cells(entry: Entry, wanted: str) -> tuple[Line, Line]:
    name = entry.name.ljust(NAME_CELLS) if entry.text else entry.name
    text = f"  {entry.text}" if entry.text else ""
    found = _matches(name, text, wanted)
    style = DIM if entry.refused else PLAIN
    spans = ((letter, MATCH if i in found else style) for i, letter in enumerate(name + text))
    return line((entry.cap, DIM if entry.refused else KEY)), merge_spans(spans)
