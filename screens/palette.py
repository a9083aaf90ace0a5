"""The palette: finds actions, screens, runs, jobs and sites by their words."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import ClassVar, Final

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from metlmon.snapshot.records import Job
from metlmon.stats.usage import UsageFilter, site_usage
from metlmon.tables.layout import TableColumn
from metlmon.text.formatting import STATES, job_id, plain
from metlmon.text.spans import DIM, KEY, Line, line
from screens.actions import TABS, actions_of, title_of
from screens.base.screens import Prompt, ResultModal, SnapshotScreen
from screens.widgets.table import Table, TableRow

MOST_ROWS: Final = 200
"""Rows shown at most: a further word finds the others."""

Choice = tuple[str, ...] | tuple[str, UsageFilter] | tuple[str, int, int]
"""What was chosen: ``("action", name)``, ``("ensemble", path)``, or a screen and its arguments."""


class Entry(msgspec.Struct, frozen=True):
    """One row: key cap or kind, text, the words it is found by, and what it opens."""

    cap: str
    text: str
    words: str
    choice: Choice
    refused: bool = False


class PaletteScreen(ResultModal[Choice | None]):
    """Modal search of what can be done or opened from ``origin``."""

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
        words = self.query_one(Prompt).value.lower().split()
        found = iter(self._fixed) if not words else self._everything()
        matches = (entry for entry in found if all(word in entry.words for word in words))
        self._entries = {str(i): entry for i, entry in enumerate(islice(matches, MOST_ROWS))}
        columns = [TableColumn("KEY", 8), TableColumn("ACTION", max(10, table.size.width - 18))]
        rows = [TableRow(key, partial(_cells, entry)) for key, entry in self._entries.items()]
        table.show(columns, rows, [line("  ", ("nothing has these words", DIM))])

    def _everything(self) -> Iterator[Entry]:
        yield from self._fixed
        for kind, text, key in self._origin.entries():
            yield Entry(kind, plain(text, 60), f"{kind} {text} {key}".lower(), (kind, key))
        context = self._origin.context
        if context.snapshot is None:
            return
        for run in context.snapshot.status.runs:
            text = f"{plain(run.name, 40)}   {STATES[run.state].word}"
            words = f"run {run.name} {run.uuid or ''} {run.dag}".lower()
            yield Entry("run", text, words, ("run", run.key))
        usage = context.stats.value(site_usage)
        for site in () if usage is None else usage.sites:
            name, choice = plain(site.name or "unknown", 60), UsageFilter((site.name,))
            yield Entry("site", name, f"site {name.lower()}", ("executions", choice))
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

    def action_give_up(self) -> None:
        self.return_result(None)


def _actions(screen: SnapshotScreen) -> Iterator[Entry]:
    refusals, context = screen.refusals(), screen.context
    scopes = (*screen.SCOPES, *screen.PALETTE_SCOPES, "everywhere")
    for action in actions_of(scopes, context.options.read_only, context.keys):
        if action.name == "palette":
            continue
        words = f"{action.label} {action.help} {action.name}".lower()
        why = refusals.get(action.name)
        text = action.help if why is None else f"✗ {action.label}: {plain(why, 200)}"
        cap = " ".join(action.keys)
        yield Entry(cap, text, words, ("action", action.name), refused=why is not None)


def _screens() -> Iterator[Entry]:
    for number, names in enumerate(TABS, 1):
        for i, name in enumerate(names):
            title = title_of(name)
            words = f"{title} screen {name}".lower()
            yield Entry(" ".join([str(number)] * (i + 1)), title, words, (name,))


def _job(job: Job) -> Entry:
    number = job_id(job.cluster, job.proc)
    text = f"{number}   {plain(job.run_name or job.node_name or '', 40)}   {STATES[job.state].word}"
    words = (
        f"job {job.cluster}.{job.proc} {number} {job.run_name or ''} {job.node_name or ''}".lower()
    )
    return Entry("job", text, words, ("job", job.cluster, job.proc))


def _cells(entry: Entry) -> tuple[Line, Line]:
    if entry.refused:
        return line((entry.cap, DIM)), line((entry.text, DIM))
    return line((entry.cap, KEY)), line(entry.text)
