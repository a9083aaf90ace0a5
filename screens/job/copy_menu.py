"""A menu of what can be copied of a job, by OSC 52."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from metlmon.pool.job_tools import analyze_command, tail_command
from metlmon.redact import redact_secrets
from metlmon.remote.paths import as_typed
from metlmon.snapshot.records import JobView
from metlmon.tables.layout import TableColumn
from metlmon.text.formatting import job_id, plain
from metlmon.text.spans import BOLD, DIM, KEY, Line, line
from screens.base.screens import ResultModal
from screens.widgets.line_widget import StaticLines
from screens.widgets.table import Table, TableRow


def copy_choices(view: JobView, dagdir: Path) -> dict[str, str]:
    """What can be copied of a job: title and text, made safe for a terminal."""
    row = view.job
    job = (row.cluster, row.proc)
    last = row.executions[-1] if row.executions else None
    reason = row.hold_reason or (last.reason if last is not None else None)
    choices = {"job": job_id(*job), "node": row.node_name or "", "reason": reason or ""}
    for title, name in (("output", view.output), ("errors", view.error)):
        choices[title] = as_typed(str(dagdir.resolve() / name)) if name else ""
    choices["why idle"] = shlex.join(analyze_command(job))
    choices["output now"] = shlex.join(tail_command(job))
    return {title: plain(redact_secrets(text)) for title, text in choices.items() if text}


class CopyScreen(ResultModal[str | None]):
    """The menu; returns the chosen text."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", show=False),
        Binding("escape,q,Y", "cancel", show=False),
    ]

    def __init__(self, choices: dict[str, str]) -> None:
        super().__init__()
        self._choices = choices

    def compose(self) -> ComposeResult:
        with Vertical(id="palette"):
            yield StaticLines(id="head")
            yield Table()

    def fill(self) -> None:
        hint = line(("enter", KEY), (" copies   ", DIM), ("esc", KEY), (" closes", DIM))
        self.query_one("#head", StaticLines).show([line(("Copy", BOLD)), hint])
        width = max((len(title) for title in self._choices), default=0)
        rows = [TableRow(title, partial(self._cells, title)) for title in self._choices]
        columns = [TableColumn("WHAT", width), TableColumn("TEXT", 60)]
        self.query_one(Table).show(columns, rows)

    def _cells(self, title: str) -> tuple[Line, Line]:
        return line(title), line((self._choices[title], DIM))

    def action_choose(self) -> None:
        chosen = self.query_one(Table).cursor
        self.return_result(None if chosen is None else self._choices[str(chosen)])

    def action_cancel(self) -> None:
        self.return_result(None)
