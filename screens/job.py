"""The screens of one job: its history, its output files, and the answers of HTCondor's tools."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial, partialmethod
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar, cast

from msgspec import Struct
from rich.cells import chop_cells
from textual.app import ComposeResult
from textual.containers import Horizontal

from metlmon.errors import sentence_of
from metlmon.live import output_pager
from metlmon.live.file_access import (
    NO_FILE_YET,
    FsExecutor,
    UnreadableFile,
    call_with_timeout,
    calls_through,
    output_file,
    read_tail,
)
from metlmon.live.output_pager import OutputPage, Search
from metlmon.model.reasons import code_text, signal_text
from metlmon.model.sites import alias_of
from metlmon.model.states import TERMINAL, UNPLACED, Outcome, State
from metlmon.pool.job_tools import ANALYZE, TAIL, JobTool
from metlmon.redact import redact_secrets
from metlmon.remote.paths import NoAnswer, as_typed, host_of
from metlmon.snapshot.records import (
    EventLine,
    Execution,
    Job,
    JobView,
    Snapshot,
    Transfer,
    UsageRow,
)
from metlmon.stats.lineage import CheckpointOrigin, lineage
from metlmon.tables import curves as curves_table
from metlmon.tables.layout import Column, Kind, empty_text, render_table
from metlmon.tables.runs import host_and_site, site_and_target
from metlmon.text import formatting
from metlmon.text.formatting import (
    OUTCOMES,
    STATES,
    Colour,
    Symbol,
    Weight,
    clip,
    clip_middle,
    job_id,
    plain,
    seconds_ago,
    size,
)
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    NOTE,
    Line,
    TextStyle,
    crop,
    file_name,
    join,
    justify,
    line,
    merge_spans,
    style_of,
    symbol_span,
    wrap,
    wrap_parts,
)
from metlmon.text.spans import text as text_of
from screens.base.screens import (
    ChoiceScreen,
    DocumentScreen,
    FilterKeys,
    Sections,
    SnapshotScreen,
    ask_in_thread,
    job_queue_lines,
    rule,
)
from screens.base.stats_worker import streams
from screens.pool_actions import ActionScreen, Selection
from screens.widgets.line_widget import Document

T = TypeVar("T")

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
    choices["why idle"] = shlex.join(ANALYZE.command(job))
    choices["output now"] = shlex.join(TAIL.command(job))
    return {title: plain(redact_secrets(text)) for title, text in choices.items() if text}


# --- a tool's answer about a job: why it is idle, or what it is writing now -----------------------


RUNS: frozenset[State] = frozenset({State.RUNNING, State.SUSPENDED, State.TRANSFERRING_OUTPUT})
"""States of a job that occupies a machine, where its output can be read."""


class ToolScreen(DocumentScreen):
    """The answer of ``condor_q -better-analyze`` or of ``condor_tail``, requested once."""

    SCOPES: ClassVar[tuple[str, ...]] = ("below",)

    def __init__(self, cluster: int, proc: int, tool: JobTool) -> None:
        super().__init__()
        self.job = (cluster, proc)
        self._tool = tool
        self._lines: list[str] | None = None
        self._problem: str | None = None

    def on_mount(self) -> None:
        super().on_mount()
        ask_in_thread(self, lambda: self._tool.run(self.job), self._receive, "the tool failed")

    def _receive(self, lines: list[str] | None, error: str | None) -> None:
        self._lines, self._problem = lines, error
        self._refresh_if_mounted()

    def show(self, snapshot: Snapshot) -> None:
        is_analysis = self._tool is ANALYZE
        title = "why it is idle" if is_analysis else "what it has written, where it runs"
        head = [
            line(" ", ("job ", DIM), (job_id(*self.job), BOLD), f"  {title}"),
            line(" ", (" ".join(self._tool.command(self.job)), DIM)),
            (),
        ]
        self.show_document(head, self._body())

    def _body(self) -> list[Line]:
        room = self.app.size.width - 3
        if self._problem is not None:
            return wrap(plain(redact_secrets(self._problem), 2000), room, NOTE, indent=1)
        if self._lines is None:
            seconds = f"{self._tool.seconds:.0f}s"
            return [line(" ", (f"waiting for the pool (up to {seconds}) …", DIM))]
        body: list[Line] = []
        for text in self._lines:
            body += wrap(plain(redact_secrets(text.expandtabs(8))), room, indent=1) or [()]
        return body or [line(" ", ("it printed nothing", DIM))]


# --- the keys ------------------------------------------------------------------------------------


TMUX_SECONDS: Final = 2.0


def copy(screen: SnapshotScreen, text: str) -> None:
    """Copy a text to the clipboard of the terminal, and say so.

    Within tmux, too, which by default ignores what a program copies (set-clipboard).
    """
    screen.app.copy_to_clipboard(text)
    screen.show_message(f"copied: {text}")
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
    """A screen of one job, ``job``, and of its output."""

    def __init__(self, cluster: int, proc: int) -> None:
        super().__init__()
        self.job = (cluster, proc)
        self._files = FsExecutor(lambda: None)

    def on_unmount(self) -> None:
        self._files.close()

    def read_file(
        self, dagdir: Path, name: str, read: Callable[[Path], T]
    ) -> tuple[T | None, str | None]:
        """The result of ``read`` for a file, or its problem. Call in a thread: NFS can block."""
        try:
            with calls_through(self._files):
                path = call_with_timeout(output_file, dagdir, name)
                return call_with_timeout(read, path), None
        except Exception as error:
            return None, sentence_of(error, "reading it failed", UnreadableFile, NoAnswer)

    def output_names(self, view: JobView) -> list[tuple[str, str]]:
        """Title and name of each output file that the submit description names."""
        names = ((".out", view.output), (".err", view.error))
        return [(title, name) for title, name in names if name]

    def action_copy(self) -> None:
        """Choose a text of the job, and copy it to the clipboard of the terminal."""
        view = self.context.feed.job_view(*self.job)
        if view is None:
            self.show_message("nothing is known of this job yet")
            return
        choices = copy_choices(view, self.context.feed.dagdir)

        def copy_chosen(chosen: tuple[str, ...] | None) -> None:
            for title in chosen or ():
                copy(self, choices[title])

        self.app.push_screen(ChoiceScreen("Copy: which?", choices, ()), copy_chosen)

    def action_ask(self) -> None:
        """Ask why the job is idle, or, if it is running, for what it is writing."""
        view, context = self.context.feed.job_view(*self.job), self.context
        if context.time_travel.active:
            self.show_message(context.time_travel.refusal() or "")
        elif context.pool_actions is None and not context.opened.read_only:
            self.show_message(context.opened.no_pool)
        elif view is None:
            self.show_message("nothing is known of this job yet")
        elif view.job.state is State.IDLE or view.job.state in RUNS:
            tool = ANALYZE if view.job.state is State.IDLE else TAIL
            self.app.push_screen(ToolScreen(*self.job, tool))
        else:
            state = STATES[view.job.state].word
            reason = "only an idle or a running job can be asked about"
            self.show_message(f"it is {state}: {reason}")


REASON: Final = 4000
"""Maximum length of a reason in characters: one may contain a whole error log."""


NO_OUTPUT_IN_PAST: Final = "what it had written then is not known: its lines carry no times"


def file_problem(problem: str, job: Job) -> str:
    """Why an output file of a job was not read; a job that has ended will not create it."""
    if problem != NO_FILE_YET or job.state not in TERMINAL:
        return problem
    if not job.executions:
        return "no such file (it never ran)"
    removed = job.state is State.REMOVED
    return f"no such file{' (removed before its output came back)' if removed else ' here now'}"


class OutputTail(Struct, frozen=True):
    """The end of an output file: its ``lines``, or the ``problem`` with reading it."""

    title: str
    name: str
    lines: tuple[str, ...]
    problem: str | None = None


def build_sections(
    view: JobView,
    as_of: datetime | None,
    tails: Sequence[OutputTail],
    room: int,
    this_year: int | None = None,
    origin: CheckpointOrigin | None = None,
    in_full: bool = False,
) -> Sections:
    """All sections of a job; for a failed one, its output comes first.

    ``tails``: the ends of its output files, if they are shown here. ``this_year``: see
    :func:`metlmon.text.formatting.moment`. ``origin``: that of its epoch's checkpoint. ``in_full``:
    show the contact strings of hosts instead of their names.
    """
    sections = Sections()
    row = view.job
    failed = row.state is State.FAILED
    if failed:
        _add_tails(sections, tails, room, FIRST_LINES)
    sections.add("Why it is held", _hold(view, room), room)
    sections.add("Life", _indent(state_lines(row, as_of, room - 2, this_year)), room)
    title = formatting.count(len(row.executions), "execution")
    sections.add(title.capitalize(), _executions(row.executions, room, this_year), room)
    if origin is not None and origin.recorded:
        sections.add("Checkpoint", _indent(_checkpoint(row, origin)), room)
    sections.add("Transfers", _transfers(row, room, this_year), room)
    resources, used_in = "Resources", view.usage_execution
    if used_in and len(row.executions) > 1:
        newest = ", the newest that logged them" if used_in < len(row.executions) else ""
        resources = f"Resources of execution {used_in} of {len(row.executions)}{newest}"
        resources += " (memory: the most of all so far)"
    sections.add(resources, _usage(view.usage, room), room)
    sections.add("Events", _events(view, room, this_year, in_full), room)
    if not failed:
        _add_tails(sections, tails, room)
    return sections


FIRST_LINES: Final = 8
"""Lines of each output file above the other sections of a failed job; [enter] shows all."""


def _add_tails(
    sections: Sections, tails: Iterable[OutputTail], room: int, limit: int | None = None
) -> None:
    for tail in tails:
        name = plain(tail.name, 60)
        lines = tail.lines[-limit:] if limit is not None else tail.lines
        body: list[Line] = []
        if tail.problem is not None:
            body = [line(" ", (f"not shown: {plain(tail.problem, 200)}", DIM))]
        for text in lines:
            body += wrap(plain(text, 2 * room), room - 2, indent=1, limit=2)
        title = f"{tail.title}  {name}" if name else tail.title
        if len(lines) < len(tail.lines):
            title += f"  last {len(lines)} lines"
        sections.add(title, body or [line(" ", ("it is empty", DIM))], room)


def _indent(lines: Iterable[Line]) -> list[Line]:
    return [line(" ") + content for content in lines]


def _hold(view: JobView, room: int) -> list[Line]:
    row = view.job
    if row.state is not State.HELD:
        return []
    reason = clip(row.hold_reason or "The log gives no reason.", REASON)
    code, subcode = row.hold_code, row.hold_subcode
    codes = "" if code is None else f"   code {code_text(code, subcode, row.hold_reason)}"
    since = f"held for {formatting.duration(view.seconds)}"
    return [*wrap(reason, room - 2, BAD, indent=1), line(" ", (since, ALARM), (codes, DIM))]


def _checkpoint(row: Job, origin: CheckpointOrigin) -> list[Line]:
    """Which job made the checkpoint of the epoch, and from which checkpoint."""
    where = f" at {clip(origin.site, 40)}" if origin.site else ""
    if origin.job == (row.cluster, row.proc):
        execution = f" in its execution {origin.execution}" if origin.execution else ""
        made = line(f"made by this job{execution}{where}")
    elif origin.job is not None:
        made = line((f"made by job {formatting.job_id(*origin.job)}{where}, not by this one", NOTE))
    else:
        made = line(f"made{where} by a job that is not recorded")
    if not origin.parent_known:
        parent = "what it continues is not recorded"
    elif origin.parent_sha256 is None:
        parent = "trained from scratch"
    elif origin.parent_epoch is None:
        parent = f"continues an unrecorded checkpoint, sha256 {origin.parent_sha256[:16]}…"
    else:
        parent = f"continues the checkpoint of epoch {formatting.epoch_text(origin.parent_epoch)}"
    file = plain((origin.file or "").rpartition("/")[2], 60)
    digest = f"sha256 {(origin.sha256 or '')[:16]}…, recorded in {file}"
    return [made, line(parent), line((digest, DIM))]


# --- tables in sections ---------------------------------------------------------------------


Numbered = tuple[int, Execution]


def _executions(rows: Sequence[Execution], room: int, this_year: int | None) -> list[Line]:
    if not rows:
        return [line(" ", ("It never ran.", DIM))]
    needless = {"suspended"} if not any(row.suspended for row in rows) else set()
    needless |= {name for name in ("gpus", "cpus") if not any(_use(row, name) for row in rows)}
    needless |= {"hours"} if all(row.gpus == 0 for row in rows) else set()
    columns = [each for each in _execution_columns(this_year) if each.name not in needless]
    heading_line, *table = render_table(columns, list(enumerate(rows, 1)), room)
    lines = [heading_line]
    for content, row in zip(table, rows, strict=True):
        lines.append(content)
        if reason := _outcome_reason(row):
            lines += wrap(reason, room - 2, TextStyle(OUTCOMES[row.outcome].colour), indent=6)
    return lines


def _outcome_reason(row: Execution) -> str:
    if row.outcome is Outcome.GOOD:
        return ""
    parts = [plain(row.reason, REASON)] if row.reason else []
    if row.signal is not None:
        parts.append(signal_text(row.signal))
    elif row.return_value:
        parts.append(f"return value {row.return_value}")
    if row.code is not None:
        parts.append(f"(code {code_text(row.code, row.subcode, row.reason)})")
    if row.uncertain:
        parts.append("(its end is not in the log; taken from the event that proves it)")
    return " ".join(parts)


def _execution_columns(this_year: int | None) -> list[Column[Numbered]]:
    return [
        Column("n", lambda row: row[0], Kind.COUNT, title="#", style=DIM),
        Column("outcome", lambda row: OUTCOMES[row[1].outcome], Kind.STATE),
        Column("start", lambda row: row[1].start, Kind.TIME, drop=1, year=this_year),
        Column("seconds", lambda row: row[1].seconds, Kind.DURATION, title="TIME"),
        Column("suspended", lambda row: row[1].suspended or "", Kind.DURATION, drop=6, style=NOTE),
        Column(
            "site", lambda row: clip(row[1].site or "", 40) or None, drop=2, maximum=24, minimum=8
        ),
        Column("gpu", lambda row: formatting.gpus(row[1].gpu, row[1].gpus), drop=3, maximum=20),
        Column("gpus", lambda row: _use(row[1], "gpus"), Kind.NUMBER, title="GPU USE", drop=2.5),
        Column("cpus", lambda row: _use(row[1], "cpus"), Kind.NUMBER, title="CPU USE", drop=4.5),
        Column("hours", lambda row: row[1].gpu_hours, Kind.HOURS, title="GPU-h", drop=4),
        Column("host", lambda row: clip(row[1].host or "", 60), drop=5, style=DIM, maximum=44),
    ]


def _use(row: Execution, name: str) -> str | None:
    """``0.91 of 1``: average use of GPUs or CPUs, out of those allocated."""
    if row.usage is None:
        return None
    allocated = getattr(row.usage, f"{name}_allocated") or getattr(row, name)
    return formatting.used_of(getattr(row.usage, name), allocated)


def _transfers(row: Job, room: int, this_year: int | None) -> list[Line]:
    lines = [line(" ") + _transfer(transfer, this_year) for transfer in row.transfers]
    if row.bytes_sent is not None or row.bytes_received is not None:
        sent, received = (formatting.size(row.bytes_sent), formatting.size(row.bytes_received))
        lines.append(line(" ", ("in all ", DIM), f"{received} received, {sent} sent"))
    return lines


_TRANSFER_STYLE: Final[Mapping[str, TextStyle]] = {
    "ok": TextStyle(Colour.GREEN),
    "aborted": NOTE,
    "unfinished": NOTE,
    "failed": NOTE,
    "in-flight": TextStyle(Colour.BLUE),
}


def _transfer(row: Transfer, this_year: int | None) -> Line:
    incoming = row.direction == "input"
    arrow = STATES[State.TRANSFERRING_INPUT if incoming else State.TRANSFERRING_OUTPUT].glyph
    outcome = clip(row.outcome, 12)
    queued = f"   queued {formatting.duration(row.queue_seconds)}" if row.queue_seconds else ""
    # Address and port of <3.88.128.244:9618?addrs=…>.
    address = (row.host or "").removeprefix("<").partition("?")[0].removesuffix(">")
    host = f"   {clip(address, 48)}" if row.host else ""
    return line(
        f"{arrow} {'input ' if incoming else 'output'}  ",
        (f"{outcome:<10}", _TRANSFER_STYLE.get(row.outcome, TextStyle())),
        f"  {formatting.moment(row.start, this_year, seconds=True):>20}",
        f"  {formatting.duration(row.seconds):>6}",
        (queued + host, DIM),
    )


def _usage(rows: Sequence[UsageRow], room: int) -> list[Line]:
    def name(row: UsageRow, _: int | None) -> Line:
        return line(clip(row.name, 24), (f" ({clip(row.unit, 10)})" if row.unit else "", DIM))

    def used_style(row: UsageRow) -> TextStyle:
        exceeds = row.usage is not None and row.request is not None and row.usage > row.request
        return BAD if exceeds and row.unit == "MB" else TextStyle()

    columns: list[Column[UsageRow]] = [
        Column("name", lambda row: row.name, title="RESOURCE", cell=name, maximum=28),
        Column(
            "usage",
            lambda row: _known(row.usage),
            Kind.NUMBER,
            title="USED",
            write=_amount,
            style=used_style,
        ),
        Column(
            "request",
            lambda row: _known(row.request),
            Kind.NUMBER,
            title="REQUESTED",
            write=_amount,
        ),
        Column("allocated", lambda row: _known(row.allocated), Kind.NUMBER, write=_amount),
        Column("assigned", lambda row: clip(row.assigned or "", 80), drop=1, style=DIM, maximum=60),
    ]
    return render_table(columns, rows, room) if rows else []


def _known(value: float | None) -> float | str:
    return "" if value is None else value


def _amount(value: float) -> str:
    is_whole = abs(value) >= 1e15 or value == int(value)
    return formatting.number(int(value)) if is_whole else f"{value:.2f}"


# --- the timeline of events -----------------------------------------------------------------

_EVENT_SYMBOLS: Final[Mapping[int, Symbol]] = {
    0: Symbol("◦", "submitted", Colour.PLAIN),
    1: Symbol("▶", "executing", Colour.SKY),
    4: OUTCOMES[Outcome.EVICTED],
    5: Symbol("✓", "terminated", Colour.GREEN),
    7: OUTCOMES[Outcome.SHADOW_EXCEPTION],
    8: Symbol("»", "the job says", Colour.PLAIN),
    9: Symbol("⌫", "aborted", Colour.ORANGE),
    10: STATES[State.SUSPENDED],
    11: Symbol("▶", "unsuspended", Colour.SKY),
    12: STATES[State.HELD],
    13: Symbol("◦", "released", Colour.PLAIN),
    16: Symbol("◕", "post script ended", Colour.BLUE),
    21: Symbol("!", "remote error", Colour.ORANGE),
    22: STATES[State.DISCONNECTED],
    23: Symbol("▶", "reconnected", Colour.SKY),
    24: OUTCOMES[Outcome.RECONNECT_FAILED],
    34: STATES[State.SKIPPED],
}
_OTHER_EVENT: Final = Symbol("·", "", Colour.GREY, Weight.DIM)


DATED_WIDTH: Final = 110
"""Width from which every event shows its date; below it, each new day has a line."""


_CONTACT: Final = re.compile(r"<([^<>\s?]{1,200})\?[^<>\s]{0,4000}>")
"""A contact string: the address of a daemon, and how to reach it."""


def _event_text(event: EventLine, job: Job) -> str:
    """The text of an event, with hosts by name; for an execution, with its site."""
    if event.number == 1:
        for execution in job.executions:
            if execution.start == event.time and execution.host:
                name = clip(execution.site or "", 40)
                return text_of(host_and_site(execution.host, line(name or "unknown")))
    # <128.105.68.62:9618?addrs=…&alias=ap40.uw.osg-htc.org&…> as ap40.uw.osg-htc.org.
    return _CONTACT.sub(lambda found: alias_of(found[0]) or found[1], event.text)


def _events(view: JobView, room: int, this_year: int | None, in_full: bool) -> list[Line]:
    lines: list[Line] = []
    previous: EventLine | None = None
    one_line_per_day = room < DATED_WIDTH
    for event in view.events:
        time = formatting.moment(event.time, this_year, seconds=True)
        day, _, clock = time.rpartition(" ")
        if one_line_per_day and (previous is None or previous.time.date() != event.time.date()):
            lines.append(line(" ", (day, DIM)))
        symbol = _event_symbol(event, view.job.state)
        word = symbol.word or clip(event.name.lower().replace("_", " "), 24)
        gap = seconds_ago(event.time, previous.time) if previous else None
        interval = f"+{formatting.duration(gap)}" if gap and gap >= 1 else ""
        prefix = line(
            " ",
            (clock if one_line_per_day else f"{time:>20}", DIM),
            (f" {interval:>8} ", DIM),
            (f" {symbol.glyph} {word:<17} ", style_of(symbol)),
        )
        damaged = line(("cut in the log  ", NOTE)) if event.damaged else ()
        shown = event.text if in_full else _event_text(event, view.job)
        lines += wrap(plain(shown, REASON), room, DIM, start=prefix + damaged)
        previous = event
    if view.memory_updates:
        reports = formatting.count(view.memory_updates, "memory report")
        lines.append(line(" ", (f"and {reports}, not listed", DIM)))
    return lines


def _event_symbol(event: EventLine, state: State) -> Symbol:
    if event.number == 5 and state is State.FAILED:
        return Symbol("✗", "terminated", Colour.VERMILLION)
    if event.number == 40:
        incoming = "input" in event.text.lower()
        symbol = STATES[State.TRANSFERRING_INPUT if incoming else State.TRANSFERRING_OUTPUT]
        return Symbol(symbol.glyph, "transfer", symbol.colour)
    return _EVENT_SYMBOLS.get(event.number, _OTHER_EVENT)


# --- the states over time ---------------------------------------------------------------------

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


def spans_by_state(job: Job, as_of: datetime | None) -> list[StateSpan]:
    """The states of a job in order, up to its end or ``as_of``."""
    if not job.states:
        return []
    origin = job.states[0][0]
    spans: list[StateSpan] = []
    state, span_start = job.states[0][1], 0.0
    for when, next_state in job.states[1:]:
        seconds = seconds_ago(when, origin)
        if seconds is not None and seconds > span_start:
            spans.append(StateSpan(state, span_start, seconds))
            span_start = seconds
        # An event with an earlier time does not move time backwards.
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
    bar = []
    for cell in range(cells):
        low, high = end * cell / cells, end * (cell + 1) / cells
        state = max(state_spans, key=lambda span: min(span.end, high) - max(span.start, low)).state
        bar.append((_TEXTURE.get(state, "·"), style_of(STATES[state])))
    return merge_spans(bar)


def state_lines(
    job: Job, as_of: datetime | None, cells: int, this_year: int | None = None
) -> list[Line]:
    """The bar, its start and end, and the total time in each state."""
    spans = spans_by_state(job, as_of)
    if not spans:
        return []
    last = as_of if job.state not in TERMINAL else job.states[-1][0]
    totals: dict[State, float] = {}
    for span in spans:
        totals[span.state] = totals.get(span.state, 0.0) + span.end - span.start
    parts = [
        line((STATES[state].text(), style_of(STATES[state])), " ", formatting.duration(seconds))
        for state, seconds in totals.items()
        if seconds >= 1
    ]
    start, end = (
        line((formatting.moment(time, this_year, seconds=True), DIM))
        for time in (job.states[0][0], last)
    )
    ends = justify(start, end, cells)
    return [state_bar(spans, cells), ends, *wrap_parts(parts, line("   "), cells)]


def facts(view: JobView, this_year: int | None) -> list[Line]:
    """Host, site, GPU, memory and submission time of a job, as parts of one line."""
    row, parts = view.job, list[Line]()
    several = len(row.executions) > 1
    if row.site is not None:
        site = site_and_target(row.site, row.target, view.off_target, None, state=row.state)
        placed = row.state not in UNPLACED and row.executions
        place = host_and_site(row.executions[-1].host, site) if placed else site
        number = len(row.executions)
        parts.append(place + line((f", execution {number} of {number}" if several else "", DIM)))
    elif row.target is not None:
        parts.append(line(("wants ", DIM), clip(row.target, 40)))
    if row.gpu is not None or row.gpus is not None:
        parts.append(line(formatting.gpus(row.gpu, row.gpus)))
    if row.memory_mb is not None:
        memory = formatting.number(row.memory_mb)
        if row.request_memory_mb:
            memory += f" of {formatting.number(row.request_memory_mb)}"
        of_all = (", the most of all" if several else "", DIM)
        parts.append(line(("memory ", DIM), f"{memory} MB", of_all))
    if row.submitted is not None:
        parts.append(line(("submitted ", DIM), formatting.moment(row.submitted, this_year)))
    return parts


SIDE_BY_SIDE: Final = 150
"""Width from which the output is shown beside the sections."""

TAIL_LINES: Final = 400


class JobScreen(JobTools, ActionScreen):
    """The history of one job, and the end of its output files."""

    SCOPES: ClassVar[tuple[str, ...]] = ("job", "acting", "below")
    AUTO_FOCUS = "#story"

    def __init__(self, cluster: int, proc: int) -> None:
        super().__init__(cluster, proc)
        self._is_only_job = False
        self._tails: tuple[OutputTail, ...] = ()
        self._reading = False
        self._in_full = False
        self._inputs: tuple[Any, ...] | None = None
        self._sections = Sections()

    def compose_body(self) -> ComposeResult:
        with Horizontal():
            yield Document(id="story")
            yield Document(id="output", follow=True)

    def hidden_actions(self) -> tuple[str, ...]:
        return ("previous", "next") if self._is_only_job else ()

    def show(self, snapshot: Snapshot) -> None:
        view = self.context.feed.job_view(*self.job)
        document, output = self.query_one("#story", Document), self.query_one("#output", Document)
        if view is None:
            self.show_head([line(" ", (formatting.job_id(*self.job), BOLD))])
            output.display = False
            text = empty_text("", "The job appears as soon as its log has been read.")
            if snapshot.is_complete:
                sentence = "No log in this directory has an event of this job."
                text = empty_text(sentence, "[esc] goes back.")
            document.show([(), *text])
            self._update_note()
            return
        self.show_head(self._header(view))
        self._is_only_job = len(self._node_jobs(view)) < 2
        self._read_tails(view)
        room = self.app.size.width
        side_by_side = room >= SIDE_BY_SIDE and any(tail.lines for tail in self._tails)
        if output.display != side_by_side:
            output.display = side_by_side
        as_of = None if view.job.state in TERMINAL else snapshot.status.as_of
        left_width = room * 3 // 5 if side_by_side else room
        tails = () if side_by_side else self._tails
        origin = self._origin()
        inputs = (view, as_of, tails, left_width - 1, self.this_year, origin, self._in_full)
        if inputs != self._inputs:
            # A job may have thousands of events: build the sections only after a change.
            self._inputs, self._sections = inputs, build_sections(*inputs)
        content = self._sections
        if side_by_side:
            # The end is in view; for a failed job, that of its error file.
            failed = view.job.state is State.FAILED
            shown = self._tails[::-1] if failed else self._tails
            output_content = Sections()
            _add_tails(output_content, shown, room - left_width - 1)
            output.show(output_content.lines, output_content.sections)
        document.show(content.lines, content.sections)
        self._update_note()

    def _origin(self) -> CheckpointOrigin | None:
        self.context.stats.watch_job_files()
        known = self.context.stats.value(lineage)
        return known.of_job(self.job) if known is not None else None

    def _header(self, view: JobView) -> list[Line]:
        row, room = view.job, self.app.size.width
        state = symbol_span(STATES[row.state])
        duration = formatting.duration(view.seconds)
        since = line((" for ", DIM), duration)
        if row.state in TERMINAL:
            since = line(" ", duration, (" ago", DIM))
        elif row.state is State.HELD and (clock := self.removal_clock(*self.job)):
            since += line((f", {clock}", ALARM))
        title = line(("job ", DIM), (formatting.job_id(row.cluster, row.proc), BOLD))
        left = join((title, state + (since if view.seconds is not None else ())), line("   "))
        lines = [line(" ") + justify(left, self._job_label(view), room - 2)]
        node = line(("node ", DIM), clip(row.node_name or "none: it belongs to no DAG", 60))
        dag = line(("in ", DIM), file_name(row.dag, 40)) if row.dag else ()
        lines.append(line(" ") + join((node, dag), line("  ")))
        if row.candidates:
            names = ", ".join(clip(name, 40) for name in row.candidates)
            prefix = "may belong to any of " if len(row.candidates) > 1 else "may belong to "
            suffix = "" if len(row.candidates) > 1 else ", or to another directory's DAG"
            lines.append(line(" ", (prefix, NOTE), (names + suffix, NOTE)))
        lines += wrap_parts(facts(view, self.this_year), line("   "), room - 2, indent=1)
        lines += self._progress(view)
        lines += job_queue_lines(view, self.context.now(), room - 2)
        return [*lines, ()]

    def _progress(self, view: JobView) -> list[Line]:
        if view.job.state is not State.RUNNING:
            return []
        self.context.stats.watch_job_files()
        streamed = (self.context.stats.value(streams) or {}).get(self.job)
        if streamed is None:
            return []
        content = line(("it printed last   ", DIM)) + curves_table.progress(streamed)
        return [line(" ") + content]

    def _job_label(self, view: JobView) -> Line:
        row = view.job
        run = line(clip_middle(row.run, 24)) if row.run else ()
        number = formatting.epoch_text(row.epoch)
        epoch = line(("epoch ", DIM), number) if number else ()
        jobs = self._node_jobs(view)
        place = f"job {jobs.index(self.job) + 1} of {len(jobs)}" if len(jobs) > 1 else ""
        return join((run, epoch, line((place, NOTE))), line("  "))

    def _node_jobs(self, view: JobView) -> list[tuple[int, int]]:
        """The jobs of the node in order of submission, including this one."""
        jobs = list(dict.fromkeys(view.siblings))
        return jobs if self.job in jobs else sorted([*jobs, self.job])

    def _update_note(self) -> None:
        self.show_document_note(self.query_one("#story", Document))

    # --- the ends of the output files ------------------------------------------------------

    def _read_tails(self, view: JobView) -> None:
        if self._reading:
            return
        files = self.output_names(view)[::-1]
        if self.context.time_travel.past_view is not None:
            self._tails = tuple(OutputTail(*file, (), NO_OUTPUT_IN_PAST) for file in files)
            return
        self._reading = True
        job, dagdir = self.job, self.context.feed.dagdir

        def read() -> None:
            tails = []
            for title, name in files:
                lines, problem = self.read_file(dagdir, name, read_tail)
                reason = problem and file_problem(problem, view.job)
                tails.append(OutputTail(title, name, tuple((lines or ())[-TAIL_LINES:]), reason))
            self.call_later(self._set_tails, job, tuple(tails))

        self.run_worker(read, thread=True, group="tails", description="the output")

    def _set_tails(self, job: tuple[int, int], tails: tuple[OutputTail, ...]) -> None:
        self._reading = False
        if job != self.job or self.context.time_travel.past_view is not None:
            self._refresh_if_mounted()
        elif tails != self._tails:
            self._tails = tails
            self._refresh_if_mounted()

    # --- acting ---------------------------------------------------------------------------

    def selection(self) -> Selection:
        """This job and its DAG."""
        jobs = self.job_rows([self.job])
        text = f"job {formatting.job_id(*self.job)}"
        return Selection(text, jobs, self.dags_of(job.dag for job in jobs))

    # --- moving ---------------------------------------------------------------------------

    def _step(self, delta: int) -> None:
        view = self.context.feed.job_view(*self.job)
        if view is None:
            return
        jobs = self._node_jobs(view)
        index = jobs.index(self.job) + delta
        if not 0 <= index < len(jobs):
            self.show_message(f"this is the {'newest' if delta > 0 else 'oldest'} job of its node")
        else:
            self.job = jobs[index]
            self._tails = ()
            self.query_one("#story", Document).scroll_to_line(0)
            self._refresh_if_mounted()

    action_previous = partialmethod(_step, -1)
    action_next = partialmethod(_step, 1)

    def action_view(self) -> None:
        """Show the contact strings of hosts in full, or their names."""
        self._in_full = not self._in_full
        self._refresh_if_mounted()

    def action_section(self) -> None:
        self.query_one("#story", Document).next_section()
        self._update_note()

    def action_output(self) -> None:
        self.context.open_screen("output", *self.job)

    def action_owner(self) -> None:
        view = self.context.feed.job_view(*self.job)
        if view is not None:
            self.context.open_run_of(view.job)


POLL_SECONDS: Final = 1.0
"""Interval at which the file is checked for more while its end is in view."""

NEAR_EDGE: Final = 100
"""Distance in lines from the first or last loaded one at which more are read."""

EMPTY: Final = OutputPage((), 0, 0)

PagerRead = Callable[[Path], OutputPage | None]
"""Reads a page, given the path of the file; None: the shown page stays."""


class OutputView(Document):
    """The loaded rows. The keys for the first and the last line refer to those of the file."""

    def action_first(self) -> None:
        cast("OutputScreen", self.screen).show_start()

    def action_last(self) -> None:
        cast("OutputScreen", self.screen).show_end()


class OutputScreen(JobTools, FilterKeys):
    """The output of a job, from the first byte to the last."""

    SCOPES: ClassVar[tuple[str, ...]] = ("output", "below")
    AUTO_FOCUS = "OutputView"
    FILTER_HINT = "a text to find; capitals count if there are any"

    def __init__(self, cluster: int, proc: int) -> None:
        super().__init__(cluster, proc)
        self._error_first = False
        self._page = EMPTY
        self._line_starts: list[int] = []
        self._wraps = True
        self._reading = False
        self._next_read: PagerRead | None = None
        self._wanted: PagerRead = output_pager.page_at_end
        self._problem: str | None = None
        self._search: Search | None = None

    def compose_body(self) -> ComposeResult:
        yield OutputView(follow=True)

    def on_mount(self) -> None:
        super().on_mount()
        view = self.context.feed.job_view(*self.job)
        self._error_first = view is not None and view.job.state is State.FAILED
        self.set_interval(POLL_SECONDS, self._poll)
        self.show_end()

    def on_unmount(self) -> None:
        self._cancel_search()
        super().on_unmount()

    @property
    def view(self) -> OutputView:
        """The widget with the rows."""
        return self.query_one(OutputView)

    def _output_names(self) -> list[tuple[str, str]]:
        """Title and name of each output file, the shown one first."""
        view = self.context.feed.job_view(*self.job)
        known = [] if view is None else self.output_names(view)
        return known[::-1] if self._error_first else known

    # --- what is shown ----------------------------------------------------------------------

    def show(self, snapshot: Snapshot) -> None:
        names = self._output_names()
        head = line(" ", ("job ", DIM), (formatting.job_id(*self.job), BOLD), "  ")
        if names:
            (title, name), *others = names
            head += line((title, BOLD), "  ") + line(file_name(name, 60))
            head += line((f"  {size(self._page.size)}", DIM)) if self._problem is None else ()
            head += line((f"   [v] {others[0][0]}" if others else "", DIM))
        self.show_head([crop(head, self.app.size.width)])
        self._show_note()

    def _show_note(self) -> None:
        parts = self.messages()
        if self._search is not None:
            done = formatting.share(self._search.done, 1)
            parts.append(line((f"searching {done}; [esc] stops", NOTE)))
        elif self.filter_text:
            parts.append(line(("find ", DIM), (plain(self.filter_text, 30), NOTE)))
        if self._page.rows:
            share = formatting.share(self._top_offset(), max(1, self._page.size))
            parts.append(line(("end of the file, followed" if self._follows() else share, DIM)))
        self.show_note([rule(parts, self.app.size.width)])

    def _show_rows(self) -> None:
        room = max(1, self.app.size.width - 1)
        lines: list[Line] = []
        self._line_starts = []
        for row in self._page.rows:
            self._line_starts.append(len(lines))
            text = plain(row.text.expandtabs(8))
            parts = chop_cells(text, room) if self._wraps else [text]
            lines += [self._with_matches(part) for part in parts] or [()]
        if not lines:
            view = self.context.feed.job_view(*self.job)
            problem = self._problem
            if problem is not None and view is not None:
                problem = file_problem(problem, view.job)
            reason = problem or ("reading …" if self._reading else "it is empty")
            lines = empty_text("", plain(reason, 300))
        self.view.show(lines)

    def _with_matches(self, text: str) -> Line:
        """The text, with the first match of the search marked."""
        wanted = self.filter_text
        at = (text if wanted != wanted.lower() else text.lower()).find(wanted) if wanted else -1
        if at < 0:
            return line(text)
        end = at + len(wanted)
        return line(text[:at], (text[at:end], NOTE), text[end:])

    def _top_offset(self) -> int:
        """The offset of the row at the top of the view."""
        index = bisect_right(self._line_starts, self.view.top_line) - 1
        return self._page.rows[index].start if 0 <= index < len(self._page.rows) else 0

    def _scroll_to_offset(self, offset: int) -> None:
        """Scroll the row at this offset to the top; an offset of the file's size means the end."""
        if offset >= self._page.size:
            self.view.scroll_to_line(len(self.view.lines))
            return
        ends = [row.end for row in self._page.rows]
        self.view.scroll_to_line(self._line_starts[bisect_right(ends, offset)])

    def _draw_again(self) -> None:
        """Redraw the rows; the same one stays at the top of the view."""
        offset = self._page.size if self._follows() else self._top_offset()
        self._show_rows()
        if self._page.rows:
            self._scroll_to_offset(offset)

    def on_resize(self) -> None:
        self._draw_again()

    # --- reading, in a thread ---------------------------------------------------------------

    def _request(self, read: PagerRead, wanted: PagerRead | None = None) -> None:
        """Read a page of the shown file, and show it; if another is being read, after that one.

        ``wanted``: what is read until it succeeds, if this fails; None: this again.
        """
        names = self._output_names()
        if self._reading:
            self._next_read = read
            return
        self._wanted = wanted or read
        self._problem = None
        if self.context.time_travel.past_view is not None:
            self._problem = NO_OUTPUT_IN_PAST
        elif not names:
            self._problem = "its submit description names no output file"
        if self._problem is not None:
            self._page = EMPTY
            self._show_rows()
            self._refresh_if_mounted()
            return
        self._reading = True
        name = names[0][1]
        dagdir = self.context.feed.dagdir
        self.run_worker(
            lambda: self.call_later(self._show_page, *self.read_file(dagdir, name, read)),
            thread=True,
            group="output",
            description="the output",
        )

    def _show_page(self, page: OutputPage | None, problem: str | None) -> None:
        self._reading, self._problem = False, problem
        if self._next_read is not None and self.is_mounted:
            read, self._next_read = self._next_read, None
            self._request(read)
            return
        if problem is not None:
            self._page = EMPTY
        elif page is not None:
            self._page = page
        if not self.is_mounted or (page is None and problem is None):
            return
        self._show_rows()
        if self._page.rows:
            self._scroll_to_offset(self._page.top)
        self._refresh_if_mounted()

    def _follows(self) -> bool:
        return self._page.reaches_end and self.view.lines_below == 0

    def _poll(self) -> None:
        if not self._follows() or self._reading:
            return
        page = self._page
        if self._problem is not None:
            # Not the end of the file: a match may have been requested.
            self._request(self._wanted)
        else:
            changed = partial(output_pager.page_if_changed, page=page)
            self._request(changed, output_pager.page_at_end)

    def on_document_scrolled(self) -> None:
        page, view, top = self._page, self.view, self._top_offset()
        if self._reading:
            pass
        elif page.rows and view.lines_below < NEAR_EDGE and not page.reaches_end:
            self._request(lambda path: output_pager.page_below(path, page, top))
        elif page.rows and view.top_line < NEAR_EDGE and page.rows[0].start > 0:
            self._request(lambda path: output_pager.page_above(path, page, top))
        self._show_note()

    def show_start(self) -> None:
        """Show the first rows of the file."""
        self._request(lambda path: output_pager.page_around(path, 0))

    def show_end(self) -> None:
        """Show the last rows of the file, and follow them."""
        self._request(output_pager.page_at_end)

    # --- keys -------------------------------------------------------------------------------

    def action_view(self) -> None:
        """Show the other file."""
        if len(self._output_names()) < 2:
            self.show_message("it has no other output file")
        else:
            self._error_first = not self._error_first
            self._page = EMPTY
            self.show_end()

    def action_wrap(self) -> None:
        """Wrap long lines, or cut them at the edge of the screen."""
        self._wraps = not self._wraps
        self._draw_again()
        self.show_message("long lines are wrapped" if self._wraps else "long lines are cut")

    def action_pager(self) -> None:
        """Open the file in $PAGER; its end returns here."""
        if self.app.is_web:
            self.show_message("a pager needs a terminal: a browser has none")
            return
        if self.context.time_travel.past_view is not None:
            self.show_message(NO_OUTPUT_IN_PAST)
            return
        names, dagdir = self._output_names(), self.context.feed.dagdir
        pager = os.environ.get("PAGER", "")
        try:
            command = shlex.split(pager) or ["less"]
        except ValueError as error:
            self.show_message(f"$PAGER is {plain(pager, 40)!r}: {error}")
            return
        tool = shutil.which(command[0])
        if not names or tool is None:
            why = f"{command[0]} is not installed here" if names else "there is no output file"
            self.show_message(why)
            return
        if host := host_of(dagdir):
            self.show_message(f"a pager opens only files of this machine: this one is on {host}")
            return
        try:
            path = output_file(dagdir, names[0][1])
            with self.app.suspend():
                subprocess.run([tool, *command[1:], str(path)], check=False)
        except (UnreadableFile, NoAnswer, OSError) as error:
            self.show_message(f"{command[0]}: {error}")
        self.app.refresh()

    # --- searching --------------------------------------------------------------------------

    def set_filter(self, text: str) -> None:
        """Find a text, starting at the top of the view; an empty one removes the marks."""
        self.filter_text = text
        self.set_focus(self.view)
        self._draw_again()
        if text:
            self._find(backward=False)

    def _find(self, backward: bool) -> None:
        """Find the next match, in a thread; [esc] cancels the search."""
        names = self._output_names()
        if not self.filter_text:
            self.show_message("[/] finds a text")
        if not self.filter_text or not names or self._search is not None:
            return
        search = self._search = Search(self.filter_text)
        offset = self._top_offset()
        name = names[0][1]
        work = partial(self._find_in_thread, search, name, offset, backward)
        self.run_worker(work, thread=True, group="search", description="the search")
        self._show_note()

    def _find_in_thread(self, search: Search, name: str, offset: int, backward: bool) -> None:
        found, problem = None, None
        try:
            path = output_file(self.context.feed.dagdir, name)
            found = search.find(path, offset, backward)
        except Exception as error:
            problem = sentence_of(error, "the search failed", UnreadableFile, NoAnswer)
        self.call_later(self._end_search, search, found, problem)

    def _end_search(self, search: Search, found: int | None, problem: str | None) -> None:
        self._search = None
        if not self.is_mounted:
            return
        if found is not None:
            self._request(lambda path: output_pager.page_around(path, found))
        elif not search.cancelled:
            self.show_message(problem or f"{plain(search.text, 40)!r} is not in this file")
        self._show_note()

    action_next = partialmethod(_find, False)
    action_previous = partialmethod(_find, True)

    def _cancel_search(self) -> None:
        if self._search is not None:
            self._search.cancelled = True

    def action_back(self) -> None:
        if self._search is not None:
            self._cancel_search()
        elif self.filter_text:
            self.set_filter("")
        else:
            super().action_back()
