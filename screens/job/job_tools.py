"""The keys of a job's screens that copy a text and ask HTCondor's tools."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from metlmon.live.feed import Snapshot
from metlmon.model.states import State
from metlmon.pool import job_tools
from metlmon.redact import redact_secrets
from metlmon.remote.paths import as_typed
from metlmon.snapshot.records import JobView
from metlmon.tables.layout import TableColumn
from metlmon.text.formatting import STATES, job_id, plain
from metlmon.text.spans import BOLD, DIM, KEY, NOTE, Line, line, wrap
from screens.base.screens import DocumentScreen, ResultModal, SnapshotScreen, ask_in_thread
from screens.widgets.line_widget import StaticLines
from screens.widgets.table import Table, TableRow

# --- a menu of what can be copied of a job, by OSC 52 --------------------------------------------


def copy_choices(view: JobView, dagdir: Path) -> dict[str, str]:
    """What can be copied of a job: title and text, made safe for a terminal."""
    row = view.job
    job = (row.cluster, row.proc)
    last = row.executions[-1] if row.executions else None
    reason = row.hold_reason or (last.reason if last is not None else None)
    choices = {"job": job_id(*job), "node": row.node_name or "", "reason": reason or ""}
    for title, name in (("output", view.output), ("errors", view.error)):
        choices[title] = as_typed(str(dagdir.resolve() / name)) if name else ""
    choices["why idle"] = shlex.join(job_tools.analyze_command(job))
    choices["output now"] = shlex.join(job_tools.tail_command(job))
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


# --- what a tool says of a job: why it is idle, or what it is writing now ------------------------


RUNS: frozenset[State] = frozenset({State.RUNNING, State.SUSPENDED, State.TRANSFERRING_OUTPUT})
"""States of a job that has a machine, on which its output can be read."""


def refusal_to_ask(state: State) -> str | None:
    """Why no tool says anything of a job in this state; None where one does."""
    if state is State.IDLE or state in RUNS:
        return None
    return f"it is {STATES[state].word}: only an idle or a running job can be asked about"


class ToolScreen(DocumentScreen):
    """The answer of ``condor_q -better-analyze`` or of ``condor_tail``, asked for once."""

    SCOPES: ClassVar[tuple[str, ...]] = ("below",)

    def __init__(self, cluster: int, proc: int, idle: bool) -> None:
        super().__init__()
        self.job = (cluster, proc)
        self._idle = idle
        self._lines: list[str] | None = None
        self._problem: str | None = None

    def on_mount(self) -> None:
        super().on_mount()
        query = job_tools.analyze if self._idle else job_tools.tail
        ask_in_thread(self, lambda: query(self.job), self._receive, "the tool failed")

    def _receive(self, lines: list[str] | None, error: str | None) -> None:
        self._lines, self._problem = lines, error
        self._refresh_if_mounted()

    def show(self, snapshot: Snapshot | None) -> None:
        command = (job_tools.analyze_command if self._idle else job_tools.tail_command)(self.job)
        title = "why it is idle" if self._idle else "what it has written, where it runs"
        head = [
            line(" ", ("job ", DIM), (job_id(*self.job), BOLD), f"  {title}"),
            line(" ", (" ".join(command), DIM)),
            (),
        ]
        self.show_document(head, self._body())

    def _body(self) -> list[Line]:
        room = self.app.size.width - 3
        if self._problem is not None:
            return wrap(plain(redact_secrets(self._problem), 2000), room, NOTE, indent=1)
        if self._lines is None:
            seconds = job_tools.ANALYZE_SECONDS if self._idle else job_tools.TAIL_SECONDS
            return [line(" ", (f"waiting for the pool (up to {seconds:.0f}s) …", DIM))]
        body: list[Line] = []
        for text in self._lines:
            body += wrap(plain(redact_secrets(text.expandtabs(8))), room, indent=1) or [()]
        return body or [line(" ", ("it printed nothing", DIM))]


# --- the keys ------------------------------------------------------------------------------------


TMUX_SECONDS: Final = 2.0


def copy_in_tmux(text: str) -> None:
    """Copy a text within tmux, which by default ignores what a program copies (set-clipboard)."""
    tmux = shutil.which("tmux") if os.environ.get("TMUX") else None
    if tmux is not None:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [tmux, "load-buffer", "-w", "-"],
                input=text.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=TMUX_SECONDS,
                check=False,
            )


class JobTools(SnapshotScreen):
    """A screen of one job, ``job``."""

    job: tuple[int, int]

    def action_copy(self) -> None:
        """Choose a text of the job, and copy it to the clipboard of the terminal."""
        view = self.context.feed.job_view(*self.job)
        if view is None:
            self.show_message("nothing is known of this job yet")
            return
        choices = copy_choices(view, self.context.feed.dagdir)
        self.app.push_screen(CopyScreen(choices), self._copy)

    def _copy(self, text: str | None) -> None:
        if text is not None:
            self.app.copy_to_clipboard(text)
            copy_in_tmux(text)
            self.show_message(f"copied: {text}")

    def action_ask(self) -> None:
        """Ask why the job is idle, or for what it is writing where it runs."""
        view = self.context.feed.job_view(*self.job)
        context = self.context
        if context.time_travel.active:
            self.show_message(context.time_travel.refusal() or "")
        elif context.pool_actions is None and not context.options.read_only:
            self.show_message(context.options.no_pool_reason)
        elif view is None or (refusal := refusal_to_ask(view.job.state)) is not None:
            self.show_message("nothing is known of this job yet" if view is None else refusal or "")
        else:
            self.app.push_screen(ToolScreen(*self.job, idle=view.job.state is State.IDLE))
